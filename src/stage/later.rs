//! The stages of the real root: `init --local`, `init`, `modules --mode config`, `modules --mode final`.

use super::apply;
use super::config;
use super::image::{Image, disabled};
use super::modules::{Half, Run};
use super::outside::ThisMachine;
use super::provision;
use super::web::Includes;
use crate::document::{Value, json};
use crate::error::{Error, Result};
use crate::instance::status::{self, Status};
use crate::instance::{Instance, instance_data, state};
use crate::logging;
use crate::machine::Machine;
use crate::root::{Attr, Root, Stage};
use crate::userdata::Include;

/// cloud-init's log.
const LOG: &str = "/var/log/cloud-init.log";

/// `init --local`: makes the changes that waited for a file system to be mounted, and does the initramfs's work where no
/// initramfs of this boot did it. Gives the errors.
pub fn local(root: &mut Root, machine: &Machine) -> Vec<String> {
    let start = status::uptime();
    if !apply::was_done(root) {
        return apply::local(root, machine, start, false);
    }
    let mut errors = Vec::new();
    match root.replay() {
        Ok(failed) => errors.extend(failed.iter().map(Error::to_string)),
        Err(e) => errors.push(e.to_string()),
    }
    for error in &errors {
        log::error!("{error}");
    }
    let messages = logging::take();
    errors.extend(append_log(root, &messages));
    errors
}

/// One of the three stages that need the running system. Gives the errors.
pub fn stage(root: &mut Root, machine: &Machine, stage: Stage) -> Vec<String> {
    let start = status::uptime();
    if let Some(why) = disabled(root, machine) {
        log::info!("nothing is done: {why}");
        return Vec::new();
    }
    let name = match stage {
        Stage::Init => "init",
        Stage::Config => "modules-config",
        Stage::Final => "modules-final",
    };
    let mut status = Status::load(root);
    status.begin(name, start);
    let mut errors = Vec::new();
    errors.extend(saved(&status, root));
    if let Some(instance) = state::cached(root) {
        errors.extend(of_instance(root, machine, &instance, stage));
    } else {
        log::info!("there is no instance: nothing to do in the stage {name}");
    }
    errors.extend(root.commit().iter().map(Error::to_string));
    let messages = logging::take();
    status.end(name, &errors, &messages);
    if stage == Stage::Final {
        errors.extend(status.save_result(root).err().map(|e| e.to_string()));
    }
    errors.extend(saved(&status, root));
    errors.extend(append_log(root, &messages));
    errors.extend(root.run_at_end().iter().map(Error::to_string));
    errors
}

fn of_instance(root: &mut Root, machine: &Machine, instance: &Instance, stage: Stage) -> Vec<String> {
    let image = Image::read(root, machine);
    let outside = ThisMachine::new();
    if stage != Stage::Init
        && let Some(config) = combined(root)
    {
        let mut run = Run { root, config: &config, instance, distro: &image.distro, outside: &outside };
        return run.stage(stage, Half::Live);
    }
    let standard = instance_data::standard(root, machine, &image.distro, instance);
    let variables = Value::Map(standard.clone());
    let mut errors = Vec::new();
    let (mut merged, mut consumed) =
        config::consume(&image, instance, &variables, &mut |include| config::without_network(root, include));
    let remote = merged.needs_network;
    if remote {
        match Includes::new() {
            Ok(web) => {
                let mut fetch = |include: &Include<'_>| config::with_network(root, instance, &web, include);
                (merged, consumed) = config::consume(&image, instance, &variables, &mut fetch);
            }
            Err(e) => errors.push(e.to_string()),
        }
    }
    if stage == Stage::Init {
        let written = config::write_parts(root, instance, &consumed);
        errors.extend(written.err().map(|e| e.to_string()));
        if remote {
            let data = instance_data::write(root, standard, instance, &image.config, &merged.config);
            errors.extend(data.err().map(|e| e.to_string()));
            errors.extend(provision::modules(root, &image, instance, &merged.config, &outside));
        }
        errors.extend(provision::boothooks(root, instance));
    }
    let mut run = Run { root, config: &merged.config, instance, distro: &image.distro, outside: &outside };
    errors.extend(run.stage(stage, Half::Live));
    errors
}

/// The configuration as this boot's earlier stages merged it.
fn combined(root: &Root) -> Option<Value> {
    let path = format!("{}/combined-cloud-config.json", state::RUN_DIR);
    let bytes = root.read(&path).ok()??;
    json::parse(&path, &bytes).inspect_err(|e| log::warn!("{e}")).ok()
}

fn saved(status: &Status, root: &mut Root) -> Vec<String> {
    let result: Result<()> = status.save(root);
    let mut errors: Vec<String> = result.err().into_iter().map(|e| e.to_string()).collect();
    errors.extend(root.commit().iter().map(Error::to_string));
    errors
}

fn append_log(root: &mut Root, messages: &[logging::Message]) -> Vec<String> {
    let result = root.append(LOG, logging::to_file_lines(messages).as_bytes(), Attr::root(0o640));
    let mut errors: Vec<String> = result.err().into_iter().map(|e| e.to_string()).collect();
    errors.extend(root.commit().iter().map(Error::to_string));
    errors
}
