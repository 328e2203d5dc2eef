//! Roots of every layout, in a mount namespace: the initramfs's stage provisions a root before something is mounted over it,
//! and the real root's first stage runs in what came of that.

use prepivot::base::testing::{TempDir, skip};
use std::process::Command;

/// Makes an image at $W/image and a machine without datasource but for the seed in it, whatever this machine is.
/// `initramfs` provisions $W/root and prints its exit code and what it says on the console; `real` runs the local stage in it.
const PRELUDE: &str = r#"
mount -t tmpfs work "$W"
mkdir -p $W/image/etc/systemd $W/image/usr/lib/systemd $W/image/usr/bin $W/image/var/lib/cloud/seed/nocloud $W/empty $W/up $W/root
cd $W/image
mkdir -p proc sys dev run tmp root
echo 'ID=debian' >usr/lib/os-release
echo 'root:x:0:0:root:/root:/bin/sh' >etc/passwd
echo 'root:x:0:' >etc/group
echo 'root:*::0:::::' >etc/shadow
: >usr/lib/systemd/systemd
: >usr/lib/systemd/systemd-networkd
# The program of a test is linked dynamically.
for library in $(ldd "$PREPIVOT" | grep -o '/[^ ]*'); do
    mkdir -p ".${library%/*}"
    cp "$library" ".$library"
done
cp "$PREPIVOT" usr/bin/prepivot
cd $W/image/var/lib/cloud/seed/nocloud
echo 'instance-id: i-1' >meta-data
printf '#cloud-config\nhostname: web\nssh_deletekeys: false\nssh_genkeytypes: []\nruncmd: ["true"]\nwrite_files: [{path: /var/x, content: x}]\n' >user-data
cd /
mount -t tmpfs run /run
: >$W/kmsg
mount --bind $W/kmsg /dev/kmsg
echo "$CMDLINE" >$W/cmdline
mount --bind $W/cmdline /proc/cmdline
# networkd() gives the image what shows that it has systemd-networkd.
networkd() { install /dev/null $W/image/usr/bin/ip; install /dev/null $W/image/usr/bin/systemctl; }
initramfs() {
    : >$W/kmsg
    code=0
    "$PREPIVOT" apply --root $W/root || code=$?
    echo "apply $code"
    [ $code = 0 ] || sed -n 's/^<[0-3]>prepivot[^:]*: /console /p' $W/kmsg | tail -n 1
}
real() {
    mount --bind /proc $W/root/proc
    mount --bind /run $W/root/run
    code=0
    chroot $W/root /usr/bin/prepivot init --local >/dev/null 2>&1 || code=$?
    umount $W/root/proc $W/root/run
    echo "local $code"
}
show() { echo "$1" $(cat "$W/root/$1" 2>/dev/null || echo -); }
instance() { echo instance $(readlink $W/root/var/lib/cloud/instance || echo -); }
"#;

/// What `steps` print in a machine with this kernel command line.
fn machine(name: &str, cmdline: &str, steps: &str) -> Option<Vec<String>> {
    if !rustix::process::geteuid().is_root() {
        skip("a mount namespace needs root");
        return None;
    }
    let dir = TempDir::new(name);
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-euc", &format!("{PRELUDE}{steps}")])
        .env("W", &dir.0)
        .env("CMDLINE", cmdline)
        .env("PREPIVOT", env!("CARGO_BIN_EXE_prepivot"))
        .output();
    let output = match output {
        Ok(output) if output.status.success() => output,
        Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
        Err(e) => {
            skip(format!("unshare: {e}"));
            return None;
        }
    };
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

const NO_ERRORS: &str = "\"init-local\":{\"errors\":[";
const SEED: &str = "ds=nocloud";
const INSTANCE: &str = "instance /var/lib/cloud/instances/i-1";

#[test]
fn first_able_stage_writes_read_only_roots_changes() {
    let steps = r#"
mount -t overlay image -o lowerdir=$W/image:$W/empty $W/root
initramfs
instance
umount $W/root
mkdir $W/up/u $W/up/w
mount -t overlay root -o lowerdir=$W/image,upperdir=$W/up/u,workdir=$W/up/w $W/root
real
show etc/hostname
instance
"#;
    let Some(lines) = machine("roots-read-only", SEED, steps) else { return };
    assert_eq!(lines[0], "apply 1");
    assert!(lines[1].starts_with("console not everything could be written before the pivot"), "{lines:?}");
    assert_eq!(lines[2..5], ["instance -", "local 0", "etc/hostname web"]);
    assert_eq!(lines[5], INSTANCE);
}

#[test]
fn unwritable_root_fails_and_reports_each_stage() {
    let steps = r#"
networkd
echo '{version: 2, ethernets: {eth9: {dhcp4: true}}}' >$W/image/var/lib/cloud/seed/nocloud/network-config
mount -t overlay image -o lowerdir=$W/image:$W/empty $W/root
initramfs
cat /run/systemd/network/10-cloud-init-*.network | grep -c DHCP=ipv4
stat -c %a /run/systemd/network
real
tr -d '\n ' <$W/root/run/cloud-init/status.json 2>/dev/null || tr -d '\n ' </run/cloud-init/status.json
"#;
    let Some(lines) = machine("roots-never", SEED, steps) else { return };
    assert_eq!(lines[0], "apply 1");
    // Its network is there for the boot all the same.
    assert_eq!(lines[2..4], ["1", "755"]);
    assert_ne!(lines[4], "local 0");
    assert!(lines[5].contains("isread-only"), "{lines:?}");
}

#[test]
fn read_only_root_with_etc_is_provisioned_once() {
    let steps = r#"
sed -i 's|write_files: .|&{path: /opt/x, content: x}, |' $W/image/var/lib/cloud/seed/nocloud/user-data
echo 'LABEL=var /var ext4 defaults 0 2' >$W/image/etc/fstab
mkdir $W/up/u $W/up/w
mount -t overlay image -o lowerdir=$W/image:$W/empty $W/root
mount -t overlay etc -o lowerdir=$W/image/etc,upperdir=$W/up/u,workdir=$W/up/w $W/root/etc
initramfs
# The power fails.
umount /run
mount -t tmpfs run /run
initramfs
echo $(grep -c 'cannot be made writable' $W/kmsg)
mkdir $W/up/var $W/up/x
mount -t overlay var -o lowerdir=$W/image/var,upperdir=$W/up/var,workdir=$W/up/x $W/root/var
real
instance
show var/x
umount $W/root/var
umount /run
mount -t tmpfs run /run
initramfs
show etc/hostname
"#;
    let Some(lines) = machine("roots-etc", SEED, steps) else { return };
    assert_eq!(lines[0], "apply 1");
    assert!(lines[1].starts_with("console not everything could be written before the pivot"), "{lines:?}");
    // The next boots have nothing to write to /opt.
    let after = ["apply 0", "0", "local 0", INSTANCE, "var/x x", "apply 0", "etc/hostname web"];
    assert_eq!(lines[2..], after, "{lines:?}");
}

#[test]
fn var_in_memory_gets_the_disks_state() {
    let steps = r#"
networkd
mount --bind $W/image $W/root
for boot in 1 2; do
    initramfs
    mount -t tmpfs var $W/root/var
    real
    instance
    show var/x
    show var/lib/cloud/data/instance-id
    tr -d '\n ' <$W/root/etc/.prepivot-state/data/status.json | grep -o '"init-local":{"errors":\[[^]]*'
    umount -R $W/root/var
    find /run -mindepth 1 -delete
done
ls -A $W/root/etc | grep prepivot
"#;
    let Some(lines) = machine("roots-state", "ds=nocloud systemd.volatile=state", steps) else { return };
    let first = ["apply 0", "local 0", INSTANCE, "var/x x", "var/lib/cloud/data/instance-id i-1", NO_ERRORS];
    // What is written once for each instance is gone with the memory that it was in.
    let second = ["apply 0", "local 0", INSTANCE, "var/x -", "var/lib/cloud/data/instance-id i-1", NO_ERRORS];
    assert_eq!(lines, [&first[..], &second, &[".prepivot-state"]].concat());
}

#[test]
fn waiting_changes_survive_an_interrupted_boot() {
    let steps = r#"
mount --bind $W/image $W/root
echo 'LABEL=home /home ext4 defaults 0 2' >>$W/root/etc/fstab
mkdir $W/home $W/root/home
sed -i '1s/$/\nusers: [{name: ada}]/' $W/root/var/lib/cloud/seed/nocloud/user-data
initramfs
find /run -mindepth 1 -delete
initramfs
ls $W/root/home
mount --bind $W/home $W/root/home
real
mount --bind /proc $W/root/proc
mount --bind /run $W/root/run
chroot $W/root /usr/bin/prepivot init >/dev/null 2>&1 || echo "init $?"
umount $W/root/proc $W/root/run
stat -c '%n %a %u' $W/home/*
ls -A $W/root/var/lib/cloud/instance | grep later || :
"#;
    let Some(lines) = machine("roots-home", SEED, steps) else { return };
    let lines: Vec<&str> = lines.iter().map(|line| line.rsplit('/').next().unwrap()).collect();
    assert_eq!(lines, ["apply 0", "apply 0", "local 0", "ada 755 1000"]);
}

#[test]
fn incomplete_root_is_left_to_real_root() {
    let steps = r#"
mount --bind $W/image $W/root
echo 'LABEL=usr /usr ext4 defaults 0 2' >>$W/root/etc/fstab
mkdir $W/usr
mv $W/root/usr/* $W/usr
initramfs
show etc/hostname
mount --bind $W/usr $W/root/usr
real
show etc/hostname
instance
"#;
    let Some(lines) = machine("roots-usr", SEED, steps) else { return };
    assert_eq!(lines, ["apply 0", "etc/hostname -", "local 0", "etc/hostname web", INSTANCE]);
    let steps = r#"
mount --bind $W/image $W/root
initramfs
find $W/root -newer $W/cmdline -type f
mkdir $W/up/u $W/up/w
mount -t overlay root -o lowerdir=$W/image,upperdir=$W/up/u,workdir=$W/up/w $W/root
initramfs
show etc/hostname
"#;
    let Some(lines) = machine("roots-overlay", "ds=nocloud rd.overlay=1", steps) else { return };
    assert_eq!(lines, ["apply 0", "apply 0", "etc/hostname web"]);
}

#[test]
fn mount_points_outside_fstab_keep_their_writes() {
    let steps = r#"
mount --bind $W/image $W/root
mkdir -p $W/root/etc/systemd/system
printf '[Mount]\nWhat=LABEL=var\nWhere=/var\nType=ext4\n' >$W/root/etc/systemd/system/var.mount
mkdir $W/var
initramfs
mount --bind $W/var $W/root/var
real
show var/x
instance
"#;
    let expected = ["apply 0", "local 0", "var/x x", INSTANCE];
    let Some(lines) = machine("roots-unit", SEED, steps) else { return };
    assert_eq!(lines, expected);
    let without_unit = steps.replace("printf", ": printf");
    let line = "ds=nocloud systemd.mount-extra=LABEL=var:/var:ext4";
    let Some(lines) = machine("roots-extra", line, &without_unit) else { return };
    assert_eq!(lines, expected);
}

#[test]
fn disabled_machine_stays_unchanged() {
    let steps = |more: &str| {
        format!("mount --bind $W/image $W/root\n{more}\nshow etc/hostname\ninstance\nls $W/root/var/lib/cloud\n")
    };
    let by_file = steps("install -D /dev/null $W/root/etc/cloud/cloud-init.disabled\ninitramfs\nreal");
    let nothing = ["etc/hostname -", "instance -", "seed"];
    let Some(lines) = machine("roots-disabled", SEED, &by_file) else { return };
    assert_eq!(lines, [&["apply 0", "local 0"][..], &nothing].concat());
    let Some(lines) = machine("roots-disabled-line", "ds=nocloud cloud-init=disabled", &steps("initramfs")) else {
        return;
    };
    assert_eq!(lines, [&["apply 0"][..], &nothing].concat());
}

#[test]
fn second_root_sharing_var_is_provisioned_once() {
    let steps = r#"
echo 'LABEL=var /var ext4 defaults 0 2' >$W/image/etc/fstab
sed -i 's|^write_files.*|write_files: [{path: /etc/x, content: x}]|' $W/image/var/lib/cloud/seed/nocloud/user-data
cp -a $W/image $W/b
mkdir $W/var
boot() {
    rm -rf /run/*
    mount --bind $1 $W/root
    initramfs
    mount --bind $W/var $W/root/var
    real
    show etc/hostname
    show etc/x
    instance
    echo changed >$W/root/etc/x
    umount $W/root/var $W/root
}
boot $W/image
boot $W/b
boot $W/image
boot $W/b
"#;
    let Some(lines) = machine("roots-slots", SEED, steps) else { return };
    let first = ["apply 0", "local 0", "etc/hostname web", "etc/x x", INSTANCE];
    let later = ["apply 0", "local 0", "etc/hostname web", "etc/x changed", INSTANCE];
    assert_eq!(lines, [first, first, later, later].concat());
}

#[test]
fn changes_for_full_file_system_keep_waiting() {
    let steps = r#"
mount --bind $W/image $W/root
echo 'LABEL=data /data ext4 defaults 0 2' >>$W/root/etc/fstab
mkdir $W/root/data
sed -i 's|/var/x|/data/x|' $W/root/var/lib/cloud/seed/nocloud/user-data
initramfs
mount -t tmpfs -o size=4k data $W/root/data
head -c 4096 /dev/zero >$W/root/data/full
real
show data/x
rm $W/root/data/full
real
show data/x
ls -A $W/root/etc | grep prepivot || echo done
"#;
    let Some(lines) = machine("roots-full", SEED, steps) else { return };
    assert_eq!(lines, ["apply 0", "local 1", "data/x -", "local 0", "data/x x", "done"]);
}

#[test]
fn clean_reaches_the_state_below_a_mounted_var() {
    let steps = r#"
echo 'LABEL=var /var ext4 defaults 0 2' >$W/image/etc/fstab
mkdir $W/var
mount --bind $W/image $W/root
initramfs
mount --bind $W/var $W/root/var
real
instance
mount --bind /proc $W/root/proc
mount --bind /run $W/root/run
chroot $W/root /usr/bin/prepivot clean || echo "clean $?"
umount $W/root/proc $W/root/run
echo $(ls $W/root/var/lib/cloud)
umount $W/root/var
echo $(ls $W/root/var/lib/cloud)
"#;
    let Some(lines) = machine("roots-clean", SEED, steps) else { return };
    assert_eq!(lines, ["apply 0", "local 0", INSTANCE, "", "seed"]);
}

#[test]
fn failed_commit_does_not_append_twice() {
    let steps = r#"
mount --bind $W/image $W/root
mkdir $W/root/opt
mount -t tmpfs -o ro opt $W/root/opt
sed -i 's|{path: /var/x|{path: /etc/kept, append: true, content: "line\\n"}, {path: /opt/x|' \
    $W/root/var/lib/cloud/seed/nocloud/user-data
initramfs
real
grep -c line $W/root/etc/kept
"#;
    let Some(lines) = machine("roots-append", SEED, steps) else { return };
    assert_eq!((lines[0].as_str(), &lines[2..]), ("apply 1", &["local 1".to_owned(), "1".to_owned()][..]), "{lines:?}");
}

#[test]
fn file_as_mount_point_gets_its_content() {
    let steps = r#"
mount --bind $W/image $W/root
: >$W/root/etc/hostname
echo old-and-longer >$W/hostname
mount --bind $W/hostname $W/root/etc/hostname
initramfs
show etc/hostname
ls -A $W/root/etc | grep hostname
"#;
    let Some(lines) = machine("roots-file", SEED, steps) else { return };
    assert_eq!(lines, ["apply 0", "etc/hostname web", "hostname"]);
}

#[test]
fn large_file_gets_content_without_rename() {
    let steps = r#"
mkdir -p $W/image/srv/a $W/image/srv/b
{
    printf '#cloud-config\nssh_deletekeys: false\nssh_genkeytypes: []\nwrite_files:\n'
    for path in srv/a/large etc/large srv/large; do
        printf -- "- {path: /$path, content: '"
        head -c 1100000 /dev/zero | tr '\0' x
        printf "'}\n"
    done
} >$W/image/var/lib/cloud/seed/nocloud/user-data
mount --bind $W/image $W/root
: >$W/root/etc/large
echo old >$W/large
mount --bind $W/large $W/root/etc/large
mount --bind $W/root/srv/b $W/root/srv/a
initramfs
for path in srv/b/large etc/large srv/large; do
    echo $path $(wc -c <$W/root/$path) $(tr -d x <$W/root/$path | wc -c)
done
ls -A $W/root/etc | grep -F .prepivot || echo nothing is left
"#;
    let Some(lines) = machine("roots-large", SEED, steps) else { return };
    let files = ["srv/b/large 1100000 0", "etc/large 1100000 0", "srv/large 1100000 0"];
    assert_eq!(lines, [&["apply 0"], &files[..], &["nothing is left"]].concat());
}
