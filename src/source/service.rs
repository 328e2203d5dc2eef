//! Sources that need the network, and the table of them.

use super::{Found, Search, ec2, no_cloud_net, openstack, openstack_files};
use crate::base::error::{Error, Result};
use crate::document::Value;
use crate::drive::Files;
use crate::instance::DsMode;
use crate::link::http::{Client, Limits, Redirects};
use crate::link::{Session, Way, http};
use crate::machine::Machine;
use std::path::PathBuf;
use std::time::Duration;

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
    /// `max_wait`, `timeout` and `retries` of the image's `datasource: {NAME: …}`.
    pub limits: Limits,
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
            match (job.fetch)(&client.limited(job.limits), url) {
                Ok(found) if found.instance.dsmode == DsMode::Disabled => {
                    reasons.push(format!("{}: {} says dsmode: disabled", job.name, found.place));
                }
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
            search.reason(e.to_string());
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
    match search.settings(source).and_then(|s| s.get(key)) {
        Some(Value::List(list)) => list.iter().filter_map(Value::text).collect(),
        Some(one) => one.text().into_iter().collect(),
        None => Vec::new(),
    }
}

/// How long a service is asked, as the image says (cloud-init's documentation of each datasource). What is no number is a
/// problem and does not count.
pub(super) fn limits(search: &mut Search, source: &str) -> Limits {
    let mut number = |key: &str| {
        let value = search.settings(source)?.get(key).filter(|v| !v.is_null())?;
        let number = value.text().and_then(|t| t.trim().parse::<i64>().ok());
        if number.is_none() {
            search.problem(format!("datasource: {source}: {key}: expected a whole number; it does not count"));
        }
        number
    };
    let seconds = |n: i64| Duration::from_secs(u64::try_from(n).unwrap_or(0));
    Limits {
        search: number("max_wait").map(seconds),
        attempt: number("timeout").map(seconds).filter(|t| !t.is_zero()),
        retries: number("retries").map(|n| u32::try_from(n.max(0)).unwrap_or(u32::MAX)),
    }
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
    let (urls, fetch, limits) = (Box::new(urls), Box::new(fetch), limits(search, "OpenStack"));
    Some(Job { name: "OpenStack", urls, fetch, redirects: Redirects::SameOrigin, limits })
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
    let (urls, fetch, limits) = (Box::new(urls), Box::new(fetch), limits(search, "Ec2"));
    Some(Job { name: "Ec2", urls, fetch, redirects: Redirects::SameOrigin, limits })
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
    use crate::base::deadline::Deadline;
    use crate::base::testing::TempDir;
    use crate::document::yaml;
    use crate::root::{Root, Use};

    #[test]
    fn how_long_a_service_is_asked() {
        let dir = TempDir::new("limits");
        let (machine, root) = (Machine::read(&dir.0), Root::open(&dir.0, Use::Plan).unwrap());
        let text = "datasource: {OpenStack: {max_wait: -1, timeout: '7', retries: 2}, Ec2: {max_wait: soon, timeout: 0, retries: null}}";
        let config = yaml::parse("t", text).unwrap();
        let mut search = Search::new(&machine, &root, &config, Deadline::after(Duration::ZERO));
        let seconds = |n| Some(Duration::from_secs(n));
        assert_eq!(
            limits(&mut search, "OpenStack"),
            Limits { search: seconds(0), attempt: seconds(7), retries: Some(2) }
        );
        assert_eq!(limits(&mut search, "NoCloud"), Limits::default());
        assert_eq!(search.problems().len(), 0);
        assert_eq!(limits(&mut search, "Ec2"), Limits::default());
        assert_eq!(search.problems(), ["datasource: Ec2: max_wait: expected a whole number; it does not count"]);
    }

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
