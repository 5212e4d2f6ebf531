//! Operations that change the name space: creating and removing directories, removing, renaming,
//! modes, sizes.
//!
//! Every operation claims its names first, because the persist journal, checkpoints and stored
//! checksums have to be updated together with the names.

use crate::checkpoint::CheckpointTable;
use crate::checksum::{ChecksumService, stored};
use crate::config::{CLIENT_MODE_BITS, ModeRules, OWNER_DIRECTORY_BITS, OWNER_FILE_BITS};
use crate::copy_mark;
use crate::copy_withdrawal;
use crate::describe;
use crate::errno::{self, unable};
use crate::events::EventForwarder;
use crate::exports::ExportTable;
use crate::job::{done, on_pool};
use crate::lock::LockUse;
use crate::lookup;
use crate::open_table::OpenTable;
use crate::persist::{ClaimScope, PathClaim, UnfinishedFiles};
use crate::wholeness::{Wholeness, WholenessRule};
use crate::writers::FileKey;
use base::{Error, LogicalPath};
use std::sync::Arc;
use storage::{Backend, ExistingName, ParentCreation};
use vfs::{ReplyTo, Started, Target, Value};

/// Mode of the missing directories that a rename creates, as clients expect it.
const RENAME_PARENT_MODE: u32 = 0o750;

/// The directory below which missing parents may be created, and which must exist; `None` for all.
pub(crate) struct ParentBound(pub(crate) Option<LogicalPath>);

/// The components that operations on names use.
pub(crate) struct NameOperations {
    pub(crate) creation_modes: ModeRules,
    pub(crate) exports: Arc<ExportTable>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) open_table: Arc<OpenTable>,
    pub(crate) persist: Arc<UnfinishedFiles>,
    pub(crate) checkpoints: Arc<CheckpointTable>,
    pub(crate) checksums: Arc<ChecksumService>,
    pub(crate) wholeness: Arc<WholenessRule>,
    pub(crate) events: Arc<EventForwarder>,
}

/// Creates a directory. An existing one with exactly these permission bits is not an error, as
/// clients expect. With `parents`, missing parents are created within this bound.
pub(crate) fn make_directory(
    changes: &Arc<NameOperations>,
    target: Target,
    mode: u32,
    parents: Option<ParentBound>,
    reply: &ReplyTo,
) -> Started {
    if let Err(error) = changes.exports.find_writable(&target.path, "Creating", "mkdir") {
        return done(Err(error));
    }
    on_pool(&changes.backend, changes, target, reply, move |changes, target| {
        let mode = changes.creation_modes.of_directory(mode);
        let path = target.path.without_slash();
        let above = if parents.is_some() {
            changes.events.missing_above(changes.backend.as_ref(), &path)
        } else {
            Vec::new()
        };
        let parents = parents.map(|ParentBound(below)| ParentCreation { mode, below });
        match changes.backend.make_directory(&path, mode, parents.as_ref()) {
            Ok(()) => {
                changes.events.created_parents(&above);
                changes.events.created(&path, false);
                Ok(Value::Nothing)
            }
            Err(error) if error.raw_os_error() == Some(errno::EXISTS) => {
                let there = changes.backend.stat(&path);
                let same = there.is_ok_and(|m| describe::is_directory(&m) && m.mode & 0o777 == mode & 0o777);
                if same { Ok(Value::Nothing) } else { Err(Error::unable("mkdir", &target.path, error)) }
            }
            Err(error) => {
                let refused = parents.and_then(|parents| {
                    lookup::missing_parent(changes.backend.as_ref(), parents.below.as_ref(), &error)
                });
                Err(refused.unwrap_or_else(|| Error::unable("mkdir", &target.path, error)))
            }
        }
    })
}

/// Removes an empty directory. A missing one is not an error, as clients expect.
pub(crate) fn remove_directory(changes: &Arc<NameOperations>, target: Target, reply: &ReplyTo) -> Started {
    if let Err(error) = changes.exports.find_writable(&target.path, "Removing", "remove") {
        return done(Err(error));
    }
    on_pool(&changes.backend, changes, target, reply, |changes, target| {
        let path = target.path.without_slash();
        let removed = changes.backend.remove_directory(&path);
        match removed {
            Err(error) if error.raw_os_error() != Some(errno::NOT_FOUND) => {
                Err(Error::unable("remove", &target.path, error))
            }
            _ => {
                changes.events.removed(&path);
                Ok(Value::Nothing)
            }
        }
    })
}

/// Removes a file, or an empty directory.
pub(crate) fn remove(changes: &Arc<NameOperations>, target: Target, reply: &ReplyTo) -> Started {
    if let Err(error) = changes.exports.find_writable(&target.path, "Removing", "remove") {
        return done(Err(error));
    }
    on_pool(&changes.backend, changes, target, reply, |changes, target| {
        let path = target.path.without_slash();
        if target.path != path {
            lookup::metadata(changes.backend.as_ref(), &target.path, "remove")?;
        }
        let _claim = claim(changes, "remove", &target.path, &[&path], ClaimScope::Name)?;
        let pending = changes.persist.number_at(&path);
        let removed = match changes.backend.remove_file(&path) {
            Err(error) if error.raw_os_error() == Some(errno::IS_A_DIRECTORY) => {
                changes.backend.remove_directory(&path)
            }
            other => other,
        };
        if let Err(error) = removed {
            changes.events.missing(&path, &error);
            return Err(Error::unable("remove", &target.path, error));
        }
        changes.events.removed(&path);
        changes.open_table.locks.disturb(&path);
        changes.persist.forget(pending, &path, changes.backend.as_ref());
        changes.persist.absent().end_removed(&path, changes.backend.as_ref());
        changes.checkpoints.removed(&path);
        Ok(Value::Nothing)
    })
}

/// Claims names, so that other operations do not change them meanwhile.
fn claim<'a>(
    changes: &'a NameOperations,
    verb: &str,
    path: &LogicalPath,
    names: &[&LogicalPath],
    scope: ClaimScope,
) -> Result<PathClaim<'a>, Error> {
    changes.persist.claim(names, scope).ok_or_else(|| unable(verb, path, errno::TEXT_BUSY))
}

/// Renames. Missing parents of the new name are created.
pub(crate) fn rename(
    changes: &Arc<NameOperations>,
    from: Target,
    (to, existing): (Target, ExistingName),
    ParentBound(below): ParentBound,
    reply: &ReplyTo,
) -> Started {
    let checked = changes.exports.find_writable(&from.path, "Renaming", "rename").and_then(|_| {
        let export = changes.exports.find(&to.path, "Renaming to")?;
        if export.is_read_only() { Err(unable("rename", &from.path, errno::READ_ONLY)) } else { Ok(export) }
    });
    if let Err(error) = checked {
        return done(Err(error));
    }
    on_pool(&changes.backend, changes, from, reply, move |changes, from| {
        let source = lookup::metadata(changes.backend.as_ref(), &from.path, "rename")?;
        if to.path != to.path.without_slash() && !describe::is_directory(&source) {
            return Err(unable("rename", &from.path, errno::NOT_A_DIRECTORY));
        }
        let (old, new) = (from.path.without_slash(), to.path.without_slash());
        // Recovery after a crash finds the file of a checkpoint by its name, so it must not change.
        if changes.checkpoints.keeps_names_below(&old) || changes.checkpoints.keeps_names_below(&new) {
            return Err(unable("rename", &from.path, errno::TEXT_BUSY));
        }
        let mode = changes.creation_modes.of_directory(RENAME_PARENT_MODE);
        let parents = ParentCreation { mode, below };
        let fail = |error| Error::unable("rename", &from.path, error);
        let _claim = claim(changes, "rename", &from.path, &[&old, &new], ClaimScope::Tree)?;
        let mark = copy_mark::prepare_rename(changes, (&old, &new), &source)?;
        let moving = changes.persist.moving(&old, &new).map_err(fail)?;
        let above = changes.events.missing_above(changes.backend.as_ref(), &new);
        let replaced = changes.persist.number_at(&new).filter(|_| old != new);
        let renaming = changes.open_table.names.renaming(&old, &new);
        let renamed = changes.backend.rename(&old, &new, existing, Some(&parents)).map_err(|error| {
            lookup::missing_parent(changes.backend.as_ref(), parents.below.as_ref(), &error)
                .unwrap_or_else(|| fail(error))
        });
        if renamed.is_ok() {
            renaming.done();
            if let Some(mark) = mark {
                mark.renamed();
            }
            changes.persist.forget(replaced, &new, changes.backend.as_ref());
            if old != new {
                changes.persist.absent().end_replaced(&new, changes.backend.as_ref());
                changes.persist.absent().move_records(&old, &new, changes.backend.as_ref());
            }
        }
        changes.persist.moved(moving, renamed.is_ok(), changes.backend.as_ref());
        renamed?;
        changes.open_table.locks.disturb(&old);
        changes.open_table.locks.disturb(&new);
        if old != new {
            changes.events.created_parents(&above);
            changes.events.removed(&old);
            changes.events.created(&new, changes.persist.is_pending(&new));
            if describe::is_directory(&source) {
                changes.events.moved(&old, &new);
            }
        }
        Ok(Value::Nothing)
    })
}

/// Sets permission bits.
pub(crate) fn set_mode(changes: &Arc<NameOperations>, target: Target, mode: u32, reply: &ReplyTo) -> Started {
    if let Err(error) = changes.exports.find_writable(&target.path, "Modifying", "change") {
        return done(Err(error));
    }
    on_pool(&changes.backend, changes, target, reply, move |changes, target| {
        let path = target.path.without_slash();
        let _claim = claim(changes, "change", &target.path, &[&path], ClaimScope::Name)?;
        let metadata = lookup::metadata(changes.backend.as_ref(), &target.path, "stat")?;
        // The owner, which is the server without multi-user, needs access to it for later clients.
        let owner = if describe::is_directory(&metadata) { OWNER_DIRECTORY_BITS } else { OWNER_FILE_BITS };
        let mode = (mode | owner) & CLIENT_MODE_BITS;
        // The mark of an unfinished file must survive a change of its mode.
        let pending = changes.wholeness.at(&path, &metadata) != Wholeness::Whole;
        let kept = if pending { metadata.mode & describe::MODE_PENDING } else { 0 };
        changes.backend.set_mode(&path, mode | kept).map_err(|e| Error::unable("change", &target.path, e))?;
        if pending {
            changes.persist.note_mode(&path, mode);
        }
        Ok(Value::Nothing)
    })
}

/// Sets the size of a file by name.
pub(crate) fn truncate(changes: &Arc<NameOperations>, target: Target, size: u64, reply: &ReplyTo) -> Started {
    if let Err(error) = changes.exports.find_writable(&target.path, "Truncating", "trunc") {
        return done(Err(error));
    }
    on_pool(&changes.backend, changes, target, reply, move |changes, target| {
        let path = target.path.without_slash();
        // The name must stay with the same file until its size is set.
        let _claim = claim(changes, "trunc", &target.path, &[&path], ClaimScope::Name)?;
        let metadata = lookup::metadata(changes.backend.as_ref(), &target.path, "trunc")?;
        if describe::is_directory(&metadata) {
            return Err(unable("trunc", &target.path, errno::IS_A_DIRECTORY));
        }
        // A client may have sent a negative size.
        if i64::try_from(size).is_err() {
            return Err(unable("trunc", &target.path, errno::INVALID));
        }
        if changes.checkpoints.is_active(FileKey::from(&metadata)) {
            return Err(unable("trunc", &target.path, errno::TEXT_BUSY));
        }
        let key = FileKey::from(&metadata);
        let blocked = changes.checkpoints.blocked();
        let checked = blocked
            .check_path(&path, true)
            .and_then(|()| blocked.check_file(key, || changes.backend.identity(&path), true));
        checked.map_err(|e| Error::unable("trunc", &target.path, e))?;
        // Counts as a writer meanwhile, so that no checksum is stored or trusted.
        let _lock = changes.open_table.locks.acquire(&path, LockUse::Write, false)?;
        let writer = changes.open_table.writers.add(key);
        if changes.exports.find(&target.path, "Truncating")?.has_copies() {
            let withdrawn = copy_withdrawal::withdraw_at(changes.backend.as_ref(), &path, &writer);
            withdrawn.map_err(|e| copy_mark::cannot_reset("trunc", &target.path, e))?;
        }
        stored::drop_all_of_path(&changes.checksums.memory, changes.backend.as_ref(), &path, writer.key());
        changes.backend.truncate(&path, size).map_err(|e| Error::unable("trunc", &target.path, e))?;
        Ok(Value::Nothing)
    })
}
