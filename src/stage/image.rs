//! The image: its distribution, its configuration, and whether it is to be provisioned at all.

use super::Options;
use super::keys::{self, Keys};
use super::trust::Gate;
use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::document::{Map, Value, json};
use crate::instance::instance_data::{self, SENSITIVE_FILE};
use crate::instance::{Instance, boot, state};
use crate::machine::{Distro, Machine};
use crate::module;
use crate::root::{Attr, FileKind, Root, installed, run_dir};
use crate::userdata::config::{self, ConfigFiles};
use crate::userdata::{PartHandlers, merge};

/// The interpreter of part-handlers.
pub const PYTHON: &str = "python3";
/// The file for the content of `cloud-config-url`.
pub const CONFIG_OF_URL: &str = "/etc/cloud/cloud.cfg.d/91_kernel_cmdline_url.cfg";
/// The image's own part-handlers.
pub const HANDLERS: &str = "/var/lib/cloud/handlers";

struct InRoot<'a> {
    root: &'a Root,
    /// The data of the instance. None: not needed yet.
    data: Option<Option<Value>>,
}

impl ConfigFiles for InRoot<'_> {
    fn read(&mut self, path: &str) -> Result<Option<Vec<u8>>> {
        match self.root.stat(path) {
            Some(found) if found.kind != FileKind::File => Err(Error::new(format!("{path} is not a regular file"))),
            _ => self.root.read(path),
        }
    }

    fn names(&mut self, folder: &str) -> Result<Option<Vec<String>>> {
        Ok(self.root.is_dir(folder).then(|| self.root.list(folder)))
    }

    fn instance_data(&mut self) -> Option<&Value> {
        let of_boot = || {
            let path = format!("{}/{SENSITIVE_FILE}", state::RUN_DIR);
            self.root.read(&path).ok().flatten().and_then(|b| json::parse(&path, &b).ok())
        };
        self.data.get_or_insert_with(of_boot).as_ref()
    }
}

/// The image's configuration: its files and the kernel command line, over the distribution's defaults.
fn configuration(root: &Root, cmdline: &str, distro: &Distro, data: Option<&Value>, report: &Problems) -> config::Base {
    let mut defaults = distro.default_config().as_map().cloned().unwrap_or_default();
    for (key, list) in module::default_lists().iter() {
        defaults.insert(key, list.clone());
    }
    let mut files = InRoot { root, data: data.map(|data| Some(data.clone())) };
    config::base(&mut files, cmdline, defaults, report)
}

/// An image: the root as its builder left it.
pub struct Image {
    pub distro: Distro,
    /// Its configuration, which the datasource's takes precedence over.
    pub config: Value,
    /// The configuration of the image and the kernel command line, without the distribution's defaults.
    pub own: Value,
    /// Whether a file of it is a Jinja template.
    pub has_templates: bool,
    /// A number for its files ([`config::Base::digest`]), as text.
    pub digest: String,
    /// Configuration files of the command line, which take precedence over everything: name and content, the
    /// first over the others.
    above: Vec<(String, Map)>,
    /// Which part-handlers can run.
    pub part_handlers: PartHandlers,
    /// The URL of `cloud-config-url` on the kernel command line.
    pub config_url: Option<String>,
    /// The trust policy of this boot.
    pub trust: Gate,
    /// What opens what is encrypted.
    pub keys: Keys,
}

impl Image {
    /// Reads the image. `system_info: distro` names the distribution, or os-release if that does not.
    /// Errors in its configuration go into `report`.
    pub fn read(root: &Root, machine: &Machine, report: &Problems) -> Image {
        Image::read_with(root, machine, None, report)
    }

    /// The same with the instance's data for templates; without, with that which this boot has left in /run.
    fn read_with(root: &Root, machine: &Machine, data: Option<&Value>, report: &Problems) -> Image {
        let mut distro = installed::distro(root);
        let trust = Gate::of(root, machine);
        // `cc:`
        let cmdline = if trust.command_line() { machine.cmdline.text() } else { "" };
        let mut base = configuration(root, cmdline, &distro, data, report);
        let named = base.config.get("system_info").and_then(|info| info.get("distro")?.as_str()).map(Distro::named);
        if let Some(named) = named.filter(|named| !["unknown", distro.name].contains(&named.name)) {
            distro = named;
            // The defaults below the image's own values are the other distribution's. What is wrong was reported already.
            base = configuration(root, cmdline, &distro, data, &Problems::new());
        }
        let (config, own) = (Value::Map(base.config), Value::Map(base.own));
        let (has_templates, digest) = (base.has_templates, format!("{:016x}", base.digest));
        let url = machine.cmdline.value("cloud-config-url").filter(|_| trust.command_line());
        let config_url = url.and_then(|url| config_url(root, url));
        let part_handlers = part_handlers(root);
        let keys = Keys::of(root, machine);
        Image { distro, config, own, has_templates, digest, above: Vec::new(), part_handlers, config_url, trust, keys }
    }

    /// The [`Image::digest`] of the image as it is now.
    pub fn digest_of(root: &Root, machine: &Machine) -> String {
        Image::read(root, machine, &Problems::new()).digest
    }

    /// Reads the image again, as it is now, with the instance's data for templates. What is wrong and not in `report` yet is added.
    pub fn read_again(&mut self, root: &Root, machine: &Machine, instance: &Instance, report: &Problems) {
        let data = instance_data::standard(root, machine, &self.distro, instance, &self.config);
        let image = Image::read_with(root, machine, Some(&Value::Map(data)), report);
        *self = Image { above: std::mem::take(&mut self.above), ..image };
    }

    /// Merges the configuration again, from the image's as it is now and the parts of user-data and vendor-data that were written
    /// ([`parts_path`]).
    pub fn merge_again(&self, root: &Root, instance: &Instance) -> Value {
        // What is wrong was reported when it was merged for the first time.
        let report = &Problems::new();
        let empty = Map::new();
        let base = self.config.as_map().unwrap_or(&empty);
        let [user, vendor2, vendor] = ["", "vendor2-", "vendor-"].map(|prefix| {
            if let Some(config) = keys::left_of(root, prefix) {
                return config;
            }
            let path = parts_path(instance, prefix);
            let content = root.read(&path).ok().flatten().unwrap_or_default();
            config::parse(&path, &content, None, &Problems::new()).unwrap_or_default()
        });
        let user = if config::allows_user_data(base) { user } else { Map::new() };
        let config = config::layers(base, instance.config.as_map().unwrap_or(&empty), [user, vendor2, vendor], report);
        Value::Map(self.over(config, report))
    }

    /// Leaves for the later stages that combined-cloud-config.json was merged from this image.
    ///
    /// # Errors
    /// As [`Root::write`].
    pub fn note(&self, root: &mut Root) -> Result<()> {
        if root.has_run() { root.write(run_dir::BASE, self.digest.as_str(), Attr::root(0o600)) } else { Ok(()) }
    }

    /// The same image with the configuration files of the command line.
    pub fn with_options(mut self, options: &Options) -> Image {
        self.above.clone_from(&options.files);
        self
    }

    /// The merged configuration `config`, below the configuration files of the command line.
    pub fn over(&self, config: Map, report: &Problems) -> Map {
        if self.above.is_empty() {
            return config;
        }
        merge::layers(self.above.iter().cloned().chain([("the configuration".to_owned(), config)]), report)
    }
}

/// Where the merged cloud-config of user-data, or with a prefix of vendor-data, is.
pub fn parts_path(instance: &Instance, prefix: &str) -> String {
    format!("{}/{prefix}cloud-config.txt", state::folder(instance))
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
    match (installed::which(root, PYTHON), image_handlers(root).is_empty()) {
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
    fn reports_configuration_that_is_no_file() {
        let dir = TempDir::new("image-no-file");
        dir.write("etc/cloud/cloud.cfg", "disable_root: false\n");
        std::fs::create_dir_all(dir.0.join("etc/cloud/cloud.cfg.d/10-folder.cfg")).unwrap();
        let fifo = dir.0.join("etc/cloud/cloud.cfg.d/20-fifo.cfg");
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, fifo, kind, 0o600.into(), 0).unwrap();
        let root = dir.root(Use::Plan);
        let report = Problems::new();
        let image = Image::read(&root, &dir.machine(), &report);
        assert_eq!(image.config.get("disable_root"), Some(&Value::Bool(false)));
        let said: Vec<String> = report.entries().iter().map(ToString::to_string).collect();
        assert_eq!(said.iter().filter(|text| text.ends_with(".cfg is not a regular file")).count(), 2, "{said:?}");
    }

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
            let root = dir.root(Use::Plan);
            let report = Problems::new();
            let image = Image::read(&root, &dir.machine(), &report);
            assert_eq!(image.distro.name, name, "{release}{config}");
            // So are the defaults below the image's own values.
            let user = image.config.at(&["system_info", "default_user", "name"]).and_then(Value::as_str);
            assert_eq!(user, Some(image.distro.user), "{release}{config}");
            assert!(report.is_empty());
        }
    }
}
