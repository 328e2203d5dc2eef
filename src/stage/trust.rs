//! What the trust policy says in a boot: its documents are measured and checked before they are used. A build without the Cargo
//! feature `trust` has no policy.

use crate::base::clock::since_1970;
use crate::base::error::{Context, Result};
use crate::base::problem::Problems;
use crate::instance::Instance;
use crate::machine::Machine;
use crate::root::run_dir::{self, Measured, Record};
use crate::root::{Attr, Root};
use crate::source::none;
use crate::trust::event_log::Log;
use crate::trust::measure::{Event, Registers};
use crate::trust::{self, Circumstances, Failure, Kind, Policy, documents, policy};
use std::time::SystemTime;

/// How a check of an instance ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why documents are refused, a line for each.
    pub problems: Vec<String>,
    /// Whether the boot is to stop.
    pub stop: Option<Stop>,
}

/// How a boot stops that the policy does not allow to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    Emergency,
    PowerOff,
}

/// Exists if documents of the instance in the cache were refused: the next boot reads it again.
pub const REFUSED: &str = "/var/lib/cloud/data/prepivot-refused";
/// Exists if the policy stops this boot; the initramfs's hooks look for it.
pub const STOPPED: &str = "run/prepivot/stopped";
/// The serial number of the last signed user-data that was accepted.
const SERIAL: &str = "/var/lib/cloud/data/prepivot-serial";

/// The policy of this boot, if there is one.
#[derive(Default)]
pub struct Gate(Option<Box<Policy>>);

impl Gate {
    /// That of the initramfs, also in the stages of the real root, for which the initramfs left a copy. A tree that is planned or
    /// provisioned by hand has none: whoever does that is root here.
    pub fn of(root: &Root, machine: &Machine) -> Gate {
        let folder = if root.is_live() { policy::COPY } else { policy::FOLDER };
        let has_one = root.has_run() && cfg!(feature = "trust");
        Gate(has_one.then(|| Policy::read(machine, folder)).flatten().map(Box::new))
    }

    fn allows(&self, kind: Kind) -> bool {
        !cfg!(feature = "trust")
            || self.0.as_ref().is_none_or(|policy| policy.needs(kind, &policy.any_source()).is_used)
    }

    /// Whether what user-data includes by a URL is used.
    pub fn includes(&self) -> bool {
        self.allows(Kind::Include)
    }

    /// Whether configuration on the kernel command line is used.
    pub fn command_line(&self) -> bool {
        self.allows(Kind::CommandLine)
    }
}

/// Leaves the policy for the stages of the real root, before anything else is done: what ends this one early must not end the
/// policy.
///
/// # Errors
/// It cannot be written.
pub fn carry(machine: &Machine) -> Result<()> {
    if !cfg!(feature = "trust") {
        return Ok(());
    }
    // One that cannot be read is none that can be read there either.
    let files = policy::files(&machine.base).unwrap_or_else(|_| vec![(policy::CONF.into(), "unreadable".into())]);
    for (name, text) in files {
        let path = machine.base.join(policy::COPY).join(&name);
        run_dir::save(&path, &text).context(|| format!("failed to write {}", path.display()))?;
    }
    Ok(())
}

/// Measures the documents of an instance and checks them. What is refused is removed from it. `is_fresh`: it was read now.
pub fn check(
    gate: &Gate,
    root: &mut Root,
    machine: &Machine,
    instance: &mut Instance,
    is_fresh: bool,
    report: &Problems,
) -> Verdict {
    let is_used = |policy: &&Policy| policy.problem.is_some() || !none::SOURCE.is_named(&instance.source);
    let Some(policy) = gate.0.as_deref().filter(|_| cfg!(feature = "trust")).filter(is_used) else {
        return Verdict::default();
    };
    let unmeasured = measure(policy, machine, instance, report).err().map(|e| e.to_string());
    let now = Circumstances {
        now: since_1970(SystemTime::now()).as_secs(),
        uuid: machine.uuid(),
        macs: machine.nics().into_iter().map(|nic| nic.mac).filter(|mac| !mac.is_empty()).collect(),
        last_serial: root.text(SERIAL).trim().parse().ok(),
        is_fresh,
        unmeasured,
    };
    let checked = trust::check(policy, instance, &now);
    if let Some(signer) = &checked.signer {
        log::info!("the user-data is signed by {signer}");
    }
    let mut problems = checked.problems;
    problems.extend(policy.problem.clone());
    let stop = match policy.failure {
        _ if problems.is_empty() => None,
        Failure::Refuse => None,
        Failure::Emergency => Some(Stop::Emergency),
        Failure::PowerOff => Some(Stop::PowerOff),
    };
    let keep = |result: Result<()>| {
        report.keep(result);
    };
    if stop.is_none() {
        if let Some(serial) = checked.serial.filter(|_| is_fresh) {
            keep(root.write(SERIAL, format!("{serial}\n"), Attr::root(0o600)));
        }
        if !problems.is_empty() {
            keep(root.write(REFUSED, "", Attr::root(0o600)));
        } else if root.exists(REFUSED) {
            keep(root.remove(REFUSED));
        }
    } else if !root.is_live() {
        keep(run_dir::save(&machine.base.join(STOPPED), "").context(|| "failed to leave that the boot stops"));
    }
    problems.iter().for_each(|problem| report.error(problem));
    Verdict { problems, stop }
}

/// Measures what this boot has not measured yet.
fn measure(policy: &Policy, machine: &Machine, instance: &Instance, report: &Problems) -> Result<()> {
    let record = machine.base.join(Measured::PATH.trim_start_matches('/'));
    let mut measured = Measured::load(&record);
    let (source, plan) = (&instance.source, &policy.plan);
    let wanted = documents(instance).into_iter().filter(|d| policy.needs(d.kind, source).measured);
    let events: Vec<Event> = wanted.filter_map(|document| plan.scheme.event(&document)).collect();
    let new: Vec<Event> = events.into_iter().filter(|event| !measured.ids.contains(&event.id())).collect();
    if new.is_empty() {
        return Ok(());
    }
    let mut registers = Registers::open(&machine.base, plan)?;
    let mut log = registers.has_tpm().then(|| Log::begin(&machine.base)).and_then(|log| told(log, report));
    let boot_id = machine.fact("proc/sys/kernel/random/boot_id").unwrap_or_default();
    for event in new {
        let digests = registers.extend(plan, &event)?;
        measured.ids.push(event.id());
        // At once: a stage that is cut off must not have it measured again.
        run_dir::save(&record, &measured.to_json()).context(|| "failed to record what was measured")?;
        log::info!("{} is measured", event.name);
        if let Some(log) = &mut log {
            told(log.add(plan.pcr(), &event, &digests, &boot_id), report);
        }
    }
    log.and_then(|log| told(log.end(), report));
    Ok(())
}

/// A log that cannot be written is no reason to refuse what was measured.
fn told<T>(result: Result<T>, report: &Problems) -> Option<T> {
    result.map_err(|e| report.warn(format_args!("the log of measurements: {e}"))).ok()
}

#[cfg(feature = "trust")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::deadline::Deadline;
    use crate::base::digest::Algorithm;
    use crate::base::testing::TempDir;
    use crate::document::Value;
    use crate::instance::{cache, state};
    use crate::root::Use;
    use crate::source::{self, Search};
    use crate::stage::Options;
    use crate::stage::boot::Boot;
    use crate::stage::image::Image;
    use crate::stage::local;
    use crate::system::Nothing;
    use crate::trust::measure::predict;
    use std::time::{Duration, Instant};

    const RTMR: &str = "sys/devices/virtual/misc/tdx_guest/measurements/rtmr3:sha384";
    const SEED: &str = "var/lib/cloud/seed/nocloud";

    /// A machine with a NoCloud seed and a register of TDX. The same folder is its initramfs and its root.
    fn machine(name: &str, policy: &str) -> TempDir {
        let dir = TempDir::new(name);
        dir.write(&format!("{SEED}/meta-data"), "instance-id: i-1\nlocal-hostname: h\n");
        dir.write(&format!("{SEED}/user-data"), "#cloud-config\n");
        dir.write(RTMR, "");
        if !policy.is_empty() {
            dir.write("etc/prepivot/trust.conf", policy);
        }
        dir
    }

    /// What the machine's seed gives.
    fn read(dir: &TempDir) -> Instance {
        let (machine, root) = (Machine::read(&dir.0), Root::open_new(&dir.0));
        let mut search = Search::new(&machine, &root, &Value::Null, Deadline::after(Duration::from_secs(5)));
        source::find_local(&mut search, &["NoCloud".to_owned()]).unwrap().instance
    }

    /// The check of an instance in the initramfs, and its errors and warnings.
    fn judge(dir: &TempDir, instance: &mut Instance, is_fresh: bool) -> (Verdict, Vec<String>) {
        let (machine, mut root) = (Machine::read(&dir.0), Root::open_new(&dir.0));
        let (gate, report) = (Gate::of(&root, &machine), Problems::new());
        let verdict = check(&gate, &mut root, &machine, instance, is_fresh, &report);
        assert_eq!(root.commit(), []);
        (verdict, report.entries().iter().map(ToString::to_string).collect())
    }

    /// The digests that went into the register.
    fn extended(dir: &TempDir) -> Vec<Vec<u8>> {
        std::fs::read(dir.0.join(RTMR)).unwrap().chunks(48).map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn each_boot_measures_the_same_and_once() {
        let policy = "user-data = measure\nmetadata = measure\nnetwork-config = measure\nvendor-data = measure\n";
        let dir = machine("trust-boots", policy);
        let mut first = read(&dir);
        assert_eq!(judge(&dir, &mut first, true), (Verdict::default(), vec![]));
        let measured = extended(&dir);
        assert_eq!(measured.len(), 5, "one for each document, also for those that are absent");
        // What `trust predict` prints for the seed.
        let plan = crate::trust::measure::Plan::default();
        let (machine, root) = (Machine::default(), Root::open(&dir.0, Use::Plan).unwrap());
        let seed = dir.0.join(SEED);
        let seeded = source::read_seed(&machine, &root, &Value::Null, &seed, &Problems::new()).unwrap().instance;
        let events: Vec<Event> = documents(&seeded).iter().filter_map(|d| plan.scheme.event(d)).collect();
        assert_eq!(events.iter().map(|event| event.digest(Algorithm::Sha384)).collect::<Vec<_>>(), measured);
        assert_eq!(predict(&events, Algorithm::Sha384).len(), 48);
        // A later stage of this boot: nothing again.
        assert_eq!(judge(&dir, &mut first, true).0, Verdict::default());
        assert_eq!(extended(&dir), measured);
        // The next boot, from the cache.
        std::fs::remove_file(dir.0.join("run/prepivot/measured.json")).unwrap();
        dir.write(RTMR, "");
        let mut text = Vec::new();
        cache::write(&first, &mut text).unwrap();
        assert_eq!(judge(&dir, &mut cache::read("t", &text).unwrap(), false).0, Verdict::default());
        assert_eq!(extended(&dir), measured);
        // A byte changed on the drive.
        std::fs::remove_file(dir.0.join("run/prepivot/measured.json")).unwrap();
        dir.write(RTMR, "");
        dir.write(&format!("{SEED}/user-data"), "#cloud-confih\n");
        judge(&dir, &mut read(&dir), true);
        let other = extended(&dir);
        assert_eq!(
            other.iter().zip(&measured).map(|(a, b)| a == b).collect::<Vec<_>>(),
            [true, true, false, true, true]
        );
        assert!(!dir.0.join("run/log/systemd").exists(), "the log is of PCRs");
    }

    #[test]
    fn without_a_policy_nothing_is_read_or_written() {
        let dir = machine("trust-none", "");
        let mut instance = read(&dir);
        let same = instance.clone();
        let begin = Instant::now();
        assert_eq!(judge(&dir, &mut instance, true), (Verdict::default(), vec![]));
        assert!(begin.elapsed() < Duration::from_millis(100));
        assert_eq!((instance, extended(&dir).len(), dir.0.join("run/prepivot").exists()), (same, 0, false));
        carry(&Machine::read(&dir.0)).unwrap();
        assert!(!dir.0.join("run/prepivot").exists());
    }

    #[test]
    fn a_document_that_cannot_be_measured_is_refused() {
        let dir = machine("trust-no-register", "user-data = measure\nmetadata = use\n");
        std::fs::remove_file(dir.0.join(RTMR)).unwrap();
        let mut instance = read(&dir);
        let (verdict, said) = judge(&dir, &mut instance, true);
        assert!(said[0].contains("user-data of NoCloud is refused: it could not be measured: "), "{said:?}");
        assert_eq!((verdict.stop, instance.user_data, instance.local_hostname.as_deref()), (None, None, Some("h")));
    }

    #[test]
    fn next_boot_reads_refused_instance_again() {
        let dir = machine("trust-again", "user-data = sha256:");
        let digest = crate::base::hex::encode(&crate::base::digest::digest(Algorithm::Sha256, b"other"));
        dir.write("etc/prepivot/trust.conf", format!("user-data = sha256:{digest}\nmetadata = use\n"));
        dir.write("sys/class/dmi/id/product_uuid", "i-1\n");
        let mut instance = read(&dir);
        let (verdict, said) = judge(&dir, &mut instance, true);
        assert_eq!((verdict.problems.len(), verdict.stop, said.len()), (1, None, 1));
        assert!(dir.0.join(&REFUSED[1..]).exists());
        let mut root = Root::open_new(&dir.0);
        state::store(&mut root, &instance).unwrap();
        assert_eq!(root.commit(), []);
        // The instance-id is the machine's UUID, by which the cache would be used.
        dir.write(&format!("{SEED}/user-data"), "other");
        let mut found = read(&dir);
        assert_eq!(judge(&dir, &mut found, true).0, Verdict::default());
        assert!(found.user_data.is_some() && !dir.0.join(&REFUSED[1..]).exists());
    }

    #[test]
    fn a_policy_may_stop_the_boot() {
        for (failure, stop) in
            [("refuse", None), ("emergency", Some(Stop::Emergency)), ("poweroff", Some(Stop::PowerOff))]
        {
            let dir = machine("trust-stop", &format!("metadata = use\non-failure = {failure}\n"));
            assert_eq!(judge(&dir, &mut read(&dir), true).0.stop, stop, "{failure}");
            assert_eq!(dir.0.join(STOPPED).exists(), stop.is_some());
            assert_eq!(dir.0.join(&REFUSED[1..]).exists(), stop.is_none());
        }
        let dir = machine("trust-stop", "user-data = maybe\n");
        let (verdict, said) = judge(&dir, &mut read(&dir), true);
        assert_eq!(verdict.stop, Some(Stop::Emergency));
        assert!(said.iter().any(|line| line.contains("trust.conf: line 1")), "{said:?}");
    }

    #[test]
    fn real_root_has_only_the_initramfss_policy() {
        let dir = machine("trust-carry", "user-data = use\n");
        dir.write("etc/prepivot/allowed_signers", "");
        dir.write("etc/prepivot/key.crt", "x");
        dir.write("etc/prepivot/drivers", "x");
        let machine = Machine::read(&dir.0);
        carry(&machine).unwrap();
        let mut names: Vec<_> =
            std::fs::read_dir(dir.0.join(policy::COPY)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["allowed_signers", "key.crt", "trust.conf"]);
        assert!(Policy::read(&machine, policy::COPY).unwrap().problem.unwrap().contains("key.crt"));
        std::fs::remove_file(dir.0.join(policy::COPY).join("key.crt")).unwrap();
        assert!(Policy::read(&machine, policy::COPY).unwrap().problem.is_none());
        // One that cannot be read there cannot be read here.
        dir.write("etc/prepivot/trust.conf", [0xff]);
        carry(&machine).unwrap();
        assert!(Policy::read(&machine, policy::COPY).unwrap().problem.is_some());
        // A tree that is provisioned by hand has none.
        let root = Root::open(&dir.0, Use::Tree).unwrap();
        assert!(Gate::of(&root, &machine).includes());
    }

    #[test]
    fn a_policy_refuses_what_comes_by_other_ways() {
        let dir = machine("trust-ways", "user-data = use\nmetadata = use\n");
        let url = "cloud-config-url=http://evil.example/";
        dir.write("proc/cmdline", format!("cc: runcmd: [evil]\\n end_cc {url} network-config=e30="));
        dir.write("opt/x", "#cloud-config\nhostname: included\n");
        let machine = Machine::read(&dir.0);
        for (policy, allowed) in [("", false), ("include = use\ncommand-line = use\n", true)] {
            dir.write("etc/prepivot/trust.conf", format!("user-data = use\nmetadata = use\n{policy}"));
            let root = Root::open_new(&dir.0);
            let image = Image::read(&root, &machine, &Problems::new());
            assert_eq!((image.own.get("runcmd").is_some(), image.config_url.is_some()), (allowed, allowed));
            let mut boot = Boot::new(&root, &machine, &Options::default(), &Nothing);
            boot.image.config_url = None;
            let instance = Instance { user_data: Some(b"#include\n/opt/x\n".to_vec().into()), ..Instance::default() };
            let mut fetch =
                |include: &crate::userdata::Include<'_>| crate::stage::config::without_network(&root, include);
            let variables = Value::Null;
            let (merged, _) =
                crate::stage::config::consume(&boot.image, &instance, &variables, &boot.report, &mut fetch);
            assert_eq!(merged.config.get("hostname").is_some(), allowed, "{:?}", boot.errors_and_warnings());
        }
    }

    #[test]
    fn a_boot_that_is_stopped_provisions_nothing() {
        let dir = machine("trust-nothing", "metadata = use\non-failure = emergency\n");
        let (machine, mut root) = (Machine::read(&dir.0), Root::open_new(&dir.0));
        let mut boot = Boot::new(&root, &machine, &Options::default(), &Nothing);
        let stop = local::outcome_of(&mut root, &mut boot, read(&dir));
        assert_eq!(stop, Some(Stop::Emergency));
        assert!(boot.errors()[0].contains("user-data of NoCloud is refused"));
        assert!(!root.changes().iter().any(|change| change.path().starts_with("/etc")), "{:?}", root.changes());
    }
}
