//! The recipes of prepivot-trust(7) that need the program, word for word, with the tools that they name.

use super::*;
use prepivot::base::testing::skip;
use prepivot::trust::endorsed::Endorsed;
use prepivot::trust::swtpm::Swtpm;

const MANUAL: &str = include_str!("../../initramfs/man/prepivot-trust.7.md");
const POLICY: &str = "user-data = measure\nmetadata = measure\nnetwork-config = measure\nvendor-data = measure\n";
const DISK: &str = "/dev/disk/by-label/data";
/// The first systemd that seals to values which are given.
const FIRST_SYSTEMD: u32 = 255;

/// The commands of the manual that have a word, as one script.
fn recipe(word: &str) -> String {
    let blocks = MANUAL.split("\n\n").filter(|block| block.lines().all(|line| line.starts_with("    ")));
    blocks.filter(|block| block.contains(word)).map(str::to_owned).next().unwrap()
}

/// Runs commands in a folder that has etc/prepivot and the program.
fn shell(dir: &TempDir, tpm: &str, script: &str) -> Answer {
    let path = format!("{}/bin:{}", dir.0.display(), std::env::var("PATH").unwrap_or_default());
    let script = format!("set -e\n{}", script.replace("/etc/prepivot", "etc/prepivot"));
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(&dir.0).env("PATH", path).env("TPM2TOOLS_TCTI", tpm);
    answer(command.output().unwrap())
}

/// A folder with a policy, a seed and the program.
fn folder(name: &str) -> TempDir {
    let dir = TempDir::new(name);
    dir.write("etc/prepivot/trust.conf", POLICY);
    dir.write("seed/meta-data", "instance-id: i-1\n");
    dir.write("seed/user-data", "#cloud-config\n");
    fs::create_dir(dir.0.join("bin")).unwrap();
    symlink(PROGRAM, dir.0.join("bin/prepivot")).unwrap();
    dir
}

fn lacks(dir: &TempDir, tools: &[&str]) -> bool {
    let missing = tools.iter().find(|tool| shell(dir, "", &format!("command -v {tool}")).code != 0);
    missing.inspect(|tool| skip(format!("there is no {tool}"))).is_some()
}

/// Between its commands a TPM is cleared of what they left, as the kernel does for programs that use /dev/tpmrm0.
fn cleared(recipe: &str) -> String {
    recipe.lines().map(|line| format!("tpm2_flushcontext -t\n{line}\n")).collect()
}

/// What the documents of the seed extend the register by, as the manual has it.
const MEASURED: &str = r#"sum() { sha256sum <seed/$1 | cut -d' ' -f1; }
for text in metadata:sha256:$(sum meta-data):17 network-config:absent user-data:sha256:$(sum user-data):14 vendor-data:absent vendor-data2:absent
do tpm2_pcrextend 12:sha256=$(printf "prepivot-v1:$text" | sha256sum | cut -d' ' -f1); done"#;

#[test]
fn disks_key_is_sealed_to_predicted_documents() {
    let dir = folder("cli-sealed");
    if lacks(&dir, &["tpm2_unseal", "cryptsetup"]) {
        return;
    }
    let Some(tpm) = Swtpm::start(&dir.0) else { return };
    let follow = |script: &str| shell(&dir, &tpm.name(), script);
    let made = follow(
        "head -c 32 /dev/urandom >disk.key; truncate -s 20M data.img\n\
         cryptsetup luksFormat -q --pbkdf pbkdf2 --pbkdf-force-iterations 1000 data.img disk.key",
    );
    assert_eq!(made.code, 0, "{}", made.err);
    let sealed = follow(&cleared(&recipe("tpm2_create ")));
    assert_eq!(sealed.code, 0, "{}", sealed.err);
    seal_by_systemd(&dir, &tpm);
    let open = cleared(&recipe("tpm2_unseal")).replace(&format!("{DISK} data"), "--test-passphrase data.img");
    assert_ne!(follow(&open).code, 0, "nothing has been measured yet");
    let measured = follow(MEASURED);
    assert_eq!(measured.code, 0, "{}", measured.err);
    let opened = follow(&open);
    assert_eq!(opened.code, 0, "{}", opened.err);
    // Once another document was measured.
    assert_eq!(follow("tpm2_pcrextend 12:sha256=$(echo other | sha256sum | cut -d' ' -f1)").code, 0);
    assert_ne!(follow(&open).code, 0);
}

/// systemd's key has the same policy as that of tpm2-tools.
fn seal_by_systemd(dir: &TempDir, tpm: &Swtpm) {
    let version = shell(dir, "", "systemd-cryptenroll --version");
    let number = version.out.split(' ').nth(1).and_then(|word| word.parse::<u32>().ok()).unwrap_or(0);
    if number < FIRST_SYSTEMD {
        return skip(format!("there is no systemd-cryptenroll of systemd {FIRST_SYSTEMD} or later"));
    }
    let script = recipe("systemd-cryptenroll").replace(DISK, "--unlock-key-file=disk.key data.img");
    let script = script.replace("=auto", &format!("={}", tpm.name()));
    let done = shell(dir, &tpm.name(), &script);
    assert_eq!(done.code, 0, "{}", done.err);
    let token =
        shell(dir, "", "cryptsetup token export --token-id 0 data.img; od -An -v -tx1 pcr12.policy | tr -d ' \\n'");
    let (token, policy) = token.out.rsplit_once('}').unwrap();
    assert!(token.contains(&format!("\"tpm2-policy-hash\":\"{}\"", policy.trim())), "{token} {policy}");
}

#[test]
fn kernel_image_has_the_initramfs_and_command_line() {
    let dir = folder("cli-ukify");
    if lacks(&dir, &["ukify", "openssl", "sbverify"]) {
        return;
    }
    let Ok(kernel) = std::env::var("PREPIVOT_KERNEL") else { return skip("PREPIVOT_KERNEL names no kernel for ukify") };
    fs::copy(kernel, dir.0.join("vmlinuz")).unwrap();
    dir.write("initrd.img", "an initramfs with etc/prepivot/trust.conf");
    let key = "openssl req -x509 -nodes -newkey rsa:2048 -subj /CN=db -keyout db.key -out db.crt 2>/dev/null\n";
    let made = shell(&dir, "", &format!("{key}{}\nsbverify --cert db.crt prepivot.efi", recipe("ukify build")));
    assert_eq!(made.code, 0, "{}{}", made.out, made.err);
    let image = fs::read(dir.0.join("prepivot.efi")).unwrap();
    for part in ["an initramfs with etc/prepivot/trust.conf", "root=LABEL=root ro prepivot.metadata=use"] {
        assert!(image.windows(part.len()).any(|window| window == part.as_bytes()), "{part}");
    }
}

/// A file of the folder, opened by the TPM as the machine does it.
fn opened(tpm: &Swtpm, sealed: &[u8], name: &str) -> Result<Vec<u8>, String> {
    let sealed = Endorsed::parse(sealed).unwrap();
    let key = sealed.unseal(&mut tpm.connect()).map_err(|e| e.to_string())?;
    sealed.open(&key, name).map_err(|e| e.to_string())
}

#[test]
fn recipes_seal_to_a_tpms_endorsement_key() {
    let dir = folder("cli-endorsed");
    if lacks(&dir, &["tpm2_createek", "tpm2_readpublic"]) {
        return;
    }
    let Some(tpm) = Swtpm::start(&dir.0) else { return };
    let follow = |script: &str| {
        let done = shell(&dir, &tpm.name(), script);
        assert_eq!(done.code, 0, "{}", done.err);
    };
    follow(&cleared(&recipe("tpm2_readpublic")));
    dir.write("document", "#cloud-config\nhostname: sealed\n");
    dir.write("secrets", "#cloud-config\ntimezone: UTC\n");
    let file = |name: &str| fs::read(dir.0.join(name)).unwrap();
    follow(&recipe("--name user-data document"));
    assert_eq!(opened(&tpm, &file("user-data"), "user-data").unwrap(), file("document"));
    assert!(opened(&tpm, &file("user-data"), "vendor-data").unwrap_err().contains("for the name"));
    follow(&recipe("--value"));
    let document = String::from_utf8(file("user-data")).unwrap();
    let value = document.split("encrypted(app.key:").nth(1).and_then(|rest| rest.split(')').next()).unwrap();
    let value = prepivot::base::base64::decode(value.as_bytes()).unwrap();
    assert_eq!(opened(&tpm, &value, "app.key").unwrap(), b"hello secret");
    // Bound to the documents, of which vendor-data is none.
    dir.write("etc/prepivot/trust.conf", POLICY.replace("vendor-data = measure", "vendor-data = encryption"));
    follow(&recipe("> seed/vendor-data"));
    let sealed = file("seed/vendor-data");
    let early = opened(&tpm, &sealed, "vendor-data").unwrap_err();
    assert!(early.contains("the registers sha256:12 do not have the values"), "{early}");
    let measured = MEASURED.replace(" vendor-data:absent vendor-data2:absent", "");
    follow(&measured);
    assert_eq!(opened(&tpm, &sealed, "vendor-data").unwrap(), file("secrets"));
    follow("tpm2_pcrextend 12:sha256=$(echo other | sha256sum | cut -d' ' -f1)");
    assert!(opened(&tpm, &sealed, "vendor-data").is_err());
    // One that stays in the TPM.
    follow(&cleared("tpm2_createek -G rsa -c 0x81010001 -u ek.tpm"));
    follow(&recipe("--name user-data document"));
    assert_eq!(opened(&tpm, &file("user-data"), "user-data").unwrap(), file("document"));
}

/// The files of swtpm_setup and of its authority are in the folder, in place of those of the machine.
const SETUP: &str = r#"mkdir config
printf 'create_certs_tool = %s\ncreate_certs_tool_config = %s\ncreate_certs_tool_options = %s\n' \
  "$(command -v swtpm_localca)" "$PWD/config/swtpm-localca.conf" "$PWD/config/swtpm-localca.options" >config/swtpm_setup.conf
printf 'statedir = %s\nsigningkey = %s/key.pem\nissuercert = %s/cert.pem\ncertserial = %s/serial\n' \
  "$PWD/config" "$PWD/config" "$PWD/config" "$PWD/config" >config/swtpm-localca.conf
printf -- '--platform-manufacturer test\n--platform-version 1\n--platform-model test\n' >config/swtpm-localca.options
export XDG_CONFIG_HOME="$PWD/config"
"#;

#[test]
fn recipe_seals_by_swtpms_certificate() {
    let dir = folder("cli-setup");
    if lacks(&dir, &["swtpm_setup", "swtpm_localca", "certtool", "tpm2_getekcertificate"]) {
        return;
    }
    dir.write("document", "#cloud-config\nhostname: sealed\n");
    let made = shell(&dir, "", &format!("{SETUP}{}\n{}", recipe("swtpm_setup"), recipe("--name user-data document")));
    assert_eq!(made.code, 0, "{}{}", made.out, made.err);
    let Some(tpm) = Swtpm::start(&dir.0.join("tpm")) else { return };
    let file = |name: &str| fs::read(dir.0.join(name)).unwrap();
    assert_eq!(opened(&tpm, &file("user-data"), "user-data").unwrap(), file("document"));
    // The TPM has the certificate, too.
    let script = format!("{}\ncmp ek.pem ek/ek-rsa2048.crt", recipe("tpm2_getekcertificate"));
    let read = shell(&dir, &tpm.name(), &script);
    assert_eq!(read.code, 0, "{}{}", read.out, read.err);
}

#[test]
fn recipe_verifies_by_tpm2_tools() {
    let dir = folder("cli-verified");
    if lacks(&dir, &["tpm2_createak", "tpm2_quote", "tpm2_checkquote"]) {
        return;
    }
    let Some(tpm) = Swtpm::start(&dir.0) else { return };
    let follow = |script: &str| shell(&dir, &tpm.name(), script);
    let quote = || {
        let quoted = follow(&cleared(&recipe("tpm2_quote")));
        assert_eq!(quoted.code, 0, "{}", quoted.err);
        follow(&recipe("> checked"))
    };
    assert_ne!(quote().code, 0, "nothing has been measured yet");
    let measured = follow(MEASURED);
    assert_eq!(measured.code, 0, "{}", measured.err);
    let verified = quote();
    assert_eq!(verified.code, 0, "{}{}", verified.out, verified.err);
    // For another nonce.
    let other = recipe("> checked").replace("-q 5f", "-q 6f");
    assert_ne!(follow(&other).code, 0);
    assert_eq!(follow("tpm2_pcrextend 12:sha256=$(echo other | sha256sum | cut -d' ' -f1)").code, 0);
    assert_ne!(quote().code, 0);
}

/// As the manual says, with the length before each part.
#[test]
fn tpm2_tools_import_the_sealed_key() {
    let dir = folder("cli-import");
    if lacks(&dir, &["tpm2_createek", "tpm2_import", "tpm2_unseal", "openssl"]) {
        return;
    }
    let Some(tpm) = Swtpm::start(&dir.0) else { return };
    dir.write("document", "hello");
    let made = shell(
        &dir,
        &tpm.name(),
        &format!("{}\n{}", cleared(&recipe("tpm2_readpublic")), recipe("--name user-data document")),
    );
    assert_eq!(made.code, 0, "{}", made.err);
    let sealed = fs::read_to_string(dir.0.join("user-data")).unwrap();
    let key = sealed.lines().find_map(|line| line.strip_prefix("key: ")).unwrap();
    for (part, name) in key.split("@@NULL@@").zip(["sealed.pub", "sealed.dup", "sealed.seed"]) {
        let part = prepivot::base::base64::decode(part.as_bytes()).unwrap();
        dir.write(name, [&u16::try_from(part.len()).unwrap().to_be_bytes()[..], &part].concat());
    }
    let session = "tpm2_startauthsession --policy-session -S session\ntpm2_policysecret -S session -c e\n";
    let script = format!(
        "tpm2_createek -G rsa -c ek.ctx -u ek.tpm\ntpm2_flushcontext -t\n{session}\
         tpm2_import -C ek.ctx -P session:session -u sealed.pub -i sealed.dup -s sealed.seed -r sealed.priv\n\
         tpm2_flushcontext session\ntpm2_flushcontext -t\n{session}\
         tpm2_load -C ek.ctx -P session:session -u sealed.pub -r sealed.priv -c sealed.ctx\n\
         tpm2_flushcontext session\ntpm2_flushcontext -t\n\
         tpm2_startauthsession --policy-session -S session\n\
         tpm2_unseal -c sealed.ctx -p session:session -o key"
    );
    let done = shell(&dir, &tpm.name(), &script);
    assert_eq!(done.code, 0, "{}", done.err);
    let ours = Endorsed::parse(sealed.as_bytes()).unwrap().unseal(&mut tpm.connect()).unwrap();
    assert_eq!(fs::read(dir.0.join("key")).unwrap(), ours);
}
