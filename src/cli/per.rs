//! `per`, also called `cloud-init-per`: runs a command once, once for each instance, or always. For use in
//! scripts and bootcmd.

use super::program::{FAILED, Program};
use super::verb::Verb;
use crate::base::clock;
use crate::base::error::{Error, Result};
use crate::instance::state::CLOUD_DIR;
use crate::root::{Attr, Root, Use};
use argh::{ArgsInfo, FromArgs};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

/// The old name, under which the command is preceded by the word `execute`.
const OLD_NAME: &str = "cloud-init-run-module";
/// A shell's exit status for a command that does not exist.
const NOT_FOUND: i32 = 127;

/// run a command once, once for each instance, or always, and remember it by a name
#[derive(FromArgs, ArgsInfo)]
#[argh(
    subcommand,
    name = "per",
    help_triggers("-h", "--help"),
    example = "cloud-init-per once install-agent /usr/local/bin/install-agent",
    note = "once: once on this disk, whatever the instance. instance: on the first boot of each instance. always: every time. \
            The exit code is the command's, and 0 where it has already run.",
    error_code(1, "the command line is wrong, the user is not root, or the mark cannot be written"),
    error_code(127, "there is no such command")
)]
pub struct Per {
    /// how often
    #[argh(positional, arg_name = "once|instance|always")]
    frequency: String,
    /// what the command is remembered by
    #[argh(positional)]
    name: String,
    /// the command and its arguments
    #[argh(positional, greedy)]
    command: Vec<String>,
}

impl Verb for Per {
    const PROGRAMS: &'static [&'static str] = &["cloud-init-per", OLD_NAME];
    const USAGE: u8 = FAILED;

    fn run(self, program: &Program) -> ExitCode {
        // The original words, which need not be UTF-8: argh collects everything after the name.
        let mut command = &program.words[program.words.len().saturating_sub(self.command.len())..];
        if program.name == OLD_NAME {
            program.say("DEPRECATED: use cloud-init-per");
            match command.split_first() {
                Some((word, rest)) if word == "execute" => command = rest,
                _ => return program.fail("expected the module execute; use cloud-init-per"),
            }
        }
        let Some((argv0, arguments)) = command.split_first() else { return program.fail("expected a command") };
        let mark = match mark(&self.frequency, &self.name) {
            Ok(mark) => mark,
            Err(e) => return program.fail(e),
        };
        if let Err(code) = program.need_root() {
            return code;
        }
        match run(program, &mark, self.frequency != "always", argv0, arguments) {
            Ok(status) => ExitCode::from(u8::try_from(status).unwrap_or(FAILED)),
            Err(e) => program.fail(e),
        }
    }
}

/// The semaphore of the command.
fn mark(frequency: &str, name: &str) -> Result<String> {
    let name = name.replace('-', "_");
    if name.is_empty() || name.contains('/') {
        return Err(Error::new("the name must not be empty, and not contain a /"));
    }
    match frequency {
        "once" | "always" => Ok(format!("{CLOUD_DIR}/sem/bootper.{name}.{frequency}")),
        "instance" => Ok(format!("{CLOUD_DIR}/instance/sem/bootper.{name}.instance")),
        _ => Err(Error::new("the frequency must be once, instance or always")),
    }
}

/// Runs the command, unless `once` is set and the mark exists; writes the mark, and returns the exit status.
fn run(program: &Program, mark: &str, once: bool, argv0: &OsString, arguments: &[OsString]) -> Result<i32> {
    let mut root = Root::open(Path::new("/"), Use::Tree)?;
    // cloud-init before 21.1 kept hyphens in the mark's name.
    if once && (root.exists(mark) || root.exists(&mark.replace('_', "-"))) {
        return Ok(0);
    }
    // Not through the root: the command uses this program's own input and output.
    let status = match std::process::Command::new(argv0).args(arguments).status() {
        Ok(status) => status.code().or(status.signal().map(|s| 128 + s)).unwrap_or(i32::from(FAILED)),
        Err(e) => {
            program.say(format_args!("failed to run {}: {e}", argv0.display()));
            NOT_FOUND
        }
    };
    let now = clock::since_1970(SystemTime::now()).as_secs();
    root.write(mark, format!("{status}\t{now}\n"), Attr::root(0o644))?;
    root.commit().into_iter().next().map_or(Ok(status), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_cloud_inits() {
        assert_eq!(mark("once", "my-name").unwrap(), "/var/lib/cloud/sem/bootper.my_name.once");
        assert_eq!(mark("instance", "x").unwrap(), "/var/lib/cloud/instance/sem/bootper.x.instance");
        assert_eq!(mark("always", "x").unwrap(), "/var/lib/cloud/sem/bootper.x.always");
        assert!(mark("never", "x").is_err() && mark("once", "a/b").is_err() && mark("once", "").is_err());
    }
}
