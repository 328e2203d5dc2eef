//! keys_to_console: the host keys and their fingerprints, for whoever wants to check them at the first login.

use super::users::names_of;
use super::{Context, Frequency, Module, console, host_keys};
use crate::base64;
use crate::document::Value;
use crate::error::Result;
use crate::root::Stage;
use ring::digest::{SHA256, digest};
use ssh_key::PublicKey;

pub static MODULE: Module = Module {
    name: "keys_to_console",
    stage: Stage::Final,
    frequency: Frequency::Instance,
    keys: &[],
    distros: &[],
    provision: None,
    live: Some(live),
};

const BAR: &str = "#############################################################";

/// Prints them on the console. The RSA host key, which is slow to make, is made now, when nothing waits any more.
fn live(context: &mut Context) -> Result<()> {
    let finished = host_keys::finish(context);
    if !context.config.at(&["ssh", "emit_keys_to_console"]).is_some_and(Value::is_false) {
        let hidden = |key| context.get(key).and_then(names_of).unwrap_or_default();
        let keys = host_keys::public_keys(context.root);
        let text = report(&keys, &hidden("ssh_fp_console_blacklist"), &hidden("ssh_key_console_blacklist"));
        console::print(context, &text);
    }
    finished
}

fn report(keys: &[(String, String)], hidden_fingerprints: &[String], hidden_keys: &[String]) -> String {
    let shown = |hidden: &[String]| {
        let is_hidden = |line: &str| hidden.iter().any(|h| line.split_whitespace().next() == Some(h));
        keys.iter().map(|(_, line)| line.as_str()).filter(|l| !is_hidden(l)).collect::<Vec<_>>()
    };
    let mut text = String::new();
    let fingerprints: Vec<String> = shown(hidden_fingerprints).into_iter().filter_map(fingerprint).collect();
    if !fingerprints.is_empty() {
        let lines = fingerprints.join("\n");
        text += &format!(
            "{BAR}\n-----BEGIN SSH HOST KEY FINGERPRINTS-----\n{lines}\n-----END SSH HOST KEY FINGERPRINTS-----\n{BAR}\n"
        );
    }
    let keys = shown(hidden_keys);
    if !keys.is_empty() {
        text += &format!("-----BEGIN SSH HOST KEY KEYS-----\n{}\n-----END SSH HOST KEY KEYS-----\n", keys.join("\n"));
    }
    text
}

/// As `ssh-keygen -l` prints it: bits, fingerprint, comment and type.
pub(super) fn fingerprint(line: &str) -> Option<String> {
    let key = PublicKey::from_openssh(line).ok()?;
    let data = key.key_data();
    let (bits, kind) = if let Some(rsa) = data.rsa() {
        let n = rsa.n.as_positive_bytes()?;
        (n.len() * 8 - n.first()?.leading_zeros() as usize, "RSA")
    } else if let Some(ecdsa) = data.ecdsa() {
        let bits = match ecdsa.curve() {
            ssh_key::EcdsaCurve::NistP256 => 256,
            ssh_key::EcdsaCurve::NistP384 => 384,
            ssh_key::EcdsaCurve::NistP521 => 521,
        };
        (bits, "ECDSA")
    } else if data.ed25519().is_some() {
        (256, "ED25519")
    } else {
        return None;
    };
    let comment = if key.comment().is_empty() { "no comment" } else { key.comment() };
    let hash = base64::encode(digest(&SHA256, &key.to_bytes().ok()?).as_ref());
    Some(format!("{bits} SHA256:{} {comment} ({kind})", hash.trim_end_matches('=')))
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
