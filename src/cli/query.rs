//! `query`: prints instance-data, one of its values, or a text generated from it.

use super::files;
use super::program::{Program, is_root, print};
use super::verb::Verb;
use crate::base::error::{Error, Result};
use crate::base::gzip;
use crate::document::{Map, Value, json};
use crate::instance::instance_data::REDACTED;
use crate::instance::state::{CLOUD_DIR, RUN_DIR};
use crate::root::{Root, Use};
use crate::userdata::MAX_UNPACKED;
use crate::userdata::jinja::{alias, is_version};
use argh::{ArgsInfo, FromArgs};
use log::LevelFilter;
use std::path::Path;
use std::process::ExitCode;

/// show instance-data: all of it, a value, or text made from it
#[derive(FromArgs, ArgsInfo)]
#[argh(
    subcommand,
    name = "query",
    help_triggers("-h", "--help"),
    note = "Only root sees secrets; for all other users they are redacted.",
    error_code(1, "nothing is asked for, there is no instance-data, it may not be read, or it has no such key")
)]
pub struct Query {
    /// show all of it
    #[argh(switch, short = 'a')]
    all: bool,
    /// show the names of the keys, at the top or below the variable
    #[argh(switch, short = 'l')]
    list_keys: bool,
    /// show this text, a jinja template: 'name: {{ v1.local_hostname }}'
    #[argh(option, short = 'f')]
    format: Option<String>,
    /// the instance-data file; default: /run/cloud-init/instance-data.json, with secrets for root
    #[argh(option, short = 'i', arg_name = "path")]
    instance_data: Option<String>,
    /// the user-data file; default: /var/lib/cloud/instance/user-data.txt
    #[argh(option, short = 'u', arg_name = "path")]
    user_data: Option<String>,
    /// the vendor-data file; default: /var/lib/cloud/instance/vendor-data.txt
    #[argh(option, short = 'v', arg_name = "path")]
    vendor_data: Option<String>,
    /// show what is done on standard error
    #[argh(switch, short = 'd')]
    debug: bool,
    /// the root to read, a mounted image for example; default: this system
    #[argh(option, arg_name = "dir", default = "String::from(\"/\")")]
    root: String,
    /// the variable: keys with dots between them, as v1.local_hostname
    #[argh(positional)]
    varname: Option<String>,
}

/// The name of the template in messages.
const TEMPLATE: &str = "query command line";

impl Verb for Query {
    fn run(self, program: &Program) -> ExitCode {
        program.log(if self.debug { LevelFilter::Debug } else { LevelFilter::Warn });
        let varname = self.varname.as_deref().filter(|v| !v.is_empty());
        let template = self.format.as_deref().filter(|f| !f.is_empty());
        if !(self.all || self.list_keys || varname.is_some() || template.is_some()) {
            return program.fail("expected one of --all, --format, --list-keys or a variable; see query --help");
        }
        let answer = self.data(is_root()).and_then(|data| match template {
            Some(template) => files::render(TEMPLATE, template, &data),
            None => answer(&data, varname, self.list_keys),
        });
        match answer {
            Ok(text) => {
                print(&(text + "\n"));
                ExitCode::SUCCESS
            }
            Err(e) => program.fail(e),
        }
    }
}

impl Query {
    /// Instance-data with user-data, vendor-data and the merged configuration; those only for root.
    fn data(&self, root_user: bool) -> Result<Value> {
        let root = Root::open(Path::new(&self.root), Use::Tree)?;
        let Value::Map(mut data) = files::instance_data(&root, self.instance_data.as_deref())? else {
            return Err(Error::new("instance-data: expected a mapping"));
        };
        for (key, named, name) in
            [("userdata", &self.user_data, "user-data.txt"), ("vendordata", &self.vendor_data, "vendor-data.txt")]
        {
            let default = format!("{CLOUD_DIR}/instance/{name}");
            let value = match named {
                _ if !root_user => redacted(named.as_deref().unwrap_or(&default)),
                Some(path) if !files::exists(path) => unpacked(Vec::new()),
                Some(path) => unpacked(files::read(path)?),
                None => unpacked(root.read(&default)?.unwrap_or_default()),
            };
            data.insert(key, value);
        }
        let combined = format!("{RUN_DIR}/combined-cloud-config.json");
        let config = match root_user {
            false => redacted(&combined),
            true => root.read(&combined)?.map_or(Ok(Value::Null), |bytes| json::parse(&combined, &bytes))?,
        };
        data.insert("combined_cloud_config", config);
        Ok(Value::Map(data))
    }
}

fn redacted(path: &str) -> Value {
    format!("<{REDACTED}> file:{path}").into()
}

/// Bytes as text, decompressed if they are gzip; as bytes if they are not UTF-8.
fn unpacked(bytes: Vec<u8>) -> Value {
    let bytes = match gzip::unpack(&bytes, MAX_UNPACKED) {
        Ok(unpacked) if gzip::is_gzip(&bytes) => unpacked,
        _ => bytes,
    };
    Value::of_bytes(bytes)
}

/// The text to print: a string as it is, anything else as JSON; with `list_keys`, the names of the keys.
fn answer(data: &Value, varname: Option<&str>, list_keys: bool) -> Result<String> {
    let data = with_versions_at_the_top(data);
    let found = match varname {
        None => &data,
        Some(path) => leaf(&data, path)?,
    };
    if list_keys {
        let Value::Map(map) = found else {
            let name = varname.unwrap_or_default();
            return Err(Error::new(format!("--list-keys: {name} is {}, not a mapping", found.kind())));
        };
        let mut keys: Vec<&str> = map.keys().collect();
        keys.sort_unstable();
        return Ok(keys.join("\n"));
    }
    match found {
        Value::String(text) => Ok(text.to_string()),
        other => Ok(json::to_string_sorted(other)),
    }
}

/// Copies the keys below `v1` (and `v2`, …) to the level above, in each mapping.
fn with_versions_at_the_top(data: &Value) -> Value {
    let Value::Map(map) = data else { return data.clone() };
    let mut out = Map::new();
    for (key, value) in map.sorted() {
        let value = with_versions_at_the_top(value);
        if let Value::Map(inner) = &value
            && is_version(key)
        {
            inner.iter().for_each(|(k, v)| drop(out.insert(k, v.clone())));
        }
        out.insert(key, value);
    }
    Value::Map(out)
}

/// The value at a path of keys separated by dots. A key that contains operators also has an alias.
fn leaf<'a>(data: &'a Value, path: &str) -> Result<&'a Value> {
    let mut walked = String::new();
    path.split('.').try_fold(data, |value, key| {
        let aliased = || value.as_map()?.iter().find(|(k, _)| alias(k) == key).map(|(_, v)| v);
        let found = value.get(key).or_else(aliased).ok_or_else(|| {
            Error::new(match walked.as_str() {
                "" => format!("Undefined instance-data key '{path}'"),
                walked => format!("instance-data '{walked}' has no '{key}'"),
            })
        })?;
        walked += if walked.is_empty() { "" } else { "." };
        walked += key;
        Ok(found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_by_their_paths() {
        let text = r#"{"v1": {"cloud-name": "x", "n": 1, "list": ["b", {"c": null}]}, "ds": {"v1.0": {"a/b": true}}}"#;
        let data = json::parse("t", text.as_bytes()).unwrap();
        let ask = |path: &str| answer(&data, Some(path), false).unwrap_or_else(|e| e.to_string());
        for (path, expected) in [
            ("v1.cloud-name", "x"),
            ("v1.cloud_name", "x"),
            ("cloud_name", "x"),
            ("n", "1"),
            ("ds.v1_0.a_b", "true"),
            ("v1.list", "[\n \"b\",\n {\n  \"c\": null\n }\n]"),
            ("nope", "Undefined instance-data key 'nope'"),
            ("nope.x", "Undefined instance-data key 'nope.x'"),
            ("v1.nope", "instance-data 'v1' has no 'nope'"),
            ("v1.cloud_name.y.z", "instance-data 'v1.cloud_name' has no 'y'"),
            ("v1.", "instance-data 'v1' has no ''"),
        ] {
            assert_eq!(ask(path), expected, "{path}");
        }
        let keys = |path| answer(&data, path, true).unwrap_or_else(|e| e.to_string());
        assert_eq!(keys(None), "cloud-name\nds\nlist\nn\nv1");
        assert_eq!(keys(Some("ds")), "v1.0");
        assert_eq!(keys(Some("n")), "--list-keys: n is an integer, not a mapping");
    }

    #[test]
    fn packed_user_data_is_shown_as_text() {
        assert_eq!(unpacked(gzip::pack(b"#cloud-config\n")), Value::from("#cloud-config\n"));
        assert_eq!(unpacked(vec![0xff, 0]), Value::Bytes(vec![0xff, 0].into()));
    }
}
