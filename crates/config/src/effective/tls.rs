//! Values of TLS: certificate and key, authorities, and the operations that must be encrypted.

use std::path::PathBuf;
use std::time::Duration;

/// Default time limit of a handshake.
pub const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// `xrd.tls`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsCertificate {
    /// File with the certificate of the server and those of intermediate authorities.
    pub certificate: PathBuf,
    /// File with the key; `None` if the key is in the file of the certificate.
    pub key: Option<PathBuf>,
    /// `hsto`: time limit of a handshake.
    pub handshake_time: Duration,
    /// The server has signed it itself (`--tls self`), and renews it before it expires.
    pub is_renewed: bool,
}

/// Maximum interval at which authorities are read again, unless it is configured.
const AUTHORITIES_REFRESH: Duration = Duration::from_secs(8 * 3600);

/// Number of authorities between a client and a root, unless it is configured.
const DEPTH_MAX: usize = 9;

/// `crlcheck` of `xrd.tlsca`: the revocation lists that certificates of clients need.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum TlsRevocation {
    /// Lists count where they exist.
    #[default]
    Present,
    /// The authority of the client must have a current list.
    Last,
    /// Each authority must have a current list.
    All,
}

/// `xrd.tlsca`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsAuthorities {
    /// Directory of authorities and revocation lists, named by the hashes of their subjects.
    pub directory: Option<PathBuf>,
    /// File with authorities.
    pub file: Option<PathBuf>,
    /// `crlcheck` and `allow-missing-crl`.
    pub revocation: TlsRevocation,
    /// `proxies`: certificates of clients may be proxies.
    pub accepts_proxies: bool,
    /// `verdepth`: maximum number of authorities between a client and a root.
    pub depth_max: usize,
    /// `refresh`: maximum interval at which authorities and revocation lists are read again.
    pub refresh: Duration,
}

impl Default for TlsAuthorities {
    fn default() -> Self {
        Self {
            directory: None,
            file: None,
            revocation: TlsRevocation::default(),
            accepts_proxies: true,
            depth_max: DEPTH_MAX,
            refresh: AUTHORITIES_REFRESH,
        }
    }
}

impl TlsAuthorities {
    /// Reports whether peers are not verified (`noverify`).
    #[must_use]
    pub fn verifies_nothing(&self) -> bool {
        self.directory.is_none() && self.file.is_none()
    }
}

/// A set of operations that must be encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TlsOperations {
    /// The login and all that follows.
    pub login: bool,
    /// All that follows the login.
    pub session: bool,
    /// Data on bound connections.
    pub data: bool,
    /// kXR_gpfile.
    pub gpfile: bool,
    /// Opens for third-party copies.
    pub third_party: bool,
}

impl TlsOperations {
    /// The words of `xrootd.tls`, in the order of [`Self::flags`].
    pub(crate) const WORDS: [&'static str; 5] = ["login", "session", "data", "gpfile", "tpc"];

    pub(crate) fn flags_mut(&mut self) -> [&mut bool; 5] {
        [&mut self.login, &mut self.session, &mut self.data, &mut self.gpfile, &mut self.third_party]
    }

    fn flags(self) -> [bool; 5] {
        [self.login, self.session, self.data, self.gpfile, self.third_party]
    }

    /// Returns the words of the operations.
    pub(crate) fn words(self) -> Vec<&'static str> {
        Self::WORDS.into_iter().zip(self.flags()).filter(|(_, on)| *on).map(|(word, _)| word).collect()
    }

    /// Returns the operations of both sets.
    #[must_use]
    pub fn union(mut self, other: Self) -> Self {
        self.flags_mut().into_iter().zip(other.flags()).for_each(|(flag, on)| *flag |= on);
        self
    }

    /// Reports whether the set has no operation.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Reports whether the session must be encrypted after its login. Encrypted data without an
    /// encrypted session would be read through the session.
    #[must_use]
    pub fn includes_session(self) -> bool {
        !self.login && (self.session || self.data)
    }
}

/// `xrootd.tls`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TlsRequirements {
    /// Operations that every client must encrypt. Others are refused.
    pub all: TlsOperations,
    /// Operations that clients which support TLS must encrypt as well. Others are served in clear
    /// text.
    pub capable: TlsOperations,
}

impl TlsRequirements {
    /// Reports whether nothing must be encrypted.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.all.union(self.capable).is_empty()
    }
}
