//! Bytes to parts to merged cloud-config: plain data and functions, nothing is read or changed here.

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

use crate::base::error::Result;
use crate::base::md5::md5;
use crate::base::report::Report;
use crate::document::{Bytes, Value};
use std::sync::Arc;

/// How much one source's documents may come to, unpacked, in bytes.
pub const MAX_UNPACKED: usize = 32 << 20;

/// A URL that user-data asks for.
#[derive(Debug)]
pub struct Include<'a> {
    pub url: &'a str,
    /// Whether the answer of an earlier boot is good enough (`#include-once`); it is kept under [`cache_name`].
    pub once: bool,
}

/// What fetching a URL gives.
#[derive(Debug)]
pub enum Fetched {
    Content(Vec<u8>),
    /// Not to be had now: there is no network yet.
    Later,
}

/// The file below data/urlcache that holds the answer to an `#include-once`.
pub fn cache_name(url: &str) -> String {
    format!("{:032x}", u128::from_be_bytes(md5(url.as_bytes())))
}

/// Which part-handlers can run, in the real root, where Python is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PartHandlers {
    /// There is no Python.
    #[default]
    None,
    /// Those among the parts.
    OfParts,
    /// Those of the image too.
    OfImage,
}

/// What processing one source needs beside its bytes.
pub struct Context<'a> {
    /// What messages call the source: `user-data`.
    pub source: &'a str,
    /// Vendor scripts have a place of their own.
    pub vendor: bool,
    /// The MIME types that are left out (`disabled_handlers`).
    pub disabled: &'a [String],
    /// Which instance of a launch this is; parts for another are left out.
    pub launch_index: Option<i64>,
    /// The variables of jinja templates: the sensitive instance-data.
    pub instance_data: &'a Value,
    /// What no part-handler can take is reported.
    pub part_handlers: PartHandlers,
    /// Gets an included URL.
    pub fetch: &'a mut dyn FnMut(&Include<'_>) -> Result<Fetched>,
    /// Errors are what makes cloud-init drop the whole source; the rest is processed all the same.
    pub report: &'a mut Report,
}

/// When a script runs, which says where it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Once for the instance, in the final stage: scripts/ of the instance.
    User,
    /// The vendor's, likewise: scripts/vendor/ of the instance.
    Vendor,
    PerBoot,
    PerInstance,
    PerOnce,
}

/// A script to be kept, 0700. Its name is fit for a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    pub name: String,
    pub content: Bytes,
    pub when: When,
}

/// The result of one source (user-data, vendor-data, vendor-data2).
#[derive(Debug, Default)]
pub struct UserData {
    /// The parts after unfolding and after those for other instances are left out, in order. [`mime::write`] makes user-data.txt.i
    /// of them, 0600.
    pub parts: Vec<Part>,
    /// The cloud-config parts, merged.
    pub cloud_config: Arc<CloudConfig>,
    pub scripts: Vec<Script>,
    /// Boothooks by name, 0700, run on every boot with INSTANCE_ID set.
    pub boothooks: Vec<(String, Bytes)>,
    /// Parts that are recognised and not processed here, by name: reported already, or left to a part-handler.
    pub unsupported: Vec<String>,
    /// The MIME types that were left out.
    pub disabled: Vec<String>,
    /// The URLs that have to wait for the network: with one here, the source is to be processed again then.
    pub deferred: Vec<String>,
    /// The answers to `#include-once`, to be kept under [`cache_name`], 0600: URL and content.
    pub fetched_once: Vec<(String, Bytes)>,
}

/// Processes one source: its documents are unfolded into parts, and each part is put where it belongs. What is wrong with one
/// part never stops the others.
pub fn process(documents: &[Bytes], context: Context<'_>) -> UserData {
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

/// A part's name as a file's: `/` becomes `_`, and only letters, digits and `_-.()` stay.
pub fn file_name(name: &str) -> String {
    let clean: String =
        name.replace('/', "_").chars().filter(|c| c.is_ascii_alphanumeric() || "_-.()".contains(*c)).collect();
    match clean.as_str() {
        "" | "." | ".." => format!("part{clean}").replace('.', "_"),
        _ => clean,
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
    }
}
