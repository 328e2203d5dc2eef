//! # users_groups
//!
//! Makes groups and users before the pivot, as useradd and groupadd would, with their homes, passwords, SSH keys, and
//! rules of sudo and doas. `default` in `users` is the distribution's own user. Accounts are locked for passwords unless
//! `lock_passwd: false`. Of a user that exists already, its keys, rules and password are set and the rest stays.
//!
//! ```yaml
//! groups: [admins, {web: [alice]}]
//! users:
//! - default
//! - name: alice
//!   gecos: Alice Example
//!   groups: admins
//!   shell: /bin/bash
//!   sudo: ALL=(ALL) NOPASSWD:ALL
//!   ssh_authorized_keys: [ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKp1 alice@example.com]
//! ```
//!
//! ```schema
//! $members = {*: str | [str]+}
//! $user = {
//!  (one name snapuser)
//!  name, gecos, homedir, inactive, passwd, hashed_passwd, plain_text_passwd, primary_group, selinux_user, shell,
//!   snapuser: str
//!  doas, ssh_authorized_keys, ssh_import_id: [str]+
//!  expiredate: str/date
//!  groups: str | [str]+ | {*: null ~23.1 "Use a string or a list of strings."}
//!  lock_passwd, no_create_home, no_log_init, no_user_group, create_groups, ssh_redirect_user, system: bool
//!  sudo: str | null | [str | null] | bool ^22.2 "Use null instead."
//!  uid: int | str ^22.3 "Use an integer instead."
//!  lock-passwd ~22.3 lock_passwd
//!  no-create-home ~24.2 no_create_home
//!  no-log-init ~24.2 no_log_init
//!  no-user-group ~24.2 no_user_group
//!  hashed-passwd ~24.2 hashed_passwd
//!  plain-text-passwd ~24.2 plain_text_passwd
//!  create-groups ~24.2 create_groups
//!  primary-group ~24.2 primary_group
//!  selinux-user ~24.2 selinux_user
//!  ssh-authorized-keys ~18.3 ssh_authorized_keys
//!  ssh-import-id ~24.2 ssh_import_id
//!  ssh-redirect-user ~24.2 ssh_redirect_user
//! }
//! groups: str | $members | [str | $members]+
//! user: str | $user
//! users: str | [str | [str] | $user] | map
//! ```

use crate::base::deprecated;
use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::base::text::quoted;
use crate::document::{Map, Value, wrong};
use crate::instance::{Frequency, state};
use crate::machine::Family;
use crate::module::{Module, write_files};
use crate::root::{Attr, Command, Stage, installed};
use crate::system::ModuleContext;
use crate::system::accounts::{Accounts, NewUser, User, check_field, check_name, days_of, is_number};
use crate::system::authorized_keys::{self, DISABLE_USER_OPTS, Rules};
use crate::system::users::{Users, names_of};
use crate::system::{password, sudoers};
use std::collections::HashSet;

pub static MODULE: Module = Module {
    name: "users_groups",
    stage: Stage::Network,
    frequency: Frequency::Instance,
    before_pivot: Some(before_pivot),
    running: Some(running),
    idle: Some(|cx| {
        ![state::waiting_homes(cx.instance), state::waiting_selinux(cx.instance)]
            .iter()
            .any(|list| cx.root.exists(list))
            && !Users::of(cx).users.iter().any(|(_, config)| config.contains_key("snapuser"))
    }),
    ..Module::NEW
};

/// Keys that require a home.
const NEED_HOME: [&str; 3] = ["ssh_authorized_keys", "ssh_import_id", "ssh_redirect_user"];

/// Creates groups and users. One that cannot be created is reported, and the others are still created.
fn before_pivot(context: &mut ModuleContext) -> Result<()> {
    let users = Users::of(context);
    let problems = users.problems.clone();
    let mut later = String::new();
    let selinux_list = state::waiting_selinux(context.instance);
    let mut selinux = context.root.text(&selinux_list);
    let mut accounts = Accounts::open(context.root)?;
    let rules = Rules::of(context.root);
    // Groups get their members before the document's users are made.
    let is_made_later =
        |name: &str| context.outside.is_provisioned() && users.users.iter().any(|(user, _)| user == name);
    for (group, members) in &users.groups {
        let members = members.iter().filter(|member| !is_made_later(member));
        add_group(&mut accounts, group, members, &problems, context.report);
    }
    for (name, config) in &users.users {
        if config.contains_key("snapuser") {
            continue;
        }
        let is_new = accounts.user(name).is_none();
        let mut one = One::new(context, &mut accounts, &rules, name, config);
        let has_selinux_user = one.text("selinux_user").is_some();
        match one.make(&users) {
            Ok(done) if !done => later += &format!("{name}\n"),
            Ok(_) => {}
            Err(e) => one.problems.error(e.to_string()),
        }
        problems.absorb_below(&format!("user {name}"), &one.problems);
        if has_selinux_user && is_new && context.distro.family != Family::Alpine && accounts.user(name).is_some() {
            selinux += &format!("{name}\n");
        }
    }
    if !selinux.is_empty() {
        context.root.write(&selinux_list, selinux, Attr::root(0o600))?;
    }
    // In the running system what is saved is on the disk at once, and with it all that was to be written.
    let new = write_files::new_folders(context);
    accounts.save(context.root, context.report)?;
    write_files::give(context, new);
    if !later.is_empty() {
        context.root.write(&state::waiting_homes(context.instance), later, Attr::root(0o600))?;
    }
    problems.into_result()
}

/// The work in the running system: homes that were not mounted before, SELinux users and snap users.
fn running(context: &mut ModuleContext) -> Result<()> {
    let problems = Problems::new();
    let users = Users::of(context);
    let list = state::waiting_homes(context.instance);
    let later = context.root.text(&list);
    if !later.is_empty() {
        let mut accounts = Accounts::open(context.root)?;
        let rules = Rules::of(context.root);
        let later: HashSet<&str> = later.lines().collect();
        for (name, config) in users.users.iter().filter(|(n, _)| later.contains(n.as_str())) {
            let Some(user) = accounts.user(name) else { continue };
            let mut one = One::new(context, &mut accounts, &rules, name, config);
            if one.wants_home() {
                let result = one.accounts.make_home(one.context.root, &user, one.context.report);
                one.keep(result);
            }
            let redirect = one.redirect().unwrap_or(false);
            one.keys(&user, redirect, &users);
            problems.absorb_below(&format!("user {name}"), &one.problems);
        }
        context.root.remove(&list)?;
    }
    let selinux_list = state::waiting_selinux(context.instance);
    let selinux = context.root.text(&selinux_list);
    let selinux: HashSet<&str> = selinux.lines().collect();
    for (name, config) in users.users {
        let result = if let Some(email) = config.get("snapuser") {
            let Some(email) = email.text().filter(|e| !e.is_empty() && !e.starts_with('-')) else {
                problems.error(format!("user {name}: {}", wrong("snapuser", "an e-mail address", email)));
                continue;
            };
            let known = config.get("known").is_some_and(Value::is_true).then_some("--known");
            let argv = ["snap", "create-user", "--sudoer", "--json"].into_iter().chain(known);
            context.root.run(Command::new(argv.chain([email.as_str()])))
        } else if let Some(login) = config.get("selinux_user").and_then(Value::text)
            && selinux.contains(name.as_str())
        {
            set_selinux_user(context, &name, &login)
        } else {
            Ok(())
        };
        problems.keep(result.map_err(|e| e.context(format_args!("user {name}"))));
    }
    if !selinux.is_empty() {
        context.root.remove(&selinux_list)?;
    }
    problems.into_result()
}

/// Maps a new user to a SELinux user, as useradd --selinux-user does.
fn set_selinux_user(context: &mut ModuleContext, name: &str, login: &str) -> Result<()> {
    if installed::which(context.root, "semanage").is_some() {
        let argv = |action| Command::new(["semanage", "login", action, "-s", login, "--", name]);
        return context.root.run(argv("-a")).or_else(|_| context.root.run(argv("-m")));
    }
    if installed::which(context.root, "usermod").is_none() {
        return Err(Error::new("selinux_user is not set: there is neither semanage nor usermod"));
    }
    context.root.run(Command::new(["usermod", "-Z", login, "--", name]))
}

fn add_group<'a>(
    accounts: &mut Accounts,
    group: &str,
    members: impl Iterator<Item = &'a String>,
    problems: &Problems,
    report: &Problems,
) {
    if accounts.group_id(group).is_some() {
        report.warn(format_args!("the group {} exists already", quoted(group)));
    } else if let Err(e) = accounts.add_group(group, false) {
        problems.error(e.to_string());
        return;
    }
    for member in members {
        if accounts.user(member).is_none() {
            let (member, group) = (quoted(member), quoted(group));
            report.warn(format_args!("{member} is not added to the group {group}: there is no such user"));
        } else if let Err(e) = accounts.add_member(group, member) {
            problems.error(e.to_string());
        }
    }
}

/// The work on one user.
struct One<'a, 'c, 'r> {
    context: &'a mut ModuleContext<'r>,
    accounts: &'c mut Accounts,
    rules: &'c Rules,
    name: &'a str,
    config: &'a Map,
    problems: Problems,
    /// Whether a requested password could not be set: then the account is not unlocked.
    password_failed: bool,
}

impl<'a, 'c, 'r> One<'a, 'c, 'r> {
    fn new(
        context: &'a mut ModuleContext<'r>,
        accounts: &'c mut Accounts,
        rules: &'c Rules,
        name: &'a str,
        config: &'a Map,
    ) -> Self {
        One { context, accounts, rules, name, config, problems: Problems::new(), password_failed: false }
    }

    /// Creates the user. Returns false if its home and keys have to wait.
    fn make(&mut self, users: &Users) -> Result<bool> {
        check_name("user", self.name)?;
        let is_set = |key: &&&str| self.config.get(key).is_some_and(is_truthy);
        let no_home: Vec<&str> = ["no_create_home", "system"].iter().filter(is_set).copied().collect();
        let need_home: Vec<&str> = NEED_HOME.iter().filter(is_set).copied().collect();
        if !no_home.is_empty() && !need_home.is_empty() {
            let keys = (need_home.join(", "), no_home.join(", "));
            return Err(Error::new(format!("not made: {} cannot stand with {}", keys.0, keys.1)));
        }
        let redirect = self.redirect()?;
        let existing = self.accounts.user(self.name);
        let user = match &existing {
            Some(user) => {
                log::info!("User {} already exists, skipping.", self.name);
                user.clone()
            }
            None => self.add()?,
        };
        self.passwords(existing.is_some())?;
        if self.config.get("sudo") == Some(&Value::Bool(false)) {
            self.context.report.deprecated(deprecated::SUDO_FALSE.about(self.name));
        }
        for key in ["doas", "sudo"] {
            let Some(rules) = self.config.get(key).filter(|v| is_truthy(v)) else { continue };
            let (root, report) = (&mut *self.context.root, self.context.report);
            let result = if key == "doas" {
                sudoers::add_doas(root, self.name, rules, report)
            } else {
                sudoers::add_sudo(root, self.name, rules, report)
            };
            self.keep(result);
        }
        if self.context.root.is_kept_for_later(&user.home) {
            return Ok(false);
        }
        if existing.is_none() && self.wants_home() {
            self.accounts.make_home(self.context.root, &user, self.context.report)?;
        }
        self.keys(&user, redirect, users);
        Ok(true)
    }

    fn wants_home(&self) -> bool {
        !self.flag("system") && !self.flag("no_create_home")
    }

    /// The value of a key with a password. A value of the wrong type counts as a failure to set it.
    fn password(&mut self, key: &str) -> Option<String> {
        self.password_failed |= self.config.get(key).is_some_and(|v| !v.is_null() && v.text().is_none());
        self.text(key)
    }

    fn keep_password(&mut self, result: Result<()>) {
        self.password_failed |= result.is_err();
        self.keep(result);
    }

    fn keep(&mut self, result: Result<()>) {
        self.problems.keep(result);
    }

    /// A scalar as text. A value of the wrong type is reported and treated as absent; so is an empty one.
    fn text(&mut self, key: &str) -> Option<String> {
        let value = self.config.get(key).filter(|v| !v.is_null())?;
        let text = value.text();
        if text.is_none() {
            self.problems.error(wrong(key, "a string", value).to_string());
        }
        text.filter(|t| !t.is_empty())
    }

    fn flag(&self, key: &str) -> bool {
        self.config.get(key).is_some_and(is_truthy)
    }

    fn redirect(&self) -> Result<bool> {
        let Some(value) = self.config.get("ssh_redirect_user").filter(|v| is_truthy(v)) else { return Ok(false) };
        if self.config.contains_key("ssh_authorized_keys") || self.config.contains_key("ssh_import_id") {
            let what = "not made: ssh_redirect_user cannot stand with ssh_authorized_keys or ssh_import_id";
            return Err(Error::new(what));
        }
        if value.as_bool() != Some(true) && value.as_str() != Some("default") {
            return Err(Error::new("not made: ssh_redirect_user: expected true, false or default"));
        }
        Ok(true)
    }

    /// Adds the user with its groups.
    fn add(&mut self) -> Result<User> {
        if self.config.contains_key("selinux_user") && self.context.distro.family == Family::Alpine {
            self.context
                .report
                .warn(format_args!("selinux_user of {} is ignored: Alpine has no SELinux users", self.name));
        }
        if self.config.get("groups").is_some_and(|groups| groups.as_map().is_some_and(|map| !map.is_empty())) {
            self.context.report.deprecated(deprecated::GROUPS_MAP.about(self.name));
        }
        let mut groups = match self.config.get("groups") {
            Some(value) => names_of(value).unwrap_or_else(|| {
                self.problems.error(wrong("groups", "a list or a string of names", value).to_string());
                Vec::new()
            }),
            None => Vec::new(),
        };
        let mut primary = self.text("primary_group");
        for group in groups.iter_mut().chain(&mut primary) {
            if let Some(name) = self.accounts.numbered_group(group) {
                *group = name.to_owned();
            }
        }
        if self.config.get("create_groups").is_none_or(is_truthy) {
            for group in groups.iter().chain(&primary) {
                if self.accounts.group_id(group).is_none() && !is_number(group) {
                    let result = self.accounts.add_group(group, false);
                    self.problems.keep(result);
                }
            }
        }
        groups.retain(|group| {
            let here = self.accounts.group_id(group).is_some();
            if !here {
                let (name, group) = (&self.name, quoted(group));
                let text = format_args!("{name} is not added to the group {group}: there is no such group");
                self.context.report.warn(text);
            }
            here
        });
        let uid = self.text("uid").map(|uid| uid.parse().map_err(|_| Error::new("uid: expected a number")));
        let mut gecos = self.text("gecos");
        if let Some(Err(e)) = gecos.as_ref().map(|g| check_field("gecos", g)) {
            self.problems.error(e.to_string());
            gecos = None;
        }
        let expires = self.days("expiredate", days_of);
        let inactive = self.days("inactive", |text| text.trim().parse().ok());
        let mut password = self.password("passwd");
        if password.as_ref().is_some_and(|p| !password::is_field(p)) {
            self.problems.error("passwd: not a hash of crypt(5); the password stays locked");
            self.password_failed = true;
            password = None;
        }
        let (home, mut shell) = (self.text("homedir"), self.text("shell"));
        let (system, uid) = (self.flag("system"), uid.transpose()?);
        if system
            && self.context.distro.family == Family::Alpine
            && installed::which(self.context.root, "useradd").is_none()
        {
            // The defaults of BusyBox's adduser -S.
            shell.get_or_insert_with(|| "/bin/false".into());
            let nogroup = Some("nogroup").filter(|group| self.accounts.group_id(group).is_some());
            primary = primary.or(nogroup.map(str::to_owned));
        }
        let new = NewUser {
            name: self.name,
            uid,
            gecos: gecos.as_deref(),
            home: home.as_deref(),
            shell: shell.as_deref(),
            primary_group: primary.as_deref(),
            groups: &groups,
            user_group: !self.flag("no_user_group"),
            system,
            password: password.as_deref(),
            inactive,
            expires,
        };
        self.accounts.add_user(self.context.root, &new, self.context.report)
    }

    fn days(&mut self, key: &str, parse: impl Fn(&str) -> Option<i64>) -> Option<i64> {
        // False is how documents for cloudbase-init say that there is no such day.
        let text = self.text(key).filter(|_| self.config.get(key) != Some(&Value::Bool(false)))?;
        let days = parse(&text);
        if days.is_none() {
            self.problems.error(format!("{key}: expected a date (YYYY-MM-DD) or a number of days"));
        }
        days
    }

    /// Sets passwords, then locks (the default) or unlocks the account.
    fn passwords(&mut self, existing: bool) -> Result<()> {
        let given = |key: &str| self.config.get(key).is_some_and(|v| !v.is_null());
        let specified = given("plain_text_passwd") || given("hashed_passwd") || (!existing && given("passwd"));
        if existing && !specified && given("passwd") {
            self.context
                .report
                .warn(format_args!("passwd of {} is ignored: the user exists already: use hashed_passwd", self.name));
        }
        if let Some(plain) = self.password("plain_text_passwd") {
            let result = self.accounts.hash(&plain).and_then(|h| self.accounts.set_password(self.name, &h));
            self.keep_password(result);
        }
        if let Some(hash) = self.password("hashed_passwd") {
            let result = self.accounts.set_password(self.name, &hash);
            self.keep_password(result);
        }
        if self.config.get("lock_passwd").is_none_or(is_truthy) {
            self.accounts.lock(self.name)
        } else if self.password_failed {
            Ok(())
        } else if specified || (existing && !self.accounts.has_no_password(self.name)) {
            self.accounts.unlock(self.name)
        } else {
            // Tools look for these two messages.
            let (of, missing) = if existing {
                (
                    "blank password for existing user",
                    "no existing password set and no 'plain_text_passwd'/'hashed_passwd'",
                )
            } else {
                ("password for user", "no 'passwd'/'plain_text_passwd'/'hashed_passwd'")
            };
            self.context.report.warn(format_args!(
                "Not unlocking {of} {}. 'lock_passwd: false' present in user-data but {missing} provided in user-data",
                self.name
            ));
            Ok(())
        }
    }

    fn keys(&mut self, user: &User, redirect: bool, users: &Users) {
        if let Some(value) = self.config.get("ssh_authorized_keys").filter(|v| !v.is_null()) {
            let keys = key_lines(value).unwrap_or_else(|| {
                self.context.report.warn(format_args!(
                    "user {}: {}",
                    self.name,
                    wrong("ssh_authorized_keys", "a list or a string", value)
                ));
                Vec::new()
            });
            self.authorize(user, &keys, None);
        }
        let keys = &self.context.instance.public_keys;
        match &users.default {
            _ if !redirect => {}
            None => self
                .context
                .report
                .warn(format_args!("ssh_redirect_user of {} is ignored: there is no default user", self.name)),
            Some(_) if keys.is_empty() => {
                self.context.report.warn(format_args!(
                    "ssh_redirect_user of {} is ignored: the datasource has no public keys",
                    self.name
                ));
            }
            Some(default) => {
                let options = DISABLE_USER_OPTS.replace("$USER", default).replace("$DISABLE_USER", self.name);
                self.authorize(user, keys, Some(&options));
            }
        }
    }

    fn authorize(&mut self, user: &User, keys: &[String], options: Option<&str>) {
        let (root, report) = (&mut *self.context.root, self.context.report);
        let result = authorized_keys::add(root, self.rules, user, keys, options, report);
        self.keep(result);
    }
}

/// The keys in a list, in a mapping's values, or in a string.
pub fn key_lines(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::List(list) => list.iter().map(Value::text).collect(),
        Value::Map(map) => map.iter().map(|(_, v)| v.text()).collect(),
        value => Some(vec![value.text()?]),
    }
}

/// Python's truth value, extended by the words for false: not null, not empty, not zero, not `false`, `no` or
/// `off`.
fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::List(list) => !list.is_empty(),
        Value::Map(map) => !map.is_empty(),
        Value::Bytes(bytes) => !bytes.is_empty(),
        value => !value.is_false() && value.text().is_some_and(|t| !t.is_empty()),
    }
}

#[cfg(test)]
mod tests;
