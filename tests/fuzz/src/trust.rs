//! Targets for what a trust policy reads: signed documents, their signatures, the policy, and a TPM's answers.

use super::text;
use prepivot::base::testing::TempDir;
use prepivot::machine::{Cmdline, Machine};
use prepivot::trust::endorsed::Endorsed;
use prepivot::trust::envelope::{Envelope, Statement};
use prepivot::trust::sshsig::Signature;
use prepivot::trust::{Policy, cms as certificates, tpm as register};
use std::io::{Read, Result, Write};
use std::sync::LazyLock;

/// A signed document, and a signature of OpenSSH's by itself.
pub fn envelope(data: &[u8]) {
    if let Some(Ok(envelope)) = Envelope::parse(data) {
        assert!(data.ends_with(envelope.signed));
        for (_, blob) in &envelope.signatures {
            if let Some(signature) = Signature::parse(blob) {
                signature.verifies("fuzz", envelope.signed);
            }
        }
        if let Ok((_, payload)) = Statement::split(envelope.signed) {
            assert!(data.ends_with(payload));
        }
    }
    if let Some(signature) = Signature::parse(data) {
        assert!(!signature.verifies("fuzz", b"not signed"));
    }
}

/// A signature by any key, and a certificate.
pub fn cms(data: &[u8]) {
    static TRUSTED: LazyLock<Vec<certificates::Certificate>> =
        LazyLock::new(|| certificates::certificates("fuzz", include_str!("trusted.crt")).expect("a certificate"));
    assert!(certificates::signers(data, b"another content", &TRUSTED).is_none_or(|all| all.is_empty()));
    let _ = certificates::certificates("fuzz", &text(data));
}

/// A TPM that gives the data as its answers.
struct Answers<'a>(&'a [u8]);

impl Read for Answers<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Answers<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A TPM's answers to the questions for its banks and for a register.
pub fn tpm(data: &[u8]) {
    if let Ok(banks) = register::banks(&mut Answers(data), 12) {
        banks.into_iter().for_each(|bank| drop(register::read(&mut Answers(data), 12, bank)));
    }
}

/// A TPM's answers to the commands that import a key: the data of what is sealed, which is none.
pub fn import(sealed: &Endorsed, data: &[u8]) {
    assert!(sealed.unseal(&mut Answers(data)).is_err());
}

/// A policy: as the kernel command line, trust.conf, and each of its files of keys.
pub fn policy(data: &[u8]) {
    let dir = TempDir::new("fuzz-trust");
    for name in ["trust.conf", "allowed_signers", "revoked_keys", "c.crt"] {
        dir.write(name, data);
        let machine = Machine { base: dir.0.clone(), cmdline: Cmdline::new(&text(data)), container: None };
        if let Some(policy) = Policy::read(&machine, ".") {
            policy.to_text();
        }
        dir.write("trust.conf", "user-data = use\n");
    }
}
