//! Policies, and attacks on them, with signatures that OpenSSH and OpenSSL make.

use super::policy::{COPY, FOLDER};
use super::*;
use crate::base::digest::{Algorithm, digest};
use crate::base::hex;
use crate::base::testing::{TempDir, skip};
use crate::document::Map;
use crate::machine::Machine;
use std::process::{Command, Stdio};

mod attacks;
#[cfg(feature = "tls")]
mod endorsed;

const DOCUMENT: &str = "#cloud-config\nhostname: signed\n";
const NOW: u64 = 1_800_000_000;

/// Runs a program. False, counted as skipped, if it is absent.
pub(super) fn run(program: &str, arguments: &[&str], folder: &TempDir) -> bool {
    let output = Command::new(program).args(arguments).current_dir(&folder.0).stdin(Stdio::null()).output();
    match output {
        Ok(output) => {
            assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            true
        }
        Err(e) => {
            skip(format!("{program}: {e}"));
            false
        }
    }
}

/// A machine with a policy, and a folder for keys.
struct Lab {
    dir: TempDir,
    now: Circumstances,
}

impl Lab {
    /// One with a key of this type as `key`, and another as `other`. None if there is no ssh-keygen.
    fn with_key(name: &str, kind: &str) -> Option<Lab> {
        let dir = TempDir::new(name);
        for key in ["key", "other"] {
            if !run("ssh-keygen", &["-q", "-t", kind, "-N", "", "-C", "", "-f", key], &dir) {
                return None;
            }
        }
        let now = Circumstances {
            now: NOW,
            uuid: Some("0a-1".into()),
            macs: vec!["52:54:00:00:00:01".into()],
            is_fresh: true,
            ..Circumstances::default()
        };
        let lab = Lab { dir, now };
        lab.policy("user-data = signature\nmetadata = use\nnetwork-config = use\nvendor-data = refuse\n");
        lab.write("allowed_signers", &format!("release@example {}", lab.key("key")));
        Some(lab)
    }

    fn key(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.0.join(format!("{name}.pub"))).unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        self.dir.write(&format!("{FOLDER}/{name}"), text);
    }

    fn policy(&self, text: &str) {
        self.write("trust.conf", text);
    }

    /// The signature of a text, in armor.
    fn signature(&self, key: &str, namespace: &str, text: &[u8]) -> String {
        self.dir.write("message", text);
        let _ = std::fs::remove_file(self.dir.0.join("message.sig"));
        assert!(run("ssh-keygen", &["-q", "-Y", "sign", "-n", namespace, "-f", key, "message"], &self.dir));
        std::fs::read_to_string(self.dir.0.join("message.sig")).unwrap()
    }

    fn signed_by(&self, key: &str, text: &str) -> Vec<u8> {
        let signature = self.signature(key, check::NAMESPACE, text.as_bytes());
        format!("{}{signature}\n{text}", envelope::FIRST).into_bytes()
    }

    fn signed(&self, text: &str) -> Vec<u8> {
        self.signed_by("key", text)
    }

    fn stated(&self, statement: &str) -> Vec<u8> {
        self.signed(&format!("{}{statement}\n{DOCUMENT}", envelope::STATEMENT))
    }

    fn read(&self) -> Policy {
        Policy::read(&self.dir.machine(), FOLDER).unwrap()
    }

    fn check(&self, instance: &mut Instance) -> Checked {
        check(&self.read(), instance, &self.now)
    }

    /// The user-data that is used, or why it is refused.
    fn judge(&self, user_data: &[u8]) -> Result<String, String> {
        let mut instance = instance(user_data);
        let checked = self.check(&mut instance);
        match instance.user_data {
            Some(bytes) => {
                assert_eq!(checked.problems, [""; 0]);
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            None => Err(checked.problems.join("\n")),
        }
    }

    fn refuses(&self, attack: &str, user_data: &[u8], reason: &str) {
        match self.judge(user_data) {
            Ok(text) => panic!("{attack}: accepted as {text}"),
            Err(why) => assert!(why.contains(reason), "{attack}: {why}"),
        }
    }
}

fn instance(user_data: &[u8]) -> Instance {
    Instance {
        source: "NoCloud".into(),
        instance_id: "i-1".into(),
        user_data: Some(user_data.into()),
        ..Instance::default()
    }
}

fn sum(bytes: &[u8]) -> String {
    hex::encode(&digest(Algorithm::Sha256, bytes))
}

#[test]
fn accepts_signatures_of_each_type_of_key() {
    for kind in ["ed25519", "ecdsa", "rsa"] {
        if kind == "rsa" && !cfg!(feature = "tls") {
            continue;
        }
        let Some(lab) = Lab::with_key("trust-keys", kind) else { return };
        assert_eq!(lab.judge(&lab.signed(DOCUMENT)).as_deref(), Ok(DOCUMENT), "{kind}");
        lab.refuses(kind, &lab.signed_by("other", DOCUMENT), "a key that is not trusted");
        let text = String::from_utf8(lab.signed(DOCUMENT)).unwrap();
        lab.refuses(kind, text.replace("hostname", "hostnamf").as_bytes(), "not that of these bytes");
        // Also with each byte of the signature's blob changed.
        let envelope = envelope::Envelope::parse(text.as_bytes()).unwrap().unwrap();
        let blob = &envelope.signatures[0].1;
        for at in 0..blob.len() {
            let mut changed = blob.clone();
            changed[at] ^= 1;
            let verifies = sshsig::Signature::parse(&changed).is_some_and(|signature| {
                signature.key == lab.read().keys[0].blob && signature.verifies(check::NAMESPACE, DOCUMENT.as_bytes())
            });
            assert!(!verifies, "{kind}: byte {at}");
        }
        crate::base::testing::mutations(blob, 300, |bytes| {
            let signature = sshsig::Signature::parse(bytes);
            let verifies = signature.is_some_and(|found| found.verifies(check::NAMESPACE, DOCUMENT.as_bytes()));
            assert!(!verifies || bytes == *blob, "{kind}");
        });
    }
}

#[test]
fn opens_an_envelope_the_same_from_the_cache() {
    let Some(mut lab) = Lab::with_key("trust-cache", "ed25519") else { return };
    let raw = lab.stated("serial: 7\nexpires: 2027-02-01T00:00:00Z\n");
    let mut first = instance(&raw);
    let checked = lab.check(&mut first);
    assert_eq!((checked.serial, checked.problems.len()), (Some(7), 0));
    assert!(checked.signer.unwrap().starts_with("release@example (SHA256:"));
    assert_eq!(first.user_data.as_deref(), Some(DOCUMENT.as_bytes()));
    let mut text = Vec::new();
    cache::write(&first, &mut text).unwrap();
    let mut second = cache::read("t", &text).unwrap();
    let digests = |instance: &Instance| documents(instance).map(|d| d.bytes.map(|bytes| sum(&bytes)));
    let mut unchecked = instance(&raw);
    unchecked.metadata = first.metadata.clone();
    assert_eq!(digests(&second), digests(&unchecked));
    // On a later boot the document may have expired since.
    lab.now =
        Circumstances { now: NOW + 400 * 86_400, is_fresh: false, last_serial: Some(8), ..Circumstances::default() };
    assert_eq!(lab.check(&mut second).problems, [""; 0]);
    assert_eq!(second, first);
    // What was changed in the cache is refused.
    second.user_data = Some(b"#cloud-config\nhostname: other\n".to_vec().into());
    assert_eq!(lab.check(&mut second).problems.len(), 1);
    assert_eq!((second.user_data, second.envelope), (None, None));
}

#[test]
fn a_policy_may_need_encryption() {
    let Some(lab) = Lab::with_key("trust-encryption", "ed25519") else { return };
    let age = "-----BEGIN AGE ENCRYPTED FILE-----\nAAAA\n-----END AGE ENCRYPTED FILE-----\n";
    let (null, host) = ("BYRp2vb1QySABUnaD46i+yAAAAABAAAA\n", "WhxqhtaJxrFXmYIYvGaIAAAA\n");
    let host = host.replace("WhxqhtaJxrFXmYIYvGaIAAAA", &crate::base::base64::encode(credential::HOST_KIND));
    lab.policy("user-data = encryption\nmetadata = use\nvendor-data = encryption\n");
    for (document, is_used) in [(DOCUMENT, false), (age, true), (&host, true), (null, false), ("", false)] {
        assert_eq!(lab.judge(document.as_bytes()).is_ok(), is_used, "{document}");
        let mut instance = Instance { vendor_data: document.into(), ..instance(age.as_bytes()) };
        let problems = lab.check(&mut instance).problems;
        assert_eq!((instance.vendor_data.is_null(), problems.is_empty()), (!is_used, is_used), "{document}");
    }
    // In the JSON that OpenStack has: one document or several, beside values that are not used.
    for (document, is_used) in [
        (format!("{{\"cloud-init\": {age:?}, \"rack\": 7}}"), true),
        (format!("{{\"cloud-init\": {DOCUMENT:?}}}"), false),
        (format!("{age:?}"), true),
        (format!("[{age:?}, {host:?}]"), true),
        (format!("[{age:?}, {DOCUMENT:?}]"), false),
        (format!("{{\"cloud-init\": [{null:?}]}}"), false),
        ("{\"rack\": 7}".to_owned(), true),
    ] {
        let value = json::parse("vendor_data2.json", document.as_bytes()).unwrap();
        let raw = Raw([Some(b"{}".to_vec().into()), None, None, Some(document.clone().into_bytes().into())]);
        let mut instance = Instance { vendor_data2: value, raw: Some(raw), ..instance(age.as_bytes()) };
        let problems = lab.check(&mut instance).problems;
        assert_eq!((instance.vendor_data2.is_null(), problems.is_empty()), (!is_used, is_used), "{document}");
    }
    lab.refuses("in the clear", DOCUMENT.as_bytes(), "it is not encrypted");
    lab.policy("user-data = signature encryption\nmetadata = use\n");
    assert_eq!(lab.judge(&lab.signed(age)).as_deref(), Ok(age));
    lab.refuses("signed in the clear", &lab.signed(DOCUMENT), "it is not encrypted");
    lab.refuses("encrypted by anyone", age.as_bytes(), "it is not signed");
    assert!(lab.read().to_text().contains("used if signed, and encrypted"));
    lab.policy("user-data = use\nmetadata = encryption\n");
    assert!(lab.read().problem.is_some());
}

/// Each is a way to get documents of one's own onto the machine.
#[test]
fn refuses_attacks_on_signed_user_data() {
    let Some(lab) = Lab::with_key("trust-attacks", "ed25519") else { return };
    let good = String::from_utf8(lab.signed(DOCUMENT)).unwrap();
    let (head, _) = good.split_once("\n\n").unwrap();
    let armor = format!("{}\n", head.strip_prefix(envelope::FIRST).unwrap());
    let evil = "#cloud-config\nhostname: evil\n";
    let multipart = |first: &str, second: &str| {
        format!(
            "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"b\"\n\n--b\nContent-Type: text/plain\n\n{first}\n\
             --b\nContent-Type: text/cloud-config\n\n{second}\n--b--\n"
        )
    };
    // As `openssl cms -sign` writes it without -outform, and what may be done to such a document.
    let signed_mime = |parts: &[&str], type_of_signature: &str| {
        let header = "MIME-Version: 1.0\nContent-Type: multipart/signed; boundary=\"b\"\n\n";
        let parts: String = parts.iter().map(|part| format!("--b\n{part}\n")).collect();
        format!("{header}{parts}--b\nContent-Type: {type_of_signature}\n\n{armor}\n--b--\n").into_bytes()
    };
    let (payload, other) = (format!("\n{DOCUMENT}"), format!("\n{evil}"));
    let ssh = "application/x-ssh-signature";
    let zip = |text: &str| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        std::io::Write::write_all(&mut encoder, text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let not_signed = "is not signed";
    let other_bytes = "not that of these bytes";
    let form = "another form";
    for (attack, user_data, reason) in [
        ("stripped of its signature", DOCUMENT.as_bytes().to_vec(), not_signed),
        ("empty", Vec::new(), not_signed),
        ("another document", evil.as_bytes().to_vec(), not_signed),
        ("a byte added", format!("{good}x").into_bytes(), other_bytes),
        ("a byte removed", good.as_bytes()[..good.len() - 1].to_vec(), other_bytes),
        ("a line before the payload", good.replacen("\n\n#", "\n\n\n#", 1).into_bytes(), other_bytes),
        ("line ends of Windows", good.replace('\n', "\r\n").into_bytes(), not_signed),
        ("a document before it", format!("{evil}{good}").into_bytes(), not_signed),
        ("a byte order mark before it", format!("\u{feff}{good}").into_bytes(), not_signed),
        ("a space before it", format!(" {good}").into_bytes(), not_signed),
        ("a document after it", format!("{good}{evil}").into_bytes(), other_bytes),
        (
            "a document between signature and payload",
            good.replacen("\n\n", &format!("\n\n{evil}"), 1).into_bytes(),
            other_bytes,
        ),
        ("a header among the signatures", good.replacen('\n', "\nContent-Type: text/plain\n", 1).into_bytes(), form),
        ("MIME headers before it", format!("Content-Type: text/cloud-config\n\n{good}").into_bytes(), not_signed),
        ("in a MIME document beside another part", multipart(&good, evil).into_bytes(), not_signed),
        (
            "in an archive beside another",
            format!("#cloud-config-archive\n- |\n  {good}\n- {evil}").into_bytes(),
            not_signed,
        ),
        ("compressed", zip(&good), not_signed),
        ("compressed, and another document after it", [zip(&good), zip(evil)].concat(), not_signed),
        ("in base64", base64::encode(good.as_bytes()).into_bytes(), not_signed),
        ("a signature as a MIME part", signed_mime(&[&payload], ssh), not_signed),
        ("that of S/MIME", signed_mime(&[&payload], "application/pkcs7-signature"), not_signed),
        ("two MIME parts and one signature", signed_mime(&[&payload, &other], ssh), not_signed),
        ("the same MIME part twice", signed_mime(&[&payload, &payload], ssh), not_signed),
        ("a MIME document in a signed one", signed_mime(&[&multipart(&good, evil)], ssh), not_signed),
        ("a MIME part in base64", signed_mime(&["Content-Transfer-Encoding: base64\n\neA=="], ssh), not_signed),
        (
            "a document before the first boundary",
            String::from_utf8(signed_mime(&[&payload], ssh))
                .unwrap()
                .replacen("\n\n", &format!("\n\n{evil}"), 1)
                .into_bytes(),
            not_signed,
        ),
        ("a document after the last boundary", [signed_mime(&[&payload], ssh), evil.into()].concat(), not_signed),
        ("an included URL instead", b"#include\nhttp://evil.example/\n".to_vec(), not_signed),
        ("a template instead", b"## template: jinja\n#cloud-config\n".to_vec(), not_signed),
        ("an envelope in an envelope", format!("{}{armor}\n{good}", envelope::FIRST).into_bytes(), other_bytes),
        ("no signature", format!("{}\n\n{evil}", envelope::FIRST).into_bytes(), form),
        (
            "an empty signature",
            format!("{}{}\n{}\n\n{evil}", envelope::FIRST, sshsig::BEGIN, sshsig::END).into_bytes(),
            form,
        ),
        ("another's key", lab.signed_by("other", evil), "a key that is not trusted"),
        (
            "another's key, beside the good signature",
            {
                let other = lab.signature("other", check::NAMESPACE, evil.as_bytes());
                format!("{}{armor}{other}\n{evil}", envelope::FIRST).into_bytes()
            },
            other_bytes,
        ),
        (
            "a signature of a file for another use",
            {
                let signature = lab.signature("key", "file", evil.as_bytes());
                format!("{}{signature}\n{evil}", envelope::FIRST).into_bytes()
            },
            other_bytes,
        ),
        (
            "a signature for git",
            {
                let signature = lab.signature("key", "git", evil.as_bytes());
                format!("{}{signature}\n{evil}", envelope::FIRST).into_bytes()
            },
            other_bytes,
        ),
        (
            "the good key in the blob, another's signature",
            {
                let text = String::from_utf8(lab.signed_by("other", evil)).unwrap();
                let keys = lab.read().keys;
                let mut blob = envelope::Envelope::parse(text.as_bytes()).unwrap().unwrap().signatures[0].1.clone();
                let at = blob.windows(4).position(|w| w == [0, 0, 0, 51]).unwrap() + 4;
                blob.splice(at..at + keys[0].blob.len(), keys[0].blob.clone());
                let armor = base64::encode(&blob);
                format!("{}{}\n{armor}\n{}\n\n{evil}", envelope::FIRST, sshsig::BEGIN, sshsig::END).into_bytes()
            },
            other_bytes,
        ),
        (
            "a statement put before the payload",
            { good.replacen("\n\n#", &format!("\n\n{}serial: 9\n\n#", envelope::STATEMENT), 1).into_bytes() },
            other_bytes,
        ),
    ] {
        lab.refuses(attack, &user_data, reason);
    }
    // Two signatures, one of them good: a key is replaced without a gap.
    let other = lab.signature("other", check::NAMESPACE, DOCUMENT.as_bytes());
    let both = format!("{}{other}{armor}\n{DOCUMENT}", envelope::FIRST);
    assert_eq!(lab.judge(both.as_bytes()).as_deref(), Ok(DOCUMENT));
    // None at all.
    let mut nothing = Instance { source: "NoCloud".into(), ..Instance::default() };
    assert!(lab.check(&mut nothing).problems[0].contains("there is none, and a signature is needed"));
}

#[test]
fn refuses_documents_for_other_machines_or_times() {
    let Some(mut lab) = Lab::with_key("trust-statement", "ed25519") else { return };
    lab.now.last_serial = Some(6);
    lab.policy("user-data = signature\nmetadata = use\nminimum-serial = 3\n");
    let good = "serial: 7\nkind: user-data\ninstance-id: i-1\nuuid: 0A-1\nmac: 52:54:00:00:00:01\nexpires: 2027-02-01T00:00:00Z\n";
    assert_eq!(lab.judge(&lab.stated(good)).as_deref(), Ok(DOCUMENT));
    for (attack, was, is, reason) in [
        ("of another instance", "i-1", "i-2", "another instance-id"),
        ("of an instance with a longer id", "i-1", "i-10", "another instance-id"),
        ("of another machine", "0A-1", "0a-2", "another uuid"),
        ("of another network card", "00:01", "00:02", "another mac"),
        ("of another kind", "user-data", "vendor-data", "another kind"),
        ("expired", "2027", "2026", "it has expired"),
        ("with an end that is no time", "2027-02-01T00:00:00Z", "never", "not a time"),
        ("older than the last one", "serial: 7", "serial: 5", "an older one"),
        ("older than the policy's", "serial: 7", "serial: 2", "an older one"),
        ("with a serial number that is none", "serial: 7", "serial: +7", "not a number"),
        ("with a serial number that is too large", "serial: 7", "serial: 99999999999999999999", "not a number"),
        ("without a serial number", "serial: 7\n", "", "no serial number"),
        ("with an unknown line", "serial: 7", "serial: 7\nnot-before: x", "a line that is not"),
        ("with a second serial number", "serial: 7", "serial: 7\nserial: 8", "a line that is not"),
    ] {
        lab.refuses(attack, &lab.stated(&good.replacen(was, is, 1)), reason);
    }
    lab.refuses("without a statement", &lab.signed(DOCUMENT), "no serial number");
    lab.now.last_serial = None;
    lab.policy("user-data = signature\nmetadata = use\nstatement = instance-id expires\n");
    assert!(lab.judge(&lab.stated(good)).is_ok());
    lab.refuses("for any machine", &lab.stated("serial: 1\nexpires: 2027-02-01T00:00:00Z\n"), "no instance-id");
    // A machine whose UUID is not known is none that a document is for.
    lab.policy("user-data = signature\n");
    lab.now.uuid = None;
    lab.refuses("of a machine with a UUID", &lab.stated("uuid: 0a-1\n"), "another uuid");
}

#[test]
fn refuses_revoked_keys_and_keys_out_of_time() {
    let Some(lab) = Lab::with_key("trust-revoked", "ed25519") else { return };
    let raw = lab.signed(DOCUMENT);
    let key = lab.key("key");
    for (signers, reason) in [
        (format!("me namespaces=\"file\" {key}"), "namespaces"),
        (format!("me valid-before=\"20270101\" {key}"), "valid-before"),
        (format!("me valid-after=\"20280101\" {key}"), "valid-after"),
        (lab.key("other").replacen("ssh-", "me ssh-", 1), "not trusted"),
    ] {
        lab.write("allowed_signers", &signers);
        lab.refuses(&signers, &raw, reason);
    }
    // A second line of the same key may allow what the first does not.
    lab.write("allowed_signers", &format!("me valid-before=20270101 {key}me namespaces=\"prepivot-*\" {key}"));
    assert!(lab.judge(&raw).is_ok());
    lab.write("revoked_keys", &key);
    lab.refuses("revoked", &raw, "a key that is revoked");
    let print = allowed::fingerprint(&lab.read().keys[0].blob);
    lab.write("revoked_keys", &print);
    lab.refuses("revoked by its fingerprint", &raw, "a key that is revoked");
}

#[test]
fn other_documents_are_pinned_by_the_signed_one() {
    let Some(lab) = Lab::with_key("trust-pins", "ed25519") else { return };
    lab.policy("user-data = signature\nmetadata = signature\nnetwork-config = signature\nvendor-data = signature\n");
    let whole = |user_data: &[u8]| Instance {
        vendor_data: "#cloud-config\n".into(),
        network: Some(NetworkData::Eni("auto lo\n".into())),
        public_keys: vec!["ssh-ed25519 A".into()],
        local_hostname: Some("h".into()),
        ..instance(user_data)
    };
    let all = whole(b"");
    let pins: String = documents(&all)
        .iter()
        .filter(|d| d.kind != DocumentKind::UserData)
        .filter_map(|d| Some(format!("{}: sha256:{}\n", d.name, sum(d.bytes.as_deref()?))))
        .collect();
    let raw = lab.stated(&pins);
    let mut good = whole(&raw);
    assert_eq!(lab.check(&mut good).problems, [""; 0]);
    assert_eq!((good.public_keys.len(), good.network.is_some(), good.vendor_data.is_null()), (1, true, false));
    // Any one of them changed is refused alone.
    let mut other = whole(&raw);
    other.public_keys.push("ssh-ed25519 evil".into());
    let problems = lab.check(&mut other).problems;
    assert!(problems.len() == 1 && problems[0].starts_with("metadata of NoCloud is refused"), "{problems:?}");
    assert_eq!((other.public_keys.len(), other.local_hostname, other.instance_id.as_str()), (0, None, "i-1"));
    assert_eq!(other.user_data.as_deref(), Some(DOCUMENT.as_bytes()));
    let mut other = whole(&raw);
    other.network = Some(NetworkData::Eni("auto evil\n".into()));
    other.vendor_data = "#cloud-config\nx: 1\n".into();
    assert_eq!(lab.check(&mut other).problems.len(), 2);
    assert!(other.network.is_none() && other.vendor_data.is_null());
    // One that was taken away is a change too.
    let mut other = whole(&raw);
    other.vendor_data = Value::Null;
    assert_eq!(lab.check(&mut other).problems.len(), 1);
    // Without valid user-data nothing is pinned.
    let mut other = whole(DOCUMENT.as_bytes());
    assert_eq!(lab.check(&mut other).problems.len(), 4);
    assert!(other.user_data.is_none() && other.network.is_none() && other.vendor_data.is_null());
    // One that is pinned is compared even where the policy would take any.
    lab.policy("user-data = signature\nmetadata = use\nnetwork-config = use\nvendor-data = use\n");
    let mut other = whole(&raw);
    other.local_hostname = None;
    assert_eq!(lab.check(&mut other).problems.len(), 1);
}

#[test]
fn signature_may_lie_beside_the_user_data() {
    let Some(lab) = Lab::with_key("trust-beside", "ed25519") else { return };
    let text = format!("{}serial: 7\n\n{DOCUMENT}", envelope::STATEMENT);
    let judge = |user_data: &str, signature: Option<&str>| {
        let mut found = instance(user_data.as_bytes());
        found.signature = signature.map(|text| text.as_bytes().to_vec().into());
        let problems = lab.check(&mut found).problems;
        assert_eq!(found.user_data.is_none(), !problems.is_empty());
        found.user_data.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap()).ok_or(problems.join("\n"))
    };
    let (plain, stated) = (DOCUMENT.as_bytes(), text.as_bytes());
    let [good, with_statement] = [plain, stated].map(|bytes| lab.signature("key", check::NAMESPACE, bytes));
    assert_eq!(judge(DOCUMENT, Some(&good)).as_deref(), Ok(DOCUMENT));
    assert_eq!(judge(&text, Some(&with_statement)).as_deref(), Ok(DOCUMENT));
    let other = lab.signature("other", check::NAMESPACE, plain);
    assert_eq!(judge(DOCUMENT, Some(&format!("{other}{good}"))).as_deref(), Ok(DOCUMENT));
    let file = lab.signature("key", "file", plain);
    let evil = DOCUMENT.replace("signed", "evil");
    let (bytes, form) = ("not that of these bytes", "another form");
    for (attack, user_data, signature, reason) in [
        ("no signature beside it", DOCUMENT, None, "is not signed"),
        ("an empty one", DOCUMENT, Some(""), form),
        ("another document", &evil, Some(&*good), bytes),
        ("a statement that was not signed", &text, Some(&*good), bytes),
        ("its statement removed", DOCUMENT, Some(&*with_statement), bytes),
        ("another's key", DOCUMENT, Some(&*other), "not trusted"),
        ("a signature for another use", DOCUMENT, Some(&*file), bytes),
        ("text before the signature", DOCUMENT, Some(&*format!("note\n{good}")), form),
        ("text after the signature", DOCUMENT, Some(&*format!("{good}note\n")), form),
        ("line ends of Windows", DOCUMENT, Some(&*good.replace('\n', "\r\n")), form),
        ("an envelope beside it", &evil, Some(&*format!("{}{good}\n{DOCUMENT}", envelope::FIRST)), form),
        ("too many signatures", DOCUMENT, Some(&*good.repeat(9)), form),
    ] {
        let why = judge(user_data, signature).expect_err(attack);
        assert!(why.contains(reason), "{attack}: {why}");
    }
    // An envelope has its own, whatever lies beside it.
    let whole = String::from_utf8(lab.signed(DOCUMENT)).unwrap();
    assert_eq!(judge(&whole, Some("x")).as_deref(), Ok(DOCUMENT));
    // The cache keeps it, and what is measured stays the same.
    for (user_data, signature) in [(DOCUMENT, &good), (&*text, &with_statement)] {
        let mut first = instance(user_data.as_bytes());
        first.signature = Some(signature.as_bytes().to_vec().into());
        let digest = |instance: &Instance| documents(instance).map(|d| d.bytes.map(|bytes| sum(&bytes)))[2].clone();
        let before = digest(&first);
        assert_eq!(before, Some(sum(user_data.as_bytes())));
        assert_eq!(lab.check(&mut first).problems, [""; 0]);
        let mut cached = Vec::new();
        cache::write(&first, &mut cached).unwrap();
        let mut second = cache::read("t", &cached).unwrap();
        assert_eq!(digest(&second), before);
        assert_eq!(lab.check(&mut second).problems, [""; 0]);
        assert_eq!(second, first);
    }
}

#[test]
fn drives_have_the_signature_beside_their_user_data() {
    let names = [
        ("meta-data", "user-data", "user-data.sig"),
        ("openstack/latest/meta_data.json", "openstack/latest/user_data", "openstack/latest/user_data.sig"),
    ];
    for (metadata, user_data, signature) in names {
        let (dir, root) = (TempDir::new("trust-drive"), TempDir::new("trust-drive-root"));
        dir.write(metadata, r#"{"uuid": "i-1", "instance-id": "i-1"}"#);
        dir.write(user_data, DOCUMENT);
        let read = || {
            let root = crate::root::Root::open(&root.0, crate::root::Use::Plan).unwrap();
            let report = &mut crate::base::problem::Problems::new();
            let machine = Machine::default();
            crate::source::read_seed(&machine, &root, &Value::Null, &dir.0, crate::document::Taken::default(), report)
                .unwrap()
                .instance
        };
        assert_eq!(read().signature, None);
        dir.write(signature, "signature");
        assert_eq!(read().signature.as_deref(), Some(&b"signature"[..]), "{signature}");
        std::fs::remove_file(dir.0.join(user_data)).unwrap();
        assert_eq!(read().signature, None, "without user-data: {signature}");
    }
}

#[test]
fn files_in_metadata_need_what_user_data_needs() {
    let Some(lab) = Lab::with_key("trust-files", "ed25519") else { return };
    let with_files = |user_data: &[u8]| Instance {
        files: vec![("/etc/shadow".into(), b"root::".to_vec().into())],
        local_hostname: Some("h".into()),
        ..instance(user_data)
    };
    // The default policy of the lab uses metadata as it is.
    let mut attack = with_files(&lab.signed(DOCUMENT));
    let problems = lab.check(&mut attack).problems;
    assert!(problems.len() == 1 && problems[0].starts_with("the files in metadata of NoCloud"), "{problems:?}");
    assert_eq!((attack.files.len(), attack.local_hostname.as_deref()), (0, Some("h")));
    assert_eq!(attack.user_data.as_deref(), Some(DOCUMENT.as_bytes()));
    // Those that the statement vouches for are written.
    let all = with_files(b"");
    let [metadata, ..] = documents(&all);
    let raw = lab.stated(&format!("metadata: sha256:{}\n", sum(&metadata.bytes.unwrap())));
    let mut good = with_files(&raw);
    assert_eq!((lab.check(&mut good).problems.len(), good.files.len()), (0, 1));
    // If any user-data will do, so will any file.
    lab.policy("user-data = use\nmetadata = use\n");
    let mut any = with_files(DOCUMENT.as_bytes());
    assert_eq!((lab.check(&mut any).problems.len(), any.files.len()), (0, 1));
}

#[test]
fn digest_on_kernel_command_line_is_enough() {
    let dir = TempDir::new("trust-line");
    let read = |line: &str| {
        dir.write("proc/cmdline", line);
        Policy::read(&dir.machine(), FOLDER)
    };
    assert!(read("quiet prepivot.fail=emergency").is_none());
    let line = format!("prepivot.user-data=sha256:{} prepivot.metadata=use", sum(DOCUMENT.as_bytes()));
    let judge = |line: &str, user_data: &str| {
        let mut instance = instance(user_data.as_bytes());
        instance.network = Some(NetworkData::Eni("auto lo\n".into()));
        instance.local_hostname = Some("h".into());
        let checked = check(&read(line).unwrap(), &mut instance, &Circumstances::default());
        (
            instance.user_data.is_some(),
            instance.network.is_some(),
            instance.local_hostname.is_some(),
            checked.problems.len(),
        )
    };
    // What it does not name is refused.
    assert_eq!(judge(&line, DOCUMENT), (true, false, true, 1));
    assert_eq!(judge(&line, "#cloud-config\n"), (false, false, true, 2));
    // Any of several; each of two words.
    let either = line.replacen("sha256:", &format!("sha256:{},sha256:", sum(b"")), 1);
    assert!(judge(&either, DOCUMENT).0);
    assert!(!judge(&format!("{line} prepivot.user-data=sha256:{}", sum(b"")), DOCUMENT).0);
    for wrong in
        ["prepivot.user-data=", "prepivot.user-data=sha256:00", "prepivot.metadata=signature", "prepivot.metadata=x"]
    {
        let policy = read(wrong).unwrap();
        assert!(policy.problem.is_some() && policy.failure == Failure::Emergency, "{wrong}");
        assert!(!judge(wrong, DOCUMENT).0);
    }
    // It adds to the file, and takes nothing away.
    dir.write(&format!("{FOLDER}/trust.conf"), "user-data = use\n");
    assert_eq!(judge(&line, DOCUMENT), (true, false, false, 2));
    assert!(!judge(&line, "x").0);
}

#[test]
fn a_policy_that_is_not_understood_refuses_everything() {
    let dir = TempDir::new("trust-closed");
    let read = || Policy::read(&dir.machine(), FOLDER);
    assert!(read().is_none());
    dir.write("run/prepivot/trust/trust.conf", "user-data = use\n");
    assert!(read().is_none());
    assert!(Policy::read(&dir.machine(), COPY).is_some());
    for text in [
        "user-data",
        "user-data =",
        "user-data = yes",
        "user-data = refuse measure",
        "user-data = sha256:0",
        "user-data = use\nuser-data = use",
        "userdata = use",
        "user-data = signature",
        "include = measure",
        "metadata = host-data",
        "include@NoCloud = use",
        "on-failure = stop",
        "scheme = other",
        "scheme = systemd\nmetadata = measure",
        "pcr = 7",
        "pcr = 16",
        "rtmr = 1",
        "minimum-serial = -1",
        "statement = hostname",
        "datasources =",
        "[trust]",
        "\0",
    ] {
        dir.write("etc/prepivot/trust.conf", text);
        let policy = read().unwrap();
        let problem = policy.problem.clone().unwrap_or_else(|| panic!("{text} is understood"));
        assert!(problem.starts_with("the trust policy cannot be read: "), "{problem}");
        assert!(policy.to_text().contains("everything is refused"));
        let mut all = Instance { vendor_data: "x".into(), ..instance(b"x") };
        check(&policy, &mut all, &Circumstances::default());
        assert!(all.user_data.is_none() && all.vendor_data.is_null());
    }
    // Not a regular file, and one that is not text.
    std::fs::remove_file(dir.0.join("etc/prepivot/trust.conf")).unwrap();
    std::os::unix::fs::symlink("nowhere", dir.0.join("etc/prepivot/trust.conf")).unwrap();
    assert!(read().unwrap().problem.is_some());
    std::fs::remove_file(dir.0.join("etc/prepivot/trust.conf")).unwrap();
    dir.write("etc/prepivot/trust.conf", [b'#', 0xff]);
    assert!(read().unwrap().problem.is_some());
    dir.write("etc/prepivot/trust.conf", "user-data = use\n");
    dir.write("etc/prepivot/allowed_signers", "me cert-authority x");
    assert!(read().unwrap().problem.is_some());
}

#[test]
fn a_datasource_has_rules_of_its_own() {
    let dir = TempDir::new("trust-sources");
    dir.write(
        "etc/prepivot/trust.conf",
        "datasources = NoCloud Ec2\nuser-data = measure\nuser-data@ec2 = refuse\nmetadata = use\ninclude = use\npcr = 9\n",
    );
    let policy = Policy::read(&dir.machine(), FOLDER).unwrap();
    let used = |kind, source| policy.needs(kind, source).is_used;
    assert!(
        used(DocumentKind::UserData, "NoCloud")
            && !used(DocumentKind::UserData, "Ec2")
            && !used(DocumentKind::UserData, "ConfigDrive")
    );
    assert!(
        used(DocumentKind::Metadata, "Ec2")
            && !used(DocumentKind::Network, "NoCloud")
            && used(DocumentKind::Include, "NoCloud")
    );
    let text = policy.to_text();
    for line in [
        "user-data               used if measured\n",
        "user-data@ec2           refused\n",
        "metadata                used as it is\n",
        "vendor-data             refused\n",
        "command-line            refused\n",
        "datasources             NoCloud Ec2\n",
        "measured by             scheme prepivot, PCR 9, RTMR[3]\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
}

#[test]
fn cached_vendor_data_has_the_same_measurement() {
    for value in [
        Value::Null,
        "text".into(),
        Value::Bytes(vec![31, 139, 0].into()),
        json::parse("t", br#"{"b": [1, 1.5, null], "a": "x"}"#).unwrap(),
        Value::Map(Map::new()),
    ] {
        let first = Instance { vendor_data: value, ..Instance::default() };
        let mut text = Vec::new();
        cache::write(&first, &mut text).unwrap();
        let second = cache::read("t", &text).unwrap();
        let bytes = |instance: &Instance| documents(instance).map(|d| d.bytes.map(|bytes| bytes.into_owned()));
        assert_eq!(bytes(&first), bytes(&second));
    }
}

#[test]
fn accepts_cms_signatures_of_pinned_certificates() {
    for kind in [&["-newkey", "rsa:2048"][..], &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]] {
        if kind[1].starts_with("rsa") && !cfg!(feature = "tls") {
            continue;
        }
        let Some(lab) = Lab::with_key("trust-cms", "ed25519") else { return };
        for name in ["cms", "other-cms"] {
            let (key, certificate) = (format!("{name}.key"), format!("{name}.crt"));
            let request = ["req", "-x509", "-nodes", "-subj", "/CN=release", "-keyout", &key, "-out", &certificate];
            if !run("openssl", &[&request[..], kind].concat(), &lab.dir) {
                return;
            }
        }
        let certificate = std::fs::read_to_string(lab.dir.0.join("cms.crt")).unwrap();
        lab.write("release.crt", &certificate);
        let sign = |name: &str, text: &str, options: &[&str]| {
            lab.dir.write("message", text);
            let (key, certificate) = (format!("{name}.key"), format!("{name}.crt"));
            let words = ["cms", "-sign", "-binary", "-in", "message", "-signer", &certificate, "-inkey", &key];
            assert!(run(
                "openssl",
                &[&words[..], &["-outform", "PEM", "-out", "message.cms"], options].concat(),
                &lab.dir
            ));
            let signature = std::fs::read_to_string(lab.dir.0.join("message.cms")).unwrap();
            format!("{}{signature}\n{text}", envelope::FIRST)
        };
        let text = format!("{}kind: user-data\n\n{DOCUMENT}", envelope::STATEMENT);
        let forms: &[&[&str]] =
            &[&[], &["-noattr"], &["-nocerts"], &["-noattr", "-nocerts", "-md", "sha512"], &["-md", "sha384"]];
        for options in forms {
            let good = sign("cms", &text, options);
            assert_eq!(lab.judge(good.as_bytes()).as_deref(), Ok(DOCUMENT), "{kind:?} {options:?}");
            lab.refuses(
                "a byte changed",
                good.replace("hostname", "hostnamf").as_bytes(),
                "is not that of these bytes",
            );
            lab.refuses("another's key", sign("other-cms", &text, options).as_bytes(), "is not that of these bytes");
            let envelope = envelope::Envelope::parse(good.as_bytes()).unwrap().unwrap();
            let (blob, policy) = (&envelope.signatures[0].1, lab.read());
            let signers = |bytes: &[u8], text: &str| cms::signers(bytes, text.as_bytes(), &policy.certificates);
            assert_eq!(signers(blob, &text).unwrap().len(), 1);
            crate::base::testing::mutations(blob, 500, |bytes| {
                assert!(signers(bytes, "x").is_none_or(|all| all.is_empty()), "a signature of other bytes");
            });
        }
        lab.refuses("with its content inside", sign("cms", &text, &["-nodetach"]).as_bytes(), "another form");
        lab.refuses("without a statement", sign("cms", DOCUMENT, &[]).as_bytes(), "needs a statement");
        let serial = format!("{}serial: 1\n\n{DOCUMENT}", envelope::STATEMENT);
        lab.refuses("of no kind", sign("cms", &serial, &[]).as_bytes(), "needs a statement");
        let vendor = text.replace("user-data", "vendor-data");
        lab.refuses("of another kind", sign("cms", &vendor, &[]).as_bytes(), "another kind");
        let good = sign("cms", &text, &[]);
        let print = allowed::fingerprint(&lab.read().certificates[0].der);
        lab.write("revoked_keys", &print);
        lab.refuses("revoked", good.as_bytes(), "that is revoked");
        crate::base::testing::mutations(certificate.as_bytes(), 500, |bytes| {
            let _ = cms::certificates("c", &String::from_utf8_lossy(bytes));
        });
    }
}

#[test]
fn documents_refused_by_name_are_no_failure() {
    let dir = TempDir::new("trust-named");
    let problems = |text: &str| {
        dir.write(&format!("{FOLDER}/trust.conf"), text);
        let mut all = Instance { vendor_data: "x".into(), ..instance(b"x") };
        let policy = Policy::read(&dir.machine(), FOLDER).unwrap();
        let checked = check(&policy, &mut all, &Circumstances::default());
        assert!(all.vendor_data.is_null() && all.user_data.is_some());
        checked.problems
    };
    assert_eq!(problems("user-data = use\nmetadata = refuse\nvendor-data = refuse\n"), [""; 0]);
    let unnamed = problems("user-data = use\nmetadata = refuse\n");
    assert_eq!(unnamed, ["vendor-data of NoCloud is refused: the trust policy does not name it"]);
    let other = problems("user-data = use\nuser-data@NoCloud = use\nmetadata = refuse\nvendor-data@Ec2 = refuse\n");
    assert_eq!(other.len(), 1);
}
