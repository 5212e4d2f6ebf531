//! Lists the durable queue for administrators, beside the thread that owns it.

use crate::entry::TransferEntry;
use crate::sqlite_rows::{COLUMNS, count, entry_of};
use crate::sqlite_store::{DATABASE, StoreError};
use rusqlite::{Connection, OpenFlags, params};
use std::path::Path;

/// Returns up to `most` transfers of the queue in a directory, in the order of their addition. Rows that
/// cannot be read are left out. Blocks.
pub fn list_queue(directory: &Path, most: usize) -> Result<Vec<TransferEntry>, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(directory.join(DATABASE), flags)?;
    let sql = format!("SELECT {COLUMNS} FROM entries ORDER BY number LIMIT ?");
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query(params![count(most)])?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        entries.extend(entry_of(row).ok().map(|(_, entry)| entry));
    }
    Ok(entries)
}
