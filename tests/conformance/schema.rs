//! `schema` against what cloud-init's own made of the same documents.

use prepivot::base::testing::vectors;
use prepivot::document::{Map, Value, to_yaml, yaml};
use prepivot::schema::{Findings, annotated, cloud_config, network_config};

/// Cases in which prepivot differs on purpose: what its name has, and the reason.
const EXCEPTIONS: &[(&str, &str)] =
    &[("TestValidateCloudConfigSchema::", "a schema that the test made up, with keys such as x and p1")];

fn check(config: &Map) -> Findings {
    let is_network = ["network", "ethernets", "config"].iter().any(|key| config.contains_key(key));
    if is_network { network_config(config) } else { cloud_config(config) }
}

/// The paths that cloud-init's answer names.
fn paths<'a>(case: &'a Value, list: &str) -> Vec<&'a str> {
    let problems = case.at(&["error", list]).and_then(Value::as_list).unwrap_or_default();
    problems.iter().filter_map(|p| p.as_list()?.first()?.as_str()).collect()
}

#[test]
fn valid_is_what_cloud_init_finds_valid() {
    let Some(cases) = vectors("schema.json") else { return };
    let (mut valid, mut invalid, mut deprecated, mut excepted) = (0, 0, 0, 0);
    let mut differing = Vec::new();
    for case in cases.as_list().unwrap() {
        let name = case.get("name").and_then(Value::as_str).unwrap();
        let config = case.get("config").and_then(Value::as_map).unwrap();
        if EXCEPTIONS.iter().any(|(part, _)| name.contains(part)) {
            excepted += 1;
            continue;
        }
        let found = check(config);
        let (errors, deprecations) = (paths(case, "errors"), paths(case, "deprecations"));
        // Where something is wrong, cloud-init tells of every alternative; deprecations are then not compared.
        let mut told: Vec<&str> = found.deprecations.iter().map(|p| p.path.as_str()).collect();
        let mut expected = deprecations.clone();
        told.sort_unstable();
        expected.sort_unstable();
        expected.dedup();
        if errors.is_empty() != found.errors.is_empty() || (errors.is_empty() && told != expected) {
            differing.push(format!("{name}\n  cloud-init: {errors:?} {deprecations:?}\n  here: {found:?}"));
        }
        let count = if !errors.is_empty() {
            &mut invalid
        } else if deprecations.is_empty() {
            &mut valid
        } else {
            &mut deprecated
        };
        *count += 1;
    }
    println!("schema.json: {valid} valid, {deprecated} deprecated, {invalid} invalid, {excepted} exceptions");
    assert!(differing.is_empty(), "{}", differing.join("\n"));
    assert!(valid > 50 && invalid > 50 && deprecated > 5);
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

#[test]
fn whatever_a_document_holds_is_told_in_lines() {
    let Some(cases) = vectors("schema.json") else { return };
    let odd = yaml::parse("odd", "[null, -1, '', s3cret, [], [[s3cret]], {}, {type: s3cret}, {\"a\\e[2J\\n.b\": 1.5}]")
        .unwrap();
    let mut tried = 0;
    for case in cases.as_list().unwrap().iter().step_by(8) {
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
    println!("{tried} documents");
    assert!(tried > 500, "{tried}");
}
