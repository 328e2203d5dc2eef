//! # seed_random
//!
//! Adds `random_seed: data`, decoded as `encoding` says, and the datasource's own seed to the file `random_seed: file`
//! (/dev/urandom by default). The real root then runs `command` with the file's name in RANDOM_SEED_FILE; a missing
//! program is an error only with `command_required: true`.
//!
//! ```yaml
//! random_seed:
//!   data: c2VlZCBvZiB0aGUgaW1hZ2U=
//!   encoding: base64
//!   command: [pollinate, -r, -s, https://entropy.example.com]
//! ```
//!
//! ```schema
//! random_seed: {
//!  file, data: str
//!  encoding: (raw base64 b64 gzip gz)
//!  command: [str]
//!  command_required: bool
//! }
//! ```

use super::Module;
use super::write_files::gunzip;
use crate::base::base64;
use crate::base::error::{Context as _, Error, Result};
use crate::document::{Map, Value, wrong};
use crate::instance::Frequency;
use crate::root::{Attr, Command, Stage, installed};
use crate::system::{ModuleContext, service, shell};

const POOL: &str = "/dev/urandom";

pub static MODULE: Module = Module {
    name: "seed_random",
    stage: Stage::Network,
    frequency: Frequency::Instance,
    before_pivot: Some(before_pivot),
    running: Some(running),
    idle: Some(|cx| command(section(cx)).is_none() && !is_required(section(cx))),
    ..Module::NEW
};

fn section<'a>(cx: &mut ModuleContext<'a>) -> Option<&'a Map> {
    cx.map("random_seed")
}

fn file(section: Option<&Map>) -> String {
    section.and_then(|s| s.get("file")).and_then(Value::as_str).unwrap_or(POOL).to_owned()
}

fn before_pivot(cx: &mut ModuleContext) -> Result<()> {
    let section = section(cx);
    let mut seed = match section.and_then(|s| s.get("data")).filter(|v| !v.is_null()) {
        None => Vec::new(),
        Some(data) => {
            let data = data.bytes().ok_or_else(|| wrong("random_seed.data", "text or binary data", data))?;
            let encoding = section.and_then(|s| s.get("encoding")).and_then(Value::as_str).unwrap_or("raw");
            match encoding.to_ascii_lowercase().as_str() {
                "raw" => data.to_vec(),
                "base64" | "b64" => {
                    base64::decode_lines(data).ok_or_else(|| Error::new("random_seed.data: not valid base64"))?
                }
                "gzip" | "gz" => gunzip(data).context(|| "random_seed.data")?,
                _ => return Err(Error::new("random_seed.encoding: expected raw, base64, b64, gzip or gz")),
            }
        }
    };
    seed.extend_from_slice(cx.instance.random_seed.as_ref().map_or(&[], |s| s));
    if seed.is_empty() {
        return Ok(());
    }
    let path = file(section);
    if path != POOL && path != "/dev/random" {
        cx.root.append(&path, &seed, Attr::root(0o644))?;
        cx.root.note_appended(&path);
        return Ok(());
    }
    if cx.root.is_plan() {
        return Ok(());
    }
    // The pool is the kernel's, which stays the same when the root changes.
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|mut pool| std::io::Write::write_all(&mut pool, &seed))
        .context(|| format!("failed to add the seed to {path}"))
}

/// The command that is to be run.
fn command(section: Option<&Map>) -> Option<&Value> {
    let command = section?.get("command").filter(|c| !c.is_null())?;
    Some(command).filter(|c| c.as_list().is_none_or(|l| !l.is_empty()))
}

/// Whether an image without the command is an error.
fn is_required(section: Option<&Map>) -> bool {
    section.and_then(|s| s.get("command_required")).is_some_and(Value::is_true)
}

fn running(cx: &mut ModuleContext) -> Result<()> {
    let section = section(cx);
    let required = is_required(section);
    let Some(command) = command(section) else {
        let missing = || Error::new("random_seed: command_required is true, but there is no command");
        return if required { Err(missing()) } else { Ok(()) };
    };
    let words = shell::words("random_seed.command", command)?;
    let program = words.first().map_or("", String::as_str);
    let there =
        if program.starts_with('/') { cx.root.is_file(program) } else { installed::which(cx.root, program).is_some() };
    if cx.root.is_live() && !there {
        let missing =
            || Error::new(format!("random_seed: there is no program {program}, and command_required is true"));
        return if required { Err(missing()) } else { Ok(()) };
    }
    // As cloud-init does: such a command may ask a server, as pollinate does.
    service::wait_for_network(cx);
    cx.root.run(Command::new(words).env("RANDOM_SEED_FILE", file(section)))
}
