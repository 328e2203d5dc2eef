//! The table of datasources, and what each declares.

use super::search::{Found, Search};
use super::service::Job;
// Every source: those that the folder's own file names.
use super::*;
use crate::base::error::Result;
use crate::base::report::Report;
use crate::detect::{Candidate, Facts, Mark, Setting};
use crate::document::Value;
use crate::drive::Files;
use crate::instance::{DsMode, Instance};
use crate::link::http::Client;
use crate::machine::Machine;
use crate::network::input::{DEFAULT_ORDER, Origin};
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
    pub report: &'a mut Report,
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
pub struct Late {
    /// Template variables that need this metadata: a template that uses one waits for the network stage. Empty once the instance
    /// has it.
    pub words: fn(&Instance) -> &'static [&'static str],
    /// Whether to wait for the network even if no template uses one of them.
    pub waits: fn(&Root, &Instance) -> bool,
    /// Adds the metadata: this system's values if `true`, else empty ones.
    pub add: fn(bool, &mut Instance, &mut Report),
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
    /// On a machine with its marks, why only the real root can read it: then the initramfs does nothing, and
    /// the real root's first stage provisions the machine. None if it can be read now.
    pub left_to_real_root: Option<fn(&Facts) -> Option<String>>,
    /// Why the real root may have data of it that the initramfs cannot see, not even that there is some. Then an
    /// instance of an earlier boot is used only if the real root has found none.
    pub unseen: Option<fn(&Facts) -> Option<String>>,
    /// Prepares the requests to its service. None if this machine has no service.
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
    /// udev rules that go to `cloudinit_hook` for the network devices that are added to it, and to
    /// `cloudinit_end` for others, each ending with a line feed (cloud-init's `extra_hotplug_udev_rules`).
    /// Empty: it is asked again for every device.
    pub hotplug_rules: fn(&Instance) -> String,
    /// Whether its service learns an added device's addresses one by one, so that it is asked again after it knows the device
    /// (cloud-init 26.2, `HotplugRetrySettings`).
    pub late_addresses: bool,
    /// Whether its network configuration does not list every device, so that an added one is not looked for in it (cloud-init
    /// 26.2, `skip_hotplug_detect`).
    pub omits_devices: bool,
    /// Whether to find its disks by label if the metadata names none that exists: `ephemeral0`
    /// and the like, and any swap space (cloud-init 26.2, `_os_name_to_device`).
    pub labels_disks: bool,
    /// Metadata that it has only in the running system.
    pub late: Option<Late>,
    /// Reports what is deprecated about how it was named or about its instance ([`crate::base::deprecated`]).
    pub deprecated: fn(&Machine, &Instance, &mut Report),
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
    pub network_order: &'static [Origin],
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
    /// The keys of its settings in the image's configuration (`datasource: {NAME: …}`) and their meaning, for
    /// the manual.
    pub settings: &'static [(&'static str, &'static str)],
    /// Settings of cloud-init's that have no effect here, which is logged if they are given.
    pub unused: &'static [&'static str],
    /// A paragraph for the manual: the source and its inputs.
    pub docs: &'static str,
}

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
        left_to_real_root: None,
        unseen: None,
        service: None,
        has_no_address: false,
        seed: None,
        described: "",
        drive_is_due: None,
        has_other_ways: false,
        hotplug_rules: |_| String::new(),
        late_addresses: false,
        omits_devices: false,
        labels_disks: false,
        late: None,
        deprecated: |_, _, _| (),
        updates: &[Update::NewInstance],
        read_on_boot: false,
        password_server: None,
        network_order: &DEFAULT_ORDER,
        provisioned: None,
        needs_network: None,
        publish_host_keys: None,
        settings: &[],
        unused: &[],
        docs: "",
    };

    /// The entry for this build. A source that is not `included` is still recognised but not read: the
    /// functions that read it are not referenced, so that the linker drops them. Texts for the manual are
    /// only kept in builds with that feature.
    const fn in_build(&self, included: bool) -> Source {
        let Source { name, aliases, marks, setting, .. } = *self;
        if !included {
            return Source { name, aliases, marks, setting, ..Source::NEW };
        }
        let (settings, docs) =
            if cfg!(feature = "manual") { (self.settings, self.docs) } else { (Source::NEW.settings, "") };
        Source { settings, docs, ..*self }
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
/// list. Each can be read by builds with the Cargo feature of its name in lower case.
pub static SOURCES: &[&Source] = &[
    &maas::SOURCE.in_build(cfg!(feature = "maas")),
    &openstack::config_drive::SOURCE.in_build(cfg!(feature = "configdrive")),
    &no_cloud::SOURCE.in_build(cfg!(feature = "nocloud")),
    &alt_cloud::SOURCE.in_build(cfg!(feature = "altcloud")),
    &azure::SOURCE.in_build(cfg!(feature = "azure")),
    &bigstep::SOURCE.in_build(cfg!(feature = "bigstep")),
    &cloud_sigma::SOURCE.in_build(cfg!(feature = "cloudsigma")),
    &cloud_stack::SOURCE.in_build(cfg!(feature = "cloudstack")),
    &digital_ocean::SOURCE.in_build(cfg!(feature = "digitalocean")),
    &vultr::SOURCE.in_build(cfg!(feature = "vultr")),
    &aliyun::SOURCE.in_build(cfg!(feature = "aliyun")),
    &ec2::SOURCE.in_build(cfg!(feature = "ec2")),
    &gce::SOURCE.in_build(cfg!(feature = "gce")),
    &open_nebula::SOURCE.in_build(cfg!(feature = "opennebula")),
    &openstack::SOURCE.in_build(cfg!(feature = "openstack")),
    &vmware::SOURCE.in_build(cfg!(feature = "vmware")),
    &ovf::SOURCE.in_build(cfg!(feature = "ovf")),
    &smart_os::SOURCE.in_build(cfg!(feature = "smartos")),
    &scaleway::SOURCE.in_build(cfg!(feature = "scaleway")),
    &hetzner::SOURCE.in_build(cfg!(feature = "hetzner")),
    &ibm_cloud::SOURCE.in_build(cfg!(feature = "ibmcloud")),
    &oracle::SOURCE.in_build(cfg!(feature = "oracle")),
    &exoscale::SOURCE.in_build(cfg!(feature = "exoscale")),
    &rbx_cloud::SOURCE.in_build(cfg!(feature = "rbxcloud")),
    &up_cloud::SOURCE.in_build(cfg!(feature = "upcloud")),
    &lxd::SOURCE.in_build(cfg!(feature = "lxd")),
    &nwcs::SOURCE.in_build(cfg!(feature = "nwcs")),
    &akamai::SOURCE.in_build(cfg!(feature = "akamai")),
    &wsl::SOURCE.in_build(cfg!(feature = "wsl")),
    &cloud_cix::SOURCE.in_build(cfg!(feature = "cloudcix")),
    &none::SOURCE.in_build(true),
];

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
        let (out, included) = (azure::SOURCE.in_build(false), azure::SOURCE.in_build(true));
        assert_eq!((out.name, out.marks.len()), (included.name, included.marks.len()));
        assert!(!out.is_read() && out.seed.is_none() && out.provisioned.is_none() && out.filesystems.is_empty());
        assert!(included.is_read() && included.seed.is_some() && included.provisioned.is_some());
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
        let Some(tables) = crate::base::testing::vectors("tables.json") else { return };
        let list = tables.get("datasources").and_then(Value::as_list).expect("a list of sources");
        let modules = list.iter().filter_map(|s| s.get("module")?.as_str()?.rsplit("DataSource").next());
        let theirs: BTreeSet<&str> = modules.filter(|n| *n != "NoCloudNet").collect();
        let ours: BTreeSet<&str> = SOURCES.iter().map(|s| s.name).collect();
        assert_eq!(theirs.difference(&ours).collect::<Vec<_>>(), [&""; 0]);
    }
}
