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
    // The EC2 tree: {"0": {"openssh-key": "ssh-rsa …"}}.
    each(value.unwrap_or(&Value::Null), 2, &mut add);
    keys
}

/// Gives `add` the texts of a value, of its items, and of the mappings in it down to `depth`.
fn each(value: &Value, depth: usize, add: &mut dyn FnMut(&str)) {
    match value {
        Value::String(text) => add(text),
        Value::List(list) => list.iter().filter_map(Value::as_str).for_each(add),
        Value::Map(map) if depth > 0 => map.iter().for_each(|(_, inner)| each(inner, depth - 1, add)),
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
