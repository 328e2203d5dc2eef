//! Reads instance-data and the files named on the command line.

use super::program::is_root;
use crate::base::error::{Context, Error, Result};
use crate::document::{Value, json};
use crate::instance::instance_data::SENSITIVE_FILE;
use crate::instance::state::RUN_DIR;
use crate::root::{MAX_READ, Root};
use crate::userdata::jinja;
use std::io::Read;

/// The content of a file of this system.
///
/// # Errors
/// The file cannot be read, or is larger than [`MAX_READ`].
pub fn read(path: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).context(|| format!("failed to open {path}"))?;
    file.take(MAX_READ + 1).read_to_end(&mut bytes).context(|| format!("failed to read {path}"))?;
    if bytes.len() as u64 > MAX_READ {
        return Err(Error::new(format!("failed to read {path}: larger than {MAX_READ} bytes")));
    }
    Ok(bytes)
}

/// Whether there is a file of this system at `path`.
pub fn exists(path: &str) -> bool {
    std::path::Path::new(path).exists()
}

/// The content of a file of this system as text.
///
/// # Errors
/// The file cannot be read, is larger than [`MAX_READ`], or is not UTF-8.
pub fn text(path: &str) -> Result<String> {
    String::from_utf8(read(path)?).map_err(|_| Error::new(format!("{path}: not UTF-8")))
}

/// Instance-data: the file `named`, else the root's; root gets the one with secrets.
///
/// # Errors
/// It does not exist, cannot be read, or is not JSON.
pub fn instance_data(root: &Root, named: Option<&str>) -> Result<Value> {
    if let Some(path) = named {
        return json::parse(path, &read(path)?);
    }
    let public = format!("{RUN_DIR}/instance-data.json");
    if is_root() {
        let sensitive = format!("{RUN_DIR}/{SENSITIVE_FILE}");
        if let Some(bytes) = root.read(&sensitive)? {
            return json::parse(&sensitive, &bytes);
        }
        log::warn!("{sensitive} is missing: {public} is used, where secrets are redacted");
    }
    match root.read(&public)? {
        Some(bytes) => json::parse(&public, &bytes),
        None => Err(Error::new(format!("{public} is missing: nothing was provisioned in this boot"))),
    }
}

/// Renders the template `body`, called `name` in messages, and warns about undefined variables.
///
/// # Errors
/// The template fails, or its result is empty.
pub fn render(name: &str, body: &str, data: &Value) -> Result<String> {
    let rendered = jinja::render(body, data).map_err(|e| e.context(name))?;
    if let Some(warning) = rendered.warning(name) {
        log::warn!("{warning}");
    }
    match rendered.text.as_str() {
        "" => Err(Error::new(format!("{name}: nothing comes of the template"))),
        _ => Ok(rendered.text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates() {
        let data = json::parse("t", br#"{"v1": {"cloud-name": "x"}}"#).unwrap();
        assert_eq!(render("T", "{{ v1.cloud_name }}-{{ cloud_name }}", &data).unwrap(), "x-x");
        assert_eq!(render("T", "{{ nope }}", &data).unwrap(), "CI_MISSING_JINJA_VAR/nope");
        assert!(render("T", "{{", &data).unwrap_err().to_string().starts_with("T: the template fails"));
        assert!(render("T", "{{ '' }}", &data).is_err());
    }
}
