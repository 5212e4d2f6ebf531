//! The keys of a bucket in their order, in bounded memory.
//!
//! A directory has its entries in any order, and a listing in keys begins behind any of them. So each directory on the
//! path to the present key is read as a whole, but only the first entries behind the last key are kept, and those
//! after them are read again when they are needed. A directory sorts by its name with a slash, as its keys do.
//!
//! An empty directory is an object whose key ends with a slash.

use super::error::S3Error;
use super::{UserRequest, address, target, uploads};
use crate::conditions;
use base::{ErrorKind, LogicalPath};
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;
use vfs::{FileKind, FileStat, ListDetail, Operation, Value};

/// Number of entries of the first directory that are kept; of a deeper one, a part.
const KEPT_MAX: usize = 1001;
/// Minimum number of entries of a directory that are kept.
const KEPT_MIN: usize = 32;
/// Maximum number of entries that one request reads. The rest of a page is left to the next request.
pub(super) const ENTRIES_READ_MAX: u64 = 1_000_000;
/// Maximum number of directories that it reads.
pub(super) const DIRECTORIES_READ_MAX: u64 = 5_000;
/// Time after which it begins no further directory. Clients give up after a minute.
const TIME_MAX: Duration = Duration::from_secs(20);
/// Maximum number of uploads in parts that it notes.
const UPLOADS_MAX: usize = 1000;
/// A byte that is in no key: behind it are no keys of a directory.
pub(super) const BEHIND: u8 = 0xff;

/// What a page of a listing has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ListedItem {
    /// An object.
    Object(String, ObjectStat),
    /// A directory, below which nothing is listed.
    Prefix(String),
}

/// What listings show of an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ObjectStat {
    pub(super) id: u64,
    pub(super) size: u64,
    pub(super) modified: i64,
    nanoseconds: Option<u32>,
    /// A later change has another tag.
    is_settled: bool,
}

impl ObjectStat {
    pub(super) fn of(stat: &FileStat) -> Self {
        let size = if stat.kind == FileKind::Directory { 0 } else { stat.size };
        let (nanoseconds, is_settled) = (stat.modified_nanoseconds, conditions::is_settled(stat));
        Self { id: stat.id, size, modified: stat.modified, nanoseconds, is_settled }
    }

    /// Reports whether it is the same version of the same file.
    pub(super) fn is_version_of(&self, other: &Self) -> bool {
        self.tag() == other.tag()
    }

    /// Returns the entity tag, with its quotes, of an object that does not change within the tick of its time. It has a
    /// hyphen, so that no client takes it for an MD5.
    pub(super) fn tag(&self) -> String {
        match self.nanoseconds {
            Some(nanoseconds) => conditions::exact_tag(self.id, self.size, (self.modified, nanoseconds)),
            None => conditions::tag(self.id, self.size, self.modified),
        }
    }

    /// Returns the entity tag of an object that others may be changing. It is weak if such a change can have the same one.
    pub(super) fn shown_tag(&self) -> String {
        if self.is_settled { self.tag() } else { format!("W/{}", self.tag()) }
    }

    /// Reports whether each change of the object shows in its tag.
    pub(super) fn has_exact_time(&self) -> bool {
        self.nanoseconds.is_some()
    }
}

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Child {
    /// The name, of a directory with a slash at its end: what its keys begin with.
    name: String,
    stat: ObjectStat,
}

/// The first entries of a directory behind a key.
struct FirstChildren {
    heap: BinaryHeap<Child>,
    kept: usize,
    /// There are more entries than those that are kept.
    has_more: bool,
    /// The directory has no entry at all.
    is_empty: bool,
}

impl FirstChildren {
    fn new(kept: usize) -> Self {
        Self { heap: BinaryHeap::new(), kept, has_more: false, is_empty: true }
    }

    fn add(&mut self, child: Child) {
        if self.heap.len() < self.kept {
            self.heap.push(child);
            return;
        }
        self.has_more = true;
        if self.heap.peek().is_some_and(|last| child < *last) {
            self.heap.pop();
            self.heap.push(child);
        }
    }
}

/// A directory on the path to the present key.
struct Level {
    directory: LogicalPath,
    /// What the keys of the directory begin with: empty, or with a slash at its end.
    prefix: String,
    children: VecDeque<Child>,
    has_more: bool,
}

/// The walk through the keys of a bucket that begin with a prefix.
pub(super) struct KeyWalk<'a> {
    request: &'a UserRequest,
    prefix: String,
    /// Directories are shown, but not entered.
    stops_at_directories: bool,
    /// The last position: keys up to it are done.
    after: Vec<u8>,
    begun_after: Vec<u8>,
    is_stopped: bool,
    levels: Vec<Level>,
    entries_read: u64,
    directories_read: u64,
    begun: Instant,
    /// The directory itself, if it is an object.
    own: Option<(String, ObjectStat)>,
    /// Uploads in parts that were seen, at most [`UPLOADS_MAX`].
    pub(super) uploads: Vec<SeenUpload>,
}

/// The directory of an upload in parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SeenUpload {
    /// What the keys of its directory begin with.
    pub(super) prefix: String,
    /// The name of the directory of the upload.
    pub(super) name: String,
    /// The time of its begin.
    pub(super) begun: i64,
}

/// Reports whether keys that begin with `prefix` may be behind a position.
fn is_open(prefix: &str, after: &[u8]) -> bool {
    let prefix = prefix.as_bytes();
    prefix > after || (after.starts_with(prefix) && after.get(prefix.len()) != Some(&BEHIND))
}

impl<'a> KeyWalk<'a> {
    /// Begins behind a position.
    pub(super) async fn begin(
        request: &'a UserRequest,
        bucket: &LogicalPath,
        prefix: &str,
        stops_at_directories: bool,
        after: Vec<u8>,
    ) -> Result<Self, S3Error> {
        let mut walk = Self {
            request,
            prefix: prefix.to_owned(),
            stops_at_directories,
            begun_after: after.clone(),
            after,
            is_stopped: false,
            levels: Vec::new(),
            entries_read: 0,
            directories_read: 0,
            begun: Instant::now(),
            own: None,
            uploads: Vec::new(),
        };
        let directory = prefix.rsplit_once('/').map_or("", |(directory, _)| directory);
        // No key has such a prefix.
        let is_path = directory.is_empty() || address::ObjectKey::parse(directory).is_ok();
        if prefix.starts_with('/') || !is_path {
            return Ok(walk);
        }
        let (path, begin) = match directory {
            "" => (bucket.without_slash(), String::new()),
            names => (address::below(bucket, names)?, format!("{names}/")),
        };
        match walk.enter(path, begin).await {
            Err(error) if error.of_absent_directory() && !directory.is_empty() => {}
            entered => entered?,
        }
        Ok(walk)
    }

    /// Returns the position behind which the next page begins.
    pub(super) fn position(&self) -> &[u8] {
        &self.after
    }

    /// Reports whether the walk has stopped before its end, because the request has read as much as one may.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Reports whether no further directory is read. Each request gets behind its position before that, so that a
    /// client does not ask for one position for ever.
    fn is_exhausted(&self) -> bool {
        let has_read_all = self.entries_read >= ENTRIES_READ_MAX
            || self.directories_read >= DIRECTORIES_READ_MAX
            || self.begun.elapsed() >= TIME_MAX;
        has_read_all && self.after != self.begun_after
    }

    /// Returns the next item; `None` at the end, or when the walk has stopped.
    pub(super) async fn next(&mut self) -> Result<Option<ListedItem>, S3Error> {
        loop {
            if let Some((key, stat)) = self.own.take() {
                self.after = key.clone().into_bytes();
                return Ok(Some(ListedItem::Object(key, stat)));
            }
            let is_exhausted = self.is_exhausted();
            let Some(level) = self.levels.last_mut() else { return Ok(None) };
            let next_is_directory = level.children.front().is_some_and(|child| child.name.ends_with('/'));
            let needs_reading = (next_is_directory && !self.stops_at_directories)
                || (level.children.is_empty() && level.has_more);
            if is_exhausted && needs_reading {
                self.is_stopped = true;
                return Ok(None);
            }
            let Some(child) = level.children.pop_front() else {
                let (directory, prefix, has_more) =
                    (level.directory.clone(), level.prefix.clone(), level.has_more);
                if has_more {
                    let (children, has_more, _) =
                        self.read(&directory, &prefix, self.levels.len() - 1).await?;
                    if let Some(level) = self.levels.last_mut() {
                        (level.children, level.has_more) = (children, has_more);
                    }
                } else {
                    self.levels.pop();
                    self.leave(&prefix);
                }
                continue;
            };
            let key = format!("{}{}", level.prefix, child.name);
            if !child.name.ends_with('/') {
                self.after = key.clone().into_bytes();
                return Ok(Some(ListedItem::Object(key, child.stat)));
            }
            if self.stops_at_directories {
                self.leave(&key);
                return Ok(Some(ListedItem::Prefix(key)));
            }
            let path = level.directory.join(child.name.trim_end_matches('/').as_bytes());
            let path = path.map_err(|_| S3Error::argument("The path of a key is too long."))?;
            match self.enter(path, key.clone()).await {
                // It has been removed meanwhile, or it is not visible to this user.
                Err(error) if error.of_absent_directory() || error.kind == Some(ErrorKind::NotAuthorized) => {
                    self.leave(&key);
                }
                entered => entered?,
            }
        }
    }

    /// Notes that all keys of a directory are done.
    fn leave(&mut self, prefix: &str) {
        let position = [prefix.as_bytes(), &[BEHIND]].concat();
        if !prefix.is_empty() && position > self.after {
            self.after = position;
        }
    }

    async fn enter(&mut self, directory: LogicalPath, prefix: String) -> Result<(), S3Error> {
        let (children, has_more, is_empty) = self.read(&directory, &prefix, self.levels.len()).await?;
        let is_own = is_empty && !prefix.is_empty() && prefix.starts_with(&self.prefix);
        if is_own && prefix.as_bytes() > self.after.as_slice() {
            let stat = self.request.context.run(|| Operation::Stat(target(&directory))).await?;
            if let Value::Stat(stat) = stat {
                self.own = Some((prefix.clone(), ObjectStat::of(&stat)));
            }
        }
        self.levels.push(Level { directory, prefix, children, has_more });
        Ok(())
    }

    /// Reads the first entries of a directory behind the position, with whether there are more, and whether it has
    /// none at all.
    async fn read(
        &mut self,
        directory: &LogicalPath,
        prefix: &str,
        depth: usize,
    ) -> Result<(VecDeque<Child>, bool, bool), S3Error> {
        self.directories_read += 1;
        let context = &self.request.context;
        let detail = ListDetail { stat: true, ..ListDetail::default() };
        let mut first = FirstChildren::new((KEPT_MAX / (depth + 1)).max(KEPT_MIN));
        let mut page = context.run(|| Operation::List(target(directory), detail)).await?;
        loop {
            self.request.check_client()?;
            let Value::Listing { entries, rest } = page else { return Err(no_listing()) };
            self.entries_read += u64::try_from(entries.len()).unwrap_or(u64::MAX);
            for entry in entries.iter() {
                self.consider(prefix, &entry.name, entry.stat.as_ref(), &mut first);
            }
            let Some(rest) = rest else { break };
            page = context.connection.calls.once(&context.caller, Operation::ListMore(rest)).await?;
        }
        Ok((first.heap.into_sorted_vec().into(), first.has_more, first.is_empty))
    }

    /// Adds an entry, if it is one of the listing. Names that no key can have are left out, and files that are being
    /// written are not there yet.
    fn consider(&mut self, prefix: &str, name: &[u8], stat: Option<&FileStat>, first: &mut FirstChildren) {
        first.is_empty &= stat.is_none();
        let Some(stat) = stat.filter(|stat| !stat.posc_pending) else { return };
        let Ok(name) = std::str::from_utf8(name) else { return };
        if uploads::is_reserved(name) {
            let may_note = self.uploads.len() < UPLOADS_MAX
                && stat.kind == FileKind::Directory
                && uploads::is_upload(name);
            if may_note && !self.uploads.iter().any(|seen| seen.name == name && seen.prefix == prefix) {
                let (prefix, name) = (prefix.to_owned(), name.to_owned());
                self.uploads.push(SeenUpload { prefix, name, begun: stat.modified });
            }
            return;
        }
        let name = match stat.kind {
            FileKind::Directory => format!("{name}/"),
            FileKind::File => name.to_owned(),
            // Pipes, sockets and devices have no content.
            FileKind::Other => return,
        };
        let key = format!("{prefix}{name}");
        let is_directory = stat.kind == FileKind::Directory;
        let is_behind = match is_directory {
            true => is_open(&key, &self.after),
            false => key.as_bytes() > self.after.as_slice(),
        };
        let is_wanted = key.starts_with(&self.prefix) || (is_directory && self.prefix.starts_with(&key));
        if is_behind && is_wanted && key.len() <= address::KEY_BYTES_MAX {
            first.add(Child { name, stat: ObjectStat::of(stat) });
        }
    }
}

fn no_listing() -> S3Error {
    crate::call::CallFailure::new(ErrorKind::ServerError, "there is no listing").into()
}

impl S3Error {
    /// Reports whether there is no directory.
    fn of_absent_directory(&self) -> bool {
        self.is_absent() || self.code == "NotADirectory" || self.kind == Some(ErrorKind::NotFile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_entries_are_kept_whatever_their_order() {
        let child = |name: &str| Child {
            name: name.to_owned(),
            stat: ObjectStat { id: 1, size: 1, modified: 1, nanoseconds: None, is_settled: true },
        };
        let mut first = FirstChildren::new(3);
        for name in ["d", "a/", "e", "a-", "c", "b"] {
            first.add(child(name));
        }
        let names: Vec<String> = first.heap.into_sorted_vec().into_iter().map(|child| child.name).collect();
        // A file `a-` sorts before the keys of a directory `a`.
        assert_eq!((names, first.has_more), (vec!["a-".to_owned(), "a/".to_owned(), "b".to_owned()], true));
    }

    #[test]
    fn directories_are_open_until_all_of_their_keys_are_done() {
        assert!(
            is_open("a/", b"") && is_open("a/", b"a-") && is_open("a/", b"a/") && is_open("a/", b"a/b/c")
        );
        assert!(!is_open("a/", b"a/\xff") && !is_open("a/", b"a0") && !is_open("a/", b"b/"));
    }

    #[test]
    fn tags_are_no_digests() {
        let stat = ObjectStat { id: 255, size: 16, modified: 10, nanoseconds: None, is_settled: true };
        assert_eq!(stat.tag(), "\"255-10-a\"");
        assert_eq!(ObjectStat { nanoseconds: Some(31), ..stat }.tag(), "\"255-10-a.1f\"");
        assert_eq!(stat.shown_tag(), stat.tag());
        assert_eq!(ObjectStat { is_settled: false, ..stat }.shown_tag(), "W/\"255-10-a\"");
    }
}
