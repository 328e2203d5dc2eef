//! Facts about the machine, read only: kernel command line, DMI, NICs, distribution, container.

pub mod appear;
pub mod beneath;
pub mod cmdline;
pub mod container;
pub mod credentials;
pub mod distro;
pub mod drivers;
pub mod nic;
pub mod tools;

pub use cmdline::Cmdline;
pub use distro::{Distro, Family};
pub use drivers::Drivers;
pub use nic::{Nic, Nics};
pub use tools::Tools;

use std::path::{Path, PathBuf};

/// UUIDs of boards whose maker set none: the firmware's template, in either byte order. The kernel ignores zeros and
/// ones itself.
const PLACEHOLDERS: [&str; 2] = ["03000200-0400-0500-0006-000700080009", "00020003-0004-0005-0006-000700080009"];

/// Facts about this machine, read once. No other part reads /proc, /sys or DMI.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    /// The folder that contains `proc` and `sys`: `/`, or a tree that represents a machine.
    pub base: PathBuf,
    /// The kernel command line. In a container, whose kernel's is the host's, the arguments of PID 1.
    pub cmdline: Cmdline,
    /// The name of the container that this is, or of WSL.
    pub container: Option<String>,
}

impl Machine {
    /// Reads the facts below `base` (`/` for this machine).
    pub fn read(base: &Path) -> Machine {
        let container = container::detect(base);
        let is_container = container.as_deref().is_some_and(container::is_container);
        Machine { base: base.to_owned(), cmdline: Machine::cmdline_of(base, is_container), container }
    }

    /// The kernel command line of the machine below `base`, or in a container the arguments of PID 1.
    pub fn cmdline_of(base: &Path, is_container: bool) -> Cmdline {
        let path = if is_container { "proc/1/cmdline" } else { "proc/cmdline" };
        Cmdline::new(&beneath::read(base, path).unwrap_or_default().replace('\0', " "))
    }

    /// Whether this is a container: its firmware, block devices and kernel are the host's. Not WSL.
    pub fn is_container(&self) -> bool {
        self.container.as_deref().is_some_and(container::is_container)
    }

    /// Whether this is a virtual machine whose memory its host cannot read: AMD's SEV-SNP, Intel's TDX, IBM's Secure Execution. What
    /// the host gives it outside of what is measured is not to be trusted.
    pub fn is_confidential(&self) -> bool {
        let has_flag = |text: String| text.split_ascii_whitespace().any(|word| word == "tdx_guest");
        ["sys/devices/platform/sev-guest", "sys/devices/virtual/misc/tdx_guest"]
            .iter()
            .any(|p| beneath::exists(&self.base, p))
            || self.fact("sys/firmware/uv/prot_virt_guest").is_some_and(|text| text.trim() == "1")
            || self.fact("proc/cpuinfo").is_some_and(has_flag)
    }

    /// A DMI value by the kernel's name for it (`product_uuid`, `chassis_asset_tag`, …), trimmed. None if it does not
    /// exist or cannot be read, and in a container, which sees the host's.
    pub fn dmi(&self, key: &str) -> Option<String> {
        if key.contains(['/', '.']) || self.is_container() {
            return None;
        }
        let value = beneath::read(&self.base, &format!("sys/class/dmi/id/{key}"))?;
        Some(value.trim().to_owned())
    }

    /// The start of a file below the base as text, such as `proc/1/environ`. None if it is not a regular
    /// file.
    pub fn fact(&self, path: &str) -> Option<String> {
        beneath::read(&self.base, path)
    }

    /// A variable of this process's environment, else of PID 1's, which is a container's. For a tree only the
    /// latter. None if it is empty.
    pub fn variable(&self, name: &str) -> Option<String> {
        let own = (self.base == Path::new("/")).then(|| std::env::var(name).ok()).flatten();
        own.or_else(|| beneath::variable(&self.base, name)).filter(|v| !v.is_empty())
    }

    /// The system's UUID in lower case. None if it is one that many boards have.
    pub fn uuid(&self) -> Option<String> {
        let uuid = self.dmi("product_uuid")?.to_ascii_lowercase();
        Some(uuid).filter(|uuid| !uuid.is_empty() && !PLACEHOLDERS.contains(&uuid.as_str()))
    }

    /// Xen's UUID for the machine, in lower case (`/sys/hypervisor/uuid`). None elsewhere.
    pub fn hypervisor_uuid(&self) -> Option<String> {
        let uuid = beneath::read(&self.base, "sys/hypervisor/uuid")?.trim().to_ascii_lowercase();
        Some(uuid).filter(|u| !u.is_empty())
    }

    /// Network interfaces, sorted by name.
    pub fn nics(&self) -> Vec<Nic> {
        nic::list(&self.base)
    }
}

#[cfg(test)]
mod tests {

    use crate::base::testing::TempDir;

    #[test]
    fn a_uuid_that_many_boards_have_is_none() {
        let dir = TempDir::new("uuid");
        std::fs::create_dir_all(dir.0.join("sys/class/dmi/id")).unwrap();
        let uuid = |text: &str| {
            dir.write("sys/class/dmi/id/product_uuid", text);
            dir.machine().uuid()
        };
        assert_eq!(uuid("03000200-0400-0500-0006-000700080009\n"), None);
        assert_eq!(uuid("00020003-0004-0005-0006-000700080009\n"), None);
        assert_eq!(uuid("\n"), None);
        assert_eq!(uuid("0002000A-0004-0005-0006-000700080009\n").unwrap(), "0002000a-0004-0005-0006-000700080009");
    }

    #[test]
    fn facts_come_from_the_tree_that_is_named() {
        let dir = TempDir::new("machine");
        std::fs::create_dir_all(dir.0.join("sys/class/dmi/id")).unwrap();
        std::fs::create_dir_all(dir.0.join("proc")).unwrap();
        dir.write("sys/class/dmi/id/product_uuid", "ABCD-1\n");
        dir.write("proc/cmdline", "root=/dev/vda ds=nocloud quiet\n");
        let machine = dir.machine();
        assert_eq!(machine.uuid().as_deref(), Some("abcd-1"));
        assert_eq!(machine.dmi("../../../../proc/cmdline"), None);
        assert_eq!(machine.cmdline.value("ds"), Some("nocloud"));
        // In a container both are the host's.
        dir.write("proc/1/environ", "TERM=x\0container=lxc\0");
        dir.write("proc/1/cmdline", "/sbin/init\0ds=lxd\0");
        let machine = dir.machine();
        assert_eq!((machine.uuid(), machine.cmdline.value("ds")), (None, Some("lxd")));
        assert_eq!(machine.container.as_deref(), Some("lxc"));
    }
}
