//! Decides which of the later stages have work in this boot. Those without are not started: a condition of
//! their units fails, which satisfies the units ordered after them.
//!
//! The final stage reports that everything is done, and writes the changes that waited for the system to be up. It is skipped only
//! in a boot that changes nothing, of an instance whose first boot has ended.

use super::boot::Boot;
use super::modules::{Demand, Run, Work};
use super::rerun::{has_boothooks, has_early_commands};
use super::{close, provision, refresh, reporting};
use crate::base::error::Result;
use crate::base::problem::Problems;
use crate::instance::status::{Status, uptime};
use crate::instance::{Instance, state};
use crate::module::{BeforeServices, Module};
use crate::root::run_dir::{self, IDLE, Origin, RANDOM_PASSWORDS};
use crate::root::{Attr, Command, Root, Stage, installed, relabel};
use crate::source;
use crate::system::service::has_systemd;

/// A systemd drop-in that pulls in network-online.target, for a final stage that needs the network.
const WANTS_NETWORK: &str = "/run/systemd/system/cloud-final.service.d/prepivot-network.conf";

/// A systemd drop-in that makes the network stage wait for the network, used if there are boothooks or `bootcmd`:
/// cloud-init runs them when the links are up. The services are the network managers' own, which wait for their links.
const COMMANDS_WAIT: (&str, &str) = (
    "/run/systemd/system/cloud-init-network.service.d/prepivot-network.conf",
    "[Unit]\nWants=network-online.target\nAfter=systemd-networkd-wait-online.service NetworkManager-wait-online.service \
     networking.service wicked.service\n",
);

/// The local stage's result, as far as later stages depend on it.
pub struct Provisioned {
    pub instance: Instance,
    /// The instance and where it is from, for the log.
    pub summary: String,
    /// Whether the configuration is complete: nothing remote is missing, there are no part-handlers, and the instance is this
    /// machine's.
    pub is_complete: bool,
    /// Whether anything had to be written.
    pub has_changes: bool,
}

/// Writes the marks and drop-ins that make systemd skip the stages without work, and sets those stages to
/// done in `status`. Called at the end of a local stage, when its changes are on the disk. Returns the first stage that has work,
/// if there is one.
///
/// # Errors
/// /run cannot be written, or the running system's systemd does not answer.
pub fn skip_idle(
    root: &mut Root,
    boot: &mut Boot,
    status: &mut Status,
    origin: Origin,
    done: &Provisioned,
) -> Result<Option<Stage>> {
    if !root.has_run() {
        return Ok(Some(Stage::Local));
    }
    let mut schedule = Schedule::new(root, boot, origin, done);
    if schedule.root.is_live() {
        return schedule.start_network().map(|()| Some(Stage::Local));
    }
    schedule.write_drop_ins()?;
    if schedule.all_stages_run() {
        return Ok(Some(Stage::Local));
    }
    let mut first = None;
    for (stage, work) in schedule.work() {
        match work {
            StageWork::Some => first = first.or(Some(stage)),
            StageWork::None { marks } => schedule.skip(status, stage, marks)?,
        }
    }
    Ok(first)
}

/// What a stage has to do in this boot.
enum StageWork {
    Some,
    /// It is skipped. The marks are those that it would have set.
    None {
        marks: String,
    },
}

/// Which stages have work after the local one.
struct Schedule<'a, 'b> {
    root: &'a mut Root,
    boot: &'a mut Boot<'b>,
    origin: Origin,
    done: &'a Provisioned,
    has_boothooks: bool,
    /// Whether the user's commands run in the network stage: boothooks or `bootcmd`.
    has_commands: bool,
    /// The work of the modules in the config and in the final stage.
    config: Demand,
    last: Demand,
}

impl<'a, 'b> Schedule<'a, 'b> {
    fn new(root: &'a mut Root, boot: &'a mut Boot<'b>, origin: Origin, done: &'a Provisioned) -> Self {
        let has_boothooks = has_boothooks(root, &done.instance);
        let has_commands = has_early_commands(root, boot, &done.instance);
        let mut run = Run::new(root, boot, &done.instance);
        let (config, last) = (run.demand(Stage::Config, &|_| true), run.demand(Stage::Final, &|_| true));
        Schedule { root, boot, origin, done, has_boothooks, has_commands, config, last }
    }

    /// Whether a stage needs the network.
    fn needs_network(&self) -> bool {
        !self.done.is_complete || [self.config.work, self.last.work].contains(&Work::Remote)
    }

    /// Writes the drop-ins by which systemd brings up the network for a stage that needs it.
    fn write_drop_ins(&mut self) -> Result<()> {
        // Without systemd this folder would make programs believe that it runs (sd_booted(3)).
        if !has_systemd(self.root) {
            return Ok(());
        }
        if self.has_commands {
            self.root.write(COMMANDS_WAIT.0, COMMANDS_WAIT.1, Attr::root(0o644))?;
        }
        if self.needs_network() {
            self.root.write(WANTS_NETWORK, "[Unit]\nWants=network-online.target\n", Attr::root(0o644))?;
        }
        Ok(())
    }

    /// The same in the running system, whose systemd has queued the stages, so that none of them is skipped.
    fn start_network(&mut self) -> Result<()> {
        if !self.root.is_dir("/run/systemd/system") || installed::which(self.root, "systemctl").is_none() {
            return Ok(());
        }
        if self.has_commands {
            self.root.write(COMMANDS_WAIT.0, COMMANDS_WAIT.1, Attr::root(0o644))?;
            self.root.run(Command::new(["systemctl", "daemon-reload"]))?;
        }
        if self.needs_network() || self.has_commands {
            self.root.run(Command::new(["systemctl", "--no-block", "start", "network-online.target"]))?;
        }
        Ok(())
    }

    /// Whether every stage runs: after an error, to report it and to repeat the work.
    fn all_stages_run(&self) -> bool {
        !self.boot.report.errors().is_empty() || !self.done.is_complete || reporting::has_webhook(self.boot)
    }

    /// The work of each stage.
    fn work(&mut self) -> [(Stage, StageWork); 4] {
        let (before_services, network) = self.network_modules();
        let config = self.config.work != Work::None;
        let local = self.root.is_waiting() || before_services.work != Work::None;
        let init = network.work != Work::None || self.network_stage_has_other_work();
        let marks = [network.marks(), self.config.marks()];
        let last = local
            || init
            || config
            || marks.iter().any(|marks| !marks.is_empty())
            || !self.last.marks().is_empty()
            || self.final_stage_has_other_work();
        let [network, of_config] = marks;
        let work = |is_some, marks| if is_some { StageWork::Some } else { StageWork::None { marks } };
        [
            (Stage::Local, work(local, String::new())),
            (Stage::Network, work(init, network)),
            (Stage::Config, work(config, of_config)),
            (Stage::Final, work(last, String::new())),
        ]
    }

    /// The work of the network stage's modules that run before services, in the local stage of the real root; and of the others.
    fn network_modules(&mut self) -> (Demand, Demand) {
        let is_due = run_dir::before_services_is_due(self.root);
        let is_local = |module: &Module| is_due && module.runs_before_services();
        let mut run = Run::new(self.root, self.boot, &self.done.instance);
        let before_services = run.demand(Stage::Network, &is_local);
        // Some may be left to the network stage.
        let network = run.demand(Stage::Network, &|module| {
            !is_local(module) || matches!(module.before_services, BeforeServices::IfReady(_))
        });
        (before_services, network)
    }

    /// Whether the network stage has work besides its modules: reports to the source, logins and passwords that were left to it,
    /// boothooks, the source's files, or an instance that may have changed.
    fn network_stage_has_other_work(&self) -> bool {
        let instance = &self.done.instance;
        let source = source::named(&instance.source);
        source.is_some_and(|s| s.provisioned.is_some() || s.publish_host_keys.is_some())
            || self.root.exists(&state::waiting_logins(instance))
            || self.root.exists(RANDOM_PASSWORDS)
            || self.has_boothooks
            || provision::has_files_of_running_system(self.root, instance)
            || (!self.origin.is_read() && refresh::is_due(self.root, self.boot, instance))
    }

    /// Whether the final stage has work of its own: it ends a boot that changed something.
    fn final_stage_has_other_work(&mut self) -> bool {
        self.last.work != Work::None
            || self.done.has_changes
            || !self.origin.is_same()
            || !state::is_finished(self.root, &self.done.instance)
            || relabel::has_list(self.root)
            || close::is_left_to_final(self.boot.config())
            || Run::new(self.root, self.boot, &self.done.instance).has_background()
    }

    /// Has systemd skip a stage. It is done in status.json; the local stage is that already.
    fn skip(&mut self, status: &mut Status, stage: Stage, marks: String) -> Result<()> {
        self.root.write(&format!("{IDLE}/{}", stage.status_name()), marks, Attr::root(0o600))?;
        if stage != Stage::Local {
            status.begin(stage, uptime());
            status.end(stage, &Problems::new());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::document::{Value, yaml};
    use crate::instance::Frequency;
    use crate::machine::Machine;
    use crate::root::Use;
    use crate::stage::modules::Half;
    use crate::stage::rerun::boothooks_of;
    use crate::stage::testing;

    fn done(instance: Instance) -> Provisioned {
        Provisioned { instance, summary: String::new(), is_complete: true, has_changes: true }
    }

    /// The stages that are idle in a first boot of a Debian image with `config`, and whether the network is wanted.
    fn left(config: &str) -> (Vec<String>, bool) {
        let dir = TempDir::new("idle");
        for (path, text) in [
            ("etc/os-release", "ID=debian\n"),
            ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
            ("etc/shadow", "root:*:1::::::\n"),
            ("etc/group", "root:x:0:\n"),
            ("usr/bin/apt-get", ""),
            ("usr/lib/systemd/systemd", ""),
        ] {
            dir.write(path, text);
        }
        dir.program("usr/bin/dpkg");
        let mut root = dir.root(Use::NewRoot);
        let instance = Instance { instance_id: "i".into(), local_hostname: Some("one".into()), ..Instance::default() };
        let machine = Machine::default();
        let mut boot = testing::boot(&root, &machine);
        let Value::Map(mut merged) = boot.config().clone() else { panic!("the image's configuration is a mapping") };
        let Value::Map(own) = yaml::parse("t", config).unwrap() else { panic!("{config} is no mapping") };
        own.iter().for_each(|(key, value)| drop(merged.insert(key, value.clone())));
        boot.config = Some(Value::Map(merged).into());
        let mut run = Run::new(&mut root, &mut boot, &instance);
        Stage::WITH_MODULES.iter().for_each(|stage| run.stage(*stage, Half::BeforePivot));
        run.leave_before_services();
        let done = done(instance.clone());
        skip_idle(&mut root, &mut boot, &mut Status::new(), Origin::New, &done).unwrap();
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
    fn first_boot_waits_for_network_only_if_asked() {
        let idle = |config: &str, expected: &[&str], network: bool| {
            assert_eq!(left(config), (expected.iter().map(|name| (*name).to_owned()).collect(), network), "{config}");
        };
        // The root may grow, in the local stage.
        idle("{users: [{name: ada, ssh_authorized_keys: [ssh-ed25519 AAAA]}]}", &["init", "modules-config"], false);
        idle("{write_files: [{path: /a, content: b}], hostname: two}", &["init", "modules-config"], false);
        for config in [
            "mounts: [[sdb, /srv]]",
            "swap: {filename: /swap, size: 1M}",
            // The disk may appear after the local stage.
            "disk_setup: {vdb: {layout: true}}",
            "random_seed: {command: [a]}",
            "users: [{name: ada, snapuser: a@b.c}]",
            "chpasswd: {users: [{name: root, type: RANDOM}]}",
            "ssh_genkeytypes: [rsa]",
        ] {
            idle(config, &["modules-config"], false);
        }
        idle("locale: de_DE.UTF-8", &["init"], false);
        // Only the running system has these folders.
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
    fn stages_run_for_remaining_work_and_after_errors() {
        let idle = |prepare: &dyn Fn(&mut Root, &mut Boot, &mut Provisioned, &mut Origin)| {
            let dir = TempDir::new("demand-left");
            dir.write("usr/lib/systemd/systemd", "");
            let mut root = dir.root(Use::NewRoot);
            let machine = Machine::default();
            let mut boot = testing::boot_with(&root, &machine, "{}");
            let instance = Instance { instance_id: "i".into(), ..Instance::default() };
            let (mut done, mut origin) = (done(instance), Origin::New);
            prepare(&mut root, &mut boot, &mut done, &mut origin);
            skip_idle(&mut root, &mut boot, &mut Status::new(), origin, &done).unwrap();
            root.list(IDLE)
        };
        let left = |path: &str, root: &mut Root| root.write(path, "x\n", Attr::root(0o600)).unwrap();
        assert_eq!(idle(&|_, _, _, _| ()), ["init", "init-local", "modules-config"]);
        assert_eq!(idle(&|root, _, _, _| left(RANDOM_PASSWORDS, root)), ["init-local", "modules-config"]);
        let logins = idle(&|root, _, done, _| left(&state::waiting_logins(&done.instance), root));
        assert_eq!(logins, ["init-local", "modules-config"]);
        for (path, expected) in
            [("/tmp/a", &["init-local", "modules-config"][..]), ("etc/a", &["init", "init-local", "modules-config"])]
        {
            let files = idle(&|_, _, done, _| done.instance.files.push((path.into(), b"x".to_vec().into())));
            assert_eq!(files, expected, "{path}");
        }
        let settled = |root: &mut Root, done: &mut Provisioned, origin: &mut Origin| {
            left(&format!("{}/{}", state::folder(&done.instance), state::BOOT_FINISHED), root);
            state::store(root, &done.instance).unwrap();
            done.has_changes = false;
            *origin = Origin::Reread;
        };
        let none = ["init", "init-local", "modules-config", "modules-final"];
        assert_eq!(idle(&|root, _, done, origin| settled(root, done, origin)), none, "a second boot");
        let but_final = |prepare: &dyn Fn(&mut Root, &mut Boot, &mut Provisioned, &mut Origin)| {
            let idle = idle(&|root, boot, done, origin| {
                settled(root, done, origin);
                prepare(root, boot, done, origin);
            });
            assert_eq!(idle, none[..3]);
        };
        but_final(&|_, _, done, _| done.has_changes = true);
        but_final(&|_, _, _, origin| *origin = Origin::New);
        but_final(&|root, _, done, _| {
            root.remove(&format!("{}/{}", state::folder(&done.instance), state::BOOT_FINISHED)).unwrap();
        });
        // Its service is asked for what may have changed.
        let ec2 = idle(&|root, _, done, origin| {
            done.instance.source = "Ec2".into();
            settled(root, done, origin);
            *origin = Origin::Kept;
        });
        assert_eq!(ec2, ["init-local", "modules-config"]);
        but_final(&|root, _, _, _| left("/var/lib/cloud/data/previous-datasource", root));
        but_final(&|root, _, _, _| left("/var/lib/cloud/data/prepivot-unlabelled", root));
        for config in [
            "{cloud_final_modules: [final_message], final_message: done}",
            "{cloud_final_modules: [[final_message, always, done]]}",
            "{cloud_final_modules: [phone_home], phone_home: {url: 'http://x'}}",
            "{cloud_final_modules: [keys_to_console]}",
        ] {
            but_final(&|_, boot, _, _| boot.config = Some(yaml::parse("t", config).unwrap().into()));
        }
        assert_eq!(
            idle(&|root, boot, done, origin| {
                settled(root, done, origin);
                boot.config = Some(yaml::parse("t", "{cloud_final_modules: [final_message]}").unwrap().into());
            }),
            none
        );
        assert_eq!(idle(&|_, boot, _, _| boot.report.error("it failed")), [""; 0]);
        assert_eq!(idle(&|_, _, done, _| done.is_complete = false), [""; 0]);
    }

    #[test]
    fn network_stage_waits_for_network_before_commands() {
        let dir = TempDir::new("demand");
        dir.write("usr/lib/systemd/systemd", "");
        let mut root = dir.root(Use::NewRoot);
        let instance = Instance { instance_id: "i".into(), ..Instance::default() };
        let done = done(instance);
        let machine = Machine::default();
        for (wanted, config) in [(false, "{bootcmd: null}"), (true, "{bootcmd: [x]}"), (true, "{}")] {
            if config == "{}" {
                root.write(&format!("{}/part-001", boothooks_of(&done.instance)), "#!/bin/sh\n", Attr::root(0o700))
                    .unwrap();
            }
            let mut boot = testing::boot_with(&root, &machine, config);
            root.remove(COMMANDS_WAIT.0).unwrap();
            skip_idle(&mut root, &mut boot, &mut Status::new(), Origin::New, &done).unwrap();
            let text = root.text(COMMANDS_WAIT.0);
            let waits = ["Wants=network-online.target\n", "After=", " NetworkManager-wait-online.service "];
            assert!(waits.iter().all(|w| text.contains(w) == wanted), "{text}");
        }
    }
}
