//! The machine's host name, and its files.

use super::ModuleContext;
use crate::base::error::Result;
use crate::base::problem::Problems;
use crate::base::text::quoted;
use crate::instance::host_name;
use crate::root::{Attr, Command};

pub const HOSTNAME: &str = "/etc/hostname";
pub const HOSTS: &str = "/etc/hosts";
/// The longest host name, in bytes (HOST_NAME_MAX, hostname(7)).
const MAX_NAME: usize = 64;
/// The longest fully qualified name, in bytes (RFC 1035, section 2.3.4).
const MAX_FQDN: usize = 253;

/// A machine's names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The short name.
    pub hostname: String,
    /// The fully qualified name; if there is none, the short one.
    pub fqdn: String,
}

impl Name {
    /// The name in the cloud-config, else the source's. None if neither has one (`util.get_hostname_fqdn`).
    pub fn of(cx: &mut ModuleContext) -> Option<Name> {
        let key = |key: &str| cx.text(key).and_then(|n| clean(&n, key, cx.report));
        let (hostname, fqdn) = (key("hostname"), key("fqdn"));
        let local = Name::of_source(cx);
        if let Some(fqdn) = fqdn {
            let short = Name::from(fqdn);
            return Some(Name { hostname: hostname.unwrap_or(short.hostname), ..short });
        }
        match hostname {
            Some(name) if name.contains('.') => Some(Name::from(name)),
            Some(hostname) => Some(Name { fqdn: local.map_or_else(|| hostname.clone(), |name| name.fqdn), hostname }),
            None => local,
        }
    }

    /// The source's name.
    pub fn of_source(cx: &mut ModuleContext) -> Option<Name> {
        cx.instance.local_hostname.as_deref().and_then(|name| local_name(name, cx.report)).map(Name::from)
    }

    /// The name that the system has, unless it is `localhost`: that of /etc/hostname, with the domain that /etc/hosts has for it
    /// (`DataSource.get_hostname`).
    pub fn of_system(cx: &mut ModuleContext) -> Option<Name> {
        let name = read(cx, HOSTNAME).and_then(|name| local_name(&name, cx.report)).filter(|n| n != "localhost")?;
        let hosts = cx.root.text(HOSTS);
        let full = hosts.lines().find_map(|line| {
            let mut names = line.split('#').next()?.split_whitespace().skip(1);
            names.next().filter(|full| full.contains('.') && names.any(|alias| alias == name))
        });
        let full = full.and_then(|full| local_name(full, cx.report));
        Some(Name::from(full.unwrap_or(name)))
    }

    /// The name that becomes the host name, by `prefer_fqdn_over_hostname` or the distribution's default.
    pub fn chosen(&self, cx: &mut ModuleContext) -> &str {
        let prefers = cx.get("prefer_fqdn_over_hostname").map_or(cx.distro.prefers_fqdn(), |v| v.is_true());
        if prefers && self.fqdn.len() > MAX_NAME {
            cx.report.warn(format_args!(
                "the fully qualified hostname is longer than {MAX_NAME} bytes: the short one is used"
            ));
        }
        if prefers && self.fqdn.len() <= MAX_NAME { &self.fqdn } else { &self.hostname }
    }
}

impl From<String> for Name {
    /// The name whose fully qualified form is `fqdn`.
    fn from(fqdn: String) -> Name {
        Name { hostname: fqdn.split('.').next().unwrap_or(&fqdn).to_owned(), fqdn }
    }
}

/// The source's host name. An IP address becomes `ip-10-0-0-1`, as on EC2; `.localdomain`, which is not a domain, is removed.
fn local_name(name: &str, report: &Problems) -> Option<String> {
    let name = clean(&host_name(name), "local-hostname", report).filter(|n| n != "localhost")?;
    let short = name.strip_suffix(".localdomain").filter(|short| !short.contains('.'));
    Some(short.map(str::to_owned).unwrap_or(name))
}

/// A name that every part of a system accepts: letters, digits, `-`, `_` and `.`, without empty labels, and
/// short enough. Invalid characters are replaced and reported; None if nothing is left.
fn clean(name: &str, key: &str, report: &Problems) -> Option<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let replaced: String = name.trim().chars().map(|c| if allowed(c) { c } else { '-' }).take(MAX_FQDN).collect();
    let labels: Vec<String> = replaced
        .split('.')
        .map(|label| label.trim_matches('-').chars().take(MAX_NAME).collect::<String>())
        .filter(|label| !label.is_empty())
        .collect();
    let cleaned = labels.join(".");
    if cleaned != name.trim().trim_end_matches('.') {
        report.warn(format_args!("{key}: not a valid hostname: {} is used", quoted(&cleaned)));
    }
    (!cleaned.is_empty()).then_some(cleaned)
}

/// The name in a file of hostname(5): the first line that is not a comment.
pub fn read(cx: &ModuleContext, path: &str) -> Option<String> {
    let text = cx.root.text(path);
    text.lines().map(str::trim).find(|l| !l.is_empty() && !l.starts_with('#')).map(str::to_owned)
}

/// Writes a name to a file of hostname(5); comments stay.
///
/// # Errors
/// The file cannot be read or written.
pub fn write(cx: &mut ModuleContext, path: &str, name: &str) -> Result<()> {
    let with_name = |text: &str| {
        let comments = text.lines().filter(|l| l.trim_start().starts_with('#'));
        Ok(Some(comments.chain([name]).map(|line| format!("{line}\n")).collect()))
    };
    cx.root.edit_text(path, Attr::root(0o644), with_name).map(drop)
}

/// Makes a file that every program reads readable for all, whatever mode the image's had.
///
/// # Errors
/// The path cannot be resolved.
pub fn readable(cx: &mut ModuleContext, path: &str) -> Result<()> {
    let found = cx.root.stat(path).filter(|found| found.attr.mode != 0o644);
    found.map_or(Ok(()), |found| cx.root.set_attr(path, Attr { mode: 0o644, ..found.attr }))
}

/// Writes /etc/hostname; with `create_hostname_file: false`, only if it exists.
///
/// # Errors
/// The file cannot be read or written.
pub fn write_system(cx: &mut ModuleContext, name: &str) -> Result<()> {
    if cx.flag("create_hostname_file", true) || cx.root.exists(HOSTNAME) {
        write(cx, HOSTNAME, name)?;
        return readable(cx, HOSTNAME);
    }
    log::info!("create_hostname_file is false: {HOSTNAME} is not made");
    Ok(())
}

/// Sets the running kernel's host name. A plan shows this as the command `hostname`.
///
/// # Errors
/// The kernel refuses.
pub fn apply(cx: &mut ModuleContext, name: &str) -> Result<()> {
    if !cx.root.is_live() {
        return cx.root.run(Command::new(["hostname", name]));
    }
    if rustix::system::uname().nodename().to_bytes() == name.as_bytes() {
        return Ok(());
    }
    crate::base::error::Context::context(rustix::system::sethostname(name.as_bytes()), || {
        format!("failed to set the hostname to {name}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::Use;
    use crate::system::testing::Inputs;

    #[test]
    fn hostile_names_are_made_harmless() {
        for (name, expected) in [
            ("web1", Some("web1")),
            ("web1.example.com.", Some("web1.example.com")),
            (" a b\n127.0.0.1 evil ", Some("a-b-127.0.0.1-evil")),
            ("../../etc/passwd", Some("etc-passwd")),
            ("ü", None),
            ("a..b", Some("a.b")),
            ("", None),
            ("-.-", None),
            ("under_score", Some("under_score")),
        ] {
            assert_eq!(clean(name, "hostname", &Problems::new()).as_deref(), expected, "{name:?}");
        }
        assert_eq!(clean(&"a".repeat(500), "hostname", &Problems::new()).unwrap().len(), MAX_NAME);
        assert_eq!(local_name("10.1.2.3", &Problems::new()).as_deref(), Some("ip-10-1-2-3"));
        assert_eq!(local_name("localhost", &Problems::new()), None);
        assert_eq!(local_name("web1.localdomain", &Problems::new()).as_deref(), Some("web1"));
        assert_eq!(local_name("web1.rack.localdomain", &Problems::new()).as_deref(), Some("web1.rack.localdomain"));
    }

    #[test]
    fn the_systems_own_name() {
        let own = |hostname: &str, hosts: &str| {
            let dir = TempDir::new("hostname");
            let mut root = dir.root(Use::Plan);
            root.write(HOSTNAME, hostname, Attr::root(0o644)).unwrap();
            root.write(HOSTS, hosts, Attr::root(0o644)).unwrap();
            Name::of_system(&mut Inputs::new("debian", "").context(&mut root))
                .map(|name| format!("{} {}", name.hostname, name.fqdn))
        };
        let hosts =
            "127.0.0.1 localhost.localdomain localhost\n10.0.0.1 db.x db # web\n127.0.1.1\tweb.example.com\tw web\n";
        for (hostname, expected) in [
            ("# c\nweb\n", Some("web web.example.com")),
            ("db\n", Some("db db.x")),
            ("other\n", Some("other other")),
            ("other.example.com\n", Some("other other.example.com")),
            ("localhost\n", None),
            ("localhost.localdomain\n", None),
            ("", None),
        ] {
            assert_eq!(own(hostname, hosts).as_deref(), expected, "{hostname}");
        }
    }
}
