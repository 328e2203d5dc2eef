//! The marks by which a source is known, and how each is looked for.

use super::facts::Facts;
use super::{Finding, Verdict};

/// Where seeds of an image are, one folder for each source.
pub const SEEDS: &str = "/var/lib/cloud/seed";

/// One mark of a source.
pub enum Mark {
    /// A DMI value, by the kernel's name for it, that matches a pattern.
    Dmi(&'static str, &'static str),
    /// A word on the kernel command line.
    Word(&'static str),
    /// A file of the image.
    File(&'static str),
    /// A folder below [`SEEDS`] with all of these files.
    Seed(&'static str, &'static [&'static str]),
    /// A filesystem with this label, in any case.
    Label(&'static str),
    /// What takes more to tell: what is looked for in words, and what looks.
    Check(&'static str, fn(&Facts) -> Option<Finding>),
    /// What rules the source out, whatever marks come after it: the reason.
    Unless(fn(&Facts) -> Option<String>),
}

impl Mark {
    /// What the mark says; None where it is not there.
    pub fn look(&self, facts: &Facts) -> Option<Finding> {
        let here = match self {
            Mark::Dmi(field, pattern) => facts.dmi(field).is_some_and(|value| matches(pattern, &value)),
            Mark::Word(word) => facts.cmdline().has(word),
            Mark::File(path) => facts.root.is_file(path),
            Mark::Seed(folder, files) => facts.has_seed(&format!("{SEEDS}/{folder}"), files),
            Mark::Label(label) => return facts.labelled(label).and_then(|fs| Finding::found(labelled(fs, label))),
            Mark::Check(_, check) => return check(facts),
            Mark::Unless(check) => return check(facts).and_then(Finding::never),
        };
        if here { Finding::found(self.to_string()) } else { None }
    }
}

/// Why a filesystem counts.
pub fn labelled(fs: &super::Filesystem, label: &str) -> String {
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

/// The verdict of all marks: the first that says something decides.
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

/// Whether `value` is `pattern`, in which a star at either end stands for anything.
pub fn matches(pattern: &str, value: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => value.ends_with(end),
        (_, Some(start)) => value.starts_with(start),
        _ => value == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        assert!(matches("Hetzner", "Hetzner") && !matches("Hetzner", "Hetzner Cloud") && !matches("Hetzner", ""));
        assert!(matches("CloudStack*", "CloudStack KVM Hypervisor") && !matches("CloudStack*", "My CloudStack"));
        assert!(matches("*.zstack.io", "a.zstack.io") && !matches("*.zstack.io", "zstack.io.example"));
    }
}
