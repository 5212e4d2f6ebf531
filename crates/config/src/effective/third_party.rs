//! Values of third-party copies (`ofs.tpc`).

use std::path::PathBuf;
use std::time::Duration;

use super::network::HostPattern;
use super::protocol::{ChecksumKind, Target};

/// Most streams of a copy.
pub const COPY_STREAMS_MAX: u32 = 15;
/// Most copies that may run at once.
pub const COPY_JOBS_MAX: u32 = 1024;

/// `ofs.tpc allow`: a destination that may fetch from here has everything that one rule names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CopyAllow {
    /// `host`: its host.
    pub host: Option<HostPattern>,
    /// `dn`, `group` and `vo` with their values, in the order given: what only authentication tells.
    pub attributes: Vec<(String, String)>,
}

/// `scalla.tpcsource`: which hosts are sources of copies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CopySource {
    /// `loopback`: this host itself.
    Loopback,
    /// `linklocal`: addresses of one network segment, which clouds use for their services.
    LinkLocal,
    /// `private`: networks that are not routed in the Internet.
    Private,
    /// Names, or addresses as text.
    Host(HostPattern),
}

/// `scalla.tpcsource`, all of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CopySources {
    /// What copies may be fetched from; empty: everything but the special networks in which neither this server nor the client is.
    pub allow: Vec<CopySource>,
    /// What copies are never fetched from.
    pub deny: Vec<CopySource>,
}

/// `ofs.tpc require`: how somebody must be authenticated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyRequire {
    /// The client that arranges the copy.
    pub client: bool,
    /// The destination that fetches.
    pub destination: bool,
    /// The protocol.
    pub protocol: String,
    /// `+`: the connection must be encrypted too.
    pub encrypted: bool,
}

/// `ofs.tpc redirect`: opens for copies are handed to another server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyRedirect {
    /// Those with delegated credentials, those without, or both.
    pub delegated: bool,
    /// See `delegated`.
    pub undelegated: bool,
    /// Where to.
    pub target: Target,
    /// What the client is to add to its cgi.
    pub cgi: String,
}

/// `ofs.tpc pgm`: the program that copies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyProgram {
    /// Its file.
    pub path: PathBuf,
    /// What stands before source and destination.
    pub arguments: Vec<String>,
}

/// `ofs.tpc scan`: where a program's last words are looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CopyScan {
    /// In all that it writes.
    #[default]
    All,
    /// In its error output.
    Stderr,
    /// In its standard output.
    Stdout,
}

/// `ofs.tpc`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThirdPartyCopy {
    /// How long a client's permission holds unless it asks for another time.
    pub ttl: Duration,
    /// The most it may ask for.
    pub ttl_max: Duration,
    /// Copies that run at once.
    pub jobs_max: u32,
    /// Streams of a copy whose client says nothing.
    pub streams: u32,
    /// Most streams a client may ask for.
    pub streams_max: u32,
    /// Every copy is verified with this checksum.
    pub checksum: Option<ChecksumKind>,
    /// Only paths below these take part; empty: all.
    pub restrict: Vec<String>,
    /// Who may fetch; empty: everybody whom a client permits it.
    pub allow: Vec<CopyAllow>,
    /// How clients and destinations must be authenticated.
    pub require: Vec<CopyRequire>,
    /// The program that copies; `None` for the client that is built in.
    pub program: Option<CopyProgram>,
    /// Where its last words are looked for.
    pub scan: CopyScan,
    /// What it writes goes to the log.
    pub echo: bool,
    /// Copies that succeed are logged.
    pub log_success: bool,
    /// Names at the source need not be absolute paths.
    pub object_ids: bool,
    /// Servers that copies are handed to.
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
            scan: CopyScan::All,
            echo: false,
            log_success: false,
            object_ids: false,
            redirects: Vec::new(),
        }
    }
}
