//! SSH public keys as metadata gives them.

use crate::document::Value;

/// How many SSH keys one instance may bring.
const MAX_KEYS: usize = 1_000;

/// SSH public keys in any of the shapes that metadata gives them: one text, a list, or a mapping of names to keys.
/// In order, without repeats, blank lines and comments.
pub fn public_keys(value: Option<&Value>) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    let mut add = |text: &str| {
        for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
            if keys.len() < MAX_KEYS && !keys.iter().any(|k| k == line) {
                keys.push(line.to_owned());
            }
        }
    };
    match value {
        Some(Value::String(text)) => add(text),
        Some(Value::List(list)) => list.iter().filter_map(Value::as_str).for_each(add),
        Some(Value::Map(map)) => {
            for (_, value) in map.iter() {
                match value {
                    Value::String(text) => add(text),
                    Value::List(list) => list.iter().filter_map(Value::as_str).for_each(&mut add),
                    // The EC2 tree: {"openssh-key": "ssh-rsa …"}.
                    Value::Map(map) => map.iter().filter_map(|(_, v)| v.as_str()).for_each(&mut add),
                    _ => {}
                }
            }
        }
        _ => {}
    }
    keys
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
        ] {
            assert_eq!(
                public_keys(Some(&json::parse("t", text.as_bytes()).unwrap())),
                ["ssh-rsa A", "ssh-rsa B"],
                "{text}"
            );
        }
    }
}
