//! Files that klibc's ipconfig and open-iscsi leave in the initramfs, /run/net-*.conf and /run/net6-*.conf,
//! read by way of version 1.

use super::format::{Format, Syntax, text};
use super::v1;
use crate::base::error::{Error, Result};
use crate::base::manual;
use crate::base::problem::Problems;
use crate::document::{Map, Value};
use crate::machine::{Cmdline, beneath};
use crate::network::mac::Macs;
use crate::network::model::Network;
use std::path::Path;

pub static FORMAT: Format = Format {
    name: "klibc",
    title: manual("klibc's /run/net-NAME.conf and net6-NAME.conf"),
    syntax: Syntax::Text,
    recognises: |document| document.as_str().is_some_and(|text| device(&variables(text)).is_some()),
    reader: read,
};

/// Reads one such file.
///
/// # Errors
/// The file names no device; or the document is not a text.
fn read(document: &str, value: &Value, macs: &Macs, report: &Problems) -> Result<Network> {
    let file = (document.to_owned(), text(document, value)?.to_owned());
    let entries = entries(&[file], |name| macs.mac(name).map(str::to_owned), report);
    if entries.is_empty() {
        return Err(Error::new(format!("{document}: expected DEVICE or DEVICE6")));
    }
    Ok(v1::read(&entries, report))
}

/// The most files that are read.
const MAX_FILES: usize = 256;

/// The file below /run with the name of the interface that open-iscsi uses.
const ISCSI: &str = "initramfs/open-iscsi.interface";

/// The files in `run` (`/run`) as version 1. `mac` returns the MAC address of a device. None if there are no
/// files, or if neither the kernel command line (`ip=`, `ip6=`) nor open-iscsi configured the network in the
/// initramfs.
pub fn of_initramfs(
    run: &Path,
    cmdline: &Cmdline,
    mac: impl Fn(&str) -> Option<String>,
    report: &Problems,
) -> Option<Value> {
    let by_cmdline = cmdline.words().any(|w| w.starts_with("ip=") || w.starts_with("ip6="));
    if !by_cmdline && !beneath::exists(run, ISCSI) {
        return None;
    }
    left_by_initramfs(run, mac, report)
}

/// The files in `run` as version 1, whatever configured the network. None if there are no files.
pub fn left_by_initramfs(run: &Path, mac: impl Fn(&str) -> Option<String>, report: &Problems) -> Option<Value> {
    let mut names = beneath::names(run, ".");
    names.retain(|n| (n.starts_with("net-") || n.starts_with("net6-")) && n.ends_with(".conf"));
    names.sort();
    names.truncate(MAX_FILES);
    let texts: Vec<(String, String)> =
        names.into_iter().filter_map(|n| beneath::read(run, &n).map(|text| (n, text))).collect();
    let entries = entries(&texts, mac, report);
    (!entries.is_empty()).then(|| Map::from_iter([("version", Value::Int(1)), ("config", entries.into())]).into())
}

/// The entries of version 1 from the files' names and texts. A device may have several files, one for each family.
fn entries(files: &[(String, String)], mac: impl Fn(&str) -> Option<String>, report: &Problems) -> Vec<Value> {
    let mut entries: Vec<(String, Map)> = Vec::new();
    for (file, text) in files {
        let data = variables(text);
        let Some(name) = device(&data) else {
            report.about(file).warn("expected DEVICE or DEVICE6; the file is ignored");
            continue;
        };
        let new = subnets(file, &data, report);
        match entries.iter_mut().find(|(n, _)| n == name) {
            Some((_, entry)) => {
                if let Some(Value::List(old)) = entry.get_mut("subnets") {
                    old.extend(new.into_iter().filter(|s| !old.contains(s)).collect::<Vec<_>>());
                }
            }
            None => {
                let mut entry = Map::from_iter([("type", "physical"), ("name", name)]);
                if let Some(mac) = mac(name) {
                    entry.insert("mac_address", mac);
                }
                // The root file system may depend on it: the real root's network manager must not remove its
                // configuration.
                entry.insert("keep_configuration", true);
                entry.insert("subnets", new);
                entries.push((name.to_owned(), entry));
            }
        }
    }
    entries.into_iter().map(|(_, e)| e.into()).collect()
}

/// The device that a file is for.
fn device(data: &Variables) -> Option<&str> {
    get(data, "DEVICE").or_else(|| get(data, "DEVICE6"))
}

type Variables = Vec<(String, String)>;

/// `KEY=value` lines, without the shell's quotes.
fn variables(text: &str) -> Variables {
    let pair = |line: &str| {
        let (key, value) = line.trim().split_once('=')?;
        Some((key.to_owned(), value.trim().trim_matches(['\'', '"']).to_owned()))
    };
    text.lines().filter(|l| !l.starts_with('#')).filter_map(pair).collect()
}

fn get<'a>(data: &'a Variables, key: &str) -> Option<&'a str> {
    data.iter().rev().find(|(k, v)| k == key && !v.is_empty()).map(|(_, v)| v.as_str())
}

fn subnets(file: &str, data: &Variables, report: &Problems) -> Vec<Value> {
    let default = get(data, "PROTO").or(get(data, "IPV6PROTO"));
    let default = default.unwrap_or(if get(data, "filename").is_some() { "dhcp" } else { "none" });
    let mut out = Vec::new();
    for family in ["IPV4", "IPV6"] {
        let value = |key: &str| get(data, &format!("{family}{key}"));
        let Some(address) = value("ADDR") else { continue };
        let subnet_type = match (value("PROTO").unwrap_or(default), family) {
            ("none" | "off" | "static", _) => "static",
            ("dhcp6", _) | ("dhcp", "IPV6") => "dhcp6",
            ("dhcp" | "both" | "on" | "any", _) => "dhcp4",
            _ => {
                report.about(file).warn_key("PROTO", "expected dhcp, static, off or none; the address is ignored");
                continue;
            }
        };
        // The device is up already.
        let mut subnet = Map::from_iter([("type", subnet_type), ("control", "manual")]);
        if subnet_type == "static" {
            subnet.insert("address", address);
        }
        for key in ["NETMASK", "BROADCAST", "GATEWAY"] {
            if let Some(v) = value(key).filter(|v| is_set(v) || key == "NETMASK") {
                subnet.insert(key.to_ascii_lowercase(), v);
            }
        }
        let servers: Vec<Value> =
            ["DNS0", "DNS1"].iter().filter_map(|k| value(k)).filter(|v| is_set(v)).map(Value::from).collect();
        if !servers.is_empty() {
            subnet.insert("dns_nameservers", servers);
            if let Some(search) = get(data, "DOMAINSEARCH").or(get(data, "IPV6DOMAINSEARCH")) {
                let words = search.split([',', ' ']).filter(|w| !w.is_empty()).map(Value::from);
                subnet.insert("dns_search", Value::List(words.collect()));
            }
        }
        out.push(subnet.into());
    }
    out
}

/// Whether an address is set: klibc writes zeros for one that is not.
fn is_set(address: &str) -> bool {
    !address.trim_matches([':', '.', '0']).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    const V4: &str = "DEVICE='eth0'\nPROTO='dhcp'\nIPV4ADDR='192.168.122.89'\nIPV4BROADCAST='192.168.122.255'\n\
        IPV4NETMASK='255.255.255.0'\nIPV4GATEWAY='192.168.122.1'\nIPV4DNS0='192.168.122.1'\nIPV4DNS1='0.0.0.0'\n\
        HOSTNAME='foohost'\nDOMAINSEARCH='foo.com, bar.com'\n";
    const V6: &str = "DEVICE6=eno1\nIPV6PROTO=none\nIPV6ADDR=2001:db8::5\nIPV6NETMASK=64\nIPV6GATEWAY=2001:db8::1\n";

    fn v1(files: &[(&str, &str)]) -> Option<String> {
        let files: Vec<(String, String)> = files.iter().map(|(n, t)| (n.to_string(), t.to_string())).collect();
        let mac = |n: &str| (n == "eth0").then(|| "14:02:ec:42:48:00".into());
        let entries = entries(&files, mac, &Problems::new());
        (!entries.is_empty()).then(|| json::to_string(&Value::List(entries)))
    }

    #[test]
    fn files_become_entries_of_version_1() {
        assert_eq!(
            v1(&[("net-eth0.conf", V4)]).unwrap(),
            r#"[{"type":"physical","name":"eth0","mac_address":"14:02:ec:42:48:00","keep_configuration":true,"subnets":[{"type":"dhcp4","control":"manual","netmask":"255.255.255.0","broadcast":"192.168.122.255","gateway":"192.168.122.1","dns_nameservers":["192.168.122.1"],"dns_search":["foo.com","bar.com"]}]}]"#
        );
        assert_eq!(
            v1(&[("net6-eno1.conf", V6), ("net-none.conf", "PROTO=dhcp\n")]).unwrap(),
            r#"[{"type":"physical","name":"eno1","keep_configuration":true,"subnets":[{"type":"static","control":"manual","address":"2001:db8::5","netmask":"64","gateway":"2001:db8::1"}]}]"#
        );
        assert_eq!(v1(&[]), None);
    }

    #[test]
    fn reads_files_only_if_initramfs_configured_network() {
        let run = crate::base::testing::TempDir::new("klibc");
        run.write("net-eth0.conf", V4);
        let found = |cmdline: &str| of_initramfs(&run.0, &Cmdline::new(cmdline), |_| None, &Problems::new()).is_some();
        assert!(!found("root=/dev/sda quiet"));
        assert!(found("ip=dhcp"));
        std::fs::create_dir(run.0.join("initramfs")).unwrap();
        std::fs::write(run.0.join(ISCSI), "eth0").unwrap();
        assert!(found("quiet"));
    }
}
