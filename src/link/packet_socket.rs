//! A packet socket on one link, for protocols that work before there is an address: DHCP and ARP.

use crate::base::error::{Context, Error, Result};
use nix::sys::socket::{LinkAddr, bind};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, eth};
use std::io;
use std::os::fd::AsRawFd;
use tokio::net::UdpSocket;

/// The largest frame that is looked at; DHCP and ARP on Ethernet fit.
pub const MAX_FRAME: usize = 2048;
/// How many frames of other links may lie in a new socket.
const MAX_STALE: usize = 1024;

/// What a socket receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ethertype {
    Ipv4,
    Arp,
}

/// Whole Ethernet frames of one link, in and out. It borrows the UDP type for its readiness and plain send and receive,
/// which are the same calls for every socket of datagrams.
pub struct PacketSocket(UdpSocket);

impl PacketSocket {
    /// A socket on the link `index`. Wants a tokio runtime around it.
    pub fn open(index: u32, ethertype: Ethertype) -> Result<Self> {
        let what = || "failed to open a packet socket: is CONFIG_PACKET in the kernel, or its module in the image?";
        let protocol: Protocol = match ethertype {
            Ethertype::Ipv4 => eth::IP,
            Ethertype::Arp => eth::ARP,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd =
            rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, Some(protocol)).context(what)?;
        // The link's own entry in the kernel's list is its packet address; its protocol of zero keeps the socket's.
        let address = link_address(index)?;
        bind(fd.as_raw_fd(), &address).context(what)?;
        let socket = PacketSocket(UdpSocket::from_std(fd.into()).context(what)?);
        socket.drain();
        Ok(socket)
    }

    /// Frames that came from other links before the socket was bound to its own.
    fn drain(&self) {
        let mut frame = [0u8; 1];
        for _ in 0..MAX_STALE {
            if rustix::net::recv(&self.0, &mut frame[..], RecvFlags::DONTWAIT).is_err() {
                return;
            }
        }
    }

    /// Sends a whole frame.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        rustix::net::send(&self.0, frame, SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// Waits for a frame; gives its length.
    pub async fn recv(&self, frame: &mut [u8; MAX_FRAME]) -> io::Result<usize> {
        self.0.recv(frame).await
    }
}

fn link_address(index: u32) -> Result<LinkAddr> {
    let all = nix::ifaddrs::getifaddrs().context(|| "failed to list network links")?;
    all.filter_map(|i| i.address?.as_link_addr().copied())
        .find(|a| a.ifindex() == index as usize)
        .ok_or_else(|| Error::new(format!("the network link with index {index} is gone")))
}
