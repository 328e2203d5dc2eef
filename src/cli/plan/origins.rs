//! The lines of the documents that a result came from.
//!
//! They are known as far as it is recorded: the modules that made a result, whose keys are in the document; for files, users, mounts,
//! packages, repositories and devices the entry with that very path or name. No more is claimed.

use super::document::{Document, Use, at, map};
use crate::document::{Map, Value};
use crate::schema;
use crate::stage::plan::{NETWORK, Plan};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

/// The most entries of one result.
const MAX_ENTRIES: usize = 2_000;

/// A line: the number of its document, its line and column, and the key or entry there.
type Origin = (usize, usize, usize, String);
type Origins = BTreeSet<Origin>;

/// Finds the lines that results came from.
pub struct Finder<'a> {
    documents: &'a [Document],
    /// The entries of `write_files` by path.
    files: HashMap<&'a str, Vec<String>>,
    /// The home folders of the documents' users, with the users' names.
    homes: HashMap<String, String>,
    default_user: Option<&'a str>,
    of_modules: RefCell<HashMap<String, Origins>>,
}

impl<'a> Finder<'a> {
    /// A finder for the results of a plan with these documents.
    pub fn new(documents: &'a [Document], plan: &'a Plan) -> Finder<'a> {
        let passwd = plan.root.text("/etc/passwd");
        let homes = passwd.lines().filter_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let home = fields.get(5).filter(|home| home.len() > 1)?;
            Some(((*home).to_owned(), (*fields.first()?).to_owned()))
        });
        let named = |value: &'a Value| value.as_str().or_else(|| value.get("name").and_then(Value::as_str));
        let of_image = || plan.config.at(&["system_info", "default_user", "name"]).and_then(Value::as_str);
        let default_user = plan.config.get("user").and_then(named).or_else(of_image);
        let homes = homes.collect();
        let mut finder =
            Finder { documents, files: HashMap::new(), homes, default_user, of_modules: RefCell::default() };
        for document in finder.user_data() {
            for (at, entry) in document.list("write_files").iter().enumerate() {
                if let Some(path) = entry.get("path").and_then(Value::as_str) {
                    finder.files.entry(path).or_default().push(format!("write_files.{at}"));
                }
            }
        }
        finder
    }

    /// Where the keys of a module are.
    pub fn of_module(&self, module: &str) -> Value {
        self.listed(self.keys_of(module))
    }

    /// Where a changed path came from, which these modules changed.
    pub fn of_change(&self, path: &str, modules: &[&str]) -> Value {
        self.listed(modules.iter().flat_map(|module| self.of_path(path, module)).collect())
    }

    /// Where a command came from.
    pub fn of_command(&self, argv: &[&str], module: &str) -> Value {
        let program = argv.first().copied().unwrap_or_default();
        let found = match (module, program.rsplit_once('/')) {
            ("scripts_user", Some((_, "runcmd"))) => self.all_entries("runcmd"),
            ("scripts_user" | "", Some(_)) => self.scripts(),
            _ => self.keys_of(module),
        };
        self.listed(found)
    }

    /// Where a user came from.
    pub fn of_user(&self, name: &str) -> Value {
        self.listed(self.user(name))
    }

    /// Where a group came from.
    pub fn of_group(&self, name: &str) -> Value {
        let mut found = self.entries("groups", &|entry| {
            entry.as_str() == Some(name) || entry.as_map().is_some_and(|group| group.contains_key(name))
        });
        found.extend(self.keys(&[format!("groups.{name}")]));
        found.extend(self.user(name));
        self.listed(found)
    }

    /// Where a package came from.
    pub fn of_package(&self, package: &Value) -> Value {
        self.listed(self.entries("packages", &|entry| entry == package))
    }

    /// Where a line of fstab came from.
    pub fn of_mount(&self, device: &str, folder: &str) -> Value {
        let field =
            |entry: &Value, at: usize| entry.as_list().and_then(|list| list.get(at)?.text()).unwrap_or_default();
        let is_device = |entry: &Value| {
            let named = field(entry, 0);
            device == named || device.strip_prefix("/dev/") == Some(named.as_str())
        };
        let is_folder = |entry: &Value| folder != "none" && field(entry, 1) == folder;
        let mut found = self.entries("mounts", &|entry| is_device(entry) && (folder == "none" || is_folder(entry)));
        if found.is_empty() {
            found = if folder == "none" { self.keys(&["swap".into()]) } else { self.entries("mounts", &is_folder) };
        }
        self.listed(if found.is_empty() { self.keys_of("mounts") } else { found })
    }

    /// The places of a device in the network configurations: its key of version 2, or its entry of version 1.
    pub fn of_device(&self, id: &str) -> Value {
        self.listed(self.devices(&|device| device == id))
    }
}

impl<'a> Finder<'a> {
    fn user_data(&self) -> impl Iterator<Item = &'a Document> + use<'a> {
        self.documents.iter().filter(|document| document.usage == Use::UserData)
    }

    fn listed(&self, found: Origins) -> Value {
        let list = found.into_iter().filter_map(|(document, line, column, key)| {
            let number = |n: usize| Value::Int(i64::try_from(n).unwrap_or(i64::MAX));
            Some(map(vec![
                ("document", self.documents.get(document)?.path.as_str().into()),
                ("key", key.into()),
                ("line", number(line)),
                ("column", number(column)),
            ]))
        });
        Value::List(list.collect())
    }

    /// Where the user-data has these keys and entries.
    fn keys(&self, keys: &[String]) -> Origins {
        let mut found = Origins::new();
        for (at, document) in self.documents.iter().enumerate().filter(|(_, d)| d.usage == Use::UserData) {
            for key in keys {
                found.extend(document.place(key).map(|(line, column)| (at, line, column, key.clone())));
            }
        }
        found
    }

    /// The entries of the list `key` for which `is` holds.
    fn entries(&self, key: &str, is: &dyn Fn(&Value) -> bool) -> Origins {
        let of_document = |document: &Document| -> Vec<String> {
            let found = document.list(key).iter().enumerate().filter(|(_, entry)| is(entry));
            found.map(|(at, _)| format!("{key}.{at}")).take(MAX_ENTRIES).collect()
        };
        self.user_data().flat_map(|document| self.keys(&of_document(document))).collect()
    }

    /// All entries of a list; its key if it is none.
    fn all_entries(&self, key: &str) -> Origins {
        let found = self.entries(key, &|_| true);
        if found.is_empty() { self.keys(&[key.to_owned()]) } else { found }
    }

    /// The first lines of documents that are scripts, or have parts that are.
    fn scripts(&self) -> Origins {
        let is_script = |document: &Document| document.usage == Use::UserData && document.outline.is_none();
        let found = self.documents.iter().enumerate().filter(|(_, document)| is_script(document));
        found.map(|(at, _)| (at, 1, 1, String::new())).collect()
    }

    fn keys_of(&self, module: &str) -> Origins {
        if let Some(known) = self.of_modules.borrow().get(module) {
            return known.clone();
        }
        let found = self.keys(&keys_read_by(module).into_iter().map(str::to_owned).collect::<Vec<_>>());
        self.of_modules.borrow_mut().insert(module.to_owned(), found.clone());
        found
    }

    /// The entries of a user. The default user is described by several keys.
    fn user(&self, name: &str) -> Origins {
        let is_default = self.default_user == Some(name);
        let is = |entry: &Value| {
            let named = entry.get("name").and_then(Value::as_str).or(entry.as_str());
            named == Some(name) || is_default && named == Some("default")
        };
        let mut found = self.entries("users", &is);
        found.extend(self.keys(&[format!("users.{name}")]));
        found.extend(self.entries("chpasswd.users", &is));
        if is_default {
            let keys = ["user", "system_info.default_user", "password", "ssh_authorized_keys", "ssh_import_id"];
            found.extend(self.keys(&keys.map(str::to_owned)));
        }
        found
    }

    /// Where a path that a module changed came from.
    fn of_path(&self, path: &str, module: &str) -> Origins {
        let narrow = match module {
            "write_files" | "write_files_deferred" => self.written(path),
            "users_groups" | "ssh" | "ssh_authkey_fingerprints" => self.of_home(path),
            "apt_configure" => self.repository("apt.sources", path),
            "yum_add_repo" => self.repository("yum_repos", path),
            NETWORK => self.network_file(path),
            _ => Origins::new(),
        };
        match module {
            "ssh" => {
                let is_host_key = path.contains("/ssh_host_");
                let mut all = self.keys_of(module);
                all.retain(|(.., key)| {
                    key.starts_with("ssh_genkeytypes")
                        || (key.starts_with("ssh_keys") || key == "ssh_deletekeys") == is_host_key
                });
                all.into_iter().chain(narrow).collect()
            }
            _ if narrow.is_empty() => self.keys_of(module),
            _ => narrow,
        }
    }

    /// The entries of `write_files` with a path, or with one below it.
    fn written(&self, path: &str) -> Origins {
        if let Some(keys) = self.files.get(path) {
            return self.keys(keys);
        }
        let is_below = |file: &str| file.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
        let below = self.files.iter().filter(|(file, _)| is_below(file)).take(MAX_ENTRIES);
        self.keys(&below.flat_map(|(_, keys)| keys.clone()).collect::<Vec<_>>())
    }

    /// The user whose home folder a path is, or is in.
    fn of_home(&self, path: &str) -> Origins {
        let mut above = std::iter::successors(Some(path), |path| path.rsplit_once('/').map(|(above, _)| above));
        let name = above.find_map(|folder| self.homes.get(folder));
        name.map(|name| self.user(name)).unwrap_or_default()
    }

    /// The entry of a mapping of repositories that a file is named after.
    fn repository(&self, key: &str, path: &str) -> Origins {
        let name = path.rsplit('/').next().unwrap_or_default();
        let stem = |name: &str| name.rsplit_once('.').map_or(name, |(stem, _)| stem).replace('-', "_");
        let is = |id: &str, entry: &Value| {
            let file = entry.get("filename").and_then(Value::as_str).unwrap_or(id);
            name == file || stem(name) == file.replace('-', "_") || stem(name) == stem(file)
        };
        let mut keys = Vec::new();
        for document in self.user_data() {
            let map = document.outline.as_ref().and_then(|outline| at(outline, key)).and_then(Value::as_map);
            let named = map.into_iter().flat_map(Map::iter).filter(|(id, entry)| is(id, entry));
            keys.extend(named.map(|(id, _)| format!("{key}.{id}")));
        }
        self.keys(&keys)
    }

    /// The devices that a file of the network is named after; all of them for a file of all.
    fn network_file(&self, path: &str) -> Origins {
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_of = |device: &str| {
            let words = [format!("-{device}."), format!("-{device}")];
            name.contains(words[0].as_str()) || name.ends_with(words[1].as_str())
        };
        let found = self.devices(&is_of);
        if found.is_empty() { self.devices(&|_| true) } else { found }
    }

    /// The devices of the network configurations for whose identifiers `is` holds.
    fn devices(&self, is: &dyn Fn(&str) -> bool) -> Origins {
        let mut found = Origins::new();
        for (number, document) in self.documents.iter().enumerate().filter(|(_, d)| d.usage == Use::NetworkConfig) {
            let Some(outline) = &document.outline else { continue };
            let (above, inner) = match outline.get("network") {
                Some(Value::Map(inner)) => ("network.", inner),
                _ => ("", outline),
            };
            for (section, devices) in inner.iter() {
                let keys: Vec<String> = match devices {
                    Value::Map(devices) => devices
                        .iter()
                        .filter(|(id, _)| is(id))
                        .map(|(id, _)| format!("{above}{section}.{id}"))
                        .collect(),
                    Value::List(list) if section == "config" => {
                        let named = |entry: &Value| entry.get("name").and_then(Value::as_str).is_some_and(is);
                        let named = list.iter().enumerate().filter(|(_, entry)| named(entry));
                        named.map(|(at, _)| format!("{above}config.{at}")).collect()
                    }
                    _ => continue,
                };
                let places = keys.into_iter().filter_map(|key| Some((document.place(&key)?, key)));
                found.extend(places.map(|((line, column), key)| (number, line, column, key)));
            }
        }
        found
    }
}

/// The keys that a module reads.
pub fn keys_read_by(module: &str) -> Vec<&'static str> {
    let mut keys: Vec<&str> = schema::keys(module);
    keys.extend(match module {
        "update_hostname" | "update_etc_hosts" => schema::keys("set_hostname"),
        "write_files_deferred" => schema::keys("write_files"),
        "mounts" => vec!["device_aliases"],
        "ssh_authkey_fingerprints" | "ssh_import_id" => schema::keys("users_groups"),
        _ => Vec::new(),
    });
    keys
}
