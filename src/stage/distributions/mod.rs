//! Distributions as data, for a plan without a root: one text file each in this folder.
//!
//! A file begins with a comment. `[/path MODE UID:GID]` begins a file of the distribution, whose content goes up to the next such
//! line; without a mode it has 0644, without an owner root's. `[programs]` begins a list of paths that are programs. The file's name
//! is the distribution's. zones.list has the time zones of all of them.

use crate::base::error::{Error, Result};
use crate::base::gzip;
use crate::root::{Attr, Root};

/// Packed by build.rs: each name and text with a unit separator between them, then a record separator (ASCII).
static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/distributions.gz"));
/// The largest size of all of them, in bytes.
const MAX_TEXTS: usize = 512 << 10;
/// The name of the record with the time zones.
const ZONES: &str = "zones";

fn texts() -> String {
    String::from_utf8(gzip::unpack(PACKED, MAX_TEXTS).unwrap_or_default()).unwrap_or_default()
}

fn records(texts: &str) -> impl Iterator<Item = (&str, &str)> {
    texts.split_terminator('\x1e').filter_map(|record| record.split_once('\x1f'))
}

/// The distributions' names, in the alphabet's order.
pub fn names() -> Vec<String> {
    records(&texts()).map(|(name, _)| name.to_owned()).filter(|name| name != ZONES).collect()
}

/// Puts the files of the distribution called `name` into `root`, which is to be empty.
///
/// # Errors
/// There is no such distribution; a file cannot be put there.
pub fn put(root: &mut Root, name: &str) -> Result<()> {
    let texts = texts();
    let Some((_, text)) = records(&texts).find(|(found, _)| *found == name && *found != ZONES) else {
        return Err(Error::new(format!(
            "there is no distribution called {name}: expected one of {}",
            names().join(", ")
        )));
    };
    for folder in ["/root", "/tmp", "/home", "/run", "/var/log", "/var/lib", "/usr/local/bin", "/usr/local/sbin"] {
        root.mkdir(folder, Attr::root(0o755))?;
    }
    for (_, zones) in records(&texts).filter(|(found, _)| *found == ZONES) {
        for zone in zones.lines() {
            root.write(&format!("/usr/share/zoneinfo/{zone}"), "", Attr::root(0o644))?;
        }
    }
    let mut section: Option<(&str, String)> = None;
    for line in text.lines().skip_while(|line| line.starts_with('#')).chain(["[end]"]) {
        let head = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        match head.filter(|head| head.starts_with('/') || matches!(*head, "programs" | "end")) {
            Some(head) => {
                if let Some((path, content)) = section.replace((head, String::new())) {
                    put_section(root, path, content)?;
                }
            }
            None => {
                if let Some((_, content)) = &mut section {
                    *content += line;
                    content.push('\n');
                }
            }
        }
    }
    Ok(())
}

fn put_section(root: &mut Root, head: &str, content: String) -> Result<()> {
    if head == "programs" {
        return content.lines().try_for_each(|path| root.write(path, "", Attr::root(0o755)));
    }
    let mut words = head.split(' ');
    let path = words.next().unwrap_or_default();
    let mode = words.next().and_then(|mode| u32::from_str_radix(mode, 8).ok()).unwrap_or(0o644);
    let (uid, gid) = words.next().and_then(|owner| owner.split_once(':')).unwrap_or(("0", "0"));
    let number = |text: &str| text.parse().unwrap_or_default();
    root.write(path, content, Attr { mode, uid: number(uid), gid: number(gid) })
}
