//! The user's early commands (boothooks and bootcmd) run before every module in cloud-init. Here the file half of the
//! modules has run before the pivot: it runs again where those commands changed paths that it had read or written.

use super::boot::Boot;
use super::commit;
use crate::instance::{Instance, state};
use crate::module::MODULES;
use crate::root::run_dir::{Entry, FileHalf, FileHalves};
use crate::root::{Mark, Root};

/// The folder of the instance's boothooks.
pub fn boothooks_of(instance: &Instance) -> String {
    format!("{}/boothooks", state::folder(instance))
}

/// Whether the instance has boothooks, which run on every boot.
pub fn has_boothooks(root: &Root, instance: &Instance) -> bool {
    !root.list(&boothooks_of(instance)).is_empty()
}

/// Whether this boot runs boothooks or the commands of a module ([`crate::module::Module::runs_commands`]).
pub fn has_early_commands(root: &Root, boot: &Boot, instance: &Instance) -> bool {
    let is_set = |key: &&str| boot.config().get(key).is_some_and(|v| !v.is_null());
    MODULES.iter().any(|m| m.runs_commands && m.keys.iter().any(is_set)) || has_boothooks(root, instance)
}

/// The file halves that ran in this boot before the user's early commands, with the state of the paths that they depend
/// on.
#[derive(Default)]
pub struct Before(Vec<(FileHalf, Vec<Mark>)>);

impl Before {
    /// Records the state of the paths that the file halves of this boot depend on. For the network stage, before the
    /// first early command.
    pub fn look(root: &mut Root, boot: &mut Boot) -> Before {
        let Some(FileHalves { halves }) = FileHalves::read(root) else { return Before::default() };
        commit(root, &mut boot.report);
        boot.report.keep(root.remove(FileHalves::PATH));
        let with_marks = |half: FileHalf| {
            let marks = half.paths.iter().map(|path| root.mark(path)).collect();
            (half, marks)
        };
        Before(halves.into_iter().map(with_marks).collect())
    }

    /// Takes the half of a module, if it ran and what it depends on has changed.
    pub fn take_changed(&mut self, root: &Root, module: &str) -> Option<FileHalf> {
        let at = self.0.iter().position(|(half, _)| half.module == module)?;
        let (half, marks) = self.0.swap_remove(at);
        let changed = half.paths.iter().zip(&marks).find(|(path, mark)| root.mark(path) != **mark);
        let (path, _) = changed?;
        log::info!("{path} has changed since the module {module} wrote its files: it writes them again");
        Some(half)
    }

    /// Whether no file half ran before.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::document::yaml;
    use crate::instance::status::Status;
    use crate::machine::Machine;
    use crate::root::{Stage, Use};
    use crate::stage::Asked;
    use crate::stage::modules::{Half, Run};
    use crate::system::Nothing;
    use std::fs;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti me@host";

    #[test]
    fn what_an_early_command_changes_is_looked_at_again() {
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
        let mut root = Root::open(&dir.0, Use::Tree).unwrap();
        let mut boot = Boot::new(&root, &machine, &Asked::default(), &Nothing);
        boot.config = Some(yaml::parse("t", &config).unwrap().into());
        assert!(has_early_commands(&root, &boot, &instance));
        let mut run = Run::new(&mut root, &mut boot, &instance).noting(Some(Vec::new()));
        run.stage(Stage::Init, Half::Provision);
        let halves = run.into_noted().unwrap();
        FileHalves { halves }.write(&mut root).unwrap();
        commit(&mut root, &mut boot.report);
        let errors = boot.errors();
        assert!(errors.len() == 1 && errors[0].contains("\"late\" is not known here"), "{errors:?}");
        let mut status = Status::new();
        status.end("init-local", &boot.report);
        assert!(root.text("/home/a/.ssh/authorized_keys").contains("AAAA"));
        let host_key = root.text("/etc/ssh/ssh_host_ed25519_key");

        // The commands.
        let mut boot = Boot::new(&root, &machine, &Asked::default(), &Nothing);
        boot.config = Some(yaml::parse("t", &config).unwrap().into());
        let before = Before::look(&mut root, &mut boot);
        assert!(!root.exists(FileHalves::PATH) && !before.is_empty());
        fs::write(path("etc/ssh/sshd_config"), "AuthorizedKeysFile /etc/ssh/keys/%u\n").unwrap();
        let accounts = |name: &str, line: &str| {
            let text = fs::read_to_string(path(name)).unwrap();
            fs::write(path(name), text + line).unwrap();
        };
        accounts("etc/passwd", "late:x:77:77::/:/bin/sh\n");
        accounts("etc/group", "late:x:77:\n");
        Run::new(&mut root, &mut boot, &instance).after(before).stage(Stage::Init, Half::Live);
        assert_eq!(boot.errors(), [""; 0]);
        assert!(root.text("/etc/ssh/keys/a").contains(KEY), "{:?}", root.list("/etc/ssh"));
        assert_eq!(root.text("/etc/ssh/ssh_host_ed25519_key"), host_key);
        assert_eq!(root.stat("/etc/late").unwrap().attr.uid, 77);
        assert_eq!(root.text("/etc/kept"), "begin\nend\n");
        assert_eq!(root.text("/etc/passwd").matches("\na:").count(), 1);
        status.withdraw(&boot.withdrawn);
        assert_eq!(status.errors(), []);

        // Nothing is done again where nothing has changed.
        let before = Before::look(&mut root, &mut boot);
        assert!(before.is_empty());
    }
}
