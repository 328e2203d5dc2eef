//! The keys of this machine that open what is encrypted: those beside the trust policy, the key of systemd's credentials on the
//! root's disk, and the TPM.

use crate::base::clock::since_1970;
use crate::base::error::{Context, Error, Result};
use crate::base::problem::Problems;
use crate::document::{Map, Value, json};
use crate::machine::{Machine, beneath};
use crate::root::run_dir::{self, DECRYPTED};
use crate::root::{Root, Stage};
use crate::trust::age::{self, Identity};
use crate::trust::credential::{self, Credential};
use crate::trust::endorsed::Endorsed;
use crate::trust::sealed::{self, Encryption, Opened};
use crate::trust::tpm::TpmTransport;
use crate::trust::{measure, policy, unseal};
use crate::userdata::config::Consumed;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

/// The key of systemd's credentials (systemd-creds(1), `setup`): the machine that it is for, and after that the key.
const HOST: &str = "/var/lib/systemd/credential.secret";
const OF_MACHINE: usize = 16;
const MAX_HOST: u64 = 64 << 10;
/// Where the firmware says that Secure Boot is on: a variable, and on x86 what the kernel was told.
const SECURE_BOOT: &str = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
const BOOT_PARAMETERS: &str = "sys/kernel/boot_params/data";
const BOOT_PARAMETERS_SECURE_BOOT: usize = 0x1ec;
const ENABLED: u8 = 3;
/// Where the kernel shows a TPM, and the firmware tells of one.
const TPMS: [&str; 2] = ["sys/class/tpm/tpm0", measure::TOLD];
/// Where the signatures of registers' values are: those of the kernel image that booted come first, which its stub puts into the initramfs.
const SIGNATURES: [&str; 4] = [
    ".extra/tpm2-pcr-signature.json",
    "etc/systemd/tpm2-pcr-signature.json",
    "run/systemd/tpm2-pcr-signature.json",
    "usr/lib/systemd/tpm2-pcr-signature.json",
];
/// The most objects that the TPM is asked to unseal in a stage: a chip may take seconds for each.
const MAX_UNSEALED: usize = 8;

/// A sealed object, and what the TPM has answered.
type Answer = (Vec<u8>, Result<Vec<u8>>);

/// Where the keys are.
pub struct Keys {
    base: PathBuf,
    folder: &'static str,
    /// The private keys, once they were read.
    identities: OnceLock<Result<Vec<Identity>>>,
    /// What the TPM has answered in this stage, by the sealed object.
    unsealed: Mutex<Vec<Answer>>,
}

impl Keys {
    /// Those of a machine. In the real root the private keys are those that the initramfs left.
    pub fn of(root: &Root, machine: &Machine) -> Keys {
        let folder = if root.is_live() { policy::COPY } else { policy::FOLDER };
        Keys { base: machine.base.clone(), folder, identities: OnceLock::new(), unsealed: Mutex::default() }
    }

    /// Opens what is encrypted, for a name.
    pub fn open(&self, root: &Root, sealed: &[u8], name: &str) -> Opened {
        if !cfg!(feature = "trust") {
            return Opened::Failed(Error::new("this build cannot decrypt: it is without the part trust"));
        }
        match self.try_open(root, sealed, name) {
            Ok(Some(plain)) => Opened::Plain(plain),
            Ok(None) if may_come(root) => Opened::Later,
            Ok(None) => Opened::Failed(Error::new(format!("its key is not here: there is no {HOST}, or no TPM"))),
            Err(e) => Opened::Failed(e),
        }
    }

    /// Whether something encrypted waits for a key that may come. Nothing is decrypted for it.
    pub fn is_awaited(&self, root: &Root, sealed: &[u8]) -> bool {
        may_come(root)
            && match sealed::encryption(sealed) {
                Some(Encryption::Credential) => matches!(self.of_credential(root, sealed), Ok(None)),
                Some(Encryption::Endorsed) => matches!(self.of_endorsed(sealed), Ok(None)),
                _ => false,
            }
    }

    /// What is encrypted, decrypted. None if it needs the host's key or a TPM, and that is not there.
    fn try_open(&self, root: &Root, sealed: &[u8], name: &str) -> Result<Option<Vec<u8>>> {
        let (mut identities, mut keys) = (&[][..], credential::Keys::default());
        match sealed::encryption(sealed) {
            Some(Encryption::Age) => identities = self.identities()?,
            Some(Encryption::Null) if self.refuses_null() => {
                return Err(Error::new(
                    "the credential is under no key, which anyone can make, and this machine has a TPM and Secure Boot",
                ));
            }
            Some(Encryption::Endorsed) => {
                let Some(found) = self.of_endorsed(sealed)? else { return Ok(None) };
                keys.tpm = Some(found);
            }
            _ => {
                let Some(found) = self.of_credential(root, sealed)? else { return Ok(None) };
                keys = found;
            }
        }
        let now = u64::try_from(since_1970(SystemTime::now()).as_micros()).unwrap_or(u64::MAX);
        sealed::open_with(sealed, name, now, identities, &keys).map(Some)
    }

    /// The keys of a credential. None if one of them is not there.
    fn of_credential(&self, root: &Root, sealed: &[u8]) -> Result<Option<credential::Keys>> {
        let mut keys = credential::Keys::default();
        let bytes = credential::decoded(sealed).unwrap_or_default();
        let credential = Credential::parse(&bytes);
        if credential.as_ref().is_some_and(Credential::needs_host) {
            let Some(key) = host_key(root) else { return Ok(None) };
            keys.host = Some(key);
        }
        if let Some(credential) = credential.filter(|credential| credential.sealed.is_some()) {
            let Some(secret) = self.unsealed(&credential)? else { return Ok(None) };
            keys.tpm = Some(secret);
        }
        Ok(Some(keys))
    }

    /// The part of a credential's key that the TPM has sealed; None if there is no TPM.
    fn unsealed(&self, credential: &Credential) -> Result<Option<Vec<u8>>> {
        let Some(sealed) = &credential.sealed else { return Ok(Some(Vec::new())) };
        self.by_tpm(sealed.blob, |tpm| {
            let signatures = sealed.signed.map_or(Value::Null, |_| self.signatures());
            unseal::unseal(tpm, sealed, &signatures)
        })
    }

    /// The first file with signatures of registers' values, as systemd looks for it. One that cannot be read has none.
    fn signatures(&self) -> Value {
        let text = SIGNATURES.iter().find_map(|path| beneath::bytes(&self.base, path)).unwrap_or_default();
        json::parse("tpm2-pcr-signature.json", &text).unwrap_or_default()
    }

    /// The key of what is sealed to the TPM's endorsement key; None if there is no TPM.
    fn of_endorsed(&self, sealed: &[u8]) -> Result<Option<Vec<u8>>> {
        let sealed = Endorsed::parse(sealed)?;
        self.by_tpm(sealed.key.as_bytes(), |tpm| sealed.unseal(tpm))
    }

    /// What the TPM answers about a sealed object; None if there is no TPM. It is asked once in a stage: a chip may take seconds.
    fn by_tpm(
        &self,
        object: &[u8],
        unseal: impl FnOnce(&mut dyn TpmTransport) -> Result<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>> {
        let mut unsealed = self.unsealed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, answer)) = unsealed.iter().find(|(own, _)| own == object) {
            return answer.clone().map(Some);
        }
        if unsealed.len() >= MAX_UNSEALED {
            return Err(Error::new(format!("more than {MAX_UNSEALED} objects are sealed by the TPM")));
        }
        let Some(mut tpm) = measure::open_tpm(&self.base)? else { return Ok(None) };
        let answer = unseal(&mut tpm);
        unsealed.push((object.to_vec(), answer.clone()));
        answer.map(Some)
    }

    fn identities(&self) -> Result<&[Identity]> {
        let identities = self.identities.get_or_init(|| self.read_identities());
        identities.as_deref().map_err(Clone::clone)
    }

    fn read_identities(&self) -> Result<Vec<Identity>> {
        let text = beneath::read(&self.base, &format!("{}/{}", self.folder, policy::IDENTITIES));
        let text = text.ok_or_else(|| {
            Error::new(format!("there is no private key: /{}/{}", policy::FOLDER, policy::IDENTITIES))
        })?;
        age::identities(policy::IDENTITIES, &text)
    }

    /// Whether a credential under no key is refused, as systemd does: whoever gives it could not have made one for the TPM.
    fn refuses_null(&self) -> bool {
        let is_secure = || {
            let variable = beneath::start(&self.base, SECURE_BOOT, 5).and_then(|bytes| bytes.last().copied());
            let told = beneath::start(&self.base, BOOT_PARAMETERS, 4096);
            variable.unwrap_or(0) == 1
                || told.and_then(|bytes| bytes.get(BOOT_PARAMETERS_SECURE_BOOT).copied()) == Some(ENABLED)
        };
        TPMS.iter().any(|path| beneath::exists(&self.base, path)) && is_secure()
    }
}

/// Whether a key that is not there may come: that of a disk which is mounted later.
fn may_come(root: &Root) -> bool {
    root.has_run() && !root.is_live()
}

/// The key of credentials on the root's disk, if its file can be seen.
fn host_key(root: &Root) -> Option<Vec<u8>> {
    if root.stat(HOST).is_none_or(|found| found.size > MAX_HOST) {
        return None;
    }
    let mut bytes = root.read(HOST).ok()??;
    (bytes.len() > OF_MACHINE).then(|| bytes.split_off(OF_MACHINE))
}

/// A configuration whose values are opened, and the one that it was made of.
pub struct OpenedConfig {
    of: Arc<Value>,
    pub config: Arc<Value>,
}

impl OpenedConfig {
    /// Opens the values of a configuration. What cannot be opened is an error, once in a boot.
    pub fn new(keys: &Keys, root: &Root, config: &Arc<Value>, report: &Problems) -> OpenedConfig {
        let Some(map) = config.as_map() else { return OpenedConfig { of: config.clone(), config: config.clone() } };
        let found = sealed::open_config(map, &|sealed, name| keys.open(root, sealed, name));
        if !root.is_live() || root.current_stage() == Stage::Network {
            found.problems.iter().for_each(|problem| report.error(problem));
        }
        let opened = found.opened.map_or_else(|| config.clone(), |opened| Arc::new(Value::Map(opened)));
        OpenedConfig { of: config.clone(), config: opened }
    }

    /// Whether it was made of this configuration.
    pub fn is_of(&self, config: &Arc<Value>) -> bool {
        Arc::ptr_eq(&self.of, config)
    }
}

/// The key of the merged configuration in [`DECRYPTED`].
const MERGED: &str = "config";

/// Leaves the configuration for the later stages, if documents of it were encrypted; else removes what was left.
pub fn leave(root: &Root, machine: &Machine, merged: &Value, consumed: &Consumed) -> Result<()> {
    if !root.has_run() || !cfg!(feature = "trust") {
        return Ok(());
    }
    let path = machine.base.join(DECRYPTED.trim_start_matches('/'));
    if consumed.public.is_none() {
        run_dir::forget(&path);
        return Ok(());
    }
    let all = [("", &consumed.user), ("vendor-", &consumed.vendor), ("vendor2-", &consumed.vendor2)];
    let layers = all.into_iter().filter_map(|(prefix, data)| {
        let config = data.as_ref()?.cloud_config.merged()?;
        Some((prefix, Value::Map(config.clone())))
    });
    let left: Map = layers.chain([(MERGED, merged.clone())]).collect();
    run_dir::save(&path, &json::to_string(&Value::Map(left))).context(|| format!("failed to write {DECRYPTED}"))
}

/// The configuration that [`leave`] left. Its texts are hidden from messages, but for those of `public`.
pub fn left(root: &Root, public: &Map) -> Option<Map> {
    let config = left_of(root, MERGED)?;
    sealed::hide(&config, Some(public));
    Some(config)
}

/// The cloud-config with this prefix that [`leave`] left.
pub fn left_of(root: &Root, prefix: &str) -> Option<Map> {
    if !cfg!(feature = "trust") {
        return None;
    }
    match json::parse(DECRYPTED, &root.read(DECRYPTED).ok()??).ok()?.get(prefix)? {
        Value::Map(map) => Some(map.clone()),
        _ => None,
    }
}

#[cfg(all(feature = "trust", feature = "tls"))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::base64;
    use crate::base::digest::digest;
    use crate::base::mask;
    use crate::base::testing::{TempDir, skip};
    use crate::instance::Instance;
    use crate::root::Use;
    use crate::stage::local;
    use crate::stage::testing;
    use crate::trust::seal::{Register, seal};
    use crate::trust::swtpm::Swtpm;
    use crate::trust::tpm;
    use std::path::Path;
    use std::process::{Command, Stdio};

    const IDENTITY: &str = "AGE-SECRET-KEY-1EGTZVFFV20835NWYV6270LXYVK2VKNX2MMDKWYKLMGR48UAWX40Q2P2LM0";

    /// An empty machine with a private key of the image.
    fn machine(name: &str) -> TempDir {
        let dir = TempDir::new(name);
        dir.write("etc/os-release", "ID=debian\n");
        dir.write("etc/prepivot/identities", format!("# the image's\n{IDENTITY}\n"));
        dir.write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
        dir.write("etc/shadow", "root:*:1::::::\n");
        dir.write("etc/group", "root:x:0:\n");
        dir
    }

    /// To the image's key.
    fn encrypted(text: &str) -> Vec<u8> {
        age::sealed(text.as_bytes(), &Identity::parse(IDENTITY).unwrap())
    }

    fn base64_of(text: &str) -> String {
        base64::encode(&encrypted(text))
    }

    /// Provisions with user-data. Returns the errors and warnings.
    fn provision(dir: &TempDir, user_data: &[u8]) -> Vec<String> {
        let (machine, mut root) = (dir.machine(), dir.root(Use::NewRoot));
        let mut boot = testing::boot(&root, &machine);
        let instance = Instance {
            source: "NoCloud".into(),
            instance_id: "i".into(),
            user_data: Some(user_data.to_vec().into()),
            ..Instance::default()
        };
        assert_eq!(local::outcome_of(&mut root, &mut boot, instance), None);
        assert_eq!(root.commit(), []);
        boot.errors_and_warnings()
    }

    /// The files below a folder that have a text, without the folder's own name.
    fn files_with(folder: &Path, text: &str) -> Vec<String> {
        let (mut found, mut left) = (Vec::new(), vec![folder.to_owned()]);
        while let Some(next) = left.pop() {
            for entry in std::fs::read_dir(next).unwrap().map(std::result::Result::unwrap) {
                let kind = entry.file_type().unwrap();
                if kind.is_dir() {
                    left.push(entry.path());
                } else if kind.is_file() {
                    let bytes = std::fs::read(entry.path()).unwrap();
                    if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
                        found.push(entry.path().strip_prefix(folder).unwrap().display().to_string());
                    }
                }
            }
        }
        found.sort();
        found
    }

    #[test]
    fn encrypted_document_is_plain_in_its_files_alone() {
        let document = "#cloud-config\nhostname: plain-name\ntimezone: plain-zone\nwrite_files:\n\
                        - {path: /etc/app.key, content: plain-file}\n\
                        systemd_credentials: [{name: app.token, text: plain-token}]\n";
        let dir = machine("keys-document");
        let said = provision(&dir, &encrypted(document));
        assert!(said.iter().any(|line| line.contains("there is no time zone \"********\"")), "{said:?}");
        let of = |text: &str| files_with(&dir.0, text);
        let in_memory = DECRYPTED.trim_start_matches('/');
        assert_eq!(of("plain-file"), ["etc/app.key", in_memory]);
        // Where a host's name is kept; the host keys, which are made here where they can be, have it in their comment.
        let mut of_name = of("plain-name");
        of_name.retain(|path| !path.starts_with("etc/ssh/"));
        let notes = ["var/lib/cloud/data/previous-hostname", "var/lib/cloud/data/set-hostname"];
        assert_eq!(of_name, ["etc/hostname", in_memory, notes[0], notes[1]]);
        assert_eq!(of("plain-token"), ["run/credstore/app.token", in_memory]);
        assert_eq!(of("plain-zone"), [in_memory]);
        let mode = |path: &str| dir.root(Use::NewRoot).stat(path).unwrap().attr.mode;
        assert_eq!((mode(DECRYPTED), mode("/run/credstore/app.token")), (0o600, 0o400));
        // In a MIME document beside a part that is not.
        let armored = base64_of("#cloud-config\nwrite_files: [{path: /etc/app.key, content: plain-part}]\n");
        let mime = format!(
            "Content-Type: multipart/mixed; boundary=b\nMIME-Version: 1.0\n\n--b\nContent-Type: text/plain\n\
             Content-Transfer-Encoding: base64\n\n{armored}\n--b\nContent-Type: text/cloud-config\n\n\
             #cloud-config\nhostname: public-name\n--b--\n"
        );
        let dir = machine("keys-part");
        assert_eq!(provision(&dir, mime.as_bytes()), [""; 0]);
        assert_eq!(files_with(&dir.0, "plain-part"), ["etc/app.key", in_memory]);
        assert!(files_with(&dir.0, "public-name").contains(&"var/lib/cloud/instances/i/cloud-config.txt".to_owned()));
    }

    #[test]
    fn encrypted_values_are_plain_in_their_files_alone() {
        let (hash, file) = (base64_of("$6$plain$hash\n"), base64_of("plain-file"));
        let document = format!(
            "#cloud-config\nusers: [{{name: ada, hashed_passwd: encrypted({hash}), lock_passwd: false}}]\nwrite_files:\n\
             - {{path: /etc/app.key, encoding: age, content: {file}}}\n- {{path: /etc/app.conf, content: 'key encrypted({file})'}}\n"
        );
        let dir = machine("keys-values");
        assert_eq!(provision(&dir, document.as_bytes()), [""; 0]);
        assert_eq!(files_with(&dir.0, "$6$plain$hash"), ["etc/shadow"]);
        assert_eq!(files_with(&dir.0, "plain-file"), ["etc/app.conf", "etc/app.key"]);
        assert_eq!(std::fs::read(dir.0.join("etc/app.conf")).unwrap(), b"key plain-file");
    }

    /// What is decrypted is hidden in messages from then on, by which it is seen here.
    #[test]
    fn merging_decrypts_no_value_of_a_configuration() {
        let dir = machine("keys-once");
        let document = format!("#cloud-config\nfinal_message: encrypted({})\n", base64_of("opened-but-once"));
        let (machine, root) = (dir.machine(), dir.root(Use::NewRoot));
        let mut boot = testing::boot(&root, &machine);
        let instance = Instance { user_data: Some(document.into_bytes().into()), ..Instance::default() };
        let mut fetch = |include: &crate::userdata::Include<'_>| crate::stage::config::without_network(&root, include);
        let (merged, _) =
            crate::stage::config::consume(&root, &boot.image, &instance, &Value::Null, &boot.report, &mut fetch);
        assert_eq!((merged.needs_network, mask::hidden("opened-but-once")), (false, "opened-but-once".into()));
        boot.config = Some(merged.config);
        boot.open_config(&root);
        assert_eq!(mask::hidden("opened-but-once"), "********");
        let (config, _) = boot.config_and_report();
        assert_eq!(config.get("final_message").and_then(Value::as_str), Some("opened-but-once"));
    }

    #[test]
    fn reports_and_leaves_out_what_stays_closed() {
        let dir = machine("keys-none");
        std::fs::remove_file(dir.0.join("etc/prepivot/identities")).unwrap();
        let said = provision(&dir, &encrypted("#cloud-config\nhostname: plain-name\n"));
        assert!(said[0].starts_with("user-data cannot be decrypted: there is no private key"), "{said:?}");
        let document = format!(
            "#cloud-config\ntimezone: encrypted({0})\nhostname: public\nwrite_files: [{{path: /etc/a, encoding: age, content: {0}}}]\n",
            base64_of("x")
        );
        let said = provision(&dir, document.as_bytes());
        assert!(said.iter().any(|line| line.starts_with("timezone: there is no private key")), "{said:?}");
        assert!(
            said.iter().any(|line| line.starts_with("write_files: entry 1 (/etc/a): content: there is no")),
            "{said:?}"
        );
        assert!(!dir.0.join("etc/a").exists() && dir.0.join("etc/hostname").exists());
    }

    /// `systemd-creds encrypt` with the host's key of the folder. None if the program is not there.
    fn by_systemd(dir: &TempDir, key: &str, name: &str, text: &str) -> Option<String> {
        let mut command = Command::new("systemd-creds");
        command.env("SYSTEMD_CREDENTIAL_SECRET", dir.0.join(HOST.trim_start_matches('/')));
        command.args(["encrypt", &format!("--with-key={key}"), &format!("--name={name}"), "-", "-"]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.map_err(|e| skip(format_args!("systemd-creds: {e}"))).ok()?;
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        Some(String::from_utf8(output.stdout).unwrap()).filter(|text| !text.is_empty())
    }

    #[test]
    fn hosts_credential_waits_for_the_hosts_key() {
        let dir = machine("keys-host");
        std::fs::create_dir_all(dir.0.join("var/lib/systemd")).unwrap();
        let document = "#cloud-config\nwrite_files: [{path: /etc/app.key, content: plain-file}]\n";
        let Some(whole) = by_systemd(&dir, "host", "user-data", document) else { return };
        let secret = by_systemd(&dir, "host", "app.key", "plain-file").unwrap().replace('\n', "");
        let values = format!(
            "#cloud-config\nhostname: encrypted(app.key:{secret})\n\
             write_files: [{{path: /etc/app.key, encoding: systemd-creds, content: {secret}}}]\n"
        );
        let key = dir.0.join(HOST.trim_start_matches('/'));
        for document in [&whole, &values] {
            assert_eq!(provision(&dir, document.as_bytes()), [""; 0]);
            assert_eq!(std::fs::read(dir.0.join("etc/app.key")).unwrap(), b"plain-file");
            let hidden = dir.0.join("hidden");
            std::fs::rename(&key, &hidden).unwrap();
            for path in ["etc/app.key", "etc/hostname"] {
                let _ = std::fs::remove_file(dir.0.join(path));
            }
            let _ = std::fs::remove_dir_all(dir.0.join("var/lib/cloud"));
            assert_eq!(provision(&dir, document.as_bytes()), [""; 0]);
            assert!(dir.0.join(&run_dir::KEY_AWAITED[1..]).exists() && !dir.0.join("etc/app.key").exists());
            std::fs::rename(&hidden, &key).unwrap();
            let _ = std::fs::remove_dir_all(dir.0.join("var/lib/cloud"));
            let _ = std::fs::remove_dir_all(dir.0.join("run"));
        }
        // For another name, and by a key of another machine.
        let other = values.replace("app.key, encoding", "other.key, encoding");
        let said = provision(&dir, other.as_bytes());
        assert!(
            said.iter().any(|line| line.contains("is for the name \"app.key\", and is used as \"other.key\"")),
            "{said:?}"
        );
        let mut bytes = std::fs::read(&key).unwrap();
        bytes[100] ^= 1;
        std::fs::remove_file(&key).unwrap();
        std::fs::write(&key, bytes).unwrap();
        assert!(provision(&dir, whole.as_bytes())[0].contains("is encrypted under another key, or was changed"));
    }

    /// What `systemd-creds` made under the key of the disk, as values: a user's password hash, a WireGuard key in the middle of a
    /// file, and one that a template puts together.
    #[test]
    fn systemds_credentials_are_values_of_modules_and_templates() {
        let dir = machine("keys-modules");
        dir.write("etc/os-release", "ID=ubuntu\n");
        std::fs::create_dir_all(dir.0.join("var/lib/systemd")).unwrap();
        let value = |name: &str, text: &str| {
            Some(format!("{name}:{}", by_systemd(&dir, "host", name, text)?.replace('\n', "")))
        };
        let Some(hash) = value("ada.password", "$6$plain$hash\n") else { return };
        let (key, token) = (value("wg0.key", "plain-key=\n").unwrap(), value("app.token", "plain-token").unwrap());
        let document = format!(
            "## template: jinja\n#cloud-config\n{{% macro encrypted_value(text) %}}encrypted({{{{ text }}}}){{% endmacro %}}\n\
             users: [{{name: ada, hashed_passwd: 'encrypted({hash})', lock_passwd: false}}]\n\
             wireguard:\n  interfaces:\n  - name: wg0\n    config_path: /etc/wireguard/wg0.conf\n    content: |\n      \
             [Interface]\n      PrivateKey = encrypted({key})\n      Address = 192.0.2.1/24\n\
             write_files: [{{path: /etc/app.conf, content: 'of {{{{ v1.instance_id }}}}: {{{{ encrypted_value(\"{token}\") }}}}'}}]\n"
        );
        assert_eq!(provision(&dir, document.as_bytes()), [""; 0]);
        assert_eq!(files_with(&dir.0, "$6$plain$hash"), ["etc/shadow"]);
        assert_eq!(files_with(&dir.0, "plain-key="), ["etc/wireguard/wg0.conf"]);
        assert_eq!(files_with(&dir.0, "plain-token"), ["etc/app.conf"]);
        let file = |path: &str| std::fs::read_to_string(dir.0.join(path)).unwrap();
        assert!(file("etc/shadow").contains("\nada:$6$plain$hash:"), "{}", file("etc/shadow"));
        assert_eq!(file("etc/wireguard/wg0.conf"), "[Interface]\nPrivateKey = plain-key=\nAddress = 192.0.2.1/24\n");
        assert_eq!(file("etc/app.conf"), "of i: plain-token");
    }

    /// Sealed to a TPM and to its PCR 12, which nothing has extended.
    fn sealed_by(tpm: &Swtpm, text: &str, name: &str) -> String {
        let register = Register::parse(&format!("12=sha256:{}", "00".repeat(32))).unwrap();
        seal(text.as_bytes(), &tpm.recipient(), vec![register], name).unwrap()
    }

    #[test]
    fn machines_tpm_opens_sealed_files_and_values() {
        let (dir, state) = (machine("keys-sealed"), TempDir::new("keys-sealed-tpm"));
        let Some(tpm) = Swtpm::start(&state.0) else { return };
        let sealed = |text: &str, name: &str| sealed_by(&tpm, text, name);
        let value = |text: &str, name: &str| sealed::value(&sealed(text, name), name).unwrap().trim_end().to_owned();
        let file = base64::encode(sealed("plain-file", "app.key").as_bytes());
        let other = base64::encode(sealed("plain-other", "other.key").as_bytes());
        let document = format!(
            "#cloud-config\nhostname: public\nusers: [{{name: ada, hashed_passwd: '{}', lock_passwd: false}}]\nwrite_files:\n\
             - {{path: /etc/app.key, encoding: sealed, content: {file}}}\n\
             - {{path: /etc/app.conf, content: 'key {}'}}\n- {{path: /etc/wrong.key, encoding: sealed, content: {other}}}\n",
            value("$6$plain$hash\n", "ada.password"),
            value("plain-token", "")
        );
        // Without a TPM before the pivot, all of it waits for the real root.
        assert_eq!(provision(&dir, document.as_bytes()), [""; 0]);
        assert!(dir.0.join(&run_dir::KEY_AWAITED[1..]).exists() && files_with(&dir.0, "plain-").is_empty());
        std::fs::remove_dir_all(dir.0.join("var/lib/cloud")).unwrap();
        tpm.plug_into(&dir);
        let wrong = "write_files: entry 3 (/etc/wrong.key): content: it is sealed for the name \"other.key\", and is used as \"wrong.key\"";
        assert_eq!(provision(&dir, document.as_bytes()), [wrong]);
        assert_eq!(files_with(&dir.0, "$6$plain$hash"), ["etc/shadow"]);
        assert_eq!(files_with(&dir.0, "plain-file"), ["etc/app.key"]);
        assert_eq!(files_with(&dir.0, "plain-token"), ["etc/app.conf"]);
        assert!(!dir.0.join("etc/wrong.key").exists() && files_with(&dir.0, "plain-other").is_empty());
        // A whole document, and one after which other documents were measured.
        std::fs::remove_dir_all(dir.0.join("var/lib/cloud")).unwrap();
        let whole = sealed("#cloud-config\nhostname: plain-name\n", "user-data");
        assert_eq!(provision(&dir, whole.as_bytes()), [""; 0]);
        assert_eq!(std::fs::read(dir.0.join("etc/hostname")).unwrap(), b"plain-name\n");
        std::fs::remove_dir_all(dir.0.join("var/lib/cloud")).unwrap();
        let banks = tpm::banks(&mut tpm.connect(), 12).unwrap();
        let digests: Vec<_> = banks.iter().map(|bank| (bank.algorithm, digest(bank.algorithm, b"other"))).collect();
        tpm::extend(&mut tpm.connect(), 12, &banks, &digests).unwrap();
        let said = provision(&dir, whole.as_bytes());
        let why = "user-data cannot be decrypted: the registers sha256:12 do not have the values";
        assert!(said[0].starts_with(why), "{said:?}");
    }

    #[test]
    fn tpm_unseals_eight_objects_in_a_stage() {
        let (dir, state) = (machine("keys-many"), TempDir::new("keys-many-tpm"));
        let Some(tpm) = Swtpm::start(&state.0) else { return };
        tpm.plug_into(&dir);
        let files = (0..=MAX_UNSEALED).map(|number| {
            let sealed = base64::encode(sealed_by(&tpm, &format!("plain-{number}"), "").as_bytes());
            format!("- {{path: /etc/key.{number}, encoding: sealed, content: {sealed}}}\n")
        });
        let document = format!("#cloud-config\nwrite_files:\n{}", files.collect::<String>());
        let many = "write_files: entry 9 (/etc/key.8): content: more than 8 objects are sealed by the TPM";
        assert_eq!(provision(&dir, document.as_bytes()), [many]);
        assert!(dir.0.join("etc/key.7").exists() && !dir.0.join("etc/key.8").exists());
    }

    #[test]
    fn null_key_is_refused_under_secure_boot() {
        const NULL: &[u8] =
            b"BYRp2vb1QySABUnaD46i+yAAAAABAAAADAAAABAAAAD7MQX9+jk2XS7Z5tEAAAAApkLZRQN1OnO3k8ViTQsd9C4OosYrOP4c\n\
                              dWJac/jNC5WP3qmRbkMR90nJeCSY3EbWmrhkq3mt9vw3xCAQB3MW2/Da+f8=\n";
        let dir = machine("keys-null");
        let (machine, root) = (dir.machine(), dir.root(Use::NewRoot));
        let opened = || match Keys::of(&root, &machine).open(&root, NULL, "prepivot.test") {
            Opened::Plain(plain) => String::from_utf8(plain).unwrap(),
            Opened::Later => "later".into(),
            Opened::Failed(e) => e.to_string(),
        };
        assert_eq!(opened(), "hello secret");
        dir.write(SECURE_BOOT, [6, 0, 0, 0, 1]);
        assert_eq!(opened(), "hello secret");
        std::fs::create_dir_all(dir.0.join(TPMS[0])).unwrap();
        assert!(opened().contains("under no key"));
        dir.write(SECURE_BOOT, [6, 0, 0, 0, 0]);
        assert_eq!(opened(), "hello secret");
        let mut parameters = vec![0; 4096];
        parameters[BOOT_PARAMETERS_SECURE_BOOT] = ENABLED;
        dir.write(BOOT_PARAMETERS, parameters);
        assert!(opened().contains("under no key"));
    }

    /// The commands of the manual that have a word, as one script.
    fn recipe(word: &str) -> String {
        let manual = include_str!("../../initramfs/man/prepivot-trust.7.md");
        let mut blocks = manual.split("\n\n").filter(|block| block.lines().all(|line| line.starts_with("    ")));
        blocks.find(|block| block.contains(word)).unwrap().to_owned()
    }

    /// Runs a recipe in a folder, with its key of the disk and with /etc in it.
    fn follow(dir: &TempDir, recipe: &str) -> bool {
        let script = format!("set -e\n{}", recipe.replace("/etc/prepivot", "etc/prepivot"));
        let output = Command::new("sh")
            .args(["-c", &script])
            .current_dir(&dir.0)
            .env("SYSTEMD_CREDENTIAL_SECRET", dir.0.join(HOST.trim_start_matches('/')))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains("not found") {
            skip(said);
            return false;
        }
        assert!(output.status.success(), "{said}");
        true
    }

    #[test]
    fn recipes_of_the_manual_work_word_for_word() {
        let dir = machine("keys-recipes");
        std::fs::create_dir_all(dir.0.join("var/lib/systemd")).unwrap();
        if follow(&dir, &recipe("--with-key=host")) {
            let user_data = std::fs::read(dir.0.join("user-data")).unwrap();
            assert_eq!(provision(&dir, &user_data), [""; 0]);
            assert_eq!(std::fs::read(dir.0.join("etc/app.key")).unwrap(), b"hello secret");
            assert_eq!(files_with(&dir.0, "hello secret"), ["etc/app.key"]);
        }
        let dir = machine("keys-recipes");
        std::fs::remove_file(dir.0.join("etc/prepivot/identities")).unwrap();
        dir.write("document", "#cloud-config\nhostname: of-recipe\n");
        if follow(&dir, &recipe("age-keygen -o")) {
            let user_data = std::fs::read(dir.0.join("user-data")).unwrap();
            assert_eq!(provision(&dir, &user_data), [""; 0]);
            assert_eq!(std::fs::read(dir.0.join("etc/hostname")).unwrap(), b"of-recipe\n");
        }
    }
}
