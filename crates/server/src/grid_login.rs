//! Logins with grid certificates: from the configuration to the protocol `gsi`.

use crate::adapters::SystemAccounts;
use crate::crl_downloads::restore_kept;
use crate::error::StartError;
use auth::access::AccessOperation;
use auth::grid::{
    AuthorityLevel, CrlLevel, GridMap, GridTrust, GridTrustError, GridTrustSettings, GroupChoice,
    VOMS_DIRECTORY, VomsDirectory, VomsMap, VomsSelection,
};
use auth::gsi::{
    AttributeUse, DelegationUse, ForwardedChain, GridCredential, GsiCipher, GsiServer, GsiServerSettings,
    LimitedProxies, NameMap, NameMapList, NameMapping, NameMaps, VoNames, VoUser,
};
use auth::{Entity, PeerHostPattern, SystemRng};
use config::{
    AuthProtocol, AuthorityCheck, Effective, GRID_MAP, GridCipher, GridExport, GridLimited, GridMapping,
    GridVoNames, GridVoUser, GsiOptions, RevocationCheck, SecurityConfig, ThirdPartyCopy, VomsGroups,
    VomsOptions,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// The variable with the grid map, if the configuration names none.
const MAP_VARIABLE: &str = "GRIDMAP";

/// The variable with the directory of the signers of VOMS attributes.
const VOMS_VARIABLE: &str = "X509_VOMS_DIR";

/// Reads certificate, key, authorities, grid map and the revocation lists of earlier downloads. Returns
/// the protocol and the authorities. Blocks.
///
/// # Errors
/// [`StartError::Security`] with the file.
pub(crate) fn gsi(
    options: &GsiOptions,
    effective: &Effective,
) -> Result<(GsiServer, Arc<GridTrust>), StartError> {
    let security = &effective.security;
    crate::login::keep_out_of_core_dumps("the key of gsi");
    let failed = |error: String| StartError::Security(format!("gsi: {error}"));
    let failed_file = |error: GridTrustError| failed(error.to_string());
    let trust = GridTrust::open(trust(options, security)).map_err(failed_file)?;
    let trust = match &options.voms {
        Some(_) => trust.with_attributes(voms_directory().map_err(failed)?),
        None => trust,
    };
    let subjects: Option<Arc<dyn NameMap>> = match options.mapping {
        GridMapping::Off => None,
        GridMapping::Try | GridMapping::Required => {
            let paths = options.name_file.clone().into_iter().chain([map_path(options)]);
            let maps: Result<Vec<Arc<dyn NameMap>>, GridTrustError> =
                paths.map(|path| Ok(Arc::new(GridMap::open(&path)?) as Arc<dyn NameMap>)).collect();
            Some(Arc::new(NameMapList(maps.map_err(failed_file)?)))
        }
    };
    let map = security.voms_map.as_ref().filter(|_| options.voms.is_some());
    let groups = map.map(|path| VomsMap::open(path)).transpose().map_err(failed_file)?.map(Arc::new);
    let names = NameMaps { subjects, groups, accounts: Some(Arc::new(SystemAccounts)) };
    if !security.grid_old_clients.is_empty() {
        let hosts = security.grid_old_clients.join(", ");
        tracing::warn!(
            "gsi.compat: old clients at {hosts} are not protected against attackers on the way, nor against servers there"
        );
    }
    let copies = effective.logical.third_party.value.as_ref();
    let settings = GsiServerSettings {
        delegation: asks_for_proxy(options, copies).then(|| delegation(options)),
        ..settings(options, security)
    };
    let trust = Arc::new(trust);
    for reason in restore_kept(&trust, effective) {
        tracing::warn!("{reason}");
    }
    let server = GsiServer::open(settings, trust.clone(), names, Box::new(SystemRng)).map_err(failed)?;
    Ok((server, trust))
}

/// Returns the identity that a server with this configuration gives a client of a host that logs in with
/// a credential; `None` if it has no logins by gsi. Blocks.
///
/// # Errors
/// The outer one is the reason why such a server does not start, the inner one the reason why it refuses
/// the login.
pub fn grid_identity(
    effective: &Effective,
    credential: &GridCredential,
    host: &str,
    now: SystemTime,
) -> Result<Option<Result<Entity, String>>, StartError> {
    let security = &effective.security;
    let options = security.protocols.iter().find_map(|protocol| match &protocol.value {
        AuthProtocol::Gsi(options) if *security.enabled => Some(options),
        _ => None,
    });
    let Some(options) = options else { return Ok(None) };
    let (gsi, trust) = gsi(options, effective)?;
    let identity = gsi.identity(credential, host, now);
    // A list that only the server can read may be the reason.
    let with_lists = |reason: String| [vec![reason], restore_kept(&trust, effective)].concat().join("; ");
    Ok(Some(identity.map_err(with_lists)))
}

/// Reports whether a client with a limited proxy may try an operation.
#[must_use]
pub fn only_reads(operation: AccessOperation) -> bool {
    use AccessOperation as Kind;
    matches!(operation, Kind::Any | Kind::Read | Kind::ReadDirectory | Kind::Stat | Kind::Stage | Kind::Poll)
}

fn map_path(options: &GsiOptions) -> PathBuf {
    let variable = || std::env::var_os(MAP_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    options.map.clone().or_else(variable).unwrap_or_else(|| Path::new(GRID_MAP).to_owned())
}

/// Reads the signers of attributes. Blocks.
pub(crate) fn voms_directory() -> Result<VomsDirectory, String> {
    let variable = std::env::var_os(VOMS_VARIABLE).filter(|value| !value.is_empty());
    let path = variable.map_or_else(|| PathBuf::from(VOMS_DIRECTORY), PathBuf::from);
    VomsDirectory::open(&path).map_err(|error| {
        format!(
            "{error}; the directory has the signers of VOMS attributes: install it, name it by {VOMS_VARIABLE}, or write -vomsat:ignore"
        )
    })
}

fn attributes(options: &VomsOptions) -> AttributeUse {
    AttributeUse {
        is_required: options.is_required,
        selection: VomsSelection {
            choice: match options.choice {
                VomsGroups::All => GroupChoice::All,
                VomsGroups::First => GroupChoice::First,
                VomsGroups::Last => GroupChoice::Last,
            },
            groups: options.groups.clone(),
            organizations: options.organizations.clone(),
            group_format: options.group_format.clone(),
            role_format: options.role_format.clone(),
            organization_format: options.organization_format.clone(),
        },
    }
}

fn trust(options: &GsiOptions, security: &SecurityConfig) -> GridTrustSettings {
    GridTrustSettings {
        directories: options.authorities.clone(),
        files: Vec::new(),
        crl_level: match options.revocation {
            RevocationCheck::Ignore => CrlLevel::Ignore,
            RevocationCheck::Try => CrlLevel::Try,
            RevocationCheck::Use => CrlLevel::Use,
            RevocationCheck::Require => CrlLevel::Require,
        },
        crl_of_end_entity_only: false,
        authority_level: match options.authority_check {
            AuthorityCheck::NoVerify => AuthorityLevel::NoVerify,
            AuthorityCheck::SelfSigned => AuthorityLevel::SelfSigned,
            AuthorityCheck::Verify => AuthorityLevel::Full,
        },
        crl_directories: options.revocation_directories.clone(),
        crl_extension: options.revocation_extension.clone(),
        downloads_lists: options.downloads_lists,
        refresh: options.refresh,
        allow_legacy: *security.grid_legacy,
        rsa_bits_min: *security.grid_key_bits,
    }
}

/// Reports whether an option uses proxies that clients delegate.
fn asks_for_proxy(options: &GsiOptions, copies: Option<&ThirdPartyCopy>) -> bool {
    let in_copies = copies.is_some_and(|copies| copies.credentials.is_some());
    options.asks_for_proxy || options.export.is_some() || in_copies
}

fn delegation(options: &GsiOptions) -> DelegationUse {
    match &options.export {
        None => DelegationUse::default(),
        Some(GridExport::Credentials) => DelegationUse { as_credentials: true, file: None },
        Some(GridExport::File(path)) => DelegationUse { as_credentials: false, file: Some(path.clone()) },
    }
}

fn vo_names(names: GridVoNames) -> VoNames {
    let GridVoNames { organizations, group, user, only_without_attributes } = names;
    let user = match user {
        GridVoUser::CommonName => VoUser::CommonName,
        GridVoUser::Unchanged => VoUser::Unchanged,
        GridVoUser::Format(format) => VoUser::Format(format),
    };
    VoNames { organizations, group, user, only_without_attributes }
}

/// Returns the rights of clients with a limited proxy.
pub(crate) fn limited(security: &SecurityConfig) -> LimitedProxies {
    match *security.grid_limited {
        GridLimited::Refuse => LimitedProxies::Refuse,
        GridLimited::Read => LimitedProxies::Read,
        GridLimited::Full => LimitedProxies::Full,
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
        attributes: options.voms.as_ref().map(attributes),
        vo_names: options.vo_names.clone().map(vo_names),
        forwarded_chain: options.forwarding.map(|forwarding| ForwardedChain {
            as_endorsements: forwarding.as_endorsements,
            is_full: forwarding.is_full,
        }),
        monitors_subject: options.monitors_subject,
        logs_subject: options.logs_subject,
        new_hash_only: options.new_hash_only,
        limited: limited(security),
        key_bits_min: usize::try_from(*security.grid_key_bits).unwrap_or(GsiServerSettings::KEY_BITS_MIN),
        old_clients: security
            .grid_old_clients
            .iter()
            .map(|pattern| PeerHostPattern::parse(pattern))
            .collect(),
        refresh: options.map_refresh.min(options.refresh),
        ..GsiServerSettings::new(options.certificate.clone(), options.key.clone())
    }
}
