//! `completions`: what the shells offer.

use super::*;

/// Lines to complete, with what must be among the offers and what must not. `""` is a word that is yet to be typed.
const LINES: [(&[&str], &[&str], &[&str]); 12] = [
    (&["prepivot", ""], &["status", "plan", "--all-stages", "-v"], &["completions", "render", "--long"]),
    (&["prepivot", "st"], &["status"], &["plan"]),
    (&["prepivot", "-d", "sta"], &["status"], &["clean"]),
    (&["/usr/bin/cloud-init", "status", "--"], &["--wait", "--format"], &["--json"]),
    (&["prepivot", "status", "--format", ""], &["tabular", "json", "yaml"], &["--wait"]),
    (&["prepivot", "status", "--format", "=", "j"], &["json"], &["yaml"]),
    (&["prepivot", "status", "--format", "="], &["json", "yaml"], &["--wait"]),
    (&["prepivot", "clean", "-c", "network", ""], &["fstab", "--seed"], &["status"]),
    (&["prepivot", "query", "-i", ""], &[], &["--all", "status"]),
    (&["cloud-init", "devel", "hotplug-hook", "handle", "-u", ""], &["add", "remove"], &["-d"]),
    (&["cloud-id", "--"], &["--long", "--instance-data"], &["--version"]),
    (&["cloud-init-per", "o"], &["once"], &["instance"]),
];

#[test]
fn bash_offers_verbs_options_and_values() {
    let dir = TempDir::new("cli-completions");
    dir.write("bash", &run(&["completions", "bash"]).out);
    let script = "source \"$1\"; shift; COMP_WORDS=(\"$@\") COMP_CWORD=$(($# - 1))
        _prepivot \"$1\" \"${@: -1}\" \"${@: -2:1}\"; printf '%s\\n' \"${COMPREPLY[@]}\"";
    for (words, offered, not) in LINES {
        let mut command = Command::new("bash");
        command.args(["--norc", "-c", script, "bash"]).arg(dir.0.join("bash")).args(words);
        let Ok(output) = command.output() else {
            prepivot::base::testing::skip("there is no bash");
            return;
        };
        let answer = answer(output);
        assert_eq!((answer.code, answer.err.as_str()), (0, ""), "{words:?}");
        let got: Vec<&str> = answer.out.lines().collect();
        offered.iter().for_each(|word| assert!(got.contains(word), "{words:?}: {word} in {got:?}"));
        not.iter().for_each(|word| assert!(!got.contains(word), "{words:?}: no {word} in {got:?}"));
    }
}

#[test]
fn scripts_are_valid() {
    let dir = TempDir::new("cli-completions-syntax");
    for shell in ["bash", "zsh", "fish"] {
        dir.write(shell, &run(&["completions", shell]).out);
        match Command::new(shell).arg("-n").arg(dir.0.join(shell)).output().map(answer) {
            Ok(answer) => assert_eq!((answer.code, answer.err.as_str()), (0, ""), "{shell}"),
            Err(_) => prepivot::base::testing::skip(format!("there is no {shell}")),
        }
    }
    assert_eq!(run(&["completions", "csh"]).code, 2);
    assert_eq!(run(&["completions"]).code, 2);
}
