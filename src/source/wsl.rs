//! WSL: data in the home folder of a Windows user.

use super::Source;
use crate::detect::{Facts, Finding, MAX_ENTRIES, Mark, virt};

pub static SOURCE: Source = Source {
    name: "WSL",
    marks: &[Mark::Check(
        "files for this distribution in .cloud-init or .ubuntupro/.cloud-init in a Windows user's folder",
        mark,
    )],
    ..Source::NEW
};

/// WSL: data for this distribution in the home folder of a Windows user. Which user it is takes a Windows program to tell, so
/// all of them count.
fn mark(facts: &Facts) -> Option<Finding> {
    if facts.platform.virt != virt::WSL {
        return None;
    }
    let mounts = facts.machine.fact("proc/mounts").unwrap_or_default();
    let drives = mounts.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (place, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == "9p" && options.contains("aname=drvfs;")).then_some(place)
    });
    let wanted = wsl_names(facts);
    for drive in drives.take(MAX_ENTRIES) {
        let users = format!("{}/Users", drive.trim_start_matches('/'));
        for user in facts.entries(&users) {
            for folder in [".ubuntupro/.cloud-init", ".cloud-init"] {
                let folder = format!("{users}/{user}/{folder}");
                let is_wanted = |name: &String| {
                    let agent = name == "agent.yaml" && folder.contains(".ubuntupro");
                    agent || wanted.contains(&name.to_lowercase())
                };
                if let Some(name) = facts.entries(&folder).iter().find(|n| is_wanted(n)) {
                    return Finding::found(format!("/{folder}/{name} is there"));
                }
            }
        }
    }
    None
}

/// The names of files for this distribution, in lower case (cloud-init's documentation, "WSL").
fn wsl_names(facts: &Facts) -> Vec<String> {
    let release = facts.root.text("/etc/os-release");
    let value = |key: &str| {
        let line = release.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix('='));
        line.map(|v| v.trim_matches(['"', '\'']).to_lowercase()).unwrap_or_default()
    };
    // Debian's unreleased systems have a name and no number yet.
    let version = Some(value("VERSION_ID")).filter(|v| !v.is_empty()).unwrap_or_else(|| value("VERSION_CODENAME"));
    let id = Some(value("ID")).filter(|i| !i.is_empty()).unwrap_or_else(|| "linux".into());
    let instance = facts.variable("WSL_DISTRO_NAME").map(str::to_lowercase);
    let names = [format!("{id}-{version}"), format!("{id}-all"), "default".into()];
    instance.into_iter().chain(names).map(|name| format!("{name}.user-data")).collect()
}
