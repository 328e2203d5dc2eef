//! The layers of configuration, and how they are merged with an instance's user-data and vendor-data.
//!
//! Low to high: built in, /etc/cloud/cloud.cfg, cloud.cfg.d, /run/cloud-init/cloud.cfg, the kernel command line, the
//! datasource, vendor-data, vendor-data2, user-data.

use super::vendor::{self, Settings};
use super::{Fetched, Include, PartHandlers, Surroundings, UserData, jinja, merge, process};
use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
pub use crate::detect::{CLOUD_CFG, CLOUD_CFG_D};
use crate::document::{Bytes, Map, Value, wrong, yaml};
use crate::source;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Configuration that detection writes for one boot.
pub const RUN_CLOUD_CFG: &str = "/run/cloud-init/cloud.cfg";
/// The suffix of configuration files in a folder.
const SUFFIX: &str = ".cfg";

/// The built-in defaults, after the list of datasources.
const BUILT_IN: &str = "
def_log_file: /var/log/cloud-init.log
log_cfgs: []
syslog_fix_perms: ['syslog:adm', 'root:adm', 'root:wheel', 'root:root']
system_info:
  paths: {cloud_dir: /var/lib/cloud, docs_dir: /usr/share/doc/cloud-init/, templates_dir: /etc/cloud/templates/, run_dir: /run/cloud-init}
  distro: ubuntu
  network: {renderers: null}
vendor_data: {enabled: true, prefix: []}
vendor_data2: {enabled: true, prefix: []}
";

/// Reads the files of the base layers, by their paths in the root.
pub trait ConfigFiles {
    /// The content of a file; None if it does not exist.
    fn read(&mut self, path: &str) -> Result<Option<Vec<u8>>>;
    /// The names in a folder, in any order; None if it does not exist.
    fn names(&mut self, folder: &str) -> Result<Option<Vec<String>>>;
    /// The instance's data, for files that are Jinja templates; None before there is an instance.
    fn instance_data(&mut self) -> Option<&Value>;
}

/// The base layers.
#[derive(Debug, Default)]
pub struct Base {
    /// All base layers, merged: the configuration before a datasource is read.
    pub config: Map,
    /// The image's own files and the kernel command line, merged, without defaults.
    pub own: Map,
    /// Whether a file is a template.
    pub has_templates: bool,
    /// A number for the files, as they are on the disk: another one if a file has changed, appeared or gone.
    pub digest: u64,
}

/// Merges the base layers. `defaults` are the distribution's. Files that cannot be used are reported and left out.
pub fn base(files: &mut dyn ConfigFiles, cmdline: &str, defaults: Map, report: &Problems) -> Base {
    let cmdline = ("the kernel command line".to_owned(), super::from_cmdline(cmdline, report));
    let mut reader = Reader { files, report, has_templates: false, hasher: DefaultHasher::new() };
    let (image, run) = ((CLOUD_CFG.to_owned(), reader.image()), reader.file(RUN_CLOUD_CFG));
    let (has_templates, digest) = (reader.has_templates, reader.hasher.finish());
    let own = merge::layers([cmdline.clone(), image.clone()], report);
    let layers = [
        cmdline,
        (RUN_CLOUD_CFG.to_owned(), run),
        image,
        ("the distribution's defaults".to_owned(), defaults),
        ("the built-in configuration".to_owned(), built_in()),
    ];
    Base { config: merge::layers(layers, report), own, has_templates, digest }
}

fn built_in() -> Map {
    let text = format!("datasource_list: [{}]{BUILT_IN}", source::built_in_list().join(", "));
    match yaml::parse("the built-in configuration", &text) {
        Ok(Value::Map(map)) => map,
        _ => Map::new(),
    }
}

struct Reader<'a> {
    files: &'a mut dyn ConfigFiles,
    report: &'a Problems,
    has_templates: bool,
    hasher: DefaultHasher,
}

impl Reader<'_> {
    /// cloud.cfg with the files of its folder on top; the last name takes precedence.
    fn image(&mut self) -> Map {
        let main = self.file(CLOUD_CFG);
        let folder = match main.get("conf_d") {
            None => CLOUD_CFG_D.to_owned(),
            Some(Value::String(folder)) => folder.trim().trim_end_matches('/').to_owned(),
            Some(Value::Null) => String::new(),
            Some(other) => {
                self.report.warn(wrong("conf_d", "a path", other).context(CLOUD_CFG));
                String::new()
            }
        };
        let names = if folder.is_empty() { Ok(None) } else { self.files.names(&folder) };
        let mut names = names.unwrap_or_else(|e| {
            self.report.warn(e);
            None
        });
        let mut layers = Vec::new();
        if let Some(names) = &mut names {
            names.retain(|name| name.ends_with(SUFFIX));
            names.sort_unstable();
            let paths = names.iter().rev().map(|name| format!("{folder}/{name}"));
            let over: Vec<_> = paths.map(|path| (path.clone(), self.file(&path))).collect();
            layers.push((folder, merge::layers(over, self.report)));
        }
        layers.push((CLOUD_CFG.to_owned(), main));
        merge::layers(layers, self.report)
    }

    fn file(&mut self, path: &str) -> Map {
        let content = match self.files.read(path) {
            Ok(content) => content.unwrap_or_default(),
            Err(e) => return self.ignored(e),
        };
        (path, &content).hash(&mut self.hasher);
        let is_template = jinja::body(&String::from_utf8_lossy(&content)).is_some();
        self.has_templates |= is_template;
        let data = if is_template { self.files.instance_data() } else { None };
        let is_early = is_template && data.is_none();
        match parse(path, &content, data, self.report) {
            Ok(map) => map,
            // It may be YAML once it is rendered.
            Err(_) if is_early => Map::new(),
            Err(e) => self.ignored(e),
        }
    }

    fn ignored(&mut self, error: Error) -> Map {
        self.report.warn(format_args!("configuration ignored: {error}"));
        Map::new()
    }
}

/// The mapping in a configuration file; an empty file is an empty mapping. With instance-data, a template is
/// rendered first.
///
/// # Errors
/// It is not UTF-8, not YAML or not a mapping, or the template fails. The error names `path`.
pub fn parse(path: &str, content: &[u8], instance_data: Option<&Value>, report: &Problems) -> Result<Map> {
    let text = std::str::from_utf8(content).map_err(|_| Error::new(format!("{path}: not UTF-8")))?;
    let rendered = match (jinja::body(text), instance_data) {
        (Some(template), Some(data)) => Some(jinja::render(template, data).map_err(|e| e.context(path))?),
        _ => None,
    };
    if let Some(warning) = rendered.as_ref().and_then(|r| r.warning(path)) {
        report.warn(warning);
    }
    match yaml::parse(path, rendered.as_ref().map_or(text, |r| &r.text))? {
        Value::Map(map) => Ok(map),
        Value::Null => Ok(Map::new()),
        other => Err(wrong(path, "a mapping", &other)),
    }
}

/// An instance's data, and what is needed to process it.
pub struct Sources<'a> {
    pub user_data: Bytes,
    /// The documents of vendor-data: see [`vendor::documents`].
    pub vendor_data: &'a [Bytes],
    pub vendor_data2: &'a [Bytes],
    /// The configuration of the datasource itself.
    pub datasource_config: &'a Map,
    /// Selects parts of user-data. All of vendor-data is for every instance.
    pub launch_index: Option<i64>,
    pub instance_data: &'a Value,
    pub part_handlers: PartHandlers,
}

/// The processed data, and the resulting configuration.
#[derive(Debug, Default)]
pub struct Consumed {
    /// None if the configuration disables user-data (`allow_userdata: false`).
    pub user: Option<UserData>,
    /// None if it is absent or disabled.
    pub vendor: Option<UserData>,
    pub vendor2: Option<UserData>,
    /// The program and arguments that run vendor scripts.
    pub vendor_prefix: Vec<String>,
    /// All layers, merged.
    pub config: Map,
}

/// Processes all data on top of the base layers. User-data comes first, because it can disable vendor-data.
pub fn consume(
    base: &Map,
    sources: &Sources<'_>,
    fetch: &mut dyn FnMut(&Include<'_>) -> Result<Fetched>,
    report: &Problems,
) -> Consumed {
    let mut consumed = Consumed::default();
    let mut run = |source, vendor, documents: &[Bytes], disabled: &[String], report: &Problems| {
        let context = Surroundings {
            source,
            vendor,
            disabled,
            launch_index: sources.launch_index.filter(|_| !vendor),
            instance_data: sources.instance_data,
            part_handlers: sources.part_handlers,
            fetch: &mut *fetch,
            report,
        };
        process(documents, context)
    };
    if allows_user_data(base) {
        consumed.user = Some(run("user-data", false, std::slice::from_ref(&sources.user_data), &[], report));
    } else {
        log::info!("user-data is left out: allow_userdata is false");
    }
    let without_vendor = merged(base, sources.datasource_config, [&consumed.user, &None, &None], report);
    let [settings, settings2] = [("vendor_data", sources.vendor_data), ("vendor_data2", sources.vendor_data2)]
        .map(|(key, documents)| Settings::read(&without_vendor, key, !documents.is_empty(), report));
    drop(without_vendor);
    let mut vendor_data = |source, settings: &Settings, documents: &[Bytes]| {
        settings.enabled.then(|| run(source, true, documents, &settings.disabled_handlers, report))
    };
    let vendor = vendor_data("vendor-data", &settings, sources.vendor_data);
    let mut vendor2 = vendor_data("vendor-data2", &settings2, sources.vendor_data2);
    if let (Some(first), Some(second)) = (&vendor, &mut vendor2) {
        vendor::keep_apart(&first.scripts, &mut second.scripts);
    }
    consumed.config = merged(base, sources.datasource_config, [&consumed.user, &vendor2, &vendor], report);
    Consumed { vendor, vendor2, vendor_prefix: settings.prefix, ..consumed }
}

/// `allow_userdata`; true by default.
pub fn allows_user_data(base: &Map) -> bool {
    base.get("allow_userdata").is_none_or(Value::is_true)
}

/// Merges all layers. `sources` are those above the datasource's configuration, the highest first.
fn merged(base: &Map, datasource: &Map, sources: [&Option<UserData>; 3], report: &Problems) -> Map {
    let configs = sources.map(|s| s.as_ref().and_then(|s| s.cloud_config.merged().cloned()).unwrap_or_default());
    layers(base, datasource, configs, report)
}

/// The same of the merged cloud-configs of user-data, vendor-data2 and vendor-data.
pub fn layers(base: &Map, datasource: &Map, configs: [Map; 3], report: &Problems) -> Map {
    let names = ["user-data", "vendor-data2", "vendor-data"];
    let layers = names.into_iter().zip(configs).map(|(name, config)| (name.to_owned(), config));
    let below =
        [("the datasource".to_owned(), datasource.clone()), ("the base configuration".to_owned(), base.clone())];
    merge::layers(layers.chain(below), report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;
    use std::collections::BTreeMap;

    struct Fake(BTreeMap<&'static str, &'static str>, Option<Value>);

    impl ConfigFiles for Fake {
        fn read(&mut self, path: &str) -> Result<Option<Vec<u8>>> {
            match self.0.get(path) {
                Some(&"unreadable") => Err(Error::new(format!("failed to read {path}"))),
                other => Ok(other.map(|t| t.as_bytes().to_vec())),
            }
        }

        fn names(&mut self, folder: &str) -> Result<Option<Vec<String>>> {
            let inside = self.0.keys().filter_map(|p| p.strip_prefix(folder)?.strip_prefix('/'));
            let names: Vec<String> = inside.map(str::to_owned).collect();
            Ok((!names.is_empty()).then_some(names))
        }

        fn instance_data(&mut self) -> Option<&Value> {
            self.1.as_ref()
        }
    }

    fn base_of(files: &[(&'static str, &'static str)], cmdline: &str) -> Map {
        let data = yaml::parse("t", "v1: {cloud_name: test}").unwrap();
        base(&mut Fake(files.iter().copied().collect(), Some(data)), cmdline, Map::new(), &Problems::new()).config
    }

    #[test]
    fn template_waits_for_the_instance_without_warning() {
        let only_rendered = "## template: jinja\n{% if v1.a %}\na: {{ v1.a }}\n{% endif %}\n";
        let files = [(CLOUD_CFG, "b: 1\n"), ("/etc/cloud/cloud.cfg.d/1.cfg", only_rendered)];
        let read = |data: Option<Value>| {
            let report = Problems::new();
            let base = base(&mut Fake(files.into(), data), "", Map::new(), &report);
            assert!(base.has_templates && report.is_empty(), "{report:?}");
            (get(&base.own, "a"), get(&base.own, "b"), base.digest)
        };
        let (a, b, digest) = read(None);
        assert_eq!((a.as_str(), b.as_str()), ("-", "1"));
        assert_eq!(read(Some(yaml::parse("t", "v1: {a: 7}").unwrap())), ("7".into(), "1".into(), digest));
    }

    fn get(map: &Map, key: &str) -> String {
        map.get(key).map_or_else(|| "-".into(), json::to_string)
    }

    #[test]
    fn layers_from_built_in_to_the_command_line() {
        let config = base_of(
            &[
                (CLOUD_CFG, "a: 1\nb: 1\nc: 1\nd: 1\nm: {x: 1, y: 1}\nsystem_info: {distro: debian}\n"),
                ("/etc/cloud/cloud.cfg.d/10_x.cfg", "b: 2\nc: 2\nd: 2\nm: {y: 2, z: 2}\n"),
                ("/etc/cloud/cloud.cfg.d/90_y.cfg", "c: 3\nd: 3\n"),
                ("/etc/cloud/cloud.cfg.d/95_broken.cfg", "c: ["),
                ("/etc/cloud/cloud.cfg.d/96_unreadable.cfg", "unreadable"),
                ("/etc/cloud/cloud.cfg.d/97_list.cfg", "- c"),
                ("/etc/cloud/cloud.cfg.d/98.cfg", "## template: jinja\ncloud: {{ cloud_name }}\n"),
                ("/etc/cloud/cloud.cfg.d/README", "c: 99\n"),
                (RUN_CLOUD_CFG, "datasource_list: [NoCloud]\nd: 4\n"),
            ],
            "ro cc: d: 5 end_cc quiet",
        );
        for (key, value) in [
            ("a", "1"),
            ("b", "2"),
            ("c", "3"),
            ("d", "5"),
            ("m", r#"{"y":2,"z":2,"x":1}"#),
            ("datasource_list", r#"["NoCloud"]"#),
            ("cloud", r#""test""#),
            ("vendor_data", r#"{"enabled":true,"prefix":[]}"#),
        ] {
            assert_eq!(get(&config, key), value, "{key}");
        }
        let distro = config.get("system_info").and_then(|s| s.get("distro")).and_then(Value::as_str);
        assert_eq!(distro, Some("debian"));
        assert_eq!(get(&base_of(&[], ""), "log_cfgs"), "[]");
    }

    #[test]
    fn names_missing_variables_in_cloud_inits_words() {
        let report = Problems::new();
        let text = "## template: jinja\na: {{ bad }} {{ worse }} {{ v1.x }}\n";
        let data = yaml::parse("t", "v1: {x: 1}").unwrap();
        parse("/etc/cloud/cloud.cfg.d/50-no-var.cfg", text.as_bytes(), Some(&data), &report).unwrap();
        let wanted =
            "Could not render jinja template variables in file '/etc/cloud/cloud.cfg.d/50-no-var.cfg': 'bad', 'worse";
        assert!(report.entries()[0].to_string().starts_with(wanted), "{:?}", report.entries());
    }

    #[test]
    fn folder_may_move_and_lower_file_sets_merging() {
        let config = base_of(
            &[
                (CLOUD_CFG, "conf_d: /my/conf/\nl: [low]\nmerge_how: list(append)+dict(recurse_list)\n"),
                ("/my/conf/a.cfg", "l: [high]\n"),
                ("/etc/cloud/cloud.cfg.d/a.cfg", "l: [no]\n"),
            ],
            "",
        );
        assert_eq!(get(&config, "l"), r#"["high","low"]"#);
        let wrong = base_of(&[(CLOUD_CFG, "a: 1\nmerge_how: nosuch()\nconf_d: [x]\n")], "");
        assert_eq!(get(&wrong, "a"), "1");
    }

    fn consumed(base: &str, user: &str, vendor: &str, vendor2: &str) -> Consumed {
        let map = |text: &str| match yaml::parse("t", text) {
            Ok(Value::Map(map)) => map,
            _ => Map::new(),
        };
        let sources = Sources {
            user_data: user.as_bytes().into(),
            vendor_data: &[vendor.as_bytes().into()],
            vendor_data2: &[vendor2.as_bytes().into()],
            datasource_config: &map("{d: ds, v: ds}"),
            launch_index: Some(1),
            instance_data: &Value::Null,
            part_handlers: PartHandlers::None,
        };
        let base =
            map(&format!("{{vendor_data: {{enabled: true}}, vendor_data2: {{enabled: true}}, b: base, {base}}}"));
        consume(&base, &sources, &mut |_| Ok(Fetched::NoNetwork), &Problems::new())
    }

    #[test]
    fn launch_index_selects_only_user_data_parts() {
        let of = |index: u8, key: &str| format!("#cloud-config\nlaunch-index: {index}\n{key}: 1\n");
        let all = consumed("", &of(1, "u"), &of(2, "w"), &of(2, "x"));
        assert!(["u", "w", "x"].into_iter().all(|key| get(&all.config, key) == "1"), "{:?}", all.config);
        assert!(consumed("", &of(2, "u"), "", "").user.unwrap().parts.is_empty());
    }

    #[test]
    fn user_over_vendor2_over_vendor_over_datasource() {
        let vendor = "#cloud-config\nu: v\nw: v\nv: v\nm: {v: 1}\n";
        let all = consumed("", "#cloud-config\nu: u\nm: {u: 1}\n", vendor, "#cloud-config\nu: v2\nw: v2\n");
        for (key, value) in [
            ("u", "\"u\""),
            ("w", "\"v2\""),
            ("v", "\"v\""),
            ("d", "\"ds\""),
            ("b", "\"base\""),
            ("m", r#"{"u":1,"v":1}"#),
        ] {
            assert_eq!(get(&all.config, key), value, "{key}");
        }
        let off = consumed("", "#cloud-config\nvendor_data: {enabled: false}\n", vendor, "#cloud-config\nw: v2\n");
        assert!(off.vendor.is_none() && off.vendor2.is_some());
        let not_allowed =
            consumed("allow_userdata: false", "#cloud-config\nvendor_data: {enabled: false}\n", vendor, "");
        assert!(not_allowed.user.is_none() && not_allowed.vendor.is_some());
    }

    #[test]
    fn vendor_datas_merge_how_affects_its_own_parts() {
        let archive = "#cloud-config-archive\n- \"#cloud-config\\nl: [a]\\n\"\n- \"#cloud-config\\nl: [b]\\nmerge_how: \
                       list(append)+dict(recurse_list)\\n\"\n";
        assert_eq!(get(&consumed("", "", archive, "").config, "l"), r#"["a","b"]"#);
        // Between the sources the user's value takes precedence.
        let user = "#cloud-config\nl: [u]\n";
        for vendor in [archive, "#cloud-config\nl: [a]\nmerge_how: list(append)+dict(recurse_list)\n"] {
            let all = consumed("", user, vendor, "");
            assert_eq!(get(&all.config, "l"), r#"["u"]"#);
            assert!(!all.config.contains_key("merge_how"));
        }
    }

    #[test]
    fn script_by_frequency_keeps_last_path_component() {
        for (kind, name) in [("x-shellscript-per-boot", "b.sh"), ("x-shellscript", "a_b.sh")] {
            let archive =
                format!("#cloud-config-archive\n- {{type: text/{kind}, filename: a/b.sh, content: \"#!/bin/sh\"}}\n");
            assert_eq!(consumed("", &archive, "", "").user.unwrap().scripts[0].name, name);
        }
    }

    #[test]
    fn vendor_scripts_stay_apart_and_handlers_are_optional() {
        let script = "#!/bin/sh\n";
        let both = consumed("", script, script, script);
        assert_eq!(both.vendor.unwrap().scripts[0].name, "part-001");
        assert_eq!(both.vendor2.unwrap().scripts[0].name, "vendor_data2-part-001");
        let user =
            "#cloud-config\nvendor_data: {enabled: true, prefix: [nice, 5], disabled_handlers: [text/x-shellscript]}\n";
        let disabled = consumed("", user, script, "");
        assert!(disabled.vendor.unwrap().scripts.is_empty());
        assert_eq!(disabled.vendor_prefix, ["nice", "5"]);
    }
}
