//! Shared by the unit tests: what a module is called with.

use super::ModuleContext;
use crate::base::problem::Problems;
use crate::document::{Value, yaml};
use crate::instance::Instance;
use crate::machine::Distro;
use crate::root::Root;

/// What a module sees beside the root.
pub struct Inputs {
    pub config: Value,
    pub instance: Instance,
    pub distro: Distro,
    pub report: Problems,
}

impl Inputs {
    /// A cloud-config in YAML, on a distribution, from a source that gave nothing else.
    pub fn new(distro: &str, config: &str) -> Inputs {
        let config = yaml::parse("cloud-config", config).expect("the test's cloud-config is YAML");
        Inputs { config, instance: Instance::default(), distro: Distro::named(distro), report: Problems::new() }
    }

    /// The context of a module on this root, with nothing outside it.
    pub fn context<'a>(&'a self, root: &'a mut Root) -> ModuleContext<'a> {
        ModuleContext::new(root, &self.config, &self.instance, &self.distro, &self.report)
    }
}
