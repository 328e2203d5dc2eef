//! A TPM's quote: signed by a key of its own, that its registers have these values, for a nonce of whoever asks (TCG, Trusted
//! Platform Module Library, part 3, TPM2_CreatePrimary, TPM2_Quote).

use super::measure::open_tpm;
use super::tpm::{
    Bank, CREATE_PRIMARY, FLUSH, NO_SESSIONS, PASSWORD, SESSIONS, TpmTransport, banks, selection, send, sized,
};
use crate::base::digest::Algorithm;
use crate::base::error::{Error, Result};
use std::path::Path;

/// The longest nonce that every TPM takes, in bytes.
pub const MAX_NONCE: usize = 32;
/// The registers that are quoted: of the firmware, the boot loader, the kernel with its initramfs, and of documents.
pub const PCRS: [u8; 15] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15];

const QUOTE: u32 = 0x158;
/// TPM_RH_ENDORSEMENT: a key of this hierarchy is the same until the TPM has another owner.
const ENDORSEMENT: u32 = 0x4000_000b;
/// A restricted signing key, which signs nothing but what the TPM itself says: ECDSA with SHA-256 on P-256. No authorization, no data;
/// the public area (type, name's hash, attributes, policy, symmetric algorithm, scheme, curve, KDF, point); nothing about its
/// creation.
const TEMPLATE: &[u8] = &[
    0, 4, 0, 0, 0, 0, // inSensitive
    0, 24, 0, 0x23, 0, 0xb, 0, 5, 0, 0x72, 0, 0, 0, 0x10, 0, 0x18, 0, 0xb, 0, 3, 0, 0x10, 0, 0, 0, 0, // inPublic
    0, 0, 0, 0, 0, 0, // outsideInfo, creationPCR
];

/// A quote, in the TPM's own encoding.
#[derive(Debug, PartialEq, Eq)]
pub struct Quote {
    /// TPMS_ATTEST: what is signed.
    pub attested: Vec<u8>,
    /// TPMT_SIGNATURE.
    pub signature: Vec<u8>,
    /// TPM2B_PUBLIC: the key.
    pub key: Vec<u8>,
}

/// Has this machine's TPM quote [`PCRS`] for a nonce.
///
/// # Errors
/// There is no TPM, or it refuses.
pub fn of_machine(base: &Path, nonce: &[u8]) -> Result<Quote> {
    let mut tpm = open_tpm(base)?.ok_or_else(|| Error::new("this machine has no TPM"))?;
    quote(&mut tpm, nonce)
}

/// Has a TPM quote [`PCRS`], in its bank of SHA-256 if it has one, for a nonce.
///
/// # Errors
/// It refuses.
pub fn quote(tpm: &mut dyn TpmTransport, nonce: &[u8]) -> Result<Quote> {
    if nonce.len() > MAX_NONCE {
        return Err(Error::new(format!("expected a nonce of at most {MAX_NONCE} bytes")));
    }
    let found = banks(tpm, PCRS[0])?;
    let bank = found.iter().find(|bank| bank.algorithm == Algorithm::Sha256).or(found.last()).copied();
    let bank = bank.ok_or_else(|| Error::new("the TPM has no bank"))?;
    let made = send(tpm, SESSIONS, CREATE_PRIMARY, &[&ENDORSEMENT.to_be_bytes(), &PASSWORD[..], TEMPLATE].concat())?;
    // The handle, the length of what follows, and the public area with its own.
    let other = || Error::new("the TPM's answer about a key has another form");
    let (handle, rest) = made.split_first_chunk::<4>().ok_or_else(other)?;
    let whole = rest.get(4..).unwrap_or_default();
    let key = sized(whole).and_then(|(_, after)| Some(whole.get(..whole.len() - after.len())?.to_vec()));
    let quoted = signed(tpm, *handle, nonce, bank);
    // A key that stays would take one of the TPM's few places until the resource manager is closed.
    let flushed = send(tpm, NO_SESSIONS, FLUSH, handle);
    let (attested, signature) = quoted?;
    flushed?;
    Ok(Quote { attested, signature, key: key.ok_or_else(other)? })
}

/// The quote of a key, and its signature.
fn signed(tpm: &mut dyn TpmTransport, key: [u8; 4], nonce: &[u8], bank: Bank) -> Result<(Vec<u8>, Vec<u8>)> {
    let length = u16::try_from(nonce.len()).unwrap_or(0).to_be_bytes();
    // TPM_ALG_NULL: the key's own scheme.
    let scheme = 0x10u16.to_be_bytes();
    let registers = PCRS.iter().fold(0, |bits, pcr| bits | 1 << pcr);
    let body = [&key, &PASSWORD[..], &length, nonce, &scheme, &selection(bank.id, registers)].concat();
    let answer = send(tpm, SESSIONS, QUOTE, &body)?;
    let parse = || {
        let (length, rest) = answer.split_first_chunk::<4>()?;
        let (attested, signature) = sized(rest.get(..usize::try_from(u32::from_be_bytes(*length)).ok()?)?)?;
        Some((attested.to_vec(), signature.to_vec()))
    };
    parse().ok_or_else(|| Error::new("the TPM's quote has another form"))
}
