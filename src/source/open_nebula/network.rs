//! OpenNebula's `ETHn_` variables as a network configuration, version 2.
//!
//! Follows OpenNebula's documentation, "Virtual Machine Template", "Context section".

use crate::base::problem::{Problem, Problems, Severity};
use crate::document::{Map, Value};
use crate::machine::Nic;
use std::net::Ipv4Addr;

/// The default prefix length of IPv6 addresses, and the default mask of IPv4 addresses.
const PREFIX_6: &str = "64";
const MASK: &str = "255.255.255.0";
/// How many name servers, domains and routes are read.
const MAX_WORDS: usize = 100;

/// The configuration of every physical NIC; None if no variable has an address. Problems are added to
/// `problems`.
pub fn config(context: &Map, nics: &[Nic], problems: &Problems) -> Option<Value> {
    context.keys().any(is_address).then_some(())?;
    let devices = nics.iter().filter(|nic| nic.physical).filter_map(|nic| {
        let device = device(context, nic, problems).map_err(|e| problems.push(problem(nic, e))).ok()?;
        Some((nic.name.as_str(), device))
    });
    let devices: Map = devices.collect();
    Some(Value::Map([("version", Value::Int(2)), ("ethernets", devices.into())].into_iter().collect()))
}

/// `ETH0_IP`, `ETH10_IP6`, …
fn is_address(name: &str) -> bool {
    after_number(name).is_some_and(|rest| rest.starts_with("_IP"))
}

/// The rest of the name after `ETH0`, `ETH10`, …
fn after_number(name: &str) -> Option<&str> {
    let number = name.strip_prefix("ETH")?;
    Some(number.trim_start_matches(|c: char| c.is_ascii_digit())).filter(|rest| rest.len() < number.len())
}

fn problem(nic: &Nic, what: &str) -> Problem {
    Problem::new(Severity::Warning, "context.sh", &nic.name, what)
}

/// The configuration of one NIC. Optional values that are invalid are added to `problems`.
fn device(context: &Map, nic: &Nic, problems: &Problems) -> Result<Map, &'static str> {
    let text = |name: &str| context.get(name).and_then(Value::as_str).filter(|v| !v.is_empty());
    // The one with this NIC's MAC address; else the one with its name, unless its MAC address is another
    // NIC's.
    let same = |(name, value): (&str, &Value)| {
        // `ETH0_ALIAS0_MAC` belongs to a further address, and may be the same.
        let prefix = name.strip_suffix("_MAC").filter(|prefix| after_number(prefix) == Some(""))?;
        value.as_str().is_some_and(|mac| mac.eq_ignore_ascii_case(&nic.mac)).then(|| prefix.to_owned())
    };
    let of_name = || Some(nic.name.to_ascii_uppercase()).filter(|prefix| text(&format!("{prefix}_MAC")).is_none());
    let prefix = context.iter().find_map(same).or_else(of_name);
    let field = |name: &str| text(&format!("{}_{name}", prefix.as_ref()?));
    let words = |name: &str| {
        let mut all: Vec<Value> = Vec::new();
        let words = [field(name), text(name)].into_iter().flatten().flat_map(str::split_whitespace);
        for word in words.take(MAX_WORDS).map(Value::from) {
            if !all.contains(&word) {
                all.push(word);
            }
        }
        all
    };
    let address = match field("IP") {
        Some(address) => address.to_owned(),
        None => of_mac(&nic.mac).ok_or("its MAC address does not give an IPv4 address")?.to_string(),
    };
    let mask = field("MASK").unwrap_or(MASK);
    let prefix_4 = match mask.parse::<Ipv4Addr>() {
        Ok(mask) if mask.to_bits().leading_ones() + mask.to_bits().trailing_zeros() >= 32 => {
            mask.to_bits().leading_ones()
        }
        _ => mask.parse().ok().filter(|p| *p <= 32).ok_or("MASK: expected a mask as 255.255.255.0")?,
    };
    let mut addresses = vec![Value::from(format!("{address}/{prefix_4}"))];
    let prefix_6 = field("IP6_PREFIX_LENGTH").unwrap_or(PREFIX_6);
    addresses
        .extend(["IP6", "IP6_ULA"].iter().filter_map(|n| field(n)).map(|a| Value::from(format!("{a}/{prefix_6}"))));
    let mut device = Map::new();
    device.insert("match", [("macaddress", nic.mac.as_str())].into_iter().collect::<Map>());
    device.insert("addresses", addresses);
    let gateways = [("gateway4", field("GATEWAY")), ("gateway6", field("IP6_GATEWAY").or_else(|| field("GATEWAY6")))];
    for (key, gateway) in gateways {
        gateway.map(|gateway| device.insert(key, gateway));
    }
    let lists = [("addresses", words("DNS")), ("search", words("SEARCH_DOMAIN"))];
    let nameservers: Map = lists.into_iter().filter(|(_, list)| !list.is_empty()).collect();
    if !nameservers.is_empty() {
        device.insert("nameservers", nameservers);
    }
    if let Some(mtu) = field("MTU") {
        match mtu.parse::<u32>() {
            Ok(mtu) => drop(device.insert("mtu", mtu)),
            Err(_) => problems.push(problem(nic, "MTU: expected a number")),
        }
    }
    let mut routes = Vec::new();
    let entries = field("ROUTES").unwrap_or_default().split(',').map(str::trim).filter(|entry| !entry.is_empty());
    for entry in entries.take(MAX_WORDS) {
        match entry.split_whitespace().take(4).collect::<Vec<_>>()[..] {
            [to, "via", via] => routes.push(Value::Map([("to", to), ("via", via)].into_iter().collect())),
            _ => problems.push(problem(nic, "ROUTES: expected NETWORK via ROUTER, and a comma between several")),
        }
    }
    if !routes.is_empty() {
        device.insert("routes", routes);
    }
    Ok(device)
}

/// The IPv4 address in the last four bytes of a MAC address, which OpenNebula derives from it.
fn of_mac(mac: &str) -> Option<Ipv4Addr> {
    let bytes: Vec<u8> = mac.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect::<Result<_, _>>().ok()?;
    match bytes[..] {
        [_, _, a, b, c, d] => Some(Ipv4Addr::new(a, b, c, d)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    fn nic(name: &str, mac: &str) -> Nic {
        Nic { name: name.into(), mac: mac.into(), physical: true, ..Nic::default() }
    }

    #[test]
    fn addresses_by_variable_and_by_mac() {
        let context: Map = [("ETH0_IP", "10.0.0.5"), ("ETH0_MAC", "02:00:0A:00:00:05"), ("ETH0_MASK", "255.255.0.0")]
            .into_iter()
            .collect();
        let (nics, problems) = ([nic("ens3", "02:00:0a:00:00:05"), nic("ens4", "02:00:0a:01:00:09")], Problems::new());
        let config = config(&context, &nics, &problems).unwrap();
        let addresses_of =
            |config: &Value, name| json::to_string(config.at(&["ethernets", name, "addresses"]).unwrap());
        let addresses = |name| addresses_of(&config, name);
        assert_eq!((addresses("ens3"), addresses("ens4")), ("[\"10.0.0.5/16\"]".into(), "[\"10.1.0.9/24\"]".into()));
        // An eth0 that is not the one of ETH0_MAC.
        let other = super::config(&context, &[nic("eth0", "02:00:0a:02:00:09")], &problems).unwrap();
        let other = other.at(&["ethernets", "eth0", "addresses"]).unwrap();
        assert_eq!(json::to_string(other), "[\"10.2.0.9/24\"]");
        assert!(problems.is_empty());
        // An alias has its parent's MAC address.
        let alias = [("ETH0_ALIAS0_IP", "10.0.0.6"), ("ETH0_ALIAS0_MAC", "02:00:0a:00:00:05")].into_iter();
        let both: Map = alias.chain(context.iter().map(|(name, value)| (name, value.as_str().unwrap()))).collect();
        let parent = super::config(&both, &nics, &problems).unwrap();
        assert_eq!(addresses_of(&parent, "ens3"), "[\"10.0.0.5/16\"]");
        assert!(super::config(&[("ETH0_MAC", "x"), ("ETH_IP", "y")].into_iter().collect(), &nics, &problems).is_none());
    }

    #[test]
    fn wrong_value_is_a_problem_of_its_nic() {
        for (name, value) in [("MASK", "255.0.255.0"), ("MTU", "big"), ("ROUTES", "10.0.0.0/8 10.0.0.1")] {
            let context: Map =
                [("ETH0_IP".to_owned(), "10.0.0.5"), (format!("ETH0_{name}"), value)].into_iter().collect();
            let problems = Problems::new();
            let config = config(&context, &[nic("eth0", "02:00:0a:00:00:05")], &problems).unwrap();
            // Without a mask there is no address; an MTU or a route it can do without.
            assert_eq!(config.at(&["ethernets", "eth0"]).is_none(), name == "MASK");
            assert!(config.at(&["ethernets", "eth0", "routes"]).is_none());
            assert!(
                problems.entries()[0].to_string().starts_with(&format!("context.sh: eth0: {name}: expected ")),
                "{problems:?}"
            );
        }
        assert_eq!(of_mac("00:00"), None);
    }

    /// Each word is compared with those before it.
    #[test]
    fn words_without_end_end_in_time() {
        let words: String = (0..100_000).map(|i| format!("d{i} ")).collect();
        let context: Map = [("ETH0_IP", "10.0.0.5"), ("ETH0_SEARCH_DOMAIN", &words)].into_iter().collect();
        let before = crate::base::testing::cpu_time();
        let config = config(&context, &[nic("eth0", "02:00:0a:00:00:05")], &Problems::new()).unwrap();
        let domains = config.at(&["ethernets", "eth0", "nameservers", "search"]).unwrap();
        assert_eq!(domains.as_list().unwrap().len(), MAX_WORDS);
        assert!(crate::base::testing::cpu_time() - before < std::time::Duration::from_secs(5));
    }
}
