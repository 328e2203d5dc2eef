//! Guest customization (IMC): files that VMware's tools leave in a folder of the running system.
//!
//! Follows cloud-init's documentation, "VMware", "IMC"; for the calls, open-vm-tools' deployPkg plugin.

use super::values::Values;
use super::{document_of, marks};
use crate::base::base64;
use crate::base::deadline::Deadline;
use crate::base::error::{Error, Result};
use crate::detect::Requested;
use crate::document::{Bytes, InstancePart, Map, Value};
use crate::instance::Instance;
use crate::machine::{Family, appear};
use crate::network::Macs;
use crate::network::read::vmware_imc::{ImcSettings, to_v2};
use crate::root::{CLOUD_INIT_LOG, Root, installed};
use crate::source::search::Search;
use std::path::Path;
use std::time::Duration;

/// The folder that the tools create, and the file with the customization.
const FOLDER: &str = "/var/run/vmware-imc";
const FILE: &str = "cust.cfg";
/// How long to wait for it by default, in seconds.
const WAIT: u64 = 15;
/// The longest wait, in seconds.
const MAX_WAIT: u64 = 180;
/// How long one call to the hypervisor may take, how often it is asked to connect NICs, and how often after each, once a second,
/// whether they are connected.
const CALL: Duration = Duration::from_secs(10);
const ATTEMPTS: u64 = 5;
const QUERIES: u64 = 5;
/// The account whose password a customization sets.
const ROOT: &str = "root";
/// The largest list of NICs, in bytes.
const MAX_NICS: usize = 1024;
/// The prefix of the marker file that a customization leaves if it asks for one; its name follows.
const MARKER: &str = "/var/lib/cloud/data/.markerfile-";

/// States and events in deployPkg's calls.
const RUNNING: u32 = 4;
const DONE: u32 = 5;
const SCRIPT_DISABLED: u32 = 6;
const FAILED: u32 = 100;
const NETWORK_FAILED: u32 = 101;
const ENABLE_NICS: u32 = 103;
const QUERY_NICS: u32 = 104;

/// Reads the customization, if there is one and the image allows it. The running system waits for it if traditional ones are
/// enabled, or if VMware is the only source.
///
/// # Errors
/// A file that it names cannot be read, or its network configuration is invalid.
pub fn read(search: &mut Search) -> Result<Option<Values>> {
    let setting = |key: &str| search.settings(super::SOURCE.name).and_then(|s| s.get(key));
    let traditional = marks::customizes(search.config);
    let raw = marks::takes_raw_data(search.config);
    if !(traditional || raw) || marks::plugin(search.root).is_none() {
        return Ok(None);
    }
    let path = format!("{FOLDER}/{FILE}");
    if search.root.is_live() && (traditional || is_only_source(search)) {
        let seconds =
            setting("vmware_cust_file_max_wait").and_then(Value::text).and_then(|t| t.parse().ok()).unwrap_or(WAIT);
        // Apart from the search's own time, which is meant for drives and may be shorter.
        appear::wait_for(Path::new(&path), Deadline::after(Duration::from_secs(seconds.min(MAX_WAIT))));
    }
    let Some(bytes) = search.document(&path)? else { return Ok(None) };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let settings = ImcSettings::parse(&text);
    let mut values = match settings.get("CLOUDINIT", "METADATA") {
        Some(name) if raw => {
            let values = raw_data(search, name, settings.get("CLOUDINIT", "USERDATA"));
            values.inspect_err(|_| failed(search, &settings, FAILED))?
        }
        None if traditional && forbids_script(search, &settings) => {
            failed(search, &settings, SCRIPT_DISABLED);
            return Err(Error::new(format!(
                "VMware: {FILE}: [CUSTOM-SCRIPT]: expected no script, as enable-custom-scripts of VMware's tools is off"
            )));
        }
        None if traditional => {
            connect_nics(search);
            written(search, &settings, &text).inspect_err(|_| failed(search, &settings, NETWORK_FAILED))?
        }
        _ => return Ok(None),
    };
    values.place = "imc (vmware-tools)".into();
    values.stale_files.push(FOLDER.to_owned());
    // Needed for the last call.
    if let (Some(Value::Map(metadata)), true) = (&mut values.metadata, settings.is("MISC", "POST-GC-STATUS", &["yes"]))
    {
        metadata.insert("post-gc-status", "yes");
    }
    Ok(Some(values))
}

/// Whether the image or the kernel command line names no other source.
fn is_only_source(search: &Search) -> bool {
    let requested = Requested::read(search.root, &search.machine.cmdline, search.config);
    let is_this = |name: &String| super::SOURCE.is_named(name);
    match &requested.forced {
        Some((names, _)) => names.len() == 1 && names.iter().any(is_this),
        None => requested.single().is_some_and(|list| list.iter().any(is_this)),
    }
}

/// cloud-init's own documents, in files next to the customization.
fn raw_data(search: &Search, metadata: &str, user_data: Option<&str>) -> Result<Values> {
    let read = |name: &str| {
        let path = format!("{FOLDER}/{name}");
        let missing = || Error::new(format!("VMware: {FOLDER}/{FILE} names {name}, and there is no such file"));
        if name.contains('/') || name == ".." { Err(missing()) } else { search.root.read(&path)?.ok_or_else(missing) }
    };
    let user_data = user_data.map(read).transpose()?;
    let bytes = read(metadata)?;
    // The file's name is the customization's.
    search.taken().add_to(InstancePart::Metadata, metadata, &bytes);
    let metadata = document_of(metadata, &bytes)?;
    if metadata.as_map().is_none() {
        return Err(crate::document::wrong("VMware: the metadata of the customization", "a mapping", &metadata));
    }
    // Removes the carriage returns of Windows line ends.
    let user_data = user_data.map(|bytes| bytes.into_iter().filter(|b| *b != b'\r').collect());
    Ok(Values { metadata: Some(metadata), user_data, ..Values::default() })
}

/// The customization that vSphere itself writes.
fn written(search: &Search, settings: &ImcSettings, text: &str) -> Result<Values> {
    let mut metadata = Map::new();
    if let Some(host) = settings.get("NETWORK", "HOSTNAME") {
        let domain = settings.get("NETWORK", "DOMAINNAME").map(|domain| format!(".{domain}")).unwrap_or_default();
        metadata.insert("local-hostname", format!("{host}{domain}"));
    }
    settings.get("MISC", "INSTANCE-ID").map(|id| metadata.insert("instance-id", id));
    let macs = Macs::of(&search.machine.nics());
    let is_here =
        |nic: &&str| settings.get(nic, "MACADDR").is_some_and(|mac| macs.name(&mac.to_ascii_lowercase()).is_some());
    if let Some(nic) = settings.nics().into_iter().find(|nic| !is_here(nic)) {
        return Err(Error::new(format!(
            "VMware: {FILE}: [{nic}] MACADDR: expected the address of an interface of this machine"
        )));
    }
    metadata.insert("network", to_v2(text, &macs)?);
    let mut config = Map::new();
    settings.get("DATETIME", "TIMEZONE").map(|zone| config.insert("timezone", zone));
    let values = Values { files: interfaces(search)?, ..Values::default() };
    if is_new(search, settings) {
        let reset = settings.is("PASSWORD", "RESET", &["yes", "true"]);
        let password =
            match settings.get("PASSWORD", "-PASS").map(|p| base64::decode(p.as_bytes()).map(String::from_utf8)) {
                Some(Some(Ok(password))) => Some(password),
                Some(_) => {
                    values.problems.warn("cust.cfg: [PASSWORD] -PASS: expected base64: it is ignored");
                    None
                }
                None => None,
            };
        if password.is_some() || reset {
            config.insert("chpasswd", passwords(search.root, password.as_deref(), reset));
        }
        if settings.get("CUSTOM-SCRIPT", "SCRIPT-NAME").is_some() {
            values.problems.warn("cust.cfg: [CUSTOM-SCRIPT]: the script is not run: use user-data");
        }
    }
    settings.get("MISC", "MARKER-ID").map(|id| metadata.insert("marker-id", id));
    Ok(Values { metadata: Some(Value::Map(metadata)), config: Value::Map(config), ..values })
}

/// Whether to do what is done only once, and not again for a clone of a customized machine.
fn is_new(search: &Search, settings: &ImcSettings) -> bool {
    settings.get("MISC", "MARKER-ID").is_some_and(|id| !search.root.exists(&format!("{MARKER}{id}.txt")))
}

/// Whether the customization has a script although VMware's tools do not allow that, so that it fails.
fn forbids_script(search: &Search, settings: &ImcSettings) -> bool {
    if !is_new(search, settings) || settings.get("CUSTOM-SCRIPT", "SCRIPT-NAME").is_none() {
        return false;
    }
    let words = ["vmware-toolbox-cmd", "config", "get", "deployPkg", "enable-custom-scripts"];
    let answer = search.tools.ask(&words, CALL).filter(|answer| answer.success);
    // `[deployPkg] enable-custom-scripts = true`
    let answer = answer.map(|a| String::from_utf8_lossy(&a.stdout).into_owned()).unwrap_or_default();
    match answer.split_once('=') {
        Some((_, value)) => !value.trim().eq_ignore_ascii_case("true"),
        None => !settings.is("MISC", "DEFAULT-RUN-POST-CUST-SCRIPT", &["yes"]),
    }
}

/// ifupdown's own file without the image's interfaces, which would otherwise be configured twice. The old
/// file is kept next to it.
fn interfaces(search: &Search) -> Result<Vec<(String, Bytes)>> {
    const PATH: &str = "/etc/network/interfaces";
    const CONTENT: &str = "# DO NOT EDIT THIS FILE BY HAND -- AUTOMATICALLY GENERATED BY cloud-init\n\
        source /etc/network/interfaces.d/*\nsource-directory /etc/network/interfaces.d";
    if installed::distro(search.root).family != Family::Debian {
        return Ok(Vec::new());
    }
    let mut files = vec![(PATH.to_owned(), Bytes::from(CONTENT.as_bytes().to_vec()))];
    let old = format!("{PATH}.before_vmware_customization");
    if let (false, Some(bytes)) = (search.root.exists(&old), search.root.read(PATH)?) {
        files.push((old, Bytes::from(bytes)));
    }
    Ok(files)
}

/// Root's new password, if there is one. With `expires` it and those of all accounts with root's rights expire: one that stays is
/// set again as it is.
fn passwords(root: &Root, password: Option<&str>, expires: bool) -> Map {
    let user = |name: &str, word: &str, kind: &str| {
        Value::Map([("name", name), ("password", word), ("type", kind)].into_iter().collect())
    };
    let mut users: Vec<Value> =
        password.map(|word| user(ROOT, word.trim_end_matches('\n'), "text")).into_iter().collect();
    if expires {
        let accounts = root.text("/etc/passwd");
        let is_root = |name: &str| {
            accounts.lines().any(|line| {
                let mut fields = line.split(':');
                fields.next() == Some(name) && fields.nth(1) == Some("0")
            })
        };
        let shadow = root.text("/etc/shadow");
        let fields = shadow.lines().filter_map(|line| line.split_once(':'));
        let stay = fields.filter(|(name, _)| is_root(name) && (*name != ROOT || password.is_none()));
        users.extend(stay.map(|(name, rest)| user(name, rest.split(':').next().unwrap_or_default(), "hash")));
    }
    [("expire", Value::Bool(expires)), ("users", users.into())].into_iter().collect()
}

fn state(state: u32, event: u32, message: &str) -> String {
    format!("deployPkg.update.state {state} {event} {CLOUD_INIT_LOG}{message}")
}

/// Has the hypervisor connect the NICs that it kept disconnected until now, and waits a few seconds for them.
fn connect_nics(search: &mut Search) {
    let Ok(Some(bytes)) = search.root.read(&format!("{FOLDER}/nics.txt")) else { return };
    let Some(tool) = installed::which(search.root, "vmware-rpctool") else { return };
    let nics = String::from_utf8_lossy(bytes.get(..MAX_NICS.min(bytes.len())).unwrap_or_default());
    let message = format!("@{}", nics.trim());
    let call = |event| {
        let answer = search.tools.ask(&[&tool, &state(RUNNING, event, &message)], CALL)?;
        Some(String::from_utf8_lossy(&answer.stdout).trim().to_owned())
    };
    // The hypervisor sends no events: it is polled.
    let wait = |seconds| std::thread::sleep(Duration::from_secs(seconds).min(search.deadline.left()));
    for _ in 0..ATTEMPTS {
        match call(ENABLE_NICS).filter(|answer| !answer.is_empty()).as_deref() {
            Some("queryNicsSupported") => {}
            // A hypervisor that cannot be asked, not one that is busy.
            Some(_) => return,
            None => {
                wait(ATTEMPTS);
                continue;
            }
        }
        for _ in 0..QUERIES {
            if call(QUERY_NICS).as_deref() == Some("connected") {
                return;
            }
            wait(1);
        }
    }
    search.problem("VMware: the NICs that the customization has connected are not connected in time".into());
}

/// The call that sets the customization's own name for its state, if it has one.
fn status(name: &str) -> String {
    format!("info-set guestinfo.gc.status {name}")
}

/// Reports to the hypervisor that the customization failed.
fn failed(search: &Search, settings: &ImcSettings, event: u32) {
    let name =
        status(if event == SCRIPT_DISABLED { "Custom script is disabled by VM Administrator" } else { "Failed" });
    let name = settings.is("MISC", "POST-GC-STATUS", &["yes"]).then_some(name);
    if let Some(tool) = installed::which(search.root, "vmware-rpctool") {
        for call in [state(RUNNING, event, "")].into_iter().chain(name) {
            search.tools.ask(&[&tool, &call], CALL);
        }
    }
}

/// The calls at the end of a customization.
pub fn ended(instance: &Instance) -> Vec<String> {
    let calls = [status("Started"), state(DONE, 0, ""), status("Successful")];
    let all = instance.metadata.get("post-gc-status").is_some();
    calls.into_iter().filter(|call| all || call.starts_with("deployPkg")).collect()
}

/// The marker file of this customization, if it asks for one.
pub fn marker(instance: &Instance) -> Option<String> {
    let id = instance.metadata.get("marker-id")?.text()?;
    (!id.contains('/')).then(|| format!("{MARKER}{id}.txt"))
}

/// Removes the marker files of earlier customizations: the same one may be asked for again after another.
///
/// # Errors
/// A file cannot be removed.
pub fn forget_markers(root: &mut Root) -> Result<()> {
    let (folder, prefix) = MARKER.rsplit_once('/').unwrap_or_default();
    let names = root.list(folder);
    names.iter().filter(|name| name.starts_with(prefix)).try_for_each(|name| root.remove(&format!("{folder}/{name}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::document::yaml;
    use crate::machine::tools::ToolAnswer;
    use crate::machine::{Cmdline, Machine, Tools};
    use crate::root::{Attr, Use};
    use std::sync::{Arc, Mutex};

    #[test]
    fn asks_busy_hypervisor_again_to_connect_nics() {
        let dir = TempDir::new("imc-nics");
        let mut root = dir.root(Use::Tree);
        root.write("/usr/bin/vmware-rpctool", "", Attr::root(0o755)).unwrap();
        root.write(&format!("{FOLDER}/nics.txt"), "4000\n", Attr::root(0o644)).unwrap();
        let (machine, config) = (dir.machine(), Value::Null);
        // The hypervisor's answers to successive calls, their number, and whether the NICs are connected.
        const YES: &str = "queryNicsSupported";
        for (answers, calls, connected) in [
            (&["", "", YES, "", "connected"][..], 5, true),
            (&[YES, "connected"], 2, true),
            (&["no"], 1, true),
            (&[YES, "", "", "", "", "", YES, "connected"], 8, true),
            (&[], 5, false),
        ] {
            let asked = Arc::new(Mutex::new(0));
            let mut search = Search::new(&machine, &root, &config, Deadline::after(Duration::ZERO));
            let count = Arc::clone(&asked);
            search.tools = Tools::new(move |words, _| {
                assert_eq!(words.last().unwrap().split(' ').next(), Some("deployPkg.update.state"));
                let mut count = count.lock().unwrap();
                *count += 1;
                let answer = answers.get(*count - 1).copied().unwrap_or_default();
                Some(ToolAnswer { success: true, stdout: answer.as_bytes().to_vec() })
            });
            connect_nics(&mut search);
            assert_eq!((*asked.lock().unwrap(), search.problems().is_empty()), (calls, connected), "{answers:?}");
        }
    }

    #[test]
    fn expires_root_passwords_even_without_new_one() {
        let dir = TempDir::new("imc-reset");
        dir.write("etc/passwd", "root:x:0:0::/:/bin/sh\ntoor:x:0:0::/:/bin/sh\nada:x:1000:0::/:/bin/sh\n");
        dir.write("etc/shadow", "root:$6$a$b:1::::::\ntoor:*:1::::::\nada:$6$c$d:1::::::\n");
        let root = dir.root(Use::Tree);
        for (password, expires, expected) in [
            (
                None,
                true,
                "{expire: true, users: [{name: root, password: $6$a$b, type: hash}, {name: toor, password: '*', type: hash}]}",
            ),
            (
                Some("p\n"),
                true,
                "{expire: true, users: [{name: root, password: p, type: text}, {name: toor, password: '*', type: hash}]}",
            ),
            (Some("p"), false, "{expire: false, users: [{name: root, password: p, type: text}]}"),
        ] {
            let expected = yaml::parse("t", expected).unwrap();
            assert_eq!(Value::Map(passwords(&root, password, expires)), expected);
        }
    }

    #[test]
    fn waits_for_customization_without_another_named_source() {
        let dir = TempDir::new("imc-single");
        let root = dir.root(Use::Tree);
        for (list, line, is_single) in [
            ("[VMware]", "", true),
            ("[VMware, None]", "", true),
            ("[VMware, NoCloud]", "", false),
            ("[NoCloud]", "", false),
            ("[NoCloud, None]", "ds=vmware", true),
            ("[VMware]", "ds=nocloud", false),
        ] {
            let machine = Machine { cmdline: Cmdline::new(line), ..Machine::default() };
            let config = yaml::parse("t", &format!("datasource_list: {list}")).unwrap();
            let search = Search::new(&machine, &root, &config, Deadline::after(CALL));
            assert_eq!(is_only_source(&search), is_single, "{list} {line}");
        }
    }

    #[test]
    fn forbidden_script_ends_the_customization() {
        let dir = TempDir::new("imc");
        let mut root = dir.root(Use::Tree);
        let cust = "[NETWORK]\nHOSTNAME = h\n[CUSTOM-SCRIPT]\nSCRIPT-NAME = c.sh\n[MISC]\nMARKER-ID = m\nPOST-GC-STATUS = YES\n";
        for (path, text) in [
            ("/usr/lib/open-vm-tools/plugins/vmsvc/libdeployPkgPlugin.so", ""),
            ("/usr/bin/vmware-rpctool", ""),
            (&format!("{FOLDER}/{FILE}"), cust),
            ("/etc/os-release", "ID=debian\n"),
            ("/etc/network/interfaces", "auto eth0\niface eth0 inet dhcp\n"),
        ] {
            root.write(path, text, Attr::root(0o755)).unwrap();
        }
        let machine = dir.machine();
        let config = yaml::parse("t", "disable_vmware_customization: false").unwrap();
        let read = |answer: &'static str| {
            let asked = Arc::new(Mutex::new(Vec::new()));
            let mut search = Search::new(&machine, &root, &config, Deadline::after(CALL));
            let log = Arc::clone(&asked);
            search.tools = Tools::new(move |words, _| {
                log.lock().unwrap().push(words.last().unwrap().to_string());
                Some(ToolAnswer { success: true, stdout: answer.as_bytes().to_vec() })
            });
            let values = read(&mut search);
            (values, asked.lock().unwrap().clone())
        };
        for answer in ["", "[deployPkg] enable-custom-scripts = false\n"] {
            let (values, asked) = read(answer);
            assert!(values.unwrap_err().to_string().contains("enable-custom-scripts"));
            let calls = [
                "enable-custom-scripts",
                "deployPkg.update.state 4 6 /var/log/cloud-init.log",
                "info-set guestinfo.gc.status Custom script is disabled by VM Administrator",
            ];
            assert_eq!(asked, calls);
        }
        let values = read("[deployPkg] enable-custom-scripts = True\n").0.unwrap().unwrap();
        assert!(values.problems.entries()[0].to_string().contains("the script is not run"));
        let files: Vec<_> = values.files.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(files, ["/etc/network/interfaces", "/etc/network/interfaces.before_vmware_customization"]);
        let instance = Instance { metadata: values.metadata.unwrap(), ..Instance::default() };
        let calls = ended(&instance);
        assert_eq!(calls[0], "info-set guestinfo.gc.status Started");
        assert_eq!(
            calls[1..],
            ["deployPkg.update.state 5 0 /var/log/cloud-init.log", "info-set guestinfo.gc.status Successful"]
        );
        let marker = marker(&instance).unwrap();
        assert_eq!(marker, "/var/lib/cloud/data/.markerfile-m.txt");
        for path in [marker.as_str(), "/var/lib/cloud/data/.markerfile-older.txt", "/var/lib/cloud/data/instance-id"] {
            root.write(path, "", Attr::root(0o644)).unwrap();
        }
        forget_markers(&mut root).unwrap();
        assert_eq!(root.list("/var/lib/cloud/data"), ["instance-id"]);
    }
}
