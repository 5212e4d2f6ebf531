//! Changes of names that mass storage has too, and listings with its names.
//!
//! The name on disk is changed first, and then that in mass storage: a crash between them brings a removed file
//! or the old name of a renamed one back, and loses nothing. A repeated request finishes a removal.

use crate::errno;
use crate::job;
use crate::staged_files::{StagedServices, is_missing};
use base::{Error, ErrorKind, LogicalPath};
use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vfs::{
    Answer, Caller, DirectoryEntries, DirectoryEntry, FileKind, FileSystem as _, ListDetail, ListingPosition,
    OpenRequest, Operation, ReplyTo, Started, Target, Value,
};

/// Number of names of mass storage in one page of a listing.
const PAGE_NAMES: usize = 1000;

/// Maximum number of bytes of names that all listings keep between their pages.
const KEPT_BYTES_MAX: usize = 256 << 20;

/// Bytes that a name takes beside its own.
const NAME_BYTES: usize = 64;

/// Sends the reply of an operation that was started later.
fn forward(started: Started, obligation: vfs::DeferredReply) {
    match started {
        Started::Done(answer) => obligation.send(answer),
        Started::Pending | Started::Later { .. } => obligation.release(),
    }
}

/// Reports whether a status is that of a file.
fn is_file(answer: &Answer) -> bool {
    matches!(answer, Answer::Value(Value::Stat(stat)) if stat.kind == FileKind::File)
}

fn failed(verb: &str, path: &LogicalPath, what: &str, error: Error) -> Answer {
    let text = format!("Unable to {verb} {}; {what}: {}", path.text(), error.text);
    Answer::Error(Error { text, ..error })
}

/// The part of an error about an order that mass storage has not executed.
const NOT_REMOVED: &str = "it is not removed from mass storage, so it comes back; repeat the request";
const LEFT_THERE: &str =
    "it is not removed from mass storage, so it comes back; the administrator has to remove it there";
const NOT_RENAMED: &str = "it is renamed on disk, but not in mass storage, so the old name comes back";

/// Creates a file that must not exist in mass storage (`check`), or is created there first (`rcreate`).
pub(crate) fn create(
    services: &Arc<StagedServices>,
    caller: &Arc<Caller>,
    (target, request): (Target, Box<OpenRequest>),
    reply: &ReplyTo,
) -> Started {
    let (inside, client, found) = (services.clone(), caller.clone(), target.clone());
    services.start_then(caller, Operation::Stat(found), reply, move |answer, reply| {
        if !is_missing(&answer) {
            return inside.inner.start(&client, Operation::Open(target, request), reply);
        }
        let (pool, owner, again) = (inside.pool.clone(), reply.owner(), reply.clone());
        let work = move |obligation: vfs::DeferredReply| {
            let has_left = || client.is_disconnected();
            if has_left() {
                return obligation.send(job::disconnected_answer());
            }
            if let Err(answer) = prepare_new(&inside, &target.path.without_slash(), &request) {
                return obligation.send(answer);
            }
            // Its next try must not find the file on disk.
            if has_left() {
                return obligation.send(job::disconnected_answer());
            }
            forward(inside.inner.start(&client, Operation::Open(target, request), &again), obligation);
        };
        job::spawn_reply(|job| pool.run(owner, job), reply, work)
    })
}

/// Checks that a file that is created does not exist in mass storage, or creates it there. The configuration refuses both for
/// one export: a repeated open would find the file of the first one. A file that mass storage has is never created again, because that could empty it. Blocks.
fn prepare_new(services: &StagedServices, path: &LogicalPath, request: &OpenRequest) -> Result<(), Answer> {
    let checks = request.new && services.inner.checks(path);
    let exists = || Err(Answer::Error(errno::unable("create", path, errno::EXISTS)));
    match services.stager.remote_status(path) {
        Ok(None) => {}
        Ok(Some(_)) if checks => return exists(),
        Ok(Some(_)) => return Ok(()),
        Err(error) => return Err(failed("create", path, "mass storage cannot be asked", error)),
    }
    if !services.inner.creates_remote(path) || !has_place(services, path, request) {
        return Ok(());
    }
    match services.stager.create_remote(path, request.mode) {
        Ok(()) => Ok(()),
        // Somebody else has created it since.
        Err(error) if error.kind == ErrorKind::ItExists && checks => exists(),
        Err(error) if error.kind == ErrorKind::ItExists => Ok(()),
        Err(error) => Err(failed("create", path, "mass storage does not create it", error)),
    }
}

/// Reports whether a file can be created on disk, as far as its directory shows. Otherwise an empty file would stay in
/// mass storage. Blocks.
fn has_place(services: &StagedServices, path: &LogicalPath, request: &OpenRequest) -> bool {
    let parent = path.parent();
    let is_reserved = path.file_name().is_some_and(|name| name.starts_with(storage::INCOMING_PREFIX));
    // Without a parent it is below the root. A parent that is missing is created for some clients.
    let has_parent = parent.is_none_or(|parent| match services.inner.backend().stat(&parent) {
        Ok(status) => crate::describe::is_directory(&status),
        Err(_) => request.make_path,
    });
    has_parent && !is_reserved
}

/// Removes a file on disk, and then in mass storage. A directory is removed on disk only.
pub(crate) fn remove(
    services: &Arc<StagedServices>,
    caller: &Arc<Caller>,
    target: Target,
    reply: &ReplyTo,
) -> Started {
    let (inside, client, found) = (services.clone(), caller.clone(), target.clone());
    services.start_then(caller, Operation::Stat(found), reply, move |answer, reply| {
        if is_missing(&answer) {
            return on_pool(&inside, reply, move |services| remove_remote_only(services, &target, answer));
        }
        let (services, path) = (inside.clone(), target.path.clone());
        let removal = Operation::Remove(target);
        if !is_file(&answer) {
            return inside.inner.start(&client, removal, reply);
        }
        inside.start_then(&client, removal, reply, move |answer, reply| {
            if !matches!(answer, Answer::Value(_)) {
                return Started::Done(answer);
            }
            on_pool(&services, reply, move |services| {
                let path = path.without_slash();
                // Another client may have created it again, and that file may have been migrated.
                if is_back(services, &path) {
                    return answer;
                }
                // With multi-user, nothing shows later that the file was that of the client.
                let remains = if services.inner.acts_for_users() { LEFT_THERE } else { NOT_REMOVED };
                match services.stager.remove_remote(&path) {
                    Ok(()) => answer,
                    Err(error) => failed("remove", &path, remains, error),
                }
            })
        })
    })
}

/// Reports whether a name that was missing is on disk by now. Blocks.
fn is_back(services: &StagedServices, path: &LogicalPath) -> bool {
    services.inner.backend().stat(path).is_ok()
}

/// Removes a file that is in mass storage only. Blocks.
fn remove_remote_only(services: &StagedServices, target: &Target, missing: Answer) -> Answer {
    // Nothing shows whose file it is.
    if services.inner.acts_for_users() {
        return missing;
    }
    let path = target.path.without_slash();
    match services.stager.remote_status(&path) {
        Ok(Some(status)) if !crate::describe::is_directory(&status) => {}
        Ok(_) => return missing,
        Err(error) => return failed("remove", &path, "mass storage cannot be asked", error),
    }
    if services.inner.is_read_only(&path) {
        return Answer::Error(errno::unable("remove", &path, errno::READ_ONLY));
    }
    if is_back(services, &path) {
        let text = format!("Unable to remove {}; it has just been created or staged", path.text());
        return Answer::error(ErrorKind::Conflict, text);
    }
    tracing::info!(path = %path.shown(), "a client removes a file that is in mass storage only");
    match services.stager.remove_remote(&path) {
        Ok(()) => Answer::Value(Value::Nothing),
        Err(error) => failed("remove", &path, "mass storage does not remove it", error),
    }
}

/// The names of a rename.
pub(crate) struct RenamedTargets {
    pub(crate) from: Target,
    pub(crate) to: Target,
    /// Replace an existing file.
    pub(crate) replace: bool,
    pub(crate) existing_parent: Option<LogicalPath>,
}

/// Renames a file or directory on disk, and then in mass storage.
pub(crate) fn rename(
    services: &Arc<StagedServices>,
    caller: &Arc<Caller>,
    names: RenamedTargets,
    reply: &ReplyTo,
) -> Started {
    let (inside, client, found) = (services.clone(), caller.clone(), names.to.clone());
    services.start_then(caller, Operation::Stat(found), reply, move |answer, reply| {
        let replaces = names.replace && is_file(&answer);
        let found = Operation::Stat(names.from.clone());
        let (services, caller) = (inside.clone(), client.clone());
        inside.start_then(&client, found, reply, move |answer, reply| {
            let (is_missing, replaces) = (is_missing(&answer), replaces && is_file(&answer));
            let (pool, owner, again) = (services.pool.clone(), reply.owner(), reply.clone());
            let work = move |obligation: vfs::DeferredReply| {
                let (from, to) = (names.from.path.without_slash(), names.to.path.without_slash());
                if is_missing {
                    return obligation.send(not_on_disk(&services, &from, answer));
                }
                if !replaces && let Err(answer) = check_vacant(&services, (&from, &to)) {
                    return obligation.send(answer);
                }
                forward(rename_both(&services, &caller, names, &again), obligation);
            };
            job::spawn_reply(|job| pool.run(owner, job), reply, work)
        })
    })
}

/// Checks that mass storage does not have the new name of a file. Blocks.
fn check_vacant(services: &StagedServices, (from, to): (&LogicalPath, &LogicalPath)) -> Result<(), Answer> {
    match services.stager.remote_status(to) {
        Ok(None) => Ok(()),
        Ok(Some(_)) => Err(Answer::Error(errno::unable("rename", to, errno::EXISTS))),
        Err(error) => Err(failed("rename", from, "mass storage cannot be asked", error)),
    }
}

fn rename_both(
    services: &Arc<StagedServices>,
    caller: &Arc<Caller>,
    names: RenamedTargets,
    reply: &ReplyTo,
) -> Started {
    let (inside, from, to) =
        (services.clone(), names.from.path.without_slash(), names.to.path.without_slash());
    let RenamedTargets { from: target, to: new, replace, existing_parent } = names;
    let operation = Operation::Rename { from: target, to: new, replace, existing_parent };
    services.start_then(caller, operation, reply, move |answer, reply| {
        if !matches!(answer, Answer::Value(_)) {
            return Started::Done(answer);
        }
        on_pool(&inside, reply, move |services| match services.stager.rename_remote(&from, &to) {
            // One that was never copied is not there.
            Ok(_) => answer,
            Err(error) => failed("rename", &from, NOT_RENAMED, error),
        })
    })
}

/// Returns the reason why a name that is not on disk is not renamed. Blocks.
///
/// A file that another client creates at the new name meanwhile would hide the renamed one, and replace it.
fn not_on_disk(services: &StagedServices, from: &LogicalPath, missing: Answer) -> Answer {
    if services.inner.acts_for_users() {
        return missing;
    }
    match services.stager.remote_status(from) {
        Ok(Some(_)) => {
            let text =
                format!("Unable to rename {}; it is in mass storage only: stage it first", from.text());
            Answer::error(ErrorKind::FsError, text)
        }
        Ok(None) => missing,
        Err(error) => failed("rename", from, "mass storage cannot be asked", error),
    }
}

fn on_pool(
    services: &Arc<StagedServices>,
    reply: &ReplyTo,
    work: impl FnOnce(&StagedServices) -> Answer + Send + 'static,
) -> Started {
    let (inside, pool) = (services.clone(), services.pool.clone());
    job::spawn_answer(|job| pool.run(reply.owner(), job), reply, move || work(&inside))
}

/// Names in mass storage that were not listed yet.
struct RemoteRest {
    names: BTreeSet<Vec<u8>>,
    /// Their bytes, as part of those of all listings.
    bytes: usize,
    all_bytes: Arc<AtomicUsize>,
}

impl RemoteRest {
    /// Returns an error if all listings keep too many names.
    fn new(names: BTreeSet<Vec<u8>>, all_bytes: &Arc<AtomicUsize>) -> Result<Self, Error> {
        let bytes = names.iter().map(|name| name.len() + NAME_BYTES).sum();
        let before = all_bytes.fetch_add(bytes, Ordering::Relaxed);
        let rest = Self { names, bytes, all_bytes: all_bytes.clone() };
        match before.saturating_add(bytes) <= KEPT_BYTES_MAX {
            true => Ok(rest),
            false => Err(Error::new(ErrorKind::Overloaded, "too many names are being listed")),
        }
    }
}

impl Drop for RemoteRest {
    fn drop(&mut self) {
        self.all_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The position of a listing with the names in mass storage.
struct MergedPosition {
    remote: RemoteRest,
    /// The position on disk; `None` at its end.
    local: Option<Box<dyn ListingPosition>>,
}

impl ListingPosition for MergedPosition {
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Reports whether a listing has names of mass storage.
pub(crate) fn is_merged(position: &dyn ListingPosition) -> bool {
    position.as_any().is::<MergedPosition>()
}

/// Lists a directory on disk, and then the other names in mass storage. They have no status.
pub(crate) fn list(
    services: &Arc<StagedServices>,
    caller: &Arc<Caller>,
    (target, detail): (Target, ListDetail),
    reply: &ReplyTo,
) -> Started {
    let (inside, client, again) = (services.clone(), caller.clone(), reply.clone());
    let (pool, owner) = (services.listings.clone(), reply.owner());
    let work = move |obligation: vfs::DeferredReply| {
        let path = target.path.without_slash();
        let names = inside.stager.remote_names(&path);
        let rest = |names| RemoteRest::new(names, &inside.listed_bytes);
        let remote = match names.and_then(|names| names.map(rest).transpose()) {
            Ok(remote) => remote,
            Err(error) => {
                let answer = failed("list", &path, "mass storage cannot be asked", error);
                return obligation.send(answer);
            }
        };
        let operation = Operation::List(target, detail);
        let started = inside.start_then(&client, operation, &again, move |answer, _| {
            Started::Done(match (remote, answer) {
                (None, answer) => answer,
                (Some(remote), answer) if is_missing(&answer) => page(remote),
                (Some(remote), answer) => merged(remote, answer),
            })
        });
        forward(started, obligation);
    };
    job::spawn_reply(|job| pool.run(owner, job), reply, work)
}

/// Returns the next page of a listing.
pub(crate) fn list_more(
    services: &Arc<StagedServices>,
    caller: &Arc<Caller>,
    position: Box<dyn ListingPosition>,
    reply: &ReplyTo,
) -> Started {
    let Ok(position) = position.into_any().downcast::<MergedPosition>() else {
        let error = errno::unable("read directory", &LogicalPath::root(), errno::INVALID);
        return Started::Done(Answer::Error(error));
    };
    let MergedPosition { remote, local } = *position;
    match local {
        None => Started::Done(page(remote)),
        Some(local) => {
            let next = Operation::ListMore(local);
            services.start_then(caller, next, reply, |answer, _| Started::Done(merged(remote, answer)))
        }
    }
}

/// Removes the names of a page on disk from those in mass storage, which follow it.
fn merged(mut remote: RemoteRest, answer: Answer) -> Answer {
    let Answer::Value(Value::Listing { entries, rest }) = answer else { return answer };
    for entry in entries.iter() {
        remote.names.remove(&entry.name);
    }
    let rest: Option<Box<dyn ListingPosition>> = match rest {
        None if remote.names.is_empty() => None,
        local => Some(Box::new(MergedPosition { remote, local })),
    };
    Answer::Value(Value::Listing { entries, rest })
}

/// Returns a page of names in mass storage.
fn page(mut remote: RemoteRest) -> Answer {
    let mut entries = Vec::new();
    while entries.len() < PAGE_NAMES
        && let Some(name) = remote.names.pop_first()
    {
        entries.push(DirectoryEntry { name, stat: None, checksum: None });
    }
    let more = || Box::new(MergedPosition { remote, local: None }) as Box<dyn ListingPosition>;
    let is_last = entries.len() < PAGE_NAMES;
    let rest = (!is_last).then(more);
    Answer::Value(Value::Listing { entries: DirectoryEntries::from(entries), rest })
}
