//! Directories, page by page.
//!
//! A name that holds a line feed cannot be expressed in the protocol's listing, so such entries are left out of it; they
//! can be reached by their path.

use crate::checksum::stored;
use crate::describe::{self, Users};
use crate::file_system::done;
use crate::job;
use crate::shared::{Shared, errno, is_read_only, unable};
use base::{Error, LogicalPath};
use digest::{Algorithm, Record};
use std::any::Any;
use std::sync::Arc;
use storage::{DirectoryStream, Metadata, Pool};
use vfs::{Answer, Entry, FileKind, ListDetail, Listing, ReplyTo, Started, Target, Value};

/// Entries of one page.
const PAGE_ENTRIES_MAX: usize = 512;

/// What is left of a listing.
struct Rest {
    stream: Box<dyn DirectoryStream>,
    detail: ListDetail,
    read_only: bool,
    path: LogicalPath,
    pool: Arc<Pool>,
    /// The type of checksum to show.
    algorithm: Option<Algorithm>,
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
    let pool = shared.backend.pool(&target.path).clone();
    let shared = shared.clone();
    job::spawn(&pool.clone(), reply, move || {
        let path = target.path.without_slash();
        match shared.backend.list(&path) {
            Ok(stream) => page(&shared, Rest { stream, detail, read_only, path, pool, algorithm }).into(),
            Err(error) => Answer::Error(Error::unable("open directory", &target.path, error)),
        }
    })
}

/// The next page.
pub(crate) fn more(shared: &Arc<Shared>, rest: Box<dyn Listing>, reply: &ReplyTo) -> Started {
    let Ok(rest) = rest.into_any().downcast::<Rest>() else {
        return done(Err(unable("read directory", &LogicalPath::root(), errno::INVALID)));
    };
    let shared = shared.clone();
    job::spawn(&rest.pool.clone(), reply, move || page(&shared, *rest).into())
}

fn page(shared: &Shared, mut rest: Rest) -> Result<Value, Error> {
    let fail = |path: &LogicalPath, error| Error::unable("read directory", path, error);
    let mut entries = Vec::new();
    let mut owners = Owners::default();
    loop {
        let raw = rest.stream.next(PAGE_ENTRIES_MAX).map_err(|e| fail(&rest.path, e))?;
        if raw.is_empty() {
            return Ok(Value::Listing { entries, rest: None });
        }
        for one in raw {
            if !one.name.contains(&b'\n') {
                entries.extend(entry(shared, &rest, &mut owners, one.name));
            }
        }
        // A page of nothing but unspeakable names is no page.
        if !entries.is_empty() {
            return Ok(Value::Listing { entries, rest: Some(Box::new(rest)) });
        }
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

/// One entry; `None` if it vanished meanwhile and its status was asked for.
fn entry(shared: &Shared, rest: &Rest, owners: &mut Owners, name: Vec<u8>) -> Option<Entry> {
    if !(rest.detail.stat || rest.detail.checksum || rest.detail.online) {
        return Some(Entry { name, stat: None, checksum: None });
    }
    let metadata = match rest.stream.stat(&name) {
        Ok(metadata) => metadata,
        Err(error) if error.raw_os_error() == Some(errno::NOT_FOUND) => return None,
        Err(_) => return Some(Entry { name, stat: None, checksum: None }),
    };
    if rest.detail.online && metadata.offline {
        return None;
    }
    let wanted = rest.detail.stat || rest.detail.checksum;
    let stat = wanted.then(|| {
        let names = owners.of(&metadata, shared.users.as_ref());
        describe::stat_with(&metadata, shared.users.as_ref(), rest.read_only, names)
    });
    let checksum = rest.algorithm.map(|algorithm| {
        let checksum = stored_checksum(shared, rest, &name, algorithm, &metadata);
        (algorithm.name().to_owned(), checksum)
    });
    Some(Entry { name, stat, checksum })
}

/// The stored checksum of an entry, if there is one that speaks for it.
fn stored_checksum(
    shared: &Shared,
    rest: &Rest,
    name: &[u8],
    algorithm: Algorithm,
    metadata: &Metadata,
) -> Option<String> {
    if describe::kind(metadata) != FileKind::File {
        return None;
    }
    let raw = rest.stream.attribute(name, &Record::attribute(algorithm)).ok()??;
    let checksum = stored::valid(&raw, algorithm, metadata)?;
    let path = rest.path.join(name).ok()?;
    (!shared.locks.has_writer(&path)).then(|| checksum.hex())
}
