//! Waits for the end of coldplug: udev has handled all device events so far and loaded the drivers. Finds disks that a bus has not
//! shown yet.

use super::devices::attribute;
use crate::base::deadline::Deadline;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::path::Path;

/// Waits until systemd-udevd is idle, which is when it removes the file `queue` from its folder `run`
/// (/run/udev), as in `udevadm settle`. Returns at once if it does not run, and false if the deadline passes
/// first.
pub fn settle(run: &Path, deadline: Deadline) -> bool {
    let is_busy = || run.join("queue").exists();
    if !is_busy() {
        return true;
    }
    let Ok(watch) = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK) else { return false };
    if inotify::add_watch(&watch, run, WatchFlags::DELETE).is_err() {
        return false;
    }
    while is_busy() {
        let left = deadline.left();
        if left.is_zero() {
            return false;
        }
        let _ = poll(&mut [PollFd::new(&watch, PollFlags::IN)], Timespec::try_from(left).ok().as_ref());
        let mut events = [0; 4096];
        while rustix::io::read(&watch, &mut events).is_ok_and(|n| n > 0) {}
    }
    true
}

/// The class of USB interfaces that are mass storage (usb-if.org, Defined Class Codes).
const MASS_STORAGE: &str = "08";
/// The most entries of a folder of sysfs that are looked at.
const MAX_ENTRIES: usize = 4096;

/// A USB interface that is mass storage and has a driver, but no disk yet: usb-storage waits a second before it looks, and devices
/// take longer. `sys`: /sys.
pub fn usb_disk_to_come(sys: &Path) -> Option<String> {
    let list = |folder: &str| std::fs::read_dir(sys.join(folder)).into_iter().flatten().take(MAX_ENTRIES).flatten();
    let links: Vec<_> = list("class/block").filter_map(|disk| std::fs::read_link(disk.path()).ok()).collect();
    let interfaces = list("bus/usb/devices").filter(|interface| {
        let (path, name) = (interface.path(), interface.file_name());
        attribute(&path.join("bInterfaceClass")).as_deref() == Some(MASS_STORAGE)
            && path.join("driver").exists()
            && !links.iter().any(|link| link.iter().any(|part| part == name))
    });
    interfaces.filter_map(|interface| interface.file_name().into_string().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use std::time::{Duration, Instant};

    #[test]
    fn waits_exactly_until_the_queue_is_empty() {
        let dir = TempDir::new("settle");
        assert!(settle(&dir.0, Deadline::after(Duration::ZERO)), "no udev is no wait");
        let queue = dir.0.join("queue");
        std::fs::write(&queue, "").unwrap();
        assert!(!settle(&dir.0, Deadline::after(Duration::from_millis(50))));
        let start = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                dir.write("other", "");
                std::fs::remove_file(dir.0.join("other")).unwrap();
                std::fs::remove_file(&queue).unwrap();
            });
            assert!(settle(&dir.0, Deadline::after(Duration::from_secs(60))));
        });
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn finds_usb_storage_without_its_disk() {
        let dir = TempDir::new("settle-usb");
        let interface = |name: &str, class: &str, has_driver: bool| {
            dir.write(&format!("bus/usb/devices/{name}/bInterfaceClass"), format!("{class}\n"));
            if has_driver {
                dir.write(&format!("bus/usb/devices/{name}/driver/uevent"), "");
            }
        };
        assert_eq!(usb_disk_to_come(&dir.0), None);
        interface("1-1:1.0", "03", true);
        interface("1-2:1.0", "08", false);
        assert_eq!(usb_disk_to_come(&dir.0), None);
        interface("1-3:1.0", "08", true);
        assert_eq!(usb_disk_to_come(&dir.0).as_deref(), Some("1-3:1.0"));
        std::fs::create_dir_all(dir.0.join("class/block")).unwrap();
        let disk = "../../devices/pci0000:00/usb1/1-3/1-3:1.0/host2/target2:0:0/2:0:0:0/block/sdb";
        std::os::unix::fs::symlink(disk, dir.0.join("class/block/sdb")).unwrap();
        assert_eq!(usb_disk_to_come(&dir.0), None);
    }
}
