//! The instance that the provisioning media and the metadata service together describe.
//!
//! Follows cloud-init's documentation, "Azure": the metadata's names take precedence over the media's, and
//! the media's custom data over the metadata's user-data.

use super::failure::Failure;
use super::identity::Identity;
use super::media::{self, Media, REDACTED};
use super::network;
use crate::base::base64;
use crate::base::password::{self, HashMethod};
use crate::base::problem::Problems;
use crate::document::{Bytes, Map, Value};
use crate::instance::Instance;
use crate::machine::Nic;
use crate::source::keys::public_keys;

/// The path of a machine's temporary disk, created by a udev rule that cloud-init installs.
pub const RESOURCE_DISK: &str = "/dev/disk/cloud/azure_resource";
/// The metadata key that has the reason why provisioning failed, for the report from the running system.
pub const FAILURE: &str = "provisioning_failure";
/// Files of Ubuntu's images that configure further interfaces. The metadata's configuration supersedes them.
const UBUNTU_NETWORK: [&str; 4] = [
    "/etc/netplan/90-hotplug-azure.yaml",
    "/usr/local/sbin/ephemeral_eth.sh",
    "/etc/udev/rules.d/10-net-device-added.rules",
    "/run/network/interfaces.ephemeral.d",
];

/// Facts about the machine and its image.
#[derive(Clone)]
pub struct Surroundings {
    pub identity: Identity,
    pub nics: Vec<Nic>,
    pub network: network::Settings,
    /// The folder for a copy of the media's document. Empty: no copy.
    pub data_dir: String,
    pub disk_aliases: Map,
    /// Whether the machine has a temporary disk.
    pub has_resource_disk: bool,
    pub is_ubuntu: bool,
    /// Files that are no longer valid once the machine is provisioned.
    pub stale: Vec<String>,
    pub random_seed: Option<Bytes>,
    /// The hash of the instance's current password, which is kept if the password is the same.
    pub password: Option<String>,
}

/// The answers of the network's services.
pub struct Read<'a> {
    /// The metadata's document; null if there is none.
    pub imds: &'a Value,
    /// Where the data came from: `/dev/sr0`, `IMDS`, a folder.
    pub seed: &'a str,
    pub failure: Option<&'a Failure>,
    pub problems: Problems,
}

impl Surroundings {
    /// Builds the instance. `report` creates the report of a failure.
    pub fn instance(&self, media: Option<&Media>, read: Read, report: impl Fn(&Failure) -> String) -> Instance {
        let Read { imds, seed, failure, problems } = read;
        let text = |path: &[&str]| imds.at(path).and_then(Value::text).filter(|t| !t.is_empty());
        let profile = |key: &str| text(&["compute", "osProfile", key]);
        let (user, host_name) = (profile("adminUsername"), profile("computerName"));
        let disable_password = profile("disablePasswordAuthentication").map(|t| t.eq_ignore_ascii_case("true"));
        let host_name = host_name.or_else(|| media.map(|m| m.host_name.clone()).filter(|h| !h.is_empty()));
        let keys = openssh_keys(imds);
        let media_keys = || {
            let keys: Vec<Value> = media.iter().flat_map(|m| m.keys.iter().map(|k| k.value.as_str().into())).collect();
            public_keys(Some(&Value::List(keys)))
        };
        let from_media = keys.is_none();
        let public_keys = keys.unwrap_or_else(media_keys);
        let config = self.config(media, user.as_deref(), disable_password, &problems);

        let mut metadata = Map::new();
        metadata.insert("instance-id", self.identity.instance_id.as_str());
        metadata.insert("local-hostname", host_name.as_deref().unwrap_or_default());
        metadata.insert("imds", without_user_data(imds));
        if from_media && !public_keys.is_empty() {
            metadata.insert("public-keys", public_keys.iter().map(|k| k.as_str().into()).collect::<Vec<Value>>());
        }
        if let Some(seed) = &self.random_seed {
            metadata.insert("random_seed", base64::encode(seed));
        }
        if let Some(failure) = failure {
            metadata.insert(FAILURE, report(failure));
        }
        let kind = match seed {
            "IMDS" => "imds",
            device if device.contains("/dev/") => "config-disk",
            _ => "seed-dir",
        };
        let document = match media {
            Some(media) => media.redacted.clone(),
            None => Some(media::minimal(host_name.as_deref(), user.as_deref(), disable_password)),
        };
        if document.is_none() {
            problems.warn(format!("{} is not kept: its password could not be taken out", media::FILE));
        }
        let document = document.filter(|_| !self.data_dir.is_empty());
        Instance {
            source: super::SOURCE.name.into(),
            class: "DataSourceAzure".into(),
            platform: "azure".into(),
            cloud_name: "azure".into(),
            subplatform: format!("{kind} ({seed})"),
            instance_id: self.identity.instance_id.clone(),
            local_hostname: host_name,
            availability_zone: text(&["compute", "platformFaultDomain"]),
            region: text(&["compute", "location"]),
            user_data: user_data(media, imds, &problems),
            network: network::config(imds, &self.nics, self.network, &problems),
            metadata: Value::Map(metadata),
            config: Value::Map(config),
            public_keys,
            private_files: document
                .map(|d| (format!("{}/{}", self.data_dir, media::FILE), Bytes::from(d)))
                .into_iter()
                .collect(),
            stale_files: self.stale_files(),
            random_seed: self.random_seed.clone(),
            device_names: self.disk_aliases.clone(),
            problems,
            ..Instance::default()
        }
    }

    /// The source's own configuration: the default user, password logins, the temporary disk, and the media's
    /// settings for provisioning.
    fn config(
        &self,
        media: Option<&Media>,
        user: Option<&str>,
        disable_password: Option<bool>,
        problems: &Problems,
    ) -> Map {
        let mut config = Map::new();
        let mut default_user = Map::new();
        if let Some(name) = user.or(media.and_then(|m| m.user.as_deref())) {
            default_user.insert("name", name);
        }
        let plain = media.and_then(|m| m.password.as_deref());
        if let Some(plain) = plain {
            default_user.insert("lock_passwd", false);
            let known = self.password.clone().filter(|hash| password::verify(plain, hash));
            match known.map_or_else(|| password::hash(plain, HashMethod::Sha512, None), Ok) {
                _ if plain == REDACTED => {}
                Ok(hash) => drop(default_user.insert("hashed_passwd", hash)),
                Err(e) => problems.warn(format!("{}: the user's password is not set: {e}", media::FILE)),
            }
        }
        if !default_user.is_empty() {
            config.insert("system_info", Map::from_iter([("default_user", default_user)]));
        }
        let by_media = media.and_then(|m| m.disable_password);
        if let Some(disable) = disable_password.or(by_media).or(plain.map(|_| false)) {
            config.insert("ssh_pwauth", !disable);
        }
        if let Some(media) = media {
            config.insert("PreprovisionedVm", media.preprovisioned);
            config.insert("PreprovisionedVMType", media.pool.clone().map_or(Value::Null, Value::from));
            config.insert("ProvisionGuestProxyAgent", media.proxy_agent);
            if !media.keys.is_empty() {
                config.insert("_pubkeys", media.keys.iter().map(key).collect::<Vec<_>>());
            }
        }
        if self.has_resource_disk {
            let mut disk = Map::new();
            disk.insert("table_type", "gpt");
            disk.insert("layout", vec![Value::Int(100)]);
            disk.insert("overwrite", true);
            config.insert("disk_setup", Map::from_iter([("ephemeral0", disk)]));
            let filesystem = Map::from_iter([("filesystem", "ext4"), ("device", "ephemeral0.1")]);
            config.insert("fs_setup", vec![Value::Map(filesystem)]);
        }
        config
    }

    fn stale_files(&self) -> Vec<String> {
        let scripts = UBUNTU_NETWORK.iter().filter(|_| self.is_ubuntu && self.network.metadata);
        scripts.map(|path| (*path).to_owned()).chain(self.stale.iter().cloned()).collect()
    }
}

/// An SSH key of the media, with cloud-init's names.
fn key(key: &media::Key) -> Value {
    let mut map = Map::new();
    for (name, value) in [("fingerprint", &key.fingerprint), ("path", &key.path)] {
        map.insert(name, value.clone().map_or(Value::Null, Value::from));
    }
    map.insert("value", key.value.as_str());
    Value::Map(map)
}

/// The metadata's SSH keys. None if it has no list of them, or one is in another format: then the media's are
/// used.
pub fn openssh_keys(imds: &Value) -> Option<Vec<String>> {
    let list = imds.at(&["compute", "publicKeys"])?.as_list()?;
    let key = |entry: &Value| {
        // Keys that Azure generated in the past contain line breaks.
        let key = entry.get("keyData")?.as_str()?.trim().replace("\r\n", "");
        is_openssh(key.lines().next()?).then_some(Value::from(key))
    };
    let keys = list.iter().map(key).collect::<Option<Vec<Value>>>()?;
    Some(public_keys(Some(&Value::List(keys))))
}

/// Whether a line has a key type and a key, possibly after options (sshd(8)).
fn is_openssh(key: &str) -> bool {
    let is_type =
        |word: &str| ["ssh-", "ecdsa-sha2-", "sk-ssh-", "sk-ecdsa-sha2-"].iter().any(|prefix| word.starts_with(prefix));
    let words: Vec<&str> = key.split([' ', '\t']).filter(|w| !w.is_empty()).collect();
    !key.starts_with('#') && words.windows(2).any(|pair| pair.first().is_some_and(|word| is_type(word)))
}

/// The media's custom data, else the metadata's user-data.
fn user_data(media: Option<&Media>, imds: &Value, problems: &Problems) -> Option<Bytes> {
    if let Some(data) = media.and_then(|m| m.custom_data.as_ref()) {
        return Some(Bytes::from(data.clone()));
    }
    let decoded = base64::decode_leniently(imds.at(&["compute", "userData"])?.as_str()?.as_bytes());
    if decoded.is_none() {
        problems.warn("the metadata's user-data is ignored: expected base64");
    }
    decoded.filter(|data| !data.is_empty()).map(Bytes::from)
}

/// The metadata without user-data: other programs can read the place where it is stored.
fn without_user_data(imds: &Value) -> Value {
    let mut imds = imds.clone();
    if let Value::Map(map) = &mut imds
        && let Some(Value::Map(compute)) = map.get_mut("compute")
    {
        compute.remove("userData");
    }
    if imds.is_null() { Value::Map(Map::new()) } else { imds }
}

#[cfg(test)]
mod tests {
    use super::super::media::tests::document;
    use super::*;
    use crate::document::{json, yaml};

    fn surroundings() -> Surroundings {
        Surroundings {
            identity: Identity { instance_id: "i-1".into(), vm_id: "v".into(), is_new: true },
            nics: Vec::new(),
            network: network::Settings { metadata: true, secondary: true, set_name: true },
            data_dir: "/var/lib/waagent".into(),
            disk_aliases: Map::from_iter([("ephemeral0", RESOURCE_DISK)]),
            has_resource_disk: false,
            is_ubuntu: false,
            stale: Vec::new(),
            random_seed: None,
            password: None,
        }
    }

    fn read<'a>(imds: &'a Value, seed: &'a str) -> Read<'a> {
        Read { imds, seed, failure: None, problems: Problems::new() }
    }

    fn media(linux: &str) -> Media {
        let linux = format!("<ns1:HostName>ovf-host</ns1:HostName>{linux}");
        media::parse(document(&linux, "").as_bytes()).unwrap().unwrap()
    }

    fn of(imds: &str, media: Option<&Media>) -> Instance {
        let imds = json::parse("t", imds.as_bytes()).unwrap();
        surroundings().instance(media, read(&imds, "/dev/sr0"), ToString::to_string)
    }

    const IMDS: &str = r#"{"compute": {"location": "westus2", "platformFaultDomain": "2", "userData": "aW1kcw==",
        "osProfile": {"adminUsername": "adm", "computerName": "vm1", "disablePasswordAuthentication": "true"},
        "publicKeys": [{"keyData": "ssh-rsa AAAA\r\nB3 a\r\n"}]}, "network": {"interface": []}}"#;

    #[test]
    fn the_metadatas_names_and_the_medias_data() {
        let media = media(
            "<ns1:UserName>u</ns1:UserName><ns1:UserPassword>S3cret</ns1:UserPassword><ns1:CustomData>b3Zm</ns1:CustomData>",
        );
        let got = of(IMDS, Some(&media));
        assert_eq!((got.local_hostname.as_deref(), got.subplatform.as_str()), (Some("vm1"), "config-disk (/dev/sr0)"));
        assert_eq!((got.region.as_deref(), got.availability_zone.as_deref()), (Some("westus2"), Some("2")));
        assert_eq!(got.public_keys, ["ssh-rsa AAAAB3 a"]);
        assert_eq!(got.user_data, Some(Bytes::from(b"ovf".to_vec())));
        let user = got.config.at(&["system_info", "default_user"]).unwrap();
        assert_eq!((user.get("name"), user.get("lock_passwd")), (Some(&"adm".into()), Some(&false.into())));
        assert!(password::verify("S3cret", user.get("hashed_passwd").unwrap().as_str().unwrap()));
        assert_eq!(got.config.get("ssh_pwauth"), Some(&false.into()));
        let (path, content) = &got.private_files[0];
        assert_eq!(path, "/var/lib/waagent/ovf-env.xml");
        let mut everything = content.to_vec();
        crate::instance::cache::write(&got, &mut everything).unwrap();
        let everything = String::from_utf8(everything).unwrap();
        assert!(!everything.contains("S3cret") && !everything.contains("aW1kcw=="), "{everything}");

        let alone = of("null", Some(&media));
        assert_eq!((alone.local_hostname.as_deref(), alone.region), (Some("ovf-host"), None));
        assert_eq!(alone.config.get("ssh_pwauth"), Some(&true.into()));
        assert_eq!(of(IMDS, None).user_data, Some(Bytes::from(b"imds".to_vec())));
    }

    #[test]
    fn leaves_other_key_formats_for_the_media() {
        let key = "<ns1:SSH><ns1:PublicKeys><ns1:PublicKey><ns1:Fingerprint>AB</ns1:Fingerprint></ns1:PublicKey><ns1:PublicKey>\
            <ns1:Value>ssh-rsa AAAA ovf</ns1:Value></ns1:PublicKey></ns1:PublicKeys></ns1:SSH>";
        let media = media(key);
        let keys = |list: &str| of(&format!("{{\"compute\": {{\"publicKeys\": {list}}}}}"), Some(&media)).public_keys;
        let other = r#"[{"keyData": "ssh-rsa AAAA imds"}, {"keyData": "-----BEGIN CERTIFICATE-----"}]"#;
        assert_eq!(keys(other), ["ssh-rsa AAAA ovf"]);
        assert_eq!(keys("[]"), Vec::<String>::new());
        assert_eq!(
            keys(r#"[{"keyData": "ssh-rsa AAAA a\nssh-ed25519 BBBB b\n"}]"#),
            ["ssh-rsa AAAA a", "ssh-ed25519 BBBB b"]
        );
        assert_eq!(keys(r#"[{"keyData": "command=\"x y\" ecdsa-sha2-nistp256 AAAA c"}]"#).len(), 1);
        let kept = of("null", Some(&media)).config;
        let expected = yaml::parse(
            "t",
            "[{fingerprint: AB, path: null, value: ''}, {fingerprint: null, path: null, value: ssh-rsa AAAA ovf}]",
        );
        assert_eq!(kept.get("_pubkeys"), Some(&expected.unwrap()));
    }

    #[test]
    fn what_is_only_where_it_applies() {
        let imds = json::parse("t", IMDS.as_bytes()).unwrap();
        let marker = "/var/lib/cloud/data/reported_ready".to_owned();
        let more =
            Surroundings { has_resource_disk: true, is_ubuntu: true, stale: vec![marker.clone()], ..surroundings() };
        let failure = Failure::new("why");
        let got = more.instance(None, Read { failure: Some(&failure), ..read(&imds, "IMDS") }, ToString::to_string);
        assert_eq!(got.config.at(&["disk_setup", "ephemeral0", "table_type"]), Some(&"gpt".into()));
        assert_eq!((got.stale_files.len(), got.stale_files.last()), (5, Some(&marker)));
        assert_eq!((got.subplatform.as_str(), got.metadata.get(FAILURE)), ("imds (IMDS)", Some(&"why".into())));
        let plain = of(IMDS, None);
        assert!(plain.config.get("disk_setup").is_none() && plain.stale_files.is_empty());
        let media = media::parse(&plain.private_files[0].1).unwrap().unwrap();
        assert_eq!((media.host_name.as_str(), media.user.as_deref()), ("vm1", Some("adm")));
    }

    #[test]
    fn user_data_without_base64_is_a_problem() {
        let got = of(r#"{"compute": {"userData": "%%%"}, "network": {"interface": []}}"#, None);
        assert_eq!((got.user_data, got.problems.len()), (None, 1));
    }
}
