//! URLs as text: for messages, for the connector, and for redirects.

use crate::base::error::{Error, Result};

/// A request in messages: without the URL's query and credentials.
pub fn said(method: &str, url: &str) -> String {
    let plain = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = plain.split_once("://").unwrap_or(("", plain));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{method} {scheme}://{host}{path}")
}

/// A URL's path without the slash at its start, and its query.
pub fn path_and_query(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.split('#').next().unwrap_or_default();
    rest.find(['/', '?']).and_then(|at| rest.get(at..)).unwrap_or_default().trim_start_matches('/')
}

/// The URL without the zone of a link-local address (RFC 6874), because the uplink decides the link.
pub fn unscoped(url: &str) -> String {
    let zone = url.find("://[").and_then(|start| {
        let end = start + url.get(start..)?.find(']')?;
        Some((start + url.get(start..end)?.find('%')?, end))
    });
    match zone.and_then(|(from, to)| Some((url.get(..from)?, url.get(to..)?))) {
        Some((before, after)) => format!("{before}{after}"),
        None => url.into(),
    }
}

/// Scheme, host and port (RFC 6454, section 4): in lower case, without credentials, zone, and the scheme's default port.
fn origin(url: &str) -> Option<(String, String)> {
    let url = unscoped(url);
    let (scheme, rest) = url.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host).to_ascii_lowercase();
    let port = if scheme == "https" { ":443" } else { ":80" };
    let host = host.strip_suffix(port).map(str::to_owned).unwrap_or(host);
    Some((scheme, host))
}

/// Whether two URLs have the same origin, so that credentials for one may be sent to the other.
pub fn same_origin(one: &str, other: &str) -> bool {
    origin(one).is_some_and(|one| Some(one) == origin(other))
}

/// Where a redirect may lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redirects {
    /// To the same scheme, host and port only: for metadata services.
    SameOrigin,
    /// Anywhere over HTTP, but not from https to http: for seeds and includes.
    Any,
}

/// The URL that a redirect from `url` leads to (RFC 3986, section 5.2.2, without dot segments). `location` is
/// absolute, or relative to `url`.
///
/// # Errors
/// `location` is not an http or https URL, or `allowed` forbids it.
pub fn redirected(url: &str, location: &str, allowed: Redirects) -> Result<String> {
    let here = origin(url).ok_or_else(|| Error::new("not a valid URL"))?;
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url.get(start..).and_then(|rest| rest.find(['/', '?', '#'])).map_or(url.len(), |at| start + at);
    let base = url.get(..end).unwrap_or_default();
    let is_scheme =
        |text: &str| text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.bytes().all(is_scheme_byte);
    let next = match location {
        "" => return Err(Error::new("redirected without a location")),
        l if l.split_once("://").is_some_and(|(scheme, _)| is_scheme(scheme)) => l.to_owned(),
        l if l.starts_with("//") => format!("{}:{l}", here.0),
        l if l.starts_with('/') => format!("{base}{l}"),
        l => {
            let path = url.get(end..).and_then(|rest| rest.split(['?', '#']).next()).unwrap_or_default();
            // A query or a fragment alone is of the same document.
            let kept = if l.starts_with(['?', '#']) {
                path
            } else {
                path.rfind('/').map_or("/", |at| path.split_at(at + 1).0)
            };
            format!("{base}{kept}{l}")
        }
    };
    let there = origin(&next).ok_or_else(|| Error::new("redirected to a location that is not a URL"))?;
    let allowed = match allowed {
        Redirects::SameOrigin => here == there,
        Redirects::Any => there.0 == "https" || (there.0 == "http" && here.0 == "http"),
    };
    if allowed {
        Ok(next)
    } else {
        Err(Error::new(format!("redirected to {}://{}, which is not followed", there.0, there.1)))
    }
}

fn is_scheme_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_hold_no_secret() {
        assert_eq!(said("GET", "http://user:pw@h:80/a/b?token=x#y"), "GET http://h:80/a/b");
        assert_eq!(said("PUT", "http://h"), "PUT http://h");
    }

    #[test]
    fn the_zone_is_taken_out() {
        assert_eq!(unscoped("http://[fe80::a9fe:a9fe%25eth0]/openstack"), "http://[fe80::a9fe:a9fe]/openstack");
        assert_eq!(unscoped("http://[fe80::1%eth0]:8080/"), "http://[fe80::1]:8080/");
        assert_eq!(unscoped("http://[::1]/a%20b]"), "http://[::1]/a%20b]");
        assert_eq!(unscoped("http://h/%25"), "http://h/%25");
    }

    #[test]
    fn redirects_stay_where_they_may() {
        let to = |location, allowed| redirected("http://169.254.169.254/openstack", location, allowed);
        assert_eq!(to("/openstack/", Redirects::SameOrigin).unwrap(), "http://169.254.169.254/openstack/");
        assert_eq!(to("latest/x", Redirects::SameOrigin).unwrap(), "http://169.254.169.254/latest/x");
        assert_eq!(to("/x?to=http://h/", Redirects::SameOrigin).unwrap(), "http://169.254.169.254/x?to=http://h/");
        assert_eq!(redirected("http://h", "x", Redirects::Any).unwrap(), "http://h/x");
        assert_eq!(redirected("http://h?q=/a/", "x", Redirects::Any).unwrap(), "http://h/x");
        assert_eq!(to("http://169.254.169.254/b", Redirects::SameOrigin).unwrap(), "http://169.254.169.254/b");
        assert!(to("http://169.254.169.254:80/b", Redirects::SameOrigin).is_ok());
        let with = |location| redirected("http://u:p@h:8080/a/b", location, Redirects::SameOrigin).unwrap();
        assert_eq!([with("/c"), with("c")], ["http://u:p@h:8080/c", "http://u:p@h:8080/a/c"]);
        assert_eq!([with("?c"), with("#c")], ["http://u:p@h:8080/a/b?c", "http://u:p@h:8080/a/b#c"]);
        assert_eq!(with("http://h:8080/c"), "http://h:8080/c");
        // The server has only seen the address without the zone.
        let zoned = |location| redirected("http://[fe80::a9fe:a9fe%25eth0]/a", location, Redirects::SameOrigin);
        assert_eq!(zoned("http://[fe80::a9fe:a9fe]/a/").unwrap(), "http://[fe80::a9fe:a9fe]/a/");
        assert!(zoned("http://[fe80::a9fe:a9ff]/a/").is_err());
        for location in [
            "http://evil/",
            "http://169.254.169.254@evil/",
            "http://evil#@169.254.169.254/",
            "http://169.254.169.254:81/",
            "https://169.254.169.254/",
            "//evil/x",
            "",
        ] {
            assert!(to(location, Redirects::SameOrigin).is_err(), "{location}");
        }
        assert_eq!(to("http://other/x", Redirects::Any).unwrap(), "http://other/x");
        assert!(to("file:///etc/shadow", Redirects::Any).is_err());
        assert!(redirected("https://h/", "http://h/", Redirects::Any).is_err());
    }
}
