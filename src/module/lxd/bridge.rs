//! `lxd.bridge`.

use crate::base::error::{Error, Result};
use crate::document::{Map, Value};
use crate::root::{Command, installed};
use crate::system::ModuleContext;

/// The bridge that `lxd init --auto` makes.
const DEFAULT_NAME: &str = "lxdbr0";
/// The configuration of an LXD that is set up by debconf (before its snap).
const OLD_CONF: &str = "/etc/default/lxd-bridge";

/// The requested change to the bridge.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    None,
    Existing,
    New,
}

/// Sets up the bridge of new containers. `initialised` says whether `lxd init` has just run, which may have made one.
///
/// # Errors
/// The mode is unknown, or a program fails.
pub fn set_up(cx: &mut ModuleContext, bridge: &Map, initialised: bool) -> Result<()> {
    let mode = match bridge.get("mode").and_then(Value::as_str) {
        Some("none") => Mode::None,
        Some("existing") => Mode::Existing,
        Some("new") => Mode::New,
        _ => return Err(Error::new("lxd.bridge.mode: expected none, existing or new")),
    };
    if cx.root.exists(OLD_CONF) && installed::which(cx.root, "debconf-communicate").is_some() {
        return by_debconf(cx, bridge, mode);
    }
    let name = text(bridge, "name").unwrap_or(DEFAULT_NAME.to_owned());
    if initialised && name == DEFAULT_NAME {
        remove_default(cx, mode != Mode::Existing)?;
    }
    if mode == Mode::New {
        let mut words = vec!["network".to_owned(), "create".to_owned(), name.clone()];
        words.extend(settings(bridge));
        lxc(cx, &words)?;
    }
    match mode {
        Mode::None => Ok(()),
        Mode::Existing | Mode::New => {
            lxc(cx, &["network", "attach-profile", &name, "default", "eth0"].map(str::to_owned))
        }
    }
}

fn text(bridge: &Map, key: &str) -> Option<String> {
    bridge.get(key).and_then(Value::text).filter(|text| !text.is_empty())
}

/// Settings of a new bridge, as `lxc network create` takes them.
fn settings(bridge: &Map) -> Vec<String> {
    let text = |key: &str| text(bridge, key);
    let mut out = Vec::new();
    match text("ipv4_address").zip(text("ipv4_netmask")) {
        Some((address, mask)) => {
            out.push(format!("ipv4.address={address}/{mask}"));
            if bridge.get("ipv4_nat").is_none_or(Value::is_true) {
                out.push("ipv4.nat=true".to_owned());
            }
            if let Some((first, last)) = text("ipv4_dhcp_first").zip(text("ipv4_dhcp_last")) {
                out.push(format!("ipv4.dhcp.ranges={first}-{last}"));
            }
        }
        None => out.push("ipv4.address=none".to_owned()),
    }
    match text("ipv6_address").zip(text("ipv6_netmask")) {
        Some((address, mask)) => {
            out.push(format!("ipv6.address={address}/{mask}"));
            if bridge.get("ipv6_nat").is_some_and(Value::is_true) {
                out.push("ipv6.nat=true".to_owned());
            }
        }
        None => out.push("ipv6.address=none".to_owned()),
    }
    out.extend(text("domain").map(|domain| format!("dns.domain={domain}")));
    out.extend(text("mtu").filter(|mtu| mtu != "-1").map(|mtu| format!("bridge.mtu={mtu}")));
    out
}

/// Removes what `lxd init` has made: the device of the default profile and, with `bridge_too`, the bridge.
fn remove_default(cx: &mut ModuleContext, bridge_too: bool) -> Result<()> {
    if bridge_too && lxc_if_there(cx, &["network", "detach-profile", DEFAULT_NAME, "default"])? {
        lxc(cx, &["network", "delete", DEFAULT_NAME].map(str::to_owned))?;
    }
    lxc_if_there(cx, &["profile", "device", "remove", "default", "eth0"]).map(drop)
}

fn lxc_command(words: &[String]) -> Command {
    let words = ["lxc"].into_iter().chain(words.iter().map(String::as_str)).chain(["--force-local"]);
    Command::new(words).env("LC_ALL", "C").env("HOME", "/root").env("USER", "root")
}

fn lxc(cx: &mut ModuleContext, words: &[String]) -> Result<()> {
    cx.root.run(lxc_command(words))
}

/// Runs a command that removes something. Returns false if that did not exist (exit code 1).
fn lxc_if_there(cx: &mut ModuleContext, words: &[&str]) -> Result<bool> {
    let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
    match cx.root.output(lxc_command(&words))?.status {
        0 => Ok(true),
        1 => Ok(false),
        status => Err(Error::new(format!("lxc {} ended with exit status {status}", words.join(" ")))),
    }
}

/// Answers the questions of LXD's package, and reconfigures it.
fn by_debconf(cx: &mut ModuleContext, bridge: &Map, mode: Mode) -> Result<()> {
    let mut answers: Vec<(&str, Option<String>)> = Vec::new();
    let name = text(bridge, "name");
    let yes = || Some("true".to_owned());
    match mode {
        Mode::None => {
            answers.extend([("setup-bridge", Some("false".to_owned())), ("bridge-name", Some(String::new()))]);
        }
        Mode::Existing => {
            answers.extend([("setup-bridge", Some("false".to_owned())), ("use-existing-bridge", yes())]);
            answers.push(("bridge-name", Some(name.unwrap_or_default())));
        }
        Mode::New => {
            answers.extend([("setup-bridge", yes()), ("bridge-name", name)]);
            let families: [(&str, &[&str], &str); 2] = [
                ("ipv4", &["address", "netmask", "dhcp_first", "dhcp_last", "dhcp_leases"], "true"),
                ("ipv6", &["address", "netmask"], "false"),
            ];
            for (family, keys, nat) in families {
                if text(bridge, &format!("{family}_address")).is_none() {
                    continue;
                }
                answers.push((family, yes()));
                for key in keys {
                    answers.push((key, text(bridge, &format!("{family}_{key}"))));
                }
                answers.push(("nat", text(bridge, &format!("{family}_nat")).or(Some(nat.to_owned()))));
            }
            answers.push(("bridge-domain", text(bridge, "domain")));
        }
    }
    let mut family = "";
    let mut input = String::new();
    for (question, answer) in answers {
        let Some(answer) = answer.filter(|a| !a.contains(char::is_control)) else { continue };
        let question = match question {
            "ipv4" | "ipv6" => {
                family = question;
                format!("bridge-{family}")
            }
            plain if plain.contains("bridge") => plain.to_owned(),
            own => format!("bridge-{family}-{}", own.replace('_', "-")),
        };
        input.push_str(&format!("set lxd/{question} {answer}\n"));
    }
    if let Err(e) = cx.root.run(Command::new(["debconf-communicate"]).stdin(input)) {
        cx.report.warn(format_args!("lxd.bridge: {e}"));
    }
    cx.root.remove(OLD_CONF)?;
    cx.root.run(Command::new(["dpkg-reconfigure", "lxd", "--frontend=noninteractive"]))
}
