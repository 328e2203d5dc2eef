//! Reads the lease files of the system's DHCP clients, for the real root, whose network another program
//! configures. In the initramfs a datasource uses [`super::Uplink::lease`] instead.

use super::dhcp::packet::{DhcpMessage, option};
use super::dhcp::record;
use super::dhcp::{Lease, Options};
use crate::base::{budget, hex};
use crate::machine::beneath;
use std::net::Ipv4Addr;
use std::path::Path;

/// The most files that are read in one folder, and the most bytes of a file.
const MAX_FILES: usize = 256;
const MAX_FILE: u64 = 1 << 20;

/// A DHCP client's lease files: their folder, how their names begin and end, their format, and the interface that the rest of
/// the name represents, for files that do not say it.
struct Place {
    folder: &'static str,
    prefix: &'static str,
    suffix: &'static str,
    read: fn(&[u8]) -> Option<Lease>,
    link: fn(&Path, &str) -> Option<String>,
}

impl Place {
    const fn new(
        folder: &'static str,
        [prefix, suffix]: [&'static str; 2],
        read: fn(&[u8]) -> Option<Lease>,
        link: fn(&Path, &str) -> Option<String>,
    ) -> Place {
        Place { folder, prefix, suffix, read, link }
    }
}

/// In order of precedence.
const PLACES: [Place; 8] = [
    // prepivot's own, from the initramfs.
    Place::new("run/prepivot", ["lease-", ".json"], record::from_json, in_file),
    Place::new("run/systemd/netif/leases", ["", ""], networkd, of_index),
    Place::new("var/lib/dhcp", ["dhclient", ".leases"], dhclient, in_file),
    Place::new("var/lib/dhclient", ["dhclient", ".leases"], dhclient, in_file),
    Place::new("var/lib/dhclient", ["dhclient", ".lease"], dhclient, in_file),
    Place::new("var/lib/NetworkManager", ["dhclient", ".lease"], dhclient, in_file),
    Place::new("var/lib/dhcpcd", ["", ".lease"], dhcpcd, before_network),
    // NetworkManager's own client: networkd's format, of which later versions write the address alone.
    Place::new("var/lib/NetworkManager", ["internal-", ".lease"], networkd, after_uuid),
];

/// Where the kernel lists the interfaces.
const INTERFACES: &str = "sys/class/net";
/// The length of a UUID as text.
const UUID: usize = 36;

fn in_file(_: &Path, _: &str) -> Option<String> {
    None
}

/// The interface with this index.
fn of_index(base: &Path, index: &str) -> Option<String> {
    let has_index = |name: &String| {
        let found = beneath::read(base, &format!("{INTERFACES}/{name}/ifindex"));
        found.is_some_and(|found| found.trim() == index)
    };
    beneath::names(base, INTERFACES).into_iter().find(has_index)
}

/// The interface in `eth0`, or `wlan0-SSID`.
fn before_network(base: &Path, name: &str) -> Option<String> {
    let rest = |interface: &String| name.strip_prefix(interface.as_str());
    let names = beneath::names(base, INTERFACES).into_iter();
    names.filter(|i| rest(i).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))).max_by_key(String::len)
}

/// The interface in `UUID-eth0`.
fn after_uuid(_: &Path, name: &str) -> Option<String> {
    Some(name.get(UUID..)?.strip_prefix('-')?.to_owned())
}

/// The leases below `base` (`/` for this machine), in the order of [`PLACES`], the newest file of a client
/// first. systemd-networkd's files, which are named by the interface's index, keep that order, whichever was renewed last.
pub fn below(base: &Path) -> Vec<Lease> {
    let mut leases = Vec::new();
    for place in &PLACES {
        let mut files = Vec::new();
        let names = beneath::names(base, place.folder).into_iter();
        for name in names.filter(|n| n.starts_with(place.prefix) && n.ends_with(place.suffix)).take(MAX_FILES) {
            let path = format!("{}/{name}", place.folder);
            if let Some(time) = beneath::metadata(base, &path).and_then(|m| m.modified().ok()) {
                files.push((time, name, path));
            }
        }
        let index = |name: &String| name.parse::<u32>().ok();
        crate::base::sort::by(&mut files, |a, b| {
            index(&a.1).cmp(&index(&b.1)).then_with(|| b.0.cmp(&a.0)).then_with(|| a.1.cmp(&b.1))
        });
        for (_, name, path) in &files {
            let Some(bytes) = beneath::start(base, path, MAX_FILE) else { continue };
            if let Err(e) = budget::take(bytes.len()) {
                log::warn!("/{path} is not read: {e}");
                continue;
            }
            let Some(mut lease) = (place.read)(&bytes) else {
                budget::give(bytes.len());
                continue;
            };
            let name = name.strip_prefix(place.prefix).and_then(|n| n.strip_suffix(place.suffix));
            if let (true, Some(link)) = (lease.link.is_empty(), name.and_then(|name| (place.link)(base, name))) {
                lease.link = link;
            }
            leases.push(lease);
        }
    }
    leases
}

/// The router of the default route in the text of /proc/net/route (proc(5)). None if there is no such route.
pub fn default_gateway(routes: &str) -> Option<Ipv4Addr> {
    routes.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (destination, gateway) = (fields.next()?, fields.next()?);
        let number = u32::from_str_radix(gateway, 16).ok().filter(|g| *g != 0)?;
        // In native byte order.
        (destination == "00000000").then(|| Ipv4Addr::from(number.to_ne_bytes()))
    })
}

/// systemd-networkd's lease: KEY=VALUE (sd-dhcp-lease.c; a private format, stable since 2014).
fn networkd(bytes: &[u8]) -> Option<Lease> {
    let text = std::str::from_utf8(bytes).ok()?;
    let get = |key: &str| text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix('=')).filter(|v| !v.is_empty());
    let mut options = Options::default();
    for (key, code) in NETWORKD {
        if let Some(value) = get(key).and_then(|v| addresses(v.split_ascii_whitespace())) {
            options.insert(code, value);
        }
    }
    for (key, code) in [("DOMAINNAME", option::DOMAIN_NAME), ("HOSTNAME", option::HOST_NAME)] {
        if let Some(value) = get(key) {
            options.insert(code, value.into());
        }
    }
    if let Some(mtu) = get("MTU").and_then(|v| v.parse::<u16>().ok()) {
        options.insert(option::INTERFACE_MTU, mtu.to_be_bytes().into());
    }
    if let Some(seconds) = get("LIFETIME").and_then(|v| v.parse::<u32>().ok()) {
        options.insert(option::LEASE_TIME, seconds.to_be_bytes().into());
    }
    if let Some(domains) = get("DOMAIN_SEARCH_LIST") {
        options.insert(option::DOMAIN_SEARCH, search(domains.split_ascii_whitespace()));
    }
    let routes = get("ROUTES").unwrap_or_default().split_ascii_whitespace();
    let routes: Option<Vec<Vec<u8>>> = routes.map(classless).collect();
    if let Some(routes) = routes.filter(|r| !r.is_empty()) {
        options.insert(option::CLASSLESS_ROUTES, routes.concat());
    }
    for line in text.lines() {
        let private = line.strip_prefix("OPTION_").and_then(|rest| rest.split_once('='));
        if let Some((code, value)) = private.and_then(|(code, digits)| Some((code.parse().ok()?, hex::decode(digits)?)))
        {
            options.insert(code, value);
        }
    }
    Lease::new("", get("ADDRESS")?.parse().ok()?, get("NEXT_SERVER").and_then(|v| v.parse().ok()), options)
}

/// Keys of networkd's leases whose values are addresses.
const NETWORKD: [(&str, u8); 6] = [
    ("NETMASK", option::SUBNET_MASK),
    ("ROUTER", option::ROUTER),
    ("SERVER_ADDRESS", option::SERVER_ID),
    ("BROADCAST", option::BROADCAST),
    ("DNS", option::DNS),
    ("NTP", option::NTP),
];

/// `10.0.0.0/8,10.1.2.1` encoded as in option 121.
fn classless(route: &str) -> Option<Vec<u8>> {
    let (network, gateway) = route.split_once(',')?;
    let (destination, prefix) = network.split_once('/')?;
    let prefix = prefix.parse::<u8>().ok().filter(|p| *p <= 32)?;
    let octets = destination.parse::<Ipv4Addr>().ok()?.octets();
    let mut out = vec![prefix];
    out.extend(octets.iter().take(usize::from(prefix.div_ceil(8))));
    out.extend(gateway.parse::<Ipv4Addr>().ok()?.octets());
    Some(out)
}

/// The last lease in an ISC dhclient lease file (dhclient.leases(5)).
fn dhclient(bytes: &[u8]) -> Option<Lease> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (_, block) = text.rsplit_once("lease {")?;
    let block = block.split_once("\n}").map_or(block, |(block, _)| block);
    let pairs = block.split(";\n").filter_map(|line| {
        let line = line.trim().trim_end_matches(';');
        line.strip_prefix("option ").unwrap_or(line).split_once(' ')
    });
    of_dhclient(pairs)
}

/// A lease from dhclient's names and values (`fixed-address`, `routers`, `unknown-245`, see dhcp-options(5)).
/// Invalid values are ignored. None without an address.
pub fn of_dhclient<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Option<Lease> {
    let (mut link, mut address, mut next_server, mut options) = ("", None, None, Options::default());
    for (name, value) in pairs {
        let plain = value.trim_matches('"');
        match name {
            "interface" => link = plain,
            "fixed-address" => address = plain.parse().ok(),
            "next-server" => next_server = plain.parse().ok(),
            _ => {
                let known = DHCLIENT.iter().find(|(n, _)| *n == name).map(|(_, code)| *code);
                let code = known.or_else(|| name.strip_prefix("unknown-")?.parse().ok());
                if let Some((code, bytes)) = code.and_then(|code| Some((code, dhclient_value(code, value)?))) {
                    options.insert(code, bytes);
                }
            }
        }
    }
    Lease::new(link, address?, next_server, options)
}

/// dhclient's names of options (dhcp-options(5)).
const DHCLIENT: [(&str, u8); 16] = [
    ("subnet-mask", option::SUBNET_MASK),
    ("routers", option::ROUTER),
    ("domain-name-servers", option::DNS),
    ("host-name", option::HOST_NAME),
    ("domain-name", option::DOMAIN_NAME),
    ("interface-mtu", option::INTERFACE_MTU),
    ("broadcast-address", option::BROADCAST),
    ("static-routes", option::STATIC_ROUTES),
    ("ntp-servers", option::NTP),
    ("dhcp-lease-time", option::LEASE_TIME),
    ("dhcp-server-identifier", option::SERVER_ID),
    ("tftp-server-name", option::TFTP_SERVER),
    ("bootfile-name", option::BOOT_FILE),
    ("domain-search", option::DOMAIN_SEARCH),
    ("rfc3442-classless-static-routes", option::CLASSLESS_ROUTES),
    ("ms-classless-static-routes", option::MS_CLASSLESS_ROUTES),
];

/// The bytes of an option: a quoted string, octets in hexadecimal with colons, addresses, or numbers.
fn dhclient_value(code: u8, value: &str) -> Option<Vec<u8>> {
    if code == option::DOMAIN_SEARCH {
        return Some(search(value.split(',').map(|d| d.trim().trim_matches(['"', '.']))));
    }
    if let Some(text) = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')) {
        return Some(text.into());
    }
    let parts = || value.split([',', ' ']).filter(|p| !p.is_empty());
    if let Some(octets) = addresses(parts()) {
        return Some(octets);
    }
    match code {
        option::INTERFACE_MTU => value.parse::<u16>().ok().map(|n| n.to_be_bytes().into()),
        option::LEASE_TIME => value.parse::<u32>().ok().map(|n| n.to_be_bytes().into()),
        _ if value.contains(':') => value.split(':').map(|o| u8::from_str_radix(o, 16).ok()).collect(),
        option::CLASSLESS_ROUTES | option::MS_CLASSLESS_ROUTES => parts().map(|o| o.parse().ok()).collect(),
        _ => Some(value.into()),
    }
}

/// The octets of addresses. None if one is not an address, or if there are none.
fn addresses<'a>(parts: impl Iterator<Item = &'a str>) -> Option<Vec<u8>> {
    let octets: Option<Vec<[u8; 4]>> = parts.map(|p| p.parse::<Ipv4Addr>().ok().map(|a| a.octets())).collect();
    octets.map(|o| o.concat()).filter(|o| !o.is_empty())
}

/// Domain names encoded as in option 119, without compression.
fn search<'a>(domains: impl Iterator<Item = &'a str>) -> Vec<u8> {
    let mut out = Vec::new();
    for domain in domains.filter(|d| !d.is_empty() && d.split('.').all(|l| (1..=63).contains(&l.len()))) {
        for label in domain.split('.') {
            out.push(u8::try_from(label.len()).unwrap_or(0));
            out.extend(label.bytes());
        }
        out.push(0);
    }
    out
}

/// dhcpcd's lease: the server's message as received.
fn dhcpcd(bytes: &[u8]) -> Option<Lease> {
    Lease::from_ack("", &DhcpMessage::parse(bytes)?)
}

#[cfg(test)]
mod tests {
    use super::super::dhcp::packet::Kind;
    use super::*;
    use crate::base::testing::TempDir;

    #[test]
    fn leases_of_every_client() {
        let dir = TempDir::new("leases");
        let put = |path: &str, content: &[u8]| dir.write(path, content);
        put(
            "run/systemd/netif/leases/2",
            b"# private\nADDRESS=10.1.1.55\nNETMASK=255.255.255.0\nSERVER_ADDRESS=10.1.1.2\n\
            MTU=1442\nDNS=9.9.9.9 1.1.1.1\nDOMAINNAME=cs.example\nDOMAIN_SEARCH_LIST=a.example b.example\n\
            ROUTES=0.0.0.0/0,10.1.1.1 169.254.169.254/32,10.1.1.3\nOPTION_245=a83f8110\nNEXT_SERVER=10.1.1.9\n",
        );
        put("var/lib/dhcp/dhclient.eth0.leases", b"lease {\n  fixed-address 10.9.9.9;\n}\nlease {\n  interface \"eth0\";\n\
            \x20 fixed-address 10.0.0.4;\n  option subnet-mask 255.255.255.0;\n  option routers 10.0.0.1;\n\
            \x20 option domain-name \"x.example\";\n  option unknown-245 a8:3f:81:10;\n  option interface-mtu 1400;\n\
            \x20 option rfc3442-classless-static-routes 32,169,254,169,254,10,0,0,1;\n  option domain-search \"a.b.\", \"c.\";\n\
            \x20 option dhcp-lease-time 600;\n  renew 1 2026/01/01 00:00:00;\n}\n");
        let mut ack = DhcpMessage::new(Kind::Ack, 1, 0, [2; 6]).with(option::SERVER_ID, &[10, 7, 0, 1]);
        ack.yiaddr = Ipv4Addr::new(10, 7, 0, 2);
        put("var/lib/dhcpcd/eth0.lease", &ack.to_bytes());
        put("var/lib/dhcpcd/eth1.lease", b"not a lease");
        put("var/lib/dhcpcd/wl-0-a-b.lease", &ack.to_bytes());
        let own = "var/lib/NetworkManager/internal-0be3f3e6-3a7c-4d4a-9f0e-6b1a2c3d4e5f-en-1.lease";
        put(own, b"# This is private data. Do not parse.\nADDRESS=10.2.0.9\n");
        for (name, index) in [("eth0", "20"), ("wl-0", "1"), ("wl", "3"), ("eth1", "2")] {
            put(&format!("sys/class/net/{name}/ifindex"), format!("{index}\n").as_bytes());
        }
        // The newest of a client comes first.
        let old = std::fs::File::open(dir.0.join("var/lib/dhcpcd/wl-0-a-b.lease")).unwrap();
        old.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        put("run/prepivot/lease-eth0.json", record::to_json(&Lease::from_ack("eth0", &ack).unwrap()).as_bytes());
        let all = below(&dir.0);
        let links: Vec<_> = all.iter().map(|l| (l.link.as_str(), l.address.unwrap().octets())).collect();
        assert_eq!(
            links,
            [
                ("eth0", [10, 7, 0, 2]),
                ("eth1", [10, 1, 1, 55]),
                ("eth0", [10, 0, 0, 4]),
                ("eth0", [10, 7, 0, 2]),
                ("wl-0", [10, 7, 0, 2]),
                ("en-1", [10, 2, 0, 9]),
            ]
        );
        let networkd = &all[1];
        assert_eq!((networkd.server, networkd.domain.as_str()), (Some([10, 1, 1, 2].into()), "cs.example"));
        assert_eq!((networkd.mtu, networkd.dns.len(), networkd.prefix), (Some(1442), 2, 24));
        assert_eq!(networkd.search, ["a.example", "b.example"]);
        assert_eq!((networkd.routes.len(), networkd.routes[1].gateway), (2, Some([10, 1, 1, 3].into())));
        assert_eq!(networkd.address_option(245), Some([168, 63, 129, 16].into()));
        assert_eq!(networkd.next_server, Some([10, 1, 1, 9].into()));
        let dhclient = &all[2];
        assert_eq!((dhclient.mtu, dhclient.seconds, dhclient.domain.as_str()), (Some(1400), 600, "x.example"));
        assert_eq!(dhclient.address_option(245), Some([168, 63, 129, 16].into()));
        assert_eq!(dhclient.routes[0].destination, Ipv4Addr::new(169, 254, 169, 254));
        assert_eq!(dhclient.search, ["a.b", "c"]);
    }

    #[test]
    fn networkds_leases_are_sorted_by_interface() {
        let dir = TempDir::new("leases");
        let folder = dir.0.join("run/systemd/netif/leases");
        std::fs::create_dir_all(&folder).unwrap();
        for (index, age) in [("10", 0), ("2", 60), ("3", 30)] {
            let path = folder.join(index);
            std::fs::write(&path, format!("ADDRESS=10.0.0.4\nSERVER_ADDRESS=10.0.0.{index}\n")).unwrap();
            let renewed = std::time::SystemTime::now() - std::time::Duration::from_secs(age);
            std::fs::File::open(&path).unwrap().set_modified(renewed).unwrap();
        }
        let servers = below(&dir.0).iter().map(|lease| lease.server.unwrap().to_string()).collect::<Vec<_>>();
        assert_eq!(servers, ["10.0.0.2", "10.0.0.3", "10.0.0.10"]);
    }

    #[test]
    fn what_is_no_regular_file_is_not_read() {
        let dir = TempDir::new("leases");
        let folder = dir.0.join("run/systemd/netif/leases");
        std::fs::create_dir_all(folder.join("3")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, folder.join("2"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(below(&dir.0).is_empty());
    }

    #[test]
    fn leases_use_the_stages_budget() {
        let dir = TempDir::new("leases");
        let lease = format!("ADDRESS=10.0.0.4\n{}", "#".repeat(1_000_000));
        (0..60).for_each(|index| dir.write(&format!("run/systemd/netif/leases/{index}"), &lease));
        crate::base::budget::begin();
        let read = below(&dir.0).len();
        assert!((40..55).contains(&read), "{read}");
    }

    #[test]
    fn the_default_gateway() {
        let head = "Iface\tDestination\tGateway \tFlags\n";
        let line = |gateway: [u8; 4]| {
            format!("{head}eth0\t0000000A\t00000000\t0001\neth0\t00000000\t{:08X}\t0003\n", u32::from_ne_bytes(gateway))
        };
        assert_eq!(default_gateway(&line([10, 1, 1, 4])), Some(Ipv4Addr::new(10, 1, 1, 4)));
        assert_eq!(default_gateway(&line([0; 4])), None);
        assert_eq!(default_gateway("nonsense\nx y"), None);
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let text = b"lease {\n  fixed-address 10.0.0.4;\n  option domain-search \"a.b.\";\n  option unknown-245 a8:3f;\n}\nADDRESS=10.0.0.4\nROUTES=1.2.3.4/5,6.7.8.9\n";
        crate::base::testing::mutations(text, 2_000, |bytes| {
            let leases = [dhclient(bytes), networkd(bytes), dhcpcd(bytes)];
            for lease in leases.iter().flatten() {
                assert!(lease.prefix <= 32 && lease.routes.iter().all(|route| route.prefix <= 32), "{lease:?}");
            }
            let name = String::from_utf8_lossy(bytes);
            let _ = (after_uuid(Path::new("/"), &name), before_network(Path::new("/none"), &name));
        });
    }
}
