//! Alibaba Cloud ECS.
//!
//! Follows Alibaba Cloud's documentation, "Instance metadata", and its security-hardened mode, and cloud-init's, "AliYun".

use super::closed::{Closing, ServiceAddress};
use super::documents::{as_mapping, instance};
use super::ec2::network;
use super::ec2::tree::{Service, Tokens, VALUE_TRIES, with_values};
use super::search::{Found, Search};
use super::service::{BETWEEN, Job, MAX_WAIT, RETRIES, TIMEOUT, list_setting, switched_off};
use super::table::{Source, Update};
use crate::base::problem::Problems;
use crate::detect::Mark;
use crate::document::{Bytes, Value, json};
use crate::link::http::{Client, Request};

pub static SOURCE: Source = Source {
    name: "AliYun",
    marks: &[Mark::Seed("AliYun", &["meta-data", "user-data"]), Mark::product("Alibaba Cloud ECS")],
    service: Some(service_job),
    updates: &[Update::NewInstance, Update::Boot],
    closing: Closing {
        addresses: &[ServiceAddress::tcp("100.100.100.200", &[80]), ServiceAddress::tcp("fd00:100::100:200", &[80])],
        stays: "DNS at 100.100.2.136 and 100.100.2.138",
    },
    settings: &[
        ("metadata_urls", "addresses of the service, instead of the well-known one"),
        MAX_WAIT,
        TIMEOUT,
        RETRIES,
        BETWEEN,
        ("apply_full_imds_network_config", "false: DHCP on the link that the service was asked by, without the others"),
    ],
    docs: "Alibaba Cloud ECS. Read with a session token (the security-hardened mode) from http://100.100.100.200, or from \
        metadata_urls. Each interface has DHCP, for IPv6 too where the metadata has IPv6 addresses.",
    ..Source::NEW
};

const URL: &str = "http://100.100.100.200";
/// The host name of a machine whose metadata lacks one (cloud-init's).
const NO_NAME: &str = "localhost.localdomain";
const VERSION: &str = "2016-01-01";
const TOKENS: Tokens =
    Tokens { header: "X-aliyun-ecs-metadata-token", lifetime: "X-aliyun-ecs-metadata-token-ttl-seconds" };

fn service_job(search: &mut Search) -> Option<Job> {
    let mut urls = list_setting(search, SOURCE.name, "metadata_urls");
    if urls.is_empty() {
        urls.push(URL.into());
    }
    let urls = urls.iter().map(|url| url.trim_end_matches('/').to_owned()).collect();
    let nics = search.machine.nics();
    let full = !switched_off(search, SOURCE.name, "apply_full_imds_network_config");
    let fetch = move |client: &Client, base: &str| {
        let service = Service::new(client, base, Some(&TOKENS));
        service.renew("")?;
        let problems = Problems::new();
        let root = format!("{base}/{VERSION}");
        let get = |path: &str| {
            let url = format!("{root}/{path}");
            let answer = service.get(&Request { tries: VALUE_TRIES, ..Request::get(&url) });
            answer.unwrap_or_else(|e| {
                problems.warn(format!("{e}; the boot goes on without it"));
                None
            })
        };
        let [user_data, vendor_data, all] =
            ["user-data", "vendor-data", "meta-data/all"].map(|path| get(path).filter(|body| !body.is_empty()));
        let whole = |body: Vec<u8>| as_mapping("meta-data/all", with_values(json::parse("meta-data/all", &body)?));
        let whole = all.map(whole).transpose();
        let metadata = match whole.map_err(|e| problems.warn(e.to_string())) {
            Ok(Some(metadata)) if metadata.contains_key("instance-id") => metadata,
            _ => {
                let id = service.instance_id(Request::first(&format!("{root}/meta-data/instance-id")))?;
                service.tree(&format!("{root}/meta-data"), &id, &problems)
            }
        };
        let link = client.uplink().link.as_deref();
        let network =
            network::config(&metadata, &nics, link, network::Scope::of(!full, network::Scope::Each), &|_| None);
        let ds = [("meta-data", Value::Map(metadata.clone()))].into_iter().collect();
        let mut found = instance(SOURCE.name, metadata);
        found.ds = ds;
        found.class = "DataSourceAliYunLocal".into();
        found.subplatform = format!("metadata ({base})");
        let hostname = found.metadata.get("hostname").map_or(Some(NO_NAME.into()), Value::text);
        found.local_hostname = hostname.filter(|name| !name.is_empty());
        found.user_data = user_data.map(Bytes::from);
        found.vendor_data = vendor_data.map_or(Value::Null, Value::of_bytes);
        found.network = network;
        found.problems = problems;
        Ok(Found { instance: found, place: base.into() })
    };
    Some(Job::at(search, SOURCE.name, urls, Box::new(fetch)))
}
