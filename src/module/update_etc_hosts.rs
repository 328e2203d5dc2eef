//! # update_etc_hosts
//!
//! Keeps the machine's own name in /etc/hosts on every boot. With `localhost` one line is added and the rest stays; with
//! `true` the whole file is written, from /etc/cloud/templates/hosts.DISTRO.tmpl if the image has it.
//!
//! ```yaml
//! manage_etc_hosts: localhost
//! ```
//!
//! ```schema
//! manage_etc_hosts: (true false localhost) | (template) ^22.3 "Use true instead."
//! ```

use super::Module;
use crate::base::deprecated;
use crate::base::error::Result;
use crate::document::{Map, Value};
use crate::instance::Frequency;
use crate::machine::Family;
use crate::root::{Attr, Stage};
use crate::system::hostname::{HOSTS, Name, readable};
use crate::system::{ModuleContext, template};

pub static MODULE: Module = Module {
    name: "update_etc_hosts",
    stage: Stage::Network,
    frequency: Frequency::Always,
    keys: &["manage_etc_hosts"],
    before_pivot: Some(before_pivot),
    ..Module::NEW
};

fn before_pivot(cx: &mut ModuleContext) -> Result<()> {
    let Some(value) = cx.get("manage_etc_hosts") else { return Ok(()) };
    let is_template = value.as_str() == Some("template");
    if is_template {
        cx.report.deprecated(deprecated::HOSTS_TEMPLATE.about(""));
    }
    let whole = value.is_true() || is_template;
    if !whole && value.as_str() != Some("localhost") {
        if !value.is_false() {
            cx.report.warn(format_args!("manage_etc_hosts: expected true, false or localhost: {HOSTS} is not changed"));
        }
        return Ok(());
    }
    let Some(name) = Name::of(cx).or_else(|| Name::of_system(cx)) else {
        cx.report
            .warn("manage_etc_hosts is set, but the configuration, the datasource and /etc/hostname have no hostname");
        return Ok(());
    };
    if whole {
        let text = from_template(cx, &name)?;
        return cx.root.write(HOSTS, text, Attr::root(0o644));
    }
    let address = own_address(cx);
    cx.root.edit_text(HOSTS, Attr::root(0o644), |text| Ok(with_line(text, address, &name)))?;
    readable(cx, HOSTS)
}

/// The address under which the machine's own name is known.
fn own_address(cx: &ModuleContext) -> &'static str {
    match (cx.distro.family, cx.distro.name) {
        (_, "mariner") => "127.0.0.1",
        (Family::Debian | Family::Alpine | Family::Suse | Family::Photon, _) => "127.0.1.1",
        _ => "127.0.0.1",
    }
}

fn from_template(cx: &ModuleContext, name: &Name) -> Result<String> {
    let family = match (cx.distro.family, cx.distro.name) {
        (_, own @ ("azurelinux" | "mariner" | "openeuler" | "aosc")) => own,
        (Family::Debian, _) => "debian",
        (Family::Suse, _) => "suse",
        (Family::Alpine, _) => "alpine",
        (Family::Arch, _) => "arch",
        (Family::Gentoo, _) => "gentoo",
        (Family::Photon, _) => "photon",
        (Family::Redhat | Family::Other, _) => "redhat",
    };
    let values: Map = [("hostname", &*name.hostname), ("fqdn", &*name.fqdn)].into_iter().collect();
    let text = template::of_image(cx, &format!("hosts.{family}"), &Value::Map(values))?;
    Ok(text.unwrap_or_else(|| built_in(family, name)))
}

/// The lines of cloud-init's template for the distribution, for an image without one.
fn built_in(family: &str, name: &Name) -> String {
    let lines: &[&str] = match family {
        "debian" | "arch" => &["127.0.1.1 @", "127.0.0.1 localhost", LOOPBACK6, NODES, ROUTERS],
        "aosc" => &["127.0.0.1 @", "127.0.0.1 localhost", LOOPBACK6, NODES, ROUTERS],
        "alpine" => &[DOMAIN4, LOCAL4, "127.0.1.1 @", LOCAL6, NODES, ROUTERS],
        "suse" => &[
            "127.0.1.1 @",
            DOMAIN4,
            LOCAL4,
            "::1 @",
            DOMAIN6,
            LOCAL6,
            "::1 localhost ipv6-localhost ipv6-loopback",
            "fe00::0 ipv6-localnet",
            "ff00::0 ipv6-mcastprefix",
            "ff02::1 ipv6-allnodes",
            "ff02::2 ipv6-allrouters",
            "ff02::3 ipv6-allhosts",
        ],
        "photon" | "mariner" => &["127.0.0.1 @", DOMAIN4, LOCAL4, "::1 @", LOCAL6],
        _ => &["127.0.0.1 @", DOMAIN4, LOCAL4, "::1 @", DOMAIN6, LOCAL6],
    };
    let own = format!("{} {}", name.fqdn, name.hostname);
    let mut text = String::from(
        "# Written on every boot, because manage_etc_hosts is true. To change it for good, set manage_etc_hosts to false\n\
         # or give the image a template in /etc/cloud/templates.\n",
    );
    for line in lines {
        text.push_str(&line.replace('@', &own));
        text.push('\n');
    }
    text
}

const DOMAIN4: &str = "127.0.0.1 localhost.localdomain localhost";
const LOCAL4: &str = "127.0.0.1 localhost4.localdomain4 localhost4";
const DOMAIN6: &str = "::1 localhost.localdomain localhost";
const LOCAL6: &str = "::1 localhost6.localdomain6 localhost6";
const LOOPBACK6: &str = "::1 localhost ip6-localhost ip6-loopback";
const NODES: &str = "ff02::1 ip6-allnodes";
const ROUTERS: &str = "ff02::2 ip6-allrouters";

/// The text with a line for the name at its end, and before it the other lines of the same address. None if it has the line
/// already.
fn with_line(text: &str, address: &str, name: &Name) -> Option<String> {
    let (mut lines, mut same) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let (data, _) = line.split_once('#').unwrap_or((line, ""));
        let mut words = data.split_whitespace();
        if words.next() == Some(address) {
            let mut names = words;
            if names.next() == Some(&name.fqdn) && names.any(|alias| alias == name.hostname) {
                return None;
            }
            same.push(line);
        } else {
            lines.push(line);
        }
    }
    let own = format!("{address}\t{}\t{}\n", name.fqdn, name.hostname);
    lines.extend(same);
    lines.push(&own);
    Some(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::Use;
    use crate::system::testing::Inputs;

    #[test]
    fn the_systems_own_name_is_better_than_none() {
        for (system, expected, warnings) in
            [("web.example\n", "127.0.1.1\tweb.example\tweb\n", 0), ("localhost\n", "", 1)]
        {
            let dir = TempDir::new("etc-hosts");
            let mut root = dir.root(Use::Plan);
            root.write("/etc/hostname", system, Attr::root(0o644)).unwrap();
            let inputs = Inputs::new("debian", "manage_etc_hosts: localhost");
            before_pivot(&mut inputs.context(&mut root)).unwrap();
            assert_eq!((root.text(HOSTS).as_str(), inputs.report.entries().len()), (expected, warnings));
        }
    }

    #[test]
    fn adds_the_line_once_and_keeps_the_rest() {
        let name = Name { hostname: "a".into(), fqdn: "a.b".into() };
        let text = "# mine\n127.0.0.1 localhost # here\n127.0.1.1 old\n\n10.0.0.1 db\n";
        let once = with_line(text, "127.0.1.1", &name).unwrap();
        assert_eq!(once, "# mine\n127.0.0.1 localhost # here\n\n10.0.0.1 db\n127.0.1.1 old\n127.0.1.1\ta.b\ta\n");
        assert_eq!(with_line(&once, "127.0.1.1", &name), None);
        assert_eq!(with_line("", "127.0.0.1", &name).unwrap(), "127.0.0.1\ta.b\ta\n");
    }
}
