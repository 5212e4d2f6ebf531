//! Rows of the durable queue as entries, and the reverse.

use crate::entry::{
    CopyFailure, EntryKey, EntryState, FailureReason, Priority, TransferDirection, TransferEntry,
};
use base::LogicalPath;
use rusqlite::Row;
use rusqlite::types::{FromSql, ToSql, ToSqlOutput};
use std::sync::Arc;

/// The columns of an entry, in the order in which [`entry_of`] reads them.
pub(crate) const COLUMNS: &str = "direction, path, priority, source, client, added, tries, anonymous, state, time, reason, text, number, id, owner, removes";

/// A row that no version of this program up to this one writes.
pub(crate) struct UnreadableRow {
    pub(crate) number: i64,
    pub(crate) why: String,
}

pub(crate) fn count(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}

pub(crate) fn seconds(time: u64) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

/// Returns the values that compare as less than the keys after `after`.
pub(crate) fn bounds(after: Option<&EntryKey>) -> (i64, &[u8]) {
    after.map_or((-1, &[]), |key| (direction_number(key.direction), key.path.as_bytes()))
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
pub(crate) fn state_columns(state: &EntryState) -> (i64, Option<i64>, Option<i64>, Option<&str>) {
    match state {
        EntryState::Queued { ready } => (0, Some(seconds(*ready)), None, None),
        EntryState::Active => (1, None, None, None),
        EntryState::Stopping => (2, None, None, None),
        EntryState::Failed { until, failure } => {
            let reason = match failure.reason {
                FailureReason::NotFound => 0,
                FailureReason::Permanent => 1,
                // An entry does not fail for good because of the site or a program that still runs.
                FailureReason::Temporary
                | FailureReason::Site
                | FailureReason::InUse
                | FailureReason::Changed => 2,
            };
            (3, Some(seconds(*until)), Some(reason), Some(&failure.text))
        }
    }
}

/// Reads the entry of a row with the [`COLUMNS`], and its number.
pub(crate) fn entry_of(row: &Row<'_>) -> Result<(i64, TransferEntry), UnreadableRow> {
    let number: i64 = row.get(12).map_err(|error| UnreadableRow { number: -1, why: error.to_string() })?;
    let read = || -> Result<TransferEntry, String> {
        Ok(TransferEntry {
            key: key_of(row, 0)?,
            priority: match value::<u8>(row, 2)? {
                number if number <= Priority::MAX => Priority::new(number),
                other => return Err(format!("priority {other}")),
            },
            source: text(row, 3)?,
            id: text(row, 13)?,
            client: text(row, 4)?,
            owner: text(row, 14)?,
            added: time(row, 5)?,
            tries: value(row, 6)?,
            is_anonymous: value(row, 7)?,
            removes: value(row, 15)?,
            state: state_of(row)?,
        })
    };
    read().map(|entry| (number, entry)).map_err(|why| UnreadableRow { number, why })
}

fn state_of(row: &Row<'_>) -> Result<EntryState, String> {
    Ok(match value::<i64>(row, 8)? {
        0 => EntryState::Queued { ready: time(row, 9)? },
        1 => EntryState::Active,
        2 => EntryState::Stopping,
        3 => {
            let reason = match value::<i64>(row, 10)? {
                0 => FailureReason::NotFound,
                1 => FailureReason::Permanent,
                2 => FailureReason::Temporary,
                other => return Err(format!("reason {other}")),
            };
            EntryState::Failed { until: time(row, 9)?, failure: CopyFailure { reason, text: text(row, 11)? } }
        }
        other => return Err(format!("state {other}")),
    })
}

/// Reads a key from two columns of a row.
pub(crate) fn key_of(row: &Row<'_>, first: usize) -> Result<EntryKey, String> {
    let direction = match value::<i64>(row, first)? {
        0 => TransferDirection::In,
        1 => TransferDirection::Out,
        other => return Err(format!("direction {other}")),
    };
    let raw: Vec<u8> = value(row, first + 1)?;
    let path = LogicalPath::parse(&raw)
        .map_err(|error| format!("path {:?}: {error:?}", String::from_utf8_lossy(&raw)))?;
    Ok(EntryKey { direction, path })
}

fn value<T: FromSql>(row: &Row<'_>, column: usize) -> Result<T, String> {
    row.get(column).map_err(|error| error.to_string())
}

fn text(row: &Row<'_>, column: usize) -> Result<Arc<str>, String> {
    value::<String>(row, column).map(Arc::from)
}

fn time(row: &Row<'_>, column: usize) -> Result<u64, String> {
    u64::try_from(value::<i64>(row, column)?).map_err(|_| "negative time".to_owned())
}
