//! The files below /run/prepivot that parts of prepivot leave for each other, and who writes and reads each.
//!
//! The folder is 0700 and ends with the boot. It also has the locks of the stages, NAME.lock ([`Root::lock_stage`]). Records are JSON of types that derive nanoserde's traits.

use super::{Attr, Root};
use crate::base::error::{Context, Result};
use nanoserde::{DeJson, SerJson, SerJsonState};
use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::mount::{MountFlags, mount};
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// The folder.
pub const DIR: &str = "/run/prepivot";
/// How this boot's local stage went ([`LocalStage`]). Read by the other stages.
pub const LOCAL_STAGE: &str = "/run/prepivot/local-stage.json";
/// A file in this folder, named like a stage in status.json, means that the stage has nothing to do in this
/// boot; the units' conditions look for it. It lists the marks of modules (`config_byobu once-per-instance`)
/// that the final stage then sets in place of that stage.
pub const IDLE: &str = "/run/prepivot/idle";
/// Changes to the network that are undone before the pivot. Written and read by `link`.
pub const NETWORK: &str = "/run/prepivot/network.json";
/// Lines for cloud-init.log, left by an initramfs that had nothing else to write to the disk.
pub const LOG: &str = "/run/prepivot/log";
/// Whether the real root's local stage is to run the modules that come before every service ([`BEFORE_SERVICES_DUE`]),
/// or the names of those that it has run, one per line. These the network stage skips, and removes the file.
pub const BEFORE_SERVICES: &str = "/run/prepivot/before-services";
/// The content of [`BEFORE_SERVICES`] before those modules have run.
pub const BEFORE_SERVICES_DUE: &str = "due";

/// Whether the real root's local stage is to run the modules that come before every service.
pub fn before_services_is_due(root: &Root) -> bool {
    root.text(BEFORE_SERVICES) == BEFORE_SERVICES_DUE
}

/// The number of the image's configuration ([`crate::userdata::config::Base::digest`]) that combined-cloud-config.json was merged
/// from. User-data may change the image's configuration, which each later stage then merges again.
pub const BASE: &str = "/run/prepivot/base";

/// Exists once this boot has waited for the network, successfully or not: no module waits again.
pub const NETWORK_AWAITED: &str = "/run/prepivot/network-awaited";
/// What was measured and checked in this boot, as JSON: for agents that attest the machine, and for `phone_home`. Written by the
/// check of the trust policy.
pub const ATTESTATION: &str = "/run/prepivot/trust.json";
/// What later stages of this boot need of encrypted documents: the merged configuration, and the cloud-configs that it was merged
/// from, by their prefixes. It is in memory alone, and never part of the journal.
pub const DECRYPTED: &str = "/run/prepivot/decrypted.json";
/// Exists if user-data waits for a key that the real root may have.
pub const KEY_AWAITED: &str = "/run/prepivot/key-awaited";
/// Random passwords, one `USER:PASSWORD` per line. The module set_passwords writes them, prints them on the
/// console and removes them.
pub const RANDOM_PASSWORDS: &str = "/run/prepivot/random-passwords";

/// The users and passwords in the lines of [`RANDOM_PASSWORDS`].
pub fn passwords(lines: &str) -> Vec<(String, String)> {
    let pairs = lines.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(user, password)| (user.to_owned(), password.to_owned())).collect()
}

/// This program, for a root that has none. Written by the hand-over, run by the later stages' units.
pub const PROGRAM: &str = "/run/prepivot/bin";

/// A record in the folder, as JSON.
pub trait Record: SerJson + DeJson {
    /// The path of its file.
    const PATH: &'static str;

    /// Reads the record. None if this boot has not written a valid one.
    fn read(root: &Root) -> Option<Self> {
        let bytes = root.read(Self::PATH).ok()??;
        Self::deserialize_json(std::str::from_utf8(&bytes).ok()?).ok()
    }

    /// Writes the record, 0600.
    ///
    /// # Errors
    /// The path cannot be resolved.
    fn write(&self, root: &mut Root) -> Result<()> {
        root.write(Self::PATH, self.serialize_json(), Attr::root(0o600))
    }
}

/// The local stage of this boot.
#[derive(Debug, Clone, PartialEq, SerJson, DeJson)]
pub struct LocalStage {
    /// When it began and ended, in seconds since the kernel started.
    pub start: f64,
    pub finished: f64,
    pub result: LocalResult<()>,
}

impl Record for LocalStage {
    const PATH: &'static str = LOCAL_STAGE;
}

impl LocalStage {
    /// How the local stage went. None if it has not run in this boot.
    pub fn result(root: &Root) -> Option<LocalResult<()>> {
        Self::read(root).map(|stage| stage.result)
    }
}

/// How the local stage went. `P` is what it provisioned; the record has no more of it than that it is there.
#[derive(Debug, Clone, PartialEq, DeJson)]
pub enum LocalResult<P> {
    /// The root has an instance, and all of it was written. Only the stages that have work run.
    Provisioned(Origin, P),
    /// The root has an instance, and not all of it could be written. The real root's local stage starts anew, and every stage
    /// runs.
    Unwritten(P),
    /// For this reason the work is left to the real root's local stage, which starts anew.
    Deferred(String),
    /// No datasource has an instance, and all else was written. The real root's local stage looks for a drive, and its network
    /// stage asks the services.
    Nothing,
}

/// Where a provisioned instance is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, SerJson, DeJson)]
pub enum Origin {
    /// Read in this boot; not the last boot's.
    New,
    /// Read in this boot; the last boot had the same.
    Reread,
    /// The last boot's, not read again. The network stage may ask for what has changed.
    Kept,
    /// An earlier boot read it, and could not write all of it.
    Resumed,
    /// The last boot's, which is another machine's: no service answers. The network stage asks again for this machine's.
    Borrowed,
}

impl Origin {
    /// Whether the instance was read in this boot.
    pub fn is_read(self) -> bool {
        matches!(self, Origin::New | Origin::Reread)
    }

    /// Whether the last boot had the same instance.
    pub fn is_same(self) -> bool {
        matches!(self, Origin::Reread | Origin::Kept | Origin::Borrowed)
    }
}

// nanoserde derives this for no enum with a parameter.
impl<P: SerJson> SerJson for LocalResult<P> {
    fn ser_json(&self, depth: usize, state: &mut SerJsonState) {
        let (name, origin, payload): (_, Option<Origin>, &dyn SerJson) = match self {
            LocalResult::Provisioned(origin, payload) => ("Provisioned", Some(*origin), payload),
            LocalResult::Unwritten(payload) => ("Unwritten", None, payload),
            LocalResult::Deferred(why) => ("Deferred", None, why),
            LocalResult::Nothing => return state.label("Nothing"),
        };
        state.out.push('{');
        state.label(name);
        state.out.push_str(":[");
        if let Some(origin) = origin {
            origin.ser_json(depth, state);
            state.out.push(',');
        }
        payload.ser_json(depth, state);
        state.out.push_str("]}");
    }
}

impl<P> LocalResult<P> {
    /// What was provisioned.
    pub fn provisioned(&self) -> Option<&P> {
        match self {
            LocalResult::Provisioned(_, provisioned) | LocalResult::Unwritten(provisioned) => Some(provisioned),
            LocalResult::Deferred(_) | LocalResult::Nothing => None,
        }
    }

    /// Where the instance is from, if all of it was written.
    pub fn origin(&self) -> Option<Origin> {
        match self {
            LocalResult::Provisioned(origin, _) => Some(*origin),
            _ => None,
        }
    }

    /// Whether the real root's local stage starts anew.
    pub fn is_left_to_real_root(&self) -> bool {
        matches!(self, LocalResult::Unwritten(_) | LocalResult::Deferred(_))
    }

    /// Whether the root has this machine's instance, and all of it was written.
    pub fn is_complete(&self) -> bool {
        self.origin().is_some_and(|origin| origin != Origin::Borrowed)
    }

    /// The result, now that not everything could be written.
    pub fn unwritten(self) -> LocalResult<P> {
        match self {
            LocalResult::Provisioned(_, provisioned) => LocalResult::Unwritten(provisioned),
            LocalResult::Nothing => LocalResult::Deferred("not everything could be written".into()),
            already => already,
        }
    }

    /// The result for the record.
    pub fn to_record(&self) -> LocalResult<()> {
        match self {
            LocalResult::Provisioned(origin, _) => LocalResult::Provisioned(*origin, ()),
            LocalResult::Unwritten(_) => LocalResult::Unwritten(()),
            LocalResult::Deferred(why) => LocalResult::Deferred(why.clone()),
            LocalResult::Nothing => LocalResult::Nothing,
        }
    }
}

/// A module's file half that ran in this boot, and what it depends on.
#[derive(Debug, Clone, PartialEq, SerJson, DeJson)]
pub struct FileHalf {
    /// The module's name.
    pub module: String,
    /// The paths that it read, examined or changed ([`Root::take_watched`]).
    pub paths: Vec<String>,
    /// Its error; empty if it succeeded.
    pub error: String,
}

/// The file halves that ran before the user's early commands. The network stage checks whether those commands
/// changed a path.
#[derive(Debug, Clone, PartialEq, SerJson, DeJson)]
pub struct FileHalves {
    pub halves: Vec<FileHalf>,
}

impl Record for FileHalves {
    const PATH: &'static str = "/run/prepivot/file-halves.json";
}

/// What this boot has measured. Written by [`save`].
#[derive(Debug, Clone, Default, PartialEq, SerJson, DeJson)]
pub struct Measured {
    /// For each measurement, the document's name and the digest of what was hashed.
    pub ids: Vec<String>,
}

impl Record for Measured {
    const PATH: &'static str = "/run/prepivot/measured.json";
}

impl Measured {
    /// The record in the file at `path`; an empty one if there is none.
    pub fn load(path: &Path) -> Measured {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        Measured::deserialize_json(&text).unwrap_or_default()
    }

    /// The record as JSON.
    pub fn to_json(&self) -> String {
        self.serialize_json()
    }
}

/// The services that are closed to users. Written by the stage that closes them, read by `trust` and `status`; the unit
/// prepivot-close.service looks for it.
#[derive(Debug, Clone, Default, PartialEq, SerJson, DeJson)]
pub struct Closed {
    pub addresses: Vec<ClosedAddress>,
    /// The users besides root who may reach them.
    pub users: Vec<u32>,
}

/// An address of a service.
#[derive(Debug, Clone, Default, PartialEq, SerJson, DeJson)]
pub struct ClosedAddress {
    /// An IP address.
    pub address: String,
    /// The ports of TCP that are closed. None: all of them, and every other protocol.
    pub tcp: Vec<u16>,
}

impl Record for Closed {
    const PATH: &'static str = "/run/prepivot/closed.json";
}

/// Writes a record at once, for what must be recorded before it is done: atomically, 0600, in a folder that
/// is created 0700 if missing.
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

/// Removes a record that [`save`] wrote, if it exists.
pub fn forget(path: &Path) {
    let _ = std::fs::remove_file(path);
}

/// Copies this program below /run for the real root, and returns its path. In some initramfs /run is noexec:
/// then it is put on a file system of its own.
///
/// There is no space, or /run cannot be written.
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
    fn folder_is_always_for_root_alone() {
        let dir = TempDir::new("run-private");
        make_private(&dir.0.join("prepivot/bin")).unwrap();
        let mode = std::fs::metadata(dir.0.join("prepivot")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o700);
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let dir = TempDir::new("run-dir");
        let mut root = dir.root(Use::Tree);
        assert_eq!(LocalStage::read(&root), None);
        for result in [
            LocalResult::Provisioned(Origin::Reread, ()),
            LocalResult::Unwritten(()),
            LocalResult::Deferred("a \"reason\"".into()),
            LocalResult::Nothing,
        ] {
            let stage = LocalStage { start: 1.25, finished: 2.5, result };
            stage.write(&mut root).unwrap();
            assert_eq!(LocalStage::read(&root), Some(stage));
        }
        root.write(LOCAL_STAGE, "{\"start\": ", Attr::root(0o600)).unwrap();
        assert_eq!(LocalStage::read(&root), None);
    }

    #[test]
    fn nothing_unwritten_is_complete() {
        for result in
            [LocalResult::Provisioned(Origin::New, ()), LocalResult::Deferred(String::new()), LocalResult::Nothing]
        {
            let unwritten = result.unwritten();
            assert!(unwritten.is_left_to_real_root() && !unwritten.is_complete(), "{unwritten:?}");
        }
        assert!(!LocalResult::Provisioned(Origin::Borrowed, ()).is_complete());
    }
}
