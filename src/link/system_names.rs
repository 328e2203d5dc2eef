//! The running system's names: hosts(5) and resolv.conf(5).

use crate::machine::beneath;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::Path;

/// How much of /etc/hosts is read, in bytes: some have a list of advertisers.
const MAX_HOSTS: u64 = 8 << 20;

/// The addresses of `name` in /etc/hosts.
pub fn in_hosts(name: &str) -> Vec<IpAddr> {
    let text = beneath::start(Path::new("/"), "etc/hosts", MAX_HOSTS).unwrap_or_default();
    hosts(&String::from_utf8_lossy(&text), name)
}

/// The name servers of /etc/resolv.conf, at `port`, and the domains that it searches.
pub fn servers(port: u16) -> (Vec<SocketAddr>, Vec<String>) {
    let root = Path::new("/");
    let text = beneath::read(root, "etc/resolv.conf").unwrap_or_default();
    let index = |link: &str| beneath::read(root, &format!("sys/class/net/{link}/ifindex"))?.trim().parse().ok();
    resolv_conf(&text, port, index)
}

/// The addresses that a hosts file has for a name.
pub fn hosts(text: &str, name: &str) -> Vec<IpAddr> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let address = |line: &str| {
        let mut words = line.split('#').next()?.split_ascii_whitespace();
        let address = words.next()?;
        words.find(|word| word.eq_ignore_ascii_case(name))?;
        address.parse().ok()
    };
    text.lines().filter_map(address).collect()
}

/// The servers of a resolv.conf, and the domains that it searches. A link-local address may be followed by its link, whose index
/// `index` returns. Without a server, this machine's is used.
pub fn resolv_conf(text: &str, port: u16, index: impl Fn(&str) -> Option<u32>) -> (Vec<SocketAddr>, Vec<String>) {
    let (mut servers, mut search) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("nameserver") => {
                let (address, link) = words.next().map_or(("", None), |word| match word.split_once('%') {
                    Some((address, link)) => (address, Some(link)),
                    None => (word, None),
                });
                let scope = link.and_then(|link| link.parse().ok().or_else(|| index(link))).unwrap_or(0);
                let six = |ip: Ipv6Addr| SocketAddr::from(SocketAddrV6::new(ip, port, 0, scope));
                let server = address.parse::<Ipv4Addr>().map(|ip| SocketAddr::new(ip.into(), port));
                servers.extend(server.or_else(|_| address.parse().map(six)));
            }
            // The last one takes precedence.
            Some("domain" | "search") => search = words.map(str::to_owned).collect(),
            _ => {}
        }
    }
    if servers.is_empty() {
        servers.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
    }
    (servers, search)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read() {
        let text = "127.0.0.1 localhost # not me\n::1\tlocalhost ip6-localhost\nfe80::1%lo odd\n#10.0.0.1 me\n10.0.0.2 a.b A\n";
        let found = |name: &str| hosts(text, name).iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(found("localhost"), "127.0.0.1 ::1");
        assert_eq!(
            [found("a"), found("A.B."), found("me"), found("odd"), found("10.0.0.2")].join("|"),
            "10.0.0.2|10.0.0.2|||"
        );
    }

    #[test]
    fn servers_and_domains_are_read() {
        let text = "# nameserver 1.1.1.1\nnameserver 10.0.0.1\nnameserver fe80::1%eth0\nnameserver fe80::2%3\nnameserver\n\
            nameserver odd\nsearch old\noptions ndots:2\nsearch example.org example.com\n";
        let (servers, search) = resolv_conf(text, 53, |link| (link == "eth0").then_some(7));
        let servers: Vec<String> = servers.iter().map(SocketAddr::to_string).collect();
        assert_eq!(servers, ["10.0.0.1:53", "[fe80::1%7]:53", "[fe80::2%3]:53"]);
        assert_eq!(search, ["example.org", "example.com"]);
        let (servers, search) = resolv_conf("", 53, |_| None);
        assert_eq!((servers, search), (vec!["127.0.0.1:53".parse().unwrap()], vec![]));
    }
}
