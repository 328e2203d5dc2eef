//! NoCloud: meta-data and user-data on a drive labelled cidata, in a seed folder, on the kernel command line, in the DMI serial.
//!
//! Follows cloud-init's documentation, "NoCloud": sources are merged, what is found first wins for meta-data and what is found
//! last wins for user-data, vendor-data and network-config.

use super::marks::{LABEL, SEEDS, is_seed};
use crate::base::error::{Error, Result};
use crate::document::{Bytes, Map, Value, yaml};
use crate::drive::Files;
use crate::instance::{DsMode, Instance, NetworkData};
use crate::source::documents::{cloud_name, launch_index};
use crate::source::keys::public_keys;
use crate::source::search::{Found, Search};

/// Names of the data source in `ds=`.
const NAMES: [&str; 2] = ["nocloud", "nocloud-net"];
const DEFAULT_ID: &str = "nocloud";

/// What was found so far.
#[derive(Clone, Default)]
pub struct Seed {
    metadata: Map,
    user_data: Option<Vec<u8>>,
    vendor_data: Option<Vec<u8>>,
    network: Option<Value>,
    pub(super) problems: Vec<String>,
    found: Vec<String>,
    /// Whether LXD made the machine: its socket is there.
    is_lxd: bool,
}

/// Reads everything local. A `seedfrom` that is a URL needs the network and is left to the service.
pub fn read(search: &mut Search) -> Result<Option<Found>> {
    let mut seed = gather(search);
    if seed.found.is_empty() {
        return Ok(None);
    }
    if let Some(from) = seed.metadata.get("seedfrom").and_then(Value::text) {
        let Some(folder) = local_folder(&from) else {
            return Ok(None);
        };
        let Some(files) = search.seed_folder(folder) else {
            return Err(Error::new(format!(
                "NoCloud: seedfrom names {folder}, and there is no such folder in the image"
            )));
        };
        seed.take_files(&files, folder);
    }
    Ok(Some(seed.finish("DataSourceNoCloud")))
}

/// What is known locally, and the URL that has the rest. None where no `seedfrom` names one.
pub(super) fn remote(search: &mut Search) -> Option<(Seed, String)> {
    let seed = gather(search);
    let from = seed.metadata.get("seedfrom").and_then(Value::text)?;
    local_folder(&from).is_none().then_some((seed, from))
}

/// What the machine's own marks, the image and the drives say, without `seedfrom`'s content.
fn gather(search: &mut Search) -> Seed {
    let mut seed = Seed { is_lxd: search.machine.base.join("dev/lxd/sock").exists(), ..Seed::default() };
    for (place, line) in
        [("dmi", search.machine.dmi("product_serial")), ("cmdline", Some(search.machine.cmdline.text().to_owned()))]
    {
        if let Some(map) = line.as_deref().and_then(from_line) {
            seed.take_metadata(map);
            seed.found.push(place.into());
        }
    }
    let credentials = super::credentials::files(search.machine);
    if is_seed(&credentials) {
        seed.take_files(&credentials, "credentials");
    }
    for folder in SEEDS {
        if let Some(files) = search.seed_folder(folder)
            && is_seed(&files)
        {
            seed.take_files(&files, folder);
            break;
        }
    }
    let settings = search.settings(super::marks::NAME);
    if let Some(from) = settings.and_then(|s| s.get("seedfrom")).and_then(Value::text) {
        seed.metadata.insert("seedfrom", from);
        seed.found.push("ds_config_seedfrom".into());
    }
    if let Some(map) = settings
        && let (Some(meta), Some(user)) = (map.get("meta-data"), map.get("user-data"))
    {
        seed.take_inline(meta, user, map);
    }
    let label = match settings.and_then(|s| s.get("fs_label")) {
        Some(Value::Null) => return seed,
        label => label.and_then(Value::text).unwrap_or_else(|| LABEL.into()),
    };
    for drive in search.drives_labelled(&label) {
        let Some(files) = search.open_drive(&drive) else { continue };
        if is_seed(&files) {
            seed.take_files(&files, &drive);
            break;
        }
        search.problem(format!("{drive} is labelled {label} and has neither meta-data nor user-data: it is not used"));
    }
    seed
}

/// The instance of one tree of files by itself, for `--seed`.
pub(super) fn of_files(files: &Files, place: &str) -> Option<Instance> {
    let mut seed = Seed::default();
    is_seed(files).then(|| seed.take_files(files, place))?;
    Some(seed.finish("DataSourceNoCloud").instance)
}

/// The folder of a `seedfrom` that needs no network.
fn local_folder(from: &str) -> Option<&str> {
    from.strip_prefix("file://").or_else(|| from.starts_with('/').then_some(from))
}

/// `ds=nocloud;h=name;i=id;s=from` in the text of a kernel command line or a serial number. Keys h, i and s are short for
/// local-hostname, instance-id and seedfrom.
fn from_line(line: &str) -> Option<Map> {
    let value = line.split_whitespace().filter_map(|w| w.strip_prefix("ds=")).find(|v| {
        let name = v.split([';', ' ']).next().unwrap_or("").to_ascii_lowercase();
        NAMES.contains(&name.as_str())
    })?;
    let mut map = Map::new();
    for pair in value.split(';').skip(1) {
        if let Some((key, value)) = pair.split_once('=') {
            let key = match key {
                "h" => "local-hostname",
                "i" => "instance-id",
                "s" => "seedfrom",
                other => other,
            };
            map.insert(key, value);
        }
    }
    // `nocloud-net` is the old name of a seed that needs the network.
    if !map.contains_key("dsmode") {
        let from = map.get("seedfrom").and_then(Value::as_str);
        let local = from.map_or(!value.to_ascii_lowercase().starts_with(NAMES[1]), |s| local_folder(s).is_some());
        map.insert("dsmode", if local { "local" } else { "net" });
    }
    Some(map)
}

impl Seed {
    /// A seed of what is known already, found at `place`.
    pub fn new(metadata: Map, user_data: Option<Vec<u8>>, place: &str) -> Seed {
        Seed { metadata, user_data, found: vec![place.to_owned()], ..Seed::default() }
    }

    /// What was there first stays.
    fn take_metadata(&mut self, more: Map) {
        for (key, value) in more.into_entries() {
            if !self.metadata.contains_key(&key) {
                self.metadata.insert(key, value);
            }
        }
    }

    /// Adds the files of a seed: what was there first of the meta-data stays, the rest is replaced.
    pub fn take_files(&mut self, files: &Files, place: &str) {
        let text = |name: &str| files.get(name).map(String::from_utf8_lossy);
        let parse = |name: &str, problems: &mut Vec<String>| {
            let document = format!("{name} of {place}");
            match text(name).map(|t| yaml::parse(&document, &t)) {
                Some(Ok(value)) => Some(value).filter(|v| !v.is_null()),
                Some(Err(e)) => {
                    problems.push(e.to_string());
                    None
                }
                None => None,
            }
        };
        match parse("meta-data", &mut self.problems) {
            Some(Value::Map(map)) => self.take_metadata(map),
            Some(other) => self
                .problems
                .push(crate::document::wrong(&format!("meta-data of {place}"), "a mapping", &other).to_string()),
            None => {}
        }
        if let Some(bytes) = files.get("user-data") {
            self.user_data = Some(bytes.to_vec());
        }
        if let Some(bytes) = files.get("vendor-data") {
            self.vendor_data = Some(bytes.to_vec());
        }
        if let Some(network) = parse("network-config", &mut self.problems) {
            self.network = Some(network);
        }
        self.found.push(place.to_owned());
    }

    fn take_inline(&mut self, meta: &Value, user: &Value, all: &Value) {
        match meta {
            Value::Map(map) => self.take_metadata(map.clone()),
            Value::String(text) => match yaml::parse("datasource: NoCloud: meta-data", text) {
                Ok(Value::Map(map)) => self.take_metadata(map),
                Ok(other) => self
                    .problems
                    .push(crate::document::wrong("datasource: NoCloud: meta-data", "a mapping", &other).to_string()),
                Err(e) => self.problems.push(e.to_string()),
            },
            other => self
                .problems
                .push(crate::document::wrong("datasource: NoCloud: meta-data", "a mapping", other).to_string()),
        }
        self.user_data = user.bytes().map(<[u8]>::to_vec);
        self.vendor_data =
            all.get("vendor-data").and_then(Value::bytes).map(<[u8]>::to_vec).or(self.vendor_data.take());
        match all.get("network-config") {
            Some(Value::String(text)) => match yaml::parse("datasource: NoCloud: network-config", text) {
                Ok(value) => self.network = Some(value),
                Err(e) => self.problems.push(e.to_string()),
            },
            Some(value) => self.network = Some(value.clone()),
            None => {}
        }
        self.found.push("ds_config".into());
    }

    /// The instance, by cloud-init's name of the class.
    pub fn finish(mut self, class: &str) -> Found {
        if !self.metadata.contains_key("dsmode") {
            self.metadata.insert("dsmode", "net");
        }
        let text = |key: &str| self.metadata.get(key).and_then(Value::text).filter(|t| !t.is_empty());
        let eni = text("network-interfaces").map(NetworkData::Eni);
        let place = self.found.last().cloned().unwrap_or_default();
        let places = self.found.join(",");
        let kind = if places.starts_with("/dev/") { "config-disk" } else { "seed-dir" };
        let instance = Instance {
            source: super::marks::NAME.into(),
            class: class.into(),
            platform: if self.is_lxd { "lxd" } else { "nocloud" }.into(),
            cloud_name: cloud_name(&self.metadata, "unknown"),
            subplatform: format!("{kind} ({places})"),
            instance_id: text("instance-id").unwrap_or_else(|| DEFAULT_ID.into()),
            local_hostname: text("local-hostname").or_else(|| text("hostname")),
            availability_zone: text("availability-zone").or_else(|| text("availability_zone")),
            region: text("region"),
            dsmode: text("dsmode").as_deref().and_then(DsMode::named).unwrap_or_default(),
            public_keys: public_keys(self.metadata.get("public-keys").or_else(|| self.metadata.get("public_keys"))),
            launch_index: launch_index(&self.metadata),
            user_data: self.user_data.filter(|b| !b.is_empty()).map(Bytes::from),
            vendor_data: self.vendor_data.map_or(Value::Null, Value::of_bytes),
            network: self.network.map(NetworkData::Cloud).or(eni),
            metadata: Value::Map(self.metadata),
            problems: self.problems,
            ..Instance::default()
        };
        Found { instance, place }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_names_and_seeds() {
        let map = from_line("quiet ds=nocloud;h=web;i=i-1;s=http://169.254.1.1/ ro").unwrap();
        assert_eq!(map.get("local-hostname"), Some(&Value::from("web")));
        assert_eq!(map.get("instance-id"), Some(&Value::from("i-1")));
        assert_eq!(map.get("dsmode"), Some(&Value::from("net")));
        assert!(from_line("ds=NoCloud").is_some());
        assert!(from_line("ds=nocloudy").is_none());
        assert!(from_line("ads=nocloud").is_none());
    }

    #[test]
    fn the_first_meta_data_and_the_last_user_data_win() {
        let mut seed = Seed::default();
        seed.take_metadata(from_line("ds=nocloud;h=line").unwrap());
        seed.found.push("cmdline".into());
        let mut files = Files::default();
        files.insert("meta-data", b"instance-id: iid-1\nlocal-hostname: drive\npublic-keys: [ssh-rsa A]\n".to_vec());
        files.insert("user-data", b"#cloud-config\n".to_vec());
        files.insert("network-config", b"version: 2\n".to_vec());
        seed.take_files(&files, "/dev/vdb");
        let found = seed.finish("DataSourceNoCloud").instance;
        assert_eq!(found.local_hostname.as_deref(), Some("line"));
        assert_eq!(found.instance_id, "iid-1");
        assert_eq!(found.subplatform, "seed-dir (cmdline,/dev/vdb)");
        assert_eq!(found.public_keys, ["ssh-rsa A"]);
        assert!(matches!(found.network, Some(NetworkData::Cloud(Value::Map(_)))));
    }

    #[test]
    fn a_seed_elsewhere_replaces_what_it_has() {
        let mut seed = Seed::default();
        let mut files = Files::default();
        for name in ["meta-data", "user-data", "vendor-data", "network-config"] {
            files.insert(name, b"version: 2\n".to_vec());
        }
        seed.take_files(&files, "/dev/vdb");
        let mut files = Files::default();
        files.insert("meta-data", b"version: 3\ninstance-id: i\n".to_vec());
        files.insert("user-data", b"there".to_vec());
        files.insert("vendor-data", b"#cloud-config\n".to_vec());
        seed.take_files(&files, "h/seed/");
        let found = seed.finish("DataSourceNoCloudNet").instance;
        assert_eq!(found.metadata.get("version").and_then(Value::as_int), Some(2));
        assert_eq!(found.instance_id, "i");
        assert_eq!(found.user_data.as_deref(), Some(&b"there"[..]));
        assert_eq!(found.vendor_data.text().as_deref(), Some("#cloud-config\n"));
        assert!(found.network.is_some(), "it has none, so that the drive's stays");
    }

    #[test]
    fn a_broken_document_is_told_and_the_rest_is_used() {
        let mut seed = Seed::default();
        let mut files = Files::default();
        files.insert("meta-data", b"{broken: [".to_vec());
        files.insert("user-data", b"x".to_vec());
        seed.take_files(&files, "/dev/vdb");
        let found = seed.finish("DataSourceNoCloud").instance;
        assert_eq!(found.instance_id, "nocloud");
        assert!(found.problems[0].starts_with("meta-data of /dev/vdb: not valid YAML"), "{:?}", found.problems);
        assert!(found.user_data.is_some());
    }
}
