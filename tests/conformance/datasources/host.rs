//! What is beside the machine of a case: programs with their answers, and the host at the other end of a serial line or socket.

use super::case::Case;
use super::tree::write;
use crate::cases::trial;
use libtest_mimic::Trial;
use prepivot::base::base64;
use prepivot::base::crc32::crc32;
use prepivot::base::testing::TempDir;
use prepivot::document::{Map, Value, json};
use prepivot::machine::Tools;
use prepivot::machine::tools::ToolAnswer;
use prepivot::root::{Command, Output, Root, Use};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

fn list<'a>(case: &'a Case, key: &str) -> &'a [Value] {
    case.input.get(key).and_then(Value::as_list).unwrap_or_default()
}

/// The distribution of the machine, where its files do not say; on Ubuntu version 24.04, as in cloud-init's tests.
pub fn set_release(case: &Case, dir: &Path) {
    let distro = case.input.get("distro").and_then(Value::as_str).unwrap_or("ubuntu");
    if !dir.join("etc/os-release").exists() {
        write(dir, "etc/os-release", format!("ID={distro}\nVERSION_ID=\"24.04\"\nVERSION_CODENAME=noble\n"));
    }
}

/// Makes the programs of the machine, as files that can be run.
pub fn make_programs(case: &Case, dir: &Path) {
    for path in list(case, "programs").iter().filter_map(Value::as_str) {
        write(dir, path, "");
        let path = dir.join(path.trim_start_matches('/'));
        fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("a mode");
    }
}

/// What a command of the case wrote to a stream.
fn stream(command: &Value, key: &str) -> Vec<u8> {
    match command.get(key) {
        Some(out) => match out.get("b64").and_then(Value::as_str) {
            Some(encoded) => base64::decode(encoded.as_bytes()).expect("base64"),
            None => out.text().unwrap_or_default().into_bytes(),
        },
        None => Vec::new(),
    }
}

/// A command's words. A program without arguments may be a text.
fn argv(command: &Value) -> Vec<String> {
    match command.get("argv") {
        Some(Value::List(words)) => words.iter().filter_map(Value::text).collect(),
        Some(word) => word.text().into_iter().collect(),
        None => Vec::new(),
    }
}

/// Has the running system's programs answer as the case says, with exit code and output; the n-th run of a command takes its n-th
/// entry. Whatever is not listed succeeds silently.
pub fn play(case: &Case, root: &mut Root) {
    let mut answers: Vec<(Vec<String>, Output)> = list(case, "commands")
        .iter()
        .map(|command| {
            let status = command.get("rc").and_then(Value::as_int).and_then(|rc| i32::try_from(rc).ok()).unwrap_or(0);
            (argv(command), Output { status, stdout: stream(command, "stdout"), stderr: stream(command, "stderr") })
        })
        .collect();
    if answers.is_empty() {
        return;
    }
    root.play(Box::new(move |_, command| {
        let silent = Output { status: 0, stdout: Vec::new(), stderr: Vec::new() };
        let mut same = answers.iter().enumerate().filter(|(_, (argv, _))| *argv == command.argv).map(|(at, _)| at);
        let (first, others) = (same.next(), same.next().is_some());
        let answer = match first {
            Some(at) if others => answers.remove(at).1,
            Some(at) => answers.get(at).map_or(silent, |(_, output)| output.clone()),
            None => silent,
        };
        Ok(answer)
    }));
}

/// Tests of the programs.
pub fn trials() -> Vec<Trial> {
    vec![trial("conformance: programs answer in turn with exit code and output", || {
        let text = r#"{"input": {"datasource": "Azure", "commands": [{"argv": ["a", "b"], "rc": 3, "stdout": "one", "stderr": "e"},
            {"argv": ["a", "b"], "stdout": {"b64": "dHdv"}}]}}"#;
        let case = Case::load(&json::parse("t", text.as_bytes()).unwrap()).unwrap();
        let dir = TempDir::new("conformance-commands");
        let mut root = Root::open(&dir.0, Use::Tree).unwrap();
        play(&case, &mut root);
        let mut run = |words: &[&str]| {
            let output = root.output(Command::new(words.iter().copied())).unwrap();
            (output.status, String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
        };
        assert_eq!(run(&["a", "b"]), (3, "one".into(), "e".into()));
        assert_eq!(run(&["a", "b"]), (0, "two".into(), String::new()));
        assert_eq!(run(&["a", "b"]).1, "two");
        assert_eq!(run(&["c"]), (0, String::new(), String::new()));
    })]
}

/// The tools with their answers: the last words of a command name it, as its program may be anywhere. Whatever is not
/// listed fails.
pub fn tools(case: &Case) -> Tools {
    let commands = list(case, "commands").iter().map(|command| {
        let success = command.get("rc").and_then(Value::as_int).unwrap_or(0) == 0;
        (argv(command), ToolAnswer { success, stdout: stream(command, "stdout") })
    });
    let commands: BTreeMap<Vec<String>, ToolAnswer> = commands.collect();
    Tools::new(move |words, _| {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        Some(commands.get(&words).cloned().unwrap_or_default())
    })
}

/// The commands that change something outside of the machine and were not run: a line each.
pub fn missing_commands(expected: &Value, root: &Root) -> Vec<String> {
    let theirs = expected.get("commands").and_then(Value::as_list).unwrap_or_default().iter();
    let theirs = theirs.map(|c| c.as_list().unwrap_or_default().iter().filter_map(Value::text).collect::<Vec<_>>());
    let changes = |words: &Vec<String>| {
        words.iter().any(|w| w.starts_with("info-set guestinfo.") || w.starts_with("deployPkg.") || w == "arping")
    };
    // A program may be named by its path.
    let name = |word: &String| word.rsplit('/').next().unwrap_or_default().to_owned();
    let named = |words: &[String]| words.split_first().map(|(program, rest)| (name(program), rest.to_vec()));
    let ours: Vec<_> = root.commands().iter().map(|c| named(&c.argv)).collect();
    theirs.filter(changes).filter(|c| !ours.contains(&named(c))).map(|c| format!("not run: {c:?}")).collect()
}

/// Sets variables of the environment: PID 1's.
pub fn set_environment(case: &Case, dir: &Path) {
    let variables = case.input.get("env").and_then(Value::as_map).cloned().unwrap_or_default();
    let pairs = variables.iter().map(|(name, value)| format!("{name}={}\0", value.text().unwrap_or_default()));
    write(dir, "proc/1/environ", pairs.collect::<String>());
}

/// Starts the other end of the serial line, or of a zone's socket, where the machine has one.
pub fn start(case: &Case, dir: &Path) {
    const SOCKET: &str = "native/.zonecontrol/metadata.sock";
    let keys = case.input.at(&["smartos", "keys"]).and_then(Value::as_map).cloned();
    let socket = dir.join(SOCKET);
    if let (Some(keys), true) = (&keys, socket.exists()) {
        fs::remove_file(&socket).expect("the old socket");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let keys = keys.clone();
        std::thread::spawn(move || {
            let Ok((stream, _)) = listener.accept() else { return };
            let write = stream.try_clone().expect("a copy");
            smart_os(&keys, stream, write);
        });
        return;
    }
    let is_smart_os = keys.is_some();
    if is_smart_os && !case.files.iter().any(|(path, _)| path == "/dev/ttyS1") {
        return;
    }
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
    let master = openpt(flags).expect("a terminal");
    grantpt(&master).and_then(|()| unlockpt(&master)).expect("a terminal");
    let other = ptsname(&master, Vec::new()).expect("its name").into_string().expect("UTF-8");
    let port = dir.join("dev/ttyS1");
    drop(fs::remove_file(&port));
    symlink(&other, port).expect("a link");
    // Raw from the start, so that nothing comes back as an echo; and open, so that reading waits.
    let slave = File::options().read(true).write(true).open(&other).expect("the terminal");
    let mut settings = rustix::termios::tcgetattr(&slave).expect("its settings");
    settings.make_raw();
    rustix::termios::tcsetattr(&slave, rustix::termios::OptionalActions::Now, &settings).expect("its settings");
    let read = File::from(master);
    let mut write = read.try_clone().expect("a copy");
    if let Some(keys) = keys {
        // What an earlier program left on the line.
        write.write_all(b"junk\nmore").expect("the terminal");
        std::thread::spawn(move || {
            let _open = slave;
            smart_os(&keys, read, write);
        });
    } else {
        let dialogue: Vec<(String, String)> = list(case, "dialogue")
            .iter()
            .filter_map(|pair| Some((pair.as_list()?.first()?.text()?, pair.as_list()?.get(1)?.text()?)))
            .collect();
        std::thread::spawn(move || {
            let _open = slave;
            cloud_sigma(&dialogue, read, write);
        });
    }
}

/// Joyent's metadata protocol, as the host speaks it.
fn smart_os(keys: &Map, read: impl Read, mut write: impl Write) {
    let frame = |id: &str, answer: &str| {
        let body = format!("{id} {answer}");
        format!("V2 {} {:08x} {body}\n", body.len(), crc32(body.as_bytes()))
    };
    let encoded = |value: String| format!("SUCCESS {}", base64::encode(value.as_bytes()));
    for line in BufReader::new(read).lines() {
        let Ok(line) = line else { return };
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match words[..] {
            ["NEGOTIATE", "V2"] => "V2_OK\n".to_owned(),
            ["V2", _, _, id, "KEYS"] => frame(id, &encoded(keys.keys().collect::<Vec<_>>().join("\n"))),
            ["V2", length, sum, id, "GET", key] => {
                assert_eq!(frame(id, &format!("GET {key}")), format!("V2 {length} {sum} {id} GET {key}\n"));
                let key = base64::decode(key.as_bytes()).and_then(|k| String::from_utf8(k).ok()).unwrap_or_default();
                let value = keys.get(&key).and_then(Value::text);
                frame(id, &value.map_or("NOTFOUND".to_owned(), encoded))
            }
            _ => "invalid command\n".to_owned(),
        };
        if write.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// CloudSigma's server context: a request is `<\n…\n>`.
fn cloud_sigma(dialogue: &[(String, String)], read: impl Read, mut write: impl Write) {
    let mut request = Vec::new();
    for byte in BufReader::new(read).bytes().map_while(Result::ok) {
        request.push(byte);
        let answer = dialogue.iter().find(|(theirs, _)| theirs.as_bytes() == request);
        if let Some((_, answer)) = answer {
            request.clear();
            if write.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }
}
