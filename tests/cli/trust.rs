//! The recipes of prepivot-trust(7) that need the program, word for word, with the tools that they name.

use super::*;
use prepivot::base::testing::skip;
use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::time::Duration;

const MANUAL: &str = include_str!("../../initramfs/man/prepivot-trust.7.md");
const POLICY: &str = "user-data = measure\nmetadata = measure\nnetwork-config = measure\nvendor-data = measure\n";
const DISK: &str = "/dev/disk/by-label/data";
/// The first systemd that seals to values which are given.
const FIRST_SYSTEMD: u32 = 255;

/// A TPM in software on two ports in a row, which ends with the test.
struct Tpm(Child, u16);

impl Drop for Tpm {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Tpm {
    fn start(dir: &TempDir) -> Option<Tpm> {
        let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
        let ports = (0..50).filter_map(|_| Some(TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port()));
        let port = ports.filter(|port| *port < u16::MAX).find(|port| free(*port) && free(port + 1))?;
        let state = dir.0.join("tpm");
        fs::create_dir(&state).unwrap();
        let child = Command::new("swtpm")
            .args(["socket", "--tpm2", "--flags", "not-need-init,startup-clear", "--tpmstate"])
            .arg(format!("dir={}", state.display()))
            .args(["--server", &format!("type=tcp,port={port},disconnect")])
            .args(["--ctrl", &format!("type=tcp,port={}", port + 1)])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = child.map_err(|e| skip(format!("swtpm: {e}"))).ok()?;
        let ready = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            !free(port)
        });
        assert!(ready, "swtpm does not answer");
        Some(Tpm(child, port))
    }

    /// Its name for tpm2-tools and systemd.
    fn name(&self) -> String {
        format!("swtpm:host=127.0.0.1,port={}", self.1)
    }
}

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
    let Some(tpm) = Tpm::start(&dir) else { return };
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
fn seal_by_systemd(dir: &TempDir, tpm: &Tpm) {
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
