//! The stages of the real root: `init --local`, `init`, `modules --mode config`, `modules --mode final`.

use super::Asked;
use super::image::{Image, disabled};
use super::modules::{Half, Run};
use super::output::Redirected;
use super::outside::ThisMachine;
use super::web::Includes;
use super::{Errors, LOG, LOG_LATER, append_log, apply, config, provision, refresh, rescue};
use crate::base::error::Result;
use crate::base::event::Event;
use crate::base::logging;
use crate::document::{Value, json};
use crate::instance::status::{self, Status};
use crate::instance::{Instance, instance_data, state};
use crate::machine::Machine;
use crate::root::{Attr, Root, Stage};
use crate::userdata::Include;

/// `init --local`: makes the changes that waited for a file system to be mounted, and does the initramfs's work where no
/// initramfs of this boot did it. Gives the errors.
pub fn local(root: &mut Root, machine: &Machine, asked: &Asked) -> Vec<String> {
    let start = status::uptime();
    if apply::did(root, "provisioned").is_none() {
        return apply::local(root, machine, start, asked, false);
    }
    if let Some(errors) = apply::again(root, machine, start, asked) {
        return errors;
    }
    let mut errors = Errors::default();
    let failed = errors.keep(root.replay());
    errors.all(failed.unwrap_or_default());
    for error in errors.lines() {
        log::error!("{error}");
    }
    errors.keep(log_of_initramfs(root));
    errors.keep(append_log(root, &logging::take()));
    errors.all(root.commit());
    rescue(&Status::load(root), root, &mut errors);
    errors.lines().to_vec()
}

/// An initramfs that left the disk alone left its part of the log, and status.json, in /run.
fn log_of_initramfs(root: &mut Root) -> Result<()> {
    let Some(lines) = root.read(LOG_LATER)? else { return Ok(()) };
    let status = Status::load(root);
    Status::forget(root)?;
    status.save(root)?;
    root.append(LOG, &lines, Attr::root(0o640))?;
    root.remove(LOG_LATER)
}

/// One of the three stages that need the running system. Gives the errors.
pub fn stage(root: &mut Root, machine: &Machine, stage: Stage, asked: &Asked) -> Vec<String> {
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
    let mut errors = Errors::default();
    status.begin(name, start);
    let Some(instance) = asked.instance(root) else {
        log::info!("there is no instance: nothing to do in the stage {name}");
        status.end(name, &[], &[]);
        errors.keep(status.save_in_run(root, stage == Stage::Final));
        errors.all(root.commit());
        return errors.lines().to_vec();
    };
    errors.keep(status.save(root));
    errors.all(root.commit());
    rescue(&status, root, &mut errors);
    let (label, what) = match stage {
        Stage::Init => ("init-network", "running what needs the network"),
        Stage::Config => ("modules-config", "running modules for config"),
        Stage::Final => ("modules-final", "running modules for final"),
    };
    let event = Event::start(label, what);
    errors.all(of_instance(root, machine, &instance, stage, asked));
    errors.all(root.commit());
    drop(event);
    let messages = logging::take();
    status.end(name, errors.lines(), &messages);
    errors.keep(status.save(root));
    if stage == Stage::Final {
        errors.keep(status.save_result(root));
    }
    errors.keep(append_log(root, &messages));
    errors.all(root.commit());
    rescue(&status, root, &mut errors);
    errors.all(root.run_at_end());
    errors.lines().to_vec()
}

fn of_instance(root: &mut Root, machine: &Machine, instance: &Instance, stage: Stage, asked: &Asked) -> Vec<String> {
    let image = Image::read(root, machine).as_asked(asked);
    let outside = ThisMachine::new();
    let mut errors = Errors::default();
    let earlier = combined(root, &image);
    let refreshed = match (&earlier, stage) {
        (Some(config), Stage::Init) => refresh::refresh(root, machine, &image, instance, config),
        _ => None,
    };
    let instance = refreshed.as_ref().unwrap_or(instance);
    let earlier = if stage == Stage::Init { None } else { earlier };
    let config = earlier.unwrap_or_else(|| merge(root, machine, &image, instance, stage, &mut errors));
    let _redirected = root.is_live().then(|| Redirected::new(&config, stage));
    if stage == Stage::Init {
        errors.all(provision::boothooks(root, instance));
    }
    let mut run = Run { root, config: &config, instance, distro: &image.distro, outside: &outside };
    errors.all(run.stage(stage, Half::Live));
    errors.lines().to_vec()
}

/// Merges the configuration, with what it includes from elsewhere. In the network stage its parts are written; and where
/// parts are remote, the file half of the modules, which waited for them, runs.
fn merge(
    root: &mut Root,
    machine: &Machine,
    image: &Image,
    instance: &Instance,
    stage: Stage,
    errors: &mut Errors,
) -> Value {
    let standard = instance_data::standard(root, machine, &image.distro, instance);
    let variables = Value::Map(standard.clone());
    let (mut merged, mut consumed) =
        config::consume(image, instance, &variables, &mut |include| config::without_network(root, include));
    let remote = merged.needs_network;
    if remote && let Some(web) = errors.keep(Includes::new()) {
        let mut fetch = |include: &Include<'_>| config::with_network(root, instance, &web, include);
        (merged, consumed) = config::consume(image, instance, &variables, &mut fetch);
    }
    if stage == Stage::Init {
        errors.keep(config::write_parts(root, instance, &consumed));
        if remote {
            config::check(&consumed);
            errors.keep(instance_data::write(root, standard, instance, &image.config, &merged.config));
            errors.all(provision::modules(root, image, instance, &merged.config, &ThisMachine::new()));
        }
    }
    merged.config
}

/// The configuration of this boot; merged anew, without what is remote, where no earlier stage did it.
pub fn configuration(root: &Root, machine: &Machine, image: &Image, instance: &Instance) -> Value {
    combined(root, image).unwrap_or_else(|| {
        let standard = Value::Map(instance_data::standard(root, machine, &image.distro, instance));
        let mut fetch = |include: &Include<'_>| config::without_network(root, include);
        config::consume(image, instance, &standard, &mut fetch).0.config
    })
}

/// The configuration as this boot's earlier stages merged it.
fn combined(root: &Root, image: &Image) -> Option<Value> {
    let path = format!("{}/combined-cloud-config.json", state::RUN_DIR);
    let bytes = root.read(&path).ok()??;
    match json::parse(&path, &bytes).inspect_err(|e| log::warn!("{e}")).ok()? {
        Value::Map(config) => Some(Value::Map(image.over(config))),
        other => Some(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::Use;

    #[test]
    fn what_the_initramfs_did_not_write_is_written_here() {
        let dir = TempDir::new("later");
        let mut root = Root::open(&dir.0, Use::Tree).unwrap();
        let mut status = Status::new();
        status.begin("init-local", 1.0);
        status.save_in_run(&mut root, false).unwrap();
        root.write(LOG, "before\n", Attr::root(0o640)).unwrap();
        root.write("/var/lib/cloud/data/result.json", "of the last boot", Attr::root(0o644)).unwrap();
        root.write(LOG_LATER, "as before\n", Attr::root(0o600)).unwrap();
        root.commit();

        for _ in 0..2 {
            log_of_initramfs(&mut root).unwrap();
            assert_eq!(root.commit(), []);
            assert_eq!(root.text(LOG), "before\nas before\n");
            assert_eq!(root.read_link("/run/cloud-init/status.json").unwrap(), "../../var/lib/cloud/data/status.json");
            assert_eq!(Status::load(&root), status);
            assert!(!root.exists("/var/lib/cloud/data/result.json"));
            assert!(!root.exists(LOG_LATER));
        }
    }
}
