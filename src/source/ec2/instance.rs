//! The instance that the EC2 metadata service describes, on Amazon and on clouds that copy the service.
//!
//! Follows the EC2 user guide, "Instance metadata and user data", and cloud-init's documentation, "Amazon EC2".

use super::network;
use super::service::Crawled;
use crate::document::{Bytes, Map, Value};
use crate::instance::Instance;
use crate::link::{Reach, Uplink};
use crate::machine::{Machine, Nic};
use crate::source::documents::decoded;
use crate::source::keys::public_keys;
use std::net::Ipv4Addr;

/// The cloud that runs the service (cloud-init's cloud names).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cloud {
    Aws,
    Brightbox,
    E24,
    Outscale,
    Tilaa,
    ZStack,
    Unknown,
}

/// Whether a UUID in lower case begins with ec2 if the bytes of its first group are reversed: 45E12AEC is EC2AE145 (AWS
/// documentation, "Identify EC2 instances").
pub fn is_swapped_ec2(uuid: &str) -> bool {
    uuid.get(4..5) == Some("2") && uuid.get(6..8) == Some("ec")
}

impl Cloud {
    /// The cloud, by the machine's DMI values.
    pub fn of(machine: &Machine) -> Self {
        let dmi = |key: &str| machine.dmi(key).unwrap_or_default();
        let lower = |key: &str| dmi(key).to_ascii_lowercase();
        let uuid = match machine.hypervisor_uuid() {
            Some(uuid) => uuid,
            None => lower("product_uuid"),
        };
        let vendor = dmi("sys_vendor");
        match () {
            () if uuid.starts_with("ec2") || is_swapped_ec2(&uuid) => Cloud::Aws,
            () if lower("product_serial").ends_with(".brightbox.com") => Cloud::Brightbox,
            () if lower("chassis_asset_tag").ends_with(".zstack.io") => Cloud::ZStack,
            () if vendor == "e24cloud" => Cloud::E24,
            () if vendor == "3DS Outscale" && dmi("product_name") == "3DS Outscale VM" => Cloud::Outscale,
            () if vendor == "Tilaa" => Cloud::Tilaa,
            () => Cloud::Unknown,
        }
    }

    /// cloud-init's name.
    pub fn name(self) -> &'static str {
        match self {
            Cloud::Aws => "aws",
            Cloud::Brightbox => "brightbox",
            Cloud::E24 => "e24cloud",
            Cloud::Outscale => "outscale",
            Cloud::Tilaa => "tilaa",
            Cloud::ZStack => "zstack",
            Cloud::Unknown => "unknown",
        }
    }
}

/// The URLs that `uplink` asks: the configured ones (`metadata_urls`), else the two well-known ones.
pub fn urls(uplink: &Uplink, configured: &[String]) -> Vec<String> {
    if configured.is_empty() {
        return match uplink.reach {
            Reach::Ipv4 => vec!["http://169.254.169.254".into()],
            Reach::Ipv6Routed => vec!["http://[fd00:ec2::254]".into()],
            Reach::Ipv6LinkLocal => Vec::new(),
        };
    }
    configured.iter().filter(|url| uplink.reaches(url)).map(|url| url.trim_end_matches('/').to_owned()).collect()
}

/// Builds the instance. `full_network`: every interface as in the metadata
/// (`apply_full_imds_network_config`), else only the one that the service was asked over. `router`: see
/// [`network::config`].
pub fn instance(
    crawled: Crawled,
    cloud: Cloud,
    base: &str,
    nics: &[Nic],
    link: Option<&str>,
    full_network: bool,
    router: &dyn Fn(&str) -> Option<Ipv4Addr>,
) -> Instance {
    let Crawled { version, metadata, user_data, identity, problems } = crawled;
    let text = |path: &[&str]| Value::Map(metadata.clone()).at(path).and_then(Value::text).filter(|t| !t.is_empty());
    let by_identity = |key: &str| identity.get(key).and_then(Value::text).filter(|t| !t.is_empty());
    let zone = by_identity("availabilityZone").or_else(|| text(&["placement", "availability-zone"]));
    // An availability zone is named by its region and a letter.
    let of_zone = || {
        let mut region = zone.clone();
        region.as_mut().map(String::pop);
        region
    };
    let region = by_identity("region").or_else(of_zone);
    let mut ds: Map = [("_metadata_api_version", Value::from(version)), ("meta-data", Value::Map(metadata.clone()))]
        .into_iter()
        .collect();
    if !identity.is_null() {
        let document: Map = [("document", identity.clone())].into_iter().collect();
        ds.insert("dynamic", Map::from_iter([("instance-identity", document)]));
    }
    Instance {
        source: "Ec2".into(),
        class: if cloud == Cloud::Aws || cloud == Cloud::Outscale { "DataSourceEc2Local" } else { "DataSourceEc2" }
            .into(),
        platform: "ec2".into(),
        cloud_name: cloud.name().into(),
        subplatform: format!("metadata ({base})"),
        instance_id: by_identity("instanceId").or_else(|| text(&["instance-id"])).unwrap_or_default(),
        local_hostname: text(&["local-hostname"]).or_else(|| text(&["hostname"])),
        region,
        availability_zone: zone,
        launch_index: text(&["ami-launch-index"]).and_then(|i| i.parse().ok()),
        public_keys: public_keys(metadata.get("public-keys")),
        user_data: user_data.map(|b| Bytes::from(decoded(b))),
        device_names: metadata.get("block-device-mapping").and_then(Value::as_map).cloned().unwrap_or_default(),
        network: network::config(&metadata, nics, link, network::Scope::of(!full_network, network::Scope::All), router),
        ds,
        metadata: Value::Map(metadata),
        problems,
        ..Instance::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::document::json;

    #[test]
    fn who_made_the_machine() {
        let cloud = |facts: &[(&str, &str)]| {
            let dir = TempDir::new("ec2");
            let dmi = dir.0.join("sys/class/dmi/id");
            std::fs::create_dir_all(&dmi).unwrap();
            for (key, value) in facts {
                std::fs::write(dmi.join(key), value).unwrap();
            }
            Cloud::of(&dir.machine())
        };
        assert_eq!(cloud(&[("product_uuid", "EC2E1916-9099-7CAF-FD21-012345ABCDEF")]), Cloud::Aws);
        assert_eq!(cloud(&[("product_uuid", "45E12AEC-DCD1-B213-94ED-012345ABCDEF")]), Cloud::Aws);
        assert_eq!(cloud(&[("product_serial", "srv-1.gb1.brightbox.com")]), Cloud::Brightbox);
        assert_eq!(cloud(&[("sys_vendor", "Tilaa")]), Cloud::Tilaa);
        assert_eq!(cloud(&[("sys_vendor", "3DS Outscale"), ("product_name", "3DS Outscale VM")]), Cloud::Outscale);
        assert_eq!(cloud(&[("sys_vendor", "QEMU")]), Cloud::Unknown);
    }

    #[test]
    fn an_instance() {
        let tree = br#"{"instance-id": "i-1", "local-hostname": "ip-10-0-0-5", "placement": {"availability-zone": "eu-west-1b"},
            "public-keys": {"k": ["ssh-rsa A k"]}, "block-device-mapping": {"ami": "xvda"}, "ami-launch-index": "2"}"#;
        let Value::Map(metadata) = json::parse("t", tree).unwrap() else { panic!() };
        let crawled = Crawled { metadata, ..Crawled::default() };
        let got = instance(crawled, Cloud::Aws, "http://169.254.169.254", &[], None, true, &|_| None);
        assert_eq!((got.instance_id.as_str(), got.region.as_deref()), ("i-1", Some("eu-west-1")));
        assert_eq!((got.public_keys.len(), got.launch_index), (1, Some(2)));
        assert_eq!(got.device_names.get("ami"), Some(&Value::from("xvda")));
    }

    #[test]
    fn the_identity_document_comes_before_the_tree() {
        let of = |document: &str| {
            let Value::Map(metadata) = json::parse("t", br#"{"instance-id": "i-1"}"#).unwrap() else { panic!() };
            let identity = json::parse("t", document.as_bytes()).unwrap();
            let crawled = Crawled { version: "2021-03-23", metadata, identity, ..Crawled::default() };
            instance(crawled, Cloud::Aws, "http://169.254.169.254", &[], None, true, &|_| None)
        };
        let named = |document: &str| {
            let got = of(document);
            (got.instance_id, got.region)
        };
        assert_eq!(named(r#"{"instanceId": "i-2", "region": "eu-west-1"}"#), ("i-2".into(), Some("eu-west-1".into())));
        assert_eq!(named(r#"{"instanceId": "", "region": ""}"#), ("i-1".into(), None));
        // `ds` is the service's document, as cloud-init's.
        assert_eq!(
            json::to_string_sorted(&Value::Map(of(r#"{"region": "a-1"}"#).ds)),
            json::to_string_sorted(
                &json::parse(
                    "t",
                    br#"{"_metadata_api_version": "2021-03-23", "meta-data": {"instance-id": "i-1"},
                        "dynamic": {"instance-identity": {"document": {"region": "a-1"}}}}"#
                )
                .unwrap()
            )
        );
        assert_eq!(of("null").ds.get("dynamic"), None);
    }
}
