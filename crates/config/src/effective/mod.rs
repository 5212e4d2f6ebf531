//! The effective configuration: one typed struct per room, every value with its origin.

mod cluster;
mod logical;
mod network;
mod process;
mod protocol;
mod storage;
mod third_party;

use std::path::{Path, PathBuf};

pub use cluster::{
    Affinity, AffinityKind, AffinityPart, CLUSTER_PORT_DEFAULT, CLUSTER_TAG_MAX, Cluster, Delays, ForwardWay,
    Forwarding, FreeSpace, Limit, LoadSource, LoadWeights, MANAGERS_MAX, ManagerAddress, NodeList,
    OperationProgram, Outside, Quorum, Role, Scheduling, SharedFiles, SpaceRules, VIRTUAL_ID_MAX, Wait,
};
pub(crate) use logical::XATTR_PREFIX_BYTES;
pub use logical::{
    Checkpoint, CheckpointFailure, CheckpointMode, CreationModes, Logical, ModeRange, Persist, PersistMode,
    XattrLimits,
};
pub use network::{AddressFamily, HostPattern, KeepAlive, MAX_FD_RANGE, MaxFd, Network, PORT_DEFAULT, Port};
pub(crate) use process::site_name;
pub use process::{DRAIN_SECONDS, Folder, LogFormat, LogLevel, Process, SITE_NAME_MAX, Trace};
pub use protocol::{
    ChecksumKind, Checksums, ClientClass, PrepareLimit, Protocol, Redirect, RedirectFunction, RedirectWhen,
    SessionLog, Target,
};
pub use storage::{Allocation, Attributes, Export, MountCheck, Space, SpaceRule, Storage, Visibility};
pub use third_party::{
    COPY_JOBS_MAX, COPY_STREAMS_MAX, CopyAllow, CopyProgram, CopyRedirect, CopyRequire, CopyScan, CopySource,
    CopySources, ThirdPartyCopy,
};

use crate::setting::{Origin, Position, Setting};

/// The export a configuration without any has.
pub const EXPORT_DEFAULT: &str = "/tmp";

/// `setenv NAME = VALUE`: for whoever starts the process to apply; this crate changes nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EnvironmentChange {
    /// Variable.
    pub name: String,
    /// New value.
    pub value: String,
    /// Where it was written.
    pub position: Position,
}

/// Everything a server is told, with origins.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Effective {
    /// The program the files were read as (`xrootd`, `cmsd`, …).
    pub program: String,
    /// `-n`; `None` is the anonymous instance.
    pub instance: Option<String>,
    /// The canonical host name conditions were compared with.
    pub host: String,
    /// The process.
    pub process: Process,
    /// For `net`.
    pub network: Network,
    /// For the xroot protocol layer.
    pub protocol: Protocol,
    /// For `logical`.
    pub logical: Logical,
    /// For `storage`.
    pub storage: Storage,
    /// For the cluster.
    pub cluster: Cluster,
    /// `setenv` directives in order.
    pub environment: Vec<EnvironmentChange>,
}

impl Effective {
    /// What `scalla serve DIR` serves: `directory` as `/`, every checksum on offer, otherwise the defaults.
    #[must_use]
    pub fn for_directory(directory: &Path, read_only: bool) -> Self {
        let mut effective = Self { program: "xrootd".to_owned(), ..Self::default() };
        effective.storage.local_root = Setting::from_command_line(Some(directory.to_path_buf()));
        effective.storage.exports.push(Export {
            prefix: "/".to_owned(),
            attributes: Attributes { read_only, ..Attributes::default() },
            origin: Origin::CommandLine,
        });
        effective.protocol.checksums.value.offered = ChecksumKind::ALL.to_vec();
        effective
    }

    /// The instance's admin folder.
    #[must_use]
    pub fn admin_folder(&self) -> PathBuf {
        self.process.admin_folder(self.instance.as_deref())
    }

    /// Where checkpoints are kept, or `None` when they are off. With [`CheckpointMode::Automatic`] they are off
    /// under `/tmp`, where a reboot would lose what a crash must not.
    #[must_use]
    pub fn checkpoint_folder(&self) -> Option<PathBuf> {
        let folder = self.checkpoint_path();
        match self.logical.checkpoint.mode {
            CheckpointMode::Enabled => Some(folder),
            CheckpointMode::Disabled => None,
            CheckpointMode::Automatic => (!folder.starts_with("/tmp")).then_some(folder),
        }
    }

    /// Where checkpoints lie, or would if they were on: what an earlier run left there must be found in any case.
    /// Each instance has a folder of its own, because each undoes what it finds at its start.
    #[must_use]
    pub fn checkpoint_path(&self) -> PathBuf {
        match &self.logical.checkpoint.path {
            Some(path) => self.of_instance(path),
            None => self.admin_folder().join(".ofs/chkpnt"),
        }
    }

    /// Folder of the journal of files that are not persistent yet, one for each instance. XRootD's own journal is a
    /// file `posc.log` beside it.
    #[must_use]
    pub fn persist_folder(&self) -> PathBuf {
        let folder = self.logical.persist.log_path.as_ref().map(|path| self.of_instance(path));
        folder.unwrap_or_else(|| self.admin_folder()).join(".ofs/posc")
    }

    fn of_instance(&self, folder: &Path) -> PathBuf {
        self.instance.as_ref().map_or_else(|| folder.to_path_buf(), |name| folder.join(name))
    }
}
