//! Checks an instance's documents by the policy, and removes those that are refused.

use super::allowed::fingerprint;
use super::cms::{self, Certificate};
use super::envelope::{self, Envelope, Form, Statement};
use super::measure::is_bound;
use super::policy::{Needs, digest_of};
use super::sealed;
use super::sshsig::Signature;
use super::{Document, DocumentKind, Policy, documents};
use crate::base::clock;
use crate::base::digest::{Algorithm, digest};
use crate::base::error::{Error, Result};
use crate::base::text::quoted;
use crate::document::{Map, Raw, Value};
use crate::instance::{Instance, vendor_document};

/// What a statement is compared with.
#[derive(Debug, Default)]
pub struct Circumstances {
    /// Seconds since 1970.
    pub now: u64,
    pub uuid: Option<String>,
    /// MAC addresses in lower case.
    pub macs: Vec<String>,
    /// The serial number of the last document that was accepted.
    pub last_serial: Option<u64>,
    /// Whether the instance was read now. One of the cache was in time when it was read.
    pub is_fresh: bool,
    /// What the host bound the launch to, or why that is not known. None: the policy does not need it.
    pub host_data: Option<Result<Vec<u8>>>,
    /// Why nothing could be measured, if so.
    pub unmeasured: Option<String>,
}

/// How it went.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Why documents are refused, a line for each.
    pub problems: Vec<String>,
    /// The serial number of the user-data, if it is signed and accepted.
    pub serial: Option<u64>,
    /// Whose key signed the user-data.
    pub signer: Option<String>,
}

/// The user-data's envelope, verified.
struct Opened {
    /// Bytes before the payload.
    head: usize,
    signer: String,
    serial: Option<u64>,
    /// The digests of other documents, by their names.
    pinned: Vec<(String, Vec<u8>)>,
}

/// Checks the instance's documents. What is refused is removed from it; of refused metadata the instance-id stays. An envelope that
/// is accepted is opened.
pub fn check(policy: &Policy, instance: &mut Instance, now: &Circumstances) -> Checked {
    let mut checked = Checked::default();
    let source = instance.source.clone();
    let all = documents(instance);
    let mut refused = Vec::new();
    let mut opened = None;
    // The user-data first: its statement may have the digests of others.
    let order = all
        .iter()
        .filter(|d| d.kind == DocumentKind::UserData)
        .chain(all.iter().filter(|d| d.kind != DocumentKind::UserData));
    for document in order {
        let result = judge(policy, &source, document, &mut opened, instance, now);
        if let Err(e) = result {
            refused.push(document.name);
            if document.kind == DocumentKind::UserData {
                opened = None;
            }
            let needs = policy.needs(document.kind, &source);
            let is_there = document.bytes.is_some();
            if needs.is_named && !needs.is_used {
                if is_there {
                    log::info!("{} of {source} is left out, as the trust policy says", document.name);
                }
            } else if is_there || needs.is_used {
                checked.problems.push(format!("{} of {source} is refused: {e}", document.name));
            }
        }
    }
    drop(all);
    for name in refused {
        remove(instance, name);
    }
    let is_pinned =
        opened.iter().flat_map(|opened| &opened.pinned).any(|(name, _)| name == DocumentKind::Metadata.name());
    let [metadata, user_data] =
        [DocumentKind::Metadata, DocumentKind::UserData].map(|kind| policy.needs(kind, &source));
    // They can replace any file of the root, and so the user-data's work.
    if user_data.is_exact() && !metadata.is_exact() && !is_pinned && !instance.files.is_empty() {
        instance.files = Vec::new();
        checked.problems.push(format!(
            "the files in metadata of {source} are refused: they need metadata with a signature or a digest, as user-data has one"
        ));
    }
    if let Some(opened) = opened {
        open(instance, opened.head);
        (checked.serial, checked.signer) = (opened.serial, Some(opened.signer));
    }
    checked
}

fn judge(
    policy: &Policy,
    source: &str,
    document: &Document,
    opened: &mut Option<Opened>,
    instance: &Instance,
    now: &Circumstances,
) -> Result<()> {
    let needs = policy.needs(document.kind, source);
    if !needs.is_used {
        return Err(Error::new("the trust policy does not name it"));
    }
    if let Some(why) = now.unmeasured.as_ref().filter(|_| needs.measured) {
        return Err(Error::new(format!("it could not be measured: {why}")));
    }
    let bytes = document.bytes.as_deref();
    let sum = bytes.map(|bytes| digest(Algorithm::Sha256, bytes));
    if needs.digests.iter().any(|group| sum.as_ref().is_none_or(|sum| !group.contains(sum))) {
        return Err(Error::new("its SHA-256 is not the one of the trust policy"));
    }
    if needs.bound {
        compare_with_host(bytes, now)?;
    }
    if document.kind == DocumentKind::UserData {
        let beside = |bytes| instance.signature.as_ref().map(|signature| Envelope::beside(bytes, signature));
        match bytes.and_then(|bytes| Envelope::parse(bytes).or_else(|| beside(bytes))) {
            Some(envelope) => {
                *opened = Some(verify(policy, envelope?, bytes.unwrap_or_default().len(), instance, now)?)
            }
            None if needs.signed => {
                return Err(Error::new(if bytes.is_some() {
                    "it is not signed"
                } else {
                    "there is none, and a signature is needed"
                }));
            }
            None => {}
        }
        let head = opened.as_ref().map_or(0, |opened| opened.head);
        return is_encrypted(&needs, bytes.and_then(|bytes| bytes.get(head..)));
    }
    vendor_documents(document.name, instance).iter().try_for_each(|own| is_encrypted(&needs, own.bytes()))?;
    let pinned = opened.iter().flat_map(|opened| &opened.pinned).find(|(name, _)| name == document.name);
    match pinned {
        Some((_, pin)) if sum.as_ref() != Some(pin) => {
            Err(Error::new("its SHA-256 is not the one of the user-data's statement"))
        }
        None if needs.signed && bytes.is_some() => {
            Err(Error::new("the user-data's statement does not have its SHA-256"))
        }
        _ => Ok(()),
    }
}

/// Checks that a document is encrypted, if it must be. Under no key it is not: anyone reads it.
fn is_encrypted(needs: &Needs, bytes: Option<&[u8]>) -> Result<()> {
    let is_it = |bytes| sealed::encryption(bytes).is_some_and(|how| how != sealed::Encryption::Null);
    if needs.encrypted && !bytes.is_none_or(is_it) { Err(Error::new("it is not encrypted")) } else { Ok(()) }
}

/// The documents that vendor-data has: in JSON they are values, of which the bytes as they came say nothing. Other documents have none.
fn vendor_documents<'a>(name: &str, instance: &'a Instance) -> &'a [Value] {
    let data = match name {
        "vendor-data" => &instance.vendor_data,
        "vendor-data2" => &instance.vendor_data2,
        _ => &Value::Null,
    };
    let used = vendor_document(data);
    used.as_list().unwrap_or(std::slice::from_ref(used))
}

/// Compares user-data with what the host bound the launch to.
fn compare_with_host(bytes: Option<&[u8]>, now: &Circumstances) -> Result<()> {
    match &now.host_data {
        Some(Ok(value)) if bytes.is_some_and(|bytes| is_bound(value, bytes)) => Ok(()),
        Some(Err(e)) => Err(Error::new(format!("it cannot be compared with the host's data: {e}"))),
        _ => Err(Error::new("its digest is not in the host's data (HOSTDATA or MRCONFIGID)")),
    }
}

fn verify(
    policy: &Policy,
    envelope: Envelope,
    length: usize,
    instance: &Instance,
    now: &Circumstances,
) -> Result<Opened> {
    let mut reasons = Vec::new();
    let signers = envelope.signatures.iter().map(|(form, blob)| signer(policy, *form, blob, envelope.signed, now));
    let signer = signers.filter_map(|signer| signer.map_err(|e| reasons.push(e.to_string())).ok()).next();
    let signer = signer.ok_or_else(|| Error::new(reasons.join("; ")))?;
    let (statement, payload) = Statement::split(envelope.signed)?;
    let serial = compare(policy, &statement, instance, now)?;
    let pins = ["metadata", "network-config", "vendor-data", "vendor-data2"];
    let pins = pins.into_iter().filter_map(|name| statement.get(name).map(|value| (name, value)));
    let pinned = pins.map(|(name, value)| {
        let sum = digest_of(value).ok_or_else(|| Error::new(format!("the statement's {name} is not sha256:DIGEST")))?;
        Ok((name.to_owned(), sum))
    });
    Ok(Opened { head: length - payload.len(), signer, serial, pinned: pinned.collect::<Result<_>>()? })
}

/// The namespace of signatures of user-data.
pub const NAMESPACE: &str = "prepivot-user-data";

/// Whose key has made a signature.
fn signer(policy: &Policy, form: Form, blob: &[u8], signed: &[u8], now: &Circumstances) -> Result<String> {
    match form {
        Form::Ssh => {
            let signature = Signature::parse(blob).ok_or_else(|| Error::new("the SSH signature has another form"))?;
            let mut known = policy.keys.iter().filter(|key| key.blob == signature.key).peekable();
            let print = fingerprint(signature.key);
            if policy.revoked.contains(&print) {
                return Err(Error::new(format!("it is signed by a key that is revoked: {print}")));
            }
            if known.peek().is_none() {
                return Err(Error::new(format!("it is signed by a key that is not trusted: {print}")));
            }
            // One of the cache was in time when it was read.
            let time = now.is_fresh.then_some(now.now);
            let mut reasons = Vec::new();
            let key = known.find(|key| {
                key.refuses(NAMESPACE, time).is_none_or(|why| {
                    reasons.push(why);
                    false
                })
            });
            let key =
                key.ok_or_else(|| Error::new(format!("its key {print} is not accepted: {}", reasons.join("; "))))?;
            if !signature.verifies(NAMESPACE, signed) {
                return Err(Error::new(format!(
                    "the signature is not that of these bytes in the namespace {NAMESPACE}"
                )));
            }
            Ok(key.title())
        }
        Form::Cms => {
            let all = cms::signers(blob, signed, &policy.certificates).unwrap_or_default();
            // A key is as lost in one certificate as in another.
            let revoked = |own: &&Certificate| {
                let of_key = policy.certificates.iter().filter(|other| other.has_key_of(own));
                of_key.map(|other| fingerprint(&other.der)).find(|print| policy.revoked.contains(print))
            };
            let Some(found) = all.iter().find(|own| revoked(own).is_none()) else {
                return Err(Error::new(match all.iter().find_map(revoked) {
                    Some(print) => format!("it is signed by the key of a certificate that is revoked: {print}"),
                    None => "the CMS signature has another form, or is not that of these bytes by a certificate of the trust policy".to_owned(),
                }));
            };
            let print = fingerprint(&found.der);
            // It has no namespace, by which a signature made for another use would be known.
            if !signed.starts_with(envelope::STATEMENT.as_bytes()) || Statement::split(signed)?.0.get("kind").is_none()
            {
                return Err(Error::new("a CMS signature needs a statement with kind: user-data"));
            }
            Ok(format!("{} ({print})", found.name))
        }
    }
}

/// Compares a statement with this machine, and returns its serial number.
fn compare(policy: &Policy, statement: &Statement, instance: &Instance, now: &Circumstances) -> Result<Option<u64>> {
    let missing = policy.statement.iter().find(|key| statement.get(key).is_none());
    if let Some(key) = missing {
        return Err(Error::new(format!("its statement has no {key}, which the trust policy wants")));
    }
    let other = |key: &str, value: &str| Err(Error::new(format!("it is for another {key}: {}", quoted(value))));
    match statement.get("kind") {
        Some("user-data") | None => {}
        Some(value) => return other("kind", value),
    }
    match statement.get("instance-id") {
        Some(id) if id != instance.instance_id => return other("instance-id", id),
        _ => {}
    }
    match statement.get("uuid") {
        Some(uuid) if now.uuid.as_ref().is_none_or(|own| !own.eq_ignore_ascii_case(uuid)) => {
            return other("uuid", uuid);
        }
        _ => {}
    }
    match statement.get("mac") {
        Some(mac) if !now.macs.iter().any(|own| own.eq_ignore_ascii_case(mac)) => return other("mac", mac),
        _ => {}
    }
    if let Some(until) = statement.get("expires") {
        let end = clock::parse_iso8601(until);
        let end = end
            .ok_or_else(|| Error::new(format!("expires is not a time like 2030-01-31T00:00:00Z: {}", quoted(until))))?;
        if now.is_fresh && now.now >= end {
            return Err(Error::new(format!("it has expired: {until}")));
        }
    }
    let is_number = |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let serial = match statement.get("serial") {
        Some(text) => {
            let number = Some(text).filter(is_number).and_then(|text| text.parse::<u64>().ok());
            Some(number.ok_or_else(|| Error::new(format!("serial is not a number: {}", quoted(text))))?)
        }
        None => None,
    };
    let last =
        now.last_serial.filter(|_| now.is_fresh).into_iter().chain(Some(policy.minimum_serial).filter(|n| *n > 0));
    match last.max() {
        Some(least) if serial.is_none_or(|serial| serial < least) => {
            let own = serial.map_or("no serial number".to_owned(), |serial| format!("the serial number {serial}"));
            Err(Error::new(format!("it is an older one: it has {own}, and {least} is the lowest that is accepted")))
        }
        _ => Ok(serial),
    }
}

/// Splits the envelope from the user-data.
fn open(instance: &mut Instance, head: usize) {
    let [_, _, user_data, ..] = documents(instance);
    let raw = user_data.bytes.map(|bytes| bytes.into_owned()).unwrap_or_default();
    if let Some((head, payload)) = raw.split_at_checked(head).filter(|(head, _)| !head.is_empty()) {
        let (head, payload) = (head.to_vec(), payload.to_vec());
        instance.envelope = Some(head.into());
        instance.user_data = Some(payload.into());
    }
}

/// Removes a document.
fn remove(instance: &mut Instance, name: &str) {
    let mut raw = instance.raw.take();
    let parts = raw.iter_mut().flat_map(|raw| &mut raw.0).zip(Raw::PARTS);
    for (bytes, _) in parts.filter(|(_, (_, own, _))| *own == name) {
        *bytes = None;
    }
    match name {
        "user-data" => (instance.user_data, instance.envelope, instance.signature) = (None, None, None),
        "vendor-data" => instance.vendor_data = Value::Null,
        "vendor-data2" => instance.vendor_data2 = Value::Null,
        "network-config" => instance.network = None,
        _ => {
            let whole = std::mem::take(instance);
            let id: Map = [("instance-id", Value::from(whole.instance_id.as_str()))].into_iter().collect();
            *instance = Instance {
                metadata: Value::Map(id),
                source: whole.source,
                class: whole.class,
                platform: whole.platform,
                cloud_name: whole.cloud_name,
                subplatform: whole.subplatform,
                described: whole.described,
                instance_id: whole.instance_id,
                from_network: whole.from_network,
                machine_uuid: whole.machine_uuid,
                dsmode: whole.dsmode,
                user_data: whole.user_data,
                envelope: whole.envelope,
                signature: whole.signature,
                vendor_data: whole.vendor_data,
                vendor_data2: whole.vendor_data2,
                network: whole.network,
                problems: whole.problems,
                ..Instance::default()
            };
        }
    }
    instance.raw = raw;
}
