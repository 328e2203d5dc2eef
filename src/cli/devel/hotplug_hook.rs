//! `devel hotplug-hook`: network devices that appear later, which are not configured.

use crate::cli::program::{Program, print};
use crate::cli::verb::Verb;
use crate::instance::state;
use crate::root::{Root, Use};
use argh::{ArgsInfo, FromArgs};
use std::path::Path;
use std::process::ExitCode;

/// say whether network devices that appear later are configured: they are not
#[derive(FromArgs, ArgsInfo)]
#[argh(
    subcommand,
    name = "hotplug-hook",
    help_triggers("-h", "--help"),
    error_code(1, "there is no datasource, or enable was asked for")
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
    Handle(#[allow(dead_code)] Handle),
    Enable(Enable),
}

/// say whether hotplug is enabled
#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand, name = "query", help_triggers("-h", "--help"))]
struct Query {}

/// handle a device: does nothing, because hotplug is not enabled
#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand, name = "handle", help_triggers("-h", "--help"))]
struct Handle {
    /// the device's path in sysfs
    #[argh(option, short = 'd')]
    #[allow(dead_code)]
    devpath: String,
    /// what happened
    #[argh(option, short = 'u', arg_name = "add|remove")]
    #[allow(dead_code)]
    udevaction: String,
}

/// enable hotplug: not supported
#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand, name = "enable", help_triggers("-h", "--help"))]
struct Enable {}

fn net(name: &str) -> Result<(), String> {
    if name == "net" { Ok(()) } else { Err("expected net".into()) }
}

impl Verb for HotplugHook {
    fn run(self, program: &Program) -> ExitCode {
        match self.action {
            Action::Query(Query {}) => match Root::open(Path::new("/"), Use::Tree) {
                // Unlike the cached datasource, the id is readable for everyone.
                Ok(root) if state::last_id(&root).is_some() => {
                    print("disabled\n");
                    ExitCode::SUCCESS
                }
                Ok(_) => program.fail("whether hotplug is enabled is not known: no datasource was found"),
                Err(e) => program.fail(e),
            },
            Action::Handle(_) => ExitCode::SUCCESS,
            Action::Enable(Enable {}) => program.fail("hotplug is not supported for events of net"),
        }
    }
}
