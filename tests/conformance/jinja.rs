//! Templates, against what jinja2 3.1 gives in the environment that cloud-init makes: sandboxed, `trim_blocks`, `do`, and
//! undefined variables that print their name.

use prepivot::document::{Value, json};
use prepivot::userdata::jinja;

/// Templates, with what comes out or null where jinja2 fails, and the instance-data that they are rendered with.
const CASES: &str = include_str!("jinja.json");

#[test]
fn templates_come_out_as_from_jinja2() {
    let all = json::parse("jinja.json", CASES.as_bytes()).unwrap();
    let (data, cases) = (all.get("data").unwrap(), all.get("cases").and_then(Value::as_list).unwrap());
    let mut wrong = Vec::new();
    for case in cases {
        let [Value::String(template), expected] = case.as_list().unwrap() else { panic!("{case:?}") };
        let rendered = jinja::render(template, data);
        let same = match (&rendered, expected.as_str()) {
            (Ok(rendered), Some(expected)) => rendered.text == expected,
            (Err(_), None) => true,
            _ => false,
        };
        if !same {
            wrong.push(format!("{template:?}\n  expected {expected:?}\n  found {rendered:?}"));
        }
    }
    println!("jinja.json: {} alike, {} wrong", cases.len() - wrong.len(), wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
