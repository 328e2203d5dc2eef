//! Apache CloudStack: the virtual router's metadata and passwords.
//!
//! Follows CloudStack's documentation, "User-data and meta-data", and cloud-init's, "CloudStack".

use super::closed::{Closing, ServiceAddress};
use super::documents::{as_mapping, instance};
use super::exoscale::tree_instance;
use super::password_server;
use super::search::{Found, Search};
use super::service::{BETWEEN, Job, MAX_WAIT, RETRIES, TIMEOUT};
use super::table::Source;
use crate::base::error::{Error, Result};
use crate::detect::Mark;
use crate::document::{Bytes, yaml};
use crate::instance::Instance;
use crate::link::http::Client;
use crate::link::{Reach, Uplink, leases};
use crate::machine::beneath;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

pub static SOURCE: Source = Source {
    name: "CloudStack",
    marks: &[Mark::product("CloudStack*")],
    read: Some(read),
    service: Some(service_job),
    password_server: Some(|instance, _| own_passwords(instance)),
    provisioned: Some(|live| own_passwords(live.instance).map_or(Ok(()), |url| password_server::saved(live, &url))),
    closing: Closing { addresses: &[ServiceAddress::tcp("", &[80, 8080])], stays: "the virtual router's DNS and DHCP" },
    settings: &[MAX_WAIT, TIMEOUT, RETRIES, BETWEEN],
    docs: "Apache CloudStack. Read from the virtual router: the host data-server, else the DHCP server, else the router of the \
        default route; or from /var/lib/cloud/seed/cs. On every boot its port 8080 is asked whether the \
        password was reset, and notified once the machine runs with the new one. A host name without a domain gets the leased domain.",
    ..Source::NEW
};

/// A seed folder with meta-data and user-data that replaces the service.
const SEED: &str = "/var/lib/cloud/seed/cs";
/// The service's URL in messages, before the router's address is known.
const NAME: &str = "http://data-server";

/// Reads the seed folder.
fn read(search: &mut Search) -> Result<Option<Found>> {
    let Some(files) = search.seed_folder(SEED) else { return Ok(None) };
    let (Some(metadata), Some(user_data)) = (files.get("meta-data"), files.get("user-data")) else { return Ok(None) };
    let metadata = yaml::parse("meta-data", &String::from_utf8_lossy(metadata))?;
    let mut found = instance(SOURCE.name, as_mapping("meta-data", metadata)?);
    found.user_data = (!user_data.is_empty()).then(|| Bytes::from(user_data.to_vec()));
    found.subplatform = format!("seed-dir ({SEED})");
    Ok(Some(Found { instance: found, place: SEED.into() }))
}

fn service_job(search: &mut Search) -> Option<Job> {
    let limits = super::service::limits(search, SOURCE.name);
    if limits.search == Some(Duration::ZERO) {
        return None;
    }
    let base = search.machine.base.clone();
    let fetch = move |client: &Client, _: &str| {
        let router = router(client, &base).ok_or_else(|| Error::new("no virtual router: no DHCP lease names one"))?;
        let mut found = tree_instance(client, &format!("http://{router}/latest"), SOURCE.name)?;
        if found.availability_zone.is_none() {
            return Err(Error::new(format!("http://{router}/latest: expected an availability-zone in the metadata")));
        }
        found.class = "DataSourceCloudStackLocal".into();
        found.subplatform = format!("metadata (http://{router}/)");
        let short = found.local_hostname.as_ref().filter(|name| !name.contains('.'));
        if let Some((name, domain)) = short.zip(domain(client.uplink(), &base)) {
            found.local_hostname = Some(format!("{name}.{domain}"));
        }
        password_server::fetch(client, &passwords(&router), &mut found);
        Ok(Found { instance: found, place: format!("http://{router}") })
    };
    let urls = |uplink: &Uplink| if uplink.reach == Reach::Ipv4 { vec![NAME.to_owned()] } else { Vec::new() };
    Some(Job::new(SOURCE.name, urls, fetch, limits))
}

/// The password server of an instance that came from a virtual router.
fn own_passwords(instance: &Instance) -> Option<String> {
    instance.subplatform.strip_prefix("metadata (http://")?.strip_suffix("/)").map(passwords)
}

fn passwords(router: &str) -> String {
    format!("http://{router}:8080/")
}

/// The virtual router's address.
fn router(client: &Client, base: &Path) -> Option<String> {
    let named = client.resolve("data-server").into_iter().find(IpAddr::is_ipv4);
    let leased = || client.uplink().lease.clone().and_then(|lease| lease.server.or_else(|| lease.router()));
    let left = || leases::below(base).into_iter().find_map(|lease| lease.server);
    let routed = || leases::default_gateway(&beneath::read(base, "proc/net/route")?);
    let found = named.or_else(|| leased().or_else(left).or_else(routed).map(IpAddr::V4));
    found.map(|address| address.to_string())
}

/// The leased domain.
fn domain(uplink: &Uplink, base: &Path) -> Option<String> {
    let all = uplink.lease.clone().into_iter().chain(leases::below(base));
    all.map(|lease| lease.domain).find(|domain| !domain.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::deadline::Deadline;
    use crate::base::testing::TempDir;
    use crate::document::Value;
    use crate::root::Use;

    #[test]
    fn a_seed_has_both_documents() {
        let dir = TempDir::new("cloudstack");
        let folder = dir.0.join(SEED.trim_start_matches('/'));
        std::fs::create_dir_all(&folder).unwrap();
        let (machine, root) = (dir.machine(), dir.root(Use::Plan));
        let seed = || read(&mut Search::new(&machine, &root, &Value::Null, Deadline::after(Duration::ZERO)));
        assert!(seed().unwrap().is_none());
        std::fs::write(
            folder.join("meta-data"),
            "instance-id: i-cs\nlocal-hostname: cs-1\npublic-keys: ssh-ed25519 A\n",
        )
        .unwrap();
        assert!(seed().unwrap().is_none());
        std::fs::write(folder.join("user-data"), "#cloud-config\n{}\n").unwrap();
        let found = seed().unwrap().unwrap().instance;
        assert_eq!((found.instance_id.as_str(), found.local_hostname.as_deref()), ("i-cs", Some("cs-1")));
        assert_eq!((found.public_keys, found.user_data.is_some()), (vec!["ssh-ed25519 A".to_owned()], true));
        std::fs::write(folder.join("meta-data"), "[1]").unwrap();
        assert!(seed().is_err());
    }
}
