//! Credentials for the real root's systemd, used if the root's /etc is read-only and its files cannot be written.
//!
//! Follows systemd's documentation, "System and Service Credentials", and systemd.system-credentials(7).
//! Network files need no credential: `super::network::divert` moves them to /run, where every version reads
//! them.

use crate::base::base64;
use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::base::text::quoted;
use crate::document::{Value, wrong};
use crate::machine::credentials::{MAX, SYSTEM};
use crate::root::{Attr, Content, Root, Use};
use crate::system::accounts::AccountFile;
use crate::system::fstab::{self, FSTAB};
use crate::system::service::has_systemd;
use crate::trust::credential;
use crate::userdata::systemd;

/// Where the service manager looks for a credential that a unit imports and the system was not given
/// (systemd.exec(5), LoadCredential= and ImportCredential=; systemd 252).
const STORE: &str = "/run/credstore";
/// Credentials that the initramfs passes on to the service manager and its generators (systemd(1), "System
/// credentials"; systemd 254).
const INITRD: &str = "/run/credentials/@initrd";
/// Other places that may already have a credential.
const OTHERS: [&str; 7] = [
    SYSTEM,
    "/run/credentials/@encrypted",
    "/run/credstore.encrypted",
    "/etc/credstore",
    "/etc/credstore.encrypted",
    "/usr/lib/credstore",
    "/usr/lib/credstore.encrypted",
];

/// The same for those that are encrypted.
const ENCRYPTED_STORE: &str = "/run/credstore.encrypted";
/// The most credentials that user-data gives.
const MAX_GIVEN: usize = 1000;

/// Hands on the credentials that user-data gives (`systemd_credentials`), under systemd's names, as systemd-imds does. One that is
/// there already stays. What is wrong is reported and left out.
pub fn give(root: &mut Root, config: &Value, report: &Problems) {
    let Some(list) = config.get(systemd::KEY).filter(|list| !list.is_null()) else { return };
    if !root.has_run() || !cfg!(feature = "trust") {
        return;
    }
    let Some(list) = list.as_list() else { return report.warn(wrong(systemd::KEY, "a list", list)) };
    for (at, entry) in list.iter().enumerate() {
        let given = if at < MAX_GIVEN { given(entry) } else { Err(Error::new("there are too many")) };
        let written = given.and_then(|(name, folder, content)| {
            if root.exists(&format!("{folder}/{name}")) {
                return Ok(());
            }
            root.mkdir(folder, Attr::root(0o700))?;
            root.write(&format!("{folder}/{name}"), content, Attr::root(0o400))
        });
        if let Err(e) = written {
            report.warn(e.context(format_args!("{}: entry {}", systemd::KEY, at + 1)));
        }
        if at >= MAX_GIVEN {
            break;
        }
    }
}

/// The name, the folder and the content of a credential that user-data gives.
fn given(entry: &Value) -> Result<(&str, &'static str, Vec<u8>)> {
    let map = entry.as_map().ok_or_else(|| wrong("credential", "a mapping", entry))?;
    let name = map.get("name").and_then(Value::as_str).filter(|name| credential::is_name(name));
    let name = name.ok_or_else(|| Error::new("name: expected a file name of printable ASCII without a colon"))?;
    let forms: Vec<(&str, &Value)> = map.iter().filter(|(key, _)| *key != "name").collect();
    let [(form, value)] = forms.as_slice() else {
        return Err(Error::new(format!("{name}: expected one of text, data and encrypted")));
    };
    let text = value.bytes().ok_or_else(|| wrong(form, "text", value))?;
    let of_base64 =
        || base64::decode_lines(text).ok_or_else(|| Error::new(format!("{name}: {form}: not valid base64")));
    let (folder, content) = match *form {
        "text" => (STORE, text.to_vec()),
        "data" => (STORE, of_base64()?),
        "encrypted" if credential::is_null(text).is_some() => (ENCRYPTED_STORE, text.to_vec()),
        "encrypted" => return Err(Error::new(format!("{name}: encrypted: expected a credential of systemd-creds"))),
        other => return Err(Error::new(format!("{name}: there is no key {}", quoted(other)))),
    };
    let most = if folder == STORE { usize::try_from(MAX).unwrap_or(0) } else { credential::MAX };
    if content.len() > most {
        return Err(Error::new(format!("{name}: it has more than {most} bytes")));
    }
    Ok((name, folder, content))
}

/// Which part of a file becomes the credential.
enum Part {
    /// A field of root's line, counted from 0.
    OfRoot(usize),
    /// The lines for `mounts` of the cloud-config.
    Mounts,
    /// The first line, without its line feed.
    Line,
    All,
}

/// Each credential: its name, its folder, and the file and the part of it that it is made from.
const TABLE: [(&str, &str, &str, Part); 5] = [
    ("passwd.hashed-password.root", STORE, "/etc/shadow", Part::OfRoot(1)),
    ("passwd.shell.root", STORE, "/etc/passwd", Part::OfRoot(6)),
    ("ssh.authorized_keys.root", STORE, "/root/.ssh/authorized_keys", Part::All),
    ("fstab.extra", INITRD, FSTAB, Part::Mounts),
    ("system.hostname", INITRD, "/etc/hostname", Part::Line),
];

/// Writes a credential for each setting that differs from the read-only /etc. One that the machine or the
/// image already has takes precedence.
///
/// # Errors
/// The root cannot be opened again, or something else is in a folder's place.
pub fn leave(root: &mut Root) -> Result<()> {
    if root.is_live() || !root.has_run() || !root.is_etc_read_only() || !has_systemd(root) {
        return Ok(());
    }
    let disk = Root::open(root.path(), Use::Plan)?;
    for (name, folder, content) in wanted(root, &disk) {
        let mut places = OTHERS.iter().chain([&STORE, &INITRD]);
        if let Some(place) = places.find(|place| root.exists(&format!("{place}/{name}"))) {
            log::debug!("the credential {name} is as {place} has it");
            continue;
        }
        root.mkdir(folder, Attr::root(0o700))?;
        root.write(&format!("{folder}/{name}"), content, Attr::root(0o600))?;
    }
    Ok(())
}

/// The credentials for what differs between `new` and `disk`, the same root without the changes: name,
/// folder, content.
fn wanted(new: &Root, disk: &Root) -> Vec<(&'static str, &'static str, Content)> {
    let credential = |&(name, folder, path, ref part): &(&'static str, &'static str, &'static str, Part)| {
        let old = disk.text(path);
        let content = of(part, new, path, &old);
        let is_new = !content.is_empty() && content.len() as u64 <= MAX && content != of(part, disk, path, "");
        is_new.then(|| (name, folder, content.into()))
    };
    TABLE.iter().filter_map(credential).collect()
}

/// The value of a credential from the file `path`, without the mount lines that are also in `old`. Empty
/// if there is none.
fn of(part: &Part, root: &Root, path: &'static str, old: &str) -> String {
    match part {
        Part::OfRoot(field) => {
            let read = |table: AccountFile| table.find("root").map(|at| table.field(at, *field));
            // The password field of a locked account is not a hash.
            let can_have = |value: &String| value.starts_with(['$', '/']);
            AccountFile::read(root, path).ok().and_then(read).filter(can_have).unwrap_or_default()
        }
        Part::Mounts => {
            let new = |line: &&str| fstab::is_ours(line.trim_end()) && !old.contains(*line);
            root.text(path).split_inclusive('\n').filter(new).collect()
        }
        Part::Line => root.text(path).trim_end().to_owned(),
        Part::All => root.text(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;

    #[cfg(feature = "trust")]
    #[test]
    fn user_datas_credentials_go_to_systemds_stores() {
        let dir = TempDir::new("credentials-given");
        let mut root = dir.root(Use::NewRoot);
        dir.write("run/credstore/there", "old");
        let null = "BYRp2vb1QySABUnaD46i+yAAAAABAAAADAAAABAAAAD7MQX9";
        let text = format!(
            "systemd_credentials: [{{name: a, text: x}}, {{name: b, data: AP8=}}, {{name: c, encrypted: {null}}},\
             {{name: there, text: new}}, {{name: a/b, text: x}}, {{name: d}}, {{name: e, text: x, data: eA==}},\
             {{name: f, data: '%'}}, {{name: g, encrypted: eA==}}, {{name: h, other: x}}, 7]"
        );
        let report = Problems::new();
        give(&mut root, &crate::document::yaml::parse("t", &text).unwrap(), &report);
        assert_eq!(root.commit(), []);
        let read = |path: &str| root.read(path).unwrap();
        assert_eq!(read("/run/credstore/a"), Some(b"x".to_vec()));
        assert_eq!(read("/run/credstore/b"), Some(vec![0, 0xff]));
        assert_eq!(read("/run/credstore.encrypted/c"), Some(null.as_bytes().to_vec()));
        assert_eq!(read("/run/credstore/there"), Some(b"old".to_vec()));
        let modes = ["/run/credstore/a", "/run/credstore.encrypted"].map(|path| root.stat(path).unwrap().attr.mode);
        assert_eq!((modes, report.entries().len()), ([0o400, 0o700], 7), "{report:?}");
        assert_eq!(root.list("/run/credstore").len(), 3);
    }

    #[test]
    fn credentials_hold_only_values_missing_on_disk() {
        let dir = TempDir::new("credentials-left");
        let mut root = dir.root(Use::Tree);
        let mut write = |files: &[(&str, &str)], commit: bool| {
            for (path, text) in files {
                root.write(path, *text, Attr::root(0o600)).unwrap();
            }
            if commit {
                assert_eq!(root.commit(), []);
            }
            let disk = dir.root(Use::Plan);
            let text = |content: &Content| String::from_utf8(content.to_vec()).unwrap();
            wanted(&root, &disk)
                .iter()
                .map(|(name, _, content)| format!("{name}={}", text(content)))
                .collect::<Vec<_>>()
        };
        let image = [
            ("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nme:x:1:1::/home/me:/bin/sh\n"),
            ("/etc/shadow", "root:*:1::::::\nme:!:1::::::\n"),
            ("/etc/fstab", "LABEL=root / ext4\n/dev/vdb /old ext4 defaults,comment=cloudconfig 0 2\n"),
            ("/etc/hostname", "localhost\n"),
        ];
        assert_eq!(write(&image, true), [""; 0]);
        let changed = [
            ("/etc/passwd", "root:x:0:0:root:/root:/bin/bash\nme:x:1:1::/home/me:/bin/zsh\n"),
            ("/etc/shadow", "root:$6$a$b:1::::::\nme:$6$c$d:1::::::\n"),
            (
                "/etc/fstab",
                "LABEL=root / ext4\n/dev/vdb /old ext4 defaults,comment=cloudconfig 0 2\n\
                 /dev/vdc /data ext4 nofail,comment=cloudconfig 0 2\n",
            ),
            ("/root/.ssh/authorized_keys", "ssh-ed25519 AAAA a\n"),
            ("/etc/hostname", "web\n"),
        ];
        let found = write(&changed, false);
        let expected = [
            "passwd.hashed-password.root=$6$a$b",
            "passwd.shell.root=/bin/bash",
            "ssh.authorized_keys.root=ssh-ed25519 AAAA a\n",
            "fstab.extra=/dev/vdc /data ext4 nofail,comment=cloudconfig 0 2\n",
            "system.hostname=web",
        ];
        assert_eq!(found, expected);
        // Another user's entries, and a locked password, are not root's.
        let others = [
            ("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nme:x:1:1::/home/me:/bin/zsh\n"),
            ("/etc/shadow", "root:!$6$a$b:1::::::\nme:$6$c$d:1::::::\n"),
        ];
        assert_eq!(write(&others, false), expected[2..]);
    }
}
