//! SSH public keys in metadata.

use crate::document::Value;
use std::collections::HashSet;

/// The most SSH keys of one instance.
pub const MAX_KEYS: usize = 1_000;

/// SSH public keys in any form that metadata uses: one text, a list, or a mapping of names to keys. In
/// order, without duplicates, blank lines and comments.
pub fn public_keys(value: Option<&Value>) -> Vec<String> {
    let (mut keys, mut seen) = (Vec::new(), HashSet::new());
    let mut add = |text: &str| {
        for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
            if keys.len() < MAX_KEYS && seen.insert(line.to_owned()) {
                keys.push(line.to_owned());
            }
        }
    };
    match value {
        Some(Value::Map(map)) => {
            // The EC2 tree: {"0": {"openssh-key": "ssh-rsa …"}}.
            map.iter().for_each(|(_, value)| texts(value.get("openssh-key").unwrap_or(value), &mut add));
        }
        other => texts(other.unwrap_or(&Value::Null), &mut add),
    }
    keys
}

/// Calls `add` with a text, or with each text of a list.
fn texts(value: &Value, add: &mut dyn FnMut(&str)) {
    match value {
        Value::String(text) => add(text),
        Value::List(list) => list.iter().filter_map(Value::as_str).for_each(add),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    #[test]
    fn keys_of_every_shape() {
        for text in [
            r#""ssh-rsa A\nssh-rsa B\n""#,
            r#"["ssh-rsa A", "ssh-rsa B", "ssh-rsa A"]"#,
            r#"{"k": "ssh-rsa A", "l": ["ssh-rsa B"]}"#,
            r#"{"0": {"openssh-key": "ssh-rsa A"}, "1": {"openssh-key": "ssh-rsa B"}}"#,
            r#"{"0": {"openssh-key": ["ssh-rsa A", "ssh-rsa B"]}}"#,
        ] {
            assert_eq!(
                public_keys(Some(&json::parse("t", text.as_bytes()).unwrap())),
                ["ssh-rsa A", "ssh-rsa B"],
                "{text}"
            );
        }
    }
}
