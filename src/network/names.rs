//! Which device is to have which name: what the files say that tell it to the root's udev, so that names before and after the
//! pivot agree.

use super::model::{Macs, Match};
use crate::base::glob;
use crate::document::{Value, yaml};
use crate::link::rename::Rename;
use crate::machine::Nic;

/// A name, and how its device is found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Named {
    pub matching: Match,
    pub name: String,
}

/// Of a systemd.link file as [`super::render`] writes them: one, or none where it gives no name.
pub fn of_link(text: &str) -> Vec<Named> {
    let mut named = Named::default();
    for line in text.lines() {
        let Some((key, value)) = line.split_once('=') else { continue };
        match key {
            "MACAddress" => named.matching.mac = Some(value.to_owned()),
            "Driver" => named.matching.drivers = value.split_whitespace().map(str::to_owned).collect(),
            "OriginalName" => named.matching.name = Some(value.to_owned()),
            "Name" => named.name = value.to_owned(),
            _ => {}
        }
    }
    Vec::from_iter(Some(named).filter(is_whole))
}

fn is_whole(named: &Named) -> bool {
    !named.name.is_empty() && named.matching != Match::default()
}

/// Of netplan's YAML: every `set-name`, by which netplan makes .link files of its own. What is no YAML has none.
pub fn of_netplan(text: &str) -> Vec<Named> {
    let Ok(document) = yaml::parse("netplan", text) else { return Vec::new() };
    let named = |device: &Value| {
        let texts = |key: &str| match device.at(&["match", key]) {
            Some(Value::List(list)) => list.iter().filter_map(Value::text).collect(),
            one => Vec::from_iter(one.and_then(Value::text)),
        };
        let one = |key: &str| texts(key).into_iter().next();
        let matching = Match { mac: one("macaddress"), name: one("name"), drivers: texts("driver") };
        Some(Named { matching, name: device.get("set-name")?.text()? }).filter(is_whole)
    };
    let devices = document.at(&["network", "ethernets"]).and_then(Value::as_map);
    devices.map(|d| d.iter().filter_map(|(_, device)| named(device)).collect()).unwrap_or_default()
}

/// Of udev's rules by MAC address as [`super::render`] writes them.
pub fn of_rules(text: &str) -> Vec<Named> {
    let rule = |line: &str| {
        let value = |key: &str| {
            let rest = line.split_once(&format!("{key}\""))?.1;
            rest.split_once('"').map(|(value, _)| value.to_owned())
        };
        let drivers = value("DRIVERS==").filter(|d| d != "?*").unwrap_or_default();
        let drivers = drivers.split('|').filter(|d| !d.is_empty()).map(str::to_owned).collect();
        let matching = Match { mac: Some(value("ATTR{address}==")?), name: None, drivers };
        Some(Named { matching, name: value(" NAME=")? })
    };
    text.lines().filter(|line| line.starts_with("SUBSYSTEM==\"net\"")).filter_map(rule).collect()
}

/// The devices that are called otherwise now. A name for which there is no device, or several, is left out; that is logged.
pub fn renames(named: &[Named], nics: &[Nic]) -> Vec<Rename> {
    let mut out = Vec::new();
    for Named { matching, name } in named {
        let mut with: Vec<&Nic> = nics.iter().filter(|nic| fits(matching, nic)).collect();
        if with.len() > 1 {
            with.retain(|nic| nic.physical);
        }
        match with.as_slice() {
            [nic] if nic.name == *name => {}
            [nic] => out.push(Rename { from: nic.name.clone(), to: name.clone() }),
            [] => log::info!("no network device is there that is to be called {name}"),
            _ => log::info!("several network devices could be called {name}; they keep their names"),
        }
    }
    out
}

fn fits(matching: &Match, nic: &Nic) -> bool {
    let own = Macs::of(std::slice::from_ref(nic));
    let driver = nic.driver.as_deref().unwrap_or_default();
    matching.mac.as_deref().is_none_or(|mac| own.name(mac).is_some())
        && matching.name.as_deref().is_none_or(|pattern| glob::matches(pattern, &nic.name))
        && (matching.drivers.is_empty() || matching.drivers.iter().any(|pattern| glob::matches(pattern, driver)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Distro;
    use crate::network::{Network, Target, read, render};

    fn network() -> Network {
        let text = "version: 2\nethernets:\n  a: {match: {macaddress: '52-54-00-00-00-0A'}, set-name: lan0}\n\
                    \x20 b: {match: {macaddress: '52:54:00:00:00:0b', driver: [hv_netvsc, virtio*]}, set-name: lan1, wakeonlan: true}\n\
                    \x20 c: {wakeonlan: true}\n  d: {match: {macaddress: '52:54:00:00:00:0d'}, set-name: lan3}\n";
        read::config("t", &yaml::parse("t", text).unwrap(), &Macs::default()).unwrap()
    }

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

    fn wanted(named: &[Named]) -> String {
        let nics = [
            nic("eth0", "0a", "virtio_net"),
            nic("br0", "0a", ""),
            nic("eth1", "0b", "mlx5_core"),
            nic("eth2", "0b", "hv_netvsc"),
            nic("lan3", "0d", "e1000"),
        ];
        let all: Vec<String> = renames(named, &nics).iter().map(|r| format!("{}={}", r.from, r.to)).collect();
        all.join(" ")
    }

    #[test]
    fn what_is_written_for_udev_is_what_the_links_get() {
        let stacks = [
            ("debian", "networkd"),
            ("alpine", "eni"),
            ("ubuntu", "netplan"),
            ("rhel", "sysconfig"),
            ("sles", "sysconfig"),
        ];
        for (distro, stack) in stacks.into_iter().chain([("debian", "eni"), ("fedora", "network-manager")]) {
            let target = Target { distro: Distro::named(distro), ip_tool: true };
            let files = (render::by_name(stack).unwrap().render)(&network(), &target);
            let named: Vec<Named> = files
                .iter()
                .flat_map(|f| match f.path.rsplit('.').next() {
                    Some("link") => of_link(&f.content),
                    Some("yaml") => of_netplan(&f.content),
                    Some("rules") => of_rules(&f.content),
                    _ => Vec::new(),
                })
                .collect();
            assert_eq!(wanted(&named), "eth0=lan0 eth2=lan1", "{stack}: {named:?}");
        }
    }

    #[test]
    fn what_gives_no_name_or_fits_everything_is_passed_over() {
        assert_eq!(of_link("[Match]\nOriginalName=b\n\n[Link]\nNamePolicy=keep kernel\n"), []);
        assert_eq!(of_link("[Link]\nName=lan0\n"), []);
        for text in ["x: [", "[]", "network: {ethernets: {a: {set-name: b}, c: {match: {name: c}}, d: 1}}"] {
            assert_eq!(of_netplan(text), [], "{text}");
        }
        let pattern = of_link("[Match]\nOriginalName=eth*\n[Link]\nName=lan0\n");
        assert_eq!(wanted(&pattern), "");
        let one = of_link("[Match]\nOriginalName=eth0\n[Link]\nName=lan0\n");
        assert_eq!(wanted(&one), "eth0=lan0");
        assert!(of_rules("# SUBSYSTEM==\"net\"\nSUBSYSTEM==\"net\", NAME=\"x\"\n").is_empty());
    }
}
