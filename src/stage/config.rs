//! Merges the layers of the configuration, and writes the parts of user-data and vendor-data to cloud-init's places.

use super::image::{CONFIG_OF_URL, Image, parts_path};
use super::rerun;
use super::web::{self, Includes};
use crate::base::budget;
use crate::base::error::{Context, Error, Result};
use crate::base::problem::Problems;
use crate::document::{Map, Size, Value};
use crate::instance::Frequency;
use crate::instance::{Instance, state};
use crate::root::{Attr, Content, Root};
use crate::schema::{self, Deviations, one_line};
use crate::source;
use crate::trust::sealed::{self, Opened};
use crate::userdata::config::{self, Consumed, Sources};
use crate::userdata::kind::PartKind;
use crate::userdata::{Fetched, Include, Part, UserData, UserScript, When, cache_name, merge, mime, vendor};
use std::cell::Cell;
use std::sync::Arc;

/// cloud-init's semaphore for the parts of user-data.
const CONSUMED: &str = "consume_data";
/// How many schema errors of a cloud-config are reported.
const MAX_REPORTED: usize = 10;
/// Keys whose text is held once, however long it is, or paid for by the module that reads them.
const HELD_ONCE: [&str; 2] = ["write_files", "random_seed"];
/// Keys whose entries are handled one by one: only long texts in them are held several times.
const ONE_BY_ONE: [&str; 2] = ["users", "groups"];
/// How long a text, or all of a key, may be in any case, in bytes.
const SMALL_TEXT: usize = 64 << 10;
/// How often the text of another key is in memory at most beside the configuration: a file is rendered from it and written, and an
/// error quotes it. Measured by `tests/bounds/run`.
const TEXT_COPIES: usize = 5;

/// The merged configuration of an instance.
pub struct Merged {
    pub config: Arc<Value>,
    /// Whether remote parts of it are still missing.
    pub needs_network: bool,
    /// The configuration without what was encrypted, if documents were: what may be kept.
    pub public: Option<Arc<Value>>,
    /// Whether a key is missing that the real root may have.
    pub needs_key: bool,
    /// The content of `cloud-config-url`, if it was read.
    pub of_url: Option<Vec<u8>>,
}

impl Merged {
    /// The configuration that may be kept.
    pub fn kept(&self) -> Arc<Value> {
        Arc::clone(self.public.as_ref().unwrap_or(&self.config))
    }

    /// Writes the content of `cloud-config-url` into the image's configuration, as cloud-init does.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep_config(&mut self, root: &mut Root) -> Result<()> {
        self.of_url.take().map_or(Ok(()), |content| root.write(CONFIG_OF_URL, content, Attr::root(0o600)))
    }
}

/// Gets the content of an included URL.
pub type Fetch<'a> = &'a mut dyn FnMut(&Include<'_>) -> Result<Fetched>;

/// Gets includes that are in the root itself; all others are [`Fetched::NoNetwork`].
///
/// # Errors
/// A file of the root cannot be read.
pub fn without_network(root: &Root, include: &Include<'_>) -> Result<Fetched> {
    web::local(root, include.url).map_or(Ok(Fetched::NoNetwork), |content| content.map(Fetched::Content))
}

/// Gets an include: from the root, from the copy that an earlier boot kept (`#include-once`), or over the
/// network.
///
/// # Errors
/// It cannot be read, or the server does not return it.
pub fn with_network(root: &Root, instance: &Instance, web: &Includes, include: &Include<'_>) -> Result<Fetched> {
    let kept = format!("{}/data/urlcache/{}", state::folder(instance), cache_name(include.url));
    if include.once
        && let Some(content) = root.read(&kept)?
    {
        return Ok(Fetched::Content(content));
    }
    web::local(root, include.url).unwrap_or_else(|| web.get(include.url)).map(Fetched::Content)
}

/// What `cloud-config-url` on the kernel command line gives.
#[derive(Default)]
struct OfUrl {
    content: Option<Vec<u8>>,
    /// The image's configuration with it on top.
    base: Option<Map>,
    /// Whether it has to wait for the network.
    waits: bool,
}

fn of_url(image: &Image, base: &Map, fetch: Fetch, report: &Problems) -> OfUrl {
    let Some(url) = image.config_url.as_deref() else { return OfUrl::default() };
    let got = fetch(&Include { url, once: false });
    let waits = matches!(got, Ok(Fetched::NoNetwork));
    match config_of_url(url, got, report) {
        Ok(found) => {
            let (content, config) = found.unzip();
            let layers = |config| {
                let below = ("the image's configuration".to_owned(), base.clone());
                merge::layers([(url.to_owned(), config), below], report)
            };
            OfUrl { content, base: config.map(layers), waits }
        }
        Err(e) => {
            report.warn(e.context("cloud-config-url on the kernel command line"));
            OfUrl { waits, ..OfUrl::default() }
        }
    }
}

/// Splits the instance's user-data and vendor-data into parts, and merges the configuration. Nothing is
/// written.
pub fn consume(
    root: &Root,
    image: &Image,
    instance: &Instance,
    instance_data: &Value,
    report: &Problems,
    fetch: Fetch,
) -> (Merged, Consumed) {
    let empty = Map::new();
    let documents = |what: &str, data: &Value| {
        vendor::documents(data, report).unwrap_or_else(|e| {
            report.warn(format_args!("{what}: {e}"));
            Vec::new()
        })
    };
    let (vendor_data, vendor_data2) =
        (documents("vendor-data", &instance.vendor_data), documents("vendor-data2", &instance.vendor_data2));
    let needs_key = Cell::new(false);
    let open = |sealed: &[u8], name: &str| {
        let opened = image.keys.open(root, sealed, name);
        needs_key.set(needs_key.get() || matches!(opened, Opened::Later));
        opened
    };
    let sources = Sources {
        user_data: instance.user_data.clone().unwrap_or_default(),
        vendor_data: &vendor_data,
        vendor_data2: &vendor_data2,
        datasource_config: instance.config.as_map().unwrap_or(&empty),
        launch_index: instance.launch_index,
        instance_data,
        part_handlers: image.part_handlers,
        open: &open,
    };
    let base = image.config.as_map().unwrap_or(&empty);
    let OfUrl { content: of_url, base: of_url_and_base, waits } = of_url(image, base, fetch, report);
    let found = Problems::new();
    let mut included = |include: &Include<'_>| {
        if image.trust.includes() {
            fetch(include)
        } else {
            Err(Error::new("the trust policy does not allow what is included"))
        }
    };
    let mut consumed = config::consume(of_url_and_base.as_ref().unwrap_or(base), &sources, &mut included, &found);
    let awaits = awaits_metadata(instance, &consumed);
    // Missing variables are expected until then.
    if !awaits {
        report.absorb(found);
    }
    let all = [&consumed.user, &consumed.vendor, &consumed.vendor2];
    // A value is decrypted where it is used, and not here.
    let look = |sealed: &[u8], _: &str| {
        let is_awaited = image.keys.is_awaited(root, sealed);
        needs_key.set(needs_key.get() || is_awaited);
        if is_awaited { Opened::Later } else { Opened::Plain(Vec::new()) }
    };
    let awaits_key = sealed::open_config(&consumed.config, &look).waits;
    let deferred = all.into_iter().flatten().any(|data| !data.deferred.is_empty());
    let needs_network = waits || awaits || awaits_key || deferred;
    let mut config = image.over(std::mem::take(&mut consumed.config), report);
    leave_out_large(&mut config, report);
    let public = consumed.public.clone().map(|public| Arc::new(Value::Map(image.over(public, &Problems::new()))));
    let needs_key = needs_network && needs_key.get();
    (Merged { config: Arc::new(Value::Map(config)), needs_network, public, needs_key, of_url }, consumed)
}

/// The bytes of all long texts in a value, between their commas: a list of names may be one text.
fn long_text(value: &Value) -> usize {
    match value {
        Value::List(list) => list.iter().map(long_text).sum(),
        Value::Map(map) => map.iter().map(|(_, value)| long_text(value)).sum(),
        value => {
            let parts = value.as_str().unwrap_or_default().split(',').map(str::len);
            parts.filter(|bytes| *bytes > SMALL_TEXT).sum()
        }
    }
}

/// Leaves out keys whose text the modules could not hold as often as they may have to.
fn leave_out_large(config: &mut Map, report: &Problems) {
    let mut large = Vec::new();
    for (key, value) in config.iter().filter(|(key, _)| !HELD_ONCE.contains(key)) {
        let bytes = if ONE_BY_ONE.contains(&key) { long_text(value) } else { Size::of(value).bytes };
        if bytes > SMALL_TEXT && budget::check_last(bytes.saturating_mul(TEXT_COPIES)).is_err() {
            report.error(format_args!(
                "{key}: {bytes} bytes of text are more than the memory that is left can hold: it is ignored"
            ));
            large.push(key.to_owned());
        }
    }
    config.remove_all(&large);
}

/// Whether a template needs metadata that the instance's source has only in the running system.
fn awaits_metadata(instance: &Instance, consumed: &Consumed) -> bool {
    let words =
        source::named(&instance.source).and_then(|source| source.real_root.metadata).map(|of| (of.words)(instance));
    let Some(words) = words.filter(|words| !words.is_empty()) else { return false };
    let parts =
        [&consumed.user, &consumed.vendor, &consumed.vendor2].into_iter().flatten().flat_map(|data| &data.parts);
    parts.filter(|part| PartKind::of_type(&part.content_type) == Some(PartKind::Jinja)).any(|part| {
        let text = String::from_utf8_lossy(&part.content);
        words.iter().any(|word| text.contains(word))
    })
}

/// The cloud-config of a URL, as bytes and parsed. None if it has to wait for the network.
fn config_of_url(url: &str, got: Result<Fetched>, report: &Problems) -> Result<Option<(Vec<u8>, Map)>> {
    let Fetched::Content(content) = got? else { return Ok(None) };
    let header = PartKind::CloudConfig.header();
    if !content.starts_with(header.as_bytes()) {
        return Err(Error::new(format!("the content of {url} does not begin with {header}")));
    }
    let config = config::parse(url, &content, None, report)?;
    Ok(Some((content, config)))
}

/// Reports schema errors and deprecated keys of the merged user-data, once in each boot as cloud-init does.
/// Modules still use the valid keys. A build without the Cargo feature `schema` reports none of them.
pub fn check(consumed: &Consumed, report: &Problems) {
    if !cfg!(feature = "schema") {
        return;
    }
    let Some(config) = consumed.user.as_ref().and_then(|user| user.cloud_config.merged()) else { return };
    let Deviations { mut errors, deprecations } = schema::cloud_config(config);
    if !errors.is_empty() {
        errors.truncate(MAX_REPORTED);
        report.warn(format_args!(
            "cloud-config failed schema validation! You may run 'sudo cloud-init schema --system' to check the details. {}",
            one_line(&errors)
        ));
    }
    if !deprecations.is_empty() {
        report.deprecated(format_args!("Deprecated cloud-config provided: {}", one_line(&deprecations)));
    }
}

/// Writes the parts: the merged documents on every boot, the scripts once for each instance. With `read`, the
/// instance was read anew, and the scripts are written again.
///
/// # Errors
/// A path cannot be resolved.
pub fn write_parts(root: &mut Root, instance: &Instance, consumed: &Consumed, read: bool) -> Result<()> {
    let folder = state::folder(instance);
    let named = [
        ("user-data", "", &consumed.user),
        ("vendor-data", "vendor-", &consumed.vendor),
        ("vendor-data2", "vendor2-", &consumed.vendor2),
    ];
    let first = !state::is_done(root, instance, CONSUMED, Frequency::Instance);
    for (name, prefix, data) in named {
        let Some(data) = data else {
            // What is switched off now may have been used before.
            if prefix.is_empty() || !instance.vendor_data.is_null() || !instance.vendor_data2.is_null() {
                root.remove(&parts_path(instance, prefix))?;
            }
            if first {
                let none = Content::made(mime::writer(Vec::new())).context(|| format!("failed to write {name}"))?;
                root.write(&format!("{folder}/{name}.txt.i"), none, Attr::root(0o600))?;
            }
            continue;
        };
        let failed = || format!("failed to write the parts of {name}");
        let parts = data.parts.iter().map(Part::to_entity).collect();
        let processed = Content::made(mime::writer(parts)).context(failed)?;
        root.write(&format!("{folder}/{name}.txt.i"), processed, Attr::root(0o600))?;
        let merged = Arc::clone(data.kept());
        let text = Content::made(move |out| merged.write(out)).context(failed)?;
        root.write(&parts_path(instance, prefix), text, Attr::root(0o600))?;
        for (url, content) in &data.fetched_once {
            root.write(&format!("{folder}/data/urlcache/{}", cache_name(url)), content.clone(), Attr::root(0o600))?;
        }
        for (name, content) in &data.boothooks {
            root.write(&format!("{}/{name}", rerun::boothooks_of(instance)), content.clone(), Attr::root(0o700))?;
        }
        if first || read {
            scripts(root, &folder, data)?;
        }
    }
    // A boothook that the data no longer has is not run any more.
    let folder = rerun::boothooks_of(instance);
    let all = [&consumed.user, &consumed.vendor, &consumed.vendor2].into_iter().flatten();
    let hooks: Vec<&String> = all.flat_map(|data| &data.boothooks).map(|(name, _)| name).collect();
    for name in root.list(&folder).iter().filter(|name| !hooks.contains(name)) {
        root.remove(&format!("{folder}/{name}"))?;
    }
    if first { state::mark_done(root, instance, CONSUMED, Frequency::Instance) } else { Ok(()) }
}

fn scripts(root: &mut Root, folder: &str, data: &UserData) -> Result<()> {
    for UserScript { name, content, when } in &data.scripts {
        let place = match when {
            When::User => format!("{folder}/scripts"),
            When::Vendor => format!("{folder}/scripts/vendor"),
            When::PerBoot => format!("{}/scripts/per-boot", state::CLOUD_DIR),
            When::PerInstance => format!("{}/scripts/per-instance", state::CLOUD_DIR),
            When::PerOnce => format!("{}/scripts/per-once", state::CLOUD_DIR),
        };
        root.write(&format!("{place}/{name}"), content.clone(), Attr::root(0o700))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::problem::Severity;
    use crate::base::testing::TempDir;
    use crate::document::yaml;
    use crate::instance::instance_data;
    use crate::machine::{Cmdline, Machine};
    use crate::root::Use;
    use crate::userdata::CloudConfig;

    fn checked(text: &str) -> Problems {
        let Ok(Value::Map(config)) = yaml::parse("t", text) else { panic!("{text}") };
        let user = UserData { cloud_config: CloudConfig::from(config).into(), ..UserData::default() };
        let report = Problems::new();
        check(&Consumed { user: Some(user), ..Consumed::default() }, &report);
        report
    }

    #[test]
    fn the_kernel_command_line_names_a_cloud_config() {
        let dir = TempDir::new("config-url");
        let mut root = dir.root(Use::Tree);
        root.write("/etc/cloud/cloud.cfg", "a: image\nb: image\n", Attr::root(0o644)).unwrap();
        root.write("/opt/c", "#cloud-config\na: url\n", Attr::root(0o644)).unwrap();
        root.write("/opt/other", "a: url\n", Attr::root(0o644)).unwrap();
        let instance = Instance { user_data: Some(b"#cloud-config\nb: user\n".to_vec().into()), ..Instance::default() };
        for (word, a, needs_network, warnings) in [
            ("cloud-config-url=https://h.example/c", "image", true, 0),
            ("cloud-config-url=/opt/other", "image", false, 1),
            ("cloud-config-url=/opt/none", "image", false, 1),
            ("url=/opt/c", "image", false, 0),
            ("cloud-config-url=/opt/c", "url", false, 0),
            // It was kept, and is not read again.
            ("cloud-config-url=file:///opt/none", "url", false, 0),
        ] {
            let machine = Machine { cmdline: Cmdline::new(word), ..Machine::default() };
            let report = Problems::new();
            let image = Image::read(&root, &machine, &report);
            let mut fetch = |include: &Include<'_>| without_network(&root, include);
            let (mut merged, _) = consume(&root, &image, &instance, &Value::Null, &report, &mut fetch);
            merged.keep_config(&mut root).unwrap();
            assert_eq!(merged.config.get("a"), Some(&Value::from(a)), "{word}");
            assert_eq!(merged.config.get("b"), Some(&Value::from("user")), "{word}");
            assert_eq!((merged.needs_network, report.entries().len()), (needs_network, warnings), "{word} {report:?}");
        }
        assert_eq!(root.stat(CONFIG_OF_URL).unwrap().attr.mode, 0o600);
    }

    #[test]
    fn keys_that_modules_cannot_hold_are_left_out() {
        let many = vec![Value::from("x".repeat(4_000)); 3_000];
        let long = Value::from("x".repeat(12 << 20));
        let config: Map = [
            ("locale", long.clone()),
            ("ntp", Value::Map([("pools", Value::from(many.clone()))].into_iter().collect())),
            ("users", Value::from(vec![long.clone()])),
            ("groups", Value::from(many)),
            ("write_files", Value::from(vec![long])),
            ("hostname", Value::from("x".repeat(64 << 10))),
        ]
        .into_iter()
        .collect();
        let left = |budget: usize| {
            budget::begin();
            budget::take_all(budget);
            let (mut config, report) = (config.clone(), Problems::new());
            leave_out_large(&mut config, &report);
            (config.keys().map(str::to_owned).collect::<Vec<_>>(), report.errors())
        };
        assert_eq!(left(0).0, ["groups", "write_files", "hostname"]);
        let (keys, errors) = left(54 << 20);
        assert_eq!(keys, ["groups", "write_files", "hostname"]);
        assert_eq!(errors.len(), 3);
        assert!(errors[0].starts_with("locale: 12582912 bytes of text are more than"), "{errors:?}");
        budget::begin();
    }

    #[test]
    fn template_waits_for_the_running_systems_metadata() {
        let dir = TempDir::new("config-late");
        let root = dir.root(Use::Tree);
        let known = "{network: {interfaces: {}}, local-ipv4: 10.0.0.1}";
        for (source, metadata, header, waits) in [
            ("VMware", "{}", "## template: jinja\n", true),
            ("VMware", known, "## template: jinja\n", false),
            ("VMware", "{}", "", false),
            ("NoCloud", "{}", "## template: jinja\n", false),
        ] {
            let text = format!("{header}#cloud-config\nhostname: 'ip-{{{{ ds.meta_data.local_ipv4 }}}}'\n");
            let metadata = yaml::parse("t", metadata).unwrap();
            let user_data = Some(text.into_bytes().into());
            let instance = Instance { source: source.into(), metadata, user_data, ..Instance::default() };
            let report = Problems::new();
            let machine = Machine::default();
            let image = Image::read(&root, &machine, &report);
            let standard = instance_data::standard(&root, &machine, &image.distro, &instance, &image.config);
            let mut fetch = |include: &Include<'_>| without_network(&root, include);
            let (merged, _) = consume(&root, &image, &instance, &Value::Map(standard), &report, &mut fetch);
            assert_eq!(merged.needs_network, waits, "{source} {header}");
            // The variable is undefined only for a source that never provides it.
            assert_eq!(report.is_empty(), source == "VMware", "{report:?}");
            if instance.metadata.get("local-ipv4").is_some() {
                assert_eq!(merged.config.get("hostname"), Some(&Value::from("ip-10.0.0.1")));
            }
        }
    }

    #[test]
    fn removes_a_boothook_missing_in_the_data() {
        let dir = TempDir::new("old-boothooks");
        let mut root = dir.root(Use::Tree);
        let instance = Instance { instance_id: "i".into(), ..Instance::default() };
        let mut hooks_after = |names: &[&str]| {
            let boothooks = names.iter().map(|name| ((*name).to_owned(), b"x".to_vec().into())).collect();
            let user = Some(UserData { boothooks, ..UserData::default() });
            write_parts(&mut root, &instance, &Consumed { user, ..Consumed::default() }, true).unwrap();
            assert_eq!(root.commit(), []);
            root.list(&rerun::boothooks_of(&instance))
        };
        assert_eq!(hooks_after(&["part-001", "part-002"]), ["part-001", "part-002"]);
        assert_eq!(hooks_after(&["part-002"]), ["part-002"]);
        assert_eq!(hooks_after(&[]), [""; 0]);
    }

    #[test]
    fn reports_wrong_and_deprecated_keys() {
        assert!(checked("{hostname: a, users: [{name: b}]}").is_empty());
        let both = checked("{hostname: 3, users: [{name: b, sudoo: s3cret, lock-passwd: true}]}");
        let ([wrong], [old]) = (&*both.texts(Severity::Warning), &*both.texts(Severity::Deprecated)) else {
            panic!("{both:?}")
        };
        assert!(
            wrong.contains("to check the details. hostname: expected a string, found an integer, users.0.sudoo: there")
        );
        assert!(
            old.starts_with("Deprecated cloud-config provided: users.0.lock-passwd:  Deprecated in version 22.3. ")
        );
        assert!(!wrong.contains("s3cret"));
        let many = checked(&format!("{{users: [{}]}}", "{name: 1},".repeat(50)));
        assert_eq!(many.entries().len(), 1);
        assert_eq!(many.entries()[0].to_string().matches("users.").count(), MAX_REPORTED);
    }
}
