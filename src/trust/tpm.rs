//! The few commands of a TPM 2.0 that measuring and unsealing need (TCG, Trusted Platform Module Library, parts 2 and 3). All numbers are
//! big-endian. The kernel's device takes a command in one write and gives the answer in one read.

use crate::base::digest::Algorithm;
use crate::base::error::{Context, Error, Result};
use crate::base::random;
use std::io::{Read, Write};
use std::thread::sleep;
use std::time::Duration;

/// The longest answer, in bytes.
const MAX_ANSWER: usize = 4096;
/// A TPM that is busy is asked again so often, after this time.
const TRIES: usize = 100;
const WAIT: Duration = Duration::from_millis(20);

const HEADER: usize = 10;
pub(super) const NO_SESSIONS: u16 = 0x8001;
pub(super) const SESSIONS: u16 = 0x8002;
const GET_CAPABILITY: u32 = 0x17a;
const PCR_EXTEND: u32 = 0x182;
const PCR_READ: u32 = 0x17e;
pub(super) const CREATE_PRIMARY: u32 = 0x131;
const LOAD: u32 = 0x157;
const START_SESSION: u32 = 0x176;
const POLICY_PCR: u32 = 0x17f;
const POLICY_GET_DIGEST: u32 = 0x189;
const UNSEAL: u32 = 0x15e;
pub(super) const FLUSH: u32 = 0x165;
/// TPM_RH_OWNER and TPM_RH_NULL.
const OWNER: [u8; 4] = [0x40, 0, 0, 1];
const NULL: [u8; 4] = [0x40, 0, 0, 7];
/// The algorithms of primary keys.
const RSA: u16 = 0x1;
const ECC: u16 = 0x23;
/// Bytes of a session's nonce.
const SESSION_NONCE: usize = 32;
/// The registers that a selection can have.
const SELECTABLE: u64 = 0xff_ffff;
/// TPM_CAP_PCRS: the banks.
const CAP_PCRS: u32 = 5;
/// Authorization by an empty password, with its length before it.
pub(super) const PASSWORD: [u8; 13] = [0, 0, 0, 9, 0x40, 0, 0, 9, 0, 0, 0, 0, 0];
const RETRY: u32 = 0x922;
const YIELDED: u32 = 0x908;
/// Bytes of a selection of registers: 24 of them.
const SELECTED: u8 = 3;

/// The hash functions of banks (TCG Algorithm Registry).
const ALGORITHMS: [(u16, Algorithm, &str); 4] = [
    (0x4, Algorithm::Sha1, "sha1"),
    (0xb, Algorithm::Sha256, "sha256"),
    (0xc, Algorithm::Sha384, "sha384"),
    (0xd, Algorithm::Sha512, "sha512"),
];

/// The name of an algorithm, as systemd and tpm2-tools have it.
pub fn name(algorithm: Algorithm) -> &'static str {
    ALGORITHMS.iter().find(|(_, own, _)| *own == algorithm).map_or("", |(.., name)| name)
}

/// A bank of registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bank {
    pub(super) id: u16,
    pub algorithm: Algorithm,
}

/// What takes commands: a device, or a connection to a simulator.
pub trait Transport: Read + Write {}

impl<T: Read + Write> Transport for T {}

/// The banks in which a register is active.
///
/// # Errors
/// The TPM does not answer, or has an active bank of an algorithm that is unknown here. Left out, it could be filled with another
/// history.
pub fn banks(tpm: &mut dyn Transport, pcr: u8) -> Result<Vec<Bank>> {
    let body: Vec<u8> = [CAP_PCRS, 0, 1].iter().flat_map(|n| n.to_be_bytes()).collect();
    let answer = send(tpm, NO_SESSIONS, GET_CAPABILITY, &body)?;
    let found = selections(&answer).ok_or_else(|| Error::new("the TPM's answer about its banks has another form"))?;
    let active = found.into_iter().filter(|(_, bits)| has(bits, pcr));
    let banks: Vec<Bank> = active.map(|(id, _)| bank(id)).collect::<Result<_>>()?;
    if banks.is_empty() { Err(Error::new(format!("the TPM has no bank with PCR {pcr}"))) } else { Ok(banks) }
}

fn bank(id: u16) -> Result<Bank> {
    let known = ALGORITHMS.iter().find(|(own, ..)| *own == id);
    let unknown = || Error::new(format!("the TPM has an active bank of the algorithm {id:#x}, which is unknown here"));
    known.map(|(_, algorithm, _)| Bank { id, algorithm: *algorithm }).ok_or_else(unknown)
}

/// Whether a selection has a register.
fn has(bits: &[u8], pcr: u8) -> bool {
    bits.get(usize::from(pcr / 8)).is_some_and(|byte| byte >> (pcr % 8) & 1 == 1)
}

/// The answer to GetCapability: whether there is more, what it is about, and the selections.
fn selections(answer: &[u8]) -> Option<Vec<(u16, &[u8])>> {
    let rest = answer.get(1..)?.strip_prefix(&CAP_PCRS.to_be_bytes())?;
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let mut found = Vec::new();
    for _ in 0..u32::from_be_bytes(*count).min(16) {
        let (&[a, b, size], after) = rest.split_first_chunk::<3>()?;
        let (bits, after) = after.split_at_checked(usize::from(size))?;
        found.push((u16::from_be_bytes([a, b]), bits));
        rest = after;
    }
    rest.is_empty().then_some(found)
}

/// Extends a register in all these banks, by one command.
///
/// # Errors
/// The TPM refuses it, or there is a bank without its digest.
pub fn extend(tpm: &mut dyn Transport, pcr: u8, banks: &[Bank], digests: &[(Algorithm, Vec<u8>)]) -> Result<()> {
    let mut body = [&u32::from(pcr).to_be_bytes(), &PASSWORD[..]].concat();
    body.extend(u32::try_from(banks.len()).unwrap_or(0).to_be_bytes());
    for bank in banks {
        let (_, digest) = digests
            .iter()
            .find(|(algorithm, _)| *algorithm == bank.algorithm)
            .ok_or_else(|| Error::new(format!("no digest for the bank {}", name(bank.algorithm))))?;
        body.extend(bank.id.to_be_bytes());
        body.extend_from_slice(digest);
    }
    send(tpm, SESSIONS, PCR_EXTEND, &body).map(drop).context(|| format!("failed to extend PCR {pcr}"))
}

/// The value of a register in a bank.
///
/// # Errors
/// The TPM refuses it, or does not have the register in the bank.
pub fn read(tpm: &mut dyn Transport, pcr: u8, bank: Bank) -> Result<Vec<u8>> {
    let selection = selection(bank.id, 1u32.checked_shl(pcr.into()).unwrap_or(0));
    let answer = send(tpm, NO_SESSIONS, PCR_READ, &selection)?;
    // A counter of changes, the selection again, and a list of one digest with its length.
    let value = answer.get(4..).and_then(|rest| rest.strip_prefix(&selection[..])).and_then(|rest| {
        let (length, digest) = rest.strip_prefix(&1u32.to_be_bytes())?.split_first_chunk::<2>()?;
        (usize::from(u16::from_be_bytes(*length)) == digest.len()).then(|| digest.to_vec())
    });
    value.ok_or_else(|| Error::new(format!("the TPM did not give PCR {pcr}")))
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
}

/// The secret that systemd has sealed, by its primary key (systemd, src/shared/tpm2-util.c). No session is encrypted: the secret
/// crosses the bus of a chip as it is.
///
/// # Errors
/// The TPM is another one, its registers have other values, or it refuses a command.
pub fn unseal(tpm: &mut dyn Transport, sealed: &Sealed) -> Result<Vec<u8>> {
    let mut handles = Vec::new();
    let secret = unseal_by(tpm, sealed, &mut handles);
    // The kernel's resource manager does it too, when the device is closed.
    for handle in handles {
        let _ = send(tpm, NO_SESSIONS, FLUSH, &handle);
    }
    secret
}

fn unseal_by(tpm: &mut dyn Transport, sealed: &Sealed, handles: &mut Vec<[u8; 4]>) -> Result<Vec<u8>> {
    let form = || Error::new("the TPM's answer has another form");
    let mut kept = |answer: &[u8]| {
        let handle = *answer.first_chunk::<4>()?;
        handles.push(handle);
        Some(handle)
    };
    let primary = send(tpm, SESSIONS, CREATE_PRIMARY, &template(sealed.primary)?);
    let primary = kept(&primary.context(|| "failed to make the primary key")?).ok_or_else(form)?;
    let object = send(tpm, SESSIONS, LOAD, &[&primary, &PASSWORD[..], sealed.blob].concat());
    let object =
        kept(&object.context(|| "the TPM does not load what is sealed: it is another TPM's")?).ok_or_else(form)?;
    let mut nonce = [0; SESSION_NONCE];
    random::fill(&mut nonce, "a nonce")?;
    // No salt, a policy, no encryption of parameters, SHA-256.
    let session = [&NULL[..], &NULL, &[0, 32], &nonce, &[0, 0, 1, 0, 0x10, 0, 0xb]].concat();
    let session = kept(&send(tpm, NO_SESSIONS, START_SESSION, &session)?).ok_or_else(form)?;
    if sealed.registers & !SELECTABLE != 0 {
        return Err(Error::new("it is sealed to registers that no TPM has"));
    }
    if sealed.registers != 0 {
        let selection = selection(sealed.bank, u32::try_from(sealed.registers).unwrap_or(0));
        send(tpm, NO_SESSIONS, POLICY_PCR, &[&session[..], &[0, 0], &selection].concat())?;
    }
    let digest = send(tpm, NO_SESSIONS, POLICY_GET_DIGEST, &session)?;
    if sized(&digest).ok_or_else(form)?.0 != sealed.policy {
        return Err(Error::new("it is sealed to other values of the TPM's registers, or to another policy"));
    }
    let by_session = [&[0, 0, 0, 9][..], &session, &[0; 5]].concat();
    let secret = send(tpm, SESSIONS, UNSEAL, &[&object[..], &by_session].concat());
    let secret = secret.context(|| "the TPM does not unseal it")?;
    Ok(secret.get(4..).and_then(sized).ok_or_else(form)?.0.to_vec())
}

/// The rest of the command that makes the primary key of systemd's credentials: a storage key of the owner without a password.
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
    let public = [&algorithm.to_be_bytes()[..], &common, own].concat();
    let size = u16::try_from(public.len()).unwrap_or(0).to_be_bytes();
    // An empty secret before it; after it no data from outside, and no registers.
    Ok([&OWNER[..], &PASSWORD, &[0, 4, 0, 0, 0, 0], &size, &public, &[0; 6]].concat())
}

/// A field with its length before it, and what follows.
pub(super) fn sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

/// One bank's selection of registers, as a list of one: register n is bit n.
pub(super) fn selection(bank: u16, registers: u32) -> Vec<u8> {
    let [a, b, c, _] = registers.to_le_bytes();
    [&1u32.to_be_bytes()[..], &bank.to_be_bytes(), &[SELECTED, a, b, c]].concat()
}

/// Sends a command, again while the TPM is busy, and returns what follows the answer's header.
///
/// # Errors
/// The TPM refuses it, or does not answer.
pub(super) fn send(tpm: &mut dyn Transport, tag: u16, code: u32, body: &[u8]) -> Result<Vec<u8>> {
    let length = u32::try_from(HEADER + body.len()).map_err(|_| Error::new("the command is too long"))?;
    let command = [&tag.to_be_bytes(), &length.to_be_bytes()[..], &code.to_be_bytes(), body].concat();
    for tried in 0..TRIES {
        if tried > 0 {
            sleep(WAIT);
        }
        tpm.write_all(&command).context(|| "failed to write to the TPM")?;
        let answer = receive(tpm)?;
        match answer.get(6..HEADER).and_then(|code| code.try_into().ok()).map(u32::from_be_bytes) {
            Some(0) => return Ok(answer.get(HEADER..).unwrap_or_default().to_vec()),
            Some(RETRY | YIELDED) => {}
            Some(code) => return Err(Error::new(format!("the TPM answers with the error {code:#x}"))),
            None => return Err(Error::new("the TPM's answer is too short")),
        }
    }
    Err(Error::new("the TPM stays busy"))
}

/// Reads one answer.
fn receive(tpm: &mut dyn Transport) -> Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut buffer = [0; MAX_ANSWER];
    loop {
        let got = tpm.read(&mut buffer).context(|| "failed to read from the TPM")?;
        answer.extend_from_slice(buffer.get(..got).unwrap_or_default());
        let length = answer.get(2..6).and_then(|length| length.try_into().ok()).map(u32::from_be_bytes);
        match length.and_then(|length| usize::try_from(length).ok()) {
            Some(length) if length == answer.len() => return Ok(answer),
            Some(length) if length < answer.len().max(HEADER) || length > MAX_ANSWER => break,
            _ if got == 0 => break,
            _ => {}
        }
    }
    Err(Error::new("the TPM's answer has another length than it says"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::digest::digest;
    use crate::base::hex;
    use crate::base::testing::mutations;
    use std::collections::VecDeque;

    /// Answers as they were recorded, and what was sent.
    #[derive(Default)]
    struct Recorded {
        answers: VecDeque<Vec<u8>>,
        sent: Vec<String>,
    }

    impl Recorded {
        fn of(answers: &[&str]) -> Recorded {
            let answers = answers.iter().map(|answer| hex::decode(&answer.replace(' ', "")).unwrap()).collect();
            Recorded { answers, ..Recorded::default() }
        }
    }

    impl Read for Recorded {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let answer = self.answers.pop_front().unwrap_or_default();
            buffer[..answer.len()].copy_from_slice(&answer);
            Ok(answer.len())
        }
    }

    impl Write for Recorded {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.sent.push(hex::encode(bytes));
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    const BANKS: &str = "8001 00000025 00000000 00 00000005 00000003 0004 03 ffffff 000b 03 ffffff 000c 03 000000";
    const DONE: &str = "8002 00000013 00000000 00000000 0000 01 0000";

    #[test]
    fn commands_have_the_bytes_of_the_specification() {
        let mut tpm = Recorded::of(&[BANKS, "8001 0000000a 00000922", DONE]);
        let banks = banks(&mut tpm, 12).unwrap();
        assert_eq!(banks.iter().map(|bank| name(bank.algorithm)).collect::<Vec<_>>(), ["sha1", "sha256"]);
        let digests = [Algorithm::Sha256, Algorithm::Sha1].map(|algorithm| (algorithm, digest(algorithm, b"")));
        extend(&mut tpm, 12, &banks, &digests).unwrap();
        assert_eq!(tpm.sent[0], "8001000000160000017a000000050000000000000001");
        let expected = format!(
            "8002000000570000018200000000c0000000940000009{}00000002{}{}{}{}",
            "0000000000",
            "0004",
            hex::encode(&digest(Algorithm::Sha1, b"")),
            "000b",
            hex::encode(&digest(Algorithm::Sha256, b""))
        );
        let expected = expected.replacen("00000000c0000000940000009", "0000000c0000000940000009", 1);
        assert_eq!(tpm.sent[1..], [expected.clone(), expected]);
    }

    /// Answers of any form to all commands of unsealing.
    #[test]
    fn wrong_answers_to_unsealing_are_errors() {
        let with_handle = "8002 00000014 00000000 80000000 00000001 0000";
        let (session, policy) = ("8001 0000000e 00000000 03000000", "8001 0000000e 00000000 0002 abcd");
        let secret = "8002 00000012 00000000 00000004 0002 7331";
        let good = [with_handle, with_handle, session, DONE, policy, secret, DONE, DONE, DONE];
        let sealed = Sealed { registers: 1 << 12, bank: 0xb, primary: ECC, blob: b"blob", policy: &[0xab, 0xcd] };
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

    #[test]
    fn an_unknown_active_bank_is_an_error() {
        let unknown = BANKS.replace("000b", "0012");
        assert!(banks(&mut Recorded::of(&[&unknown]), 12).unwrap_err().to_string().contains("0x12"));
        let none = BANKS.replace("ffffff", "ff0000");
        assert!(banks(&mut Recorded::of(&[&none]), 12).is_err());
        assert_eq!(banks(&mut Recorded::of(&[&none]), 7).map(|banks| banks.len()), Ok(2));
    }

    #[test]
    fn wrong_answers_are_errors() {
        for answer in [
            "",
            "8001 0000000a",
            "8001 0000000a 00000100",
            "8001 00000009 000000",
            "8001 0000000b 00000000",
            "8001 ffffffff 00000000",
        ] {
            assert!(banks(&mut Recorded::of(&[answer]), 12).is_err(), "{answer}");
        }
        let bytes = hex::decode(&BANKS.replace(' ', "")).unwrap();
        mutations(&bytes, 3000, |answer| {
            let answers = VecDeque::from([answer.to_vec()]);
            let found = banks(&mut Recorded { answers, ..Recorded::default() }, 12);
            assert!(found.is_err() || found.is_ok_and(|banks| !banks.is_empty()));
            let answers = VecDeque::from([answer.to_vec()]);
            let bank = Bank { id: 0xb, algorithm: Algorithm::Sha256 };
            let value = read(&mut Recorded { answers, ..Recorded::default() }, 12, bank);
            assert!(value.is_err(), "an answer to another command");
        });
    }
}
