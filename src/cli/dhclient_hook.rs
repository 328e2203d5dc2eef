//! `dhclient-hook`, which the DHCP hooks of cloud-init before 23.1 call. They are configuration files, which stay in /etc when its
//! package is removed.

use super::program::Program;
use super::verb::Verb;
use argh::{ArgsInfo, FromArgs};
use std::process::ExitCode;

/// do nothing: leases are read from the DHCP client's own files
#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand, name = "dhclient-hook", help_triggers("-h", "--help"))]
pub struct DhclientHook {
    /// up or down, and the interface
    #[argh(positional)]
    #[allow(dead_code)]
    words: Vec<String>,
}

impl Verb for DhclientHook {
    const HIDDEN: bool = true;

    fn run(self, _: &Program) -> ExitCode {
        ExitCode::SUCCESS
    }
}
