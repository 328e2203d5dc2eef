//! The cases of a file of vectors, each as a test of its own, and its table of exceptions.

use libtest_mimic::{Completion, Failed, Trial};
use prepivot::document::{Value, testing};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

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

/// A kind of case in which prepivot differs on purpose, whatever its name: another half of the vectors has other names.
pub struct Kind {
    /// What is in the names of its cases.
    pub cases: &'static str,
    /// The only places where such a case differs.
    pub places: &'static [&'static str],
    pub reason: &'static str,
}

impl Kind {
    /// Whether a case that differs in these lines is one of the kind.
    fn has(&self, name: &str, lines: &[String]) -> bool {
        name.contains(self.cases) && lines.iter().all(|line| self.places.contains(&place(line).as_str()))
    }
}

/// A file of vectors.
pub struct Vectors {
    /// Its name, which is also the first part of its tests' names.
    pub file: &'static str,
    /// Cases in which prepivot differs on purpose: the name, and the reason. Where each differs, and nowhere else, is in
    /// exceptions.txt, which `BLESS=1 cargo test --test conformance` writes anew.
    pub exceptions: &'static [(&'static str, &'static str)],
    /// The same for cases that are not named.
    pub kinds: &'static [Kind],
}

/// Where the exceptions differ, by the name of the test.
type Places = BTreeMap<String, BTreeSet<String>>;

/// The places of exceptions.txt, and those that were found where it is to be written anew.
static PLACES: LazyLock<Places> = LazyLock::new(read_places);
static FOUND: Mutex<Places> = Mutex::new(Places::new());

const HEAD: &str = "# Where the cases differ that are exceptions: their reasons are in the table of each file of vectors. Written by\n\
                    # `BLESS=1 cargo test --test conformance`: read the difference before you keep it.\n";

fn is_blessed() -> bool {
    std::env::var_os("BLESS").is_some()
}

fn table() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance/exceptions.txt"))
}

fn read_places() -> Places {
    let text = std::fs::read_to_string(table()).expect("the table of exceptions");
    let mut places = Places::new();
    let mut name = "";
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix("    ") {
            Some(place) => drop(places.entry(name.to_owned()).or_default().insert(place.to_owned())),
            None => name = line,
        }
    }
    places
}

/// What a line names that tells a difference: a file, a key, the commands. The values are not of interest.
fn place(line: &str) -> String {
    let ends = [": ", " [", " Some(", " None", " Deviations"].iter().filter_map(|end| line.find(end));
    line[..ends.min().unwrap_or(line.len())].to_owned()
}

/// Compares where an exception differs with the table.
fn judge_exception(name: &str, reason: &str, lines: &[String]) -> Result<Completion, Failed> {
    let found: BTreeSet<String> = lines.iter().map(|line| place(line)).collect();
    let known = PLACES.get(name).cloned().unwrap_or_default();
    if found != known && !is_blessed() {
        let text = lines.join("\n");
        return Err(format!("an exception ({reason}) differs in {found:?}, and not in {known:?}: {text}").into());
    }
    FOUND.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), found);
    Ok(Completion::Completed)
}

/// Writes exceptions.txt anew where that is asked for, after a run of all cases.
fn write_places() {
    let found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if !is_blessed() || found.is_empty() {
        return;
    }
    let mut text = HEAD.to_owned();
    for (name, places) in found.iter() {
        text += &format!("{name}\n");
        places.iter().for_each(|place| text += &format!("    {place}\n"));
    }
    std::fs::write(table(), text).expect("the table of exceptions is written");
}

/// Why tests were skipped, and how many for each reason.
static SKIPPED: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

impl Vectors {
    /// A test for each case, which passes when `check` finds no difference, or, for an exception, those that are known. Without the file
    /// there is one test, which is skipped.
    pub fn trials(&self, check: impl Fn(&Value) -> Outcome + Copy + Send + 'static) -> Vec<Trial> {
        let cases = match testing::find_vectors(self.file) {
            Ok(cases) => Arc::new(cases),
            Err(reason) => return vec![skipped(self.file.to_owned(), reason)],
        };
        let list = cases.as_list().expect("a list of cases");
        let names: BTreeSet<&str> = list.iter().map(name).collect();
        // An exception applies to a set that has its case. The set beside the project has all of them.
        let is_own_set = std::env::var_os("PREPIVOT_VECTORS").is_none();
        let unknown = self.exceptions.iter().filter(|(exception, _)| is_own_set && !names.contains(exception));
        let unknown = unknown.map(|(exception, _)| {
            let name = format!("{}: {exception}", self.file);
            Trial::test(name, || Err("this exception names none of the cases".into()))
        });
        let file = format!("{}: ", self.file);
        let listed = PLACES.keys().filter_map(|name| name.strip_prefix(&file));
        let stale =
            listed.filter(|name| !is_blessed() && !self.exceptions.iter().any(|(exception, _)| exception == name));
        let stale = stale.map(|name| {
            let name = format!("{file}{name} in exceptions.txt");
            Trial::test(name, || Err("this case is no exception".into()))
        });
        let one = |(index, case): (usize, &Value)| {
            let reason =
                self.exceptions.iter().find(|(exception, _)| *exception == name(case)).map(|(_, reason)| *reason);
            let full_name = format!("{}: {}", self.file, name(case));
            let cases = Arc::clone(&cases);
            let (test, kinds) = (full_name.clone(), self.kinds);
            let run = move || {
                let outcome = check(&cases.as_list().expect("a list of cases")[index]);
                match &outcome {
                    Outcome::Differs(lines) if reason.is_none() && kinds.iter().any(|kind| kind.has(&test, lines)) => {
                        Ok(Completion::Completed)
                    }
                    _ => judge(&test, outcome, reason),
                }
            };
            Trial::ignorable_test(full_name, run).with_kind(if reason.is_some() { "exception" } else { "" })
        };
        list.iter().enumerate().map(one).chain(unknown).chain(stale).collect()
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
    Trial::ignorable_test(name.clone(), move || judge(&name, Outcome::Skipped(reason), None))
}

fn judge(name: &str, outcome: Outcome, exception: Option<&str>) -> Result<Completion, Failed> {
    match (outcome, exception) {
        (Outcome::Skipped(reason), _) => {
            *SKIPPED.lock().unwrap_or_else(PoisonError::into_inner).entry(reason.clone()).or_default() += 1;
            Ok(Completion::ignored_with(reason))
        }
        (Outcome::Agrees, None) => Ok(Completion::Completed),
        (Outcome::Differs(lines), Some(reason)) => judge_exception(name, reason, &lines),
        (Outcome::Differs(lines), None) => Err(lines.join("\n").into()),
        (Outcome::Agrees, Some(reason)) => Err(format!("agrees, but is listed as an exception: {reason}").into()),
    }
}

/// Prints why tests were skipped, a line for each reason.
pub fn print_skipped() {
    write_places();
    for (reason, count) in SKIPPED.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        println!("skipped: {count} cases: {reason}");
    }
}

/// Tests of what judges the cases.
pub fn trials() -> Vec<Trial> {
    vec![trial("conformance: exceptions are known by kind", || {
        let kind = Kind { cases: "Azure/", places: &["a.b", "/etc/c"], reason: "why" };
        let differs = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        assert!(kind.has("datasources.json: Azure/new", &differs(&["a.b: expected 1, found 2", "/etc/c: expected"])));
        assert!(!kind.has("datasources.json: Azure/new", &differs(&["a.b: expected 1", "user_data: expected"])));
        assert!(!kind.has("datasources.json: Ec2/new", &differs(&["a.b: expected 1"])));
        assert_eq!(kind.reason, "why");
    })]
}
