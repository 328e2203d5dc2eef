//! Which sources may be asked over the network, for how long, and whether a drive is due.
//!
//! Whoever answers on the link-local addresses gets root: a service is asked only where the machine says that it is on that
//! cloud (CVE-2024-6174), or its owner does.

use super::checks::serial_says_no_cloud;
use super::facts::Facts;
use super::report::{Line, Outcome, Report};
use super::{Verdict, table, virt};
use crate::source::LOCAL;
use crate::source::service::SERVICES;
use std::time::Duration;

/// How long a service is asked that only may be there. One that is there has what the stage has.
pub const MAYBE_TIME: Duration = Duration::from_secs(20);
/// A list with more names is what a distribution ships for every cloud, not somebody's choice for these machines.
const MAX_CHOICE: usize = 8;

/// How sure it is that a service is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certainty {
    Certain,
    Maybe,
}

impl Certainty {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Certainty::Certain => "certain",
            Certainty::Maybe => "maybe",
        }
    }
}

/// A source that may be asked over the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// cloud-init's name: `OpenStack`.
    pub name: &'static str,
    pub certainty: Certainty,
}

impl Report {
    /// The sources that may be asked over the network and that prepivot knows how to ask, in the order of the list.
    pub fn services(&self, facts: &Facts) -> Vec<Service> {
        let asked = &facts.asked;
        let certain = |name: &String| (name.clone(), Certainty::Certain);
        let named: Vec<(String, Certainty)> = if matches!(self.outcome, Outcome::Disabled | Outcome::DisabledByPolicy) {
            Vec::new()
        } else if let Some((name, _)) = &asked.forced {
            vec![certain(name)]
        } else if let Some(list) = asked.single() {
            list.iter().map(certain).collect()
        } else {
            let found = self.found(asked.policy);
            let listed = self.lines.iter().filter(|l| l.listed);
            listed.filter_map(|l| Some((l.source.clone(), certainty(facts, l, &found)?))).collect()
        };
        let known = named.into_iter().filter_map(|(name, certainty)| Some((table::named(&name)?.name, certainty)));
        let asked = known.filter(|(name, _)| SERVICES.iter().any(|s| s.name == *name));
        asked.map(|(name, certainty)| Service { name, certainty }).collect()
    }

    /// The sources that are looked for, in their order.
    pub fn names(&self, facts: &Facts) -> Vec<String> {
        match &facts.asked.forced {
            Some((name, _)) => vec![name.clone()],
            None => self.lines.iter().filter(|l| l.listed).map(|l| l.source.clone()).collect(),
        }
    }

    /// What the machine has, or its owner names, and prepivot does not read: each with the reason.
    pub fn unread(&self, facts: &Facts) -> Vec<String> {
        let reads = |name: &str| LOCAL.iter().any(|s| s.name == name) || SERVICES.iter().any(|s| s.name == name);
        let found = self.lines.iter().filter(|l| l.listed && l.finding.verdict == Verdict::Found);
        let found = found.map(|l| (&l.source, &l.finding.why));
        let forced = facts.asked.forced.as_ref().map(|(name, place)| (name, place));
        let unread = found.chain(forced).filter(|(name, _)| table::named(name).is_some_and(|line| !reads(line.name)));
        unread.map(|(name, why)| format!("{name} ({why})")).collect()
    }

    /// Whether the machine or its owner says that there is a drive: only sources that read one are named, the DMI says
    /// NoCloud, or nova made the machine, which may give one.
    pub fn drive_is_due(&self, facts: &Facts) -> bool {
        let reads_drive = |name: &str| table::named(name).is_some_and(|l| LOCAL.iter().any(|s| s.name == l.name));
        if let Some((name, _)) = &facts.asked.forced {
            return reads_drive(name);
        }
        let chosen = facts.asked.chosen().unwrap_or_default();
        let is_nova = || {
            let nova = |l: &Line| l.listed && l.source == "OpenStack" && l.finding.verdict == Verdict::Found;
            self.lines.iter().any(nova) && facts.is_listed("ConfigDrive")
        };
        (!chosen.is_empty() && chosen.iter().all(|name| reads_drive(name))) || serial_says_no_cloud(facts) || is_nova()
    }
}

/// How sure a listed source is, where `found` are those that count as found; None where it is not to be asked.
fn certainty(facts: &Facts, line: &Line, found: &[String]) -> Option<Certainty> {
    // NoCloud's address is one that the owner gave; without it there is nothing to ask.
    if found.contains(&line.source) || line.source.eq_ignore_ascii_case("NoCloud") {
        return Some(Certainty::Certain);
    }
    let asked = &facts.asked;
    let chosen = || asked.chosen().is_some_and(|names| names.len() <= MAX_CHOICE);
    let maybe = asked.policy.maybe && line.finding.verdict == Verdict::Maybe;
    let may_be = maybe || (facts.platform.virt == virt::NONE && chosen());
    (found.is_empty() && may_be).then_some(Certainty::Maybe)
}

#[cfg(test)]
mod tests {
    use super::super::{Platform, identify};
    use super::*;
    use crate::base::testing::TempDir;
    use crate::document::yaml;
    use crate::machine::Machine;
    use crate::root::{Root, Use};

    /// The services with how sure they are, and whether a drive is due.
    fn services(files: &[(&str, &str)], own: &str) -> (String, bool) {
        let dir = TempDir::new("services");
        for (path, content) in files {
            let path = dir.0.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        let (root, machine) = (Root::open(&dir.0, Use::Plan).unwrap(), Machine::read(&dir.0));
        let own = yaml::parse("t", own).unwrap();
        let facts = Facts::new(&machine, &root, &own, Platform::of(&machine, &root));
        let report = identify(&facts);
        let services = report.services(&facts).into_iter().map(|s| format!("{} {}", s.name, s.certainty.name()));
        (services.collect::<Vec<_>>().join(", "), report.drive_is_due(&facts))
    }

    const NOVA: (&str, &str) = ("sys/class/dmi/id/product_name", "OpenStack Nova\n");
    const QEMU: (&str, &str) = ("sys/class/dmi/id/sys_vendor", "QEMU\n");

    #[test]
    fn only_a_mark_or_the_owner_opens_the_network() {
        let all = |own: &str| services(&[QEMU], own).0;
        assert_eq!(all(""), "NoCloud certain");
        assert_eq!(all("datasource_list: [ConfigDrive, OpenStack]"), "");
        assert_eq!(all("datasource_list: [OpenStack, None]"), "OpenStack certain");
        assert_eq!(services(&[NOVA], "").0, "NoCloud certain, OpenStack certain");
        assert_eq!(services(&[NOVA], "datasource_list: [ConfigDrive, GCE]").0, "");
        let named = |line: &str| services(&[QEMU, ("proc/cmdline", line)], "datasource_list: [GCE, Hetzner]").0;
        assert_eq!(named("ds=openstack;metadata_urls=http://h"), "OpenStack certain");
        assert_eq!(named("ro"), "");
        for off in ["cloud-init=disabled", "ci.di.policy=disabled"] {
            assert_eq!(services(&[NOVA, ("proc/cmdline", off)], "").0, "", "{off}");
        }
        assert_eq!(services(&[NOVA, ("etc/cloud/ds-identify.cfg", "policy: disabled\n")], "").0, "");
    }

    #[test]
    fn bare_metal_without_a_mark_goes_by_the_images_own_choice() {
        let metal = |own: &str| services(&[("sys/class/dmi/id/sys_vendor", "Dell Inc.\n")], own).0;
        assert_eq!(metal("datasource_list: [ConfigDrive, OpenStack, None]"), "OpenStack maybe");
        assert_eq!(metal(""), "NoCloud certain");
        let every: Vec<&str> = super::super::SOURCES.iter().map(|s| s.name).collect();
        assert_eq!(metal(&format!("datasource_list: [{}, None]", every.join(", "))), "NoCloud certain");
    }

    #[test]
    fn when_a_drive_is_due() {
        let due = |files: &[(&str, &str)], own: &str| services(files, own).1;
        assert!(due(&[QEMU], "datasource_list: [NoCloud, ConfigDrive, None]"));
        assert!(due(&[NOVA], "") && !due(&[NOVA], "datasource_list: [OpenStack, GCE]"));
        assert!(due(&[("sys/class/dmi/id/product_serial", "ds=nocloud\n")], ""));
        assert!(due(&[("proc/cmdline", "ds=nocloud")], "") && !due(&[NOVA, ("proc/cmdline", "ds=openstack")], ""));
        assert!(!due(&[QEMU], "") && !due(&[QEMU], "datasource_list: [NoCloud, GCE]"));
    }
}
