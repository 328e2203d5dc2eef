//! NoCloud: meta-data and user-data that the owner provides on a drive, in a folder, on the kernel command
//! line, in SMBIOS or at a URL.

mod credentials;
mod marks;
mod place;
mod seed;
mod service;

pub use seed::Seed;
pub use service::fetch;

use super::service::{MAX_WAIT, RETRIES, TIMEOUT};
use super::table::Source;
use crate::detect::Mark;

pub static SOURCE: Source = Source {
    name: marks::NAME,
    described: "[seed={place}]{other mode}",
    aliases: &["nocloud-net"],
    marks: &[Mark::Check(
        "ds=nocloud in DMI product_serial; /var/lib/cloud/seed/nocloud or nocloud-net with meta-data and user-data; a filesystem \
         with the label cidata (or fs_label); systemd credentials cloud-init.user-data or cloud-init.meta-data; seedfrom, or user-data and meta-data, below datasource: NoCloud: in the configuration",
        marks::mark,
    )],
    labels: &[marks::LABEL],
    read: Some(seed::read),
    deprecated: marks::deprecated,
    service: Some(service::job),
    has_no_address: true,
    read_on_boot: true,
    seed: Some(|_, files, place| seed::of_files(files, place)),
    drive_is_due: Some(marks::serial_says_no_cloud),
    settings: &[
        ("seedfrom", "a URL or a folder with meta-data, user-data, vendor-data and network-config"),
        ("fs_label", "the label of the drive, instead of cidata; null: no drive is read"),
        ("meta-data", "meta-data, in the configuration itself"),
        ("user-data", "user-data, in the configuration itself"),
        ("vendor-data", "vendor-data, in the configuration itself"),
        ("network-config", "a network configuration, in the configuration itself"),
        MAX_WAIT,
        TIMEOUT,
        RETRIES,
    ],
    docs: "The owner's own meta-data and user-data: on a drive labelled cidata; in /var/lib/cloud/seed/nocloud; where \
        ds=nocloud;s=… points, on the kernel command line or in the DMI serial number; in systemd's system credentials \
        cloud-init.meta-data, cloud-init.user-data, cloud-init.vendor-data and cloud-init.network-config (SMBIOS, fw_cfg, the \
        kernel command line, /run/credentials/@system); where seedfrom points, a path or an http(s) URL; or in the image's configuration itself. Any of these is enough. Credentials of SMBIOS and fw_cfg \
        are not used in a confidential virtual machine, whose host gives them.",
    ..Source::NEW
};
