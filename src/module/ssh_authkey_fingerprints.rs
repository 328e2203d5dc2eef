//! # ssh_authkey_fingerprints
//!
//! Prints the fingerprints of the keys that may log in on the console, a table for each user, unless
//! `no_ssh_fingerprints: true`.
//!
//! ```yaml
//! no_ssh_fingerprints: false
//! authkey_hash: sha512
//! ```
//!
//! ```schema
//! no_ssh_fingerprints: bool
//! authkey_hash: str
//! ```

use super::Module;
use crate::base::digest::{Algorithm, digest};
use crate::base::error::Result;
use crate::base::md5::md5;
use crate::base::problem::Problems;
use crate::document::Value;
use crate::instance::Frequency;
use crate::root::Stage;
use crate::system::accounts::Accounts;
use crate::system::authorized_keys::{self, Key, Rules};
use crate::system::users::Users;
use crate::system::{ModuleContext, console};

pub static MODULE: Module = Module {
    name: "ssh_authkey_fingerprints",
    stage: Stage::Final,
    frequency: Frequency::Instance,
    running: Some(running),
    offline: true,
    ..Module::NEW
};

/// Prints a table for each user.
fn running(context: &mut ModuleContext) -> Result<()> {
    if context.flag("no_ssh_fingerprints", false) {
        log::debug!("Skipping module named ssh_authkey_fingerprints, logging of SSH fingerprints disabled");
    } else {
        let method = context.text("authkey_hash").unwrap_or_else(|| "sha256".to_owned());
        let accounts = Accounts::open(context.root)?;
        let rules = Rules::of(context.root);
        for (name, config) in Users::of(context).users {
            let has_home = !["no_create_home", "system"].iter().any(|k| config.get(k).is_some_and(Value::is_true));
            let Some(user) = accounts.user(&name).filter(|_| has_home) else { continue };
            let (path, keys) = authorized_keys::list(context.root, &rules, &user);
            if !context.root.is_file(&path) && context.root.is_dir(&user.home) {
                // As cloud-init leaves it for each user: scripts append to it. Nothing can be wrong with no keys.
                authorized_keys::add(context.root, &rules, &user, &[], None, &Problems::new())?;
            }
            console::print(context, &report(&name, &path, &keys, &method));
        }
    }
    Ok(())
}

fn report(user: &str, path: &str, keys: &[Key], method: &str) -> String {
    if keys.is_empty() {
        return format!("ci-info: no authorized SSH keys fingerprints found for user {user}.\n");
    }
    let mut rows =
        vec![["Keytype".to_owned(), format!("Fingerprint ({method})"), "Options".to_owned(), "Comment".to_owned()]];
    rows.extend(
        keys.iter().map(|key| {
            [key.kind.clone(), fingerprint(&key.base64, method), or_dash(&key.options), or_dash(&key.comment)]
        }),
    );
    let widths: Vec<usize> =
        (0..4).map(|c| rows.iter().filter_map(|r| r.get(c)).map(|t| t.chars().count()).max().unwrap_or(0)).collect();
    let line: String = widths.iter().map(|w| format!("+{}", "-".repeat(w + 2))).collect::<String>() + "+";
    let title = format!("Authorized keys from {path} for user {user}");
    let width = line.len();
    let mut lines = vec![format!("{title:+^width$}"), line.clone()];
    for (i, row) in rows.iter().enumerate() {
        lines.push(row.iter().zip(&widths).map(|(t, w)| format!("|{}", centered(t, w + 2))).collect::<String>() + "|");
        if i == 0 {
            lines.push(line.clone());
        }
    }
    lines.push(line);
    lines.iter().map(|l| format!("ci-info: {l}\n")).collect()
}

/// Text in the middle of `width` characters, as Python's `str.center` puts it: an odd one stands before it if the width is odd.
fn centered(text: &str, width: usize) -> String {
    let margin = width.saturating_sub(text.chars().count());
    let before = margin / 2 + (margin & width & 1);
    format!("{}{text}{}", " ".repeat(before), " ".repeat(margin - before))
}

fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".into() } else { text.into() }
}

/// The key's hash in hexadecimal, by bytes; `?` if it is not base64 or the method is unknown.
fn fingerprint(base64: &str, method: &str) -> String {
    let Some(bytes) = crate::base::base64::decode(base64.as_bytes()) else { return "?".into() };
    let algorithm = match method {
        "md5" => return by_bytes(&md5(&bytes)),
        "sha1" => Algorithm::Sha1,
        "sha256" => Algorithm::Sha256,
        "sha384" => Algorithm::Sha384,
        "sha512" => Algorithm::Sha512,
        _ => return "?".into(),
    };
    by_bytes(&digest(algorithm, &bytes))
}

fn by_bytes(hash: &[u8]) -> String {
    let bytes: Vec<String> = hash.iter().map(|b| format!("{b:02x}")).collect();
    bytes.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_keys() {
        let key = Key::parse("ssh-ed25519 AAAA me").unwrap();
        let text = report("u", "/k", &[key], "sha256");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 6);
        assert!(lines.iter().all(|l| l.len() == lines[0].len() && l.starts_with("ci-info: ")));
        assert!(lines[0].contains("+Authorized keys from /k for user u+"));
        // sha256sum of three NUL bytes.
        assert!(lines[4].contains("| 70:9e:80:c8:84:87:a2:41:1e:1e:e4:df:b9:f2:2a:86:"), "{}", lines[4]);
        assert_eq!(fingerprint("!", "sha256"), "?");
        assert!(fingerprint("AAAA", "md5").ends_with(":00:5b:dc:5e:2e"), "md5sum of the same");
        assert!(fingerprint("AAAA", "sha1").starts_with("29:e2:dc:fb:"), "sha1sum of the same");
    }
}
