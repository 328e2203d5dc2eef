//! Trust: what came from outside is measured and checked, by the policy of the image's maker, before it is used.
//!
//! What is measured and checked is what is used: the user-data's bytes as the source gave them, and for metadata and network
//! configuration, of which a source makes values, these values in one fixed encoding. So a later boot, which uses the cache,
//! measures the same.

pub mod allowed;
mod check;
pub mod cms;
pub mod envelope;
pub mod event_log;
pub mod measure;
pub mod policy;
pub mod quote;
pub mod sshsig;
pub mod tpm;

pub use check::{Checked, Circumstances, check};
pub use policy::{Failure, Policy};

use crate::base::base64;
use crate::document::{Value, json};
use crate::instance::{Instance, NetworkData, cache};
use std::borrow::Cow;

/// What a policy has rules for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
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

impl Kind {
    /// All kinds, with their names in a policy.
    pub const ALL: [(Kind, &'static str); 6] = [
        (Kind::Metadata, "metadata"),
        (Kind::Network, "network-config"),
        (Kind::UserData, "user-data"),
        (Kind::VendorData, "vendor-data"),
        (Kind::Include, "include"),
        (Kind::CommandLine, "command-line"),
    ];

    /// Its name in a policy.
    pub fn name(self) -> &'static str {
        Kind::ALL.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }

    /// The kind with this name.
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.iter().find(|(_, own)| *own == name).map(|(kind, _)| *kind)
    }

    /// Whether a source gives it.
    pub fn is_document(self) -> bool {
        !matches!(self, Kind::Include | Kind::CommandLine)
    }
}

/// One document of an instance.
pub struct Document<'a> {
    /// The name of its kind; `vendor-data2` has one of its own.
    pub name: &'static str,
    pub kind: Kind,
    /// None if the source has none.
    pub bytes: Option<Cow<'a, [u8]>>,
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

/// The documents of an instance, in the order in which they are measured.
pub fn documents(instance: &Instance) -> [Document<'_>; 5] {
    let of = |name, kind, bytes| Document { name, kind, bytes };
    let mut metadata = Vec::new();
    // Writing to memory does not fail.
    let _ = cache::write_without(instance, NOT_METADATA, &mut metadata);
    let network = instance.network.as_ref().map(|network| match network {
        NetworkData::Openstack(value) | NetworkData::Cloud(value) => json::to_string(value).into_bytes().into(),
        NetworkData::Eni(text) => text.as_bytes().into(),
    });
    let user_data = instance.user_data.as_ref().map(|bytes| match &instance.envelope {
        Some(envelope) => [&**envelope, &**bytes].concat().into(),
        None => Cow::from(&**bytes),
    });
    [
        of("metadata", Kind::Metadata, Some(metadata.into())),
        of("network-config", Kind::Network, network),
        of("user-data", Kind::UserData, user_data),
        of("vendor-data", Kind::VendorData, of_value(&instance.vendor_data)),
        of("vendor-data2", Kind::VendorData, of_value(&instance.vendor_data2)),
    ]
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
