//! What changes the name space: directories, removing, renaming, modes, sizes.

use crate::checksum::stored;
use crate::config::{CLIENT_MODE_BITS, OWNER_DIRECTORY_BITS, OWNER_FILE_BITS};
use crate::describe;
use crate::errno::{self, unable};
use crate::job::{done, on_pool};
use crate::lock::Use;
use crate::persist::{Claim, Scope};
use crate::shared::Shared;
use crate::wholeness::Wholeness;
use crate::writers::FileKey;
use base::{Error, LogicalPath};
use std::sync::Arc;
use vfs::{ReplyTo, Started, Target, Value};

/// Directories that a rename makes on the way, as clients know them.
const RENAME_PARENT_MODE: u32 = 0o750;

/// Creates a directory. One that is there with exactly these permission bits is fine, as clients are used to.
pub(crate) fn make_directory(
    shared: &Arc<Shared>,
    target: Target,
    mode: u32,
    parents: bool,
    reply: &ReplyTo,
) -> Started {
    if let Err(error) = shared.exports.find_writable(&target.path, "Creating", "mkdir") {
        return done(Err(error));
    }
    on_pool(&shared.backend, shared, target, reply, move |shared, target| {
        let mode = shared.config.creation_modes().of_directory(mode);
        let path = target.path.without_slash();
        let above =
            if parents { shared.events.missing_above(shared.backend.as_ref(), &path) } else { Vec::new() };
        match shared.backend.make_directory(&path, mode, parents) {
            Ok(()) => {
                shared.events.made_above(&above);
                shared.events.made(&path, false);
                Ok(Value::Nothing)
            }
            Err(error) if error.raw_os_error() == Some(errno::EXISTS) => {
                let there = shared.backend.stat(&path);
                let same = there.is_ok_and(|m| describe::is_directory(&m) && m.mode & 0o777 == mode & 0o777);
                if same { Ok(Value::Nothing) } else { Err(Error::unable("mkdir", &target.path, error)) }
            }
            Err(error) => Err(Error::unable("mkdir", &target.path, error)),
        }
    })
}

/// Removes an empty directory. A missing one is fine, as clients are used to.
pub(crate) fn remove_directory(shared: &Arc<Shared>, target: Target, reply: &ReplyTo) -> Started {
    if let Err(error) = shared.exports.find_writable(&target.path, "Removing", "remove") {
        return done(Err(error));
    }
    on_pool(&shared.backend, shared, target, reply, |shared, target| {
        let path = target.path.without_slash();
        let removed = shared.backend.remove_directory(&path);
        match removed {
            Err(error) if error.raw_os_error() != Some(errno::NOT_FOUND) => {
                Err(Error::unable("remove", &target.path, error))
            }
            _ => {
                shared.events.gone(&path);
                Ok(Value::Nothing)
            }
        }
    })
}

/// Removes a file, or an empty directory.
pub(crate) fn remove(shared: &Arc<Shared>, target: Target, reply: &ReplyTo) -> Started {
    if let Err(error) = shared.exports.find_writable(&target.path, "Removing", "remove") {
        return done(Err(error));
    }
    on_pool(&shared.backend, shared, target, reply, |shared, target| {
        let path = target.path.without_slash();
        if target.path != path {
            shared.metadata(&target.path, "remove")?;
        }
        let _claim = claim(shared, "remove", &target.path, &[&path], Scope::Name)?;
        let pending = shared.persist.number_at(&path);
        let removed = match shared.backend.remove_file(&path) {
            Err(error) if error.raw_os_error() == Some(errno::IS_A_DIRECTORY) => {
                shared.backend.remove_directory(&path)
            }
            other => other,
        };
        if let Err(error) = removed {
            shared.events.missing(&path, &error);
            return Err(Error::unable("remove", &target.path, error));
        }
        shared.events.gone(&path);
        shared.locks.disturb(&path);
        shared.persist.forget(pending);
        shared.persist.end_absent_removed(&path);
        shared.checkpoints.removed(&path);
        Ok(Value::Nothing)
    })
}

/// Keeps others from changing these names meanwhile.
fn claim<'a>(
    shared: &'a Shared,
    verb: &str,
    path: &LogicalPath,
    names: &[&LogicalPath],
    scope: Scope,
) -> Result<Claim<'a>, Error> {
    shared.persist.claim(names, scope).ok_or_else(|| unable(verb, path, errno::TEXT_BUSY))
}

/// Renames. An existing file is replaced, missing parents of the new name are created.
pub(crate) fn rename(shared: &Arc<Shared>, from: Target, to: Target, reply: &ReplyTo) -> Started {
    let checked = shared.exports.find_writable(&from.path, "Renaming", "rename").and_then(|_| {
        let export = shared.export(&to.path, "Renaming to")?;
        if export.is_read_only() { Err(unable("rename", &from.path, errno::READ_ONLY)) } else { Ok(export) }
    });
    if let Err(error) = checked {
        return done(Err(error));
    }
    on_pool(&shared.backend, shared, from, reply, move |shared, from| {
        let source = shared.metadata(&from.path, "rename")?;
        if to.path != to.path.without_slash() && !describe::is_directory(&source) {
            return Err(unable("rename", &from.path, errno::NOT_A_DIRECTORY));
        }
        let (old, new) = (from.path.without_slash(), to.path.without_slash());
        // A checkpoint must find its file again after a crash.
        if shared.checkpoints.keeps_names_below(&old) || shared.checkpoints.keeps_names_below(&new) {
            return Err(unable("rename", &from.path, errno::TEXT_BUSY));
        }
        let parents = Some(shared.config.creation_modes().of_directory(RENAME_PARENT_MODE));
        let fail = |error| Error::unable("rename", &from.path, error);
        let _claim = claim(shared, "rename", &from.path, &[&old, &new], Scope::Tree)?;
        let moving = shared.persist.moving(&old, &new).map_err(fail)?;
        let above = shared.events.missing_above(shared.backend.as_ref(), &new);
        let replaced = shared.persist.number_at(&new).filter(|_| old != new);
        let renamed = shared.backend.rename(&old, &new, parents).map_err(fail);
        if renamed.is_ok() {
            shared.persist.forget(replaced);
            if old != new {
                shared.persist.end_absent_replaced(&new, shared.backend.as_ref());
                shared.persist.move_absent(&old, &new);
            }
        }
        shared.persist.moved(moving, renamed.is_ok(), shared.backend.as_ref());
        renamed?;
        shared.locks.disturb(&old);
        shared.locks.disturb(&new);
        if old != new {
            shared.events.made_above(&above);
            shared.events.gone(&old);
            shared.events.made(&new, shared.persist.is_pending(&new));
            if describe::is_directory(&source) {
                shared.events.moved(&old, &new);
            }
        }
        Ok(Value::Nothing)
    })
}

/// Sets permission bits.
pub(crate) fn set_mode(shared: &Arc<Shared>, target: Target, mode: u32, reply: &ReplyTo) -> Started {
    if let Err(error) = shared.exports.find_writable(&target.path, "Modifying", "change") {
        return done(Err(error));
    }
    on_pool(&shared.backend, shared, target, reply, move |shared, target| {
        let path = target.path.without_slash();
        let _claim = claim(shared, "change", &target.path, &[&path], Scope::Name)?;
        let metadata = shared.metadata(&target.path, "stat")?;
        // Its owner is the server, which must get at it for whoever comes next.
        let owner = if describe::is_directory(&metadata) { OWNER_DIRECTORY_BITS } else { OWNER_FILE_BITS };
        let mode = (mode | owner) & CLIENT_MODE_BITS;
        // The mark of a file that is not yet whole must survive a change of its mode.
        let pending = shared.wholeness.at(&path, &metadata) != Wholeness::Whole;
        let kept = if pending { metadata.mode & describe::MODE_PENDING } else { 0 };
        shared.backend.set_mode(&path, mode | kept).map_err(|e| Error::unable("change", &target.path, e))?;
        if pending {
            shared.persist.note_mode(&path, mode);
        }
        Ok(Value::Nothing)
    })
}

/// Sets the size of a file by name.
pub(crate) fn truncate(shared: &Arc<Shared>, target: Target, size: u64, reply: &ReplyTo) -> Started {
    if let Err(error) = shared.exports.find_writable(&target.path, "Truncating", "trunc") {
        return done(Err(error));
    }
    on_pool(&shared.backend, shared, target, reply, move |shared, target| {
        let path = target.path.without_slash();
        // The name must lead to the same file until its size is set.
        let _claim = claim(shared, "trunc", &target.path, &[&path], Scope::Name)?;
        let metadata = shared.metadata(&target.path, "trunc")?;
        if describe::is_directory(&metadata) {
            return Err(unable("trunc", &target.path, errno::IS_A_DIRECTORY));
        }
        // A client may have sent a negative one.
        if i64::try_from(size).is_err() {
            return Err(unable("trunc", &target.path, errno::INVALID));
        }
        if shared.checkpoints.is_active(FileKey::from(&metadata)) {
            return Err(unable("trunc", &target.path, errno::TEXT_BUSY));
        }
        let key = FileKey::from(&metadata);
        let checkpoints = &shared.checkpoints;
        let checked = checkpoints
            .check_path(&path, true)
            .and_then(|()| checkpoints.check_file(key, || shared.backend.identity(&path), true));
        checked.map_err(|e| Error::unable("trunc", &target.path, e))?;
        // Counts as a writer meanwhile, so that no checksum is stored or believed.
        let _lock = shared.locks.acquire(&path, Use::Write, false)?;
        let writer = shared.writers.add(key);
        stored::drop_all_of_path(&shared.checksums.memory, shared.backend.as_ref(), &path, writer.key());
        shared.backend.truncate(&path, size).map_err(|e| Error::unable("trunc", &target.path, e))?;
        Ok(Value::Nothing)
    })
}
