//! Renderers: each converts the model to the files of one network stack. They do not write; the caller does,
//! through the root.

mod eni;
mod grammar;
mod ini;
mod iproute;
pub mod merge;
mod netplan;
mod network_manager;
mod networkd;
pub mod renderer;
mod sysconfig;
mod udev;

pub use renderer::{Exists, File, HEADER, Owned, Renderer, Target};

use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::base::text::quoted;
use crate::machine::Distro;

/// All renderers, in the order that applies to distributions without a preference (cloud-init's DEFAULT_PRIORITY).
pub static RENDERERS: &[&Renderer] =
    &[&eni::RENDERER, &sysconfig::RENDERER, &netplan::RENDERER, &network_manager::RENDERER, &networkd::RENDERER];

/// Distributions, by cloud-init's names, and the renderers that they prefer, the first one most. From cloud-init's default
/// configuration for each (config/cloud.cfg.tmpl, `system_info: network: renderers`).
static PREFERENCES: &[(&[&str], &[&Renderer])] = &[
    (&["debian"], &[&netplan::RENDERER, &eni::RENDERER, &networkd::RENDERER]),
    (&["ubuntu"], &[&netplan::RENDERER, &eni::RENDERER, &sysconfig::RENDERER]),
    (&["raspberry-pi-os"], &[&netplan::RENDERER, &network_manager::RENDERER]),
    (&["alpine"], &[&eni::RENDERER]),
    (
        &["almalinux", "centos", "cloudlinux", "eurolinux", "miraclelinux", "rhel", "rocky", "virtuozzo"],
        &[&eni::RENDERER, &netplan::RENDERER, &network_manager::RENDERER, &sysconfig::RENDERER, &networkd::RENDERER],
    ),
    (
        &["fedora"],
        &[&netplan::RENDERER, &network_manager::RENDERER, &networkd::RENDERER, &sysconfig::RENDERER, &eni::RENDERER],
    ),
    (&["azurelinux"], &[&netplan::RENDERER, &networkd::RENDERER, &network_manager::RENDERER]),
    (&["mariner", "photon"], &[&networkd::RENDERER]),
    (&["openmandriva"], &[&network_manager::RENDERER, &networkd::RENDERER]),
];

/// cloud-init's renderers for other systems, which lists copied from its documentation contain.
const OTHER_SYSTEMS: [&str; 3] = ["freebsd", "netbsd", "openbsd"];

/// The renderers that a distribution prefers, the first one most.
pub fn preferred(distro: &Distro) -> &'static [&'static Renderer] {
    let own = PREFERENCES.iter().find(|(distros, _)| distros.contains(&distro.name));
    own.map_or(RENDERERS, |(_, renderers)| renderers)
}

/// The first renderer whose stack the root has, in the order of `configured` (`system_info: network: renderers`), else of the
/// distribution. An unknown name in `configured` is reported.
///
/// # Errors
/// The root has none of these stacks.
pub fn choose(
    exists: &Exists,
    target: &Target,
    configured: Option<&[String]>,
    report: &Problems,
) -> Result<&'static Renderer> {
    let mut order = Vec::new();
    for name in configured.unwrap_or_default() {
        match by_name(name) {
            Some(renderer) => order.push(renderer),
            None if OTHER_SYSTEMS.contains(&name.as_str()) => {}
            None => report.warn(format_args!(
                "system_info.network.renderers: expected some of {}, found {}; it is ignored",
                names().join(", "),
                quoted(name)
            )),
        }
    }
    if configured.is_none() {
        order.extend(preferred(&target.distro));
    }
    order.iter().copied().find(|r| r.is_available(exists, target)).ok_or_else(|| {
        let names: Vec<&str> = order.iter().map(|r| r.name).collect();
        Error::new(format!(
            "no network stack to write for: the root has none of {}; install one of them, or set system_info: network: renderers",
            names.join(", ")
        ))
    })
}

/// The renderer called `name`.
pub fn by_name(name: &str) -> Option<&'static Renderer> {
    RENDERERS.iter().copied().find(|r| r.name == name)
}

/// The names of all renderers.
pub fn names() -> Vec<&'static str> {
    RENDERERS.iter().map(|r| r.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::problem::Severity;
    use crate::document::Value;
    use crate::machine::Nic;
    use crate::network::names;
    use crate::network::testing::target;

    #[test]
    fn chooses_the_first_available_stack() {
        let chosen = |distro: &str, paths: &[&str], configured: Option<&[String]>, report: &Problems| {
            choose(&|p: &str| paths.contains(&p), &target(distro), configured, report).map(|r| r.name)
        };
        let report = Problems::new();
        // A minimal root has no `ip`.
        let networkd = ["/usr/bin/systemctl", "/usr/lib/systemd/systemd-networkd"];
        let both = [&networkd[..], &["/usr/sbin/netplan"]].concat();
        assert_eq!(chosen("debian", &networkd, None, &report), Ok("networkd"));
        assert_eq!(chosen("ubuntu", &both, None, &report), Ok("netplan"));
        let error = chosen("debian", &[], None, &report).unwrap_err().to_string();
        assert!(error.contains("netplan, eni, networkd"), "{error}");
        assert!(report.is_empty());
        let own = ["odd".to_owned(), "networkd".to_owned()];
        assert_eq!(chosen("ubuntu", &both, Some(&own), &report), Ok("networkd"));
        assert!(report.texts(Severity::Warning)[0].contains("found \"odd\""), "{report:?}");
    }

    #[test]
    fn a_device_that_carries_the_root_is_kept() {
        let text = "version: 2\nethernets: {a: {dhcp4: true}, b: {dhcp4: true, critical: false}, c: {dhcp4: true},\n\
                    \x20 d: {match: {macaddress: '52:54:00:00:00:0d'}, set-name: lan0, dhcp4: true}}";
        let mut network = crate::network::testing::network(text);
        let nic = |name: &str, mac: &str| Nic { name: name.into(), mac: mac.into(), kind: 1, ..Nic::default() };
        let up = [nic("a", ""), nic("b", ""), nic("none", ""), nic("eth3", "52:54:00:00:00:0d")];
        network.keep(&|interface| up.iter().any(|nic| names::is_device(interface, nic)));
        let files = |renderer: &Renderer, distro: &str| {
            let report = Problems::new();
            let files = renderer.files(&network, &crate::network::testing::target(distro), &report);
            let all = files.iter().map(|f| format!("{}\n{}", f.path, f.content)).collect::<String>();
            let reported = report.entries().iter().filter(|e| e.to_string().contains("keep_configuration")).count();
            (all, files, reported)
        };
        let count = |renderer: &Renderer, distro: &str, word: &str| {
            let (all, _, reported) = files(renderer, distro);
            assert_eq!(reported, 0, "{} {distro}", renderer.name);
            all.matches(word).count()
        };
        assert_eq!(count(&netplan::RENDERER, "ubuntu", "critical: true"), 2);
        assert_eq!(count(&networkd::RENDERER, "debian", "\nKeepConfiguration=yes\n"), 2);
        assert_eq!(count(&sysconfig::RENDERER, "sles", "\nSTARTMODE=nfsroot\n"), 2);
        assert_eq!(count(&eni::RENDERER, "debian", "\nno-auto-down "), 2);
        assert_eq!(count(&network_manager::RENDERER, "fedora", "keep_configuration"), 0);
        assert_eq!(count(&sysconfig::RENDERER, "rhel", "keep_configuration"), 0);
        // Other ifupdowns have no word for it.
        let (all, _, reported) = files(&eni::RENDERER, "alpine");
        assert!(reported == 2 && !all.contains("no-auto-down"), "{all}");
        let of_networkd = files(&networkd::RENDERER, "debian").1;
        let is_kept = |name: &str| {
            let file = of_networkd.iter().find(|f| f.path.ends_with(&format!("-{name}.network"))).unwrap();
            file.content.contains("\nKeepConfiguration=yes\n")
        };
        assert_eq!(["a", "b", "c", "lan0"].map(is_kept), [true, false, false, true]);
    }

    #[test]
    fn defaults_need_no_support_of_the_stack() {
        let overrides = "{send-hostname: true, use-dns: true, use-domains: false, use-hostname: true, use-mtu: true, use-ntp: true, use-routes: true}";
        let v2 = format!(
            "version: 2\nethernets: {{e: {{dhcp4: true, dhcp4-overrides: {overrides}, dhcp6: true, dhcp6-overrides: {overrides}, accept-ra: true,\
             critical: false, emit-lldp: false, ignore-carrier: false, ipv6-privacy: false, link-local: [ipv6], optional: false, wakeonlan: false}}}}"
        );
        let v1 = "version: 1\nconfig: [{type: physical, name: e, keep_configuration: false, subnets: [{type: dhcp, control: manual}]}]";
        let reported = |renderer: &Renderer, distro: &str, text: &str| {
            let (network, report) = (crate::network::testing::network(text), Problems::new());
            let files = renderer.files(&network, &target(distro), &report);
            let entries = report.entries().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
            (entries, files)
        };
        for renderer in RENDERERS {
            for distro in ["alpine", "debian", "rhel", "sles"] {
                for text in [v2.as_str(), v1] {
                    assert_eq!(reported(renderer, distro, text).0, "", "{} {distro}", renderer.name);
                }
            }
        }
        // It is brought up by hand all the same.
        let (_, netplan) = reported(&netplan::RENDERER, "ubuntu", v1);
        assert!(netplan[0].content.contains("activation-mode: manual"));
        let (_, networkd) = reported(&networkd::RENDERER, "debian", v1);
        assert!(networkd[0].content.contains("ActivationPolicy=manual\n"), "{}", networkd[0].content);
        // Version 2's `critical` is version 1's `keep_configuration`.
        let kept = "version: 2\nethernets: {e: {dhcp4: true, critical: true}}";
        assert_eq!(reported(&network_manager::RENDERER, "fedora", kept).0, "");
        let (entries, suse) = reported(&sysconfig::RENDERER, "sles", kept);
        assert!(entries.is_empty() && suse[0].content.contains("\nSTARTMODE=nfsroot\n"), "{entries}");
        let (_, networkd) = reported(&networkd::RENDERER, "debian", kept);
        assert!(networkd[0].content.contains("\nKeepConfiguration=yes\n"), "{}", networkd[0].content);
        let other = "version: 2\nethernets: {e: {addresses: ['2001:db8::2/64'], link-local: [], emit-lldp: true, large-receive-offload: false}}";
        let (entries, _) = reported(&sysconfig::RENDERER, "sles", other);
        for key in ["link-local", "emit-lldp", "large-receive-offload"] {
            assert!(entries.contains(&format!("cannot express {key} of e")), "{entries}");
        }
    }

    #[test]
    fn preferences_are_cloud_inits() {
        let Some(tables) = crate::document::testing::vectors("tables.json") else { return };
        for (name, config) in tables.get("default_cfg_per_variant").and_then(Value::as_map).unwrap().iter() {
            if matches!(name, "freebsd" | "unknown") {
                continue;
            }
            let distro = Distro::named(if name == "suse" { "opensuse" } else { name });
            let Some(theirs) = config.at(&["system_info", "network", "renderers"]).and_then(Value::as_list) else {
                assert_eq!(preferred(&distro).len(), RENDERERS.len(), "{name}");
                continue;
            };
            let ours: Vec<Value> = preferred(&distro).iter().map(|r| r.name.into()).collect();
            assert_eq!(ours, theirs, "{name}");
        }
        for (distros, _) in PREFERENCES {
            assert!(distros.iter().all(|name| Distro::named(name).name == *name), "{distros:?}");
        }
    }
}
