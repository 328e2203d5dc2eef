//! The identity of this machine: the instance-id from the SMBIOS UUID, and the ID that Azure uses.

use super::failure::Failure;
use crate::instance::state;
use crate::machine::{Machine, beneath};
use crate::root::Root;

/// The machine's identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The instance-id: the SMBIOS UUID in lower case, or the last instance-id if that is the same UUID in
    /// another byte order or case.
    pub instance_id: String,
    /// The virtual machine's ID in Azure's spelling.
    pub vm_id: String,
    /// Whether the last boot had another instance, or there was none.
    pub is_new: bool,
}

impl Identity {
    /// The identity of `machine`, whose new root is `root`.
    ///
    /// # Errors
    /// The SMBIOS has no UUID.
    pub fn of(machine: &Machine, root: &Root) -> Result<Identity, Failure> {
        let fail = |exception: &str, uuid: &str| {
            Failure::new("failure to identify Azure VM ID").with("exception", exception).with("system_uuid", uuid)
        };
        let uuid = machine.uuid().ok_or_else(|| fail("the SMBIOS has no UUID", "None"))?;
        let swapped = swapped(&uuid).ok_or_else(|| fail("the UUID of the SMBIOS has another form", &uuid))?;
        // SMBIOS before 2.6, which only machines without UEFI have, leaves the byte order of a UUID open: the
        // kernel assumes big-endian, but Azure's is little-endian. After an upgrade of the machine the kernel
        // may show the other one.
        let last = state::last_id(root).unwrap_or_default();
        let is_new = ![&uuid, &swapped].iter().any(|id| id.eq_ignore_ascii_case(&last));
        let vm_id = if beneath::exists(&machine.base, "sys/firmware/efi") { uuid.clone() } else { swapped };
        Ok(Identity { instance_id: if is_new { uuid } else { last }, vm_id, is_new })
    }
}

/// A UUID with the bytes of its first three groups reversed. None if it is not a UUID.
fn swapped(uuid: &str) -> Option<String> {
    let groups: Vec<&str> = uuid.split('-').collect();
    let is_uuid = groups.iter().map(|g| g.len()).eq([8, 4, 4, 4, 12])
        && groups.iter().all(|g| g.bytes().all(|b| b.is_ascii_hexdigit()));
    let turned = |group: &str| -> String {
        let pairs = group.as_bytes().chunks(2).rev();
        pairs.flatten().map(|b| char::from(*b)).collect()
    };
    let group = |(i, group): (usize, &&str)| if i < 3 { turned(group) } else { (*group).to_owned() };
    is_uuid.then(|| groups.iter().enumerate().map(group).collect::<Vec<_>>().join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::Use;

    const UUID: &str = "12345678-1234-5678-1234-123456789abc";

    fn identity(uuid: &str, last: &str, uefi: bool) -> Result<Identity, Failure> {
        let dir = TempDir::new("azure-identity");
        let write = |path: &str, text: &str| dir.write(path, text);
        write("sys/class/dmi/id/product_uuid", uuid);
        write("var/lib/cloud/data/instance-id", last);
        if uefi {
            std::fs::create_dir_all(dir.0.join("sys/firmware/efi")).unwrap();
        }
        Identity::of(&dir.machine(), &dir.root(Use::Plan))
    }

    #[test]
    fn instance_id_keeps_its_earlier_spelling() {
        let of = |last: &str, uefi| {
            let got = identity(UUID, last, uefi).unwrap();
            (got.instance_id, got.vm_id, got.is_new)
        };
        let swapped = "78563412-3412-7856-1234-123456789abc";
        assert_eq!(of("", false), (UUID.into(), swapped.into(), true));
        assert_eq!(of("other\n", true), (UUID.into(), UUID.into(), true));
        let upper = UUID.to_ascii_uppercase();
        assert_eq!(of(&upper, true), (upper, UUID.into(), false));
        let upper = swapped.to_ascii_uppercase();
        assert_eq!(of(&format!("{upper}\n"), false), (upper, swapped.into(), false));
    }

    #[test]
    fn without_a_uuid_there_is_no_identity() {
        for uuid in ["", "12345678", "12345678-1234-5678-1234-123456789ab", "1234567g-1234-5678-1234-123456789abc"] {
            let failure = identity(uuid, "", true).unwrap_err().to_string();
            let found = if uuid.is_empty() { "None" } else { uuid };
            assert!(
                failure.contains(", exception=the ") && failure.ends_with(&format!(", system_uuid={found}")),
                "{failure}"
            );
        }
    }
}
