//! Seals to the endorsement key of a machine's TPM, of which nothing but the public key is needed ([`super::endorsed`] opens it; TCG,
//! Trusted Platform Module Library, part 1, "Secret Sharing", "Protected Storage").

use super::aes;
use super::cipher::{self, KEY_LEN};
use super::cms::{self, Form};
use super::endorsed::{FIRST, MAX, NONCE, PUBLIC, SEPARATOR};
use super::tpm::{self, bank_named, selection};
use super::unseal::{EXPONENT, field};
use crate::base::base64;
use crate::base::digest::{Algorithm, SHA256_LEN, digest};
use crate::base::error::{Error, Result};
use crate::base::{p256, random};
use crypto_bigint::modular::{FixedMontyForm, FixedMontyParams};
use crypto_bigint::{Odd, U64, U2048};

/// What a seed is encrypted for, with the NUL at its end.
const DUPLICATE: &[u8] = b"DUPLICATE\0";
/// Bytes of RSA's modulus.
const RSA_LEN: usize = 256;
/// Characters of a line of base64.
const COLUMNS: usize = 64;
/// The largest document: in base64 it has room.
const LARGEST: usize = MAX / 4 * 3 - (64 << 10) - MAX / COLUMNS;
const POLICY_PCR: u32 = 0x17f;

/// The public key of a machine's TPM.
#[derive(Debug, PartialEq, Eq)]
pub enum Recipient {
    /// The modulus.
    Rsa(Vec<u8>),
    /// A point of P-256 in the uncompressed form.
    P256(Vec<u8>),
}

impl Recipient {
    /// Reads a public key or a certificate, in PEM or DER.
    ///
    /// # Errors
    /// It is none, or a key of another kind than TPMs' endorsement keys have.
    pub fn parse(bytes: &[u8]) -> Result<Recipient> {
        let der = cms::unarmored(bytes);
        let kind =
            || Error::new("expected a public key or a certificate, in PEM or DER, with a key of RSA or on P-256");
        match cms::public_key(der.as_deref().unwrap_or(bytes)).ok_or_else(kind)? {
            (Form::P256, point) if is_point(point) => Ok(Recipient::P256(point.to_vec())),
            (Form::P256, _) => Err(kind()),
            (Form::Rsa, key) => {
                let (modulus, exponent) = cms::of_rsa(key).ok_or_else(kind)?;
                let is_it = modulus.len() == RSA_LEN && modulus.last().is_some_and(|byte| byte % 2 == 1);
                if is_it && exponent == &EXPONENT.to_be_bytes()[1..] {
                    Ok(Recipient::Rsa(modulus.to_vec()))
                } else {
                    Err(Error::new(
                        "expected a key of RSA with 2048 bits and the exponent 65537, as endorsement keys have",
                    ))
                }
            }
        }
    }

    /// A new seed, and the seed encrypted to the key.
    fn share(&self) -> Result<([u8; SHA256_LEN], Vec<u8>)> {
        match self {
            Recipient::Rsa(modulus) => {
                let seed = random_bytes()?;
                let padded = oaep(&seed, &random_bytes()?);
                Ok((seed, raised(&padded, modulus)))
            }
            Recipient::P256(point) => {
                let (key, own) = p256::new_key()?;
                let shared = p256::exchange(&key, point)
                    .ok_or_else(|| Error::new("the endorsement key is no point of P-256"))?;
                let (own_x, own_y) = own.get(1..).unwrap_or_default().split_at(SHA256_LEN);
                let x = point.get(1..=SHA256_LEN).unwrap_or_default();
                // KDFe of 256 bits: one step.
                let input = [&1u32.to_be_bytes(), &shared[..], DUPLICATE, own_x, x].concat();
                let seed = digest(Algorithm::Sha256, &input).try_into().unwrap_or_default();
                Ok((seed, [field(own_x), field(own_y)].concat()))
            }
        }
    }
}

fn is_point(bytes: &[u8]) -> bool {
    bytes.len() == p256::PUBLIC_LEN && bytes.first() == Some(&4)
}

/// A value that a register will have.
#[derive(Debug, PartialEq, Eq)]
pub struct Register {
    pcr: u8,
    algorithm: Algorithm,
    value: Vec<u8>,
}

impl Register {
    /// The value of `12=sha256:HEX`, or of `12=HEX` in the bank of SHA-256.
    ///
    /// # Errors
    /// It has another form.
    pub fn parse(text: &str) -> Result<Register> {
        let parse = || {
            let (pcr, value) = text.split_once('=')?;
            let (bank, value) = value.split_once(':').unwrap_or(("sha256", value));
            let algorithm = tpm::algorithm_named(bank)?;
            let value = crate::base::hex::decode(value)?;
            let pcr = pcr.parse::<u8>().ok().filter(|pcr| *pcr < 24)?;
            (value.len() == digest(algorithm, b"").len()).then_some(Register { pcr, algorithm, value })
        };
        parse().ok_or_else(|| Error::new(format!("expected a register as 12=sha256:HEX, not {text}")))
    }
}

/// Registers of one bank: the text that names them, and the policy that they have their values. Without registers the text is empty,
/// and the policy that of an empty session.
fn policy(registers: &mut [Register]) -> Result<(String, Vec<u8>)> {
    registers.sort_by_key(|register| register.pcr);
    let Some(algorithm) = registers.first().map(|register| register.algorithm) else {
        return Ok((String::new(), vec![0; SHA256_LEN]));
    };
    if registers.iter().any(|register| register.algorithm != algorithm) {
        return Err(Error::new("expected registers of one bank"));
    }
    if registers.windows(2).any(|pair| matches!(pair, [one, other] if one.pcr == other.pcr)) {
        return Err(Error::new("expected each register once"));
    }
    let bank = tpm::name(algorithm);
    let bits = registers.iter().fold(0, |bits, register| bits | 1 << register.pcr);
    let values: Vec<u8> = registers.iter().flat_map(|register| &register.value).copied().collect();
    let selection = selection(bank_named(bank).unwrap_or(0), bits);
    let values = digest(Algorithm::Sha256, &values);
    let policy = [&[0; SHA256_LEN][..], &POLICY_PCR.to_be_bytes(), &selection, &values].concat();
    let numbers: Vec<String> = registers.iter().map(|register| register.pcr.to_string()).collect();
    Ok((format!("{bank}:{}", numbers.join(",")), digest(Algorithm::Sha256, &policy)))
}

/// Seals to a TPM, to values of its registers if there are any, and for a name if it is not empty.
///
/// # Errors
/// It is too large, the name or the registers cannot be written, or the kernel returns no random bytes.
pub fn seal(plain: &[u8], recipient: &Recipient, mut registers: Vec<Register>, name: &str) -> Result<String> {
    if plain.len() > LARGEST {
        return Err(Error::new(format!("what is to be sealed has more than {LARGEST} bytes")));
    }
    if !cipher::CAN_OPEN {
        return Err(Error::new("this build cannot encrypt: it is without the part tls"));
    }
    if name.chars().any(char::is_control) {
        return Err(Error::new("the name has a control character"));
    }
    let (pcrs, policy) = policy(&mut registers)?;
    let key: [u8; KEY_LEN] = random_bytes()?;
    let mut head = FIRST.to_owned();
    for (field, value) in [("name", name), ("pcrs", &pcrs), ("key", &object(&key, &policy, recipient)?)] {
        if !value.is_empty() {
            head += &format!("{field}: {value}\n");
        }
    }
    head.push('\n');
    let sealed = base64::encode(&cipher::seal(&key, &NONCE, head.as_bytes(), plain));
    let mut out = head;
    // Base64 is ASCII.
    for line in sealed.as_bytes().chunks(COLUMNS) {
        out.push_str(&String::from_utf8_lossy(line));
        out.push('\n');
    }
    Ok(out)
}

/// The object that a TPM imports: public, private and seed.
fn object(secret: &[u8], policy: &[u8], recipient: &Recipient) -> Result<String> {
    let obfuscation: [u8; SHA256_LEN] = random_bytes()?;
    let unique = digest(Algorithm::Sha256, &[&obfuscation, secret].concat());
    // No scheme: the data is no key.
    let public = [&PUBLIC[..], policy, &[0, 0x10], &field(&unique)].concat();
    let name = [&[0, 0xb], &digest(Algorithm::Sha256, &public)[..]].concat();
    // The type, an empty password, the obfuscation, and the secret.
    let sensitive = field(&[&[0, 8, 0, 0], &field(&obfuscation)[..], &field(secret)].concat());
    let (seed, share) = recipient.share()?;
    let storage = kdfa(&seed, "STORAGE", &name, 128);
    let storage = storage.first_chunk().ok_or_else(|| Error::new("the key of the storage is too short"))?;
    let sealed = aes::cfb(storage, &sensitive);
    let integrity = kdfa(&seed, "INTEGRITY", &[], 256);
    let tag = cipher::authenticated(&integrity, &[&sealed[..], &name].concat());
    let private = [&field(&tag), &sealed[..]].concat();
    Ok([public, private, share].map(|part| base64::encode(&part)).join(SEPARATOR))
}

/// The first step of KDFa with SHA-256 (part 1, "KDFa"), which is enough for 256 bits.
fn kdfa(key: &[u8], label: &str, context: &[u8], bits: u32) -> Vec<u8> {
    let input = [&1u32.to_be_bytes(), label.as_bytes(), &[0], context, &bits.to_be_bytes()].concat();
    cipher::authenticated(key, &input)
}

/// Random bytes.
fn random_bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    random::fill(&mut bytes, "a key")?;
    Ok(bytes)
}

/// Pads a seed as RSA-OAEP with SHA-256 does (RFC 8017, section 7.1.1).
fn oaep(message: &[u8], seed: &[u8; SHA256_LEN]) -> Vec<u8> {
    let zeros = RSA_LEN - 2 * SHA256_LEN - 2 - message.len().min(RSA_LEN - 2 * SHA256_LEN - 2);
    let data = [&digest(Algorithm::Sha256, DUPLICATE), &vec![0; zeros][..], &[1], message].concat();
    let data = masked(&data, seed);
    let seed = masked(seed, &data);
    [&[0], &seed[..], &data].concat()
}

/// Bytes with the mask that MGF1 makes of a seed (RFC 8017, appendix B.2.1).
fn masked(bytes: &[u8], seed: &[u8]) -> Vec<u8> {
    let pieces = bytes.chunks(SHA256_LEN).zip(0u32..);
    let masks = pieces.map(|(piece, number)| {
        let mask = digest(Algorithm::Sha256, &[seed, &number.to_be_bytes()].concat());
        piece.iter().zip(mask).map(|(byte, mask)| byte ^ mask).collect::<Vec<_>>()
    });
    masks.collect::<Vec<_>>().concat()
}

/// A number to the power of the exponent, by an odd modulus, both of [`RSA_LEN`] bytes.
fn raised(number: &[u8], modulus: &[u8]) -> Vec<u8> {
    let Some(odd) = Odd::new(U2048::from_be_slice(modulus)).into_option() else { return Vec::new() };
    let parameters = FixedMontyParams::new_vartime(odd);
    let number = FixedMontyForm::new(&U2048::from_be_slice(number), &parameters);
    number.pow_vartime(&U64::from(EXPONENT)).retrieve().to_be_bytes().as_ref().to_vec()
}

#[cfg(feature = "tls")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::hex;
    use crate::base::testing::{TempDir, mutations};
    use crate::trust::tests::run;

    /// Runs openssl in a folder. False, if it is not there.
    fn openssl(dir: &TempDir, words: &str) -> bool {
        run("openssl", &words.split(' ').collect::<Vec<_>>(), dir)
    }

    #[test]
    fn openssl_decrypts_what_is_padded_and_raised() {
        let dir = TempDir::new("seal-oaep");
        if !openssl(&dir, "genrsa -out key.pem 2048") {
            return;
        }
        openssl(&dir, "rsa -in key.pem -pubout -out public.pem");
        let recipient = Recipient::parse(&std::fs::read(dir.0.join("public.pem")).unwrap()).unwrap();
        for _ in 0..3 {
            let (seed, share) = recipient.share().unwrap();
            dir.write("share", share);
            let label = hex::encode(DUPLICATE);
            openssl(
                &dir,
                &format!(
                    "pkeyutl -decrypt -inkey key.pem -in share -out seed -pkeyopt rsa_padding_mode:oaep \
                     -pkeyopt rsa_oaep_md:sha256 -pkeyopt rsa_oaep_label:{label}"
                ),
            );
            assert_eq!(std::fs::read(dir.0.join("seed")).unwrap(), seed);
        }
    }

    #[test]
    fn keys_and_certificates_are_read_in_both_forms() {
        let dir = TempDir::new("seal-keys");
        for (key, is_rsa) in [("rsa:2048", true), ("ec -pkeyopt ec_paramgen_curve:P-256", false)] {
            if !openssl(&dir, &format!("req -x509 -nodes -newkey {key} -subj /CN=ek -keyout key.pem -out crt.pem")) {
                return;
            }
            openssl(&dir, "x509 -in crt.pem -outform DER -out crt.der");
            openssl(&dir, "pkey -in key.pem -pubout -out public.pem");
            openssl(&dir, "pkey -in key.pem -pubout -outform DER -out public.der");
            let read = |name: &str| std::fs::read(dir.0.join(name)).unwrap();
            let first = Recipient::parse(&read("public.pem")).unwrap();
            assert_eq!(matches!(first, Recipient::Rsa(_)), is_rsa);
            for name in ["public.der", "crt.pem", "crt.der"] {
                assert_eq!(Recipient::parse(&read(name)).as_ref(), Ok(&first), "{name}");
                mutations(&read(name), 500, |bytes| {
                    if let Ok(recipient) = Recipient::parse(bytes) {
                        let _ = recipient.share();
                    }
                });
            }
            assert!(Recipient::parse(&read("key.pem")).is_err());
        }
        openssl(&dir, "genrsa -out key.pem 3072");
        openssl(&dir, "rsa -in key.pem -pubout -out public.pem");
        let long = Recipient::parse(&std::fs::read(dir.0.join("public.pem")).unwrap()).unwrap_err().to_string();
        assert!(long.contains("2048 bits"), "{long}");
        for text in ["", "x", "-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----\n"] {
            assert!(Recipient::parse(text.as_bytes()).is_err());
        }
    }

    #[test]
    fn registers_of_another_form_are_errors() {
        let value = "00".repeat(32);
        assert_eq!(Register::parse(&format!("12={value}")), Register::parse(&format!("12=sha256:{value}")));
        for wrong in ["", "12", "12=", "24=sha256:00", "x=sha256:00", "12=sha256:00", "12=md5:00", "12=sha1:00"] {
            assert!(Register::parse(wrong).is_err(), "{wrong}");
        }
        let recipient = Recipient::P256(p256::new_key().unwrap().1.to_vec());
        assert!(seal(b"x", &recipient, Vec::new(), "a\nb").is_err());
        assert!(seal(&vec![0; LARGEST + 1], &recipient, Vec::new(), "").is_err());
    }
}
