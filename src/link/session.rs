//! The network for the time of the search: raised, asked by every way at once, and given back.

use super::cmdline_net::Plan;
use super::ground::{Ground, Told};
use super::http;
use super::journal::Journal;
use super::known::{Known, barred};
use super::netlink::Netlink;
use super::uplink::{Reach, Uplink};
use super::{raise, setup};
use crate::base::cancel::Cancel;
use crate::base::deadline::Deadline;
use crate::base::error::{Context, Error, Result};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Mutex;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::LocalSet;

/// How many links are raised; a machine with more has a kernel command line that says which.
const MAX_LINKS: usize = 64;
/// What is left for the reasons once the waiting is over.
const GRACE: Duration = Duration::from_millis(200);
/// How long ways may stay silent once another has answered with a no, and no further way can come but by a router:
/// neighbour discovery takes 3 s to find that an address is unused.
const SILENT_AFTER_NO: Duration = Duration::from_secs(5);
/// How many addresses are asked by each way.
const MAX_URLS: usize = 8;

/// How a session is opened.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the changes are noted, below /run; leases are left beside it (`lease-LINK.json`).
    pub record: Option<PathBuf>,
    /// The mounted sysfs.
    pub sys: PathBuf,
    /// What the kernel command line says about the network.
    pub plan: Plan,
    /// Whether links of software are raised too: for namespaces, which have no devices.
    pub software_links: bool,
    /// Whether links are raised at all. Not in the real root, whose network is not prepivot's: there the system's own
    /// routes are asked, and the metadata service's IPv6 address on every device that is up.
    pub raise: bool,
}

/// Ends a session's asking, from another thread.
#[derive(Clone)]
pub struct Stopper(mpsc::UnboundedSender<Told>);

impl Stopper {
    /// [`Session::ask`] gives an error at once.
    pub fn stop(&self) {
        // A session that is gone does not ask any more.
        let _ = self.0.send(Told::Stop);
    }
}

/// The raised network. Dropping it takes back what it changed, unless it is to be kept.
pub struct Session {
    runtime: Runtime,
    local: LocalSet,
    netlink: Netlink,
    journal: Rc<RefCell<Journal>>,
    listener: mpsc::UnboundedReceiver<Told>,
    ground: Ground,
    /// Ways that may still become ready.
    pending: Vec<Uplink>,
    uplinks: Vec<Uplink>,
    reasons: Vec<Error>,
    /// When the tasks and clients give up, and when the session does: a moment later, so that it hears their reasons.
    deadline: Deadline,
    patience: Deadline,
    findings: http::Findings,
}

impl Session {
    /// Takes back what a killed session left, makes what the kernel command line asks for, and sets every link up that
    /// may be touched. Everything ends at `deadline`.
    ///
    /// # Errors
    ///
    /// No netlink. A link that fails is reported by [`Session::ask`].
    pub fn open(settings: &Settings, deadline: Deadline) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context(|| "failed to start the network runtime")?;
        let local = LocalSet::new();
        let (told, listener) = mpsc::unbounded_channel();
        let journal = Rc::new(RefCell::new(Journal::new(settings.record.clone())));
        let ground = runtime.block_on(local.run_until(async {
            let (netlink, events) = Netlink::open()?;
            if let Some(mut left) = settings.record.as_deref().and_then(Journal::left) {
                // What cannot be taken back was logged; the rest is no reason to stop.
                let _ = left.undo(&netlink).await;
            }
            let known = Known::follow(&netlink, events).await?;
            let (sys, journal) = (settings.sys.clone(), journal.clone());
            let leases = settings.record.as_deref().and_then(Path::parent).map(Path::to_owned);
            let ground = Ground { netlink, known, sys, journal, allowed: Rc::default(), told, leases };
            setup::make(&settings.plan, &ground).await;
            // What was made is younger than the last event that was heard.
            ground.known.read(&ground.netlink).await?;
            Ok::<_, Error>(ground)
        }))?;
        let mut session = Session {
            runtime,
            local,
            netlink: ground.netlink.clone(),
            journal,
            listener,
            ground,
            pending: Vec::new(),
            uplinks: Vec::new(),
            reasons: Vec::new(),
            deadline: deadline.at_most(deadline.left().saturating_sub(GRACE)),
            patience: deadline,
            findings: http::Findings::default(),
        };
        session.start(settings);
        Ok(session)
    }

    /// One task for each link: its own links are raised, others' are watched.
    fn start(&mut self, settings: &Settings) {
        if !settings.raise {
            return self.use_what_is_there();
        }
        let _local = self.local.enter();
        let _runtime = self.runtime.enter();
        let known = &self.ground.known;
        let loopback = |l: &super::netlink::Link| l.name == "lo";
        for link in known.links().into_iter().filter(|l| !loopback(l) && !l.enslaved).take(MAX_LINKS) {
            let made = self.ground.allowed.borrow().contains(&link.index);
            let software = settings.software_links || made || settings.plan.names_link(&link.name);
            let others = link.up && !self.ground.is_ours(link.index);
            let state = super::netlink::Link { up: others, ..link.clone() };
            let barred = barred(&state, known.addressed(link.index), software, &settings.sys);
            let (ground, deadline) = (self.ground.clone(), self.deadline);
            let pin = &settings.plan.pin;
            match barred {
                _ if !pin.allows(link.mac) || (pin.leases_only() && barred.is_some()) => {
                    log::debug!("{}: left alone: prepivot.network= excludes it", link.name);
                }
                None if settings.plan.allows(&link.name) => {
                    log::debug!("{}: raised", link.name);
                    let plan = settings.plan.clone();
                    self.pending.extend(Reach::ALL.map(|reach| Uplink::of(&link.name, link.index, reach)));
                    tokio::task::spawn_local(raise::link(link, plan, ground, deadline));
                }
                None => log::debug!("{}: left alone: the kernel command line does not name it", link.name),
                Some(why) => {
                    log::debug!("{}: left alone: {why}", link.name);
                    if others && link.ethernet {
                        self.pending.extend(Reach::ALL.map(|reach| Uplink::of(&link.name, link.index, reach)));
                        tokio::task::spawn_local(raise::watch(link, ground, deadline));
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
        let known = &self.ground.known;
        let devices = known.links().into_iter().filter(|l| l.ethernet && l.up && !l.software && !l.enslaved);
        for link in devices.filter(|l| known.link_local6(l.index)).take(MAX_LINKS) {
            self.uplinks.push(Uplink::of(&link.name, link.index, Reach::Ipv6LinkLocal));
        }
    }

    /// How many requests were sent so far, and the warnings about them.
    pub fn findings(&self) -> &http::Findings {
        &self.findings
    }

    /// What ends the asking from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.ground.told.clone())
    }

    /// Asks by every way for each address that `urls` has for it: `probe`, with a client and the address, in a thread of
    /// its own as soon as the way is ready. `http` says how each address is asked. Gives the first result that is no error; the others are cancelled.
    ///
    /// An error once everyone has failed or the deadline has passed, with the reason of each.
    pub fn ask<T: Send>(
        &mut self,
        http: &dyn Fn(&Uplink, &str) -> http::Settings,
        urls: &dyn Fn(&Uplink) -> Vec<String>,
        probe: &(dyn Fn(&http::Client, &str) -> Result<T> + Sync),
    ) -> Result<T> {
        let cancel = Cancel::new().context(|| "failed to make an eventfd")?;
        let answers: Mutex<Vec<Result<T>>> = Mutex::default();
        let (deadline, patience, findings) = (self.deadline, self.patience, self.findings.clone());
        let Session { runtime, local, listener, ground, pending, uplinks, reasons, .. } = self;
        std::thread::scope(|scope| {
            let start = |uplink: &Uplink, url: String| {
                let client = http::Client::new(uplink, &http(uplink, &url), deadline, cancel.clone(), &findings);
                let (answers, told, name) = (&answers, ground.told.clone(), uplink.name());
                let thread = std::thread::Builder::new().name(name.clone());
                let spawned = thread.spawn_scoped(scope, move || {
                    let answer = probe(&client, &url).map_err(|e| e.context(&name));
                    answers.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(answer);
                    let _ = told.send(Told::Answered);
                });
                spawned.is_ok()
            };
            let outcome = runtime.block_on(local.run_until(async {
                let (mut started, mut running, mut failed) = (0, 0usize, Vec::new());
                let mut silent = patience;
                loop {
                    for uplink in uplinks.iter().skip(started) {
                        running +=
                            urls(uplink).into_iter().take(MAX_URLS).filter(|url| start(uplink, url.clone())).count();
                        silent = patience.at_most(SILENT_AFTER_NO);
                    }
                    started = uplinks.len();
                    let ready = std::mem::take(&mut *answers.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
                    for answer in ready {
                        match answer {
                            Ok(answer) => return Ok(answer),
                            Err(e) => {
                                log::debug!("{e}");
                                running = running.saturating_sub(1);
                                failed.push(e);
                                silent = patience.at_most(SILENT_AFTER_NO);
                            }
                        }
                    }
                    // A way that would not be asked is not waited for.
                    let no_more_uplinks = pending.iter().all(|uplink| urls(uplink).is_empty());
                    if running == 0 && no_more_uplinks {
                        return Err(because(reasons, &failed, "nobody answered"));
                    }
                    // A router would have advertised itself by then.
                    let only_routers = pending.iter().all(|w| w.reach == Reach::Ipv6Routed || urls(w).is_empty());
                    let limit = if only_routers && !failed.is_empty() { silent } else { patience };
                    match tokio::time::timeout(limit.left(), listener.recv()).await {
                        Ok(Some(Told::Uplink(uplink))) => uplinks.push(*uplink),
                        Ok(Some(Told::Ended(index, reach, reason))) => {
                            pending.retain(|uplink| uplink.index != index || uplink.reach != reach);
                            reasons.extend(reason);
                        }
                        Ok(Some(Told::Answered)) => {}
                        Ok(Some(Told::Stop)) => return Err(Error::new("nobody has to answer any more")),
                        Ok(None) | Err(_) => return Err(because(reasons, &failed, "no answer in time")),
                    }
                }
            }));
            cancel.cancel();
            outcome
        })
    }

    /// The leases that were got so far.
    pub fn leases(&self) -> impl Iterator<Item = &super::dhcp::Lease> {
        self.uplinks.iter().filter_map(|uplink| uplink.lease.as_ref())
    }

    /// Takes back every address, route and link state that was changed, and nothing else.
    pub fn restore(mut self) -> Result<()> {
        self.undo()
    }

    /// Leaves the network as it is, for a root that needs it (`prepivot.keepnet`).
    pub fn keep(self) {
        self.journal.borrow_mut().keep();
    }

    fn undo(&mut self) -> Result<()> {
        // The tasks end first: none may add to what is being taken back.
        self.local = LocalSet::new();
        let (journal, netlink) = (self.journal.clone(), self.netlink.clone());
        // Nobody else borrows the journal once the tasks are gone.
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

/// Takes back what a session left behind that was killed or handed over, by the record it kept.
pub fn restore_left(record: &Path) -> Result<()> {
    let Some(mut left) = Journal::left(record) else { return Ok(()) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context(|| "failed to start the network runtime")?.block_on(async {
        let (netlink, _events) = Netlink::open()?;
        left.undo(&netlink).await
    })
}

fn because(links: &[Error], uplinks: &[Error], otherwise: &str) -> Error {
    let all: Vec<String> = links.iter().chain(uplinks).map(ToString::to_string).collect();
    Error::new(if all.is_empty() { otherwise.into() } else { all.join("; ") })
}
