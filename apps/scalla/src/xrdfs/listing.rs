//! `ls`: lists the entries of a directory, at all servers of a cluster.

use super::session::{ResolvedPath, XrdfsSession, split_flags};
use crate::printer::{OutputText, err, out};
use crate::xrootd_compat::{XrdClStatus, format};
use client::walk::{ListedEntry, Tree, Walk};
use client::xroot::codes::QueryType;
use client::zip::{Archive, ArchiveError, Member};
use client::{
    ClusterServers, Error, FileChecksum, FileSystem, ListWith, OpenWith, RemoteEntry, RemotePath, StatInfo,
    join_bounded,
};

/// Maximum number of lines with columns of one width.
const HELD_MAX: usize = 100_000;
/// Number of lines without columns that are written at once.
const PUT_AT_ONCE: usize = 1000;

/// A line of the output.
struct ListingRow {
    /// The server, if its name is printed.
    server: String,
    path: String,
    stat: Option<StatInfo>,
    /// Type and value, for the checksum column.
    checksum: Option<String>,
}

/// The options of a listing.
#[derive(Clone)]
struct ListingOptions {
    with: ListWith,
    /// Set if entries of several servers are not merged.
    apart: bool,
}

impl ListingOptions {
    /// Reports whether the listing has no checksum for an entry, although one is requested.
    fn lacks_checksum(&self, entry: &RemoteEntry) -> bool {
        self.with.checksum.is_some() && entry.checksum.is_none()
    }

    /// Returns the line of an entry, without its directory. `kind` is the type of missing
    /// checksums.
    fn line(&self, fs: &FileSystem, entry: RemoteEntry, kind: &str) -> ListingRow {
        let none = || format!("{kind}:none");
        let value = |checksum: FileChecksum| format!("{}:{}", checksum.kind, checksum.value);
        let checksum = self.with.checksum.as_ref().map(|_| entry.checksum.map_or_else(none, value));
        ListingRow { server: fs.url().authority(), path: entry.name.to_string(), stat: entry.stat, checksum }
    }
}

/// The output. Columns are as wide as their widest value, so lines with columns are held until the
/// end, or until there are [`HELD_MAX`] of them.
struct ListingTable {
    long: bool,
    urls: bool,
    held: Vec<ListingRow>,
}

impl ListingTable {
    fn add(&mut self, line: ListingRow) {
        self.held.push(line);
        if self.held.len() >= if self.long { HELD_MAX } else { PUT_AT_ONCE } {
            self.flush();
        }
    }

    fn flush(&mut self) {
        out().put(&table(&self.held, self.long, self.urls));
        self.held.clear();
    }
}

pub(super) fn ls(shell: &mut XrdfsSession, arguments: &[&str]) -> Result<(), XrdClStatus> {
    let (letters, words) = split_flags(arguments, "luRDZC");
    let has = |letter| letters.contains(letter);
    let path = match words.last().filter(|path| !path.is_empty()) {
        Some(path) => shell.path(path)?,
        None => shell.cwd.clone().unwrap_or_else(|| "/".to_owned()),
    };
    let ResolvedPath { fs, path, shown } = shell.target_of(path)?;
    let stat = shell.wait(fs.stat(&path))?;
    let mut table = ListingTable { long: has('l') || has('C'), urls: has('u'), held: Vec::new() };
    let mut partial = false;
    if stat.is_dir() {
        let with = ListWith {
            stat: has('l') || has('R') || has('C'),
            checksum: has('C').then(String::new),
            online: false,
        };
        let how = ListingOptions { with, apart: has('u') || has('D') };
        partial = if has('R') {
            shell.wait(recursive(&fs, &path, &how, &mut table))?
        } else {
            shell.wait(single(&fs, &path, &how, &mut table))?
        };
    } else if has('Z') {
        shell.runtime.wait(members(&fs, &path, &stat))?.into_iter().for_each(|line| table.add(line));
    } else {
        let server = shell.fs.url().authority();
        table.add(ListingRow { server, path: shown, stat: Some(stat), checksum: None });
    }
    table.flush();
    if partial {
        err().line("[!] Some of the requests failed. The result may be incomplete.");
    }
    Ok(())
}

/// Returns the members of a ZIP archive. Their status is that of the archive, except for the size.
async fn members(
    fs: &FileSystem,
    path: &RemotePath,
    stat: &StatInfo,
) -> Result<Vec<ListingRow>, XrdClStatus> {
    let file = fs.client().open(&fs.url().at(path.clone()), &OpenWith::read()).await?;
    let archive = Archive::open(&file).await.map_err(|error| match error {
        ArchiveError::Read(error) => XrdClStatus::from(error),
        ArchiveError::Zip(error) => XrdClStatus::archive(&error),
    })?;
    let server = fs.url().authority();
    let line = |member: &Member| ListingRow {
        server: server.clone(),
        path: format!("{path}/{}", member.name()),
        stat: Some(StatInfo { size: member.size, ..stat.clone() }),
        checksum: None,
    };
    Ok(archive.members().iter().map(line).collect())
}

/// Prints the entries of a directory. Reports whether some are missing.
async fn single(
    fs: &FileSystem,
    path: &RemotePath,
    how: &ListingOptions,
    table: &mut ListingTable,
) -> Result<bool, Error> {
    let (lines, partial) = directory(fs, path, how).await?;
    let base = slashed(path);
    for mut line in lines {
        line.path.insert_str(0, &base);
        table.add(line);
    }
    Ok(partial)
}

/// Prints the entries of a directory and of all directories below it, in breadth-first order.
/// Reports whether some are missing.
async fn recursive(
    fs: &FileSystem,
    path: &RemotePath,
    how: &ListingOptions,
    table: &mut ListingTable,
) -> Result<bool, Error> {
    let mut tree = Tree::at_server(fs, &fs.url().at(path.clone())).await?.to_display();
    if how.with.checksum.is_some() {
        tree = tree.with_checksums();
    }
    // The real program prints names below the root without the slash for a single server, but not
    // for a cluster.
    let bare = path == "/" && !fs.client().channel(fs.url()).await?.is_manager();
    let base = if bare { String::new() } else { slashed(path) };
    let mut kinds = vec![None; tree.servers().len()];
    let (mut walk, mut partial) = (Walk::through(tree).nearest_first(), false);
    while let Some(mut directory) = walk.next().await {
        let base =
            if directory.path.is_empty() { base.clone() } else { format!("{base}{}/", directory.path) };
        let items = directory.items.clone();
        if directory.depth == 0
            && items.is_empty()
            && let Some(unknown) = directory.unknown.pop()
        {
            return Err(unknown.error);
        }
        let mut below = Vec::new();
        for ListedEntry { entry, server, number } in items.listed(how.apart) {
            if entry.stat.as_ref().is_some_and(StatInfo::is_dir) {
                // A directory that no request can name is not entered.
                partial |= entry.name.component().is_err();
                below.extend(number);
            }
            let Some(fs) = walk.tree().servers().get(server) else { continue };
            let kind = match kinds.get_mut(server).filter(|_| how.lacks_checksum(&entry)) {
                Some(kind @ None) => kind.insert(checksum_kind(fs).await).as_str(),
                Some(Some(kind)) => kind,
                None => "",
            };
            let mut line = how.line(fs, entry, kind);
            line.path.insert_str(0, &base);
            table.add(line);
        }
        walk.enter(&mut directory, &below);
        partial |= !directory.unknown.is_empty();
    }
    Ok(partial)
}

fn slashed(path: &str) -> String {
    if path.ends_with('/') { path.to_owned() } else { format!("{path}/") }
}

/// Lists one directory. A manager has no entries itself, so all servers that have the directory are
/// asked. The second value reports whether some of them failed.
async fn directory(
    fs: &FileSystem,
    path: &RemotePath,
    how: &ListingOptions,
) -> Result<(Vec<ListingRow>, bool), Error> {
    let list = |server: FileSystem| {
        let (path, how) = (path.clone(), how.clone());
        async move { of_server(&server, &path, &how).await }
    };
    let ClusterServers { servers, failed: mut unknown } = fs.cluster_servers(path).await?;
    let (mut lines, mut failed) = (Vec::new(), unknown.pop());
    for listed in join_bounded(servers, list).await {
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
async fn of_server(
    fs: &FileSystem,
    path: &RemotePath,
    how: &ListingOptions,
) -> Result<Vec<ListingRow>, Error> {
    let entries = fs.list(path, &how.with).await?;
    // A listing has no value for a checksum that is not stored. The column names the type
    // nevertheless.
    let mut kind = String::new();
    if how.with.checksum.is_some() && entries.iter().any(|entry| entry.checksum.is_none()) {
        kind = checksum_kind(fs).await;
    }
    Ok(entries.into_iter().map(|entry| how.line(fs, entry, &kind)).collect())
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
fn table(lines: &[ListingRow], long: bool, urls: bool) -> OutputText {
    let mut text = out().text();
    let more = |line: &ListingRow| line.stat.as_ref().and_then(|stat| stat.more.clone());
    let widest = |width: &dyn Fn(&ListingRow) -> usize| lines.iter().map(width).max().unwrap_or(0);
    let owner = widest(&|line| more(line).map_or(0, |more| text.shown(&more.owner).chars().count()));
    let group = widest(&|line| more(line).map_or(0, |more| text.shown(&more.group).len()));
    let size = widest(&|line| line.stat.as_ref().map_or(0, |stat| stat.size.to_string().len()));
    for line in lines {
        if let Some(stat) = line.stat.as_ref().filter(|_| long) {
            let (mode, time) = (format::mode(stat), format::time(stat.mtime));
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
        text.add(&line.path).literal("\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::StatMore;
    use client::xroot::flags::StatFlags;

    fn line(path: &str, size: u64, owner: Option<&str>) -> ListingRow {
        let flags = StatFlags::READABLE | StatFlags::XSET;
        let more = owner.map(|owner| StatMore {
            ctime: 0,
            atime: 0,
            mode: 0o640,
            owner: owner.to_owned(),
            group: "bin".to_owned(),
        });
        let stat = Some(StatInfo { id: 1, size, flags, mtime: 1_700_000_000, more });
        ListingRow { server: "h:1".into(), path: path.into(), stat, checksum: None }
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
