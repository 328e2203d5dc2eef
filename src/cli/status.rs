//! `status`: how far this boot's provisioning is, and how well it went.

use super::program::{Program, USAGE, print};
use super::progress::Progress;
use super::units::{self, Outlook};
use super::verb::Verb;
use crate::base::clock;
use crate::base::error::{Context, Result};
use crate::detect;
use crate::document::{Value, json, to_yaml};
use crate::instance::boot::{self, Boot, BootStatus, FirstProcess};
use crate::instance::report::{Running, StatusReport};
use crate::instance::state::{CLOUD_DIR, RUN_DIR};
use crate::instance::status::uptime;
use crate::machine::Machine;
use crate::root::{Root, Use, installed, run_dir};
use crate::stage::close;
use crate::system::service::uses_systemd;
use argh::{ArgsInfo, FromArgs};
use log::LevelFilter;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

/// show how far provisioning is, and how well it went
#[derive(FromArgs, ArgsInfo)]
#[argh(
    subcommand,
    name = "status",
    help_triggers("-h", "--help"),
    note = "Without a datasource provisioning is disabled. Where both prepivot and cloud-init are installed, --long and the other \
            formats have provisioned_by: the one whose units run.",
    error_code(0, "it went well, is disabled, or has not started"),
    error_code(1, "something failed"),
    error_code(2, "there are warnings: recoverable errors")
)]
pub struct Status {
    /// how to print it; default: tabular
    #[argh(option, arg_name = "tabular|json|yaml", default = "Format::Tabular", from_str_fn(format))]
    format: Format,
    /// show errors, warnings, the datasource and the time of the last change
    #[argh(switch, short = 'l')]
    long: bool,
    /// wait for the end of provisioning; a terminal shows what is done now, and for how long
    #[argh(switch, short = 'w')]
    wait: bool,
    /// the root to read, a mounted image for example; default: this system
    #[argh(option, arg_name = "dir", default = "String::from(\"/\")")]
    root: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Format {
    Tabular,
    Json,
    Yaml,
}

fn format(name: &str) -> std::result::Result<Format, String> {
    match name {
        "tabular" => Ok(Format::Tabular),
        "json" => Ok(Format::Json),
        "yaml" => Ok(Format::Yaml),
        _ => Err("expected tabular, json or yaml".into()),
    }
}

/// How long an event is waited for before systemd is asked again, in seconds.
const INTERVAL: i64 = 1;

impl Verb for Status {
    fn run(self, program: &Program) -> ExitCode {
        program.log(LevelFilter::Warn);
        match self.report(program) {
            Ok((report, beside)) => {
                print(&self.text(&report, beside));
                ExitCode::from(report.exit_code())
            }
            Err(code) => code,
        }
    }
}

impl Status {
    /// The output of `status`, at once or at the end of provisioning.
    fn report(&self, program: &Program) -> std::result::Result<(StatusReport, Beside), ExitCode> {
        let mut source = Source::open(&self.root).map_err(|e| program.fail(e))?;
        if self.wait && !source.live {
            program.say("--wait is for this system; leave --root out");
            return Err(ExitCode::from(USAGE));
        }
        let provider = units::provider(&source.root);
        let changes = self.wait.then(Changes::new);
        let (mut progress, mut has_ended) = (Progress::new(), false);
        loop {
            if let Some(changes) = &changes {
                changes.watch();
            }
            let mut report = source.report().map_err(|e| program.fail(e))?;
            let mut outlook = if report.running.is_open() { source.outlook() } else { Outlook::Going };
            let had_ended = std::mem::replace(&mut has_ended, outlook == Outlook::Ended);
            if has_ended {
                // result.json may have been written since it was looked for. If the stage was killed, it never is.
                outlook = if had_ended { Outlook::Never } else { Outlook::Going };
            }
            let started = report.running == Running::Running;
            if started && (outlook == Outlook::Failed || (self.wait && outlook == Outlook::Never)) {
                report.fail_by_unit();
            }
            let Some(changes) = changes.as_ref().filter(|_| report.running.is_open()) else {
                progress.end();
                return Ok((report, source.beside(provider)));
            };
            if outlook != Outlook::Going {
                program.say("not waited for: systemd has no job for any of the stages");
                return Ok((report, source.beside(provider)));
            }
            if self.format == Format::Tabular {
                progress.show(&report);
            }
            changes.wait();
        }
    }

    fn text(&self, report: &StatusReport, beside: Beside) -> String {
        let mut value = report.to_value();
        if let Value::Map(map) = &mut value {
            for (key, state) in beside.lines() {
                map.insert(key, state);
            }
        }
        match self.format {
            Format::Tabular => tabular(report, beside, self.long),
            Format::Json => json::to_string_indented(&json::sorted(&value), "  ") + "\n",
            Format::Yaml => format!("---\n{}...\n\n", to_yaml(&json::sorted(&value))),
        }
    }
}

fn tabular(report: &StatusReport, beside: Beside, long: bool) -> String {
    let mut out = format!("status: {}\n", report.status());
    if !long {
        return out;
    }
    out += &format!("extended_status: {}\n", report.extended_status());
    out += &format!("boot_status_code: {}\n", report.boot.status.name());
    if !report.last_update.is_empty() {
        out += &format!("last_update: {}\n", report.last_update);
    }
    out += &format!("detail: {}\n", report.description);
    for (key, state) in beside.lines() {
        out += &format!("{key}: {state}\n");
    }
    let lines = |list: &[Value]| -> String {
        list.iter().map(|v| format!("\n\t- {}", v.text().unwrap_or_default().replace('\n', " "))).collect()
    };
    out += &format!("errors:{}\n", if report.errors.is_empty() { " []".to_owned() } else { lines(&report.errors) });
    out += "recoverable_errors:";
    for (level, texts) in report.recoverable_errors.iter() {
        out += &format!("\n{level}:{}", lines(texts.as_list().unwrap_or_default()));
    }
    out + if report.recoverable_errors.is_empty() { " {}\n" } else { "\n" }
}

/// What is shown beside a stage's status, if it is there.
#[derive(Clone, Copy)]
struct Beside {
    /// The program that provisions ([`units::provider`]).
    provider: Option<&'static str>,
    /// Whether the metadata service is closed to users ([`close::state`]).
    closed: Option<&'static str>,
}

impl Beside {
    fn lines(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let provider = self.provider.map(|provider| ("provisioned_by", provider));
        provider.into_iter().chain(self.closed.map(|state| ("metadata_service", state)))
    }
}

/// Where a boot's status is read: this system, or a root.
pub struct Source {
    pub root: Root,
    machine: Machine,
    /// Whether it is this system.
    live: bool,
    systemd: bool,
    /// Whether systemd's environment disables provisioning, once it was queried.
    environment: Option<bool>,
}

impl Source {
    /// Opens the root at `path`. Nothing is ever written to it.
    ///
    /// # Errors
    /// The root cannot be opened.
    pub fn open(path: &str) -> Result<Source> {
        let path = Path::new(path);
        let root = Root::open(path, Use::Tree)?;
        let live = root.is_live();
        let booted = root.is_dir("/run/systemd/system");
        let installed = || uses_systemd(&root, &installed::distro(&root));
        let systemd = booted || (!live && installed());
        Ok(Source { machine: Machine::read(path), live, systemd, environment: None, root })
    }

    /// Reads status.json and result.json.
    ///
    /// # Errors
    /// A file cannot be read, or is not what prepivot or cloud-init writes.
    pub fn report(&mut self) -> Result<StatusReport> {
        let path = format!("{RUN_DIR}/status.json");
        let status = self.root.read(&path)?.map(|bytes| json::parse(&path, &bytes)).transpose();
        let mut status = status.context(|| "failed to read the status")?;
        let finished = self.root.exists(&format!("{RUN_DIR}/result.json"));
        if self.environment.is_none() && self.live && self.systemd && boot::asked(&self.root, &self.machine).is_none() {
            self.environment = Some(by_environment() || units::environment_disables(&mut self.root));
        }
        let first = match (self.systemd, self.environment) {
            (false, _) => FirstProcess::Other,
            (true, Some(true)) => FirstProcess::DisablingSystemd,
            (true, _) => FirstProcess::Systemd,
        };
        let mut boot = boot::decide(&self.root, &self.machine, first);
        // A boot without a datasource is a disabled one, as where ds-identify finds nothing.
        if !boot.status.is_disabled()
            && let Some(reason) = status.as_ref().and_then(|status| self.found_nothing(status))
        {
            boot = Boot { status: BootStatus::DisabledByGenerator, reason };
            status = None;
        }
        let started = if self.live { clock::since_1970(SystemTime::now()).as_secs_f64() - uptime() } else { 0.0 };
        Ok(StatusReport::new(status.as_ref(), finished, boot, started))
    }

    /// Why there is no datasource, once prepivot's network stage is over and had none. None if there is one, it is still
    /// looked for, or something failed.
    fn found_nothing(&self, status: &Value) -> Option<String> {
        let v1 = status.get("v1")?;
        let is_over =
            self.root.is_dir(run_dir::DIR) && v1.at(&["init", "finished"]).is_some_and(|time| !time.is_null());
        let errors = |stage: &Value| stage.get("errors").and_then(Value::as_list).is_some_and(|list| !list.is_empty());
        if !is_over || v1.get("datasource") != Some(&Value::Null) || v1.as_map()?.iter().any(|(_, stage)| errors(stage))
        {
            return None;
        }
        let warning = v1.at(&["init-local", "recoverable_errors", "WARNING"]).and_then(Value::as_list);
        let warning = warning.and_then(|list| list.last()).and_then(Value::as_str);
        Some(warning.unwrap_or("no datasource was found").to_owned())
    }

    fn beside(&self, provider: Option<&'static str>) -> Beside {
        Beside { provider, closed: if self.live { close::state(&self.root) } else { None } }
    }

    fn outlook(&mut self) -> Outlook {
        if self.live && self.systemd { units::outlook(&mut self.root) } else { Outlook::Going }
    }
}

fn by_environment() -> bool {
    std::env::var_os(detect::VARIABLE).is_some_and(|v| v.to_string_lossy().contains(detect::DISABLED))
}

/// Notifies of changes to the files with the state of the boot.
struct Changes(Option<OwnedFd>);

impl Changes {
    fn new() -> Changes {
        Changes(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok())
    }

    /// Watches the folders that exist by now, besides those watched already.
    fn watch(&self) {
        let Changes(Some(fd)) = self else { return };
        for folder in ["/run".to_owned(), RUN_DIR.to_owned(), format!("{CLOUD_DIR}/data")] {
            let _ = inotify::add_watch(fd, folder, WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::DELETE);
        }
    }

    /// Waits for a change, [`INTERVAL`] at most.
    fn wait(&self) {
        let interval = Timespec { tv_sec: INTERVAL, tv_nsec: 0 };
        match &self.0 {
            Some(fd) => {
                let _ = poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&interval));
                let mut events = [0; 4096];
                while rustix::io::read(fd, &mut events).is_ok_and(|n| n > 0) {}
            }
            None => drop(poll(&mut [], Some(&interval))),
        }
    }
}
