//! SmartOS: metadata over a serial port, or a zone's socket.

use super::Source;
use crate::detect::{Facts, Finding, Mark};

pub static SOURCE: Source = Source {
    name: "SmartOS",
    marks: &[Mark::product("SmartDC*"), Mark::Check("/native/.zonecontrol/metadata.sock in a SmartOS zone", zone)],
    ..Source::NEW
};

/// A SmartOS zone: its kernel and its socket. A container within a zone has no socket.
fn zone(facts: &Facts) -> Option<Finding> {
    const SOCKET: &str = "/native/.zonecontrol/metadata.sock";
    let zone = facts.platform.kernel.version == "BrandZ virtual linux";
    if zone && facts.root.exists(SOCKET) { Finding::found(format!("{SOCKET} is there")) } else { None }
}
