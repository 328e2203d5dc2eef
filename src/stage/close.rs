//! Closes the metadata service to users, as `close_metadata_service` asks: from the pivot on, or after the final stage. The unit
//! prepivot-close.service does it again after nftables.service, which removes tables that are not its own.

use super::boot::Boot;
use super::handover::Units;
use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::document::Value;
use crate::instance::Instance;
use crate::link::closing::{self, Layers};
use crate::machine::Drivers;
use crate::root::run_dir::{self, Closed, Record};
use crate::root::{Root, owner};
use crate::source::{closed, named};
use crate::system::service::has_systemd;

/// The setting.
const KEY: &str = "close_metadata_service";
/// The most users that may be named.
const MAX_USERS: usize = 64;
/// Has systemd start the unit early in this boot, in which the root's own modules can be loaded.
const WANTED: &str = "/run/systemd/system/sysinit.target.wants/prepivot-close.service";

/// From when on it is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Boot,
    Final,
}

/// What the configuration asks for.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    from: When,
    /// Names or numbers of users who may reach it besides root.
    users: Vec<String>,
}

/// Reads the setting: true, `boot`, `final`, or a mapping with `from` and `users`. Any other value closes the service, too.
fn asked(config: &Value, report: &Problems) -> Option<Asked> {
    let value = config.get(KEY).filter(|value| cfg!(feature = "trust") && !value.is_null() && !value.is_false())?;
    let Some(map) = value.as_map() else { return Some(Asked { from: from(value, KEY, report), users: Vec::new() }) };
    let mut users = map.get("users").map(Value::texts).unwrap_or_default();
    if users.len() > MAX_USERS {
        report.warn(format_args!("{KEY}.users: only the first {MAX_USERS} are used"));
        users.truncate(MAX_USERS);
    }
    let from = map.get("from").map_or(When::Boot, |value| from(value, &format!("{KEY}.from"), report));
    Some(Asked { from, users })
}

fn from(value: &Value, key: &str, report: &Problems) -> When {
    match value.text().as_deref() {
        Some("final") => return When::Final,
        Some("boot") => {}
        _ if value.is_true() => {}
        _ => report.warn(format_args!("{key}: expected boot or final: the service is closed from the pivot on")),
    }
    When::Boot
}

/// Whether the final stage has to close it.
pub fn is_left_to_final(config: &Value) -> bool {
    asked(config, &Problems::new()).is_some_and(|asked| asked.from == When::Final)
}

/// At the end of a local stage. Without an `instance` no final stage may come, so that it is closed at once.
pub fn at_local(root: &mut Root, boot: &mut Boot, instance: Option<&Instance>) {
    let (config, report) = boot.config_and_report();
    let Some(asked) = asked(config, report) else { return };
    if asked.from == When::Boot || instance.is_none() {
        close(root, boot, &asked, instance);
    }
}

/// At the end of the final stage, if it is left to that, or the setting came with remote user-data.
pub fn at_final(root: &mut Root, boot: &mut Boot, instance: &Instance) {
    if record(root).is_some() {
        return;
    }
    let (config, report) = boot.config_and_report();
    if let Some(asked) = asked(config, report) {
        close(root, boot, &asked, Some(instance));
    }
}

/// What this boot has closed.
fn record(root: &Root) -> Option<Closed> {
    Closed::read(root).filter(|_| cfg!(feature = "trust"))
}

/// Closes it on the machine that boots; a tree that is provisioned by hand says nothing of this machine.
fn close(root: &mut Root, boot: &mut Boot, asked: &Asked, instance: Option<&Instance>) {
    if !root.is_initramfs() && !root.is_live() {
        return;
    }
    let mut users = Vec::new();
    for name in &asked.users {
        match owner::user_ids(root, name) {
            Some(ids) => users.push(ids.uid),
            None => boot.report.warn(format_args!("{KEY}.users: an entry is no user: it is ignored")),
        }
    }
    let source = instance.and_then(|instance| named(&instance.source));
    let closed = Closed { addresses: closed::addresses(source, instance), users };
    boot.report.keep(closed.write(root));
    let mut layers = closing::close(&closed);
    if layers.table.is_err() && root.is_initramfs() {
        Drivers::of(boot.machine, root.path()).named(&["nf_tables"]);
        layers = closing::close(&closed);
    }
    // With systemd, the unit tries again in the real root.
    if let Err(e) = &layers.table
        && root.is_initramfs()
        && has_systemd(root)
    {
        log::info!("{}", of_table(e));
        layers.table = Ok(());
    }
    for problem in problems(&layers) {
        boot.report.warn(problem);
    }
    boot.log();
}

fn of_table(error: &std::io::Error) -> String {
    format!(
        "the metadata service is closed to users by policy rules alone, which a program can get past that binds its socket to a \
         device: nf_tables: {error}"
    )
}

/// What is wrong, a line for each.
fn problems(layers: &Layers) -> Vec<String> {
    match (&layers.table, &layers.rules) {
        (Ok(()), Ok(())) => Vec::new(),
        (Err(e), Ok(())) => vec![of_table(e)],
        (Ok(()), Err(e)) => {
            vec![format!("the metadata service is closed to users by nf_tables alone: policy rules: {e}")]
        }
        (Err(table), Err(rules)) => {
            vec![format!("the metadata service stays open to users: nf_tables: {table}; policy rules: {rules}")]
        }
    }
}

/// Writes the unit if the root lacks it (`units`), and has systemd start it early if the kernel has no table yet. In the initramfs.
///
/// # Errors
/// /run cannot be written.
pub fn start_unit(root: &mut Root, units: Option<&Units>) -> Result<()> {
    let Some(closed) = record(root).filter(|_| root.is_initramfs() && has_systemd(root)) else { return Ok(()) };
    units.map_or(Ok(()), |units| units.write_closing(root))?;
    // Otherwise nftables.service starts it, if it is used.
    if closing::look(&closed).table.is_err() { root.symlink(WANTED, "../prepivot-close.service") } else { Ok(()) }
}

/// Closes again what this boot has closed: the unit's work.
///
/// # Errors
/// This boot has closed nothing, or it is still open.
pub fn again(root: &Root) -> Result<Vec<String>> {
    let closed = record(root).ok_or_else(|| Error::new("this boot has closed no service"))?;
    let layers = closing::close(&closed);
    let problems = problems(&layers);
    match (layers.table, layers.rules) {
        (Err(_), Err(_)) => Err(Error::new(problems.join("; "))),
        _ => Ok(problems),
    }
}

/// Opens what this boot has closed, until the next boot.
///
/// # Errors
/// This boot has closed nothing, or the kernel refuses it.
pub fn open(root: &Root) -> Result<()> {
    let closed = record(root).ok_or_else(|| Error::new("this boot has closed no service"))?;
    let layers = closing::open(&closed);
    // What was never in place does not hinder.
    if let (Err(table), Err(rules)) = (layers.table, layers.rules) {
        return Err(Error::new(format!("the service stays closed: nf_tables: {table}; policy rules: {rules}")));
    }
    run_dir::forget(&root.path().join(Closed::PATH.trim_start_matches('/')));
    Ok(())
}

/// What is closed, in words. None if nothing is, or this user may not know.
pub fn to_text(root: &Root) -> Option<String> {
    let closed = record(root)?;
    let layers = closing::look(&closed);
    let how = |result: &std::io::Result<()>| if result.is_ok() { "in place" } else { "missing" };
    let mut users = vec!["root".to_owned()];
    users.extend(closed.users.iter().map(u32::to_string));
    let mut text = format!("metadata service: closed to all users but {}\n", users.join(", "));
    for one in &closed.addresses {
        let ports: Vec<String> = one.tcp.iter().map(u16::to_string).collect();
        let ports = if ports.is_empty() { String::new() } else { format!(", TCP {}", ports.join(", ")) };
        text += &format!("  {}{ports}\n", one.address);
    }
    Some(text + &format!("  nf_tables {}, policy rules {}\n", how(&layers.table), how(&layers.rules)))
}

/// `closed`, or `open` if what closed it is gone. None as for [`to_text`].
pub fn state(root: &Root) -> Option<&'static str> {
    let layers = closing::look(&record(root)?);
    Some(if layers.table.is_ok() || layers.rules.is_ok() { "closed" } else { "open" })
}

#[cfg(feature = "trust")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::document::yaml;
    use crate::root::Use;
    use crate::stage::testing;

    #[test]
    fn setting_is_a_word_or_a_mapping() {
        let read = |text: &str| {
            let report = Problems::new();
            let asked = asked(&yaml::parse("t", text).unwrap(), &report);
            (asked.map(|asked| (asked.from, asked.users)), report.len())
        };
        for open in
            ["{}", "close_metadata_service: false", "close_metadata_service: null", "close_metadata_service: 'no'"]
        {
            assert_eq!(read(open), (None, 0), "{open}");
        }
        let at = |from, users: &[&str]| Some((from, users.iter().map(ToString::to_string).collect::<Vec<_>>()));
        assert_eq!(read("close_metadata_service: true"), (at(When::Boot, &[]), 0));
        assert_eq!(read("close_metadata_service: final"), (at(When::Final, &[]), 0));
        let map = "close_metadata_service: {from: final, users: [agent, 1001]}";
        assert_eq!(read(map), (at(When::Final, &["agent", "1001"]), 0));
        assert_eq!(read("close_metadata_service: {users: agent}"), (at(When::Boot, &["agent"]), 0));
        for wrong in ["close_metadata_service: later", "close_metadata_service: {from: []}"] {
            assert_eq!(read(wrong), (at(When::Boot, &[]), 1), "{wrong}");
        }
    }

    /// On the machine that runs the tests nothing is closed.
    #[test]
    fn tree_provisioned_by_hand_closes_nothing() {
        let dir = TempDir::new("close-tree");
        dir.write("etc/cloud/cloud.cfg", "close_metadata_service: true\n");
        let (machine, mut root) = (dir.machine(), dir.root(Use::Tree));
        let mut boot = testing::boot(&root, &machine);
        at_local(&mut root, &mut boot, None);
        assert_eq!(Closed::read(&root), None);
        assert!(again(&root).is_err() && to_text(&root).is_none() && state(&root).is_none());
        assert!(is_left_to_final(&yaml::parse("t", "close_metadata_service: final").unwrap()));
    }

    #[test]
    fn says_what_is_left_of_the_layers() {
        let missing = || Err(std::io::Error::from_raw_os_error(93));
        let said = |table, rules| problems(&Layers { table, rules }).join("\n");
        assert_eq!(said(Ok(()), Ok(())), "");
        assert!(said(missing(), Ok(())).contains("by policy rules alone"));
        assert!(said(Ok(()), missing()).contains("by nf_tables alone"));
        assert!(said(missing(), missing()).contains("stays open"));
    }
}
