//! CloudSigma: a JSON document over the second serial port.
//!
//! Follows CloudSigma's documentation, "Server Context", and cloud-init's, "CloudSigma".

use super::Source;
use super::keys::public_keys;
use super::search::{Found, Search};
use crate::base::base64;
use crate::base::error::{Context, Result};
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
    let mut problems = Vec::new();
    let user_data = match user_data {
        Some(data) if encoded.split(',').any(|field| field.trim() == "cloudinit-user-data") => {
            let plain = base64::decode(data.trim_ascii());
            if plain.is_none() {
                problems
                    .push("cloudinit-user-data: expected base64, as base64_fields says; it is used as it is".into());
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
