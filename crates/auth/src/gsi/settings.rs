//! [`GsiServerSettings`]: the configuration of the server's side.

use super::session_cipher::GsiCipher;
use super::vo_names::VoNames;
use crate::grid::VomsSelection;
use crate::patterns::PeerHostPattern;
use std::path::PathBuf;
use std::time::Duration;

/// The use of the grid map (`-gmapopt`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum NameMapping {
    /// It is not used.
    Off,
    /// A subject that is not in it has a name of its own.
    #[default]
    Try,
    /// A subject that is not in it is refused.
    Required,
}

/// The certificates of a client that later layers receive (`-authzpxy`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForwardedChain {
    /// Set for the field `endorsements`; otherwise they are the credentials of the identity.
    pub as_endorsements: bool,
    /// Set for all certificates; otherwise only the last one.
    pub is_full: bool,
}

/// The use of attributes of VOMS (`-vomsat`, `-vomsfunparms`).
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct AttributeUse {
    /// A client without memberships that count is refused.
    pub is_required: bool,
    /// The memberships that count.
    pub selection: VomsSelection,
}

/// The rights of clients with a limited proxy.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum LimitedProxies {
    /// They are refused.
    Refuse,
    /// They may read.
    #[default]
    Read,
    /// All of the user.
    Full,
}

/// The use of proxies that clients delegate (`-dlgpxy`, `-exppxy`). The identity of the client has the
/// proxy as long as its session.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DelegationUse {
    /// The proxy is the credentials of the identity (`-exppxy:=creds`).
    pub as_credentials: bool,
    /// Template of the path of a file with the proxy, which ends with the session. It has `<user>` or
    /// `<uid>`, so that no client replaces the proxy of another one.
    pub file: Option<String>,
}

/// The configuration of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GsiServerSettings {
    /// Certificate of the server.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The ciphers that are offered, in this order.
    pub ciphers: Vec<GsiCipher>,
    /// The digests that are offered, in this order.
    pub digests: Vec<String>,
    /// The use of the grid map.
    pub mapping: NameMapping,
    /// The name of a subject that is not mapped is the subject itself, otherwise its hash.
    pub names_by_subject: bool,
    /// The use of attributes of VOMS; `None` if they are ignored.
    pub attributes: Option<AttributeUse>,
    /// Names that are derived from the virtual organization.
    pub vo_names: Option<VoNames>,
    /// Certificates for later layers.
    pub forwarded_chain: Option<ForwardedChain>,
    /// Clients that offer it are asked for a proxy; `None` asks nobody.
    pub delegation: Option<DelegationUse>,
    /// Names in certificates go into monitoring.
    pub monitors_subject: bool,
    /// Names in certificates are logged.
    pub logs_subject: bool,
    /// Only the new hash of authorities is offered.
    pub new_hash_only: bool,
    /// The rights of clients with a limited proxy.
    pub limited: LimitedProxies,
    /// Minimum size of the keys of clients in bits.
    pub key_bits_min: usize,
    /// Hosts whose clients need not sign their key agreement (XRootD before 4.9). An attacker on the way can
    /// then compute the session key, by which requests are signed.
    pub old_clients: Vec<PeerHostPattern>,
    /// Interval at which certificate, authorities and grid map are read again.
    pub refresh: Duration,
    /// Interval at which the map of groups is read again.
    pub groups_refresh: Duration,
}

impl GsiServerSettings {
    /// Interval of refreshes unless it is configured.
    pub const REFRESH: Duration = Duration::from_secs(600);
    /// Interval of refreshes of the map of groups.
    pub const GROUPS_REFRESH: Duration = Duration::from_secs(30);
    /// Minimum size of keys unless it is configured, in bits.
    pub const KEY_BITS_MIN: usize = 2048;

    /// Creates the settings of a server with this certificate and key, and defaults otherwise.
    #[must_use]
    pub fn new(certificate: PathBuf, key: PathBuf) -> Self {
        Self {
            certificate,
            key,
            ciphers: GsiCipher::ALL.iter().map(|(_, cipher)| *cipher).collect(),
            digests: vec!["sha256".to_owned()],
            mapping: NameMapping::default(),
            names_by_subject: false,
            attributes: None,
            vo_names: None,
            forwarded_chain: None,
            delegation: None,
            monitors_subject: false,
            logs_subject: false,
            new_hash_only: false,
            limited: LimitedProxies::default(),
            key_bits_min: Self::KEY_BITS_MIN,
            old_clients: Vec::new(),
            refresh: Self::REFRESH,
            groups_refresh: Self::GROUPS_REFRESH,
        }
    }
}
