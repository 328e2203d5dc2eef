//! The cases of a file of vectors, each as a test of its own, and its table of exceptions.

use libtest_mimic::{Completion, Failed, Trial};
use prepivot::base::testing;
use prepivot::document::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// The result of a case.
pub enum Outcome {
    /// prepivot did what cloud-init did.
    Agrees,
    /// What differs, a line each.
    Differs(Vec<String>),
    /// The case cannot be compared, for this reason.
    Skipped(String),
}

impl Outcome {
    /// Agreement where nothing differs.
    pub fn of(differences: Vec<String>) -> Outcome {
        if differences.is_empty() { Outcome::Agrees } else { Outcome::Differs(differences) }
    }
}

/// A file of vectors.
pub struct Vectors {
    /// Its name, which is also the first part of its tests' names.
    pub file: &'static str,
    /// Cases in which prepivot differs on purpose: the name, and the reason.
    pub exceptions: &'static [(&'static str, &'static str)],
}

/// Why tests were skipped, and how many for each reason.
static SKIPPED: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

impl Vectors {
    /// A test for each case, which passes when `check` finds no difference, or, for an exception, finds one. Without the file
    /// there is one test, which is skipped.
    pub fn trials(&self, check: impl Fn(&Value) -> Outcome + Copy + Send + 'static) -> Vec<Trial> {
        let cases = match testing::find_vectors(self.file) {
            Ok(cases) => Arc::new(cases),
            Err(reason) => return vec![skipped(self.file.to_owned(), reason)],
        };
        let list = cases.as_list().expect("a list of cases");
        let names: BTreeSet<&str> = list.iter().map(name).collect();
        let unknown = self.exceptions.iter().filter(|(exception, _)| !names.contains(exception));
        let unknown = unknown.map(|(exception, _)| {
            skipped(format!("{}: {exception}", self.file), "this exception names none of the cases".into())
        });
        let one = |(index, case): (usize, &Value)| {
            let reason =
                self.exceptions.iter().find(|(exception, _)| *exception == name(case)).map(|(_, reason)| *reason);
            let full_name = format!("{}: {}", self.file, name(case));
            let cases = Arc::clone(&cases);
            let run = move || judge(check(&cases.as_list().expect("a list of cases")[index]), reason);
            Trial::ignorable_test(full_name, run).with_kind(if reason.is_some() { "exception" } else { "" })
        };
        list.iter().enumerate().map(one).chain(unknown).collect()
    }
}

/// A case's name.
pub fn name(case: &Value) -> &str {
    case.get("name").and_then(Value::as_str).expect("a case has a name")
}

/// A test of `check`, which panics where it fails.
pub fn trial(name: &str, check: fn()) -> Trial {
    Trial::test(name, move || {
        check();
        Ok(())
    })
}

fn skipped(name: String, reason: String) -> Trial {
    Trial::ignorable_test(name, move || judge(Outcome::Skipped(reason), None))
}

fn judge(outcome: Outcome, exception: Option<&str>) -> Result<Completion, Failed> {
    match (outcome, exception) {
        (Outcome::Skipped(reason), _) => {
            *SKIPPED.lock().unwrap_or_else(PoisonError::into_inner).entry(reason.clone()).or_default() += 1;
            Ok(Completion::ignored_with(reason))
        }
        (Outcome::Agrees, None) | (Outcome::Differs(_), Some(_)) => Ok(Completion::Completed),
        (Outcome::Differs(lines), None) => Err(lines.join("\n").into()),
        (Outcome::Agrees, Some(reason)) => Err(format!("agrees, but is listed as an exception: {reason}").into()),
    }
}

/// Prints why tests were skipped, a line for each reason.
pub fn print_skipped() {
    for (reason, count) in SKIPPED.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        println!("skipped: {count} cases: {reason}");
    }
}
