//! XML 1.0 as a tree of elements, for OVF's and Azure's documents.
//!
//! Names have no namespace prefix. Document types are refused, so that only predefined entities are expanded.

use super::MAX_DEPTH;
use crate::base::error::{Error, Result};
use quick_xml::Reader;
use quick_xml::escape::{resolve_predefined_entity, unescape};
use quick_xml::events::{BytesStart, Event};

/// The largest document, in bytes.
pub const MAX_SIZE: usize = 4 << 20;
/// The most elements and attributes of a document, and the most attributes of an element, each of which is compared with those
/// before it.
const MAX_NODES: usize = 20_000;
const MAX_ATTRIBUTES: usize = 1_000;

/// An element of a document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Element {
    /// The name without prefix.
    pub name: String,
    /// Names without prefix, and values, in the document's order, without namespace declarations.
    pub attributes: Vec<(String, String)>,
    /// The text directly inside, concatenated.
    pub text: String,
    pub children: Vec<Element>,
}

impl Element {
    /// The first child with this name.
    pub fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    /// The children with this name, in order.
    pub fn children_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// The element at a path of child names, taking the first child with each name.
    pub fn at(&self, path: &[&str]) -> Option<&Element> {
        path.iter().try_fold(self, |element, name| element.child(name))
    }

    /// The value of the attribute with this name.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// Parses a UTF-8 document and returns its root element; `document` is its name in errors.
///
/// # Errors
/// It is not well-formed, has a document type, or exceeds a limit. The error has the position but no content.
pub fn parse(document: &str, bytes: &[u8]) -> Result<Element> {
    if bytes.len() > MAX_SIZE {
        return Err(Error::new(format!("{document}: expected at most {MAX_SIZE} bytes, found {}", bytes.len())));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| Error::new(format!("{document}: expected XML in UTF-8")))?;
    let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}'));
    let mut tree = Tree::default();
    loop {
        let step = match reader.read_event() {
            Ok(Event::Eof) => break,
            Ok(event) => tree.take(event),
            Err(_) => Err("a tag, comment or declaration is not well-formed"),
        };
        step.map_err(|what| {
            Error::new(format!("{document}: not valid XML before byte {}: {what}", reader.buffer_position()))
        })?;
    }
    match (tree.open.is_empty(), tree.root) {
        (true, Some(root)) => Ok(root),
        (false, _) => Err(Error::new(format!("{document}: not valid XML: it ends inside an element"))),
        (true, None) => Err(Error::new(format!("{document}: not valid XML: it has no element"))),
    }
}

/// The elements parsed so far.
#[derive(Default)]
struct Tree {
    /// The elements that are not closed yet, outermost first.
    open: Vec<Element>,
    root: Option<Element>,
    nodes: usize,
}

type Step = std::result::Result<(), &'static str>;

impl Tree {
    fn take(&mut self, event: Event) -> Step {
        const UTF_8: &str = "expected UTF-8";
        match event {
            Event::Start(tag) => self.begin(&tag),
            Event::Empty(tag) => self.begin(&tag).and_then(|()| self.end()),
            Event::End(_) => self.end(),
            Event::Text(text) => self.text(&text.xml_content().map_err(|_| UTF_8)?),
            Event::CData(text) => self.text(&text.xml_content().map_err(|_| UTF_8)?),
            Event::GeneralRef(name) => match name.resolve_char_ref() {
                Ok(Some(c)) => self.text(c.encode_utf8(&mut [0; 4])),
                Ok(None) => {
                    let name = name.decode().map_err(|_| UTF_8)?;
                    self.text(resolve_predefined_entity(&name).ok_or("an entity that is not predefined")?)
                }
                Err(_) => Err("a character reference is not valid"),
            },
            Event::DocType(_) => Err("a document type is not accepted"),
            Event::Decl(declaration) => match declaration.encoding() {
                Some(Ok(name)) if !["utf-8", "us-ascii"].iter().any(|n| name.eq_ignore_ascii_case(n.as_bytes())) => {
                    Err("the encoding must be UTF-8")
                }
                _ => Ok(()),
            },
            Event::Comment(_) | Event::PI(_) | Event::Eof => Ok(()),
        }
    }

    fn count(&mut self) -> Step {
        self.nodes += 1;
        if self.nodes > MAX_NODES { Err("there are too many elements and attributes") } else { Ok(()) }
    }

    fn begin(&mut self, tag: &BytesStart) -> Step {
        if self.open.is_empty() && self.root.is_some() {
            return Err("there is a second root element");
        }
        if self.open.len() >= MAX_DEPTH {
            return Err("elements are nested too deeply");
        }
        self.count()?;
        let mut element = Element { name: text_of(tag.local_name().into_inner()), ..Element::default() };
        for (i, attribute) in tag.attributes().enumerate() {
            if i >= MAX_ATTRIBUTES {
                return Err("an element has too many attributes");
            }
            let attribute = attribute.map_err(|_| "an attribute is not well-formed or there twice")?;
            self.count()?;
            if attribute.key.as_namespace_binding().is_none() {
                let value = text_of(&attribute.value);
                let value = unescape(&value).map_err(|_| "an attribute has an entity that is not predefined")?;
                element.attributes.push((text_of(attribute.key.local_name().into_inner()), value.into_owned()));
            }
        }
        self.open.push(element);
        Ok(())
    }

    fn end(&mut self) -> Step {
        let element = self.open.pop().ok_or("an element ends that has not begun")?;
        match self.open.last_mut() {
            Some(parent) => parent.children.push(element),
            None => self.root = Some(element),
        }
        Ok(())
    }

    fn text(&mut self, text: &str) -> Step {
        match self.open.last_mut() {
            Some(element) => element.text.push_str(text),
            None if text.trim().is_empty() => {}
            None => return Err("there is text outside of the root element"),
        }
        Ok(())
    }
}

/// `bytes` are known to be UTF-8.
fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENVIRONMENT: &str = "\u{feff}<?xml version=\"1.0\" encoding=\"UTF-8\"?>\r\n<!-- c --><Environment xmlns=\"http://d/1\" \
        xmlns:oe='http://d/1' oe:id=\"&quot;a&amp;b&#x41;\">\n <oe:Section><Property oe:key=\"k\" oe:value='1 &lt; 2'/>\
        <Property oe:key=\"l\"/></oe:Section><T>a &gt; b<![CDATA[<c>&amp;]]>&#233;</T></Environment>\n";

    #[test]
    fn a_tree_without_namespaces() {
        let root = parse("t", ENVIRONMENT.as_bytes()).unwrap();
        assert_eq!((root.name.as_str(), root.attribute("id")), ("Environment", Some("\"a&bA")));
        assert_eq!(root.attributes.len(), 1);
        let section = root.child("Section").unwrap();
        let keys: Vec<_> = section.children_named("Property").filter_map(|p| p.attribute("key")).collect();
        assert_eq!(keys, ["k", "l"]);
        assert_eq!(root.at(&["Section", "Property"]).unwrap().attribute("value"), Some("1 < 2"));
        assert_eq!(root.at(&["T"]).unwrap().text, "a > b<c>&amp;é");
        assert_eq!(root.at(&["T", "U"]), None);
    }

    #[test]
    fn refuses_malformed_and_oversized_documents() {
        let deep = |n: usize| "<a>".repeat(n) + &"</a>".repeat(n);
        assert!(parse("t", deep(MAX_DEPTH).as_bytes()).is_ok());
        let many = format!("<a>{}</a>", "<b/>".repeat(MAX_NODES));
        let wide = format!("<a {}/>", (0..=MAX_ATTRIBUTES).map(|i| format!("a{i}='' ")).collect::<String>());
        let laughs = "<!DOCTYPE l [<!ENTITY a \"ha\"><!ENTITY b \"&a;&a;\">]><l>&b;</l>";
        for (text, why) in [
            ("", "it has no element"),
            ("text", "outside of the root"),
            ("<a>", "ends inside"),
            ("<a></b>", "not well-formed"),
            ("</a>", "not well-formed"),
            ("<a b=1/>", "attribute"),
            ("<a b='1' b='2'/>", "attribute"),
            ("<a/><b/>", "second root"),
            ("<a>&secret;</a>", "not predefined"),
            ("<a b='&secret;'/>", "not predefined"),
            ("<a>&#xD800;</a>", "character reference"),
            ("<?xml version='1.0' encoding='UTF-16'?><a/>", "must be UTF-8"),
            (laughs, "document type"),
            (&deep(MAX_DEPTH + 1), "too deeply"),
            (&deep(200_000), "too deeply"),
            (&many, "too many"),
            (&wide, "too many attributes"),
        ] {
            let error = parse("ovf-env.xml", text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("ovf-env.xml: ") && error.contains(why) && !error.contains("secret"), "{error}");
        }
        assert!(parse("t", b"<a>\xff</a>").is_err());
        assert!(parse("t", &vec![b' '; MAX_SIZE + 1]).is_err());
        let mut good = 0;
        crate::base::testing::mutations(ENVIRONMENT.as_bytes(), 3000, |bytes| match parse("t", bytes) {
            Ok(_) => good += 1,
            Err(e) => assert!(e.to_string().starts_with("t: "), "{e}"),
        });
        assert!(good > 100, "some damage is in values: {good}");
    }
}
