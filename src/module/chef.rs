//! # chef
//!
//! Writes Chef's client.rb, the validation key and the first boot's attributes, installs the client if it is missing, and runs
//! it with `exec: true`. The files are there before the system starts.
//!
//! `install_type` is packages, gems or omnibus, which runs the installer at `omnibus_url`. `validation_cert: system` keeps the
//! key that the image has. `validation_key` is the path of the key, not its text. A setting of client.rb that is null is left out
//! of it.
//!
//! ```yaml
//! chef:
//!   server_url: https://chef.example.com
//!   validation_name: example-validator
//!   run_list: ['recipe[apache2]', 'role[db]']
//!   initial_attributes: {apache: {keepalive: false}}
//!   exec: true
//! ```
//!
//! ```schema
//! chef: {
//!  directories: [str]+ unique
//!  config_path, validation_cert, validation_key, firstboot_path, client_key, encrypted_data_bag_secret, environment,
//!   file_backup_path, file_cache_path, json_attribs, log_level, log_location, node_name, omnibus_url, omnibus_version,
//!   pid_file, server_url, ssl_verify_mode, validation_name: str
//!  exec, show_time, force_install: bool
//!  omnibus_url_retries: int
//!  initial_attributes: map
//!  install_type: (packages gems omnibus)
//!  run_list: [str]
//!  chef_license: (accept accept-silent accept-no-persist)
//! }+
//! ```

use super::Module;
use crate::base::error::{Error, Result};
use crate::document::{Map, Value, json, wrong};
use crate::instance::Frequency;
use crate::root::{Attr, Command, FileKind, Stage};
use crate::system::{ModuleContext, installer, packages, shell, template};

const FOLDERS: [&str; 6] =
    ["/etc/chef", "/var/log/chef", "/var/lib/chef", "/var/chef/cache", "/var/chef/backup", "/var/run/chef"];
/// Folders of old, and the new ones.
const MOVED: [(&str, &str); 2] = [("/var/cache/chef", "/var/chef/cache"), ("/var/backups/chef", "/var/chef/backup")];
const VALIDATION_KEY: &str = "/etc/chef/validation.pem";
const FIRST_BOOT: &str = "/etc/chef/firstboot.json";
const CLIENT: &str = "/usr/bin/chef-client";
const OMNIBUS_URL: &str = "https://www.chef.io/chef/install.sh";
const OMNIBUS_RETRIES: i64 = 5;
/// The most that the configuration may ask for.
const MAX_RETRIES: i64 = 100;

/// How a setting stands in client.rb.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    /// A path, whose folder is made.
    Path,
    /// A symbol of Ruby's.
    Symbol,
}

/// The settings of client.rb in its order: the configuration's key, the name there, the default.
#[rustfmt::skip]
const SETTINGS: [(&str, &str, Form, Option<&str>); 15] = [
    ("chef_license", "chef_license", Form::Text, None),
    ("log_level", "log_level", Form::Symbol, Some(":info")),
    ("ssl_verify_mode", "ssl_verify_mode", Form::Symbol, Some(":verify_none")),
    ("log_location", "log_location", Form::Path, Some("/var/log/chef/client.log")),
    ("validation_name", "validation_client_name", Form::Text, None),
    ("validation_key", "validation_key", Form::Path, Some(VALIDATION_KEY)),
    ("client_key", "client_key", Form::Path, Some("/etc/chef/client.pem")),
    ("server_url", "chef_server_url", Form::Text, None),
    ("environment", "environment", Form::Text, Some("_default")),
    ("node_name", "node_name", Form::Text, None),
    ("json_attribs", "json_attribs", Form::Path, Some(FIRST_BOOT)),
    ("file_cache_path", "file_cache_path", Form::Path, Some("/var/chef/cache")),
    ("file_backup_path", "file_backup_path", Form::Text, Some("/var/chef/backup")),
    ("pid_file", "pid_file", Form::Path, Some("/var/run/chef/client.pid")),
    ("encrypted_data_bag_secret", "encrypted_data_bag_secret", Form::Path, None),
];

pub static MODULE: Module = Module {
    name: "chef",
    stage: Stage::Final,
    frequency: Frequency::Always,
    keys: &["chef"],
    before_pivot: Some(before_pivot),
    running: Some(running),
    ..Module::NEW
};

/// A setting's text; a list or a mapping is not text.
fn text(section: &Map, key: &str) -> Option<String> {
    section.get(key).and_then(Value::text)
}

fn flag(section: &Map, key: &str, default: bool) -> bool {
    section.get(key).filter(|v| !v.is_null()).map_or(default, Value::is_true)
}

/// Nothing is done if a key is missing without which the client cannot work.
fn check(section: &Map) -> Result<()> {
    match ["server_url", "validation_name"].iter().find(|key| text(section, key).is_none()) {
        Some(key) => Err(Error::new(format!("chef.{key}: it is needed"))),
        None => Ok(()),
    }
}

fn cert(section: &Map) -> Option<String> {
    text(section, "validation_cert").filter(|cert| !cert.is_empty())
}

/// Documents from before `validation_key` was a path have the key's text there, and a `validation_cert` that says nothing.
fn is_key_text(value: &str) -> bool {
    value.trim_start().starts_with("-----BEGIN")
}

fn before_pivot(cx: &mut ModuleContext) -> Result<()> {
    let Some(section) = cx.map("chef") else { return Ok(()) };
    check(section)?;
    let own = section.get("directories").map(Value::texts).unwrap_or_default();
    let folders = if own.is_empty() { FOLDERS.map(str::to_owned).to_vec() } else { own };
    for folder in folders.iter().map(String::as_str).chain(FOLDERS.first().copied()) {
        cx.root.mkdir(folder, Attr::root(0o755))?;
    }
    for (old, new) in MOVED {
        migrate(cx, old, new)?;
    }
    let key = text(section, "validation_key").unwrap_or_else(|| VALIDATION_KEY.into());
    match cert(section).as_deref() {
        _ if is_key_text(&key) => cx.report.warn(
            "chef.validation_key: expected the path of a file, not a key: no key is written; its text belongs into validation_cert",
        ),
        Some("system") if !cx.root.is_file(&key) => {
            cx.report.warn(format_args!("chef.validation_cert: expected a key in {key}: there is no such file"));
        }
        None | Some("system") => {}
        Some(cert) => cx.root.write(&key, cert, Attr::root(0o600))?,
    }
    write_client_rb(cx, section)?;
    write_first_boot(cx, section)
}

/// Moves the files of a folder that the folder of today does not have.
fn migrate(cx: &mut ModuleContext, old: &str, new: &str) -> Result<()> {
    for name in cx.root.list(old) {
        let (from, to) = (format!("{old}/{name}"), format!("{new}/{name}"));
        let Some(stat) = cx.root.lstat(&from).filter(|s| s.kind == FileKind::File) else { continue };
        if cx.root.lstat(&to).is_some() {
            continue;
        }
        if let Some(content) = cx.root.read(&from)? {
            cx.root.write(&to, content, stat.attr)?;
            cx.root.remove(&from)?;
        }
    }
    Ok(())
}

fn write_client_rb(cx: &mut ModuleContext, section: &Map) -> Result<()> {
    let mut values = Map::new();
    for (key, _, form, default) in SETTINGS {
        let value = match section.get(key) {
            Some(Value::Null) if key != "node_name" && key != "environment" => None,
            Some(value) if !value.is_null() => shell::word(value),
            _ if key == "node_name" => Some(node_name(&cx.instance.instance_id)),
            _ => default.map(str::to_owned),
        };
        let is_text = |v: &str| key == "validation_key" && is_key_text(v);
        let Some(value) = value.filter(|v| !v.is_empty() && !is_text(v)) else { continue };
        if value.contains(char::is_control) {
            return Err(Error::new(format!("chef.{key}: expected one line of text")));
        }
        if let (Form::Path, Some((folder, _))) = (form, value.rsplit_once('/').filter(|(folder, _)| !folder.is_empty()))
        {
            cx.root.mkdir(folder, Attr::root(0o755))?;
        }
        values.insert(key, value);
    }
    let shows_time = match section.get("show_time") {
        Some(Value::Null) => false,
        Some(value) => value.is_true(),
        None => true,
    };
    let has_cert = cert(section).is_some() && values.contains_key("validation_key");
    let path = text(section, "config_path").unwrap_or_else(|| "/etc/chef/client.rb".into());
    let mut lines = String::from("# Created by prepivot\n");
    for (key, name, form, _) in SETTINGS {
        if key == "encrypted_data_bag_secret" && shows_time {
            lines.push_str("Chef::Log::Formatter.show_time = true\n");
        }
        let Some(value) = values.get(key).and_then(Value::as_str) else { continue };
        if key == "validation_key" && !has_cert {
            continue;
        }
        let quote = if form == Form::Symbol { "" } else { "\"" };
        lines.push_str(&format!("{name:<22} {quote}{value}{quote}\n"));
    }
    lines.push('\n');
    values.insert("show_time", shows_time);
    values.insert("validation_cert", if has_cert { Value::from(true) } else { Value::Null });
    values.insert("generated_by", "# Created by prepivot");
    let own = template::of_image(cx, "chef_client.rb", &Value::Map(values))?;
    cx.root.write(&path, own.unwrap_or(lines), Attr::root(0o644))
}

/// The instance-id as the name of a node, which has letters, digits and `_`, `:`, `.` and `-` alone. The file is Ruby's: the
/// metadata must not bring code into it.
fn node_name(id: &str) -> String {
    id.replace(|c: char| !(c.is_ascii_alphanumeric() || "_:.-".contains(c)), "_")
}

/// The run list and the attributes of the first run, which may hold secrets. The client runs as root.
fn write_first_boot(cx: &mut ModuleContext, section: &Map) -> Result<()> {
    let path = text(section, "firstboot_path").unwrap_or_else(|| FIRST_BOOT.into());
    if path.is_empty() {
        return Ok(());
    }
    let mut first = Map::new();
    if let Some(list) = section.get("run_list") {
        first.insert("run_list", list.clone());
    }
    let attributes = section.get("initial_attributes").and_then(Value::as_map);
    attributes.into_iter().flat_map(Map::iter).for_each(|(k, v)| drop(first.insert(k, v.clone())));
    cx.root.write(&path, json::to_string(&Value::Map(first)), Attr::root(0o600))
}

fn running(cx: &mut ModuleContext) -> Result<()> {
    let Some(section) = cx.get("chef").and_then(Value::as_map) else { return Ok(()) };
    check(section)?;
    let mut runs = flag(section, "exec", false);
    if flag(section, "force_install", false) || !cx.root.is_file(CLIENT) {
        match text(section, "install_type").as_deref() {
            None | Some("packages") => packages::install(cx, &["chef".to_owned()])?,
            Some("gems") => {
                install_gems(cx, section)?;
                runs = flag(section, "exec", true);
            }
            Some("omnibus") => install_omnibus(cx, section)?,
            Some(_) => {
                cx.report.warn("chef.install_type: expected packages, gems or omnibus: nothing is installed");
                runs = false;
            }
        }
    }
    if !runs {
        return Ok(());
    }
    let arguments = match section.get("exec_arguments") {
        Some(Value::List(list)) => list.iter().filter_map(shell::word).collect(),
        Some(Value::String(one)) => vec![one.to_string()],
        other => {
            if let Some(other) = other {
                cx.report.warn(wrong("chef.exec_arguments", "a list or a string", other));
            }
            ["-d", "-i", "1800", "-s", "20"].map(str::to_owned).to_vec()
        }
    };
    cx.root.run(Command::new([CLIENT.to_owned()].into_iter().chain(arguments)))?;
    if flag(section, "delete_validation_post_exec", false) && cx.root.is_file(VALIDATION_KEY) {
        cx.root.remove(VALIDATION_KEY)?;
    }
    Ok(())
}

fn install_omnibus(cx: &mut ModuleContext, section: &Map) -> Result<()> {
    let url = text(section, "omnibus_url").unwrap_or_else(|| OMNIBUS_URL.into());
    let retries = section.get("omnibus_url_retries").and_then(Value::as_int).unwrap_or(OMNIBUS_RETRIES);
    let tries = u32::try_from(retries.clamp(0, MAX_RETRIES)).unwrap_or(0) + 1;
    let version = text(section, "omnibus_version").into_iter().flat_map(|v| ["-v".to_owned(), v]);
    installer::run(cx, "chef-omnibus-install", &url, tries, &version.collect::<Vec<_>>())
}

fn install_gems(cx: &mut ModuleContext, section: &Map) -> Result<()> {
    let ruby = text(section, "ruby_version").unwrap_or_else(|| "1.8".into());
    let mut names = vec![format!("ruby{ruby}"), format!("ruby{ruby}-dev")];
    if ruby == "1.8" {
        names.extend(["libopenssl-ruby1.8", "rubygems1.8"].map(str::to_owned));
    }
    packages::install(cx, &names)?;
    for program in ["/usr/bin/gem", "/usr/bin/ruby"] {
        if !cx.root.exists(program) {
            cx.root.symlink(program, &format!("{program}{ruby}"))?;
        }
    }
    let mut argv = ["/usr/bin/gem", "install", "chef"].map(str::to_owned).to_vec();
    argv.extend(text(section, "version").map(|v| format!("-v {v}")));
    argv.extend(["--no-ri", "--no-rdoc", "--bindir", "/usr/bin", "-q"].map(str::to_owned));
    cx.root.run(Command::new(argv))
}
