//! Decides which of the later stages have work in this boot. Those without are not started: a condition of
//! their units fails, which satisfies the units ordered after them.
//!
//! The final stage says that everything is done, and writes to the disk what waited for the system to be up. It is skipped only in
//! a boot that changes nothing, of an instance whose first boot has ended.

use super::again::has_boothooks;
use super::boot::Boot;
use super::handover::Later;
use super::modules::{Run, Work};
use super::{provision, refresh, reporting};
use crate::base::error::Result;
use crate::base::report::Report;
use crate::instance::status::{LOCAL, Status, uptime};
use crate::instance::{Instance, state};
use crate::module::Module;
use crate::root::run_dir::{self, IDLE, RANDOM_PASSWORDS};
use crate::root::{Attr, Command, Root, Stage};
use crate::source;
use crate::system::service::has_systemd;

/// A systemd drop-in that pulls in network-online.target, for a final stage that needs the network.
const WANTS_NETWORK: &str = "/run/systemd/system/cloud-final.service.d/prepivot-network.conf";

/// A systemd drop-in by which the network stage waits for the network, used where there are boothooks:
/// cloud-init runs them when the links are up. The services are those by which network managers wait for
/// their links.
const BOOTHOOKS_WAIT: (&str, &str) = (
    "/run/systemd/system/cloud-init-network.service.d/prepivot-network.conf",
    "[Unit]\nWants=network-online.target\nAfter=systemd-networkd-wait-online.service NetworkManager-wait-online.service \
     networking.service wicked.service\n",
);

/// What the local stage provisioned.
pub struct Provisioned {
    pub instance: Instance,
    /// Whether the instance was read in this boot.
    pub read: bool,
    /// Whether the configuration is complete: nothing remote is missing, there are no part-handlers, and the instance is this
    /// machine's.
    pub complete: bool,
    /// Whether the disk had all of it already.
    pub settled: bool,
}

/// Writes the marks and drop-ins by which systemd skips the stages without work, and sets those stages to
/// done in `status`. Called at the end of a local stage, when its changes are on the disk. Returns the first
/// stage that is left to run, if there is one.
///
/// # Errors
/// /run cannot be written, or the running system's systemd does not answer.
pub fn leave(root: &mut Root, boot: &mut Boot, status: &mut Status, done: &Provisioned) -> Result<Option<Later>> {
    if !root.has_run() {
        return Ok(Some(Later::Local));
    }
    let mut run = Run::new(root, boot, &done.instance);
    let (config, last) = (run.demand(Stage::Config, &|_| true), run.demand(Stage::Final, &|_| true));
    let boothooks = has_boothooks(root, &done.instance);
    let needs_network = !done.complete || [config.work, last.work].contains(&Work::Remote);
    if root.is_live() {
        return start_network(root, boothooks, needs_network).map(|()| Some(Later::Local));
    }
    if boothooks && has_systemd(root) {
        root.write(BOOTHOOKS_WAIT.0, BOOTHOOKS_WAIT.1, Attr::root(0o644))?;
    }
    // Without systemd this folder would make programs believe that it runs (sd_booted(3)).
    if needs_network && has_systemd(root) {
        root.write(WANTS_NETWORK, "[Unit]\nWants=network-online.target\n", Attr::root(0o644))?;
    }
    // After an error every stage runs, to report it and to repeat the work.
    if !boot.report.errors().is_empty() || !done.complete || reporting::has_webhook(boot) {
        return Ok(Some(Later::Local));
    }
    let is_early_due = run_dir::is_early_due(root);
    let is_local = |module: &Module| is_early_due && module.early;
    let mut run = Run::new(root, boot, &done.instance);
    let early = run.demand(Stage::Init, &is_local);
    // Some may be left to the network stage.
    let network = run.demand(Stage::Init, &|module| !is_local(module) || module.is_ready.is_some());
    let source = source::named(&done.instance.source);
    let reports = source.is_some_and(|s| s.provisioned.is_some() || s.publish_host_keys.is_some());
    let left = [&state::later_logins(&done.instance), RANDOM_PASSWORDS].iter().any(|path| root.exists(path));
    let init = network.work != Work::None
        || reports
        || left
        || boothooks
        || provision::has_later_files(root, &done.instance)
        || (!done.read && refresh::is_due(root, boot, &done.instance));
    let local = root.is_waiting() || early.work != Work::None;
    let later = config.work != Work::None;
    let marks = [network.marks(), config.marks(), last.marks()];
    let ends = local
        || init
        || later
        || last.work != Work::None
        || marks.iter().any(|marks| !marks.is_empty())
        || !done.settled
        || !state::is_finished(root, &done.instance)
        || root.has_unlabelled()
        || Run::new(root, boot, &done.instance).has_background();
    let [network, config, _] = marks;
    let mut first = None;
    for (stage, name, needed, marks) in [
        (Later::Local, LOCAL, local, String::new()),
        (Later::Network, "init", init, network),
        (Later::Config, "modules-config", later, config),
        (Later::Final, "modules-final", ends, String::new()),
    ] {
        if needed {
            first = first.or(Some(stage));
            continue;
        }
        root.write(&format!("{IDLE}/{name}"), marks, Attr::root(0o600))?;
        if name != LOCAL {
            status.begin(name, uptime());
            status.end(name, &Report::new());
        }
    }
    Ok(first)
}

/// Has the running system's systemd wait for the network where that is needed. It has queued the stages at boot, so that none of
/// them is skipped.
fn start_network(root: &mut Root, boothooks: bool, needs_network: bool) -> Result<()> {
    if !root.is_dir("/run/systemd/system") || root.which("systemctl").is_none() {
        return Ok(());
    }
    if boothooks {
        root.write(BOOTHOOKS_WAIT.0, BOOTHOOKS_WAIT.1, Attr::root(0o644))?;
        root.run(Command::new(Stage::Init, ["systemctl", "daemon-reload"]))?;
    }
    if needs_network || boothooks {
        root.run(Command::new(Stage::Init, ["systemctl", "--no-block", "start", "network-online.target"]))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::document::{Value, yaml};
    use crate::instance::Frequency;
    use crate::machine::Machine;
    use crate::stage::Options;
    use crate::stage::again::boothooks_of;
    use crate::stage::modules::Half;
    use crate::system::Nothing;

    /// The stages that are idle in a first boot of a Debian image with `config`, and whether the network is wanted.
    fn left(config: &str) -> (Vec<String>, bool) {
        let dir = TempDir::new("idle");
        for (path, text) in [
            ("etc/os-release", "ID=debian\n"),
            ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
            ("etc/shadow", "root:*:1::::::\n"),
            ("etc/group", "root:x:0:\n"),
            ("usr/bin/apt-get", ""),
            ("usr/bin/dpkg", ""),
            ("usr/lib/systemd/systemd", ""),
        ] {
            dir.write(path, text);
        }
        let runs = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir.0.join("usr/bin/dpkg"), runs).unwrap();
        let mut root = Root::open_new(&dir.0);
        let instance = Instance { instance_id: "i".into(), local_hostname: Some("one".into()), ..Instance::default() };
        let machine = Machine::default();
        let mut boot = Boot::new(&root, &machine, &Options::default(), &Nothing);
        let Value::Map(mut merged) = boot.config().clone() else { panic!("the image's configuration is a mapping") };
        let Value::Map(own) = yaml::parse("t", config).unwrap() else { panic!("{config} is no mapping") };
        own.iter().for_each(|(key, value)| drop(merged.insert(key, value.clone())));
        boot.config = Some(Value::Map(merged).into());
        let mut run = Run::new(&mut root, &mut boot, &instance);
        Stage::ALL.iter().for_each(|stage| run.stage(*stage, Half::Provision));
        run.leave_early();
        let done = Provisioned { instance: instance.clone(), read: true, complete: true, settled: false };
        leave(&mut root, &mut boot, &mut Status::new(), &done).unwrap();
        assert_eq!(boot.errors(), [""; 0]);
        let idle = root.list(IDLE);
        // As the final stage does.
        Run::new(&mut root, &mut boot, &instance).mark_idle();
        let is_marked = |name: &str| state::is_done(&root, &instance, name, Frequency::Instance);
        assert_eq!(is_marked("config_users_groups.live"), idle.contains(&"init".to_owned()), "{config}");
        assert_eq!(is_marked("config_ssh_import_id"), idle.contains(&"modules-config".to_owned()), "{config}");
        assert!(!is_marked("config_update_hostname.live"), "it comes in every boot");
        (idle, root.exists(WANTS_NETWORK))
    }

    #[test]
    fn a_first_boot_starts_the_stages_and_awaits_the_network_for_what_is_asked_for() {
        let idle = |config: &str, expected: &[&str], network: bool| {
            assert_eq!(left(config), (expected.iter().map(|name| (*name).to_owned()).collect(), network), "{config}");
        };
        // The root may grow, in the local stage.
        idle("{users: [{name: ada, ssh_authorized_keys: [ssh-ed25519 AAAA]}]}", &["init", "modules-config"], false);
        idle("{write_files: [{path: /a, content: b}], hostname: two}", &["init", "modules-config"], false);
        for config in [
            "mounts: [[sdb, /srv]]",
            "swap: {filename: /swap, size: 1M}",
            // Its disk may come after the local stage.
            "disk_setup: {vdb: {layout: true}}",
            "random_seed: {command: [a]}",
            "users: [{name: ada, snapuser: a@b.c}]",
            "chpasswd: {users: [{name: root, type: RANDOM}]}",
            "ssh_genkeytypes: [rsa]",
        ] {
            idle(config, &["modules-config"], false);
        }
        idle("locale: de_DE.UTF-8", &["init"], false);
        // Only the running system has their places.
        for path in ["/tmp/a", "/dev/shm/a", "/sys/a", "/proc/sys/a"] {
            idle(&format!("write_files: [{{path: {path}, content: b}}]"), &["modules-config"], false);
        }
        idle("write_files: [{path: /var/tmp/a, content: b}]", &["init", "modules-config"], false);
        // Files alone, written before the pivot.
        for config in ["apt: {conf: a}", "apt_preserve_sources_list: true"] {
            idle(config, &["init", "modules-config"], false);
        }
        for config in [
            "byobu_by_default: user",
            "users: [{name: ada, ssh_import_id: [gh:ada]}]",
            "apt: {sources: {a: {source: deb http://a b c}}}",
            "apt: {debconf_selections: {a: a a/b boolean true}}",
        ] {
            idle(config, &["init"], true);
        }
        idle("packages: [a]", &["init", "modules-config"], true);
    }

    #[test]
    fn stages_run_for_what_was_left_to_them_and_after_errors() {
        let idle = |prepare: &dyn Fn(&mut Root, &mut Boot, &mut Provisioned)| {
            let dir = TempDir::new("demand-left");
            dir.write("usr/lib/systemd/systemd", "");
            let mut root = Root::open_new(&dir.0);
            let machine = Machine::default();
            let mut boot = Boot::new(&root, &machine, &Options::default(), &Nothing);
            boot.config = Some(yaml::parse("t", "{}").unwrap().into());
            let instance = Instance { instance_id: "i".into(), ..Instance::default() };
            let mut done = Provisioned { instance, read: true, complete: true, settled: false };
            prepare(&mut root, &mut boot, &mut done);
            leave(&mut root, &mut boot, &mut Status::new(), &done).unwrap();
            root.list(IDLE)
        };
        let left = |path: &str, root: &mut Root| root.write(path, "x\n", Attr::root(0o600)).unwrap();
        assert_eq!(idle(&|_, _, _| ()), ["init", "init-local", "modules-config"]);
        assert_eq!(idle(&|root, _, _| left(RANDOM_PASSWORDS, root)), ["init-local", "modules-config"]);
        let logins = idle(&|root, _, done| left(&state::later_logins(&done.instance), root));
        assert_eq!(logins, ["init-local", "modules-config"]);
        for (path, expected) in
            [("/tmp/a", &["init-local", "modules-config"][..]), ("etc/a", &["init", "init-local", "modules-config"])]
        {
            let files = idle(&|_, _, done| done.instance.files.push((path.into(), b"x".to_vec().into())));
            assert_eq!(files, expected, "{path}");
        }
        let settled = |root: &mut Root, done: &mut Provisioned| {
            left(&format!("{}/{}", state::folder(&done.instance), state::BOOT_FINISHED), root);
            state::store(root, &done.instance).unwrap();
            done.settled = true;
        };
        let none = ["init", "init-local", "modules-config", "modules-final"];
        assert_eq!(idle(&|root, _, done| settled(root, done)), none, "a second boot");
        let but_final = |prepare: &dyn Fn(&mut Root, &mut Boot, &mut Provisioned)| {
            let idle = idle(&|root, boot, done| {
                settled(root, done);
                prepare(root, boot, done);
            });
            assert_eq!(idle, none[..3]);
        };
        but_final(&|_, _, done| done.settled = false);
        but_final(&|root, _, done| {
            root.remove(&format!("{}/{}", state::folder(&done.instance), state::BOOT_FINISHED)).unwrap();
        });
        // Its service is asked for what may have changed.
        let ec2 = idle(&|root, _, done| {
            done.instance.source = "Ec2".into();
            done.read = false;
            settled(root, done);
        });
        assert_eq!(ec2, ["init-local", "modules-config"]);
        but_final(&|root, _, _| left("/var/lib/cloud/data/previous-datasource", root));
        but_final(&|root, _, _| left("/var/lib/cloud/data/prepivot-unlabelled", root));
        for config in [
            "{cloud_final_modules: [final_message], final_message: done}",
            "{cloud_final_modules: [[final_message, always, done]]}",
            "{cloud_final_modules: [phone_home], phone_home: {url: 'http://x'}}",
            "{cloud_final_modules: [keys_to_console]}",
        ] {
            but_final(&|_, boot, _| boot.config = Some(yaml::parse("t", config).unwrap().into()));
        }
        assert_eq!(
            idle(&|root, boot, done| {
                settled(root, done);
                boot.config = Some(yaml::parse("t", "{cloud_final_modules: [final_message]}").unwrap().into());
            }),
            none
        );
        assert_eq!(idle(&|_, boot, _| boot.report.error("it failed")), [""; 0]);
        assert_eq!(idle(&|_, _, done| done.complete = false), [""; 0]);
    }

    #[test]
    fn the_network_stage_waits_for_the_network_where_there_are_boothooks() {
        let dir = TempDir::new("demand");
        std::fs::create_dir_all(dir.0.join("usr/lib/systemd")).unwrap();
        std::fs::write(dir.0.join("usr/lib/systemd/systemd"), "").unwrap();
        let mut root = Root::open_new(&dir.0);
        let instance = Instance { instance_id: "i".into(), ..Instance::default() };
        let done = Provisioned { instance, read: true, complete: true, settled: false };
        let machine = Machine::default();
        for wanted in [false, true] {
            if wanted {
                root.write(&format!("{}/part-001", boothooks_of(&done.instance)), "#!/bin/sh\n", Attr::root(0o700))
                    .unwrap();
            }
            let mut boot = Boot::new(&root, &machine, &Options::default(), &Nothing);
            leave(&mut root, &mut boot, &mut Status::new(), &done).unwrap();
            let text = root.text(BOOTHOOKS_WAIT.0);
            let waits = ["Wants=network-online.target\n", "After=", " NetworkManager-wait-online.service "];
            assert!(waits.iter().all(|w| text.contains(w) == wanted), "{text}");
        }
    }
}
