//! What the modules that write files and run commands need beside the common part: how two files say the same.

use super::Case;
use prepivot::document::{Map, Value};

/// Whether the recorded error says nothing: the recording machine lacked a package manager, or cloud-init a method.
pub fn error_is_the_recorders(case: &Case) -> bool {
    case.expected
        .get("error")
        .and_then(Value::as_str)
        .is_some_and(|e| ["PackageInstallerError", "NotImplementedError"].iter().any(|kind| e.starts_with(kind)))
}

/// Files that the case expects: what `hostnamectl set-hostname` would have written too.
pub fn expected_files(case: &Case) -> Map {
    let mut files = case.expected.get("files").and_then(Value::as_map).cloned().unwrap_or_default();
    for (argv, _) in case.commands() {
        if let [program, verb, name] = argv.as_slice()
            && program == "hostnamectl"
            && verb == "set-hostname"
        {
            let file: Map = [("content", format!("{name}\n")), ("mode", "0o644".into())].into_iter().collect();
            files.insert("/etc/hostname", file);
        }
    }
    files
}

/// Paths that say nothing: where a script waits for its shell, and what the recording could not hold.
pub fn is_beside(path: &str) -> bool {
    // Files of prepivot's own: the sizes of the disks when the root was last grown.
    let record = "/var/lib/cloud/data/disk-sizes";
    path.starts_with("/run/cloud-init") || path.starts_with("/dev") || path == record
}

/// Files that everyone may read in cloud-init, and root alone here (prepivot-differences(7)).
pub fn may_hold_secrets(path: &str) -> bool {
    let names = ["csr_attributes.yaml", "firstboot.json", "fb.json", "validation.pem", "minion.pem"];
    names.iter().any(|name| path.rsplit('/').next() == Some(name))
        || ["/etc/salt/minion", "/etc/mcollective/server.cfg"].contains(&path)
}

/// Whether a command is not run because its work is done natively.
pub fn is_native(argv: &[String]) -> bool {
    argv.first().is_some_and(|program| program == "hostnamectl")
}

/// A command as it is compared: without waiting for systemd, and without the names of scripts, which differ.
pub fn normal_command(argv: &[String]) -> Vec<String> {
    let script = |word: &String| word.starts_with("/run/cloud-init/") && word.ends_with(".sh");
    let words = argv.iter().filter(|w| *w != "--no-block");
    words.map(|w| if script(w) { "SCRIPT".to_owned() } else { w.clone() }).collect()
}

/// A file whose words count, without comments, empty lines and the width of gaps. None for every other file.
pub fn normal_file(path: &str, content: &str) -> Option<String> {
    if path == "/etc/fstab" {
        return Some(content.lines().map(fstab_line).collect::<Vec<_>>().join("\n"));
    }
    if path.starts_with("/etc/salt/") && !path.contains("/pki/")
        || path.ends_with("/csr_attributes.yaml")
        || path == "/etc/chef/firstboot.json"
    {
        let document = prepivot::document::yaml::parse(path, content).unwrap_or_else(|e| panic!("{e}: {content}"));
        return Some(prepivot::document::json::to_string_sorted(&document));
    }
    if path.ends_with(".repo") {
        return Some(repository(content));
    }
    let by_words = [
        "/etc/hosts",
        "/etc/resolv.conf",
        "/etc/default/keyboard",
        "/etc/locale.conf",
        "/etc/ntp",
        "/etc/chrony",
        "/etc/ca-certificates.conf",
    ];
    let by_folder = ["/etc/systemd/", "/etc/apt/", "/etc/yum.repos.d/", "/etc/zypp/", "/etc/apk/", "/etc/rsyslog.d/"];
    if !by_words.iter().chain(&by_folder).any(|p| path.starts_with(p))
        && path != "/etc/profile.d/50-cloud-init-locale.sh"
    {
        return None;
    }
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines = content.lines().filter(|l| !l.trim_start().starts_with('#') && !l.starts_with("//"));
    Some(lines.map(words).filter(|l| !l.is_empty()).collect::<Vec<_>>().join("\n"))
}

/// A repository's file without comments, the settings of each section in one order.
fn repository(content: &str) -> String {
    let mut sections: Vec<Vec<String>> = vec![Vec::new()];
    for line in content.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
        if line.starts_with('[') {
            sections.push(Vec::new());
        }
        sections.last_mut().expect("the first section").push(line.to_owned());
    }
    for section in &mut sections {
        // `[` is sorted before the lower-case letters of settings.
        section.sort();
    }
    sections.concat().join("\n")
}

/// What keeps the place of a mount in the order of a boot beside nofail.
const LOCAL: &str = "x-systemd.before=local-fs.target";
const REMOTE: &str = "x-systemd.before=remote-fs.target";

fn fstab_line(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// fstab as prepivot writes it where cloud-init writes `expected`: every line that is not there `before` has the documented
/// options with which it cannot stop a boot.
pub fn expected_fstab(expected: &str, before: &str, systemd: bool) -> String {
    let old: Vec<String> = before.lines().map(fstab_line).collect();
    let with_options = |line: &str| {
        let line = fstab_line(line);
        let mut fields: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (true, false) = (fields.len() == 6, old.contains(&line)) else { return line };
        let mut options: Vec<&str> = fields[3].split(',').collect();
        let after_stage = options.iter().position(|o| *o == "x-systemd.after=cloud-init-network.service");
        if let Some(at) = after_stage.filter(|_| systemd) {
            let is_on_network = fields[2] == "nfs" || fields[0].contains(':');
            options.remove(at);
            if !is_on_network {
                options.retain(|o| *o != "_netdev");
                if fields[2] != "swap" {
                    options.insert(at, LOCAL);
                }
            }
        }
        let mark = options.iter().position(|o| *o == "comment=cloudconfig");
        let is_swap_file = mark.is_none() && fields[2] == "swap";
        let noauto = options.contains(&"noauto");
        let at = mark.unwrap_or(options.len());
        let is_device = fields[0].starts_with("/dev/") || fields[0].contains('=');
        if mark.is_some() && systemd && is_device && !noauto {
            options.insert(at, "x-systemd.device-timeout=30s");
        }
        if (mark.is_some() || is_swap_file) && !noauto && !options.contains(&"nofail") {
            options.insert(at, "nofail");
            if mark.is_some() && systemd {
                options.insert(at + 1, if fields[2] == "nfs" { REMOTE } else { LOCAL });
            }
        }
        fields[3] = options.join(",");
        fields.join(" ")
    };
    expected.lines().map(with_options).collect::<Vec<_>>().join("\n")
}
