//! In the initramfs: provisions the mounted root. Also by hand, for a tree and a seed.

use super::Asked;
use super::find::{self, Outcome};
use super::image::{Image, disabled};
use super::outside::{OfTree, ThisMachine};
use super::{Errors, LOG_LATER, append_log, handover, network, provision, rescue};
use crate::base::error::Result;
use crate::base::event::Event;
use crate::base::logging;
use crate::base::report::Report;
use crate::document::{Map, Value, json};
use crate::instance::boot::APPLIED;
use crate::instance::status::{self, Status};
use crate::instance::{Instance, state};
use crate::machine::Machine;
use crate::root::{Attr, Root, Use, Writable, check_writable, is_on_disk};
use crate::source::{self, Found};
use crate::system::Outside;
use std::path::Path;

/// The stage in status.json, and what it does.
const NAME: &str = "init-local";
const WHAT: &str = "provisioning the root";

/// Provisions the new root at `path` with what this machine's datasource says. Gives the problems, one line each; the boot
/// goes on whatever they are.
pub fn new_root(path: &Path, machine: &Machine) -> Vec<String> {
    let start = status::uptime();
    match Root::open(path, Use::NewRoot) {
        Ok(mut root) => local(&mut root, machine, start, &Asked::default(), true),
        Err(e) => vec![format!("{e}; nothing is provisioned")],
    }
}

/// The local stage: in the initramfs (`before_pivot`), or at the start of a real root that no initramfs provisioned.
pub fn local(root: &mut Root, machine: &Machine, start: f64, asked: &Asked, before_pivot: bool) -> Vec<String> {
    if let Some(why) = disabled(root, machine) {
        log::info!("nothing is provisioned: {why}");
        return Vec::new();
    }
    let image = Image::read(root, machine).as_asked(asked);
    let stage = Event::start(NAME, WHAT);
    let search = Event::start("search", "searching for the datasource");
    let outcome = find::find(root, machine, &image, super::deadline(machine));
    drop(search);
    use_outcome(root, machine, &image, outcome, (start, stage), before_pivot)
}

/// The local stage of the real root after an initramfs that found nothing: a drive may have appeared since. None where there
/// is none.
pub fn again(root: &mut Root, machine: &Machine, start: f64, asked: &Asked) -> Option<Vec<String>> {
    if did(root, "provisioned") != Some(false) || disabled(root, machine).is_some() {
        return None;
    }
    let image = Image::read(root, machine).as_asked(asked);
    let found = find::find_again(root, machine, &image)?;
    let stage = Event::start(NAME, WHAT);
    Some(use_outcome(root, machine, &image, Outcome::Read(Box::new(found)), (start, stage), false))
}

fn use_outcome(
    root: &mut Root,
    machine: &Machine,
    image: &Image,
    outcome: Outcome,
    (start, stage): (f64, Event),
    before_pivot: bool,
) -> Vec<String> {
    let mut errors = Errors::default();
    let mut status = Status::new();
    status.begin(NAME, start);
    let mut read = false;
    let summary = match outcome {
        Outcome::Nothing(why) => {
            log::warn!("{why}");
            None
        }
        Outcome::Same(instance) => {
            status.set_datasource(&state::description(&instance));
            errors.all(of_instance(root, machine, image, &instance));
            Some(format!("instance {} as before", instance.instance_id))
        }
        Outcome::Read(found) => {
            let Found { mut instance, place } = *found;
            read = true;
            instance.machine_uuid = machine.uuid();
            status.set_datasource(&state::description(&instance));
            tell_problems(&instance, &place);
            errors.all(of_instance(root, machine, image, &instance));
            Some(format!("instance {} from {place}", instance.instance_id))
        }
    };
    // Where nothing was found too: what appears later is for the real root's first stage.
    if before_pivot {
        errors.keep(handover::hand_over(root, summary.is_some()));
    }
    // The same machine again: a boot that changes nothing leaves the disk alone until the real root's first stage.
    let changes = root.changes().iter().any(|c| is_on_disk(c.path()));
    let quiet = before_pivot && !changes;
    let writable = if changes { errors.keep(Writable::make(root.path())).flatten() } else { None };
    let write = Event::start("write", "writing what was provisioned");
    errors.all(root.commit());
    drop((write, stage));
    if let Some(summary) = &summary {
        log::info!("{summary}: provisioned in {:.3} s", status::uptime() - start);
    }
    let messages = logging::take();
    status.end(NAME, errors.lines(), &messages);
    let provisioned = summary.is_some();
    match summary {
        None => {
            errors.keep(status.save_in_run(root, false));
        }
        Some(_) if quiet => {
            errors.keep(status.save_in_run(root, false));
            errors.keep(root.write(LOG_LATER, logging::to_file_lines(&messages), Attr::root(0o600)));
        }
        Some(_) => {
            errors.keep(Status::forget(root));
            errors.keep(status.save(root));
            errors.keep(append_log(root, &messages));
        }
    }
    errors.keep(record(root, start, provisioned, read));
    if before_pivot {
        errors.keep(root.relabel_later());
    }
    errors.all(root.commit());
    if before_pivot {
        errors.keep(root.keep_for_later());
        errors.all(root.commit());
    }
    rescue(&status, root, &mut errors);
    drop(writable);
    // The console shows warnings too; in the real root they are for the log and `status`, and the exit code counts errors.
    if before_pivot { errors.with_warnings(&messages) } else { errors.lines().to_vec() }
}

/// Says to the next stage that this one was done, and whether the instance was `read` or taken from the cache.
fn record(root: &mut Root, start: f64, provisioned: bool, read: bool) -> Result<()> {
    let mut applied = Map::new();
    applied.insert("start", Value::Float(start));
    applied.insert("finished", Value::Float(status::uptime()));
    applied.insert("provisioned", provisioned);
    applied.insert("read", read);
    root.write(APPLIED, json::to_string(&Value::Map(applied)), Attr::root(0o600))
}

fn tell_problems(instance: &Instance, place: &str) {
    for problem in &instance.problems {
        log::warn!("{place}: {problem}");
    }
}

fn of_instance(root: &mut Root, machine: &Machine, image: &Image, instance: &Instance) -> Vec<String> {
    let new = state::last_id(root).as_deref() != Some(&instance.instance_id);
    let errors = provision::provision(root, machine, image, instance, new, &ThisMachine::new());
    network::rename_links(root, machine);
    errors
}

/// Provisions a tree with a seed, as the initramfs would: `prepivot apply --root DIR --seed …`. Nothing of the later stages runs.
pub fn tree(path: &Path, seed: &Path) -> Result<Vec<String>> {
    let machine = Machine::read(path);
    let mut root = Root::open(path, Use::Tree)?;
    let image = Image::read(&root, &machine);
    let mut report = Report::new();
    let found = source::read_seed(&machine, &root, &image.config, seed, &mut report);
    super::log_report(&report);
    let found = found?;
    let mut errors = Errors::default();
    errors.all(seeded(&mut root, &machine, &image, &found, &OfTree::new(path)));
    if !root.changes().is_empty() {
        check_writable(path)?;
    }
    errors.all(root.commit());
    Ok(errors.lines().to_vec())
}

/// Provisions with an instance that was read from a seed; nothing is committed.
pub fn seeded(root: &mut Root, machine: &Machine, image: &Image, found: &Found, outside: &dyn Outside) -> Vec<String> {
    tell_problems(&found.instance, &found.place);
    let new = state::last_id(root).as_deref() != Some(&found.instance.instance_id);
    provision::provision(root, machine, image, &found.instance, new, outside)
}

/// Whether this boot's local stage did something: `provisioned` a root, `read` its datasource. None where it did not run.
pub fn did(root: &Root, what: &str) -> Option<bool> {
    let record = json::parse(APPLIED, &root.read(APPLIED).ok()??).ok()?;
    Some(record.get(what).is_some_and(Value::is_true))
}
