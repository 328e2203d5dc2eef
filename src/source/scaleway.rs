//! Scaleway.
//!
//! Follows Scaleway's documentation, "How to use the metadata API" and "User data", and cloud-init's, "Scaleway".

use super::documents::{instance, items, mapping, record, set_network};
use super::search::{Found, Search};
use super::service::{Job, MAX_WAIT, RETRIES, TIMEOUT, list_setting};
use super::table::{Source, Update};
use crate::base::error::{Error, Result};
use crate::detect::Mark;
use crate::document::{Bytes, Map, Value};
use crate::link::http::{Client, Request};
use crate::link::{Reach, leases};
use crate::network::fallback;
use std::time::Duration;

pub static SOURCE: Source = Source {
    name: "Scaleway",
    marks: &[Mark::vendor("Scaleway"), Mark::Word("scaleway"), Mark::File("/var/run/scaleway")],
    service: Some(service_job),
    updates: &[Update::NewInstance, Update::Boot, Update::BootLegacy],
    settings: &[("metadata_urls", "further addresses of the service, without a path"), MAX_WAIT, TIMEOUT, RETRIES],
    docs: "Scaleway. Read from http://169.254.42.42 and http://[fd00:42::42], whichever answers first. User-data and vendor-data are \
        asked for from local ports below 1024, as the service demands. SSH keys are the project's and those of tags \
        (AUTHORIZED_KEY=…, with underscores for blanks).",
    ..Source::NEW
};

const URLS: [&str; 2] = ["http://169.254.42.42", "http://[fd00:42::42]"];
/// The local ports to use, each once because a recently used one is still taken; and the wait after a
/// refusal, because the service is rate-limited.
const PORTS: std::ops::RangeInclusive<u16> = 1..=20;
const MAX_TRIES: usize = 10;
const NEXT_PORT: Duration = Duration::from_secs(5);
/// The router to the service if the leased network does not contain it.
const ROUTER: &str = "62.210.0.1";

fn service_job(search: &mut Search) -> Option<Job> {
    let mut urls: Vec<String> = URLS.map(str::to_owned).into();
    urls.extend(list_setting(search, SOURCE.name, "metadata_urls").iter().map(|url| url.trim_end_matches('/').into()));
    let (machine, nics) = (search.machine.base.clone(), search.machine.nics());
    let fetch = move |client: &Client, base: &str| {
        let mut document = mapping(client, &Request::first(&format!("{base}/conf?format=json")))?;
        let six = client.uplink().reach != Reach::Ipv4 || base.contains("://[");
        document.insert("net_in_use", if six { "ipv6" } else { "ipv4" });
        let text = |key: &str| document.get(key).and_then(Value::text);
        let mut found = instance(SOURCE.name, Map::new());
        found.instance_id = text("id").ok_or_else(|| Error::new(format!("{base}: expected an id in the metadata")))?;
        found.local_hostname = text("hostname").filter(|name| !name.is_empty());
        found.availability_zone = text("zone");
        found.region = text("zone").and_then(|zone| zone.rsplit_once('-').map(|(region, _)| region.to_owned()));
        found.public_keys = keys(&document);
        let mut ports = PORTS;
        let mut get = |of: &str| privileged(client, &format!("{base}/{of}_data/cloud-init"), &mut ports);
        found.user_data = get("user")?.map(Bytes::from);
        found.vendor_data = get("vendor")?.map_or(Value::Null, Value::of_bytes);
        let link = client.uplink().link.clone().or_else(|| fallback::nic(&nics).map(|nic| nic.name.clone()));
        let lease = client.uplink().lease.clone();
        let lease = lease.or_else(|| leases::below(&machine).into_iter().find(|l| Some(&l.link) == link.as_ref()));
        let leased = lease.filter(|_| !six).and_then(|lease| lease.address).map(|address| address.to_string());
        set_network(&mut found, network(&document, link, leased.as_deref()));
        found.metadata = Value::Map(document);
        Ok(Found { instance: found, place: base.into() })
    };
    Some(Job::at(search, SOURCE.name, urls, Box::new(fetch)))
}

/// A document that is only served to privileged local ports; each try takes one of `ports`. None if it does
/// not exist.
///
/// # Errors
/// It cannot be read. The instance would lack it for good, so that this fails (cloud-init 26.2,
/// DataSourceScaleway.py, `query_data_api`).
fn privileged(client: &Client, url: &str, ports: &mut impl Iterator<Item = u16>) -> Result<Option<Vec<u8>>> {
    let mut last = Error::new("no local port is left");
    for port in ports.take(MAX_TRIES) {
        match client.document(&Request { source_port: Some(port), tries: 1, ..Request::get(url) }) {
            Ok(body) => return Ok(body.filter(|body| !body.is_empty())),
            Err(e) => last = e,
        }
        if !client.wait(NEXT_PORT) {
            break;
        }
    }
    Err(last)
}

/// The project's SSH keys, and those in tags.
fn keys(document: &Map) -> Vec<String> {
    let keys = items(document.get("ssh_public_keys")).iter().filter_map(|key| key.get("key")?.text());
    let tags = items(document.get("tags")).iter().filter_map(Value::as_str);
    let tags = tags.filter_map(|tag| tag.strip_prefix("AUTHORIZED_KEY=")).map(|key| key.replace('_', " "));
    let all: Vec<Value> = keys.chain(tags).map(Value::from).collect();
    super::keys::public_keys(Some(&Value::List(all)))
}

/// DHCP for the leased address; the other public addresses are static.
fn network(document: &Map, link: Option<String>, leased: Option<&str>) -> Result<Value> {
    let addresses = document.get("public_ips").and_then(Value::as_list);
    let addresses = addresses.ok_or_else(|| Error::new("the metadata has no public_ips"))?;
    let link = link.ok_or_else(|| Error::new("the machine has no network interface"))?;
    let (mut fixed, mut routes, mut dhcp) = (Vec::new(), Vec::new(), Value::Null);
    for ip in addresses {
        let get = |key: &str| ip.get(key).and_then(Value::text).unwrap_or_default();
        if leased == Some(get("address").as_str()) {
            dhcp = true.into();
            let to = Value::from("169.254.42.42/32");
            routes.push(record(vec![("on-link", true.into()), ("to", to), ("via", ROUTER.into())]));
        } else {
            fixed.push(Value::from(format!("{}/{}", get("address"), get("netmask"))));
            if get("family") == "inet6" {
                routes.push(record(vec![("via", get("gateway").into()), ("to", "::/0".into())]));
            }
        }
    }
    let some = |list: Vec<Value>| if list.is_empty() { Value::Null } else { list.into() };
    let interface = record(vec![("dhcp4", dhcp), ("addresses", some(fixed)), ("routes", some(routes))]);
    let ethernets: Map = [(link, interface)].into_iter().collect();
    Ok(record(vec![("version", 2.into()), ("ethernets", ethernets.into())]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::deadline::Deadline;
    use crate::link::Uplink;
    use crate::link::http::script::{Answer, Script};
    use crate::link::http::{Findings, Redirects};
    use std::sync::Arc;

    #[test]
    fn what_cannot_be_read_is_no_instance_without_it() {
        let get = |statuses: &[u16]| {
            let all = statuses.iter().map(|status| Answer::new(*status, "u"));
            let script = all.fold(Script::default(), |script, answer| script.with("GET", "http://h/u", answer));
            let deadline = Deadline::after(Duration::from_secs(300));
            let (script, findings) = (Arc::new(script), Findings::default());
            let client = Client::over(script, &Uplink::system(), Redirects::SameOrigin, deadline, &findings);
            let mut ports = PORTS;
            privileged(&client, "http://h/u", &mut ports)
        };
        assert_eq!(get(&[429, 500, 200]).unwrap(), Some(b"u".to_vec()));
        assert_eq!(get(&[404]).unwrap(), None);
        assert!(get(&[500]).is_err() && get(&[403]).is_err());
    }
}
