//! Trust: what came from outside is measured and checked, by the policy of the image's maker, before it is used.
//!
//! What is measured and checked are the bytes as the source got them ([`crate::document::Taken`]). The cache has them, so that a
//! later boot, which uses it, measures the same.

mod aes;
pub mod age;
pub mod allowed;
mod chacha;
mod check;
mod cipher;
pub mod cms;
pub mod credential;
pub mod endorsed;
pub mod envelope;
pub mod event_log;
pub mod measure;
pub mod policy;
pub mod quote;
pub mod seal;
pub mod sealed;
pub mod sshsig;
pub mod swtpm;
pub mod tpm;
pub mod unseal;

pub use check::{Checked, Circumstances, check};
pub use policy::{Failure, Policy};

use crate::base::base64;
use crate::document::{Bytes, Raw, Value, json};
use crate::instance::{Instance, NetworkData, cache};
use std::borrow::Cow;

/// What a policy has rules for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentKind {
    Metadata,
    Network,
    UserData,
    /// Also vendor-data2.
    VendorData,
    /// What user-data includes by a URL.
    Include,
    /// Configuration on the kernel command line: `cc:` and `cloud-config-url=`.
    CommandLine,
}

impl DocumentKind {
    /// All kinds, with their names in a policy.
    pub const ALL: [(DocumentKind, &'static str); 6] = [
        (DocumentKind::Metadata, "metadata"),
        (DocumentKind::Network, "network-config"),
        (DocumentKind::UserData, "user-data"),
        (DocumentKind::VendorData, "vendor-data"),
        (DocumentKind::Include, "include"),
        (DocumentKind::CommandLine, "command-line"),
    ];

    /// Its name in a policy.
    pub fn name(self) -> &'static str {
        DocumentKind::ALL.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }

    /// The kind with this name.
    pub fn named(name: &str) -> Option<DocumentKind> {
        DocumentKind::ALL.iter().find(|(_, own)| *own == name).map(|(kind, _)| *kind)
    }

    /// Whether a source gives it.
    pub fn is_document(self) -> bool {
        !matches!(self, DocumentKind::Include | DocumentKind::CommandLine)
    }
}

/// One document of an instance.
pub struct Document<'a> {
    /// The name of its kind; `vendor-data2` has one of its own.
    pub name: &'static str,
    pub kind: DocumentKind,
    /// None if the source has none.
    pub bytes: Option<Cow<'a, [u8]>>,
}

/// The documents of an instance, in the order in which they are measured.
pub fn documents(instance: &Instance) -> [Document<'_>; 5] {
    let user_data = instance.user_data.as_ref().map(|bytes| match &instance.envelope {
        Some(envelope) => [&**envelope, &**bytes].concat().into(),
        None => Cow::from(&**bytes),
    });
    let [metadata, network, vendor_data, vendor_data2] = match &instance.raw {
        Some(raw) => as_they_came(raw, instance),
        None => of_values(instance),
    };
    let of = |name, kind, bytes| Document { name, kind, bytes };
    [
        of("metadata", DocumentKind::Metadata, metadata),
        of("network-config", DocumentKind::Network, network),
        of("user-data", DocumentKind::UserData, user_data),
        of("vendor-data", DocumentKind::VendorData, vendor_data),
        of("vendor-data2", DocumentKind::VendorData, vendor_data2),
    ]
}

/// The bytes of metadata, network configuration, vendor-data and vendor-data2.
type Others<'a> = [Option<Cow<'a, [u8]>>; 4];

/// As the source got them. If it made a document of the metadata, the network configuration has the metadata's bytes, and vendor-data
/// those of its own value.
fn as_they_came<'a>(raw: &'a Raw, instance: &'a Instance) -> Others<'a> {
    let of = |bytes: &'a Option<Bytes>| bytes.as_ref().map(|bytes| Cow::from(&**bytes));
    let [metadata, network, vendor_data, vendor_data2] = &raw.0;
    let made_network = || of(metadata).filter(|_| instance.network.is_some());
    [
        of(metadata),
        of(network).or_else(made_network),
        of(vendor_data).or_else(|| of_value(&instance.vendor_data)),
        of(vendor_data2).or_else(|| of_value(&instance.vendor_data2)),
    ]
}

/// Fields of an instance that are no metadata: other documents, and what this program found out itself, such as the device.
const NOT_METADATA: &[&str] = &[
    "class",
    "platform",
    "subplatform",
    "described",
    "from_network",
    "machine_uuid",
    "user_data",
    "envelope",
    "signature",
    "vendor_data",
    "vendor_data2",
    "network",
    "problems",
];

/// The values of an instance that was read when there was no policy: its documents have not been kept.
fn of_values(instance: &Instance) -> Others<'_> {
    let mut metadata = Vec::new();
    // Writing to memory does not fail.
    let _ = cache::write_without(instance, NOT_METADATA, &mut metadata);
    let network = instance.network.as_ref().map(|network| match network {
        NetworkData::Openstack(value) | NetworkData::Cloud(value) => json::to_string(value).into_bytes().into(),
        NetworkData::Eni(text) => text.as_bytes().into(),
    });
    [Some(metadata.into()), network, of_value(&instance.vendor_data), of_value(&instance.vendor_data2)]
}

/// cloud-init's mark of bytes in JSON, which the cache has too.
const BYTES: &str = "ci-b64:";

/// The bytes of vendor-data: of a text as it is, and of other values as JSON.
fn of_value(value: &Value) -> Option<Cow<'_, [u8]>> {
    match value {
        Value::Null => None,
        Value::String(text) => {
            let bytes = text.strip_prefix(BYTES).and_then(|text| base64::decode(text.as_bytes()));
            Some(bytes.map_or(text.as_bytes().into(), Cow::from))
        }
        Value::Bytes(bytes) => Some((**bytes).into()),
        other => Some(json::to_string(other).into_bytes().into()),
    }
}

/// The lines of a file of the policy that have something, with their numbers: comments begin with `#`.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

#[cfg(test)]
mod tests;
