//! What is sealed to the endorsement key of a machine's TPM, which is known before the machine has ever booted, and perhaps to the
//! values that registers will have. It is text: a first line, fields, an empty line, and in base64 what is encrypted under a key
//! that the TPM imports.
//!
//! ```text
//! #prepivot-sealed
//! name: app.key
//! pcrs: sha256:12
//! key: PUBLIC@@NULL@@PRIVATE@@NULL@@SEED
//!
//! ENCRYPTED
//! ```
//!
//! The key is an object for TPM2_Import (TCG, Trusted Platform Module Library, part 1, "Protected Storage"; part 3, TPM2_Import) in
//! the form of go-tpm and govmomi. What is before it and the key itself are authenticated by what is encrypted.

use super::cipher::{self, KEY_LEN, NONCE_LEN};
use super::tpm::{NO_SESSIONS, PASSWORD, SESSIONS, TpmTransport, bank_named, sized};
use super::unseal::{Handle, LOAD, READ_PUBLIC, Sequence, by, field, parameter};
use crate::base::base64;
use crate::base::error::{Context, Error, Result};
use crate::base::text::quoted;

/// The first line.
pub const FIRST: &str = "#prepivot-sealed\n";
/// Between the parts of a key.
pub(super) const SEPARATOR: &str = "@@NULL@@";
/// The most bytes, and those of the fields.
pub const MAX: usize = 24 << 20;
pub(super) const MAX_HEAD: usize = 8 << 10;
/// A public area begins so: data that is sealed, under SHA-256, for a policy alone and not in the lockout; the length of the policy.
pub(super) const PUBLIC: [u8; 10] = [0, 8, 0, 0xb, 0, 0, 4, 0, 0, 32];
/// Bytes of a policy.
const POLICY_LEN: usize = 32;
/// The nonce: no key encrypts twice.
pub(super) const NONCE: [u8; NONCE_LEN] = [0; NONCE_LEN];

const POLICY_SECRET: u32 = 0x151;
const IMPORT: u32 = 0x156;
/// TPM_RH_ENDORSEMENT.
const ENDORSEMENT: Handle = [0x40, 0, 0, 0xb];
/// The policy of an endorsement key: whoever may use the hierarchy.
const EK_POLICY: &[u8; POLICY_LEN] = b"\x83\x71\x97\x67\x44\x84\xb3\xf8\x1a\x90\xcc\x8d\x46\xa5\xd7\x24\
                                       \xfd\x52\xd7\x6e\x06\x52\x0b\x64\xf2\xa1\xda\x1b\x33\x14\x69\xaa";

/// A kind of endorsement key (TCG EK Credential Profile, templates L-1 and L-2).
pub(super) struct Kind {
    /// The bytes of a seed that is encrypted to it.
    seed: usize,
    algorithm: u8,
    /// What follows AES-128-CFB in the template: the scheme, and the length or the curve.
    details: &'static [u8],
    /// The lengths of the parts of the public key.
    pub(super) unique: &'static [u16],
    /// Where it is if it stays in the TPM.
    persistent: Handle,
}

pub(super) const KINDS: [Kind; 2] = [
    // RSA of 2048 bits.
    Kind {
        seed: 256,
        algorithm: 1,
        details: &[0, 0x10, 8, 0, 0, 0, 0, 0],
        unique: &[256],
        persistent: [0x81, 1, 0, 1],
    },
    // P-256: a point, of two numbers with their lengths.
    Kind {
        seed: 68,
        algorithm: 0x23,
        details: &[0, 0x10, 0, 3, 0, 0x10],
        unique: &[32, 32],
        persistent: [0x81, 1, 0, 2],
    },
];

impl Kind {
    /// The template, up to the public key.
    pub(super) fn template(&self) -> Vec<u8> {
        // SHA-256; fixed to TPM and parent, made by the TPM, by policy, restricted, for decryption; AES-128-CFB.
        let start = [0, self.algorithm, 0, 0xb, 0, 3, 0, 0xb2, 0, 32];
        [&start[..], EK_POLICY, &[0, 6, 0, 0x80, 0, 0x43], self.details].concat()
    }

    /// The key: that which stays in the TPM, if it is made by the template, or one that is made.
    pub(super) fn key(&self, tpm: &mut Sequence) -> Result<Handle> {
        let mut template = self.template();
        let found = tpm.send(NO_SESSIONS, READ_PUBLIC, &self.persistent).unwrap_or_default();
        if sized(&found).is_some_and(|(public, _)| public.starts_with(&template)) {
            return Ok(self.persistent);
        }
        for length in self.unique {
            template.extend(field(&vec![0; usize::from(*length)]));
        }
        tpm.primary(ENDORSEMENT, &template)
    }
}

/// Registers in a bank; register n is bit n.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Registers {
    bank: u16,
    bits: u64,
}

impl Registers {
    /// Those of `sha256:11,12`.
    fn parse(text: &str) -> Option<Registers> {
        let (bank, numbers) = text.split_once(':')?;
        let bits = numbers.split(',').try_fold(0, |bits, number| {
            let bit = number.parse::<u32>().ok().filter(|number| *number < 24)?;
            Some(bits | 1 << bit)
        });
        Some(Registers { bank: bank_named(bank)?, bits: bits? })
    }
}

/// Something sealed that was taken apart, and not opened.
#[derive(Debug, PartialEq, Eq)]
pub struct Endorsed<'a> {
    name: &'a str,
    pcrs: &'a str,
    registers: Option<Registers>,
    /// The field with the key, by which an answer of the TPM is known again.
    pub key: &'a str,
    /// Public, private and seed.
    parts: [Vec<u8>; 3],
    head: &'a [u8],
    body: &'a [u8],
}

/// Whether bytes begin as something that is sealed.
pub fn is_sealed(bytes: &[u8]) -> bool {
    bytes.starts_with(FIRST.as_bytes())
}

impl<'a> Endorsed<'a> {
    /// Takes it apart.
    ///
    /// # Errors
    /// It has another form.
    pub fn parse(bytes: &'a [u8]) -> Result<Endorsed<'a>> {
        parse(bytes).ok_or_else(|| {
            Error::new("what is sealed has another form: after its first line come fields, an empty line and base64")
        })
    }

    /// The key, which the TPM imports under its endorsement key.
    ///
    /// # Errors
    /// The TPM is another one, its registers have other values, or it refuses a command.
    pub fn unseal(&self, tpm: &mut dyn TpmTransport) -> Result<Vec<u8>> {
        let [public, private, seed] = &self.parts;
        let kind = KINDS.iter().find(|kind| kind.seed == seed.len());
        let kind = kind.ok_or_else(|| {
            Error::new("it is sealed to an endorsement key that is neither RSA of 2048 bits nor P-256")
        })?;
        let policy = public.strip_prefix(&PUBLIC).and_then(|rest| rest.get(..POLICY_LEN));
        let policy =
            policy.ok_or_else(|| Error::new("its key is an object of another kind than what is sealed here"))?;
        let mut tpm = Sequence::new(tpm);
        let parent = kind.key(&mut tpm).context(|| "failed to get the TPM's endorsement key")?;
        let imported = by(authorized(&mut tpm)?);
        // No encryption of its own between the one of the seed and the object.
        let import = [&parent[..], &imported, &[0, 0], &field(public), &field(private), &field(seed), &[0, 0x10]];
        let imported = tpm.send(SESSIONS, IMPORT, &import.concat());
        let imported = imported.context(|| "it is sealed to another machine's TPM, or was changed")?;
        let loaded = by(authorized(&mut tpm)?);
        let load = [&parent[..], &loaded, &field(parameter(&imported)?), &field(public)].concat();
        let object = tpm.make(SESSIONS, LOAD, &load).context(|| "failed to load what the TPM imported")?;
        let session = tpm.policy()?;
        if let Some(registers) = &self.registers {
            tpm.add_registers(session, registers.bank, registers.bits)?;
        }
        if tpm.digest(session)? != policy {
            return Err(Error::new(match self.pcrs {
                "" => "it is sealed to a policy that is not known here".to_owned(),
                pcrs => format!(
                    "the registers {pcrs} do not have the values that it is sealed to: other documents were measured"
                ),
            }));
        }
        tpm.unseal(object, session)
    }

    /// Decrypts it under its key. `name` is what it is used as, which an absent name in it fits.
    ///
    /// # Errors
    /// The key is another one; it was changed, or is for another name.
    pub fn open(&self, key: &[u8], name: &str) -> Result<Vec<u8>> {
        if !self.name.is_empty() && self.name != name {
            let (own, name) = (quoted(self.name), quoted(name));
            return Err(Error::new(format!("it is sealed for the name {own}, and is used as {name}")));
        }
        let sealed = base64::decode_lines(self.body).filter(|_| key.len() == KEY_LEN);
        let plain = sealed.and_then(|sealed| cipher::open(key, &NONCE, self.head, &sealed));
        plain.ok_or_else(|| Error::new("what is sealed was changed, or is damaged"))
    }
}

fn parse(bytes: &[u8]) -> Option<Endorsed<'_>> {
    let rest = bytes.strip_prefix(FIRST.as_bytes()).filter(|_| bytes.len() <= MAX)?;
    let end = rest.get(..rest.len().min(MAX_HEAD))?.windows(2).position(|pair| pair == b"\n\n")?;
    let (head, body) = bytes.split_at_checked(FIRST.len() + end + 2)?;
    let [mut name, mut pcrs, mut key] = [""; 3];
    for line in std::str::from_utf8(rest.get(..end)?).ok()?.split('\n') {
        let (field, value) = line.split_once(": ")?;
        let known = match field {
            "name" => &mut name,
            "pcrs" => &mut pcrs,
            "key" => &mut key,
            _ => return None,
        };
        if value.is_empty() || !known.is_empty() {
            return None;
        }
        *known = value;
    }
    let registers = if pcrs.is_empty() { None } else { Some(Registers::parse(pcrs)?) };
    let parts: Option<Vec<Vec<u8>>> = key.split(SEPARATOR).map(|part| base64::decode(part.as_bytes())).collect();
    Some(Endorsed { name, pcrs, registers, key, parts: parts?.try_into().ok()?, head, body })
}

/// A session that may use the endorsement key: its hierarchy has no password.
fn authorized(tpm: &mut Sequence) -> Result<Handle> {
    let session = tpm.policy()?;
    // No nonce, no parameters, no reference, and no end.
    let secret = [&ENDORSEMENT[..], &session, &PASSWORD, &[0; 10]].concat();
    tpm.send(SESSIONS, POLICY_SECRET, &secret).context(|| "the TPM's endorsement key cannot be used")?;
    Ok(session)
}
