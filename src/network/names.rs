//! Device names that udev takes from the root's files, so that names before and after the pivot agree.

use super::mac::Macs;
use super::model::{Interface, Match};
use crate::base::glob;
use crate::machine::Nic;

/// A name, and how its device is found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeviceName {
    pub matching: Match,
    pub name: String,
}

impl DeviceName {
    /// The same, unless it has no name or would match every device.
    pub fn complete(self) -> Option<DeviceName> {
        Some(self).filter(|d| !d.name.is_empty() && d.matching != Match::default())
    }
}

/// The devices to rename: their current names and their new names. A name that no device or several devices
/// match is logged and skipped.
pub fn renames(wanted: &[DeviceName], nics: &[Nic]) -> Vec<(String, String)> {
    let mut out = Vec::new();
    for DeviceName { matching, name } in wanted {
        let mut found: Vec<&Nic> = nics.iter().filter(|nic| matches(matching, nic)).collect();
        if found.len() > 1 {
            found.retain(|nic| nic.physical);
        }
        match found.as_slice() {
            [nic] if nic.name == *name => {}
            [nic] => out.push((nic.name.clone(), name.clone())),
            [] => log::info!("no network device matches the name {name}"),
            _ => log::info!("several network devices match the name {name}; they keep their names"),
        }
    }
    out
}

/// Whether a document's interface is this device, by its current name or the one that it is to get.
pub fn is_device(interface: &Interface, nic: &Nic) -> bool {
    interface.name == nic.name || (interface.matching != Match::default() && matches(&interface.matching, nic))
}

fn matches(matching: &Match, nic: &Nic) -> bool {
    let own = Macs::of(std::slice::from_ref(nic));
    let driver = nic.driver.as_deref().unwrap_or_default();
    matching.mac.as_deref().is_none_or(|mac| own.name(mac).is_some())
        && matching.name.as_deref().is_none_or(|pattern| glob::matches(pattern, &nic.name))
        && (matching.drivers.is_empty() || matching.drivers.iter().any(|pattern| glob::matches(pattern, driver)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::render::RENDERERS;
    use crate::network::testing::files;

    fn nic(name: &str, last: &str, driver: &str) -> Nic {
        Nic {
            name: name.into(),
            mac: format!("52:54:00:00:00:{last}"),
            driver: (!driver.is_empty()).then(|| driver.into()),
            physical: !driver.is_empty(),
            kind: 1,
            ..Nic::default()
        }
    }

    fn wanted(named: &[DeviceName]) -> String {
        let nics = [
            nic("eth0", "0a", "virtio_net"),
            nic("br0", "0a", ""),
            nic("eth1", "0b", "mlx5_core"),
            nic("eth2", "0b", "hv_netvsc"),
            nic("lan3", "0d", "e1000"),
        ];
        renames(named, &nics).iter().map(|(from, to)| format!("{from}={to}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn links_get_the_names_written_for_udev() {
        let text = "version: 2\nethernets:\n  a: {match: {macaddress: '52-54-00-00-00-0A'}, set-name: lan0}\n\
                    \x20 b: {match: {macaddress: '52:54:00:00:00:0b', driver: [hv_netvsc, virtio*]}, set-name: lan1, wakeonlan: true}\n\
                    \x20 c: {wakeonlan: true}\n  d: {match: {macaddress: '52:54:00:00:00:0d'}, set-name: lan3}\n";
        for renderer in RENDERERS {
            for distro in ["debian", "alpine", "rhel", "sles"] {
                let named: Vec<DeviceName> = files(renderer, text, distro)
                    .iter()
                    .flat_map(|f| renderer.owned.iter().flat_map(|o| o.names(&f.path, &f.content)))
                    .collect();
                assert_eq!(wanted(&named), "eth0=lan0 eth2=lan1", "{} {distro}: {named:?}", renderer.name);
            }
        }
    }

    #[test]
    fn pattern_names_device_only_if_one_matches() {
        let named = |pattern: &str| DeviceName {
            matching: Match { name: Some(pattern.into()), ..Match::default() },
            name: "lan0".into(),
        };
        assert_eq!(wanted(&[named("eth*")]), "");
        assert_eq!(wanted(&[named("eth0")]), "eth0=lan0");
        assert_eq!(DeviceName { name: "lan0".into(), ..DeviceName::default() }.complete(), None);
        assert_eq!(DeviceName { name: String::new(), ..named("e") }.complete(), None);
    }
}
