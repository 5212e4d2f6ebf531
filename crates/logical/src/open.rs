//! From a name to an open file.
//!
//! Opening a file for reading is answered on the spot when its name is in memory. Everything that creates, truncates or
//! writes goes to the pool.
//!
//! | file | content |
//! |---|---|
//! | `start` | starts an open, by way of the rendezvous if it belongs to a copy between servers |
//! | `plan` | [`Opener`]; a permissible open |
//! | `pending` | files that persist only on successful close |
//! | `finish` | checks a file that was opened, and makes its handle |
//! | `refusals` | answers to opens of files that are not whole |

mod finish;
mod pending;
mod plan;
mod refusals;
mod start;

pub(crate) use plan::{Opener, Plan};
pub(crate) use start::start;

use crate::clone;
use crate::errno::{self, unable};
use crate::job;
use crate::lock::{LockTicket, Use};
use crate::lookup;
use crate::persist::{Admission, Scope};
use crate::wholeness::Wholeness;
use crate::writers::FileKey;
use base::{Error, ErrorKind, LogicalPath};
use finish::{Share, finish, finish_now};
use pending::{create_pending, directories_to_make};
use plan::how;
use std::io;
use std::sync::Arc;
use storage::{Now, OpenHow};
use vfs::{Answer, ReplyTo, Started, Value};

/// Opens a file whose open was found permissible.
pub(crate) fn proceed(opener: &Arc<Opener>, plan: Plan, reply: &ReplyTo) -> Started {
    if !plan.write
        && let Some(answer) = open_now(opener, &plan)
    {
        return Started::Done(answer);
    }
    let (path, inside) = (plan.path.clone(), opener.clone());
    let create = plan.create(opener).ok().flatten();
    job::spawn_at(&opener.services.backend, &path, create, reply, move |place, reply| {
        let plan = Plan { place, ..plan };
        match (open(&inside, &plan), &plan.request.duplicate_of) {
            (Answer::Value(Value::Opened(opened)), Some(template)) => clone::fill(opened, template, reply),
            (answer, _) => reply.send(answer),
        }
    })
}

fn lock(opener: &Opener, plan: &Plan) -> Result<LockTicket, Error> {
    let usage = match (plan.write, plan.request.counts_as_reader) {
        (false, _) => Use::Read,
        (true, true) => Use::WriteAsReader,
        (true, false) => Use::Write,
    };
    opener.services.open_table.locks.acquire(&plan.plain, usage, plan.enforce_lock)
}

/// Opens for reading what is in memory.
fn open_now(opener: &Arc<Opener>, plan: &Plan) -> Option<Answer> {
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
    if opener.services.checkpoints.check_path(&plan.plain, false).is_err() {
        // The refusal looks at the disk.
        return None;
    }
    match opener.services.backend.open_now(&plan.plain, &OpenHow::default()) {
        Now::WouldBlock => None,
        Now::Done(Err(error)) => {
            opener.services.events.missing(&plan.plain, &error);
            Some(Answer::Error(plan.unable(error)))
        }
        Now::Done(Ok(file)) => finish_now(opener, plan, file, lock),
    }
}

/// Opens where blocking is allowed.
pub(crate) fn open(opener: &Arc<Opener>, plan: &Plan) -> Answer {
    if plan.path != plan.plain {
        return Answer::Error(slash_error(opener, plan));
    }
    let claim = if plan.write { opener.services.persist.claim(&[&plan.plain], Scope::Name) } else { None };
    if plan.write && claim.is_none() {
        return Answer::Wait { seconds: 1, text: String::new() };
    }
    let lock = match lock(opener, plan) {
        Ok(lock) => lock,
        Err(error) => return Answer::Error(error),
    };
    if let Err(error) = opener.services.checkpoints.check_path(&plan.plain, plan.write) {
        opener.services.checkpoints.note_file_at(&plan.plain, opener.services.backend.as_ref());
        return Answer::Error(plan.unable(error));
    }
    if !plan.write && opener.services.persist.is_pending(&plan.plain) {
        return refusals::being_created(opener, plan);
    }
    if plan.copy.is_some() && lock.was_disturbed() {
        // Without the lock of the export, two would write one file.
        return Answer::Error(unable(plan.verb(), &plan.path, errno::TEXT_BUSY));
    }
    let must_be_there =
        plan.creates && !plan.request.force && opener.services.persist.has_identified_record(&plan.plain);
    if must_be_there && opener.services.backend.stat(&plan.plain).is_err() {
        return Answer::Error(refusals::absent(plan));
    }
    // What must not exist cannot be resumed.
    let admission = if plan.write && !plan.request.new {
        opener.services.persist.admit(&plan.plain, &plan.caller.identity, plan.asks_persist)
    } else {
        Admission::Free
    };
    match admission {
        Admission::Leaving => return Answer::Wait { seconds: 1, text: String::new() },
        Admission::Busy => return refusals::busy(plan),
        Admission::Resume(ticket) => return pending::resume(opener, plan, lock, ticket),
        Admission::Free => {}
    }
    let persists = plan.copy.is_some() || opener.services.persist.wants(plan.asks_persist, plan.creates);
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
    match found {
        found @ Wholeness::Whole if persists => create_pending(opener, plan, lock, found),
        Wholeness::Whole => plain(opener, plan, lock),
        // Whoever asks for persist on close takes it over, as that of a creator that is known.
        found @ (Wholeness::Marked | Wholeness::Left | Wholeness::Unresolved) if plan.asks_persist => {
            create_pending(opener, plan, lock, found)
        }
        found @ (Wholeness::Left | Wholeness::Unresolved) if plan.creates => {
            create_pending(opener, plan, lock, found)
        }
        found => refusals::unfinished(opener, plan, found),
    }
}

/// The wholeness of what lies at a path and is to be written; nothing is whole too. Fails if a checkpoint blocks the file.
fn found_at(opener: &Opener, path: &LogicalPath) -> io::Result<Wholeness> {
    let Ok(metadata) = opener.services.backend.stat(path) else { return Ok(Wholeness::Whole) };
    let identity = || opener.services.backend.identity(path);
    opener.services.checkpoints.check_file(FileKey::from(&metadata), identity, true)?;
    Ok(opener.wholeness.at(path, &metadata))
}

/// Opens a file for which persist on close plays no part.
fn plain(opener: &Arc<Opener>, plan: &Plan, lock: LockTicket) -> Answer {
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
            return Answer::Error(plan.unable(error));
        }
    };
    if plan.creates {
        opener.services.events.made_above(&above);
        // It is new or was emptied, so it is not the unfinished file of an earlier run.
        opener.services.persist.end_absent_created(&plan.plain, opener.services.backend.as_ref());
    }
    let answer = finish(opener, plan, file, lock, Share::Plain);
    // One that is to be filled is told of when it is.
    if plan.creates && plan.request.duplicate_of.is_none() && matches!(answer, Answer::Value(_)) {
        opener.services.events.made(&plan.plain, false);
    }
    answer
}

/// What is wrong with a name that ends in `/`: it asks for a directory, and a directory cannot be opened.
fn slash_error(opener: &Opener, plan: &Plan) -> Error {
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
