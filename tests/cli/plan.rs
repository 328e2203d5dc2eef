//! `plan` without a root, and what it says for CI.

use super::{Answer, run_in};
use prepivot::base::testing::TempDir;
use prepivot::document::{Value, json};
use prepivot::stage::distributions;
use std::collections::{HashMap, HashSet};
use std::fs;

const WRONG: &str = "#cloud-config\nhostnam: x\nusers:\n- name: bob\n  lock-passwd: true\nwrite_files:\n- path: /etc/x\n  content: hi\n  permissions: rwx\n";

fn planned(dir: &TempDir, user_data: &str, words: &str) -> Answer {
    dir.write("user-data", user_data);
    run_in(dir, &format!("plan {words} ROOT/user-data"))
}

#[test]
fn every_distribution_takes_ordinary_user_data() {
    let dir = TempDir::new("cli-plan-as");
    let network =
        "version: 2\nethernets: {eth0: {addresses: [192.0.2.2/24], routes: [{to: default, via: 192.0.2.1}]}}\n";
    dir.write("network", network);
    let names = distributions::names();
    assert!(names.len() >= 10, "{names:?}");
    for (name, file, install) in [
        ("alpine", "/etc/network/interfaces", "apk"),
        ("amazon-2023", "/etc/systemd/network/10-cloud-init-eth0.network", "dnf"),
        ("arch", "/etc/systemd/network/10-cloud-init-eth0.network", "pacman"),
        ("debian-12", "/etc/netplan/50-cloud-init.yaml", "apt-get"),
        ("debian-13", "/etc/netplan/50-cloud-init.yaml", "apt-get"),
        ("fedora-42", "/etc/NetworkManager/system-connections/cloud-init-eth0.nmconnection", "dnf"),
        ("opensuse-leap", "/etc/sysconfig/network/ifcfg-eth0", "zypper"),
        ("rocky-9", "/etc/NetworkManager/system-connections/cloud-init-eth0.nmconnection", "dnf"),
        ("ubuntu-22.04", "/etc/netplan/50-cloud-init.yaml", "apt-get"),
        ("ubuntu-24.04", "/etc/netplan/50-cloud-init.yaml", "apt-get"),
    ] {
        assert!(names.iter().any(|n| n == name), "{name}");
        let user_data = "#cloud-config\nhostname: web\ntimezone: Europe/Berlin\npackages: [htop]\nusers: [default, {name: ada, groups: [users]}]\n";
        let answer = planned(&dir, user_data, &format!("--as {name} --network-config ROOT/network"));
        assert_eq!((answer.code, answer.err.as_str()), (0, ""), "{name}: {}", answer.out);
        assert!(answer.out.contains(&format!("  write   {file} (")), "{name}: {}", answer.out);
        assert!(answer.out.contains(&format!("  run     {install} ")), "{name}: {}", answer.out);
        // Only what changes is shown, and nothing of the distribution itself.
        assert!(
            answer.out.contains("      + ada:x:1000:") && !answer.out.contains("zoneinfo "),
            "{name}: {}",
            answer.out
        );
    }
    assert_eq!(names.len(), 10, "a new distribution belongs into this table");
}

#[test]
fn exit_code_tells_errors_from_warnings() {
    let dir = TempDir::new("cli-plan-code");
    for (document, code) in [
        ("hostname: a", 0),
        ("users: [{name: a, lock-passwd: true}]", 0),
        ("hostnam: a", 1),
        ("a: [", 1),
        ("users: [{name: a, ssh_authorized_keys: [nonsense]}]", 2),
    ] {
        let answer = planned(&dir, &format!("#cloud-config\n{document}\n"), "--as debian-12 --format text");
        assert_eq!(answer.code, code, "{document}: {}", answer.out);
    }
    assert_eq!(planned(&dir, WRONG, "--as debian-1").code, 1);
    for words in ["", "--as arch --root ROOT", "--as arch --seed ROOT", "--as arch --json --format text"] {
        let answer = planned(&dir, WRONG, words);
        assert_eq!((answer.code, answer.out.as_str()), (2, ""), "{words}: {}", answer.err);
    }
}

#[test]
fn findings_are_lines_and_workflow_commands() {
    let dir = TempDir::new("cli-plan-lines");
    let path = dir.0.join("user-data");
    let path = path.display();
    let answer = planned(&dir, WRONG, "--as debian-12 --format text");
    let permissions =
        "write_files.0: entry 1 (/etc/x): permissions: expected an octal number of four digits in quotes: 0600 is used";
    let expected = format!(
        "{path}:2:1: error: hostnam: there is no such key. Write hostname.\n\
         {path}:5:3: note: users.0.lock-passwd: Deprecated in version 22.3. Use lock_passwd instead.\n\
         {path}:7:3: warning: {permissions}\n"
    );
    assert_eq!(answer.out, expected);
    let answer = planned(&dir, WRONG, "--as debian-12 --format github");
    let commands: Vec<&str> = answer.out.lines().collect();
    assert_eq!(
        commands,
        [
            format!("::error file={path},line=2,col=1,title=hostnam::hostnam: there is no such key. Write hostname."),
            format!(
                "::notice file={path},line=5,col=3,title=users.0.lock-passwd::users.0.lock-passwd: Deprecated in version 22.3. \
                 Use lock_passwd instead."
            ),
            format!("::warning file={path},line=7,col=3,title=write_files.0::{permissions}"),
        ]
    );
}

#[test]
fn sarif_has_what_its_schema_requires() {
    let dir = TempDir::new("cli-plan-sarif");
    let answer = planned(&dir, WRONG, "--as debian-12 --format sarif");
    let log = json::parse("sarif", answer.out.as_bytes()).unwrap();
    let text = |value: &Value, path: &[&str]| value.at(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    assert_eq!(text(&log, &["version"]), "2.1.0");
    let [run] = log.get("runs").and_then(Value::as_list).unwrap() else { panic!() };
    assert_eq!(text(run, &["tool", "driver", "name"]), "prepivot");
    let rules = run.at(&["tool", "driver", "rules"]).and_then(Value::as_list).unwrap();
    let results = run.get("results").and_then(Value::as_list).unwrap();
    assert_eq!(results.len(), 3);
    for result in results {
        assert!(["error", "warning", "note"].contains(&text(result, &["level"]).as_str()));
        assert!(rules.iter().any(|rule| text(rule, &["id"]) == text(result, &["ruleId"])));
        assert!(!text(result, &["message", "text"]).is_empty());
        let [location] = result.get("locations").and_then(Value::as_list).unwrap() else { panic!() };
        let physical = location.get("physicalLocation").unwrap();
        assert!(text(physical, &["artifactLocation", "uri"]).ends_with("/user-data"));
        let number = |key: &str| physical.at(&["region", key]).and_then(Value::as_int).unwrap();
        assert!(number("startLine") > 1 && number("startColumn") > 0);
    }
    // A run without findings is a run.
    let clean = planned(&dir, "#cloud-config\n{}\n", "--as debian-12 --format sarif");
    assert!(clean.code == 0 && clean.out.contains("\"results\": []"), "{}", clean.out);
}

#[test]
fn junit_counts_documents_and_failures() {
    let dir = TempDir::new("cli-plan-junit");
    dir.write("clean", "#cloud-config\nhostname: a\n");
    let answer = planned(&dir, WRONG, "--as debian-12 --format junit ROOT/clean");
    assert_eq!(answer.code, 1);
    assert!(answer.out.contains("<testsuites tests=\"4\" failures=\"2\" errors=\"0\">"), "{}", answer.out);
    assert_eq!(answer.out.matches("<failure ").count(), 2);
    assert_eq!(answer.out.matches("</testcase>").count() + answer.out.matches("\"/>").count(), 4);
}

#[test]
fn findings_of_network_name_its_document() {
    let dir = TempDir::new("cli-plan-network");
    dir.write("network", "version: 2\nethernets:\n  eth0:\n    dhcp4: maybe\n");
    let answer = planned(&dir, "#cloud-config\n{}\n", "--as fedora-42 --format text --network-config ROOT/network");
    let path = dir.0.join("network");
    let line = format!("{}:4:5: error: ethernets.eth0.dhcp4: expected one of yes, no, true, false", path.display());
    assert!(answer.code == 1 && answer.out.starts_with(&line), "{}", answer.out);
    // The warnings of the network configuration's reader are placed in that document, too.
    let path = path.display().to_string();
    assert!(answer.out.lines().count() > 1 && answer.out.lines().all(|line| line.starts_with(&path)), "{}", answer.out);
}

#[test]
fn findings_are_at_their_entries() {
    let dir = TempDir::new("cli-plan-entries");
    let document = "#cloud-config\nusers:\n- default\n- {name: bob, ssh_redirect_user: true}\n- name: kim\n  ssh_import_id: [gh:kim]\n\
        wireguard: {interfaces: [{name: wg0, config_path: /etc/wireguard/wg0.conf, content: x}]}\nyum_repos: {a: {baseurl: 'https://h/'}}\n\
        swap: {filename: relative}\n";
    let lines = |distribution: &str, document: &str| {
        let answer = planned(&dir, document, &format!("--as {distribution} --format text"));
        let place = |line: &str| line.rsplit_once("user-data:").unwrap().1.to_owned();
        answer.out.lines().map(place).collect::<Vec<_>>()
    };
    let wireguard = "8:1: warning: wireguard: it has no effect: the module wireguard is not for this distribution. Add wireguard to \
                     unverified_modules to run it nevertheless.";
    let found = lines("debian-12", &document.replace("wireguard:", "locale: false\nwireguard:"));
    assert!(found[0].starts_with("4:15: warning: users.1.ssh_redirect_user: ssh_redirect_user of bob "), "{found:#?}");
    assert!(found[1].starts_with("6:3: warning: users.2.ssh_import_id: "), "{found:#?}");
    assert_eq!(found[2], wireguard);
    assert!(found[3].starts_with("9:1: warning: yum_repos: it has no effect: the module yum_add_repo "), "{found:#?}");
    assert!(found[4].starts_with("10:8: warning: swap.filename: "), "{found:#?}");
    let has =
        |found: &[String], key: &str| found.iter().any(|line| line.contains(&format!(": {key}: it has no effect")));
    assert!(!has(&lines("ubuntu-24.04", document), "wireguard"));
    assert!(!has(&lines("fedora-42", document), "yum_repos"));
    let forced = lines("debian-12", &format!("{document}unverified_modules: [wireguard]\n"));
    assert!(has(&forced, "yum_repos") && !has(&forced, "wireguard"));
    let unlisted = lines(
        "debian-12",
        "#cloud-config\ncloud_final_modules: [final_message]\nntp: {}\nphone_home: {url: 'http://h/'}\n",
    );
    assert!(has(&unlisted, "phone_home") && !has(&unlisted, "ntp"), "{unlisted:#?}");
}

#[test]
fn plan_leaves_nothing_behind() {
    let dir = TempDir::new("cli-plan-temporary");
    let temporary = dir.0.join("tmp");
    fs::create_dir(&temporary).unwrap();
    dir.write("user-data", WRONG);
    let program = std::process::Command::new(super::PROGRAM)
        .args(["plan", "--as", "arch"])
        .arg(dir.0.join("user-data"))
        .env("TMPDIR", &temporary)
        .output()
        .unwrap();
    assert_eq!(program.status.code(), Some(1));
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
}

/// What a browser would take for markup.
const MARKUP: &str = "</script></pre></title><img src=x onerror=alert(1)>\\\" onload=alert(1) x='&#0;";

/// The page and the document of a plan.
fn page_of(dir: &TempDir, user_data: &str, words: &str) -> (String, Value) {
    let answer = planned(dir, user_data, &format!("--format json --html ROOT/page.html {words}"));
    assert!(answer.code < 3, "{}", answer.err);
    (fs::read_to_string(dir.0.join("page.html")).unwrap(), json::parse("plan", answer.out.as_bytes()).unwrap())
}

/// The tags of a page, without their brackets.
fn tags(page: &str) -> Vec<&str> {
    page.split('<').skip(1).map(|rest| rest.split('>').next().unwrap()).collect()
}

/// Checks that a page is whole: known elements, closed in order, without scripts, handlers or anything from elsewhere.
fn check_page(page: &str) {
    let mut open = Vec::new();
    for tag in tags(page) {
        let name = tag.split([' ', '\n']).next().unwrap();
        match name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "<{tag}>"),
            None if ["!DOCTYPE", "meta", "link", "br", "rect", "path"].contains(&name) => {}
            None => open.push(name),
        }
        let known = [
            "!DOCTYPE", "html", "head", "meta", "link", "title", "style", "body", "header", "h1", "h2", "h3", "p",
            "code", "nav", "ul", "ol", "li", "a", "main", "span", "strong", "br", "table", "thead", "tbody", "tr",
            "th", "td", "details", "summary", "pre", "div", "svg", "rect", "path", "text",
        ];
        assert!(known.contains(&name.trim_start_matches('/')), "<{tag}>");
        let attributes = tag.split('"').step_by(2).map(str::trim).filter(|text| text.ends_with('='));
        for attribute in attributes.map(|text| text.rsplit(' ').next().unwrap()) {
            assert!(!attribute.starts_with("on") && attribute != "src=" && attribute != "style=", "<{tag}>");
            // Only links within the page, and an icon that is none.
            let link = tag.split("href=\"").nth(1).unwrap_or("#");
            assert!(link.starts_with('#') || link.starts_with("data:,\""), "<{tag}>");
        }
        // The order of the keyboard is that of the page.
        assert!(!tag.contains("tabindex=") || tag.contains("tabindex=\"0\""), "<{tag}>");
    }
    assert_eq!(open, Vec::<&str>::new());
    let all: Vec<&str> = page.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let ids: HashSet<&str> = all.iter().copied().collect();
    assert_eq!(ids.len(), all.len(), "an id is there twice");
    for link in page.split("href=\"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(ids.contains(link), "#{link}");
    }
}

#[test]
fn page_leads_from_lines_to_results() {
    let dir = TempDir::new("cli-plan-page");
    dir.write(
        "network",
        "version: 2\nethernets:\n  eno1: {}\n  eno2: {}\nbonds:\n  bond0: {interfaces: [eno1, eno2], parameters: {mode: 802.3ad}}\nvlans:\n  \
         v10: {id: 10, link: bond0, addresses: [192.0.2.2/24], nameservers: {addresses: [192.0.2.53]}}\n",
    );
    let user_data = "#cloud-config\nhostname: web\nusers:\n- default\n- name: ada\n  groups: [adm]\npackages: [htop]\nmounts:\n- [LABEL=d, /srv]\n\
                     write_files:\n- path: /etc/a\n  content: one\n- path: /etc/b\n  content: two\nruncmd: [ls]\n";
    let (page, plan) = page_of(&dir, user_data, "--as debian-12 --network-config ROOT/network");
    check_page(&page);
    let list = |key: &str| plan.get(key).and_then(Value::as_list).unwrap();
    let from = |entry: &Value| {
        let from = entry.get("from").and_then(Value::as_list).unwrap();
        from.iter()
            .map(|o| (json::to_string(o.get("key").unwrap()), o.get("line").unwrap().as_int().unwrap()))
            .collect::<Vec<_>>()
    };
    let entry = |key: &str, name: &str, value: &str| {
        list(key).iter().position(|e| e.get(name).and_then(Value::as_str) == Some(value)).unwrap()
    };
    let file = entry("changes", "path", "/etc/b");
    assert_eq!(from(&list("changes")[file]), [("\"write_files.1\"".to_owned(), 13)]);
    assert_eq!(from(&list("users")[entry("users", "name", "ada")]), [("\"users.1\"".to_owned(), 5)]);
    assert_eq!(from(&list("users")[entry("users", "name", "debian")]), [("\"users.0\"".to_owned(), 4)]);
    assert_eq!(from(&list("packages")[0]), [("\"packages.0\"".to_owned(), 7)]);
    assert_eq!(from(&list("mounts")[0]), [("\"mounts.0\"".to_owned(), 9)]);
    let interfaces = plan.at(&["network", "interfaces"]).and_then(Value::as_list).unwrap();
    let vlan = interfaces.iter().find(|i| i.get("name").and_then(Value::as_str) == Some("v10")).unwrap();
    assert_eq!(from(vlan), [("\"vlans.v10\"".to_owned(), 8)]);
    for part in [
        format!(
            "<tr id=\"d0l13\"><td>13</td><td>- path: /etc/b</td><td><a href=\"#c{file}\">write /etc/b</a></td></tr>"
        ),
        format!("<details id=\"c{file}\"><summary>write <code>/etc/b</code> (0644 root:root)"),
        "<span class=\"add\">+ two</span>".into(),
        "<text class=\"name\"".into(),
        ">bond 802.3ad</text>".into(),
        ">192.0.2.2/24</text>".into(),
        ">DNS 192.0.2.53</text>".into(),
    ] {
        assert!(page.contains(&part), "{part}: {page}");
    }
    // Two members of the bond, and the bond below the VLAN.
    assert_eq!(page.matches("<path class=\"line\"").count(), 3);
}

#[test]
fn plan_document_keeps_its_shape() {
    let dir = TempDir::new("cli-plan-json");
    dir.write("network", "version: 2\nethernets: {e: {dhcp4: true}}\n");
    let (_, plan) = page_of(
        &dir,
        "#cloud-config\nhostnam: x\nmounts: [[LABEL=a, /b]]\npackages: [c]\n",
        "--as arch --network-config ROOT/network",
    );
    let keys = |value: &Value| value.as_map().unwrap().keys().collect::<Vec<_>>().join(" ");
    assert_eq!(
        keys(&plan),
        "version target distribution instance stages changes state_changes commands users groups network mounts packages problems documents"
    );
    assert_eq!(plan.get("version").and_then(Value::as_int), Some(1));
    let first = |key: &str| keys(&plan.get(key).and_then(Value::as_list).unwrap()[0]);
    for (key, expected) in [
        ("stages", "name unit when modules"),
        ("users", "name new uid gid comment home shell groups password keys from"),
        ("groups", "name new gid members from"),
        ("mounts", "device folder type options from"),
        ("packages", "name from"),
        ("problems", "severity document line column key problem fix"),
        ("documents", "name path line_count lines"),
        ("commands", "change argv when module from"),
    ] {
        assert_eq!(first(key), expected, "{key}");
    }
    let files = plan.get("changes").and_then(Value::as_list).unwrap();
    let file = files.iter().find(|change| change.get("diff").is_some()).unwrap();
    assert_eq!(keys(file), "change path mode owner group when module from size new masked diff");
    assert_eq!(keys(plan.get("network").unwrap()), "stack interfaces dns search");
    let interfaces = plan.at(&["network", "interfaces"]).and_then(Value::as_list).unwrap();
    assert_eq!(keys(&interfaces[0]), "name type detail mac mtu below addresses routes dns from");
}

#[test]
fn page_takes_no_markup_from_documents() {
    let dir = TempDir::new("cli-plan-markup");
    dir.write(
        "network",
        format!(
            "version: 2\nethernets:\n  \"{MARKUP}\": {{dhcp4: true}}\n  e: {{set-name: \"{MARKUP}\", match: {{macaddress: \"{MARKUP}\"}}, \
             addresses: [\"{MARKUP}\", 192.0.2.2/24], nameservers: {{addresses: [\"{MARKUP}\"], search: [\"{MARKUP}\"]}}, \
             routes: [{{to: \"{MARKUP}\", via: \"{MARKUP}\"}}]}}\n"
        ),
    );
    dir.write("meta", format!("instance-id: \"{MARKUP}\"\nlocal-hostname: \"{MARKUP}\"\n"));
    let user_data = format!(
        "#cloud-config\n\"{MARKUP}\": \"{MARKUP}\"\nhostname: \"{MARKUP}\"\nlocale: \"{MARKUP}\"\ntimezone: \"{MARKUP}\"\npackages: [\"{MARKUP}\"]\n\
         users: [default, {{name: \"{MARKUP}\"}}, {{name: ada, gecos: \"{MARKUP}\", homedir: \"/{MARKUP}\", shell: \"/{MARKUP}\", \
         ssh_authorized_keys: [\"ssh-ed25519 AAAA {MARKUP}\"]}}]\ngroups: [\"{MARKUP}\"]\nmounts: [[\"{MARKUP}\", \"/{MARKUP}\", \"{MARKUP}\"]]\n\
         write_files: [{{path: \"/etc/{MARKUP}\", content: \"{MARKUP}\"}}, {{path: /etc/m, content: \"{MARKUP}\"}}]\n\
         runcmd: [\"{MARKUP}\"]\nphone_home: {{url: \"http://h/{MARKUP}\"}}\nntp: {{pools: [\"{MARKUP}\"]}}\nca_certs: {{trusted: [\"{MARKUP}\"]}}\n"
    );
    let (page, plan) = page_of(&dir, &user_data, "--as debian-12 --network-config ROOT/network --meta-data ROOT/meta");
    check_page(&page);
    assert!(page.contains("&lt;/script&gt;") && !plan.get("changes").and_then(Value::as_list).unwrap().is_empty());
}

#[test]
fn page_masks_secrets_unless_asked() {
    let dir = TempDir::new("cli-plan-secrets");
    let user_data = "#cloud-config\npassword: geheim-1\nchpasswd: {users: [{name: root, password: geheim-2, type: text}]}\nusers:\n- name: ada\n  \
                     plain_text_passwd: geheim-3\nwrite_files:\n- path: /etc/s\n  permissions: '0600'\n  content: |\n    token: geheim-4\n\
                     runcmd:\n- login geheim-4\nmounts: [[//h/s, /m, cifs, 'rw,password=geheim-5']]\n\
                     phone_home: {url: 'http://me:geheim-6@h/'}\n";
    let (page, plan) = page_of(&dir, user_data, "--as debian-12");
    assert!(!page.contains("geheim") && !json::to_string(&plan).contains("geheim"), "{page}");
    let (page, _) = page_of(&dir, user_data, "--as debian-12 --show-secrets");
    assert!(page.contains("password: geheim-1") && page.contains("token: geheim-4"), "{page}");
}

#[test]
fn page_of_a_large_document_is_bounded() {
    let dir = TempDir::new("cli-plan-large");
    let files: String =
        (0..2100).map(|n| format!("- {{path: /srv/f{n}, content: \"{}\"}}\n", "a<b ".repeat(20))).collect();
    let (page, plan) = page_of(&dir, &format!("#cloud-config\nwrite_files:\n{files}"), "--as debian-12");
    check_page(&page);
    assert!(page.len() < 10 << 20, "{}", page.len());
    assert_eq!(plan.get("changes").and_then(Value::as_list).unwrap().len(), 2000);
}

/// Lets a browser look at a page: the keyboard, contrast, widths, paper, its console and requests. False: there is no browser.
pub fn browser_checks(page: &std::path::Path) -> bool {
    let has = |program: &str| std::process::Command::new(program).arg("--version").output().is_ok();
    if !has("chromium") || !has("python3") {
        prepivot::base::testing::skip("a page in a browser needs chromium and python3");
        return false;
    }
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/browser");
    let checked = std::process::Command::new(script).arg("check").arg(page).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stdout).into_owned() + &String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success() && said.ends_with(" passed, 0 failed, 0 skipped\n"), "{said}");
    true
}

#[test]
fn browser_shows_the_page() {
    let dir = TempDir::new("cli-plan-browser");
    let routes = "routes: [{to: '2001:db8:1::/48', via: '2001:db8::1'}, {to: default, via: 192.0.2.1}]";
    dir.write(
        "network",
        format!("version: 2\nethernets: {{e: {{addresses: [192.0.2.2/24, '2001:db8::2/64'], {routes}}}}}\n"),
    );
    let user_data = format!("{WRONG}mounts: [[LABEL=d, /srv]]\npackages: [htop, nginx]\nruncmd: [ls]\n");
    let (page, _) = page_of(&dir, &user_data, "--as debian-12 --network-config ROOT/network");
    for part in ["<h2 id=\"problems\">", "<h2 id=\"commands\">", "<svg ", "<tr id=\"d0l2\">", "<details id=\"c0\">"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    browser_checks(&dir.0.join("page.html"));
}

/// The brightness of a colour (WCAG 2, "relative luminance").
fn luminance(colour: &str) -> f64 {
    let long = if colour.len() == 3 { colour.chars().flat_map(|c| [c, c]).collect() } else { colour.to_owned() };
    let part = |at: usize| {
        let value = f64::from(u8::from_str_radix(&long[at..at + 2], 16).unwrap()) / 255.0;
        if value <= 0.03928 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * part(0) + 0.7152 * part(2) + 0.0722 * part(4)
}

#[test]
fn colours_have_contrast_in_light_and_dark() {
    let dir = TempDir::new("cli-plan-colours");
    let (page, _) = page_of(&dir, "#cloud-config\nhostname: a\n", "--as debian-12");
    let schemes: Vec<HashMap<&str, f64>> = page
        .split(":root{")
        .skip(1)
        .map(|rest| {
            let pairs = rest.split('}').next().unwrap().split(';').filter_map(|rule| rule.split_once(":#"));
            pairs.map(|(name, colour)| (name.trim_start_matches("--"), luminance(colour))).collect()
        })
        .collect();
    assert_eq!(schemes.len(), 2);
    for scheme in &schemes {
        for text in ["fg", "dim", "link", "add", "del", "bad", "warn", "note"] {
            for behind in ["bg", "soft"] {
                let (a, b) = (scheme[text], scheme[behind]);
                let ratio = (a.max(b) + 0.05) / (a.min(b) + 0.05);
                assert!(ratio >= 4.5, "{text} on {behind}: {ratio:.2}");
            }
        }
    }
}

/// The documents of the whole-program cases, and more of a kind that they lack.
fn corpus() -> Vec<(String, String)> {
    let cases = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut folders = vec![cases];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                folders.push(path);
            } else if let (true, Ok(text)) =
                (["user-data", "user_data"].contains(&name.as_str()), fs::read_to_string(&path))
            {
                found.push((path.display().to_string(), text));
            }
        }
    }
    let more = [
        "users: [default, {name: ada, groups: [adm], ssh_authorized_keys: ['ssh-ed25519 AAAA a']}, {name: bob, homedir: /srv/bob}]",
        "write_files: [{path: /etc/a, content: b, defer: true}, {path: /srv/x/y, content: c}]",
        "user: {name: eve}\nssh_import_id: [x]\npassword: geheim-1",
        "apt: {sources: {one: {source: 'deb http://h/ a b'}, two.list: {source: 'deb http://h/ c d'}}}",
        "fqdn: a.example.org\nmanage_etc_hosts: true\npreserve_hostname: false",
        "swap: {filename: /swap.img, size: 1G}\nmounts: [[sdb1, /data], [LABEL=x, /srv/x]]",
        "bootcmd: [a, b]\nruncmd: [c, [d, e]]\nphone_home: {url: 'http://h/'}\nntp: {servers: [a]}\nca_certs: {trusted: [x]}",
        "chpasswd: {users: [{name: root, password: geheim-2, type: text}]}\nssh_pwauth: true",
    ];
    found.extend(more.iter().enumerate().map(|(at, text)| (format!("more {at}"), format!("#cloud-config\n{text}\n"))));
    found.push((
        "a template".into(),
        "## template: jinja\n#cloud-config\nwrite_files: [{path: /etc/t, content: '{{ v1.region }}'}]\n".into(),
    ));
    found.push(("a script".into(), "#!/bin/sh\necho\n".into()));
    found
}

/// What user-data without keys leads to, as path or command.
fn defaults(dir: &TempDir) -> HashSet<String> {
    let (_, plan) = page_of(dir, "#cloud-config\n{}\n", "--as debian-12");
    results(&plan).map(|(name, _)| name).collect()
}

/// The results of a plan: paths and commands, with the number of lines that each names.
fn results(plan: &Value) -> impl Iterator<Item = (String, usize)> {
    let all = ["changes", "commands", "users", "mounts", "packages"].into_iter();
    let all = all.flat_map(move |key| plan.get(key).and_then(Value::as_list).unwrap());
    all.map(|result| {
        let named = ["path", "url", "name", "device"].iter().find_map(|key| result.get(key).and_then(Value::as_str));
        let argv = || result.get("argv").map(json::to_string).unwrap_or_default();
        (named.map_or_else(argv, str::to_owned), result.get("from").and_then(Value::as_list).unwrap().len())
    })
}

#[test]
fn results_name_lines_or_are_defaults() {
    let dir = TempDir::new("cli-plan-corpus");
    let defaults = defaults(&dir);
    let documents = corpus();
    assert!(documents.len() > 15, "{}", documents.len());
    for (name, text) in documents {
        let (page, plan) = page_of(&dir, &text, "--as debian-12");
        check_page(&page);
        // Of a document in several parts, the lines of the parts are not known.
        let is_one = ["#cloud-config\n", "## template: jinja\n#cloud-config\n", "#!"]
            .iter()
            .any(|start| text.starts_with(start));
        for (result, lines) in results(&plan).filter(|_| is_one) {
            // A key's comment has the host name, which is no result of its line.
            let is_default = defaults.contains(&result) || result.contains("\"ssh-keygen\"");
            assert!(lines > 0 || is_default, "{name}: nothing is said to have led to {result}");
        }
        // Whatever a line is named for by a result is there, and leads back to it.
        let lines = plan.get("documents").and_then(Value::as_list).unwrap()[0]
            .get("line_count")
            .and_then(Value::as_int)
            .unwrap();
        for origin in plan
            .get("changes")
            .and_then(Value::as_list)
            .unwrap()
            .iter()
            .flat_map(|c| c.get("from").and_then(Value::as_list).unwrap())
        {
            let line = origin.get("line").and_then(Value::as_int).unwrap();
            assert!(line >= 1 && line <= lines.max(1), "{name}: {line}");
            if line <= 2000 {
                let row = page.split(&format!("<tr id=\"d0l{line}\">")).nth(1).unwrap().split("</tr>").next().unwrap();
                assert!(row.contains("<a href=\"#"), "{name}: {row}");
            }
        }
        let secret = ["geheim-1", "geheim-2"]
            .iter()
            .find(|secret| page.contains(**secret) || json::to_string(&plan).contains(**secret));
        assert_eq!(secret, None, "{name}");
    }
}

#[test]
fn each_key_of_a_file_is_named() {
    let dir = TempDir::new("cli-plan-keys");
    let user_data = "#cloud-config\nfqdn: a.example.org\nusers:\n- name: ada\n  ssh_authorized_keys: [ssh-ed25519 AAAA a]\n- name: bob\n\
                     write_files:\n- {path: /srv/x/y, content: c}\n- {path: /etc/late, content: c, defer: true}\nchpasswd:\n  users:\n  \
                     - {name: bob, password: geheim, type: text}\napt:\n  sources:\n    one: {source: deb http://h/ a b}\n\
                     mounts:\n- [LABEL=x, /data]\n- [LABEL=y, /data/y]\nruncmd:\n- ls\n- id\n";
    dir.write("network", "version: 2\nethernets:\n  e: {dhcp4: true}\n");
    let (page, plan) = page_of(&dir, user_data, "--as debian-12 --network-config ROOT/network");
    check_page(&page);
    let named = |key: &str, by: &str, value: &str| {
        let list = plan.get(key).and_then(Value::as_list).unwrap();
        let is = |entry: &&Value| json::to_string(entry.get(by).unwrap_or(&Value::Null)).contains(value);
        let found =
            list.iter().find(is).unwrap_or_else(|| panic!("{value}")).get("from").and_then(Value::as_list).unwrap();
        found.iter().map(|o| o.get("key").and_then(Value::as_str).unwrap()).collect::<Vec<_>>().join(" ")
    };
    for (key, by, value, expected) in [
        ("changes", "path", "\"/etc/hostname\"", "fqdn"),
        ("changes", "path", "\"/home/ada/.ssh/authorized_keys\"", "users.0"),
        ("changes", "path", "\"/home/bob\"", "users.1 chpasswd.users.0"),
        ("changes", "path", "\"/etc/shadow\"", "users chpasswd"),
        ("changes", "path", "\"/srv/x\"", "write_files.0"),
        ("changes", "path", "\"/etc/late\"", "write_files.1"),
        ("changes", "path", "/one.list\"", "apt.sources.one"),
        ("changes", "path", "\"/etc/netplan/50-cloud-init.yaml\"", "ethernets.e"),
        ("mounts", "folder", "\"/data/y\"", "mounts.1"),
        ("commands", "argv", "/scripts/runcmd", "runcmd.0 runcmd.1"),
        ("groups", "name", "\"ada\"", "users.0"),
    ] {
        assert_eq!(named(key, by, value), expected, "{value}");
    }
}
