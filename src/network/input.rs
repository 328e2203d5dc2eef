//! Where a network configuration comes from, and which of several counts.

use super::model::{Macs, Network};
use super::read;
use crate::base::base64;
use crate::base::error::{Context, Error, Result};
use crate::document::{Map, Value, yaml};
use std::fmt;
use std::io::Read;

/// A network configuration as it was given.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// Version 1 or 2, with or without `network:` above it.
    Config(Value),
    /// OpenStack's network_data.json.
    NetworkData(Value),
    /// The text of /etc/network/interfaces.
    Interfaces(String),
}

impl Input {
    /// Reads it for a machine with these devices. `document` names it in messages.
    pub fn read(&self, document: &str, macs: &Macs) -> Result<Network> {
        match self {
            Input::Config(value) => read::config(document, value, macs),
            Input::NetworkData(value) => read::openstack::read(value, macs),
            Input::Interfaces(text) => Ok(read::eni::read(text)),
        }
    }

    /// Whether it says that the network is not to be configured.
    pub fn is_disabled(&self) -> bool {
        matches!(self, Input::Config(value) if read::is_disabled(value))
    }

    /// Whether it says nothing at all.
    fn is_empty(&self) -> bool {
        match self {
            Input::Config(Value::Map(map)) => map.is_empty(),
            Input::Config(value) => value.is_null(),
            Input::NetworkData(value) => value.as_map().is_none_or(Map::is_empty),
            Input::Interfaces(text) => text.trim().is_empty(),
        }
    }
}

/// Who gave the configuration. The names are cloud-init's (`NetworkConfigSource`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// `network-config=` on the kernel command line.
    Cmdline,
    /// `ip=` and what the initramfs made of it.
    Initramfs,
    /// `network:` in the image's configuration.
    SystemCfg,
    Datasource,
    /// Nobody: DHCP on the first device that fits.
    Fallback,
}

/// The order that counts where a datasource has none of its own.
pub const DEFAULT_ORDER: [Origin; 4] = [Origin::Cmdline, Origin::Initramfs, Origin::SystemCfg, Origin::Datasource];

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Origin::Cmdline => "cmdline",
            Origin::Initramfs => "initramfs",
            Origin::SystemCfg => "system_cfg",
            Origin::Datasource => "ds",
            Origin::Fallback => "fallback",
        })
    }
}

/// What the choice came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Choice {
    Use(Origin, Input),
    /// The first that says something says that nothing is to be configured.
    Disabled(Origin),
    /// Nobody says anything: it is for the fallback.
    Nothing,
}

/// The first of `order` that says something.
pub fn choose(order: &[Origin], mut given: impl FnMut(Origin) -> Option<Input>) -> Choice {
    for origin in order {
        let Some(input) = given(*origin) else { continue };
        if input.is_disabled() {
            return Choice::Disabled(*origin);
        }
        if !input.is_empty() {
            return Choice::Use(*origin, input);
        }
    }
    Choice::Nothing
}

/// The most bytes that `network-config=` may have, unpacked.
const MAX_CMDLINE_CONFIG: u64 = 1 << 20;

/// The value of `network-config=`: base64 of YAML that may be gzipped, or `disabled`.
pub fn from_cmdline(value: &str) -> Result<Input> {
    const KEY: &str = "network-config= on the kernel command line";
    if value == "disabled" {
        return Ok(Input::Config(Map::from_iter([("config", "disabled")]).into()));
    }
    let digits = value.trim_end_matches('=');
    let padded = format!("{digits}{}", "=".repeat(digits.len().next_multiple_of(4) - digits.len()));
    let mut bytes = base64::decode(padded.as_bytes())
        .ok_or_else(|| Error::new(format!("{KEY}: expected base64 of YAML, which may be gzipped, or disabled")))?;
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut unpacked = Vec::new();
        let read =
            flate2::read::GzDecoder::new(bytes.as_slice()).take(MAX_CMDLINE_CONFIG + 1).read_to_end(&mut unpacked);
        read.context(|| format!("{KEY}: not valid gzip"))?;
        bytes = unpacked;
    }
    if bytes.len() as u64 > MAX_CMDLINE_CONFIG {
        return Err(Error::new(format!("{KEY}: larger than {MAX_CMDLINE_CONFIG} bytes")));
    }
    let text = String::from_utf8(bytes).map_err(|_| Error::new(format!("{KEY}: not UTF-8")))?;
    Ok(Input::Config(yaml::parse(KEY, &text)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Input {
        Input::Config(yaml::parse("t", text).unwrap())
    }

    #[test]
    fn the_first_that_says_something_counts() {
        let given = |origin| match origin {
            Origin::Initramfs => Some(config("{}")),
            Origin::SystemCfg => Some(config("version: 2")),
            Origin::Datasource => Some(config("config: disabled")),
            _ => None,
        };
        assert_eq!(choose(&DEFAULT_ORDER, given), Choice::Use(Origin::SystemCfg, config("version: 2")));
        assert_eq!(choose(&[Origin::Datasource, Origin::SystemCfg], given), Choice::Disabled(Origin::Datasource));
        assert_eq!(choose(&[Origin::Cmdline, Origin::Initramfs], given), Choice::Nothing);
    }

    #[test]
    fn the_kernel_command_line_holds_base64_gzip_or_disabled() {
        let text = "version: 1\nconfig: []\n";
        assert_eq!(from_cmdline(&base64::encode(text.as_bytes())).unwrap(), config(text));
        let mut gzip = flate2::read::GzEncoder::new(text.as_bytes(), flate2::Compression::default());
        let mut packed = Vec::new();
        gzip.read_to_end(&mut packed).unwrap();
        assert_eq!(from_cmdline(&base64::encode(&packed)).unwrap(), config(text));
        assert!(from_cmdline("disabled").unwrap().is_disabled());
        assert!(from_cmdline("%%%").is_err());
        assert!(from_cmdline(&base64::encode(&packed[..packed.len() - 6])).is_err());
        assert!(config("network: {config: disabled}").is_disabled());
        assert!(!config("version: 2").is_disabled());
    }
}
