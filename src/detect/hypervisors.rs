//! Sources that a hypervisor or the system around a container offers: LXD, VMware, OVF, WSL.

use super::Finding;
use super::facts::{Facts, Filesystem, MAX_ENTRIES};
use super::marks::matches;
use super::table::AZURE_TAG;
use super::virt;
use crate::document::Value;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

/// LXD's socket in a container, its virtio port in a virtual machine.
pub fn lxd(facts: &Facts) -> Option<Finding> {
    const SOCKET: &str = "dev/lxd/sock";
    const PORTS: &str = "sys/class/virtio-ports";
    const NAMES: [&str; 2] = ["com.canonical.lxd", "org.linuxcontainers.lxd"];
    let socket = std::fs::metadata(facts.machine.base.join(SOCKET)).is_ok_and(|m| m.file_type().is_socket());
    if socket {
        return Finding::found(format!("/{SOCKET} is there"));
    }
    if !virt::is_qemu(&facts.platform.virt) {
        return None;
    }
    let names = facts.entries(PORTS).into_iter().filter_map(|p| facts.machine.fact(&format!("{PORTS}/{p}/name")));
    let name = names.map(|n| n.trim().to_owned()).find(|n| NAMES.contains(&n.as_str()))?;
    Finding::found(format!("there is a virtio port named {name}"))
}

/// VMware: variables of a container, guestinfo, or guest customization where the image switches it on.
pub fn vmware(facts: &Facts) -> Option<Finding> {
    const KEYS: [&str; 3] = ["metadata", "userdata", "vendordata"];
    let variable = |key: &&str| facts.variable(&format!("VMX_GUESTINFO_{}", key.to_ascii_uppercase())).is_some();
    if facts.variable("VMX_GUESTINFO").is_some()
        && let Some(key) = KEYS.iter().find(|key| variable(key))
    {
        return Finding::found(format!("VMX_GUESTINFO and its {key} are in the environment"));
    }
    let guestinfo = facts.platform.guestinfo.as_ref().filter(|_| facts.platform.virt == virt::VMWARE)?;
    if let Some(key) = KEYS.iter().find(|key| guestinfo.get(key).is_some()) {
        return Finding::found(format!("guestinfo has {key}"));
    }
    if !facts.own.get("disable_vmware_customization").is_some_and(Value::is_false) {
        return None;
    }
    let plugin = plugin(facts)?;
    Finding::found(format!("guest customization is switched on and {plugin} is there"))
}

/// The plugin of VMware's tools that takes customizations.
fn plugin(facts: &Facts) -> Option<String> {
    const FOLDERS: [&str; 5] = [
        "/usr/lib",
        "/usr/lib64",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib/i386-linux-gnu",
    ];
    let path = |folder: &str, tools: &str| format!("{folder}/{tools}/plugins/vmsvc/libdeployPkgPlugin.so");
    let mut paths = FOLDERS.iter().flat_map(|f| ["vmware-tools", "open-vm-tools"].map(|tools| path(f, tools)));
    paths.find(|path| facts.root.is_file(path))
}

/// No OVF environment is looked for outside of a virtual machine, nor on Azure, whose own drive looks like one.
pub fn no_ovf(facts: &Facts) -> Option<String> {
    if facts.platform.virt == virt::NONE {
        return Some("the machine is not virtual".into());
    }
    let azure = facts.dmi("chassis_asset_tag").is_some_and(|tag| matches(AZURE_TAG, &tag));
    azure.then(|| "the machine is Azure's".into())
}

/// An OVF environment: VMware's guestinfo, or a CD-ROM.
pub fn ovf(facts: &Facts) -> Option<Finding> {
    let guestinfo = facts.platform.guestinfo.as_ref().filter(|_| facts.platform.virt == virt::VMWARE);
    let environment = guestinfo.and_then(|g| g.get("ovfEnv"));
    if environment.is_some_and(|text| text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("<?xml"))) {
        return Finding::found("guestinfo has ovfEnv");
    }
    let found = facts.filesystems().iter().filter(|fs| fs.kind == "iso9660").find(|fs| is_ovf(facts, fs))?;
    Finding::found(format!("{} is an OVF environment", found.device))
}

/// Whether a CD-ROM has an OVF label, or is small and has the schema's name in it.
fn is_ovf(facts: &Facts, fs: &Filesystem) -> bool {
    const LABELS: [&str; 3] = ["ovf-transport", "ovfenv", "ovf env"];
    const OTHERS: [&str; 3] = ["config-2", "cidata", "rd_rdfe_stable*"];
    const SCHEMA: &[u8] = b"http://schemas.dmtf.org/ovf/environment/1";
    /// In sectors of 512 bytes: 10 MiB.
    const TOO_LARGE: u64 = 10 * 2048;
    let Some(name) = fs.device.strip_prefix("/dev/") else { return false };
    let one_more = |prefix: &str, kind: fn(&u8) -> bool| {
        name.strip_prefix(prefix).is_some_and(|rest| rest.len() == 1 && rest.as_bytes().iter().all(kind))
    };
    if !one_more("sr", u8::is_ascii_digit) && !one_more("hd", u8::is_ascii_lowercase) {
        return false;
    }
    let labels: Vec<String> = fs.labels.iter().map(|l| l.to_ascii_lowercase()).collect();
    let any = |known: &[&str]| labels.iter().any(|l| known.iter().any(|pattern| matches(pattern, l)));
    if any(&LABELS) || any(&OTHERS) {
        return any(&LABELS);
    }
    let size = facts.machine.fact(&format!("sys/class/block/{name}/size"));
    if size.and_then(|s| s.trim().parse::<u64>().ok()).is_none_or(|s| s >= TOO_LARGE) {
        return false;
    }
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(facts.machine.base.join("dev").join(name));
    file.is_ok_and(|file| contains(file.take(TOO_LARGE * 512), SCHEMA))
}

/// Whether the text is somewhere in what is read, in any case.
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
        // The text may go on in the next piece.
        let keep = read.min(text.len() - 1);
        buffer.copy_within(read - keep..read, 0);
        kept = keep;
    }
}

/// WSL: data for this distribution in the home folder of a Windows user. Which user it is takes a Windows program to tell, so
/// all of them count.
pub fn wsl(facts: &Facts) -> Option<Finding> {
    if facts.platform.virt != virt::WSL {
        return None;
    }
    let mounts = facts.machine.fact("proc/mounts").unwrap_or_default();
    let drives = mounts.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (place, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == "9p" && options.contains("aname=drvfs;")).then_some(place)
    });
    let wanted = wsl_names(facts);
    for drive in drives.take(MAX_ENTRIES) {
        let users = format!("{}/Users", drive.trim_start_matches('/'));
        for user in facts.entries(&users) {
            for folder in [".ubuntupro/.cloud-init", ".cloud-init"] {
                let folder = format!("{users}/{user}/{folder}");
                let is_wanted = |name: &String| {
                    let agent = name == "agent.yaml" && folder.contains(".ubuntupro");
                    agent || wanted.contains(&name.to_lowercase())
                };
                if let Some(name) = facts.entries(&folder).iter().find(|n| is_wanted(n)) {
                    return Finding::found(format!("/{folder}/{name} is there"));
                }
            }
        }
    }
    None
}

/// The names of files for this distribution, in lower case (cloud-init's documentation, "WSL").
fn wsl_names(facts: &Facts) -> Vec<String> {
    let release = facts.root.text("/etc/os-release");
    let value = |key: &str| {
        let line = release.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix('='));
        line.map(|v| v.trim_matches(['"', '\'']).to_lowercase()).unwrap_or_default()
    };
    // Debian's unreleased systems have a name and no number yet.
    let version = Some(value("VERSION_ID")).filter(|v| !v.is_empty()).unwrap_or_else(|| value("VERSION_CODENAME"));
    let id = Some(value("ID")).filter(|i| !i.is_empty()).unwrap_or_else(|| "linux".into());
    let instance = facts.variable("WSL_DISTRO_NAME").map(str::to_lowercase);
    let names = [format!("{id}-{version}"), format!("{id}-all"), "default".into()];
    instance.into_iter().chain(names).map(|name| format!("{name}.user-data")).collect()
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
