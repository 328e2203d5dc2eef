//! Shared by the unit tests of the readers and renderers.

use crate::base::problem::Problems;
use crate::document::yaml;
use crate::machine::Distro;
use crate::network::mac::Macs;
use crate::network::model::Network;
use crate::network::read::config;
use crate::network::render::{File, Renderer, Target};

/// The model of a version 1 or 2 configuration in YAML, on a machine without devices.
pub fn network(text: &str) -> Network {
    network_for(text, &Macs::default())
}

/// The same on a machine with these devices.
pub fn network_for(text: &str, macs: &Macs) -> Network {
    config::read("t", &yaml::parse("t", text).unwrap(), macs, &Problems::new()).unwrap()
}

/// A root of this distribution that has the `ip` program.
pub fn target(distro: &str) -> Target {
    Target { distro: Distro::named(distro), ip_tool: true, old_netplan: false }
}

/// The files of `renderer` for a configuration in YAML.
pub fn files(renderer: &Renderer, text: &str, distro: &str) -> Vec<File> {
    renderer.files(&network(text), &target(distro), &Problems::new())
}
