//! Whether this boot is provisioned at all, and for what reason.

use super::state::RUN_DIR;
use crate::detect::{self, MARKER, disabled_by_policy};
use crate::machine::{Cmdline, Machine};
use crate::root::Root;

/// cloud-init's marker of a boot that is provisioned. cloud-init's generator writes it; here the first stage
/// does.
pub const ENABLED: &str = "/run/cloud-init/enabled";

/// cloud-init's boot status codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootStatus {
    DisabledByGenerator,
    DisabledByKernelCmdline,
    DisabledByMarkerFile,
    DisabledByEnvironment,
    EnabledByGenerator,
    EnabledByKernelCmdline,
    EnabledBySysvinit,
    Unknown,
}

impl BootStatus {
    /// The code as `status` prints it.
    pub fn name(self) -> &'static str {
        match self {
            BootStatus::DisabledByGenerator => "disabled-by-generator",
            BootStatus::DisabledByKernelCmdline => "disabled-by-kernel-command-line",
            BootStatus::DisabledByMarkerFile => "disabled-by-marker-file",
            BootStatus::DisabledByEnvironment => "disabled-by-environment-variable",
            BootStatus::EnabledByGenerator => "enabled-by-generator",
            BootStatus::EnabledByKernelCmdline => "enabled-by-kernel-command-line",
            BootStatus::EnabledBySysvinit => "enabled-by-sysvinit",
            BootStatus::Unknown => "unknown",
        }
    }

    /// Whether nothing is provisioned.
    pub fn is_disabled(self) -> bool {
        matches!(
            self,
            BootStatus::DisabledByGenerator
                | BootStatus::DisabledByKernelCmdline
                | BootStatus::DisabledByMarkerFile
                | BootStatus::DisabledByEnvironment
        )
    }
}

/// Whether the boot is provisioned, and the reason in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boot {
    pub status: BootStatus,
    pub reason: String,
}

fn boot(status: BootStatus, reason: impl Into<String>) -> Boot {
    Boot { status, reason: reason.into() }
}

fn by_environment() -> Boot {
    boot(BootStatus::DisabledByEnvironment, "KERNEL_CMDLINE=cloud-init=disabled is in the environment")
}

/// The administrator's configuration: on the kernel command line, by the marker file, in this program's
/// environment from systemd (systemd.setenv=), or by ds-identify's policy. None if nothing is configured.
pub fn asked(root: &Root, machine: &Machine) -> Option<Boot> {
    if machine.cmdline.has("cloud-init=enabled") {
        return Some(boot(BootStatus::EnabledByKernelCmdline, "cloud-init=enabled is on the kernel command line"));
    }
    if root.exists(MARKER) {
        return Some(boot(BootStatus::DisabledByMarkerFile, format!("{MARKER} is there")));
    }
    if machine.cmdline.has(detect::DISABLED) {
        return Some(boot(BootStatus::DisabledByKernelCmdline, "cloud-init=disabled is on the kernel command line"));
    }
    if machine.variable(detect::VARIABLE).is_some_and(|words| Cmdline::new(&words).has(detect::DISABLED)) {
        return Some(by_environment());
    }
    disabled_by_policy(root, &machine.cmdline).map(|why| boot(BootStatus::DisabledByGenerator, why))
}

/// What PID 1 says about provisioning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstProcess {
    /// It is not systemd.
    Other,
    Systemd,
    /// It is systemd, with `KERNEL_CMDLINE=cloud-init=disabled` in its environment.
    DisablingSystemd,
}

/// Whether this boot is provisioned.
pub fn decide(root: &Root, machine: &Machine, first: FirstProcess) -> Boot {
    if let Some(boot) = asked(root, machine) {
        return boot;
    }
    match first {
        FirstProcess::Other => {
            return boot(BootStatus::EnabledBySysvinit, "enabled: the system is not booted with systemd");
        }
        FirstProcess::DisablingSystemd => return by_environment(),
        FirstProcess::Systemd => {}
    }
    if root.exists(&format!("{RUN_DIR}/disabled")) {
        return boot(BootStatus::DisabledByGenerator, format!("{RUN_DIR}/disabled is there"));
    }
    if root.exists(ENABLED) {
        return boot(BootStatus::EnabledByGenerator, format!("{ENABLED} is there"));
    }
    boot(BootStatus::Unknown, "no stage has run yet")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::{Attr, Use};

    #[test]
    fn command_line_beats_marker_beats_earlier_run() {
        let dir = TempDir::new("boot");
        let mut root = dir.root(Use::Tree);
        let machine = |line: &str| Machine { cmdline: Cmdline::new(line), ..Machine::default() };
        let code = |root: &Root, line: &str, first| decide(root, &machine(line), first).status.name();
        assert_eq!(code(&root, "quiet", FirstProcess::Systemd), "unknown");
        assert_eq!(code(&root, "quiet", FirstProcess::Other), "enabled-by-sysvinit");
        assert_eq!(code(&root, "quiet", FirstProcess::DisablingSystemd), "disabled-by-environment-variable");
        assert_eq!(code(&root, "cloud-init=disabled", FirstProcess::Other), "disabled-by-kernel-command-line");
        for (path, expected) in [
            (ENABLED.to_owned(), "enabled-by-generator"),
            (format!("{RUN_DIR}/disabled"), "disabled-by-generator"),
            (MARKER.to_owned(), "disabled-by-marker-file"),
        ] {
            root.write(&path, "", Attr::root(0o644)).unwrap();
            assert_eq!(code(&root, "quiet", FirstProcess::Systemd), expected);
        }
        assert_eq!(code(&root, "cloud-init=enabled", FirstProcess::DisablingSystemd), "enabled-by-kernel-command-line");
    }

    #[test]
    fn the_environment_disables_in_the_initramfs_too() {
        let dir = TempDir::new("environment");
        std::fs::create_dir_all(dir.0.join("proc/1")).unwrap();
        let root = dir.root(Use::Tree);
        let machine = Machine { base: dir.0.clone(), ..Machine::default() };
        for (variable, status) in [("KERNEL_CMDLINE=quiet", None), ("KERNEL_CMDLINE=cloud-init=disabled", Some(true))] {
            dir.write("proc/1/environ", format!("HOME=/\0{variable}\0"));
            assert_eq!(asked(&root, &machine).map(|boot| boot.status.is_disabled()), status, "{variable}");
        }
    }
}
