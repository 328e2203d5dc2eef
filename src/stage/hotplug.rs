//! `devel hotplug-hook`: configures a network device that was added to the running system. The datasource is
//! asked until it knows the device; then the network files are rewritten, and the network's own program
//! reloads them.

use super::boot::Boot;
use super::modules::Run;
use super::outside::ThisMachine;
use super::{Options, append_log, commit, real_root, recover, refresh};
use crate::base::error::{Context, Error, Result};
use crate::base::logging;
use crate::document::json;
use crate::instance::{Frequency, Instance, NetworkData, state};
use crate::machine::Machine;
use crate::module::{self, Role};
use crate::root::{Attr, Command, Root, Use};
use crate::source;
use crate::system::{Outside, hotplug};
use std::path::Path;
use std::time::Duration;

/// Seconds to wait before each further try: a service learns of a device later than the machine.
const WAITS: [u64; 5] = [1, 3, 5, 10, 30];
/// How often a service with [`source::Hotplug::learns_addresses_singly`] is asked again once it knows the device, and the seconds
/// in between (cloud-init 26.2, `HotplugRetrySettings`).
const LATE_ADDRESSES: (usize, u64) = (5, 5);

/// Whether added devices are configured. None if there is no instance.
pub fn is_on(root: &Root, machine: &Machine) -> Option<bool> {
    let options = Options::default();
    let instance = options.instance(root)?;
    let outside = ThisMachine::new();
    let mut boot = Boot::new(root, machine, &options, &outside);
    real_root::configure(root, &mut boot, &instance);
    let (config, report) = boot.config_and_report();
    Some(hotplug::source(root, config, &instance, report).is_some())
}

/// Adds to the log what `call` logs.
///
/// # Errors
/// The log cannot be written.
pub fn log_query(call: impl FnOnce()) -> Result<()> {
    let mut root = Root::open(Path::new("/"), Use::Tree)?;
    drop(logging::take());
    call();
    append_log(&mut root, &logging::take())?;
    root.commit().into_iter().next().map_or(Ok(()), Err)
}

/// Configures the device at this path below /sys, if hotplug is on. Returns the errors.
pub fn added(root: &mut Root, machine: &Machine, path: &str) -> Vec<String> {
    run(root, machine, &ThisMachine::new(), |root, boot, instance| {
        let (config, report) = boot.config_and_report();
        if hotplug::source(root, config, instance, report).is_none() {
            log::info!("hotplug is off: {path} is not configured");
            return Ok(());
        }
        let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        let address = boot.machine.fact(&format!("sys/class/net/{name}/address"));
        let device = Device { name, address: address.unwrap_or_default().trim().to_ascii_lowercase() };
        let found = device.known(root, boot, instance)?;
        let (mut stored, renderer) = refresh::store(root, boot, found)?;
        if renderer.is_some_and(|renderer| renderer.reload.is_empty()) {
            // ifupdown has no program that reloads its files: devices are brought up one by one.
            root.run(Command::new(["ifup", name]))?;
        }
        let (times, wait) = LATE_ADDRESSES;
        let late = root.is_live()
            && source::named(&stored.source).is_some_and(|source| source.hotplug.learns_addresses_singly);
        for _ in 0..if late { times } else { 0 } {
            commit(root, &boot.report);
            std::thread::sleep(Duration::from_secs(wait));
            match refresh::again(root, boot, &stored, refresh::BUDGET) {
                Some(Ok(found)) if found.network != stored.network && device.is_in(&found) => {
                    stored = refresh::store(root, boot, found)?.0;
                }
                _ => {}
            }
        }
        Ok(())
    })
}

/// Switches hotplug on, and installs the udev rule that reports devices. Returns the errors.
pub fn enable(root: &mut Root, machine: &Machine) -> Vec<String> {
    run(root, machine, &ThisMachine::new(), |root, boot, instance| {
        if !hotplug::enable(root)? {
            log::info!("hotplug is on already");
            return Ok(());
        }
        if let Some(module) = module::with_role(Role::Hotplug) {
            Run::new(root, boot, instance).single(module, Some(Frequency::Always), &[]);
        }
        Ok(())
    })
}

/// Loads this system's instance and configuration, calls `work`, and writes the changes.
fn run(
    root: &mut Root,
    machine: &Machine,
    outside: &dyn Outside,
    work: impl FnOnce(&mut Root, &mut Boot, &Instance) -> Result<()>,
) -> Vec<String> {
    let recovered = recover(root);
    let options = Options::default();
    let Some(instance) = options.instance(root) else {
        return vec!["there is no datasource: nothing was provisioned yet".to_owned()];
    };
    let mut boot = Boot::new(root, machine, &options, outside);
    boot.report.absorb(recovered);
    real_root::configure(root, &mut boot, &instance);
    let done = work(root, &mut boot, &instance);
    boot.report.keep(done);
    commit(root, &boot.report);
    boot.log();
    boot.report.keep(append_log(root, &logging::take()));
    commit(root, &boot.report);
    boot.errors()
}

/// A network device.
struct Device<'a> {
    name: &'a str,
    /// Its MAC address in lower case; empty if unknown.
    address: String,
}

impl Device<'_> {
    /// Asks the datasource until it knows the device. Returns the instance as the datasource then describes
    /// it.
    fn known(&self, root: &mut Root, boot: &mut Boot, instance: &Instance) -> Result<Instance> {
        let mut last = Error::new("the datasource cannot be asked again");
        for wait in [0].into_iter().chain(WAITS) {
            if wait > 0 && root.is_live() {
                std::thread::sleep(Duration::from_secs(wait));
            }
            match refresh::again(root, boot, instance, refresh::BUDGET) {
                Some(Ok(found)) if found.instance_id != instance.instance_id => {
                    boot.report.keep(root.write(state::ANOTHER, "", Attr::root(0o644)));
                    last = Error::new(format!(
                        "the datasource knows this machine as {} now, which the next boot provisions",
                        found.instance_id
                    ));
                    break;
                }
                Some(Ok(found)) if self.is_in(&found) => return Ok(found),
                Some(Ok(_)) => last = Error::new("the datasource does not know it"),
                Some(Err(e)) => last = e,
                None => break,
            }
        }
        Err(last).context(|| format!("the network device {} is not configured", self.name))
    }

    /// Whether the instance's network configuration has the device, by address or name. One that does not list devices
    /// ([`source::Hotplug::omits_devices`]) is accepted.
    fn is_in(&self, instance: &Instance) -> bool {
        if source::named(&instance.source).is_some_and(|source| source.hotplug.omits_devices) {
            return true;
        }
        let text = match &instance.network {
            Some(NetworkData::Openstack(value) | NetworkData::Cloud(value)) => json::to_string(value),
            Some(NetworkData::Eni(text)) => text.replace(char::is_whitespace, "\""),
            None => return false,
        };
        let text = text.to_ascii_lowercase();
        (!self.address.is_empty() && text.contains(&self.address))
            || text.contains(&format!("\"{}\"", self.name.to_ascii_lowercase()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::document::yaml;

    fn instance(network: &str) -> Instance {
        let network = Some(NetworkData::Cloud(yaml::parse("t", network).unwrap()));
        Instance { source: "NoCloud".into(), instance_id: "i-1".into(), network, ..Instance::default() }
    }

    #[test]
    fn identifies_device_by_address_or_name() {
        let device = Device { name: "eth1", address: "fa:16:3e:00:00:02".into() };
        for (network, expected) in [
            ("{version: 2, ethernets: {x: {match: {macaddress: 'FA:16:3E:00:00:02'}}}}", true),
            ("{version: 2, ethernets: {eth1: {dhcp4: true}}}", true),
            ("{version: 1, config: [{type: physical, name: eth1}]}", true),
            ("{version: 2, ethernets: {eth10: {dhcp4: true}}}", false),
        ] {
            assert_eq!(device.is_in(&instance(network)), expected, "{network}");
        }
        let eni = Instance { network: Some(NetworkData::Eni("auto eth1\n".into())), ..Instance::default() };
        assert!(device.is_in(&eni) && !device.is_in(&Instance::default()));
        let lxd = Instance { source: "LXD".into(), ..instance("{version: 2, ethernets: {eth0: {dhcp4: true}}}") };
        assert!(device.is_in(&lxd));
    }

    /// A tree whose instance came from a seed in it, with hotplug as `config` says.
    fn tree(config: &str, seed: &str) -> (TempDir, Root, Machine) {
        let dir = TempDir::new("hotplug");
        let mut root = dir.root(Use::Tree);
        let write = |root: &mut Root, path: &str, text: &str| root.write(path, text, Attr::root(0o755)).unwrap();
        write(&mut root, "/usr/lib/os-release", "ID=debian\n");
        for program in ["/usr/lib/systemd/systemd-networkd", "/usr/bin/ip", "/usr/bin/systemctl"] {
            write(&mut root, program, "");
        }
        write(&mut root, "/sys/class/net/eth1/address", "fa:16:3e:00:00:02\n");
        write(&mut root, "/etc/cloud/cloud.cfg", config);
        for (name, text) in
            [("meta-data", "instance-id: i-1\n"), ("user-data", "#cloud-config\n{}\n"), ("network-config", seed)]
        {
            write(&mut root, &format!("/var/lib/cloud/seed/nocloud/{name}"), text);
        }
        state::store(&mut root, &instance("{version: 2, ethernets: {eth0: {dhcp4: true}}}")).unwrap();
        assert_eq!(root.commit(), []);
        let machine = dir.machine();
        (dir, root, machine)
    }

    const SEED: &str =
        "version: 2\nethernets: {n: {match: {macaddress: 'fa:16:3e:00:00:02'}, addresses: [10.0.0.2/24]}}\n";
    const PATH: &str = "/devices/virtual/net/eth1";

    #[test]
    fn configures_an_added_device_if_hotplug_is_on() {
        let (dir, mut root, machine) = tree("updates: {network: {when: [hotplug]}}\n", SEED);
        assert_eq!(is_on(&root, &machine), Some(true));
        assert_eq!(added(&mut root, &machine, PATH), [""; 0]);
        let folder = dir.0.join("etc/systemd/network");
        let names = std::fs::read_dir(&folder).unwrap().map(|e| std::fs::read_to_string(e.unwrap().path()).unwrap());
        assert!(names.into_iter().any(|text| text.contains("Address=10.0.0.2/24")));
        assert!(root.commands().iter().any(|c| c.argv == ["networkctl", "reload"]), "{:?}", root.commands());
    }

    #[test]
    fn asks_nothing_until_a_command_enables_it() {
        let (dir, mut root, machine) = tree("{}\n", SEED);
        assert_eq!((is_on(&root, &machine), added(&mut root, &machine, PATH)), (Some(false), vec![]));
        assert!(!dir.0.join("etc/systemd/network").exists());
        assert_eq!(enable(&mut root, &machine), [""; 0]);
        assert_eq!(is_on(&root, &machine), Some(true));
        assert_eq!(root.text("/var/lib/cloud/hotplug.enabled"), r#"{"scopes":["network"]}"#);
    }

    /// Two devices are added before one is configured: the service is started for each, with what `handle` takes.
    #[test]
    fn the_rule_hands_each_device_to_the_service() {
        let (dir, mut root, machine) = tree("{}\n", SEED);
        root.write("/usr/bin/udevadm", "", Attr::root(0o755)).unwrap();
        assert_eq!(enable(&mut root, &machine), [""; 0]);
        let rule = root.text(hotplug::RULE);
        let line = rule.lines().find(|line| line.starts_with("SUBSYSTEM==\"net\", ")).unwrap();
        let fifo = "/run/cloud-init/share/hook-hotplug-cmd";
        assert!(line.contains(&format!(", TEST==\"{fifo}\", RUN+=\"/bin/sh -c '")), "{line}");
        assert!(include_str!("../../initramfs/units/cloud-init-hotplugd.socket").contains(&format!("={fifo}\n")));
        // As udev and systemd read it.
        let hook = line.rsplit('\'').nth(1).unwrap().replace("$$", "$");
        let unit = include_str!("../../initramfs/units/cloud-init-hotplugd.service");
        let service = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap().replace("$$", "$");
        let script = format!(
            "mkfifo {fifo}\nexec 3<>{fifo}\nDEVPATH=/devices/a/net/eth1; {hook}\nDEVPATH='/devices/b/net/e*'; {hook}\n\
             {service}\n{service}\n"
        );
        let script = script.replace(fifo, &dir.0.join("fifo").display().to_string());
        let script = script.replace("/usr/bin/prepivot", "echo");
        let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        let words =
            |path: &str| format!("devel hotplug-hook --subsystem=net handle --devpath={path} --udevaction=add\n");
        let expected = words("/devices/a/net/eth1") + &words("/devices/b/net/e*");
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{output:?}");
    }

    #[test]
    fn device_unknown_to_the_source_is_an_error() {
        let config = "updates: {network: {when: [hotplug]}}\n";
        let (_dir, mut root, machine) = tree(config, "version: 2\nethernets: {eth0: {dhcp4: true}}\n");
        let errors = added(&mut root, &machine, PATH);
        assert_eq!(errors, ["the network device eth1 is not configured: the datasource does not know it"]);
        assert!(!root.exists(state::ANOTHER));
    }

    #[test]
    fn another_instance_is_left_to_the_next_boot() {
        let (dir, mut root, machine) = tree("updates: {network: {when: [hotplug]}}\n", SEED);
        dir.write("var/lib/cloud/seed/nocloud/meta-data", "instance-id: i-2\n");
        let errors = added(&mut root, &machine, PATH);
        let problem = "the datasource knows this machine as i-2 now, which the next boot provisions";
        assert_eq!(errors, [format!("the network device eth1 is not configured: {problem}")]);
        assert!(root.exists(state::ANOTHER));
    }
}
