//! In the initramfs, beside the wait for the root device: looks at the drives that are there, so that their devices are
//! awake and their drivers settled when `apply` reads one. What it finds is left in /run.

use super::RUN;
use crate::base::error::{Context, Result};
use crate::document::{Map, Value, json};
use crate::drive::Search;
use crate::drive::devices::Places;
use crate::instance::status;
use crate::machine::Machine;
use crate::source;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::time::Duration;

/// How long ago the probe of this boot had looked at all devices; nothing where there was none.
pub fn since() -> Duration {
    let record = std::fs::read(record()).ok().and_then(|bytes| json::parse("probe", &bytes).ok());
    match record.as_ref().and_then(|r| r.get("finished")) {
        Some(Value::Float(finished)) => Duration::try_from_secs_f64(status::uptime() - finished).unwrap_or_default(),
        _ => Duration::ZERO,
    }
}

fn record() -> String {
    format!("{RUN}/probe.json")
}

/// Looks once at every block device that is there, and leaves a record in /run/prepivot/probe.json (0600).
pub fn run(machine: &Machine) -> Result<()> {
    let start = status::uptime();
    let deadline = super::deadline(machine);
    let mut drives = Search::new(&source::labels(), Places::default());
    let mut found = Vec::new();
    loop {
        let new = drives.scan(deadline)?;
        if new.is_empty() {
            break;
        }
        found.extend(new.into_iter().map(|d| Value::from(d.node.display().to_string())));
    }
    let mut result = Map::new();
    result.insert("start", Value::Float(start));
    result.insert("finished", Value::Float(status::uptime()));
    result.insert("drives", found);
    let text = json::to_string(&Value::Map(result));
    match std::fs::DirBuilder::new().mode(0o700).create(RUN) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(e).context(|| format!("failed to make {RUN}"));
        }
        _ => {}
    }
    let path = record();
    let mut file = std::fs::File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&path)
        .context(|| format!("failed to write {path}"))?;
    file.write_all(text.as_bytes()).context(|| format!("failed to write {path}"))
}
