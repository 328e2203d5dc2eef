//! What systemd says of the stages' units.

use crate::root::{Command, Output, Root, Stage};

/// The stages' units, the last first.
const UNITS: [&str; 4] =
    ["cloud-final.service", "cloud-config.service", "cloud-init-network.service", "cloud-init-local.service"];
/// The word in systemd's environment that switches provisioning off.
pub const DISABLED: &str = "cloud-init=disabled";

/// What is to be expected of the stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outlook {
    /// They run or are queued, or systemd does not tell.
    Going,
    /// Nothing runs or is queued, and a unit failed or is switched off.
    Failed,
    /// Nothing runs or is queued.
    Never,
}

/// Whether systemd's environment switches provisioning off.
pub fn environment_disables(root: &mut Root) -> bool {
    systemctl(root, &["show-environment"]).is_some_and(|text| text.contains(DISABLED))
}

/// Asks systemd for the stages' units.
pub fn outlook(root: &mut Root) -> Outlook {
    let mut words = vec!["show", "--property=ActiveState,SubState,UnitFileState,Job"];
    words.extend(UNITS);
    systemctl(root, &words).map_or(Outlook::Going, |text| judge(&text))
}

/// When something happened, in seconds since the kernel started: a property in microseconds of a unit's, or of systemd's own. None
/// where it did not happen or systemd does not tell.
pub fn moment(root: &mut Root, unit: Option<&str>, property: &str) -> Option<f64> {
    let mut words = vec!["show", "--value", "--property", property];
    words.extend(unit);
    let microseconds: u64 = systemctl(root, &words)?.trim().parse().ok().filter(|m| *m > 0)?;
    Some(microseconds as f64 / 1e6)
}

fn systemctl(root: &mut Root, words: &[&str]) -> Option<String> {
    let argv = std::iter::once("systemctl").chain(words.iter().copied());
    match root.output(Command::new(Stage::Init, argv)) {
        Ok(Output { status: 0, stdout }) => Some(String::from_utf8_lossy(&stdout).into_owned()),
        Ok(Output { status, .. }) => {
            log::warn!("systemctl ended with exit status {status}: whether a unit failed is not known");
            None
        }
        Err(e) => {
            log::warn!("{e}: whether a unit failed is not known");
            None
        }
    }
}

/// One block of `property=value` lines for each unit, an empty line between two.
fn judge(text: &str) -> Outlook {
    let blocks: Vec<Vec<(&str, &str)>> =
        text.split("\n\n").map(|block| block.lines().filter_map(|l| l.trim().split_once('=')).collect()).collect();
    let value = |block: &[(&str, &str)], key: &str| {
        block.iter().find(|(k, _)| *k == key).map_or(String::new(), |(_, v)| (*v).to_owned())
    };
    let is_going = |block: &Vec<(&str, &str)>| {
        !matches!(value(block, "Job").as_str(), "" | "0")
            || ["activating", "deactivating", "reloading", "refreshing"].contains(&value(block, "ActiveState").as_str())
    };
    if blocks.iter().any(is_going) {
        return Outlook::Going;
    }
    let has_failed = |block: &Vec<(&str, &str)>| {
        let file = value(block, "UnitFileState");
        let is_on = file.starts_with("enabled")
            || file.starts_with("linked")
            || ["static", "alias", "generated", "transient", "indirect"].contains(&file.as_str());
        !is_on || value(block, "ActiveState") == "failed" || value(block, "SubState") == "failed"
    };
    if blocks.iter().any(has_failed) {
        return Outlook::Failed;
    }
    let last_is_active = blocks.first().is_some_and(|block| value(block, "ActiveState") == "active");
    if last_is_active { Outlook::Going } else { Outlook::Never }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of `active sub file job` as systemctl prints them.
    fn outlook(units: [&str; 4]) -> Outlook {
        let block = |unit: &str| {
            let words: Vec<&str> = unit.split(' ').collect();
            let job = if words[3] == "-" { String::new() } else { format!("Job={}\n", words[3]) };
            format!("{job}ActiveState={}\nSubState={}\nUnitFileState={}\n", words[0], words[1], words[2])
        };
        judge(&units.map(block).join("\n"))
    }

    #[test]
    fn what_the_units_say() {
        let (waits, exited) = ("inactive dead static 12", "active exited static -");
        let (off, failed) = ("inactive dead static -", "failed failed static -");
        assert_eq!(outlook([waits, waits, "activating start static 7", exited]), Outlook::Going);
        assert_eq!(outlook([waits, exited, failed, exited]), Outlook::Going, "the later stages run all the same");
        assert_eq!(outlook([failed, exited, exited, exited]), Outlook::Failed);
        assert_eq!(outlook([off, exited, failed, exited]), Outlook::Failed);
        assert_eq!(outlook([off; 4]), Outlook::Never);
        assert_eq!(outlook(["inactive dead masked-runtime -", exited, exited, exited]), Outlook::Failed);
        assert_eq!(outlook([off, exited, exited, "inactive dead  -"]), Outlook::Failed, "there is no such unit");
        assert_eq!(outlook([exited; 4]), Outlook::Going, "result.json is about to be written");
        assert_eq!(outlook(["inactive dead enabled-runtime 0", exited, exited, exited]), Outlook::Never);
    }
}
