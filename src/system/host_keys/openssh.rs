//! SSH keys as bytes and text: public keys of RFC 4253, section 6.6 (RSA), RFC 5656, section 3.1 (ECDSA), and RFC 8709, section
//! 4 (Ed25519), and OpenSSH's files of private keys (PROTOCOL.key in OpenSSH's source).
//!
//! Only what host keys need is here, because the crate `ssh-key` takes 57 KB more.

use crate::base::base64;
use crate::base::digest::{Algorithm, digest};

const BEGIN: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";
const END: &str = "-----END OPENSSH PRIVATE KEY-----";
/// The first bytes of a private key.
const MAGIC: &[u8] = b"openssh-key-v1\0";
/// The cipher and the key derivation of a private key that is not encrypted.
const NONE: &[u8] = b"none";
/// Characters in a line of the file, as ssh-keygen writes it.
const WIDTH: usize = 70;
/// The block size of the private part without a cipher, in bytes.
const BLOCK: usize = 8;
/// The first byte of a point that is given by both coordinates (SEC 1, section 2.3.3).
const UNCOMPRESSED: u8 = 4;
const ED25519: &str = "ssh-ed25519";
const ECDSA_P256: &str = "ecdsa-sha2-nistp256";
const RSA: &str = "ssh-rsa";

/// The form of a type's public keys.
enum Form {
    /// Two integers: the exponent, and the modulus, whose length is the key's.
    Rsa,
    /// The curve's name, and a point with coordinates of so many bytes, uncompressed: OpenSSH reads no other form.
    Point { curve: &'static str, coordinate: usize, bits: usize },
    /// 32 bytes.
    Ed25519,
}

/// A type of keys.
struct Type {
    /// As in the key itself.
    name: &'static str,
    /// As ssh-keygen -l prints it.
    label: &'static str,
    public: Form,
    /// How many fields a private key has after those of the public key.
    private: usize,
}

const fn ecdsa(name: &'static str, curve: &'static str, coordinate: usize, bits: usize) -> Type {
    Type { name, label: "ECDSA", public: Form::Point { curve, coordinate, bits }, private: 1 }
}

/// The types of host keys.
const TYPES: [Type; 5] = [
    Type { name: ED25519, label: "ED25519", public: Form::Ed25519, private: 1 },
    ecdsa(ECDSA_P256, "nistp256", 32, 256),
    ecdsa("ecdsa-sha2-nistp384", "nistp384", 48, 384),
    ecdsa("ecdsa-sha2-nistp521", "nistp521", 66, 521),
    Type { name: RSA, label: "RSA", public: Form::Rsa, private: 4 },
];

/// Bytes that are still to be read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn number(&mut self) -> Option<u32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*bytes))
    }

    /// A string: its length, then its bytes (RFC 4251, section 5).
    fn string(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (string, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(string)
    }
}

/// Strings, each after its length.
fn strings(fields: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for field in fields {
        // No field is longer than a host name or a key.
        out.extend(u32::try_from(field.len()).unwrap_or(u32::MAX).to_be_bytes());
        out.extend_from_slice(field);
    }
    out
}

/// A positive integer, most significant byte first, as the bytes of a string: without leading zeros, except one if it would be
/// negative otherwise (RFC 4251, section 5, "mpint").
fn integer(bytes: &[u8]) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|b| **b == 0).count();
    let digits = bytes.get(zeros..).unwrap_or_default();
    let sign: &[u8] = if digits.first().is_some_and(|b| b & 0x80 != 0) { &[0] } else { &[] };
    [sign, digits].concat()
}

/// The length of a positive integer, in bits. None if it is not in the form of [`integer`].
fn bits(string: &[u8]) -> Option<usize> {
    let digits = string.strip_prefix(&[0]).unwrap_or(string);
    let first = digits.first()?;
    (integer(digits) == string).then(|| digits.len() * 8 - first.leading_zeros() as usize)
}

/// The type of a public key and its length in bits. None if it is of no type in [`TYPES`] or not in the form of its type.
fn described(public: &[u8]) -> Option<(&'static Type, usize)> {
    let mut reader = Reader(public);
    let name = reader.string()?;
    let kind = TYPES.iter().find(|t| t.name.as_bytes() == name)?;
    let length = match kind.public {
        Form::Rsa => {
            bits(reader.string()?)?;
            bits(reader.string()?)?
        }
        Form::Point { curve, coordinate, bits } => {
            let (name, point) = (reader.string()?, reader.string()?);
            let is_point = point.first() == Some(&UNCOMPRESSED) && point.len() == 1 + 2 * coordinate;
            (name == curve.as_bytes() && is_point).then_some(bits)?
        }
        Form::Ed25519 => (reader.string()?.len() == 32).then_some(256)?,
    };
    reader.0.is_empty().then_some((kind, length))
}

/// A key pair.
pub struct Pair {
    /// The name of its type.
    name: &'static str,
    /// The public key: its type, then its fields.
    public: Vec<u8>,
    /// The fields that a private key has after those.
    private: Vec<u8>,
}

impl Pair {
    /// An Ed25519 key: 32 bytes each.
    pub fn ed25519(private: &[u8], public: &[u8]) -> Pair {
        Pair {
            name: ED25519,
            public: strings(&[ED25519.as_bytes(), public]),
            private: strings(&[&[private, public].concat()]),
        }
    }

    /// An ECDSA key on the curve P-256: the number, most significant byte first, and the point, uncompressed.
    pub fn p256(private: &[u8], public: &[u8]) -> Pair {
        Pair {
            name: ECDSA_P256,
            public: strings(&[ECDSA_P256.as_bytes(), b"nistp256", public]),
            private: strings(&[&integer(private)]),
        }
    }

    /// The public key's line, without a line feed.
    pub fn public_line(&self, comment: &str) -> String {
        public_line(self.name, &self.public, comment)
    }

    /// The private key's file. It is not encrypted.
    pub fn private_file(&self, comment: &str) -> String {
        // Two equal numbers, which reveal a wrong passphrase; there is no passphrase here.
        let mut secret = vec![0; 8];
        secret.extend_from_slice(&self.public);
        secret.extend_from_slice(&self.private);
        secret.extend(strings(&[comment.as_bytes()]));
        secret.extend((1..).take(secret.len().next_multiple_of(BLOCK) - secret.len()));
        let mut bytes = MAGIC.to_vec();
        bytes.extend(strings(&[NONE, NONE, &[]]));
        bytes.extend(1u32.to_be_bytes());
        bytes.extend(strings(&[&self.public, &secret]));
        in_lines(&bytes)
    }
}

/// The text of a private key's file.
fn in_lines(bytes: &[u8]) -> String {
    let mut file = format!("{BEGIN}\n");
    for (at, letter) in base64::encode(bytes).char_indices() {
        if at > 0 && at % WIDTH == 0 {
            file.push('\n');
        }
        file.push(letter);
    }
    file + "\n" + END + "\n"
}

/// A public key as a line of text: type, base64 and comment.
fn public_line(name: &str, public: &[u8], comment: &str) -> String {
    format!("{name} {} {comment}", base64::encode(public))
}

/// The public key in the file of a private key, as a line with the comment root@localhost. The file has it in clear even if the
/// private key is encrypted. None if the file has another format, or is inconsistent.
pub fn public_of(private: &str) -> Option<String> {
    let text = private.trim().strip_prefix(BEGIN)?.strip_suffix(END)?;
    // OpenSSH ignores the ends of lines, wherever they are.
    let bytes = base64::decode(text.replace(['\r', '\n'], "").as_bytes())?;
    let mut reader = Reader(bytes.strip_prefix(MAGIC)?);
    let (cipher, derivation, options) = (reader.string()?, reader.string()?, reader.string()?);
    let count = reader.number()?;
    let (public, secret) = (reader.string()?, reader.string()?);
    let (kind, _) = described(public)?;
    let is_whole = if cipher == NONE {
        let fits = fits_public(secret, public, kind).is_some();
        fits && derivation == NONE && options.is_empty() && reader.0.is_empty()
    } else {
        // The ciphertext may be followed by a tag, whose length depends on the cipher.
        derivation != NONE && secret.len() >= BLOCK
    };
    (count == 1 && is_whole).then(|| public_line(kind.name, public, "root@localhost"))
}

/// Some if `secret`, the private part of a file that is not encrypted, has the form of the public key's (PROTOCOL.key, section
/// 3). The private fields themselves are not checked.
fn fits_public(secret: &[u8], public: &[u8], kind: &Type) -> Option<()> {
    let mut reader = Reader(secret);
    let is_checked = reader.number()? == reader.number()?;
    if kind.name == RSA {
        // Here, n comes before e.
        let [name, n, e] = [reader.string()?, reader.string()?, reader.string()?];
        (strings(&[name, e, n]) == public).then_some(())?;
    } else {
        reader.0 = reader.0.strip_prefix(public)?;
    }
    // The comment follows the private fields.
    for _ in 0..=kind.private {
        reader.string()?;
    }
    let padding = reader.0.len();
    let is_padded = padding < BLOCK && reader.0.iter().copied().eq((1..).take(padding));
    (is_checked && is_padded && secret.len().is_multiple_of(BLOCK)).then_some(())
}

/// A public key's description as `ssh-keygen -l` prints it: bits, fingerprint, comment and type. `line` is the key as in its
/// file. None if it is not a key in one of the forms that host keys have.
pub fn fingerprint(line: &str) -> Option<String> {
    let mut parts = line.trim_end().splitn(3, ' ');
    let [name, text] = [parts.next()?, parts.next()?];
    let public = base64::decode(text.as_bytes())?;
    let (kind, bits) = described(&public).filter(|(kind, _)| kind.name == name)?;
    let comment = parts.next().filter(|c| !c.is_empty()).unwrap_or("no comment");
    let hash = base64::encode(&digest(Algorithm::Sha256, &public));
    Some(format!("{bits} SHA256:{} {comment} ({})", hash.trim_end_matches('='), kind.label))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::{TempDir, skip};
    use ssh_key::{HashAlg, LineEnding, PrivateKey, PublicKey};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::process::{Command, Output};

    const COMMENT: &str = "root@h";

    /// A key of a type in [`TYPES`], of these fields: the numbers need not belong together, which neither this module nor the
    /// crate `ssh-key` checks.
    fn pair(name: &'static str, public: &[&[u8]], private: &[&[u8]]) -> Pair {
        Pair { name, public: strings(&[&[name.as_bytes()], public].concat()), private: strings(private) }
    }

    /// A key of every type.
    fn pairs() -> Vec<Pair> {
        let point = |coordinate: usize| [[UNCOMPRESSED].as_slice(), &vec![0x5a; 2 * coordinate]].concat();
        let modulus = [[0, 0xc5].as_slice(), &[7; 31]].concat();
        vec![
            Pair::ed25519(&[0x11; 32], &[0x22; 32]),
            Pair::p256(&[0x7f; 32], &point(32)),
            Pair::p256(&[0x80; 32], &point(32)),
            pair("ecdsa-sha2-nistp384", &[b"nistp384", &point(48)], &[&[0x33; 48]]),
            pair("ecdsa-sha2-nistp521", &[b"nistp521", &point(66)], &[&[0x01; 66]]),
            pair(RSA, &[&[1, 0, 1], &modulus], &[&[0x44; 32], &[0x55; 16], &[0x66; 16], &[0x77; 16]]),
        ]
    }

    /// The file of a private key: in it, an RSA key has its modulus first.
    fn file(pair: &Pair) -> String {
        if pair.name != RSA {
            return pair.private_file(COMMENT);
        }
        let mut reader = Reader(&pair.public);
        let [name, e, n] = [(); 3].map(|()| reader.string().unwrap());
        let turned = Pair { name: RSA, public: strings(&[name, n, e]), private: pair.private.clone() };
        let bytes = bytes(&turned.private_file(COMMENT));
        // The public key in clear comes first.
        let at = bytes.windows(turned.public.len()).position(|w| w == turned.public).unwrap();
        in_lines(&[&bytes[..at], &pair.public, &bytes[at + pair.public.len()..]].concat())
    }

    /// The bytes in a private key's file.
    fn bytes(file: &str) -> Vec<u8> {
        let text: String = file.lines().filter(|line| !line.starts_with('-')).collect();
        base64::decode(text.as_bytes()).unwrap()
    }

    /// [`public_of`], by the crate `ssh-key`. It also reads some fields whose length is too large, but does not write them.
    fn public_by_ssh_key(file: &str) -> Option<String> {
        let key = PrivateKey::from_openssh(file.trim()).ok().filter(|key| *key.to_bytes().unwrap() == bytes(file))?;
        PublicKey::new(key.public_key().key_data().clone(), "root@localhost").to_openssh().ok()
    }

    /// [`fingerprint`], by the crate `ssh-key`. It also reads some fields whose length is too large, negative integers and
    /// compressed points, which OpenSSH does not.
    fn fingerprint_by_ssh_key(line: &str) -> Option<String> {
        let is_same = |key: &PublicKey| line.split(' ').nth(1) == Some(&base64::encode(&key.to_bytes().unwrap()));
        let key = PublicKey::from_openssh(line).ok().filter(is_same)?;
        let data = key.key_data();
        let (bits, label) = if let Some(rsa) = data.rsa() {
            rsa.e.as_positive_bytes()?;
            let n = rsa.n.as_positive_bytes()?;
            (n.len() * 8 - n.first()?.leading_zeros() as usize, "RSA")
        } else if let Some(ecdsa) = data.ecdsa() {
            let bits = match ecdsa.curve() {
                ssh_key::EcdsaCurve::NistP256 => 256,
                ssh_key::EcdsaCurve::NistP384 => 384,
                ssh_key::EcdsaCurve::NistP521 => 521,
            };
            (ecdsa.as_sec1_bytes().first() == Some(&UNCOMPRESSED)).then_some((bits, "ECDSA"))?
        } else {
            data.ed25519().map(|_| (256, "ED25519"))?
        };
        let comment = if key.comment().is_empty() { "no comment" } else { key.comment() };
        Some(format!("{bits} {} {comment} ({label})", key.fingerprint(HashAlg::Sha256)))
    }

    /// Damaged variants of a sound key: cut off after each byte, with each bit turned, with each four bytes as a length that is too
    /// large, and with bytes after its end.
    fn damaged(sound: &[u8]) -> impl Iterator<Item = Vec<u8>> {
        let cut = (0..sound.len()).map(|n| sound[..n].to_vec());
        let turned = (0..sound.len() * 8).map(|bit| {
            let mut bytes = sound.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes
        });
        let large = (0..sound.len() - 3).flat_map(|at| {
            let rest = u32::try_from(sound.len() - at - 4).unwrap();
            [u32::MAX, rest, rest + 1].map(|length| {
                let mut bytes = sound.to_vec();
                bytes[at..at + 4].copy_from_slice(&length.to_be_bytes());
                bytes
            })
        });
        let longer = [&[0][..], &[1], &[0; 4], &[0; 8], &[0xff; 8], &[1, 2, 3, 4, 5, 6, 7, 8]];
        cut.chain(turned).chain(large).chain(longer.into_iter().map(move |end| [sound, end].concat()))
    }

    #[test]
    fn ssh_key_reads_what_is_written() {
        for pair in pairs() {
            let file = file(&pair);
            let key = PrivateKey::from_openssh(&file).unwrap();
            assert_eq!(key.comment(), COMMENT);
            assert_eq!(key.public_key().to_openssh().unwrap(), pair.public_line(COMMENT));
            assert_eq!(*key.to_openssh(LineEnding::LF).unwrap(), file, "{}", pair.name);
        }
        let key = PrivateKey::from_openssh(file(&pairs()[0])).unwrap();
        let pair = key.key_data().ed25519().unwrap();
        assert_eq!((pair.private.to_bytes(), pair.public.0), ([0x11; 32], [0x22; 32]));
        for (at, number) in [(1, [0x7f; 32]), (2, [0x80; 32])] {
            let key = PrivateKey::from_openssh(file(&pairs()[at])).unwrap();
            let pair = key.key_data().ecdsa().unwrap();
            assert_eq!((pair.private_key_bytes(), &pair.public_key_bytes()[1..]), (&number[..], &[0x5a; 64][..]));
        }
    }

    #[test]
    fn what_ssh_key_writes_is_read() {
        for pair in pairs() {
            let key = PrivateKey::from_bytes(&bytes(&file(&pair))).unwrap();
            for ending in [LineEnding::LF, LineEnding::CRLF, LineEnding::CR] {
                let text = key.to_openssh(ending).unwrap();
                assert_eq!(public_of(&text), Some(pair.public_line("root@localhost")));
            }
            for comment in ["", "root@h", " two  words, é"] {
                let line = PublicKey::new(key.public_key().key_data().clone(), comment).to_openssh().unwrap();
                let found = fingerprint(&line).unwrap();
                assert_eq!(Some(&found), fingerprint_by_ssh_key(&line).as_ref());
                assert_eq!(fingerprint(&format!("{line}\r\n")).as_ref(), Some(&found));
                assert_eq!(public_line(pair.name, &pair.public, comment).trim_end(), line);
            }
        }
    }

    /// A changed file has no key, or the same one if only a private field changed. Every file that `ssh-key` accepts is accepted.
    #[test]
    fn damaged_files() {
        for pair in pairs() {
            let (sound, line) = (bytes(&file(&pair)), pair.public_line("root@localhost"));
            let mut same = 0;
            for bytes in damaged(&sound).filter(|bytes| *bytes != sound) {
                let file = in_lines(&bytes);
                let found = public_of(&file);
                assert!(found.is_none() || bytes.len() == sound.len() && found.as_ref() == Some(&line), "{file}");
                let theirs = public_by_ssh_key(&file);
                assert!(theirs.is_none() || theirs == found, "{file}");
                same += usize::from(found.is_some());
            }
            assert!(same > pair.private.len(), "{}", pair.name);
            let text = file(&pair);
            for end in 0..text.trim_end().len() {
                assert_eq!(public_of(&text[..end]), None);
            }
        }
    }

    #[test]
    fn damaged_public_keys() {
        for pair in pairs() {
            let mut read = 0;
            for bytes in damaged(&pair.public) {
                for name in TYPES.map(|t| t.name) {
                    let line = public_line(name, &bytes, COMMENT);
                    let found = fingerprint(&line);
                    assert_eq!(found, fingerprint_by_ssh_key(&line), "{line}");
                    assert!(found.is_none() || name == pair.name, "{line}");
                    read += usize::from(found.is_some());
                }
            }
            assert!(read > 200, "{}", pair.name);
        }
    }

    #[test]
    fn lines_that_are_no_public_keys() {
        let line = pairs()[0].public_line(COMMENT);
        let text = line.split(' ').nth(1).unwrap();
        for wrong in [
            "",
            " ",
            "ssh-ed25519",
            "ssh-ed25519 ",
            "ssh-ed25519 AAAA",
            "ssh-ed25519 \u{e9}",
            &format!(" {line}"),
            &line.replacen(' ', "  ", 1),
            &line.replacen(' ', "\t", 1),
            &format!("ssh-ed25519 {text}= x"),
            &format!("ssh-ed25519 {} x", text.trim_end_matches(|c| c != 'I')),
            &format!("restrict {line}"),
        ] {
            assert_eq!((fingerprint(wrong), fingerprint_by_ssh_key(wrong)), (None, None), "{wrong:?}");
        }
    }

    /// Integers of no bytes, with a needless zero, and below zero.
    #[test]
    fn an_integer_has_one_form() {
        for (number, string) in
            [(&[0, 0, 5][..], &[5][..]), (&[0x80], &[0, 0x80]), (&[0x7f, 0], &[0x7f, 0]), (&[0], &[])]
        {
            assert_eq!(integer(number), string);
        }
        for (string, length) in [(&[1][..], Some(1)), (&[0x7f], Some(7)), (&[0, 0x80], Some(8)), (&[1, 0], Some(9))] {
            assert_eq!(bits(string), length);
        }
        for wrong in [&[][..], &[0], &[0, 0], &[0, 1], &[0, 0x7f], &[0, 0, 0x80], &[0x80], &[0xff, 1]] {
            assert_eq!(bits(wrong), None, "{wrong:?}");
        }
    }

    /// The public key is in clear, and the ciphertext is ignored.
    #[test]
    fn an_encrypted_file_has_its_public_key() {
        let pair = &pairs()[0];
        let file = |cipher: &[u8], derivation: &[u8], secret: &[u8], tag: &[u8]| {
            let options = [strings(&[b"a salt of 16 byt"]), 16u32.to_be_bytes().to_vec()].concat();
            let start = [MAGIC, &strings(&[cipher, derivation, &options]), &1u32.to_be_bytes()].concat();
            in_lines(&[start, strings(&[&pair.public, secret]), tag.to_vec()].concat())
        };
        for (cipher, tag) in [("aes256-ctr", &[][..]), ("aes256-gcm@openssh.com", &[9; 16])] {
            let file = file(cipher.as_bytes(), b"bcrypt", &[7; 144], tag);
            assert_eq!(public_of(&file), Some(pair.public_line("root@localhost")));
            assert_eq!(public_of(&file), public_by_ssh_key(&file));
        }
        for wrong in [file(b"aes256-ctr", NONE, &[7; 144], &[]), file(NONE, b"bcrypt", &[7; 144], &[])] {
            assert_eq!((public_of(&wrong), public_by_ssh_key(&wrong)), (None, None), "{wrong}");
        }
        assert_eq!(public_of(&file(b"aes256-ctr", b"bcrypt", &[], &[])), None);
    }

    /// Runs ssh-keygen in a folder. None, with the test recorded as skipped, if there is no ssh-keygen.
    fn ssh_keygen(dir: &TempDir, arguments: &[&str]) -> Option<Output> {
        let program = Path::new("/usr/bin/ssh-keygen");
        if !program.exists() {
            skip("there is no ssh-keygen");
            return None;
        }
        Some(Command::new(program).args(arguments).current_dir(&dir.0).output().unwrap())
    }

    fn said(output: Output) -> String {
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn what_ssh_keygen_writes_is_read() {
        let dir = TempDir::new("ssh-keygen");
        for (kind, bits) in [("ed25519", "256"), ("ecdsa", "256"), ("ecdsa", "384"), ("ecdsa", "521"), ("rsa", "2048")]
        {
            for passphrase in ["", "a passphrase"] {
                let name = format!("{kind}-{bits}-{}", passphrase.len());
                let make = ["-q", "-t", kind, "-b", bits, "-N", passphrase, "-C", "root@localhost", "-f", &name];
                let Some(made) = ssh_keygen(&dir, &make) else { return };
                said(made);
                let [private, public] =
                    [&name, &format!("{name}.pub")].map(|name| std::fs::read_to_string(dir.0.join(name)).unwrap());
                assert_eq!(public_of(&private).as_deref(), Some(public.trim_end()), "{name}");
                let described = said(ssh_keygen(&dir, &["-l", "-f", &format!("{name}.pub")]).unwrap());
                assert_eq!(fingerprint(&public), Some(described), "{name}");
            }
        }
    }

    /// A number with zeros at its start is shorter in OpenSSH's files, and so it is in this program's.
    #[test]
    fn ssh_keygen_reads_numbers_with_leading_zeros() {
        let dir = TempDir::new("zeros");
        let number = [[0; 3].as_slice(), &[0x9d; 29]].concat();
        let public = p256::SecretKey::from_slice(&number).unwrap().public_key();
        let pair = Pair::p256(&number, p256::Sec1Point::from(public).as_bytes());
        let text = file(&pair);
        assert_eq!(public_of(&text), Some(pair.public_line("root@localhost")));
        let path = dir.0.join("key");
        std::fs::write(&path, &text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        let Some(read) = ssh_keygen(&dir, &["-y", "-f", "key"]) else { return };
        assert_eq!(said(read), pair.public_line(COMMENT));
        // It writes the key again in its own way.
        said(ssh_keygen(&dir, &["-q", "-p", "-P", "", "-N", "", "-f", "key"]).unwrap());
        let [ours, theirs] = [text, std::fs::read_to_string(&path).unwrap()].map(|text| bytes(&text));
        let at = ours.len() - theirs.len() + ours.windows(8).position(|w| w == [0; 8]).unwrap();
        assert_eq!(
            (&ours[..at], &ours[at + 8..]),
            (&theirs[..at], &theirs[at + 8..]),
            "all but the two random numbers"
        );
    }
}
