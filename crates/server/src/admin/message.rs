//! Requests and responses of the admin socket.

use crate::cluster::{NodeOrder, NodeStatus};
use serde::{Deserialize, Serialize};

/// Longest line in either direction, in bytes.
pub(super) const LINE_BYTES_MAX: usize = 256 * 1024;

/// A request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum AdminRequest {
    /// Report the state of the server.
    Status {},
    /// Report the log levels. With `levels`: change them.
    LogLevel {
        /// `info,net=debug`; see [`crate::log::Levels`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        levels: Option<String>,
    },
    /// Reopen the log and reload the configuration.
    Reload {},
    /// End as after SIGTERM.
    Drain {},
    /// List the unfinished files.
    Unfinished {
        /// With a path: list those at and below it, also those without a record of this server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        below: Option<String>,
    },
    /// Declare an unfinished file whole, or end the record of one that is not there.
    ClearUnfinished {
        /// The logical path, in the form of [`base::LogicalPath::escaped`].
        path: String,
        /// Also apply it if the file was changed within the hold time.
        #[serde(default)]
        force: bool,
    },
    /// List the files that are blocked by a checkpoint that could not be undone.
    Checkpoints {},
    /// Resolve the checkpoint of a blocked file.
    ResolveCheckpoint {
        /// The logical path, in the form of [`base::LogicalPath::escaped`].
        path: String,
        /// Undo the changes in the file that exists now; otherwise keep it unchanged.
        undo: bool,
        /// Also undo them if nothing proves that the file is the one of the checkpoint.
        #[serde(default)]
        force: bool,
    },
    /// List the queue of transfers from and to mass storage.
    TransferQueue {},
    /// Report the space and the last purge of exports that are purged.
    ResidencyStatus {},
    /// Pin a file, so that it is not purged, or end its pin.
    Pin {
        /// The logical path, in the form of [`base::LogicalPath::escaped`].
        path: String,
        /// The pin.
        pin: PinOrder,
    },
    /// Copy a file from mass storage, or to it, even if that failed a short time ago.
    Transfer {
        /// The logical path, in the form of [`base::LogicalPath::escaped`].
        path: String,
        /// The direction.
        order: TransferOrder,
    },
    /// Report the state of the transfer of a file.
    TransferState {
        /// The logical path, in the form of [`base::LogicalPath::escaped`].
        path: String,
        /// The direction.
        order: TransferOrder,
    },
    /// Remove a file from disk that mass storage has, also if it was used a short time ago.
    Release {
        /// The logical path, in the form of [`base::LogicalPath::escaped`].
        path: String,
    },
    /// Begin a purge now.
    Purge {},
    /// List files with the reasons for which a purge keeps them.
    PurgePreview {
        /// Only the file at this path, or those below it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        below: Option<String>,
    },
    /// Report the state of the disk cache.
    CacheStatus {},
    /// Remove cached files that nobody has open.
    EvictCached {
        /// The logical path of a file or directory, in the form of [`base::LogicalPath::escaped`].
        path: String,
    },
    /// Keep cached files for a time.
    PinCached {
        /// The logical path of a file or directory, in the form of [`base::LogicalPath::escaped`].
        path: String,
        /// The time in seconds.
        seconds: u64,
    },
    /// End the pin of cached files.
    UnpinCached {
        /// The path of the pin, in the form of [`base::LogicalPath::escaped`].
        path: String,
    },
    /// Report the state of the cluster node and of its children.
    ClusterStatus {},
    /// Take a node out of use, or into use again.
    ClusterOrder {
        /// The order.
        order: NodeOrder,
        /// The node; this one if it is `None`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<String>,
    },
}

/// The direction of a transfer that an administrator orders.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransferOrder {
    /// From mass storage.
    Stage,
    /// To mass storage.
    Migrate,
}

/// How long a file is kept on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PinOrder {
    /// Until the pin is ended.
    Forever,
    /// Until it was not accessed for a time.
    Idle {
        /// The time in seconds.
        seconds: u64,
    },
    /// Until a time.
    Until {
        /// The time in seconds since the epoch.
        time: i64,
    },
    /// It is not pinned.
    Off,
}

/// The queue of transfers, in the order of addition.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct TransferList {
    /// The transfers.
    pub transfers: Vec<ListedTransfer>,
    /// There are no others.
    pub complete: bool,
}

/// A transfer in the queue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListedTransfer {
    /// The logical path, in the form of [`base::LogicalPath::escaped`].
    pub path: String,
    /// `in` or `out`.
    pub direction: String,
    /// `queued`, `running`, `cancelled` or `failed`.
    pub state: String,
    /// The reason for a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Number of tries.
    pub tries: u32,
    /// Priority.
    pub priority: u8,
    /// The client that asked for it first.
    pub client: String,
    /// When it was added, in seconds since the epoch.
    pub added: u64,
}

/// The state of the transfer of one file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TransferState {
    /// The logical path, in the form of [`base::LogicalPath::escaped`].
    pub path: String,
    /// The state.
    pub state: TransferPhase,
    /// The reason for a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Number of tries of a transfer that has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tries: Option<u32>,
}

/// How far a transfer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransferPhase {
    /// It waits.
    Queued,
    /// A copy runs.
    Running,
    /// The file is on disk, or mass storage has this version of it.
    Done,
    /// It ended without that.
    Failed,
}

/// The space and the last purge of exports that are purged.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ResidencyStatus {
    /// The file systems.
    pub volumes: Vec<VolumeStatus>,
    /// When the last purge ended, in seconds since the epoch.
    pub last_purge: Option<i64>,
    /// Number of files that it removed.
    pub purged_files: u64,
    /// Their bytes.
    pub purged_bytes: u64,
    /// Exports on file systems with too little space after it.
    pub short_of_space: Vec<String>,
    /// The file by which an administrator has stopped purges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_by: Option<String>,
    /// Number of purges that have ended since the start.
    #[serde(default)]
    pub purges: u64,
    /// A purge runs.
    #[serde(default)]
    pub is_purging: bool,
    /// Transfers from mass storage, if there is a queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staging: Option<TransferCounts>,
    /// Transfers to mass storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration: Option<TransferCounts>,
}

/// Numbers of transfers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct TransferCounts {
    /// They wait.
    pub queued: u64,
    /// Their copies run.
    pub running: u64,
    /// They failed lately, so that further requests are refused.
    pub failed: u64,
}

/// A file system with files that may be purged, in bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// An export on it.
    pub export: String,
    /// Its size.
    pub total: u64,
    /// Free.
    pub free: u64,
    /// A purge begins when less is free.
    pub purge_below: u64,
    /// It ends when this much is free.
    pub purge_until: u64,
}

/// The state of the disk cache of a proxy, and what it has done since the start.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct CacheStatus {
    /// The directory.
    pub directory: String,
    /// Number of files on disk, as far as they are known.
    pub files: u64,
    /// Number of bytes that are stored of them.
    pub bytes: u64,
    /// All files are known, because the directory was looked through.
    pub is_known: bool,
    /// Number of files that are open.
    pub open_files: u64,
    /// Number of bytes in memory that are on their way to the disk.
    pub memory: u64,
    /// The disk is full or has failed, so nothing is stored.
    pub is_paused: bool,
    /// Opens of files through the cache.
    pub opens: u64,
    /// Opens of files that could not be cached then.
    pub uncached_opens: u64,
    /// Opens after which clients on this machine read the file directly.
    #[serde(default)]
    pub direct_opens: u64,
    /// Bytes that were read from the disk.
    pub bytes_hit: u64,
    /// Bytes that were fetched from the origin to be stored, also ahead of readers.
    pub bytes_missed: u64,
    /// Bytes that were read from the origin and not stored.
    pub bytes_bypassed: u64,
    /// Bytes that were stored.
    pub bytes_stored: u64,
    /// Stored blocks that were wrong, and were fetched again.
    pub damaged_blocks: u64,
    /// Files that were removed to make room.
    pub evicted_files: u64,
    /// Parts that were removed from files of which others stay, to make room.
    #[serde(default)]
    pub evicted_parts: u64,
    /// The bytes of both.
    pub evicted_bytes: u64,
    /// The pins, in the order in which they have effect.
    #[serde(default)]
    pub pins: Vec<CachedPin>,
}

/// A file or directory whose cached files stay.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CachedPin {
    /// The logical path, in the form of [`base::LogicalPath::escaped`].
    pub path: String,
    /// The end, in seconds since the epoch.
    pub expires: i64,
    /// The stored bytes of its files; `None` if no server counts them.
    pub bytes: Option<u64>,
    /// The pin has an effect. Otherwise pinned files have more than half of the cache.
    pub is_kept: bool,
}

/// The result of a removal of cached files.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EvictionAnswer {
    /// The logical path, in the form of [`base::LogicalPath::escaped`].
    pub path: String,
    /// Number of files that were removed.
    pub removed: u64,
    /// Number of files that stay, because clients have them open.
    pub in_use: u64,
    /// Number of files that stay, because they are pinned.
    #[serde(default)]
    pub pinned: u64,
    /// Number of files that stay, because the disk has failed.
    pub failed: u64,
    /// The server still looks through the cache, so files that it does not know yet may stay.
    pub is_partial: bool,
}

/// The state and counters of a server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ServerStatus {
    /// The version, as `query config version` returns it.
    pub version: String,
    /// The program name under which it runs: `xrootd`.
    pub program: String,
    /// `anon` without a name.
    pub instance: String,
    /// The pid.
    pub pid: u32,
    /// The host's name.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Ports on which only HTTP is served.
    #[serde(default)]
    pub http_ports: Vec<u16>,
    /// Logical paths it serves, read-only ones with ` (read-only)`.
    pub exports: Vec<String>,
    /// The configuration file, if there is one.
    pub config_file: Option<String>,
    /// When it started, with the offset of local time.
    pub started: String,
    /// Seconds it has been running.
    pub uptime_seconds: u64,
    /// Connections now, including parallel streams and those that have not sent anything yet.
    pub connections: u64,
    /// Sessions now.
    pub sessions: u64,
    /// Requests since the start.
    pub requests: u64,
    /// Bytes received since the start.
    pub bytes_in: u64,
    /// Bytes sent since the start.
    pub bytes_out: u64,
    /// Files open now, counting each handle.
    pub open_files: u64,
    /// Files open for writing now.
    pub open_for_writing: u64,
    /// Files that persist only after a close that is still outstanding.
    pub pending_files: u64,
    /// Files with a checkpoint.
    pub checkpoints: u64,
    /// Checksums being computed.
    pub checksums: u64,
    /// Connections refused because the maximum was reached.
    pub refused_full: u64,
    /// Connections refused because the host is not allowed.
    pub refused_denied: u64,
    /// Connections closed because their protocol is unknown.
    pub refused_unknown: u64,
    /// The log levels.
    pub log_levels: String,
    /// The token issuers and authorization rules in force, and why present files are not; else empty.
    #[serde(default)]
    pub authorization: String,
    /// The keys in force, and the reason why the present keytab is not; empty without keys.
    #[serde(default)]
    pub authentication: String,
    /// Set if it accepts no new connections and ends soon.
    pub draining: bool,
}

/// The log levels in force.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LevelsAnswer {
    /// Such as `info,net=debug`.
    pub levels: String,
}

/// The result of a reload.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ReloadAnswer {
    /// Directives whose new values are in force.
    pub applied: Vec<String>,
    /// Directives that changed and need a restart.
    pub need_restart: Vec<String>,
    /// Warnings about the configuration files for the operator.
    pub warnings: Vec<String>,
}

/// The result of an order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OrderAnswer {
    /// The node to which it applied.
    pub node: String,
    /// The state of the node after the order, as shown in the cluster status.
    pub state: String,
    /// The address, if it is a child of the node that received the order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

/// A file and its state.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct FileState {
    /// The logical path, in the form of [`base::LogicalPath::escaped`], which orders take.
    pub path: String,
    /// The state as text.
    pub state: String,
    /// Its size, in the list of files that a purge may remove.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// A purge may remove it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eligible: Option<bool>,
    /// The reason for which a purge keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A directory or file that could not be read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UnreadablePath {
    /// The logical path, in the form of [`base::LogicalPath::escaped`].
    pub path: String,
    /// The reason.
    pub reason: String,
}

/// Files and their states.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FileList {
    /// The files, ordered by path.
    pub files: Vec<FileState>,
    /// Set if the list is complete.
    pub complete: bool,
    /// The reason why the list stopped early, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// Directories and files that could not be read, so that the list may be incomplete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadablePath>,
    /// The number of further unreadable paths.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_unreadable: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The reason why a request failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AdminFailure {
    /// The error message: operation, object, reason and remedy.
    pub error: String,
}

/// A response, encoded as one object with `ok` beside its own fields.
#[derive(Clone, PartialEq, Debug)]
pub enum AdminResponse {
    /// The response to [`AdminRequest::Status`].
    Status(Box<ServerStatus>),
    /// The response to [`AdminRequest::LogLevel`].
    Levels(LevelsAnswer),
    /// The response to [`AdminRequest::Reload`].
    Reload(ReloadAnswer),
    /// The response to [`AdminRequest::Drain`].
    Draining,
    /// The response to [`AdminRequest::ClusterStatus`].
    Cluster(Box<NodeStatus>),
    /// The response to [`AdminRequest::ClusterOrder`].
    Ordered(OrderAnswer),
    /// The response to [`AdminRequest::Unfinished`] and [`AdminRequest::Checkpoints`].
    Files(FileList),
    /// The response to orders about one file, such as [`AdminRequest::ResolveCheckpoint`].
    Resolved {
        /// The path.
        path: String,
        /// The new state as text.
        state: String,
    },
    /// The response to [`AdminRequest::TransferState`].
    Transfer(TransferState),
    /// The response to [`AdminRequest::TransferQueue`].
    Transfers(TransferList),
    /// The response to [`AdminRequest::ResidencyStatus`] and [`AdminRequest::Purge`].
    Residency(Box<ResidencyStatus>),
    /// The response to [`AdminRequest::CacheStatus`].
    CacheStatus(Box<CacheStatus>),
    /// The response to [`AdminRequest::EvictCached`].
    Evicted(EvictionAnswer),
    /// The response to [`AdminRequest::PinCached`].
    Pinned(CachedPin),
    /// The request failed.
    Failed(AdminFailure),
}

impl AdminResponse {
    /// Creates the response for a failure.
    pub fn failed(error: impl std::fmt::Display) -> Self {
        Self::Failed(AdminFailure { error: error.to_string() })
    }

    /// Returns the object that is sent over the socket.
    pub(super) fn to_json(&self) -> serde_json::Value {
        let fields = match self {
            Self::Status(status) => serde_json::to_value(status),
            Self::Levels(levels) => serde_json::to_value(levels),
            Self::Reload(reload) => serde_json::to_value(reload),
            Self::Draining => Ok(serde_json::json!({})),
            Self::Cluster(status) => serde_json::to_value(status),
            Self::Ordered(answer) => serde_json::to_value(answer),
            Self::Files(answer) => serde_json::to_value(answer),
            Self::Transfer(state) => serde_json::to_value(state),
            Self::Transfers(list) => serde_json::to_value(list),
            Self::Residency(status) => serde_json::to_value(status),
            Self::CacheStatus(status) => serde_json::to_value(status),
            Self::Evicted(answer) => serde_json::to_value(answer),
            Self::Pinned(pin) => serde_json::to_value(pin),
            Self::Resolved { path, state } => Ok(serde_json::json!({ "path": path, "state": state })),
            Self::Failed(failure) => serde_json::to_value(failure),
        };
        let mut object = fields.unwrap_or_else(|error| serde_json::json!({ "error": error.to_string() }));
        object["ok"] = (!matches!(self, Self::Failed(_))).into();
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_one_flat_object() {
        let table = [
            (r#"{"command":"status"}"#, Some(AdminRequest::Status {})),
            (r#"{"command":"reload"}"#, Some(AdminRequest::Reload {})),
            (r#"{"command":"drain"}"#, Some(AdminRequest::Drain {})),
            (r#"{"command":"log-level"}"#, Some(AdminRequest::LogLevel { levels: None })),
            (
                r#"{"command":"log-level","levels":"info"}"#,
                Some(AdminRequest::LogLevel { levels: Some("info".into()) }),
            ),
            (r#"{"command":"cluster-status"}"#, Some(AdminRequest::ClusterStatus {})),
            (
                r#"{"command":"cluster-order","order":"drain","node":"h:1"}"#,
                Some(AdminRequest::ClusterOrder { order: NodeOrder::Drain, node: Some("h:1".into()) }),
            ),
            (r#"{"command":"cluster-order","order":"shoot"}"#, None),
            (r#"{"command":"dance"}"#, None),
            (r#"{"command":"status","x":1}"#, None),
            ("status", None),
        ];
        for (line, expected) in table {
            assert_eq!(serde_json::from_str::<AdminRequest>(line).ok(), expected, "{line}");
        }
    }

    #[test]
    fn answers_say_whether_it_was_done() {
        let failed = AdminResponse::failed("no such level").to_json().to_string();
        assert_eq!(failed, r#"{"error":"no such level","ok":false}"#);
        assert_eq!(AdminResponse::Draining.to_json().to_string(), r#"{"ok":true}"#);
    }
}
