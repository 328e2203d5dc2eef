//! CloudSigma: a JSON document over the second serial port.
//!
//! Follows CloudSigma's documentation, "Server Context", and cloud-init's, "CloudSigma".

use super::Source;
use super::keys::public_keys;
use super::search::{Found, Search};
use crate::base::base64;
use crate::base::error::{Context, Result};
use crate::base::problem::Problems;
use crate::detect::Mark;
use crate::document::{Bytes, Value, json};
use crate::instance::{DsMode, Instance};
use crate::link::line::Line;
use std::time::Duration;

pub static SOURCE: Source = Source {
    name: "CloudSigma",
    marks: &[Mark::product(PRODUCT)],
    read: Some(read),
    docs: "CloudSigma: the server context, one JSON document over the second serial port, /dev/ttyS1. User-data is the field \
        cloudinit-user-data of its meta, in base64 where base64_fields names it.",
    ..Source::NEW
};

const PRODUCT: &str = "CloudSigma";
/// The serial port, and the request for the whole context.
const PORT: &str = "dev/ttyS1";
const REQUEST: &[u8] = b"<\n\n>";
/// The limits of the response: time, and length in bytes.
const TIME: Duration = Duration::from_secs(60);
const MAX_CONTEXT: usize = 8 << 20;
/// How many characters of the name become the hostname.
const MAX_NAME: usize = 61;

/// Asks for the context, once.
fn read(search: &mut Search) -> Result<Option<Found>> {
    let machine = search.machine;
    if machine.dmi("product_name").as_deref() != Some(PRODUCT) || !search.first_time(SOURCE.name) {
        return Ok(None);
    }
    let deadline = search.deadline.at_most(TIME);
    let mut line = Line::serial(&machine.base.join(PORT))?;
    line.send(REQUEST, deadline)?;
    let answer = line.line(MAX_CONTEXT, deadline).context(|| "the server context")?;
    search.taken().add("context", &answer);
    // An EOT character ends it.
    let context = json::parse("the server context", answer.strip_suffix(b"\x04").unwrap_or(&answer))?;
    if context.get("meta").and_then(Value::as_map).is_none() {
        search.reason("CloudSigma: the server context has no meta: it is not used".into());
        return Ok(None);
    }
    Ok(Some(Found { instance: instance(context), place: format!("/{PORT}") }))
}

fn instance(context: Value) -> Instance {
    let text = |path: &[&str]| context.at(path).and_then(Value::text);
    let id = text(&["uuid"]).unwrap_or_else(|| "iid-datasource".into());
    let user_data = text(&["meta", "cloudinit-user-data"]).map(String::into_bytes);
    let encoded = text(&["meta", "base64_fields"]).unwrap_or_default();
    let problems = Problems::new();
    let user_data = match user_data {
        Some(data) if encoded.split(',').any(|field| field.trim() == "cloudinit-user-data") => {
            let plain = base64::decode(data.trim_ascii());
            if plain.is_none() {
                problems.warn("cloudinit-user-data: expected base64, as base64_fields says; it is used as it is");
            }
            Some(plain.unwrap_or(data))
        }
        other => other,
    };
    let suits = |c: char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '.' | '_' | '-');
    let name = text(&["name"]).filter(|n| !n.is_empty() && n.chars().all(suits));
    let name = name.map(|n| n.chars().take(MAX_NAME).collect());
    Instance {
        source: SOURCE.name.into(),
        class: "DataSourceCloudSigma".into(),
        platform: "cloudsigma".into(),
        cloud_name: "cloudsigma".into(),
        subplatform: format!("cepko (/{PORT})"),
        local_hostname: name.or_else(|| id.split('-').next().map(str::to_owned)),
        public_keys: public_keys(context.at(&["meta", "ssh_public_key"])),
        dsmode: text(&["meta", "cloudinit-dsmode"]).as_deref().and_then(DsMode::named).unwrap_or_default(),
        instance_id: id,
        user_data: user_data.filter(|d| !d.is_empty()).map(Bytes::from),
        vendor_data: context.at(&["vendor_data", "cloudinit"]).cloned().unwrap_or_default(),
        metadata: context,
        problems,
        ..Instance::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance_of(context: &str) -> Instance {
        instance(json::parse("t", context.as_bytes()).unwrap())
    }

    #[test]
    fn a_whole_context() {
        let found = instance_of(
            r##"{"uuid": "65b2fb23-8c03-4187-a3ba-8b7c919e8890", "name": "web 1", "meta": {"ssh_public_key": "ssh-ed25519 A a",
            "base64_fields": "other, cloudinit-user-data", "cloudinit-user-data": "I2Nsb3VkLWNvbmZpZwo=",
            "cloudinit-dsmode": "local"}, "vendor_data": {"cloudinit": "#cloud-config\n{}"}}"##,
        );
        assert_eq!(found.instance_id, "65b2fb23-8c03-4187-a3ba-8b7c919e8890");
        assert_eq!((found.local_hostname.as_deref(), found.dsmode), (Some("web 1"), DsMode::Local));
        assert_eq!(*found.user_data.unwrap(), *b"#cloud-config\n");
        assert_eq!(found.vendor_data, Value::from("#cloud-config\n{}"));
        assert_eq!((found.public_keys, found.problems.len()), (vec!["ssh-ed25519 A a".to_owned()], 0));
    }

    #[test]
    fn what_does_not_suit_is_replaced_or_reported() {
        let found = instance_of(r#"{"uuid": "65b2fb23-8c03", "name": "/bin/sh", "meta": {}}"#);
        assert_eq!((found.local_hostname.as_deref(), found.user_data.is_none()), (Some("65b2fb23"), true));
        let long = instance_of(&format!(r#"{{"name": "{}", "meta": {{}}}}"#, "n".repeat(100)));
        assert_eq!(long.local_hostname.map(|name| name.len()), Some(MAX_NAME));
        let broken = instance_of(r#"{"meta": {"base64_fields": "cloudinit-user-data", "cloudinit-user-data": "!"}}"#);
        assert_eq!((broken.problems.len(), broken.user_data.as_deref()), (1, Some(&b"!"[..])));
    }
}
