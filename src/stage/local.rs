//! The local stage: finds the datasource and provisions the root. It runs in the initramfs, in a real root
//! that no initramfs provisioned, and by hand on a tree with a seed.

use super::boot::Boot;
use super::image::disabled;
use super::outside::{self, OfTree, ThisMachine};
use super::schedule::{self, Provisioned};
use super::search::{self, Outcome};
use super::trust::Stop;
use super::{
    Options, append_log, close, commit, credentials, handover, network, own_log, paths, provision, recover_locked,
    refresh, rescue, restrict_log, trust, welcome,
};
use crate::base::deprecated;
use crate::base::error::Result;
use crate::base::event::Event;
use crate::base::logging;
use crate::base::problem::Problems;
use crate::instance::status::{self, Status};
use crate::instance::{Instance, state};
use crate::machine::Machine;
use crate::root::relabel::{self, Labelled};
use crate::root::run_dir::{self, LocalResult, LocalStage, Origin, Record};
use crate::root::{Attr, Root, Stage, Use, Writable, check_writable};
use crate::source::{self, Found};
use crate::system::{Screen, hotplug};
use std::path::Path;

/// The result of the local stage in the initramfs.
pub struct Ended {
    /// The errors and warnings, one line each.
    pub problems: Vec<String>,
    /// Whether everything was written. The real root's first stage writes the rest.
    pub written: bool,
    /// Whether the trust policy stops the boot.
    pub stop: Option<Stop>,
}

/// Provisions the new root at `path` from this machine's datasource. The boot goes on whatever fails.
pub fn new_root(path: &Path, machine: &Machine) -> Ended {
    if let Err(e) = trust::carry(machine) {
        return Ended { problems: vec![e.to_string()], written: false, stop: Some(Stop::Emergency) };
    }
    match Root::open(path, Use::NewRoot) {
        Ok(root) => in_new_root(root, machine),
        Err(e) => Ended { problems: vec![format!("{e}; nothing is provisioned")], written: false, stop: None },
    }
}

/// The same, with the root opened.
fn in_new_root(mut root: Root, machine: &Machine) -> Ended {
    let unfinished = root.unfinished();
    let recovered = if unfinished.is_some() { Problems::new() } else { recover_locked(&mut root, Stage::Local) };
    if let Some(why) = disabled(&root, machine) {
        log::info!("nothing is provisioned: {why}");
        let problems = recovered.entries().iter().map(ToString::to_string).collect();
        return Ended { problems, written: !root.is_unwritten(), stop: None };
    }
    log::debug!("{}", welcome(Stage::Local.action()));
    let outside = ThisMachine::new();
    let mut boot = Boot::new(&root, machine, &Options::default(), &outside);
    boot.report.absorb(recovered);
    let stage = start_event();
    let outcome = unfinished.map_or_else(|| search(&mut root, &mut boot), Outcome::Deferred);
    let mut status = Status::new();
    let (mut result, stop) = provision_outcome(&mut root, &mut boot, &mut status, outcome);
    close::at_local(&mut root, &mut boot, instance_of(&result));
    // Also if nothing was found: the real root's first stage looks for what appears later.
    let units = boot.report.keep(handover::hand_over(&mut root, result.provisioned().is_some())).flatten();
    boot.report.keep(restrict_log(&mut root));
    root.drop_unchanged();
    let changes = root.has_changes_on_disk();
    if changes {
        boot.report.keep(relabel::keep_list(&mut root));
    }
    if let LocalResult::Provisioned(_, provisioned) = &mut result {
        provisioned.has_changes = changes;
    }
    let (result, writable) = write(&mut root, &mut boot, result);
    let is_written = !root.is_unwritten();
    drop(stage);
    let (messages, first) = end(&mut root, &mut boot, &mut status, &result);
    boot.report.keep(close::start_unit(&mut root, units.as_ref()));
    if let Some(units) = units {
        start_units(&mut root, &mut boot, &units, first, &result);
    }
    if result.origin().is_none() {
        boot.report.keep(status.save_in_run(&mut root, false));
    } else if changes {
        save(&mut root, &mut boot, &status, &messages);
    } else {
        // An instance that is already provisioned: a boot that changes nothing leaves the disk alone until
        // the real root's first stage, or to its end if no stage is left.
        boot.report.keep(status.save_in_run(&mut root, first.is_none()));
        let lines = logging::to_file_lines(&messages);
        boot.report.keep(root.write(run_dir::LOG, lines, Attr::root(0o600)));
    }
    record(&mut root, &mut boot, &result);
    commit(&mut root, &boot.report);
    if boot.report.keep(relabel::label(&mut root)) == Some(Labelled::Later) {
        commit(&mut root, &boot.report);
    }
    rescue(&status, &mut root, &boot.report);
    drop(writable);
    let mut problems = boot.errors_and_warnings();
    if !is_written {
        problems.insert(
            0,
            "not everything could be written before the pivot: the real root's first stage tries again".into(),
        );
    }
    // By hand, on a folder, this machine is not switched off.
    let stop = stop.filter(|stop| *stop != Stop::PowerOff || root.is_initramfs());
    Ended { problems, written: is_written, stop }
}

/// Has the real root start the units of the stages from `first`, and those for added network devices if they are asked for.
fn start_units(root: &mut Root, boot: &mut Boot, units: &handover::Units, first: Option<Stage>, result: &Local) {
    // Of no interest in a boot without work. The module that sets it up reports what is wrong.
    let instance = result.provisioned().filter(|_| first.is_some()).map(|provisioned| &provisioned.instance);
    let source = |instance| hotplug::source(root, boot.config_and_report().0, instance, &Problems::new());
    let adds = instance.and_then(source).is_some();
    boot.report.keep(units.start(root, first, adds));
}

/// The local stage of a real root that no initramfs provisioned. Returns the errors.
pub fn real_root(root: &mut Root, machine: &Machine, options: &Options) -> Vec<String> {
    if let Some(why) = disabled(root, machine) {
        log::info!("nothing is provisioned: {why}");
        return Vec::new();
    }
    let outside = outside::of(root);
    begin(&*outside, Stage::Local.action());
    let mut boot = Boot::new(root, machine, options, &*outside);
    show_running(root, &boot.report, boot.start);
    let stage = start_event();
    let outcome = search(root, &mut boot);
    in_real_root(root, boot, outcome, stage)
}

/// Leaves in status.json that the stage runs: the search may take minutes, and the next stage looks whether this one was killed.
fn show_running(root: &mut Root, report: &Problems, start: f64) {
    let mut status = Status::new();
    status.begin(Stage::Local, start);
    report.keep(status.save_in_run(root, false));
    commit(root, report);
}

/// The local stage of the real root after an initramfs that found nothing: a drive may have appeared since.
/// Returns the errors, or None if there still is nothing.
pub fn after_nothing(root: &mut Root, machine: &Machine, options: &Options) -> Option<Vec<String>> {
    provision_found(root, machine, options, search::find_on_drives, in_real_root)
}

/// The local stage, run from the network stage if nothing was found before: asks the services that the
/// machine certainly has, over the running system's network. Returns the errors, or None if this does not
/// apply or no service answers.
pub fn by_service(root: &mut Root, machine: &Machine, options: &Options) -> Option<Vec<String>> {
    provision_found(root, machine, options, search::find_service, with_network)
}

/// Provisions the running system as another instance, because the datasource knows the machine as that now. For the network
/// stage. Returns the errors.
pub fn another(root: &mut Root, machine: &Machine, options: &Options, instance: Instance) -> Vec<String> {
    let outside = outside::of(root);
    let boot = Boot::new(root, machine, options, &*outside);
    // Stages that had no work for the last instance may have some now.
    boot.report.keep(root.remove(run_dir::IDLE));
    // Not the stage's own name, which the initramfs has used: `analyze` would take that for the beginning of another boot.
    let stage = Event::start("init-network/instance", Stage::Local.event().1);
    let place = instance.subplatform.clone();
    with_network(root, boot, Outcome::Read(Box::new(Found { instance, place })), stage)
}

/// Has `provision` provision the running system with what `find` finds, if this boot has no instance yet.
fn provision_found(
    root: &mut Root,
    machine: &Machine,
    options: &Options,
    find: fn(&Root, &mut Boot) -> Option<Found>,
    provision: fn(&mut Root, Boot, Outcome, Event) -> Vec<String>,
) -> Option<Vec<String>> {
    if LocalStage::result(root)?.is_complete() || disabled(root, machine).is_some() {
        return None;
    }
    let outside = outside::of(root);
    let mut boot = Boot::new(root, machine, options, &*outside);
    let found = find(root, &mut boot)?;
    let stage = start_event();
    Some(provision(root, boot, Outcome::Read(Box::new(found)), stage))
}

/// Provisions the running system and ends the stage, before the network is up.
fn in_real_root(root: &mut Root, mut boot: Boot, outcome: Outcome, stage: Event) -> Vec<String> {
    let mut status = Status::new();
    let (result, _) = provision_outcome(root, &mut boot, &mut status, outcome);
    let (result, _writable) = write(root, &mut boot, result);
    end_in_real_root(root, boot, status, result, stage)
}

/// Like [`in_real_root`], with a network that is up with an earlier configuration: it is reloaded if its files change.
fn with_network(root: &mut Root, mut boot: Boot, outcome: Outcome, stage: Event) -> Vec<String> {
    let mut status = Status::new();
    let (result, _) = provision_outcome(root, &mut boot, &mut status, outcome);
    let is_new = refresh::has_new_network(root);
    let (result, _writable) = write(root, &mut boot, result);
    if is_new && let Some(renderer) = network::renderer(root, &boot.image, &boot.report) {
        boot.report.keep(refresh::reload(root, renderer));
    }
    end_in_real_root(root, boot, status, result, stage)
}

/// Ends the stage in the running system. Returns the errors.
fn end_in_real_root(root: &mut Root, mut boot: Boot, mut status: Status, result: Local, stage: Event) -> Vec<String> {
    drop(stage);
    close::at_local(root, &mut boot, instance_of(&result));
    let (messages, _) = end(root, &mut boot, &mut status, &result);
    if result.provisioned().is_some() {
        save(root, &mut boot, &status, &messages);
    } else {
        boot.report.keep(status.save_in_run(root, false));
    }
    record(root, &mut boot, &result);
    commit(root, &boot.report);
    rescue(&status, root, &boot.report);
    boot.errors()
}

/// Begins the stage's event.
fn start_event() -> Event {
    let (name, description) = Stage::Local.event();
    Event::start(name, description)
}

/// Logs and prints the line that begins a stage.
pub(super) fn begin(outside: &dyn crate::system::Outside, action: &str) {
    let line = welcome(action);
    log::debug!("{line}");
    outside.show(Screen::Stderr, &(line + "\n"));
}

fn search(root: &mut Root, boot: &mut Boot) -> Outcome {
    paths::link(root, boot);
    let _event = Event::start("search", "searching for the datasource");
    let deadline = super::deadline(boot.machine);
    super::extend_timeout(std::env::var_os("NOTIFY_SOCKET"), deadline);
    search::find(root, boot, deadline)
}

/// How the stage went, with what it provisioned.
type Local = LocalResult<Provisioned>;

/// Provisions the root with what was found. Nothing is committed yet. Returns the result, and whether the trust policy stops the
/// boot before the pivot: then nothing is provisioned.
fn provision_outcome(root: &mut Root, boot: &mut Boot, status: &mut Status, outcome: Outcome) -> (Local, Option<Stop>) {
    status.begin(Stage::Local, boot.start);
    let (mut instance, origin, summary) = match outcome {
        Outcome::Nothing(why) => {
            boot.report.warn(why);
            let verdict = trust::missing(&boot.image.trust, root, boot.machine, &boot.report);
            boot.log();
            return (LocalResult::Nothing, verdict.stop);
        }
        Outcome::Deferred(why) => {
            log::info!("nothing is provisioned before the pivot: {why}");
            return (LocalResult::Deferred(why), None);
        }
        Outcome::Same(instance) => {
            let origin = if is_last(root, &instance) { Origin::Kept } else { Origin::Resumed };
            let summary = as_before(&instance);
            (*instance, origin, summary)
        }
        Outcome::Others(instance, why) => {
            boot.report.warn(format_args!(
                "no service answers, so this machine keeps the instance {} of the machine that its disk is from: {why}",
                instance.instance_id
            ));
            let summary = as_before(&instance);
            (*instance, Origin::Borrowed, summary)
        }
        Outcome::Read(found) => {
            let Found { mut instance, place } = *found;
            instance.machine_uuid = boot.machine.uuid();
            source::describe(&mut instance);
            warn_of_problems(boot, &instance, &place);
            boot.report.keep(root.remove(state::ANOTHER));
            log::debug!("Detected {}", instance.class);
            let origin = if is_last(root, &instance) { Origin::Reread } else { Origin::New };
            let summary = format!("instance {} from {place}", instance.instance_id);
            (instance, origin, summary)
        }
    };
    let verdict = trust::check(&boot.image.trust, root, boot.machine, &mut instance, origin.is_read(), &boot.report);
    if verdict.stop.is_some() && !root.is_live() {
        boot.log();
        return (LocalResult::Nothing, verdict.stop);
    }
    status.set_datasource(&state::description(&instance));
    let is_complete = provision::provision(root, boot, &instance, origin.is_read()) && origin != Origin::Borrowed;
    network::rename_links(root, boot.machine, &boot.report);
    boot.log();
    (LocalResult::Provisioned(origin, Provisioned { instance, summary, is_complete, has_changes: true }), None)
}

/// The instance that was provisioned.
fn instance_of(result: &Local) -> Option<&Instance> {
    result.provisioned().map(|provisioned| &provisioned.instance)
}

/// Whether the last boot had this instance.
fn is_last(root: &Root, instance: &Instance) -> bool {
    state::last_id(root).as_deref() == Some(&instance.instance_id)
}

/// How the log describes an instance that was not read again.
fn as_before(instance: &Instance) -> String {
    format!("instance {} as before", instance.instance_id)
}

/// Writes what was provisioned. Returns the result after that, and a guard if the root's file system was made writable for it.
fn write(root: &mut Root, boot: &mut Boot, result: Local) -> (Local, Option<Writable>) {
    let _event = Event::start("write", "writing what was provisioned");
    let writable = boot.report.keep(root.make_writable()).flatten();
    boot.report.keep(network::divert(root));
    boot.report.keep(credentials::leave(root));
    commit(root, &boot.report);
    (if root.is_unwritten() { result.unwritten() } else { result }, writable)
}

/// Ends the stage in status.json. Returns its messages for the log, and the first stage that is left to run.
fn end(
    root: &mut Root,
    boot: &mut Boot,
    status: &mut Status,
    result: &Local,
) -> (Vec<logging::Message>, Option<Stage>) {
    if let Some(provisioned) = result.provisioned() {
        let how = if result.origin().is_some() { "provisioned" } else { "not all of it could be written" };
        log::info!("{}: {how} in {:.3} s", provisioned.summary, status::uptime() - boot.start);
    }
    boot.log();
    status.end(Stage::Local, &boot.report);
    let first = match result {
        LocalResult::Provisioned(origin, provisioned) => schedule::skip_idle(root, boot, status, *origin, provisioned),
        _ => Ok(Some(Stage::Local)),
    };
    let first = boot.report.keep(first).unwrap_or(Some(Stage::Local));
    (logging::take(), first)
}

/// Writes the status and the log of a stage that provisioned.
fn save(root: &mut Root, boot: &mut Boot, status: &Status, messages: &[logging::Message]) {
    boot.report.keep(Status::forget(root));
    boot.report.keep(status.save(root));
    boot.report.keep(append_log(root, messages));
    boot.report.keep(own_log(root, &boot.image.own));
}

/// Records for the other stages how this one went.
fn record(root: &mut Root, boot: &mut Boot, result: &Local) {
    let stage = LocalStage { start: boot.start, finished: status::uptime(), result: result.to_record() };
    boot.report.keep(stage.write(root));
}

fn warn_of_problems(boot: &mut Boot, instance: &Instance, place: &str) {
    let cmdline = &boot.machine.cmdline;
    if let Some(name) = ["ci.ds", "ci.datasource"].into_iter().find_map(|key| cmdline.value(key)) {
        boot.report.deprecated(deprecated::CMDLINE_NAME.about(name.split(';').next().unwrap_or_default()));
    }
    if let Some(source) = source::named(&instance.source) {
        (source.deprecated)(boot.machine, instance, &boot.report);
    }
    boot.report.absorb_below(place, &instance.problems);
    boot.log();
}

/// Provisions a tree from a seed, as the initramfs would: `prepivot apply --root DIR --seed …`. No later
/// stage runs. Returns the errors.
///
/// # Errors
/// The tree or the seed cannot be read, or the tree cannot be written.
pub fn tree(path: &Path, seed: &Path) -> Result<Vec<String>> {
    let machine = Machine::read(path);
    let mut root = Root::open(path, Use::Tree)?;
    let recovered = recover_locked(&mut root, Stage::Local);
    let outside = OfTree::new(path);
    let mut boot = Boot::new(&root, &machine, &Options::default(), &outside);
    boot.report.absorb(recovered);
    paths::link(&mut root, &mut boot);
    seeded(&mut root, &mut boot, seed)?;
    if !root.changes().is_empty() {
        check_writable(path)?;
    }
    commit(&mut root, &boot.report);
    Ok(boot.errors())
}

/// Provisions from a seed, and returns its instance. Nothing is committed.
///
/// # Errors
/// The seed cannot be read.
pub fn seeded(root: &mut Root, boot: &mut Boot, seed: &Path) -> Result<Instance> {
    let found = source::read_seed(boot.machine, root, &boot.image.config, seed, boot.image.trust.taken(), &boot.report);
    boot.log();
    let Found { mut instance, place } = found?;
    source::describe(&mut instance);
    warn_of_problems(boot, &instance, &place);
    provision::provision(root, boot, &instance, true);
    boot.log();
    Ok(instance)
}

/// Provisions with an instance that was read now. Returns whether the trust policy stops the boot.
#[cfg(test)]
pub(super) fn outcome_of(root: &mut Root, boot: &mut Boot, instance: Instance) -> Option<Stop> {
    let found = Found { instance, place: "the test".into() };
    provision_outcome(root, boot, &mut Status::new(), Outcome::Read(Box::new(found))).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;

    #[test]
    fn sees_running_stage_and_killed_one_failed() {
        let dir = TempDir::new("running");
        let mut root = dir.root(Use::Tree);
        show_running(&mut root, &Problems::new(), 1.5);
        let text = std::fs::read_to_string(dir.0.join("run/cloud-init/status.json")).unwrap();
        assert!(text.contains("\"stage\": \"init-local\"") && text.contains("\"start\": 1.5"), "{text}");
        let mut status = Status::load(&root);
        status.note_killed(Stage::Network);
        assert_eq!(status.errors_of(Stage::Local), ["the stage init-local was killed before its end"]);
        // Its end takes the place of that file.
        status.end(Stage::Local, &Problems::new());
        status.save(&mut root).unwrap();
        assert_eq!(root.commit(), []);
        assert_eq!(Status::load(&root), status);
        assert!(root.read_link("/run/cloud-init/status.json").is_some());
    }
}
