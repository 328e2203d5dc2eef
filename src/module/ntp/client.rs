//! Time clients: their names and the paths of their configuration, in one table, and their configuration files.

use crate::base::error::{Error, Result};
use crate::machine::{Distro, Family};

/// A client, as a distribution packages it.
#[derive(Debug, Clone, Default)]
pub struct Client {
    name: &'static str,
    /// The program that shows that it is installed.
    pub program: String,
    pub file: String,
    pub packages: Vec<String>,
    pub service: String,
    /// The name of the image's template.
    pub template: String,
}

/// Name, program, file, package, service, template.
const CLIENTS: &[[&str; 6]] = &[
    ["chrony", "chronyd", "/etc/chrony.conf", "chrony", "chrony", "chrony.conf.{distro}"],
    ["ntp", "ntpd", "/etc/ntp.conf", "ntpsec", "ntp", "ntp.conf.{distro}"],
    ["ntpdate", "ntpdate", "/etc/ntp.conf", "ntpdate", "ntpdate", "ntp.conf.{distro}"],
    ["openntpd", "ntpd", "/etc/ntpd.conf", "", "ntpd", "ntpd.conf.{distro}"],
    [
        "systemd-timesyncd",
        "/usr/lib/systemd/systemd-timesyncd",
        "/etc/systemd/timesyncd.conf.d/cloud-init.conf",
        "",
        "systemd-timesyncd",
        "timesyncd.conf",
    ],
];

impl Client {
    /// The client that cloud-init calls `name`, on `distro`.
    pub fn named(name: &str, distro: &Distro) -> Option<Client> {
        let [name, program, file, package, service, template] = *CLIENTS.iter().find(|c| c[0] == name)?;
        let mut client = Client {
            name,
            program: program.into(),
            file: file.into(),
            packages: Some(package).filter(|p| !p.is_empty()).map(str::to_owned).into_iter().collect(),
            service: service.into(),
            template: template.into(),
        };
        let debian = distro.family == Family::Debian;
        match name {
            "chrony" => {
                if debian || matches!(distro.family, Family::Alpine) || distro.name == "cos" {
                    client.file = "/etc/chrony/chrony.conf".into();
                }
                if !debian {
                    client.service = "chronyd".into();
                }
            }
            "ntp" => {
                if !debian {
                    client.service = "ntpd".into();
                }
                // BusyBox brings it.
                if distro.family == Family::Alpine {
                    client.packages.clear();
                }
            }
            "systemd-timesyncd" if matches!(distro.name, "aosc" | "azurelinux" | "mariner" | "photon") => {
                client.file = "/etc/systemd/timesyncd.conf".into();
            }
            _ => {}
        }
        Some(client)
    }

    /// The first client that the distribution prefers and has installed, else the first that it prefers.
    pub fn preferred(distro: &Distro, installed: impl Fn(&str) -> bool) -> Client {
        let names: &[&str] = match distro.family {
            Family::Alpine => &["chrony", "ntp"],
            _ => &["chrony", "systemd-timesyncd", "ntp", "ntpdate"],
        };
        let mut clients = names.iter().filter_map(|name| Client::named(name, distro));
        clients.clone().find(|c| installed(&c.program)).or_else(|| clients.next()).unwrap_or_default()
    }

    /// The configuration file, for an image that brings no template of it.
    pub fn text(
        &self,
        distro: &Distro,
        servers: &[String],
        pools: &[String],
        peers: &[String],
        allow: &[String],
    ) -> Result<String> {
        let mut sources = String::new();
        let mut lines = |word: &str, names: &[String], options: &str| {
            for name in names {
                sources.push_str(&format!("{word} {name}{options}\n"));
            }
        };
        let fixed = match self.name {
            "systemd-timesyncd" => {
                let names: Vec<&str> = servers.iter().chain(pools).map(String::as_str).collect();
                return Ok(format!(
                    "# By ntp of the cloud-config; see timesyncd.conf(5)\n\n[Time]\nNTP={}\n",
                    names.join(" ")
                ));
            }
            "chrony" => {
                lines("pool", pools, " iburst");
                lines("server", servers, " iburst");
                lines("peer", peers, "");
                lines("allow", allow, "");
                match (distro.family, distro.name) {
                    (Family::Debian | Family::Alpine, _) => CHRONY_DEBIAN,
                    (_, "fedora" | "photon") => CHRONY_FEDORA,
                    _ => CHRONY,
                }
            }
            "ntp" | "ntpdate" if distro.family == Family::Alpine => {
                lines("server", servers, "");
                lines("peer", peers, "");
                ""
            }
            "ntp" | "ntpdate" => {
                lines("pool", pools, " iburst");
                lines("server", servers, " iburst");
                lines("peer", peers, "");
                match (distro.family, distro.name) {
                    (Family::Debian, _) => NTP_DEBIAN,
                    (Family::Suse, _) => NTP_SUSE,
                    (_, "fedora") => NTP_FEDORA,
                    _ => NTP,
                }
            }
            "openntpd" => {
                lines("servers", pools, "");
                lines("server", servers, "");
                ""
            }
            _ => {
                return Err(Error::new(
                    "ntp.config: a client that is not known needs a template, or a template_name of the image",
                ));
            }
        };
        let (above, below) = fixed.split_once(SOURCES).unwrap_or(("", fixed));
        Ok(["# By ntp of the cloud-config\n", above, &sources, below].concat())
    }
}

/// The distribution's zone of the NTP pool. SLES and Alpine have no zone.
pub fn default_pools(distro: &Distro) -> Vec<String> {
    let zone = match distro.name {
        "sles" => "opensuse.",
        "alpine" | "eurolinux" => "",
        name => &format!("{name}."),
    };
    (0..4).map(|n| format!("{n}.{zone}pool.ntp.org")).collect()
}

/// The line of the servers, if it is in the middle of a file, as in the distribution's own.
const SOURCES: &str = "@\n";
const CHRONY: &str = "driftfile /var/lib/chrony/drift\nmakestep 1.0 3\nrtcsync\nlogdir /var/log/chrony\n";
const CHRONY_FEDORA: &str =
    "driftfile /var/lib/chrony/drift\nmakestep 1.0 3\nrtcsync\nleapsectz right/UTC\nlogdir /var/log/chrony\n";
const CHRONY_DEBIAN: &str = "keyfile /etc/chrony/chrony.keys\ndriftfile /var/lib/chrony/chrony.drift\n\
    logdir /var/log/chrony\nmaxupdateskew 100.0\nrtcsync\nmakestep 1 3\n";
const NTP: &str = "driftfile /var/lib/ntp/drift\nrestrict default kod nomodify notrap nopeer noquery\n\
    restrict -6 default kod nomodify notrap nopeer noquery\nrestrict 127.0.0.1\nrestrict -6 ::1\n@\n\
    includefile /etc/ntp/crypto/pw\nkeys /etc/ntp/keys\n";
const NTP_FEDORA: &str = "driftfile /var/lib/ntp/drift\nrestrict default nomodify notrap nopeer noquery\n\
    restrict 127.0.0.1\nrestrict ::1\n@\nincludefile /etc/ntp/crypto/pw\nkeys /etc/ntp/keys\ndisable monitor\n";
const NTP_DEBIAN: &str = "driftfile /var/lib/ntp/ntp.drift\nstatistics loopstats peerstats clockstats\n\
    filegen loopstats file loopstats type day enable\nfilegen peerstats file peerstats type day enable\n\
    filegen clockstats file clockstats type day enable\n@\n\
    restrict -4 default kod notrap nomodify nopeer noquery limited\n\
    restrict -6 default kod notrap nomodify nopeer noquery limited\nrestrict 127.0.0.1\nrestrict ::1\n\
    restrict source notrap nomodify noquery\n";
const NTP_SUSE: &str = "restrict -4 default notrap nomodify nopeer noquery\nrestrict -6 default notrap nomodify nopeer noquery\n\
    restrict 127.0.0.1\nrestrict ::1\ndriftfile /var/lib/ntp/drift/ntp.drift\nlogfile /var/log/ntp\nkeys /etc/ntp.keys\n\
    trustedkey 1\nrequestkey 1\ncontrolkey 1\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ntpds_servers_replace_the_distributions_in_place() {
        let place = |distro: &str| {
            let distro = Distro::named(distro);
            let names = |name: &str| [name.to_owned()];
            let client = Client::named("ntp", &distro).unwrap();
            let text = client.text(&distro, &names("s"), &names("p"), &names("q"), &[]).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            let at = lines.iter().position(|line| line.starts_with("server s")).unwrap();
            let word = |line: &&str| line.split(' ').next().unwrap_or_default().to_owned();
            assert!(!lines.contains(&"@"), "{text}");
            [at - 2, at - 1, at + 1, at + 2].map(|n| lines.get(n).map(word).unwrap_or_default())
        };
        assert_eq!(place("debian"), ["filegen", "pool", "peer", "restrict"]);
        assert_eq!(place("rhel"), ["restrict", "pool", "peer", "includefile"]);
        assert_eq!(place("fedora"), ["restrict", "pool", "peer", "includefile"]);
        assert_eq!(place("opensuse"), ["#", "pool", "peer", "restrict"]);
    }
}
