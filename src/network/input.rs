//! Where a network configuration comes from, and which of several takes precedence.

use super::mac::Macs;
use super::model::Network;
use super::read::config::{self, is_disabled};
use super::read::format::Format;
use crate::base::base64;
use crate::base::error::{Context, Error, Result};
use crate::base::gzip;
use crate::base::problem::Problems;
use crate::document::{Map, Value, yaml};
use std::fmt;

/// A network configuration as it was given: its format and its document.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    pub format: &'static Format,
    pub document: Value,
}

impl Input {
    /// A document in cloud-init's format, version 1 or 2.
    pub fn config(document: impl Into<Value>) -> Input {
        Input { format: &config::FORMAT, document: document.into() }
    }

    /// Reads it for a machine with these devices. `name` names the document in messages.
    ///
    /// # Errors
    /// The document is not of its format.
    pub fn read(&self, name: &str, macs: &Macs, report: &Problems) -> Result<Network> {
        self.format.read(name, &self.document, macs, report)
    }

    /// Whether it says that the network must not be configured.
    pub fn is_disabled(&self) -> bool {
        is_disabled(&self.document)
    }

    /// Whether it configures nothing, with or without `network:` above it.
    fn is_empty(&self) -> bool {
        match self.document.get("network").unwrap_or(&self.document) {
            Value::Map(map) => map.is_empty(),
            Value::String(text) => text.trim().is_empty(),
            other => other.is_null(),
        }
    }
}

/// The origin of a configuration. The names are cloud-init's (`NetworkConfigSource`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigOrigin {
    /// `network-config=` on the kernel command line.
    Cmdline,
    /// `ip=`, as the initramfs configured it.
    Initramfs,
    /// `network:` in the image's configuration files.
    SystemCfg,
    Datasource,
    /// DHCP on the most suitable device, used without any other configuration.
    Fallback,
}

/// The order of precedence, unless the datasource has its own.
pub const DEFAULT_ORDER: [ConfigOrigin; 4] =
    [ConfigOrigin::Cmdline, ConfigOrigin::Initramfs, ConfigOrigin::SystemCfg, ConfigOrigin::Datasource];

impl fmt::Display for ConfigOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConfigOrigin::Cmdline => "cmdline",
            ConfigOrigin::Initramfs => "initramfs",
            ConfigOrigin::SystemCfg => "system_cfg",
            ConfigOrigin::Datasource => "ds",
            ConfigOrigin::Fallback => "fallback",
        })
    }
}

/// The result of [`choose`].
#[derive(Debug, Clone, PartialEq)]
pub enum Choice {
    Use(ConfigOrigin, Input),
    /// The first origin with a configuration says that the network must not be configured.
    Disabled(ConfigOrigin),
    /// No origin has a configuration; the fallback applies.
    Nothing,
}

/// The first configuration in this order. `given` returns the configuration of an origin.
pub fn choose(order: &[ConfigOrigin], mut given: impl FnMut(ConfigOrigin) -> Option<Input>) -> Choice {
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

/// The largest value of `network-config=` in bytes, uncompressed.
const MAX_CMDLINE_CONFIG: usize = 1 << 20;

/// The value of `network-config=`: base64 of YAML that may be gzipped, or `disabled`.
///
/// # Errors
/// The value is neither, or larger than 1 MiB uncompressed.
pub fn from_cmdline(value: &str) -> Result<Input> {
    const KEY: &str = "network-config= on the kernel command line";
    if value == "disabled" {
        return Ok(Input::config(Map::from_iter([("config", "disabled")])));
    }
    let digits = value.trim_end_matches('=');
    let padded = format!("{digits}{}", "=".repeat(digits.len().next_multiple_of(4) - digits.len()));
    let mut bytes = base64::decode(padded.as_bytes())
        .ok_or_else(|| Error::new(format!("{KEY}: expected base64 of YAML, which may be gzipped, or disabled")))?;
    if gzip::is_gzip(&bytes) {
        bytes = gzip::unpack(&bytes, MAX_CMDLINE_CONFIG).context(|| KEY)?;
    }
    if bytes.len() > MAX_CMDLINE_CONFIG {
        return Err(Error::new(format!("{KEY}: larger than {MAX_CMDLINE_CONFIG} bytes")));
    }
    let text = String::from_utf8(bytes).map_err(|_| Error::new(format!("{KEY}: not UTF-8")))?;
    Ok(Input::config(yaml::parse(KEY, &text)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Input {
        Input::config(yaml::parse("t", text).unwrap())
    }

    #[test]
    fn the_first_configuration_takes_precedence() {
        let given = |origin| match origin {
            ConfigOrigin::Cmdline => Some(config("network: {}")),
            ConfigOrigin::Initramfs => Some(config("{}")),
            ConfigOrigin::SystemCfg => Some(config("version: 2")),
            ConfigOrigin::Datasource => Some(config("config: disabled")),
            ConfigOrigin::Fallback => None,
        };
        assert_eq!(choose(&DEFAULT_ORDER, given), Choice::Use(ConfigOrigin::SystemCfg, config("version: 2")));
        assert_eq!(
            choose(&[ConfigOrigin::Datasource, ConfigOrigin::SystemCfg], given),
            Choice::Disabled(ConfigOrigin::Datasource)
        );
        assert_eq!(choose(&[ConfigOrigin::Cmdline, ConfigOrigin::Initramfs], given), Choice::Nothing);
    }

    #[test]
    fn kernel_command_line_holds_base64_or_disabled() {
        let text = "version: 1\nconfig: []\n";
        assert_eq!(from_cmdline(&base64::encode(text.as_bytes())).unwrap(), config(text));
        let packed = gzip::pack(text.as_bytes());
        assert_eq!(from_cmdline(&base64::encode(&packed)).unwrap(), config(text));
        assert!(from_cmdline("disabled").unwrap().is_disabled());
        assert!(from_cmdline("%%%").is_err());
        assert!(from_cmdline(&base64::encode(&packed[..packed.len() - 6])).is_err());
        assert!(config("network: {config: disabled}").is_disabled());
        assert!(!config("version: 2").is_disabled());
    }
}
