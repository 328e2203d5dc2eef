//! A DHCP client for one link (RFC 2131; rapid commit by RFC 4039).

pub mod frame;
mod lease;
pub mod packet;
pub mod record;

pub use lease::{Lease, LeaseRoute, class_prefix, domain_at, prefix_of};
pub use packet::Options;

use super::packet_socket::{Ethertype, MAX_FRAME, PacketSocket};
use super::rng::Rng;
use crate::base::deadline::Deadline;
use crate::base::error::{Error, Result};
use packet::{DhcpMessage, Kind, option};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// How long to wait for an answer to the first message. RFC 2131, 4.1, has 4 s, doubled up to 64 s; early
/// repeats cost one packet each, and save seconds if the switch did not forward the first message yet.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(64);
/// How often a request is repeated before discovery starts again.
const MAX_REQUESTS: u32 = 4;
/// The parameter request list (option 55), in the order that RFC 3442 requires.
const PARAMETERS: [u8; 18] = [
    option::CLASSLESS_ROUTES,
    option::MS_CLASSLESS_ROUTES,
    option::SUBNET_MASK,
    option::ROUTER,
    option::DNS,
    option::HOST_NAME,
    option::DOMAIN_NAME,
    option::INTERFACE_MTU,
    option::BROADCAST,
    option::STATIC_ROUTES,
    option::NTP,
    option::LEASE_TIME,
    option::SERVER_ID,
    option::DOMAIN_SEARCH,
    option::TFTP_SERVER,
    option::BOOT_FILE,
    option::AZURE_ENDPOINT,
    option::MESSAGE_TYPE,
];

/// A client on one Ethernet link with carrier.
pub struct Client<'a> {
    name: &'a str,
    mac: [u8; 6],
    /// The servers whose leases are accepted. Empty: all.
    servers: &'a [Ipv4Addr],
    socket: PacketSocket,
    rng: Rng,
    started: Instant,
    sent: u32,
    naks: u32,
}

/// The result of one round of discovery.
enum Answer {
    /// Rapid commit: the server sent a lease at once.
    Lease(Box<Lease>),
    Offer {
        xid: u32,
        server: Ipv4Addr,
        address: Ipv4Addr,
    },
}

impl<'a> Client<'a> {
    /// A client on the link `name`. It accepts leases from `servers` only, or from all if that is empty. Must
    /// be called in a tokio runtime.
    ///
    /// # Errors
    /// The kernel has no packet sockets, or the link is gone.
    pub fn open(name: &'a str, index: u32, mac: [u8; 6], servers: &'a [Ipv4Addr]) -> Result<Self> {
        let socket = PacketSocket::open(index, Ethertype::Ipv4).map_err(|e| e.context(name))?;
        Ok(Client { name, mac, servers, socket, rng: Rng::new(&mac), started: Instant::now(), sent: 0, naks: 0 })
    }

    /// Asks until a server grants a lease.
    ///
    /// # Errors
    /// The deadline passes; the message lists the tries.
    pub async fn acquire(&mut self, deadline: Deadline) -> Result<Lease> {
        // Checked in each round: a server that offers at once and then always refuses must not keep the
        // client past the deadline.
        while !deadline.passed() {
            let lease = match self.discover(deadline).await? {
                Answer::Lease(lease) => Some(*lease),
                Answer::Offer { xid, server, address } => self.request(xid, server, address, deadline).await?,
            };
            if let Some(lease) = lease {
                return Ok(lease);
            }
            if self.naks > 0 {
                // Not at once, so that a server that refuses its own offers is not asked in a busy loop.
                let wait = self.wait(self.naks);
                self.receive(0, deadline.at_most(wait), |_| None::<()>).await;
            }
        }
        Err(self.failed())
    }

    fn failed(&self) -> Error {
        let naks = if self.naks > 0 { format!(", {} refusals", self.naks) } else { String::new() };
        Error::new(format!(
            "{}: no DHCP lease in {} s ({} messages sent{naks}): is a server on this network?",
            self.name,
            self.started.elapsed().as_secs_f32().round(),
            self.sent
        ))
    }

    async fn discover(&mut self, deadline: Deadline) -> Result<Answer> {
        let xid = self.rng.next();
        for attempt in 0.. {
            self.send(self.message(Kind::Discover, xid).with(option::RAPID_COMMIT, &[]));
            let (name, servers) = (self.name, self.servers);
            let wait = self.wait(attempt);
            let answer = self.receive(xid, deadline.at_most(wait), |message| match message.kind {
                Kind::Ack | Kind::Offer if !is_from(servers, message) => None,
                Kind::Ack => {
                    message.option(option::RAPID_COMMIT)?;
                    Lease::from_ack(name, message).map(|lease| Answer::Lease(lease.into()))
                }
                Kind::Offer => {
                    let server = message.option(option::SERVER_ID)?.first_chunk::<4>()?;
                    let address = Lease::from_ack(name, message)?.address?;
                    Some(Answer::Offer { xid, server: Ipv4Addr::from(*server), address })
                }
                _ => None,
            });
            if let Some(answer) = answer.await {
                return Ok(answer);
            }
            if deadline.passed() {
                break;
            }
        }
        Err(self.failed())
    }

    /// Requests the offered lease. None if the server refused or did not answer.
    async fn request(
        &mut self,
        xid: u32,
        server: Ipv4Addr,
        address: Ipv4Addr,
        deadline: Deadline,
    ) -> Result<Option<Lease>> {
        for attempt in 0..MAX_REQUESTS {
            let message = self
                .message(Kind::Request, xid)
                .with(option::SERVER_ID, &server.octets())
                .with(option::REQUESTED_ADDRESS, &address.octets());
            self.send(message);
            let (name, servers) = (self.name, self.servers);
            let wait = self.wait(attempt);
            let answer = self.receive(xid, deadline.at_most(wait), |message| {
                // A relay may rewrite the server identifier, so the offered address identifies the answer.
                match message.kind {
                    _ if !is_from(servers, message) => None,
                    Kind::Ack => Lease::from_ack(name, message).map(Some),
                    Kind::Nak => Some(None),
                    _ => None,
                }
            });
            match answer.await {
                Some(Some(lease)) => return Ok(Some(lease)),
                Some(None) => {
                    self.naks += 1;
                    return Ok(None);
                }
                None if deadline.passed() => return Ok(None),
                None => {}
            }
        }
        Ok(None)
    }

    /// The wait before attempt `n + 1`: doubled each time, and varied by a quarter so that machines that
    /// booted together do not ask together.
    fn wait(&mut self, n: u32) -> Duration {
        let wait = FIRST_WAIT.saturating_mul(1 << n.min(16)).min(LONGEST_WAIT);
        wait.mul_f64(self.rng.between(0.75, 1.25))
    }

    fn message(&self, kind: Kind, xid: u32) -> DhcpMessage {
        let secs = u16::try_from(self.started.elapsed().as_secs()).unwrap_or(u16::MAX);
        let mut id = vec![1];
        id.extend(self.mac);
        DhcpMessage::new(kind, xid, secs, self.mac)
            .with(option::CLIENT_ID, &id)
            .with(option::MAX_MESSAGE_SIZE, &1472u16.to_be_bytes())
            .with(option::PARAMETER_LIST, &PARAMETERS)
    }

    /// Sends a message. A failure is ignored like a lost packet: the message will be repeated.
    fn send(&mut self, message: DhcpMessage) {
        self.sent += 1;
        if let Err(e) = self.socket.send(&frame::broadcast(self.mac, &message.to_bytes())) {
            log::debug!("{}: failed to send a DHCP message: {e}", self.name);
        }
    }

    /// The first message of this transaction for which `wanted` returns Some. None after the deadline.
    async fn receive<T>(&self, xid: u32, deadline: Deadline, wanted: impl Fn(&DhcpMessage) -> Option<T>) -> Option<T> {
        let listen = async {
            let mut buffer = [0; MAX_FRAME];
            loop {
                // A link that goes down ends the read with an error; the next attempt finds out whether it is
                // up again.
                let Ok(len) = self.socket.recv(&mut buffer).await else { return std::future::pending().await };
                let message = buffer.get(..len).and_then(|f| frame::payload(self.mac, f)).and_then(DhcpMessage::parse);
                let Some(message) = message else { continue };
                let ours = message.from_server && message.xid == xid && message.chaddr == self.mac;
                if let (true, Some(answer)) = (ours, wanted(&message)) {
                    return answer;
                }
            }
        };
        tokio::time::timeout(deadline.left(), listen).await.ok()
    }
}

/// Whether a message is from one of `servers`, or there is no restriction.
fn is_from(servers: &[Ipv4Addr], message: &DhcpMessage) -> bool {
    let id = message.option(option::SERVER_ID).and_then(|id| id.first_chunk::<4>());
    servers.is_empty() || id.is_some_and(|id| servers.contains(&Ipv4Addr::from(*id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pinned_servers_are_believed() {
        let of = |id: &[u8]| DhcpMessage::new(Kind::Offer, 1, 0, [2; 6]).with(option::SERVER_ID, id);
        let pinned = [Ipv4Addr::new(10, 0, 0, 2)];
        assert!(is_from(&pinned, &of(&[10, 0, 0, 2])) && !is_from(&pinned, &of(&[10, 0, 0, 3])));
        assert!(!is_from(&pinned, &of(&[10])) && !is_from(&pinned, &DhcpMessage::new(Kind::Ack, 1, 0, [2; 6])));
        assert!(is_from(&[], &DhcpMessage::new(Kind::Ack, 1, 0, [2; 6])));
    }
}
