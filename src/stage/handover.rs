//! Hand-over from the initramfs to the real root: the later stages' units if the image lacks them, and the program that they run.

use crate::base::error::Result;
use crate::root::run_dir;
use crate::root::{Attr, Root, Stage, installed};
use crate::system::hotplug;
use crate::system::service::has_systemd;

/// The real root's own copy of the program.
pub const INSTALLED: &str = "/usr/bin/prepivot";
/// systemd's unit folder for this boot only. Its units take precedence over those in /usr/lib
/// (systemd.unit(5), search path).
const UNITS: &str = "/run/systemd/system";

/// The names of the units that the removal of a package has masked (deb-systemd-helper(1p)).
const MASKED_BY_PACKAGES: &str = "/var/lib/systemd/deb-systemd-helper-masked";

/// When a unit is of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// While this stage, or one before it, has work: other units are ordered after it.
    Stage(Stage),
    /// When network devices are added.
    Hotplug,
    /// While any of these units is of use: it pulls them in.
    Target,
}

/// The units of the real root's stages, under cloud-init's names. One that this build leaves out has no text.
const FILES: [(&str, Purpose, &str); 8] = [
    (
        "cloud-init-local.service",
        Purpose::Stage(Stage::Local),
        include_str!("../../initramfs/units/cloud-init-local.service"),
    ),
    (
        "cloud-init-network.service",
        Purpose::Stage(Stage::Network),
        include_str!("../../initramfs/units/cloud-init-network.service"),
    ),
    ("cloud-config.target", Purpose::Stage(Stage::Network), include_str!("../../initramfs/units/cloud-config.target")),
    ("cloud-config.service", Purpose::Stage(Stage::Config), include_str!("../../initramfs/units/cloud-config.service")),
    ("cloud-final.service", Purpose::Stage(Stage::Final), include_str!("../../initramfs/units/cloud-final.service")),
    ("cloud-init.target", Purpose::Target, include_str!("../../initramfs/units/cloud-init.target")),
    (
        "cloud-init-hotplugd.socket",
        Purpose::Hotplug,
        if cfg!(feature = "tools") { include_str!("../../initramfs/units/cloud-init-hotplugd.socket") } else { "" },
    ),
    (
        "cloud-init-hotplugd.service",
        Purpose::Hotplug,
        if cfg!(feature = "tools") { include_str!("../../initramfs/units/cloud-init-hotplugd.service") } else { "" },
    ),
];
/// The unit that closes the metadata service again, and what starts it.
const CLOSING: (&str, &str, &str) = (
    "prepivot-close.service",
    include_str!("../../initramfs/units/prepivot-close.service"),
    "nftables.service.wants/prepivot-close.service",
);
/// The network stage's other name.
const ALIAS: &str = "cloud-init.service";
/// Units that do what prepivot does for an instance: distributions' that generate SSH host keys, and systemd's that take network,
/// hostname and credentials from the metadata service (systemd-imds-generator(8)). A drop-in disables each if there is an instance;
/// an installed prepivot has it in its own folder.
const HELD_BACK: [(&str, &str); 4] = [
    ("sshd-keygen@.service", include_str!("../../initramfs/units/sshd-keygen.conf")),
    ("sshd-keygen.service", include_str!("../../initramfs/units/sshd-keygen.conf")),
    ("systemd-imds-early-network.service", include_str!("../../initramfs/units/systemd-imds-early-network.conf")),
    ("systemd-imds-import.service", include_str!("../../initramfs/units/systemd-imds-import.conf")),
];
/// Units and generators of a real cloud-init, masked so that the work is not done twice.
const MASKED: [&str; 2] =
    ["/run/systemd/system/cloud-init-main.service", "/run/systemd/system-generators/cloud-init-generator"];

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
        for (name, ..) in FILES.iter().filter(|(_, _, text)| text.is_empty()) {
            root.symlink(&format!("{UNITS}/{name}"), "/dev/null")?;
        }
    }
    let may_be_masked = root.is_dir(MASKED_BY_PACKAGES);
    for (name, ..) in FILES.iter().filter(|_| may_be_masked) {
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
    let (own, vendor) = installed::unit_folders(root);
    let has_units = std::iter::once(&own).chain(&vendor).any(has_unit);
    if installed && has_units && !foreign {
        return Ok(None);
    }
    let program = if installed { INSTALLED.to_owned() } else { run_dir::carry_program()? };
    Ok(Units::are_of_use(root).then_some(Units { program, foreign }))
}

impl Units {
    /// Whether the root has systemd, which a /usr that is not mounted yet hides.
    fn are_of_use(root: &Root) -> bool {
        has_systemd(root) || root.lacks_usr() && root.is_dir("/etc/systemd/system")
    }

    /// Writes the unit that closes the metadata service again after nftables.service.
    ///
    /// # Errors
    /// It cannot be written to /run.
    pub fn write_closing(&self, root: &mut Root) -> Result<()> {
        let (name, text, wanted) = CLOSING;
        root.write(&format!("{UNITS}/{name}"), text.replace(INSTALLED, &self.program), Attr::root(0o644))?;
        root.symlink(&format!("{UNITS}/{wanted}"), &format!("../{name}"))
    }

    /// Writes the units, and has systemd start them: those of the stages from `first`, the first that is left to run. systemd takes
    /// as long to read the units of an idle stage as that stage would take. If the image needs them, all are written. Those that
    /// configure added network devices are written if the configuration asks for it (`hotplug`), or an earlier boot has set it up.
    ///
    /// # Errors
    /// They cannot be written to /run.
    pub fn start(&self, root: &mut Root, first: Option<Stage>, hotplug: bool) -> Result<()> {
        let (own, vendor) = installed::unit_folders(root);
        for (unit, text) in HELD_BACK {
            if std::iter::once(&own).chain(&vendor).any(|folder| root.exists(&format!("{folder}/{unit}"))) {
                root.write(&format!("{UNITS}/{unit}.d/cloud-init.conf"), text, Attr::root(0o644))?;
            }
        }
        let is_all = first == Some(Stage::Local) || self.foreign || is_required(root);
        let first = if is_all { Some(Stage::Local) } else { first };
        let is_set_up = root.exists(hotplug::RULE);
        if first.is_none() && !is_set_up {
            return Ok(());
        }
        let hotplug = hotplug || is_set_up || is_all;
        let is_of_use = |(_, purpose, text): &&(&str, Purpose, &str)| {
            !text.is_empty()
                && match purpose {
                    Purpose::Stage(stage) => first.is_some_and(|first| *stage >= first),
                    Purpose::Hotplug => hotplug,
                    Purpose::Target => true,
                }
        };
        let left_out: Vec<&str> = FILES.iter().filter(|file| !is_of_use(file)).map(|(name, ..)| *name).collect();
        for (name, _, text) in FILES.iter().filter(is_of_use) {
            let text = without(text, &left_out).replace(INSTALLED, &self.program);
            root.write(&format!("{UNITS}/{name}"), text, Attr::root(0o644))?;
        }
        if first.is_some_and(|first| first <= Stage::Network) {
            root.symlink(&format!("{UNITS}/{ALIAS}"), Stage::Network.unit())?;
        }
        // cloud-init.target pulls in the stages.
        root.symlink(&format!("{UNITS}/multi-user.target.wants/cloud-init.target"), "../cloud-init.target")
    }
}

/// A unit's text without the other units `names`, which systemd would look for.
fn without(unit: &str, names: &[&str]) -> String {
    let is_kept = |word: &&str| !names.contains(word);
    let line = |line: &str| match line.split_once('=') {
        Some((key @ ("Wants" | "After"), words)) => {
            let kept: Vec<&str> = words.split_whitespace().filter(is_kept).collect();
            if kept.is_empty() { String::new() } else { format!("{key}={}\n", kept.join(" ")) }
        }
        _ => format!("{line}\n"),
    };
    unit.lines().map(line).collect()
}

/// Whether units start with a stage (`WantedBy=cloud-init.target`), or those that the administrator wrote, or that are enabled, require
/// one.
fn is_required(root: &Root) -> bool {
    let (own, vendor) = installed::unit_folders(root);
    let units = ImageUnits { root, own, vendor: &vendor };
    let entries = root.list(own);
    entries.iter().any(|name| starts_with_stage(name))
        || vendor.iter().any(|folder| units.vendor_requires(folder))
        || entries.iter().any(|name| units.own_requires(name))
}

/// Whether a folder has units that start with one of [`FILES`].
fn starts_with_stage(entry: &str) -> bool {
    let unit = entry.strip_suffix(".wants").or_else(|| entry.strip_suffix(".requires"));
    unit.is_some_and(|unit| unit == ALIAS || FILES.iter().any(|(name, ..)| *name == unit))
}

/// Whether a folder has drop-ins of a unit, or the units that it pulls in.
fn has_units(folder: &str) -> bool {
    [".d", ".wants", ".requires"].iter().any(|end| folder.ends_with(end))
}

/// Whether a unit's text requires a unit of cloud-init.
fn requires_stage(text: &str) -> bool {
    let requires = |line: &str| {
        let (key, value) = line.split_once('=').unwrap_or_default();
        ["Requires", "Requisite", "BindsTo"].contains(&key.trim()) && value.contains("cloud-")
    };
    // A line that ends with a backslash continues in the next one.
    text.contains("cloud-") && text.replace("\\\n", " ").lines().any(requires)
}

/// The units of the image.
struct ImageUnits<'a> {
    root: &'a Root,
    /// The administrator's folder, and those of the distribution.
    own: &'a str,
    vendor: &'a [&'a str],
}

impl ImageUnits<'_> {
    /// Whether a unit, of which `path` may be a link, requires a stage.
    fn requires(&self, unit: &str, path: &str) -> bool {
        // systemd goes by a link's name. To follow the link takes several times as long, and is for instances and units elsewhere.
        let of_vendor = self.vendor.iter().map(|folder| format!("{folder}/{unit}"));
        let found = of_vendor.into_iter().find(|path| self.root.is_file(path));
        requires_stage(&self.root.text(found.as_deref().unwrap_or(path)))
    }

    /// Whether a unit or a drop-in of a folder does.
    fn folder_requires(&self, path: &str) -> bool {
        // systemd's own units require none, and are most of those that an image enables by itself.
        let is_systemds = |unit: &str| unit.starts_with("systemd-") && !unit.ends_with(".conf");
        let units = self.root.list(path);
        units.iter().any(|unit| !is_systemds(unit) && self.requires(unit, &format!("{path}/{unit}")))
    }

    /// Whether an enabled unit or a drop-in of the distribution does, or starts with a stage.
    fn vendor_requires(&self, folder: &str) -> bool {
        let requires = |name: &String| {
            starts_with_stage(name) || has_units(name) && self.folder_requires(&format!("{folder}/{name}"))
        };
        self.root.list(folder).iter().any(requires)
    }

    /// Whether an entry of the administrator's folder does.
    fn own_requires(&self, name: &str) -> bool {
        let path = format!("{}/{name}", self.own);
        if has_units(name) {
            return self.folder_requires(&path);
        }
        // A link is another name of a unit.
        let target = self.root.read_link(&path).unwrap_or_default();
        self.requires(target.rsplit('/').next().filter(|unit| *unit != name).unwrap_or_default(), &path)
    }
}

/// Whether /usr/bin/cloud-init belongs to another package.
fn has_cloud_init(root: &Root) -> bool {
    root.lstat("/usr/bin/cloud-init").is_some()
        && !root.read_link("/usr/bin/cloud-init").is_some_and(|target| target.ends_with("prepivot"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::{self, TempDir};
    use crate::root::Use;

    /// By systemd's default a service comes after sysinit.target, and so after the file systems and systemd-tmpfiles-setup.service:
    /// files written to /tmp and /dev stay.
    #[test]
    fn only_local_stage_precedes_the_systems_folders() {
        let is_early =
            |file: &&(&str, Purpose, &str)| file.2.contains("DefaultDependencies=no") && file.2.contains("\n[Service]");
        let early: Vec<&str> = FILES.iter().filter(is_early).map(|(name, ..)| *name).collect();
        assert_eq!(early, ["cloud-init-local.service"]);
    }

    #[test]
    fn images_cloud_init_runs_only_if_nothing_found() {
        let dir = TempDir::new("handover");
        let mut root = dir.root(Use::Tree);
        for path in [INSTALLED, "/usr/bin/cloud-init", "/usr/lib/systemd/systemd"] {
            root.write(path, "", Attr::root(0o755)).unwrap();
        }
        assert!(hand_over(&mut root, false).unwrap().is_none());
        assert_eq!(root.list("/run"), [""; 0]);
        hand_over(&mut root, true).unwrap().unwrap().start(&mut root, Some(Stage::Local), false).unwrap();
        for path in MASKED {
            assert_eq!(root.read_link(path).as_deref(), Some("/dev/null"), "{path}");
        }
        assert!(
            root.text("/run/systemd/system/cloud-init-local.service")
                .contains("ExecStart=/usr/bin/prepivot init --local")
        );
        // In place of its own copy.
        let added = root.text("/run/systemd/system/cloud-init-hotplugd.service");
        assert!(added.contains("exec /usr/bin/prepivot devel hotplug-hook $$words'"), "{added}");
        assert!(root.exists("/run/systemd/system/cloud-init-hotplugd.socket"));

        // The name is a link to this program: nothing of it belongs to another package.
        root.remove("/usr/bin/cloud-init").unwrap();
        root.remove("/run").unwrap();
        root.symlink("/usr/bin/cloud-init", "prepivot").unwrap();
        hand_over(&mut root, false).unwrap().unwrap().start(&mut root, Some(Stage::Local), false).unwrap();
        assert!(root.exists("/run/systemd/system/cloud-final.service"));
        assert!(root.lstat(MASKED[0]).is_none());
    }
    #[test]
    fn boot_has_units_of_stages_left_or_required() {
        let started = |first: Option<Stage>, image: &[(&str, &str)], hotplug: bool| {
            let dir = TempDir::new("handover-units");
            let mut root = dir.root(Use::Tree);
            let some = ["/usr/lib/systemd/systemd", "/usr/lib/systemd/system/other.service"].map(|path| (path, ""));
            for (path, text) in [(INSTALLED, "")].iter().chain(&some).chain(image) {
                root.write(path, *text, Attr::root(0o755)).unwrap();
            }
            for (link, target) in [
                ("dbus-org.cloud-x", "/usr/lib/systemd/system/x"),
                ("linked", "/opt/linked"),
                ("multi-user.target.wants/required", "/usr/lib/systemd/system/required"),
                ("multi-user.target.wants/instance@1", "/usr/lib/systemd/system/instance@"),
            ] {
                root.symlink(&format!("/etc/systemd/system/{link}.service"), &format!("{target}.service")).unwrap();
            }
            let of_vendor = "/usr/lib/systemd/system/multi-user.target.wants/static.service";
            root.symlink(of_vendor, "../static.service").unwrap();
            let units = hand_over(&mut root, true).unwrap().unwrap();
            units.start(&mut root, first, hotplug).unwrap();
            let is_unit = |name: &String| root.is_file(&format!("{UNITS}/{name}"));
            let names: Vec<String> = root.list(UNITS).into_iter().filter(is_unit).collect();
            let wants = root.read_link("/run/systemd/system/multi-user.target.wants/cloud-init.target").is_some();
            assert_eq!(names.is_empty(), !wants);
            // Everything that a unit names exists.
            for text in names.iter().map(|name| root.text(&format!("{UNITS}/{name}"))) {
                let named = text.lines().filter_map(|l| l.strip_prefix("Wants=").or_else(|| l.strip_prefix("After=")));
                let mut ours = named.flat_map(str::split_whitespace).filter(|unit| unit.starts_with("cloud-"));
                assert!(ours.all(|unit| names.iter().any(|name| name == unit)), "{text}");
            }
            names
        };
        let all = started(Some(Stage::Local), &[], false);
        let expected = FILES.iter().map(|(name, ..)| *name).chain([ALIAS]).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(all, expected.into_iter().collect::<Vec<_>>());
        assert!(started(Some(Stage::Network), &[], false).contains(&ALIAS.to_owned()));
        let later = ["cloud-config.service", "cloud-final.service", "cloud-init.target"];
        assert_eq!(started(Some(Stage::Config), &[], false), later);
        assert_eq!(started(Some(Stage::Final), &[], false), later[1..]);
        // Added network devices are configured.
        let added = ["cloud-init-hotplugd.service", "cloud-init-hotplugd.socket"];
        let later = ["cloud-final.service", added[0], added[1], "cloud-init.target"];
        assert_eq!(started(Some(Stage::Final), &[], true), later);
        assert_eq!(started(Some(Stage::Final), &[(hotplug::RULE, "")], false), later);
        assert_eq!(started(None, &[(hotplug::RULE, "")], false), later[1..]);
        assert_eq!(started(None, &[], true), [""; 0]);
        let none = |image: &[(&str, &str)]| assert_eq!(started(None, image, false), [""; 0]);
        none(&[]);
        none(&[("/etc/systemd/system/multi-user.target.wants/a.service", "")]);
        none(&[("/etc/systemd/system/a.service", "[Unit]\nAfter=cloud-final.service\n")]);
        let requires = |text: &str| format!("[Unit]\n{text}\n");
        none(&[("/usr/lib/systemd/system/not-enabled.service", &requires("Requires=cloud-final.service"))]);
        for (path, text) in [
            ("/etc/systemd/system/a.service", "Requires=cloud-final.service"),
            ("/etc/systemd/system/a.service.d/b.conf", "Requires=cloud-init.target"),
            ("/usr/lib/systemd/system/x.service", "Requires=cloud-final.service"),
            ("/opt/linked.service", "Requires=cloud-final.service"),
            ("/usr/local/lib/systemd/system/required.service", "Requisite=cloud-config.service"),
            ("/usr/lib/systemd/system/required.service", "BindsTo = cloud-config.target"),
            ("/usr/lib/systemd/system/instance@.service", "Requires=cloud-final.service"),
            ("/etc/systemd/system/a.service", "Requires=b.service \\\n cloud-final.service"),
            ("/lib/systemd/system/cloud-init.target.wants/a.service", ""),
            ("/usr/lib/systemd/system/static.service", "Requires=cloud-init.target"),
            ("/usr/lib/systemd/system/a.service.d/b.conf", "Requires=cloud-init.target"),
            ("/etc/systemd/system/cloud-init.target.wants/a.service", ""),
            ("/usr/lib/systemd/system/cloud-final.service.requires/a.service", ""),
            // Its units have the same names.
            ("/usr/bin/cloud-init", ""),
        ] {
            for first in [None, Some(Stage::Final)] {
                assert_eq!(started(first, &[(path, &requires(text))], false), all, "{path}");
            }
        }
    }

    #[test]
    fn unmounted_usr_hides_systemd() {
        for (folder, has_units) in [("/etc/systemd/system", true), ("/etc/init.d", false)] {
            let dir = TempDir::new("handover-usr");
            dir.write("etc/fstab", "LABEL=usr /usr ext4 defaults 0 2\n");
            std::fs::create_dir_all(dir.0.join("usr")).unwrap();
            std::fs::create_dir_all(dir.0.join(&folder[1..])).unwrap();
            let root = dir.root(Use::NewRoot);
            assert!(root.lacks_usr());
            // The program itself is not put into this machine's /run.
            assert_eq!(Units::are_of_use(&root), has_units, "{folder}");
        }
    }

    /// Units that make host keys, and systemd's for the metadata service, do not run if there is an instance.
    #[test]
    fn units_that_do_the_same_are_held_back() {
        for (unit, condition) in [
            ("sshd-keygen@.service", "!/run/cloud-init/cloud-id"),
            ("systemd-imds-early-network.service", "|!/run/cloud-init/cloud-id"),
            ("systemd-imds-import.service", "|!/run/cloud-init/cloud-id"),
        ] {
            let dir = TempDir::new("handover-held-back");
            let mut root = dir.root(Use::Tree);
            for path in [INSTALLED, "/usr/lib/systemd/systemd", &format!("/usr/lib/systemd/system/{unit}")] {
                root.write(path, "", Attr::root(0o755)).unwrap();
            }
            hand_over(&mut root, true).unwrap().unwrap().start(&mut root, None, false).unwrap();
            assert_eq!(root.list(UNITS), [format!("{unit}.d")]);
            let text = root.text(&format!("/run/systemd/system/{unit}.d/cloud-init.conf"));
            assert!(text.contains(&format!("\nConditionPathExists={condition}\n")), "{text}");
        }
    }

    /// systemd evaluates the drop-ins as prepivot(8) says: only values that ask for its IMDS units bring them back.
    #[test]
    fn kernel_command_line_asks_for_imds_units() {
        let drop_in = |name: &str| HELD_BACK.iter().find(|(unit, _)| *unit == name).unwrap().1;
        let for_network = drop_in("systemd-imds-early-network.service");
        let for_import = drop_in("systemd-imds-import.service");
        for (words, network, import) in [
            ("quiet", false, false),
            ("systemd.imds=yes", true, true),
            ("systemd.imds=true systemd.imds.network=off", true, true),
            ("systemd.imds=on", true, true),
            ("systemd.imds=1", true, true),
            ("systemd.imds=no", false, false),
            ("systemd.imds=auto", false, false),
            ("systemd.imds", false, false),
            ("systemd.imds.network=locked", true, false),
            ("systemd.imds.network=unlocked", true, false),
            ("systemd.imds.network=off", false, false),
            ("systemd.imds.import=yes", false, true),
            ("systemd.imds.import=no", false, false),
        ] {
            for (text, is_asked) in [(for_network, network), (for_import, import)] {
                // As on a machine with an instance.
                let conditions = text.lines().filter(|line| line.starts_with("Condition"));
                let conditions = conditions.map(|line| line.replace("!/run/cloud-init/cloud-id", "!/"));
                let tool = std::process::Command::new("systemd-analyze")
                    .arg("condition")
                    .args(conditions)
                    .env("SYSTEMD_PROC_CMDLINE", words)
                    .output();
                let Ok(done) = tool else { return testing::skip("systemd-analyze is not installed") };
                assert_eq!(done.status.success(), is_asked, "{words}: {text}{}", String::from_utf8_lossy(&done.stderr));
            }
        }
    }

    #[test]
    fn what_a_removed_package_masked_runs() {
        let dir = TempDir::new("handover-masked");
        let mut root = dir.root(Use::Tree);
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
