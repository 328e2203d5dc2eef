//! instance-data.json, which templates, `query` and users' scripts read: one file with everything that only
//! root can read, and a copy without secrets for everyone.

use super::{Instance, NetworkData, host_name, state, vendor_document};
use crate::base::error::{Context, Result};
use crate::document::{Map, Value, json};
use crate::machine::{Distro, Family, Machine};
use crate::root::{Attr, Content, MAX_READ, Root, installed};
use std::io::{self, Write};
use std::sync::Arc;

/// Replaces a secret in the public copy (cloud-init's words, which scripts compare with).
pub const REDACTED: &str = "redacted for non-root user";
/// Keys whose values are secret, at any depth.
const SENSITIVE: [&str; 20] = [
    "admin_pass",
    "cloud-init.user-data",
    "cloud-init.vendor-data",
    "combined_cloud_config",
    "merged_cfg",
    "merged_system_cfg",
    "random_seed",
    "security-credentials",
    "startup-script",
    "user-data",
    "user.meta-data",
    "user.user-data",
    "user.vendor-data",
    "user_data",
    "userdata",
    "vendor-data",
    "vendor_data",
    "vendor_data2",
    "vendordata",
    "vendordata2",
];
/// Where `ds` has what the machine's owner set: that of OpenStack and config drives (nova's `--property`), and Oracle's.
const OF_USER: [&str; 3] = ["ds/meta_data/meta/", "ds/metadata/", "ds/extendedMetadata/"];
/// The image's configuration, by cloud-init's old name and its new one, each with its description. Templates and tests print these: they
/// are cloud-init's, and have no `: ` that a YAML document could not hold.
const IMAGE_CONFIG: [(&str, &str); 2] = [
    ("merged_cfg", "DEPRECATED: Use merged_system_cfg. Will be dropped from 24.1"),
    ("merged_system_cfg", "Merged cloud-init system config from /etc/cloud/cloud.cfg and /etc/cloud/cloud.cfg.d/"),
];
/// The key of a description.
const DOC_KEY: &str = "_doc";
const COMBINED_DOC: &str = "Image configuration merged with metadata, vendordata and userdata";
/// cloud-init's switches, which are set when a distribution builds it (cloud-init 26.2, features.py), and their values there.
const FEATURES: [(&str, bool); 8] = [
    ("ALLOW_EC2_MIRRORS_ON_NON_AWS_INSTANCE_TYPES", false),
    ("APT_DEB822_SOURCE_LIST_FILE", true),
    ("ERROR_ON_USER_DATA_FAILURE", true),
    ("EXPIRE_APPLIES_TO_HASHED_USERS", true),
    ("MANUAL_NETWORK_WAIT", true),
    ("NETPLAN_CONFIG_ROOT_READ_ONLY", true),
    ("NOCLOUD_SEED_URL_APPEND_FORWARD_SLASH", true),
    ("STRIP_INVALID_MTU", false),
];
const FEATURES_KEY: &str = "features";
/// The part of it that is left out there, and stored separately in root's file.
const SYSTEM_INFO: &str = "system_info";
const DOC: &str = "EXPERIMENTAL: The structure and format of content scoped under the 'ds' key may change in subsequent releases of cloud-init.";

/// The data without user-data, which are the variables of templates. `image` is the image's configuration.
pub fn standard(root: &Root, machine: &Machine, distro: &Distro, instance: &Instance, image: &Value) -> Map {
    let mut ds = instance.ds.clone();
    if ds.is_empty() {
        ds.insert("meta_data", instance.metadata.clone());
        if !instance.ec2_metadata.is_null() {
            ds.insert("ec2_metadata", instance.ec2_metadata.clone());
        }
        if let Some(NetworkData::Openstack(network)) = &instance.network {
            ds.insert("network_json", network.clone());
        }
    }
    ds.insert(DOC_KEY, DOC);
    let os = OsRelease::read(root);
    let kernel = Kernel::read(machine);
    let mut data = Map::new();
    data.insert("base64_encoded_keys", Vec::<Value>::new());
    data.insert("ds", ds);
    data.insert(FEATURES_KEY, features());
    for (key, doc) in IMAGE_CONFIG {
        let config = image.as_map().into_iter().flat_map(Map::iter).filter(|(key, _)| *key != SYSTEM_INFO);
        let config = config.map(|(key, value)| (key, value.clone()));
        data.insert(key, config.chain([(DOC_KEY, doc.into())]).collect::<Map>());
    }
    let python = python_version(root);
    data.insert("sys_info", sys_info(&os, &kernel, distro, &python));
    let mut standard = v1(&os, &kernel, distro, instance);
    standard.insert("python_version", python);
    if instance.local_hostname.is_none() {
        let name = system_name(root, &instance.instance_id);
        for key in ["local-hostname", "local_hostname"] {
            standard.insert(key, name.as_str());
        }
    }
    data.insert("v1", standard);
    data
}

/// The short host name of a machine whose source lacks one: the name in the image's file, as in cloud-init. It
/// stays the same for a whole boot, although modules may write another name to the file.
fn system_name(root: &Root, instance_id: &str) -> String {
    let earlier = root.text_at_most(&format!("{}/{PUBLIC_FILE}", state::RUN_DIR), MAX_READ);
    let earlier = json::parse(PUBLIC_FILE, earlier.as_bytes()).unwrap_or_default();
    let of_earlier = |key: &str| earlier.at(&["v1", key]).and_then(Value::as_str);
    if let Some(name) = of_earlier("local_hostname").filter(|_| of_earlier("instance_id") == Some(instance_id)) {
        return name.to_owned();
    }
    image_name(root)
}

/// The short host name in the image's file.
pub fn image_name(root: &Root) -> String {
    let text = root.text("/etc/hostname");
    text.split_whitespace().next().and_then(|name| name.split('.').next()).unwrap_or("localhost").to_owned()
}

/// The values of os-release(5) that cloud-init uses (cloud-init 26.2, util.py, `get_linux_distro`).
struct OsRelease {
    id: String,
    version: String,
    codename: String,
}

impl OsRelease {
    fn read(root: &Root) -> OsRelease {
        let text = installed::os_release(root);
        let value = |key: &str| {
            let line = text.lines().find_map(|l| l.trim().strip_prefix(key)?.strip_prefix('='));
            line.map(|v| v.trim_matches(['"', '\'']).to_owned()).unwrap_or_default()
        };
        let id = value("ID");
        let codename = match id.as_str() {
            id if id.contains("sles") || id.contains("suse") => std::env::consts::ARCH.to_owned(),
            "alpine" | "photon" | "virtuozzo" => value("PRETTY_NAME"),
            _ => match value("VERSION_CODENAME") {
                // `VERSION="7 (Core)"`
                name if name.is_empty() => {
                    let version = value("VERSION");
                    let inner = version.split_once(" (").and_then(|(_, rest)| rest.split_once(')'));
                    inner.map(|(name, _)| name.to_owned()).unwrap_or_default()
                }
                name => name,
            },
        };
        OsRelease { id: if id == "rhel" { "redhat".into() } else { id }, version: value("VERSION_ID"), codename }
    }
}

struct Kernel {
    release: String,
    version: String,
    hostname: String,
}

impl Kernel {
    fn read(machine: &Machine) -> Kernel {
        let fact = |name: &str| {
            let text = machine.fact(&format!("proc/sys/kernel/{name}")).unwrap_or_default();
            text.trim().to_owned()
        };
        Kernel { release: fact("osrelease"), version: fact("version"), hostname: fact("hostname") }
    }
}

fn features() -> Map {
    let switches = FEATURES.iter().map(|(name, value)| (*name, Value::from(*value)));
    switches.chain([("DEPRECATION_INFO_BOUNDARY", "devel".into())]).collect()
}

/// The version of the root's Python as the link to its program has it, such as 3.13. Empty if there is none.
fn python_version(root: &Root) -> String {
    let link = root.read_link("/usr/bin/python3").unwrap_or_default();
    let version = link.rsplit('/').next().and_then(|name| name.strip_prefix("python")).unwrap_or_default();
    if version.starts_with("3.") { version.to_owned() } else { String::new() }
}

fn sys_info(os: &OsRelease, kernel: &Kernel, distro: &Distro, python: &str) -> Map {
    let list = |items: [&str; 3]| items.map(Value::from).to_vec();
    let arch = std::env::consts::ARCH;
    let mut info = Map::new();
    info.insert("dist", list([&os.id, &os.version, &os.codename]));
    info.insert("platform", format!("Linux-{}-{arch}", kernel.release));
    info.insert("python", python);
    info.insert("release", kernel.release.as_str());
    info.insert("system", "Linux");
    let uname = ["Linux", &kernel.hostname, &kernel.release, &kernel.version, arch, ""].map(Value::from);
    info.insert("uname", uname.to_vec());
    info.insert("variant", variant(distro));
    info
}

/// The kind of distribution (cloud-init 26.2, util.py, `_get_variant`).
fn variant(distro: &Distro) -> String {
    let name = match (distro.family, distro.name) {
        (Family::Suse, _) => "suse",
        (_, "amazon" | "cos" | "gentoo" | "unknown") => "linux",
        (_, name) => name,
    };
    name.to_ascii_lowercase()
}

fn v1(os: &OsRelease, kernel: &Kernel, distro: &Distro, instance: &Instance) -> Map {
    let optional = |text: &Option<String>| text.as_deref().map_or(Value::Null, Value::from);
    let mut v1 = Map::new();
    v1.insert("_beta_keys", vec![Value::from("subplatform")]);
    let mut both = |dashed: &str, value: Value| {
        v1.insert(dashed, value.clone());
        v1.insert(dashed.replace('-', "_"), value);
    };
    both("availability-zone", optional(&instance.availability_zone));
    both("cloud-name", instance.cloud_name.as_str().into());
    both("instance-id", instance.instance_id.as_str().into());
    let hostname = instance.local_hostname.as_deref().map(host_name);
    let hostname = hostname.and_then(|h| h.split('.').next().map(str::to_owned));
    both("local-hostname", optional(&hostname));
    v1.insert("cloud_id", cloud_id(instance));
    v1.insert("distro", if os.id.is_empty() { distro.name } else { &os.id });
    v1.insert("distro_release", os.codename.as_str());
    v1.insert("distro_version", os.version.as_str());
    v1.insert("kernel_release", kernel.release.as_str());
    v1.insert("machine", std::env::consts::ARCH);
    v1.insert("platform", instance.platform.as_str());
    v1.insert("public_ssh_keys", instance.public_keys.iter().map(|k| Value::from(k.as_str())).collect::<Vec<_>>());
    v1.insert("region", optional(&instance.region));
    v1.insert("subplatform", instance.subplatform.as_str());
    v1.insert("system_platform", format!("Linux-{}-{}", kernel.release, std::env::consts::ARCH));
    v1.insert("variant", variant(distro));
    v1
}

/// The canonical name of an instance's cloud.
pub fn cloud_id(instance: &Instance) -> String {
    let region = instance.region.as_deref().unwrap_or("");
    canonical_cloud_id(&instance.cloud_name, region, &instance.platform)
}

/// cloud-init's canonical name of the cloud: the cloud's, or if unknown the platform's; partitions of two
/// clouds have names of their own (`sources.canonical_cloud_id`).
pub fn canonical_cloud_id(cloud_name: &str, region: &str, platform: &str) -> String {
    match cloud_name {
        "aws" if region.starts_with("cn-") => "aws-china".into(),
        "aws" if region.starts_with("us-gov-") => "aws-gov".into(),
        "azure" if region.starts_with("china") => "azure-china".into(),
        "" | "unknown" => platform.to_owned(),
        name => name.to_owned(),
    }
}

/// The copy without secrets, for everyone.
const PUBLIC_FILE: &str = "instance-data.json";

/// The file below [`state::RUN_DIR`] with everything, which only root may read.
pub const SENSITIVE_FILE: &str = "instance-data-sensitive.json";

/// The file below [`state::RUN_DIR`] with the merged configuration, which only root may read.
pub const COMBINED_FILE: &str = "combined-cloud-config.json";

/// Writes instance-data.json (0644), instance-data-sensitive.json (0600), combined-cloud-config.json (0600)
/// and the cloud-id files.
///
/// # Errors
/// A path cannot be resolved.
pub fn write(root: &mut Root, standard: Map, instance: &Instance, image: &Value, merged: Arc<Value>) -> Result<()> {
    let run = state::RUN_DIR;
    let mut data = standard;
    data.insert("userdata", instance.user_data.clone().unwrap_or_default());
    data.insert("vendordata", vendor_document(&instance.vendor_data).clone());
    data.insert("vendordata2", vendor_document(&instance.vendor_data2).clone());
    let mut paths = Vec::new();
    let mut public = Map::new();
    for (key, value) in data.iter() {
        public.insert(key, redacted(key, value, key, &mut paths));
    }
    paths.sort_unstable();
    let paths = Value::List(paths.into_iter().map(Value::from).collect());
    data.insert(SYSTEM_INFO, image.get(SYSTEM_INFO).cloned().unwrap_or_default());
    for (name, mut document, mode) in [(PUBLIC_FILE, public, 0o644), (SENSITIVE_FILE, data, 0o600)] {
        document.insert("sensitive_keys", paths.clone());
        put(root, name, mode, move |out| json::write_sorted(document.iter().collect(), out))?;
    }
    write_combined(root, merged)?;
    let id = cloud_id(instance).replace('/', "_");
    let file = format!("{run}/cloud-id-{id}");
    root.write(&file, format!("{id}\n"), Attr::root(0o644))?;
    root.symlink(&format!("{run}/cloud-id"), &file)
}

/// Writes combined-cloud-config.json (0600), the merged configuration.
///
/// # Errors
/// The path cannot be resolved.
pub fn write_combined(root: &mut Root, merged: Arc<Value>) -> Result<()> {
    let added = [(DOC_KEY, COMBINED_DOC.into()), (FEATURES_KEY, features().into())];
    let write = move |out: &mut dyn Write| {
        let of_user = merged.as_map().into_iter().flat_map(Map::iter).filter(|(key, _)| !ADDED.contains(key));
        json::write_sorted(of_user.chain(added.iter().map(|(key, value)| (*key, value))).collect(), out)
    };
    put(root, COMBINED_FILE, 0o600, write)
}

/// The keys of combined-cloud-config.json that are not of the configuration.
const ADDED: [&str; 2] = [DOC_KEY, FEATURES_KEY];

/// Removes from the content of combined-cloud-config.json what is not of the configuration.
pub fn remove_added(combined: &mut Map) {
    ADDED.iter().for_each(|key| drop(combined.remove(key)));
}

/// Writes a document below [`state::RUN_DIR`], piece by piece.
fn put(
    root: &mut Root,
    name: &str,
    mode: u32,
    write: impl Fn(&mut dyn Write) -> io::Result<()> + Send + Sync + 'static,
) -> Result<()> {
    let path = format!("{}/{name}", state::RUN_DIR);
    let content = Content::made(move |out| {
        write(out)?;
        out.write_all(b"\n")
    });
    root.write(&path, content.context(|| format!("failed to write {path}"))?, Attr::root(mode))
}

/// Whether a name chosen by a user indicates that the value is a secret.
fn says_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["pass", "secret", "token", "private"].iter().any(|word| name.contains(word))
}

fn is_of_user(path: &str) -> bool {
    OF_USER.iter().any(|folder| path.starts_with(folder))
}

/// A copy of the value at `key` with secrets replaced; their paths, separated by `/`, are added to `paths`.
fn redacted(key: &str, value: &Value, path: &str, paths: &mut Vec<String>) -> Value {
    let is_secret = SENSITIVE.contains(&key.to_ascii_lowercase().as_str()) || is_of_user(path) && says_secret(key);
    if is_secret && !value.is_null() {
        paths.push(path.to_owned());
        return REDACTED.into();
    }
    match value {
        Value::Map(map) => {
            let copy = map.iter().map(|(key, value)| (key, redacted(key, value, &format!("{path}/{key}"), paths)));
            Value::Map(copy.collect())
        }
        Value::List(list) => {
            Value::List(list.iter().enumerate().map(|(i, v)| redacted("", v, &format!("{path}/{i}"), paths)).collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::Use;

    #[test]
    fn uses_the_images_name_if_source_lacks_one() {
        let dir = TempDir::new("instance-data");
        let mut root = dir.root(Use::Tree);
        let mut name = |file: &str, local: Option<&str>| {
            root.write("/etc/hostname", file, Attr::root(0o644)).unwrap();
            let instance = Instance { local_hostname: local.map(str::to_owned), ..Instance::default() };
            let data = standard(&root, &Machine::default(), &Distro::named("debian"), &instance, &Value::Null);
            let [dashed, plain] = ["local-hostname", "local_hostname"].map(|k| data.get("v1")?.get(k)?.text());
            assert_eq!(dashed, plain);
            plain.unwrap()
        };
        assert_eq!(name("image.example.com\n", None), "image");
        assert_eq!(name("image\n", Some("own.example.com")), "own");
        assert_eq!(name("", None), "localhost");
        assert_eq!(name("", Some("10.0.0.1")), "ip-10-0-0-1");
    }

    #[test]
    fn distributions_have_cloud_inits_names() {
        for (release, names) in [
            ("ID=rhel\nVERSION_ID=9.4\nVERSION=\"9.4 (Plow)\"\n", ["redhat", "9.4", "Plow", "rhel"]),
            ("ID=amzn\nVERSION_ID=2023\nVERSION=2023\n", ["amzn", "2023", "", "linux"]),
            (
                "ID=alpine\nVERSION_ID=3.20.0\nPRETTY_NAME=\"Alpine Linux v3.20\"\n",
                ["alpine", "3.20.0", "Alpine Linux v3.20", "alpine"],
            ),
            ("ID=opensuse-leap\nVERSION_ID=15.6\n", ["opensuse-leap", "15.6", std::env::consts::ARCH, "suse"]),
            ("ID=\"tencentos\"\nVERSION_ID=4.2\n", ["tencentos", "4.2", "", "tencentos"]),
        ] {
            let dir = TempDir::new("distro-names");
            let mut root = dir.root(Use::Tree);
            root.write("/etc/os-release", release, Attr::root(0o644)).unwrap();
            let distro = Distro::of_os_release(release);
            let data = standard(&root, &Machine::default(), &distro, &Instance::default(), &Value::Null);
            let v1 = data.get("v1").unwrap();
            let keys = ["distro", "distro_version", "distro_release", "variant"];
            assert_eq!(keys.map(|key| v1.get(key).and_then(Value::as_str).unwrap()), names);
        }
    }

    #[test]
    fn ds_is_exactly_the_services_document() {
        let dir = TempDir::new("instance-data");
        let mut root = dir.root(Use::Tree);
        let text = br#"{"shape": "s", "metadata": {"role": "db", "user_data": "geheim", "db_password": "geheim"}}"#;
        let Value::Map(ds) = json::parse("t", text).unwrap() else { panic!() };
        let metadata = json::parse("t", br#"{"instance-id": "i-1"}"#).unwrap();
        let instance = Instance { ds, metadata, ..Instance::default() };
        let standard = standard(&root, &Machine::default(), &Distro::named("debian"), &instance, &Value::Null);
        write(&mut root, standard, &instance, &Value::Null, Value::Null.into()).unwrap();
        let read = |name: &str| json::parse("t", root.text(&format!("/run/cloud-init/{name}")).as_bytes()).unwrap();
        let (public, sensitive) = (read("instance-data.json"), read("instance-data-sensitive.json"));
        for (key, value) in [("role", "db"), ("user_data", REDACTED), ("db_password", REDACTED)] {
            assert_eq!(public.at(&["ds", "metadata", key]), Some(&Value::from(value)));
        }
        assert_eq!(sensitive.at(&["ds", "metadata", "db_password"]), Some(&Value::from("geheim")));
        assert_eq!((public.at(&["ds", "shape"]), public.at(&["ds", "meta_data"])), (Some(&Value::from("s")), None));
    }

    #[test]
    fn secrets_are_only_in_the_file_for_root() {
        let dir = TempDir::new("instance-data");
        let mut root = dir.root(Use::Tree);
        root.write("/etc/os-release", "ID=debian\nVERSION_ID=\"12\"\nVERSION_CODENAME=bookworm\n", Attr::root(0o644))
            .unwrap();
        let image = json::parse("t", br#"{"ntp": "geheim", "system_info": {"default_user": "geheim"}}"#).unwrap();
        let instance = Instance {
            instance_id: "i-1".into(),
            cloud_name: "aws".into(),
            region: Some("cn-north-1".into()),
            local_hostname: Some("web.example".into()),
            user_data: Some(b"#cloud-config\npassword: geheim\n".to_vec().into()),
            metadata: json::parse("t", br#"{"admin_pass": "geheim", "User-Data": "geheim", "meta": {"role": "db", "db_password": "geheim", "api": {"Token": "geheim"}}}"#).unwrap(),
            ..Instance::default()
        };
        let standard = standard(&root, &Machine::default(), &Distro::named("debian"), &instance, &image);
        assert_eq!(standard.get("merged_system_cfg").and_then(|c| c.get("ntp")), Some(&Value::from("geheim")));
        let merged = json::parse("t", br#"{"password": "geheim"}"#).unwrap();
        write(&mut root, standard, &instance, &image, merged.into()).unwrap();
        let public = root.text("/run/cloud-init/instance-data.json");
        assert!(!public.contains("geheim"), "{public}");
        let public = json::parse("t", public.as_bytes()).unwrap();
        assert_eq!(public.at(&["ds", "meta_data", "admin_pass"]), Some(&Value::from(REDACTED)));
        assert_eq!(public.at(&["v1", "local_hostname"]), Some(&Value::from("web")));
        assert_eq!(public.at(&["v1", "distro_release"]), Some(&Value::from("bookworm")));
        assert_eq!(public.at(&["ds", "meta_data", "meta", "role"]), Some(&Value::from("db")));
        let keys = json::to_string(public.get("sensitive_keys").unwrap());
        assert_eq!(
            keys,
            r#"["ds/meta_data/User-Data","ds/meta_data/admin_pass","ds/meta_data/meta/api/Token","ds/meta_data/meta/db_password","merged_cfg","merged_system_cfg","userdata"]"#
        );
        let sensitive = json::parse("t", root.text("/run/cloud-init/instance-data-sensitive.json").as_bytes()).unwrap();
        assert_eq!(sensitive.at(&["system_info", "default_user"]), Some(&Value::from("geheim")));
        assert_eq!(sensitive.at(&["merged_cfg", "system_info"]), None);
        assert_eq!(root.stat("/run/cloud-init/instance-data-sensitive.json").unwrap().attr.mode, 0o600);
        assert_eq!(root.stat("/run/cloud-init/combined-cloud-config.json").unwrap().attr.mode, 0o600);
        let combined = root.text("/run/cloud-init/combined-cloud-config.json");
        let combined = json::parse("t", combined.as_bytes()).unwrap();
        assert_eq!(combined.at(&["features", "STRIP_INVALID_MTU"]), Some(&Value::from(false)));
        assert_eq!(root.text("/run/cloud-init/cloud-id"), "aws-china\n");
    }
}
