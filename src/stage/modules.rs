//! Runs the modules of a stage: which ones, in what order, how often.

use super::again::{Before, has_early_commands};
use super::boot::Boot;
use super::commit;
use crate::base::deprecated;
use crate::base::error::Result;
use crate::base::event::Event;
use crate::base::report::Report;
use crate::document::Value;
use crate::instance::Frequency;
use crate::instance::{Instance, state};
use crate::module::{self, Background, Handler, Module, Role};
use crate::root::run_dir::FileHalf;
use crate::root::{Attr, Root, Stage, run_dir};
use crate::system::{Context, service};

/// A run of modules for one instance.
pub struct Run<'a, 'b> {
    root: &'a mut Root,
    boot: &'a mut Boot<'b>,
    instance: &'a Instance,
    /// The file halves that ran, and what each depends on. None: not recorded.
    noted: Option<Vec<FileHalf>>,
    /// The file halves that may have to run again after the user's early commands.
    before: Before,
}

/// Which half of a module runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// The file half: writes files only, before the pivot.
    Provision,
    /// The live half: needs the running system.
    Live,
}

/// What work a stage has in the running system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    None,
    /// Work that needs no network.
    Local,
    /// Work that may need the network.
    Remote,
}

/// Which work the live halves of a stage have.
pub struct Demand {
    pub work: Work,
    /// The marks of modules that are due but have nothing to do.
    idle: Vec<(String, Frequency)>,
}

impl Demand {
    /// The lines that [`Run::mark_idle`] reads: one for each mark that outlives the boot.
    pub fn marks(&self) -> String {
        let lasting = self.idle.iter().filter(|(_, frequency)| *frequency != Frequency::Always);
        lasting.map(|(mark, frequency)| format!("{mark} {}\n", frequency.name())).collect()
    }
}

/// An entry of a stage's module list.
struct Entry {
    module: &'static Module,
    frequency: Frequency,
    args: Vec<String>,
}

/// Parses `- name`, `- [name, frequency, args…]` or `- {name:, frequency:, args:}` (cloud-init's module
/// list). Entries that cannot run are reported in one half only.
fn entry(value: &Value, half: Half, report: &mut Report) -> Option<Entry> {
    let name = name_of(value)?;
    let (frequency, args) = match value {
        Value::List(list) => {
            let args = list.iter().skip(2).filter_map(Value::text).collect();
            (list.get(1).and_then(Value::text), args)
        }
        Value::Map(map) => {
            let args = map.get("args").and_then(Value::as_list).unwrap_or_default();
            (map.get("frequency").and_then(Value::text), args.iter().filter_map(Value::text).collect())
        }
        _ => (None, Vec::new()),
    };
    let Some(module) = module::find(&name) else {
        if half == Half::Provision && module::is_removed(&name) {
            log::info!("module {name} was removed from cloud-init: its name is ignored");
        } else if half == Half::Provision {
            report.warn(format_args!("Could not find module named {name}"));
        }
        return None;
    };
    let frequency = frequency.as_deref().map(str::trim).filter(|word| !word.is_empty());
    if let Some(word) = frequency.filter(|word| Frequency::named(word).is_none()) {
        report.deprecated(deprecated::FREQUENCY.about(&format!("{name} has an unknown frequency {word}")));
    }
    if let Some(names) = module::renamed(&name) {
        report.deprecated(deprecated::RENAMED.about(&names));
    }
    Some(Entry { module, frequency: frequency.and_then(Frequency::named).unwrap_or(module.frequency), args })
}

/// The module that an entry of a list names.
fn name_of(entry: &Value) -> Option<String> {
    match entry {
        Value::List(list) => list.first()?.text(),
        Value::Map(map) => map.get("name")?.text(),
        name => name.as_str().map(str::to_owned),
    }
}

impl<'a, 'b> Run<'a, 'b> {
    /// A run with the merged configuration of `boot`, to whose report problems are added.
    pub fn new(root: &'a mut Root, boot: &'a mut Boot<'b>, instance: &'a Instance) -> Self {
        Run { root, boot, instance, noted: None, before: Before::default() }
    }

    /// Records every file half in `noted`, if that is Some.
    pub fn noting(self, noted: Option<Vec<FileHalf>>) -> Self {
        Run { noted, ..self }
    }

    /// The file halves that ran, if they were recorded.
    pub fn into_noted(self) -> Option<Vec<FileHalf>> {
        self.noted
    }

    /// Runs the file halves of `before` again after the user's early commands, where those changed what they
    /// depend on.
    pub fn after(self, before: Before) -> Self {
        Run { before, ..self }
    }

    /// Runs one half of the modules in a stage's list, in order. One that fails is an error of the report;
    /// the others still run.
    pub fn stage(&mut self, stage: Stage, half: Half) {
        let is_network_stage = (stage, half) == (Stage::Init, Half::Live);
        let early = if is_network_stage { self.root.text(run_dir::EARLY) } else { String::new() };
        let may_be_early = (stage, half) == (Stage::Init, Half::Provision) && self.nothing_comes_first();
        let entries = self.entries(stage, half);
        if half == Half::Live {
            self.log_skipped(&entries);
        }
        // Without such a module, the only early commands are boothooks, which have run already.
        let commands = entries.iter().position(|e| e.module.runs_commands).filter(|_| half == Half::Live);
        if commands.is_none() {
            self.files_again();
        }
        for (at, entry) in entries.iter().enumerate() {
            let is_its_time = match half {
                Half::Provision => !entry.module.early || may_be_early,
                Half::Live => !early.lines().any(|name| name == entry.module.name),
            };
            if is_its_time {
                self.one(entry, stage, half);
            }
            if commands == Some(at) {
                self.files_again();
            }
        }
        if !early.is_empty() && early != run_dir::EARLY_DUE {
            self.boot.report.keep(self.root.remove(run_dir::EARLY));
        }
    }

    /// Runs those file halves again that depend on what the user's commands changed.
    fn files_again(&mut self) {
        let mut before = std::mem::take(&mut self.before);
        let stages = if before.is_empty() { &[][..] } else { &Stage::ALL };
        if !stages.is_empty() {
            commit(self.root, &mut self.boot.report);
        }
        for &stage in stages {
            for entry in self.entries(stage, Half::Live) {
                let module = entry.module;
                let Some(half) = before.take_changed(self.root, module.name) else { continue };
                let Some(handler) = module.provision else { continue };
                // Its warnings were reported in the first run.
                let known = std::mem::take(&mut self.boot.report);
                let done = self.with_context(stage, &entry.args, true, handler);
                self.boot.report = known;
                match done {
                    Ok(()) if !half.error.is_empty() => self.boot.withdrawn.push(half.error),
                    Ok(()) => {}
                    Err(e) => self.boot.report.error(format_args!("module {} failed: {e}", module.name)),
                }
                self.boot.log();
                commit(self.root, &mut self.boot.report);
            }
        }
        let ended = before.end(self.root);
        self.boot.report.keep(ended);
    }

    /// The entries of a stage's list.
    fn entries(&mut self, stage: Stage, half: Half) -> Vec<Entry> {
        let (config, report) = self.boot.config_and_report();
        let list = config.get(module::list_key(stage)).and_then(Value::as_list).unwrap_or_default();
        let entries = list.iter().filter_map(|v| entry(v, half, report)).collect();
        self.boot.log();
        entries
    }

    /// Whether none of the user's commands runs before the network stage's modules: one may prepare what they
    /// find, for example reserve space for a partition.
    fn nothing_comes_first(&self) -> bool {
        !has_early_commands(self.root, self.boot, self.instance)
    }

    /// Has the real root's local stage run the early modules, now that the configuration is complete.
    pub fn leave_early(&mut self) {
        if self.root.has_run() && self.nothing_comes_first() {
            let left = self.root.write(run_dir::EARLY, run_dir::EARLY_DUE, Attr::root(0o600));
            self.boot.report.keep(left);
        }
    }

    /// Runs the early modules of the network stage's list in the local stage of the real root.
    pub fn early(&mut self) {
        let mut done = String::new();
        for entry in self.entries(Stage::Init, Half::Live) {
            let module = entry.module;
            let is_done = || state::is_done(self.root, self.instance, &mark(module, Half::Live), entry.frequency);
            let is_due = self.is_requested(module) && !is_done();
            if let Some(soon) = module.soon.filter(|_| is_due)
                && !module.idle.is_some_and(|idle| self.with_context(Stage::Init, &entry.args, false, idle))
            {
                self.call(soon, module, entry.frequency, Stage::Init, &entry.args);
            }
            if !module.early {
                continue;
            }
            let ready = module.is_ready.filter(|_| is_due);
            if ready.is_some_and(|is_ready| !self.with_context(Stage::Init, &entry.args, false, is_ready)) {
                log::info!("{} is left to the network stage: not all that it needs is there", module.name);
                break;
            }
            self.one(&entry, Stage::Init, Half::Live);
            done += module.name;
            done.push('\n');
        }
        let done = self.root.write(run_dir::EARLY, done, Attr::root(0o600));
        self.boot.report.keep(done);
    }

    /// What work the live halves of a stage's modules have in this boot. Only the modules for which `counts`
    /// returns true are considered.
    pub fn demand(&mut self, stage: Stage, counts: &dyn Fn(&Module) -> bool) -> Demand {
        let config = self.boot.config();
        let list = config.get(module::list_key(stage)).and_then(Value::as_list).unwrap_or_default();
        // Entries that cannot run were reported already.
        let entries: Vec<Entry> = list.iter().filter_map(|v| entry(v, Half::Live, &mut Report::new())).collect();
        let mut demand = Demand { work: Work::None, idle: Vec::new() };
        for Entry { module, frequency, args } in entries {
            let mark = mark(module, Half::Live);
            let is_done = || state::is_done(self.root, self.instance, &mark, frequency);
            if !counts(module) || module.live.is_none() || !self.is_requested(module) || is_done() {
                continue;
            }
            if module.idle.is_some_and(|idle| self.with_context(stage, &args, false, idle)) {
                demand.idle.push((mark, frequency));
            } else if !module.offline {
                demand.work = Work::Remote;
            } else if demand.work == Work::None {
                demand.work = Work::Local;
            }
        }
        demand
    }

    /// Marks the modules as done that skipped stages would have found idle, so that a later configuration
    /// does not run them.
    pub fn mark_idle(&mut self) {
        for name in self.root.list(run_dir::IDLE) {
            let path = format!("{}/{name}", run_dir::IDLE);
            for (mark, frequency) in self.root.text(&path).lines().filter_map(|line| line.split_once(' ')) {
                if let Some(frequency) = Frequency::named(frequency) {
                    let marked = state::mark_done(self.root, self.instance, mark, frequency);
                    self.boot.report.keep(marked);
                }
            }
        }
    }

    /// The modules' background work that has not been done for this instance: module, work, mark.
    fn left_to_background(&self) -> Vec<(&'static Module, Background, String)> {
        let modules = module::MODULES.iter().filter_map(|module| Some((*module, module.in_background?)));
        modules
            .map(|(module, work)| (module, work, format!("config_{}.end", module.name)))
            .filter(|(module, _, mark)| {
                let is_done = || state::is_done(self.root, self.instance, mark, Frequency::Instance);
                self.is_listed(module) && self.is_requested(module) && !is_done()
            })
            .collect()
    }

    /// Whether [`Run::background`] has anything to do.
    pub fn has_background(&mut self) -> bool {
        let left = self.left_to_background();
        left.iter().any(|(_, work, _)| !self.with_context(Stage::Final, &[], false, work.idle))
    }

    /// Does the modules' background work.
    pub fn background(&mut self) {
        for (module, work, mark) in self.left_to_background() {
            self.call(work.run, module, Frequency::Instance, Stage::Final, &[]);
            let marked = state::mark_done(self.root, self.instance, &mark, Frequency::Instance);
            self.boot.report.keep(marked.map_err(|e| e.context(module.name)));
        }
    }

    /// Whether the list of any stage names the module.
    pub fn is_listed(&self, module: &Module) -> bool {
        [Stage::Init, Stage::Config, Stage::Final].iter().any(|stage| {
            let list = self.boot.config().get(module::list_key(*stage)).and_then(Value::as_list).unwrap_or_default();
            list.iter()
                .any(|entry| name_of(entry).is_some_and(|n| module::find(&n).is_some_and(|m| m.name == module.name)))
        })
    }

    /// Runs one half of a module, if it has that half and is requested.
    fn one(&mut self, entry: &Entry, stage: Stage, half: Half) {
        let module = entry.module;
        let handler = match half {
            Half::Provision => module.provision,
            Half::Live => module.live,
        };
        let Some(handler) = handler else { return };
        if self.is_requested(module) {
            self.call_if_due(handler, module, half, stage, entry.frequency, &entry.args);
        }
    }

    /// Runs one half of a module and marks it as done, unless it has already run at its frequency.
    fn call_if_due(
        &mut self,
        handler: Handler,
        module: &Module,
        half: Half,
        stage: Stage,
        frequency: Frequency,
        args: &[String],
    ) {
        let mark = mark(module, half);
        if state::is_done(self.root, self.instance, &mark, frequency) {
            // Not logged for the file half, which may have run a moment ago.
            if half == Half::Live {
                Event::ran_before(module.name, frequency.name());
            }
            return;
        }
        let noted = self.noted.is_some() && half == Half::Provision;
        if noted {
            self.root.watch();
        }
        let mut error = None;
        if module.repeats {
            error = self.call(handler, module, frequency, stage, args);
        }
        let marked = state::mark_done(self.root, self.instance, &mark, frequency);
        let is_marked = self.boot.report.keep(marked.map_err(|e| e.context(module.name))).is_some();
        if is_marked && !module.repeats {
            error = self.call(handler, module, frequency, stage, args);
        }
        if let Some(list) = self.noted.as_mut().filter(|_| noted) {
            let (paths, error) = (self.root.take_watched(), error.unwrap_or_default());
            list.push(FileHalf { module: module.name.into(), paths, error });
        }
    }

    /// Logs in cloud-init's words which modules of a list are skipped, and why: tools look for these lines.
    fn log_skipped(&self, entries: &[Entry]) {
        let names = |skipped: &dyn Fn(&Module) -> bool| {
            let names: Vec<&str> = entries.iter().map(|e| e.module).filter(|m| skipped(m)).map(|m| m.name).collect();
            Some(names.join(",")).filter(|names| !names.is_empty())
        };
        if let Some(names) = names(&|m| !self.has_key(m)) {
            log::info!("Skipping modules '{names}' because no applicable config is provided.");
        }
        if let Some(names) = names(&|m| self.has_key(m) && !self.is_requested(m)) {
            let distro = self.boot.image.distro.name;
            log::info!(
                "Skipping modules '{names}' because they are not verified on distro '{distro}'.  To run anyway, add them to \
                 'unverified_modules' in config."
            );
        }
    }

    fn has_key(&self, module: &Module) -> bool {
        module.keys.is_empty() || module.keys.iter().any(|k| self.boot.config().get(k).is_some())
    }

    /// Whether the cloud-config has a key of the module, and the module is for this distribution.
    fn is_requested(&self, module: &Module) -> bool {
        let unverified = || {
            let list = self.boot.config().get("unverified_modules").and_then(Value::as_list).unwrap_or_default();
            list.iter().filter_map(Value::as_str).any(|name| module::find(name).is_some_and(|m| m.name == module.name))
        };
        self.has_key(module)
            && (module.distros.is_empty() || module.distros.contains(&self.boot.image.distro.name) || unverified())
    }

    /// Calls one half of a module. A failure is added to the report and returned.
    fn call(
        &mut self,
        handler: Handler,
        module: &Module,
        frequency: Frequency,
        stage: Stage,
        args: &[String],
    ) -> Option<String> {
        if module.is_left_out() && module.idle.is_some_and(|idle| self.with_context(stage, args, false, idle)) {
            return None;
        }
        let (name, how) = (module.name, frequency.name());
        log::debug!("Running module {name} (cc_{name}) with frequency {how}");
        let mut event = Event::module(name, how);
        let error = self.with_context(stage, args, false, handler).err();
        let error = error.map(|e| format!("module {} failed: {e}", module.name));
        if let Some(error) = &error {
            event.fail();
            self.boot.report.error(error);
        }
        self.boot.log();
        error
    }

    /// Calls `of` with a module's context.
    fn with_context<T>(&mut self, stage: Stage, args: &[String], again: bool, of: fn(&mut Context) -> T) -> T {
        let (root, instance) = (&mut *self.root, self.instance);
        let (distro, outside, retried) = (self.boot.image.distro, self.boot.outside, self.boot.retried);
        let (config, report) = self.boot.config_and_report();
        let context = Context::new(root, config, instance, &distro, report);
        let mut context = Context { args, stage, outside, again, retried, ..context };
        let result = of(&mut context);
        let shown = std::mem::take(&mut context.shown);
        self.boot.shown.extend(shown);
        result
    }

    /// Waits for the network, for what the network stage itself does.
    pub fn await_network(&mut self) {
        self.with_context(Stage::Init, &[], false, service::wait_for_network);
    }

    /// Writes the hostname before anything else, for a boot whose modules wait for remote user-data: network
    /// programs report the hostname to others.
    pub fn hostname(&mut self) {
        let module = module::with_role(Role::Hostname);
        if let Some((module, handler)) = module.and_then(|m| Some((m, m.provision?))) {
            self.call(handler, module, Frequency::Always, Stage::Init, &[]);
        }
    }

    /// Writes SSH keys that arrived after the module ssh ran, if a list names it.
    pub fn logins(&mut self) {
        let module = module::with_role(Role::Ssh).filter(|ssh| self.is_listed(ssh));
        if let Some((module, handler)) = module.and_then(|m| Some((m, m.live?))) {
            self.call(handler, module, Frequency::Always, Stage::Init, &[]);
        }
    }

    /// Whether a list names the module that sets passwords.
    pub fn lists_passwords(&self) -> bool {
        module::with_role(Role::Passwords).is_some_and(|module| self.is_listed(module))
    }

    /// Sets passwords again. Returns the error.
    pub fn set_passwords(&mut self) -> Option<String> {
        let (module, handler) = module::with_role(Role::Passwords).and_then(|m| Some((m, m.provision?)))?;
        self.call(handler, module, Frequency::Always, Stage::Init, &[])
    }

    /// `cloud-init single`: both halves of one module, whether or not its keys are there.
    pub fn single(&mut self, module: &'static Module, frequency: Option<Frequency>, args: &[String]) {
        for (half, handler) in [(Half::Provision, module.provision), (Half::Live, module.live)] {
            let Some(handler) = handler else { continue };
            self.call_if_due(handler, module, half, module.stage, frequency.unwrap_or(module.frequency), args);
        }
    }
}

/// Stores the instance. If its service brings a password that the stored one does not have, passwords are set again: the service is
/// notified that the machine has it ([`crate::source::Source::provisioned`]).
///
/// # Errors
/// A path cannot be resolved.
pub fn store(root: &mut Root, instance: &Instance) -> Result<()> {
    let password = |of: &Instance| of.config.get("password").cloned();
    let brought = password(instance).filter(|_| instance.from_network);
    let is_new = brought.is_some() && state::cached(root).is_none_or(|stored| password(&stored) != brought);
    if let Some(module) = module::with_role(Role::Passwords).filter(|_| is_new) {
        for half in [Half::Provision, Half::Live] {
            state::mark_due(root, instance, &mark(module, half), Frequency::Instance)?;
        }
    }
    state::store(root, instance)
}

/// The semaphore's name: cloud-init's for a module with one half, and a second one for the live half of a
/// module with two.
fn mark(module: &Module, half: Half) -> String {
    let second = half == Half::Live && module.provision.is_some();
    format!("config_{}{}", module.name, if second { ".live" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::document::yaml;
    use crate::drive::devices::Places;
    use crate::machine::Machine;
    use crate::module::fake_disks::Disks;
    use crate::root::{Command, Use};
    use crate::stage::Options;
    use crate::system::Nothing;

    /// A program that makes RSA keys, as far as its name says.
    fn add_ssh_keygen(dir: &TempDir) {
        dir.write("usr/bin/ssh-keygen", "");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir.0.join("usr/bin/ssh-keygen"), mode).unwrap();
    }

    #[test]
    fn the_rsa_host_key_is_made_in_the_background_whatever_the_final_list_has() {
        let made = |config: &str| {
            let dir = TempDir::new("at-end");
            add_ssh_keygen(&dir);
            let mut root = Root::open(&dir.0, Use::Tree).unwrap();
            let instance = Instance { instance_id: "i".into(), ..Instance::default() };
            let machine = Machine::default();
            let mut boot = Boot::new(&root, &machine, &Options::default(), &Nothing);
            boot.config = Some(yaml::parse("t", config).unwrap().into());
            let mut had = Vec::new();
            for _ in 0..2 {
                let mut run = Run::new(&mut root, &mut boot, &instance);
                run.stage(Stage::Final, Half::Live);
                had.push(run.has_background());
                run.background();
            }
            assert_eq!(boot.errors(), [""; 0]);
            let of = |c: &&Command| c.argv.join(" ").starts_with("ssh-keygen -q -t rsa");
            let made = root.commands().iter().filter(of).count();
            // A process is started for what is to be made alone.
            assert_eq!(had, [made > 0, false]);
            made
        };
        assert_eq!(made("{cloud_init_modules: [[ssh, always]], cloud_final_modules: [runcmd]}"), 1);
        assert_eq!(made("{cloud_init_modules: [cc_ssh], cloud_final_modules: [], ssh_genkeytypes: [ed25519]}"), 0);
        assert_eq!(made("{cloud_init_modules: [users_groups]}"), 0);
    }

    #[test]
    fn an_rsa_key_that_was_made_after_the_keys_were_printed_is_printed_in_the_background() {
        let dir = TempDir::new("printed-without");
        add_ssh_keygen(&dir);
        let mut root = Root::open(&dir.0, Use::Tree).unwrap();
        let instance = Instance { instance_id: "i".into(), ..Instance::default() };
        let machine = Machine::default();
        let mut boot = Boot::new(&root, &machine, &Options::default(), &Nothing);
        boot.config = Some(yaml::parse("t", "{cloud_final_modules: [keys_to_console]}").unwrap().into());
        let mut run = Run::new(&mut root, &mut boot, &instance);
        run.stage(Stage::Final, Half::Live);
        // No list names ssh, which would make it.
        assert!(!run.has_background());
        run.root.write("/etc/ssh/ssh_host_rsa_key", "", Attr::root(0o600)).unwrap();
        run.root.write("/etc/ssh/ssh_host_rsa_key.pub", "ssh-rsa AAAA root@h\n", Attr::root(0o644)).unwrap();
        assert!(run.has_background());
        run.background();
        assert!(!run.has_background());

        // It was there when the keys were printed.
        let instance = Instance { instance_id: "j".into(), ..Instance::default() };
        let mut run = Run::new(&mut root, &mut boot, &instance);
        run.stage(Stage::Final, Half::Live);
        assert!(!run.has_background());
        assert_eq!(boot.errors(), [""; 0]);
    }

    #[test]
    fn a_password_that_the_service_brings_later_is_set() {
        let dir = TempDir::new("later-password");
        dir.write("etc/passwd", "a:x:1:1::/:/bin/sh\n");
        dir.write("etc/shadow", "a:!:1:0:99999:7:::\n");
        let mut root = Root::open(&dir.0, Use::Tree).unwrap();
        let machine = Machine::default();
        let mut is_set = |password: &str, from_network| {
            let config = yaml::parse("t", &format!("{{chpasswd: {{expire: false}}, {password}}}")).unwrap();
            let instance = Instance { instance_id: "i".into(), config, from_network, ..Instance::default() };
            store(&mut root, &instance).unwrap();
            let mut boot = Boot::new(&root, &machine, &Options::default(), &Nothing);
            let config = format!(
                "{{cloud_init_modules: [set_passwords], system_info: {{default_user: {{name: a}}}}, users: [default], {password}}}"
            );
            boot.config = Some(yaml::parse("t", &config).unwrap().into());
            Run::new(&mut root, &mut boot, &instance).stage(Stage::Init, Half::Provision);
            assert_eq!(boot.errors(), [""; 0]);
            let shadow = root.text("/etc/shadow");
            // The user sets another.
            root.write("/etc/shadow", "a:!:1:0:99999:7:::\n", Attr::root(0o640)).unwrap();
            let word = password.trim_start_matches("password: ");
            crate::system::password::verify(word, shadow.split(':').nth(1).unwrap_or_default())
        };
        assert!(!is_set("ssh_pwauth: false", true));
        assert!(is_set("password: one", true));
        assert!(!is_set("password: one", true));
        assert!(!is_set("password: of-a-drive", false));
        assert!(is_set("password: two", true));
    }

    /// What the network stage's modules run, in a tree: with `early`, after the local stage has run those that come early.
    fn ran(config: &str, early: bool) -> (Vec<String>, bool) {
        let dir = TempDir::new("early");
        std::fs::create_dir_all(dir.0.join("proc/self")).unwrap();
        std::fs::create_dir_all(dir.0.join("dev")).unwrap();
        std::fs::write(dir.0.join("dev/vda"), "").unwrap();
        std::fs::write(dir.0.join("proc/self/mounts"), "gpt/root / ext4 rw 0 0\n").unwrap();
        let mut root = Root::open(&dir.0, Use::Tree).unwrap();
        let instance = Instance { instance_id: "i".into(), ..Instance::default() };
        let machine = Machine::default();
        let mut boot = Boot::new(&root, &machine, &Options::default(), &Nothing);
        boot.config = Some(yaml::parse("t", config).unwrap().into());
        let mut run = Run::new(&mut root, &mut boot, &instance);
        let may_be_early = run.nothing_comes_first();
        if early {
            run.early();
        }
        run.stage(Stage::Init, Half::Live);
        assert_eq!(boot.errors(), [""; 0]);
        (root.commands().iter().map(|c| c.argv.join(" ")).collect(), may_be_early)
    }

    #[test]
    fn what_ran_early_runs_no_second_time_and_never_before_the_users_commands() {
        let list = "cloud_init_modules: [bootcmd, growpart, resizefs]";
        assert_eq!(ran(&format!("{{{list}}}"), true), (vec!["resize2fs gpt/root".into()], true));
        assert_eq!(ran(&format!("{{{list}}}"), false), (vec!["resize2fs gpt/root".into()], true));
        let (commands, may_be_early) = ran(&format!("{{{list}, bootcmd: [sgdisk -n 0 /dev/vda]}}"), false);
        assert!(!may_be_early && commands.len() == 2, "{commands:?}");
        assert_eq!(ran("{cloud_init_modules: [growpart]}", true).0, [""; 0]);
    }

    #[test]
    fn a_disk_that_is_not_there_in_the_local_stage_is_left_to_the_network_stage() {
        let dir = TempDir::new("early-disks");
        let mut root = Root::open(&dir.0, Use::Tree).unwrap();
        let instance = Instance { instance_id: "i".into(), ..Instance::default() };
        let machine = Machine::default();
        let disks = Disks(Places { sys: dir.0.join("sys/class/block"), dev: dir.0.join("dev") });
        let mut boot = Boot::new(&root, &machine, &Options::default(), &disks);
        let config =
            "{cloud_init_modules: [resizefs, disk_setup, mounts], mounts: [[tmpfs, /t, tmpfs]], resize_rootfs: false,
            disk_setup: {vdb: {layout: false}}}";
        boot.config = Some(yaml::parse("t", config).unwrap().into());
        let is_done = |root: &Root| state::is_done(root, &instance, "config_disk_setup", Frequency::Instance);

        Run::new(&mut root, &mut boot, &instance).early();
        assert_eq!((root.text(run_dir::EARLY).as_str(), is_done(&root)), ("resizefs\n", false));
        assert!(!root.exists("/etc/fstab"), "what comes after it is left, too");

        dir.write("sys/class/block/vdb/size", "8");
        dir.write("dev/vdb", "");
        Run::new(&mut root, &mut boot, &instance).early();
        assert_eq!((root.text(run_dir::EARLY).as_str(), is_done(&root)), ("resizefs\ndisk_setup\n", true));
        assert!(root.exists("/etc/fstab"));
        assert!(!state::is_done(&root, &instance, "config_mounts.live", Frequency::Instance));

        let mut run = Run::new(&mut root, &mut boot, &instance);
        run.stage(Stage::Init, Half::Live);
        assert!(!root.exists(run_dir::EARLY));
        assert!(state::is_done(&root, &instance, "config_mounts.live", Frequency::Instance));
        assert_eq!(boot.errors(), [""; 0]);
    }

    #[test]
    fn a_module_runs_as_often_as_its_entry_says() {
        let runs = |entry: &str| {
            let dir = TempDir::new("often");
            let mut root = Root::open(&dir.0, Use::Tree).unwrap();
            let machine = Machine::default();
            for id in ["i-1", "i-1", "i-2"] {
                let instance = Instance { instance_id: id.into(), ..Instance::default() };
                let mut boot = Boot::new(&root, &machine, &Options::default(), &Nothing);
                let config = format!("{{cloud_init_modules: [{entry}], bootcmd: [a]}}");
                boot.config = Some(yaml::parse("t", &config).unwrap().into());
                Run::new(&mut root, &mut boot, &instance).stage(Stage::Init, Half::Live);
                assert_eq!(boot.errors(), [""; 0]);
            }
            let mode = root.stat("/run/cloud-init/bootcmd.sh").unwrap().attr.mode;
            assert_eq!(mode, 0o700, "commands can hold secrets");
            root.commands().len()
        };
        assert_eq!(["bootcmd", "[bootcmd, null]", "[bootcmd, once-per-instance]"].map(runs), [3, 3, 2]);
        assert_eq!(["[bootcmd, once]", "{name: bootcmd, frequency: once}", "[bootcmd, weekly]"].map(runs), [1, 1, 3]);
    }

    #[test]
    fn entries_have_arguments_and_wrong_ones_are_reported_once() {
        let read = |text: &str, half| {
            let mut report = Report::new();
            let found = entry(&yaml::parse("t", text).unwrap(), half, &mut report);
            (found.map(|e| (e.module.name, e.args.join(" "))), report.entries().len())
        };
        for (text, args) in [("[runcmd, always, a, 5]", "a 5"), ("{name: runcmd, args: [a, b]}", "a b"), ("runcmd", "")]
        {
            assert_eq!(read(text, Half::Provision), (Some(("runcmd", args.to_owned())), 0), "{text}");
        }
        assert_eq!(read("no_such_module", Half::Provision), (None, 1));
        assert_eq!(read("no_such_module", Half::Live), (None, 0));
        assert_eq!(read("[runcmd, weekly]", Half::Provision), (Some(("runcmd", String::new())), 1));
        assert_eq!(read("5", Half::Provision), (None, 0));
    }

    #[test]
    fn modules_log_what_tools_look_for() {
        let dir = TempDir::new("modules-lines");
        let mut root = Root::open(&dir.0, Use::Tree).unwrap();
        let instance = Instance { instance_id: "i".into(), ..Instance::default() };
        let machine = Machine::default();
        let mut boot = Boot::new(&root, &machine, &Options::default(), &Nothing);
        let config = "{no_ssh_fingerprints: true, final_message: \"one\\ntwo\"}";
        boot.config = Some(yaml::parse("t", config).unwrap().into());
        let messages = crate::base::logging::capture(|| {
            for name in ["ssh_authkey_fingerprints", "final_message"] {
                let module = module::find(name).unwrap();
                Run::new(&mut root, &mut boot, &instance).single(module, Some(Frequency::Always), &[]);
            }
        });
        for text in [
            "Running module ssh_authkey_fingerprints (cc_ssh_authkey_fingerprints) with frequency always",
            "Skipping module named ssh_authkey_fingerprints, logging of SSH fingerprints disabled",
            "Running module final_message (cc_final_message) with frequency always",
            "one\ntwo",
        ] {
            assert!(messages.iter().any(|message| message.text == text), "{text}");
        }
    }

    #[test]
    fn a_module_of_other_distributions_runs_only_where_that_is_asked_for() {
        let dir = TempDir::new("unverified");
        dir.write("etc/os-release", "ID=debian\n");
        let mut root = Root::open(&dir.0, Use::Tree).unwrap();
        let instance = Instance { instance_id: "i".into(), ..Instance::default() };
        let machine = Machine::default();
        let module = module::find("apk_configure").unwrap();
        for (config, wanted) in [
            ("{apk_repos: {}}", false),
            ("{apk_repos: {}, unverified_modules: [apk_configure]}", true),
            ("{apk_repos: {}, unverified_modules: [apk-configure]}", true),
            ("{apk_repos: {}, unverified_modules: [byobu, 5]}", false),
            ("{unverified_modules: [apk_configure]}", false),
        ] {
            let mut boot = Boot::new(&root, &machine, &Options::default(), &Nothing);
            boot.config = Some(yaml::parse("t", config).unwrap().into());
            assert_eq!(Run::new(&mut root, &mut boot, &instance).is_requested(module), wanted, "{config}");
        }
    }

    #[test]
    fn a_file_system_is_marked_as_made_when_it_is() {
        let dir = TempDir::new("marks");
        let mut root = Root::open(&dir.0, Use::Tree).unwrap();
        let instance = Instance { instance_id: "i".into(), ..Instance::default() };
        let machine = Machine::default();
        let mut boot = Boot::new(&root, &machine, &Options::default(), &Nothing);
        boot.config = Some(yaml::parse("t", "{x: 1}").unwrap().into());
        let is_marked = |cx: &mut Context| {
            let names = cx.root.list(&format!("{}/sem", cx.instance_dir()));
            cx.report.error(names.join(" "));
            Ok(())
        };
        for repeats in [true, false] {
            let module = Module { name: "x", keys: &["x"], live: Some(is_marked), repeats, ..Module::NEW };
            let mut run = Run::new(&mut root, &mut boot, &instance);
            for _ in 0..2 {
                run.call_if_due(is_marked, &module, Half::Live, Stage::Init, Frequency::Instance, &[]);
            }
            assert!(root.exists("/var/lib/cloud/instances/i/sem/config_x"));
            root.remove("/var/lib/cloud/instances/i/sem/config_x").unwrap();
        }
        assert_eq!(boot.errors(), ["", "config_x"]);
        let repeated: Vec<&str> = module::MODULES.iter().filter(|m| m.repeats).map(|m| m.name).collect();
        assert_eq!(repeated, ["disk_setup", "mounts"]);
    }
}
