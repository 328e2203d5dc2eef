//! One format to another by hand: what `cloud-init devel net-convert` does.

use super::model::{Macs, Network};
use super::read;
use super::render::{self, File, Target};
use crate::base::error::{Error, Result};
use crate::document::{Value, json, yaml};
use crate::machine::Distro;

/// Input formats, by net-convert's names (`--kind`).
pub const KINDS: &[&str] = &["eni", "yaml", "network_data.json", "azure-imds", "vmware-imc"];

/// The files of the renderer `output` for `text`, which is of `kind`. `macs` are the machine's devices as `--mac` gives them.
///
/// Fails where the text is not of that kind, where a link of network_data.json has no device, and for unknown names.
pub fn convert(kind: &str, text: &str, output: &str, distro: &str, macs: &Macs) -> Result<Vec<File>> {
    let renderer = render::by_name(output).ok_or_else(|| {
        let names: Vec<&str> = render::RENDERERS.iter().map(|r| r.name).collect();
        Error::new(format!("{output}: not an output kind; expected one of {}", names.join(", ")))
    })?;
    let network = parse(kind, text, macs)?;
    Ok((renderer.render)(&network, &Target { distro: Distro::named(distro), ip_tool: true }))
}

/// The model of `text`, which is of `kind`.
pub fn parse(kind: &str, text: &str, macs: &Macs) -> Result<Network> {
    match kind {
        "eni" => Ok(read::eni::read(text)),
        "yaml" => read::config("network configuration", &yaml::parse("network configuration", text)?, macs),
        "network_data.json" => {
            let v1: Value = read::openstack::to_v1(&json::parse(kind, text.as_bytes())?, macs)?;
            read::config(kind, &v1, macs)
        }
        "azure-imds" => read::azure::read(&json::parse(kind, text.as_bytes())?, macs),
        "vmware-imc" => read::imc::read(text, macs),
        _ => Err(Error::new(format!("{kind}: not an input kind; expected one of {}", KINDS.join(", ")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_converted_and_mistakes_are_told() {
        let macs = Macs::from_iter([("52:54:00:00:00:01", "ens3")]);
        let data = r#"{"links": [{"id": "a", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:01"}],
            "networks": [{"link": "a", "type": "ipv4_dhcp"}]}"#;
        for (kind, text) in [
            ("eni", "auto ens3\niface ens3 inet dhcp\n"),
            ("yaml", "network: {version: 2, ethernets: {ens3: {dhcp4: true}}}"),
            ("network_data.json", data),
            (
                "azure-imds",
                r#"{"network": {"interface": [{"macAddress": "525400000001", "ipv4": {"ipAddress": [{"privateIpAddress": "10.0.0.4"}]}}]}}"#,
            ),
            ("vmware-imc", "[NIC-CONFIG]\nNICS=NIC1\n[NIC1]\nMACADDR=52:54:00:00:00:01\nBOOTPROTO=dhcp\n"),
        ] {
            for (output, has) in [
                ("eni", "inet dhcp\n"),
                ("netplan", "dhcp4: true"),
                ("networkd", "DHCP=ipv4\n"),
                ("sysconfig", "BOOTPROTO="),
                ("network-manager", "[ipv4]\nmethod=auto"),
            ] {
                let distro = if output == "sysconfig" { "rhel" } else { "debian" };
                let files = convert(kind, text, output, distro, &macs).unwrap();
                // Azure's interfaces have names of their own; elsewhere the machine's device has the address.
                let name = if kind == "azure-imds" { "eth0" } else { "ens3" };
                let named = files.iter().any(|f| f.path.contains(name) || f.content.contains(name));
                assert!(named && files.iter().any(|f| f.content.contains(has)), "{kind}, {output}: {files:?}");
            }
        }
        let error =
            |kind, text, output| convert(kind, text, output, "debian", &Macs::default()).unwrap_err().to_string();
        assert!(error("network_data.json", data, "netplan").contains("no device has its MAC address"));
        assert!(error("yaml", "x: [", "netplan").contains("not valid YAML"));
        assert!(error("odd", "", "netplan").contains("eni, yaml, network_data.json, azure-imds, vmware-imc"));
        assert!(error("yaml", "version: 2", "odd").contains("netplan"));
    }
}
