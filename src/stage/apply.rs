//! The local stage: finds the datasource and provisions the root. It runs in the initramfs, in a real root
//! that no initramfs provisioned, and by hand on a tree with a seed.

use super::boot::Boot;
use super::demand::{self, Provisioned};
use super::find::{self, Outcome};
use super::image::disabled;
use super::outside::{OfTree, ThisMachine};
use super::trust::Stop;
use super::{
    Options, PROVISIONING, append_log, commit, credentials, handover, network, own_log, paths, provision, recover,
    refresh, rescue, trust, welcome,
};
use crate::base::error::Result;
use crate::base::event::Event;
use crate::base::logging;
use crate::base::report::Report;
use crate::instance::status::{self, LOCAL, Status};
use crate::instance::{Instance, state};
use crate::machine::Machine;
use crate::root::run_dir::{self, Applied, Record};
use crate::root::{Attr, Root, Use, Writable, check_writable};
use crate::source::{self, Found};
use crate::system::{Screen, hotplug};
use std::path::Path;

/// How the local stage went in the initramfs.
pub struct Ended {
    /// The errors and warnings, one line each.
    pub problems: Vec<String>,
    /// Whether everything was written. The real root's first stage writes the rest.
    pub written: bool,
    /// Whether the trust policy stops the boot.
    pub stop: Option<Stop>,
}

/// Provisions the new root at `path` with what this machine's datasource says. The boot goes on whatever fails.
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
    let recovered = if unfinished.is_some() { Report::new() } else { recover(&mut root) };
    if let Some(why) = disabled(&root, machine) {
        log::info!("nothing is provisioned: {why}");
        let problems = recovered.entries().iter().map(ToString::to_string).collect();
        return Ended { problems, written: !root.is_unwritten(), stop: None };
    }
    log::debug!("{}", welcome(LOCAL));
    let outside = ThisMachine::new();
    let mut boot = Boot::new(&root, machine, &Options::default(), &outside);
    boot.report.absorb(recovered);
    let stage = Event::start(LOCAL, PROVISIONING);
    let outcome = unfinished.map_or_else(|| search(&mut root, &mut boot), Outcome::Later);
    let mut status = Status::new();
    let mut done = provision_outcome(&mut root, &mut boot, &mut status, outcome);
    // Also where nothing was found: the real root's first stage looks for what appears later.
    let units = boot.report.keep(handover::hand_over(&mut root, done.is_provisioned())).flatten();
    root.drop_unchanged();
    let changes = root.has_changes_on_disk();
    if let Some((_, provisioned)) = &mut done.provisioned {
        provisioned.settled = done.again && !changes;
    }
    if changes {
        boot.report.keep(root.keep_unlabelled());
    }
    let writable = write(&mut root, &mut boot, &mut done);
    drop(stage);
    let (messages, first) = end(&mut root, &mut boot, &mut status, &done);
    if let Some(units) = units {
        // Of no interest in a boot without work. The module that sets it up reports what is wrong.
        let instance =
            done.provisioned.as_ref().filter(|_| first.is_some()).map(|(_, provisioned)| &provisioned.instance);
        let source = |instance| hotplug::source(&root, boot.config_and_report().0, instance, &mut Report::new());
        let adds = instance.and_then(source).is_some();
        boot.report.keep(units.start(&mut root, first, adds));
    }
    if !done.is_provisioned() || !done.written {
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
    record(&mut root, &mut boot, &done);
    boot.report.keep(root.relabel_later());
    commit(&mut root, &mut boot.report);
    rescue(&status, &mut root, &mut boot.report);
    drop(writable);
    let mut problems = boot.errors_and_warnings();
    if !done.written {
        problems.insert(
            0,
            "not everything could be written before the pivot: the real root's first stage tries again".into(),
        );
    }
    // By hand, on a folder, this machine is not switched off.
    let stop = done.stop.filter(|stop| *stop != Stop::PowerOff || root.is_initramfs());
    Ended { problems, written: done.written, stop }
}

/// The local stage of a real root that no initramfs provisioned. Returns the errors.
pub fn real_root(root: &mut Root, machine: &Machine, options: &Options) -> Vec<String> {
    if let Some(why) = disabled(root, machine) {
        log::info!("nothing is provisioned: {why}");
        return Vec::new();
    }
    let outside = ThisMachine::new();
    begin(&outside, LOCAL);
    let mut boot = Boot::new(root, machine, options, &outside);
    show_running(root, &mut boot.report, boot.start);
    let stage = Event::start(LOCAL, PROVISIONING);
    let outcome = search(root, &mut boot);
    in_real_root(root, boot, outcome, stage, false)
}

/// Leaves in status.json that the stage runs: the search may take minutes, and the next stage looks whether this one was killed.
fn show_running(root: &mut Root, report: &mut Report, start: f64) {
    let mut status = Status::new();
    status.begin(LOCAL, start);
    report.keep(status.save_in_run(root, false));
    commit(root, report);
}

/// The local stage of the real root after an initramfs that found nothing: a drive may have appeared since.
/// Returns the errors, or None where there still is nothing.
pub fn again(root: &mut Root, machine: &Machine, options: &Options) -> Option<Vec<String>> {
    after_nothing(root, machine, options, find::find_again, false)
}

/// The local stage, run from the network stage where nothing was found before: asks the services that the
/// machine certainly has, over the running system's network. Returns the errors, or None where this does not
/// apply or no service answers.
pub fn by_service(root: &mut Root, machine: &Machine, options: &Options) -> Option<Vec<String>> {
    after_nothing(root, machine, options, find::find_service, true)
}

/// Runs the local stage with what `find` finds, if this boot has no instance yet; `late` as in
/// [`in_real_root`].
fn after_nothing(
    root: &mut Root,
    machine: &Machine,
    options: &Options,
    find: fn(&Root, &mut Boot) -> Option<Found>,
    late: bool,
) -> Option<Vec<String>> {
    if Applied::read(root)?.provisioned || disabled(root, machine).is_some() {
        return None;
    }
    let outside = ThisMachine::new();
    let mut boot = Boot::new(root, machine, options, &outside);
    let found = find(root, &mut boot)?;
    let stage = Event::start(LOCAL, PROVISIONING);
    Some(in_real_root(root, boot, Outcome::Read(Box::new(found)), stage, late))
}

/// Provisions the running system and ends the stage. With `late`, the network is already up with an earlier
/// configuration, so it is reloaded if its files change.
fn in_real_root(root: &mut Root, mut boot: Boot, outcome: Outcome, stage: Event, late: bool) -> Vec<String> {
    let mut status = Status::new();
    let mut done = provision_outcome(root, &mut boot, &mut status, outcome);
    let reload = late && refresh::has_new_network(root);
    let _writable = write(root, &mut boot, &mut done);
    if reload && let Some(renderer) = network::renderer(root, &boot.image, &mut boot.report) {
        boot.report.keep(refresh::reload(root, renderer));
    }
    drop(stage);
    let (messages, _) = end(root, &mut boot, &mut status, &done);
    if done.is_provisioned() {
        save(root, &mut boot, &status, &messages);
    } else {
        boot.report.keep(status.save_in_run(root, false));
    }
    record(root, &mut boot, &done);
    commit(root, &mut boot.report);
    rescue(&status, root, &mut boot.report);
    boot.errors()
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
    find::find(root, boot, deadline)
}

/// The result of the local stage.
#[derive(Default)]
struct Done {
    /// Whether the last boot had the same instance.
    again: bool,
    /// Whether the instance is another machine's: the real root asks again for this machine's.
    is_others: bool,
    /// Whether the search is left to the real root, where alone the datasource can be read.
    later: bool,
    /// Whether everything was written: nothing failed for want of space or because the disk is read-only.
    written: bool,
    /// What was provisioned, for the log, and what decides which later stages have work. None where nothing
    /// was found.
    provisioned: Option<(String, Provisioned)>,
    /// Whether the trust policy stops the boot.
    stop: Option<Stop>,
}

impl Done {
    fn is_provisioned(&self) -> bool {
        self.provisioned.is_some()
    }
}

/// Provisions the root with what was found. Nothing is committed yet.
fn provision_outcome(root: &mut Root, boot: &mut Boot, status: &mut Status, outcome: Outcome) -> Done {
    status.begin(LOCAL, boot.start);
    let mut is_others = false;
    let (mut instance, place) = match outcome {
        Outcome::Nothing(why) => {
            boot.report.warn(why);
            boot.log();
            return Done::default();
        }
        Outcome::Later(why) => {
            log::info!("nothing is provisioned before the pivot: {why}");
            return Done { later: true, ..Done::default() };
        }
        Outcome::Same(instance) => (*instance, None),
        Outcome::Others(instance, why) => {
            boot.report.warn(format_args!(
                "no service answers, so this machine keeps the instance {} of the machine that its disk is from: {why}",
                instance.instance_id
            ));
            is_others = true;
            (*instance, None)
        }
        Outcome::Read(found) => {
            let Found { mut instance, place } = *found;
            instance.machine_uuid = boot.machine.uuid();
            source::describe(&mut instance);
            warn_of_problems(boot, &instance, &place);
            log::debug!("Detected {}", instance.class);
            (instance, Some(place))
        }
    };
    let verdict = trust::check(&boot.image.trust, root, boot.machine, &mut instance, place.is_some(), &mut boot.report);
    if verdict.stop.is_some() && !root.is_live() {
        boot.log();
        return Done { stop: verdict.stop, ..Done::default() };
    }
    status.set_datasource(&state::description(&instance));
    let again = state::last_id(root).as_deref() == Some(&instance.instance_id);
    let complete = provision::provision(root, boot, &instance, place.is_some()) && !is_others;
    network::rename_links(root, boot.machine, &mut boot.report);
    boot.log();
    let id = &instance.instance_id;
    let summary =
        place.as_ref().map_or(format!("instance {id} as before"), |place| format!("instance {id} from {place}"));
    let read = place.is_some();
    Done {
        provisioned: Some((summary, Provisioned { instance, read, complete, settled: false })),
        again,
        is_others,
        ..Done::default()
    }
}

/// Writes what was provisioned. Returns a guard if the root's file system was made writable for that.
fn write(root: &mut Root, boot: &mut Boot, done: &mut Done) -> Option<Writable> {
    let _event = Event::start("write", "writing what was provisioned");
    let writable = boot.report.keep(root.make_writable()).flatten();
    boot.report.keep(network::divert(root));
    boot.report.keep(credentials::leave(root));
    commit(root, &mut boot.report);
    done.written = !root.is_unwritten();
    writable
}

/// Ends the stage in status.json. Returns its messages for the log, and the first stage that is left to run.
fn end(
    root: &mut Root,
    boot: &mut Boot,
    status: &mut Status,
    done: &Done,
) -> (Vec<logging::Message>, Option<handover::Later>) {
    if let Some((summary, _)) = &done.provisioned {
        let how = if done.written { "provisioned" } else { "not all of it could be written" };
        log::info!("{summary}: {how} in {:.3} s", status::uptime() - boot.start);
    }
    boot.log();
    status.end(LOCAL, &boot.report);
    // With changes still unwritten, every later stage has to run.
    let provisioned = done.provisioned.as_ref().filter(|_| done.written);
    let first = provisioned.map(|(_, provisioned)| demand::leave(root, boot, status, provisioned));
    let first = first.and_then(|first| boot.report.keep(first)).unwrap_or(Some(handover::Later::Local));
    (logging::take(), first)
}

/// Writes the status and the log of a stage that provisioned.
fn save(root: &mut Root, boot: &mut Boot, status: &Status, messages: &[logging::Message]) {
    boot.report.keep(Status::forget(root));
    boot.report.keep(status.save(root));
    boot.report.keep(append_log(root, messages));
    boot.report.keep(own_log(root, &boot.image.own));
}

/// Records for the later stages what this one did.
fn record(root: &mut Root, boot: &mut Boot, done: &Done) {
    let (start, finished) = (boot.start, status::uptime());
    let provisioned = done.is_provisioned() && done.written && !done.is_others;
    let read = done.provisioned.as_ref().is_some_and(|(_, provisioned)| provisioned.read);
    let later = done.later || !done.written;
    let applied = Applied { start, finished, provisioned, read, later, again: done.again };
    boot.report.keep(applied.write(root));
}

fn warn_of_problems(boot: &mut Boot, instance: &Instance, place: &str) {
    for problem in &instance.problems {
        boot.report.warn(format_args!("{place}: {problem}"));
    }
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
    let recovered = recover(&mut root);
    let outside = OfTree::new(path);
    let mut boot = Boot::new(&root, &machine, &Options::default(), &outside);
    boot.report.absorb(recovered);
    paths::link(&mut root, &mut boot);
    seeded(&mut root, &mut boot, seed)?;
    if !root.changes().is_empty() {
        check_writable(path)?;
    }
    commit(&mut root, &mut boot.report);
    Ok(boot.errors())
}

/// Provisions from a seed, and returns its instance. Nothing is committed.
///
/// # Errors
/// The seed cannot be read.
pub fn seeded(root: &mut Root, boot: &mut Boot, seed: &Path) -> Result<Instance> {
    let found = source::read_seed(boot.machine, root, &boot.image.config, seed, &mut boot.report);
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
pub(super) fn outcome_of(root: &mut Root, boot: &mut Boot, instance: Instance) -> Option<super::trust::Stop> {
    let found = Found { instance, place: "the test".into() };
    provision_outcome(root, boot, &mut Status::new(), Outcome::Read(Box::new(found))).stop
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;

    #[test]
    fn a_stage_that_runs_is_seen_and_one_that_was_killed_has_failed() {
        let dir = TempDir::new("running");
        let mut root = Root::open(&dir.0, Use::Tree).unwrap();
        show_running(&mut root, &mut Report::new(), 1.5);
        let text = std::fs::read_to_string(dir.0.join("run/cloud-init/status.json")).unwrap();
        assert!(text.contains("\"stage\": \"init-local\"") && text.contains("\"start\": 1.5"), "{text}");
        let mut status = Status::load(&root);
        status.note_killed("init");
        assert_eq!(status.errors_of(LOCAL), ["the stage init-local was killed before its end"]);
        // Its end takes the place of that file.
        status.end(LOCAL, &Report::new());
        status.save(&mut root).unwrap();
        assert_eq!(root.commit(), []);
        assert_eq!(Status::load(&root), status);
        assert!(root.read_link("/run/cloud-init/status.json").is_some());
    }
}
