//! Datasources: one file or folder for each, and a table of them.
//!
//! To add one, copy `example.rs`, and name the copy here and in [`table::SOURCES`].

mod akamai;
mod aliyun;
mod alt_cloud;
mod azure;
mod bigstep;
mod cloud_cix;
mod cloud_sigma;
mod cloud_stack;
mod digital_ocean;
mod ec2;
#[cfg(test)]
mod example;
mod exoscale;
mod gce;
mod hetzner;
mod ibm_cloud;
mod lxd;
mod maas;
mod no_cloud;
pub mod none;
mod nwcs;
mod open_nebula;
mod openstack;
mod oracle;
mod ovf;
mod rbx_cloud;
mod scaleway;
mod smart_os;
mod tencent_cloud;
mod up_cloud;
mod vmware;
mod vultr;
mod wsl;

pub mod choose;
pub mod closed;
mod documents;
mod keys;
pub mod password_server;
pub mod search;
pub mod service;
mod table;

pub use keys::public_keys;
pub use search::{Found, Search, parameters};
pub use table::{
    Hotplug, Live, MetadataOf, RealRoot, RunningMetadata, SOURCES, Source, Update, built_in_list, candidates,
    is_chosen, labels, named,
};

use crate::base::deadline::Deadline;
use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::document::{Taken, Value};
use crate::drive;
use crate::instance::{DsMode, Instance};
use crate::machine::Machine;
use crate::root::Root;
use std::path::Path;
use std::time::Duration;

/// Sets the description that cloud-init has of the instance's source ([`Source::describe`]).
pub fn describe(instance: &mut Instance) {
    instance.described = named(&instance.source).map(|s| s.describe(instance)).unwrap_or_default();
}

/// How long reading `--seed` may take.
const SEED_TIME: Duration = Duration::from_secs(60);

/// Reads the first of the sources called `names` that is available without a network, in that order. An error
/// of one is reported, and the next is read.
pub fn find_local(search: &mut Search, names: &[String]) -> Option<Found> {
    for source in names.iter().filter_map(|name| named(name)) {
        let Some(read) = source.read else { continue };
        search.taken().clear();
        match read(search) {
            Ok(Some(found)) if found.instance.dsmode == DsMode::Disabled => {
                search.reason(format!("{}: {} is not to be used (dsmode: disabled)", source.name, found.place));
            }
            Ok(Some(mut found)) => {
                found.instance.raw = search.taken().raw();
                return Some(found);
            }
            Ok(None) => {}
            Err(e) => search.problem(e.to_string()),
        }
    }
    None
}

/// Reads `--seed`: a drive, an image of one, or a folder, in any layout that a source reads. Warnings are
/// added to `report`. `taken` notes its documents as they came.
///
/// # Errors
/// The seed cannot be read, or has none of these layouts.
pub fn read_seed(
    machine: &Machine,
    root: &Root,
    config: &Value,
    seed: &Path,
    taken: Taken,
    report: &Problems,
) -> Result<Found> {
    let deadline = Deadline::after(SEED_TIME);
    let mut files = drive::open(seed, deadline)?;
    let place = seed.display().to_string();
    search::notes(&files).iter().for_each(|note| report.warn(format!("{place}: {note}")));
    let search = Search::new(machine, root, config, deadline).keeping(taken);
    files.keep(search.taken());
    let instance = SOURCES.iter().filter_map(|s| s.seed).find_map(|read| {
        search.taken().clear();
        read(&search, &files, &place)
    });
    let of = |mut instance: Instance| {
        instance.raw = search.taken().raw();
        Found { instance, place: place.clone() }
    };
    instance.map(of).ok_or_else(|| {
        let names: Vec<&str> = SOURCES.iter().filter(|s| s.seed.is_some()).map(|s| s.name).collect();
        Error::new(format!("{place} is no drive that this build reads: expected the files of {}", names.join(", ")))
    })
}
