//! The search for files that earlier processes have stored. It runs beside the readers, who find their files
//! without it: it only makes the used space known, and removes what was never claimed.

use super::{CacheOrigin, DiskCache};
use crate::CacheKey;
use crate::store::{DecodedState, OWN_DIRECTORY, StoreContext};
use base::LogicalPath;
use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Weak};
use storage::PlainKind;

/// Maximum depth of directories.
const DEPTH_MAX: usize = 64;

/// What was found in a directory.
#[derive(Default)]
struct DirectoryFindings {
    directories: Vec<LogicalPath>,
    files: Vec<(CacheKey, u64)>,
    /// Data without a state file.
    unclaimed: Vec<CacheKey>,
}

impl<O: CacheOrigin> DiskCache<O> {
    /// Starts the search. It ends with the cache.
    pub(super) fn start_scan(self: &Arc<Self>) {
        let (cache, shared) = (Arc::downgrade(self), self.shared.clone());
        self.shared.index.set_searching(true);
        self.shared.runtime.spawn(async move {
            let mut directories = vec![(LogicalPath::root(), 0)];
            while let Some((directory, depth)) = directories.pop() {
                let context = shared.context.clone();
                let looked = shared.on_disk(move || look(&context, &directory)).await;
                let (Some(cache), Some(looked)) = (Weak::upgrade(&cache), looked) else { return };
                let Ok(found) = looked else { continue };
                if depth < DEPTH_MAX {
                    directories.extend(found.directories.into_iter().map(|path| (path, depth + 1)));
                }
                for (key, bytes) in found.files {
                    cache.shared.index.found(&key, bytes);
                }
                for key in found.unclaimed {
                    cache.remove_unclaimed(&key).await;
                }
            }
            shared.index.set_searching(false);
            // What is used is known now.
            shared.removal.notify_one();
        });
    }

    /// Removes data that a cache has left without claiming it, unless it is in use.
    async fn remove_unclaimed(&self, key: &CacheKey) {
        let slot = self.table.slot(key);
        let Ok(open) = slot.try_lock() else { return };
        let (context, of) = (self.shared.context.clone(), key.clone());
        let has_state = move || !matches!(context.load(&of), Ok(None));
        if open.is_none() && self.shared.on_disk(has_state).await == Some(false) {
            self.remove_stored(key).await;
        }
    }
}

/// Looks through a directory.
fn look(context: &StoreContext, directory: &LogicalPath) -> io::Result<DirectoryFindings> {
    let mut found = DirectoryFindings::default();
    let (mut data, mut claimed) = (Vec::new(), HashSet::new());
    for entry in context.disk.list(directory)? {
        let (name, kind) = entry?;
        let Ok(path) = directory.join(&name) else { continue };
        match kind {
            PlainKind::Directory if path.as_bytes() != OWN_DIRECTORY.as_bytes() => {
                found.directories.push(path)
            }
            PlainKind::File => match CacheKey::of_state(&path) {
                Some(key) => {
                    if let Ok(Some(DecodedState::Valid(state))) = context.load(&key) {
                        found.files.push((key.clone(), state.stored_bytes()));
                    }
                    claimed.insert(key);
                }
                None => data.extend(CacheKey::new(&path)),
            },
            PlainKind::Directory | PlainKind::Other => {}
        }
    }
    found.unclaimed = data.into_iter().filter(|key| !claimed.contains(key)).collect();
    found.unclaimed.retain(|key| context.is_unclaimed(key));
    Ok(found)
}
