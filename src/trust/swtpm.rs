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
