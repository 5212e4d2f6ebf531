//! The durable queue: entries in a database of SQLite.
//!
//! One connection writes. The commands that arrived together are one transaction, so each batch
//! costs one sync of the disk. No entry is kept in memory, except the pages that SQLite caches.
//!
//! An administrator can read the database while the server runs: `sqlite3 queue.sqlite`.

use crate::entry::{
    CopyFailure, EntryKey, EntryState, FailedFile, Priority, RequestId, TransferDirection, TransferEntry,
};
use crate::network_file_system::network_file_system;
use crate::notification::RequestNotice;
use crate::sqlite_rows::{COLUMNS, UnreadableRow, bounds, count, entry_of, key_of, seconds, state_columns};
use crate::sqlite_schema::{VERSION, prepare};
use crate::store::{EntryStore, OwnerTurn, QueuePlaces};
use crate::tape_requests::{self, TapeFileProgress};
use rusqlite::types::ToSql;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use storage::PrivateDirectory;
use thiserror::Error;

/// The name of the database in its directory.
pub(crate) const DATABASE: &str = "queue.sqlite";

/// The error of a database.
#[derive(Debug, Error)]
pub enum StoreError {
    /// SQLite reports an error.
    #[error("the queue of transfers: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A row that cannot be read cannot be set aside either.
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
        if result.is_err() {
            self.roll_back();
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

    /// Undoes the changes since [`Self::begin`].
    pub(crate) fn roll_back(&mut self) {
        if !self.connection.is_autocommit() {
            // If this fails, the next transaction cannot begin and reports the error.
            self.connection.execute_batch("ROLLBACK").ok();
        }
    }

    /// Reports whether a request of a record file was taken over.
    pub(crate) fn has_imported_request(&mut self, identity: &[u8]) -> Result<bool, StoreError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM imported_requests WHERE request = ?)";
        Ok(self.connection.prepare_cached(sql)?.query_row([identity], |row| row.get(0))?)
    }

    /// Records that a request of a record file was taken over.
    pub(crate) fn add_imported_request(&mut self, identity: &[u8]) -> Result<(), StoreError> {
        self.execute("INSERT OR IGNORE INTO imported_requests VALUES (?)", params![identity]).map(drop)
    }

    /// Returns up to `most` entries, those after the key `after`, in the order of their keys. Rows that
    /// cannot be read are left out.
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
            entries.extend(entry_of(row).ok().map(|(_, entry)| entry));
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

    /// Returns the number of files that could not be migrated and are refused for now, counted up to
    /// `most`.
    pub fn failed_migrations(&mut self, most: usize) -> Result<usize, StoreError> {
        let sql = "SELECT count(*) FROM (SELECT 1 FROM entries INDEXED BY failed_migrations
            WHERE state = 3 AND direction = 1 LIMIT ?)";
        let mut statement = self.connection.prepare_cached(sql)?;
        let number = statement.query_row(params![count(most)], |row| row.get::<_, i64>(0))?;
        Ok(number.try_into().unwrap_or_default())
    }

    /// Returns up to `most` files of a request that have failed, in the order of their paths.
    pub fn failures_of_request(
        &mut self,
        request: &RequestId,
        most: usize,
    ) -> Result<Vec<FailedFile>, StoreError> {
        let sql = "SELECT path, client, priority, added, text FROM failed_files WHERE request = ?
            ORDER BY path LIMIT ?";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params![&*request.0, count(most)])?;
        let mut files = Vec::new();
        while let Some(row) = rows.next()? {
            files.push(FailedFile {
                path: String::from_utf8_lossy(&row.get::<_, Vec<u8>>(0)?).into_owned(),
                client: row.get(1)?,
                priority: row.get(2)?,
                added: row.get::<_, i64>(3)?.try_into().unwrap_or_default(),
                text: row.get(4)?,
            });
        }
        Ok(files)
    }

    /// Returns the number of entries that wait or run.
    pub fn unfinished(&mut self) -> Result<u64, StoreError> {
        let mut statement = self.connection.prepare_cached("SELECT count(*) FROM entries WHERE state < 3")?;
        Ok(statement.query_row([], |row| row.get::<_, i64>(0))?.try_into().unwrap_or_default())
    }

    /// Returns the first entry of a query. A row that cannot be read is set aside, so that it harms no
    /// other one.
    fn entry(
        &mut self,
        sql: &str,
        values: &[&dyn ToSql],
    ) -> Result<Option<(i64, TransferEntry)>, StoreError> {
        loop {
            let found = {
                let mut statement = self.connection.prepare_cached(sql)?;
                let mut rows = statement.query(values)?;
                rows.next()?.map(entry_of).transpose()
            };
            match found {
                Ok(found) => return Ok(found),
                Err(row) => self.set_aside(row)?,
            }
        }
    }

    /// Moves a row that cannot be read to another table. Requests for its file have failed.
    fn set_aside(&mut self, row: UnreadableRow) -> Result<(), StoreError> {
        let UnreadableRow { number, why } = row;
        let text = format!("the queue has an unreadable row: {why}");
        let columns = "number, direction, path, priority, source, id, client, added, tries, anonymous, state,
            time, reason, text, owner, removes";
        let keep = format!(
            "INSERT INTO unreadable_entries ({columns}, why) SELECT {columns}, ? FROM entries WHERE number = ?"
        );
        self.execute(&keep, params![why, number])?;
        let of_row = "(direction, path) IN (SELECT direction, path FROM entries WHERE number = ?)";
        let fail = format!(
            "INSERT OR REPLACE INTO failed_files (request, direction, path, time, client, priority, added, text)
             SELECT request, direction, path, unixepoch() + 86400, '', 0, unixepoch(), ? FROM requests
             WHERE {of_row}"
        );
        self.execute(&fail, params![text, number])?;
        self.execute(&format!("DELETE FROM requests WHERE {of_row}"), params![number])?;
        if self.execute("DELETE FROM entries WHERE number = ?", params![number])? == 0 {
            return Err(StoreError::Row { number, reason: why });
        }
        tracing::error!(number, why, "a row of the queue of transfers was set aside, in unreadable_entries");
        Ok(())
    }

    /// Records the notifications that a request wants.
    pub(crate) fn add_notice(
        &mut self,
        request: &RequestId,
        notice: &RequestNotice,
    ) -> Result<(), StoreError> {
        let RequestNotice { destinations, on_success, on_failure } = notice;
        let sql =
            "INSERT OR REPLACE INTO notices (request, destinations, success, failure) VALUES (?, ?, ?, ?)";
        self.execute(sql, params![&*request.0, destinations, on_success, on_failure]).map(drop)
    }

    /// Returns the requests for an entry that want notifications.
    pub(crate) fn notices_of_entry(
        &mut self,
        key: &EntryKey,
    ) -> Result<Vec<(RequestId, RequestNotice)>, StoreError> {
        let sql = "SELECT request, destinations, success, failure FROM requests JOIN notices USING (request)
            WHERE direction = ? AND path = ?";
        let mut statement = self.connection.prepare_cached(sql)?;
        let found = statement.query_map(params![key.direction, key.path.as_bytes()], |row| {
            let request: String = row.get(0)?;
            let (destinations, on_success, on_failure) = (row.get(1)?, row.get(2)?, row.get(3)?);
            Ok((RequestId(request.into()), RequestNotice { destinations, on_success, on_failure }))
        })?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    /// Forgets the notifications of a request that has no entry any more, or of all such requests.
    pub(crate) fn forget_notices(&mut self, request: Option<&RequestId>) -> Result<(), StoreError> {
        const UNUSED: &str = "NOT EXISTS (SELECT 1 FROM requests WHERE requests.request = notices.request)";
        match request {
            Some(request) => {
                let sql = format!("DELETE FROM notices WHERE request = ? AND {UNUSED}");
                self.execute(&sql, params![&*request.0]).map(drop)
            }
            None => self.execute(&format!("DELETE FROM notices WHERE {UNUSED}"), &[]).map(drop),
        }
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn execute(&mut self, sql: &str, values: &[&dyn ToSql]) -> Result<usize, StoreError> {
        Ok(self.connection.prepare_cached(sql)?.execute(values)?)
    }

    /// Returns the next source after `after` that has queued entries of this class. One look-up in
    /// the index, however many entries each source has.
    fn source_after(
        &mut self,
        class: (TransferDirection, Priority),
        after: Option<&str>,
    ) -> Result<Option<Arc<str>>, StoreError> {
        let compare = if after.is_some() { ">" } else { ">=" };
        let sql = format!(
            "SELECT source FROM entries WHERE state = 0 AND direction = ? AND priority = ? AND source {compare} ?
             ORDER BY source LIMIT 1"
        );
        let mut statement = self.connection.prepare_cached(&sql)?;
        let values = params![class.0, class.1.number(), after.unwrap_or_default()];
        let source = statement.query_row(values, |row| row.get::<_, String>(0)).optional()?;
        Ok(source.map(Arc::from))
    }

    /// Returns the next owner after `after` that has queued entries of this class and source.
    fn owner_after(
        &mut self,
        class: (TransferDirection, Priority),
        source: &str,
        after: Option<&str>,
    ) -> Result<Option<Arc<str>>, StoreError> {
        let compare = if after.is_some() { ">" } else { ">=" };
        let sql = format!(
            "SELECT owner FROM entries WHERE state = 0 AND direction = ? AND priority = ? AND source = ?
             AND owner {compare} ? ORDER BY owner LIMIT 1"
        );
        let mut statement = self.connection.prepare_cached(&sql)?;
        let values = params![class.0, class.1.number(), source, after.unwrap_or_default()];
        let owner = statement.query_row(values, |row| row.get::<_, String>(0)).optional()?;
        Ok(owner.map(Arc::from))
    }

    /// Returns the entry of a source whose owner has the next turn: whether the turns of all owners
    /// begin anew for it, and its time and number.
    fn ready_of_source(
        &mut self,
        class: (TransferDirection, Priority),
        source: &str,
        now: u64,
        turn: &OwnerTurn<'_>,
    ) -> Result<Option<ReadyEntry>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM entries
             WHERE state = 0 AND direction = ? AND priority = ? AND source = ? AND owner = ? AND time <= ?
             ORDER BY time, number LIMIT 1"
        );
        for is_new_round in [false, true] {
            let mut at: Option<Arc<str>> =
                if is_new_round { None } else { turn.after.map(|owner| owner.to_owned().into()) };
            while let Some(owner) = self.owner_after(class, source, at.as_deref())? {
                if is_new_round && turn.after.is_none_or(|last| &*owner > last) {
                    break;
                }
                if !turn.full.contains(&owner) {
                    let values = params![class.0, class.1.number(), source, &*owner, seconds(now)];
                    if let Some((number, entry)) = self.entry(&sql, values)?
                        && let EntryState::Queued { ready } = entry.state
                    {
                        return Ok(Some(((is_new_round, owner, ready, number), entry)));
                    }
                }
                at = Some(owner);
            }
        }
        Ok(None)
    }
}

/// An entry that can start, and its place in the order of all of them.
type ReadyEntry = ((bool, Arc<str>, u64, i64), TransferEntry);

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
                state, time, reason, text, id, owner, removes)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            ON CONFLICT (direction, path) DO UPDATE SET priority = excluded.priority, source = excluded.source,
                client = excluded.client, added = excluded.added, tries = excluded.tries,
                anonymous = excluded.anonymous, state = excluded.state, time = excluded.time,
                reason = excluded.reason, text = excluded.text, id = excluded.id,
                owner = excluded.owner, removes = excluded.removes";
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
            &*entry.id,
            &*entry.owner,
            entry.removes
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
        turn: &OwnerTurn<'_>,
    ) -> Result<Option<TransferEntry>, StoreError> {
        let class = (direction, priority);
        let mut best: Option<ReadyEntry> = None;
        let mut after: Option<Arc<str>> = None;
        while let Some(source) = self.source_after(class, after.as_deref())? {
            if !full.contains(&source)
                && let Some(found) = self.ready_of_source(class, &source, now, turn)?
                && best.as_ref().is_none_or(|(order, _)| found.0 < *order)
            {
                best = Some(found);
            }
            after = Some(source);
        }
        Ok(best.map(|(_, entry)| entry))
    }

    fn places(&mut self, owner: &str) -> Result<QueuePlaces, StoreError> {
        let number = |connection: &Connection, sql: &str, values: &[&dyn ToSql]| {
            let mut statement = connection.prepare_cached(sql)?;
            let number = statement.query_row(values, |row| row.get::<_, i64>(0)).optional()?;
            Ok::<_, StoreError>(number.unwrap_or_default().try_into().unwrap_or_default())
        };
        Ok(QueuePlaces {
            own: number(&self.connection, "SELECT entries FROM owners WHERE owner = ?", params![owner])?,
            all: number(&self.connection, "SELECT entries FROM totals", &[])?,
        })
    }

    fn fail_requests(
        &mut self,
        entry: &TransferEntry,
        failure: &CopyFailure,
        until: u64,
    ) -> Result<(), StoreError> {
        let sql = "INSERT OR REPLACE INTO failed_files (request, direction, path, time, client, priority, added, text)
            SELECT request, direction, path, ?, ?, ?, ?, ? FROM requests WHERE direction = ? AND path = ?";
        let values = params![
            seconds(until),
            &*entry.client,
            entry.priority.number(),
            seconds(entry.added),
            &*failure.text,
            entry.key.direction,
            entry.key.path.as_bytes()
        ];
        self.execute(sql, values).map(drop)
    }

    fn forget_failures(&mut self, request: &RequestId) -> Result<(), StoreError> {
        self.execute("DELETE FROM failed_files WHERE request = ?", params![&*request.0]).map(drop)
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
        if key.direction == TransferDirection::In {
            // Otherwise the file would count as one that has come.
            tape_requests::end_file(self, (request, &key.path), TapeFileProgress::Cancelled, None)?;
        }
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
        loop {
            let (mut keys, mut unreadable) = (Vec::new(), None);
            {
                let mut statement = self.connection.prepare_cached(sql)?;
                let mut rows = statement.query(params![&*request.0, direction, path, count(most)])?;
                while let Some(row) = rows.next()? {
                    match key_of(row, 0) {
                        Ok(key) => keys.push(key),
                        Err(_) => unreadable = Some((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?)),
                    }
                }
            }
            let Some((direction, path)) = unreadable else { return Ok(keys) };
            tracing::error!(request = &*request.0, "removed a request for a file without a valid path");
            let sql = "DELETE FROM requests WHERE request = ? AND direction = ? AND path = ?";
            self.execute(sql, params![&*request.0, direction, path])?;
        }
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
        let old = "DELETE FROM failed_files WHERE (request, direction, path) IN
            (SELECT request, direction, path FROM failed_files WHERE time <= ? LIMIT ?)";
        self.execute(old, params![seconds(now), count(most)])?;
        tape_requests::remove_expired(self, now)?;
        // A failed entry has no requests.
        let sql = "DELETE FROM entries WHERE number IN
            (SELECT number FROM entries WHERE state = 3 AND time <= ? LIMIT ?)";
        self.execute(sql, params![seconds(now), count(most)])
    }
}
