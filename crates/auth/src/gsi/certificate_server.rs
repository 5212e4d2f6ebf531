//! [`CertificateServer`]: logins with certificates that clients show in handshakes of TLS, where a server has no
//! `gsi`. [`ChainLogin`]: such a login, also of a server with `gsi`.

use super::identity_rules::{IdentityRules, NameMaps};
use super::trust::GridIdentity;
use super::{GsiServerSettings, NameMapping};
use crate::entity::Entity;
use crate::server::{
    FileRefresh, LoginPeer, RefusedLogin, ServerLogin, ServerProtocol, ServerStep, StepCost,
};
use crate::tls::ClientCertificates;
use rustls::pki_types::CertificateDer;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The id of the protocol, as identities have it at XRootD.
const HTTPS: &str = "https";

/// Returns the identity of a client at this time, or the reason why it has none.
type Identify = dyn FnMut(SystemTime) -> Result<Entity, String> + Send;

/// A login with the certificates of a handshake of TLS. Its only step needs no credentials.
pub(super) struct ChainLogin {
    pub(super) protocol: &'static str,
    pub(super) identify: Box<Identify>,
}

impl ServerLogin for ChainLogin {
    fn cost(&self) -> StepCost {
        StepCost::Expensive
    }

    fn step(&mut self, _: &[u8], now: SystemTime) -> ServerStep {
        match (self.identify)(now) {
            Ok(entity) => ServerStep::Done(entity),
            Err(reason) => ServerStep::Refused(RefusedLogin::new(self.protocol, reason)),
        }
    }
}

/// Logins with certificates in handshakes of TLS.
pub struct CertificateServer(Arc<CertificateRules>);

struct CertificateRules {
    clients: Arc<ClientCertificates>,
    settings: GsiServerSettings,
    names: NameMaps,
}

impl CertificateServer {
    /// Creates logins of clients whose chains are verified by these rules. The settings of exchanges, such as
    /// ciphers and files, do not count.
    #[must_use]
    pub fn new(clients: Arc<ClientCertificates>, settings: GsiServerSettings, names: NameMaps) -> Self {
        Self(Arc::new(CertificateRules { clients, settings, names }))
    }

    /// Returns settings with the defaults of these logins.
    #[must_use]
    pub fn default_settings(refresh: Duration) -> GsiServerSettings {
        let settings = GsiServerSettings::new(PathBuf::new(), PathBuf::new());
        GsiServerSettings { refresh, monitors_subject: true, ..settings }
    }
}

impl CertificateRules {
    fn identity(&self, chain: &[Vec<u8>], host: &str, now: SystemTime) -> Result<Entity, String> {
        let certificates: Vec<_> = chain.iter().map(|one| CertificateDer::from(one.as_slice())).collect();
        let verified = self.clients.identity(&certificates, now).map_err(|fault| fault.to_string())?;
        let rules = IdentityRules { protocol: HTTPS, settings: &self.settings, names: &self.names };
        rules.entity(&GridIdentity::from(&verified), chain, host, None).map(Entity::new)
    }

    fn refresh(&self) -> Result<(), String> {
        let authorities = self.clients.refresh().err().map(|error| error.to_string());
        let subjects = self.names.subjects.as_ref().and_then(|names| names.refresh().err());
        let failures: Vec<String> = authorities.into_iter().chain(subjects).collect();
        if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
    }
}

impl ServerProtocol for CertificateServer {
    fn id(&self) -> &'static str {
        HTTPS
    }

    fn parameters(&self) -> String {
        String::new()
    }

    fn credential_bytes_min(&self) -> usize {
        0
    }

    fn needs_tls(&self) -> bool {
        true
    }

    fn begin(&self, _: &LoginPeer) -> Box<dyn ServerLogin> {
        let identify = |_| Err("the client has shown no certificate".to_owned());
        Box::new(ChainLogin { protocol: HTTPS, identify: Box::new(identify) })
    }

    fn begin_with_chain(&self, peer: &LoginPeer, chain: Arc<[Vec<u8>]>) -> Option<Box<dyn ServerLogin>> {
        let (rules, host) = (self.0.clone(), peer.host.clone());
        let identify = move |now| rules.identity(&chain, &host, now);
        Some(Box::new(ChainLogin { protocol: HTTPS, identify: Box::new(identify) }))
    }

    fn warnings(&self, now: SystemTime, soon: Duration) -> Vec<String> {
        let mut warnings = self.0.clients.warnings(now, soon);
        let map = self.0.names.subjects.as_ref().and_then(|names| names.warning());
        warnings.extend(map.map(|text| match self.0.settings.mapping {
            NameMapping::Required => format!("{text}, so all certificates are refused"),
            _ => text,
        }));
        warnings
    }

    fn periodic_refreshes(&self) -> Vec<FileRefresh> {
        let rules = self.0.clone();
        vec![FileRefresh::new(self.0.settings.refresh, move || rules.refresh())]
    }
}
