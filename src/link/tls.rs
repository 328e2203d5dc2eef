//! TLS for the HTTP client: rustls with ring. Certificates are checked at a plausible time even if the clock
//! is wrong.
//!
//! rustls's default provider also has ChaCha20, and more kinds of keys for client certificates, which are not used here and take
//! 90 KB.

use crate::base::clock;
use crate::base::error::{Context, Error, Result};
use crate::base::lean::tls_p256 as p256;
use crate::base::lean::tls_x25519::X25519;
use crate::base::random;
use crate::link::dns::UplinkResolver;
use crate::link::tcp::{CountedBuffers, LinkConnector};
use crate::link::tls_own;
use crate::machine::beneath;
use rustls::client::ClientConfig;
use rustls::crypto::ring::cipher_suite as suite;
use rustls::crypto::ring::kx_group::SECP384R1;
use rustls::crypto::{CryptoProvider, GetRandomFailed, KeyProvider, SecureRandom, WebPkiSupportedAlgorithms};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::SigningKey;
use rustls::time_provider::TimeProvider;
use rustls::{CertificateError, ClientConnection, RootCertStore, SignatureScheme as Scheme, StreamOwned};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use ureq::Agent;
use ureq::config::Config as AgentConfig;
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, NextTimeout, Transport, TransportAdapter};
use webpki::ring as signature;

/// When this program was built, in seconds since 1970 (SOURCE_DATE_EPOCH). 0 if the build did not set it.
const BUILT: Option<&str> = option_env!("SOURCE_DATE_EPOCH");

/// Where distributions keep their trusted CA certificates, in one file.
const CA_FILES: [&str; 5] = [
    "etc/ssl/certs/ca-certificates.crt",
    "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "var/lib/ca-certificates/ca-bundle.pem",
    "etc/ssl/ca-bundle.pem",
    "etc/ssl/cert.pem",
];

/// A TLS configuration: the trusted CAs, and how certificates are checked.
pub type Config = Arc<ClientConfig>;

/// An agent that uses TLS for its connections.
pub fn agent(settings: AgentConfig, connector: LinkConnector, resolver: UplinkResolver, tls: Config) -> Agent {
    Agent::with_parts(settings, connector.chain(TlsConnector(tls)), resolver)
}

/// The largest file of certificates, in bytes: those of distributions' CAs have 0.3 MB.
const MAX_FILE: u64 = 4 << 20;

/// cloud-init's folders for a certificate of the machine (cloud-init 26.2, util.py, `fetch_ssl_details`): cert.pem and key.pem, of
/// which the latter may be part of the former.
const OWN_CERTIFICATE: [&str; 2] = ["var/lib/cloud/data/ssl", "var/lib/cloud/instance/data/ssl"];

/// The configuration with the CA certificates of the root at `image`, in the first of [`CA_FILES`] that is a file there, and with the
/// machine's own certificate, for servers that ask for one.
///
/// Certificates are checked at the latest of the clock's time, the program's build, and the last change of
/// that file: a machine without a clock battery starts in 1970, when no certificate was valid.
///
/// # Errors
/// None of the files exists, or the first has no certificate or is larger than [`MAX_FILE`].
pub fn config(image: Option<&Path>) -> Result<Config> {
    let found =
        image.and_then(|image| CA_FILES.iter().find_map(|path| Some((image, path, beneath::file(image, path)?))));
    let Some((image, path, file)) = found else {
        let names = CA_FILES.join(", /");
        return Err(Error::new(format!("https needs CA certificates: none of /{names} is a file")));
    };
    let pem = whole(path, &file)?;
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(|c| c.ok()));
    if added == 0 {
        return Err(Error::new(format!("/{path}: expected certificates in PEM, found none")));
    }
    configured(roots, earliest(&file), Some(image))
}

/// The bytes of a file of certificates.
fn whole(path: &str, file: &File) -> Result<Vec<u8>> {
    let mut pem = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut pem).context(|| format!("failed to read /{path}"))?;
    if pem.len() as u64 > MAX_FILE {
        return Err(Error::new(format!("failed to read /{path}: larger than {MAX_FILE} bytes")));
    }
    Ok(pem)
}

/// The machine's own certificate with its key, and its path, in the first of [`OWN_CERTIFICATE`] that has one.
fn own(image: &Path) -> Result<Option<(String, Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>> {
    let file = |name: &str| {
        let mut paths = OWN_CERTIFICATE.iter().map(|folder| format!("{folder}/{name}"));
        paths
            .find_map(|path| beneath::file(image, &path).map(|file| whole(&path, &file).map(|pem| (path, pem))))
            .transpose()
    };
    let Some((path, certificate)) = file("cert.pem")? else { return Ok(None) };
    let key = file("key.pem")?.map_or_else(|| certificate.clone(), |(_, key)| key);
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&certificate).filter_map(|c| c.ok()).collect();
    let key = PrivateKeyDer::from_pem_slice(&key).ok().filter(|_| !chain.is_empty());
    let missing = || Error::new(format!("/{path}: expected a certificate in PEM, and its key in key.pem beside it"));
    let key = key.ok_or_else(missing)?;
    Ok(Some((path, chain, key)))
}

/// The configuration that trusts `roots`, with the certificate of the machine whose root is at `image`. One that cannot be used is
/// left out, with a warning.
fn configured(roots: RootCertStore, earliest: SystemTime, image: Option<&Path>) -> Result<Config> {
    let builder = ClientConfig::builder_with_details(Arc::new(provider()), Arc::new(Clock { earliest }));
    let builder = builder.with_safe_default_protocol_versions().map_err(|e| Error::new(e.to_string()))?;
    let builder = builder.with_root_certificates(roots);
    match image.map_or(Ok(None), own) {
        Ok(Some((path, chain, key))) => match builder.clone().with_client_auth_cert(chain, key) {
            Ok(config) => return Ok(Arc::new(config)),
            Err(e) => log::warn!("/{path}: it is not used: {e}"),
        },
        Ok(None) => {}
        Err(e) => log::warn!("{e}: it is not used"),
    }
    Ok(Arc::new(builder.with_no_client_auth()))
}

/// A time in the past: when the program was built and the file was written.
fn earliest(file: &File) -> SystemTime {
    let built = BUILT.and_then(|seconds| seconds.parse().ok()).unwrap_or(0);
    let built = UNIX_EPOCH.checked_add(Duration::from_secs(built)).unwrap_or(UNIX_EPOCH);
    let changed = file.metadata().and_then(|m| m.modified()).unwrap_or(UNIX_EPOCH);
    built.max(changed)
}

/// The clock, but never earlier than a time in the past.
#[derive(Debug)]
struct Clock {
    earliest: SystemTime,
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(clock::since_1970(SystemTime::now().max(self.earliest))))
    }
}

/// Adds TLS to another connector's connections.
#[derive(Debug)]
struct TlsConnector(Config);

impl<In: Transport> Connector<In> for TlsConnector {
    type Out = TlsTransport<In>;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<In>,
    ) -> std::result::Result<Option<Self::Out>, ureq::Error> {
        let (Some(transport), Some(host)) = (chained, details.uri.host()) else { return Ok(None) };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(bare.to_owned()).map_err(|e| refused(format!("{bare}: {e}")))?;
        let mut connection = ClientConnection::new(self.0.clone(), name).map_err(|e| refused(explained(&e)))?;
        let mut adapter = TransportAdapter::new(transport, details.current_time.clone());
        adapter.set_timeout(details.timeout);
        connection.complete_io(&mut adapter).map_err(read_error)?;
        let stream = StreamOwned { conn: connection, sock: adapter };
        Ok(Some(TlsTransport { stream, buffers: CountedBuffers::new(details.config) }))
    }
}

/// An error that another attempt would repeat.
fn refused(text: String) -> ureq::Error {
    ureq::Error::Other(Box::new(Error::new(text)))
}

/// TLS errors are final; errors of the connection below are passed on.
fn read_error(error: io::Error) -> ureq::Error {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).map(explained);
    tls.map_or_else(|| error.into(), refused)
}

/// rustls's error, with the clock's time if that may be the cause.
fn explained(error: &rustls::Error) -> String {
    let date = |time: &UnixTime| {
        let time = UNIX_EPOCH.checked_add(Duration::from_secs(time.as_secs())).unwrap_or(UNIX_EPOCH);
        clock::timestamp(time, "")
    };
    let now = clock::timestamp(SystemTime::now(), "");
    match error {
        rustls::Error::InvalidCertificate(CertificateError::NotValidYetContext { not_before, .. }) => format!(
            "the server's certificate is valid from {} UTC on, and the clock of this machine says {now}: is it wrong?",
            date(not_before)
        ),
        rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, time }) => format!(
            "the server's certificate expired at {} UTC; it was checked at {}, and the clock of this machine says {now}",
            date(not_after),
            date(time)
        ),
        error => error.to_string(),
    }
}

/// A connection with TLS.
struct TlsTransport<In: Transport> {
    stream: StreamOwned<ClientConnection, TransportAdapter<In>>,
    buffers: CountedBuffers,
}

impl<In: Transport> Transport for TlsTransport<In> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> std::result::Result<(), ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        self.buffers.begin();
        let output = self.buffers.output().get(..amount).unwrap_or_default();
        self.stream.write_all(output).map_err(read_error)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> std::result::Result<bool, ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        self.buffers.check()?;
        let input = self.buffers.input_append_buf();
        let amount = self.stream.read(input).map_err(read_error)?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.sock.get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

impl<In: Transport> std::fmt::Debug for TlsTransport<In> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsTransport").finish_non_exhaustive()
    }
}

/// TLS 1.3 and 1.2 with AES-GCM, which every server has (RFC 8446, section 9.1), and all of ring's groups and
/// signatures.
fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: vec![
            suite::TLS13_AES_256_GCM_SHA384,
            suite::TLS13_AES_128_GCM_SHA256,
            suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
            suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        ],
        kx_groups: vec![X25519, p256::SECP256R1, SECP384R1],
        signature_verification_algorithms: SIGNATURES,
        secure_random: &System,
        key_provider: &System,
    }
}

const SIGNATURES: WebPkiSupportedAlgorithms = WebPkiSupportedAlgorithms {
    all: &[
        p256::ECDSA_SHA256,
        p256::ECDSA_SHA384,
        signature::ECDSA_P384_SHA256,
        signature::ECDSA_P384_SHA384,
        signature::ED25519,
        signature::RSA_PSS_2048_8192_SHA256_LEGACY_KEY,
        signature::RSA_PSS_2048_8192_SHA384_LEGACY_KEY,
        signature::RSA_PSS_2048_8192_SHA512_LEGACY_KEY,
        signature::RSA_PKCS1_2048_8192_SHA256,
        signature::RSA_PKCS1_2048_8192_SHA384,
        signature::RSA_PKCS1_2048_8192_SHA512,
        signature::RSA_PKCS1_2048_8192_SHA256_ABSENT_PARAMS,
        signature::RSA_PKCS1_2048_8192_SHA384_ABSENT_PARAMS,
        signature::RSA_PKCS1_2048_8192_SHA512_ABSENT_PARAMS,
    ],
    // In TLS 1.2 an ECDSA scheme does not name the curve.
    mapping: &[
        (Scheme::ECDSA_NISTP384_SHA384, &[signature::ECDSA_P384_SHA384, p256::ECDSA_SHA384]),
        (Scheme::ECDSA_NISTP256_SHA256, &[p256::ECDSA_SHA256, signature::ECDSA_P384_SHA256]),
        (Scheme::ED25519, &[signature::ED25519]),
        (Scheme::RSA_PSS_SHA512, &[signature::RSA_PSS_2048_8192_SHA512_LEGACY_KEY]),
        (Scheme::RSA_PSS_SHA384, &[signature::RSA_PSS_2048_8192_SHA384_LEGACY_KEY]),
        (Scheme::RSA_PSS_SHA256, &[signature::RSA_PSS_2048_8192_SHA256_LEGACY_KEY]),
        (Scheme::RSA_PKCS1_SHA512, &[signature::RSA_PKCS1_2048_8192_SHA512]),
        (Scheme::RSA_PKCS1_SHA384, &[signature::RSA_PKCS1_2048_8192_SHA384]),
        (Scheme::RSA_PKCS1_SHA256, &[signature::RSA_PKCS1_2048_8192_SHA256]),
    ],
};

#[derive(Debug)]
struct System;

impl SecureRandom for System {
    fn fill(&self, bytes: &mut [u8]) -> std::result::Result<(), GetRandomFailed> {
        random::fill(bytes, "https").map_err(|_| GetRandomFailed)
    }
}

impl KeyProvider for System {
    fn load_private_key(&self, key: PrivateKeyDer<'static>) -> std::result::Result<Arc<dyn SigningKey>, rustls::Error> {
        tls_own::load(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID_2020_TO_2120: &str = "\
        -----BEGIN CERTIFICATE-----\n\
        MIIBZDCCAQqgAwIBAgIBATAKBggqhkjOPQQDAjAUMRIwEAYDVQQDDAlsb2NhbGhv\n\
        c3QwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMBQxEjAQBgNVBAMM\n\
        CWxvY2FsaG9zdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABNwY8PMCdFFXgDng\n\
        hCifJ4XSCnF8PhOCMXVoCmEKQxvm1kUr12OKC4TA2fvyHh/E9abBMEAgomqJVXxe\n\
        o9HoRVijSzBJMAwGA1UdEwEB/wQCMAAwGgYDVR0RBBMwEYIJbG9jYWxob3N0hwR/\n\
        AAABMB0GA1UdDgQWBBRYwEqmb1ouNt9sRdb1+UpMNQvkwjAKBggqhkjOPQQDAgNI\n\
        ADBFAiBU5yJzd+deNajzgF9Y19+PbRNzitqulOi7EIW2oY13UAIhANEC2UaZ/2It\n\
        IU1d7SBdWoN7Fef0N3JRshAl5gGXnLQD\n\
        -----END CERTIFICATE-----\n\
        ";
    const VALID_2090_TO_2100: &str = "\
        -----BEGIN CERTIFICATE-----\n\
        MIIBZjCCAQygAwIBAgIBATAKBggqhkjOPQQDAjAUMRIwEAYDVQQDDAlsb2NhbGhv\n\
        c3QwIhgPMjA5MDAxMDEwMDAwMDBaGA8yMTAwMDEwMTAwMDAwMFowFDESMBAGA1UE\n\
        AwwJbG9jYWxob3N0MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE3Bjw8wJ0UVeA\n\
        OeCEKJ8nhdIKcXw+E4IxdWgKYQpDG+bWRSvXY4oLhMDZ+/IeH8T1psEwQCCiaolV\n\
        fF6j0ehFWKNLMEkwDAYDVR0TAQH/BAIwADAaBgNVHREEEzARgglsb2NhbGhvc3SH\n\
        BH8AAAEwHQYDVR0OBBYEFFjASqZvWi4232xF1vX5Skw1C+TCMAoGCCqGSM49BAMC\n\
        A0gAMEUCIQDrTOxPYi5dZmbYklO10Pcvq+LiT9DfnQ5AS+8WnLF+3wIgc9cQmEK7\n\
        c+y+92owlCFZUriLxyvRTfBqepd/aFx0eF4=\n\
        -----END CERTIFICATE-----\n\
        ";
    const VALID_IN_2001: &str = "\
        -----BEGIN CERTIFICATE-----\n\
        MIIBYjCCAQigAwIBAgIBATAKBggqhkjOPQQDAjAUMRIwEAYDVQQDDAlsb2NhbGhv\n\
        c3QwHhcNMDEwMTAxMDAwMDAwWhcNMDIwMTAxMDAwMDAwWjAUMRIwEAYDVQQDDAls\n\
        b2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAATcGPDzAnRRV4A54IQo\n\
        nyeF0gpxfD4TgjF1aAphCkMb5tZFK9djiguEwNn78h4fxPWmwTBAIKJqiVV8XqPR\n\
        6EVYo0swSTAMBgNVHRMBAf8EAjAAMBoGA1UdEQQTMBGCCWxvY2FsaG9zdIcEfwAA\n\
        ATAdBgNVHQ4EFgQUWMBKpm9aLjbfbEXW9flKTDUL5MIwCgYIKoZIzj0EAwIDSAAw\n\
        RQIhAPvERxdKBi14oJzS65sN47jZYZ2kbiRPHGpxbkLAXx6EAiBwBBQv7nSdv/zn\n\
        bElXcgjXGkVZ4lvGL99nGZJ2ZgBTmw==\n\
        -----END CERTIFICATE-----\n\
        ";
    const KEY: &str = "\
        -----BEGIN PRIVATE KEY-----\n\
        MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQggw3hQidUZ/On1RHp\n\
        C+Sb61a8XAUE83aJxWVo8bnMWHehRANCAATcGPDzAnRRV4A54IQonyeF0gpxfD4T\n\
        gjF1aAphCkMb5tZFK9djiguEwNn78h4fxPWmwTBAIKJqiVV8XqPR6EVY\n\
        -----END PRIVATE KEY-----\n\
        ";

    const OWN_RSA: &str = "\
        -----BEGIN CERTIFICATE-----\n\
        MIICyzCCAbOgAwIBAgIBATANBgkqhkiG9w0BAQsFADARMQ8wDQYDVQQDDAZjbGll\n\
        bnQwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMBExDzANBgNVBAMM\n\
        BmNsaWVudDCCASIwDQYJKoZIhvcNAQEBBQADggEPADCCAQoCggEBAMj//bYP7Idd\n\
        cbZ43sui+7cYCXYH3grCudycTkOvKqLGsQ4EnZfkffRwBGzYzEHAiAfGx3CKYr5l\n\
        PieIkvt67+Y/Bne/kxyBmDtvoCmaex+htdF6XJt/qiSZWFwj8IwYylTOMe8kwu5H\n\
        Stqwthd7siw2vQ2dO3tzXH+cmiEvzDEw8yWHwiK+P/XPpe6fL8JO2iykZCBMQy6w\n\
        357wBd4yeuvO1ThPOvP5Qh/xuuuQtMUJ7grgGn7RSiBvr+k0rXMD3O61C8j6SiuR\n\
        6RBJ8rQDSJa239bimSMCE+/nKSUpD0Wc0F6sC2II7XMjatf+Rl8mha0GqDTnBiVO\n\
        /W5Xi2E9E6MCAwEAAaMsMCowCQYDVR0TBAIwADAdBgNVHQ4EFgQUV2y7lg2vu9zS\n\
        sNJwYtkyOdgqvk8wDQYJKoZIhvcNAQELBQADggEBAL5HhdL7bKPcyUYar0zV+nVi\n\
        QBZrBbpW3i2uS0vIMStuXm9Znac166G3nBIZakQiksMR97njyBqyoz5aycw/WuiI\n\
        jTmgl4S3R06tKTguR6avBTpIIYKAD1Oa4WJWwRFFLMK9VjzktLs2sfzAFTUuykqi\n\
        5IWsZTErvKjDNbPO9ikh1RhEi8CFgdBRTDe9QhW7k6zpEhYgwEFYiK4mTRtPjkPQ\n\
        EO63vxQiiKZLAGUPmhlbTuZRbmvbXHMNlbHCAL+0KbOqFtpSDNLfjbnDolDYCsCL\n\
        tH9xi4xzpKQ0AjV7p9c6j1OLn6bXGNKRpNnraZYZq8QEHFyJVoalwnuyqbAGgO8=\n\
        -----END CERTIFICATE-----\n\
        ";
    const OWN_RSA_KEY: &str = "\
        -----BEGIN RSA PRIVATE KEY-----\n\
        MIIEogIBAAKCAQEAyP/9tg/sh11xtnjey6L7txgJdgfeCsK53JxOQ68qosaxDgSd\n\
        l+R99HAEbNjMQcCIB8bHcIpivmU+J4iS+3rv5j8Gd7+THIGYO2+gKZp7H6G10Xpc\n\
        m3+qJJlYXCPwjBjKVM4x7yTC7kdK2rC2F3uyLDa9DZ07e3Ncf5yaIS/MMTDzJYfC\n\
        Ir4/9c+l7p8vwk7aLKRkIExDLrDfnvAF3jJ6687VOE868/lCH/G665C0xQnuCuAa\n\
        ftFKIG+v6TStcwPc7rULyPpKK5HpEEnytANIlrbf1uKZIwIT7+cpJSkPRZzQXqwL\n\
        YgjtcyNq1/5GXyaFrQaoNOcGJU79bleLYT0TowIDAQABAoIBAEdaYNWdx4iySmjN\n\
        dcHyhMsVlF47Ir7NK6++KSZr64XHZRkl2FAQhAofLeL5/2CkGWYxUaGI7s7KIAtm\n\
        t07g8ILbAs/FyVKISuNmmAPM3EJ5ZJMNjgyBgIPnj+99rqn9Lu52GFHdyflOg6so\n\
        qiuh9LkvYWOQ2onThRWkIS8Aycr4BRTRAvLFBg1/6+PHIgoIQbcDsye4K4CYUD0F\n\
        KBoXBe+uJ8lODmlbywd1jjhVHen+9vTnnD5uv253dD93DBWTYKPfnP8wB02BmgAh\n\
        HxtvHmeyeQbOBtjbNQqmbgQMFE6gF4rKzZ745rSWvZOwP522+b1qBuqQ9VhDiMa4\n\
        LEhGd5ECgYEA82O3aiWMIiqd/+ntzTmG5IWnI7EcJefrp5+O2hRWEPnaK6Z52m1G\n\
        gEk23ZNGuzhTg9Jm0HPnlWlMg90ngAXC5yEE1HnQMx/R8PlFuLVa3bfYlxfLm0kz\n\
        yn+Uw5ROCIKZuJfWPUpfNnJAscxIgkL6xohlCdOuJkZdBba4GrFq82sCgYEA02oG\n\
        koJGNgScfVz2xqTLCxs/0mpJqZNbm4Weq0vQEUUb+/th3SNScBykBkprr/HqHFDw\n\
        jmLG9TdoglxR46PypREgf661d8i9GkJbyn/ngNBbFzR3FyCivx0Hr4QiYZbT+TAU\n\
        0YRcv3LpXgH+52vR3/Oidlpbdb/LkIAOD1UhpqkCgYAFEb2fO1r41zRlQSUP0jPq\n\
        DJKXnre8XmE9I4ihKC1Guz19DUGaeA4w29WFteySN7EdnMNBcjiPlxrd4DxTYUtW\n\
        7wwftM3OUspXn4mBOF3FInAjbX5zJIosnI2nqS4a5UV4X8k5i5QCGU0ZpuyXsfdx\n\
        LSQVmVAWQf7sAItDGxDkMwKBgD6sG66q9+1jiJCRUoaoq5hrR4w0/glLKcj834Cg\n\
        RNoZxqX4a5aGthWOKAHFZg8Og/xI8kcDeT+QYWbjv1LgczoDzcKMJDeSRpzWNyfc\n\
        quBA5AAJCZTNk/Fbxb9+SELt14Dzg/hoaKZIhm3b4ZjxGZJuQycauio55Tq8+24I\n\
        KqWhAoGAez20ZF1m9zpjKsUjtvmJHozLW+8Mm22McT5l54gfjigrsFEdOvJdLz55\n\
        zTzbaTSyycEhBX05ggmkUs17syQ3zipX2Alh5grypPhgIQ9uVcuRLzspufNpK9UI\n\
        hONUXKB+KYJXUWHI0+w2BJHguU/iWxw7RHPmzrHsuzN2Evj5uOQ=\n\
        -----END RSA PRIVATE KEY-----\n\
        ";

    /// Asks a server on loopback that has the certificate, trusts it, and checks it at `earliest` or later.
    fn ask(certificate: &str, earliest: SystemTime) -> std::result::Result<String, String> {
        ask_with(certificate, earliest, None, None)
    }

    /// The same with the machine's certificate below `image`, if the server wants one that `clients` signed.
    fn ask_with(
        certificate: &str,
        earliest: SystemTime,
        clients: Option<&str>,
        image: Option<&Path>,
    ) -> std::result::Result<String, String> {
        let parsed = || CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(KEY.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
                let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let server = builder.with_single_cert(vec![parsed()], key).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let thread = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut connection = rustls::ServerConnection::new(Arc::new(server)).unwrap();
            let mut stream = rustls::Stream::new(&mut connection, &mut socket);
            let mut head = [0; 1024];
            if stream.read(&mut head).is_ok_and(|len| len > 0) {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
            }
        });
        let mut roots = RootCertStore::empty();
        roots.add(parsed()).unwrap();
        let chain = ().chain(ureq::unversioned::transport::TcpConnector::default());
        let connector = chain.chain(TlsConnector(configured(roots, earliest, image).unwrap()));
        let config = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(20))).build();
        let resolver = ureq::unversioned::resolver::DefaultResolver::default();
        let agent = ureq::Agent::with_parts(config, connector, resolver);
        let answer = agent.get(format!("https://127.0.0.1:{port}/")).call();
        let text = answer.and_then(|mut a| a.body_mut().read_to_string()).map_err(|e| e.to_string());
        thread.join().unwrap();
        text
    }

    #[test]
    fn certificates_are_checked_at_a_plausible_time() {
        let year = |year: u64| UNIX_EPOCH + Duration::from_secs((year - 1970) * 31_556_952 + 86_400);
        assert_eq!(ask(VALID_2020_TO_2120, UNIX_EPOCH).as_deref(), Ok("hi"));
        // A clock that is behind the image: the image's time is used.
        assert_eq!(ask(VALID_2090_TO_2100, year(2095)).as_deref(), Ok("hi"));
        let early = ask(VALID_2090_TO_2100, UNIX_EPOCH).unwrap_err();
        let wrong = "valid from 2090-01-01 00:00:00 UTC on, and the clock of this machine says 20";
        assert!(early.contains(wrong) && early.ends_with(": is it wrong?"), "{early}");
        let expired = ask(VALID_IN_2001, UNIX_EPOCH).unwrap_err();
        assert!(
            expired.contains("the server's certificate expired at 2002-01-01 00:00:00 UTC; it was checked at 20"),
            "{expired}"
        );
        let late = ask(VALID_2090_TO_2100, year(2110)).unwrap_err();
        assert!(late.contains("expired at 2100-01-01 00:00:00 UTC; it was checked at 2110"), "{late}");
    }

    #[test]
    fn shows_own_certificate_to_servers_that_ask() {
        let dir = crate::base::testing::TempDir::new("tls-own");
        let image = |name: &str| dir.0.join(name);
        let write = |name: &str, text: &str| dir.write(&name.replacen('/', "/var/lib/cloud/", 1), text);
        let ask =
            |clients: Option<&str>, name: &str| ask_with(VALID_2020_TO_2120, UNIX_EPOCH, clients, Some(&image(name)));
        assert!(ask(Some(VALID_2020_TO_2120), "none").is_err());
        // On P-256, with the key beside it.
        write("p256/instance/data/ssl/cert.pem", VALID_2020_TO_2120);
        write("p256/instance/data/ssl/key.pem", KEY);
        assert_eq!(ask(Some(VALID_2020_TO_2120), "p256").as_deref(), Ok("hi"));
        // RSA, in one file.
        write("rsa/data/ssl/cert.pem", &format!("{OWN_RSA}{OWN_RSA_KEY}"));
        assert_eq!(ask(Some(OWN_RSA), "rsa").as_deref(), Ok("hi"));
        // What cannot be used is left out, and a server that asks for none is asked all the same.
        write("bad/data/ssl/cert.pem", "nothing");
        write("half/data/ssl/cert.pem", OWN_RSA);
        write("large/data/ssl/cert.pem", "");
        let large = image("large/var/lib/cloud/data/ssl/cert.pem");
        std::fs::File::options().write(true).open(large).unwrap().set_len(2 << 30).unwrap();
        // A file outside the image is not read.
        std::fs::create_dir_all(image("linked/var/lib/cloud/data/ssl")).unwrap();
        let (outside, link) = (image("rsa/var/lib/cloud/data/ssl/cert.pem"), "linked/var/lib/cloud/data/ssl/cert.pem");
        std::os::unix::fs::symlink(outside, image(link)).unwrap();
        for name in ["bad", "half", "large", "linked"] {
            assert_eq!(ask(None, name).as_deref(), Ok("hi"), "{name}");
            assert!(ask(Some(OWN_RSA), name).is_err(), "{name}");
        }
    }

    #[test]
    fn authorities_are_those_of_the_image() {
        let dir = crate::base::testing::TempDir::new("tls");
        let (image, first) = (dir.0.join("image"), "etc/ssl/certs/ca-certificates.crt");
        let refused = |image: Option<&Path>| config(image).unwrap_err().to_string();
        for none in [None, Some(image.as_path())] {
            assert!(refused(none).starts_with("https needs CA certificates: none of /etc/ssl/"), "{}", refused(none));
        }
        std::fs::create_dir_all(image.join("etc/ssl/certs")).unwrap();
        let write = |name: &str, text: &str| std::fs::write(image.join(name), text).unwrap();
        write("etc/ssl/cert.pem", "nothing");
        assert_eq!(refused(Some(&image)), "/etc/ssl/cert.pem: expected certificates in PEM, found none");
        write("etc/ssl/cert.pem", VALID_2020_TO_2120);
        assert!(config(Some(&image)).is_ok());
        let found = beneath::file(&image, "etc/ssl/cert.pem").unwrap();
        assert!(earliest(&found) > UNIX_EPOCH + Duration::from_secs(1_600_000_000));
        // A link inside the image is followed there. One that leads elsewhere, a FIFO and a device are not read.
        std::os::unix::fs::symlink("/etc/ssl/cert.pem", image.join(first)).unwrap();
        dir.write("outside", "outside");
        assert!(config(Some(&image)).is_ok());
        std::fs::remove_file(image.join("etc/ssl/cert.pem")).unwrap();
        std::fs::remove_file(image.join(first)).unwrap();
        std::os::unix::fs::symlink(dir.0.join("outside"), image.join(first)).unwrap();
        assert!(refused(Some(&image)).ends_with(" is a file"));
        std::fs::remove_file(image.join(first)).unwrap();
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, image.join(first), kind, 0o600.into(), 0).unwrap();
        assert!(refused(Some(&image)).ends_with(" is a file"));
        std::fs::remove_file(image.join(first)).unwrap();
        std::fs::File::create(image.join(first)).unwrap().set_len(2 << 30).unwrap();
        assert_eq!(refused(Some(&image)), format!("failed to read /{first}: larger than {MAX_FILE} bytes"));
    }

    #[test]
    fn only_chacha20_is_left_out() {
        let (ours, theirs) = (provider(), rustls::crypto::ring::default_provider());
        let wanted = theirs.cipher_suites.iter().filter(|s| !format!("{s:?}").contains("CHACHA20"));
        assert!(ours.cipher_suites.iter().eq(wanted));
        let names = |p: &CryptoProvider| p.kx_groups.iter().map(|g| g.name()).collect::<Vec<_>>();
        assert_eq!(names(&ours), names(&theirs));
        let (ours, theirs) = (ours.signature_verification_algorithms, theirs.signature_verification_algorithms);
        assert_eq!(ours.supported_schemes(), theirs.supported_schemes());
        let ids = |list: &[&'static dyn rustls::pki_types::SignatureVerificationAlgorithm]| {
            list.iter().map(|a| (a.public_key_alg_id(), a.signature_alg_id())).collect::<Vec<_>>()
        };
        assert_eq!(ids(ours.all), ids(theirs.all));
        for ((scheme, list), (other, theirs)) in ours.mapping.iter().zip(theirs.mapping) {
            assert_eq!((scheme, ids(list)), (other, ids(theirs)));
        }
    }
}
