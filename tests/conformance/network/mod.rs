//! cloud-init's network configurations and what its renderers made of them, compared by meaning.

mod compare;
mod exceptions;

use crate::cases::{Outcome, Vectors, trial};
use compare::{Meaning, meaning, ours};
use libtest_mimic::Trial;
use prepivot::base::problem::Problems;
use prepivot::document::testing::find_vectors;
use prepivot::document::{Value, yaml};
use prepivot::machine::Distro;
use prepivot::network::read::config;
use prepivot::network::{Macs, Target, render};
use std::collections::BTreeSet;

/// A device that the recorded machine had.
const KNOWN: [(&str, &str); 1] = [("cf:d6:af:48:e8:80", "eth0")];

fn input(case: &Value) -> Option<Value> {
    match case.get("input")? {
        Value::Null => None,
        Value::String(text) => Some(yaml::parse("input", text).expect("the input is YAML")),
        other => Some(other.clone()),
    }
}

/// The renderer's name and a distribution that it writes for.
fn target(case: &Value, renderer: &str) -> (&'static render::Renderer, Target) {
    let suse =
        renderer.ends_with("suse") || case.at(&["renderer_attrs", "flavor"]).and_then(Value::as_str) == Some("suse");
    let (name, distro) = match renderer {
        "eni" => ("eni", "alpine"),
        "sysconfig" | "sysconfig-suse" if suse => ("sysconfig", "sles"),
        "sysconfig" => ("sysconfig", "rhel"),
        other => (other, "debian"),
    };
    let ip_tool = case.get("ip_tool_present").and_then(Value::as_bool) != Some(false);
    let renderer = render::by_name(name).unwrap_or_else(|| panic!("no renderer {name}"));
    (renderer, Target { distro: Distro::named(distro), ip_tool, old_netplan: false })
}

fn expected(case: &Value, renderer: &str) -> Meaning {
    let files = case.get("expected").and_then(Value::as_map).expect("expected files");
    let texts = files.iter().map(|(path, file)| {
        let content = file.get("content").unwrap_or(file).as_str().unwrap_or_default();
        // Some tests wrote somewhere else than a machine does.
        let path = match (renderer, path) {
            ("netplan", _) => "/etc/netplan/50-cloud-init.yaml",
            ("eni", "/interfaces") => "/etc/network/interfaces",
            _ => path,
        };
        (path.to_owned(), content.to_owned())
    });
    meaning(renderer, texts)
}

fn check(case: &Value) -> Outcome {
    let text = |key| case.get(key).and_then(Value::as_str).expect("text");
    let (name, kind) = (text("name"), text("renderer"));
    let Some(input) = input(case) else { return Outcome::Skipped("the vectors have no input of this case".into()) };
    let network =
        config::read(name, &input, &Macs::from_iter(KNOWN), &Problems::new()).expect("a network configuration");
    let (renderer, target) = target(case, kind);
    let files = renderer.files(&network, &target, &Problems::new());
    let (mut want, mut have) = (expected(case, kind), ours(kind, &files));
    // cloud-init wrote no naming rules in these cases: it renames the devices itself.
    if want.get("names").is_none_or(Vec::is_empty) {
        want.remove("names");
        have.remove("names");
    }
    let mut found = difference(&want, &have);
    check_modes(case, &files, &mut found);
    exceptions::compare(name, &found)
}

pub fn trials() -> Vec<Trial> {
    let mut trials = Vectors { file: "network.json", exceptions: &[], kinds: &[] }.trials(check);
    trials.push(trial("meaning is compared, not spelling", compare::meaning_is_compared_not_spelling));
    trials.push(trial("each case of the table of exceptions is a case", each_exception_is_a_case));
    trials
}

fn each_exception_is_a_case() {
    // Without the vectors the cases are skipped, and that is said.
    let Ok(vectors) = find_vectors("network.json") else { return };
    let cases: BTreeSet<&str> = vectors.as_list().expect("a list of cases").iter().map(crate::cases::name).collect();
    let mut listed = exceptions::cases().peekable();
    assert!(listed.peek().is_some());
    let unknown: Vec<&str> = listed.filter(|name| !cases.contains(name)).collect();
    assert_eq!(unknown, [""; 0]);
}

fn check_modes(case: &Value, files: &[prepivot::network::File], wrong: &mut Vec<String>) {
    for (path, file) in case.get("expected").and_then(Value::as_map).into_iter().flat_map(|m| m.iter()) {
        let Some(mode) = file.get("mode").and_then(Value::as_str) else { continue };
        if let Some(ours) = files.iter().find(|f| f.path == path).filter(|f| format!("0o{:o}", f.mode) != mode) {
            wrong.push(format!("{path}: mode {:o}, expected {mode}", ours.mode));
        }
    }
}

/// What differs, line by line: `-` is expected and not there, `+` is there and not expected.
fn difference(want: &Meaning, have: &Meaning) -> Vec<String> {
    let mut out = Vec::new();
    let none = Vec::new();
    for path in want.keys().chain(have.keys()).collect::<BTreeSet<_>>() {
        let (w, h) = (want.get(path).unwrap_or(&none), have.get(path).unwrap_or(&none));
        let (mut missing, mut added) = (w.clone(), h.clone());
        // A line that is there twice counts twice.
        missing.retain(|l| added.iter().position(|a| a == l).map(|i| added.remove(i)).is_none());
        out.extend(missing.iter().map(|l| format!("{path} - {l}")));
        out.extend(added.iter().map(|l| format!("{path} + {l}")));
    }
    out
}
