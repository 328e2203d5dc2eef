//! Joyent's metadata protocol, which is line based: version 2, and version 1 if the host knows no other.
//!
//! Follows "SmartOS Metadata Protocol Specification" (eng.tritondatacenter.com/mdata/protocol.html), and for
//! version 1 mdata-client as it was in 2013 (proto.c). A frame of version 2 is `V2 LENGTH CRC32 BODY`, with
//! the length and checksum of the body, which begins with the request's number. In version 1 a request is its
//! words, and the lines of a value follow `SUCCESS` and end with a dot alone; a line that begins with a dot
//! has one more.

use crate::base::base64;
use crate::base::crc32::crc32;
use crate::base::deadline::Deadline;
use crate::base::error::{Error, Result};
use crate::document::{InstancePart, Taken};
use crate::link::line::Line;
use std::time::Duration;

/// The answer to a request that the host does not know.
const UNKNOWN: &str = "invalid command";
/// The longest response, in bytes.
const MAX_LINE: usize = 8 << 20;
/// How many keys of the owner's are looked at.
const MAX_KEYS: usize = 10_000;
/// How long the line must be quiet to be considered empty, and how many bytes are discarded before that.
const QUIET: Duration = Duration::from_millis(100);
const MAX_PENDING: usize = 64 << 10;
/// How long to wait for the first response before asking again.
const ATTEMPT: Duration = Duration::from_secs(5);

/// An open session.
pub struct Client {
    line: Line,
    deadline: Deadline,
    /// The number of the last request, in version 2.
    request: u32,
    /// Whether the host only knows version 1.
    is_old: bool,
    /// Notes the answers.
    taken: Taken,
}

impl Client {
    /// Begins a session. On a serial line (`is_shared`), output left over from an earlier program is
    /// discarded first.
    ///
    /// # Errors
    /// The host does not answer by the deadline, or knows neither version.
    pub fn open(line: Line, is_shared: bool, deadline: Deadline, taken: &Taken) -> Result<Client> {
        let mut client = Client { line, deadline, request: 0, is_old: false, taken: taken.clone() };
        if is_shared {
            client.synchronize()?;
        }
        match client.exchange("NEGOTIATE V2")?.as_str() {
            "V2_OK" => Ok(client),
            UNKNOWN => Ok(Client { is_old: true, ..client }),
            _ => Err(Error::new("the host knows neither version 2 of the metadata protocol nor version 1")),
        }
    }

    /// Empties the line: an empty request is answered with an error, after everything that was still on its
    /// way.
    fn synchronize(&mut self) -> Result<()> {
        self.line.drop_pending(MAX_PENDING, self.deadline.at_most(QUIET));
        loop {
            self.line.send(b"\n", self.deadline)?;
            let attempt = self.deadline.at_most(ATTEMPT);
            while let Ok(answer) = self.line.line(MAX_PENDING, attempt) {
                match answer.as_slice() {
                    answer if answer == UNKNOWN.as_bytes() => return Ok(()),
                    // The host is busy.
                    b"FAILURE" => break,
                    _ => {}
                }
            }
            if self.deadline.passed() {
                return Err(Error::new("the host's metadata service does not answer in time"));
            }
        }
    }

    /// The value of a key; None if it does not exist.
    ///
    /// # Errors
    /// The host does not answer, or with an invalid frame.
    pub fn get(&mut self, key: &str) -> Result<Option<String>> {
        let value = match self.is_old {
            true => self.ask_old(&format!("GET {key}")),
            false => self.ask(&format!("GET {}", base64::encode(key.as_bytes()))),
        }?;
        if let Some(value) = &value {
            let part = match key {
                "cloud-init:user-data" => InstancePart::UserData,
                "sdc:vendor-data" => InstancePart::VendorData,
                _ => InstancePart::Metadata,
            };
            self.taken.add_to(part, key, value.as_bytes());
        }
        Ok(value)
    }

    /// The names of all keys that the owner has set.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn keys(&mut self) -> Result<Vec<String>> {
        let keys = if self.is_old { self.ask_old("KEYS") } else { self.ask("KEYS") };
        let keys = keys?.unwrap_or_default();
        self.taken.add_to(InstancePart::Metadata, "KEYS", keys.as_bytes());
        Ok(keys.lines().take(MAX_KEYS).map(str::to_owned).collect())
    }

    fn ask(&mut self, request: &str) -> Result<Option<String>> {
        self.request = self.request.wrapping_add(1);
        let id = format!("{:08x}", self.request);
        let body = format!("{id} {request}");
        let answer = self.exchange(&format!("V2 {} {} {body}", body.len(), checksum(&body)))?;
        value(&answer, &id)
    }

    /// The answer to a request of version 1.
    fn ask_old(&mut self, request: &str) -> Result<Option<String>> {
        match self.exchange(request)?.as_str() {
            "SUCCESS" => {}
            "NOTFOUND" => return Ok(None),
            _ => return Err(invalid("expected SUCCESS or NOTFOUND")),
        }
        let mut text = String::new();
        loop {
            let line = self.receive()?;
            if line == "." {
                // The line feed of the last line is not the value's.
                text.pop();
                return Ok((!text.is_empty()).then_some(text));
            }
            text.push_str(line.strip_prefix('.').unwrap_or(&line));
            text.push('\n');
            if text.len() > MAX_LINE {
                return Err(invalid("it is too long"));
            }
        }
    }

    fn exchange(&mut self, request: &str) -> Result<String> {
        self.line.send(format!("{request}\n").as_bytes(), self.deadline)?;
        self.receive()
    }

    fn receive(&mut self) -> Result<String> {
        let answer = self.line.line(MAX_LINE, self.deadline)?;
        String::from_utf8(answer).map_err(|_| invalid("it is no text"))
    }
}

fn invalid(what: &str) -> Error {
    Error::new(format!("the host's answer is not valid: {what}"))
}

/// The value in a frame that answers the request `id`.
fn value(frame: &str, id: &str) -> Result<Option<String>> {
    let mut parts = frame.splitn(4, ' ');
    let (Some("V2"), Some(length), Some(sum), Some(body)) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(invalid("expected V2, a length, a checksum and a body"));
    };
    if length.parse() != Ok(body.len()) {
        return Err(invalid("its length is another one"));
    }
    if sum != checksum(body) {
        return Err(invalid("its checksum is another one"));
    }
    let mut words = body.split(' ');
    if words.next() != Some(id) {
        return Err(invalid("it answers another request"));
    }
    match (words.next(), words.next()) {
        (Some("NOTFOUND"), _) | (Some("SUCCESS"), None) => Ok(None),
        (Some("SUCCESS"), Some(encoded)) => {
            let bytes = base64::decode(encoded.as_bytes()).ok_or_else(|| invalid("expected base64"))?;
            String::from_utf8(bytes).map(Some).map_err(|_| invalid("expected UTF-8"))
        }
        _ => Err(invalid("expected SUCCESS or NOTFOUND")),
    }
}

/// CRC-32 in hexadecimal.
fn checksum(body: &str) -> String {
    format!("{:08x}", crc32(body.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    /// A session with a host that answers each of these requests once, in this order.
    fn session<T>(dialogue: &[(&str, &str)], with: impl FnOnce(Client) -> Result<T>) -> Result<T> {
        let dir = TempDir::new("mdata");
        let path = dir.0.join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut requests = BufReader::new(stream.try_clone().unwrap()).lines();
                for (request, answer) in dialogue {
                    match requests.next() {
                        Some(line) => assert_eq!(line.unwrap(), *request),
                        None => break,
                    }
                    stream.write_all(answer.as_bytes()).unwrap();
                }
            });
            with(Client::open(Line::unix(&path)?, false, Deadline::after(Duration::from_secs(60)), &Taken::default())?)
        })
    }

    #[test]
    fn a_host_of_version_1() {
        const V1: (&str, &str) = ("NEGOTIATE V2", "invalid command\n");
        let dialogue = [
            V1,
            ("KEYS", "SUCCESS\nhostname\nuser-script\n.\n"),
            ("GET user-script", "SUCCESS\n#!/bin/sh\n..profile\n\n...\n\n.\n"),
            ("GET none", "NOTFOUND\n"),
            ("GET empty", "SUCCESS\n.\n"),
        ];
        let seen = session(&dialogue, |mut client| {
            let keys = client.keys()?;
            let mut get = |key| client.get(key);
            Ok((keys, get("user-script")?, get("none")?, get("empty")?))
        });
        let keys = vec!["hostname".to_owned(), "user-script".to_owned()];
        assert_eq!(seen, Ok((keys, Some("#!/bin/sh\n.profile\n\n..\n".into()), None, None)));
        for wrong in ["FAILURE\n", "V2_OK\n", "invalid command\n", "SUCCESS\nno end\n", "SUCCESS\nno lin"] {
            let failed = session(&[V1, ("GET a", wrong)], |mut client| client.get("a"));
            assert!(failed.is_err(), "{wrong}: {failed:?}");
        }
    }

    #[test]
    fn a_host_of_another_version() {
        let error = session(&[("NEGOTIATE V2", "V3_OK\n")], |_| Ok(())).unwrap_err().to_string();
        assert_eq!(error, "the host knows neither version 2 of the metadata protocol nor version 1");
    }

    #[test]
    fn frames() {
        let frame = "V2 29 603c391a 00000007 SUCCESS dGVzdC1ob3N0";
        assert_eq!(value(frame, "00000007"), Ok(Some("test-host".into())));
        assert_eq!(value("V2 17 2d23001c 00000007 NOTFOUND", "00000007"), Ok(None));
        for broken in [
            "V2 28 603c391a 00000007 SUCCESS dGVzdC1ob3N0",
            "V2 29 603c391b 00000007 SUCCESS dGVzdC1ob3N0",
            "V2 29 603c391a 00000007 SUCCESS dGVzdC1ob3N1",
            "V3 29 603c391a 00000007 SUCCESS dGVzdC1ob3N0",
            "V2 29",
            "",
        ] {
            assert!(value(broken, "00000007").unwrap_err().to_string().starts_with("the host's answer is not valid: "));
        }
        assert!(value(frame, "00000008").is_err());
        crate::base::testing::mutations(frame.as_bytes(), 2000, |bytes| {
            // The sum of the body is in the frame: what is changed there is seen.
            let found = value(&String::from_utf8_lossy(bytes), "00000007");
            assert!(found.is_err() || found.is_ok_and(|text| text.as_deref() == Some("test-host")));
        });
    }
}
