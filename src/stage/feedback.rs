//! Reports of the running system to the instance's datasource, once the instance's data is on the disk.

use super::boot::Boot;
use super::modules::Run;
use crate::base::deadline::Deadline;
use crate::base::error::Result;
use crate::document::Value;
use crate::instance::status::Status;
use crate::instance::{Frequency, Instance, state};
use crate::link::http::{Client, Redirects, Settings};
use crate::module::{self, Role};
use crate::root::{Attr, Root};
use crate::source::{self, Live, Source};
use crate::system::host_keys;
use std::time::Duration;

/// How long one report may take, including the wait for a route to the service. Logins wait for the network
/// stage.
const LIMIT: Duration = Duration::from_secs(60);

/// Calls [`source::Source::provisioned`] if the instance's source has it. Called at the end of the network
/// stage of every boot, when its changes are on the disk; `status` has the errors of the earlier stages. A
/// failure is a warning.
pub fn provisioned(
    root: &mut Root,
    boot: &mut Boot,
    instance: &Instance,
    status: &Status,
    passwords: Vec<(String, String)>,
) {
    let source = source::named(&instance.source);
    let Some((source, act)) = source.and_then(|s| Some((s, s.provisioned?))) else { return };
    if !root.is_live() {
        return;
    }
    await_network(root, boot, instance, source);
    let earlier = status.errors().first().and_then(Value::text);
    let failed = boot.errors().into_iter().next().or(earlier);
    let mut keys = Vec::new();
    let done = with_live(root, boot, instance, failed, |live| {
        live.passwords = passwords;
        let done = act(live);
        keys = std::mem::take(&mut live.public_keys);
        done
    });
    if let Err(e) = done {
        boot.report.warn(format_args!("{}: the machine's state was not reported: {e}", instance.source));
    }
    boot.log();
    if !keys.is_empty() {
        let_in(root, boot, instance, keys);
    }
}

/// Waits for the network if the source needs it now.
fn await_network(root: &mut Root, boot: &mut Boot, instance: &Instance, source: &Source) {
    if source.needs_network.is_some_and(|needs| needs(root, instance)) {
        Run::new(root, boot, instance).await_network();
    }
}

/// Authorizes the keys that the source provides only in the running system: adds them to the instance, and
/// runs the module ssh.
fn let_in(root: &mut Root, boot: &mut Boot, instance: &Instance, keys: Vec<String>) {
    let mut instance = instance.clone();
    for key in keys {
        if !instance.public_keys.contains(&key) {
            instance.public_keys.push(key);
        }
    }
    boot.report.keep(state::store(root, &instance));
    boot.report.keep(root.write(&state::waiting_logins(&instance), "", Attr::root(0o600)));
    Run::new(root, boot, &instance).logins();
}

/// Publishes the public SSH host keys by [`source::Source::publish_host_keys`], each once for an instance and
/// subject to `ssh_publish_hostkeys`, as cloud-init's module ssh does. Called at the end of the network and of
/// the final stage, and of the background work: the RSA key is made last. A failure is a warning.
pub fn host_keys(root: &mut Root, boot: &mut Boot, instance: &Instance) {
    let Some(publish) = source::named(&instance.source).and_then(|s| s.publish_host_keys) else { return };
    let listed = module::with_role(Role::Ssh).is_some_and(|ssh| Run::new(root, boot, instance).is_listed(ssh));
    if !listed || !root.is_live() {
        return;
    }
    let keys = unpublished(root, boot.config(), instance);
    if keys.is_empty() {
        return;
    }
    // Marked before they are sent: as in cloud-init, a service that refuses them is not asked again.
    for (file, _) in &keys {
        boot.report.keep(state::mark_done(root, instance, &mark(file), Frequency::Instance));
    }
    let lines: Vec<String> = keys.into_iter().map(|(_, line)| line).collect();
    let published = with_live(root, boot, instance, None, |live| publish(live, &lines));
    if let Err(e) = published {
        boot.report.warn(format_args!("{}: the SSH host keys were not published: {e}", instance.source));
    }
    boot.log();
}

fn mark(file: &str) -> String {
    format!("prepivot_published.{file}")
}

/// File names and contents of the host keys that may be published and have not been.
fn unpublished(root: &Root, config: &Value, instance: &Instance) -> Vec<(String, String)> {
    let section = config.get("ssh_publish_hostkeys");
    if section.and_then(|s| s.get("enabled")).is_some_and(Value::is_false) {
        return Vec::new();
    }
    let excluded = section.and_then(|s| s.get("blacklist")).map(Value::texts).unwrap_or_default();
    let is_excluded = |file: &str| excluded.iter().any(|kind| file == format!("ssh_host_{kind}_key.pub"));
    let is_new = |file: &str| !state::is_done(root, instance, &mark(file), Frequency::Instance);
    let keys = host_keys::public_keys(root).into_iter();
    keys.filter(|(file, line)| line.contains(' ') && !is_excluded(file) && is_new(file)).collect()
}

/// Calls `act` with a client that uses the running system's network.
fn with_live(
    root: &mut Root,
    boot: &mut Boot,
    instance: &Instance,
    failed: Option<String>,
    act: impl FnOnce(&mut Live) -> Result<()>,
) -> Result<()> {
    let settings = Settings { redirects: Redirects::SameOrigin, image: Some(root.path().to_owned()) };
    let client = Client::system(&settings, Deadline::after(LIMIT))?;
    let machine = boot.machine;
    let (config, report) = boot.config_and_report();
    let mut live = Live {
        root,
        machine,
        instance,
        config,
        client: &client,
        failed,
        public_keys: Vec::new(),
        passwords: Vec::new(),
        report,
    };
    let done = act(&mut live);
    boot.absorb(client.findings().take());
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::document::yaml;
    use crate::instance::NetworkData;
    use crate::machine::Machine;
    use crate::root::{Output, Use};
    use crate::stage::testing;

    #[test]
    fn publishes_host_keys_once_unless_excluded() {
        let dir = TempDir::new("feedback");
        let mut root = dir.root(Use::Tree);
        for kind in ["rsa", "ed25519"] {
            root.write(
                &format!("/etc/ssh/ssh_host_{kind}_key.pub"),
                format!("ssh-{kind} AAAA root@h\n"),
                Attr::root(0o644),
            )
            .unwrap();
        }
        let instance = Instance { instance_id: "i".into(), ..Instance::default() };
        let of = |root: &Root, config: &str| {
            let keys = unpublished(root, &yaml::parse("t", config).unwrap(), &instance);
            keys.into_iter().map(|(_, line)| line).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(of(&root, "{}"), "ssh-ed25519 AAAA root@h, ssh-rsa AAAA root@h");
        assert_eq!(of(&root, "ssh_publish_hostkeys: {enabled: false}"), "");
        assert_eq!(of(&root, "ssh_publish_hostkeys: {enabled: true, blacklist: [rsa]}"), "ssh-ed25519 AAAA root@h");
        assert_eq!(of(&root, "ssh_publish_hostkeys: {blacklist: [rsa, ed25519]}"), "");
        state::mark_done(&mut root, &instance, &mark("ssh_host_ed25519_key.pub"), Frequency::Instance).unwrap();
        assert_eq!(of(&root, "{}"), "ssh-rsa AAAA root@h");
    }

    #[test]
    fn addresses_are_announced_when_the_network_is_up() {
        let subnet = "{type: static, address: 10.0.0.9, netmask: 255.255.255.0, gateway: 10.0.0.1}";
        let network = format!("{{version: 1, config: [{{type: physical, name: eth0, subnets: [{subnet}]}}]}}");
        let waits = |source: &str, programs: &[&str]| {
            let dir = TempDir::new("feedback-network");
            dir.write("usr/lib/systemd/systemd", "");
            std::fs::create_dir_all(dir.0.join("run/systemd/system")).unwrap();
            let mut root = dir.root(Use::Tree);
            for program in programs {
                root.write(&format!("/usr/sbin/{program}"), "", Attr::root(0o755)).unwrap();
            }
            let waited = std::rc::Rc::new(std::cell::Cell::new(false));
            let seen = waited.clone();
            root.play(Box::new(move |_, command| {
                seen.set(seen.get() || command.argv.iter().any(|word| word == "systemd-networkd-wait-online.service"));
                Ok(Output { status: 0, stdout: Vec::new(), stderr: Vec::new() })
            }));
            let machine = Machine::default();
            let mut boot = testing::boot(&root, &machine);
            let network = Some(NetworkData::Cloud(yaml::parse("t", &network).unwrap()));
            let instance = Instance { source: source.into(), network, ..Instance::default() };
            await_network(&mut root, &mut boot, &instance, source::named(source).unwrap());
            waited.get()
        };
        assert!(waits("RbxCloud", &["arping"]));
        // The boot does not wait without a use for the network.
        assert!(!waits("RbxCloud", &[]) && !waits("Exoscale", &["arping"]));
    }

    #[test]
    fn key_of_the_running_system_may_log_in() {
        let dir = TempDir::new("feedback-keys");
        let mut root = dir.root(Use::Tree);
        root.write("/etc/passwd", "root:x:0:0::/root:/bin/sh\na:x:1000:1000::/home/a:/bin/sh\n", Attr::root(0o644))
            .unwrap();
        root.write("/etc/group", "a:x:1000:\n", Attr::root(0o644)).unwrap();
        let machine = Machine::default();
        let mut boot = testing::boot(&root, &machine);
        let config = "{users: [default], system_info: {default_user: {name: a}}, cloud_init_modules: [ssh]}";
        boot.config = Some(yaml::parse("t", config).unwrap().into());
        let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti";
        let instance =
            Instance { instance_id: "i".into(), public_keys: vec!["ssh-rsa AAAA".into()], ..Instance::default() };
        let_in(&mut root, &mut boot, &instance, vec![key.into(), key.into()]);
        assert!(root.text("/home/a/.ssh/authorized_keys").contains(key));
        assert_eq!(state::cached(&root).unwrap().public_keys.len(), 2);
        assert!(!root.exists(&state::waiting_logins(&instance)));
    }
}
