//! The first boot with prepivot on a machine that cloud-init has provisioned.

use super::call::mark;
use super::{END, Half};
use crate::base::error::Result;
use crate::instance::{Frequency, Instance, state};
use crate::module;
use crate::root::Root;

/// Marks as done what cloud-init has done of the instance, which has one semaphore where prepivot has two or three: the halves of
/// modules in the running system and in the background, and `others`. For an instance that is not new. Nothing is marked if prepivot
/// has provisioned it.
///
/// # Errors
/// A path cannot be resolved.
pub fn adopt(root: &mut Root, instance: &Instance, others: &[&str]) -> Result<()> {
    if state::has_cache(root) {
        return Ok(());
    }
    log::info!("cloud-init has provisioned the instance {}: what it has done stays", instance.instance_id);
    for module in
        module::MODULES.iter().filter(|module| module.before_pivot.is_some() || module.in_background.is_some())
    {
        let whole = mark(module, Half::BeforePivot);
        for frequency in [Frequency::Instance, Frequency::Once] {
            if state::is_done(root, instance, &whole, frequency) {
                state::mark_done(root, instance, &mark(module, Half::Running), frequency)?;
                state::mark_done(root, instance, &format!("{whole}{END}"), frequency)?;
            }
        }
    }
    others.iter().try_for_each(|other| state::mark_done(root, instance, other, Frequency::Instance))
}
