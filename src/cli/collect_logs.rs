//! `collect-logs`: collects the files for a bug report in one archive.

use super::logs;
use super::program::{Program, is_root, version_of_cloud_init};
use super::verb::Verb;
use crate::base::clock;
use crate::base::error::{Context, Error, Result};
use crate::base::problem::Problems;
use crate::base::tar::{Archive, stored_gzip};
use crate::instance::state::{self, CLOUD_DIR, RUN_DIR};
use crate::machine::Machine;
use crate::root::run_dir::ATTESTATION;
use crate::root::{Command, FileKind, Output, Root, Use, installed};
use crate::stage::compare;
use crate::stage::image::Image;
use argh::{ArgsInfo, FromArgs};
use log::LevelFilter;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

/// collect the logs and what provisioning left in one file, for a bug report
#[derive(FromArgs, ArgsInfo)]
#[argh(
    subcommand,
    name = "collect-logs",
    help_triggers("-h", "--help"),
    note = "It collects the logs, /etc/cloud, /var/lib/cloud and /run/cloud-init without scripts and older instances, and the \
            output of dmesg and journalctl for this boot and the last; of a machine that cloud-init has provisioned, what compare \
            --json prints. User-data is among it: look at the file before you \
            give it away.",
    error_code(1, "the user is not root, or the file cannot be written")
)]
pub struct CollectLogs {
    /// the file to write; default: cloud-init.tar.gz
    #[argh(option, short = 't', arg_name = "path", default = "String::from(\"cloud-init.tar.gz\")")]
    tarfile: String,
    /// leave out what only root may read, except for the logs, and what Ubuntu's installer was given
    #[argh(switch, short = 'r')]
    redact_sensitive: bool,
    /// deprecated, without effect: user-data is always there
    #[argh(switch, short = 'u')]
    include_userdata: bool,
    /// name every file
    #[argh(switch, short = 'v')]
    verbose: u8,
    /// the root to collect from, a mounted image for example; default: this system
    #[argh(option, arg_name = "dir", default = "String::from(\"/\")")]
    root: String,
}

/// The folders to collect, each in two parts, and how many levels of subfolders.
const FOLDERS: [(&str, &str, usize); 8] = [
    ("", "/etc/cloud", MAX_DEPTH),
    (CLOUD_DIR, "/data", 0),
    (CLOUD_DIR, "/handlers", 0),
    (CLOUD_DIR, "/seed", 0),
    (CLOUD_DIR, "/instance", 0),
    (CLOUD_DIR, "/instance/handlers", 0),
    (RUN_DIR, "", 0),
    // Ubuntu's installer runs cloud-init.
    ("", "/var/log/installer", 1),
];
/// Secret keys, and files that every image of the distribution has.
const LEFT_OUT: [&str; 2] = ["/etc/cloud/keys", "/etc/cloud/templates"];
/// The input of Ubuntu's installer, with passwords: older installers left it world-readable.
const SECRET: [&str; 2] = ["/etc/cloud/cloud.cfg.d/99-installer.cfg", "/var/log/installer/autoinstall-user-data"];
/// The most levels of folders below a folder.
const MAX_DEPTH: usize = 16;
/// The most bytes kept of a command's output.
const MAX_OUTPUT: usize = 64 << 20;
/// Commands whose output is collected: file name, command, and whether the output may contain secrets.
const COMMANDS: [(&str, &str, bool); 3] = [
    ("dmesg.txt", "dmesg", true),
    ("journal.txt", "journalctl --boot=0 -o short-precise", false),
    ("journal-previous.txt", "journalctl --boot=-1 -o short-precise", false),
];

impl Verb for CollectLogs {
    fn run(self, program: &Program) -> ExitCode {
        program.log(LevelFilter::Warn);
        let root = match Root::open(Path::new(&self.root), Use::Tree) {
            Ok(root) => root,
            Err(e) => return program.fail(e),
        };
        if root.is_live() && !is_root() {
            return program.fail("this needs root; try it with sudo");
        }
        if self.include_userdata {
            program.say("--include-userdata is deprecated: user-data is always there");
        }
        if let Err(e) = self.archive(program, root).and_then(|bytes| save(&self.tarfile, &bytes)) {
            return program.fail(e);
        }
        let path = std::path::absolute(&self.tarfile).unwrap_or_default();
        program.say(format_args!("Wrote {}", path.display()));
        if !self.redact_sensitive {
            program
                .say("it may hold passwords and keys: look at it before you give it away, or use --redact-sensitive");
        }
        ExitCode::SUCCESS
    }
}

impl CollectLogs {
    fn archive(&self, program: &Program, mut root: Root) -> Result<Vec<u8>> {
        let now = SystemTime::now();
        let day = clock::timestamp(now, "");
        let mut collection = Collection {
            archive: Archive::default(),
            top: format!("cloud-init-logs-{}", day.split(' ').next().unwrap_or_default()),
            modified: clock::since_1970(now).as_secs(),
            say: (self.verbose > 0).then_some(program),
        };
        collection.add("/version", 0o644, version_of_cloud_init().as_bytes());
        for (name, command, secret) in COMMANDS {
            if root.is_live() && !(secret && self.redact_sensitive) {
                let line = format!("{command} 2>&1 | head -c {MAX_OUTPUT}");
                let output = root.output(Command::new(["sh", "-c", &line]))?.stdout;
                collection.add(&format!("/{name}"), 0o600, &output);
            }
        }
        let image = Image::read(&root, &Machine::read(Path::new(&self.root)), &Problems::new());
        // Only root may read the logs, but they contain no secrets.
        for path in logs::paths(&root, &image.config) {
            collection.file(&root, &path, true);
        }
        // Digests, and what the trust policy refused.
        collection.file(&root, ATTESTATION, true);
        for (below, folder, depth) in FOLDERS {
            collection.folder(&root, &format!("{below}{folder}"), depth, !self.redact_sensitive);
        }
        // What cloud-init has provisioned, prepivot has no cache of.
        if !state::has_cache(&root)
            && let Ok(found) = compare::compare(Path::new(&self.root))
        {
            collection.add("/compare.json", 0o600, found.to_json().as_bytes());
        }
        let archive = collection.archive.finish();
        if root.is_live()
            && installed::which(&root, "gzip").is_some()
            && let Output { status: 0, stdout, .. } = root.output(Command::new(["gzip"]).stdin(archive.clone()))?
        {
            return Ok(stdout);
        }
        Ok(stored_gzip(&archive))
    }
}

/// Writes the archive to a new file that only its owner may read, and renames it to `path`. An existing
/// regular file is replaced, with its mode and open readers left behind; anything else, such as a planted
/// link, is an error.
fn save(path: &str, bytes: &[u8]) -> Result<()> {
    if std::fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(Error::new(format!("failed to write {path}: expected a regular file or a new name")));
    }
    let new = format!("{path}.{}", std::process::id());
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)
        .context(|| format!("failed to write {path}: failed to make {new}"))?;
    let written = file.write_all(bytes).and_then(|()| std::fs::rename(&new, path));
    written.inspect_err(|_| drop(std::fs::remove_file(&new))).context(|| format!("failed to write {path}"))
}

/// The archive so far.
struct Collection<'a> {
    archive: Archive,
    /// The top folder in the archive.
    top: String,
    modified: u64,
    /// Prints the name of every file, if requested.
    say: Option<&'a Program>,
}

impl Collection<'_> {
    fn add(&mut self, path: &str, mode: u32, content: &[u8]) {
        if let Some(program) = self.say {
            program.say(format_args!("collected {path}"));
        }
        self.archive.file(&format!("{}{path}", self.top), mode, self.modified, content);
    }

    /// Adds the file at `path` if it exists; without `secret`, only if it is world-readable and not in [`SECRET`].
    fn file(&mut self, root: &Root, path: &str, secret: bool) {
        let Some(stat) = root.stat(path).filter(|s| s.kind == FileKind::File) else { return };
        if !secret && (stat.attr.mode & 0o004 == 0 || SECRET.contains(&path)) {
            return;
        }
        match root.read(path) {
            Ok(content) => self.add(path, stat.attr.mode, &content.unwrap_or_default()),
            Err(e) => log::warn!("{e}"),
        }
    }

    fn folder(&mut self, root: &Root, folder: &str, depth: usize, secret: bool) {
        for name in root.list(folder) {
            let path = format!("{folder}/{name}");
            // Links to folders are not followed: they could form a cycle.
            let is_folder = root.lstat(&path).is_some_and(|s| s.kind == FileKind::Dir);
            if !is_folder {
                self.file(root, &path, secret);
            } else if depth > 0 && !LEFT_OUT.contains(&path.as_str()) {
                self.folder(root, &path, depth - 1, secret);
            }
        }
    }
}
