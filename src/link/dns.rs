//! A stub resolver (RFC 1035): asks the name servers of one link's lease for A and AAAA records.
//!
//! The C library's resolver would read /etc/resolv.conf, which an initramfs does not have, and would ask over
//! any link. Nor does it keep to a time limit, and it takes 22 KB. So this asks the servers of that file, too.

use super::dhcp::domain_at;
use super::system_names;
use super::tcp::{LinkConnector, bind_to_link};
use super::uplink::Uplink;
use crate::base::cancel::Cancel;
use crate::base::random;
use rustix::event::PollFlags;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use std::{fmt, io};
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{NextTimeout, time};

const PORT: u16 = 53;
/// How long the first round waits for an answer; doubled in each round.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const ROUNDS: u32 = 4;
/// How long a server has for an answer by TCP, which is asked for after one that was cut short.
const TCP_WAIT: Duration = Duration::from_secs(2);
/// The bit of a message's third byte that marks a truncated message.
const TRUNCATED: u8 = 2;
/// The most servers that are asked.
const MAX_SERVERS: usize = 3;
const MAX_ANSWERS: usize = 16;
/// The most records of an answer that are read.
const MAX_RECORDS: u16 = 64;
/// The length of a message's header.
const HEADER: usize = 12;
const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;
const IN: u16 = 1;

/// The resolver of one uplink. Literal addresses get its scope; names are resolved by its servers, or by the system if
/// it has none.
pub struct UplinkResolver {
    pub uplink: Uplink,
    pub cancel: Cancel,
}

/// ureq requires it. Only the name, because a derived one would pull in Debug code for every field of an uplink.
impl fmt::Debug for UplinkResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UplinkResolver")
    }
}

impl Resolver for UplinkResolver {
    fn resolve(
        &self,
        uri: &Uri,
        _: &ureq::config::Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let host = uri.host().unwrap_or_default();
        let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
        if self.uplink.socket.is_some() {
            // The host of a Unix socket's URL is not used, so that any address does.
            let mut none = self.empty();
            none.push(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port));
            return Ok(none);
        }
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let mut found = self.empty();
        if let Ok(ip) = bare.parse::<IpAddr>() {
            found.push(self.scoped(ip, port));
            return Ok(found);
        }
        let budget = match timeout.after {
            time::Duration::Exact(left) => left,
            time::Duration::NotHappening => Duration::from_secs(60),
        };
        for ip in self.look_up(bare, budget).into_iter().take(MAX_ANSWERS) {
            found.push(self.scoped(ip, port));
        }
        if found.is_empty() { Err(ureq::Error::HostNotFound) } else { Ok(found) }
    }
}

impl UplinkResolver {
    fn scoped(&self, ip: IpAddr, port: u16) -> SocketAddr {
        match ip {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => SocketAddrV6::new(ip, port, 0, self.uplink.index).into(),
            ip => SocketAddr::new(ip, port),
        }
    }

    fn look_up(&self, name: &str, budget: Duration) -> Vec<IpAddr> {
        let Uplink { dns, search, link, .. } = &self.uplink;
        if dns.is_empty() {
            return of_system(name, budget, &self.cancel);
        }
        let addresses = dns.iter().map(|ip| self.scoped(*ip, PORT)).collect();
        Servers { addresses, search: search.clone(), link: link.clone(), cancel: &self.cancel }.look_up(name, budget)
    }
}

/// The addresses of a name by the system's hosts(5) and resolv.conf(5); empty if they are not known within `budget`.
pub fn of_system(name: &str, budget: Duration, cancel: &Cancel) -> Vec<IpAddr> {
    let found = system_names::in_hosts(name);
    if !found.is_empty() {
        return found;
    }
    let (addresses, search) = system_names::servers(PORT);
    Servers { addresses, search, link: None, cancel }.look_up(name, budget)
}

/// Name servers.
struct Servers<'a> {
    addresses: Vec<SocketAddr>,
    /// Domains in which a short name is looked up.
    search: Vec<String>,
    /// The link that they are asked over; None: the one of the route.
    link: Option<String>,
    cancel: &'a Cancel,
}

impl Servers<'_> {
    /// The addresses of `name`; empty if they are not known within `budget`.
    fn look_up(&self, name: &str, budget: Duration) -> Vec<IpAddr> {
        let end = Instant::now() + budget;
        let full = name.strip_suffix('.');
        let domains = self.search.iter().map(|d| format!("{name}.{d}"));
        let names: Vec<String> = match full {
            Some(full) => vec![full.into()],
            None if name.contains('.') => std::iter::once(name.to_owned()).chain(domains).collect(),
            None => domains.chain([name.to_owned()]).collect(),
        };
        for name in names {
            let found = self.ask(&name, end);
            if !found.is_empty() {
                return found;
            }
        }
        Vec::new()
    }

    /// The addresses of one name, IPv4 first; empty once every server was asked in every round.
    fn ask(&self, name: &str, end: Instant) -> Vec<IpAddr> {
        for round in 0..ROUNDS {
            for server in self.addresses.iter().take(MAX_SERVERS) {
                let wait = FIRST_WAIT.saturating_mul(1 << round).min(end.saturating_duration_since(Instant::now()));
                // Who can guess them can answer in the server's place.
                let ids = random::number();
                match self.ask_one(*server, name, [ids as u16, (ids >> 16) as u16], wait) {
                    Ok(Some(found)) => return found,
                    Ok(None) => {}
                    Err(e) => log::debug!("failed to ask name server {}: {e}", server.ip()),
                }
                if self.cancel.is_cancelled() || Instant::now() >= end {
                    return Vec::new();
                }
            }
        }
        Vec::new()
    }

    /// One server's addresses. None if it does not answer in time, or answers in part only and without an address.
    fn ask_one(
        &self,
        server: SocketAddr,
        name: &str,
        ids: [u16; 2],
        wait: Duration,
    ) -> io::Result<Option<Vec<IpAddr>>> {
        let end = Instant::now() + wait;
        let family = if server.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd: OwnedFd = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
        if let Some(link) = &self.link {
            bind_to_link(&fd, link)?;
        }
        rustix::net::connect(&fd, &server)?;
        let mut answers: [Option<Vec<IpAddr>>; 2] = [None, None];
        let kinds = [(ids[0], A), (ids[1], AAAA)];
        for (id, kind) in kinds {
            let Some(question) = question(id, name, kind) else { return Ok(Some(Vec::new())) };
            rustix::net::send(&fd, &question, SendFlags::NOSIGNAL)?;
        }
        let mut buffer = [0u8; 1500];
        while answers.iter().any(Option::is_none) {
            let left = end.saturating_duration_since(Instant::now());
            match self.cancel.wait_for(&fd, PollFlags::IN, Some(left)) {
                Err(e) if e.kind() == io::ErrorKind::TimedOut => break,
                other => other?,
            }
            let (len, _) = rustix::net::recv(&fd, &mut buffer[..], RecvFlags::DONTWAIT)?;
            let message = buffer.get(..len).unwrap_or_default();
            for ((id, kind), slot) in kinds.into_iter().zip(&mut answers) {
                let Some(found) = read_answer(message, id, name, kind) else { continue };
                let is_short = message.get(2).is_some_and(|flags| flags & TRUNCATED != 0);
                let whole =
                    question(id, name, kind).filter(|_| is_short).map(|question| self.by_tcp(server, &question));
                *slot = match whole {
                    None => Some(found),
                    Some(Ok(whole)) => read_answer(&whole, id, name, kind),
                    // Some addresses are better than none.
                    Some(Err(_)) => Some(found).filter(|found| !found.is_empty()),
                };
            }
        }
        let is_whole = answers.iter().all(Option::is_some);
        let found: Vec<IpAddr> = answers.into_iter().flatten().flatten().collect();
        // The addresses may have been in the answer that was lost.
        Ok(Some(found).filter(|found| is_whole || !found.is_empty()))
    }

    /// One server's answer by TCP (RFC 7766; the framing is RFC 1035, section 4.2.2).
    fn by_tcp(&self, server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
        let end = Instant::now() + TCP_WAIT;
        let left = || end.saturating_duration_since(Instant::now());
        let (link, cancel) = (self.link.clone(), self.cancel.clone());
        let fd = LinkConnector { link, socket: None, port: None, cancel, connect: TCP_WAIT }.open(server, left())?;
        let length = u16::try_from(question.len()).unwrap_or(u16::MAX);
        rustix::net::send(&fd, &[&length.to_be_bytes(), question].concat(), SendFlags::NOSIGNAL)?;
        let (mut answer, mut buffer) = (Vec::new(), [0u8; 1500]);
        loop {
            let length = answer.first_chunk().map(|length| usize::from(u16::from_be_bytes(*length)));
            if let Some(whole) = length.and_then(|length| answer.get(2..2 + length)) {
                return Ok(whole.to_vec());
            }
            self.cancel.wait_for(&fd, PollFlags::IN, Some(left()))?;
            let (len, _) = rustix::net::recv(&fd, &mut buffer[..], RecvFlags::DONTWAIT)?;
            if len == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            answer.extend_from_slice(buffer.get(..len).unwrap_or_default());
        }
    }
}

/// A query message. None for a name that DNS cannot represent.
pub fn question(id: u16, name: &str, kind: u16) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(name.len() + 18);
    out.extend(id.to_be_bytes());
    // Recursion desired; one question.
    out.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        let len = u8::try_from(label.len()).ok().filter(|len| (1..=63).contains(len))?;
        out.push(len);
        out.extend(label.as_bytes());
    }
    out.push(0);
    out.extend(kind.to_be_bytes());
    out.extend(IN.to_be_bytes());
    Some(out)
}

/// The addresses in the response to a query, following aliases; empty if the name has none. None if the message is not
/// a response to this query (id, name, type and class are compared), or if the server failed,
/// because another may not.
pub fn read_answer(message: &[u8], id: u16, name: &str, kind: u16) -> Option<Vec<IpAddr>> {
    let word = |at: usize| message.get(at..)?.first_chunk().map(|b| u16::from_be_bytes(*b));
    let flags = word(2)?;
    let code = flags & 0xf;
    // An answer, with no error or "no such name".
    if word(0)? != id || flags & 0x8000 == 0 || !(code == 0 || code == 3) || word(4)? != 1 {
        return None;
    }
    let (asked, mut at) = domain_at(message, HEADER)?;
    if !asked.eq_ignore_ascii_case(name) || word(at)? != kind || word(at + 2)? != IN {
        return None;
    }
    at += 4;
    let (mut aliases, mut addresses) = (Vec::new(), Vec::new());
    for _ in 0..word(6)?.min(MAX_RECORDS) {
        let Some((owner, next)) = domain_at(message, at) else { break };
        let (Some(rtype), Some(class), Some(len)) = (word(next), word(next + 2), word(next + 8)) else { break };
        let data = next + 10;
        let Some(bytes) = message.get(data..data + usize::from(len)) else { break };
        if class == IN && rtype == CNAME {
            aliases.extend(domain_at(message, data).map(|(target, _)| (owner, target)));
        } else if class == IN && rtype == kind {
            let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
            let address = four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from));
            addresses.extend(address.ok().map(|address| (owner, address)));
        }
        at = data + usize::from(len);
    }
    // Follows aliases from the name; a loop ends when the records do.
    let mut owner = asked;
    for _ in 0..aliases.len() {
        match aliases.iter().find(|(from, _)| from.eq_ignore_ascii_case(&owner)) {
            Some((_, target)) => owner = target.clone(),
            None => break,
        }
    }
    let found = addresses.into_iter().filter(|(of, _)| of.eq_ignore_ascii_case(&owner)).map(|(_, address)| address);
    Some(found.take(MAX_ANSWERS).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    fn answer(id: u16, kind: u16, data: &[u8]) -> Vec<u8> {
        let mut out = question(id, "seed.example.org", kind).unwrap();
        out[2..4].copy_from_slice(&[0x81, 0x80]);
        out[7] = 2;
        // An alias first, then what was asked, by a pointer to the question.
        out.extend([0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 60, 0, 2, 0xc0, 17]);
        out.extend([0xc0, 17, 0, kind as u8, 0, 1, 0, 0, 0, 60, 0, data.len() as u8]);
        out.extend(data);
        out
    }

    #[test]
    fn answers_are_read_through_aliases() {
        let four = answer(7, A, &[10, 0, 0, 9]);
        let read = |message: &[u8]| read_answer(message, 7, "seed.example.org", A);
        assert_eq!(read(&four), Some(vec![IpAddr::from([10, 0, 0, 9])]));
        assert_eq!(read_answer(&four, 7, "SEED.example.org", A), read(&four));
        assert_eq!(read_answer(&four, 7, "seed.example.org", AAAA), None, "another type");
        assert_eq!(read_answer(&four, 8, "seed.example.org", A), None, "another id");
        assert_eq!(read_answer(&four, 7, "seed.example.com", A), None, "another name");
        let mut unasked = four.clone();
        unasked[5] = 0;
        assert_eq!(read(&unasked), None, "no question");
        let mut foreign = four.clone();
        // The address of a name that was not asked for: that of the question's last part.
        let owner = foreign.len() - 16;
        foreign[owner + 1] = 25;
        assert_eq!(read(&foreign), Some(vec![]));
        let six = answer(7, AAAA, &Ipv6Addr::LOCALHOST.octets());
        assert_eq!(read_answer(&six, 7, "seed.example.org", AAAA), Some(vec![IpAddr::from(Ipv6Addr::LOCALHOST)]));
        let mut refused = four.clone();
        refused[3] = 0x85;
        assert_eq!(read(&refused), None);
        let mut unknown = four.clone();
        unknown[3] = 0x83;
        unknown[7] = 0;
        assert_eq!(read(&unknown), Some(vec![]));
    }

    #[test]
    fn a_lost_answer_is_asked_for_again() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let addresses = vec![socket.local_addr().unwrap()];
        let server = std::thread::spawn(move || {
            let mut buffer = [0; 512];
            let (mut lost, mut has_addresses, mut given) = (false, false, false);
            while !given {
                let (len, peer) = socket.recv_from(&mut buffer).unwrap();
                let query = &buffer[..len];
                let (is_four, is_right) = (query[len - 3] == A as u8, !query.windows(5).any(|w| w == b"wrong"));
                if is_four && is_right && !std::mem::replace(&mut lost, true) {
                    continue;
                }
                given = has_addresses && !is_four;
                has_addresses |= is_four;
                let mut answer = query.to_vec();
                answer[2] |= 0x80;
                if is_four {
                    answer[7] = 1;
                    answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 0, 0, if is_right { 9 } else { 6 }]);
                }
                socket.send_to(&answer, peer).unwrap();
            }
        });
        let cancel = Cancel::new().unwrap();
        let servers = Servers { addresses, search: vec!["wrong.example".into()], link: None, cancel: &cancel };
        let found = servers.look_up("seed.example.org", Duration::from_secs(20));
        server.join().unwrap();
        assert_eq!(found, [IpAddr::from([10, 0, 0, 9])]);
    }

    #[test]
    fn repeats_a_truncated_answer_over_tcp() {
        let cancel = Cancel::new().unwrap();
        let (port, socket) = std::iter::repeat_with(|| std::net::TcpListener::bind("127.0.0.1:0").unwrap())
            .find_map(|port| {
                let socket = std::net::UdpSocket::bind(port.local_addr().unwrap()).ok()?;
                Some((port, socket))
            })
            .unwrap();
        let address = port.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let mut buffer = [0; 512];
            for _ in 0..2 {
                let (len, peer) = socket.recv_from(&mut buffer).unwrap();
                let mut answer = buffer[..len].to_vec();
                let is_four = buffer[len - 3] == A as u8;
                answer[2] |= 0x80 | if is_four { TRUNCATED } else { 0 };
                socket.send_to(&answer, peer).unwrap();
                if !is_four {
                    continue;
                }
                let (mut stream, _) = port.accept().unwrap();
                std::io::Read::read_exact(&mut stream, &mut buffer[..len + 2]).unwrap();
                let mut whole = buffer[2..len + 2].to_vec();
                (whole[2], whole[7]) = (0x81, 1);
                whole.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 0, 0, 9]);
                for piece in [&(whole.len() as u16).to_be_bytes()[..], &whole[..20], &whole[20..]] {
                    std::io::Write::write_all(&mut stream, piece).unwrap();
                }
            }
        });
        let servers = Servers { addresses: vec![address], search: Vec::new(), link: None, cancel: &cancel };
        let found = servers.look_up("seed.example.org", Duration::from_secs(20));
        server.join().unwrap();
        assert_eq!(found, [IpAddr::from([10, 0, 0, 9])]);
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let good = answer(7, A, &[10, 0, 0, 9]);
        for len in 0..good.len() {
            let _ = read_answer(&good[..len], 7, "seed.example.org", A);
        }
        for at in 0..good.len() {
            for value in [0, 1, 12, 0x3f, 0xc0, 0xff] {
                let mut changed = good.clone();
                changed[at] = value;
                let _ = read_answer(&changed, 7, "seed.example.org", A);
            }
        }
        assert_eq!(question(1, "a..b", A), None);
        assert_eq!(question(1, &"x".repeat(64), A), None);
    }
}
