//! The network during the search: links are raised, services are asked through every uplink at once, and all
//! changes are undone.

use super::cmdline_net::LinkPlan;
use super::http;
use super::journal::Journal;
use super::link_table::{Allowed, LinkTable, why_unusable};
use super::netlink::Netlink;
use super::task::{TaskContext, TaskEvent};
use super::uplink::{Reach, Uplink};
use super::{raise, setup};
use crate::base::cancel::Cancel;
use crate::base::deadline::Deadline;
use crate::base::error::{Context, Error, Result};
use crate::base::logging;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::LocalSet;

/// The most links that are raised; on a machine with more, the kernel command line has to name them.
const MAX_LINKS: usize = 64;
/// How long a wait may be before the console says what it is for.
const QUIET: Duration = Duration::from_secs(5);
/// How long to collect the reasons of failures after the deadline.
const GRACE: Duration = Duration::from_millis(200);
/// How long IPv6 addresses that nothing has been heard from may take once a service has answered that it has nothing for this
/// machine, if only a router can provide further uplinks: neighbour discovery takes 3 s to find that an address is unused.
const SILENT_AFTER_NO: Duration = Duration::from_secs(5);
/// The most addresses that are asked through each uplink.
const MAX_URLS: usize = 8;

/// A request to one address through one uplink.
#[derive(Clone)]
struct Asked {
    reach: Reach,
    /// Whether anything was answered so far.
    heard: Arc<AtomicBool>,
}

impl Asked {
    fn was_heard(&self) -> bool {
        self.heard.load(Ordering::Relaxed)
    }
}

/// How to open a session.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The file below /run that records the changes. Leases are kept beside it (`lease-LINK.json`).
    pub record: Option<PathBuf>,
    /// Where sysfs is mounted.
    pub sys: PathBuf,
    /// The kernel command line's network.
    pub plan: LinkPlan,
    /// Whether virtual links are raised too: for network namespaces, which have no devices.
    pub software_links: bool,
    /// Whether links are raised at all. Not in the real root, whose network another program configures: there
    /// the system's own routes are used, and on every device that is up the metadata service's IPv6 address.
    pub raise: bool,
}

/// Ends a session's requests from another thread.
#[derive(Clone)]
pub struct Stopper(mpsc::UnboundedSender<TaskEvent>);

impl Stopper {
    /// Makes [`Session::ask`] return an error at once.
    pub fn stop(&self) {
        // A session that was dropped has no requests to end.
        let _ = self.0.send(TaskEvent::Stop);
    }
}

/// The raised network. Dropping it undoes its changes, unless [`Session::keep`] was called.
pub struct Session {
    runtime: Runtime,
    local: LocalSet,
    netlink: Netlink,
    journal: Rc<RefCell<Journal>>,
    listener: mpsc::UnboundedReceiver<TaskEvent>,
    context: TaskContext,
    /// Uplinks that may still become ready.
    pending: Vec<Uplink>,
    uplinks: Vec<Uplink>,
    reasons: Vec<Error>,
    /// When tasks and clients give up. The session gives up a moment later, to receive their reasons.
    deadline: Deadline,
    patience: Deadline,
    findings: http::Findings,
}

impl Session {
    /// Undoes the changes of a killed session, creates the links that the kernel command line asks for, and
    /// raises every link that may be used. Everything ends at `deadline`.
    ///
    /// # Errors
    /// There is no netlink. A link that fails is reported by [`Session::ask`] instead.
    pub fn open(settings: &Settings, deadline: Deadline) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context(|| "failed to start the network runtime")?;
        let local = LocalSet::new();
        let (events, listener) = mpsc::unbounded_channel();
        let journal = Rc::new(RefCell::new(Journal::new(settings.record.clone())));
        let context = runtime.block_on(local.run_until(async {
            let (netlink, changes) = Netlink::open()?;
            if let Some(mut left) = settings.record.as_deref().and_then(Journal::left) {
                // A change that cannot be undone was logged, and does not prevent a new session.
                let _ = left.undo(&netlink).await;
            }
            let links = LinkTable::follow(&netlink, changes).await?;
            let (sys, journal) = (settings.sys.clone(), journal.clone());
            let leases = settings.record.as_deref().and_then(Path::parent).map(Path::to_owned);
            let context = TaskContext { netlink, links, sys, journal, allowed: Rc::default(), events, leases };
            setup::make(&settings.plan, &context).await;
            // The new links may not have been reported as events yet.
            context.links.read(&context.netlink).await?;
            Ok::<_, Error>(context)
        }))?;
        let mut session = Session {
            runtime,
            local,
            netlink: context.netlink.clone(),
            journal,
            listener,
            context,
            pending: Vec::new(),
            uplinks: Vec::new(),
            reasons: Vec::new(),
            deadline: deadline.before(GRACE),
            patience: deadline,
            findings: http::Findings::default(),
        };
        session.start(settings);
        Ok(session)
    }

    /// Starts one task per link: unused links are raised, those of other programs watched.
    fn start(&mut self, settings: &Settings) {
        if !settings.raise {
            return self.use_what_is_there();
        }
        let _local = self.local.enter();
        let _runtime = self.runtime.enter();
        let links = &self.context.links;
        let loopback = |l: &super::netlink::Link| l.name == "lo";
        for link in links.links().into_iter().filter(|l| !loopback(l) && !l.enslaved).take(MAX_LINKS) {
            let made = self.context.allowed.borrow().contains(&link.index);
            let is_asked_for = settings.software_links || made || settings.plan.names_link(&link.name);
            let allowed = if is_asked_for { Allowed::Virtual } else { Allowed::Devices };
            let others = link.up && !self.context.is_ours(link.index);
            let state = super::netlink::Link { up: others, ..link.clone() };
            let unusable = why_unusable(&state, links.has_address(link.index), allowed, &settings.sys);
            let (context, deadline) = (self.context.clone(), self.deadline);
            let pin = &settings.plan.pin;
            match unusable {
                _ if !pin.allows(link.mac) || (pin.leases_only() && unusable.is_some()) => {
                    log::debug!("{}: left alone: prepivot.network= excludes it", link.name);
                }
                None if settings.plan.allows(&link.name) => {
                    log::debug!("{}: raised", link.name);
                    let plan = settings.plan.clone();
                    self.pending.extend(Reach::ALL.map(|reach| Uplink::of(&link.name, link.index, reach)));
                    tokio::task::spawn_local(raise::link(link, plan, context, deadline));
                }
                None => log::debug!("{}: left alone: the kernel command line does not name it", link.name),
                Some(why) => {
                    log::debug!("{}: left alone: {why}", link.name);
                    if others && link.ethernet {
                        self.pending.extend(Reach::ALL.map(|reach| Uplink::of(&link.name, link.index, reach)));
                        tokio::task::spawn_local(raise::watch(link, context, deadline));
                    }
                }
            }
        }
        if self.pending.is_empty() {
            self.reasons.push(Error::new("no network link is there that could be used: is its driver in the image?"));
        }
    }

    fn use_what_is_there(&mut self) {
        self.uplinks.push(Uplink::system());
        let links = &self.context.links;
        let devices = links.links().into_iter().filter(|l| l.ethernet && l.up && !l.software && !l.enslaved);
        for link in devices.filter(|l| links.has_link_local_ipv6(l.index)).take(MAX_LINKS) {
            self.uplinks.push(Uplink::of(&link.name, link.index, Reach::Ipv6LinkLocal));
        }
    }

    /// The number of requests so far, and the warnings about them.
    pub fn findings(&self) -> &http::Findings {
        &self.findings
    }

    /// A handle that ends the requests from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.context.events.clone())
    }

    /// Asks through every uplink for each address that `urls` returns for it: as soon as the uplink is ready,
    /// calls `probe` with a client and the address, in a thread of its own. `http` configures the clients.
    /// Returns the first result that is not an error, and cancels the others.
    ///
    /// # Errors
    /// All have failed, or the deadline has passed; the message has the reason of each.
    pub fn ask<T: Send>(
        &mut self,
        http: &dyn Fn(&Uplink, &str) -> http::Settings,
        urls: &dyn Fn(&Uplink) -> Vec<String>,
        probe: &(dyn Fn(&http::Client, &str) -> Result<T> + Sync),
    ) -> Result<T> {
        let cancel = Cancel::new().context(|| "failed to make an eventfd")?;
        let answers: Mutex<Vec<(Asked, Result<T>)>> = Mutex::default();
        let (deadline, patience, findings) = (self.deadline, self.patience, self.findings.clone());
        let Session { runtime, local, listener, context, pending, uplinks, reasons, .. } = self;
        std::thread::scope(|scope| {
            let start = |uplink: &Uplink, url: String| {
                let client = http::Client::new(uplink, &http(uplink, &url), deadline, cancel.clone(), &findings);
                let (answers, events, name) = (&answers, context.events.clone(), uplink.name());
                let asked = Asked { reach: uplink.reach, heard: client.heard().clone() };
                let thread = std::thread::Builder::new().name(name.clone());
                let own = asked.clone();
                let spawned = thread.spawn_scoped(scope, move || {
                    let answer = probe(&client, &url).map_err(|e| e.context(&name));
                    answers.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((own, answer));
                    let _ = events.send(TaskEvent::Answered);
                });
                spawned.is_ok().then_some(asked)
            };
            let outcome = runtime.block_on(local.run_until(async {
                let (mut started, mut running, mut failed) = (0, Vec::<Asked>::new(), Vec::new());
                let (mut silent, mut refused) = (patience, false);
                let (quiet, mut is_said) = (Deadline::after(QUIET), false);
                loop {
                    for uplink in uplinks.iter().skip(started) {
                        running.extend(urls(uplink).into_iter().take(MAX_URLS).filter_map(|url| start(uplink, url)));
                        silent = patience.at_most(SILENT_AFTER_NO);
                    }
                    started = uplinks.len();
                    let ready = std::mem::take(&mut *answers.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
                    for (asked, answer) in ready {
                        match answer {
                            Ok(answer) => return Ok(answer),
                            Err(e) => {
                                log::debug!("{e}");
                                running.retain(|other| !Arc::ptr_eq(&other.heard, &asked.heard));
                                refused |= asked.was_heard();
                                failed.push(e);
                                silent = patience.at_most(SILENT_AFTER_NO);
                            }
                        }
                    }
                    // An uplink without addresses to ask is not waited for.
                    let no_more_uplinks = pending.iter().all(|uplink| urls(uplink).is_empty());
                    if running.is_empty() && no_more_uplinks {
                        return Err(because(reasons, &failed, "nobody answered"));
                    }
                    // A router would have advertised itself by then.
                    let only_routers = pending.iter().all(|w| w.reach == Reach::Ipv6Routed || urls(w).is_empty());
                    let are_silent = || running.iter().all(|asked| asked.reach != Reach::Ipv4 && !asked.was_heard());
                    let limit = if only_routers && refused && are_silent() { silent } else { patience };
                    let next = if is_said { limit } else { limit.at_most(quiet.left()) };
                    match tokio::time::timeout(next.left(), listener.recv()).await {
                        Err(_) if !is_said && quiet.passed() && !limit.passed() => {
                            is_said = true;
                            say_what_is_awaited(&running, pending, limit);
                        }
                        Ok(Some(TaskEvent::Uplink(uplink))) => uplinks.push(*uplink),
                        Ok(Some(TaskEvent::Ended(index, reach, reason))) => {
                            pending.retain(|uplink| uplink.index != index || uplink.reach != reach);
                            reasons.extend(reason);
                        }
                        Ok(Some(TaskEvent::Answered)) => {}
                        Ok(Some(TaskEvent::Stop)) => return Err(Error::new("the search was cancelled")),
                        // One has answered meanwhile.
                        Err(_) if !patience.passed() && !are_silent() => {}
                        Ok(None) | Err(_) => return Err(because(reasons, &failed, "no answer in time")),
                    }
                }
            }));
            cancel.cancel();
            outcome
        })
    }

    /// The leases so far.
    pub fn leases(&self) -> impl Iterator<Item = &super::dhcp::Lease> {
        self.uplinks.iter().filter_map(|uplink| uplink.lease.as_ref())
    }

    /// Undoes all changes of addresses, routes and links, and nothing else.
    ///
    /// # Errors
    /// A change cannot be undone; the others are.
    pub fn restore(mut self) -> Result<()> {
        self.undo()
    }

    /// Leaves the network as it is, for a root that needs it (`prepivot.keepnet`).
    pub fn keep(self) {
        self.journal.borrow_mut().keep();
    }

    fn undo(&mut self) -> Result<()> {
        // The tasks end first, so that none makes changes while these are undone.
        self.local = LocalSet::new();
        let (journal, netlink) = (self.journal.clone(), self.netlink.clone());
        // Once the tasks are gone, the journal is not borrowed elsewhere.
        let mut journal = std::mem::take(&mut *journal.borrow_mut());
        self.runtime.block_on(journal.undo(&netlink))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.journal.borrow().is_empty() {
            let _ = self.undo();
        }
    }
}

/// Undoes the changes of a session that was killed or handed over, from its record.
///
/// # Errors
/// A change cannot be undone; the others are.
pub fn restore_left(record: &Path) -> Result<()> {
    let Some(mut left) = Journal::left(record) else { return Ok(()) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context(|| "failed to start the network runtime")?.block_on(async {
        let (netlink, _events) = Netlink::open()?;
        left.undo(&netlink).await
    })
}

/// Says on the console what has been waited for since [`QUIET`], and how long it can last.
fn say_what_is_awaited(running: &[Asked], pending: &[Uplink], limit: Deadline) {
    let mut links: Vec<String> = pending.iter().map(Uplink::name).collect();
    links.dedup();
    let what = if running.is_empty() {
        format!("an address on {}", links.join(", "))
    } else {
        "the metadata service's answer".into()
    };
    logging::console(&format!("waiting for {what}: {} s at most", limit.left().as_secs()));
}

fn because(links: &[Error], uplinks: &[Error], otherwise: &str) -> Error {
    let all: Vec<String> = links.iter().chain(uplinks).map(ToString::to_string).collect();
    Error::new(if all.is_empty() { otherwise.into() } else { all.join("; ") })
}
