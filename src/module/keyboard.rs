//! # keyboard
//!
//! Sets the layout of the keyboard: /etc/default/keyboard on Debian and its relatives, localectl with systemd elsewhere,
//! setup-keymap on Alpine, which needs a variant.
//!
//! ```yaml
//! keyboard:
//!   layout: de
//!   model: pc105
//!   variant: nodeadkeys
//!   options: compose:rwin
//! ```
//!
//! ```schema
//! keyboard: {layout!, model, variant, options: str}
//! ```

use super::{Module, raspberry_pi};
use crate::base::error::{Error, Result};
use crate::document::{Value, wrong};
use crate::instance::Frequency;
use crate::machine::Family;
use crate::root::{Attr, Command, Stage, installed};
use crate::system::ModuleContext;
use crate::system::service::{self, Action};

const FILE: &str = "/etc/default/keyboard";
const ALPINE_MAPS: &str = "/usr/share/bkeymaps";

pub static MODULE: Module = Module {
    name: "keyboard",
    stage: Stage::Config,
    frequency: Frequency::Instance,
    keys: &["keyboard"],
    #[rustfmt::skip]
    distros: &[
        "alpine", "arch", "debian", "ubuntu", "raspberry-pi-os", "almalinux", "amazon", "azurelinux", "centos",
        "cloudlinux", "eurolinux", "fedora", "mariner", "miraclelinux", "openmandriva", "photon", "rhel",
        "rocky", "virtuozzo", "opensuse", "opensuse-leap", "opensuse-microos", "opensuse-tumbleweed", "sle_hpc",
        "sle-micro", "sles", "suse",
    ],
    before_pivot: Some(before_pivot),
    running: Some(running),
    offline: true,
    ..Module::NEW
};

struct Keyboard {
    layout: String,
    model: String,
    variant: String,
    options: String,
}

fn keyboard(cx: &mut ModuleContext) -> Result<Option<Keyboard>> {
    let Some(map) = cx.map("keyboard") else { return Ok(None) };
    // The file is read by shells, so only characters that are not special to one are accepted.
    let name = |key: &str, default: &str| match map.get(key).filter(|v| !v.is_null()) {
        None => Ok(default.to_owned()),
        Some(value) => match value.as_str() {
            Some(s) if s.chars().all(|c| c.is_ascii_alphanumeric() || "_:,().+- ".contains(c)) => Ok(s.to_owned()),
            Some(_) => Err(Error::new(format!("keyboard.{key}: not the name of a keyboard's {key}"))),
            None => Err(wrong(&format!("keyboard.{key}"), "a string", value)),
        },
    };
    let model = if cx.distro.family == Family::Alpine { "" } else { "pc105" };
    let keyboard = Keyboard {
        layout: name("layout", "")?,
        model: name("model", model)?,
        variant: name("variant", "")?,
        options: name("options", "")?,
    };
    if keyboard.layout.is_empty() {
        return Err(wrong("keyboard.layout", "the name of a layout", map.get("layout").unwrap_or(&Value::Null)));
    }
    Ok(Some(keyboard))
}

fn before_pivot(cx: &mut ModuleContext) -> Result<()> {
    let Some(keyboard) = keyboard(cx)? else { return Ok(()) };
    if cx.distro.family != Family::Debian {
        return Ok(());
    }
    let Keyboard { layout, model, variant, options } = keyboard;
    let text = format!(
        "# See keyboard(5).\n\nXKBMODEL=\"{model}\"\nXKBLAYOUT=\"{layout}\"\nXKBVARIANT=\"{variant}\"\n\
         XKBOPTIONS=\"{options}\"\n\nBACKSPACE=\"guess\"\n"
    );
    cx.root.write(FILE, text, Attr::root(0o644))
}

/// Has the desktop of a Raspberry Pi, its on-screen keyboard and the present devices use the file's layout (cloud-init
/// 26.2, raspberry_pi_os.py, `set_keymap`).
fn set_on_pi(cx: &mut ModuleContext) -> Result<()> {
    let program = raspberry_pi::CONFIG;
    for words in
        [&[program, "nonint", "update_labwc_keyboard"][..], &[program, "nonint", "update_squeekboard", "restart"]]
    {
        raspberry_pi::done(cx, Command::new(words.iter().copied()));
    }
    service::manage(cx, Action::Restart, "keyboard-setup")?;
    if installed::which(cx.root, "udevadm").is_none() {
        return Ok(());
    }
    let words = ["udevadm", "trigger", "--subsystem-match=input", "--action=change"];
    cx.root.run(Command::new(words))
}

fn running(cx: &mut ModuleContext) -> Result<()> {
    let Some(keyboard) = keyboard(cx)? else { return Ok(()) };
    let Keyboard { layout, model, variant, options } = keyboard;
    match cx.distro.family {
        Family::Debian => {
            service::manage(cx, Action::Restart, "console-setup")?;
            if cx.distro.name == "raspberry-pi-os" { set_on_pi(cx) } else { Ok(()) }
        }
        Family::Alpine => {
            let map = format!("{ALPINE_MAPS}/{layout}/{variant}.bmap.gz");
            if layout.contains('/') || variant.is_empty() || !cx.root.is_file(&map) {
                return Err(Error::new(format!(
                    "keyboard: there is no {map}: layout and variant must name a file there (is kbd-bkeymaps installed?)"
                )));
            }
            if !model.is_empty() || !options.is_empty() {
                cx.report.warn("keyboard: model and options have no effect on Alpine");
            }
            cx.root.run(Command::new(["setup-keymap", &layout, &variant]))
        }
        _ if service::uses_systemd(cx.root, cx.distro) => {
            cx.root.run(Command::new(["localectl", "set-x11-keymap", &layout, &model, &variant, &options]))
        }
        _ => Ok(()),
    }
}
