//! The table of sources.

use super::checks::{config_drive, has_config_drive, no_cloud};
use super::clouds::{
    alt_cloud, aws, ec2_not_strict, ibm_cloud, ibm_provisioning, open_stack_pid1, other_machine, smart_os,
};
use super::hypervisors::{lxd, no_ovf, ovf, vmware, wsl};
use super::marks::Mark::{self, Check, Dmi, File, Label, Seed, Unless, Word};

/// A line of the table.
pub struct Source {
    /// cloud-init's name: `OpenStack`.
    pub name: &'static str,
    /// What it is known by; the first mark that says something decides.
    pub marks: &'static [Mark],
}

const fn source(name: &'static str, marks: &'static [Mark]) -> Source {
    Source { name, marks }
}

const fn vendor(name: &'static str) -> Mark {
    Dmi("sys_vendor", name)
}

const fn product(name: &'static str) -> Mark {
    Dmi("product_name", name)
}

const fn serial(number: &'static str) -> Mark {
    Dmi("product_serial", number)
}

const fn tag(text: &'static str) -> Mark {
    Dmi("chassis_asset_tag", text)
}

/// Azure's tag of every machine.
pub(super) const AZURE_TAG: &str = "7783-7084-3265-9085-8269-3286-77";

/// Every source of cloud-init, in ds-identify's order, which is the order in which they are tried where the image does not
/// say another.
#[rustfmt::skip]
pub static SOURCES: &[Source] = &[
    source("MAAS", &[]),
    source("ConfigDrive", &[Check("OpenStack's metadata in /config-drive or /var/lib/cloud/seed/config_drive; a filesystem with the label config-2", config_drive)]),
    source("NoCloud", &[Check("ds=nocloud in DMI product_serial; /var/lib/cloud/seed/nocloud with meta-data and user-data; a filesystem with the label cidata; datasource: NoCloud: seedfrom in the configuration", no_cloud)]),
    source("AltCloud", &[Check("RHEV or vSphere with a drive of its own", alt_cloud)]),
    source("Azure", &[tag(AZURE_TAG), Seed("azure", &["ovf-env.xml"])]),
    source("Bigstep", &[File("/var/lib/cloud/data/seed/bigstep/url")]),
    source("CloudSigma", &[product("CloudSigma")]),
    source("CloudStack", &[product("CloudStack*")]),
    source("DigitalOcean", &[vendor("DigitalOcean")]),
    source("Vultr", &[vendor("Vultr"), Word("vultr"), File("/etc/vultr")]),
    source("AliYun", &[Seed("AliYun", &["meta-data", "user-data"]), product("Alibaba Cloud ECS")]),
    source("Ec2", &[Seed("ec2", &["meta-data", "user-data"]), serial("*.brightbox.com"), tag("*.zstack.io"), vendor("e24cloud"), vendor("Tilaa"), Check("ec2 in DMI product_uuid and /sys/hypervisor/uuid; DMI of Outscale", aws), Check("strict_id: false", ec2_not_strict)]),
    source("GCE", &[product("Google Compute Engine"), serial("GoogleCloud-*")]),
    source("OpenNebula", &[Seed("opennebula", &["context.sh"]), Seed("opennebula", &["meta-data"]), Label("CONTEXT"), Label("CDROM")]),
    source("OpenStack", &[Unless(has_config_drive), product("OpenStack Nova"), product("OpenStack Compute"), Check("product_name OpenStack Nova in the environment of PID 1", open_stack_pid1), tag("OpenTelekomCloud"), tag("SAP CCloud VM"), tag("HUAWEICLOUD"), tag("Samsung Cloud Platform"), tag("OpenStack Nova"), tag("OpenStack Compute"), Check("a machine that may have no DMI", other_machine)]),
    source("VMware", &[Check("VMware's guestinfo; guest customization that is switched on", vmware)]),
    source("OVF", &[Seed("ovf", &["ovf-env.xml"]), Unless(no_ovf), Check("an OVF environment in guestinfo or on a CD-ROM", ovf)]),
    source("SmartOS", &[product("SmartDC*"), Check("the metadata socket of a SmartOS zone", smart_os)]),
    source("Scaleway", &[vendor("Scaleway"), Word("scaleway"), File("/var/run/scaleway")]),
    source("Hetzner", &[vendor("Hetzner")]),
    source("IBMCloud", &[Unless(ibm_provisioning), Check("IBM Cloud's drive on Xen", ibm_cloud)]),
    source("Oracle", &[tag("OracleCloud.com")]),
    source("Exoscale", &[product("Exoscale*")]),
    source("RbxCloud", &[Label("CLOUDMD")]),
    source("UpCloud", &[vendor("UpCloud")]),
    source("LXD", &[Check("/dev/lxd/sock; LXD's virtio port", lxd)]),
    source("NWCS", &[vendor("NWCS")]),
    source("Akamai", &[vendor("Linode"), vendor("Akamai")]),
    source("WSL", &[Check("files for WSL in a Windows user's folder", wsl)]),
    source("CloudCIX", &[product("CloudCIX")]),
];

/// The source called `name`, in any case; `nocloud-net` is NoCloud's old name.
pub fn named(name: &str) -> Option<&'static Source> {
    let name = if name.eq_ignore_ascii_case("nocloud-net") { "NoCloud" } else { name };
    SOURCES.iter().find(|s| s.name.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Value;
    use std::collections::BTreeSet;

    #[test]
    fn every_source_of_the_built_in_list_has_a_line() {
        let Some(tables) = crate::base::testing::vectors("tables.json") else { return };
        let list = tables.get("datasources").and_then(Value::as_list).expect("a list of sources");
        let modules = list.iter().filter_map(|s| s.get("module")?.as_str()?.rsplit("DataSource").next());
        let theirs: BTreeSet<&str> = modules.filter(|n| !["None", "NoCloudNet"].contains(n)).collect();
        let ours: BTreeSet<&str> = SOURCES.iter().map(|s| s.name).collect();
        assert_eq!(ours, theirs);
        assert_eq!(ours.len(), SOURCES.len());
    }
}
