//! [`check_credentials`]: the files of keys and certificates of a configuration, read as at the start of a
//! server, for `scalla config check`.
//!
//! The files are opened by the functions that the start calls, so both refuse the same files. The caller
//! applies the environment of the server first, because it names some of the files.

use crate::cluster::ClusterKey;
use crate::error::StartError;
use crate::expiry::{DAY, ExpiryProblem, WARNING_TIME};
use crate::http_certificates::HttpCertificates;
use crate::{login, named_protocol, tls};
use auth::ServerProtocol;
use config::{AuthProtocol, ConfigReport, Effective, Origin, ProblemKind, TlsCertificate};
use std::path::Path;
use std::time::SystemTime;

/// Remedy of files whose owner may be the user of the server.
const UNKNOWN_USER: &str = "if the server runs as this user, name it with --user";

/// Adds the problems of keytabs, certificates, authorities and files of passwords: files that a server of
/// this user refuses are errors, files that expire soon are warnings. If the user of the server is not
/// known, `is_any_user`, the owners of files are only a reason for warnings. Blocks.
pub fn check_credentials(
    effective: &Effective,
    now: SystemTime,
    is_any_user: bool,
    report: &mut ConfigReport,
) {
    let mut check = CredentialCheck { effective, now, is_any_user, report };
    check.tls();
    check.authorities();
    check.protocols();
    check.certificates_of_clients();
    check.entity_map();
    check.cluster_key();
}

struct CredentialCheck<'a> {
    effective: &'a Effective,
    now: SystemTime,
    is_any_user: bool,
    report: &'a mut ConfigReport,
}

impl CredentialCheck<'_> {
    fn wrong(&mut self, origin: &Origin, what: String) {
        let is_of_owner = self.is_any_user && what.contains(auth::OTHER_OWNER);
        let (kind, hint) = match is_of_owner {
            true => (ProblemKind::Doubtful, UNKNOWN_USER),
            false => (ProblemKind::Contradiction, ""),
        };
        self.report.add(kind, origin.clone(), what, hint);
    }

    fn warn(&mut self, origin: &Origin, what: String) {
        self.report.add(ProblemKind::Doubtful, origin.clone(), what, "");
    }

    fn tls(&mut self) {
        let setting = &self.effective.network.tls;
        let Some(TlsCertificate { certificate, .. }) = &setting.value else { return };
        let name = self.effective.certificate_directive();
        match tls::read_certificate(self.effective) {
            Ok(Some(read)) => {
                self.early(&setting.origin, name, certificate, read.not_before());
                self.expiry(&setting.origin, name, certificate, read.not_after());
                if let Some(expires) = read.issuers_not_after() {
                    self.issuers(&setting.origin, name, certificate, expires);
                }
            }
            Ok(None) => {}
            Err(error) => self.wrong(&setting.origin, format!("{name}: {error}")),
        }
    }

    fn early(&mut self, origin: &Origin, directive: &str, path: &Path, not_before: SystemTime) {
        if self.now < not_before {
            let what = format!("{directive}: the certificate {} is not valid yet", path.display());
            self.warn(origin, what);
        }
    }

    /// Some clients know another path, without these authorities.
    fn issuers(&mut self, origin: &Origin, directive: &str, path: &Path, expires: SystemTime) {
        let left = expires.duration_since(self.now).unwrap_or_default();
        if left < WARNING_TIME {
            let state = match left.is_zero() {
                true => "has expired".to_owned(),
                false => format!("expires in {} days", left.as_secs() / DAY.as_secs()),
            };
            let what = format!(
                "{directive}: an authority in {} {state}, so clients can refuse the server; replace the file",
                path.display()
            );
            self.warn(origin, what);
        }
    }

    /// A server with an expired certificate starts, but no client uses it.
    fn expiry(&mut self, origin: &Origin, directive: &str, path: &Path, expires: SystemTime) {
        if let Some(problem) = ExpiryProblem::of(path, expires, self.now) {
            let what = format!("{directive}: {}", problem.text);
            let kind = if problem.has_expired { ProblemKind::Contradiction } else { ProblemKind::Doubtful };
            self.report.add(kind, origin.clone(), what, "");
        }
    }

    /// A server without them starts, and cannot connect to other servers.
    fn authorities(&mut self) {
        let Some(trusted) = tls::trusted_servers(self.effective) else { return };
        if let Err(error) = trusted.client_config() {
            let what = format!("xrd.tlsca: {error}");
            self.warn(&self.effective.network.tls_authorities.origin, what);
        }
    }

    fn protocols(&mut self) {
        let security = &self.effective.security;
        if !*security.enabled {
            return;
        }
        let mut seen = Vec::new();
        for setting in &security.protocols {
            // The first one of a protocol counts. Tokens have no files here.
            if seen.contains(&setting.id()) || matches!(setting.value, AuthProtocol::Ztn(_)) {
                continue;
            }
            seen.push(setting.id());
            match login::protocol(setting, self.effective, None, &mut None) {
                Ok(Some(protocol)) => self.protocol(&setting.origin, &*protocol),
                Ok(None) => {}
                Err(error) => self.wrong(&setting.origin, format!("sec.protocol: {}", reason(error))),
            }
        }
    }

    fn protocol(&mut self, origin: &Origin, protocol: &dyn ServerProtocol) {
        let directive = format!("sec.protocol {}", protocol.id());
        if let Some(certificate) = protocol.certificate() {
            self.early(origin, &directive, &certificate.path, certificate.not_before);
            self.expiry(origin, &directive, &certificate.path, certificate.expires);
        }
        for warning in protocol.warnings(self.now, WARNING_TIME) {
            self.warn(origin, format!("{directive}: {warning}"));
        }
    }

    fn certificates_of_clients(&mut self) {
        if self.effective.has_grid_logins() {
            return;
        }
        let http = &self.effective.http;
        let own = [&http.authority_directory, &http.authority_file];
        let own = own.into_iter().find(|authorities| authorities.is_some());
        let origin = own.map_or(&self.effective.network.tls_authorities.origin, |own| &own.origin);
        match HttpCertificates::open(self.effective, None) {
            Ok(Some(clients)) => {
                // Those of xrd.tlsca are a warning of their own.
                if let (Some(own), Some(failure)) = (own, &clients.failure) {
                    self.warn(
                        &own.origin,
                        format!("certificates of clients of HTTPS are refused: {failure}"),
                    );
                }
                for warning in clients.warnings(self.now) {
                    self.warn(origin, format!("certificates of clients of HTTPS: {warning}"));
                }
            }
            Ok(None) => {}
            Err(error) => {
                let text = reason(error);
                let is_of_map =
                    http.grid_map.as_ref().is_some_and(|map| text.contains(&*map.path.to_string_lossy()));
                self.wrong(if is_of_map { &http.grid_map.origin } else { origin }, text);
            }
        }
    }

    fn entity_map(&mut self) {
        let security = &self.effective.security;
        let origin = &security.entity_map.origin;
        let map = match named_protocol::map(security) {
            Ok(map) => map,
            Err(error) => return self.wrong(origin, reason(error)),
        };
        let is_used = |protocol: &str| {
            security.protocols.iter().any(|setting| match &setting.value {
                // A proxy server forwards identities by other protocols.
                AuthProtocol::Sss(options) if setting.id() != protocol => {
                    options.forwarded_protocols.iter().any(|forwarded| forwarded == protocol)
                }
                _ => setting.id() == protocol,
            })
        };
        let are_names_known = *self.effective.network.resolve_names;
        for warning in map.iter().flat_map(|map| map.warnings(is_used, are_names_known)) {
            self.warn(origin, format!("sec.entitymap: {warning}"));
        }
    }

    fn cluster_key(&mut self) {
        let setting = &self.effective.cluster.key;
        let Some(key) = &setting.value else { return };
        match ClusterKey::open(key, self.effective) {
            Ok(key) => {
                for warning in key.warnings(self.now, WARNING_TIME) {
                    self.warn(&setting.origin, format!("scalla.clusterkey: {warning}"));
                }
            }
            Err(error) => self.wrong(&setting.origin, reason(error)),
        }
    }
}

/// Returns the text of an error without its introduction for a start.
fn reason(error: StartError) -> String {
    match error {
        StartError::Security(text) | StartError::Cluster(text) => text,
        error => error.to_string(),
    }
}
