//! `schema --json-schema`, judged by python3-jsonschema.

use super::run;
use prepivot::base::testing::{TempDir, skip};
use prepivot::document::testing::vectors;
use prepivot::document::{Map, Value, json};
use prepivot::schema::{cloud_config, network_config};
use std::process::Command;

/// Prints the names of the cases with which the JSON Schema does not agree, and how many it refuses.
const JUDGE: &str = "
import json, sys
import jsonschema
schemas = {}
for kind in ('cloud-config', 'network-config-v1', 'network-config-v2'):
    schema = json.load(open(sys.argv[1] + '/' + kind))
    jsonschema.Draft7Validator.check_schema(schema)
    schemas[kind] = jsonschema.Draft7Validator(schema)
refused = 0
for case in json.load(open(sys.argv[1] + '/cases')):
    valid = schemas[case['kind']].is_valid(case['config'])
    refused += not valid
    if valid != case['valid']:
        print(case['name'], 'valid' if valid else 'refused', json.dumps(case['config'])[:300])
print('refused', refused)
";

fn case(name: &str, kind: &str, config: &Map, valid: bool) -> Value {
    let entries = [
        ("name", Value::from(name)),
        ("kind", kind.into()),
        ("config", config.clone().into()),
        ("valid", valid.into()),
    ];
    Value::Map(entries.into_iter().collect())
}

#[test]
fn json_schema_agrees_with_the_check() {
    let dir = TempDir::new("cli-json-schema");
    for kind in ["cloud-config", "network-config-v1", "network-config-v2"] {
        let answer = run(&["schema", "--json-schema", kind]);
        assert_eq!((answer.code, answer.err.as_str()), (0, ""), "{kind}");
        dir.write(kind, answer.out);
    }
    if !Command::new("python3").args(["-c", "import jsonschema"]).output().is_ok_and(|python| python.status.success()) {
        return skip("a JSON Schema is judged by python3-jsonschema");
    }
    let (Some(schema), Some(examples)) = (vectors("schema.json"), vectors("examples.json")) else { return };
    let mut cases = Vec::new();
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    for vector in schema.as_list().unwrap() {
        let Some(Value::Map(config)) = vector.get("config") else { continue };
        let name = text(vector, "name");
        if text(vector, "schema_type").contains("network") {
            let inner = config.get("network").and_then(Value::as_map).unwrap_or(config);
            let kind =
                if inner.get("version") == Some(&Value::Int(1)) { "network-config-v1" } else { "network-config-v2" };
            cases.push(case(&name, kind, config, network_config(config).errors.is_empty()));
        } else {
            cases.push(case(&name, "cloud-config", config, cloud_config(config).errors.is_empty()));
        }
    }
    for example in examples.as_list().unwrap() {
        if let Some(Value::Map(config)) = example.get("parsed") {
            cases.push(case(&text(example, "name"), "cloud-config", config, cloud_config(config).errors.is_empty()));
        }
    }
    assert!(cases.len() > 300, "{}", cases.len());
    let invalid = cases.iter().filter(|case| case.get("valid").is_some_and(Value::is_false)).count();
    assert!(invalid > 50, "{invalid}");
    dir.write("cases", json::to_string(&Value::List(cases)));
    let judged = Command::new("python3").args(["-c", JUDGE, dir.0.to_str().unwrap()]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&judged.stderr), "");
    assert_eq!(String::from_utf8_lossy(&judged.stdout), format!("refused {invalid}\n"));
}
