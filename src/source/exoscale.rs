//! Exoscale.
//!
//! Follows Exoscale's documentation, "Instance metadata", and cloud-init's, "Exoscale".

use super::closed::{Closing, ServiceAddress};
use super::documents::instance;
use super::ec2::tree::{Service, VALUE_TRIES};
use super::password_server;
use super::search::{Found, Search};
use super::service::{Job, RETRIES, TIMEOUT};
use super::table::Source;
use crate::base::error::Result;
use crate::base::problem::Problems;
use crate::detect::Mark;
use crate::document::{Bytes, Value};
use crate::instance::Instance;
use crate::link::http::{Client, Request};

pub static SOURCE: Source = Source {
    name: "Exoscale",
    marks: &[Mark::product("Exoscale*")],
    service: Some(service_job),
    password_server: Some(|_, config| Some(Addresses::of(settings(config)).passwords)),
    provisioned: Some(|live| password_server::saved(live, &Addresses::of(settings(live.config)).passwords)),
    closing: Closing {
        addresses: &[ServiceAddress::tcp("169.254.169.254", &[80, 8080])],
        stays: "what else has the address",
    },
    settings: &[
        ("metadata_url", "the address of the service, instead of http://169.254.169.254"),
        ("api_version", "the first part of its paths, instead of 1.0"),
        ("password_server_port", "the port of the password server, instead of 8080"),
        TIMEOUT,
        RETRIES,
    ],
    docs: "Exoscale. Read from http://169.254.169.254/1.0. On every boot the password server at port 8080 \
        is asked whether the password was reset, and notified once the machine runs with the new one.",
    ..Source::NEW
};

fn settings(config: &Value) -> Option<&Value> {
    config.at(&["datasource", SOURCE.name])
}

/// The URLs of the metadata and the passwords.
struct Addresses {
    metadata: String,
    passwords: String,
}

impl Addresses {
    fn of(settings: Option<&Value>) -> Self {
        let text = |key: &str, default: &str| {
            settings.and_then(|s| s.get(key)).and_then(Value::text).unwrap_or_else(|| default.into())
        };
        let (url, version) = (text("metadata_url", "http://169.254.169.254"), text("api_version", "1.0"));
        let (url, port) = (url.trim_end_matches('/'), text("password_server_port", "8080"));
        Addresses { metadata: format!("{url}/{version}"), passwords: format!("{url}:{port}/{version}/") }
    }
}

fn service_job(search: &mut Search) -> Option<Job> {
    let Addresses { metadata, passwords } = Addresses::of(search.settings(SOURCE.name));
    let fetch = move |client: &Client, root: &str| {
        let mut found = tree_instance(client, root, SOURCE.name)?;
        password_server::fetch(client, &passwords, &mut found);
        Ok(Found { instance: found, place: root.into() })
    };
    Some(Job::at(search, SOURCE.name, vec![metadata], Box::new(fetch)))
}

/// The instance of a service with `user-data` and the EC2 tree `meta-data/` below `root`.
///
/// # Errors
/// No response, or no instance-id.
pub fn tree_instance(client: &Client, root: &str, name: &str) -> Result<Instance> {
    let service = Service::new(client, root, None);
    let id = service.instance_id(Request::first(&format!("{root}/meta-data/instance-id")))?;
    let problems = Problems::new();
    let url = format!("{root}/user-data");
    let user_data = service.get(&Request { tries: VALUE_TRIES, ..Request::get(&url) }).unwrap_or_else(|e| {
        problems.warn(format!("{e}; the boot goes on without user-data"));
        None
    });
    let metadata = service.tree(&format!("{root}/meta-data"), &id, &problems);
    let mut found = instance(name, metadata);
    found.user_data = user_data.filter(|body| !body.is_empty()).map(Bytes::from);
    found.problems = problems;
    Ok(found)
}
