//! `output`: redirects the output of a stage's programs, as documented for cloud-init's configuration.

mod tee;

use crate::base::error::{Context, Error, Result};
use crate::base::signal;
use crate::document::Value;
use crate::machine::tools::outlives;
use crate::root::{Stage, open_log};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::geteuid;
use rustix::stdio::{dup2_stderr, dup2_stdout, stderr, stdout};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tee::Tee;

/// How long a command that is piped to may take to write the rest at the end of a stage. If its pipe still
/// has writers then, it is left running.
const REST: Duration = Duration::from_secs(1);
/// The mode of a log that is created: for its owner and group.
const MODE: u32 = 0o640;

/// A destination of standard output or standard error.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Sink {
    /// `> FILE`
    Replace(String),
    /// `>> FILE`, or `FILE` alone
    Append(String),
    /// `| COMMAND`, by the shell
    Pipe(String),
}

impl Sink {
    fn parse(text: &str) -> Option<Sink> {
        let text = text.trim();
        let (sink, rest): (fn(String) -> Sink, &str) = if let Some(rest) = text.strip_prefix(">>") {
            (Sink::Append, rest)
        } else if let Some(rest) = text.strip_prefix('>') {
            (Sink::Replace, rest)
        } else if let Some(rest) = text.strip_prefix('|') {
            (Sink::Pipe, rest)
        } else {
            (Sink::Append, text)
        };
        let rest = rest.trim();
        (!rest.is_empty()).then(|| sink(rest.to_owned()))
    }

    fn open(&self, readers: &mut Vec<Reader>, group: Option<u32>) -> Result<OwnedFd> {
        let file = |path: &str, append: bool| -> Result<OwnedFd> {
            open_log(path, MODE, None, append).context(|| format!("failed to open {path}"))
        };
        let group = group.filter(|_| geteuid().is_root());
        match self {
            Sink::Replace(path) => file(path, false),
            Sink::Append(path) => file(path, true),
            Sink::Pipe(command) => {
                if let Some(file) = tee::file_of(command) {
                    let (tee, pipe) = Tee::start(file, MODE, group)?;
                    readers.push(Reader::Tee(tee));
                    return Ok(pipe);
                }
                let script = format!("umask 037; {command}");
                let mut shell = Command::new("/bin/sh");
                if let Some(group) = group {
                    shell.gid(group);
                }
                shell.args(["-c", &script]).stdin(Stdio::piped());
                let mut child = signal::spawn(&mut shell).context(|| format!("failed to run {command}"))?;
                let pipe = child.stdin.take().ok_or_else(|| Error::new(format!("{command} takes no input")))?;
                readers.push(Reader::Shell(child));
                Ok(pipe.into())
            }
        }
    }
}

/// The value of `output` for a stage: its own entry, else that of `all`. A string is for both outputs; a list
/// has standard output and standard error, a mapping `output` and `error`. `&1` sends standard error to the same place
/// as standard output.
fn sinks(config: &Value, stage: Stage) -> (Option<Sink>, Option<Sink>) {
    let Some(Value::Map(output)) = config.get("output") else { return (None, None) };
    fn text(value: Option<&Value>) -> Option<&str> {
        value.and_then(Value::as_str)
    }
    let (out, err) = match output.get(stage.name()).or_else(|| output.get("all")) {
        Some(Value::List(list)) => (text(list.first()), text(list.get(1))),
        Some(Value::Map(map)) => (text(map.get("output")), text(map.get("error"))),
        both => (text(both), text(both)),
    };
    let err = if err.map(str::trim) == Some("&1") { out } else { err };
    (out.and_then(Sink::parse), err.and_then(Sink::parse))
}

/// The reader at the other end of a pipe.
enum Reader {
    Shell(Child),
    Tee(Tee),
}

/// Standard output and standard error of this process and its children, redirected until this is dropped.
pub struct Redirected {
    old: Option<(OwnedFd, OwnedFd)>,
    readers: Vec<Reader>,
}

impl Redirected {
    /// Redirects them as the configuration says. A command that is piped to runs in `group`, which also owns
    /// the logs that are created. A failure is reported, and leaves the outputs as they are.
    pub fn new(config: &Value, stage: Stage, group: Option<u32>) -> Redirected {
        let (out, err) = sinks(config, stage);
        let mut this = Redirected { old: None, readers: Vec::new() };
        if (out.is_some() || err.is_some())
            && let Err(e) = this.start(out, err, group)
        {
            log::warn!("output: {}: {e}", stage.name());
        }
        this
    }

    fn start(&mut self, out: Option<Sink>, err: Option<Sink>, group: Option<u32>) -> Result<()> {
        let keep = |e: rustix::io::Result<OwnedFd>| e.context(|| "failed to keep the standard output");
        let old = (keep(fcntl_dupfd_cloexec(stdout(), 3))?, keep(fcntl_dupfd_cloexec(stderr(), 3))?);
        // Both are opened before either is redirected: a command that is piped to inherits the old ones.
        let out_fd = out.as_ref().map(|sink| sink.open(&mut self.readers, group)).transpose()?;
        let err_fd = match (&out_fd, &err) {
            (Some(same), Some(_)) if out == err => Some(same.try_clone().context(|| "failed to share a file")?),
            (_, Some(sink)) => Some(sink.open(&mut self.readers, group)?),
            (_, None) => None,
        };
        self.old = Some(old);
        let failed = || "failed to change the standard output";
        out_fd.map_or(Ok(()), |fd| dup2_stdout(&fd)).context(failed)?;
        err_fd.map_or(Ok(()), |fd| dup2_stderr(&fd)).context(failed)
    }
}

impl Drop for Redirected {
    fn drop(&mut self) {
        if let Some((out, err)) = self.old.take()
            && let Err(e) = dup2_stdout(&out).and(dup2_stderr(&err))
        {
            log::warn!("failed to have the standard output back: {e}");
        }
        // The readers end with the last writer; processes that the user's scripts left running may still write.
        let end = Instant::now() + REST;
        for reader in self.readers.drain(..) {
            let rest = end.saturating_duration_since(Instant::now());
            match reader {
                Reader::Tee(tee) => tee.end(rest),
                Reader::Shell(mut child) => {
                    if !outlives(&child, rest) {
                        let _ = child.try_wait();
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::document::yaml;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_forms_that_cloud_init_documents() {
        let of = |text: &str, stage| sinks(&yaml::parse("t", text).unwrap(), stage);
        let append = |path: &str| Some(Sink::Append(path.into()));
        let both = Some(Sink::Pipe("tee -a /l".into()));
        assert_eq!(of("output: {all: '| tee -a /l'}", Stage::Final), (both.clone(), both.clone()));
        let text =
            "output:\n  init: {output: '> /o', error: '>>/e'}\n  config: /c\n  final: ['>> /f', '&1']\n  all: '|x'";
        assert_eq!(of(text, Stage::Network), (Some(Sink::Replace("/o".into())), append("/e")));
        assert_eq!(of(text, Stage::Config), (append("/c"), append("/c")));
        assert_eq!(of(text, Stage::Final), (append("/f"), append("/f")));
        assert_eq!(of("output: {final: [/f]}", Stage::Final), (append("/f"), None));
        for nothing in ["{}", "output: {init: /x}", "output: [1]", "output: {all: 5}", "output: {all: '>>'}"] {
            assert_eq!(of(nothing, Stage::Final), (None, None), "{nothing}");
        }
    }

    #[test]
    fn a_log_by_tee_needs_no_program() {
        for (command, file) in [
            ("tee -a /var/log/cloud-init-output.log", Some("/var/log/cloud-init-output.log")),
            ("  tee  -a\t/l ", Some("/l")),
            ("tee -a l", None),
            ("tee /l", None),
            ("tee -a /l /m", None),
            ("tee -a /l>/m", None),
            ("tee -a /$l", None),
            ("tee -a /l | logger", None),
        ] {
            assert_eq!(tee::file_of(command), file, "{command}");
        }
    }

    #[test]
    fn stopped_terminal_does_not_hold_a_stage() {
        // The test runs itself as another process, whose standard output has no reader.
        if let Ok(log) = std::env::var("PREPIVOT_TEST_FULL") {
            let config = yaml::parse("t", &format!("output: {{all: '| tee -a {log}'}}")).unwrap();
            let redirected = Redirected::new(&config, Stage::Final, None);
            // More than the pipe of the parent holds, and less than it and that to the log.
            let script = "head -c 100000 /dev/zero";
            assert!(Command::new("/bin/sh").args(["-c", script]).status().unwrap().success());
            drop(redirected);
            std::process::exit(0);
        }
        let dir = TempDir::new("output-full");
        let mut stage = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "stage::output::tests::stopped_terminal_does_not_hold_a_stage", "--nocapture"])
            .env("PREPIVOT_TEST_FULL", dir.0.join("log"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let hangs = outlives(&stage, Duration::from_secs(30));
        stage.kill().unwrap();
        assert!(stage.wait().unwrap().success() && !hangs);
    }

    fn redirected_program(output: &str) {
        let say = |text: &str| {
            let script = format!("echo {text}; echo {text}-error >&2");
            assert!(Command::new("/bin/sh").args(["-c", &script]).status().unwrap().success());
        };
        let config = yaml::parse("t", output).unwrap();
        let redirected = Redirected::new(&config, Stage::Config, None);
        say("inside");
        if config.get("behind").is_some() {
            let script = "(sleep 3; echo behind) &";
            assert!(Command::new("/bin/sh").args(["-c", script]).status().unwrap().success());
        }
        drop(redirected);
        say("outside");
    }

    #[test]
    fn programs_write_to_log_and_then_as_before() {
        // The test runs itself as another process, which has a standard output of its own.
        if let Ok(output) = std::env::var("PREPIVOT_TEST_OUTPUT") {
            return redirected_program(&output);
        }
        let dir = TempDir::new("output");
        let log = dir.0.join("log");
        let run = |output: String| {
            let _ = std::fs::remove_file(&log);
            let done = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "stage::output::tests::programs_write_to_log_and_then_as_before", "--nocapture"])
                .env("PREPIVOT_TEST_OUTPUT", output)
                .output()
                .unwrap();
            assert!(done.status.success());
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
            (text(done.stdout), text(done.stderr), std::fs::read_to_string(&log).unwrap_or_default())
        };
        let path = log.display();

        let (out, _, logged) = run(format!("output: {{all: '| tee -a {path}'}}"));
        assert_eq!(logged, "inside\ninside-error\n");
        assert_eq!(std::fs::metadata(&log).unwrap().permissions().mode() & 0o7777 & !MODE, 0);
        assert!(out.contains("inside\ninside-error\noutside\n"), "{out}");

        let (out, err, logged) = run(format!("output: {{config: ['>> {path}']}}"));
        assert_eq!(logged, "inside\n");
        assert!(out.contains("outside\n") && !out.contains("inside\n"), "{out}");
        assert!(err.contains("inside-error\noutside-error\n"), "{err}");
        assert_eq!(std::fs::metadata(&log).unwrap().permissions().mode() & 0o7777 & !MODE, 0);

        // Output of processes that a script leaves running is still read when the stage has ended.
        let (out, _, logged) = run(format!("output: {{all: '| tee -a {path}'}}\nbehind: true"));
        assert_eq!(logged, "inside\ninside-error\nbehind\n");
        assert!(out.find("outside").is_some_and(|at| out.find("behind").is_some_and(|behind| at < behind)), "{out}");

        // A log that cannot be written changes nothing.
        let (out, _, _) = run("output: {all: '| tee -a /dev/null/no'}".to_owned());
        assert!(out.contains("inside\noutside\n"), "{out}");
        let (out, _, _) = run("output: {all: '> /dev/null/no/such/folder'}".to_owned());
        assert!(out.contains("inside\noutside\n"), "{out}");
    }
}
