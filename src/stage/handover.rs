//! Hand-over from the initramfs to the real root: the later stages' units where the image lacks them, and the
//! program that they run.

use crate::base::error::Result;
use crate::root::run_dir;
use crate::root::{Attr, Root, UNIT_FOLDERS};
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

/// The units of the later stages for this boot only, for a root that lacks them.
pub struct Units {
    /// The program that they run.
    program: String,
    /// Whether a real cloud-init in the image has units of the same names.
    foreign: bool,
}

/// Makes sure that the later stages can run in the real root: by the image's own prepivot if it is installed,
/// else by this program, with the units that are returned. A real cloud-init in the image is masked if an
/// instance was `found`; otherwise the machine is left to it.
///
/// # Errors
/// The program cannot be written to /run.
pub fn hand_over(root: &mut Root, found: bool) -> Result<Option<Units>> {
    let foreign = has_cloud_init(root);
    if foreign && !found {
        return Ok(None);
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
    let has_unit = |folder: &&str| root.text(&format!("{folder}/cloud-init-local.service")).contains(INSTALLED);
    let has_units = UNIT_FOLDERS.iter().chain(&["/lib/systemd/system"]).any(has_unit);
    if installed && has_units && !foreign {
        return Ok(None);
    }
    let program = if installed { INSTALLED.to_owned() } else { run_dir::carry_program()? };
    Ok(has_systemd(root).then_some(Units { program, foreign }))
}

impl Units {
    /// Writes the units, and has systemd start them. If no stage is `left` to run, only where the image needs
    /// them: systemd takes as long to read them as an idle stage takes.
    ///
    /// # Errors
    /// They cannot be written to /run.
    pub fn start(&self, root: &mut Root, left: bool) -> Result<()> {
        if !left && !self.foreign && !is_required(root) {
            return Ok(());
        }
        for (name, text) in FILES {
            root.write(&format!("{UNITS}/{name}"), text.replace(INSTALLED, &self.program), Attr::root(0o644))?;
        }
        root.symlink(&format!("{UNITS}/cloud-init.service"), "cloud-init-network.service")?;
        // cloud-init.target pulls in the four stages.
        root.symlink(&format!("{UNITS}/multi-user.target.wants/cloud-init.target"), "../cloud-init.target")
    }
}

/// Whether units of the image start with the stages (`WantedBy=cloud-init.target`), or the administrator's own
/// require one.
fn is_required(root: &Root) -> bool {
    let is_ours = |name: &str| name == "cloud-init.service" || FILES.iter().any(|(unit, _)| *unit == name);
    let starts =
        |entry: &String| entry.strip_suffix(".wants").or_else(|| entry.strip_suffix(".requires")).is_some_and(is_ours);
    let requires = |line: &str| {
        let (key, value) = line.split_once('=').unwrap_or_default();
        ["Requires", "Requisite", "BindsTo"].contains(&key.trim()) && value.contains("cloud-")
    };
    let requires_one = |path: &String| root.read_link(path).is_none() && root.text(path).lines().any(requires);
    let below =
        |folder: &str| root.list(folder).into_iter().map(move |name| format!("{folder}/{name}")).collect::<Vec<_>>();
    let [own, ..] = UNIT_FOLDERS;
    let drop_ins = |path: &String| path.ends_with(".d") && below(path).iter().any(requires_one);
    UNIT_FOLDERS.iter().any(|folder| root.list(folder).iter().any(starts))
        || below(own).iter().any(|path| requires_one(path) || drop_ins(path))
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
        assert!(hand_over(&mut root, false).unwrap().is_none());
        assert_eq!(root.list("/run"), [""; 0]);
        hand_over(&mut root, true).unwrap().unwrap().start(&mut root, true).unwrap();
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
        hand_over(&mut root, false).unwrap().unwrap().start(&mut root, true).unwrap();
        assert!(root.exists("/run/systemd/system/cloud-final.service"));
        assert!(root.lstat(MASKED[0]).is_none());
    }
    #[test]
    fn units_for_this_boot_are_there_where_a_stage_is_left_or_a_unit_of_the_image_requires_them() {
        let starts = |left: bool, image: &[(&str, &str)]| {
            let dir = TempDir::new("handover-units");
            let mut root = Root::open(&dir.0, Use::Tree).unwrap();
            for (path, text) in [(INSTALLED, ""), ("/usr/lib/systemd/systemd", "")].iter().chain(image) {
                root.write(path, *text, Attr::root(0o755)).unwrap();
            }
            root.symlink("/etc/systemd/system/dbus-org.cloud-x.service", "/usr/lib/systemd/system/x.service").unwrap();
            let units = hand_over(&mut root, true).unwrap().unwrap();
            units.start(&mut root, left).unwrap();
            let wants = root.read_link("/run/systemd/system/multi-user.target.wants/cloud-init.target").is_some();
            assert_eq!(root.exists("/run/systemd/system/cloud-final.service"), wants);
            wants
        };
        assert!(starts(true, &[]));
        assert!(!starts(false, &[]));
        assert!(!starts(false, &[("/etc/systemd/system/multi-user.target.wants/a.service", "")]));
        assert!(!starts(false, &[("/etc/systemd/system/a.service", "[Unit]\nAfter=cloud-final.service\n")]));
        assert!(starts(false, &[("/etc/systemd/system/a.service", "[Unit]\nRequires=cloud-final.service\n")]));
        assert!(starts(false, &[("/etc/systemd/system/a.service.d/b.conf", "[Unit]\nRequires=cloud-init.target\n")]));
        assert!(starts(false, &[("/etc/systemd/system/cloud-init.target.wants/a.service", "")]));
        assert!(starts(false, &[("/usr/lib/systemd/system/cloud-final.service.requires/a.service", "")]));
        assert!(starts(false, &[("/usr/bin/cloud-init", "")]), "its units have the same names");
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
