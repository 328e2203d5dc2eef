//! How Azure's services are asked: the metadata, what the media adds to it, and the wait of a machine of a pool for its owner.

use super::failure::Failure;
use super::identity::Identity;
use super::instance::{RESOURCE_DISK, Read, Surroundings};
use super::media::{self, Media};
use super::wire_server::{self, Health, WireServer};
use super::{SOURCE, disk, imds, network};
use crate::base::deadline::Deadline;
use crate::base::error::{Error, Result};
use crate::document::{Bytes, Map, Value};
use crate::drive::Files;
use crate::instance::{Instance, state};
use crate::link::http::{Client, Limits, Redirects};
use crate::link::{Reach, Uplink};
use crate::machine::{Distro, beneath};
use crate::source::search::{Found, Search};
use crate::source::service::{Job, switched_off};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The seed folder, and where Azure's agent keeps the document.
const SEED: &str = "/var/lib/cloud/seed/azure";
const DATA_DIR: &str = "/var/lib/waagent";
/// cloud-init's mark of a machine that has reported to its pool.
const REPORTED: &str = "/var/lib/cloud/data/reported_ready";
/// The instance-id where no machine gives one (cloud-init's).
const DEFAULT_ID: &str = "iid-AZURE-NODE";
/// Random bytes that the hypervisor gives.
const RANDOM_SEED: &str = "sys/firmware/acpi/tables/OEM0";
/// What is left of the stage's time to report that the metadata service did not answer.
const REPORT_TIME: Duration = Duration::from_secs(15);
/// How often it is asked where DHCP gave no route to it: installations of Azure without the service have none.
const TRIES_WITHOUT_ROUTE: u32 = 11;
/// How often a report is sent from here.
const REPORT_TRIES: u32 = 5;
/// How long media may take to appear that the metadata says is there.
const MEDIA_TIME: Duration = Duration::from_secs(10);

/// The media, and where it was found.
struct Medium {
    media: Media,
    seed: String,
}

/// What is known before anything is asked.
struct Prepared {
    surroundings: Surroundings,
    media: Option<Medium>,
    /// Whether the machine has reported to its pool in an earlier boot.
    has_reported: bool,
    /// `experimental_fail_on_missing_customdata`
    fail_without_custom_data: bool,
    deadline: Deadline,
    /// Whether provisioning has failed for good, and whether that was reported, by any uplink.
    failed: Arc<AtomicBool>,
    reported: AtomicBool,
}

/// How Azure is asked on this machine. What the media alone says is kept for the case that no service answers.
pub fn job(search: &mut Search) -> Option<Job> {
    let prepared = prepare(search);
    if let Ok(Prepared { media: Some(found), surroundings, failed, .. }) = &prepared {
        let problems =
            vec!["the metadata service did not answer: only what the provisioning media says is used".into()];
        let read = Read { imds: &Value::Null, seed: &found.seed, failure: None, problems };
        let instance = surroundings.instance(Some(&found.media), read, ToString::to_string);
        search.otherwise(Found { instance, place: found.seed.clone() }, Arc::clone(failed));
    }
    let reported = AtomicBool::new(false);
    let fetch = move |client: &Client, base: &str| match &prepared {
        Ok(prepared) => prepared.fetch(client, base),
        Err((failure, vm_id)) => Err(fail(client, failure, vm_id, &reported)),
    };
    let urls = |uplink: &Uplink| match uplink.reach {
        Reach::Ipv4 => vec![imds::ADDRESS.to_owned()],
        _ => Vec::new(),
    };
    let (urls, fetch, limits) = (Box::new(urls), Box::new(fetch), Limits::default());
    Some(Job { name: SOURCE.name, urls, fetch, redirects: Redirects::SameOrigin, replaces_drive: false, limits })
}

fn prepare(search: &mut Search) -> std::result::Result<Prepared, (Failure, String)> {
    let identity = Identity::of(search.machine, search.root).map_err(|failure| (failure, String::new()))?;
    let settings = search.settings(SOURCE.name);
    let data_dir = data_dir(settings);
    if data_dir.is_none() {
        search.problem("datasource: Azure: data_dir: expected an absolute path: ovf-env.xml is not kept".into());
    }
    let surroundings = surroundings(search, identity, data_dir.unwrap_or_default());
    let vm_id = || surroundings.identity.vm_id.clone();
    let media = media_of(search, &surroundings.data_dir).map_err(|failure| (failure, vm_id()))?;
    let fail_without_custom_data = settings.and_then(|s| s.get("experimental_fail_on_missing_customdata"));
    Ok(Prepared {
        media,
        has_reported: !surroundings.stale.is_empty(),
        surroundings,
        fail_without_custom_data: fail_without_custom_data.is_some_and(Value::is_true),
        deadline: search.deadline,
        failed: Arc::default(),
        reported: AtomicBool::new(false),
    })
}

/// The folder that the document is kept in: empty where the settings say so, None where they name none that can be.
fn data_dir(settings: Option<&Value>) -> Option<String> {
    match settings.and_then(|s| s.get("data_dir")) {
        None => Some(DATA_DIR.to_owned()),
        Some(Value::Null) => Some(String::new()),
        Some(value) => value.text().filter(|d| d.starts_with('/')).map(|d| d.trim_end_matches('/').to_owned()),
    }
}

fn surroundings(search: &Search, identity: Identity, data_dir: String) -> Surroundings {
    let is_on = |key: &str| !switched_off(search, SOURCE.name, key);
    let aliases = search.settings(SOURCE.name).and_then(|s| s.get("disk_aliases")).and_then(Value::as_map).cloned();
    let has_resource_disk = disk::has_resource_disk(search.machine, search.root);
    // Without the disk, mounts would have a line for it.
    let known = [("ephemeral0", RESOURCE_DISK)].into_iter().filter(|_| has_resource_disk);
    let mut disk_aliases: Map = known.collect();
    for (name, path) in aliases.unwrap_or_default().into_entries() {
        disk_aliases.insert(name, path);
    }
    let distro = search.config.at(&["system_info", "distro"]).and_then(Value::text);
    let distro =
        distro.map_or_else(|| Distro::of_os_release(&search.root.text("/etc/os-release")), |d| Distro::named(&d));
    let cached = state::cached(search.root).filter(|cached| cached.instance_id == identity.instance_id);
    let password = cached.as_ref().and_then(|c| c.config.at(&["system_info", "default_user", "hashed_passwd"])?.text());
    Surroundings {
        nics: search.machine.nics(),
        network: network::Settings {
            metadata: is_on("apply_network_config"),
            secondary: is_on("apply_network_config_for_secondary_ips"),
            set_name: is_on("apply_network_config_set_name"),
        },
        has_resource_disk,
        is_ubuntu: distro.name == "ubuntu",
        stale: search.root.is_file(REPORTED).then(|| REPORTED.to_owned()).into_iter().collect(),
        random_seed: beneath::bytes(&search.machine.base, RANDOM_SEED).filter(|b| !b.is_empty()).map(Bytes),
        identity,
        data_dir,
        disk_aliases,
        password,
    }
}

/// The instance of the media alone, for `--seed`. None where it is not Azure's, or cannot be read.
pub fn of_files(search: &Search, files: &Files, place: &str) -> Option<Instance> {
    let media = media::parse(files.get(media::FILE)?).ok()??;
    // A tree may be of no machine yet.
    let unknown = |_| Identity { instance_id: DEFAULT_ID.into(), vm_id: DEFAULT_ID.into(), is_new: true };
    let identity = Identity::of(search.machine, search.root).unwrap_or_else(unknown);
    let data_dir = data_dir(search.settings(SOURCE.name)).unwrap_or_default();
    let read = Read { imds: &Value::Null, seed: place, failure: None, problems: Vec::new() };
    Some(surroundings(search, identity, data_dir).instance(Some(&media), read, ToString::to_string))
}

/// The first media that is Azure's: the seed folder, /dev/sr0, other drives, and what an earlier boot kept.
fn media_of(search: &mut Search, data_dir: &str) -> std::result::Result<Option<Medium>, Failure> {
    let mut drives = search.drives_of_kind("iso9660");
    drives.extend(search.drives_of_kind("udf"));
    crate::base::sort::by_key(&mut drives, |path| !path.ends_with("/dev/sr0"));
    let folders = |folder: &str| (folder.to_owned(), false);
    let places = std::iter::once(folders(SEED))
        .chain(drives.into_iter().map(|drive| (drive, true)))
        .chain(std::iter::once(folders(data_dir)).filter(|(folder, _)| !folder.is_empty()));
    for (seed, is_drive) in places.collect::<Vec<_>>() {
        let bytes = match is_drive {
            true => search.open_drive(&seed).and_then(|files| files.get(media::FILE).map(<[u8]>::to_vec)),
            false => match search.root.read(&format!("{seed}/{}", media::FILE)) {
                Ok(bytes) => bytes,
                Err(e) => {
                    search.problem(e.to_string());
                    None
                }
            },
        };
        if let Some(media) = bytes.map(|bytes| media::parse(&bytes)).transpose()?.flatten() {
            return Ok(Some(Medium { media, seed }));
        }
    }
    Ok(None)
}

/// How a machine of a pool waits for its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pool {
    /// It has reported in an earlier boot.
    Reported,
    /// Its network is taken away meanwhile, and with it the answer to the report.
    Savable,
    /// Only its disk is kept: the host shuts it down.
    OsDisk,
    Running,
}

impl Prepared {
    fn fetch(&self, client: &Client, base: &str) -> Result<Found> {
        let has_route =
            client.uplink().lease.as_ref().is_none_or(|l| l.routes.iter().any(|r| is_service(r.destination)));
        let tries = if has_route { u32::MAX } else { TRIES_WITHOUT_ROUTE };
        let imds = |media: bool| {
            let search = Some(self.deadline.left().saturating_sub(REPORT_TIME));
            let limited = client.limited(Limits { search, ..Limits::default() });
            match imds::instance(&limited, base, tries) {
                Ok(imds) => Ok((imds, None)),
                // Without a route there may be no service: that is no failure.
                Err(failure) if media && !has_route && imds::is_unanswered(&failure) => Ok((Value::Null, None)),
                Err(failure) if media => Ok((Value::Null, Some(failure))),
                Err(failure) => Err(self.fail(client, &failure)),
            }
        };
        let (mut document, mut failure) = imds(self.media.is_some())?;
        let mut problems = Vec::new();
        let mut media = self.media.as_ref().map(|found| (&found.media, found.seed.as_str()));
        self.wait_for_media(client, &document, media.map(|(_, seed)| seed), &mut problems)?;
        let pool = self.pool(media.map(|(media, _)| media), &document);
        let owners;
        if let Some(pool) = pool {
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
            problems.push("the metadata says that there is custom data, and the provisioning media has none".into());
            if self.fail_without_custom_data {
                let missing = Failure::new("failure to read customData while hasCustomData=true");
                let missing = missing.with("pps_type", pool.map_or("None", Pool::name));
                failure = failure.or(Some(missing.with("provisioning_media", media.map_or(IMDS, |(_, seed)| seed))));
            }
        }
        problems.extend(failure.as_ref().map(ToString::to_string));
        let seed = media.map_or(IMDS, |(_, seed)| seed);
        let read = Read { imds: &document, seed, failure: failure.as_ref(), problems };
        let report = |failure: &Failure| failure.report(&self.surroundings.identity.vm_id, client.now());
        let instance = self.surroundings.instance(media.map(|(media, _)| media), read, report);
        let place = if seed == IMDS { base } else { seed }.to_owned();
        Ok(Found { instance, place })
    }

    /// Waits for media of a new machine that the metadata says is there: its drive may be slower than the network. A drive
    /// that appears ends the search by `client`.
    fn wait_for_media(
        &self,
        client: &Client,
        imds: &Value,
        seed: Option<&str>,
        problems: &mut Vec<String>,
    ) -> Result<()> {
        let has_password = imds.at(&["compute", "osProfile", "disablePasswordAuthentication"]).and_then(Value::text);
        let has_password = has_password.is_some_and(|disabled| disabled.eq_ignore_ascii_case("false"));
        let has_data = imds.at(&["extended", "compute", "hasCustomData"]).and_then(Value::as_bool) == Some(true);
        let is_there = seed.is_some_and(|seed| seed != self.surroundings.data_dir);
        if is_there || !self.surroundings.identity.is_new || !(has_password || has_data) {
            return Ok(());
        }
        if !client.wait(MEDIA_TIME) {
            return Err(Error::new("the search ended while the provisioning media was awaited"));
        }
        problems.push(format!(
            "the metadata says that there is a password or custom data, and no provisioning media appeared in {} s",
            MEDIA_TIME.as_secs()
        ));
        Ok(())
    }

    /// How the machine waits for its owner. None where it has one.
    fn pool(&self, media: Option<&Media>, imds: &Value) -> Option<Pool> {
        let by_imds = imds.at(&["extended", "compute", "ppsType"]).and_then(Value::as_str);
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

    /// Reports to the pool that the machine is ready, and waits for the document of its owner.
    fn wait_for_owner(&self, client: &Client, base: &str, pool: Pool) -> Result<Option<Media>> {
        if pool != Pool::Reported {
            log::info!("Azure: the machine is one of a pool ({}) and waits for its owner", pool.name());
            match report(client, Health::Ready) {
                Err(e) if pool != Pool::Savable => return Err(e.context("failed to report to the pool")),
                _ => {}
            }
        }
        if pool == Pool::OsDisk {
            client.wait(self.deadline.left().saturating_sub(REPORT_TIME));
            return Err(self.fail(client, &Failure::new("error waiting for host shutdown")));
        }
        let document = imds::reprovision_data(client, base)?;
        media::parse(&document).map_err(|failure| self.fail(client, &failure))
    }

    fn fail(&self, client: &Client, failure: &Failure) -> Error {
        self.failed.store(true, Ordering::Relaxed);
        fail(client, failure, &self.surroundings.identity.vm_id, &self.reported)
    }
}

/// The seed's name where the metadata alone is used.
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

/// Reports a failure, once; gives it as an error, with the reason why it could not be reported.
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
