//! The tables as the program holds them: packed, a third of their size. Their texts are beside them, and what is packed has to be
//! them: `BLESS=1 cargo test schema::tables` packs them anew.

use crate::userdata::gzip;
use std::sync::OnceLock;

/// The most that a table comes to, in bytes.
const MAX_TABLE: usize = 64 << 10;

/// A table of the keys of one kind of document.
pub struct Table {
    packed: &'static [u8],
    text: OnceLock<String>,
}

/// cloud-config, by module.
pub static CLOUD_CONFIG: Table = Table::new(include_bytes!("cloud_config.txt.gz"));
/// Network configuration, both versions.
pub static NETWORK: Table = Table::new(include_bytes!("network.txt.gz"));

impl Table {
    const fn new(packed: &'static [u8]) -> Table {
        Table { packed, text: OnceLock::new() }
    }

    /// The table's text.
    pub fn text(&'static self) -> &'static str {
        self.text.get_or_init(|| {
            let bytes = gzip::unpack(self.packed, MAX_TABLE).unwrap_or_default();
            String::from_utf8(bytes).unwrap_or_default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn what_is_packed_is_the_text() {
        let tables = [
            (&CLOUD_CONFIG, include_str!("cloud_config.txt"), "cloud_config.txt.gz"),
            (&NETWORK, include_str!("network.txt"), "network.txt.gz"),
        ];
        for (table, text, name) in tables {
            if std::env::var_os("BLESS").is_some() {
                let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/schema").join(name);
                std::fs::write(path, gzip::pack(text.as_bytes())).unwrap();
            } else {
                assert!(table.text() == text, "{name} is not the packed text: pack it with BLESS=1");
            }
            assert!(table.packed.len() * 2 < text.len());
        }
    }
}
