//! The SSH server's host keys.

mod openssh;

use super::{ModuleContext, service};
use crate::base::error::{Context as _, Error, Result};
use crate::base::text::quoted;
use crate::base::{ed25519, p256};
use crate::instance::state;
use crate::root::{Attr, Command, Root, installed, owner};
use openssh::Pair;
pub use openssh::{fingerprint, public_of};

/// The folder of the keys.
pub const FOLDER: &str = "/etc/ssh";
/// Key types, in the order in which cloud-init generates them.
pub const TYPES: [&str; 3] = ["rsa", "ecdsa", "ed25519"];
/// The length of an RSA key, in bits: ssh-keygen's default.
const RSA_BITS: &str = "3072";
/// OpenSSH's helper, whose group could read the private keys in older distributions.
const KEYSIGN: &str = "/usr/libexec/openssh/ssh-keysign";

/// The path of a private key.
pub fn path(kind: &str) -> String {
    format!("{FOLDER}/ssh_host_{kind}_key")
}

/// Removes every host key and certificate: those of a copied image belong to another machine.
///
/// # Errors
/// A file cannot be removed.
pub fn remove_all(root: &mut Root) -> Result<()> {
    for name in root.list(FOLDER) {
        if name.strip_prefix("ssh_host_").is_some_and(|rest| rest.contains("key")) {
            root.remove(&format!("{FOLDER}/{name}"))?;
        }
    }
    Ok(())
}

/// Whether the kernel is in FIPS mode, in which some kinds of keys must not be used.
fn is_in_fips_mode(root: &Root) -> bool {
    root.cmdline().value("fips") == Some("1") || root.text("/proc/sys/crypto/fips_enabled").trim() == "1"
}

/// The types of host keys to generate; None if the configuration provides host keys.
pub fn generated_types(context: &ModuleContext) -> Option<Vec<String>> {
    if context.get("ssh_keys").is_some() {
        return None;
    }
    let mut types = match context.config.get("ssh_genkeytypes") {
        None => TYPES.map(str::to_owned).to_vec(),
        Some(value) => value.texts(),
    };
    // As in cloud-init: a machine in FIPS mode must not have such a key.
    if is_in_fips_mode(context.root) {
        types.retain(|kind| kind != "ed25519");
    }
    Some(types)
}

/// Generates the missing keys of `kinds` that are fast to generate: ecdsa (P-256) and ed25519. RSA is left to
/// [`finish`].
///
/// # Errors
/// The kernel returns no random numbers, or a file cannot be written.
pub fn make(context: &mut ModuleContext, kinds: &[String]) -> Result<()> {
    let comment = comment(context.root);
    for kind in kinds {
        let generate = match kind.as_str() {
            "ed25519" => ed25519,
            "ecdsa" => ecdsa,
            "rsa" => continue,
            other => {
                log::info!("ssh_genkeytypes: no host key of the type {} is made", quoted(other));
                continue;
            }
        };
        let file = path(kind);
        if context.root.exists(&file) {
            continue;
        }
        let (private, public) = generate(&comment).context(|| "failed to make an SSH host key")?;
        context.root.mkdir(FOLDER, Attr::root(0o755))?;
        let attr = private_attr(context);
        context.root.write(&file, private.as_bytes(), attr)?;
        context.root.write(&format!("{file}.pub"), format!("{public}\n"), Attr::root(0o644))?;
    }
    Ok(())
}

/// Generates the RSA key with ssh-keygen if it is wanted and missing, and notifies a running server. For the
/// background work, because it takes seconds.
///
/// # Errors
/// ssh-keygen or the notification fails.
pub fn finish(context: &mut ModuleContext) -> Result<()> {
    if !is_rsa_due(context) {
        return Ok(());
    }
    let file = path("rsa");
    // In a plan the command leaves no key.
    if context.root.is_plan() && context.root.commands().iter().any(|c| c.argv.last() == Some(&file)) {
        return Ok(());
    }
    let begun = begun(context);
    if context.root.exists(&begun) {
        for end in ["", ".pub"] {
            context.root.remove(&format!("{file}{end}"))?;
        }
    }
    context.root.write(&begun, "", Attr::root(0o600))?;
    let comment = comment(context.root);
    let argv = ["ssh-keygen", "-q", "-t", "rsa", "-b", RSA_BITS, "-N", "", "-C", &comment, "-f", &file];
    context.root.run(Command::new(argv))?;
    context.root.sync(&file)?;
    context.root.remove(&begun)?;
    let attr = private_attr(context);
    if context.root.exists(&file) {
        context.root.set_attr(&file, attr)?;
    }
    let server = super::sshd_config::service(context);
    service::manage(context, service::Action::ReadAgain, &server)
}

/// Whether the RSA key is wanted, missing or incomplete, and can be generated.
pub fn is_rsa_due(context: &ModuleContext) -> bool {
    let is_whole = || context.root.exists(&path("rsa")) && !context.root.exists(&begun(context));
    is_rsa_wanted(context) && !is_whole() && installed::which(context.root, "ssh-keygen").is_some()
}

/// A marker while ssh-keygen makes the RSA key. It does not sync the key: if the marker still exists, a power cut may have left
/// half a key.
fn begun(context: &ModuleContext) -> String {
    format!("{}/prepivot-rsa-begun", state::folder(context.instance))
}

/// Whether the SSH server has no host key until the RSA key is generated.
pub fn has_rsa_alone(context: &ModuleContext) -> bool {
    is_rsa_wanted(context) && public_keys(context.root).is_empty()
}

fn is_rsa_wanted(context: &ModuleContext) -> bool {
    generated_types(context).is_some_and(|kinds| kinds.iter().any(|kind| kind == "rsa"))
}

/// Generates the RSA key before the SSH server starts, if the server would otherwise have no host key.
///
/// # Errors
/// As [`finish`].
pub fn finish_if_alone(context: &mut ModuleContext) -> Result<()> {
    if !has_rsa_alone(context) {
        return Ok(());
    }
    log::info!("ssh_genkeytypes has only rsa: the boot waits until the key is made");
    finish(context)
}

/// The private key's file and the public key's line, of a new key.
type Texts = (String, String);

fn ed25519(comment: &str) -> Result<Texts> {
    let (private, public) = ed25519::new_key()?;
    Ok(texts(&Pair::ed25519(&private, &public), comment))
}

/// A key on the curve P-256.
fn ecdsa(comment: &str) -> Result<Texts> {
    let (private, public) = p256::new_key()?;
    Ok(texts(&Pair::p256(&private.to_bytes(), &public), comment))
}

fn texts(pair: &Pair, comment: &str) -> Texts {
    (pair.private_file(comment), pair.public_line(comment))
}

/// `root@` and the host name, as ssh-keygen does.
fn comment(root: &Root) -> String {
    let text = root.text("/etc/hostname");
    let name = text.lines().map(str::trim).find(|l| !l.is_empty() && !l.starts_with('#')).unwrap_or("localhost");
    let good = name.bytes().all(|b| b.is_ascii_graphic()) && name.len() <= 255;
    format!("root@{}", if good { name } else { "localhost" })
}

/// The mode and owner of private keys: 0600, but 0640 for the group ssh_keys on distributions whose
/// ssh-keysign uses it (Fedora up to 37, RHEL up to 9).
fn private_attr(context: &ModuleContext) -> Attr {
    if context.distro.family == crate::machine::Family::Redhat
        && let Some(gid) = owner::group_id(context.root, "ssh_keys")
    {
        let group_reads = context.root.stat(KEYSIGN).is_some_and(|s| s.attr.gid == gid && s.attr.mode & 0o2000 != 0);
        return Attr { mode: if group_reads { 0o640 } else { 0o600 }, uid: 0, gid };
    }
    Attr::root(0o600)
}

/// The existing public host keys: file name and line, sorted by name.
pub fn public_keys(root: &Root) -> Vec<(String, String)> {
    let names = root.list(FOLDER).into_iter();
    names
        .filter(|n| n.starts_with("ssh_host_") && n.ends_with("key.pub"))
        .filter_map(|n| {
            let text = root.text(&format!("{FOLDER}/{n}"));
            Some((n, text.lines().next()?.trim().to_owned()))
        })
        .collect()
}

/// Writes a key from the configuration. OpenSSH rejects PEM without a line feed at its end, so that one is
/// added.
///
/// # Errors
/// The file cannot be written.
pub fn write_given(root: &mut Root, path: &str, text: &str, mode: u32) -> Result<()> {
    let end = if text.starts_with("-----BEGIN") && !text.ends_with('\n') { "\n" } else { "" };
    if text.contains('\0') {
        return Err(Error::new(format!("ssh_keys: the key for {path} holds a NUL byte")));
    }
    root.write(path, format!("{text}{end}"), Attr::root(mode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::TempDir;
    use crate::root::{Output, Use};
    use crate::system::testing::Inputs;

    #[test]
    fn remakes_an_rsa_key_after_power_cut() {
        let dir = TempDir::new("rsa");
        let mut root = dir.root(Use::Tree);
        root.write("/usr/bin/ssh-keygen", "", Attr::root(0o755)).unwrap();
        let mut inputs = Inputs::new("debian", "{}");
        inputs.instance.instance_id = "i".into();
        let mut run = |is_cut: bool| {
            let mut cx = inputs.context(&mut root);
            let file = path("rsa");
            let mark = begun(&cx);
            cx.root.play(Box::new(move |root, command| {
                assert!(command.argv[0] != "ssh-keygen" || root.exists(&mark) && !root.exists(&path("rsa")));
                if is_cut {
                    return Err(Error::new("the power fails"));
                }
                Ok(Output { status: 0, stdout: Vec::new(), stderr: Vec::new() })
            }));
            let was_due = is_rsa_due(&cx);
            assert_eq!(finish(&mut cx).is_err(), is_cut);
            cx.root.write(&file, if is_cut { "" } else { "whole" }, Attr::root(0o600)).unwrap();
            (was_due, is_rsa_due(&cx))
        };
        assert_eq!([run(true), run(false), run(false)], [(true, true), (true, false), (false, false)]);
    }

    #[test]
    fn keys_are_openssh_keys() {
        for (texts, kind) in [(ed25519("root@h"), "ssh-ed25519"), (ecdsa("root@h"), "ecdsa-sha2-nistp256")] {
            let (private, public) = texts.unwrap();
            assert!(private.starts_with("-----BEGIN OPENSSH PRIVATE KEY-----\n") && private.ends_with("-----\n"));
            assert!(public.starts_with(kind) && public.ends_with(" root@h"), "{public}");
            assert_eq!(public_of(&private).unwrap(), public.replace("root@h", "root@localhost"));
        }
        assert_eq!(public_of("-----BEGIN RSA PRIVATE KEY-----\nx\n"), None);
    }

    #[test]
    fn ssh_keygen_reads_them() {
        use std::os::unix::fs::PermissionsExt;
        let program = std::path::Path::new("/usr/bin/ssh-keygen");
        if !program.exists() {
            crate::base::testing::skip("there is no ssh-keygen");
            return;
        }
        let dir = crate::base::testing::TempDir::new("host-keys");
        for texts in [ed25519("root@h"), ecdsa("root@h")] {
            let (private, public) = texts.unwrap();
            let path = dir.0.join("key");
            std::fs::write(&path, &private).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
            let run = |option: &str| {
                let out = std::process::Command::new(program).args([option, "-f"]).arg(&path).output().unwrap();
                assert!(out.status.success(), "{out:?}");
                String::from_utf8(out.stdout).unwrap().trim().to_owned()
            };
            assert_eq!(run("-y"), public);
            assert_eq!(Some(run("-l")), fingerprint(&public));
        }
    }
}
