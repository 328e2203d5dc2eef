//! A NoCloud seed in systemd's system credentials: `cloud-init.meta-data`, `cloud-init.user-data`,
//! `cloud-init.vendor-data` and `cloud-init.network-config`.
//!
//! Follows systemd's documentation, "System and Service Credentials". If systemd is PID 1 it has collected them in
//! /run/credentials/@system; in other initramfs they are read from systemd's sources: SMBIOS strings of type 11, QEMU's fw_cfg,
//! the kernel command line. A container sees its host's firmware, whose credentials are not meant for it. Those of the firmware are
//! not used in a confidential virtual machine, which does not trust its host (systemd, src/core/import-creds.c).

use crate::base::base64;
use crate::drive::Files;
use crate::machine::credentials::{MAX, SYSTEM};
use crate::machine::{Machine, beneath};
use std::path::Path;

/// The prefix of the credentials' names; the rest is the name of the seed's file.
const PREFIX: &str = "cloud-init.";
const NAMES: [&str; 4] = ["meta-data", "user-data", "vendor-data", "network-config"];
/// The longest SMBIOS table that is read, in bytes.
const MAX_TABLE: u64 = 1 << 20;
const SMBIOS: &str = "sys/firmware/dmi/tables/DMI";
const FW_CFG: &str = "sys/firmware/qemu_fw_cfg/by_name/opt/io.systemd.credentials";

/// The seed's files in the machine's credentials. For each, the first place that has it takes precedence.
/// Empty if there are none.
pub fn files(machine: &Machine) -> Files {
    let mut files = Files::default();
    let base = &machine.base;
    for name in NAMES {
        if let Some(bytes) = beneath::start(base, &format!("{SYSTEM}/{PREFIX}{name}"), MAX) {
            files.insert(name, bytes);
        }
    }
    let firmware = if machine.is_container() { Files::default() } else { of_firmware(base) };
    let has_any = firmware.iter().next().is_some();
    if has_any && machine.is_confidential() {
        log::warn!(
            "credentials in SMBIOS or fw_cfg are not used: this is a confidential virtual machine, and they are its host's"
        );
    } else {
        firmware.iter().for_each(|(name, bytes)| files.insert(name, bytes.to_vec()));
    }
    for (key, binary) in [("systemd.set_credential", false), ("systemd.set_credential_binary", true)] {
        for (name, value) in machine.cmdline.values(key).filter_map(|word| word.split_once(':')) {
            add(&mut files, name, value, binary);
        }
    }
    files
}

/// Those in fw_cfg and SMBIOS.
fn of_firmware(base: &Path) -> Files {
    let mut files = Files::default();
    for name in NAMES {
        if let Some(bytes) = beneath::start(base, &format!("{FW_CFG}/{PREFIX}{name}/raw"), MAX) {
            files.insert(name, bytes);
        }
    }
    let table = beneath::start(base, SMBIOS, MAX_TABLE).unwrap_or_default();
    for string in strings(&table) {
        let text = String::from_utf8_lossy(string);
        for (start, binary) in [("io.systemd.credential:", false), ("io.systemd.credential.binary:", true)] {
            if let Some((name, value)) = text.strip_prefix(start).and_then(|rest| rest.split_once('=')) {
                add(&mut files, name, value, binary);
            }
        }
    }
    files
}

fn add(files: &mut Files, name: &str, value: &str, binary: bool) {
    let Some(name) = name.strip_prefix(PREFIX).filter(|name| NAMES.contains(name)) else { return };
    let bytes = if binary { base64::decode(value.as_bytes()) } else { Some(value.as_bytes().to_vec()) };
    if let Some(bytes) = bytes {
        files.insert(name, bytes);
    }
}

/// The strings in structures of type 11, "OEM Strings" (DMTF's DSP0134, sections 6.1.2, 6.1.3 and 7.12).
fn strings(table: &[u8]) -> Vec<&[u8]> {
    const OEM_STRINGS: u8 = 11;
    let mut found = Vec::new();
    let mut rest = table;
    while let [kind, length, ..] = rest {
        // After the formatted part follow strings, each terminated by NUL, and another NUL.
        let Some(text) = rest.get(usize::from(*length).max(4)..) else { break };
        let Some(end) = text.windows(2).position(|w| w == [0, 0]) else { break };
        if *kind == OEM_STRINGS {
            found.extend(text.get(..end).unwrap_or_default().split(|b| *b == 0));
        }
        rest = text.get(end + 2..).unwrap_or_default();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::{TempDir, mutations};

    fn table() -> Vec<u8> {
        let mut table = b"\x01\x04\x00\x00QEMU\0\0".to_vec();
        table.extend_from_slice(
            b"\x0b\x05\x01\x00\x03other\0io.systemd.credential:cloud-init.user-data=#cloud-config\0",
        );
        table.extend_from_slice(b"io.systemd.credential.binary:cloud-init.meta-data=aW5zdGFuY2UtaWQ6IGktOQo=\0");
        table.extend_from_slice(b"io.systemd.credential:passwd.hashed-password.root=x\0\0\x7f\x04\x00\x00\0\0");
        table
    }

    #[test]
    fn reads_every_credential_place_and_first_wins() {
        let dir = TempDir::new("credentials");
        let write = |path: &str, bytes: &[u8]| dir.write(path, bytes);
        let all = || {
            let files = files(&dir.machine());
            let text = |(name, bytes): (&str, &[u8])| format!("{name} {}", String::from_utf8_lossy(bytes).trim());
            files.iter().map(text).collect::<Vec<_>>()
        };
        assert_eq!(all(), [""; 0]);
        let line = "systemd.set_credential=cloud-init.network-config:{} systemd.set_credential=cloud-init.x:y quiet \
                    systemd.set_credential_binary=cloud-init.user-data:bGluZQ==";
        write("proc/cmdline", line.as_bytes());
        assert_eq!(all(), ["network-config {}", "user-data line"]);
        write(SMBIOS, &table());
        let with_table = ["meta-data instance-id: i-9", "network-config {}", "user-data #cloud-config"];
        assert_eq!(all(), with_table);
        write(&format!("{FW_CFG}/cloud-init.vendor-data/raw"), b"v");
        write("run/credentials/@system/cloud-init.user-data", b"collected");
        assert_eq!(all(), ["meta-data instance-id: i-9", "network-config {}", "user-data collected", "vendor-data v"]);
        // Nor is what a confidential machine's host gives.
        for (path, mark) in [
            ("sys/devices/platform/sev-guest/modalias", ""),
            ("proc/cpuinfo", "flags\t\t: fpu tdx_guest sse\n"),
            ("sys/firmware/uv/prot_virt_guest", "1\n"),
        ] {
            write(path, mark.as_bytes());
            assert_eq!(all(), ["network-config {}", "user-data collected"], "{path}");
            std::fs::remove_file(dir.0.join(path)).unwrap();
            let _ = std::fs::remove_dir(dir.0.join("sys/devices/platform/sev-guest"));
            assert_eq!(all().len(), 4, "{path}");
        }
        // A container's firmware and kernel command line are its host's.
        write("proc/1/environ", b"container=lxc\0");
        write("proc/1/cmdline", b"/sbin/init\0systemd.set_credential=cloud-init.meta-data:own\0");
        assert_eq!(all(), ["meta-data own", "user-data collected"]);
    }

    #[test]
    fn reads_a_damaged_table_as_far_as_possible() {
        let table = table();
        assert_eq!(strings(&table).len(), 4);
        for end in 0..table.len() {
            assert!(strings(&table[..end]).len() <= 4);
        }
        mutations(&table, 2000, |bytes| {
            // A string is part of the table, and ends where its NUL is.
            assert!(strings(bytes).iter().all(|string| !string.contains(&0)), "{bytes:?}");
        });
    }
}
