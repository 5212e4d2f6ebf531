//! Proxies of grids, for `scalla auth proxy` and `xrdgsiproxy`: where they are, making, describing and
//! removing them.

use auth::grid::{Fqan, unverified_groups};
use auth::gsi::{GridCredential, ProxyRequest, default_proxy};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Returns the proxy file of the environment, otherwise that of the user.
pub(crate) fn proxy_file(named: Option<PathBuf>) -> PathBuf {
    named.or_else(|| variable(["XrdSecGSIUSERPROXY", "X509_USER_PROXY"])).unwrap_or_else(default_proxy)
}

/// Returns a file of the environment, otherwise one below the home directory.
pub(crate) fn user_file(named: Option<PathBuf>, variables: [&str; 2], name: &str) -> PathBuf {
    let home = || crate::environment::home().map(|home| home.join(".globus").join(name));
    named.or_else(|| variable(variables)).or_else(home).unwrap_or_else(|| PathBuf::from(name))
}

/// The variables with the certificate of the user.
pub(crate) const CERTIFICATE_VARIABLES: [&str; 2] = ["XrdSecGSIUSERCERT", "X509_USER_CERT"];
/// The variables with its key.
pub(crate) const KEY_VARIABLES: [&str; 2] = ["XrdSecGSIUSERKEY", "X509_USER_KEY"];

fn variable(names: [&str; 2]) -> Option<PathBuf> {
    let value = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    names.into_iter().find_map(value).map(PathBuf::from)
}

/// Makes a proxy of a certificate and writes its file.
pub(crate) fn make(
    certificate: &Path,
    key: &Path,
    request: ProxyRequest,
    file: &Path,
) -> Result<GridCredential, String> {
    let now = SystemTime::now();
    let pair = GridCredential::read_pair(certificate, key)?;
    pair.check_time(now).map_err(|reason| format!("{}: {reason}", certificate.display()))?;
    let proxy = pair.issue_proxy(request, now)?;
    proxy
        .save(file)
        .map_err(|error| format!("cannot write {}: {}", file.display(), base::errno_text(&error)))?;
    Ok(proxy)
}

/// Returns the time until a proxy expires.
pub(crate) fn left(proxy: &GridCredential) -> Duration {
    proxy.expires().duration_since(SystemTime::now()).unwrap_or_default()
}

/// Returns the kind of a certificate.
pub(crate) fn kind(proxy: &GridCredential) -> &'static str {
    match (proxy.is_proxy(), proxy.is_limited()) {
        (true, true) => "Proxy (RFC, limited)",
        (true, false) => "Proxy (RFC)",
        (false, _) => "End Entity",
    }
}

/// Returns the lines that describe a proxy: label and value.
pub(crate) fn description(file: &Path, proxy: &GridCredential) -> Vec<(&'static str, String)> {
    let seconds = left(proxy).as_secs();
    let length = proxy.path_length().map_or_else(|| "unlimited".to_owned(), |length| length.to_string());
    vec![
        ("file", file.display().to_string()),
        ("type", kind(proxy).to_owned()),
        ("issuer", proxy.issuer()),
        ("subject", proxy.subject()),
        ("path length", length),
        ("bits", proxy.bits().to_string()),
        ("time left", format!("{}h:{}m:{}s", seconds / 3600, seconds / 60 % 60, seconds % 60)),
    ]
}

/// Returns the groups of VOMS that a proxy states.
pub(crate) fn groups(proxy: &GridCredential) -> Vec<Fqan> {
    proxy.certificates().iter().flat_map(|certificate| unverified_groups(certificate)).collect()
}

/// Returns a validity of the form `hh:mm`, or of hours.
pub(crate) fn validity(text: &str) -> Option<Duration> {
    let (hours, minutes) = text.split_once(':').unwrap_or((text, "0"));
    let (hours, minutes): (u64, u64) = (hours.parse().ok()?, minutes.parse().ok()?);
    let minutes = hours.checked_mul(60)?.checked_add(minutes)?;
    (minutes > 0).then(|| Duration::from_secs(minutes.saturating_mul(60)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_validity_has_hours_and_minutes() {
        let of = |text| validity(text).map(|found| found.as_secs());
        assert_eq!(of("12:00"), Some(43_200));
        assert_eq!((of("1:30"), of("0:01"), of("24")), (Some(5400), Some(60), Some(86_400)));
        for malformed in ["", "0:00", ":", "a:b", "-1:00", "99999999999999999999"] {
            assert_eq!(of(malformed), None, "{malformed}");
        }
    }
}
