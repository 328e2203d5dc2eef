//! Whatever parses is rendered for every stack without a panic, and what is written for netplan reads back as the same model.

use prepivot::base::problem::{Problems, Severity};
use prepivot::document::{Map, Value, yaml};
use prepivot::machine::Distro;
use prepivot::machine::nic::is_name;
use prepivot::network::mac::plain_mac;
use prepivot::network::model::{DeviceType, Interface, Method};
use prepivot::network::read::config;
use prepivot::network::{Macs, Network, Target, render};
use std::collections::BTreeSet;

/// A small generator of numbers that are the same in every run (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % below.max(1)
    }
}

const EVERYTHING: &[&str] = &[
    "version: 1\nconfig:\n\
     - {type: physical, name: eth0, mac_address: '52:54:00:00:00:01', mtu: 1400, wakeonlan: true, keep_configuration: static,\n\
     \x20  subnets: [{type: static, address: 10.0.0.2/24, gateway: 10.0.1.1, dns_nameservers: [1.1.1.1], dns_search: a b, metric: 3, mtu: 1300,\n\
     \x20   routes: [{network: 10.9.0.0, netmask: 255.255.0.0, gateway: 10.0.0.9, metric: 7}]}, {type: dhcp, metric: 5},\n\
     \x20   {type: ipv6_slaac}, {type: static6, address: '2001:db8::5', netmask: 64, gateway: 'fe80::1'}]}\n\
     - {type: physical, name: eth1, subnets: [{type: ipv6_dhcpv6-stateless, control: manual}]}\n\
     - {type: infiniband, name: ib0, mac_address: 'a0:00:02:20:fe:80:00:00:00:00:00:00:ec:0d:9a:03:00:15:e2:c1', subnets: [{type: dhcp4}]}\n\
     - {type: bond, name: bond0, bond_interfaces: [eth0, eth1], params: {bond-mode: 4, bond_miimon: 100, bond-arp_ip_target: '1.1.1.1 2.2.2.2', bond-primary: eth1}}\n\
     - {type: bridge, name: br0, bridge_interfaces: [bond0], params: {bridge_stp: 'off', bridge_pathcost: [bond0 75], bridge_fd: 1, bridge_gcint: 2}}\n\
     - {type: vlan, name: br0.7, vlan_link: br0, vlan_id: 7, mac_address: 'aa:aa:aa:aa:aa:aa', subnets: [{type: dhcp6}]}\n\
     - {type: nameserver, address: [8.8.8.8, '2001:db8::8'], search: x}\n\
     - {type: nameserver, address: 9.9.9.9, interface: br0.7}\n\
     - {type: route, destination: 192.168.0.0/16, gateway: 10.0.0.4, metric: 1}\n\
     - {type: loopback, name: lo, subnets: [{type: loopback, address: 127.0.0.2/8}]}\n",
    "network:\n  version: 2\n  ethernets:\n\
     \x20   id0: {match: {macaddress: '52-54-00-00-00-01', driver: e1000}, set-name: lan0, dhcp4: true, dhcp6: true, wakeonlan: true, optional: true,\n\
     \x20     dhcp4-overrides: {use-mtu: false, use-domains: route, route-metric: 5, hostname: h}, dhcp6-overrides: {use-dns: no}, accept-ra: yes}\n\
     \x20   all: {match: {name: 'en*'}, link-local: [], addresses: [10.0.0.2/24, {'2001:db8::2/64': {label: x, lifetime: 0}}], gateway4: 10.0.0.1, gateway6: 'fe80::1',\n\
     \x20     nameservers: {addresses: [1.1.1.1], search: [a]}, routes: [{to: default, via: 10.0.0.1, table: 7, mtu: 1300, on-link: true, type: unicast, scope: link, from: 10.0.0.2}],\n\
     \x20     routing-policy: [{from: 10.0.0.0/8, to: 0.0.0.0/0, table: 7, priority: 3, mark: 4, type-of-service: 8}], ipv6-privacy: true, ipv6-mtu: 1280}\n\
     \x20 wifis: {wlan0: {access-points: {net: {password: secret}}, dhcp4: true}}\n\
     \x20 dummy-devices: {dm0: {addresses: [1.2.3.4/32]}}\n\
     \x20 bonds: {b0: {interfaces: [id0], parameters: {mode: 802.3ad, mii-monitor-interval: 100ms, arp-ip-targets: [1.1.1.1], primary: id0}}}\n\
     \x20 bridges: {br0: {interfaces: [b0], parameters: {stp: true, path-cost: {b0: 5}, priority: 9}, macaddress: 'aa:aa:aa:aa:aa:aa'}}\n\
     \x20 vlans: {v5: {id: 5, link: br0, mtu: 1400}}\n\
     \x20 vrfs: {vrf1: {table: 9, interfaces: [v5]}}\n\
     \x20 tunnels:\n    gre1: {mode: gre, local: 1.1.1.1, remote: 2.2.2.2, key: 5}\n\
     \x20   wg0: {mode: wireguard, key: aaaa, port: 51820, peers: [{keys: {public: bbbb}, allowed-ips: [0.0.0.0/0], endpoint: '1.2.3.4:5', keepalive: 3}]}\n\
     \x20   vx0: {mode: vxlan, id: 7, link: id0, remote: 1.1.1.9}\n",
];

fn inputs() -> Vec<Value> {
    let mut all: Vec<Value> = EVERYTHING.iter().map(|t| yaml::parse("t", t).expect("valid")).collect();
    let cases = prepivot::document::testing::vectors("network.json");
    for case in cases.iter().flat_map(|c| c.as_list().unwrap_or_default()) {
        let value = match case.get("input") {
            Some(Value::String(text)) => yaml::parse("input", text).expect("valid"),
            Some(other) => other.clone(),
            None => continue,
        };
        if !value.is_null() && !all.contains(&value) {
            all.push(value);
        }
    }
    all
}

fn targets() -> impl Iterator<Item = Target> {
    [("debian", true), ("rhel", true), ("sles", true), ("alpine", false)].into_iter().map(|(distro, ip_tool)| Target {
        distro: Distro::named(distro),
        ip_tool,
        old_netplan: ip_tool,
    })
}

/// Renders for every stack, and checks what holds for any file.
fn render_all(network: &Network, what: &str) {
    for renderer in render::RENDERERS {
        for target in targets() {
            let files = renderer.files(network, &target, &Problems::new());
            assert_eq!(files, renderer.files(network, &target, &Problems::new()), "{}: twice the same", renderer.name);
            let mut paths = BTreeSet::new();
            for file in &files {
                assert!(paths.insert(file.path.clone()), "{}: {} is written twice\n{what}", renderer.name, file.path);
                assert!(file.path.starts_with("/etc/") && !file.path.contains("/../"), "{}", file.path);
                assert!(file.content.is_empty() || file.content.ends_with('\n'), "{}: {}", file.path, file.content);
                assert!(
                    file.content.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()),
                    "{}: a control character in\n{}",
                    file.path,
                    file.content
                );
            }
        }
    }
}

#[test]
fn every_configuration_renders_for_every_stack() {
    for input in inputs() {
        let network = config::read("t", &input, &Macs::default(), &Problems::new()).expect("a configuration");
        render_all(&network, &format!("{input:?}"));
    }
}

/// Changes something somewhere.
fn mutate(value: &mut Value, random: &mut Random, pool: &[Value]) {
    let odd = |random: &mut Random| match random.next(12) {
        0 => Value::Null,
        1 => Value::Int(-1),
        2 => Value::Int(i64::MAX),
        3 => Value::from("x\ny=z\n[Network]"),
        4 => Value::from("../../etc/passwd"),
        5 => Value::from("eth0"),
        6 => Value::List(vec![Value::from("eth0"), Value::Null]),
        7 => Value::Map(Map::from_iter([("a", Value::Bool(true))])),
        8 => Value::from("10.0.0.1/0"),
        9 => Value::Bytes(vec![0xff, 0].into()),
        10 => Value::Float(1.5e300),
        _ => pool.get(random.next(pool.len())).cloned().unwrap_or_default(),
    };
    match value {
        Value::Map(map) if !map.is_empty() && random.next(24) != 0 => {
            let key = map.keys().nth(random.next(map.len())).unwrap_or_default().to_owned();
            match random.next(10) {
                0 => drop(map.remove(&key)),
                1 => drop(map.insert(["eth0", "a b", "", "bond0", "%", "x/y"][random.next(6)], odd(random))),
                _ => {
                    if let Some(inner) = map.get_mut(&key) {
                        mutate(inner, random, pool);
                    }
                }
            }
        }
        Value::List(list) if !list.is_empty() && random.next(24) != 0 => {
            let i = random.next(list.len());
            match random.next(8) {
                0 => drop(list.remove(i)),
                1 => list.push(odd(random)),
                _ => mutate(&mut list[i], random, pool),
            }
        }
        other => *other = odd(random),
    }
}

#[test]
fn mutated_configurations_render_for_every_stack() {
    let inputs = inputs();
    let mut pool = Vec::new();
    inputs.iter().for_each(|i| scalars(i, &mut pool));
    let mut random = Random(0x5eed);
    let mut read_ones = 0;
    for round in 0..3000 {
        let mut input = inputs[random.next(inputs.len())].clone();
        for _ in 0..=random.next(4) {
            mutate(&mut input, &mut random, &pool);
        }
        if let Ok(network) = config::read("t", &input, &Macs::default(), &Problems::new()) {
            read_ones += 1;
            render_all(&network, &format!("round {round}: {input:?}"));
            read_back(&network);
        }
    }
    assert!(read_ones > 1500, "only {read_ones} of 3000 were read at all");
}

fn scalars(value: &Value, out: &mut Vec<Value>) {
    match value {
        Value::Map(map) => map.iter().for_each(|(_, v)| scalars(v, out)),
        Value::List(list) => list.iter().for_each(|v| scalars(v, out)),
        scalar => out.push(scalar.clone()),
    }
}

/// What was written for netplan, read.
fn text_for_netplan(network: &Network, report: &Problems) -> String {
    let target = Target { distro: Distro::named("debian"), ip_tool: true, old_netplan: false };
    let renderer = render::by_name("netplan").expect("netplan");
    renderer.files(network, &target, report).first().expect("one file").content.clone()
}

fn model_of(text: &str) -> Network {
    let value = yaml::parse("netplan", text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    config::read("netplan", &value, &Macs::default(), &Problems::new()).expect("a configuration")
}

fn written(network: &Network) -> Network {
    Network { v2: None, ..model_of(&text_for_netplan(network, &Problems::new())) }
}

/// What of a configuration is the same whatever the order and the spelling: a device that others refer to may be defined, too.
fn canonical(network: &Network) -> Network {
    let mut out = Network { v2: None, ..network.clone() };
    out.interfaces.sort_by(|a, b| a.name.cmp(&b.name));
    for interface in &mut out.interfaces {
        interface.implicit = false;
        interface.matching.mac = interface.matching.mac.as_deref().map(plain_mac);
        interface.mac = interface.mac.as_deref().map(plain_mac);
    }
    out
}

/// A MAC address in netplan's form. None for what is none, which is left out: netplan would refuse the whole file.
fn six_bytes(mac: Option<&str>) -> Option<String> {
    let is_byte = |byte: &str| byte.len() == 2 && byte.bytes().all(|b| b.is_ascii_hexdigit());
    mac.map(plain_mac).filter(|mac| mac.split(':').count() == 6 && mac.split(':').all(is_byte))
}

/// What of an interface netplan's file holds, whichever way the input said it.
fn told(i: &Interface) -> Vec<String> {
    let wanted = i.matching.mac.as_deref().filter(|_| i.device_type != DeviceType::Infiniband);
    let found = six_bytes(wanted);
    // They are written in this order.
    let mut parts: Vec<&String> = i.members().iter().collect();
    parts.sort();
    let mut out = vec![
        format!(
            "name {} rename {} match {:?}",
            i.name,
            // A name that no device can have is given to none.
            i.rename
                && is_name(&i.name)
                && i.device_type != DeviceType::Infiniband
                && wanted.is_some() == found.is_some(),
            found
        ),
        format!("dhcp4 {} dhcp6 {}", i.dhcp4(), i.dhcp6()),
        format!(
            "mac {:?} ra {:?} wol {:?} optional {:?} parts {:?}",
            six_bytes(i.mac.as_deref()),
            i.accept_ra.or(i.uses(Method::Slaac).then_some(true)),
            i.wake_on_lan,
            i.optional,
            parts
        ),
        format!("addresses {:?}", i.addresses().map(ToString::to_string).collect::<Vec<_>>()),
    ];
    let mut routes: Vec<String> = i
        .all_routes()
        .map(|r| {
            format!("{} via {:?} metric {:?} table {:?}", r.to, r.via.as_ref().map(|v| v.addr()), r.metric, r.table)
        })
        .collect();
    for subnet in &i.subnets {
        if let Some(gateway) = &subnet.gateway {
            let to = if gateway.is_v6() { "::/0" } else { "0.0.0.0/0" };
            routes.push(format!("{to} via {:?} metric {:?} table None", Some(gateway.addr()), subnet.metric));
        }
    }
    routes.sort();
    out.push(format!("routes {routes:?}"));
    if let DeviceType::Vlan { id, link } = &i.device_type {
        out.push(format!("vlan {id} on {link}"));
    }
    out
}

fn read_back(network: &Network) {
    let report = Problems::new();
    let text = text_for_netplan(network, &report);
    let back = model_of(&text);
    if network.v2.is_some() {
        if report.texts(Severity::Warning).is_empty() {
            // netplan got it whole: nothing is lost.
            assert_eq!(canonical(network), canonical(&back));
        }
        let again = Problems::new();
        assert_eq!(text_for_netplan(&back, &again), text, "what netplan takes is left as it is");
        assert_eq!(again.texts(Severity::Warning), [""; 0]);
        return;
    }
    let back = Network { v2: None, ..back };
    assert_eq!(written(&back), back, "what was read back is written and read the same");
    for interface in network.interfaces.iter().filter(|i| i.device_type != DeviceType::Loopback) {
        let found = back.interface(&interface.name).unwrap_or_else(|| panic!("{} is gone", interface.name));
        assert_eq!(told(interface), told(found));
    }
}

#[test]
fn netplan_output_reads_back_as_same_model() {
    for input in inputs() {
        read_back(&config::read("t", &input, &Macs::default(), &Problems::new()).expect("a configuration"));
    }
}
