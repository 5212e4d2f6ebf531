//! The expiry of certificates: the warnings before it, each logged once, and the time left in statistics.

use crate::tls::ServerTls;
use session::LoginPolicy;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

/// The times before the expiry of a certificate at which it is logged, in days.
const WARNING_DAYS: [u32; 2] = [30, 3];

/// The time before the expiry at which the first warning is due.
pub(crate) const WARNING_TIME: Duration = Duration::from_secs(30 * DAY.as_secs());

/// A certificate that has expired or expires soon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ExpiryProblem {
    pub(crate) has_expired: bool,
    pub(crate) text: String,
}

impl ExpiryProblem {
    /// Returns the problem of a certificate with this end of its validity; `None` if it is valid for
    /// longer than the first warning.
    pub(crate) fn of(certificate: &Path, expires: SystemTime, now: SystemTime) -> Option<Self> {
        let left = expires.duration_since(now).unwrap_or_default();
        due_warning(left)?;
        let shown = certificate.display();
        let text = if left.is_zero() {
            format!("the certificate {shown} has expired, so clients refuse it; replace the file")
        } else {
            let hours = left.as_secs() / 3600;
            let (days, hours) = (hours / 24, hours % 24);
            format!("the certificate {shown} expires in {days} days and {hours} hours; replace the file")
        };
        Some(Self { has_expired: left.is_zero(), text })
    }
}

/// A certificate of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CertificateExpiry {
    /// The protocol that uses it: `tls` or an authentication protocol.
    pub(crate) protocol: String,
    /// The end of its validity.
    pub(crate) expires: SystemTime,
}

/// Returns the certificates in force.
pub(crate) struct ListCertificates(pub(crate) Box<dyn Fn() -> Vec<CertificateExpiry> + Send + Sync>);

/// Returns the list of the certificates in force, for statistics. `None` if there are none.
pub(crate) fn list_certificates(
    login: Option<&Arc<LoginPolicy>>,
    tls: Option<&Arc<ServerTls>>,
) -> Option<ListCertificates> {
    let of_protocols = login.map(|login| login.protocols()).unwrap_or_default();
    let protocols: Vec<_> =
        of_protocols.iter().filter(|protocol| protocol.certificate().is_some()).cloned().collect();
    if protocols.is_empty() && tls.is_none() {
        return None;
    }
    let tls = tls.cloned();
    Some(ListCertificates(Box::new(move || {
        let of = |protocol: &str, expires| CertificateExpiry { protocol: protocol.to_owned(), expires };
        let of_tls = tls.iter().map(|tls| of("tls", tls.expires()));
        let of_logins =
            protocols.iter().filter_map(|protocol| Some(of(protocol.id(), protocol.certificate()?.expires)));
        of_tls.chain(of_logins).collect()
    })))
}

/// The warnings about the certificate of one file.
#[derive(Default, Debug)]
pub(crate) struct ExpiryWarnings {
    /// End of the validity, and warning that was logged last, as the number of days.
    logged: Option<(SystemTime, u32)>,
}

impl ExpiryWarnings {
    /// Logs the warning that is due, unless it was logged for this certificate.
    pub(crate) fn log(&mut self, certificate: &Path, expires: SystemTime, now: SystemTime) {
        match self.next(certificate, expires, now) {
            Some(problem) if problem.has_expired => tracing::error!("{}", problem.text),
            Some(problem) => tracing::warn!("{}", problem.text),
            None => {}
        }
    }

    /// Returns the warning that is due, once. A new certificate in the same file has its own warnings.
    fn next(&mut self, certificate: &Path, expires: SystemTime, now: SystemTime) -> Option<ExpiryProblem> {
        let days = due_warning(expires.duration_since(now).unwrap_or_default())?;
        if self.logged == Some((expires, days)) {
            return None;
        }
        self.logged = Some((expires, days));
        ExpiryProblem::of(certificate, expires, now)
    }
}

/// Returns the warning that is due when a certificate has this time left: the number of days, 0 if
/// it has expired.
fn due_warning(left: Duration) -> Option<u32> {
    if left.is_zero() {
        return Some(0);
    }
    WARNING_DAYS.into_iter().filter(|days| left <= DAY * *days).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiry_is_logged_at_thirty_and_three_days_and_at_the_end() {
        let day = |days| DAY * days;
        let cases = [
            (day(31), None),
            (day(30), Some(30)),
            (day(4), Some(30)),
            (day(3), Some(3)),
            (Duration::from_secs(1), Some(3)),
            (Duration::ZERO, Some(0)),
        ];
        for (left, due) in cases {
            assert_eq!(due_warning(left), due, "{left:?}");
        }
    }

    #[test]
    fn each_warning_is_logged_once_for_each_certificate() {
        let (path, end) = (Path::new("/etc/cert.pem"), SystemTime::UNIX_EPOCH + 1000 * DAY);
        let mut warnings = ExpiryWarnings::default();
        let mut texts = |end: SystemTime, left: u32| {
            warnings.next(path, end, end - DAY * left).map(|problem| (problem.has_expired, problem.text))
        };
        assert_eq!(texts(end, 31), None);
        let expected = "the certificate /etc/cert.pem expires in 20 days and 0 hours; replace the file";
        assert_eq!(texts(end, 20), Some((false, expected.to_owned())));
        assert_eq!(texts(end, 4), None);
        assert!(texts(end, 2).is_some_and(|(_, text)| text.contains("expires in 2 days")));
        assert_eq!(texts(end, 1), None);
        assert!(texts(end, 0).is_some_and(|(has_expired, text)| has_expired && text.contains("has expired")));
        assert_eq!(texts(end, 0), None);
        assert!(texts(end + DAY, 20).is_some(), "a new certificate has its own warnings");
    }
}
