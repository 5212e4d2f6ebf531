//! Metadata in the terms that clients see.

use std::sync::Arc;
use storage::Metadata;
use vfs::{FileKind, Stat};

const TYPE_BITS: u32 = 0o170_000;
const TYPE_DIRECTORY: u32 = 0o040_000;
const TYPE_FILE: u32 = 0o100_000;
/// Permission bits with set-id and sticky.
pub(crate) const MODE_BITS: u32 = 0o7777;
/// The bit of a regular file that is not yet whole. Others may have set it too: see [`crate::wholeness`].
pub(crate) const MODE_PENDING: u32 = 0o1000;
/// The mode of a file that is being created, until a journal record and its number prove that it is unfinished.
pub(crate) const MODE_CREATING: u32 = 0o1600;

/// Names of users and groups, and who this process is.
pub trait Users: Send + Sync {
    /// The name of a user, its number where it has none. May wait for a directory service.
    fn user(&self, uid: u32) -> Arc<str>;
    /// The name of a group, its number where it has none. May wait for a directory service.
    fn group(&self, gid: u32) -> Arc<str>;
    /// The name of a user if it can be told without waiting.
    fn user_now(&self, uid: u32) -> Option<Arc<str>> {
        Some(self.user(uid))
    }
    /// The name of a group if it can be told without waiting.
    fn group_now(&self, gid: u32) -> Option<Arc<str>> {
        Some(self.group(gid))
    }
    /// The user this process runs as.
    fn own_uid(&self) -> u32;
    /// Is this process in that group?
    fn is_own_group(&self, gid: u32) -> bool;
}

/// Users known by their numbers only, for one who is root. For tests.
pub struct NumberedUsers;

impl Users for NumberedUsers {
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

/// What kind of thing it is.
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

/// Reports whether it is a file with the bit of those that persist only on a close that has not come yet.
pub(crate) fn has_mark_bit(metadata: &Metadata) -> bool {
    kind(metadata) == FileKind::File && metadata.mode & MODE_PENDING != 0
}

/// Reports whether it is a file that was created to persist on close, and whose creator has not marked it yet.
pub(crate) fn is_being_created(metadata: &Metadata) -> bool {
    kind(metadata) == FileKind::File && metadata.mode & MODE_BITS == MODE_CREATING && metadata.size == 0
}

/// The parts of a status that do not come from the metadata.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct View {
    /// Nothing below a read-only export is writable.
    pub(crate) read_only: bool,
    /// It is a file that is not yet whole.
    pub(crate) pending: bool,
}

/// The status as clients see it.
pub(crate) fn stat(metadata: &Metadata, users: &dyn Users, view: View) -> Stat {
    let names = (users.user(metadata.uid), users.group(metadata.gid));
    stat_with(metadata, users, view, names)
}

/// The same if the names of its owners are known.
pub(crate) fn stat_now(metadata: &Metadata, users: &dyn Users, view: View) -> Option<Stat> {
    let names = (users.user_now(metadata.uid)?, users.group_now(metadata.gid)?);
    Some(stat_with(metadata, users, view, names))
}

/// The same with the names of its owners.
pub(crate) fn stat_with(
    metadata: &Metadata,
    users: &dyn Users,
    View { read_only, pending }: View,
    (owner, group): (Arc<str>, Arc<str>),
) -> Stat {
    let kind = kind(metadata);
    let (read, write, execute) = access(metadata, users);
    Stat {
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

/// What this process may do: read, write, execute or search.
fn access(metadata: &Metadata, users: &dyn Users) -> (bool, bool, bool) {
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

    const WRITABLE: View = View { read_only: false, pending: false };

    struct Somebody;
    impl Users for Somebody {
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
    fn access_is_that_of_the_first_class_that_fits() {
        for (mode, uid, gid, want) in [
            (0o100_640, 7, 0, (true, true, false)),
            (0o100_077, 7, 8, (false, false, false)),
            (0o100_650, 1, 8, (true, false, true)),
            (0o100_604, 1, 1, (true, false, false)),
        ] {
            let stat = stat(&metadata(mode, uid, gid), &Somebody, WRITABLE);
            assert_eq!((stat.readable, stat.writable, stat.executable), want, "{mode:o} {uid} {gid}");
        }
        let read_only = stat(&metadata(0o100_664, 7, 8), &Somebody, View { read_only: true, ..WRITABLE });
        assert_eq!((read_only.writable, read_only.mode), (false, 0o444));
    }

    #[test]
    fn identity_and_marks() {
        let view = View { pending: true, ..WRITABLE };
        let one = stat(&metadata(0o101_644, 7, 8), &Somebody, view);
        assert_eq!(
            (one.id, one.kind, one.posc_pending, one.mode),
            (0x2_0000_0004, FileKind::File, true, 0o1644)
        );
        assert_eq!((&*one.owner, &*one.group), ("u7", "g8"));
        // The sticky bit of a directory means something else.
        assert!(!has_mark_bit(&metadata(0o041_777, 7, 8)));
        assert!(has_mark_bit(&metadata(0o101_644, 7, 8)));
        assert_eq!(stat(&metadata(0o020_644, 7, 8), &Somebody, WRITABLE).kind, FileKind::Other);
    }
}
