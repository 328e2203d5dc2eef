//! Partition types: MBR codes, GPT GUIDs, and the names that cloud-config has for both.

use crate::base::uuid::swap;

/// sgdisk's codes, with the GUID of each. If the last two of the four hexadecimal digits are 0, the first two
/// are the MBR's code.
const TYPES: [(u16, &str); 30] = [
    (0x0700, "EBD0A0A2-B9E5-4433-87C0-68B6B72699C7"),
    (0x0b00, "EBD0A0A2-B9E5-4433-87C0-68B6B72699C7"),
    (0x0c00, "EBD0A0A2-B9E5-4433-87C0-68B6B72699C7"),
    (0x0c01, "E3C9E316-0B5C-4DB8-817D-F92DF00215AE"),
    (0x2700, "DE94BBA4-06D1-4D40-A16A-BFD50179D6AC"),
    (0x4100, "9E1A2D38-C612-4316-AA26-8B49521E5A8B"),
    (0x8200, "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F"),
    (0x8300, "0FC63DAF-8483-4772-8E79-3D69D8477DE4"),
    (0x8301, "8DA63339-0007-60C0-C436-083AC8230908"),
    (0x8302, "933AC7E1-2EB4-4F13-B844-0E14E2AEF915"),
    (0x8303, "44479540-F297-41B2-9AF7-D131D5F0458A"),
    (0x8304, "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709"),
    (0x8305, "B921B045-1DF0-41C3-AF44-4C6F280D3FAE"),
    (0x8306, "3B8F8425-20E0-4F3B-907F-1A25A76F98E8"),
    (0x8307, "69DAD710-2CE4-4E3C-B16C-21A1D49ABED3"),
    (0x8308, "7FFEC5C9-2D00-49B7-8941-3EA10A5586B7"),
    (0x8309, "CA7D7CCB-63ED-4C53-861C-1742536059CC"),
    (0x8310, "4D21B016-B534-45C2-A9FB-5C16E091FD2D"),
    (0x8311, "7EC6F557-3BC5-4ACA-B293-16EF5DF639D1"),
    (0x8312, "773F91EF-66D4-49B5-BD83-D683BF40AD16"),
    (0x8e00, "E6D6D379-F507-44C2-A23C-238F2A3DF928"),
    (0xa500, "516E7CB4-6ECF-11D6-8FF8-00022D09712B"),
    (0xaf00, "48465300-0000-11AA-AA11-00306543ECAC"),
    (0xbf00, "6A85CF4D-1DD2-11B2-99A6-080020736631"),
    (0xbf01, "6A898CC3-1DD2-11B2-99A6-080020736631"),
    (0xbf07, "6A945A3B-1DD2-11B2-99A6-080020736631"),
    (0xea00, "BC13C2FF-59E6-4262-A352-B275FD6F7172"),
    (0xef00, "C12A7328-F81F-11D2-BA4B-00A0C93EC93B"),
    (0xef02, "21686148-6449-6E6F-744E-656564454649"),
    (0xfd00, "A19D880F-05FC-4D3B-A006-743F0F84911E"),
];

/// The code of a Linux file system.
pub const LINUX: u16 = 0x8300;

/// A partition's type, in either kind of table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionKind {
    /// The code in an MBR.
    Code(u8),
    /// The GUID in a GPT, in its byte order on the disk.
    Guid([u8; 16]),
}

/// Parses a GUID into its byte order on the disk. None if it is not a GUID.
pub fn parse(text: &str) -> Option<[u8; 16]> {
    let lengths = [8, 4, 4, 4, 12];
    let parts: Vec<&str> = text.split('-').collect();
    let well_formed = parts.len() == 5
        && parts.iter().zip(lengths).all(|(p, n)| p.len() == n && p.bytes().all(|b| b.is_ascii_hexdigit()));
    if !well_formed {
        return None;
    }
    let mut bytes = u128::from_str_radix(&parts.concat(), 16).ok()?.to_be_bytes();
    swap(&mut bytes);
    Some(bytes)
}

/// The text of a GUID on the disk, in upper case.
pub fn text(bytes: &[u8; 16]) -> String {
    let mut bytes = *bytes;
    swap(&mut bytes);
    let digits = format!("{:032X}", u128::from_be_bytes(bytes));
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-")
}

/// The code of a type in cloud-config: `83`, `8300`, `ef`, or a GUID. None if it is unknown.
fn code(name: &str) -> Option<u16> {
    if let Some(guid) = parse(name) {
        return code_of(&guid);
    }
    let code = u16::from_str_radix(name, 16).ok().filter(|_| !name.starts_with('+'))?;
    Some(if name.len() <= 2 { code << 8 } else { code }).filter(|_| name.len() <= 4)
}

fn code_of(guid: &[u8; 16]) -> Option<u16> {
    // If several codes share a GUID: the one that other systems write.
    TYPES.iter().find(|(_, text)| parse(text).as_ref() == Some(guid)).map(|(code, _)| *code)
}

/// The GUID of a type in cloud-config. None if it is unknown.
pub fn guid(name: &str) -> Option<[u8; 16]> {
    let wanted = code(name);
    let known = TYPES.iter().find(|(code, _)| Some(*code) == wanted);
    parse(name).or_else(|| known.and_then(|(_, text)| parse(text)))
}

/// The MBR code of a type in cloud-config. None if it is unknown or has no such code.
pub fn mbr(name: &str) -> Option<u8> {
    let code = code(name)?.to_be_bytes();
    (code[0] != 0 && (code[1] == 0 || parse(name).is_some())).then_some(code[0])
}

impl PartitionKind {
    /// Whether cloud-config's `name` means this type.
    pub fn is_named(self, name: &str) -> bool {
        match self {
            PartitionKind::Code(found) => mbr(name) == Some(found),
            PartitionKind::Guid(found) => guid(name) == Some(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_guids_name_the_same_types() {
        let esp = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B";
        assert_eq!(text(&parse(esp).unwrap()), esp);
        assert_eq!(parse(esp).unwrap()[..4], [0x28, 0x73, 0x2a, 0xc1]);
        for name in ["ef", "EF", "ef00", "EF00", esp, &esp.to_lowercase()] {
            assert_eq!(guid(name), parse(esp), "{name}");
            assert_eq!(mbr(name), Some(0xef), "{name}");
        }
        assert_eq!((mbr("83"), mbr("8300"), mbr("c"), mbr("ef02")), (Some(0x83), Some(0x83), Some(0x0c), None));
        for name in ["", "zz", "12345", "-1", "+83", "00083", "C12A7328", "C12A7328-F81F-11D2-BA4B-00A0C93EC93"] {
            assert_eq!((guid(name), mbr(name)), (None, None), "{name}");
        }
        assert_eq!(guid("bf01").map(|g| text(&g)).as_deref(), Some("6A898CC3-1DD2-11B2-99A6-080020736631"));
        let own = "01234567-89AB-CDEF-0123-456789ABCDEF";
        assert_eq!((guid(own).map(|g| text(&g)), mbr(own)), (Some(own.to_owned()), None));
        assert!(PartitionKind::Guid(parse(esp).unwrap()).is_named("ef") && !PartitionKind::Code(0x83).is_named("82"));
        for (_, guid) in TYPES {
            assert!(parse(guid).is_some(), "{guid}");
        }
    }
}
