//! Targets for what a link brings before any program of the system listens: DHCP's frames, and what the kernel says of links,
//! addresses and router advertisements.

use prepivot::link::dhcp::{frame as ethernet, packet::Message};
use prepivot::link::netlink;

/// A DHCP message for a link without an address: a byte of what is odd about the frame, then the message; or, with a first byte of 0,
/// the whole frame. The checksum of IP's header is right, or nothing else would be looked at.
pub fn frame(data: &[u8]) {
    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
    let Some((odd, rest)) = data.split_first() else { return };
    let mut frame = if *odd == 0 { rest.to_vec() } else { answer(MAC, *odd, rest) };
    sum_header(&mut frame);
    if let Some(payload) = ethernet::payload(MAC, &frame) {
        assert!(payload.len() <= frame.len());
        Message::parse(payload);
    }
    for cut in [15, 34, 42] {
        ethernet::payload(MAC, &frame[..frame.len().min(cut)]);
    }
}

/// A server's answer around a message: the client's frame with the ports turned. Each bit of `odd` makes one field wrong.
fn answer(mac: [u8; 6], odd: u8, message: &[u8]) -> Vec<u8> {
    let mut frame = ethernet::broadcast(mac, message.get(..1400).unwrap_or(message));
    frame[34..38].copy_from_slice(&[0, 67, 0, 68]);
    let flip = |at: usize| message.get(at).copied().unwrap_or(1);
    // The header's length, IP's length in each byte, the fragment, UDP's length, the port, padding.
    for (bit, at) in [14, 16, 17, 20, 38, 39, 37].into_iter().enumerate() {
        if odd >> (bit + 1) & 1 == 1 {
            frame[at] ^= flip(bit);
        }
    }
    frame.extend(vec![0; usize::from(odd & 1) * 20]);
    frame
}

/// Makes the checksum of IP's header right, whatever length it claims.
fn sum_header(frame: &mut [u8]) {
    let Some(ip) = frame.get_mut(14..) else { return };
    let length = usize::from(ip.first().copied().unwrap_or(0) & 15) * 4;
    let Some(header) = ip.get_mut(..length).filter(|header| header.len() >= 20) else { return };
    header[10..12].fill(0);
    let mut sum: u32 = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    header[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

/// The type of a message of rtnetlink's, then the message. The kernel parses router advertisements; what it passes on of them are
/// addresses, routes, and their options for name servers as they were sent.
pub fn kernel_messages(data: &[u8]) {
    let Some((kind, message)) = data.split_first() else { return };
    netlink::parse(u16::from(*kind), message);
}
