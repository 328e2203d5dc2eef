//! cloud-init runs the user's early commands (boothooks and bootcmd) before every module. Here the file
//! halves of the modules run before the pivot, ahead of those commands; a file half runs again if the
//! commands changed a path that it read or wrote.

use super::boot::Boot;
use super::commit;
use crate::base::error::Result;
use crate::instance::{Frequency, Instance, state};
use crate::module::{MODULES, Module, find};
use crate::root::run_dir::{FileHalf, FileHalves, Record};
use crate::root::{Attr, PathState, Root};

/// The folder of the instance's boothooks.
pub fn boothooks_of(instance: &Instance) -> String {
    format!("{}/boothooks", state::folder(instance))
}

/// Whether the instance has boothooks, which run on every boot.
pub fn has_boothooks(root: &Root, instance: &Instance) -> bool {
    !root.list(&boothooks_of(instance)).is_empty()
}

/// Whether this boot runs boothooks, or a module that runs the user's commands
/// ([`crate::module::Module::runs_commands`]).
pub fn has_early_commands(root: &Root, boot: &Boot, instance: &Instance) -> bool {
    let is_set = |key: &&str| boot.config().get(key).is_some_and(|v| !v.is_null());
    MODULES.iter().any(|m| m.runs_commands && m.keys.iter().any(is_set)) || has_boothooks(root, instance)
}

/// Exists if file halves that later boots skip have run, but not yet all of the user's early commands. It is in the
/// instance's folder, because the next boot cannot see what the commands changed before a power cut.
fn due(instance: &Instance) -> String {
    format!("{}/prepivot-early-commands", state::folder(instance))
}

fn is_lasting(half: &FileHalf) -> bool {
    find(&half.module).is_some_and(|module| module.frequency != Frequency::Always)
}

/// Leaves the file halves that ran before the user's early commands for [`Before::look`].
///
/// # Errors
/// As [`Root::write`].
pub fn note(root: &mut Root, instance: &Instance, halves: Vec<FileHalf>) -> Result<()> {
    if halves.iter().any(is_lasting) {
        root.write(&due(instance), "", Attr::root(0o600))?;
    }
    FileHalves { halves }.write(root)
}

/// The file halves that ran before the user's early commands.
#[derive(Default)]
pub struct Before {
    /// Each with the state of the paths that it depends on. None for a boot that was cut off: its halves run again in
    /// any case.
    halves: Vec<(FileHalf, Option<Vec<PathState>>)>,
    /// The file of [`due`], removed when the commands have ended. Empty if there is none.
    due: String,
    /// Whether boothooks changed the image's configuration: all of the file halves run again.
    pub has_other_configuration: bool,
}

impl Before {
    /// Records the state of the paths that this boot's file halves depend on. Called in the network stage,
    /// before the first early command.
    pub fn look(root: &mut Root, boot: &mut Boot, instance: &Instance) -> Before {
        let mut before = Before::default();
        let noted = FileHalves::read(root).map_or_else(Vec::new, |noted| noted.halves);
        if root.exists(&due(instance)) {
            before.due = due(instance);
        }
        let is_left = !before.due.is_empty() && !noted.iter().any(is_lasting);
        if noted.is_empty() && !is_left {
            return before;
        }
        commit(root, &boot.report);
        boot.report.keep(root.remove(FileHalves::PATH));
        if is_left {
            log::info!("the last boot was cut off: files are written again after the user's commands");
            let has_run = |m: &&&Module| {
                let mark = format!("config_{}", m.name);
                m.before_pivot.is_some() && state::is_done(root, instance, &mark, m.frequency)
            };
            let half = |m: &&Module| FileHalf { module: m.name.into(), paths: Vec::new(), error: String::new() };
            before.halves.extend(MODULES.iter().filter(has_run).map(half).map(|half| (half, None)));
        }
        for half in noted {
            let states = half.paths.iter().map(|path| PathState::of(root, path)).collect();
            before.halves.push((half, Some(states)));
        }
        before
    }

    /// Takes the file half of a module, if it ran and a path that it depends on has changed, or `in_any_case`.
    pub fn take_changed(&mut self, root: &Root, module: &str, in_any_case: bool) -> Option<FileHalf> {
        let at = self.halves.iter().position(|(half, _)| half.module == module)?;
        let (half, states) = self.halves.swap_remove(at);
        if let Some(states) = states.filter(|_| !in_any_case) {
            let changed = half.paths.iter().zip(&states).find(|(path, state)| PathState::of(root, path) != **state);
            let (path, _) = changed?;
            log::info!("{path} has changed since the module {module} wrote its files: it writes them again");
        }
        Some(half)
    }

    /// Whether no file half ran before.
    pub fn is_empty(&self) -> bool {
        self.halves.is_empty()
    }

    /// The commands have ended, and what they changed is written again.
    ///
    /// # Errors
    /// As [`Root::remove`].
    pub fn end(&self, root: &mut Root) -> Result<()> {
        if self.due.is_empty() { Ok(()) } else { root.remove(&self.due) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::instance::status::Status;
    use crate::machine::Machine;
    use crate::root::{Stage, Use};
    use crate::stage::modules::{Half, Run};
    use crate::stage::testing;
    use std::fs;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti me@host";

    #[test]
    fn rereads_files_that_early_commands_change() {
        let dir = TempDir::new("again");
        let path = |p: &str| dir.0.join(p);
        fs::create_dir_all(path("etc/ssh")).unwrap();
        fs::create_dir_all(path("usr/bin")).unwrap();
        fs::write(path("etc/passwd"), "root:x:0:0::/root:/bin/sh\n").unwrap();
        fs::write(path("etc/group"), "root:x:0:\n").unwrap();
        fs::write(path("etc/shadow"), "root:*:1::::::\n").unwrap();
        fs::write(path("etc/ssh/sshd_config"), "Port 22\n").unwrap();
        fs::write(path("etc/kept"), "begin\n").unwrap();
        let config = format!(
            "bootcmd: [x]\nusers: [{{name: a, lock_passwd: true, ssh_authorized_keys: ['{KEY}']}}]\nhostname: h\n\
             ssh_genkeytypes: [ed25519]\nwrite_files: [{{path: /etc/late, owner: 'late:late', content: x}}, \
             {{path: /etc/kept, append: true, content: \"end\\n\"}}]\n\
             cloud_init_modules: [bootcmd, write_files, set_hostname, users_groups, ssh]"
        );
        let machine = Machine::default();
        let instance = Instance { instance_id: "i".into(), ..Instance::default() };
        let mut root = dir.root(Use::Tree);
        let mut boot = testing::boot_with(&root, &machine, &config);
        assert!(has_early_commands(&root, &boot, &instance));
        let mut run = Run::new(&mut root, &mut boot, &instance).noting(Some(Vec::new()));
        run.stage(Stage::Network, Half::BeforePivot);
        let halves = run.into_noted().unwrap();
        note(&mut root, &instance, halves).unwrap();
        commit(&mut root, &boot.report);
        let errors = boot.errors();
        assert!(errors.len() == 1 && errors[0].contains("\"late\" is not known here"), "{errors:?}");
        let mut status = Status::new();
        status.end(Stage::Local, &boot.report);
        assert!(root.text("/home/a/.ssh/authorized_keys").contains("AAAA"));
        let host_key = root.text("/etc/ssh/ssh_host_ed25519_key");

        // The commands.
        let mut boot = testing::boot_with(&root, &machine, &config);
        let before = Before::look(&mut root, &mut boot, &instance);
        assert!(!root.exists(FileHalves::PATH) && !before.is_empty());
        fs::write(path("etc/ssh/sshd_config"), "AuthorizedKeysFile /etc/ssh/keys/%u\n").unwrap();
        let accounts = |name: &str, line: &str| {
            let text = fs::read_to_string(path(name)).unwrap();
            fs::write(path(name), text + line).unwrap();
        };
        accounts("etc/passwd", "late:x:77:77::/:/bin/sh\n");
        accounts("etc/group", "late:x:77:\n");
        Run::new(&mut root, &mut boot, &instance).after(before).stage(Stage::Network, Half::Running);
        assert_eq!(boot.errors(), [""; 0]);
        assert!(root.text("/etc/ssh/keys/a").contains(KEY), "{:?}", root.list("/etc/ssh"));
        assert_eq!(root.text("/etc/ssh/ssh_host_ed25519_key"), host_key);
        assert_eq!(root.stat("/etc/late").unwrap().attr.uid, 77);
        assert_eq!(root.text("/etc/kept"), "begin\nend\n");
        assert_eq!(root.text("/etc/passwd").matches("\na:").count(), 1);
        status.withdraw(&boot.withdrawn);
        assert_eq!(status.errors(), []);

        // Nothing runs again if nothing has changed.
        let before = Before::look(&mut root, &mut boot, &instance);
        assert!(before.is_empty());
    }

    #[test]
    fn rewrites_files_changed_before_a_power_cut() {
        let dir = TempDir::new("again-cut");
        dir.write("etc/ssh/sshd_config", "Port 22\n");
        let machine = Machine::default();
        let instance = Instance { instance_id: "i".into(), ..Instance::default() };
        let config = "bootcmd: [x]\nssh_pwauth: true\ncloud_init_modules: [bootcmd, set_passwords]";
        let mut root = dir.root(Use::Tree);
        let mut boot = testing::boot_with(&root, &machine, config);
        let mut run = Run::new(&mut root, &mut boot, &instance).noting(Some(Vec::new()));
        run.stage(Stage::Network, Half::BeforePivot);
        let halves = run.into_noted().unwrap();
        note(&mut root, &instance, halves).unwrap();
        // /run is emptied by a reboot.
        root.remove(FileHalves::PATH).unwrap();
        let is_set = |root: &Root| root.text("/etc/ssh/sshd_config").contains("PasswordAuthentication yes\n");
        assert!(is_set(&root));
        for is_first in [true, false] {
            commit(&mut root, &boot.report);
            dir.write("etc/ssh/sshd_config", "Port 2222\n");
            let before = Before::look(&mut root, &mut boot, &instance);
            Run::new(&mut root, &mut boot, &instance).after(before).stage(Stage::Network, Half::Running);
            assert_eq!(is_set(&root), is_first);
        }
        assert_eq!(boot.errors(), [""; 0]);
    }
}
