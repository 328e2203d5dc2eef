//! # ubuntu_pro ubuntu_advantage
//!
//! Attaches the machine to Ubuntu Pro: a cloud's machine that is entitled to it without a token, unless
//! `features.disable_auto_attach` is true, else with `token`. `enable` names services to enable, and `config` sets options of `pro
//! config set`; null unsets it. The package is installed if it is missing.
//!
//! ```yaml
//! ubuntu_pro:
//!   token: C0ffee
//!   enable: [esm-infra, livepatch]
//!   config:
//!     http_proxy: http://proxy.example.com:3128
//!     https_proxy: null
//! ```
//!
//! ```schema
//! ubuntu_pro: {
//!  enable, enable_beta: [str]
//!  token: str
//!  features: {disable_auto_attach: bool}
//!  config: {
//!   http_proxy, https_proxy, global_apt_http_proxy, global_apt_https_proxy, ua_apt_http_proxy,
//!    ua_apt_https_proxy: str | null
//!   ...
//!  }
//! }
//! ubuntu_advantage ~24.1 ubuntu_pro
//! ubuntu-advantage ~24.1 ubuntu_pro
//! ```

use super::Module;
use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::document::{Map, Value, json, optional_map, wrong};
use crate::instance::Frequency;
use crate::root::{Command, Stage, installed};
use crate::system::{ModuleContext, packages, service};

/// The known keys of `pro config`: URLs of proxies.
const PROXIES: [&str; 6] = [
    "http_proxy",
    "https_proxy",
    "global_apt_http_proxy",
    "global_apt_https_proxy",
    "ua_apt_http_proxy",
    "ua_apt_https_proxy",
];
/// Calls of Ubuntu Pro's API (`pro api`).
const SHOULD_ATTACH: &str = "u.pro.attach.auto.should_auto_attach.v1";
const FULL_ATTACH: &str = "u.pro.attach.auto.full_auto_attach.v1";
/// The status of `pro attach` on a machine that is attached.
const ATTACHED: i32 = 2;

pub static MODULE: Module = Module {
    name: "ubuntu_pro",
    stage: Stage::Config,
    frequency: Frequency::Instance,
    keys: &["ubuntu_pro", "ubuntu_advantage", "ubuntu-advantage"],
    distros: &["ubuntu"],
    running: Some(running),
    ..Module::NEW
};

fn running(cx: &mut ModuleContext) -> Result<()> {
    let Some(section) = section(cx)? else { return Ok(()) };
    if section.contains_key("commands") {
        return Err(Error::new("ubuntu_pro.commands: it is not supported any more: use token"));
    }
    let disabled = match section.get("features") {
        None => false,
        Some(Value::Map(features)) => match features.get("disable_auto_attach") {
            None => false,
            Some(Value::Bool(disabled)) => *disabled,
            Some(other) => return Err(wrong("ubuntu_pro.features.disable_auto_attach", "a boolean", other)),
        },
        Some(other) => return Err(wrong("ubuntu_pro.features", "a mapping", other)),
    };
    if installed::which(cx.root, "pro").is_none() {
        packages::refresh(cx)?;
        packages::install(cx, &["ubuntu-advantage-tools".to_owned()])?;
    }
    configure(cx, section.get("config"))?;
    service::wait_for_network(cx);
    if !disabled && should_attach(cx) {
        return attach_by_cloud(cx, section);
    }
    if section.keys().all(|key| key == "features") {
        return Ok(());
    }
    attach(cx, section)
}

/// The value of `ubuntu_pro`, or of one of its old names.
fn section<'a>(cx: &mut ModuleContext<'a>) -> Result<Option<&'a Map>> {
    let old: Vec<&str> = ["ubuntu-advantage", "ubuntu_advantage"].into_iter().filter(|k| cx.get(k).is_some()).collect();
    if old.len() > 1 {
        return Err(Error::new(format!(
            "{}: only one of them may be given, and ubuntu_pro is its name now",
            old.join(", ")
        )));
    }
    if let Some(old) = old.first() {
        cx.report.warn(format_args!("{old}: the key is deprecated: use ubuntu_pro"));
    }
    let key = if cx.get("ubuntu_pro").is_some() { "ubuntu_pro" } else { old.first().copied().unwrap_or("ubuntu_pro") };
    optional_map(key, cx.get(key))
}

/// Sets and unsets the keys of `config`, in their order, if all of them are valid.
fn configure(cx: &mut ModuleContext, config: Option<&Value>) -> Result<()> {
    let Some(config) = optional_map("ubuntu_pro.config", config)? else { return Ok(()) };
    let (problems, mut commands) = (Problems::new(), Vec::new());
    for (key, value) in config.sorted() {
        let at = format!("ubuntu_pro.config.{key}");
        let is_known = PROXIES.contains(&key);
        if !is_known {
            cx.report.warn(format_args!("{at}: it is not known, and is set as it is"));
        }
        let is_url = |text: &str| text.starts_with("http://") || text.starts_with("https://");
        match value.as_str() {
            None if value.is_null() => commands.push(Command::new(["pro", "config", "unset", key])),
            Some(text) if !is_known || is_url(text) => {
                // pro splits its argument at blanks.
                let escaped = if text.contains(char::is_whitespace) { python_escaped(text) } else { text.to_owned() };
                let command = Command::new(["pro", "config", "set", &format!("{key}={escaped}")]);
                commands.push(command.secret(escaped));
            }
            _ => problems.error(format!("{at}: expected a URL of http or https")),
        }
    }
    if problems.is_empty() {
        for command in commands {
            let key = command.argv.last().and_then(|w| w.split('=').next()).unwrap_or_default().to_owned();
            problems.keep(cx.root.run(command).map_err(|e| e.context(format_args!("ubuntu_pro.config.{key}"))));
        }
    }
    problems.into_result()
}

/// A text with a backslash before all that is special in a regular expression, blanks included (Python's `re.escape`).
fn python_escaped(text: &str) -> String {
    let special = |c: char| "()[]{}?*+-|^$\\.&~# \t\n\r\x0b\x0c".contains(c);
    text.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

/// Calls the API, and returns its answer: an object with `result`, `data` and `errors`.
fn api(cx: &mut ModuleContext, words: &[&str]) -> Result<Value> {
    let output = cx.root.output(Command::new(["pro", "api"].iter().chain(words).copied()))?;
    json::parse("the answer of pro api", &output.stdout)
}

/// Whether this is a machine that its cloud entitles to Ubuntu Pro.
fn should_attach(cx: &mut ModuleContext) -> bool {
    if !cx.root.runs_commands() {
        return false;
    }
    let answer = api(cx, &[SHOULD_ATTACH]);
    let found = answer.ok().and_then(|a| a.at(&["data", "attributes", "should_auto_attach"])?.as_bool());
    if found.is_none() {
        cx.report.warn("Unable to determine if this is an Ubuntu Pro instance. Fallback to normal Pro attach.");
    }
    found.unwrap_or(false)
}

fn attach_by_cloud(cx: &mut ModuleContext, section: &Map) -> Result<()> {
    let options: Map = ["enable", "enable_beta"]
        .into_iter()
        .filter_map(|key| Some((key, section.get(key).filter(|v| !v.is_null())?.clone())))
        .collect();
    let asks = !options.is_empty();
    let answer = api(cx, &[FULL_ATTACH, "--data", &json::to_string(&Value::Map(options))])?;
    if answer.get("result").and_then(Value::as_str) == Some("success") {
        return Ok(());
    }
    let errors = answer.get("errors").and_then(Value::as_list).unwrap_or_default();
    let code = |error: &Value| error.get("code").and_then(Value::as_str).unwrap_or("an unknown error").to_owned();
    let codes: Vec<String> = errors.iter().map(code).collect();
    if codes.iter().any(|code| code == "already-attached") {
        if asks {
            cx.report.warn(
                "The instance is already attached to Pro. Leaving enabled services untouched. Ignoring config directives \
                 ubuntu_pro: enable and enable_beta",
            );
        }
        return Ok(());
    }
    Err(Error::new(format!("ubuntu_pro: the machine is not attached by its cloud: pro says {}", codes.join(", "))))
}

/// Attaches the machine with the token, and enables the services.
fn attach(cx: &mut ModuleContext, section: &Map) -> Result<()> {
    let token = section.get("token").and_then(Value::text).filter(|t| !t.is_empty()).ok_or_else(|| {
        Error::new("ubuntu_pro.token: it is needed, because the cloud does not entitle the machine to Ubuntu Pro")
    })?;
    let services: Vec<String> = match section.get("enable") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(one)) => {
            cx.report.warn("ubuntu_pro.enable: expected a list, found a string: it is taken for one service");
            vec![one.to_string()]
        }
        Some(Value::List(list)) => list.iter().filter_map(Value::text).collect(),
        Some(other) => {
            cx.report.warn(format_args!("{}: no services are enabled", wrong("ubuntu_pro.enable", "a list", other)));
            Vec::new()
        }
    };
    let auto: &[&str] = if services.is_empty() { &[] } else { &["--no-auto-enable"] };
    let words = ["pro", "attach"].iter().chain(auto).copied().chain([token.as_str()]);
    match cx.root.output(Command::new(words).secret(token.as_str()))?.status {
        0 | ATTACHED => {}
        status => return Err(Error::new(format!("pro attach ended with exit status {status}"))),
    }
    if services.is_empty() {
        return Ok(());
    }
    let words = ["pro", "enable", "--assume-yes", "--format", "json"];
    let words = words.into_iter().chain(services.iter().map(String::as_str));
    let output = cx.root.output(Command::new(words))?;
    if !cx.root.runs_commands() {
        return Ok(());
    }
    if !matches!(output.status, 0 | 1) {
        return Err(Error::new(format!("pro enable {} ended with exit status {}", services.join(" "), output.status)));
    }
    let answer = json::parse("the answer of pro enable", &output.stdout)?;
    let text = |error: &Value, key: &str| error.get(key).and_then(Value::text);
    let failed = |error: &Value| {
        let code = text(error, "message_code").unwrap_or_default();
        let what = text(error, "service").or(text(error, "type")).unwrap_or_default();
        (code != "service-already-enabled").then(|| format!("pro does not enable {what}: {code}"))
    };
    let errors = answer.get("errors").and_then(Value::as_list).unwrap_or_default();
    let problems = Problems::new();
    errors.iter().filter_map(failed).for_each(|error| problems.error(error));
    problems.into_result()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::problem::Severity;
    use crate::base::testing::TempDir;
    use crate::root::{Output, Use};
    use crate::system::testing::Inputs;

    /// Runs the module on a machine that is attached already. Returns the error, the warnings, and what `pro` was called for.
    fn run(is_of_cloud: bool, config: &str) -> (Option<String>, Vec<String>, Vec<String>) {
        let dir = TempDir::new("ubuntu-pro");
        dir.program("usr/bin/pro");
        let mut root = dir.root(Use::Tree);
        root.play(Box::new(move |_, command| {
            let words: Vec<&str> = command.argv.iter().map(String::as_str).collect();
            let (status, text) = match words.as_slice() {
                [_, "api", SHOULD_ATTACH] => {
                    (0, format!(r#"{{"data": {{"attributes": {{"should_auto_attach": {is_of_cloud}}}}}}}"#))
                }
                [_, "api", FULL_ATTACH, ..] => {
                    (1, r#"{"result": "failure", "errors": [{"code": "already-attached", "title": "t"}]}"#.to_owned())
                }
                [_, "attach", ..] => (ATTACHED, String::new()),
                _ => {
                    let error =
                        r#"{"message_code": "service-already-enabled", "service": "esm-infra", "type": "service"}"#;
                    (1, format!(r#"{{"errors": [{error}]}}"#))
                }
            };
            Ok(Output { status, stdout: text.into_bytes(), stderr: Vec::new() })
        }));
        let inputs = Inputs::new("ubuntu", config);
        let error = running(&mut inputs.context(&mut root)).err().map(|e| e.to_string());
        let warnings = inputs.report.texts(Severity::Warning);
        (error, warnings, root.commands().iter().filter_map(|c| c.argv.get(1)).cloned().collect())
    }

    #[test]
    fn leaves_an_instance_that_is_attached() {
        for (config, warns) in [
            ("ubuntu_pro: {}", false),
            ("ubuntu_pro: {token: t}", false),
            ("ubuntu_pro: {token: t, enable: null}", false),
            ("ubuntu_pro: {token: t, enable: []}", true),
            ("ubuntu_pro: {enable_beta: [x]}", true),
        ] {
            let (error, warnings, calls) = run(true, config);
            assert_eq!((error, calls), (None, vec!["api".to_owned(); 2]), "{config}");
            assert_eq!(warnings.len(), usize::from(warns), "{config}: {warnings:?}");
            let said = "The instance is already attached to Pro. Leaving enabled services untouched.";
            assert!(warnings.iter().all(|w| w.starts_with(said)), "{warnings:?}");
        }
        let (error, warnings, calls) = run(false, "ubuntu_pro: {token: t, enable: [esm-infra]}");
        assert_eq!((error, warnings, calls.join(" ")), (None, vec![], "api attach enable".into()));
    }
}
