//! Directories, page by page.
//!
//! Pages are read once for all who asked before the reading began ([`crate::scan`]); what a directory has beyond what is kept for
//! them, each listing reads for itself.
//!
//! A name that holds a line feed cannot be expressed in the protocol's listing, so such entries are left out of it; they
//! can be reached by their path.

use crate::checksum::stored;
use crate::config::Checksums;
use crate::describe::{self, Users, View};
use crate::errno::{self, unable};
use crate::exports::Exports;
use crate::job::{self, ByPool, done};
use crate::open_table::OpenTable;
use crate::proof;
use crate::scan::{self, Scan, Scans};
use crate::wholeness::{Wholeness, WholenessRule};
use base::{Clock, Error, LogicalPath};
use digest::{Algorithm, Record};
use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;
use storage::{Backend, DirectoryStream, Elsewhere, Metadata, Pool, RawEntry};
use vfs::{
    Answer, Caller, Entries, Entry, FileKind, ListDetail, Listing, Reply, ReplyTo, Started, Target, Value,
};

/// Entries of one page.
const PAGE_ENTRIES_MAX: usize = 512;

/// Lists directories.
pub(crate) struct Listings {
    pub(crate) exports: Arc<Exports>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) users: Arc<dyn Users>,
    pub(crate) open_table: Arc<OpenTable>,
    pub(crate) wholeness: Arc<WholenessRule>,
    /// Types of checksums that may be shown.
    pub(crate) checksums: Checksums,
    /// Directories that are being read.
    pub(crate) scans: Scans,
}

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
    pool: Arc<Pool>,
}

/// What is left of a listing.
pub(crate) enum Rest {
    /// From this page on.
    Shared(Arc<Scan>, usize),
    /// What it reads for itself.
    Own(Box<Reading>),
}

impl Listing for Rest {
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Starts a listing: the first page.
pub(crate) fn start(
    listings: &Arc<Listings>,
    caller: &Arc<Caller>,
    target: Target,
    detail: ListDetail,
    reply: &ReplyTo,
) -> Started {
    let read_only = match listings.exports.find(&target.path, "Listing") {
        Ok(export) => export.is_read_only(),
        Err(error) => return done(Err(error)),
    };
    let algorithm = match listings.checksums.default_type() {
        Some(_) if detail.checksum => match listings.checksums.algorithm(&target.cgi) {
            Ok(algorithm) => Some(algorithm),
            Err(error) => return done(Err(error)),
        },
        _ => None,
    };
    scan::join(listings, caller, Wanted { path: target.path, detail, read_only, algorithm }, reply);
    Started::Pending
}

/// The next page.
pub(crate) fn more(
    listings: &Arc<Listings>,
    caller: &Arc<Caller>,
    rest: Box<dyn Listing>,
    reply: &ReplyTo,
) -> Started {
    match rest.into_any().downcast::<Rest>().map(|rest| *rest) {
        Ok(Rest::Shared(scan, at)) => scan::more(listings, caller, &scan, at, reply),
        Ok(Rest::Own(reading)) => go_on(listings, caller, reading, reply),
        Err(_) => done(Err(unable("read directory", &LogicalPath::root(), errno::INVALID))),
    }
}

/// The next page of what a listing reads for itself.
pub(crate) fn go_on(
    listings: &Arc<Listings>,
    caller: &Arc<Caller>,
    reading: Box<Reading>,
    reply: &ReplyTo,
) -> Started {
    queue_own(listings.clone(), caller.clone(), reading, reply.defer());
    Started::Pending
}

/// Queues the reading of the next page.
fn queue_own(listings: Arc<Listings>, caller: Arc<Caller>, reading: Box<Reading>, reply: Reply) {
    let (pool, owner) = (reading.pool.clone(), reply.owner());
    let read = move |reply| own_page(&listings, caller, reading, reply);
    job::give(|job| pool.run(owner, job), reply, read, job::refuse);
}

/// A page of what a listing reads for itself. May wait. If no name of a page can be listed, others have their turn before the
/// next one.
pub(crate) fn own_page(
    listings: &Arc<Listings>,
    caller: Arc<Caller>,
    mut reading: Box<Reading>,
    reply: Reply,
) {
    if caller.has_left() {
        return reply.send(job::left());
    }
    let names = match reading.names() {
        Ok(names) => names,
        Err(error) => return reply.send(Answer::Error(error)),
    };
    if names.is_empty() {
        return reply.send(Answer::Value(Value::Listing { entries: Entries::default(), rest: None }));
    }
    let inside = listings.clone();
    let tell = move |reading, entries: Vec<Entry>, reply| {
        if entries.is_empty() {
            queue_own(inside, caller, reading, reply);
        } else {
            send_page(reading, entries, reply);
        }
    };
    match reading.describe(listings, names) {
        Described::Here(reading, entries) => tell(reading, entries, reply),
        Described::Elsewhere(errand) => errand.go(listings, move |page| match page {
            Some((reading, entries)) => tell(reading, entries, reply),
            None => job::refuse(reply),
        }),
    }
}

fn send_page(reading: Box<Reading>, entries: Vec<Entry>, reply: Reply) {
    let rest = Some(Box::new(Rest::Own(reading)) as Box<dyn Listing>);
    reply.send(Answer::Value(Value::Listing { entries: entries.into(), rest }));
}

/// What came of a page of names.
pub(crate) enum Described {
    /// What is to be told of them.
    Here(Box<Reading>, Vec<Entry>),
    /// Some are links to other file systems, which must be asked.
    Elsewhere(Errand),
}

/// A page that is taken to the file systems to which some of its names lead, so that one that hangs holds up this page alone.
pub(crate) struct Errand {
    reading: Box<Reading>,
    entries: Vec<Entry>,
    names: ByPool<Vec<u8>>,
}

impl Errand {
    /// Goes there, and calls `then` on a thread of the last one; with nothing if one takes no more.
    pub(crate) fn go<T>(mut self, listings: &Arc<Listings>, then: T)
    where
        T: FnOnce(Option<(Box<Reading>, Vec<Entry>)>) + Send + 'static,
    {
        let Some((pool, names)) = self.names.pop() else { return then(Some((self.reading, self.entries))) };
        let listings = listings.clone();
        let ask = move |then: T| {
            for name in names {
                self.entries.extend(self.reading.entry(&listings, name));
            }
            self.go(&listings, then);
        };
        job::give(|job| pool.take_over(job), then, ask, |then| then(None));
    }
}

impl Reading {
    /// Opens the directory, in the pool that it is to be read in. May wait.
    pub(crate) fn begin(
        listings: &Listings,
        wanted: &Wanted,
        place: Option<Elsewhere>,
    ) -> Result<Box<Self>, Error> {
        let pool = place.map_or_else(|| listings.backend.pool(&wanted.path).clone(), |place| place.pool);
        let stream = listings.backend.list(&wanted.path.without_slash());
        let stream = stream.map_err(|error| Error::unable("open directory", &wanted.path, error))?;
        let (wanted, owners, told) = (wanted.clone(), Owners::default(), Arc::default());
        Ok(Box::new(Self { wanted, stream, owners, told, pool }))
    }

    /// Leaves out names that were told already.
    pub(crate) fn skip(&mut self, told: Arc<HashSet<Vec<u8>>>) {
        self.told = told;
    }

    /// The pool that it is to be read in.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The next names, as many as a page has at most; empty at the end. May wait.
    pub(crate) fn names(&mut self) -> Result<Vec<RawEntry>, Error> {
        let path = self.wanted.path.without_slash();
        self.stream.next(PAGE_ENTRIES_MAX).map_err(|error| Error::unable("read directory", &path, error))
    }

    /// What is to be told of these names. May wait.
    pub(crate) fn describe(mut self: Box<Self>, listings: &Listings, names: Vec<RawEntry>) -> Described {
        let mut entries = Vec::with_capacity(names.len());
        let mut away = ByPool::new();
        for raw in names {
            if raw.name.contains(&b'\n') || self.told.contains(&raw.name) {
                continue;
            }
            match self.elsewhere(&raw) {
                None => entries.extend(self.entry(listings, raw.name)),
                Some(pool) => job::sort_in(&mut away, pool, raw.name),
            }
        }
        if away.is_empty() {
            return Described::Here(self, entries);
        }
        Described::Elsewhere(Errand { reading: self, entries, names: away })
    }

    /// Is anything to be told of entries but their names?
    fn asks(&self) -> bool {
        let detail = self.wanted.detail;
        detail.stat || detail.checksum || detail.online
    }

    /// Where an entry must be asked for, if not here.
    fn elsewhere(&self, raw: &RawEntry) -> Option<Arc<Pool>> {
        if self.asks() { self.stream.elsewhere(raw) } else { None }
    }

    /// One entry; `None` if it vanished meanwhile and its status was asked for.
    fn entry(&mut self, listings: &Listings, name: Vec<u8>) -> Option<Entry> {
        let detail = self.wanted.detail;
        if !self.asks() {
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
            let names = self.owners.of(&metadata, listings.users.as_ref());
            let pending = self.is_pending(listings, &name, &metadata);
            let view = View { read_only: self.wanted.read_only, pending };
            describe::stat_with(&metadata, listings.users.as_ref(), view, names)
        });
        let checksum = self.wanted.algorithm.map(|algorithm| {
            let checksum = self.stored_checksum(listings, &name, algorithm, &metadata);
            (algorithm.name().to_owned(), checksum)
        });
        Some(Entry { name, stat, checksum })
    }

    fn is_pending(&self, listings: &Listings, name: &[u8], metadata: &Metadata) -> bool {
        if !describe::has_mark_bit(metadata) && !listings.wholeness.has_absent_records() {
            return false;
        }
        let Ok(path) = self.wanted.path.join(name) else { return true };
        let number = || self.stream.attribute(name, proof::NONCE);
        listings.wholeness.decide(&path, metadata, number) != Wholeness::Whole
    }

    /// The stored checksum of an entry, if there is one that speaks for it.
    fn stored_checksum(
        &self,
        listings: &Listings,
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
        (!listings.open_table.has_writer(&path, metadata)).then(|| checksum.hex())
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
