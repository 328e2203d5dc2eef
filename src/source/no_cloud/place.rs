//! Where a seed's files are: a folder or a URL (`seedfrom`).
//!
//! Follows cloud-init's documentation, "NoCloud", "Source 2: Kernel command line" and "Runtime configuration".

use crate::base::percent;
use crate::machine::Machine;

/// The files of a seed. The first two are required.
pub const FILES: [&str; 4] = ["meta-data", "user-data", "vendor-data", "network-config"];

/// The folder, if a `seedfrom` needs no network.
pub fn local_folder(from: &str) -> Option<&str> {
    from.strip_prefix("file://").or_else(|| from.starts_with('/').then_some(from))
}

/// The URL or path of one file: `%s` is replaced by its name; otherwise the name is appended, after a slash
/// if there is none. In a URL with a query it is appended as it is.
pub fn file_at(from: &str, name: &str) -> String {
    if from.contains("%s") {
        return from.replace("%s", name);
    }
    let slash = if from.ends_with('/') || from.contains('?') { "" } else { "/" };
    format!("{from}{slash}{name}")
}

/// Replaces each `__dmi.KEY__` in `seedfrom` by the machine's value. Keys are dmidecode's (`system-uuid`) or
/// the kernel's (`product_uuid`); one that the machine lacks is empty. In a URL the value is escaped.
pub fn substituted(from: &str, machine: &Machine) -> String {
    let mut out = String::new();
    let mut rest = from;
    while let Some((before, after)) = rest.split_once("__dmi.") {
        out.push_str(before);
        let Some((key, tail)) = after.split_once("__") else {
            out.push_str("__dmi.");
            rest = after;
            continue;
        };
        let known = DMIDECODE.iter().find(|(name, _)| *name == key).map_or(key, |(_, file)| file);
        let value = machine.dmi(known).unwrap_or_default();
        out.push_str(&if local_folder(from).is_some() { value } else { percent::encode(&value, percent::ALL) });
        rest = tail;
    }
    out + rest
}

/// dmidecode's keywords (dmidecode(8)), and the kernel's files for them.
const DMIDECODE: [(&str, &str); 17] = [
    ("baseboard-asset-tag", "board_asset_tag"),
    ("baseboard-manufacturer", "board_vendor"),
    ("baseboard-product-name", "board_name"),
    ("baseboard-serial-number", "board_serial"),
    ("baseboard-version", "board_version"),
    ("bios-release-date", "bios_date"),
    ("bios-vendor", "bios_vendor"),
    ("bios-version", "bios_version"),
    ("chassis-asset-tag", "chassis_asset_tag"),
    ("chassis-manufacturer", "chassis_vendor"),
    ("chassis-serial-number", "chassis_serial"),
    ("chassis-version", "chassis_version"),
    ("system-manufacturer", "sys_vendor"),
    ("system-product-name", "product_name"),
    ("system-serial-number", "product_serial"),
    ("system-uuid", "product_uuid"),
    ("system-version", "product_version"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;

    #[test]
    fn where_a_file_is() {
        assert_eq!(file_at("http://h/seed/", "meta-data"), "http://h/seed/meta-data");
        assert_eq!(file_at("http://h/seed", "user-data"), "http://h/seed/user-data");
        assert_eq!(file_at("http://h/?file=", "user-data"), "http://h/?file=user-data");
        assert_eq!(file_at("http://h/%s.yaml", "user-data"), "http://h/user-data.yaml");
    }

    #[test]
    fn dmi_values_stand_in() {
        let dir = TempDir::new("nocloud");
        let dmi = dir.0.join("sys/class/dmi/id");
        std::fs::create_dir_all(&dmi).unwrap();
        std::fs::write(dmi.join("product_serial"), "AB/1 2\n").unwrap();
        std::fs::write(dmi.join("product_uuid"), "u-u\n").unwrap();
        let machine = dir.machine();
        let from = "http://h/__dmi.system-uuid__/__dmi.product_serial__/__dmi.board_name__/";
        assert_eq!(substituted(from, &machine), "http://h/u-u/AB%2F1%202//");
        assert_eq!(substituted("file:///__dmi.product_serial__", &machine), "file:///AB/1 2");
        assert_eq!(substituted("http://h/__dmi.x", &machine), "http://h/__dmi.x");
    }
}
