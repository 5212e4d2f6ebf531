//! Values for the xroot protocol layer (`xrootd.`): checksums, redirects, session log, limits.

use super::names::named;
use super::network::HostPattern;
use super::process::Trace;
use super::tls::TlsRequirements;
use crate::setting::Setting;

/// A built-in checksum algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ChecksumKind {
    /// RFC 1950.
    Adler32,
    /// POSIX `cksum`.
    Crc32,
    /// Castagnoli.
    Crc32c,
    /// CRC-32 of zlib.
    Zcrc32,
    /// RFC 1321.
    Md5,
    /// FIPS 180.
    Sha1,
    /// FIPS 180.
    Sha256,
}

impl ChecksumKind {
    /// All algorithms, in the order in which `scalla serve` offers them.
    pub const ALL: [Self; 7] =
        [Self::Adler32, Self::Crc32c, Self::Md5, Self::Crc32, Self::Zcrc32, Self::Sha1, Self::Sha256];

    /// Returns the name on the wire and in `xrootd.chksum`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Adler32 => "adler32",
            Self::Crc32 => "crc32",
            Self::Crc32c => "crc32c",
            Self::Zcrc32 => "zcrc32",
            Self::Md5 => "md5",
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
        }
    }

    /// Returns the algorithm with this case-sensitive name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// `xrootd.chksum`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChecksumConfig {
    /// Algorithms that clients may request, the default first. An empty list refuses checksum
    /// queries.
    pub offered: Vec<ChecksumKind>,
    /// Accepts `cks.type` in the CGI of a query.
    pub from_cgi: bool,
    /// Maximum number of concurrent computations.
    pub concurrent_max: u32,
}

/// `xrootd.log`: session events to log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionLog {
    /// Logins.
    pub login: bool,
    /// Disconnects.
    pub disconnect: bool,
}

/// `xrootd.limit prepare`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PrepareLimit {
    /// Maximum number of prepare requests per connection; `None` means unlimited.
    pub per_connection: Option<u32>,
    /// Beyond the limit, reports success without executing the request, instead of an error.
    pub silent: bool,
}

/// A request that `xrootd.redirect` can redirect.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RedirectFunction {
    /// Change mode.
    Chmod,
    /// Query checksum.
    Chksum,
    /// List a directory.
    Dirlist,
    /// Locate.
    Locate,
    /// Make a directory.
    Mkdir,
    /// Rename.
    Mv,
    /// Open for writing.
    OpenWrite,
    /// Prepare.
    Prepare,
    /// Prepare with staging.
    PrepareStage,
    /// Remove a file.
    Rm,
    /// Remove a directory.
    Rmdir,
    /// Stat.
    Stat,
    /// Truncate.
    Trunc,
}

impl RedirectFunction {
    /// All requests with their names in `xrootd.redirect`.
    pub const ALL: [(&'static str, Self); 13] = [
        ("chmod", Self::Chmod),
        ("chksum", Self::Chksum),
        ("dirlist", Self::Dirlist),
        ("locate", Self::Locate),
        ("mkdir", Self::Mkdir),
        ("mv", Self::Mv),
        ("openw", Self::OpenWrite),
        ("prepare", Self::Prepare),
        ("prepstage", Self::PrepareStage),
        ("rm", Self::Rm),
        ("rmdir", Self::Rmdir),
        ("stat", Self::Stat),
        ("trunc", Self::Trunc),
    ];
}

named!(RedirectFunction);

/// A server to which clients are redirected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedirectServer {
    /// Host name or address; IPv6 addresses keep their brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// A class of clients in a redirect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientClass {
    /// Clients with a private address.
    Private,
    /// Clients in the domain of the server.
    Local,
    /// Clients whose host name ends with this domain (`.cern.ch`).
    Domain(HostPattern),
}

/// Condition of a redirect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RedirectWhen {
    /// These requests on any path.
    Functions(Vec<RedirectFunction>),
    /// All requests on a path with one of these prefixes.
    Paths(Vec<String>),
    /// Opens of files under these prefixes that do not exist here.
    Missing(Vec<String>),
    /// Clients of these classes, at login.
    Clients(Vec<ClientClass>),
}

/// `xrootd.redirect`: static redirection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedirectRule {
    /// Target of the redirect.
    pub target: RedirectServer,
    /// Target for clients with a private address, if it differs.
    pub private_target: Option<RedirectServer>,
    /// Condition of the redirect.
    pub when: RedirectWhen,
}

/// Values for the xroot protocol layer.
#[derive(Clone, PartialEq, Debug)]
pub struct ProtocolConfig {
    /// `xrootd.chksum`.
    pub checksums: Setting<ChecksumConfig>,
    /// `xrootd.log`.
    pub session_log: Setting<SessionLog>,
    /// `xrootd.limit`.
    pub prepare_limit: Setting<PrepareLimit>,
    /// `xrootd.redirect`, in the order of the file.
    pub redirects: Vec<Setting<RedirectRule>>,
    /// `xrootd.async nosf` switches it off.
    pub sendfile: Setting<bool>,
    /// `xrootd.tls`: operations that must be encrypted.
    pub tls: Setting<TlsRequirements>,
    /// `xrootd.tlsreuse`: clients may resume TLS sessions.
    pub tls_reuse: Setting<bool>,
    /// `xrootd.trace`.
    pub trace: Setting<Trace>,
}

impl Default for ProtocolConfig {
    fn default() -> Self {
        Self {
            checksums: Setting::default_of(ChecksumConfig {
                offered: Vec::new(),
                from_cgi: false,
                concurrent_max: 4,
            }),
            session_log: Setting::default_of(SessionLog { login: false, disconnect: true }),
            prepare_limit: Setting::default_of(PrepareLimit::default()),
            redirects: Vec::new(),
            sendfile: Setting::default_of(true),
            tls: Setting::default_of(TlsRequirements::default()),
            tls_reuse: Setting::default_of(false),
            trace: Setting::default_of(Trace::default()),
        }
    }
}
