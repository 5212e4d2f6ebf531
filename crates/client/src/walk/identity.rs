//! The identity of directories, by which a walk detects that it leads back to itself.

use std::sync::Arc;

use crate::answers::StatInfo;

/// The identity of a directory at one server or on this machine: the index of the server, and a
/// mark.
pub(super) type Identity = (usize, DirectoryMark);

/// A mark that distinguishes the directories of one machine.
#[derive(Clone, Debug)]
pub(super) enum DirectoryMark {
    /// The directory has no known identity.
    Unknown,
    /// Device and inode.
    Local(u64, u64),
    /// The status. Its number contains only 32 bits of the inode and is therefore not sufficient.
    Remote(Arc<StatInfo>),
}

impl DirectoryMark {
    pub(super) fn of(stat: Option<&StatInfo>) -> Self {
        stat.map_or(Self::Unknown, |stat| Self::Remote(Arc::new(stat.clone())))
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Local(device, inode), Self::Local(other_device, other_inode)) => {
                (device, inode) == (other_device, other_inode)
            }
            (Self::Remote(one), Self::Remote(other)) => one.is_same_directory(other),
            _ => false,
        }
    }
}
