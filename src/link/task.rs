//! Shared by the tasks of a session: the link table, the journal, and the changes recorded in it.

use super::dhcp::{Lease, record};
use super::journal::{Change, Journal};
use super::link_table::LinkTable;
use super::netlink::{Address, Netlink, Route};
use super::uplink::{Reach, Uplink};
use crate::base::error::{Context, Error, Result};
use crate::root::run_dir;
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use tokio::sync::mpsc;

/// The shared state of a session's tasks.
#[derive(Clone)]
pub struct TaskContext {
    pub netlink: Netlink,
    pub links: LinkTable,
    pub sys: PathBuf,
    pub journal: Rc<RefCell<Journal>>,
    /// Virtual links that may be raised: those that the kernel command line asks for.
    pub allowed: Rc<RefCell<Vec<u32>>>,
    pub events: mpsc::UnboundedSender<TaskEvent>,
    /// The folder in which leases are kept.
    pub leases: Option<PathBuf>,
}

/// Reports of a task or thread to its session.
pub enum TaskEvent {
    /// An uplink is ready.
    Uplink(Box<Uplink>),
    /// A link will not provide this uplink; with the reason, if there is one to report.
    Ended(u32, Reach, Option<Error>),
    /// A thread that asks has finished.
    Answered,
    /// The caller has an answer from elsewhere.
    Stop,
}

impl TaskContext {
    /// Records a change that is about to be made.
    pub fn note(&self, change: Change) {
        self.journal.borrow_mut().note(change);
    }

    /// Removes the record of a change that could not be made.
    pub fn forget(&self, change: &Change) {
        self.journal.borrow_mut().forget(change);
    }

    /// Keeps a lease in /run: its options may be needed later (Azure's wire server, time servers).
    pub fn keep_lease(&self, lease: &Lease) {
        let Some(folder) = &self.leases else { return };
        let path = folder.join(format!("lease-{}.json", lease.link));
        if let Err(e) = run_dir::save(&path, &record::to_json(lease)) {
            log::warn!("failed to leave the lease in {}: {e}", path.display());
        }
    }

    /// Permits a virtual link to be raised.
    pub fn allow(&self, index: u32) {
        self.allowed.borrow_mut().push(index);
    }

    /// Whether the link was created or set up here, so that being up does not mean that another program uses
    /// it. The kernel sets a VLAN up together with its parent.
    pub fn is_ours(&self, index: u32) -> bool {
        self.allowed.borrow().contains(&index) || self.journal.borrow().has(&Change::Up { index })
    }

    /// Reports an event to the session.
    pub fn report(&self, event: TaskEvent) {
        // Fails only if the session was dropped, and its tasks with it.
        let _ = self.events.send(event);
    }

    /// Sets a link up; undone at the end.
    pub async fn set_up(&self, index: u32) -> Result<()> {
        let change = Change::Up { index };
        if self.links.links().iter().any(|l| l.index == index && l.up) {
            return Ok(());
        }
        self.note(change.clone());
        let done = self.netlink.set_up(index, true).await;
        if done.is_err() {
            self.forget(&change);
        }
        done.context(|| "failed to set the link up")
    }

    /// Adds an address; undone at the end.
    pub async fn add_address(&self, address: Address) -> Result<()> {
        let change =
            Change::Address { index: address.index, address: address.address.to_string(), prefix: address.prefix };
        self.note(change.clone());
        let done = self.netlink.address(address, true).await;
        if done.is_err() {
            self.forget(&change);
        }
        done.context(|| format!("failed to add the address {}/{}", address.address, address.prefix))
    }

    /// Adds a route; undone at the end.
    pub async fn add_route(&self, route: Route) -> Result<()> {
        let change = Change::Route {
            index: route.index,
            destination: route.destination.to_string(),
            prefix: route.prefix,
            gateway: route.gateway.map(|g| g.to_string()).unwrap_or_default(),
            metric: route.metric,
        };
        self.note(change.clone());
        let done = self.netlink.route(route, true).await;
        if done.is_err() {
            self.forget(&change);
        }
        done.context(|| format!("failed to add the route {route}"))
    }

    /// Sets a link's MTU; undone at the end. A link that refuses keeps its own.
    pub async fn set_mtu(&self, index: u32, mtu: u32) {
        let Some(before) = self.links.links().iter().find(|l| l.index == index).map(|l| l.mtu) else { return };
        let change = Change::Mtu { index, before };
        self.note(change.clone());
        if let Err(e) = self.netlink.set_mtu(index, mtu).await {
            self.forget(&change);
            log::warn!("failed to set the MTU of link {index} to {mtu}: {e}");
        }
    }

    /// Sets a link's hardware address; undone at the end.
    pub async fn set_mac(&self, index: u32, mac: [u8; 6]) {
        let before = self.links.links().iter().find(|l| l.index == index).and_then(|l| l.mac);
        let Some(before) = before else { return };
        let change = Change::Mac { index, before: before.into() };
        self.note(change.clone());
        if let Err(e) = self.netlink.set_mac(index, mac).await {
            self.forget(&change);
            log::warn!("failed to set the hardware address of link {index}: {e}");
        }
    }
}
