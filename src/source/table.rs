//! The table of datasources, and what each declares.

use super::closed::{Closing, LINK_LOCAL};
use super::search::{Found, Search};
use super::service::Job;
// Every source: those that the folder's own file names.
use super::*;
use crate::base::error::Result;
use crate::base::problem::Problems;
use crate::detect::{Candidate, Facts, Mark, Setting};
use crate::document::Value;
use crate::drive::Files;
use crate::instance::{DsMode, Instance};
use crate::link::http::Client;
use crate::machine::Machine;
use crate::network::input::{ConfigOrigin, DEFAULT_ORDER};
use crate::root::Root;

/// When a source is read again for the network configuration (cloud-init's update events, `updates: {network:
/// {when: […]}}`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Update {
    NewInstance,
    Boot,
    BootLegacy,
    Hotplug,
}

impl Update {
    /// cloud-init's name: `boot-new-instance`.
    pub fn name(self) -> &'static str {
        match self {
            Update::NewInstance => "boot-new-instance",
            Update::Boot => "boot",
            Update::BootLegacy => "boot-legacy",
            Update::Hotplug => "hotplug",
        }
    }
}

/// A source's context in the running system, when the instance's data is on the disk.
pub struct Live<'a> {
    /// The running system's root. Changes are committed at the end of the stage.
    pub root: &'a mut Root,
    pub machine: &'a Machine,
    pub instance: &'a Instance,
    /// The merged configuration.
    pub config: &'a Value,
    /// A client that uses the running system's network, which may still be coming up: requests without a
    /// limit of tries are repeated for up to 60 s. Redirects stay on their host.
    pub client: &'a Client,
    /// The first error of this boot's stages so far, in one line. None if the machine is provisioned as
    /// asked.
    pub failed: Option<String>,
    /// Takes SSH public keys that are available only in the running system; the default user gets them.
    pub public_keys: Vec<String>,
    /// Random passwords that this boot set and only showed on the console: users and passwords in clear text.
    /// They may leave the machine only in encrypted form.
    pub passwords: Vec<(String, String)>,
    /// Takes warnings. A failure that the function returns is a warning too.
    pub report: &'a Problems,
}

/// Reads a source that needs no network.
pub type Read = fn(&mut Search) -> Result<Option<Found>>;
/// Returns how a service is asked on this machine.
pub type Prepare = fn(&mut Search) -> Option<Job>;
/// Reads a tree of files; the text names its place.
pub type ReadFiles = fn(&Search, &Files, &str) -> Option<Instance>;
/// A function that runs in the running system.
pub type Act = fn(&mut Live) -> Result<()>;
/// Publishes SSH host keys, given as lines.
pub type Publish = fn(&mut Live, &[String]) -> Result<()>;

/// Returns the URL of an instance's password server, which may depend on the merged configuration. None if there is no server.
pub type PasswordServer = fn(&Instance, &Value) -> Option<String>;

/// Metadata that a source has only in the running system, when its network is up.
#[derive(Clone, Copy)]
pub struct RunningMetadata {
    /// Words for it: a template with one of them waits for the network stage. None once the instance has it.
    pub words: fn(&Instance) -> &'static [&'static str],
    /// Whether the network is waited for even if no template has one of the words.
    pub waits: fn(&Root, &Instance) -> bool,
    /// Adds it, from this system or, in a plan for another one, empty.
    pub add: fn(MetadataOf, &mut Instance, &Problems),
}

/// Which system [`RunningMetadata::add`] asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataOf {
    ThisSystem,
    NoSystem,
}

/// What only the real root has of a source.
#[derive(Clone, Copy)]
pub struct RealRoot {
    /// On a machine with its marks, why only the real root can read it: then the initramfs does nothing, and
    /// the real root's first stage provisions the machine. None if it can be read now.
    pub alone: Option<fn(&Facts) -> Option<String>>,
    /// Why the real root may have data of it that the initramfs cannot see, not even that there is some. Then an
    /// instance of an earlier boot is used only where the real root has found none.
    pub unseen: Option<fn(&Facts) -> Option<String>>,
    /// Metadata that it has only in the running system.
    pub metadata: Option<RunningMetadata>,
}

impl RealRoot {
    /// Nothing.
    pub const NEW: RealRoot = RealRoot { alone: None, unseen: None, metadata: None };
}

/// How a source's network devices are configured that are added to a running system.
#[derive(Clone, Copy)]
pub struct Hotplug {
    /// udev rules that go to `cloudinit_hook` for the network devices that are added to it, and to
    /// `cloudinit_end` for others, each ending with a line feed (cloud-init's `extra_hotplug_udev_rules`).
    /// Empty: it is asked again for every device.
    pub rules: fn(&Instance) -> String,
    /// Whether its service learns an added device's addresses one by one, so that it is asked again after it knows the device
    /// (cloud-init 26.2, `HotplugRetrySettings`).
    pub learns_addresses_singly: bool,
    /// Whether its network configuration does not list every device, so that an added one is not looked for in it (cloud-init
    /// 26.2, `skip_hotplug_detect`).
    pub omits_devices: bool,
}

impl Hotplug {
    /// The source is asked again for every device.
    pub const NEW: Hotplug = Hotplug { rules: |_| String::new(), learns_addresses_singly: false, omits_devices: false };
}

/// A datasource: everything that the rest of the program knows about it.
pub struct Source {
    /// cloud-init's name: `OpenStack`.
    pub name: &'static str,
    /// Other names that a list or the kernel command line may use: `nocloud-net`.
    pub aliases: &'static [&'static str],
    /// How it is recognised; the first mark that applies decides.
    pub marks: &'static [Mark],
    /// The setting that ds-identify adds to cloud-init's configuration ([`Candidate::setting`]).
    pub setting: Option<Setting>,
    /// Labels of the drives that it reads.
    pub labels: &'static [&'static str],
    /// Types of the file systems that it reads, whatever their label, on its own machines.
    pub filesystems: &'static [&'static str],
    /// Reads it if that needs no network. `Ok(None)` if it is not there.
    pub read: Option<Read>,
    /// How its service is asked. None if this machine has none.
    pub service: Option<Prepare>,
    /// Whether its service has no fixed address, so that the owner has to give one. With that, no mark is
    /// needed; without it, `service` returns None.
    pub has_no_address: bool,
    /// Reads a tree of files in its layout, for `--seed`. None if the tree has another layout.
    pub seed: Option<ReadFiles>,
    /// Cloud-init's addition to the name of its class, with `{place}` (a device, a folder, a URL), `{mode}`
    /// (`dsmode`; `{other mode}`: in brackets, if it is not net), `{platform}` and `{kind}` (of the place).
    pub described: &'static str,
    /// Whether the machine's marks say that a drive for it will appear, if there is none yet.
    pub drive_is_due: Option<fn(&Facts) -> bool>,
    /// Whether its data may be elsewhere than on a drive. Then a list with sources of drives alone does not
    /// mean that a drive is expected.
    pub has_other_ways: bool,
    /// Whether the disks that it provides are known by their labels where its metadata names none that is there: `ephemeral0`
    /// and the like, and any swap space (cloud-init 26.2, `_os_name_to_device`).
    pub labels_disks: bool,
    /// What only the real root has of it.
    pub real_root: RealRoot,
    /// How network devices that are added later are configured.
    pub hotplug: Hotplug,
    /// Reports what is deprecated about how it was named or about its instance ([`crate::base::deprecated`]).
    pub deprecated: fn(&Machine, &Instance, &Problems),
    /// The default update events, which the configuration can change.
    pub updates: &'static [Update],
    /// Whether its service is asked on each boot for user-data and metadata, as by cloud-init, because its documentation says that they
    /// may have changed. That leaves the network files alone, unless `updates` has an event for them. Does not apply to an instance
    /// that came from a drive or a folder.
    pub read_on_boot: bool,
    /// Its password server ([`super::password_server`]), which is asked on every boot, because its cloud documents that a password
    /// is reset so.
    pub password_server: Option<PasswordServer>,
    /// The order of precedence of network configurations, including its own.
    pub network_order: &'static [ConfigOrigin],
    /// Reports back, for example that the machine is provisioned or that a password was set. Called on every
    /// boot at the end of the running system's network stage, when the instance's data is on the disk, before
    /// sshd and logins. Work to be done once for an instance is marked by `state::mark_done`.
    pub provisioned: Option<Act>,
    /// Whether `provisioned` also runs a program for the instance for which the network has to be up. Requests wait for it by
    /// themselves.
    pub needs_network: Option<fn(&Root, &Instance) -> bool>,
    /// Publishes SSH host keys, given as lines of `TYPE KEY [COMMENT]`. Called at the end of the network
    /// stage and of the final stage, with each key once for an instance (`ssh_publish_hostkeys`).
    pub publish_host_keys: Option<Publish>,
    /// What of its service is closed to users, if the configuration asks for it.
    pub closing: Closing,
    /// The keys of its settings in the image's configuration (`datasource: {NAME: …}`) and their meaning, for
    /// the manual.
    pub settings: &'static [(&'static str, &'static str)],
    /// Settings of cloud-init's that have no effect here, which is logged if they are given.
    pub unused: &'static [&'static str],
    /// A paragraph for the manual: the source and its inputs.
    pub docs: &'static str,
    /// Its place in cloud-init's own list of sources. The table sets it.
    pub place: u8,
}

/// The sources that this build reads, with commas between their names. None, or an empty text: all.
const CHOSEN: Option<&str> = option_env!("PREPIVOT_SOURCES");

/// Whether this build reads the source with this name, ignoring case.
pub const fn is_chosen(name: &str) -> bool {
    match CHOSEN {
        Some(list) => list.is_empty() || lists(list, name),
        None => true,
    }
}

/// Whether a list of names with commas between them has `name`, ignoring case.
const fn lists(list: &str, name: &str) -> bool {
    let (list, name) = (list.as_bytes(), name.as_bytes());
    let (mut at, mut start) = (0, 0);
    while at <= list.len() {
        if at == list.len() || list[at] == b',' {
            if at - start == name.len() && is_at(list, start, name) {
                return true;
            }
            start = at + 1;
        }
        at += 1;
    }
    false
}

/// Whether `list` has `name` at `start`, ignoring case.
const fn is_at(list: &[u8], start: usize, name: &[u8]) -> bool {
    let mut at = 0;
    while at < name.len() {
        if !list[start + at].eq_ignore_ascii_case(&name[at]) {
            return false;
        }
        at += 1;
    }
    true
}

/// A name in [`CHOSEN`] that no source has does not compile.
const _: () = {
    let (mut chosen, mut row) = (0, 0);
    while row < SOURCES.len() {
        if is_chosen(SOURCES[row].name) {
            chosen += 1;
        }
        row += 1;
    }
    let (mut named, mut at) = (1, 0);
    if let Some(list) = CHOSEN {
        while at < list.len() {
            if list.as_bytes()[at] == b',' {
                named += 1;
            }
            at += 1;
        }
    }
    assert!(at == 0 || chosen == named, "PREPIVOT_SOURCES names a datasource twice, or one that there is not");
};

impl Source {
    /// How cloud-init describes an instance of this source, after its class ([`Instance::described`]).
    pub fn describe(&self, instance: &Instance) -> String {
        let (kind, place) = instance.subplatform.split_once(" (").unwrap_or((&instance.subplatform, ""));
        let place = place.strip_suffix(')').unwrap_or(place);
        let mode = instance.dsmode.name();
        let other = if instance.dsmode == DsMode::Net { String::new() } else { format!("[dsmode={mode}]") };
        let text = self.described.replace("{other mode}", &other).replace("{mode}", mode);
        let text = text.replace("{platform}", &instance.platform);
        text.replace("{kind}", kind).replace("{place}", place)
    }

    /// The defaults of an entry: `Source { name: "…", …, ..Source::NEW }`.
    pub const NEW: Source = Source {
        name: "",
        aliases: &[],
        marks: &[],
        setting: None,
        labels: &[],
        filesystems: &[],
        read: None,
        service: None,
        has_no_address: false,
        seed: None,
        described: "",
        drive_is_due: None,
        has_other_ways: false,
        real_root: RealRoot::NEW,
        hotplug: Hotplug::NEW,
        labels_disks: false,
        deprecated: |_, _, _| (),
        updates: &[Update::NewInstance],
        read_on_boot: false,
        password_server: None,
        network_order: &DEFAULT_ORDER,
        provisioned: None,
        needs_network: None,
        publish_host_keys: None,
        closing: LINK_LOCAL,
        settings: &[],
        unused: &[],
        docs: "",
        place: 0,
    };

    /// The entry for this build, at `place` in cloud-init's own list.
    const fn in_build(&self, place: u8) -> Source {
        self.included(place, is_chosen(self.name))
    }

    /// The entry. A source that is not `included` is still recognised but not read: the functions that read it are
    /// not referenced, so that the linker drops them. Texts for the manual are only kept in builds with that feature.
    const fn included(&self, place: u8, included: bool) -> Source {
        let Source { name, aliases, marks, setting, .. } = *self;
        if !included {
            return Source { name, aliases, marks, setting, place, ..Source::NEW };
        }
        if cfg!(feature = "manual") {
            return Source { place, ..*self };
        }
        let closing = Closing { stays: "", ..self.closing };
        Source { settings: Source::NEW.settings, docs: "", closing, place, ..*self }
    }

    /// Its entry for detection.
    pub fn candidate(&self) -> Candidate {
        Candidate { name: self.name, aliases: self.aliases, marks: self.marks, setting: self.setting }
    }

    /// Whether this build can read it. Otherwise it is only recognised.
    pub fn is_read(&self) -> bool {
        self.read.is_some() || self.service.is_some()
    }

    /// Whether `name` is its name or an alias, ignoring case.
    pub fn is_named(&self, name: &str) -> bool {
        self.candidate().is_named(name)
    }
}

/// Every datasource of cloud-init, in ds-identify's order, which is used if the image's configuration has no
/// list. Each row has the place of the source in cloud-init's own list, which has another order ([`built_in_list`]).
pub static SOURCES: &[&Source] = &[
    &maas::SOURCE.in_build(10),
    &openstack::config_drive::SOURCE.in_build(2),
    &no_cloud::SOURCE.in_build(1),
    &alt_cloud::SOURCE.in_build(7),
    &azure::SOURCE.in_build(6),
    &bigstep::SOURCE.in_build(19),
    &cloud_sigma::SOURCE.in_build(16),
    &cloud_stack::SOURCE.in_build(17),
    &digital_ocean::SOURCE.in_build(5),
    &vultr::SOURCE.in_build(14),
    &aliyun::SOURCE.in_build(13),
    &ec2::SOURCE.in_build(15),
    &gce::SOURCE.in_build(11),
    &open_nebula::SOURCE.in_build(4),
    &openstack::SOURCE.in_build(12),
    &vmware::SOURCE.in_build(8),
    &ovf::SOURCE.in_build(9),
    &smart_os::SOURCE.in_build(18),
    &scaleway::SOURCE.in_build(20),
    &hetzner::SOURCE.in_build(21),
    &ibm_cloud::SOURCE.in_build(22),
    &oracle::SOURCE.in_build(23),
    &exoscale::SOURCE.in_build(24),
    &rbx_cloud::SOURCE.in_build(25),
    &up_cloud::SOURCE.in_build(26),
    &lxd::SOURCE.in_build(3),
    &nwcs::SOURCE.in_build(27),
    &akamai::SOURCE.in_build(28),
    &wsl::SOURCE.in_build(29),
    &cloud_cix::SOURCE.in_build(30),
    &tencent_cloud::SOURCE.in_build(31),
    &none::SOURCE.included(u8::MAX, true),
];

/// The names of all sources in the order of cloud-init's own `datasource_list`.
pub fn built_in_list() -> Vec<&'static str> {
    let mut sources = SOURCES.to_vec();
    sources.sort_by_key(|source| source.place);
    sources.into_iter().map(|source| source.name).collect()
}

/// The source with this name or alias, ignoring case.
pub fn named(name: &str) -> Option<&'static Source> {
    SOURCES.iter().copied().find(|s| s.is_named(name))
}

/// The sources to detect: all except None, which every machine has.
pub fn candidates() -> Vec<Candidate> {
    SOURCES.iter().filter(|s| s.name != none::SOURCE.name).map(|s| s.candidate()).collect()
}

/// The labels of the drives that any source reads, and the one that the image's configuration names (`fs_label`).
pub fn labels(config: &Value) -> Vec<String> {
    let configured = config.at(&["datasource", no_cloud::SOURCE.name, "fs_label"]).and_then(Value::text);
    let configured = configured.filter(|label| !label.is_empty());
    SOURCES.iter().flat_map(|s| s.labels).map(|label| (*label).to_owned()).chain(configured).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn recognises_but_never_reads_an_omitted_source() {
        let (out, included) = (azure::SOURCE.included(1, false), azure::SOURCE.included(1, true));
        assert_eq!((out.name, out.marks.len()), (included.name, included.marks.len()));
        assert!(!out.is_read() && out.seed.is_none() && out.provisioned.is_none() && out.filesystems.is_empty());
        assert!(included.is_read() && included.seed.is_some() && included.provisioned.is_some());
    }

    #[test]
    fn build_reads_sources_of_its_list_alone() {
        let has = |name| lists("nocloud,Ec2", name);
        assert!(has("NoCloud") && has("Ec2"));
        assert!(!has("Cloud") && !has("NoClou") && !has("Ec2,") && !has("") && !lists("", "Ec2"));
    }

    #[test]
    fn built_in_list_ends_with_none() {
        let list = built_in_list();
        assert_eq!((list[0], list.last()), ("NoCloud", Some(&"None")));
        let places: BTreeSet<u8> = SOURCES.iter().map(|source| source.place).collect();
        assert_eq!(places.len(), SOURCES.len());
    }

    #[test]
    fn another_mode_than_net_is_named() {
        for (dsmode, expected) in [(DsMode::Net, "[seed=/dev/vda]"), (DsMode::Local, "[seed=/dev/vda][dsmode=local]")] {
            let instance = Instance { subplatform: "config-disk (/dev/vda)".into(), dsmode, ..Instance::default() };
            assert_eq!(no_cloud::SOURCE.describe(&instance), expected);
        }
    }

    #[test]
    fn looks_for_the_configured_drive_label_too() {
        let label = |setting: &str| {
            let config = crate::document::yaml::parse("t", &format!("datasource: {{NoCloud: {{{setting}}}}}")).unwrap();
            labels(&config).split_off(labels(&Value::Null).len())
        };
        assert_eq!(label("fs_label: OTHER"), ["OTHER"]);
        assert_eq!([label("fs_label: null"), label("fs_label: ''"), label("")], [vec![""; 0], vec![], vec![]]);
    }

    #[test]
    fn each_source_has_names_of_its_own() {
        let names: Vec<String> =
            SOURCES.iter().flat_map(|s| std::iter::once(&s.name).chain(s.aliases)).map(|n| n.to_lowercase()).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
    }

    #[test]
    fn every_built_in_source_has_an_entry() {
        let Some(tables) = crate::document::testing::vectors("tables.json") else { return };
        let list = tables.get("datasources").and_then(Value::as_list).expect("a list of sources");
        let modules = list.iter().filter_map(|s| s.get("module")?.as_str()?.rsplit("DataSource").next());
        let theirs: BTreeSet<&str> = modules.filter(|n| *n != "NoCloudNet").collect();
        let ours: BTreeSet<&str> = SOURCES.iter().map(|s| s.name).collect();
        assert_eq!(theirs.difference(&ours).collect::<Vec<_>>(), [&""; 0]);
    }
}
