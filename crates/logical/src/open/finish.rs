//! Checks an opened file and creates its handle. The checks use the open file rather than its path,
//! because the path may lead to another file by now.

use super::plan::{OpenPlan, OpenServices};
use super::refusals;
use crate::access_time::{self, RecordedAccess};
use crate::checksum::stored;
use crate::copy_mark;
use crate::describe::{self, StatView};
use crate::errno::{self, unable};
use crate::handle::LogicalHandle;
use crate::lock::LockTicket;
use crate::open_file::NewFile;
use crate::persist::PendingTicket;
use crate::wholeness::Wholeness;
use crate::writers::{FileKey, WriterTicket};
use base::Error;
use std::sync::Arc;
use storage::{Metadata, Now, StoredFile};
use vfs::{Answer, FileKind, Opened, Value};

/// The role of a handle in persist on close.
pub(super) enum SharedOpen {
    /// None.
    Plain,
    /// A ticket for an unfinished file.
    Pending(PendingTicket),
}

/// Checks an opened file and creates the handle. A marked file can be opened only with a ticket for
/// it.
pub(super) fn finish(
    opener: &Arc<OpenServices>,
    plan: &OpenPlan,
    file: Arc<dyn StoredFile>,
    lock: LockTicket,
    share: SharedOpen,
) -> Answer {
    let metadata = match file.stat().map_err(|e| plan.unable(e)) {
        Ok(metadata) => metadata,
        Err(error) => return Answer::Error(error),
    };
    let key = FileKey::from(&metadata);
    if let Err(error) = opener.services.checkpoints.blocked().check_file(key, || file.identity(), plan.write)
    {
        return Answer::Error(plan.unable(error));
    }
    if matches!(share, SharedOpen::Plain) {
        let found = opener.services.wholeness.of_open(&plan.plain, &metadata, file.as_ref());
        if found != Wholeness::Whole {
            return refusals::unfinished(opener, plan, found);
        }
    }
    finish_whole(opener, plan, file, lock, (&metadata, share)).into()
}

fn finish_whole(
    opener: &Arc<OpenServices>,
    plan: &OpenPlan,
    file: Arc<dyn StoredFile>,
    lock: LockTicket,
    (metadata, share): (&Metadata, SharedOpen),
) -> Result<Value, Error> {
    check_kind(plan, metadata)?;
    if is_access_due(opener, plan, metadata)? {
        access_time::record(opener.services.backend.as_ref(), &plan.plain);
    }
    let stat = match plan.request.stat {
        true => Some(describe::stat(metadata, opener.services.users.as_ref(), view(opener, plan, &share)?)),
        false => None,
    };
    // A new file has no stored checksums, and a truncated one loses them. From here on others do
    // not store a checksum of the file.
    let writer = plan.write.then(|| opener.services.open_table.writers.add(FileKey::from(metadata)));
    if plan.write && opener.exports.find(&plan.path, "Opening")?.keeps_copy_time() {
        // After the writer was added, so that no copy that ends now counts.
        copy_mark::mark_opened(file.as_ref(), (plan.verb(), &plan.path), plan.request.delete)?;
    }
    let mut has_checksums = plan.write && !plan.request.new && stored::has_any(file.as_ref());
    if let Some(writer) = writer.as_ref().filter(|_| has_checksums && plan.request.delete) {
        stored::drop_all(&opener.services.checksums.memory, file.as_ref(), &plan.plain, writer.key());
        has_checksums = false;
    }
    make_handle(opener, plan, metadata, HandleParts { file, lock, writer, share, has_checksums, stat })
}

/// Checks a file that was opened for reading without waiting, and creates the handle; `None` if
/// that would have to wait.
pub(super) fn finish_now(
    opener: &Arc<OpenServices>,
    plan: &OpenPlan,
    file: Arc<dyn StoredFile>,
    lock: LockTicket,
) -> Option<Answer> {
    let metadata = match file.stat_now() {
        Now::WouldBlock => return None,
        Now::Done(Ok(metadata)) => metadata,
        Now::Done(Err(error)) => return Some(Answer::Error(plan.unable(error))),
    };
    if let Err(error) = check_kind(plan, &metadata) {
        return Some(Answer::Error(error));
    }
    match is_access_due(opener, plan, &metadata) {
        Ok(true) => return None,
        Ok(false) => {}
        Err(error) => return Some(Answer::Error(error)),
    }
    if opener.services.checkpoints.blocked().may_contain(FileKey::from(&metadata)) {
        return None;
    }
    let share = SharedOpen::Plain;
    match opener.services.wholeness.now(&plan.plain, &metadata)? {
        Wholeness::Whole => {}
        found => return Some(refusals::unfinished(opener, plan, found)),
    }
    let stat = match (plan.request.stat, view(opener, plan, &share)) {
        (true, Ok(view)) => Some(describe::stat_now(&metadata, opener.services.users.as_ref(), view)?),
        (true, Err(error)) => return Some(Answer::Error(error)),
        (false, _) => None,
    };
    let parts = HandleParts { file, lock, writer: None, share, has_checksums: false, stat };
    Some(make_handle(opener, plan, &metadata, parts).into())
}

/// Reports whether the open is to be recorded as an access to the file, which needs the disk.
fn is_access_due(opener: &OpenServices, plan: &OpenPlan, metadata: &Metadata) -> Result<bool, Error> {
    let interval = opener.exports.find(&plan.path, "Opening")?.access_interval;
    let clock = opener.services.clock.as_ref();
    Ok(interval.is_some_and(|interval| access_time::is_old(metadata, clock, interval)))
}

fn view(opener: &OpenServices, plan: &OpenPlan, share: &SharedOpen) -> Result<StatView, Error> {
    let read_only = opener.exports.find(&plan.path, "Opening")?.is_read_only();
    Ok(StatView { read_only, pending: matches!(share, SharedOpen::Pending(_)) })
}

/// The parts of a new handle.
struct HandleParts {
    file: Arc<dyn StoredFile>,
    lock: LockTicket,
    writer: Option<WriterTicket>,
    share: SharedOpen,
    has_checksums: bool,
    stat: Option<vfs::FileStat>,
}

fn make_handle(
    opener: &Arc<OpenServices>,
    plan: &OpenPlan,
    metadata: &Metadata,
    parts: HandleParts,
) -> Result<Value, Error> {
    let persist = match parts.share {
        SharedOpen::Pending(ticket) => Some(ticket),
        SharedOpen::Plain => None,
    };
    let export = opener.exports.find(&plan.path, "Opening")?;
    let clock = opener.services.clock.as_ref();
    let new = NewFile {
        path: plan.replaces.as_ref().map_or(&plan.plain, |replaced| &replaced.path).clone(),
        key: FileKey::from(metadata),
        caller: plan.caller.clone(),
        owner: plan.owner,
        file: parts.file,
        writer: parts.writer,
        lock: parts.lock,
        persist,
        replaced_lock: plan.replaces.as_ref().map(|replaced| replaced.lock.clone()),
        read_only_export: export.is_read_only(),
        access: export.access_interval.map(|interval| RecordedAccess::now(interval, clock)),
        empty: metadata.size == 0,
        has_checksums: parts.has_checksums,
        has_copies: export.has_copies(),
        pull: plan.copy.as_ref().map(|copy| copy.pull_state.clone()),
        needs_this_server: crate::third_party::is_copy(&plan.cgi),
        offers_copies: opener.third_party.get().is_some(),
    };
    Ok(Value::Opened(Opened {
        file: LogicalHandle::open(&opener.services, new, plan.copy.clone()),
        stat: parts.stat,
    }))
}

pub(super) fn check_kind(plan: &OpenPlan, metadata: &Metadata) -> Result<(), Error> {
    match describe::kind(metadata) {
        FileKind::File => Ok(()),
        FileKind::Directory => Err(unable(plan.verb(), &plan.path, errno::IS_A_DIRECTORY)),
        FileKind::Other => Err(unable(plan.verb(), &plan.path, errno::NOT_A_BLOCK_DEVICE)),
    }
}
