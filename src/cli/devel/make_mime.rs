//! `devel make-mime`: combines several parts of user-data.

use crate::base::error::Result;
use crate::cli::files;
use crate::cli::program::{Program, print};
use crate::cli::verb::Verb;
use crate::userdata::{kind, mime};
use argh::{ArgsInfo, FromArgs};
use std::process::ExitCode;

/// make one user-data of several parts
#[derive(FromArgs, ArgsInfo)]
#[argh(
    subcommand,
    name = "make-mime",
    help_triggers("-h", "--help"),
    example = "make-mime -a config.yaml:cloud-config -a script.sh:x-shellscript > user-data",
    error_code(1, "a file cannot be read, or a type is unknown and --force is not there")
)]
pub struct MakeMime {
    /// a part: a file, a colon, and its type without text/; may be given again
    #[argh(option, short = 'a', arg_name = "file:type", from_str_fn(attachment))]
    attach: Vec<(String, String)>,
    /// show the types that are known
    #[argh(switch, short = 'l')]
    list_types: bool,
    /// take types that are not known
    #[argh(switch, short = 'f')]
    force: bool,
}

fn attachment(text: &str) -> std::result::Result<(String, String), String> {
    let (file, kind) = text.split_once(':').ok_or("expected a file, a colon and a type")?;
    Ok((file.to_owned(), format!("text/{}", kind.trim())))
}

impl Verb for MakeMime {
    fn run(self, program: &Program) -> ExitCode {
        if self.list_types {
            let mut types: Vec<&str> = kind::types().filter_map(|t| t.strip_prefix("text/")).collect();
            types.sort_unstable();
            print(&types.iter().map(|t| format!("{t}\n")).collect::<String>());
            return ExitCode::SUCCESS;
        }
        let unknown: Vec<&str> = self.attach.iter().map(|(_, t)| t.as_str()).filter(|t| !is_known(t)).collect();
        if !unknown.is_empty() {
            program.say(format_args!("not known: {}; --list-types shows what is", unknown.join(", ")));
            if !self.force {
                return program.fail("--force takes them all the same");
            }
        }
        match self.attach.into_iter().map(part).collect::<Result<Vec<_>>>() {
            Ok(parts) => {
                print(&String::from_utf8_lossy(&mime::write(parts)));
                ExitCode::SUCCESS
            }
            Err(e) => program.fail(e),
        }
    }
}

fn is_known(name: &str) -> bool {
    kind::types().any(|t| t == name.to_ascii_lowercase())
}

fn part((path, content_type): (String, String)) -> Result<mime::Entity> {
    let content = files::read(&path)?;
    Ok(mime::Entity { content_type, filename: Some(path), charset: None, headers: Vec::new(), content: content.into() })
}
