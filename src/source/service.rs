//! Sources that need the network, and the table of them.

use super::{Found, Search, ec2, no_cloud_net, openstack, openstack_files};
use crate::document::Value;
use crate::drive::Files;
use crate::error::{Error, Result};
use crate::link::http::{Client, Redirects};
use crate::link::{Session, Way, http};
use crate::machine::Machine;
use std::path::PathBuf;

/// A line of the table.
pub struct Service {
    /// cloud-init's name: `OpenStack`.
    pub name: &'static str,
    /// What asking it takes, on this machine; None where this machine does not have it.
    pub prepare: fn(&mut Search) -> Option<Job>,
}

/// In cloud-init's order.
pub static SERVICES: &[Service] = &[
    Service { name: "NoCloud", prepare: no_cloud_net::job },
    Service { name: "OpenStack", prepare: openstack_job },
    Service { name: "Ec2", prepare: ec2_job },
];

/// Where a service is asked by a way that is ready.
pub type Urls = Box<dyn Fn(&Way) -> Vec<String> + Sync>;
/// What is fetched from one address of it.
pub type Fetch = Box<dyn Fn(&Client, &str) -> Result<Found> + Sync>;

/// How a service is asked.
pub struct Job {
    /// The source's name, for messages.
    pub name: &'static str,
    pub urls: Urls,
    pub fetch: Fetch,
    pub redirects: Redirects,
}

/// How the services called `names` are asked; those that this machine does not have are left out.
pub fn jobs(search: &mut Search, names: &[&str]) -> Vec<Job> {
    let services = names.iter().filter_map(|n| SERVICES.iter().find(|s| s.name.eq_ignore_ascii_case(n)));
    services.filter_map(|s| (s.prepare)(search)).collect()
}

/// Asks all services by every way of the session at once; where several have one address, in their order. None, and the
/// reasons as a problem, where none answers.
pub fn ask(search: &mut Search, jobs: Vec<Job>, session: &mut Session, ca_files: &[PathBuf]) -> Option<Found> {
    let urls = |way: &Way| {
        let mut all: Vec<String> = Vec::new();
        for url in jobs.iter().flat_map(|job| (job.urls)(way)) {
            if !all.contains(&url) {
                all.push(url);
            }
        }
        all
    };
    let of = |client: &Client, url: &str| -> Vec<&Job> {
        jobs.iter().filter(|job| (job.urls)(client.way()).iter().any(|u| u == url)).collect()
    };
    let fetch = |client: &Client, url: &str| {
        let mut reasons = Vec::new();
        for job in of(client, url) {
            match (job.fetch)(client, url) {
                Ok(found) => {
                    log::info!("{}: {} answers by {}", job.name, found.place, client.way().name());
                    return Ok(found);
                }
                Err(e) => reasons.push(format!("{}: {e}", job.name)),
            }
        }
        Err(Error::new(reasons.join("; ")))
    };
    // An address that two services share is redirected as the stricter one says.
    let settings = |way: &Way, url: &str| {
        let strict =
            jobs.iter().any(|job| job.redirects == Redirects::SameOrigin && (job.urls)(way).iter().any(|u| u == url));
        let redirects = if strict { Redirects::SameOrigin } else { Redirects::Any };
        http::Settings { redirects, ca_files: ca_files.to_vec() }
    };
    match session.ask(&settings, &urls, &fetch) {
        Ok(found) => Some(found),
        Err(e) => {
            search.problem(e.to_string());
            None
        }
    }
}

/// `key` of the settings as a list of texts, or of `ds=name;key=a,b` on the kernel command line.
fn list_setting(search: &Search, source: &str, key: &str) -> Vec<String> {
    let parameters = super::parameters(search.machine);
    let from_line = parameters.as_ref().and_then(|(_, map)| map.get(key)).and_then(Value::as_str);
    if let Some(line) = from_line {
        return line.split(',').map(|u| u.trim().to_owned()).filter(|u| !u.is_empty()).collect();
    }
    let list = search.settings(source).and_then(|s| s.get(key)).and_then(Value::as_list).unwrap_or_default();
    list.iter().filter_map(Value::text).collect()
}

fn openstack_job(search: &mut Search) -> Option<Job> {
    let configured = list_setting(search, "OpenStack", "metadata_urls");
    let disks = disks(search.machine) > 1;
    let uuid = search.machine.uuid();
    let without_network = switched_off(search, "OpenStack", "apply_network_config");
    let fetch = move |client: &Client, base: &str| {
        let fetched = openstack::fetch(client, base, disks)?;
        let mut files = Files::default();
        fetched.files.into_iter().for_each(|(path, content)| files.insert(path, content));
        let read = openstack_files::read(&files).ok_or_else(|| Error::new(format!("{base} has no OpenStack metadata")));
        let mut instance = read?;
        instance.problems.extend(fetched.problems);
        instance.source = "OpenStack".into();
        instance.class = "DataSourceOpenStackLocal".into();
        instance.subplatform = format!("metadata ({})", fetched.base);
        if without_network {
            instance.network = None;
        }
        if instance.instance_id.is_empty() {
            instance.instance_id = uuid.clone().unwrap_or_else(|| "iid-dsopenstack".into());
        }
        Ok(Found { instance, place: fetched.base })
    };
    let urls = move |way: &Way| openstack::urls(way, &configured);
    Some(Job { name: "OpenStack", urls: Box::new(urls), fetch: Box::new(fetch), redirects: Redirects::SameOrigin })
}

/// Whether the image's settings for a source say no to `key`.
fn switched_off(search: &Search, source: &str, key: &str) -> bool {
    search.settings(source).and_then(|s| s.get(key)).is_some_and(Value::is_false)
}

fn ec2_job(search: &mut Search) -> Option<Job> {
    let configured = list_setting(search, "Ec2", "metadata_urls");
    let (cloud, nics) = (ec2::Cloud::of(search.machine), search.machine.nics());
    let full_network = !switched_off(search, "Ec2", "apply_full_imds_network_config");
    let fetch = move |client: &Client, base: &str| {
        let crawled = ec2::crawl(client, base, cloud == ec2::Cloud::Aws)?;
        let link = client.way().link.as_deref();
        let instance = ec2::instance(crawled, cloud, base, &nics, link, full_network);
        Ok(Found { instance, place: base.into() })
    };
    let urls = move |way: &Way| ec2::urls(way, &configured);
    Some(Job { name: "Ec2", urls: Box::new(urls), fetch: Box::new(fetch), redirects: Redirects::SameOrigin })
}

/// How many disks the machine has: only where there are several do a source's names for them matter.
fn disks(machine: &Machine) -> usize {
    const NO_DISKS: [&str; 8] = ["loop", "ram", "zram", "sr", "fd", "nbd", "dm-", "md"];
    let Ok(entries) = std::fs::read_dir(machine.base.join("sys/block")) else { return 0 };
    let is_disk = |entry: &std::fs::DirEntry| {
        let name = entry.file_name();
        let size = std::fs::read_to_string(entry.path().join("size")).unwrap_or_default();
        !NO_DISKS.iter().any(|p| name.to_string_lossy().starts_with(p)) && size.trim() != "0"
    };
    entries.filter_map(std::result::Result::ok).filter(is_disk).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    #[test]
    fn only_disks_count() {
        let dir = TempDir::new("disks");
        for (name, size) in [("vda", "100"), ("vdb", "9"), ("sr0", "7"), ("loop0", "0"), ("sda", "0"), ("dm-0", "5")] {
            std::fs::create_dir_all(dir.0.join("sys/block").join(name)).unwrap();
            std::fs::write(dir.0.join("sys/block").join(name).join("size"), size).unwrap();
        }
        assert_eq!(disks(&Machine::read(&dir.0)), 2);
    }
}
