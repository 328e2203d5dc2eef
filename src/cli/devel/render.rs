//! `devel render`: renders user-data that is a template, as an instance would.

use crate::base::error::{Error, Result};
use crate::cli::files;
use crate::cli::program::{Program, print};
use crate::cli::verb::Verb;
use crate::document::Value;
use crate::root::{Root, Use};
use crate::userdata::jinja;
use argh::{ArgsInfo, FromArgs};
use log::LevelFilter;
use std::path::Path;
use std::process::ExitCode;

/// render user-data that is a jinja template
#[derive(FromArgs, ArgsInfo)]
#[argh(
    subcommand,
    name = "render",
    help_triggers("-h", "--help"),
    error_code(1, "a file is missing, it is no template, or the template fails")
)]
pub struct Render {
    /// the instance-data file; default: /run/cloud-init/instance-data.json, with secrets for root
    #[argh(option, short = 'i', arg_name = "path")]
    instance_data: Option<String>,
    /// show what is done on standard error
    #[argh(switch, short = 'd')]
    debug: bool,
    /// the user-data file; its first line is `## template: jinja`
    #[argh(positional, arg_name = "path")]
    user_data: String,
}

impl Verb for Render {
    fn run(self, program: &Program) -> ExitCode {
        program.log(if self.debug { LevelFilter::Debug } else { LevelFilter::Warn });
        match self.rendered() {
            Ok(text) => {
                print(&text);
                ExitCode::SUCCESS
            }
            Err(e) => program.fail(e),
        }
    }
}

impl Render {
    fn rendered(&self) -> Result<String> {
        let root = Root::open(Path::new("/"), Use::Tree)?;
        let data = files::instance_data(&root, self.instance_data.as_deref())?;
        template(&self.user_data, &files::text(&self.user_data)?, &data)
    }
}

/// Renders the template `text` from the file `path`.
fn template(path: &str, text: &str, data: &Value) -> Result<String> {
    let body = jinja::body(text)
        .ok_or_else(|| Error::new(format!("{path}: not a template: its first line is not `## template: jinja`")))?;
    files::render(path, body, data)
}
