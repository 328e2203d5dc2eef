//! A case of datasources.json. Every key is known, or the case is an error.

use super::surroundings::Exchange;
use super::tree::set_virt;
use crate::cases::trial;
use libtest_mimic::Trial;
use prepivot::base::base64;
use prepivot::base::testing::TempDir;
use prepivot::detect::virt;
use prepivot::document::{Map, Value, json};
use prepivot::link::dhcp::Lease;
use prepivot::link::leases::of_dhclient;
use prepivot::machine::Machine;
use std::net::IpAddr;

/// What is at a path of the machine.
pub enum Entry {
    File(Vec<u8>, u32),
    Socket,
}

/// A block device, as blkid sees it.
pub struct Device {
    /// `sr0`.
    pub name: String,
    pub kind: Option<String>,
    pub label: Option<String>,
    /// The label in FAT's boot sector, where the root directory has none.
    pub boot_label: Option<String>,
    pub uuid: Option<String>,
    pub partition: bool,
    /// None: it cannot be mounted.
    pub files: Option<Vec<(String, Vec<u8>)>>,
}

pub struct Nic {
    pub name: String,
    pub mac: String,
    pub driver: Option<String>,
    pub index: Option<i64>,
    pub up: bool,
    pub is_virtual: bool,
    /// Whether it is the one of a failover group that gets the configuration.
    pub leads_failover: bool,
}

pub struct Case {
    pub datasource: String,
    /// The merged configuration, with `datasource_list`.
    pub config: Value,
    pub cmdline: String,
    /// dmidecode's names and the values.
    pub dmi: Vec<(String, String)>,
    pub files: Vec<(String, Entry)>,
    pub folders: Vec<String>,
    pub devices: Vec<Device>,
    pub nics: Vec<Nic>,
    /// Whether cloud-init's local stage reads it: before the network is up.
    pub is_local: bool,
    /// cloud-init's requests, each with its answer.
    pub http: Vec<Exchange>,
    pub names: Vec<(String, Vec<IpAddr>)>,
    /// What a NIC (`*`: each) leases, one after the other.
    pub leases: Vec<(String, Vec<Lease>)>,
    /// The virtual machine or container, in systemd-detect-virt's words.
    pub virt: Option<String>,
    /// The programs that cloud-init ran, with their arguments.
    pub commands: Vec<Vec<String>>,
    /// The other keys of the input, which the machine's surroundings answer.
    pub needs: Vec<&'static str>,
    /// The whole input.
    pub input: Value,
}

/// A mapping of which each key is taken, so that none is overlooked.
struct Fields<'a> {
    map: &'a Map,
    taken: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    fn new(value: &'a Value) -> Result<Self, String> {
        Ok(Fields { map: value.as_map().ok_or("expected a mapping")?, taken: Vec::new() })
    }

    fn take(&mut self, key: &'static str) -> Option<&'a Value> {
        self.taken.push(key);
        self.map.get(key).filter(|v| !v.is_null())
    }

    fn text(&mut self, key: &'static str) -> Result<Option<String>, String> {
        match self.take(key) {
            None => Ok(None),
            Some(value) => value.as_str().map(|s| Some(s.to_owned())).ok_or_else(|| format!("{key}: expected a text")),
        }
    }

    fn list(&mut self, key: &'static str) -> Result<&'a [Value], String> {
        match self.take(key) {
            None => Ok(&[]),
            Some(value) => value.as_list().ok_or_else(|| format!("{key}: expected a list")),
        }
    }

    fn pairs(&mut self, key: &'static str) -> Result<Vec<(&'a str, &'a Value)>, String> {
        match self.take(key) {
            None => Ok(Vec::new()),
            Some(value) => Ok(value.as_map().ok_or_else(|| format!("{key}: expected a mapping"))?.iter().collect()),
        }
    }

    fn end(self) -> Result<(), String> {
        match self.map.keys().find(|key| !self.taken.contains(key)) {
            Some(key) => Err(format!("the key {key} is not known")),
            None => Ok(()),
        }
    }
}

/// Text, or `{b64: …}`.
fn content(value: &Value) -> Result<Vec<u8>, String> {
    if let Some(text) = value.as_str() {
        return Ok(text.as_bytes().to_vec());
    }
    let mut fields = Fields::new(value)?;
    let text = fields.text("b64")?.ok_or("expected b64")?;
    fields.end()?;
    base64::decode(text.as_bytes()).ok_or_else(|| "expected base64".into())
}

fn entry(value: &Value) -> Result<Entry, String> {
    let Some(map) = value.as_map().filter(|m| !m.contains_key("b64")) else {
        return Ok(Entry::File(content(value)?, 0o644));
    };
    let mut fields = Fields { map, taken: Vec::new() };
    if fields.take("socket").is_some() {
        fields.end()?;
        return Ok(Entry::Socket);
    }
    let bytes = content(fields.take("content").ok_or("expected content")?)?;
    let mode = match fields.take("mode") {
        Some(Value::Int(mode)) => u32::try_from(*mode).map_err(|e| e.to_string())?,
        Some(value) => {
            let text = value.as_str().ok_or("mode: expected a number")?;
            u32::from_str_radix(text.trim_start_matches("0o"), 8).map_err(|e| format!("mode: {e}"))?
        }
        None => 0o644,
    };
    fields.end()?;
    Ok(Entry::File(bytes, mode))
}

fn device(value: &Value) -> Result<Device, String> {
    let mut fields = Fields::new(value)?;
    let path = fields.text("name")?.ok_or("expected a name")?;
    let files = match fields.take("files") {
        None => None,
        Some(files) => {
            let files = files.as_map().ok_or("files: expected a mapping")?.iter();
            Some(files.map(|(path, value)| Ok((path.to_owned(), content(value)?))).collect::<Result<_, String>>()?)
        }
    };
    let device = Device {
        name: path.strip_prefix("/dev/").ok_or("expected a path below /dev")?.to_owned(),
        kind: fields.text("type")?,
        label: fields.text("label")?,
        boot_label: fields.text("label_fatboot")?,
        uuid: fields.text("uuid")?,
        partition: fields.take("partition").is_some(),
        files,
    };
    fields.end()?;
    Ok(device)
}

fn nic(value: &Value) -> Result<Nic, String> {
    let mut fields = Fields::new(value)?;
    let nic = Nic {
        name: fields.text("name")?.ok_or("expected a name")?,
        mac: fields.text("mac")?.ok_or("expected a mac")?,
        driver: fields.text("driver")?,
        index: fields.take("ifindex").and_then(Value::as_int),
        up: fields.take("up").and_then(Value::as_bool) != Some(false),
        is_virtual: fields.take("virtual").and_then(Value::as_bool) == Some(true),
        leads_failover: fields.take("netfail_master").and_then(Value::as_bool) == Some(true),
    };
    fields.end()?;
    Ok(nic)
}

/// What the machine's surroundings answer besides HTTP: the input's key, and the keys of its entries.
const ANSWERS: &[(&str, &[&str])] = &[
    ("commands", &["argv", "stdout", "stderr", "rc"]),
    ("serial", &[]),
    ("dialogue", &[]),
    ("smartos", &[]),
    ("env", &[]),
    ("transport_key", &[]),
];
/// Keys that only belong to these answers.
const BESIDE: &[&str] = &["programs", "default_user", "distro", "uname_version"];

fn exchange(value: &Value) -> Result<Exchange, String> {
    let mut fields = Fields::new(value)?;
    let text = |(name, value): (&str, &Value)| (name.to_owned(), value.text().unwrap_or_default());
    let exchange = Exchange {
        method: fields.text("method")?.ok_or("expected a method")?,
        url: fields.text("url")?.ok_or("expected a url")?,
        request_headers: fields.pairs("request_headers")?.into_iter().map(text).collect(),
        request_body: fields.take("request_body").map(content).transpose()?,
        has_source_port: fields.take("source_port").is_some(),
        error: fields.text("error")?,
        status: u16::try_from(fields.take("status").and_then(Value::as_int).unwrap_or(200))
            .map_err(|e| e.to_string())?,
        headers: fields.pairs("headers")?.into_iter().map(text).collect(),
        body: fields.take("body").map(content).transpose()?.unwrap_or_default(),
        times: fields.take("times").and_then(Value::as_int).and_then(|n| usize::try_from(n).ok()).unwrap_or(1),
    };
    fields.end()?;
    Ok(exchange)
}

fn addresses((name, list): (&str, &Value)) -> Result<(String, Vec<IpAddr>), String> {
    let list = list.as_list().ok_or_else(|| format!("dns: {name}: expected a list"))?.iter();
    let list = list.map(|a| a.as_str().and_then(|a| a.parse().ok()).ok_or_else(|| format!("dns: {name}: {a:?}")));
    Ok((name.to_owned(), list.collect::<Result<_, _>>()?))
}

fn leases((nic, given): (&str, &Value)) -> Result<(String, Vec<Lease>), String> {
    let one = |options: &Value| {
        let options = options.as_map().ok_or_else(|| format!("dhcp: {nic}: expected a mapping"))?;
        let lease = of_dhclient(options.iter().filter_map(|(name, value)| Some((name, value.as_str()?))));
        lease.ok_or_else(|| format!("dhcp: {nic}: expected an address"))
    };
    // An attempt without a lease leaves none.
    let all = given.as_list().unwrap_or(std::slice::from_ref(given)).iter().filter(|lease| !lease.is_null());
    Ok((nic.to_owned(), all.map(one).collect::<Result<_, _>>()?))
}

impl Case {
    /// Reads a case.
    ///
    /// # Errors
    ///
    /// It has a key that is not known, or a value of another kind than expected.
    pub fn load(case: &Value) -> Result<Case, String> {
        let mut fields = Fields::new(case.get("input").ok_or("expected an input")?)?;
        let datasource = fields.text("datasource")?.ok_or("expected a datasource")?;
        let (mut needs, mut commands) = (Vec::new(), Vec::new());
        for (key, keys) in ANSWERS {
            let Some(value) = fields.take(key) else { continue };
            needs.push(*key);
            if *key == "commands" {
                let argv = |c: &Value| Some(c.get("argv")?.as_list()?.iter().filter_map(Value::text).collect());
                commands = value.as_list().unwrap_or_default().iter().filter_map(argv).collect();
            }
            for entry in value.as_list().unwrap_or_default().iter().filter_map(Value::as_map) {
                if let Some(unknown) = entry.keys().find(|k| !keys.contains(k)) {
                    return Err(format!("{key}: the key {unknown} is not known"));
                }
            }
        }
        for key in BESIDE {
            fields.take(key);
        }
        let mut config = fields.take("sys_cfg").and_then(Value::as_map).cloned().unwrap_or_default();
        if !config.contains_key("datasource_list") {
            config.insert("datasource_list", vec![Value::from(datasource.as_str()), "None".into()]);
        }
        let text = |(key, value): (&str, &Value)| {
            value.text().map(|v| (key.to_owned(), v)).ok_or_else(|| format!("{key}: expected a text"))
        };
        let loaded = Case {
            datasource,
            config: Value::Map(config),
            cmdline: fields.text("cmdline")?.unwrap_or_default(),
            dmi: fields.pairs("dmi")?.into_iter().map(text).collect::<Result<_, _>>()?,
            files: (fields.pairs("files")?.into_iter())
                .map(|(path, value)| Ok((path.to_owned(), entry(value).map_err(|e| format!("{path}: {e}"))?)))
                .collect::<Result<_, String>>()?,
            folders: fields.list("dirs")?.iter().filter_map(Value::text).collect(),
            devices: fields.list("devices")?.iter().map(device).collect::<Result<_, _>>()?,
            nics: fields.list("nics")?.iter().map(nic).collect::<Result<_, _>>()?,
            is_local: fields.text("stage")?.as_deref() == Some("local"),
            http: fields.list("http")?.iter().map(exchange).collect::<Result<_, _>>()?,
            names: fields.pairs("dns")?.into_iter().map(addresses).collect::<Result<_, _>>()?,
            leases: fields.pairs("dhcp")?.into_iter().map(leases).collect::<Result<_, _>>()?,
            virt: fields.text("virt")?,
            commands,
            needs,
            input: case.get("input").cloned().unwrap_or_default(),
        };
        fields.end()?;
        Ok(loaded)
    }

    /// What a NIC leases before the network is up, one after the other.
    pub fn leases(&self, nic: &str) -> Vec<Lease> {
        let found = self.leases.iter().filter(|_| self.is_local).find(|(name, _)| name == nic || name == "*");
        let all = found.map(|(_, all)| all.as_slice()).unwrap_or_default();
        all.iter().map(|lease| Lease { link: nic.to_owned(), ..lease.clone() }).collect()
    }
}

/// Tests of what reads the cases.
pub fn trials() -> Vec<Trial> {
    vec![trial("conformance: a case has several leases, a kind of machine and a failover group", || {
        let text = r#"{"input": {"datasource": "Oracle", "stage": "local", "virt": "kvm",
            "nics": [{"name": "eth0", "mac": "a", "netfail_master": true}],
            "dhcp": {"eth0": [{"fixed-address": "10.0.0.2"}, null, {"fixed-address": "10.0.0.3"}], "*": {"fixed-address": "10.0.0.4"}}}}"#;
        let case = Case::load(&json::parse("t", text.as_bytes()).unwrap()).unwrap();
        let leased = |nic: &str| {
            case.leases(nic)
                .iter()
                .map(|lease| lease.address.map(|a| a.to_string()).unwrap_or_default())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (leased("eth0"), leased("eth1")),
            (vec!["10.0.0.2".into(), "10.0.0.3".into()], vec!["10.0.0.4".into()])
        );
        assert_eq!((case.virt.as_deref(), case.nics[0].leads_failover), (Some("kvm"), true));
        for kind in ["none", "lxc", "docker", "xen", "kvm", "qemu", "microsoft", "vmware", "amazon", "oracle"] {
            let dir = TempDir::new("conformance-virt");
            set_virt(&dir.0, kind);
            assert_eq!(virt::detect(&Machine::read(&dir.0)), kind);
        }
    })]
}
