//! status.json and result.json, as cloud-init's stages write them.

use crate::base::error::Result;
use crate::base::problem::{Problems, Severity};
use crate::document::{Map, Value, json};
use crate::instance::boot::ENABLED;
use crate::instance::state::{BOOT_FINISHED, CLOUD_DIR, RUN_DIR};
use crate::root::{Attr, Root, Stage};
use std::collections::HashSet;

/// The files of one boot, in the state's `data`, with links in /run.
const FILES: [&str; 2] = ["status.json", "result.json"];

/// Seconds since the kernel started, including suspends.
pub fn uptime() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// status.json of this boot.
#[derive(Debug, Clone, PartialEq)]
pub struct Status(Map);

impl Status {
    /// A new status, for the first stage of a boot.
    pub fn new() -> Status {
        let mut v1 = Map::new();
        v1.insert("datasource", Value::Null);
        for stage in Stage::ALL {
            let mut map = Map::new();
            map.insert("errors", Vec::<Value>::new());
            map.insert("finished", Value::Null);
            map.insert("recoverable_errors", Map::new());
            map.insert("start", Value::Null);
            v1.insert(stage.status_name(), map);
        }
        v1.insert("stage", Value::Null);
        Status(v1)
    }

    /// The status that earlier stages of this boot wrote; new if there is none.
    pub fn load(root: &Root) -> Status {
        let read = || {
            let bytes = root.read(&format!("{RUN_DIR}/status.json")).ok()??;
            let Value::Map(mut document) = json::parse("status.json", &bytes).ok()? else { return None };
            let Some(Value::Map(v1)) = document.remove("v1") else { return None };
            Stage::ALL.iter().all(|s| matches!(v1.get(s.status_name()), Some(Value::Map(_)))).then_some(Status(v1))
        };
        read().unwrap_or_else(Status::new)
    }

    fn stage(&mut self, stage: Stage, change: impl FnOnce(&mut Map)) {
        if let Some(Value::Map(map)) = self.0.get_mut(stage.status_name()) {
            change(map);
        }
    }

    /// Begins a stage, `start` seconds after the kernel.
    pub fn begin(&mut self, stage: Stage, start: f64) {
        self.0.insert("stage", stage.status_name());
        self.stage(stage, |s| {
            s.insert("start", Value::Float(start));
            s.insert("finished", Value::Null);
        });
    }

    /// Adds an error to each stage before `stage` that has begun and has not ended: it was killed, for example because it took longer
    /// than its unit may. Its other work was not done, and nothing else says so.
    pub fn note_killed(&mut self, stage: Stage) {
        for earlier in Stage::ALL.into_iter().filter(|earlier| *earlier < stage) {
            self.stage(earlier, |s| {
                let is_null = |key: &str| s.get(key).is_none_or(Value::is_null);
                if !is_null("start") && is_null("finished") {
                    extend(
                        s,
                        "errors",
                        vec![format!("the stage {} was killed before its end", earlier.status_name()).into()],
                    );
                }
            });
        }
    }

    /// Sets the datasource.
    pub fn set_datasource(&mut self, description: &str) {
        self.0.insert("datasource", description);
    }

    /// Ends a stage. The report's errors make it a failure; warnings and deprecations are recoverable errors.
    pub fn end(&mut self, stage: Stage, report: &Problems) {
        self.0.insert("stage", Value::Null);
        self.stage(stage, |s| {
            s.insert("finished", Value::Float(uptime()));
            // A stage that is run again in the same boot keeps its errors.
            if s.get("errors").is_none_or(|e| e.as_list().is_none()) {
                s.insert("errors", Vec::<Value>::new());
            }
            s.insert("recoverable_errors", Map::new());
        });
        self.add(stage, report);
    }

    /// Adds the report of a later part of the stage, without duplicates.
    pub fn add(&mut self, stage: Stage, report: &Problems) {
        self.stage(stage, |s| {
            extend(s, "errors", texts(report, Severity::Error));
            if let Some(Value::Map(recoverable)) = s.get_mut("recoverable_errors") {
                for severity in [Severity::Warning, Severity::Deprecated] {
                    extend(recoverable, severity.name(), texts(report, severity));
                }
            }
        });
    }

    /// The errors of one stage.
    pub fn errors_of(&self, stage: Stage) -> Vec<String> {
        self.0.get(stage.status_name()).and_then(|s| s.get("errors")).map(Value::texts).unwrap_or_default()
    }

    /// The recoverable errors of all stages so far.
    pub fn recoverable(&self) -> Vec<String> {
        let stages =
            Stage::ALL.iter().filter_map(|stage| self.0.get(stage.status_name())?.get("recoverable_errors")?.as_map());
        stages.flat_map(Map::iter).flat_map(|(_, list)| list.texts()).collect()
    }

    /// Removes errors that no longer apply.
    pub fn withdraw(&mut self, errors: &[String]) {
        let errors: HashSet<&str> = errors.iter().map(String::as_str).collect();
        for stage in Stage::ALL {
            self.stage(stage, |s| {
                if let Some(Value::List(list)) = s.get_mut("errors") {
                    list.retain(|e| !e.as_str().is_some_and(|e| errors.contains(e)));
                }
            });
        }
    }

    /// The errors of all stages.
    pub fn errors(&self) -> Vec<Value> {
        let of = |stage: &Stage| self.0.get(stage.status_name())?.get("errors")?.as_list().map(<[Value]>::to_vec);
        Stage::ALL.iter().filter_map(of).flatten().collect()
    }

    /// Writes status.json, and the link to it in /run.
    ///
    /// # Errors
    /// A path cannot be resolved.
    pub fn save(&self, root: &mut Root) -> Result<()> {
        root.write(ENABLED, "", Attr::root(0o644))?;
        write(root, "status.json", &self.document())
    }

    /// Writes status.json, and at the end of the boot result.json, only to /run: nothing on the disk changes.
    ///
    /// # Errors
    /// A path cannot be resolved.
    pub fn save_in_run(&self, root: &mut Root, done: bool) -> Result<()> {
        root.write(ENABLED, "", Attr::root(0o644))?;
        write_in_run(root, "status.json", &self.document())?;
        if done { write_in_run(root, "result.json", &self.result()) } else { Ok(()) }
    }

    /// Repairs the files after a run that was killed before or during its last write: writes status.json
    /// again if only the link exists, and removes temporary files of both.
    ///
    /// # Errors
    /// As [`Status::save`].
    pub fn restore(root: &mut Root) -> Result<()> {
        for name in FILES {
            root.remove_unfinished(&format!("{CLOUD_DIR}/data/{name}"))?;
        }
        let path = format!("{RUN_DIR}/status.json");
        let dangles = root.read_link(&path).is_some() && !root.is_file(&path);
        if dangles { Status::new().save(root) } else { Ok(()) }
    }

    /// After a commit: if a full or read-only disk could not be written, replaces the link in /run by the
    /// status itself. Returns whether that was necessary.
    ///
    /// # Errors
    /// A path cannot be resolved.
    pub fn rescue(&self, root: &mut Root) -> Result<bool> {
        let mut rescued = false;
        for (name, document) in [("status.json", self.document()), ("result.json", self.result())] {
            let path = format!("{RUN_DIR}/{name}");
            if root.read_link(&path).is_some() && root.text(&path) != text(&document) {
                write_in_run(root, name, &document)?;
                rescued = true;
            }
        }
        Ok(rescued)
    }

    fn document(&self) -> Value {
        let mut document = Map::new();
        document.insert("v1", self.0.clone());
        Value::Map(document)
    }

    /// Writes result.json at the end of the boot.
    ///
    /// # Errors
    /// A path cannot be resolved.
    pub fn save_result(&self, root: &mut Root) -> Result<()> {
        write(root, "result.json", &self.result())
    }

    fn result(&self) -> Value {
        let mut v1 = Map::new();
        v1.insert("datasource", self.0.get("datasource").cloned().unwrap_or_default());
        v1.insert("errors", self.errors());
        let mut document = Map::new();
        document.insert("v1", v1);
        Value::Map(document)
    }

    /// Removes the files of the last boot, before the first stage of this one.
    ///
    /// # Errors
    /// A path cannot be resolved.
    pub fn forget(root: &mut Root) -> Result<()> {
        for name in FILES {
            root.remove(&format!("{CLOUD_DIR}/data/{name}"))?;
            root.remove(&format!("{RUN_DIR}/{name}"))?;
        }
        root.remove(&format!("{CLOUD_DIR}/instance/{BOOT_FINISHED}"))
    }
}

impl Default for Status {
    fn default() -> Self {
        Self::new()
    }
}

fn text(document: &Value) -> String {
    format!("{}\n", json::to_string_sorted(document))
}

fn write(root: &mut Root, name: &str, document: &Value) -> Result<()> {
    root.write(&format!("{CLOUD_DIR}/data/{name}"), text(document), Attr::root(0o644))?;
    root.symlink(&format!("{RUN_DIR}/{name}"), &format!("../../var/lib/cloud/data/{name}"))
}

/// The texts of one severity, as a list.
fn texts(report: &Problems, severity: Severity) -> Vec<Value> {
    report.texts(severity).into_iter().map(Value::from).collect()
}

/// Adds missing texts to the list at `key`, which is created only if there is one to add.
fn extend(map: &mut Map, key: &str, texts: Vec<Value>) {
    let mut list = map.get(key).and_then(Value::as_list).unwrap_or_default().to_vec();
    let known: HashSet<&str> = list.iter().filter_map(Value::as_str).collect();
    let new = |text: &Value| text.as_str().is_none_or(|text| !known.contains(text));
    let new: Vec<Value> = texts.into_iter().filter(new).collect();
    list.extend(new);
    if !list.is_empty() {
        map.insert(key, list);
    }
}

fn write_in_run(root: &mut Root, name: &str, document: &Value) -> Result<()> {
    let path = format!("{RUN_DIR}/{name}");
    root.remove(&path)?;
    root.write(&path, text(document), Attr::root(0o644))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::Use;

    #[test]
    fn a_report_is_sorted_by_severity() {
        let report = Problems::new();
        report.warn("wrong");
        report.deprecated("old");
        let mut status = Status::new();
        status.end(Stage::Network, &report);
        let expected = r#"{"WARNING":["wrong"],"DEPRECATED":["old"]}"#;
        let document = status.document();
        assert_eq!(json::to_string(document.at(&["v1", "init", "recoverable_errors"]).unwrap()), expected);
    }

    #[test]
    fn a_stage_that_was_killed_has_failed() {
        let mut status = Status::new();
        status.begin(Stage::Local, 1.0);
        status.end(Stage::Local, &Problems::new());
        status.begin(Stage::Network, 2.0);
        status.note_killed(Stage::Network);
        assert_eq!(status.errors(), []);
        for _ in 0..2 {
            status.note_killed(Stage::Final);
            assert_eq!(status.errors(), [Value::from("the stage init was killed before its end")]);
        }
    }

    #[test]
    fn removes_leftovers_of_a_killed_run() {
        let dir = TempDir::new("status-unfinished");
        let mut root = dir.root(Use::Tree);
        Status::new().save(&mut root).unwrap();
        assert_eq!(root.commit(), []);
        let unfinished = dir.0.join("var/lib/cloud/data/.status.json.prepivot");
        std::fs::write(&unfinished, "{").unwrap();
        Status::restore(&mut root).unwrap();
        assert_eq!(root.commit(), []);
        assert!(!unfinished.exists() && dir.0.join("var/lib/cloud/data/status.json").exists());
    }

    #[test]
    fn stages_add_up() {
        let dir = TempDir::new("status");
        let mut root = dir.root(Use::Tree);
        let mut status = Status::new();
        status.begin(Stage::Local, 1.5);
        let report = Problems::new();
        report.error("bad");
        status.end(Stage::Local, &report);
        status.save(&mut root).unwrap();
        let mut later = Status::load(&root);
        assert_eq!(later, status);
        later.begin(Stage::Network, uptime());
        later.save_result(&mut root).unwrap();
        assert_eq!(
            root.text("/run/cloud-init/result.json"),
            "{\n \"v1\": {\n  \"datasource\": null,\n  \"errors\": [\n   \"bad\"\n  ]\n }\n}\n"
        );
        let finished = "/var/lib/cloud/instances/i/boot-finished";
        root.write(finished, "", Attr::root(0o644)).unwrap();
        root.symlink("/var/lib/cloud/instance", "/var/lib/cloud/instances/i").unwrap();
        Status::forget(&mut root).unwrap();
        assert!(!root.exists(finished) && !root.exists("/run/cloud-init/result.json"));
        later.save(&mut root).unwrap();
        root.write("/var/lib/cloud/data/status.json", "{", Attr::root(0o644)).unwrap();
        assert_eq!(Status::load(&root), Status::new());
        assert!(later.rescue(&mut root).unwrap());
        assert_eq!(Status::load(&root), later);
        assert!(!later.rescue(&mut root).unwrap());
        assert_eq!(root.text("/var/lib/cloud/data/status.json"), "{");
    }
}
