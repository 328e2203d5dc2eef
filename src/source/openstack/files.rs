//! OpenStack's metadata as a tree of files: the same paths on a config drive and in the metadata service.
//!
//! Follows nova's user documentation, "Metadata" (metadata API and config drives), and cloud-init's ConfigDrive reader.

use crate::base::problem::Problems;
use crate::document::{Bytes, InstancePart, Map, Value, json, wrong};
use crate::drive::Files;
use crate::instance::{DsMode, Instance, NetworkData};
use crate::source::documents::availability_zone;
use crate::source::keys::{MAX_KEYS, public_keys};

/// Versions of the documents that are supported, newest first. `latest` is tried last, because its format is
/// not fixed.
pub const VERSIONS: [&str; 8] =
    ["2018-08-27", "2017-02-22", "2016-10-06", "2016-06-30", "2015-10-15", "2013-10-17", "2013-04-04", "2012-08-10"];
const LATEST: &str = "latest";
/// Versions of the EC2 tree, newest first.
const EC2_VERSIONS: [&str; 2] = ["latest", "2009-04-04"];
/// The most `files` of one instance, and their largest total size: several may have the same content.
const MAX_FILES: usize = 1_000;
const MAX_CONTENT: usize = 32 << 20;

/// Whether the tree has OpenStack's layout, version 2 or 1.
pub fn is_openstack(files: &Files) -> bool {
    versions(files).next().is_some() || is_version_1(files)
}

fn versions(files: &Files) -> impl Iterator<Item = &'static str> {
    VERSIONS.into_iter().chain([LATEST]).filter(|v| files.contains(&format!("openstack/{v}")))
}

fn is_version_1(files: &Files) -> bool {
    ["meta.js", "etc/network/interfaces", "root/.ssh/authorized_keys"].iter().any(|p| files.contains(p))
}

/// Reads the tree. Invalid documents are added to `problems`, and the rest is used. None if the layout is not
/// OpenStack's.
pub fn read(files: &Files) -> Option<Instance> {
    if versions(files).next().is_some() {
        Some(read_version_2(files))
    } else {
        is_version_1(files).then(|| read_version_1(files))
    }
}

/// A document of the newest version that has a valid one. Invalid ones are reported, and the next older
/// version is read.
fn document(files: &Files, name: &str, problems: &Problems) -> Option<Value> {
    for version in versions(files) {
        let path = format!("openstack/{version}/{name}");
        let Some(bytes) = files.get(&path) else { continue };
        if bytes.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match json::parse(&path, bytes) {
            Ok(value) => return Some(value),
            Err(e) => problems.warn(e.to_string()),
        }
    }
    None
}

fn read_version_2(files: &Files) -> Instance {
    let mut instance = Instance { platform: "openstack".into(), cloud_name: "openstack".into(), ..Instance::default() };
    let problems = Problems::new();
    let metadata = match document(files, "meta_data.json", &problems) {
        Some(Value::Map(map)) => map,
        Some(other) => {
            problems.warn(wrong("meta_data.json", "a mapping", &other).to_string());
            Map::new()
        }
        None => {
            problems.warn("meta_data.json: there is none, or none that can be read");
            Map::new()
        }
    };
    from_metadata(files, &metadata, &mut instance, &problems);
    let user_data = versions(files)
        .find_map(|v| Some((v, files.shared(&format!("openstack/{v}/user_data"))?)))
        .filter(|(_, bytes)| !bytes.is_empty());
    instance.user_data = user_data.map(|(_, bytes)| bytes.clone());
    // Of the same version, for a trust policy.
    instance.signature = user_data.and_then(|(v, _)| files.shared(&format!("openstack/{v}/user_data.sig"))).cloned();
    instance.vendor_data = document(files, "vendor_data.json", &problems).unwrap_or_default();
    instance.vendor_data2 = document(files, "vendor_data2.json", &problems).unwrap_or_default();
    instance.network = match document(files, "network_data.json", &problems) {
        Some(network @ Value::Map(_)) => Some(NetworkData::Openstack(network)),
        Some(Value::Null) | None => legacy_network(files, &metadata),
        Some(other) => {
            problems.warn(wrong("network_data.json", "a mapping", &other).to_string());
            None
        }
    };
    instance.ec2_metadata = ec2(files, &problems);
    if let Some(Value::Map(mapping)) = instance.ec2_metadata.get("block-device-mapping") {
        instance.device_names = mapping.clone();
    }
    let mut metadata = metadata;
    copy_key(&mut metadata, "uuid", "instance-id");
    copy_key(&mut metadata, "hostname", "local-hostname");
    copy_key(&mut metadata, "availability_zone", "availability-zone");
    copy_key(&mut metadata, "public_keys", "public-keys");
    instance.metadata = Value::Map(metadata);
    instance.problems = problems;
    instance
}

/// Copies a value to cloud-init's second name for it, which templates and queries use, replacing any value
/// there.
fn copy_key(map: &mut Map, from: &str, to: &str) {
    if let Some(value) = map.get(from).cloned() {
        map.insert(to, value);
    }
}

fn from_metadata(files: &Files, metadata: &Map, instance: &mut Instance, problems: &Problems) {
    let text = |key: &str| metadata.get(key).and_then(Value::text).filter(|t| !t.is_empty());
    instance.instance_id = text("uuid").or_else(|| text("instance-id")).unwrap_or_default();
    instance.local_hostname = text("hostname").or_else(|| text("local-hostname")).or_else(|| text("name"));
    instance.availability_zone = availability_zone(metadata);
    instance.region = text("region");
    instance.launch_index = metadata.get("launch_index").and_then(Value::as_int);
    instance.public_keys = public_keys(metadata.get("public_keys").or_else(|| metadata.get("public-keys")));
    for key in metadata.get("keys").and_then(Value::as_list).unwrap_or_default() {
        if key.get("type").and_then(Value::as_str) == Some("ssh") {
            add_keys(&mut instance.public_keys, public_keys(key.get("data")));
        }
    }
    if let Some(seed) = metadata.get("random_seed") {
        let decoded = seed.as_str().and_then(|s| crate::base::base64::decode(s.trim().as_bytes()));
        match decoded {
            Some(bytes) => instance.random_seed = Some(Bytes::from(bytes)),
            None => problems.warn("meta_data.json: random_seed: expected base64"),
        }
    }
    instance.dsmode = mode_in(metadata).unwrap_or_default();
    read_files(files, metadata, instance, problems);
}

fn add_keys(keys: &mut Vec<String>, more: Vec<String>) {
    for key in more {
        if keys.len() < MAX_KEYS && !keys.contains(&key) {
            keys.push(key);
        }
    }
}

/// The mode that the metadata asks for.
pub fn own_mode(metadata: &Value) -> Option<DsMode> {
    mode_in(metadata.as_map()?)
}

fn mode_in(metadata: &Map) -> Option<DsMode> {
    let mode = metadata.get("dsmode").or_else(|| metadata.get("meta")?.get("dsmode")).and_then(Value::as_str);
    mode.and_then(DsMode::named)
}

/// `files: [{path, content_path}]`: the content is at `openstack/` plus the content_path.
fn read_files(files: &Files, metadata: &Map, instance: &mut Instance, problems: &Problems) {
    let Some(list) = metadata.get("files").filter(|v| !v.is_null()) else { return };
    let Some(list) = list.as_list() else {
        problems.warn(wrong("meta_data.json: files", "a list", list).to_string());
        return;
    };
    let mut left = MAX_CONTENT;
    for (i, file) in list.iter().enumerate().take(MAX_FILES) {
        let (path, content) =
            (file.get("path").and_then(Value::as_str), file.get("content_path").and_then(Value::as_str));
        let (Some(path), Some(content)) = (path, content) else {
            problems.warn(format!("meta_data.json: files[{i}]: expected path and content_path"));
            continue;
        };
        match content_of(files, InstancePart::Metadata, content) {
            Some(bytes) if bytes.len() > left => problems
                .warn(format!("meta_data.json: files[{i}]: ignored: all files are more than {MAX_CONTENT} bytes")),
            Some(bytes) => {
                left -= bytes.len();
                instance.files.push((path.to_owned(), bytes.clone()));
            }
            None => problems
                .warn(format!("meta_data.json: files[{i}]: there is no openstack/{}", content.trim_start_matches('/'))),
        }
    }
}

fn content_of<'f>(files: &'f Files, part: InstancePart, content_path: &str) -> Option<&'f Bytes> {
    files.named_by_document(part, &format!("openstack/{}", content_path.trim_start_matches('/')))
}

/// `network_config: {content_path}`: the text of /etc/network/interfaces, used before network_data.json
/// existed.
fn legacy_network(files: &Files, metadata: &Map) -> Option<NetworkData> {
    let path = metadata.get("network_config")?.get("content_path")?.as_str()?;
    let text = String::from_utf8_lossy(content_of(files, InstancePart::Network, path)?).into_owned();
    (!text.trim().is_empty()).then_some(NetworkData::Eni(text))
}

fn ec2(files: &Files, problems: &Problems) -> Value {
    for version in EC2_VERSIONS {
        let path = format!("ec2/{version}/meta-data.json");
        match files.get(&path).map(|bytes| json::parse(&path, bytes)) {
            Some(Ok(value @ Value::Map(_))) => return value,
            Some(Ok(other)) => problems.warn(wrong(&path, "a mapping", &other).to_string()),
            Some(Err(e)) => problems.warn(e.to_string()),
            None => {}
        }
    }
    Value::Null
}

/// Version 1 of the layout (before Folsom): injected files, and meta.js for everything else.
fn read_version_1(files: &Files) -> Instance {
    let mut instance = Instance {
        platform: "openstack".into(),
        cloud_name: "openstack".into(),
        dsmode: DsMode::Pass,
        ..Instance::default()
    };
    let metadata = match files.get("meta.js").map(|bytes| json::parse("meta.js", bytes)) {
        Some(Ok(Value::Map(map))) => map,
        Some(Ok(other)) => {
            instance.problems.warn(wrong("meta.js", "a mapping", &other).to_string());
            Map::new()
        }
        Some(Err(e)) => {
            instance.problems.warn(e.to_string());
            Map::new()
        }
        None => Map::new(),
    };
    let text = |key: &str| metadata.get(key).and_then(Value::text).filter(|t| !t.is_empty());
    instance.instance_id = text("instance-id").unwrap_or_default();
    instance.local_hostname = text("local-hostname");
    instance.user_data = text("user-data").map(|t| Bytes::from(t.into_bytes()));
    if let Some(mode) = mode_in(&metadata) {
        instance.dsmode = mode;
    }
    if let Some(keys) = files.get("root/.ssh/authorized_keys") {
        let text = String::from_utf8_lossy(keys).into_owned();
        add_keys(&mut instance.public_keys, public_keys(Some(&text.into())));
    }
    add_keys(&mut instance.public_keys, public_keys(metadata.get("public-keys")));
    if let Some(eni) = files.get("etc/network/interfaces") {
        instance.network = Some(NetworkData::Eni(String::from_utf8_lossy(eni).into_owned()));
    }
    // cloud-init's names of the three files, which templates and queries use.
    let mut all = metadata.clone();
    let file = |path: &str| String::from_utf8_lossy(files.get(path).unwrap_or_default()).into_owned();
    all.insert("meta_js", metadata);
    all.insert("authorized_keys", file("root/.ssh/authorized_keys"));
    all.insert("network_config", file("etc/network/interfaces"));
    let keys: Vec<Value> = instance.public_keys.iter().map(|key| key.as_str().into()).collect();
    all.insert("public-keys", keys);
    instance.metadata = Value::Map(all);
    instance
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[(&str, &str)]) -> Files {
        let mut files = Files::default();
        for (path, content) in list {
            files.insert(*path, content.as_bytes().to_vec());
        }
        files
    }

    #[test]
    fn newest_whole_document_wins_and_broken_is_reported() {
        let read = read(&files(&[
            ("openstack/latest/meta_data.json", r#"{"uuid": "l"}"#),
            ("openstack/2017-02-22/meta_data.json", r#"{"uuid": "u", "hostname": "h.example", "local-hostname": "x", "region": "r", "name": "h", "public_keys": {"k": "ssh-rsa A"},
               "keys": [{"name": "k", "type": "ssh", "data": "ssh-rsa A"}, {"type": "x509", "data": "c"}], "launch_index": 0,
               "random_seed": "aGk=", "meta": {"dsmode": "local"}, "availability_zone": "nova",
               "files": [{"path": "/etc/f", "content_path": "/content/0000"}, {"path": "/etc/g", "content_path": "/content/0001"}]}"#),
            ("openstack/2018-08-27/meta_data.json", "{broken"),
            ("openstack/2018-08-27/user_data", "#!/bin/sh\n"),
            ("openstack/2018-08-27/vendor_data.json", r##"{"cloud-init": "#cloud-config\n"}"##),
            ("openstack/content/0000", "F"),
            ("ec2/latest/meta-data.json", r#"{"block-device-mapping": {"ami": "sda"}}"#),
        ]))
        .unwrap();
        assert_eq!(read.instance_id, "u");
        assert_eq!(read.local_hostname.as_deref(), Some("h.example"));
        assert_eq!((read.public_keys.join(" "), read.region.as_deref()), ("ssh-rsa A".into(), Some("r")));
        assert_eq!(read.availability_zone.as_deref(), Some("nova"));
        assert_eq!(read.random_seed, Some(Bytes::from(b"hi".to_vec())));
        assert_eq!(read.dsmode, DsMode::Local);
        assert_eq!(read.files, [("/etc/f".to_owned(), Bytes::from(b"F".to_vec()))]);
        assert_eq!(read.user_data, Some(Bytes::from(b"#!/bin/sh\n".to_vec())));
        assert_eq!(read.metadata.get("local-hostname"), Some(&Value::from("h.example")));
        assert_eq!(read.device_names.get("ami"), Some(&Value::from("sda")));
        assert_eq!(read.problems.len(), 2, "{:?}", read.problems);
        assert!(
            read.problems.entries()[0]
                .to_string()
                .starts_with("openstack/2018-08-27/meta_data.json: not valid JSON at line 1")
        );
        assert!(read.problems.entries()[1].to_string().contains("files[1]"));
    }

    #[test]
    fn files_of_the_same_content_are_bounded_together() {
        let metadata = r#"{"uuid": "u", "files": [LIST]}"#
            .replace("LIST", &[r#"{"path": "/f", "content_path": "c"}"#; 4].join(","));
        let large = "x".repeat(MAX_CONTENT / 3);
        let read = read(&files(&[("openstack/latest/meta_data.json", &metadata), ("openstack/c", &large)])).unwrap();
        assert_eq!((read.files.len(), read.problems.len()), (3, 1));
        assert!(read.problems.entries()[0].to_string().contains("files[3]: ignored"), "{:?}", read.problems);
    }

    /// Each key is compared with those before it.
    #[test]
    fn keys_without_end_end_in_time() {
        let key = |i: usize| format!("{{\"type\": \"ssh\", \"data\": \"ssh-rsa {i:08}\"}}");
        let keys: Vec<String> = (0..60_000).map(key).collect();
        let metadata = format!("{{\"uuid\": \"u\", \"keys\": [{}]}}", keys.join(","));
        let before = crate::base::testing::cpu_time();
        let many = read(&files(&[("openstack/latest/meta_data.json", &metadata)])).unwrap();
        let lines: String = (0..MAX_KEYS - 1).map(|i| format!("k{i}\n")).collect::<String>() + &"k0\n".repeat(500_000);
        let again = read(&files(&[("meta.js", "{}"), ("root/.ssh/authorized_keys", &lines)])).unwrap();
        assert_eq!((many.public_keys.len(), again.public_keys.len()), (MAX_KEYS, MAX_KEYS - 1));
        assert!(crate::base::testing::cpu_time() - before < std::time::Duration::from_secs(10));
    }

    #[test]
    fn user_data_alone_and_version_1() {
        let alone = read(&files(&[("openstack/latest/user_data", "#cloud-config\n")])).unwrap();
        assert!(alone.user_data.is_some() && alone.instance_id.is_empty());
        let one = read(&files(&[
            ("meta.js", r#"{"instance-id": "i", "user-data": "x", "dsmode": "net", "public-keys": "ssh-rsa B"}"#),
            ("root/.ssh/authorized_keys", "# c\nssh-rsa A\n"),
            ("etc/network/interfaces", "auto lo\n"),
        ]))
        .unwrap();
        assert_eq!((one.instance_id.as_str(), one.dsmode), ("i", DsMode::Net));
        assert_eq!(one.public_keys, ["ssh-rsa A", "ssh-rsa B"]);
        assert_eq!(one.network, Some(NetworkData::Eni("auto lo\n".into())));
        assert!(read(&files(&[("meta-data", "x")])).is_none());
    }
}
