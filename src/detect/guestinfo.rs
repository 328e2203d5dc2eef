//! VMware's guestinfo: values that the hypervisor keeps for a machine, asked for with VMware's tools.
//!
//! Only in the running system, where the tools are; before the pivot nothing is run.

use crate::root::Root;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long the tools may take for one value.
const LIMIT: Duration = Duration::from_secs(5);
/// How much of a value is read: enough to tell that there is one.
const START: u64 = 4096;

/// Asks for the value of a key; None where there is none.
type Ask = dyn Fn(&str) -> Option<String>;

/// The values of one machine.
pub struct Guestinfo(Box<Ask>);

impl Guestinfo {
    /// Values from `ask`.
    pub fn new(ask: impl Fn(&str) -> Option<String> + 'static) -> Guestinfo {
        Guestinfo(Box::new(ask))
    }

    /// Those of the running system, by the first of VMware's tools that is there.
    pub fn of(root: &Root) -> Option<Guestinfo> {
        if !root.is_live() {
            return None;
        }
        let rpctool = root.which("vmware-rpctool").map(|path| vec![path]);
        let command = rpctool.or_else(|| root.which("vmtoolsd").map(|path| vec![path, "--cmd".into()]))?;
        Some(Guestinfo::new(move |key| run(&command, key)))
    }

    /// The start of the value of `guestinfo.KEY`.
    pub fn get(&self, key: &str) -> Option<String> {
        (self.0)(key).filter(|v| v.contains(|c: char| c.is_ascii_alphanumeric()))
    }
}

fn run(command: &[String], key: &str) -> Option<String> {
    let (program, arguments) = command.split_first()?;
    let mut child = Command::new(program)
        .args(arguments)
        .arg(format!("info-get guestinfo.{key}"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let output = child.stdout.take()?;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = output.take(START).read_to_end(&mut bytes);
        let _ = sender.send(read.map(|_| bytes));
    });
    let read = receiver.recv_timeout(LIMIT).ok().and_then(|r| r.ok());
    // It has said all that counts; where it has not, it is not waited for.
    let _ = child.kill();
    let _ = child.wait();
    read.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}
