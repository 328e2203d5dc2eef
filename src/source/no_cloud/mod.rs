//! NoCloud: meta-data and user-data of the owner's own, from a drive, a folder, the kernel command line, SMBIOS or a URL.

mod marks;
mod seed;
mod service;

use super::table::Source;
use crate::detect::Mark;

pub static SOURCE: Source = Source {
    name: marks::NAME,
    aliases: &["nocloud-net"],
    marks: &[Mark::Check(
        "ds=nocloud in DMI product_serial; /var/lib/cloud/seed/nocloud with meta-data and user-data; a filesystem with the label \
         cidata; datasource: NoCloud: seedfrom in the configuration",
        marks::mark,
    )],
    labels: &[marks::LABEL],
    read: Some(seed::read),
    service: Some(service::job),
    has_no_address: true,
    seed: Some(|_, files, place| seed::of_files(files, place)),
    drive_is_due: Some(marks::serial_says_no_cloud),
    settings: &[
        ("seedfrom", "a URL or a folder with meta-data, user-data, vendor-data and network-config"),
        ("fs_label", "the label of the drive, instead of cidata; null: no drive is read"),
        ("meta-data", "meta-data, in the configuration itself"),
        ("user-data", "user-data, in the configuration itself"),
        ("vendor-data", "vendor-data, in the configuration itself"),
        ("network-config", "a network configuration, in the configuration itself"),
        ("max_wait", "how long the address of seedfrom is tried, in seconds"),
        ("timeout", "how long one request may take, in seconds"),
        ("retries", "how often a request that failed is sent again"),
    ],
    docs: "meta-data and user-data of the owner's own: on a drive labelled cidata, in a folder of the image, on the kernel command \
        line or in the SMBIOS serial number (ds=nocloud;s=…), or at a URL.",
    ..Source::NEW
};
