//! The HTTPS client: the metadata of an issuer, then its keys.

use auth::tls::SYSTEM_FILES;
use auth::tokens::{JWKS_BYTES_MAX, KeySet};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use ureq::Agent;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

/// Maximum time of one request.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(4);
/// Maximum number of redirects of one request. They lead to HTTPS addresses only.
const REDIRECTS_MAX: u32 = 3;
/// Maximum size of the metadata of an issuer in bytes.
const METADATA_BYTES_MAX: usize = 64 * 1024;
/// Documents with the metadata of an issuer, below its address; the first that exists.
const METADATA: [&str; 2] = ["/.well-known/openid-configuration", "/.well-known/oauth-authorization-server"];

/// Variables that name a file with trusted certificates.
const TRUST_VARIABLES: [&str; 2] = ["X509_CERT_FILE", "SSL_CERT_FILE"];

/// The part of the metadata that is used.
#[derive(Deserialize)]
struct IssuerMetadata {
    jwks_uri: String,
}

/// Maximum time of the download of the keys of an issuer: that of its three requests.
pub(super) const DOWNLOAD_TIME_MAX: Duration = Duration::from_secs(12);

/// Fetches the keys of an issuer. Returns them also as text. Servers must have a certificate of an
/// authority in the file `trusted`; without it, of one that the environment or the system names. Blocks,
/// for each of up to three requests at most 4 s.
///
/// # Errors
/// The reason.
pub fn download_keys(issuer: &str, trusted: Option<&Path>) -> Result<(KeySet, Vec<u8>), String> {
    download_keys_within(issuer, trusted, DOWNLOAD_TIME_MAX)
}

/// Fetches keys as [`download_keys`], within a time.
pub(super) fn download_keys_within(
    issuer: &str,
    trusted: Option<&Path>,
    limit: Duration,
) -> Result<(KeySet, Vec<u8>), String> {
    let end = Instant::now() + limit;
    let agent = agent(trusted.map_or_else(trusted_certificates, certificates)?);
    let address = metadata(&agent, issuer, end)?.jwks_uri;
    if !address.starts_with("https://") {
        return Err(format!("its keys are at {address:?}, which is not an HTTPS address"));
    }
    let text = get(&agent, &address, JWKS_BYTES_MAX, end).map_err(|fault| fault.reason)?;
    let keys = KeySet::parse(&text).map_err(|error| format!("{address}: {error}"))?;
    Ok((keys, text))
}

/// Fetches the metadata of an issuer.
fn metadata(agent: &Agent, issuer: &str, end: Instant) -> Result<IssuerMetadata, String> {
    let mut reasons = Vec::new();
    for document in METADATA {
        let address = format!("{}{document}", issuer.trim_end_matches('/'));
        let text = match get(agent, &address, METADATA_BYTES_MAX, end) {
            Ok(text) => text,
            Err(FetchFault { reason, is_answer }) => {
                reasons.push(reason);
                match is_answer {
                    true => continue,
                    // A second wait for a server that does not answer would delay other issuers.
                    false => break,
                }
            }
        };
        match serde_json::from_slice(&text) {
            Ok(metadata) => return Ok(metadata),
            Err(error) => reasons.push(format!("{address}: no metadata of an issuer: {error}")),
        }
    }
    Err(reasons.join("; "))
}

/// The failure of a fetch.
#[derive(Debug)]
struct FetchFault {
    reason: String,
    /// The server has answered, with an error.
    is_answer: bool,
}

fn get(agent: &Agent, address: &str, bytes_max: usize, end: Instant) -> Result<Vec<u8>, FetchFault> {
    let limit = end.saturating_duration_since(Instant::now()).min(REQUEST_TIME_MAX);
    if limit.is_zero() {
        return Err(FetchFault { reason: format!("{address}: no time is left"), is_answer: false });
    }
    let failed = |error: ureq::Error| FetchFault {
        reason: match &error {
            ureq::Error::Io(error) => format!("{address}: {}", base::errno_text(error)),
            error => format!("{address}: {error}"),
        },
        is_answer: matches!(error, ureq::Error::StatusCode(_)),
    };
    let request = agent.get(address).config().timeout_global(Some(limit)).build();
    let mut answer = request.call().map_err(failed)?;
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    answer.body_mut().with_config().limit(limit).read_to_vec().map_err(failed)
}

fn agent(trusted: RootCerts) -> Agent {
    let cryptography = Arc::new(auth::tls::provider());
    let tls =
        TlsConfig::builder().unversioned_rustls_crypto_provider(cryptography).root_certs(trusted).build();
    let config = Agent::config_builder()
        .https_only(true)
        .max_redirects(REDIRECTS_MAX)
        .tls_config(tls)
        .user_agent(concat!("scalla/", env!("CARGO_PKG_VERSION")));
    config.build().into()
}

/// Returns the certificates that the environment or the system trusts. They are read for each fetch, so
/// that changes count without a restart.
fn trusted_certificates() -> Result<RootCerts, String> {
    // A file that is named restricts the trust, so others do not replace it.
    if let Some(named) = TRUST_VARIABLES.iter().find_map(std::env::var_os) {
        return certificates(Path::new(&named));
    }
    let file = SYSTEM_FILES.map(PathBuf::from).into_iter().find(|file| file.exists());
    let file = file.ok_or("the system has no trusted certificates; install them (ca-certificates)")?;
    certificates(&file)
}

fn certificates(file: &Path) -> Result<RootCerts, String> {
    let shown = file.display();
    let unreadable = |error| format!("cannot read the certificates in {shown}: {}", base::errno_text(&error));
    let text = std::fs::read(file).map_err(unreadable)?;
    let certificates: Vec<_> = parse_pem(&text)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if certificates.is_empty() {
        return Err(format!("{shown} has no certificates"));
    }
    Ok(RootCerts::Specific(Arc::new(certificates)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_is_used() {
        let agent = agent(RootCerts::Specific(Arc::default()));
        // Without this restriction it would connect, and the error would be another one.
        let fault = get(&agent, "http://127.0.0.1:1/", 10, Instant::now() + REQUEST_TIME_MAX).unwrap_err();
        assert!(fault.reason.contains("https") && !fault.is_answer, "{fault:?}");
    }

    #[test]
    fn trusted_certificates_must_be_readable() {
        let file = std::env::temp_dir().join(format!("scalla-trust-{}", std::process::id()));
        std::fs::write(&file, "text").unwrap();
        assert!(certificates(&file).unwrap_err().contains("has no certificates"));
        std::fs::remove_file(&file).unwrap();
        assert!(certificates(&file).unwrap_err().contains("cannot read"));
    }
}
