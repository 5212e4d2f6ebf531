//! `ls`: lists the entries of a directory, at all servers of a cluster.

use super::{Shell, Target, flags};
use crate::printer::{Text, err, out};
use crate::stock::{Status, text};
use client::walk::{DEPTH_MAX, PATH_BYTES_MAX};
use client::xroot::codes::QueryType;
use client::zip::{Archive, ArchiveError, Member};
use client::{Checksum, Entry, Error, FileSystem, ListWith, Name, OpenWith, RemotePath, StatInfo, together};
use std::collections::BTreeMap;
use tokio::task::JoinSet;

/// Maximum number of directories listed concurrently.
const AT_ONCE: usize = 64;
/// Number of entries of a recursive listing after which no further directories are listed.
const LINES_MAX: usize = 1_000_000;

/// A line of the output.
struct Line {
    /// The server, if its name is printed.
    server: String,
    path: String,
    /// The name of an entry, if requests can carry it.
    name: Option<Name>,
    stat: Option<StatInfo>,
    /// Type and value, for the checksum column.
    checksum: Option<String>,
}

/// The options of a listing.
#[derive(Clone)]
struct How {
    with: ListWith,
    /// Set if entries of several servers are not merged.
    apart: bool,
    recursive: bool,
}

/// The entries found, and whether some are missing.
struct Found {
    lines: Vec<Line>,
    partial: bool,
}

pub(super) fn ls(shell: &mut Shell, arguments: &[&str]) -> Result<(), Status> {
    let (letters, words) = flags(arguments, "luRDZC");
    let has = |letter| letters.contains(letter);
    let path = match words.last().filter(|path| !path.is_empty()) {
        Some(path) => shell.path(path)?,
        None => shell.cwd.clone().unwrap_or_else(|| "/".to_owned()),
    };
    let Target { fs, path, shown } = shell.target_of(path)?;
    let stat = shell.wait(fs.stat(&path))?;
    let found = if stat.is_dir() {
        let with = ListWith {
            stat: has('l') || has('R') || has('C'),
            checksum: has('C').then(String::new),
            online: false,
        };
        let how = How { with, apart: has('u') || has('D'), recursive: has('R') };
        shell.wait(everything(fs, path, how))?
    } else if has('Z') {
        Found { lines: shell.runtime.wait(members(&fs, &path, &stat))?, partial: false }
    } else {
        let server = shell.fs.url().authority();
        Found {
            lines: vec![Line { server, path: shown, name: None, stat: Some(stat), checksum: None }],
            partial: false,
        }
    };
    out().put(&table(&found.lines, has('l') || has('C'), has('u')));
    if found.partial {
        err().line("[!] Some of the requests failed. The result may be incomplete.");
    }
    Ok(())
}

/// Returns the members of a ZIP archive. Their status is that of the archive, except for the size.
async fn members(fs: &FileSystem, path: &RemotePath, stat: &StatInfo) -> Result<Vec<Line>, Status> {
    let file = fs.client().open(&fs.url().at(path.clone()), &OpenWith::read()).await?;
    let archive = Archive::open(&file).await.map_err(|error| match error {
        ArchiveError::Read(error) => Status::from(error),
        ArchiveError::Zip(error) => Status::archive(&error),
    })?;
    let server = fs.url().authority();
    let line = |member: &Member| Line {
        server: server.clone(),
        path: format!("{path}/{}", member.name()),
        name: None,
        stat: Some(StatInfo { size: member.size, ..stat.clone() }),
        checksum: None,
    };
    Ok(archive.members().iter().map(line).collect())
}

/// A directory: the prefix of its paths in the output, and its path.
type Directory = (String, RemotePath);

/// Returns the entries of a directory, optionally recursive in breadth-first order.
async fn everything(fs: FileSystem, path: RemotePath, how: How) -> Result<Found, Error> {
    let mut found = Found { lines: Vec::new(), partial: false };
    let first = directory(&fs, &path, &how).await?;
    // In a recursive listing, the real program prints names below the root without the slash for a
    // single server, but not for a cluster.
    let bare = how.recursive && path == "/" && !fs.client().channel(fs.url()).await?.is_manager();
    let base = if bare { String::new() } else { slashed(&path) };
    let mut level = vec![((base, path), first)];
    for depth in 0.. {
        if level.is_empty() {
            break;
        }
        if depth > DEPTH_MAX || found.lines.len() > LINES_MAX {
            found.partial = true;
            break;
        }
        let mut folders: Vec<Directory> = Vec::new();
        for ((base, path), (lines, partial)) in level {
            found.partial |= partial;
            for mut line in lines {
                if how.recursive && line.stat.as_ref().is_some_and(StatInfo::is_dir) {
                    match &line.name {
                        Some(name) if path.len() + name.len() < PATH_BYTES_MAX => {
                            folders.push((format!("{base}{name}/"), path.join(name)));
                        }
                        _ => found.partial = true,
                    }
                }
                line.path.insert_str(0, &base);
                found.lines.push(line);
            }
        }
        level = Vec::new();
        for some in folders.chunks(AT_ONCE) {
            level.extend(below(&fs, some, &how, &mut found.partial).await);
        }
    }
    Ok(found)
}

/// Returns the listings of several directories, in their order. Those that fail are omitted and
/// reported.
async fn below(
    fs: &FileSystem,
    folders: &[Directory],
    how: &How,
    partial: &mut bool,
) -> Vec<(Directory, (Vec<Line>, bool))> {
    let mut tasks = JoinSet::new();
    for (index, place) in folders.iter().enumerate() {
        let (fs, place, how) = (fs.clone(), place.clone(), how.clone());
        tasks.spawn(async move {
            let listed = directory(&fs, &place.1, &how).await;
            (index, place, listed)
        });
    }
    let mut done = BTreeMap::new();
    while let Some(task) = tasks.join_next().await {
        match task {
            Ok((index, place, Ok(lines))) => drop(done.insert(index, (place, lines))),
            _ => *partial = true,
        }
    }
    done.into_values().collect()
}

fn slashed(path: &str) -> String {
    if path.ends_with('/') { path.to_owned() } else { format!("{path}/") }
}

/// Lists one directory. A manager has no entries itself, so all servers that have the directory are
/// asked. The second value reports whether some of them failed.
async fn directory(fs: &FileSystem, path: &RemotePath, how: &How) -> Result<(Vec<Line>, bool), Error> {
    let list = |server: FileSystem| {
        let (path, how) = (path.clone(), how.clone());
        async move { of_server(&server, &path, &how).await }
    };
    let (mut lines, mut failed) = (Vec::new(), None);
    for listed in together(fs.servers(path).await?, list).await {
        match listed {
            Ok(some) => lines.extend(some),
            Err(error) => failed = Some(error),
        }
    }
    let partial = failed.is_some();
    if let Some(error) = failed.filter(|_| lines.is_empty()) {
        return Err(error);
    }
    if !how.apart {
        lines.sort_by(|a, b| a.path.cmp(&b.path));
        lines.dedup_by(|a, b| a.path == b.path);
    }
    Ok((lines, partial))
}

/// Returns the entries at one server.
async fn of_server(fs: &FileSystem, path: &RemotePath, how: &How) -> Result<Vec<Line>, Error> {
    let entries = fs.list(path, &how.with).await?;
    // A listing has no value for a checksum that is not stored. The column names the type
    // nevertheless.
    let mut kind = String::new();
    if how.with.checksum.is_some() && entries.iter().any(|entry| entry.checksum.is_none()) {
        kind = checksum_kind(fs).await;
    }
    let server = fs.url().authority();
    let column = |checksum: Option<Checksum>| {
        let none = || format!("{kind}:none");
        how.with
            .checksum
            .as_ref()
            .map(|_| checksum.map_or_else(none, |checksum| format!("{}:{}", checksum.kind, checksum.value)))
    };
    let line = |entry: Entry| Line {
        server: server.clone(),
        path: entry.name.to_string(),
        name: entry.name.component().ok().cloned(),
        stat: entry.stat,
        checksum: column(entry.checksum),
    };
    Ok(entries.into_iter().map(line).collect())
}

/// Returns the checksum type of a listing: the requested one, or the server's first.
async fn checksum_kind(fs: &FileSystem) -> String {
    if let Some(kind) = fs.url().cgi.get("cks.type") {
        return kind.clone();
    }
    let answer = fs.query(QueryType::CONFIG, "chksum").await.unwrap_or_default();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let first = answer.split([',', '\n', '\0']).next().unwrap_or_default();
    first.split_once(':').map_or(first, |(_, name)| name).to_owned()
}

/// Formats the output with columns as wide as their widest value.
fn table(lines: &[Line], long: bool, urls: bool) -> Text {
    let mut text = out().text();
    let more = |line: &Line| line.stat.as_ref().and_then(|stat| stat.more.clone());
    let widest = |width: &dyn Fn(&Line) -> usize| lines.iter().map(width).max().unwrap_or(0);
    let owner = widest(&|line| more(line).map_or(0, |more| text.shown(&more.owner).chars().count()));
    let group = widest(&|line| more(line).map_or(0, |more| text.shown(&more.group).len()));
    let size = widest(&|line| line.stat.as_ref().map_or(0, |stat| stat.size.to_string().len()));
    for line in lines {
        if let Some(stat) = line.stat.as_ref().filter(|_| long) {
            let (mode, time) = (text::mode(stat), text::time(stat.mtime));
            match &stat.more {
                None => drop(text.add(format_args!("{mode} {time} {:>11} ", stat.size))),
                Some(more) => {
                    let names = (text.shown(&more.owner).into_owned(), text.shown(&more.group).into_owned());
                    text.add(format_args!("{mode} {:>owner$} {:>group$} ", names.0, names.1));
                    text.add(format_args!("{:>size$} ", stat.size));
                    if let Some(value) = &line.checksum {
                        text.add(format_args!("{value} "));
                    }
                    text.add(format_args!("{time} "));
                }
            }
        }
        if urls {
            text.add(format_args!("root://{}/", line.server));
        }
        text.add(&line.path).own("\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::StatMore;
    use client::xroot::flags::StatFlags;

    fn line(path: &str, size: u64, owner: Option<&str>) -> Line {
        let flags = StatFlags::READABLE | StatFlags::XSET;
        let more = owner.map(|owner| StatMore {
            ctime: 0,
            atime: 0,
            mode: 0o640,
            owner: owner.to_owned(),
            group: "bin".to_owned(),
        });
        let stat = Some(StatInfo { id: 1, size, flags, mtime: 1_700_000_000, more });
        Line { server: "h:1".into(), path: path.into(), name: None, stat, checksum: None }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_value() {
        let mut lines =
            [line("/a", 5, Some("root")), line("/b", 123_456, Some("cloudsdk")), line("/c", 4096, None)];
        let expected = "-rw-r-----     root bin      5 2023-11-14 22:13:20 /a\n\
                        -rw-r----- cloudsdk bin 123456 2023-11-14 22:13:20 /b\n\
                        -r-x 2023-11-14 22:13:20        4096 /c\n";
        assert_eq!(table(&lines, true, false).to_string(), expected);
        lines[0].checksum = Some("adler32:none".into());
        let first = table(&lines[..1], true, true);
        assert_eq!(
            first.to_string(),
            "-rw-r----- root bin 5 adler32:none 2023-11-14 22:13:20 root://h:1//a\n"
        );
        assert_eq!(table(&lines[1..], false, false).to_string(), "/b\n/c\n");
    }
}
