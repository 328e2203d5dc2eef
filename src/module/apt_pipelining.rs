//! # apt_pipelining
//!
//! Sets how many requests APT sends without waiting for an answer: a number from 0 to 5, or `false` for 0. `os` leaves it
//! as it is.
//!
//! ```yaml
//! apt_pipelining: false
//! ```
//!
//! ```schema
//! apt_pipelining: int | bool | (os) | (none unchanged) ~22.4 os
//! ```

use super::Module;
use crate::base::error::Result;
use crate::instance::Frequency;
use crate::root::{Attr, Stage};
use crate::system::ModuleContext;

const FILE: &str = "/etc/apt/apt.conf.d/90cloud-init-pipelining";

pub static MODULE: Module = Module {
    name: "apt_pipelining",
    stage: Stage::Config,
    frequency: Frequency::Instance,
    keys: &["apt_pipelining"],
    distros: &["ubuntu", "debian", "raspberry-pi-os"],
    before_pivot: Some(before_pivot),
    ..Module::NEW
};

fn before_pivot(cx: &mut ModuleContext) -> Result<()> {
    let value = cx.text("apt_pipelining").unwrap_or("os".into()).trim().to_ascii_lowercase();
    let depth = match value.as_str() {
        "false" => "0",
        "0" | "1" | "2" | "3" | "4" | "5" => &value,
        "none" | "unchanged" | "os" => return Ok(()),
        _ => {
            cx.report.warn("apt_pipelining: expected os, none, unchanged, false or a number from 0 to 5");
            return Ok(());
        }
    };
    let text = format!("// By apt_pipelining of the cloud-config\nAcquire::http::Pipeline-Depth \"{depth}\";\n");
    cx.root.write(FILE, text, Attr::root(0o644))
}
