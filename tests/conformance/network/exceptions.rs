//! Where the files differ on purpose from those that cloud-init 26.2 wrote, case by case and line by line.

use crate::cases::Outcome;

const TABLE: &str = include_str!("exceptions.txt");

/// The lines in which the case `name` differs on purpose.
fn expected(name: &str) -> Vec<&'static str> {
    let mut case = "";
    let mut lines = Vec::new();
    for line in TABLE.lines() {
        match (line.strip_prefix("    "), line.strip_prefix("  ")) {
            (Some(difference), _) if case == name => lines.push(difference),
            (None, Some(next)) => case = next,
            _ => {}
        }
    }
    lines
}

/// The cases that the table names.
pub fn cases() -> impl Iterator<Item = &'static str> {
    let indented = |line: &&str| line.starts_with("  ") && !line.starts_with("    ");
    TABLE.lines().filter(indented).map(|line| &line[2..])
}

/// Compares what differs in the case `name` with the table: it must be exactly what is listed there.
pub fn compare(name: &str, found: &[String]) -> Outcome {
    let mut missing = expected(name);
    let mut wrong = Vec::new();
    for line in found {
        match missing.iter().position(|m| m == line) {
            Some(at) => drop(missing.remove(at)),
            None => wrong.push(line.clone()),
        }
    }
    wrong.extend(missing.iter().map(|line| format!("listed as an exception, but not there: {line}")));
    Outcome::of(wrong)
}
