//! What prepivot makes of cloud-init's own user-data inputs, against what cloud-init made of them.

use crate::cases::{Kind, Outcome, Vectors};
use libtest_mimic::Trial;
use prepivot::base::error::Error;
use prepivot::base::problem::{Problems, Severity};
use prepivot::document::testing::find_vectors;
use prepivot::document::{Bytes, Map, Value, json, yaml};
use prepivot::userdata::config::{Consumed, Sources, consume};
use prepivot::userdata::{Fetched, Include, PartHandlers, UserData, When, cache_name};
use std::collections::BTreeMap;

const BYTES: &str = "a script with bytes after its text (a self-extracting archive) is kept byte for byte";
const FAILED_URL: &str = "a URL that fails is an error, and what the other URLs say still counts";
const BROKEN_PART: &str = "a broken part is an error, and the other parts still count";
const CHARSET: &str = "a part in the charset that it declares is read";
const PART_HANDLER: &str = "part-handlers are Python: reported where the root has none, and run in the real root, which is no part of this test";

/// Cases where prepivot differs, and the reason that a user would give.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("script binary payload", BYTES),
    ("include 404", FAILED_URL),
    ("mime gzip part broken", BROKEN_PART),
    ("mime charset latin1", CHARSET),
    ("part-handler v2", PART_HANDLER),
    ("vendor part-handler", PART_HANDLER),
];

const CONFIG: &str = "/cloud/instances/i-testing/cloud-config.txt";

/// The same under other names.
const KINDS: &[Kind] = &[
    Kind {
        cases: " binary payload",
        places: &["/cloud/instances/i-testing/scripts/part-001", "warnings"],
        reason: BYTES,
    },
    Kind { cases: " 404", places: &[CONFIG, "error", "user config", "warnings"], reason: FAILED_URL },
    Kind { cases: " part broken", places: &[CONFIG, "error", "user config", "warnings"], reason: BROKEN_PART },
    Kind { cases: "mime charset ", places: &[CONFIG, "error", "user config"], reason: CHARSET },
    Kind {
        cases: "part-handler",
        places: &["/cloud/instances/i-testing/handlers/part-handler-000.py", "warnings"],
        reason: PART_HANDLER,
    },
];

/// Text, or bytes as base64.
fn bytes(value: &Value) -> Vec<u8> {
    match value.get("b64") {
        Some(Value::String(text)) => prepivot::base::base64::decode(text.as_bytes()).unwrap(),
        _ => value.as_str().unwrap_or_default().as_bytes().to_vec(),
    }
}

fn instance_data() -> Value {
    yaml::parse(
        "instance-data",
        "v1: {instance_id: i-test, cloud-name: testcloud, cloud_name: testcloud}\nds: {meta_data: {a-b: x, list: [1, 2]}}\n",
    )
    .unwrap()
}

fn run(case: &Value, urls: &Value, launch_index: Option<i64>) -> (Consumed, Problems) {
    let expected = case.get("expected").unwrap();
    let mut base = Map::new();
    base.insert("vendor_data", yaml::parse("t", "{enabled: true}").unwrap());
    let sources = expected.get("cloud_config").unwrap();
    // The set-up of a case is not in the vectors; it follows from the result.
    if expected.get("error").is_some_and(Value::is_null) && sources.get("user").is_none() {
        base.insert("allow_userdata", false);
    }
    let vendor_data = if sources.as_map().unwrap().contains_key("vendor") { vendor_data(case) } else { Vec::new() };
    let mut fetch = |include: &Include<'_>| match urls.get(include.url) {
        Some(answer) if !answer.is_null() => Ok(Fetched::Content(bytes(answer))),
        _ => Err(Error::new("404 Not Found")),
    };
    let sources = Sources {
        user_data: bytes(case.get("input").unwrap()).into(),
        vendor_data: &vendor_data,
        vendor_data2: &[],
        datasource_config: &Map::new(),
        launch_index,
        instance_data: &instance_data(),
        part_handlers: PartHandlers::None,
        open: &|_, _| prepivot::trust::sealed::Opened::Later,
    };
    let report = Problems::new();
    (consume(&base, &sources, &mut fetch, &report), report)
}

/// Vendor-data that leaves what the case's vendor-data left.
fn vendor_data(case: &Value) -> Vec<Bytes> {
    let files = case.at(&["expected", "files"]).and_then(Value::as_map).unwrap();
    let kept = ["/vendor-cloud-config.txt", "/scripts/vendor/", "/handlers/"];
    let from_vendor = files.iter().filter(|(path, _)| kept.iter().any(|k| path.contains(k)));
    from_vendor
        .map(|(_, file)| bytes(file.get("content").unwrap()))
        .filter(|c| !c.is_empty())
        .map(Bytes::from)
        .collect()
}

/// cloud-config.txt.
fn text(data: &UserData) -> Vec<u8> {
    let mut text = Vec::new();
    data.cloud_config.write(&mut text).unwrap();
    text
}

/// The files that a result leaves: paths below the instance's folder or cloud-init's.
fn files(consumed: &Consumed) -> BTreeMap<String, (Vec<u8>, &'static str)> {
    let mut files = BTreeMap::new();
    let instance = "/cloud/instances/i-testing";
    let sources = [(&consumed.user, "cloud-config.txt"), (&consumed.vendor, "vendor-cloud-config.txt")];
    for (data, name) in sources.into_iter().filter_map(|(d, n)| d.as_ref().map(|d| (d, n))) {
        files.insert(format!("{instance}/{name}"), (text(data), "0o600"));
        for script in &data.scripts {
            let folder = match script.when {
                When::User => format!("{instance}/scripts"),
                When::Vendor => format!("{instance}/scripts/vendor"),
                When::PerBoot => "/cloud/scripts/per-boot".into(),
                When::PerInstance => "/cloud/scripts/per-instance".into(),
                When::PerOnce => "/cloud/scripts/per-once".into(),
            };
            files.insert(format!("{folder}/{}", script.name), (script.content.to_vec(), "0o700"));
        }
        for (name, content) in &data.boothooks {
            files.insert(format!("{instance}/boothooks/{name}"), (content.to_vec(), "0o700"));
        }
        for (url, content) in &data.fetched_once {
            files.insert(format!("{instance}/data/urlcache/{}", cache_name(url)), (content.to_vec(), "0o600"));
        }
    }
    files
}

/// cloud-config.txt is equal when it names the same parts and holds the same document. More ignored parts may be listed
/// than cloud-init lists.
fn same_file(path: &str, ours: &[u8], theirs: &[u8]) -> bool {
    if !path.ends_with("cloud-config.txt") || theirs.is_empty() || ours.is_empty() {
        return ours == theirs;
    }
    let names = |text: &str| -> Vec<String> {
        text.lines().filter(|l| l.starts_with('#') && !l.contains("ignored")).map(str::to_owned).collect()
    };
    let (ours, theirs) = (String::from_utf8_lossy(ours), String::from_utf8_lossy(theirs));
    let document = |text: &str| yaml::parse("t", text).unwrap();
    names(&ours) == names(&theirs) && document(&ours) == document(&theirs) && ours.ends_with("...\n")
}

/// The vectors show Python's bytes as text.
fn same_value(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Map(a), Value::Map(b)) => {
            a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|w| same_value(v, w)))
        }
        (Value::List(a), Value::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(v, w)| same_value(v, w)),
        (Value::String(a), Value::String(b)) => a == b || format!("b'{}'", a.as_str()) == b.as_str(),
        _ => ours == theirs,
    }
}

fn differences(case: &Value, consumed: &Consumed, report: &Problems) -> Vec<String> {
    let mut found = Vec::new();
    let expected = case.get("expected").unwrap();
    let data = consumed.user.as_ref().unwrap_or(empty());
    let failed = report.has(Severity::Error);
    if failed != expected.get("error").is_some_and(|e| !e.is_null()) {
        found.push(format!("error: {report:?}"));
    }
    let configs = expected.get("cloud_config").and_then(Value::as_map).unwrap();
    for (name, source) in [("user", &consumed.user), ("vendor", &consumed.vendor)] {
        let ours = source.as_ref().map(|d| d.cloud_config.merged().cloned().map_or(Value::Null, Value::Map));
        let same = match (&ours, configs.get(name)) {
            (Some(ours), Some(theirs)) => same_value(ours, theirs),
            (None | Some(Value::Null), None | Some(Value::Null)) => true,
            _ => false,
        };
        if !same {
            found.push(format!("{name} config: {ours:?}"));
        }
    }
    // With user-data left out its parts are not looked at.
    if let (Some(parts), true) = (expected.get("parts").and_then(Value::as_list), consumed.user.is_some()) {
        let ours =
            data.parts.iter().map(|p| (&*p.content_type, &*p.filename, p.launch_index.as_deref(), p.content.clone()));
        let theirs = parts.iter().map(|p| {
            let text = |key| p.get(key).and_then(Value::as_str);
            let payload = bytes(p.get("payload").unwrap());
            (text("content_type").unwrap(), text("filename").unwrap(), text("launch_index"), payload.into())
        });
        if !ours.clone().eq(theirs) {
            found.push(format!("parts: {:?}", ours.collect::<Vec<_>>()));
        }
    }
    let ours = files(consumed);
    let theirs = expected.get("files").and_then(Value::as_map).unwrap();
    for (path, file) in theirs.iter().filter(|(path, _)| *path != "/run/.instance-id") {
        let mode = file.get("mode").and_then(Value::as_str).unwrap();
        let content = bytes(file.get("content").unwrap());
        match ours.get(path) {
            Some((own, own_mode)) if same_file(path, own, &content) && *own_mode == mode => {}
            other => found.push(format!("{path}: {:?}", other.map(|(c, m)| (String::from_utf8_lossy(c), m)))),
        }
    }
    found.extend(ours.keys().filter(|path| !theirs.contains_key(path)).map(|path| format!("{path}: not expected")));
    let hooks = expected.get("boothook_subp").and_then(Value::as_list).unwrap();
    let hook = |h: &Value| h.get("args")?.as_list()?.first()?.as_str()?.rsplit('/').next().map(str::to_owned);
    let mut theirs: Vec<String> = hooks.iter().filter_map(hook).collect();
    theirs.dedup();
    if !data.boothooks.iter().map(|(name, _)| name).eq(theirs.iter()) {
        found.push("boothooks".into());
    }
    let warned = !expected.get("warnings").and_then(Value::as_list).unwrap().is_empty();
    if warned != report.has(Severity::Warning) && !failed {
        found.push(format!("warnings: {report:?}"));
    }
    found
}

fn empty() -> &'static UserData {
    static EMPTY: std::sync::OnceLock<UserData> = std::sync::OnceLock::new();
    EMPTY.get_or_init(UserData::default)
}

fn check(case: &Value, urls: &Value) -> Outcome {
    // The launch index that a case was given is not in the vectors: any that fits will do, where parts name one.
    let indexed = json::to_string(case.get("input").unwrap()).to_lowercase().contains("launch-index");
    let indexes = std::iter::once(None).chain((0..10).map(Some).filter(|_| indexed));
    let found = indexes.map(|index| {
        let (consumed, report) = run(case, urls, index);
        differences(case, &consumed, &report)
    });
    Outcome::of(found.min_by_key(Vec::len).unwrap())
}

/// An example of the documentation is read without an error.
fn check_example(case: &Value) -> Outcome {
    let text = case.get("text").and_then(Value::as_str).unwrap();
    let mut wrong = Vec::new();
    if let Some(expected) = case.get("parsed") {
        match yaml::parse("example", text) {
            Ok(value) if same_value(&value, expected) => {}
            other => wrong.push(format!("parsed: {other:?}")),
        }
    }
    let Some(header) = case.get("header_type").and_then(Value::as_str) else { return Outcome::of(wrong) };
    let mut later = |_: &Include<'_>| Ok(Fetched::NoNetwork);
    let sources = Sources {
        user_data: text.as_bytes().into(),
        vendor_data: &[],
        vendor_data2: &[],
        datasource_config: &Map::new(),
        launch_index: None,
        instance_data: &instance_data(),
        part_handlers: PartHandlers::None,
        open: &|_, _| prepivot::trust::sealed::Opened::Later,
    };
    let report = Problems::new();
    let data = consume(&Map::new(), &sources, &mut later, &report).user.unwrap();
    let fine = match header {
        "text/cloud-config" | "text/jinja2" => data.cloud_config.merged().is_some_and(|map| !map.is_empty()),
        "text/cloud-boothook" => data.boothooks.len() == 1,
        "text/x-shellscript" => data.scripts.len() == 1,
        "text/x-include-url" => !data.deferred.is_empty(),
        "text/cloud-config-archive" => data.cloud_config.merged().is_some() && data.boothooks.len() == 1,
        "text/part-handler" => data.unsupported.len() == 1,
        _ => false,
    };
    if !fine || report.has(Severity::Error) {
        wrong.push(format!("{header}: {data:?}"));
    }
    Outcome::of(wrong)
}

pub fn trials() -> Vec<Trial> {
    let urls: &Value = Box::leak(Box::new(find_vectors("urls.json").unwrap_or(Value::Null)));
    let mut trials =
        Vectors { file: "userdata.json", exceptions: EXCEPTIONS, kinds: KINDS }.trials(move |case| check(case, urls));
    trials.extend(Vectors { file: "examples.json", exceptions: &[], kinds: &[] }.trials(check_example));
    trials
}
