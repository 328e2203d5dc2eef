//! `devel net-convert`: converts a network configuration to another network stack's files.

use crate::base::error::{Context, Error, Result};
use crate::base::problem::{Problems, Severity};
use crate::cli::files;
use crate::cli::program::Program;
use crate::cli::verb::Verb;
use crate::document::to_yaml;
use crate::machine::Distro;
use crate::network::read::{self, Format};
use crate::network::render;
use crate::network::{File, Macs, Renderer, Target};
use crate::root::{Root, Use};
use crate::stage::network;
use argh::{ArgsInfo, FromArgs};
use log::LevelFilter;
use std::path::Path;
use std::process::ExitCode;

/// write a network configuration for a network stack, below a folder
#[derive(FromArgs, ArgsInfo)]
#[argh(
    subcommand,
    name = "net-convert",
    help_triggers("-h", "--help"),
    example = "net-convert -p network-config -k yaml -d out -D debian -O networkd",
    error_code(1, "the configuration cannot be read, or the files not be written")
)]
pub struct NetConvert {
    /// the network configuration
    #[argh(option, short = 'p', arg_name = "path")]
    network_data: String,
    /// its format: eni, yaml, network_data.json, azure-imds, vmware-imc or klibc
    #[argh(option, short = 'k', from_str_fn(format))]
    kind: &'static Format,
    /// the folder to write below; it is made if there is none
    #[argh(option, short = 'd', arg_name = "path")]
    directory: String,
    /// the distribution to write for
    #[argh(option, short = 'D', from_str_fn(distro))]
    distro: Distro,
    /// an interface's name and MAC address; may be given again
    #[argh(option, short = 'm', arg_name = "name,mac", from_str_fn(mac))]
    mac: Vec<(String, String)>,
    /// show the input and what is made of it on standard error
    #[argh(switch)]
    debug: bool,
    /// the network stack: eni, netplan, networkd, sysconfig or network-manager
    #[argh(option, short = 'O', from_str_fn(output))]
    output_kind: &'static Renderer,
}

fn format(name: &str) -> std::result::Result<&'static Format, String> {
    read::by_name(name).ok_or_else(|| format!("expected one of {}", read::names().join(", ")))
}

fn output(name: &str) -> std::result::Result<&'static Renderer, String> {
    render::by_name(name).ok_or_else(|| format!("expected one of {}", render::names().join(", ")))
}

fn distro(name: &str) -> std::result::Result<Distro, String> {
    match Distro::named(name) {
        known if known.name != "unknown" => Ok(known),
        _ => Err("not a distribution that is known".into()),
    }
}

fn mac(text: &str) -> std::result::Result<(String, String), String> {
    let (name, mac) = text.split_once(',').ok_or("expected a name, a comma and a MAC address")?;
    Ok((name.to_owned(), mac.to_owned()))
}

impl Verb for NetConvert {
    fn run(self, program: &Program) -> ExitCode {
        program.log(if self.debug { LevelFilter::Debug } else { LevelFilter::Warn });
        match self.convert(program) {
            Ok(()) => {
                program.say(format_args!("read input format '{}' from '{}'", self.kind.name, self.network_data));
                program.say(format_args!("wrote output format '{}' to '{}'", self.output_kind.name, self.directory));
                ExitCode::SUCCESS
            }
            Err(e) => program.fail(e),
        }
    }
}

impl NetConvert {
    fn convert(&self, program: &Program) -> Result<()> {
        let macs: Macs = self.mac.iter().map(|(name, mac)| (mac.as_str(), name.as_str())).collect();
        let text = files::text(&self.network_data)?;
        let document = self.kind.parse(&self.network_data, &text)?;
        if self.debug && document.as_map().is_some() {
            program.say(format_args!("the input:\n{}", to_yaml(&document)));
        }
        let report = Problems::new();
        let network = self.kind.read(&self.network_data, &document, &macs.complete(), &report)?;
        if self.debug {
            program.say(format_args!("the configuration:\n{network:#?}"));
        }
        let target = Target { distro: self.distro, ip_tool: true, old_netplan: false };
        let files = self.output_kind.files(&network, &target, &report);
        for warning in report.texts(Severity::Warning) {
            log::warn!("{warning}");
        }
        self.write(files)
    }

    fn write(&self, files: Vec<File>) -> Result<()> {
        std::fs::create_dir_all(&self.directory).context(|| format!("failed to make {}", self.directory))?;
        let mut root = Root::open(Path::new(&self.directory), Use::Tree)?;
        files.into_iter().try_for_each(|file| network::put(&mut root, file))?;
        root.commit().into_iter().next().map_or(Ok(()), |e: Error| Err(e))
    }
}
