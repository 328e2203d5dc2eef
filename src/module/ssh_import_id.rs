//! # ssh_import_id
//!
//! Fetches the public keys that people have at GitHub (gh:) or Launchpad (lp:), with the program ssh-import-id, for the
//! default user; in an entry of `users`, for that user.
//!
//! ```yaml
//! ssh_import_id: [gh:alice, lp:bob]
//! ```
//!
//! ```schema
//! ssh_import_id: [str]
//! ```

use super::Module;
use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::base::text::quoted;
use crate::document::wrong;
use crate::instance::Frequency;
use crate::root::{Command, Stage, installed};
use crate::system::accounts::{Accounts, check_name};
use crate::system::users::{Users, names_of};
use crate::system::{ModuleContext, service};

const PROGRAM: &str = "ssh-import-id";

pub static MODULE: Module = Module {
    name: "ssh_import_id",
    stage: Stage::Config,
    frequency: Frequency::Instance,
    distros: &["alpine", "cos", "debian", "raspberry-pi-os", "ubuntu"],
    running: Some(running),
    idle: Some(|context| {
        let problems = Problems::new();
        wanted(context, &problems).is_empty() && problems.is_empty()
    }),
    ..Module::NEW
};

/// The ids by user, of those who have any. Problems name the user.
fn wanted(context: &mut ModuleContext, problems: &Problems) -> Vec<(String, Vec<String>)> {
    let mut wanted = Vec::new();
    if let Some((user, ids)) = context.args.split_first() {
        wanted.push((user.clone(), ids.to_vec()));
    } else {
        let users = Users::of(context);
        for (name, config) in &users.users {
            let shared = context.get("ssh_import_id").filter(|_| users.default.as_ref() == Some(name));
            let mut all = Vec::new();
            for value in config.get("ssh_import_id").into_iter().chain(shared) {
                match names_of(value) {
                    Some(ids) => all.extend(ids),
                    None => problems.error(format!("user {name}: {}", wrong("ssh_import_id", "a list of ids", value))),
                }
            }
            wanted.push((name.clone(), all));
        }
    }
    wanted.retain(|(_, ids)| !ids.is_empty());
    wanted
}

fn running(context: &mut ModuleContext) -> Result<()> {
    let problems = Problems::new();
    let mut wanted = wanted(context, &problems);
    if !wanted.is_empty() && installed::which(context.root, PROGRAM).is_none() {
        context
            .report
            .warn(format_args!("ssh_import_id: no keys are imported: the program {PROGRAM} is not installed"));
        wanted.clear();
    }
    if !wanted.is_empty() {
        service::wait_for_network(context);
    }
    for (user, ids) in wanted {
        problems.keep(import(context, &user, &ids).map_err(|e| e.context(format_args!("user {user}"))));
    }
    problems.into_result()
}

/// Runs the program as the user, a second time if it fails: a server that is busy answers the next moment.
fn import(context: &mut ModuleContext, user: &str, ids: &[String]) -> Result<()> {
    check_name("user", user)?;
    if Accounts::open(context.root)?.user(user).is_none() {
        return Err(Error::new("there is no such user"));
    }
    if let Some(id) = ids.iter().find(|id| id.starts_with('-') || id.chars().any(char::is_control)) {
        return Err(Error::new(format!("ssh_import_id: {} is no id", quoted(id))));
    }
    let become_user: &[&str] = if installed::which(context.root, "sudo").is_some() {
        &["sudo", "--preserve-env=https_proxy", "-Hu"]
    } else if installed::which(context.root, "doas").is_some() {
        &["doas", "-u"]
    } else {
        context.report.error("ssh_import_id: no keys are imported: there is neither sudo nor doas");
        return Ok(());
    };
    let argv = become_user.iter().copied().chain([user, PROGRAM]).chain(ids.iter().map(String::as_str));
    let command = Command::new(argv);
    context.root.run(command.clone()).or_else(|_| context.root.run(command))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::{Attr, Use};
    use crate::system::testing::Inputs;

    #[test]
    fn each_user_fetches_its_own() {
        let dir = TempDir::new("ssh-import-id");
        let mut root = dir.root(Use::Tree);
        root.write("/etc/passwd", "main:x:1:1::/:/bin/sh\nu:x:2:2::/:/bin/sh\n", Attr::root(0o644)).unwrap();
        root.write("/usr/bin/ssh-import-id", "", Attr::root(0o755)).unwrap();
        root.write("/usr/bin/sudo", "", Attr::root(0o755)).unwrap();
        let config = "ssh_import_id: [gh:a]\nsystem_info: {default_user: {name: main}}\n\
                      users: [default, {name: u, ssh_import_id: 'b, lp:c'}, {name: v, ssh_import_id: d}, {name: main, ssh_import_id: e}]\n";
        let error = running(&mut Inputs::new("debian", config).context(&mut root));
        assert_eq!(error.unwrap_err().to_string(), "user v: there is no such user");
        let found: Vec<String> = root.commands().iter().map(|c| c.argv.join(" ")).collect();
        let sudo = "sudo --preserve-env=https_proxy -Hu";
        assert_eq!(found, [format!("{sudo} u ssh-import-id b lp:c"), format!("{sudo} main ssh-import-id e gh:a")]);
    }
}
