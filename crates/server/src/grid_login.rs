//! Logins with grid certificates: from the configuration to the protocol `gsi`.

use crate::error::StartError;
use auth::SystemRng;
use auth::grid::{AuthorityLevel, CrlLevel, GridMap, GridTrust, GridTrustSettings};
use auth::gsi::{ForwardedChain, GsiCipher, GsiServer, GsiServerSettings, NameMap, NameMapping};
use config::{
    AuthorityCheck, GRID_MAP, GridCipher, GridMapping, GsiOptions, RevocationCheck, SecurityConfig,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The variable with the grid map, if the configuration names none.
const MAP_VARIABLE: &str = "GRIDMAP";

/// Reads certificate, key, authorities and grid map. Blocks.
///
/// # Errors
/// [`StartError::Security`] with the file.
pub(crate) fn gsi(options: &GsiOptions, security: &SecurityConfig) -> Result<GsiServer, StartError> {
    crate::login::keep_out_of_core_dumps("the key of gsi");
    let failed = |error: String| StartError::Security(format!("gsi: {error}"));
    let trust = GridTrust::open(trust(options, security)).map_err(|error| failed(error.to_string()))?;
    let names: Option<Arc<dyn NameMap>> = match options.mapping {
        GridMapping::Off => None,
        GridMapping::Try | GridMapping::Required => {
            let map = GridMap::open(&map_path(options)).map_err(|error| failed(error.to_string()))?;
            Some(Arc::new(map))
        }
    };
    GsiServer::open(settings(options, security), Arc::new(trust), names, Box::new(SystemRng)).map_err(failed)
}

fn map_path(options: &GsiOptions) -> PathBuf {
    let variable = || std::env::var_os(MAP_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    options.map.clone().or_else(variable).unwrap_or_else(|| Path::new(GRID_MAP).to_owned())
}

fn trust(options: &GsiOptions, security: &SecurityConfig) -> GridTrustSettings {
    GridTrustSettings {
        directories: options.authorities.clone(),
        crl_level: match options.revocation {
            RevocationCheck::Ignore => CrlLevel::Ignore,
            RevocationCheck::Try => CrlLevel::Try,
            RevocationCheck::Use => CrlLevel::Use,
            RevocationCheck::Require => CrlLevel::Require,
        },
        authority_level: match options.authority_check {
            AuthorityCheck::NoVerify => AuthorityLevel::NoVerify,
            AuthorityCheck::SelfSigned => AuthorityLevel::SelfSigned,
            AuthorityCheck::Verify => AuthorityLevel::Full,
        },
        crl_directories: options.revocation_directories.clone(),
        crl_extension: options.revocation_extension.clone(),
        refresh: options.refresh,
        allow_legacy: *security.grid_legacy,
        rsa_bits_min: *security.grid_key_bits,
    }
}

fn settings(options: &GsiOptions, security: &SecurityConfig) -> GsiServerSettings {
    let cipher = |cipher: &GridCipher| match cipher {
        GridCipher::Aes256 => GsiCipher::Aes256,
        GridCipher::Aes128 => GsiCipher::Aes128,
    };
    GsiServerSettings {
        ciphers: options.ciphers.iter().map(cipher).collect(),
        digests: options.digests.clone(),
        mapping: match options.mapping {
            GridMapping::Off => NameMapping::Off,
            GridMapping::Try => NameMapping::Try,
            GridMapping::Required => NameMapping::Required,
        },
        names_by_subject: options.names_by_subject,
        forwarded_chain: options.forwarding.map(|forwarding| ForwardedChain {
            as_endorsements: forwarding.as_endorsements,
            is_full: forwarding.is_full,
        }),
        monitors_subject: options.monitors_subject,
        logs_subject: options.logs_subject,
        new_hash_only: options.new_hash_only,
        accepts_limited: *security.grid_limited,
        key_bits_min: usize::try_from(*security.grid_key_bits).unwrap_or(GsiServerSettings::KEY_BITS_MIN),
        refresh: options.map_refresh.min(options.refresh),
        ..GsiServerSettings::new(options.certificate.clone(), options.key.clone())
    }
}
