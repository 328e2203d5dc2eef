//! VMware's guest customization file (cust.cfg: sections of `KEY = VALUE`), read by way of version 2, as cloud-init does.

use super::config;
use super::format::{Format, Syntax, text};
use crate::base::error::{Error, Result};
use crate::base::manual;
use crate::base::problem::Problems;
use crate::document::{Map, Value};
use crate::network::address::{Cidr, prefix_of};
use crate::network::mac::Macs;
use crate::network::model::Network;
use std::collections::BTreeMap;

pub static FORMAT: Format = Format {
    name: "vmware-imc",
    title: manual("VMware's guest customization file"),
    syntax: Syntax::Text,
    recognises: |document| document.as_str().is_some_and(|t| t.lines().any(|l| l.trim() == "[NIC-CONFIG]")),
    reader: read,
};

/// How much of a section's name is read, in characters: each of its keys is kept with it.
const MAX_SECTION: usize = 64;
/// The most NICs, and the most addresses of one NIC, name servers and domains.
const MAX_ITEMS: usize = 256;

/// Reads the network part.
///
/// # Errors
/// As [`to_v2`]; or the document is not a text.
fn read(document: &str, value: &Value, macs: &Macs, report: &Problems) -> Result<Network> {
    config::read(document, &to_v2(text(document, value)?, macs)?, macs, report)
}

/// The values by section and key: `NIC1|MACADDR`. A key may contain bars.
pub struct ImcSettings(BTreeMap<String, String>);

impl ImcSettings {
    /// Reads sections of `KEY = VALUE`.
    pub fn parse(text: &str) -> ImcSettings {
        let (mut section, mut found) = (String::new(), BTreeMap::new());
        for line in text.lines().map(str::trim).filter(|l| !l.starts_with(['#', ';'])) {
            if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                section = name.chars().take(MAX_SECTION).collect();
            } else if let Some((key, value)) = line.split_once(['=', ':']) {
                found.insert(format!("{section}|{}", key.trim()), value.trim().to_owned());
            }
        }
        ImcSettings(found)
    }

    /// A value; None if it is empty.
    pub fn get(&self, section: &str, key: &str) -> Option<&str> {
        self.0.get(&format!("{section}|{key}")).map(String::as_str).filter(|v| !v.is_empty())
    }

    /// Whether a value is one of `values`, in any case.
    pub fn is(&self, section: &str, key: &str, values: &[&str]) -> bool {
        self.get(section, key).is_some_and(|v| values.iter().any(|w| v.eq_ignore_ascii_case(w)))
    }

    /// The sections of the NICs.
    pub fn nics(&self) -> Vec<&str> {
        let nics = self.get("NIC-CONFIG", "NICS").unwrap_or_default();
        nics.split(',').map(str::trim).filter(|n| !n.is_empty()).take(MAX_ITEMS).collect()
    }

    /// The values of `KEY|1`, `KEY|2`, … with their numbers.
    fn numbered<'a>(&'a self, section: &'a str, key: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
        (1..=MAX_ITEMS).map_while(move |n| Some((n, self.get(section, &format!("{key}|{n}"))?)))
    }
}

const YES: [&str; 2] = ["yes", "true"];

/// The file's network part as version 2. A NIC has the name of the device with its MAC address, else that of the file.
///
/// # Errors
/// A NIC has no MAC address, an IPv6 address has no prefix length, an address is not valid, or several NICs are primary.
pub fn to_v2(text: &str, macs: &Macs) -> Result<Value> {
    let settings = &ImcSettings::parse(text);
    let nics = settings.nics();
    let primary: Vec<&str> = nics.iter().copied().filter(|nic| settings.is(nic, "PRIMARY", &YES)).collect();
    if primary.len() > 1 {
        return Err(Error::new(format!("PRIMARY: expected at most one such NIC, found {}", primary.join(" and "))));
    }
    let list = |key| settings.numbered("DNS", key).map(|(_, v)| Value::from(v)).collect::<Vec<_>>();
    let mut names = Map::new();
    for (key, values) in [("search", list("SUFFIX")), ("addresses", list("NAMESERVER"))] {
        if !values.is_empty() {
            names.insert(key, values);
        }
    }
    let mut ethernets = Map::new();
    for nic in nics {
        let mac = settings.get(nic, "MACADDR").map(str::to_ascii_lowercase);
        let mac = mac.ok_or_else(|| Error::new(format!("[{nic}] MACADDR: expected a MAC address, found none")))?;
        let name = macs.name(&mac).unwrap_or(nic);
        ethernets.insert(name, device(settings, nic, name, &mac, !primary.is_empty(), &names)?);
    }
    Ok(Map::from_iter([("version", Value::Int(2)), ("ethernets", ethernets.into())]).into())
}

fn device(settings: &ImcSettings, nic: &str, name: &str, mac: &str, any_primary: bool, names: &Map) -> Result<Map> {
    // IPv4_MODE = DISABLED means no IPv4; cloud-init uses DHCP.
    let off = settings.is(nic, "IPv4_MODE", &["disabled"]);
    let is_static = settings.is(nic, "BOOTPROTO", &["static"]);
    let fixed = fixed(settings, nic, is_static && !off)?;
    let mut out = Map::from_iter([
        ("match", Value::Map(Map::from_iter([("macaddress", mac)]))),
        ("set-name", name.into()),
        ("wakeonlan", settings.is(nic, "ONBOOT", &YES).into()),
    ]);
    let dhcp = !off && !is_static;
    out.insert("dhcp4", dhcp);
    if dhcp && !names.is_empty() {
        out.insert("dhcp4-overrides", Map::from_iter([("use-dns", false)]));
    }
    if fixed.iter().any(|(net, _)| net.is_v6()) {
        out.insert("dhcp6", false);
    }
    let (mut addresses, mut routes) = (Vec::new(), Vec::new());
    for (net, gateways) in &fixed {
        addresses.push(Value::from(net.to_string()));
        for (n, gateway) in gateways.iter().enumerate() {
            let whole = Cidr::default_of(net.is_v6());
            let to = match any_primary {
                // The default route goes over the primary NIC, by the first of its gateways.
                true if n == 0 && settings.is(nic, "PRIMARY", &YES) => whole,
                true => continue,
                false => parse(nic, gateway, net.prefix)?.network(),
            };
            routes.push(Value::Map(Map::from_iter([("to", to.to_string()), ("via", (*gateway).to_owned())])));
        }
    }
    for (key, values) in [("addresses", addresses), ("routes", routes)] {
        if !values.is_empty() {
            out.insert(key, values);
        }
    }
    if !names.is_empty() {
        out.insert("nameservers", names.clone());
    }
    Ok(out)
}

/// The static addresses of a NIC, each with its gateways; that of IPv4 comes first, if `v4` is set.
fn fixed<'a>(settings: &'a ImcSettings, nic: &'a str, v4: bool) -> Result<Vec<(Cidr, Vec<&'a str>)>> {
    let mut out = Vec::new();
    if let Some(ip) = settings.get(nic, "IPADDR").filter(|_| v4) {
        let prefix = match settings.get(nic, "NETMASK") {
            Some(mask) => prefix_of(mask, false)
                .ok_or_else(|| Error::new(format!("[{nic}] NETMASK: expected a netmask, found {mask}")))?,
            None => 32,
        };
        let gateways = settings.get(nic, "GATEWAY").unwrap_or_default().split(',').map(str::trim);
        out.push((parse(nic, ip, prefix)?, gateways.filter(|g| !g.is_empty()).take(MAX_ITEMS).collect()));
    }
    for (n, ip) in settings.numbered(nic, "IPv6ADDR") {
        let mask = settings.get(nic, &format!("IPv6NETMASK|{n}")).and_then(|mask| prefix_of(mask, true));
        let prefix = mask.ok_or_else(|| Error::new(format!("[{nic}] IPv6NETMASK|{n}: expected a prefix length")))?;
        let gateway = settings.get(nic, &format!("IPv6GATEWAY|{n}"));
        out.push((parse(nic, ip, prefix)?, gateway.into_iter().collect()));
    }
    Ok(out)
}

fn parse(nic: &str, ip: &str, prefix: u8) -> Result<Cidr> {
    Cidr::parse_address(&format!("{ip}/{prefix}"), None)
        .ok_or_else(|| Error::new(format!("[{nic}]: expected an IP address, found {ip}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::yaml;

    /// As vSphere writes it for two NICs with fixed addresses.
    const STATIC: &str = "[NETWORK]\nNETWORKING = yes\nBOOTPROTO = dhcp\nHOSTNAME   = myhost1\n\n[NIC-CONFIG]\nNICS = NIC1,NIC2\n\n\
        [NIC1]\nMACADDR = 00:50:56:A6:8c:08\nONBOOT = yes\nIPv4_MODE = BACKWARDS_COMPATIBLE\nBOOTPROTO = static\n\
        IPADDR = 10.20.87.154\nNETMASK = 255.255.252.0\nGATEWAY = 10.20.87.253, 10.20.87.105\n\
        IPv6ADDR|1 = fc00:10:20:87::154\nIPv6NETMASK|1 = 64\nIPv6GATEWAY|1 = fc00:10:20:87::253\n\
        [NIC2]\nMACADDR = 00:50:56:a6:ef:7d\nONBOOT = no\nBOOTPROTO = static\nIPADDR = 192.168.6.102\nNETMASK = 255.255.0.0\n\
        GATEWAY = 192.168.0.10\n\n# a comment\n[PASSWORD]\n-PASS = c2VjcmV0Cg==\n\n\
        [DNS]\nDNSFROMDHCP=no\nSUFFIX|1 = eng.vmware.com\nSUFFIX|2 = proxy.vmware.com\nNAMESERVER|1 = 10.20.145.1\n";

    #[test]
    fn fixed_addresses() {
        let expected = yaml::parse(
            "e",
            "version: 2\nethernets:\n  NIC1:\n    match: {macaddress: '00:50:56:a6:8c:08'}\n    set-name: NIC1\n    wakeonlan: true\n    dhcp4: false\n    dhcp6: false\n\
             \x20   addresses: [10.20.87.154/22, 'fc00:10:20:87::154/64']\n\
             \x20   routes: [{to: 10.20.84.0/22, via: 10.20.87.253}, {to: 10.20.84.0/22, via: 10.20.87.105}, {to: 'fc00:10:20:87::/64', via: 'fc00:10:20:87::253'}]\n\
             \x20   nameservers: {search: [eng.vmware.com, proxy.vmware.com], addresses: [10.20.145.1]}\n\
             \x20 lan1:\n    match: {macaddress: '00:50:56:a6:ef:7d'}\n    set-name: lan1\n    wakeonlan: false\n    dhcp4: false\n\
             \x20   addresses: [192.168.6.102/16]\n    routes: [{to: 192.168.0.0/16, via: 192.168.0.10}]\n\
             \x20   nameservers: {search: [eng.vmware.com, proxy.vmware.com], addresses: [10.20.145.1]}\n",
        );
        let macs = Macs::from_iter([("00:50:56:a6:ef:7d", "lan1")]);
        assert_eq!(to_v2(STATIC, &macs).unwrap(), expected.unwrap());
        let primary = to_v2(&STATIC.replace("[NIC2]\n", "[NIC2]\nPRIMARY = true\n"), &macs).unwrap();
        assert_eq!(primary.at(&["ethernets", "NIC1", "routes"]), None);
        let routes = yaml::parse("e", "[{to: 0.0.0.0/0, via: 192.168.0.10}]").unwrap();
        assert_eq!(primary.at(&["ethernets", "lan1", "routes"]), Some(&routes));
    }

    #[test]
    fn dhcp_and_no_ipv4() {
        let dhcp = |more: &str, dns: &str| {
            let text = format!("[NIC-CONFIG]\nNICS = NIC1\n[NIC1]\nMACADDR = 00:50:56:a6:8c:08\n{more}\n{dns}");
            to_v2(&text, &Macs::default()).unwrap().at(&["ethernets", "NIC1"]).cloned().unwrap()
        };
        let plain = dhcp("BOOTPROTO = dhcp", "");
        assert_eq!((plain.get("dhcp4"), plain.get("dhcp4-overrides")), (Some(&Value::Bool(true)), None));
        let named = dhcp("BOOTPROTO = dhcp", "[DNS]\nSUFFIX|1 = eng.vmware.com\n");
        assert_eq!(named.at(&["dhcp4-overrides", "use-dns"]), Some(&Value::Bool(false)));
        let off = dhcp("IPv4_MODE = DISABLED\nBOOTPROTO = static\nIPADDR = 10.0.0.1", "");
        assert_eq!((off.get("dhcp4"), off.get("addresses")), (Some(&Value::Bool(false)), None));
        let host = dhcp("BOOTPROTO = static\nIPADDR = 10.20.87.154", "");
        assert_eq!(host.get("addresses"), Some(&Value::List(vec!["10.20.87.154/32".into()])));
    }

    #[test]
    fn mistakes_name_the_nic_and_the_key() {
        let nic = |more: &str| format!("[NIC-CONFIG]\nNICS = NIC1,NIC2\n[NIC1]\nMACADDR=00:50:56:a6:8c:08\n{more}\n");
        let error = |text: &str| to_v2(text, &Macs::default()).unwrap_err().to_string();
        assert_eq!(error(&nic("")), "[NIC2] MACADDR: expected a MAC address, found none");
        assert!(error(&nic("IPv6ADDR|1 = fc00::1")).contains("[NIC1] IPv6NETMASK|1"));
        assert!(error(&nic("BOOTPROTO=static\nIPADDR = x")).contains("[NIC1]: expected an IP address, found x"));
        assert!(error(&nic("BOOTPROTO=static\nIPADDR = 10.0.0.1\nNETMASK = 255.0.255.0")).contains("[NIC1] NETMASK"));
        assert!(error(&nic("PRIMARY = yes\n[NIC2]\nPRIMARY = true")).contains("NIC1 and NIC2"));
        let nothing = to_v2("", &Macs::default()).unwrap();
        assert_eq!(nothing.get("ethernets").and_then(Value::as_map).map(Map::len), Some(0));
    }
}
