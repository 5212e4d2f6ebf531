//! Converts metadata of the storage to the status that clients see.
//!
//! Access bits depend on the user of this process, because the server and not the client opens the
//! file.

use std::sync::Arc;
use storage::Metadata;
use vfs::{FileKind, FileStat};

const TYPE_BITS: u32 = 0o170_000;
const TYPE_DIRECTORY: u32 = 0o040_000;
const TYPE_FILE: u32 = 0o100_000;
/// Permission bits including set-id and sticky bits.
pub(crate) const MODE_BITS: u32 = 0o7777;
/// The sticky bit, which marks an unfinished file. Other programs may have set it too: see
/// [`crate::wholeness`].
pub(crate) const MODE_PENDING: u32 = 0o1000;
/// The mode of a file that is being created, until a journal record and its number prove that it is
/// unfinished.
pub(crate) const MODE_CREATING: u32 = 0o1600;

/// A directory of user and group names, and the identity of this process.
pub trait UserDirectory: Send + Sync {
    /// Returns the name of a user, or its number if it has no name. May wait for a directory
    /// service.
    fn user(&self, uid: u32) -> Arc<str>;
    /// Returns the name of a group, or its number if it has no name. May wait for a directory
    /// service.
    fn group(&self, gid: u32) -> Arc<str>;
    /// Returns the name of a user if it is known without waiting.
    fn user_now(&self, uid: u32) -> Option<Arc<str>> {
        Some(self.user(uid))
    }
    /// Returns the name of a group if it is known without waiting.
    fn group_now(&self, gid: u32) -> Option<Arc<str>> {
        Some(self.group(gid))
    }
    /// Returns the user of this process.
    fn own_uid(&self) -> u32;
    /// Reports whether this process is in that group.
    fn is_own_group(&self, gid: u32) -> bool;
}

/// A directory without names, for a process of root. For tests.
pub struct NumberedUsers;

impl UserDirectory for NumberedUsers {
    fn user(&self, uid: u32) -> Arc<str> {
        uid.to_string().into()
    }
    fn group(&self, gid: u32) -> Arc<str> {
        gid.to_string().into()
    }
    fn own_uid(&self) -> u32 {
        0
    }
    fn is_own_group(&self, gid: u32) -> bool {
        gid == 0
    }
}

/// Returns the kind of file.
pub(crate) fn kind(metadata: &Metadata) -> FileKind {
    match metadata.mode & TYPE_BITS {
        TYPE_FILE => FileKind::File,
        TYPE_DIRECTORY => FileKind::Directory,
        _ => FileKind::Other,
    }
}

pub(crate) fn is_directory(metadata: &Metadata) -> bool {
    kind(metadata) == FileKind::Directory
}

/// Reports whether this is a regular file with the mark of an unfinished file.
pub(crate) fn has_mark_bit(metadata: &Metadata) -> bool {
    kind(metadata) == FileKind::File && metadata.mode & MODE_PENDING != 0
}

/// Reports whether this is a file that was created to persist on close and is not marked yet.
pub(crate) fn is_being_created(metadata: &Metadata) -> bool {
    kind(metadata) == FileKind::File && metadata.mode & MODE_BITS == MODE_CREATING && metadata.size == 0
}

/// The parts of a status that are not in the metadata.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StatView {
    /// The path is in a read-only export, so it is not writable.
    pub(crate) read_only: bool,
    /// The file is unfinished.
    pub(crate) pending: bool,
}

/// Returns the status as clients see it. May wait for a directory service.
pub(crate) fn stat(metadata: &Metadata, users: &dyn UserDirectory, view: StatView) -> FileStat {
    let names = (users.user(metadata.uid), users.group(metadata.gid));
    stat_with(metadata, users, view, names)
}

/// Returns the status as clients see it, if the names of its owners are known without waiting.
pub(crate) fn stat_now(metadata: &Metadata, users: &dyn UserDirectory, view: StatView) -> Option<FileStat> {
    let names = (users.user_now(metadata.uid)?, users.group_now(metadata.gid)?);
    Some(stat_with(metadata, users, view, names))
}

/// Returns the status with these names of the owners.
pub(crate) fn stat_with(
    metadata: &Metadata,
    users: &dyn UserDirectory,
    StatView { read_only, pending }: StatView,
    (owner, group): (Arc<str>, Arc<str>),
) -> FileStat {
    let kind = kind(metadata);
    let (read, write, execute) = access(metadata, users);
    FileStat {
        id: (metadata.device & 0xffff_ffff) << 32 | (metadata.inode & 0xffff_ffff),
        size: metadata.size,
        kind,
        readable: read,
        writable: write && !read_only,
        executable: execute,
        offline: metadata.offline,
        posc_pending: pending,
        modified: metadata.modified,
        changed: metadata.changed,
        accessed: metadata.accessed,
        mode: metadata.mode & MODE_BITS & if read_only { !0o222 } else { u32::MAX },
        owner,
        group,
    }
}

/// Returns whether this process may read, write, and execute or search.
fn access(metadata: &Metadata, users: &dyn UserDirectory) -> (bool, bool, bool) {
    let mode = metadata.mode;
    let own = users.own_uid();
    if own == 0 {
        return (true, true, mode & 0o111 != 0);
    }
    let shift = match () {
        () if own == metadata.uid => 6,
        () if users.is_own_group(metadata.gid) => 3,
        () => 0,
    };
    let bits = mode >> shift;
    (bits & 4 != 0, bits & 2 != 0, bits & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITABLE: StatView = StatView { read_only: false, pending: false };

    struct Somebody;
    impl UserDirectory for Somebody {
        fn user(&self, uid: u32) -> Arc<str> {
            format!("u{uid}").into()
        }
        fn group(&self, gid: u32) -> Arc<str> {
            format!("g{gid}").into()
        }
        fn own_uid(&self) -> u32 {
            7
        }
        fn is_own_group(&self, gid: u32) -> bool {
            gid == 8
        }
    }

    fn metadata(mode: u32, uid: u32, gid: u32) -> Metadata {
        Metadata {
            device: 0x1_0000_0002,
            inode: 0x3_0000_0004,
            mode,
            size: 9,
            uid,
            gid,
            modified: 1,
            modified_nanoseconds: 0,
            changed: 2,
            accessed: 3,
            offline: false,
        }
    }

    #[test]
    fn access_is_that_of_the_first_matching_class() {
        for (mode, uid, gid, want) in [
            (0o100_640, 7, 0, (true, true, false)),
            (0o100_077, 7, 8, (false, false, false)),
            (0o100_650, 1, 8, (true, false, true)),
            (0o100_604, 1, 1, (true, false, false)),
        ] {
            let stat = stat(&metadata(mode, uid, gid), &Somebody, WRITABLE);
            assert_eq!((stat.readable, stat.writable, stat.executable), want, "{mode:o} {uid} {gid}");
        }
        let read_only = stat(&metadata(0o100_664, 7, 8), &Somebody, StatView { read_only: true, ..WRITABLE });
        assert_eq!((read_only.writable, read_only.mode), (false, 0o444));
    }

    #[test]
    fn identity_and_marks() {
        let view = StatView { pending: true, ..WRITABLE };
        let one = stat(&metadata(0o101_644, 7, 8), &Somebody, view);
        assert_eq!(
            (one.id, one.kind, one.posc_pending, one.mode),
            (0x2_0000_0004, FileKind::File, true, 0o1644)
        );
        assert_eq!((&*one.owner, &*one.group), ("u7", "g8"));
        // The sticky bit of a directory has another meaning.
        assert!(!has_mark_bit(&metadata(0o041_777, 7, 8)));
        assert!(has_mark_bit(&metadata(0o101_644, 7, 8)));
        assert_eq!(stat(&metadata(0o020_644, 7, 8), &Somebody, WRITABLE).kind, FileKind::Other);
    }
}
