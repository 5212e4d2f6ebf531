//! Opens that replace a file when they are closed: the new content is written beside it.
//!
//! The new file persists on close like any other ([`super::pending`]), with a reserved name in the same
//! directory. Its close renames it to the name of the file that it replaces.

use super::plan::{OpenPlan, OpenServices};
use crate::lock::{LockTicket, LockUse};
use crate::wholeness::Wholeness;
use base::{Error, ErrorKind, LogicalPath};
use std::sync::Arc;
use storage::{Metadata, OpenMode};
use vfs::OpenRequest;

/// A file that an open replaces.
pub(super) struct ReplacedFile {
    /// Its path.
    pub(super) path: LogicalPath,
    /// Its status at the open.
    pub(super) metadata: Metadata,
    /// The lock of a reader, so that nobody writes a file that is going to be replaced.
    pub(super) lock: Arc<LockTicket>,
}

/// Returns the plan by which an open writes a replacement; `None` if it does not, because there is no
/// complete file to be kept.
pub(super) fn plan_replacement(opener: &OpenServices, plan: &OpenPlan) -> Result<Option<OpenPlan>, Error> {
    let services = &opener.services;
    if !(plan.request.replace && plan.request.delete) || plan.copy.is_some() {
        return Ok(None);
    }
    let metadata = match services.backend.stat(&plan.plain) {
        Ok(metadata) => metadata,
        Err(error) if storage::is_missing(&error) => return Ok(None),
        Err(error) => return Err(plan.unable(error)),
    };
    super::finish::check_kind(plan, &metadata)?;
    if services.persist.is_pending(&plan.plain)
        || services.wholeness.at(&plan.plain, &metadata) != Wholeness::Whole
    {
        return Ok(None);
    }
    services.check_replaced(&plan.plain, Some(&metadata)).map_err(|e| plan.unable(e))?;
    // A rename needs the right to change the directory only. A client must be able to write the file, too.
    let writing = OpenMode { write: true, ..OpenMode::default() };
    services.backend.open(&plan.plain, &writing).map_err(|e| plan.unable(e))?;
    let lock = services.open_table.locks.acquire(&plan.plain, LockUse::Read, plan.enforce_lock)?;
    let beside = storage::replacement_path(&plan.plain).map_err(|e| plan.unable(e))?;
    let replaces = ReplacedFile { path: plan.plain.clone(), metadata, lock: Arc::new(lock) };
    Ok(Some(OpenPlan {
        plain: beside,
        path: plan.path.clone(),
        write: true,
        creates: true,
        caller: plan.caller.clone(),
        owner: plan.owner,
        cgi: plan.cgi.clone(),
        enforce_lock: true,
        asks_persist: true,
        replaces: Some(replaces),
        copy: None,
        place: None,
        request: OpenRequest { new: false, ..plan.request.clone() },
    }))
}

/// Returns the error of an open while another client replaces the file.
pub(super) fn locked(path: &LogicalPath) -> Error {
    let text = format!("Output file {} is being replaced by another client; open denied.", path.text());
    Error::new(ErrorKind::FileLocked, text)
}

/// Returns the error of an open whose reserved name has a file that is not a replacement.
pub(super) fn foreign(plan: &OpenPlan) -> Error {
    let text = format!(
        "Unable to {} {}; a file of unknown origin has the name that is reserved for its new content: \
         ask the administrator to remove {}",
        plan.verb(),
        plan.path.text(),
        plan.plain.text()
    );
    Error::new(ErrorKind::ItExists, text)
}
