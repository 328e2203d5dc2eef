//! The image: its distribution, its configuration, and whether it is to be provisioned at all.

use super::Options;
use super::trust::Gate;
use crate::base::error::Result;
use crate::base::report::Report;
use crate::document::{Map, Value, json};
use crate::instance::instance_data::SENSITIVE_FILE;
use crate::instance::{boot, state};
use crate::machine::{Distro, Machine};
use crate::module;
use crate::root::Root;
use crate::userdata::config::{self, Files};
use crate::userdata::{PartHandlers, merge};

/// What runs part-handlers.
pub const PYTHON: &str = "python3";
/// Where the content of `cloud-config-url` is kept.
pub const CONFIG_OF_URL: &str = "/etc/cloud/cloud.cfg.d/91_kernel_cmdline_url.cfg";
/// The image's own part-handlers.
pub const HANDLERS: &str = "/var/lib/cloud/handlers";

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
fn configuration(root: &Root, cmdline: &str, distro: &Distro, report: &mut Report) -> config::Base {
    // For configuration files that are Jinja templates.
    let path = format!("{}/{SENSITIVE_FILE}", state::RUN_DIR);
    let data = root.read(&path).ok().flatten().and_then(|b| json::parse(&path, &b).ok());
    let mut defaults = distro.default_config().as_map().cloned().unwrap_or_default();
    for (key, list) in module::default_lists().iter() {
        defaults.insert(key, list.clone());
    }
    config::base(&mut InRoot(root), cmdline, data.as_ref(), defaults, report)
}

/// An image: the root as its builder left it.
pub struct Image {
    pub distro: Distro,
    /// Its configuration, which the datasource's takes precedence over.
    pub config: Value,
    /// The configuration of the image and the kernel command line, without the distribution's defaults.
    pub own: Value,
    /// Configuration files of the command line, which take precedence over everything: name and content, the
    /// first over the others.
    above: Vec<(String, Map)>,
    /// Which part-handlers can run.
    pub part_handlers: PartHandlers,
    /// The URL of `cloud-config-url` on the kernel command line.
    pub config_url: Option<String>,
    /// The trust policy of this boot.
    pub trust: Gate,
}

impl Image {
    /// Reads the image. `system_info: distro` names the distribution, or os-release where that does not.
    /// Errors in its configuration go into `report`.
    pub fn read(root: &Root, machine: &Machine, report: &mut Report) -> Image {
        let mut distro = root.distro();
        let trust = Gate::of(root, machine);
        // `cc:`
        let cmdline = if trust.command_line() { machine.cmdline.text() } else { "" };
        let mut base = configuration(root, cmdline, &distro, report);
        let named = base.config.get("system_info").and_then(|info| info.get("distro")?.as_str()).map(Distro::named);
        if let Some(named) = named.filter(|named| !["unknown", distro.name].contains(&named.name)) {
            distro = named;
            // The defaults below the image's own values are the other distribution's. What is wrong was reported already.
            base = configuration(root, cmdline, &distro, &mut Report::new());
        }
        let (config, own) = (Value::Map(base.config), Value::Map(base.own));
        let url = machine.cmdline.value("cloud-config-url").filter(|_| trust.command_line());
        let config_url = url.and_then(|url| config_url(root, url));
        Image { distro, config, own, above: Vec::new(), part_handlers: part_handlers(root), config_url, trust }
    }

    /// The same image with the configuration files of the command line.
    pub fn with_options(mut self, options: &Options) -> Image {
        self.above.clone_from(&options.files);
        self
    }

    /// The merged configuration `config`, below the configuration files of the command line.
    pub fn over(&self, config: Map, report: &mut Report) -> Map {
        if self.above.is_empty() {
            return config;
        }
        merge::layers(self.above.iter().cloned().chain([("the configuration".to_owned(), config)]), report)
    }
}

/// The names of the image's own part-handlers, which are Python modules.
pub fn image_handlers(root: &Root) -> Vec<String> {
    let names = root.list(HANDLERS).into_iter().filter_map(|file| file.strip_suffix(".py").map(str::to_owned));
    names.filter(|name| !name.is_empty() && !name.contains('.')).collect()
}

/// The URL, unless an earlier boot already copied its file into the configuration (cloud-init 26.2, main.py,
/// `attempt_cmdline_url`).
fn config_url(root: &Root, url: &str) -> Option<String> {
    let url = if url.starts_with('/') { format!("file://{url}") } else { url.to_owned() };
    (!url.starts_with("file://") || !root.exists(CONFIG_OF_URL)).then_some(url)
}

fn part_handlers(root: &Root) -> PartHandlers {
    match (root.which(PYTHON), image_handlers(root).is_empty()) {
        (None, _) => PartHandlers::None,
        (Some(_), true) => PartHandlers::OfParts,
        (Some(_), false) => PartHandlers::OfImage,
    }
}

/// Why the machine is not to be provisioned, if so: the marker file, `cloud-init=disabled` on the kernel
/// command line, or ds-identify's policy.
pub fn disabled(root: &Root, machine: &Machine) -> Option<String> {
    boot::asked(root, machine).filter(|b| b.status.is_disabled()).map(|b| b.reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::Use;

    #[test]
    fn the_configuration_names_the_distribution_before_os_release() {
        for (release, config, name) in [
            ("ID=debian\n", "", "debian"),
            ("ID=debian\n", "system_info: {distro: ubuntu}\n", "ubuntu"),
            ("ID=ol\n", "system_info: {distro: rhel}\n", "rhel"),
            ("ID=debian\n", "system_info: {distro: nosuch}\n", "debian"),
            ("ID=debian\n", "system_info: {distro: [rhel]}\n", "debian"),
            ("ID=nosuch\n", "system_info: {distro: fedora}\n", "fedora"),
            ("ID=nosuch\n", "", "unknown"),
        ] {
            let dir = TempDir::new("image-distro");
            dir.write("etc/os-release", release);
            dir.write("etc/cloud/cloud.cfg", format!("a: [\n  1]\n{config}"));
            let root = Root::open(&dir.0, Use::Plan).unwrap();
            let mut report = Report::new();
            let image = Image::read(&root, &Machine::read(&dir.0), &mut report);
            assert_eq!(image.distro.name, name, "{release}{config}");
            // So are the defaults below the image's own values.
            let user = image.config.at(&["system_info", "default_user", "name"]).and_then(Value::as_str);
            assert_eq!(user, Some(image.distro.user), "{release}{config}");
            assert!(report.is_empty());
        }
    }
}
