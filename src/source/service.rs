//! Sources that need the network, and the table of them.

use super::{Found, Search, no_cloud, openstack, openstack_files};
use crate::document::Value;
use crate::drive::Files;
use crate::error::{Error, Result};
use crate::link::http::{Client, Redirects};
use crate::link::{Session, Way, http};
use std::path::PathBuf;

/// A line of the table.
pub struct Service {
    /// cloud-init's name: `OpenStack`.
    pub name: &'static str,
    /// What asking it takes, on this machine; None where this machine does not have it.
    pub prepare: fn(&mut Search) -> Option<Job>,
}

/// In cloud-init's order.
pub static SERVICES: &[Service] =
    &[Service { name: "NoCloud", prepare: no_cloud::remote }, Service { name: "OpenStack", prepare: openstack_job }];

/// Where a service is asked by a way that is ready.
pub type Urls = Box<dyn Fn(&Way) -> Vec<String>>;
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

/// Asks one service after the other, by every way of the session. None, and a problem for each, where none answers.
pub fn ask(search: &mut Search, jobs: Vec<Job>, session: &mut Session, ca_files: &[PathBuf]) -> Option<Found> {
    for job in jobs {
        let settings = http::Settings { redirects: job.redirects, ca_files: ca_files.to_vec() };
        match session.ask(&settings, &job.urls, &job.fetch) {
            Ok(found) => return Some(found),
            Err(e) => search.problem(format!("{}: {e}", job.name)),
        }
    }
    None
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
    let disks =
        crate::drive::devices::list(&Default::default()).is_ok_and(|d| d.iter().filter(|d| !d.partition).count() > 1);
    let uuid = search.machine.uuid();
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
        if instance.instance_id.is_empty() {
            instance.instance_id = uuid.clone().unwrap_or_else(|| "iid-dsopenstack".into());
        }
        Ok(Found { instance, place: fetched.base })
    };
    let urls = move |way: &Way| openstack::urls(way, &configured);
    Some(Job { name: "OpenStack", urls: Box::new(urls), fetch: Box::new(fetch), redirects: Redirects::SameOrigin })
}
