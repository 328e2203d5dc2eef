//! Files that age encrypts (C2SP, age.md, version 1), to X25519 keys: binary, or in armor. Recipients of other kinds are skipped.

use super::chacha;
use super::cipher::{self, KEY_LEN, NONCE_LEN, TAG_LEN};
use super::lines;
use crate::base::base64;
use crate::base::budget;
use crate::base::error::{Error, Result};
use curve25519_dalek::MontgomeryPoint;

/// The first line.
const VERSION: &[u8] = b"age-encryption.org/v1\n";
const BEGIN: &str = "-----BEGIN AGE ENCRYPTED FILE-----";
const END: &str = "-----END AGE ENCRYPTED FILE-----";
/// Characters of a line of armor, and of a stanza's body.
const COLUMNS: usize = 64;
/// The salt of a key that wraps the file's key.
const X25519: &str = "age-encryption.org/v1/X25519";
/// Bytes of the key of a file, of its nonce, and of a piece of the payload.
const FILE_KEY: usize = 16;
const FILE_NONCE: usize = 16;
const PIECE: usize = 64 << 10;
/// The largest file, the longest header, and the most recipients.
pub const MAX: usize = 24 << 20;
const MAX_HEADER: usize = 64 << 10;
const MAX_STANZAS: usize = 64;
/// The most keys of a policy.
const MAX_IDENTITIES: usize = 16;

/// A private key.
pub struct Identity {
    scalar: [u8; KEY_LEN],
    recipient: [u8; KEY_LEN],
}

impl Identity {
    /// The key of `AGE-SECRET-KEY-1…`. None if it is none.
    pub fn parse(text: &str) -> Option<Identity> {
        let scalar: [u8; KEY_LEN] = bech32(text, "AGE-SECRET-KEY-")?.try_into().ok()?;
        Some(Identity { scalar, recipient: MontgomeryPoint::mul_base_clamped(scalar).0 })
    }
}

/// Reads a file of private keys, one a line, as age-keygen writes it.
///
/// # Errors
/// A line is no key, or there is none. The error does not quote the line.
pub fn identities(name: &str, text: &str) -> Result<Vec<Identity>> {
    let mut found = Vec::new();
    for (number, line) in lines(text) {
        let identity = Identity::parse(line).filter(|_| found.len() < MAX_IDENTITIES);
        found.push(
            identity.ok_or_else(|| Error::new(format!("{name}: line {number}: expected a key AGE-SECRET-KEY-1…")))?,
        );
    }
    if found.is_empty() { Err(Error::new(format!("{name}: expected a key AGE-SECRET-KEY-1…"))) } else { Ok(found) }
}

/// Decodes Bech32 in upper case (BIP 173) with this prefix.
fn bech32(text: &str, prefix: &str) -> Option<Vec<u8>> {
    const LETTERS: &[u8; 32] = b"QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L";
    let digits = text.strip_prefix(prefix)?.strip_prefix('1')?;
    let digit = |byte: u8| LETTERS.iter().position(|letter| *letter == byte).and_then(|at| u8::try_from(at).ok());
    let digits: Vec<u8> = digits.bytes().map(digit).collect::<Option<_>>()?;
    let lower = prefix.to_ascii_lowercase();
    let high = lower.bytes().map(|byte| byte >> 5);
    let low = lower.bytes().map(|byte| byte & 31);
    if checksum(high.chain([0]).chain(low).chain(digits.iter().copied())) != 1 {
        return None;
    }
    let (digits, _) = digits.split_at_checked(digits.len().checked_sub(6)?)?;
    let (mut out, mut bits, mut held) = (Vec::new(), 0u32, 0u32);
    for digit in digits {
        (held, bits) = ((held << 5 | u32::from(*digit)) & 0xfff, bits + 5);
        if bits >= 8 {
            bits -= 8;
            out.push((held >> bits & 0xff).to_le_bytes()[0]);
        }
    }
    // What is left is padding, of zeros.
    (bits < 5 && held & ((1 << bits) - 1) == 0).then_some(out)
}

/// The checksum of Bech32, which is 1 for what has a valid one.
fn checksum(values: impl Iterator<Item = u8>) -> u32 {
    const FACTORS: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];
    values.fold(1, |sum, value| {
        let shifted = (sum & 0x1ff_ffff) << 5 ^ u32::from(value);
        let set = FACTORS.iter().enumerate().filter(|(bit, _)| sum >> 25 >> bit & 1 == 1);
        set.fold(shifted, |sum, (_, factor)| sum ^ factor)
    })
}

/// Whether bytes begin as a file of age, binary or in armor.
pub fn is_age(bytes: &[u8]) -> bool {
    bytes.starts_with(VERSION) || bytes.trim_ascii_start().starts_with(BEGIN.as_bytes())
}

/// Decrypts a file.
///
/// # Errors
/// It has another form, was encrypted to other keys, or was changed.
pub fn open(bytes: &[u8], identities: &[Identity]) -> Result<Vec<u8>> {
    if bytes.len() > MAX {
        return Err(Error::new(format!("the age file has more than {MAX} bytes")));
    }
    let form = || Error::new("the age file has another form");
    let trimmed = bytes.trim_ascii();
    if trimmed.starts_with(BEGIN.as_bytes()) {
        return open_binary(&unarmored(trimmed).ok_or_else(form)?, identities);
    }
    open_binary(bytes, identities)
}

fn open_binary(bytes: &[u8], identities: &[Identity]) -> Result<Vec<u8>> {
    let form = || Error::new("the age file has another form");
    let header = Header::parse(bytes).ok_or_else(form)?;
    let mut key = None;
    for stanza in header.stanzas.iter().filter(|stanza| stanza.kind == "X25519") {
        let (share, body) = stanza.x25519().ok_or_else(form)?;
        let found = identities.iter().map(|identity| unwrap(identity, &share, body)).find_map(Result::transpose);
        key = match (key, found) {
            (None, Some(found)) => Some(found?),
            (key, _) => key,
        };
    }
    let key = key.ok_or_else(|| Error::new("the age file is encrypted to keys that are not here"))?;
    if !cipher::is_authentic(&cipher::derive(&key, &[], b"header"), header.signed, &header.mac) {
        return Err(Error::new("the age file's header was changed"));
    }
    payload(&key, header.rest).ok_or_else(|| Error::new("the age file is damaged, or was changed"))
}

/// The steps that an exchange of keys takes of the stage's budget: about as many as it takes time.
const EXCHANGE: usize = 1_500;

/// The key of the file, if the identity is its recipient.
fn unwrap(identity: &Identity, share: &[u8; KEY_LEN], body: &[u8]) -> Result<Option<Vec<u8>>> {
    budget::step(EXCHANGE)?;
    let shared = MontgomeryPoint(*share).mul_clamped(identity.scalar).0;
    if shared == [0; KEY_LEN] {
        return Err(Error::new("the age file has a share of low order"));
    }
    let key = cipher::derive(&shared, &[*share, identity.recipient].concat(), X25519.as_bytes());
    Ok(chacha::open(&key, &[0; NONCE_LEN], body))
}

/// Decrypts the pieces of the payload. Each has its number in its nonce, and the last one a mark.
fn payload(key: &[u8], rest: &[u8]) -> Option<Vec<u8>> {
    let (nonce, mut sealed) = rest.split_at_checked(FILE_NONCE)?;
    let key = cipher::derive(key, nonce, b"payload");
    let mut out = Vec::with_capacity(sealed.len());
    for number in 0u64.. {
        let (piece, after) = sealed.split_at_checked(PIECE + TAG_LEN).unwrap_or((sealed, &[]));
        let mut nonce = [0; NONCE_LEN];
        // Eleven bytes of the number, and the mark.
        let end = [&[0; 3], &number.to_be_bytes()[..], &[u8::from(after.is_empty())]].concat();
        nonce.iter_mut().zip(end).for_each(|(to, byte)| *to = byte);
        let plain = chacha::open(&key, &nonce, piece)?;
        // An empty payload has one empty piece; no other has one.
        if plain.is_empty() && number > 0 {
            return None;
        }
        out.extend_from_slice(&plain);
        if after.is_empty() {
            return Some(out);
        }
        sealed = after;
    }
    None
}

/// The header of a file.
struct Header<'a> {
    stanzas: Vec<Stanza<'a>>,
    /// What the MAC covers.
    signed: &'a [u8],
    mac: Vec<u8>,
    rest: &'a [u8],
}

/// A recipient: its kind, its arguments, and the wrapped key.
struct Stanza<'a> {
    kind: &'a str,
    arguments: Vec<&'a str>,
    body: Vec<u8>,
}

impl<'a> Header<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Header<'a>> {
        let mut rest = bytes.strip_prefix(VERSION)?;
        let mut stanzas = Vec::new();
        loop {
            let (line, after) = line_of(rest)?;
            let at = bytes.len() - rest.len();
            rest = after;
            if let Some(mac) = line.strip_prefix("--- ") {
                let mac = base64::decode_unpadded(mac)?;
                let signed = bytes.get(..at + "---".len()).filter(|signed| signed.len() <= MAX_HEADER)?;
                return (mac.len() == 32 && !stanzas.is_empty()).then_some(Header { stanzas, signed, mac, rest });
            }
            let mut words = line.strip_prefix("-> ")?.split(' ');
            let kind = words.next()?;
            let arguments: Vec<&str> = words.collect();
            let is_word = |word: &&str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_graphic());
            if !is_word(&kind) || !arguments.iter().all(is_word) || stanzas.len() >= MAX_STANZAS {
                return None;
            }
            let mut body = String::new();
            loop {
                let (line, after) = line_of(rest)?;
                rest = after;
                body.push_str(line);
                match line.len() {
                    COLUMNS if body.len() < MAX_HEADER => {}
                    ..COLUMNS => break,
                    _ => return None,
                }
            }
            stanzas.push(Stanza { kind, arguments, body: base64::decode_unpadded(&body)? });
        }
    }
}

impl Stanza<'_> {
    /// The share and the wrapped key of a recipient of the kind X25519.
    fn x25519(&self) -> Option<([u8; KEY_LEN], &[u8])> {
        let [share] = self.arguments.as_slice() else { return None };
        let share = base64::decode_unpadded(share)?.try_into().ok()?;
        (self.body.len() == FILE_KEY + TAG_LEN).then_some((share, &self.body))
    }
}

/// The first line, without its line feed, and what is after it.
fn line_of(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let end = bytes.get(..bytes.len().min(MAX_HEADER))?.iter().position(|b| *b == b'\n')?;
    Some((std::str::from_utf8(bytes.get(..end)?).ok()?, bytes.get(end + 1..)?))
}

/// The bytes in armor: lines of 64 characters, and a last one that may be shorter.
fn unarmored(bytes: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut lines = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    lines.next().filter(|first| *first == BEGIN)?;
    let (mut body, mut is_last) = (String::with_capacity(text.len()), false);
    for line in lines.by_ref() {
        if line == END {
            let is_end = lines.next().is_none();
            return is_end.then(|| base64::decode(body.as_bytes())).flatten();
        }
        if is_last || line.is_empty() || line.len() > COLUMNS {
            return None;
        }
        is_last = line.len() < COLUMNS;
        body.push_str(line);
    }
    None
}

/// A file that is encrypted to the identity, for tests.
#[cfg(test)]
#[cfg(feature = "tls")]
pub fn sealed(plain: &[u8], identity: &Identity) -> Vec<u8> {
    use ring::hmac::{HMAC_SHA256, Key, sign};
    let unpadded = |bytes: &[u8]| base64::encode(bytes).trim_end_matches('=').to_owned();
    let (own, key) = ([7; KEY_LEN], [9; FILE_KEY]);
    let share = MontgomeryPoint::mul_base_clamped(own).0;
    let shared = MontgomeryPoint(identity.recipient).mul_clamped(own).0;
    let wrapping = cipher::derive(&shared, &[share, identity.recipient].concat(), X25519.as_bytes());
    let body = chacha::seal(&wrapping, &[0; NONCE_LEN], &key);
    let head = format!("age-encryption.org/v1\n-> X25519 {}\n{}\n---", unpadded(&share), unpadded(&body));
    let mac = sign(&Key::new(HMAC_SHA256, &cipher::derive(&key, &[], b"header")), head.as_bytes());
    let mut file = format!("{head} {}\n", unpadded(mac.as_ref())).into_bytes();
    file.extend([5; FILE_NONCE]);
    let key = cipher::derive(&key, &[5; FILE_NONCE], b"payload");
    assert!(plain.len() <= PIECE);
    let mut nonce = [0; NONCE_LEN];
    nonce[NONCE_LEN - 1] = 1;
    file.extend(chacha::seal(&key, &nonce, plain));
    file
}

#[cfg(feature = "tls")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::digest::{Algorithm, digest};
    use crate::base::hex;
    use crate::base::testing::mutations;

    #[test]
    fn exchanges_of_keys_use_the_stages_budget() {
        let key = "AGE-SECRET-KEY-1EGTZVFFV20835NWYV6270LXYVK2VKNX2MMDKWYKLMGR48UAWX40Q2P2LM0";
        let own = identities("identities", key).unwrap();
        let file = sealed(b"secret", &own[0]);
        budget::begin();
        assert_eq!(open(&file, &own), Ok(b"secret".to_vec()));
        for steps in [1_000_000, 100] {
            while budget::step(steps).is_ok() {}
        }
        assert!(open(&file, &own).unwrap_err().to_string().contains("too many steps"));
        budget::begin();
    }

    /// The published vectors, of which the folder has those for X25519 (tests/age/README).
    #[test]
    fn published_vectors() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/age");
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let (name, path) = entry.map(|e| (e.file_name().into_string().unwrap(), e.path())).unwrap();
            if name == "README" {
                continue;
            }
            let bytes = std::fs::read(path).unwrap();
            let end = bytes.windows(2).position(|pair| pair == b"\n\n").unwrap();
            let head = std::str::from_utf8(&bytes[..end]).unwrap();
            let values = |key: &'static str| {
                head.lines().filter_map(move |line| line.strip_prefix(key)?.strip_prefix(": ")).collect::<Vec<_>>()
            };
            let file = match values("compressed").first() {
                Some(_) => miniz_oxide::inflate::decompress_to_vec_zlib(&bytes[end + 2..]).unwrap(),
                None => bytes[end + 2..].to_vec(),
            };
            let identities: Vec<Identity> = values("identity").into_iter().filter_map(Identity::parse).collect();
            let opened = open(&file, &identities);
            match values("expect")[0] {
                "success" => {
                    let opened = opened.unwrap_or_else(|e| panic!("{name}: {e}"));
                    let sum = hex::encode(&digest(Algorithm::Sha256, &opened));
                    assert_eq!(values("payload"), [sum], "{name}");
                }
                _ => assert!(opened.is_err(), "{name}"),
            }
            assert!(open(&file, &identities).is_err() || is_age(&file), "{name}");
            count += 1;
        }
        assert!(count > 80, "{count}");
    }

    #[test]
    fn changed_files_are_errors() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/age");
        let whole = std::fs::read(format!("{folder}/x25519")).unwrap();
        let end = whole.windows(2).position(|pair| pair == b"\n\n").unwrap();
        let key = std::str::from_utf8(&whole[..end]).unwrap().split("identity: ").nth(1).unwrap();
        let identities = identities("k", key).unwrap();
        let file = &whole[end + 2..];
        assert!(open(file, &identities).is_ok());
        mutations(file, 2000, |bytes| {
            if bytes != file {
                // A change of what surrounds it is none.
                assert!(open(bytes, &identities).is_err() || bytes.trim_ascii() == file.trim_ascii());
            }
        });
    }

    #[test]
    fn wrong_keys_are_errors_without_their_text() {
        let good = "AGE-SECRET-KEY-1EGTZVFFV20835NWYV6270LXYVK2VKNX2MMDKWYKLMGR48UAWX40Q2P2LM0";
        assert_eq!(identities("k", &format!("# a\n\n{good}\n{good}\n")).map(|found| found.len()).ok(), Some(2));
        for wrong in [
            "",
            "# a",
            "AGE-SECRET-KEY-1",
            "age1x",
            &good.to_ascii_lowercase(),
            &good.replace("LM0", "LM2"),
            &good[..good.len() - 1],
            &format!("{good}\n{}", &good[..20]),
        ] {
            let error = identities("k", wrong).err().map(|e| e.to_string()).unwrap();
            assert!(!error.contains("EGTZ"), "{error}");
        }
        mutations(good.as_bytes(), 2000, |bytes| {
            let _ = Identity::parse(&String::from_utf8_lossy(bytes));
        });
    }
}
