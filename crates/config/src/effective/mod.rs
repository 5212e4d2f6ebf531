//! The effective configuration: one typed struct per crate, each value with its origin.
//!
//! Directories that depend on several values are derived here, because no single struct has them
//! all.

mod address_range;
mod authorization;
mod cluster;
mod cluster_key;
mod detailed_monitoring;
mod forwarding;
mod grid;
mod gstreams;
mod http;
mod logical;
mod macaroons;
mod monitoring;
mod multi_user;
mod name_rules;
mod names;
mod network;
mod notification;
mod object_store;
mod packet_marking;
mod process;
mod protocol;
mod proxy;
mod residency;
mod security;
mod stage_fault;
mod storage;
mod third_party;
mod tls;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub use address_range::AddressRange;
pub use authorization::{
    AUTHDB_DEFAULTS, AccessAudit, AuthorizationConfig, AuthorizationLayers, CredentialLayer,
    ISSUER_FILE_DEFAULT, RuleEncoding, RulePathMatch,
};
pub use cluster::{
    AffinityKind, AffinityPart, CLUSTER_PORT_DEFAULT, CLUSTER_TAG_MAX, ClusterConfig, Delays, FreeSpace,
    Limit, LoadProgramSetting, LoadWeights, MANAGERS_MAX, ManagerAddress, NodeList, NodeRole,
    OperationCommand, OutsideAddress, Quorum, Scheduling, SchedulingAffinity, SelectionSpace,
    SharedFilesConfig, VIRTUAL_ID_MAX, WaitTime,
};
pub use cluster_key::ClusterKeyConfig;
pub use detailed_monitoring::{
    DetailedMonitoring, FileStreamSettings, MONITOR_DESTINATIONS_MAX, MonitorDestination, MonitorEvent,
    MonitorEvents,
};
pub use forwarding::{ForwardWay, Forwarding};
pub use grid::{
    AuthorityCheck, GRID_AUTHORITIES, GRID_CERTIFICATE, GRID_KEY, GRID_KEY_BITS, GRID_MAP, GridCipher,
    GridExport, GridForwarding, GridLimited, GridMapping, GridVoNames, GridVoUser, GsiOptions,
    RevocationCheck, VomsGroups, VomsOptions,
};
pub use gstreams::{
    GSTREAMS, GStream, GStreamDestination, GStreamForm, GStreamHeader, GStreamSettings, GStreamTable,
};
pub use http::{
    HeaderRule, HttpConfig, HttpCopyNetworks, HttpCopyTimes, HttpGridMap, HttpPort, PageReaders, ServerPages,
    StaticHeaderRule,
};
pub(crate) use logical::XATTR_PREFIX_BYTES;
pub use logical::{
    CheckpointConfig, CheckpointFailure, CheckpointMode, CreationModes, LogicalConfig, ModeRange,
    PersistConfig, PersistMode, XattrLimits,
};
pub use macaroons::{MacaroonConfig, MissingMacaroon};
pub use monitoring::{
    DestinationError, MonitoringConfig, REPORT_DESTINATIONS_MAX, REPORT_INTERVAL, ReportDestination,
    ReportPart, ReportParts, SummaryReports,
};
pub use multi_user::MultiUserConfig;
pub use name_rules::{NAME_RULES_MAX, NameLayout, NamePattern, NameRule, PatternPair};
pub use network::{
    AddressFamily, HostPattern, KeepAlive, MAX_FD_RANGE, MaxFd, NetworkConfig, PORT_DEFAULT, Port,
};
pub use notification::{
    NOTIFY_UNIT_BYTES, Notification, NotificationConfig, NotifyEvent, NotifyMessage, NotifyPart,
    NotifyTarget, NotifyVariable,
};
pub(crate) use object_store::is_section;
pub use object_store::{OriginBucket, StoreKeys, StoreValues, parse_region, parse_store_endpoint};
pub use packet_marking::{ActivityRule, ExperimentRule, FIREFLY_PORT, MarkedDomain, PacketMarking};
pub(crate) use process::site_name;
pub use process::{
    DRAIN_SECONDS, DirectorySetting, LogFormat, LogLevel, ProcessConfig, SITE_NAME_MAX, Trace,
};
pub use protocol::{
    ChecksumConfig, ChecksumKind, ClientClass, PrepareLimit, ProtocolConfig, RedirectFunction, RedirectRule,
    RedirectServer, RedirectWhen, SessionLog,
};
pub(crate) use proxy::{AddressProblem, OTHER_PROTOCOLS, OriginAddress};
pub use proxy::{
    CacheSpace, CacheUsage, CacheValues, MemoryCacheValues, OriginOption, OriginPermit, OriginProtocol,
    OriginUrl, ProxyOrigin, ProxyServer, ProxySettings,
};
pub use residency::{
    COPY_SLOTS_MAX, CopySlots, FreeSpaceLimit, NameSpaceDaemon, NameSpaceTarget, PurgeProgram, PurgeRule,
    RecordDestination, ResidencyConfig, STAGE_PLACES_MAX, StageForm, StageProgram, StageShare,
    TransferMonitoring,
};
pub use security::{
    AUTH_PROTOCOLS_MAX, AuthBinding, AuthProtocol, EntityMapFile, EntityProgram, KRB5_TICKET_FILE,
    Krb5Options, LOGIN_TOKEN_BYTES_DEFAULT, PWD_FAILURES_MAX, PwdOptions, SSS_LIFETIME, SSS_REFRESH,
    SecurityConfig, SigningLevel, SigningLevels, SigningRule, SssOptions, TokenExpiry, TokenLibrary,
    ZtnOptions,
};
pub use stage_fault::StageFault;
pub use storage::{
    Allocation, Export, ExportAttributes, MountCheck, SpaceAccounting, SpacePartition, SpaceRule, Storage,
    UsageLogConfig, Visibility,
};
pub use third_party::{
    COPY_JOBS_MAX, COPY_STREAMS_MAX, CopyAllow, CopyAttribute, CopyCredentials, CopyProgram, CopyRedirect,
    CopyRequire, CopyScan, CopySource, CopySources, ThirdPartyCopy,
};
pub use tls::{
    HANDSHAKE_TIME, TlsAuthorities, TlsCertificate, TlsOperations, TlsRequirements, TlsRevocation,
};

use crate::setting::{Origin, Position, Setting};

/// The export of a configuration without exports.
pub const EXPORT_DEFAULT: &str = "/tmp";

/// `setenv NAME = VALUE`. The program that starts the process applies it; this crate has no side
/// effects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EnvironmentChange {
    /// Name of the variable.
    pub name: String,
    /// New value.
    pub value: String,
    /// Position of the directive.
    pub position: Position,
}

/// All settings of a server, with their origins.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Effective {
    /// The program for which the files were evaluated (`xrootd`, `cmsd`, …).
    pub program: String,
    /// `-n`; `None` is the anonymous instance.
    pub instance: Option<String>,
    /// The canonical host name used in conditions.
    pub host: String,
    /// Values of the process.
    pub process: ProcessConfig,
    /// Values for `net`.
    pub network: NetworkConfig,
    /// Values for monitoring.
    pub monitoring: MonitoringConfig,
    /// Values for the xroot protocol layer.
    pub protocol: ProtocolConfig,
    /// Values for `http`.
    pub http: HttpConfig,
    /// Values of authorization.
    pub authorization: AuthorizationConfig,
    /// Values for authentication of clients and signing of requests.
    pub security: SecurityConfig,
    /// Values for `logical`.
    pub logical: LogicalConfig,
    /// Events about files, for a program of the site.
    pub notification: NotificationConfig,
    /// Values of multi-user.
    pub multi_user: MultiUserConfig,
    /// Values for `storage`.
    pub storage: Storage,
    /// Values for `proxy`.
    pub proxy: ProxySettings,
    /// Values of staging.
    pub residency: ResidencyConfig,
    /// Values for the cluster.
    pub cluster: ClusterConfig,
    /// `setenv` directives in order.
    pub environment: Vec<EnvironmentChange>,
}

impl Effective {
    /// Reports whether clients can read cached files without the server. They cannot if they need a login or a permission,
    /// because the server sees nothing of such reads.
    #[must_use]
    pub fn has_direct_reads(&self) -> bool {
        let is_open = !*self.authorization.enabled && !*self.security.enabled;
        *self.proxy.cache.direct_reads && *self.proxy.cache.enabled && is_open
    }

    /// Returns the configuration of `scalla serve DIR`: `directory` as `/`, all checksums,
    /// otherwise the defaults.
    #[must_use]
    pub fn for_directory(directory: &Path, read_only: bool) -> Self {
        let mut effective = Self { program: "xrootd".to_owned(), ..Self::default() };
        effective.storage.local_root = Setting::from_command_line(Some(directory.to_path_buf()));
        effective.storage.exports.push(Export {
            prefix: "/".to_owned(),
            attributes: ExportAttributes { read_only, ..ExportAttributes::default() },
            origin: Origin::CommandLine,
        });
        effective.protocol.checksums.value.offered = ChecksumKind::ALL.to_vec();
        effective
    }

    /// Reports whether HTTP is served, as `xrd.protocol` asks.
    #[must_use]
    pub fn serves_http(&self) -> bool {
        !self.http.ports.is_empty()
    }

    /// Reports whether HTTP is served on the port of the xroot protocol. Managers redirect clients to that port of a
    /// node, whatever their protocol is.
    #[must_use]
    pub fn shares_port_with_http(&self) -> bool {
        let is_target = self.cluster.is_cluster_node();
        self.http.ports.iter().any(|port| is_target || !self.is_own(port))
    }

    /// Returns the ports on which only HTTP is served.
    #[must_use]
    pub fn own_http_ports(&self) -> BTreeSet<u16> {
        self.http.ports.iter().filter(|port| self.is_own(port)).filter_map(|port| port.number).collect()
    }

    fn is_own(&self, port: &HttpPort) -> bool {
        port.number.is_some_and(|number| *self.network.port != Port::Number(number))
    }

    /// Returns the directive that names the certificate of the server.
    #[must_use]
    pub fn certificate_directive(&self) -> &'static str {
        if self.has_certificate_of_http() { "http.cert" } else { "xrd.tls" }
    }

    /// Reports whether the certificate of the server is that of `http.cert`.
    #[must_use]
    pub fn has_certificate_of_http(&self) -> bool {
        let certificate = &self.http.certificate;
        self.network.tls.is_some() && certificate.is_some() && certificate.origin == self.network.tls.origin
    }

    /// Reports whether clients can order third-party copies over HTTP. Their handler needs a certificate,
    /// unless it has `+notls`.
    #[must_use]
    pub fn serves_http_copies(&self) -> bool {
        *self.http.copies && (self.http.copies_without_tls || self.network.tls.is_some())
    }

    /// Reports whether `sec.protocol gsi` is in force.
    #[must_use]
    pub fn has_grid_logins(&self) -> bool {
        let is_gsi = |protocol: &Setting<AuthProtocol>| matches!(protocol.value, AuthProtocol::Gsi(_));
        *self.security.enabled && self.security.protocols.iter().any(is_gsi)
    }

    /// Reports whether clients of HTTPS are asked for certificates, which needs authorities to verify them by.
    #[must_use]
    pub fn asks_for_certificates(&self) -> bool {
        let (http, network) = (&self.http, &self.network);
        let own = http.authority_directory.is_some() || http.authority_file.is_some();
        let has_authorities =
            own || network.tls_authorities.as_ref().is_some_and(|found| !found.verifies_nothing());
        self.serves_http()
            && network.tls.is_some()
            && *http.asks_for_certificates
            && (has_authorities || self.has_grid_logins())
    }

    /// Reports whether clients can get macaroons over HTTP. Their handler needs a certificate, unless it has
    /// `+notls`, and macaroons that count.
    #[must_use]
    pub fn issues_macaroons(&self) -> bool {
        let authorization = &self.authorization;
        let count = *authorization.enabled && authorization.layers.has_macaroons();
        *self.http.macaroons && count && (self.http.macaroons_without_tls || self.network.tls.is_some())
    }

    /// Returns the site name in macaroons.
    #[must_use]
    pub fn macaroon_site(&self) -> Option<&str> {
        self.authorization.macaroons.site.as_deref().or(self.process.site_name.as_deref())
    }

    /// Returns the admin directory of the instance.
    #[must_use]
    pub fn admin_directory(&self) -> PathBuf {
        self.process.admin_directory(self.instance.as_deref())
    }

    /// Returns the directory of checkpoints, or `None` if they are disabled. With
    /// [`CheckpointMode::Automatic`] they are disabled under `/tmp`, because they must survive a
    /// reboot.
    #[must_use]
    pub fn checkpoint_directory(&self) -> Option<PathBuf> {
        let directory = self.checkpoint_path();
        match self.logical.checkpoint.mode {
            CheckpointMode::Enabled => Some(directory),
            CheckpointMode::Disabled => None,
            CheckpointMode::Automatic => (!directory.starts_with("/tmp")).then_some(directory),
        }
    }

    /// Returns the directory of checkpoints even if they are disabled, because checkpoints of an
    /// earlier run must be found. Each instance has its own directory, because each rolls back all
    /// checkpoints it finds at its start.
    #[must_use]
    pub fn checkpoint_path(&self) -> PathBuf {
        match &self.logical.checkpoint.path {
            Some(path) => self.of_instance(path),
            None => self.admin_directory().join(".ofs/chkpnt"),
        }
    }

    /// Returns the directory of the journal of incomplete files, one per instance. The journal of
    /// XRootD is the file `posc.log` next to it.
    #[must_use]
    pub fn persist_directory(&self) -> PathBuf {
        let directory = self.logical.persist.log_path.as_ref().map(|path| self.of_instance(path));
        directory.unwrap_or_else(|| self.admin_directory()).join(".ofs/posc")
    }

    /// Returns the directory of files with credentials that clients delegate for copies.
    #[must_use]
    pub fn copy_credentials_directory(&self) -> PathBuf {
        let copies = self.logical.third_party.value.as_ref();
        let configured = copies.and_then(|copies| copies.credentials_directory.clone());
        configured.unwrap_or_else(|| self.admin_directory().join(".ofs/.tpccreds"))
    }

    /// Returns the directory of the queue of transfers from mass storage, one per instance.
    #[must_use]
    pub fn transfer_directory(&self) -> PathBuf {
        let configured = self.residency.directory.as_ref().map(|path| self.of_instance(path));
        configured.unwrap_or_else(|| self.admin_directory().join("frm"))
    }

    fn of_instance(&self, directory: &Path) -> PathBuf {
        self.instance.as_ref().map_or_else(|| directory.to_path_buf(), |name| directory.join(name))
    }
}
