//! Hand-over from the initramfs to the real root: the later stages' units where the image lacks them, and the
//! program that they run.

use crate::base::error::Result;
use crate::root::run_dir;
use crate::root::{Attr, Root};
use crate::system::service::has_systemd;

/// The real root's own copy of the program.
pub const INSTALLED: &str = "/usr/bin/prepivot";
/// systemd's unit folder for this boot only. Its units take precedence over those in /usr/lib
/// (systemd.unit(5), search path).
const UNITS: &str = "/run/systemd/system";

/// The names of the units that the removal of a package has masked (deb-systemd-helper(1p)).
const MASKED_BY_PACKAGES: &str = "/var/lib/systemd/deb-systemd-helper-masked";

/// The units of the later stages, under cloud-init's names.
const FILES: [(&str, &str); 6] = [
    ("cloud-init-local.service", include_str!("../../initramfs/units/cloud-init-local.service")),
    ("cloud-init-network.service", include_str!("../../initramfs/units/cloud-init-network.service")),
    ("cloud-config.service", include_str!("../../initramfs/units/cloud-config.service")),
    ("cloud-final.service", include_str!("../../initramfs/units/cloud-final.service")),
    ("cloud-config.target", include_str!("../../initramfs/units/cloud-config.target")),
    ("cloud-init.target", include_str!("../../initramfs/units/cloud-init.target")),
];
/// Units and generators of a real cloud-init, masked so that the work is not done twice.
const MASKED: [&str; 4] = [
    "/run/systemd/system/cloud-init-main.service",
    "/run/systemd/system/cloud-init-hotplugd.socket",
    "/run/systemd/system/cloud-init-hotplugd.service",
    "/run/systemd/system-generators/cloud-init-generator",
];

/// Makes sure that the later stages run in the real root: by the image's own prepivot if it is installed,
/// else by this program and units for this boot. A real cloud-init in the image is masked if an instance was
/// `found`; otherwise the machine is left to it.
///
/// # Errors
/// The units or the program cannot be written to /run.
pub fn hand_over(root: &mut Root, found: bool) -> Result<()> {
    let foreign = has_cloud_init(root);
    if foreign && !found {
        return Ok(());
    }
    if foreign {
        log::info!("the image has a cloud-init of its own: it is kept from running in this boot");
        for path in MASKED {
            root.symlink(path, "/dev/null")?;
        }
    }
    let may_be_masked = root.is_dir(MASKED_BY_PACKAGES);
    for (name, _) in FILES.iter().filter(|_| may_be_masked) {
        // Debian's packages, up to debhelper 13.10, masked their units when they were removed, and noted it. Such a mask is not the
        // administrator's.
        let (mask, note) = (format!("/etc/systemd/system/{name}"), format!("{MASKED_BY_PACKAGES}/{name}"));
        if root.exists(&note) && root.read_link(&mask).as_deref() == Some("/dev/null") {
            root.remove(&mask)?;
            root.remove(&note)?;
        }
    }
    let installed = root.exists(INSTALLED);
    let has_units =
        ["/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system", "/etc/systemd/system"]
            .iter()
            .any(|folder| root.text(&format!("{folder}/cloud-init-local.service")).contains(INSTALLED));
    if installed && has_units && !foreign {
        return Ok(());
    }
    let program = if installed { INSTALLED.to_owned() } else { run_dir::carry_program()? };
    if !has_systemd(root) {
        return Ok(());
    }
    for (name, text) in FILES {
        root.write(&format!("{UNITS}/{name}"), text.replace(INSTALLED, &program), Attr::root(0o644))?;
    }
    root.symlink(&format!("{UNITS}/cloud-init.service"), "cloud-init-network.service")?;
    // cloud-init.target pulls in the four stages.
    root.symlink(&format!("{UNITS}/multi-user.target.wants/cloud-init.target"), "../cloud-init.target")
}

/// Whether /usr/bin/cloud-init belongs to another package.
fn has_cloud_init(root: &Root) -> bool {
    root.lstat("/usr/bin/cloud-init").is_some()
        && !root.read_link("/usr/bin/cloud-init").is_some_and(|target| target.ends_with("prepivot"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::Use;

    #[test]
    fn a_cloud_init_of_the_image_runs_only_where_nothing_is_found() {
        let dir = TempDir::new("handover");
        let mut root = Root::open(&dir.0, Use::Tree).unwrap();
        for path in [INSTALLED, "/usr/bin/cloud-init", "/usr/lib/systemd/systemd"] {
            root.write(path, "", Attr::root(0o755)).unwrap();
        }
        hand_over(&mut root, false).unwrap();
        assert_eq!(root.list("/run"), [""; 0]);
        hand_over(&mut root, true).unwrap();
        for path in MASKED {
            assert_eq!(root.read_link(path).as_deref(), Some("/dev/null"), "{path}");
        }
        assert!(
            root.text("/run/systemd/system/cloud-init-local.service")
                .contains("ExecStart=/usr/bin/prepivot init --local")
        );

        // The name is a link to this program: nothing of it belongs to another package.
        root.remove("/usr/bin/cloud-init").unwrap();
        root.remove("/run").unwrap();
        root.symlink("/usr/bin/cloud-init", "prepivot").unwrap();
        hand_over(&mut root, false).unwrap();
        assert!(root.exists("/run/systemd/system/cloud-final.service"));
        assert!(root.lstat(MASKED[0]).is_none());
    }
    #[test]
    fn what_a_removed_package_masked_runs() {
        let dir = TempDir::new("handover-masked");
        let mut root = Root::open(&dir.0, Use::Tree).unwrap();
        root.write(INSTALLED, "", Attr::root(0o755)).unwrap();
        let mask = |name: &str| format!("/etc/systemd/system/{name}.service");
        for name in ["cloud-init-local", "cloud-final"] {
            root.symlink(&mask(name), "/dev/null").unwrap();
        }
        root.write(&format!("{MASKED_BY_PACKAGES}/cloud-init-local.service"), "", Attr::root(0o644)).unwrap();
        hand_over(&mut root, true).unwrap();
        assert!(root.lstat(&mask("cloud-init-local")).is_none());
        assert!(root.lstat(&mask("cloud-final")).is_some(), "the administrator's");
    }
}
