//! NoCloud's local sources: a drive labelled cidata, a seed folder, the kernel command line, the DMI serial
//! number.
//!
//! Follows cloud-init's documentation, "NoCloud": all finds are merged; the first takes precedence for
//! meta-data, and the last for user-data, vendor-data and network-config.

use super::marks::{LABEL, SEEDS, is_seed};
use super::place::{FILES, file_at, local_folder, substituted};
use crate::base::budget;
use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::document::{Bytes, InstancePart, Map, Taken, Value, yaml};
use crate::drive::Files;
use crate::instance::{DsMode, Instance, NetworkData};
use crate::machine::beneath;
use crate::source::documents::{availability_zone, cloud_name, launch_index};
use crate::source::keys::public_keys;
use crate::source::search::{Found, Search};
use std::rc::Rc;

/// The names of the datasource in `ds=`.
const NAMES: [&str; 2] = ["nocloud", "nocloud-net"];
/// The instance-id of a seed that lacks one.
pub const DEFAULT_ID: &str = "nocloud";

/// The file with the signature of the user-data, for a trust policy.
const SIGNATURE: &str = "user-data.sig";

/// The data found so far.
#[derive(Clone, Default)]
pub struct Seed {
    metadata: Map,
    user_data: Option<Bytes>,
    signature: Option<Bytes>,
    vendor_data: Option<Bytes>,
    network: Option<Value>,
    /// What notes the documents of its files.
    taken: Taken,
    pub(super) problems: Problems,
    found: Vec<String>,
    /// Whether LXD made the machine: its socket exists.
    is_lxd: bool,
}

/// Reads everything local. A `seedfrom` with a URL is left to the service, because it needs the network.
///
/// # Errors
/// A drive or folder has an invalid document.
pub fn read(search: &mut Search) -> Result<Option<Found>> {
    let mut seed = gather(search);
    if seed.found.is_empty() {
        return Ok(None);
    }
    if let Some(from) = seed.from(search) {
        let Some(folder) = local_folder(&from) else {
            return Ok(None);
        };
        let mut files = Files::default();
        files.keep(search.taken());
        for name in FILES {
            if let Some(bytes) = search.root.read(&file_at(folder, name))? {
                files.insert(name, bytes);
            }
        }
        if !is_seed(&files) {
            let missing = format!("NoCloud: seedfrom: expected meta-data and user-data in the image at {folder}");
            return Err(Error::new(missing));
        }
        seed.take_files(&files, &from);
    }
    Ok(Some(seed.finish("DataSourceNoCloud", DEFAULT_ID)))
}

/// The local data, and the URL of the rest. None if no `seedfrom` has one.
pub(super) fn remote(search: &mut Search) -> Option<(Seed, String)> {
    let seed = gather(search);
    let from = seed.from(search)?;
    local_folder(&from).is_none().then_some((seed, from))
}

/// Collects what the machine, the image and the drives say, without following `seedfrom`.
fn gather(search: &mut Search) -> Seed {
    let mut seed = Seed { is_lxd: beneath::exists(&search.machine.base, "dev/lxd/sock"), ..Seed::default() };
    for (place, line) in
        [("dmi", search.machine.dmi("product_serial")), ("cmdline", Some(search.machine.cmdline.text().to_owned()))]
    {
        if let Some(value) = line.as_deref().and_then(in_line) {
            search.taken().add(place, value.as_bytes());
            seed.take_metadata(from_value(value));
            seed.found.push(place.into());
        }
    }
    let mut credentials = super::credentials::files(search.machine);
    credentials.keep(search.taken());
    if is_seed(&credentials) {
        seed.take_files(&credentials, "credentials");
    }
    let folders =
        SEEDS.into_iter().filter_map(|folder| Some((folder.to_owned(), Rc::new(search.seed_folder(folder)?))));
    if let Some((folder, files)) = best(folders) {
        seed.take_files(&files, &folder);
    }
    let settings = search.settings(super::marks::NAME);
    if let Some(from) = settings.and_then(|s| s.get("seedfrom")).and_then(Value::text).filter(|f| !f.is_empty()) {
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
    let drives = search.drives_labelled(&label).into_iter().filter_map(|drive| {
        let files = search.open_drive(&drive)?;
        if !is_seed(&files) {
            let none = format!("{drive} is labelled {label} and has neither meta-data nor user-data: it is not used");
            search.problem(none);
        }
        Some((drive, files))
    });
    if let Some((drive, files)) = best(drives) {
        seed.take_files(&files, &drive);
    }
    seed
}

/// The first seed with both meta-data and user-data, else the first with one of them.
fn best(seeds: impl Iterator<Item = (String, Rc<Files>)>) -> Option<(String, Rc<Files>)> {
    let mut partial = None;
    for (place, files) in seeds.filter(|(_, files)| is_seed(files)) {
        if FILES[..2].iter().all(|name| files.contains(name)) {
            return Some((place, files));
        }
        partial.get_or_insert((place, files));
    }
    partial
}

/// The instance of one tree of files alone, for `--seed`.
pub(super) fn of_files(files: &Files, place: &str) -> Option<Instance> {
    let mut seed = Seed::default();
    is_seed(files).then(|| seed.take_files(files, place))?;
    Some(seed.finish("DataSourceNoCloud", DEFAULT_ID).instance)
}

/// The value of `ds=nocloud;…` in a kernel command line or serial number. The last one takes precedence.
fn in_line(line: &str) -> Option<&str> {
    let is_ours = |v: &&str| NAMES.contains(&v.split(';').next().unwrap_or("").to_ascii_lowercase().as_str());
    line.split_whitespace().filter_map(|w| w.strip_prefix("ds=")).rfind(is_ours)
}

/// Parses `nocloud;h=name;i=id;s=from`. The keys h, i and s are short for local-hostname, instance-id and seedfrom.
fn from_value(value: &str) -> Map {
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
    map
}

/// Adds those entries of `more` that `map` lacks, recursively.
fn complete(map: &mut Map, more: Map) {
    for (key, value) in more.into_entries() {
        if !map.contains_key(&key) {
            map.insert(key, value);
        } else if let (Some(Value::Map(map)), Value::Map(more)) = (map.get_mut(&key), value) {
            complete(map, more);
        }
    }
}

impl Seed {
    /// A seed of what is known already, found at `place`.
    pub fn new(metadata: Map, user_data: Option<Bytes>, place: &str) -> Seed {
        Seed { metadata, user_data, found: vec![place.to_owned()], ..Seed::default() }
    }

    /// Adds metadata; existing values stay.
    fn take_metadata(&mut self, more: Map) {
        complete(&mut self.metadata, more);
    }

    /// The place of the rest (`seedfrom`), if the metadata names one.
    fn from(&self, search: &Search) -> Option<String> {
        Some(substituted(&self.metadata.get("seedfrom")?.text()?, search.machine))
    }

    /// Adds the files of a seed: existing metadata stays, everything else is replaced.
    pub fn take_files(&mut self, files: &Files, place: &str) {
        self.taken = files.taken().clone();
        let parse = |name: &str| {
            let document = format!("{name} of {place}");
            let problem = match yaml::parse(&document, &String::from_utf8_lossy(files.get(name)?)) {
                Ok(Value::Map(map)) => return Some(map),
                Ok(Value::Null) => return None,
                Ok(other) => crate::document::wrong(&document, "a mapping", &other),
                Err(e) => e,
            };
            self.problems.warn(problem.to_string());
            None
        };
        let (metadata, network) = (parse("meta-data"), parse("network-config"));
        self.take_metadata(metadata.unwrap_or_default());
        self.network = network.map(Value::Map).or(self.network.take());
        if let Some(bytes) = files.shared("user-data") {
            self.user_data = Some(bytes.clone());
            self.signature = files.shared(SIGNATURE).cloned();
        }
        if let Some(bytes) = files.shared("vendor-data") {
            self.vendor_data = Some(bytes.clone());
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
                    .warn(crate::document::wrong("datasource: NoCloud: meta-data", "a mapping", &other).to_string()),
                Err(e) => self.problems.warn(e.to_string()),
            },
            other => self
                .problems
                .warn(crate::document::wrong("datasource: NoCloud: meta-data", "a mapping", other).to_string()),
        }
        let vendor = all.get("vendor-data").and_then(Value::bytes);
        self.user_data = user.bytes().map(|bytes| bytes.to_vec().into());
        self.signature = None;
        self.vendor_data = vendor.map(|bytes| bytes.to_vec().into()).or(self.vendor_data.take());
        const NETWORK: &str = "datasource: NoCloud: network-config";
        let network = match all.get("network-config") {
            Some(Value::String(text)) => yaml::parse(NETWORK, text),
            other => Ok(other.cloned().unwrap_or_default()),
        };
        match network {
            Ok(Value::Null) => {}
            Ok(network @ Value::Map(_)) => self.network = Some(network),
            Ok(other) => self.problems.warn(crate::document::wrong(NETWORK, "a mapping", &other).to_string()),
            Err(e) => self.problems.warn(e.to_string()),
        }
        self.found.push("ds_config".into());
    }

    /// Where its parts were found.
    pub fn places(&self) -> String {
        self.found.join(",")
    }

    /// The instance, with cloud-init's name of the class, and `default_id` if it has no instance-id.
    pub fn finish(mut self, class: &str, default_id: &str) -> Found {
        if self.metadata.get("instance-id").and_then(Value::text).is_none_or(|id| id.is_empty()) {
            self.metadata.insert("instance-id", default_id);
        }
        if !self.metadata.contains_key("dsmode") {
            self.metadata.insert("dsmode", "net");
        }
        let text = |key: &str| self.metadata.get(key).and_then(Value::text).filter(|t| !t.is_empty());
        let eni = text("network-interfaces").filter(|_| self.network.is_none()).map(NetworkData::Eni);
        if eni.is_some() {
            // A network-config that says nothing is not what is used: a policy judges the metadata in its place.
            self.taken.forget(InstancePart::Network);
        }
        // A value of its own: the file is still held.
        let paid = self.vendor_data.as_ref().map_or(Ok(()), |data| budget::take(data.len()));
        if let Err(e) = paid {
            self.problems.warn(format_args!("vendor-data is ignored: {e}"));
            self.vendor_data = None;
        }
        let place = self.found.last().cloned().unwrap_or_default();
        let places = self.places();
        let kind = if places.starts_with("/dev/") { "config-disk" } else { "seed-dir" };
        let instance = Instance {
            source: super::marks::NAME.into(),
            class: class.into(),
            platform: if self.is_lxd { "lxd" } else { "nocloud" }.into(),
            cloud_name: cloud_name(&self.metadata, "unknown"),
            subplatform: format!("{kind} ({places})"),
            instance_id: text("instance-id").unwrap_or_default(),
            local_hostname: text("local-hostname"),
            availability_zone: availability_zone(&self.metadata),
            region: text("region"),
            dsmode: text("dsmode").as_deref().and_then(DsMode::named).unwrap_or_default(),
            public_keys: public_keys(self.metadata.get("public-keys").or_else(|| self.metadata.get("public_keys"))),
            launch_index: launch_index(&self.metadata),
            user_data: self.user_data.filter(|b| !b.is_empty()),
            signature: self.signature,
            vendor_data: self.vendor_data.map_or(Value::Null, |b| Value::of_bytes(b.into_vec())),
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
    use crate::base::deadline::Deadline;
    use crate::base::testing::TempDir;
    use crate::root::{Attr, Root, Use};
    use std::time::Duration;

    #[test]
    fn the_command_line_names_and_seeds() {
        let of = |line: &str| in_line(line).map(from_value);
        let map = of("quiet ds=nocloud;h=web;i=i-1;s=http://169.254.1.1/ ro").unwrap();
        assert_eq!(map.get("local-hostname"), Some(&Value::from("web")));
        assert_eq!(map.get("instance-id"), Some(&Value::from("i-1")));
        assert_eq!(map.get("dsmode"), Some(&Value::from("net")));
        assert!(of("ds=NoCloud").is_some());
        assert!(of("ds=nocloudy").is_none());
        let last = of("ds=nocloud;i=a ds=nocloud-net;i=b ds=ec2").unwrap();
        assert_eq!(last.get("instance-id"), Some(&Value::from("b")));
        assert_eq!(last.get("dsmode"), Some(&Value::from("net")));
        assert!(of("ads=nocloud").is_none());
    }

    #[test]
    fn first_meta_data_and_last_user_data_win() {
        let mut seed = Seed::default();
        seed.take_metadata(from_value("nocloud;h=line"));
        seed.found.push("cmdline".into());
        let mut files = Files::default();
        let meta_data =
            "instance-id: iid-1\nlocal-hostname: drive\npublic-keys: [ssh-rsa A]\nplacement: {availability-zone: z}\n";
        files.insert("meta-data", meta_data.as_bytes().to_vec());
        files.insert("user-data", b"#cloud-config\n".to_vec());
        files.insert("network-config", b"version: 2\n".to_vec());
        seed.take_files(&files, "/dev/vdb");
        let found = seed.finish("DataSourceNoCloud", DEFAULT_ID).instance;
        assert_eq!(found.local_hostname.as_deref(), Some("line"));
        assert_eq!(found.instance_id, "iid-1");
        assert_eq!(found.subplatform, "seed-dir (cmdline,/dev/vdb)");
        assert_eq!((found.public_keys.join(" "), found.availability_zone.as_deref()), ("ssh-rsa A".into(), Some("z")));
        assert!(matches!(found.network, Some(NetworkData::Cloud(Value::Map(_)))));
    }

    /// As in cloud-init, whose sources know one name.
    #[test]
    fn only_the_local_hostname_names_the_machine() {
        let mut files = Files::default();
        files.insert("meta-data", b"instance-id: i-1\nhostname: other\n".to_vec());
        let mut seed = Seed::default();
        seed.take_files(&files, "x");
        assert_eq!(seed.finish("DataSourceNoCloud", DEFAULT_ID).instance.local_hostname, None);
    }

    #[test]
    fn mappings_in_the_meta_data_complete_each_other() {
        let mut seed = Seed::default();
        for (meta_data, place) in [("public-keys: {a: ssh-rsa A}\n", "x"), ("public-keys: {a: B, c: ssh-rsa C}\n", "y")]
        {
            let mut files = Files::default();
            files.insert("meta-data", meta_data.as_bytes().to_vec());
            seed.take_files(&files, place);
        }
        assert_eq!(seed.finish("DataSourceNoCloud", DEFAULT_ID).instance.public_keys, ["ssh-rsa A", "ssh-rsa C"]);
    }

    #[test]
    fn seedfrom_of_the_image_itself() {
        let dir = TempDir::new("seedfrom");
        let mut root = dir.root(Use::Tree);
        dir.write("sys/class/dmi/id/product_serial", "AB 1\n");
        for (name, text) in [("meta-data", "instance-id: i-1\n"), ("user-data", "#!/bin/sh\n")] {
            root.write(&format!("/seed/AB 1/{name}.txt"), text, Attr::root(0o600)).unwrap();
        }
        root.write("/seed/other/meta-data", "instance-id: i-2\n", Attr::root(0o600)).unwrap();
        let machine = dir.machine();
        let id = |from: &str| {
            let config = yaml::parse("t", &format!("datasource: {{NoCloud: {{seedfrom: '{from}'}}}}")).unwrap();
            let found = read(&mut Search::new(&machine, &root, &config, Deadline::after(Duration::from_secs(5))));
            found.map(|found| found.map(|f| f.instance.instance_id))
        };
        assert_eq!(id("file:///seed/__dmi.system-serial-number__/%s.txt"), Ok(Some("i-1".into())));
        assert_eq!(id("/seed/other"), Ok(Some("i-2".into())));
        assert!(id("file:///seed/none/").is_err());
        assert_eq!((id("http://h/"), id("")), (Ok(None), Ok(None)));
    }

    #[test]
    fn configured_network_is_a_mapping_or_absent() {
        let network = |config: &str| {
            let mut seed = Seed::default();
            let all =
                yaml::parse("t", &format!("{{meta-data: {{}}, user-data: '', network-config: {config}}}")).unwrap();
            seed.take_inline(&Value::Map(Map::new()), &"".into(), &all);
            let found = seed.finish("DataSourceNoCloud", DEFAULT_ID).instance;
            (found.network.is_some(), found.problems.len())
        };
        assert_eq!(["{version: 2}", "'version: 2'"].map(network), [(true, 0); 2]);
        assert_eq!(["null", "''", "text", "[eth0]"].map(network), [(false, 0), (false, 0), (false, 1), (false, 1)]);
    }

    #[test]
    fn complete_seed_beats_one_lacking_a_document() {
        let dir = TempDir::new("whole");
        let mut root = dir.root(Use::Tree);
        let machine = dir.machine();
        let id = |root: &Root| {
            let mut search = Search::new(&machine, root, &Value::Null, Deadline::after(Duration::from_secs(5)));
            read(&mut search).unwrap().map(|found| found.instance.instance_id)
        };
        assert_eq!(id(&root), None);
        root.write(&format!("{}/meta-data", SEEDS[0]), "instance-id: part\n", Attr::root(0o600)).unwrap();
        assert_eq!(id(&root).as_deref(), Some("part"));
        for (name, text) in [("meta-data", "instance-id: whole\n"), ("user-data", "")] {
            root.write(&format!("{}/{name}", SEEDS[1]), text, Attr::root(0o600)).unwrap();
        }
        assert_eq!(id(&root).as_deref(), Some("whole"));
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
        let found = seed.finish("DataSourceNoCloudNet", DEFAULT_ID).instance;
        assert_eq!(found.metadata.get("version").and_then(Value::as_int), Some(2));
        assert_eq!(found.instance_id, "i");
        assert_eq!(found.user_data.as_deref(), Some(&b"there"[..]));
        assert_eq!(found.vendor_data.text().as_deref(), Some("#cloud-config\n"));
        assert!(found.network.is_some(), "it has none, so that the drive's stays");
    }

    #[test]
    fn reports_a_broken_document_and_uses_rest() {
        let mut seed = Seed::default();
        let mut files = Files::default();
        files.insert("meta-data", b"{broken: [".to_vec());
        files.insert("user-data", b"x".to_vec());
        files.insert("network-config", b"[eth0]\n".to_vec());
        seed.take_files(&files, "/dev/vdb");
        let found = seed.finish("DataSourceNoCloud", DEFAULT_ID).instance;
        assert_eq!(found.instance_id, "nocloud");
        assert_eq!(found.metadata.get("instance-id"), Some(&Value::from("nocloud")));
        assert!(
            found.problems.entries()[0].to_string().starts_with("meta-data of /dev/vdb: not valid YAML"),
            "{:?}",
            found.problems
        );
        assert!(
            found.problems.entries()[1].to_string().starts_with("network-config of /dev/vdb: expected a mapping"),
            "{:?}",
            found.problems
        );
        assert!(found.network.is_none());
        assert!(found.user_data.is_some());
    }
}
