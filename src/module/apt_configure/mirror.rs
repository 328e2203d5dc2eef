//! Which mirror the packages come from: the cloud-config's for the architecture, else the distribution's own for the cloud
//! and its region, else the distribution's (`system_info: package_mirrors`).

use crate::document::{Map, Value};
use crate::system::ModuleContext;
use crate::system::hostname::Name;
use ureq::http::Uri;

/// The most mirrors of one list whose names are looked up.
const MAX_CANDIDATES: usize = 16;

/// URLs of the archive and of its security updates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mirrors {
    pub primary: Option<String>,
    pub security: Option<String>,
}

/// A name has to be looked up, and there is no network yet.
#[derive(Debug, PartialEq, Eq)]
pub struct Offline;

/// The mirrors that `section`, the value of `apt`, and the image ask for. Without a network (`online` is false) only what
/// needs no look-up.
///
/// # Errors
/// [`Offline`]: a name has to be looked up.
pub fn choose(cx: &mut ModuleContext, section: &Map, arch: &str, online: bool) -> Result<Mirrors, Offline> {
    let primary = configured(cx, section, "primary", arch, online)?;
    let security = configured(cx, section, "security", arch, online)?;
    if primary.is_some() {
        return Ok(Mirrors { security: security.or_else(|| primary.clone()), primary });
    }
    let default = of_image(cx, arch, online)?;
    Ok(Mirrors { primary: default.primary, security: security.or(default.security) })
}

/// The distribution's default mirrors, which the names of the image's package lists begin with.
pub fn failsafe(cx: &ModuleContext, arch: &str) -> Mirrors {
    let url = |kind: &str| package_mirrors(cx, arch)?.get("failsafe")?.get(kind)?.text();
    Mirrors { primary: url("primary"), security: url("security") }
}

/// The entry for an architecture: the first that names it, else the last that names `default`.
pub fn for_arch<'a>(list: &'a Value, arch: &str) -> Option<&'a Value> {
    let names = |entry: &Value, name: &str| {
        let arches = entry.get("arches").and_then(Value::as_list).unwrap_or_default();
        arches.iter().any(|a| a.as_str() == Some(name))
    };
    let list = list.as_list()?;
    list.iter().find(|e| names(e, arch)).or_else(|| list.iter().rfind(|e| names(e, "default")))
}

fn configured(
    cx: &mut ModuleContext,
    section: &Map,
    kind: &str,
    arch: &str,
    online: bool,
) -> Result<Option<String>, Offline> {
    let Some(entry) = section.get(kind).and_then(|list| for_arch(list, arch)) else { return Ok(None) };
    if let Some(uri) = entry.get("uri").and_then(Value::text).filter(|u| !u.is_empty()) {
        return Ok(checked(cx, &format!("apt.{kind}: uri"), uri));
    }
    let listed = entry.get("search").and_then(Value::as_list).unwrap_or_default();
    let listed: Vec<String> = listed.iter().filter_map(Value::text).collect();
    if let Some(found) = first_known(cx, &listed, online)? {
        return Ok(checked(cx, &format!("apt.{kind}: search"), found));
    }
    if !entry.get("search_dns").is_some_and(Value::is_true) {
        return Ok(None);
    }
    let domain = Name::of(cx).and_then(|name| name.fqdn.split_once('.').map(|(_, domain)| format!(".{domain}")));
    let (distro, host) = (cx.distro.name, if kind == "primary" { "mirror" } else { "security-mirror" });
    let domains = domain.into_iter().chain([".localdomain".to_owned(), String::new()]);
    let urls: Vec<String> = domains.map(|domain| format!("http://{distro}-{host}{domain}/{distro}")).collect();
    first_known(cx, &urls, online)
}

/// A URL that cannot end its line in a file.
fn checked(cx: &mut ModuleContext, key: &str, url: String) -> Option<String> {
    if url.contains(|c: char| c.is_control() || c.is_whitespace()) {
        cx.report.warn(format_args!("{key}: expected a URL without spaces: it is ignored"));
        return None;
    }
    Some(url)
}

/// The first URL whose host has an address.
fn first_known(cx: &ModuleContext, urls: &[String], online: bool) -> Result<Option<String>, Offline> {
    if urls.is_empty() {
        return Ok(None);
    }
    if !online {
        return Err(Offline);
    }
    let resolves = |url: &&String| {
        let uri = url.parse::<Uri>().ok();
        uri.as_ref().and_then(Uri::host).is_some_and(|host| cx.outside.resolves(host))
    };
    Ok(urls.iter().take(MAX_CANDIDATES).find(resolves).cloned())
}

fn package_mirrors<'a>(cx: &ModuleContext<'a>, arch: &str) -> Option<&'a Value> {
    for_arch(cx.config.at(&["system_info", "package_mirrors"])?, arch)
}

/// The image's mirrors; in a cloud with mirrors of its own, those of its region that exist.
fn of_image(cx: &ModuleContext, arch: &str, online: bool) -> Result<Mirrors, Offline> {
    let Some(entry) = package_mirrors(cx, arch) else { return Ok(Mirrors::default()) };
    let one = |kind: &str| {
        let templates = entry.at(&["search", kind]).and_then(Value::as_list).unwrap_or_default();
        let urls: Vec<String> = templates.iter().filter_map(|t| placed(cx, t.as_str()?)).collect();
        Ok(first_known(cx, &urls, online)?.or_else(|| entry.at(&["failsafe", kind])?.text()))
    };
    Ok(Mirrors { primary: one("primary")?, security: one("security")? })
}

/// A URL with `%(region)s`, `%(availability_zone)s` and `%(ec2_region)s` filled in; None if the instance has no such value.
fn placed(cx: &ModuleContext, template: &str) -> Option<String> {
    let zone = cx.instance.availability_zone.as_deref();
    let mut url = template.to_owned();
    for (name, value) in [
        ("%(availability_zone)s", zone),
        ("%(region)s", cx.instance.region.as_deref()),
        ("%(ec2_region)s", zone.filter(|_| cx.instance.platform == "ec2").and_then(ec2_region)),
    ] {
        if url.contains(name) {
            // The value becomes part of a host's name.
            let host = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '.') { c } else { '-' };
            url = url.replace(name, value?.chars().map(host).collect::<String>().trim_matches('-'));
        }
    }
    Some(url)
}

/// The region of an availability zone of EC2: `us-east-1` of `us-east-1b`.
fn ec2_region(zone: &str) -> Option<&str> {
    let region = zone.strip_suffix(|c: char| c.is_ascii_lowercase())?;
    let mut parts = region.split('-');
    let letters = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase());
    let country = parts.next()?;
    let number = parts.next_back()?;
    let directions: Vec<&str> = parts.collect();
    (country.len() == 2
        && letters(country)
        && !directions.is_empty()
        && directions.iter().all(|d| letters(d))
        && number.len() == 1
        && number.chars().all(|c| c.is_ascii_digit()))
    .then_some(region)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_of_ec2() {
        for (zone, region) in [
            ("us-east-1b", Some("us-east-1")),
            ("us-gov-west-1a", Some("us-gov-west-1")),
            ("us-east-1", None),
            ("usa-east-1b", None),
            ("nova", None),
            ("us-1b", None),
            ("", None),
        ] {
            assert_eq!(ec2_region(zone), region, "{zone}");
        }
    }
}
