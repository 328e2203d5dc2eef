//! URLs as text: for messages, for the connector, and where a redirect may lead.

use super::http::Redirects;
use crate::base::error::{Error, Result};

/// A request for messages: no query, no credentials.
pub fn said(method: &str, url: &str) -> String {
    let plain = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = plain.split_once("://").unwrap_or(("", plain));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{method} {scheme}://{host}{path}")
}

/// The URL without the zone of a link-local address (RFC 6874): the way says which link.
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

/// Where `location` leads from `url`; an error where it must not be followed.
pub fn redirected(url: &str, location: &str, allowed: Redirects) -> Result<String> {
    let origin = |url: &str| -> Option<(String, String)> {
        let (scheme, rest) = url.split_once("://")?;
        let authority = rest.split(['/', '?', '#']).next()?;
        Some((scheme.to_ascii_lowercase(), authority.to_ascii_lowercase()))
    };
    let here = origin(url).ok_or_else(|| Error::new("not a valid URL"))?;
    let next = match location {
        "" => return Err(Error::new("redirected to nowhere")),
        l if l.contains("://") => l.to_owned(),
        l if l.starts_with("//") => format!("{}:{l}", here.0),
        l if l.starts_with('/') => format!("{}://{}{l}", here.0, here.1),
        l => {
            let folder = url.split(['?', '#']).next().unwrap_or_default();
            let folder = folder.get(..=folder.rfind('/').unwrap_or(0)).unwrap_or_default();
            format!("{folder}{l}")
        }
    };
    let there = origin(&next).ok_or_else(|| Error::new("redirected to what is no URL"))?;
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
        assert_eq!(to("http://169.254.169.254/b", Redirects::SameOrigin).unwrap(), "http://169.254.169.254/b");
        for location in ["http://evil/", "http://169.254.169.254:81/", "https://169.254.169.254/", "//evil/x", ""] {
            assert!(to(location, Redirects::SameOrigin).is_err(), "{location}");
        }
        assert_eq!(to("http://other/x", Redirects::Any).unwrap(), "http://other/x");
        assert!(to("file:///etc/shadow", Redirects::Any).is_err());
        assert!(redirected("https://h/", "http://h/", Redirects::Any).is_err());
    }
}
