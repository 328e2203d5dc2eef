//! SELinux: files written before the policy is loaded are relabelled by systemd-tmpfiles, early in the real
//! root.

use super::{Attr, Root, is_on_disk};
use crate::base::error::Result;

/// Read by systemd-tmpfiles-setup.service (tmpfiles.d(5), type z).
const RELABEL: &str = "/run/tmpfiles.d/prepivot-relabel.conf";

impl Root {
    /// Lists everything that was written in [`RELABEL`], if the root has SELinux and it is not disabled.
    ///
    /// # Errors
    /// /run cannot be written.
    pub fn relabel_later(&mut self) -> Result<()> {
        let selinux = self.text("/etc/selinux/config");
        let mode = selinux.lines().rev().find_map(|l| l.trim().strip_prefix("SELINUX=")).map(str::trim);
        if mode.is_none_or(|m| m == "disabled") {
            return Ok(());
        }
        let mut lines: Vec<String> = self
            .done()
            .iter()
            .filter(|path| is_on_disk(path))
            .map(|path| format!("z \"{}\"\n", path.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%")))
            .collect();
        lines.sort();
        lines.dedup();
        if lines.is_empty() { Ok(()) } else { self.write(RELABEL, lines.concat(), Attr::root(0o644)) }
    }
}
