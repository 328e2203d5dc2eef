//! Unsealing by a TPM 2.0 (TCG, Trusted Platform Module Library, parts 1 to 3): the commands, and what systemd seals.
//!
//! No session is encrypted: the secret crosses the bus of a chip as it is.

use super::cms::{self, Form};
use super::tpm::{
    CREATE_PRIMARY, FLUSH, NO_SESSIONS, PASSWORD, SESSIONS, TpmTransport, bank_name, selection, send, sized,
};
use crate::base::base64;
use crate::base::digest::{Algorithm, digest};
use crate::base::error::{Context, Error, Result};
use crate::base::{hex, random};
use crate::document::Value;

pub(super) const LOAD: u32 = 0x157;
const START_SESSION: u32 = 0x176;
const POLICY_PCR: u32 = 0x17f;
const POLICY_GET_DIGEST: u32 = 0x189;
const UNSEAL: u32 = 0x15e;
pub(super) const READ_PUBLIC: u32 = 0x173;
const LOAD_EXTERNAL: u32 = 0x167;
const VERIFY_SIGNATURE: u32 = 0x177;
const POLICY_AUTHORIZE: u32 = 0x16a;
/// TPM_RH_OWNER and TPM_RH_NULL.
const OWNER: Handle = [0x40, 0, 0, 1];
const NULL: Handle = [0x40, 0, 0, 7];
/// The algorithms of primary keys.
const RSA: u16 = 0x1;
const ECC: u16 = 0x23;
/// Bytes of a session's nonce.
const SESSION_NONCE: usize = 32;
/// RSA's usual exponent.
pub(super) const EXPONENT: u32 = 65537;
/// The registers that a selection can have.
const SELECTABLE: u64 = 0xff_ffff;

/// What the TPM knows an object, a session or a hierarchy by.
pub(super) type Handle = [u8; 4];

/// A sequence of commands. The objects and sessions that it has made leave the TPM at its end: the kernel's resource manager does it
/// when the device is closed, and without that they would stay.
pub(super) struct Sequence<'a> {
    tpm: &'a mut dyn TpmTransport,
    made: Vec<Handle>,
}

impl Drop for Sequence<'_> {
    fn drop(&mut self) {
        // A session has left with the command that it was for.
        for handle in std::mem::take(&mut self.made) {
            let _ = self.send(NO_SESSIONS, FLUSH, &handle);
        }
    }
}

impl<'a> Sequence<'a> {
    /// An empty one.
    pub(super) fn new(tpm: &'a mut dyn TpmTransport) -> Self {
        Sequence { tpm, made: Vec::new() }
    }

    /// Sends a command, and returns what follows the answer's header.
    ///
    /// # Errors
    /// The TPM refuses it.
    pub(super) fn send(&mut self, tag: u16, code: u32, body: &[u8]) -> Result<Vec<u8>> {
        send(self.tpm, tag, code, body)
    }

    /// Sends a command that makes an object or a session, and returns its handle.
    ///
    /// # Errors
    /// The TPM refuses it.
    pub(super) fn make(&mut self, tag: u16, code: u32, body: &[u8]) -> Result<Handle> {
        let handle = *self.send(tag, code, body)?.first_chunk::<4>().ok_or_else(form)?;
        self.made.push(handle);
        Ok(handle)
    }

    /// Makes the primary key of a hierarchy that a public area describes.
    ///
    /// # Errors
    /// The TPM refuses it.
    pub(super) fn primary(&mut self, hierarchy: Handle, public: &[u8]) -> Result<Handle> {
        // An empty secret before it; after it no data from outside, and no registers.
        let body = [&hierarchy[..], &PASSWORD, &[0, 4, 0, 0, 0, 0], &field(public), &[0; 6]].concat();
        self.make(SESSIONS, CREATE_PRIMARY, &body).context(|| "failed to make the primary key")
    }

    /// Begins a session whose policy is empty.
    ///
    /// # Errors
    /// The TPM refuses it.
    pub(super) fn policy(&mut self) -> Result<Handle> {
        let mut nonce = [0; SESSION_NONCE];
        random::fill(&mut nonce, "a nonce")?;
        // No salt, a policy, no encryption of parameters, SHA-256.
        let session = [&NULL[..], &NULL, &[0, 32], &nonce, &[0, 0, 1, 0, 0x10, 0, 0xb]].concat();
        self.make(NO_SESSIONS, START_SESSION, &session)
    }

    /// Adds the values of registers in a bank to a session's policy.
    ///
    /// # Errors
    /// The TPM refuses it, or has no such registers.
    pub(super) fn add_registers(&mut self, session: Handle, bank: u16, registers: u64) -> Result<()> {
        if registers & !SELECTABLE != 0 {
            return Err(Error::new("it is sealed to registers that no TPM has"));
        }
        if registers != 0 {
            let selection = selection(bank, u32::try_from(registers).unwrap_or(0));
            self.send(NO_SESSIONS, POLICY_PCR, &[&session[..], &[0, 0], &selection].concat())?;
        }
        Ok(())
    }

    /// The digest of a session's policy.
    ///
    /// # Errors
    /// The TPM refuses it.
    pub(super) fn digest(&mut self, session: Handle) -> Result<Vec<u8>> {
        let digest = self.send(NO_SESSIONS, POLICY_GET_DIGEST, &session)?;
        Ok(sized(&digest).ok_or_else(form)?.0.to_vec())
    }

    /// The secret of a loaded object, by a session whose policy it has.
    ///
    /// # Errors
    /// The TPM refuses it.
    pub(super) fn unseal(&mut self, object: Handle, session: Handle) -> Result<Vec<u8>> {
        let secret = self.send(SESSIONS, UNSEAL, &[&object[..], &by(session)].concat());
        let secret = secret.context(|| "the TPM does not unseal it")?;
        Ok(parameter(&secret)?.to_vec())
    }
}

/// The error of an answer that cannot be read.
fn form() -> Error {
    Error::new("the TPM's answer has another form")
}

/// The first parameter of an answer to a command with sessions: before it is the length of all.
///
/// # Errors
/// The answer has another form.
pub(super) fn parameter(answer: &[u8]) -> Result<&[u8]> {
    Ok(answer.get(4..).and_then(sized).ok_or_else(form)?.0)
}

/// Authorization by a session, with its length before it.
pub(super) fn by(session: Handle) -> Vec<u8> {
    [&[0, 0, 0, 9], &session[..], &[0; 5]].concat()
}

/// Bytes with their length before them.
pub(super) fn field(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).unwrap_or(0).to_be_bytes(), bytes].concat()
}

/// What unsealing needs of a credential.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct Sealed<'a> {
    /// The registers that must be as they were; register n is bit n.
    pub registers: u64,
    pub bank: u16,
    /// The algorithm of the primary key.
    pub primary: u16,
    /// The sealed object: its private and its public part.
    pub blob: &'a [u8],
    pub policy: &'a [u8],
    /// Registers whose values a key signs, besides.
    pub signed: Option<Signed<'a>>,
    /// The primary key, if it is the storage root key that stays in the TPM: its handle, and its name with a length.
    pub root_key: Option<&'a [u8]>,
}

/// Registers whose values a key signs: those of each kernel image, so that what is sealed outlives an update.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct Signed<'a> {
    pub registers: u64,
    /// The public key in PEM.
    pub key: &'a [u8],
}

/// The most signatures of the same values, which may be of different keys.
const MAX_SIGNATURES: usize = 8;

/// The secret that systemd has sealed, by its primary key (systemd, src/shared/tpm2-util.c). `signatures` is the content of
/// tpm2-pcr-signature.json, if there is one.
///
/// # Errors
/// The TPM is another one, its registers have other values, or it refuses a command.
pub fn unseal(tpm: &mut dyn TpmTransport, sealed: &Sealed, signatures: &Value) -> Result<Vec<u8>> {
    let mut tpm = Sequence::new(tpm);
    let primary = match sealed.root_key {
        Some(key) => root_key(&mut tpm, key)?,
        None => tpm.primary(OWNER, &template(sealed.primary)?)?,
    };
    let object = tpm.make(SESSIONS, LOAD, &[&primary, &PASSWORD[..], sealed.blob].concat());
    let object = object.context(|| "the TPM does not load what is sealed: it is another TPM's")?;
    // The policy names the public area of its key, whose exponent systemd before 255 wrote out (systemd issue 30546).
    for exponent in [0, EXPONENT] {
        let session = tpm.policy()?;
        if let Some(signed) = &sealed.signed {
            add_signed(&mut tpm, session, exponent, sealed.bank, signed, signatures)?;
        }
        tpm.add_registers(session, sealed.bank, sealed.registers)?;
        if tpm.digest(session)? == sealed.policy {
            return tpm.unseal(object, session);
        }
        if sealed.signed.is_none() {
            break;
        }
    }
    Err(Error::new("it is sealed to other values of the TPM's registers, or to another policy"))
}

/// The handle of the storage root key, if it is that of this TPM (tpm2-tss, the form of `Esys_TR_Serialize`).
fn root_key(tpm: &mut Sequence, key: &[u8]) -> Result<Handle> {
    let (handle, rest) =
        key.split_first_chunk::<4>().ok_or_else(|| Error::new("its storage root key has another form"))?;
    let found = tpm.send(NO_SESSIONS, READ_PUBLIC, handle);
    let found = found.context(|| "the TPM has no storage root key where it is sealed to one")?;
    let name = sized(&found).and_then(|(_, rest)| sized(rest)).ok_or_else(form)?.0;
    if sized(rest).is_none_or(|(own, _)| own != name) {
        return Err(Error::new("it is sealed to the storage root key of another TPM"));
    }
    Ok(*handle)
}

/// Adds to a session's policy that a key has signed the values of registers.
fn add_signed(
    tpm: &mut Sequence,
    session: Handle,
    exponent: u32,
    bank: u16,
    signed: &Signed,
    signatures: &Value,
) -> Result<()> {
    tpm.add_registers(session, bank, signed.registers)?;
    let policy = tpm.digest(session)?;
    let key = [&field(&[]), &field(&external(signed.key, exponent)?)[..], &OWNER].concat();
    let answer =
        tpm.send(NO_SESSIONS, LOAD_EXTERNAL, &key).context(|| "the TPM does not load the key of its policy")?;
    let (handle, name) = answer.split_first_chunk::<4>().ok_or_else(form)?;
    tpm.made.push(*handle);
    let message = field(&digest(Algorithm::Sha256, &policy));
    let ticket = of_policy(signatures, bank, &policy).find_map(|signature| {
        // RSASSA with SHA-256.
        let body = [&handle[..], &message, &[0, 0x14, 0, 0xb], &field(&signature)].concat();
        tpm.send(NO_SESSIONS, VERIFY_SIGNATURE, &body).ok()
    });
    // A TPM without the kernel's resource manager has room for three objects.
    tpm.made.retain(|made| made != handle);
    tpm.send(NO_SESSIONS, FLUSH, handle)?;
    let ticket = ticket.ok_or_else(|| {
        Error::new("its policy is signed, and tpm2-pcr-signature.json has no signature by its key for the present values of the registers")
    })?;
    let body = [&session[..], &field(&policy), &field(&[]), name, &ticket].concat();
    tpm.send(NO_SESSIONS, POLICY_AUTHORIZE, &body).map(drop).context(|| "the TPM does not accept the signed policy")
}

/// The signatures of a policy (systemd, systemd-measure(1), `sign`).
fn of_policy<'a>(signatures: &'a Value, bank: u16, policy: &[u8]) -> impl Iterator<Item = Vec<u8>> + 'a {
    let policy = hex::encode(policy);
    let entries = signatures.get(bank_name(bank)).and_then(Value::as_list).unwrap_or_default();
    let text = |entry: &'a Value, key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
    let entries = entries.iter().filter(move |entry| text(entry, "pol").eq_ignore_ascii_case(&policy));
    entries.filter_map(move |entry| base64::decode(text(entry, "sig").as_bytes())).take(MAX_SIGNATURES)
}

/// The public area of a key outside of the TPM, as systemd makes it of one in PEM: with an exponent of 0, which is the usual one, or with
/// the usual one.
fn external(key: &[u8], written: u32) -> Result<Vec<u8>> {
    let der = cms::unarmored(key).unwrap_or_default();
    let numbers = cms::public_key(&der).filter(|(form, _)| *form == Form::Rsa).and_then(|(_, key)| cms::of_rsa(key));
    let (modulus, exponent) = numbers.ok_or_else(|| Error::new("the key of its policy is not one of RSA"))?;
    if exponent != &EXPONENT.to_be_bytes()[1..] {
        return Err(Error::new("the key of its policy has another exponent than 65537"));
    }
    let bits = u16::try_from(modulus.len() * 8).unwrap_or(0).to_be_bytes();
    // RSA, SHA-256; with a password, for decryption and signatures; no policy, cipher or scheme.
    let start = [0, 1, 0, 0xb, 0, 6, 0, 0x40, 0, 0, 0, 0x10, 0, 0x10];
    Ok([&start[..], &bits, &written.to_be_bytes(), &field(modulus)].concat())
}

/// The public area of the primary key of systemd's credentials: a storage key of the owner without a password.
fn template(algorithm: u16) -> Result<Vec<u8>> {
    let own: &[u8] = match algorithm {
        ECC => &[0, 0x10, 0, 3, 0, 0x10, 0, 0, 0, 0],
        RSA => &[0, 0x10, 8, 0, 0, 0, 0, 0, 0, 0],
        other => {
            return Err(Error::new(format!("its primary key has the algorithm {other:#x}, which is unknown here")));
        }
    };
    // SHA-256; fixed to TPM and parent, made by the TPM, with a password, not in the lockout, restricted, for decryption; AES-128-CFB.
    let common = [0, 0xb, 0, 3, 0, 0x72, 0, 0, 0, 6, 0, 0x80, 0, 0x43];
    Ok([&algorithm.to_be_bytes()[..], &common, own].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::tpm::tests::{DONE, Recorded};

    /// Without signatures.
    fn unseal(tpm: &mut dyn TpmTransport, sealed: &Sealed) -> Result<Vec<u8>> {
        super::unseal(tpm, sealed, &Value::Null)
    }

    /// Answers of any form to all commands of unsealing.
    #[test]
    fn wrong_answers_to_unsealing_are_errors() {
        let with_handle = "8002 00000014 00000000 80000000 00000001 0000";
        let (session, policy) = ("8001 0000000e 00000000 03000000", "8001 0000000e 00000000 0002 abcd");
        let secret = "8002 00000012 00000000 00000004 0002 7331";
        let good = [with_handle, with_handle, session, DONE, policy, secret, DONE, DONE, DONE];
        let sealed = Sealed {
            registers: 1 << 12,
            bank: 0xb,
            primary: ECC,
            blob: b"blob",
            policy: &[0xab, 0xcd],
            signed: None,
            root_key: None,
        };
        let mut tpm = Recorded::of(&good);
        assert_eq!(unseal(&mut tpm, &sealed), Ok(b"s1".to_vec()));
        let create = "8002 00000043 00000131 40000001 00000009 40000009 0000 00 0000 0004 0000 0000 001a \
                      0023 000b 00030072 0000 0006 0080 0043 0010 0003 0010 0000 0000 0000 00000000";
        let extended = "8001 0000001a 0000017f 03000000 0000 00000001 000b 03 001000";
        assert_eq!([&tpm.sent[0], &tpm.sent[3]], [&create.replace(' ', ""), &extended.replace(' ', "")]);
        assert_eq!(tpm.sent.len(), 9);
        for (at, wrong) in
            [(0, ""), (1, "8001 0000000a 00000100"), (4, "8001 0000000e 00000000 0002 abce"), (5, session)]
        {
            let mut answers = good;
            answers[at] = wrong;
            assert!(unseal(&mut Recorded::of(&answers), &sealed).is_err(), "{at}");
        }
        assert!(unseal(&mut Recorded::of(&good), &Sealed { primary: 9, ..sealed }).is_err());
    }
}
