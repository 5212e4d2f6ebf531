//! Values of third-party copies (`ofs.tpc`).

use std::path::PathBuf;
use std::time::Duration;

use super::network::HostPattern;
use super::protocol::{ChecksumKind, RedirectServer};

/// Maximum number of streams of a copy.
pub const COPY_STREAMS_MAX: u32 = 15;
/// Maximum number of concurrent copies.
pub const COPY_JOBS_MAX: u32 = 1024;

/// `ofs.tpc allow`: a destination may fetch from here if it has all properties of one rule.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CopyAllow {
    /// `host`: host of the destination.
    pub host: Option<HostPattern>,
    /// `dn`, `group` and `vo` with their values, in the given order. They require authentication.
    pub attributes: Vec<(CopyAttribute, String)>,
}

/// A part of the identity of a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyAttribute {
    /// `dn`: its name, such as the subject of its certificate.
    Subject,
    /// `group`: one of its groups.
    Group,
    /// `vo`: one of its virtual organizations.
    Organization,
}

impl CopyAttribute {
    const ALL: [Self; 3] = [Self::Subject, Self::Group, Self::Organization];

    /// Returns its word in the directive.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Subject => "dn",
            Self::Group => "group",
            Self::Organization => "vo",
        }
    }

    /// Returns the attribute of a word of the directive.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|attribute| attribute.word() == word)
    }
}

/// `scalla.tpcsource`, `gsi.crlsource`: a class of hosts that are sources of copies or of revocation
/// lists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CopySource {
    /// `loopback`: this host.
    Loopback,
    /// `linklocal`: addresses of one network segment, which clouds use for their services.
    LinkLocal,
    /// `private`: networks that are not routed in the Internet.
    Private,
    /// A host by name, or address as text.
    Host(HostPattern),
}

/// All `scalla.tpcsource` directives, or all `gsi.crlsource` directives.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CopySources {
    /// Allowed sources. If empty, all hosts except special networks that contain neither this
    /// server nor the client.
    pub allow: Vec<CopySource>,
    /// Forbidden sources.
    pub deny: Vec<CopySource>,
}

/// `ofs.tpc require`: required authentication.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyRequire {
    /// Applies to the client that arranges the copy.
    pub client: bool,
    /// Applies to the destination that fetches.
    pub destination: bool,
    /// The authentication protocol.
    pub protocol: String,
    /// `+`: requests must also be encrypted or signed.
    pub encrypted: bool,
}

/// `ofs.tpc redirect`: redirects opens for copies to another server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyRedirect {
    /// Applies to copies with delegated credentials.
    pub delegated: bool,
    /// Applies to copies without delegated credentials.
    pub undelegated: bool,
    /// Target of the redirect.
    pub target: RedirectServer,
    /// CGI that the client adds.
    pub cgi: String,
}

/// `ofs.tpc pgm`: the copy program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyProgram {
    /// Path of the program.
    pub path: PathBuf,
    /// Arguments before source and destination.
    pub arguments: Vec<String>,
}

/// `ofs.tpc fcreds`: copies log in to sources with the proxies that clients delegate by gsi.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyCredentials {
    /// The variable by which the copy program finds the file with the proxy.
    pub variable: String,
    /// `?`: a client that has delegated nothing may copy without. Otherwise its copies fail.
    pub is_optional: bool,
}

/// `ofs.tpc scan`: output of the program that is searched for its error message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CopyScan {
    /// All output.
    #[default]
    All,
    /// Standard error.
    Stderr,
    /// Standard output.
    Stdout,
}

/// `ofs.tpc`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThirdPartyCopy {
    /// Default lifetime of a client's permission.
    pub ttl: Duration,
    /// Maximum lifetime that a client may request.
    pub ttl_max: Duration,
    /// Maximum number of concurrent copies.
    pub jobs_max: u32,
    /// Default number of streams of a copy.
    pub streams: u32,
    /// Maximum number of streams that a client may request.
    pub streams_max: u32,
    /// Checksum with which each copy is verified.
    pub checksum: Option<ChecksumKind>,
    /// Path prefixes that take part; empty means all.
    pub restrict: Vec<String>,
    /// Destinations that may fetch; empty means all that a client permits.
    pub allow: Vec<CopyAllow>,
    /// Required authentication of clients and destinations.
    pub require: Vec<CopyRequire>,
    /// The copy program; `None` means the built-in client.
    pub program: Option<CopyProgram>,
    /// Delegated credentials; `None` if copies log in to no source.
    pub credentials: Option<CopyCredentials>,
    /// `fcpath`: directory of files with delegated credentials, for the copy program.
    pub credentials_directory: Option<PathBuf>,
    /// Output that is searched for its error message.
    pub scan: CopyScan,
    /// Copies its output to the log.
    pub echo: bool,
    /// Logs successful copies.
    pub log_success: bool,
    /// Source names need not be absolute paths.
    pub object_ids: bool,
    /// Servers to which copies are redirected.
    pub redirects: Vec<CopyRedirect>,
}

impl Default for ThirdPartyCopy {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(7),
            ttl_max: Duration::from_secs(15),
            jobs_max: 9,
            streams: 0,
            streams_max: COPY_STREAMS_MAX,
            checksum: None,
            restrict: Vec::new(),
            allow: Vec::new(),
            require: Vec::new(),
            program: None,
            credentials: None,
            credentials_directory: None,
            scan: CopyScan::All,
            echo: false,
            log_success: false,
            object_ids: false,
            redirects: Vec::new(),
        }
    }
}
