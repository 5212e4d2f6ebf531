//! Authentication of clients: configured protocols to the policy of the front end, and the refresh
//! of their files.
//!
//! The protocols are in the crate `auth`. Their files are read at the start, at each reload, and at
//! an interval of their own, on a thread, because a file system can block.

use crate::adapters::SystemClock;
use crate::admission::Doorkeeper;
use crate::crl_downloads::CrlDownloads;
use crate::error::StartError;
use crate::expiry::ExpiryWarnings;
use crate::grid_login;
use crate::kerberos_login;
use crate::named_protocol;
use crate::password_login;
use auth::access::{AccessPolicy, CredentialLayer};
use auth::grid::GridTrust;
use auth::gsi::GSI;
use auth::sss::{HOME_KEYTAB, SssServer, SssServerSettings};
use auth::tokens::TOKEN_BYTES_MAX;
use auth::unix::UnixServer;
use auth::ztn::{ExpiryCheck, ZtnServer, ZtnServerSettings};
use auth::{FileRefresh, ServerProtocol, SystemRng};
use base::Supervisor;
use config::{
    AuthProtocol, Effective, SigningLevel, SigningRule, SssOptions, TokenExpiry, TokenLibrary, ZtnOptions,
};
use session::{LoginPolicy, Signing, SigningByDistance};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant, SystemTime};
use storage::Pool;
use wire::xroot::codes::SecurityLevel;
use xroot::{LoginPool, PeerNames};

/// Maximum number of threads for expensive steps of authentications.
const LOGIN_THREADS_MAX: usize = 8;
/// Maximum interval at which the expiry of certificates is examined.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(3600);
/// Maximum wait of a start for the protocols.
const READY_TIME_MAX: Duration = Duration::from_secs(1);

/// The authentication of clients as configured.
pub(crate) struct ConfiguredLogin {
    pub(crate) policy: Arc<LoginPolicy>,
    /// The authorities of gsi.
    pub(crate) authorities: Option<Arc<GridTrust>>,
}

/// Returns the authentication that the configuration requires; `None` if it requires none. `access` is
/// the authorization, whose tokens log clients in.
///
/// # Errors
/// [`StartError::Security`].
pub(crate) fn policy(
    effective: &Effective,
    access: Option<&AccessPolicy>,
) -> Result<Option<ConfiguredLogin>, StartError> {
    let security = &effective.security;
    if !*security.enabled {
        return Ok(None);
    }
    let mut protocols: Vec<Arc<dyn ServerProtocol>> = Vec::new();
    let mut authorities = None;
    for setting in &security.protocols {
        if protocols.iter().all(|known| known.id() != setting.id()) {
            protocols.extend(protocol(setting, effective, access, &mut authorities)?);
        }
    }
    protocols = named_protocol::with_names(protocols, security)?;
    let mut order: Vec<&str> = security.protocols.iter().map(|setting| setting.id()).collect();
    if order.is_empty() {
        order.push(auth::host::HOST);
    }
    let bindings = security.bindings.iter().map(|setting| setting.value.clone()).collect();
    let policy = LoginPolicy::new(protocols, &order, bindings, *security.binding_offers, &effective.host);
    let refused = |error: base::Error| StartError::Security(error.text);
    let mut policy = policy.map_err(refused)?;
    policy.limit_to_tls(tls_protocols(effective)?).map_err(refused)?;
    report(effective, &order);
    Ok(Some(ConfiguredLogin { policy: Arc::new(policy), authorities }))
}

/// Returns the protocols that the configuration limits to encrypted connections. The check of the
/// configuration reports the same errors with their line.
fn tls_protocols(effective: &Effective) -> Result<impl Iterator<Item = &str>, StartError> {
    let ids = &effective.security.tls_protocols;
    match ids.first().filter(|_| effective.network.tls.is_none()) {
        Some(id) => {
            let what =
                "is limited to encrypted connections; add xrd.tls with the certificate and key of this host";
            Err(StartError::Security(format!("{} {what}", id.value)))
        }
        None => Ok(ids.iter().map(|id| id.value.as_str())),
    }
}

/// Returns a protocol; `None` for `host`, which has no credentials to check. Puts the authorities of
/// gsi into `authorities`.
pub(crate) fn protocol(
    configured: &AuthProtocol,
    effective: &Effective,
    access: Option<&AccessPolicy>,
    authorities: &mut Option<Arc<GridTrust>>,
) -> Result<Option<Arc<dyn ServerProtocol>>, StartError> {
    Ok(match configured {
        AuthProtocol::Host => None,
        AuthProtocol::Unix => Some(Arc::new(UnixServer)),
        AuthProtocol::Sss(options) => Some(Arc::new(sss(options)?)),
        AuthProtocol::Gsi(options) => {
            let (gsi, trust) = grid_login::gsi(options, effective)?;
            *authorities = Some(trust);
            Some(Arc::new(gsi))
        }
        AuthProtocol::Krb5(options) => Some(Arc::new(kerberos_login::krb5(options, &effective.host)?)),
        AuthProtocol::Pwd(options) => Some(Arc::new(password_login::pwd(options)?)),
        AuthProtocol::Ztn(options) => Some(Arc::new(ztn(options, effective.network.tls.is_some(), access)?)),
    })
}

/// Returns the login by tokens of a configuration; `None` if it has none. `access` is its authorization.
///
/// # Errors
/// The reason why a server with this configuration does not start.
pub fn token_login(effective: &Effective, access: &AccessPolicy) -> Result<Option<ZtnServer>, StartError> {
    let security = &effective.security;
    let options = security.protocols.iter().find_map(|protocol| match &protocol.value {
        AuthProtocol::Ztn(options) if *security.enabled => Some(options),
        _ => None,
    });
    options.map(|options| ztn(options, effective.network.tls.is_some(), Some(access))).transpose()
}

/// Returns the login by tokens. The check of the configuration reports the same errors with their
/// line.
fn ztn(options: &ZtnOptions, has_tls: bool, access: Option<&AccessPolicy>) -> Result<ZtnServer, StartError> {
    if !has_tls {
        let what = "ztn needs encrypted connections; add xrd.tls with the certificate and key of this host";
        return Err(StartError::Security(what.to_owned()));
    }
    let tokens = access.and_then(AccessPolicy::tokens).cloned().map(CredentialLayer::Tokens);
    let macaroons = access.and_then(AccessPolicy::macaroons).cloned().map(CredentialLayer::Macaroons);
    let missing = |library: &str| {
        let what = format!("ztn has no tokens that count; add ofs.authorize and ofs.authlib ++ {library}");
        StartError::Security(what)
    };
    let verifier = match options.library {
        TokenLibrary::None if macaroons.is_some() || tokens.is_some() => None,
        TokenLibrary::Macaroons => Some(macaroons.ok_or_else(|| missing("libXrdMacaroons.so"))?),
        TokenLibrary::SciTokens | TokenLibrary::None => {
            Some(tokens.ok_or_else(|| missing("libXrdAccSciTokens.so"))?)
        }
    };
    let settings = ZtnServerSettings {
        // Longer ones would be refused as tokens, so clients need not send them.
        token_bytes_max: options.token_bytes_max.min(TOKEN_BYTES_MAX),
        expiry: match options.expiry {
            TokenExpiry::Ignore => ExpiryCheck::Ignore,
            TokenExpiry::Optional => ExpiryCheck::Optional,
            TokenExpiry::Required => ExpiryCheck::Required,
        },
    };
    Ok(ZtnServer::new(settings, verifier))
}

fn sss(options: &SssOptions) -> Result<SssServer, StartError> {
    let keytab = options.server_keytab.clone().or_else(default_keytab);
    let keytab = keytab.ok_or_else(|| {
        StartError::Security(
            "sss has no keytab: this user has no home directory; name one with -s".to_owned(),
        )
    })?;
    let settings = SssServerSettings {
        client_keytab: options.client_keytab.as_ref().map(PathBuf::from),
        lifetime: options.lifetime.as_secs(),
        wants_credentials: options.wants_credentials,
        checks_key_names: options.checks_key_name,
        forwarded_protocols: options.forwarded_protocols.clone(),
        refresh: options.refresh,
        ..SssServerSettings::new(keytab.clone())
    };
    keep_out_of_core_dumps("the keys of sss");
    // User and group ids are not looked up, because files belong to the user of the server.
    SssServer::open(settings, None, Box::new(SystemRng), Arc::new(SystemClock::new()))
        .map_err(|error| StartError::Security(format!("the keytab of sss {}: {error}", keytab.display())))
}

/// Disables core dumps of this process, and access to its memory by other processes of its user,
/// before it reads the first secret. `what` names the secret.
pub(crate) fn keep_out_of_core_dumps(what: &str) {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let disabled =
        set_dumpable_behavior(DumpableBehavior::NotDumpable).and_then(|()| setrlimit(Resource::Core, none));
    if let Err(error) = disabled {
        tracing::warn!("core dumps are not disabled, so they can contain {what}: {error}");
    }
}

fn default_keytab() -> Option<PathBuf> {
    std::env::home_dir().filter(|home| home.is_absolute()).map(|home| home.join(HOME_KEYTAB))
}

/// Logs the protocols of clients, and a warning about signing that does not stop attackers.
fn report(effective: &Effective, order: &[&str]) {
    tracing::info!("clients authenticate by: {}", order.join(", "));
    let levels = *effective.security.signing;
    let is_idle = |rule: SigningRule| rule.level > SigningLevel::None && !rule.force;
    let has_keys = order.contains(&GSI);
    if has_keys && levels.is_in_force() {
        tracing::info!("clients that authenticate by gsi sign their requests; others have no key for it");
    } else if is_idle(levels.local) || is_idle(levels.remote) {
        tracing::warn!(
            "sec.level has no effect without force: these protocols give clients no key to sign requests with"
        );
    } else if levels.is_in_force() {
        tracing::warn!(
            "sec.level force without keys: signatures detect accidents, but do not stop attackers"
        );
    }
}

/// Configures the front end to require authentication and signatures of clients.
pub(crate) fn require(policy: &Arc<LoginPolicy>, effective: &Effective, door: &mut xroot::Config) {
    door.login_pool = Some(pool());
    door.settings.login = Some(policy.clone());
    door.settings.signing = signing(effective);
}

/// Waits until all protocols accept credentials, at most a second: clients that connect right after
/// a restart would be refused.
pub(crate) fn await_ready(policy: &LoginPolicy) {
    let ready = policy.protocols().iter().map(|protocol| protocol.ready_at()).max();
    let rest = ready.and_then(|ready| ready.duration_since(SystemTime::now()).ok());
    // A clock that was set back would extend the wait.
    std::thread::sleep(rest.unwrap_or_default().min(READY_TIME_MAX));
}

/// Encrypts the logins of clients that support TLS, if a protocol needs it. Other clients keep the
/// other protocols.
pub(crate) fn encrypt(policy: Option<&LoginPolicy>, door: &mut xroot::Config) {
    let needs_tls = policy.is_some_and(LoginPolicy::has_tls_protocols);
    if let Some(tls) = door.settings.tls.as_mut().filter(|_| needs_tls) {
        tls.capable.login = true;
    }
}

/// Returns the requests that clients must sign.
fn signing(effective: &Effective) -> SigningByDistance {
    let security = &effective.security;
    let levels = *security.signing;
    if !levels.is_in_force() {
        return SigningByDistance::default();
    }
    let rule = |rule| rule_of(rule, *security.signed_data);
    if levels.local == levels.remote {
        return SigningByDistance::of_all(rule(levels.local));
    }
    let domain = effective.host.split_once('.').map(|(_, domain)| format!(".{domain}"));
    SigningByDistance {
        local: Some(Arc::new(rule(levels.local))),
        remote: Some(Arc::new(rule(levels.remote))),
        domain: domain.unwrap_or_default(),
    }
}

fn rule_of(rule: SigningRule, covers_data: bool) -> Signing {
    let level = match rule.level {
        SigningLevel::None => SecurityLevel::NONE,
        SigningLevel::Compatible => SecurityLevel::COMPATIBLE,
        SigningLevel::Standard => SecurityLevel::STANDARD,
        SigningLevel::Intense => SecurityLevel::INTENSE,
        SigningLevel::Pedantic => SecurityLevel::PEDANTIC,
    };
    let signing = Signing::new(level, rule.force, rule.relaxed, &[]);
    if covers_data { signing.covering_data() } else { signing }
}

/// Returns the look-up of the names of clients, which has the cache and the limits of admission.
pub(crate) fn peer_names(doorkeeper: &Arc<Doorkeeper>) -> PeerNames {
    let doorkeeper = doorkeeper.clone();
    PeerNames(Arc::new(move |address| {
        let doorkeeper = doorkeeper.clone();
        Box::pin(async move { doorkeeper.name(address).await })
    }))
}

/// Returns the threads for expensive steps of authentications.
pub(crate) fn pool() -> LoginPool {
    let pool = Pool::new("logins", LOGIN_THREADS_MAX);
    LoginPool(Arc::new(move |owner, step| pool.run(owner, step).is_ok()))
}

/// Reads the files of all protocols again. Returns the reasons why files are not usable; their
/// earlier content stays in force. Blocks.
pub(crate) fn refresh(policy: &LoginPolicy) -> Vec<String> {
    let refused = |protocol: &Arc<dyn ServerProtocol>| {
        let error = protocol.refresh().err()?;
        Some(format!("{}: {error}", protocol.id()))
    };
    policy.protocols().iter().filter_map(refused).collect()
}

/// Describes the files in force of all protocols.
pub(crate) fn state(policy: &LoginPolicy) -> String {
    let states: Vec<String> = policy.protocols().iter().map(|protocol| protocol.state()).collect();
    states.into_iter().filter(|state| !state.is_empty()).collect::<Vec<_>>().join("; ")
}

fn refresh_files(protocol: &str, files: &FileRefresh) {
    match files.read() {
        Ok(()) => tracing::debug!("files of {protocol} were read again"),
        Err(error) => tracing::error!("{protocol}: {error}"),
    }
}

/// The refresh of files at their intervals, and the download of revocation lists. Both end when this
/// is dropped.
pub(crate) struct KeyRefresh {
    _files: Option<Sender<()>>,
    _lists: Option<CrlDownloads>,
}

/// Files of a protocol that are read again at an interval.
struct PeriodicRefresh {
    protocol: &'static str,
    files: FileRefresh,
    due: Instant,
}

/// A protocol with a certificate of the server, and the warnings about its expiry.
struct WatchedCertificate {
    protocol: Arc<dyn ServerProtocol>,
    warnings: ExpiryWarnings,
}

impl WatchedCertificate {
    fn of(protocol: &Arc<dyn ServerProtocol>) -> Option<Self> {
        protocol.certificate()?;
        Some(Self { protocol: protocol.clone(), warnings: ExpiryWarnings::default() })
    }

    /// Logs that the certificate in force expires soon.
    fn log_expiry(&mut self, now: SystemTime) {
        if let Some(certificate) = self.protocol.certificate() {
            self.warnings.log(&certificate.path, certificate.expires, now);
        }
    }
}

/// Starts a thread that reads the files of the protocols at their intervals, and one that downloads
/// revocation lists, as far as the configuration needs them.
pub(crate) fn start_refresh(
    login: &ConfiguredLogin,
    effective: &Effective,
    supervisor: &Supervisor,
) -> std::io::Result<KeyRefresh> {
    let downloading = login.authorities.as_ref().filter(|trust| trust.settings().downloads_lists);
    let download = |trust: &Arc<GridTrust>| CrlDownloads::start(trust.clone(), effective, supervisor);
    let lists = downloading.map(download).transpose()?;
    Ok(KeyRefresh { _files: start_file_refresh(&login.policy, supervisor)?, _lists: lists })
}

/// Starts a thread that reads the files of the protocols at their intervals, and logs that their
/// certificates expire soon. `None` if there are no such files.
fn start_file_refresh(policy: &LoginPolicy, supervisor: &Supervisor) -> std::io::Result<Option<Sender<()>>> {
    let periodic = |protocol: &Arc<dyn ServerProtocol>| {
        let protocol_id = protocol.id();
        protocol.periodic_refreshes().into_iter().map(move |files| PeriodicRefresh {
            protocol: protocol_id,
            due: Instant::now() + files.interval,
            files,
        })
    };
    let mut refreshes: Vec<_> = policy.protocols().iter().flat_map(periodic).collect();
    if refreshes.is_empty() {
        return Ok(None);
    }
    let mut certificates: Vec<_> = policy.protocols().iter().filter_map(WatchedCertificate::of).collect();
    certificates.iter_mut().for_each(|watched| watched.log_expiry(SystemTime::now()));
    let (end, ended) = mpsc::channel();
    let run = move || {
        while wait_for_next(&refreshes, &ended) {
            for refresh in refreshes.iter_mut().filter(|refresh| refresh.due <= Instant::now()) {
                refresh_files(refresh.protocol, &refresh.files);
                refresh.due = Instant::now() + refresh.files.interval;
            }
            certificates.iter_mut().for_each(|watched| watched.log_expiry(SystemTime::now()));
        }
    };
    supervisor.spawn("key-refresh", "the refresh of keys", run)?;
    Ok(Some(end))
}

/// Waits until the next refresh is due. Returns false when the refresh must end.
fn wait_for_next(refreshes: &[PeriodicRefresh], ended: &Receiver<()>) -> bool {
    let next = refreshes.iter().map(|refresh| refresh.due).min();
    let left = next.map(|due| due.saturating_duration_since(Instant::now())).unwrap_or_default();
    // The expiry of certificates is examined more often than files that seldom change are read.
    ended.recv_timeout(left.min(EXPIRY_INTERVAL)) == Err(RecvTimeoutError::Timeout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use auth::sss::Keytab;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_refused_keytab_is_reported() {
        let path = std::env::temp_dir().join(format!("scalla-login-keytab-{}", std::process::id()));
        let settings = SssServerSettings::new(path.clone());
        let clock = Arc::new(SystemClock::new());
        let sss = SssServer::with_keys(settings, Keytab::default(), None, Box::new(SystemRng), clock);
        let policy = LoginPolicy::new(vec![Arc::new(sss)], &["sss"], Vec::new(), false, "h.example.org");
        let policy = policy.unwrap();
        assert_eq!(refresh(&policy), [""; 0], "a missing file has no keys");
        std::fs::write(&path, "not a key").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let refused = refresh(&policy);
        std::fs::remove_file(&path).unwrap();
        assert!(refused.len() == 1 && refused[0].starts_with("sss: "), "{refused:?}");
    }

    #[test]
    fn a_server_begins_when_its_protocols_accept_credentials() {
        let settings = SssServerSettings::new(PathBuf::from("/nonexistent"));
        let clock = Arc::new(SystemClock::new());
        let sss = SssServer::with_keys(settings, Keytab::default(), None, Box::new(SystemRng), clock);
        let ready = sss.ready_at();
        let policy = LoginPolicy::new(vec![Arc::new(sss)], &["sss"], Vec::new(), false, "h.example.org");
        await_ready(&policy.unwrap());
        assert!(SystemTime::now() >= ready);
    }

    #[test]
    fn a_login_by_tokens_needs_encryption_and_issuers() {
        let refused = |has_tls| match ztn(&ZtnOptions::default(), has_tls, None) {
            Err(StartError::Security(text)) => text,
            _ => panic!("it starts"),
        };
        assert!(refused(false).contains("add xrd.tls"), "{}", refused(false));
        assert!(refused(true).contains("add ofs.authorize and ofs.authlib"), "{}", refused(true));
    }

    #[test]
    fn core_dumps_are_disabled_before_the_first_key_is_read() {
        use rustix::process::{DumpableBehavior, Resource, dumpable_behavior, getrlimit};
        let nowhere = std::env::temp_dir().join(format!("scalla-login-none-{}", std::process::id()));
        let options = SssOptions { server_keytab: Some(nowhere), ..SssOptions::default() };
        assert!(sss(&options).is_err(), "there is no keytab");
        assert_eq!(dumpable_behavior(), Ok(DumpableBehavior::NotDumpable));
        let limit = getrlimit(Resource::Core);
        assert_eq!((limit.current, limit.maximum), (Some(0), Some(0)));
    }
}
