//! Ec2: Amazon's metadata service, and the clouds that copy it.

mod instance;
pub mod network;
mod service;
pub mod tree;

use super::closed::{Closing, ServiceAddress};
use super::documents::hotplug_of;
use super::search::{Found, Search};
use super::service::{BETWEEN, Job, MAX_WAIT, RETRIES, TIMEOUT, limits, list_setting, switched_off};
use super::table::{Hotplug, Source, Update};
use crate::detect::{Facts, Finding, Mark, Verdict};
use crate::document::Value;
use crate::link::http::Client;
use crate::link::{Uplink, leases};
use instance::{Cloud, is_swapped_ec2};

pub static SOURCE: Source = Source {
    name: "Ec2",
    marks: &[
        Mark::Seed("ec2", &["meta-data", "user-data"]),
        Mark::serial("*.brightbox.com"),
        Mark::asset_tag("*.zstack.io"),
        Mark::vendor("e24cloud"),
        Mark::vendor("Tilaa"),
        Mark::Check(
            "ec2 at the start of DMI product_uuid (in either byte order) or of /sys/hypervisor/uuid; 3DS Outscale VM",
            aws_mark,
        ),
        Mark::Check("strict_id: false, warn or warn,SECONDS: maybe", not_strict),
    ],
    setting: Some(strict_setting),
    service: Some(service_job),
    hotplug: Hotplug {
        rules: |_| hotplug_of("ENV{ID_NET_DRIVER}", "vif|ena|ixgbevf"),
        learns_addresses_singly: true,
        ..Hotplug::NEW
    },
    updates: &[Update::NewInstance, Update::Hotplug],
    read_on_boot: true,
    closing: Closing {
        addresses: &[ServiceAddress::whole("169.254.169.254"), ServiceAddress::whole("fd00:ec2::254")],
        stays: "DNS at 169.254.169.253 and fd00:ec2::253, NTP at 169.254.169.123 and fd00:ec2::123",
    },
    settings: &[
        ("metadata_urls", "addresses of the service, instead of the well-known ones"),
        MAX_WAIT,
        TIMEOUT,
        RETRIES,
        BETWEEN,
        (
            "apply_full_imds_network_config",
            "false: DHCP on the link that the service was asked by, without the others and without further addresses",
        ),
        (
            "strict_id",
            "false, warn or warn,SECONDS: the service may be asked on machines without a mark of EC2, where the policy allows it",
        ),
    ],
    docs: "Amazon EC2 and the clouds that offer its metadata service: Brightbox, e24cloud, Outscale, Tilaa, ZStack. Read from \
        http://169.254.169.254 and http://[fd00:ec2::254], whichever answers first, or from metadata_urls. On AWS with a session \
        token (IMDSv2), elsewhere with one where the service asks for it. The answer must have an instance-id.",
    ..Source::NEW
};

/// Recognises Amazon's machines by their UUID (AWS documentation, "Identify EC2 instances"), and Outscale's
/// by two DMI values.
fn aws_mark(facts: &Facts) -> Option<Finding> {
    if facts.is_container() {
        return None;
    }
    let is = |field: &str, value: &str| facts.dmi(field).as_deref() == Some(value);
    if is("product_name", "3DS Outscale VM") && is("sys_vendor", "3DS Outscale") {
        return Finding::found("DMI product_name 3DS Outscale VM and sys_vendor 3DS Outscale");
    }
    if facts.machine.fact("sys/hypervisor/uuid").is_some_and(|uuid| uuid.starts_with("ec2")) {
        return Finding::found("/sys/hypervisor/uuid begins with ec2");
    }
    let uuid = facts.dmi("product_uuid")?.to_ascii_lowercase();
    if uuid.starts_with("ec2") {
        return Finding::found("DMI product_uuid begins with ec2");
    }
    let swapped = is_swapped_ec2(&uuid);
    if swapped { Finding::found("DMI product_uuid begins with ec2, its first bytes in the other order") } else { None }
}

/// The setting on the kernel command line, and in ds-identify's file.
const STRICT_ID: &str = "ci.datasource.ec2.strict_id";

/// `strict_id` if it is set to something else than true: `false`, `warn`, `warn,5`.
fn loose_id(facts: &Facts) -> Option<String> {
    let on_line = facts.cmdline().value(STRICT_ID).map(str::to_owned);
    let setting = || facts.setting(SOURCE.name, "strict_id").and_then(Value::text);
    let strict_id = on_line.or_else(setting).or_else(|| facts.requested.file_value(STRICT_ID));
    strict_id.filter(|v| is_loose(v))
}

/// The warning that `strict_id: warn` asks for, if nothing shows that this machine is EC2's.
fn unproven(search: &Search) -> Option<&'static str> {
    let on_line = search.machine.cmdline.value(STRICT_ID).map(str::to_owned);
    let strict_id = on_line.or_else(|| search.settings(SOURCE.name)?.get("strict_id")?.text())?;
    let is_asked = strict_id.starts_with("warn") && Cloud::of(search.machine) == Cloud::Unknown;
    is_asked.then_some(
        "this machine has no mark of EC2, and its instance is of EC2's metadata service, as strict_id allows: if that is right, set \
         datasource_list: [Ec2], or strict_id: false",
    )
}

/// Unless the image requires a mark (`strict_id`), the service is possible.
fn not_strict(facts: &Facts) -> Option<Finding> {
    let strict_id = loose_id(facts).filter(|_| !facts.is_container())?;
    Finding::maybe(format!("strict_id is {strict_id}"))
}

/// Has cloud-init accept a machine that is possibly EC2, if the setting allows that.
fn strict_setting(facts: &Facts, finding: &Finding) -> Option<(&'static str, String)> {
    (finding.verdict == Verdict::Maybe).then(|| loose_id(facts).map(|id| ("strict_id", id)))?
}

/// `false`, `warn` and `warn,SECONDS`. Anything else is true.
fn is_loose(strict_id: &str) -> bool {
    let seconds = strict_id.strip_prefix("warn,");
    matches!(strict_id, "false" | "warn") || seconds.is_some_and(|s| s.starts_with(|c: char| c.is_ascii_digit()))
}

fn service_job(search: &mut Search) -> Option<Job> {
    let configured = list_setting(search, SOURCE.name, "metadata_urls");
    let (cloud, nics, machine) = (Cloud::of(search.machine), search.machine.nics(), search.machine.base.clone());
    let full_network = !switched_off(search, SOURCE.name, "apply_full_imds_network_config");
    let warning = unproven(search);
    let fetch = move |client: &Client, base: &str| {
        let crawled = service::crawl(client, base, cloud == Cloud::Aws)?;
        let link = client.uplink().link.as_deref();
        let router = |link: &str| {
            leases::below(&machine).iter().filter(|lease| lease.link == link).find_map(|lease| lease.router())
        };
        let instance = instance::instance(crawled, cloud, base, &nics, link, full_network, &router);
        if let Some(warning) = warning {
            instance.problems.warn(warning);
        }
        Ok(Found { instance, place: base.into() })
    };
    let urls = move |uplink: &Uplink| instance::urls(uplink, &configured);
    Some(Job::new(SOURCE.name, urls, fetch, limits(search, SOURCE.name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::detect::Platform;
    use crate::document::yaml;
    use crate::root::Use;

    #[test]
    fn warns_machine_without_marks_if_asked() {
        for (cmdline, own, uuid, warns) in [
            ("", "datasource: {Ec2: {strict_id: 'warn,5'}}", "0-1", true),
            ("ci.datasource.ec2.strict_id=warn", "{}", "0-1", true),
            ("", "datasource: {Ec2: {strict_id: warn}}", "ec2e1916-9099-7caf-fd21-012345abcdef", false),
            ("", "datasource: {Ec2: {strict_id: false}}", "0-1", false),
            ("", "{}", "0-1", false),
        ] {
            let dir = TempDir::new("ec2-warning");
            dir.write("proc/cmdline", cmdline);
            dir.write("sys/class/dmi/id/product_uuid", uuid);
            let (machine, root) = (dir.machine(), dir.root(Use::Plan));
            let config = yaml::parse("t", own).unwrap();
            let deadline = crate::base::deadline::Deadline::after(std::time::Duration::ZERO);
            let search = Search::new(&machine, &root, &config, deadline);
            assert_eq!(unproven(&search).is_some(), warns, "{cmdline} {own} {uuid}");
        }
    }

    #[test]
    fn strict_id() {
        let loose = |cmdline: &str, own: &str| {
            let dir = TempDir::new("strict-id");
            dir.write("proc/cmdline", cmdline);
            let (machine, root) = (dir.machine(), dir.root(Use::Plan));
            let own = yaml::parse("t", own).unwrap();
            loose_id(&Facts::new(&machine, &root, &own, Platform::of(&machine, &root)))
        };
        assert_eq!(loose("", "datasource: {Ec2: {strict_id: false}}").as_deref(), Some("false"));
        assert_eq!(loose("ci.datasource.ec2.strict_id=warn,5", "").as_deref(), Some("warn,5"));
        assert_eq!(loose("ci.datasource.ec2.strict_id=true", "datasource: {Ec2: {strict_id: false}}"), None);
        assert_eq!(loose("", "datasource: {Ec2: {strict_id: nonsense}}"), None);
    }
}
