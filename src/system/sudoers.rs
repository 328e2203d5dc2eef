//! Rules for users in sudoers(5) and doas.conf(5).

use super::sudoers_grammar;
use crate::base::budget;
use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::base::text::quoted;
use crate::document::Value;
use crate::root::{Attr, Root};

const SUDOERS: &str = "/etc/sudoers";
/// The vendor's sudoers, used if the administrator has none.
const VENDOR_SUDOERS: &str = "/usr/etc/sudoers";
const SUDOERS_DIR: &str = "/etc/sudoers.d";
/// cloud-init's file of rules; other tools look for it by this name.
const RULES: &str = "/etc/sudoers.d/90-cloud-init-users";
const DOAS: &str = "/etc/doas.conf";
const MODE: u32 = 0o440;
/// How many bytes of a file are searched and copied in one step, for each user.
const COPIED: usize = 32;

/// Adds one or several sudoers(5) rules for `user`, given without the user's name. One that sudo would refuse is left out alone.
///
/// # Errors
/// A rule holds the end of a line, or a file cannot be written.
pub fn add_sudo(root: &mut Root, user: &str, rules: &Value, report: &Problems) -> Result<()> {
    let mut rules = texts(rules).ok_or_else(|| crate::document::wrong("sudo", "a rule or a list of rules", rules))?;
    if user == "ALL" {
        return Err(Error::new("sudo: a rule for the user ALL would be one for every user"));
    }
    check(&rules, "sudo")?;
    rules.retain(|rule| {
        let fits = sudoers_grammar::is_rule(rule);
        if !fits {
            let rule = quoted(rule);
            report.error(format_args!("sudo: {rule} of the user {user} is no rule of sudoers(5): it is left out"));
        }
        fits
    });
    if rules.is_empty() {
        return Ok(());
    }
    let mut text = format!("\n# User rules for {user}\n");
    rules.iter().for_each(|rule| text += &format!("{user} {rule}\n"));
    include_folder(root)?;
    add(root, RULES, &text)
}

/// Adds doas.conf(5) rules for `user`. If one is for another user, none is written.
///
/// # Errors
/// The rules are not strings, or the file cannot be written.
pub fn add_doas(root: &mut Root, user: &str, rules: &Value, report: &Problems) -> Result<()> {
    let rules = texts(rules).ok_or_else(|| crate::document::wrong("doas", "a rule or a list of rules", rules))?;
    check(&rules, "doas")?;
    if let Some(rule) = rules.iter().find(|rule| !is_doas_rule(user, rule)) {
        let rule = quoted(rule);
        report.error(format_args!("doas: {rule} is no rule for the user {user}: no doas rule of this user is written"));
        return Ok(());
    }
    let mut text = format!("\n# cloud-init User rules for {user}\n");
    rules.iter().for_each(|rule| text += &format!("{rule}\n"));
    add(root, DOAS, &text)
}

/// The rules, without the line end that a block scalar leaves behind each.
fn texts(value: &Value) -> Option<Vec<String>> {
    let rule = |value: &Value| value.as_str().map(|rule| rule.trim_end().to_owned());
    let rules: Option<Vec<String>> = match value {
        Value::List(list) => list.iter().filter(|v| !v.is_null()).map(rule).collect(),
        one => rule(one).map(|rule| vec![rule]),
    };
    Some(rules?.into_iter().filter(|rule| !rule.is_empty()).collect())
}

fn check(rules: &[String], key: &str) -> Result<()> {
    if rules.iter().any(|rule| rule.chars().any(|c| c.is_control() && c != '\t')) {
        return Err(Error::new(format!(
            "{key}: a rule holds the end of a line or another control character: several rules are the entries of a list"
        )));
    }
    Ok(())
}

fn add(root: &mut Root, path: &str, text: &str) -> Result<()> {
    if !root.exists(path) {
        return root.write(path, format!("# Created by prepivot\n{text}"), Attr::root(MODE));
    }
    root.edit(path, Attr::root(MODE), |old| {
        budget::step(old.len() / COPIED)?;
        let has = String::from_utf8_lossy(old).contains(text);
        Ok((!has).then(|| after(old, text)))
    })
    .map(drop)
}

/// `old` followed by `text` on its own lines.
fn after(old: &[u8], text: &str) -> Vec<u8> {
    let gap: &[u8] = if old.is_empty() || old.ends_with(b"\n") { b"" } else { b"\n" };
    [old, gap, text.as_bytes()].concat()
}

/// Makes sure that the folder of rules exists and that sudoers includes it.
fn include_folder(root: &mut Root) -> Result<()> {
    let here = root.exists(SUDOERS);
    // Without sudo the file does not exist; the folder is created all the same.
    let old = root.read_small(if here { SUDOERS } else { VENDOR_SUDOERS })?.unwrap_or_default();
    let old = String::from_utf8_lossy(&old);
    let included = old.lines().any(|line| {
        let line = line.trim();
        let folder = line.strip_prefix(['#', '@', '|']).and_then(|l| l.strip_prefix("includedir"));
        folder.is_some_and(|f| {
            f.starts_with([' ', '\t']) && f.trim().trim_matches('"').trim_end_matches('/') == SUDOERS_DIR
        })
    });
    if !included {
        let line = format!("\n# Added by prepivot\n#includedir {SUDOERS_DIR}\n");
        if here {
            root.edit(SUDOERS, Attr::root(MODE), |old| Ok(Some(after(old, &line))))?;
        } else {
            let head = "# See sudoers(5) for more information on \"#include\" directives:\n";
            root.write(SUDOERS, format!("{old}{head}{line}"), Attr::root(MODE))?;
        }
    }
    root.mkdir(SUDOERS_DIR, Attr::root(0o750))
}

/// Whether a line is a rule of doas.conf(5) for `user`: `permit|deny [options] user [as target] [cmd command [args …]]`.
fn is_doas_rule(user: &str, rule: &str) -> bool {
    let mut words = rule.split_whitespace().peekable();
    if !matches!(words.next(), Some("permit" | "deny")) {
        return false;
    }
    while let Some(word) = words.peek() {
        match *word {
            "nolog" | "nopass" | "persist" | "keepenv" => drop(words.next()),
            "setenv" => {
                words.next();
                let open = words.next().unwrap_or_default();
                if !open.starts_with('{') || !(open.ends_with('}') || words.any(|w| w.ends_with('}'))) {
                    return false;
                }
            }
            _ => break,
        }
    }
    if words.next() != Some(user) {
        return false;
    }
    let mut next = words.next();
    if next == Some("as") {
        if words.next().is_none() {
            return false;
        }
        next = words.next();
    }
    match next {
        None => true,
        Some("cmd") => words.next().is_some() && words.next().is_none_or(|w| w == "args"),
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::Use;

    #[test]
    fn rules_are_added_once_and_other_lines_stay() {
        let dir = TempDir::new("sudoers");
        dir.write("etc/sudoers", "root ALL=(ALL) ALL\n@includedir /etc/sudoers.d");
        let mut root = dir.root(Use::Tree);
        let report = Problems::new();
        let add_sudo = |root: &mut Root, user: &str, rules: &Value| add_sudo(root, user, rules, &report);
        for _ in 0..2 {
            add_sudo(&mut root, "u", &"ALL=(ALL) ALL".into()).unwrap();
            add_sudo(&mut root, "v", &Value::List(vec!["ALL=A".into(), "ALL=B".into()])).unwrap();
        }
        assert_eq!(
            root.text(RULES),
            "# Created by prepivot\n\n# User rules for u\nu ALL=(ALL) ALL\n\n# User rules for v\nv ALL=A\nv ALL=B\n"
        );
        assert_eq!(root.text(SUDOERS), "root ALL=(ALL) ALL\n@includedir /etc/sudoers.d");
        assert!(add_sudo(&mut root, "u", &"ALL\nevil ALL=(ALL) ALL".into()).is_err());
        assert!(add_sudo(&mut root, "ALL", &"ALL=(ALL) ALL".into()).is_err());
        assert!(add_sudo(&mut root, "u", &true.into()).is_err());
        add_sudo(&mut root, "w", &Value::List(vec![Value::Null, "ALL=A".into()])).unwrap();
        assert!(root.text(RULES).ends_with("# User rules for w\nw ALL=A\n"));
        assert!(!root.text(RULES).contains("evil"));
    }

    #[test]
    fn leaves_out_a_wrong_rule_alone() {
        let dir = TempDir::new("sudoers-wrong");
        let mut root = dir.root(Use::Tree);
        let report = Problems::new();
        let rules =
            Value::List(vec!["ALL=(ALL) NOPASSWD ALL".into(), "ALL=(ALL) ALL".into(), "u ALL=(ALL) ALL".into()]);
        add_sudo(&mut root, "u", &rules, &report).unwrap();
        assert!(root.text(RULES).ends_with("\n# User rules for u\nu ALL=(ALL) ALL\n"), "{}", root.text(RULES));
        assert_eq!(report.errors().len(), 2);
        add_sudo(&mut root, "v", &"yes".into(), &report).unwrap();
        assert!(!root.text(RULES).contains("rules for v"));
    }

    #[test]
    fn a_rule_may_end_with_a_line_end() {
        let dir = TempDir::new("sudoers-line-end");
        let mut root = dir.root(Use::Tree);
        let report = Problems::new();
        add_sudo(&mut root, "u", &"ALL=(ALL) ALL\n".into(), &report).unwrap();
        let rules = Value::List(vec!["ALL=A \r\n".into(), "\n".into(), "ALL=B\t\n\n".into()]);
        add_sudo(&mut root, "v", &rules, &report).unwrap();
        add_doas(&mut root, "u", &"permit nopass u\n".into(), &report).unwrap();
        assert!(
            root.text(RULES)
                .ends_with("\n# User rules for u\nu ALL=(ALL) ALL\n\n# User rules for v\nv ALL=A\nv ALL=B\n")
        );
        assert!(root.text(DOAS).ends_with("\npermit nopass u\n"));
        assert!(report.errors().is_empty());
        for rules in ["A\nB\n", "A\n\nroot2 ALL=(ALL) ALL", "A\0"] {
            let error = add_sudo(&mut root, "w", &rules.into(), &report).unwrap_err().to_string();
            assert!(error.ends_with("several rules are the entries of a list"), "{error}");
            assert!(add_doas(&mut root, "w", &rules.into(), &report).is_err());
        }
        assert!(!root.text(RULES).contains("# User rules for w"));
    }

    #[test]
    fn doas_rules() {
        for good in [
            "permit nopass u",
            "deny u",
            "permit persist keepenv u as root",
            "permit setenv { A=b C } u as root cmd /bin/ls args -l /root",
            "permit setenv {A=b} nopass u",
            "permit u cmd reboot",
        ] {
            assert!(is_doas_rule("u", good), "{good}");
        }
        for bad in [
            "permit nopass other",
            "allow u",
            "permit",
            "permit u as",
            "permit u cmd",
            "permit setenv { A u",
            "permit setenv A} u",
            "permit u x",
        ] {
            assert!(!is_doas_rule("u", bad), "{bad}");
        }
    }
}
