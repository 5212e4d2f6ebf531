//! Lists the durable queue for administrators, beside the thread that owns it.

use crate::entry::{EntryKey, TransferEntry};
use crate::sqlite_rows::{COLUMNS, count, entry_of};
use crate::sqlite_store::{DATABASE, StoreError};
use rusqlite::{Connection, OpenFlags, params};
use std::path::Path;

/// Returns up to `most` transfers of the queue in a directory, in the order of their addition. Rows that
/// cannot be read are left out. Blocks.
pub fn list_queue(directory: &Path, most: usize) -> Result<Vec<TransferEntry>, StoreError> {
    let mut entries = Vec::new();
    visit_rows(directory, most, &mut |entry| entries.push(entry))?;
    Ok(entries)
}

/// Passes all transfers of the queue in a directory to `visit`, in the order of their addition. Rows that
/// cannot be read are left out. Blocks.
pub fn visit_queue(directory: &Path, visit: &mut dyn FnMut(TransferEntry)) -> Result<(), StoreError> {
    visit_rows(directory, usize::MAX, visit)
}

fn visit_rows(directory: &Path, most: usize, visit: &mut dyn FnMut(TransferEntry)) -> Result<(), StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(directory.join(DATABASE), flags)?;
    let sql = format!("SELECT {COLUMNS} FROM entries ORDER BY number LIMIT ?");
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query(params![count(most)])?;
    while let Some(row) = rows.next()? {
        if let Ok((_, entry)) = entry_of(row) {
            visit(entry);
        }
    }
    Ok(())
}

/// Returns one transfer of the queue in a directory. A row that cannot be read counts as missing. Blocks.
pub fn find_transfer(directory: &Path, key: &EntryKey) -> Result<Option<TransferEntry>, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(directory.join(DATABASE), flags)?;
    let sql = format!("SELECT {COLUMNS} FROM entries WHERE direction = ? AND path = ?");
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query(params![key.direction, key.path.as_bytes()])?;
    Ok(rows.next()?.and_then(|row| entry_of(row).ok()).map(|(_, entry)| entry))
}

/// Reports whether there is a queue in a directory.
#[must_use]
pub fn has_queue(directory: &Path) -> bool {
    directory.join(DATABASE).is_file()
}
