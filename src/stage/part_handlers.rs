//! Part-handlers: Python programs from user-data, vendor-data (`#part-handler`) or the image, which handle
//! the parts of the content types that they list (cloud-init's documentation, "User-data formats", part
//! handler).
//!
//! They run in the real root, all in one Python process that calls them as cloud-init does.

use super::boot::Boot;
use super::image::{HANDLERS as FOLDER, Image, PYTHON, image_handlers};
use crate::base::base64;
use crate::base::error::{Error, Result};
use crate::document::{Map, Value, json};
use crate::instance::{Frequency, Instance, state};
use crate::root::{Attr, Command, Root};
use crate::userdata::config::Consumed;
use crate::userdata::kind::PartKind;
use crate::userdata::{Part, PartHandlers, UserData, mime};

/// The Python program that calls the handlers. It reads its job from standard input, and writes the errors to
/// standard output.
const DRIVER: &str = include_str!("part_handlers.py");
/// The semaphore of the handlers' first run for an instance.
const RAN: &str = "part_handlers";

/// Runs the handlers for all sources, if there are any. A handler that fails is a warning.
pub fn run(root: &mut Root, boot: &mut Boot, instance: &Instance, consumed: &Consumed) {
    if !are_wanted(&boot.image, consumed) {
        return;
    }
    match call(root, &boot.image, instance, &sources(consumed)) {
        Ok(problems) => problems.iter().for_each(|text| boot.report.warn(text)),
        Err(e) => boot.report.error(e),
    }
    boot.log();
}

fn sources(consumed: &Consumed) -> Vec<(&str, &UserData)> {
    let named = [("user-data", &consumed.user), ("vendor-data", &consumed.vendor), ("vendor-data2", &consumed.vendor2)];
    named.into_iter().filter_map(|(n, d)| Some((n, d.as_ref()?))).collect()
}

/// Whether there are handlers, and a Python to run them.
pub fn are_wanted(image: &Image, consumed: &Consumed) -> bool {
    match image.part_handlers {
        PartHandlers::None => false,
        PartHandlers::OfParts => {
            sources(consumed).iter().any(|(_, data)| data.parts.iter().any(|part| is_handler(data, part)))
        }
        PartHandlers::OfImage => true,
    }
}

fn is_handler(data: &UserData, part: &Part) -> bool {
    PartKind::of_type(&part.content_type) == Some(PartKind::PartHandler) && !data.disabled.contains(&part.content_type)
}

fn call(root: &mut Root, image: &Image, instance: &Instance, sources: &[(&str, &UserData)]) -> Result<Vec<String>> {
    if cfg!(not(feature = "software")) {
        return Err(Error::new("part-handlers: this build of prepivot leaves them out"));
    }
    let first = !state::is_done(root, instance, RAN, Frequency::Instance);
    state::mark_done(root, instance, RAN, Frequency::Instance)?;
    let folder = format!("{}/handlers", state::folder(instance));
    let mut own = Vec::new();
    if image.part_handlers == PartHandlers::OfImage {
        for name in image_handlers(root) {
            let path = format!("{FOLDER}/{name}.py");
            own.push(handler(&name, &path, &root.read_small(&path)?.unwrap_or_default()));
        }
    }
    let mut described = Vec::new();
    let mut count = 0;
    for (name, data) in sources {
        let mut parts = Vec::new();
        for part in data.parts.iter().filter(|part| !data.disabled.contains(&part.content_type)) {
            if is_handler(data, part) {
                let name = format!("part-handler-{count:03}");
                let path = format!("{folder}/{name}.py");
                root.write(&path, part.content.clone(), Attr::root(0o600))?;
                parts.push(handler(&name, &path, &part.content));
                count += 1;
            } else if count > 0 || !own.is_empty() {
                parts.push(described_part(part));
            }
        }
        described.push(map([("name", (*name).into()), ("parts", parts.into())]));
    }
    let frequency = if first { Frequency::Instance } else { Frequency::Always };
    let job = map([
        ("instance_id", instance.instance_id.as_str().into()),
        ("frequency", frequency.name().into()),
        ("folders", vec![Value::from(folder), FOLDER.into()].into()),
        ("handlers", own.into()),
        ("sources", described.into()),
    ]);
    let command = Command::new([PYTHON, "-c", DRIVER]).stdin(json::to_string(&job));
    let output = root.output(command)?;
    if output.status != 0 {
        return Err(Error::new(format!("part-handlers: {PYTHON} ended with exit status {}", output.status)));
    }
    let answer = json::parse("part-handlers", &output.stdout)?;
    Ok(answer.as_list().unwrap_or_default().iter().filter_map(Value::text).collect())
}

fn map<const N: usize>(pairs: [(&str, Value); N]) -> Value {
    Value::Map(pairs.into_iter().collect())
}

fn handler(name: &str, path: &str, code: &[u8]) -> Value {
    map([("name", name.into()), ("path", path.into()), ("code", base64::encode(code).into())])
}

/// A part with its header fields, as a handler of version 3 expects it: those that Python's email package sets on a
/// part (cloud-init 26.2, handlers/__init__.py, `walk`; user_data.py), and its own.
fn described_part(part: &Part) -> Value {
    let encoding = if part.content.is_ascii() { "7bit" } else { "base64" };
    let standard = [
        ("Content-Type", part.content_type.clone()),
        ("MIME-Version", "1.0".into()),
        ("Content-Transfer-Encoding", encoding.into()),
        ("Content-Disposition", mime::disposition(&part.filename)),
    ];
    let standard = standard.map(|(name, value)| (name.to_owned(), value));
    let headers: Map = standard.into_iter().chain(part.to_entity().headers).map(|(k, v)| (k, Value::from(v))).collect();
    map([
        ("type", part.content_type.as_str().into()),
        ("filename", part.filename.as_str().into()),
        ("headers", headers.into()),
        ("payload", base64::encode(&part.content).into()),
        ("known", PartKind::of_type(&part.content_type).is_some().into()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::machine::Machine;
    use crate::root::{Output, Use};
    use crate::stage::testing;
    use std::io::Write;

    const MIME: &str = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n";
    /// Imports what the handlers of cloud-init's documentation do.
    const HANDLER: &str = "#part-handler\nfrom cloudinit.cloud import Cloud\nimport cloudinit.handlers\n\
        from cloudinit.settings import PER_ALWAYS, PER_ONCE\n\
        handler_version = 3\nfrequency = cloudinit.settings.PER_INSTANCE\n\
        def list_types(): return ['text/x-own']\n\
        def handle_part(data: Cloud, ctype: str, filename, payload, frequency, headers):\n\
        \x20   print('of no concern')\n\
        \x20   with open(LOG, 'a') as f: print(ctype, filename, payload, frequency, headers.get('X-Own'), data.get_instance_id(), file=f)\n";
    /// Of the first version, on every boot, and wrong.
    const OF_IMAGE: &str = "frequency = 'always'\n\
        def list_types(): return ['text/x-image']\n\
        def handle_part(data, ctype, filename, payload):\n\
        \x20   with open(LOG, 'a') as f: print('image', ctype, filename, file=f)\n\
        \x20   if filename: raise ValueError('s3cret')\n";

    /// Runs the command with this machine's Python. None without one.
    fn with_python() -> Option<crate::root::Programs> {
        std::process::Command::new(PYTHON).arg("--version").output().ok()?;
        Some(Box::new(|_, command: &Command| {
            let mut child = std::process::Command::new(&command.argv[0])
                .args(&command.argv[1..])
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::null())
                .spawn()
                .unwrap();
            child.stdin.take().unwrap().write_all(command.stdin.as_deref().unwrap()).unwrap();
            let output = child.wait_with_output().unwrap();
            Ok(Output { status: output.status.code().unwrap(), stdout: output.stdout, stderr: Vec::new() })
        }))
    }

    #[test]
    fn part_has_cloud_inits_header_fields() {
        let part = |filename: &str, content: &str| Part {
            content_type: "text/x-own".into(),
            filename: filename.into(),
            launch_index: Some("2".into()),
            headers: vec![("X-Own".into(), "yes".into())],
            content: content.as_bytes().into(),
            is_secret: false,
        };
        let described = described_part(&part("a \"b\"", "x"));
        let headers: Vec<(String, Value)> =
            described.get("headers").unwrap().as_map().unwrap().clone().into_entries().into_iter().collect();
        let wanted = [
            ("Content-Type", "text/x-own"),
            ("MIME-Version", "1.0"),
            ("Content-Transfer-Encoding", "7bit"),
            ("Content-Disposition", "attachment; filename=\"a \\\"b\\\"\""),
            ("X-Own", "yes"),
            ("Launch-Index", "2"),
        ];
        assert_eq!(headers, wanted.map(|(name, value)| (name.to_owned(), Value::from(value))));
        let encoded = described_part(&part("é", "é"));
        let header = |name: &str| encoded.get("headers").and_then(|h| h.get(name)).and_then(Value::text).unwrap();
        assert_eq!(header("Content-Transfer-Encoding"), "base64");
        assert_eq!(header("Content-Disposition"), "attachment; filename*=utf-8''%C3%A9");
    }

    #[test]
    fn handlers_take_their_types_as_in_cloud_init() {
        let Some(programs) = with_python() else {
            crate::base::testing::skip("there is no python3");
            return;
        };
        let dir = TempDir::new("part-handlers");
        let log = dir.0.join("log");
        let with_log = |code: &str| code.replace("LOG", &format!("{:?}", log.to_str().unwrap()));
        let mut root = dir.root(Use::Tree);
        root.write("/usr/bin/python3", "", Attr::root(0o755)).unwrap();
        root.write(&format!("{FOLDER}/of_image.py"), with_log(OF_IMAGE), Attr::root(0o644)).unwrap();
        root.play(programs);
        let part = |kind: &str, content: &str| format!("--b\nContent-Type: {kind}\nX-Own: yes\n\n{content}\n");
        let document = [
            MIME.to_owned(),
            part("text/x-own", "before the handler"),
            part("text/part-handler", &with_log(HANDLER)),
            part("text/x-own", "after"),
            part("text/x-image", "i"),
            part("text/x-other", "o"),
            "--b--\n".into(),
        ]
        .concat();
        let instance = Instance {
            instance_id: "i-1".into(),
            user_data: Some(document.into_bytes().into()),
            ..Instance::default()
        };
        let machine = Machine::default();
        let mut warnings = Vec::new();
        for _ in 0..2 {
            let mut boot = testing::boot(&root, &machine);
            let mut fetch = |_: &crate::userdata::Include<'_>| Ok(crate::userdata::Fetched::NoNetwork);
            let empty = Value::Map(Map::new());
            let (_, consumed) =
                super::super::config::consume(&root, &boot.image, &instance, &empty, &boot.report, &mut fetch);
            run(&mut root, &mut boot, &instance, &consumed);
            assert_eq!(boot.errors(), [""; 0]);
            warnings = boot.errors_and_warnings();
        }
        assert_eq!(
            warnings,
            [
                "user-data: part-001: no part-handler takes the type text/x-own",
                "part-handler of_image: part-004: ValueError",
                "user-data: part-005: no part-handler takes the type text/x-other",
            ]
        );
        let of_image = "image __begin__ None\nimage text/x-image part-004\nimage __end__ None\n";
        assert_eq!(
            std::fs::read_to_string(&log).unwrap(),
            format!(
                "image __begin__ None\n__begin__ None None once-per-instance None i-1\n\
                 text/x-own part-003 after once-per-instance yes i-1\nimage text/x-image part-004\n\
                 image __end__ None\n__end__ None None once-per-instance None i-1\n{of_image}"
            )
        );
        let kept = "/var/lib/cloud/instances/i-1/handlers/part-handler-000.py";
        assert_eq!(root.stat(kept).unwrap().attr.mode, 0o600);
    }
}
