//! `Boot`: the data of one run of a stage, built at its start and passed on.

use super::Options;
use super::image::Image;
use super::keys::OpenedConfig;
use crate::base::logging::DEPRECATED;
use crate::base::problem::{Problems, Severity};
use crate::document::Value;
use crate::instance::{Instance, status};
use crate::machine::Machine;
use crate::root::{Root, Stage};
use crate::system::Outside;
use crate::userdata::config::CLOUD_CFG_D;
use std::collections::HashSet;
use std::sync::Arc;

/// One run of a stage: the machine, the image, the configuration and the report.
pub struct Boot<'a> {
    pub machine: &'a Machine,
    pub image: Image,
    pub outside: &'a dyn Outside,
    /// The report of this run so far.
    pub report: Problems,
    /// The merged configuration; None until it is merged.
    pub config: Option<Arc<Value>>,
    /// The merged configuration with its values opened, once a module needs it.
    opened: Option<OpenedConfig>,
    /// The configuration of each stage in turn, if user-data changed the image's after an earlier one.
    pub of_stages: Option<[Arc<Value>; Stage::ALL.len()]>,
    /// Errors of earlier stages that no longer apply, because the work has since succeeded.
    pub withdrawn: Vec<String>,
    /// The random passwords that modules printed in this run: user and password.
    pub shown: Vec<(String, String)>,
    /// Whether an earlier run provisioned this instance, and not all of it could be written.
    pub retried: bool,
    /// [`Options::action`].
    pub action: Option<&'static str>,
    /// When the stage began, in seconds since the kernel started.
    pub start: f64,
    /// For a plan: called before each module with an empty name, and after it with its own, and with the number of problems by then.
    pub observer: Option<Observer>,
    /// How many entries of the report are in the log already.
    logged: usize,
}

/// What writes the network's files is called this where it is named beside modules.
pub const NETWORK: &str = "network";

/// Looks at the root before and after each module.
pub type Observer = Box<dyn FnMut(&mut Root, &'static str, usize)>;

impl<'a> Boot<'a> {
    /// Has a plan look at the root: before a module with an empty name, and after it with its own.
    pub fn observe(&mut self, root: &mut Root, module: &'static str) {
        if let Some(observer) = self.observer.as_mut().filter(|_| cfg!(feature = "tools")) {
            observer(root, module, self.report.len());
        }
    }

    /// A run that begins now, on the image in `root`, with the options of the command line.
    pub fn new(root: &Root, machine: &'a Machine, options: &Options, outside: &'a dyn Outside) -> Boot<'a> {
        let start = status::uptime();
        let report = Problems::new();
        let image = Image::read(root, machine, &report).with_options(options);
        let mut boot = Boot {
            machine,
            image,
            outside,
            report,
            config: None,
            opened: None,
            of_stages: None,
            withdrawn: Vec::new(),
            shown: Vec::new(),
            retried: false,
            action: options.action,
            start,
            observer: None,
            logged: 0,
        };
        boot.log();
        boot
    }

    /// The merged configuration; before the merge, the image's own.
    pub fn config(&self) -> &Value {
        self.config.as_deref().unwrap_or(&self.image.config)
    }

    /// Makes `config` the configuration of `stage`.
    pub fn turn_to(&mut self, stage: Stage) {
        if let Some(config) = self.of_stages.as_ref().and_then(|of_stages| of_stages.get(stage as usize)) {
            self.config = Some(Arc::clone(config));
        }
    }

    /// Reads the image again and merges its configuration again if user-data has changed it, for `stage` and those after it. Returns
    /// whether the configuration changed.
    pub fn follow_image(&mut self, root: &Root, instance: &Instance, stage: Stage) -> bool {
        if Image::digest_of(root, self.machine) == self.image.digest {
            return false;
        }
        self.image.read_again(root, self.machine, instance, &self.report);
        let old = self.config.clone().unwrap_or_default();
        let new = self.image.merge_again(root, instance);
        if *old == new {
            return false;
        }
        log::info!("the configuration in {CLOUD_CFG_D} has changed: it is used from the stage {} on", stage.name());
        let of_stages = self.of_stages.get_or_insert_with(|| Stage::ALL.map(|_| Arc::clone(&old)));
        let new = Arc::new(new);
        of_stages.iter_mut().skip(stage as usize).for_each(|config| *config = Arc::clone(&new));
        true
    }

    /// Opens the values of the merged configuration that are encrypted, unless that is done.
    pub fn open_config(&mut self, root: &Root) {
        let Some(config) = &self.config else { return };
        if !self.opened.as_ref().is_some_and(|opened| opened.is_of(config)) {
            self.opened = Some(OpenedConfig::new(&self.image.keys, root, config, &self.report));
        }
    }

    /// The merged configuration, opened, and the report to write to while it is read.
    pub fn config_and_report(&mut self) -> (&Value, &Problems) {
        let opened = self.config.as_ref().zip(self.opened.as_ref()).filter(|(config, opened)| opened.is_of(config));
        let opened = opened.map(|(_, opened)| &*opened.config);
        (opened.or(self.config.as_deref()).unwrap_or(&self.image.config), &self.report)
    }

    /// Adds the entries of another report, and logs them.
    pub fn absorb(&mut self, report: Problems) {
        self.report.absorb(report);
        self.log();
    }

    /// Logs the entries of the report that are not in the log yet.
    pub fn log(&mut self) {
        let new = self.report.since(self.logged);
        self.logged += new.len();
        for entry in new {
            match entry.severity {
                Severity::Error => log::error!("{entry}"),
                Severity::Warning => log::warn!("{entry}"),
                Severity::Deprecated => log::info!(target: DEPRECATED, "{entry}"),
            }
        }
    }

    /// The errors, one line each.
    pub fn errors(&self) -> Vec<String> {
        self.report.errors()
    }

    /// The errors, then the warnings, one line each.
    pub fn errors_and_warnings(&self) -> Vec<String> {
        let mut lines = self.errors();
        let known: HashSet<String> = lines.iter().cloned().collect();
        lines.extend(self.report.texts(Severity::Warning).into_iter().filter(|warning| !known.contains(warning)));
        lines
    }
}
