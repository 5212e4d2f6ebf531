//! Commands of clients about files in the disk cache.

use crate::cached_origin::{FileCache, cached_path};
use crate::file_system::ProxyFiles;
use base::{ErrorKind, LogicalPath};
use cache::{CacheKey, FileEviction};
use std::sync::Arc;
use vfs::{Answer, CachedFileCommand, Caller, ReplyTo, Started, Target, Value};

/// Starts a command about a cached file. The path must be exported. For a removal it must be writable, and this server
/// must have an authorization, because the origin is not asked.
pub(crate) fn start(
    files: &ProxyFiles,
    caller: &Arc<Caller>,
    (target, command): (Target, CachedFileCommand),
    reply: &ReplyTo,
) -> Started {
    let Some(cache) = files.cache.as_ref().and_then(FileCache::disk).cloned() else {
        return Started::Done(Answer::error(ErrorKind::ArgInvalid, "invalid set parameter"));
    };
    let address = files.config.address(caller, &target, "Setting").and_then(|address| {
        if command != CachedFileCommand::IsCached {
            files.config.check_evictable(&target.path, "Setting")?;
        }
        Ok(address)
    });
    let address = match address {
        Ok(address) => address,
        Err(error) => return Started::Done(Answer::Error(error)),
    };
    let path = cached_path(&address.url, address.is_forwarded);
    let Some(key) = path.as_ref().and_then(CacheKey::new) else {
        return Started::Done(not_cached(command, None));
    };
    let (later, owner, caller) = (reply.defer(), reply.owner(), caller.clone());
    files.runtime().spawn(async move {
        let result = match command {
            CachedFileCommand::IsCached if cache.is_cached(&key, owner).await => FileEviction::Removed,
            CachedFileCommand::IsCached => FileEviction::NotCached,
            CachedFileCommand::Evict => cache.evict_file(&key, false, owner).await,
            CachedFileCommand::EvictOpen => cache.evict_file(&key, true, owner).await,
        };
        if command != CachedFileCommand::IsCached && result == FileEviction::Removed {
            tracing::info!(path = %key.data().shown(), client = %caller.identity, "removed from the cache by a client");
        }
        later.send(match result {
            FileEviction::Removed => Answer::Value(Value::Text(Vec::new())),
            FileEviction::Pinned => Answer::error(ErrorKind::Conflict, "file is pinned in the cache"),
            FileEviction::InUse => Answer::error(ErrorKind::Conflict, "file is in use"),
            FileEviction::NotCached => {
                not_cached(command, cache.has_files_below(key.data()).then_some(key.data()))
            }
            FileEviction::Failed => Answer::error(ErrorKind::IoError, "the disk of the cache has failed"),
        });
    });
    Started::Pending
}

/// Returns the answer about a file that is not cached, or about a directory.
fn not_cached(command: CachedFileCommand, directory: Option<&LogicalPath>) -> Answer {
    match (command, directory) {
        (CachedFileCommand::IsCached, _) => {
            Answer::error(ErrorKind::TimerExpired, "not all of the file is cached")
        }
        (_, Some(directory)) => {
            let text = format!("{} is a directory; name its files", directory.text());
            Answer::error(ErrorKind::ItExists, text)
        }
        (_, None) => Answer::error(ErrorKind::NotFound, "file does not exist"),
    }
}
