//! What the trust policy says in a boot: its documents are measured and checked before they are used. A build without the Cargo
//! feature `trust` has no policy.

use crate::base::clock::since_1970;
use crate::base::digest::{Algorithm, digest};
use crate::base::error::{Context, Result};
use crate::base::hex;
use crate::base::problem::Problems;
use crate::document::{Taken, Value, json};
use crate::instance::Instance;
use crate::machine::Machine;
use crate::root::run_dir::{self, ATTESTATION, Measured, Record};
use crate::root::{Attr, Root};
use crate::source::none;
use crate::trust::event_log::Log;
use crate::trust::measure::{Measurement, Registers, host_data};
use crate::trust::{self, Circumstances, Document, DocumentKind, Failure, Policy, documents, policy};
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

    /// What notes the documents of a search as they come: it keeps them if there is a policy.
    pub fn taken(&self) -> Taken {
        if cfg!(feature = "trust") && self.0.is_some() { Taken::keeping() } else { Taken::default() }
    }

    fn allows(&self, kind: DocumentKind) -> bool {
        !cfg!(feature = "trust")
            || self.0.as_ref().is_none_or(|policy| policy.needs(kind, &policy.any_source()).is_used)
    }

    /// Whether what user-data includes by a URL is used.
    pub fn includes(&self) -> bool {
        self.allows(DocumentKind::Include)
    }

    /// Whether configuration on the kernel command line is used.
    pub fn command_line(&self) -> bool {
        self.allows(DocumentKind::CommandLine)
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
    let Some(policy) = gate.0.as_deref().filter(|_| cfg!(feature = "trust")) else { return Verdict::default() };
    // The image's own instance has no document from outside, and so none that was wanted.
    if none::SOURCE.is_named(&instance.source) && policy.problem.is_none() {
        return missing(gate, root, machine, report);
    }
    let unmeasured = measure(policy, machine, instance, report).err().map(|e| e.to_string());
    let now = Circumstances {
        now: since_1970(SystemTime::now()).as_secs(),
        uuid: machine.uuid(),
        macs: machine.nics().into_iter().map(|nic| nic.mac).filter(|mac| !mac.is_empty()).collect(),
        last_serial: root.text(SERIAL).trim().parse().ok(),
        is_fresh,
        host_data: policy.needs(DocumentKind::UserData, &instance.source).bound.then(|| host_data(&machine.base)),
        unmeasured,
    };
    let given = told_documents(policy, instance);
    let checked = trust::check(policy, instance, &now);
    if let Some(signer) = &checked.signer {
        log::info!("the user-data is signed by {signer}");
    }
    let mut problems = checked.problems;
    problems.extend(policy.problem.clone());
    let verdict = end(policy, root, machine, problems, report);
    let told = attestation(policy, instance, given, &checked.signer, checked.serial, &verdict.problems);
    let saved = run_dir::save(&machine.base.join(ATTESTATION.trim_start_matches('/')), &told);
    report.keep(saved.context(|| format!("failed to write {ATTESTATION}")));
    if verdict.stop.is_none() {
        if let Some(serial) = checked.serial.filter(|_| is_fresh) {
            report.keep(root.write(SERIAL, format!("{serial}\n"), Attr::root(0o600)));
        }
        if !verdict.problems.is_empty() {
            report.keep(root.write(REFUSED, "", Attr::root(0o600)));
        } else if root.exists(REFUSED) {
            report.keep(root.remove(REFUSED));
        }
    }
    verdict
}

/// What a source gave: a mapping for each document, with its digest and whether it is measured.
fn told_documents(policy: &Policy, instance: &Instance) -> Vec<Value> {
    let told = |document: &Document| {
        let bytes = document.bytes.as_deref();
        let sum = bytes.map(|bytes| hex::encode(&digest(Algorithm::Sha256, bytes)));
        let is_measured = policy.needs(document.kind, &instance.source).measured;
        let fields = [
            ("name", document.name.into()),
            ("sha256", sum.map_or(Value::Null, Value::from)),
            ("bytes", bytes.map_or(0, |bytes| i64::try_from(bytes.len()).unwrap_or(i64::MAX)).into()),
            ("measured", (is_measured && policy.plan.scheme.event(document).is_some()).into()),
        ];
        Value::Map(fields.into_iter().collect())
    };
    documents(instance).iter().map(told).collect()
}

/// What was measured and checked, from where, and with what result, as JSON for attestation.
fn attestation(
    policy: &Policy,
    instance: &Instance,
    given: Vec<Value>,
    signer: &Option<String>,
    serial: Option<u64>,
    problems: &[String],
) -> String {
    let text = |text: &Option<String>| text.as_deref().map_or(Value::Null, Value::from);
    let fields = [
        ("datasource", instance.source.as_str().into()),
        ("place", instance.subplatform.as_str().into()),
        ("instance-id", instance.instance_id.as_str().into()),
        ("scheme", policy.plan.scheme.name().into()),
        ("pcr", i64::from(policy.plan.pcr()).into()),
        ("rtmr", i64::from(policy.plan.rtmr).into()),
        ("documents", given.into()),
        ("signer", text(signer)),
        ("serial", text(&serial.map(|serial| serial.to_string()))),
        ("refused", problems.iter().map(|why| Value::from(why.as_str())).collect::<Vec<_>>().into()),
    ];
    json::to_string(&Value::Map(fields.into_iter().collect())) + "\n"
}

/// What the policy says if no datasource gives anything: user-data that must be signed, or have a digest, is missing. Whoever
/// takes the drive away gets no other machine than the one that the policy describes.
pub fn missing(gate: &Gate, root: &Root, machine: &Machine, report: &Problems) -> Verdict {
    let Some(policy) = gate.0.as_deref().filter(|_| cfg!(feature = "trust")) else { return Verdict::default() };
    let needs = policy.needs(DocumentKind::UserData, &policy.any_source());
    let why = || {
        let what = if needs.signed { "signed" } else { "with a digest of its own" };
        format!("no datasource gives user-data, and the trust policy needs it {what}")
    };
    let problems = policy.problem.clone().into_iter().chain(needs.is_exact().then(why));
    end(policy, root, machine, problems.collect(), report)
}

/// Reports why documents are refused, and leaves whether the boot stops for it.
fn end(policy: &Policy, root: &Root, machine: &Machine, problems: Vec<String>, report: &Problems) -> Verdict {
    let stop = match policy.failure {
        _ if problems.is_empty() => None,
        Failure::Refuse => None,
        Failure::Emergency => Some(Stop::Emergency),
        Failure::PowerOff => Some(Stop::PowerOff),
    };
    if stop.is_some() && !root.is_live() {
        let saved = run_dir::save(&machine.base.join(STOPPED), "");
        report.keep(saved.context(|| "failed to leave that the boot stops"));
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
    let events: Vec<Measurement> = wanted.filter_map(|document| plan.scheme.event(&document)).collect();
    let new: Vec<Measurement> = events.into_iter().filter(|event| !measured.ids.contains(&event.id())).collect();
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
    use crate::base::testing::TempDir;
    use crate::instance::{cache, state};
    use crate::root::Use;
    use crate::source::{self, Search};
    use crate::stage::image::Image;
    use crate::stage::local;
    use crate::stage::testing;
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
        let (machine, root) = (dir.machine(), dir.root(Use::NewRoot));
        let search = Search::new(&machine, &root, &Value::Null, Deadline::after(Duration::from_secs(5)));
        let mut search = search.keeping(Gate::of(&root, &machine).taken());
        source::find_local(&mut search, &["NoCloud".to_owned()]).unwrap().instance
    }

    /// The check of an instance in the initramfs, and its errors and warnings.
    fn judge(dir: &TempDir, instance: &mut Instance, is_fresh: bool) -> (Verdict, Vec<String>) {
        let (machine, mut root) = (dir.machine(), dir.root(Use::NewRoot));
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
        let (machine, root) = (Machine::default(), dir.root(Use::Plan));
        let seed = dir.0.join(SEED);
        let seeded = source::read_seed(&machine, &root, &Value::Null, &seed, Taken::keeping(), &Problems::new())
            .unwrap()
            .instance;
        let events: Vec<Measurement> = documents(&seeded).iter().filter_map(|d| plan.scheme.event(d)).collect();
        assert_eq!(events.iter().map(|event| event.digest(Algorithm::Sha384)).collect::<Vec<_>>(), measured);
        assert_eq!(predict(&events, Algorithm::Sha384).len(), 48);
        let told = std::fs::read_to_string(dir.0.join(&ATTESTATION[1..])).unwrap();
        let told = json::parse("t", told.as_bytes()).unwrap();
        let sum = crate::base::hex::encode(&digest(Algorithm::Sha256, b"#cloud-config\n"));
        assert_eq!(told.at(&["datasource"]), Some(&Value::from("NoCloud")));
        let of =
            |at: usize, key: &str| told.get("documents").unwrap().as_list().unwrap()[at].get(key).cloned().unwrap();
        assert_eq!((of(2, "name"), of(2, "sha256"), of(2, "bytes")), ("user-data".into(), sum.into(), 14.into()));
        assert_eq!(
            (of(3, "sha256"), of(3, "measured"), told.get("refused")),
            (Value::Null, true.into(), Some(&vec![].into()))
        );
        // Metadata is the file's bytes, as sha256sum reads them.
        let sum = crate::base::hex::encode(&digest(Algorithm::Sha256, b"instance-id: i-1\nlocal-hostname: h\n"));
        assert_eq!((of(0, "sha256"), of(1, "sha256")), (sum.into(), Value::Null));
        // A later stage of this boot: nothing again.
        assert_eq!(judge(&dir, &mut first, true).0, Verdict::default());
        assert_eq!(extended(&dir), measured);
        assert_eq!(extended_from_cache(&dir, &first), measured);
        // A byte changed on the drive.
        begin_boot(&dir);
        dir.write(&format!("{SEED}/user-data"), "#cloud-confih\n");
        judge(&dir, &mut read(&dir), true);
        let other = extended(&dir);
        assert_eq!(
            other.iter().zip(&measured).map(|(a, b)| a == b).collect::<Vec<_>>(),
            [true, true, false, true, true]
        );
        assert!(!dir.0.join("run/log/systemd").exists(), "the log is of PCRs");
    }

    /// The machine boots again: /run and the registers are empty.
    fn begin_boot(dir: &TempDir) {
        std::fs::remove_file(dir.0.join("run/prepivot/measured.json")).unwrap();
        dir.write(RTMR, "");
    }

    /// The digests of a later boot, which uses the instance from the cache.
    fn extended_from_cache(dir: &TempDir, first: &Instance) -> Vec<Vec<u8>> {
        begin_boot(dir);
        let mut text = Vec::new();
        cache::write(first, &mut text).unwrap();
        assert_eq!(judge(dir, &mut cache::read("t", &text).unwrap(), false).0, Verdict::default());
        extended(dir)
    }

    /// The digests for a seed with these documents, in a first boot and in one from the cache, which have to be the same.
    fn measured_in_both_boots(files: &[(&str, &str)]) -> Vec<Vec<u8>> {
        let dir = machine(
            "trust-raw",
            "user-data = use\nmetadata = measure\nnetwork-config = measure\nvendor-data = measure\n",
        );
        files.iter().for_each(|(name, text)| dir.write(&format!("{SEED}/{name}"), text));
        let mut first = read(&dir);
        assert_eq!(judge(&dir, &mut first, true), (Verdict::default(), vec![]));
        let measured = extended(&dir);
        assert_eq!(extended_from_cache(&dir, &first), measured);
        measured
    }

    /// Documents with the same values whose bytes differ.
    #[test]
    fn white_space_of_a_document_is_another_value() {
        let metadata = "instance-id: i-1\nlocal-hostname: h\n";
        let (network, vendor) = ("version: 2\nethernets: {}\n", "#cloud-config\n{}\n");
        let all = [("meta-data", metadata), ("network-config", network), ("vendor-data", vendor)];
        let same = measured_in_both_boots(&all);
        for at in 0..all.len() {
            let other = format!("{} \n", all[at].1);
            let mut changed = all;
            changed[at].1 = &other;
            let differs: Vec<bool> =
                measured_in_both_boots(&changed).iter().zip(&same).map(|(one, other)| one != other).collect();
            // vendor-data2 is absent in all of them.
            assert_eq!(differs, [at == 0, at == 1, at == 2, false], "{}", all[at].0);
        }
    }

    /// What only a part of the sources has: several documents of metadata, a network that is made of them, no metadata at all.
    #[test]
    fn metadata_of_several_documents_is_their_list() {
        let dir = machine("trust-list", "user-data = use\nmetadata = measure\nnetwork-config = measure\n");
        let line = "ds=nocloud;h=other";
        dir.write("proc/cmdline", line);
        let mut instance = read(&dir);
        let [metadata, network, ..] = documents(&instance);
        let sum = |text: &str| crate::base::hex::encode(&digest(Algorithm::Sha256, text.as_bytes()));
        let (own, file) = (sum("nocloud;h=other"), sum("instance-id: i-1\nlocal-hostname: h\n"));
        let list = format!("#prepivot-documents\n{own}  cmdline\n{file}  meta-data\n");
        assert_eq!((metadata.bytes.as_deref(), network.bytes), (Some(list.as_bytes()), None));
        instance.network = Some(crate::instance::NetworkData::Eni("auto lo\n".into()));
        let [metadata, network, ..] = documents(&instance);
        assert_eq!(metadata.bytes, network.bytes);
        std::fs::remove_file(dir.0.join(SEED).join("meta-data")).unwrap();
        dir.write("proc/cmdline", "");
        assert_eq!(documents(&read(&dir))[0].bytes, None);
        // An instance that was read before there was a policy.
        instance.raw = None;
        assert!(
            documents(&instance).iter().all(|document| document.bytes.is_some() != document.name.starts_with("vendor"))
        );
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
        carry(&dir.machine()).unwrap();
        assert!(!dir.0.join("run/prepivot").exists());
    }

    #[test]
    fn a_document_that_cannot_be_measured_is_refused() {
        let dir = machine("trust-no-register", "user-data = measure\nmetadata = use\n");
        std::fs::remove_file(dir.0.join(RTMR)).unwrap();
        let mut instance = read(&dir);
        let (verdict, said) = judge(&dir, &mut instance, true);
        assert!(said[0].contains("user-data of NoCloud is refused: it could not be measured: "), "{said:?}");
        let told = std::fs::read_to_string(dir.0.join(&ATTESTATION[1..])).unwrap();
        assert!(told.contains(r#""refused":["user-data of NoCloud is refused: it could not be measured: "#), "{told}");
        assert_eq!((verdict.stop, instance.user_data, instance.local_hostname.as_deref()), (None, None, Some("h")));
    }

    #[test]
    fn user_data_may_have_to_be_the_hosts() {
        let dir = machine("trust-host-data", "user-data = host-data\nmetadata = use\n");
        let refused = || {
            let mut instance = read(&dir);
            let problems = judge(&dir, &mut instance, true).0.problems;
            assert_eq!(problems.is_empty(), instance.user_data.is_some());
            problems.join("\n")
        };
        assert!(refused().contains("cannot be compared with the host's data"));
        let value = [digest(Algorithm::Sha256, b"#cloud-config\n"), vec![0; 16]].concat();
        dir.write("sys/devices/virtual/misc/tdx_guest/measurements/mrconfigid", value);
        assert_eq!(refused(), "");
        dir.write(&format!("{SEED}/user-data"), "#cloud-confih\n");
        assert!(refused().contains("is not in the host's data"));
        std::fs::remove_file(dir.0.join(SEED).join("user-data")).unwrap();
        assert!(refused().contains("is not in the host's data"));
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
        let mut root = dir.root(Use::NewRoot);
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

    /// Without any document the policy's user-data is missing.
    #[test]
    fn missing_user_data_is_refused_if_exact() {
        let digest = "0".repeat(64);
        for (rule, failure, is_refused) in [
            (format!("sha256:{digest}"), "refuse", true),
            (format!("measure sha256:{digest}"), "emergency", true),
            (format!("sha256:{digest}"), "poweroff", true),
            ("use".into(), "emergency", false),
            ("measure".into(), "emergency", false),
            ("refuse".into(), "emergency", false),
        ] {
            let policy = format!("user-data = {rule}\nmetadata = use\non-failure = {failure}\n");
            let dir = machine("trust-missing", &policy);
            let (machine, mut root) = (dir.machine(), dir.root(Use::NewRoot));
            let (gate, report) = (Gate::of(&root, &machine), Problems::new());
            let verdict = missing(&gate, &root, &machine, &report);
            assert_eq!(
                (verdict.problems.len(), report.entries().len()),
                (usize::from(is_refused), usize::from(is_refused))
            );
            assert_eq!(verdict.stop.is_some(), is_refused && failure != "refuse");
            assert_eq!(dir.0.join(STOPPED).exists(), verdict.stop.is_some());
            // What the image itself configures for a machine without a datasource does not stand in for it.
            let verdict = check(&gate, &mut root, &machine, &mut none::instance(None), true, &report);
            assert_eq!(verdict.problems.len(), usize::from(is_refused), "{rule}");
        }
    }

    /// Ways to give user-data where the policy does not look for it. The seed is a folder of the root.
    #[test]
    fn other_documents_do_not_replace_signed_user_data() {
        let sum = crate::base::hex::encode(&digest(Algorithm::Sha256, b"#cloud-config\n"));
        let dir = machine("trust-elsewhere", &format!("user-data = sha256:{sum}\nmetadata = use\n"));
        let evil = "#cloud-config\nruncmd: [evil]\n";
        let refused = |attack: &str| {
            let mut instance = read(&dir);
            let (verdict, _) = judge(&dir, &mut instance, true);
            assert_eq!(verdict.problems.len(), 1, "{attack}: {:?}", verdict.problems);
            assert!(instance.vendor_data.is_null() && instance.network.is_none(), "{attack}");
            instance.user_data.map(|bytes| bytes.to_vec())
        };
        dir.write(&format!("{SEED}/user-data"), evil);
        assert_eq!(refused("another document in a seed folder of the root"), None);
        dir.write(&format!("{SEED}/user-data"), "");
        assert_eq!(refused("an empty document"), None);
        std::fs::remove_file(dir.0.join(SEED).join("user-data")).unwrap();
        dir.write(&format!("{SEED}/meta-data"), "instance-id: i-1\nuser-data: '#cloud-config'\nuserdata: x\n");
        assert_eq!(refused("in the metadata"), None);
        dir.write(&format!("{SEED}/meta-data"), "instance-id: i-1\n");
        dir.write(&format!("{SEED}/user-data"), "#cloud-config\n");
        let good = Some(b"#cloud-config\n".to_vec());
        dir.write(&format!("{SEED}/vendor-data"), evil);
        assert_eq!(refused("in vendor-data"), good);
        std::fs::remove_file(dir.0.join(SEED).join("vendor-data")).unwrap();
        dir.write(&format!("{SEED}/network-config"), "version: 2\nethernets: {}\n");
        assert_eq!(refused("a network that the policy does not name"), good);
        std::fs::remove_file(dir.0.join(SEED).join("network-config")).unwrap();
        dir.write(&format!("{SEED}/meta-data"), "instance-id: i-1\nnetwork-interfaces: |\n  auto evil\n");
        assert_eq!(refused("such a network in the metadata"), good);
        let policy = std::fs::read_to_string(dir.0.join("etc/prepivot/trust.conf")).unwrap();
        let empty = crate::base::hex::encode(&digest(Algorithm::Sha256, b""));
        dir.write("etc/prepivot/trust.conf", format!("{policy}network-config = sha256:{empty}\n"));
        dir.write(&format!("{SEED}/network-config"), "");
        assert_eq!(refused("a network in the metadata beside the network-config that is wanted"), good);
        // The seed alone, without all that.
        dir.write(&format!("{SEED}/meta-data"), "instance-id: i-1\n");
        let mut instance = read(&dir);
        assert_eq!(judge(&dir, &mut instance, true).0, Verdict::default());
        dir.write("etc/prepivot/trust.conf", policy);
        std::fs::remove_file(dir.0.join(SEED).join("network-config")).unwrap();
        let mut instance = read(&dir);
        assert_eq!(judge(&dir, &mut instance, true).0, Verdict::default());
    }

    #[test]
    fn real_root_has_only_the_initramfss_policy() {
        let dir = machine("trust-carry", "user-data = use\n");
        dir.write("etc/prepivot/allowed_signers", "");
        dir.write("etc/prepivot/key.crt", "x");
        dir.write("etc/prepivot/drivers", "x");
        let machine = dir.machine();
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
        let root = dir.root(Use::Tree);
        assert!(Gate::of(&root, &machine).includes());
    }

    #[test]
    fn a_policy_refuses_what_comes_by_other_ways() {
        let dir = machine("trust-ways", "user-data = use\nmetadata = use\n");
        let url = "cloud-config-url=http://evil.example/";
        dir.write("proc/cmdline", format!("cc: runcmd: [evil]\\n end_cc {url} network-config=e30="));
        dir.write("opt/x", "#cloud-config\nhostname: included\n");
        let machine = dir.machine();
        for (policy, allowed) in [("", false), ("include = use\ncommand-line = use\n", true)] {
            dir.write("etc/prepivot/trust.conf", format!("user-data = use\nmetadata = use\n{policy}"));
            let root = dir.root(Use::NewRoot);
            let image = Image::read(&root, &machine, &Problems::new());
            assert_eq!((image.own.get("runcmd").is_some(), image.config_url.is_some()), (allowed, allowed));
            let mut boot = testing::boot(&root, &machine);
            boot.image.config_url = None;
            let instance = Instance { user_data: Some(b"#include\n/opt/x\n".to_vec().into()), ..Instance::default() };
            let mut fetch =
                |include: &crate::userdata::Include<'_>| crate::stage::config::without_network(&root, include);
            let variables = Value::Null;
            let (merged, _) =
                crate::stage::config::consume(&root, &boot.image, &instance, &variables, &boot.report, &mut fetch);
            assert_eq!(merged.config.get("hostname").is_some(), allowed, "{:?}", boot.errors_and_warnings());
        }
    }

    #[test]
    fn a_boot_that_is_stopped_provisions_nothing() {
        let dir = machine("trust-nothing", "metadata = use\non-failure = emergency\n");
        let (machine, mut root) = (dir.machine(), dir.root(Use::NewRoot));
        let mut boot = testing::boot(&root, &machine);
        let stop = local::outcome_of(&mut root, &mut boot, read(&dir));
        assert_eq!(stop, Some(Stop::Emergency));
        assert!(boot.errors()[0].contains("user-data of NoCloud is refused"));
        assert!(!root.changes().iter().any(|change| change.path().starts_with("/etc")), "{:?}", root.changes());
    }
}
