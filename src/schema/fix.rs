//! What to write instead of something that a schema does not allow.

use super::Problem;
use super::grammar::{Alternative, Fields, Grammar, Shape, Takes};

/// The most keys that are listed where any of them may be meant.
const MAX_KEYS: usize = 12;
/// Longer keys are compared with no others.
const MAX_LENGTH: usize = 64;

/// A sentence that says what to do about a problem. Empty if nothing is known.
pub fn fix(grammar: &Grammar, problem: &Problem) -> String {
    let what = problem.reason.trim_start();
    if what == "there is no such key" {
        return other_key(grammar, &problem.key);
    }
    if let Some(key) = what.strip_prefix("the key ").and_then(|rest| rest.strip_suffix(" is missing")) {
        return format!("Add the key {key}.");
    }
    if let Some(expected) = what.strip_prefix("expected ") {
        let expected = expected.split(", found ").next().unwrap_or(expected);
        return format!("Write {expected}.");
    }
    // "Deprecated in version 22.3. Use **lock_passwd** instead."
    let advice = what.split_once(". ").filter(|(start, _)| start.contains(" in version ")).map(|(_, advice)| advice);
    advice.unwrap_or_default().replace("**", "")
}

/// The keys that a mapping could have instead.
fn other_key(grammar: &Grammar, path: &str) -> String {
    let (above, key) = path.rsplit_once('.').unwrap_or(("", path));
    let mut known: Vec<&str> = Vec::new();
    let mut at = vec![&grammar.top];
    for step in above.split('.').filter(|step| !step.is_empty()) {
        at = at.into_iter().flat_map(|fields| below(grammar, fields, step)).collect();
    }
    for fields in at {
        let groups = fields.groups.iter().filter(|group| matches!(group.takes, Takes::Node(_)));
        known.extend(groups.flat_map(|group| group.keys.iter().map(|(key, _)| *key)));
    }
    known.sort_unstable();
    known.dedup();
    let near = known.iter().map(|other| (distance(key, other), *other)).min();
    match near {
        Some((far, other)) if far <= (key.len() / 3).max(1) => format!("Write {other}."),
        _ if known.is_empty() => String::new(),
        _ if known.len() > MAX_KEYS => "Remove it.".into(),
        _ => format!("Remove it, or write one of {}.", known.join(", ")),
    }
}

/// The mappings below a key, or in a list with this index.
fn below<'a>(grammar: &'a Grammar, fields: &'a Fields, step: &str) -> Vec<&'a Fields> {
    let node = match fields.named(step) {
        Some(Takes::Node(node)) => node,
        Some(Takes::Same(old)) => match fields.named(old.advice) {
            Some(Takes::Node(node)) => node,
            _ => return Vec::new(),
        },
        // An index stands for its list, whose items were entered with it.
        None if step.bytes().all(|b| b.is_ascii_digit()) => return vec![fields],
        None => match &fields.rest {
            Some((_, node)) => node,
            None => return Vec::new(),
        },
    };
    let mut found = Vec::new();
    mappings(grammar, node, 8, &mut found);
    found
}

/// The mappings among alternatives, also those in lists.
fn mappings<'a>(grammar: &'a Grammar, node: &'a [Alternative], depth: usize, found: &mut Vec<&'a Fields>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    for alternative in node {
        match &alternative.shape {
            Shape::Map(fields) => {
                found.push(fields);
                for rule in &fields.rules {
                    if let ["also", part] = rule.as_slice() {
                        mappings(grammar, grammar.part(part), depth, found);
                    }
                }
            }
            Shape::List { item, .. } => mappings(grammar, item, depth, found),
            Shape::Part(name) => mappings(grammar, grammar.part(name), depth, found),
            _ => {}
        }
    }
}

/// How many bytes have to be added, removed or replaced; `-` and `_` are the same.
fn distance(a: &str, b: &str) -> usize {
    if a.len() > MAX_LENGTH || b.len() > MAX_LENGTH {
        return usize::MAX;
    }
    let same = |a: u8, b: u8| a == b || (matches!(a, b'-' | b'_') && matches!(b, b'-' | b'_'));
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let replaced = corner + usize::from(!same(x, y));
            corner = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use crate::document::yaml;
    use crate::schema::{cloud_config, cloud_config_fix};

    #[test]
    fn names_what_to_write_instead() {
        for (text, expected) in [
            ("{hostnam: x}", "Write hostname."),
            ("{users: [{name: a, sudoo: x}]}", "Write sudo."),
            ("{users: [{name: a, lock-password: x}]}", "Write lock_passwd."),
            ("{write_files: [{content: x}]}", "Add the key path."),
            ("{ntp: {pools: 3}}", "Write a list."),
            ("{swap: {much: 3}}", "Remove it, or write one of filename, maxsize, size."),
            ("{nosuchthing: 3}", "Remove it."),
            ("{users: [{name: a, lock-passwd: true}]}", "Use lock_passwd instead."),
        ] {
            let config = yaml::parse("t", text).unwrap();
            let found = cloud_config(config.as_map().unwrap());
            let problem = found.errors.iter().chain(&found.deprecations).next().unwrap();
            assert_eq!(cloud_config_fix(problem), expected, "{text}");
        }
    }
}
