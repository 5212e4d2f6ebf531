//! [`RemoteNames`]: cached listings of remote directories, for completion.
//!
//! The prompt waits only briefly. A later reply is cached for the next completion.

use crate::files::Context;
use client::{ListWith, Url};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// Maximum time for which the prompt waits.
const PROMPT_TIMEOUT: Duration = Duration::from_millis(1500);
/// Age from which a cached listing is stale.
const STALE_AFTER: Duration = Duration::from_secs(10);
/// Time after which a request to a silent server is abandoned.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum number of entries of a directory that are offered.
const ENTRIES_MAX: usize = 10_000;

/// An entry: its name, and whether it is a directory.
pub(crate) type Name = (String, bool);

/// Lists directories on another thread and caches the results.
#[derive(Clone)]
pub(crate) struct RemoteNames {
    runtime: Handle,
    /// The context in which commands run now.
    pub(crate) context: Arc<Mutex<Context>>,
    listings: Arc<Mutex<HashMap<String, CachedListing>>>,
}

#[derive(Clone)]
enum CachedListing {
    /// A request is pending since this moment.
    Requested(Instant),
    Listed(Instant, Arc<Vec<Name>>),
}

/// Locks a mutex. The data under a lock is consistent even after a panic.
pub(crate) fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RemoteNames {
    /// Creates an empty cache. `runtime` drives the connections.
    pub(crate) fn new(runtime: Handle, context: Context) -> Self {
        Self { runtime, context: Arc::new(Mutex::new(context)), listings: Arc::default() }
    }

    /// Drops listings that may be stale.
    pub(crate) fn forget(&self) {
        locked(&self.listings).clear();
    }

    /// Returns the entries of a directory, if they arrive within the time limit.
    pub(crate) fn of(&self, directory: &Url) -> Arc<Vec<Name>> {
        let key = directory.to_string();
        match locked(&self.listings).get(&key) {
            Some(CachedListing::Listed(when, names)) if when.elapsed() < STALE_AFTER => return names.clone(),
            Some(CachedListing::Requested(when)) if when.elapsed() < REQUEST_TIMEOUT => {
                return Arc::default();
            }
            _ => {}
        }
        let requested_at = Instant::now();
        locked(&self.listings).insert(key.clone(), CachedListing::Requested(requested_at));
        let (sender, receiver) = mpsc::channel();
        let (listings, directory) = (self.listings.clone(), directory.clone());
        let fs = locked(&self.context).client.file_system(&directory);
        self.runtime.spawn(async move {
            let with = ListWith { stat: true, ..ListWith::default() };
            let listed = tokio::time::timeout(REQUEST_TIMEOUT, fs.list_cluster(&directory.path, &with)).await;
            let Ok(Ok(merged)) = listed else {
                locked(&listings).remove(&key);
                return;
            };
            let is_directory =
                |entry: &client::RemoteEntry| entry.stat.as_ref().is_some_and(|stat| stat.is_dir());
            let named = merged.entries.iter().filter(|entry| entry.name.component().is_ok());
            let names = named.take(ENTRIES_MAX);
            let names: Arc<Vec<Name>> =
                Arc::new(names.map(|entry| (entry.name.to_string(), is_directory(&entry))).collect());
            // A listing that was dropped meanwhile may be stale, so the reply is not cached.
            let mut listings = locked(&listings);
            if matches!(listings.get(&key), Some(CachedListing::Requested(when)) if *when == requested_at) {
                listings.insert(key, CachedListing::Listed(Instant::now(), names.clone()));
            }
            sender.send(names).ok();
        });
        receiver.recv_timeout(PROMPT_TIMEOUT).unwrap_or_default()
    }
}
