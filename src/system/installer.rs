//! Downloads and runs installers for modules.

use super::{ModuleContext, WebRequest, service};
use crate::base::error::Result;
use crate::root::{Attr, Command};

/// The largest installer, in bytes.
const MAX_INSTALLER: usize = 8 << 20;

/// Downloads the script at `url` in up to `tries` tries, and runs it with `arguments`. While it runs it is in
/// the instance's folder, which only root can access, in a file called `name`.
///
/// # Errors
/// It cannot be downloaded, or fails.
pub fn run(cx: &mut ModuleContext, name: &str, url: &str, tries: u32, arguments: &[String]) -> Result<()> {
    let folder = format!("{}/installer", cx.instance_dir());
    let path = format!("{folder}/{name}");
    let mut script = Vec::new();
    if cx.root.runs_commands() || cx.root.is_plan() {
        let request = WebRequest {
            method: "GET",
            url: url.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            limit: MAX_INSTALLER,
        };
        script = service::send(cx, &request, tries)?.unwrap_or_default();
    }
    cx.root.mkdir(&folder, Attr::root(0o700))?;
    cx.root.write(&path, script, Attr::root(0o700))?;
    let argv = [path].into_iter().chain(arguments.iter().cloned());
    let result = cx.root.run(Command::new(argv));
    cx.root.remove(&folder)?;
    result
}
