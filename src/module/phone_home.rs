//! # phone_home
//!
//! Sends a POST request with the host keys, the instance-id and the names of the machine to a server, `tries` times at
//! most, when the machine is up. $INSTANCE_ID in the URL is replaced. An RSA key that is posted, as it is without `post`, is
//! made before, and the final stage waits for it.
//!
//! ```yaml
//! phone_home:
//!   url: https://example.com/$INSTANCE_ID/
//!   post: [pub_key_ed25519, instance_id, fqdn]
//!   tries: 5
//! ```
//!
//! ```schema
//! phone_home: {
//!  url!: str
//!  post: (all) | [(pub_key_rsa pub_key_ecdsa pub_key_ed25519 instance_id hostname fqdn)]
//!  tries: int
//! }
//! ```

use super::Module;
use crate::base::error::Result;
use crate::base::percent::encode_form;
use crate::base::problem::Problems;
use crate::document::{Map, Value};
use crate::instance::Frequency;
use crate::root::Stage;
use crate::system::hostname::Name;
use crate::system::{Context, WebRequest, host_keys, service, shell, template};

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

fn running(cx: &mut Context) -> Result<()> {
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
pub(super) fn request(cx: &mut Context) -> Result<Option<(WebRequest, u32)>> {
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
fn body(cx: &mut Context, section: &Map) -> String {
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
    pairs.join("&")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::document::yaml;
    use crate::instance::Instance;
    use crate::machine::Distro;
    use crate::root::{Attr, Root, Use};

    #[test]
    fn posts_the_sources_names_or_the_systems() {
        let config = "{hostname: conf, phone_home: {url: u, post: [hostname, fqdn]}}";
        let config = yaml::parse("t", config).unwrap();
        let posted = |source: Option<&str>, system: &str| {
            let dir = TempDir::new("phone-home");
            let mut root = Root::open(&dir.0, Use::Plan).unwrap();
            root.write("/etc/hostname", system, Attr::root(0o644)).unwrap();
            let instance = Instance { local_hostname: source.map(str::to_owned), ..Instance::default() };
            let (distro, report) = (Distro::named("debian"), Problems::new());
            let mut cx = Context::new(&mut root, &config, &instance, &distro, &report);
            String::from_utf8(request(&mut cx).unwrap().unwrap().0.body).unwrap()
        };
        assert_eq!(posted(Some("cloud.example"), "sys\n"), "hostname=cloud&fqdn=cloud.example");
        assert_eq!(posted(None, "sys.example\n"), "hostname=sys&fqdn=sys.example");
        assert_eq!(posted(None, "localhost\n"), "hostname=conf&fqdn=conf");
    }

    #[test]
    fn forms_are_encoded() {
        assert_eq!(encode_form("ssh-rsa AA+b/c= ü\n"), "ssh-rsa+AA%2Bb%2Fc%3D+%C3%BC%0A");
    }
}
