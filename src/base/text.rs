//! Texts in messages: with a limit on their length, and in quotes.

use std::fmt;

/// The longest message, in bytes: some contain names that documents choose.
pub const MAX_MESSAGE: usize = 16 << 10;

/// The longest start of `text` of at most `most` bytes that ends with a whole character.
pub fn start(text: &str, most: usize) -> &str {
    let end = (0..=text.len().min(most)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

/// Cuts `text` to its [`start`] if it is longer than `most` bytes, and shows that it was cut.
pub fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        text.truncate(start(text, most).len());
        text.push('\u{2026}');
    }
}

/// Displays `text` in quotes, with what a terminal does not show escaped: as `{:?}` does, which prints nothing in the smallest
/// programs (initramfs/build).
pub fn quoted(text: &str) -> impl fmt::Display {
    Quoted(text)
}

struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_text_is_escaped() {
        assert_eq!(
            quoted("it's \"a\"\n\u{1b}\u{e9}").to_string(),
            r#""it's \"a\"\n\u{1b}\u{e9}""#.replace("\\u{e9}", "\u{e9}")
        );
    }

    #[test]
    fn a_character_stays_whole() {
        assert_eq!([0, 1, 2, 3, 9].map(|most| start("aéb", most)), ["", "a", "a", "aé", "aéb"]);
        for (most, result) in [(2, "a\u{2026}"), (4, "aéb")] {
            let mut text = "aéb".to_owned();
            cut(&mut text, most);
            assert_eq!(text, result);
        }
    }
}
