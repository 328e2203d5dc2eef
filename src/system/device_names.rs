//! Names that cloud-configs and datasources use for devices.

use super::ModuleContext;
use crate::document::{Map, Value};
use crate::drive::block;
use crate::drive::devices::Places;
use crate::source;

/// The device that `device_aliases` of the cloud-config has for a name.
pub fn alias(cx: &ModuleContext, name: &str) -> Option<String> {
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

/// The devices that the datasource has for a name: those of its metadata, or the one that is known by its label.
pub fn of_source(cx: &ModuleContext, name: &str) -> Vec<String> {
    let mut paths = mapped(&cx.instance.device_names, name);
    let has_label = || source::named(&cx.instance.source).is_some_and(|source| source.labels_disks);
    let tag = match name {
        "swap" => "TYPE=swap".to_owned(),
        _ if name.starts_with("ephemeral") => format!("LABEL={name}"),
        _ => return paths,
    };
    if has_label()
        && cx.outside.knows_devices()
        && !paths.iter().any(|path| cx.outside.device(path).is_some())
        && let Some(device) = cx.outside.device(&tag)
    {
        paths.insert(0, device.path);
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

/// Splits a device of fs_setup from the place after its dot: a partition's number, or a word of the key `partition`, as in
/// `ephemeral0.auto`.
pub fn placed(spec: &str) -> (&str, Option<&str>) {
    match spec.rsplit_once('.') {
        Some((name, word @ ("auto" | "any" | "none"))) => (name, Some(word)),
        _ => dotted(spec),
    }
}

/// The kernel's name for a device's partition.
pub fn partition_of(path: &str, number: &str) -> String {
    let part = if path.ends_with(|c: char| c.is_ascii_digit()) { "p" } else { "" };
    format!("{path}{part}{number}")
}

/// The path that a name in disk_setup or fs_setup stands for: an alias's, the source's, or the name itself. A source may list
/// several; the first that exists is used.
pub fn path(cx: &ModuleContext, places: &Places, name: &str) -> String {
    let target = alias(cx, name);
    let name = target.as_deref().unwrap_or(name);
    let paths = of_source(cx, name.strip_prefix("/dev/").unwrap_or(name));
    let there = paths.iter().find(|p| block::at(places, p).is_some()).or(paths.first()).cloned();
    let plain = || if name.starts_with('/') { name.to_owned() } else { format!("/dev/{name}") };
    there.unwrap_or_else(plain)
}

/// The devices that disk_setup and fs_setup change, as far as they are to be there before: not the partitions that disk_setup makes.
pub fn to_set_up(cx: &ModuleContext, places: &Places) -> Vec<String> {
    let disks = cx.get("disk_setup").and_then(Value::as_map);
    let mut paths: Vec<String> = disks.into_iter().flat_map(Map::keys).map(|name| path(cx, places, name)).collect();
    let systems = cx.get("fs_setup").and_then(Value::as_list).unwrap_or_default();
    for name in systems.iter().filter_map(|entry| entry.get("device")?.text()) {
        let given = path(cx, places, &name);
        let is_there = block::at(places, &given).is_some();
        let device = if is_there { given } else { path(cx, places, placed(&name).0) };
        if is_there || !paths.iter().any(|disk| device.starts_with(disk.as_str())) {
            paths.push(device);
        }
    }
    paths
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
        assert_eq!((placed("e0.any"), placed("e0.1")), (("e0", Some("any")), ("e0", Some("1"))));
        assert_eq!(
            (partition_of("/dev/vdb", "1"), partition_of("/dev/nvme0n1", "1")),
            ("/dev/vdb1".into(), "/dev/nvme0n1p1".into())
        );
    }
}
