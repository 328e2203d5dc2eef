//! Akamai (Linode).
//!
//! Follows Akamai's documentation, "Metadata service API", and cloud-init's, "Akamai".

use super::closed::{Closing, ServiceAddress};
use super::documents::{decoded_lines, instance, mapping, needed};
use super::search::{Found, Search};
use super::service::{Job, RETRIES, TIMEOUT};
use super::table::Source;
use crate::base::error::Error;
use crate::detect::Mark;
use crate::document::{Bytes, Map, Value};
use crate::link::http::{Client, Request};
use crate::machine::Machine;
use std::sync::Arc;

pub static SOURCE: Source = Source {
    name: "Akamai",
    marks: &[Mark::vendor("Linode"), Mark::vendor("Akamai")],
    service: Some(service_job),
    closing: Closing {
        addresses: &[ServiceAddress::whole("169.254.169.254"), ServiceAddress::whole("fd00:a9fe:a9fe::1")],
        stays: "",
    },
    settings: &[
        ("base_urls", "ipv4 and ipv6: addresses of the service, without a path"),
        ("paths", "token, metadata and userdata: paths below them"),
        ("allow_ipv4", "false: not asked over IPv4"),
        ("allow_ipv6", "false: not asked over IPv6"),
        ("allow_local_stage", "false: where the service does not answer, the machine is left alone"),
        TIMEOUT,
        RETRIES,
    ],
    unused: &["allow_dhcp", "allow_init_stage", "preferred_mac_prefixes"],
    docs: "Akamai Cloud (Linode). Read with a token from http://[fd00:a9fe:a9fe::1] and http://169.254.169.254, whichever answers \
        first, over every link: preferred_mac_prefixes, allow_dhcp and allow_init_stage are of no use. The flags v4, v6 and als of \
        the DMI baseboard serial number take precedence over the configuration. Where the service may not be asked, or does not \
        answer in a first boot, the instance is known by the DMI serial number alone.",
    ..Source::NEW
};

/// How long a token is valid, in seconds: long enough for this boot's requests.
const TOKEN_TTL: &str = "300";

/// Whether something is enabled: by the flag in the baseboard's serial number (`v4=1;v6=0`), else by the
/// configuration's key, else by default.
fn allows(search: &Search, flag: &str, key: &str) -> bool {
    let serial = search.machine.dmi("board_serial").unwrap_or_default();
    let flag = serial.split(';').filter_map(|pair| pair.split_once('=')).find(|(name, _)| name.trim() == flag);
    match flag.map(|(_, value)| value) {
        Some("0") => false,
        Some("1") => true,
        _ => !super::service::switched_off(search, SOURCE.name, key),
    }
}

/// The instance as far as it is known without the service.
fn local(machine: &Machine) -> Found {
    let id = machine.dmi("product_serial").map(Value::from).unwrap_or_default();
    let metadata: Map = [("instance-id", id)].into_iter().collect();
    Found { instance: instance(SOURCE.name, metadata), place: "the DMI serial number".into() }
}

fn service_job(search: &mut Search) -> Option<Job> {
    let setting = |group: &str, key: &str, default: &str| {
        let text = search.settings(SOURCE.name).and_then(|s| s.at(&[group, key])).and_then(Value::text);
        text.unwrap_or_else(|| default.into())
    };
    let [token, metadata, userdata] =
        [("token", "/v1/token"), ("metadata", "/v1/instance"), ("userdata", "/v1/user-data")]
            .map(|(key, default)| setting("paths", key, default));
    let mut urls = Vec::new();
    for (flag, key, family, default) in [
        ("v6", "allow_ipv6", "ipv6", "http://[fd00:a9fe:a9fe::1]"),
        ("v4", "allow_ipv4", "ipv4", "http://169.254.169.254"),
    ] {
        if allows(search, flag, key) {
            urls.push(setting("base_urls", family, default));
        }
    }
    let vendor = search.machine.dmi("sys_vendor");
    let is_here = matches!(vendor.as_deref(), Some("Linode" | "Akamai"));
    let is_known = is_here && (urls.is_empty() || allows(search, "als", "allow_local_stage"));
    if is_known {
        search.otherwise(local(search.machine), Arc::default());
    }
    if urls.is_empty() {
        return None;
    }
    let serial = local(search.machine).instance.instance_id;
    let fetch = move |client: &Client, base: &str| {
        let url = format!("{base}{token}");
        let lifetime = [("Metadata-Token-Expiry-Seconds", TOKEN_TTL)];
        let body = needed(client, &Request { headers: &lifetime, limit: 4096, ..Request::put(&url, b"") })?;
        let token = String::from_utf8(body).unwrap_or_default().trim().to_owned();
        if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(Error::new(format!("{url}: expected a token in the answer")));
        }
        let (url, headers) =
            (format!("{base}{metadata}"), [("Accept", "application/json"), ("Metadata-Token", &token)]);
        let mut metadata = mapping(client, &Request { headers: &headers, ..Request::get(&url) })?;
        metadata.insert("instance-id", metadata.get("id").cloned().unwrap_or_else(|| serial.as_str().into()));
        let mut found = instance(SOURCE.name, metadata);
        found.class = "DataSourceAkamaiLocal".into();
        let (url, headers) = (format!("{base}{userdata}"), [("Metadata-Token", token.as_str())]);
        // The machine would otherwise be known by its serial number alone, without its name and keys.
        let body = match client.document(&Request { headers: &headers, ..Request::get(&url) }) {
            Err(e) if is_known => {
                found.problems.warn(format!("{e}; the instance has no user-data"));
                None
            }
            answer => answer?,
        };
        found.user_data = body.filter(|body| !body.is_empty()).map(|body| Bytes::from(decoded_lines(body)));
        Ok(Found { instance: found, place: base.into() })
    };
    Some(Job::at(search, SOURCE.name, urls, Box::new(fetch)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::deadline::Deadline;
    use crate::base::testing::TempDir;
    use crate::link::Uplink;
    use crate::link::http::script::{Answer, Script};
    use crate::link::http::{Findings, Redirects};
    use crate::root::Use;
    use std::time::Duration;

    /// The name and the problems of a machine whose user-data fails, with this setting; None without an instance.
    fn without_user_data(allow_local_stage: bool) -> Option<(Option<String>, usize)> {
        let dir = TempDir::new("akamai");
        let dmi = dir.0.join("sys/class/dmi/id");
        std::fs::create_dir_all(&dmi).unwrap();
        std::fs::write(dmi.join("sys_vendor"), "Akamai\n").unwrap();
        let (machine, root) = (dir.machine(), dir.root(Use::Plan));
        let settings = Value::Map([("allow_local_stage", allow_local_stage)].into_iter().collect());
        let settings = Value::Map([(SOURCE.name, settings)].into_iter().collect());
        let config = Value::Map([("datasource", settings)].into_iter().collect());
        let deadline = Deadline::after(Duration::from_secs(60));
        let mut search = Search::new(&machine, &root, &config, deadline);
        let job = service_job(&mut search).unwrap();
        let script = Script::default()
            .with("PUT", "http://h/v1/token", Answer::new(200, "t"))
            .with("GET", "http://h/v1/instance", Answer::new(200, r#"{"id": 7, "local-hostname": "l"}"#))
            .with("GET", "http://h/v1/user-data", Answer::new(403, ""));
        let client =
            Client::over(Arc::new(script), &Uplink::system(), Redirects::SameOrigin, deadline, &Findings::default());
        let found = (job.fetch)(&client, "http://h").ok()?.instance;
        Some((found.local_hostname, found.problems.len()))
    }

    #[test]
    fn failing_user_data_costs_only_user_data() {
        assert_eq!(without_user_data(true), Some((Some("l".into()), 1)));
        assert_eq!(without_user_data(false), None);
    }
}
