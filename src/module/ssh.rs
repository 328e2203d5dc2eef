//! ssh: host keys, and the keys that may log in as the default user and as root.

use super::accounts::Accounts;
use super::authorized_keys::{self, DISABLE_USER_OPTS};
use super::users::Users;
use super::users_groups::key_lines;
use super::{Context, Frequency, Module, host_keys, sshd_config};
use crate::document::{Map, Value, wrong};
use crate::error::Result;
use crate::root::{Attr, Command, Stage};

pub static MODULE: Module = Module {
    name: "ssh",
    stage: Stage::Init,
    frequency: Frequency::Instance,
    keys: &[],
    distros: &[],
    provision: Some(provision),
    live: Some(live),
};

/// Host keys and authorized keys. One that fails does not keep the others from being written.
fn provision(context: &mut Context) -> Result<()> {
    let mut problems = Vec::new();
    let mut keep = |result: Result<()>| problems.extend(result.err().map(|e| e.to_string()));
    if context.get("ssh_deletekeys").is_none_or(|v| !v.is_false()) {
        keep(host_keys::remove_all(context.root));
    }
    match generated_types(context) {
        Some(kinds) => keep(host_keys::make(context, &kinds)),
        None => keep(given_keys(context)),
    }
    if context.config.at(&["ssh_publish_hostkeys", "enabled"]).is_some_and(Value::is_true) {
        log::info!("ssh_publish_hostkeys: no datasource here takes host keys");
    }
    keep(logins(context));
    super::all_or_error(problems)
}

/// Public keys of given private keys that only ssh-keygen can read.
fn live(context: &mut Context) -> Result<()> {
    let Some(keys) = context.get("ssh_keys").and_then(Value::as_map) else { return Ok(()) };
    let mut problems = Vec::new();
    for kind in host_keys::TYPES {
        let path = host_keys::path(kind);
        let public = format!("{path}.pub");
        let missing = keys.contains_key(&format!("{kind}_private")) && !keys.contains_key(&format!("{kind}_public"));
        if !missing || context.root.exists(&public) || !context.root.exists(&path) {
            continue;
        }
        match context.root.output(Command::new(context.stage, ["ssh-keygen", "-y", "-f", &path])) {
            Ok(out) if out.status == 0 && !out.stdout.is_empty() => {
                let line = String::from_utf8_lossy(&out.stdout).trim().to_owned();
                context.root.write(&public, format!("{line} root@localhost\n"), Attr::root(0o644))?;
            }
            Ok(out) if out.status == 0 => {}
            Ok(out) => problems.push(format!("ssh-keygen could not read {path}: exit status {}", out.status)),
            Err(e) => problems.push(e.to_string()),
        }
    }
    super::all_or_error(problems)
}

/// The types of host keys that are generated; None where the configuration brings host keys.
pub fn generated_types(context: &Context) -> Option<Vec<String>> {
    if context.config.get("ssh_keys").is_some() {
        return None;
    }
    Some(match context.config.get("ssh_genkeytypes") {
        None => host_keys::TYPES.map(str::to_owned).to_vec(),
        Some(Value::Null) => Vec::new(),
        Some(Value::List(list)) => list.iter().filter_map(Value::text).collect(),
        Some(value) => value.text().into_iter().collect(),
    })
}

/// Writes the keys and certificates of `ssh_keys`.
fn given_keys(context: &mut Context) -> Result<()> {
    let keys = match context.get("ssh_keys") {
        None => return Ok(()),
        Some(value) => value.as_map().ok_or_else(|| wrong("ssh_keys", "a mapping", value))?,
    };
    for (key, value) in keys.iter() {
        let known = key.split_once('_').filter(|(kind, _)| host_keys::TYPES.contains(kind));
        let (end, mode) = match known {
            Some((_, "private")) => ("", 0o600),
            Some((_, "public")) => (".pub", 0o644),
            Some((_, "certificate")) => ("-cert.pub", 0o644),
            _ => {
                log::warn!("ssh_keys: {key:?} is left out: expected TYPE_private, TYPE_public or TYPE_certificate");
                continue;
            }
        };
        let text = value.text().ok_or_else(|| wrong(&format!("ssh_keys.{key}"), "a string", value))?;
        let path = format!("{}{end}", host_keys::path(known.map_or("", |k| k.0)));
        host_keys::write_given(context.root, &path, &text, mode)?;
        if end == "-cert.pub" {
            sshd_config::add(context.root, "HostCertificate", &path)?;
        }
    }
    public_keys(context, keys)
}

fn public_keys(context: &mut Context, keys: &Map) -> Result<()> {
    for kind in host_keys::TYPES.iter().filter(|k| !keys.contains_key(&format!("{k}_public"))) {
        let private = keys.get(&format!("{kind}_private")).and_then(Value::as_str);
        if let Some(public) = private.and_then(host_keys::public_of) {
            let path = format!("{}.pub", host_keys::path(kind));
            context.root.write(&path, format!("{public}\n"), Attr::root(0o644))?;
        }
    }
    Ok(())
}

/// Keys that may log in: the datasource's and the configuration's, for the default user, and for root or not for root.
fn logins(context: &mut Context) -> Result<()> {
    let users = Users::of(context);
    let accounts = Accounts::open(context.root)?;
    let mut keys = Vec::new();
    if context.flag("allow_public_ssh_keys", true) {
        keys.extend_from_slice(&context.instance.public_keys);
    }
    if let Some(value) = context.get("ssh_authorized_keys") {
        keys.extend(key_lines(value).ok_or_else(|| wrong("ssh_authorized_keys", "a list of keys", value))?);
    }
    let mut problems = Vec::new();
    if let Some(name) = &users.default {
        match accounts.user(name) {
            Some(user) => problems.extend(authorized_keys::add(context.root, &user, &keys, None).err()),
            None => log::warn!("no SSH keys for the default user {name}: there is no such user"),
        }
    }
    let options = context.flag("disable_root", true).then(|| {
        let options = context.text("disable_root_opts").unwrap_or_else(|| DISABLE_USER_OPTS.to_owned());
        options.replace("$USER", users.default_or_none()).replace("$DISABLE_USER", "root")
    });
    if let Some(root) = accounts.user("root") {
        problems.extend(authorized_keys::add(context.root, &root, &keys, options.as_deref()).err());
    }
    super::all_or_error(problems.iter().map(ToString::to_string).collect())
}
