//! Provisions a root with one instance: state, network files, user-data's parts, and the file half of every module.

use super::boot::Boot;
use super::modules::{Half, Run};
use super::{config, network, part_handlers};
use crate::base::error::Result;
use crate::base::report::Report;
use crate::document::{Value, json};
use crate::instance::Frequency;
use crate::instance::{Instance, instance_data, state};
use crate::root::{Attr, Command, Root, Stage};
use crate::system::fstab::{FSTAB, without_ours};

/// The mark that the source's own files were written.
const FILES_DONE: &str = "prepivot_files";

/// Does the file half of everything: the state, the network, the files of the source, the parts of user-data, and the modules
/// unless user-data has parts that are remote. The merged configuration stays in `boot`. Whether it is complete: nothing of it is
/// remote or left to part-handlers.
pub fn provision(root: &mut Root, boot: &mut Boot, instance: &Instance) -> bool {
    let last = state::last_id(root);
    let new = last.as_deref() != Some(&instance.instance_id);
    if new && last.is_some() {
        boot.report.keep(forget_mounts(root));
    }
    boot.report.keep(state::store(root, instance));
    if new {
        let applied = network::apply(root, boot.machine, &boot.image, instance, &mut boot.report);
        boot.report.keep(applied.and_then(|applied| network_json(root, instance, applied)));
    }
    source_files(root, instance, &mut boot.report);
    let standard = instance_data::standard(root, boot.machine, &boot.image.distro, instance);
    let variables = Value::Map(standard.clone());
    let (merged, consumed) = config::consume(&boot.image, instance, &variables, &mut boot.report, &mut |include| {
        config::without_network(root, include)
    });
    if !merged.needs_network {
        config::check(&consumed, &mut boot.report);
        boot.report.keep(config::write_parts(root, instance, &consumed));
    }
    boot.report.keep(instance_data::write(root, standard, instance, &boot.image.config, &merged.config));
    boot.log();
    boot.config = Some(merged.config);
    let complete = !merged.needs_network && !part_handlers::are_wanted(&boot.image, &consumed);
    if merged.needs_network {
        log::info!("user-data refers to something remote: the modules run when the network is up");
        Run::new(root, boot, instance).hostname();
    } else {
        modules(root, boot, instance);
        Run::new(root, boot, instance).leave_early();
    }
    complete
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
fn network_json(root: &mut Root, instance: &Instance, applied: Option<network::Applied>) -> Result<()> {
    let path = format!("{}/network-config.json", state::folder(instance));
    let text = json::to_string_sorted(&applied.map(|a| a.config).unwrap_or_default());
    root.write(&path, text, Attr::root(0o600))?;
    root.symlink(&format!("{}/network-config.json", state::RUN_DIR), &path)
}

/// The file half of every stage's modules.
pub fn modules(root: &mut Root, boot: &mut Boot, instance: &Instance) {
    let mut run = Run::new(root, boot, instance);
    [Stage::Init, Stage::Config, Stage::Final].into_iter().for_each(|stage| run.stage(stage, Half::Provision));
}

/// Files that the source itself brings (a config drive's `files`), 0660 as cloud-init does, those that are root's alone, and those
/// that it takes the place of: once for each instance.
fn source_files(root: &mut Root, instance: &Instance, report: &mut Report) {
    let Instance { files, private_files, stale_files, .. } = instance;
    let has_none = files.is_empty() && private_files.is_empty() && stale_files.is_empty();
    if has_none || state::is_done(root, instance, FILES_DONE, Frequency::Instance) {
        return;
    }
    let mut keep = |result: Result<()>| {
        if let Err(e) = result {
            report.warn(format_args!("the datasource's files: {e}"));
        }
    };
    stale_files.iter().for_each(|path| keep(root.remove(path)));
    for (path, content) in files {
        // nova allows a path relative to the root.
        let path = format!("/{}", path.trim_start_matches('/'));
        keep(root.write(&path, content.0.clone(), Attr::root(0o660)));
    }
    for (path, content) in private_files {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        keep(root.mkdir(folder, Attr::root(0o700)));
        keep(root.write(path, content.0.clone(), Attr::root(0o600)));
    }
    report.keep(state::mark_done(root, instance, FILES_DONE, Frequency::Instance));
}

fn boothooks_of(instance: &Instance) -> String {
    format!("{}/boothooks", state::folder(instance))
}

/// Whether the instance has boothooks, which run on every boot.
pub fn has_boothooks(root: &Root, instance: &Instance) -> bool {
    !root.list(&boothooks_of(instance)).is_empty()
}

/// Runs the boothooks of the instance: on every boot, before any module of the real root.
pub fn boothooks(root: &mut Root, boot: &mut Boot, instance: &Instance) {
    let folder = boothooks_of(instance);
    for name in root.list(&folder) {
        let command = Command::new(Stage::Init, [format!("{folder}/{name}")]);
        if let Err(e) = root.run(command.env("INSTANCE_ID", instance.instance_id.as_str())) {
            boot.report.error(format_args!("boothook {name} failed: {e}"));
        }
        boot.log();
    }
}
