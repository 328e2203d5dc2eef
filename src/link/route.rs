//! Whether this system has a route to an address.

use crate::base::deadline::Deadline;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;

/// How often the kernel is asked.
const POLL: Duration = Duration::from_millis(100);

/// Waits until this system has a route to the host of `url`, if that is an address, or until the deadline. Nothing is sent.
pub fn wait(url: &str, deadline: Deadline) {
    let Some(host) = host(url) else { return };
    while !is_there(host) && !deadline.passed() {
        std::thread::sleep(POLL.min(deadline.left()));
    }
}

/// The address that a URL has for a host.
fn host(url: &str) -> Option<IpAddr> {
    let uri: ureq::http::Uri = url.parse().ok()?;
    uri.host()?.trim_matches(['[', ']']).parse().ok()
}

/// Whether the kernel has a route to `host`: connecting a datagram socket asks it for one.
fn is_there(host: IpAddr) -> bool {
    let any: IpAddr = if host.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    UdpSocket::bind((any, 0)).is_ok_and(|socket| socket.connect((host, 9)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn waits_only_for_routes_to_addresses() {
        let start = Instant::now();
        for url in ["http://127.0.0.1:8080/x", "http://name.example/", "no url", ""] {
            wait(url, Deadline::after(Duration::from_secs(60)));
        }
        assert!(start.elapsed() < Duration::from_secs(30));
        assert_eq!(host("http://[::1]:80/x"), Some(Ipv6Addr::LOCALHOST.into()));
        assert_eq!(host("http://10.1.1.1:8080/1.0/"), Some(IpAddr::from([10, 1, 1, 1])));
        // No system has a route to the class that is reserved (RFC 1112, section 4).
        let start = Instant::now();
        wait("http://240.0.0.1/", Deadline::after(Duration::from_millis(300)));
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}
