//! In the initramfs: provisions the mounted root. Also by hand, for a tree and a seed.

use super::find::{self, Outcome};
use super::image::{Image, disabled};
use super::outside::ThisMachine;
use super::{handover, provision};
use crate::document::{Map, Value, json};
use crate::error::{Error, Result};
use crate::instance::status::{self, Status};
use crate::instance::{Instance, state};
use crate::logging;
use crate::machine::Machine;
use crate::root::{Attr, Root, Use, Writable};
use crate::source::Found;
use std::path::Path;

/// cloud-init's log.
const LOG: &str = "/var/log/cloud-init.log";
/// What this stage did, for the next one.
pub const APPLIED: &str = "/run/prepivot/applied.json";

/// Provisions the new root at `path` with what this machine's datasource says. Gives the problems, one line each; the boot
/// goes on whatever they are.
pub fn new_root(path: &Path, machine: &Machine) -> Vec<String> {
    let start = status::uptime();
    let mut root = match Root::open(path, Use::NewRoot) {
        Ok(root) => root,
        Err(e) => return vec![format!("{e}; nothing is provisioned")],
    };
    local(&mut root, machine, start, true)
}

/// The local stage: in the initramfs, or at the start of a real root that no initramfs provisioned.
pub fn local(root: &mut Root, machine: &Machine, start: f64, before_pivot: bool) -> Vec<String> {
    if let Some(why) = disabled(root, machine) {
        log::info!("nothing is provisioned: {why}");
        return Vec::new();
    }
    let image = Image::read(root, machine);
    let outcome = find::find(root, machine, &image.config, super::deadline(machine));
    let mut status = Status::new();
    status.begin("init-local", start);
    let mut errors = Vec::new();
    let mut keep = |result: Result<()>| errors.extend(result.err().map(|e| e.to_string()));
    keep(Status::forget(root));
    let mut summary = String::new();
    match outcome {
        Outcome::Nothing(why) => {
            log::warn!("{why}");
        }
        Outcome::Same(instance) => {
            status.set_datasource(&state::description(&instance));
            errors.extend(instance_steps(root, machine, &image, &instance, false));
            summary = format!("instance {} as before", instance.instance_id);
        }
        Outcome::Read(found) => {
            let Found { mut instance, place } = *found;
            instance.machine_uuid = machine.uuid();
            status.set_datasource(&state::description(&instance));
            for problem in &instance.problems {
                log::warn!("{place}: {problem}");
            }
            let new = state::last_id(root).as_deref() != Some(&instance.instance_id);
            errors.extend(instance_steps(root, machine, &image, &instance, new));
            summary = format!("{} instance {} from {place}", if new { "new" } else { "same" }, instance.instance_id);
        }
    }
    let mut keep = |result: Result<()>| errors.extend(result.err().map(|e| e.to_string()));
    if before_pivot && !summary.is_empty() {
        keep(handover::hand_over(root));
    }
    let writable = if root.changes().iter().any(|c| !c.path().starts_with("/run/")) {
        Writable::make(path_of(root)).map_err(|e| keep(Err(e))).ok().flatten()
    } else {
        None
    };
    errors.extend(root.commit().iter().map(Error::to_string));
    let seconds = status::uptime() - start;
    if errors.is_empty() && !summary.is_empty() {
        log::info!("{summary}: provisioned in {seconds:.3} s");
    }
    let messages = logging::take();
    let problems: Vec<String> =
        messages.iter().filter(|m| m.level <= log::Level::Warn).map(|m| m.text.clone()).collect();
    status.end("init-local", &errors, &messages);
    let mut keep = |result: Result<()>| errors.extend(result.err().map(|e| e.to_string()));
    keep(status.save(root));
    keep(root.append(LOG, logging::to_file_lines(&messages).as_bytes(), Attr::root(0o640)));
    let mut applied = Map::new();
    applied.insert("start", Value::Float(start));
    applied.insert("seconds", Value::Float(seconds));
    applied.insert("provisioned", !summary.is_empty());
    keep(root.write(APPLIED, json::to_string(&Value::Map(applied)), Attr::root(0o600)));
    if before_pivot {
        keep(root.relabel_later());
    }
    errors.extend(root.commit().iter().map(Error::to_string));
    if before_pivot {
        if let Err(e) = root.keep_for_later() {
            errors.push(e.to_string());
        }
        errors.extend(root.commit().iter().map(Error::to_string));
    }
    drop(writable);
    errors.extend(problems.into_iter().filter(|p| !errors.contains(p)).collect::<Vec<_>>());
    errors
}

fn path_of(root: &Root) -> &Path {
    root.path()
}

fn instance_steps(root: &mut Root, machine: &Machine, image: &Image, instance: &Instance, new: bool) -> Vec<String> {
    let outside = ThisMachine::new();
    provision::provision(root, machine, image, instance, new, &outside)
}

/// Provisions a tree with a seed, as the initramfs would: `prepivot apply --root DIR --seed …`. Nothing of the later stages runs.
pub fn tree(path: &Path, seed: &Path) -> Result<Vec<String>> {
    let machine = Machine::read(path);
    let mut root = Root::open(path, Use::Tree)?;
    let image = Image::read(&root, &machine);
    let found = crate::source::read_seed(&machine, &root, &image.config, seed)?;
    let mut errors = seeded(&mut root, &machine, &image, &found, &crate::module::Nothing);
    errors.extend(root.commit().iter().map(Error::to_string));
    Ok(errors)
}

/// Provisions with an instance that was read from a seed; nothing is committed.
pub fn seeded(
    root: &mut Root,
    machine: &Machine,
    image: &Image,
    found: &Found,
    outside: &dyn crate::module::Outside,
) -> Vec<String> {
    for problem in &found.instance.problems {
        log::warn!("{}: {problem}", found.place);
    }
    let new = state::last_id(root).as_deref() != Some(&found.instance.instance_id);
    provision::provision(root, machine, image, &found.instance, new, outside)
}

/// Whether the initramfs of this boot did the local stage.
pub fn was_done(root: &Root) -> bool {
    root.exists(APPLIED)
}
