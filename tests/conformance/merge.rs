//! Merging against what cloud-init's own mergers made of the same documents.

use crate::cases::{Outcome, Vectors};
use libtest_mimic::Trial;
use prepivot::document::{Value, yaml};
use prepivot::userdata::CloudConfig;
use prepivot::userdata::kind::PartKind;
use prepivot::userdata::merge::Strategy;

fn merged(case: &Value) -> Result<Value, String> {
    let input = case.get("input").unwrap();
    if case.get("kind").and_then(Value::as_str) == Some("merge") {
        let how = input.get("how").and_then(Value::as_str).unwrap();
        let value = |key| input.get(key).cloned().unwrap();
        return Strategy::parse(how).and_then(|s| s.merge(value("base"), value("new"))).map_err(|e| e.to_string());
    }
    let (documents, headers) = match input {
        Value::List(documents) => (documents.as_slice(), None),
        _ => (input.get("docs").and_then(Value::as_list).unwrap(), input.get("headers").and_then(Value::as_list)),
    };
    let mut config = CloudConfig::default();
    for (i, document) in documents.iter().enumerate() {
        let header = |name: &str| headers?.get(i)?.get(name)?.text();
        // A part that fails is reported and left out; the result of the others is compared.
        let _ = config.add(PartKind::CloudConfig, &format!("part-{i}"), document.as_str().unwrap().as_bytes(), &header);
    }
    let mut text = Vec::new();
    config.write(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let merged = config.merged().cloned().map_or(Value::Null, Value::Map);
    assert_eq!(yaml::parse("cloud-config.txt", &text).unwrap(), merged, "what is written is what was merged");
    Ok(merged)
}

/// Mappings are equal in any order.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Map(a), Value::Map(b)) => {
            a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|w| same(v, w)))
        }
        (Value::List(a), Value::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(v, w)| same(v, w)),
        _ => a == b,
    }
}

fn check(case: &Value) -> Outcome {
    let expected = case.get("expected").unwrap();
    match merged(case) {
        Ok(value) if same(&value, expected) => Outcome::Agrees,
        Err(_) if expected.get("error").is_some() => Outcome::Agrees,
        other => Outcome::Differs(vec![format!("{other:?}")]),
    }
}

pub fn trials() -> Vec<Trial> {
    Vectors { file: "merge.json", exceptions: &[], kinds: &[] }.trials(check)
}
