//! Provisions a root with one instance: its state, network files, the parts of user-data, and the file half
//! of every module.

use super::boot::{Boot, NETWORK};
use super::modules::{self, Half, Run};
use super::{config, credentials, keys, network, part_handlers, refresh, rerun};
use crate::base::error::Result;
use crate::base::problem::Problems;
use crate::document::{Bytes, Value};
use crate::instance::Frequency;
use crate::instance::{Instance, instance_data, state};
use crate::root::{Attr, Command, Root, Stage, run_dir};
use crate::source;
use crate::system::fstab::{FSTAB, without_ours};

/// The mark that the source's own files have been written.
const FILES_DONE: &str = "prepivot_files";
/// The same for those that wait for the running system.
const RUNNING_FILES_DONE: &str = "prepivot_files.live";

/// Writes the state, the network, the source's own files and the parts of user-data, and runs the file halves
/// of the modules unless user-data has remote parts. The merged configuration stays in `boot`. `read`: the
/// instance was read now, not taken from the cache. Returns whether the configuration is complete: nothing of
/// it is remote or left to part-handlers.
pub fn provision(root: &mut Root, boot: &mut Boot, instance: &Instance, read: bool) -> bool {
    let last = state::last_id(root);
    let new = last.as_deref() != Some(&instance.instance_id);
    if new && last.is_some() {
        boot.report.keep(forget_mounts(root));
    }
    if !new {
        boot.report.keep(modules::adopt(root, instance, &[FILES_DONE, RUNNING_FILES_DONE]));
    }
    // The files that identify the instance come last, and only if everything else could be written.
    boot.retried = new && root.exists(&state::class_file(instance));
    if boot.image.has_templates {
        boot.image.read_again(root, boot.machine, instance, &boot.report);
    }
    boot.report.keep(modules::store(root, instance));
    if new {
        network(root, boot, instance);
    }
    source_files(root, instance, &boot.report);
    let standard = instance_data::standard(root, boot.machine, &boot.image.distro, instance, &boot.image.config);
    let variables = Value::Map(standard.clone());
    let (mut merged, consumed) =
        config::consume(root, &boot.image, instance, &variables, &boot.report, &mut |include| {
            config::without_network(root, include)
        });
    boot.report.keep(merged.keep_config(root));
    if !merged.needs_network {
        config::check(&consumed, &boot.report);
        boot.report.keep(config::write_parts(root, instance, &consumed, read));
    }
    boot.report.keep(instance_data::write(root, standard, instance, &boot.image.config, merged.kept()));
    boot.report.keep(keys::leave(root, boot.machine, &merged.config, &consumed));
    if merged.needs_key && root.has_run() {
        boot.report.keep(root.write(run_dir::KEY_AWAITED, "", Attr::root(0o600)));
    }
    boot.report.keep(boot.image.note(root));
    boot.log();
    boot.config = Some(merged.config);
    give_credentials(root, boot);
    let complete = !merged.needs_network && !part_handlers::are_wanted(&boot.image, &consumed);
    let kept = keep_for_good(root, boot.config(), instance);
    boot.report.keep(kept);
    if !new && read && refresh::allows_boot(boot.config(), source::named(&instance.source)) {
        network(root, boot, instance);
    }
    boot.report.keep(network::link_json(root, instance));
    if merged.needs_network {
        log::info!("user-data refers to something remote: the modules run when the network is up");
        Run::new(root, boot, instance).hostname();
    } else {
        modules(root, boot, instance);
        Run::new(root, boot, instance).leave_before_services();
    }
    complete
}

/// Hands on the credentials in the configuration, whose values are opened for it.
pub fn give_credentials(root: &mut Root, boot: &mut Boot) {
    boot.open_config(root);
    let (config, report) = boot.config_and_report();
    credentials::give(root, config, report);
}

/// Writes the marker that makes ds-identify keep the instance on later boots (`manual_cache_clean`).
fn keep_for_good(root: &mut Root, config: &Value, instance: &Instance) -> Result<()> {
    let mark = state::kept_mark(instance);
    if config.get("manual_cache_clean").is_some_and(Value::is_true) {
        root.write(&mark, "", Attr::root(0o644))
    } else {
        root.remove(&mark)
    }
}

/// Writes the network files.
fn network(root: &mut Root, boot: &mut Boot, instance: &Instance) {
    boot.observe(root, "");
    let applied =
        network::apply(root, boot.machine, &boot.image, instance, &boot.report, network::Unreadable::Fallback);
    boot.observe(root, NETWORK);
    boot.report.keep(applied.and_then(|applied| network::write_json(root, instance, applied)));
}

/// Removes another instance's `mounts` lines from fstab: its disks are not this machine's.
fn forget_mounts(root: &mut Root) -> Result<()> {
    root.edit_text(FSTAB, Attr::root(0o644), |text| {
        let kept = without_ours(text, "");
        Ok((kept != text).then_some(kept))
    })
    .map(drop)
}

/// Runs the file half of every stage's modules. If the user's commands run later, the paths that each depends
/// on are recorded.
pub fn modules(root: &mut Root, boot: &mut Boot, instance: &Instance) {
    let noted = (root.has_run() && rerun::has_early_commands(root, boot, instance)).then(Vec::new);
    let mut run = Run::new(root, boot, instance).noting(noted);
    for stage in Stage::WITH_MODULES {
        run.stage(stage, Half::BeforePivot);
        run.follow_image(stage);
    }
    if let Some(halves) = run.into_noted() {
        boot.report.keep(rerun::note(root, instance, halves));
    }
    boot.turn_to(Stage::Network);
}

/// Writes the files that the source itself brings (a config drive's `files`), 0660 as in cloud-init unless
/// only root may read them, and removes those that it supersedes. Once for each instance.
fn source_files(root: &mut Root, instance: &Instance, report: &Problems) {
    let Instance { files, private_files, stale_files, .. } = instance;
    let has_none = files.is_empty() && private_files.is_empty() && stale_files.is_empty();
    if has_none || state::is_done(root, instance, FILES_DONE, Frequency::Instance) {
        return;
    }
    let keep = |result: Result<()>| {
        if let Err(e) = result {
            report.warn(format_args!("the datasource's files: {e}"));
        }
    };
    stale_files.iter().for_each(|path| keep(root.remove(path)));
    for (path, content) in files_of(root, instance, Half::BeforePivot) {
        // ifupdown's own file is world-readable.
        let mode = if path.starts_with("/etc/network/interfaces") { 0o644 } else { 0o660 };
        keep(root.write(&path, content.clone(), Attr::root(mode)));
    }
    for (path, content) in private_files {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        keep(root.mkdir(folder, Attr::root(0o700)));
        keep(root.write(path, content.clone(), Attr::root(0o600)));
    }
    report.keep(state::mark_done(root, instance, FILES_DONE, Frequency::Instance));
}

/// The paths and contents of `files` that are written before the pivot, or those that only the running system has a place for.
fn files_of<'a>(root: &Root, instance: &'a Instance, half: Half) -> Vec<(String, &'a Bytes)> {
    // nova allows paths without a leading slash.
    let files = instance.files.iter().map(|(path, content)| (format!("/{}", path.trim_start_matches('/')), content));
    files.filter(|(path, _)| root.is_of_running_system(path) == (half == Half::Running)).collect()
}

/// Whether [`files_of_running_system`] has work.
pub fn has_files_of_running_system(root: &Root, instance: &Instance) -> bool {
    !files_of(root, instance, Half::Running).is_empty()
        && !state::is_done(root, instance, RUNNING_FILES_DONE, Frequency::Instance)
}

/// Writes the source's own files that waited for the running system.
pub fn files_of_running_system(root: &mut Root, instance: &Instance, report: &Problems) {
    if !has_files_of_running_system(root, instance) {
        return;
    }
    for (path, content) in files_of(root, instance, Half::Running) {
        if let Err(e) = root.write(&path, content.clone(), Attr::root(0o660)) {
            report.warn(format_args!("the datasource's files: {e}"));
        }
    }
    report.keep(state::mark_done(root, instance, RUNNING_FILES_DONE, Frequency::Instance));
}

/// Runs the instance's boothooks: on every boot, before any module of the real root.
pub fn boothooks(root: &mut Root, boot: &mut Boot, instance: &Instance) {
    let folder = rerun::boothooks_of(instance);
    for name in root.list(&folder) {
        let command = Command::new([format!("{folder}/{name}")]);
        if let Err(e) = root.run(command.env("INSTANCE_ID", instance.instance_id.as_str())) {
            boot.report.error(format_args!("boothook {name} failed: {e}"));
        }
        boot.log();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::machine::Machine;
    use crate::root::Use;
    use crate::stage::testing;

    #[test]
    fn later_stages_use_configuration_that_user_data_writes() {
        let dir = TempDir::new("provision-image");
        dir.write("usr/share/zoneinfo/Europe/Rome", "");
        dir.write("etc/os-release", "ID=debian\n");
        dir.write("etc/cloud/cloud.cfg", "## template: jinja\nhostname: n-{{ v1.instance_id }}\n");
        let mut root = dir.root(Use::Tree);
        let drop_in = "## template: jinja\ntimezone: {{ 'Europe/Rome' }}\nruncmd: ['echo {{ v1.instance_id }}']\nhostname: late\n";
        let files = Value::from(vec![Value::from(
            [("path", "/etc/cloud/cloud.cfg.d/9.cfg"), ("content", drop_in)]
                .into_iter()
                .collect::<crate::document::Map>(),
        )]);
        let user_data = format!("#cloud-config\nwrite_files: {}\n", crate::document::json::to_string(&files));
        let user_data = Some(user_data.into_bytes().into());
        let instance =
            Instance { source: "NoCloud".into(), instance_id: "five".into(), user_data, ..Instance::default() };
        let machine = Machine::default();
        let mut boot = testing::boot(&root, &machine);
        assert!(provision(&mut root, &mut boot, &instance, true));
        assert_eq!(root.text("/etc/timezone"), "Europe/Rome\n");
        assert!(root.text("/var/lib/cloud/instances/five/scripts/runcmd").contains("echo five"));
        // The network stage keeps the configuration with which the boot began.
        assert_eq!(root.text("/etc/hostname"), "n-five\n");
        for (stage, name) in [(Stage::Network, "n-five"), (Stage::Final, "late")] {
            boot.turn_to(stage);
            assert_eq!(boot.config().get("hostname").and_then(Value::as_str), Some(name));
        }
    }

    #[test]
    fn cloud_inits_instance_runs_no_half_again() {
        let dir = TempDir::new("provision-adopt");
        dir.write("etc/os-release", "ID=debian\n");
        dir.write("etc/cloud/cloud.cfg", "cloud_init_modules: [write_files, set_passwords, mounts]\n");
        dir.write("var/lib/cloud/data/instance-id", "i\n");
        for name in ["config_mounts", "config_set_passwords"] {
            dir.write(&format!("var/lib/cloud/instances/i/sem/{name}"), "");
        }
        let mut root = dir.root(Use::Tree);
        let files = vec![("etc/own".to_owned(), b"a".to_vec().into())];
        let instance = Instance { instance_id: "i".into(), files, ..Instance::default() };
        let machine = Machine::default();
        let mut boot = testing::boot(&root, &machine);
        provision(&mut root, &mut boot, &instance, true);
        let is_done = |name: &str| state::is_done(&root, &instance, name, Frequency::Instance);
        assert!(is_done("config_mounts.live") && is_done("config_set_passwords.live"));
        // cloud-init has not marked it.
        assert!(!is_done("config_write_files.live") && !root.exists("/etc/own"));
    }

    #[test]
    fn writes_sources_files_once_over_stale_ones() {
        let dir = TempDir::new("source-files");
        dir.write("etc/stale", "x");
        let mut root = dir.root(Use::Tree);
        let instance = Instance {
            instance_id: "i".into(),
            files: ["etc/own", "tmp/own"].map(|path| (path.into(), b"a".to_vec().into())).into(),
            private_files: vec![("/var/lib/agent/secret".into(), b"b".to_vec().into())],
            stale_files: vec!["/etc/stale".into()],
            ..Instance::default()
        };
        let report = Problems::new();
        source_files(&mut root, &instance, &report);
        let modes =
            ["/etc/own", "/var/lib/agent", "/var/lib/agent/secret"].map(|path| root.stat(path).unwrap().attr.mode);
        assert_eq!(modes, [0o660, 0o700, 0o600]);
        assert!(!root.exists("/etc/stale") && !root.exists("/tmp/own"));
        root.remove("/etc/own").unwrap();
        source_files(&mut root, &instance, &report);
        assert!(!root.exists("/etc/own"));
        // In the running system.
        assert!(has_files_of_running_system(&root, &instance));
        for _ in 0..2 {
            files_of_running_system(&mut root, &instance, &report);
            assert!(!has_files_of_running_system(&root, &instance));
            assert_eq!((root.text("/tmp/own").as_str(), root.exists("/etc/own")), ("a", false));
        }
        assert!(report.entries().is_empty(), "{:?}", report.entries());
    }
}
