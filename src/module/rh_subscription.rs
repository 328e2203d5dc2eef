//! # rh_subscription
//!
//! Registers the machine with Red Hat, by user name and password or by activation key and organisation, attaches subscriptions, and
//! enables and disables repositories, unless the machine is registered. A step that fails ends the rest with a warning.
//!
//! ```yaml
//! rh_subscription:
//!   activation_key: <key>
//!   org: '1234567'
//!   auto_attach: true
//!   service_level: self-support
//!   add_pool: [<pool>]
//!   enable_repo: [rhel-9-for-x86_64-appstream-rpms]
//!   release_version: '9.4'
//! ```
//!
//! ```schema
//! rh_subscription: {
//!  (single)
//!  username, password, activation_key, service_level, release_version, rhsm_baseurl, server_hostname: str
//!  org: str | int ~24.2 "Use a string instead."
//!  auto_attach: bool
//!  add_pool, enable_repo, disable_repo: [str]
//!  activation-key ~25.3 activation_key
//!  auto-attach ~25.3 auto_attach
//!  service-level ~25.3 service_level
//!  add-pool ~25.3 add_pool
//!  enable-repo ~25.3 enable_repo
//!  disable-repo ~25.3 disable_repo
//!  rhsm-baseurl ~25.3 rhsm_baseurl
//!  server-hostname ~25.3 server_hostname
//! }
//! ```

use super::Module;
use crate::base::error::{Error, Result};
use crate::document::{Map, Value};
use crate::instance::Frequency;
use crate::root::{Command, Output, Stage};
use crate::system::{ModuleContext, service};

const PROGRAM: &str = "subscription-manager";
/// Made again when the release has changed.
const CACHES: [&str; 2] = ["/var/cache/dnf", "/var/cache/yum"];

pub static MODULE: Module = Module {
    name: "rh_subscription",
    stage: Stage::Config,
    frequency: Frequency::Instance,
    keys: &["rh_subscription"],
    distros: &["fedora", "rhel"],
    running: Some(running),
    ..Module::NEW
};

/// The configuration; each key also in the spelling of old, with hyphens.
struct Subscription<'a>(&'a Map);

impl<'a> Subscription<'a> {
    fn get(&self, key: &str) -> Option<&'a Value> {
        let old = key.replace('_', "-");
        self.0.get(key).or_else(|| self.0.get(&old)).filter(|v| !v.is_null())
    }

    fn text(&self, key: &str) -> Option<String> {
        self.get(key).and_then(Value::text)
    }

    /// The strings of a list. None if the key is not there.
    fn list(&self, key: &str) -> Result<Option<Vec<String>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let list = value.as_list().ok_or_else(|| Error::new(format!("rh_subscription.{key}: expected a list")))?;
        Ok(Some(list.iter().filter_map(Value::text).collect()))
    }
}

fn running(cx: &mut ModuleContext) -> Result<()> {
    let Some(section) = cx.map("rh_subscription") else { return Ok(()) };
    let wanted = Subscription(section);
    let is_set = |key: &str| wanted.text(key).is_some_and(|t| !t.is_empty());
    if !(is_set("activation_key") || (is_set("username") && is_set("password"))) {
        return Ok(());
    }
    if manager(cx, &["identity".into()], None)?.status == 0 && cx.root.runs_commands() {
        log::info!("rh_subscription: the machine is registered");
        return Ok(());
    }
    service::wait_for_network(cx);
    if let Err(e) = register(cx, &wanted) {
        cx.report.warn(e);
        cx.report.warn("rh_subscription: the subscription is not complete");
    }
    Ok(())
}

/// Runs the program, whatever its exit status.
fn manager(cx: &mut ModuleContext, arguments: &[String], secret: Option<&str>) -> Result<Output> {
    let argv = [PROGRAM.to_owned()].into_iter().chain(arguments.iter().cloned());
    let command = Command::new(argv).with_errors();
    cx.root.output(secret.into_iter().fold(command, Command::secret))
}

/// Runs the program; the error says what failed, and what the program said.
fn step(cx: &mut ModuleContext, what: &str, arguments: &[String], secret: Option<&str>) -> Result<String> {
    let output = manager(cx, arguments, secret)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status == 0 {
        return Ok(text(&output.stdout));
    }
    let said = [text(&output.stdout), text(&output.stderr)].concat();
    let mut said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some(secret) = secret {
        said = said.replace(secret, "***");
    }
    Err(Error::new(format!("rh_subscription: failed to {what}: exit status {}: {said}", output.status)))
}

fn register(cx: &mut ModuleContext, wanted: &Subscription) -> Result<()> {
    let attaches = wanted.get("auto_attach");
    if attaches.is_some_and(|v| !v.is_true() && !v.is_false()) {
        return Err(Error::new("rh_subscription.auto_attach: expected true or false"));
    }
    let attaches = attaches.is_some_and(Value::is_true);
    let level = wanted.text("service_level");
    if level.is_some() && !attaches {
        return Err(Error::new("rh_subscription.service_level: it needs auto_attach: true"));
    }
    let (mut arguments, secret) = match (wanted.text("activation_key"), wanted.text("org")) {
        (Some(key), Some(org)) => (vec![format!("--activationkey={key}"), format!("--org={org}")], key),
        _ => match (wanted.text("username"), wanted.text("password")) {
            (Some(user), Some(password)) => {
                (vec![format!("--username={user}"), format!("--password={password}")], password)
            }
            _ => {
                return Err(Error::new(
                    "rh_subscription: expected activation_key and org, or username and password: the machine is not registered",
                ));
            }
        },
    };
    arguments.insert(0, "register".into());
    for (option, key) in [("--baseurl", "rhsm_baseurl"), ("--serverurl", "server_hostname")] {
        arguments.extend(wanted.text(key).map(|value| format!("{option}={value}")));
    }
    step(cx, "register the machine", &arguments, Some(&secret))?;
    if attaches {
        let level = level.map(|level| format!("--servicelevel={level}"));
        let arguments: Vec<String> = ["attach".into(), "--auto".into()].into_iter().chain(level).collect();
        step(cx, "attach a subscription", &arguments, None)?;
    }
    attach_pools(cx, &wanted.list("add_pool")?.unwrap_or_default())?;
    let (enable, disable) = (wanted.list("enable_repo")?, wanted.list("disable_repo")?);
    change_repositories(cx, &enable.unwrap_or_default(), &disable.unwrap_or_default())?;
    if let Some(release) = wanted.text("release_version").filter(|r| !r.is_empty()) {
        step(cx, "set the release", &["release".into(), format!("--set={release}")], None)?;
        for cache in CACHES {
            cx.root.remove(cache)?;
        }
    }
    Ok(())
}

fn attach_pools(cx: &mut ModuleContext, pools: &[String]) -> Result<()> {
    if pools.is_empty() {
        return Ok(());
    }
    let mut listed =
        |which: &str| step(cx, "list the pools", &["list".into(), which.into(), "--pool-only".into()], None);
    let (available, consumed) = (listed("--available")?, listed("--consumed")?);
    let has = |list: &str, pool: &String| list.lines().any(|line| line.trim() == pool);
    let (free, others): (Vec<&String>, Vec<&String>) =
        pools.iter().partition(|pool| has(&available, pool) && !has(&consumed, pool));
    for pool in others {
        cx.report.warn(format_args!("rh_subscription.add_pool: the pool {pool} is not available"));
    }
    if free.is_empty() {
        return Ok(());
    }
    let options = free.iter().map(|pool| format!("--pool={pool}"));
    let arguments: Vec<String> = [String::from("attach")].into_iter().chain(options).collect();
    step(cx, "attach the pools", &arguments, None).map(drop)
}

fn change_repositories(cx: &mut ModuleContext, enable: &[String], disable: &[String]) -> Result<()> {
    if enable.is_empty() && disable.is_empty() {
        return Ok(());
    }
    let mut listed = |which: &str| -> Result<Vec<String>> {
        let text = step(cx, "list the repositories", &["repos".into(), which.into()], None)?;
        let ids = text.lines().filter_map(|line| line.split_once("Repo ID:"));
        Ok(ids.map(|(_, id)| id.trim().to_owned()).collect())
    };
    let (on, off) = (listed("--list-enabled")?, listed("--list-disabled")?);
    let mut arguments = vec!["repos".to_owned()];
    arguments.extend(disable.iter().filter(|id| on.contains(id)).map(|id| format!("--disable={id}")));
    arguments.extend(enable.iter().filter(|id| off.contains(id)).map(|id| format!("--enable={id}")));
    for id in enable.iter().filter(|id| !on.contains(id) && !off.contains(id)) {
        cx.report.warn(format_args!("rh_subscription.enable_repo: there is no repository {id}"));
    }
    if arguments.len() == 1 {
        return Ok(());
    }
    step(cx, "change the repositories", &arguments, None).map(drop)
}
