//! Finds this boot's instance: the cached one if the machine's UUID proves that it is the same machine; else
//! one on a drive or from another local source; else one from a service. A drive that is expected but has not
//! appeared yet is waited for.

use super::boot::Boot;
use super::trust::REFUSED;
use crate::base::cancel::Cancel;
use crate::base::deadline::Deadline;
use crate::base::error::{Error, Result};
use crate::base::logging;
use crate::detect::{self, Facts, Platform};
use crate::document::Value;
use crate::drive::DriveSearch as Drives;
use crate::drive::devices::Places;
use crate::drive::settle::{settle, usb_disk_to_come};
use crate::instance::status::uptime;
use crate::instance::{DsMode, Instance, state};
use crate::link::{self, cmdline_net::Made};
use crate::machine::{Drivers, Machine, beneath};
use crate::root::{Root, run_dir};
use crate::source::choose::{self, Certainty, MAYBE_TIME, Service};
use crate::source::service::{self, Job};
use crate::source::{self, Found, Search, candidates, none};
use std::time::Duration;

/// How long to look for a drive if nothing promises one and nothing else can be tried, counted
/// from the start of systemd-udevd: usb-storage scans a stick one second after it is plugged in, and by the
/// time that the root's disk is found its bus has shown the other drives.
const UNCERTAIN: Duration = Duration::from_millis(1500);

/// How long the disks of USB devices that the kernel has found may take to appear after that: a controller of removable media, or a
/// server's virtual CD-ROM, takes seconds.
const BUSES: Duration = Duration::from_secs(10);
/// How often it is looked whether they have.
const SLICE: Duration = Duration::from_millis(250);

/// How long udev may take to load the drivers of present devices before a service is asked.
const COLDPLUG: Duration = Duration::from_secs(30);

/// How long reading the drives may take in the real root.
const REREAD: Duration = Duration::from_secs(10);

/// How long a service may take in the real root that did not answer in the initramfs.
const SERVED: Duration = Duration::from_secs(30);

/// How long a service may take if the last boot's instance can be used instead, and nothing suggests that it belongs to another
/// machine.
const KNOWN: Duration = Duration::from_secs(10);

/// The result of the search.
pub enum Outcome {
    /// The last boot's instance, not read again.
    Same(Box<Instance>),
    /// The disk's instance, although it is another machine's, because no service answered, for this reason. The network stage asks
    /// again.
    Others(Box<Instance>, String),
    /// A new instance, read in this boot.
    Read(Box<Found>),
    /// No instance yet: the search is left to the real root, for this reason.
    Deferred(String),
    /// No instance, for this reason.
    Nothing(String),
}

/// Finds this boot's instance within the deadline.
pub fn find(root: &Root, boot: &mut Boot, deadline: Deadline) -> Outcome {
    let mut drives = Drives::new(&source::labels(&boot.image.config), Places::default());
    let outcome = find_with(root, boot, &mut drives, deadline);
    for note in drives.notes() {
        // A container sees its host's disks, and cannot open them.
        if boot.machine.is_container() {
            log::debug!("{note}");
        } else {
            boot.report.warn(note);
        }
    }
    boot.log();
    outcome
}

/// Looks at the drives and seeds that are present, without waiting and without asking a service. For the real
/// root, after an initramfs that found nothing.
pub fn find_on_drives(root: &Root, boot: &mut Boot) -> Option<Found> {
    let mut drives = Drives::new(&source::labels(&boot.image.config), Places::default());
    let facts = Facts::new(boot.machine, root, &boot.image.own, Platform::of(boot.machine, root));
    let names = choose::names(&detect::identify(&facts, &candidates()), &facts);
    let mut search =
        Search::new(boot.machine, root, &boot.image.config, Deadline::after(REREAD)).keeping(boot.image.trust.taken());
    let found = present(&mut search, &mut drives, &names);
    let report = search.take_report();
    boot.absorb(report);
    found
}

/// Asks services over the running system's own network.
///
/// # Errors
/// None answers.
pub fn ask(search: &mut Search, jobs: Vec<Job>) -> Result<Found> {
    let settings = link::Settings {
        record: None,
        sys: search.machine.base.join("sys"),
        plan: link::cmdline_net::LinkPlan::parse(&search.machine.cmdline),
        software_links: false,
        raise: false,
    };
    let mut session = link::Session::open(&settings, search.deadline)?;
    let image = search.root.path().to_owned();
    let found = service::ask(search, jobs, &mut session, &image);
    found.ok_or_else(|| Error::new(search.problems().join("; ")))
}

/// Asks the services that the machine certainly has, over the running system's network. If there is still nothing, the
/// machine may be None's, as by cloud-init in this stage.
pub fn find_service(root: &Root, boot: &mut Boot) -> Option<Found> {
    let facts = Facts::new(boot.machine, root, &boot.image.own, Platform::of(boot.machine, root));
    let report = detect::identify(&facts, &candidates());
    let services = choose::services(&report, &facts);
    let mut search =
        Search::new(boot.machine, root, &boot.image.config, Deadline::after(SERVED)).keeping(boot.image.trust.taken());
    let found = match jobs(&mut search, &services) {
        (jobs, None) if !jobs.is_empty() => ask(&mut search, jobs).ok(),
        _ => None,
    };
    let found = found.or_else(|| choose::falls_back(&report, &facts).then(|| none::found(&search)));
    let report = search.take_report();
    boot.absorb(report);
    found
}

/// The first valid instance of the drives and seeds that are present. One with `dsmode: pass` leaves the
/// machine to other sources, and is used only if there is no other.
fn present(search: &mut Search, drives: &mut Drives, names: &[String]) -> Option<Found> {
    let mut passed = None;
    loop {
        // A seed in the root needs no drive: a kernel may have no block devices at all.
        let drives_found = drives.scan(search.deadline).unwrap_or_else(|e| {
            search.problem(e.to_string());
            Vec::new()
        });
        search.set_drives(drives.seen());
        if let Some(found) = source::find_local(search, names) {
            if found.instance.dsmode != DsMode::Pass {
                return Some(found);
            }
            passed = Some(found);
        }
        if drives_found.is_empty() {
            return passed;
        }
    }
}

fn find_with(root: &Root, boot: &mut Boot, drives: &mut Drives, deadline: Deadline) -> Outcome {
    let mut search = Search::new(boot.machine, root, &boot.image.config, deadline).keeping(boot.image.trust.taken());
    let outcome = look(&mut search, &boot.image.own, drives);
    let report = search.take_report();
    boot.absorb(report);
    outcome
}

/// A search that has not found the machine's own instance in the cache.
struct Finder<'s, 'a> {
    search: &'s mut Search<'a>,
    drives: &'s mut Drives,
    facts: Facts<'a>,
    verdicts: detect::Report,
    /// The sources of the list, in its order.
    names: Vec<String>,
    /// The last boot's instance.
    cached: Option<Instance>,
    /// Whether a service served this machine on the last boot. Then drives are not looked for.
    served: bool,
}

fn look<'a>(search: &mut Search<'a>, own: &'a Value, drives: &mut Drives) -> Outcome {
    let (root, machine) = (search.root, search.machine);
    let cached = state::cached(root);
    // A later stage learned of another instance, and could not provision it; what the trust policy refused is read again.
    let is_another = root.is_file(state::ANOTHER) || cached.is_some() && root.exists(REFUSED);
    let cached = match cached {
        Some(instance) if is_kept(&instance, root, search.config) || !is_another && has_uuid(&instance, machine) => {
            return Outcome::Same(Box::new(instance));
        }
        cached => cached,
    };
    let facts = Facts::new(machine, root, own, Platform::of(machine, root));
    let verdicts = detect::identify(&facts, &candidates());
    let names = choose::names(&verdicts, &facts);
    let forced = facts.requested.forced.as_ref().filter(|(_, place)| place.ends_with("kernel command line"));
    if let Some([name]) = forced.map(|(names, _)| names.as_slice()) {
        let name = source::named(name).map_or(name.as_str(), |source| source.name);
        log::debug!("Kernel command line set to use a single datasource DataSource{name}.");
    }
    let served = !is_another && cached.as_ref().is_some_and(|c| was_served_here(c, machine));
    Finder { search, drives, facts, verdicts, names, cached, served }.find()
}

impl Finder<'_, '_> {
    /// Tries drives, then services, then the last boot's instance.
    fn find(mut self) -> Outcome {
        if self.lists_only_none() {
            let none = || Outcome::Read(Box::new(none::found(self.search)));
            return self.cached.map_or_else(none, |known| Outcome::Same(Box::new(known)));
        }
        if let Some(found) = self.on_present_drive().or_else(|| self.with_drivers_of_root()) {
            return Outcome::Read(Box::new(found));
        }
        if !self.search.root.is_live()
            && let Some(why) = choose::left_to_real_root(&self.verdicts, &self.facts)
        {
            return Outcome::Deferred(why);
        }
        let services = if self.served { Vec::new() } else { choose::services(&self.verdicts, &self.facts) };
        self.drives.also(services.iter().flat_map(|service| service.source.filesystems.iter().copied()));
        let (jobs, budget) = jobs(self.search, &services);
        if let Some(found) = self.on_drive_of_loading_driver() {
            return Outcome::Read(Box::new(found));
        }
        let is_replaced = jobs.iter().any(|job| job.replaces_drive);
        let due = choose::drive_is_due(&self.verdicts, &self.facts).filter(|_| !is_replaced);
        let asks = !jobs.is_empty();
        let limit = self.service_limit(budget);
        if let Some(found) = self.ask_services(&services, jobs, limit) {
            return Outcome::Read(found);
        }
        // No drive comes to a container.
        if self.cached.is_none()
            && (due.is_some() || !asks)
            && !self.search.machine.is_container()
            && let Some(found) = self.wait_by_signs(due.as_deref())
        {
            return Outcome::Read(Box::new(found));
        }
        if let Some(cached) = self.cached.take() {
            return self.keep(cached, asks);
        }
        if self.facts.requested.lists_none() && none::is_configured(self.search) {
            return Outcome::Read(Box::new(none::found(self.search)));
        }
        let unread = choose::unread(&self.verdicts, &self.facts);
        Outcome::Nothing(reason(self.search, self.drives, &unread, due.is_some()))
    }

    /// Whether the list has no source but None.
    fn lists_only_none(&self) -> bool {
        self.facts.requested.lists_none() && self.names.iter().all(|name| none::SOURCE.is_named(name))
    }

    fn present(&mut self) -> Option<Found> {
        present(self.search, self.drives, &self.names)
    }

    /// The instance on a drive, or in a seed, that is there.
    fn on_present_drive(&mut self) -> Option<Found> {
        let found = self.present()?;
        // A kernel command line or DMI may give only part of the data, such as `ds=` with an instance-id; a
        // drive whose driver is still loading may have the rest.
        let is_partial = found.instance.user_data.is_none();
        let has_more = is_partial && !self.search.root.is_live() && self.coldplugged();
        Some(if has_more { self.present().unwrap_or(found) } else { found })
    }

    /// The instance on a drive for which the new root has the driver.
    fn with_drivers_of_root(&mut self) -> Option<Found> {
        let root = self.search.root;
        let may_load = root.has_run() && !root.is_live() && !self.served;
        let loads = may_load && self.drives.use_drivers(Drivers::of(self.search.machine, root.path()));
        loads.then(|| self.present()).flatten()
    }

    /// The instance on a drive whose driver udev has just loaded: it takes precedence over a service and over the last boot's
    /// instance.
    fn on_drive_of_loading_driver(&mut self) -> Option<Found> {
        let has_more = !self.served && self.coldplugged();
        has_more.then(|| self.present()).flatten()
    }

    /// Waits until udev has loaded the drivers of the present devices. Returns whether drives have appeared since
    /// the last scan.
    fn coldplugged(&mut self) -> bool {
        let deadline = self.search.deadline;
        if !settle(&self.search.machine.base.join("run/udev"), deadline.at_most(COLDPLUG)) {
            log::info!("udev is still busy: a drive that it is about to show is not waited for");
        }
        self.drives.appeared(deadline).is_ok_and(|found| !found.is_empty())
    }

    /// Whether the last boot's instance is another machine's.
    fn is_of_others(&self) -> bool {
        self.cached.as_ref().is_some_and(|c| is_of_another_machine(c, self.search.machine))
    }

    /// How long services may take: at most `budget`, and less if the last boot's instance can be used instead.
    fn service_limit(&self, budget: Option<Duration>) -> Deadline {
        // A cached instance of None does not count.
        let known = self.cached.as_ref().filter(|c| !self.is_of_others() && !none::SOURCE.is_named(&c.source));
        known.map(|_| KNOWN).into_iter().chain(budget).fold(self.search.deadline, Deadline::at_most)
    }

    /// Asks the services, and takes a drive that appears meanwhile instead if it is a source.
    fn ask_services(&mut self, services: &[Service], mut jobs: Vec<Job>, limit: Deadline) -> Option<Box<Found>> {
        while !jobs.is_empty() {
            match race(self.search, std::mem::take(&mut jobs), self.drives, limit) {
                Some(Winner::Service(found)) => return Some(found),
                Some(Winner::Drive) => {
                    if let Some(found) = source::find_local(self.search, &self.names) {
                        return Some(Box::new(found));
                    }
                    // The drive was not a source, or one that only adds to a service's data.
                    if !limit.passed() {
                        jobs = self::jobs(self.search, services).0;
                    }
                }
                None => {}
            }
        }
        self.search.take_otherwise().map(Box::new)
    }

    /// Waits for a drive as long as there are signs of one: until the deadline if `due` says why it is to come, else until the buses
    /// have shown what is there.
    fn wait_by_signs(&mut self, due: Option<&str>) -> Option<Found> {
        let (deadline, machine) = (self.search.deadline, self.search.machine);
        let announce = |what: &str, limit: Deadline| {
            logging::console(&format!("waiting for {what}, for {} s at most", limit.left().as_secs_f64().round()));
        };
        if let Some(why) = due {
            announce(&format!("a drive labelled config-2 or cidata ({why})"), deadline);
            return self.wait_for_drive(deadline);
        }
        let uncertain = deadline.at_most(UNCERTAIN.saturating_sub(since_udev(machine)));
        if let Some(found) = self.wait_for_drive(uncertain) {
            return Some(found);
        }
        let (limit, sys) = (deadline.at_most(BUSES), machine.base.join("sys"));
        let mut coming = usb_disk_to_come(&sys)?;
        announce(&format!("the disk of the USB device {coming}"), limit);
        while !limit.passed() {
            if let Some(found) = self.wait_for_drive(limit.at_most(SLICE)) {
                return Some(found);
            }
            // Once more after the last has come.
            if coming.is_empty() {
                break;
            }
            coming = usb_disk_to_come(&sys).unwrap_or_default();
        }
        None
    }

    /// Waits until the limit for a drive that is a source.
    fn wait_for_drive(&mut self, limit: Deadline) -> Option<Found> {
        while !limit.passed() {
            match self.drives.wait(limit, None) {
                Ok(found) if found.is_empty() => return None,
                Ok(_) => {
                    self.search.set_drives(self.drives.seen());
                    if let Some(found) = source::find_local(self.search, &self.names) {
                        return Some(found);
                    }
                }
                Err(e) => {
                    self.search.problem(e.to_string());
                    return None;
                }
            }
        }
        None
    }

    /// Keeps the last boot's instance, unless what the initramfs cannot see may have another. `asked`: services were asked.
    fn keep(&self, cached: Instance, asked: bool) -> Outcome {
        // If a service served the machine, what the initramfs cannot see does not matter.
        if !self.search.root.is_live()
            && !self.served
            && let Some(why) = choose::unseen(&self.names, &self.facts, &cached)
        {
            return Outcome::Deferred(why);
        }
        let reasons = self.search.problems().join("; ");
        if asked && is_of_another_machine(&cached, self.search.machine) {
            return Outcome::Others(Box::new(cached), reasons);
        }
        log::info!("no datasource answers: the instance {} of the last boot stays ({reasons})", cached.instance_id);
        Outcome::Same(Box::new(cached))
    }
}

/// How long systemd-udevd has been running; zero if it is not, or if the clock was set since then: udev may have loaded the
/// clock's driver.
fn since_udev(machine: &Machine) -> Duration {
    let started = beneath::metadata(&machine.base, "run/udev/control").and_then(|m| m.modified().ok());
    let since = started.and_then(|time| time.elapsed().ok()).unwrap_or_default();
    if since.as_secs_f64() > uptime() { Duration::ZERO } else { since }
}

/// The requests to the services, and their time limit if they have one: only services that the machine
/// certainly has are asked without a limit, and only if there are none are possible ones asked.
pub fn jobs(search: &mut Search, services: &[Service]) -> (Vec<Job>, Option<Duration>) {
    let mut of = |certainty: Certainty| -> Vec<Job> {
        let services = services.iter().filter(|s| s.certainty == certainty);
        services
            .filter_map(|service| {
                search.marked = service.marked;
                search.taken().clear();
                let job = service.source.service?(search)?;
                Some(Job { taken: search.taken().fork(), ..job })
            })
            .collect()
    };
    let certain = of(Certainty::Certain);
    if certain.is_empty() { (of(Certainty::Maybe), Some(MAYBE_TIME)) } else { (certain, None) }
}

/// Which of the two came first.
enum Winner {
    Service(Box<Found>),
    /// A drive appeared, and is among the search's drives.
    Drive,
}

/// Asks the services and waits for a drive at the same time. A drive takes precedence.
fn race(search: &mut Search, jobs: Vec<Job>, drives: &mut Drives, deadline: Deadline) -> Option<Winner> {
    let machine = search.machine;
    let settings = link::Settings {
        record: Some(run_dir::NETWORK.into()),
        sys: machine.base.join("sys"),
        plan: link::cmdline_net::LinkPlan::parse(&machine.cmdline),
        software_links: false,
        raise: true,
    };
    if let Some(drivers) = drives.drivers() {
        drivers.for_network(&network_modules(&settings.plan));
    }
    let mut session = match link::Session::open(&settings, deadline) {
        Ok(session) => session,
        Err(e) => {
            search.problem(format!("the network is not asked: {e}"));
            return None;
        }
    };
    let image = search.root.path().to_owned();
    let (stopper, cancel) = (session.stopper(), Cancel::new().ok()?);
    let (found, appeared) = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let appeared = drives.wait(deadline, Some(&cancel)).is_ok_and(|found| !found.is_empty());
            if appeared {
                stopper.stop();
            }
            appeared
        });
        let found = service::ask(search, jobs, &mut session, &image);
        cancel.cancel();
        (found, waiter.join().unwrap_or(false))
    });
    let requests = session.findings().requests();
    if machine.cmdline.has("prepivot.keepnet") {
        session.keep();
    } else if let Err(e) = session.restore() {
        search.problem(e.to_string());
    }
    if let Some(found) = found {
        log::info!("{requests} requests to {}", found.place);
        return Some(Winner::Service(Box::new(found)));
    }
    search.set_drives(drives.seen());
    appeared.then_some(Winner::Drive)
}

/// Kernel modules that the network may need besides device drivers: for sending packets, and for the links
/// that the kernel command line asks for. Each with a file that exists once the kernel has it.
fn network_modules(plan: &link::cmdline_net::LinkPlan) -> Vec<(&'static str, &'static str)> {
    let mut modules = vec![("af_packet", "proc/self/net/packet"), ("ipv6", "proc/self/net/if_inet6")];
    modules.extend(plan.made.iter().map(|made| match made {
        Made::Bond { .. } => ("bonding", "sys/module/bonding"),
        Made::Bridge { .. } => ("bridge", "sys/module/bridge"),
        Made::Vlan { .. } => ("8021q", "proc/self/net/vlan"),
    }));
    modules
}

fn reason(search: &Search, drives: &mut Drives, unread: &[String], due: bool) -> String {
    // Drivers missing in the root may be why nothing was found.
    let notes = drives.drivers().map(|drivers| drivers.notes().to_vec()).unwrap_or_default();
    let reason = without_notes(search, unread, due);
    std::iter::once(reason).chain(notes).collect::<Vec<_>>().join("; ")
}

fn without_notes(search: &Search, unread: &[String], due: bool) -> String {
    match &*search.problems() {
        [] if !unread.is_empty() => {
            format!(
                "no datasource: this machine's is {}, which this build of prepivot leaves out",
                unread.join(" and ")
            )
        }
        [] if due => {
            "no datasource: a config drive is due and none appeared; attach one labelled config-2 or cidata".into()
        }
        [] => "no datasource: there is no drive labelled config-2 or cidata".into(),
        problems => format!("no datasource: {}", problems.join("; ")),
    }
}

/// Whether the cached instance is kept forever (`manual_cache_clean`), as the image's configuration says or that with which it was
/// provisioned.
fn is_kept(cached: &Instance, root: &Root, config: &Value) -> bool {
    config.get("manual_cache_clean").is_some_and(Value::is_true) || root.is_file(&state::kept_mark(cached))
}

/// Whether the cached instance is certainly this machine's, because its id is the machine's UUID.
fn has_uuid(cached: &Instance, machine: &Machine) -> bool {
    machine.uuid().is_some_and(|uuid| uuid.eq_ignore_ascii_case(&cached.instance_id))
}

/// Whether the cached instance came from a service and belongs to this machine. Then the initramfs does not
/// ask the service again.
fn was_served_here(cached: &Instance, machine: &Machine) -> bool {
    cached.from_network && machine.uuid().is_some() && cached.machine_uuid == machine.uuid()
}

/// Whether the cached instance is certainly another machine's: this machine has a copy of its disk.
fn is_of_another_machine(cached: &Instance, machine: &Machine) -> bool {
    cached.machine_uuid.is_some() && machine.uuid().is_some_and(|uuid| cached.machine_uuid != Some(uuid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::{Attr, Use};
    use crate::stage::testing;

    #[test]
    fn certain_service_has_more_time_than_possible() {
        let dir = TempDir::new("jobs");
        let (machine, root) = (dir.machine(), dir.root(Use::Plan));
        let mut search = Search::new(&machine, &root, &Value::Null, Deadline::after(Duration::ZERO));
        let service = |name, certainty| Service { source: source::named(name).unwrap(), certainty, marked: true };
        let mut of = |services: &[Service]| {
            let (jobs, budget) = jobs(&mut search, services);
            (jobs.iter().map(|j| j.name).collect::<Vec<_>>().join(" "), budget.map(|b| b.as_secs()))
        };
        use Certainty::{Certain, Maybe};
        assert_eq!(of(&[service("OpenStack", Certain)]), ("OpenStack".into(), None));
        assert_eq!(of(&[service("OpenStack", Maybe), service("Ec2", Maybe)]), ("OpenStack Ec2".into(), Some(20)));
        // Beside a certain service, no possible one is asked.
        assert_eq!(of(&[service("OpenStack", Maybe), service("Ec2", Certain)]), ("Ec2".into(), None));
        assert_eq!(of(&[]).0, "");
        // NoCloud has no URL here.
        assert_eq!(of(&[service("NoCloud", Certain), service("OpenStack", Maybe)]), ("OpenStack".into(), Some(20)));
    }

    #[test]
    fn a_copied_disk_has_another_machines_instance() {
        let dir = TempDir::new("copied");
        std::fs::create_dir_all(dir.0.join("sys/class/dmi/id")).unwrap();
        let is_others = |own: &str, cached: Option<&str>| {
            dir.write("sys/class/dmi/id/product_uuid", own);
            let instance = Instance { machine_uuid: cached.map(str::to_owned), ..Instance::default() };
            is_of_another_machine(&instance, &dir.machine())
        };
        assert!(is_others("AA-1\n", Some("bb-2")));
        assert!(!is_others("AA-1\n", Some("aa-1")));
        // No mark says so.
        assert!(!is_others("AA-1\n", None) && !is_others("\n", Some("bb-2")));
    }

    /// The id of the instance that is found in the folder, as it was or read.
    fn found_id(root: &Root, machine: &Machine, dir: &TempDir) -> String {
        let places = Places { sys: dir.0.join("sys/class/block"), dev: dir.0.join("dev") };
        let mut drives = Drives::new(&[""; 0], places);
        let mut boot = testing::boot(root, machine);
        match find_with(root, &mut boot, &mut drives, Deadline::after(Duration::ZERO)) {
            Outcome::Same(same) => same.instance_id,
            Outcome::Read(found) => found.instance.instance_id,
            _ => panic!("there is an instance"),
        }
    }

    #[test]
    fn does_not_search_with_manual_cache_clean() {
        let dir = TempDir::new("find-kept");
        dir.write("var/lib/cloud/seed/nocloud/meta-data", "instance-id: another\n");
        dir.write("var/lib/cloud/seed/nocloud/user-data", "");
        let machine = dir.machine();
        let mut root = dir.root(Use::Tree);
        let cached = Instance { source: "NoCloud".into(), instance_id: "kept".into(), ..Instance::default() };
        state::store(&mut root, &cached).unwrap();
        for (marked, id) in [(false, "another"), (true, "kept")] {
            if marked {
                root.write(&state::kept_mark(&cached), "", Attr::root(0o644)).unwrap();
            }
            assert_eq!(root.commit(), []);
            assert_eq!(found_id(&root, &machine, &dir), id);
        }
    }

    #[test]
    fn looks_for_another_instance_that_stage_saw() {
        let dir = TempDir::new("find-another");
        dir.write("sys/class/dmi/id/product_uuid", "0-1\n");
        dir.write("var/lib/cloud/seed/nocloud/meta-data", "instance-id: another\n");
        dir.write("var/lib/cloud/seed/nocloud/user-data", "");
        let machine = dir.machine();
        let mut root = dir.root(Use::Tree);
        let cached = Instance { source: "NoCloud".into(), instance_id: "0-1".into(), ..Instance::default() };
        state::store(&mut root, &cached).unwrap();
        for (marks, id) in [(&[][..], "0-1"), (&[state::ANOTHER], "another"), (&[&state::kept_mark(&cached)], "0-1")] {
            marks.iter().for_each(|mark| root.write(mark, "", Attr::root(0o644)).unwrap());
            assert_eq!(root.commit(), []);
            assert_eq!(found_id(&root, &machine, &dir), id);
        }
    }

    #[test]
    fn clock_change_does_not_shorten_drive_search() {
        let dir = TempDir::new("since-udev");
        let machine = dir.machine();
        assert_eq!(since_udev(&machine), Duration::ZERO);
        std::fs::create_dir_all(dir.0.join("run/udev")).unwrap();
        let control = std::fs::File::create(dir.0.join("run/udev/control")).unwrap();
        let second = Duration::from_secs(1);
        control.set_modified(std::time::SystemTime::now() - second).unwrap();
        assert!(since_udev(&machine) >= second);
        control.set_modified(std::time::UNIX_EPOCH + second).unwrap();
        assert_eq!(since_udev(&machine), Duration::ZERO);
    }

    #[test]
    fn leaves_unreadable_sources_to_the_real_root() {
        let dir = TempDir::new("find-later");
        for (path, content) in
            [("sys/class/dmi/id/sys_vendor", "QEMU\n"), ("sys/class/virtio-ports/vport1p1/name", "com.canonical.lxd\n")]
        {
            dir.write(path, content);
        }
        std::fs::create_dir_all(dir.0.join("sys/class/block")).unwrap();
        let (machine, root) = (dir.machine(), dir.root(Use::Plan));
        let mut drives = Drives::new(&[""; 0], Places { sys: dir.0.join("sys/class/block"), dev: dir.0.join("dev") });
        let mut boot = testing::boot(&root, &machine);
        match find_with(&root, &mut boot, &mut drives, Deadline::after(Duration::ZERO)) {
            Outcome::Deferred(why) => assert!(why.starts_with("LXD: /dev/lxd/sock is made by "), "{why}"),
            _ => panic!("the machine is LXD's"),
        }
        assert_eq!(boot.errors_and_warnings(), [""; 0]);
    }

    #[test]
    fn leaves_copied_machine_with_unseen_data_to_root() {
        // The source of the cached instance, whether this is another machine, the tools, and whether the real root has to look.
        let plugin = "usr/lib/open-vm-tools/plugins/vmsvc/libdeployPkgPlugin.so";
        for (vendor, source, id, is_copy, tool, later) in [
            (
                "VMware, Inc.",
                "VMware",
                "i-1",
                true,
                "usr/bin/vmware-rpctool",
                "VMware: guestinfo is read by /usr/bin/vmware-rpctool",
            ),
            (
                "VMware, Inc.",
                "VMware",
                "i-1",
                false,
                "usr/bin/vmtoolsd",
                "VMware: guestinfo is read by /usr/bin/vmtoolsd",
            ),
            ("VMware, Inc.", "OVF", "i-1", false, "usr/bin/vmtoolsd", "OVF: guestinfo is read by /usr/bin/vmtoolsd"),
            (
                "VMware, Inc.",
                "VMware",
                "i-1",
                true,
                plugin,
                "VMware: a guest customization is written by /usr/lib/open-vm-tools",
            ),
            ("VMware, Inc.", "NoCloud", "i-1", true, "usr/bin/vmtoolsd", "VMware: guestinfo"),
            ("VMware, Inc.", "NoCloud", "i-1", false, "usr/bin/vmtoolsd", ""),
            ("VMware, Inc.", "VMware", "0-1", true, "usr/bin/vmtoolsd", ""),
            ("VMware, Inc.", "VMware", "i-1", true, "usr/bin/none", ""),
            ("QEMU", "VMware", "i-1", true, "usr/bin/vmtoolsd", ""),
        ] {
            let dir = TempDir::new("find-copy");
            for (path, text) in [
                ("sys/class/dmi/id/sys_vendor", vendor),
                ("sys/class/dmi/id/product_name", vendor),
                ("sys/class/dmi/id/product_uuid", "0-1"),
            ] {
                dir.write(path, text);
            }
            dir.program(tool);
            let mut root = dir.root(Use::Tree);
            let machine_uuid = Some(if is_copy { "0-0" } else { "0-1" }.to_owned());
            let cached =
                Instance { source: source.into(), instance_id: id.into(), machine_uuid, ..Instance::default() };
            state::store(&mut root, &cached).unwrap();
            assert_eq!(root.commit(), []);
            let machine = dir.machine();
            let places = Places { sys: dir.0.join("sys/class/block"), dev: dir.0.join("dev") };
            let mut drives = Drives::new(&[""; 0], places);
            let mut boot = testing::boot(&root, &machine);
            match find_with(&root, &mut boot, &mut drives, Deadline::after(Duration::ZERO)) {
                Outcome::Deferred(why) => assert!(!later.is_empty() && why.starts_with(later), "{why}"),
                Outcome::Same(same) => assert_eq!((same.instance_id.as_str(), later), (id, ""), "{source} {tool}"),
                _ => panic!("the machine has an instance"),
            }
        }
    }

    #[test]
    fn list_with_only_none_needs_no_data() {
        for (config, cmdline, id) in [
            ("datasource_list: [None]\n", "", "iid-datasource-none"),
            ("datasource_list: [Ec2]\n", "ds=None", "iid-datasource-none"),
            ("datasource_list: [ None ]\ndatasource: {None: {metadata: {instance-id: own}}}\n", "", "own"),
            ("datasource_list: [NoCloud, None]\ndatasource: {None: {metadata: {instance-id: own}}}\n", "", "own"),
            ("datasource_list: [NoCloud, None]\n", "", ""),
            ("datasource_list: [NoCloud, ConfigDrive, None]\n", "", ""),
            ("a: b\n", "", ""),
        ] {
            let dir = TempDir::new("find-none");
            dir.write("etc/cloud/cloud.cfg", config);
            dir.write("proc/cmdline", cmdline);
            let (machine, root) = (dir.machine(), dir.root(Use::Plan));
            let places = Places { sys: dir.0.join("sys/class/block"), dev: dir.0.join("dev") };
            let mut drives = Drives::new(&[""; 0], places);
            let mut boot = testing::boot(&root, &machine);
            match find_with(&root, &mut boot, &mut drives, Deadline::after(Duration::ZERO)) {
                Outcome::Read(found) => assert_eq!(found.instance.instance_id, id, "{config}{cmdline}"),
                Outcome::Nothing(_) => assert_eq!(id, "", "{config}{cmdline}"),
                _ => panic!("the machine has no instance"),
            }
        }
    }

    #[test]
    fn waits_briefly_for_drives_of_a_list() {
        for (environment, list, longest) in [
            ("container=lxc\0", "[NoCloud, None]", 1.0),
            ("", "[NoCloud, None]", 10.0),
            ("", "[NoCloud, ConfigDrive, None]", 10.0),
            ("", "[NoCloud, ConfigDrive]", 10.0),
        ] {
            let dir = TempDir::new("find-list");
            dir.write("etc/cloud/cloud.cfg", format!("datasource_list: {list}\n"));
            dir.write("proc/1/environ", environment);
            let (machine, root) = (dir.machine(), dir.root(Use::Plan));
            assert_eq!(machine.is_container(), !environment.is_empty());
            let places = Places { sys: dir.0.join("sys/class/block"), dev: dir.0.join("dev") };
            let mut drives = Drives::new(&["cidata"], places);
            let mut boot = testing::boot(&root, &machine);
            let start = std::time::Instant::now();
            let found = find_with(&root, &mut boot, &mut drives, Deadline::after(Duration::from_secs(60)));
            let took = start.elapsed().as_secs_f64();
            assert!(matches!(found, Outcome::Nothing(_)) && took < longest, "{list}: {took} s");
        }
    }

    #[test]
    fn falls_back_to_none_in_the_network_stage() {
        const ENABLED: &str = "ci.di.policy=search,notfound=enabled";
        for (config, cmdline, falls_back) in [
            ("datasource_list: [NoCloud, None]\n", "", true),
            ("datasource_list: [NoCloud]\n", "", false),
            ("datasource_list: [NoCloud, ConfigDrive, None]\n", "", false),
            ("datasource_list: [NoCloud, ConfigDrive, None]\n", ENABLED, true),
            ("datasource_list: [NoCloud, ConfigDrive]\n", ENABLED, false),
            ("a: b\n", ENABLED, true),
            ("datasource_list: [NoCloud, ConfigDrive, None]\n", "ds=nocloud", true),
            ("a: b\n", "ds=nocloud", false),
            ("a: b\n", "", false),
            ("datasource_list: [NoCloud, None]\n", "ci.di.policy=disabled", false),
        ] {
            let dir = TempDir::new("find-fallback");
            dir.write("etc/cloud/cloud.cfg", config);
            dir.write("proc/cmdline", cmdline);
            let (machine, root) = (dir.machine(), dir.root(Use::Plan));
            let mut boot = testing::boot(&root, &machine);
            let found = find_service(&root, &mut boot).map(|found| found.instance.instance_id);
            assert_eq!(found.as_deref(), falls_back.then_some("iid-datasource-none"), "{config}{cmdline}");
        }
    }

    #[test]
    fn source_of_the_kernel_command_line_is_logged() {
        for (cmdline, expected) in
            [("ds=nocloud;h=a", Some("NoCloud")), ("ci.ds=openstack", Some("OpenStack")), ("a", None)]
        {
            let dir = TempDir::new("find-forced");
            dir.write("proc/cmdline", cmdline);
            let (machine, root) = (dir.machine(), dir.root(Use::Plan));
            let places = Places { sys: dir.0.join("sys/class/block"), dev: dir.0.join("dev") };
            let mut drives = Drives::new(&[""; 0], places);
            let mut search = Search::new(&machine, &root, &Value::Null, Deadline::after(Duration::ZERO));
            let look = || drop(look(&mut search, &Value::Null, &mut drives));
            let messages = crate::base::logging::capture(look);
            const TEXT: &str = "Kernel command line set to use a single datasource DataSource";
            let found = messages.iter().find_map(|message| message.text.strip_prefix(TEXT)?.strip_suffix('.'));
            assert_eq!(found, expected, "{cmdline}");
        }
    }

    #[test]
    fn finds_seed_without_any_block_devices() {
        let dir = TempDir::new("find-seed");
        let seed = dir.0.join("var/lib/cloud/seed/nocloud");
        std::fs::create_dir_all(&seed).unwrap();
        std::fs::write(seed.join("meta-data"), "instance-id: from-seed\n").unwrap();
        std::fs::write(seed.join("user-data"), "").unwrap();
        let (machine, root) = (dir.machine(), dir.root(Use::Plan));
        let places = Places { sys: dir.0.join("sys/class/block"), dev: dir.0.join("dev") };
        let mut drives = Drives::new(&source::labels(&Value::Null), places);
        let mut boot = testing::boot(&root, &machine);
        match find_with(&root, &mut boot, &mut drives, Deadline::after(Duration::ZERO)) {
            Outcome::Read(found) => assert_eq!(found.instance.instance_id, "from-seed"),
            _ => panic!("the seed was not read"),
        }
    }
}
