//! What servers answer, in types that own their text.

use wire::xroot::flags::StatFlags;
use wire::xroot::reply::locate::{self, NodeKind};
use wire::xroot::reply::query::SpaceText;
use wire::xroot::reply::{StatText, VfsText};

use crate::failure::Cause;
use crate::path::EntryName;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A text without the NUL that servers end it with, and without what may stand behind that.
pub(crate) fn line(body: &[u8]) -> String {
    text(body.split(|&byte| byte == 0).next().unwrap_or_default())
}

/// Status of a file or directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatInfo {
    /// Identity of the object on its server.
    pub id: u64,
    /// Bytes.
    pub size: u64,
    /// Kind and state.
    pub flags: StatFlags,
    /// Last modification of the content, seconds since the epoch.
    pub mtime: i64,
    /// What servers tell from release 5 on.
    pub more: Option<StatMore>,
}

/// What servers tell from release 5 on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatMore {
    /// Last change of the attributes, seconds since the epoch.
    pub ctime: i64,
    /// Last access, seconds since the epoch.
    pub atime: i64,
    /// Permission bits.
    pub mode: u32,
    /// Name of the owner, or its number.
    pub owner: String,
    /// Name of the group, or its number.
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
        Ok(Self::of(&StatText::parse(body)?))
    }

    /// Whether it is a directory.
    #[must_use]
    pub const fn is_dir(&self) -> bool {
        self.flags.contains(StatFlags::IS_DIR)
    }

    /// Whether it is a regular file.
    #[must_use]
    pub const fn is_file(&self) -> bool {
        !self.flags.intersects(StatFlags(StatFlags::IS_DIR.0 | StatFlags::OTHER.0))
    }

    /// Whether it and another one are of the same directory of one server, as far as they tell. The number alone does not
    /// suffice: it has 32 bits of the inode. What a walk changes itself (access time, mode) does not count.
    pub(crate) fn is_same_directory(&self, other: &Self) -> bool {
        let more = self.more.as_ref().zip(other.more.as_ref());
        let is_same_owner =
            more.is_none_or(|(one, other)| (&one.owner, &one.group) == (&other.owner, &other.group));
        // A server without numbers says 0.
        let is_same = self.id != 0 && (self.id, self.size, self.mtime) == (other.id, other.size, other.mtime);
        is_same && is_same_owner && self.is_dir() && other.is_dir()
    }

    /// Whether it has to be staged before it can be read.
    #[must_use]
    pub const fn is_offline(&self) -> bool {
        self.flags.contains(StatFlags::OFFLINE)
    }
}

/// Status of the file systems behind a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VfsInfo {
    /// Nodes that can write.
    pub writable_nodes: u64,
    /// Largest free area that can be written, MB.
    pub free_mb: u64,
    /// How much of the writable space is used, percent.
    pub used_percent: u64,
    /// Nodes that can stage.
    pub staging_nodes: u64,
    /// Largest free area for staging, MB.
    pub staging_free_mb: u64,
    /// How much of the staging space is used, percent.
    pub staging_used_percent: u64,
}

impl VfsInfo {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Cause> {
        let VfsText { writable_nodes, free_mb, used_percent, .. } = VfsText::parse(body)?;
        let VfsText { staging_nodes, staging_free_mb, staging_used_percent, .. } = VfsText::parse(body)?;
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
pub struct Entry {
    /// Its name, without path. Not every name can be part of a path again.
    pub name: EntryName,
    /// Its status, if asked for.
    pub stat: Option<StatInfo>,
    /// Its checksum, if asked for and at hand.
    pub checksum: Option<Checksum>,
}

/// A checksum as a server tells it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checksum {
    /// Name of the algorithm, lower case.
    pub kind: String,
    /// Value in lower-case hexadecimal.
    pub value: String,
}

impl Checksum {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Cause> {
        let checksum = wire::xroot::reply::query::Checksum::parse(body)?;
        let lower = |bytes: &[u8]| text(bytes).to_ascii_lowercase();
        Ok(Self { kind: lower(checksum.kind), value: lower(checksum.value) })
    }

    /// The one in a listing, if it is at hand.
    pub(crate) fn listed(checksum: &wire::xroot::reply::ListedChecksum<'_>) -> Option<Self> {
        Some(Self { kind: text(checksum.kind), value: text(checksum.value?) })
    }
}

/// Where a file is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Location {
    /// `host:port`; IPv4 addresses as servers print them, `[::127.0.0.1]:1094`.
    pub address: String,
    /// It is a manager: ask there again for servers.
    pub is_manager: bool,
    /// The file is being staged, it is not there yet.
    pub pending: bool,
    /// Whether the file can be written there.
    pub writable: bool,
}

/// The locations in an answer.
pub(crate) fn locations(body: &[u8]) -> Vec<Location> {
    let of = |location: locate::Location<'_>| Location {
        address: text(location.address),
        is_manager: matches!(location.node, NodeKind::Manager | NodeKind::ManagerPending),
        pending: matches!(location.node, NodeKind::ManagerPending | NodeKind::ServerPending),
        writable: location.writable,
    };
    locate::parse(body).map(of).collect()
}

/// Space behind a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpaceInfo {
    /// Name of the space.
    pub name: String,
    /// Bytes there are.
    pub total: u64,
    /// Bytes that are free.
    pub free: u64,
    /// Bytes of the largest free area.
    pub largest_free: u64,
    /// Bytes that are used.
    pub used: u64,
    /// Bytes that may be used; `None` without quota.
    pub quota: Option<u64>,
}

impl SpaceInfo {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Cause> {
        let space = SpaceText::parse(body)?;
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
    /// Its name, without the prefix under which servers keep it.
    pub name: String,
    /// Its value.
    pub value: Vec<u8>,
}
