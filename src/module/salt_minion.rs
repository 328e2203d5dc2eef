//! # salt_minion
//!
//! Installs and configures a Salt minion, and starts it; with `file_client: local` in `conf` it is not started, and the states of
//! the machine itself are applied instead.
//!
//! If the minion is in the image, its files are written before the system starts.
//!
//! ```yaml
//! salt_minion:
//!   conf:
//!     master: salt.example.com
//!   grains:
//!     role: [web]
//! ```
//!
//! ```schema
//! salt_minion: {
//!  pkg_name, service_name, config_dir, public_key, private_key, pki_dir: str
//!  conf, grains: map
//! }
//! ```

use super::Module;
use crate::base::error::Result;
use crate::document::{Map, Value, json, to_yaml};
use crate::instance::Frequency;
use crate::root::{Attr, Command, Ids, Stage, installed, owner};
use crate::system::{ModuleContext, packages, service};

const PROGRAM: &str = "salt-minion";

pub static MODULE: Module = Module {
    name: "salt_minion",
    stage: Stage::Final,
    frequency: Frequency::Instance,
    keys: &["salt_minion"],
    before_pivot: Some(before_pivot),
    running: Some(running),
    ..Module::NEW
};

/// Before the package is installed its folders are not known, and files in its place would stop some package managers.
fn before_pivot(cx: &mut ModuleContext) -> Result<()> {
    if installed::which(cx.root, PROGRAM).is_none() {
        return Ok(());
    }
    match cx.map("salt_minion") {
        Some(section) => write_files(cx, section),
        None => Ok(()),
    }
}

fn running(cx: &mut ModuleContext) -> Result<()> {
    let Some(section) = cx.get("salt_minion").and_then(Value::as_map) else { return Ok(()) };
    let text = |key: &str, default: &str| section.get(key).and_then(Value::text).unwrap_or_else(|| default.to_owned());
    packages::install(cx, &[text("pkg_name", PROGRAM)])?;
    write_files(cx, section)?;
    let service = text("service_name", PROGRAM);
    let conf = section.get("conf");
    let masterless = conf.and_then(|c| c.get("file_client")).and_then(Value::as_str) == Some("local");
    let verbs = if masterless { ["disable", "stop"] } else { ["enable", "restart"] };
    for verb in verbs {
        service::control(cx, verb, &service)?;
    }
    if masterless {
        cx.root.run(Command::new(["salt-call", "--local", "state.apply"]))?;
    }
    Ok(())
}

fn write_files(cx: &mut ModuleContext, section: &Map) -> Result<()> {
    let text = |key: &str| section.get(key).and_then(Value::text);
    let folder = text("config_dir").unwrap_or_else(|| "/etc/salt".into());
    let folder = folder.trim_end_matches('/');
    cx.root.mkdir(folder, Attr::root(0o755))?;
    let conf = readable(cx, section, folder);
    for (key, name, attr) in [("conf", "minion", conf), ("grains", "grains", Attr::root(0o644))] {
        if let Some(value) = section.get(key) {
            let content = format!("---\n{}...\n", to_yaml(&json::sorted(value)));
            cx.root.write(&format!("{folder}/{name}"), content, attr)?;
        }
    }
    let (Some(public), Some(private)) = (text("public_key"), text("private_key")) else { return Ok(()) };
    let pki = text("pki_dir").unwrap_or_else(|| {
        let own = format!("{folder}/pki/minion");
        if cx.root.is_dir(&own) { own } else { format!("{folder}/pki") }
    });
    // Folders that are made for the keys are root's alone, those above the last one too.
    let above = pki.match_indices('/').map(|(end, _)| &pki[..end]).filter(|path| !path.is_empty());
    for path in above.chain([&*pki]) {
        cx.root.mkdir(path, Attr::root(0o700))?;
    }
    cx.root.write(&format!("{pki}/minion.pub"), public, Attr::root(0o644))?;
    cx.root.write(&format!("{pki}/minion.pem"), private, Attr::root(0o600))
}

/// Mode and owner of the minion's configuration, which may hold passwords: readable by root and by the group of the user that the
/// minion becomes (`user` in its configuration, of which `minion.d` takes precedence).
fn readable(cx: &ModuleContext, section: &Map, folder: &str) -> Attr {
    let mut user = section.get("conf").and_then(|conf| conf.get("user")).and_then(Value::text);
    let folder = format!("{folder}/minion.d");
    for name in cx.root.list(&folder).iter().filter(|name| name.ends_with(".conf")) {
        let text = cx.root.text(&format!("{folder}/{name}"));
        let own = text.lines().filter_map(|line| line.strip_prefix("user:")).next_back();
        user = own.map(|name| name.trim().trim_matches(['\'', '"']).to_owned()).or(user);
    }
    match user.and_then(|name| owner::user_ids(cx.root, &name)) {
        Some(Ids { uid, gid }) if uid != 0 => Attr::owned(0o640, Ids { uid: 0, gid }),
        _ => Attr::root(0o600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::tests::Fixture;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn only_root_and_minions_user_read_configuration() {
        let fixture = Fixture::new("debian");
        fixture.put("/usr/bin/salt-minion", "", 0o755);
        fixture.put("/etc/passwd", "root:x:0:0::/root:/bin/sh\nsalt:x:450:451::/:/bin/sh\n", 0o644);
        let left = |conf: &str| {
            let config = format!("salt_minion: {{conf: {conf}, grains: {{role: web}}}}");
            assert_eq!(fixture.run(&config, &[MODULE.before_pivot]).errors, [""; 0]);
            ["minion", "grains"].map(|name| {
                let found = std::fs::metadata(fixture.dir.0.join("etc/salt").join(name)).unwrap();
                (found.mode() & 0o7777, found.gid())
            })
        };
        let own_group = std::fs::metadata(&fixture.dir.0).unwrap().gid();
        // Owners are given away by root alone.
        let group = if rustix::process::geteuid().is_root() { 451 } else { own_group };
        let grains = (0o644, own_group);
        assert_eq!(left("{master: m}"), [(0o600, own_group), grains]);
        assert_eq!(left("{user: salt}"), [(0o640, group), grains]);
        assert_eq!(left("{user: nobody-there}"), [(0o600, own_group), grains]);
        fixture.put("/etc/salt/minion.d/user.conf", "# user: root\nuser: 'salt'\n", 0o644);
        assert_eq!(left("{user: root}"), [(0o640, group), grains]);
    }

    #[test]
    fn the_keys_are_in_folders_of_root_alone() {
        let fixture = Fixture::new("debian");
        fixture.put("/usr/bin/salt-minion", "", 0o755);
        let config = "salt_minion: {public_key: A, private_key: B, pki_dir: /etc/salt/pki/minion}";
        assert_eq!(fixture.run(config, &[MODULE.before_pivot]).errors, [""; 0]);
        let mode = |path: &str| std::fs::metadata(fixture.dir.0.join(path)).unwrap().mode() & 0o7777;
        let paths = ["etc/salt", "etc/salt/pki", "etc/salt/pki/minion", "etc/salt/pki/minion/minion.pem"];
        assert_eq!(paths.map(mode), [0o755, 0o700, 0o700, 0o600]);
    }
}
