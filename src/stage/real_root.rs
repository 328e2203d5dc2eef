//! The stages of the real root: `init --local`, `init`, `modules --mode config`, `modules --mode final`.

use super::Options;
use super::boot::Boot;
use super::image::{Image, disabled};
use super::keys;
use super::modules::{Half, Run};
use super::output::Redirected;
use super::refresh::Answer;
use super::rerun::Before;
use super::web::Includes;
use super::{
    LOG_GROUP, append_log, append_to_log, close, commit, config, feedback, local as local_stage, outside,
    part_handlers, password, provision, recover, recover_locked, refresh, reporting, rescue,
};
use crate::base::error::{Context, Result};
use crate::base::event::Event;
use crate::base::logging;
use crate::base::problem::Problems;
use crate::document::{Value, json};
use crate::instance::instance_data::{self, COMBINED_FILE};
use crate::instance::status::{self, Status};
use crate::instance::{Instance, state};
use crate::machine::Machine;
use crate::root::run_dir::{self, LocalStage, Origin};
use crate::root::{Command, Root, Stage, installed, kept_state, owner, relabel};
use crate::source::{self, MetadataOf};
use crate::userdata::{Fetched, Include};
use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashSet;
use std::sync::Arc;

/// Runs a stage of the real root. Returns the errors.
pub fn run(root: &mut Root, machine: &Machine, stage: Stage, options: &Options) -> Vec<String> {
    root.enter(stage);
    match stage {
        Stage::Local => local(root, machine, options),
        Stage::Network | Stage::Config | Stage::Final => with_modules(root, machine, stage, options),
    }
}

/// `init --local`: carries out the changes that an earlier run left, and those that waited for their file
/// system. Provisions the root where no initramfs did it in this boot, or where the initramfs left it to this
/// stage. Returns the errors.
fn local(root: &mut Root, machine: &Machine, options: &Options) -> Vec<String> {
    let bound = kept_state::bind(root);
    let report = recover_locked(root, Stage::Local);
    report.keep(bound);
    let provisioned = if LocalStage::result(root).is_none_or(|result| result.is_left_to_real_root()) {
        Some(local_stage::real_root(root, machine, options))
    } else {
        local_stage::after_nothing(root, machine, options)
    };
    let is_due = run_dir::before_services_is_due(root);
    match provisioned {
        Some(errors) => errors.iter().for_each(|e| report.error(e)),
        None => drop(report.keep(log_of_initramfs(root))),
    }
    if is_due {
        before_services(root, machine, options, &report);
    }
    report.keep(append_log(root, &logging::take()));
    report.keep(Status::restore(root));
    commit(root, &report);
    rescue(&Status::load(root), root, &report);
    report.errors()
}

/// Runs the network stage's modules that grow the root and set up disks early, before the first service needs the space. Their
/// errors belong to this stage in status.json.
fn before_services(root: &mut Root, machine: &Machine, options: &Options, report: &Problems) {
    let Some(instance) = options.instance(root) else { return };
    let outside = outside::of(root);
    let mut boot = Boot::new(root, machine, options, &*outside);
    boot.config = combined(root, &mut boot);
    if boot.config.is_some() {
        // Not the stage's own name, which the initramfs has used: because `analyze` would take that for the beginning of another
        // boot.
        let _event = Event::start("init-local/early", "growing the root and setting up disks");
        let _redirected =
            root.is_live().then(|| Redirected::new(boot.config(), Stage::Network, owner::group_id(root, LOG_GROUP)));
        Run::new(root, &mut boot, &instance).before_services();
    }
    if !boot.report.is_empty() {
        let mut status = Status::load(root);
        status.add(Stage::Local, &boot.report);
        boot.report.keep(status.save(root));
    }
    report.absorb(boot.report);
}

/// Writes the log and status.json to the disk, which an initramfs without other changes left in /run.
fn log_of_initramfs(root: &mut Root) -> Result<()> {
    let Some(lines) = root.read(run_dir::LOG)? else { return Ok(()) };
    let status = Status::load(root);
    Status::forget(root)?;
    status.save(root)?;
    append_to_log(root, &lines)?;
    root.remove(run_dir::LOG)
}

/// One of the stages that have modules. Returns the errors.
fn with_modules(root: &mut Root, machine: &Machine, stage: Stage, options: &Options) -> Vec<String> {
    let start = status::uptime();
    let recovered = recover_locked(root, stage);
    if stage == Stage::Final {
        root.stop_waiting().iter().for_each(|e| recovered.error(e));
        recovered.keep(relabel::forget_list(root));
        if LocalStage::result(root).and_then(|result| result.origin()).is_some_and(Origin::is_same) {
            recovered.keep(state::note_same(root));
        }
    }
    if let Some(why) = disabled(root, machine) {
        log::info!("nothing is done: {why}");
        return recovered.errors();
    }
    if stage == Stage::Network {
        for error in local_stage::by_service(root, machine, options).unwrap_or_default() {
            recovered.error(error);
        }
    }
    let mut status = Status::load(root);
    status.note_killed(stage);
    status.begin(stage, start);
    let Some(mut instance) = options.instance(root) else {
        log::info!("there is no instance: nothing to do in the stage {}", stage.status_name());
        let report = recovered;
        status.end(stage, &report);
        report.keep(status.save_in_run(root, stage == Stage::Final));
        commit(root, &report);
        return report.errors();
    };
    let outside = outside::of(root);
    let mut boot = Boot::new(root, machine, options, &*outside);
    boot.report.absorb(recovered);
    // Not yet done if the real root's local stage was skipped.
    boot.report.keep(log_of_initramfs(root));
    boot.report.keep(status.save(root));
    commit(root, &boot.report);
    rescue(&status, root, &boot.report);
    let (label, what) = stage.event();
    let event = Event::start(label, what);
    boot.config = combined(root, &mut boot);
    let mut is_changed = false;
    if stage == Stage::Network && boot.config.is_some() {
        match refresh::refresh(root, &mut boot, &instance) {
            Answer::Same => {}
            Answer::Changed(found) => (instance, is_changed) = (found, true),
            Answer::Another(found) => {
                let errors = local_stage::another(root, machine, options, found.clone());
                status = Status::load(root);
                status.begin(stage, start);
                boot.report.keep(status.save(root));
                errors.iter().for_each(|e| boot.report.error(e));
                boot.config = combined(root, &mut boot);
                instance = found;
            }
        }
        boot.log();
    }
    let (instance, passwords) = work(root, &mut boot, instance, is_changed, stage, &status.recoverable());
    commit(root, &boot.report);
    if stage == Stage::Network {
        feedback::provisioned(root, &mut boot, &instance, &status, passwords);
    }
    if stage != Stage::Config {
        feedback::host_keys(root, &mut boot, &instance);
    }
    if stage == Stage::Final {
        close::at_final(root, &mut boot, &instance);
    }
    drop(event);
    boot.log();
    end(root, boot, status, &instance, stage)
}

/// Ends the stage: reports it, writes the status and the log, and starts what is to run after it. Returns the errors.
fn end(root: &mut Root, mut boot: Boot, mut status: Status, instance: &Instance, stage: Stage) -> Vec<String> {
    let messages = logging::take();
    let local_failed = (stage == Stage::Network).then(|| !status.errors().is_empty());
    reporting::send(root, &mut boot, &messages, local_failed);
    status.withdraw(&boot.withdrawn);
    // A stage that is run again in the same boot keeps its failure.
    let failed_before = status.errors_of(stage);
    status.end(stage, &boot.report);
    boot.report.keep(status.save(root));
    if stage == Stage::Final {
        boot.report.keep(status.save_result(root));
    }
    boot.report.keep(append_log(root, &[messages, logging::take()].concat()));
    commit(root, &boot.report);
    rescue(&status, root, &boot.report);
    if stage == Stage::Final && root.is_live() && Run::new(root, &mut boot, instance).has_background() {
        let started = start_background(root);
        boot.report.keep(started);
    }
    root.run_at_end().iter().for_each(|e| boot.report.error(e));
    let late = logging::take();
    if !late.is_empty() {
        boot.report.keep(append_log(root, &late));
        commit(root, &boot.report);
    }
    let mut errors = boot.errors();
    let known: HashSet<String> = errors.iter().cloned().collect();
    errors.extend(failed_before.into_iter().filter(|error| !known.contains(error)));
    errors
}

/// Starts this program again in the background.
fn start_background(root: &mut Root) -> Result<()> {
    let program = std::env::current_exe().context(|| "failed to find this program")?.display().to_string();
    // With the lowest priority that the system can set.
    let idle: &[&str] =
        if installed::which(root, "chrt").is_some() { &["chrt", "--idle", "0"] } else { &["nice", "-n", "19"] };
    let argv = idle.iter().map(|word| (*word).to_owned()).chain([program, "background".to_owned()]);
    root.start(Command::new(argv))
}

/// The background work of the final stage: `prepivot background`. Returns the errors.
pub fn background(root: &mut Root, machine: &Machine, options: &Options) -> Vec<String> {
    root.enter(Stage::Final);
    let recovered = recover(root);
    let Some(instance) = options.instance(root) else { return recovered.errors() };
    let outside = outside::of(root);
    let mut boot = Boot::new(root, machine, options, &*outside);
    boot.report.absorb(recovered);
    configure(root, &mut boot, &instance);
    Run::new(root, &mut boot, &instance).background();
    feedback::host_keys(root, &mut boot, &instance);
    boot.log();
    boot.report.keep(append_log(root, &logging::take()));
    commit(root, &boot.report);
    boot.errors()
}

/// Does the stage's work; `changed`: the instance changed since the local stage. Returns the instance, and the random passwords
/// that are now set.
fn work(
    root: &mut Root,
    boot: &mut Boot,
    instance: Instance,
    changed: bool,
    stage: Stage,
    known: &[String],
) -> (Instance, Vec<(String, String)>) {
    if stage != Stage::Network && remerge(root, boot, &instance) {
        // What the stage before has not written of it.
        let mut run = Run::new(root, boot, &instance);
        Stage::WITH_MODULES
            .iter()
            .filter(|later| **later >= stage)
            .for_each(|later| run.stage(*later, Half::BeforePivot));
    }
    if changed {
        // Stages that the local stage found idle may have work now.
        Run::new(root, boot, &instance).mark_idle();
        boot.report.keep(root.remove(run_dir::IDLE));
    }
    if stage == Stage::Network || boot.config.is_none() {
        let (complete, remote) = complete(root, boot, &instance, stage);
        merge(root, boot, &complete, stage, Reason { remote, changed }, known);
    }
    let _redirected = root.is_live().then(|| Redirected::new(boot.config(), stage, owner::group_id(root, LOG_GROUP)));
    local_stage::begin(boot.outside, boot.action.unwrap_or(stage.action()));
    let mut before = if stage == Stage::Network { Before::look(root, boot, &instance) } else { Before::default() };
    let base = boot.image.digest.clone();
    if stage == Stage::Network {
        provision::files_of_running_system(root, &instance, &boot.report);
        provision::boothooks(root, boot, &instance);
        if boot.follow_image(root, &instance, stage) {
            before.has_other_configuration = true;
            boot.turn_to(stage);
            // Leaves it for the later stages.
            if !root.exists(run_dir::DECRYPTED) {
                let written = instance_data::write_combined(root, boot.config.clone().unwrap_or_default());
                boot.report.keep(written.and_then(|()| boot.image.note(root)));
            }
            for stage in Stage::WITH_MODULES {
                Run::new(root, boot, &instance).stage(stage, Half::BeforePivot);
            }
            boot.turn_to(stage);
        }
    }
    let reset = if stage == Stage::Network { password::reset(root, boot, &instance) } else { None };
    let waiting = run_dir::passwords(&root.text(run_dir::RANDOM_PASSWORDS));
    let mut run = Run::new(root, boot, &instance).after(before);
    if stage == Stage::Final {
        run.mark_idle();
    }
    run.stage(stage, Half::Running);
    if stage == Stage::Network && (boot.image.digest != base || Image::digest_of(root, boot.machine) != base) {
        // Stages that the local stage found idle may have work now, and mark themselves what they do.
        boot.report.keep(root.remove(run_dir::IDLE));
    }
    // Passwords printed by this stage replace those still waiting; otherwise a later stage prints the waiting
    // ones.
    let shown = std::mem::take(&mut boot.shown);
    // For the report that it is on the disk: it is not kept.
    let instance = match reset {
        Some(config) => Instance { config, ..instance },
        None => instance,
    };
    (instance, if shown.is_empty() { waiting } else { shown })
}

/// The instance with the metadata that its source provides only in the running system, which is not kept for a later boot; and
/// whether user-data waits for that, or for something else on the network. The network stage waits for the network if necessary.
fn complete<'a>(root: &mut Root, boot: &mut Boot, instance: &'a Instance, stage: Stage) -> (Cow<'a, Instance>, bool) {
    let metadata = source::named(&instance.source).and_then(|source| source.real_root.metadata);
    let Some(metadata) = metadata else { return (Cow::Borrowed(instance), false) };
    let standard = instance_data::standard(root, boot.machine, &boot.image.distro, instance, &boot.image.config);
    let variables = Value::Map(standard);
    let mut fetch = |include: &Include<'_>| config::without_network(root, include);
    let (merged, _) = config::consume(root, &boot.image, instance, &variables, &Problems::new(), &mut fetch);
    if stage == Stage::Network && (merged.needs_network || (metadata.waits)(root, instance)) {
        Run::new(root, boot, instance).await_network();
    }
    let mut complete = instance.clone();
    let of = if root.is_live() { MetadataOf::ThisSystem } else { MetadataOf::NoSystem };
    (metadata.add)(of, &mut complete, &boot.report);
    (Cow::Owned(complete), merged.needs_network)
}

/// Why the file halves run in the network stage.
struct Reason {
    /// Parts of user-data were remote: all of them run.
    remote: bool,
    /// The instance changed since the local stage: those that are due for the new one run.
    changed: bool,
}

/// Merges the configuration, including what is remote. In the network stage it also writes the parts, and
/// runs the file halves that waited.
fn merge(root: &mut Root, boot: &mut Boot, instance: &Instance, stage: Stage, reason: Reason, known: &[String]) {
    let Reason { mut remote, changed } = reason;
    if boot.image.has_templates {
        boot.image.read_again(root, boot.machine, instance, &boot.report);
    }
    let standard = instance_data::standard(root, boot.machine, &boot.image.distro, instance, &boot.image.config);
    let variables = Value::Map(standard.clone());
    let web = OnceCell::new();
    let mut fetch = |include: &Include<'_>| match config::without_network(root, include)? {
        Fetched::NoNetwork => {
            remote = true;
            let web = web.get_or_init(Includes::new).as_ref().map_err(Clone::clone)?;
            config::with_network(root, instance, web, include)
        }
        fetched => Ok(fetched),
    };
    let found = Problems::new();
    let (mut merged, consumed) = config::consume(root, &boot.image, instance, &variables, &found, &mut fetch);
    // Without what the local stage reported already.
    boot.report.absorb_new(found, known);
    // Else the local stage has done it.
    remote |= root.exists(run_dir::KEY_AWAITED);
    if stage == Stage::Network {
        boot.report.keep(merged.keep_config(root));
    }
    let has_metadata = source::named(&instance.source).is_some_and(|source| source.real_root.metadata.is_some());
    // Else it is as the local stage merged it, but for what user-data has since written into the image's for later stages.
    if remote || changed || has_metadata || boot.config.is_none() {
        boot.report.keep(keys::leave(root, boot.machine, &merged.config, &consumed));
        boot.config = Some(Arc::clone(&merged.config));
    }
    if stage == Stage::Network {
        boot.report.keep(config::write_parts(root, instance, &consumed, changed));
        part_handlers::run(root, boot, instance, &consumed);
        let is_due = remote || changed;
        if is_due {
            config::check(&consumed, &boot.report);
        }
        if is_due || has_metadata {
            let written = instance_data::write(root, standard, instance, &boot.image.config, merged.kept());
            boot.report.keep(written);
            boot.report.keep(boot.image.note(root));
        }
        if is_due {
            provision::give_credentials(root, boot);
            provision::modules(root, boot, instance);
        }
    }
    boot.log();
}

/// Loads this boot's configuration into `boot`, merged again if the image's has changed; if no earlier stage merged it, merges it
/// without what is remote.
pub fn configure(root: &Root, boot: &mut Boot, instance: &Instance) {
    boot.config = combined(root, boot);
    remerge(root, boot, instance);
    if boot.config.is_some() {
        return;
    }
    let standard =
        Value::Map(instance_data::standard(root, boot.machine, &boot.image.distro, instance, &boot.image.config));
    let mut fetch = |include: &Include<'_>| config::without_network(root, include);
    boot.config = Some(config::consume(root, &boot.image, instance, &standard, &boot.report, &mut fetch).0.config);
}

/// Merges the configuration again if the image's has changed since, as each stage of cloud-init does: user-data may write files of
/// cloud.cfg.d. Returns whether that gives another one.
fn remerge(root: &Root, boot: &mut Boot, instance: &Instance) -> bool {
    let base = root.text(run_dir::BASE);
    let Some(known) = boot.config.clone().filter(|_| !base.is_empty() && base != boot.image.digest) else {
        return false;
    };
    let new = boot.image.merge_again(root, instance);
    let is_other = *known != new;
    boot.config = Some(Arc::new(new));
    is_other
}

/// The configuration as an earlier stage of this boot merged it.
fn combined(root: &Root, boot: &mut Boot) -> Option<Arc<Value>> {
    let path = format!("{}/{COMBINED_FILE}", state::RUN_DIR);
    let bytes = root.read(&path).ok()??;
    match json::parse(&path, &bytes) {
        Ok(Value::Map(mut config)) => {
            instance_data::remove_added(&mut config);
            let config = keys::left(root, &config).unwrap_or(config);
            Some(Value::Map(boot.image.over(config, &boot.report)).into())
        }
        Ok(other) => Some(other.into()),
        Err(e) => {
            boot.report.warn(e);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::document::Map;
    use crate::root::{Attr, CLOUD_INIT_LOG as LOG, Output, Use};
    use crate::stage::testing;
    use crate::system::password;

    #[test]
    fn waits_for_network_if_addresses_are_wanted() {
        let template = "## template: jinja\n#cloud-config\nhostname: '{{ ds.meta_data.local_ipv4 }}'\n";
        for (source, tool, user_data, waits, remote) in [
            ("VMware", true, "#cloud-config\n{}\n", true, false),
            ("VMware", false, "#cloud-config\n{}\n", false, false),
            ("VMware", false, template, true, true),
            ("NoCloud", true, template, false, false),
        ] {
            let dir = TempDir::new("later-addresses");
            dir.write("usr/lib/systemd/systemd", "");
            std::fs::create_dir_all(dir.0.join("run/systemd/system")).unwrap();
            let mut root = dir.root(Use::Tree);
            if tool {
                root.write("/usr/bin/vmware-rpctool", "", Attr::root(0o755)).unwrap();
            }
            root.play(Box::new(|_, _| Ok(Output { status: 0, stdout: Vec::new(), stderr: Vec::new() })));
            let user_data = Some(user_data.as_bytes().to_vec().into());
            let instance =
                Instance { source: source.into(), user_data, metadata: Map::new().into(), ..Instance::default() };
            let machine = Machine::default();
            let options = Options::default();
            let outside = crate::system::Nothing;
            let mut boot = Boot::new(&root, &machine, &options, &outside);
            let (complete, is_remote) = complete(&mut root, &mut boot, &instance, Stage::Network);
            assert_eq!(is_remote, remote, "{source}");
            assert_eq!(root.exists(run_dir::NETWORK_AWAITED), waits, "{source} {tool}");
            assert_eq!(complete.metadata.at(&["network", "interfaces"]).is_some(), source == "VMware");
        }
    }

    #[test]
    fn reports_the_random_password_that_is_set() {
        let dir = TempDir::new("later-passwords");
        let mut root = dir.root(Use::Tree);
        root.write("/etc/passwd", "a:x:1:1::/:/bin/sh\n", Attr::root(0o644)).unwrap();
        root.write("/etc/shadow", "a:!:1:0:99999:7:::\n", Attr::root(0o640)).unwrap();
        let machine = Machine::default();
        let mut run_with = |id: &str, lists: &str, waiting: Option<&str>| {
            if let Some(waiting) = waiting {
                root.write(run_dir::RANDOM_PASSWORDS, waiting, Attr::root(0o600)).unwrap();
            }
            let config = format!("{{{lists}, chpasswd: {{users: [{{name: a, type: RANDOM}}]}}}}");
            let user_data = Some(format!("#cloud-config\n{config}").into_bytes().into());
            let instance = Instance { instance_id: id.into(), user_data, ..Instance::default() };
            let mut boot = testing::boot(&root, &machine);
            let (_, passwords) = work(&mut root, &mut boot, instance, false, Stage::Network, &[]);
            let hash = root.text("/etc/shadow").split(':').nth(1).unwrap_or_default().to_owned();
            (passwords, hash, root.exists(run_dir::RANDOM_PASSWORDS))
        };
        let now = "cloud_init_modules: [set_passwords]";
        // As the local stage left it.
        let (passwords, ..) = run_with("i-1", now, Some("a:first\n"));
        assert_eq!(passwords, [("a".into(), "first".into())]);
        // A power cut lost the password that the local stage left: it is set anew.
        let (passwords, hash, left) = run_with("i-2", now, None);
        let [(user, word)] = &passwords[..] else { panic!("{passwords:?} {hash}") };
        assert!(user == "a" && password::verify(word, &hash), "{hash}");
        assert!(!left);
        // A later stage shows it.
        let late = "cloud_init_modules: [], cloud_config_modules: [set_passwords]";
        let (passwords, _, left) = run_with("i-3", late, Some("a:second\n"));
        assert!(left && passwords == [("a".into(), "second".into())]);
    }

    #[test]
    fn stage_begins_under_the_name_of_its_command() {
        for (action, expected) in [(None, "'init'"), (Some("modules:init"), "'modules:init'")] {
            let dir = TempDir::new("later-action");
            let mut root = dir.root(Use::Tree);
            let options = Options { action, ..Options::default() };
            let machine = Machine::default();
            let instance = Instance { instance_id: "i".into(), ..Instance::default() };
            let mut boot = Boot::new(&root, &machine, &options, &crate::system::Nothing);
            let messages = logging::capture(|| drop(work(&mut root, &mut boot, instance, false, Stage::Network, &[])));
            assert!(messages.iter().any(|message| message.text.contains(&format!("running {expected} at "))));
        }
    }

    #[test]
    fn early_work_starts_no_boot_in_log() {
        let dir = TempDir::new("later-early");
        let mut root = dir.root(Use::Tree);
        let config = format!("{}/combined-cloud-config.json", state::RUN_DIR);
        root.write(&config, r#"{"cloud_init_modules": []}"#, Attr::root(0o600)).unwrap();
        let options = Options { force: true, ..Options::default() };
        let messages = logging::capture(|| before_services(&mut root, &Machine::default(), &options, &Problems::new()));
        let events: Vec<&str> = messages.iter().map(|m| m.text.as_str()).filter(|t| t.contains("growing")).collect();
        assert_eq!(
            events,
            [
                "start: init-local/early: growing the root and setting up disks",
                "finish: init-local/early: SUCCESS: growing the root and setting up disks",
            ]
        );
    }

    #[test]
    fn writes_files_that_the_initramfs_did_not() {
        let dir = TempDir::new("later");
        let mut root = dir.root(Use::Tree);
        let mut status = Status::new();
        status.begin(Stage::Local, 1.0);
        status.save_in_run(&mut root, false).unwrap();
        root.write(LOG, "before\n", Attr::root(0o640)).unwrap();
        root.write("/var/lib/cloud/data/result.json", "of the last boot", Attr::root(0o644)).unwrap();
        root.write(run_dir::LOG, "as before\n", Attr::root(0o600)).unwrap();
        root.commit();

        for _ in 0..2 {
            log_of_initramfs(&mut root).unwrap();
            assert_eq!(root.commit(), []);
            assert_eq!(root.text(LOG), "before\nas before\n");
            assert_eq!(root.read_link("/run/cloud-init/status.json").unwrap(), "../../var/lib/cloud/data/status.json");
            assert_eq!(Status::load(&root), status);
            assert!(!root.exists("/var/lib/cloud/data/result.json"));
            assert!(!root.exists(run_dir::LOG));
        }
    }
}
