//! `schema`: tells what is wrong with user-data before a machine boots with it.

use super::{Program, files, is_root, print};
use crate::document::{Value, wrong, yaml};
use crate::error::{Error, Result};
use crate::instance::state::CLOUD_DIR;
use crate::machine::Machine;
use crate::network::{Macs, convert};
use crate::root::{Root, Use};
use crate::userdata::kind::Kind;
use crate::userdata::{jinja, keys};
use argh::{ArgsInfo, FromArgs};
use log::LevelFilter;
use std::path::Path;
use std::process::ExitCode;

/// check user-data, or what this system was given
#[derive(FromArgs, ArgsInfo)]
#[argh(
    subcommand,
    name = "schema",
    help_triggers("-h", "--help"),
    note = "Checked are: the header; templates, rendered with instance-data; the YAML; the keys at the top of a cloud-config and \
            whether each holds a list, a mapping, a string and so on, as cloud-init's schema says. What is inside a key is not \
            checked here: prepivot plan shows what the modules make of it. A network configuration is read as at a boot.",
    error_code(0, "nothing is wrong"),
    error_code(1, "something is wrong, or cannot be read")
)]
pub struct Schema {
    /// the cloud-config or network configuration to check
    #[argh(option, short = 'c')]
    config_file: Option<String>,
    /// what it is: cloud-config (the default) or network-config
    #[argh(option, short = 't', from_str_fn(schema_type))]
    schema_type: Option<Type>,
    /// the instance-data file for templates; default: /run/cloud-init/instance-data.json, with secrets for root
    #[argh(option, short = 'i')]
    instance_data: Option<String>,
    /// check what this system was given, as root
    #[argh(switch)]
    system: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Type {
    CloudConfig,
    NetworkConfig,
}

fn schema_type(name: &str) -> std::result::Result<Type, String> {
    match name {
        "cloud-config" => Ok(Type::CloudConfig),
        "network-config" => Ok(Type::NetworkConfig),
        _ => Err("expected cloud-config or network-config".into()),
    }
}

/// What this system was given: its name, what it is, the file that was made of it, and the raw one.
const SYSTEM: [(&str, Type, &str, &str); 4] = [
    ("user-data", Type::CloudConfig, "cloud-config.txt", "user-data.txt"),
    ("vendor-data", Type::CloudConfig, "vendor-cloud-config.txt", "vendor-data.txt"),
    ("vendor2-data", Type::CloudConfig, "vendor2-cloud-config.txt", "vendor-data2.txt"),
    ("network-config", Type::NetworkConfig, "network-config.json", "network-config.json"),
];

/// What a check comes to.
enum Outcome {
    Valid,
    /// Not checked, and why.
    Passed(String),
}

impl Schema {
    pub fn run(self, program: &Program) -> ExitCode {
        program.log(LevelFilter::Warn);
        match (&self.config_file, self.system) {
            (Some(path), false) => self.file(program, path),
            (None, true) => self.system(program),
            _ => program.fail("expected one of --config-file and --system"),
        }
    }

    fn file(&self, program: &Program, path: &str) -> ExitCode {
        let kind = self.schema_type.unwrap_or(Type::CloudConfig);
        let name = if kind == Type::CloudConfig { "user-data" } else { "network-config" };
        match files::read(path).and_then(|bytes| self.check(kind, path, bytes)) {
            Ok(Outcome::Valid) => print(&format!("Valid schema {path}\n")),
            Ok(Outcome::Passed(why)) => print(&format!("{why}\n")),
            Err(e) => {
                print(&format!("Invalid {name} {path}\n"));
                program.say(format_args!("Error: {e}"));
                return program.fail(format_args!("Error: Invalid schema: {name}"));
            }
        }
        ExitCode::SUCCESS
    }

    fn system(&self, program: &Program) -> ExitCode {
        if !is_root() {
            return program.fail("what this system was given is for root alone to read; try it with sudo");
        }
        let root = match Root::open(Path::new("/"), Use::Tree) {
            Ok(root) => root,
            Err(e) => return program.fail(e),
        };
        let mut found = Vec::new();
        for (name, kind, made, raw) in SYSTEM {
            let at = |file: &str| format!("{CLOUD_DIR}/instance/{file}");
            // Nothing was made of what has no header that is known: then what came is the thing to look at.
            let size = |file: &str| root.stat(&at(file)).map_or(0, |s| s.size);
            let path = at(if size(made) == 0 && size(raw) > 0 { raw } else { made });
            match root.read(&path) {
                Ok(Some(bytes)) => found.push((name, kind, path, bytes)),
                Ok(None) => {}
                Err(e) => return program.fail(e),
            }
        }
        if found.is_empty() {
            return program.fail(format_args!("there is nothing in {CLOUD_DIR}/instance: nothing was provisioned"));
        }
        let names: Vec<&str> = found.iter().map(|(name, ..)| *name).collect();
        print(&format!("Found cloud-config data types: {}\n", names.join(", ")));
        let mut invalid = Vec::new();
        for (n, (name, kind, path, bytes)) in found.into_iter().enumerate() {
            print(&format!("\n{}. {name} at {path}:\n", n + 1));
            match self.check(kind, &path, bytes) {
                Ok(Outcome::Valid) => print(&format!("  Valid schema {name}\n")),
                Ok(Outcome::Passed(why)) => print(&format!("  {why}\n")),
                Err(e) => {
                    print(&format!("  Invalid {name} {path}\n"));
                    program.say(format_args!("Error: {e}"));
                    invalid.push(name);
                }
            }
        }
        if invalid.is_empty() {
            ExitCode::SUCCESS
        } else {
            program.fail(format_args!("Error: Invalid schema: {}", invalid.join(", ")))
        }
    }

    fn check(&self, kind: Type, path: &str, bytes: Vec<u8>) -> Result<Outcome> {
        let text = String::from_utf8(bytes).map_err(|_| Error::new(format!("{path}: not UTF-8")))?;
        let kind_name = if kind == Type::CloudConfig { "cloud-config" } else { "network-config" };
        if text.is_empty() {
            return Ok(Outcome::Passed(format!("Empty '{kind_name}' found at {path}. Nothing to validate.")));
        }
        match kind {
            Type::CloudConfig => self.cloud_config(path, &text),
            Type::NetworkConfig => network_config(path, &text),
        }
    }

    fn cloud_config(&self, path: &str, text: &str) -> Result<Outcome> {
        let text = match jinja::body(text) {
            Some(body) => {
                let root = Root::open(Path::new("/"), Use::Tree)?;
                let data = files::instance_data(&root, self.instance_data.as_deref())?;
                &files::render(path, body, &data)?
            }
            None => text,
        };
        match Kind::of_content(text.as_bytes()) {
            Some(Kind::CloudConfig) => {}
            Some(other) => {
                let why = format!("User-data type '{}' is not checked: {path}", other.mime_type());
                return Ok(Outcome::Passed(why));
            }
            None if text.trim_start().to_ascii_lowercase().starts_with("content-type: multipart/") => {
                return Ok(Outcome::Passed(format!("User-data type 'multipart' is not checked: {path}")));
            }
            None => {
                let what = "the first line says no type of user-data; for a cloud-config it is #cloud-config";
                return Err(Error::new(format!("{path}: {what}")));
            }
        }
        match yaml::parse(path, text)? {
            Value::Map(config) => one_error(path, &keys::check(&config)),
            other => Err(wrong(path, "a mapping", &other)),
        }
    }
}

/// Reads a network configuration as a boot would, of any kind.
fn network_config(path: &str, text: &str) -> Result<Outcome> {
    let document = yaml::parse(path, text)?;
    let kind = match &document {
        Value::Map(map) if map.contains_key("links") => "network_data.json",
        Value::Map(map) if !map.is_empty() => "yaml",
        Value::Map(_) | Value::Null => {
            return Ok(Outcome::Passed(format!("Empty 'network-config' found at {path}. Nothing to validate.")));
        }
        Value::String(_) => return Ok(Outcome::Passed(format!("Text for ifupdown is not checked: {path}"))),
        other => return Err(wrong(path, "a mapping", other)),
    };
    let nics = Machine::read(Path::new("/")).nics();
    let macs: Macs = nics.iter().map(|n| (n.mac.as_str(), n.name.as_str())).collect();
    convert::parse(kind, text, &macs).map_err(|e| e.context(path)).map(|_| Outcome::Valid)
}

fn one_error(path: &str, errors: &[Error]) -> Result<Outcome> {
    if errors.is_empty() {
        return Ok(Outcome::Valid);
    }
    let texts: Vec<String> = errors.iter().map(Error::to_string).collect();
    Err(Error::new(format!("{path}: {}", texts.join(", "))))
}
