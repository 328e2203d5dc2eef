//! Bounds on a template before the engine sees it: its parser and compiler recurse as deep as an expression is long.

use crate::base::error::{Error, Result};

/// How long one `{{ … }}` or `{% … %}` may be, in bytes.
const MAX_TAG: usize = 4096;
/// How many `elif` a template may have: the engine nests them.
const MAX_ELIF: usize = 500;

/// How many `set` a template may have: each can nest the last one's value deeper.
const MAX_SET: usize = 100;

/// Refuses a template with a tag that is too long, or with too many `elif` or `set`.
pub fn check(template: &str) -> Result<()> {
    let mut rest = template;
    let (mut elifs, mut sets) = (0, 0);
    while let Some((start, close)) = next_tag(rest) {
        let inside = rest.get(start + 2..).unwrap_or_default();
        if close == "#}" {
            rest = inside.split_once(close).map_or("", |(_, after)| after);
            continue;
        }
        let end = tag_end(inside, close);
        if end.unwrap_or(inside.len()) > MAX_TAG {
            return Err(Error::new(format!("the template has a tag longer than {MAX_TAG} bytes")));
        }
        let Some(end) = end else { return Ok(()) };
        let (tag, after) = inside.split_at(end);
        rest = after.get(close.len()..).unwrap_or_default();
        if close == "%}" {
            let word = tag.trim_matches(|c: char| c.is_whitespace() || matches!(c, '-' | '+'));
            if word == "raw" {
                rest = after_raw(rest);
            }
            elifs += usize::from(word.starts_with("elif"));
            sets += usize::from(word.starts_with("set"));
        }
        if elifs > MAX_ELIF || sets > MAX_SET {
            return Err(Error::new(format!("the template has more than {MAX_ELIF} elif or {MAX_SET} set")));
        }
    }
    Ok(())
}

/// Where the next tag opens, and what closes it.
fn next_tag(text: &str) -> Option<(usize, &'static str)> {
    text.match_indices('{').find_map(|(i, _)| {
        let close = match text.as_bytes().get(i + 1)? {
            b'{' => "}}",
            b'%' => "%}",
            b'#' => "#}",
            _ => return None,
        };
        Some((i, close))
    })
}

/// Where a tag closes, outside of its strings.
fn tag_end(inside: &str, close: &str) -> Option<usize> {
    let mut quote = None;
    let mut escaped = false;
    for (i, c) in inside.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(q), c) if c == q => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, _) if inside.get(i..).is_some_and(|t| t.starts_with(close)) => return Some(i),
            (None, _) => {}
        }
    }
    None
}

/// What follows a raw block: nothing in it is a tag but its end.
fn after_raw(text: &str) -> &str {
    text.match_indices("{%")
        .find_map(|(i, open)| {
            let (word, after) = text.get(i + open.len()..)?.split_once("%}")?;
            let word = word.trim_matches(|c: char| c.is_whitespace() || matches!(c, '-' | '+'));
            (word == "endraw").then_some(after)
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_tags_are_found_wherever_they_hide() {
        let long = "+1".repeat(MAX_TAG);
        let text = "x".repeat(100_000);
        for template in [
            format!("{{{{ 1{long} }}}}"),
            format!("{{{{ \"}}}}\" ~ 1{long} }}}}"),
            format!("{{{{ '\\'}}}}' ~ 1{long} }}}}"),
            format!("{{% raw %}}{{{{ \" {{% endraw %}}{{{{ 1 ~ \" }}}}\"{long} }}}}"),
            format!("{{# {{{{ \" #}}{{{{ 1 ~ \" }}}}\"{long} }}}}"),
            format!("{{{{ 1{long}"),
            "{% if 0 %}".to_owned() + &"{%- elif 0 %}".repeat(MAX_ELIF + 1) + "{% endif %}",
        ] {
            assert!(check(&template).is_err(), "{}", &template[..60.min(template.len())]);
        }
        for template in [
            format!("{text}{{{{ 1 }}}}{text}{{% set x = '}}' %}}{{# {text} #}}"),
            format!("{{% raw -%}} {{{{ {text} {{%- endraw %}} {{{{ x }}}} {{ {text}"),
            String::new(),
            "{".into(),
            "{{".into(),
            "{{ 'x".into(),
        ] {
            assert!(check(&template).is_ok(), "{}", &template[..60.min(template.len())]);
        }
    }
}
