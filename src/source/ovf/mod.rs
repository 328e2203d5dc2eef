//! OVF: ovf-env.xml on a drive, in a folder, or in VMware's guestinfo.
//!
//! Follows DMTF DSP0243, "Open Virtualization Format Specification", section "OVF environment", and cloud-init's documentation,
//! "OVF".

mod environment;
mod marks;

use super::no_cloud::{self, Seed};
use super::search::{Found, Search};
use super::service::{Job, MAX_WAIT, RETRIES, TIMEOUT, limits};
use super::{RealRoot, Source};
use crate::base::error::{Error, Result};
use crate::detect::{Filesystem, Guestinfo, Mark, virt};
use crate::drive::Files;
use crate::instance::{Instance, NetworkData};
use crate::link::Uplink;
use crate::link::http::{Client, Redirects};
use environment::Environment;

pub static SOURCE: Source = Source {
    name: "OVF",
    described: "[seed={place}]",
    marks: &[
        Mark::Seed("ovf", &["ovf-env.xml"]),
        Mark::Unless(marks::ruled_out),
        Mark::Check(
            "an OVF environment in guestinfo, on a CD-ROM labelled OVF-TRANSPORT, OVFENV or OVF ENV, or on one below 10 MiB that names \
         the OVF schema",
            marks::mark,
        ),
    ],
    labels: marks::LABELS,
    has_other_ways: true,
    read: Some(read),
    real_root: RealRoot { unseen: Some(|facts| facts.unseen_guestinfo()), ..RealRoot::NEW },
    service: Some(job),
    read_on_boot: true,
    seed: Some(|_, files, place| {
        let environment = of_files(files)?.ok()?;
        Some(finish(environment.seed(place), &environment, true).instance)
    }),
    settings: &[MAX_WAIT, TIMEOUT, RETRIES],
    docs: "An OVF environment, ovf-env.xml: in /var/lib/cloud/seed, in VMware's guestinfo.ovfEnv, or on a CD-ROM with an OVF label \
        or of less than 10 MiB that names OVF's schema. Its properties are instance-id, hostname, public-keys, password, \
        user-data, network-config (both in base64) and seedfrom: a folder of the image, or a URL where a NoCloud seed is. Before the pivot \
        guestinfo is read by the hypervisor's VM socket, where the initramfs has its drivers (vmw_vmci, vmw_vsock_vmci_transport).",
    ..Source::NEW
};

/// The possible names of the file.
const NAMES: [&str; 4] = ["ovf-env.xml", "ovf_env.xml", "OVF_ENV.XML", "OVF-ENV.XML"];
/// The instance-id of an environment that lacks one.
const DEFAULT_ID: &str = "iid-dsovf";
/// Folders of the image that may have the file: cloud-init's, and ds-identify's.
const SEEDS: [&str; 2] = ["/var/lib/cloud/seed", "/var/lib/cloud/seed/ovf"];

/// Reads the environment, plus a local seedfrom. One with a URL is left to the service.
fn read(search: &mut Search) -> Result<Option<Found>> {
    let Some((environment, place)) = environment(search)? else { return Ok(None) };
    let mut seed = environment.seed(&place.name);
    match environment.seedfrom() {
        None => {}
        Some(from) if is_url(from) => return Ok(None),
        Some(from) => {
            let folder = from.strip_prefix("file://").unwrap_or(from);
            let none = || {
                Error::new(format!(
                    "OVF: seedfrom: expected a URL of http or https, or a folder of the image: {folder}"
                ))
            };
            let files = search.seed_folder(folder).filter(|_| folder.starts_with('/')).ok_or_else(none)?;
            seed.take_files(&files, from);
        }
    }
    Ok(Some(finish(seed, &environment, place.gives_network)))
}

/// How the rest is fetched from the environment's URL.
fn job(search: &mut Search) -> Option<Job> {
    let (environment, place) = environment(search).ok()??;
    let from = environment.seedfrom().filter(|from| is_url(from))?.to_owned();
    let fetch = move |client: &Client, url: &str| {
        let seed = no_cloud::fetch(client, environment.seed(&place.name), url)?;
        let mut found = finish(seed, &environment, place.gives_network);
        found.instance.class = "DataSourceOVFNet".into();
        Ok(found)
    };
    let urls = move |uplink: &Uplink| if uplink.reaches(&from) { vec![from.clone()] } else { Vec::new() };
    Some(Job {
        replaces_drive: true,
        redirects: Redirects::Any,
        ..Job::new(SOURCE.name, urls, fetch, limits(search, SOURCE.name))
    })
}

fn is_url(from: &str) -> bool {
    from.starts_with("http://") || from.starts_with("https://")
}

/// Where an environment was found.
struct Place {
    /// cloud-init's name for it: a path, or a transport.
    name: String,
    /// A network-config in a seed folder is ignored, as in cloud-init.
    gives_network: bool,
}

/// The first environment: in a folder of the image, in guestinfo, on a drive.
fn environment(search: &mut Search) -> Result<Option<(Environment, Place)>> {
    for folder in SEEDS {
        for name in NAMES {
            let path = format!("{folder}/{name}");
            if let Some(bytes) = search.document(&path)? {
                return Ok(Some((Environment::parse(&path, &bytes)?, Place { name: path, gives_network: false })));
            }
        }
    }
    let name = |name: &str| Place { name: name.into(), gives_network: true };
    // A program has to be run: only on VMware's machines.
    if let Some(text) = guestinfo(search).and_then(|guestinfo| guestinfo.get("ovfEnv")) {
        search.taken().add("guestinfo.ovfEnv", text.as_bytes());
        return Ok(Some((Environment::parse("guestinfo.ovfEnv", text.as_bytes())?, name("com.vmware.guestInfo"))));
    }
    let machine = search.machine;
    let suits = |fs: Filesystem| marks::is_drive(&fs) && marks::has_environment(machine, &fs);
    for drive in search.drives_of(&|probed| Filesystem::of(probed).is_some_and(suits)) {
        let Some(files) = search.open_drive(&drive) else { continue };
        match of_files(&files) {
            Some(Ok(environment)) => return Ok(Some((environment, name("iso")))),
            Some(Err(e)) => return Err(e.context(drive)),
            None => {}
        }
    }
    Ok(None)
}

/// VMware's guestinfo, if it is available.
fn guestinfo(search: &Search) -> Option<Guestinfo> {
    let here = search.tools.can_run() || virt::detect(search.machine) == virt::VMWARE;
    here.then(|| Guestinfo::of(search.machine, search.root, &search.tools))?
}

/// The environment in a tree of files. None if it lacks one, or if it is Azure's.
fn of_files(files: &Files) -> Option<Result<Environment>> {
    let (name, bytes) = NAMES.iter().find_map(|name| Some((name, files.get(name)?)))?;
    match Environment::parse(name, bytes) {
        Ok(environment) if environment.is_azures => None,
        parsed => Some(parsed),
    }
}

/// The instance of an environment and its seed.
fn finish(seed: Seed, environment: &Environment, gives_network: bool) -> Found {
    let places = seed.places();
    let mut found = seed.finish("DataSourceOVF", DEFAULT_ID);
    let own = Instance {
        source: SOURCE.name.into(),
        platform: "ovf".into(),
        cloud_name: "ovf".into(),
        subplatform: format!("ovf ({places})"),
        config: environment.config(),
        network: environment.network.clone().filter(|_| gives_network).map(NetworkData::Cloud),
        ..std::mem::take(&mut found.instance)
    };
    found.instance = own;
    found.instance.problems.absorb(environment.problems.clone());
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::deadline::Deadline;
    use crate::base::testing::TempDir;
    use crate::document::Value;
    use crate::root::{Attr, Use};
    use std::time::Duration;

    #[test]
    fn names_the_origin_of_an_images_seedfrom() {
        let dir = TempDir::new("ovf");
        let mut root = dir.root(Use::Tree);
        let text = "<Environment xmlns:oe=\"http://schemas.dmtf.org/ovf/environment/1\"><PropertySection>\
            <Property oe:key=\"seedfrom\" oe:value=\"file:///srv/x/\"/></PropertySection></Environment>";
        root.write(&format!("{}/ovf-env.xml", SEEDS[0]), text, Attr::root(0o600)).unwrap();
        root.write("/srv/x/meta-data", "instance-id: i-1\n", Attr::root(0o600)).unwrap();
        let machine = dir.machine();
        let mut search = Search::new(&machine, &root, &Value::Null, Deadline::after(Duration::from_secs(5)));
        let found = read(&mut search).unwrap().unwrap().instance;
        assert_eq!(found.instance_id, "i-1");
        assert_eq!(found.subplatform, "ovf (/var/lib/cloud/seed/ovf-env.xml,file:///srv/x/)");
    }
}
