//! Scaleway.
//!
//! Follows Scaleway's documentation, "How to use the metadata API" and "User data", and cloud-init's, "Scaleway".

use super::closed::{Closing, ServiceAddress};
use super::documents::{instance, items, mapping, record, set_network};
use super::search::{Found, Search};
use super::service::{Job, MAX_WAIT, RETRIES, TIMEOUT, list_setting};
use super::table::{Source, Update};
use crate::base::error::{Error, Result};
use crate::detect::Mark;
use crate::document::{Bytes, Map, Value};
use crate::instance::{NetworkData, state};
use crate::link::http::{Client, Request};
use crate::link::{Reach, leases};
use crate::network::fallback;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

pub static SOURCE: Source = Source {
    name: "Scaleway",
    marks: &[Mark::vendor("Scaleway"), Mark::Word("scaleway"), Mark::File("/var/run/scaleway")],
    service: Some(service_job),
    updates: &[Update::NewInstance, Update::Boot, Update::BootLegacy],
    closing: Closing {
        addresses: &[ServiceAddress::whole("169.254.42.42"), ServiceAddress::whole("fd00:42::42")],
        stays: "",
    },
    settings: &[("metadata_urls", "further addresses of the service, without a path"), MAX_WAIT, TIMEOUT, RETRIES],
    docs: "Scaleway. Read from http://169.254.42.42 and http://[fd00:42::42], whichever answers first. The address that DHCP has leased \
        stays DHCP's, whichever answered: where DHCP is slower, a lease is waited for, for up to 8 s. User-data and vendor-data are \
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
/// How long to wait before a lease is looked for again, and how often.
const LEASE_WAIT: Duration = Duration::from_millis(200);
const MAX_LEASE_WAITS: usize = 40;
/// The router to the service if the leased network does not contain it.
const ROUTER: &str = "62.210.0.1";

fn service_job(search: &mut Search) -> Option<Job> {
    let mut urls: Vec<String> = URLS.map(str::to_owned).into();
    urls.extend(list_setting(search, SOURCE.name, "metadata_urls").iter().map(|url| url.trim_end_matches('/').into()));
    let (machine, nics) = (search.machine.base.clone(), search.machine.nics());
    let stored = state::cached(search.root).filter(|cached| cached.source == SOURCE.name);
    let stored = stored.and_then(|cached| Some((cached.instance_id, cached.network?)));
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
        let leased = awaited_lease(client, &machine, &document, link.as_deref());
        match &stored {
            // There may be a lease that is not known here: some DHCP clients keep theirs private.
            Some((id, network)) if leased.is_none() && *id == found.instance_id && has_dhcp(network) => {
                found.network = Some(network.clone());
            }
            _ => set_network(&mut found, network(&document, link, leased.as_deref())),
        }
        found.metadata = Value::Map(document);
        Ok(Found { instance: found, place: base.into() })
    };
    Some(Job::at(search, SOURCE.name, urls, Box::new(fetch)))
}

/// A document that is only served to privileged local ports; each try takes one of `ports`. None if it does
/// not exist.
///
/// # Errors
/// It cannot be read. This fails, because the instance would lack the document for good (cloud-init 26.2,
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

/// The machine's leased address of `link`. Waits for the lease in the initramfs, where the service may answer before DHCP has
/// ended.
fn awaited_lease(client: &Client, machine: &Path, document: &Map, link: Option<&str>) -> Option<String> {
    let addresses = items(document.get("public_ips")).iter().filter_map(|ip| ip.get("address")?.text());
    let addresses: Vec<String> = addresses.filter(|address| address.parse::<Ipv4Addr>().is_ok()).collect();
    let leased = || {
        let recorded = leases::below(machine).into_iter().filter(|lease| Some(lease.link.as_str()) == link);
        let all = client.uplink().lease.clone().into_iter().chain(recorded);
        all.filter_map(|lease| Some(lease.address?.to_string())).find(|address| addresses.contains(address))
    };
    let mut found = leased();
    let may_come = client.uplink().link.is_some() && client.uplink().lease.is_none();
    if may_come && !addresses.is_empty() {
        for _ in 0..MAX_LEASE_WAITS {
            if found.is_some() || !client.wait(LEASE_WAIT) {
                break;
            }
            found = leased();
        }
    }
    found
}

/// Whether a network configuration that was made by [`network`] has DHCP.
fn has_dhcp(config: &NetworkData) -> bool {
    let NetworkData::Cloud(config) = config else { return false };
    let ethernets = config.get("ethernets").and_then(Value::as_map);
    ethernets.is_some_and(|all| all.iter().any(|(_, interface)| interface.get("dhcp4").is_some_and(Value::is_true)))
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
    use crate::base::testing::TempDir;
    use crate::document::json;
    use crate::instance::Instance;
    use crate::link::Uplink;
    use crate::link::http::script::{Answer, Script};
    use crate::link::http::{Findings, Redirects};
    use crate::root::Use;
    use std::sync::Arc;

    const NETWORKD: &str = "run/systemd/netif/leases/2";

    /// The configuration of eth0 if the service answers at `base` over `uplink`, with these files, and this configuration stored.
    fn eth0(uplink: &Uplink, base: &str, files: &[(&str, &str)], stored: Option<&str>) -> String {
        let dir = TempDir::new("scaleway");
        dir.write("sys/class/net/eth0/address", "02:00:00:00:00:01");
        dir.write("sys/class/net/eth0/type", "1");
        dir.write("sys/class/net/eth0/carrier", "1");
        dir.write("sys/class/net/eth0/ifindex", "2\n");
        dir.write("sys/class/net/eth0/device/device", "0x1000");
        files.iter().for_each(|(path, text)| dir.write(path, text));
        let (machine, mut root) = (dir.machine(), dir.root(Use::Tree));
        if let Some(stored) = stored {
            let config = format!(r#"{{"version": 2, "ethernets": {{"eth0": {stored}}}}}"#);
            let network = Some(NetworkData::Cloud(json::parse("t", config.as_bytes()).unwrap()));
            let instance =
                Instance { source: SOURCE.name.into(), instance_id: "1".into(), network, ..Instance::default() };
            state::store(&mut root, &instance).unwrap();
        }
        let document = r#"{"id": "1", "hostname": "h", "public_ips": [
            {"address": "10.0.0.5", "netmask": "32", "family": "inet"},
            {"address": "2001:db8::5", "netmask": "64", "family": "inet6", "gateway": "fe80::1"}]}"#;
        let answers = [("conf?format=json", 200), ("user_data/cloud-init", 404), ("vendor_data/cloud-init", 404)];
        let script = answers.iter().fold(Script::default(), |script, (path, status)| {
            script.with("GET", &format!("{base}/{path}"), Answer::new(*status, document))
        });
        let deadline = Deadline::after(Duration::from_secs(300));
        let (script, findings) = (Arc::new(script), Findings::default());
        let client = Client::over(script, uplink, Redirects::SameOrigin, deadline, &findings);
        let mut search = Search::new(&machine, &root, &Value::Null, deadline);
        let found = (service_job(&mut search).unwrap().fetch)(&client, base).unwrap().instance;
        let Some(NetworkData::Cloud(config)) = found.network else { panic!("{:?}", found.problems) };
        let eth0 = config.at(&["ethernets", "eth0"]).unwrap();
        let texts = eth0.get("addresses").map(Value::texts).unwrap_or_default().join(" ");
        format!("{} {texts}", if eth0.get("dhcp4").is_some_and(Value::is_true) { "dhcp" } else { "fixed" })
    }

    #[test]
    fn leased_address_is_dhcps_whatever_client_leased_it() {
        let [four, six] = URLS;
        let dhcp = "dhcp 2001:db8::5/64";
        let fixed = "fixed 10.0.0.5/32 2001:db8::5/64";
        let routed = Uplink::of("eth0", 2, Reach::Ipv6Routed);
        let lease = "ADDRESS=10.0.0.5\n";
        let of_manager = "var/lib/NetworkManager/internal-0be3f3e6-3a7c-4d4a-9f0e-6b1a2c3d4e5f-eth0.lease";
        let of_initramfs = r#"{"link": "eth0", "address": "10.0.0.5", "options": {}}"#;
        let old = ("var/lib/dhcp/dhclient.leases", "lease {\n  interface \"eth0\";\n  fixed-address 10.9.9.9;\n}\n");
        for (uplink, base, files, expected) in [
            (&Uplink::system(), four, &[(NETWORKD, lease)][..], dhcp),
            (&Uplink::system(), six, &[(NETWORKD, lease)], dhcp),
            (&Uplink::system(), four, &[old, (of_manager, lease)], dhcp),
            (&Uplink::system(), four, &[("run/systemd/netif/leases/3", lease)], fixed),
            (&Uplink::system(), four, &[old], fixed),
            (&routed, six, &[], fixed),
            (&routed, six, &[("run/prepivot/lease-eth0.json", of_initramfs)], dhcp),
        ] {
            assert_eq!(eth0(uplink, base, files, None), expected, "{base} {files:?}");
        }
        // Without a known lease, the stored configuration stays.
        let before = r#"{"dhcp4": true, "addresses": ["2001:db8::4/64"]}"#;
        assert_eq!(eth0(&Uplink::system(), six, &[], Some(before)), "dhcp 2001:db8::4/64");
        assert_eq!(eth0(&Uplink::system(), four, &[(NETWORKD, lease)], Some(before)), dhcp);
        assert_eq!(eth0(&Uplink::system(), four, &[], Some("{}")), fixed);
    }

    #[test]
    fn unreadable_document_means_no_instance() {
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
