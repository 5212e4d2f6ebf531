//! Opening files.
//!
//! Opening for reading is answered without waiting if the name is in memory. Opens that create,
//! truncate or write go to the pool, because they wait for the disk.
//!
//! | file | content |
//! |---|---|
//! | `start` | starts an open; an open of a third-party copy goes through the rendezvous |
//! | `plan` | [`OpenServices`]; checks an open and decides how to execute it |
//! | `pending` | files that persist only on successful close |
//! | `finish` | checks an opened file and creates its handle |
//! | `replacement` | files that replace others when they are closed |
//! | `refusals` | errors of opens of unfinished files |

mod finish;
mod pending;
mod plan;
mod refusals;
mod replacement;
mod start;

pub(crate) use plan::{OpenPlan, OpenServices};
pub(crate) use start::start;

use crate::clone;
use crate::errno::{self, unable};
use crate::job;
use crate::lock::{LockTicket, LockUse};
use crate::lookup;
use crate::persist::{Admission, ClaimScope};
use crate::wholeness::Wholeness;
use crate::writers::FileKey;
use base::{Error, ErrorKind, LogicalPath};
use finish::{SharedOpen, finish, finish_now};
use pending::{create_pending, directories_to_make};
use plan::how;
use std::io;
use std::sync::Arc;
use storage::{Now, OpenMode};
use vfs::{Answer, ReplyTo, Started, Value};

/// Opens a file after its request was checked.
pub(crate) fn proceed(opener: &Arc<OpenServices>, plan: OpenPlan, reply: &ReplyTo) -> Started {
    if !plan.write
        && opener.services.rights.are_common()
        && let Some(answer) = open_now(opener, &plan)
    {
        return Started::Done(answer);
    }
    let (path, inside) = (plan.path.clone(), opener.clone());
    let create = plan.create(opener).ok().flatten();
    job::spawn_where_blocking(&opener.services.backend, &path, create, reply, move |place, reply| {
        let plan = OpenPlan { place, ..plan };
        match (open(&inside, &plan), &plan.request.duplicate_of) {
            (Answer::Value(Value::Opened(opened)), Some(template)) => clone::fill(opened, template, reply),
            (answer, _) => reply.send(answer),
        }
    })
}

fn lock(opener: &OpenServices, plan: &OpenPlan) -> Result<LockTicket, Error> {
    let usage = match (plan.write, plan.request.counts_as_reader) {
        (false, _) => LockUse::Read,
        (true, true) => LockUse::WriteAsReader,
        (true, false) => LockUse::Write,
    };
    opener.services.open_table.locks.acquire(&plan.plain, usage, plan.enforce_lock)
}

/// Opens a file for reading if its name is in memory.
fn open_now(opener: &Arc<OpenServices>, plan: &OpenPlan) -> Option<Answer> {
    if plan.path != plan.plain {
        return None;
    }
    let lock = match lock(opener, plan) {
        Ok(lock) => lock,
        Err(error) => return Some(Answer::Error(error)),
    };
    if opener.services.persist.is_pending(&plan.plain) {
        return Some(refusals::being_created(opener, plan));
    }
    if opener.services.checkpoints.blocked().check_path(&plan.plain, false).is_err() {
        // Refusing needs access to the disk.
        return None;
    }
    match opener.services.backend.open_now(&plan.plain, &OpenMode::default()) {
        Now::WouldBlock => None,
        Now::Done(Err(error)) => {
            opener.services.events.missing(&plan.plain, &error);
            Some(Answer::Error(plan.unable(error)))
        }
        Now::Done(Ok(file)) => finish_now(opener, plan, file, lock),
    }
}

/// Opens a file where blocking is allowed.
pub(crate) fn open(opener: &Arc<OpenServices>, plan: &OpenPlan) -> Answer {
    match open_admitted(opener, plan) {
        Answer::Error(error) => job::leased(&plan.path, &error).unwrap_or(Answer::Error(error)),
        answer => answer,
    }
}

fn open_admitted(opener: &Arc<OpenServices>, plan: &OpenPlan) -> Answer {
    if plan.path != plan.plain {
        return Answer::Error(slash_error(opener, plan));
    }
    if let Err(error) = check_reachable(opener, plan) {
        return Answer::Error(error);
    }
    let claim =
        if plan.write { opener.services.persist.claim(&[&plan.plain], ClaimScope::Name) } else { None };
    if plan.write && claim.is_none() {
        return Answer::Wait { seconds: 1, text: String::new() };
    }
    // Decided under the claim, because a complete file may have got the name before.
    match replacement::plan_replacement(opener, plan) {
        Ok(Some(plan)) => open_claimed(opener, &plan),
        Ok(None) => open_claimed(opener, plan),
        Err(error) => Answer::Error(error),
    }
}

/// Opens a file whose name is claimed if it may be written. The claim of a file covers its replacement,
/// whose name nobody else uses.
fn open_claimed(opener: &Arc<OpenServices>, plan: &OpenPlan) -> Answer {
    let lock = match lock(opener, plan) {
        Ok(lock) => lock,
        Err(error) => return Answer::Error(error),
    };
    if let Err(error) = opener.services.checkpoints.blocked().check_path(&plan.plain, plan.write) {
        opener.services.checkpoints.blocked().note_file_at(&plan.plain, opener.services.backend.as_ref());
        return Answer::Error(plan.unable(error));
    }
    if !plan.write && opener.services.persist.is_pending(&plan.plain) {
        return refusals::being_created(opener, plan);
    }
    if plan.copy.is_some() && lock.was_disturbed() {
        // If the export does not enforce locks, two clients would write one file.
        return Answer::Error(unable(plan.verb(), &plan.path, errno::TEXT_BUSY));
    }
    let must_be_there =
        plan.creates && !plan.request.force && opener.services.persist.absent().has_identified(&plan.plain);
    if must_be_there && opener.services.backend.stat(&plan.plain).is_err() {
        return Answer::Error(refusals::absent(plan));
    }
    match admission(opener, plan) {
        Admission::Leaving => return Answer::Wait { seconds: 1, text: String::new() },
        Admission::Busy => return refusals::busy(plan),
        Admission::Resume(ticket) => return pending::resume(opener, plan, lock, ticket),
        Admission::Free => {}
    }
    let persists = plan.copy.is_some()
        || plan.replaces.is_some()
        || opener.services.persist.persists_on_close(plan.asks_persist, plan.creates);
    if !plan.write || plan.request.new {
        return if persists {
            create_pending(opener, plan, lock, Wholeness::Whole)
        } else {
            plain(opener, plan, lock)
        };
    }
    let found = match found_at(opener, &plan.plain) {
        Ok(found) => found,
        Err(error) => return Answer::Error(plan.unable(error)),
    };
    let keeps = plan.request.replace && plan.copy.is_none();
    if keeps && found == Wholeness::Whole && opener.services.backend.stat(&plan.plain).is_ok() {
        // Another program has put it there meanwhile.
        return Answer::Wait { seconds: 1, text: String::new() };
    }
    match found {
        found @ Wholeness::Whole if persists => create_pending(opener, plan, lock, found),
        Wholeness::Whole => plain(opener, plan, lock),
        // An open that requests persist on close takes the file over as its creator.
        found @ (Wholeness::Marked | Wholeness::Left | Wholeness::Unresolved) if plan.asks_persist => {
            create_pending(opener, plan, lock, found)
        }
        found @ (Wholeness::Left | Wholeness::Unresolved) if plan.creates => {
            create_pending(opener, plan, lock, found)
        }
        found => refusals::unfinished(opener, plan, found),
    }
}

/// Checks an open for writing against the unfinished files. An open for a new file never resumes an
/// existing one.
fn admission(opener: &OpenServices, plan: &OpenPlan) -> Admission {
    if !plan.write || plan.request.new {
        return Admission::Free;
    }
    let who = (&plan.caller.identity, opener.services.rights.user());
    opener.services.persist.admit(&plan.plain, who, plan.asks_persist)
}

/// Fails if the client may not look the path up. Otherwise the answers that follow from tables of
/// this server would tell it which files others use.
fn check_reachable(opener: &OpenServices, plan: &OpenPlan) -> Result<(), Error> {
    if opener.services.rights.are_common() {
        return Ok(());
    }
    match opener.services.backend.stat(&plan.plain) {
        Err(error) if !storage::is_missing(&error) => Err(plan.unable(error)),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Decides whether the file at a path is complete; a missing file counts as complete. Fails if a
/// checkpoint blocks the file.
fn found_at(opener: &OpenServices, path: &LogicalPath) -> io::Result<Wholeness> {
    let Ok(metadata) = opener.services.backend.stat(path) else { return Ok(Wholeness::Whole) };
    let identity = || opener.services.backend.identity(path);
    opener.services.checkpoints.blocked().check_file(FileKey::from(&metadata), identity, true)?;
    Ok(opener.services.wholeness.at(path, &metadata))
}

/// Opens a file without persist on close.
fn plain(opener: &Arc<OpenServices>, plan: &OpenPlan, lock: LockTicket) -> Answer {
    let how = match how(opener, plan, plan.request.delete && !plan.request.new, None) {
        Ok(how) => how,
        Err(error) => return Answer::Error(error),
    };
    let above = directories_to_make(opener, plan);
    let file = match opener.services.backend.open(&plan.plain, &how) {
        Ok(file) => file,
        Err(error) => {
            if !plan.creates {
                opener.services.events.missing(&plan.plain, &error);
            }
            return Answer::Error(plan.refused(opener, error));
        }
    };
    if plan.creates {
        opener.services.events.created_parents(&above);
        // The file is new or was truncated, so it is not the unfinished file of an earlier run.
        opener.services.persist.absent().end_created(&plan.plain, opener.services.backend.as_ref());
    }
    let answer = finish(opener, plan, file, lock, SharedOpen::Plain);
    // A file created as a copy is announced after its content was copied.
    if plan.creates && plan.request.duplicate_of.is_none() && matches!(answer, Answer::Value(_)) {
        opener.services.events.created(&plan.plain, false);
    }
    answer
}

/// Returns the error for a name that ends in `/`: such a name is a directory, which cannot be
/// opened.
fn slash_error(opener: &OpenServices, plan: &OpenPlan) -> Error {
    let has_parent =
        || plan.plain.parent().is_none_or(|parent| opener.services.backend.stat(&parent).is_ok());
    match lookup::metadata(opener.services.backend.as_ref(), &plan.path, plan.verb()) {
        Ok(_) if plan.request.new => unable(plan.verb(), &plan.path, errno::EXISTS),
        Ok(_) => unable(plan.verb(), &plan.path, errno::IS_A_DIRECTORY),
        Err(error) if error.kind == ErrorKind::NotFound && plan.creates => {
            let number = match plan.request.make_path || has_parent() {
                true => errno::IS_A_DIRECTORY,
                false => errno::NOT_FOUND,
            };
            unable(plan.verb(), &plan.path, number)
        }
        Err(error) => error,
    }
}
