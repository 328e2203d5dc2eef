//! # ssh
//!
//! Makes SSH host keys, or writes those of `ssh_keys`, and lets the public keys of the datasource and of
//! `ssh_authorized_keys` log in as the default user. Keys of a copied image are removed unless `ssh_deletekeys: false`.
//! Ed25519 and ECDSA keys are made before the pivot, RSA in the background, after the
//! final stage. Root is told to log in as the default user
//! unless `disable_root: false`.
//!
//! ```yaml
//! ssh_genkeytypes: [ed25519, ecdsa]
//! ssh_authorized_keys: [ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKp1 alice@example.com]
//! disable_root: true
//! ```
//!
//! ```schema
//! ssh_keys: {*/host_key: str}
//! ssh_authorized_keys: [str]+
//! ssh_deletekeys, disable_root, allow_public_ssh_keys, ssh_quiet_keygen: bool
//! ssh_genkeytypes: [(ecdsa ed25519 rsa)]+
//! disable_root_opts: str
//! ssh_publish_hostkeys: {enabled: bool  blacklist: [str]}
//! ```

use super::users_groups::key_lines;
use super::{Background, Module, Role};
use crate::base::error::Result;
use crate::base::problem::Problems;
use crate::base::text::quoted;
use crate::document::{Map, Value, optional_map, wrong};
use crate::instance::{Frequency, state};
use crate::root::{Attr, Command, Stage};
use crate::system::accounts::Accounts;
use crate::system::authorized_keys::{self, DISABLE_USER_OPTS, Rules};
use crate::system::users::Users;
use crate::system::{ModuleContext, host_keys, sshd_config};

pub static MODULE: Module = Module {
    name: "ssh",
    stage: Stage::Network,
    frequency: Frequency::Instance,
    before_pivot: Some(before_pivot),
    running: Some(running),
    idle: Some(|cx| {
        !cx.root.exists(&state::waiting_logins(cx.instance))
            && unread_keys(cx).is_empty()
            && !host_keys::has_rsa_alone(cx)
    }),
    in_background: Some(Background { run: host_keys::finish, idle: |cx| !host_keys::is_rsa_due(cx) }),
    role: Some(Role::Ssh),
    ..Module::NEW
};

/// Writes host keys and authorized keys. If one fails, the others are still written.
fn before_pivot(context: &mut ModuleContext) -> Result<()> {
    let problems = Problems::new();
    let keep = |result: Result<()>| {
        problems.keep(result);
    };
    // Keys generated in this boot are the machine's own.
    if !context.again && context.get("ssh_deletekeys").is_none_or(|v| !v.is_false()) {
        keep(host_keys::remove_all(context.root));
    }
    match host_keys::generated_types(context) {
        Some(kinds) => keep(host_keys::make(context, &kinds)),
        None => keep(given_keys(context)),
    }
    keep(logins(context));
    problems.into_result()
}

/// Writes keys to homes that were not mounted before, and public keys of given private keys that only
/// ssh-keygen can read.
fn running(context: &mut ModuleContext) -> Result<()> {
    let problems = Problems::new();
    let later = state::waiting_logins(context.instance);
    if context.root.exists(&later) {
        context.root.remove(&later)?;
        problems.keep(logins(context));
    }
    problems.keep(read_private_keys(context));
    problems.keep(host_keys::finish_if_alone(context));
    problems.into_result()
}

/// The types of the private keys in `ssh_keys` that have no public key yet.
fn unread_keys(context: &ModuleContext) -> Vec<&'static str> {
    let Some(keys) = context.get("ssh_keys").and_then(Value::as_map) else { return Vec::new() };
    let is_unread = |kind: &&str| {
        let (has, path) = (|what: &str| keys.contains_key(&format!("{kind}_{what}")), host_keys::path(kind));
        let exists = |end: &str| context.root.exists(&format!("{path}{end}"));
        has("private") && !has("public") && exists("") && !exists(".pub")
    };
    host_keys::TYPES.into_iter().filter(is_unread).collect()
}

fn read_private_keys(context: &mut ModuleContext) -> Result<()> {
    let problems = Problems::new();
    for kind in unread_keys(context) {
        let path = host_keys::path(kind);
        let public = format!("{path}.pub");
        match context.root.output(Command::new(["ssh-keygen", "-y", "-f", &path])) {
            Ok(out) if out.status == 0 && !out.stdout.is_empty() => {
                let line = String::from_utf8_lossy(&out.stdout).trim().to_owned();
                context.root.write(&public, format!("{line} root@localhost\n"), Attr::root(0o644))?;
            }
            Ok(out) if out.status == 0 => {}
            Ok(out) => problems.error(format!("ssh-keygen could not read {path}: exit status {}", out.status)),
            Err(e) => problems.error(e.to_string()),
        }
    }
    problems.into_result()
}

/// Writes the keys and certificates in `ssh_keys`.
fn given_keys(context: &mut ModuleContext) -> Result<()> {
    let Some(keys) = optional_map("ssh_keys", context.get("ssh_keys"))? else { return Ok(()) };
    let problems = Problems::new();
    for (key, value) in keys.iter() {
        let known = key.split_once('_').filter(|(kind, _)| host_keys::TYPES.contains(kind));
        let (end, mode) = match known {
            Some((_, "private")) => ("", 0o600),
            Some((_, "public")) => (".pub", 0o644),
            Some((_, "certificate")) => ("-cert.pub", 0o644),
            _ => {
                context.report.warn(format_args!(
                    "ssh_keys: {} is ignored: expected TYPE_private, TYPE_public or TYPE_certificate",
                    quoted(key)
                ));
                continue;
            }
        };
        let Some(text) = value.text() else {
            problems.error(wrong(&format!("ssh_keys.{key}"), "a string", value).to_string());
            continue;
        };
        let path = format!("{}{end}", host_keys::path(known.map_or("", |k| k.0)));
        host_keys::write_given(context.root, &path, &text, mode)?;
        if end == "-cert.pub" {
            sshd_config::add(context.root, "HostCertificate", &path)?;
        }
    }
    public_keys(context, keys)?;
    problems.into_result()
}

fn public_keys(context: &mut ModuleContext, keys: &Map) -> Result<()> {
    for kind in host_keys::TYPES.iter().filter(|k| !keys.contains_key(&format!("{k}_public"))) {
        let private = keys.get(&format!("{kind}_private")).and_then(Value::as_str);
        if let Some(public) = private.and_then(host_keys::public_of) {
            let path = format!("{}.pub", host_keys::path(kind));
            context.root.write(&path, format!("{public}\n"), Attr::root(0o644))?;
        }
    }
    Ok(())
}

/// Authorizes the keys of the datasource and the configuration for the default user; and for root, or with
/// options that refuse root.
fn logins(context: &mut ModuleContext) -> Result<()> {
    let users = Users::of(context);
    let accounts = Accounts::open(context.root)?;
    let mut keys = Vec::new();
    if context.flag("allow_public_ssh_keys", true) {
        keys.extend_from_slice(&context.instance.public_keys);
    }
    if let Some(value) = context.get("ssh_authorized_keys") {
        keys.extend(key_lines(value).ok_or_else(|| wrong("ssh_authorized_keys", "a list of keys", value))?);
    }
    let options = context.flag("disable_root", true).then(|| {
        let options = context.text("disable_root_opts").unwrap_or_else(|| DISABLE_USER_OPTS.to_owned());
        options.replace("$USER", users.default_or_none()).replace("$DISABLE_USER", "root")
    });
    let problems = Problems::new();
    let rules = Rules::of(context.root);
    for (name, options) in users.default.iter().map(|name| (name.as_str(), None)).chain([("root", options.as_deref())])
    {
        let Some(user) = accounts.user(name) else {
            context.report.warn(format_args!("no SSH keys for {}: there is no such user", quoted(name)));
            continue;
        };
        // A home that is mounted after the pivot may already have keys, which must not be overwritten.
        let result = if context.root.is_kept_for_later(&user.home) {
            context.root.write(&state::waiting_logins(context.instance), "", Attr::root(0o600))
        } else {
            authorized_keys::add(context.root, &rules, &user, &keys, options, context.report)
        };
        problems.keep(result);
    }
    problems.into_result()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::module::Handler;
    use crate::root::{Root, Use};
    use crate::system::testing::Inputs;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti me@host";

    /// A copied image with another machine's host keys.
    fn image() -> (TempDir, Root) {
        let dir = TempDir::new("ssh");
        let mut root = dir.root(Use::Tree);
        for (path, text) in [
            ("/etc/passwd", "root:x:0:0::/root:/bin/sh\nfedora:x:1000:1000::/home/fedora:/bin/sh\n"),
            ("/etc/group", "root:x:0:\nssh_keys:x:998:\nfedora:x:1000:\n"),
            ("/etc/hostname", "web1\n"),
            ("/etc/ssh/ssh_host_rsa_key", "old"),
            ("/etc/ssh/ssh_host_ed25519_key", "old"),
            ("/etc/ssh/ssh_host_ed25519_key-cert.pub", "old"),
            ("/etc/ssh/sshd_config", ""),
        ] {
            root.write(path, text, Attr::root(0o644)).unwrap();
        }
        root.write("/usr/bin/ssh-keygen", "", Attr::root(0o755)).unwrap();
        root.mkdir("/root", Attr::root(0o700)).unwrap();
        (dir, root)
    }

    fn run(root: &mut Root, half: Handler, config: &str) -> Result<()> {
        let mut inputs = Inputs::new("fedora", config);
        inputs.instance.public_keys.push(KEY.to_owned());
        let defaults = inputs.distro.default_config();
        let mut all = inputs.config.as_map().cloned().unwrap_or_default();
        for key in ["users", "system_info"] {
            all.insert(key, defaults.get(key).unwrap().clone());
        }
        inputs.config = Value::Map(all);
        half(&mut inputs.context(root))
    }

    #[test]
    fn wrong_kind_of_key_costs_no_other() {
        let (_dir, mut root) = image();
        let config = "ssh_keys: {rsa_private: [x], ecdsa_public: Q, ed25519_private: P, ed25519_public: R}";
        let error = run(&mut root, before_pivot, config).unwrap_err().to_string();
        assert!(error.contains("ssh_keys.rsa_private"), "{error}");
        assert_eq!(root.text(&host_keys::path("ed25519")), "P");
        assert_eq!(root.text("/etc/ssh/ssh_host_ecdsa_key.pub"), "Q");
    }

    #[test]
    fn a_copied_image_gets_keys_of_its_own() {
        let (_dir, mut root) = image();
        run(&mut root, before_pivot, "{}").unwrap();
        assert!(!root.exists("/etc/ssh/ssh_host_ed25519_key-cert.pub") && !root.exists("/etc/ssh/ssh_host_rsa_key"));
        for kind in ["ed25519", "ecdsa"] {
            let attr = root.stat(&host_keys::path(kind)).unwrap().attr;
            assert_eq!(attr, Attr { mode: 0o600, uid: 0, gid: 998 });
            assert!(root.text(&format!("{}.pub", host_keys::path(kind))).ends_with(" root@web1\n"));
        }
        let (key, user) = (root.text("/home/fedora/.ssh/authorized_keys"), root.text("/root/.ssh/authorized_keys"));
        assert_eq!(key, format!("{KEY}\n"));
        assert!(
            user.starts_with("no-port-forwarding,") && user.contains("\\\"fedora\\\" rather") && user.contains(KEY)
        );

        // The next run of the same configuration makes nothing new, and RSA follows in the background.
        let before = root.text("/etc/ssh/ssh_host_ed25519_key");
        run(&mut root, before_pivot, "ssh_deletekeys: false").unwrap();
        assert_eq!(root.text("/etc/ssh/ssh_host_ed25519_key"), before);
        assert!(root.commands().is_empty());
        run(&mut root, host_keys::finish, "{}").unwrap();
        assert_eq!(root.commands()[0].argv[..6], ["ssh-keygen", "-q", "-t", "rsa", "-b", "3072"]);
    }

    #[test]
    fn configured_keys_replace_generated_ones() {
        let (_dir, mut root) = image();
        let given = "ssh_keys: {rsa_private: P, rsa_certificate: C, dsa_private: D, ed25519_public: E}\n\
                     disable_root: false\nallow_public_ssh_keys: false\nssh_authorized_keys: [bad]\n";
        run(&mut root, before_pivot, given).unwrap();
        assert_eq!(root.text("/etc/ssh/ssh_host_rsa_key"), "P");
        assert_eq!(root.stat("/etc/ssh/ssh_host_rsa_key").unwrap().attr, Attr::root(0o600));
        assert_eq!(root.text("/etc/ssh/sshd_config"), "HostCertificate /etc/ssh/ssh_host_rsa_key-cert.pub\n");
        assert!(!root.exists("/etc/ssh/ssh_host_ecdsa_key") && !root.exists("/etc/ssh/ssh_host_dsa_key"));
        assert_eq!(root.read("/root/.ssh/authorized_keys").unwrap().unwrap(), b"");
        run(&mut root, running, given).unwrap();
        assert_eq!(root.commands()[0].argv, ["ssh-keygen", "-y", "-f", "/etc/ssh/ssh_host_rsa_key"]);
        run(&mut root, host_keys::finish, given).unwrap();
        assert_eq!(root.commands().len(), 1);
        assert!(run(&mut root, before_pivot, "ssh_keys: [1]").is_err());
    }
}
