//! Facts about a root, read through it: its distribution, its programs, and the folders of its units.

use super::{FileKind, Root};
use crate::machine::Distro;
use crate::machine::tools::Tools;

/// The usual folders of programs; the first that has a program takes precedence.
pub const PROGRAM_FOLDERS: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// The folders of an image's units (systemd.unit(5)); the first takes precedence, and is the administrator's. The last two are the
/// same folder on merged-/usr systems.
pub(super) const UNIT_FOLDERS: [&str; 4] =
    ["/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];

/// The text of os-release(5): the administrator's file, or else the vendor's. Raspberry Pi OS of 64 bits has Debian's, and a
/// file of its own beside it: its ID comes first then (cloud-init 26.2, util.py, `get_linux_distro`).
pub fn os_release(root: &Root) -> String {
    let own = root.text("/etc/os-release");
    let text = if own.is_empty() { root.text("/usr/lib/os-release") } else { own };
    if root.exists("/etc/rpi-issue") { format!("ID=raspberry-pi-os\n{text}") } else { text }
}

/// The distribution by [`os_release`].
pub fn distro(root: &Root) -> Distro {
    Distro::of_os_release(&os_release(root))
}

/// Where a program is: in the first of the usual folders that has it.
pub fn which(root: &Root, program: &str) -> Option<String> {
    PROGRAM_FOLDERS
        .iter()
        .map(|folder| format!("{folder}/{program}"))
        .find(|path| root.stat(path).is_some_and(|s| s.kind == FileKind::File && s.attr.mode & 0o111 != 0))
}

/// The folders of the root's units, each once: those of the administrator and those of the vendor.
pub fn unit_folders(root: &Root) -> (&'static str, Vec<&'static str>) {
    let [own, vendor @ .., lib] = UNIT_FOLDERS;
    let is_own = |path: &str| root.lstat(path).is_some_and(|s| s.kind == FileKind::Dir);
    (own, vendor.into_iter().chain(Some(lib).filter(|_| is_own("/lib"))).collect())
}

/// The programs that may be run to find out facts: the running system's if this is its root, else none.
pub fn tools(root: &Root) -> Tools {
    if root.is_live() { Tools::of_this_system() } else { Tools::none() }
}
