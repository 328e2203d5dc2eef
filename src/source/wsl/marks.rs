//! How data for a WSL distribution is recognised, and the names of its files.

use crate::detect::{Facts, Finding, MAX_ENTRIES, virt};
use crate::machine::Machine;
use crate::root::{Root, installed};

/// The folders of a Windows user that may have data: Ubuntu Pro's, then the user's own.
pub const FOLDERS: [&str; 2] = [".ubuntupro/.cloud-init", ".cloud-init"];

/// Where Windows drives are mounted, as absolute paths.
pub fn drives(machine: &Machine) -> Vec<String> {
    let mounts = machine.fact("proc/mounts").unwrap_or_default();
    let place = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (place, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == "9p" && options.contains("aname=drvfs;")).then(|| place.to_owned())
    };
    mounts.lines().filter_map(place).take(MAX_ENTRIES).collect()
}

/// Recognises data for this distribution in the home folder of any Windows user: only a Windows program could
/// tell which user it is.
pub fn mark(facts: &Facts) -> Option<Finding> {
    if facts.platform.virt != virt::WSL {
        return None;
    }
    let wanted = user_data_names(facts.root, facts.variable("WSL_DISTRO_NAME"));
    for drive in drives(facts.machine) {
        let users = format!("{}/Users", drive.trim_start_matches('/'));
        for user in facts.entries(&users) {
            for folder in FOLDERS {
                let is_wanted = |name: &String| {
                    (name == "agent.yaml" && folder == FOLDERS[0]) || wanted.contains(&name.to_ascii_lowercase())
                };
                let folder = format!("{users}/{user}/{folder}");
                if let Some(name) = facts.entries(&folder).iter().find(|n| is_wanted(n)) {
                    return Finding::found(format!("/{folder}/{name} is there"));
                }
            }
        }
    }
    None
}

/// The names of user-data files for this distribution, in lower case, most specific first (cloud-init's
/// documentation, "WSL"). `instance` is the distribution's name in Windows, which is ASCII.
pub fn user_data_names(root: &Root, instance: Option<&str>) -> Vec<String> {
    let release = installed::os_release(root);
    let value = |key: &str| {
        let line = release.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix('='));
        line.map(|v| v.trim_matches(['"', '\'']).to_ascii_lowercase()).unwrap_or_default()
    };
    // Debian's unreleased systems have a code name but no number yet.
    let version = Some(value("VERSION_ID")).filter(|v| !v.is_empty()).unwrap_or_else(|| value("VERSION_CODENAME"));
    let id = Some(value("ID")).filter(|i| !i.is_empty()).unwrap_or_else(|| "linux".into());
    let names = [format!("{id}-{version}"), format!("{id}-all"), "default".into()];
    instance.map(str::to_ascii_lowercase).into_iter().chain(names).map(|name| format!("{name}.user-data")).collect()
}
