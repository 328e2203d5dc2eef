//! # yum_add_repo
//!
//! Writes a file in `yum_repo_dir` (/etc/yum.repos.d) for each repository. Each needs a `baseurl`, `metalink` or
//! `mirrorlist`. A file that exists stays.
//!
//! ```yaml
//! yum_repos:
//!   epel:
//!     name: Extra packages
//!     baseurl: https://dl.example.com/epel/9/x86_64
//!     enabled: true
//!     gpgcheck: true
//! ```
//!
//! ```schema
//! yum_repo_dir: str
//! yum_repos: {
//!  */repository: {
//!   (some baseurl metalink mirrorlist)
//!   baseurl, metalink, mirrorlist, name: str
//!   enabled: bool
//!   */option: int | bool | str
//!  }
//! }+
//! ```

use super::Module;
use crate::base::error::{Error, Result};
use crate::base::mask;
use crate::document::{Value, wrong};
use crate::instance::Frequency;
use crate::root::{Attr, Stage};
use crate::system::ModuleContext;

const FOLDER: &str = "/etc/yum.repos.d";

pub static MODULE: Module = Module {
    name: "yum_add_repo",
    stage: Stage::Config,
    frequency: Frequency::Instance,
    keys: &["yum_repos"],
    #[rustfmt::skip]
    distros: &[
        "almalinux", "amazon", "azurelinux", "centos", "cloudlinux", "eurolinux", "fedora", "mariner", "openeuler",
        "OpenCloudOS", "openmandriva", "photon", "rhel", "rocky", "TencentOS", "virtuozzo",
    ],
    before_pivot: Some(before_pivot),
    ..Module::NEW
};

fn before_pivot(cx: &mut ModuleContext) -> Result<()> {
    let Some(repos) = cx.map("yum_repos") else { return Ok(()) };
    let folder = cx.text("yum_repo_dir").unwrap_or_else(|| FOLDER.into());
    for (name, value) in repos.iter() {
        let id = name.replace(' ', "-");
        let path = format!("{}/{id}.repo", folder.trim_end_matches('/'));
        if cx.root.exists(&path) {
            log::info!("yum_repos.{name}: {path} is there already and stays");
            continue;
        }
        match file(name, &id, value) {
            Ok(text) => cx.root.write(&path, text.as_str(), Attr::root(mode(&text)))?,
            Err(e) => cx.report.warn(e),
        }
    }
    Ok(())
}

fn file(name: &str, id: &str, value: &Value) -> Result<String> {
    let key = format!("yum_repos.{name}");
    let map = value.as_map().ok_or_else(|| wrong(&key, "a mapping", value))?;
    let entries: Vec<(String, &Value)> =
        map.iter().map(|(k, v)| (k.trim().to_ascii_lowercase().replace('-', "_"), v)).collect();
    if !entries.iter().any(|(k, _)| matches!(k.as_str(), "baseurl" | "metalink" | "mirrorlist")) {
        return Err(Error::new(format!("{key}: one of baseurl, metalink and mirrorlist is needed: it is left out")));
    }
    section(&key, id, &entries, "\n\t")
}

/// A file with one section, its values by name; the parts of a list are joined by `join`. One name or value is one line.
pub fn section(key: &str, id: &str, entries: &[(String, &Value)], join: &str) -> Result<String> {
    let plain = |text: &str| !text.is_empty() && !text.contains(|c: char| c.is_control());
    if !plain(id) || id.contains(['/', '[', ']']) || id.starts_with('.') {
        return Err(Error::new(format!("{key}: not a name that a repository can have")));
    }
    let scalar = |value: &Value| match value {
        Value::Bool(b) => Some(u8::from(*b).to_string()),
        other => other.text(),
    };
    let mut text = format!("[{id}]\n");
    for (name, value) in entries.iter().filter(|(name, _)| !name.is_empty()) {
        let parts: Option<Vec<String>> = match value {
            Value::Null => continue,
            Value::List(list) => list.iter().map(scalar).collect(),
            value => scalar(value).map(|v| v.lines().map(str::trim).map(str::to_owned).collect()),
        };
        let parts = parts.ok_or_else(|| wrong(&format!("{key}.{name}"), "a value or a list of values", value))?;
        let known = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'));
        if !known || !parts.iter().all(|p| p.is_empty() || plain(p)) {
            return Err(Error::new(format!("{key}: the name or value of an option is not one that fits a line")));
        }
        text.push_str(&format!("{name} = {}\n", parts.join(join)));
    }
    text.push('\n');
    Ok(text)
}

/// The mode of a repository's file: readable by its owner only if it has a password or a URL with credentials.
pub fn mode(text: &str) -> u32 {
    let is_password = |line: &str| line.split_once(" = ").is_some_and(|(name, _)| name.ends_with("password"));
    if text.lines().any(is_password) || mask::urls(text) != text { 0o600 } else { 0o644 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::yaml;

    #[test]
    fn secrets_are_for_root_alone() {
        assert_eq!(mode("[a]\nbaseurl = https://h/a@b\n"), 0o644);
        assert_eq!(mode("[a]\nbaseurl = https://user:pw@h/\n"), 0o600);
        assert_eq!(mode("[a]\nproxy_password = x\n"), 0o600);
    }

    #[test]
    fn a_repository_is_one_section_and_nothing_else() {
        let repo = |text: &str| file("My Repo", "My-Repo", &yaml::parse("t", text).unwrap());
        assert_eq!(
            repo("{baseurl: [http://a, http://b], enabled: true, GPG-Check: 0, name: n}").unwrap(),
            "[My-Repo]\nbaseurl = http://a\n\thttp://b\nenabled = 1\ngpg_check = 0\nname = n\n\n"
        );
        assert!(repo("{name: n}").unwrap_err().to_string().starts_with("yum_repos.My Repo: one of baseurl"));
        // A second line of a value is part of the value, never a section of its own.
        assert_eq!(repo("{baseurl: \"a\\n[evil]\"}").unwrap(), "[My-Repo]\nbaseurl = a\n\t[evil]\n\n");
        assert!(repo("{baseurl: a, \"x\\n[evil]\\ny\": b}").is_err());
        assert!(section("k", "../../etc/passwd", &[], "").is_err());
    }
}
