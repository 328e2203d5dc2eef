//! Paths of the logs, for `clean` and `collect-logs`.

use crate::document::Value;
use crate::root::{CLOUD_INIT_LOG, Root};

/// Logs that exist in every configuration.
const LOGS: [&str; 2] = [CLOUD_INIT_LOG, "/var/log/cloud-init-output.log"];

/// cloud-init's own logs and those named in the configuration (`def_log_file`, `output`), each with its
/// rotated files.
pub fn paths(root: &Root, config: &Value) -> Vec<String> {
    let mut logs: Vec<String> = LOGS.map(str::to_owned).to_vec();
    logs.extend(config.get("def_log_file").and_then(Value::as_str).map(str::to_owned));
    config.get("output").into_iter().for_each(|output| targets(output, &mut logs));
    logs.retain(|path| path.starts_with('/'));
    let mut found = Vec::new();
    for log in &logs {
        let Some((folder, name)) = log.rsplit_once('/') else { continue };
        let names = root.list(folder).into_iter().filter(|n| n.strip_prefix(name).is_some_and(is_rotated));
        found.extend(names.map(|n| format!("{folder}/{n}")).filter(|path| root.is_file(path)));
    }
    found.sort();
    found.dedup();
    found
}

/// Whether `rest` follows the name of a rotated log (`.1`, `-20261120.gz`), or is empty, as for the log itself.
fn is_rotated(rest: &str) -> bool {
    rest.is_empty() || rest.strip_prefix(['.', '-']).is_some_and(|r| r.starts_with(|c: char| c.is_ascii_digit()))
}

/// Adds the files that `output` names: `> FILE`, `>> FILE`, `| tee -a FILE`.
fn targets(output: &Value, logs: &mut Vec<String>) {
    match output {
        Value::Map(map) => map.iter().for_each(|(_, value)| targets(value, logs)),
        Value::List(list) => list.iter().for_each(|value| targets(value, logs)),
        Value::String(text) => {
            let words: Vec<&str> = text.split_whitespace().collect();
            match words.as_slice() {
                [">" | ">>", file] | ["|", "tee", "-a", file] => logs.push((*file).to_owned()),
                [word] => logs.extend(word.strip_prefix('>').map(|w| w.trim_start_matches('>').to_owned())),
                _ => {}
            }
        }
        _ => {}
    }
}
