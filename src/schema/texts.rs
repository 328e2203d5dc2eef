//! The schemas and the modules' documentation, packed into the program by build.rs.

use crate::base::gzip;
use std::sync::OnceLock;

/// The largest total size of the texts, in bytes.
const MAX_TEXTS: usize = 256 << 10;

/// The texts of a module, or of a kind of document (`common`, `network`).
pub struct Text {
    /// The name, or several separated by spaces.
    pub names: &'static str,
    /// The module's documentation with an example. Empty for a kind of document.
    pub docs: &'static str,
    /// In the notation of [`super`].
    pub schema: &'static str,
}

/// All texts.
fn all() -> impl Iterator<Item = Text> {
    static UNPACKED: OnceLock<String> = OnceLock::new();
    let text = UNPACKED.get_or_init(|| {
        let bytes = gzip::unpack(include_bytes!(concat!(env!("OUT_DIR"), "/texts.gz")), MAX_TEXTS);
        String::from_utf8(bytes.unwrap_or_default()).unwrap_or_default()
    });
    // Separators as build.rs writes them.
    text.split_terminator('\x1e').filter_map(|record| {
        let (names, rest) = record.split_once('\x1f')?;
        let (docs, schema) = rest.split_once('\x1f')?;
        Some(Text { names, docs, schema })
    })
}

fn is_module(text: &Text) -> bool {
    !matches!(text.names, "common" | "network")
}

/// The texts of the modules.
pub fn modules() -> impl Iterator<Item = Text> {
    all().filter(is_module)
}

/// The text of a module, by one of its names.
pub fn module(name: &str) -> Option<Text> {
    modules().find(|text| text.names.split(' ').any(|n| n == name))
}

/// The schema of a cloud-config: the keys that belong to no module, and those of every module.
pub fn cloud_config() -> &'static str {
    static SCHEMA: OnceLock<String> = OnceLock::new();
    SCHEMA.get_or_init(|| all().filter(|t| t.names != "network").map(|t| t.schema).collect())
}

/// The schema of network configuration, both versions.
pub fn network() -> &'static str {
    all().find(|t| t.names == "network").map_or("", |t| t.schema)
}
