//! `clean`.

use super::*;

#[test]
fn clean_makes_a_tree_forget() {
    let dir = TempDir::new("cli-clean");
    for path in [
        "var/lib/cloud/instances/i-1/user-data.txt",
        "var/lib/cloud/data/status.json",
        "var/lib/cloud/seed/nocloud/meta-data",
        "var/log/cloud-init.log",
        "var/log/cloud-init.log.1.gz",
        "var/log/cloud-init.logger",
        "var/log/own.log",
        "etc/systemd/network/10-cloud-init-eth0.network",
        "etc/systemd/network/20-mine.network",
        "etc/network/interfaces.d/50-cloud-init.cfg",
        "etc/network/interfaces.d/mine.cfg",
        "etc/ssh/sshd_config.d/50-cloud-init.conf",
        "usr/lib/systemd/systemd",
        "run/prepivot/local-stage.json",
        "etc/.prepivot-state/instances/i-1/datasource.json",
        "etc/.prepivot-state/data/instance-id",
    ] {
        dir.write(path, "x\n");
    }
    symlink("instances/i-1", dir.0.join("var/lib/cloud/instance")).unwrap();
    dir.write("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    dir.write("etc/cloud/cloud.cfg", "output: {all: '| tee -a /var/log/own.log'}\n");
    let fstab = b"# caf\xe9\n/dev/a / ext4 defaults 0 1\n/dev/b /b auto nofail,comment=cloudconfig 0 2\n\
        /dev/disk/cloud/azure_resource-part1 /mnt auto nofail,comment=cloudconfig 0 2\n";
    fs::write(dir.0.join("etc/fstab"), fstab).unwrap();
    dir.write("etc/cloud/clean.d/10-x", "#!/bin/sh\n");
    fs::set_permissions(dir.0.join("etc/cloud/clean.d/10-x"), fs::Permissions::from_mode(0o755)).unwrap();
    let exists = |path: &str| fs::symlink_metadata(dir.0.join(path)).is_ok();

    let first = run_in(&dir, "clean --root ROOT");
    assert_eq!(first.code, 0, "{}", first.err);
    assert!(first.err.contains("not run in another root: /etc/cloud/clean.d/10-x"), "{}", first.err);
    assert_eq!(fs::read_dir(dir.0.join("var/lib/cloud")).unwrap().count(), 1);
    assert!(exists("var/lib/cloud/seed/nocloud/meta-data") && !exists("run/prepivot/local-stage.json"));
    assert!(!exists("etc/.prepivot-state"));
    assert!(exists("var/log/cloud-init.log") && exists("etc/ssh/sshd_config.d/50-cloud-init.conf"));
    assert_eq!(fs::read_to_string(dir.0.join("etc/machine-id")).unwrap().len(), 33);

    assert_eq!(run_in(&dir, "clean -c datasource --root ROOT").code, 0);
    assert!(fs::read(dir.0.join("etc/fstab")).unwrap().ends_with(b"/dev/b /b auto nofail,comment=cloudconfig 0 2\n"));

    let second = run_in(&dir, "clean -ls --machine-id -c ssh_config network --configs fstab --root ROOT");
    assert_eq!(second.code, 0, "{}", second.err);
    for path in ["var/lib/cloud/seed", "var/log/cloud-init.log", "var/log/cloud-init.log.1.gz", "var/log/own.log"] {
        assert!(!exists(path), "{path}");
    }
    assert!(!exists("etc/systemd/network/10-cloud-init-eth0.network") && exists("etc/systemd/network/20-mine.network"));
    assert!(!exists("etc/network/interfaces.d/50-cloud-init.cfg") && exists("etc/network/interfaces.d/mine.cfg"));
    assert!(!exists("etc/ssh/sshd_config.d/50-cloud-init.conf") && exists("var/log/cloud-init.logger"));
    assert_eq!(fs::read_to_string(dir.0.join("etc/machine-id")).unwrap(), "uninitialized\n");
    assert_eq!(fs::read(dir.0.join("etc/fstab")).unwrap(), b"# caf\xe9\n/dev/a / ext4 defaults 0 1\n");

    fs::remove_dir_all(dir.0.join("var/lib/cloud")).unwrap();
    let third = run_in(&dir, "clean --root ROOT");
    assert!(third.code == 0 && third.err.contains("nothing to clean"), "{}", third.err);
}
