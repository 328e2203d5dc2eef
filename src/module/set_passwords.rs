//! # set_passwords
//!
//! Sets passwords, as hashes, plain texts or `RANDOM`, which is printed on the console only. They expire at the first
//! login unless `chpasswd: {expire: false}`. `ssh_pwauth` allows or forbids passwords in sshd's configuration.
//!
//! ```yaml
//! ssh_pwauth: false
//! chpasswd:
//!   expire: false
//!   users:
//!   - {name: alice, password: $6$salt$hash, type: hash}
//!   - {name: bob, type: RANDOM}
//! ```
//!
//! ```schema
//! chpasswd: {
//!  expire: bool
//!  users: [{name!: str  type!: (RANDOM)} | {name!, password!: str  type: (hash text)}]
//!  list: str ~22.2 users | [str/pair]+ ~22.2 users
//! }
//! password: str
//! ssh_pwauth: bool | str ^22.3 "Use a boolean instead."
//! ```

use super::{Module, Role};
use crate::base::deprecated;
use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::document::{Value, wrong};
use crate::instance::Frequency;
use crate::root::run_dir::{self, RANDOM_PASSWORDS};
use crate::root::{Attr, Stage};
use crate::system::accounts::Accounts;
use crate::system::users::Users;
use crate::system::{ModuleContext, console, password, service, shell, sshd_config};

pub static MODULE: Module = Module {
    name: "set_passwords",
    stage: Stage::Network,
    frequency: Frequency::Instance,
    role: Some(Role::Passwords),
    before_pivot: Some(before_pivot),
    running: Some(running),
    idle: Some(|context| {
        let wanted = wanted(context, &Problems::new());
        !context.root.exists(RANDOM_PASSWORDS)
            && !wanted.iter().any(|(_, password)| matches!(password, Password::Random))
    }),
    ..Module::NEW
};

/// A password to set.
enum Password {
    Plain(String),
    Hash(String),
    Random,
}

/// Sets the passwords and edits sshd's configuration.
fn before_pivot(context: &mut ModuleContext) -> Result<()> {
    let problems = Problems::new();
    let wanted = wanted(context, &problems);
    let shown = set_all(context, wanted, &problems)?;
    // Not in an image: it boots with a new /run, so that they would never be printed.
    if !shown.is_empty() && context.root.has_run() {
        context.root.write(RANDOM_PASSWORDS, shown, Attr::root(0o600))?;
    } else if !shown.is_empty() {
        let users: Vec<&str> = shown.lines().filter_map(|line| Some(line.split_once(':')?.0)).collect();
        context.report.warn(format_args!(
            "random passwords are set and not shown: nothing of them is kept in an image, whose first boot sets and shows \
             others ({})",
            users.join(", ")
        ));
    }
    problems.keep(password_logins(context));
    problems.into_result()
}

/// Prints random passwords on the console, the only place where they appear in clear text. Passwords set in
/// an image, or by a boot that was interrupted before it printed them, are set again.
fn running(context: &mut ModuleContext) -> Result<()> {
    let shown = match context.root.read(RANDOM_PASSWORDS)? {
        Some(shown) => String::from_utf8_lossy(&shown).into_owned(),
        None => set_anew(context)?,
    };
    if shown.is_empty() {
        return Ok(());
    }
    context.shown = run_dir::passwords(&shown);
    let text = format!("Set the following 'random' passwords\n\n{shown}\n");
    let printed = console::print(context, &text);
    context.root.remove(RANDOM_PASSWORDS)?;
    if printed { Ok(()) } else { Err(Error::new("failed to show random passwords: there is no console")) }
}

/// Sets random passwords again. Returns the text to print.
fn set_anew(context: &mut ModuleContext) -> Result<String> {
    // Problems were reported when the passwords were first set.
    let mut random = wanted(context, &Problems::new());
    random.retain(|(_, password)| matches!(password, Password::Random));
    set_all(context, random, &Problems::new())
}

/// Sets passwords. Returns the random ones, one `USER:PASSWORD` per line.
fn set_all(context: &mut ModuleContext, wanted: Vec<(String, Password)>, problems: &Problems) -> Result<String> {
    let mut shown = String::new();
    if wanted.is_empty() {
        return Ok(shown);
    }
    let expire = context.config.at(&["chpasswd", "expire"]).is_none_or(Value::is_true);
    let mut accounts = Accounts::open(context.root)?;
    for (user, password) in wanted {
        let result = set(&mut accounts, &user, password, &mut shown);
        let result = result.and_then(|()| if expire { accounts.expire(&user) } else { Ok(()) });
        problems.keep(result);
    }
    accounts.save(context.root, context.report)?;
    Ok(shown)
}

fn set(accounts: &mut Accounts, user: &str, password: Password, shown: &mut String) -> Result<()> {
    let fail = |e: Error| e.context(format_args!("failed to set the password of {user}"));
    if accounts.user(user).is_none() {
        return Err(fail(Error::new("there is no such user")));
    }
    let field = match password {
        Password::Hash(hash) => hash,
        Password::Plain(plain) => accounts.hash(&plain).map_err(fail)?,
        Password::Random => {
            let plain = password::random().map_err(fail)?;
            let hash = accounts.hash(&plain).map_err(fail)?;
            *shown += &format!("{user}:{plain}\n");
            hash
        }
    };
    accounts.set_password(user, &field)
}

/// The passwords by user, in cloud-init's order: plain and random ones, then hashes. Problems never contain a
/// secret.
fn wanted(context: &mut ModuleContext, problems: &Problems) -> Vec<(String, Password)> {
    let mut wanted = Vec::new();
    if let Some(chpasswd) = context.map("chpasswd") {
        if let Some(users) = chpasswd.get("users").filter(|v| !v.is_null()) {
            match users.as_list() {
                Some(users) => users.iter().for_each(|user| match of_user(user) {
                    Ok(found) => wanted.push(found),
                    Err(e) => problems.error(format!("chpasswd.users: {e}")),
                }),
                None => problems.error(wrong("chpasswd.users", "a list", users).to_string()),
            }
        }
        let list = chpasswd.get("list").filter(|v| !v.is_null() && context.args.is_empty());
        if let Some(list) = list {
            context.report.deprecated(deprecated::CHPASSWD_LIST.about(""));
            if list.as_list().is_none() {
                context.report.deprecated(deprecated::CHPASSWD_TEXT.about(""));
            }
        }
        let lines: Vec<String> = match list {
            Some(Value::List(list)) => list.iter().filter_map(Value::text).collect(),
            Some(value) => value.text().unwrap_or_default().lines().map(str::to_owned).collect(),
            None => Vec::new(),
        };
        for (number, line) in lines.iter().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
            match line.split_once(':') {
                Some((user, word)) => wanted.push((user.trim().to_owned(), of_word(word))),
                None => problems.error(format!("chpasswd.list: line {}: expected user:password", number + 1)),
            }
        }
    }
    let single = context
        .args
        .first()
        .cloned()
        .or_else(|| context.get("password").and_then(shell::word))
        .filter(|p| !p.is_empty());
    if let (true, Some(word)) = (wanted.is_empty(), single) {
        match Users::of(context).default {
            Some(user) => wanted.push((user, of_word(&word))),
            None => context.report.warn("password: it is not set: there is no default user"),
        }
    }
    crate::base::sort::by_key(&mut wanted, |(_, password)| matches!(password, Password::Hash(_)));
    wanted
}

fn of_user(user: &Value) -> Result<(String, Password)> {
    let name = user.get("name").and_then(Value::text).ok_or_else(|| Error::new("an entry has no name"))?;
    let word = user.get("password").and_then(Value::text);
    let kind = user.get("type").filter(|t| !t.is_null()).map_or(Some("hash".into()), Value::text);
    let password = match (kind.as_deref(), word) {
        (Some("RANDOM"), _) => Password::Random,
        (Some("hash" | "text"), None) => return Err(Error::new(format!("{name} has no password"))),
        (Some("hash"), Some(hash)) => Password::Hash(hash),
        (Some("text"), Some(plain)) => Password::Plain(plain),
        _ => return Err(Error::new(format!("type of {name}: expected hash, text or RANDOM"))),
    };
    Ok((name, password))
}

fn of_word(word: &str) -> Password {
    match word {
        "R" | "RANDOM" => Password::Random,
        word if password::is_hash(word) => Password::Hash(word.to_owned()),
        word => Password::Plain(word.to_owned()),
    }
}

/// `ssh_pwauth`: true, false, or unchanged.
fn password_logins(context: &mut ModuleContext) -> Result<()> {
    let Some(value) = context.get("ssh_pwauth") else { return Ok(()) };
    if value.as_str().is_some() {
        context.report.deprecated(deprecated::SSH_PWAUTH.about(""));
    }
    let word = if value.is_true() {
        "yes"
    } else if value.is_false() {
        "no"
    } else {
        if !value.text().is_some_and(|t| t.eq_ignore_ascii_case("unchanged")) {
            context.report.warn("ssh_pwauth: expected true, false or unchanged: sshd's configuration is not changed");
        }
        return Ok(());
    };
    // No server is running before the pivot.
    if sshd_config::set(context.root, "PasswordAuthentication", word)? && context.root.is_live() {
        let server = sshd_config::service(context);
        if let Err(e) = service::manage(context, service::Action::ReadAgain, &server) {
            context.report.warn(format_args!("ssh_pwauth may not be in effect yet: {e}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::module::Handler;
    use crate::root::{Root, Use};
    use crate::system::testing::Inputs;

    fn start() -> (TempDir, Root) {
        let dir = TempDir::new("set-passwords");
        let mut root = dir.root(Use::NewRoot);
        let names = ["a", "b", "c", "d"];
        let lines = |line: fn(&str) -> String| names.iter().map(|n| line(n)).collect::<String>();
        root.write("/etc/passwd", lines(|n| format!("{n}:x:1:1::/:/bin/sh\n")), Attr::root(0o644)).unwrap();
        root.write("/etc/shadow", lines(|n| format!("{n}:!:1:0:99999:7:::\n")), Attr::root(0o640)).unwrap();
        (dir, root)
    }

    fn run(root: &mut Root, half: Handler, config: &str) -> Result<()> {
        half(&mut Inputs::new("debian", config).context(root))
    }

    fn shadow(root: &Root, user: &str) -> Vec<String> {
        let text = root.text("/etc/shadow");
        text.lines().find(|l| l.starts_with(user)).unwrap().split(':').map(str::to_owned).collect()
    }

    #[test]
    fn every_form_of_a_password() {
        let (_dir, mut root) = start();
        let config = "chpasswd:\n  expire: false\n  list: ['a:pl:ain', 'b:$y$j9T$s$h']\n  users:\n  - {name: c, type: RANDOM}\n  \
                      - {name: d, password: p, type: text}\n  - {name: d, password: $6$s$hash}\n";
        run(&mut root, before_pivot, config).unwrap();
        assert!(password::verify("pl:ain", &shadow(&root, "a")[1]));
        assert_eq!(shadow(&root, "b")[1], "$y$j9T$s$h");
        assert_eq!(shadow(&root, "d")[1], "$6$s$hash", "a hash counts more");
        assert_ne!(shadow(&root, "a")[2], "0");
        assert_eq!(root.stat(RANDOM_PASSWORDS).unwrap().attr, Attr::root(0o600));
        let shown = root.text(RANDOM_PASSWORDS);
        let (user, plain) = shown.trim_end().split_once(':').unwrap();
        assert!(user == "c" && plain.len() == 20 && password::verify(plain, &shadow(&root, "c")[1]));
        run(&mut root, running, config).unwrap();
        assert!(!root.exists(RANDOM_PASSWORDS));
        assert!(password::verify(plain, &shadow(&root, "c")[1]));
        // The power failed before it was shown.
        run(&mut root, running, config).unwrap();
        assert!(!password::verify(plain, &shadow(&root, "c")[1]) && shadow(&root, "c")[1].starts_with('$'));
        assert!(password::verify("pl:ain", &shadow(&root, "a")[1]), "it is known");
    }

    #[test]
    fn random_password_is_never_clear_in_image() {
        let (dir, mut first) = start();
        assert_eq!(first.commit(), []);
        let mut root = dir.root(Use::Tree);
        run(&mut root, before_pivot, "chpasswd: {users: [{name: c, type: RANDOM}]}").unwrap();
        assert!(shadow(&root, "c")[1].starts_with('$'));
        assert_eq!(root.commit(), []);
        assert!(!dir.0.join("run").exists());
    }

    #[test]
    fn single_password_is_default_users_and_expires() {
        let (_dir, mut root) = start();
        let config = "{password: 1234, users: [default], system_info: {default_user: {name: a}}}";
        run(&mut root, before_pivot, config).unwrap();
        assert!(password::verify("1234", &shadow(&root, "a")[1]));
        assert_eq!(shadow(&root, "a")[2], "0");
        // Null does not expire it, and a boolean is Python's word.
        let (_dir, mut root) = start();
        let config =
            "{password: yes, chpasswd: {expire: null}, users: [default], system_info: {default_user: {name: a}}}";
        run(&mut root, before_pivot, config).unwrap();
        assert!(password::verify("True", &shadow(&root, "a")[1]));
        assert_ne!(shadow(&root, "a")[2], "0");
    }

    #[test]
    fn what_is_wrong_is_told_without_the_secret() {
        let (_dir, mut root) = start();
        let config = "chpasswd:\n  list: \"a:SECRET\\nSECRET-no-colon\\nnobody:SECRET\\nb:\\n\"\n  users:\n  - {name: c}\n  \
                      - {name: c, password: SECRET, type: odd}\n  - {password: SECRET}\n  - {name: c, password: 'SECRET x'}\n";
        let error = run(&mut root, before_pivot, config).unwrap_err().to_string();
        assert!(!error.contains("SECRET"), "{error}");
        assert_eq!(error.matches("; ").count() + 1, 7, "{error}");
        assert!(password::verify("SECRET", &shadow(&root, "a")[1]));
        for user in ["b", "c"] {
            assert_eq!(shadow(&root, user)[1..3], ["!", "1"], "{user}");
        }
    }
}
