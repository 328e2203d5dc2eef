//! Keys from a keyserver, by the root's gpg.

use crate::base::error::{Error, Result};
use crate::root::{Attr, Command, installed, run_dir};
use crate::system::ModuleContext;
use std::time::Duration;

/// How often a keyserver is asked, and how long to wait in between: they are known to fail now and then.
const TRIES: usize = 3;
const PAUSE: Duration = Duration::from_secs(1);

/// A keyring for this run alone.
#[derive(Default)]
pub struct Ring {
    is_open: bool,
}

impl Ring {
    fn home() -> String {
        format!("{}/gnupg", run_dir::DIR)
    }

    fn command(words: &[&str]) -> Command {
        Command::new(words.iter().copied()).env("GNUPGHOME", Ring::home())
    }

    /// The key with this fingerprint, as text. None if the commands are only recorded.
    ///
    /// # Errors
    /// The fingerprint is invalid, or the server has no such key or cannot be reached.
    pub fn fetch(&mut self, cx: &mut ModuleContext, id: &str, server: &str) -> Result<Option<String>> {
        if id.is_empty() || !id.chars().all(|c| c.is_ascii_alphanumeric() || c == ' ') {
            return Err(Error::new("keyid: expected the fingerprint of a key, in hexadecimal"));
        }
        if !self.is_open {
            cx.root.mkdir(&Ring::home(), Attr::root(0o700))?;
            self.is_open = true;
        }
        let export = |cx: &mut ModuleContext| {
            let output = cx.root.output(Ring::command(&["gpg", "--export", "--armour", id]))?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            Ok::<_, Error>(Some(text).filter(|t| output.status == 0 && !t.is_empty()))
        };
        if let Some(text) = export(cx)? {
            return Ok(Some(text));
        }
        let from = format!("--keyserver={server}");
        let mut received = Ok(());
        for attempt in 0..TRIES {
            if attempt > 0 && cx.root.is_live() {
                std::thread::sleep(PAUSE);
            }
            received = cx.root.run(Ring::command(&["gpg", "--no-tty", &from, "--recv-keys", id]));
            if received.is_ok() {
                break;
            }
        }
        let text = match &received {
            Ok(()) => export(cx)?,
            Err(_) => None,
        };
        if let Err(e) = cx.root.run(Ring::command(&["gpg", "--batch", "--yes", "--delete-keys", id])) {
            log::info!("the key {id} stays in the temporary keyring: {e}");
        }
        let failed =
            |e: &dyn std::fmt::Display| Error::new(format!("the key {id} cannot be fetched from {server}: {e}"));
        received.map_err(|e| failed(&e))?;
        match text {
            None if cx.root.runs_commands() => Err(failed(&"the server gave no key")),
            text => Ok(text),
        }
    }

    /// Ends the programs that gpg started, and removes the keyring.
    pub fn close(self, cx: &mut ModuleContext) {
        if !self.is_open {
            return;
        }
        let ended = match installed::which(cx.root, "gpgconf") {
            Some(_) => cx.root.run(Ring::command(&["gpgconf", "--kill", "all"])),
            None => Ok(()),
        };
        if let Err(e) = ended.and_then(|()| cx.root.remove(&Ring::home())) {
            cx.report.warn(format_args!("apt: the temporary keyring is not removed: {e}"));
        }
    }
}
