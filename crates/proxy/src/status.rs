//! The status of files and directories of an origin, as clients of the proxy see it.

use client::xroot::flags::StatFlags;
use client::{SpaceInfo, StatInfo};
use vfs::{BriefStat, FileKind, FileStat, SpaceFigures};

/// Owner and group of files of an origin that does not report them.
const UNKNOWN: &str = "unknown";

/// Returns the status of a file. `read_only` is set if the export refuses changes.
pub(crate) fn file_stat(stat: &StatInfo, read_only: bool) -> FileStat {
    let has = |flag| stat.flags.contains(flag);
    let (readable, writable) = (has(StatFlags::READABLE), has(StatFlags::WRITABLE) && !read_only);
    let executable = has(StatFlags::XSET);
    let more = stat.more.as_ref();
    let flags_mode = if readable { 0o444 } else { 0 } | if writable { 0o200 } else { 0 };
    let mode = more.map_or(flags_mode | if executable { 0o111 } else { 0 }, |more| more.mode & 0o7777);
    FileStat {
        id: stat.id,
        size: stat.size,
        kind: kind(stat),
        readable,
        writable,
        executable,
        offline: stat.is_offline(),
        posc_pending: has(StatFlags::POSCPEND),
        modified: stat.mtime,
        changed: more.map_or(stat.mtime, |more| more.ctime),
        accessed: more.map_or(stat.mtime, |more| more.atime),
        mode: if read_only { mode & !0o222 } else { mode },
        owner: more.map_or(UNKNOWN, |more| more.owner.as_str()).into(),
        group: more.map_or(UNKNOWN, |more| more.group.as_str()).into(),
    }
}

/// Returns the kind of a path for a list of paths.
pub(crate) fn brief_stat(stat: &StatInfo) -> BriefStat {
    BriefStat::new(kind(stat), stat.is_offline())
}

fn kind(stat: &StatInfo) -> FileKind {
    match () {
        () if stat.is_dir() => FileKind::Directory,
        () if stat.is_file() => FileKind::File,
        () => FileKind::Other,
    }
}

/// Returns the figures of a space, of one node.
pub(crate) fn space_figures(space: &SpaceInfo) -> SpaceFigures {
    let SpaceInfo { total, free, largest_free, used, quota, .. } = *space;
    SpaceFigures { writable_nodes: 1, staging_nodes: 0, total, free, largest_free, used, quota }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::StatMore;

    #[test]
    fn a_read_only_export_takes_permissions_away() {
        let more = StatMore { ctime: 3, atime: 4, mode: 0o100_664, owner: "u".into(), group: "g".into() };
        let flags = StatFlags::READABLE.with(StatFlags::WRITABLE);
        let stat = StatInfo { id: 9, size: 5, flags, mtime: 2, more: Some(more) };
        let seen = file_stat(&stat, false);
        assert_eq!((seen.writable, seen.mode, seen.kind), (true, 0o664, FileKind::File));
        assert_eq!((seen.modified, seen.changed, seen.accessed, &*seen.owner), (2, 3, 4, "u"));
        let seen = file_stat(&stat, true);
        assert_eq!((seen.writable, seen.mode), (false, 0o444));
    }

    #[test]
    fn an_old_origin_shows_permissions_by_flags() {
        let flags = StatFlags::READABLE.with(StatFlags::XSET).with(StatFlags::IS_DIR);
        let stat = StatInfo { id: 9, size: 5, flags, mtime: 2, more: None };
        let seen = file_stat(&stat, false);
        assert_eq!((seen.kind, seen.mode, seen.changed), (FileKind::Directory, 0o555, 2));
    }
}
