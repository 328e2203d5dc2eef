//! LXD's socket on the machine of a case: a Unix socket that answers HTTP.

use super::case::{Case, Entry};
use super::surroundings::script;
use prepivot::link::http::script::Script;
use prepivot::link::http::{Request, Transport};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

/// The host behind the socket, as clients call it.
const HOST: &str = "http://lxd/";

/// Answers the case's requests on the socket of its tree, if they go there, until the tests end.
pub fn serve(case: &Case, dir: &Path) {
    let mut sockets = case.files.iter().filter(|(_, entry)| matches!(entry, Entry::Socket));
    let Some((path, _)) = sockets.next().filter(|_| case.http.iter().any(|e| e.url.starts_with(HOST))) else { return };
    let path = dir.join(path.trim_start_matches('/'));
    std::fs::remove_file(&path).expect("the socket of the tree");
    let listener = UnixListener::bind(path).expect("a socket");
    let script = script(case);
    std::thread::spawn(move || {
        for connection in listener.incoming().map_while(Result::ok) {
            answer(connection, &script);
        }
    });
}

/// Answers the requests of one connection in turn, and hangs up on one that is not listed.
fn answer(connection: UnixStream, script: &Script) {
    let mut connection = BufReader::new(connection);
    let mut head = String::new();
    while connection.read_line(&mut head).is_ok_and(|read| read > 0) {
        if !head.ends_with("\r\n\r\n") {
            continue;
        }
        let url = format!("{HOST}{}", head.split(' ').nth(1).unwrap_or_default().trim_start_matches('/'));
        head.clear();
        let Ok(reply) = script.exchange(&Request::get(&url), Duration::ZERO) else { return };
        let head = format!("HTTP/1.1 {} -\r\nContent-Length: {}\r\n\r\n", reply.status, reply.body.len());
        if connection.get_mut().write_all(&[head.as_bytes(), &reply.body].concat()).is_err() {
            return;
        }
    }
}
