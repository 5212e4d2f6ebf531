//! Counts the transfers of the durable queue, beside the thread that owns it.

use crate::sqlite_store::{DATABASE, StoreError};
use rusqlite::{Connection, OpenFlags};
use std::path::Path;

/// Numbers of transfers in one direction, by state.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TransferCounts {
    /// Those that wait for their copy.
    pub queued: u64,
    /// Those whose copy runs.
    pub running: u64,
    /// Those that are being cancelled.
    pub stopping: u64,
    /// Those that have failed, for as long as requests for them are refused.
    pub failed: u64,
}

/// Numbers of transfers in a queue.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct QueueCounts {
    /// Transfers from mass storage.
    pub inward: TransferCounts,
    /// Transfers to mass storage.
    pub outward: TransferCounts,
}

/// Counts the transfers of the queue in a directory. Blocks, and reads an index of the whole queue.
///
/// # Errors
/// The error of the database, also if there is none.
pub fn count_queue(directory: &Path) -> Result<QueueCounts, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(directory.join(DATABASE), flags)?;
    let mut statement =
        connection.prepare("SELECT direction, state, COUNT(*) FROM entries GROUP BY direction, state")?;
    let mut rows = statement.query([])?;
    let mut counts = QueueCounts::default();
    while let Some(row) = rows.next()? {
        let (direction, state, number): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let of = if direction == 0 { &mut counts.inward } else { &mut counts.outward };
        let counter = match state {
            0 => &mut of.queued,
            1 => &mut of.running,
            2 => &mut of.stopping,
            _ => &mut of.failed,
        };
        *counter = u64::try_from(number).unwrap_or_default();
    }
    Ok(counts)
}
