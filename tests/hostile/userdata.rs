//! User-data that is broken, huge or malicious: whatever comes, an answer comes, in bounded time, and nothing panics.

use prepivot::base::problem::{Problems, Severity};
use prepivot::base::testing::cpu_time;
use prepivot::document::testing::vectors;
use prepivot::document::{Bytes, Map, Value, to_yaml, yaml};
use prepivot::userdata::{Fetched, Part, PartHandlers, Surroundings, UserData, mime, process};
use std::io::Write;
use std::time::{Duration, Instant};

fn run(documents: &[&[u8]]) -> (UserData, Problems) {
    let report = Problems::new();
    let data = yaml::parse("t", "v1: {instance_id: i-1}").unwrap();
    let mut again =
        |_: &prepivot::userdata::Include<'_>| Ok(Fetched::Content(b"#include http://x\nhttp://y\n".to_vec()));
    let context = Surroundings {
        source: "user-data",
        vendor: false,
        disabled: &[],
        launch_index: Some(1),
        instance_data: &data,
        part_handlers: PartHandlers::None,
        fetch: &mut again,
        report: &report,
    };
    let documents: Vec<Bytes> = documents.iter().map(|document| (*document).into()).collect();
    (process(&documents, context), report)
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

/// A small generator (xorshift), so that every run tries the same.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % n.max(1) as u64).unwrap()
    }
}

fn mutated(text: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = text.to_vec();
    for _ in 0..=random.below(5) {
        let at = random.below(bytes.len() + 1);
        match random.below(5) {
            0 if at < bytes.len() => drop(bytes.remove(at)),
            1 => bytes.truncate(at.max(bytes.len() / 2)),
            2 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            3 => {
                let end = (at + random.below(40)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                let to = random.below(bytes.len() + 1);
                bytes.splice(to..to, piece);
            }
            _ => bytes.insert(at, b"\n\r :-#{}[]\"'&*!|>%;=\0\xff"[random.below(22)]),
        }
    }
    bytes
}

#[test]
fn mutations_of_every_input() {
    let mut texts: Vec<Vec<u8>> = vec![
        b"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"=b=\"\n\n--=b=\nContent-Type: text/cloud-config\n\
          Content-Transfer-Encoding: quoted-printable\nContent-Disposition: attachment; filename*0*=utf-8''a%20; filename*1=b\n\n\
          a: =3D\n--=b=\nContent-Type: application/gzip\nContent-Transfer-Encoding: base64\n\nH4sIAAAAAAACA1NOzskvTdFNzs9Ly0znSrRSMORKslKIrojlAgCeIcKqGgAAAA==\n--=b=--\n".to_vec(),
        b"## template: jinja\n#cloud-config\n{% for k, v in v1.items() %}\n{{ k | upper }}: {{ v ~ 'x' * 3 }}\n{% endfor %}\n{% set x = [1, 2][0] %}\n".to_vec(),
        b"#cloud-config-archive\n- {content: x, type: text/foo, launch-index: 1}\n- '#!/bin/sh'\n".to_vec(),
        b"#cloud-config-jsonp\n[{\"op\": \"add\", \"path\": \"/a~1b\", \"value\": {\"c\": [1]}}, {\"op\": \"move\", \"from\": \"/a~1b/c\", \"path\": \"/d\"}]".to_vec(),
        gzip(b"#cloud-config\na: 1\n"),
        b"#cloud-config\na: &x {b: !!binary aGk=, <<: {c: 0x1F}}\nd: [*x, 1:30, .5, '\xc3\xa9']\ne: |2-\n    x\n  y\n".to_vec(),
    ];
    for file in ["userdata.json", "examples.json", "merge.json"] {
        collect(&vectors(file).unwrap_or_default(), &mut texts);
    }
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let start = Instant::now();
    let mut tried = 0;
    while tried < 4000 && start.elapsed() < Duration::from_secs(60) {
        let (one, two) = (random.below(texts.len()), random.below(texts.len()));
        let (one, two) = (mutated(&texts[one], &mut random), mutated(&texts[two], &mut random));
        let began = cpu_time();
        let (data, _) = run(&[&one, &two]);
        assert!(cpu_time() - began < Duration::from_secs(20), "{:?}", String::from_utf8_lossy(&one));
        if let Some(config) = data.cloud_config.merged() {
            let mut text = Vec::new();
            data.cloud_config.write(&mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            let again = yaml::parse("t", &text).unwrap();
            assert!(same(&again, &Value::Map(config.clone())), "{text}");
        }
        tried += 1;
    }
    println!("{tried} mutations of {} inputs", texts.len());
    assert!(tried >= 400, "only {tried} were tried in a minute");
}

/// Equal, NaN to NaN too.
fn same(a: &Value, b: &Value) -> bool {
    format!("{a:?}") == format!("{b:?}") || to_yaml(a) == to_yaml(b)
}

fn collect(value: &Value, texts: &mut Vec<Vec<u8>>) {
    match value {
        Value::String(text) if text.contains('\n') && text.len() < 3000 => texts.push(text.as_bytes().to_vec()),
        Value::List(list) => list.iter().for_each(|v| collect(v, texts)),
        Value::Map(map) => map.iter().for_each(|(_, v)| collect(v, texts)),
        _ => {}
    }
}

#[test]
fn bombs_end_in_time_and_bounds() {
    let deep_yaml = format!("#cloud-config\na: {}\n", "[".repeat(200_000));
    let deep_map: String = std::iter::once("#cloud-config\n".to_owned())
        .chain((0..2000).map(|i| format!("{}a:\n", " ".repeat(i))))
        .collect();
    let deepest = (0..90).fold("x".to_owned(), |inner, _| format!("{{a: {inner}}}"));
    let mut laughs = String::from("#cloud-config\na0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    (1..12).for_each(|i| laughs += &format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(",")));
    let many_parts = format!(
        "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n{}--b--",
        "--b\n\n#!/bin/sh\n".repeat(20_000)
    );
    let appending = format!(
        "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n{}--b--",
        "--b\nContent-Type: text/cloud-config\nMerge-Type: dict(recurse_list,recurse_str)+list(append)+str(append)\n\nl: [a, b]\ns: x\n"
            .repeat(900)
    );
    let archive = format!("#cloud-config-archive\n{}", "- '#!/bin/sh'\n".repeat(50_000));
    let long_line = format!("#cloud-config\n{}: {}\n", "k".repeat(1 << 20), "v".repeat(8 << 20));
    let jinja = "## template: jinja\n#cloud-config\n{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}\n";
    let wide_jinja = format!("## template: jinja\n#!/bin/sh\n{}", "{{ v1.instance_id }}\n".repeat(20_000));
    let patch = (0..9999).map(|_| "{\"op\":\"copy\",\"from\":\"\",\"path\":\"/x\"}").collect::<Vec<_>>().join(",");
    let patch = format!("#cloud-config-jsonp\n[{patch}]");
    let header = format!("MIME-Version: 1.0\n{}\n\nx", "X: y\n".repeat(200_000));
    let bomb = gzip(&vec![0; 40 << 20]);
    let mut bombs = b"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n".to_vec();
    (0..300).for_each(|_| bombs.extend([b"--b\nContent-Type: application/gzip\n\n", bomb.as_slice(), b"\n"].concat()));
    // Little that becomes much, in each part.
    let much = format!("[&a [{}], {}]", "1,".repeat(1_000), "*a,".repeat(200));
    let much: String = (0..200).map(|i| format!("--b\nContent-Type: text/cloud-config\n\nk{i}: {much}\n")).collect();
    let much = format!("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n{much}--b--");
    let boundaries = format!("#!/bin/sh\n--===============prepivot=={}", "0".repeat(4 << 20));
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("deep lists", deep_yaml.into()),
        ("deep mappings", deep_map.into()),
        ("deep but allowed, merged", format!("#cloud-config\nq: {deepest}\nmerge_how: dict()\n").into()),
        ("a billion laughs", laughs.into()),
        ("gzip bomb", gzip(&vec![b'#'; 200 << 20])),
        ("gzip of many", gzip(&gzip(&vec![0; 50 << 20]))),
        ("many parts", many_parts.into()),
        ("appending", appending.into()),
        ("archive", archive.into()),
        ("a long line", long_line.into()),
        ("jinja loops", jinja.into()),
        ("many jinja tags", wide_jinja.into()),
        ("patches", patch.into()),
        ("a long header", header.into()),
        ("gzip bombs side by side", bombs),
        ("parts with aliases", much.into()),
        ("every boundary", boundaries.into()),
        ("includes that include", b"#include\nhttp://x\n".to_vec()),
        ("nothing but zeros", vec![0; 1 << 20]),
        (
            "nothing but boundaries",
            format!("mime-version: 1\ncontent-type: multipart/mixed; boundary=b\n\n{}", "--b\n".repeat(500_000)).into(),
        ),
    ];
    for (name, document) in cases {
        let start = cpu_time();
        let (data, report) = run(&[&document]);
        let took = cpu_time() - start;
        println!("{name}: {took:?}, {} parts, {} errors", data.parts.len(), report.entries().len());
        assert!(took < Duration::from_secs(30), "{name}: {took:?}");
        let entities: Vec<_> = data.parts.iter().map(Part::to_entity).collect();
        assert!(mime::write(entities).len() < 100 << 20);
    }
}

#[test]
fn one_broken_part_never_stops_the_others() {
    let document = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n\
        --b\nContent-Type: application/gzip\n\nno\n--b\nContent-Type: text/cloud-config\n\na: [\n\
        --b\nContent-Type: text/jinja2\n\n## template: jinja\n{{ \n--b\nContent-Type: text/part-handler\n\nx\n\
        --b\nContent-Type: text/x-include-url\n\nhttp://404\n--b\nContent-Type: text/foo\n\nx\n\
        --b\nContent-Type: text/cloud-config\n\ngood: 1\n--b\n\n#!/bin/sh\n--b--\n";
    let mut fail = |_: &prepivot::userdata::Include<'_>| Err(prepivot::base::error::Error::new("404"));
    let nothing = Value::Map(Map::new());
    let report = Problems::new();
    let context = Surroundings {
        source: "user-data",
        vendor: false,
        disabled: &[],
        launch_index: None,
        instance_data: &nothing,
        part_handlers: PartHandlers::None,
        fetch: &mut fail,
        report: &report,
    };
    let data = process(&[document.as_bytes().into()], context);
    assert_eq!(data.cloud_config.merged(), Some(&[("good", 1)].into_iter().collect()));
    assert_eq!(data.scripts.len(), 1);
    // The rest is used: nothing of it fails the stage.
    assert!(!report.has(Severity::Error));
    assert_eq!(
        report.texts(Severity::Warning),
        [
            "user-data: part-001: not valid gzip, or cut short",
            "user-data: failed to include a URL: 404",
            "Failed at merging in cloud config part from part-001: user-data: cloud-config: not valid YAML at line 1 column 5: expected a value",
            "user-data: part-002: ignored: the template fails on line 2: a tag that does not end",
            "user-data: part-003: a part-handler needs python3, which the root does not have",
            "Unhandled unknown content-type (text/foo) userdata: user-data: part-004, of a type that is not supported",
        ]
    );
    assert_eq!(data.unsupported, ["text/part-handler (part-003)", "text/foo (part-004)"]);
}
