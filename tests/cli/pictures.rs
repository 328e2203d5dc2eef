//! `analyze show --svg` and `--html`, and `report`.

use super::*;

/// A log of two boots; the first has a failed module, a request that is sent again, and text that is no markup.
const LOG: &str = "\
2026-11-20 09:59:59,990 - prepivot[DEBUG]: Cloud-init v. 0.2.0 running 'init-local' at Fri, 20 Nov 2026 09:59:59 +0000. Up 2.00 seconds.
2026-11-20 10:00:00,000 - prepivot[DEBUG]: start: init-local: searching for local datasources
2026-11-20 10:00:00,100 - prepivot[DEBUG]: GET http://169.254.169.254/x: 503 Service Unavailable; asking again
2026-11-20 10:00:01,200 - prepivot[DEBUG]: GET http://169.254.169.254/x: 200 from 169.254.169.254:80
2026-11-20 10:00:01,300 - prepivot[WARNING]: runcmd: <script>alert(1)</script> & \"more\"
2026-11-20 10:00:01,500 - prepivot[DEBUG]: start: init-local/config-users_groups: running config-users_groups with frequency once
2026-11-20 10:00:01,750 - prepivot[DEBUG]: finish: init-local/config-users_groups: FAIL: running config-users_groups
2026-11-20 10:00:02,000 - prepivot[DEBUG]: finish: init-local: SUCCESS: searching for local datasources
2026-11-20 11:00:00,000 - prepivot[DEBUG]: start: init-local: searching for local datasources
2026-11-20 11:00:00,040 - prepivot[DEBUG]: finish: init-local: SUCCESS: searching for local datasources
";

/// Whether every tag that is opened is closed, in order.
fn is_balanced(page: &str) -> bool {
    let mut open = Vec::new();
    for tag in page.split('<').skip(1).filter_map(|rest| rest.split_once('>')).map(|(tag, _)| tag) {
        let name = tag.split([' ', '/']).next().unwrap_or_default();
        match tag {
            _ if tag.starts_with('!') || tag.ends_with('/') || name == "meta" => {}
            _ if tag.starts_with('/') => {
                if open.pop() != Some(&tag[1..]) {
                    return false;
                }
            }
            _ => open.push(name),
        }
    }
    open.is_empty()
}

#[test]
fn draws_each_boot_of_a_log() {
    let dir = TempDir::new("cli-picture");
    dir.write("log", LOG);
    let svg = run_in(&dir, "analyze show --svg -i ROOT/log");
    assert_eq!(svg.code, 0, "{}", svg.err);
    assert!(svg.out.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" ") && is_balanced(&svg.out), "{}", svg.out);
    for part in [
        "boot 1</text>",
        "boot 2</text>",
        "init-local (2.01 s)",
        "users_groups (250 ms)",
        "init-local (40 ms)",
        "#cf222e",
    ] {
        assert!(svg.out.contains(part), "{part}: {}", svg.out);
    }
    assert_eq!(svg.out.matches(", boot ").count(), 2, "a stage that is named twice has begun once");
    let page = run_in(&dir, "report ROOT/log -o -");
    assert_eq!(page.code, 0, "{}", page.err);
    assert!(is_balanced(&page.out), "{}", page.out);
    let request = "<td class=\"n\">1.21 s</td><td>request</td><td><code>GET http://169.254.169.254/x: 200 from";
    let wait = "<td class=\"n\">110 ms</td><td>wait</td>";
    for part in [request, wait, "<td>warning</td>", "&lt;script&gt;alert(1)&lt;/script&gt; &amp; ", "failed: running"] {
        assert!(page.out.contains(part), "{part}: {}", page.out);
    }
    assert!(!page.out.contains("<script") && !page.out.contains("src=") && !page.out.contains("href="));
    assert_eq!(run_in(&dir, "analyze show --html -i ROOT/log").out, page.out);
}

#[test]
fn compares_last_boots_of_two_logs() {
    let dir = TempDir::new("cli-picture-two");
    dir.write("log", LOG);
    dir.write("old", LOG.split_once("2026-11-20 11").unwrap().0);
    let page = run_in(&dir, "report ROOT/log --against ROOT/old -o ROOT/out.html");
    assert_eq!((page.code, page.out.as_str()), (0, ""), "{}", page.err);
    let text = fs::read_to_string(dir.0.join("out.html")).unwrap();
    let row = "<tr><td>init-local</td><td class=\"n\">40 ms</td><td class=\"n\">2.01 s</td></tr>";
    assert!(text.contains(row) && text.contains("<td class=\"n\">–</td><td class=\"n\">250 ms</td>"), "{text}");
    for wrong in [
        "analyze blame --svg -i ROOT/log",
        "analyze show --svg --html -i ROOT/log",
        "analyze show --against ROOT/old -i ROOT/log",
    ] {
        assert_eq!(run_in(&dir, wrong).code, 1, "{wrong}");
    }
    dir.write("none", "nothing\n");
    assert!(run_in(&dir, "report ROOT/none -o -").err.contains("has no events of a boot"));
}

#[test]
fn browser_shows_boots() {
    let dir = TempDir::new("cli-picture-browser");
    dir.write("log", LOG);
    assert_eq!(run_in(&dir, "report ROOT/log -o ROOT/out.html").code, 0);
    plan::browser_checks(&dir.0.join("out.html"));
}

#[test]
fn reads_archives_of_collect_logs() {
    let dir = TempDir::new("cli-picture-archive");
    dir.write("var/log/cloud-init.log", LOG);
    let made = run_in(&dir, "collect-logs --root ROOT -t ROOT/logs.tar.gz");
    assert_eq!(made.code, 0, "{}", made.err);
    let page = run_in(&dir, "report ROOT/logs.tar.gz -o -");
    assert!(page.code == 0 && page.out.contains("users_groups (250 ms)"), "{}", page.err);
}
