//! A root that cannot be made writable, provisioned as the initramfs does it: in a mount namespace with a /run of its own.

use prepivot::base::testing::{TempDir, skip};
use std::fs;
use std::process::Command;

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti me@host";

/// An overlay without an upper layer cannot be mounted writable. The kernel's log is not the test's to write to.
const APPLY: &str = r#"
mount -t tmpfs tmpfs /run || exit 77
[ ! -e /dev/kmsg ] || mount --bind /dev/null /dev/kmsg || exit 77
mount -t overlay overlay -o ro,lowerdir="$2:$3" "$3" || exit 77
mkdir -m 755 -p /run/credentials/@system
printf own >/run/credentials/@system/system.hostname
printf unix:/x >/run/credentials/@system/vmm.notify_socket
"$1" apply --root "$3" --framework dracut
cd /run
find credstore credentials -printf '%p %m\n' | LC_ALL=C sort
head -n 3 credstore/* credentials/@initrd/* systemd/network/*
"#;

#[test]
fn read_only_roots_changes_become_credentials() {
    let dir = TempDir::new("read-only");
    fs::create_dir_all(dir.0.join("empty")).unwrap();
    let user_data = format!(
        "#cloud-config\nssh_authorized_keys: [{KEY}]\nusers: []\n\
         chpasswd: {{expire: false, users: [{{name: root, password: $6$salt$s3cret}}]}}\n\
         mounts: [['LABEL=data', /data, ext4]]\n"
    );
    for (path, text) in [
        ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
        ("etc/shadow", "root:*:1::::::\n"),
        ("etc/group", "root:x:0:\n"),
        ("etc/os-release", "ID=debian\n"),
        ("etc/fstab", "LABEL=root / ext4\n"),
        ("etc/cloud/cloud.cfg", "datasource_list: [NoCloud]\ndisable_root: false\n"),
        ("usr/lib/systemd/systemd", ""),
        ("usr/lib/systemd/systemd-networkd", ""),
        ("usr/bin/systemctl", ""),
        ("var/lib/cloud/seed/nocloud/meta-data", "instance-id: i-1\nlocal-hostname: web\n"),
        ("var/lib/cloud/seed/nocloud/network-config", "version: 2\nethernets: {eth7: {dhcp4: true}}\n"),
        ("var/lib/cloud/seed/nocloud/user-data", user_data.as_str()),
    ] {
        dir.write(&format!("root/{path}"), text);
    }
    let program = env!("CARGO_BIN_EXE_prepivot");
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", APPLY, "sh", program])
        .args([dir.0.join("empty"), dir.0.join("root")])
        .output();
    let Ok(output) = output.inspect_err(|e| skip(format!("unshare: {e}"))) else { return };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    if output.status.code() == Some(77) || err.starts_with("unshare") {
        return skip("needs a mount namespace and overlayfs");
    }
    for expected in [
        "credentials/@initrd 700\n",
        "credentials/@initrd/fstab.extra 600\n",
        "credstore 700\n",
        "credstore/passwd.hashed-password.root 600\n",
        "==> credstore/passwd.hashed-password.root <==\n$6$salt$s3cret",
        &format!("==> credstore/ssh.authorized_keys.root <==\n{KEY}\n"),
        "LABEL=data\t/data\text4\t",
        "==> systemd/network/10-cloud-init-eth7.network <==\n",
    ] {
        assert!(out.contains(expected), "{expected}\n--- of\n{out}\n---\n{err}");
    }
    // What the machine has takes precedence, and is left as it is.
    assert!(!out.contains("@initrd/system.hostname") && !out.contains("@initrd/vmm"), "{out}");
    assert!(out.contains("credentials/@system/system.hostname 644\n"), "{out}");
    assert!(!err.contains("s3cret"), "{err}");
}
