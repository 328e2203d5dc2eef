//! The record of changes to the network, so that exactly these changes are undone.

use super::netlink::{Address, Netlink, Route};
use crate::base::error::{Context, Result};
use crate::machine::beneath;
use crate::root::run_dir;
use nanoserde::{DeJson, SerJson};
use std::io;
use std::path::{Path, PathBuf};

/// The largest record that is read, in bytes.
const MAX_RECORD: u64 = 1 << 20;

/// One change. Addresses are strings.
#[derive(Debug, Clone, PartialEq, Eq, SerJson, DeJson)]
pub enum Change {
    /// The link was down.
    Up {
        index: u32,
    },
    /// The link had this MTU.
    Mtu {
        index: u32,
        before: u32,
    },
    /// The link had this hardware address.
    Mac {
        index: u32,
        before: Vec<u8>,
    },
    Address {
        index: u32,
        address: String,
        prefix: u8,
    },
    /// An empty gateway means none.
    Route {
        index: u32,
        destination: String,
        prefix: u8,
        gateway: String,
        metric: u32,
    },
    /// The link was created.
    Made {
        index: u32,
    },
    /// The link was added to a bond or bridge.
    Port {
        index: u32,
    },
}

#[derive(Debug, Default, SerJson, DeJson)]
struct Record {
    changes: Vec<Change>,
}

/// The changes, oldest first. They are also kept in a file, so that the next process can undo what a killed
/// one left.
#[derive(Debug, Default)]
pub struct Journal {
    path: Option<PathBuf>,
    record: Record,
}

impl Journal {
    /// An empty journal, saved at `path` once it has a change.
    pub fn new(path: Option<PathBuf>) -> Self {
        Journal { path, record: Record::default() }
    }

    /// The journal that an earlier process left at `path`. None if there is no valid one.
    pub fn left(path: &Path) -> Option<Self> {
        let bytes = beneath::start(Path::new("/"), path.to_str()?, MAX_RECORD + 1)?;
        let text = String::from_utf8(bytes).ok().filter(|text| text.len() as u64 <= MAX_RECORD)?;
        match Record::deserialize_json(&text) {
            Ok(record) => Some(Journal { path: Some(path.into()), record }),
            Err(_) => {
                log::warn!("{}: not a record of network changes; nothing is taken back", path.display());
                None
            }
        }
    }

    /// Whether it has no changes.
    pub fn is_empty(&self) -> bool {
        self.record.changes.is_empty()
    }

    /// Whether this change is recorded.
    pub fn has(&self, change: &Change) -> bool {
        self.record.changes.contains(change)
    }

    /// Records a change before it is made.
    pub fn note(&mut self, change: Change) {
        self.record.changes.push(change);
        self.save();
    }

    /// Removes the last change, which could not be made.
    pub fn forget(&mut self, change: &Change) {
        if let Some(at) = self.record.changes.iter().rposition(|c| c == change) {
            self.record.changes.remove(at);
            self.save();
        }
    }

    fn save(&self) {
        let Some(path) = &self.path else { return };
        if let Err(e) = run_dir::save(path, &self.record.serialize_json()) {
            log::warn!("failed to note network changes in {}: {e}", path.display());
        }
    }

    /// Undoes all changes, newest first: addresses and routes, then changes of links, except for links that
    /// another program now uses. Something that no longer exists is no error, and a failure does not stop the
    /// rest.
    pub async fn undo(&mut self, netlink: &Netlink) -> Result<()> {
        let changes = std::mem::take(&mut self.record.changes);
        let (mut links, traffic): (Vec<_>, Vec<_>) = changes.iter().rev().partition(|change| change.link().is_some());
        let mut first = undo_all(traffic, netlink).await;
        if !links.is_empty() {
            let done = match in_use(&changes, netlink).await {
                Ok(used) => {
                    links.retain(|change| !change.is_of(&used, &changes));
                    undo_all(links, netlink).await
                }
                Err(e) => Err(e.context("failed to look whether a link is in use; every link stays as it is")),
            };
            first = first.and(done);
        }
        self.keep();
        first
    }

    /// Forgets the changes without undoing them.
    pub fn keep(&mut self) {
        self.record.changes.clear();
        if let Some(path) = &self.path {
            run_dir::forget(path);
        }
    }
}

impl Change {
    /// The link that was created or changed. None for an address or a route.
    fn link(&self) -> Option<u32> {
        match self {
            Change::Up { index }
            | Change::Mtu { index, .. }
            | Change::Mac { index, .. }
            | Change::Made { index }
            | Change::Port { index } => Some(*index),
            Change::Address { .. } | Change::Route { .. } => None,
        }
    }

    /// Whether the change belongs to one of the links `used`, or to a port or parent of one that was created
    /// here.
    fn is_of(&self, used: &[u32], changes: &[Change]) -> bool {
        let is_part = || changes.iter().any(|c| matches!(c, Change::Made { index } if used.contains(index)));
        self.link().is_some_and(|index| used.contains(&index)) || is_part()
    }
}

async fn undo_all(changes: Vec<&Change>, netlink: &Netlink) -> Result<()> {
    let mut first = Ok(());
    for change in changes {
        let done = undo(change, netlink).await.or_else(gone);
        if let Err(e) = done.context(|| format!("failed to take back a network change ({})", change.serialize_json())) {
            log::warn!("{e}");
            first = first.and(Err(e));
        }
    }
    first
}

async fn undo(change: &Change, netlink: &Netlink) -> io::Result<()> {
    match change {
        Change::Up { index } => netlink.set_up(*index, false).await,
        Change::Mtu { index, before } => netlink.set_mtu(*index, *before).await,
        Change::Mac { index, before } => match before.as_slice().try_into() {
            Ok(mac) => netlink.set_mac(*index, mac).await,
            Err(_) => Ok(()),
        },
        Change::Address { index, address, prefix } => {
            let address = address.parse().map_err(io::Error::other)?;
            netlink.address(Address::new(*index, address, *prefix), false).await
        }
        Change::Route { index, destination, prefix, gateway, metric } => {
            let gateway = if gateway.is_empty() { None } else { Some(gateway.parse().map_err(io::Error::other)?) };
            let destination = destination.parse().map_err(io::Error::other)?;
            let route = Route { index: *index, destination, prefix: *prefix, gateway, metric: *metric };
            netlink.route(route, false).await
        }
        Change::Made { index } => netlink.remove(*index).await,
        Change::Port { index } => netlink.set_controller(*index, 0).await,
    }
}

/// The links in `changes` that another program now uses: besides our addresses, they have one that the kernel
/// did not add by itself, or are part of a bond or bridge that is not ours.
async fn in_use(changes: &[Change], netlink: &Netlink) -> Result<Vec<u32>> {
    let addresses = netlink.addresses().await?;
    let links = netlink.links().await?;
    let mut used: Vec<u32> = changes.iter().filter_map(Change::link).collect();
    used.sort_unstable();
    used.dedup();
    used.retain(|&index| {
        let is_enslaved = || links.iter().any(|l| l.index == index && l.enslaved);
        let is_used = addresses.iter().any(|a| a.index == index && !a.automatic)
            || (is_enslaved() && !changes.contains(&Change::Port { index }));
        if is_used {
            log::info!("link {index} stays as it is: another program has configured it since");
        }
        is_used
    });
    Ok(used)
}

/// ENOENT, ESRCH (routes), ENODEV and EADDRNOTAVAIL are success: the object to remove does not exist.
fn gone(error: io::Error) -> io::Result<()> {
    use rustix::io::Errno;
    let gone = [Errno::NOENT, Errno::SRCH, Errno::NODEV, Errno::ADDRNOTAVAIL];
    if gone.iter().any(|e| error.raw_os_error() == Some(e.raw_os_error())) { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;

    #[test]
    fn what_is_noted_is_found_by_the_next() {
        let folder = TempDir::new("journal");
        let path = folder.0.join("net/changes.json");
        let mut journal = Journal::new(Some(path.clone()));
        let up = Change::Up { index: 2 };
        let address = Change::Address { index: 2, address: "10.0.0.5".into(), prefix: 24 };
        journal.note(up.clone());
        journal.note(address.clone());
        journal.note(Change::Mac { index: 2, before: vec![2, 0, 0, 0, 0, 1] });
        journal.forget(&address);
        let left = Journal::left(&path).unwrap();
        assert_eq!(left.record.changes, [up, Change::Mac { index: 2, before: vec![2, 0, 0, 0, 0, 1] }]);
        journal.keep();
        assert!(Journal::left(&path).is_none());
        std::fs::write(&path, "{nonsense").unwrap();
        assert!(Journal::left(&path).is_none());
    }
}
