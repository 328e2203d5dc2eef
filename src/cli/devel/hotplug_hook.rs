//! `devel hotplug-hook`: network devices that are added to the running system.

use crate::cli::program::{FAILED, Program, print};
use crate::cli::real_root;
use crate::cli::verb::Verb;
use crate::machine::Machine;
use crate::root::{Root, Use};
use crate::stage::hotplug;
use argh::{ArgsInfo, FromArgs};
use log::LevelFilter;
use std::path::Path;
use std::process::ExitCode;

/// configure network devices that are added to the running system
#[derive(FromArgs, ArgsInfo)]
#[argh(
    subcommand,
    name = "hotplug-hook",
    help_triggers("-h", "--help"),
    error_code(1, "there is no datasource, or a device could not be configured")
)]
pub struct HotplugHook {
    /// the subsystem
    #[argh(option, short = 's', arg_name = "net", from_str_fn(net))]
    #[allow(dead_code)]
    subsystem: (),
    #[argh(subcommand)]
    action: Action,
}

#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand)]
enum Action {
    Query(Query),
    Handle(Handle),
    Enable(Enable),
}

/// say whether hotplug is enabled
#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand, name = "query", help_triggers("-h", "--help"))]
struct Query {}

/// configure a device that was added, if hotplug is enabled: the datasource is asked again until it knows the device
#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand, name = "handle", help_triggers("-h", "--help"))]
struct Handle {
    /// the device's path in sysfs
    #[argh(option, short = 'd')]
    devpath: String,
    /// what happened; nothing is done for a device that was removed
    #[argh(option, short = 'u', arg_name = "add|remove", from_str_fn(action))]
    udevaction: String,
}

/// enable hotplug, and install the udev rule that reports devices
#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand, name = "enable", help_triggers("-h", "--help"))]
struct Enable {}

fn net(name: &str) -> Result<(), String> {
    if name == "net" { Ok(()) } else { Err("expected net".into()) }
}

fn action(name: &str) -> Result<String, String> {
    if matches!(name, "add" | "remove") { Ok(name.to_owned()) } else { Err("expected add or remove".into()) }
}

impl Verb for HotplugHook {
    fn run(self, program: &Program) -> ExitCode {
        let code = match self.action {
            Action::Query(Query {}) => return query(program),
            Action::Handle(handle) if handle.udevaction == "add" => real_root::run(program, &[], |root, machine, _| {
                log_call("handle", &handle.udevaction, &handle.devpath);
                hotplug::added(root, machine, &handle.devpath)
            }),
            Action::Handle(_) => ExitCode::SUCCESS,
            Action::Enable(Enable {}) => real_root::run(program, &[], |root, machine, _| {
                log_call("enable", "None", "None");
                let errors = hotplug::enable(root, machine);
                if errors.is_empty() {
                    print("Enabled cloud-init hotplug for subsystem=net\n");
                }
                errors
            }),
        };
        if code == ExitCode::SUCCESS { code } else { ExitCode::from(FAILED) }
    }
}

/// Logs a call as cloud-init does: tools look for the line.
fn log_call(action: &str, udevaction: &str, devpath: &str) {
    log::debug!(
        "hotplug-hook called with the following arguments: {{hotplug_action: {action}, subsystem: net, udevaction: \
         {udevaction}, devpath: {devpath}}}"
    );
}

fn query(program: &Program) -> ExitCode {
    program.log(LevelFilter::Warn);
    let path = Path::new("/");
    match Root::open(path, Use::Tree).map(|root| hotplug::is_on(&root, &Machine::read(path))) {
        Ok(Some(on)) => {
            // Left out where only root may write the log.
            let _ = hotplug::log_query(|| log_call("query", "None", "None"));
            print(if on { "enabled\n" } else { "disabled\n" });
            ExitCode::SUCCESS
        }
        Ok(None) => {
            program.fail("whether hotplug is enabled is not known: no datasource was found, or only root may see it")
        }
        Err(e) => program.fail(e),
    }
}
