//! Provisions a root with one instance: state, network files, user-data's parts, and the file half of every module.

use super::image::Image;
use super::modules::{Half, Run};
use super::{Errors, config, network};
use crate::base::error::Result;
use crate::document::{Value, json};
use crate::instance::Frequency;
use crate::instance::{Instance, instance_data, state};
use crate::machine::Machine;
use crate::root::{Attr, Command, Root, Stage};
use crate::system::Outside;
use crate::system::fstab::{FSTAB, without_ours};

/// The mark that the source's own files were written.
const FILES_DONE: &str = "prepivot_files";

/// Does the file half of everything. `new`: the root has not seen this instance yet. Gives what failed, one line each.
pub fn provision(
    root: &mut Root,
    machine: &Machine,
    image: &Image,
    instance: &Instance,
    new: bool,
    outside: &dyn Outside,
) -> Vec<String> {
    let mut errors = Errors::default();
    if new && state::last_id(root).is_some() {
        errors.keep(forget_mounts(root));
    }
    errors.keep(state::store(root, instance));
    if new {
        errors.keep(
            network::apply(root, machine, image, instance).and_then(|chosen| network_json(root, instance, chosen)),
        );
    }
    errors.keep(source_files(root, instance));
    let standard = instance_data::standard(root, machine, &image.distro, instance);
    let variables = Value::Map(standard.clone());
    let (merged, consumed) =
        config::consume(image, instance, &variables, &mut |include| config::without_network(root, include));
    if !merged.needs_network {
        config::check(&consumed);
        errors.keep(config::write_parts(root, instance, &consumed));
    }
    errors.keep(instance_data::write(root, standard, instance, &image.config, &merged.config));
    if merged.needs_network {
        log::info!("user-data refers to something remote: the modules run when the network is up");
        let mut run = Run { root, config: &merged.config, instance, distro: &image.distro, outside };
        errors.all(run.hostname());
        return errors.lines().to_vec();
    }
    errors.all(modules(root, image, instance, &merged.config, outside));
    errors.lines().to_vec()
}

/// Takes the lines of another instance's `mounts` out of fstab: its disks are not this machine's.
fn forget_mounts(root: &mut Root) -> Result<()> {
    root.edit_text(FSTAB, Attr::root(0o644), |text| {
        let kept = without_ours(text);
        Ok((kept != text).then_some(kept))
    })
    .map(drop)
}

/// What was chosen, where cloud-init keeps it.
fn network_json(root: &mut Root, instance: &Instance, chosen: Option<Value>) -> Result<()> {
    let path = format!("{}/network-config.json", state::folder(instance));
    let text = json::to_string_sorted(&chosen.unwrap_or_default());
    root.write(&path, text, Attr::root(0o600))?;
    root.symlink(&format!("{}/network-config.json", state::RUN_DIR), &path)
}

/// The file half of every stage's modules.
pub fn modules(
    root: &mut Root,
    image: &Image,
    instance: &Instance,
    config: &Value,
    outside: &dyn Outside,
) -> Vec<String> {
    let mut run = Run { root, config, instance, distro: &image.distro, outside };
    [Stage::Init, Stage::Config, Stage::Final].into_iter().flat_map(|stage| run.stage(stage, Half::Provision)).collect()
}

/// Files that the source itself brings (a config drive's `files`): once for each instance, 0660 as cloud-init does.
fn source_files(root: &mut Root, instance: &Instance) -> Result<()> {
    if instance.files.is_empty() || state::is_done(root, instance, FILES_DONE, Frequency::Instance) {
        return Ok(());
    }
    for (path, content) in &instance.files {
        if !path.starts_with('/') {
            log::warn!("the datasource's files: {path}: expected an absolute path");
            continue;
        }
        if let Err(e) = root.write(path, content.0.clone(), Attr::root(0o660)) {
            log::warn!("the datasource's files: {e}");
        }
    }
    state::mark_done(root, instance, FILES_DONE, Frequency::Instance)
}

/// Runs the boothooks of the instance: on every boot, before any module of the real root.
pub fn boothooks(root: &mut Root, instance: &Instance) -> Vec<String> {
    let folder = format!("{}/boothooks", state::folder(instance));
    let mut errors = Vec::new();
    for name in root.list(&folder) {
        let command = Command::new(Stage::Init, [format!("{folder}/{name}")]);
        if let Err(e) = root.run(command.env("INSTANCE_ID", instance.instance_id.as_str())) {
            let text = format!("boothook {name} failed: {e}");
            log::warn!("{text}");
            errors.push(text);
        }
    }
    errors
}
