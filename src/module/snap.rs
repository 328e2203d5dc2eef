//! # snap
//!
//! Gives assertions to snapd, and runs commands of snap. A command as a list is one of snap's, with or without that word in
//! front; a command as text is run by a shell. Commands in a mapping run in the order of their keys, as numbers if all keys are
//! whole numbers. All commands run, even if one fails.
//!
//! ```yaml
//! snap:
//!   assertions:
//!   - |
//!     type: account-key
//!     public-key-sha3-384: ...
//!   commands:
//!     '01': [install, hello]
//!     '02': snap set hello a=b
//! ```
//!
//! ```schema
//! snap: {
//!  assertions: {...: str}+ | [str]+ unique
//!  commands: {...: str | [str]}+ | [str | [str]]+
//! }+
//! ```

use super::Module;
use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::document::{Map, Value, wrong};
use crate::instance::Frequency;
use crate::root::{Attr, Command, Stage};
use crate::system::{ModuleContext, service, snap};

/// In the instance's folder.
const ASSERTIONS: &str = "snapd.assertions";

pub static MODULE: Module = Module {
    name: "snap",
    stage: Stage::Config,
    frequency: Frequency::Instance,
    keys: &["snap"],
    distros: &["ubuntu"],
    before_pivot: Some(before_pivot),
    running: Some(running),
    ..Module::NEW
};

/// The assertions, in the document's order, as one text. None if there are none.
fn assertions(cx: &mut ModuleContext) -> Result<Option<String>> {
    let Some(section) = cx.map("snap") else { return Ok(None) };
    let key = "snap.assertions";
    let values: Vec<&Value> = match section.get("assertions") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::List(list)) => list.iter().collect(),
        Some(Value::Map(map)) => map.iter().map(|(_, value)| value).collect(),
        Some(other) => return Err(wrong(key, "a list or a mapping", other)),
    };
    let texts: Option<Vec<&str>> = values.iter().map(|v| v.as_str()).collect();
    let texts = texts.ok_or_else(|| Error::new(format!("{key}: expected texts")))?;
    Ok((!texts.is_empty()).then(|| texts.join("\n")))
}

fn before_pivot(cx: &mut ModuleContext) -> Result<()> {
    match assertions(cx)? {
        Some(text) => cx.root.write(&format!("{}/{ASSERTIONS}", cx.instance_dir()), text, Attr::root(0o644)),
        None => Ok(()),
    }
}

fn running(cx: &mut ModuleContext) -> Result<()> {
    let Some(section) = cx.map("snap").filter(|section| !section.is_empty()) else { return Ok(()) };
    snap::wait_seeded(cx)?;
    service::wait_for_network(cx);
    if assertions(cx)?.is_some() {
        cx.root.run(Command::new(["snap", "ack", &format!("/var/lib/cloud/instance/{ASSERTIONS}")]))?;
    }
    let commands: Vec<&Value> = match section.get("commands") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::List(list)) => list.iter().collect(),
        Some(Value::Map(map)) => in_order(map),
        Some(other) => return Err(wrong("snap.commands", "a list or a mapping", other)),
    };
    let mut all = Vec::new();
    for (i, command) in commands.iter().enumerate() {
        all.push(argv(cx, &format!("snap.commands: entry {}", i + 1), command)?);
    }
    let failed = Problems::new();
    for (i, argv) in all.into_iter().enumerate() {
        if let Err(e) = cx.root.run(Command::new(argv)) {
            failed.error(format!("snap.commands: entry {}: {e}", i + 1));
        }
    }
    failed.into_result()
}

/// The commands in the order of their keys. Of `1`, `2` and `10` that is the order of numbers; `01` may be a text.
fn in_order(map: &Map) -> Vec<&Value> {
    let number = |key: &str| key.parse::<i64>().ok().filter(|number| number.to_string() == key);
    let mut entries = map.sorted();
    if entries.iter().all(|(key, _)| number(key).is_some()) {
        crate::base::sort::by_key(&mut entries, |(key, _)| number(key));
    }
    entries.into_iter().map(|(_, value)| value).collect()
}

/// The words of a command: null at the beginning of a list means that it is not a snap command.
fn argv(cx: &mut ModuleContext, key: &str, command: &Value) -> Result<Vec<String>> {
    let expected = || wrong(key, "a text, or a list of texts", command);
    match command {
        Value::String(line) => {
            if !line.starts_with("snap ") {
                cx.report.warn(format_args!("{key}: it does not begin with snap"));
            }
            Ok(["/bin/sh", "-c", line].map(str::to_owned).to_vec())
        }
        Value::List(words) => {
            let is_other = matches!(words.first(), Some(Value::Null));
            let words = words.iter().skip(usize::from(is_other)).map(|w| w.as_str().map(str::to_owned));
            let words = words.collect::<Option<Vec<String>>>().filter(|w| !w.is_empty()).ok_or_else(expected)?;
            let is_missing = !is_other && words.first().is_some_and(|w| w != "snap");
            Ok(["snap".to_owned()].into_iter().filter(|_| is_missing).chain(words).collect())
        }
        _ => Err(expected()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::yaml;

    #[test]
    fn commands_are_in_the_order_of_their_keys() {
        for (text, expected) in [
            ("{10: c, 2: b, 1: a}", "abc"),
            ("{10: c, -2: a, 0: b}", "abc"),
            ("{'01': a, '10': c, '02': b}", "abc"),
            ("{b: c, 2: b, 10: a}", "abc"),
        ] {
            let map = yaml::parse("t", text).unwrap();
            let found: String = in_order(map.as_map().unwrap()).into_iter().filter_map(Value::as_str).collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}
