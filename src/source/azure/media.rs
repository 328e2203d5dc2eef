//! The provisioning media: ovf-env.xml, with what only the machine itself may have, such as its password and
//! custom data.
//!
//! Follows Azure's two sections of the document, `ProvisioningSection` and `PlatformSettingsSection`
//! (<http://schemas.microsoft.com/windowsazure>), as cloud-init and azure-init read them.

use super::failure::Failure;
use super::wire_server::escaped;
use crate::base::base64;
use crate::document::xml::{self, Element};

/// The document's file name.
pub const FILE: &str = "ovf-env.xml";
/// The text that replaces the password.
pub const REDACTED: &str = "REDACTED";
const PASSWORD: &str = "UserPassword";
/// The longest password that Azure allows, in characters.
const MAX_PASSWORD: usize = 72;
const PROVISIONING: &str = "ProvisioningSection";
const LINUX: &str = "LinuxProvisioningConfigurationSet";

/// An SSH key: the key itself, or the SHA-1 fingerprint of a certificate that the wire server has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Key {
    pub fingerprint: Option<String>,
    pub path: Option<String>,
    /// Empty if there is only a fingerprint.
    pub value: String,
}

/// The content of the document.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Media {
    pub host_name: String,
    pub user: Option<String>,
    pub password: Option<String>,
    pub custom_data: Option<Vec<u8>>,
    pub disable_password: Option<bool>,
    pub keys: Vec<Key>,
    /// Whether the machine comes from a pool and waits for its owner, and how (`PreprovisionedVm`,
    /// `PreprovisionedVMType`).
    pub preprovisioned: bool,
    pub pool: Option<String>,
    /// Whether requests to Azure's services go through a proxy in the guest (`ProvisionGuestProxyAgent`).
    pub proxy_agent: bool,
    /// The document without the password. None if it could not be removed.
    pub redacted: Option<Vec<u8>>,
}

/// Parses the document. None if it is an OVF environment, but not Azure's.
///
/// # Errors
/// It is not XML, or lacks a required element. The message contains nothing of its content.
pub fn parse(bytes: &[u8]) -> Result<Option<Media>, Failure> {
    let root = xml::parse(FILE, bytes).map_err(|e| Failure::new(format!("error parsing ovf-env.xml: {e}")))?;
    if root.child(PROVISIONING).is_none() {
        return Ok(None);
    }
    let linux = required(required(&root, PROVISIONING)?, LINUX)?;
    let platform = required(required(&root, "PlatformSettingsSection")?, "PlatformSettings")?;
    let password = text(linux, PASSWORD)?;
    if let Some(length) = password.as_ref().map(|p| p.chars().count()).filter(|n| *n > MAX_PASSWORD) {
        let failure = Failure::new(format!("unsupported password length={length} max={MAX_PASSWORD}"));
        return Err(failure.with("length", length).with("max_length", MAX_PASSWORD));
    }
    let custom_data = text(linux, "CustomData")?;
    let decode =
        |data: String| base64::decode_leniently(data.as_bytes()).ok_or_else(|| unexpected("CustomData is not base64"));
    let host_name = required(linux, "HostName")?.text.clone();
    let is_true = |element, name| Ok(one(element, name)?.map(|e| truth(&e.text)));
    Ok(Some(Media {
        host_name,
        user: text(linux, "UserName")?,
        custom_data: custom_data.map(decode).transpose()?.filter(|data| !data.is_empty()),
        disable_password: is_true(linux, "DisableSshPasswordAuthentication")?,
        keys: keys(linux)?,
        preprovisioned: is_true(platform, "PreprovisionedVm")? == Some(true),
        pool: text(platform, "PreprovisionedVMType")?,
        proxy_agent: is_true(platform, "ProvisionGuestProxyAgent")? == Some(true),
        redacted: match password {
            Some(_) => redacted(bytes, &root),
            None => Some(bytes.to_vec()),
        },
        password,
    }))
}

fn keys(linux: &Element) -> Result<Vec<Key>, Failure> {
    let Some(list) = one(linux, "SSH")?.map(|ssh| one(ssh, "PublicKeys")).transpose()?.flatten() else {
        return Ok(Vec::new());
    };
    let key = |key| {
        Ok(Key {
            fingerprint: text(key, "Fingerprint")?,
            path: text(key, "Path")?,
            value: text(key, "Value")?.unwrap_or_default(),
        })
    };
    list.children_named("PublicKey").map(key).collect()
}

fn unexpected(what: &str) -> Failure {
    Failure::new(format!("unexpected metadata parsing ovf-env.xml: {what}"))
}

fn one<'a>(parent: &'a Element, name: &str) -> Result<Option<&'a Element>, Failure> {
    match parent.children.iter().filter(|child| child.name == name).count() {
        0 | 1 => Ok(parent.child(name)),
        n => Err(unexpected(&format!("multiple configuration matches for '{name}' ({n})"))),
    }
}

fn required<'a>(parent: &'a Element, name: &str) -> Result<&'a Element, Failure> {
    one(parent, name)?.ok_or_else(|| unexpected(&format!("missing configuration for '{name}'")))
}

/// An element's text. None if it is missing or empty.
fn text(parent: &Element, name: &str) -> Result<Option<String>, Failure> {
    Ok(one(parent, name)?.map(|e| e.text.clone()).filter(|t| !t.is_empty()))
}

/// cloud-init's truth value of a text.
fn truth(text: &str) -> bool {
    ["true", "1", "on", "yes"].iter().any(|word| text.trim().eq_ignore_ascii_case(word))
}

/// The document with the password replaced and all other bytes unchanged. None if the result does not parse
/// to the same tree.
fn redacted(bytes: &[u8], root: &Element) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let name = text.find(PASSWORD)?;
    let tag = text.get(..name)?.rfind('<')?;
    let content = name + text.get(name..)?.find('>')? + 1;
    let end = format!("</{}{PASSWORD}", text.get(tag + 1..name)?);
    let close = content + text.get(content..)?.find(&end)?;
    let out = [text.get(..content)?, REDACTED, text.get(close..)?].concat().into_bytes();
    let mut expected = root.clone();
    let mut element = &mut expected;
    for name in [PROVISIONING, LINUX, PASSWORD] {
        element = element.children.iter_mut().find(|child| child.name == name)?;
    }
    element.text = REDACTED.into();
    (xml::parse(FILE, &out).ok()? == expected).then_some(out)
}

/// A substitute for the document on a machine that has no media: Azure's agent waits for one.
pub fn minimal(host_name: Option<&str>, user: Option<&str>, disable_password: Option<bool>) -> Vec<u8> {
    let element = |name: &str, text: Option<&str>| {
        text.map(|t| format!("<wa:{name}>{}</wa:{name}>", escaped(t))).unwrap_or_default()
    };
    let disable_password = disable_password.map(|d| d.to_string());
    format!(
        "<Environment xmlns=\"http://schemas.dmtf.org/ovf/environment/1\" \
         xmlns:wa=\"http://schemas.microsoft.com/windowsazure\">\n<wa:{PROVISIONING}><wa:Version>1.0</wa:Version><wa:{LINUX}>\
         <wa:ConfigurationSetType>LinuxProvisioningConfiguration</wa:ConfigurationSetType>{}{}{}</wa:{LINUX}></wa:{PROVISIONING}>\n\
         <wa:PlatformSettingsSection><wa:Version>1.0</wa:Version><wa:PlatformSettings>\
         <wa:ProvisionGuestAgent>true</wa:ProvisionGuestAgent></wa:PlatformSettings></wa:PlatformSettingsSection>\n</Environment>\n",
        element("UserName", user),
        element("DisableSshPasswordAuthentication", disable_password.as_deref()),
        element("HostName", Some(host_name.unwrap_or_default())),
    )
    .into_bytes()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A document with these elements in its two sections.
    pub fn document(linux: &str, platform: &str) -> String {
        format!(
            "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<ns0:Environment xmlns:ns0=\"http://schemas.dmtf.org/ovf/environment/1\" \
             xmlns:ns1=\"http://schemas.microsoft.com/windowsazure\"><ns1:ProvisioningSection><ns1:Version>1.0</ns1:Version>\
             <ns1:LinuxProvisioningConfigurationSet>{linux}</ns1:LinuxProvisioningConfigurationSet></ns1:ProvisioningSection>\
             <ns1:PlatformSettingsSection><ns1:PlatformSettings>{platform}</ns1:PlatformSettings></ns1:PlatformSettingsSection>\
             </ns0:Environment>"
        )
    }

    const FULL: &str = "<ns1:HostName>h</ns1:HostName><ns1:UserName>u</ns1:UserName>\
        <ns1:UserPassword x='y'>S3cret&lt;1</ns1:UserPassword><ns1:CustomData>\n I2Ns\n b3Vk</ns1:CustomData>\
        <ns1:DisableSshPasswordAuthentication>False</ns1:DisableSshPasswordAuthentication>\
        <ns1:SSH><ns1:PublicKeys><ns1:PublicKey><ns1:Fingerprint>AB</ns1:Fingerprint><ns1:Path>/p</ns1:Path></ns1:PublicKey>\
        <ns1:PublicKey><ns1:Value>ssh-rsa A</ns1:Value></ns1:PublicKey></ns1:PublicKeys></ns1:SSH>";

    #[test]
    fn what_a_document_says() {
        let platform = "<ns1:PreprovisionedVm>true</ns1:PreprovisionedVm><ns1:PreprovisionedVMType/>\
            <ns1:ProvisionGuestProxyAgent>True</ns1:ProvisionGuestProxyAgent>";
        let got = parse(document(FULL, platform).as_bytes()).unwrap().unwrap();
        assert_eq!((got.host_name.as_str(), got.user.as_deref()), ("h", Some("u")));
        assert_eq!((got.password.as_deref(), got.disable_password), (Some("S3cret<1"), Some(false)));
        assert_eq!(got.custom_data.as_deref(), Some(&b"#cloud"[..]));
        assert_eq!((got.preprovisioned, got.pool, got.proxy_agent), (true, None, true));
        let fingerprint = Key { fingerprint: Some("AB".into()), path: Some("/p".into()), value: String::new() };
        assert_eq!(got.keys, [fingerprint, Key { value: "ssh-rsa A".into(), ..Key::default() }]);
        let expected = document(FULL, platform).replace("S3cret&lt;1", REDACTED);
        assert_eq!(String::from_utf8(got.redacted.unwrap()).unwrap(), expected);
    }

    #[test]
    fn unlocatable_password_leaves_no_document() {
        let hidden = "<ns1:HostName>h</ns1:HostName><!-- <ns1:UserPassword>x</ns1:UserPassword> --><ns1:UserPassword>S</ns1:UserPassword>";
        assert_eq!(parse(document(hidden, "").as_bytes()).unwrap().unwrap().redacted, None);
        let section = "<ns1:HostName>h</ns1:HostName><ns1:UserPassword><![CDATA[a<b]]></ns1:UserPassword>";
        let got = parse(document(section, "").as_bytes()).unwrap().unwrap();
        assert_eq!(got.password.as_deref(), Some("a<b"));
        assert!(!String::from_utf8(got.redacted.unwrap()).unwrap().contains("a<b"));
    }

    #[test]
    fn wrong_document_has_reason_and_foreign_is_ignored() {
        let reason =
            |linux: &str| parse(document(linux, "").as_bytes()).err().map(|f| f.to_string()).unwrap_or_default();
        let unexpected = "unexpected metadata parsing ovf-env.xml: ";
        assert_eq!(
            reason("<ns1:UserName>u</ns1:UserName>"),
            format!("{unexpected}missing configuration for 'HostName'")
        );
        let twice = "<ns1:HostName>h</ns1:HostName>".repeat(2);
        assert_eq!(reason(&twice), format!("{unexpected}multiple configuration matches for 'HostName' (2)"));
        let long = format!("<ns1:HostName>h</ns1:HostName><ns1:UserPassword>{}</ns1:UserPassword>", "p".repeat(73));
        assert_eq!(reason(&long), "unsupported password length=73 max=72, length=73, max_length=72");
        let data = "<ns1:HostName>h</ns1:HostName><ns1:CustomData>%secret</ns1:CustomData>";
        assert_eq!(reason(data), format!("{unexpected}CustomData is not base64"));
        assert!(parse(b"<a>").err().unwrap().to_string().starts_with("error parsing ovf-env.xml: "));
        assert!(parse(b"<Environment/>").unwrap().is_none());
        let document = document(FULL, "");
        let mut good = 0;
        crate::base::testing::mutations(document.as_bytes(), 1000, |bytes| match parse(bytes) {
            Ok(media) => good += usize::from(media.is_some_and(|media| !media.host_name.is_empty())),
            Err(failure) => {
                let known =
                    ["error parsing ovf-env.xml: ", "unexpected metadata parsing ovf-env.xml: ", "unsupported "];
                assert!(known.iter().any(|start| failure.to_string().starts_with(start)), "{failure}");
            }
        });
        assert!(good > 10, "some damage is in values: {good}");
    }

    #[test]
    fn an_empty_answer_is_no() {
        let linux = "<ns1:HostName>h</ns1:HostName><ns1:DisableSshPasswordAuthentication/>";
        assert_eq!(parse(document(linux, "").as_bytes()).unwrap().unwrap().disable_password, Some(false));
    }

    #[test]
    fn the_minimal_document_is_read_back() {
        let got = parse(&minimal(Some("h&1"), Some("u"), Some(true))).unwrap().unwrap();
        assert_eq!((got.host_name.as_str(), got.user.as_deref(), got.disable_password), ("h&1", Some("u"), Some(true)));
        assert!(parse(&minimal(None, None, None)).unwrap().is_some());
    }
}
