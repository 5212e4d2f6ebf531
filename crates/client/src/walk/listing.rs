//! A directory of one server, and what its server leaves out of a listing with status.

use std::collections::HashSet;

use crate::answers::Entry;
use crate::everywhere::together;
use crate::failure::Error;
use crate::filesystem::{FileSystem, ListWith};
use crate::path::{EntryName, RemotePath};

/// Lists a directory with status, as far as its server does.
pub(super) async fn list_status(server: &FileSystem, path: &str) -> Result<Vec<Entry>, Error> {
    server.list(path, &ListWith { stat: true, ..ListWith::default() }).await
}

/// Lists a directory with status. Entries whose status the server cannot get are without one.
pub(super) async fn list_exactly(server: &FileSystem, path: &RemotePath) -> Result<Vec<Entry>, Error> {
    let plain = ListWith::default();
    let before = server.list(path, &plain).await?;
    let mut entries = list_status(server, path).await?;
    let known: HashSet<EntryName> = entries.iter().map(|entry| entry.name.clone()).collect();
    let mut missing: Vec<Entry> = before.into_iter().filter(|entry| !known.contains(&entry.name)).collect();
    if !missing.is_empty() {
        // What was removed meanwhile is not in a later listing.
        let after = server.list(path, &plain).await?;
        let after: HashSet<EntryName> = after.into_iter().map(|entry| entry.name).collect();
        missing.retain(|entry| after.contains(&entry.name));
    }
    // Some servers end the whole listing at the first such entry, so the others are asked for one by one.
    let ask = |mut entry: Entry| {
        let (server, path) = (server.clone(), entry.name.component().map(|name| path.join(name)));
        async move {
            if let Ok(path) = path {
                entry.stat = server.find(&path).await.ok().flatten();
            }
            entry
        }
    };
    entries.extend(together(missing, ask).await);
    Ok(entries)
}
