//! `clean`: makes a system forget that it was provisioned, so that the next boot provisions it again. For
//! image builders.

use super::logs;
use super::program::{FAILED, Program};
use super::verb::Verb;
use crate::base::error::Error;
use crate::base::problem::Problems;
use crate::machine::{Family, Machine};
use crate::network::render::RENDERERS;
use crate::root::run_dir::LOCAL_STAGE;
use crate::root::{Attr, Command, FileKind, Root, STATE_FOLDERS, Use, kept_state};
use crate::stage::image::Image;
use crate::stage::network;
use crate::system;
use argh::{ArgsInfo, FromArgs};
use log::LevelFilter;
use std::path::Path;
use std::process::ExitCode;

/// make the system forget that it was provisioned, so that the next boot does it again
#[derive(FromArgs, ArgsInfo)]
#[argh(
    subcommand,
    name = "clean",
    help_triggers("-h", "--help"),
    note = "Removes /var/lib/cloud but for its seed folder, then runs the programs in /etc/cloud/clean.d. Users, host keys and \
            what was written elsewhere stay.",
    error_code(1, "something could not be removed, or a program in /etc/cloud/clean.d failed")
)]
pub struct Clean {
    /// remove the logs too
    #[argh(switch, short = 'l')]
    logs: bool,
    /// remove /var/lib/cloud/seed too
    #[argh(switch, short = 's')]
    seed: bool,
    /// let the next boot make a new machine-id
    #[argh(switch)]
    machine_id: bool,
    /// reboot afterwards
    #[argh(switch, short = 'r')]
    reboot: bool,
    /// remove configuration that was written; more of these words may follow
    #[argh(option, short = 'c', arg_name = "all|ssh_config|network|datasource|fstab")]
    configs: Vec<Config>,
    /// the root to clean, a mounted image for example; default: this system
    #[argh(option, arg_name = "dir", default = "String::from(\"/\")")]
    root: String,
    /// more for --configs
    #[argh(positional, arg_name = "all|ssh_config|network|datasource|fstab")]
    more: Vec<Config>,
}

/// A kind of written configuration.
#[derive(Clone, Copy, PartialEq)]
enum Config {
    All,
    Sshd,
    Network,
    Datasource,
    Fstab,
}

impl argh::FromArgValue for Config {
    fn from_arg_value(name: &str) -> Result<Config, String> {
        match name {
            "all" => Ok(Config::All),
            "ssh_config" => Ok(Config::Sshd),
            "network" => Ok(Config::Network),
            "datasource" => Ok(Config::Datasource),
            "fstab" => Ok(Config::Fstab),
            _ => Err("expected all, ssh_config, network, datasource or fstab".into()),
        }
    }
}

const CLEAN_D: &str = "/etc/cloud/clean.d";
const MACHINE_ID: &str = "/etc/machine-id";
/// How the paths of disks begin that a cloud's udev rules name: Azure's temporary disk, which the next machine may not have.
const CLOUD_DISKS: &str = "/dev/disk/cloud/";

const SSH_CONFIG: &str = "/etc/ssh/sshd_config.d/50-cloud-init.conf";
/// Network files that cloud-init writes and prepivot's renderers do not.
const NETWORK: [&str; 4] = [
    "/etc/netplan/50-cloud-init.yaml",
    "/etc/network/interfaces.d/50-cloud-init.cfg",
    "/etc/NetworkManager/conf.d/99-cloud-init.conf",
    "/etc/NetworkManager/conf.d/30-cloud-init-ip6-addr-gen-mode.conf",
];

impl Verb for Clean {
    fn run(self, program: &Program) -> ExitCode {
        program.log(LevelFilter::Warn);
        if self.configs.is_empty() && !self.more.is_empty() {
            return program.usage("unexpected words; name what to remove with --configs");
        }
        let mut root = match Root::open(Path::new(&self.root), Use::Tree) {
            Ok(root) => root,
            Err(e) => return program.fail(e),
        };
        if self.reboot && !root.is_live() {
            return program.usage("--reboot is for this system; leave --root out");
        }
        let image = Image::read(&root, &Machine::read(Path::new(&self.root)), &Problems::new());
        let mut errors = self.clean(&mut root, &image, program);
        if errors.is_empty() && self.reboot {
            let argv: &[&str] =
                if image.distro.family == Family::Alpine { &["reboot"] } else { &["shutdown", "-r", "now"] };
            errors.extend(root.run(Command::new(argv.iter().copied())).err());
        }
        for e in &errors {
            program.say(e);
        }
        if errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) }
    }
}

impl Clean {
    /// Whether `kind` is to be removed.
    fn removes(&self, kind: Config) -> bool {
        self.configs.iter().chain(&self.more).any(|c| *c == kind || *c == Config::All)
    }

    /// Does the work, and returns what failed.
    fn clean(&self, root: &mut Root, image: &Image, program: &Program) -> Vec<Error> {
        // Changes that a stage left unfinished would otherwise be carried out by the next boot.
        let mut errors = root.stop_waiting();
        let mut gone: Vec<String> = Vec::new();
        if self.logs {
            gone.extend(logs::paths(root, &image.config));
        }
        if self.removes(Config::Network) {
            gone.extend(RENDERERS.iter().flat_map(|r| network::owned_files(root, r)));
            gone.extend(NETWORK.map(str::to_owned));
        }
        if self.removes(Config::Sshd) {
            gone.push(SSH_CONFIG.to_owned());
        }
        let provisioned = STATE_FOLDERS.iter().any(|folder| root.is_dir(folder));
        let [own, elsewhere] = STATE_FOLDERS;
        let kept = |name: &String| name != "seed" || self.seed;
        let of_state = |root: &Root| {
            root.list(own).into_iter().filter(kept).map(|name| format!("{own}/{name}")).collect::<Vec<_>>()
        };
        gone.extend(of_state(root));
        // If it is mounted over the usual folder, that folder's content has been removed already.
        if !kept_state::is_bound(root) {
            gone.push(elsewhere.to_owned());
        }
        // A stage run by hand must not conclude that this boot's initramfs has done the work.
        gone.push(LOCAL_STAGE.to_owned());
        errors.extend(gone.iter().filter_map(|path| root.remove(path).err()));
        let (is_all, is_datasources) = (self.removes(Config::Fstab), self.removes(Config::Datasource));
        if (is_all || is_datasources) && root.is_file(system::fstab::FSTAB) {
            let prefix = if is_all { "" } else { CLOUD_DISKS };
            let rest = |text: &str| Ok(Some(system::fstab::without_ours(text, prefix)));
            errors.extend(root.edit_text(system::fstab::FSTAB, Attr::root(0o644), rest).err());
        }
        errors.extend(root.commit());
        // Files that the next initramfs would find below a file system mounted on /var.
        match kept_state::beneath(root) {
            Ok(Some(mut beneath)) => {
                errors.extend(of_state(&beneath).iter().filter_map(|path| beneath.remove(path).err()));
                errors.extend(beneath.commit());
            }
            Ok(None) => {}
            Err(e) => errors.push(e),
        }
        if !provisioned {
            program.say("nothing to clean: there is no /var/lib/cloud");
        } else if errors.is_empty() {
            errors.extend(clean_d(root, program));
        }
        if self.machine_id {
            errors.extend(forget_machine_id(root, image).err());
            errors.extend(root.commit());
        }
        errors
    }
}

/// Runs all programs of [`CLEAN_D`], and returns what failed.
fn clean_d(root: &mut Root, program: &Program) -> Vec<Error> {
    let path = |name: String| format!("{CLEAN_D}/{name}");
    let programs: Vec<String> = root.list(CLEAN_D).into_iter().map(path).collect();
    let is_program =
        |path: &String| root.stat(path).is_some_and(|s| s.kind == FileKind::File && s.attr.mode & 0o111 != 0);
    let programs: Vec<String> = programs.into_iter().filter(is_program).collect();
    if !programs.is_empty() && !root.is_live() {
        program.say(format_args!("not run in another root: {}", programs.join(", ")));
        return Vec::new();
    }
    programs.into_iter().filter_map(|path| root.run(Command::new([path])).err()).collect()
}

/// Makes the next boot create a new machine-id: systemd does so if the file says so (machine-id(5)), other
/// systems if it is missing.
fn forget_machine_id(root: &mut Root, image: &Image) -> crate::base::error::Result<()> {
    if system::service::uses_systemd(root, &image.distro) {
        root.write(MACHINE_ID, "uninitialized\n", Attr::root(0o444))
    } else {
        root.remove(MACHINE_ID)
    }
}
