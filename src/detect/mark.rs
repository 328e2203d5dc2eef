//! The marks that identify a source.

use super::facts::{Facts, Filesystem};
use super::{Finding, Verdict};

/// The folder of an image's seeds, with a subfolder for each source.
pub const SEEDS: &str = "/var/lib/cloud/seed";

/// Returns the key and value of a setting for cloud-init's configuration.
pub type Setting = fn(&Facts, &Finding) -> Option<(&'static str, String)>;

/// A source, as far as detection knows it.
pub struct Candidate {
    /// cloud-init's name: `OpenStack`.
    pub name: &'static str,
    /// Other names that a list or the kernel command line may use: `nocloud-net`.
    pub aliases: &'static [&'static str],
    /// How it is recognised; the first mark that applies decides.
    pub marks: &'static [Mark],
    /// The setting that ds-identify adds to cloud-init's configuration, below `datasource: {NAME: …}`: a key and its
    /// value.
    pub setting: Option<Setting>,
}

impl Candidate {
    /// Whether `name` is the source's name or an alias, in any case.
    pub fn is_named(&self, name: &str) -> bool {
        [self.name].iter().chain(self.aliases).any(|n| n.eq_ignore_ascii_case(name))
    }
}

/// One mark of a source.
pub enum Mark {
    /// A DMI value, by the kernel's name for it, that matches a pattern: `*` at either end matches any text.
    Dmi(&'static str, &'static str),
    /// A word on the kernel command line.
    Word(&'static str),
    /// A file of the image.
    File(&'static str),
    /// A folder below [`SEEDS`] with all of these files.
    Seed(&'static str, &'static [&'static str]),
    /// A filesystem with this label, in any case.
    Label(&'static str),
    /// A custom check: a description of what it looks for, and the function. None if it does not apply.
    Check(&'static str, fn(&Facts) -> Option<Finding>),
    /// Rules the source out, whatever marks follow, and returns the reason.
    Unless(fn(&Facts) -> Option<String>),
}

impl Mark {
    /// DMI `sys_vendor`.
    pub const fn vendor(pattern: &'static str) -> Mark {
        Mark::Dmi("sys_vendor", pattern)
    }

    /// DMI `product_name`.
    pub const fn product(pattern: &'static str) -> Mark {
        Mark::Dmi("product_name", pattern)
    }

    /// DMI `product_serial`.
    pub const fn serial(pattern: &'static str) -> Mark {
        Mark::Dmi("product_serial", pattern)
    }

    /// DMI `chassis_asset_tag`.
    pub const fn asset_tag(pattern: &'static str) -> Mark {
        Mark::Dmi("chassis_asset_tag", pattern)
    }

    /// The mark's finding; None if it does not apply.
    pub fn look(&self, facts: &Facts) -> Option<Finding> {
        let here = match self {
            Mark::Dmi(field, pattern) => facts.dmi_matches(field, pattern),
            Mark::Word(word) => facts.cmdline().has(word),
            Mark::File(path) => facts.root.is_file(path),
            Mark::Seed(folder, files) => facts.has_seed(&format!("{SEEDS}/{folder}"), files),
            Mark::Label(label) => return facts.labelled(label).and_then(|fs| Finding::found(label_reason(fs, label))),
            Mark::Check(_, check) => return check(facts),
            Mark::Unless(check) => return check(facts).and_then(Finding::never),
        };
        if here { Finding::found(self.to_string()) } else { None }
    }
}

/// The reason in words why a file system's label is a mark.
pub fn label_reason(fs: &Filesystem, label: &str) -> String {
    format!("{} has the label {label}", fs.device)
}

impl std::fmt::Display for Mark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Mark::Dmi(field, pattern) => write!(f, "DMI {field} {pattern}"),
            Mark::Word(word) => write!(f, "{word} on the kernel command line"),
            Mark::File(path) => write!(f, "{path}"),
            Mark::Seed(folder, files) => write!(f, "{SEEDS}/{folder} with {}", files.join(" and ")),
            Mark::Label(label) => write!(f, "a filesystem with the label {label}"),
            Mark::Check(what, _) => f.write_str(what),
            Mark::Unless(_) => Ok(()),
        }
    }
}

/// The verdict of all marks: the first that applies decides.
pub fn judge(marks: &[Mark], facts: &Facts) -> Finding {
    if let Some(finding) = marks.iter().find_map(|mark| mark.look(facts)) {
        return finding;
    }
    let looked_for: Vec<String> = marks.iter().map(Mark::to_string).filter(|what| !what.is_empty()).collect();
    let why = match looked_for.as_slice() {
        [] => "no machine has a mark of it: name it in ds= or as the only one in datasource_list".to_owned(),
        marks => format!("looked for {}", marks.join("; ")),
    };
    Finding { verdict: Verdict::NotFound, why }
}
