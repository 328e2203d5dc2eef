//! Documents of systemd's IMDS units (systemd 261, systemd-imds(8)): JSON with credentials, which this program hands on as
//! those units do.

use crate::base::error::{Error, Result};
use crate::document::{Value, json};

/// The key of the cloud-config for the same.
pub const KEY: &str = "systemd_credentials";
/// The first line that such a document may have.
const HEADER: &[u8] = b"#systemd-userdata";
const CREDENTIALS: &str = "systemd.credentials";

/// The list of credentials in a document. None if it is no such document, or has none and is somebody else's JSON.
pub fn credentials(document: &[u8]) -> Option<Result<Value>> {
    if !cfg!(feature = "trust") || document.contains(&0) {
        return None;
    }
    let (has_header, body) = match document.strip_prefix(HEADER) {
        Some(rest) => {
            let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            let (line, body) = rest.split_at_checked(end)?;
            (line.trim_ascii().is_empty(), body)
        }
        None => (false, document),
    };
    let start: Vec<u8> = body.iter().copied().filter(|b| !b.is_ascii_whitespace()).take(2).collect();
    if !has_header && !matches!(start.as_slice(), b"{\"" | b"{}") {
        return None;
    }
    let found = json::parse("the document", body).map(|document| document.get(CREDENTIALS).cloned());
    match found {
        Ok(Some(list)) => Some(Ok(list)),
        Ok(None) if has_header => Some(Ok(Value::List(Vec::new()))),
        Err(e) if has_header => Some(Err(e)),
        Ok(None) => None,
        Err(_) if contains(body, CREDENTIALS) => Some(Err(Error::new("it is not valid JSON"))),
        Err(_) => None,
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[cfg(all(test, feature = "trust"))]
mod tests {
    use super::*;

    #[test]
    fn documents_are_known_as_systemd_knows_them() {
        let list = r#"[{"name":"a","text":"b"}]"#;
        let of = |text: &str| credentials(text.as_bytes()).map(|found| found.map(|v| json::to_string(&v)).ok());
        let whole = format!(r#"{{"systemd.credentials":{list},"other":1}}"#);
        for document in
            [whole.clone(), format!("#systemd-userdata\n{whole}"), format!("#systemd-userdata  \r\n {whole}\n")]
        {
            assert_eq!(of(&document), Some(Some(list.to_owned())), "{document}");
        }
        assert_eq!(of("#systemd-userdata\n{}"), Some(Some("[]".into())));
        for document in ["#systemd-userdata\n{", "{\"systemd.credentials\": ["] {
            assert_eq!(of(document), Some(None), "{document}");
        }
        for document in
            ["", "{}", "{\"a\": 1}", "{a: 1}", "#systemd-userdatax\n[]", "#cloud-config\n{}", &format!("{whole}\0")]
        {
            assert_eq!(of(document), None, "{document}");
        }
    }
}
