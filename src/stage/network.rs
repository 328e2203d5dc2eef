//! Writes the network configuration for the network stack of the new root.

use super::image::Image;
use crate::base::error::{Context, Result};
use crate::base::problem::Problems;
use crate::detect::CLOUD_CFG;
use crate::document::{Value, json};
use crate::instance::{Instance, NetworkData, state};
use crate::link::rename::{Rename, rename};
use crate::machine::{Distro, Drivers, Machine, Nic, Nics};
use crate::network::input::{self, Choice, ConfigOrigin, Input};
use crate::network::names::{self, DeviceName};
use crate::network::read::{eni, klibc, openstack};
use crate::network::render::{self, Owned, RENDERERS};
use crate::network::{File, Macs, Network, Renderer, Target, fallback};
use crate::root::{Attr, Ids, Root, installed, owner};
use crate::source::{self, Source};
use crate::system::mount_table;
use std::collections::BTreeSet;

/// cloud-init's mark of a system that was upgraded in place and keeps its network configuration.
const UPGRADED: &str = "/var/lib/cloud/data/upgraded-network";

/// A network configuration that was written.
pub struct Written {
    /// The configuration as it was given, for network-config.json.
    pub config: Value,
    pub renderer: &'static Renderer,
}

/// Writes the network configuration of the origin that takes precedence (kernel command line, initramfs,
/// image, instance), for the first stack in the image's order that the root has. Files that an earlier
/// instance left for any stack are removed, unless nothing can be written. None if the network is not to
/// be configured.
///
/// # Errors
/// The configuration cannot be read, and `unreadable` says so; the root has no stack; a file cannot be written.
pub fn apply(
    root: &mut Root,
    machine: &Machine,
    image: &Image,
    instance: &Instance,
    report: &Problems,
    unreadable: Unreadable,
) -> Result<Option<Written>> {
    let find = || nics(root, machine);
    let place = Place { root, machine, image, nics: &Nics::new(&find), report };
    let chosen = match (place.chosen(instance), unreadable) {
        (Err(e), Unreadable::Fallback) => {
            report.error(e);
            place.fallback()
        }
        (chosen, _) => chosen,
    };
    chosen?.map(|chosen| chosen.write(root, image, report)).transpose()
}

/// What a configuration that cannot be read leads to.
pub enum Unreadable {
    /// An error. The machine keeps its network.
    Error,
    /// The fallback in its place, and a report: a new instance, whose machine has no network yet.
    Fallback,
}

/// What a configuration is chosen for.
struct Place<'a> {
    root: &'a Root,
    machine: &'a Machine,
    image: &'a Image,
    nics: &'a Nics<'a>,
    report: &'a Problems,
}

/// A configuration that was chosen and read.
struct Chosen {
    origin: ConfigOrigin,
    input: Input,
    network: Network,
}

impl Place<'_> {
    /// The configuration that takes precedence. None if the network is not to be configured.
    fn chosen(&self, instance: &Instance) -> Result<Option<Chosen>> {
        if self.root.exists(UPGRADED) {
            return Ok(None);
        }
        let order = source::named(&instance.source).map_or(Source::NEW.network_order, |s| s.network_order);
        let given = |origin| given(origin, self.machine, self.image, instance, self.nics, self.report);
        match input::choose(order, given) {
            Choice::Use(origin, input) => self.read(origin, input).map(Some),
            Choice::Disabled(origin) => {
                log::info!("network config is disabled by {origin}");
                Ok(None)
            }
            Choice::Nothing => self.fallback(),
        }
    }

    fn fallback(&self) -> Result<Option<Chosen>> {
        let config = default(self.image.distro, &self.image.config, self.nics);
        config.map(|config| self.read(ConfigOrigin::Fallback, Input::config(config))).transpose()
    }

    fn read(&self, origin: ConfigOrigin, input: Input) -> Result<Chosen> {
        let (name, nics) = (format!("network configuration ({origin})"), self.nics);
        let read = input.read(&name, &Macs::of_physical(nics), self.report);
        let mut network = read.context(|| "the network is not configured")?;
        if mount_table::is_root_on_network(self.root, &self.machine.cmdline) {
            // The initramfs's other programs set these up; links that prepivot brought up are down again.
            network.keep(&|interface| nics.all().iter().any(|nic| nic.is_up() && names::is_device(interface, nic)));
        }
        if network.interfaces.iter().any(|interface| interface.rename && interface.matching.mac.is_some()) {
            // [`rename_links`] needs them.
            nics.all();
        }
        Ok(Chosen { origin, input, network })
    }
}

impl Chosen {
    fn write(self, root: &mut Root, image: &Image, report: &Problems) -> Result<Written> {
        let renderer = write(root, image, &self.network, report)?;
        log::info!("Applying network configuration from {}: Selected renderer '{}'", self.origin, renderer.name);
        Ok(Written { config: self.input.document, renderer })
    }
}

/// The machine's NICs. If the initramfs has no driver for any, the new root's drivers are loaded: the
/// configuration depends on names and addresses of NICs.
fn nics(root: &Root, machine: &Machine) -> Vec<Nic> {
    let found = machine.nics();
    if root.is_live() || !root.has_run() || fallback::nic(&found).is_some() {
        return found;
    }
    Drivers::of(machine, root.path()).for_network(&[]);
    machine.nics()
}

/// Moves the files of [`apply`] to /run if /etc is read-only and the stack also reads them there, so that
/// the machine has its network in this boot.
///
/// # Errors
/// A folder is not one.
pub fn divert(root: &mut Root) -> Result<()> {
    let owned = RENDERERS.iter().filter(|r| r.reads_run).flat_map(|r| r.owned);
    let folders: BTreeSet<&str> = owned.filter_map(|owned| Some(owned.pattern.rsplit_once('/')?.0)).collect();
    folders.into_iter().try_for_each(|folder| root.divert_to_run(folder))
}

/// Writes the chosen configuration to cloud-init's network-config.json.
///
/// # Errors
/// A path cannot be resolved.
pub fn write_json(root: &mut Root, instance: &Instance, written: Option<Written>) -> Result<()> {
    let path = format!("{}/network-config.json", state::folder(instance));
    let text = json::to_string_sorted(&written.map(|w| w.config).unwrap_or_default());
    root.write(&path, text, Attr::root(0o600))
}

/// Makes cloud-init's link in /run to the file that [`write_json`] wrote.
///
/// # Errors
/// /run cannot be written.
pub fn link_json(root: &mut Root, instance: &Instance) -> Result<()> {
    let path = format!("{}/network-config.json", state::folder(instance));
    if !root.exists(&path) {
        return Ok(());
    }
    root.symlink(&format!("{}/network-config.json", state::RUN_DIR), &path)
}

/// The configuration of one origin. One that cannot be read is reported, and is None.
fn given(
    origin: ConfigOrigin,
    machine: &Machine,
    image: &Image,
    instance: &Instance,
    nics: &Nics,
    report: &Problems,
) -> Option<Input> {
    match origin {
        ConfigOrigin::Cmdline => {
            let given = machine.cmdline.value("network-config").filter(|_| image.trust.command_line());
            let read = input::from_cmdline(given?);
            read.map_err(|e| report.warn(e)).ok()
        }
        ConfigOrigin::Initramfs => {
            let mac = |name: &str| nics.all().iter().find(|n| n.name == name).map(|n| n.mac.clone());
            klibc::of_initramfs(&machine.base.join("run"), &machine.cmdline, mac, report).map(Input::config)
        }
        ConfigOrigin::SystemCfg => image.config.get("network").cloned().map(Input::config),
        ConfigOrigin::Datasource => instance.network.as_ref().map(|data| match data {
            NetworkData::Cloud(value) => Input::config(value.clone()),
            NetworkData::Openstack(value) => Input { format: &openstack::FORMAT, document: value.clone() },
            NetworkData::Eni(text) => Input { format: &eni::FORMAT, document: Value::from(text.as_str()) },
        }),
        ConfigOrigin::Fallback => None,
    }
}

/// The fallback: DHCP on the most suitable device. None if the image disables it (`system_info:
/// disable_fallback_netcfg`), or comes with a network configuration and does not enable it.
fn default(distro: Distro, config: &Value, nics: &Nics) -> Option<Value> {
    const KEY: &str = "disable_fallback_netcfg";
    let said = config.at(&["system_info", KEY]).or_else(|| config.get(KEY)).filter(|v| !v.is_null());
    let is_disabled = said.map_or(distro.has_own_network(), Value::is_true);
    if is_disabled {
        return None;
    }
    fallback::nic(nics.all()).map(|nic| fallback::config(nic, nics.all()))
}

/// Whether the root's netplan is older than 1.0, whose library has another name.
fn has_old_netplan(root: &Root) -> bool {
    let is_old = |folder: &str| root.list(folder).iter().any(|name| name.starts_with("libnetplan.so.0"));
    let of_machines = root.list("/usr/lib").into_iter().filter(|name| name.ends_with("-linux-gnu"));
    is_old("/usr/lib")
        || is_old("/usr/lib64")
        || of_machines.into_iter().any(|name| is_old(&format!("/usr/lib/{name}")))
}

fn target(root: &Root, image: &Image) -> Target {
    Target { distro: image.distro, ip_tool: installed::which(root, "ip").is_some(), old_netplan: has_old_netplan(root) }
}

/// The stack that network files are written for; None if the root has no supported one.
pub fn renderer(root: &Root, image: &Image, report: &Problems) -> Option<&'static Renderer> {
    choose(root, image, &target(root, image), report).ok()
}

fn choose(root: &Root, image: &Image, target: &Target, report: &Problems) -> Result<&'static Renderer> {
    let configured = image.config.at(&["system_info", "network", "renderers"]).and_then(Value::as_list);
    let configured: Option<Vec<String>> = configured.map(|l| l.iter().filter_map(Value::text).collect());
    // A distribution's preference is in the cloud.cfg that it comes with; an image's own without one has cloud-init's order.
    let configured =
        configured.or_else(|| root.exists(CLOUD_CFG).then(|| render::names().into_iter().map(str::to_owned).collect()));
    render::choose(&|path| root.exists(path), target, configured.as_deref(), report)
}

fn write(root: &mut Root, image: &Image, network: &Network, report: &Problems) -> Result<&'static Renderer> {
    let target = target(root, image);
    let renderer = choose(root, image, &target, report)?;
    let files = renderer.files(network, &target, report);
    remove_old(root, &files)?;
    remove_defaults(root)?;
    files.into_iter().try_for_each(|file| put(root, file))?;
    Ok(renderer)
}

/// Writes a renderer's file, or merges it into that of the root.
///
/// # Errors
/// The file cannot be read or written.
pub fn put(root: &mut Root, File { path, content, mode, owner, merge }: File) -> Result<()> {
    let ids = owner.and_then(|owner| {
        let (user, group) = owner.split_once(':').unwrap_or((owner, owner));
        let ids = owner::user_ids(root, user)?;
        Some(Ids { gid: owner::group_id(root, group).unwrap_or(ids.gid), ..ids })
    });
    let attr = ids.map_or(Attr::root(mode), |ids| Attr::owned(mode, ids));
    match merge {
        Some(merge) => root.edit_text(&path, attr, |old| Ok(Some(merge.merged(old, &content)))).map(drop),
        None => root.write(&path, content, attr),
    }
}

/// Renames this machine's links according to the files in the root: those written in this boot, or those of an
/// earlier boot for the same instance. udev would do it after the pivot, but not if links swap names, and
/// not every system has udev.
pub fn rename_links(root: &Root, machine: &Machine, report: &Problems) {
    let mut named: Vec<DeviceName> = Vec::new();
    // Several renderers write the same files.
    let mut seen = BTreeSet::new();
    for owned in RENDERERS.iter().flat_map(|r| r.owned).filter(|o| o.has_names() && seen.insert(o.pattern)) {
        for path in files_of(root, owned) {
            let new = owned.names(&path, &root.text(&path));
            named.extend(new.into_iter().filter(|n| !named.contains(n)).collect::<Vec<_>>());
        }
    }
    if named.is_empty() {
        return;
    }
    let renames = names::renames(&named, &machine.nics()).into_iter().map(|(from, to)| Rename { from, to });
    if let Err(e) = rename(&renames.collect::<Vec<_>>()) {
        report.warn(e);
    }
}

/// Removes the files that any renderer may have written for an earlier instance, except those written now.
fn remove_old(root: &mut Root, files: &[File]) -> Result<()> {
    for path in RENDERERS.iter().flat_map(|r| owned_files(root, r)).collect::<Vec<_>>() {
        if !files.iter().any(|f| f.path == path) {
            root.remove(&path)?;
        }
    }
    Ok(())
}

/// Removes the unchanged network configuration that the image came with, for any stack.
fn remove_defaults(root: &mut Root) -> Result<()> {
    for (path, lines) in
        RENDERERS.iter().flat_map(|r| r.image_files).filter(|(path, _)| root.is_file(path)).collect::<Vec<_>>()
    {
        let text = root.text(path);
        let found = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        if found.eq(lines.iter().copied()) {
            log::info!("removed {path}, which configures the network of the image");
            root.remove(path)?;
        }
    }
    Ok(())
}

/// The files in the root that a renderer wrote, prepivot's or cloud-init's.
pub fn owned_files(root: &Root, renderer: &Renderer) -> Vec<String> {
    renderer.owned.iter().flat_map(|owned| files_of(root, owned)).collect()
}

fn files_of(root: &Root, owned: &Owned) -> Vec<String> {
    let Some((folder, _)) = owned.pattern.rsplit_once('/') else { return Vec::new() };
    let paths = root.list(folder).into_iter().map(|name| format!("{folder}/{name}"));
    let named = paths.filter(|path| owned.matches(path) && root.is_file(path));
    named.filter(|path| owned.is_ours(path, &root.text(path))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::document::yaml;
    use crate::root::Use;

    #[test]
    fn only_root_reads_the_configurations_record() {
        let dir = TempDir::new("network-json");
        let mut root = dir.root(Use::Tree);
        let instance = Instance { instance_id: "i".into(), ..Instance::default() };
        write_json(&mut root, &instance, None).unwrap();
        let path = format!("{}/network-config.json", state::folder(&instance));
        assert_eq!(root.stat(&path).unwrap().attr, Attr::root(0o600), "it can hold passwords of wireless networks");
    }

    #[test]
    fn networkd_reads_files_with_keys() {
        let dir = TempDir::new("network-owner");
        dir.write("etc/passwd", "root:x:0:0::/root:/bin/sh\nsystemd-network:x:998:997::/:/sbin/nologin\n");
        dir.write("etc/group", "root:x:0:\nsystemd-network:x:996:\n");
        let mut root = dir.root(Use::Plan);
        let owner = Some("systemd-network:systemd-network");
        put(&mut root, File { owner, ..File::private("/etc/systemd/network/wg0.netdev", String::new()) }).unwrap();
        let Attr { mode, uid, gid, .. } = root.stat("/etc/systemd/network/wg0.netdev").unwrap().attr;
        assert_eq!((mode, uid, gid), (0o600, 998, 996));
    }

    #[test]
    fn finds_infiniband_by_short_address_not_bridge() {
        let dir = TempDir::new("network-devices");
        for (nic, mac, kind) in [
            ("ib0", "a0:00:02:20:fe:80:00:00:00:00:00:00:ec:0d:9a:03:00:15:e2:c1", "32"),
            ("eth0", "52:54:00:00:00:01", "1"),
            ("virtual", "52:54:00:00:00:01", "1"),
        ] {
            dir.write(&format!("sys/class/net/{nic}/address"), mac);
            dir.write(&format!("sys/class/net/{nic}/type"), kind);
            if nic != "virtual" {
                dir.write(&format!("sys/class/net/{nic}/device/device"), "0x1000");
            }
        }
        dir.write("usr/sbin/netplan", "");
        let machine = dir.machine();
        let mut root = dir.root(Use::Tree);
        let data = r#"{"links": [{"id": "a", "type": "phy", "ethernet_mac_address": "ec:0d:9a:15:e2:c1"},
            {"id": "b", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:01"}],
            "networks": [{"link": "a", "type": "ipv4_dhcp"}, {"link": "b", "type": "ipv4_dhcp"}]}"#;
        let network = Some(NetworkData::Openstack(json::parse("t", data.as_bytes()).unwrap()));
        let instance = Instance { source: "OpenStack".into(), network, ..Instance::default() };
        let report = Problems::new();
        let image = Image::read(&root, &machine, &report);
        apply(&mut root, &machine, &image, &instance, &report, Unreadable::Error).unwrap();
        let text = root.text("/etc/netplan/50-cloud-init.yaml");
        let ethernets = yaml::parse("t", &text).unwrap().at(&["network", "ethernets"]).cloned().unwrap();
        assert_eq!(
            ethernets.as_map().unwrap().iter().map(|(name, _)| name).collect::<Vec<_>>(),
            ["ib0", "eth0"],
            "{text}"
        );
    }

    #[test]
    fn image_with_cloud_cfg_has_cloud_inits_order() {
        let dir = TempDir::new("network-order");
        let programs = ["netplan", "ifquery", "ifup", "ifdown"].map(|name| format!("usr/sbin/{name}"));
        programs.iter().map(String::as_str).chain(["etc/network/interfaces"]).for_each(|path| dir.write(path, ""));
        dir.write("etc/os-release", "ID=debian\n");
        for (cloud_cfg, name) in [
            (None, "netplan"),
            (Some("a: b\n"), "eni"),
            (Some("system_info: {network: {renderers: [networkd, netplan, eni]}}\n"), "netplan"),
        ] {
            cloud_cfg.into_iter().for_each(|text| dir.write("etc/cloud/cloud.cfg", text));
            let root = dir.root(Use::Plan);
            let report = Problems::new();
            let image = Image::read(&root, &dir.machine(), &report);
            assert_eq!(renderer(&root, &image, &report).map(|r| r.name), Some(name), "{report:?}");
        }
    }

    #[test]
    fn images_with_own_network_get_no_fallback() {
        let nics = [Nic {
            name: "eth0".into(),
            mac: "52:54:00:00:00:01".into(),
            carrier: Some(true),
            kind: 1,
            ..Nic::default()
        }];
        let given = |distro: &str, text: &str| {
            let config = yaml::parse("t", text).unwrap();
            default(Distro::named(distro), &config, &Nics::new(&|| nics.to_vec())).is_some()
        };
        assert!(given("debian", "{}") && given("debian", "{system_info: {disable_fallback_netcfg: false}}"));
        assert!(!given("debian", "{system_info: {disable_fallback_netcfg: true}}"));
        for distro in ["photon", "raspberry-pi-os"] {
            assert!(!given(distro, "{}") && !given(distro, "{system_info: {disable_fallback_netcfg: true}}"));
            assert!(given(distro, "{system_info: {disable_fallback_netcfg: false}}"));
        }
    }

    #[test]
    fn shared_files_are_merged_where_their_links_lead() {
        let dir = TempDir::new("network-merged");
        let mut root = dir.root(Use::Tree);
        root.write("/etc/os-release", "ID=rhel\n", Attr::root(0o644)).unwrap();
        let image = Image::read(&root, &dir.machine(), &Problems::new());
        let document = yaml::parse(
            "t",
            "{version: 1, config: [{type: physical, name: e, subnets: [{type: dhcp}]}, {type: nameserver, address: 9.9.9.9}]}",
        );
        let network = Input::config(document.unwrap()).read("t", &Macs::default(), &Problems::new()).unwrap();
        for program in ["ifup", "ifdown"] {
            root.write(&format!("/usr/sbin/{program}"), "", Attr::root(0o755)).unwrap();
        }
        root.write("/etc/sysconfig/network-scripts/network-functions", "", Attr::root(0o644)).unwrap();
        root.write("/etc/sysconfig/network", "NETWORKING=no\nNOZEROCONF=yes\n", Attr::root(0o644)).unwrap();
        // There is nothing in /run yet.
        root.symlink("/etc/resolv.conf", "../run/NetworkManager/resolv.conf").unwrap();
        write(&mut root, &image, &network, &Problems::new()).unwrap();
        assert!(root.text("/run/NetworkManager/resolv.conf").ends_with("\nnameserver 9.9.9.9\n"));
        assert!(root.text("/etc/sysconfig/network").ends_with("\nNETWORKING=yes\nNOZEROCONF=yes\n"));
    }

    #[test]
    fn what_an_image_has_by_default_makes_way() {
        let dir = TempDir::new("network-defaults");
        let mut root = dir.root(Use::Tree);
        let eth0 = "/etc/network/interfaces.d/eth0.cfg";
        let snapd = "/etc/netplan/00-snapd-config.yaml";
        let mut left = |eth0_text: &str, snapd_text: &str| {
            root.write(eth0, eth0_text, Attr::root(0o644)).unwrap();
            root.write(snapd, snapd_text, Attr::root(0o644)).unwrap();
            remove_defaults(&mut root).unwrap();
            [root.exists(eth0), root.exists(snapd)]
        };
        let known = "network:\n    version: 2\n    ethernets:\n        all-en:\n            match:\n                name: \"en*\"\n            dhcp4: true\n\
                     \x20       all-eth:\n            match:\n                name: \"eth*\"\n            dhcp4: true\n";
        assert_eq!(left("# x\nauto eth0\niface eth0 inet dhcp\n", &format!("# x\n# y\n{known}")), [false, false]);
        assert_eq!(
            left("auto eth0\niface eth0 inet manual\n", &known.replace("dhcp4: true", "dhcp6: true")),
            [true, true]
        );
    }

    #[test]
    fn removes_only_files_written_for_an_instance() {
        let dir = TempDir::new("network-owned");
        let mut root = dir.root(Use::Tree);
        let header = render::HEADER;
        for (path, content) in [
            ("/etc/network/interfaces", "source /etc/network/interfaces.d/*\n"),
            ("/etc/network/interfaces.d/50-cloud-init", "auto eth0\n"),
            ("/etc/sysconfig/network-scripts/ifcfg-lo", "DEVICE=lo\n"),
            ("/etc/sysconfig/network-scripts/ifcfg-eth0", "# Created by cloud-init automatically, do not edit.\n"),
            ("/etc/sysconfig/network-scripts/ifcfg-eth1", header),
            ("/etc/systemd/network/10-cloud-init-eth0.network", "[Match]\n"),
            ("/etc/systemd/network/10-own.network", "[Match]\n"),
        ] {
            root.write(path, content, Attr::root(0o644)).unwrap();
        }
        let written = "/etc/sysconfig/network-scripts/ifcfg-eth1";
        remove_old(&mut root, &[File::public(written, String::new())]).unwrap();
        let left = |folder: &str| root.list(folder).join(" ");
        assert_eq!(left("/etc/network"), "interfaces interfaces.d");
        assert_eq!(left("/etc/network/interfaces.d"), "");
        assert_eq!(left("/etc/sysconfig/network-scripts"), "ifcfg-eth1 ifcfg-lo");
        assert_eq!(left("/etc/systemd/network"), "10-own.network");
    }
}
