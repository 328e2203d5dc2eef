//! Measuring: the three schemes, the values that registers get, and the registers of this machine.

use super::tpm::{self, Bank};
use super::{Document, DocumentKind};
use crate::base::base64;
use crate::base::deadline::Deadline;
use crate::base::digest::{Algorithm, digest};
use crate::base::error::{Context, Error, Result};
use crate::base::hex;
use crate::machine::beneath;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// How much of user-data the scheme systemd puts into its word.
const SHOWN: usize = 256;
/// Where the kernel shows the registers of TDX (Linux 6.16).
const RTMRS: &str = "sys/devices/virtual/misc/tdx_guest/measurements";
/// The length of TDX's MRCONFIGID.
const MRCONFIGID: u64 = 48;
/// A report of our own in configfs-tsm, and the longest.
const REPORT: &str = "sys/kernel/config/tsm/report/prepivot";
const MAX_REPORT: u64 = 64 << 10;
/// Where HOSTDATA is in a report of SEV-SNP.
const HOSTDATA: std::ops::Range<usize> = 0xc0..0xe0;
/// TPMs: with the kernel's resource manager, or without it.
const TPMS: [&str; 2] = ["dev/tpmrm0", "dev/tpm0"];
/// The firmware's table of a TPM 2.0, how long its driver may take, and how often it is looked for.
pub const TOLD: &str = "sys/firmware/acpi/tables/TPM2";
const LOADING: Duration = Duration::from_secs(10);
const BETWEEN: Duration = Duration::from_millis(50);

/// What is hashed into a register for a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scheme {
    /// `prepivot-v1:KIND:sha256:DIGEST:LENGTH`, or `prepivot-v1:KIND:absent`.
    #[default]
    Prepivot,
    /// The document itself; nothing, if it is absent.
    Plain,
    /// The word of systemd's systemd-imds, for user-data alone, and none if that is absent or empty.
    Systemd,
}

/// Each scheme with its name and its PCR.
const SCHEMES: [(Scheme, &str, u8); 3] =
    [(Scheme::Prepivot, "prepivot", 12), (Scheme::Plain, "plain", 8), (Scheme::Systemd, "systemd", 12)];

impl Scheme {
    /// The scheme with this name.
    pub fn named(name: &str) -> Option<Scheme> {
        SCHEMES.iter().find(|(_, own, _)| *own == name).map(|(scheme, ..)| *scheme)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        SCHEMES.iter().find(|(scheme, ..)| *scheme == self).map_or("", |(_, name, _)| name)
    }

    /// What is measured for a document. None: nothing.
    pub fn event(self, document: &Document) -> Option<Measurement> {
        let bytes = document.bytes.as_deref();
        let word =
            |text: String| Measurement { name: document.name, kind: "prepivot", text: Some(text), data: Vec::new() };
        match self {
            Scheme::Prepivot => Some(word(match bytes {
                None => format!("prepivot-v1:{}:absent", document.name),
                Some(bytes) => {
                    let sum = hex::encode(&digest(Algorithm::Sha256, bytes));
                    format!("prepivot-v1:{}:sha256:{sum}:{}", document.name, bytes.len())
                }
            })),
            Scheme::Plain => Some(Measurement {
                name: document.name,
                kind: "prepivot",
                text: None,
                data: bytes.unwrap_or_default().to_vec(),
            }),
            Scheme::Systemd => {
                let bytes = bytes.filter(|bytes| !bytes.is_empty() && document.kind == DocumentKind::UserData)?;
                let sum = hex::encode(&digest(Algorithm::Sha256, bytes));
                let start = base64::encode(bytes.get(..bytes.len().min(SHOWN)).unwrap_or_default());
                Some(Measurement { kind: "imds-userdata", ..word(format!("imds-userdata:{sum}:{start}")) })
            }
        }
    }
}

/// What a policy measures into.
#[derive(Debug, Clone)]
pub struct Plan {
    pub scheme: Scheme,
    /// None: the scheme's.
    pub pcr: Option<u8>,
    pub rtmr: u8,
}

impl Default for Plan {
    fn default() -> Self {
        Plan { scheme: Scheme::default(), pcr: None, rtmr: 3 }
    }
}

impl Plan {
    /// The PCR.
    pub fn pcr(&self) -> u8 {
        let own = || SCHEMES.iter().find(|(scheme, ..)| *scheme == self.scheme).map_or(12, |(.., pcr)| *pcr);
        self.pcr.unwrap_or_else(own)
    }
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measurement {
    /// The document's name.
    pub name: &'static str,
    /// Its type in systemd's log.
    pub kind: &'static str,
    /// What is hashed, if it is text.
    pub text: Option<String>,
    data: Vec<u8>,
}

impl Measurement {
    /// Its digest.
    pub fn digest(&self, algorithm: Algorithm) -> Vec<u8> {
        digest(algorithm, self.text.as_deref().map_or(&self.data, str::as_bytes))
    }

    /// A short text by which it is known again in this boot.
    pub fn id(&self) -> String {
        format!("{}:{}", self.name, hex::encode(&self.digest(Algorithm::Sha256)))
    }
}

/// The value of a register that was zero, after these measurements.
pub fn predict(events: &[Measurement], algorithm: Algorithm) -> Vec<u8> {
    let zero = digest(algorithm, &[]).len();
    events.iter().fold(vec![0; zero], |old, event| digest(algorithm, &[old, event.digest(algorithm)].concat()))
}

/// The machine's TPM. If `waits` and the firmware tells of one whose driver is still loading, it is waited for.
fn tpm_of(base: &Path, waits: bool) -> Option<&'static str> {
    let find = || TPMS.into_iter().find(|tpm| beneath::exists(base, tpm));
    let found = find();
    if found.is_some() || !waits || !beneath::exists(base, TOLD) {
        return found;
    }
    log::warn!("waiting up to {} s for the driver of the TPM, which is needed", LOADING.as_secs());
    let deadline = Deadline::after(LOADING);
    while find().is_none() && !deadline.passed() {
        sleep(BETWEEN);
    }
    find()
}

/// A TPM, for commands.
fn opened(base: &Path, path: &str) -> Result<File> {
    OpenOptions::new().read(true).write(true).open(base.join(path)).context(|| format!("failed to open /{path}"))
}

/// The machine's TPM, for commands. None if it has none, or its driver is not loaded.
///
/// # Errors
/// It cannot be opened.
pub fn open_tpm(base: &Path) -> Result<Option<File>> {
    tpm_of(base, false).map(|path| opened(base, path)).transpose()
}

/// What the host of a confidential virtual machine has bound its launch to: TDX's MRCONFIGID (48 bytes), or SEV-SNP's HOSTDATA
/// (32 bytes), as the kernel shows them (Linux 6.16; configfs-tsm, Linux 6.7).
///
/// # Errors
/// The kernel shows neither.
pub fn host_data(base: &Path) -> Result<Vec<u8>> {
    let path = format!("{RTMRS}/mrconfigid");
    if let Some(value) = beneath::start(base, &path, MRCONFIGID + 1) {
        let is_whole = value.len() as u64 == MRCONFIGID;
        return is_whole
            .then_some(value)
            .ok_or_else(|| Error::new(format!("/{path} does not have {MRCONFIGID} bytes")));
    }
    let folder = base.join(REPORT);
    let made = DirBuilder::new().create(&folder);
    if !folder.is_dir() {
        return Err(Error::new("the kernel shows neither TDX's MRCONFIGID nor reports of SEV-SNP"));
    }
    let read = of_report(base);
    if made.is_ok() {
        let _ = std::fs::remove_dir(&folder);
    }
    read
}

/// HOSTDATA in a report of SEV-SNP (AMD, SEV Secure Nested Paging Firmware ABI, "ATTESTATION_REPORT"). What else is in the report,
/// and its signature, is for a verifier elsewhere.
fn of_report(base: &Path) -> Result<Vec<u8>> {
    let read = |name: &str| {
        let bytes = beneath::start(base, &format!("{REPORT}/{name}"), MAX_REPORT);
        bytes.ok_or_else(|| Error::new(format!("failed to read /{REPORT}/{name}")))
    };
    if read("provider")?.trim_ascii() != b"sev_guest" {
        return Err(Error::new("the kernel's reports are not SEV-SNP's"));
    }
    let asked = OpenOptions::new().write(true).open(base.join(REPORT).join("inblob"));
    asked.and_then(|mut file| file.write_all(&[0; 64])).context(|| format!("failed to write /{REPORT}/inblob"))?;
    let report = read("outblob")?;
    let value = report.get(HOSTDATA).ok_or_else(|| Error::new("the report of SEV-SNP is too short"))?;
    Ok(value.to_vec())
}

/// Whether the value that the host has bound the launch to is that of a document, as for CoCo's initdata: its SHA-256 with zero
/// bytes up to the length of the value, or its SHA-384 where that has the length.
pub fn is_bound(value: &[u8], document: &[u8]) -> bool {
    let mut sum = digest(Algorithm::Sha256, document);
    sum.resize(value.len().max(sum.len()), 0);
    sum == value || digest(Algorithm::Sha384, document) == value
}

/// The registers that this machine has.
pub struct Registers {
    tpm: Option<(File, Vec<Bank>)>,
    rtmr: Option<File>,
}

impl Registers {
    /// Opens the machine's TPM and its TDX register, those of them that there are.
    ///
    /// # Errors
    /// There is neither, or one cannot be used.
    pub fn open(base: &Path, plan: &Plan) -> Result<Registers> {
        let open = |path: &str, read| {
            let opened = OpenOptions::new().read(read).write(true).open(base.join(path));
            opened.context(|| format!("failed to open /{path}"))
        };
        let rtmr = format!("{RTMRS}/rtmr{}:sha384", plan.rtmr);
        let rtmr = if beneath::exists(base, &rtmr) { Some(open(&rtmr, false)?) } else { None };
        let tpm = match tpm_of(base, rtmr.is_none()) {
            Some(path) => {
                let mut tpm = opened(base, path)?;
                let banks = tpm::banks(&mut tpm, plan.pcr())?;
                Some((tpm, banks))
            }
            None => None,
        };
        if tpm.is_none() && rtmr.is_none() {
            return Err(Error::new("this machine has neither a TPM nor a register of TDX to measure into"));
        }
        Ok(Registers { tpm, rtmr })
    }

    /// Whether one of them is a TPM's.
    pub fn has_tpm(&self) -> bool {
        self.tpm.is_some()
    }

    /// Extends all of them. Returns the digests that went into the PCR.
    ///
    /// # Errors
    /// One refuses it.
    pub fn extend(&mut self, plan: &Plan, event: &Measurement) -> Result<Vec<(Algorithm, Vec<u8>)>> {
        // The kernel takes 48 bytes in one write at the start, and nothing else.
        if let Some(rtmr) = &mut self.rtmr {
            let sum = event.digest(Algorithm::Sha384);
            let written = rtmr.write(&sum).context(|| format!("failed to extend RTMR[{}]", plan.rtmr))?;
            if written != sum.len() {
                return Err(Error::new(format!("RTMR[{}] took {written} bytes of {}", plan.rtmr, sum.len())));
            }
        }
        let Some((tpm, banks)) = &mut self.tpm else { return Ok(Vec::new()) };
        let digests: Vec<(Algorithm, Vec<u8>)> =
            banks.iter().map(|bank| (bank.algorithm, event.digest(bank.algorithm))).collect();
        tpm::extend(tpm, plan.pcr(), banks, &digests)?;
        Ok(digests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::{TempDir, skip};
    use crate::trust::swtpm::Swtpm;
    use crate::trust::{event_log, quote};
    use std::process::Command;
    use std::time::{Duration, Instant};

    const DOCUMENT: &[u8] = b"#cloud-config\n";

    fn document(bytes: Option<&'static [u8]>) -> Document<'static> {
        Document { name: "user-data", kind: DocumentKind::UserData, bytes: bytes.map(Into::into) }
    }

    fn value(scheme: Scheme, bytes: Option<&'static [u8]>, algorithm: Algorithm) -> String {
        hex::encode(&predict(scheme.event(&document(bytes)).as_slice(), algorithm))
    }

    #[test]
    fn waits_for_the_driver_of_a_tpm() {
        let dir = TempDir::new("tpm-late");
        let begin = Instant::now();
        assert_eq!(tpm_of(&dir.0, true), None);
        dir.write(TOLD, "");
        assert_eq!(tpm_of(&dir.0, false), None, "a register of TDX is there");
        assert!(begin.elapsed() < Duration::from_secs(1));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sleep(Duration::from_millis(300));
                dir.write(TPMS[0], "");
            });
            assert_eq!(tpm_of(&dir.0, true), Some(TPMS[0]));
        });
        assert!((Duration::from_millis(300)..LOADING).contains(&begin.elapsed()));
    }

    /// The kernel's interface, as files: no such machine is at hand.
    #[test]
    fn reads_what_the_host_bound_the_launch_to() {
        let dir = TempDir::new("host-data");
        assert!(host_data(&dir.0).unwrap_err().to_string().contains("neither"));
        let sum = digest(Algorithm::Sha256, DOCUMENT);
        let mut report = vec![7; 0x4a0];
        report[HOSTDATA].copy_from_slice(&sum);
        for (name, content) in [("provider", &b"sev_guest\n"[..]), ("inblob", b""), ("outblob", &report)] {
            dir.write(&format!("{REPORT}/{name}"), content);
        }
        let value = host_data(&dir.0).unwrap();
        assert!(is_bound(&value, DOCUMENT) && !is_bound(&value, b"#cloud-confih\n") && !is_bound(&value, b""));
        assert_eq!(std::fs::read(dir.0.join(REPORT).join("inblob")).unwrap(), [0; 64]);
        dir.write(&format!("{REPORT}/outblob"), &report[..0xdf]);
        assert!(host_data(&dir.0).unwrap_err().to_string().contains("too short"));
        dir.write(&format!("{REPORT}/provider"), "tdx_guest\n");
        assert!(host_data(&dir.0).is_err());
        // TDX: 48 bytes.
        let path = format!("{RTMRS}/mrconfigid");
        for (content, is_ours) in [
            ([&sum[..], &[0; 16]].concat(), true),
            (digest(Algorithm::Sha384, DOCUMENT), true),
            ([&sum[..], &[0; 15], &[1]].concat(), false),
            (vec![0; 48], false),
        ] {
            dir.write(&path, &content);
            assert_eq!(is_bound(&host_data(&dir.0).unwrap(), DOCUMENT), is_ours);
        }
        dir.write(&path, &sum);
        assert!(host_data(&dir.0).unwrap_err().to_string().contains("48 bytes"));
    }

    /// Values that were made by tpm2-tools and sha256sum.
    #[test]
    fn registers_get_the_values_of_other_programs() {
        for (scheme, algorithm, expected) in [
            (Scheme::Systemd, Algorithm::Sha256, "8a641bae15e4ec2d3d727a6b88f2056357ffc42c23e40e1718d31f7aaf85b39e"),
            (
                Scheme::Systemd,
                Algorithm::Sha384,
                "f88e213366278ff71b938768565e87e698ec51000ae53d103460afaab1ee611ad8a9afaf7a5b7f00a5fd37f375ec3f31",
            ),
            (Scheme::Plain, Algorithm::Sha256, "64068f8f333c515f12568b73abf16d69a032ebf19fe650201a0430fdc2a72bb9"),
            (
                Scheme::Plain,
                Algorithm::Sha384,
                "6eadaf8d43153210758f1b89fc2ea6325d28a90999f5e55a1bef54a93ea632defccb4d27c0726baea1520452130c1aa5",
            ),
        ] {
            assert_eq!(value(scheme, Some(DOCUMENT), algorithm), expected);
        }
        let word = |bytes| Scheme::Prepivot.event(&document(bytes)).unwrap().text.unwrap();
        let sum = "88c95955b024402aa9572b663f7eeb134f01343bb92af27b50e97e72b22c565f";
        assert_eq!(word(Some(DOCUMENT)), format!("prepivot-v1:user-data:sha256:{sum}:14"));
        assert_eq!(word(None), "prepivot-v1:user-data:absent");
        assert_ne!(word(Some(b"")), word(None));
        for bytes in [None, Some(&b""[..])] {
            assert_eq!(Scheme::Systemd.event(&document(bytes)), None);
        }
        let metadata = Document { name: "metadata", kind: DocumentKind::Metadata, bytes: Some(DOCUMENT.into()) };
        assert_eq!(Scheme::Systemd.event(&metadata), None);
    }

    #[test]
    fn tdx_register_gets_48_bytes_at_its_start() {
        let dir = TempDir::new("rtmr");
        let path = format!("{RTMRS}/rtmr3:sha384");
        assert!(Registers::open(&dir.0, &Plan::default()).is_err());
        dir.write(&path, "");
        let event = Scheme::Plain.event(&document(Some(DOCUMENT))).unwrap();
        let mut registers = Registers::open(&dir.0, &Plan::default()).unwrap();
        assert_eq!(registers.extend(&Plan::default(), &event).unwrap(), []);
        assert_eq!(std::fs::read(dir.0.join(path)).unwrap(), event.digest(Algorithm::Sha384));
    }

    #[test]
    fn tpm_gets_predicted_values_in_every_bank() {
        let dir = TempDir::new("swtpm");
        let Some(swtpm) = Swtpm::start(&dir.0) else { return };
        let mut tpm = swtpm.connect();
        let plan = Plan::default();
        let banks = tpm::banks(&mut tpm, plan.pcr()).unwrap();
        assert!(banks.iter().any(|bank| bank.algorithm == Algorithm::Sha256), "{banks:?}");
        let mut events = Vec::new();
        for (scheme, bytes) in
            [(Scheme::Prepivot, None), (Scheme::Plain, Some(DOCUMENT)), (Scheme::Systemd, Some(DOCUMENT))]
        {
            let event = scheme.event(&document(bytes)).unwrap();
            let digests: Vec<_> = banks.iter().map(|bank| (bank.algorithm, event.digest(bank.algorithm))).collect();
            tpm::extend(&mut tpm, plan.pcr(), &banks, &digests).unwrap();
            events.push(event);
            for bank in &banks {
                let value = tpm::read(&mut tpm, plan.pcr(), *bank).unwrap();
                assert_eq!(value, predict(&events, bank.algorithm), "{}", tpm::name(bank.algorithm));
            }
        }
        // One bank less than the TPM has, or a digest of another length, is refused by it.
        assert!(tpm::extend(&mut tpm, plan.pcr(), &banks, &[(Algorithm::Sha256, vec![0; 31])]).is_err());
        assert!(tpm::extend(&mut tpm, 99, &banks[..1], &[(banks[0].algorithm, vec![0; 20])]).is_err());
        drop(tpm);
        // The same by tpm2-tools.
        let tcti = swtpm.name();
        let read = Command::new("tpm2_pcrread").args(["-T", &tcti, "sha256:12"]).output();
        match read {
            Ok(read) => {
                let text = String::from_utf8_lossy(&read.stdout).to_lowercase();
                let expected = hex::encode(&predict(&events, Algorithm::Sha256));
                assert!(text.contains(&expected), "{text}{}", String::from_utf8_lossy(&read.stderr));
            }
            Err(e) => skip(format!("tpm2_pcrread: {e}")),
        }
    }

    #[test]
    fn log_of_measurements_replays_with_tpm2_tools() {
        let dirs = [TempDir::new("log-measured"), TempDir::new("log-replayed")];
        let (Some(measured), Some(replayed)) = (Swtpm::start(&dirs[0].0), Swtpm::start(&dirs[1].0)) else { return };
        let mut tpm = measured.connect();
        let pcr = Plan::default().pcr();
        let banks = tpm::banks(&mut tpm, pcr).unwrap();
        let mut log = event_log::Log::begin(&dirs[0].0).unwrap();
        for (scheme, bytes) in
            [(Scheme::Prepivot, None), (Scheme::Prepivot, Some(DOCUMENT)), (Scheme::Plain, Some(DOCUMENT))]
        {
            let event = scheme.event(&document(bytes)).unwrap();
            let digests: Vec<_> = banks.iter().map(|bank| (bank.algorithm, event.digest(bank.algorithm))).collect();
            tpm::extend(&mut tpm, pcr, &banks, &digests).unwrap();
            log.add(pcr, &event, &digests, "b").unwrap();
        }
        log.end().unwrap();
        // A record is `{"pcr":N,"digests":[{"hashAlg":NAME,"digest":HEX},...],...`: into another TPM, as a verifier would.
        let text = std::fs::read_to_string(dirs[0].0.join("run/log/systemd/tpm2-measure.log")).unwrap();
        let tcti = replayed.name();
        for record in text.lines() {
            let words: Vec<&str> = record.split('"').collect();
            let after = |name| words.windows(3).filter(move |w| w[0] == name).map(|w| w[2]);
            let sums: Vec<_> =
                after("hashAlg").zip(after("digest")).map(|(name, sum)| format!("{name}={sum}")).collect();
            assert_eq!(sums.len(), banks.len(), "{record}");
            let done =
                Command::new("tpm2_pcrextend").args(["-T", &tcti, &format!("{pcr}:{}", sums.join(","))]).output();
            match done {
                Ok(done) => assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr)),
                Err(e) => return skip(format!("tpm2_pcrextend: {e}")),
            }
        }
        let mut other = replayed.connect();
        for bank in &banks {
            let (ours, theirs) = (tpm::read(&mut tpm, pcr, *bank), tpm::read(&mut other, pcr, *bank));
            assert_eq!(ours.unwrap(), theirs.unwrap(), "{}", tpm::name(bank.algorithm));
        }
    }

    /// By the manual's recipe.
    #[test]
    fn quote_is_what_tpm2_tools_verify() {
        let dir = TempDir::new("quote");
        let Some(swtpm) = Swtpm::start(&dir.0) else { return };
        let mut tpm = swtpm.connect();
        let nonce = digest(Algorithm::Sha256, b"nonce");
        assert!(quote::quote(&mut tpm, &[0; 33]).is_err());
        let quoted = quote::quote(&mut tpm, &nonce).unwrap();
        // The key is the same each time, and none is left in the TPM's few places.
        for _ in 0..5 {
            assert_eq!(quote::quote(&mut tpm, &nonce).unwrap().key, quoted.key);
        }
        for (name, bytes) in [("quote", &quoted.attested), ("signature", &quoted.signature), ("key", &quoted.key)] {
            std::fs::write(dir.0.join(name), bytes).unwrap();
        }
        for (nonce, expected) in [(nonce.clone(), true), (vec![0; 32], false)] {
            let checked = Command::new("tpm2_checkquote")
                .args(["-u", "key", "-m", "quote", "-s", "signature", "-q", &hex::encode(&nonce)])
                .current_dir(&dir.0)
                .output();
            match checked {
                Ok(done) => assert_eq!(done.status.success(), expected, "{}", String::from_utf8_lossy(&done.stderr)),
                Err(e) => skip(format!("tpm2_checkquote: {e}")),
            }
        }
    }
}
