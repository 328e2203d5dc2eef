//! # raspberry_pi
//!
//! Switches interfaces of a Raspberry Pi on and off with raspi-config, and its USB gadget mode with rpi-usb-gadget. A change needs
//! a reboot, which comes when the stage has ended.
//!
//! `serial: true` is the console; on boards before the Raspberry Pi 5 the console needs the hardware too, which is switched on with
//! it.
//!
//! ```yaml
//! rpi:
//!   interfaces:
//!     spi: true
//!     serial: {console: false, hardware: true}
//!   enable_usb_gadget: true
//! ```
//!
//! ```schema
//! rpi: {
//!  interfaces: {
//!   spi, i2c, onewire: bool
//!   serial: bool | {console, hardware: bool  ...}
//!   ...
//!  }
//!  enable_usb_gadget: bool
//!  ...
//! }
//! ```

use super::Module;
use crate::base::error::Result;
use crate::document::{Map, Value, wrong};
use crate::instance::Frequency;
use crate::root::{Command, Stage};
use crate::system::ModuleContext;
use std::time::Duration;

pub(super) const CONFIG: &str = "/usr/bin/raspi-config";
const GADGET: &str = "/usr/bin/rpi-usb-gadget";
/// How long the switch of the USB gadget may take.
const GADGET_LIMIT: Duration = Duration::from_secs(30);
const MESSAGE: &str = "Rebooting to apply config.txt changes...";

pub static MODULE: Module = Module {
    name: "raspberry_pi",
    stage: Stage::Config,
    frequency: Frequency::Instance,
    keys: &["rpi"],
    distros: &["raspberry-pi-os"],
    running: Some(running),
    offline: true,
    ..Module::NEW
};

fn running(cx: &mut ModuleContext) -> Result<()> {
    let Some(section) = cx.map("rpi") else { return Ok(()) };
    let mut changed = false;
    for (key, value) in section.iter() {
        changed |= match (key, value) {
            ("enable_usb_gadget", Value::Bool(on)) => gadget(cx, *on),
            ("enable_usb_gadget", other) => return Err(wrong("rpi.enable_usb_gadget", "true or false", other)),
            ("interfaces", Value::Map(interfaces)) => switch_all(cx, interfaces),
            ("interfaces", other) => {
                cx.report.warn(wrong("rpi.interfaces", "a mapping", other));
                false
            }
            _ => {
                cx.report.warn(format_args!("rpi.{key}: there is no such key: it is ignored"));
                false
            }
        };
    }
    if changed {
        cx.root.at_end(None, Command::new(["shutdown", "-r", "now", MESSAGE]));
    }
    Ok(())
}

/// Runs a command; a failure is an error of the report. Whether it succeeded.
pub(super) fn done(cx: &mut ModuleContext, command: Command) -> bool {
    let result = cx.root.run(command);
    cx.report.keep(result).is_some()
}

fn gadget(cx: &mut ModuleContext, on: bool) -> bool {
    if !cx.root.is_file(GADGET) {
        cx.report.error(format_args!("rpi.enable_usb_gadget: there is no program {GADGET}"));
        return false;
    }
    // Boards that do not support it too: the card may go into another one.
    let word = if on { "on" } else { "off" };
    done(cx, Command::new([GADGET, word, "-f"]).limit(GADGET_LIMIT))
}

fn switch_all(cx: &mut ModuleContext, interfaces: &Map) -> bool {
    let mut changed = false;
    for (name, value) in interfaces.iter() {
        changed |= match (name, value) {
            ("spi" | "i2c" | "onewire", Value::Bool(on)) => switch(cx, &format!("do_{name}"), *on),
            ("spi" | "i2c" | "onewire", other) => {
                cx.report.warn(wrong(&format!("rpi.interfaces.{name}"), "true or false", other));
                false
            }
            ("serial", Value::Bool(console)) => serial(cx, &Serial { console: *console, hardware: false }),
            ("serial", Value::Map(map)) => {
                let [console, hardware] = ["console", "hardware"].map(|key| match map.get(key) {
                    None => false,
                    Some(Value::Bool(on)) => *on,
                    Some(other) => {
                        cx.report.warn(wrong(&format!("rpi.interfaces.serial.{key}"), "true or false", other));
                        false
                    }
                });
                serial(cx, &Serial { console, hardware })
            }
            ("serial", other) => {
                cx.report.warn(wrong("rpi.interfaces.serial", "true, false or a mapping", other));
                false
            }
            _ => {
                cx.report.warn(format_args!("rpi.interfaces.{name}: there is no such interface: it is ignored"));
                false
            }
        };
    }
    changed
}

/// raspi-config's 0 is on.
fn switch(cx: &mut ModuleContext, function: &str, on: bool) -> bool {
    done(cx, Command::new([CONFIG, "nonint", function, if on { "0" } else { "1" }]))
}

/// The uses of the serial port that are asked for.
struct Serial {
    console: bool,
    hardware: bool,
}

fn serial(cx: &mut ModuleContext, asked: &Serial) -> bool {
    let Serial { console, hardware } = *asked;
    let answer = cx.root.output(Command::new([CONFIG, "nonint", "is_pifive"]));
    let pi_5 = answer.is_ok_and(|out| out.status == 0);
    switch(cx, "do_serial_cons", console) && switch(cx, "do_serial_hw", hardware || (console && !pi_5))
}
