//! Input formats: one file each, and the table of them.

pub mod azure_imds;
mod complete;
pub mod config;
pub mod eni;
mod fields;
pub mod format;
pub mod klibc;
pub mod openstack;
mod v1;
mod v2;
pub mod vmware_imc;

pub use format::Format;

use crate::document::Value;

/// All input formats.
pub static FORMATS: &[&Format] =
    &[&eni::FORMAT, &config::FORMAT, &openstack::FORMAT, &azure_imds::FORMAT, &vmware_imc::FORMAT, &klibc::FORMAT];

/// The format called `name`.
pub fn by_name(name: &str) -> Option<&'static Format> {
    FORMATS.iter().copied().find(|f| f.name == name)
}

/// The names of all formats.
pub fn names() -> Vec<&'static str> {
    FORMATS.iter().map(|f| f.name).collect()
}

/// The format that a document looks like, if any.
pub fn recognise(document: &Value) -> Option<&'static Format> {
    FORMATS.iter().copied().find(|f| (f.recognises)(document))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::problem::{Problems, Severity};
    use crate::machine::Distro;
    use crate::network::mac::Macs;
    use crate::network::model::Method;
    use crate::network::render::{self, Target};

    const NETWORK_DATA: &str = r#"{"links": [{"id": "a", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:01"}],
        "networks": [{"link": "a", "type": "ipv4_dhcp"}]}"#;

    const EXAMPLES: [(&str, &str); 6] = [
        ("eni", "auto ens3\niface ens3 inet dhcp\n"),
        ("yaml", "network: {version: 2, ethernets: {ens3: {dhcp4: true}}}"),
        ("network_data.json", NETWORK_DATA),
        (
            "azure-imds",
            r#"{"network": {"interface": [{"macAddress": "525400000001", "ipv4": {"ipAddress": [{"privateIpAddress": "10.0.0.4"}]}}]}}"#,
        ),
        ("vmware-imc", "[NIC-CONFIG]\nNICS=NIC1\n[NIC1]\nMACADDR=52:54:00:00:00:01\nBOOTPROTO=dhcp\n"),
        ("klibc", "DEVICE='ens3'\nPROTO='dhcp'\nIPV4ADDR='10.0.0.4'\n"),
    ];

    #[test]
    fn text_that_is_too_long_is_ignored() {
        let text = format!(
            "network: {{version: 2, ethernets: {{ens3: {{dhcp4: true, macaddress: '{}'}}}}}}",
            "x".repeat(70_000)
        );
        let (format, report) = (by_name("yaml").unwrap(), Problems::new());
        let document = format.parse("n", &text).unwrap();
        let network = format.read("n", &document, &Macs::default(), &report).unwrap();
        assert_eq!(network.interfaces.len(), 1);
        assert_eq!(report.entries()[0].to_string(), "n: a text of more than 65536 bytes is ignored");
    }

    #[test]
    fn recognises_each_format_and_renders_each_stack() {
        let macs = Macs::from_iter([("52:54:00:00:00:01", "ens3")]);
        assert_eq!(EXAMPLES.map(|e| e.0).to_vec(), names());
        for (name, text) in EXAMPLES {
            let format = by_name(name).unwrap();
            let document = format.parse(name, text).unwrap();
            assert_eq!(recognise(&document).map(|f| f.name), Some(name));
            let report = Problems::new();
            let network = format.read(name, &document, &macs, &report).unwrap();
            assert!(report.is_empty(), "{name}: {report:?}");
            for (stack, has) in [
                ("eni", "inet dhcp\n"),
                ("netplan", "dhcp4: true"),
                ("networkd", "DHCP=ipv4\n"),
                ("sysconfig", "BOOTPROTO="),
                ("network-manager", "[ipv4]\nmethod=auto"),
            ] {
                let distro = Distro::named(if stack == "sysconfig" { "rhel" } else { "debian" });
                let target = Target { distro, ip_tool: true, old_netplan: false };
                let files = render::by_name(stack).unwrap().files(&network, &target, &Problems::new());
                // Azure's interfaces have names of their own; elsewhere the machine's device has the address.
                let device = if name == "azure-imds" { "eth0" } else { "ens3" };
                let named = files.iter().any(|f| f.path.contains(device) || f.content.contains(device));
                assert!(named && files.iter().any(|f| f.content.contains(has)), "{name}, {stack}: {files:?}");
            }
        }
    }

    #[test]
    fn mistakes_name_the_document() {
        let error = |name: &str, text: &str, macs: &Macs| {
            let format = by_name(name).unwrap();
            let read = format.parse("file", text).and_then(|d| format.read("file", &d, macs, &Problems::new()));
            read.unwrap_err().to_string()
        };
        let none = Macs::default();
        assert!(
            error("network_data.json", NETWORK_DATA, &Macs::default().complete()).contains("no device has its MAC")
        );
        assert!(error("yaml", "x: [", &none).contains("file"));
        assert!(error("yaml", "5", &none).starts_with("file: expected a mapping"));
        assert!(error("yaml", "version: 3", &none).starts_with("file: expected version: 1"));
        assert!(recognise(&Value::Null).is_none() && by_name("odd").is_none());
    }

    fn warnings(format: &str, text: &str) -> Vec<String> {
        let (format, report) = (by_name(format).unwrap(), Problems::new());
        let document = format.parse("t", text).unwrap();
        format.read("t", &document, &Macs::default(), &report).unwrap();
        report.texts(Severity::Warning)
    }

    #[test]
    fn empty_text_is_absent_and_float_is_integer() {
        let v1 = "version: 1.0\nconfig: [{type: physical, name: e, mac_address: '', keep_configuration: '', subnets: [\
                  {type: static, address: 10.0.0.2, netmask: '', gateway: '', broadcast: '', metric: '', control: '',\
                   routes: [{destination: '', network: 10.9.0.0/16, gateway: 10.0.0.1}]}]}]";
        let v2 = "version: 2.0\nethernets: {e: {match: {name: ''}, set-name: '', macaddress: '', addresses: [10.0.0.2/24], gateway4: '',\
                  dhcp4-overrides: {hostname: ''}, routes: [{to: 10.9.0.0/16, via: 10.0.0.1, metric: ''}]}}";
        for text in [v1, v2] {
            assert_eq!(warnings("yaml", text), [""; 0]);
            let network = crate::network::testing::network(text);
            let e = &network.interfaces[0];
            assert_eq!((e.name.as_str(), e.is_pattern(), e.rename), ("e", false, false));
            assert_eq!(e.all_routes().map(|r| r.to.to_string()).collect::<Vec<_>>(), ["10.9.0.0/16"]);
        }
        let lost = "version: 2\nethernets: {e: {routes: [{via: 10.0.0.1}]}}";
        assert!(warnings("yaml", lost)[0].contains("ethernets.e.routes[0]: expected a route with a destination"));
    }

    #[test]
    fn y_and_n_are_booleans() {
        let text = "version: 2\nethernets: {a: {dhcp4: y, dhcp6: N}, b: {dhcp4: n, dhcp6: Y, wakeonlan: y}}";
        assert_eq!(warnings("yaml", text), [""; 0]);
        let network = crate::network::testing::network(text);
        let methods = |i: usize| network.interfaces[i].subnets.iter().map(|s| s.method).collect::<Vec<_>>();
        assert_eq!((methods(0), methods(1)), (vec![Method::Dhcp4], vec![Method::Dhcp6]));
        assert_eq!(network.interfaces[1].wake_on_lan, Some(true));
    }

    #[test]
    fn warns_of_an_impossible_device_name() {
        let long = "network configuration: lan4567890123456: no device can have this name, which has over 15 bytes";
        let v1 =
            |name: &str| format!("version: 1\nconfig: [{{type: physical, name: {name}, subnets: [{{type: dhcp}}]}}]");
        assert_eq!(warnings("yaml", &v1("lan4567890123456")), [long]);
        assert_eq!(warnings("yaml", &v1("lan456789012345")), [""; 0]);
        assert_eq!(warnings("yaml", "version: 2\nethernets: {lan4567890123456: {dhcp4: true}}"), [long]);
        // A device that is found by its MAC address keeps its name.
        let kept = format!("{long}; the device keeps its own");
        let mac = "macaddress: '52:54:00:00:00:01'";
        let named =
            format!("version: 2\nethernets: {{e: {{match: {{{mac}}}, set-name: lan4567890123456, dhcp4: true}}}}");
        assert_eq!(warnings("yaml", &named), [kept.as_str()]);
        let e = &crate::network::testing::network(&named).interfaces[0];
        assert_eq!((e.name.as_str(), e.rename), ("e", false));
        let v1 = v1("lan4567890123456, mac_address: '52:54:00:00:00:01'");
        assert_eq!(warnings("yaml", &v1), [kept]);
        // A key that is not a name, and a link that is found by its MAC address.
        let key = "version: 2\nethernets: {lan4567890123456: {match: {macaddress: '52:54:00:00:00:01'}, dhcp4: true}}";
        assert_eq!(warnings("yaml", key), [""; 0]);
        let link = NETWORK_DATA.replace("\"a\"", "\"01234567-89ab-cdef-0123-456789abcdef\"");
        assert_eq!(warnings("network_data.json", &link), [""; 0]);
    }
}
