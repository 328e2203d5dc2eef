//! The policy: trust.conf beside its keys, and words of the kernel command line.
//!
//! In an initramfs it is in /etc/prepivot. For the real root's stages the initramfs leaves a copy in /run/prepivot/trust; a file of
//! the root is never read.

use super::allowed::{self, Key};
use super::cms::{self, Certificate};
use super::measure::{Plan, Scheme};
use super::{DocumentKind, envelope, lines};
use crate::base::digest::SHA256_LEN;
use crate::base::error::{Error, Result};
use crate::base::hex;
use crate::base::text::quoted;
use crate::machine::{Machine, beneath};
use std::path::Path;

/// The folder in an initramfs.
pub const FOLDER: &str = "etc/prepivot";
/// The folder of the copy.
pub const COPY: &str = "run/prepivot/trust";
/// The file of the rules.
pub const CONF: &str = "trust.conf";
const SIGNERS: &str = "allowed_signers";
const REVOKED: &str = "revoked_keys";
/// Private keys for what is encrypted to the image: they need no rules.
pub const IDENTITIES: &str = "identities";
/// The end of the names of certificates.
const CERTIFICATES: &str = ".crt";
/// The largest file, in bytes.
const MAX: u64 = 256 << 10;
/// The words of the kernel command line.
const WORDS: [(DocumentKind, &str); 4] = [
    (DocumentKind::Metadata, "prepivot.metadata"),
    (DocumentKind::Network, "prepivot.network-config"),
    (DocumentKind::UserData, "prepivot.user-data"),
    (DocumentKind::VendorData, "prepivot.vendor-data"),
];

/// What happens if a document is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Failure {
    /// It is not used, and the boot goes on.
    #[default]
    Refuse,
    /// The boot stops before the pivot.
    Emergency,
    /// The machine is switched off.
    PowerOff,
}

const FAILURES: [(Failure, &str); 3] =
    [(Failure::Refuse, "refuse"), (Failure::Emergency, "emergency"), (Failure::PowerOff, "poweroff")];

/// What a kind of document needs to be used. The default refuses it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Needs {
    /// Whether the policy names it. What it refuses by name is left out, and no failure.
    pub is_named: bool,
    pub is_used: bool,
    pub measured: bool,
    pub signed: bool,
    /// Whether it must be encrypted under a key.
    pub encrypted: bool,
    /// Whether the host of a confidential virtual machine must have bound the launch to it.
    pub bound: bool,
    /// Of each group, one digest must be the document's.
    pub digests: Vec<Vec<Vec<u8>>>,
}

impl Needs {
    /// Whether it must be one certain document: a signed one, or one with a digest.
    pub fn is_exact(&self) -> bool {
        self.is_used && (self.signed || self.bound || !self.digests.is_empty())
    }
}

#[derive(Debug)]
struct Rule {
    kind: DocumentKind,
    /// The datasource that it is for. None: for those without a rule of their own.
    source: Option<String>,
    needs: Needs,
}

/// A policy.
#[derive(Debug, Default)]
pub struct Policy {
    rules: Vec<Rule>,
    /// What the kernel command line needs in addition.
    line: Vec<(DocumentKind, Needs)>,
    has_file: bool,
    /// The only datasources that are used. Empty: all.
    pub datasources: Vec<String>,
    pub failure: Failure,
    pub plan: Plan,
    pub keys: Vec<Key>,
    /// The fingerprints of the keys that are not accepted.
    pub revoked: Vec<String>,
    pub certificates: Vec<Certificate>,
    pub minimum_serial: u64,
    /// Keys that a statement must have.
    pub statement: Vec<String>,
    /// Why it could not be read: then everything is refused.
    pub problem: Option<String>,
}

impl Policy {
    /// The policy in a folder below the machine's base, and on its kernel command line. None if there is none. One that cannot be
    /// read refuses everything, and stops the boot.
    pub fn read(machine: &Machine, folder: &str) -> Option<Policy> {
        match Policy::parse(machine, folder) {
            Ok(policy) => policy,
            Err(e) => Some(Policy {
                failure: Failure::Emergency,
                problem: Some(format!("the trust policy cannot be read: {e}")),
                ..Policy::default()
            }),
        }
    }

    fn parse(machine: &Machine, folder: &str) -> Result<Option<Policy>> {
        let mut policy = Policy::default();
        // A dangling link is a policy that cannot be read.
        let base = &machine.base;
        policy.has_file = beneath::names(base, folder).iter().any(|name| name == CONF);
        if policy.has_file {
            policy.take(CONF, &text(base, folder, CONF)?)?;
            policy.take_keys(base, folder)?;
        }
        policy.take_line(machine)?;
        if !policy.has_file && policy.line.is_empty() {
            return Ok(None);
        }
        let has_keys = !policy.keys.is_empty() || !policy.certificates.is_empty();
        let needs = policy.rules.iter().map(|rule| &rule.needs).chain(policy.line.iter().map(|(_, needs)| needs));
        let (mut signed, mut measured) = (false, false);
        needs.for_each(|needs| (signed, measured) = (signed || needs.signed, measured || needs.measured));
        if signed && !has_keys {
            return Err(Error::new(format!("a signature is needed, and there is neither {SIGNERS} nor a certificate")));
        }
        let others = policy.rules.iter().any(|rule| rule.needs.measured && rule.kind != DocumentKind::UserData);
        if policy.plan.scheme == Scheme::Systemd && others {
            return Err(Error::new("the scheme systemd measures user-data alone"));
        }
        Ok(Some(policy))
    }

    fn take(&mut self, name: &str, text: &str) -> Result<()> {
        let mut seen: Vec<&str> = Vec::new();
        for (number, line) in lines(text) {
            let (key, value) = line.split_once('=').map_or((line, ""), |(key, value)| (key.trim(), value.trim()));
            let taken = if seen.contains(&key) { Err(Error::new("it is set twice")) } else { self.set(key, value) };
            taken.map_err(|e| e.context(format_args!("{name}: line {number}: {}", quoted(key))))?;
            seen.push(key);
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let wrong = |expected: &str| Error::new(format!("expected {expected}, found {}", quoted(value)));
        let words = value.split_whitespace();
        match key {
            "datasources" if !value.is_empty() => self.datasources = words.map(str::to_owned).collect(),
            "on-failure" => {
                let found = FAILURES.iter().find(|(_, name)| *name == value);
                self.failure = found.ok_or_else(|| wrong("refuse, emergency or poweroff"))?.0;
            }
            "scheme" => self.plan.scheme = Scheme::named(value).ok_or_else(|| wrong("prepivot, plain or systemd"))?,
            "pcr" => {
                let pcr = value.parse().ok().filter(|pcr| (8..16).contains(pcr));
                self.plan.pcr = Some(pcr.ok_or_else(|| wrong("a register from 8 to 15"))?);
            }
            "rtmr" => {
                let rtmr = value.parse().ok().filter(|rtmr| (2..4).contains(rtmr));
                self.plan.rtmr = rtmr.ok_or_else(|| wrong("2 or 3"))?;
            }
            "minimum-serial" => self.minimum_serial = value.parse().map_err(|_| wrong("a number"))?,
            "statement" => {
                self.statement = words.map(str::to_owned).collect();
                if value.is_empty() || !self.statement.iter().all(|key| envelope::KEYS.contains(&key.as_str())) {
                    return Err(wrong("keys of a statement"));
                }
            }
            _ => {
                let (name, source) = key.split_once('@').map_or((key, None), |(name, source)| (name, Some(source)));
                let kind = DocumentKind::named(name).filter(|kind| kind.is_document() || source.is_none());
                let kind = kind.ok_or_else(|| Error::new("there is no such setting"))?;
                let needs = needs(kind, words)?;
                self.rules.push(Rule { kind, source: source.map(str::to_owned), needs });
            }
        }
        Ok(())
    }

    fn take_keys(&mut self, base: &Path, folder: &str) -> Result<()> {
        let mut names = beneath::names(base, folder);
        names.sort();
        for name in names {
            if name == SIGNERS {
                self.keys = allowed::signers(&name, &text(base, folder, &name)?)?;
            } else if name == REVOKED {
                self.revoked = allowed::revoked(&name, &text(base, folder, &name)?)?;
            } else if name.ends_with(CERTIFICATES) {
                self.certificates.extend(cms::certificates(&name, &text(base, folder, &name)?)?);
            }
        }
        Ok(())
    }

    fn take_line(&mut self, machine: &Machine) -> Result<()> {
        for (kind, word) in WORDS {
            for value in machine.cmdline.values(word) {
                let needs = needs(kind, value.split(','));
                self.line.push((kind, needs.map_err(|e| e.context(word))?));
            }
        }
        Ok(())
    }

    /// What a document of a datasource needs. The file's rules and the words of the kernel command line add up.
    pub fn needs(&self, kind: DocumentKind, source: &str) -> Needs {
        let is_listed = self.datasources.is_empty() || self.datasources.iter().any(|s| s.eq_ignore_ascii_case(source));
        if !is_listed || self.problem.is_some() {
            return Needs::default();
        }
        let of = |wanted: Option<&str>| {
            let is_it = |rule: &&Rule| match (wanted, &rule.source) {
                (Some(wanted), Some(own)) => own.eq_ignore_ascii_case(wanted),
                (wanted, own) => wanted.is_none() && own.is_none(),
            };
            self.rules.iter().filter(|rule| rule.kind == kind).find(is_it).map(|rule| &rule.needs)
        };
        let own = of(Some(source)).or_else(|| of(None)).cloned();
        let mut line = self.line.iter().filter(|(of, _)| *of == kind).map(|(_, needs)| needs.clone());
        let Some(first) = own.or_else(|| line.next().filter(|_| !self.has_file)) else { return Needs::default() };
        line.fold(first, |all, more| Needs {
            is_named: true,
            is_used: all.is_used && more.is_used,
            measured: all.measured || more.measured,
            signed: all.signed || more.signed,
            encrypted: all.encrypted || more.encrypted,
            bound: all.bound || more.bound,
            digests: [all.digests, more.digests].concat(),
        })
    }

    /// A source that is used and has no rules of its own.
    pub fn any_source(&self) -> String {
        self.datasources.first().cloned().unwrap_or_default()
    }

    /// Whether something is measured.
    pub fn measures(&self) -> bool {
        self.rules.iter().any(|rule| rule.needs.measured) || self.line.iter().any(|(_, needs)| needs.measured)
    }

    /// The policy in words, for people: a line for each setting.
    pub fn to_text(&self) -> String {
        if let Some(problem) = &self.problem {
            return format!("{problem}\neverything is refused, and the boot stops\n");
        }
        let mut lines: Vec<(String, String)> = Vec::new();
        let any = self.any_source();
        for (kind, name) in DocumentKind::ALL {
            let sources = self.rules.iter().filter(|rule| rule.kind == kind).filter_map(|rule| rule.source.as_ref());
            lines.push((name.to_owned(), told(kind, &self.needs(kind, &any))));
            lines.extend(sources.map(|source| (format!("{name}@{source}"), told(kind, &self.needs(kind, source)))));
        }
        let listed = if self.datasources.is_empty() { "all".to_owned() } else { self.datasources.join(" ") };
        lines.push(("datasources".to_owned(), listed));
        let failure = match self.failure {
            Failure::Refuse => "what is refused is not used, and the boot goes on",
            Failure::Emergency => "the boot stops before the pivot",
            Failure::PowerOff => "the machine is switched off",
        };
        lines.push(("on-failure".to_owned(), failure.to_owned()));
        if self.measures() {
            let Plan { scheme, rtmr, .. } = &self.plan;
            let into = format!("scheme {}, PCR {}, RTMR[{rtmr}]", scheme.name(), self.plan.pcr());
            lines.push(("measured by".to_owned(), into));
        }
        lines.extend(self.keys.iter().map(|key| ("key".to_owned(), key.title())));
        let named = |own: &Certificate| format!("{} ({})", own.name, allowed::fingerprint(&own.der));
        lines.extend(self.certificates.iter().map(|own| ("certificate".to_owned(), named(own))));
        lines.extend(self.revoked.iter().map(|print| ("revoked".to_owned(), print.clone())));
        if self.minimum_serial > 0 {
            lines.push(("minimum-serial".to_owned(), self.minimum_serial.to_string()));
        }
        if !self.statement.is_empty() {
            lines.push(("statement".to_owned(), self.statement.join(" ")));
        }
        lines.iter().map(|(name, what)| format!("{name:<23} {what}\n")).collect()
    }
}

/// What a kind needs, in words.
fn told(kind: DocumentKind, needs: &Needs) -> String {
    if !needs.is_used {
        return "refused".to_owned();
    }
    let mut all = Vec::new();
    if needs.measured {
        all.push("measured".to_owned());
    }
    if needs.signed {
        let how =
            if kind == DocumentKind::UserData { "signed" } else { "its digest is in the signed user-data's statement" };
        all.push(how.to_owned());
    }
    if needs.encrypted {
        all.push("encrypted".to_owned());
    }
    if needs.bound {
        all.push("the host's data (HOSTDATA, MRCONFIGID) has its digest".to_owned());
    }
    for group in &needs.digests {
        let one = |digest: &Vec<u8>| format!("sha256:{}", hex::encode(digest));
        all.push(format!("its digest is {}", group.iter().map(one).collect::<Vec<_>>().join(" or ")));
    }
    if all.is_empty() { "used as it is".to_owned() } else { format!("used if {}", all.join(", and ")) }
}

/// Parses what a kind needs.
fn needs<'a>(kind: DocumentKind, words: impl Iterator<Item = &'a str>) -> Result<Needs> {
    let (mut needs, mut count, mut digests) =
        (Needs { is_named: true, is_used: true, ..Needs::default() }, 0, Vec::new());
    for word in words {
        count += 1;
        match word {
            "use" => {}
            "refuse" => needs.is_used = false,
            "measure" if kind.is_document() => needs.measured = true,
            "signature" if kind.is_document() => needs.signed = true,
            "encryption" if matches!(kind, DocumentKind::UserData | DocumentKind::VendorData) => needs.encrypted = true,
            "host-data" if kind == DocumentKind::UserData => needs.bound = true,
            _ => {
                let digest = digest_of(word).filter(|_| kind.is_document());
                let expected = if kind.is_document() {
                    "use, refuse, measure, signature, encryption, host-data or sha256:DIGEST"
                } else {
                    "use or refuse"
                };
                digests.push(digest.ok_or_else(|| Error::new(format!("expected {expected}, found {}", quoted(word))))?);
            }
        }
    }
    if !digests.is_empty() {
        needs.digests.push(digests);
    }
    match count {
        0 => Err(Error::new("expected a value")),
        1 => Ok(needs),
        _ if !needs.is_used => Err(Error::new("refuse is a value alone")),
        _ => Ok(needs),
    }
}

/// The digest of `sha256:HEX`.
pub fn digest_of(word: &str) -> Option<Vec<u8>> {
    hex::decode(word.strip_prefix("sha256:")?).filter(|digest| digest.len() == SHA256_LEN)
}

/// A file as text.
fn text(base: &Path, folder: &str, name: &str) -> Result<String> {
    let bytes = beneath::start(base, &format!("{folder}/{name}"), MAX + 1);
    let bytes = bytes.ok_or_else(|| Error::new(format!("failed to read {name}")))?;
    if bytes.len() as u64 > MAX {
        return Err(Error::new(format!("{name} has more than {MAX} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| Error::new(format!("{name} is not UTF-8")))
}

/// The files of a policy in an initramfs, for the copy: names and contents.
///
/// # Errors
/// One cannot be read.
pub fn files(base: &Path) -> Result<Vec<(String, String)>> {
    let mut names = beneath::names(base, FOLDER);
    let has_rules = names.iter().any(|name| name == CONF);
    let is_rule = |name: &str| [CONF, SIGNERS, REVOKED].contains(&name) || name.ends_with(CERTIFICATES);
    names.retain(|name| name == IDENTITIES || has_rules && is_rule(name));
    // The rules first: without their keys they refuse, and keys without rules are no policy.
    names.sort_by_key(|name| name != CONF);
    names.into_iter().map(|name| text(base, FOLDER, &name).map(|text| (name, text))).collect()
}
