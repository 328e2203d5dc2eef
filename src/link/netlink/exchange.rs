//! Requests that the kernel answers before anything else is done: for changes that need no runtime and no events.

use super::message::Message;
use rtnetlink::packet_core::{NLM_F_REQUEST, NetlinkBuffer, NetlinkMessage, NetlinkPayload};
use rustix::fd::OwnedFd;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use std::io;
use std::time::Duration;

/// How long an answer is waited for. It comes at once, unless the kernel loads a module for it.
const ANSWER: Duration = Duration::from_secs(10);
/// The longest datagram of answers, in bytes. An error repeats the request that it is about.
const MAX_DATAGRAM: usize = 64 << 10;
/// The most answers to one request.
const MAX_ANSWERS: usize = 10_000;

/// A netlink socket for requests and their answers.
pub struct Exchange(OwnedFd);

impl Exchange {
    /// For links, addresses, routes and rules.
    ///
    /// # Errors
    /// The kernel has no such socket.
    pub fn route() -> io::Result<Exchange> {
        Exchange::open(None)
    }

    /// For nf_tables.
    ///
    /// # Errors
    /// The kernel has no netfilter.
    pub fn netfilter() -> io::Result<Exchange> {
        Exchange::open(Some(netlink::NETFILTER))
    }

    fn open(protocol: Option<Protocol>) -> io::Result<Exchange> {
        let fd = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        set_socket_timeout(&fd, Timeout::Recv, Some(ANSWER))?;
        Ok(Exchange(fd))
    }

    /// Sends messages with their flags in one datagram, and returns the messages that answer them. The last to be answered has
    /// `NLM_F_ACK` or `NLM_F_DUMP`, which ends the answers.
    ///
    /// # Errors
    /// The kernel refuses one of them, or does not answer.
    pub fn ask(&self, messages: Vec<(Message, u16)>) -> io::Result<Vec<Message>> {
        let mut bytes = Vec::new();
        for (number, (message, flags)) in (1..).zip(messages) {
            let mut message = NetlinkMessage::from(message);
            message.header.flags = NLM_F_REQUEST | flags;
            message.header.sequence_number = number;
            message.finalize();
            let start = bytes.len();
            bytes.resize(start + message.buffer_len(), 0);
            message.serialize(bytes.get_mut(start..).unwrap_or_default());
        }
        send(&self.0, &bytes, SendFlags::empty())?;
        let (mut found, mut datagram) = (Vec::new(), vec![0; MAX_DATAGRAM]);
        while found.len() < MAX_ANSWERS {
            let (length, _) = recv(&self.0, datagram.as_mut_slice(), RecvFlags::empty())?;
            if answers(datagram.get(..length).unwrap_or_default(), &mut found)? == Rest::None {
                return Ok(found);
            }
        }
        Err(io::Error::other("the kernel's answer has no end"))
    }
}

/// Whether more answers follow.
#[derive(Debug, PartialEq, Eq)]
enum Rest {
    Some,
    None,
}

/// Reads the messages of a datagram.
fn answers(mut bytes: &[u8], found: &mut Vec<Message>) -> io::Result<Rest> {
    while let Ok(header) = NetlinkBuffer::new_checked(bytes) {
        let length = usize::try_from(header.length()).unwrap_or(usize::MAX);
        let message = bytes.get(..length).and_then(|bytes| NetlinkMessage::<Message>::deserialize(bytes).ok());
        match message.map(|message| message.payload) {
            Some(NetlinkPayload::Error(e)) if e.code.is_some() => return Err(e.to_io()),
            Some(NetlinkPayload::Error(_) | NetlinkPayload::Done(_)) => return Ok(Rest::None),
            Some(NetlinkPayload::InnerMessage(message)) => found.push(message),
            Some(_) => {}
            None => return Err(io::Error::other("the kernel's answer has another form")),
        }
        // Each message begins at a multiple of four.
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(Rest::Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::mutations;
    use nix::libc;
    use rtnetlink::packet_core::NLM_F_DUMP;
    use rtnetlink::packet_route::link::LinkHeader;

    #[test]
    fn lists_links() {
        let request = Message::new(libc::RTM_GETLINK, &LinkHeader::default());
        let found = Exchange::route().unwrap().ask(vec![(request, NLM_F_DUMP)]).unwrap();
        assert!(!found.is_empty() && found.iter().all(|message| message.kind == libc::RTM_NEWLINK));
    }

    #[test]
    fn damaged_answers_are_errors() {
        // An acknowledgement, and an error.
        let acknowledged = [36, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let acknowledged = [&acknowledged[..], &[0; 16]].concat();
        let mut refused = acknowledged.clone();
        refused[16..20].copy_from_slice(&(-1i32).to_ne_bytes());
        let read = |bytes: &[u8]| answers(bytes, &mut Vec::new());
        assert_eq!(read(&acknowledged).unwrap(), Rest::None);
        assert_eq!(read(&refused).unwrap_err().raw_os_error(), Some(1));
        assert_eq!(read(&[]).unwrap(), Rest::Some);
        mutations(&refused, 2000, |bytes| drop(read(bytes)));
    }
}
