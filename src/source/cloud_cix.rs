//! CloudCIX.

use super::documents::{as_mapping, decoded, instance, mapping, needed, set_network};
use super::search::{Found, Search};
use super::service::{BETWEEN, Job, MAX_WAIT, RETRIES, TIMEOUT};
use super::table::Source;
use crate::detect::Mark;
use crate::document::{Bytes, Value};
use crate::link::http::{Client, Request};

pub static SOURCE: Source = Source {
    name: "CloudCIX",
    marks: &[Mark::product("CloudCIX")],
    service: Some(service_job),
    settings: &[MAX_WAIT, TIMEOUT, RETRIES, BETWEEN],
    docs: "CloudCIX. Read from http://169.254.169.254/v1: metadata and userdata, both of which have to be there. User-data may be \
        base64.",
    ..Source::NEW
};

fn service_job(search: &mut Search) -> Option<Job> {
    let fetch = |client: &Client, base: &str| {
        let (metadata, userdata) = (format!("{base}/metadata"), format!("{base}/userdata"));
        let mut found = instance(SOURCE.name, mapping(client, &Request::first(&metadata))?);
        let body = needed(client, &Request::get(&userdata))?;
        found.user_data = (!body.is_empty()).then(|| Bytes::from(decoded(body)));
        let network = found.metadata.get("network").cloned().unwrap_or(Value::Null);
        set_network(&mut found, as_mapping("network of the metadata", network).map(Value::Map));
        Ok(Found { instance: found, place: base.into() })
    };
    Some(Job::at(search, SOURCE.name, vec!["http://169.254.169.254/v1".into()], Box::new(fetch)))
}
