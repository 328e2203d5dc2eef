//! `collect-logs`: what a report of a mistake needs, in one file.

use super::clean;
use super::program::{Program, is_root, version_of_cloud_init};
use super::verb::Verb;
use crate::base::clock;
use crate::base::error::{Context, Result};
use crate::base::tar::{Archive, stored_gzip};
use crate::instance::state::{CLOUD_DIR, RUN_DIR};
use crate::machine::Machine;
use crate::root::{Command, Kind, Output, Root, Stage, Use};
use crate::stage::image::Image;
use argh::{ArgsInfo, FromArgs};
use log::LevelFilter;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

/// collect the logs and what provisioning left in one file, for a report
#[derive(FromArgs, ArgsInfo)]
#[argh(
    subcommand,
    name = "collect-logs",
    help_triggers("-h", "--help"),
    note = "Collected are the logs, /etc/cloud, /var/lib/cloud and /run/cloud-init without scripts and older instances, and what \
            dmesg and journalctl say of this boot and the last. User-data is among it: look at the file before you give it away.",
    error_code(1, "not root, or the file cannot be written")
)]
pub struct CollectLogs {
    /// the file to write; default: cloud-init.tar.gz
    #[argh(option, short = 't', arg_name = "path", default = "String::from(\"cloud-init.tar.gz\")")]
    tarfile: String,
    /// leave out what only root may read, but for the logs
    #[argh(switch, short = 'r')]
    redact_sensitive: bool,
    /// nothing: user-data is always there
    #[argh(switch, short = 'u')]
    include_userdata: bool,
    /// name every file
    #[argh(switch, short = 'v')]
    verbose: u8,
    /// the root to collect from, a mounted image for example; default: this system
    #[argh(option, arg_name = "dir", default = "String::from(\"/\")")]
    root: String,
}

/// Folders in two parts, and how deep they are looked into.
const FOLDERS: [(&str, &str, usize); 7] = [
    ("", "/etc/cloud", MAX_DEPTH),
    (CLOUD_DIR, "/data", 0),
    (CLOUD_DIR, "/handlers", 0),
    (CLOUD_DIR, "/seed", 0),
    (CLOUD_DIR, "/instance", 0),
    (CLOUD_DIR, "/instance/handlers", 0),
    (RUN_DIR, "", 0),
];
/// Keys, and what the image's maker knows.
const LEFT_OUT: [&str; 2] = ["/etc/cloud/keys", "/etc/cloud/templates"];
/// How deep a folder of folders is looked into.
const MAX_DEPTH: usize = 16;
/// How much of what a command prints is kept, in bytes.
const MAX_OUTPUT: usize = 64 << 20;
/// What is kept of what commands print: the file, the command, and whether it may be secret.
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
        let written = self.archive(program, root).and_then(|bytes| {
            let options = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).clone();
            let file = options.open(&self.tarfile).and_then(|mut file| file.write_all(&bytes));
            file.context(|| format!("failed to write {}", self.tarfile))
        });
        if let Err(e) = written {
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
                let output = root.output(Command::new(Stage::Final, ["sh", "-c", &line]))?.stdout;
                collection.add(&format!("/{name}"), 0o600, &output);
            }
        }
        let image = Image::read(&root, &Machine::read(Path::new(&self.root)));
        // The logs are for root alone, and say nothing that is secret.
        for path in clean::logs(&root, &image.config) {
            collection.file(&root, &path, true);
        }
        for (below, folder, depth) in FOLDERS {
            collection.folder(&root, &format!("{below}{folder}"), depth, !self.redact_sensitive);
        }
        let archive = collection.archive.finish();
        if root.is_live()
            && root.which("gzip").is_some()
            && let Output { status: 0, stdout } =
                root.output(Command::new(Stage::Final, ["gzip"]).stdin(archive.clone()))?
        {
            return Ok(stdout);
        }
        Ok(stored_gzip(&archive))
    }
}

/// What has been collected so far.
struct Collection<'a> {
    archive: Archive,
    /// The folder in the archive.
    top: String,
    modified: u64,
    /// Who names every file, where that is asked for.
    say: Option<&'a Program>,
}

impl Collection<'_> {
    fn add(&mut self, path: &str, mode: u32, content: &[u8]) {
        if let Some(program) = self.say {
            program.say(format_args!("collected {path}"));
        }
        self.archive.file(&format!("{}{path}", self.top), mode, self.modified, content);
    }

    /// Adds a file if there is one and, unless `secret` ones are wanted, everybody may read it.
    fn file(&mut self, root: &Root, path: &str, secret: bool) {
        let Some(stat) = root.stat(path).filter(|s| s.kind == Kind::File) else { return };
        if !secret && stat.attr.mode & 0o004 == 0 {
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
            // A link to a folder could lead in a circle.
            let is_folder = root.lstat(&path).is_some_and(|s| s.kind == Kind::Dir);
            if !is_folder {
                self.file(root, &path, secret);
            } else if depth > 0 && !LEFT_OUT.contains(&path.as_str()) {
                self.folder(root, &path, depth - 1, secret);
            }
        }
    }
}
