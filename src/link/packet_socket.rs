//! A packet socket on one link, for protocols that need no address: DHCP and ARP.

use crate::base::error::{Context, Error, Result};
use nix::sys::socket::{LinkAddr, bind};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, eth};
use std::io;
use std::os::fd::AsRawFd;
use tokio::net::UdpSocket;

/// The largest frame that is received, in bytes; DHCP and ARP over Ethernet fit.
pub const MAX_FRAME: usize = 2048;
/// How many frames of other links may be in a new socket.
const MAX_STALE: usize = 1024;

/// The protocol that a socket receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ethertype {
    Ipv4,
    Arp,
}

/// Sends and receives whole Ethernet frames on one link. The UDP type provides readiness, send and receive,
/// which are the same system calls for every datagram socket.
pub struct PacketSocket(UdpSocket);

impl PacketSocket {
    /// A socket on the link `index`. Needs a tokio runtime.
    ///
    /// # Errors
    /// The kernel has no packet sockets, or the link is gone.
    pub fn open(index: u32, ethertype: Ethertype) -> Result<Self> {
        let what = || "failed to open a packet socket: is CONFIG_PACKET in the kernel, or its module in the image?";
        let protocol: Protocol = match ethertype {
            Ethertype::Ipv4 => eth::IP,
            Ethertype::Arp => eth::ARP,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd =
            rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, Some(protocol)).context(what)?;
        // The kernel's address of the link has protocol 0, which keeps the socket's.
        let address = link_address(index)?;
        bind(fd.as_raw_fd(), &address).map_err(io::Error::from).context(what)?;
        let socket = PacketSocket(UdpSocket::from_std(fd.into()).context(what)?);
        socket.drain();
        Ok(socket)
    }

    /// Discards frames of other links that arrived before the socket was bound to its own.
    fn drain(&self) {
        let mut frame = [0u8; 1];
        for _ in 0..MAX_STALE {
            if rustix::net::recv(&self.0, &mut frame[..], RecvFlags::DONTWAIT).is_err() {
                return;
            }
        }
    }

    /// Sends a whole frame.
    ///
    /// # Errors
    /// The link is down or does not take the frame now.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        rustix::net::send(&self.0, frame, SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// Waits for a frame, and returns its length.
    pub async fn recv(&self, frame: &mut [u8; MAX_FRAME]) -> io::Result<usize> {
        self.0.recv(frame).await
    }
}

fn link_address(index: u32) -> Result<LinkAddr> {
    let all = nix::ifaddrs::getifaddrs().map_err(io::Error::from).context(|| "failed to list network links")?;
    all.filter_map(|i| i.address?.as_link_addr().copied())
        .find(|a| a.ifindex() == index as usize)
        .ok_or_else(|| Error::new(format!("the network link with index {index} is gone")))
}
