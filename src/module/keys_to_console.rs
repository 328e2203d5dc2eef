//! # keys_to_console
//!
//! Prints the SSH host keys and their fingerprints on the console, so that a first login can be checked against them.
//! Types of the two lists are not printed. An RSA key, which is made after the final stage, follows separately, between the same
//! marks.
//!
//! ```yaml
//! ssh: {emit_keys_to_console: true}
//! ssh_key_console_blacklist: [ssh-rsa]
//! ssh_fp_console_blacklist: [ecdsa-sha2-nistp256]
//! ```
//!
//! ```schema
//! ssh: {emit_keys_to_console!: bool}
//! ssh_key_console_blacklist, ssh_fp_console_blacklist: [str] unique
//! ```

use super::{Background, Module};
use crate::base::error::Result;
use crate::document::Value;
use crate::instance::{Frequency, state};
use crate::root::{Attr, Stage};
use crate::system::users::names_of;
use crate::system::{ModuleContext, console, host_keys};

pub static MODULE: Module = Module {
    name: "keys_to_console",
    stage: Stage::Final,
    frequency: Frequency::Instance,
    running: Some(running),
    offline: true,
    in_background: Some(Background { run: print_rsa, idle: |cx| rsa_left_out(cx).is_none() }),
    ..Module::NEW
};

const BAR: &str = "#############################################################";
/// The line above the keys.
const KEYS: &str = "-----BEGIN SSH HOST KEY KEYS-----\n";

/// Prints the keys that are there.
fn running(context: &mut ModuleContext) -> Result<()> {
    if host_keys::is_rsa_due(context) {
        context.root.write(&without_rsa(context), "", Attr::root(0o600))?;
    }
    print(context, &host_keys::public_keys(context.root));
    Ok(())
}

/// Prints the RSA key if the final stage printed the keys without it.
fn print_rsa(context: &mut ModuleContext) -> Result<()> {
    if let Some(key) = rsa_left_out(context) {
        context.root.remove(&without_rsa(context))?;
        print(context, &[key]);
    }
    Ok(())
}

/// Says that the keys were printed without the RSA key, which was still to be made.
fn without_rsa(context: &ModuleContext) -> String {
    format!("{}/prepivot-printed-without-rsa", state::folder(context.instance))
}

/// The RSA key's file and line, if it was made after the keys had been printed: by ssh, in the background, or by phone_home.
fn rsa_left_out(context: &mut ModuleContext) -> Option<(String, String)> {
    let is_rsa = |(file, _): &(String, String)| file == "ssh_host_rsa_key.pub";
    context.root.exists(&without_rsa(context)).then(|| host_keys::public_keys(context.root))?.into_iter().find(is_rsa)
}

fn print(context: &ModuleContext, keys: &[(String, String)]) {
    if context.config.at(&["ssh", "emit_keys_to_console"]).is_some_and(Value::is_false) {
        return;
    }
    let hidden = |key| context.get(key).and_then(names_of).unwrap_or_default();
    let text = report(keys, &hidden("ssh_fp_console_blacklist"), &hidden("ssh_key_console_blacklist"));
    console::print(context, &text);
    // The system's log has the fingerprints, and not the keys, as with cloud-init.
    let (fingerprints, _) = text.split_once(KEYS).unwrap_or((&text, ""));
    console::to_system_log(context, fingerprints);
}

fn report(keys: &[(String, String)], hidden_fingerprints: &[String], hidden_keys: &[String]) -> String {
    let shown = |hidden: &[String]| {
        let is_hidden = |line: &str| hidden.iter().any(|h| line.split_whitespace().next() == Some(h));
        keys.iter().map(|(_, line)| line.as_str()).filter(|l| !is_hidden(l)).collect::<Vec<_>>()
    };
    let mut text = String::new();
    let fingerprints: Vec<String> = shown(hidden_fingerprints).into_iter().filter_map(host_keys::fingerprint).collect();
    if !fingerprints.is_empty() {
        let lines = fingerprints.join("\n");
        text += &format!(
            "{BAR}\n-----BEGIN SSH HOST KEY FINGERPRINTS-----\n{lines}\n-----END SSH HOST KEY FINGERPRINTS-----\n{BAR}\n"
        );
    }
    let keys = shown(hidden_keys);
    if !keys.is_empty() {
        text += &format!("{KEYS}{}\n-----END SSH HOST KEY KEYS-----\n", keys.join("\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_types_are_left_out() {
        let line = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti root@h";
        let keys = vec![("ssh_host_ed25519_key.pub".to_owned(), line.to_owned())];
        let text = report(&keys, &[], &["ssh-ed25519".to_owned()]);
        assert!(text.contains("256 SHA256:") && text.contains(" root@h (ED25519)"), "{text}");
        assert!(!text.contains("KEY KEYS"));
        assert!(
            report(&keys, &["ssh-ed25519".to_owned()], &[]).starts_with("-----BEGIN SSH HOST KEY KEYS-----\nssh-ed")
        );
        assert_eq!(report(&[], &[], &[]), "");
    }
}
