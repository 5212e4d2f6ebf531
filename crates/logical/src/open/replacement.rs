//! Opens that replace a file when they are closed: the new content is written beside it.
//!
//! The new file persists on close like any other ([`super::pending`]), with a reserved name in the same
//! directory. Each open has a name of its own, so no other open ever takes the new file over. Its close
//! renames it to the name of the file that it replaces.

use super::plan::{OpenPlan, OpenServices};
use crate::errno;
use crate::lock::{LockTicket, LockUse};
use crate::proof;
use crate::wholeness::Wholeness;
use base::{Error, LogicalPath};
use std::io;
use std::sync::Arc;
use storage::{Backend, Metadata, OpenMode};
use vfs::OpenRequest;

/// A file that an open replaces.
pub(super) struct ReplacedFile {
    /// Its path.
    pub(super) path: LogicalPath,
    /// Its status at the open.
    pub(super) metadata: Metadata,
    /// So that nobody writes a file that is going to be replaced.
    pub(super) lock: Arc<LockTicket>,
}

/// Returns the plan by which an open writes a replacement; `None` if it does not, because there is no
/// complete file to be kept. To be called under a claim of the name.
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
    let lock = services.open_table.locks.acquire(&plan.plain, LockUse::Replace, plan.enforce_lock)?;
    services.check_replaced(&plan.plain, Some(&metadata)).map_err(|e| plan.unable(e))?;
    // A rename needs the right to change the directory only. A client must be able to write the file, too.
    let writing = OpenMode { write: true, ..OpenMode::default() };
    services.backend.open(&plan.plain, &writing).map_err(|e| plan.unable(e))?;
    let beside = beside(services.backend.as_ref(), &plan.plain).map_err(|e| plan.unable(e))?;
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
        request: OpenRequest { new: true, ..plan.request.clone() },
    }))
}

/// Returns a new name beside a file. Fails where rules of names would store it in another directory, from
/// which a rename might not be possible.
fn beside(backend: &dyn Backend, path: &LogicalPath) -> io::Result<LogicalPath> {
    let beside = storage::replacement_path(path, &proof::nonce())?;
    let above = |path: &LogicalPath| backend.stored_path(path).map(|stored| stored.parent());
    match above(&beside) {
        Ok(stored) if stored == above(path)? => Ok(beside),
        _ => Err(io::Error::from_raw_os_error(errno::UNSUPPORTED)),
    }
}
