//! A self-assigned IPv4 address on a link without DHCP (RFC 3927), used only to reach the metadata service.

use super::packet_socket::{Ethertype, MAX_FRAME, PacketSocket};
use super::rng::Rng;
use crate::base::deadline::Deadline;
use crate::base::error::{Error, Result};
use std::net::Ipv4Addr;
use std::time::Duration;

/// The prefix length of 169.254/16.
pub const PREFIX: u8 = 16;
/// How many probes are sent for an address. RFC 3927 has 3, 1 to 2 s apart, for an address that is kept; this
/// one is removed before the pivot and talks to one host.
const PROBES: u32 = 2;
const PROBE_WAIT: Duration = Duration::from_millis(200);
/// How many addresses are tried (RFC 3927's MAX_CONFLICTS).
const MAX_CONFLICTS: u32 = 10;

/// Finds an address that is unused on the link. The first candidate is derived from the hardware address, so
/// that a machine tends to get the same one on each boot.
pub async fn claim(name: &str, index: u32, mac: [u8; 6], deadline: Deadline) -> Result<Ipv4Addr> {
    let socket = PacketSocket::open(index, Ethertype::Arp).map_err(|e| e.context(name))?;
    let mut rng = Rng::new(&mac);
    let mut choice = mac.iter().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    for _ in 0..MAX_CONFLICTS {
        let address = candidate(choice);
        if free(&socket, mac, address, deadline).await {
            return Ok(address);
        }
        choice = rng.next();
    }
    Err(Error::new(format!("{name}: no free address in 169.254.0.0/16 after {MAX_CONFLICTS} tries")))
}

/// 169.254.1.0 to 169.254.254.255, without 169.254.169.x, which clouds use for their services.
fn candidate(choice: u32) -> Ipv4Addr {
    let [low, high, ..] = choice.to_le_bytes();
    let third = match 1 + high % 254 {
        169 => 170,
        third => third,
    };
    Ipv4Addr::new(169, 254, third, low)
}

async fn free(socket: &PacketSocket, mac: [u8; 6], address: Ipv4Addr, deadline: Deadline) -> bool {
    for _ in 0..PROBES {
        if let Err(e) = socket.send(&probe(mac, address)) {
            log::debug!("failed to send an ARP probe: {e}");
        }
        let conflict = async {
            let mut buffer = [0; MAX_FRAME];
            loop {
                let Ok(len) = socket.recv(&mut buffer).await else { return std::future::pending().await };
                if buffer.get(..len).is_some_and(|frame| conflicts(frame, mac, address)) {
                    return;
                }
            }
        };
        if tokio::time::timeout(deadline.at_most(PROBE_WAIT).left(), conflict).await.is_ok() {
            return false;
        }
    }
    true
}

/// An ARP probe: asks who has `address`, from an unspecified address (RFC 5227, 2.1.1).
fn probe(mac: [u8; 6], address: Ipv4Addr) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend(mac);
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(mac);
    frame.extend([0; 10]);
    frame.extend(address.octets());
    frame
}

/// Whether another machine has the address, or probes for it.
fn conflicts(frame: &[u8], mac: [u8; 6], address: Ipv4Addr) -> bool {
    let field = |from: usize, to: usize| frame.get(from..to).unwrap_or_default();
    if field(12, 20) != [8, 6, 0, 1, 8, 0, 6, 4] || field(22, 28) == mac {
        return false;
    }
    let (sender, target) = (field(28, 32), field(38, 42));
    let probing = field(20, 22) == [0, 1] && sender == [0; 4] && target == address.octets();
    sender == address.octets() || probing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_is_another_hosts() {
        let (me, other) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let address = Ipv4Addr::new(169, 254, 7, 7);
        assert!(conflicts(&probe(other, address), me, address));
        assert!(!conflicts(&probe(me, address), me, address));
        assert!(!conflicts(&probe(other, Ipv4Addr::new(169, 254, 7, 8)), me, address));
        let mut reply = probe(other, Ipv4Addr::UNSPECIFIED);
        reply[21] = 2;
        reply[28..32].copy_from_slice(&address.octets());
        assert!(conflicts(&reply, me, address));
        for len in 0..reply.len() - 10 {
            assert!(!conflicts(&reply[..len], me, address) || len >= 32);
        }
    }

    #[test]
    fn candidates_are_no_services() {
        for choice in 0..70_000 {
            let [_, _, third, _] = candidate(choice).octets();
            assert!((1..=254).contains(&third) && third != 169);
        }
    }
}
