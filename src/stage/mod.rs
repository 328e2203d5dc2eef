//! What runs when: the local stage in the initramfs (find the datasource, provision the new root), the stages
//! of the real root, and the hand-over between them.

pub mod boot;
pub mod close;
pub mod compare;
pub mod config;
mod credentials;
#[cfg(test)]
mod deprecations;
pub mod diff;
pub mod distributions;
mod feedback;
pub mod first_process;
pub mod handover;
pub mod hotplug;
pub mod image;
mod keys;
pub mod local;
pub mod modules;
mod mount_root;
pub mod network;
mod output;
pub mod outside;
mod part_handlers;
mod password;
mod paths;
pub mod plan;
pub mod provision;
mod real_root;
pub mod refresh;
mod reporting;
mod rerun;
mod schedule;
pub mod search;
pub mod single;
#[cfg(test)]
pub mod testing;
pub mod trust;
pub mod web;

pub use real_root::{background, run};

use crate::base::clock;
use crate::base::deadline::{Deadline, Extension};
use crate::base::error::{Error, Result};
use crate::base::logging::{self, Message};
use crate::base::problem::Problems;
use crate::base::signal;
use crate::base::thread;
use crate::document::{Map, Value};
use crate::instance::status::{self, Status};
use crate::instance::{Instance, state};
use crate::machine::Machine;
use crate::root::{Attr, CLOUD_INIT_LOG as LOG, Root, Stage, Use, owner};
use crate::source::none;
use rustix::process::{Signal, getpgrp, getpid, kill_current_process_group};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

/// The time budget of the stage in the initramfs, unless `prepivot.timeout=` on the kernel command line sets
/// another.
pub const BUDGET: Duration = Duration::from_secs(120);
/// The largest value of `prepivot.timeout=`.
const MAX_BUDGET: Duration = Duration::from_secs(3600);

/// Options that the command line gives a stage.
#[derive(Debug, Default)]
pub struct Options {
    /// Configuration files that take precedence over all other configuration, by name; the first over the
    /// others.
    pub files: Vec<(String, Map)>,
    /// Whether modules run even without an instance.
    pub force: bool,
    /// The stage in the line that begins it, where the command calls it by another name.
    pub action: Option<&'static str>,
}

impl Options {
    /// This boot's instance; with `force` and without one, the instance of the datasource None.
    fn instance(&self, root: &Root) -> Option<Instance> {
        state::cached(root).or_else(|| self.force.then(|| none::instance(None)))
    }
}

/// What a service that is there and asks this machine to wait adds to [`BUDGET`], once.
const MORE: Duration = Duration::from_secs(180);
static EXTENSION: Extension = Extension::of(MORE);

/// The stage's deadline: `prepivot.timeout=SECONDS`, else [`BUDGET`], which a service can extend ([`MORE`]).
pub fn deadline(machine: &Machine) -> Deadline {
    let asked = machine.cmdline.value("prepivot.timeout").and_then(|v| match v.parse::<u64>() {
        Ok(seconds) => Some(Duration::from_secs(seconds).min(MAX_BUDGET)),
        Err(_) => {
            log::warn!("kernel command line: prepivot.timeout: expected a number of seconds");
            None
        }
    });
    match asked {
        Some(asked) => Deadline::after(asked),
        None => Deadline::after(BUDGET).extensible(&EXTENSION),
    }
}

/// How long a stage of the initramfs may take beyond its deadline, to write what it has found.
const BEYOND: Duration = Duration::from_secs(20);
/// The time that systemd adds before it ends the stage, as in the unit of [`BUDGET`].
const GRACE: Duration = Duration::from_secs(10);

/// Ends this process with exit code 1 if the initramfs's stage still runs [`BEYOND`] its deadline, or at [`BUDGET`] if that is
/// later. Every wait of the stage's own respects the deadline. A device that does not answer, a driver, and random numbers before
/// the kernel has any do not, and not every initramfs ends a hanging process. The real root's first stage carries out the journal
/// and does the rest.
pub fn end_in_time(machine: &Machine) {
    let limit = deadline(machine).left().max(BUDGET) + BEYOND;
    let watch = move || {
        std::thread::sleep(limit);
        // Before the unit's own time is over.
        let more = EXTENSION.granted();
        if !more.is_zero() {
            ask_systemd_for(more + GRACE, std::env::var_os("NOTIFY_SOCKET"));
            std::thread::sleep(more);
        }
        logging::console(&format!(
            "provisioning ends unfinished after {} s (prepivot.timeout=); the real root's first stage goes on with it",
            (limit + more).as_secs()
        ));
        std::process::exit(1);
    };
    // If spawning fails, the missing time limit is the least problem.
    let _ = thread::spawn(watch);
}

/// Makes systemd wait for a stage if the kernel command line allows it more time than its unit does (sd_notify(3),
/// EXTEND_TIMEOUT_USEC). `socket`: systemd's, if it has started this program.
fn extend_timeout(socket: Option<std::ffi::OsString>, deadline: Deadline) {
    if deadline.left() > BUDGET {
        ask_systemd_for(deadline.left() + BEYOND + GRACE, socket);
    }
}

/// Makes systemd wait for this stage for `time` from now.
fn ask_systemd_for(time: Duration, socket: Option<std::ffi::OsString>) {
    let Some(socket) = socket else { return };
    let message = format!("EXTEND_TIMEOUT_USEC={}000000", time.as_secs());
    let sent = UnixDatagram::unbound().and_then(|own| own.send_to(message.as_bytes(), socket));
    if let Err(e) = sent {
        log::warn!("systemd was not asked for more time: {e}");
    }
}

/// Whether a failure stops the boot: `prepivot.fail=emergency`.
pub fn fails_loudly(machine: &Machine) -> bool {
    machine.cmdline.value("prepivot.fail") == Some("emergency")
}

/// The line that begins a stage, in cloud-init's words: programs that watch the console or the log look for
/// it.
fn welcome(action: &str) -> String {
    let (version, uptime) = (env!("CARGO_PKG_VERSION"), status::uptime());
    format!("Cloud-init v. {version} running '{action}' at {}. Up {uptime:.2} seconds.", clock::now())
}

/// The mode of cloud-init's log.
const LOG_MODE: u32 = 0o640;

/// Makes status.json readable in /run where the disk could not be written.
fn rescue(status: &Status, root: &mut Root, report: &Problems) {
    if report.keep(status.rescue(root)) == Some(true) {
        commit(root, report);
    }
}

/// Carries out the changes that an earlier run left. Called before anything is read; failures are errors of
/// the report.
fn recover(root: &mut Root) -> Problems {
    let report = Problems::new();
    for error in root.recover() {
        log::error!("{error}");
        report.error(error);
    }
    report
}

/// [`recover`], once no other run of the stage is left. The local and the network stage share a lock: one plans on what the other has
/// done.
fn recover_locked(root: &mut Root, stage: Stage) -> Problems {
    let of = if stage == Stage::Local { Stage::Network } else { stage };
    let locked = root.lock_stage(of.name());
    let report = recover(root);
    if let Err(e) = locked {
        report.warn(e);
    }
    report
}

/// Writes the changes so far; failures are errors of the report.
fn commit(root: &mut Root, report: &Problems) {
    root.commit().iter().for_each(|e| report.error(e));
}

/// The group that may read logs.
const LOG_GROUP: &str = "adm";
/// Above this size, in bytes, the log is started anew.
const MAX_LOG: u64 = 4 << 20;

/// Ends a stage of the running system on SIGINT and SIGTERM as cloud-init does: with two lines in the log and
/// exit code 0. If this process leads a process group, as a service does, its child processes are ended too. The next stage writes
/// the changes that are still missing.
pub fn end_on_signals() {
    signal::catch(|signal| {
        let number = signal as i32;
        log::info!("Received signal {number} resulting in exit. Cause:");
        log::info!("Cloud-init {} received {number}, exiting", env!("CARGO_PKG_VERSION"));
        if let Ok(mut root) = Root::open(Path::new("/"), Use::Tree) {
            let _ = append_log(&mut root, &logging::take());
            root.commit();
        }
        if getpgrp() == getpid() {
            let _ = kill_current_process_group(Signal::TERM);
        }
        std::process::exit(0);
    });
}

/// Adds a stage's messages to cloud-init's log.
fn append_log(root: &mut Root, messages: &[Message]) -> Result<()> {
    append_to_log(root, logging::to_file_lines(messages).as_bytes())
}

/// Adds lines to cloud-init's log, which keeps its owner; a new one is readable by the group adm, if there is one.
fn append_to_log(root: &mut Root, lines: &[u8]) -> Result<()> {
    restrict_log(root)?;
    let attr = Attr { gid: owner::group_id(root, LOG_GROUP).unwrap_or(0), ..Attr::root(LOG_MODE) };
    if root.stat(LOG).is_some_and(|s| s.size > MAX_LOG) {
        return root.rewrite(LOG, lines, attr);
    }
    root.append(LOG, lines, attr)
}

/// Gives the log its mode back, as cloud-init 26.2 does in each boot: it may hold what not everyone is to read.
fn restrict_log(root: &mut Root) -> Result<()> {
    match root.stat(LOG).filter(|log| log.attr.mode != LOG_MODE) {
        Some(log) => root.set_attr(LOG, Attr { mode: LOG_MODE, ..log.attr }),
        None => Ok(()),
    }
}

/// Gives the log to the first owner in the image's `syslog_fix_perms` that the root has.
fn own_log(root: &mut Root, image: &Value) -> Result<()> {
    let named: Vec<&str> = match image.get("syslog_fix_perms") {
        Some(Value::String(one)) => vec![one],
        Some(Value::List(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => return Ok(()),
    };
    let Some(log) = root.stat(LOG) else { return Ok(()) };
    let found = named.iter().find_map(|owner| {
        let (user, group) = owner.split_once(':').unwrap_or((owner, ""));
        let keeps = |name: &str| ["", "-1", "none"].contains(&name.to_ascii_lowercase().as_str());
        let uid = if keeps(user) { log.attr.uid } else { owner::user_ids(root, user)?.uid };
        let gid = if keeps(group) { log.attr.gid } else { owner::group_id(root, group)? };
        Some(Attr { uid, gid, ..log.attr })
    });
    match found {
        Some(attr) => root.set_attr(LOG, attr),
        None => Err(Error::new(format!("Failed changing perms on '{LOG}'. tried: {}", named.join(",")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::document::yaml;
    use crate::machine::Cmdline;

    #[test]
    fn log_belongs_to_the_first_existing_owner() {
        let dir = TempDir::new("log-owner");
        std::fs::create_dir(dir.0.join("etc")).unwrap();
        dir.write("etc/passwd", "syslog:x:7:8::/:/bin/sh\n");
        dir.write("etc/group", "adm:x:9:\n");
        let mut root = dir.root(Use::Tree);
        root.write(LOG, "line\n", Attr::root(0o600)).unwrap();
        let mut owner = |text: &str| {
            let result = own_log(&mut root, &yaml::parse("t", text).unwrap());
            let Attr { uid, gid, mode } = root.stat(LOG).unwrap().attr;
            assert_eq!(mode, 0o600);
            result.map(|()| (uid, gid)).map_err(|e| e.to_string())
        };
        assert_eq!(owner("{}"), Ok((0, 0)));
        assert_eq!(owner("syslog_fix_perms: [nobody-here:adm, 'syslog:adm', 'root:root']"), Ok((7, 9)));
        assert_eq!(owner("syslog_fix_perms: '-1:root'"), Ok((7, 0)));
        let error = "Failed changing perms on '/var/log/cloud-init.log'. tried: a:b,c:d";
        assert_eq!(owner("syslog_fix_perms: ['a:b', 'c:d']"), Err(error.to_owned()));
    }

    #[test]
    fn log_gets_its_mode_back() {
        let dir = TempDir::new("log-mode");
        let mut root = dir.root(Use::Tree);
        restrict_log(&mut root).unwrap();
        assert!(!root.exists(LOG));
        for mode in [0o644, 0o600, 0o640] {
            root.write(LOG, "line\n", Attr { gid: 4, ..Attr::root(mode) }).unwrap();
            root.set_attr(LOG, Attr { gid: 4, ..Attr::root(mode) }).unwrap();
            append_to_log(&mut root, b"more\n").unwrap();
            let Attr { mode, gid, .. } = root.stat(LOG).unwrap().attr;
            assert_eq!((mode, gid, root.text(LOG).as_str()), (0o640, 4, "line\nmore\n"));
        }
    }

    #[test]
    fn stage_has_two_minutes_or_the_configured_time() {
        let seconds = |line: &str| {
            let machine = Machine { cmdline: Cmdline::new(line), ..Machine::default() };
            deadline(&machine).left().as_secs_f64().round()
        };
        assert_eq!(seconds("quiet"), 120.0);
        assert_eq!(seconds("prepivot.timeout=7"), 7.0);
        assert_eq!(seconds("prepivot.timeout=0"), 0.0);
        assert_eq!(seconds("prepivot.timeout=99999"), MAX_BUDGET.as_secs_f64());
        assert_eq!(seconds("prepivot.timeout=soon"), 120.0);
    }

    #[test]
    fn systemd_extends_stage_to_kernel_command_lines_time() {
        let dir = TempDir::new("extend");
        let path = dir.0.join("notify");
        let systemd = UnixDatagram::bind(&path).unwrap();
        systemd.set_nonblocking(true).unwrap();
        let received = |seconds| {
            extend_timeout(Some(path.clone().into()), Deadline::after(Duration::from_secs(seconds)));
            let mut message = [0; 100];
            let length = systemd.recv(&mut message).unwrap_or(0);
            String::from_utf8_lossy(&message[..length]).into_owned()
        };
        assert_eq!(received(120), "", "as the unit has it");
        let message = received(300);
        let microseconds = message.strip_prefix("EXTEND_TIMEOUT_USEC=").and_then(|n| n.parse::<u64>().ok()).unwrap();
        assert!((325_000_000..=330_000_000).contains(&microseconds), "{message}");
        extend_timeout(None, Deadline::after(Duration::from_secs(300)));
        // It takes the message only from units that say so.
        for unit in [
            include_str!("../../initramfs/units/prepivot-apply.service"),
            include_str!("../../initramfs/units/cloud-init-local.service"),
        ] {
            assert!(unit.contains("\nNotifyAccess=main\n"), "{unit}");
        }
    }
}
