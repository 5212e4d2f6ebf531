//! What may be asked through the admin socket, and what comes back.

use crate::cluster::{NodeStatus, Order};
use serde::{Deserialize, Serialize};

/// Longest line in either direction, in bytes.
pub(super) const LINE_BYTES_MAX: usize = 256 * 1024;

/// A request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// How is it?
    Status {},
    /// How much is logged? With `levels`: change it.
    LogLevel {
        /// `info,net=debug`; see [`crate::log::Levels`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        levels: Option<String>,
    },
    /// Open the log again and read the configuration again.
    Reload {},
    /// End as SIGTERM does.
    Drain {},
    /// Which files are unfinished?
    Unfinished {
        /// With a path: at and below it, also those that this server has no record of.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        below: Option<String>,
    },
    /// Declare an unfinished file whole, or end the record of one that is not there.
    ClearUnfinished {
        /// Its logical path, in the form of [`base::LogicalPath::escaped`].
        path: String,
        /// Also if it was changed within the hold time.
        #[serde(default)]
        force: bool,
    },
    /// Which files are blocked by a checkpoint that could not be undone?
    Checkpoints {},
    /// Resolve the checkpoint of a blocked file.
    ResolveCheckpoint {
        /// Its logical path, in the form of [`base::LogicalPath::escaped`].
        path: String,
        /// Undo the changes in the file that lies there now; otherwise keep it as it is.
        undo: bool,
        /// Undo them also if nothing proves that the file is the one of the checkpoint.
        #[serde(default)]
        force: bool,
    },
    /// How is the node of the cluster, and how are its children?
    ClusterStatus {},
    /// Out of use, or into it again.
    ClusterOrder {
        /// What.
        order: Order,
        /// Which node: this one, unless one below it is named.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<String>,
    },
}

/// A server in a few figures.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// As `query config version` says it.
    pub version: String,
    /// The program it plays: `xrootd`.
    pub program: String,
    /// `anon` without a name.
    pub instance: String,
    /// Its pid.
    pub pid: u32,
    /// Its host's name.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Logical paths it serves, read-only ones with ` (read-only)`.
    pub exports: Vec<String>,
    /// The configuration file, if there is one.
    pub config_file: Option<String>,
    /// When it started, with the offset of local time.
    pub started: String,
    /// Seconds it has been running.
    pub uptime_seconds: u64,
    /// Connections now, also those of parallel streams and those that have said nothing yet.
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
    /// Of these, for writing.
    pub open_for_writing: u64,
    /// Files that persist only on a close that has not come yet.
    pub pending_files: u64,
    /// Files with a checkpoint.
    pub checkpoints: u64,
    /// Checksums being computed.
    pub checksums: u64,
    /// Connections refused because there were too many.
    pub refused_full: u64,
    /// Connections refused because the host is not allowed.
    pub refused_denied: u64,
    /// Connections closed because they spoke no protocol we know.
    pub refused_unknown: u64,
    /// How much is logged.
    pub log_levels: String,
    /// It takes no new connections and ends soon.
    pub draining: bool,
}

/// What is logged now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LevelsAnswer {
    /// `info,net=debug`
    pub levels: String,
}

/// What a reload did.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ReloadAnswer {
    /// Directives whose new values are in force.
    pub applied: Vec<String>,
    /// Directives that changed and need a restart.
    pub need_restart: Vec<String>,
    /// What the operator should know about the files.
    pub warnings: Vec<String>,
}

/// What became of an order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OrderAnswer {
    /// The node it was for.
    pub node: String,
    /// The state that it has by the order, in the words of the status of the cluster.
    pub state: String,
    /// Its address, if it is a child of the node that was given the order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

/// A file and its state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileState {
    /// Its logical path, in the form of [`base::LogicalPath::escaped`], which orders take.
    pub path: String,
    /// What is known of it, in words.
    pub state: String,
}

/// A directory or file that could not be looked at.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UnreadablePath {
    /// Its logical path, in the form of [`base::LogicalPath::escaped`].
    pub path: String,
    /// The reason.
    pub reason: String,
}

/// Files and their states.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FileList {
    /// Each of them, ordered by path.
    pub files: Vec<FileState>,
    /// All are named.
    pub complete: bool,
    /// The reason why the list stopped early, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// Directories and files that could not be looked at, so that there may be more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadablePath>,
    /// The number of further ones.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_unreadable: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Why a request was not done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// What, where, why and what to do.
    pub error: String,
}

/// An answer, as one object with `ok` beside its own fields.
#[derive(Clone, PartialEq, Debug)]
pub enum Response {
    /// To [`Request::Status`].
    Status(Box<Status>),
    /// To [`Request::LogLevel`].
    Levels(LevelsAnswer),
    /// To [`Request::Reload`].
    Reload(ReloadAnswer),
    /// To [`Request::Drain`].
    Draining,
    /// To [`Request::ClusterStatus`].
    Cluster(Box<NodeStatus>),
    /// To [`Request::ClusterOrder`].
    Ordered(OrderAnswer),
    /// To [`Request::Unfinished`] and [`Request::Checkpoints`].
    Files(FileList),
    /// To [`Request::ClearUnfinished`] and [`Request::ResolveCheckpoint`].
    Resolved {
        /// The path.
        path: String,
        /// What it is now, in words.
        state: String,
    },
    /// It was not done.
    Failed(Failure),
}

impl Response {
    /// A failure.
    pub fn failed(error: impl std::fmt::Display) -> Self {
        Self::Failed(Failure { error: error.to_string() })
    }

    /// The object that goes over the socket.
    pub(super) fn to_json(&self) -> serde_json::Value {
        let fields = match self {
            Self::Status(status) => serde_json::to_value(status),
            Self::Levels(levels) => serde_json::to_value(levels),
            Self::Reload(reload) => serde_json::to_value(reload),
            Self::Draining => Ok(serde_json::json!({})),
            Self::Cluster(status) => serde_json::to_value(status),
            Self::Ordered(answer) => serde_json::to_value(answer),
            Self::Files(answer) => serde_json::to_value(answer),
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
            (r#"{"command":"status"}"#, Some(Request::Status {})),
            (r#"{"command":"reload"}"#, Some(Request::Reload {})),
            (r#"{"command":"drain"}"#, Some(Request::Drain {})),
            (r#"{"command":"log-level"}"#, Some(Request::LogLevel { levels: None })),
            (
                r#"{"command":"log-level","levels":"info"}"#,
                Some(Request::LogLevel { levels: Some("info".into()) }),
            ),
            (r#"{"command":"cluster-status"}"#, Some(Request::ClusterStatus {})),
            (
                r#"{"command":"cluster-order","order":"drain","node":"h:1"}"#,
                Some(Request::ClusterOrder { order: Order::Drain, node: Some("h:1".into()) }),
            ),
            (r#"{"command":"cluster-order","order":"shoot"}"#, None),
            (r#"{"command":"dance"}"#, None),
            (r#"{"command":"status","x":1}"#, None),
            ("status", None),
        ];
        for (line, expected) in table {
            assert_eq!(serde_json::from_str::<Request>(line).ok(), expected, "{line}");
        }
    }

    #[test]
    fn answers_say_whether_it_was_done() {
        let failed = Response::failed("no such level").to_json().to_string();
        assert_eq!(failed, r#"{"error":"no such level","ok":false}"#);
        assert_eq!(Response::Draining.to_json().to_string(), r#"{"ok":true}"#);
    }
}
