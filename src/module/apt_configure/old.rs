//! Keys of old for `apt` (before cloud-init 0.7.9), which are still accepted.

use crate::base::deprecated;
use crate::base::error::{Error, Result};
use crate::document::{Map, Value, wrong};
use crate::system::ModuleContext;

/// Old top-level keys, and the keys of `apt` that they became.
const RENAMED: [(&str, &str); 8] = [
    ("apt_sources", "sources"),
    ("apt_proxy", "proxy"),
    ("apt_http_proxy", "http_proxy"),
    ("apt_ftp_proxy", "ftp_proxy"),
    ("apt_https_proxy", "https_proxy"),
    ("apt_preserve_sources_list", "preserve_sources_list"),
    ("apt_custom_sources_list", "sources_list"),
    ("add_apt_repo_match", "add_apt_repo_match"),
];
/// Old keys of the one mirror, and the keys of an entry of `primary`.
const MIRROR: [(&str, &str); 3] =
    [("apt_mirror", "uri"), ("apt_mirror_search", "search"), ("apt_mirror_search_dns", "search_dns")];

/// Reports which old keys are given.
fn report(cx: &mut ModuleContext) {
    if cx.get("apt_sources").is_some() {
        cx.report.deprecated(deprecated::APT_SOURCES.about(""));
    }
    let (first, others) = RENAMED.split_at(1);
    let names = first.iter().chain(&MIRROR).chain(others).map(|(old, _)| *old);
    let given = names.filter(|key| cx.get(key).is_some_and(|v| v.as_str() != Some("")));
    let given: Vec<String> = given.map(|key| format!("'{key}'")).collect();
    if given.is_empty() {
        return;
    }
    cx.report.deprecated(deprecated::APT_KEYS.about(&format!("[{}]", given.join(", "))));
    if cx.get("apt").is_some() {
        cx.report.deprecated(deprecated::APT_BOTH.about(""));
    }
}

/// The value of `apt`, or its equivalent made from the old keys. Empty if there is neither.
///
/// # Errors
/// `apt` is not a mapping, or an old key contradicts it.
pub fn section(cx: &mut ModuleContext) -> Result<Map> {
    let given = |key: &str| cx.get(key).filter(|v| v.as_str() != Some(""));
    let renamed: Vec<(&str, &str, Value)> = RENAMED
        .iter()
        .filter_map(|(old, new)| {
            let value = given(old)?;
            Some((*old, *new, if *old == "apt_sources" { by_name(value) } else { value.clone() }))
        })
        .collect();
    let mirror: Map = MIRROR.iter().filter_map(|(old, new)| Some((*new, given(old)?.clone()))).collect();
    report(cx);
    match cx.get("apt") {
        Some(Value::Map(section)) => {
            let differs = |(_, new, value): &&(&str, &str, Value)| section.get(new).is_some_and(|v| v != value);
            match renamed.iter().find(differs) {
                Some((old, new, _)) => {
                    Err(Error::new(format!("{old} and apt.{new} differ: remove {old}, which is deprecated")))
                }
                None => Ok(section.clone()),
            }
        }
        Some(other) => Err(wrong("apt", "a mapping", other)),
        None => {
            let mut section: Map = renamed.into_iter().map(|(_, new, value)| (new, value)).collect();
            if !mirror.is_empty() {
                let arches = vec![Value::from("default")];
                let entry: Map =
                    [("arches".to_owned(), Value::List(arches))].into_iter().chain(mirror.into_entries()).collect();
                section.insert("primary", vec![Value::Map(entry)]);
            }
            Ok(section)
        }
    }
}

/// `apt_sources` as a list: by file name; those without one share a file.
fn by_name(value: &Value) -> Value {
    let Some(list) = value.as_list() else { return value.clone() };
    let mut sources = Map::new();
    for (i, entry) in list.iter().enumerate() {
        let mut entry = entry.clone();
        if let Value::Map(map) = &mut entry
            && !map.contains_key("filename")
        {
            map.insert("filename", "cloud_config_sources.list");
        }
        sources.insert(format!("{}", i + 1), entry);
    }
    Value::Map(sources)
}
