//! [`Merged`]: the listings of a directory at several servers as one.

use std::collections::BTreeMap;

use tokio::task::JoinSet;

use crate::entries::{Entries, ServerListing};
use crate::failure::Error;
use crate::filesystem::{FileSystem, ListWith};
use crate::listing_memory::ListingMemory;
use crate::listings::ListingRequest;

/// Maximum number of requests of one call in flight.
const AT_ONCE: usize = 64;

/// A directory merged from the listings of all servers that have it.
#[derive(Debug)]
pub struct Merged {
    /// Entries without duplicates, sorted by name.
    pub entries: Entries,
    /// The servers that have the directory.
    pub servers: Vec<FileSystem>,
    /// Errors of the servers that could not be queried, and of managers whose servers are not
    /// known. Entries that only they have are missing.
    pub failed: Vec<Error>,
}

/// Applies `work` to all items with bounded concurrency. The results are in the order of the items.
pub async fn join_bounded<T, R, F>(items: impl IntoIterator<Item = T>, work: impl Fn(T) -> F) -> Vec<R>
where
    F: Future<Output = R> + Send + 'static,
    R: Send + 'static,
{
    let mut tasks = JoinSet::new();
    let mut done = BTreeMap::new();
    let mut keep = |ended: Result<(usize, R), tokio::task::JoinError>| match ended {
        Ok((index, result)) => drop(done.insert(index, result)),
        Err(error) => {
            if let Ok(panic) = error.try_into_panic() {
                std::panic::resume_unwind(panic);
            }
        }
    };
    for (index, item) in items.into_iter().enumerate() {
        if tasks.len() >= AT_ONCE
            && let Some(ended) = tasks.join_next().await
        {
            keep(ended);
        }
        let work = work(item);
        tasks.spawn(async move { (index, work.await) });
    }
    while let Some(ended) = tasks.join_next().await {
        keep(ended);
    }
    done.into_values().collect()
}

/// Lists a directory at each of these servers, in their order.
async fn list_at_each(
    servers: &[FileSystem],
    path: &str,
    with: &ListWith,
    memory: &ListingMemory,
) -> Vec<(FileSystem, Result<Vec<ServerListing>, Error>)> {
    if let [files] = servers {
        return vec![(
            files.clone(),
            ListingRequest { files, path, memory, is_one_server: false }.send(with).await,
        )];
    }
    let list = |server: FileSystem| {
        let (path, with, memory) = (path.to_owned(), with.clone(), memory.clone());
        async move {
            let request =
                ListingRequest { files: &server, path: &path, memory: &memory, is_one_server: false };
            let listed = request.send(&with).await;
            (server, listed)
        }
    };
    join_bounded(servers.iter().cloned(), list).await
}

/// Lists a directory at all of these servers and merges the replies. Servers without the directory
/// are ignored, unless none has it.
///
/// # Errors
/// [`Error`] of one of the servers if none of them lists it.
pub async fn list_merged(servers: &[FileSystem], path: &str, with: &ListWith) -> Result<Merged, Error> {
    merge_listings(servers, Vec::new(), path, with).await
}

/// Implements [`list_merged`]. `failed` are the errors of managers whose servers are not known.
pub(crate) async fn merge_listings(
    servers: &[FileSystem],
    failed: Vec<Error>,
    path: &str,
    with: &ListWith,
) -> Result<Merged, Error> {
    let mut merged = Merged { entries: Entries::default(), servers: Vec::new(), failed };
    let mut found = Vec::new();
    let mut missing = None;
    let Some(first) = servers.first() else { return Ok(merged) };
    let memory = first.client().listing_memory();
    for (server, listed) in list_at_each(servers, path, with, &memory).await {
        match listed {
            Ok(listings) => {
                found.extend(listings.into_iter().map(|listing| (merged.servers.len(), listing)));
                merged.servers.push(server);
            }
            Err(error) if error.is_not_found() => missing = Some(error),
            Err(error) => merged.failed.push(error),
        }
    }
    merged.entries = Entries::merge(found).map_err(|cause| first.error("list", path, cause))?;
    if merged.servers.is_empty()
        && let Some(error) = merged.failed.pop().or(missing)
    {
        return Err(error);
    }
    Ok(merged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn results_are_in_the_order_of_the_items() {
        let work = |item: usize| async move {
            for _ in 0..(item * 7) % 13 {
                tokio::task::yield_now().await;
            }
            item * 2
        };
        let expected: Vec<usize> = (0..500).map(|item| item * 2).collect();
        assert_eq!(join_bounded(0..500, work).await, expected);
    }
}
