//! Reads and changes the SSH server's configuration (sshd_config(5)) outside of Match blocks.

use super::ModuleContext;
use crate::base::error::{Error, Result};
use crate::base::glob;
use crate::document::Value;
use crate::root::{Attr, Root};

const CONFIG: &str = "/etc/ssh/sshd_config";
/// The vendor's file, used if the administrator has none.
const VENDOR_CONFIG: &str = "/usr/etc/ssh/sshd_config";
const FOLDER: &str = "/etc/ssh/sshd_config.d";
/// cloud-init's file in that folder; other tools look for it by this name.
const OWN: &str = "/etc/ssh/sshd_config.d/50-cloud-init.conf";
/// The most files that a configuration may include, and how deep.
const MAX_INCLUDES: (usize, usize) = (256, 16);

/// The name of the SSH server's service, from the configuration or else the distribution's.
pub fn service(context: &ModuleContext) -> String {
    let named = context.config.at(&["system_info", "ssh_svcname"]).and_then(Value::as_str);
    named.unwrap_or(context.distro.ssh_service).to_owned()
}

/// The value of `keyword` outside of Match blocks: the first one, with includes read in place.
pub fn value(root: &Root, keyword: &str) -> Option<String> {
    let start = if root.is_file(CONFIG) { CONFIG } else { VENDOR_CONFIG };
    let mut left = MAX_INCLUDES.0;
    find(root, start, keyword, 0, &mut left)
}

fn find(root: &Root, path: &str, keyword: &str, depth: usize, left: &mut usize) -> Option<String> {
    if depth > MAX_INCLUDES.1 || *left == 0 {
        return None;
    }
    *left -= 1;
    for line in root.text(path).lines() {
        let Some((key, value)) = split(line) else { continue };
        if key.eq_ignore_ascii_case("match") {
            return None;
        }
        if key.eq_ignore_ascii_case(keyword) {
            return Some(value.to_owned());
        }
        if key.eq_ignore_ascii_case("include") {
            let found = value
                .split_whitespace()
                .flat_map(|pattern| expand(root, pattern))
                .find_map(|file| find(root, &file, keyword, depth + 1, left));
            if found.is_some() {
                return found;
            }
        }
    }
    None
}

/// Sets `keyword` outside of Match blocks. Returns whether anything changed.
///
/// # Errors
/// A file cannot be read or written.
pub fn set(root: &mut Root, keyword: &str, value: &str) -> Result<bool> {
    check(keyword, value)?;
    let path = file_to_change(root)?;
    root.edit_text(path, Attr::root(mode_of_new(path)), |text| Ok(with_value(text, keyword, value)))
}

/// Checks a line before it is written: sshd does not start with one that it refuses, and nobody could log in.
fn check(keyword: &str, value: &str) -> Result<()> {
    let is_word =
        !value.is_empty() && !value.contains(|c: char| c.is_whitespace() || c.is_control() || "\"'#".contains(c));
    let fits = match keyword {
        "PasswordAuthentication" => matches!(value, "yes" | "no"),
        "HostCertificate" => is_word && value.starts_with('/'),
        _ => is_word,
    };
    if fits {
        Ok(())
    } else {
        Err(Error::new(format!("sshd would not take this value of {keyword}: it is not written")))
    }
}

/// The text with `keyword` set before the first Match block. None if it already is.
fn with_value(text: &str, keyword: &str, value: &str) -> Option<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let end = lines
        .iter()
        .position(|l| split(l).is_some_and(|(key, _)| key.eq_ignore_ascii_case("match")))
        .unwrap_or(lines.len());
    let (mut found, mut changed) = (false, false);
    for line in lines.iter_mut().take(end) {
        let Some((key, old)) = split(line) else { continue };
        if key.eq_ignore_ascii_case(keyword) {
            found = true;
            if old != value {
                *line = format!("{key} {value}");
                changed = true;
            }
        }
    }
    if !found {
        lines.insert(end, format!("{keyword} {value}"));
        changed = true;
    }
    changed.then(|| lines.join("\n") + "\n")
}

/// Adds the line `keyword value` unless it exists: for keywords that may occur more than once.
///
/// # Errors
/// A file cannot be read or written.
pub fn add(root: &mut Root, keyword: &str, value: &str) -> Result<()> {
    check(keyword, value)?;
    let path = file_to_change(root)?;
    root.edit_text(path, Attr::root(mode_of_new(path)), |text| Ok(with_added(text, keyword, value))).map(drop)
}

fn with_added(text: &str, keyword: &str, value: &str) -> Option<String> {
    if text.lines().any(|l| split(l).is_some_and(|(k, v)| k.eq_ignore_ascii_case(keyword) && v == value)) {
        return None;
    }
    let mut text = text.to_owned();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    // After a Match line, the line would belong to that block.
    let is_match = |l: &str| split(l).is_some_and(|(key, _)| key.eq_ignore_ascii_case("match"));
    let at = text.split_inclusive('\n').take_while(|l| !is_match(l)).map(str::len).sum();
    text.insert_str(at, &format!("{keyword} {value}\n"));
    Some(text)
}

/// The file to change: prepivot's own in the folder that the configuration includes, else the configuration
/// itself.
fn file_to_change(root: &mut Root) -> Result<&'static str> {
    let in_folder = if root.is_file(CONFIG) {
        root.text(CONFIG).lines().any(|line| {
            split(line).is_some_and(|(key, value)| {
                key.eq_ignore_ascii_case("include")
                    && value
                        .split_whitespace()
                        .any(|v| matches!(v, "/etc/ssh/sshd_config.d/*.conf" | "sshd_config.d/*.conf"))
            })
        })
    } else {
        root.is_dir(FOLDER) || root.is_file(VENDOR_CONFIG)
    };
    if !in_folder {
        return Ok(CONFIG);
    }
    root.mkdir(FOLDER, Attr::root(0o755))?;
    Ok(OWN)
}

fn mode_of_new(path: &str) -> u32 {
    if path == OWN { 0o600 } else { 0o644 }
}

/// The keyword and arguments of a line, separated by white space or one `=`. None for a comment, an empty
/// line or a bare word.
fn split(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    if line.starts_with('#') {
        return None;
    }
    let (key, rest) = line.split_at(line.find(|c: char| c.is_whitespace() || c == '=')?);
    let rest = rest.trim_start();
    let value = rest.strip_prefix('=').unwrap_or(rest).trim();
    let value = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).filter(|v| !v.contains('"')).unwrap_or(value);
    Some((key, value))
}

/// The files that match an Include pattern: wildcards in the last component, in lexical order (glob(7)).
fn expand(root: &Root, pattern: &str) -> Vec<String> {
    let pattern = pattern.trim_matches('"');
    let pattern = if pattern.starts_with('/') { pattern.to_owned() } else { format!("/etc/ssh/{pattern}") };
    let Some((folder, name)) = pattern.rsplit_once('/') else { return Vec::new() };
    if !name.contains(['*', '?']) {
        return vec![pattern];
    }
    let hidden = |n: &str| n.starts_with('.') && !name.starts_with('.');
    let names = root.list(folder).into_iter();
    names.filter(|n| !hidden(n) && glob::matches(name, n)).map(|n| format!("{folder}/{n}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::Use;

    fn root(files: &[(&str, &str)]) -> (TempDir, Root) {
        let dir = TempDir::new("sshd-config");
        let mut root = dir.root(Use::Tree);
        for (path, text) in files {
            root.write(path, *text, Attr::root(0o644)).unwrap();
        }
        (dir, root)
    }

    #[test]
    fn the_first_value_outside_a_match_block_counts() {
        let (_dir, root) = root(&[
            (
                CONFIG,
                "# X no\nInclude /etc/ssh/sshd_config.d/*.conf\nAuthorizedKeysFile \"late\"\nMatch User x\nStrictModes no\n",
            ),
            ("/etc/ssh/sshd_config.d/20-b.conf", "authorizedkeysfile=/etc/keys/%u .ssh/k\n"),
            ("/etc/ssh/sshd_config.d/10-a.conf", "Match all\nAuthorizedKeysFile hidden\n"),
            ("/etc/ssh/sshd_config.d/10-a.txt", "AuthorizedKeysFile not-included\nInclude /etc/ssh/sshd_config\n"),
        ]);
        assert_eq!(value(&root, "AuthorizedKeysFile").as_deref(), Some("/etc/keys/%u .ssh/k"));
        assert_eq!(value(&root, "StrictModes"), None);
    }

    #[test]
    fn a_loop_of_includes_ends() {
        let (_dir, root) =
            root(&[(CONFIG, "Include /etc/ssh/*\nInclude sshd_config\n"), ("/etc/ssh/x", "Include *\n")]);
        assert_eq!(value(&root, "Port"), None);
    }

    #[test]
    fn a_change_keeps_match_blocks_and_comments() {
        let (_dir, mut root) =
            root(&[(CONFIG, "# c\npasswordauthentication no\nMatch User a\n PasswordAuthentication no\n")]);
        assert!(set(&mut root, "PasswordAuthentication", "yes").unwrap());
        assert!(!set(&mut root, "PasswordAuthentication", "yes").unwrap());
        assert!(set(&mut root, "Port", "23").unwrap());
        add(&mut root, "HostCertificate", "/c").unwrap();
        add(&mut root, "HostCertificate", "/c").unwrap();
        assert_eq!(
            root.text(CONFIG),
            "# c\npasswordauthentication yes\nPort 23\nHostCertificate /c\nMatch User a\n PasswordAuthentication no\n"
        );
    }

    #[test]
    fn writes_no_value_that_sshd_refuses() {
        let (_dir, mut root) = root(&[(CONFIG, "# c\n")]);
        for value in ["maybe", "", "yes\nPermitRootLogin yes", "yes #"] {
            assert!(set(&mut root, "PasswordAuthentication", value).is_err(), "{value}");
        }
        for value in ["key-cert.pub", "/a b", "/a\nPermitRootLogin yes"] {
            assert!(add(&mut root, "HostCertificate", value).is_err(), "{value}");
        }
        assert_eq!(root.text(CONFIG), "# c\n");
    }

    #[test]
    fn included_folder_gets_its_own_file() {
        let (_dir, mut root) = root(&[(CONFIG, "Include /etc/ssh/sshd_config.d/*.conf\n")]);
        assert!(set(&mut root, "PasswordAuthentication", "no").unwrap());
        assert_eq!(root.text(OWN), "PasswordAuthentication no\n");
        assert_eq!(root.stat(OWN).unwrap().attr, Attr::root(0o600));
        assert_eq!(root.text(CONFIG), "Include /etc/ssh/sshd_config.d/*.conf\n");
    }
}
