//! `cloud-init-per`: runs a command once, once for each instance, or always. For scripts and for bootcmd.

use super::{FAILED, Program, print};
use crate::base::clock;
use crate::base::error::{Error, Result};
use crate::instance::state::CLOUD_DIR;
use crate::root::{Attr, Root, Use};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

/// What it is called; the second name is the old one, which has the word `execute` before the command.
pub const NAMES: [&str; 2] = ["cloud-init-per", OLD_NAME];
const OLD_NAME: &str = "cloud-init-run-module";

const HELP: &str = "\
Usage: cloud-init-per <frequency> <name> <command> [<arguments...>]

Run a command as often as its frequency says, and remember it by its name. As root.

Frequencies:
  once              once on this disk, whatever the instance
  instance          on the first boot of each instance
  always            every time

The exit code is the command's, and 0 where it has run already.
";

/// Runs the command line after the program's name.
pub fn main(name: &str, mut words: Vec<OsString>) -> ExitCode {
    let program = Program { name: name.to_owned(), debug: false, force: false };
    if words.first().is_some_and(|w| w == "-h" || w == "--help") {
        print(HELP);
        return ExitCode::SUCCESS;
    }
    if name == OLD_NAME {
        if words.get(2).is_some_and(|w| w != "execute") {
            return program.fail("only the module execute is known; use cloud-init-per");
        }
        program.say("DEPRECATED: use cloud-init-per");
        words.drain(words.len().min(2)..words.len().min(3));
    }
    let [frequency, name, command @ ..] = words.as_slice() else { return program.fail(HELP) };
    let Some((argv0, arguments)) = command.split_first() else { return program.fail(HELP) };
    let (frequency, name) = (frequency.to_string_lossy(), name.to_string_lossy());
    let mark = match mark(&frequency, &name) {
        Ok(mark) => mark,
        Err(e) => return program.fail(e),
    };
    if let Err(code) = program.need_root() {
        return code;
    }
    match run(&program, &mark, frequency != "always", argv0, arguments) {
        Ok(status) => ExitCode::from(u8::try_from(status).unwrap_or(FAILED)),
        Err(e) => program.fail(e),
    }
}

/// The file that says that it has run.
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

/// Runs the command where there is no mark or it does not count, leaves the mark, and gives the exit status.
fn run(program: &Program, mark: &str, counts: bool, argv0: &OsString, arguments: &[OsString]) -> Result<i32> {
    let mut root = Root::open(Path::new("/"), Use::Tree)?;
    // Marks of before cloud-init 21.1 have the name's dashes.
    if counts && (root.exists(mark) || root.exists(&mark.replace('_', "-"))) {
        return Ok(0);
    }
    // Not through the root: the command has this program's own input and output.
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

/// A shell's exit status for a command that is not there.
const NOT_FOUND: i32 = 127;

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
