//! Wildcards in names.

use glob::Pattern;

/// Whether `name` matches `pattern` as in fnmatch(3): `*` matches any text, `?` any character, `[a-z]` one of
/// a set and `[!a-z]` one outside of it. A pattern with an unterminated set matches nothing.
pub fn matches(pattern: &str, name: &str) -> bool {
    let mut text = String::with_capacity(pattern.len());
    for c in pattern.chars() {
        // In the crate, `**` has another meaning: it matches folders.
        if c != '*' || !text.ends_with('*') {
            text.push(c);
        }
    }
    Pattern::new(&text).is_ok_and(|pattern| pattern.matches(name))
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_question_marks_and_sets() {
        assert!(matches("*.conf", "10-a.conf") && matches("e*0?", "e1000e") && matches("", "") && matches("a**", "a"));
        assert!(!matches("*.conf", "10-a.txt") && !matches("e?", "e") && !matches("a", "ab") && !matches("", "a"));
        assert!(matches("a?c*", "abcd") && matches("*a*b", "xaxb") && !matches("*.conf", "a.config"));
        assert!(!matches(&"*a".repeat(40), &"a".repeat(39)));
        assert!(matches("en[op]*", "enp3s0") && !matches("en[op]*", "ens3") && matches("eth[!0]", "eth1"));
        assert!(!matches("[", "[") && matches(".", ".") && matches("*.zstack.io", "a.zstack.io"));
        assert!(matches("CloudStack*", "CloudStack KVM Hypervisor") && !matches("CloudStack*", "My CloudStack"));
        assert!(matches("*", ".hidden") && matches("a*c", "a/b/c"));
    }
}
