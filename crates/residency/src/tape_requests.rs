//! Tape requests: many files under one id, whose states stay after their copies have ended.
//!
//! The transfers themselves are entries of the queue, as those of prepare requests are.

use crate::entry::{EntryKey, RequestId, TransferDirection};
use crate::queue::{NO_PLACE, QueueAction, QueueError, Submission, TransferQueue};
use crate::sqlite_rows::{count, seconds};
use crate::sqlite_store::{SqliteStore, StoreError};
use crate::tape_pins::open_reader;
use base::LogicalPath;
use rusqlite::{OptionalExtension as _, Row, params};
use std::path::Path;
use std::sync::Arc;

/// Maximum number of tape requests. One owner has at most as many of them as are free, so there is
/// always room for others. Completed requests of an owner make room for its new ones.
pub const TAPE_REQUESTS_MAX: u64 = 16_384;

/// Maximum size of all tape requests: the bytes of their paths, and [`TAPE_FILE_BYTES`] for each file.
/// It is shared as the number is.
pub const TAPE_BYTES_MAX: u64 = 512 << 20;

/// Bytes that a file of a request counts beside its path.
pub const TAPE_FILE_BYTES: u64 = 256;

/// Seconds for which a completed request is kept, and maximum number of those for which it keeps a file on
/// disk.
pub const TAPE_SECONDS_KEPT: u64 = 7 * 86_400;

/// Bytes of paths after which a page of files ends.
const PAGE_BYTES: usize = 32 << 10;

/// A tape request.
#[derive(Clone, Debug)]
pub struct TapeSubmission {
    /// Its id.
    pub id: RequestId,
    /// See [`crate::TransferEntry::owner`].
    pub owner: Arc<str>,
    /// Its files. A path that is there twice counts once.
    pub files: Vec<SubmittedTapeFile>,
}

/// A file of a tape request.
#[derive(Clone, Debug)]
pub struct SubmittedTapeFile {
    /// The transfer.
    pub submission: Submission,
    /// Seconds for which the file stays on disk.
    pub lifetime: u64,
    /// The need of a transfer.
    pub need: TapeFileNeed,
}

/// The need of a transfer of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TapeFileNeed {
    /// The file is not known to be on disk.
    Transfer,
    /// It is on disk.
    OnDisk,
    /// It is refused, for this reason.
    Refused(String),
}

/// A change of a tape request.
#[derive(Clone, Debug)]
pub enum TapeChange {
    /// Records a request.
    Record(TapeSubmission),
    /// Cancels files. Each of them must be one of the request.
    Cancel(RequestId, Vec<LogicalPath>),
    /// Cancels and removes a request.
    Forget(RequestId),
    /// Ends the time for which a request keeps files on disk. Other paths, and an unknown request, are ignored.
    Release(RequestId, Vec<LogicalPath>),
}

/// The result of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TapeOutcome {
    /// It is durable.
    Done,
    /// The request does not exist.
    Unknown,
    /// This path is not one of the request. Nothing was changed.
    OtherFile(LogicalPath),
    /// The request finds no place, for this reason.
    NoPlace(String),
}

/// The state of a tape request, with a page of its files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TapeRequestStatus {
    /// The time of the request, in seconds since the epoch.
    pub created: u64,
    /// The begin of its first transfer.
    pub started: Option<u64>,
    /// The end of its last one.
    pub completed: Option<u64>,
    /// Files, in the order of their paths.
    pub files: Vec<TapeFileStatus>,
    /// These are the last files.
    pub is_last: bool,
}

/// The state of a file of a tape request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TapeFileStatus {
    /// The path.
    pub path: LogicalPath,
    /// The progress.
    pub progress: TapeFileProgress,
    /// The begin of its transfer, in seconds since the epoch.
    pub started: Option<u64>,
    /// Its end.
    pub finished: Option<u64>,
    /// The reason of a failure.
    pub text: Option<String>,
}

/// The progress of a file of a tape request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TapeFileProgress {
    /// It waits.
    Submitted,
    /// Its copy has begun.
    Started,
    /// It is on disk.
    Completed,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl TapeFileProgress {
    const ALL: [Self; 5] = [Self::Submitted, Self::Started, Self::Completed, Self::Failed, Self::Cancelled];

    fn number(self) -> i64 {
        self as i64
    }
}

/// The result of a change, and the files whose time on disk has changed.
type Applied = (TapeOutcome, Vec<LogicalPath>);

/// Applies a change in a transaction.
pub(crate) fn apply(
    queue: &mut TransferQueue,
    store: &mut SqliteStore,
    change: &TapeChange,
    now: u64,
    actions: &mut Vec<Vec<QueueAction>>,
) -> Result<Applied, QueueError<StoreError>> {
    match change {
        TapeChange::Record(submission) => record(queue, store, submission, now),
        TapeChange::Cancel(id, paths) => Ok((cancel(queue, store, (id, paths), actions)?, Vec::new())),
        TapeChange::Forget(id) => forget(queue, store, id, actions),
        TapeChange::Release(id, paths) => Ok((TapeOutcome::Done, release(store, (id, paths))?)),
    }
}

/// Records a request with all of its files, or nothing.
fn record(
    queue: &mut TransferQueue,
    store: &mut SqliteStore,
    submission: &TapeSubmission,
    now: u64,
) -> Result<Applied, QueueError<StoreError>> {
    let TapeSubmission { id, owner, files } = submission;
    let transfers = files.iter().filter(|file| file.need == TapeFileNeed::Transfer).count() as u64;
    if !queue.has_places(store, owner, transfers)? {
        return Ok((TapeOutcome::NoPlace(NO_PLACE.to_owned()), Vec::new()));
    }
    let bytes = files.iter().map(|file| file.submission.key.path.as_bytes().len() as u64 + TAPE_FILE_BYTES);
    let mut changed = Vec::new();
    if !make_room(store, owner, bytes.clone().sum(), &mut changed)? {
        let text = "too many requests of this client are kept; remove some of them, or try again later";
        return Ok((TapeOutcome::NoPlace(text.to_owned()), Vec::new()));
    }
    let sql = "INSERT INTO tape_requests (request, owner, created, unfinished, bytes) VALUES (?, ?, unixepoch(), 0, ?)";
    store.execute(sql, params![&*id.0, &**owner, seconds(bytes.sum())])?;
    for file in files {
        let path = &file.submission.key.path;
        let (text, is_here) = match &file.need {
            TapeFileNeed::Refused(text) => (Some(text.as_str()), false),
            TapeFileNeed::OnDisk => (None, true),
            TapeFileNeed::Transfer => (None, false),
        };
        if !add_file(store, id, file)? {
            continue;
        }
        if let Some(text) = text {
            end_file(store, (id, path), TapeFileProgress::Failed, Some(text))?;
        } else if is_here {
            end_file(store, (id, path), TapeFileProgress::Completed, None)?;
            changed.extend((file.lifetime > 0).then(|| path.clone()));
        } else if let Some(failure) = queue.refusal(store, &file.submission.key, now)? {
            end_file(store, (id, path), TapeFileProgress::Failed, Some(&failure.text))?;
        } else {
            // There is a place for each of them.
            queue.adopt(store, &file.submission, now)?;
        }
    }
    // The last file that ended has ended the request, unless more files followed.
    let sql = "UPDATE tape_requests SET completed = CASE WHEN unfinished = 0 THEN unixepoch() END WHERE request = ?";
    store.execute(sql, params![&*id.0])?;
    Ok((TapeOutcome::Done, changed))
}

/// Adds a file, unless the request has it already.
fn add_file(store: &mut SqliteStore, id: &RequestId, file: &SubmittedTapeFile) -> Result<bool, StoreError> {
    let sql = "INSERT OR IGNORE INTO tape_files (request, path, state, lifetime) VALUES (?, ?, 0, ?)";
    let (path, lifetime) = (file.submission.key.path.as_bytes(), file.lifetime.min(TAPE_SECONDS_KEPT));
    let is_new = store.execute(sql, params![&*id.0, path, seconds(lifetime)])? > 0;
    if is_new {
        let sql = "UPDATE tape_requests SET unfinished = unfinished + 1 WHERE request = ?";
        store.execute(sql, params![&*id.0])?;
    }
    Ok(is_new)
}

/// Records the end of a file that has not ended.
pub(crate) fn end_file(
    store: &mut SqliteStore,
    (id, path): (&RequestId, &LogicalPath),
    progress: TapeFileProgress,
    text: Option<&str>,
) -> Result<(), StoreError> {
    let sql =
        "UPDATE tape_files SET state = ?3, started = ifnull(started, unixepoch()), finished = unixepoch(),
        text = substr(?4, 1, 500) WHERE request = ?1 AND path = ?2 AND state < 2";
    store.execute(sql, params![&*id.0, path.as_bytes(), progress.number(), text]).map(drop)
}

/// Makes room for a request of an owner, by the removal of its completed ones. Reports whether there is
/// room. If all of them are not enough, none is removed.
///
/// Adds files whose time on disk has changed to `changed`.
fn make_room(
    store: &mut SqliteStore,
    owner: &str,
    bytes: u64,
    changed: &mut Vec<LogicalPath>,
) -> Result<bool, StoreError> {
    let has_room = |store: &mut SqliteStore, (less_requests, less_bytes): (u64, u64)| {
        let (own_requests, own_bytes) = usage(store, owner)?;
        let (requests, all_bytes) = usage(store, "")?;
        let own = (own_requests.saturating_sub(less_requests), own_bytes.saturating_sub(less_bytes));
        let all = (requests.saturating_sub(less_requests), all_bytes.saturating_sub(less_bytes));
        Ok::<_, StoreError>(
            own.0 < TAPE_REQUESTS_MAX.saturating_sub(all.0)
                && own.1.saturating_add(bytes) <= TAPE_BYTES_MAX.saturating_sub(all.1),
        )
    };
    if has_room(store, (0, 0))? {
        return Ok(true);
    }
    let sql = "SELECT count(*), ifnull(sum(bytes), 0) FROM tape_requests
        WHERE owner = ? AND completed IS NOT NULL";
    let completed = two_numbers(store, sql, owner)?;
    if !has_room(store, completed)? {
        return Ok(false);
    }
    loop {
        let sql = "SELECT request FROM tape_requests WHERE owner = ? AND completed IS NOT NULL
            ORDER BY completed LIMIT 1";
        let mut statement = store.connection().prepare_cached(sql)?;
        let oldest: Option<String> = statement.query_row([owner], |row| row.get(0)).optional()?;
        drop(statement);
        let Some(oldest) = oldest else { return Ok(false) };
        changed.append(&mut remove(store, &RequestId(oldest.into()))?);
        if has_room(store, (0, 0))? {
            return Ok(true);
        }
    }
}

fn usage(store: &mut SqliteStore, owner: &str) -> Result<(u64, u64), StoreError> {
    two_numbers(store, "SELECT requests, bytes FROM tape_usage WHERE owner = ?", owner)
}

fn two_numbers(store: &mut SqliteStore, sql: &str, owner: &str) -> Result<(u64, u64), StoreError> {
    let mut statement = store.connection().prepare_cached(sql)?;
    let number = |row: &Row<'_>, column: usize| {
        row.get::<_, i64>(column).map(|number| u64::try_from(number).unwrap_or_default())
    };
    let found = statement.query_row([owner], |row| Ok((number(row, 0)?, number(row, 1)?))).optional()?;
    Ok(found.unwrap_or_default())
}

fn has_request(store: &mut SqliteStore, id: &RequestId) -> Result<bool, StoreError> {
    let mut statement = store.connection().prepare_cached("SELECT 1 FROM tape_requests WHERE request = ?")?;
    Ok(statement.exists([&*id.0])?)
}

fn cancel(
    queue: &mut TransferQueue,
    store: &mut SqliteStore,
    (id, paths): (&RequestId, &[LogicalPath]),
    actions: &mut Vec<Vec<QueueAction>>,
) -> Result<TapeOutcome, QueueError<StoreError>> {
    if !has_request(store, id)? {
        return Ok(TapeOutcome::Unknown);
    }
    for path in paths {
        let sql = "SELECT 1 FROM tape_files WHERE request = ? AND path = ?";
        let has_file = |store: &mut SqliteStore| -> Result<bool, StoreError> {
            Ok(store.connection().prepare_cached(sql)?.exists(params![&*id.0, path.as_bytes()])?)
        };
        if !has_file(store)? {
            return Ok(TapeOutcome::OtherFile(path.clone()));
        }
    }
    for path in paths {
        let key = EntryKey { direction: TransferDirection::In, path: path.clone() };
        actions.push(queue.cancel_one(store, id, key)?.into_iter().collect());
    }
    Ok(TapeOutcome::Done)
}

fn forget(
    queue: &mut TransferQueue,
    store: &mut SqliteStore,
    id: &RequestId,
    actions: &mut Vec<Vec<QueueAction>>,
) -> Result<Applied, QueueError<StoreError>> {
    if !has_request(store, id)? {
        return Ok((TapeOutcome::Unknown, Vec::new()));
    }
    loop {
        let (stops, is_more) = queue.cancel(store, id)?;
        actions.push(stops);
        if !is_more {
            break;
        }
    }
    Ok((TapeOutcome::Done, remove(store, id)?))
}

/// Removes a request. Returns the files that it has kept on disk.
fn remove(store: &mut SqliteStore, id: &RequestId) -> Result<Vec<LogicalPath>, StoreError> {
    let sql = "SELECT path FROM tape_files WHERE request = ? AND lifetime > 0 AND state = 2";
    let mut statement = store.connection().prepare_cached(sql)?;
    let rows = statement.query_map([&*id.0], |row| row.get::<_, Vec<u8>>(0))?;
    let paths = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    drop(statement);
    store.execute("DELETE FROM tape_requests WHERE request = ?", params![&*id.0])?;
    // Only valid paths are recorded.
    Ok(paths.iter().filter_map(|path| LogicalPath::parse(path).ok()).collect())
}

/// Ends the time for which a request keeps files on disk. Returns those that it had kept.
fn release(
    store: &mut SqliteStore,
    (id, paths): (&RequestId, &[LogicalPath]),
) -> Result<Vec<LogicalPath>, StoreError> {
    let mut released = Vec::new();
    for path in paths {
        let sql = "UPDATE tape_files SET lifetime = 0 WHERE request = ? AND path = ? AND lifetime > 0";
        if store.execute(sql, params![&*id.0, path.as_bytes()])? > 0 {
            released.push(path.clone());
        }
    }
    Ok(released)
}

/// Reports whether requests keep a file whose transfer they wait for.
pub(crate) fn keeps(store: &mut SqliteStore, key: &EntryKey) -> Result<bool, StoreError> {
    if key.direction != TransferDirection::In {
        return Ok(false);
    }
    let sql = "SELECT 1 FROM requests JOIN tape_files USING (request, path)
        WHERE direction = 0 AND path = ? AND lifetime > 0";
    Ok(store.connection().prepare_cached(sql)?.exists([key.path.as_bytes()])?)
}

/// Removes a completed request whose time is over.
pub(crate) fn remove_expired(store: &mut SqliteStore, now: u64) -> Result<(), StoreError> {
    let sql = "DELETE FROM tape_requests WHERE request IN (SELECT request FROM tape_requests
        WHERE completed IS NOT NULL AND completed <= ? ORDER BY completed LIMIT 1)";
    store.execute(sql, params![seconds(now.saturating_sub(TAPE_SECONDS_KEPT))]).map(drop)
}

/// Returns the state of a tape request of the queue in a directory, with up to `most` files, those after
/// `after`; `None` if there is no such request. Blocks, beside the thread of the queue, so that it delays no
/// transfer.
///
/// # Errors
/// The error of the database.
pub fn read_tape_request(
    directory: &Path,
    id: &RequestId,
    after: Option<&LogicalPath>,
    most: usize,
) -> Result<Option<TapeRequestStatus>, StoreError> {
    let connection = open_reader(directory)?;
    // Both queries see the same state.
    connection.execute_batch("BEGIN")?;
    let sql = "SELECT created, started, completed FROM tape_requests WHERE request = ?";
    let found = connection.query_row(sql, [&*id.0], |row| {
        Ok(TapeRequestStatus {
            created: positive(row, 0)?.unwrap_or_default(),
            started: positive(row, 1)?,
            completed: positive(row, 2)?,
            files: Vec::new(),
            is_last: false,
        })
    });
    let Some(mut status) = found.optional()? else { return Ok(None) };
    let sql = "SELECT path, state, started, finished, text FROM tape_files WHERE request = ? AND path > ?
        ORDER BY path LIMIT ?";
    let mut statement = connection.prepare(sql)?;
    let after = after.map_or(&b""[..], LogicalPath::as_bytes);
    let mut rows = statement.query(params![&*id.0, after, count(most)])?;
    let mut bytes = 0;
    status.is_last = loop {
        if status.files.len() >= most || bytes >= PAGE_BYTES {
            break false;
        }
        let Some(row) = rows.next()? else { break true };
        // Only valid paths are recorded.
        let Ok(path) = LogicalPath::parse(&row.get::<_, Vec<u8>>(0)?) else { continue };
        let state = usize::try_from(row.get::<_, i64>(1)?).ok();
        let progress = state.and_then(|state| TapeFileProgress::ALL.get(state).copied());
        status.files.push(TapeFileStatus {
            path,
            progress: progress.unwrap_or(TapeFileProgress::Failed),
            started: positive(row, 2)?,
            finished: positive(row, 3)?,
            text: row.get(4)?,
        });
        bytes += status.files.last().map_or(0, |file| file.path.as_bytes().len());
    };
    Ok(Some(status))
}

fn positive(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<u64>> {
    Ok(row.get::<_, Option<i64>>(column)?.and_then(|number| number.try_into().ok()))
}
