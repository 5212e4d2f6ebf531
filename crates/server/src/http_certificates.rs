//! Certificates of clients of HTTPS: from the configuration to the rules by which they are verified, and to the
//! identities of their users.
//!
//! With `sec.protocol gsi`, its authorities verify them, and it decides about identities. Otherwise they are verified by
//! `http.cadir`, `http.cafile` or `xrd.tlsca`; names come from `http.gridmap`.

use crate::error::StartError;
use crate::expiry::WARNING_TIME;
use crate::login::ConfiguredLogin;
use crate::{grid_login, named_protocol};
use auth::ServerProtocol;
use auth::grid::GridMap;
use auth::gsi::{AttributeUse, CertificateServer, GSI, GsiServerSettings, NameMap, NameMapping, NameMaps};
use auth::tls::{ClientCertificateSettings, ClientCertificates, RevocationDemand};
use config::{Effective, TlsAuthorities, TlsRevocation};
use std::sync::Arc;
use std::time::SystemTime;

/// The certificates of clients.
pub(crate) struct HttpCertificates {
    /// Verifies them in handshakes.
    pub(crate) clients: Arc<ClientCertificates>,
    /// Decides about identities.
    pub(crate) protocol: Arc<dyn ServerProtocol>,
    /// The reason why the authorities could not be read. All certificates are refused until they can.
    pub(crate) failure: Option<String>,
}

impl HttpCertificates {
    /// Reads authorities and maps. Returns `None` if clients are not asked for certificates. Blocks.
    ///
    /// # Errors
    /// [`StartError::Security`] with the file.
    pub(crate) fn open(
        effective: &Effective,
        login: Option<&ConfiguredLogin>,
    ) -> Result<Option<Self>, StartError> {
        if !effective.asks_for_certificates() {
            return Ok(None);
        }
        let authorities = effective.network.tls_authorities.value.clone().unwrap_or_default();
        let settings = settings(effective, &authorities);
        let unread = settings.clone();
        // Users who are removed from the map must not wait for hours.
        let refresh = authorities.refresh.min(GsiServerSettings::REFRESH);
        if let Some((trust, protocol)) = login.and_then(grid) {
            let clients = Arc::new(ClientCertificates::with_trust(settings, trust));
            return Ok(Some(Self { clients, protocol, failure: None }));
        }
        let failed =
            |error: String| StartError::Security(format!("certificates of clients of HTTPS: {error}"));
        let http = &effective.http;
        let signers = http.voms.map(|_| grid_login::voms_directory()).transpose().map_err(failed)?;
        let (clients, failure) = match ClientCertificates::open_with(settings, signers) {
            Ok(clients) => (Arc::new(clients), None),
            // They are read again. Without the directive they can be there for other purposes only.
            Err(error) if http.grid_map.is_none() && http.voms.is_none() => {
                tracing::error!("certificates of clients of HTTPS are refused until it is mended: {error}");
                (Arc::new(ClientCertificates::unread(unread)), Some(error.to_string()))
            }
            Err(error) => return Err(failed(error.to_string())),
        };
        let map = http.grid_map.as_ref().map(|map| GridMap::open(&map.path)).transpose();
        let map = map.map_err(|error| failed(error.to_string()))?;
        let mapping = match &*http.grid_map {
            None => NameMapping::Off,
            Some(map) if map.is_required => NameMapping::Required,
            Some(_) => NameMapping::Try,
        };
        let attributes = http.voms.map(|is_required| AttributeUse { is_required, ..AttributeUse::default() });
        let limited = grid_login::limited(&effective.security);
        let settings = GsiServerSettings {
            mapping,
            attributes,
            limited,
            ..CertificateServer::default_settings(refresh)
        };
        let subjects = map.map(|map| Arc::new(map) as Arc<dyn NameMap>);
        let names = NameMaps { subjects, ..NameMaps::default() };
        let protocol: Arc<dyn ServerProtocol> =
            Arc::new(CertificateServer::new(clients.clone(), settings, names));
        let named = named_protocol::with_names(vec![protocol.clone()], &effective.security)?;
        let protocol = named.into_iter().next().unwrap_or(protocol);
        Ok(Some(Self { clients, protocol, failure }))
    }

    /// Returns reasons for attention about the files, unless they are those of `gsi`.
    pub(crate) fn warnings(&self, now: SystemTime) -> Vec<String> {
        match self.has_own_files() && self.failure.is_none() {
            true => self.protocol.warnings(now, WARNING_TIME),
            false => Vec::new(),
        }
    }

    /// Reports whether it has files of its own, and not those of `gsi`.
    pub(crate) fn has_own_files(&self) -> bool {
        self.protocol.id() != GSI
    }
}

/// Returns the authorities of `gsi`, and the protocol.
fn grid(login: &ConfiguredLogin) -> Option<(Arc<auth::grid::GridTrust>, Arc<dyn ServerProtocol>)> {
    let protocol = login.policy.protocols().iter().find(|protocol| protocol.id() == GSI)?;
    Some((login.authorities.clone()?, protocol.clone()))
}

/// Returns the rules of certificates. Those of `xrd.tlsca` count for authorities of `http.cadir` and `http.cafile`
/// too.
fn settings(effective: &Effective, authorities: &TlsAuthorities) -> ClientCertificateSettings {
    let http = &effective.http;
    let (directory, file) = (&*http.authority_directory, &*http.authority_file);
    let (directory, file) = match directory.is_some() || file.is_some() {
        true => (directory.clone(), file.clone()),
        false => (authorities.directory.clone(), authorities.file.clone()),
    };
    ClientCertificateSettings {
        directory,
        file,
        revocation: match authorities.revocation {
            TlsRevocation::Present => RevocationDemand::Present,
            TlsRevocation::Last => RevocationDemand::Last,
            TlsRevocation::All => RevocationDemand::All,
        },
        accepts_proxies: authorities.accepts_proxies,
        intermediates_max: authorities.depth_max,
    }
}
