//! The machine that a recorded case runs on: its tree, programs, users, kernel and web servers, and what a module did to it.
//!
//! Another key of `setup` is written into the tree in [`set_up`], or answered in [`Machine`] or [`programs`].

use super::{Case, debian, disks};
use prepivot::base::error::{Error, Result};
use prepivot::base::testing::TempDir;
use prepivot::document::{Map, Value};
use prepivot::drive::devices::Places;
use prepivot::instance::Instance;
use prepivot::root::{Command, Output, Programs, Root, installed};
use prepivot::system::{Device, Outside, Screen, WebRequest};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Memory of a machine whose case does not say it.
const MEMORY: u64 = 2 << 30;
/// What is free on the disk of such a machine.
const FREE_SPACE: u64 = 40 << 30;

/// systemctl's option that nothing waits for the service, which cloud-init does not use.
const NO_BLOCK: &str = "--no-block";

/// The machine's own name. cloud-init asks the C library for it, and prepivot this command.
const FQDN: &[u8] = b"host.example.com\n";
const ASKS_NAME: [&str; 2] = ["hostname", "-f"];

/// What a module sees and does outside the root.
pub struct Machine<'a> {
    case: &'a Case<'a>,
    base: PathBuf,
    /// Text that was shown, in order.
    pub shown: RefCell<Vec<(Screen, String)>>,
    /// Requests that were sent, in order.
    pub requests: RefCell<Vec<WebRequest>>,
}

impl<'a> Machine<'a> {
    pub fn new(case: &'a Case<'a>, base: &Path) -> Self {
        Machine { case, base: base.to_owned(), shown: RefCell::default(), requests: RefCell::default() }
    }

    /// One answer of the case's web servers to a URL: the n-th to its n-th request, the last one for ever.
    fn answer(&self, url: &str) -> Option<Vec<u8>> {
        let replies = self.case.setup.at(&["urls", url])?;
        let nth = self.requests.borrow().iter().filter(|r| r.url == url).count().saturating_sub(1);
        let reply = nth_or_last(replies, nth)?;
        let status = reply.get("status").and_then(Value::as_int).unwrap_or(200);
        let body = reply.get("body").and_then(Value::as_str).unwrap_or_default();
        (200..300).contains(&status).then(|| body.as_bytes().to_vec())
    }
}

impl Outside for Machine<'_> {
    fn device(&self, name: &str) -> Option<Device> {
        if let Some(device) = self.case.setup.at(&["devices", name]) {
            let content = device.get("fstype").and_then(Value::as_str).map(str::to_owned);
            return Some(Device { path: name.to_owned(), content });
        }
        let devices = devices(self.case);
        let partitioned = ["1", "p1", "-part1"].iter().any(|n| devices.contains(&format!("{name}{n}")));
        let content = (!partitioned).then(|| "ext4".to_owned());
        devices.contains(&name.to_owned()).then(|| Device { path: name.to_owned(), content })
    }

    fn resolves(&self, host: &str) -> bool {
        let known = self.case.setup.get("resolvable").and_then(Value::as_list).unwrap_or_default();
        known.iter().any(|name| name.as_str() == Some(host))
    }

    fn places(&self) -> Option<Places> {
        Some(disks::places(&self.base))
    }

    fn free_space(&self, _: &str) -> Option<u64> {
        let free = self.case.setup.get("free_space").and_then(Value::as_int);
        self.case.more.then(|| free.and_then(|f| u64::try_from(f).ok()).unwrap_or(FREE_SPACE))
    }

    fn memory(&self) -> Option<u64> {
        let memory = self.case.setup.get("memory").and_then(Value::as_int);
        Some(memory.and_then(|m| u64::try_from(m).ok()).unwrap_or(MEMORY))
    }

    fn http(&self, request: &WebRequest, tries: u32) -> Result<Vec<u8>> {
        for _ in 0..tries {
            self.requests.borrow_mut().push(request.clone());
            if let Some(body) = self.answer(&request.url) {
                return Ok(body);
            }
        }
        Err(Error::new("no server gave an answer that says success"))
    }

    fn show(&self, screen: Screen, text: &str) -> bool {
        self.shown.borrow_mut().push((screen, text.to_owned()));
        true
    }
}

fn devices(case: &Case) -> Vec<String> {
    case.setup.get("devs").and_then(Value::as_list).unwrap_or_default().iter().filter_map(Value::text).collect()
}

/// The n-th of a list of answers, or the last; an answer that is no list is every one.
fn nth_or_last(answers: &Value, nth: usize) -> Option<&Value> {
    match answers {
        Value::List(list) => list.get(nth).or(list.last()),
        one => Some(one),
    }
}

/// The instance of the recorded cases, with what the case says of it.
pub fn instance(case: &Case) -> Instance {
    let text = |key: &str| case.setup.at(&["instance", key]).and_then(Value::text);
    let metadata = case.setup.at(&["instance", "metadata"]).cloned().unwrap_or(Value::Null);
    let of_metadata = |key: &str| metadata.get(key).and_then(Value::text);
    let source = text("dsname").unwrap_or_else(|| debian::source(case).unwrap_or("Testing").into());
    Instance {
        instance_id: "iid-datasource-none".into(),
        local_hostname: Some(text("fqdn").unwrap_or_else(|| "md-host".into())),
        class: format!("DataSource{source}"),
        source,
        platform: text("platform").unwrap_or_default(),
        region: of_metadata("region"),
        availability_zone: of_metadata("availability-zone"),
        device_names: case.setup.get("device_names").and_then(Value::as_map).cloned().unwrap_or_default(),
        metadata,
        ..Instance::default()
    }
}

/// The arguments of the module's entry in its list.
pub fn args(case: &Case) -> Vec<String> {
    case.setup.get("args").and_then(Value::as_list).unwrap_or_default().iter().filter_map(Value::text).collect()
}

/// The tree below `base`, while it is made.
pub struct Tree<'a>(&'a Path);

impl Tree<'_> {
    pub fn write(&self, path: &str, text: &str, mode: u32) {
        let path = self.0.join(path.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    }

    fn dir(&self, path: &str) {
        std::fs::create_dir_all(self.0.join(path.trim_start_matches('/'))).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.0.join(path.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    fn program(&self, name: &str) {
        let path = if name.starts_with('/') { name.to_owned() } else { format!("/usr/bin/{name}") };
        self.write(&path, "#!/bin/sh\n", 0o755);
    }
}

/// The assumptions of a recorded case about its machine, and what it says of it, except for its files.
pub fn set_up(case: &Case, base: &Path) {
    let tree = Tree(base);
    let (mut passwd, mut group) = (String::new(), String::new());
    let chowns = case.expected.get("chown").and_then(Value::as_list).unwrap_or_default();
    let root = |value: &&Value| value.as_str() != Some("root");
    for (i, entry) in chowns.iter().filter_map(Value::as_list).enumerate() {
        if let [_, user, owning] = entry {
            let user = Some(user).filter(root).and_then(Value::text);
            let owning = Some(owning).filter(root).and_then(Value::text);
            passwd.push_str(&user.map(|u| format!("{u}:x:{0}:{0}::/:/bin/sh\n", 2000 + i)).unwrap_or_default());
            group.push_str(&owning.map(|g| format!("{g}:x:{}:\n", 3000 + i)).unwrap_or_default());
        }
    }
    for (name, user) in case.setup.get("users").and_then(Value::as_map).into_iter().flat_map(Map::iter) {
        let uid = user.get("uid").and_then(Value::as_int).unwrap_or_default();
        let home = user.get("home").and_then(Value::as_str).unwrap_or_default();
        passwd.push_str(&format!("{name}:x:{uid}:{uid}::{home}:/bin/bash\n"));
        group.push_str(&format!("{name}:x:{uid}:\n"));
        tree.dir(home);
    }
    tree.write("etc/passwd", &format!("root:x:0:0::/root:/bin/sh\n{passwd}"), 0o644);
    tree.write("etc/group", &format!("root:x:0:\n{group}"), 0o644);
    let localtime = case.expected.at(&["files", "/etc/localtime", "content"]).and_then(Value::as_str);
    if let Some(zone) = localtime.and_then(|c| c.strip_prefix("-> /")) {
        tree.write(zone, "TZif", 0o644);
    }
    if case.more {
        set_up_more(case, &tree);
    }
}

/// The keys of modules_more.json's `setup`.
fn set_up_more(case: &Case, tree: &Tree) {
    let text = |key: &str, default: &str| {
        let value = case.setup.get(key).and_then(Value::text);
        value.unwrap_or_else(|| default.to_owned())
    };
    tree.write("proc/cmdline", &format!("{}\n", text("cmdline", "")), 0o444);
    tree.write("proc/sys/kernel/hostname", &format!("{}\n", text("hostname", "oldhost")), 0o644);
    let kernel = case.setup.get("kernel").and_then(Value::as_list).unwrap_or_default();
    let release = match kernel.iter().filter_map(Value::text).collect::<Vec<_>>().join(".") {
        unsaid if unsaid.is_empty() => "6.8".to_owned(),
        release => release,
    };
    tree.write("proc/sys/kernel/osrelease", &format!("{release}.0-generic\n"), 0o444);
    tree.dir("run");
    // Relative: nothing is ever written to the /run of the machine that tests.
    tree.link("var/run", "../run");
    tree.dir("var/lib/cloud/instances/iid-datasource-none");
    tree.link("var/lib/cloud/instance", "instances/iid-datasource-none");
    let list = |key: &str| case.setup.get(key).and_then(Value::as_list).unwrap_or_default();
    for path in list("dirs").iter().filter_map(Value::as_str) {
        tree.dir(path);
    }
    let map = |key: &str| case.setup.get(key).and_then(Value::as_map).into_iter().flat_map(Map::iter);
    for (path, target) in map("links") {
        tree.link(path, target.as_str().unwrap());
    }
    for (program, _) in map("programs").filter(|(_, there)| there.is_true()) {
        tree.program(program);
    }
    debian::set_up(case, tree);
    if disks::is_about(case) {
        disks::set_up(case, tree.0);
    }
}

/// A command that was run, as a case shows it.
pub struct Run {
    pub command: Command,
    /// The text of a script of the root's.
    pub script: Option<String>,
}

/// The programs of the case's machine. Each command is kept in the list that is given; one that the case says nothing of
/// succeeds silently.
pub fn programs(case: &Case, dir: &TempDir, runs: &Rc<RefCell<Vec<Run>>>) -> Programs {
    let outputs = case.setup.get("command_outputs").and_then(Value::as_list).unwrap_or_default().to_vec();
    let installs = case.setup.get("installs").and_then(Value::as_map).cloned().unwrap_or_default();
    let known = case.setup.get("programs").and_then(Value::as_map).cloned().unwrap_or_default();
    let api = case.setup.get("pro_api").cloned().unwrap_or(Value::Null);
    let (base, runs) = (dir.0.clone(), Rc::clone(runs));
    let mut counts: BTreeMap<Vec<String>, usize> = BTreeMap::new();
    Box::new(move |root: &Root, command: &Command| {
        let argv: Vec<String> = by_base_name(&command.argv).into_iter().filter(|w| w != NO_BLOCK).collect();
        if argv == ASKS_NAME {
            return Ok(Output { status: 0, stdout: FQDN.into(), stderr: Vec::new() });
        }
        let script = command.argv.first().filter(|p| p.starts_with('/') && root.is_file(p)).map(|p| root.text(p));
        let script = script.or_else(|| debian::template(root, command));
        runs.borrow_mut().push(Run { command: command.clone(), script });
        disks::reread(&base, &argv);
        for (_, brought) in installs.iter().filter(|(package, _)| argv.iter().any(|word| word == package)) {
            let names = brought.as_list().unwrap_or_default();
            names.iter().filter_map(Value::as_str).for_each(|name| Tree(&base).program(name));
        }
        if let Some(answer) = debian::answer(&api, command) {
            return Ok(answer);
        }
        if argv
            .first()
            .is_some_and(|p| known.get(p).is_some_and(Value::is_false) && installed::which(root, p).is_none())
        {
            return Err(Error::new(format!("failed to run {}: No such file or directory", argv.join(" "))));
        }
        let answers: Vec<&Value> = outputs.iter().filter(|o| expected_argv(o) == argv).collect();
        let nth = counts.entry(argv).or_default();
        let answer = answers.get(*nth).or(answers.last());
        *nth += 1;
        let bytes = |key: &str| {
            let text = answer.and_then(|a| a.get(key)).and_then(Value::as_str);
            text.unwrap_or_default().as_bytes().to_vec()
        };
        let status = answer.and_then(|a| a.get("rc")).and_then(Value::as_int).unwrap_or(0);
        Ok(Output { status: i32::try_from(status).unwrap(), stdout: bytes("stdout"), stderr: bytes("stderr") })
    })
}

/// The words of a case's command: text is for a shell.
pub fn expected_argv(command: &Value) -> Vec<String> {
    match command.get("argv") {
        Some(Value::List(words)) => by_base_name(&words.iter().filter_map(Value::text).collect::<Vec<_>>()),
        Some(Value::String(line)) => vec!["sh".into(), "-c".into(), line.to_string()],
        _ => Vec::new(),
    }
}

/// A command with its program, or script, by the last part of the name, and the instance's folder by its link.
pub fn by_base_name(argv: &[String]) -> Vec<String> {
    let link = |word: &String| word.replace("/instances/iid-datasource-none/", "/instance/");
    let mut argv: Vec<String> = argv.iter().map(link).collect();
    if let Some(program) = argv.first_mut() {
        *program = program.rsplit('/').next().unwrap_or_default().to_owned();
    }
    argv
}

/// Compares the commands, requests, messages and semaphores of a case of modules_more.json.
pub fn compare(case: &Case, machine: &Machine, runs: &[Run], root: &Root, wrong: &mut Vec<String>) {
    compare_commands(case, runs, wrong);
    compare_requests(case, &machine.requests.borrow(), wrong);
    compare_messages(case, &machine.shown.borrow(), wrong);
    debian::compare(case, runs, wrong);
    for path in semaphores(case) {
        if !root.is_file(&path) {
            wrong.push(format!("the semaphore {path} is missing"));
        }
    }
}

/// Semaphores of its own that the case's module leaves.
pub fn semaphores(case: &Case) -> Vec<String> {
    let list = case.expected.get("semaphores").and_then(Value::as_list).unwrap_or_default();
    list.iter().filter_map(Value::text).collect()
}

/// Whether `found` is what a case expects: `@TMP@` and the like match any text.
pub fn is_like(expected: &str, found: &str) -> bool {
    let mut expected = expected.to_owned();
    for name in ["@TMP@", "@ROOT@", "@DATE@", "@UPTIME@", "@VERSION@"] {
        expected = expected.replace(name, "\0");
    }
    let mut pieces = expected.split('\0');
    let Some(mut rest) = pieces.next().and_then(|first| found.strip_prefix(first)) else { return false };
    let mut pieces: Vec<&str> = pieces.collect();
    let Some(last) = pieces.pop() else { return rest.is_empty() };
    for piece in pieces {
        let Some((_, after)) = rest.split_once(piece) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

/// A command as it is shown where it differs: its words, standard input, environment and script.
type Shown = (Vec<String>, String, BTreeMap<String, String>, Option<String>);

fn compare_commands(case: &Case, runs: &[Run], wrong: &mut Vec<String>) {
    let list = case.expected.get("commands").and_then(Value::as_list).unwrap_or_default();
    let asks: Vec<Vec<String>> = list.iter().filter(|c| is_true(c, "asks")).map(expected_argv).collect();
    let any_order = |mut words: Vec<String>| {
        if case.needs("packages of one command are a set") {
            words.sort();
        }
        words
    };
    let expected: Vec<Shown> = list
        .iter()
        .filter(|c| !is_true(c, "asks") && !debian::is_native(case, &expected_argv(c)))
        .map(|c| {
            let text = |key: &str| c.get(key).and_then(Value::as_str).map(str::to_owned);
            let env = c.get("env").and_then(Value::as_map).into_iter().flat_map(Map::iter);
            let env = env.filter_map(|(k, v)| Some((k.to_owned(), v.text()?))).collect();
            (any_order(expected_argv(c)), text("data").unwrap_or_default(), env, text("script"))
        })
        .collect();
    let mut found: Vec<Shown> = Vec::new();
    for run in runs {
        let argv: Vec<String> = by_base_name(&run.command.argv).into_iter().filter(|w| w != NO_BLOCK).collect();
        if asks.contains(&argv) || debian::is_compared(&argv) {
            continue;
        }
        let stdin = String::from_utf8_lossy(run.command.stdin.as_deref().unwrap_or_default()).into_owned();
        let env = run.command.env.iter().cloned().collect();
        found.push((any_order(argv), stdin, env, run.script.clone()));
    }
    let word = |(e, f): (&String, &String)| is_like(e, f);
    let same = |e: &Shown, f: &Shown| {
        e.0.len() == f.0.len()
            && e.0.iter().zip(&f.0).all(word)
            && is_like(&e.1, &f.1)
            && e.2.iter().all(|(k, v)| f.2.get(k).is_some_and(|f| is_like(v, f)))
            && (e.3.is_none() || e.3 == f.3)
    };
    if expected.len() != found.len() || !expected.iter().zip(&found).all(|(e, f)| same(e, f)) {
        let lines = |list: &[Shown]| list.iter().map(|c| format!("\n    {c:?}")).collect::<String>();
        wrong.push(format!("commands: expected{}\n  found{}", lines(&expected), lines(&found)));
    }
}

fn is_true(value: &Value, key: &str) -> bool {
    value.get(key).is_some_and(Value::is_true)
}

fn compare_requests(case: &Case, found: &[WebRequest], wrong: &mut Vec<String>) {
    let list = case.expected.get("requests").and_then(Value::as_list).unwrap_or_default();
    let same = |(e, f): (&Value, &WebRequest)| {
        let text = |key: &str| e.get(key).and_then(Value::as_str);
        let form = e
            .get("form")
            .and_then(Value::as_map)
            .map(|m| m.iter().map(|(k, v)| (k.to_owned(), v.text().unwrap_or_default())).collect::<BTreeMap<_, _>>());
        text("method") == Some(f.method)
            && text("url") == Some(f.url.as_str())
            && form.is_none_or(|form| form == decoded(&f.body))
    };
    if list.len() != found.len() || !list.iter().zip(found).all(same) {
        wrong.push(format!("requests: expected {list:?}, found {found:?}"));
    }
}

/// The pairs of a form (application/x-www-form-urlencoded).
fn decoded(body: &[u8]) -> BTreeMap<String, String> {
    let text = |part: &str| {
        let mut bytes = part.bytes();
        let mut out = Vec::new();
        while let Some(byte) = bytes.next() {
            let mut digit = || bytes.next().and_then(|b| char::from(b).to_digit(16)).expect("two hexadecimal digits");
            out.push(match byte {
                b'+' => b' ',
                b'%' => u8::try_from(digit() * 16 + digit()).unwrap(),
                other => other,
            });
        }
        String::from_utf8(out).unwrap()
    };
    let body = std::str::from_utf8(body).unwrap();
    body.split('&').filter_map(|pair| pair.split_once('=')).map(|(k, v)| (text(k), text(v))).collect()
}

fn compare_messages(case: &Case, shown: &[(Screen, String)], wrong: &mut Vec<String>) {
    let list = case.expected.get("messages").and_then(Value::as_list).unwrap_or_default();
    for (screen, key) in [(Screen::Console, "console"), (Screen::Stderr, "stderr")] {
        let expected: String =
            list.iter().filter(|m| is_true(m, key)).filter_map(|m| m.get("text")?.as_str()).collect();
        let found: String = shown.iter().filter(|(s, _)| *s == screen).map(|(_, text)| text.as_str()).collect();
        if !is_like(&expected, &found) {
            wrong.push(format!("{key}: expected {expected:?}, found {found:?}"));
        }
    }
}
