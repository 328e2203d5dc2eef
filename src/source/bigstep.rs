//! Bigstep Metal Cloud.

use super::documents::{as_mapping, instance, mapping, user_data};
use super::search::{Found, Search};
use super::service::{Job, MAX_WAIT, RETRIES, TIMEOUT};
use super::table::Source;
use crate::base::error::Error;
use crate::detect::Mark;
use crate::link::http::{Client, Request};

pub static SOURCE: Source = Source {
    name: "Bigstep",
    marks: &[Mark::File(URL_FILE)],
    service: Some(service_job),
    settings: &[MAX_WAIT, TIMEOUT, RETRIES],
    docs: "Bigstep Metal Cloud. Read from the URL that is the content of /var/lib/cloud/data/seed/bigstep/url: a document with \
        metadata, vendordata_raw and userdata_raw.",
    ..Source::NEW
};

/// The file whose content is the service's URL.
const URL_FILE: &str = "/var/lib/cloud/data/seed/bigstep/url";

fn service_job(search: &mut Search) -> Option<Job> {
    let url = search.root.text(URL_FILE).trim().to_owned();
    if !url.starts_with("http://") && !url.starts_with("https://") {
        search.problem(format!("Bigstep: {URL_FILE}: expected a URL of http or https"));
        return None;
    }
    let fetch = |client: &Client, url: &str| {
        let mut document = mapping(client, &Request::get(url))?;
        let mut take = |key: &str| {
            let value = document.remove(key);
            value.ok_or_else(|| Error::new(format!("the document of {URL_FILE}: expected the key {key}")))
        };
        let (metadata, vendor_data, user) = (take("metadata")?, take("vendordata_raw")?, take("userdata_raw")?);
        let mut found = instance(SOURCE.name, as_mapping("metadata", metadata)?);
        found.subplatform = format!("metadata ({url})");
        found.vendor_data = vendor_data;
        found.user_data = user_data(Some(&user));
        Ok(Found { instance: found, place: url.into() })
    };
    Some(Job::at(search, SOURCE.name, vec![url], Box::new(fetch)))
}
