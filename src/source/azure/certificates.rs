//! SSH keys that the media only identifies by the fingerprints of certificates. The wire server has these,
//! and encrypts them for this machine.
//!
//! The machine creates a transport key and certificate; the response is a CMS message (RFC 5652) that
//! contains a PKCS #12 file (RFC 7292). The running system's openssl and ssh-keygen decrypt it, as in
//! cloud-init: only deployments by Azure's old service management have such keys, and 3DES, RC2 and PKCS #12
//! would take a tenth of this program.

use super::wire_server::{GoalState, WireServer};
use crate::base::base64;
use crate::base::digest::{Algorithm, digest};
use crate::base::error::{Error, Result};
use crate::base::problem::Problems;
use crate::root::Command;

/// The most certificates that are read.
const MAX_CERTIFICATES: usize = 100;
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Runs a command of the system and returns its standard output, or an error if it fails.
pub type Run<'a> = &'a mut dyn FnMut(Command) -> Result<Vec<u8>>;

/// The SSH keys of the certificates with these fingerprints. The transport key is created in `folder`, which
/// only root can read. Missing certificates are warned about.
///
/// # Errors
/// The wire server has no certificates, or a program fails.
pub fn keys(
    server: &WireServer,
    goal: &GoalState,
    fingerprints: &[String],
    folder: &str,
    run: Run,
    warnings: &Problems,
) -> Result<Vec<String>> {
    let none = || Error::new("the wire server has no certificates for this machine");
    let url = goal.certificates.as_deref().ok_or_else(none)?;
    let transport = transport(folder, run)?;
    let encrypted = server.certificates(url, &transport)?;
    let bundle = decrypted(&encrypted, folder, run)?;
    let found = certificates(&bundle);
    let mut keys = Vec::new();
    for wanted in fingerprints {
        let Some((pem, _)) = found.iter().find(|(_, fingerprint)| fingerprint.eq_ignore_ascii_case(wanted)) else {
            warnings
                .warn(format!("ovf-env.xml names an SSH key by the fingerprint {wanted}, and no certificate has it"));
            continue;
        };
        keys.push(public_key(pem, run)?);
    }
    Ok(keys)
}

fn command<const N: usize>(argv: [&str; N]) -> Command {
    Command::new(argv)
}

/// Creates the transport key and certificate in `folder`. Returns the certificate in base64.
fn transport(folder: &str, run: Run) -> Result<String> {
    let (key, certificate) = paths(folder);
    let (subject, days) = ("/CN=LinuxTransport", "32768");
    run(command([
        "openssl",
        "req",
        "-x509",
        "-nodes",
        "-subj",
        subject,
        "-days",
        days,
        "-newkey",
        "rsa:3072",
        "-keyout",
        &key,
        "-out",
        &certificate,
    ]))?;
    let pem = run(command(["openssl", "x509", "-in", &certificate]))?;
    let lines = String::from_utf8_lossy(&pem);
    Ok(lines.lines().filter(|line| !line.contains("CERTIFICATE")).map(str::trim).collect())
}

fn paths(folder: &str) -> (String, String) {
    (format!("{folder}/TransportPrivate.pem"), format!("{folder}/TransportCert.pem"))
}

/// The certificates, in PEM, in the wire server's response.
fn decrypted(encrypted: &str, folder: &str, run: Run) -> Result<String> {
    let text: String = encrypted.split_whitespace().collect();
    let message =
        base64::decode(text.as_bytes()).ok_or_else(|| Error::new("the wire server's certificates are not base64"))?;
    let (key, certificate) = paths(folder);
    let cms = ["openssl", "cms", "-decrypt", "-inform", "DER", "-inkey", &key, "-recip", &certificate];
    let archive = run(command(cms).stdin(message))?;
    let pkcs12 = ["openssl", "pkcs12", "-nokeys", "-password", "pass:"];
    let bundle = run(command(pkcs12).stdin(archive.clone())).or_else(|_| {
        // OpenSSL 3 has the ciphers of old archives in a provider that is only loaded on request.
        let [openssl, pkcs12, others @ ..] = pkcs12;
        let mut legacy = command([openssl, pkcs12, "-legacy"]);
        legacy.argv.extend(others.map(String::from));
        run(legacy.stdin(archive))
    })?;
    Ok(String::from_utf8_lossy(&bundle).into_owned())
}

/// Each certificate in a PEM bundle, with its SHA-1 fingerprint in upper case, as Azure writes it.
fn certificates(bundle: &str) -> Vec<(&str, String)> {
    let mut found = Vec::new();
    let mut rest = bundle;
    while let Some((from, to)) = rest.find(BEGIN).and_then(|from| {
        let length = rest.get(from..)?.find(END)?;
        Some((from, from + length + END.len()))
    }) {
        let pem = rest.get(from..to).unwrap_or_default();
        let text = pem.trim_start_matches(BEGIN).trim_end_matches(END);
        let der = base64::decode(text.split_whitespace().collect::<String>().as_bytes());
        if let Some(der) = der.filter(|_| found.len() < MAX_CERTIFICATES) {
            let digest = digest(Algorithm::Sha1, &der);
            found.push((pem, digest.iter().map(|b| format!("{b:02X}")).collect()));
        }
        rest = rest.get(to..).unwrap_or_default();
    }
    found
}

/// A certificate's public key in OpenSSH's format.
fn public_key(pem: &str, run: Run) -> Result<String> {
    let key = run(command(["openssl", "x509", "-noout", "-pubkey"]).stdin(pem))?;
    let line = run(command(["ssh-keygen", "-i", "-m", "PKCS8", "-f", "/dev/stdin"]).stdin(key))?;
    Ok(String::from_utf8_lossy(&line).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::wire_server::tests::{GOAL_STATE, client};
    use super::*;
    use crate::base::testing::TempDir;
    use crate::link::http::script::{Answer, Script};
    use std::io::Write;
    use std::net::Ipv4Addr;
    use std::process::{Command as Process, Stdio};

    /// The program's standard output.
    fn run(command: Command) -> Result<Vec<u8>> {
        let (program, arguments) = command.argv.split_first().unwrap();
        let mut process = Process::new(program);
        process.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = process.spawn().map_err(|e| Error::new(format!("{program}: {e}")))?;
        child.stdin.take().unwrap().write_all(&command.stdin.unwrap_or_default()).unwrap();
        let output = child.wait_with_output().unwrap();
        if output.status.success() {
            Ok(output.stdout)
        } else {
            Err(Error::new(format!("{program}: {}", output.status)))
        }
    }

    #[test]
    fn keys_come_out_of_the_encrypted_archive() {
        if run(command(["openssl", "version"])).and(run(command(["sh", "-c", "command -v ssh-keygen"]))).is_err() {
            return crate::base::testing::skip("openssl or ssh-keygen is missing");
        }
        let dir = TempDir::new("azure-certificates");
        let folder = dir.0.to_str().unwrap();
        // A user's certificate in an archive, as the wire server has it, encrypted for a transport key that this test knows.
        transport(folder, &mut run).unwrap();
        let script = "cd $0 && openssl req -x509 -nodes -subj /CN=user -newkey rsa:2048 -keyout u.key -out u.crt &&
            openssl pkcs12 -export -inkey u.key -in u.crt -password pass: -out u.p12 &&
            openssl cms -encrypt -binary -des3 -outform DER -in u.p12 -out u.p7m TransportCert.pem &&
            ssh-keygen -y -f u.key > u.pub && openssl x509 -in u.crt -noout -fingerprint -sha1 > u.sha1";
        run(command(["sh", "-c", script, folder])).unwrap();
        let read = |name: &str| std::fs::read(dir.0.join(name)).unwrap();
        let message = base64::encode(&read("u.p7m"));
        let fingerprint = String::from_utf8(read("u.sha1")).unwrap();
        let fingerprint = fingerprint.split_once('=').unwrap().1.trim().replace(':', "");
        let body = format!(
            "<CertificateFile><Format>Pkcs7BlobWithPfxContents</Format><Data>\n{message}\n</Data></CertificateFile>"
        );
        let answers = Script::default()
            .with("GET", "http://10.0.0.9/machine/?comp=goalstate", Answer::new(200, GOAL_STATE))
            .with("GET", "http://10.0.0.9/certificates", Answer::new(200, body));
        let (client, script) = client(answers);
        let server = WireServer { client: &client, address: Ipv4Addr::new(10, 0, 0, 9), tries: 3 };
        let goal = server.goal_state().unwrap();
        // The transport key stays the one that the message is for.
        let mut keep = |command: Command| match command.argv.get(1).is_some_and(|verb| verb == "req") {
            true => Ok(Vec::new()),
            false => run(command),
        };
        let warnings = Problems::new();
        let wanted = [fingerprint, "00".repeat(20)];
        let keys = keys(&server, &goal, &wanted, folder, &mut keep, &warnings).unwrap();
        assert_eq!(
            keys,
            [String::from_utf8(read("u.pub")).unwrap().split(' ').take(2).collect::<Vec<_>>().join(" ").trim()]
        );
        assert_eq!(warnings.len(), 1);
        let sent = script.sent();
        let certificate =
            &sent[1].headers.iter().find(|(name, _)| name == "x-ms-guest-agent-public-x509-cert").unwrap().1;
        assert!(base64::decode(certificate.as_bytes()).is_some(), "{certificate}");
    }

    #[test]
    fn what_is_no_certificate_is_left_out() {
        let text = format!("Bag\n{BEGIN}\nAAAA\n{END}\n{BEGIN}\n!!\n{END}\n{BEGIN} no end");
        assert_eq!(certificates(&text).len(), 1);
        assert_eq!(certificates(&text)[0].1.len(), 40);
    }
}
