//! How an input format describes itself.

use crate::base::budget;
use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::document::{Size, Value, json, yaml};
use crate::machine::nic::{MAX_DEVICE_NAME, is_name};
use crate::network::mac::Macs;
use crate::network::model::Network;
use crate::network::model::ORIGIN;

/// The most values of a network configuration that are used: 4,096 devices have fewer. What a stack gets of each takes up to
/// [`NODE_COST`] bytes, for which there may be less room.
const MAX_NODES: [usize; 3] = [50_000, 20_000, 5_000];
const NODE_COST: usize = 600;
/// How long a text in a network configuration may be, in bytes: a stack makes several of it.
const MAX_TEXT: usize = 64 << 10;

/// A format of network configurations. A document is held as a [`Value`]; one in a text format is a string.
#[derive(Debug)]
pub struct Format {
    /// The name that `cloud-init devel net-convert --kind` takes.
    pub name: &'static str,
    /// A description for the manual.
    pub title: &'static str,
    pub syntax: Syntax,
    /// Whether a document looks like this format.
    pub recognises: fn(&Value) -> bool,
    /// Reads a document, which has this name in messages. A mistake in it is reported and skipped if
    /// possible.
    pub reader: fn(&str, &Value, &Macs, &Problems) -> Result<Network>,
}

/// The syntax of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    Text,
    Yaml,
    Json,
}

impl Format {
    /// Parses the text; `document` is its name in messages.
    ///
    /// # Errors
    /// The text does not have the format's syntax.
    pub fn parse(&self, document: &str, text: &str) -> Result<Value> {
        match self.syntax {
            Syntax::Text => Ok(Value::from(text)),
            Syntax::Yaml => yaml::parse(document, text),
            Syntax::Json => json::parse(document, text.as_bytes()),
        }
    }
}

impl Format {
    /// Reads a document, called `name` in messages, for a machine with these devices. A mistake in it is
    /// reported and skipped if possible.
    ///
    /// # Errors
    /// The document is not of this format.
    pub fn read(&self, name: &str, document: &Value, macs: &Macs, report: &Problems) -> Result<Network> {
        let fits = |nodes: &usize| budget::check(nodes * NODE_COST).is_ok();
        let max = MAX_NODES.into_iter().find(fits).unwrap_or(0);
        let (too_many, too_long) = (Size::of(document).nodes > max, self.syntax != Syntax::Text && has_long(document));
        if too_many {
            report.about(name).warn(format_args!("it has more than {max} values: the last are ignored"));
        }
        if too_long {
            report.about(name).warn(format_args!("a text of more than {MAX_TEXT} bytes is ignored"));
        }
        let document = if too_many || too_long { &cut_to(document, &mut { max }) } else { document };
        let mut network = (self.reader)(name, document, macs, report)?;
        for interface in network.interfaces.iter_mut().filter(|i| i.is_named() && !is_name(&i.name)) {
            let why = impossible(&interface.name);
            // A device that is found by its MAC address is configured under the name that it has.
            interface.rename &= interface.matching.mac.is_none();
            let kept = if interface.is_named() { "" } else { KEPT };
            report.about(ORIGIN).warn(format_args!("{why}{kept}"));
        }
        Ok(network)
    }
}

/// What becomes of a device that is found otherwise than by an impossible name.
pub const KEPT: &str = "; the device keeps its own";

/// Why no device can have a name.
pub fn impossible(name: &str) -> String {
    let why = match name.len() > MAX_DEVICE_NAME {
        true => format!("which has over {MAX_DEVICE_NAME} bytes"),
        false => "the kernel refuses one of its characters".to_owned(),
    };
    format!("{name}: no device can have this name, {why}")
}

/// Whether a text in a document is too long.
fn has_long(value: &Value) -> bool {
    match value {
        Value::List(list) => list.iter().any(has_long),
        Value::Map(map) => map.iter().any(|(_, value)| has_long(value)),
        value => value.as_str().is_some_and(|text| text.len() > MAX_TEXT),
    }
}

/// The first nodes of a document, as many as are `left`, and null for a text that is too long.
fn cut_to(value: &Value, left: &mut usize) -> Value {
    let mut next = |value: &Value| {
        *left = left.checked_sub(1)?;
        Some(cut_to(value, left))
    };
    match value {
        Value::List(list) => Value::List(list.iter().map_while(&mut next).collect()),
        Value::Map(map) => Value::Map(map.iter().map_while(|(key, value)| Some((key, next(value)?))).collect()),
        long if has_long(long) => Value::Null,
        other => other.clone(),
    }
}

/// Two formats are the same if they have the same name.
impl PartialEq for Format {
    fn eq(&self, other: &Format) -> bool {
        self.name == other.name
    }
}

/// The text of a document in a text format.
///
/// # Errors
/// The document is not a text.
pub fn text<'a>(document: &str, value: &'a Value) -> Result<&'a str> {
    let found = || Error::new(format!("{document}: expected text, found {}", value.kind()));
    value.as_str().ok_or_else(found)
}
