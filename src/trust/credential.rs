//! systemd's encrypted credentials, as `systemd-creds encrypt` makes them (systemd, src/shared/creds-util.c): AES-256-GCM under a
//! key of the machine's disk, of its TPM, of both, or under none, which proves nothing. Numbers are little-endian.

use super::cipher::{self, KEY_LEN, NONCE_LEN, TAG_LEN};
use super::unseal::{Sealed, Signed};
use crate::base::base64;
use crate::base::digest::{Algorithm, digest};
use crate::base::error::{Error, Result};
use crate::base::text::quoted;

/// The largest credential, encrypted, and the largest field of variable size (CREDENTIAL_ENCRYPTED_SIZE_MAX,
/// CREDENTIAL_FIELD_SIZE_MAX).
pub const MAX: usize = (1 << 20) + (128 << 10);
const MAX_FIELD: usize = 16 << 10;
/// The longest name (CREDENTIAL_NAME_MAX).
const MAX_NAME: usize = 255;
const KIND_LEN: usize = 16;
/// Fields are padded to this.
const ALIGNMENT: usize = 8;
/// A time that is not set.
const NEVER: u64 = u64::MAX;

/// The keys that a kind needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    Host,
    Tpm,
    /// A TPM whose policy is signed by a public key.
    SignedTpm,
    HostAndTpm,
    HostAndSignedTpm,
    /// A user of the running system.
    User,
}

/// Whether a field has the TPM's storage root key, as since systemd 262.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RootKey {
    Absent,
    Present,
}

/// The identifiers of the kinds, at the beginning.
const KINDS: [(&[u8; KIND_LEN], Needs, RootKey); 15] = [
    (b"\x05\x84\x69\xda\xf6\xf5\x43\x24\x80\x05\x49\xda\x0f\x8e\xa2\xfb", Needs::Nothing, RootKey::Absent),
    (b"\x5a\x1c\x6a\x86\xdf\x9d\x40\x96\xb1\xd5\xa6\x5e\x08\x62\xf1\x9a", Needs::Host, RootKey::Absent),
    (b"\x0c\x7c\xc0\x7b\x11\x76\x45\x91\x9c\x4b\x0b\xea\x08\xbc\x20\xfe", Needs::Tpm, RootKey::Absent),
    (b"\xfa\xf7\xeb\x93\x41\xe3\x41\x2c\xa1\xa4\x36\xf9\x5a\x29\x36\x2f", Needs::SignedTpm, RootKey::Absent),
    (b"\x93\xa8\x94\x09\x48\x74\x44\x90\x90\xca\xf2\xfc\x93\xca\xb5\x53", Needs::HostAndTpm, RootKey::Absent),
    (b"\xaf\x49\x50\xa8\x49\x13\x4e\xb1\xa7\x38\x46\x30\x4f\xf3\x0c\x05", Needs::HostAndSignedTpm, RootKey::Absent),
    (b"\x55\xb9\xed\x1d\x38\x59\x4d\x43\xa8\x31\x9d\x2e\xbb\x33\x2a\xc6", Needs::User, RootKey::Absent),
    (b"\xef\x4a\xc1\x36\x79\xa9\x48\x0e\xa7\xdb\x68\x89\x7f\x9f\x16\x5d", Needs::User, RootKey::Absent),
    (b"\xad\xbc\x4c\xa3\xef\xb6\x42\x01\xba\x88\x1b\x6f\x2e\x40\x95\xea", Needs::User, RootKey::Absent),
    (b"\xd4\x06\x2d\xfb\x71\xad\x4c\x86\x80\x4b\x40\xef\x11\x80\xf1\xfc", Needs::Tpm, RootKey::Present),
    (b"\x5e\x2d\x5c\x76\x03\x72\x4e\xaf\x84\x3c\x6f\xb5\xf6\x40\x98\xf5", Needs::SignedTpm, RootKey::Present),
    (b"\x14\x14\x25\x88\x18\xa2\x40\xcd\x90\x0b\xce\x86\x2d\xb5\xc7\xb9", Needs::HostAndTpm, RootKey::Present),
    (b"\xaf\xbf\xea\xac\xeb\x6a\x4a\x37\x95\x41\x9d\x13\x5c\x47\xf3\x7b", Needs::HostAndSignedTpm, RootKey::Present),
    (b"\x2a\x1f\x87\x7a\x42\x75\x43\x1a\xb3\xf9\xed\x1f\x5d\x8f\x66\x01", Needs::User, RootKey::Present),
    (b"\x16\xe4\x92\x94\x9f\x94\x40\x02\x86\x75\x8f\x94\xb7\xc5\x2b\xc7", Needs::User, RootKey::Present),
];

/// The keys that open a credential.
#[derive(Debug, Default)]
pub struct Keys {
    pub host: Option<Vec<u8>>,
    pub tpm: Option<Vec<u8>>,
}

/// A credential that was taken apart, and not decrypted.
pub struct Credential<'a> {
    needs: Needs,
    pub sealed: Option<Sealed<'a>>,
    head: &'a [u8],
    nonce: &'a [u8],
    body: &'a [u8],
}

/// The identifier of those under the key of the machine's disk.
#[cfg(test)]
pub const HOST_KIND: &[u8; KIND_LEN] = KINDS[1].0;

/// The bytes of a credential in base64, with line breaks, or binary. None if it is none.
pub fn decoded(bytes: &[u8]) -> Option<Vec<u8>> {
    if KINDS.iter().any(|(id, ..)| bytes.starts_with(*id)) {
        return Some(bytes.to_vec());
    }
    is_null(bytes)?;
    base64::decode_lines(bytes)
}

/// Whether the credential, in base64 or binary, is one under no key. None if the bytes are none.
pub fn is_null(bytes: &[u8]) -> Option<bool> {
    let start: Vec<u8> = bytes.iter().copied().filter(|b| !b.is_ascii_whitespace()).take(24).collect();
    let start = base64::decode(&start).unwrap_or_default();
    let kind = KINDS.iter().find(|(id, ..)| bytes.starts_with(*id) || start.starts_with(*id));
    kind.map(|(_, needs, _)| *needs == Needs::Nothing)
}

/// Reads fields.
struct Reader<'a> {
    whole: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let taken = self.whole.get(self.at..)?.get(..length)?;
        self.at += length;
        Some(taken)
    }

    fn number<const N: usize>(&mut self) -> Option<u64> {
        Some(self.take(N)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// The size of a field of variable size.
    fn size(&mut self) -> Option<usize> {
        usize::try_from(self.number::<4>()?).ok().filter(|size| *size <= MAX_FIELD)
    }

    /// Skips the padding, which is zero.
    fn align(&mut self) -> Option<()> {
        let padding = self.at.next_multiple_of(ALIGNMENT) - self.at;
        self.take(padding).map(drop)
    }
}

impl<'a> Credential<'a> {
    /// Takes a credential apart. None if it has another form.
    pub fn parse(bytes: &'a [u8]) -> Option<Credential<'a>> {
        let mut reader = Reader { whole: bytes, at: 0 };
        let id = reader.take(KIND_LEN).filter(|_| bytes.len() <= MAX)?;
        let (_, needs, root_key) = *KINDS.iter().find(|(own, ..)| *own == id)?;
        let sizes = [KEY_LEN, 1, NONCE_LEN, TAG_LEN];
        let has_them = sizes.iter().all(|size| reader.number::<4>() == u64::try_from(*size).ok());
        let nonce = reader.take(NONCE_LEN).filter(|_| has_them)?;
        reader.align()?;
        let is_signed = matches!(needs, Needs::SignedTpm | Needs::HostAndSignedTpm);
        let has_tpm = is_signed || matches!(needs, Needs::Tpm | Needs::HostAndTpm);
        let mut sealed = None;
        if has_tpm {
            let registers = reader.number::<8>()?;
            let [bank, primary] = [reader.number::<2>()?, reader.number::<2>()?].map(|n| u16::try_from(n).ok());
            let (blob, policy) = (reader.size()?, reader.size()?);
            let (blob, policy) = (reader.take(blob)?, reader.take(policy)?);
            reader.align()?;
            let mut signed = None;
            if is_signed {
                let (registers, key) = (reader.number::<8>()?, reader.size()?);
                signed = Some(Signed { registers, key: reader.take(key)? });
                reader.align()?;
            }
            let root_key = match root_key {
                RootKey::Absent => None,
                RootKey::Present => {
                    let size = reader.size()?;
                    let place = reader.take(size)?;
                    reader.align()?;
                    Some(place)
                }
            };
            sealed = Some(Sealed { registers, bank: bank?, primary: primary?, blob, policy, signed, root_key });
        }
        let (head, body) = bytes.split_at_checked(reader.at)?;
        Some(Credential { needs, sealed, head, nonce, body })
    }

    /// Whether it is encrypted under no key: anyone can make it, and read it.
    pub fn is_null(&self) -> bool {
        self.needs == Needs::Nothing
    }

    /// Whether it needs the key of the machine's disk.
    pub fn needs_host(&self) -> bool {
        matches!(self.needs, Needs::Host | Needs::HostAndTpm | Needs::HostAndSignedTpm)
    }

    /// Decrypts it. `name` is what it is used as, which an empty name in it fits; `now` is the time in microseconds since 1970, or
    /// None if it does not matter.
    ///
    /// # Errors
    /// A key is missing or another one; the credential was changed, is for another name, or its time has passed.
    pub fn open(&self, keys: &Keys, name: &str, now: Option<u64>) -> Result<Vec<u8>> {
        if self.needs == Needs::User {
            return Err(Error::new("the credential is for a user of the running system"));
        }
        let host = keys.host.as_deref().filter(|_| self.needs_host()).unwrap_or_default();
        let tpm = keys.tpm.as_deref().filter(|_| self.sealed.is_some()).unwrap_or_default();
        if self.needs_host() && host.is_empty() || self.sealed.is_some() && tpm.is_empty() {
            return Err(Error::new("the credential's key is not here"));
        }
        let key = digest(Algorithm::Sha256, &[host, tpm].concat());
        let plain = cipher::open(&key, self.nonce, self.head, self.body);
        let plain = plain.ok_or_else(|| Error::new("the credential is encrypted under another key, or was changed"))?;
        let inner = Inner::parse(&plain).ok_or_else(|| Error::new("the credential's content has another form"))?;
        if !inner.name.is_empty() && inner.name != name {
            return Err(Error::new(format!(
                "the credential is for the name {}, and is used as {}",
                quoted(inner.name),
                quoted(name)
            )));
        }
        if inner.not_after != NEVER && now.is_some_and(|now| inner.not_after < now) {
            return Err(Error::new("the credential's time has passed"));
        }
        Ok(inner.secret.to_vec())
    }
}

/// The decrypted part.
struct Inner<'a> {
    not_after: u64,
    name: &'a str,
    secret: &'a [u8],
}

impl<'a> Inner<'a> {
    fn parse(plain: &'a [u8]) -> Option<Inner<'a>> {
        let mut reader = Reader { whole: plain, at: 0 };
        let (made, not_after) = (reader.number::<8>()?, reader.number::<8>()?);
        let length = reader.size().filter(|length| *length <= MAX_NAME)?;
        let name = std::str::from_utf8(reader.take(length)?).ok()?;
        reader.align()?;
        let is_ordered = made == NEVER || not_after == NEVER || made < not_after;
        let is_named = name.is_empty() || is_name(name);
        (is_ordered && is_named).then(|| Inner { not_after, name, secret: plain.get(reader.at..).unwrap_or_default() })
    }
}

/// Whether systemd takes a name for a credential: a file name of printable ASCII, without a colon.
pub fn is_name(name: &str) -> bool {
    let is_plain = |b: u8| (b' '..0x7f).contains(&b) && b != b':' && b != b'/';
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_plain) && name != "." && name != ".."
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;
    use crate::base::hex;
    use crate::base::testing::{TempDir, mutations, skip};
    use crate::document::{Value, json};
    use crate::trust::swtpm::Swtpm;
    use crate::trust::{tpm, unseal};
    use std::process::{Command, Stdio};

    /// As systemd-creds made it, with the name prepivot.test and no key.
    const NULL: &str = "BYRp2vb1QySABUnaD46i+yAAAAABAAAADAAAABAAAAD7MQX9+jk2XS7Z5tEAAAAApkLZRQN1OnO3k8ViTQsd9C4OosYrOP4c\n\
                        dWJac/jNC5WP3qmRbkMR90nJeCSY3EbWmrhkq3mt9vw3xCAQB3MW2/Da+f8=\n";

    #[test]
    fn opens_systemds_credential_of_the_same_name() {
        let bytes = decoded(NULL.as_bytes()).unwrap();
        assert_eq!(decoded(&bytes).as_ref(), Some(&bytes));
        let credential = Credential::parse(&bytes).unwrap();
        assert!(credential.is_null() && !credential.needs_host());
        let open = |name: &str| credential.open(&Keys::default(), name, Some(1)).map_err(|e| e.to_string());
        assert_eq!(open("prepivot.test"), Ok(b"hello secret".to_vec()));
        assert!(open("other").unwrap_err().contains("is for the name \"prepivot.test\""));
        for other in ["", "#cloud-config\n", "BYRp2vb1QySABUna", "BYRp2vb1QySABUnaD46i+w==", "BYRp2vb1QySABUnaD46j+yAA"]
        {
            let bytes = decoded(other.as_bytes()).unwrap_or_default();
            assert!(Credential::parse(&bytes).is_none(), "{other}");
        }
        mutations(&bytes, 3000, |other| {
            if other != bytes
                && let Some(credential) = Credential::parse(other)
            {
                assert!(credential.open(&Keys::default(), "prepivot.test", None).is_err());
            }
        });
    }

    /// A credential of the kind at this place of the table, with fields of a TPM if the kind has them.
    fn made(kind: usize, key: &[u8], inner: &[u8]) -> Vec<u8> {
        let le = |n: u32| n.to_le_bytes();
        let (id, needs, root_key) = KINDS[kind];
        let mut head = [&id[..], &le(32), &le(1), &le(12), &le(16), &[7; 12], &[0; 4]].concat();
        let is_signed = [Needs::SignedTpm, Needs::HostAndSignedTpm].contains(&needs);
        if is_signed || [Needs::Tpm, Needs::HostAndTpm].contains(&needs) {
            head.extend(
                [&0x1000u64.to_le_bytes()[..], &[0xb, 0, 0x23, 0], &le(5), &le(32), b"blob!", &[1; 32]].concat(),
            );
            head.resize(head.len().next_multiple_of(8), 0);
        }
        if is_signed {
            head.extend([&0x800u64.to_le_bytes()[..], &le(3), b"PEM", &[0]].concat());
            head.resize(head.len().next_multiple_of(8), 0);
        }
        if root_key == RootKey::Present {
            head.extend([&le(5)[..], b"place"].concat());
            head.resize(head.len().next_multiple_of(8), 0);
        }
        let body = cipher::seal(&digest(Algorithm::Sha256, key), &[7; 12], &head, inner);
        [head, body].concat()
    }

    fn inner(made: u64, not_after: u64, name: &str, secret: &str) -> Vec<u8> {
        let length = u32::try_from(name.len()).unwrap().to_le_bytes();
        let mut inner = [&made.to_le_bytes()[..], &not_after.to_le_bytes(), &length, name.as_bytes()].concat();
        inner.resize(inner.len().next_multiple_of(8), 0);
        [&inner[..], secret.as_bytes()].concat()
    }

    #[test]
    fn each_kind_needs_its_keys() {
        for (kind, (_, needs, _)) in KINDS.into_iter().enumerate() {
            let (host, tpm) = match needs {
                Needs::Nothing | Needs::User => continue,
                Needs::Host => (true, false),
                Needs::Tpm | Needs::SignedTpm => (false, true),
                Needs::HostAndTpm | Needs::HostAndSignedTpm => (true, true),
            };
            let key = [if host { "host" } else { "" }, if tpm { "tpm" } else { "" }].concat();
            let bytes = made(kind, key.as_bytes(), &inner(NEVER, NEVER, "", "s"));
            let credential = Credential::parse(&bytes).unwrap();
            assert_eq!((credential.needs_host(), credential.sealed.is_some()), (host, tpm), "{kind}");
            let keys = |host: &str, tpm: &str| Keys { host: Some(host.into()), tpm: Some(tpm.into()) };
            assert_eq!(credential.open(&keys("host", "tpm"), "x", None), Ok(b"s".to_vec()), "{kind}");
            assert_eq!(credential.open(&keys("other", "tpm"), "x", None).is_err(), host);
            assert_eq!(credential.open(&keys("host", "other"), "x", None).is_err(), tpm);
            assert!(credential.open(&Keys::default(), "x", None).unwrap_err().to_string().contains("is not here"));
            mutations(&bytes, 1000, |bytes| {
                drop(Credential::parse(bytes).map(|c| c.open(&keys("host", "tpm"), "x", None)))
            });
        }
        let user = made(6, b"", &inner(NEVER, NEVER, "", "s"));
        assert!(Credential::parse(&user).unwrap().open(&Keys::default(), "x", None).is_err());
    }

    #[test]
    fn time_and_name_are_checked_as_by_systemd() {
        let open = |inner: &[u8], now: u64| {
            let bytes = made(0, b"", inner);
            Credential::parse(&bytes).unwrap().open(&Keys::default(), "n", Some(now)).map_err(|e| e.to_string())
        };
        assert!(open(&inner(5, 10, "n", "s"), 10).is_ok());
        assert!(open(&inner(5, 10, "n", "s"), 11).unwrap_err().contains("time has passed"));
        // The clock of a machine may be behind.
        assert!(open(&inner(5, 10, "n", "s"), 4).is_ok());
        for wrong in [
            inner(10, 10, "n", "s"),
            inner(5, 10, "a/b", "s"),
            inner(5, 10, "a:b", "s"),
            inner(5, 10, "..", "s"),
            inner(5, 10, &"n".repeat(256), "s"),
            inner(5, 10, "n\n", "s"),
            inner(5, 10, "n", "s")[..20].to_vec(),
        ] {
            assert!(open(&wrong, 1).unwrap_err().contains("another form"));
        }
        assert_eq!(open(&inner(NEVER, NEVER, "", ""), 1), Ok(Vec::new()));
    }

    /// `systemd-creds encrypt` with a TPM. None if the program is not there, or too old to know the TPM.
    fn by_systemd(arguments: &[&str], tpm: &Swtpm) -> Option<Vec<u8>> {
        let tpm = format!("--tpm2-device={}", tpm.name());
        let mut command = Command::new("systemd-creds");
        command.args(["encrypt", &tpm, "--name=n"]).args(arguments).args(["-", "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| skip(format_args!("systemd-creds: {e}"))).ok()?;
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"hello secret").unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(output.stdout)
    }

    #[test]
    fn tpm_unseals_what_systemd_has_sealed() {
        let dir = TempDir::new("credential-swtpm");
        let Some(swtpm) = Swtpm::start(&dir.0) else { return };
        for arguments in [["--with-key=tpm2", "--tpm2-pcrs=12"], ["--with-key=tpm2", "--tpm2-pcrs="]] {
            let Some(text) = by_systemd(&arguments, &swtpm) else { return };
            let bytes = decoded(&text).unwrap();
            let credential = Credential::parse(&bytes).unwrap();
            let sealed = credential.sealed.as_ref().unwrap();
            assert_eq!(sealed.registers, if arguments[1].ends_with("12") { 1 << 12 } else { 0 });
            let mut tpm = swtpm.connect();
            // Twice: nothing stays in the TPM.
            for _ in 0..5 {
                let secret = unseal::unseal(&mut tpm, sealed, &Value::Null).unwrap();
                let keys = Keys { tpm: Some(secret), ..Keys::default() };
                assert_eq!(credential.open(&keys, "n", Some(1)), Ok(b"hello secret".to_vec()));
            }
            let banks = tpm::banks(&mut tpm, 12).unwrap();
            let digests: Vec<_> = banks.iter().map(|bank| (bank.algorithm, digest(bank.algorithm, b"other"))).collect();
            tpm::extend(&mut tpm, 12, &banks, &digests).unwrap();
            let after = unseal::unseal(&mut tpm, sealed, &Value::Null).map_err(|e| e.to_string());
            assert_eq!(after.is_ok(), sealed.registers == 0);
            if let Err(e) = after {
                assert!(e.contains("other values of the TPM's registers"), "{e}");
            }
            mutations(sealed.blob, 60, |blob| {
                let other = Sealed { blob, registers: 0, ..*sealed };
                assert!(blob == sealed.blob || unseal::unseal(&mut tpm, &other, &Value::Null).is_err());
            });
        }
    }

    /// What `systemd-measure sign` writes for the value of PCR 11, by openssl.
    fn signatures(dir: &TempDir, key: &str, value: &[u8]) -> Value {
        let selection = [0, 0, 0, 1, 0, 0xb, 3, 0, 8, 0];
        let values = digest(Algorithm::Sha256, value);
        let policy = digest(Algorithm::Sha256, &[&[0; 32][..], &[0, 0, 1, 0x7f], &selection, &values].concat());
        dir.write("policy", &policy);
        let signed =
            Command::new("openssl").args(["dgst", "-sha256", "-sign", key, "policy"]).current_dir(&dir.0).output();
        let (policy, signature) = (hex::encode(&policy), base64::encode(&signed.unwrap().stdout));
        let text = format!("{{\"sha256\": [{{\"pcrs\": [11], \"pol\": \"{policy}\", \"sig\": \"{signature}\"}}]}}");
        json::parse("s", text.as_bytes()).unwrap()
    }

    #[test]
    fn tpm_unseals_by_a_signed_policy() {
        let dir = TempDir::new("credential-signed");
        let openssl = |words: &str| {
            let done = Command::new("openssl").args(words.split(' ')).current_dir(&dir.0).output();
            done.is_ok_and(|output| output.status.success())
        };
        if !(openssl("genrsa -out pcr.key 2048") && openssl("genrsa -out other.key 2048")) {
            return skip("openssl makes no key");
        }
        openssl("rsa -in pcr.key -pubout -out pcr.pem");
        let Some(swtpm) = Swtpm::start(&dir.0) else { return };
        let mut tpm = swtpm.connect();
        let bank = *tpm::banks(&mut tpm, 11).unwrap().iter().find(|bank| bank.algorithm == Algorithm::Sha256).unwrap();
        let key = format!("--tpm2-public-key={}", dir.0.join("pcr.pem").display());
        for fixed in ["--tpm2-pcrs=", "--tpm2-pcrs=7"] {
            let words = ["--with-key=tpm2-with-public-key", &key, "--tpm2-public-key-pcrs=11", fixed];
            let Some(text) = by_systemd(&words, &swtpm) else { return };
            let bytes = decoded(&text).unwrap();
            let credential = Credential::parse(&bytes).unwrap();
            let sealed = credential.sealed.as_ref().unwrap();
            assert_eq!(sealed.signed.map(|signed| signed.registers), Some(1 << 11));
            let value = tpm::read(&mut tpm, 11, bank).unwrap();
            let good = signatures(&dir, "pcr.key", &value);
            for _ in 0..4 {
                let secret = unseal::unseal(&mut tpm, sealed, &good).unwrap();
                let keys = Keys { tpm: Some(secret), ..Keys::default() };
                assert_eq!(credential.open(&keys, "n", Some(1)), Ok(b"hello secret".to_vec()));
            }
            let other_key = signatures(&dir, "other.key", &value);
            let other_value = signatures(&dir, "pcr.key", &[7; 32]);
            for other in [Value::Null, other_key, other_value] {
                let error = unseal::unseal(&mut tpm, sealed, &other).unwrap_err().to_string();
                assert!(error.contains("has no signature by its key"), "{error}");
            }
            // Another kernel, whose values the same key signs.
            tpm::extend(&mut tpm, 11, &[bank], &[(Algorithm::Sha256, digest(Algorithm::Sha256, b"kernel"))]).unwrap();
            assert!(unseal::unseal(&mut tpm, sealed, &good).is_err());
            let value = tpm::read(&mut tpm, 11, bank).unwrap();
            assert!(unseal::unseal(&mut tpm, sealed, &signatures(&dir, "pcr.key", &value)).is_ok());
        }
    }
}
