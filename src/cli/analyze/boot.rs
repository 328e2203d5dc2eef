//! `analyze boot`: when the kernel, the system and the first stage began.

use super::events::Event;
use crate::base::clock;
use crate::cli::units;
use crate::instance::status;
use crate::machine::beneath;
use crate::root::{Root, Stage, Use};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Times in seconds since 1970.
struct Times {
    kernel: f64,
    /// When the kernel started the system.
    system: f64,
    /// When systemd started the local stage; or when it began in the initramfs, if the real root's had
    /// nothing to do.
    stage: f64,
}

/// The times of this boot as text, and whether all of them are known.
pub fn report(events: &[Event]) -> (String, bool) {
    let local = events.iter().rev().find(|e| e.result.is_none() && e.name == Stage::Local.event().0);
    let is_container = beneath::exists(Path::new("/"), "run/systemd/container");
    match times(is_container, local) {
        Some(times) => (description(&times, local, is_container), local.is_some()),
        None => ("systemd does not say when the kernel and the stages of this boot began\n".to_owned(), false),
    }
}

fn times(is_container: bool, local: Option<&Event>) -> Option<Times> {
    if !beneath::exists(Path::new("/"), "run/systemd/system") {
        return None;
    }
    let mut root = Root::open(Path::new("/"), Use::Tree).ok()?;
    let system = units::moment(&mut root, None, "UserspaceTimestampMonotonic")?;
    let stage = units::moment(&mut root, Some(Stage::Local.unit()), "InactiveExitTimestampMonotonic");
    let zero = clock::since_1970(SystemTime::now()).as_secs_f64() - status::uptime();
    let stage = stage.map(|stage| zero + stage).or_else(|| Some(local?.time).filter(|time| *time >= zero))?;
    // A container has its host's uptime.
    let kernel = if is_container { zero + system } else { zero };
    Some(Times { kernel, system: zero + system, stage })
}

fn description(times: &Times, local: Option<&Event>, is_container: bool) -> String {
    let date = |seconds: f64| {
        let time = SystemTime::UNIX_EPOCH + Duration::try_from_secs_f64(seconds).unwrap_or_default();
        clock::timestamp(time, ".") + "+00:00"
    };
    let first = local.map_or_else(|| "not found in the log".to_owned(), |event| date(event.time));
    let Times { kernel, system, stage } = *times;
    let mut lines = Vec::new();
    if is_container {
        lines.push(format!("-- Most Recent Container Boot Record --\n    Container started at: {}", date(kernel)));
    } else {
        lines.push(format!("-- Most Recent Boot Record --\n    Kernel Started at: {}", date(kernel)));
        lines.push(format!("    Kernel ended boot at: {}", date(system)));
        lines.push(format!("    Kernel time to boot (seconds): {}", system - kernel));
    }
    lines.push(format!("    Cloud-init activated by systemd at: {}", date(stage)));
    if !is_container {
        let between = "Time between Kernel end boot and Cloud-init activation (seconds)";
        lines.push(format!("    {between}: {}", stage - system));
    }
    lines.push(format!("    Cloud-init start: {first}\n"));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed() {
        let event = Event { name: "init-local".into(), time: 7.25, ..Event::default() };
        let times = Times { kernel: 1.0, system: 3.5, stage: 7.0 };
        assert_eq!(
            description(&times, Some(&event), false),
            "-- Most Recent Boot Record --\n    Kernel Started at: 1970-01-01 00:00:01.000+00:00\n    \
             Kernel ended boot at: 1970-01-01 00:00:03.500+00:00\n    Kernel time to boot (seconds): 2.5\n    \
             Cloud-init activated by systemd at: 1970-01-01 00:00:07.000+00:00\n    \
             Time between Kernel end boot and Cloud-init activation (seconds): 3.5\n    \
             Cloud-init start: 1970-01-01 00:00:07.250+00:00\n"
        );
        let container = description(&times, None, true);
        assert!(container.starts_with("-- Most Recent Container Boot Record --\n    Container started at: 1970"));
        assert!(container.ends_with("    Cloud-init start: not found in the log\n") && container.lines().count() == 4);
    }
}
