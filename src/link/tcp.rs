//! TCP for the HTTP client: bound to one link, with every wait ended by the deadline or a cancellation.

use crate::base::cancel::Cancel;
use crate::base::error::Error;
use rustix::event::PollFlags;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::cell::Cell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport, time};

/// Binds a socket to a link: several links may have routes to the same address, and each is tried.
///
/// # Errors
/// The kernel has no such link, or refuses.
pub fn bind_to_link(fd: &OwnedFd, link: &str) -> io::Result<()> {
    nix::sys::socket::setsockopt(fd, nix::sys::socket::sockopt::BindToDevice, &link.into()).map_err(io::Error::from)
}

/// The two addresses of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    pub local: SocketAddr,
    pub peer: SocketAddr,
}

thread_local! {
    /// The connection that this thread last read from. ureq's responses do not expose it, but ureq carries out a
    /// request on the calling thread.
    static ENDS: Cell<Option<Ends>> = const { Cell::new(None) };
}

/// Forgets the connections of earlier requests of this thread.
pub fn forget_ends() {
    ENDS.set(None);
}

/// The connection that this thread has read from since [`forget_ends`]. None if there was none, or over a
/// Unix socket.
pub fn last_ends() -> Option<Ends> {
    ENDS.get()
}

/// Opens connections: over one link, by the system's routes, or to a Unix socket.
#[derive(Debug)]
pub struct LinkConnector {
    pub link: Option<String>,
    /// A Unix stream socket to connect to, whatever the address.
    pub socket: Option<PathBuf>,
    /// The local TCP port. None: any.
    pub port: Option<u16>,
    pub cancel: Cancel,
    /// How long each address may take to answer.
    pub connect: Duration,
}

impl LinkConnector {
    /// Connects to `address`, within `budget`.
    pub fn open(&self, address: SocketAddr, budget: Duration) -> io::Result<OwnedFd> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        if let Some(link) = &self.link {
            bind_to_link(&fd, link)?;
        }
        rustix::net::sockopt::set_tcp_nodelay(&fd, true)?;
        if let Some(port) = self.port {
            // A recently closed connection from this port must not block it.
            rustix::net::sockopt::set_socket_reuseaddr(&fd, true)?;
            let any: IpAddr =
                if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            rustix::net::bind(&fd, &SocketAddr::new(any, port))?;
        }
        match rustix::net::connect(&fd, &address) {
            Ok(()) => return Ok(fd),
            Err(rustix::io::Errno::INPROGRESS) => {}
            Err(e) => return Err(e.into()),
        }
        self.cancel.wait_for(&fd, PollFlags::OUT, Some(budget))?;
        rustix::net::sockopt::socket_error(&fd)??;
        Ok(fd)
    }

    fn transport(&self, fd: OwnedFd, config: &ureq::config::Config) -> LinkTransport {
        let local = rustix::net::getsockname(&fd).ok().and_then(|name| SocketAddr::try_from(name).ok());
        let peer = rustix::net::getpeername(&fd).ok().flatten().and_then(|name| SocketAddr::try_from(name).ok());
        let ends = local.zip(peer).map(|(local, peer)| Ends { local, peer });
        let buffers = CountedBuffers::new(config);
        LinkTransport { fd, ends, buffers, cancel: self.cancel.clone() }
    }
}

/// Connects to the Unix stream socket at `path`, which accepts or refuses at once.
///
/// # Errors
/// Nothing listens there, or too many connections wait to be accepted.
pub fn open_unix(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&fd, &SocketAddrUnix::new(path)?)?;
    Ok(fd)
}

impl Connector<()> for LinkConnector {
    type Out = LinkTransport;

    fn connect(&self, details: &ConnectionDetails, _: Option<()>) -> Result<Option<LinkTransport>, ureq::Error> {
        if let Some(path) = &self.socket {
            return Ok(Some(self.transport(open_unix(path)?, details.config)));
        }
        let mut last = ureq::Error::HostNotFound;
        let whole = budget(details.timeout).map_or(self.connect, |b| b.min(self.connect));
        // Several addresses share the time, so that a dead one leaves some for the next.
        let each = whole / u32::try_from(details.addrs.len().max(1)).unwrap_or(1);
        for address in details.addrs.iter() {
            match self.open(*address, each) {
                Ok(fd) => return Ok(Some(self.transport(fd, details.config))),
                Err(e) => last = e.into(),
            }
        }
        Err(last)
    }
}

/// The most interim answers (1xx) before an answer: a server could send them without end.
const MAX_INTERIM: u32 = 20;
/// The error for more.
const TOO_MANY: &str = "more than 20 interim answers";

/// A connection's buffers. They count the interim answers that ureq takes out of them and drops.
pub struct CountedBuffers {
    inner: LazyBuffers,
    interim: u32,
}

impl CountedBuffers {
    pub fn new(config: &ureq::config::Config) -> CountedBuffers {
        CountedBuffers { inner: LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size()), interim: 0 }
    }

    /// Called as a request is sent.
    pub fn begin(&mut self) {
        self.interim = 0;
    }

    /// Called before more is read.
    ///
    /// # Errors
    /// There were too many interim answers.
    pub fn check(&self) -> Result<(), ureq::Error> {
        if self.interim > MAX_INTERIM { Err(ureq::Error::Other(Box::new(Error::new(TOO_MANY)))) } else { Ok(()) }
    }
}

impl Buffers for CountedBuffers {
    fn output(&mut self) -> &mut [u8] {
        self.inner.output()
    }

    fn input(&self) -> &[u8] {
        self.inner.input()
    }

    fn input_append_buf(&mut self) -> &mut [u8] {
        self.inner.input_append_buf()
    }

    fn tmp_and_output(&mut self) -> (&mut [u8], &mut [u8]) {
        self.inner.tmp_and_output()
    }

    fn input_appended(&mut self, amount: usize) {
        self.inner.input_appended(amount);
    }

    fn input_consume(&mut self, amount: usize) {
        let taken = self.inner.input().get(..amount).unwrap_or_default();
        self.interim +=
            u32::from(taken.starts_with(b"HTTP/1.") && taken.get(8..10) == Some(b" 1") && taken.ends_with(b"\r\n\r\n"));
        self.inner.input_consume(amount);
    }

    fn can_use_input(&self) -> bool {
        self.inner.can_use_input()
    }
}

/// A connection.
pub struct LinkTransport {
    fd: OwnedFd,
    ends: Option<Ends>,
    buffers: CountedBuffers,
    cancel: Cancel,
}

fn budget(timeout: NextTimeout) -> Option<Duration> {
    match timeout.after {
        time::Duration::NotHappening => None,
        time::Duration::Exact(left) => Some(left),
    }
}

impl LinkTransport {
    fn wait(&self, events: PollFlags, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.cancel.wait_for(&self.fd, events, budget(timeout)).map_err(|e| match e.kind() {
            io::ErrorKind::TimedOut => ureq::Error::Timeout(timeout.reason),
            _ => e.into(),
        })
    }
}

impl Transport for LinkTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        let mut at = 0;
        self.buffers.begin();
        while at < amount {
            let output = self.buffers.output().get(at..amount).unwrap_or_default();
            match rustix::net::send(&self.fd, output, SendFlags::NOSIGNAL) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(len) => at += len,
                Err(rustix::io::Errno::AGAIN) => self.wait(PollFlags::OUT, timeout)?,
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(io::Error::from(e).into()),
            }
        }
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.buffers.check()?;
        loop {
            let input = self.buffers.input_append_buf();
            match rustix::net::recv(&self.fd, input, RecvFlags::empty()) {
                Ok((len, _)) => {
                    ENDS.set(self.ends);
                    self.buffers.input_appended(len);
                    return Ok(len > 0);
                }
                Err(rustix::io::Errno::AGAIN) => self.wait(PollFlags::IN, timeout)?,
                Err(rustix::io::Errno::INTR) => {}
                // By its own kind of error ureq takes a reset for the end of a body without a length.
                Err(e @ rustix::io::Errno::CONNRESET) => return Err(io::Error::other(e).into()),
                Err(e) => return Err(io::Error::from(e).into()),
            }
        }
    }

    /// A kept connection is usable if the server has sent nothing since, not even a close.
    fn is_open(&mut self) -> bool {
        let mut byte = [0u8; 1];
        matches!(rustix::net::recv(&self.fd, &mut byte[..], RecvFlags::PEEK), Err(rustix::io::Errno::AGAIN))
    }
}

impl std::fmt::Debug for LinkTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkTransport").field("fd", &self.fd).finish()
    }
}
