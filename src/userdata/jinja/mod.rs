//! `## template: jinja` documents, rendered with the instance's data. Templates see values only: no files, no other
//! templates, no code.

mod filters;
mod guard;
mod variables;

pub use variables::{alias, is_version};

use crate::base::error::{Error, Result};
use crate::document::Value;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, UndefinedBehavior};
use std::sync::mpsc;
use std::time::Duration;

/// What stands for a variable that does not exist, its name after it.
pub const MISSING: &str = "CI_MISSING_JINJA_VAR/";

/// How many instructions a template may take.
const FUEL: u64 = 1_000_000;
/// How long a template may take: an instruction can be slow.
const TIME: Duration = Duration::from_secs(5);
/// How much a template may write, in bytes.
const MAX_OUTPUT: usize = crate::document::yaml::MAX_BYTES;
/// The stack of a template's thread, for the longest tag that is let through; only what is used of it costs memory.
const STACK: usize = 64 << 20;

/// A template, rendered.
#[derive(Debug, PartialEq)]
pub struct Rendered {
    pub text: String,
    /// The names of variables that do not exist.
    pub missing: Vec<String>,
}

/// The template below a `## template: jinja` line; None where the first line is no such line.
pub fn body(text: &str) -> Option<&str> {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let first = first.to_lowercase();
    let name = first.strip_prefix("##")?.trim_start().strip_prefix("template:")?.trim();
    (name == "jinja").then_some(rest)
}

/// Renders a template (the text below its header line) with instance-data: its keys, those of `v1` at the top as well, and
/// for each name with an operator in it a second name with `_` instead.
///
/// # Errors
/// A template that is wrong (with its line), takes too long, or uses what does not exist other than by printing it.
pub fn render(template: &str, instance_data: &Value) -> Result<Rendered> {
    guard::check(template)?;
    let (sender, receiver) = mpsc::channel();
    let (template, data) = (template.to_owned(), instance_data.clone());
    std::thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || sender.send(run(&template, &data)))
        .map_err(|e| Error::new(format!("failed to start a thread for the template: {e}")))?;
    // A template that takes too long is left to itself; it ends with this process.
    receiver.recv_timeout(TIME).unwrap_or_else(|_| Err(Error::new("the template takes too long")))
}

fn run(template: &str, data: &Value) -> Result<Rendered> {
    let mut environment = Environment::new();
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true);
    environment.set_syntax(syntax.build().map_err(wrong)?);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_fuel(Some(FUEL));
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_formatter(|output, _, value| Ok(output.write_str(&variables::printed(value))?));
    filters::add(&mut environment);
    let globals = environment.globals().map(|(name, _)| name.to_owned()).collect();
    let variables = variables::top(data, globals);
    let mut output = Bounded(Vec::new());
    let rendered = environment.template_from_str(template).and_then(|t| t.render_captured_to(variables, &mut output));
    rendered.map_err(wrong)?;
    let mut text = String::from_utf8_lossy(&output.0).into_owned();
    if template.ends_with('\n') {
        text.push('\n');
    }
    Ok(Rendered { missing: missing(&text), text })
}

/// The engine's errors tell lines and names of the template's own; what they quote of values is left out.
fn wrong(error: minijinja::Error) -> Error {
    // The header line counts too.
    let line = error.line().map(|l| format!(" on line {}", l + 1)).unwrap_or_default();
    Error::new(format!("the template fails{line}: {}", error.kind()))
}

fn missing(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (at, _) in text.match_indices(MISSING) {
        let after = text.get(at + MISSING.len()..).unwrap_or_default();
        let name: String = after.chars().take_while(|c| c.is_alphanumeric() || "_-.".contains(*c)).collect();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Takes no more than [`MAX_OUTPUT`] bytes.
struct Bounded(Vec<u8>);

impl std::io::Write for Bounded {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + data.len() > MAX_OUTPUT {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::yaml;

    const DATA: &str = r#"
base64_encoded_keys: [ds/meta_data/secret]
v1: {instance_id: i-1, cloud-name: test, region: null, public_ssh_keys: [a, b], n: 1, ok: true}
ds: {meta_data: {a-b: x, list: [1, 2], secret: aGk=, "v1.0": {"k/e:y": 1}}}
"#;

    fn rendered(template: &str) -> String {
        render(template, &yaml::parse("data", DATA).unwrap()).map_or_else(|e| e.to_string(), |r| r.text)
    }

    #[test]
    fn what_documents_use() {
        for (template, text) in [
            ("{{ v1.instance_id }}\n", "i-1\n"),
            ("{{ instance_id }} {{ cloud_name }} {{ v1['cloud-name'] }}", "i-1 test test"),
            ("{{ ds.meta_data.a_b }} {{ ds.meta_data['a-b'] }} {{ ds.meta_data.list }}", "x x [1, 2]"),
            ("{{ ds.meta_data.v1_0.k_e_y }} {{ ds.meta_data.secret }}", "1 hi"),
            ("{{ v1.public_ssh_keys }} {{ region }} {{ ok }} {{ {'a': none} }}", "['a', 'b'] None True {'a': None}"),
            ("{% if v1.region == 'x' -%}\na\n{% elif n == 1 %}\nb\n{% else %}\nc\n{% endif %}\n", "b\n\n"),
            ("{% for k in v1.public_ssh_keys %}\n- {{ k }}{{ loop.index }}\n{% endfor %}\nend\n", "- a1\n- b2\nend\n"),
            ("{% for k, v in ds.meta_data.items() %}{{ k }} {% endfor %}", "a-b a_b list secret v1.0 v1_0 "),
            ("{% set x = 'a' ~ 1 %}{{ x | upper }}{# no #}{% raw %}{{ x }}{% endraw %}", "A1{{ x }}"),
            ("{{ nothing | default('d') }} {{ region | default('e', true) }} {{ v1.nope | d }}", "d e "),
            ("{{ 'x' if nothing is defined else 'y' }}{{ v1.n is defined }}{{ q is undefined }}", "yTrueTrue"),
            ("{% if nothing %}a{% else %}b{% endif %}{% for i in nothing %}c{% endfor %}", "b"),
            ("{{ v1.public_ssh_keys | join(',') }} {{ 'a' in v1.public_ssh_keys }} {{ 'abc'[1:] }}", "a,b True bc"),
            ("{{ 'a,b'.split(',') | last }} {{ ' x '.strip() }} {{ 'aXb'.replace('X', '-') | length }}", "b x 3"),
            ("{{ ds.get('x', 'none') }} {{ ds.keys() | list }}", "none ['meta_data']"),
            ("a\n\n", "a\n\n"),
        ] {
            assert_eq!(rendered(template), text, "{template}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let data = yaml::parse("data", DATA).unwrap();
        let result = render("{{ v1.nothing_here }} {{ top }} {{ ds['a']}} {{ 'x' ~ other }}", &data).unwrap();
        assert_eq!(
            result.text,
            "CI_MISSING_JINJA_VAR/nothing_here CI_MISSING_JINJA_VAR/top CI_MISSING_JINJA_VAR/a xCI_MISSING_JINJA_VAR/other"
        );
        assert_eq!(result.missing, ["nothing_here", "top", "a", "other"]);
    }

    #[test]
    fn wrong_templates_fail_with_their_line() {
        for (template, error) in [
            ("\n{{ \n", "the template fails on line 3: syntax error"),
            ("{{ v1.nothing.deeper }}", "the template fails on line 2: undefined value"),
            ("{{ v1.a - v1.b }}", "the template fails on line 2: invalid operation"),
            ("{% include 'x' %}", "the template fails on line 2: syntax error"),
            ("{{ x.__class__.__mro__ }}", "the template fails on line 2: undefined value"),
        ] {
            assert_eq!(rendered(template), error, "{template}");
        }
    }

    #[test]
    fn hostile_templates_end() {
        for template in [
            "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}",
            "{% for i in range(10000) %}{{ 'aaaaaaaaaa' * 100000 }}{% endfor %}",
            "{{ range(100000000000) }}",
            &format!("{}x{}", "{% if 1 %}".repeat(5000), "{% endif %}".repeat(5000)),
            &"{% set x = [[[[[[[[[[x]]]]]]]]]] %}".repeat(100),
            &("{% set x = [[[[[[[[[[x]]]]]]]]]] %}".repeat(99) + "{{ x }}{{ 'a' ~ x }}"),
            &"{% set x = x ~ x %}".repeat(101),
            &format!("{{{{ 1{} }}}}", "+1".repeat(2000)),
            &format!("{{{{ 1{} }}}}", " if 1 else 1".repeat(300)),
            &format!("{{{{ {}1 }}}}", "-".repeat(4000)),
            &format!("{{{{ {} }}}}", "(".repeat(50_000)),
            &format!("{{{{ {}1 }}}}", "not ".repeat(50_000)),
        ] {
            let result = rendered(template);
            assert!(result.len() < 100_000, "{} bytes", result.len());
        }
    }

    #[test]
    fn the_header_line() {
        assert_eq!(body("## template: jinja\nx"), Some("x"));
        assert_eq!(body("##Template:Jinja  \r\nx"), Some("x"));
        assert_eq!(body("## template: jinja"), Some(""));
        assert_eq!(body("## template: basic\nx"), None);
        assert_eq!(body("#cloud-config\n"), None);
    }
}
