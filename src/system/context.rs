//! The context in which a module runs.

use crate::base::error::Result;
use crate::base::problem::Problems;
use crate::document::{Map, Value, wrong};
use crate::drive::devices::Places;
use crate::instance::Instance;
use crate::machine::Distro;
use crate::root::Root;

/// The context in which a module runs.
pub struct ModuleContext<'a> {
    pub root: &'a mut Root,
    /// The whole merged cloud-config.
    pub config: &'a Value,
    pub instance: &'a Instance,
    pub distro: &'a Distro,
    /// Arguments in the module's list entry (`[name, frequency, args…]`).
    pub args: &'a [String],
    pub outside: &'a dyn Outside,
    /// Whether this is the file half's second run in this boot, because the user's early commands changed
    /// something that it had read.
    pub again: bool,
    /// An earlier run provisioned this instance, and not all of it could be written.
    pub retried: bool,
    /// Where a module reports what it ignored or replaced.
    pub report: &'a Problems,
    /// The random passwords that the module printed on the console, by user: a source may report them to its
    /// service.
    pub shown: Vec<(String, String)>,
}

/// The modules' access to the machine besides the root. A stage passes the real machine, a test a fake one.
pub trait Outside {
    /// The block device with this name: a path below `/dev`, or `LABEL=`, `UUID=`, `PARTLABEL=`,
    /// `PARTUUID=` or `TYPE=` with a value.
    fn device(&self, name: &str) -> Option<Device>;

    /// Whether the machine's devices can be examined. Not if a tree is provisioned for another machine.
    fn knows_devices(&self) -> bool {
        true
    }

    /// Whether the modules' work is there already, and is only compared: a user of the document's may be one that it has made.
    fn is_provisioned(&self) -> bool {
        false
    }

    /// Whether a host has an address: the resolver knows the name, or it is an address.
    fn resolves(&self, _host: &str) -> bool {
        false
    }

    /// Where the machine's block devices are, for changing them. None if they are another machine's.
    fn places(&self) -> Option<Places> {
        None
    }

    /// Invalidates the cached contents of devices: [`Outside::device`] reads them again.
    fn devices_changed(&self) {}

    /// The machine's memory, in bytes.
    fn memory(&self) -> Option<u64>;

    /// The free space on the file system of a folder in the running system, in bytes.
    fn free_space(&self, _folder: &str) -> Option<u64> {
        None
    }

    /// Sends an HTTP request up to `tries` times, and returns the body of a successful response.
    fn http(&self, request: &WebRequest, tries: u32) -> Result<Vec<u8>>;

    /// Shows text to people at the machine, and puts it nowhere else. Returns false if there is no such
    /// screen. On a machine that is not running nothing is shown, which is true.
    fn show(&self, _screen: Screen, _text: &str) -> bool {
        true
    }
}

/// Where text is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Screen {
    /// The system's console, /dev/console.
    Console,
    /// This process's standard error.
    Stderr,
    /// The system's log, as messages of `cloud-init` at the priority user.info, one for each line.
    SystemLog,
}

/// A block device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// `/dev/vdb1`.
    pub path: String,
    /// The file system or other content according to its superblock: `ext4`, `swap`, `crypto_LUKS`. None if
    /// there is no known one.
    pub content: Option<String>,
}

/// An HTTP request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebRequest {
    pub method: &'static str,
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The largest accepted body, in bytes.
    pub limit: usize,
}

/// A machine without devices and network, as in a plan for another machine.
pub struct Nothing;

impl Outside for Nothing {
    fn device(&self, _name: &str) -> Option<Device> {
        None
    }

    fn memory(&self) -> Option<u64> {
        None
    }

    fn http(&self, request: &WebRequest, _tries: u32) -> Result<Vec<u8>> {
        Err(crate::base::error::Error::new(format!(
            "failed to {} {}: there is no network here",
            request.method, request.url
        )))
    }
}

impl<'a> ModuleContext<'a> {
    /// The context of a module without arguments, on an unknown machine ([`Nothing`]).
    pub fn new(
        root: &'a mut Root,
        config: &'a Value,
        instance: &'a Instance,
        distro: &'a Distro,
        report: &'a Problems,
    ) -> Self {
        ModuleContext {
            root,
            config,
            instance,
            distro,
            report,
            args: &[],
            outside: &Nothing,
            again: false,
            retried: false,
            shown: Vec::new(),
        }
    }

    /// The value of a top-level key; null is treated as absent.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.config.get(key).filter(|v| !v.is_null())
    }

    /// Whether a top-level key is true; `default` if it is absent (`util.get_cfg_option_bool`).
    pub fn flag(&self, key: &str, default: bool) -> bool {
        self.get(key).map_or(default, Value::is_true)
    }

    /// The text of a top-level key.
    pub fn text(&self, key: &str) -> Option<String> {
        self.get(key).and_then(Value::text)
    }

    /// The mapping of a top-level key; anything else is reported and ignored.
    pub fn map(&mut self, key: &str) -> Option<&'a Map> {
        let value = self.get(key)?;
        if value.as_map().is_none() {
            self.report.warn(format_args!("cloud-config: {}", wrong(key, "a mapping", value)));
        }
        value.as_map()
    }

    /// The folder of this instance's state.
    pub fn instance_dir(&self) -> String {
        format!("/var/lib/cloud/instances/{}", self.instance.folder())
    }
}
