//! The status of files and directories, and of the space for new files.

use std::sync::Arc;

/// The kind of an object in the name space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Any other kind.
    Other,
}

/// The kind of an object and whether it is offline. It occupies one byte, because a list may have a
/// million of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BriefStat(u8);

impl BriefStat {
    const DIRECTORY: u8 = 1;
    const OTHER: u8 = 2;
    const OFFLINE: u8 = 4;

    /// Creates the entry of an object of this kind. `offline` marks data that needs staging.
    pub fn new(kind: FileKind, offline: bool) -> Self {
        let kind = match kind {
            FileKind::File => 0,
            FileKind::Directory => Self::DIRECTORY,
            FileKind::Other => Self::OTHER,
        };
        Self(kind | if offline { Self::OFFLINE } else { 0 })
    }

    /// Returns the kind of the object.
    pub fn kind(self) -> FileKind {
        match self.0 & !Self::OFFLINE {
            Self::DIRECTORY => FileKind::Directory,
            Self::OTHER => FileKind::Other,
            _ => FileKind::File,
        }
    }

    /// Reports whether the data of the object needs staging.
    pub fn is_offline(self) -> bool {
        self.0 & Self::OFFLINE != 0
    }
}

/// The status of a file or directory, with the fields that clients see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileStat {
    /// Stable and unique number on this server: device in the upper, inode in the lower 32 bits.
    pub id: u64,
    /// Size in bytes.
    pub size: u64,
    /// Kind of the object.
    pub kind: FileKind,
    /// The server may read it.
    pub readable: bool,
    /// The server may write it, and the export allows it.
    pub writable: bool,
    /// The server may execute or search it.
    pub executable: bool,
    /// The data is not on this server and needs staging.
    pub offline: bool,
    /// The file persists only on successful close and is not closed yet.
    pub posc_pending: bool,
    /// Modification time in seconds since the epoch.
    pub modified: i64,
    /// Change time in seconds since the epoch.
    pub changed: i64,
    /// Access time in seconds since the epoch.
    pub accessed: i64,
    /// Permission bits, including set-id and sticky bits (07777).
    pub mode: u32,
    /// Name of the owner, or its number if it has no name.
    pub owner: Arc<str>,
    /// Name of the group, or its number if it has no name.
    pub group: Arc<str>,
}

/// Space for new files.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct SpaceFigures {
    /// Number of nodes that can write.
    pub writable_nodes: u32,
    /// Number of nodes that can stage.
    pub staging_nodes: u32,
    /// Total size in bytes.
    pub total: u64,
    /// Free bytes.
    pub free: u64,
    /// Free bytes on the file system with the most free space, which limits the size of one file.
    pub largest_free: u64,
    /// Used bytes.
    pub used: u64,
    /// Allowed bytes; `None` without a quota.
    pub quota: Option<u64>,
}

impl SpaceFigures {
    /// Returns the answer to `query space` for the space `name`. Source: xroot protocol, query
    /// space.
    #[must_use]
    pub fn query_text(&self, name: &str) -> String {
        let Self { total, free, largest_free, used, .. } = self;
        let quota = self.quota.map_or_else(|| "-1".to_owned(), |quota| quota.to_string());
        format!(
            "oss.cgroup={name}&oss.space={total}&oss.free={free}&oss.maxf={largest_free}&oss.used={used}&oss.quota={quota}"
        )
    }
}
