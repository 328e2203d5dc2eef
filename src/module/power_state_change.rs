//! # power_state_change
//!
//! Powers off, halts or reboots the machine when the final stage has ended, if `condition` is true or a command that
//! succeeds.
//!
//! ```yaml
//! power_state:
//!   mode: reboot
//!   delay: 5
//!   message: Restarting to finish the setup
//!   condition: test -e /var/run/reboot-required
//! ```
//!
//! ```schema
//! power_state: {
//!  delay: int(0..) | (now) | str/minutes ^22.3 "Use now or an integer instead."
//!  mode!: (poweroff reboot halt)
//!  message: str
//!  timeout: int
//!  condition: str | bool | list
//! }
//! ```

use super::Module;
use crate::base::error::{Error, Result};
use crate::document::{Map, Value, wrong};
use crate::instance::Frequency;
use crate::machine::Family;
use crate::root::{Command, Stage};
use crate::system::{ModuleContext, shell};

pub static MODULE: Module = Module {
    name: "power_state_change",
    stage: Stage::Final,
    frequency: Frequency::Instance,
    keys: &["power_state"],
    running: Some(running),
    offline: true,
    ..Module::NEW
};

/// Keeps the command, and its condition, for the end of the stage: by then the status is written, so `timeout`, which says how
/// long to wait for that, is only checked. Nothing happens to a machine whose configuration is wrong.
fn running(cx: &mut ModuleContext) -> Result<()> {
    let Some(section) = cx.map("power_state") else { return Ok(()) };
    match read(cx, section) {
        Ok(Some((condition, command))) => cx.root.at_end(condition, command),
        Ok(None) => log::info!("Condition was false. Will not perform state change."),
        Err(e) => cx.report.warn(format_args!("{e}: the machine stays on")),
    }
    Ok(())
}

/// The condition and the command. None if the condition is false.
fn read(cx: &ModuleContext, section: &Map) -> Result<Option<(Option<Command>, Command)>> {
    let at = |key: &str| section.get(key).filter(|v| !v.is_null());
    let mode = at("mode").and_then(Value::as_str).unwrap_or_default();
    let flag = match mode {
        "poweroff" => "-P",
        "reboot" => "-r",
        "halt" => "-H",
        _ => return Err(wrong("power_state.mode", "poweroff, reboot or halt", at("mode").unwrap_or(&Value::Null))),
    };
    if let Some(timeout) = at("timeout")
        && !timeout.text().and_then(|t| t.trim().parse::<f64>().ok()).is_some_and(|t| t.is_finite() && t >= 0.0)
    {
        return Err(wrong("power_state.timeout", "a number of seconds", timeout));
    }
    let delay = match at("delay") {
        None => None,
        Some(Value::String(word)) if word.as_str() == "now" => None,
        Some(value) => {
            let minutes = value.text().and_then(|t| t.trim().trim_start_matches('+').parse::<u32>().ok());
            Some(minutes.ok_or_else(|| Error::new("power_state.delay: expected now or a number of minutes"))?)
        }
    };
    let mut argv: Vec<String> = Vec::new();
    if cx.distro.family == Family::Alpine {
        let seconds = delay.map_or(0, |m| u64::from(m) * 60);
        argv.extend([mode.to_owned(), "-d".into(), seconds.to_string()]);
    } else {
        let when = delay.map_or_else(|| "now".to_owned(), |minutes| format!("+{minutes}"));
        argv.extend(["shutdown".into(), flag.into(), when]);
        argv.extend(at("message").and_then(Value::text).filter(|m| !m.is_empty()));
    }
    let condition = match section.get("condition") {
        None | Some(Value::Bool(true)) => None,
        Some(Value::Bool(false)) => return Ok(None),
        Some(Value::String(line)) => Some(vec!["/bin/sh".to_owned(), "-c".into(), line.to_string()]),
        Some(list @ Value::List(_)) => Some(shell::words("power_state.condition", list)?),
        Some(other) => return Err(wrong("power_state.condition", "true, false, a command line or a list", other)),
    };
    let condition = condition.map(Command::new);
    Ok(Some((condition, Command::new(argv))))
}
