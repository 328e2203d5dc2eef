//! How an OVF environment is recognised.

use crate::detect::{Facts, Filesystem, Finding, virt};
use crate::machine::{Machine, beneath};
use crate::source::azure;
use std::io::Read;

/// Labels of a CD-ROM with an environment, compared without case.
pub const LABELS: &[&str] = &["OVF-TRANSPORT", "OVFENV", "OVF ENV"];

/// Rules out machines that are not virtual, and those of Azure, whose drive looks like an OVF environment.
pub fn ruled_out(facts: &Facts) -> Option<String> {
    if facts.platform.virt == virt::NONE {
        return Some("the machine is not virtual".into());
    }
    azure::is_machine(facts).then(|| "the machine is Azure's".into())
}

/// Recognises an OVF environment in VMware's guestinfo or on a CD-ROM.
pub fn mark(facts: &Facts) -> Option<Finding> {
    let guestinfo = facts.platform.guestinfo.as_ref().filter(|_| facts.platform.virt == virt::VMWARE);
    let environment = guestinfo.and_then(|g| g.get("ovfEnv"));
    if environment.is_some_and(|text| text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("<?xml"))) {
        return Finding::found("guestinfo has ovfEnv");
    }
    let found = facts.filesystems().iter().find(|fs| is_cdrom(fs) && has_environment(facts.machine, fs))?;
    Finding::found(format!("{} is an OVF environment", found.device))
}

/// Whether a file system is on a CD-ROM, by the drive's name.
fn is_cdrom(fs: &Filesystem) -> bool {
    let name = fs.device.strip_prefix("/dev/").unwrap_or_default();
    let one_more = |prefix: &str, kind: fn(&u8) -> bool| {
        name.strip_prefix(prefix).is_some_and(|rest| rest.len() == 1 && rest.as_bytes().iter().all(kind))
    };
    one_more("sr", u8::is_ascii_digit) || one_more("hd", u8::is_ascii_lowercase)
}

/// Whether a file system is on a drive that cloud-init considers a CD-ROM, including those of Xen.
pub fn is_drive(fs: &Filesystem) -> bool {
    is_cdrom(fs) || ["/dev/sr", "/dev/xvd"].iter().any(|start| fs.device.starts_with(start))
}

/// Whether a file system has an OVF label, or is small and contains the schema's name.
pub fn has_environment(machine: &Machine, fs: &Filesystem) -> bool {
    const OTHERS: [&str; 2] = ["config-2", "cidata"];
    /// The prefix of the label of Azure's drive.
    const AZURE: &str = "rd_rdfe_stable";
    const SCHEMA: &[u8] = b"http://schemas.dmtf.org/ovf/environment/1";
    /// In sectors of 512 bytes: 10 MiB.
    const TOO_LARGE: u64 = 10 * 2048;
    let Some(name) = fs.device.strip_prefix("/dev/").filter(|_| fs.kind == "iso9660") else { return false };
    let labels: Vec<String> = fs.labels.iter().map(|l| l.to_ascii_lowercase()).collect();
    let any = |known: &[&str]| labels.iter().any(|l| known.iter().any(|k| l.eq_ignore_ascii_case(k)));
    if any(LABELS) {
        return true;
    }
    if any(&OTHERS) || labels.iter().any(|l| l.starts_with(AZURE)) {
        return false;
    }
    let size = machine.fact(&format!("sys/class/block/{name}/size"));
    if size.and_then(|s| s.trim().parse::<u64>().ok()).is_none_or(|s| s >= TOO_LARGE) {
        return false;
    }
    let device = beneath::block_device(&machine.base, &fs.device);
    device.is_some_and(|device| contains(device.take(TOO_LARGE * 512), SCHEMA))
}

/// Whether a stream contains the text, ignoring case.
fn contains(mut from: impl Read, text: &[u8]) -> bool {
    let mut buffer = vec![0; 64 << 10];
    let mut kept = 0;
    loop {
        let Some(space) = buffer.get_mut(kept..) else { return false };
        let read = match from.read(space) {
            Ok(0) | Err(_) => return false,
            Ok(n) => kept + n,
        };
        let Some(bytes) = buffer.get(..read) else { return false };
        if bytes.windows(text.len()).any(|w| w.eq_ignore_ascii_case(text)) {
            return true;
        }
        // The text may continue in the next chunk.
        let keep = read.min(text.len() - 1);
        buffer.copy_within(read - keep..read, 0);
        kept = keep;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_across_pieces() {
        let mut bytes = vec![b'x'; (64 << 10) - 3];
        bytes.extend_from_slice(b"NeedLe and more");
        assert!(contains(&bytes[..], b"needle"));
        assert!(!contains(&bytes[..], b"needles"));
        assert!(!contains(&b""[..], b"needle"));
    }
}
