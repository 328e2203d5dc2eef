//! Templates, against what jinja2 3.1 gives in the environment that cloud-init makes: sandboxed, `trim_blocks`, `do`, and
//! undefined variables that print their name.

use libtest_mimic::{Failed, Trial};
use prepivot::document::{Value, json};
use prepivot::userdata::jinja;

/// Templates, with what comes out or null where jinja2 fails, and the instance-data that they are rendered with.
const CASES: &str = include_str!("jinja.json");

fn check(case: &Value, data: &Value) -> Result<(), Failed> {
    let [Value::String(template), expected] = case.as_list().unwrap_or_default() else {
        return Err("expected a template and its result".into());
    };
    match (jinja::render(template, data), expected.as_str()) {
        (Ok(rendered), Some(expected)) if rendered.text == expected => Ok(()),
        (Err(_), None) => Ok(()),
        (rendered, _) => Err(format!("{template:?}: expected {expected:?}, found {rendered:?}").into()),
    }
}

pub fn trials() -> Vec<Trial> {
    let all = json::parse("jinja.json", CASES.as_bytes()).expect("the cases");
    let data = all.get("data").expect("instance-data").clone();
    let cases = all.get("cases").and_then(Value::as_list).expect("a list of cases").to_vec();
    let trial = |(number, case): (usize, Value)| {
        let data = data.clone();
        Trial::test(format!("jinja.json: {}", number + 1), move || check(&case, &data))
    };
    cases.into_iter().enumerate().map(trial).collect()
}
