//! What is sealed to an endorsement key, opened by TPMs in software.

use crate::base::digest::digest;
use crate::base::error::Result;
use crate::base::hex;
use crate::base::testing::{TempDir, mutations};
use crate::trust::endorsed::*;
use crate::trust::seal::{Recipient, Register, seal};
use crate::trust::swtpm::{Swtpm, recipient};
use crate::trust::tpm::TpmTransport;
use crate::trust::tpm::{self, banks, extend, tests::Recorded};

const PLAIN: &[u8] = b"#cloud-config\nwrite_files: [{path: /etc/app.key, content: secret}]\n";

/// What is sealed, opened by a TPM.
fn opened(sealed: &[u8], tpm: &mut dyn TpmTransport) -> Result<Vec<u8>> {
    let sealed = Endorsed::parse(sealed)?;
    let key = sealed.unseal(tpm)?;
    sealed.open(&key, "n")
}

fn register(pcr: u8, value: &[u8]) -> Register {
    Register::parse(&format!("{pcr}=sha256:{}", hex::encode(value))).unwrap()
}

/// Extends PCR 12, and returns its value in the bank of SHA-256.
fn extended(tpm: &mut dyn TpmTransport, event: &[u8]) -> Vec<u8> {
    let banks = banks(tpm, 12).unwrap();
    let digests: Vec<_> = banks.iter().map(|bank| (bank.algorithm, digest(bank.algorithm, event))).collect();
    extend(tpm, 12, &banks, &digests).unwrap();
    let bank = banks.into_iter().find(|bank| tpm::name(bank.algorithm) == "sha256").unwrap();
    tpm::read(tpm, 12, bank).unwrap()
}

#[test]
fn tpm_opens_what_is_sealed_to_it() {
    let (dir, other) = (TempDir::new("endorsed"), TempDir::new("endorsed-other"));
    let (Some(swtpm), Some(other)) = (Swtpm::start(&dir.0), Swtpm::start(&other.0)) else { return };
    let (mut tpm, mut other) = (swtpm.connect(), other.connect());
    for kind in &KINDS {
        let key = recipient(&mut tpm, kind);
        let sealed = seal(PLAIN, &key, Vec::new(), "").unwrap();
        // Often: nothing stays in the TPM.
        for _ in 0..5 {
            assert_eq!(opened(sealed.as_bytes(), &mut tpm).as_deref(), Ok(PLAIN));
        }
        let error = opened(sealed.as_bytes(), &mut other).unwrap_err().to_string();
        assert!(error.starts_with("it is sealed to another machine's TPM"), "{error}");
        for length in [0, 1, 47, 48, 49, 100_000] {
            let plain = vec![7; length];
            let sealed = seal(&plain, &key, Vec::new(), "n").unwrap();
            assert_eq!(opened(sealed.as_bytes(), &mut tpm), Ok(plain));
        }
    }
}

#[test]
fn registers_must_have_the_sealed_values() {
    let dir = TempDir::new("endorsed-pcr");
    let Some(swtpm) = Swtpm::start(&dir.0) else { return };
    let mut tpm = swtpm.connect();
    let key = recipient(&mut tpm, &KINDS[0]);
    let zero = [0; 32];
    let expected = digest(
        crate::base::digest::Algorithm::Sha256,
        &[&zero[..], &digest(crate::base::digest::Algorithm::Sha256, b"one")].concat(),
    );
    let sealed = seal(PLAIN, &key, vec![register(12, &expected), register(8, &zero)], "").unwrap();
    assert!(sealed.contains("\npcrs: sha256:8,12\n"), "{sealed}");
    let early = opened(sealed.as_bytes(), &mut tpm).unwrap_err().to_string();
    assert!(early.contains("the registers sha256:8,12 do not have the values"), "{early}");
    assert_eq!(extended(&mut tpm, b"one"), expected);
    assert_eq!(opened(sealed.as_bytes(), &mut tpm).as_deref(), Ok(PLAIN));
    // Without its registers in the text it has another policy, and is no longer what was encrypted.
    let bare = sealed.replace("pcrs: sha256:8,12\n", "");
    assert!(opened(bare.as_bytes(), &mut tpm).unwrap_err().to_string().contains("a policy that is not known"));
    extended(&mut tpm, b"two");
    assert!(opened(sealed.as_bytes(), &mut tpm).unwrap_err().to_string().contains("other documents were measured"));
    let digest384 = format!("12=sha384:{}", "00".repeat(48));
    let mixed = vec![register(8, &zero), Register::parse(&digest384).unwrap()];
    assert!(seal(PLAIN, &key, mixed, "").unwrap_err().to_string().contains("of one bank"));
    assert!(seal(PLAIN, &key, vec![register(8, &zero), register(8, &expected)], "").is_err());
}

#[test]
fn each_changed_byte_is_refused() {
    let dir = TempDir::new("endorsed-changed");
    let Some(swtpm) = Swtpm::start(&dir.0) else { return };
    let mut tpm = swtpm.connect();
    let key = recipient(&mut tpm, &KINDS[1]);
    let sealed = seal(b"secret", &key, vec![register(12, &[0; 32])], "n").unwrap();
    assert_eq!(opened(sealed.as_bytes(), &mut tpm).as_deref(), Ok(&b"secret"[..]));
    for at in 0..sealed.len() {
        let mut changed = sealed.clone().into_bytes();
        changed[at] ^= 1 << (at % 6);
        // The first line makes it what it is, and its end may be another white space.
        let is_known = changed.starts_with(FIRST.as_bytes());
        let is_space = changed[at].is_ascii_whitespace() && at + 1 == sealed.len();
        assert!(!is_known || is_space || opened(&changed, &mut tpm).is_err(), "{at}");
    }
    for end in 0..sealed.trim_end().len() {
        assert!(opened(&sealed.as_bytes()[..end], &mut tpm).is_err(), "{end}");
    }
    let named = Endorsed::parse(sealed.as_bytes()).unwrap().open(&[0; 32], "other").unwrap_err().to_string();
    assert_eq!(named, "it is sealed for the name \"n\", and is used as \"other\"");
}

#[test]
fn other_forms_are_errors() {
    let key = Recipient::P256(crate::base::p256::new_key().unwrap().1.to_vec());
    let sealed = seal(b"secret", &key, vec![register(12, &[0; 32])], "n").unwrap();
    assert!(Endorsed::parse(sealed.as_bytes()).is_ok());
    for (from, to) in [
        ("#prepivot-sealed\n", "#prepivot-sealed\r\n"),
        ("name: n\n", "name: n\nname: n\n"),
        ("name: n\n", "name: \n"),
        ("name: n\n", "other: n\n"),
        ("name: n\n", "name:n\n"),
        ("sha256:12", "sha256:24"),
        ("sha256:12", "sha256:"),
        ("sha256:12", "sha3:12"),
        ("sha256:12", "12"),
        ("@@NULL@@", "@@"),
        ("key: ", "key: A@@NULL@@"),
        ("\n\n", "\n"),
    ] {
        let other = sealed.replacen(from, to, 1);
        assert!(other != sealed && Endorsed::parse(other.as_bytes()).is_err(), "{from}");
    }
    let long = sealed.replacen("name: n", &format!("name: {}", "n".repeat(MAX_HEAD)), 1);
    assert!(Endorsed::parse(long.as_bytes()).is_err());
    mutations(sealed.as_bytes(), 2000, |bytes| drop(Endorsed::parse(bytes)));
}

/// Answers of any form to all commands of importing.
#[test]
fn wrong_answers_to_importing_are_errors() {
    let key = Recipient::P256(crate::base::p256::new_key().unwrap().1.to_vec());
    let sealed = seal(b"secret", &key, Vec::new(), "").unwrap();
    let sealed = Endorsed::parse(sealed.as_bytes()).unwrap();
    let (refused, done) = ("8001 0000000a 0000018b", tpm::tests::DONE);
    let (with_handle, session) = ("8002 00000014 00000000 80000000 00000001 0000", "8001 0000000e 00000000 03000000");
    let (imported, policy) =
        ("8002 00000012 00000000 00000004 0002 abcd", format!("8001 0000002c 00000000 0020 {}", "00".repeat(32)));
    let secret = "8002 00000012 00000000 00000004 0002 7331";
    let good = [
        refused,
        with_handle,
        session,
        done,
        imported,
        session,
        done,
        with_handle,
        session,
        &policy,
        secret,
        done,
        done,
        done,
        done,
    ];
    let mut tpm = Recorded::of(&good);
    assert_eq!(sealed.unseal(&mut tpm), Ok(b"s1".to_vec()));
    assert_eq!(tpm.sent.len(), good.len() + 1);
    for at in 1..11 {
        for wrong in ["", refused, "8001 0000000d 00000000 000100"] {
            let mut answers = good;
            answers[at] = wrong;
            // Nothing is used of what the TPM says about the password of its hierarchy.
            let is_unread = (at == 3 || at == 6) && wrong.ends_with("0100");
            assert!(is_unread || sealed.unseal(&mut Recorded::of(&answers)).is_err(), "{at} {wrong}");
        }
    }
}
