//! The few commands of a TPM 2.0 that measuring needs, and how all are sent (TCG, Trusted Platform Module Library, parts 2 and 3). All numbers are
//! big-endian. The kernel's device takes a command in one write and gives the answer in one read.

use crate::base::digest::Algorithm;
use crate::base::error::{Context, Error, Result};
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
pub(super) const FLUSH: u32 = 0x165;
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

/// The number of the bank with a name.
pub(super) fn bank_named(bank: &str) -> Option<u16> {
    ALGORITHMS.iter().find(|(.., name)| *name == bank).map(|(id, ..)| *id)
}

/// The name of the bank with a number, or an empty one.
pub(super) fn bank_name(bank: u16) -> &'static str {
    ALGORITHMS.iter().find(|(id, ..)| *id == bank).map_or("", |(.., name)| name)
}

/// The algorithm with a name.
pub fn algorithm_named(name: &str) -> Option<Algorithm> {
    ALGORITHMS.iter().find(|(.., own)| *own == name).map(|(_, algorithm, _)| *algorithm)
}

/// A bank of registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bank {
    pub(super) id: u16,
    pub algorithm: Algorithm,
}

/// What takes commands: a device, or a connection to a simulator.
pub trait TpmTransport: Read + Write {}

impl<T: Read + Write> TpmTransport for T {}

/// The banks in which a register is active.
///
/// # Errors
/// The TPM does not answer, or has an active bank of an algorithm that is unknown here. Left out, it could be filled with another
/// history.
pub fn banks(tpm: &mut dyn TpmTransport, pcr: u8) -> Result<Vec<Bank>> {
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
pub fn extend(tpm: &mut dyn TpmTransport, pcr: u8, banks: &[Bank], digests: &[(Algorithm, Vec<u8>)]) -> Result<()> {
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
pub fn read(tpm: &mut dyn TpmTransport, pcr: u8, bank: Bank) -> Result<Vec<u8>> {
    let selection = selection(bank.id, 1u32.checked_shl(pcr.into()).unwrap_or(0));
    let answer = send(tpm, NO_SESSIONS, PCR_READ, &selection)?;
    // A counter of changes, the selection again, and a list of one digest with its length.
    let value = answer.get(4..).and_then(|rest| rest.strip_prefix(&selection[..])).and_then(|rest| {
        let (length, digest) = rest.strip_prefix(&1u32.to_be_bytes())?.split_first_chunk::<2>()?;
        (usize::from(u16::from_be_bytes(*length)) == digest.len()).then(|| digest.to_vec())
    });
    value.ok_or_else(|| Error::new(format!("the TPM did not give PCR {pcr}")))
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
pub(super) fn send(tpm: &mut dyn TpmTransport, tag: u16, code: u32, body: &[u8]) -> Result<Vec<u8>> {
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
fn receive(tpm: &mut dyn TpmTransport) -> Result<Vec<u8>> {
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
pub(super) mod tests {
    use super::*;
    use crate::base::digest::digest;
    use crate::base::hex;
    use crate::base::testing::mutations;
    use std::collections::VecDeque;

    /// Answers as they were recorded, and what was sent.
    #[derive(Default)]
    pub struct Recorded {
        answers: VecDeque<Vec<u8>>,
        pub sent: Vec<String>,
    }

    impl Recorded {
        pub fn of(answers: &[&str]) -> Recorded {
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
    pub const DONE: &str = "8002 00000013 00000000 00000000 0000 01 0000";

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
