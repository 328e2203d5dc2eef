//! The cloud-config parts of one source: merged into one mapping, and written to cloud-config.txt.

use super::merge::{REPLACE, Strategy};
use super::{jsonp, kind, kind::PartKind};
use crate::base::budget;
use crate::base::error::{Error, Result};
use crate::document::{Map, Size, Value, json, write_yaml, wrong, yaml};
use std::io::{self, Write};

/// The header fields that set how a part is merged; the first that exists takes precedence.
const MERGE_HEADERS: [&str; 2] = ["Merge-Type", "X-Merge-Type"];

/// How many nodes may be copied so that a part that fails changes nothing: those of the merged document, for each part.
const MAX_COPIED: usize = 5_000_000;

/// The comment for a part that was left out; its name follows.
pub const IGNORED: &str = "# Cloud-config part ignored SCHEMA_ERROR: ";

/// The parts merged so far.
#[derive(Debug, Default)]
pub struct CloudConfig {
    /// None until the first part, valid or not.
    merged: Option<Map>,
    names: Vec<String>,
    ignored: Vec<String>,
    /// How large `merged` is, and how many nodes were copied.
    size: Size,
    copied: usize,
}

impl CloudConfig {
    /// Merges a cloud-config or a patch. `header` looks up a field of the part's header. A part that fails
    /// changes nothing.
    ///
    /// # Errors
    /// The part is not YAML (or for a patch JSON), its root is not a mapping, or it is empty or cannot be merged; or there are too
    /// many parts, or they are too large together.
    pub fn add(
        &mut self,
        kind: PartKind,
        name: &str,
        content: &[u8],
        header: &dyn Fn(&str) -> Option<String>,
    ) -> Result<()> {
        let base = self.merged.take().filter(|_| !self.names.is_empty()).unwrap_or_default();
        self.copied = self.copied.saturating_add(self.size.nodes);
        let result = match kind {
            _ if self.copied > MAX_COPIED => Err(Error::new("there are too many parts for so large a cloud-config")),
            PartKind::CloudConfigJsonp => patched(&base, content),
            _ => merged(&base, content, header),
        };
        // Aliases and patches can amplify a small input, so all parts together share one document's size limit.
        let result = result.and_then(|value| {
            let size = Size::of(&value);
            match jsonp::exceeded(size) {
                None => {
                    if kind == PartKind::CloudConfigJsonp {
                        budget::take(size.cost().saturating_sub(self.size.cost()))?;
                    }
                    self.size = size;
                    Ok(value)
                }
                Some(limit) => Err(Error::new(format!("all parts together have more than {limit}"))),
            }
        });
        let one_line = name.replace(['\n', '\r', '\t'], " ").trim().to_owned();
        let (list, merged, outcome) = match result {
            Ok(Value::Map(map)) => (&mut self.names, map, Ok(())),
            Ok(other) => (&mut self.ignored, base, Err(wrong("the merged cloud-config", "a mapping", &other))),
            Err(e) => (&mut self.ignored, base, Err(e)),
        };
        list.push(one_line);
        self.merged = Some(merged);
        outcome
    }

    /// The merged mapping. None if there was no part.
    pub fn merged(&self) -> Option<&Map> {
        self.merged.as_ref()
    }

    /// Writes cloud-config.txt: a header that lists the merged and the ignored parts, and one YAML document.
    /// Writes nothing if there was no part.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let Some(map) = &self.merged else { return Ok(()) };
        // Names come from MIME headers, and must not end the comment.
        let clean = |name: &String| -> String {
            name.chars()
                .map(|c| if c.is_ascii_graphic() || c == ' ' || c.is_alphanumeric() { c } else { '?' })
                .collect()
        };
        let mut text = String::from("#cloud-config\n\n");
        if !self.names.is_empty() {
            text += &format!("# from {} files\n", self.names.len());
            self.names.iter().for_each(|name| text += &format!("# {}\n", clean(name)));
            text.push('\n');
        }
        self.ignored.iter().for_each(|name| text += &format!("{IGNORED}{}\n", clean(name)));
        text += if map.is_empty() { "--- " } else { "---\n" };
        out.write_all(text.as_bytes())?;
        write_yaml(map, out)?;
        out.write_all(b"...\n")
    }
}

impl From<Map> for CloudConfig {
    fn from(merged: Map) -> CloudConfig {
        CloudConfig { merged: Some(merged), ..CloudConfig::default() }
    }
}

fn merged(base: &Map, content: &[u8], header: &dyn Fn(&str) -> Option<String>) -> Result<Value> {
    let text = std::str::from_utf8(content).map_err(|_| Error::new("not UTF-8"))?;
    let mut new = match yaml::parse("cloud-config", text)? {
        Value::Map(map) => map,
        Value::Null => return Err(Error::new("empty cloud config")),
        other => return Err(wrong("cloud-config", "a mapping", &other)),
    };
    let header = MERGE_HEADERS.iter().find_map(|name| header(name).filter(|v| !v.is_empty()));
    let strategy = match Strategy::take(&mut new, header.as_deref())? {
        Some(strategy) => strategy,
        None => Strategy::parse(REPLACE)?,
    };
    strategy.merge(Value::Map(base.clone()), Value::Map(new))
}

fn patched(base: &Map, content: &[u8]) -> Result<Value> {
    let mut patch = kind::trim_start(content);
    if PartKind::of_content(patch) == Some(PartKind::CloudConfigJsonp) {
        patch = patch.get(PartKind::CloudConfigJsonp.header().len()..).unwrap_or_default();
    }
    let patch = json::parse("cloud-config-jsonp", patch)?;
    jsonp::apply(Value::Map(base.clone()), &patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(config: &CloudConfig) -> String {
        let mut text = Vec::new();
        config.write(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    fn finished(parts: &[&str]) -> (String, Vec<bool>) {
        budget::begin();
        let mut config = CloudConfig::default();
        let outcomes = parts
            .iter()
            .enumerate()
            .map(|(i, part)| {
                let kind = PartKind::of_content(part.as_bytes()).unwrap();
                config.add(kind, &format!("p{i}"), part.as_bytes(), &|_| None).is_ok()
            })
            .collect();
        (written(&config), outcomes)
    }

    #[test]
    fn a_name_stays_inside_its_comment() {
        let names = |name: &str| vec![name.to_owned()];
        let text = written(&CloudConfig {
            merged: Some(Map::new()),
            names: names("a\nb: 1\u{7}"),
            ignored: names("c\r\nd: 2"),
            ..CloudConfig::default()
        });
        assert!(text.contains("\n# a?b: 1?\n") && text.contains(": c??d: 2\n"), "{text}");
    }

    #[test]
    fn good_parts_and_bad_ones() {
        let (text, outcomes) = finished(&[
            "#cloud-config\na: 1\nl: [x]\n",
            "#cloud-config\n- a\n",
            "#cloud-config\nl: [y]\nmerge_how: list(append)+dict(recurse_list)\n",
            "#cloud-config\nl: [y]\nmerge_how: nosuch()\n",
            "#cloud-config-jsonp\n[{\"op\": \"add\", \"path\": \"/b\", \"value\": 2}]\n",
            "#cloud-config-jsonp\n[{\"op\": \"remove\", \"path\": \"/zzz\"}]\n",
            "#cloud-config\n",
        ]);
        assert_eq!(outcomes, [true, false, true, false, true, false, false]);
        assert_eq!(
            text,
            "#cloud-config\n\n# from 3 files\n# p0\n# p2\n# p4\n\n# Cloud-config part ignored SCHEMA_ERROR: p1\n\
             # Cloud-config part ignored SCHEMA_ERROR: p3\n# Cloud-config part ignored SCHEMA_ERROR: p5\n\
             # Cloud-config part ignored SCHEMA_ERROR: p6\n---\na: 1\nl:\n- x\n- 'y'\nb: 2\n...\n"
        );
    }

    /// Aliases amplify a small input, and each part may have some.
    #[test]
    fn all_parts_have_the_bounds_of_one_document() {
        let of = |key: &str| format!("#cloud-config\n{key}: [&a [{}], {}]\n", "1,".repeat(1_000), "*a,".repeat(90));
        let parts: Vec<String> = (0..10).map(|i| of(&format!("k{i}"))).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        assert_eq!(finished(&parts).1, [[true; 2].as_slice(), &[false; 8]].concat());
        let of = |key: &str| format!("#cloud-config\n{key}: [&a {}, {}]\n", "x".repeat(100_000), "*a,".repeat(99));
        let parts: Vec<String> = (0..10).map(|i| of(&format!("k{i}"))).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        assert_eq!(finished(&parts).1, [[true; 1].as_slice(), &[false; 9]].concat());
    }

    /// Each part copies the result so far, which is cheap at these sizes.
    #[test]
    fn many_parts_after_large_one_merge_quickly() {
        let large = format!("#cloud-config\na: [{}]\n", "x,".repeat(200_000));
        for small in
            ["#cloud-config\nb: 1\n", "#cloud-config-jsonp\n[{\"op\": \"add\", \"path\": \"/b\", \"value\": 2}]\n"]
        {
            let parts: Vec<&str> = std::iter::once(large.as_str()).chain([small; 999]).collect();
            let before = crate::base::testing::cpu_time();
            let outcomes = finished(&parts).1;
            assert!(outcomes[20] && !outcomes[100]);
            assert!(crate::base::testing::cpu_time() - before < std::time::Duration::from_secs(30));
        }
        let parts: Vec<&str> =
            std::iter::repeat_n("#cloud-config\nl: [a, b, c]\nmerge_how: list(append)+dict(recurse_list)\n", 1_000)
                .collect();
        assert!(finished(&parts).1.into_iter().all(|good| good));
    }

    #[test]
    fn nothing_and_nothing_good() {
        assert_eq!(finished(&[]).0, "");
        assert_eq!(
            finished(&["#cloud-config\na: ["]).0,
            "#cloud-config\n\n# Cloud-config part ignored SCHEMA_ERROR: p0\n--- {}\n...\n"
        );
    }
}
