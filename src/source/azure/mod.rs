//! Azure: the instance metadata service, the provisioning media, and the wire server, to which the result of
//! provisioning is reported.

mod certificates;
mod disk;
mod failure;
mod identity;
mod imds;
mod instance;
mod media;
mod network;
mod prepare;
mod provisioned;
mod service;
mod wire_server;

use super::closed::{Closing, ServiceAddress};
use super::table::{Source, Update};
use crate::detect::{Facts, Mark};

/// The chassis asset tag of every machine.
const ASSET_TAG: &str = "7783-7084-3265-9085-8269-3286-77";

pub static SOURCE: Source = Source {
    name: "Azure",
    described: "[seed={place}]",
    marks: &[Mark::asset_tag(ASSET_TAG), Mark::Seed("azure", &["ovf-env.xml"])],
    service: Some(service::job),
    seed: Some(prepare::of_files),
    filesystems: &["iso9660", "udf"],
    updates: &[Update::NewInstance, Update::Boot],
    provisioned: Some(provisioned::provisioned),
    closing: Closing {
        addresses: &[ServiceAddress::tcp("169.254.169.254", &[80]), ServiceAddress::tcp("168.63.129.16", &[80, 32526])],
        stays: "DNS and DHCP of the wire server, 168.63.129.16",
    },
    settings: &[
        (
            "data_dir",
            "the folder in which ovf-env.xml is kept for Azure's agent, without its password, instead of /var/lib/waagent",
        ),
        (
            "disk_aliases",
            "devices by the names that mounts, disk_setup and fs_setup use; ephemeral0 is the temporary disk",
        ),
        ("apply_network_config", "false: DHCP on one interface instead of the metadata's network configuration"),
        ("apply_network_config_for_secondary_ips", "false: only the addresses that DHCP gives"),
        ("apply_network_config_set_name", "false: interfaces keep their names, instead of eth0, eth1, …"),
        (
            "experimental_fail_on_missing_customdata",
            "true: a machine without the custom data that it should have is reported as failed",
        ),
        ("experimental_skip_ready_report", "true: nothing reports that the machine is provisioned"),
    ],
    docs: "Microsoft Azure. The metadata service at http://169.254.169.254 gives names, SSH keys, user-data and the network; the \
        provisioning media, a CD-ROM with ovf-env.xml, gives the password and custom data, which take precedence over user-data. The \
        media's document is kept in /var/lib/waagent without the password. In the running system the wire server, 168.63.129.16 or \
        DHCP option 245, hears that the machine is ready, or why provisioning failed. Where the metadata service does not answer, the \
        media alone is used. A machine of a pool (pre-provisioned) reports to the pool and waits for its owner, until the stage's time \
        is over (prepivot.timeout=).",
    ..Source::NEW
};

/// Whether the machine is on Azure, whose provisioning media looks like an OVF environment.
pub fn is_machine(facts: &Facts) -> bool {
    facts.dmi_matches("chassis_asset_tag", ASSET_TAG)
}
