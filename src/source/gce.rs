//! Google Compute Engine.
//!
//! Follows Google's documentation, "About VM metadata" and "Add SSH keys to VMs", and cloud-init's, "Google Compute Engine".

use super::closed::{Closing, ServiceAddress};
use super::search::{Found, Search};
use super::service::{BETWEEN, Job, MAX_WAIT, RETRIES, TIMEOUT, is_id, limits};
use super::table::{Live, Source, Update};
use crate::base::base64;
use crate::base::clock;
use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::detect::Mark;
use crate::document::{Bytes, Map, Value, json};
use crate::instance::{Instance, NetworkData};
use crate::link::Uplink;
use crate::link::http::{Client, Reply, Request, refused};
use crate::machine::Nic;
use crate::network::fallback;
use std::thread::ScopedJoinHandle;

pub static SOURCE: Source = Source {
    name: "GCE",
    marks: &[Mark::product("Google Compute Engine"), Mark::serial("GoogleCloud-*")],
    service: Some(service_job),
    updates: &[Update::NewInstance, Update::Boot],
    publish_host_keys: Some(publish_host_keys),
    closing: Closing {
        addresses: &[
            ServiceAddress::tcp("169.254.169.254", &[80, 443, 8080]),
            ServiceAddress::tcp("fd20:ce::254", &[80, 443, 8080]),
        ],
        stays: "DNS and NTP of the same addresses",
    },
    settings: &[
        (
            "metadata_url",
            "address of the service with its path, instead of http://metadata.google.internal/computeMetadata/v1/",
        ),
        MAX_WAIT,
        TIMEOUT,
        RETRIES,
        BETWEEN,
    ],
    docs: "Google Compute Engine. Read from http://metadata.google.internal, a name that the network's own server resolves. \
        User-data is the instance's attribute user-data, in base64 where the attribute user-data-encoding says so. SSH keys of \
        the instance, and of the project unless block-project-ssh-keys is true, are used where they are for the default user or \
        for cloudinit and have not expired. The SSH host keys are published as guest attributes, where the project allows those.",
    ..Source::NEW
};

const URL: &str = "http://metadata.google.internal/computeMetadata/v1/";
/// A header that shows that the request is meant for the service, and not sent by a program that was tricked
/// into requesting a URL.
const FLAVOR: (&str, &str) = ("Metadata-Flavor", "Google");
/// The document that identifies the service.
const ID: &str = "instance/id";
/// The attributes of the instance or the project.
const ATTRIBUTES: &str = "/attributes/?recursive=True";
/// How often another document is tried.
const TRIES: u32 = 6;
/// How many lines of keys are read.
const MAX_LINES: usize = 10_000;
/// A user name in keys that means the default user, whatever its name.
const ANY_DEFAULT_USER: &str = "cloudinit";

fn service_job(search: &mut Search) -> Option<Job> {
    let url = url(search.config);
    let (user, nics) = (default_user(search.config), search.machine.nics());
    let fetch = move |client: &Client, base: &str| {
        let instance = read(client, base, user.as_deref(), &nics)?;
        Ok(Found { instance, place: base.into() })
    };
    let urls = move |uplink: &Uplink| if uplink.reaches(&url) { vec![url.clone()] } else { Vec::new() };
    Some(Job::new(SOURCE.name, urls, fetch, limits(search, SOURCE.name)))
}

/// The service's URL, ending with a slash.
fn url(config: &Value) -> String {
    let configured = config.at(&["datasource", SOURCE.name, "metadata_url"]).and_then(Value::as_str);
    format!("{}/", configured.unwrap_or(URL).trim_end_matches('/'))
}

/// The name of the default user in the image's configuration.
fn default_user(config: &Value) -> Option<String> {
    let name = |user: &Value| user.get("name").and_then(Value::text).or_else(|| user.text()).filter(|n| !n.is_empty());
    if let Some(own) = config.get("user").and_then(name) {
        return Some(own);
    }
    let is_default = |user: &Value| name(user).is_some_and(|n| n == "default");
    let listed = match config.get("users")? {
        Value::List(users) => users.iter().any(is_default),
        Value::String(names) => names.split(',').any(|n| n.trim() == "default"),
        Value::Map(users) => users.contains_key("default"),
        _ => false,
    };
    config.at(&["system_info", "default_user"]).filter(|_| listed).and_then(name)
}

fn get(client: &Client, base: &str, path: &str) -> Result<Option<Reply>> {
    let url = format!("{base}{path}");
    let (tries, first) = (if path == ID { u32::MAX } else { TRIES }, !path.ends_with(ATTRIBUTES));
    let reply = client.send(&Request { headers: &[FLAVOR], tries, first, ..Request::get(&url) })?;
    match reply.status {
        200..=299 => Ok(Some(reply)),
        404 => Ok(None),
        status => Err(refused("GET", &url, status)),
    }
}

/// A value that every instance has.
fn required(client: &Client, base: &str, path: &str) -> Result<String> {
    let reply = get(client, base, path)?;
    let text = reply.and_then(|r| String::from_utf8(r.body).ok()).map(|t| t.trim().to_owned());
    text.filter(|t| !t.is_empty() && t.len() <= 1024 && !t.contains(char::is_control)).ok_or_else(|| {
        Error::new(format!("{base}{path}: expected a value in one line: no Google metadata service answers there"))
    })
}

/// Attributes, and the time of the response by the service's clock, in seconds since 1970.
type Attributes = (Map, Option<u64>);

/// The attributes of the instance or the project. Empty if there are none.
fn attributes(client: &Client, base: &str, of: &str) -> Result<Attributes> {
    let path = format!("{of}{ATTRIBUTES}");
    let Some(reply) = get(client, base, &path)? else { return Ok((Map::new(), None)) };
    let date = reply.header("date").and_then(clock::parse_http_date);
    match json::parse(&format!("{base}{path}"), &reply.body)? {
        Value::Map(map) => Ok((map, date)),
        _ => Err(Error::new(format!("{base}{path}: expected a mapping; the attributes of the {of} are not used"))),
    }
}

fn read(client: &Client, base: &str, user: Option<&str>, nics: &[Nic]) -> Result<Instance> {
    let id = required(client, base, ID)?;
    if !is_id(&id) {
        return Err(Error::new(format!("{base}instance/id: expected an instance-id: another service answers there")));
    }
    let problems = Problems::new();
    let (zone, hostname, own, project) = std::thread::scope(|scope| {
        let spawn = |of| std::thread::Builder::new().spawn_scoped(scope, move || attributes(client, base, of));
        let (own, project) = (spawn("instance"), spawn("project"));
        let zone = required(client, base, "instance/zone");
        let hostname = required(client, base, "instance/hostname");
        let join = |thread: std::io::Result<ScopedJoinHandle<Result<Attributes>>>| {
            match thread.map(ScopedJoinHandle::join) {
                Ok(Ok(Ok(found))) => return found,
                Ok(Ok(Err(e))) => problems.warn(format!("{e}; the boot goes on without it")),
                _ => problems.warn("failed to start a thread for the attributes"),
            }
            (Map::new(), None)
        };
        (zone, hostname, join(own), join(project))
    });
    let (zone, hostname, (own, date), (project, _)) = (zone?, hostname?, own, project);
    let zone = zone.rsplit('/').next().unwrap_or_default().to_owned();
    let keys = key_lines(&own, &project);
    let now = date.unwrap_or_else(|| clock::since_1970(client.now()).as_secs());
    let metadata: Map = [
        ("instance-id", Value::from(id.as_str())),
        ("availability-zone", zone.as_str().into()),
        ("local-hostname", hostname.as_str().into()),
        ("public-keys-data", Value::List(keys.iter().map(|k| Value::from(k.as_str())).collect())),
        ("instance-data", Value::Map(own.clone())),
        ("project-data", Value::Map(project)),
    ]
    .into_iter()
    .collect();
    Ok(Instance {
        source: SOURCE.name.into(),
        class: "DataSourceGCELocal".into(),
        platform: "gce".into(),
        cloud_name: "gce".into(),
        subplatform: format!("metadata ({base})"),
        instance_id: id,
        local_hostname: hostname.split('.').next().map(str::to_owned),
        region: Some(zone.rsplit_once('-').map_or(zone.as_str(), |(region, _)| region).to_owned()),
        availability_zone: Some(zone),
        public_keys: public_keys(&keys, user, now),
        user_data: user_data(&own, &problems).map(Bytes::from),
        network: network(client.uplink(), nics),
        metadata: Value::Map(metadata),
        problems,
        ..Instance::default()
    })
}

/// DHCP on the link that the service was asked over, if that is not the fallback's.
fn network(uplink: &Uplink, nics: &[Nic]) -> Option<NetworkData> {
    let link = uplink.link.as_deref()?;
    let asked = nics.iter().find(|n| n.name == link)?;
    let is_fallback = fallback::nic(nics).is_some_and(|nic| nic.name == link);
    (!is_fallback).then(|| NetworkData::Cloud(fallback::config(asked, &[])))
}

fn user_data(own: &Map, problems: &Problems) -> Option<Vec<u8>> {
    let text = own.get("user-data").and_then(Value::text)?;
    match own.get("user-data-encoding").and_then(Value::text).as_deref() {
        Some("base64") => {
            let decoded = base64::decode_loosely(text.as_bytes());
            if decoded.is_empty() && !text.is_empty() {
                problems.warn("the attribute user-data: expected base64, as user-data-encoding says");
            }
            Some(decoded)
        }
        None | Some("") => Some(text.into_bytes()),
        Some(_) => {
            problems.warn("the attribute user-data-encoding is ignored: expected base64");
            Some(text.into_bytes())
        }
    }
}

/// The `user:key` lines of the instance, and of the project unless the instance excludes those.
fn key_lines(own: &Map, project: &Map) -> Vec<String> {
    let of = |map: &Map, key: &str| map.get(key).and_then(Value::text).filter(|t| !t.is_empty());
    let blocked = of(own, "block-project-ssh-keys").is_some_and(|v| v.eq_ignore_ascii_case("true"));
    let alone = of(own, "sshKeys");
    let with_project = !blocked && alone.is_none();
    let mut texts = vec![alone, of(own, "ssh-keys")];
    if with_project {
        texts.extend([of(project, "ssh-keys"), of(project, "sshKeys")]);
    }
    texts.iter().flatten().flat_map(|text| text.lines()).take(MAX_LINES).map(str::to_owned).collect()
}

/// The keys in `user:key` lines that are for the default user and have not expired at `now`, in seconds since
/// 1970.
fn public_keys(lines: &[String], user: Option<&str>, now: u64) -> Vec<String> {
    let keys = lines.iter().filter(|line| line.is_ascii()).filter_map(|line| line.split_once(':'));
    let keys = keys.filter(|(name, key)| (*name == ANY_DEFAULT_USER || Some(*name) == user) && !has_expired(key, now));
    let keys: Vec<Value> = keys.map(|(_, key)| Value::from(key)).collect();
    super::keys::public_keys(Some(&Value::List(keys)))
}

/// Whether a key has expired: its comment is Google's `google-ssh {"userName": …, "expireOn": …}` with a time
/// in the past. A time that cannot be parsed is ignored.
fn has_expired(key: &str, now: u64) -> bool {
    const SCHEMA: &str = "google-ssh";
    let is_googles = key.split_ascii_whitespace().nth(2) == Some(SCHEMA);
    let Some((_, json)) = key.split_once(SCHEMA).filter(|_| is_googles) else { return false };
    let Ok(document) = json::parse("google-ssh", json.as_bytes()) else { return false };
    let expires = document.get("expireOn").and_then(Value::as_str).and_then(clock::parse_iso8601);
    expires.is_some_and(|expires| now > expires)
}

/// Publishes each host key as the guest attribute `hostkeys/TYPE`. A project that has guest attributes
/// disabled refuses, which is no error.
fn publish_host_keys(live: &mut Live, keys: &[String]) -> Result<()> {
    let base = url(live.config);
    for key in keys {
        let mut words = key.split_ascii_whitespace();
        let (Some(kind), Some(value)) = (words.next(), words.next()) else { continue };
        let url = format!("{base}instance/guest-attributes/hostkeys/{kind}");
        let reply =
            live.client.send(&Request { headers: &[FLAVOR], tries: TRIES, ..Request::put(&url, value.as_bytes()) })?;
        match reply.status {
            200..=299 => log::info!("the host key {kind} is published as a guest attribute"),
            status => log::info!("{}; the host key {kind} is not published", refused("PUT", &url, status)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::deadline::Deadline;
    use crate::base::testing::TempDir;
    use crate::document::yaml;
    use crate::link::http::Findings;
    use crate::link::http::Redirects;
    use crate::link::http::script::{Answer, Script};
    use crate::machine::Machine;
    use crate::root::Use;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn key_lines_are_bounded_over_all_attributes() {
        let lines = |of: &str, n: usize| (0..n).map(|i| format!("{of}{i}:ssh-ed25519 AAAA\n")).collect::<String>();
        let map = |key: &str, text: String| Map::from_iter([(key.to_owned(), Value::from(text))]);
        let own = map("ssh-keys", lines("own", MAX_LINES - 1));
        let found = key_lines(&own, &map("ssh-keys", lines("project", 5)));
        assert_eq!((found.len(), found.last().map(|l| l.starts_with("project0:"))), (MAX_LINES, Some(true)));
    }

    fn client(script: Script) -> (Client, Arc<Script>) {
        let script = Arc::new(script);
        let deadline = Deadline::after(Duration::from_secs(100));
        let findings = Findings::default();
        (Client::over(script.clone(), &Uplink::system(), Redirects::SameOrigin, deadline, &findings), script)
    }

    fn service(own: &str, project: &str) -> Script {
        let get = |script: Script, path: &str, body: &str| {
            script.with("GET", &format!("{URL}{path}"), Answer::new(200, body))
        };
        let script = get(Script::default(), "instance/id", "6286");
        let script = get(script, "instance/zone", "projects/123/zones/us-central1-f");
        let script = get(script, "instance/hostname", "inst.c.proj.internal");
        let script = get(script, "instance/attributes/?recursive=True", own);
        get(script, "project/attributes/?recursive=True", project)
    }

    #[test]
    fn an_instance_in_five_requests() {
        let own = r##"{"user-data": "I2Nsb3VkLWNv\nbmZpZwo=", "user-data-encoding": "base64", "ssh-keys": "admin:ssh-rsa A a\nother:ssh-rsa B"}"##;
        let (client, script) = client(service(own, r#"{"ssh-keys": "cloudinit:ssh-rsa C"}"#));
        let got = read(&client, URL, Some("admin"), &[]).unwrap();
        assert_eq!((got.instance_id.as_str(), got.local_hostname.as_deref()), ("6286", Some("inst")));
        assert_eq!(
            (got.region.as_deref(), got.availability_zone.as_deref()),
            (Some("us-central1"), Some("us-central1-f"))
        );
        assert_eq!(got.public_keys, ["ssh-rsa A a", "ssh-rsa C"]);
        assert_eq!(*got.user_data.unwrap(), *b"#cloud-config\n");
        assert_eq!(got.problems, Problems::new());
        let sent = script.sent();
        assert_eq!(sent.len(), 5);
        assert!(sent.iter().all(|s| s.headers == [("Metadata-Flavor".to_owned(), "Google".to_owned())]));
    }

    #[test]
    fn reports_failed_attributes_but_requires_the_identity() {
        let broken = service("[1]", "nonsense");
        let got = read(&client(broken).0, URL, None, &[]).unwrap();
        assert_eq!((got.instance_id.as_str(), got.problems.len()), ("6286", 2));
        let other = Script::default().with("GET", &format!("{URL}instance/id"), Answer::new(404, ""));
        assert!(read(&client(other).0, URL, None, &[]).unwrap_err().to_string().contains("instance/id"));
        let page = Script::default().with("GET", &format!("{URL}instance/id"), Answer::new(200, "<html>"));
        assert!(read(&client(page).0, URL, None, &[]).is_err());
    }

    #[test]
    fn keys_that_are_used() {
        let map = |text: &str| json::parse("t", text.as_bytes()).unwrap().as_map().cloned().unwrap();
        let of = |own: &str, project: &str| key_lines(&map(own), &map(project)).join(" ");
        let project = r#"{"ssh-keys": "p:1", "sshKeys": "p:2"}"#;
        assert_eq!(of(r#"{"ssh-keys": "a:1"}"#, project), "a:1 p:1 p:2");
        assert_eq!(of(r#"{"ssh-keys": "a:1", "block-project-ssh-keys": "TRUE"}"#, project), "a:1");
        assert_eq!(of(r#"{"ssh-keys": "a:1", "block-project-ssh-keys": true}"#, project), "a:1");
        assert_eq!(of(r#"{"ssh-keys": "a:1", "sshKeys": "a:0"}"#, project), "a:0 a:1");

        let key =
            |expires: &str| format!("u:ssh-rsa A google-ssh {{\"userName\": \"u\", \"expireOn\": \"{expires}\"}}");
        let used = |line: String, now| !public_keys(&[line], Some("u"), now).is_empty();
        assert!(used(key("2023-11-14T22:13:20+0000"), 1_700_000_000));
        assert!(!used(key("2023-11-14T22:13:20+0000"), 1_700_000_001));
        assert!(!used(key("2023-11-14T22:13:20Z").replace("google-ssh ", "  google-ssh "), 1_700_000_001));
        assert!(used(key("soon"), u64::MAX) && used("u:ssh-rsa A google-ssh {".into(), u64::MAX));
        assert!(used("u:ssh-rsa A".into(), 0) && !used("u:ssh-rsa Ä".into(), 0) && !used("v:ssh-rsa A".into(), 0));
    }

    #[test]
    fn the_default_user_is_the_images() {
        let of = |text: &str| default_user(&yaml::parse("t", text).unwrap());
        let system = "system_info: {default_user: {name: debian}}";
        assert_eq!(of(&format!("{{users: [default, x], {system}}}")).as_deref(), Some("debian"));
        assert_eq!(of(&format!("{{users: [x], {system}}}")), None);
        assert_eq!(of(&format!("{{{system}}}")), None);
        assert_eq!(of(&format!("{{user: me, users: [default], {system}}}")).as_deref(), Some("me"));
    }

    #[test]
    fn host_keys_are_guest_attributes() {
        let url = format!("{URL}instance/guest-attributes/hostkeys/");
        let script = Script::default().with("PUT", &format!("{url}ssh-rsa"), Answer::new(200, "")).with(
            "PUT",
            &format!("{url}ssh-ed25519"),
            Answer::new(403, ""),
        );
        let (client, script) = client(script);
        let dir = TempDir::new("gce");
        let mut live = Live {
            root: &mut dir.root(Use::Tree),
            machine: &Machine::default(),
            instance: &Instance::default(),
            config: &Value::Null,
            client: &client,
            failed: None,
            public_keys: Vec::new(),
            passwords: Vec::new(),
            report: &Problems::new(),
        };
        publish_host_keys(&mut live, &["ssh-rsa AAAA root@h".into(), "ssh-ed25519 BBBB".into()]).unwrap();
        let bodies: Vec<Vec<u8>> = script.sent().into_iter().map(|s| s.body).collect();
        assert_eq!(bodies, [b"AAAA", b"BBBB"]);
    }
}
