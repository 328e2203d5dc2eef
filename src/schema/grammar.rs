//! Parses the schema notation into a tree. Schemas are part of the program: an error in one is found by a
//! test.

use std::iter::from_fn;

/// A parsed schema.
pub struct Grammar {
    parts: Vec<(&'static str, Node)>,
    /// The top-level keys of the document.
    pub top: Fields,
}

/// The allowed values: one of these alternatives.
pub type Node = Vec<Alternative>;

/// One of several kinds of values.
pub struct Alternative {
    pub shape: Shape,
    pub old: Option<Old>,
}

/// A deprecation.
#[derive(Clone, Copy)]
pub struct Old {
    /// `~22.3` or `^22.3`.
    pub version: &'static str,
    /// The name to use instead, or quoted advice.
    pub advice: &'static str,
}

/// The type of a value.
pub enum Shape {
    Any,
    Null,
    Bool,
    Int(Range),
    /// An integer or a float.
    Number(Range),
    /// With the name of a check.
    Text(&'static str),
    Words(Vec<&'static str>),
    List {
        item: Node,
        count: Range,
        unique: bool,
    },
    Map(Fields),
    Part(&'static str),
}

/// A range; a missing bound is unlimited.
#[derive(Clone, Copy, Default)]
pub struct Range {
    pub min: Option<i64>,
    pub max: Option<i64>,
}

/// The keys of a mapping.
#[derive(Default)]
pub struct Fields {
    pub groups: Vec<Group>,
    /// The check for every other key, and the values of those; None: other keys are not allowed.
    pub rest: Option<(&'static str, Node)>,
    pub rules: Vec<Vec<&'static str>>,
    pub not_empty: bool,
}

/// Keys with the same kind of value.
pub struct Group {
    /// Names, and whether each is required.
    pub keys: Vec<(&'static str, bool)>,
    pub takes: Takes,
}

/// The values of a key.
pub enum Takes {
    Node(Node),
    /// The same as another key of the mapping, whose old name it is.
    Same(Old),
}

impl Fields {
    /// The values of a named key.
    pub fn named(&self, key: &str) -> Option<&Takes> {
        self.groups.iter().find(|g| g.keys.iter().any(|(name, _)| *name == key)).map(|g| &g.takes)
    }
}

impl Grammar {
    /// Parses a schema.
    pub fn new(table: &'static str) -> Grammar {
        let mut tokens = Tokens::of(table);
        let (mut parts, mut top) = (Vec::new(), Fields::default());
        while !tokens.peek().is_empty() {
            if tokens.peek().starts_with('$') {
                let name = tokens.next();
                tokens.accept("=");
                parts.push((name, tokens.node()));
            } else {
                tokens.field(&mut top);
            }
        }
        Grammar { parts, top }
    }

    /// All parts with their names, each of which begins with `$`.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, &[Alternative])> {
        self.parts.iter().map(|(name, node)| (*name, node.as_slice()))
    }

    /// A named part; the name includes the `$`.
    pub fn part(&self, name: &str) -> &[Alternative] {
        self.parts.iter().find(|(n, _)| *n == name).map_or(&[], |(_, node)| node)
    }
}

/// A tokenizer. After the end, every token is empty.
struct Tokens {
    /// The next token, which is peeked at more often than taken.
    token: &'static str,
    rest: &'static str,
}

impl Tokens {
    fn of(table: &'static str) -> Tokens {
        let mut tokens = Tokens { token: "", rest: table };
        tokens.next();
        tokens
    }

    /// White space and comments.
    fn skip(&mut self) {
        let bytes = self.rest.as_bytes();
        let run = |from: usize, is: fn(u8) -> bool| bytes.iter().skip(from).take_while(|b| is(**b)).count();
        let mut at = 0;
        loop {
            at += run(at, |b| b.is_ascii_whitespace());
            if bytes.get(at) != Some(&b'#') {
                break;
            }
            at += run(at, |b| b != b'\n');
        }
        self.rest = self.rest.get(at..).unwrap_or_default();
    }

    /// The length of the next token: a word, a quoted text, or a sign.
    fn width(&self) -> usize {
        let is_sign = |b: u8| matches!(b, b'{' | b'}' | b'[' | b']' | b'(' | b')' | b'|' | b':' | b',' | b'!');
        let mut bytes = self.rest.bytes();
        match bytes.next() {
            Some(b'"') => bytes.position(|b| b == b'"').map_or(self.rest.len(), |end| end + 2),
            Some(first) if is_sign(first) => 1,
            _ => bytes.position(|b| is_sign(b) || b.is_ascii_whitespace()).map_or(self.rest.len(), |end| end + 1),
        }
    }

    fn peek(&self) -> &'static str {
        self.token
    }

    fn next(&mut self) -> &'static str {
        self.skip();
        let (token, rest) = self.rest.split_at_checked(self.width()).unwrap_or_default();
        self.rest = rest;
        std::mem::replace(&mut self.token, token)
    }

    fn accept(&mut self, token: &str) -> bool {
        let found = self.peek() == token;
        if found {
            self.next();
        }
        found
    }

    /// Whether another item comes before the closing sign.
    fn goes_on(&mut self, end: &str) -> bool {
        !self.accept(end) && !self.peek().is_empty()
    }

    /// Words up to `)`.
    fn words(&mut self) -> Vec<&'static str> {
        from_fn(|| self.goes_on(")").then(|| self.next())).collect()
    }

    fn node(&mut self) -> Node {
        let mut node = vec![self.alternative()];
        while self.accept("|") {
            node.push(self.alternative());
        }
        node
    }

    fn alternative(&mut self) -> Alternative {
        let mut shape = self.shape();
        if let Shape::List { count, unique, .. } = &mut shape {
            if self.accept("+") {
                count.min = Some(1);
            } else if self.peek().starts_with(|c: char| c.is_ascii_digit()) {
                *count = range(self.next());
            }
            *unique = self.accept("unique");
        } else if let Shape::Map(fields) = &mut shape {
            fields.not_empty = self.accept("+");
        }
        Alternative { shape, old: self.old() }
    }

    fn old(&mut self) -> Option<Old> {
        let is_old = self.peek().starts_with(['~', '^']);
        is_old.then(|| Old { version: self.next(), advice: self.next() })
    }

    fn shape(&mut self) -> Shape {
        match self.next() {
            "null" => Shape::Null,
            "bool" => Shape::Bool,
            "int" => Shape::Int(self.bounds()),
            "num" => Shape::Number(self.bounds()),
            "list" => Shape::List { item: any(), count: Range::default(), unique: false },
            "map" => Shape::Map(Fields { rest: Some(("", any())), ..Fields::default() }),
            "(" => Shape::Words(self.words()),
            "[" => {
                let item = self.node();
                self.accept("]");
                Shape::List { item, count: Range::default(), unique: false }
            }
            "{" => {
                let mut fields = Fields::default();
                while self.goes_on("}") {
                    self.field(&mut fields);
                }
                Shape::Map(fields)
            }
            part if part.starts_with('$') => Shape::Part(part),
            "any" => Shape::Any,
            "str" => Shape::Text(""),
            // An unknown word matches no value.
            word => word.strip_prefix("str/").map_or(Shape::Words(Vec::new()), Shape::Text),
        }
    }

    fn bounds(&mut self) -> Range {
        if !self.accept("(") {
            return Range::default();
        }
        let found = range(self.next());
        self.accept(")");
        found
    }

    /// A line of a mapping.
    fn field(&mut self, fields: &mut Fields) {
        let mut keys = Vec::new();
        loop {
            let key = self.next();
            if key == "(" {
                return fields.rules.push(self.words());
            }
            keys.push((key, self.accept("!")));
            if !self.accept(",") {
                break;
            }
        }
        let Some(old) = self.old() else {
            let node = if self.accept(":") { self.node() } else { any() };
            match keys.first() {
                Some(("...", _)) => fields.rest = Some(("", node)),
                Some((key, _)) if key.starts_with('*') => {
                    fields.rest = Some((key.strip_prefix("*/").unwrap_or("line"), node));
                }
                _ => fields.groups.push(Group { keys, takes: Takes::Node(node) }),
            }
            return;
        };
        fields.groups.push(Group { keys, takes: Takes::Same(old) });
    }
}

fn any() -> Node {
    vec![Alternative { shape: Shape::Any, old: None }]
}

/// `0..255`, `0..`
fn range(text: &str) -> Range {
    let (min, max) = text.split_once("..").unwrap_or_default();
    Range { min: min.parse().ok(), max: max.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::super::{text, texts};
    use super::*;

    fn check_node(grammar: &Grammar, node: &[Alternative]) -> usize {
        assert!(!node.is_empty());
        let mut shapes = 0;
        for Alternative { shape, old } in node {
            shapes += 1;
            assert!(old.is_none_or(|o| !o.advice.is_empty() && o.version.len() > 3));
            match shape {
                Shape::Words(words) => assert!(!words.is_empty()),
                Shape::List { item, .. } => shapes += check_node(grammar, item),
                Shape::Map(fields) => shapes += check_fields(grammar, fields),
                Shape::Part(name) => assert!(!grammar.part(name).is_empty(), "{name}"),
                Shape::Text(check) => assert!(check.is_empty() || text::check(check, "").0 != "a string", "{check}"),
                _ => {}
            }
        }
        shapes
    }

    fn check_fields(grammar: &Grammar, fields: &Fields) -> usize {
        let mut shapes = 0;
        let mut names = Vec::new();
        for group in &fields.groups {
            names.extend(group.keys.iter().map(|k| k.0));
            match &group.takes {
                Takes::Node(node) => shapes += check_node(grammar, node),
                Takes::Same(old) => {
                    assert!(matches!(fields.named(old.advice), Some(Takes::Node(_))), "{}", old.advice);
                    assert!(old.version.starts_with('~'));
                }
            }
        }
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all, "twice: {names:?}");
        assert!(names.iter().all(|n| n.chars().all(|c| c.is_ascii_alphanumeric() || "_-/".contains(c))), "{names:?}");
        if let Some((check, node)) = &fields.rest {
            assert!(check.is_empty() || text::check(check, "").0 != "a string", "{check}");
            shapes += check_node(grammar, node);
        }
        for rule in &fields.rules {
            match rule.as_slice() {
                ["single"] => {}
                ["also", part] => assert!(matches!(grammar.part(part), [Alternative { shape: Shape::Map(_), .. }])),
                ["one" | "some", keys @ ..] => assert!(keys.len() > 1 && keys.iter().all(|k| names.contains(k))),
                other => panic!("{other:?}"),
            }
        }
        shapes
    }

    #[test]
    fn every_word_of_the_tables_means_something() {
        for (table, least) in [(texts::cloud_config(), 400), (texts::network(), 90)] {
            let grammar = Grammar::new(table);
            let mut shapes = check_fields(&grammar, &grammar.top);
            for (name, node) in &grammar.parts {
                assert!(table.matches(name).count() > 1 || ["$v1", "$v2"].contains(name), "{name}");
                shapes += check_node(&grammar, node);
            }
            assert!(shapes > least, "{shapes}");
        }
    }

    #[test]
    fn a_broken_table_is_read_to_its_end() {
        for table in [
            "a",
            "a:",
            "a: {",
            "a: [",
            "a: (",
            "a: (b",
            "$x",
            "$x =",
            "a: \"",
            "a ~1",
            "a: int(",
            ",",
            "}",
            "|",
            "a: str ~2 \"x",
        ] {
            Grammar::new(table);
        }
    }
}
