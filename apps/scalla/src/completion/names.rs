//! [`Names`]: what is in the folders of servers, for completion. The prompt waits for it only for a moment; an answer that comes
//! later is there for the next time.

use crate::files::Context;
use client::{ListWith, Url};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// How long the prompt waits.
const PATIENCE: Duration = Duration::from_millis(1500);
/// How long an answer is good for.
const FRESH: Duration = Duration::from_secs(10);
/// A server that is silent for longer is not waited for any more.
const GIVEN_UP: Duration = Duration::from_secs(20);
/// Most entries of a folder that are offered.
const ENTRIES_MAX: usize = 10_000;

/// An entry: its name, and whether it is a folder.
pub(crate) type Name = (String, bool);

/// Asks servers from another thread, and remembers.
#[derive(Clone)]
pub(crate) struct Names {
    runtime: Handle,
    /// What commands run with now.
    pub(crate) context: Arc<Mutex<Context>>,
    known: Arc<Mutex<HashMap<String, Known>>>,
}

#[derive(Clone)]
enum Known {
    /// It was asked for, and there is no answer yet.
    Asked(Instant),
    Told(Instant, Arc<Vec<Name>>),
}

/// What a lock guards is whole even if somebody panicked.
pub(crate) fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Names {
    /// `runtime` drives the connections.
    pub(crate) fn new(runtime: Handle, context: Context) -> Self {
        Self { runtime, context: Arc::new(Mutex::new(context)), known: Arc::default() }
    }

    /// Forgets what may have changed.
    pub(crate) fn forget(&self) {
        locked(&self.known).clear();
    }

    /// What is in a folder, as far as it can be known in a moment.
    pub(crate) fn of(&self, folder: &Url) -> Arc<Vec<Name>> {
        let key = folder.to_string();
        match locked(&self.known).get(&key) {
            Some(Known::Told(when, names)) if when.elapsed() < FRESH => return names.clone(),
            Some(Known::Asked(when)) if when.elapsed() < GIVEN_UP => return Arc::default(),
            _ => {}
        }
        let asked = Instant::now();
        locked(&self.known).insert(key.clone(), Known::Asked(asked));
        let (tell, told) = mpsc::channel();
        let (known, folder) = (self.known.clone(), folder.clone());
        let fs = locked(&self.context).client.file_system(&folder);
        self.runtime.spawn(async move {
            let with = ListWith { stat: true, ..ListWith::default() };
            let listed = tokio::time::timeout(GIVEN_UP, fs.list_everywhere(&folder.path, &with)).await;
            let Ok(Ok(merged)) = listed else {
                locked(&known).remove(&key);
                return;
            };
            let is_folder = |entry: &client::Entry| entry.stat.as_ref().is_some_and(|stat| stat.is_dir());
            let named = merged.entries.iter().filter(|entry| entry.name.component().is_ok());
            let names = named.take(ENTRIES_MAX);
            let names: Arc<Vec<Name>> =
                Arc::new(names.map(|entry| (entry.name.to_string(), is_folder(&entry))).collect());
            // What was forgotten meanwhile may have changed since it was asked for.
            let mut known = locked(&known);
            if matches!(known.get(&key), Some(Known::Asked(when)) if *when == asked) {
                known.insert(key, Known::Told(Instant::now(), names.clone()));
            }
            tell.send(names).ok();
        });
        told.recv_timeout(PATIENCE).unwrap_or_default()
    }
}
