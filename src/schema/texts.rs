//! The schemas and the modules' documentation, packed into the program by build.rs.

use crate::base::gzip;
use std::sync::OnceLock;

/// The largest size of all texts of a kind, in bytes.
const MAX_TEXTS: usize = 256 << 10;

/// The texts of one kind: each module's, or also those of kinds of documents (`common`, `network`).
struct Texts {
    packed: &'static [u8],
    unpacked: OnceLock<String>,
}

/// In the notation of [`super`].
static SCHEMAS: Texts = Texts::new(include_bytes!(concat!(env!("OUT_DIR"), "/schemas.gz")));
/// The modules' documentation with examples.
static DOCS: Texts = Texts::new(include_bytes!(concat!(env!("OUT_DIR"), "/docs.gz")));

impl Texts {
    const fn new(packed: &'static [u8]) -> Texts {
        Texts { packed, unpacked: OnceLock::new() }
    }

    /// Each text with its name, or several names separated by spaces.
    fn all(&'static self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let text = self.unpacked.get_or_init(|| {
            let bytes = gzip::unpack(self.packed, MAX_TEXTS);
            String::from_utf8(bytes.unwrap_or_default()).unwrap_or_default()
        });
        // Separators as build.rs writes them.
        text.split_terminator('\x1e').filter_map(|record| record.split_once('\x1f'))
    }

    fn named(&'static self, name: &str) -> Option<&'static str> {
        self.all().find(|(names, _)| names.split(' ').any(|n| n == name)).map(|(_, text)| text)
    }
}

/// The schema of a module, by one of its names.
pub fn module(name: &str) -> Option<&'static str> {
    SCHEMAS.named(name).filter(|_| !matches!(name, "common" | "network"))
}

/// The schemas of all modules, each with its names.
pub fn modules() -> impl Iterator<Item = (&'static str, &'static str)> {
    SCHEMAS.all().filter(|(names, _)| !matches!(*names, "common" | "network"))
}

/// The documentation of a module, by one of its names.
pub fn docs(name: &str) -> Option<&'static str> {
    DOCS.named(name).map(str::trim_end)
}

/// The schema of a cloud-config: the keys that belong to no module, and those of every module.
pub fn cloud_config() -> &'static str {
    static SCHEMA: OnceLock<String> = OnceLock::new();
    SCHEMA.get_or_init(|| SCHEMAS.all().filter(|(names, _)| *names != "network").map(|(_, text)| text).collect())
}

/// The schema of network configuration, both versions.
pub fn network() -> &'static str {
    SCHEMAS.named("network").unwrap_or_default()
}
