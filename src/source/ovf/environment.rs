//! Parses the properties of an OVF environment.

use crate::base::base64;
use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::document::{Bytes, Map, Value, xml, yaml};
use crate::source::no_cloud::Seed;

/// The properties of an environment.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    metadata: Map,
    user_data: Option<Vec<u8>>,
    password: Option<String>,
    pub network: Option<Value>,
    /// Whether it is Azure's, which has its own section and no properties.
    pub is_azures: bool,
    /// Properties that could not be used, one line each.
    pub problems: Problems,
}

impl Environment {
    /// Parses an environment; `document` is its name in errors.
    ///
    /// # Errors
    /// It is not XML, its root is not an Environment, or it has no PropertySection.
    pub fn parse(document: &str, bytes: &[u8]) -> Result<Environment> {
        let root = xml::parse(document, bytes)?;
        if root.name != "Environment" {
            return Err(Error::new(format!("{document}: expected the element Environment")));
        }
        let mut environment =
            Environment { is_azures: root.child("ProvisioningSection").is_some(), ..Environment::default() };
        if environment.is_azures {
            return Ok(environment);
        }
        let section = root.child("PropertySection");
        let section = section.ok_or_else(|| Error::new(format!("{document}: expected a PropertySection")))?;
        for property in section.children_named("Property") {
            if let (Some(key), Some(value)) = (property.attribute("key"), property.attribute("value")) {
                environment.take(document, key, value);
            }
        }
        Ok(environment)
    }

    fn take(&mut self, document: &str, key: &str, value: &str) {
        match key {
            "hostname" | "local-hostname" => drop(self.metadata.insert("local-hostname", value)),
            "seedfrom" | "public-keys" | "instance-id" => drop(self.metadata.insert(key, value)),
            "password" => self.password = Some(value.to_owned()),
            "user-data" => self.user_data = Some(decoded(value).unwrap_or_else(|| value.as_bytes().to_vec())),
            "network-config" => match network(value) {
                Some(network) => self.network = Some(network),
                None => self.problems.warn(format!(
                    "{document}: network-config: expected YAML in base64, with the key network: it is ignored"
                )),
            },
            _ => {}
        }
    }

    /// The place of the rest (`seedfrom`), if the environment names one.
    pub fn seedfrom(&self) -> Option<&str> {
        self.metadata.get("seedfrom").and_then(Value::as_str).filter(|from| !from.is_empty())
    }

    /// The environment as a seed found at `place`, to which others may add.
    pub fn seed(&self, place: &str) -> Seed {
        let mut metadata = self.metadata.clone();
        self.network.clone().map(|network| metadata.insert("network-config", network));
        Seed::new(metadata, self.user_data.clone().map(Bytes::from), place)
    }

    /// The source's own configuration: the password.
    pub fn config(&self) -> Value {
        Value::Map(self.password.iter().map(|password| ("password", password.as_str())).collect())
    }
}

/// Decodes base64 that may contain white space.
fn decoded(value: &str) -> Option<Vec<u8>> {
    base64::decode_lines(value.as_bytes())
}

fn network(value: &str) -> Option<Value> {
    let text = String::from_utf8(decoded(value)?).ok()?;
    yaml::parse("network-config", &text).ok()?.get("network").cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(properties: &str) -> Result<Environment> {
        let text = format!(
            "<?xml version=\"1.0\"?><Environment xmlns:oe=\"http://schemas.dmtf.org/ovf/environment/1\">{properties}</Environment>"
        );
        Environment::parse("ovf-env.xml", text.as_bytes())
    }

    #[test]
    fn properties() {
        let all = environment(
            "<PropertySection><Property oe:key=\"user-data\" oe:value=\"I2Nsb3VkLWNvbmZpZwo=\"/><Property oe:key=\"password\" \
             oe:value=\"a&amp;b\"/><Property oe:key=\"network-config\" oe:value=\"!\"/><Property oe:key=\"other\" oe:value=\"x\"/>\
             </PropertySection>",
        );
        let all = all.unwrap();
        assert_eq!(all.user_data.as_deref(), Some(&b"#cloud-config\n"[..]));
        assert_eq!(all.config().get("password"), Some(&Value::from("a&b")));
        assert_eq!(all.problems.len(), 1);
        let plain =
            environment("<PropertySection><Property oe:key=\"user-data\" oe:value=\"#!/bin/sh\"/></PropertySection>");
        assert_eq!(plain.unwrap().user_data.as_deref(), Some(&b"#!/bin/sh"[..]));
        assert!(environment("<ProvisioningSection/>").unwrap().is_azures);
    }

    #[test]
    fn what_is_no_environment_is_an_error() {
        assert!(environment("").unwrap_err().to_string().ends_with("expected a PropertySection"));
        for broken in ["<Other/>", "<Environment>", "text"] {
            assert!(Environment::parse("t", broken.as_bytes()).is_err());
        }
    }
}
