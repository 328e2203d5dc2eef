//! Targets for the datasources: what a drive or a folder holds, what services answer, and what a machine shows of itself. An
//! instance that is found must be the same in the cache, and its network configuration must render.

use super::{ROOT, files_in, in_tree, rendered};
use prepivot::base::crc32::crc32;
use prepivot::base::deadline::Deadline;
use prepivot::base::problem::Problems;
use prepivot::base::{base64, testing::TempDir};
use prepivot::detect::{Facts, Platform, identify};
use prepivot::document::{Value, yaml};
use prepivot::drive::Files;
use prepivot::instance::{Instance, NetworkData, cache};
use prepivot::link::http::{Client, Failure, Findings, Redirects, Reply, Request, Transport};
use prepivot::link::{Reach, Uplink};
use prepivot::machine::Machine;
use prepivot::network::input::Input;
use prepivot::network::{Macs, read};
use prepivot::root::{Root, Use};
use prepivot::source::{self, Live, SOURCES, Search, Source};
use prepivot::stage::image::Image;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a source may take, of the time that passes for it.
const TIME: Duration = Duration::from_secs(300);
/// How long an answer takes.
const ANSWER: Duration = Duration::from_millis(10);

/// What an instance becomes: the cache's document, which is the same once it was read back, and files of every network stack.
fn used(instance: &Instance) {
    let written = |instance: &Instance| {
        let mut text = Vec::new();
        cache::write(instance, &mut text).expect("it is written to memory");
        String::from_utf8(text).expect("it is text")
    };
    let text = written(instance);
    let again = cache::read("fuzz", text.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(written(&again), text);
    let named = |name: &str, document: Value| Input { format: read::by_name(name).expect("a format"), document };
    let input = match &instance.network {
        Some(NetworkData::Cloud(document)) => Input::config(document.clone()),
        Some(NetworkData::Openstack(document)) => named("network_data.json", document.clone()),
        Some(NetworkData::Eni(text)) => named("eni", text.as_str().into()),
        None => return,
    };
    if let Ok(network) = input.read("fuzz", &Macs::default(), &Problems::new()) {
        rendered(&network);
    }
}

/// The instance in the cache.
pub fn cached(data: &[u8]) {
    if let Ok(instance) = cache::read("fuzz", data) {
        used(&instance);
    }
}

/// A machine as the sources want one.
const MACHINE: &[(&str, &[u8])] = &[
    ("sys/class/dmi/id/product_serial", b"1234\n"),
    ("sys/class/dmi/id/product_uuid", b"11111111-2222-3333-4444-555555555555\n"),
    ("sys/class/net/eth0/address", b"02:00:00:00:00:01\n"),
    ("sys/class/net/eth0/type", b"1\n"),
    ("sys/class/net/eth1/address", b"02:00:00:00:00:02\n"),
    ("proc/net/route", b"Iface Destination Gateway\neth0 00000000 0100000A 0003\n"),
    ("var/lib/cloud/data/seed/bigstep/url", b"http://10.0.0.1/bigstep\n"),
];

/// An image's configuration with which every service is asked.
static CONFIG: LazyLock<Value> = LazyLock::new(|| {
    let text =
        "datasource: {MAAS: {metadata_url: 'http://10.0.0.1/MAAS'}, NoCloud: {seedfrom: 'http://10.0.0.1/seed/'}}\n";
    yaml::parse("fuzz", text).expect("valid YAML")
});

/// Files, each after a line `@@ PATH`, as a drive or a folder has them.
pub fn seed(data: &[u8]) {
    let text = super::text(data);
    let mut listed = Vec::new();
    files_in(&text, &mut listed);
    in_tree(&[], |base| {
        let (machine, root) = (Machine::read(base), Root::open(base, Use::Plan).expect("a root"));
        let search = Search::new(&machine, &root, &Value::Null, Deadline::after(TIME));
        for read in SOURCES.iter().filter_map(|source| source.seed) {
            let mut files = Files::default();
            listed.iter().for_each(|(path, content)| files.insert(*path, content.to_vec()));
            if let Some(mut instance) = read(&search, &files, "/dev/sr0") {
                source::describe(&mut instance);
                used(&instance);
            }
        }
    });
}

/// A machine: files of its tree, each after a line `@@ PATH`. Detection, and all sources that need no network.
pub fn machine(data: &[u8]) {
    let text = super::text(data);
    let mut files = ROOT.to_vec();
    files_in(&text, &mut files);
    in_tree(&files, |base| {
        let (machine, root) = (Machine::read(base), Root::open(base, Use::Plan).expect("a root"));
        let image = Image::read(&root, &machine, &Problems::new());
        let facts = Facts::new(&machine, &root, &image.own, Platform::of(&machine, &root));
        identify(&facts, &source::candidates());
        let mut search = Search::new(&machine, &root, &image.config, Deadline::after(TIME));
        for read in SOURCES.iter().filter_map(|source| source.read) {
            if let Ok(Some(found)) = read(&mut search) {
                used(&found.instance);
            }
        }
    });
}

/// What a service answers.
struct Answer {
    /// How the URL ends that it is for; None: it is for any, in turn.
    end: Option<String>,
    reply: Reply,
}

/// A service: a URL that no answer is for gets the next of the others, and the same when it is asked for again; after the last
/// there are no documents. Time passes in answers and waits only.
struct Answers {
    answers: Vec<Answer>,
    state: Mutex<(BTreeMap<String, usize>, Duration)>,
}

impl Transport for Answers {
    fn exchange(&self, request: &Request, _: Duration) -> Result<Reply, Failure> {
        let mut state = self.state.lock().expect("the state");
        state.1 += ANSWER;
        let is_for = |answer: &&Answer| answer.end.as_ref().is_some_and(|end| request.url.ends_with(end.as_str()));
        let next = || {
            let next = state.0.len();
            let at = *state.0.entry(format!("{} {}", request.method, request.url)).or_insert(next);
            self.answers.iter().filter(|answer| answer.end.is_none()).nth(at)
        };
        let answer = self.answers.iter().find(is_for).or_else(next);
        let mut reply = answer.map_or_else(|| Reply { status: 404, ..Reply::default() }, |answer| answer.reply.clone());
        reply.body.truncate(request.limit);
        Ok(reply)
    }

    fn resolve(&self, _: &str, _: Duration) -> Vec<IpAddr> {
        Vec::new()
    }

    fn wait(&self, time: Duration) -> bool {
        self.state.lock().expect("the state").1 += time;
        true
    }

    fn left(&self, deadline: Deadline) -> Duration {
        deadline.left().saturating_sub(self.state.lock().expect("the state").1)
    }

    fn now(&self) -> SystemTime {
        UNIX_EPOCH + self.state.lock().expect("the state").1
    }
}

/// The name of a source and a line feed, then what its service answers: before each body a line `@@ STATUS /END NAME=VALUE`, of which
/// the end of the URL and headers may be left out.
pub fn service(data: &[u8]) {
    let mut parts = split(data, b"@@ ").into_iter();
    let name = super::text(parts.next().unwrap_or_default());
    let Some(source) = source::named(name.trim()) else { return };
    let answer = |part: &[u8]| {
        let end = part.iter().position(|b| *b == b'\n').unwrap_or(part.len());
        let head = super::text(&part[..end]);
        let mut words = head.split_ascii_whitespace().peekable();
        let status = words.next().and_then(|word| word.parse().ok()).unwrap_or(200);
        let url = words.next_if(|word| word.starts_with('/')).map(str::to_owned);
        let headers = words.filter_map(|word| word.split_once('=')).map(|(name, value)| (name.into(), value.into()));
        let body = part.get(end + 1..).unwrap_or_default().to_vec();
        Answer { end: url, reply: Reply { status, headers: headers.collect(), body, ..Reply::default() } }
    };
    let answers = Arc::new(Answers { answers: parts.map(answer).collect(), state: Mutex::default() });
    in_tree(&[ROOT, MACHINE].concat(), |base| served(source, base, answers));
}

/// The parts of `data` between each `separator`.
fn split<'a>(mut data: &'a [u8], separator: &[u8]) -> Vec<&'a [u8]> {
    let mut parts = Vec::new();
    while let Some(at) = data.windows(separator.len()).position(|part| part == separator) {
        parts.push(&data[..at]);
        data = &data[at + separator.len()..];
    }
    parts.push(data);
    parts
}

/// Asks the source's service, and does what it does in the running system.
fn served(source: &Source, base: &Path, answers: Arc<Answers>) {
    let (machine, mut root) = (Machine::read(base), Root::open(base, Use::Plan).expect("a root"));
    let over = |uplink: &Uplink, redirects| {
        Client::over(Arc::clone(&answers) as _, uplink, redirects, Deadline::after(TIME), &Findings::default())
    };
    let job = {
        let mut search = Search::new(&machine, &root, &CONFIG, Deadline::after(TIME));
        source.service.and_then(|prepare| prepare(&mut search))
    };
    let Some(job) = job else { return };
    let uplinks = Reach::ALL.map(|reach| Uplink::of("eth0", 2, reach));
    let Some((uplink, url)) = uplinks.iter().find_map(|uplink| Some((uplink, (job.urls)(uplink).into_iter().next()?)))
    else {
        return;
    };
    let Ok(found) = (job.fetch)(&over(uplink, job.redirects).limited(job.limits), &url) else { return };
    let mut instance = found.instance;
    source::describe(&mut instance);
    used(&instance);
    let Some(act) = source.provisioned else { return };
    let _ = act(&mut Live {
        root: &mut root,
        machine: &machine,
        instance: &instance,
        config: &CONFIG,
        client: &over(&Uplink::system(), Redirects::SameOrigin),
        failed: None,
        public_keys: Vec::new(),
        passwords: vec![("root".into(), "secret".into())],
        report: &Problems::new(),
    });
}

/// What the host of a SmartOS zone sends: as it is after a first byte 0, in frames of version 2 otherwise, whose values are between
/// bytes 0.
pub fn smart_os(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else { return };
    let mut sent = Vec::new();
    if *mode == 0 {
        sent.extend_from_slice(rest);
    } else {
        sent.extend_from_slice(b"V2_OK\n");
        for (value, number) in rest.split(|b| *b == 0).zip(1..) {
            let body = match value {
                b"" => format!("{number:08x} NOTFOUND"),
                value => format!("{number:08x} SUCCESS {}", base64::encode(value)),
            };
            sent.extend(format!("V2 {} {:08x} {body}\n", body.len(), crc32(body.as_bytes())).bytes());
        }
    }
    let folder = TempDir::new("fuzz-zone");
    folder.write("proc/sys/kernel/version", "BrandZ virtual linux\n");
    folder.write("native/.zonecontrol/other", "");
    let socket = folder.0.join("native/.zonecontrol/metadata.sock");
    let listener = UnixListener::bind(&socket).expect("failed to listen");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let Ok((mut connection, _)) = listener.accept() else { return };
            let _ = connection.write_all(&sent).and_then(|()| connection.shutdown(std::net::Shutdown::Write));
            // Until the client is gone: a reset would take what it has not read yet.
            let _ = connection.read_to_end(&mut Vec::new());
        });
        let (machine, root) = (Machine::read(&folder.0), Root::open(&folder.0, Use::Plan).expect("a root"));
        let mut search = Search::new(&machine, &root, &Value::Null, Deadline::after(Duration::from_secs(5)));
        let read = source::named("SmartOS").and_then(|source| source.read).expect("the source");
        let found = read(&mut search);
        // Where it was not asked, the host still waits.
        drop(UnixStream::connect(&socket));
        if let Ok(Some(found)) = found {
            used(&found.instance);
        }
    });
}
