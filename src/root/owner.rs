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
        let number = || numbered(name).map(|uid| Ids { uid, gid: 0 });
        self.users.get(name).copied().or_else(number)
    }

    /// The id of a group given by name or number.
    pub fn group(&self, name: &str) -> Option<u32> {
        self.groups.get(name).copied().or_else(|| numbered(name))
    }
}

/// The id that a name is, where the account files do not have the name.
fn numbered(name: &str) -> Option<u32> {
    u32::from_str(name).ok().or_else(|| (name == "root").then_some(0))
}

impl Root {
    /// Reads the account files.
    pub fn owners(&self) -> Owners {
        let mut owners = Owners::default();
        for line in self.text("/etc/passwd").lines() {
            let fields: Vec<&str> = line.splitn(5, ':').collect();
            if let [name, _, uid, gid, ..] = *fields
                && let (Ok(uid), Ok(gid)) = (uid.parse(), gid.parse())
            {
                owners.users.entry(name.to_owned()).or_insert(Ids { uid, gid });
            }
        }
        for line in self.text("/etc/group").lines() {
            let fields: Vec<&str> = line.splitn(4, ':').collect();
            if let [name, _, gid, ..] = *fields
                && let Ok(gid) = gid.parse()
            {
                owners.groups.entry(name.to_owned()).or_insert(gid);
            }
        }
        owners
    }

    /// The ids of a user given by name or number; the group is the login group.
    pub fn user_ids(&self, name: &str) -> Option<Ids> {
        self.owners().user(name)
    }

    /// The id of a group given by name or number.
    pub fn group_id(&self, name: &str) -> Option<u32> {
        self.owners().group(name)
    }

    /// The name of a user; its number if the root has no name for it.
    pub fn user_name(&self, uid: u32) -> String {
        if uid == 0 { "root".into() } else { name_of(&self.text("/etc/passwd"), uid) }
    }

    /// The name of a group; its number if the root has no name for it.
    pub fn group_name(&self, gid: u32) -> String {
        if gid == 0 { "root".into() } else { name_of(&self.text("/etc/group"), gid) }
    }
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
