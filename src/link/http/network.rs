//! HTTP over the network with ureq: one connection pool per client, bound to the client's uplink.
//!
//! Proxies of the environment are not used. Headers and bodies are bounded.

use super::{Failure, Reply, Request, Transport, Uplink};
use crate::base::cancel::Cancel;
use crate::base::error::{Context, Error, Result};
use crate::link::dns::UplinkResolver;
use crate::link::tcp::{self, LinkConnector};
use crate::link::tls;
use crate::link::url::unscoped;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;
use ureq::Agent;
use ureq::http::Uri;
use ureq::unversioned::resolver::Resolver;
use ureq::unversioned::transport::{NextTimeout, time};

/// How long a service may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// The largest status line and headers of a response, in bytes.
const MAX_HEADERS: usize = 32 << 10;
/// Larger than the largest headers: that they are too large shows only when more has arrived.
const INPUT_BUFFER: usize = MAX_HEADERS + (8 << 10);
const OUTPUT_BUFFER: usize = 8 << 10;
/// As cloud-init, every request names its sender.
const USER_AGENT: &str = concat!("prepivot/", env!("CARGO_PKG_VERSION"));

/// The network through one uplink.
pub struct Network {
    uplink: Uplink,
    image: Option<PathBuf>,
    cancel: Cancel,
    plain: Agent,
    tls: OnceLock<Result<tls::Config>>,
    secure: OnceLock<Result<Agent>>,
}

impl Network {
    /// `image` is the root whose certificates are read when https is first needed.
    pub fn new(uplink: &Uplink, image: Option<PathBuf>, cancel: Cancel) -> Self {
        let plain = Agent::with_parts(config().build(), connector(uplink, &cancel, None), resolver(uplink, &cancel));
        Network { uplink: uplink.clone(), image, cancel, plain, tls: OnceLock::new(), secure: OnceLock::new() }
    }

    /// The connection pool for a request. Connections from a given local port are not reused.
    fn agent(&self, https: bool, port: Option<u16>) -> Result<Agent> {
        match (https, port) {
            (false, None) => Ok(self.plain.clone()),
            (false, port) => {
                let (connector, resolver) = self.parts(port);
                Ok(Agent::with_parts(config().build(), connector, resolver))
            }
            (true, None) => self.secure.get_or_init(|| self.secure(None)).clone(),
            (true, port) => self.secure(port),
        }
    }

    fn parts(&self, port: Option<u16>) -> (LinkConnector, UplinkResolver) {
        (connector(&self.uplink, &self.cancel, port), resolver(&self.uplink, &self.cancel))
    }

    fn secure(&self, port: Option<u16>) -> Result<Agent> {
        let tls = self.tls.get_or_init(|| tls::config(self.image.as_deref())).clone()?;
        let (connector, resolver) = self.parts(port);
        Ok(tls::agent(config().build(), connector, resolver, tls))
    }
}

impl Transport for Network {
    fn exchange(&self, request: &Request, timeout: Duration) -> std::result::Result<Reply, Failure> {
        let uri: Uri = unscoped(request.url).parse().map_err(|_| Failure::Final(Error::new("not a valid URL")))?;
        let https = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(Failure::Final(Error::new("not an http or https URL"))),
        };
        let agent = self.agent(https, request.source_port).map_err(Failure::Final)?;
        let mut builder = ureq::http::Request::builder().method(request.method).uri(uri);
        for (name, value) in request.headers {
            builder = builder.header(*name, *value);
        }
        tcp::forget_ends();
        let with_body = !request.body.is_empty() || !matches!(request.method, "GET" | "HEAD" | "DELETE");
        let sent = if with_body {
            let whole = builder.body(request.body).context(|| "not a valid request").map_err(Failure::Final)?;
            agent.run(agent.configure_request(whole).timeout_global(Some(timeout)).build())
        } else {
            let whole = builder.body(()).context(|| "not a valid request").map_err(Failure::Final)?;
            agent.run(agent.configure_request(whole).timeout_global(Some(timeout)).build())
        };
        let mut response = sent.map_err(|e| failure(e, timeout))?;
        let too_large = || Failure::Final(Error::new(format!("larger than {} bytes, the limit", request.limit)));
        if response.body().content_length().is_some_and(|len| len > request.limit as u64) {
            return Err(too_large());
        }
        let body = match response.body_mut().with_config().limit(request.limit as u64).read_to_vec() {
            Ok(body) => body,
            Err(ureq::Error::BodyExceedsLimit(_)) => return Err(too_large()),
            Err(ureq::Error::Io(e)) if e.kind() == ErrorKind::UnexpectedEof => {
                return Err(Failure::Invalid("the connection ended before the answer did".into()));
            }
            Err(e) => return Err(failure(e, timeout)),
        };
        let text = |value: &ureq::http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = response.headers().iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
        let ends = tcp::last_ends();
        Ok(Reply {
            status: response.status().as_u16(),
            headers,
            body,
            peer: ends.map(|e| e.peer),
            local: ends.map(|e| e.local.ip()),
        })
    }

    fn resolve(&self, name: &str, timeout: Duration) -> Vec<IpAddr> {
        let Ok(uri) = format!("http://{name}/").parse::<Uri>() else { return Vec::new() };
        let (_, resolver) = self.parts(None);
        let after = time::Duration::Exact(timeout);
        let timeout = NextTimeout { after, reason: ureq::Timeout::Resolve, per_read: None, per_write: None };
        let found = resolver.resolve(&uri, self.plain.config(), timeout);
        found.map_or_else(|_| Vec::new(), |found| found.iter().map(|address| address.ip()).collect())
    }

    fn wait(&self, time: Duration) -> bool {
        self.cancel.wait(time)
    }
}

fn connector(uplink: &Uplink, cancel: &Cancel, port: Option<u16>) -> LinkConnector {
    LinkConnector {
        link: uplink.link.clone(),
        socket: uplink.socket.clone(),
        port,
        cancel: cancel.clone(),
        connect: CONNECT,
    }
}

fn resolver(uplink: &Uplink, cancel: &Cancel) -> UplinkResolver {
    UplinkResolver { uplink: uplink.clone(), cancel: cancel.clone() }
}

fn config() -> ureq::config::ConfigBuilder<ureq::typestate::AgentScope> {
    Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .user_agent(USER_AGENT)
        .input_buffer_size(INPUT_BUFFER)
        .output_buffer_size(OUTPUT_BUFFER)
        .max_response_header_size(MAX_HEADERS)
}

fn failure(error: ureq::Error, timeout: Duration) -> Failure {
    match error {
        ureq::Error::Io(e) => Failure::Silent(e.to_string()),
        ureq::Error::Timeout(_) => Failure::Silent(format!("no complete answer in {:.1} s", timeout.as_secs_f64())),
        ureq::Error::ConnectionFailed => Failure::Silent("no connection".into()),
        ureq::Error::HostNotFound => Failure::Nameless("the host name was not found".into()),
        ureq::Error::Protocol(e) => Failure::Invalid(format!("not an HTTP answer: {e}")),
        ureq::Error::LargeResponseHeader(..) => {
            Failure::Final(Error::new(format!("headers larger than {MAX_HEADERS} bytes, the limit")))
        }
        e => Failure::Final(Error::new(e.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Client, Findings, Redirects, Settings};
    use super::*;
    use crate::base::deadline::Deadline;
    use crate::base::testing::TempDir;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;
    use std::thread::JoinHandle;

    fn client(uplink: &Uplink, seconds: u64) -> Client {
        let settings = Settings { redirects: Redirects::Any, image: None };
        let deadline = Deadline::after(Duration::from_secs(seconds));
        Client::new(uplink, &settings, deadline, Cancel::new().unwrap(), &Findings::default())
    }

    /// Answers one request, and returns its head.
    fn serve(mut connection: impl Read + Write, answer: &[u8]) -> String {
        let mut head = Vec::new();
        let mut buffer = [0; 4096];
        while !head.windows(4).any(|w| w == b"\r\n\r\n") {
            let len = connection.read(&mut buffer).unwrap();
            head.extend(&buffer[..len]);
        }
        let _ = connection.write_all(answer);
        String::from_utf8(head).unwrap()
    }

    /// A server on loopback for one request: its URL, and the request's head and port.
    fn server(answer: Vec<u8>) -> (String, JoinHandle<(String, u16)>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/x", listener.local_addr().unwrap());
        let thread = std::thread::spawn(move || {
            let (connection, peer) = listener.accept().unwrap();
            (serve(connection, &answer), peer.port())
        });
        (url, thread)
    }

    #[test]
    fn a_request_and_its_answer() {
        let (url, thread) = server(b"HTTP/1.1 401 No\r\nDate: now\r\nContent-Length: 2\r\n\r\nhi".to_vec());
        let headers = [("Host", "metadata.example"), ("X-Token", "t")];
        let request = Request { headers: &headers, ..Request::post(&url, b"body") };
        let reply = client(&Uplink::system(), 20).send(&request).unwrap();
        assert_eq!((reply.status, reply.header("date"), reply.body.as_slice()), (401, Some("now"), &b"hi"[..]));
        assert_eq!(reply.local, Some([127, 0, 0, 1].into()));
        assert!(url.contains(&reply.peer.unwrap().to_string()));
        let (head, _) = thread.join().unwrap();
        let lower = head.to_ascii_lowercase();
        assert!(head.starts_with("POST /x HTTP/1.1\r\n") && lower.contains("x-token: t\r\n"), "{head}");
        assert_eq!(lower.matches("host: ").count(), 1, "{head}");
        assert!(lower.contains("host: metadata.example\r\n"), "{head}");
    }

    #[test]
    fn the_local_port_is_the_one_asked_for() {
        // A port that is free now.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        for _ in 0..2 {
            let (url, thread) = server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec());
            let request = Request { source_port: Some(port), ..Request::get(&url) };
            client(&Uplink::system(), 20).send(&request).unwrap();
            assert_eq!(thread.join().unwrap().1, port);
        }
    }

    #[test]
    fn a_unix_socket_takes_the_place_of_tcp() {
        let dir = TempDir::new("socket");
        let path = dir.0.join("sock");
        let listener = UnixListener::bind(&path).unwrap();
        let thread = std::thread::spawn(move || {
            serve(listener.accept().unwrap().0, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")
        });
        let client = client(&Uplink::socket(&path), 20);
        let reply = client.send(&Request::get("http://lxd/1.0/config")).unwrap();
        assert_eq!((reply.body.as_slice(), reply.peer, reply.local), (&b"[]"[..], None, None));
        assert!(thread.join().unwrap().to_ascii_lowercase().contains("host: lxd\r\n"));
    }

    #[test]
    fn an_oversized_answer_is_an_error_at_once() {
        let started = std::time::Instant::now();
        let error = |answer: Vec<u8>, request: Request| {
            let (url, thread) = server(answer);
            let error = client(&Uplink::system(), 60).send(&Request { url: &url, ..request }).unwrap_err().to_string();
            thread.join().unwrap();
            error
        };
        let padding = "x".repeat(40 << 10);
        for head in [format!("HTTP/1.1 200 OK\r\nA: {padding}"), format!("HTTP/1.1 200 OK\r\nA: {padding}\r\n\r\n")] {
            let error = error(head.into_bytes(), Request::get("u"));
            assert!(error.ends_with("headers larger than 32768 bytes, the limit"), "{error}");
        }
        for head in ["Content-Length: 9\r\n\r\n", "Content-Length: 9\r\n\r\n123456789", "\r\n123456789"] {
            let answer = format!("HTTP/1.1 200 OK\r\n{head}").into_bytes();
            let error = error(answer, Request { limit: 8, ..Request::get("u") });
            assert!(error.ends_with("larger than 8 bytes, the limit"), "{error}");
        }
        assert!(started.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn reset_connection_makes_an_answer_incomplete() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/x", listener.local_addr().unwrap());
        let thread = std::thread::spawn(move || {
            for last in [false, true] {
                let (connection, _) = listener.accept().unwrap();
                // Its length is only known by the end of the connection.
                serve(&connection, if last { b"HTTP/1.0 200 OK\r\n\r\nwhole" } else { b"HTTP/1.0 200 OK\r\n\r\nwh" });
                if !last {
                    rustix::net::sockopt::set_socket_linger(&connection, Some(Duration::ZERO)).unwrap();
                }
            }
        });
        assert_eq!(client(&Uplink::system(), 30).get(&url).unwrap().as_deref(), Some(&b"whole"[..]));
        thread.join().unwrap();
    }

    /// Gives each of several requests the same answer and closes the connection; returns the error, and how often it was asked.
    fn refused(answer: &'static [u8]) -> (String, usize) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/x", listener.local_addr().unwrap());
        let thread = std::thread::spawn(move || {
            let requests = listener.incoming().take_while(|connection| {
                let head = serve(connection.as_ref().unwrap(), answer);
                !head.starts_with("GET /end ")
            });
            requests.count()
        });
        let error = client(&Uplink::system(), 60).get(&url).unwrap_err().to_string();
        let _ = client(&Uplink::system(), 5).send(&Request { tries: 1, ..Request::get(&url.replace("/x", "/end")) });
        (error, thread.join().unwrap())
    }

    #[test]
    fn gives_up_on_answers_that_are_cut_short() {
        let started = std::time::Instant::now();
        for answer in [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"[..],
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\nshort",
        ] {
            let (error, tries) = refused(answer);
            assert!(error.ends_with("the connection ended before the answer did (3 tries)"), "{error}");
            assert_eq!(tries, 3);
        }
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn takes_no_part_for_the_whole() {
        let (error, tries) = refused(b"HTTP/1.1 206 Partial Content\r\nContent-Length: 4\r\n\r\npart");
        assert!(error.contains("206 Partial Content, although the whole was asked for (3 tries)"), "{error}");
        assert_eq!(tries, 3);
        let (error, _) = refused(
            b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
        );
        assert!(error.contains("Transfer-Encoding and Content-Length in one answer"), "{error}");
    }

    #[test]
    fn few_interim_answers_are_enough() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/x", listener.local_addr().unwrap());
        let thread = std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            serve(&connection, &b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n".repeat(20));
            connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi").unwrap();
            let (mut connection, _) = listener.accept().unwrap();
            serve(&connection, b"");
            while connection.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let started = std::time::Instant::now();
        assert_eq!(client(&Uplink::system(), 60).get(&url).unwrap().as_deref(), Some(&b"hi"[..]));
        let error = client(&Uplink::system(), 60).get(&url).unwrap_err().to_string();
        assert!(error.ends_with("more than 20 interim answers"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(20));
        thread.join().unwrap();
    }

    #[test]
    fn addresses_of_a_host() {
        let client = client(&Uplink::system(), 20);
        assert_eq!(client.resolve("127.0.0.1"), [std::net::IpAddr::from([127, 0, 0, 1])]);
        assert!(client.resolve("no such name").is_empty());
    }
}
