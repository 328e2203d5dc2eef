//! One function for each parser of outside bytes, and some for the whole program: none may panic, hang, or use memory without bound, and
//! what is written must read back as the same. libFuzzer calls them (main.rs), and tests/hostile with what it found.

#[path = "link.rs"]
mod link;
#[path = "sources.rs"]
mod sources;
#[path = "stages.rs"]
mod stages;
#[path = "stored.rs"]
mod stored;
#[path = "trust.rs"]
mod trust;

use prepivot::base::deadline::Deadline;
use prepivot::base::gzip;
use prepivot::base::problem::Problems;
use prepivot::base::testing::TempDir;
use prepivot::document::{Value, json, to_yaml, xml, yaml};
use prepivot::drive::{self, label};
use prepivot::link::dhcp::{Lease, packet::DhcpMessage, record};
use prepivot::link::http::{Client, Request};
use prepivot::link::{cmdline_net, dns, leases, tls, url};
use prepivot::machine::{Cmdline, Distro};
use prepivot::network::{Macs, Network, Target as Stack, input, read, render};
use prepivot::root::{Ids, Root, Use};
use prepivot::system::accounts::{Accounts, User};
use prepivot::system::{authorized_keys, fstab, host_keys, ini, mount_table, partitions, sshd_config, template};
use prepivot::trust::endorsed::{self, Endorsed};
use prepivot::trust::sealed::{self, Opened};
use prepivot::trust::{age, credential as creds};
use prepivot::userdata::{Fetched, Include, PartHandlers, Surroundings, jinja, merge, mime};
use prepivot::{schema, stage, userdata};
use std::cell::RefCell;
use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

/// A parser, or the whole program.
#[derive(Clone, Copy)]
pub struct Target {
    /// The name of its folders in tests/fuzz/corpus and tests/fuzz/found.
    pub name: &'static str,
    pub run: fn(&[u8]),
}

pub static TARGETS: &[Target] = &[
    Target { name: "yaml", run: yaml_document },
    Target { name: "json", run: json_document },
    Target { name: "xml", run: |data| drop(xml::parse("fuzz", data)) },
    Target { name: "mime", run: mime_message },
    Target { name: "jinja", run: jinja_template },
    Target { name: "template", run: image_template },
    Target { name: "merge", run: merged },
    Target { name: "schema", run: checked },
    Target { name: "userdata", run: user_data },
    Target { name: "credential", run: credential },
    Target { name: "age", run: |data| drop(age::open(data, &IDENTITY)) },
    Target { name: "endorsed", run: endorsed },
    Target { name: "systemd-userdata", run: |data| drop(userdata::systemd::credentials(data)) },
    Target { name: "gzip", run: gzipped },
    Target { name: "network-yaml", run: |data| network(&["network-config"], data) },
    Target { name: "eni", run: |data| network(&["eni"], data) },
    Target { name: "klibc", run: |data| network(&["klibc"], data) },
    Target { name: "network-data", run: |data| network(&["network_data.json"], data) },
    Target { name: "azure-imds", run: |data| network(&["azure-imds"], data) },
    Target { name: "vmware-imc", run: |data| network(&["vmware-imc"], data) },
    Target { name: "cmdline", run: cmdline },
    Target { name: "image", run: image },
    Target { name: "label", run: |data| drop(label::probe(&data)) },
    Target { name: "partitions", run: partition_table },
    Target { name: "part-uuid", run: part_uuid },
    Target { name: "dhcp", run: dhcp_message },
    Target { name: "dhcp-frame", run: link::frame },
    Target { name: "netlink", run: link::kernel_messages },
    Target { name: "leases", run: lease_file },
    Target { name: "dns", run: dns_answer },
    Target { name: "http", run: http_answer },
    Target { name: "url", run: urls },
    Target { name: "pem", run: certificates },
    Target { name: "ssh-key", run: ssh_key },
    Target { name: "authorized-keys", run: keys },
    Target { name: "envelope", run: trust::envelope },
    Target { name: "cms", run: trust::cms },
    Target { name: "tpm", run: trust::tpm },
    Target { name: "trust-conf", run: trust::policy },
    Target { name: "fstab", run: fstab_lines },
    Target { name: "sshd-config", run: sshd },
    Target { name: "accounts", run: accounts },
    Target { name: "ini", run: ini_file },
    Target { name: "seed", run: sources::seed },
    Target { name: "machine", run: sources::machine },
    Target { name: "service", run: sources::service },
    Target { name: "smart-os", run: sources::smart_os },
    Target { name: "cache", run: sources::cached },
    Target { name: "status", run: stored::status },
    Target { name: "journal", run: stored::journal },
    Target { name: "names", run: stored::names },
    Target { name: "plan-seed", run: plan_seed },
    Target { name: "plan-tree", run: plan_tree },
    Target { name: "provision", run: stages::provision },
    Target { name: "stages", run: stages::later },
];

/// The text of the input; what is not UTF-8 is replaced.
fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data).into_owned()
}

/// Two inputs in one: what is before the first byte 0, and what is after it.
fn two(data: &[u8]) -> (&[u8], &[u8]) {
    let at = data.iter().position(|b| *b == 0).unwrap_or(data.len());
    (&data[..at], data.get(at + 1..).unwrap_or_default())
}

fn yaml_document(data: &[u8]) {
    let Ok(value) = yaml::parse("fuzz", &text(data)) else { return };
    let written = to_yaml(&value);
    let again = yaml::parse("fuzz", &written).unwrap_or_else(|e| panic!("{e}\n{written}"));
    assert_eq!(format!("{again:?}"), format!("{value:?}"), "{written}");
}

fn json_document(data: &[u8]) {
    let Ok(value) = json::parse("fuzz", data) else { return };
    let written = json::to_string(&value);
    let again = json::parse("fuzz", written.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{written}"));
    // A number can be too large for a float, and JSON has no word for infinity.
    let shown = |value: &Value| format!("{value:?}").replace("Float(-inf)", "Null").replace("Float(inf)", "Null");
    assert_eq!(shown(&again), shown(&value), "{written}");
}

fn mime_message(data: &[u8]) {
    if let Ok(parts) = mime::parse(data) {
        let written = mime::write(parts);
        mime::parse(&written).unwrap_or_else(|e| panic!("{e}\n{}", text(&written)));
    }
}

/// Instance-data for templates.
static DATA: LazyLock<Value> = LazyLock::new(|| {
    let text = "v1: {instance_id: i-1, region: r, list: [1, a, {b: c}], 'a-b': x}\nds: {meta_data: {n: 1.5, t: true, z: null}}\n";
    yaml::parse("fuzz", text).expect("valid YAML")
});

fn jinja_template(data: &[u8]) {
    let _ = jinja::render(&text(data), &DATA);
}

fn image_template(data: &[u8]) {
    let _ = template::render("fuzz", &text(data), &DATA);
}

/// `how` (for the whole merge), then two documents.
fn merged(data: &[u8]) {
    let (how, documents) = two(data);
    let (base, new) = two(documents);
    let how = merge::Strategy::parse(&text(how));
    if let (Ok(how), Ok(base), Ok(new)) = (how, yaml::parse("base", &text(base)), yaml::parse("new", &text(new))) {
        let _ = how.merge(base, new);
    }
}

fn checked(data: &[u8]) {
    let text = text(data);
    if let Ok(Value::Map(map)) = yaml::parse("fuzz", &text) {
        let found = schema::cloud_config(&map);
        schema::annotated(&text, &found);
        schema::network_config(&map);
    }
}

/// The key of the published vectors.
static IDENTITY: LazyLock<Vec<age::Identity>> = LazyLock::new(|| {
    let key = "AGE-SECRET-KEY-1EGTZVFFV20835NWYV6270LXYVK2VKNX2MMDKWYKLMGR48UAWX40Q2P2LM0";
    age::Identity::parse(key).into_iter().collect()
});

fn credential(data: &[u8]) {
    let keys = creds::Keys { host: Some(b"host".to_vec()), tpm: Some(b"tpm".to_vec()) };
    let bytes = creds::decoded(data).unwrap_or_else(|| data.to_vec());
    let _ = creds::Credential::parse(&bytes).map(|credential| credential.open(&keys, "n", Some(1)));
    if let Ok(Value::Map(config)) = yaml::parse("fuzz", &text(data)) {
        sealed::open_config(&config, &|sealed, _| Opened::Plain(sealed.to_vec()));
    }
}

fn endorsed(data: &[u8]) {
    if let Ok(sealed) = Endorsed::parse(data) {
        assert!(endorsed::is_sealed(data));
        assert!(sealed.open(&[0; 32], "n").is_err(), "opened by another key");
        trust::import(&sealed, data);
    }
}

fn user_data(data: &[u8]) {
    let mut include = |_: &Include<'_>| Ok(Fetched::Content(b"#include http://x\nhttp://y\n".to_vec()));
    let context = Surroundings {
        source: "fuzz",
        vendor: false,
        disabled: &[],
        launch_index: Some(1),
        instance_data: &DATA,
        part_handlers: PartHandlers::None,
        open: &|_, _| Opened::Later,
        fetch: &mut include,
        report: &Problems::new(),
    };
    userdata::process(&[data.into()], context);
}

fn gzipped(data: &[u8]) {
    let unpacked = gzip::unpack(data, 1 << 20);
    // The same in small pieces.
    let mut streamed = Vec::new();
    let ended = gzip::unpack_to(&mut BufReader::with_capacity(61, data), 1 << 20, &mut streamed);
    assert_eq!(ended.is_ok().then_some(&streamed), unpacked.as_ref().ok());
    assert!(streamed.len() <= 1 << 20);
}

/// Reads by the formats, renders for every stack.
fn network(formats: &[&str], data: &[u8]) {
    let text = text(data);
    let report = Problems::new();
    for name in formats {
        if let Some(format) = read::by_name(name) {
            let Ok(document) = format.parse("fuzz", &text) else { continue };
            if let Ok(network) = format.read("fuzz", &document, &Macs::default(), &report) {
                rendered(&network);
            }
        } else {
            let Ok(document) = yaml::parse("fuzz", &text) else { continue };
            if let Ok(network) = read::config::read("fuzz", &document, &Macs::default(), &report) {
                rendered(&network);
            }
        }
    }
}

fn rendered(network: &Network) {
    for renderer in render::RENDERERS {
        let target = Stack { distro: Distro::named("debian"), ip_tool: true, old_netplan: false };
        for file in renderer.files(network, &target, &Problems::new()) {
            assert!(file.path.starts_with("/etc/") && !file.path.contains("/../"), "{}", file.path);
            let is_text = |c: char| c == '\n' || c == '\t' || !c.is_control();
            assert!(file.content.chars().all(is_text), "{}: a control character in\n{}", file.path, file.content);
        }
    }
}

fn cmdline(data: &[u8]) {
    let text = text(data);
    let cmdline = Cmdline::new(&text);
    cmdline_net::LinkPlan::parse(&cmdline);
    userdata::from_cmdline(&text, &Problems::new());
    if let Some(value) = cmdline.value("network-config") {
        let _ = input::from_cmdline(value);
    }
}

/// Images to change, unpacked: of ISO 9660 with Rock Ridge, Joliet or neither, UDF, FAT and ext.
static IMAGES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let packed: &[&[u8]] = &[
        include_bytes!("../images/iso.gz"),
        include_bytes!("../images/joliet.gz"),
        include_bytes!("../images/rock-ridge.gz"),
        include_bytes!("../images/udf.gz"),
        include_bytes!("../images/fat.gz"),
        include_bytes!("../images/fat32.gz"),
        include_bytes!("../images/ext2.gz"),
        include_bytes!("../images/ext4.gz"),
    ];
    packed.iter().map(|bytes| gzip::unpack(bytes, 64 << 20).expect("an image")).collect()
});

/// A file that is kept from one input to the next.
fn in_scratch(name: &str, run: impl FnOnce(&Path)) {
    thread_local!(static SCRATCH: RefCell<Option<TempDir>> = const { RefCell::new(None) });
    SCRATCH.with_borrow_mut(|folder| run(&folder.get_or_insert_with(|| TempDir::new("fuzz")).0.join(name)));
}

/// Which image, then changes: an offset of three bytes, a length, the bytes.
fn image(data: &[u8]) {
    let Some((which, mut rest)) = data.split_first() else { return };
    let mut image = IMAGES[usize::from(*which) % IMAGES.len()].clone();
    while let [a, b, c, len, more @ ..] = rest {
        let (bytes, after) = more.split_at(usize::from(*len).min(more.len()));
        let at = u32::from_le_bytes([*a, *b, *c, 0]) as usize % image.len();
        let end = (at + bytes.len()).min(image.len());
        image[at..end].copy_from_slice(&bytes[..end - at]);
        rest = after;
    }
    in_scratch("image", |path| {
        std::fs::write(path, &image).expect("failed to write the image");
        let _ = drive::open(path, Deadline::after(Duration::from_secs(20)));
    });
}

/// A disk of 4 MB and the size of its sectors: which size, then those that hold something: the number of each, then its bytes.
fn disk(data: &[u8]) -> Option<(Vec<u8>, usize)> {
    const SIZE: usize = 4 << 20;
    let (sector, rest) = data.split_first()?;
    let sector = if sector % 2 == 0 { 512 } else { 4096 };
    let mut disk = vec![0; SIZE];
    for chunk in rest.chunks(2 + sector) {
        let Some((at, bytes)) = chunk.split_first_chunk::<2>() else { break };
        let at = usize::from(u16::from_le_bytes(*at)) * sector % SIZE;
        disk[at..at + bytes.len()].copy_from_slice(bytes);
    }
    Some((disk, sector))
}

fn partition_table(data: &[u8]) {
    let Some((disk, sector)) = disk(data) else { return };
    let geometry = partitions::Geometry::new(disk.len() as u64, sector as u64).expect("a geometry");
    let Ok(Some(table)) = partitions::read(&disk.as_slice(), geometry) else { return };
    for partition in table.partitions() {
        let _ = table.grow(partition.number);
    }
}

/// A disk whose partitions are looked for by their PARTUUIDs, as kernels before 6.7 need it.
fn part_uuid(data: &[u8]) {
    let Some((disk, _)) = disk(data) else { return };
    for number in [0, 1, 128, u32::MAX] {
        for wanted in ["01020304-01", "00010203-0405-0607-0809-0a0b0c0d0e0f"] {
            drive::partition::has_uuid(&disk.as_slice(), number, wanted);
        }
    }
}

fn dhcp_message(data: &[u8]) {
    let Some(message) = DhcpMessage::parse(data) else { return };
    message.to_bytes();
    let Some(lease) = Lease::from_ack("eth0", &message) else { return };
    let again = record::from_json(record::to_json(&lease).as_bytes());
    assert_eq!(again.map(|again| again.address), Some(lease.address));
}

/// Which client's file, then the file.
fn lease_file(data: &[u8]) {
    const FILES: [&str; 4] = [
        "run/prepivot/lease-eth0.json",
        "run/systemd/netif/leases/2",
        "var/lib/dhcp/dhclient.eth0.leases",
        "var/lib/dhcpcd/eth0.lease",
    ];
    let Some((which, file)) = data.split_first() else { return };
    in_tree(&[(FILES[usize::from(*which) % FILES.len()], file)], |root| drop(leases::below(root)));
    leases::default_gateway(&text(file));
}

fn dns_answer(data: &[u8]) {
    for kind in [1, 28] {
        dns::read_answer(data, 7, "seed.example.org", kind);
    }
    dns::question(7, &text(data), 1);
}

/// A server on a Unix socket, which sends the same answer to every request.
struct Server {
    folder: TempDir,
    answer: Arc<Mutex<Vec<u8>>>,
}

impl Server {
    fn start() -> Server {
        let server = Server { folder: TempDir::new("fuzz-http"), answer: Arc::default() };
        let listener = UnixListener::bind(server.folder.0.join("socket")).expect("failed to listen");
        let answer = Arc::clone(&server.answer);
        std::thread::spawn(move || {
            for mut connection in listener.incoming().flatten() {
                let _ = connection.read(&mut [0; 4096]);
                let answer = answer.lock().expect("the answer").clone();
                let _ = connection.write_all(&answer);
            }
        });
        server
    }
}

// Each thread has its own, so that a test that runs beside another is answered with its input.
thread_local!(static SERVER: Server = Server::start());

fn http_answer(data: &[u8]) {
    SERVER.with(|server| {
        *server.answer.lock().expect("the answer") = data.to_vec();
        let deadline = Deadline::after(Duration::from_secs(5));
        let client = Client::socket(&server.folder.0.join("socket"), deadline).expect("a client");
        let request = Request { tries: 1, limit: 64 << 10, ..Request::get("http://host/latest/") };
        if let Ok(reply) = client.send(&request) {
            assert!(reply.body.len() <= 64 << 10);
        }
    });
}

/// A URL and where it redirects to.
fn urls(data: &[u8]) {
    let (from, to) = two(data);
    let (from, to) = (text(from), text(to));
    url::unscoped(&from);
    for allowed in [url::Redirects::SameOrigin, url::Redirects::Any] {
        let Ok(next) = url::redirected(&from, &to, allowed) else { continue };
        assert!(allowed == url::Redirects::Any || url::same_origin(&from, &next), "{from} leads to {next}");
        url::said("GET", &next);
    }
    // A password in a URL never shows.
    if !from.contains(['/', '?', '#', '@']) && !from.is_empty() {
        let said = url::said("GET", &format!("http://user:s3cr3t{from}@host/path"));
        assert_eq!(said, "GET http://host/path");
    }
}

fn certificates(data: &[u8]) {
    in_scratch("authorities", |image| {
        std::fs::create_dir_all(image.join("etc/ssl")).expect("failed to make the folder of certificates");
        std::fs::write(image.join("etc/ssl/cert.pem"), data).expect("failed to write the certificates");
        let _ = tls::config(Some(image));
    });
}

fn ssh_key(data: &[u8]) {
    let text = text(data);
    if let Some(line) = host_keys::public_of(&text) {
        assert!(host_keys::fingerprint(&line).is_some(), "{line}");
    }
    text.lines().for_each(|line| drop(host_keys::fingerprint(line)));
}

fn keys(data: &[u8]) {
    for line in text(data).lines() {
        let Some(key) = authorized_keys::Key::parse(line) else { continue };
        assert_eq!(authorized_keys::Key::parse(&key.to_string()).as_ref(), Some(&key), "{key}");
    }
    let user = User { name: "alice".into(), home: "/home/alice".into(), ids: Ids { uid: 1000, gid: 1000 } };
    let new = ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB3l alice".to_owned()];
    in_tree(&[("home/alice/.ssh/authorized_keys", data)], |path| {
        let mut root = Root::open(path, Use::Plan).expect("a root");
        let rules = authorized_keys::Rules::of(&root);
        if authorized_keys::add(&mut root, &rules, &user, &new, None, &Problems::new()).is_ok() {
            let (_, keys) = authorized_keys::list(&root, &rules, &user);
            assert!(keys.iter().any(|key| new[0] == key.to_string()), "the key is not there");
        }
    });
}

fn fstab_lines(data: &[u8]) {
    let text = text(data);
    let kept = fstab::without_ours(&text, "");
    assert_eq!(fstab::without_ours(&kept, ""), kept);
    for line in text.lines() {
        fstab::fields(line);
        fstab::unit(line);
        assert!(!fstab::escape(line).contains([' ', '\t', '\n']), "{line}");
    }
    in_tree(&[("proc/self/mounts", data), ("etc/fstab", data)], |path| {
        let root = Root::open(path, Use::Plan).expect("a root");
        mount_table::containing(&root, "/var/lib");
    });
}

fn sshd(data: &[u8]) {
    in_tree(&[("etc/ssh/sshd_config", data)], |path| {
        let mut root = Root::open(path, Use::Plan).expect("a root");
        sshd_config::value(&root, "AuthorizedKeysFile");
        if sshd_config::set(&mut root, "PasswordAuthentication", "no").is_ok() {
            let value = sshd_config::value(&root, "PasswordAuthentication");
            assert!(value.is_some(), "{}", root.text("/etc/ssh/sshd_config"));
        }
        let _ = sshd_config::add(&mut root, "AcceptEnv", "LANG");
    });
}

/// passwd, shadow, group, gshadow, login.defs and subuid, with a byte 0 between them. What is there stays.
fn accounts(data: &[u8]) {
    const FILES: [&str; 6] = ["etc/passwd", "etc/shadow", "etc/group", "etc/gshadow", "etc/login.defs", "etc/subuid"];
    let files: Vec<_> = FILES.into_iter().zip(data.split(|b| *b == 0)).collect();
    in_tree(&files, |path| {
        let mut root = Root::open(path, Use::Plan).expect("a root");
        let before = root.text("/etc/passwd");
        let Ok(mut accounts) = Accounts::open(&root) else { return };
        let _ = accounts.add_group("fuzzers", false);
        for name in ["root", "alice"] {
            accounts.user(name);
            let _ = accounts.add_member("fuzzers", name);
            let _ = accounts.set_password(name, "*");
            let _ = accounts.lock(name);
            let _ = accounts.unlock(name);
            let _ = accounts.expire(name);
            accounts.has_no_password(name);
        }
        if accounts.save(&mut root, &Problems::new()).is_ok() {
            let after = root.text("/etc/passwd");
            assert_eq!(after.lines().count(), before.lines().count(), "{before}\n---\n{after}");
        }
    });
}

fn ini_file(data: &[u8]) {
    for strict in [false, true] {
        let Ok(mut file) = ini::Ini::parse("fuzz", &text(data), strict) else { continue };
        file.set("main", "key", "value");
        file.to_text("\n");
    }
}

/// A new folder with these files.
fn in_tree(files: &[(&str, &[u8])], run: impl FnOnce(&Path)) {
    let folder = TempDir::new("fuzz-tree");
    for (name, content) in files {
        let path = folder.0.join(name);
        let made = path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(&path, content));
        made.unwrap_or_else(|e| panic!("failed to write {}: {e}", path.display()));
    }
    run(&folder.0);
}

const ROOT: &[(&str, &[u8])] = &[
    ("etc/os-release", b"ID=debian\nVERSION_ID=12\n"),
    ("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n"),
    ("etc/shadow", b"root:*:19000:0:99999:7:::\n"),
    ("etc/group", b"root:x:0:\nsudo:x:27:\n"),
];

/// user-data, meta-data and network-config, with a byte 0 between them.
fn plan_seed(data: &[u8]) {
    let (user_data, rest) = two(data);
    let (meta_data, network) = two(rest);
    let meta_data = if meta_data.is_empty() { b"instance-id: i-1\n" } else { meta_data };
    let seed: &[(&str, &[u8])] = &[("user-data", user_data), ("meta-data", meta_data), ("network-config", network)];
    let seed = if network.is_empty() { &seed[..2] } else { seed };
    in_tree(ROOT, |root| in_tree(seed, |seed| planned(root, seed)));
}

/// What the tree is planned with: much of what reads the root's files.
const TREE_SEED: &[(&str, &[u8])] = &[
    ("meta-data", b"instance-id: i-2\nlocal-hostname: h\n"),
    (
        "user-data",
        b"#cloud-config\nusers: [default, {name: alice, groups: [sudo], sudo: 'ALL=(ALL) ALL', plain_text_passwd: a,\n\
          ssh_authorized_keys: [ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB3l]}]\nchpasswd: {users: [{name: root, password: x, type: text}]}\n\
          mounts: [[sdb1, /mnt/b]]\nswap: {filename: /swap, size: 1M}\nmanage_etc_hosts: true\nlocale: de_DE.UTF-8\ntimezone: Europe/Paris\n\
          ssh_pwauth: true\nntp: {servers: [a]}\napt: {sources: {a: {source: 'deb http://a b c'}}}\nca_certs: {trusted: [x]}\n\
          resolv_conf: {nameservers: [1.1.1.1]}\nmanage_resolv_conf: true\nkeyboard: {layout: de}\n\
          write_files: [{path: /etc/motd, content: x, append: true}]\n",
    ),
];

/// Files of the tree, each after a line `@@ PATH`.
fn plan_tree(data: &[u8]) {
    let text = text(data);
    let mut files: Vec<(&str, &[u8])> = ROOT.to_vec();
    files_in(&text, &mut files);
    in_tree(&files, |root| in_tree(TREE_SEED, |seed| planned(root, seed)));
}

/// Adds files, each after a line `@@ PATH`, to `files`, or replaces those with the same path. Paths with `..` are left out.
fn files_in<'a>(text: &'a str, files: &mut Vec<(&'a str, &'a [u8])>) {
    for part in text.split("@@ ").skip(1) {
        let Some((name, content)) = part.split_once('\n') else { continue };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
        let is_above = |other: &str| Path::new(other).starts_with(name) || Path::new(name).starts_with(other);
        if name.is_empty()
            || name.len() > 100
            || !name.chars().all(is_plain)
            || name.split('/').any(|part| part.is_empty() || part.starts_with(".."))
            || part_of_files(files, name).is_none() && files.iter().any(|(other, _)| is_above(other))
        {
            continue;
        }
        match part_of_files(files, name) {
            Some(at) => files[at].1 = content.as_bytes(),
            None => files.push((name, content.as_bytes())),
        }
    }
}

fn part_of_files(files: &[(&str, &[u8])], name: &str) -> Option<usize> {
    files.iter().position(|(other, _)| *other == name)
}

/// Plans, and prints what was planned: the root stays as it is.
fn planned(root: &Path, seed: &Path) {
    let Ok(plan) = stage::plan::plan(root, seed) else { return };
    let lines = plan.to_json_lines();
    for line in lines.lines() {
        json::parse("plan", line.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{line}"));
    }
    plan.to_text();
}
