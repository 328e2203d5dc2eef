//! Asks the datasource again on later boots, in the real root's network stage, if the user allows it as in cloud-init, or if the
//! datasource is read on each boot.

use super::boot::Boot;
use super::image::Image;
use super::search;
use super::{modules, network, trust};
use crate::base::deadline::Deadline;
use crate::base::error::Result;
use crate::base::problem::Problems;
use crate::detect::{self, Facts, Platform};
use crate::document::Value;
use crate::drive::DriveSearch as Drives;
use crate::drive::devices::Places;
use crate::instance::{Instance, state};
use crate::network::render::{RENDERERS, Renderer};
use crate::root::run_dir::{LocalStage, Origin};
use crate::root::{Command, Root};
use crate::source::{self, Search, Source, Update, candidates, choose};
use std::time::Duration;

/// How long the service may take, including the wait for a link to it. Short, because the instance is known
/// and logins wait for the stage.
pub const BUDGET: Duration = Duration::from_secs(30);

/// The same if the user has not asked for it ([`Source::read_on_boot`]).
pub const UNASKED: Duration = Duration::from_secs(10);

/// What asking the datasource again has changed.
pub enum Answer {
    /// Nothing: no source was asked, none answered, or the answer equals the cached instance.
    Same,
    /// The instance, which has replaced the cached one.
    Changed(Instance),
    /// The machine is another instance now, for which nothing has been done yet.
    Another(Instance),
}

/// Asks the datasource again if this boot took the instance from the cache and that [is due](is_due). The answer replaces the
/// cached instance; the network files are written again if the user allows it.
pub fn refresh(root: &mut Root, boot: &mut Boot, instance: &Instance) -> Answer {
    if !is_later_boot(root) || !is_due(root, boot, instance) {
        return Answer::Same;
    }
    let is_allowed = is_allowed(boot, instance);
    let found = match again(root, boot, instance, if is_allowed { BUDGET } else { UNASKED }) {
        Some(found) => found,
        None => {
            log::info!("nothing is there that could be asked again about the instance {}", instance.instance_id);
            return Answer::Same;
        }
    };
    match found {
        Ok(found) if found.instance_id != instance.instance_id => {
            let id = &found.instance_id;
            if is_kept(boot) || root.is_file(&state::kept_mark(instance)) {
                boot.report.warn(format_args!(
                    "the datasource knows this machine as {id} now: manual_cache_clean keeps {}",
                    instance.instance_id
                ));
                return Answer::Same;
            }
            log::info!("the datasource knows this machine as {id} now, which was {}", instance.instance_id);
            Answer::Another(found)
        }
        Ok(found) => {
            boot.report.keep(root.remove(state::ANOTHER));
            let updated = if is_allowed {
                store(root, boot, found).map(|(instance, _)| instance)
            } else {
                store_instance(root, boot, found)
            };
            let updated =
                updated.map_err(|e| boot.report.warn(format_args!("what the datasource says now is not used: {e}")));
            updated.ok().filter(|updated| updated != instance).map_or(Answer::Same, Answer::Changed)
        }
        Err(e) => {
            let problem = format!("the datasource was asked again and did not answer: {e}");
            if is_allowed {
                boot.report.warn(problem)
            } else {
                log::info!("{problem}")
            }
            Answer::Same
        }
    }
}

/// Whether the datasource is to be asked again on a later boot: the user allows it; or it is one that is read on each boot, or it
/// has [another instance](state::ANOTHER) for the machine, and the image does not keep its instance for good (`manual_cache_clean`).
pub fn is_due(root: &Root, boot: &Boot, instance: &Instance) -> bool {
    let is_read = |s: &Source| s.read_on_boot && (instance.from_network || s.read.is_none());
    let is_expected = || source::named(&instance.source).is_some_and(is_read) || root.is_file(state::ANOTHER);
    is_allowed(boot, instance) || is_expected() && !is_kept(boot)
}

/// Whether the image keeps its instance for good.
pub fn is_kept(boot: &Boot) -> bool {
    boot.config().get("manual_cache_clean").is_some_and(Value::is_true)
}

/// Whether the user allows asking the datasource again on a later boot, also for the network configuration: `updates: {network:
/// {when: [boot]}}`, or an image whose list has only services while its instance came from a drive.
fn is_allowed(boot: &Boot, instance: &Instance) -> bool {
    allows_boot(boot.config(), source::named(&instance.source)) || left_its_drive(&boot.image, instance)
}

/// Whether the local stage of this boot took this machine's instance from the cache.
pub fn is_later_boot(root: &Root) -> bool {
    LocalStage::result(root)
        .and_then(|result| result.origin())
        .is_some_and(|origin| matches!(origin, Origin::Kept | Origin::Resumed))
}

/// Whether `updates: {network: {when: […]}}` has the event `boot`, or, if that is not set, the source has it
/// by default (cloud-init's documentation, "Events and updates").
pub fn allows_boot(config: &Value, source: Option<&Source>) -> bool {
    let on_boot = [Update::Boot, Update::BootLegacy];
    match config.at(&["updates", "network", "when"]) {
        Some(when) => {
            let when = when.as_list().unwrap_or_default();
            when.iter().filter_map(Value::as_str).any(|event| on_boot.iter().any(|update| update.name() == event))
        }
        None => source.is_some_and(|s| s.updates.iter().any(|update| on_boot.contains(update))),
    }
}

/// Whether the image lists only services, but the instance came from another source.
fn left_its_drive(image: &Image, instance: &Instance) -> bool {
    let list = image.own.get("datasource_list").and_then(Value::as_list).unwrap_or_default();
    let named: Vec<&str> = list.iter().filter_map(Value::as_str).filter(|n| *n != "None").collect();
    !named.is_empty() && !named.iter().any(|n| is_local(n)) && is_local(&instance.source)
}

/// Whether a source needs no network.
fn is_local(name: &str) -> bool {
    source::named(name).is_some_and(|s| s.read.is_some())
}

/// Reads the instance's own source again, within `limit`: the drive or seed that it came from if that is present, else the service.
/// None if neither exists.
pub fn again(root: &Root, boot: &mut Boot, instance: &Instance, limit: Duration) -> Option<Result<Instance>> {
    let (machine, image) = (boot.machine, &boot.image);
    let facts = Facts::new(machine, root, &image.own, Platform::of(machine, root));
    let report = detect::identify(&facts, &candidates());
    let mut search = Search::new(machine, root, &image.config, Deadline::after(limit)).keeping(image.trust.taken());
    let mut found = None;
    if is_local(&instance.source) && !left_its_drive(image, instance) {
        let mut drives = Drives::new(&source::labels(&image.config), Places::default());
        while drives.scan(search.deadline).is_ok_and(|new| !new.is_empty()) {}
        search.set_drives(drives.seen());
        found = source::find_local(&mut search, std::slice::from_ref(&instance.source)).map(|found| Ok(found.instance));
    }
    if found.is_none() {
        let (jobs, _) = search::jobs(&mut search, &choose::services(&report, &facts));
        found = (!jobs.is_empty()).then(|| search::ask(&mut search, jobs).map(|found| found.instance));
    }
    let report = search.take_report();
    boot.absorb(report);
    found
}

/// Stores the new instance and writes its network files. If these changed, the network's own program reloads
/// them. Returns the instance, and the renderer of the files.
///
/// # Errors
/// A file cannot be written, or the network program fails.
pub fn store(root: &mut Root, boot: &mut Boot, instance: Instance) -> Result<(Instance, Option<&'static Renderer>)> {
    let instance = store_instance(root, boot, instance)?;
    let applied = network::apply(root, boot.machine, &boot.image, &instance, &boot.report, network::Unreadable::Error)?;
    let renderer = applied.as_ref().map(|a| a.renderer);
    let changed = renderer.filter(|_| has_new_network(root));
    network::write_json(root, &instance, applied)?;
    changed.map_or(Ok(()), |renderer| reload(root, renderer))?;
    Ok((instance, renderer))
}

/// Stores the new instance, and returns it.
fn store_instance(root: &mut Root, boot: &mut Boot, mut instance: Instance) -> Result<Instance> {
    instance.machine_uuid = boot.machine.uuid();
    source::describe(&mut instance);
    let verdict = trust::check(&boot.image.trust, root, boot.machine, &mut instance, true, &boot.report);
    let refused = Problems::new();
    verdict.problems.iter().for_each(|problem| refused.error(problem));
    refused.into_result()?;
    modules::store(root, &instance)?;
    Ok(instance)
}

/// Whether the uncommitted changes have network files.
pub fn has_new_network(root: &Root) -> bool {
    root.changes().iter().any(|c| RENDERERS.iter().any(|renderer| renderer.owns(c.path())))
}

/// Has the running system's network program reload its files.
///
/// # Errors
/// The command fails.
pub fn reload(root: &mut Root, renderer: &Renderer) -> Result<()> {
    if renderer.reload.is_empty() {
        return Ok(());
    }
    log::info!("the network configuration changed: {} reads it again", renderer.title);
    root.run(Command::new(renderer.reload.iter().copied()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::document::yaml;
    use crate::machine::Machine;
    use crate::root::Use;
    use crate::stage::testing;

    #[test]
    fn only_what_the_user_allows() {
        let config = |text: &str| yaml::parse("t", text).unwrap();
        assert!(allows_boot(&config("updates: {network: {when: [boot-new-instance, boot]}}"), None));
        assert!(!allows_boot(&config("updates: {network: {when: [boot-new-instance, hotplug]}}"), None));
        assert!(!allows_boot(&config("updates: [boot]"), None));
        let on_boot = Source { updates: &[Update::NewInstance, Update::Boot], ..Source::NEW };
        assert!(allows_boot(&config("{}"), Some(&on_boot)) && !allows_boot(&config("{}"), Some(&Source::NEW)));
        assert!(!allows_boot(&config("updates: {network: {when: [hotplug]}}"), Some(&on_boot)));
    }

    #[test]
    fn rereads_drive_even_if_only_services_listed() {
        let allowed = |own: &str, source: &str| {
            let dir = TempDir::new("refresh");
            dir.write("etc/cloud/cloud.cfg", own);
            let root = dir.root(Use::Tree);
            let machine = Machine::default();
            let boot = testing::boot(&root, &machine);
            is_allowed(&boot, &Instance { source: source.into(), ..Instance::default() })
        };
        assert!(allowed("datasource_list: [OpenStack]\n", "ConfigDrive"));
        assert!(allowed("datasource_list: [Ec2, None]\n", "NoCloud"));
        for (own, source) in [
            ("datasource_list: [ConfigDrive, OpenStack]\n", "ConfigDrive"),
            ("datasource_list: [None]\n", "ConfigDrive"),
            ("{}\n", "ConfigDrive"),
            ("datasource_list: [OpenStack]\n", "OpenStack"),
        ] {
            assert!(!allowed(own, source), "{own}{source}");
        }
        assert!(allowed("updates: {network: {when: [boot]}}\n", "OpenStack"));
    }

    #[test]
    fn sources_that_change_are_asked_on_each_boot() {
        let asked = |config: &str, source: &str, from_network: bool, another: bool| {
            let dir = TempDir::new("refresh-due");
            if another {
                dir.write(state::ANOTHER.trim_start_matches('/'), "");
            }
            let (root, machine) = (dir.root(Use::Tree), Machine::default());
            let boot = testing::boot_with(&root, &machine, config);
            is_due(&root, &boot, &Instance { source: source.into(), from_network, ..Instance::default() })
        };
        let due = |config: &str, source: &str| asked(config, source, true, false);
        assert!(due("{}", "NoCloud") && due("{}", "OVF") && !due("{}", "CloudSigma"));
        assert!(!asked("{}", "NoCloud", false, false), "a drive is read before the pivot");
        assert!(asked("{}", "OpenStack", true, true) && !asked("manual_cache_clean: true", "OpenStack", true, true));
        assert!(due("{}", "Ec2") && due("updates: {network: {when: [hotplug]}}", "Ec2"));
        assert!(!due("manual_cache_clean: true", "Ec2") && !due("{}", "OpenStack"));
        assert!(due("{updates: {network: {when: [boot]}}, manual_cache_clean: true}", "OpenStack"));
    }
}
