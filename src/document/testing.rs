//! Shared by the tests: the conformance vectors.

use super::{Value, json};
use crate::base::testing::skip;
use std::path::PathBuf;

/// The conformance vectors' file `name`, parsed. They are kept beside the project, not in it: the folder is
/// `PREPIVOT_VECTORS`, else `../shared/vectors`.
///
/// # Errors
/// The reason, if they are missing.
pub fn find_vectors(name: &str) -> Result<Value, String> {
    let folder = std::env::var_os("PREPIVOT_VECTORS").map_or_else(|| PathBuf::from("../shared/vectors"), PathBuf::from);
    let bytes = std::fs::read(folder.join(name)).map_err(|e| format!("no {name} in {}: {e}", folder.display()))?;
    Ok(json::parse(name, &bytes).expect("the vectors are valid JSON"))
}

/// [`find_vectors`]; None, with the test recorded as skipped, if they are missing.
pub fn vectors(name: &str) -> Option<Value> {
    find_vectors(name).map_err(skip).ok()
}
