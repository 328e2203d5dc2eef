//! Translates names and numbers of users and groups by the root's own account files.

use super::Root;

/// A numeric user and group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    pub uid: u32,
    pub gid: u32,
}

impl Root {
    /// The ids of a user given by name or number; the group is the login group.
    pub fn user_ids(&self, name: &str) -> Option<Ids> {
        let passwd = self.text("/etc/passwd");
        let found = passwd.lines().find_map(|line| {
            let mut fields = line.split(':');
            (fields.next() == Some(name)).then(|| {
                let uid = fields.nth(1)?.parse().ok()?;
                Some(Ids { uid, gid: fields.next()?.parse().ok()? })
            })?
        });
        found
            .or_else(|| name.parse().ok().map(|uid| Ids { uid, gid: 0 }))
            .or_else(|| (name == "root").then_some(Ids { uid: 0, gid: 0 }))
    }

    /// The id of a group given by name or number.
    pub fn group_id(&self, name: &str) -> Option<u32> {
        let group = self.text("/etc/group");
        let found = group.lines().find_map(|line| {
            let mut fields = line.split(':');
            (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
        });
        found.or_else(|| name.parse().ok()).or_else(|| (name == "root").then_some(0))
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
