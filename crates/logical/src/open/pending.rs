//! Opens files that persist only on successful close, and files with the mark of such a file.
//!
//! The mark and the journal record must reach the disk before the client writes, otherwise a crash
//! could leave half a file that looks complete.

use super::finish::{SharedOpen, check_kind, finish};
use super::plan::{OpenPlan, OpenServices, how};
use crate::config::Durability;
use crate::describe;
use crate::errno::{self, unable};
use crate::events;
use crate::lock::LockTicket;
use crate::persist::{self, PendingTicket};
use crate::wholeness::Wholeness;
use base::{Error, LogicalPath};
use std::io;
use std::sync::Arc;
use storage::{Metadata, OpenMode, StoredFile};
use vfs::Answer;

/// Resumes an unfinished file.
pub(super) fn resume(
    opener: &Arc<OpenServices>,
    plan: &OpenPlan,
    lock: LockTicket,
    ticket: PendingTicket,
) -> Answer {
    let how = OpenMode { write: true, truncate: plan.request.delete, create: None };
    match opener.services.backend.open(&plan.plain, &how) {
        Ok(file) => {
            let answer = finish(opener, plan, file, lock, SharedOpen::Pending(ticket));
            match &answer {
                Answer::Value(_) if plan.request.delete => {
                    opener.services.persist.emptied(ticket);
                    opener
                        .services
                        .persist
                        .note_mode(&plan.plain, opener.creation_modes.of_file(plan.request.mode));
                }
                Answer::Value(_) => {}
                _ => opener.services.persist.retract(ticket),
            }
            answer
        }
        Err(error) if error.raw_os_error() == Some(errno::NOT_FOUND) => {
            // The file was removed without the server.
            cancel(opener, plan, ticket);
            if plan.creates {
                create_pending(opener, plan, lock, Wholeness::Whole)
            } else {
                Answer::Error(plan.unable(error))
            }
        }
        Err(error) => {
            opener.services.persist.retract(ticket);
            Answer::Error(plan.unable(error))
        }
    }
}

/// Creates a file that persists only on successful close, or turns an existing file into one. A
/// file that is to be replaced is truncated. `found`: the state of the existing file.
pub(super) fn create_pending(
    opener: &Arc<OpenServices>,
    plan: &OpenPlan,
    lock: LockTicket,
    found: Wholeness,
) -> Answer {
    let ticket = match reserve(opener, plan) {
        Ok(ticket) => ticket,
        Err(error) => return Answer::Error(error),
    };
    let above = directories_to_make(opener, plan);
    // The file is not truncated at open, because it must have the mark first.
    let opened = how(opener, plan, false, Some(describe::MODE_CREATING))
        .and_then(|how| opener.services.backend.open(&plan.plain, &how).map_err(|e| plan.refused(opener, e)));
    let file = match opened {
        Ok(file) => file,
        Err(error) => {
            cancel(opener, plan, ticket);
            return Answer::Error(error);
        }
    };
    opener.services.events.created_parents(&above);
    let before = file.stat();
    let prepared = match &before {
        Ok(before) => sync_directories(opener, plan, &above)
            .and_then(|()| prepare(opener, plan, ticket, file.as_ref(), before)),
        Err(error) => Err(plan.unable(errno_of(error))),
    };
    let answer = match prepared {
        Ok(()) => finish(opener, plan, file.clone(), lock, SharedOpen::Pending(ticket)),
        Err(error) => Answer::Error(error),
    };
    if matches!(answer, Answer::Value(_)) {
        if plan.replaces.is_none() {
            opener.services.events.created(&plan.plain, true);
        }
    } else {
        undo_create(opener, plan, ticket, file, (before.ok(), found));
    }
    answer
}

fn cancel(opener: &OpenServices, plan: &OpenPlan, ticket: PendingTicket) {
    opener.services.persist.cancel(ticket, &plan.plain, opener.services.backend.as_ref());
}

/// Returns a copy of an error.
fn errno_of(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

/// Removes a file that this same call created, so that no other client can have written to it.
fn discard(opener: &OpenServices, plan: &OpenPlan, file: Arc<dyn StoredFile>) {
    drop(file);
    if let Err(error) = opener.services.backend.remove_file(&plan.plain) {
        tracing::warn!(path = %plan.path.shown(), %error, "cannot remove a file whose creation failed; remove it by hand");
    }
}

/// Undoes the effect of a failed open on its file. `before`: its status before the open; `found`:
/// its state.
fn undo_create(
    opener: &OpenServices,
    plan: &OpenPlan,
    ticket: PendingTicket,
    file: Arc<dyn StoredFile>,
    (before, found): (Option<Metadata>, Wholeness),
) {
    let Some(before) = before.filter(|_| found == Wholeness::Whole) else {
        // Either nothing is known to have changed, or the file stays unfinished as before.
        if plan.request.new {
            discard(opener, plan, file);
        }
        cancel(opener, plan, ticket);
        return;
    };
    if plan.request.new || describe::is_being_created(&before) {
        discard(opener, plan, file);
    } else if file.stat().is_ok_and(|now| now.size == before.size) {
        // The file was not truncated, so it is complete as before.
        if let Err(error) = persist::withdraw(file.as_ref(), &before, opener.services.persist.durability()) {
            tracing::warn!(path = %plan.path.shown(), %error, "cannot remove the mark of an unfinished file after a failed open; run 'scalla admin unfinished clear PATH'");
        }
    } else {
        // The file has lost its content, so it must not look complete.
        opener.services.persist.abandon(ticket, false);
        return;
    }
    cancel(opener, plan, ticket);
}

/// Returns the missing directories that the creation of an unfinished file will create.
pub(super) fn directories_to_make(opener: &OpenServices, plan: &OpenPlan) -> Vec<LogicalPath> {
    if !(plan.creates && plan.request.make_path) {
        return Vec::new();
    }
    events::missing_above(opener.services.backend.as_ref(), &plan.plain)
}

/// Waits until the names of new directories have reached stable storage, so that a file in them
/// survives a power failure after its close.
fn sync_directories(opener: &OpenServices, plan: &OpenPlan, made: &[LogicalPath]) -> Result<(), Error> {
    if opener.services.persist.durability() == Durability::Relaxed {
        return Ok(());
    }
    made.iter().try_for_each(|path| opener.services.backend.sync_name(path)).map_err(|e| plan.unable(e))
}

fn reserve(opener: &OpenServices, plan: &OpenPlan) -> Result<PendingTicket, Error> {
    let mode = match &plan.replaces {
        Some(replaced) => replaced.metadata.mode & describe::MODE_BITS & !describe::MODE_PENDING,
        None => opener.creation_modes.of_file(plan.request.mode),
    };
    let attempt = || {
        let who = (&plan.caller.identity, opener.services.rights.user());
        let replaces = plan.replaces.as_ref().and_then(|replaced| replaced.path.file_name());
        opener.services.persist.reserve((&plan.plain, replaces), who, mode).map_err(|e| plan.unable(e))
    };
    if let Some(ticket) = attempt()? {
        return Ok(ticket);
    }
    // An unfinished file is recorded there, unless it was removed without the server.
    match opener.services.backend.stat(&plan.plain) {
        Err(error) if error.raw_os_error() == Some(errno::NOT_FOUND) => {
            opener.services.persist.forget_unheld(&plan.plain, opener.services.backend.as_ref())
        }
        _ => {}
    }
    let busy = if plan.request.new { errno::EXISTS } else { errno::TEXT_BUSY };
    attempt()?.ok_or_else(|| unable(plan.verb(), &plan.path, busy))
}

/// Marks the file, then truncates it and sets its mode if it is replaced.
fn prepare(
    opener: &OpenServices,
    plan: &OpenPlan,
    ticket: PendingTicket,
    file: &dyn StoredFile,
    before: &Metadata,
) -> Result<(), Error> {
    check_kind(plan, before)?;
    opener
        .services
        .persist
        .mark(ticket, file, before, opener.services.backend.as_ref())
        .map_err(|e| plan.unable(e))?;
    if let Some(replaced) = &plan.replaces {
        // A client learns before it sends the content that the owner cannot be kept.
        return persist::keep_owner(file, &replaced.metadata).map_err(|e| plan.unable(e));
    }
    if !plan.creates {
        return Ok(());
    }
    if before.size > 0 {
        file.truncate(0).map_err(|e| plan.unable(e))?;
    }
    // A replaced file gets the requested mode, which a new file has already.
    let mode = opener.creation_modes.of_file(plan.request.mode);
    if plan.request.delete && before.mode & describe::MODE_BITS & !describe::MODE_PENDING != mode {
        file.set_mode(mode | describe::MODE_PENDING).map_err(|e| plan.unable(e))?;
        opener.services.persist.note_mode(&plan.plain, mode);
    }
    Ok(())
}
