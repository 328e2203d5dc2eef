//! Translates names and numbers of users and groups by the root's own account files.

use super::Root;
use std::collections::HashMap;
use std::str::FromStr;

/// A numeric user and group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    pub uid: u32,
    pub gid: u32,
}

/// The users and groups of a root's account files, for many lookups.
#[derive(Debug, Default)]
pub struct Owners {
    users: HashMap<String, Ids>,
    groups: HashMap<String, u32>,
}

impl Owners {
    /// The ids of a user given by name or number; the group is the login group.
    pub fn user(&self, name: &str) -> Option<Ids> {
        self.users.get(name).copied().or_else(|| numbered_user(name))
    }

    /// The id of a group given by name or number.
    pub fn group(&self, name: &str) -> Option<u32> {
        self.groups.get(name).copied().or_else(|| numbered(name))
    }
}

/// The id of a numeric name that is not in the account files.
fn numbered(name: &str) -> Option<u32> {
    u32::from_str(name).ok().or_else(|| (name == "root").then_some(0))
}

/// The users in passwd(5)'s text.
fn users(passwd: &str) -> impl Iterator<Item = (&str, Ids)> {
    passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, uid) = (fields.next()?, fields.nth(1)?.parse().ok()?);
        Some((name, Ids { uid, gid: fields.next()?.parse().ok()? }))
    })
}

/// The groups in group(5)'s text.
fn groups(group: &str) -> impl Iterator<Item = (&str, u32)> {
    group.lines().filter_map(|line| {
        let mut fields = line.split(':');
        Some((fields.next()?, fields.nth(1)?.parse().ok()?))
    })
}

/// Each name with its first value.
fn by_name<'a, T>(entries: impl Iterator<Item = (&'a str, T)>) -> HashMap<String, T> {
    let mut found = HashMap::new();
    for (name, value) in entries {
        found.entry(name.to_owned()).or_insert(value);
    }
    found
}

fn numbered_user(name: &str) -> Option<Ids> {
    numbered(name).map(|uid| Ids { uid, gid: 0 })
}

/// Reads the account files.
pub fn owners(root: &Root) -> Owners {
    let (passwd, group) = (root.text("/etc/passwd"), root.text("/etc/group"));
    Owners { users: by_name(users(&passwd)), groups: by_name(groups(&group)) }
}

/// The ids of a user given by name or number; the group is the login group.
pub fn user_ids(root: &Root, name: &str) -> Option<Ids> {
    let passwd = root.text("/etc/passwd");
    let found = users(&passwd).find(|(found, _)| *found == name);
    found.map(|(_, ids)| ids).or_else(|| numbered_user(name))
}

/// The id of a group given by name or number.
pub fn group_id(root: &Root, name: &str) -> Option<u32> {
    let group = root.text("/etc/group");
    let found = groups(&group).find(|(found, _)| *found == name);
    found.map(|(_, gid)| gid).or_else(|| numbered(name))
}

/// The name of a user; its number if the root has no name for it.
pub fn user_name(root: &Root, uid: u32) -> String {
    if uid == 0 { "root".into() } else { name_of(&root.text("/etc/passwd"), uid) }
}

/// The name of a group; its number if the root has no name for it.
pub fn group_name(root: &Root, gid: u32) -> String {
    if gid == 0 { "root".into() } else { name_of(&root.text("/etc/group"), gid) }
}

fn name_of(file: &str, id: u32) -> String {
    let id = id.to_string();
    let found = file.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1) == Some(id.as_str())).then(|| name.to_owned())
    });
    found.unwrap_or(id)
}
