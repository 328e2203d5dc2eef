//! Templates of the image and of cloud-configs: Jinja, and cloud-init's `basic` with `$name`.

use super::ModuleContext;
use crate::base::error::{Error, Result};
use crate::document::Value;
use crate::userdata::jinja;

/// The path of the image's own template called `name`.
pub fn path(cx: &ModuleContext, name: &str) -> String {
    let folder = cx.config.at(&["system_info", "paths", "templates_dir"]).and_then(Value::as_str);
    format!("{}/{name}.tmpl", folder.unwrap_or("/etc/cloud/templates").trim_end_matches('/'))
}

/// Renders the image's own template of that name. None if the image has none.
///
/// # Errors
/// As [`render`]; or it cannot be read.
pub fn of_image(cx: &ModuleContext, name: &str, values: &Value) -> Result<Option<String>> {
    let path = path(cx, name);
    match cx.root.read_small(&path)? {
        Some(bytes) => {
            let text = String::from_utf8(bytes).map_err(|_| Error::new(format!("{path}: not UTF-8")))?;
            render(&path, &text, values).map(Some)
        }
        None => Ok(None),
    }
}

/// Renders a template. Its first line declares its kind (`## template: jinja` or `basic`); the default is
/// `basic`.
///
/// # Errors
/// The template is invalid. The error has its name and the line, but no value.
pub fn render(name: &str, text: &str, values: &Value) -> Result<String> {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let first = first.to_ascii_lowercase();
    let kind = first.trim_start().strip_prefix("##").and_then(|l| l.trim_start().strip_prefix("template:"));
    match kind.map(str::trim) {
        Some("jinja") => jinja::render(rest, values).map(|r| r.text).map_err(|e| e.context(name)),
        Some("basic") => Ok(basic(rest, values)),
        Some(_) => Err(Error::new(format!("{name}: a template of an unknown kind; known are jinja and basic"))),
        None => Ok(basic(text, values)),
    }
}

/// Replaces `$name` and `${name}`. A name may be a dotted path; unknown ones stay unchanged.
fn basic(text: &str, values: &Value) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let braced = after.strip_prefix('{').and_then(|a| a.split_once('}'));
        let end = after.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.'))).unwrap_or(after.len());
        let (name, next) = braced.unwrap_or_else(|| after.split_at(end));
        // A dot at the end of a sentence is not part of the name.
        let trimmed = if braced.is_some() { name } else { name.trim_end_matches('.') };
        let path: Vec<&str> = trimmed.split('.').collect();
        match values.at(&path).and_then(Value::text) {
            Some(value) if !trimmed.is_empty() => {
                out.push_str(&value);
                out.push_str(name.get(trimmed.len()..).unwrap_or_default());
                rest = next;
            }
            _ => {
                out.push('$');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::yaml;

    #[test]
    fn both_kinds_render() {
        let values = yaml::parse("t", "{a: 1, b: {c: x}, list: [p, q]}").unwrap();
        let rendered = |text: &str| render("t", text, &values).unwrap();
        assert_eq!(rendered("$a ${b.c} $b.c. $5 $nothing ${list} $"), "1 x x. $5 $nothing ${list} $");
        assert_eq!(rendered("## template:basic\n$a\n"), "1\n");
        assert_eq!(rendered("## Template: JINJA\n{{a}}\n"), "1\n");
        assert_eq!(rendered("## template: jinja\n{# c -#}\n{% for l in list %}\n{{l}}\n{% endfor %}\n"), "p\nq\n\n");
        assert!(render("t", "## template: jinja\n{{ a", &values).unwrap_err().to_string().starts_with("t: "));
        assert!(render("t", "## template: cheetah\n", &values).is_err());
    }
}
