//! `schema`: checks user-data or a network configuration before a machine boots with it.

use super::files;
use super::program::{Program, is_root, print};
use super::verb::Verb;
use crate::base::error::{Error, Result};
use crate::base::gzip;
use crate::base::problem::{Problem, Problems, Severity};
use crate::document::{Map, Value, json, wrong, yaml};
use crate::instance::state::CLOUD_DIR;
use crate::machine::Machine;
use crate::module::{self, MODULES};
use crate::network::Macs;
use crate::network::read::{self, config};
use crate::root::{Root, Use};
use crate::schema::{self, Deviations, one_line};
use crate::userdata::kind::{self, PartKind};
use crate::userdata::{IGNORED, MAX_UNPACKED, jinja, mime};
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
    note = "It checks the header; templates, rendered with instance-data; the YAML; every key of a cloud-config or a network \
            configuration and its value, as cloud-init's schema says. Network configurations of version 2 may also have what \
            netplan takes beyond that. Deprecated keys are reported, and valid.",
    error_code(0, "nothing is wrong"),
    error_code(1, "something is wrong, or cannot be read")
)]
pub struct Schema {
    /// the cloud-config or network configuration to check
    #[argh(option, short = 'c', arg_name = "path")]
    config_file: Option<String>,
    /// what it is; default: cloud-config
    #[argh(option, short = 't', arg_name = "cloud-config|network-config", from_str_fn(schema_type))]
    schema_type: Option<Type>,
    /// the instance-data file for templates; default: /run/cloud-init/instance-data.json, with secrets for root
    #[argh(option, short = 'i', arg_name = "path")]
    instance_data: Option<String>,
    /// check what this system was given, as root
    #[argh(switch)]
    system: bool,
    /// for --system, the root to read, a mounted image for example; default: this system
    #[argh(option, arg_name = "dir", default = "String::from(\"/\")")]
    root: String,
    /// print the document with marks on the lines that are wrong or deprecated
    #[argh(switch)]
    annotate: bool,
    /// print the documentation of a module, or of all
    #[argh(option, short = 'd', arg_name = "module|all")]
    docs: Option<String>,
    /// print the JSON Schema of a kind of document, for editors
    #[argh(option, arg_name = "cloud-config|network-config-v1|network-config-v2", from_str_fn(kind))]
    json_schema: Option<schema::Form>,
    /// with --docs: more modules
    #[argh(positional, arg_name = "module")]
    modules: Vec<String>,
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

fn kind(name: &str) -> std::result::Result<schema::Form, String> {
    match name {
        "cloud-config" => Ok(schema::Form::CloudConfig),
        "network-config-v1" => Ok(schema::Form::Network1),
        "network-config-v2" => Ok(schema::Form::Network2),
        _ => Err("expected cloud-config, network-config-v1 or network-config-v2".into()),
    }
}

/// The documents of this system: name, kind, processed file and raw file.
const SYSTEM: [(&str, Type, &str, &str); 4] = [
    ("user-data", Type::CloudConfig, "cloud-config.txt", "user-data.txt"),
    ("vendor-data", Type::CloudConfig, "vendor-cloud-config.txt", "vendor-data.txt"),
    ("vendor2-data", Type::CloudConfig, "vendor2-cloud-config.txt", "vendor-data2.txt"),
    ("network-config", Type::NetworkConfig, "network-config.json", "network-config.json"),
];

/// The result of a check.
enum Outcome {
    /// Not checked, for this reason.
    Passed(String),
    Checked {
        /// The document, rendered if it was a template.
        text: String,
        found: Deviations,
    },
}

/// One document to check.
struct Document {
    /// cloud-init's name for it: user-data, vendor-data, …
    name: &'static str,
    kind: Type,
    path: String,
    bytes: Vec<u8>,
}

impl Verb for Schema {
    fn run(self, program: &Program) -> ExitCode {
        program.log(LevelFilter::Warn);
        match self.json_schema {
            Some(_) if cfg!(not(feature = "tools")) => {
                return program.fail("this build of prepivot leaves --json-schema out");
            }
            Some(kind) => {
                print(&(json::to_string_indented(&schema::json_schema(kind), "  ") + "\n"));
                return ExitCode::SUCCESS;
            }
            None => {}
        }
        let documents = match (&self.config_file, self.system, &self.docs) {
            (None, false, Some(first)) => {
                let names = std::iter::once(first).chain(&self.modules);
                return match names.map(|name| documentation(name)).collect::<Result<String>>() {
                    Ok(text) => {
                        print(&text);
                        ExitCode::SUCCESS
                    }
                    Err(e) => program.fail(e),
                };
            }
            (Some(path), false, None) if self.modules.is_empty() => self.file(path),
            (None, true, None) if self.modules.is_empty() => system(&self.root),
            _ => Err(Error::new("Expected one of --config-file, --system or --docs arguments")),
        };
        if self.system && self.schema_type.is_some() {
            program.say("WARNING: The --schema-type parameter is inapplicable when --system is present");
        }
        let documents = match documents {
            Ok(documents) => documents,
            Err(e) => return program.fail(e),
        };
        let names: Vec<&str> = documents.iter().map(|d| d.name).collect();
        let several = names.len() > 1;
        if several {
            print(&format!("Found cloud-config data types: {}\n", names.join(", ")));
        }
        let mut invalid = Vec::new();
        for (n, document) in documents.into_iter().enumerate() {
            let mut indent = "";
            if several {
                print(&format!("\n{}. {} at {}:\n", n + 1, document.name, document.path));
                indent = "  ";
            }
            let name = document.name;
            if !self.one(program, document, indent) {
                invalid.push(name);
            }
        }
        if invalid.is_empty() {
            ExitCode::SUCCESS
        } else {
            program.fail(format_args!("Error: Invalid schema: {}", invalid.join(", ")))
        }
    }
}

/// The documentation of one module or of all: its stage, a description, an example.
fn documentation(name: &str) -> Result<String> {
    if name == "all" {
        return MODULES.iter().map(|m| documentation(m.name)).collect();
    }
    let module = module::find(name).ok_or_else(|| Error::new(format!("there is no module called {name}")))?;
    let list = |names: &[&str], none: &str| if names.is_empty() { none.to_owned() } else { names.join(", ") };
    Ok(format!(
        "{}\n\nStage: {}\nFrequency: {}\nDistributions: {}\nActivated by: {}\n\n{}\n\n",
        module.name,
        module.stage.name(),
        module.frequency.name(),
        list(module.distros, "all"),
        list(module.keys, "always"),
        schema::documentation(module.name).unwrap_or_default()
    ))
}

impl Schema {
    fn file(&self, path: &str) -> Result<Vec<Document>> {
        let kind = self.schema_type.unwrap_or(Type::CloudConfig);
        let name = if kind == Type::CloudConfig { "user-data" } else { "network-config" };
        Ok(vec![Document { name, kind, path: path.to_owned(), bytes: files::read(path)? }])
    }

    /// Checks one document and prints the findings. Returns whether it is valid.
    fn one(&self, program: &Program, document: Document, indent: &str) -> bool {
        let Document { name, kind, path, bytes } = document;
        let (text, found) = match self.check(kind, &path, bytes) {
            Ok(Outcome::Checked { text, found }) => (text, found),
            Ok(Outcome::Passed(why)) => {
                print(&format!("{indent}{why}\n"));
                return true;
            }
            Err(e) => {
                print(&format!("{indent}Invalid {name} {path}\n"));
                program.say(format_args!("{indent}Error: {e}"));
                return false;
            }
        };
        let valid = found.errors.is_empty();
        if self.annotate {
            print(&schema::annotated(&text, &found));
        } else {
            if !found.deprecations.is_empty() {
                print(&format!("{indent}Cloud config schema deprecations: {}\n", one_line(&found.deprecations)));
            }
            if !valid {
                print(&format!("{indent}Invalid {name} {path}\n"));
                program.say(format_args!("{indent}Error: Cloud config schema errors: {}", one_line(&found.errors)));
            }
        }
        if valid {
            print(&format!("{indent}Valid schema {}\n", if self.system { name } else { &path }));
        }
        valid
    }

    fn check(&self, kind: Type, path: &str, bytes: Vec<u8>) -> Result<Outcome> {
        let bytes = if gzip::is_gzip(&bytes) { gzip::unpack(&bytes, MAX_UNPACKED)? } else { bytes };
        // Before it is text: a part may have any bytes.
        if kind == Type::CloudConfig
            && PartKind::of_content(&bytes).is_none()
            && let Some(media_type) = mime::declared_type(&bytes)
        {
            let what = if media_type.starts_with("multipart/") { "multipart" } else { "MIME" };
            return Ok(Outcome::Passed(not_checked(what)));
        }
        let text = String::from_utf8(bytes).map_err(|_| Error::new(format!("{path}: not UTF-8")))?;
        let kind_name = if kind == Type::CloudConfig { "cloud-config" } else { "network-config" };
        if text.is_empty() {
            return Ok(Outcome::Passed(format!("Empty '{kind_name}' found at {path}. Nothing to validate.")));
        }
        match kind {
            Type::CloudConfig => self.cloud_config(path, text),
            Type::NetworkConfig => network_config(path, text),
        }
    }

    fn cloud_config(&self, path: &str, mut text: String) -> Result<Outcome> {
        let mut first = 1;
        if let Some(body) = jinja::body(&text) {
            let root = Root::open(Path::new("/"), Use::Tree)?;
            let data = files::instance_data(&root, self.instance_data.as_deref())?;
            text = files::render(path, body, &data)?;
            first = 2;
        }
        match PartKind::of_content(text.as_bytes()) {
            Some(PartKind::CloudConfig) => {}
            Some(other) => {
                return Ok(Outcome::Passed(not_checked(other.mime_type())));
            }
            None => {
                // Not the line itself, which could be a secret.
                let headers = kind::headers().join(", ");
                let what =
                    format!("Unrecognized user-data header in {path}. Expected first line to be one of: {headers}");
                return Ok(mistake(text, first, 1, &what));
            }
        }
        let config = match yaml::parse_or_place(path, &text) {
            Ok(Value::Map(config)) => config,
            Ok(other) => return Err(wrong(path, "a mapping", &other)),
            Err((e, line, column)) => return Ok(mistake(text, line, column, &e.to_string())),
        };
        let mut found = schema::cloud_config(&config);
        for (n, line) in text.lines().enumerate() {
            if let Some(part) = line.strip_prefix(IGNORED) {
                found.errors.push(at(n + 1, 1, &format!("Ignored invalid user-data: {part}")));
            }
        }
        Ok(Outcome::Checked { text, found })
    }
}

/// Why user-data of another type is not checked, in cloud-init's words.
fn not_checked(mime_type: &str) -> String {
    format!("User-data type '{mime_type}' not currently evaluated by cloud-init schema")
}

/// The documents of the system whose root is `path`.
fn system(path: &str) -> Result<Vec<Document>> {
    let root = Root::open(Path::new(path), Use::Tree)?;
    if root.is_live() && !is_root() {
        return Err(Error::new("Unable to read system userdata or vendordata as non-root user. Try using sudo."));
    }
    let mut documents = Vec::new();
    for (name, kind, made, raw) in SYSTEM {
        let at = |file: &str| format!("{CLOUD_DIR}/instance/{file}");
        // A document without a known header is not processed: the raw one is checked instead.
        let size = |file: &str| root.stat(&at(file)).map_or(0, |s| s.size);
        let path = at(if size(made) == 0 && size(raw) > 0 { raw } else { made });
        // Where no network was configured, cloud-init has no such file, and this one holds null.
        let is_given = |bytes: &Vec<u8>| name != "network-config" || bytes.trim_ascii() != b"null";
        if let Some(bytes) = root.read(&path)?.filter(is_given) {
            documents.push(Document { name, kind, path, bytes });
        }
    }
    match documents.is_empty() {
        true => Err(Error::new(format!("there is nothing in {CLOUD_DIR}/instance: nothing was provisioned"))),
        false => Ok(documents),
    }
}

/// A problem at a place in the text, with cloud-init's path for it.
fn at(line: usize, column: usize, what: &str) -> Problem {
    Problem::new(Severity::Error, "", &format!("format-l{line}.c{column}"), what)
}

/// The outcome for a text that cannot be read: one problem.
fn mistake(text: String, line: usize, column: usize, what: &str) -> Outcome {
    let found = Deviations { errors: vec![at(line, column, what)], deprecations: Vec::new() };
    Outcome::Checked { text, found }
}

/// Checks a network configuration, and reads it as a boot would, of any kind.
fn network_config(path: &str, text: String) -> Result<Outcome> {
    let document = match yaml::parse_or_place(path, &text) {
        Ok(document) => document,
        Err((e, line, column)) => return Ok(mistake(text, line, column, &e.to_string())),
    };
    let is_empty = |value: &Value| value.is_null() || value.as_map().is_some_and(Map::is_empty);
    if is_empty(document.get("network").unwrap_or(&document)) {
        return Ok(Outcome::Passed("Skipping network-config schema validation on empty config.".to_owned()));
    }
    let found = match &document {
        // A document without a recognised format is checked as cloud-init's.
        Value::Map(map) if read::recognise(&document).is_none_or(|f| *f == config::FORMAT) => {
            schema::network_config(map)
        }
        Value::Map(_) => Deviations::default(),
        Value::String(_) => return Ok(Outcome::Passed(format!("Text for ifupdown is not checked: {path}"))),
        other => return Err(wrong(path, "a mapping", other)),
    };
    if found.errors.is_empty() {
        let nics = Machine::read(Path::new("/")).nics();
        let macs: Macs = nics.iter().map(|n| (n.mac.as_str(), n.name.as_str())).collect();
        let format = read::recognise(&document).unwrap_or(&config::FORMAT);
        let report = Problems::new();
        format.read(path, &document, &macs.complete(), &report)?;
        for warning in report.texts(Severity::Warning) {
            log::warn!("{warning}");
        }
    }
    Ok(Outcome::Checked { text, found })
}
