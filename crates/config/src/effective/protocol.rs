//! Values for the xroot protocol layer (`xrootd.`): checksums offered, redirects, session log, limits.

use super::network::HostPattern;
use super::process::Trace;
use crate::setting::Setting;

/// A checksum we can compute.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ChecksumKind {
    /// RFC 1950.
    Adler32,
    /// POSIX `cksum`.
    Crc32,
    /// Castagnoli.
    Crc32c,
    /// zlib's CRC-32.
    Zcrc32,
    /// RFC 1321.
    Md5,
    /// FIPS 180.
    Sha1,
    /// FIPS 180.
    Sha256,
}

impl ChecksumKind {
    /// All of them, in the order `scalla serve` offers them.
    pub const ALL: [Self; 7] =
        [Self::Adler32, Self::Crc32c, Self::Md5, Self::Crc32, Self::Zcrc32, Self::Sha1, Self::Sha256];

    /// The name on the wire and in `xrootd.chksum`.
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

    /// The kind of that name (case counts).
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// `xrootd.chksum`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checksums {
    /// What clients may ask for, the default first; empty refuses checksum queries.
    pub offered: Vec<ChecksumKind>,
    /// Honour `cks.type` in the CGI of a query.
    pub from_cgi: bool,
    /// Most computations at a time.
    pub concurrent_max: u32,
}

/// `xrootd.log`: which session events are logged.
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
    /// Most prepare requests of one connection; `None` is unlimited.
    pub per_connection: Option<u32>,
    /// Past the limit answer success and do nothing, instead of an error.
    pub silent: bool,
}

/// A request that can be sent elsewhere by `xrootd.redirect`.
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
    /// All of them with their names in `xrootd.redirect`.
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

    /// The name in `xrootd.redirect`.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, function)| *function == self).map_or("", |(name, _)| name)
    }
}

/// A server to send clients to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Host name or address; IPv6 addresses keep their brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// Which clients a redirect by client is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientClass {
    /// Clients with a private address.
    Private,
    /// Clients in our own domain.
    Local,
    /// Clients whose host name ends like this (`.cern.ch`).
    Domain(HostPattern),
}

/// When a redirect applies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RedirectWhen {
    /// To these requests, whatever the path.
    Functions(Vec<RedirectFunction>),
    /// To every request on a path with one of these prefixes.
    Paths(Vec<String>),
    /// To opens of files that do not exist here, under one of these prefixes.
    Missing(Vec<String>),
    /// To clients of these kinds, at login.
    Clients(Vec<ClientClass>),
}

/// `xrootd.redirect`: static redirection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redirect {
    /// Where to.
    pub target: Target,
    /// Where to for clients with a private address, if it differs.
    pub private_target: Option<Target>,
    /// When.
    pub when: RedirectWhen,
}

/// Values for the xroot protocol layer.
#[derive(Clone, PartialEq, Debug)]
pub struct Protocol {
    /// `xrootd.chksum`.
    pub checksums: Setting<Checksums>,
    /// `xrootd.log`.
    pub session_log: Setting<SessionLog>,
    /// `xrootd.limit`.
    pub prepare_limit: Setting<PrepareLimit>,
    /// `xrootd.redirect`, in the order of the file.
    pub redirects: Vec<Setting<Redirect>>,
    /// `xrootd.async nosf` switches it off.
    pub sendfile: Setting<bool>,
    /// `xrootd.trace`.
    pub trace: Setting<Trace>,
}

impl Default for Protocol {
    fn default() -> Self {
        Self {
            checksums: Setting::default_of(Checksums {
                offered: Vec::new(),
                from_cgi: false,
                concurrent_max: 4,
            }),
            session_log: Setting::default_of(SessionLog { login: true, disconnect: true }),
            prepare_limit: Setting::default_of(PrepareLimit::default()),
            redirects: Vec::new(),
            sendfile: Setting::default_of(true),
            trace: Setting::default_of(Trace::default()),
        }
    }
}
