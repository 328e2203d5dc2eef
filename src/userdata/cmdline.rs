//! Cloud-config on the kernel command line: `cc: YAML end_cc`, which may occur several times.

use crate::base::percent;
use crate::base::problem::Problems;
use crate::document::{Map, Value, wrong, yaml};

const BEGIN: &str = " cc:";
const END: &str = "end_cc";
/// Its name in errors.
pub const NAME: &str = "cc: on the kernel command line";

/// The cloud-config on a kernel command line. Each piece ends at `end_cc` or at the end; percent escapes and
/// `\n` are decoded, and all pieces are parsed as one YAML document. An invalid one is reported and ignored.
pub fn from_cmdline(cmdline: &str, report: &Problems) -> Map {
    let cmdline = format!(" {cmdline}");
    let mut pieces = Vec::new();
    let mut rest = cmdline.as_str();
    while let Some((_, begun)) = rest.split_once(BEGIN) {
        let (piece, after) = begun.split_once(END).unwrap_or((begun, ""));
        let decoded = percent::decode(piece.trim_start());
        pieces.push(String::from_utf8_lossy(&decoded).replace("\\n", "\n"));
        rest = after;
    }
    let parsed = yaml::parse(NAME, &pieces.join("\n")).and_then(|value| match value {
        Value::Map(map) => Ok(map),
        Value::Null => Ok(Map::new()),
        other => Err(wrong(NAME, "a mapping", &other)),
    });
    parsed.unwrap_or_else(|e| {
        report.warn(format_args!("ignored: {e}"));
        Map::new()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    #[test]
    fn pieces() {
        for (cmdline, config) in [
            ("root=/dev/sda ro", "{}"),
            ("cc: ssh_import_id: [smoser, kirkland]\\n", r#"{"ssh_import_id":["smoser","kirkland"]}"#),
            (
                "ro cc: ssh_import_id: [smoser, bob]\\nruncmd: [ [ ls, -l ], echo hi ] end_cc quiet",
                r#"{"ssh_import_id":["smoser","bob"],"runcmd":[["ls","-l"],"echo hi"]}"#,
            ),
            (
                "cc:ssh_import_id: [smoser] end_cc cc:runcmd: [ [ ls, -l ] ] end_cc",
                r#"{"ssh_import_id":["smoser"],"runcmd":[["ls","-l"]]}"#,
            ),
            ("cc:ssh_import_id: %5Bsmoser%5D end_cc", r#"{"ssh_import_id":["smoser"]}"#),
            ("xcc: a: 1", "{}"),
            ("cc: [a]", "{}"),
            ("cc: a: [", "{}"),
        ] {
            assert_eq!(json::to_string(&Value::Map(from_cmdline(cmdline, &Problems::new()))), config, "{cmdline}");
        }
    }
}
