//! # byobu
//!
//! Switches byobu, which keeps terminal sessions, on or off: for the default user (`enable-user`, `disable-user`), for the
//! whole system (`enable-system`, `disable-system`; `enable` is the first of them), or for both (`disable`). The package is
//! installed if it is missing.
//!
//! ```yaml
//! byobu_by_default: enable-user
//! ```
//!
//! ```schema
//! byobu_by_default: (enable-system enable-user disable-system disable-user enable disable user system)
//! ```

use super::Module;
use crate::base::error::Result;
use crate::instance::Frequency;
use crate::root::{Command, Stage, installed};
use crate::system::accounts::check_name;
use crate::system::users::Users;
use crate::system::{ModuleContext, packages};

pub static MODULE: Module = Module {
    name: "byobu",
    stage: Stage::Config,
    frequency: Frequency::Instance,
    distros: &["ubuntu", "debian", "raspberry-pi-os"],
    running: Some(running),
    idle: Some(|cx| asked(cx).is_empty()),
    ..Module::NEW
};

/// The requested setting; empty if there is none.
fn asked(cx: &ModuleContext) -> String {
    cx.args.first().cloned().or_else(|| cx.text("byobu_by_default")).unwrap_or_default()
}

fn running(cx: &mut ModuleContext) -> Result<()> {
    let value = asked(cx);
    if value.is_empty() {
        return Ok(());
    }
    if installed::which(cx.root, "byobu").is_none() {
        packages::install(cx, &["byobu".to_owned()])?;
    }
    let (enables, for_user, for_system) = match value.as_str() {
        "user" | "enable-user" => (true, true, false),
        "system" | "enable-system" | "enable" => (true, false, true),
        "disable-user" => (false, true, false),
        "disable-system" => (false, false, true),
        "disable" => (false, true, true),
        _ => {
            cx.report
                .warn("byobu_by_default: expected user, system, or enable or disable, alone or with -user or -system");
            return Ok(());
        }
    };
    let mut script = String::new();
    if for_user {
        match Users::of(cx).default {
            Some(user) => {
                check_name("user", &user)?;
                let verb = if enables { "install" } else { "uninstall" };
                script.push_str(&format!(" sudo -Hu \"{user}\" byobu-launcher-{verb} || X=$(($X+1)); "));
            }
            None => cx.report.warn("byobu_by_default: there is no default user"),
        }
    }
    if for_system {
        script.push_str(&format!(
            "echo \"byobu byobu/launch-by-default boolean {enables}\" | debconf-set-selections \
             && dpkg-reconfigure byobu --frontend=noninteractive || X=$(($X+1)); "
        ));
    }
    if script.is_empty() {
        return Ok(());
    }
    cx.root.run(Command::new(["/bin/sh", "-c", &format!("X=0; {script} exit $X")]))
}
