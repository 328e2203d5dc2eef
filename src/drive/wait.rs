//! Waits for block devices to appear or change, by the kernel's events (uevents over netlink).
//!
//! The kernel sends them whether or not udev runs, after creating the device's node in /dev (devtmpfs).

use super::devices::{Places, attribute};
use crate::base::cancel::Cancel;
use crate::base::deadline::Deadline;
use crate::base::error::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recvfrom, socket_with, sockopt};
use std::path::PathBuf;

/// The multicast group of the kernel's own messages; udev's use another.
const KERNEL_GROUP: u32 = 1;
/// A receive buffer for the events of a thousand disks at once (about 500 bytes each, more by the kernel's
/// accounting).
const QUEUE: usize = 4 * 1024 * 1024;
/// The largest event, in bytes; the kernel's limit is 2 KiB of variables and a path.
const MAX_EVENT: usize = 8 * 1024;
/// How often the kernel polls a drive that does not report a medium by itself: udev's value, in milliseconds.
const MEDIUM_POLL: &str = "2000";

/// A change of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A block device has appeared, or it or its medium has changed. The kernel's name, as in
    /// /sys/class/block.
    Changed(String),
    /// A device has appeared for which a driver may be loaded.
    BlockDevice,
    /// Events were lost because too many came at once: look at all devices again.
    Lost,
}

/// A subscription to the kernel's events.
pub struct Watch {
    socket: OwnedFd,
    polled: Vec<(PathBuf, String)>,
}

impl Watch {
    /// Subscribes. Events from now on are not missed, so this is called before reading the current state.
    ///
    /// # Errors
    /// The kernel has no netlink, or this process may not use it.
    pub fn new() -> Result<Self> {
        let what = || "failed to subscribe to the kernel's device events";
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let protocol = Some(netlink::KOBJECT_UEVENT);
        let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, protocol).context(what)?;
        // Exceeds the system's limit if permitted. Otherwise events may be lost, which is reported.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, QUEUE)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, QUEUE));
        bind(&socket, &SocketAddrNetlink::new(0, KERNEL_GROUP)).context(what)?;
        Ok(Watch { socket, polled: Vec::new() })
    }

    /// The next event; None once the deadline has passed or `cancel` was cancelled. If the deadline has
    /// already passed, events that have already arrived are still returned.
    ///
    /// # Errors
    /// The socket fails, which it does not in normal use.
    pub fn next(&mut self, deadline: Deadline, cancel: Option<&Cancel>) -> Result<Option<Event>> {
        let mut buffer = [0; MAX_EVENT];
        loop {
            match recvfrom(&self.socket, &mut buffer, RecvFlags::DONTWAIT) {
                Ok((read, _, sender)) => {
                    let sender = sender.and_then(|address| SocketAddrNetlink::try_from(address).ok());
                    // Port 0 is the kernel's; another process could also send here.
                    if sender.is_some_and(|address| address.pid() == 0)
                        && let Some(event) = buffer.get(..read).and_then(parse)
                    {
                        return Ok(Some(event));
                    }
                }
                Err(Errno::AGAIN) => {
                    if !self.readable(deadline, cancel)? {
                        return Ok(None);
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::NOBUFS) => return Ok(Some(Event::Lost)),
                Err(e) => return Err(e).context(|| "failed to read the kernel's device events"),
            }
        }
    }

    /// Waits until there is something to read. Returns false if the deadline has passed or the wait was
    /// cancelled.
    fn readable(&self, deadline: Deadline, cancel: Option<&Cancel>) -> Result<bool> {
        loop {
            let left = deadline.left();
            if left.is_zero() {
                return Ok(false);
            }
            let timeout = Timespec::try_from(left).ok();
            let mut events = vec![PollFd::new(&self.socket, PollFlags::IN)];
            events.extend(cancel.map(|cancel| PollFd::new(cancel, PollFlags::IN)));
            match poll(&mut events, timeout.as_ref()) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(events.first().is_some_and(|socket| !socket.revents().is_empty())),
                Err(e) => return Err(e).context(|| "failed to wait for the kernel's device events"),
            }
        }
    }

    /// Makes the kernel poll the drive `name` for a medium until this is dropped. Without udev, which enables
    /// it, a new medium is not noticed. Does nothing if polling is already enabled.
    pub fn poll_medium(&mut self, places: &Places, name: &str) {
        let path = places.sys.join(name).join("events_poll_msecs");
        let default = attribute(&PathBuf::from("/sys/module/block/parameters/events_dfl_poll_msecs"));
        let Some(before) = attribute(&path) else { return };
        let off = before == "0" || (before == "-1" && default.is_none_or(|default| default == "0"));
        if off && std::fs::write(&path, MEDIUM_POLL).is_ok() {
            self.polled.push((path, before));
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for (path, before) in &self.polled {
            // The drive may be gone.
            let _ = std::fs::write(path, before);
        }
    }
}

/// Parses a kernel message: `ACTION@DEVPATH`, then `KEY=value`, each terminated by NUL. None unless it is
/// about a block device that exists, or about a device that has just appeared and needs a driver.
fn parse(message: &[u8]) -> Option<Event> {
    let mut fields = message.split(|b| *b == 0).map(|field| std::str::from_utf8(field).unwrap_or_default());
    let (action, path) = fields.next()?.split_once('@')?;
    if action == "add" && fields.clone().any(|field| field.starts_with("MODALIAS=")) {
        return Some(Event::BlockDevice);
    }
    if !matches!(action, "add" | "change" | "online" | "move") || !fields.any(|field| field == "SUBSYSTEM=block") {
        return None;
    }
    let name = path.rsplit('/').next().filter(|name| !name.is_empty())?;
    Some(Event::Changed(name.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn tells_block_devices_from_the_rest() {
        let message = |action: &str, subsystem: &str| {
            format!("{action}@/devices/pci0000:00/block/sr0\0ACTION={action}\0SUBSYSTEM={subsystem}\0DEVNAME=sr0\0")
        };
        assert_eq!(parse(message("add", "block").as_bytes()), Some(Event::Changed("sr0".into())));
        assert_eq!(parse(message("change", "block").as_bytes()), Some(Event::Changed("sr0".into())));
        assert_eq!(parse(message("remove", "block").as_bytes()), None);
        assert_eq!(parse(message("add", "net").as_bytes()), None);
        let scsi = |action: &str| parse(format!("{action}@/devices/1:0:0:0\0MODALIAS=scsi:t-0x05\0").as_bytes());
        assert_eq!((scsi("add"), scsi("remove")), (Some(Event::BlockDevice), None));
        for broken in [&b""[..], b"@", b"add@", b"add@/\0SUBSYSTEM=block", b"libudev\0\xfe\xed", b"add@/a/b"] {
            assert_eq!(parse(broken), None, "{broken:?}");
        }
        let valid = message("add", "block").into_bytes();
        crate::base::testing::mutations(&valid, 2000, |bytes| {
            // The name is the last component of the message's path.
            let Some(Event::Changed(name)) = parse(bytes) else { return };
            let mut fields = bytes.split(|byte| *byte == 0);
            assert!(!name.contains('/') && fields.any(|field| field.ends_with(name.as_bytes())), "{name}");
        });
    }

    /// The real kernel's events, asked for through sysfs: needs root and any block device.
    #[test]
    fn sees_the_kernels_events_and_keeps_the_deadline() {
        let mut watch = match Watch::new() {
            Ok(watch) => watch,
            Err(e) => return crate::base::testing::skip(e),
        };
        let start = Instant::now();
        let none = watch.next(Deadline::after(Duration::from_millis(100)), None);
        let waited = start.elapsed();
        if none == Ok(None) {
            assert!((Duration::from_millis(99)..Duration::from_secs(5)).contains(&waited), "{waited:?}");
        }
        let sys = std::path::Path::new("/sys/class/block");
        let devices = std::fs::read_dir(sys).into_iter().flatten().flatten();
        let name = devices.map(|entry| entry.file_name().into_string().unwrap()).find(|name| name.starts_with("loop"));
        let Some(name) = name else { return crate::base::testing::skip("no loop device") };
        if let Err(e) = std::fs::write(sys.join(&name).join("uevent"), "change") {
            return crate::base::testing::skip(format!("may not ask for an event: {e}"));
        }
        let deadline = Deadline::after(Duration::from_secs(5));
        let wanted = Event::Changed(name);
        loop {
            match watch.next(deadline, None).unwrap() {
                Some(event) if event == wanted => break,
                Some(_) => {}
                None => panic!("the kernel's event did not arrive"),
            }
        }
    }
}
