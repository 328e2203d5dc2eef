//! `schema` against what cloud-init's own made of the same documents.

use crate::cases::{Outcome, Vectors, name};
use libtest_mimic::Trial;
use prepivot::document::testing::find_vectors;
use prepivot::document::{Map, Value, to_yaml, yaml};
use prepivot::schema::{Deviations, annotated, cloud_config, network_config};

const EXCEPTIONS: &[(&str, &str)] = &[(
    "tests/unittests/config/test_schema.py::TestValidateCloudConfigSchema::test_validateconfig_logs_deprecations[schema6-config6-Deprecated cloud-config provided: x: <desc> Deprecated in version 32.3.-True]#c9088dfd7653",
    "the schema is one that the test made up",
)];

fn check(config: &Map) -> Deviations {
    let is_network = ["network", "ethernets", "config"].iter().any(|key| config.contains_key(key));
    if is_network { network_config(config) } else { cloud_config(config) }
}

/// The paths that cloud-init's answer names.
fn paths<'a>(case: &'a Value, list: &str) -> Vec<&'a str> {
    let problems = case.at(&["error", list]).and_then(Value::as_list).unwrap_or_default();
    problems.iter().filter_map(|p| p.as_list()?.first()?.as_str()).collect()
}

fn compare(case: &Value) -> Outcome {
    let found = check(case.get("config").and_then(Value::as_map).unwrap());
    let (errors, mut expected) = (paths(case, "errors"), paths(case, "deprecations"));
    let mut deprecations: Vec<&str> = found.deprecations.iter().map(|p| p.key.as_str()).collect();
    deprecations.sort_unstable();
    expected.sort_unstable();
    expected.dedup();
    // Where something is wrong, cloud-init names every alternative, or what has it; deprecations are then not compared.
    let within = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| outer.is_empty() || rest.is_empty() || rest.starts_with('.'))
    };
    let is_theirs = |ours: &str| errors.iter().any(|theirs| within(ours, theirs) || within(theirs, ours));
    let same = match errors.as_slice() {
        [] => found.errors.is_empty() && deprecations == expected,
        _ => !found.errors.is_empty() && found.errors.iter().all(|problem| is_theirs(&problem.key)),
    };
    if same {
        return Outcome::Agrees;
    }
    Outcome::Differs(vec![format!("expected errors {errors:?}, deprecations {expected:?}"), format!("found {found:?}")])
}

pub fn trials() -> Vec<Trial> {
    let mut trials = Vectors { file: "schema.json", exceptions: EXCEPTIONS, kinds: &[] }.trials(compare);
    trials.extend(trials_of_odd_values());
    trials
}

/// The documents in which one value, wherever it is, is another.
fn replaced(value: &Value, odd: &Value) -> Vec<Value> {
    let mut all = vec![odd.clone()];
    match value {
        Value::Map(map) => {
            for (key, inner) in map.iter() {
                for new in replaced(inner, odd) {
                    let mut map = map.clone();
                    map.insert(key, new);
                    all.push(Value::Map(map));
                }
            }
        }
        Value::List(list) => {
            for (at, inner) in list.iter().enumerate() {
                for new in replaced(inner, odd) {
                    let mut list = list.clone();
                    list[at] = new;
                    all.push(Value::List(list));
                }
            }
        }
        _ => {}
    }
    all
}

/// Every eighth case with odd values in each place: a problem is one line, without the value.
fn trials_of_odd_values() -> Vec<Trial> {
    let cases = find_vectors("schema.json").unwrap_or(Value::Null);
    let cases = cases.as_list().unwrap_or_default().iter().step_by(8).cloned();
    cases
        .map(|case| {
            Trial::test(format!("odd values in schema.json: {}", name(&case)), move || {
                odd_values(&case);
                Ok(())
            })
        })
        .collect()
}

fn odd_values(case: &Value) {
    let odd = yaml::parse("odd", "[null, -1, '', s3cret, [], [[s3cret]], {}, {type: s3cret}, {\"a\\e[2J\\n.b\": 1.5}]")
        .unwrap();
    let mut tried = 0;
    for odd in odd.as_list().unwrap() {
        for document in replaced(case.get("config").unwrap(), odd) {
            let Some(config) = document.as_map() else { continue };
            let found = check(config);
            for problem in found.errors.iter().chain(&found.deprecations) {
                let line = problem.to_string();
                assert!(!line.contains(char::is_control) && !line.contains("s3cret"), "{line:?}");
            }
            tried += 1;
            if tried % 16 == 0 {
                let marked = annotated(&to_yaml(&document), &found);
                assert_eq!(marked.contains("# E1: "), !found.errors.is_empty(), "{marked}");
            }
        }
    }
}
