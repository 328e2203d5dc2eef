//! The root's package manager.

use super::service::wait_for_network;
use super::{ModuleContext, shell};
use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::document::{Value, json};
use crate::instance::{Frequency, state};
use crate::machine::{Distro, Family};
use crate::root::{Command, Root, installed};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// How long to wait for another program to release the package manager's locks.
const LOCK_WAIT: Duration = Duration::from_secs(30);
/// The shortest wait for a lock: taking a free one is faster.
const SHORTEST_WAIT: Duration = Duration::from_millis(200);
/// Locks of dpkg and apt, in the order in which apt takes them.
const APT_LOCKS: [&str; 4] =
    ["/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/cache/apt/archives/lock", "/var/lib/apt/lists/lock"];
const APT_GET: [&str; 5] = [
    "apt-get",
    "--option=Dpkg::Options::=--force-confold",
    "--option=Dpkg::options::=--force-unsafe-io",
    "--assume-yes",
    "--quiet",
];

/// A package manager: its program, and the arguments for each task.
struct Manager {
    name: &'static str,
    program: &'static str,
    families: &'static [Family],
    refresh: &'static [&'static str],
    upgrade: &'static [&'static str],
    install: &'static [&'static str],
    /// The separator between a package and its version.
    version: &'static str,
}

/// In order of preference. The first installed one of the root's family is used, else the first installed
/// one.
#[rustfmt::skip]
static MANAGERS: &[Manager] = &[
    Manager { name: "apt", program: "apt-get", families: &[Family::Debian], refresh: &["update"], upgrade: &["dist-upgrade"], install: &["install"], version: "=" },
    Manager { name: "dnf", program: "dnf", families: &[Family::Redhat], refresh: &["-y", "makecache"], upgrade: &["-y", "upgrade"], install: &["-y", "install"], version: "-" },
    Manager { name: "tdnf", program: "tdnf", families: &[Family::Photon, Family::Redhat], refresh: &["-y", "makecache"], upgrade: &["-y", "upgrade"], install: &["-y", "install"], version: "-" },
    Manager { name: "yum", program: "yum", families: &[Family::Redhat], refresh: &["-t", "-y", "makecache"], upgrade: &["-t", "-y", "upgrade"], install: &["-t", "-y", "install"], version: "-" },
    Manager { name: "zypper", program: "zypper", families: &[Family::Suse], refresh: &["--non-interactive", "refresh"], upgrade: &["--non-interactive", "update"], install: &["--non-interactive", "install", "--auto-agree-with-licenses"], version: "-" },
    Manager { name: "apk", program: "apk", families: &[Family::Alpine], refresh: &["--quiet", "update"], upgrade: &["--quiet", "upgrade", "--update-cache", "--available"], install: &["--quiet", "add"], version: "=" },
    Manager { name: "pacman", program: "pacman", families: &[Family::Arch], refresh: &["-Sy", "--quiet", "--noconfirm", "-y"], upgrade: &["-Sy", "--quiet", "--noconfirm", "-u"], install: &["-Sy", "--quiet", "--noconfirm"], version: "=" },
    Manager { name: "emerge", program: "emerge", families: &[Family::Gentoo], refresh: &["--quiet", "--sync"], upgrade: &["--quiet", "--update", "world"], install: &["--quiet"], version: "-" },
];

fn manager(root: &Root, distro: &Distro) -> Result<&'static Manager> {
    let of_family = |m: &&Manager| m.families.contains(&distro.family);
    let installed = |m: &&Manager| installed::which(root, m.program).is_some();
    let found = MANAGERS.iter().find(|m| of_family(m) && installed(m)).or_else(|| MANAGERS.iter().find(installed));
    // For a root without any of these programs (a plan): the last one of the family, which every version of
    // it has.
    let found = found.or_else(|| MANAGERS.iter().rfind(of_family).filter(|_| !root.is_live()));
    found.ok_or_else(|| {
        Error::new("no package manager is installed that is known: apt, dnf, yum, tdnf, zypper, apk, pacman")
    })
}

/// This system's package manager, once the network is up.
fn online(cx: &mut ModuleContext) -> Result<&'static Manager> {
    let manager = manager(cx.root, cx.distro)?;
    wait_for_network(cx);
    Ok(manager)
}

/// The semaphore of the first refresh, which all modules share as in cloud-init.
const REFRESHED: &str = "update_sources";

/// Refreshes the package lists, once for each instance. That APT fails is only reported, as in cloud-init: one source of
/// several may be unreachable, and the packages come from the others or are known from before.
///
/// # Errors
/// There is no package manager, or one other than APT failed.
pub fn refresh(cx: &mut ModuleContext) -> Result<()> {
    let manager = online(cx)?;
    let refreshed = refresh_with(cx, manager);
    or_reported(cx, manager, refreshed)
}

/// Refreshes the package lists again, because the package sources have changed.
///
/// # Errors
/// As [`refresh`].
pub fn refresh_again(cx: &mut ModuleContext) -> Result<()> {
    let manager = online(cx)?;
    let refreshed = run(cx, manager, manager.refresh, &[]);
    or_reported(cx, manager, refreshed)
}

/// The result of a refresh: that of APT is only reported.
fn or_reported(cx: &mut ModuleContext, manager: &Manager, refreshed: Result<()>) -> Result<()> {
    match refreshed {
        Err(e) if manager.name == "apt" => {
            cx.report.warn(format_args!("Failed to update package using apt: {e}"));
            Ok(())
        }
        other => other,
    }
}

fn refresh_with(cx: &mut ModuleContext, manager: &Manager) -> Result<()> {
    if state::is_done(cx.root, cx.instance, REFRESHED, Frequency::Instance) {
        return Ok(());
    }
    state::mark_done(cx.root, cx.instance, REFRESHED, Frequency::Instance)?;
    run(cx, manager, manager.refresh, &[])
}

/// Upgrades all packages, and on Ubuntu the snaps.
///
/// # Errors
/// There is no package manager, or an upgrade failed.
pub fn upgrade(cx: &mut ModuleContext) -> Result<()> {
    let manager = online(cx)?;
    let own = option(cx, "apt_get_upgrade_subcommand").and_then(Value::as_str).filter(|_| manager.name == "apt");
    let upgraded = match own {
        Some(own) => run(cx, manager, &[own], &[]),
        None => run(cx, manager, manager.upgrade, &[]),
    };
    let has_snaps = cx.distro.name == "ubuntu" && installed::which(cx.root, "snap").is_some();
    let refreshed = if has_snaps { refresh_snaps(cx) } else { Ok(()) };
    upgraded.and(refreshed)
}

/// Refreshes the snaps, unless the system holds them forever.
fn refresh_snaps(cx: &mut ModuleContext) -> Result<()> {
    let settings = cx.root.output(Command::new(["snap", "get", "system", "-d"]));
    let held = settings.ok().and_then(|out| json::parse("snap get system -d", &out.stdout).ok());
    if held.as_ref().and_then(|s| s.at(&["refresh", "hold"])).and_then(Value::as_str) == Some("forever") {
        log::info!("snaps are not refreshed: refresh.hold is forever");
        return Ok(());
    }
    cx.root.run(Command::new(["snap", "refresh"]))
}

/// Installs packages by name; if the manager does not refresh its lists itself, after the first refresh.
///
/// # Errors
/// There is no package manager, or packages could not be installed; the others are.
pub fn install(cx: &mut ModuleContext, names: &[String]) -> Result<()> {
    let manager = online(cx)?;
    let failed = Problems::new();
    let unknown = install_known(cx, manager, names.to_vec(), &failed)?;
    install_snaps(cx, unknown, &failed);
    installed_or_error(failed)
}

/// Installs the packages that the package manager has. Returns the others, which may be snaps.
fn install_known(
    cx: &mut ModuleContext,
    manager: &Manager,
    mut names: Vec<String>,
    failed: &Problems,
) -> Result<Vec<String>> {
    let mut unknown = Vec::new();
    if names.is_empty() {
        return Ok(unknown);
    }
    if matches!(manager.name, "apt" | "apk" | "pacman" | "emerge") {
        refresh_with(cx, manager)?;
    }
    if manager.name == "apt" && cx.root.runs_commands() {
        let known = known_to_apt(cx)?;
        (names, unknown) = names.into_iter().partition(|n| known.contains(&bare(n)));
        let has_snap = cx.distro.name == "ubuntu" && installed::which(cx.root, "snap").is_some();
        // A version or a release is apt's. To snap, the version would be the name of another snap.
        let (snaps, missing) = unknown.into_iter().partition(|n| has_snap && !n.contains(['=', '/']));
        unknown = snaps;
        Vec::into_iter(missing).for_each(|n: String| failed.error(format_args!("{n} is not in the archive")));
    }
    if !names.is_empty()
        && let Err(e) = run(cx, manager, manager.install, &names)
    {
        failed.error(format!("{}: {e}", names.join(" ")));
    }
    Ok(unknown)
}

fn install_snaps(cx: &mut ModuleContext, snaps: Vec<String>, failed: &Problems) {
    for snap in snaps {
        let words = ["snap", "install"].into_iter().chain(snap.splitn(2, '='));
        if let Err(e) = cx.root.run(Command::new(words)) {
            failed.error(format!("{snap}: {e}"));
        }
    }
}

fn installed_or_error(failed: Problems) -> Result<()> {
    if failed.is_empty() {
        return Ok(());
    }
    Err(Error::new(format!("failed to install packages: {}", failed.errors().join("; "))))
}

/// Installs the entries of `packages`: names, `[name, version]`, and names below a particular manager (`apt`,
/// `snap`).
///
/// # Errors
/// A package could not be installed, which the error names; the others are.
pub fn install_listed(cx: &mut ModuleContext, list: &[Value]) -> Result<()> {
    let manager = online(cx)?;
    // Packages below a particular manager are not looked for elsewhere.
    let (mut names, mut own_names, mut snaps, failed) = (Vec::new(), Vec::new(), Vec::new(), Problems::new());
    for (i, entry) in list.iter().enumerate() {
        let key = format!("packages: entry {}", i + 1);
        let Some(map) = entry.as_map() else {
            keep(named(&key, entry, manager.version), &mut names, &failed);
            continue;
        };
        for (own, entries) in map.iter() {
            for entry in entries.as_list().unwrap_or_default() {
                match own {
                    "snap" => keep(named(&key, entry, "="), &mut snaps, &failed),
                    own if own == manager.name => keep(named(&key, entry, manager.version), &mut own_names, &failed),
                    _ => cx.report.error(format_args!("{key}: {own} is not this system's package manager")),
                }
            }
        }
    }
    let only_here: HashSet<String> = own_names.iter().cloned().collect();
    names.extend(own_names);
    let mut seen = HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    let unknown = install_known(cx, manager, names, &failed)?;
    let (missing, maybe_snaps): (Vec<String>, Vec<String>) = unknown.into_iter().partition(|n| only_here.contains(n));
    missing.into_iter().for_each(|n| failed.error(format_args!("{n} is not in the archive")));
    snaps.extend(maybe_snaps);
    seen.clear();
    snaps.retain(|name| seen.insert(name.clone()));
    install_snaps(cx, snaps, &failed);
    installed_or_error(failed)
}

fn keep(name: Result<String>, names: &mut Vec<String>, failed: &Problems) {
    match name {
        Ok(name) => names.push(name),
        Err(e) => failed.error(e.to_string()),
    }
}

/// A package with its version in the manager's syntax. A name is never interpreted as an option.
fn named(key: &str, entry: &Value, version: &str) -> Result<String> {
    let name = match entry {
        Value::List(pair) => match pair.as_slice() {
            [name] | [name, Value::Null] => name.text(),
            [name, Value::String(none)] if none.is_empty() => name.text(),
            [name, of] => name.text().zip(shell::word(of)).map(|(name, of)| format!("{name}{version}{of}")),
            _ => None,
        },
        other => other.text(),
    };
    let plain = |n: &String| !n.is_empty() && !n.starts_with('-') && !n.contains(|c: char| c.is_control());
    name.filter(plain).ok_or_else(|| Error::new(format!("{key}: expected a package's name, or a name and a version")))
}

/// The name as in apt's list: without version, release, and the suffixes for tasks and removals (apt-get(8)). A `+` at its end may
/// belong to it: `g++`.
fn bare(name: &str) -> String {
    name.split(['=', '/']).next().unwrap_or(name).trim_end_matches(['-', '^']).to_owned()
}

fn known_to_apt(cx: &mut ModuleContext) -> Result<HashSet<String>> {
    let output = cx.root.output(Command::new(["apt-cache", "pkgnames"]))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

/// A setting of the distribution, below `system_info`.
fn option<'a>(cx: &ModuleContext<'a>, key: &str) -> Option<&'a Value> {
    cx.config.at(&["system_info", key]).filter(|v| !v.is_null())
}

fn run(cx: &mut ModuleContext, manager: &Manager, arguments: &[&str], names: &[String]) -> Result<()> {
    let mut argv = if manager.name == "apt" { apt_get(cx)? } else { vec![manager.program.to_owned()] };
    if manager.name == "zypper" && arguments != manager.refresh && is_transactional(cx.root) {
        argv = ["transactional-update", "--non-interactive", "--drop-if-no-change"].map(str::to_owned).to_vec();
        let words =
            if arguments == manager.upgrade { &["up"][..] } else { &["pkg", "install", "--auto-agree-with-licenses"] };
        argv.extend(words.iter().map(|w| (*w).to_owned()));
    } else {
        argv.extend(arguments.iter().map(|a| (*a).to_owned()));
    }
    argv.extend(names.iter().cloned());
    let mut command = Command::new(argv);
    if manager.name != "apt" {
        return cx.root.run(command);
    }
    command = command.env("DEBIAN_FRONTEND", "noninteractive");
    let until = Instant::now() + LOCK_WAIT;
    loop {
        await_locks(cx.root, until)?;
        match cx.root.run(command.clone()) {
            // Another program can take a lock between the check and the run.
            Err(_) if cx.root.is_live() && !locks_are_free(cx.root) && Instant::now() < until => {}
            result => return result,
        }
    }
}

/// apt-get with its options; in front of it a program that makes it faster, if installed (`apt_get_command`,
/// `apt_get_wrapper`).
fn apt_get(cx: &ModuleContext) -> Result<Vec<String>> {
    let command = match option(cx, "apt_get_command") {
        Some(value) => shell::words("system_info.apt_get_command", value)?,
        None => APT_GET.map(str::to_owned).to_vec(),
    };
    let wrapper = option(cx, "apt_get_wrapper");
    let words = match wrapper.and_then(|w| w.get("command")) {
        Some(Value::String(program)) => vec![program.to_string()],
        Some(value) => shell::words("system_info.apt_get_wrapper.command", value)?,
        None => vec!["eatmydata".to_owned()],
    };
    let enabled = wrapper.and_then(|w| w.get("enabled"));
    let auto = wrapper.is_none() || enabled.and_then(Value::as_str).is_some_and(|e| e.eq_ignore_ascii_case("auto"));
    let installed = words.first().is_some_and(|w| installed::which(cx.root, w).is_some());
    let wraps = enabled.is_some_and(Value::is_true) || (auto && installed);
    Ok(words.into_iter().filter(|_| wraps).chain(command).collect())
}

/// Whether the root consists of snapshots, which only transactional-update can change.
fn is_transactional(root: &Root) -> bool {
    installed::which(root, "transactional-update").is_some()
        && root.text("/proc/self/mounts").lines().any(|l| {
            let mut fields = l.split(' ').skip(1);
            (fields.next(), fields.next()) == (Some("/"), Some("btrfs"))
        })
}

fn locks_are_free(root: &Root) -> bool {
    await_locks(root, Instant::now()).is_ok()
}

/// Waits until no other process holds one of apt's locks.
fn await_locks(root: &Root, until: Instant) -> Result<()> {
    for path in APT_LOCKS.into_iter().filter(|path| root.exists(path)) {
        drop(root.lock(path, until.saturating_duration_since(Instant::now()).max(SHORTEST_WAIT))?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::document::yaml;
    use crate::root::{Output, Use};
    use crate::system::testing::Inputs;

    #[test]
    fn does_not_ask_snap_for_apts_versions() {
        let dir = TempDir::new("packages");
        ["usr/bin/apt-get", "usr/bin/snap"].iter().for_each(|path| dir.program(path));
        let mut root = dir.root(Use::Tree);
        root.play(Box::new(|_, _| Ok(Output { status: 0, stdout: b"vim\n".to_vec(), stderr: Vec::new() })));
        let inputs = Inputs::new("ubuntu", "");
        let list = yaml::parse("t", "[vim, hello, [world, '1.0'], one/noble, snap: [[lxd, --edge]]]").unwrap();
        let error = install_listed(&mut inputs.context(&mut root), list.as_list().unwrap()).unwrap_err().to_string();
        assert!(error.contains("world=1.0 is not in the archive; one/noble is not in the archive"), "{error}");
        let commands: Vec<String> = root.commands().iter().map(|c| c.argv.join(" ")).collect();
        let (apt, snaps) = commands.split_at(commands.len() - 2);
        assert!(apt.last().unwrap().ends_with(" install vim"), "{apt:?}");
        assert_eq!(snaps, ["snap install lxd --edge", "snap install hello"]);
    }

    #[test]
    fn names_with_versions_and_never_options() {
        let name = |text: &str| named("p", &yaml::parse("t", text).unwrap(), "=");
        assert_eq!(name("git").unwrap(), "git");
        assert_eq!(name("[git, 1.0]").unwrap(), "git=1.0");
        assert_eq!(name("[git]").unwrap(), "git");
        assert_eq!(name("[git, '']").unwrap(), "git");
        for wrong in ["--allow-unauthenticated", "[a, b, c]", "''", "[]", "{a: b}", "\"a\\nb\""] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
        assert_eq!(bare("vim-/bookworm"), "vim");
        assert_eq!(bare("libx=1.2"), "libx");
        assert_eq!(bare("g++=4:12"), "g++");
    }
}
