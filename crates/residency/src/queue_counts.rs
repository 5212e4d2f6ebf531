//! Counts the transfers of the durable queue, beside the thread that owns it.

use crate::sqlite_store::{DATABASE, StoreError};
use rusqlite::{Connection, OpenFlags};
use std::path::Path;

/// Numbers of transfers in one direction, by state.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DirectionCounts {
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
    pub inward: DirectionCounts,
    /// Transfers to mass storage.
    pub outward: DirectionCounts,
}

/// Returns the numbers of transfers of the queue in a directory, as its database keeps them. Blocks, and reads a few
/// rows.
///
/// # Errors
/// The error of the database, also if there is none.
pub fn count_queue(directory: &Path) -> Result<QueueCounts, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(directory.join(DATABASE), flags)?;
    let mut statement = connection.prepare("SELECT direction, state, entries FROM entry_counts")?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite_schema;

    const ENTRIES: &str = "INSERT INTO entries
        (direction, path, priority, source, id, client, added, tries, anonymous, state)
        VALUES (0, X'61', 0, '', '', '', 0, 0, 0, 0), (0, X'62', 0, '', '', '', 0, 0, 0, 0),
               (0, X'63', 0, '', '', '', 0, 0, 0, 3), (1, X'61', 0, '', '', '', 0, 0, 0, 1)";

    #[test]
    fn numbers_of_entries_are_kept_with_them() {
        let path = std::env::temp_dir().join(format!("residency-queue-counts-{}", std::process::id()));
        std::fs::remove_dir_all(&path).ok();
        std::fs::create_dir(&path).unwrap();
        let connection = Connection::open(path.join(DATABASE)).unwrap();
        sqlite_schema::prepare(&connection).unwrap();
        let numbers = |of: DirectionCounts| [of.queued, of.running, of.stopping, of.failed];
        let counts = || {
            let QueueCounts { inward, outward } = count_queue(&path).unwrap();
            (numbers(inward), numbers(outward))
        };
        assert_eq!(counts(), ([0; 4], [0; 4]));
        connection.execute_batch(ENTRIES).unwrap();
        assert_eq!(counts(), ([2, 0, 0, 1], [0, 1, 0, 0]));
        connection.execute_batch("UPDATE entries SET state = 1 WHERE direction = 0 AND state < 3").unwrap();
        connection.execute_batch("UPDATE entries SET state = 2 WHERE path = X'62'").unwrap();
        connection.execute_batch("UPDATE entries SET state = 1 WHERE path = X'61'").unwrap();
        assert_eq!(counts(), ([0, 1, 1, 1], [0, 1, 0, 0]));
        connection.execute_batch("DELETE FROM entries WHERE state IN (2, 3)").unwrap();
        assert_eq!(counts(), ([0, 1, 0, 0], [0, 1, 0, 0]));
        // A later start changes nothing, and a database of an earlier version gets its numbers.
        sqlite_schema::prepare(&connection).unwrap();
        assert_eq!(counts(), ([0, 1, 0, 0], [0, 1, 0, 0]));
        let earlier =
            "DROP TRIGGER entry_counted; DROP TRIGGER entry_discounted; DROP TRIGGER entry_recounted;
                    DROP TABLE entry_counts";
        connection.execute_batch(earlier).unwrap();
        sqlite_schema::prepare(&connection).unwrap();
        assert_eq!(counts(), ([0, 1, 0, 0], [0, 1, 0, 0]));
        drop(connection);
        std::fs::remove_dir_all(&path).unwrap();
    }
}
