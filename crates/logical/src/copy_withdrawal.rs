//! Withdraws the copy that a file has in mass storage, before the content of the file changes.
//!
//! The modification time cannot be the only sign of a change: a sync of the data need not write it, so
//! after a power failure a changed file can have the time of its copy. Therefore the attribute is reset,
//! and is on stable storage, before the first change. Only a file with a copy needs that sync.

use crate::copy_mark::names_copy;
use crate::errno;
use crate::writers::WriterTicket;
use base::LogicalPath;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use storage::{Backend, COPY_TIME_ATTRIBUTE, CopyTime, OpenMode, StoredFile};

/// The state of the copy of a file that is open for writing.
pub(crate) struct CopyWithdrawal {
    is_done: AtomicBool,
    /// `None` if the file can have no copy.
    order: Option<Arc<Mutex<()>>>,
}

impl CopyWithdrawal {
    /// Returns the state for a writer of a file; `None` if the file can have no copy.
    pub(crate) fn new(writer: Option<&WriterTicket>) -> Self {
        let order = writer.map(|writer| writer.withdrawal_order().clone());
        Self { is_done: AtomicBool::new(order.is_none()), order }
    }

    /// Reports whether the file may be changed without waiting.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }

    /// Withdraws the copy before the first change through a handle. Blocks.
    pub(crate) fn before_change(&self, file: &dyn StoredFile) -> io::Result<()> {
        let Some(order) = self.order.as_ref().filter(|_| !self.is_done()) else { return Ok(()) };
        // Another handle may have reset the attribute, and its sync may not have ended.
        let _order = order.lock().unwrap_or_else(PoisonError::into_inner);
        withdraw(file)?;
        self.is_done.store(true, Ordering::Release);
        Ok(())
    }
}

/// Withdraws the copy of a file that this writer changes by its path. Blocks.
pub(crate) fn withdraw_at(
    backend: &dyn Backend,
    path: &LogicalPath,
    writer: &WriterTicket,
) -> io::Result<()> {
    let _order = writer.withdrawal_order().lock().unwrap_or_else(PoisonError::into_inner);
    if !may_name_copy(&backend.attribute(path, COPY_TIME_ATTRIBUTE)) {
        return Ok(());
    }
    let how = OpenMode { write: true, ..OpenMode::default() };
    withdraw(backend.open(path, &how)?.as_ref())
}

/// Withdraws the copy of a file. Blocks.
pub(crate) fn withdraw(file: &dyn StoredFile) -> io::Result<()> {
    let former = file.attribute(COPY_TIME_ATTRIBUTE);
    if !may_name_copy(&former) {
        return Ok(());
    }
    if let Err(error) = file.set_attribute(COPY_TIME_ATTRIBUTE, &CopyTime::NEVER.encode(), false)
        && file.remove_attribute(COPY_TIME_ATTRIBUTE).is_err()
    {
        return Err(error);
    }
    file.sync_all().inspect_err(|_| {
        // Otherwise the next attempt would find nothing to do.
        if let Ok(Some(former)) = &former {
            let _ = file.set_attribute(COPY_TIME_ATTRIBUTE, former, false);
        }
    })
}

/// Reports whether the attribute may say that mass storage has a copy. One that cannot be read may.
fn may_name_copy(attribute: &io::Result<Option<Vec<u8>>>) -> bool {
    match attribute {
        Ok(value) => value.as_deref().is_some_and(names_copy),
        Err(error) => error.raw_os_error() != Some(errno::UNSUPPORTED),
    }
}
