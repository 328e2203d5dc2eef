//! apt_configure beyond the conformance vectors.

use super::*;
use crate::module::tests::{Fixture, Left};

const OS_RELEASE: &str = "ID=debian\nVERSION_CODENAME=trixie\n";
const TEMPLATE: &str = "## template:jinja\n# {{ codename }}\nTypes: deb\nURIs: {{mirror}}\n\
    Suites: {{codename}} {{codename}}-updates\nComponents: main\n\
    Signed-By: {{primary_key | default('/usr/share/keyrings/debian-archive-keyring.gpg', true)}}\n\n\
    Types: deb\nURIs: {{security}}\nSuites: {{codename}}{% if codename in ('buster', 'stretch') %}/updates{% else %}-security{% endif +%}\n\
    Components: main\nSigned-By: {{security_key | default(primary_key, true) | default('/x.gpg', true)}}\n";
const SOURCES: &str = "/etc/apt/sources.list.d/debian.sources";

fn debian() -> Fixture {
    let fixture = Fixture::new("debian");
    fixture.put("/etc/os-release", OS_RELEASE, 0o644);
    fixture
}

fn provisioned(fixture: &Fixture, config: &str) -> Left {
    fixture.run(config, &[MODULE.before_pivot])
}

#[test]
fn nothing_that_was_not_asked_for_is_changed() {
    let fixture = debian();
    fixture.put("/usr/bin/apt-get", "", 0o755);
    fixture.put("/etc/apt/sources.list", "deb http://own trixie main\n", 0o644);
    for config in [
        "{}",
        "apt: {http_proxy: 'http://p:1'}",
        "apt: {preserve_sources_list: true, primary: [{arches: [default], uri: 'http://m'}]}",
        "apt: {primary: [{arches: [other], uri: 'http://m'}], security: 5}",
    ] {
        let left = fixture.both(config, &MODULE);
        assert_eq!((left.errors, left.commands), (vec![], vec![]), "{config}");
        assert_eq!(fixture.text("/etc/apt/sources.list"), "deb http://own trixie main\n");
        assert_eq!(fixture.text(SOURCES), "");
    }
    assert_eq!(fixture.text(PROXY_CONF), "");
    provisioned(&fixture, "apt: {proxy: 'http://p:1', https_proxy: 'http://q', conf: 'A \"b\";'}");
    assert_eq!(fixture.text(PROXY_CONF), "Acquire::http::Proxy \"http://p:1\";\nAcquire::https::Proxy \"http://q\";\n");
    assert_eq!(fixture.text(OWN_CONF), "A \"b\";");
    provisioned(&fixture, "apt: {proxy: \"a\\\"b\"}");
    assert_eq!((fixture.text(PROXY_CONF), fixture.text(OWN_CONF)), (String::new(), String::new()));
}

#[test]
fn adds_a_stanza_once_despite_its_scattered_lines() {
    let fixture = debian();
    let stanza =
        |host: &str, suite: &str| format!("Types: deb\nURIs: http://{host}/\nSuites: {suite}\nComponents: main\n");
    let old = format!("{}\n{}", stanza("a", "one"), stanza("b", "two"));
    fixture.put("/etc/apt/sources.list.d/x.sources", &old, 0o644);
    let config =
        "apt: {sources: {x.sources: {source: \"Types: deb\\nURIs: http://b/\\nSuites: one\\nComponents: main\"}}}";
    for _ in 0..2 {
        fixture.both(config, &MODULE);
        let new = format!("{old}\n{}", stanza("b", "one"));
        assert_eq!(fixture.text("/etc/apt/sources.list.d/x.sources"), new);
    }
}

#[test]
fn a_mirror_needs_no_template() {
    let fixture = debian();
    fixture.put("/etc/apt/sources.list", "deb http://own trixie main\n", 0o644);
    let mirror = "apt: {primary: [{arches: [default], uri: 'http://m/debian'}], security: [{arches: [default], uri: 'http://s'}]}";
    assert_eq!(provisioned(&fixture, mirror).errors, [""; 0]);
    let text = fixture.text(SOURCES);
    assert!(text.contains("URIs: http://m/debian\nSuites: trixie trixie-updates trixie-backports\n"), "{text}");
    assert!(text.contains("URIs: http://s\nSuites: trixie-security\nComponents: main\n"), "{text}");
    assert!(text.contains("Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"), "{text}");
    assert!(!fixture.dir.0.join("etc/apt/sources.list").exists());
}

#[test]
fn uses_the_images_template_with_its_keys() {
    let fixture = debian();
    fixture.put("/etc/cloud/templates/sources.list.debian.deb822.tmpl", TEMPLATE, 0o644);
    let key = key::tests::KEY.replace('\n', "\\n");
    let config = format!("apt: {{primary: [{{arches: [default], uri: 'http://m', key: \"{key}\"}}]}}");
    assert_eq!(provisioned(&fixture, &config).errors, [""; 0]);
    let text = fixture.text(SOURCES);
    assert!(
        text.contains("Suites: trixie-security\nComponents: main\nSigned-By: /etc/apt/trusted.gpg.d/primary.gpg\n"),
        "{text}"
    );
    assert!(fixture.dir.0.join("etc/apt/trusted.gpg.d/primary.gpg").exists());
}

#[test]
fn release_without_name_leaves_the_sources_alone() {
    let fixture = Fixture::new("debian");
    fixture.put("/etc/apt/sources.list", "deb http://own x main\n", 0o644);
    provisioned(&fixture, "apt: {disable_suites: [updates]}");
    assert_eq!(
        (fixture.text("/etc/apt/sources.list").as_str(), fixture.text(SOURCES).as_str()),
        ("deb http://own x main\n", "")
    );
}

#[test]
fn network_sources_wait_in_the_documents_order() {
    let fixture = debian();
    fixture.put("/usr/bin/gpg", "", 0o755);
    let key = key::tests::KEY.replace('\n', "\\n");
    let config = format!(
        "apt:\n  preserve_sources_list: true\n  sources:\n\
         \x20   a: {{source: 'deb [signed-by=$KEY_FILE] http://a $RELEASE main', key: \"{key}\"}}\n\
         \x20   b: {{source: 'deb http://b $RELEASE main', keyid: 0D70 1B98}}\n\
         \x20   c: {{source: 'deb http://c c main', filename: b.list}}\n\
         \x20   d: {{source: 'ppa:user/name'}}\n\
         \x20   e.sources: {{source: \"Types: deb\\nURIs: http://e\"}}\n\
         \x20   f: {{source: 'x', keyid: '--version'}}\n"
    );
    assert_eq!(provisioned(&fixture, &config).errors, [""; 0]);
    let list = |name: &str| fixture.text(&format!("/etc/apt/sources.list.d/{name}"));
    assert_eq!(list("a.list"), "deb [signed-by=/etc/apt/cloud-init.gpg.d/a.gpg] http://a trixie main\n");
    assert_eq!((list("b.list").as_str(), list("e.sources").as_str()), ("", "Types: deb\nURIs: http://e\n"));
    let left = fixture.run(&config, &[MODULE.running]);
    assert_eq!(list("b.list"), "deb http://b trixie main\ndeb http://c c main\n");
    assert_eq!(left.errors, ["apt.sources.f: keyid: expected the fingerprint of a key, in hexadecimal"]);
    let commands: Vec<&str> = left.commands.iter().map(String::as_str).collect();
    let recv = "gpg --no-tty --keyserver=keyserver.ubuntu.com --recv-keys 0D70 1B98";
    assert!(
        commands.contains(&recv) && commands.contains(&"add-apt-repository --no-update ppa:user/name"),
        "{commands:?}"
    );
    assert!(commands.iter().any(|c| c.ends_with(" install software-properties-common")), "{commands:?}");
    // The same document once more adds nothing.
    provisioned(&fixture, &config);
    assert_eq!(list("e.sources"), "Types: deb\nURIs: http://e\n");
}

#[test]
fn adds_this_releases_repository_by_its_program() {
    let fixture = debian();
    let config = "apt: {preserve_sources_list: true, sources: {c: {source: 'cloud-archive:$RELEASE-x'}, \
                  l: {source: 'deb $MIRROR $RELEASE main'}}}";
    let left = fixture.both(config, &MODULE);
    assert_eq!(left.errors, [""; 0]);
    let added = "add-apt-repository --no-update cloud-archive:trixie-x";
    assert!(left.commands.iter().any(|c| c == added), "{:?}", left.commands);
    assert_eq!(fixture.text("/etc/apt/sources.list.d/c.list"), "");
    assert!(fixture.text("/etc/apt/sources.list.d/l.list").ends_with(" trixie main\n"));
}

#[test]
fn keys_of_old_are_understood() {
    let fixture = debian();
    let old = "apt_mirror: http://m/debian\napt_ftp_proxy: http://f\napt_sources: [{source: deb http://a a a}, {source: deb http://b b b}]\n";
    assert_eq!(provisioned(&fixture, old).errors, [""; 0]);
    assert!(fixture.text(SOURCES).contains("URIs: http://m/debian\n"));
    assert_eq!(fixture.text(PROXY_CONF), "Acquire::ftp::Proxy \"http://f\";\n");
    let list = fixture.text("/etc/apt/sources.list.d/cloud_config_sources.list");
    assert_eq!(list, "deb http://a a a\ndeb http://b b b\n");
    let differs = provisioned(&fixture, "{apt_proxy: a, apt: {proxy: b}}");
    assert_eq!(differs.errors, ["apt_proxy and apt.proxy differ: remove apt_proxy, which is deprecated"]);
    assert_eq!(provisioned(&fixture, "{apt_proxy: a, apt: {proxy: a}}").errors, [""; 0]);
}

#[test]
fn wrong_documents_are_errors_that_name_the_key() {
    let fixture = debian();
    for (config, error) in [
        ("apt: x", "apt: expected a mapping, found a string"),
        ("apt: {sources: [a]}", "apt.sources: expected a mapping, found a list"),
        ("apt: {sources: {a: b}}", "apt.sources.a: expected a mapping, found a string"),
        ("apt: {sources: {a: {source: '$KEY_FILE'}}}", "apt.sources.a: $KEY_FILE needs a key or a keyid"),
        (
            "apt: {add_apt_repo_match: '(', sources: {a: {}}}",
            "apt.add_apt_repo_match: an unbalanced parenthesis in the pattern",
        ),
    ] {
        assert_eq!(provisioned(&fixture, config).errors, [error], "{config}");
    }
    let left = fixture.run("apt: {debconf_selections: {a: [b]}}", &[MODULE.running]);
    assert_eq!(left.errors, ["apt.debconf_selections.a: expected a string, found a list"]);
}
