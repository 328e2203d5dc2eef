//! DHCP messages: RFC 2131 section 2, with options by RFC 2132, and long options by RFC 3396.
//!
//! An own codec, because the packet is small and fixed: it takes 12 KB of the static binary, dhcproto 217 KB
//! and mozim 795 KB. Any input yields a message or None.

use std::net::Ipv4Addr;

/// Ethernet hardware type and address length, as the header carries them.
const ETHERNET: [u8; 2] = [1, 6];
/// The magic cookie before the options (RFC 2131, section 3).
const MAGIC: [u8; 4] = [99, 130, 83, 99];
/// The length of the fixed fields before the magic cookie, in bytes.
const FIXED: usize = 236;
/// BOOTP's smallest message; some relays drop shorter ones (RFC 1542, section 2.1).
const MIN_LEN: usize = 300;
/// The broadcast bit of `flags`.
const BROADCAST: u16 = 0x8000;

/// Option codes: RFC 2132 unless said otherwise.
pub mod option {
    pub const SUBNET_MASK: u8 = 1;
    pub const ROUTER: u8 = 3;
    pub const DNS: u8 = 6;
    pub const HOST_NAME: u8 = 12;
    pub const DOMAIN_NAME: u8 = 15;
    pub const INTERFACE_MTU: u8 = 26;
    pub const BROADCAST: u8 = 28;
    pub const STATIC_ROUTES: u8 = 33;
    pub const NTP: u8 = 42;
    pub const REQUESTED_ADDRESS: u8 = 50;
    pub const LEASE_TIME: u8 = 51;
    pub const OVERLOAD: u8 = 52;
    pub const MESSAGE_TYPE: u8 = 53;
    pub const SERVER_ID: u8 = 54;
    pub const PARAMETER_LIST: u8 = 55;
    pub const MAX_MESSAGE_SIZE: u8 = 57;
    pub const CLIENT_ID: u8 = 61;
    pub const TFTP_SERVER: u8 = 66;
    pub const BOOT_FILE: u8 = 67;
    /// RFC 4039.
    pub const RAPID_COMMIT: u8 = 80;
    /// RFC 3397.
    pub const DOMAIN_SEARCH: u8 = 119;
    /// RFC 3442.
    pub const CLASSLESS_ROUTES: u8 = 121;
    /// Azure's fabric address, in a private-use code.
    pub const AZURE_ENDPOINT: u8 = 245;
    /// Microsoft's earlier code for what became option 121.
    pub const MS_CLASSLESS_ROUTES: u8 = 249;
    pub const PAD: u8 = 0;
    pub const END: u8 = 255;
}

/// Option values by code. The parts of a long option are joined (RFC 3396).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options(Vec<(u8, Vec<u8>)>);

impl Options {
    /// The bytes of the option `code`.
    pub fn get(&self, code: u8) -> Option<&[u8]> {
        self.iter().find(|(of, _)| *of == code).map(|(_, value)| value)
    }

    /// Sets an option.
    pub fn insert(&mut self, code: u8, value: Vec<u8>) {
        self.remove(code);
        let at = self.0.partition_point(|(of, _)| *of < code);
        self.0.insert(at, (code, value));
    }

    /// Removes an option and returns its value.
    fn remove(&mut self, code: u8) -> Option<Vec<u8>> {
        let at = self.0.iter().position(|(of, _)| *of == code)?;
        Some(self.0.remove(at).1)
    }

    /// Every option, by code.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &[u8])> {
        self.0.iter().map(|(code, value)| (*code, value.as_slice()))
    }
}

/// The message types that a client uses (option 53).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Discover = 1,
    Offer = 2,
    Request = 3,
    Ack = 5,
    Nak = 6,
}

impl Kind {
    fn from_code(code: u8) -> Option<Self> {
        [Kind::Discover, Kind::Offer, Kind::Request, Kind::Ack, Kind::Nak].into_iter().find(|k| *k as u8 == code)
    }
}

/// A message: the header fields that a client uses, and the options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DhcpMessage {
    pub kind: Kind,
    pub from_server: bool,
    pub xid: u32,
    pub secs: u16,
    pub yiaddr: Ipv4Addr,
    pub siaddr: Ipv4Addr,
    pub chaddr: [u8; 6],
    options: Options,
}

impl DhcpMessage {
    /// A client's message without options; add them with [`Message::with`].
    pub fn new(kind: Kind, xid: u32, secs: u16, chaddr: [u8; 6]) -> Self {
        let none = Ipv4Addr::UNSPECIFIED;
        DhcpMessage {
            kind,
            from_server: false,
            xid,
            secs,
            yiaddr: none,
            siaddr: none,
            chaddr,
            options: Options::default(),
        }
    }

    /// Adds an option.
    pub fn with(mut self, code: u8, value: &[u8]) -> Self {
        self.options.insert(code, value.to_vec());
        self
    }

    /// An option's bytes, the parts of a long option joined.
    pub fn option(&self, code: u8) -> Option<&[u8]> {
        self.options.get(code)
    }

    /// All options except the message type. The header's server and file names are under 66 and 67, unless it
    /// has those options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Serialises the message, with the broadcast flag because the link has no address yet.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![if self.from_server { 2 } else { 1 }];
        out.extend(ETHERNET);
        out.push(0);
        out.extend(self.xid.to_be_bytes());
        out.extend(self.secs.to_be_bytes());
        out.extend(BROADCAST.to_be_bytes());
        out.extend([0; 4]);
        out.extend(self.yiaddr.octets());
        out.extend(self.siaddr.octets());
        out.extend([0; 4]);
        out.extend(self.chaddr);
        out.resize(FIXED, 0);
        out.extend(MAGIC);
        out.extend([option::MESSAGE_TYPE, 1, self.kind as u8]);
        for (code, value) in self.options.iter() {
            // An empty option (rapid commit) must be written too.
            let chunks: Vec<&[u8]> = if value.is_empty() { vec![&[]] } else { value.chunks(255).collect() };
            for chunk in chunks {
                out.extend([code, chunk.len() as u8]);
                out.extend(chunk);
            }
        }
        out.push(option::END);
        out.resize(out.len().max(MIN_LEN), 0);
        out
    }

    /// Parses a message. None if it is not DHCP over Ethernet.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (fixed, rest) = bytes.split_at_checked(FIXED)?;
        let (magic, options) = rest.split_at_checked(MAGIC.len())?;
        if magic != MAGIC || fixed.get(1..3)? != ETHERNET {
            return None;
        }
        let mut found = Options::default();
        read_options(options, &mut found);
        let (server, file) = (fixed.get(44..108)?, fixed.get(108..236)?);
        // Option 52: the file and server-name fields hold options too, in that order (RFC 2131, section 4.1).
        let overload = found.get(option::OVERLOAD).and_then(|v| v.first().copied()).unwrap_or(0);
        if matches!(overload, 1 | 3) {
            read_options(file, &mut found);
        }
        if matches!(overload, 2 | 3) {
            read_options(server, &mut found);
        }
        for (code, field, holds_options) in [
            (option::TFTP_SERVER, server, matches!(overload, 2 | 3)),
            (option::BOOT_FILE, file, matches!(overload, 1 | 3)),
        ] {
            let text = field.split(|b| *b == 0).next().unwrap_or_default();
            if !holds_options && !text.is_empty() && found.get(code).is_none() {
                found.insert(code, text.to_vec());
            }
        }
        let kind = found.remove(option::MESSAGE_TYPE)?;
        Some(DhcpMessage {
            kind: Kind::from_code(*kind.first()?)?,
            from_server: *fixed.first()? == 2,
            xid: u32::from_be_bytes(array(fixed, 4)?),
            secs: u16::from_be_bytes(array(fixed, 8)?),
            yiaddr: array::<4>(fixed, 16)?.into(),
            siaddr: array::<4>(fixed, 20)?.into(),
            chaddr: array(fixed, 28)?,
            options: found,
        })
    }
}

/// `N` bytes from `at`.
fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// Adds the options of one area. A code that is repeated continues the option (RFC 3396). Of a truncated
/// area, the complete options are added.
fn read_options(mut area: &[u8], found: &mut Options) {
    while let [code, rest @ ..] = area {
        match *code {
            option::END => return,
            option::PAD => area = rest,
            code => {
                let Some((len, rest)) = rest.split_first() else { return };
                let Some((value, rest)) = rest.split_at_checked(usize::from(*len)) else { return };
                let mut whole = found.remove(code).unwrap_or_default();
                whole.extend_from_slice(value);
                found.insert(code, whole);
                area = rest;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn discover() -> DhcpMessage {
        DhcpMessage::new(Kind::Discover, 0x1234_5678, 3, [2, 0, 0, 0, 0, 1])
            .with(option::RAPID_COMMIT, &[])
            .with(option::CLASSLESS_ROUTES, &[7; 300])
            .with(option::SERVER_ID, &[10, 0, 0, 1])
    }

    #[test]
    fn what_is_written_reads_back() {
        let message = discover();
        let bytes = message.to_bytes();
        assert_eq!(DhcpMessage::parse(&bytes), Some(message));
        assert!(DhcpMessage::new(Kind::Request, 1, 0, [0; 6]).to_bytes().len() >= MIN_LEN);
        assert_eq!(&bytes[..4], [1, 1, 6, 0]);
        assert_eq!(&bytes[10..12], [0x80, 0]);
    }

    #[test]
    fn options_in_the_file_and_name_fields_count() {
        let mut bytes = DhcpMessage::new(Kind::Ack, 1, 0, [0; 6]).with(option::OVERLOAD, &[3]).to_bytes();
        bytes[108..114].copy_from_slice(&[option::ROUTER, 4, 10, 0, 0, 1]);
        bytes[114] = option::END;
        bytes[44..50].copy_from_slice(&[option::DNS, 4, 10, 0, 0, 2]);
        bytes[50] = option::END;
        let message = DhcpMessage::parse(&bytes).unwrap();
        assert_eq!(message.option(option::ROUTER), Some(&[10, 0, 0, 1][..]));
        assert_eq!(message.option(option::DNS), Some(&[10, 0, 0, 2][..]));
    }

    #[test]
    fn header_names_become_options_66_and_67() {
        let mut bytes = DhcpMessage::new(Kind::Ack, 1, 0, [0; 6]).with(option::BOOT_FILE, b"of-the-option").to_bytes();
        bytes[20..24].copy_from_slice(&[10, 0, 0, 7]);
        bytes[44..48].copy_from_slice(b"tftp");
        bytes[108..112].copy_from_slice(b"file");
        let message = DhcpMessage::parse(&bytes).unwrap();
        assert_eq!(message.siaddr, Ipv4Addr::new(10, 0, 0, 7));
        assert_eq!(message.option(option::TFTP_SERVER), Some(&b"tftp"[..]));
        assert_eq!(message.option(option::BOOT_FILE), Some(&b"of-the-option"[..]));
    }

    #[test]
    fn what_is_not_dhcp_is_none() {
        let bytes = discover().to_bytes();
        assert_eq!(DhcpMessage::parse(&bytes[..239]), None);
        assert_eq!(DhcpMessage::parse(&[]), None);
        let mut other = bytes.clone();
        other[236] ^= 1;
        assert_eq!(DhcpMessage::parse(&other), None);
        let mut no_type = bytes.clone();
        no_type[242] = 8;
        assert_eq!(DhcpMessage::parse(&no_type), None);
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let bytes = discover().to_bytes();
        for len in 0..bytes.len() {
            let _ = DhcpMessage::parse(&bytes[..len]);
        }
        for at in 0..bytes.len() {
            for value in [0, 1, 3, 127, 254, 255] {
                let mut changed = bytes.clone();
                changed[at] = value;
                let _ = DhcpMessage::parse(&changed);
            }
        }
    }
}
