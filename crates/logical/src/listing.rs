//! Directories, page by page.
//!
//! Pages are read once for all who asked before the reading began ([`crate::scan`]); what a directory has beyond what is kept for
//! them, each listing reads for itself.
//!
//! A name that holds a line feed cannot be expressed in the protocol's listing, so such entries are left out of it; they
//! can be reached by their path.

use crate::checksum::stored;
use crate::describe::{self, Users};
use crate::file_system::done;
use crate::job;
use crate::scan::{self, Scan};
use crate::shared::{Shared, errno, is_read_only, unable};
use base::{Error, LogicalPath};
use digest::{Algorithm, Record};
use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;
use storage::{DirectoryStream, Metadata, RawEntry};
use vfs::{Answer, Entries, Entry, FileKind, ListDetail, Listing, ReplyTo, Started, Target, Value};

/// Entries of one page.
const PAGE_ENTRIES_MAX: usize = 512;

/// What is listed, and what is told of it: who wants the same gets the same.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Wanted {
    /// As it was asked for.
    pub(crate) path: LogicalPath,
    detail: ListDetail,
    read_only: bool,
    /// The type of checksum to show.
    algorithm: Option<Algorithm>,
}

/// A directory that is being read.
pub(crate) struct Reading {
    wanted: Wanted,
    stream: Box<dyn DirectoryStream>,
    owners: Owners,
    /// Names that were told already.
    told: Arc<HashSet<Vec<u8>>>,
}

/// What is left of a listing.
pub(crate) enum Rest {
    /// From this page on.
    Shared(Arc<Scan>, usize),
    /// What it reads for itself.
    Own(Reading),
}

impl Listing for Rest {
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Starts a listing: the first page.
pub(crate) fn start(shared: &Arc<Shared>, target: Target, detail: ListDetail, reply: &ReplyTo) -> Started {
    let read_only = match shared.export(&target.path, "Listing") {
        Ok(export) => is_read_only(export),
        Err(error) => return done(Err(error)),
    };
    let algorithm = match shared.checksums.default_type() {
        Some(_) if detail.checksum => match shared.checksums.algorithm(&target.cgi) {
            Ok(algorithm) => Some(algorithm),
            Err(error) => return done(Err(error)),
        },
        _ => None,
    };
    scan::join(shared, Wanted { path: target.path, detail, read_only, algorithm }, reply);
    Started::Pending
}

/// The next page.
pub(crate) fn more(shared: &Arc<Shared>, rest: Box<dyn Listing>, reply: &ReplyTo) -> Started {
    match rest.into_any().downcast::<Rest>().map(|rest| *rest) {
        Ok(Rest::Shared(scan, at)) => scan::more(shared, &scan, at, reply),
        Ok(Rest::Own(reading)) => {
            let pool = shared.backend.pool(&reading.wanted.path).clone();
            let shared = shared.clone();
            job::spawn(&pool, reply, move || own_page(&shared, reading))
        }
        Err(_) => done(Err(unable("read directory", &LogicalPath::root(), errno::INVALID))),
    }
}

/// A page of what a listing reads for itself. May wait.
pub(crate) fn own_page(shared: &Shared, mut reading: Reading) -> Answer {
    match reading.next(shared) {
        Ok(None) => Answer::Value(Value::Listing { entries: Entries::default(), rest: None }),
        Ok(Some(entries)) => {
            let rest = Some(Box::new(Rest::Own(reading)) as Box<dyn Listing>);
            Answer::Value(Value::Listing { entries: entries.into(), rest })
        }
        Err(error) => Answer::Error(error),
    }
}

impl Reading {
    /// Opens the directory. May wait.
    pub(crate) fn begin(shared: &Shared, wanted: &Wanted) -> Result<Self, Error> {
        let stream = shared.backend.list(&wanted.path.without_slash());
        let stream = stream.map_err(|error| Error::unable("open directory", &wanted.path, error))?;
        Ok(Self { wanted: wanted.clone(), stream, owners: Owners::default(), told: Arc::default() })
    }

    /// The same, but for names that were told already.
    pub(crate) fn without(self, told: Arc<HashSet<Vec<u8>>>) -> Self {
        Self { told, ..self }
    }

    /// The next entries, as many as a page has at most; none at the end. May wait.
    pub(crate) fn next(&mut self, shared: &Shared) -> Result<Option<Vec<Entry>>, Error> {
        loop {
            let names = self.names()?;
            if names.is_empty() {
                return Ok(None);
            }
            let entries = self.entries(shared, names);
            // A page of nothing but unspeakable names is no page.
            if !entries.is_empty() {
                return Ok(Some(entries));
            }
        }
    }

    /// The next names, as many as a page has at most; empty at the end. May wait.
    pub(crate) fn names(&mut self) -> Result<Vec<RawEntry>, Error> {
        let path = self.wanted.path.without_slash();
        self.stream.next(PAGE_ENTRIES_MAX).map_err(|error| Error::unable("read directory", &path, error))
    }

    /// What is to be told of these names. May wait.
    pub(crate) fn entries(&mut self, shared: &Shared, names: Vec<RawEntry>) -> Vec<Entry> {
        let tells = |name: &Vec<u8>| !name.contains(&b'\n') && !self.told.contains(name);
        let names: Vec<_> = names.into_iter().map(|one| one.name).filter(tells).collect();
        names.into_iter().filter_map(|name| self.entry(shared, name)).collect()
    }

    /// One entry; `None` if it vanished meanwhile and its status was asked for.
    fn entry(&mut self, shared: &Shared, name: Vec<u8>) -> Option<Entry> {
        let detail = self.wanted.detail;
        if !(detail.stat || detail.checksum || detail.online) {
            return Some(Entry { name, stat: None, checksum: None });
        }
        let metadata = match self.stream.stat(&name) {
            Ok(metadata) => metadata,
            Err(error) if error.raw_os_error() == Some(errno::NOT_FOUND) => return None,
            Err(_) => return Some(Entry { name, stat: None, checksum: None }),
        };
        if detail.online && metadata.offline {
            return None;
        }
        let stat = (detail.stat || detail.checksum).then(|| {
            let names = self.owners.of(&metadata, shared.users.as_ref());
            describe::stat_with(&metadata, shared.users.as_ref(), self.wanted.read_only, names)
        });
        let checksum = self.wanted.algorithm.map(|algorithm| {
            let checksum = self.stored_checksum(shared, &name, algorithm, &metadata);
            (algorithm.name().to_owned(), checksum)
        });
        Some(Entry { name, stat, checksum })
    }

    /// The stored checksum of an entry, if there is one that speaks for it.
    fn stored_checksum(
        &self,
        shared: &Shared,
        name: &[u8],
        algorithm: Algorithm,
        metadata: &Metadata,
    ) -> Option<String> {
        if describe::kind(metadata) != FileKind::File {
            return None;
        }
        let raw = self.stream.attribute(name, &Record::attribute(algorithm)).ok()??;
        let checksum = stored::valid(&raw, algorithm, metadata)?;
        let path = self.wanted.path.join(name).ok()?;
        (!shared.locks.has_writer(&path)).then(|| checksum.hex())
    }
}

/// Names of a user and a group.
type Names = (Arc<str>, Arc<str>);

/// Who owns the last entry: mostly the owners of the next one too.
#[derive(Default)]
struct Owners(Option<((u32, u32), Names)>);

impl Owners {
    fn of(&mut self, metadata: &Metadata, users: &dyn Users) -> Names {
        let numbers = (metadata.uid, metadata.gid);
        if let Some((last, names)) = &self.0
            && *last == numbers
        {
            return names.clone();
        }
        let names = (users.user(numbers.0), users.group(numbers.1));
        self.0 = Some((numbers, names.clone()));
        names
    }
}
