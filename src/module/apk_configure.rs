//! # apk_configure
//!
//! Writes Alpine's /etc/apk/repositories, unless `preserve_repositories: true`.
//!
//! ```yaml
//! apk_repos:
//!   alpine_repo:
//!     version: v3.20
//!     community_enabled: true
//!   local_repo_base_url: https://apk.example.com
//! ```
//!
//! ```schema
//! apk_repos: {
//!  preserve_repositories: bool
//!  alpine_repo: {base_url, version!: str  community_enabled, testing_enabled: bool}+ | null
//!  local_repo_base_url: str
//! }+
//! ```

use super::Module;
use crate::base::error::{Error, Result};
use crate::document::Value;
use crate::instance::Frequency;
use crate::root::{Attr, Stage};
use crate::system::ModuleContext;

const FILE: &str = "/etc/apk/repositories";
const MIRROR: &str = "https://dl-cdn.alpinelinux.org/alpine";

pub static MODULE: Module = Module {
    name: "apk_configure",
    stage: Stage::Config,
    frequency: Frequency::Instance,
    keys: &["apk_repos"],
    distros: &["alpine"],
    before_pivot: Some(before_pivot),
    ..Module::NEW
};

fn before_pivot(cx: &mut ModuleContext) -> Result<()> {
    let Some(section) = cx.map("apk_repos") else { return Ok(()) };
    if section.get("preserve_repositories").is_some_and(Value::is_true) {
        return Ok(());
    }
    let Some(alpine) = section.get("alpine_repo").and_then(Value::as_map) else { return Ok(()) };
    let word = |key: &str, value: Option<&Value>| match value.and_then(Value::text).filter(|v| !v.is_empty()) {
        Some(text) if text.contains(|c: char| c.is_whitespace() || c.is_control()) => {
            Err(Error::new(format!("apk_repos.{key}: expected one word")))
        }
        word => Ok(word),
    };
    let Some(version) = word("alpine_repo.version", alpine.get("version"))? else { return Ok(()) };
    let base = word("alpine_repo.base_url", alpine.get("base_url"))?.unwrap_or_else(|| MIRROR.into());
    let on = |key: &str| alpine.get(key).is_some_and(Value::is_true);
    let mut text = format!("# By apk_repos of the cloud-config\n{base}/{version}/main\n");
    if on("community_enabled") {
        text.push_str(&format!("{base}/{version}/community\n"));
    }
    if on("testing_enabled") {
        text.push_str(&format!("{base}/edge/testing\n"));
    }
    if let Some(local) = word("local_repo_base_url", section.get("local_repo_base_url"))? {
        text.push_str(&format!("{local}/{version}\n"));
    }
    cx.root.write(FILE, text, Attr::root(0o644))
}
