//! Credentials for systemd of the real root, for a root whose /etc cannot be written: what its files cannot be given.
//!
//! Follows systemd's documentation, "System and Service Credentials", and systemd.system-credentials(7). The network's files
//! are no credentials: they are moved to /run (`super::network::divert`), where every version reads them.

use crate::base::error::Result;
use crate::machine::credentials::{MAX, SYSTEM};
use crate::root::{Attr, Content, Root, Use};
use crate::system::accounts::Table;
use crate::system::fstab::{self, FSTAB};
use crate::system::service::has_systemd;

/// Where the service manager looks for a credential that a unit asks for and that the system does not have (systemd.exec(5),
/// LoadCredential= and ImportCredential=; systemd 252).
const STORE: &str = "/run/credstore";
/// What the service manager takes over from the initramfs, for itself and its generators (systemd(1), "System credentials";
/// systemd 254).
const INITRD: &str = "/run/credentials/@initrd";
/// Where else a credential can be already.
const OTHERS: [&str; 7] = [
    SYSTEM,
    "/run/credentials/@encrypted",
    "/run/credstore.encrypted",
    "/etc/credstore",
    "/etc/credstore.encrypted",
    "/usr/lib/credstore",
    "/usr/lib/credstore.encrypted",
];

/// What of a file is the credential.
enum Part {
    /// A field of root's entry, counted from 0.
    OfRoot(usize),
    /// The lines that are written for a cloud-config.
    Mounts,
    /// The text without the end of its line.
    Line,
    All,
}

/// Each credential, where it is put, and the file that has its content.
const TABLE: [(&str, &str, &str, Part); 5] = [
    ("passwd.hashed-password.root", STORE, "/etc/shadow", Part::OfRoot(1)),
    ("passwd.shell.root", STORE, "/etc/passwd", Part::OfRoot(6)),
    ("ssh.authorized_keys.root", STORE, "/root/.ssh/authorized_keys", Part::All),
    ("fstab.extra", INITRD, FSTAB, Part::Mounts),
    ("system.hostname", INITRD, "/etc/hostname", Part::Line),
];

/// Writes the credentials for what the new root is to have and /etc cannot be given. A credential that the machine or the image
/// has takes precedence.
///
/// # Errors
/// The root cannot be opened anew, or a folder is not one.
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

/// The credentials by which `new` differs from `disk`, which is the same root without the changes: name, folder, content.
fn wanted(new: &Root, disk: &Root) -> Vec<(&'static str, &'static str, Content)> {
    let credential = |&(name, folder, path, ref part): &(&'static str, &'static str, &'static str, Part)| {
        let old = disk.text(path);
        let content = of(part, new, path, &old);
        let is_new = !content.is_empty() && content.len() as u64 <= MAX && content != of(part, disk, path, "");
        is_new.then(|| (name, folder, content.into()))
    };
    TABLE.iter().filter_map(credential).collect()
}

/// The part of the file `path`, but for lines of mounts that are in `old`. Empty where it has none that a credential can have.
fn of(part: &Part, root: &Root, path: &'static str, old: &str) -> String {
    match part {
        Part::OfRoot(field) => {
            let read = |table: Table| table.find("root").map(|at| table.field(at, *field));
            // A locked password is none.
            let can_have = |value: &String| value.starts_with(['$', '/']);
            Table::read(root, path).ok().and_then(read).filter(can_have).unwrap_or_default()
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

    #[test]
    fn only_what_the_new_root_has_and_the_disk_lacks_is_a_credential() {
        let dir = TempDir::new("credentials-left");
        let mut root = Root::open(&dir.0, Use::Tree).unwrap();
        let mut write = |files: &[(&str, &str)], commit: bool| {
            for (path, text) in files {
                root.write(path, *text, Attr::root(0o600)).unwrap();
            }
            if commit {
                assert_eq!(root.commit(), []);
            }
            let disk = Root::open(&dir.0, Use::Plan).unwrap();
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
