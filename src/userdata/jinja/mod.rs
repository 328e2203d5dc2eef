//! Renders `## template: jinja` documents with the instance's data, as cloud-init does with jinja2:
//! sandboxed, with `trim_blocks` and `do`. Templates only access values: no files, other templates or code.
//!
//! An own engine, because existing crates do not limit the memory of a template's values (`x ~ x` in 30 lines
//! takes a gigabyte), recurse as deep as an expression is long, and lack many filters and methods of Python's
//! values that documents use.

mod budget;
mod call;
mod data;
mod evaluate;
mod filters;
mod format;
mod lexer;
mod methods;
mod operators;
mod parser;
mod predicates;
mod print;
mod render;
mod scope;
mod syntax;
#[cfg(test)]
mod tests;
mod value;

pub use budget::Fuel;
pub use data::{alias, is_version};

use crate::base::error::{Error, Result};
use crate::document::Value;
use budget::{Budget, Failure};
use std::borrow::Cow;

/// How a variable that does not exist is printed; its name follows.
pub const MISSING: &str = "CI_MISSING_JINJA_VAR/";

/// How much a template may write, in bytes.
const MAX_OUTPUT: usize = crate::document::yaml::MAX_BYTES;

/// A template, rendered.
#[derive(Debug, PartialEq)]
pub struct Rendered {
    pub text: String,
    /// The names of variables that do not exist.
    pub missing: Vec<String>,
}

impl Rendered {
    /// The warning about variables that do not exist in the file or part `name`, in cloud-init's words, which tools look for. None
    /// if all exist.
    pub fn warning(&self, name: &str) -> Option<String> {
        let missing: Vec<String> = self.missing.iter().map(|variable| format!("'{variable}'")).collect();
        let text = "Could not render jinja template variables in file";
        (!missing.is_empty()).then(|| format!("{text} '{name}': {}", missing.join(", ")))
    }
}

/// The template below a `## template: jinja` line; None if the first line is another.
pub fn body(text: &str) -> Option<&str> {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let first = first.to_ascii_lowercase();
    let name = first.strip_prefix("##")?.trim_start().strip_prefix("template:")?.trim();
    (name == "jinja").then_some(rest)
}

/// Renders a template (the text below its header line) with instance-data: its keys, those of `v1` at the top as well, and
/// for each name with an operator in it a second name with `_` instead.
///
/// # Errors
/// A template that is wrong (with its line), takes too much time or memory, or uses what does not exist other than by
/// printing it.
pub fn render(template: &str, instance_data: &Value) -> Result<Rendered> {
    render_with(template, instance_data, &Fuel::default())
}

/// The same for one of several templates, which share the time in `fuel`.
///
/// # Errors
/// As [`render`], and always in a build without the Cargo feature `jinja`.
pub fn render_with(template: &str, instance_data: &Value, fuel: &Fuel) -> Result<Rendered> {
    if !cfg!(feature = "jinja") {
        return Err(Error::new("this build of prepivot leaves Jinja templates out"));
    }
    let budget = Budget::new(fuel);
    let normal = with_unix_lines(template);
    let source = normal.strip_suffix('\n').unwrap_or(&normal);
    let rendered = budget.read(source.len()).and_then(|()| parser::parse(source, &budget)).and_then(|body| {
        let renderer = render::Renderer::new(data::Variables::new(instance_data), &budget);
        renderer.template(&body)
    });
    let mut text = rendered.map_err(|failure| wrong(&failure))?;
    if normal.ends_with('\n') {
        text.push('\n');
    }
    Ok(Rendered { missing: missing(&text), text })
}

/// jinja2 reads `\r\n` and `\r` as `\n`.
fn with_unix_lines(template: &str) -> Cow<'_, str> {
    if template.contains('\r') { template.replace("\r\n", "\n").replace('\r', "\n").into() } else { template.into() }
}

/// A failure with its line in the document; the header is line 1.
fn wrong(Failure { what, line }: &Failure) -> Error {
    let place = if *line > 0 { format!(" on line {}", line + 1) } else { String::new() };
    Error::new(format!("the template fails{place}: {what}"))
}

/// The most names that are kept of variables that do not exist.
const MAX_MISSING: usize = 100;

fn missing(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (at, _) in text.match_indices(MISSING) {
        let after = text.get(at + MISSING.len()..).unwrap_or_default();
        let name: String = after.chars().take_while(|c| c.is_alphanumeric() || "_-.".contains(*c)).take(64).collect();
        if names.len() < MAX_MISSING && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}
