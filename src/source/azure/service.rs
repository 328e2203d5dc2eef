//! Requests to Azure's services: the metadata, the media that completes it, and a pool machine's wait for its owner.

use super::failure::Failure;
use super::instance::Read;
use super::media::{self, Media};
use super::prepare::{Prepared, prepare};
use super::wire_server::{self, Health, WireServer};
use super::{SOURCE, imds};
use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::document::Value;
use crate::link::http::{Client, Limits};
use crate::link::{Reach, Uplink};
use crate::source::search::{Found, Search};
use crate::source::service::Job;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How much of the stage's time is reserved for reporting that the metadata service did not answer.
const REPORT_TIME: Duration = Duration::from_secs(15);
/// How often the metadata service is asked if DHCP gave no route to it: installations of Azure without the service
/// provide no route.
const TRIES_WITHOUT_ROUTE: u32 = 11;
/// How often a report is sent from the initramfs.
const REPORT_TRIES: u32 = 5;
/// How long to wait for media that exists according to the metadata.
const MEDIA_TIME: Duration = Duration::from_secs(10);

/// Azure's services, as seen from one machine.
struct Service {
    known: Prepared,
    /// Whether the media alone must not be used, because provisioning has failed or the machine has no owner;
    /// and whether a failure has been reported over any uplink.
    failed: Arc<AtomicBool>,
    reported: AtomicBool,
}

/// The requests to Azure on this machine. The media's data is kept in case no service answers.
pub fn job(search: &mut Search) -> Option<Job> {
    let failed = Arc::<AtomicBool>::default();
    let known = prepare(search);
    let with_media = known.as_ref().ok().and_then(|known| Some((known.media.as_ref()?, known)));
    // A machine from a pool has no instance until it has an owner.
    if let Some((found, Prepared { surroundings, .. })) =
        with_media.filter(|(_, known)| known.pool(&Value::Null).is_none())
    {
        let problems = Problems::new();
        problems.warn("the metadata service did not answer: only what the provisioning media says is used");
        let read = Read { imds: &Value::Null, seed: &found.seed, failure: None, problems };
        let instance = surroundings.instance(Some(&found.media), read, ToString::to_string);
        search.otherwise(Found { instance, place: found.seed.clone() }, Arc::clone(&failed));
    }
    let service = known.map(|known| Service { known, failed, reported: AtomicBool::new(false) });
    let reported = AtomicBool::new(false);
    let fetch = move |client: &Client, base: &str| match &service {
        Ok(service) => service.fetch(client, base),
        Err((failure, vm_id)) => Err(fail(client, failure, vm_id, &reported)),
    };
    let urls = |uplink: &Uplink| match uplink.reach {
        Reach::Ipv4 => vec![imds::ADDRESS.to_owned()],
        _ => Vec::new(),
    };
    Some(Job::new(SOURCE.name, urls, fetch, Limits::default()))
}

/// How a machine from a pool waits for its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pool {
    /// It has reported already, in an earlier boot.
    Reported,
    /// Its network is taken away in the meantime, and with it the response to the report.
    Savable,
    /// Only its disk is kept: the host shuts it down.
    OsDisk,
    Running,
}

impl Prepared {
    /// The machine's wait for its owner. None if it has one.
    fn pool(&self, imds: &Value) -> Option<Pool> {
        let by_imds = imds.at(&["extended", "compute", "ppsType"]).and_then(Value::as_str);
        let media = self.media.as_ref().map(|found| &found.media);
        let by_media = media.and_then(|m| m.pool.as_deref());
        let is = |kind: &str| by_imds == Some(kind) || by_media == Some(kind);
        match () {
            () if self.has_reported => Some(Pool::Reported),
            () if is(Pool::Savable.name()) => Some(Pool::Savable),
            () if is(Pool::OsDisk.name()) => Some(Pool::OsDisk),
            () if is(Pool::Running.name()) || media.is_some_and(|m| m.preprovisioned) => Some(Pool::Running),
            () => None,
        }
    }
}

impl Service {
    fn fetch(&self, client: &Client, base: &str) -> Result<Found> {
        let has_route =
            client.uplink().lease.as_ref().is_none_or(|l| l.routes.iter().any(|r| is_service(r.destination)));
        let tries = if has_route { u32::MAX } else { TRIES_WITHOUT_ROUTE };
        let imds = |media: bool| {
            let search = Some(self.known.deadline.left().saturating_sub(REPORT_TIME));
            let limited = client.limited(Limits { search, ..Limits::default() });
            match imds::instance(&limited, base, tries) {
                Ok(imds) => Ok((imds, None)),
                // A later boot continues with what an earlier one learned.
                Err(failure) if !self.known.surroundings.identity.is_new => Err(Error::from(failure)),
                // Without a route, the service may not exist: this is not a failure.
                Err(failure) if media && !has_route && imds::is_unanswered(&failure) => Ok((Value::Null, None)),
                Err(failure) if media => Ok((Value::Null, Some(failure))),
                Err(failure) => Err(self.fail(client, &failure)),
            }
        };
        let (mut document, mut failure) = imds(self.known.media.is_some())?;
        let problems = Problems::new();
        let mut media = self.known.media.as_ref().map(|found| (&found.media, found.seed.as_str()));
        self.wait_for_media(client, &document, media.map(|(_, seed)| seed), &problems)?;
        let pool = self.known.pool(&document);
        let owners;
        if let Some(pool) = pool {
            self.failed.store(true, Ordering::Relaxed);
            owners = self.wait_for_owner(client, base, pool)?;
            media = owners.as_ref().map(|owners| (owners, IMDS));
            (document, failure) = imds(true)?;
            let kind = document.at(&["extended", "compute", "ppsType"]).and_then(Value::text);
            if let Some(kind) = kind.filter(|kind| kind != "None") {
                let key = "extended.compute.ppsType";
                let invalid = Failure::new(format!("invalid IMDS metadata for key={key}"));
                failure = failure.or(Some(invalid.with("key", key).with("value", kind).with("type", "str")));
            }
        }
        let has_custom_data = document.at(&["extended", "compute", "hasCustomData"]).and_then(Value::as_bool);
        if has_custom_data == Some(true) && media.is_none_or(|(media, _)| media.custom_data.is_none()) {
            problems.warn("the metadata says that there is custom data, and the provisioning media has none");
            if self.known.fail_without_custom_data {
                let missing = Failure::new("failure to read customData while hasCustomData=true");
                let missing = missing.with("pps_type", pool.map_or("None", Pool::name));
                failure = failure.or(Some(missing.with("provisioning_media", media.map_or(IMDS, |(_, seed)| seed))));
            }
        }
        if let Some(failure) = &failure {
            problems.warn(failure);
        }
        let seed = media.map_or(IMDS, |(_, seed)| seed);
        let read = Read { imds: &document, seed, failure: failure.as_ref(), problems };
        let report = |failure: &Failure| failure.report(&self.known.surroundings.identity.vm_id, client.now());
        let instance = self.known.surroundings.instance(media.map(|(media, _)| media), read, report);
        let place = if seed == IMDS { base } else { seed }.to_owned();
        Ok(Found { instance, place })
    }

    /// On a new machine, waits for media that exists according to the metadata: its drive may be slower than
    /// the network. If a drive appears, the search by `client` is cancelled.
    fn wait_for_media(&self, client: &Client, imds: &Value, seed: Option<&str>, problems: &Problems) -> Result<()> {
        let has_password = imds.at(&["compute", "osProfile", "disablePasswordAuthentication"]).and_then(Value::text);
        let has_password = has_password.is_some_and(|disabled| disabled.eq_ignore_ascii_case("false"));
        let has_data = imds.at(&["extended", "compute", "hasCustomData"]).and_then(Value::as_bool) == Some(true);
        let is_there = seed.is_some_and(|seed| seed != self.known.surroundings.data_dir);
        if is_there || !self.known.surroundings.identity.is_new || !(has_password || has_data) {
            return Ok(());
        }
        if !client.wait(MEDIA_TIME) {
            return Err(Error::new("the search ended while the provisioning media was awaited"));
        }
        problems.warn(format!(
            "the metadata says that there is a password or custom data, and no provisioning media appeared in {} s",
            MEDIA_TIME.as_secs()
        ));
        Ok(())
    }

    /// Reports to the pool that the machine is ready, and waits for its owner's document.
    fn wait_for_owner(&self, client: &Client, base: &str, pool: Pool) -> Result<Option<Media>> {
        if pool != Pool::Reported {
            log::info!("Azure: the machine is one of a pool ({}) and waits for its owner", pool.name());
            match report(client, Health::Ready) {
                Err(e) if pool != Pool::Savable => return Err(e.context("failed to report to the pool")),
                _ => {}
            }
        }
        if pool == Pool::OsDisk {
            client.wait(self.known.deadline.left().saturating_sub(REPORT_TIME));
            return Err(self.fail(client, &Failure::new("error waiting for host shutdown")));
        }
        let document = imds::reprovision_data(client, base)?;
        media::parse(&document).map_err(|failure| self.fail(client, &failure))
    }

    fn fail(&self, client: &Client, failure: &Failure) -> Error {
        self.failed.store(true, Ordering::Relaxed);
        // A machine that was provisioned in an earlier boot does not fail now.
        if !self.known.surroundings.identity.is_new {
            return Error::from(failure.clone());
        }
        fail(client, failure, &self.known.surroundings.identity.vm_id, &self.reported)
    }
}

/// The seed's name if only the metadata is used.
const IMDS: &str = "IMDS";

impl Pool {
    /// Azure's name.
    fn name(self) -> &'static str {
        match self {
            Pool::Reported => "Unknown",
            Pool::Savable => "Savable",
            Pool::OsDisk => "PreprovisionedOSDisk",
            Pool::Running => "Running",
        }
    }
}

/// Whether a route leads to one of Azure's services.
fn is_service(destination: Ipv4Addr) -> bool {
    imds::ADDRESS.strip_prefix("http://").is_some_and(|address| address == destination.to_string())
}

/// Reports a failure, once, and returns it as an error. If it could not be reported, the error says why.
fn fail(client: &Client, failure: &Failure, vm_id: &str, reported: &AtomicBool) -> Error {
    let error = Error::from(failure.clone());
    if reported.swap(true, Ordering::Relaxed) {
        return error;
    }
    match report(client, Health::Failed(&failure.report(vm_id, client.now()))) {
        Ok(()) => error,
        Err(e) => {
            reported.store(false, Ordering::Relaxed);
            Error::new(format!("{error}; this could not be reported to Azure: {e}"))
        }
    }
}

fn report(client: &Client, health: Health) -> Result<()> {
    let server = WireServer { client, address: wire_server::address(client.uplink(), &[]), tries: REPORT_TRIES };
    let goal = server.goal_state()?;
    server.report(&goal, health)
}

#[cfg(test)]
mod tests {
    use super::super::media::tests::document;
    use super::super::wire_server::tests::GOAL_STATE;
    use super::*;
    use crate::base::deadline::Deadline;
    use crate::base::testing::TempDir;
    use crate::link::http::script::{Answer, Script};
    use crate::link::http::{Findings, Transport};
    use crate::root::Use;

    const UUID: &str = "12345678-1234-1234-1234-123456789abc";
    const URL: &str = "http://169.254.169.254/metadata/instance?api-version=2021-08-01&extended=true";

    /// The job's result on a machine with these files; the requests, and the fallback if no service answers.
    fn fetch(files: &[(&str, &str)], imds: Answer) -> (Result<Found>, Arc<Script>, Option<Found>) {
        let dir = TempDir::new("azure-service");
        for (path, content) in files.iter().chain(&[("sys/class/dmi/id/product_uuid", UUID)]) {
            dir.write(path, content);
        }
        let (machine, root) = (dir.machine(), dir.root(Use::Plan));
        let deadline = Deadline::after(Duration::from_secs(60));
        let mut search = Search::new(&machine, &root, &Value::Null, deadline);
        let job = job(&mut search).unwrap();
        let script = Script::default()
            .with("GET", URL, imds)
            .with("GET", "http://168.63.129.16/machine/?comp=goalstate", Answer::new(200, GOAL_STATE))
            .with("POST", "http://168.63.129.16/machine?comp=health", Answer::new(200, ""));
        let script = Arc::new(script);
        let uplink = Uplink::of("eth0", 2, Reach::Ipv4);
        let client = Client::over(script.clone(), &uplink, job.redirects, deadline, &Findings::default());
        let [url] = (job.urls)(&uplink).try_into().unwrap();
        let found = (job.fetch)(&client.limited(job.limits), &url);
        (found, script, search.take_otherwise())
    }

    fn posts(script: &Script) -> usize {
        script.sent().iter().filter(|s| s.method == "POST").count()
    }

    #[test]
    fn only_a_new_machine_fails() {
        let refused = || Answer::new(403, "");
        let (found, script, _) = fetch(&[], refused());
        assert!(found.unwrap_err().to_string().starts_with("http error 403 querying IMDS"));
        assert_eq!(posts(&script), 1);
        let (found, script, _) = fetch(&[("var/lib/cloud/data/instance-id", UUID)], refused());
        assert!(found.is_err());
        assert_eq!(posts(&script), 0);
        // Its media of the first boot does not take the place of what the metadata said then.
        let media = document("<ns1:HostName>h</ns1:HostName>", "");
        let known = [("var/lib/cloud/data/instance-id", UUID), ("var/lib/waagent/ovf-env.xml", media.as_str())];
        assert!(fetch(&known, refused()).0.is_err());
    }

    #[test]
    fn pool_machine_has_no_instance_without_owner() {
        let media = document("<ns1:HostName>pool</ns1:HostName>", "");
        let seed = [("var/lib/cloud/seed/azure/ovf-env.xml", media.as_str())];
        let imds = r#"{"extended": {"compute": {"ppsType": "Running"}}}"#;
        let (found, script, otherwise) = fetch(&seed, Answer::new(200, imds));
        assert!(found.is_err() && otherwise.is_none());
        assert_eq!(posts(&script), 1);
        let platform = "<ns1:PreprovisionedVm>true</ns1:PreprovisionedVm>";
        let media = document("<ns1:HostName>pool</ns1:HostName>", platform);
        let (.., otherwise) = fetch(&[("var/lib/cloud/seed/azure/ovf-env.xml", &media)], Answer::Timeout);
        assert!(otherwise.is_none());
    }

    #[test]
    fn media_that_the_metadata_speaks_of_is_awaited() {
        let imds =
            || Answer::new(200, r#"{"extended": {"compute": {"hasCustomData": true}}, "network": {"interface": []}}"#);
        let left = |script: &Script| script.left(Deadline::after(Duration::from_secs(60))).as_secs();
        let (found, script, _) = fetch(&[], imds());
        let problems = found.unwrap().instance.problems;
        assert!(problems.entries()[0].to_string().contains("no provisioning media appeared in 10 s"), "{problems:?}");
        assert!(left(&script) <= 50);
        // Neither if it is present, nor in a later boot.
        let media = document("<ns1:HostName>h</ns1:HostName><ns1:CustomData>eA==</ns1:CustomData>", "");
        let (found, script, _) = fetch(&[("var/lib/cloud/seed/azure/ovf-env.xml", &media)], imds());
        assert_eq!((found.unwrap().instance.problems.len(), left(&script) > 55), (0, true));
        let (_, script, _) = fetch(&[("var/lib/cloud/data/instance-id", UUID)], imds());
        assert!(left(&script) > 55);
    }

    #[test]
    fn uses_media_alone_unless_ruled_out() {
        let linux = "<ns1:HostName>h</ns1:HostName>";
        let seed = |media: &str, imds| fetch(&[("var/lib/cloud/seed/azure/ovf-env.xml", media)], imds);
        let (found, _, otherwise) = seed(&document(linux, ""), Answer::new(403, ""));
        let instance = found.unwrap().instance;
        let failure = instance.metadata.get(super::super::instance::FAILURE).and_then(Value::text).unwrap();
        assert!(failure.contains("|reason=http error 403 querying IMDS|"), "{failure}");
        assert_eq!(otherwise.unwrap().instance.local_hostname.as_deref(), Some("h"));
        // A machine whose disk is kept for others, and a document that cannot be used.
        let pool = "<ns1:PreprovisionedVMType>PreprovisionedOSDisk</ns1:PreprovisionedVMType>";
        let (found, script, otherwise) = seed(&document(linux, pool), Answer::new(200, "{}"));
        assert_eq!((found.unwrap_err().to_string().as_str(), posts(&script)), ("error waiting for host shutdown", 2));
        assert!(otherwise.is_none());
        let (found, script, otherwise) = seed("<broken", Answer::new(200, "{}"));
        assert!(found.is_err() && otherwise.is_none());
        assert_eq!(script.sent().len(), 2, "the metadata is not asked for");
    }
}
