//! rtnetlink messages in the kernel's form: a type, a header, and attributes as bytes.
//!
//! From netlink-packet-route only the headers are used. Its message types know every attribute of every kind
//! of link, tunnel and queue, which added 390 KB to the program.

use rtnetlink::packet_core::{
    DecodeError, DefaultNla, Emitable, NLA_HEADER_SIZE, NetlinkDeserializable, NetlinkHeader, NetlinkSerializable,
    NlasIterator,
};

/// A message: the type, and the bytes after nlmsghdr (rtnetlink(7)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// RTM_*.
    pub kind: u16,
    /// The type's own header, and attributes, each padded to four bytes.
    bytes: Vec<u8>,
}

impl Message {
    /// A message with its header and no attributes.
    pub fn new(kind: u16, header: &impl Emitable) -> Self {
        let mut message = Message { kind, bytes: Vec::new() };
        message.append(header);
        message
    }

    /// Adds an attribute. Numbers are in native byte order, addresses in network byte order.
    pub fn with(mut self, kind: u16, value: &[u8]) -> Self {
        self.append(&DefaultNla::new(kind, value.to_vec()));
        self
    }

    fn append(&mut self, part: &impl Emitable) {
        let start = self.bytes.len();
        self.bytes.resize(start + part.buffer_len(), 0);
        part.emit(self.bytes.get_mut(start..).unwrap_or_default());
    }

    /// The header that all messages of this type begin with.
    pub fn header<H>(&self, parse: impl Fn(&[u8]) -> Result<H, DecodeError>) -> Option<H> {
        parse(&self.bytes).ok()
    }

    /// The attributes after a header as long as `header`: type and value. They end at the first that is
    /// truncated.
    pub fn attributes(&self, header: &impl Emitable) -> impl Iterator<Item = (u16, &[u8])> {
        attributes(self.bytes.get(header.buffer_len()..).unwrap_or_default())
    }
}

/// The attributes in `bytes`, such as the value of a nested attribute.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    NlasIterator::new(bytes).map_while(|attribute| {
        let attribute = attribute.ok()?;
        let (kind, length) = (attribute.kind(), usize::from(attribute.length()));
        Some((kind, attribute.into_inner().get(NLA_HEADER_SIZE..length)?))
    })
}

/// The value of a nested attribute.
pub fn nested(inner: &[(u16, &[u8])]) -> Vec<u8> {
    let mut message = Message { kind: 0, bytes: Vec::new() };
    for (kind, value) in inner {
        message = message.with(*kind, value);
    }
    message.bytes
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        self.kind
    }

    fn buffer_len(&self) -> usize {
        self.bytes.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.bytes);
    }
}

impl NetlinkDeserializable for Message {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        Ok(Message { kind: header.message_type, bytes: payload.to_vec() })
    }
}

impl From<Message> for rtnetlink::packet_core::NetlinkPayload<Message> {
    fn from(message: Message) -> Self {
        Self::InnerMessage(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtnetlink::packet_route::route::RouteHeader;

    #[test]
    fn attributes_round_trip_and_end_at_a_cut() {
        let header = RouteHeader::default();
        let inner = nested(&[(1, b"ab"), (2, &[])]);
        let message = Message::new(24, &header).with(7, b"abcde").with(9 | 0x8000, &inner);
        let all: Vec<_> = message.attributes(&header).collect();
        assert_eq!(all, [(7, &b"abcde"[..]), (9, &inner)], "the flag for nesting is not part of the type");
        assert_eq!(attributes(&inner).collect::<Vec<_>>(), [(1, &b"ab"[..]), (2, b"")]);
        for cut in 0..message.bytes.len() {
            let message = Message { kind: 24, bytes: message.bytes[..cut].to_vec() };
            assert!(message.attributes(&header).count() < 2);
        }
        assert_eq!(attributes(&[3, 0, 1, 0, 4, 0, 1, 0]).count(), 0, "shorter than its own header");
        assert!(Message { kind: 24, bytes: vec![0; 11] }.header(RouteHeader::parse).is_none());
    }
}
