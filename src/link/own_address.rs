//! This machine's source addresses by the running system's default routes. Nothing is sent: the kernel
//! chooses the address when a datagram socket is connected.

use std::net::UdpSocket;

/// The IPv4 address of the default route; None without one.
pub fn ipv4() -> Option<String> {
    // 192.0.2.0/24 is for documentation (RFC 5737).
    of("0.0.0.0:0", "192.0.2.1:9")
}

/// The IPv6 address of the default route; None without one.
pub fn ipv6() -> Option<String> {
    // 2001:db8::/32 is for documentation (RFC 3849).
    of("[::]:0", "[2001:db8::1]:9")
}

fn of(any: &str, far: &str) -> Option<String> {
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(far).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then(|| address.to_string())
}
