//! A byte stream to the hypervisor or its host, with limits on time and size: a serial port, a Unix socket,
//! or a VM socket.

use super::tcp::open_unix;
use crate::base::deadline::Deadline;
use crate::base::error::{Context, Error, Result};
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, VsockAddr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use std::fmt::Display;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// The address of the hypervisor (vsock(7), VMADDR_CID_HYPERVISOR).
const HYPERVISOR: u32 = 0;
/// Ports that only root can bind; each is tried.
const PRIVILEGED: std::ops::RangeInclusive<u32> = 1016..=1023;
/// How many bytes are read at once.
const PIECE: usize = 4096;

/// An open stream.
pub struct Line {
    fd: OwnedFd,
    /// Received bytes that were not returned yet.
    read: Vec<u8>,
    /// The name in messages.
    name: String,
}

impl Line {
    /// Whether something is at the path of a serial port or a socket, which may be a link to a device.
    pub fn is_there(path: &Path) -> bool {
        path.exists()
    }

    /// Opens a serial port in raw mode. No other program may use it at the same time.
    ///
    /// # Errors
    /// It does not exist, is not a serial port, or another program uses it.
    pub fn serial(path: &Path) -> Result<Line> {
        let what = || format!("failed to open the serial port {}", path.display());
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).context(what)?;
        let mut settings = tcgetattr(&fd).context(what)?;
        rustix::fs::fcntl_lock(&fd, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| Error::new("another program uses it"))
            .context(what)?;
        settings.make_raw();
        tcsetattr(&fd, OptionalActions::Now, &settings).context(what)?;
        Ok(Line::new(fd, path.display()))
    }

    /// Opens a terminal to write to it. Its settings stay, and other programs may use it at the same time.
    ///
    /// # Errors
    ///
    /// It is not there.
    pub fn terminal(path: &Path) -> Result<Line> {
        let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd =
            rustix::fs::open(path, flags, Mode::empty()).context(|| format!("failed to open {}", path.display()))?;
        Ok(Line::new(fd, path.display()))
    }

    /// Connects to a Unix stream socket.
    ///
    /// # Errors
    /// Nothing listens there.
    pub fn unix(path: &Path) -> Result<Line> {
        let what = || format!("failed to connect to {}", path.display());
        Ok(Line::new(open_unix(path).context(what)?, path.display()))
    }

    /// Connects to a port of the hypervisor, from a privileged port. The kernel gives up after 2 seconds
    /// (vsock(7)).
    ///
    /// # Errors
    /// The kernel has no VM sockets, or nothing listens there.
    pub fn hypervisor(port: u32) -> Result<Line> {
        const ANY: u32 = u32::MAX;
        let what = || format!("failed to connect to the hypervisor's port {port}");
        for own in PRIVILEGED.rev() {
            let fd = socket::socket(AddressFamily::Vsock, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)
                .map_err(io::Error::from)
                .context(what)?;
            match socket::bind(fd.as_raw_fd(), &VsockAddr::new(ANY, own)) {
                // Another program uses the port.
                Err(nix::errno::Errno::EADDRINUSE) => continue,
                bound => bound.map_err(io::Error::from).context(what)?,
            }
            match socket::connect(fd.as_raw_fd(), &VsockAddr::new(HYPERVISOR, port)) {
                // The host has not given up an earlier connection from this port.
                Err(nix::errno::Errno::ECONNRESET) => continue,
                connected => connected.map_err(io::Error::from).context(what)?,
            }
            rustix::io::ioctl_fionbio(&fd, true).context(what)?;
            return Ok(Line::new(fd, format_args!("the hypervisor's port {port}")));
        }
        Err(Error::new("no port is free")).context(what)
    }

    fn new(fd: OwnedFd, name: impl Display) -> Line {
        Line { fd, read: Vec::new(), name: name.to_string() }
    }

    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// The deadline passes, or the other end has closed the stream.
    pub fn send(&mut self, bytes: &[u8], deadline: Deadline) -> Result<()> {
        let mut left = bytes;
        while !left.is_empty() {
            match rustix::io::write(&self.fd, left) {
                Ok(written) => left = left.get(written..).unwrap_or_default(),
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, deadline)?,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e).context(|| format!("failed to write to {}", self.name)),
            }
        }
        Ok(())
    }

    /// Reads a line of at most `limit` bytes, and returns it without its end.
    ///
    /// # Errors
    /// The deadline passes, the line is longer, or the other end has closed the stream.
    pub fn line(&mut self, limit: usize, deadline: Deadline) -> Result<Vec<u8>> {
        let mut searched = 0;
        loop {
            let unseen = self.read.get(searched..).unwrap_or_default();
            if let Some(at) = unseen.iter().position(|b| *b == b'\n') {
                let mut line: Vec<u8> = self.read.drain(..=searched + at).collect();
                line.pop();
                return Ok(line);
            }
            searched = self.read.len();
            self.fill(limit, deadline)?;
        }
    }

    /// Reads exactly `count` bytes.
    ///
    /// # Errors
    /// The deadline passes, or the other end has closed the stream.
    pub fn exactly(&mut self, count: usize, deadline: Deadline) -> Result<Vec<u8>> {
        while self.read.len() < count {
            self.fill(count, deadline)?;
        }
        Ok(self.read.drain(..count).collect())
    }

    /// Discards what arrives, until nothing more does until `quiet`.
    pub fn drop_pending(&mut self, limit: usize, quiet: Deadline) {
        while self.fill(limit, quiet).is_ok() {
            self.read.clear();
        }
        self.read.clear();
    }

    /// Reads more.
    fn fill(&mut self, limit: usize, deadline: Deadline) -> Result<()> {
        if self.read.len() >= limit {
            return Err(Error::new(format!("{}: expected at most {limit} bytes", self.name)));
        }
        let mut piece = [0; PIECE];
        loop {
            match rustix::io::read(&self.fd, &mut piece) {
                Ok(0) => return Err(Error::new(format!("{}: the other end is gone", self.name))),
                Ok(read) => {
                    self.read.extend_from_slice(piece.get(..read).unwrap_or_default());
                    return Ok(());
                }
                Err(Errno::AGAIN) => self.wait(PollFlags::IN, deadline)?,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e).context(|| format!("failed to read from {}", self.name)),
            }
        }
    }

    fn wait(&self, events: PollFlags, deadline: Deadline) -> Result<()> {
        loop {
            let left = deadline.left();
            if left.is_zero() {
                return Err(Error::new(format!("{} does not answer in time", self.name)));
            }
            match poll(&mut [PollFd::new(&self.fd, events)], Timespec::try_from(left).ok().as_ref()) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(e) => return Err(e).context(|| format!("failed to wait for {}", self.name)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;
    use std::time::{Duration, Instant};

    fn soon() -> Deadline {
        Deadline::after(Duration::from_millis(100))
    }

    /// For data that has already arrived, however busy the machine is.
    fn later() -> Deadline {
        Deadline::after(Duration::from_secs(60))
    }

    #[test]
    fn lines_and_bytes_of_a_socket() {
        let dir = TempDir::new("line");
        let path = dir.0.join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let mut line = Line::unix(&path).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        other.write_all(b"one\ntwo\nabcd").unwrap();
        assert_eq!(line.line(100, later()).unwrap(), b"one");
        assert_eq!(line.line(100, later()).unwrap(), b"two");
        assert_eq!(line.exactly(3, later()).unwrap(), b"abc");
        line.send(b"hello", later()).unwrap();
        let mut got = [0; 5];
        other.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"hello");
        let started = Instant::now();
        assert!(line.line(100, soon()).unwrap_err().to_string().ends_with("does not answer in time"));
        assert!(started.elapsed() < Duration::from_secs(30));
        other.write_all(&[b'x'; 300]).unwrap();
        assert!(line.line(200, later()).unwrap_err().to_string().ends_with("expected at most 200 bytes"));
        line.drop_pending(1 << 20, soon());
        drop(other);
        assert!(line.exactly(1, later()).unwrap_err().to_string().ends_with("the other end is gone"));
        assert!(Line::unix(&dir.0.join("none")).is_err());
    }

    #[test]
    fn a_socket_that_accepts_nobody_is_no_wait() {
        let dir = TempDir::new("line");
        let path = dir.0.join("socket");
        let flags = rustix::net::SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, flags, None);
        let socket = socket.unwrap();
        rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&socket, 0).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let lines: Vec<_> = (0..3).map(|_| Line::unix(&path)).collect();
            let _ = sender.send(lines.iter().any(Result::is_err));
        });
        assert!(receiver.recv_timeout(Duration::from_secs(10)).unwrap());
    }

    #[test]
    fn a_terminal_that_nobody_reads_is_given_up() {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let pty = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&pty).and_then(|()| unlockpt(&pty)).unwrap();
        let name = ptsname(&pty, Vec::new()).unwrap().into_string().unwrap();
        let mut terminal = Line::terminal(Path::new(&name)).unwrap();
        terminal.send(b"key\n", later()).unwrap();
        let mut shown = [0; 4];
        rustix::io::read(&pty, &mut shown).unwrap();
        assert_eq!(&shown, b"key\r");
        let started = Instant::now();
        let error = terminal.send(&[b'x'; 1 << 20], soon()).unwrap_err().to_string();
        assert!(error.ends_with("does not answer in time") && started.elapsed() < Duration::from_secs(30), "{error}");
    }

    #[test]
    fn a_file_is_no_serial_port() {
        let dir = TempDir::new("line");
        let path = dir.0.join("ttyS1");
        std::fs::write(&path, "x").unwrap();
        let error = Line::serial(&path).err().unwrap().to_string();
        assert!(error.starts_with("failed to open the serial port ") && error.contains("ttyS1: "), "{error}");
    }
}
