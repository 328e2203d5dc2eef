//! SELinux: files written before the policy is loaded get their labels from the root's own setfiles, before the pivot: PID 1, udevd
//! and journald read some of them before the root is writable again. Where there is no setfiles, systemd-tmpfiles relabels them early
//! in the real root. Files created in the running system get their labels with the commit; otherwise they would keep those of their
//! temporary names.

use super::disk::Disk;
use super::layout::{STATE, UNSYNCED, is_below, is_mark, is_volatile};
use super::overlay::Node;
use super::{Attr, Change, Command, FileKind, Output, Root, is_on_disk, run_dir};
use super::{inside, installed};
use crate::base::error::{Error, Result};
use std::collections::BTreeSet;
use std::time::Duration;

/// In the root while the running kernel has a policy. In a container its file system is read-only, which means that labels must not
/// be set (is_selinux_enabled(3)).
const ENFORCE: &str = "sys/fs/selinux/enforce";
/// How long setting labels may take: restorecon reads the policy's file contexts and then a few files.
const LIMIT: Duration = Duration::from_secs(60);

/// Read by systemd-tmpfiles-setup.service (tmpfiles.d(5), type z).
const RELABEL: &str = "/run/tmpfiles.d/prepivot-relabel.conf";

/// The paths on the disk, one on a line, until the final stage of a boot has begun: a boot that is cut off before takes [`RELABEL`]
/// with it, and labels that are not synced.
fn unlabelled() -> String {
    format!("/{STATE}/data/prepivot-unlabelled")
}

/// Whether SELinux is enabled in the system that runs the root's commands.
pub(super) fn has_policy(disk: &Disk) -> bool {
    disk.stat(ENFORCE).is_some() && !disk.is_read_only("sys/fs/selinux")
}

/// The SELinux labels that the running system's commits set.
pub(super) struct Labels {
    /// Whether what is created needs one.
    are_set: bool,
    /// Created paths still without one.
    missing: Vec<String>,
    /// Whether a failure to set them was reported.
    is_reported: bool,
}

impl Labels {
    /// No path lacks its label. With `are_set`, what is created from now on does.
    pub(super) fn new(are_set: bool) -> Labels {
        Labels { are_set, missing: Vec::new(), is_reported: false }
    }

    /// Notes that a change is about to be made: if it creates what it names, [`Root::set_labels`] is to set the label. A file that
    /// is replaced keeps its own.
    pub(super) fn note_created(&mut self, disk: &Disk, change: &Change) {
        let kind = match change {
            Change::Write { .. } => Some(FileKind::File),
            Change::Mkdir { .. } => Some(FileKind::Dir),
            _ => None,
        };
        if self.are_set && (kind.is_none() || disk.stat(change.resolved()).map(|s| s.kind) != kind) {
            self.need(change);
        }
    }

    /// Has [`Root::set_labels`] set the label of what a change creates. Marks have their folder's label; prepivot's own folder in
    /// /run needs none.
    pub(super) fn need(&mut self, change: &Change) {
        let path = change.resolved();
        let creates = matches!(change, Change::Write { .. } | Change::Mkdir { .. } | Change::Symlink { .. });
        let is_own = is_below(path, run_dir::DIR.trim_start_matches('/')) || is_mark(path);
        if self.are_set && creates && !is_own {
            self.missing.push(change.path().to_owned());
        }
    }

    /// The paths that lack their labels. They are no longer known.
    fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.missing)
    }
}

impl Root {
    /// In the running system with SELinux: sets the labels of the files created since the last call. A failure is only a warning:
    /// the files are there, and the next relabelling of the machine sets them.
    pub(super) fn set_labels(&mut self) {
        let paths = self.labels.take();
        if paths.is_empty() || !self.runs_commands() {
            return;
        }
        // Both take patterns, one on a line.
        let paths = paths.iter().filter(|path| !path.contains('\n'));
        let (program, arguments, lines): (_, &[&str], String) =
            if let Some(program) = installed::which(self, "restorecon") {
                (program, &["-i", "-f", "-"], paths.map(|path| pattern(path) + "\n").collect())
            } else if let Some(program) = installed::which(self, "systemd-tmpfiles") {
                (program, &["--create", "-"], paths.map(|path| line(path)).collect())
            } else {
                return;
            };
        let argv = [program.as_str()].into_iter().chain(arguments.iter().copied());
        let command = Command::new(argv).stdin(lines).limit(LIMIT).with_errors();
        let why = match self.execute(command, true) {
            Ok(Output { status: 0, .. }) => return,
            Ok(output) => failure(&program, &output),
            Err(e) => e.to_string(),
        };
        if !std::mem::replace(&mut self.labels.is_reported, true) {
            log::warn!("failed to set SELinux labels of what was written: {why}");
        }
    }
}

/// What has come of the labels of what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Labelled {
    /// They are set, or none is needed.
    Now,
    /// systemd-tmpfiles sets them: a list is to be committed.
    Later,
}

/// Sets the labels of everything that was written, and of what an earlier boot left unlabelled, if the root has SELinux and it is
/// not disabled. In an initramfs the root's setfiles does; otherwise, or where that fails, it is listed in [`RELABEL`].
///
/// # Errors
/// /run cannot be written.
pub fn label(root: &mut Root) -> Result<Labelled> {
    if !has_selinux(root) {
        return Ok(Labelled::Now);
    }
    let paths = paths_with(root, &[]);
    if paths.is_empty() {
        return Ok(Labelled::Now);
    }
    match if root.is_initramfs() { set_before_pivot(root, &paths) } else { Ok(false) } {
        Ok(true) => return Ok(Labelled::Now),
        Ok(false) => {}
        Err(e) => log::info!("SELinux labels are set by systemd-tmpfiles: {e}"),
    }
    root.write(RELABEL, paths.iter().map(|path| line(path)).collect::<String>(), Attr::root(0o644))?;
    Ok(Labelled::Later)
}

/// Sets the labels of `paths` by the root's setfiles. Returns whether it is there.
fn set_before_pivot(root: &Root, paths: &BTreeSet<String>) -> Result<bool> {
    let contexts = format!("/etc/selinux/{}/contexts/files/file_contexts", setting(root, "SELINUXTYPE"));
    let Some(setfiles) = installed::which(root, "setfiles").filter(|_| root.is_file(&contexts)) else {
        return Ok(false);
    };
    // setfiles takes a folder with what is in it.
    let lines: String =
        paths.iter().filter(|path| has_only(root, paths, path)).map(|path| pattern(path) + "\n").collect();
    let command = Command::new([&setfiles, "-i", "-f", "-", &contexts]).stdin(lines).limit(LIMIT).with_errors();
    match inside::run(root.path(), command)? {
        Output { status: 0, .. } => Ok(true),
        output => Err(Error::new(failure(&setfiles, &output))),
    }
}

/// How a program failed: its exit status, and the first line of what it said.
fn failure(program: &str, output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    format!("{program} ended with exit status {}: {}", output.status, stderr.lines().next().unwrap_or_default())
}

/// Whether `path` is no folder, or one in which everything is listed: what else is in a folder keeps its labels.
fn has_only(root: &Root, paths: &BTreeSet<String>, path: &str) -> bool {
    root.lstat(path).is_none_or(|stat| stat.kind != FileKind::Dir)
        || root.list(path).iter().all(|name| paths.contains(&format!("{path}/{name}")))
}

/// Keeps the list on the disk too, with what the next commit writes, if the root has SELinux. Called when
/// [`Root::drop_unchanged`] has left changes to the disk.
///
/// # Errors
/// As [`Root::write`].
pub fn keep_list(root: &mut Root) -> Result<()> {
    if !has_selinux(root) {
        return Ok(());
    }
    // Files that wait for their file system get their labels from the running system.
    let is_new = |path: &str, node: &Node| {
        !matches!(node, Node::Absent) && !is_volatile(path) && !root.overlay.below_unmounted(path)
    };
    let new = root.overlay.nodes().filter(|(path, node)| is_new(path, node)).map(|(path, _)| format!("/{path}"));
    // The boot's log and status come last.
    let new: Vec<String> = new.chain(UNSYNCED.map(|path| format!("/{path}"))).chain([unlabelled()]).collect();
    let lines: String = paths_with(root, &new).iter().map(|path| format!("{path}\n")).collect();
    root.write(&unlabelled(), lines, Attr::root(0o600))
}

/// Whether an earlier boot may have left files without a label.
pub fn has_list(root: &Root) -> bool {
    root.exists(&unlabelled())
}

/// In the running system, which has labelled all: removes the list.
///
/// # Errors
/// As [`Root::remove`].
pub fn forget_list(root: &mut Root) -> Result<()> {
    root.remove(&unlabelled())
}

fn has_selinux(root: &Root) -> bool {
    !matches!(setting(root, "SELINUX").as_str(), "" | "disabled")
}

/// A setting of selinux_config(5); empty if it is not there.
fn setting(root: &Root, key: &str) -> String {
    let selinux = root.text("/etc/selinux/config");
    let value = |line: &str| Some(line.trim().strip_prefix(key)?.strip_prefix('=')?.trim().to_owned());
    selinux.lines().rev().find_map(value).unwrap_or_default()
}

/// The paths on the disk's list, those of what was written, and `more`. A path with a line feed is in no list.
fn paths_with(root: &Root, more: &[String]) -> BTreeSet<String> {
    let kept = root.text(&unlabelled());
    let written = root.done().iter().chain(more).filter(|path| is_on_disk(path) && !path.contains('\n')).cloned();
    kept.lines().filter(|line| line.starts_with('/')).map(str::to_owned).chain(written).collect()
}

/// The pattern (glob(3)) that only `path` matches.
fn pattern(path: &str) -> String {
    let escaped = |c: char| ['\\', '*', '?', '[', '{'].contains(&c).then_some('\\');
    path.chars().flat_map(|c| escaped(c).into_iter().chain([c])).collect()
}

/// The line of tmpfiles.d(5) that relabels what is at `path`.
fn line(path: &str) -> String {
    let quoted = pattern(path).replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%");
    format!("z \"{quoted}\"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::journal_file::JournalFile;
    use crate::root::record::Entry;
    use crate::root::{Over, Programs, Use};
    use std::cell::RefCell;
    use std::os::unix::fs::PermissionsExt;
    use std::rc::Rc;

    const ODD: &str = "/srv/[a]{b}*?\\x2d\"%";

    /// The calls of labelling programs since the last time: the program's name with its arguments, and its input.
    type Calls = Rc<RefCell<Vec<(String, String)>>>;

    /// A running system with SELinux and these programs.
    fn running(dir: &TempDir, programs: &[&str]) -> (Root, Calls) {
        dir.write(ENFORCE, "1");
        for program in programs {
            let path = format!("usr/sbin/{program}");
            dir.write(&path, "");
            std::fs::set_permissions(dir.0.join(path), std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut root = dir.root(Use::Tree);
        let calls = Calls::default();
        let noted = calls.clone();
        let play: Programs = Box::new(move |_, command| {
            let input = String::from_utf8(command.stdin.clone().unwrap_or_default()).unwrap();
            noted.borrow_mut().push((command.argv.join(" "), input));
            Ok(Output { status: 255, stdout: Vec::new(), stderr: Vec::new() })
        });
        root.play(play);
        (root, calls)
    }

    #[test]
    fn the_running_system_labels_what_is_created() {
        let dir = TempDir::new("relabel-running");
        let (mut root, calls) = running(&dir, &["restorecon", "systemd-tmpfiles"]);
        root.write("/home/a/.ssh/authorized_keys", "x", Attr::root(0o600)).unwrap();
        root.write(&format!("/{STATE}/sem/config_x.once"), "x", Attr::root(0o600)).unwrap();
        root.write(&format!("{}/x", run_dir::DIR), "x", Attr::root(0o600)).unwrap();
        root.symlink("/run/link", "x").unwrap();
        root.write(ODD, "x", Attr::root(0o600)).unwrap();
        assert_eq!(root.commit(), []);
        let lines = "/run\n/run/link\n/home\n/home/a\n/home/a/.ssh\n/home/a/.ssh/authorized_keys\n/srv\n\
                     /srv/\\[a]\\{b}\\*\\?\\\\x2d\"%\n/var\n/var/lib\n/var/lib/cloud\n/var/lib/cloud/sem\n";
        let call = |lines: &str| vec![("/usr/sbin/restorecon -i -f -".to_owned(), lines.to_owned())];
        assert_eq!(calls.take(), call(lines));
        assert!(root.labels.is_reported && root.commands().is_empty());

        // Existing files keep their labels.
        root.write("/home/a/.ssh/authorized_keys", "y", Attr::root(0o644)).unwrap();
        root.write(&format!("/{STATE}/sem/config_y.once"), "x", Attr::root(0o600)).unwrap();
        root.remove("/srv").unwrap();
        assert_eq!((root.commit(), calls.take()), (vec![], vec![]));
        // But not if it was something else.
        root.remove("/run/link").unwrap();
        root.write("/run/link", "x", Attr::root(0o600)).unwrap();
        assert_eq!((root.commit(), calls.take()), (vec![], call("/run/link\n")));

        let dir = TempDir::new("relabel-tmpfiles");
        let (mut root, calls) = running(&dir, &["systemd-tmpfiles"]);
        root.write("/new", "x", Attr::root(0o600)).unwrap();
        assert_eq!(root.commit(), []);
        let call = ("/usr/sbin/systemd-tmpfiles --create -".to_owned(), "z \"/new\"\n".to_owned());
        assert_eq!(calls.take(), [call]);
    }

    #[test]
    fn labels_the_initramfss_leftovers_once_written() {
        let dir = TempDir::new("relabel-recovered");
        dir.write("etc/fstab", "LABEL=h /home ext4 defaults 0 2\n");
        let mut root = dir.root(Use::NewRoot);
        assert_eq!(root.recover(), []);
        root.write("/home/a/file", "x", Attr::root(0o644)).unwrap();
        assert_eq!(root.commit(), []);
        assert!(!root.done().iter().any(|path| path.starts_with("/home")));
        // Cut off after the file was made, but before its label was set.
        dir.write("srv/cut", "x");
        let change = Change::Write {
            path: "/srv/cut".into(),
            content: "x".into(),
            attr: Attr::root(0o644),
            over: Over::Replace,
        };
        JournalFile::write(root.overlay.disk(), "etc", &[Entry { change, hidden: false }], &[]).unwrap();
        let (mut root, calls) = running(&dir, &["restorecon"]);
        assert_eq!(root.recover(), []);
        let called = calls.take();
        let lines: String = called.into_iter().map(|(_, lines)| lines).collect();
        assert!(lines.contains("/home/a\n/home/a/file\n") && lines.contains("/srv/cut\n"), "{lines}");
    }

    #[test]
    fn setfiles_gets_no_folder_of_others_files() {
        let dir = TempDir::with("relabel-folders", &[("etc/theirs", ""), ("srv/own/file", ""), ("srv/file", "")]);
        std::os::unix::fs::symlink("etc", dir.0.join("link")).unwrap();
        let root = dir.root(Use::Tree);
        let paths: BTreeSet<String> = ["/etc", "/link", "/srv/own", "/srv/own/file", "/srv"].map(str::to_owned).into();
        let given: Vec<&String> = paths.iter().filter(|path| has_only(&root, &paths, path)).collect();
        assert_eq!(given, ["/link", "/srv/own", "/srv/own/file"]);
    }

    #[test]
    fn next_boot_relabels_files_after_a_cut() {
        let dir = TempDir::new("relabel");
        dir.write("etc/selinux/config", "SELINUX=enforcing\n");
        let boot = || {
            let _ = std::fs::remove_dir_all(dir.0.join("run"));
            let mut root = dir.root(Use::NewRoot);
            assert_eq!(root.recover(), []);
            for path in ["/srv/new", ODD] {
                root.write(path, "x", Attr::root(0o644)).unwrap();
            }
            root.drop_unchanged();
            if root.has_changes_on_disk() {
                keep_list(&mut root).unwrap();
            }
            assert_eq!(root.commit(), []);
            label(&mut root).unwrap();
            root.text(RELABEL)
        };
        for _ in 0..2 {
            let lines = boot();
            assert!(lines.contains("z \"/srv/new\"\n") && lines.contains("z \"/srv\"\n"), "{lines}");
            assert!(lines.contains("/prepivot-unlabelled\"\n"), "{lines}");
            // tmpfiles.d(5) removes one of two backslashes and one of two percent signs; the rest is a pattern.
            assert!(lines.contains("z \"/srv/\\\\[a]\\\\{b}\\\\*\\\\?\\\\\\\\x2d\\\"%%\"\n"), "{lines}");
        }
        let mut running = Root::open(&dir.0, crate::root::Use::Tree).unwrap();
        assert!(has_list(&running));
        forget_list(&mut running).unwrap();
        assert_eq!(running.commit(), []);
        assert_eq!(boot(), "");
    }
}
