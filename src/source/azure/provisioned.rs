//! The running system's report to Azure, once for each instance: the machine has been provisioned, or why that failed.
//!
//! As in cloud-init, and unlike azure-init, a machine on which modules fail is still ready: the deployment
//! only fails if the metadata or the media cannot be used.

use super::failure::{self, Failure};
use super::identity::Identity;
use super::instance::FAILURE;
use super::wire_server::{self, Health, WireServer};
use super::{SOURCE, certificates, instance};
use crate::base::deadline::Deadline;
use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::base::text;
use crate::base::text::start;
use crate::document::Value;
use crate::instance::{Frequency, state};
use crate::link::http::{Client, Redirects, Settings};
use crate::link::leases;
use crate::root::{Attr, Command, installed};
use crate::source::table::Live;
use std::time::Duration;

/// The mark of an instance that has been reported.
const DONE: &str = "prepivot_azure_reported";
/// The folder of the transport key, which is removed afterwards.
const TRANSPORT: &str = "/run/prepivot/azure-transport";
/// The guest's pool of Hyper-V key-value pairs, which the host reads (hv_kvp_daemon), and the sizes of a
/// record's two fields.
const KVP: &str = "/var/lib/hyperv/.kvp_pool_1";
const KEY_SIZE: usize = 512;
const VALUE_SIZE: usize = 2048;
/// The longest value that Azure shows, in bytes.
const MAX_VALUE: usize = 1023;
/// The proxy between the guest and Azure's services, and how long it may take to start, in seconds.
const PROXY: &str = "azure-proxy-agent";
const PROXY_WAIT: &str = "120";
/// The most bytes of what it says that are reported, of each stream.
const MAX_OUTPUT: usize = 256;
/// How long a drive may take to eject its medium.
const EJECT: Duration = Duration::from_secs(10);
/// How long a report may take after waiting for the proxy.
const AFTER_PROXY: Duration = Duration::from_secs(30);

/// Reports this instance, unless an earlier boot did, or the image disables it
/// (`experimental_skip_ready_report`).
///
/// # Errors
/// The report was not accepted, or the mark cannot be written.
pub fn provisioned(live: &mut Live) -> Result<()> {
    if state::is_done(live.root, live.instance, DONE, Frequency::Instance) {
        return Ok(());
    }
    let vm_id = Identity::of(live.machine, live.root)?.vm_id;
    let now = live.client.now();
    let (mut failed, waited) = proxy(live);
    let failed = failed
        .take()
        .map(|failure| failure.report(&vm_id, now))
        .or_else(|| live.instance.metadata.get(FAILURE).and_then(Value::text));
    let skip =
        live.config.at(&["datasource", SOURCE.name, "experimental_skip_ready_report"]).is_some_and(Value::is_true);
    if skip && failed.is_none() {
        log::info!("Azure: nothing is reported (experimental_skip_ready_report)");
        return state::mark_done(live.root, live.instance, DONE, Frequency::Instance);
    }
    key_value(live, failed.as_deref().unwrap_or(&failure::success(&vm_id, now)));
    let renewed;
    let client = if waited && live.root.is_live() {
        let settings = Settings { redirects: Redirects::SameOrigin, image: None };
        renewed = Client::system(&settings, Deadline::after(AFTER_PROXY))?;
        &renewed
    } else {
        live.client
    };
    let address = wire_server::address(client.uplink(), &leases::below(&live.machine.base));
    let server = WireServer { client, address, tries: u32::MAX };
    let goal = server.goal_state()?;
    let fingerprints = fingerprints(live);
    if !fingerprints.is_empty() {
        live.root.mkdir(TRANSPORT, Attr::root(0o700))?;
        let root = &mut *live.root;
        let mut run = |command: Command| {
            let name = command.argv.iter().take(2).cloned().collect::<Vec<_>>().join(" ");
            let output = root.output(command)?;
            match output.status {
                0 => Ok(output.stdout),
                status => Err(Error::new(format!("{name} ended with exit status {status}"))),
            }
        };
        let warnings = Problems::new();
        let keys = certificates::keys(&server, &goal, &fingerprints, TRANSPORT, &mut run, &warnings);
        live.report.absorb(warnings);
        match keys {
            Ok(keys) => live.public_keys.extend(keys),
            Err(e) => live.report.warn(format_args!("SSH keys of ovf-env.xml are missing: {e}")),
        }
        live.root.remove(TRANSPORT)?;
    }
    eject(live);
    server.report(&goal, failed.as_deref().map_or(Health::Ready, Health::Failed))?;
    log::info!("Azure: reported {}", if failed.is_some() { "that provisioning failed" } else { "ready" });
    state::mark_done(live.root, live.instance, DONE, Frequency::Instance)
}

/// Waits for the proxy if the media requires it. Returns why it is not there, and whether it was waited for.
fn proxy(live: &mut Live) -> (Option<Failure>, bool) {
    if !live.instance.config.get("ProvisionGuestProxyAgent").is_some_and(Value::is_true) {
        return (None, false);
    }
    if installed::which(live.root, PROXY).is_none() {
        return (Some(Failure::new("azure-proxy-agent not found")), false);
    }
    let fail = |status: i32, stdout: &str, stderr: &str| {
        let failure = Failure::new("azure-proxy-agent status failure").with("exit_code", status);
        Some(failure.with("stdout", start(stdout, MAX_OUTPUT)).with("stderr", start(stderr, MAX_OUTPUT)))
    };
    let command = Command::new([PROXY, "--status", "--wait", PROXY_WAIT]).with_errors();
    let failure = match live.root.output(command) {
        Ok(output) if output.status == 0 => None,
        Ok(output) => {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
            fail(output.status, &text(&output.stdout), &text(&output.stderr))
        }
        Err(e) => fail(-1, "", &e.to_string()),
    };
    (failure, true)
}

/// The fingerprints of those keys of the media that have nothing else, if the metadata has no keys.
fn fingerprints(live: &Live) -> Vec<String> {
    let by_metadata = live.instance.metadata.get("imds").and_then(instance::openssh_keys);
    let keys = live.instance.config.get("_pubkeys").and_then(Value::as_list).unwrap_or_default();
    let text = |key: &Value, name: &str| key.get(name).and_then(Value::text).filter(|t| !t.is_empty());
    let alone = keys.iter().filter(|key| by_metadata.is_none() && text(key, "value").is_none());
    alone.filter_map(|key| text(key, "fingerprint")).collect()
}

/// Passes the report to the host, if its daemon runs.
fn key_value(live: &mut Live, report: &str) {
    if !live.root.is_file(KVP) {
        return;
    }
    let record = record("PROVISIONING_REPORT", report);
    let size = KEY_SIZE + VALUE_SIZE;
    let written = live.root.edit(KVP, Attr::root(0o644), |old| {
        // A truncated record would shift those after it.
        let whole = old.get(..old.len() - old.len() % size).unwrap_or_default();
        Ok(Some([whole, &record].concat()))
    });
    if let Err(e) = written {
        live.report.warn(format_args!("the report for the host is not written: {e}"));
    }
}

/// A record of the pool: key and value, each padded with NUL.
fn record(key: &str, value: &str) -> Vec<u8> {
    let mut record = key.as_bytes().to_vec();
    record.resize(KEY_SIZE, 0);
    record.extend_from_slice(text::start(value, MAX_VALUE).as_bytes());
    record.resize(KEY_SIZE + VALUE_SIZE, 0);
    record
}

/// Ejects the media, which contains the password and is not needed again.
fn eject(live: &mut Live) {
    let place = live.instance.subplatform.strip_prefix("config-disk (").and_then(|p| p.strip_suffix(')'));
    let Some(device) = place.map(str::to_owned) else { return };
    if installed::which(live.root, "eject").is_some()
        && let Err(e) = live.root.run(Command::new(["eject", &device]).limit(EJECT))
    {
        log::info!("the provisioning media stays in its drive: {e}");
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire_server::tests::{GOAL_STATE, client};
    use super::*;
    use crate::base::problem::Severity;
    use crate::base::testing::TempDir;
    use crate::document::{json, xml, yaml};
    use crate::instance::Instance;
    use crate::link::http::script::{Answer, Script};
    use crate::root::{Output, Use};

    /// A machine with Azure's UUID and a KVP daemon, and what was posted when the instance was reported.
    struct Case {
        dir: TempDir,
        config: Value,
        instance: Instance,
        /// The exit status of azure-proxy-agent, if it runs.
        proxy: Option<i32>,
    }

    impl Case {
        fn new(instance: &str) -> Case {
            let dir = TempDir::new("azure-provisioned");
            for (path, content) in [
                ("sys/class/dmi/id/product_uuid", "12345678-1234-1234-1234-123456789abc"),
                ("var/lib/hyperv/.kvp_pool_1", "cut off"),
                ("run/systemd/netif/leases/2", "ADDRESS=10.0.0.4\nNETMASK=255.255.255.0\nOPTION_245=0a000009\n"),
            ] {
                std::fs::create_dir_all(dir.0.join(path).parent().unwrap()).unwrap();
                std::fs::write(dir.0.join(path), content).unwrap();
            }
            let value = json::parse("t", instance.as_bytes()).unwrap();
            let part = |name: &str| value.get(name).cloned().unwrap_or_default();
            let instance = Instance {
                instance_id: "i".into(),
                metadata: part("metadata"),
                config: part("config"),
                subplatform: "config-disk (/dev/sr0)".into(),
                ..Instance::default()
            };
            Case { dir, config: Value::Null, instance, proxy: None }
        }

        /// The state and description that were posted, and the warnings.
        fn run(&self, health: u16) -> (Vec<(String, String)>, Result<()>, Vec<String>) {
            let script = Script::default()
                .with("GET", "http://10.0.0.9/machine/?comp=goalstate", Answer::new(200, GOAL_STATE))
                .with("POST", "http://10.0.0.9/machine?comp=health", Answer::new(health, ""));
            let (client, script) = client(script);
            let mut root = self.dir.root(Use::Tree);
            if let Some(status) = self.proxy {
                root.play(Box::new(move |_, command| {
                    assert_eq!(command.argv, [PROXY, "--status", "--wait", PROXY_WAIT]);
                    Ok(Output { status, stdout: b"not yet\n".to_vec(), stderr: b"no service\n".to_vec() })
                }));
            }
            let machine = self.dir.machine();
            let report = Problems::new();
            let mut live = Live {
                root: &mut root,
                machine: &machine,
                instance: &self.instance,
                config: &self.config,
                client: &client,
                failed: None,
                public_keys: Vec::new(),
                passwords: Vec::new(),
                report: &report,
            };
            let done = provisioned(&mut live);
            root.commit();
            let health = |body: &[u8]| {
                let root = xml::parse("t", body).unwrap();
                let health = root.at(&["Container", "RoleInstanceList", "Role", "Health"]).unwrap();
                let text = |path: &[&str]| health.at(path).map(|e| e.text.clone()).unwrap_or_default();
                (text(&["State"]), text(&["Details", "Description"]))
            };
            let posted = script.sent().iter().filter(|s| s.method == "POST").map(|s| health(&s.body)).collect();
            let warnings = report.texts(Severity::Warning);
            (posted, done, warnings)
        }

        fn kvp(&self) -> Vec<u8> {
            std::fs::read(self.dir.0.join("var/lib/hyperv/.kvp_pool_1")).unwrap()
        }
    }

    #[test]
    fn ready_is_reported_once() {
        let case = Case::new("{}");
        let (posted, done, _) = case.run(200);
        assert_eq!((posted, done), (vec![("Ready".into(), String::new())], Ok(())));
        let record = case.kvp();
        assert_eq!(record.len(), KEY_SIZE + VALUE_SIZE);
        assert!(
            record.starts_with(b"PROVISIONING_REPORT\0")
                && record[KEY_SIZE..].starts_with(b"result=success|agent=prepivot")
        );
        let (posted, done, _) = case.run(200);
        assert_eq!((posted.len(), done, case.kvp().len()), (0, Ok(()), record.len()));
    }

    #[test]
    fn sends_a_failed_report_on_the_next_boot() {
        let case = Case::new("{}");
        assert!(case.run(501).1.unwrap_err().to_string().contains("501"));
        assert_eq!(case.run(200).0.len(), 1);
    }

    #[test]
    fn reports_a_failed_search_with_its_reason() {
        let case = Case::new(r#"{"metadata": {"provisioning_failure": "result=error|reason=x"}}"#);
        assert_eq!(case.run(200).0, [("NotReady".into(), "result=error|reason=x".into())]);
        assert!(case.kvp()[KEY_SIZE..].starts_with(b"result=error|reason=x\0"));
        let case = Case::new(r#"{"config": {"ProvisionGuestProxyAgent": true}}"#);
        let (posted, ..) = case.run(200);
        assert!(posted[0].1.contains("|reason=azure-proxy-agent not found|"), "{posted:?}");
    }

    #[test]
    fn proxy_that_fails_is_reported_with_its_words() {
        for (status, expected) in [(0, ""), (7, "|exit_code=7|stdout=not yet|stderr=no service|")] {
            let mut case = Case::new(r#"{"config": {"ProvisionGuestProxyAgent": true}}"#);
            case.dir.program("usr/bin/azure-proxy-agent");
            case.proxy = Some(status);
            let (posted, ..) = case.run(200);
            let (state, text) = &posted[0];
            assert_eq!(state == "Ready", status == 0, "{text}");
            assert!(text.contains(expected), "{text}");
            assert_eq!(text.contains("|reason=azure-proxy-agent status failure|"), status != 0, "{text}");
        }
    }

    #[test]
    fn the_image_may_say_not_to_report() {
        let mut case = Case::new("{}");
        case.config = yaml::parse("t", "datasource: {Azure: {experimental_skip_ready_report: true}}").unwrap();
        assert_eq!(case.run(200).0.len(), 0);
        case.instance.metadata = yaml::parse("t", "{provisioning_failure: why}").unwrap();
        std::fs::remove_dir_all(case.dir.0.join("var/lib/cloud")).unwrap();
        assert_eq!(case.run(200).0.len(), 1);
    }

    #[test]
    fn looks_only_for_keys_found_nowhere_else() {
        let keys = r#""config": {"_pubkeys": [{"fingerprint": "AB", "value": ""}, {"fingerprint": "CD", "value": "ssh-rsa A"}]}"#;
        let case = Case::new(&format!("{{{keys}}}"));
        let (posted, done, warnings) = case.run(200);
        assert_eq!((posted.len(), done), (1, Ok(())));
        assert!(warnings[0].starts_with("SSH keys of ovf-env.xml are missing: "), "{warnings:?}");
        let imds = r#""metadata": {"imds": {"compute": {"publicKeys": []}}}"#;
        assert!(Case::new(&format!("{{{keys}, {imds}}}")).run(200).2.is_empty());
    }

    #[test]
    fn records_are_cut_between_characters() {
        let value = "ü".repeat(600);
        let record = record("K", &value);
        assert_eq!(record.iter().skip(KEY_SIZE).take_while(|b| **b != 0).count(), MAX_VALUE - 1);
    }
}
