//! `devel`: tools for those who write user-data and network configuration.

mod make_mime;
mod net_convert;
mod render;

use super::{Program, print};
use crate::instance::state;
use crate::root::{Root, Use};
use argh::{ArgsInfo, FromArgs};
use std::path::Path;
use std::process::ExitCode;

/// tools for those who write user-data and network configuration
#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand, name = "devel", help_triggers("-h", "--help"))]
pub struct Devel {
    #[argh(subcommand)]
    tool: Tool,
}

#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand)]
enum Tool {
    NetConvert(net_convert::NetConvert),
    Render(render::Render),
    MakeMime(make_mime::MakeMime),
    HotplugHook(HotplugHook),
}

/// tell whether network devices that appear later are configured: they are not
#[derive(FromArgs, ArgsInfo)]
#[argh(
    subcommand,
    name = "hotplug-hook",
    help_triggers("-h", "--help"),
    error_code(1, "there is no datasource, or hotplug was asked to be enabled")
)]
struct HotplugHook {
    /// the subsystem: net
    #[argh(option, short = 's', from_str_fn(net))]
    #[allow(dead_code)]
    subsystem: (),
    #[argh(subcommand)]
    action: Action,
}

#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand)]
enum Action {
    Query(QueryHotplug),
    Handle(#[allow(dead_code)] Handle),
    Enable(Enable),
}

/// tell whether hotplug is enabled
#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand, name = "query", help_triggers("-h", "--help"))]
struct QueryHotplug {}

/// handle a device: does nothing, because hotplug is not enabled
#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand, name = "handle", help_triggers("-h", "--help"))]
struct Handle {
    /// the device's path in sysfs
    #[argh(option, short = 'd')]
    #[allow(dead_code)]
    devpath: String,
    /// what happened: add
    #[argh(option, short = 'u')]
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

impl Devel {
    pub fn run(self, program: &Program) -> ExitCode {
        match self.tool {
            Tool::NetConvert(tool) => tool.run(program),
            Tool::Render(tool) => tool.run(program),
            Tool::MakeMime(tool) => tool.run(program),
            Tool::HotplugHook(tool) => tool.run(program),
        }
    }
}

impl HotplugHook {
    fn run(self, program: &Program) -> ExitCode {
        match self.action {
            Action::Query(QueryHotplug {}) => match Root::open(Path::new("/"), Use::Tree) {
                // The cache is for root alone; the id is for everyone.
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
