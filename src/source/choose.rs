//! Chooses from the detected sources: those to look for locally, the services that may be asked and for how long, and whether a
//! drive is expected.
//!
//! Whoever controls a link-local address can become root through it. So a service is asked only if marks of
//! the machine (CVE-2024-6174) or its owner say that it is there.

use super::table::{SOURCES, Source, named};
use crate::detect::{Candidacy, Facts, Outcome, Report, Verdict, named_source, virt};
use crate::instance::Instance;
use std::time::Duration;

/// How long a service is asked that may not exist. One that certainly exists is asked until the stage's deadline.
pub const MAYBE_TIME: Duration = Duration::from_secs(20);
/// A list with more names is one that a distribution ships for every cloud, not its owner's choice for this
/// machine.
const MAX_CHOICE: usize = 8;

/// How certain it is that a service exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certainty {
    Certain,
    Maybe,
}

impl Certainty {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Certainty::Certain => "certain",
            Certainty::Maybe => "maybe",
        }
    }
}

/// A source whose service may be asked over the network.
#[derive(Clone)]
pub struct Service {
    pub source: &'static Source,
    pub certainty: Certainty,
    /// Whether the machine has a mark of the source. Otherwise only its owner or a list names it.
    pub marked: bool,
}

/// The sources whose services may be asked over the network, in the order of the list.
pub fn services(report: &Report, facts: &Facts) -> Vec<Service> {
    let requested = &facts.requested;
    let certain = |name: &String| (name.clone(), Certainty::Certain);
    let named_sources: Vec<(String, Certainty)> =
        if matches!(report.outcome, Outcome::Disabled | Outcome::DisabledByPolicy) {
            Vec::new()
        } else if let Some((names, _)) = &requested.forced {
            names.iter().map(certain).collect()
        } else if let Some(list) = requested.single() {
            list.iter().map(certain).collect()
        } else {
            let found = report.found(requested.policy);
            let listed = report.lines.iter().filter(|l| l.listed);
            listed.filter_map(|l| Some((l.source.clone(), certainty(facts, l, &found)?))).collect()
        };
    let known = named_sources.into_iter().filter_map(|(name, certainty)| Some((named(&name)?, certainty)));
    known
        .filter(|(source, _)| source.service.is_some())
        .map(|(source, certainty)| Service { source, certainty, marked: is_marked(report, source) })
        .collect()
}

/// Whether the machine has a mark of a source.
fn is_marked(report: &Report, source: &Source) -> bool {
    report.lines.iter().any(|l| source.is_named(&l.source) && l.finding.verdict == Verdict::Found)
}

/// The names of the sources to look for, in order.
pub fn names(report: &Report, facts: &Facts) -> Vec<String> {
    match &facts.requested.forced {
        Some((names, _)) => names.clone(),
        None => report.lines.iter().filter(|l| l.listed).map(|l| l.source.clone()).collect(),
    }
}

/// The sources that the machine has or its owner names, but this build leaves out, each with the reason.
pub fn unread(report: &Report, facts: &Facts) -> Vec<String> {
    let found = report.lines.iter().filter(|l| l.listed && l.finding.verdict == Verdict::Found);
    let found = found.map(|l| (&l.source, &l.finding.why));
    let forced = facts.requested.forced.iter().flat_map(|(names, place)| names.iter().map(move |name| (name, place)));
    let unread = found.chain(forced).filter(|(name, _)| named(name).is_some_and(|source| !source.is_read()));
    unread.map(|(name, why)| format!("{name} ({why})")).collect()
}

/// Whether to fall back to DataSourceNone when no source answered: cloud-init would run, and the list has None. A list that only
/// ds-identify or cloud-init itself would end with None leaves the machine as it is, unless the owner has it provisioned anyway.
pub fn falls_back(report: &Report, facts: &Facts) -> bool {
    let requested = &facts.requested;
    match report.outcome {
        Outcome::Found => requested.lists_none(),
        Outcome::Enabled => requested.lists_none() || requested.list.is_none(),
        Outcome::NotFound | Outcome::DisabledByPolicy | Outcome::Disabled => false,
    }
}

/// The first source that the machine has or its owner names, but only the real root can read: its name and
/// the reason.
pub fn left_to_real_root(report: &Report, facts: &Facts) -> Option<String> {
    let found = report.lines.iter().filter(|l| l.listed && l.finding.verdict == Verdict::Found).map(|l| &l.source);
    let forced = facts.requested.forced.iter().flat_map(|(names, _)| names);
    forced.chain(found).find_map(|name| Some(format!("{name}: {}", named(name)?.real_root.alone?(facts)?)))
}

/// The first source that the real root may have data of, unseen by the initramfs ([`super::RealRoot::unseen`]): its name and the reason. On
/// the machine of the cached instance only that instance's source is considered; a copy of it may have got any of `names`.
pub fn unseen(names: &[String], facts: &Facts, cached: &Instance) -> Option<String> {
    let is_copy = cached.machine_uuid != facts.machine.uuid();
    let mut sources =
        names.iter().filter_map(|name| named(name)).filter(|source| is_copy || source.is_named(&cached.source));
    sources.find_map(|source| Some(format!("{}: {}", source.name, source.real_root.unseen?(facts)?)))
}

/// What says that a drive will appear: the kernel command line names a source that reads drives, or the marks of a source say so. A
/// list of the image does not: its machines start without a drive, too.
pub fn drive_is_due(report: &Report, facts: &Facts) -> Option<String> {
    if let Some((names, place)) = &facts.requested.forced {
        let reads_drive = |name: &&String| named(name).is_some_and(|s| !s.labels.is_empty() && !s.has_other_ways);
        // Of several, another one may have the instance.
        let only = names.first().filter(|_| names.len() == 1).filter(reads_drive);
        let due = only.filter(|_| named_source(facts.cmdline()).is_some());
        return due.map(|name| format!("{name} is named by {place}"));
    }
    if matches!(report.outcome, Outcome::Disabled | Outcome::DisabledByPolicy) {
        return None;
    }
    let due = SOURCES.iter().find(|s| s.drive_is_due.is_some_and(|due| due(facts)))?;
    Some(format!("this machine has the marks of {}", due.name))
}

/// How certain it is that a listed source exists; `found` are the detected sources. None: its
/// service must not be asked.
fn certainty(facts: &Facts, line: &Candidacy, found: &[String]) -> Option<Certainty> {
    if found.contains(&line.source) || named(&line.source).is_some_and(|s| s.has_no_address) {
        return Some(Certainty::Certain);
    }
    let requested = &facts.requested;
    let chosen = || requested.chosen().is_some_and(|names| names.len() <= MAX_CHOICE);
    let maybe = requested.policy.maybe && line.finding.verdict == Verdict::Maybe;
    let may_be = maybe || (facts.platform.virt == virt::NONE && chosen());
    (found.is_empty() && may_be).then_some(Certainty::Maybe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::detect::{Platform, identify};
    use crate::document::yaml;
    use crate::root::Use;
    use crate::source::table::{SOURCES, candidates};

    /// The services with how sure they are, and whether a drive is due.
    fn choice(files: &[(&str, &str)], own: &str) -> (String, bool) {
        let dir = TempDir::with("services", files);
        let (root, machine) = (dir.root(Use::Plan), dir.machine());
        let own = yaml::parse("t", own).unwrap();
        let facts = Facts::new(&machine, &root, &own, Platform::of(&machine, &root));
        let report = identify(&facts, &candidates());
        let services =
            services(&report, &facts).into_iter().map(|s| format!("{} {}", s.source.name, s.certainty.name()));
        (services.collect::<Vec<_>>().join(", "), drive_is_due(&report, &facts).is_some())
    }

    /// Sources without a well-known address: asked only if one is configured.
    const ADDRESSED: &str = "MAAS certain, NoCloud certain";
    const NOVA: (&str, &str) = ("sys/class/dmi/id/product_name", "OpenStack Nova\n");
    const QEMU: (&str, &str) = ("sys/class/dmi/id/sys_vendor", "QEMU\n");

    #[test]
    fn only_mark_or_owner_opens_the_network() {
        let all = |own: &str| choice(&[QEMU], own).0;
        assert_eq!(all(""), ADDRESSED);
        assert_eq!(all("datasource_list: [ConfigDrive, OpenStack]"), "");
        assert_eq!(all("datasource_list: [OpenStack, None]"), "OpenStack certain");
        assert_eq!(choice(&[NOVA], "").0, format!("{ADDRESSED}, OpenStack certain"));
        assert_eq!(choice(&[NOVA], "datasource_list: [ConfigDrive, GCE]").0, "");
        let named = |line: &str| choice(&[QEMU, ("proc/cmdline", line)], "datasource_list: [GCE, Hetzner]").0;
        assert_eq!(named("ds=openstack;metadata_urls=http://h"), "OpenStack certain");
        assert_eq!(named("ro"), "");
        for off in ["cloud-init=disabled", "ci.di.policy=disabled"] {
            assert_eq!(choice(&[NOVA, ("proc/cmdline", off)], "").0, "", "{off}");
        }
        assert_eq!(choice(&[NOVA, ("etc/cloud/ds-identify.cfg", "policy: disabled\n")], "").0, "");
    }

    #[test]
    fn bare_metal_without_mark_follows_the_image() {
        let metal = |own: &str| choice(&[("sys/class/dmi/id/sys_vendor", "Dell Inc.\n")], own).0;
        assert_eq!(metal("datasource_list: [ConfigDrive, OpenStack, None]"), "OpenStack maybe");
        assert_eq!(metal(""), ADDRESSED);
        let every: Vec<&str> = SOURCES.iter().map(|s| s.name).collect();
        assert_eq!(metal(&format!("datasource_list: [{}, None]", every.join(", "))), ADDRESSED);
    }

    #[test]
    fn when_a_drive_is_due() {
        let due = |files: &[(&str, &str)], own: &str| choice(files, own).1;
        let line = |text| ("proc/cmdline", text);
        assert!(due(&[NOVA], "") && !due(&[NOVA], "datasource_list: [OpenStack, GCE]"));
        assert!(due(&[("sys/class/dmi/id/product_serial", "ds=nocloud\n")], ""));
        assert!(due(&[line("ds=nocloud")], "") && !due(&[NOVA, line("ds=openstack")], ""));
        assert!(due(&[QEMU, line("ds=opennebula")], "") && !due(&[QEMU, line("ds=ovf")], ""));
        assert!(!due(&[QEMU], "") && !due(&[QEMU], "datasource_list: [NoCloud, GCE]"));
        assert!(!due(&[("etc/cloud/ds-identify.cfg", "datasource: NoCloud\n")], ""));
    }

    #[test]
    fn list_of_the_image_is_no_sign() {
        for list in ["NoCloud", "NoCloud, None", "NoCloud, ConfigDrive", "NoCloud, ConfigDrive, None", "OpenNebula"] {
            assert!(!choice(&[QEMU], &format!("datasource_list: [{list}]")).1, "{list}");
        }
    }
}
