//! LXD: metadata from its socket, in a container or a virtual machine.
//!
//! Follows LXD's documentation, "Communication between instance and host" (devLXD), and cloud-init's, "LXD".

use super::documents::instance;
use super::search::{Found, Search};
use super::{Hotplug, RealRoot, Source};
use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::detect::{Facts, Finding, Mark, virt};
use crate::document::{Bytes, Map, Value, json, yaml};
use crate::instance::{Instance, NetworkData};
use crate::link::http::{Client, Reply, Request, refused};
use crate::machine::{Machine, beneath};
use crate::network::fallback;
use std::os::unix::fs::FileTypeExt;
use std::time::Duration;

pub static SOURCE: Source = Source {
    name: "LXD",
    marks: &[Mark::Check(
        "the socket /dev/lxd/sock; on KVM and QEMU a virtio port named com.canonical.lxd or org.linuxcontainers.lxd",
        mark,
    )],
    read: Some(read),
    real_root: RealRoot { alone: Some(waits_for_agent), ..RealRoot::NEW },
    hotplug: Hotplug { omits_devices: true, ..Hotplug::NEW },
    docs: "LXD's containers and virtual machines. Read from the socket /dev/lxd/sock: meta-data, the devices, and every key of \
        user.* and cloud-init.*; a cloud-init.* key takes precedence over the user.* key of the same name, and user.meta-data \
        over meta-data. In a virtual machine the socket is made by LXD's agent, which runs in the real root: the initramfs \
        leaves the machine to the real root's first stage, which provisions it.",
    ..Source::NEW
};

const SOCKET: &str = "dev/lxd/sock";
/// Any host name will do: the socket decides.
const URL: &str = "http://lxd";
const CONFIG: &str = "/1.0/config";
/// How long all requests may take, and how often one is sent: a busy host answers 500.
const TIME: Duration = Duration::from_secs(30);
const TRIES: u32 = 6;
/// The most keys that are read, and the most bytes of all documents together.
const MAX_KEYS: usize = 1_000;
const MAX_TOTAL: usize = 32 << 20;

fn has_socket(machine: &Machine) -> bool {
    beneath::metadata(&machine.base, SOCKET).is_some_and(|m| m.file_type().is_socket())
}

/// Recognises LXD by its socket in a container, and by its virtio port in a virtual machine.
fn mark(facts: &Facts) -> Option<Finding> {
    const PORTS: &str = "sys/class/virtio-ports";
    const NAMES: [&str; 2] = ["com.canonical.lxd", "org.linuxcontainers.lxd"];
    if has_socket(facts.machine) {
        return Finding::found(format!("/{SOCKET} is there"));
    }
    if !virt::is_qemu(&facts.platform.virt) {
        return None;
    }
    let names = facts.entries(PORTS).into_iter().filter_map(|p| facts.machine.fact(&format!("{PORTS}/{p}/name")));
    let name = names.map(|n| n.trim().to_owned()).find(|n| NAMES.contains(&n.as_str()))?;
    Finding::found(format!("there is a virtio port named {name}"))
}

fn waits_for_agent(facts: &Facts) -> Option<String> {
    let waits = !has_socket(facts.machine);
    waits.then(|| format!("/{SOCKET} is made by LXD's agent, which runs in the real root"))
}

fn read(search: &mut Search) -> Result<Option<Found>> {
    if !has_socket(search.machine) {
        return Ok(None);
    }
    let client = Client::socket(&search.machine.base.join(SOCKET), search.deadline.at_most(TIME))?;
    let client = client.keeping(search.taken().clone());
    let mut crawl = Crawl { client: &client, left: MAX_TOTAL };
    let instance = crawl.instance(search.machine)?;
    Ok(Some(Found { instance, place: format!("/{SOCKET}") }))
}

struct Crawl<'a> {
    client: &'a Client,
    /// How many bytes may still be read.
    left: usize,
}

impl Crawl<'_> {
    fn get(&mut self, path: &str) -> Result<Reply> {
        let url = format!("{URL}{path}");
        let reply = self.client.send(&Request { tries: TRIES, limit: self.left, ..Request::get(&url) })?;
        self.left = self.left.saturating_sub(reply.body.len());
        Ok(reply)
    }

    /// A document as text.
    fn text(&mut self, path: &str) -> Result<String> {
        let reply = self.get(path)?;
        match reply.status {
            200..=299 => String::from_utf8(reply.body).map_err(|_| Error::new(format!("{URL}{path}: expected UTF-8"))),
            status => Err(refused("GET", &format!("{URL}{path}"), status)),
        }
    }

    /// The keys and values of the instance's configuration, in order. Failures are added to `problems`.
    fn config(&mut self, problems: &Problems) -> Result<Map> {
        let list = self.text(CONFIG)?;
        let list = json::parse(CONFIG, list.as_bytes())?;
        let paths = list.as_list().ok_or_else(|| Error::new(format!("{URL}{CONFIG}: expected a list of paths")))?;
        let key = |path: &str| Some(path.strip_prefix(CONFIG)?.strip_prefix('/')?.to_owned());
        let is_plain =
            |key: &String| !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        let mut keys: Vec<String> =
            paths.iter().filter_map(Value::as_str).filter_map(key).filter(is_plain).take(MAX_KEYS).collect();
        keys.sort();
        let mut config = Map::new();
        for key in keys {
            match self.text(&format!("{CONFIG}/{key}")) {
                Ok(value) => drop(config.insert(key, value)),
                Err(e) => problems.warn(format!("{e}; the boot goes on without it")),
            }
        }
        Ok(config)
    }

    fn instance(&mut self, machine: &Machine) -> Result<Instance> {
        let text = self.text("/1.0/meta-data")?;
        let mut metadata = mapping("meta-data", &text)?;
        let problems = Problems::new();
        let config = self.config(&problems)?;
        let devices = self.get("/1.0/devices").ok();
        if let Some(own) = config.get("user.meta-data").and_then(Value::as_str).filter(|t| !t.is_empty()) {
            for (key, value) in mapping("user.meta-data", own)?.iter() {
                metadata.insert(key, value.clone());
            }
        }
        let of = |name: &str| {
            let keys = [format!("cloud-init.{name}"), format!("user.{name}")];
            if keys.iter().all(|key| config.contains_key(key)) {
                log::info!("LXD: {} takes precedence over {}", keys[0], keys[1]);
            }
            let value = keys.iter().find_map(|key| config.get(key)).and_then(Value::as_str);
            value.filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let network = match of("network-config") {
            Some(text) => {
                mapping("network-config", &text).map(Value::Map).map_err(|e| problems.warn(e.to_string())).ok()
            }
            None => None,
        };
        let mut ds = Map::from_iter([
            ("_metadata_api_version", Value::from("1.0")),
            ("config", Value::Map(config.clone())),
            ("meta-data", Value::Map(metadata.clone())),
        ]);
        if let Some(Ok(devices)) = devices.filter(|d| d.status == 200).map(|d| json::parse("devices", &d.body)) {
            ds.insert("devices", devices);
        }
        Ok(Instance {
            subplatform: format!("LXD socket API v. 1.0 (/{SOCKET})"),
            user_data: of("user-data").map(|text| Bytes::from(text.into_bytes())),
            vendor_data: of("vendor-data").map_or(Value::Null, Value::from),
            network: Some(NetworkData::Cloud(network.unwrap_or_else(|| default_network(machine)))),
            ds,
            problems,
            ..instance(SOURCE.name, metadata)
        })
    }
}

/// Parses a document that has to be a mapping.
fn mapping(name: &str, text: &str) -> Result<Map> {
    match yaml::parse(name, text)? {
        Value::Map(map) => Ok(map),
        _ => Err(Error::new(format!("LXD's {name}: expected a mapping"))),
    }
}

/// DHCP on the most suitable interface; if there is none yet, on the usual one of LXD's virtual machines and
/// containers.
fn default_network(machine: &Machine) -> Value {
    let nics = machine.nics();
    let usual = || match (beneath::exists(&machine.base, "sys/class/virtio-ports"), std::env::consts::ARCH) {
        (false, _) => "eth0",
        (true, "powerpc64") => "enp0s5",
        (true, "s390x") => "enc9",
        (true, _) => "enp5s0",
    };
    let name = fallback::nic(&nics).map_or_else(|| usual().to_owned(), |nic| nic.name.clone());
    let subnet = Value::Map(Map::from_iter([("type", "dhcp"), ("control", "auto")]));
    let entry = Map::from_iter([
        ("type", Value::from("physical")),
        ("name", name.into()),
        ("subnets", Value::List(vec![subnet])),
    ]);
    Value::Map(Map::from_iter([("version", Value::Int(1)), ("config", Value::List(vec![Value::Map(entry)]))]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::deadline::Deadline;
    use crate::base::testing::TempDir;
    use crate::root::Use;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    /// Serves documents on the socket of a machine, each connection's requests in turn, until the test ends.
    fn serve(base: &Path, documents: &[(&str, u16, &str)]) {
        let path = base.join(SOCKET);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let listener = UnixListener::bind(path).unwrap();
        let documents: Vec<(String, u16, String)> =
            documents.iter().map(|(path, status, body)| ((*path).into(), *status, (*body).into())).collect();
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = BufReader::new(connection.unwrap());
                let mut line = String::new();
                while connection.read_line(&mut line).is_ok_and(|n| n > 0) {
                    let wanted = line.split(' ').nth(1).unwrap_or_default().to_owned();
                    while line.trim() != "" {
                        line.clear();
                        connection.read_line(&mut line).unwrap();
                    }
                    line.clear();
                    let found = documents.iter().find(|(path, _, _)| *path == wanted);
                    let (status, body) = found.map_or((404, ""), |(_, status, body)| (*status, body.as_str()));
                    let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                    connection.get_mut().write_all(head.as_bytes()).unwrap();
                }
            }
        });
    }

    fn read_from(documents: &[(&str, u16, &str)]) -> Result<Option<Found>> {
        let dir = TempDir::new("lxd");
        if !documents.is_empty() {
            serve(&dir.0, documents);
        }
        let (machine, root) = (dir.machine(), dir.root(Use::Plan));
        read(&mut Search::new(&machine, &root, &Value::Null, Deadline::after(Duration::from_secs(20))))
    }

    const META: (&str, u16, &str) = ("/1.0/meta-data", 200, "#cloud-config\ninstance-id: i-1\nlocal-hostname: c1\n");

    #[test]
    fn an_instance_by_its_socket() {
        let keys = r#"["/1.0/config/user.user-data", "/1.0/config/cloud-init.user-data", "/1.0/config/user.meta-data",
            "/1.0/config/user.vendor-data", "/1.0/config/user.own", "/1.0/config/../x", 7]"#;
        let found = read_from(&[
            META,
            ("/1.0/config", 200, keys),
            ("/1.0/config/user.user-data", 200, "old"),
            ("/1.0/config/cloud-init.user-data", 200, "#cloud-config\n{}\n"),
            ("/1.0/config/user.meta-data", 200, "{local-hostname: c2, public-keys: ssh-rsa A}"),
            ("/1.0/config/user.vendor-data", 403, ""),
            ("/1.0/config/user.own", 200, "mine"),
            ("/1.0/devices", 200, r#"{"eth0": {"type": "nic"}}"#),
        ]);
        let instance = found.unwrap().unwrap().instance;
        assert_eq!((instance.instance_id.as_str(), instance.local_hostname.as_deref()), ("i-1", Some("c2")));
        assert_eq!(*instance.user_data.unwrap(), *b"#cloud-config\n{}\n");
        assert_eq!((instance.vendor_data, instance.public_keys), (Value::Null, vec!["ssh-rsa A".to_owned()]));
        assert_eq!(instance.problems.len(), 1, "{:?}", instance.problems);
        let ds = Value::Map(instance.ds);
        assert_eq!(ds.at(&["config", "user.own"]), Some(&Value::from("mine")));
        assert_eq!(ds.at(&["devices", "eth0", "type"]), Some(&Value::from("nic")));
        assert_eq!(ds.get("meta-data"), Some(&instance.metadata));
        let Some(NetworkData::Cloud(network)) = instance.network else { panic!() };
        assert!(json::to_string(&network).contains(r#""name":"eth0","subnets":[{"type":"dhcp","control":"auto"}]"#));
    }

    #[test]
    fn foreign_socket_is_error_and_missing_is_none() {
        assert!(read_from(&[]).unwrap().is_none());
        assert!(read_from(&[("/1.0/meta-data", 200, "[1]")]).is_err());
        assert!(read_from(&[META, ("/1.0/config", 200, "{}")]).is_err());
        assert!(read_from(&[META, ("/1.0/config", 403, "")]).is_err());
    }
}
