//! # install_hotplug
//!
//! Installs the udev rule by which network devices that are added later are configured, where `updates` or the datasource
//! asks for that, and removes it where they do not. It needs cloud-init's hook-hotplug and its service in the image.
//!
//! ```yaml
//! updates:
//!   network:
//!     when: [boot-new-instance, hotplug]
//! ```
//!
//! ```schema
//! updates: {network: {when!: [(boot-new-instance boot-legacy boot hotplug)]}}
//! ```

use super::{Module, Role};
use crate::base::error::Result;
use crate::instance::Frequency;
use crate::root::{Attr, Command, Stage};
use crate::system::{Context, hotplug};

const RULE: &str = "/etc/udev/rules.d/90-cloud-init-hook-hotplug.rules";
/// Where distributions have cloud-init's programs.
const FOLDERS: [&str; 2] = ["/usr/libexec/cloud-init", "/usr/lib/cloud-init"];

pub static MODULE: Module = Module {
    name: "install_hotplug",
    stage: Stage::Final,
    frequency: Frequency::Instance,
    live: Some(live),
    offline: true,
    role: Some(Role::Hotplug),
    ..Module::NEW
};

fn live(cx: &mut Context) -> Result<()> {
    let asked = hotplug::asked(cx.config, cx.report);
    if cfg!(not(feature = "tools")) {
        if asked == Some(true) {
            cx.report.warn("updates.network.when: hotplug is not set up: this build of prepivot leaves it out");
        }
        return cx.root.remove(RULE);
    }
    let Some(source) = hotplug::source(cx.root, cx.config, cx.instance, cx.report) else {
        if cx.root.exists(RULE) {
            cx.root.remove(RULE)?;
            return reload(cx);
        }
        if asked == Some(true) {
            cx.report.warn(format_args!(
                "updates.network.when: the datasource {} does not support hotplug: it is not set up",
                cx.instance.source
            ));
        }
        return Ok(());
    };
    if cx.root.which("udevadm").is_none() {
        log::info!("hotplug is not set up: there is no udev");
        return Ok(());
    }
    let Some(folder) = FOLDERS.iter().find(|folder| cx.root.is_file(&format!("{folder}/hook-hotplug"))) else {
        if asked == Some(true) {
            cx.report.warn("updates.network.when: hotplug is not set up: the image has no hook-hotplug of cloud-init");
        }
        return Ok(());
    };
    let text = format!(
        "# By install_hotplug of the cloud-config\nACTION!=\"add\", GOTO=\"cloudinit_end\"\n{}LABEL=\"cloudinit_hook\"\n\
         SUBSYSTEM==\"net\", RUN+=\"{folder}/hook-hotplug\"\nLABEL=\"cloudinit_end\"\n",
        (source.hotplug_rules)(cx.instance)
    );
    cx.root.write(RULE, text, Attr::root(0o644))?;
    reload(cx)
}

fn reload(cx: &mut Context) -> Result<()> {
    cx.root.run(Command::new(cx.stage, ["udevadm", "control", "--reload-rules"]))
}
