//! Commands of the root's own system, run through the same door so that a plan shows them.

use super::Root;
use crate::error::{Context, Error, Result};
use std::io::Write;
use std::process::Stdio;

/// The stage that a command belongs to, as `cloud-init modules --mode` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Init,
    Config,
    Final,
}

impl Stage {
    /// The name in a plan and in the log.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Init => "init",
            Stage::Config => "config",
            Stage::Final => "final",
        }
    }
}

/// A command to run in the real root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    pub argv: Vec<String>,
    /// Given on standard input.
    pub stdin: Option<Vec<u8>>,
    /// Whether standard input holds a secret, so that a plan masks it.
    pub secret: bool,
    /// Added to the environment.
    pub env: Vec<(String, String)>,
    pub when: Stage,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The exit status; 128 and the signal's number where it was killed.
    pub status: i32,
    /// Standard output, where it was asked for.
    pub stdout: Vec<u8>,
}

impl Command {
    /// The command `argv` in the stage `when`.
    pub fn new<S: Into<String>>(when: Stage, argv: impl IntoIterator<Item = S>) -> Command {
        Command { argv: argv.into_iter().map(Into::into).collect(), stdin: None, secret: false, env: Vec::new(), when }
    }

    /// With a variable in its environment.
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Command {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// With text on standard input.
    pub fn stdin(mut self, text: impl Into<Vec<u8>>) -> Command {
        self.stdin = Some(text.into());
        self
    }

    /// With a secret on standard input.
    pub fn secret_stdin(mut self, text: impl Into<Vec<u8>>) -> Command {
        self.secret = true;
        self.stdin(text)
    }
}

impl Root {
    /// Runs a command and waits for it; what was written before is on the disk when it starts. Its output goes where this
    /// process's goes. In a plan, or in a root that is not the running system, it is recorded and counts as done.
    ///
    /// An error if it cannot be started or does not exit with 0.
    pub fn run(&mut self, command: Command) -> Result<()> {
        let name = command.argv.first().cloned().unwrap_or_default();
        match self.spawn(command, false)?.status {
            0 => Ok(()),
            status => Err(Error::new(format!("{name} ended with exit status {status}"))),
        }
    }

    /// Runs a command like [`Root::run`], whatever its exit status, and gives its standard output.
    pub fn output(&mut self, command: Command) -> Result<Output> {
        self.spawn(command, true)
    }

    fn spawn(&mut self, command: Command, capture: bool) -> Result<Output> {
        self.commands.push(command.clone());
        if !self.is_live() {
            return Ok(Output { status: 0, stdout: Vec::new() });
        }
        for e in self.commit() {
            log::error!("{e}");
        }
        let Some((program, arguments)) = command.argv.split_first() else { return Err(Error::new("an empty command")) };
        let mut child = std::process::Command::new(program)
            .args(arguments)
            .envs(command.env.iter().map(|(k, v)| (k, v)))
            .stdin(if command.stdin.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(if capture { Stdio::piped() } else { Stdio::inherit() })
            .spawn()
            .context(|| format!("failed to run {program}"))?;
        let writer = child.stdin.take().zip(command.stdin).map(|(mut pipe, text)| {
            // A command that does not read its input to the end is no error of ours.
            std::thread::spawn(move || drop(pipe.write_all(&text)))
        });
        let output = child.wait_with_output().context(|| format!("failed to wait for {program}"))?;
        if let Some(writer) = writer {
            let _ = writer.join();
        }
        let signal = std::os::unix::process::ExitStatusExt::signal(&output.status).map(|s| 128 + s);
        Ok(Output { status: output.status.code().or(signal).unwrap_or(-1), stdout: output.stdout })
    }

    /// Every command so far, in order.
    pub fn commands(&self) -> &[Command] {
        &self.commands
    }

    /// Where a program is: the first of the usual folders that has it.
    pub fn which(&self, program: &str) -> Option<String> {
        ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
            .iter()
            .map(|folder| format!("{folder}/{program}"))
            .find(|path| self.stat(path).is_some_and(|s| s.kind == super::Kind::File && s.attr.mode & 0o111 != 0))
    }
}
