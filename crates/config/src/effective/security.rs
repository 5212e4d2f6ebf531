//! Values for authentication of clients and signing of requests (`xrootd.seclib`, `sec.`).
//!
//! They are plain values, because the protocols themselves are in the crate `auth`.

use std::path::PathBuf;
use std::time::Duration;

use super::grid::{GRID_KEY_BITS, GridLimited, GsiOptions};
use super::names::named;
use super::network::HostPattern;
use super::process::Trace;
use super::third_party::CopySources;
use crate::setting::Setting;

/// Default lifetime of sss credentials.
pub const SSS_LIFETIME: Duration = Duration::from_secs(13);

/// Default interval between checks of an sss keytab for changes.
pub const SSS_REFRESH: Duration = Duration::from_secs(3600);

/// Maximum number of `sec.protocol` directives.
pub const AUTH_PROTOCOLS_MAX: usize = 31;

/// Options of the server side of sss.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SssOptions {
    /// `-s`: keytab of the server; `None` means `$HOME/.xrd/sss.keytab`.
    pub server_keytab: Option<PathBuf>,
    /// `-c`: path of a keytab that is suggested to clients.
    pub client_keytab: Option<String>,
    /// `-g`: asks clients for the credentials of their user.
    pub wants_credentials: bool,
    /// `-k`: a key is selected by name and id instead of by id alone.
    pub checks_key_name: bool,
    /// `-l`: lifetime of credentials.
    pub lifetime: Duration,
    /// `-p`: protocols that are accepted as the origin of a forwarded identity.
    pub forwarded_protocols: Vec<String>,
    /// `-r`: interval between checks of the keytab for changes.
    pub refresh: Duration,
}

impl Default for SssOptions {
    fn default() -> Self {
        Self {
            server_keytab: None,
            client_keytab: None,
            wants_credentials: false,
            checks_key_name: false,
            lifetime: SSS_LIFETIME,
            forwarded_protocols: Vec::new(),
            refresh: SSS_REFRESH,
        }
    }
}

/// Maximum length of a token in a login by `ztn`, unless configured, in bytes.
pub const LOGIN_TOKEN_BYTES_DEFAULT: usize = 4096;

/// `sec.entitymap`: the file of rules that name clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntityMapFile {
    /// The file.
    pub path: PathBuf,
    /// Clients that no rule matches are refused.
    pub refuses_others: bool,
}

/// `sec.entityprogram`: the program that completes the identities of clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntityProgram {
    /// The program.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// The treatment of the expiry of tokens that a login does not verify.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum TokenExpiry {
    /// It is not looked at.
    Ignore,
    /// A token with an expiry must not have expired.
    Optional,
    /// A token must have an expiry and must not have expired.
    #[default]
    Required,
}

impl TokenExpiry {
    /// All values with their names.
    pub const ALL: [(&'static str, Self); 3] =
        [("ignore", Self::Ignore), ("optional", Self::Optional), ("required", Self::Required)];
}

named!(TokenExpiry);

/// `-tokenlib` of ztn: the tokens that a login accepts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum TokenLibrary {
    /// Tokens of issuers.
    #[default]
    SciTokens,
    /// Macaroons.
    Macaroons,
    /// The login verifies nothing, and each request is decided by its token alone.
    None,
}

impl TokenLibrary {
    /// All values with their names.
    pub const ALL: [(&'static str, Self); 3] = [
        ("libXrdAccSciTokens.so", Self::SciTokens),
        ("libXrdMacaroons.so", Self::Macaroons),
        ("none", Self::None),
    ];
}

named!(TokenLibrary);

/// Options of the server side of ztn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZtnOptions {
    /// `-maxsz`: maximum length of a token in bytes.
    pub token_bytes_max: usize,
    /// `-expiry`: the treatment of the expiry, if the login does not verify tokens.
    pub expiry: TokenExpiry,
    /// `-tokenlib`.
    pub library: TokenLibrary,
}

impl Default for ZtnOptions {
    fn default() -> Self {
        Self {
            token_bytes_max: LOGIN_TOKEN_BYTES_DEFAULT,
            expiry: TokenExpiry::default(),
            library: TokenLibrary::default(),
        }
    }
}

/// File of a forwarded Kerberos ticket, unless configured.
pub const KRB5_TICKET_FILE: &str = "/tmp/krb5cc_<uid>";

/// Options of the server side of krb5.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Krb5Options {
    /// Key table; `None` for the default of the Kerberos library.
    pub keytab: Option<PathBuf>,
    /// `-ipchk`: tickets with addresses are accepted from these addresses only.
    pub checks_addresses: bool,
    /// `-exptkn`: file for the ticket that a client forwards, with `<user>` or `<uid>`; `None` to ask for
    /// no ticket.
    pub ticket_file: Option<String>,
    /// Principal of the server. `<host>` stands for the name of the host.
    pub principal: String,
}

impl Krb5Options {
    /// Creates the options of a principal.
    #[must_use]
    pub fn new(principal: String) -> Self {
        Self { keytab: None, checks_addresses: false, ticket_file: None, principal }
    }
}

/// Number of failed attempts with pwd after which logins are refused for a while, unless configured.
pub const PWD_FAILURES_MAX: u32 = 10;

/// Options of the server side of pwd.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PwdOptions {
    /// `-dir`: directory of the file of passwords; `None` means `$HOME/.xrd`.
    pub directory: Option<PathBuf>,
    /// `-maxfail`: number of failed attempts from a host after which its logins are refused for a
    /// while.
    pub failures_max: u32,
}

/// An authentication protocol that is in force, with its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AuthProtocol {
    /// The address or name of the host identifies the client.
    Host,
    /// The client asserts its user and group.
    Unix,
    /// Simple shared secret.
    Sss(SssOptions),
    /// Bearer tokens.
    Ztn(ZtnOptions),
    /// Certificates of grids.
    Gsi(Box<GsiOptions>),
    /// Tickets of Kerberos.
    Krb5(Krb5Options),
    /// Passwords.
    Pwd(PwdOptions),
}

impl AuthProtocol {
    /// The id of [`AuthProtocol::Host`].
    pub(crate) const HOST_ID: &str = "host";

    /// Returns the protocol id.
    #[must_use]
    pub fn id(&self) -> &'static str {
        match self {
            Self::Host => Self::HOST_ID,
            Self::Unix => "unix",
            Self::Sss(_) => "sss",
            Self::Ztn(_) => "ztn",
            Self::Gsi(_) => "gsi",
            Self::Krb5(_) => "krb5",
            Self::Pwd(_) => "pwd",
        }
    }

    /// Reports whether a login proves a name that another server may trust. Tokens have names for single
    /// requests only.
    pub(crate) const fn proves_name(&self) -> bool {
        matches!(self, Self::Gsi(_) | Self::Krb5(_) | Self::Pwd(_) | Self::Sss(_))
    }
}

/// `sec.protbind`: the protocols for hosts whose name matches a pattern.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuthBinding {
    /// Names of the hosts.
    pub hosts: HostPattern,
    /// Protocol ids in the order of preference. Empty means that these hosts need no
    /// authentication.
    pub protocols: Vec<String>,
    /// Set by `only`: no other protocol is accepted. It matters only if lists are offers
    /// ([`SecurityConfig::binding_offers`]).
    pub only: bool,
}

/// A level of `sec.level`, from weak to strong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum SigningLevel {
    /// No request is signed.
    #[default]
    None,
    /// Only requests that change files.
    Compatible,
    /// Also opens and creation of directories.
    Standard,
    /// Also writes and closes.
    Intense,
    /// All requests that the protocol can sign.
    Pedantic,
}

impl SigningLevel {
    /// All levels with their names.
    pub const ALL: [(&'static str, Self); 5] = [
        ("none", Self::None),
        ("compatible", Self::Compatible),
        ("standard", Self::Standard),
        ("intense", Self::Intense),
        ("pedantic", Self::Pedantic),
    ];
}

named!(SigningLevel);

/// Signing required of one class of clients.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SigningRule {
    /// The level.
    pub level: SigningLevel,
    /// Exempts clients that are too old to sign. Otherwise their requests are refused.
    pub relaxed: bool,
    /// Also requires signatures of clients whose authentication gave no key.
    pub force: bool,
}

/// `sec.level`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SigningLevels {
    /// Clients in the domain of the server, or with a private address.
    pub local: SigningRule,
    /// All other clients.
    pub remote: SigningRule,
}

impl SigningLevels {
    /// Reports whether any client must sign.
    #[must_use]
    pub fn is_in_force(&self) -> bool {
        self.local.level.max(self.remote.level) > SigningLevel::None
    }
}

/// Values for authentication.
#[derive(Clone, PartialEq, Debug)]
pub struct SecurityConfig {
    /// `xrootd.seclib`: clients must authenticate.
    pub enabled: Setting<bool>,
    /// `sec.protocol`, in the order of the file. A protocol that is named twice is in the list
    /// twice.
    pub protocols: Vec<Setting<AuthProtocol>>,
    /// `sec.protbind`, in the order of the file.
    pub bindings: Vec<Setting<AuthBinding>>,
    /// `sec.bindmode offer`: a list without `only` is an offer, and any other protocol is accepted.
    /// Otherwise nothing outside the list is accepted.
    pub binding_offers: Setting<bool>,
    /// `sec.bindtls`: ids of protocols for encrypted connections only, each once, in the order of the
    /// file.
    pub tls_protocols: Vec<Setting<String>>,
    /// `sec.level`.
    pub signing: Setting<SigningLevels>,
    /// `sec.signdata`: signatures of writes cover their data.
    pub signed_data: Setting<bool>,
    /// `gsi.limited`: the rights of clients with a limited proxy.
    pub grid_limited: Setting<GridLimited>,
    /// `gsi.proxytypes`: proxies of the time before RFC 3820 are accepted.
    pub grid_legacy: Setting<bool>,
    /// `gsi.minrsa`: minimum size of RSA keys in bits.
    pub grid_key_bits: Setting<u32>,
    /// `gsi.crlsource`: servers from which revocation lists are downloaded.
    pub grid_list_sources: Setting<CopySources>,
    /// `gsi.compat olddh`: hosts whose clients need not sign their key agreement.
    pub grid_old_clients: Setting<Vec<String>>,
    /// `voms.mapfile`: users of groups.
    pub voms_map: Setting<Option<PathBuf>>,
    /// `sec.entitymap`.
    pub entity_map: Setting<Option<EntityMapFile>>,
    /// `sec.entityprogram`.
    pub entity_program: Setting<Option<EntityProgram>>,
    /// `sec.trace`.
    pub trace: Setting<Trace>,
}

impl Default for SecurityConfig {
    fn default() -> Self {
        Self {
            enabled: Setting::default_of(false),
            protocols: Vec::new(),
            bindings: Vec::new(),
            binding_offers: Setting::default_of(false),
            tls_protocols: Vec::new(),
            signing: Setting::default_of(SigningLevels::default()),
            signed_data: Setting::default_of(false),
            grid_limited: Setting::default_of(GridLimited::default()),
            grid_legacy: Setting::default_of(false),
            grid_key_bits: Setting::default_of(GRID_KEY_BITS),
            grid_list_sources: Setting::default_of(CopySources::default()),
            grid_old_clients: Setting::default_of(Vec::new()),
            voms_map: Setting::default_of(None),
            entity_map: Setting::default_of(None),
            entity_program: Setting::default_of(None),
            trace: Setting::default_of(Trace::default()),
        }
    }
}
