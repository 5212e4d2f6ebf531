//! What is known of a file or directory, and of space for new ones.

use std::sync::Arc;

/// What kind of thing a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Anything else.
    Other,
}

/// The kind of a name's target and whether it is offline, in one byte, because lists may have a million of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BriefStat(u8);

impl BriefStat {
    const DIRECTORY: u8 = 1;
    const OTHER: u8 = 2;
    const OFFLINE: u8 = 4;

    /// Creates the entry of an object of this kind; `offline` if its data needs staging.
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

    /// Reports whether its data needs staging.
    pub fn is_offline(self) -> bool {
        self.0 & Self::OFFLINE != 0
    }
}

/// The status of a file or directory, in the terms that clients see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stat {
    /// Stable and unique on this server: device in the upper, inode in the lower 32 bits.
    pub id: u64,
    /// Bytes.
    pub size: u64,
    /// What it is.
    pub kind: FileKind,
    /// The server may read it.
    pub readable: bool,
    /// The server may write it, and the export allows it.
    pub writable: bool,
    /// The server may execute or search it.
    pub executable: bool,
    /// Its data is not here; it needs staging.
    pub offline: bool,
    /// It persists only on successful close, which has not come yet.
    pub posc_pending: bool,
    /// Seconds since the epoch.
    pub modified: i64,
    /// Seconds since the epoch.
    pub changed: i64,
    /// Seconds since the epoch.
    pub accessed: i64,
    /// Permission bits, with set-id and sticky bits (07777).
    pub mode: u32,
    /// Name of the owner, its number where it has none.
    pub owner: Arc<str>,
    /// Name of the group, its number where it has none.
    pub group: Arc<str>,
}

/// Space for new files.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct SpaceFigures {
    /// Nodes that can write.
    pub writable_nodes: u32,
    /// Nodes that can stage.
    pub staging_nodes: u32,
    /// Bytes in all.
    pub total: u64,
    /// Bytes free.
    pub free: u64,
    /// Bytes free in one piece: on the file system with the most.
    pub largest_free: u64,
    /// Bytes used.
    pub used: u64,
    /// Bytes allowed; `None` without a quota.
    pub quota: Option<u64>,
}

impl SpaceFigures {
    /// The answer to `query space` for the space of this name. Source: xroot protocol, query space.
    #[must_use]
    pub fn query_text(&self, name: &str) -> String {
        let Self { total, free, largest_free, used, .. } = self;
        format!(
            "oss.cgroup={name}&oss.space={total}&oss.free={free}&oss.maxf={largest_free}&oss.used={used}&oss.quota=-1"
        )
    }
}
