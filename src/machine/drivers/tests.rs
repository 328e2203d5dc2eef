use super::lists::{Rules, closure, name_of, resolve};
use super::*;
use crate::base::testing::{TempDir, mutations};
use std::os::unix::fs::symlink;

const ALIAS: &str = "# Aliases extracted from modules themselves.
alias pci:v00008086d00007010sv*sd*bc*sc*i* ata_piix
alias pci:v00001AF4d*sv*sd*bc*sc*i* virtio_pci
alias virtio:d00000001v* virtio_net
alias scsi:t-0x05* sr_mod
alias usb:v0424pEC00d010[0-9]dc*dsc*dp*ic02isc*ip*in* smsc95xx
alias crypto-crc32c crc32c_generic
alias broken
";
const DEP: &str =
    "kernel/drivers/scsi/sr_mod.ko.xz: kernel/drivers/cdrom/cdrom.ko.xz kernel/drivers/scsi/scsi_mod.ko.xz \
                   kernel/drivers/scsi/scsi_common.ko.xz
kernel/drivers/net/virtio-net.ko.xz: kernel/net/net_failover.ko.xz kernel/net/failover.ko.xz
kernel/crypto/crc32c_generic.ko.xz:
kernel/lib/libcrc32c.ko.xz:
kernel/drivers/net/bnx2x.ko.xz: kernel/lib/libcrc32c.ko.xz
";

#[test]
fn lists_a_devices_modules_and_their_dependencies() {
    let resolved = |alias: &str| resolve(ALIAS, &[alias.to_owned()]).join(" ");
    assert_eq!(resolved("scsi:t-0x05"), "sr_mod");
    assert_eq!(resolved("pci:v00001AF4d00001000sv00001AF4sd00000001bc02sc00i00"), "virtio_pci");
    assert_eq!(resolved("usb:v0424pEC00d0107dc00dsc00dp01ic02isc06ip00in00"), "smsc95xx");
    assert_eq!(resolved("pci:v00001234d00001111sv*"), "");

    let softly = |soft: &str, names: &[&str]| {
        let softdep = format!("softdep libcrc32c pre: {soft}\n");
        closure(DEP, &softdep, &|| ALIAS.to_owned(), names).into_iter().map(name_of).collect::<Vec<_>>().join(" ")
    };
    let files = |names: &[&str]| softly("crc32c-generic", names);
    assert_eq!(files(&["sr_mod"]), "scsi_common scsi_mod cdrom sr_mod");
    assert_eq!(files(&["virtio_net"]), "failover net_failover virtio_net");
    assert_eq!(files(&["bnx2x"]), "crc32c_generic libcrc32c bnx2x");
    assert_eq!(files(&["isofs"]), "");
    // By an alias, as in ext4 of some kernels.
    assert_eq!(softly("crypto-crc32c", &["bnx2x"]), "crc32c_generic libcrc32c bnx2x");
    assert_eq!(softly("crypto-unknown", &["bnx2x"]), "libcrc32c bnx2x");

    for text in [ALIAS, DEP] {
        mutations(text.as_bytes(), 500, |bytes| {
            let text = String::from_utf8_lossy(bytes);
            resolve(&text, &["usb:v0424pEC00d0107dc00dsc00dp01ic02isc06ip00in00".into()]);
            closure(&text, &text, &|| text.to_string(), &["sr_mod", "bnx2x"]);
        });
    }
}

#[test]
fn modprobe_d_is_followed() {
    let dir = TempDir::new("drivers-rules");
    let write = |path: &str, text: &str| dir.write(path, text);
    write(
        "usr/lib/modprobe.d/a.conf",
        "# x\nblacklist e1000e\noptions  virtio-net \\\n napi_tx=0\ninstall usb-storage /bin/true\n",
    );
    write("etc/modprobe.d/b.conf", "options virtio_net csum=N\nblacklist\noptions\n");
    write("etc/modprobe.d/b.conf.bak", "blacklist igb\n");
    let rules =
        Rules::read(&dir.0, &["modprobe.blacklist=ixgbe,ice".into(), "igb.max_vfs=2".into(), "root=a.b".into()]);
    let barred = |name| rules.is_barred(name);
    assert!(barred("e1000e") && barred("ixgbe") && barred("ice") && !barred("igb") && !barred("virtio_net"));
    assert!(rules.is_replaced("usb_storage"));
    assert_eq!(rules.options("virtio_net"), "napi_tx=0 csum=N");
    assert_eq!((rules.options("igb").as_str(), rules.options("bonding").as_str()), ("max_vfs=2", "max_bonds=0"));
}

#[test]
fn lists_driverless_devices_by_kind() {
    let dir = TempDir::new("drivers-devices");
    let device = |bus: &str, name: &str, alias: &str, driver: bool| {
        let path = dir.0.join(format!("sys/bus/{bus}/devices/{name}"));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("modalias"), format!("{alias}\n")).unwrap();
        if driver {
            std::fs::create_dir_all(dir.0.join("sys/drivers/some")).unwrap();
            symlink("/sys/drivers/some", path.join("driver")).unwrap();
        }
    };
    device("pci", "0", "pci:v00008086d00007010sv00001AF4sd00001100bc01sc01i80", false);
    device("pci", "1", "pci:v00001234d00001111sv00001AF4sd00001100bc03sc00i00", false);
    device("pci", "2", "pci:v00008086d0000100Esv00001AF4sd00001100bc02sc00i00", true);
    device("virtio", "virtio0", "virtio:d00000001v00001AF4", false);
    device("scsi", "1:0:0:0", "scsi:t-0x05", false);
    let machine = Machine { base: dir.0.clone(), ..Machine::default() };
    let mut drivers = Drivers::of(&machine, &dir.0.join("root"));
    let storage = drivers.without_driver(DriverKind::Storage, &mut BTreeSet::new());
    assert_eq!(storage, ["pci:v00008086d00007010sv00001AF4sd00001100bc01sc01i80", "scsi:t-0x05"]);
    assert_eq!(drivers.without_driver(DriverKind::Storage, &mut BTreeSet::new()), [""; 0]);
    // A root that has no modules is reported once, in one line.
    for _ in 0..2 {
        assert!(!drivers.for_devices(DriverKind::Network));
    }
    let [note] = drivers.notes() else { panic!("{:?}", drivers.notes()) };
    assert!(
        note.starts_with("the root has no modules for the running kernel ")
            && note.ends_with(": 1 of its devices have no driver")
    );
}

#[test]
fn refuses_and_reports_a_file_without_module() {
    let dir = TempDir::new("drivers-refused");
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let folder = dir.0.join("usr/lib/modules").join(release);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("modules.dep"), "no-module.ko:\nno-gzip.ko.gz:\n../../../../../etc/passwd.ko:\n")
        .unwrap();
    std::fs::write(folder.join("no-module.ko"), "x").unwrap();
    std::fs::write(folder.join("no-gzip.ko.gz"), "x").unwrap();
    let machine = Machine { base: dir.0.clone(), ..Machine::default() };
    let mut drivers = Drivers::of(&machine, &dir.0);
    assert!(!drivers.named(&["no_module", "no_gzip", "passwd", "none"]));
    assert_eq!(drivers.notes().len(), 3, "{:?}", drivers.notes());
    assert!(drivers.notes()[1].contains("failed to unpack"), "{:?}", drivers.notes());
}
