//! VMware's guestinfo: values that the hypervisor stores for a machine.
//!
//! In the running system, VMware's tools are run if they are installed. Otherwise, and before the pivot, the
//! hypervisor is asked over its VM socket for remote calls, as by open-vm-tools
//! (lib/rpcChannel/vsockChannel.c; packets as in lib/dataMap). The older I/O port needs inline assembly, and
//! the kernel has no file for it.

use crate::base::deadline::Deadline;
use crate::base::error::{Error, Result};
use crate::link::line::Line;
use crate::machine::{Machine, Tools};
use crate::root::{Root, installed};
use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

/// How long one value may take.
const LIMIT: Duration = Duration::from_secs(5);
/// The longest packet, in bytes.
const MAX_PACKET: usize = 8 << 20;
/// The hypervisor's port for remote calls (GUESTRPC_RPCI_VSOCK_LISTEN_PORT).
const PORT: u32 = 976;

/// Returns the value of a key, if there is one.
type Ask = dyn Fn(&str) -> Option<String>;

/// The values of one machine.
pub struct Guestinfo(Box<Ask>);

impl Guestinfo {
    /// Values from `ask`.
    pub fn new(ask: impl Fn(&str) -> Option<String> + 'static) -> Guestinfo {
        Guestinfo(Box::new(ask))
    }

    /// The values of `machine`: by VMware's tools if `tools` can be run and one of them is installed, else
    /// over the hypervisor's socket.
    pub fn of(machine: &Machine, root: &Root, tools: &Tools) -> Option<Guestinfo> {
        let commands = Guestinfo::commands(root);
        if tools.can_run() && !commands.is_empty() {
            let tools = tools.clone();
            return Some(Guestinfo::new(move |key| by_tools(&tools, &commands, key)));
        }
        if machine.base != Path::new("/") || root.is_plan() {
            return None;
        }
        let line = Line::hypervisor(PORT).inspect_err(|e| log::debug!("guestinfo: {e}")).ok()?;
        Some(Guestinfo::over(line, LIMIT))
    }

    /// The commands of VMware's tools that a call can be appended to, the preferred one first.
    pub fn commands(root: &Root) -> Vec<Vec<String>> {
        let rpctool = installed::which(root, "vmware-rpctool").map(|path| vec![path]);
        let vmtoolsd = installed::which(root, "vmtoolsd").map(|path| vec![path, "--cmd".into()]);
        rpctool.into_iter().chain(vmtoolsd).collect()
    }

    /// The values of the hypervisor at the other end of `line`, each within `limit`.
    fn over(line: Line, limit: Duration) -> Guestinfo {
        let line = RefCell::new(Some(line));
        Guestinfo::new(move |key| {
            let mut line = line.borrow_mut();
            let answer = call(line.as_mut()?, &request(key), Deadline::after(limit));
            answer.unwrap_or_else(|e| {
                log::debug!("guestinfo.{key}: {e}");
                // The answer may still come, and would be taken for that to the next request.
                *line = None;
                None
            })
        })
    }

    /// The value of `guestinfo.KEY`. None if it has no letter or digit.
    pub fn get(&self, key: &str) -> Option<String> {
        (self.0)(key).filter(|v| v.contains(|c: char| c.is_ascii_alphanumeric()))
    }
}

fn request(key: &str) -> String {
    format!("info-get guestinfo.{key}")
}

/// The output of the first tool that succeeds.
fn by_tools(tools: &Tools, commands: &[Vec<String>], key: &str) -> Option<String> {
    let request = request(key);
    let answer = commands.iter().find_map(|tool| {
        let words: Vec<&str> = tool.iter().map(String::as_str).chain([request.as_str()]).collect();
        tools.ask(&words, LIMIT).filter(|answer| answer.success)
    });
    Some(String::from_utf8_lossy(&answer?.stdout).into_owned())
}

/// Types and keys of a packet's fields.
const INT: u32 = 1;
const STRING: u32 = 2;
const KIND: u32 = 1;
const PAYLOAD: u32 = 2;
/// The type of a packet with a request or a response; the lower half first.
const DATA: [u32; 2] = [1, 0];

/// The response to a remote call. None if the call fails, as for a value that does not exist.
fn call(line: &mut Line, request: &str, deadline: Deadline) -> Result<Option<String>> {
    line.send(&packet(request.as_bytes())?, deadline)?;
    let length = line.exactly(4, deadline)?;
    let length = number(&length).filter(|n| *n <= MAX_PACKET).ok_or_else(|| Error::new("a packet is too long"))?;
    let answer = payload(&line.exactly(length, deadline)?).ok_or_else(|| Error::new("a packet is not valid"))?;
    match answer.split_at_checked(2) {
        Some((b"1 ", value)) => Ok(Some(String::from_utf8_lossy(value).into_owned())),
        Some((b"0 ", _)) => Ok(None),
        _ => Err(Error::new("an answer is not valid")),
    }
}

/// A packet with a request, preceded by its length.
fn packet(request: &[u8]) -> Result<Vec<u8>> {
    let length = u32::try_from(request.len()).map_err(|_| Error::new("the request is too long"))?;
    let mut bytes = Vec::new();
    let fields = [INT, KIND, DATA[0], DATA[1], STRING, PAYLOAD, length];
    let all = length + u32::try_from(size_of_val(&fields)).unwrap_or_default();
    [all].iter().chain(&fields).for_each(|n| bytes.extend(n.to_be_bytes()));
    bytes.extend_from_slice(request);
    Ok(bytes)
}

/// The payload in a packet's fields. None if the packet is invalid.
fn payload(mut packet: &[u8]) -> Option<Vec<u8>> {
    while !packet.is_empty() {
        let (kind, rest) = packet.split_at_checked(4)?;
        let (key, rest) = rest.split_at_checked(4)?;
        packet = match number(kind)? as u32 {
            INT => rest.get(8..)?,
            STRING => {
                let (length, rest) = rest.split_at_checked(4)?;
                let (text, rest) = rest.split_at_checked(number(length)?)?;
                if number(key)? as u32 == PAYLOAD {
                    return Some(text.to_vec());
                }
                rest
            }
            _ => return None,
        };
    }
    None
}

fn number(bytes: &[u8]) -> Option<usize> {
    usize::try_from(u32::from_be_bytes(bytes.try_into().ok()?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::machine::tools::ToolAnswer;
    use crate::root::{Attr, Use};
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    #[test]
    fn asks_the_second_tool_if_the_first_fails() {
        let dir = TempDir::new("guestinfo");
        let mut root = dir.root(Use::Tree);
        let machine = dir.machine();
        for tool in ["vmware-rpctool", "vmtoolsd"] {
            root.write(&format!("/usr/bin/{tool}"), "", Attr::root(0o755)).unwrap();
        }
        let tools = Tools::new(|words, _| match words {
            ["/usr/bin/vmtoolsd", "--cmd", "info-get guestinfo.metadata"] => {
                Some(ToolAnswer { success: true, stdout: b"instance-id: i\n".to_vec() })
            }
            ["/usr/bin/vmtoolsd", "--cmd", "info-get guestinfo.userdata"] => {
                Some(ToolAnswer { success: true, stdout: b"--- \n".to_vec() })
            }
            _ => Some(ToolAnswer::default()),
        });
        let guestinfo = Guestinfo::of(&machine, &root, &tools).unwrap();
        assert_eq!(guestinfo.get("metadata").as_deref(), Some("instance-id: i\n"));
        assert_eq!((guestinfo.get("userdata"), guestinfo.get("vendordata")), (None, None));
        assert!(Guestinfo::of(&machine, &root, &Tools::none()).is_none());
    }

    #[test]
    fn late_value_is_not_attributed_to_another_key() {
        let dir = TempDir::new("guestinfo");
        let listener = UnixListener::bind(dir.0.join("rpci")).unwrap();
        let guestinfo = Guestinfo::over(Line::unix(&dir.0.join("rpci")).unwrap(), Duration::from_millis(50));
        let (mut other, _) = listener.accept().unwrap();
        assert_eq!(guestinfo.get("metadata"), None);
        // Nobody may read it any more.
        let _ = other.write_all(&packet(b"1 instance-id: i").unwrap());
        assert_eq!(guestinfo.get("userdata"), None);
    }

    #[test]
    fn remote_calls() {
        let dir = TempDir::new("guestinfo");
        let listener = UnixListener::bind(dir.0.join("rpci")).unwrap();
        let mut line = Line::unix(&dir.0.join("rpci")).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        let mut ask = |answer: &[u8]| {
            other.write_all(&packet(answer).unwrap()).unwrap();
            let got = call(&mut line, "info-get guestinfo.x", Deadline::after(LIMIT));
            let mut sent = [0; 32 + 20];
            other.read_exact(&mut sent).unwrap();
            assert_eq!(&sent[..8], b"\0\0\0\x30\0\0\0\x01");
            assert_eq!(&sent[32..], b"info-get guestinfo.x");
            got
        };
        assert_eq!(ask(b"1 a value"), Ok(Some("a value".into())));
        assert_eq!(ask(b"0 No value found"), Ok(None));
        assert!(ask(b"2").is_err());
        for broken in [&b""[..], b"\0\0\0\x01", b"\0\0\0\x02\0\0\0\x02\0\0\xff\xffx", b"\0\0\0\x09\0\0\0\x02"] {
            assert_eq!(payload(broken), None);
        }
    }
}
