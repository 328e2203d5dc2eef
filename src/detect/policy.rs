//! The configuration by the image and the kernel command line: ds-identify's policy, a single source, or a list of
//! sources.
//!
//! Formats: cloud-init's documentation, "ds-identify" (`/etc/cloud/ds-identify.cfg`, `ci.di.policy=`), "Kernel command line".

use crate::document::Value;
use crate::machine::Cmdline;
use crate::root::Root;
use std::fmt;

/// The image's main configuration file.
pub const CLOUD_CFG: &str = "/etc/cloud/cloud.cfg";
/// The folder of files that override it, unless it names another (`conf_d`).
pub const CLOUD_CFG_D: &str = "/etc/cloud/cloud.cfg.d";
/// ds-identify's own configuration: lines of `key: value`.
const DS_IDENTIFY_CFG: &str = "/etc/cloud/ds-identify.cfg";
/// The marker of an image that is not to be provisioned.
pub const MARKER: &str = "/etc/cloud/cloud-init.disabled";
/// The word that disables provisioning, on the kernel command line and in [`VARIABLE`].
pub const DISABLED: &str = "cloud-init=disabled";
const ENABLED: &str = "cloud-init=enabled";
/// The environment variable in which systemd passes the kernel command line on.
pub const VARIABLE: &str = "KERNEL_CMDLINE";
/// Keys of the kernel command line that name a source; the last one takes precedence.
const NAME_KEYS: [&str; 3] = ["ds", "ci.ds", "ci.datasource"];
const POLICY_KEY: &str = "ci.di.policy";
/// The key of the image's configuration that has the list.
const LIST_KEY: &str = "datasource_list";
/// The most names of a list that are read.
const MAX_NAMES: usize = 100;

/// Whether ds-identify searches, and whether its result is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Disabled,
    /// Detection is skipped, and every source of the list is tried.
    Enabled,
    Search,
    /// Detection runs, but its result is only reported.
    Report,
}

/// How verdicts are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    pub mode: Mode,
    /// `found=first`: only the first source found is used.
    pub first_only: bool,
    /// `maybe=all`: if none is found, all possible ones are used.
    pub maybe: bool,
    /// `notfound=enabled`: cloud-init runs even if nothing is found.
    pub enabled_without: bool,
}

impl Default for Policy {
    /// `search,found=all,maybe=none,notfound=disabled`, on every machine since CVE-2024-6174.
    fn default() -> Self {
        Policy { mode: Mode::Search, first_only: false, maybe: false, enabled_without: false }
    }
}

impl Policy {
    /// Parses a policy. Missing and unknown values get their defaults; unknown ones are reported.
    pub fn parse(text: &str) -> Policy {
        let mut policy = Policy::default();
        for word in text.split(',').map(str::trim).filter(|w| !w.is_empty()) {
            match word {
                "disabled" => policy.mode = Mode::Disabled,
                "enabled" => policy.mode = Mode::Enabled,
                "search" => policy.mode = Mode::Search,
                "report" => policy.mode = Mode::Report,
                "found=all" | "found=first" => policy.first_only = word.ends_with("first"),
                "maybe=all" | "maybe=none" => policy.maybe = word.ends_with("all"),
                "notfound=enabled" | "notfound=disabled" => policy.enabled_without = word.ends_with("enabled"),
                _ => log::info!("policy of ds-identify: {word} is not known and ignored"),
            }
        }
        policy
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            Mode::Disabled => "disabled",
            Mode::Enabled => "enabled",
            Mode::Search => "search",
            Mode::Report => "report",
        };
        let found = if self.first_only { "first" } else { "all" };
        let maybe = if self.maybe { "all" } else { "none" };
        let without = if self.enabled_without { "enabled" } else { "disabled" };
        write!(f, "{mode},found={found},maybe={maybe},notfound={without}")
    }
}

/// The configuration of the search for sources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requested {
    pub policy: Policy,
    /// Where the policy is set, if anywhere.
    pub policy_from: Option<String>,
    /// The sources that are used without detection, and the place that names them.
    pub forced: Option<(Vec<String>, String)>,
    /// The image's own datasource_list. None if a file writes it on several lines.
    pub list: Option<Vec<String>>,
    /// The content of ds-identify's own configuration file.
    file: String,
    /// Whether an earlier boot's instance is kept forever (`manual_cache_clean`).
    pub manual_clean: bool,
}

impl Requested {
    /// Reads the image in `root`, its configuration `own`, and the kernel command line.
    pub fn read(root: &Root, cmdline: &Cmdline, own: &Value) -> Requested {
        let file = root.text(DS_IDENTIFY_CFG);
        let from = |key: &str| file_value(&file, key).map(|v| (v, format!("{key}: in {DS_IDENTIFY_CFG}")));
        let on_line = |key: &str| (key.to_owned(), format!("{key}= on the kernel command line"));
        let policy =
            cmdline.value(POLICY_KEY).map(|v| (v.to_owned(), on_line(POLICY_KEY).1)).or_else(|| from("policy"));
        let forced = named_source(cmdline).map(|(key, value)| {
            let name = value.split(';').next().unwrap_or_default();
            (name.to_owned(), on_line(key).1)
        });
        let forced = forced.or_else(|| from("datasource"));
        Requested {
            policy: policy.as_ref().map(|(text, _)| Policy::parse(text)).unwrap_or_default(),
            policy_from: policy.map(|(_, place)| place),
            forced: forced.and_then(|(text, place)| Some((names(&Value::from(text))?, place))),
            list: own.get(LIST_KEY).and_then(names).filter(|_| cmdline.text().contains(LIST_KEY) || !is_spread(root)),
            file,
            manual_clean: root.is_file("/var/lib/cloud/instance/manual-clean"),
        }
    }

    /// The value of a key in ds-identify's own configuration; None if it is absent or empty.
    pub fn file_value(&self, key: &str) -> Option<String> {
        file_value(&self.file, key)
    }

    /// Whether a source may be looked for: it is in the image's list, or there is no list.
    pub fn is_listed(&self, name: &str) -> bool {
        self.list.as_ref().is_none_or(|list| list.iter().any(|n| n.eq_ignore_ascii_case(name)))
    }

    /// Where the policy is set, in words.
    pub fn policy_place(&self) -> &str {
        self.policy_from.as_deref().unwrap_or("the policy of ds-identify")
    }

    /// The list without `None`, if there is one.
    pub fn chosen(&self) -> Option<Vec<&str>> {
        Some(self.list.as_ref()?.iter().map(String::as_str).filter(|n| *n != NONE).collect())
    }

    /// Whether the list or the kernel command line contains the source None.
    pub fn lists_none(&self) -> bool {
        let forced = self.forced.iter().flat_map(|(names, _)| names);
        self.list.iter().flatten().chain(forced).any(|name| name.eq_ignore_ascii_case(NONE))
    }

    /// The list's only source, which is used without detection.
    pub fn single(&self) -> Option<&[String]> {
        match self.list.as_deref()? {
            list @ ([_] | [_, _]) if list.len() == 1 || list.last().is_some_and(|n| n == NONE) => Some(list),
            _ => None,
        }
    }
}

/// cloud-init's source None, the last of a list, which is always available.
pub const NONE: &str = "None";

/// The key and value that name a source on the kernel command line: `ds=nocloud;s=…`.
pub fn named_source(cmdline: &Cmdline) -> Option<(&'static str, &str)> {
    let pairs = cmdline.words().filter_map(|word| {
        let (key, value) = word.split_once('=')?;
        Some((*NAME_KEYS.iter().find(|k| **k == key)?, value))
    });
    pairs.filter(|(_, value)| !value.is_empty() && !value.starts_with(';')).last()
}

/// Why nothing is provisioned, if so: the marker file, systemd's environment, or the kernel command line, on
/// which `cloud-init=enabled` takes precedence over all of them.
pub fn disabled(root: &Root, cmdline: &Cmdline, environment: Option<&str>) -> Option<String> {
    if cmdline.has(ENABLED) {
        return None;
    }
    if root.is_file(MARKER) {
        return Some(format!("{MARKER} is there"));
    }
    if environment == Some(DISABLED) {
        return Some(format!("{VARIABLE}={DISABLED} is in the environment"));
    }
    cmdline.text().contains(DISABLED).then(|| format!("{DISABLED} is on the kernel command line"))
}

/// Why ds-identify's policy disables provisioning, if it does.
pub fn disabled_by_policy(root: &Root, cmdline: &Cmdline) -> Option<String> {
    let asked = Requested::read(root, cmdline, &Value::Null);
    (asked.policy.mode == Mode::Disabled).then(|| format!("{} says disabled", asked.policy_place()))
}

/// The value of a key in ds-identify's own configuration, without quotes and comments; the last one takes precedence.
fn file_value(text: &str, key: &str) -> Option<String> {
    let lines = text.lines().rev().filter_map(|line| line.split('#').next()?.split_once(':'));
    let value = lines.filter(|(k, _)| k.trim() == key).map(|(_, v)| unquoted(v.trim())).next()?;
    Some(value.to_owned()).filter(|v| !v.is_empty())
}

fn unquoted(text: &str) -> &str {
    let inner = |quote| text.strip_prefix(quote).and_then(|t| t.strip_suffix(quote));
    inner('"').or_else(|| inner('\'')).unwrap_or(text)
}

/// Whether the last line with `datasource_list:` in the image's configuration has no value on that line.
/// ds-identify (check_config, get_single_line_flow_sequence) only reads that line, and without a value looks
/// for every source: an image with such a list boots on any cloud.
fn is_spread(root: &Root) -> bool {
    let names = root.list(CLOUD_CFG_D).into_iter().filter(|name| name.ends_with(".cfg"));
    let paths = std::iter::once(CLOUD_CFG.to_owned()).chain(names.map(|name| format!("{CLOUD_CFG_D}/{name}")));
    let value = |line: &str| {
        let rest = line.split('#').next()?.split_once(LIST_KEY)?.1.trim_start_matches(['"', '\'']).trim_start();
        rest.strip_prefix(':')?;
        Some(rest.rsplit(':').next()?.trim_matches(['[', ']', ' ', '\t', '\r']).is_empty())
    };
    let last = paths.filter_map(|path| root.text(&path).lines().filter_map(value).next_back()).last();
    if last == Some(true) {
        log::info!("{LIST_KEY} is ignored, as ds-identify does: write its values on its own line, in brackets");
    }
    last == Some(true)
}

/// The names in a list, or in a string with commas.
fn names(value: &Value) -> Option<Vec<String>> {
    let names: Vec<String> = match value {
        Value::List(list) => list.iter().filter_map(Value::text).take(MAX_NAMES).collect(),
        Value::String(text) => text.split(',').take(MAX_NAMES).map(|n| unquoted(n.trim()).to_owned()).collect(),
        _ => Vec::new(),
    };
    let names: Vec<String> = names.into_iter().filter(|n| !n.is_empty()).collect();
    (!names.is_empty()).then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::document::yaml;
    use crate::root::Use;

    #[test]
    fn policies() {
        assert_eq!(Policy::parse("").to_string(), "search,found=all,maybe=none,notfound=disabled");
        assert_eq!(Policy::parse("report,found=first,maybe=all,notfound=enabled").to_string(), {
            "report,found=first,maybe=all,notfound=enabled"
        });
        assert_eq!(Policy::parse("enabled,found=some,x").to_string(), "enabled,found=all,maybe=none,notfound=disabled");
    }

    fn asked(file: &str, cmdline: &str, own: &str) -> Requested {
        let dir = TempDir::new("asked");
        dir.write("etc/cloud/ds-identify.cfg", file);
        let root = dir.root(Use::Plan);
        Requested::read(&root, &Cmdline::new(cmdline), &yaml::parse("t", own).unwrap())
    }

    #[test]
    fn command_line_beats_file_and_last_name_wins() {
        let file = "# ours\ndatasource: 'Ec2'  # by name\npolicy: \"report\"\n";
        let forced = |a: Requested| a.forced.map(|(names, _)| names.join(" "));
        assert_eq!(forced(asked(file, "", "")).as_deref(), Some("Ec2"));
        assert_eq!(asked(file, "", "").policy.mode, Mode::Report);
        assert_eq!(asked(file, "ci.di.policy=disabled", "").policy.mode, Mode::Disabled);
        assert_eq!(forced(asked(file, "ds=nocloud;s=http://h/ ci.ds=OpenStack", "")).as_deref(), Some("OpenStack"));
        assert_eq!(forced(asked("", "ci.ds=OpenStack,NoCloud;x", "")).as_deref(), Some("OpenStack NoCloud"));
        assert_eq!(forced(asked("", "ds= xds=a", "")), None);
    }

    #[test]
    fn lists() {
        let list = |own: &str| asked("", "", own).list.unwrap_or_default().join(" ");
        assert_eq!(list("datasource_list: [ NoCloud, None ]"), "NoCloud None");
        assert_eq!(list("datasource_list: Ec2, None"), "Ec2 None");
        assert_eq!(list("datasource_list: {a: b}"), "");
        let single = |own: &str| asked("", "", own).single().is_some();
        assert!(single("datasource_list: [Ec2]") && single("datasource_list: [Ec2, None]"));
        assert!(!single("datasource_list: [None, Ec2]") && !single("datasource_list: [GCE, Ec2]") && !single(""));
    }

    #[test]
    fn ignores_a_list_over_several_lines() {
        let list = |files: &[(&str, &str)], cmdline: &str| {
            let dir = TempDir::new("spread");
            std::fs::create_dir_all(dir.0.join("etc/cloud/cloud.cfg.d")).unwrap();
            files.iter().for_each(|(name, text)| std::fs::write(dir.0.join("etc/cloud").join(name), text).unwrap());
            let root = dir.root(Use::Plan);
            let own = yaml::parse("t", "datasource_list: [Ec2, None]").unwrap();
            Requested::read(&root, &Cmdline::new(cmdline), &own).list.is_some()
        };
        let spread = "a: b\ndatasource_list:\n- Ec2\n- None\n";
        assert!(!list(&[("cloud.cfg", spread)], ""));
        assert!(!list(&[("cloud.cfg", "'datasource_list' : [  # ours\n  Ec2, None]\n")], ""));
        assert!(list(&[("cloud.cfg", "datasource_list: [ Ec2, None ]\n# datasource_list:\n")], ""));
        assert!(list(&[("cloud.cfg", "datasource_list: [Ec2,\n  None]\n")], ""));
        // The last file takes precedence over the others, and the kernel command line over all of them.
        assert!(list(&[("cloud.cfg", spread), ("cloud.cfg.d/90.cfg", "datasource_list: [Ec2]\n")], ""));
        assert!(!list(&[("cloud.cfg", "datasource_list: [Ec2]\n"), ("cloud.cfg.d/90.cfg", spread)], ""));
        assert!(list(&[("cloud.cfg", spread)], "cc: datasource_list: [Ec2, None] end_cc"));
    }
}
