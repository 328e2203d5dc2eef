//! The kernel command line.

/// The kernel command line, split into words (Linux's admin-guide, kernel-parameters: separated by spaces,
/// which double quotes protect).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cmdline {
    text: String,
    words: Vec<String>,
}

impl Cmdline {
    /// Splits the text of /proc/cmdline.
    pub fn new(text: &str) -> Cmdline {
        let mut words = vec![String::new()];
        let mut quoted = false;
        for c in text.trim().chars() {
            match c {
                '"' => quoted = !quoted,
                c if c.is_whitespace() && !quoted => words.push(String::new()),
                c => words.last_mut().into_iter().for_each(|w| w.push(c)),
            }
        }
        words.retain(|w| !w.is_empty());
        Cmdline { text: text.trim().to_owned(), words }
    }

    /// The text as a whole.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// All words.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(String::as_str)
    }

    /// Whether it contains `word`.
    pub fn has(&self, word: &str) -> bool {
        self.words().any(|w| w == word)
    }

    /// The value of the last `key=value`.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.words().filter_map(|w| w.strip_prefix(key)?.strip_prefix('=')).last()
    }

    /// The values of all `key=value`, in order.
    pub fn values<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.words().filter_map(move |w| w.strip_prefix(key)?.strip_prefix('='))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_values() {
        let line = Cmdline::new("a=1 a=2 flag dyndbg=\"file x +p\" ds=nocloud;s=http://h/?a=b\n");
        assert_eq!(line.value("a"), Some("2"));
        assert_eq!(line.values("a").collect::<Vec<_>>(), ["1", "2"]);
        assert!(line.has("flag") && !line.has("fla"));
        assert_eq!(line.value("dyndbg"), Some("file x +p"));
        assert_eq!(line.value("ds"), Some("nocloud;s=http://h/?a=b"));
    }
}
