//! Processes user-data and vendor-data: from bytes to parts to a merged cloud-config. Functions on plain
//! data; nothing is read or changed here.

mod cloud_config;
mod cmdline;
pub mod config;
mod handle;
pub mod jinja;
mod jsonp;
pub mod kind;
pub mod merge;
pub mod mime;
mod parts;
pub mod vendor;

pub use cloud_config::{CloudConfig, IGNORED};
pub use cmdline::from_cmdline;
pub use parts::Part;

use crate::base::digest;
use crate::base::error::Result;
use crate::base::hex;
use crate::base::md5::md5;
use crate::base::problem::Problems;
use crate::document::{Bytes, Value};
use std::sync::Arc;

/// The largest total size of one source's documents, decompressed, in bytes.
pub const MAX_UNPACKED: usize = 32 << 20;

/// A URL that user-data includes.
#[derive(Debug)]
pub struct Include<'a> {
    pub url: &'a str,
    /// Whether the content from an earlier boot may be used (`#include-once`), which is kept under
    /// [`cache_name`].
    pub once: bool,
}

/// The result of fetching a URL.
#[derive(Debug)]
pub enum Fetched {
    Content(Vec<u8>),
    /// Not asked for yet: there is no network.
    NoNetwork,
}

/// The name of the file in data/urlcache for an `#include-once`.
pub fn cache_name(url: &str) -> String {
    hex::encode(&md5(url.as_bytes()))
}

/// Which part-handlers can run; they need Python in the real root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PartHandlers {
    /// There is no Python.
    #[default]
    None,
    /// The handlers in the parts.
    OfParts,
    /// The handlers in the parts and the image's.
    OfImage,
}

/// The context of one source's bytes.
pub struct Surroundings<'a> {
    /// The name of the source in messages: `user-data`.
    pub source: &'a str,
    /// Whether it is vendor-data, whose scripts go to a folder of their own.
    pub vendor: bool,
    /// The MIME types to leave out (`disabled_handlers`).
    pub disabled: &'a [String],
    /// This instance's launch index; parts for another one are left out.
    pub launch_index: Option<i64>,
    /// The variables of Jinja templates: the sensitive instance-data.
    pub instance_data: &'a Value,
    /// Whether parts without a handler are reported depends on this.
    pub part_handlers: PartHandlers,
    /// Gets an included URL.
    pub fetch: &'a mut dyn FnMut(&Include<'_>) -> Result<Fetched>,
    /// Errors are what makes cloud-init drop the whole source; here the rest is still processed.
    pub report: &'a Problems,
}

/// When a script runs, which determines its folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Once for each instance, in the final stage: scripts/ of the instance.
    User,
    /// The same for vendor-data: scripts/vendor/ of the instance.
    Vendor,
    PerBoot,
    PerInstance,
    PerOnce,
}

/// A script to be written, 0700. Its name is safe in a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserScript {
    pub name: String,
    pub content: Bytes,
    pub when: When,
}

/// The result of processing one source (user-data, vendor-data, vendor-data2).
#[derive(Debug, Default)]
pub struct UserData {
    /// The unfolded parts in order, without those for other instances. [`mime::write`] makes user-data.txt.i
    /// from them, 0600.
    pub parts: Vec<Part>,
    /// The cloud-config parts, merged.
    pub cloud_config: Arc<CloudConfig>,
    pub scripts: Vec<UserScript>,
    /// Boothooks by name, 0700, which are run on every boot with INSTANCE_ID set.
    pub boothooks: Vec<(String, Bytes)>,
    /// Parts of known types that are not processed here, by name: already reported, or left to a
    /// part-handler.
    pub unsupported: Vec<String>,
    /// The MIME types that were left out.
    pub disabled: Vec<String>,
    /// The URLs that have to wait for the network. If there is one, the source has to be processed again
    /// then.
    pub deferred: Vec<String>,
    /// The content of each `#include-once`, to be kept under [`cache_name`], 0600: URL and content.
    pub fetched_once: Vec<(String, Bytes)>,
}

/// Processes one source: unfolds its documents into parts, and handles each part. An error in one part never
/// stops the others.
pub fn process(documents: &[Bytes], context: Surroundings<'_>) -> UserData {
    let mut unfolder = parts::Unfolder::new(context.source, context.fetch, context.report);
    documents.iter().for_each(|document| unfolder.document(document));
    let parts::Unfolded { mut parts, deferred, fetched_once } = unfolder.finish();
    parts.retain(|part| part.is_for(context.launch_index));
    let mut handler = handle::Handler::new(context.source, context.vendor, context.instance_data, context.report);
    for part in parts.iter().filter(|p| !context.disabled.contains(&p.content_type)) {
        handler.part(part);
    }
    let (data, for_handlers) = handler.finish();
    let taken = match context.part_handlers {
        PartHandlers::None => false,
        PartHandlers::OfParts => data.unsupported.iter().any(|name| name.starts_with("text/part-handler")),
        PartHandlers::OfImage => true,
    };
    if !taken {
        for_handlers.iter().for_each(|text| context.report.warn(text));
    }
    UserData { parts, deferred, fetched_once, disabled: context.disabled.to_vec(), ..data }
}

/// The longest file name that is made of a part's, in bytes; a file system takes 255, and vendor-data2 adds a prefix.
const MAX_NAME: usize = 200;

/// A part's name as a file name: `/` becomes `_`, only letters, digits and `_-.()` are kept, and the end of a long one is replaced by
/// its digest.
pub fn file_name(name: &str) -> String {
    let clean: String =
        name.replace('/', "_").chars().filter(|c| c.is_ascii_alphanumeric() || "_-.()".contains(*c)).collect();
    match clean.as_str() {
        "" | "." | ".." => format!("part{clean}").replace('.', "_"),
        _ => digest::shortened(&clean, MAX_NAME).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_a_path() {
        for (name, file) in [
            ("../../etc/evil.sh", ".._.._etc_evil.sh"),
            ("my script;x.sh", "myscriptx.sh"),
            ("..", "part__"),
            ("", "part"),
            ("\u{e9}", "part"),
            ("a(1)-b_c.sh", "a(1)-b_c.sh"),
        ] {
            assert_eq!(file_name(name), file);
        }
        let long = "a".repeat(300);
        assert_eq!(file_name(&long).len(), MAX_NAME);
        assert_ne!(file_name(&long), file_name(&format!("{long}b")));
    }
}
