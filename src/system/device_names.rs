//! Names that cloud-configs and datasources use for devices.

use super::Context;
use crate::document::{Map, Value};

/// The device that `device_aliases` of the cloud-config has for a name.
pub fn alias(cx: &Context, name: &str) -> Option<String> {
    cx.get("device_aliases")?.get(name)?.as_str().map(str::to_owned)
}

/// The devices that the datasource has for a name, as paths below /dev. A disk that it calls `sdb` may be
/// `vdb` or `xvdb` to this kernel.
pub fn mapped(names: &Map, name: &str) -> Vec<String> {
    let value = names.get(name).or_else(|| names.get("ephemeral").filter(|_| name == "ephemeral0"));
    let Some(value) = value.and_then(Value::as_str) else { return Vec::new() };
    let short = value.strip_prefix("/dev/").unwrap_or(value);
    let mut paths = vec![format!("/dev/{short}")];
    if let Some(rest) =
        short.strip_prefix("sd").or_else(|| short.strip_prefix("xvd")).or_else(|| short.strip_prefix("vd"))
    {
        for prefix in ["vd", "xvd", "sd"] {
            let path = format!("/dev/{prefix}{rest}");
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
    }
    paths
}

/// Splits a name from the partition after its dot: `ephemeral0.1`.
pub fn dotted(spec: &str) -> (&str, Option<&str>) {
    match spec.rsplit_once('.') {
        Some((name, n)) if !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()) => (name, Some(n)),
        _ => (spec, None),
    }
}

/// The kernel's name for a device's partition.
pub fn partition_of(path: &str, number: &str) -> String {
    let part = if path.ends_with(|c: char| c.is_ascii_digit()) { "p" } else { "" };
    format!("{path}{part}{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_source_and_their_partitions() {
        let names: Map = [("ephemeral0", "sdb")].into_iter().collect();
        assert_eq!(mapped(&names, "ephemeral0"), ["/dev/sdb", "/dev/vdb", "/dev/xvdb"]);
        assert!(mapped(&names, "ephemeral1").is_empty());
        assert_eq!(
            (dotted("e0.12"), dotted("/dev/a.b"), dotted("x.")),
            (("e0", Some("12")), ("/dev/a.b", None), ("x.", None))
        );
        assert_eq!(
            (partition_of("/dev/vdb", "1"), partition_of("/dev/nvme0n1", "1")),
            ("/dev/vdb1".into(), "/dev/nvme0n1p1".into())
        );
    }
}
