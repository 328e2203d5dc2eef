//! # install_hotplug
//!
//! Installs the udev rule that has network devices configured that are added later, if `updates` or the datasource asks for that;
//! else removes it. The rule writes a line for cloud-init-hotplugd.socket, whose service runs `devel hotplug-hook handle`: that
//! needs systemd. Devices that come before the socket are the boot's own.
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
use crate::root::{Attr, Command, Stage, installed};
use crate::system::hotplug::{self, RULE};
use crate::system::{ModuleContext, service};

const SOCKET: &str = "cloud-init-hotplugd.socket";
/// The rule's action. It starts no program before the FIFO of the socket exists. The environment has the name that udev gives the
/// device. The FIFO is opened for reading too, so that the shell waits for no reader.
const HOOK: &str = "SUBSYSTEM==\"net\", TEST==\"/run/cloud-init/share/hook-hotplug-cmd\", RUN+=\"/bin/sh -c \
                    'echo --subsystem=net handle --devpath=$$DEVPATH --udevaction=add \
                    1<>/run/cloud-init/share/hook-hotplug-cmd'\"\n";

pub static MODULE: Module = Module {
    name: "install_hotplug",
    stage: Stage::Final,
    frequency: Frequency::Instance,
    running: Some(running),
    offline: true,
    role: Some(Role::Hotplug),
    ..Module::NEW
};

fn running(cx: &mut ModuleContext) -> Result<()> {
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
    if installed::which(cx.root, "udevadm").is_none() {
        log::info!("hotplug is not set up: there is no udev");
        return Ok(());
    }
    if !service::uses_systemd(cx.root, cx.distro) {
        if asked == Some(true) {
            cx.report.warn("updates.network.when: hotplug is not set up: it needs systemd");
        }
        return Ok(());
    }
    let text = format!(
        "# By install_hotplug of the cloud-config\nACTION!=\"add\", GOTO=\"cloudinit_end\"\n{}LABEL=\"cloudinit_hook\"\n{HOOK}\
         LABEL=\"cloudinit_end\"\n",
        (source.hotplug.rules)(cx.instance)
    );
    cx.root.write(RULE, text, Attr::root(0o644))?;
    let (own, vendor) = installed::unit_folders(cx.root);
    if ![own, "/run/systemd/system"].iter().chain(&vendor).any(|folder| cx.root.exists(&format!("{folder}/{SOCKET}"))) {
        // The initramfs writes it if the rule exists.
        log::info!("added network devices are configured from the next boot on: {SOCKET} is missing in this one");
    }
    reload(cx)
}

fn reload(cx: &mut ModuleContext) -> Result<()> {
    cx.root.run(Command::new(["udevadm", "control", "--reload-rules"]))
}
