//! Services on the network: a source's declaration of its service, and the parallel search.

use super::search::{Found, Search, parameters};
use super::table::named;
use crate::base::error::{Error, Result};
use crate::document::{Taken, Value};
use crate::instance::DsMode;
use crate::link::http::{Client, Limits, Redirects};
use crate::link::{Session, Uplink, http};
use std::path::Path;
use std::time::Duration;

/// The URLs to ask over an uplink that is ready.
pub type Urls = Box<dyn Fn(&Uplink) -> Vec<String> + Sync>;
/// Fetches the instance from one of these URLs.
pub type Fetch = Box<dyn Fn(&Client, &str) -> Result<Found> + Sync>;

/// How a service is asked.
pub struct Job {
    /// The source's name, for messages.
    pub name: &'static str,
    pub urls: Urls,
    pub fetch: Fetch,
    pub redirects: Redirects,
    /// Whether a drive is no longer waited for, because the owner gave the service's URL in its place.
    pub replaces_drive: bool,
    /// `max_wait`, `timeout` and `retries` of the image's `datasource: {NAME: …}`.
    pub limits: Limits,
    /// The documents that were read to prepare it: they are part of the instance.
    pub taken: Taken,
}

impl Job {
    /// The service of the source `name`, which redirects within itself and comes after a drive.
    pub(super) fn new(
        name: &'static str,
        urls: impl Fn(&Uplink) -> Vec<String> + Sync + 'static,
        fetch: impl Fn(&Client, &str) -> Result<Found> + Sync + 'static,
        limits: Limits,
    ) -> Job {
        Job {
            name,
            urls: Box::new(urls),
            fetch: Box::new(fetch),
            redirects: Redirects::SameOrigin,
            replaces_drive: false,
            limits,
            taken: Taken::default(),
        }
    }

    /// The service of the source `name` at `urls`; each URL is asked over the uplinks that reach its host.
    /// `%25LINK` in a URL is replaced by the zone of the uplink's link.
    pub(super) fn at(search: &mut Search, name: &'static str, urls: Vec<String>, fetch: Fetch) -> Job {
        let urls = move |uplink: &Uplink| {
            let zone = uplink.link.as_ref().map(|link| format!("%25{link}")).unwrap_or_default();
            let urls = urls.iter().map(|url| url.replace("%25LINK", &zone));
            urls.filter(|url| uplink.reaches(url)).collect()
        };
        Job::new(name, urls, fetch, limits(search, name))
    }
}

/// Asks all services over every uplink of the session at once. Services that share a URL are asked in order.
/// None, with the reasons as problems, if none answers.
pub fn ask(search: &mut Search, jobs: Vec<Job>, session: &mut Session, image: &Path) -> Option<Found> {
    let urls = |uplink: &Uplink| {
        let mut all: Vec<String> = Vec::new();
        for url in jobs.iter().flat_map(|job| (job.urls)(uplink)) {
            if !all.contains(&url) {
                all.push(url);
            }
        }
        all
    };
    let of = |client: &Client, url: &str| -> Vec<&Job> {
        jobs.iter().filter(|job| (job.urls)(client.uplink()).iter().any(|u| u == url)).collect()
    };
    let fetch = |client: &Client, url: &str| {
        let mut reasons = Vec::new();
        for job in of(client, url) {
            let client = client.limited(job.limits).keeping(job.taken.fork());
            match (job.fetch)(&client, url) {
                Ok(found) if found.instance.dsmode == DsMode::Disabled => {
                    reasons.push(format!("{}: {} says dsmode: disabled", job.name, found.place));
                }
                Ok(mut found) => {
                    found.instance.from_network = true;
                    found.instance.raw = client.taken().raw();
                    log::info!("{}: {} answers by {}", job.name, found.place, client.uplink().name());
                    return Ok(found);
                }
                Err(e) => reasons.push(format!("{}: {e}", job.name)),
            }
        }
        Err(Error::new(reasons.join("; ")))
    };
    // For a URL that two services share, the stricter redirect policy applies.
    let settings = |uplink: &Uplink, url: &str| {
        let strict = jobs
            .iter()
            .any(|job| job.redirects == Redirects::SameOrigin && (job.urls)(uplink).iter().any(|u| u == url));
        let redirects = if strict { Redirects::SameOrigin } else { Redirects::Any };
        http::Settings { redirects, image: Some(image.to_owned()) }
    };
    let answer = session.ask(&settings, &urls, &fetch);
    for warning in session.findings().take().entries() {
        search.problem(warning.to_string());
    }
    match answer {
        Ok(found) => Some(found),
        Err(e) => {
            search.reason(e.to_string());
            None
        }
    }
}

/// The setting `key` as a list of strings, also from `ds=name;key=a,b` on the kernel command line.
pub(super) fn list_setting(search: &Search, source: &str, key: &str) -> Vec<String> {
    let parameters = parameters(search.machine);
    let from_line = parameters.as_ref().and_then(|(_, map)| map.get(key)).and_then(Value::as_str);
    if let Some(line) = from_line {
        return line.split(',').map(|u| u.trim().to_owned()).filter(|u| !u.is_empty()).collect();
    }
    search.settings(source).and_then(|s| s.get(key)).map(Value::texts).unwrap_or_default()
}

/// The setting `key` as a string, or `default`.
pub(super) fn text_setting(search: &Search, source: &str, key: &str, default: &str) -> String {
    let set = search.settings(source).and_then(|s| s.get(key)).and_then(Value::text);
    set.filter(|text| !text.is_empty()).unwrap_or_else(|| default.into())
}

/// Whether a text may be an instance-id, and not some web page.
pub(super) fn is_id(text: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    !text.is_empty() && text.len() <= 255 && text.chars().all(good)
}

/// Settings of every source that has a service ([`limits`]), for the manual.
pub(super) const MAX_WAIT: (&str, &str) = (
    "max_wait",
    "seconds that the service is looked for, once a link leads to it; below 1: one request to each address",
);
pub(super) const TIMEOUT: (&str, &str) = ("timeout", "seconds for one request");
pub(super) const RETRIES: (&str, &str) =
    ("retries", "how often a document is asked for again once the service has answered");

pub(super) const BETWEEN: (&str, &str) = ("sec_between_retries", SECONDS_BETWEEN);
pub(super) const SECONDS_BETWEEN: &str =
    "seconds before a document is asked for again, instead of a time that grows to 8 s";
/// The names of that setting.
const BETWEEN_NAMES: [&str; 4] = [BETWEEN.0, "wait", "wait_retry", "sleep_time"];

/// How long a service is asked according to the image (cloud-init's documentation of each datasource). A
/// value that is not a number is reported and ignored.
pub(super) fn limits(search: &mut Search, source: &str) -> Limits {
    for key in named(source).map(|source| source.unused).unwrap_or_default() {
        if search.settings(source).is_some_and(|settings| settings.get(key).is_some()) {
            log::info!("datasource: {source}: {key} has no effect here (prepivot-differences(7))");
        }
    }
    let mut number = |key: &str| {
        let value = search.settings(source)?.get(key).filter(|v| !v.is_null())?;
        let number = value.text().and_then(|t| t.trim().parse::<i64>().ok());
        if number.is_none() {
            search.problem(format!("datasource: {source}: {key}: expected a whole number; it is ignored"));
        }
        number
    };
    let seconds = |n: i64| Duration::from_secs(u64::try_from(n).unwrap_or(0));
    Limits {
        search: number("max_wait").map(seconds),
        attempt: number("timeout").map(seconds).filter(|t| !t.is_zero()),
        retries: number("retries").map(|n| u32::try_from(n.max(0)).unwrap_or(u32::MAX)),
        between: BETWEEN_NAMES.into_iter().find_map(number).map(seconds),
        marked: search.marked,
    }
}

/// Whether the image's settings for a source set `key` to false.
pub(super) fn switched_off(search: &Search, source: &str, key: &str) -> bool {
    search.settings(source).and_then(|s| s.get(key)).is_some_and(Value::is_false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::deadline::Deadline;
    use crate::base::testing::TempDir;
    use crate::document::yaml;
    use crate::root::Use;

    #[test]
    fn how_long_a_service_is_asked() {
        let dir = TempDir::new("limits");
        let (machine, root) = (dir.machine(), dir.root(Use::Plan));
        let text = "datasource: {OpenStack: {max_wait: -1, timeout: '7', retries: 2}, Ec2: {max_wait: soon, timeout: 0, retries: null}, \
                    GCE: {sec_between_retries: 3}, Vultr: {wait: 1}, NWCS: {wait_retry: 5}, Hetzner: {sleep_time: '2'}}";
        let config = yaml::parse("t", text).unwrap();
        let mut search = Search::new(&machine, &root, &config, Deadline::after(Duration::ZERO));
        let seconds = |n| Some(Duration::from_secs(n));
        assert_eq!(
            limits(&mut search, "OpenStack"),
            Limits { search: seconds(0), attempt: seconds(7), retries: Some(2), between: None, marked: true }
        );
        for (source, between) in [("GCE", 3), ("Vultr", 1), ("NWCS", 5), ("Hetzner", 2)] {
            assert_eq!(limits(&mut search, source).between, seconds(between), "{source}");
        }
        search.marked = false;
        assert_eq!(limits(&mut search, "NoCloud"), Limits::default());
        assert_eq!(search.problems().len(), 0);
        assert_eq!(limits(&mut search, "Ec2"), Limits::default());
        assert_eq!(search.problems(), ["datasource: Ec2: max_wait: expected a whole number; it is ignored"]);
    }
}
