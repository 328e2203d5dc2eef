//! The README's tables and the code's tables say the same.

use prepivot::network::render::RENDERERS;
use prepivot::source::{LOCAL, service::SERVICES};
use prepivot::stage::modules::OTHERS;
use std::collections::BTreeSet;

const README: &str = include_str!("../README.md");

/// The README's text from one heading to the next.
fn section(heading: &str) -> &'static str {
    let start = README.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no heading {heading}"));
    let rest = &README[start + heading.len() + 2..];
    let level = format!("\n{} ", &heading[..heading.find(' ').unwrap()]);
    &rest[..rest.find(&level).unwrap_or(rest.len())]
}

/// The names in the first column of a section's table.
fn first_column(section: &str) -> BTreeSet<String> {
    let rows = section.lines().filter(|l| l.starts_with("| ")).skip(1);
    rows.filter_map(|l| l.trim_start_matches("| ").split(" |").next())
        .flat_map(|c| c.split(", ").map(str::to_owned))
        .collect()
}

#[test]
fn every_module_is_in_the_table_and_nothing_else() {
    let code: BTreeSet<String> = prepivot::module::MODULES.iter().map(|m| m.name.to_owned()).collect();
    assert_eq!(first_column(section("### Modules")), code);
}

#[test]
fn what_is_not_there_yet_is_listed() {
    let text = section("### Modules");
    let list = &text[text.find("Not yet: ").unwrap() + "Not yet: ".len()..];
    let listed: BTreeSet<&str> =
        list[..list.find('.').unwrap()].split([',', '\n', ' ']).filter(|n| !n.is_empty()).collect();
    let code: BTreeSet<&str> = OTHERS.iter().map(|(name, _)| *name).collect();
    assert_eq!(listed, code);
}

#[test]
fn every_datasource_is_in_the_table_and_nothing_else() {
    let code: BTreeSet<String> =
        LOCAL.iter().map(|s| s.name).chain(SERVICES.iter().map(|s| s.name)).map(str::to_owned).collect();
    assert_eq!(first_column(section("### Datasources")), code);
}

#[test]
fn every_network_stack_is_named() {
    for renderer in RENDERERS {
        assert!(README.contains(renderer.name), "{}", renderer.name);
    }
}
