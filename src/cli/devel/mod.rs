//! `devel`: tools for authors of user-data and network configurations, one file each.

mod hotplug_hook;
mod make_mime;
mod net_convert;
mod render;

use super::program::Program;
use super::verb::{self, Entry, Pick, Table, Verb};
use argh::{ArgsInfo, CommandInfo, FromArgs};
use std::process::ExitCode;
use std::sync::LazyLock;

/// The tools, in the order of the help.
static TOOLS: &[Entry] = &[
    Entry::of_part::<net_convert::NetConvert>(cfg!(feature = "tools")),
    Entry::of_part::<render::Render>(cfg!(feature = "tools")),
    Entry::of_part::<make_mime::MakeMime>(cfg!(feature = "tools")),
    Entry::of_part::<hotplug_hook::HotplugHook>(cfg!(feature = "tools")),
];

/// tools for those who write user-data and network configuration
#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand, name = "devel", help_triggers("-h", "--help"))]
pub struct Devel {
    #[argh(subcommand)]
    tool: Tool,
}

/// The tool named on the command line. An alias because argh's macro does not accept a type with `<`.
type Tool = Pick<Tools>;

struct Tools;

impl Table for Tools {
    fn entries() -> &'static [Entry] {
        TOOLS
    }

    fn commands() -> &'static [&'static CommandInfo] {
        static COMMANDS: LazyLock<Vec<&CommandInfo>> = LazyLock::new(|| verb::visible(TOOLS));
        &COMMANDS
    }
}

impl Verb for Devel {
    fn run(self, program: &Program) -> ExitCode {
        self.tool.run(program)
    }
}
