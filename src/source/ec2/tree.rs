//! Reads a tree of metadata over HTTP, as in EC2's service and copies of it: listings with one name per line,
//! and a session token if the service asks for one.
//!
//! Follows the EC2 user guide, "Instance metadata and user data".

use crate::base::error::{Error, Result};
use crate::base::percent;
use crate::base::problem::Problems;
use crate::document::{Map, Value, json};
use crate::link::http::{Client, Reply, Request, refused};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// How long a token is valid, in seconds: the longest that the services allow.
const TOKEN_TTL: &str = "21600";
/// Limits of the tree: its depth, the number of names, and the bytes of one value and of all.
const MAX_DEPTH: usize = 10;
const MAX_NAMES: usize = 2_000;
const MAX_VALUE: usize = 256 << 10;
const MAX_TREE: usize = 1 << 20;
/// How many values are fetched in parallel.
const THREADS: usize = 6;
/// How often one value is tried. The tree has many, and one that fails is left out.
pub const VALUE_TRIES: u32 = 5;
/// The value of a tag that is listed but does not exist (cloud-init's).
const NO_TAG: &str = "(skipped)";

/// The names of a service's token headers: for the token, and for its lifetime.
pub struct Tokens {
    pub header: &'static str,
    pub lifetime: &'static str,
}

/// A service at one URL.
pub struct Service<'a> {
    client: &'a Client,
    base: &'a str,
    tokens: Option<&'static Tokens>,
    /// Empty: none.
    token: Mutex<String>,
}

impl<'a> Service<'a> {
    /// The service at `base`. With `tokens`, a token is fetched once the service asks for one (401).
    pub fn new(client: &'a Client, base: &'a str, tokens: Option<&'static Tokens>) -> Self {
        Service { client, base, tokens, token: Mutex::default() }
    }

    fn token(&self) -> String {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Fetches a new token, unless another thread has already replaced `old`.
    ///
    /// # Errors
    /// The service has no tokens, refuses, or does not answer.
    pub fn renew(&self, old: &str) -> Result<()> {
        let tokens = self.tokens.ok_or_else(|| refused("GET", self.base, 401))?;
        let mut token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        if *token != old {
            return Ok(());
        }
        let url = format!("{}/latest/api/token", self.base);
        let headers = [(tokens.lifetime, TOKEN_TTL)];
        let request = Request { method: "PUT", headers: &headers, limit: 4096, ..Request::get(&url) };
        let reply = self.client.send(&request)?;
        let text = String::from_utf8(reply.body).unwrap_or_default().trim().to_owned();
        // A header value has to be one line of printable ASCII.
        let good = !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
        match reply.status {
            200..=299 if good => {
                *token = text;
                Ok(())
            }
            200..=299 => Err(Error::new(format!("{url}: expected a token in the answer"))),
            403 => Err(refused("PUT", &url, 403).context("the instance has its metadata service switched off")),
            status => Err(refused("PUT", &url, status)),
        }
    }

    fn send(&self, request: &Request) -> Result<Reply> {
        let token = self.token();
        let send = |token: &str| {
            let headers = self.tokens.map(|tokens| [(tokens.header, token)]);
            let headers = headers.as_ref().filter(|_| !token.is_empty());
            self.client.send(&Request { headers: headers.map_or(&[][..], |h| &h[..]), ..request.clone() })
        };
        let reply = send(&token)?;
        if reply.status != 401 || self.tokens.is_none() {
            return Ok(reply);
        }
        self.renew(&token)?;
        send(&self.token())
    }

    /// A document; None if it does not exist.
    ///
    /// # Errors
    /// As [`Client::document`].
    pub fn get(&self, request: &Request) -> Result<Option<Vec<u8>>> {
        self.send(request)?.document(request)
    }

    /// The instance-id at the URL of `request`.
    ///
    /// # Errors
    /// No response, or one that is not an instance-id.
    pub fn instance_id(&self, request: Request) -> Result<String> {
        let url = request.url;
        let missing = || Error::new(format!("{url}: there is no such document: no EC2 metadata"));
        let body = self.get(&Request { limit: 4096, ..request })?.ok_or_else(missing)?;
        let id = String::from_utf8_lossy(&body).trim().to_owned();
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
        if id.is_empty() || id.len() > 255 || !id.chars().all(good) {
            return Err(Error::new(format!("{url}: expected an instance-id: another service answers there")));
        }
        Ok(id)
    }

    /// The tree below `root`, read level by level with the values of a level in parallel; `id` is its
    /// instance-id. Failures are added to `problems`.
    pub fn tree(&self, root: &str, id: &str, problems: &Problems) -> Map {
        let mut tree = Map::new();
        tree.insert("instance-id", id);
        let mut folders: Vec<Vec<String>> = vec![Vec::new()];
        let mut names = 0;
        let left = AtomicUsize::new(MAX_TREE);
        for _ in 0..MAX_DEPTH {
            let urls =
                folders.iter().map(|f| format!("{root}/{}", f.iter().map(|n| escaped(n) + "/").collect::<String>()));
            let listings = self.all(&urls.collect::<Vec<_>>(), &left, problems);
            let (mut next, mut leaves) = (Vec::new(), Vec::new());
            for (folder, listing) in folders.iter().zip(listings) {
                let Some(listing) = listing else { continue };
                insert(&mut tree, folder, Map::new().into());
                for entry in entries(&String::from_utf8_lossy(&listing)) {
                    names += 1;
                    let path = |name: &str| folder.iter().cloned().chain([name.to_owned()]).collect::<Vec<_>>();
                    match entry {
                        _ if names > MAX_NAMES => {}
                        Entry::Folder(name) => next.push(path(&name)),
                        Entry::Leaf { name, .. } if folder.is_empty() && name == "instance-id" => {}
                        Entry::Leaf { name, at } => {
                            leaves.push((path(&name), [folder.as_slice(), &[at]].concat().join("/")))
                        }
                    }
                }
            }
            let urls: Vec<String> = leaves.iter().map(|(_, at)| format!("{root}/{}", escaped(at))).collect();
            for ((path, _), body) in leaves.into_iter().zip(self.all(&urls, &left, problems)) {
                match body {
                    Some(body) => insert(&mut tree, &path, value(&body)),
                    // A listed tag may have no value (Outscale).
                    None if path.first().is_some_and(|name| name == "tags") => {
                        insert(&mut tree, &path, NO_TAG.into());
                    }
                    None => {}
                }
            }
            folders = next;
            if folders.is_empty() {
                break;
            }
        }
        if names > MAX_NAMES {
            problems.warn(format!("{root}: more than {MAX_NAMES} names; the rest is left out"));
        }
        tree
    }

    /// The documents at `urls`, in order. None for those that do not exist, or failed, which is added to `problems`. `left`: how
    /// many bytes they may still take.
    fn all(&self, urls: &[String], left: &AtomicUsize, problems: &Problems) -> Vec<Option<Vec<u8>>> {
        let next = AtomicUsize::new(0);
        let results = Mutex::new(Vec::with_capacity(urls.len()));
        std::thread::scope(|scope| {
            for _ in 0..THREADS.min(urls.len()) {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(url) = urls.get(at) else { return };
                        let request = Request { limit: MAX_VALUE, tries: VALUE_TRIES, ..Request::get(url) };
                        let fits = |body: &Vec<u8>| {
                            let order = Ordering::Relaxed;
                            left.fetch_update(order, order, |left| left.checked_sub(body.len())).is_ok()
                        };
                        let result = match self.get(&request) {
                            Ok(Some(body)) if !fits(&body) => {
                                Err(Error::new(format!("{url}: left out: all values are more than {MAX_TREE} bytes")))
                            }
                            result => result,
                        };
                        results.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
                    }
                });
            }
        });
        let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        crate::base::sort::by_key(&mut results, |(at, _)| *at);
        let found = |(_, result): (usize, Result<Option<Vec<u8>>>)| {
            result.unwrap_or_else(|e| {
                problems.warn(e.to_string());
                None
            })
        };
        results.into_iter().map(found).collect()
    }
}

/// One line of a listing.
#[derive(Debug, PartialEq, Eq)]
enum Entry {
    Folder(String),
    /// A value and its path: for SSH keys the listing has `0=name`, and the key is at `0/openssh-key`.
    Leaf {
        name: String,
        at: String,
    },
}

/// The lines of a listing. Credentials are left out: the copy on the disk must not contain them.
fn entries(listing: &str) -> Vec<Entry> {
    let plain = |name: &str| {
        let good = |c: char| c != '/' && !c.is_control();
        !name.is_empty() && name != "." && name != ".." && name.chars().all(good)
    };
    let entry = |line: &str| {
        let line = line.trim();
        // A tag's name may contain this character too.
        if let Some((number, name)) = line.split_once('=')
            && let Ok(number) = number.parse::<u32>()
        {
            return Some(Entry::Leaf { name: name.to_owned(), at: format!("{number}/openssh-key") });
        }
        match line.strip_suffix('/') {
            Some("security-credentials") => None,
            Some(name) if plain(name) => Some(Entry::Folder(name.to_owned())),
            None if line != "security-credentials" && plain(line) => {
                Some(Entry::Leaf { name: line.to_owned(), at: line.to_owned() })
            }
            _ => None,
        }
    };
    listing.lines().filter_map(entry).collect()
}

/// A path escaped for a URL (cloud-init 26.2, url_helper.py, `combine_url`).
fn escaped(path: &str) -> String {
    percent::encode(path, percent::PATH).replace("%3A", ":")
}

/// Converts each text of a document that has the whole tree, as the tree's values are.
pub fn with_values(document: Value) -> Value {
    match document {
        Value::Map(map) => {
            Value::Map(map.into_entries().into_iter().map(|(key, inner)| (key, with_values(inner))).collect())
        }
        Value::List(list) => Value::List(list.into_iter().map(with_values).collect()),
        Value::String(text) => value(text.as_bytes()),
        Value::Null => "".into(),
        other => other,
    }
}

/// A value: a mapping if it is JSON, a list if it has several lines, else a string.
fn value(body: &[u8]) -> Value {
    let Ok(text) = std::str::from_utf8(body) else { return Value::Bytes(body.into()) };
    if text.trim_start().starts_with('{')
        && let Ok(value) = json::parse("metadata", body)
    {
        return value;
    }
    if text.contains('\n') {
        return Value::List(text.lines().map(Value::from).collect());
    }
    Value::from(text)
}

fn insert(tree: &mut Map, path: &[String], value: Value) {
    let Some((name, rest)) = path.split_first() else { return };
    if rest.is_empty() {
        tree.insert(name.as_str(), value);
        return;
    }
    if !matches!(tree.get(name), Some(Value::Map(_))) {
        tree.insert(name.as_str(), Map::new());
    }
    if let Some(Value::Map(folder)) = tree.get_mut(name) {
        insert(folder, rest, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::deadline::Deadline;
    use crate::link::Uplink;
    use crate::link::http::script::{Answer, Script};
    use crate::link::http::{Findings, Redirects};
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn listings() {
        let listing =
            "ami-id\nnetwork/\n0=my key\niam/\nsecurity-credentials/\n../x\n..\n\n02:00:00:00:00:01/\na b\nk=1,2\n";
        let folder = |n: &str| Entry::Folder(n.into());
        let leaf = |n: &str, at: &str| Entry::Leaf { name: n.into(), at: at.into() };
        let expected = [
            leaf("ami-id", "ami-id"),
            folder("network"),
            leaf("my key", "0/openssh-key"),
            folder("iam"),
            folder("02:00:00:00:00:01"),
            leaf("a b", "a b"),
            leaf("k=1,2", "k=1,2"),
        ];
        assert_eq!(escaped("tags/02:00/a b=1"), "tags/02:00/a%20b%3D1");
        assert_eq!(entries(listing), expected);
    }

    #[test]
    fn values() {
        assert_eq!(value(b"i-1"), Value::from("i-1"));
        assert_eq!(value(b"a\nb"), Value::List(vec!["a".into(), "b".into()]));
        assert_eq!(value(br#"{"Code": "Success"}"#).get("Code"), Some(&Value::from("Success")));
        assert_eq!(value(b"{broken"), Value::from("{broken"));
    }

    /// 2,000 values of 256 KB would be half a gigabyte.
    #[test]
    fn all_values_are_bounded_together() {
        let listing: String = (0..100).map(|i| format!("v{i}\n")).collect();
        let mut script = Script::default().with("GET", "http://h/", Answer::new(200, listing));
        for i in 0..100 {
            script = script.with("GET", &format!("http://h/v{i}"), Answer::new(200, vec![b'x'; 100_000]));
        }
        let (uplink, deadline) = (Uplink::system(), Deadline::after(Duration::from_secs(60)));
        let client = Client::over(Arc::new(script), &uplink, Redirects::SameOrigin, deadline, &Findings::default());
        let problems = Problems::new();
        let tree = Service::new(&client, "http://h", None).tree("http://h", "i-1", &problems);
        assert_eq!((tree.len(), problems.len()), (11, 90), "{:?}", problems);
        assert!(
            problems.entries()[0].to_string().contains("all values are more than"),
            "{}",
            problems.entries()[0].to_string()
        );
    }
}
