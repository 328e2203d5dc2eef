//! New users and free numbers, by the rules of useradd(8) and groupadd(8) from the shadow suite.

use super::table::AccountFile;
use super::{Accounts, User, check_field, check_name, home};
use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::root::{Ids, Root};
use std::collections::BTreeSet;

/// Reserved numbers: 65534 is the user nobody, 65535 and the last are -1 in 16 and 32 bits.
const RESERVED: [u32; 3] = [65534, 65535, u32::MAX];

/// A user to add. None means the system's default.
#[derive(Debug, Default)]
pub struct NewUser<'a> {
    pub name: &'a str,
    pub uid: Option<u32>,
    pub gecos: Option<&'a str>,
    pub home: Option<&'a str>,
    pub shell: Option<&'a str>,
    /// The login group, which must exist.
    pub primary_group: Option<&'a str>,
    /// Supplementary groups, which must exist.
    pub groups: &'a [String],
    /// Whether to create a login group with the user's name, if the system does that and no other group is
    /// given.
    pub user_group: bool,
    pub system: bool,
    /// The password field of shadow(5); None: locked.
    pub password: Option<&'a str>,
    /// Days after the password's expiry until the account is locked; negative: never.
    pub inactive: Option<i64>,
    /// The day on which the account expires, in days since 1970; negative: never.
    pub expires: Option<i64>,
}

impl Accounts {
    /// Adds a user with its login group and its subordinate ids. `root` is used to choose a shell.
    ///
    /// # Errors
    /// The name or a field is invalid, the user exists, a group does not, or no number is free.
    pub fn add_user(&mut self, root: &Root, new: &NewUser, report: &Problems) -> Result<User> {
        let fail = |why: String| Error::new(format!("failed to add the user {}: {why}", new.name));
        check_name("user", new.name)?;
        if self.user(new.name).is_some() {
            return Err(fail("there is one".into()));
        }
        let home = new.home.map_or_else(|| self.default_home(new.name), str::to_owned);
        check_home(&home).map_err(|e| fail(e.to_string()))?;
        let shell = new.shell.map_or_else(|| self.default_shell(root), str::to_owned);
        for (what, value) in [("gecos", new.gecos.unwrap_or("")), ("shell", &shell)] {
            check_field(what, value).map_err(|e| fail(e.to_string()))?;
        }
        let uid = self.choose_uid(new).map_err(|e| fail(e.to_string()))?;
        let gid = self.choose_gid(new, uid, report).map_err(|e| fail(e.to_string()))?;
        self.put_user(new, Ids { uid, gid }, &home, &shell);
        if let Err(e) = self.shadow.check_writable() {
            report.error(format_args!("failed to set the password of {}: {e}", new.name));
        }
        let mut seen = BTreeSet::new();
        for group in new.groups.iter().filter(|g| seen.insert(g.as_str())) {
            self.add_member(group, new.name)?;
        }
        let (min, max) = self.defs.range("UID", false);
        if !new.system && (min..=max).contains(&uid) {
            let defs = &self.defs;
            let uids = (&mut self.subuid, &mut self.subuids, "SUB_UID");
            let gids = (&mut self.subgid, &mut self.subgids, "SUB_GID");
            for (table, ranges, kind) in [uids, gids] {
                let number = |key: &str, default| defs.id(&format!("{kind}_{key}"), default);
                let bounds = (number("MIN", 100_000), number("MAX", 600_100_000), number("COUNT", 65536));
                add_range(table, ranges, new.name, bounds, report);
            }
        }
        Ok(User { name: new.name.to_owned(), ids: Ids { uid, gid }, home })
    }

    /// Creates a new user's home and mail file (useradd -m). An existing home stays as it is.
    ///
    /// # Errors
    /// The home's path is invalid, or it cannot be created.
    pub fn make_home(&self, root: &mut Root, user: &User, report: &Problems) -> Result<()> {
        home::make(root, user, &self.defs, &self.skeletons, self.group_id("mail"), report)
    }

    fn put_user(&mut self, new: &NewUser, ids: Ids, home: &str, shell: &str) {
        let password = new.password.unwrap_or("!");
        self.uids.insert(ids.uid);
        let (uid, gid) = (ids.uid.to_string(), ids.gid.to_string());
        self.passwd.add(&[new.name, "x", &uid, &gid, new.gecos.unwrap_or(""), home, shell]);
        if self.shadow.check_writable().is_err() || self.shadow.find(new.name).is_some() {
            return;
        }
        let days = |value: Option<i64>| value.filter(|v| *v >= 0).map(|v| v.to_string()).unwrap_or_default();
        let today = self.today.map(|d| d.to_string()).unwrap_or_default();
        let mut fields = [new.name, password, &today, "", "", "", "", "", ""].map(str::to_owned);
        // useradd ignores password ageing for system accounts.
        if !new.system {
            for (field, key) in fields[3..6].iter_mut().zip(["PASS_MIN_DAYS", "PASS_MAX_DAYS", "PASS_WARN_AGE"]) {
                *field = days(self.defs.number(key));
            }
            let default = |key| self.defs.useradd(key);
            fields[6] = days(new.inactive.or_else(|| default("INACTIVE")?.parse().ok()));
            fields[7] = days(new.expires.or_else(|| days_of(default("EXPIRE")?)));
        }
        self.shadow.add(&fields.each_ref().map(String::as_str));
    }

    fn default_home(&self, name: &str) -> String {
        format!("{}/{name}", self.defs.useradd("HOME").unwrap_or("/home").trim_end_matches('/'))
    }

    fn default_shell(&self, root: &Root) -> String {
        match self.defs.useradd("SHELL") {
            Some(shell) => shell.to_owned(),
            None if root.exists("/bin/bash") => "/bin/bash".to_owned(),
            None => "/bin/sh".to_owned(),
        }
    }

    fn choose_uid(&self, new: &NewUser) -> Result<u32> {
        let used = &self.uids;
        match new.uid {
            Some(uid) if used.contains(&uid) => Err(Error::new(format!("the uid {uid} is another user's"))),
            Some(u32::MAX) => Err(Error::new("the uid is out of range")),
            Some(uid) => Ok(uid),
            None => free(used, self.defs.range("UID", new.system), new.system).ok_or_else(|| none_left("uid")),
        }
    }

    fn choose_gid(&mut self, new: &NewUser, uid: u32, report: &Problems) -> Result<u32> {
        if let Some(group) = new.primary_group {
            return self.group_id(group).ok_or_else(|| Error::new(format!("there is no group {group}")));
        }
        if new.user_group && self.defs.is_yes("USERGROUPS_ENAB", true) {
            if let Some(gid) = self.group_id(new.name) {
                report.warn(format_args!("the user {0} gets the group {0}, which exists already", new.name));
                return Ok(gid);
            }
            let gid = self.free_gid(Some(uid), new.system)?;
            self.put_group(new.name, gid);
            return Ok(gid);
        }
        let default = self.defs.useradd("GROUP").unwrap_or("users");
        let number = || default.parse().ok();
        Ok(self.group_id(default).or_else(number).or_else(|| self.group_id("users")).unwrap_or(100))
    }

    /// A free group number: `preferred` if it is free and within the range.
    pub(super) fn free_gid(&self, preferred: Option<u32>, system: bool) -> Result<u32> {
        let used = &self.gids;
        let (min, max) = self.defs.range("GID", system);
        preferred
            .filter(|id| (min..=max).contains(id) && !used.contains(id))
            .or_else(|| free(used, (min, max), system))
            .ok_or_else(|| none_left("gid"))
    }
}

fn none_left(what: &str) -> Error {
    Error::new(format!("no {what} is free in the range of login.defs"))
}

/// The next free number: above the highest used one for users, below the lowest for system accounts; if there
/// is none, the first gap.
fn free(used: &BTreeSet<u32>, (min, max): (u32, u32), system: bool) -> Option<u32> {
    if min > max {
        return None;
    }
    let good = |id: &u32| !used.contains(id) && !RESERVED.contains(id);
    let next = if system {
        used.range(min..=max).next().map_or(Some(max), |id| id.checked_sub(1))
    } else {
        used.range(min..=max).next_back().map_or(Some(min), |id| id.checked_add(1))
    };
    let next = next.filter(|id| (min..=max).contains(id) && good(id));
    // No more numbers are skipped than are used or reserved.
    let scan = used.len() + RESERVED.len() + 1;
    if system {
        next.or_else(|| (min..=max).rev().take(scan).find(good))
    } else {
        next.or_else(|| (min..=max).take(scan).find(good))
    }
}

/// The ranges in a file of subuid(5) or subgid(5).
#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// The first number and the length of each, sorted.
    ranges: Vec<(u64, u64)>,
    /// No range below this is free.
    searched: u64,
}

impl Ranges {
    /// Reads the ranges of a file.
    pub(super) fn of(table: &AccountFile) -> Ranges {
        let number = |at, field| table.field(at, field).parse::<u64>().ok();
        let mut ranges: Vec<_> = (0..table.len()).filter_map(|at| Some((number(at, 1)?, number(at, 2)?))).collect();
        ranges.sort_unstable();
        Ranges { ranges, searched: 0 }
    }

    /// How many of them begin before `first`.
    fn place(&self, first: u64) -> usize {
        self.ranges.partition_point(|range| range.0 < first)
    }

    /// The first `count` free numbers from `min`.
    fn next(&self, min: u64, count: u64) -> u64 {
        let mut start = min.max(self.searched);
        for (first, length) in self.ranges.get(self.place(self.searched)..).unwrap_or_default() {
            if *first >= start.saturating_add(count) {
                break;
            }
            start = start.max(first.saturating_add(*length));
        }
        start
    }
}

/// Assigns the first free range of subuid(5) or subgid(5) to `name`, if the file exists and it has none for them.
fn add_range(
    table: &mut AccountFile,
    ranges: &mut Ranges,
    name: &str,
    (min, max, count): (u32, u32, u32),
    report: &Problems,
) {
    if !table.exists() || count == 0 || table.find(name).is_some() {
        return;
    }
    let start = ranges.next(u64::from(min), u64::from(count));
    if start.saturating_add(u64::from(count) - 1) > u64::from(max) {
        report.warn(format_args!("no subordinate ids are left for the user {name}"));
        return;
    }
    ranges.ranges.insert(ranges.place(start), (start, u64::from(count)));
    ranges.searched = start + u64::from(count);
    table.add(&[name, &start.to_string(), &count.to_string()]);
}

fn check_home(home: &str) -> Result<()> {
    check_field("homedir", home)?;
    if !home.starts_with('/') || home.split('/').any(|part| part == "..") {
        return Err(Error::new("homedir: not an absolute path"));
    }
    Ok(())
}

/// A date `YYYY-MM-DD`, optionally followed by a time, or a number of days, as days since 1970. Empty and
/// negative mean never (-1). None for anything else.
pub fn days_of(text: &str) -> Option<i64> {
    let text = text.trim();
    if text.is_empty() {
        return Some(-1);
    }
    if let Ok(days) = text.parse() {
        return Some(days);
    }
    let date = text.split(['T', 't', ' ']).next()?;
    let mut parts = date.split('-');
    let (year, month, day): (i64, i64, i64) =
        (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let length = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if parts.next().is_some() || !(1970..=9999).contains(&year) || !(1..=length).contains(&day) {
        return None;
    }
    // Years start in March here, so that the leap day is the last day of a year (the proleptic Gregorian
    // calendar).
    let (years, months) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let day_of_year = (153 * months + 2) / 5 + day - 1;
    Some(years * 365 + years / 4 - years / 100 + years / 400 + day_of_year - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_days() {
        for (text, days) in [
            ("1970-01-01", Some(0)),
            ("2032-09-01", Some(22889)),
            ("2000-02-29", Some(11016)),
            ("2024-03-01 00:00:00", Some(19783)),
            ("", Some(-1)),
            ("-1", Some(-1)),
            ("22889", Some(22889)),
            ("2001-02-29", None),
            ("2032-13-01", None),
            ("tomorrow", None),
        ] {
            assert_eq!(days_of(text), days, "{text}");
        }
    }

    #[test]
    fn free_numbers() {
        let used: BTreeSet<u32> = [1000, 1001, 4000, 999, 998].into();
        assert_eq!(free(&used, (1000, 60000), false), Some(4001));
        assert_eq!(free(&used, (1000, 4000), false), Some(1002));
        assert_eq!(free(&used, (101, 999), true), Some(997));
        assert_eq!(free(&used, (998, 999), true), None);
        assert_eq!(free(&used, (5, 4), false), None);
        assert_eq!(free(&[u32::MAX - 1].into(), (1000, u32::MAX), false), Some(1000));
    }
}
