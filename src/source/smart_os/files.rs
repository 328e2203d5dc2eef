//! The scripts and data that SmartOS guests keep in files.

use crate::base::error::Result;
use crate::document::Value;
use crate::instance::{Instance, state};
use crate::root::{Attr, Root};
use crate::source::table::Live;

/// The folders where SmartOS guests expect them.
const USER_DATA: &str = "/var/db/mdata-user-data";
const USER_SCRIPT: &str = "/var/db/user-script";
/// The host watches this folder of a zone: when the first file is renamed to the second, the zone is
/// provisioned.
const PROVISIONING: &str = "/var/svc/provisioning";
const PROVISIONED: &str = "/var/svc/provision_success";

fn script(instance: &Instance, name: &str) -> String {
    format!("{}/data/{name}", state::folder(instance))
}

/// Vendor-data for a machine whose provider sends none: a boothook that runs the two scripts on each boot.
pub fn runner(instance: &Instance) -> String {
    const RUNNER: &str = "/var/lib/cloud/scripts/per-boot/01_smartos_vendor_data.sh";
    let scripts = ["operator-script", "user-script"].map(|name| format!("\"{}\"", script(instance, name)));
    let scripts = scripts.join(" ");
    format!(
        "#cloud-boothook\n#!/bin/sh\n# Installs the script that runs SmartOS's operator-script and user-script.\nset -e\n\
         mkdir -p /var/lib/cloud/scripts/per-boot\ncat > {RUNNER} <<'END'\n#!/bin/sh\nfor script in {scripts}; do\n    \
         if [ -x \"$script\" ]; then \"$script\"; fi\ndone\nEND\nchmod 0755 {RUNNER}\n"
    )
}

/// Writes the files, removes those that the host no longer has, and reports to the host that the zone is
/// provisioned.
///
/// # Errors
/// A file cannot be written or removed.
pub fn write(live: &mut Live) -> Result<()> {
    let text = |key: &str| live.instance.metadata.get(key).and_then(Value::as_str).filter(|t| !t.is_empty());
    let user_script = script(live.instance, "user-script");
    let content = text("user-script").map(|script| match script.starts_with("#!") {
        true => script.to_owned(),
        false => format!("#!/bin/bash\n{script}"),
    });
    let has_script = content.is_some();
    put(live.root, &user_script, content.as_deref(), 0o700)?;
    put(live.root, &script(live.instance, "operator-script"), text("operator-script"), 0o700)?;
    put(live.root, USER_DATA, text("legacy-user-data"), 0o400)?;
    if has_script {
        live.root.symlink(USER_SCRIPT, &user_script)?;
    } else if live.root.read_link(USER_SCRIPT).is_some() {
        live.root.remove(USER_SCRIPT)?;
    }
    if let Some(content) = live.root.read(PROVISIONING)? {
        live.root.write(PROVISIONED, content, Attr::root(0o644))?;
        live.root.remove(PROVISIONING)?;
    }
    live.root.commit().into_iter().next().map_or(Ok(()), Err)
}

fn put(root: &mut Root, path: &str, content: Option<&str>, mode: u32) -> Result<()> {
    match content {
        Some(content) => root.write(path, content, Attr::root(mode)),
        None if root.exists(path) => root.remove(path),
        None => Ok(()),
    }
}
