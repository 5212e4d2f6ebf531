//! Settings of a session and the limits of its resources.
//!
//! The server passes the settings to each session at its start. They are here because the session
//! reads no configuration itself.

use crate::login_policy::LoginPolicy;
use crate::pending_logins::PendingLogins;
use auth::SigningRequirements;
use base::{DescriptorBudget, is_private};
use config::TlsRequirements;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use wire::xroot::codes::SecurityLevel;
use wire::xroot::flags::{SecurityOptions, ServerFlags};
use wire::xroot::limits::REQUEST_HEADER_BYTES;
use wire::xroot::reply::SecurityRequirements;

/// Maximum length in bytes of an argument before login. The cgi of a login is far smaller, and an
/// unknown peer must not claim more memory.
pub(crate) const GREETING_ARGUMENT_BYTES_MAX: usize = 16 * 1024;

/// Maximum length in bytes of credentials. With their header they fit the 64 KiB that a client may
/// claim before it is authenticated.
pub const CREDENTIAL_BYTES_MAX: usize = 64 * 1024 - REQUEST_HEADER_BYTES;

/// Maximum number of attempts to authenticate on one connection. It is closed at the next one.
pub const LOGIN_ATTEMPTS_MAX: u32 = 10;

/// Number of failed attempts on one connection whose refusal is not delayed.
pub(crate) const PROMPT_REFUSALS_MAX: u32 = 2;

/// Maximum delay of a refusal in seconds. Each further failed attempt adds a second.
pub const REFUSAL_SECONDS_MAX: u32 = 5;

/// Maximum time between a login and the success of its authentication.
pub const LOGIN_TIME_MAX: Duration = Duration::from_secs(60);

/// Maximum number of clients that have logged in and are not authenticated yet.
pub(crate) const PENDING_LOGINS_MAX: usize = 16_384;

/// Maximum number of these with the address of one host.
pub const PENDING_LOGINS_PER_HOST_MAX: usize = 1024;

const _: () = assert!(GREETING_ARGUMENT_BYTES_MAX <= CREDENTIAL_BYTES_MAX);
const _: () = assert!(PENDING_LOGINS_PER_HOST_MAX < PENDING_LOGINS_MAX);

/// Maximum number of requests of a session that wait for the file system. At this limit the driver
/// stops reading (back-pressure).
pub const CALLS_MAX: usize = 1024;

/// Maximum number of bad pages of one kXR_pgwrite that a driver lists: one more than the protocol
/// can report, so that an excess is visible.
pub const BAD_PAGES_MAX: usize = wire::xroot::limits::PGWRITE_BAD_PAGES_MAX + 1;

/// Maximum number of open files in one session.
pub(crate) const FILES_MAX: usize = 65_536;

/// A text that another part of the server changes. Clones share it.
#[derive(Clone, Default, Debug)]
pub struct LiveValue(Arc<Mutex<String>>);

impl LiveValue {
    /// Returns the current text.
    #[must_use]
    pub fn get(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the text.
    pub fn set(&self, text: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

/// Rules that decide about clients after login.
#[derive(Clone)]
pub struct HostRules(pub Arc<dyn Fn() -> bool + Send + Sync>);

impl HostRules {
    /// Reports whether the rules in force depend on the names of hosts.
    pub(crate) fn needs_hosts(&self) -> bool {
        (self.0)()
    }
}

impl std::fmt::Debug for HostRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HostRules")
    }
}

/// Settings that all sessions of a front end share.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Role and capabilities that the server announces.
    pub flags: ServerFlags,
    /// Authentication required of clients; `None` if the address identifies them.
    pub login: Option<Arc<LoginPolicy>>,
    /// Authorization rules; `None` if every client may do everything.
    pub host_rules: Option<HostRules>,
    /// Authentication and signing are selected by the address of a client, not by its name.
    pub selects_by_address: bool,
    /// Clients that have logged in and are not authenticated yet.
    pub pending_logins: Arc<PendingLogins>,
    /// Signing required of clients.
    pub signing: SigningByDistance,
    /// Operations that must be encrypted; `None` if the server has no certificate.
    pub tls: Option<TlsRequirements>,
    /// Answers to `query config`, by key. Unknown keys are echoed.
    pub configuration: Vec<(String, String)>,
    /// Further answers to `query config`, by key, that change while the server runs.
    pub live_values: Vec<(String, LiveValue)>,
    /// Files can be removed from a disk cache (`kXR_set` with `cache`).
    pub has_cache: bool,
    /// The driver executes commands about monitoring (`kXR_set` with `monitor` or `appid`). Otherwise they
    /// succeed and have no effect.
    pub has_monitoring: bool,
    /// Paths that begin with `/xrdpfc_command/` are commands of the cache.
    pub has_path_commands: bool,
    /// Clients on this machine can be redirected to its files, so the ends of their connections have to be known.
    pub has_local_files: bool,
    /// Maximum number of prepare requests per session; `None` means unlimited.
    pub prepares_max: Option<usize>,
    /// Reports success for prepare requests beyond that limit without executing them. Otherwise
    /// they fail.
    pub prepares_silent: bool,
    /// Maximum number of open files per session, independent of the available descriptors.
    pub files_max: usize,
    /// Descriptors for the connections and files of all sessions.
    pub descriptors: Arc<DescriptorBudget>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            flags: ServerFlags::IS_SERVER | ServerFlags::SUPPOSC | ServerFlags::SUPPGRW,
            login: None,
            host_rules: None,
            selects_by_address: false,
            pending_logins: Arc::default(),
            signing: SigningByDistance::default(),
            tls: None,
            configuration: Vec::new(),
            live_values: Vec::new(),
            has_cache: false,
            has_monitoring: false,
            has_path_commands: false,
            has_local_files: false,
            prepares_max: None,
            prepares_silent: false,
            files_max: FILES_MAX,
            descriptors: Arc::default(),
        }
    }
}

/// Requests that must be signed (kXR_sigver).
#[derive(Clone, Debug)]
pub struct Signing {
    /// The requirement for each request.
    pub(crate) requirements: SigningRequirements,
    /// Exempts clients that are too old to sign.
    pub(crate) is_relaxed: bool,
    /// Pairs of `requestid - 3000` and requirement that replace those of the level.
    pub(crate) overrides: Box<[[u8; 2]]>,
}

impl Signing {
    /// Creates the requirements of a level. `force` also requires signatures of clients whose
    /// authentication gave no key; they sign with the bare hash.
    pub fn new(level: SecurityLevel, force: bool, is_relaxed: bool, overrides: &[[u8; 2]]) -> Self {
        let secopt = if force { SecurityOptions::FORCE } else { SecurityOptions::NONE };
        let announced = SecurityRequirements { secver: 0, secopt, seclvl: level, overrides };
        let requirements = SigningRequirements::new(&announced);
        Self { requirements, is_relaxed, overrides: overrides.into() }
    }

    /// Returns the requirements as they are announced to clients.
    pub(crate) fn announced(&self) -> SecurityRequirements<'_> {
        let SigningRequirements { level, options, .. } = self.requirements;
        SecurityRequirements { secver: 0, secopt: options, seclvl: level, overrides: &self.overrides }
    }

    /// Reports whether any request must be signed.
    pub(crate) fn is_in_force(&self) -> bool {
        self.requirements.level != SecurityLevel::NONE
    }

    pub(crate) fn is_forced(&self) -> bool {
        self.requirements.options.contains(SecurityOptions::FORCE)
    }

    /// Also requires that signatures of writes cover their data.
    #[must_use]
    pub fn covering_data(mut self) -> Self {
        self.requirements.options = self.requirements.options.with(SecurityOptions::DATA);
        self
    }

    pub(crate) fn covers_data(&self) -> bool {
        self.requirements.options.contains(SecurityOptions::DATA)
    }
}

/// Signing required of clients nearby and of others. `None` requires no signatures.
#[derive(Clone, Default, Debug)]
pub struct SigningByDistance {
    /// For clients in the domain of the server or with a private address.
    pub local: Option<Arc<Signing>>,
    /// For all other clients.
    pub remote: Option<Arc<Signing>>,
    /// The domain of the server, which begins with a dot; empty if it has none.
    pub domain: String,
}

impl SigningByDistance {
    /// Requires the same of all clients.
    pub fn of_all(signing: Signing) -> Self {
        let signing = Some(Arc::new(signing));
        Self { local: signing.clone(), remote: signing, domain: String::new() }
    }

    /// Reports whether the name of a host with this address decides about its requirements.
    pub(crate) fn needs_host_name(&self, address: Option<IpAddr>) -> bool {
        let is_equal = match (&self.local, &self.remote) {
            (None, None) => true,
            (Some(local), Some(remote)) => Arc::ptr_eq(local, remote),
            _ => false,
        };
        !is_equal && !self.domain.is_empty() && !address.is_some_and(is_private)
    }

    /// Returns the requirements of a host.
    pub(crate) fn of(&self, address: Option<IpAddr>, host: &str) -> Option<&Arc<Signing>> {
        let host = host.to_ascii_lowercase();
        let is_of_domain = !self.domain.is_empty() && host.ends_with(&self.domain.to_ascii_lowercase());
        let is_local = address.is_some_and(is_private) || is_of_domain;
        if is_local { self.local.as_ref() } else { self.remote.as_ref() }
    }
}

/// The remote end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Address; `None` in tests.
    pub address: Option<IpAddr>,
    /// Port.
    pub port: u16,
    /// Host name if known, otherwise the address as text.
    pub host: String,
    /// Both ends of the connection, for [`Settings::has_local_files`].
    pub connection: Option<Arc<vfs::ClientConnection>>,
}
