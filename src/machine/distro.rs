//! The table of distributions, and how they differ.

use crate::document::{Map, Value};

/// Distributions that keep their files in the same places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    Debian,
    Redhat,
    Suse,
    Alpine,
    Arch,
    Gentoo,
    Photon,
    Other,
}

/// A distribution. Names are cloud-init's (`system_info: distro`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Distro {
    pub name: &'static str,
    pub family: Family,
    /// The default user (`users: [default]`): name, comment field, groups and login shell.
    pub user: &'static str,
    pub gecos: &'static str,
    pub groups: &'static [&'static str],
    pub shell: &'static str,
    /// The name of the SSH server's service.
    pub ssh_service: &'static str,
}

/// The `sudo` rule of every distribution's default user.
pub const DEFAULT_SUDO: &str = "ALL=(ALL) NOPASSWD:ALL";

const ADM: &[&str] = &["adm", "systemd-journal"];
const WHEEL_ADM: &[&str] = &["wheel", "adm", "systemd-journal"];
const DEBIAN_GROUPS: &[&str] =
    &["adm", "audio", "cdrom", "dialout", "dip", "floppy", "netdev", "plugdev", "sudo", "video"];
const UBUNTU_GROUPS: &[&str] = &["adm", "cdrom", "dip", "lxd", "sudo"];
const PI_GROUPS: &[&str] = &[
    "adm", "dialout", "cdrom", "audio", "users", "sudo", "video", "games", "plugdev", "input", "gpio", "spi", "i2c",
    "netdev", "render", "lpadmin",
];

type Row = (&'static str, Family, &'static str, &'static str, &'static [&'static str], &'static [&'static str]);

/// Name, family, default user with comment and groups, and further IDs of os-release(5). From cloud-init's
/// default configuration for each (config/cloud.cfg.tmpl).
#[rustfmt::skip]
const DISTROS: &[Row] = &[
    ("almalinux", Family::Redhat, "almalinux", "almalinux Cloud User", ADM, &[]),
    ("alpine", Family::Alpine, "alpine", "alpine Cloud User", &["adm", "wheel"], &[]),
    ("amazon", Family::Redhat, "ec2-user", "EC2 Default User", WHEEL_ADM, &["amzn"]),
    ("aosc", Family::Other, "aosc", "aosc Cloud User", &["wheel"], &[]),
    ("arch", Family::Arch, "arch", "arch Cloud User", &["wheel", "users"], &["archarm", "cachyos", "manjaro"]),
    ("azurelinux", Family::Redhat, "azureuser", "Azure Linux", WHEEL_ADM, &[]),
    ("centos", Family::Redhat, "cloud-user", "Cloud User", ADM, &[]),
    ("cloudlinux", Family::Redhat, "cloudlinux", "cloudlinux Cloud User", ADM, &[]),
    ("debian", Family::Debian, "debian", "Debian", DEBIAN_GROUPS, &["devuan"]),
    ("eurolinux", Family::Redhat, "eurolinux", "eurolinux Cloud User", ADM, &[]),
    ("fedora", Family::Redhat, "fedora", "fedora Cloud User", WHEEL_ADM, &[]),
    ("cos", Family::Gentoo, "gentoo", "gentoo Cloud User", &["users", "wheel"], &[]),
    ("gentoo", Family::Gentoo, "gentoo", "gentoo Cloud User", &["users", "wheel"], &[]),
    ("mariner", Family::Redhat, "mariner", "MarinerOS", &["wheel"], &[]),
    ("miraclelinux", Family::Redhat, "miraclelinux", "miraclelinux Cloud User", ADM, &[]),
    ("OpenCloudOS", Family::Redhat, "OpenCloudOS", "OpenCloudOS Cloud User", WHEEL_ADM, &["opencloudos"]),
    ("openeuler", Family::Redhat, "openeuler", "openeuler Cloud User", WHEEL_ADM, &["openEuler"]),
    ("openmandriva", Family::Redhat, "omv", "OpenMandriva admin", &["wheel", "users", "systemd-journal"], &[]),
    ("opensuse", Family::Suse, "suse", "suse Cloud User", &["cdrom", "users"], &[]),
    ("opensuse-leap", Family::Suse, "suse", "suse Cloud User", &["cdrom", "users"], &[]),
    ("opensuse-microos", Family::Suse, "suse", "suse Cloud User", &["cdrom", "users"], &[]),
    ("opensuse-tumbleweed", Family::Suse, "suse", "suse Cloud User", &["cdrom", "users"], &[]),
    ("photon", Family::Photon, "photon", "PhotonOS", &["wheel"], &[]),
    ("raspberry-pi-os", Family::Debian, "pi", "Raspberry Pi OS", PI_GROUPS, &["raspbian"]),
    ("rhel", Family::Redhat, "cloud-user", "Cloud User", ADM, &["redhat", "ol", "oracle"]),
    ("rocky", Family::Redhat, "rocky", "rocky Cloud User", ADM, &[]),
    ("sle-micro", Family::Suse, "suse", "suse Cloud User", &["cdrom", "users"], &["sl-micro", "suse-microos"]),
    ("sles", Family::Suse, "suse", "suse Cloud User", &["cdrom", "users"], &["sled", "suse", "sle_hpc"]),
    ("TencentOS", Family::Redhat, "TencentOS", "TencentOS Cloud User", WHEEL_ADM, &["tencentos"]),
    ("ubuntu", Family::Debian, "ubuntu", "Ubuntu", UBUNTU_GROUPS, &["linuxmint", "pop"]),
    ("virtuozzo", Family::Redhat, "virtuozzo", "virtuozzo Cloud User", ADM, &[]),
    ("unknown", Family::Other, "cloud-user", "Cloud User", &[], &[]),
];

fn of_row(row: &Row) -> Distro {
    let (name, family, user, gecos, groups, _) = *row;
    let shell = if family == Family::Alpine { "/bin/ash" } else { "/bin/bash" };
    let ssh_service = if family == Family::Debian { "ssh" } else { "sshd" };
    Distro { name, family, user, gecos, groups, shell, ssh_service }
}

impl Distro {
    /// The distribution with cloud-init's name `name`; `unknown` if there is none.
    pub fn named(name: &str) -> Distro {
        let last = DISTROS.len() - 1;
        let row = DISTROS.iter().find(|r| r.0 == name || r.5.contains(&name));
        of_row(row.unwrap_or(&DISTROS[last]))
    }

    /// A root's distribution, from the text of its os-release(5): ID, else the first known one of ID_LIKE.
    pub fn of_os_release(text: &str) -> Distro {
        let value = |key: &str| {
            let line = text.lines().find_map(|l| l.trim().strip_prefix(key)?.strip_prefix('='));
            line.map(|v| v.trim_matches(['"', '\''])).unwrap_or("")
        };
        let ids = std::iter::once(value("ID")).chain(value("ID_LIKE").split_whitespace());
        ids.map(Distro::named).find(|d| d.name != "unknown").unwrap_or_else(|| Distro::named("unknown"))
    }

    /// Whether the fully qualified name becomes the host name by default.
    pub fn prefers_fqdn(&self) -> bool {
        matches!(self.family, Family::Redhat | Family::Photon)
    }

    /// Whether the distribution's images configure the network themselves, so that the fallback is not used.
    pub fn has_own_network(&self) -> bool {
        matches!(self.name, "photon" | "raspberry-pi-os")
    }

    /// The configuration in cloud-init's cloud.cfg for this distribution, without the module lists; used for
    /// an image that has no cloud.cfg.
    pub fn default_config(&self) -> Value {
        let mut user = Map::new();
        user.insert("name", self.user);
        user.insert("lock_passwd", true);
        user.insert("gecos", self.gecos);
        user.insert("groups", self.groups.iter().map(|g| Value::from(*g)).collect::<Vec<_>>());
        user.insert("sudo", vec![Value::from(DEFAULT_SUDO)]);
        user.insert("shell", self.shell);
        if self.family == Family::Alpine {
            user.insert("doas", vec![Value::from(format!("permit nopass {}", self.user))]);
        }
        if self.family == Family::Gentoo {
            user.insert("no_user_group", true);
            user.insert("primary_group", "users");
        }
        let mut info = Map::new();
        info.insert("distro", self.name);
        info.insert("default_user", user);
        info.insert("ssh_svcname", self.ssh_service);
        if let Some(mirrors) = package_mirrors(self.name) {
            info.insert("package_mirrors", mirrors);
        }
        if self.has_own_network() {
            info.insert("disable_fallback_netcfg", true);
        }
        let mut config = Map::new();
        if self.family == Family::Photon {
            let root: Map = [("name", Value::from("root")), ("lock_passwd", Value::Bool(false))].into_iter().collect();
            config.insert("users", vec![Value::Map(root)]);
        } else {
            config.insert("users", vec![Value::from("default")]);
        }
        if matches!(self.family, Family::Redhat | Family::Alpine) && self.name != "mariner" {
            config.insert("ssh_pwauth", false);
        }
        if PLAIN_MOUNTS.contains(&self.name) {
            let words = ["auto", "defaults,nofail", "0", "2"].map(Value::from);
            config.insert("mount_default_fields", [vec![Value::Null; 2], words.to_vec()].concat());
        }
        config.insert("disable_root", self.family != Family::Photon);
        config.insert("preserve_hostname", false);
        let output: Map = [("all", "| tee -a /var/log/cloud-init-output.log")].into_iter().collect();
        config.insert("output", output);
        config.insert("system_info", info);
        Value::Map(config)
    }
}

/// The package mirrors of a distribution, by architecture, and for clouds with their own mirrors.
fn package_mirrors(name: &str) -> Option<Vec<Value>> {
    let entry = |arches: &[&str], primary: &str, security: &str, clouds: Option<&str>| {
        let failsafe: Map = [("primary", primary), ("security", security)].into_iter().collect();
        let mut entry = Map::new();
        entry.insert("arches", arches.iter().map(|a| Value::from(*a)).collect::<Vec<_>>());
        entry.insert("failsafe", failsafe);
        if let Some((kind, folder)) = clouds.and_then(|c| c.split_once(' ')) {
            let url = |place: &str, cloud: &str| {
                Value::from(format!("http://%({place})s.{cloud}.{kind}.ubuntu.com/{folder}/"))
            };
            let urls = vec![url("ec2_region", "ec2"), url("availability_zone", "clouds"), url("region", "clouds")];
            let search: Map =
                [("primary", Value::List(urls)), ("security", Value::List(Vec::new()))].into_iter().collect();
            entry.insert("search", search);
        }
        Value::Map(entry)
    };
    let (main, security) = ("http://archive.ubuntu.com/ubuntu", "http://security.ubuntu.com/ubuntu");
    let ports = "http://ports.ubuntu.com/ubuntu-ports";
    match name {
        "debian" => {
            let url = "https://deb.debian.org/debian";
            Some(vec![entry(&["default"], url, &format!("{url}-security"), None)])
        }
        "ubuntu" => Some(vec![
            entry(&["arm64", "i386", "amd64"], main, security, Some("archive ubuntu")),
            entry(&["armel", "armhf"], ports, ports, Some("ports ubuntu-ports")),
            entry(&["default"], ports, ports, None),
        ]),
        _ => None,
    }
}

/// Distributions whose mounts do not wait for anything by default.
const PLAIN_MOUNTS: &[&str] =
    &["alpine", "amazon", "azurelinux", "fedora", "OpenCloudOS", "openeuler", "openmandriva", "photon", "TencentOS"];

#[cfg(test)]
mod tests {
    use super::*;

    use crate::document::json;

    #[test]
    fn by_os_release() {
        let name = |text: &str| Distro::of_os_release(text).name;
        assert_eq!(name("ID=debian\n"), "debian");
        assert_eq!(name("NAME=x\nID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n"), "rocky");
        assert_eq!(name("ID=neon\nID_LIKE=\"ubuntu debian\"\n"), "ubuntu");
        assert_eq!(name("ID=amzn\n"), "amazon");
        assert_eq!(name(""), "unknown");
        assert_eq!(name("ID=opencloudos\nID_LIKE=\"opencloudos\"\n"), "OpenCloudOS");
        assert_eq!(name("ID=\"tencentos\"\nID_LIKE=\"rhel fedora centos\"\n"), "TencentOS");
        assert_eq!(name("ID=opensuse-leap\nID_LIKE=\"suse opensuse\"\n"), "opensuse-leap");
    }

    #[test]
    fn default_users_are_cloud_inits() {
        let Some(tables) = crate::document::testing::vectors("tables.json") else { return };
        for (name, cfg) in tables.get("default_cfg_per_variant").and_then(Value::as_map).unwrap().iter() {
            if matches!(name, "freebsd" | "unknown") {
                continue;
            }
            let ours = Distro::named(if name == "suse" { "opensuse" } else { name }).default_config();
            assert_eq!(
                ours.at(&["system_info", "default_user"]).unwrap().as_map().unwrap().len(),
                cfg.at(&["system_info", "default_user"]).unwrap().as_map().unwrap().len(),
                "{name}"
            );
            for (key, value) in cfg.at(&["system_info", "default_user"]).unwrap().as_map().unwrap().iter() {
                assert_eq!(ours.at(&["system_info", "default_user", key]), Some(value), "{name} {key}");
            }
            for key in ["disable_root", "users", "ssh_pwauth"] {
                assert_eq!(ours.get(key), cfg.get(key), "{name} {key}");
            }
            // Omitted if equal to the module's default.
            let mounts = cfg.get("mount_default_fields").filter(|m| !json::to_string(m).contains("x-systemd"));
            assert_eq!(ours.get("mount_default_fields"), mounts, "{name}");
        }
    }
}
