//! # phone_home
//!
//! Sends a POST request with the host keys, the instance-id and the names of the machine to a server, `tries` times at
//! most, when the machine is up. $INSTANCE_ID in the URL is replaced. An RSA key that is posted, as it is without `post`, is
//! made before, and the final stage waits for it.
//!
//! With `quote`, 1 to 32 bytes in hexadecimal digits that the server has chosen, the TPM's quote over them is posted, too, in base64:
//! `quote` (TPMS_ATTEST), `quote_signature` (TPMT_SIGNATURE) and `quote_key` (TPM2B_PUBLIC); and `trust`, what was measured and
//! checked (prepivot-trust(7), "Quotes").
//!
//! ```yaml
//! phone_home:
//!   url: https://example.com/$INSTANCE_ID/
//!   post: [pub_key_ed25519, instance_id, fqdn]
//!   tries: 5
//!   quote: "5f2c8a0e7d1b4c39"
//! ```
//!
//! ```schema
//! phone_home: {
//!  url!: str
//!  post: (all) | [(pub_key_rsa pub_key_ecdsa pub_key_ed25519 instance_id hostname fqdn)]
//!  tries: int
//!  quote: str
//! }
//! ```

use super::Module;
use crate::base::base64;
use crate::base::error::{Error, Result};
use crate::base::hex;
use crate::base::percent::encode_form;
use crate::base::problem::Problems;
use crate::document::{Map, Value};
use crate::instance::Frequency;
use crate::root::{Stage, run_dir};
use crate::system::hostname::Name;
use crate::system::{ModuleContext, WebRequest, host_keys, service, shell, template};
use crate::trust::quote::{self, MAX_NONCE};
use std::path::Path;

const ALL: [&str; 6] = ["pub_key_rsa", "pub_key_ecdsa", "pub_key_ed25519", "instance_id", "hostname", "fqdn"];
/// How often the server is asked if the configuration does not say, and at most.
const TRIES: u32 = 10;
const MAX_TRIES: u32 = 100;
/// The largest answer that is taken, in bytes: nothing is done with it.
const MAX_ANSWER: usize = 64 << 10;

pub static MODULE: Module = Module {
    name: "phone_home",
    stage: Stage::Final,
    frequency: Frequency::Instance,
    keys: &["phone_home"],
    running: Some(running),
    ..Module::NEW
};

fn running(cx: &mut ModuleContext) -> Result<()> {
    match request(cx)? {
        Some((request, tries)) if cx.root.runs_commands() || cx.root.is_plan() => {
            if let Err(e) = service::send(cx, &request, tries) {
                cx.report.warn(e);
            }
            Ok(())
        }
        Some(_) => {
            log::info!("phone_home: a POST is sent when the system runs");
            Ok(())
        }
        None => Ok(()),
    }
}

/// The request, and how often it is tried. None if none is configured.
pub(super) fn request(cx: &mut ModuleContext) -> Result<Option<(WebRequest, u32)>> {
    let Some(section) = cx.map("phone_home") else { return Ok(None) };
    let Some(url) = section.get("url").and_then(Value::as_str) else {
        cx.report.warn("phone_home.url: it is needed: nothing is sent");
        return Ok(None);
    };
    let id = cx.instance.instance_id.as_str();
    let values: Map = [("INSTANCE_ID", id)].into_iter().collect();
    let url = template::render("phone_home.url", url, &Value::Map(values))?;
    let request = WebRequest {
        method: "POST",
        url,
        headers: vec![("Content-Type".into(), "application/x-www-form-urlencoded".into())],
        body: body(cx, section).into_bytes(),
        limit: MAX_ANSWER,
    };
    Ok(Some((request, tries(section, cx.report))))
}

fn tries(section: &Map, report: &Problems) -> u32 {
    let Some(value) = section.get("tries").filter(|v| !v.is_null()) else { return TRIES };
    match value.text().and_then(|t| t.trim().parse::<u32>().ok()).filter(|n| (1..=MAX_TRIES).contains(n)) {
        Some(tries) => tries,
        None => {
            report.warn(format_args!("phone_home.tries: expected a number from 1 to {MAX_TRIES}: {TRIES} is used"));
            TRIES
        }
    }
}

/// The posted form (WHATWG URL Standard, application/x-www-form-urlencoded). A missing value is `N/A`.
fn body(cx: &mut ModuleContext, section: &Map) -> String {
    let names: Vec<String> = match section.get("post") {
        Some(Value::List(list)) => list.iter().filter_map(shell::word).collect(),
        Some(Value::String(one)) if one.as_str() != "all" => vec![one.to_string()],
        _ => ALL.map(str::to_owned).to_vec(),
    };
    // As in cloud-init, the configured name comes last; but it has been applied by now.
    let own = Name::of_source(cx).or_else(|| Name::of_system(cx)).or_else(|| Name::of(cx));
    let mut pairs = Vec::new();
    for name in names {
        let value = match name.as_str() {
            "instance_id" => Some(cx.instance.instance_id.clone()),
            "hostname" => own.as_ref().map(|n| n.hostname.clone()),
            "fqdn" => own.as_ref().map(|n| n.fqdn.clone()),
            "pub_key_rsa" | "pub_key_ecdsa" | "pub_key_ed25519" => {
                let kind = name.trim_start_matches("pub_key_");
                if kind == "rsa" {
                    let made = host_keys::finish(cx);
                    cx.report.keep(made);
                }
                let key = cx.root.text(&format!("/etc/ssh/ssh_host_{kind}_key.pub"));
                // If no command runs, the key that it makes is not there, and will be on the machine.
                let comes = kind == "rsa" && !cx.root.runs_commands() && host_keys::is_rsa_due(cx);
                if key.is_empty() && !comes && section.get("post").is_some_and(|post| post.as_list().is_some()) {
                    cx.report.warn(format_args!("phone_home.post: there is no {kind} host key: it has the value N/A"));
                }
                Some(key).filter(|key| !key.is_empty())
            }
            _ => {
                cx.report.warn(format_args!(
                    "phone_home.post: an entry is none of {}: it has the value N/A",
                    ALL.join(", ")
                ));
                None
            }
        };
        pairs.push(format!("{}={}", encode_form(&name), encode_form(value.as_deref().unwrap_or("N/A"))));
    }
    if let Some(nonce) = section.get("quote").filter(|nonce| !nonce.is_null()) {
        pairs.extend(quoted(cx, nonce));
    }
    pairs.join("&")
}

/// The fields of a quote. Without one they are `N/A`.
fn quoted(cx: &mut ModuleContext, nonce: &Value) -> Vec<String> {
    let wanted = || Error::new(format!("expected 1 to {MAX_NONCE} bytes in hexadecimal digits, in quotes"));
    let nonce = nonce.as_str().and_then(hex::decode).filter(|nonce| (1..=MAX_NONCE).contains(&nonce.len()));
    let made = nonce.ok_or_else(wanted).and_then(|nonce| match cx.root.is_live() {
        true if cfg!(feature = "trust") => quote::of_machine(Path::new("/"), &nonce).map(Some),
        true => Err(Error::new("this build of prepivot leaves trust out")),
        false => Ok(None),
    });
    let quote = made.unwrap_or_else(|e| {
        cx.report.warn(format_args!("phone_home.quote: {e}: the fields have the value N/A"));
        None
    });
    let encoded = |part: fn(&quote::Quote) -> &[u8]| {
        quote.as_ref().map_or_else(|| "N/A".to_owned(), |quote| base64::encode(part(quote)))
    };
    let trust = cx.root.text(run_dir::ATTESTATION);
    let fields = [
        ("quote", encoded(|quote| &quote.attested)),
        ("quote_signature", encoded(|quote| &quote.signature)),
        ("quote_key", encoded(|quote| &quote.key)),
        ("trust", if trust.is_empty() { "N/A".to_owned() } else { trust }),
    ];
    fields.iter().map(|(name, value)| format!("{name}={}", encode_form(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::{Attr, Use};
    use crate::system::testing::Inputs;

    #[test]
    fn posts_the_sources_names_or_the_systems() {
        let config = "{hostname: conf, phone_home: {url: u, post: [hostname, fqdn]}}";
        let posted = |source: Option<&str>, system: &str| {
            let dir = TempDir::new("phone-home");
            let mut root = dir.root(Use::Plan);
            root.write("/etc/hostname", system, Attr::root(0o644)).unwrap();
            let mut inputs = Inputs::new("debian", config);
            inputs.instance.local_hostname = source.map(str::to_owned);
            String::from_utf8(request(&mut inputs.context(&mut root)).unwrap().unwrap().0.body).unwrap()
        };
        assert_eq!(posted(Some("cloud.example"), "sys\n"), "hostname=cloud&fqdn=cloud.example");
        assert_eq!(posted(None, "sys.example\n"), "hostname=sys&fqdn=sys.example");
        assert_eq!(posted(None, "localhost\n"), "hostname=conf&fqdn=conf");
    }

    #[test]
    fn quote_without_tpm_is_not_available() {
        let posted = |nonce: &str| {
            let config = format!("phone_home: {{url: u, post: [instance_id], quote: {nonce}}}");
            let dir = TempDir::new("phone-home-quote");
            let mut root = dir.root(Use::Plan);
            root.write(run_dir::ATTESTATION, "{}\n", Attr::root(0o600)).unwrap();
            let mut inputs = Inputs::new("debian", &config);
            inputs.instance.instance_id = "i-1".into();
            let body = request(&mut inputs.context(&mut root)).unwrap().unwrap().0.body;
            (String::from_utf8(body).unwrap(), inputs.report.len())
        };
        let none = "instance_id=i-1&quote=N%2FA&quote_signature=N%2FA&quote_key=N%2FA&trust=%7B%7D%0A";
        assert_eq!(posted("'00ff'"), (none.to_owned(), 0), "in a plan no TPM is asked");
        for wrong in ["'0'", "''", "xyz", "[]", &format!("'{}'", "00".repeat(33))] {
            assert_eq!(posted(wrong), (none.to_owned(), 1), "{wrong}");
        }
        assert_eq!(posted("null"), ("instance_id=i-1".to_owned(), 0));
    }

    #[test]
    fn forms_are_encoded() {
        assert_eq!(encode_form("ssh-rsa AA+b/c= ü\n"), "ssh-rsa+AA%2Bb%2Fc%3D+%C3%BC%0A");
    }
}
