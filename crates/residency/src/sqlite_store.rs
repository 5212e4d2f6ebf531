//! The durable queue: entries in a database of SQLite.
//!
//! One connection writes. The commands that arrived together are one transaction, so each batch
//! costs one sync of the disk. No entry is kept in memory, except the pages that SQLite caches.
//!
//! An administrator can read the database while the server runs: `sqlite3 queue.sqlite`.

use crate::entry::{
    CopyFailure, EntryKey, EntryState, FailureReason, Priority, RequestId, TransferDirection, TransferEntry,
};
use crate::network_file_system::network_file_system;
use crate::store::EntryStore;
use base::LogicalPath;
use rusqlite::types::{ToSql, ToSqlOutput};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Row, params};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use storage::PrivateDirectory;
use thiserror::Error;

/// The name of the database in its directory.
const DATABASE: &str = "queue.sqlite";

/// The version of the tables, which the database stores as `user_version`.
const VERSION: i64 = 1;

/// The time for which a command waits for another process that writes, such as a tool.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Pages that SQLite keeps in memory, in KiB.
const CACHE_KIB: i64 = 2048;

/// Prepared statements that are kept.
const STATEMENTS_MAX: usize = 32;

/// `state`: 0 queued, 1 active, 2 stopping, 3 failed. `time`: when a queued entry becomes ready, or
/// until when a failed one denies requests. `reason`: 0 not found, 1 permanent, 2 temporary.
/// `number` is the order of addition.
const TABLES: &str = "
CREATE TABLE entries (
    number INTEGER PRIMARY KEY,
    direction INTEGER NOT NULL CHECK (direction IN (0, 1)),
    path BLOB NOT NULL,
    priority INTEGER NOT NULL CHECK (priority IN (0, 1, 2)),
    source TEXT NOT NULL,
    id TEXT NOT NULL,
    client TEXT NOT NULL,
    added INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    anonymous INTEGER NOT NULL,
    state INTEGER NOT NULL CHECK (state IN (0, 1, 2, 3)),
    time INTEGER,
    reason INTEGER,
    text TEXT,
    UNIQUE (direction, path)
) STRICT;
CREATE INDEX ready_entries ON entries (direction, priority, source, time, number) WHERE state = 0;
CREATE INDEX ready_times ON entries (time) WHERE state = 0;
CREATE INDEX running_entries ON entries (state) WHERE state IN (1, 2);
CREATE INDEX failed_entries ON entries (time) WHERE state = 3;
CREATE TABLE requests (
    request TEXT NOT NULL,
    direction INTEGER NOT NULL,
    path BLOB NOT NULL,
    PRIMARY KEY (request, direction, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX requests_of_entry ON requests (direction, path);
";

/// The columns of an entry, in the order in which [`entry_of`] reads them.
const COLUMNS: &str = "direction, path, priority, source, client, added, tries, anonymous, state, time, reason, text, number, id";

/// The error of a database.
#[derive(Debug, Error)]
pub enum StoreError {
    /// SQLite reports an error.
    #[error("the queue of transfers: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A row has values that no version of this program writes.
    #[error("the queue of transfers: row {number} is invalid: {reason}; remove the row or the database")]
    Row {
        /// The number of the row.
        number: i64,
        /// The reason.
        reason: String,
    },
}

/// The reason for which a queue cannot be opened.
#[derive(Debug, Error)]
pub enum StoreOpenError {
    /// The directory is on a network file system.
    #[error(
        "cannot keep the queue of transfers in {}: it is on the network file system {kind}; choose a directory \
         on a local disk with frm.xfr.qcheck",
        .directory.display()
    )]
    Network {
        /// The directory.
        directory: PathBuf,
        /// The kind of file system.
        kind: &'static str,
    },
    /// The directory cannot be used.
    #[error("cannot keep the queue of transfers in {}: {error}", .directory.display())]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// SQLite cannot open the database.
    #[error("cannot open the queue of transfers {}: {error}", .file.display())]
    Database {
        /// The database.
        file: PathBuf,
        /// The reason.
        error: rusqlite::Error,
    },
    /// The database was written by a later version of this program.
    #[error("cannot use the queue of transfers {}: its version {version} is newer than {VERSION}", .file.display())]
    Version {
        /// The database.
        file: PathBuf,
        /// Its version.
        version: i64,
    },
}

/// The durable queue.
pub struct SqliteStore {
    connection: Connection,
}

impl SqliteStore {
    /// Opens the queue in an existing directory, and creates it if it is missing. The caller has the
    /// lock of the directory, so that no other process executes transfers there.
    pub fn open(place: &PrivateDirectory) -> Result<Self, StoreOpenError> {
        let directory = place.path();
        let fail = |error| StoreOpenError::Directory { directory: directory.to_owned(), error };
        if let Some(kind) = network_file_system(directory).map_err(fail)? {
            return Err(StoreOpenError::Network { directory: directory.to_owned(), kind });
        }
        // SQLite creates its other files with the mode of this one.
        drop(place.open_or_create(DATABASE).map_err(fail)?);
        // The links on the way to the directory were checked; SQLite follows none at all.
        let file = directory.canonicalize().map_err(fail)?.join(DATABASE);
        let fail = |error| StoreOpenError::Database { file: file.clone(), error };
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let connection = Connection::open_with_flags(&file, flags).map_err(fail)?;
        let version = prepare(&connection).map_err(fail)?;
        if version > VERSION {
            return Err(StoreOpenError::Version { file, version });
        }
        Ok(Self { connection })
    }

    /// Makes all changes of `work` durable at once. If it fails, or if the disk does, the database
    /// stays as it was.
    pub fn transaction<T, E: From<StoreError>>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        self.begin()?;
        let result = work(self).and_then(|value| self.commit().map(|()| value).map_err(E::from));
        if result.is_err() && !self.connection.is_autocommit() {
            // If this fails as well, the next transaction cannot begin and reports the error.
            self.connection.execute_batch("ROLLBACK").ok();
        }
        result
    }

    /// Begins a transaction.
    pub fn begin(&mut self) -> Result<(), StoreError> {
        Ok(self.connection.execute_batch("BEGIN IMMEDIATE")?)
    }

    /// Makes the changes since [`Self::begin`] durable.
    pub fn commit(&mut self) -> Result<(), StoreError> {
        Ok(self.connection.execute_batch("COMMIT")?)
    }

    /// Returns up to `most` entries, those after the key `after`, in the order of their keys.
    pub fn entries(
        &mut self,
        after: Option<&EntryKey>,
        most: usize,
    ) -> Result<Vec<TransferEntry>, StoreError> {
        let (direction, path) = bounds(after);
        let sql = format!(
            "SELECT {COLUMNS} FROM entries WHERE (direction, path) > (?, ?) ORDER BY direction, path LIMIT ?"
        );
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params![direction, path, count(most)])?;
        let mut entries = Vec::new();
        while let Some(row) = rows.next()? {
            entries.push(entry_of(row)?.1);
        }
        Ok(entries)
    }

    /// Returns the number of entries for which a request waits, counted up to `most`.
    pub fn files_of_request(&mut self, request: &RequestId, most: usize) -> Result<usize, StoreError> {
        let sql = "SELECT count(*) FROM (SELECT 1 FROM requests WHERE request = ? LIMIT ?)";
        let mut statement = self.connection.prepare_cached(sql)?;
        let number = statement.query_row(params![&*request.0, count(most)], |row| row.get::<_, i64>(0))?;
        Ok(number.try_into().unwrap_or_default())
    }

    /// Returns the number of entries that wait or run.
    pub fn unfinished(&mut self) -> Result<u64, StoreError> {
        let mut statement = self.connection.prepare_cached("SELECT count(*) FROM entries WHERE state < 3")?;
        Ok(statement.query_row([], |row| row.get::<_, i64>(0))?.try_into().unwrap_or_default())
    }

    fn entry(
        &mut self,
        sql: &str,
        values: &[&dyn ToSql],
    ) -> Result<Option<(i64, TransferEntry)>, StoreError> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(values)?;
        rows.next()?.map(entry_of).transpose()
    }

    fn execute(&mut self, sql: &str, values: &[&dyn ToSql]) -> Result<usize, StoreError> {
        Ok(self.connection.prepare_cached(sql)?.execute(values)?)
    }

    /// Returns the next source after `after` that has queued entries of this class. One look-up in
    /// the index, however many entries each source has.
    fn source_after(
        &mut self,
        direction: TransferDirection,
        priority: Priority,
        after: Option<&str>,
    ) -> Result<Option<Arc<str>>, StoreError> {
        let compare = if after.is_some() { ">" } else { ">=" };
        let sql = format!(
            "SELECT source FROM entries WHERE state = 0 AND direction = ? AND priority = ? AND source {compare} ?
             ORDER BY source LIMIT 1"
        );
        let mut statement = self.connection.prepare_cached(&sql)?;
        let values = params![direction, priority.number(), after.unwrap_or_default()];
        let source = statement.query_row(values, |row| row.get::<_, String>(0)).optional()?;
        Ok(source.map(Arc::from))
    }
}

/// Sets the connection up, and creates the tables in a new database. Returns the version of the
/// tables.
fn prepare(connection: &Connection) -> Result<i64, rusqlite::Error> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    let version = || connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
    if version()? == 0 {
        connection.execute_batch(&format!("BEGIN; {TABLES} PRAGMA user_version = {VERSION}; COMMIT"))?;
    }
    version()
}

/// Returns the values that compare as less than the keys after `after`.
fn bounds(after: Option<&EntryKey>) -> (i64, &[u8]) {
    after.map_or((-1, &[]), |key| (direction_number(key.direction), key.path.as_bytes()))
}

fn count(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}

fn seconds(time: u64) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

fn direction_number(direction: TransferDirection) -> i64 {
    match direction {
        TransferDirection::In => 0,
        TransferDirection::Out => 1,
    }
}

impl ToSql for TransferDirection {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(direction_number(*self)))
    }
}

/// The columns of a state: `state`, `time`, `reason`, `text`.
fn state_columns(state: &EntryState) -> (i64, Option<i64>, Option<i64>, Option<&str>) {
    match state {
        EntryState::Queued { ready } => (0, Some(seconds(*ready)), None, None),
        EntryState::Active => (1, None, None, None),
        EntryState::Stopping => (2, None, None, None),
        EntryState::Failed { until, failure } => {
            let reason = match failure.reason {
                FailureReason::NotFound => 0,
                FailureReason::Permanent => 1,
                // An entry does not fail for good because of the site or a program that still runs.
                FailureReason::Temporary | FailureReason::Site | FailureReason::InUse => 2,
            };
            (3, Some(seconds(*until)), Some(reason), Some(&failure.text))
        }
    }
}

/// Reads the entry of a row with the [`COLUMNS`], and its number.
fn entry_of(row: &Row<'_>) -> Result<(i64, TransferEntry), StoreError> {
    let number: i64 = row.get(12)?;
    let invalid = |reason: &str| StoreError::Row { number, reason: reason.to_owned() };
    let text = |column: usize| Ok::<Arc<str>, StoreError>(Arc::from(row.get::<_, String>(column)?));
    let time = |column: usize| -> Result<u64, StoreError> {
        u64::try_from(row.get::<_, i64>(column)?).map_err(|_| invalid("negative time"))
    };
    let state = match row.get::<_, i64>(8)? {
        0 => EntryState::Queued { ready: time(9)? },
        1 => EntryState::Active,
        2 => EntryState::Stopping,
        _ => {
            let reason = match row.get::<_, i64>(10)? {
                0 => FailureReason::NotFound,
                1 => FailureReason::Permanent,
                _ => FailureReason::Temporary,
            };
            EntryState::Failed { until: time(9)?, failure: CopyFailure { reason, text: text(11)? } }
        }
    };
    let entry = TransferEntry {
        key: key_of(row, 0)?,
        priority: Priority::new(row.get(2)?),
        source: text(3)?,
        id: text(13)?,
        client: text(4)?,
        added: time(5)?,
        tries: row.get(6)?,
        is_anonymous: row.get(7)?,
        state,
    };
    Ok((number, entry))
}

/// Reads a key from two columns of a row.
fn key_of(row: &Row<'_>, first: usize) -> Result<EntryKey, StoreError> {
    let direction =
        if row.get::<_, i64>(first)? == 0 { TransferDirection::In } else { TransferDirection::Out };
    let raw: Vec<u8> = row.get(first + 1)?;
    let path = LogicalPath::parse(&raw).map_err(|error| StoreError::Row {
        number: -1,
        reason: format!("path {:?}: {error:?}", String::from_utf8_lossy(&raw)),
    })?;
    Ok(EntryKey { direction, path })
}

impl EntryStore for SqliteStore {
    type Error = StoreError;

    fn find(&mut self, key: &EntryKey) -> Result<Option<TransferEntry>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM entries WHERE direction = ? AND path = ?");
        let found = self.entry(&sql, params![key.direction, key.path.as_bytes()])?;
        Ok(found.map(|(_, entry)| entry))
    }

    fn put(&mut self, entry: &TransferEntry) -> Result<(), StoreError> {
        let (state, time, reason, text) = state_columns(&entry.state);
        let sql = "INSERT INTO entries (direction, path, priority, source, client, added, tries, anonymous,
                state, time, reason, text, id)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            ON CONFLICT (direction, path) DO UPDATE SET priority = excluded.priority, source = excluded.source,
                client = excluded.client, added = excluded.added, tries = excluded.tries,
                anonymous = excluded.anonymous, state = excluded.state, time = excluded.time,
                reason = excluded.reason, text = excluded.text, id = excluded.id";
        let values = params![
            entry.key.direction,
            entry.key.path.as_bytes(),
            entry.priority.number(),
            &*entry.source,
            &*entry.client,
            seconds(entry.added),
            entry.tries,
            entry.is_anonymous,
            state,
            time,
            reason,
            text,
            &*entry.id
        ];
        self.execute(sql, values).map(drop)
    }

    fn remove(&mut self, key: &EntryKey) -> Result<(), StoreError> {
        for table in ["entries", "requests"] {
            let sql = format!("DELETE FROM {table} WHERE direction = ? AND path = ?");
            self.execute(&sql, params![key.direction, key.path.as_bytes()])?;
        }
        Ok(())
    }

    fn next_ready(
        &mut self,
        direction: TransferDirection,
        priority: Priority,
        now: u64,
        full: &[Arc<str>],
    ) -> Result<Option<TransferEntry>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM entries
             WHERE state = 0 AND direction = ? AND priority = ? AND source = ? AND time <= ?
             ORDER BY time, number LIMIT 1"
        );
        let mut best: Option<((u64, i64), TransferEntry)> = None;
        let mut after: Option<Arc<str>> = None;
        while let Some(source) = self.source_after(direction, priority, after.as_deref())? {
            if !full.contains(&source) {
                let values = params![direction, priority.number(), &*source, seconds(now)];
                if let Some((number, entry)) = self.entry(&sql, values)? {
                    let EntryState::Queued { ready } = entry.state else { continue };
                    let order = (ready, number);
                    if best.as_ref().is_none_or(|(other, _)| order < *other) {
                        best = Some((order, entry));
                    }
                }
            }
            after = Some(source);
        }
        Ok(best.map(|(_, entry)| entry))
    }

    fn next_ready_time(&mut self, now: u64) -> Result<Option<u64>, StoreError> {
        let sql = "SELECT min(time) FROM entries WHERE state = 0 AND time > ?";
        let mut statement = self.connection.prepare_cached(sql)?;
        let time = statement.query_row([seconds(now)], |row| row.get::<_, Option<i64>>(0))?;
        Ok(time.and_then(|time| u64::try_from(time).ok()))
    }

    fn add_request(&mut self, request: &RequestId, key: &EntryKey) -> Result<(), StoreError> {
        let sql = "INSERT OR IGNORE INTO requests (request, direction, path) VALUES (?, ?, ?)";
        self.execute(sql, params![&*request.0, key.direction, key.path.as_bytes()]).map(drop)
    }

    fn remove_request(&mut self, request: &RequestId, key: &EntryKey) -> Result<(), StoreError> {
        let sql = "DELETE FROM requests WHERE request = ? AND direction = ? AND path = ?";
        self.execute(sql, params![&*request.0, key.direction, key.path.as_bytes()]).map(drop)
    }

    fn keys_of_request(
        &mut self,
        request: &RequestId,
        after: Option<&EntryKey>,
        most: usize,
    ) -> Result<Vec<EntryKey>, StoreError> {
        let (direction, path) = bounds(after);
        let sql = "SELECT direction, path FROM requests WHERE request = ? AND (direction, path) > (?, ?)
            ORDER BY direction, path LIMIT ?";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params![&*request.0, direction, path, count(most)])?;
        let mut keys = Vec::new();
        while let Some(row) = rows.next()? {
            keys.push(key_of(row, 0)?);
        }
        Ok(keys)
    }

    fn has_requests(&mut self, key: &EntryKey) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM requests WHERE direction = ? AND path = ? LIMIT 1";
        let mut statement = self.connection.prepare_cached(sql)?;
        Ok(statement.exists(params![key.direction, key.path.as_bytes()])?)
    }

    fn recover(&mut self, now: u64, deny: u64) -> Result<(), StoreError> {
        let stopping = "DELETE FROM requests WHERE (direction, path) IN
            (SELECT direction, path FROM entries WHERE state = 2)";
        self.execute(stopping, &[])?;
        self.execute("DELETE FROM entries WHERE state = 2", &[])?;
        self.execute("UPDATE entries SET state = 0, time = added WHERE state = 1", &[])?;
        let now_column = seconds(now);
        self.execute("UPDATE entries SET time = ?1 WHERE state = 0 AND time > ?1", params![now_column])?;
        let latest = seconds(now.saturating_add(deny));
        let sql = "UPDATE entries SET time = ? WHERE state = 3 AND time > ?";
        self.execute(sql, params![now_column, latest]).map(drop)
    }

    fn remove_expired(&mut self, now: u64, most: usize) -> Result<usize, StoreError> {
        // A failed entry has no requests.
        let sql = "DELETE FROM entries WHERE number IN
            (SELECT number FROM entries WHERE state = 3 AND time <= ? LIMIT ?)";
        self.execute(sql, params![seconds(now), count(most)])
    }
}
