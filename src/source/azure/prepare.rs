//! A machine on Azure before a service is asked: its image's settings, and its provisioning media.

use super::failure::Failure;
use super::identity::Identity;
use super::instance::{RESOURCE_DISK, Read, Surroundings};
use super::media::{self, Media};
use super::{SOURCE, disk, network};
use crate::base::deadline::Deadline;
use crate::base::problem::Problems;
use crate::document::{Bytes, Map, Value};
use crate::drive::Files;
use crate::drive::search::Probed;
use crate::instance::{Instance, state};
use crate::machine::{Distro, beneath};
use crate::root::installed;
use crate::source::search::Search;
use crate::source::service::switched_off;

/// The seed folder, and the folder of Azure's agent for the document.
const SEED: &str = "/var/lib/cloud/seed/azure";
const DATA_DIR: &str = "/var/lib/waagent";
/// cloud-init's mark of a machine that has reported to its pool.
const REPORTED: &str = "/var/lib/cloud/data/reported_ready";
/// The instance-id of a seed for no particular machine (cloud-init's).
const DEFAULT_ID: &str = "iid-AZURE-NODE";
/// Random bytes from the hypervisor.
const RANDOM_SEED: &str = "sys/firmware/acpi/tables/OEM0";
/// The media, and its place.
pub struct Medium {
    pub media: Media,
    pub seed: String,
}

/// The facts known before any service is asked.
pub struct Prepared {
    pub surroundings: Surroundings,
    pub media: Option<Medium>,
    /// Whether the machine reported to its pool in an earlier boot.
    pub has_reported: bool,
    /// `experimental_fail_on_missing_customdata`
    pub fail_without_custom_data: bool,
    pub deadline: Deadline,
}

/// Collects what the machine, its image and its drives say.
///
/// # Errors
/// Provisioning fails: the machine has no UUID, or its media cannot be used. Returned with the machine's ID,
/// which may be empty.
pub fn prepare(search: &mut Search) -> std::result::Result<Prepared, (Failure, String)> {
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
    })
}

/// The folder for the copy of the document: empty if the settings disable it, None if they name an unusable
/// one.
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
    // Without the disk, the module mounts must not write a line for it.
    let known = [("ephemeral0", RESOURCE_DISK)].into_iter().filter(|_| has_resource_disk);
    let mut disk_aliases: Map = known.collect();
    for (name, path) in aliases.unwrap_or_default().into_entries() {
        disk_aliases.insert(name, path);
    }
    let distro = search.config.at(&["system_info", "distro"]).and_then(Value::text);
    let distro = distro.map_or_else(|| installed::distro(search.root), |d| Distro::named(&d));
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
        random_seed: beneath::bytes(&search.machine.base, RANDOM_SEED).filter(|b| !b.is_empty()).map(Bytes::from),
        identity,
        data_dir,
        disk_aliases,
        password,
    }
}

/// The instance of the media alone, for `--seed`. None if it is not Azure's or cannot be read.
pub fn of_files(search: &Search, files: &Files, place: &str) -> Option<Instance> {
    let media = media::parse(files.get(media::FILE)?).ok()??;
    // A tree may not belong to a machine yet.
    let unknown = |_| Identity { instance_id: DEFAULT_ID.into(), vm_id: DEFAULT_ID.into(), is_new: true };
    let identity = Identity::of(search.machine, search.root).unwrap_or_else(unknown);
    let data_dir = data_dir(search.settings(SOURCE.name)).unwrap_or_default();
    let read = Read { imds: &Value::Null, seed: place, failure: None, problems: Problems::new() };
    Some(surroundings(search, identity, data_dir).instance(Some(&media), read, ToString::to_string))
}

/// The first media that is Azure's: from the seed folder, /dev/sr0, other drives, or the copy of an earlier
/// boot.
fn media_of(search: &mut Search, data_dir: &str) -> std::result::Result<Option<Medium>, Failure> {
    let of_kind = |kind: &'static str| move |d: &Probed| d.superblock().is_some_and(|s| s.kind == kind);
    let mut drives = search.drives_of(&of_kind("iso9660"));
    drives.extend(search.drives_of(&of_kind("udf")));
    crate::base::sort::by_key(&mut drives, |path| !path.ends_with("/dev/sr0"));
    let folders = |folder: &str| (folder.to_owned(), false);
    let places = std::iter::once(folders(SEED))
        .chain(drives.into_iter().map(|drive| (drive, true)))
        .chain(std::iter::once(folders(data_dir)).filter(|(folder, _)| !folder.is_empty()));
    for (seed, is_drive) in places.collect::<Vec<_>>() {
        let bytes = match is_drive {
            true => search.open_drive(&seed).and_then(|files| files.get(media::FILE).map(<[u8]>::to_vec)),
            false => match search.document(&format!("{seed}/{}", media::FILE)) {
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
