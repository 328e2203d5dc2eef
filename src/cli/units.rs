//! The stages' units: their state in systemd, and the program that they belong to.

use crate::detect;
use crate::root::{Command, Output, Root, Stage, run_dir};
use crate::stage::handover::INSTALLED;

/// cloud-init's program, or the link to prepivot in its place.
const CLOUD_INIT: &str = "/usr/bin/cloud-init";
/// Where units are, those that take precedence first (systemd.unit(5)).
const UNIT_FOLDERS: [&str; 4] =
    ["/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system"];

/// The state of the stages in systemd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outlook {
    /// They run or are queued, or systemd does not answer.
    Going,
    /// Nothing runs or is queued, and a unit failed or is switched off.
    Failed,
    /// The last one has ended.
    Ended,
    /// Nothing runs or is queued.
    Never,
}

/// The program whose units provision the system, if both prepivot and cloud-init are installed: `prepivot`, `cloud-init`, or `none`
/// if the first unit is masked. None if only one of them is installed.
pub fn provider(root: &Root) -> Option<&'static str> {
    let own = root.exists(INSTALLED) || root.is_dir(run_dir::DIR);
    let is_link = root.read_link(CLOUD_INIT).is_some_and(|target| target.rsplit('/').next() == Some("prepivot"));
    if !own || is_link || !root.exists(CLOUD_INIT) {
        return None;
    }
    let paths = UNIT_FOLDERS.map(|folder| format!("{folder}/{}", Stage::Local.unit()));
    let path = paths.into_iter().find(|path| root.read_link(path).is_some() || root.exists(path))?;
    if root.read_link(&path).is_some_and(|target| target == "/dev/null") {
        return Some("none");
    }
    let starts = |line: &str| line.starts_with("ExecStart=") && line.contains("/prepivot ");
    Some(if root.text(&path).lines().any(starts) { "prepivot" } else { "cloud-init" })
}

/// Whether systemd's environment switches provisioning off.
pub fn environment_disables(root: &mut Root) -> bool {
    systemctl(root, &["show-environment"]).is_some_and(|text| text.contains(detect::DISABLED))
}

/// Asks systemd for the stages' units.
pub fn outlook(root: &mut Root) -> Outlook {
    let mut words = vec!["show", "--property=ActiveState,SubState,UnitFileState,Job"];
    // The last one first, as `judge` expects.
    words.extend(Stage::ALL.iter().rev().map(|stage| stage.unit()));
    systemctl(root, &words).map_or(Outlook::Going, |text| judge(&text))
}

/// When something happened, in seconds since the kernel started: a property, in microseconds, of a unit or of systemd itself. None
/// if it did not happen or systemd does not answer.
pub fn moment(root: &mut Root, unit: Option<&str>, property: &str) -> Option<f64> {
    let mut words = vec!["show", "--value", "--property", property];
    words.extend(unit);
    let microseconds: u64 = systemctl(root, &words)?.trim().parse().ok().filter(|m| *m > 0)?;
    Some(microseconds as f64 / 1e6)
}

fn systemctl(root: &mut Root, words: &[&str]) -> Option<String> {
    let argv = std::iter::once("systemctl").chain(words.iter().copied());
    match root.output(Command::new(argv)) {
        Ok(Output { status: 0, stdout, .. }) => Some(String::from_utf8_lossy(&stdout).into_owned()),
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

/// Reads systemctl's answer: a block of `property=value` lines for each unit, with an empty line between two.
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
    let last_is_active = blocks.first().is_some_and(|block| value(block, "ActiveState") == "active");
    let has_failed = |block: &Vec<(&str, &str)>| {
        let file = value(block, "UnitFileState");
        // Units for one boot are not written for stages that have nothing to do.
        let is_left_out = file.is_empty() && last_is_active;
        let is_on = file.starts_with("enabled")
            || file.starts_with("linked")
            || ["static", "alias", "generated", "transient", "indirect"].contains(&file.as_str());
        !(is_on || is_left_out) || value(block, "ActiveState") == "failed" || value(block, "SubState") == "failed"
    };
    if blocks.iter().any(has_failed) {
        return Outlook::Failed;
    }
    if last_is_active { Outlook::Ended } else { Outlook::Never }
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
        assert_eq!(outlook([exited; 4]), Outlook::Ended, "result.json was written, or never will be");
        let left_out = "inactive dead  -";
        assert_eq!(outlook([exited, left_out, left_out, left_out]), Outlook::Ended, "idle stages have no units");
        assert_eq!(outlook(["inactive dead enabled-runtime 0", exited, exited, exited]), Outlook::Never);
    }
}
