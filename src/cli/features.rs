//! `features`: which versions of the network configuration are understood.

use super::program::{Program, print};
use super::verb::Verb;
use argh::{ArgsInfo, FromArgs};
use std::process::ExitCode;

/// print which versions of the network configuration are understood
#[derive(FromArgs, ArgsInfo)]
#[argh(subcommand, name = "features", help_triggers("-h", "--help"))]
pub struct Features {}

impl Verb for Features {
    fn run(self, _: &Program) -> ExitCode {
        print("NETWORK_CONFIG_V1\nNETWORK_CONFIG_V2\n");
        ExitCode::SUCCESS
    }
}
