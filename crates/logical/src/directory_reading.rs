//! One reading of a directory: pages of names, and their description.
//!
//! Entries that are links to other file systems are described in the pools of those, so that a hung
//! one delays only the pages with such entries. A name that contains a line feed cannot be expressed
//! in the protocol's listing, so it is omitted; the file can still be opened by its path.

use crate::checksum::stored;
use crate::describe::{self, StatView, UserDirectory};
use crate::errno;
use crate::job::{self, ByPool};
use crate::open_table::OpenTable;
use crate::proof;
use crate::wholeness::{Wholeness, WholenessRule};
use base::{Clock, Error, LogicalPath};
use digest::{Algorithm, ChecksumRecord};
use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;
use storage::{Backend, DirectoryStream, Metadata, Pool, RawEntry, WorkPlacement};
use vfs::{DirectoryEntry, FileKind, ListDetail, ListingPosition};

/// Maximum number of entries in a page.
const PAGE_ENTRIES_MAX: usize = 512;

/// The components that readings of directories use.
pub(crate) struct ListingServices {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) users: Arc<dyn UserDirectory>,
    pub(crate) open_table: Arc<OpenTable>,
    pub(crate) wholeness: Arc<WholenessRule>,
}

/// The parameters of a listing. Listings with equal parameters can share a reading.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct ListingKey {
    /// The path as the client wrote it.
    pub(crate) path: LogicalPath,
    pub(crate) detail: ListDetail,
    pub(crate) read_only: bool,
    /// The algorithm of the checksum to show.
    pub(crate) algorithm: Option<Algorithm>,
}

/// A directory that is being read. It is also the position of a listing that reads by itself.
pub(crate) struct DirectoryReading {
    services: Arc<ListingServices>,
    wanted: ListingKey,
    stream: Box<dyn DirectoryStream>,
    owners: Owners,
    /// Names that were listed already.
    told: Arc<HashSet<Vec<u8>>>,
    pool: Arc<Pool>,
}

impl ListingPosition for DirectoryReading {
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The result of describing a page of names.
pub(crate) enum DescribedPage {
    /// The complete entries.
    Here(Box<DirectoryReading>, Vec<DirectoryEntry>),
    /// Some entries are links to other file systems, which must be queried there.
    Elsewhere(PageErrand),
}

/// A page that moves through the pools of all file systems to which its names lead, so that a hung
/// one delays only this page.
pub(crate) struct PageErrand {
    reading: Box<DirectoryReading>,
    entries: Vec<DirectoryEntry>,
    names: ByPool<Vec<u8>>,
}

impl PageErrand {
    /// Queries these file systems, and calls `then` on a thread of the last one; with `None` if a
    /// pool is full.
    pub(crate) fn describe_elsewhere<T>(mut self, then: T)
    where
        T: FnOnce(Option<(Box<DirectoryReading>, Vec<DirectoryEntry>)>) + Send + 'static,
    {
        let Some((pool, names)) = self.names.pop() else { return then(Some((self.reading, self.entries))) };
        let ask = move |then: T| {
            for name in names {
                self.entries.extend(self.reading.entry(name));
            }
            self.describe_elsewhere(then);
        };
        job::submit_or(|job| pool.take_over(job), then, ask, |then| then(None));
    }
}

impl DirectoryReading {
    /// Opens the directory in the pool in which it is read. May wait.
    pub(crate) fn begin(
        services: &Arc<ListingServices>,
        wanted: &ListingKey,
        place: Option<WorkPlacement>,
    ) -> Result<Box<Self>, Error> {
        let pool = place.map_or_else(|| services.backend.pool(&wanted.path).clone(), |place| place.pool);
        let stream = services.backend.list(&wanted.path.without_slash());
        let stream = stream.map_err(|error| Error::unable("open directory", &wanted.path, error))?;
        let (services, wanted) = (services.clone(), wanted.clone());
        let (owners, told) = (Owners::default(), Arc::default());
        Ok(Box::new(Self { services, wanted, stream, owners, told, pool }))
    }

    /// Omits names that were listed already.
    pub(crate) fn skip(&mut self, told: Arc<HashSet<Vec<u8>>>) {
        self.told = told;
    }

    /// Returns the pool in which the directory is read.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Returns the names of the next page; empty at the end. May wait.
    pub(crate) fn names(&mut self) -> Result<Vec<RawEntry>, Error> {
        let path = self.wanted.path.without_slash();
        self.stream.next(PAGE_ENTRIES_MAX).map_err(|error| Error::unable("read directory", &path, error))
    }

    /// Describes these names. May wait.
    pub(crate) fn describe(mut self: Box<Self>, names: Vec<RawEntry>) -> DescribedPage {
        let mut entries = Vec::with_capacity(names.len());
        let mut away = ByPool::new();
        for raw in names {
            if raw.name.contains(&b'\n') || self.told.contains(&raw.name) {
                continue;
            }
            match self.elsewhere(&raw) {
                None => entries.extend(self.entry(raw.name)),
                Some(pool) => job::sort_in(&mut away, pool, raw.name),
            }
        }
        if away.is_empty() {
            return DescribedPage::Here(self, entries);
        }
        DescribedPage::Elsewhere(PageErrand { reading: self, entries, names: away })
    }

    /// Reports whether the listing contains more than names.
    fn needs_status(&self) -> bool {
        let detail = self.wanted.detail;
        detail.stat || detail.checksum || detail.online
    }

    /// Returns the pool in which an entry must be queried, if it is another one.
    fn elsewhere(&self, raw: &RawEntry) -> Option<Arc<Pool>> {
        if self.needs_status() { self.stream.other_pool(raw) } else { None }
    }

    /// Returns an entry; `None` if it was removed meanwhile and its status was requested.
    fn entry(&mut self, name: Vec<u8>) -> Option<DirectoryEntry> {
        let detail = self.wanted.detail;
        if !self.needs_status() {
            return Some(DirectoryEntry { name, stat: None, checksum: None });
        }
        let metadata = match self.stream.stat(&name) {
            Ok(metadata) => metadata,
            Err(error) if error.raw_os_error() == Some(errno::NOT_FOUND) => return None,
            Err(_) => return Some(DirectoryEntry { name, stat: None, checksum: None }),
        };
        if detail.online && metadata.offline {
            return None;
        }
        let stat = (detail.stat || detail.checksum).then(|| {
            let names = self.owners.of(&metadata, self.services.users.as_ref());
            let pending = self.is_pending(&name, &metadata);
            let view = StatView { read_only: self.wanted.read_only, pending };
            describe::stat_with(&metadata, self.services.users.as_ref(), view, names)
        });
        let checksum = self.wanted.algorithm.map(|algorithm| {
            let checksum = self.stored_checksum(&name, algorithm, &metadata);
            (algorithm.name().to_owned(), checksum)
        });
        Some(DirectoryEntry { name, stat, checksum })
    }

    fn is_pending(&self, name: &[u8], metadata: &Metadata) -> bool {
        if !describe::has_mark_bit(metadata) && !self.services.wholeness.has_absent_records() {
            return false;
        }
        let Ok(path) = self.wanted.path.join(name) else { return true };
        let number = || self.stream.attribute(name, proof::NONCE);
        self.services.wholeness.decide(&path, metadata, number) != Wholeness::Whole
    }

    /// Returns the stored checksum of an entry if it is valid.
    fn stored_checksum(&self, name: &[u8], algorithm: Algorithm, metadata: &Metadata) -> Option<String> {
        if describe::kind(metadata) != FileKind::File {
            return None;
        }
        let raw = self.stream.attribute(name, &ChecksumRecord::attribute(algorithm)).ok()??;
        let checksum = stored::valid(&raw, algorithm, metadata)?;
        let path = self.wanted.path.join(name).ok()?;
        (!self.services.open_table.has_writer(&path, metadata)).then(|| checksum.hex())
    }
}

/// The names of a user and a group.
type Names = (Arc<str>, Arc<str>);

/// A cache of the owners of the last entry, which are mostly those of the next one too.
#[derive(Default)]
struct Owners(Option<((u32, u32), Names)>);

impl Owners {
    fn of(&mut self, metadata: &Metadata, users: &dyn UserDirectory) -> Names {
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
