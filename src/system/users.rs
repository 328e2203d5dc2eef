//! `users`, `user` and `groups` in all their forms, as one list that users_groups, set_passwords and ssh
//! share.

use super::ModuleContext;
use crate::base::deprecated;
use crate::base::problem::Problems;
use crate::document::{Map, Value, wrong};
use std::collections::HashMap;

/// The most users and the most groups of one configuration.
const MAX_USERS: usize = 4096;

/// Entries by name, in the order in which the names were first given.
#[derive(Debug, Default)]
struct Named<T> {
    entries: Vec<(String, T)>,
    /// The place of each name in `entries`.
    places: HashMap<String, usize>,
    /// Whether there were more than [`MAX_USERS`].
    is_cut: bool,
}

impl<T: Default> Named<T> {
    /// The entry of this name, a new one if there is none. None if there are too many.
    fn entry(&mut self, name: &str) -> Option<&mut T> {
        let at = match self.places.get(name) {
            Some(at) => *at,
            None if self.entries.len() >= MAX_USERS => {
                self.is_cut = true;
                return None;
            }
            None => {
                let at = self.entries.len();
                self.entries.push((name.to_owned(), T::default()));
                self.places.insert(name.to_owned(), at);
                at
            }
        };
        self.entries.get_mut(at).map(|(_, value)| value)
    }
}

/// The reader of a configuration, and its results.
#[derive(Default)]
struct Reader {
    users: Named<Map>,
    groups: Named<Vec<String>>,
    problems: Problems,
}

/// The users and groups of a configuration.
#[derive(Debug, Default, PartialEq)]
pub struct Users {
    /// In the order in which they are created, the default user last. Keys have `_` instead of `-`.
    pub users: Vec<(String, Map)>,
    /// The name of the default user, if there is one.
    pub default: Option<String>,
    /// Group names and members.
    pub groups: Vec<(String, Vec<String>)>,
    /// Errors in the configuration; the rest of it is used.
    pub problems: Problems,
}

impl Users {
    /// Reads the configuration (cloud-init's documentation, module "Users and Groups").
    pub fn of(context: &mut ModuleContext) -> Users {
        let mut out = Reader::default();
        if let Some(groups) = context.get("groups") {
            out.read_groups(groups);
        }
        let distro_user = context.config.at(&["system_info", "default_user"]).and_then(Value::as_map);
        let mut default_user = Map::new();
        match context.get("user") {
            Some(Value::Map(user)) => default_user = underscored(user),
            Some(Value::Bool(false)) => {}
            Some(value) => match value.text() {
                Some(name) if !name.is_empty() => {
                    context.report.deprecated(deprecated::USER_TEXT.about(""));
                    default_user.insert("name", name);
                }
                Some(_) => {}
                None => out.problems.error(wrong("user", "a name or a mapping", value).to_string()),
            },
            None => {}
        }
        let overridden = !default_user.is_empty();
        fill(&mut default_user, distro_user.unwrap_or(&Map::new()));
        if let Some(users) = context.get("users") {
            if let Some(kind) = users.as_map().map(|_| "dict").or(users.as_str().map(|_| "str")) {
                context.report.deprecated(deprecated::USERS_KIND.about(kind));
            }
            out.read_users(users, context.report);
        }
        let mut out = out.finish();
        if overridden && !out.users.iter().any(|(n, _)| n == "default") {
            out.users.push(("default".into(), Map::new()));
        }
        out.resolve_default(default_user, context.report);
        out
    }

    /// The default user's name, or `NONE` as in cloud-init.
    pub fn default_or_none(&self) -> &str {
        self.default.as_deref().unwrap_or("NONE")
    }

    /// Replaces `default` by the real default user. Its own entry takes precedence, then that of `default`,
    /// then the distribution's; the groups of all are combined.
    fn resolve_default(&mut self, mut default_user: Map, report: &Problems) {
        let Some(asked) = self.take("default") else { return };
        let name = default_user.remove("name").and_then(|n| n.text()).filter(|n| !n.is_empty());
        let Some(name) = name else {
            report.warn("cloud-config: users: no default user: there is no system_info.default_user with a name");
            return;
        };
        let mut user = self.take(&name).unwrap_or_default();
        let mut groups = Vec::new();
        for source in [&user, &asked, &default_user] {
            groups.extend(source.get("groups").and_then(names_of).unwrap_or_default());
        }
        groups.sort();
        groups.dedup();
        user.insert("groups", groups.into_iter().map(Value::from).collect::<Vec<_>>());
        fill(&mut user, &asked);
        fill(&mut user, &default_user);
        self.users.push((name.clone(), user));
        self.default = Some(name);
    }

    fn take(&mut self, name: &str) -> Option<Map> {
        let at = self.users.iter().position(|(n, _)| n == name)?;
        Some(self.users.remove(at).1)
    }
}

impl Reader {
    fn finish(self) -> Users {
        for (key, is_cut) in [("groups", self.groups.is_cut), ("users", self.users.is_cut)] {
            if is_cut {
                self.problems.error(format!("{key}: more than {MAX_USERS}; the rest is left out"));
            }
        }
        let mut groups = self.groups.entries;
        for (_, members) in &mut groups {
            members.sort();
            members.dedup();
        }
        Users { users: self.users.entries, default: None, groups, problems: self.problems }
    }

    fn read_groups(&mut self, groups: &Value) {
        match groups {
            Value::String(names) => words(names).for_each(|name| self.add_group(name, Vec::new())),
            Value::Map(map) => {
                for (name, members) in map.iter() {
                    let members = self.names(&format!("groups.{name}"), members);
                    self.add_group(name, members);
                }
            }
            Value::List(list) => {
                for entry in list {
                    match entry {
                        Value::Map(_) => self.read_groups(entry),
                        entry => match entry.text() {
                            Some(name) => self.add_group(name.trim(), Vec::new()),
                            None => self.problems.error(wrong("groups", "names or mappings", entry).to_string()),
                        },
                    }
                }
            }
            other => self.problems.error(wrong("groups", "a list, a mapping or a string", other).to_string()),
        }
    }

    fn add_group(&mut self, name: &str, members: Vec<String>) {
        if let Some(group) = self.groups.entry(name) {
            group.extend(members);
        }
    }

    fn names(&mut self, key: &str, value: &Value) -> Vec<String> {
        names_of(value).unwrap_or_else(|| {
            self.problems.error(wrong(key, "a list or a string of names", value).to_string());
            Vec::new()
        })
    }

    fn read_users(&mut self, users: &Value, report: &Problems) {
        match users {
            Value::String(names) => {
                // cloud-init sorts the words together with the blanks before them.
                let mut names: Vec<&str> = names.split(',').filter(|n| !n.trim().is_empty()).collect();
                names.sort_unstable();
                names.iter().for_each(|name| self.add_user(name.trim(), Map::new()));
            }
            Value::List(list) => {
                for entry in list {
                    match entry {
                        Value::Map(user) => {
                            let mut user = underscored(user);
                            match user.remove("name").map_or(Some("default".to_owned()), |n| n.text()) {
                                Some(name) => self.add_user(&name, user),
                                None => self.problems.error("users: an entry whose name is no text"),
                            }
                        }
                        entry => match names_of(entry) {
                            Some(names) => names.iter().for_each(|name| self.add_user(name, Map::new())),
                            None => self.problems.error(wrong("users", "names or mappings", entry).to_string()),
                        },
                    }
                }
            }
            Value::Map(map) => {
                for (name, user) in map.iter() {
                    match user {
                        Value::Map(user) => {
                            let mut user = underscored(user);
                            user.remove("name");
                            self.add_user(name, user);
                        }
                        user if user.is_true() => self.add_user(name, Map::new()),
                        user if user.text().is_some() => {}
                        user => {
                            let key = format!("users.{name}");
                            self.problems.error(wrong(&key, "a mapping, true or false", user).to_string());
                        }
                    }
                }
            }
            other => {
                report.warn(format_args!("cloud-config: {}", wrong("users", "a list, a mapping or a string", other)));
            }
        }
    }

    /// Adds a user; for an existing one, values that are set stay.
    fn add_user(&mut self, name: &str, user: Map) {
        match self.users.entry(name) {
            Some(old) if old.is_empty() => *old = user,
            Some(old) => fill(old, &user),
            None => {}
        }
    }
}

/// The names in a list, in a mapping's keys, or in a string with commas; empty for null. None for anything else.
pub fn names_of(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Null => Some(Vec::new()),
        Value::List(list) => {
            let names: Option<Vec<String>> = list.iter().map(Value::text).collect();
            Some(names?.iter().flat_map(|n| words(n).map(str::to_owned).collect::<Vec<_>>()).collect())
        }
        Value::Map(map) => Some(map.keys().map(|k| k.trim().to_owned()).collect()),
        value => Some(words(&value.text()?).map(str::to_owned).collect()),
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|w| !w.is_empty())
}

fn underscored(map: &Map) -> Map {
    map.iter().map(|(k, v)| (k.replace('-', "_").trim().to_owned(), v.clone())).filter(|(k, _)| !k.is_empty()).collect()
}

/// Adds missing keys, recursively.
fn fill(map: &mut Map, from: &Map) {
    for (key, value) in from.iter() {
        match (map.get_mut(key), value) {
            (None, value) => drop(map.insert(key, value.clone())),
            (Some(Value::Map(old)), Value::Map(new)) => fill(old, new),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::Use;
    use crate::system::testing::Inputs;

    fn users(text: &str) -> Users {
        let dir = TempDir::new("users");
        let mut inputs = Inputs::new("ubuntu", text);
        let mut config = inputs.config.as_map().cloned().unwrap_or_default();
        config.insert("system_info", inputs.distro.default_config().get("system_info").unwrap().clone());
        inputs.config = Value::Map(config);
        Users::of(&mut inputs.context(&mut dir.root(Use::Plan)))
    }

    fn names(users: &Users) -> Vec<&str> {
        users.users.iter().map(|(n, _)| n.as_str()).collect()
    }

    #[test]
    fn all_forms_of_users() {
        assert_eq!(names(&users("users: default,bob, joe")), ["joe", "bob", "ubuntu"]);
        assert_eq!(names(&users("users: [default, 'a, b', {name: c}]")), ["a", "b", "c", "ubuntu"]);
        assert_eq!(names(&users("users: {default: true, bob: {sudo: x}, joe: false}")), ["bob", "ubuntu"]);
        assert_eq!(names(&users("users: []\nuser: admin")), ["admin"]);
        assert_eq!(names(&users("users: [default]\nuser: false")), ["ubuntu"]);
        let many = users(&format!("users: [{}]", (0..5000).map(|i| format!("u{i}, ")).collect::<String>()));
        assert_eq!((many.users.len(), many.problems.len()), (MAX_USERS, 1));
        let repeated = format!("[{{name: u0, uid: 1}}, {}{{name: u0, uid: 2, shell: s}}]", "u0, ".repeat(MAX_USERS));
        let repeated = users(&format!("users: {repeated}"));
        assert_eq!(repeated.users.len(), 1);
        assert_eq!(repeated.users[0].1, [("uid", 1.into()), ("shell", Value::from("s"))].into_iter().collect());
        assert!(names(&users("users: null")).is_empty());
        let bad = users("users: [[x], 5, {name: [1]}, null]\nuser: [1]\ngroups: 7\n");
        assert_eq!(names(&bad), ["x", "5"]);
        assert_eq!(bad.problems.len(), 3, "{:?}", bad.problems);
    }

    #[test]
    fn default_user_merges_all_its_definitions() {
        let found =
            users("users: [{name: default, gecos: g, groups: [x]}, {name: ubuntu, shell: /bin/sh, groups: 'y, z'}]");
        let (name, user) = &found.users[0];
        assert_eq!((name.as_str(), found.default.as_deref()), ("ubuntu", Some("ubuntu")));
        assert_eq!(user.get("gecos"), Some(&"g".into()));
        assert_eq!(user.get("shell"), Some(&"/bin/sh".into()));
        assert_eq!(
            names_of(user.get("groups").unwrap()).unwrap(),
            ["adm", "cdrom", "dip", "lxd", "sudo", "x", "y", "z"]
        );
    }

    #[test]
    fn all_forms_of_groups() {
        let group = |n: &str, m: &[&str]| (n.to_owned(), m.iter().map(|m| (*m).to_owned()).collect::<Vec<_>>());
        assert_eq!(users("groups: a, b").groups, [group("a", &[]), group("b", &[])]);
        assert_eq!(
            users("groups: {a: [y, x, x], b: 'z,w', c: null}").groups,
            [group("a", &["x", "y"]), group("b", &["w", "z"]), group("c", &[])]
        );
        assert_eq!(users("groups: [a, {b: [y]}, {b: x}, {b: y}]").groups, [group("a", &[]), group("b", &["x", "y"])]);
        let many = users(&format!("groups: '{}'", (0..5000).map(|i| format!("g{i},")).collect::<String>()));
        assert_eq!((many.groups.len(), many.problems.len()), (MAX_USERS, 1));
    }
}
