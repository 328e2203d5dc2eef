//! The context of a verb: the program's name, the target of its messages, and exit codes.

use crate::base::{logging, mask};
use argh::CommandInfoWithArgs;
use log::LevelFilter;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// The exit code of a failure.
pub const FAILED: u8 = 1;
/// The exit code of a usage error, as in argparse.
pub const USAGE: u8 = 2;

/// The version of cloud-init that this program implements, for scripts that parse `cloud-init --version`.
const CLOUD_INIT_VERSION: &str = "26.2";
/// The program name under which it acts as cloud-init.
const CLOUD_INIT: &str = "cloud-init";

/// How the program was called.
pub struct Program {
    /// `argv[0]`.
    pub path: String,
    /// The last part of `argv[0]`: `prepivot`, `cloud-init`, `cloud-id`, …
    pub name: String,
    /// The remaining words as given: arguments that need not be UTF-8 are taken from here.
    pub words: Vec<OsString>,
    /// `--debug` before the verb.
    pub debug: bool,
    /// `--force` before the verb.
    pub force: bool,
    /// The whole command line: all verbs with arguments, help and exit codes.
    pub command: fn() -> CommandInfoWithArgs,
    /// The program's names that run a single verb, with that verb.
    pub aliases: fn() -> Vec<(&'static str, &'static str)>,
}

impl Program {
    /// Shows messages up to `level` on standard error; with `--debug`, all of them.
    pub fn log(&self, level: LevelFilter) {
        logging::to_stderr(if self.debug { LevelFilter::Debug } else { level });
    }

    /// Prints the error, and returns the exit code for it.
    pub fn fail(&self, what: impl Display) -> ExitCode {
        self.say(what);
        ExitCode::from(FAILED)
    }

    /// Prints a usage error, and returns the exit code for it.
    pub fn usage(&self, what: impl Display) -> ExitCode {
        self.say(what);
        ExitCode::from(USAGE)
    }

    /// Prints a line on standard error, prefixed by the program's name and without the credentials of URLs.
    pub fn say(&self, what: impl Display) {
        let _ = writeln!(std::io::stderr(), "{}: {}", self.name, mask::urls(&what.to_string()));
    }

    /// Checks that the user is root.
    ///
    /// # Errors
    /// The user is not root: the exit code, after printing a message.
    pub fn need_root(&self) -> Result<(), ExitCode> {
        if is_root() { Ok(()) } else { Err(self.fail("this needs root; try it with sudo")) }
    }
}

/// Whether the user is root.
pub fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// Writes to standard output. A closed pipe is ignored; any other error ends the program with [`FAILED`], so
/// that truncated output is never mistaken for all of it.
pub fn print(text: &str) {
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            let _ = writeln!(std::io::stderr(), "prepivot: failed to write to standard output: {e}");
            std::process::exit(FAILED.into());
        }
        _ => {}
    }
}

/// The line that `--version` prints: `/usr/bin/cloud-init 26.2 (prepivot 0.2.0)` if called cloud-init, else
/// `prepivot 0.2.0`.
pub fn version(path: &str, name: &str) -> String {
    let own = concat!("prepivot ", env!("CARGO_PKG_VERSION"));
    if name == CLOUD_INIT { format!("{path} {CLOUD_INIT_VERSION} ({own})\n") } else { format!("{own}\n") }
}

/// [`version`] under the name cloud-init, for callers without a path.
pub fn version_of_cloud_init() -> String {
    version(CLOUD_INIT, CLOUD_INIT)
}

/// Prints the errors that were not shown on standard error yet, and returns their number as the exit code, as
/// cloud-init's stages do.
pub fn report(program: &Program, errors: &[String]) -> ExitCode {
    for error in errors.iter().filter(|e| !logging::was_shown(e)) {
        program.say(error);
    }
    ExitCode::from(u8::try_from(errors.len()).unwrap_or(u8::MAX))
}
