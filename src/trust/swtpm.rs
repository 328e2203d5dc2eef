//! A TPM in software, for unit tests and those below tests/.

use crate::base::testing::skip;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A TPM in software on two ports in a row, which ends with the test.
pub struct Swtpm(Child, u16);

impl Drop for Swtpm {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Swtpm {
    /// Starts one with its state in a folder. None, and the test is skipped, if there is no program for it.
    pub fn start(state: &Path) -> Option<Swtpm> {
        // As tpm2-tools want them.
        let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
        let port = (0..50).find_map(|_| {
            let port = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port();
            (port < u16::MAX && free(port) && free(port + 1)).then_some(port)
        })?;
        let child = Command::new("swtpm")
            .args(["socket", "--tpm2", "--flags", "not-need-init,startup-clear", "--tpmstate"])
            .arg(format!("dir={}", state.display()))
            .args(["--server", &format!("type=tcp,port={port},disconnect")])
            .args(["--ctrl", &format!("type=tcp,port={}", port + 1)])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match child {
            Ok(child) => {
                let swtpm = Swtpm(child, port);
                // systemd's library does not wait for it.
                drop(swtpm.connect().stream());
                Some(swtpm)
            }
            Err(e) => {
                skip(format!("swtpm: {e}"));
                None
            }
        }
    }

    /// Its name for tpm2-tools and systemd.
    pub fn name(&self) -> String {
        format!("swtpm:host=127.0.0.1,port={}", self.1)
    }

    /// Makes it the TPM of a machine in a folder: a terminal without any processing, whose other end hands on each command.
    #[cfg(test)]
    pub fn plug_into(&self, machine: &crate::base::testing::TempDir) {
        use rustix::fs::{Mode, OFlags, open};
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
        let far = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&far).and_then(|()| unlockpt(&far)).unwrap();
        let name = ptsname(&far, Vec::new()).unwrap();
        let near = open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let mut attributes = tcgetattr(&near).unwrap();
        attributes.make_raw();
        tcsetattr(&near, OptionalActions::Now, &attributes).unwrap();
        // Inside of the folder the name leads to an empty file, by which the device is found; opened, to the terminal.
        let name = name.to_str().unwrap();
        machine.write(name, "");
        std::os::unix::fs::symlink(name, machine.0.join("dev/tpmrm0")).unwrap();
        let (mut far, mut tpm) = (std::fs::File::from(far), self.connect());
        std::thread::spawn(move || {
            // Closed, it would end what is read from the other end.
            let _near = near;
            loop {
                let Some(command) = message(&mut far) else { return };
                let Some(answer) = tpm.write_all(&command).ok().and_then(|()| message(&mut tpm)) else { return };
                if far.write_all(&answer).is_err() {
                    return;
                }
            }
        });
    }

    /// The public part of its endorsement key of RSA.
    #[cfg(test)]
    pub fn recipient(&self) -> super::seal::Recipient {
        recipient(&mut self.connect(), &super::endorsed::KINDS[0])
    }

    /// A connection for commands.
    pub fn connect(&self) -> Connection {
        Connection { port: self.1, stream: None }
    }
}

/// A connection of its own for each command: systemd's library wants a TPM that ends it after each.
pub struct Connection {
    port: u16,
    stream: Option<TcpStream>,
}

impl Connection {
    /// A stream to the TPM, once it answers.
    fn stream(&self) -> TcpStream {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            match TcpStream::connect(("127.0.0.1", self.port)) {
                Ok(stream) => return stream,
                Err(e) if Instant::now() > end => panic!("swtpm does not answer: {e}"),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut stream = self.stream();
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.write_all(bytes)?;
        self.stream = Some(stream);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.as_mut().map_or(Ok(0), |stream| stream.read(buffer))
    }
}

/// A command or an answer: its length is in its header.
#[cfg(test)]
fn message(from: &mut impl Read) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 10];
    from.read_exact(&mut bytes).ok()?;
    let length = u32::from_be_bytes(bytes.get(2..6)?.try_into().ok()?);
    bytes.resize(usize::try_from(length).ok()?, 0);
    from.read_exact(bytes.get_mut(10..)?).ok()?;
    Some(bytes)
}

/// The public part of a TPM's endorsement key.
#[cfg(test)]
pub(super) fn recipient(
    tpm: &mut dyn super::tpm::TpmTransport,
    kind: &super::endorsed::Kind,
) -> super::seal::Recipient {
    use super::seal::Recipient;
    use super::tpm::{NO_SESSIONS, sized};
    use super::unseal::{READ_PUBLIC, Sequence};
    let mut tpm = Sequence::new(tpm);
    let key = kind.key(&mut tpm).unwrap();
    let found = tpm.send(NO_SESSIONS, READ_PUBLIC, &key).unwrap();
    let (mut unique, mut numbers) = (&sized(&found).unwrap().0[kind.template().len()..], Vec::new());
    for _ in kind.unique {
        let (number, rest) = sized(unique).unwrap();
        numbers.extend_from_slice(number);
        unique = rest;
    }
    if kind.unique.len() == 1 { Recipient::Rsa(numbers) } else { Recipient::P256([&[4], &numbers[..]].concat()) }
}
