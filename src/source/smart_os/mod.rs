//! SmartOS: metadata over a serial port, or over a zone's socket.
//!
//! Follows Joyent's "Metadata Dictionary" (mdata) and cloud-init's documentation, "SmartOS".

mod files;
mod network;
mod protocol;

use super::Source;
use super::documents::decoded_lines;
use super::keys::public_keys;
use super::search::{Found, Search};
use super::table::Update;
use crate::base::error::Result;
use crate::detect::{Facts, Finding, Kernel, Mark};
use crate::document::{Bytes, Map, Value, json, yaml};
use crate::instance::{Instance, NetworkData};
use crate::link::line::Line;
use protocol::Client;
use std::time::Duration;

pub static SOURCE: Source = Source {
    name: "SmartOS",
    described: "[client={place}]",
    marks: &[Mark::product("SmartDC*"), Mark::Check("/native/.zonecontrol/metadata.sock in a SmartOS zone", zone)],
    read: Some(read),
    updates: &[Update::NewInstance, Update::Boot, Update::BootLegacy],
    provisioned: Some(files::write),
    settings: &[
        ("serial_device", "the serial port of a virtual machine, instead of /dev/ttyS1"),
        ("serial_timeout", "seconds that the host may take, 60 at most"),
        ("metadata_sockfile", "the socket of a zone, instead of /native/.zonecontrol/metadata.sock"),
        ("disk_aliases", "devices by name, beside ephemeral0: /dev/vdb"),
        ("base64_keys", "metadata keys whose values are base64"),
        ("base64_all", "true: every value is base64, but those of no_base64_decode"),
        ("no_base64_decode", "metadata keys whose values are never base64"),
    ],
    docs: "SmartOS: Joyent's metadata protocol, version 2 or 1, over the second serial port of a virtual machine or the socket of a \
        zone. user-script and operator-script become files of the instance, which a script of each boot runs, where the provider \
        gives no vendor-data; user-data, which is no cloud-config here, becomes /var/db/mdata-user-data, and \
        cloud-init:user-data is the user-data. These files are written in the network stage.",
    ..Source::NEW
};

const SOCKET: &str = "/native/.zonecontrol/metadata.sock";
const PORT: &str = "/dev/ttyS1";
/// How long the host may take, in seconds.
const TIME: u64 = 60;
/// The kernel version of a zone.
const ZONE: &str = "BrandZ virtual linux";
/// The disk for the user's data.
const DISK: (&str, &str) = ("ephemeral0", "/dev/vdb");

/// cloud-init's name, the host's name, and whether surrounding white space is removed.
const TEXTS: [(&str, &str, bool); 13] = [
    ("instance-id", "sdc:uuid", true),
    ("local-hostname", "hostname", true),
    ("public-keys", "root_authorized_keys", true),
    ("user-script", "user-script", false),
    ("legacy-user-data", "user-data", false),
    ("user-data", "cloud-init:user-data", false),
    ("iptables_disable", "iptables_disable", true),
    ("motd_sys_info", "motd_sys_info", true),
    ("availability_zone", "sdc:datacenter_name", true),
    ("vendor-data", "sdc:vendor-data", false),
    ("operator-script", "sdc:operator-script", false),
    ("hostname", "sdc:hostname", true),
    ("dns_domain", "sdc:dns_domain", true),
];
/// Keys whose values are JSON.
const DOCUMENTS: [(&str, &str); 3] =
    [("network-data", "sdc:nics"), ("dns_servers", "sdc:resolvers"), ("routes", "sdc:routes")];
/// Keys whose values are never base64.
const PLAIN: [&str; 5] =
    ["iptables_disable", "motd_sys_info", "root_authorized_keys", "sdc:datacenter_name", "user-script"];

/// Recognises a SmartOS zone by its kernel and its socket. A container inside a zone has no socket.
fn zone(facts: &Facts) -> Option<Finding> {
    let here = facts.platform.kernel.version == ZONE && facts.root.exists(SOCKET);
    if here { Finding::found(format!("{SOCKET} is there")) } else { None }
}

/// Asks the host, once.
fn read(search: &mut Search) -> Result<Option<Found>> {
    let machine = search.machine;
    let is_zone = Kernel::of(machine).version == ZONE;
    let is_vm = machine.dmi("product_name").is_some_and(|product| product.starts_with("SmartDC"));
    let settings = search.settings(SOURCE.name);
    let setting = |key: &str| settings.and_then(|s| s.get(key));
    let path = match is_zone {
        true => setting("metadata_sockfile").and_then(Value::text).unwrap_or_else(|| SOCKET.into()),
        false => setting("serial_device").and_then(Value::text).unwrap_or_else(|| PORT.into()),
    };
    let place = machine.base.join(path.trim_start_matches('/'));
    if !(is_zone || is_vm) || !Line::is_there(&place) || !search.first_time(SOURCE.name) {
        return Ok(None);
    }
    let seconds = setting("serial_timeout").and_then(Value::text).and_then(|t| t.parse().ok()).unwrap_or(TIME);
    let deadline = search.deadline.at_most(Duration::from_secs(seconds.min(TIME)));
    let line = if is_zone { Line::unix(&place)? } else { Line::serial(&place)? };
    let client = Client::open(line, !is_zone, deadline, search.taken())?;
    let encoding = if is_zone { None } else { Some(Encoding::of(settings)) };
    let mut metadata = metadata(client, encoding)?;
    if metadata.get("instance-id").is_none_or(Value::is_null) {
        search.reason(format!("SmartOS: {path} gives no sdc:uuid: it is not used"));
        return Ok(None);
    }
    let network = network::config(&metadata);
    let texts = ["local-hostname", "hostname", "instance-id"].iter().filter_map(|key| metadata.get(key)?.as_str());
    let name = texts.into_iter().find(|name| !name.is_empty()).map(str::to_owned);
    metadata.insert("local-hostname", name.clone().map_or(Value::Null, Value::from));
    let text = |key: &str| metadata.get(key).and_then(Value::as_str).filter(|t| !t.is_empty()).map(str::to_owned);
    let mut devices: Map = [DISK].into_iter().collect();
    if let Some(aliases) = setting("disk_aliases").and_then(Value::as_map) {
        aliases.iter().for_each(|(name, device)| drop(devices.insert(name, device.clone())));
    }
    let instance_id = text("instance-id").unwrap_or_default();
    let mut instance = Instance {
        source: SOURCE.name.into(),
        class: "DataSourceSmartOS".into(),
        platform: "joyent".into(),
        cloud_name: "joyent".into(),
        subplatform: format!("serial ({PORT})"),
        local_hostname: name,
        availability_zone: text("availability_zone"),
        public_keys: public_keys(metadata.get("public-keys")),
        user_data: text("user-data").map(|data| Bytes::from(data.into_bytes())),
        config: if is_zone { Value::Null } else { disk_config()? },
        device_names: devices,
        network: network.map(NetworkData::Cloud),
        instance_id,
        ..Instance::default()
    };
    instance.vendor_data = text("vendor-data").unwrap_or_else(|| files::runner(&instance)).into();
    metadata.insert("vendor-data", instance.vendor_data.clone());
    instance.metadata = Value::Map(metadata);
    Ok(Some(Found { instance, place: path }))
}

/// Which values are base64.
struct Encoding {
    all: Option<bool>,
    keys: Vec<String>,
    plain: Vec<String>,
}

impl Encoding {
    fn of(settings: Option<&Value>) -> Encoding {
        let get = |key: &str| settings.and_then(|s| s.get(key));
        let list = |key: &str| get(key).and_then(Value::as_list).unwrap_or_default().iter().filter_map(Value::text);
        Encoding {
            all: get("base64_all").filter(|v| v.is_true()).map(|_| true),
            keys: list("base64_keys").collect(),
            plain: PLAIN.iter().map(|k| (*k).to_owned()).chain(list("no_base64_decode")).collect(),
        }
    }

    /// Adds what the host's keys say: `base64_all`, `base64_keys`, and `b64-KEY` for each key.
    fn ask(&mut self, client: &mut Client) -> Result<()> {
        let keys = client.keys()?;
        let has = |key: &str| keys.iter().any(|k| k == key);
        if has("base64_all") {
            self.all = client.get("base64_all")?.map(|v| Value::from(v.as_str()).is_true()).or(self.all);
        }
        if has("base64_keys") {
            let listed = client.get("base64_keys")?.unwrap_or_default();
            self.keys.extend(listed.split(',').map(|key| key.trim().to_owned()));
        }
        for (mark, key) in keys.iter().filter_map(|mark| Some((mark, mark.strip_prefix("b64-")?))) {
            self.keys.retain(|k| k != key);
            if client.get(mark)?.is_some_and(|v| Value::from(v.as_str()).is_true()) {
                self.keys.push(key.to_owned());
            }
        }
        Ok(())
    }

    fn is_encoded(&self, key: &str) -> bool {
        !self.plain.iter().any(|k| k == key) && (self.all == Some(true) || self.keys.iter().any(|k| k == key))
    }
}

/// All values, with cloud-init's names; null if the host has none.
fn metadata(mut client: Client, mut encoding: Option<Encoding>) -> Result<Map> {
    if let Some(encoding) = &mut encoding {
        encoding.ask(&mut client)?;
    }
    let mut get = |key: &str| -> Result<Option<String>> {
        let value = client.get(key)?;
        let decode = |value: String| String::from_utf8(decoded_lines(value.clone().into_bytes())).unwrap_or(value);
        Ok(if encoding.as_ref().is_some_and(|e| e.is_encoded(key)) { value.map(decode) } else { value })
    };
    let mut metadata = Map::new();
    for (name, key, strip) in TEXTS {
        let value = get(key)?.map(|text| if strip { text.trim().to_owned() } else { text });
        metadata.insert(name, value.map_or(Value::Null, Value::from));
    }
    for (name, key) in DOCUMENTS {
        let value = get(key)?.map(|text| json::parse(key, text.as_bytes())).transpose()?;
        metadata.insert(name, value.unwrap_or_default());
    }
    Ok(metadata)
}

/// A file system for the user's data disk of a virtual machine.
fn disk_config() -> Result<Value> {
    yaml::parse(
        "SmartOS",
        "disk_setup: {ephemeral0: {table_type: mbr, layout: false, overwrite: false}}\n\
         fs_setup: [{label: ephemeral0, filesystem: ext4, device: ephemeral0}]\n",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::deadline::Deadline;
    use crate::base::testing::TempDir;
    use crate::root::Use;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    /// The instance of a zone whose host, which knows version 1 of the protocol, has these values.
    fn read_from(values: &'static [(&str, &str)]) -> Option<Found> {
        let dir = TempDir::new("smartos");
        for path in [SOCKET, "/proc/sys/kernel/version"] {
            std::fs::create_dir_all(dir.0.join(path.trim_start_matches('/')).parent().unwrap()).unwrap();
        }
        dir.write("proc/sys/kernel/version", format!("{ZONE}\n"));
        let listener = UnixListener::bind(dir.0.join(SOCKET.trim_start_matches('/'))).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for request in BufReader::new(stream.try_clone().unwrap()).lines().map_while(std::result::Result::ok) {
                let answer = match request.strip_prefix("GET ") {
                    None => "invalid command\n".into(),
                    Some(key) => match values.iter().find(|(name, _)| *name == key) {
                        Some((_, value)) => format!("SUCCESS\n{value}\n.\n"),
                        None => "NOTFOUND\n".into(),
                    },
                };
                if stream.write_all(answer.as_bytes()).is_err() {
                    break;
                }
            }
        });
        let (machine, root) = (dir.machine(), dir.root(Use::Plan));
        read(&mut Search::new(&machine, &root, &Value::Null, Deadline::after(Duration::from_secs(60)))).unwrap()
    }

    #[test]
    fn a_zone() {
        let found = read_from(&[
            ("sdc:uuid", "6cd0cf2a-7a3c-4a5f-9e6e-6ad9f8a0c4e0"),
            ("hostname", " zone-1 "),
            ("root_authorized_keys", "ssh-ed25519 A a\nssh-ed25519 B b"),
            ("cloud-init:user-data", "#cloud-config\n{}"),
            ("user-script", "echo hello"),
            ("sdc:datacenter_name", "east-1"),
            ("sdc:nics", r#"[{"interface": "net0", "mac": "90:b8:d0:f5:e4:f5", "ips": ["dhcp"], "primary": true}]"#),
        ]);
        let Found { instance, place } = found.unwrap();
        assert_eq!((place.as_str(), instance.instance_id.len()), (SOCKET, 36));
        assert_eq!(
            (instance.local_hostname.as_deref(), instance.availability_zone.as_deref()),
            (Some("zone-1"), Some("east-1"))
        );
        assert_eq!(instance.public_keys, ["ssh-ed25519 A a", "ssh-ed25519 B b"]);
        assert_eq!(instance.user_data.as_deref(), Some(&b"#cloud-config\n{}"[..]));
        assert!(instance.vendor_data.as_str().unwrap().starts_with("#cloud-boothook\n"));
        let Some(NetworkData::Cloud(network)) = instance.network else { panic!() };
        let kind = network
            .get("config")
            .and_then(|c| c.as_list()?.first()?.at(&["subnets"])?.as_list()?.first()?.get("type")?.text());
        assert_eq!(kind.as_deref(), Some("dhcp4"));
    }

    #[test]
    fn ignores_a_host_without_the_machines_number() {
        assert!(read_from(&[("hostname", "zone-1")]).is_none());
    }
}
