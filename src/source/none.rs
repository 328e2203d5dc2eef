//! None: the instance of a machine on which no other source was found.

use super::search::{Found, Search};
use super::table::Source;
use crate::document::{Bytes, Value};
use crate::instance::Instance;

pub static SOURCE: Source = Source {
    name: crate::detect::NONE,
    settings: &[
        ("metadata", "a mapping with instance-id, local-hostname and more"),
        ("userdata_raw", "user-data as text"),
    ],
    docs: "The last of every list: a machine with the metadata and user-data of the image's own configuration \
        (datasource: {None: …}), used where no other source has anything. A machine without either has what the image \
        configures: at once where None is the only source, else in the real root's network stage, where a source was found or \
        named that has nothing and datasource_list has None too.",
    ..Source::NEW
};

/// The instance of a machine without a source: from the image's own configuration, if it has one.
pub fn instance(settings: Option<&Value>) -> Instance {
    let metadata = settings.and_then(|s| s.get("metadata")).and_then(Value::as_map).cloned().unwrap_or_default();
    let text = |key: &str| metadata.get(key).and_then(Value::text).filter(|t| !t.is_empty());
    Instance {
        source: SOURCE.name.into(),
        class: "DataSourceNone".into(),
        platform: "none".into(),
        cloud_name: "none".into(),
        subplatform: "config".into(),
        instance_id: text("instance-id").unwrap_or_else(|| "iid-datasource-none".into()),
        local_hostname: text("local-hostname"),
        public_keys: super::keys::public_keys(metadata.get("public-keys")),
        user_data: settings.and_then(|s| s.get("userdata_raw")).and_then(Value::bytes).map(|b| Bytes::from(b.to_vec())),
        metadata: Value::Map(metadata),
        ..Instance::default()
    }
}

/// Whether the image's own configuration has data for the instance.
pub fn is_configured(search: &Search) -> bool {
    search.settings(SOURCE.name).is_some_and(|s| s.get("metadata").or(s.get("userdata_raw")).is_some())
}

/// The instance in the image's own configuration. Without data there, its modules have what the image configures.
pub fn found(search: &Search) -> Found {
    Found { instance: instance(search.settings(SOURCE.name)), place: format!("datasource: {}:", SOURCE.name) }
}
