//! Decoded replies of servers, in types that own their text.
//!
//! They own it because the caller keeps them after the buffer of the reply is reused.

use wire::Decode;
use wire::xroot::flags::StatFlags;
use wire::xroot::reply::locate::{self, NodeKind};
use wire::xroot::reply::query::SpaceUsageText;
use wire::xroot::reply::{StatText, VfsText};

use crate::failure::Cause;
use crate::path::EntryName;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns a text up to its terminating NUL.
pub(crate) fn line(body: &[u8]) -> String {
    text(body.split(|&byte| byte == 0).next().unwrap_or_default())
}

/// The status of a file or directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatInfo {
    /// Identity of the object on its server.
    pub id: u64,
    /// Size in bytes.
    pub size: u64,
    /// Kind and state.
    pub flags: StatFlags,
    /// Time of the last change of the content, in seconds since the epoch.
    pub mtime: i64,
    /// Fields that servers send from release 5 on.
    pub more: Option<StatMore>,
}

/// Fields of a status that servers send from release 5 on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatMore {
    /// Time of the last change of the attributes, in seconds since the epoch.
    pub ctime: i64,
    /// Time of the last access, in seconds since the epoch.
    pub atime: i64,
    /// Permission bits.
    pub mode: u32,
    /// Name or number of the owner.
    pub owner: String,
    /// Name or number of the group.
    pub group: String,
}

impl StatInfo {
    pub(crate) fn of(stat: &StatText<'_>) -> Self {
        let more = stat.extended.map(|more| StatMore {
            ctime: more.ctime,
            atime: more.atime,
            mode: more.mode,
            owner: text(more.owner),
            group: text(more.group),
        });
        Self { id: stat.id, size: stat.size, flags: stat.flags, mtime: stat.mtime, more }
    }

    pub(crate) fn parse(body: &[u8]) -> Result<Self, Cause> {
        Ok(Self::of(&StatText::decode(body)?))
    }

    /// Reports whether it is a directory.
    #[must_use]
    pub const fn is_dir(&self) -> bool {
        self.flags.contains(StatFlags::IS_DIR)
    }

    /// Reports whether it is a regular file.
    #[must_use]
    pub const fn is_file(&self) -> bool {
        !self.flags.intersects(StatFlags(StatFlags::IS_DIR.0 | StatFlags::OTHER.0))
    }

    /// Reports whether both are the status of one directory of one server, as far as the fields
    /// show. The number alone does not suffice because it holds only 32 bits of the inode. Fields
    /// that a walk changes itself (access time, mode) are ignored.
    pub(crate) fn is_same_directory(&self, other: &Self) -> bool {
        let more = self.more.as_ref().zip(other.more.as_ref());
        let is_same_owner =
            more.is_none_or(|(one, other)| (&one.owner, &one.group) == (&other.owner, &other.group));
        // A server without such numbers sends 0.
        let is_same = self.id != 0 && (self.id, self.size, self.mtime) == (other.id, other.size, other.mtime);
        is_same && is_same_owner && self.is_dir() && other.is_dir()
    }

    /// Reports whether the file has to be staged before it can be read.
    #[must_use]
    pub const fn is_offline(&self) -> bool {
        self.flags.contains(StatFlags::OFFLINE)
    }
}

/// The status of the file systems behind a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VfsInfo {
    /// Number of writable nodes.
    pub writable_nodes: u64,
    /// Size of the largest free writable area in MB.
    pub free_mb: u64,
    /// Used part of the writable space in percent.
    pub used_percent: u64,
    /// Number of nodes that can stage files.
    pub staging_nodes: u64,
    /// Size of the largest free staging area in MB.
    pub staging_free_mb: u64,
    /// Used part of the staging space in percent.
    pub staging_used_percent: u64,
}

impl VfsInfo {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Cause> {
        let VfsText { writable_nodes, free_mb, used_percent, .. } = VfsText::decode(body)?;
        let VfsText { staging_nodes, staging_free_mb, staging_used_percent, .. } = VfsText::decode(body)?;
        Ok(Self {
            writable_nodes,
            free_mb,
            used_percent,
            staging_nodes,
            staging_free_mb,
            staging_used_percent,
        })
    }
}

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteEntry {
    /// Name without path. Some names cannot be part of a path in a request.
    pub name: EntryName,
    /// Status, if requested.
    pub stat: Option<StatInfo>,
    /// Checksum, if requested and stored at the server.
    pub checksum: Option<FileChecksum>,
}

/// A checksum as the server sent it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileChecksum {
    /// Name of the algorithm in lower case.
    pub kind: String,
    /// Value in lower-case hexadecimal.
    pub value: String,
}

impl FileChecksum {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Cause> {
        let checksum = wire::xroot::reply::query::ChecksumText::decode(body)?;
        let lower = |bytes: &[u8]| text(bytes).to_ascii_lowercase();
        Ok(Self { kind: lower(checksum.kind), value: lower(checksum.value) })
    }

    /// Converts a checksum of a listing; `None` if the server has not stored one.
    pub(crate) fn listed(checksum: &wire::xroot::reply::ListedChecksum<'_>) -> Option<Self> {
        Some(Self { kind: text(checksum.kind), value: text(checksum.value?) })
    }
}

/// A location of a file.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ReplicaLocation {
    /// `host:port`; IPv4 addresses in the form in which servers send them, `[::127.0.0.1]:1094`.
    pub address: String,
    /// Set if the node is a manager, which has to be asked for its servers.
    pub is_manager: bool,
    /// Set if the file is being staged and is not available yet.
    pub pending: bool,
    /// Set if the file can be written there.
    pub writable: bool,
}

/// Decodes the locations in a reply.
pub(crate) fn locations(body: &[u8]) -> Vec<ReplicaLocation> {
    let of = |location: locate::Location<'_>| ReplicaLocation {
        address: text(location.address),
        is_manager: matches!(location.node, NodeKind::Manager | NodeKind::ManagerPending),
        pending: matches!(location.node, NodeKind::ManagerPending | NodeKind::ServerPending),
        writable: location.writable,
    };
    locate::parse(body).map(of).collect()
}

/// The space behind a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpaceInfo {
    /// Name of the space.
    pub name: String,
    /// Total size in bytes.
    pub total: u64,
    /// Free bytes.
    pub free: u64,
    /// Size of the largest free area in bytes.
    pub largest_free: u64,
    /// Used bytes.
    pub used: u64,
    /// Quota in bytes; `None` without quota.
    pub quota: Option<u64>,
}

impl SpaceInfo {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Cause> {
        let space = SpaceUsageText::decode(body)?;
        Ok(Self {
            name: text(space.cgroup),
            total: space.space,
            free: space.free,
            largest_free: space.largest_free,
            used: space.used,
            quota: space.quota,
        })
    }
}

/// An extended attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attribute {
    /// Name without the prefix under which servers store it.
    pub name: String,
    /// Value.
    pub value: Vec<u8>,
}
