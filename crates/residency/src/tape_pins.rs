//! The pins of files that tape requests keep on disk. They have an attribute of their own, so that pins of
//! administrators stay as they are.
//!
//! A pin follows from the rows of the requests for its file, which are read when it is written.

use crate::sqlite_rows::count;
use crate::sqlite_store::{DATABASE, StoreError};
use base::{LogicalPath, Owner};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Row, params};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::{Backend, FilePin, Pool, REQUEST_PIN_ATTRIBUTE};

/// Number of files whose pins one job writes.
const JOB_FILES: usize = 64;

/// Number of paths that are read at once at the start.
const PAGE_FILES: usize = 256;

/// Writes pins.
pub(crate) struct TapePins {
    backend: Arc<dyn Backend>,
    /// The directory of the database.
    directory: Arc<PathBuf>,
    /// Files that no job has taken yet.
    rest: Vec<LogicalPath>,
}

impl TapePins {
    pub(crate) fn new(backend: Arc<dyn Backend>, directory: &Path) -> Self {
        Self { backend, directory: Arc::new(directory.to_owned()), rest: Vec::new() }
    }

    /// Reports whether files wait for another call of [`Self::change`].
    pub(crate) fn has_rest(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Renews the pins of files, in the pools of their disks, with those that have waited. Never blocks.
    pub(crate) fn change(&mut self, files: Vec<LogicalPath>) {
        self.rest.extend(files);
        let mut groups: Vec<(Arc<Pool>, Vec<LogicalPath>)> = Vec::new();
        for file in self.rest.drain(..) {
            let pool = self.backend.pool(&file);
            match groups.iter_mut().find(|(known, _)| Arc::ptr_eq(known, pool)) {
                Some((_, group)) => group.push(file),
                None => groups.push((pool.clone(), vec![file])),
            }
        }
        for (pool, group) in groups {
            for files in group.chunks(JOB_FILES) {
                let (backend, directory) = (self.backend.clone(), self.directory.clone());
                let taken = files.to_vec();
                let job = move || renew_files(backend.as_ref(), &directory, &taken);
                if pool.run(Owner::SERVER, Box::new(job)).is_err() {
                    self.rest.extend_from_slice(files);
                }
            }
        }
    }
}

/// Renews the pins of all files that requests keep, because the last process may have ended before it did that.
pub(crate) fn renew_all(backend: &dyn Backend, directory: &Path) {
    let mut after = Vec::new();
    loop {
        let page = match page_of_kept(directory, &after) {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(%error, "cannot read which files tape requests keep on disk");
                return;
            }
        };
        let Some(last) = page.last() else { return };
        after.clone_from(last);
        // Only valid paths are recorded.
        let paths: Vec<_> = page.iter().filter_map(|path| LogicalPath::parse(path).ok()).collect();
        renew_files(backend, directory, &paths);
    }
}

fn page_of_kept(directory: &Path, after: &[u8]) -> Result<Vec<Vec<u8>>, StoreError> {
    let connection = open_reader(directory)?;
    let sql = "SELECT DISTINCT path FROM tape_files
        WHERE lifetime > 0 AND path > ? AND state = 2 AND finished + lifetime > unixepoch() ORDER BY path LIMIT ?";
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map(params![after, count(PAGE_FILES)], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Opens the database of a queue beside its thread.
pub(crate) fn open_reader(directory: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Ok(Connection::open_with_flags(directory.join(DATABASE), flags)?)
}

fn renew_files(backend: &dyn Backend, directory: &Path, files: &[LogicalPath]) {
    let connection = match open_reader(directory) {
        Ok(connection) => connection,
        Err(error) => {
            tracing::warn!(%error, "cannot read how long tape requests keep files on disk");
            return;
        }
    };
    for path in files {
        if let Err(error) = renew(backend, &connection, path) {
            tracing::warn!(path = %path.shown(), %error, "cannot change the pin of a file");
        }
    }
}

/// Writes the pin of a file. Another job may do the same at this time, with an earlier or a later state of the
/// requests, so the last one to write looks again.
fn renew(backend: &dyn Backend, connection: &Connection, path: &LogicalPath) -> io::Result<()> {
    let transfers = backend.transfers().ok_or(io::ErrorKind::Unsupported)?;
    let file = match transfers.hold(path) {
        Ok(file) => file,
        // The file was removed meanwhile.
        Err(error) if storage::is_missing(&error) => return Ok(()),
        Err(error) => return Err(error),
    };
    let read = || kept_until(connection, path).map_err(io::Error::other);
    let (mut wanted, mut is_changed) = (read()?, false);
    loop {
        let value = wanted.map(|time| FilePin::Until(time).encode());
        if file.attribute(REQUEST_PIN_ATTRIBUTE)?.as_deref() != value.as_ref().map(|value| &value[..]) {
            is_changed = true;
            match value {
                Some(value) => file.set_attribute(REQUEST_PIN_ATTRIBUTE, &value)?,
                None => file.remove_attribute(REQUEST_PIN_ATTRIBUTE)?,
            }
        }
        let now = read()?;
        if now == wanted {
            break;
        }
        wanted = now;
    }
    // Clients rely on the pin, also after a power failure.
    if is_changed { file.sync() } else { Ok(()) }
}

/// Returns the time until which requests keep a file, in seconds since the epoch.
fn kept_until(connection: &Connection, path: &LogicalPath) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT max(finished + lifetime) FROM tape_files WHERE path = ? AND lifetime > 0 AND state = 2";
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_row([path.as_bytes()], |row: &Row<'_>| row.get(0)).optional()?;
    Ok(found.flatten())
}
