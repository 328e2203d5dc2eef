//! authorized_keys: the SSH keys that may log in as a user (sshd(8), AUTHORIZED_KEYS FILE FORMAT), in the
//! file that sshd will read, with the owner and mode that StrictModes requires.

use super::accounts::User;
use super::sshd_config;
use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::root::{Attr, FileKind, Root};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The options of keys that must not log in: `$USER` is replaced by the user to log in as, `$DISABLE_USER` by
/// the user that is refused. The format is an interface: disable_root_opts uses it too.
pub const DISABLE_USER_OPTS: &str = "no-port-forwarding,no-agent-forwarding,no-X11-forwarding,\
    command=\"echo 'Please login as the user \\\"$USER\\\" rather than the user \\\"$DISABLE_USER\\\".';echo;sleep 10;exit 142\"";

/// The longest key line, in bytes. sshd's limit for a line is 8 KiB, but certificates are longer.
const MAX_KEY: usize = 32 << 10;

/// sshd's key types, and their old short names.
const TYPES: &[&str] = &[
    "rsa",
    "ecdsa",
    "ed25519",
    "ssh-rsa",
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "sk-ssh-ed25519@openssh.com",
    "ssh-rsa-cert-v01@openssh.com",
    "ssh-ed25519-cert-v01@openssh.com",
    "ecdsa-sha2-nistp256-cert-v01@openssh.com",
    "ecdsa-sha2-nistp384-cert-v01@openssh.com",
    "ecdsa-sha2-nistp521-cert-v01@openssh.com",
    "sk-ecdsa-sha2-nistp256-cert-v01@openssh.com",
    "sk-ssh-ed25519-cert-v01@openssh.com",
    "ssh-xmss@openssh.com",
    "ssh-xmss-cert-v01@openssh.com",
];

/// One key line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    pub options: String,
    pub kind: String,
    pub base64: String,
    pub comment: String,
}

impl Key {
    /// Parses one line; None for a comment, an empty line, or something that is not a key.
    pub fn parse(line: &str) -> Option<Key> {
        let line = line.trim();
        if line.starts_with('#') || line.len() > MAX_KEY || line.chars().any(|c| c.is_control() && c != '\t') {
            return None;
        }
        let bare = |text: &str, options: &str| {
            let (kind, rest) = text.split_once([' ', '\t'])?;
            let rest = rest.trim_start();
            let (base64, comment) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
            let good = TYPES.contains(&kind) && !base64.is_empty();
            good.then(|| Key {
                options: options.to_owned(),
                kind: kind.to_owned(),
                base64: base64.to_owned(),
                comment: comment.trim().to_owned(),
            })
        };
        bare(line, "").or_else(|| {
            let end = end_of_options(line);
            bare(line[end..].trim_start(), &line[..end])
        })
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = [&self.options, &self.kind, &self.base64, &self.comment];
        let mut first = true;
        for part in parts.into_iter().filter(|p| !p.is_empty()) {
            f.write_str(if first { "" } else { " " })?;
            f.write_str(part)?;
            first = false;
        }
        Ok(())
    }
}

/// The length of the options, which end at the first blank outside double quotes. `\"` never is a quote,
/// whatever precedes it (sshd's `sshkey_advance_past_options`).
fn end_of_options(line: &str) -> usize {
    let (mut quoted, mut escaped) = (false, false);
    for (i, c) in line.char_indices() {
        match c {
            ' ' | '\t' if !quoted => return i,
            '"' if !escaped => quoted = !quoted,
            _ => {}
        }
        escaped = c == '\\';
    }
    line.len()
}

/// The rules for files of keys in sshd's configuration. It is read once for all users of a module.
pub struct Rules {
    /// AuthorizedKeysFile.
    files: String,
    /// StrictModes.
    strict: bool,
}

impl Rules {
    pub fn of(root: &Root) -> Rules {
        Rules {
            files: sshd_config::value(root, "AuthorizedKeysFile").unwrap_or_default(),
            strict: sshd_config::value(root, "StrictModes").is_none_or(|v| !v.eq_ignore_ascii_case("no")),
        }
    }
}

/// Authorizes `keys` for `user`. A line that exists is not repeated, and a line with the same key replaces an
/// old one. One key may have several lines: if the options of one do not allow a login, sshd tries the next.
/// `options`, if given, replace the options of every key. As in cloud-init, the file is created even for no
/// keys.
///
/// # Errors
/// The file cannot be read or written.
pub fn add(
    root: &mut Root,
    rules: &Rules,
    user: &User,
    keys: &[String],
    options: Option<&str>,
    report: &Problems,
) -> Result<()> {
    let options = options.filter(|o| !o.is_empty());
    if options.is_some_and(|o| o.chars().any(char::is_control)) {
        return Err(Error::new("the options of SSH keys hold the end of a line or another control character"));
    }
    let mut new: Vec<Key> = Vec::new();
    // The position of each line, and those of each key's lines with the first of them that may be missing in the file.
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut known: HashMap<String, (Vec<usize>, usize)> = HashMap::new();
    for line in keys.iter().flat_map(|k| k.lines()).filter(|l| !l.trim().is_empty() && !l.trim().starts_with('#')) {
        match Key::parse(line) {
            Some(mut key) => {
                if let Some(options) = options {
                    key.options = options.to_owned();
                }
                if let Entry::Vacant(place) = places.entry(key.to_string()) {
                    place.insert(new.len());
                    known.entry(key.base64.clone()).or_default().0.push(new.len());
                    new.push(key);
                }
            }
            None => report.warn(format_args!(
                "an SSH key for {} is ignored: it is not in the form of authorized_keys",
                user.name
            )),
        }
    }
    let path = file(root, rules, user, report)?;
    let old = root.read_small(&path)?.unwrap_or_default();
    let mut lines: Vec<Vec<u8>> = old.split(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
    if lines.last().is_some_and(Vec::is_empty) {
        lines.pop();
    }
    let mut there = vec![false; new.len()];
    for line in &mut lines {
        let Some(key) = Key::parse(&String::from_utf8_lossy(line)) else { continue };
        let Some((same, missing)) = known.get_mut(&key.base64) else { continue };
        let next = places.get(&key.to_string()).or_else(|| {
            // If none is missing, it is the last.
            while *missing + 1 < same.len() && there[same[*missing]] {
                *missing += 1;
            }
            same.get(*missing)
        });
        if let Some(&at) = next {
            there[at] = true;
            *line = new[at].to_string().into_bytes();
        }
    }
    let added = new.iter().zip(there).filter(|(_, there)| !there).map(|(key, _)| key.to_string().into_bytes());
    lines.extend(added);
    let mut content = lines.join(&b'\n');
    if !content.is_empty() {
        content.push(b'\n');
    }
    root.rewrite(&path, content, Attr::owned(0o600, user.ids))
}

/// The keys of a user, and their file.
pub fn list(root: &Root, rules: &Rules, user: &User) -> (String, Vec<Key>) {
    let candidates = candidates(rules, user).into_iter().find(|p| root.is_file(p));
    let path = candidates.unwrap_or_else(|| default_file(user));
    let keys = root.text(&path).lines().filter_map(Key::parse).collect();
    (path, keys)
}

fn default_file(user: &User) -> String {
    format!("{}/.ssh/authorized_keys", user.home.trim_end_matches('/'))
}

/// The files of AuthorizedKeysFile (sshd_config(5)) that belong to this user only, in order.
fn candidates(rules: &Rules, user: &User) -> Vec<String> {
    let home = user.home.trim_end_matches('/');
    let mut found = Vec::new();
    for pattern in rules.files.split_whitespace().filter(|p| *p != "none") {
        let (mut path, mut letters) = (String::new(), pattern.chars());
        while let Some(c) = letters.next() {
            match (c, if c == '%' { letters.next() } else { None }) {
                ('%', Some('h')) => path += home,
                ('%', Some('u')) => path += &user.name,
                ('%', Some('U')) => path += &user.ids.uid.to_string(),
                ('%', Some(c)) => path.push(c),
                (c, _) => path.push(c),
            }
        }
        if !path.starts_with('/') {
            path = format!("{home}/{path}");
        }
        let own = ["%h", "%u", "%U"].iter().any(|t| pattern.contains(t)) || path.starts_with(&format!("{home}/"));
        if own && !path.split('/').any(|part| part == "..") {
            found.push(path);
        }
    }
    found
}

/// The file for a user's keys, with its folders created: the first of AuthorizedKeysFile that sshd would
/// read, else the default.
fn file(root: &mut Root, rules: &Rules, user: &User, report: &Problems) -> Result<String> {
    for path in candidates(rules, user) {
        match check(root, user, &path, rules.strict) {
            Ok(()) => return make(root, user, path),
            Err(e) => log::info!("keys of {} do not go to {path}: {e}", user.name),
        }
    }
    let path = default_file(user);
    // Through a symbolic link the user could have root create a file anywhere.
    let inside = [format!("{}/.ssh", user.home.trim_end_matches('/')), path.clone()];
    if let Some(bad) = inside.iter().find(|p| root.lstat(p).is_some_and(|s| s.kind == FileKind::Symlink)) {
        return Err(Error::new(format!("failed to write the SSH keys of {}: {bad} is a symbolic link", user.name)));
    }
    if let Err(e) = check(root, user, &path, rules.strict) {
        report.warn(format_args!("sshd may not accept the keys of {}: {e}", user.name));
    }
    make(root, user, path)
}

fn is_in_home(user: &User, path: &str) -> bool {
    let home = user.home.trim_end_matches('/');
    path.strip_prefix(home).is_some_and(|rest| rest.starts_with('/'))
}

/// Checks that sshd would read `path` for the user (misc.c, safe_path): no other user can write to it or to a
/// folder above it. Missing folders will be created with suitable modes.
fn check(root: &Root, user: &User, path: &str, strict: bool) -> Result<()> {
    let wrong = |at: &str, why: &str| Err(Error::new(format!("{at} {why}")));
    let home = user.home.trim_end_matches('/');
    let ends = path.match_indices('/').map(|(i, _)| i).filter(|i| *i > 0).chain([path.len()]);
    for end in ends {
        let at = &path[..end];
        let is_file = end == path.len();
        let Some(stat) = root.lstat(at) else { return Ok(()) };
        match stat.kind {
            // A link in a folder of root's belongs to the system's layout (/home → /var/home); in a home, its
            // owner created it.
            FileKind::Symlink if is_file || is_in_home(user, at) => return wrong(at, "is a symbolic link"),
            FileKind::File if !is_file => return wrong(at, "is a file"),
            FileKind::Dir if is_file => return wrong(at, "is a folder"),
            _ => {}
        }
        if home.starts_with(at) && at != home {
            continue;
        }
        // A link of the system's whose target is created on the first boot (ostree's /root → var/roothome).
        let Some(attr) = root.stat(at).map(|s| s.attr) else { return Ok(()) };
        let access = if attr.uid == user.ids.uid {
            0o700
        } else if attr.gid == user.ids.gid {
            0o070
        } else {
            0o007
        };
        let needed = if is_file { 0o444 } else { 0o111 };
        if attr.mode & needed & access == 0 && user.ids.uid != 0 {
            return wrong(at, "is not open to the user");
        }
        if strict && attr.uid != 0 && attr.uid != user.ids.uid {
            return wrong(at, "belongs to somebody else");
        }
        if strict && attr.mode & 0o022 != 0 {
            return wrong(at, "can be written by others");
        }
    }
    Ok(())
}

/// Creates the folders above `path`: in the home private and owned by the user, elsewhere owned by root and
/// readable.
fn make(root: &mut Root, user: &User, path: String) -> Result<String> {
    if !root.exists(&user.home) && is_in_home(user, &path) {
        root.mkdir(&user.home, Attr::owned(0o700, user.ids))?;
    }
    let parents: Vec<usize> = path.match_indices('/').map(|(i, _)| i).filter(|i| *i > 0).collect();
    for end in parents {
        let at = &path[..end];
        let attr = if is_in_home(user, at) { Attr::owned(0o700, user.ids) } else { Attr::root(0o755) };
        root.mkdir(at, attr)?;
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::{Ids, Use};

    const A: &str = "ssh-ed25519 AAAAa me@host";
    const B: &str = "from=\"10.0.0.0/8\",command=\"echo \\\"hi\\\"\" ssh-rsa AAAAb two words";

    fn start(config: &str) -> (TempDir, Root, User) {
        let dir = TempDir::new("authorized-keys");
        let mut root = dir.root(Use::Tree);
        root.write("/etc/ssh/sshd_config", config, Attr::root(0o644)).unwrap();
        let user = User { name: "u".into(), ids: Ids { uid: 1000, gid: 1000 }, home: "/home/u".into() };
        root.mkdir("/home/u", Attr::owned(0o755, user.ids)).unwrap();
        (dir, root, user)
    }

    fn add_to(root: &mut Root, user: &User, keys: &[String], options: Option<&str>, report: &Problems) -> Result<()> {
        let rules = Rules::of(root);
        add(root, &rules, user, keys, options, report)
    }

    #[test]
    fn keys_are_added_once_with_owner_and_mode() {
        let (_dir, mut root, user) = start("");
        let keys = vec![A.to_owned(), format!("{B}\n{A}\n# c\nnonsense\n")];
        for _ in 0..2 {
            add_to(&mut root, &user, &keys, None, &Problems::new()).unwrap();
        }
        assert_eq!(root.text("/home/u/.ssh/authorized_keys"), format!("{A}\n{B}\n"));
        assert_eq!(root.stat("/home/u/.ssh").unwrap().attr, Attr::owned(0o700, user.ids));
        assert_eq!(root.stat("/home/u/.ssh/authorized_keys").unwrap().attr, Attr::owned(0o600, user.ids));
        assert_eq!(list(&root, &Rules::of(&root), &user).1.len(), 2);
        add_to(&mut root, &user, &[B.to_owned()], Some("no-pty"), &Problems::new()).unwrap();
        assert_eq!(root.text("/home/u/.ssh/authorized_keys"), format!("{A}\nno-pty ssh-rsa AAAAb two words\n"));
    }

    #[test]
    fn a_key_may_log_in_from_two_places() {
        let (_dir, mut root, user) = start("");
        let from = |net: &str| format!("from=\"{net}\" {A}");
        root.write("/home/u/.ssh/authorized_keys", format!("{A}\n{}\n", from("b")), Attr::owned(0o600, user.ids))
            .unwrap();
        for _ in 0..2 {
            add_to(&mut root, &user, &[from("a"), from("b"), from("c"), from("a")], None, &Problems::new()).unwrap();
            let lines = [from("a"), from("b"), from("c")].map(|line| line + "\n").concat();
            assert_eq!(root.text("/home/u/.ssh/authorized_keys"), lines);
        }
    }

    /// Each line is compared with those of the same key.
    #[test]
    fn many_lines_of_one_key_end_in_time() {
        let (_dir, mut root, user) = start("");
        let lines: String = (0..20_000).map(|i| format!("ssh-rsa AAAA {i}\n")).collect();
        root.write("/home/u/.ssh/authorized_keys", "ssh-rsa AAAA x\n".repeat(20_000), Attr::owned(0o600, user.ids))
            .unwrap();
        let before = crate::base::testing::cpu_time();
        add_to(&mut root, &user, std::slice::from_ref(&lines), None, &Problems::new()).unwrap();
        assert!(crate::base::testing::cpu_time() - before < std::time::Duration::from_secs(5));
        assert_eq!(root.text("/home/u/.ssh/authorized_keys"), lines);
    }

    #[test]
    fn reads_escaped_quotes_after_a_backslash() {
        assert_eq!(Key::parse(r#"command="a \\" ssh-rsa AAAA"#), None, "sshd finds no end of the options");
        assert!(Key::parse(r#"command="a \\" b" ssh-rsa AAAA"#).is_some());
    }

    #[test]
    fn what_is_there_stays() {
        let (_dir, mut root, user) = start("");
        let old = b"# mine\n\nssh-rsa AAAAold \xff\nodd line".to_vec();
        root.write("/home/u/.ssh/authorized_keys", old.clone(), Attr::owned(0o640, user.ids)).unwrap();
        add_to(&mut root, &user, &[A.to_owned()], None, &Problems::new()).unwrap();
        let expected = [&old[..], b"\n", A.as_bytes(), b"\n"].concat();
        assert_eq!(root.read("/home/u/.ssh/authorized_keys").unwrap().unwrap(), expected);
        assert_eq!(root.stat("/home/u/.ssh/authorized_keys").unwrap().attr.mode, 0o640);
    }

    #[test]
    fn uses_the_servers_place_if_safe() {
        let (_dir, mut root, user) = start("AuthorizedKeysFile /etc/keys/%u/k .ssh/x\n");
        add_to(&mut root, &user, &[A.to_owned()], None, &Problems::new()).unwrap();
        assert_eq!(root.text("/etc/keys/u/k"), format!("{A}\n"));
        assert_eq!(root.stat("/etc/keys/u").unwrap().attr, Attr::root(0o755));
        assert_eq!(list(&root, &Rules::of(&root), &user).0, "/etc/keys/u/k");

        let (_dir, mut root, user) = start("AuthorizedKeysFile /etc/keys/%u/k .ssh/x\n");
        root.mkdir("/etc/keys", Attr::root(0o777)).unwrap();
        add_to(&mut root, &user, &[A.to_owned()], None, &Problems::new()).unwrap();
        assert_eq!(root.text("/home/u/.ssh/x"), format!("{A}\n"));
    }

    #[test]
    fn follows_the_systems_links_but_not_homes() {
        let (_dir, mut root, user) = start("");
        root.symlink("/home/u/.ssh", "/etc").unwrap();
        assert!(add_to(&mut root, &user, &[A.to_owned()], None, &Problems::new()).is_err());
        assert!(!root.exists("/etc/authorized_keys"));

        let dir = TempDir::new("authorized-keys-link");
        let mut root = dir.root(Use::Tree);
        root.mkdir("/var/home/u", Attr::owned(0o700, user.ids)).unwrap();
        root.symlink("/home", "var/home").unwrap();
        add_to(&mut root, &user, &[A.to_owned()], None, &Problems::new()).unwrap();
        assert_eq!(root.text("/var/home/u/.ssh/authorized_keys"), format!("{A}\n"));
    }

    #[test]
    fn creates_the_target_of_a_systems_link() {
        let dir = TempDir::new("authorized-keys-no-home");
        let mut root = dir.root(Use::Tree);
        root.symlink("/root", "var/roothome").unwrap();
        let user = User { name: "root".into(), ids: Ids { uid: 0, gid: 0 }, home: "/root".into() };
        let report = Problems::new();
        add_to(&mut root, &user, &[A.to_owned()], None, &report).unwrap();
        assert_eq!(root.text("/var/roothome/.ssh/authorized_keys"), format!("{A}\n"));
        assert_eq!(root.stat("/var/roothome").unwrap().attr.mode, 0o700);
        assert!(report.is_empty(), "{report:?}");
    }

    #[test]
    fn a_line_cannot_be_smuggled_in() {
        let (_dir, mut root, user) = start("");
        assert!(add_to(&mut root, &user, &[A.to_owned()], Some("x\nssh-rsa AAAAevil"), &Problems::new()).is_err());
        add_to(&mut root, &user, &["ssh-rsa AAAAc c\rssh-rsa AAAAevil".to_owned()], None, &Problems::new()).unwrap();
        assert!(!root.text("/home/u/.ssh/authorized_keys").contains("evil"));
        assert_eq!(Key::parse("\"unclosed ssh-rsa AAAA"), None);
        assert_eq!(Key::parse("ssh-rsa"), None);
    }
}
