//! Wildcards in names.

/// Whether `name` fits `pattern`, in which `*` stands for any text and `?` for one byte. Takes time that grows with the product
/// of both lengths at most.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n, mut star) = (0, 0, None);
    while let Some(byte) = name.get(n) {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == b'?' || c == byte => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    p = at + 1;
                    n = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(p).all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_and_question_marks() {
        assert!(matches("*.conf", "10-a.conf") && matches("e*0?", "e1000e") && matches("", "") && matches("a**", "a"));
        assert!(!matches("*.conf", "10-a.txt") && !matches("e?", "e") && !matches("a", "ab") && !matches("", "a"));
        assert!(matches("a?c*", "abcd") && matches("*a*b", "xaxb") && !matches("*.conf", "a.config"));
        assert!(!matches(&"*a".repeat(40), &"a".repeat(39)));
    }
}
