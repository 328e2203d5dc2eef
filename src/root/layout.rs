//! Paths with a special role in [`super::Root::commit`]. All are resolved and without a leading slash.

/// cloud-init's state. It is also written below a mount point that is not mounted yet, because the next boot's initramfs reads it
/// there.
pub(super) const STATE: &str = STATE_FOLDERS[0].split_at(1).1;
/// Where the state is kept for the next boot's initramfs if its usual folder, below the mount point, cannot
/// be used.
pub(super) const KEPT_STATE: &str = STATE_FOLDERS[1].split_at(1).1;
/// The folders that can hold cloud-init's state: the usual one, and the one for an initramfs that cannot use
/// it.
pub const STATE_FOLDERS: [&str; 2] = ["/var/lib/cloud", "/etc/.prepivot-state"];
/// cloud-init's log.
pub const CLOUD_INIT_LOG: &str = "/var/log/cloud-init.log";
/// Logs and statuses of one boot, which nothing later depends on.
pub(super) const UNSYNCED: [&str; 3] =
    [CLOUD_INIT_LOG.split_at(1).1, "var/lib/cloud/data/status.json", "var/lib/cloud/data/result.json"];

/// The account files, in the order in which a partly written set does the least damage. /etc/passwd comes
/// last: a user exists once it is named there.
pub(super) const ACCOUNTS: [&str; 6] =
    ["etc/subuid", "etc/subgid", "etc/group", "etc/gshadow", "etc/shadow", "etc/passwd"];

/// What lets one log in, besides the account files and the homes of users that are made: keys, who may do what, names, and the
/// files of the network stacks. It is what is written of a commit for which the disk has no room.
const LOGIN: [&str; 17] = [
    "etc/ssh",
    "etc/sudoers",
    "etc/sudoers.d",
    "etc/doas.conf",
    "etc/hostname",
    "etc/hosts",
    "etc/resolv.conf",
    "etc/netplan",
    "etc/network",
    "etc/systemd/network",
    "etc/systemd/resolved.conf.d",
    "etc/NetworkManager",
    "etc/sysconfig/network",
    "etc/sysconfig/network-scripts",
    "etc/udev/rules.d",
    "root/.ssh",
    "home",
];

/// Whether a path lets one log in, by its place.
pub(super) fn is_for_login(path: &str) -> bool {
    ACCOUNTS.contains(&path) || LOGIN.iter().any(|place| is_below(path, place))
}

/// Whether a path, absolute within the root, outlives the boot.
pub fn is_on_disk(path: &str) -> bool {
    !is_volatile(path.trim_start_matches('/'))
}

/// Whether a path's content ends with the boot. Such changes are never in the journal, which another boot's initramfs may carry
/// out.
pub(super) fn is_volatile(path: &str) -> bool {
    is_below(path, "run") || is_of_running_system(path)
}

/// Whether a path is in a folder that comes with the running system: it mounts /dev, /proc and /sys, and mounts or empties /tmp.
pub(super) fn is_of_running_system(path: &str) -> bool {
    is_below(path, "dev") || is_below(path, "tmp") || is_of_kernel(path)
}

/// Whether a path is one of the kernel, which takes writes to its files as requests.
pub(super) fn is_of_kernel(path: &str) -> bool {
    is_below(path, "proc") || is_below(path, "sys")
}

/// Whether a path marks something as done: semaphores, and the files that name the current instance.
pub(super) fn is_mark(path: &str) -> bool {
    let below = path.strip_prefix(STATE).and_then(|p| p.strip_prefix('/'));
    below.is_some_and(|p| {
        matches!(p, "instance" | "data/instance-id") || p.contains("sem/") || p.ends_with("/datasource.json")
    })
}

/// Whether a path is a semaphore: its existence is the mark, not its content.
pub(super) fn is_semaphore(path: &str) -> bool {
    is_mark(path) && path.contains("/sem/")
}

/// Whether a path is a log or status of one boot. It is written after everything else, as a whole and without
/// a sync: a power cut may lose it.
pub(super) fn is_unsynced(path: &str) -> bool {
    UNSYNCED.contains(&path)
}

/// Whether a path is also used while its file system is not mounted: the state, and the folders above it.
pub(super) fn is_shadowed(path: &str) -> bool {
    is_below(path, STATE) || is_below(STATE, path)
}

/// The folder of a path.
pub(super) fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The path of `name` in a folder, without a leading slash.
pub(super) fn path_in(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// Whether `path` is `folder` or below it.
pub(super) fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || folder.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_what_later_boots_go_by() {
        for mark in [
            "instance",
            "data/instance-id",
            "sem/config_x.once",
            "instances/i-1/sem/config_y",
            "instances/i-1/datasource.json",
        ] {
            assert!(is_mark(&format!("{STATE}/{mark}")), "{mark}");
        }
        for other in
            ["data/status.json", "instances/i-1/scripts/runcmd", "instances/i-1/sem", "instances/i-1/datasource"]
        {
            assert!(!is_mark(&format!("{STATE}/{other}")), "{other}");
        }
        assert!(!is_mark("etc/sem/x"));
    }

    #[test]
    fn volatile_files_are_recognised_by_folder() {
        for (path, expected) in [
            ("run/x", [true, false, false]),
            ("tmp/setup.sh", [true, true, false]),
            ("dev/shm/x", [true, true, false]),
            ("proc/sys/vm/swappiness", [true, true, true]),
            ("sys/kernel/mm/x", [true, true, true]),
            ("var/tmp/x", [false; 3]),
            ("system/x", [false; 3]),
        ] {
            assert_eq!([is_volatile(path), is_of_running_system(path), is_of_kernel(path)], expected, "{path}");
        }
    }

    #[test]
    fn folders_are_compared_by_whole_names() {
        assert!(is_below("var/lib", "var") && is_below("var", "var") && is_below("var", ""));
        assert!(!is_below("variable", "var") && !is_below("va", "var"));
        assert!(is_shadowed("var") && is_shadowed("var/lib/cloud/sem/x") && !is_shadowed("var/log"));
    }
}
