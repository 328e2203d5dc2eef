//! Where prepivot means to differ from what cloud-init 26.2 did, each with its reason.

use super::compare::Meaning;

/// What differs in every file of a renderer, taken out of both sides.
pub fn everywhere(kind: &str, want: &mut Meaning, have: &mut Meaning) {
    // Names: a stack whose files cloud-init wrote without naming rules still gets its names (.link files).
    if want.get("names").is_none_or(Vec::is_empty) {
        want.remove("names");
        have.remove("names");
    }
    // The MTU that DHCP gives is honoured; cloud-init's networkd files leave networkd's default, which ignores it.
    if kind == "networkd" {
        have.values_mut().for_each(|lines| lines.retain(|l| l != "[DHCPv4] UseMTU=yes"));
    }
    // Gateways and routes are documented for every distribution; cloud-init writes none for SUSE's.
    if kind.starts_with("sysconfig") {
        have.retain(|path, _| !path.contains("/ifroute-") || want.contains_key(path));
    }
}

/// One way to differ on purpose.
pub struct Exception {
    pub renderer: &'static str,
    /// What the input holds, as JSON.
    pub input: &'static str,
    /// What the differing line holds.
    pub line: &'static str,
    pub why: &'static str,
}

const fn exception(renderer: &'static str, input: &'static str, line: &'static str, why: &'static str) -> Exception {
    Exception { renderer, input, line, why }
}

pub const REASONS: &[Exception] = &[
    exception(
        "netplan",
        r#""interface":"interface0""#,
        "+ /network/ethernets/interface0/nameservers/",
        "a name server of one interface is documented; cloud-init drops it for netplan",
    ),
    exception(
        "netplan",
        r#""type":"route""#,
        "/routes/1/",
        "the route entry is documented; cloud-init drops it for netplan",
    ),
    exception(
        "netplan",
        r#""bond_interfaces":["eth0","eth1"]"#,
        "/network/bonds/eth",
        "cloud-init calls undeclared parts of a bond bonds, which netplan refuses",
    ),
    exception(
        "netplan",
        "",
        "+ /network/ethernets/eth0 = {}",
        "netplan refuses a bond or a vlan over a device that is not declared",
    ),
    exception(
        "netplan",
        r#""bond_interfaces":["eth0","eth1"]"#,
        "+ /network/ethernets/eth1 = {}",
        "netplan refuses a bond of devices that are not declared",
    ),
    exception(
        "netplan",
        r#""type":"infiniband""#,
        "+ /network/ethernets/ib0/",
        "InfiniBand is documented; cloud-init drops the device for netplan",
    ),
    exception("networkd", r#""mtu":"#, "[Route]", "the MTU of a route is netplan's key; cloud-init drops it"),
    exception("networkd", r#""scope":"#, "[Route]", "as above, the scope"),
    exception(
        "networkd",
        r#""bond_interfaces":"#,
        "[Bond]",
        "bond parameters are documented; cloud-init drops those that version 1 spells with an underscore",
    ),
    exception("networkd", "primary", "Bond=", "as above, the primary"),
    exception(
        "networkd",
        r#""forward-delay":0"#,
        "[Bridge]",
        "a forward delay of 0 is said, and is not the default; cloud-init drops zeros",
    ),
    exception(
        "networkd",
        r#""control":"manual""#,
        "+ [Link] ActivationPolicy=manual",
        "control is documented; cloud-init drops it for networkd",
    ),
    exception(
        "networkd",
        "ipv6_dhcpv6-stateful",
        "[Network] DHCP=",
        "DHCPv6 is asked for; cloud-init leaves it to what routers advertise",
    ),
    exception("networkd", r#""mtu":"#, "[Link]", "a subnet's MTU counts, as with every other renderer"),
    exception("networkd", r#""mtu":"#, "[Network]", "IPv6 has an MTU of its own; cloud-init drops it for networkd"),
    exception(
        "networkd",
        r#""broadcast":"#,
        "[Address]",
        "the broadcast address is documented; cloud-init drops it for networkd",
    ),
    exception(
        "networkd",
        r#""metric":"#,
        "RouteMetric=",
        "a lease's metric is documented; cloud-init drops version 1's",
    ),
    exception(
        "networkd",
        r#""set-name":"#,
        "[Network]",
        "netplan names the parts of a bridge by their keys; cloud-init looks for devices of that name",
    ),
    exception(
        "networkd",
        r#""match":{"macaddress":"#,
        "[Match] MACAddress=",
        "a key of version 2 is no device's name, which the MAC address finds; cloud-init wants both",
    ),
    exception(
        "networkd",
        r#""match":{"name":"#,
        "[Match] Name=",
        "a pattern is for all devices that fit; cloud-init takes the key for a name",
    ),
    exception(
        "network-manager",
        r#""match":{"name":"#,
        "/cloud-init-",
        "a pattern is for all devices that fit; cloud-init's profile is for one that is called like its key",
    ),
    exception(
        "network-manager",
        r#""xx:xx:xx:xx:xx:0"#,
        "[ethernet] mac-address=XX:XX",
        "NetworkManager drops what is no MAC address, and the profile would be for every device",
    ),
    exception(
        "network-manager",
        r#""xx:xx:xx:xx:xx:0"#,
        "+ [connection] interface-name=e",
        "as above: the device is found by its name instead",
    ),
    exception(
        "network-manager",
        r#""control":"manual""#,
        "+ [connection] autoconnect=false",
        "control is documented; cloud-init drops it for NetworkManager",
    ),
    exception(
        "network-manager",
        r#"bridge"#,
        "+ [bridge] ",
        "bridge parameters are documented; cloud-init drops all but two for NetworkManager",
    ),
    exception("network-manager", r#"bridge"#, "+ [bridge-port] ", "as above, those of ports"),
    exception(
        "network-manager",
        r#"bond_miimon"#,
        "+ [bond] miimon=",
        "bond parameters are documented; cloud-init drops those that version 1 spells with an underscore",
    ),
    exception(
        "network-manager",
        r#""type":"route""#,
        "+ [ipv4] route1=",
        "the route entry is documented; cloud-init drops it for NetworkManager",
    ),
    exception(
        "network-manager",
        r#"vlan"#,
        "+ [ethernet] mtu=",
        "the MTU of a VLAN is documented; cloud-init drops it for NetworkManager",
    ),
    exception(
        "network-manager",
        r#"mac"#,
        "+ [ethernet] cloned-mac-address=",
        "the MAC address of bonds and VLANs is documented; cloud-init drops it for NetworkManager",
    ),
    exception(
        "network-manager",
        r#""metric":"#,
        "[ipv4] route",
        "a metric is for its route or its lease; cloud-init gives the last one to all routes",
    ),
    exception(
        "network-manager",
        r#""driver":"#,
        "+ [match] driver=",
        "the driver of a match is documented: Azure's devices share MAC addresses; cloud-init drops it",
    ),
    exception(
        "network-manager",
        r#""accept-ra":"#,
        "[ipv6] method=",
        "accept-ra is documented; for NetworkManager cloud-init accepts advertisements where it says no, and none where it says yes",
    ),
    exception(
        "network-manager",
        r#""nameservers":"#,
        "+ [ip",
        "name servers are documented, with or without addresses; cloud-init drops them where there are none",
    ),
    exception(
        "network-manager",
        r#""to":"::/0""#,
        "+ [ipv6] method=auto",
        "NetworkManager refuses a profile that has routes or name servers and no method",
    ),
    exception(
        "network-manager",
        r#""address":"0.0.0.0""#,
        "[ipv4] ",
        "an IPv4 address is configured as one; NetworkManager drops it from the section of IPv6",
    ),
    exception("network-manager", r#""address":"0.0.0.0""#, "- [ipv6] address1=0.0.0.0/24", "as above"),
    exception(
        "eni",
        r#""2001:3db::2a""#,
        "iface lo inet loopback",
        "a name server of the machine is documented, whichever its family; cloud-init drops IPv6's",
    ),
    exception("eni", r#""FEDC::1"],"search":["bbbb"]"#, "iface lo inet loopback", "as above"),
    exception(
        "eni",
        r#""interface":"interface0""#,
        "iface interface0 inet static",
        "a name server of one interface is documented; cloud-init drops it for interfaces(5)",
    ),
    exception(
        "eni",
        r#""nameservers":"#,
        "iface ",
        "name servers are documented, with DHCP and without addresses too; cloud-init drops them there",
    ),
    exception(
        "eni",
        r#""mtu":"#,
        "/interfaces ",
        "the MTU of a route is netplan's key, and a link-local gateway has no route without a device; cloud-init drops both",
    ),
    exception(
        "eni",
        r#""via":"fe80:"#,
        "iface ",
        "ifupdown refuses a static stanza without an address, and the whole file with it",
    ),
    exception(
        "eni",
        "path-cost",
        "bridge-pathcost",
        "cloud-init writes the ports without their path costs and priorities",
    ),
    exception(
        "eni",
        r#""set-name":"#,
        "bridge-ports ",
        "netplan names the parts of a bridge by their keys; cloud-init looks for devices of that name",
    ),
    exception(
        "eni",
        r#""match":{"name":"#,
        " nics",
        "interfaces(5) has no patterns; cloud-init takes the key for a name",
    ),
    exception(
        "eni",
        r#""bridge_maxwait":0,"bridge_pathcost""#,
        "iface br0 inet static",
        "bridge_maxwait: 0 is said, and is not the default; cloud-init drops zeros",
    ),
    exception(
        "eni",
        r#""destination":"10.0.0.0/8""#,
        "iface eth0.101 inet static",
        "cloud-init writes the machine's routes after the last stanza, whose they become",
    ),
    exception(
        "eni",
        r#""type":"infiniband""#,
        "iface ib0 inet static",
        "the address is how the device is found; it is not to be set",
    ),
    exception(
        "sysconfig",
        r#""type":"static6","address":"2001:1::1/64","dns_nameservers""#,
        "/ifcfg-iface0",
        "each subnet's name servers count; cloud-init writes the second's over the first's",
    ),
    exception(
        "sysconfig",
        r#""interface":"interface0""#,
        "/ifcfg-interface0",
        "a name server of one interface is documented; cloud-init has it in resolv.conf only",
    ),
    exception("sysconfig", r#""mtu":"#, "/route", "the MTU of a route is netplan's key; cloud-init drops it"),
    exception(
        "sysconfig",
        r#"bond-lacp_rate"#,
        "OPTS: lacp_rate=",
        "bond parameters are documented; cloud-init drops those that version 1 spells with an underscore",
    ),
    exception("sysconfig", r#"bond-fail_over_mac"#, "OPTS: ", "as above"),
    exception("sysconfig", r#""scope":"#, "/route", "as above, the scope"),
    exception(
        "sysconfig",
        r#"bridges"#,
        "+ DELAY=",
        "bridge parameters are documented; cloud-init drops all but three",
    ),
    exception("sysconfig", "path-cost", "+ BRIDGING_OPTS=", "as above, those of ports"),
    exception("sysconfig", "bridges", "+ BRIDGE_", "as above, for SUSE"),
    exception(
        "sysconfig",
        r#""bridge_fd""#,
        "+ DELAY=",
        "bridge parameters are documented; cloud-init drops all but three",
    ),
    exception("sysconfig", r#""bridge_pathcost""#, "+ BRIDGING_OPTS=", "as above, those of ports"),
    exception("sysconfig", r#""bridge_fd""#, "+ BRIDGE_", "as above, for SUSE"),
    exception(
        "sysconfig",
        r#""type":"route""#,
        "/route-",
        "the route entry is documented; cloud-init drops it for sysconfig",
    ),
    exception(
        "sysconfig",
        r#"vlan"#,
        "+ VLAN_ID=",
        "network scripts take the id from the device's name, where it is not",
    ),
    exception(
        "sysconfig",
        r#""link":"eno1""#,
        "ETHERDEVICE=e",
        "a VLAN is on the device that its link says; cloud-init takes it from the VLAN's name",
    ),
    exception(
        "sysconfig",
        r#"vlans"#,
        "+ MACADDR=",
        "the MAC address of VLANs is documented; cloud-init drops it for sysconfig",
    ),
    exception("sysconfig", r#"vlans"#, "+ LLADDR=", "as above, for SUSE"),
    exception(
        "sysconfig",
        r#""type":"vlan""#,
        "ADDR=aa:bb:cc:dd:ee:11",
        "the MAC address of VLANs is documented; cloud-init drops it for sysconfig",
    ),
    exception(
        "sysconfig",
        r#""interfaces":["enp0s0","enp0s1"]"#,
        "/ifcfg-enp0s",
        "cloud-init calls undeclared parts of a bond bonds",
    ),
    exception("sysconfig", r#"bb:bb:bb:bb:bb:aa""#, "LLADDR", "SUSE's key is LLADDR for bridges too (ifcfg(5))"),
    exception("sysconfig", "wakeonlan", "ETHTOOL_OPT", "SUSE's key is ETHTOOL_OPTIONS (ifcfg(5))"),
    exception(
        "sysconfig",
        r#""metric":"#,
        "IPV4_ROUTE_METRIC=",
        "a metric is for its lease; cloud-init writes the last subnet's",
    ),
    exception("sysconfig", r#""metric":"#, "+ DHCLIENT_ROUTE_PRIORITY=", "as above; cloud-init drops it for SUSE"),
    exception(
        "sysconfig",
        r#""set-name":"#,
        "BRIDGE_PORTS=",
        "netplan names the parts of a bridge by their keys; cloud-init looks for devices of that name",
    ),
    exception(
        "sysconfig",
        r#""match":{"name":"#,
        "/ifcfg-nics",
        "ifcfg files have no patterns; cloud-init takes the key for a name",
    ),
    exception(
        "netplan",
        r#""metric":"#,
        "dhcp6-overrides/route-metric",
        "netplan refuses two metrics of one interface's leases for networkd",
    ),
    exception("netplan", r#""mtu":"#, "mtu = ", "IPv6's MTU is not the device's"),
    exception(
        "netplan",
        r#""control":"manual""#,
        "/activation-mode = \"manual\"",
        "control is documented; cloud-init drops it for netplan",
    ),
];

/// The exceptions that this case can have.
pub fn reasons<'a>(renderer: &'a str, input: &'a str) -> impl Iterator<Item = &'static Exception> + use<'a> {
    REASONS.iter().filter(move |r| renderer.starts_with(r.renderer) && input.contains(r.input))
}
