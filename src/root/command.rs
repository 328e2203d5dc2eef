//! Commands of the root's own system. They are run through [`Root`] so that a plan shows them.

use super::{Root, Stage};
use crate::base::channel::Receiver;
use crate::base::deadline::Deadline;
use crate::base::error::{Context, Error, Result};
use crate::base::signal;
use crate::base::thread;
use crate::machine::tools::{outlives, reader};
use std::io::{self, Write};
use std::process::Stdio;
use std::time::Duration;

/// How long to keep reading the pipes of a command with a time limit after it has ended: its children may
/// hold them open.
const PIPES_END: Duration = Duration::from_secs(1);

/// A command to run in the real root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    pub argv: Vec<String>,
    /// Standard input.
    pub stdin: Option<Vec<u8>>,
    /// Passwords, keys and tokens in the arguments, the environment or standard input: a plan masks them.
    pub secrets: Vec<String>,
    /// Added to the environment.
    pub env: Vec<(String, String)>,
    /// The working directory; None: this process's own.
    pub dir: Option<String>,
    /// Whether [`Root::output`] also captures standard error.
    pub takes_errors: bool,
    /// The stage that the root was in when the command was recorded.
    pub when: Stage,
    /// The command is killed after this time. None: it has no limit.
    pub limit: Option<Duration>,
    /// Whether this is a request to a server, listed in a plan: `argv` is its method and its URL.
    pub is_request: bool,
}

/// The result of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The exit status; 128 plus the signal's number if it was killed.
    pub status: i32,
    /// Standard output, if captured.
    pub stdout: Vec<u8>,
    /// Standard error, if captured.
    pub stderr: Vec<u8>,
}

/// Replaces a root's programs in tests: takes each command and returns its result.
pub type Programs = Box<dyn FnMut(&Root, &Command) -> Result<Output>>;

impl Command {
    /// A command with the arguments `argv`, the program first.
    pub fn new<S: Into<String>>(argv: impl IntoIterator<Item = S>) -> Command {
        let argv = argv.into_iter().map(Into::into).collect();
        Command {
            argv,
            stdin: None,
            secrets: Vec::new(),
            env: Vec::new(),
            dir: None,
            takes_errors: false,
            when: Stage::Local,
            limit: None,
            is_request: false,
        }
    }

    /// Adds an environment variable.
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Command {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// Sets the working directory, a path in the root.
    pub fn dir(mut self, path: impl Into<String>) -> Command {
        self.dir = Some(path.into());
        self
    }

    /// Makes [`Root::output`] capture standard error too.
    pub fn with_errors(mut self) -> Command {
        self.takes_errors = true;
        self
    }

    /// Sets a time limit.
    pub fn limit(mut self, limit: Duration) -> Command {
        self.limit = Some(limit);
        self
    }

    /// Sets the standard input.
    pub fn stdin(mut self, text: impl Into<Vec<u8>>) -> Command {
        self.stdin = Some(text.into());
        self
    }

    /// Adds a secret: a plan masks this text wherever it occurs in the command.
    pub fn secret(mut self, text: impl Into<String>) -> Command {
        self.secrets.push(text.into());
        self
    }
}

/// The commands of a root: those that it has recorded, and those for the end of the stage.
pub(super) struct Commands {
    /// The stage that the root is in.
    stage: Stage,
    recorded: Vec<Command>,
    /// Replaces the root's programs in tests.
    programs: Option<Programs>,
    /// Commands for the end of the stage, each with its condition.
    at_end: Vec<(Option<Command>, Command)>,
}

impl Commands {
    /// No commands, in the local stage.
    pub(super) fn new() -> Commands {
        Commands { stage: Stage::Local, recorded: Vec::new(), programs: None, at_end: Vec::new() }
    }

    pub(super) fn stage(&self) -> Stage {
        self.stage
    }

    pub(super) fn enter(&mut self, stage: Stage) {
        self.stage = stage;
    }

    /// Records a command as one of the current stage.
    pub(super) fn record(&mut self, command: &Command) {
        self.recorded.push(Command { when: self.stage, ..command.clone() });
    }

    /// Whether a test replaces the root's programs.
    pub(super) fn is_played(&self) -> bool {
        self.programs.is_some()
    }
}

impl Root {
    /// Runs a command and waits for it. Changes so far are committed first; it inherits this process's output. In a
    /// plan, or in a root that is not the running system, the command is only recorded.
    ///
    /// # Errors
    /// It cannot be started, or does not exit with 0.
    pub fn run(&mut self, command: Command) -> Result<()> {
        let name = command.argv.first().cloned().unwrap_or_default();
        match self.spawn(command, false)?.status {
            0 => Ok(()),
            status => Err(Error::new(format!("{name} ended with exit status {status}"))),
        }
    }

    /// Runs a command like [`Root::run`], whatever its exit status, and captures its standard output.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn output(&mut self, command: Command) -> Result<Output> {
        self.spawn(command, true)
    }

    /// From now on, passes every command to `programs` instead of running it: for tests.
    pub fn play(&mut self, programs: Programs) {
        self.commands.programs = Some(programs);
        self.overlay.set_alone(false);
    }

    /// Whether commands run: in the running system, or in a test that replaces its programs with
    /// [`Root::play`].
    pub fn runs_commands(&self) -> bool {
        self.is_live() || self.commands.is_played()
    }

    /// Records a request to a server in a plan, in its place among the commands.
    pub fn plan_request(&mut self, method: &str, url: &str) {
        self.commands.record(&Command { is_request: true, ..Command::new([method, url]) });
    }

    /// Starts a command in the background, otherwise like [`Root::run`]. How it ends is only logged.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(&mut self, command: Command) -> Result<()> {
        if !self.is_live() {
            self.run(command).unwrap_or_else(|e| log::info!("{e}"));
            return Ok(());
        }
        self.commands.record(&command);
        for e in self.commit() {
            log::error!("{e}");
        }
        let Some((program, arguments)) = command.argv.split_first() else { return Err(Error::new("an empty command")) };
        let mut process = std::process::Command::new(program);
        process.args(arguments).envs(command.env.iter().map(|(k, v)| (k, v))).stdin(Stdio::null());
        let mut child = signal::spawn(&mut process).context(|| format!("failed to run {program}"))?;
        let program = program.clone();
        thread::spawn(move || match child.wait() {
            Ok(status) => log::info!("{program}: {status}"),
            Err(e) => log::info!("failed to wait for {program}: {e}"),
        })
        .map(drop)
        .context(|| "failed to wait for a program that was started")
    }

    fn spawn(&mut self, command: Command, capture: bool) -> Result<Output> {
        self.commands.record(&command);
        if !self.commands.is_played() && self.is_live() {
            for e in self.commit() {
                log::error!("{e}");
            }
            // The command may change them.
            self.overlay.mounts_mut().forget();
        }
        self.execute(command, capture)
    }

    /// Runs a command without a commit, and without a record of it.
    pub(super) fn execute(&mut self, command: Command, capture: bool) -> Result<Output> {
        if let Some(mut programs) = self.commands.programs.take() {
            let output = programs(self, &command);
            self.commands.programs = Some(programs);
            return output;
        }
        if !self.is_live() {
            return Ok(Output { status: 0, stdout: Vec::new(), stderr: Vec::new() });
        }
        run_process(command, capture)
    }

    /// Keeps a command until the end of the stage, after its changes are on the disk. It runs only if
    /// `condition` is None or exits with 0. The stage calls [`Root::run_at_end`].
    pub fn at_end(&mut self, condition: Option<Command>, command: Command) {
        if !self.runs_commands() {
            condition.iter().chain([&command]).for_each(|command| self.commands.record(command));
        }
        self.commands.at_end.push((condition, command));
    }

    /// Runs the commands kept by [`Root::at_end`], and returns the errors.
    pub fn run_at_end(&mut self) -> Vec<Error> {
        let mut errors = Vec::new();
        if !self.runs_commands() {
            return errors;
        }
        for (condition, command) in std::mem::take(&mut self.commands.at_end) {
            match condition.map(|c| self.output(c)) {
                None | Some(Ok(Output { status: 0, .. })) => errors.extend(self.run(command).err()),
                Some(Ok(Output { status: 1, .. })) => log::info!("Condition was false. Will not perform state change."),
                Some(Ok(Output { status, .. })) => {
                    let name = command.argv.first().map_or("", String::as_str);
                    errors
                        .push(Error::new(format!("{name} is not run: its condition ended with exit status {status}")));
                }
                Some(Err(e)) => errors.push(e),
            }
        }
        errors
    }

    /// All commands so far, in order.
    pub fn commands(&self) -> &[Command] {
        &self.commands.recorded
    }
}

/// Runs a program of this system and waits for it.
///
/// # Errors
/// It cannot be started, or waited for.
pub(super) fn run_process(command: Command, capture: bool) -> Result<Output> {
    let Some((program, arguments)) = command.argv.split_first() else { return Err(Error::new("an empty command")) };
    let mut process = std::process::Command::new(program);
    process.current_dir(command.dir.as_deref().unwrap_or("."));
    let takes_errors = capture && command.takes_errors;
    process
        .args(arguments)
        .envs(command.env.iter().map(|(k, v)| (k, v)))
        .stdin(if command.stdin.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(if capture { Stdio::piped() } else { Stdio::inherit() })
        .stderr(if takes_errors { Stdio::piped() } else { Stdio::inherit() });
    let mut child = signal::spawn(&mut process).context(|| format!("failed to run {program}"))?;
    let writer = child.stdin.take().zip(command.stdin).map(|(mut pipe, text)| {
        // A command that does not read all of its input is not an error.
        thread::spawn(move || drop(pipe.write_all(&text)))
    });
    let writer = writer.transpose().or_else(|e| {
        let _ = child.kill();
        let _ = child.wait();
        Err(e).context(|| format!("failed to write to {program}"))
    })?;
    let stdout = child.stdout.take().map(reader);
    let stderr = child.stderr.take().map(reader);
    if command.limit.is_some_and(|limit| outlives(&child, limit)) {
        let limit = command.limit.unwrap_or_default().as_secs_f64();
        log::warn!("{program} is killed: it has taken longer than {limit:.1} s");
        let _ = child.kill();
    }
    // Without a limit, the output is read to its end before the process is waited for.
    let end = command.limit.map(|_| Deadline::after(PIPES_END));
    let (stdout, stderr) = (taken(stdout, end), taken(stderr, end));
    let status = child.wait().context(|| format!("failed to wait for {program}"))?;
    if let Some(writer) = writer.filter(|w| end.is_none() || w.is_finished()) {
        let _ = writer.join();
    }
    let signal = std::os::unix::process::ExitStatusExt::signal(&status).map(|s| 128 + s);
    Ok(Output { status: status.code().or(signal).unwrap_or(-1), stdout, stderr })
}

/// The output that a [`reader`] has collected. Empty if another process still holds the pipe at `end`.
fn taken(reader: Option<Receiver<io::Result<Vec<u8>>>>, end: Option<Deadline>) -> Vec<u8> {
    reader.and_then(|reader| reader.receive(end)).and_then(io::Result::ok).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::Use;
    use std::path::Path;
    use std::time::Instant;

    #[test]
    fn kills_only_a_command_past_its_limit() {
        let mut root = Root::open(Path::new("/"), Use::Tree).unwrap();
        let started = Instant::now();
        let slow = Command::new(["sleep", "60"]).limit(Duration::from_millis(50));
        assert_eq!(root.run(slow).unwrap_err().to_string(), "sleep ended with exit status 137");
        assert!(started.elapsed() < Duration::from_secs(30));
        root.run(Command::new(["true"]).limit(Duration::from_secs(60))).unwrap();
    }

    #[test]
    fn limit_applies_if_output_is_captured() {
        let mut root = Root::open(Path::new("/"), Use::Tree).unwrap();
        let started = Instant::now();
        let shell = |script: &str| Command::new(["sh", "-c", script]);
        let slow = root.output(shell("echo begun; exec sleep 60").limit(Duration::from_secs(2))).unwrap();
        assert_eq!((slow.status, slow.stdout.as_slice()), (137, &b"begun\n"[..]));
        // A process that it leaves behind keeps the pipes.
        let left = shell("echo out; echo err >&2; sleep 60 &").with_errors().limit(Duration::from_secs(30));
        assert_eq!(root.output(left).unwrap().status, 0);
        assert!(started.elapsed() < Duration::from_secs(30));
        let quick = root.output(shell("echo out; echo err >&2").with_errors().limit(Duration::from_secs(60))).unwrap();
        assert_eq!((quick.stdout.as_slice(), quick.stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
    }

    #[test]
    fn deferred_command_runs_if_its_condition_holds() {
        let dir = crate::base::testing::TempDir::new("at-end");
        let mut root = Root::open(Path::new("/"), Use::Tree).unwrap();
        let touch = |name: &str| Command::new(["touch".into(), format!("{}/{name}", dir.0.display())]);
        root.at_end(None, touch("always"));
        root.at_end(Some(Command::new(["true"])), touch("yes"));
        root.at_end(Some(Command::new(["false"])), touch("no"));
        root.at_end(Some(Command::new(["sh", "-c", "exit 7"])), touch("odd"));
        assert!(!dir.0.join("always").exists());
        let errors = root.run_at_end();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!(["always", "yes", "no", "odd"].map(|n| dir.0.join(n).exists()), [true, true, false, false]);
    }
}
