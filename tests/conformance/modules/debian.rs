//! What the modules of Debian and Ubuntu ask of a recorded machine, beside what all modules ask: what APT and dpkg say of it,
//! Ubuntu Pro's API, debconf, and the files of cloud-init's package.

use super::Case;
use super::machine::{Run, Tree};
use prepivot::document::{Map, Value, json};
use prepivot::root::{Command, Output, Root};

/// cloud-init's templates for the distributions' sources, in other words.
const TEMPLATES: [(&str, &str, &str); 2] =
    [("debian", "deb deb-src", "main"), ("ubuntu", "deb", "main universe restricted multiverse")];

/// Writes into the tree what a case says by the answers of programs that are not run here.
pub fn set_up(case: &Case, tree: &Tree) {
    let answer = |argv: &[&str]| {
        let outputs = case.setup.get("command_outputs").and_then(Value::as_list).unwrap_or_default();
        let is_it = |output: &&Value| {
            output
                .get("argv")
                .and_then(Value::as_list)
                .is_some_and(|words| words.iter().filter_map(Value::as_str).eq(argv.iter().copied()))
        };
        let output = outputs.iter().find(is_it).filter(|o| o.get("rc").is_none_or(|rc| rc.as_int() == Some(0)));
        output.and_then(|o| o.get("stdout")).and_then(Value::as_str)
    };
    for (device, _) in case.setup.get("devices").and_then(Value::as_map).into_iter().flat_map(Map::iter) {
        if case.module == "cc_grub_dpkg" {
            tree.write(device, "", 0o660);
        }
    }
    if case.module != "cc_apt_configure" {
        return;
    }
    let codename =
        answer(&["lsb_release", "--all"]).and_then(|text| text.lines().find_map(|l| l.strip_prefix("Codename:")));
    if let Some(codename) = codename {
        tree.write("etc/os-release", &format!("VERSION_CODENAME={}\n", codename.trim()), 0o644);
    }
    let mut status = String::new();
    if let Some(arch) = answer(&["dpkg", "--print-architecture"]) {
        status.push_str(&format!("Package: dpkg\nStatus: install ok installed\nArchitecture: {arch}\n"));
    }
    let list = answer(&["dpkg-query", "--list"]).unwrap_or_default();
    for name in list.lines().filter_map(|l| l.strip_prefix("ii ")?.split_whitespace().next()?.split(':').next()) {
        status.push_str(&format!("Package: {name}\nStatus: install ok installed\n\n"));
    }
    tree.write("var/lib/dpkg/status", &status, 0o644);
    if let Some(conf) = answer(&["apt-config", "dump"]) {
        tree.write("etc/apt/apt.conf", conf, 0o644);
    }
    let removed = case.setup.get("templates_removed").and_then(Value::as_list).unwrap_or_default();
    for (distro, types, components) in TEMPLATES {
        let name = format!("sources.list.{distro}.deb822.tmpl");
        if distro != case.distro.name || removed.iter().any(|r| r.as_str() == Some(&name)) {
            continue;
        }
        let stanza = |url: &str, suites: &str, key: &str| {
            format!(
                "Types: {types}\nURIs: {{{{{url}}}}}\nSuites: {suites}\nComponents: {components}\n\
                 Signed-By: {{{{{key} | default('/usr/share/keyrings/{distro}-archive-keyring.gpg', true)}}}}\n"
            )
        };
        let primary = stanza("mirror", "{{codename}} {{codename}}-updates {{codename}}-backports", "primary_key");
        let security = stanza("security", "{{codename}}-security", "security_key | default(primary_key, true)");
        tree.write(&format!("etc/cloud/templates/{name}"), &format!("## template:jinja\n{primary}\n{security}"), 0o644);
    }
}

/// The datasource with the events that a case names.
pub fn source(case: &Case) -> Option<&'static str> {
    let has = |key: &str| {
        let list = case.setup.at(&["instance", key]).and_then(Value::as_list).unwrap_or_default();
        list.iter().any(|event| event.as_str() == Some("hotplug"))
    };
    match (has("supported_events"), has("default_events")) {
        (true, true) => Some("Ec2"),
        (true, false) => Some("NoCloud"),
        (false, _) => None,
    }
}

/// The rule for added devices without those of the source that [`source`] names, and without what it runs, which is no script of
/// cloud-init's.
pub fn rule(content: &str) -> String {
    let of_source = |line: &&str| !line.starts_with("ENV{ID_NET_DRIVER}") && *line != "GOTO=\"cloudinit_end\"";
    let lines = content.lines().filter(|l| !l.starts_with('#')).filter(of_source);
    let line = |line: &str| match line.strip_prefix("SUBSYSTEM==\"net\", ") {
        Some(runs) if runs.contains("RUN+=\"") => "SUBSYSTEM==\"net\", RUN".to_owned(),
        _ => line.to_owned(),
    };
    lines.map(line).collect::<Vec<_>>().join("\n")
}

/// The answer of Ubuntu Pro's API and of debconf, where a command asks them.
pub fn answer(api: &Value, command: &Command) -> Option<Output> {
    let argv: Vec<&str> = command.argv.iter().map(String::as_str).collect();
    let says = |key: &str| api.get(key);
    let text = match argv.as_slice() {
        ["pro", "api", "u.pro.attach.auto.should_auto_attach.v1"] => match says("should_auto_attach") {
            Some(Value::Bool(is)) => {
                format!(
                    r#"{{"data": {{"attributes": {{"should_auto_attach": {is}}}}}, "errors": [], "result": "success"}}"#
                )
            }
            _ => failure("some-error"),
        },
        ["pro", "api", "u.pro.attach.auto.full_auto_attach.v1", "--data", _] => match says("full_auto_attach") {
            Some(Value::String(word)) if word.as_str() == "ok" => r#"{"errors": [], "result": "success"}"#.to_owned(),
            Some(Value::String(word)) if word.contains("attached") => failure("already-attached"),
            _ => failure("some-error"),
        },
        ["debconf-communicate", _, "cloud-init"] => "0\n".to_owned(),
        _ => return None,
    };
    Some(Output { status: 0, stdout: text.into_bytes(), stderr: Vec::new() })
}

fn failure(code: &str) -> String {
    format!(r#"{{"errors": [{{"code": "{code}", "title": "t"}}], "result": "failure"}}"#)
}

/// The text of a template that debconf is to load.
pub fn template(root: &Root, command: &Command) -> Option<String> {
    let input = String::from_utf8_lossy(command.stdin.as_deref()?).into_owned();
    Some(root.text(input.strip_prefix("X_LOADTEMPLATEFILE ")?.trim()))
}

/// Whether a command of the recording is not needed: keys are decoded without gpg, which then leaves nothing behind.
pub fn is_native(case: &Case, argv: &[String]) -> bool {
    let list = case.expected.get("commands").and_then(Value::as_list).unwrap_or_default();
    let runs_gpg = list.iter().any(|c| {
        let words: Vec<&str> =
            c.get("argv").and_then(Value::as_list).unwrap_or_default().iter().filter_map(Value::as_str).collect();
        matches!(words.as_slice(), ["gpg", verb, ..] if *verb != "--dearmor")
    });
    argv == ["gpg", "--dearmor"] || (!runs_gpg && argv == ["gpgconf", "--kill", "all"])
}

/// Whether a command is compared by [`compare`].
pub fn is_compared(argv: &[String]) -> bool {
    matches!(argv, [program, second, ..] if (program == "pro" && second == "api") || (program == "debconf-communicate" && second == "-fnoninteractive"))
}

/// Compares the calls of Ubuntu Pro's API, and the templates that debconf was given.
pub fn compare(case: &Case, runs: &[Run], wrong: &mut Vec<String>) {
    let list = |key: &str| case.expected.get(key).and_then(Value::as_list).unwrap_or_default();
    let without_nulls = |data: &Value| -> Map {
        let map = data.as_map().into_iter().flat_map(Map::iter).filter(|(_, v)| !v.is_null());
        map.map(|(k, v)| (k.to_owned(), v.clone())).collect()
    };
    let call = |call: &Value| Some((call.as_list()?.first()?.text()?, without_nulls(call.as_list()?.get(1)?)));
    let expected: Vec<(String, Map)> = list("pro_api").iter().filter_map(call).collect();
    let mut found = Vec::new();
    for run in runs.iter().filter(|r| r.command.argv.get(1).is_some_and(|w| w == "api")) {
        let data = run.command.argv.get(4).map_or(Value::Null, |text| json::parse("--data", text.as_bytes()).unwrap());
        found.push((run.command.argv[2].clone(), without_nulls(&data)));
    }
    if expected != found {
        wrong.push(format!("calls of the API: expected {expected:?}, found {found:?}"));
    }
    // The description is for people, and is never shown.
    let fields = |text: &str| {
        text.lines()
            .filter(|l| !l.starts_with([' ', 'D']) || l.starts_with("Default"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let template = |v: &Value| v.as_list()?.get(1)?.as_str().map(fields);
    let expected: Vec<_> = list("debconf").iter().filter_map(template).collect();
    let found: Vec<_> =
        runs.iter().filter(|r| is_compared(&r.command.argv)).filter_map(|r| r.script.as_deref().map(fields)).collect();
    if expected != found {
        wrong.push(format!("templates of debconf: expected {expected:?}, found {found:?}"));
    }
}
