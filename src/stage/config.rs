//! The configuration in its layers, and the parts of user-data and vendor-data where they belong on the disk.

use super::image::Image;
use super::web::{self, Includes};
use crate::document::{Map, Value, json};
use crate::error::Result;
use crate::instance::{Instance, state};
use crate::machine::{Distro, Machine};
use crate::module::Frequency;
use crate::root::{Attr, Root};
use crate::userdata::config::{self, Consumed, Files, Sources};
use crate::userdata::{Fetched, Include, Script, UserData, When, cache_name, vendor};

/// cloud-init's semaphore for the parts of user-data.
const CONSUMED: &str = "consume_data";
/// The last boot's instance-data, for configuration files that are templates.
const INSTANCE_DATA: &str = "/run/cloud-init/instance-data-sensitive.json";

/// What an instance's user-data comes to.
pub struct Merged {
    pub config: Value,
    /// Whether parts of it are remote and are not in it yet.
    pub needs_network: bool,
}

struct InRoot<'a>(&'a Root);

impl Files for InRoot<'_> {
    fn read(&mut self, path: &str) -> Result<Option<Vec<u8>>> {
        self.0.read(path)
    }

    fn names(&mut self, folder: &str) -> Result<Option<Vec<String>>> {
        Ok(self.0.is_dir(folder).then(|| self.0.list(folder)))
    }
}

/// The image's configuration: its files and the kernel command line, over the distribution's defaults.
pub fn base(root: &Root, machine: &Machine, distro: &Distro) -> config::Base {
    let data = root.read(INSTANCE_DATA).ok().flatten().and_then(|b| json::parse(INSTANCE_DATA, &b).ok());
    let defaults = distro.default_config();
    let defaults = defaults.as_map().cloned().unwrap_or_default();
    config::base(&mut InRoot(root), machine.cmdline.text(), data.as_ref(), defaults)
}

/// Gets what user-data includes.
pub type Fetch<'a> = &'a mut dyn FnMut(&Include<'_>) -> Result<Fetched>;

/// Gets what is in the root itself; the rest has to wait for the network.
pub fn without_network(root: &Root, include: &Include<'_>) -> Result<Fetched> {
    web::local(root, include.url).map_or(Ok(Fetched::Later), |content| content.map(Fetched::Content))
}

/// Gets what user-data includes: from the root, from what an earlier boot kept (`#include-once`), over the network.
pub fn with_network(root: &Root, instance: &Instance, web: &Includes, include: &Include<'_>) -> Result<Fetched> {
    let kept = format!("{}/data/urlcache/{}", state::folder(instance), cache_name(include.url));
    if include.once
        && let Some(content) = root.read(&kept)?
    {
        return Ok(Fetched::Content(content));
    }
    web::local(root, include.url).unwrap_or_else(|| web.get(include.url)).map(Fetched::Content)
}

/// Takes the instance's user-data and vendor-data apart, and merges the configuration. Nothing is written.
pub fn consume(image: &Image, instance: &Instance, instance_data: &Value, fetch: Fetch) -> (Merged, Consumed) {
    let empty = Map::new();
    let documents = |what: &str, data: &Value| {
        vendor::documents(data).unwrap_or_else(|e| {
            log::warn!("{what}: {e}");
            Vec::new()
        })
    };
    let (vendor_data, vendor_data2) =
        (documents("vendor-data", &instance.vendor_data), documents("vendor-data2", &instance.vendor_data2));
    let sources = Sources {
        user_data: instance.user_data.as_ref().map_or(&[], |b| b.0.as_slice()),
        vendor_data: &vendor_data,
        vendor_data2: &vendor_data2,
        datasource_config: instance.config.as_map().unwrap_or(&empty),
        launch_index: instance.launch_index,
        instance_data,
    };
    let base = image.config.as_map().unwrap_or(&empty);
    let consumed = config::consume(base, &sources, fetch);
    let all = [&consumed.user, &consumed.vendor, &consumed.vendor2];
    let needs_network = all.into_iter().flatten().any(|data| !data.deferred.is_empty());
    (Merged { config: Value::Map(image.over(consumed.config.clone())), needs_network }, consumed)
}

/// Writes the parts: the merged documents on every boot, the scripts once for each instance.
pub fn write_parts(root: &mut Root, instance: &Instance, consumed: &Consumed) -> Result<()> {
    let folder = state::folder(instance);
    let named = [
        ("user-data", "", &consumed.user),
        ("vendor-data", "vendor-", &consumed.vendor),
        ("vendor-data2", "vendor2-", &consumed.vendor2),
    ];
    let first = !state::is_done(root, instance, CONSUMED, Frequency::Instance);
    for (name, prefix, data) in named {
        let Some(data) = data else { continue };
        for error in &data.errors {
            log::warn!("{name}: {error}");
        }
        root.write(&format!("{folder}/{name}.txt.i"), data.processed.clone(), Attr::root(0o600))?;
        root.write(&format!("{folder}/{prefix}cloud-config.txt"), data.text.clone(), Attr::root(0o600))?;
        for (url, content) in &data.fetched_once {
            root.write(&format!("{folder}/data/urlcache/{}", cache_name(url)), content.clone(), Attr::root(0o600))?;
        }
        for (name, content) in &data.boothooks {
            root.write(&format!("{folder}/boothooks/{name}"), content.clone(), Attr::root(0o700))?;
        }
        if first {
            scripts(root, &folder, data)?;
        }
    }
    if first { state::mark_done(root, instance, CONSUMED, Frequency::Instance) } else { Ok(()) }
}

fn scripts(root: &mut Root, folder: &str, data: &UserData) -> Result<()> {
    for Script { name, content, when } in &data.scripts {
        let place = match when {
            When::User => format!("{folder}/scripts"),
            When::Vendor => format!("{folder}/scripts/vendor"),
            When::PerBoot => format!("{}/scripts/per-boot", state::CLOUD_DIR),
            When::PerInstance => format!("{}/scripts/per-instance", state::CLOUD_DIR),
            When::PerOnce => format!("{}/scripts/per-once", state::CLOUD_DIR),
        };
        root.write(&format!("{place}/{name}"), content.clone(), Attr::root(0o700))?;
    }
    Ok(())
}
