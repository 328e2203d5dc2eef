//! # final_message
//!
//! Writes a message to the log and to the console when everything is done, and the file boot-finished in the instance's
//! folder. The message may be a template with version, timestamp, datasource and uptime.
//!
//! ```yaml
//! final_message: |
//!   ## template: jinja
//!   up after {{uptime}} seconds
//! ```
//!
//! ```schema
//! final_message: str
//! ```

use super::Module;
use crate::base::clock;
use crate::base::error::Result;
use crate::base::logging::LINES;
use crate::detect::NONE;
use crate::document::{Map, Value};
use crate::instance::{Frequency, state};
use crate::root::{Attr, Stage};
use crate::system::{ModuleContext, Screen, template};

/// Programs that watch a console wait for cloud-init's own words.
const DEFAULT: &str = "## template: jinja\nCloud-init v. {{version}} finished at {{timestamp}}. Datasource {{datasource}}.  \
                       Up {{uptime}} seconds";

pub static MODULE: Module = Module {
    name: "final_message",
    stage: Stage::Final,
    frequency: Frequency::Always,
    running: Some(running),
    idle: Some(|cx| asked(cx).is_empty() && cx.instance.source != NONE),
    offline: true,
    ..Module::NEW
};

/// The message that is asked for; empty: none.
fn asked(cx: &ModuleContext) -> String {
    let given = cx.args.first().cloned().or_else(|| cx.text("final_message")).unwrap_or_default();
    given.trim().to_owned()
}

fn running(cx: &mut ModuleContext) -> Result<()> {
    let uptime = cx.root.text("/proc/uptime").split_whitespace().next().unwrap_or("0").to_owned();
    let (time, version) = (clock::now(), env!("CARGO_PKG_VERSION"));
    let asked = asked(cx);
    let text = if asked.is_empty() { DEFAULT } else { &asked };
    let datasource = state::description(cx.instance);
    let values =
        values(&[("uptime", &uptime), ("timestamp", &time), ("version", version), ("datasource", &datasource)]);
    let rendered = template::render("final_message", text, &values);
    match &rendered {
        Ok(message) => {
            log::info!(target: LINES, "{}", message.trim());
            if cx.root.runs_commands() {
                cx.outside.show(Screen::Stderr, &format!("{message}\n"));
            }
        }
        Err(e) => cx.report.warn(e),
    }
    let mark = format!("{}/{}", cx.instance_dir(), state::BOOT_FINISHED);
    cx.root.write(&mark, format!("{uptime} - {time} - v. {version}\n"), Attr::root(0o644))?;
    let alone = cx.config.get("datasource_list").and_then(Value::as_list).is_some_and(|l| l == [Value::from(NONE)]);
    if cx.instance.source == NONE && !alone {
        cx.report.warn("Used fallback datasource: no other was found");
    }
    Ok(())
}

/// Each value by its name in small and in capital letters.
fn values(pairs: &[(&str, &str)]) -> Value {
    let both = pairs.iter().flat_map(|(k, v)| [((*k).to_owned(), *v), (k.to_ascii_uppercase(), *v)]);
    Value::Map(both.collect::<Map>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_writing_the_names() {
        let values = values(&[("uptime", "1.5"), ("version", "v")]);
        assert_eq!(template::render("t", "up $UPTIME $version ${uptime}s", &values).unwrap(), "up 1.5 v 1.5s");
        assert_eq!(template::render("t", "## template: jinja\n{{ UPTIME }} {{ version }}", &values).unwrap(), "1.5 v");
    }
}
