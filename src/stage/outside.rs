//! The modules' access to the machine besides the root: devices, names, memory, HTTP, the console.

use super::web;
use crate::base::cancel::Cancel;
use crate::base::deadline::Deadline;
use crate::base::error::Result;
use crate::drive::devices::{self, Places};
use crate::drive::search::{Probed, probe_all};
use crate::link::dns;
use crate::link::line::Line;
use crate::machine::beneath;
use crate::root::Root;
use crate::system::{Device, Nothing, Outside, Screen, WebRequest};
use rustix::fs::statvfs;
use std::cell::{OnceCell, RefCell};
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process;
use std::rc::Rc;
use std::time::Duration;

/// How long probing all devices may take.
const PROBE: Duration = Duration::from_secs(10);
/// How long a name may take to resolve.
const RESOLVE: Duration = Duration::from_secs(10);
/// Names that cannot exist (RFC 2606): addresses that a resolver returns for them are its answer to every
/// unknown name.
const UNKNOWN: [&str; 2] = ["does-not-exist.invalid.", "example.invalid."];

/// The system's console (console(4)), and how long it may take to show a text: a serial port of 9600 baud shows 28 KB meanwhile.
const CONSOLE: &str = "/dev/console";
const SHOW: Duration = Duration::from_secs(30);
/// The socket of the system's log (syslog(3)), and how long it may take a line.
const SYSTEM_LOG: &str = "/dev/log";
const TAKE_LINE: Duration = Duration::from_secs(1);

/// This machine. Its devices are probed when a module first asks, and again after one has changed them.
#[derive(Default)]
pub struct ThisMachine {
    devices: RefCell<Option<Rc<[Probed]>>>,
    /// The addresses that the resolver returns for names that do not exist.
    redirects: OnceCell<Vec<IpAddr>>,
}

impl ThisMachine {
    /// This machine, with no device probed yet.
    pub fn new() -> Self {
        Self::default()
    }

    fn devices(&self) -> Rc<[Probed]> {
        let look = || match devices::list(&Places::default()) {
            Ok(list) => probe_all(list, Deadline::after(PROBE), |_| false).into(),
            Err(e) => {
                log::warn!("{e}");
                Rc::from([])
            }
        };
        self.devices.borrow_mut().get_or_insert_with(look).clone()
    }

    fn find(&self, name: &str) -> Option<Probed> {
        self.devices().iter().find(|probed| probed.is_named(name)).cloned()
    }
}

impl Outside for ThisMachine {
    fn device(&self, name: &str) -> Option<Device> {
        if let Some(found) = self.find(name) {
            let path = found.device.node.display().to_string();
            return Some(Device { path, content: found.superblock().map(|s| s.kind.to_owned()) });
        }
        // udev's and the device mapper's names are links to a node.
        let found = self.find(devices::node_of(name)?.to_str()?)?;
        Some(Device { path: name.to_owned(), content: found.superblock().map(|s| s.kind.to_owned()) })
    }

    fn resolves(&self, host: &str) -> bool {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if bare.parse::<IpAddr>().is_ok() {
            return true;
        }
        let found = addresses(bare);
        let redirects = || self.redirects.get_or_init(|| UNKNOWN.iter().flat_map(|name| addresses(name)).collect());
        !found.is_empty() && !found.iter().any(|address| redirects().contains(address))
    }

    fn places(&self) -> Option<Places> {
        Some(Places::default())
    }

    fn devices_changed(&self) {
        self.devices.take();
    }

    fn memory(&self) -> Option<u64> {
        memory_of(Path::new("/"))
    }

    fn free_space(&self, folder: &str) -> Option<u64> {
        statvfs(folder).ok().map(|s| s.f_frsize.saturating_mul(s.f_bfree))
    }

    fn http(&self, request: &WebRequest, tries: u32) -> Result<Vec<u8>> {
        web::send(request, tries)
    }

    fn show(&self, screen: Screen, text: &str) -> bool {
        match screen {
            Screen::Stderr => std::io::stderr().write_all(text.as_bytes()).is_ok(),
            Screen::SystemLog => log_lines(Path::new(SYSTEM_LOG), text).is_ok(),
            // A stopped terminal accepts no data, nor does a serial port whose other end is not ready.
            Screen::Console => Line::terminal(Path::new(CONSOLE))
                .and_then(|mut c| c.send(text.as_bytes(), Deadline::after(SHOW)))
                .is_ok(),
        }
    }
}

/// Sends each line to the system's log at `socket` (RFC 3164, section 4.1; the log adds the time).
fn log_lines(socket: &Path, text: &str) -> std::io::Result<()> {
    const USER_INFO: u8 = 1 << 3 | 6;
    let log = UnixDatagram::unbound()?;
    log.connect(socket)?;
    log.set_write_timeout(Some(TAKE_LINE))?;
    text.lines().try_for_each(|line| {
        log.send(format!("<{USER_INFO}>cloud-init[{}]: {line}", process::id()).as_bytes()).map(drop)
    })
}

/// The addresses of a name by the system's resolver.
fn addresses(name: &str) -> Vec<IpAddr> {
    Cancel::new().map(|cancel| dns::of_system(name, RESOLVE, &cancel)).unwrap_or_default()
}

/// The machine's memory in bytes, by proc/meminfo below `root` (proc_meminfo(5)).
fn memory_of(root: &Path) -> Option<u64> {
    let text = beneath::read(root, "proc/meminfo")?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// What is outside of `root` for a stage of the real root: this machine, and for a folder nothing of it.
pub fn of(root: &Root) -> Box<dyn Outside> {
    if root.is_live() { Box::new(ThisMachine::new()) } else { Box::new(OfTree::new(root.path())) }
}

/// The machine of a tree that is planned or provisioned by hand, without a network. If the tree is `/`, this
/// is the machine itself; otherwise only the size of the memory is known, from the tree or from this machine.
pub struct OfTree {
    own: Option<ThisMachine>,
    memory: Option<u64>,
    is_provisioned: bool,
}

impl OfTree {
    /// The machine of the tree at `path`.
    pub fn new(path: &Path) -> OfTree {
        let own = path.canonicalize().is_ok_and(|p| p == Path::new("/"));
        let memory = memory_of(path).or_else(|| memory_of(Path::new("/")));
        OfTree { own: own.then(ThisMachine::new), memory, is_provisioned: false }
    }

    /// The machine of a tree in which the work of the instance's modules is done ([`Outside::is_provisioned`]).
    pub fn provisioned(path: &Path) -> OfTree {
        OfTree { is_provisioned: true, ..OfTree::new(path) }
    }
}

impl Outside for OfTree {
    fn device(&self, name: &str) -> Option<Device> {
        self.own.as_ref()?.device(name)
    }

    fn knows_devices(&self) -> bool {
        self.own.is_some()
    }

    fn is_provisioned(&self) -> bool {
        self.is_provisioned
    }

    fn places(&self) -> Option<Places> {
        self.own.as_ref()?.places()
    }

    fn memory(&self) -> Option<u64> {
        self.memory
    }

    fn free_space(&self, folder: &str) -> Option<u64> {
        self.own.as_ref()?.free_space(folder)
    }

    fn http(&self, request: &WebRequest, tries: u32) -> Result<Vec<u8>> {
        Nothing.http(request, tries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;

    #[test]
    fn address_needs_no_resolver_and_tree_has_none() {
        let machine = ThisMachine::new();
        assert_eq!(["127.0.0.1", "[::1]", "does-not-exist.invalid."].map(|h| machine.resolves(h)), [true, true, false]);
        let dir = TempDir::new("outside-names");
        assert!(!OfTree::new(&dir.0).resolves("127.0.0.1"));
    }

    #[test]
    fn each_line_is_one_system_log_message() {
        let dir = TempDir::new("outside-log");
        let socket = dir.0.join("log");
        assert!(log_lines(&socket, "a\n").is_err(), "there is no log");
        let system = UnixDatagram::bind(&socket).unwrap();
        system.set_nonblocking(true).unwrap();
        log_lines(&socket, "first line\nsecond\n").unwrap();
        let mut message = [0; 100];
        for expected in ["first line", "second"] {
            let length = system.recv(&mut message).unwrap();
            let text = String::from_utf8_lossy(&message[..length]);
            assert_eq!(text, format!("<14>cloud-init[{}]: {expected}", process::id()));
        }
        assert!(system.recv(&mut message).is_err());
    }

    #[test]
    fn tree_may_name_its_machines_memory() {
        let dir = TempDir::new("outside");
        dir.write("proc/meminfo", "MemFree: 1 kB\nMemTotal:        2048 kB\n");
        let tree = OfTree::new(&dir.0);
        assert_eq!((tree.memory(), tree.knows_devices()), (Some(2 << 20), false));
        dir.write("proc/meminfo", "MemTotal: 99999999999999999999 kB\n");
        assert_eq!(memory_of(&dir.0), None);
    }
}
