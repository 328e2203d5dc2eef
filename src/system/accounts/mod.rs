//! The root's account database: edits passwd, shadow, group, gshadow, subuid and subgid as useradd(8),
//! groupadd(8), usermod(8), chpasswd(8) and passwd(1) do. No program is run, so that it works before the
//! pivot.
//!
//! In `/` of the running system the lock of lckpwdf(3) is held from reading to writing; in an initramfs and in a folder
//! no other program uses the files.

mod add;
mod defs;
mod home;
mod name;
mod table;

pub use add::{NewUser, days_of};
pub use defs::Defs;
pub use name::{check_field, check_name, is_number};

use crate::base::budget;
use crate::base::error::{Context, Error, Result};
use crate::base::password;
use crate::base::problem::Problems;
use crate::root::{Attr, Ids, Lock, Root};
use add::Ranges;
use home::Skeletons;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;
pub(crate) use table::AccountFile;

/// The lock file of lckpwdf(3).
const LOCK: &str = "/etc/.pwd.lock";
/// How long lckpwdf(3) waits for it.
const LOCK_WAIT: Duration = Duration::from_secs(15);
/// A clock before 1 January 2020 is considered unset: a machine without a battery starts in 1970.
const CLOCK_IS_SET: u64 = 18262;

/// How often a member's name is in memory: in the lists of group(5) and gshadow(5), their texts, and while these are written.
const MEMBER_COPIES: usize = 6;
/// The rounds of a password if login.defs sets no number (crypt(5)).
const USUAL_ROUNDS: u32 = 5_000;

/// The account files of a root, in memory.
#[derive(Debug)]
pub struct Accounts {
    passwd: AccountFile,
    shadow: AccountFile,
    group: AccountFile,
    gshadow: AccountFile,
    subuid: AccountFile,
    subgid: AccountFile,
    /// Accounts of the image below /usr (nss-altfiles), which are read-only.
    alt_passwd: AccountFile,
    alt_group: AccountFile,
    /// The numbers in use.
    uids: BTreeSet<u32>,
    gids: BTreeSet<u32>,
    /// The first name of each number.
    group_names: HashMap<u32, String>,
    /// The ranges of subuid(5) and subgid(5).
    subuids: Ranges,
    subgids: Ranges,
    pub defs: Defs,
    skeletons: Skeletons,
    /// Days since 1970; None if the clock is not set.
    today: Option<u64>,
    lock: Option<Lock>,
    joined: Joined,
}

/// New members of groups, which are written once, when all are known: a list of members that grows one by one is copied for each.
#[derive(Debug, Default)]
struct Joined {
    /// The number of each name.
    numbers: HashMap<String, u32>,
    names: Vec<String>,
    /// The numbers of each group's new members, in their order. A name may be there twice.
    groups: BTreeMap<String, Vec<u32>>,
    /// What the stage's budget has paid for them, until they are in the files, which it pays for then.
    paid: usize,
}

/// A user of passwd(5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub ids: Ids,
    pub home: String,
}

impl Accounts {
    /// Reads the account files of `root`.
    ///
    /// # Errors
    /// A file cannot be read, or another process holds the lock.
    pub fn open(root: &Root) -> Result<Accounts> {
        let lock = root.lock(LOCK, LOCK_WAIT)?;
        let alt = |path| {
            let uses = root.text("/etc/nsswitch.conf").lines().any(|l| l.contains("altfiles"));
            if uses { AccountFile::read(root, path) } else { Ok(AccountFile::default()) }
        };
        let seconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let (passwd, alt_passwd) = (AccountFile::read(root, "/etc/passwd")?, alt("/usr/lib/passwd")?);
        let (group, alt_group) = (AccountFile::read(root, "/etc/group")?, alt("/usr/lib/group")?);
        passwd.check_writable()?;
        group.check_writable()?;
        let mut group_names = HashMap::new();
        for (table, at) in
            [&group, &alt_group].into_iter().flat_map(|table| (0..table.len()).map(move |at| (table, at)))
        {
            if let Ok(gid) = table.field(at, 2).parse() {
                group_names.entry(gid).or_insert_with(|| table.field(at, 0));
            }
        }
        let (subuid, subgid) = (AccountFile::read(root, "/etc/subuid")?, AccountFile::read(root, "/etc/subgid")?);
        Ok(Accounts {
            uids: passwd.numbers(2).chain(alt_passwd.numbers(2)).collect(),
            gids: group_names.keys().copied().collect(),
            group_names,
            subuids: Ranges::of(&subuid),
            subgids: Ranges::of(&subgid),
            passwd,
            shadow: AccountFile::read(root, "/etc/shadow")?,
            group,
            gshadow: AccountFile::read(root, "/etc/gshadow")?,
            subuid,
            subgid,
            alt_passwd,
            alt_group,
            defs: Defs::read(root),
            skeletons: Skeletons::default(),
            today: seconds.ok().map(|s| s.as_secs() / 86400).filter(|d| *d >= CLOCK_IS_SET),
            lock,
            joined: Joined::default(),
        })
    }

    /// Hashes a plain password as login.defs(5) says.
    ///
    /// # Errors
    /// It cannot be hashed, or the run's other passwords have used up the limit.
    pub fn hash(&self, plain: &str) -> Result<String> {
        let (method, rounds) = self.defs.encryption();
        budget::round(rounds.unwrap_or(USUAL_ROUNDS) as usize).map_err(|_| {
            Error::new(
                "there are too many plain passwords: expected at most 1,000, and hashes (mkpasswd(1)) for the others",
            )
        })?;
        password::hash(plain, method, rounds)
    }

    /// Writes what changed. In `/` of the running system it is on the disk before the lock is released.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn save(mut self, root: &mut Root, report: &Problems) -> Result<()> {
        let Joined { names, groups, paid, .. } = std::mem::take(&mut self.joined);
        for (group, members) in groups {
            for table in [&mut self.group, &mut self.gshadow] {
                join(table, &group, members.iter().filter_map(|n| names.get(*n as usize)));
            }
        }
        budget::give(paid);
        let shadow = match self.group_id("shadow") {
            Some(gid) => Attr { mode: 0o640, uid: 0, gid },
            None => Attr::root(0o600),
        };
        let tables = [
            (&self.passwd, Attr::root(0o644)),
            (&self.group, Attr::root(0o644)),
            (&self.shadow, shadow),
            (&self.gshadow, shadow),
            (&self.subuid, Attr::root(0o644)),
            (&self.subgid, Attr::root(0o644)),
        ];
        for (table, new) in tables {
            table.write(root, new)?;
        }
        if self.lock.is_some() {
            for e in root.commit() {
                report.error(e);
            }
        }
        Ok(())
    }

    /// The user `name`.
    pub fn user(&self, name: &str) -> Option<User> {
        let of = |table: &AccountFile| {
            let at = table.find(name)?;
            let ids = Ids { uid: table.field(at, 2).parse().ok()?, gid: table.field(at, 3).parse().ok()? };
            Some(User { name: name.to_owned(), ids, home: table.field(at, 5) })
        };
        of(&self.passwd).or_else(|| of(&self.alt_passwd))
    }

    /// The number of the group `name`.
    pub fn group_id(&self, name: &str) -> Option<u32> {
        [&self.group, &self.alt_group].iter().find_map(|t| t.field(t.find(name)?, 2).parse().ok())
    }

    /// The name of the group whose number `text` is, because useradd(8) takes numbers too. None if it is not a number, or not a
    /// group's.
    pub fn numbered_group(&self, text: &str) -> Option<&str> {
        let gid = text.parse().ok().filter(|_| is_number(text))?;
        self.group_names.get(&gid).map(String::as_str)
    }

    /// Adds the group `name` (groupadd), and returns its number.
    ///
    /// # Errors
    /// The name is invalid, the group exists, or no number is free.
    pub fn add_group(&mut self, name: &str, system: bool) -> Result<u32> {
        check_name("group", name)?;
        if self.group_id(name).is_some() {
            return Err(Error::new(format!("failed to add the group {name}: there is one")));
        }
        let gid = self.free_gid(None, system)?;
        self.put_group(name, gid);
        Ok(gid)
    }

    /// Adds the user `user` to the group `group` (usermod -a -G).
    ///
    /// # Errors
    /// The group does not exist, or the groups have too many members.
    pub fn add_member(&mut self, group: &str, user: &str) -> Result<()> {
        if self.group.find(group).is_none()
            && let Some(gid) = self.group_id(group)
        {
            // A group of the image below /usr gets its members through an entry in /etc.
            self.put_group(group, gid);
        }
        let failed = || format!("failed to add {user} to the group {group}");
        if self.group.find(group).is_none() {
            return Err(Error::new("there is no such group")).context(failed);
        }
        let cost = (user.len() + 1) * MEMBER_COPIES;
        budget::take_last(cost).context(failed)?;
        let Joined { numbers, names, groups, paid } = &mut self.joined;
        *paid += cost;
        let number = numbers.get(user).copied().unwrap_or_else(|| {
            let next = u32::try_from(names.len()).unwrap_or(u32::MAX);
            numbers.insert(user.to_owned(), next);
            names.push(user.to_owned());
            next
        });
        match groups.get_mut(group) {
            Some(members) => members.push(number),
            None => drop(groups.insert(group.to_owned(), vec![number])),
        }
        Ok(())
    }

    /// Sets the password field of a user (chpasswd -e), and today as the date of the change.
    ///
    /// # Errors
    /// The user does not exist.
    pub fn set_password(&mut self, name: &str, field: &str) -> Result<()> {
        if !super::password::is_field(field) {
            return Err(Error::new(format!("failed to set the password of {name}: not a hash of crypt(5)")));
        }
        let today = self.today.map(|d| d.to_string());
        self.edit_password(name, |_| Some(field.to_owned()))?;
        if let (Some(at), Some(today)) = (self.shadow.find(name), today) {
            self.shadow.set(at, 2, &today);
        }
        Ok(())
    }

    /// Locks a password by a `!` in front (passwd -l), unless it is locked.
    ///
    /// # Errors
    /// The user does not exist.
    pub fn lock(&mut self, name: &str) -> Result<()> {
        self.edit_password(name, |field| (!field.starts_with('!')).then(|| format!("!{field}")))
    }

    /// Removes that `!` (passwd -u). The rest may be empty, which is a login without a password.
    ///
    /// # Errors
    /// The user does not exist.
    pub fn unlock(&mut self, name: &str) -> Result<()> {
        self.edit_password(name, |field| field.strip_prefix('!').map(str::to_owned))
    }

    /// Requires the user to change the password at the next login (passwd --expire).
    ///
    /// # Errors
    /// The user does not exist.
    pub fn expire(&mut self, name: &str) -> Result<()> {
        let Some(at) = self.shadow.find(name) else {
            return Err(Error::new(format!(
                "failed to expire the password of {name}: there is no such user in /etc/shadow"
            )));
        };
        self.shadow.set(at, 2, "0");
        Ok(())
    }

    /// Whether a user's password is empty, locked or not.
    pub fn has_no_password(&self, name: &str) -> bool {
        self.shadow.find(name).is_some_and(|at| matches!(self.shadow.field(at, 1).as_str(), "" | "!"))
    }

    /// Changes the password field in shadow. A user without a line there gets one, with the field of passwd. passwd never gets a
    /// hash, because it is world-readable.
    fn edit_password(&mut self, name: &str, edit: impl Fn(&str) -> Option<String>) -> Result<()> {
        if self.user(name).is_none() {
            return Err(Error::new(format!("failed to change the password of {name}: there is no such user")));
        }
        self.shadow.check_writable().context(|| format!("failed to change the password of {name}"))?;
        let in_shadow = self.shadow.find(name);
        let in_passwd = self.passwd.find(name).filter(|at| in_shadow.is_none() && self.passwd.field(*at, 1) != "x");
        let old = match (in_shadow, in_passwd) {
            (Some(at), _) => self.shadow.field(at, 1),
            (None, Some(at)) => self.passwd.field(at, 1),
            (None, None) => "*".to_owned(),
        };
        let Some(field) = edit(&old) else { return Ok(()) };
        match in_shadow {
            Some(at) => self.shadow.set(at, 1, &field),
            None => self.shadow.add(&[name, &field, "", "", "", "", "", "", ""]),
        }
        if let Some(at) = in_passwd {
            self.passwd.set(at, 1, "x");
        }
        Ok(())
    }

    fn put_group(&mut self, name: &str, gid: u32) {
        self.gids.insert(gid);
        self.group_names.entry(gid).or_insert_with(|| name.to_owned());
        self.group.add(&[name, "x", &gid.to_string(), ""]);
        if self.gshadow.exists() && self.gshadow.find(name).is_none() {
            self.gshadow.add(&[name, "!", "", ""]);
        }
    }
}

/// Adds names to the list of a group's members, the last field in group(5) and gshadow(5), each once.
fn join<'a>(table: &mut AccountFile, group: &str, new: impl Iterator<Item = &'a String>) {
    let Some(at) = table.find(group) else { return };
    let mut members = table.field(at, 3);
    let old = members.clone();
    let mut known: HashSet<&str> = old.split(',').collect();
    for name in new.filter(|name| known.insert(name)) {
        members += if members.is_empty() { "" } else { "," };
        members += name;
    }
    table.set(at, 3, &members);
}

#[cfg(test)]
mod tests;
