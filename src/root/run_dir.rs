//! What the parts of prepivot leave for each other below /run/prepivot: every entry, and who writes and reads it.
//!
//! The folder is 0700 and ends with the boot. Records are JSON of types that derive nanoserde's traits.

use super::{Attr, Root};
use crate::base::error::{Context, Result};
use nanoserde::{DeJson, SerJson};
use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::mount::{MountFlags, mount};
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// The folder.
pub const DIR: &str = "/run/prepivot";
/// What this boot's local stage did ([`Applied`]); the later stages and `status` read it.
pub const APPLIED: &str = "/run/prepivot/applied.json";
/// A file here, named as in status.json, says that a stage has nothing to do in this boot; the conditions of the units look for it.
/// In it are the marks of modules (`config_byobu once-per-instance`) that the final stage sets, as the stage would have.
pub const IDLE: &str = "/run/prepivot/idle";
/// Changes of the network that are taken back before the pivot; written and read by `link`.
pub const NETWORK: &str = "/run/prepivot/network.json";
/// Lines for cloud-init.log, from an initramfs that had nothing else to write to the disk.
pub const LOG: &str = "/run/prepivot/log";
/// Says that the local stage of the real root runs the modules that come before every service ([`EARLY_DUE`]), or has run them
/// ([`EARLY_DONE`]): then the network stage leaves them out, and removes this.
pub const EARLY: &str = "/run/prepivot/early";
/// What [`EARLY`] holds before and after.
pub const EARLY_DUE: &str = "due";
pub const EARLY_DONE: &str = "done";
/// Whether the local stage of the real root is to run the modules that come before every service.
pub fn is_early_due(root: &Root) -> bool {
    root.text(EARLY) == EARLY_DUE
}

/// Says that this boot has waited for the network, which came up or not: no module waits for it again.
pub const NETWORK_AWAITED: &str = "/run/prepivot/network-awaited";
/// Random passwords, `USER:PASSWORD` in lines; the module set_passwords writes them, shows them on the console and removes them.
pub const RANDOM_PASSWORDS: &str = "/run/prepivot/random-passwords";

/// The users and passwords of [`RANDOM_PASSWORDS`]'s lines.
pub fn passwords(lines: &str) -> Vec<(String, String)> {
    let pairs = lines.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(user, password)| (user.to_owned(), password.to_owned())).collect()
}

/// This program, for a root that has none; made by the hand-over, run by the later stages' units.
pub const PROGRAM: &str = "/run/prepivot/bin";

/// A record in the folder.
pub trait Entry: SerJson + DeJson {
    /// Where it is.
    const PATH: &'static str;

    /// Reads it. None where this boot has not written it, or not so.
    fn read(root: &Root) -> Option<Self> {
        let bytes = root.read(Self::PATH).ok()??;
        Self::deserialize_json(std::str::from_utf8(&bytes).ok()?).ok()
    }

    /// Writes it, 0600.
    ///
    /// # Errors
    ///
    /// The path cannot be resolved.
    fn write(&self, root: &mut Root) -> Result<()> {
        root.write(Self::PATH, self.serialize_json(), Attr::root(0o600))
    }
}

/// What this boot's local stage did.
#[derive(Debug, Clone, Copy, PartialEq, SerJson, DeJson)]
pub struct Applied {
    /// When it began and ended, in seconds since the kernel started.
    pub start: f64,
    pub finished: f64,
    /// Whether the root has an instance, and all of it was written.
    pub provisioned: bool,
    /// Whether the instance was read in this boot, and not taken from the cache.
    pub read: bool,
    /// Whether the real root's first stage is to provision: only there the datasource can be read or the root be written.
    pub later: bool,
    /// Whether the last boot was of the same instance.
    pub again: bool,
}

impl Entry for Applied {
    const PATH: &'static str = APPLIED;
}

/// What a module's file half of this boot depends on.
#[derive(Debug, Clone, PartialEq, SerJson, DeJson)]
pub struct FileHalf {
    /// The module's name.
    pub module: String,
    /// The paths that it read, looked at or changed ([`Root::take_watched`]).
    pub paths: Vec<String>,
    /// Why it failed; empty if it did not.
    pub error: String,
}

/// The file halves that ran before the user's early commands: the network stage looks whether those commands changed something.
#[derive(Debug, Clone, PartialEq, SerJson, DeJson)]
pub struct FileHalves {
    pub halves: Vec<FileHalf>,
}

impl Entry for FileHalves {
    const PATH: &'static str = "/run/prepivot/file-halves.json";
}

/// Writes a record at once, for what must be noted before it is done: a whole file or none, 0600, in a folder that is made if it
/// is not there (0700).
///
/// # Errors
/// The folder or the file cannot be written.
pub fn save(path: &Path, text: &str) -> std::io::Result<()> {
    path.parent().map_or(Ok(()), make_private)?;
    let fresh = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(text.as_bytes())?;
    std::fs::rename(&fresh, path)
}

/// Makes a folder, and those above it, for root alone.
fn make_private(folder: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Removes a record that [`save`] wrote, if it is there.
pub fn forget(path: &Path) {
    let _ = std::fs::remove_file(path);
}

/// Puts this program below /run, where the real root finds it, and gives its path. /run is noexec in some initramfs: then it is
/// on a file system of its own.
///
/// # Errors
/// There is no room, or /run cannot be written.
pub fn carry_program() -> Result<String> {
    make_private(Path::new(PROGRAM)).context(|| format!("failed to make {PROGRAM}"))?;
    let flags = statvfs(PROGRAM).context(|| format!("failed to look at {PROGRAM}"))?.f_flag;
    if flags.contains(StatVfsMountFlags::NOEXEC) {
        mount("tmpfs", PROGRAM, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=0755,size=16m")
            .context(|| format!("failed to mount a tmpfs on {PROGRAM}"))?;
    }
    let program = format!("{PROGRAM}/prepivot");
    std::fs::copy("/proc/self/exe", &program).context(|| format!("failed to copy this program to {program}"))?;
    for name in ["cloud-init", "cloud-id", "cloud-init-per"] {
        let link = Path::new(PROGRAM).join(name);
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink("prepivot", &link).context(|| format!("failed to make {}", link.display()))?;
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::Use;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_folder_is_for_root_alone_whatever_is_made_in_it_first() {
        let dir = TempDir::new("run-private");
        make_private(&dir.0.join("prepivot/bin")).unwrap();
        let mode = std::fs::metadata(dir.0.join("prepivot")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o700);
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let dir = TempDir::new("run-dir");
        let mut root = Root::open(&dir.0, Use::Tree).unwrap();
        assert_eq!(Applied::read(&root), None);
        let applied = Applied { start: 1.25, finished: 2.5, provisioned: true, read: false, later: false, again: true };
        applied.write(&mut root).unwrap();
        assert_eq!(Applied::read(&root), Some(applied));
        root.write(APPLIED, "{\"start\": ", Attr::root(0o600)).unwrap();
        assert_eq!(Applied::read(&root), None);
    }
}
