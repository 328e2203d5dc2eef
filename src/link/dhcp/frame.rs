//! Ethernet, IPv4 and UDP headers around a DHCP message, which a link without an address needs.

use std::net::Ipv4Addr;

const ETHERNET_HEADER: usize = 14;
const IP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
const UDP: u8 = 17;
/// EtherType of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// RFC 2131, section 4.1.
const SERVER_PORT: u16 = 67;
const CLIENT_PORT: u16 = 68;

/// An Ethernet frame that broadcasts `payload` from `mac` to every DHCP server on the link.
pub fn broadcast(mac: [u8; 6], payload: &[u8]) -> Vec<u8> {
    let udp_len = (UDP_HEADER + payload.len()) as u16;
    let ip_len = IP_HEADER as u16 + udp_len;
    let mut ip = vec![0x45, 0x10];
    ip.extend(ip_len.to_be_bytes());
    ip.extend([0, 0, 0x40, 0, 64, UDP, 0, 0]);
    ip.extend(Ipv4Addr::UNSPECIFIED.octets());
    ip.extend(Ipv4Addr::BROADCAST.octets());
    let sum = checksum(0, &ip).to_be_bytes();
    ip.splice(10..12, sum);

    let mut udp = Vec::with_capacity(usize::from(udp_len));
    udp.extend(CLIENT_PORT.to_be_bytes());
    udp.extend(SERVER_PORT.to_be_bytes());
    udp.extend(udp_len.to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(payload);
    // The pseudo header: both addresses, protocol and length (RFC 768). Zero would mean that there is no sum.
    let pseudo = 0xffff + 0xffff + u32::from(UDP) + u32::from(udp_len);
    let sum = match checksum(pseudo, &udp) {
        0 => 0xffff,
        sum => sum,
    };
    udp.splice(6..8, sum.to_be_bytes());

    let mut frame = Vec::with_capacity(ETHERNET_HEADER + usize::from(ip_len));
    frame.extend([0xff; 6]);
    frame.extend(mac);
    frame.extend(ETHERTYPE_IPV4.to_be_bytes());
    frame.extend(ip);
    frame.extend(udp);
    frame
}

/// The DHCP message in a frame for `mac` or for all. None for everything else.
///
/// The UDP checksum is not checked: with checksum offload, a server on the same host sends a partial one.
/// Ethernet's check sequence has covered the bytes, and the message has its transaction id and hardware
/// address.
pub fn payload(mac: [u8; 6], frame: &[u8]) -> Option<&[u8]> {
    let (ethernet, ip) = frame.split_at_checked(ETHERNET_HEADER)?;
    let to = ethernet.first_chunk::<6>()?;
    if (*to != mac && to[0] & 1 == 0) || ethernet.get(12..)? != ETHERTYPE_IPV4.to_be_bytes() {
        return None;
    }
    let header = usize::from(ip.first()? & 0x0f) * 4;
    let total = usize::from(word(ip, 2)?);
    // Ethernet pads short packets; a packet shorter than its header says is truncated.
    let packet = ip.get(..total)?;
    let (head, udp) = packet.split_at_checked(header)?;
    let fragment = word(head, 6)? & 0x3fff;
    if ip.first()? >> 4 != 4 || header < IP_HEADER || checksum(0, head) != 0 || fragment != 0 || *head.get(9)? != UDP {
        return None;
    }
    if word(udp, 0)? != SERVER_PORT || word(udp, 2)? != CLIENT_PORT {
        return None;
    }
    udp.get(UDP_HEADER..usize::from(word(udp, 4)?))
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|b| u16::from_be_bytes(*b))
}

/// The Internet checksum (RFC 1071) of `bytes`, continued from `sum`.
fn checksum(mut sum: u32, bytes: &[u8]) -> u16 {
    let (pairs, last) = bytes.as_chunks::<2>();
    sum += pairs.iter().map(|p| u32::from(u16::from_be_bytes(*p))).sum::<u32>();
    sum += last.first().map_or(0, |b| u32::from(*b) << 8);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

    /// A server's answer: the client's frame with the ports turned and the checksums made right, or not.
    fn answer(payload: &[u8], udp_sum: [u8; 2]) -> Vec<u8> {
        let mut frame = broadcast(MAC, payload);
        frame[34..38].copy_from_slice(&[0, 67, 0, 68]);
        frame[40..42].copy_from_slice(&udp_sum);
        frame
    }

    #[test]
    fn checksums_are_right() {
        let frame = broadcast(MAC, b"hello");
        assert_eq!(checksum(0, &frame[14..34]), 0);
        assert_eq!(checksum(0x1fffe + 17 + 13, &frame[34..]), 0);
        assert_eq!(frame.len(), 14 + 20 + 8 + 5);
        assert_eq!(
            checksum(0, &[0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7]),
            0xb861
        );
    }

    #[test]
    fn reads_answer_with_padding_and_offloaded_checksum() {
        let mut frame = answer(b"hello", [0xab, 0xcd]);
        assert_eq!(payload(MAC, &frame), Some(&b"hello"[..]));
        frame.resize(64, 0);
        assert_eq!(payload(MAC, &frame), Some(&b"hello"[..]));
        frame[..6].copy_from_slice(&MAC);
        assert_eq!(payload(MAC, &frame), Some(&b"hello"[..]));
    }

    #[test]
    fn other_frames_are_none() {
        let good = answer(b"hello", [0, 0]);
        let changed = |at: usize, value: u8| {
            let mut frame = good.clone();
            frame[at] = value;
            frame
        };
        assert_eq!(payload(MAC, &broadcast(MAC, b"hello")), None, "a client's own");
        assert_eq!(payload(MAC, &changed(0, 2)), None, "for another host");
        assert_eq!(payload(MAC, &changed(13, 6)), None, "ARP");
        assert_eq!(payload(MAC, &changed(14, 0x65)), None, "IPv6");
        assert_eq!(payload(MAC, &changed(23, 6)), None, "TCP");
        assert_eq!(payload(MAC, &changed(30, 9)), None, "a wrong header checksum");
        for len in 0..good.len() {
            assert_eq!(payload(MAC, &good[..len]), None);
        }
        for at in 0..good.len() {
            for value in [0, 1, 0x4f, 0x7f, 0xff] {
                let _ = payload(MAC, &changed(at, value));
            }
        }
    }
}
