//! The server that uses a cache, if this user may control it, and names of cached files.

use crate::admin::escaped;
use crate::file_owner::become_owner;
use anyhow::Context as _;
use base::LogicalPath;
use cache::{CacheStartError, CacheTree, CacheTreeLock};
use server::admin::{AdminRequest, CacheStatus, ask, running_servers};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// A server that uses a cache.
pub(super) struct CacheServer {
    pub(super) socket: PathBuf,
    /// A description: `pid 4711, port 1094`.
    pub(super) note: String,
    pub(super) status: CacheStatus,
}

/// Returns the server that uses the cache in a directory.
pub(super) fn server_of(directory: &Path) -> Option<CacheServer> {
    let directory = fs::canonicalize(directory).ok()?;
    running_servers().into_iter().find_map(|server| {
        let answer = ask(&server.socket, &AdminRequest::CacheStatus {}).ok()?;
        let status: CacheStatus = serde_json::from_value(answer).ok()?;
        let is_here = fs::canonicalize(&status.directory).is_ok_and(|used| used == directory);
        is_here.then_some(CacheServer { socket: server.socket, note: server.note, status })
    })
}

/// Opens the cache in a directory.
pub(super) fn open(directory: &Path) -> anyhow::Result<CacheTree> {
    CacheTree::open(directory).with_context(|| format!("cannot open {}", directory.display()))
}

/// Parses the name of a cached file or directory, as lists print it.
pub(super) fn path(name: &OsStr) -> anyhow::Result<LogicalPath> {
    let text = escaped(name);
    let path =
        LogicalPath::from_escaped(&text).map_err(|why| anyhow::anyhow!("{text} is not a path: {why}"))?;
    Ok(path.without_slash())
}

/// Locks the cache of a directory that no server uses.
pub(super) fn locked(directory: &Path) -> anyhow::Result<(CacheTree, CacheTreeLock)> {
    become_owner(directory).map_err(anyhow::Error::msg)?;
    let tree = open(directory)?;
    let lock = match tree.lock() {
        Err(CacheStartError::InUse) => anyhow::bail!(
            "a server that this user may not control uses {}; run this as the user of the server",
            directory.display()
        ),
        other => other?,
    };
    Ok((tree, lock))
}
