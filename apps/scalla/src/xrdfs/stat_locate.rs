//! `stat`, `statvfs`, `spaceinfo` and `locate`.

use super::session::{ResolvedPath, XrdfsSession, split_flags};
use crate::printer::out;
use crate::xrootd_compat::{INVALID_ARGUMENTS, XrdClStatus, code, format};
use client::xroot::flags::{LocateOptions, StatFlags};
use client::{ReplicaLocation, StatInfo};
use std::fmt::Write;

pub(super) fn stat(shell: &mut XrdfsSession, arguments: &[&str]) -> Result<(), XrdClStatus> {
    let mut query = "";
    let mut paths = Vec::new();
    let mut words = arguments.iter();
    while let Some(&word) = words.next() {
        if word == "-q" {
            query = words.next().ok_or(INVALID_ARGUMENTS)?;
        } else {
            paths.push(shell.target(word)?);
        }
    }
    if paths.is_empty() {
        return Err(INVALID_ARGUMENTS);
    }
    let several = paths.len() > 1;
    let mut result = Ok(());
    for ResolvedPath { fs, path, shown } in &paths {
        let asked = shell.wait(fs.stat(path)).and_then(|stat| {
            if several {
                out().literal("\n");
            }
            out().lines(status(&out().shown(shown), &stat));
            if query.is_empty() {
                return Ok(());
            }
            out().line(format_args!("Query:  {query} "));
            if holds(query, stat.flags)? { Ok(()) } else { Err(XrdClStatus::error(code::RESPONSE_NEGATIVE)) }
        });
        result = result.and(asked);
    }
    result
}

fn status(path: &str, stat: &StatInfo) -> String {
    let mut lines = format!("Path:   {path}\nId:     {}\nSize:   {}\n", stat.id, stat.size);
    // Writing to a string does not fail.
    let _ = writeln!(lines, "MTime:  {}", format::time(stat.mtime));
    if let Some(more) = &stat.more {
        let _ = writeln!(lines, "CTime:  {}\nATime:  {}", format::time(more.ctime), format::time(more.atime));
    }
    let set = format::FLAGS.iter().filter(|(_, flag)| stat.flags.contains(*flag));
    let names: Vec<&str> = set.map(|(name, _)| *name).collect();
    let _ = writeln!(lines, "Flags:  {} ({})", stat.flags.0, names.join("|"));
    if let Some(more) = &stat.more {
        let _ = writeln!(
            lines,
            "Mode:   {:04o}\nOwner:  {}\nGroup:  {}",
            more.mode,
            out().shown(&more.owner),
            out().shown(&more.group)
        );
    }
    lines
}

/// Reports whether flags are set: any of those joined by `|`, or all of those joined by `&`.
fn holds(query: &str, flags: StatFlags) -> Result<bool, XrdClStatus> {
    let is_set = |name: &str| {
        let found = format::FLAGS.iter().find(|(known, _)| *known == name);
        found.map(|(_, flag)| flags.contains(*flag)).ok_or(INVALID_ARGUMENTS)
    };
    let any = query.contains('|');
    let set: Result<Vec<bool>, XrdClStatus> = query.split(if any { '|' } else { '&' }).map(is_set).collect();
    set.map(|set| if any { set.contains(&true) } else { !set.contains(&false) })
}

pub(super) fn statvfs(shell: &mut XrdfsSession, arguments: &[&str]) -> Result<(), XrdClStatus> {
    let &[path] = arguments else { return Err(INVALID_ARGUMENTS) };
    let ResolvedPath { fs, path, shown } = shell.target(path)?;
    let info = shell.wait(fs.stat_vfs(&path))?;
    let shown = out().shown(&shown);
    out().lines(format_args!(
        "Path:                               {shown}
Nodes with RW space:                {}
Size of largest RW space (MB):      {}
Utilization of RW space (%):        {}
Nodes with staging space:           {}
Size of largest staging space (MB): {}
Utilization of staging space (%):   {}
",
        info.writable_nodes,
        info.free_mb,
        info.used_percent,
        info.staging_nodes,
        info.staging_free_mb,
        info.staging_used_percent,
    ));
    Ok(())
}

pub(super) fn spaceinfo(shell: &mut XrdfsSession, arguments: &[&str]) -> Result<(), XrdClStatus> {
    let &[path] = arguments else { return Err(INVALID_ARGUMENTS) };
    let ResolvedPath { fs, path, shown } = shell.target_of(path.to_owned())?;
    let sum = async {
        let options = LocateOptions::PREFNAME | LocateOptions::COMPRESS;
        let (mut total, mut free, mut used, mut largest) = (0, 0, 0, 0);
        for location in fs.locate_deep(&path, options).await? {
            let space = fs.beside(&location).space(&path).await?;
            total += space.total;
            free += space.free;
            used += space.used;
            largest = space.largest_free.max(largest);
        }
        Ok((total, free, used, largest))
    };
    let (total, free, used, largest) = shell.wait(sum)?;
    let shown = out().shown(&shown);
    out().lines(format_args!(
        "Path:               {shown}
Total:              {total}
Free:               {free}
Used:               {used}
Largest free chunk: {largest}
"
    ));
    Ok(())
}

pub(super) fn locate(shell: &mut XrdfsSession, arguments: &[&str]) -> Result<(), XrdClStatus> {
    let (letters, words) = split_flags(arguments, "nrdmhip");
    let &[path] = words.as_slice() else { return Err(INVALID_ARGUMENTS) };
    if path.starts_with('-') {
        return Err(INVALID_ARGUMENTS);
    }
    let path = if path.starts_with('*') { path.to_owned() } else { shell.path(path)? };
    let ResolvedPath { fs, path, .. } = shell.target_of(path)?;
    let mut options = LocateOptions::NONE;
    for letter in letters.chars() {
        options |= match letter {
            'n' => LocateOptions::NOWAIT,
            'r' => LocateOptions::REFRESH,
            'm' | 'h' => LocateOptions::PREFNAME,
            'i' => LocateOptions::FORCE,
            _ => LocateOptions::NONE,
        };
    }
    let locations = if letters.contains('d') {
        shell.wait(fs.locate_deep(&path, options))?
    } else {
        shell.wait(fs.locate(&path, options))?
    };
    locations.iter().for_each(|found| out().line(location(found)));
    Ok(())
}

fn location(location: &ReplicaLocation) -> String {
    let node = if location.is_manager { "Manager" } else { "Server" };
    let pending = if location.pending { "Pending" } else { "" };
    let access = if location.writable { "ReadWrite" } else { "Read" };
    format!("{} {node}{pending} {access} ", location.address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_joined_by_one_of_two_signs() {
        let flags = StatFlags::IS_DIR | StatFlags::READABLE;
        let table = [
            ("IsDir", Ok(true)),
            ("IsDir|Offline", Ok(true)),
            ("IsDir&Offline", Ok(false)),
            ("IsDir&IsReadable", Ok(true)),
            ("Offline|Other", Ok(false)),
            ("IsDir|Nonsense", Err(INVALID_ARGUMENTS)),
            ("IsDir&Offline|IsReadable", Err(INVALID_ARGUMENTS)),
        ];
        for (query, expected) in table {
            assert_eq!(holds(query, flags), expected, "{query}");
        }
    }

    #[test]
    fn what_a_server_does_not_tell_has_no_line() {
        let stat = StatInfo { id: 7, size: 1, flags: StatFlags::READABLE, mtime: 0, more: None };
        let expected =
            "Path:   /a\nId:     7\nSize:   1\nMTime:  1970-01-01 00:00:00\nFlags:  16 (IsReadable)\n";
        assert_eq!(status("/a", &stat), expected);
    }
}
