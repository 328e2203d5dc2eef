//! Encrypts a random password with the instance's SSH key and posts it to the metadata service, where its owner reads
//! it with `nova get-password`. Follows cloudbase-init (its documentation, "Setting password") and
//! the OpenStack Compute API, "Server passwords".

use crate::base::base64;
use crate::base::error::{Error, Result};
use crate::document::Value;
use crate::instance::{Frequency, state};
use crate::link::http::{Request, refused};
use crate::root::Command;
use crate::source::Live;
use std::time::Duration;

/// The file of the SSH key while it is used, in a folder that only root can read.
const KEY: &str = "/run/prepivot/password-key.pem";
/// The mark that a password was posted: the service accepts one for each instance.
const DONE: &str = "prepivot_password_posted";
/// The service's URL if the instance was read at a link-local address that cannot be used now.
const HOST: &str = "http://169.254.169.254";
const PATH: &str = "openstack/2013-04-04/password";
/// The most bytes that nova stores.
const MAX_POSTED: usize = 1020;
const LIMIT: Duration = Duration::from_secs(30);
const TRIES: u32 = 6;

/// Runs a command of the system and returns its standard output, or an error if it fails.
type Run<'a> = &'a mut dyn FnMut(Command) -> Result<Vec<u8>>;

/// Posts the random password that this boot set for the default user, if it did, once for each instance. Does
/// nothing for an instance without an RSA key, because no other kind can encrypt.
///
/// # Errors
/// openssl or ssh-keygen is missing or fails, or the service refuses.
pub fn provisioned(live: &mut Live) -> Result<()> {
    let user = live.config.at(&["system_info", "default_user", "name"]).and_then(Value::as_str);
    let Some((_, password)) = live.passwords.iter().find(|(name, _)| Some(name.as_str()) == user) else {
        return Ok(());
    };
    let Some(key) = live.instance.public_keys.iter().find(|key| key.starts_with("ssh-rsa ")) else {
        log::info!("the random password is not posted: the instance has no RSA key to encrypt it for");
        return Ok(());
    };
    if state::is_done(live.root, live.instance, DONE, Frequency::Instance) {
        return Ok(());
    }
    let root = &mut *live.root;
    let encrypted = encrypted(key, password, KEY, &mut |command| {
        let program = command.argv.first().cloned().unwrap_or_default();
        let output = root.output(command)?;
        match output.status {
            0 => Ok(output.stdout),
            status => Err(Error::new(format!("{program} ended with exit status {status}"))),
        }
    });
    root.remove(KEY)?;
    let url = format!("{}/{PATH}", host(&live.instance.subplatform));
    let body = base64::encode(&encrypted?);
    if body.len() > MAX_POSTED {
        return Err(Error::new(format!("the encrypted password has {} bytes, more than {MAX_POSTED}", body.len())));
    }
    state::mark_done(live.root, live.instance, DONE, Frequency::Instance)?;
    let reply = live.client.send(&Request { tries: TRIES, ..Request::post(&url, body.as_bytes()) })?;
    match reply.status {
        200..=299 => log::info!("the random password is posted to {url}, encrypted"),
        // The service already has one.
        409 => log::info!("{url} has a password already"),
        status => return Err(refused("POST", &url, status)),
    }
    Ok(())
}

/// The URL in `metadata (http://…)`, unless its address is link-local.
fn host(subplatform: &str) -> &str {
    let base = subplatform.strip_prefix("metadata (").and_then(|rest| rest.strip_suffix(')'));
    base.filter(|base| !base.contains("[fe80:")).unwrap_or(HOST)
}

/// Encrypts `password` with an SSH key (RFC 8017, section 7.2: PKCS #1 v1.5). The key is written to `path`
/// for openssl.
fn encrypted(key: &str, password: &str, path: &str, run: Run) -> Result<Vec<u8>> {
    let command = |argv: &[&str]| Command::new(argv.iter().copied()).limit(LIMIT);
    let line = format!("{key}\n");
    let pem = run(command(&["ssh-keygen", "-e", "-m", "PKCS8", "-f", "/dev/stdin"]).stdin(line))?;
    run(command(&["openssl", "pkey", "-pubin", "-out", path]).stdin(pem))?;
    run(command(&["openssl", "pkeyutl", "-encrypt", "-pubin", "-inkey", path]).stdin(password))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::deadline::Deadline;
    use crate::base::problem::Problems;
    use crate::base::testing::{TempDir, skip};
    use crate::document::yaml;
    use crate::instance::Instance;
    use crate::link::Uplink;
    use crate::link::http::script::{Answer, Script};
    use crate::link::http::{Client, Findings, Redirects};
    use crate::machine::Machine;
    use crate::root::{Output, Use};
    use std::io::Write;
    use std::process::{Command as Process, Stdio};
    use std::sync::Arc;

    const URL: &str = "http://169.254.169.254/openstack/2013-04-04/password";

    /// The program's standard output.
    fn run(argv: &[String], input: &[u8]) -> Result<Vec<u8>> {
        let (program, arguments) = argv.split_first().unwrap();
        let process = Process::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = process.map_err(|e| Error::new(format!("{program}: {e}")))?;
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        output.status.success().then_some(output.stdout).ok_or_else(|| Error::new(format!("{program} failed")))
    }

    #[test]
    fn key_owner_can_decrypt_the_password() {
        if ["openssl", "ssh-keygen"].iter().any(|p| Process::new(p).arg("-V").stderr(Stdio::null()).output().is_err()) {
            skip("there is no openssl or no ssh-keygen");
            return;
        }
        let dir = TempDir::new("password");
        let path = |name: &str| dir.0.join(name).display().to_string();
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        run(&words(&format!("ssh-keygen -q -t rsa -b 2048 -m PEM -N  -f {}", path("key"))), b"").unwrap();
        let key = std::fs::read_to_string(path("key.pub")).unwrap();
        let mut real = |command: Command| run(&command.argv, &command.stdin.unwrap_or_default());
        let secret = encrypted(key.trim(), "s3cret", &path("pem"), &mut real).unwrap();
        assert_eq!(secret.len(), 256);
        let clear = run(&words(&format!("openssl pkeyutl -decrypt -inkey {}", path("key"))), &secret).unwrap();
        assert_eq!(clear, b"s3cret");
        assert!(encrypted("ssh-rsa nonsense", "s3cret", &path("other"), &mut real).is_err());
    }

    /// The post for an instance with these keys and passwords, and its result.
    fn posted(keys: &[&str], passwords: &[(&str, &str)], status: u16) -> (Vec<Vec<u8>>, Result<()>) {
        let dir = TempDir::new("password-post");
        let mut root = dir.root(Use::Tree);
        root.play(Box::new(|_, command| {
            assert!(!command.argv.iter().any(|word| word.contains("s3cret")), "a password is no argument");
            Ok(Output { status: 0, stdout: command.argv[0].clone().into_bytes(), stderr: Vec::new() })
        }));
        let script = Arc::new(Script::default().with("POST", URL, Answer::new(status, "")));
        let deadline = Deadline::after(Duration::from_secs(60));
        let client =
            Client::over(script.clone(), &Uplink::system(), Redirects::SameOrigin, deadline, &Findings::default());
        let public_keys = keys.iter().map(|key| (*key).to_owned()).collect();
        let instance = Instance { instance_id: "i".into(), public_keys, ..Instance::default() };
        let config = yaml::parse("t", "system_info: {default_user: {name: debian}}").unwrap();
        let mut done = Ok(());
        for _ in 0..2 {
            let report = Problems::new();
            let mut live = Live {
                root: &mut root,
                machine: &Machine::default(),
                instance: &instance,
                config: &config,
                client: &client,
                failed: None,
                public_keys: Vec::new(),
                passwords: passwords.iter().map(|(u, p)| ((*u).to_owned(), (*p).to_owned())).collect(),
                report: &report,
            };
            done = done.and(provisioned(&mut live));
        }
        (script.sent().into_iter().map(|s| s.body).collect(), done)
    }

    #[test]
    fn the_default_users_password_is_posted_once() {
        let (keys, mine) = (["ssh-ed25519 A", "ssh-rsa B"], [("debian", "s3cret")]);
        assert_eq!(posted(&keys, &mine, 200), (vec![b"b3BlbnNzbA==".to_vec()], Ok(())));
        assert_eq!(posted(&keys, &mine, 409).1, Ok(()));
        let (sent, done) = posted(&keys, &mine, 403);
        assert!(sent.len() == 1 && done.unwrap_err().to_string().contains("403"));
        for (keys, passwords) in [(&keys[..1], &mine[..]), (&keys[..], &[("root", "s3cret")][..]), (&keys[..], &[][..])]
        {
            assert_eq!(posted(keys, passwords, 200), (Vec::new(), Ok(())));
        }
    }

    #[test]
    fn where_the_service_is() {
        assert_eq!(host("metadata (http://10.0.0.1:8775)"), "http://10.0.0.1:8775");
        assert_eq!(host("metadata (http://[fe80::a9fe:a9fe%25eth0])"), HOST);
        assert_eq!(host("config-disk (/dev/sr0)"), HOST);
    }
}
