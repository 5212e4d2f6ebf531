//! A directory of one server, and what its server leaves out of a listing with status.

use std::hash::{BuildHasher, RandomState};

use crate::channel::BodyLimit;
use crate::entries::Listing;
use crate::failure::{Cause, Error};
use crate::filesystem::{FileSystem, ListWith};
use crate::listing_memory::ListingMemory;
use crate::path::RemotePath;

/// Lists a directory with status, as far as its server does.
pub(super) async fn list_status(
    server: &FileSystem,
    path: &str,
    memory: &ListingMemory,
) -> Result<Vec<Listing>, Error> {
    server.listings(path, &ListWith { stat: true, ..ListWith::default() }, memory).await
}

/// Lists a directory with status. Entries whose status the server cannot get are without one.
pub(super) async fn list_exactly(
    server: &FileSystem,
    path: &RemotePath,
    memory: &ListingMemory,
) -> Result<Vec<Listing>, Error> {
    let plain = async || server.listings(path, &ListWith::default(), memory).await;
    // Of the first listing only hashes are kept, because the other one takes the memory.
    let hasher = RandomState::new();
    let before = hashes(&hasher, plain().await?.iter().flat_map(Listing::names));
    let found = list_status(server, path, memory).await?;
    let known = hashes(&hasher, found.iter().flat_map(Listing::names));
    if before.iter().all(|hash| known.binary_search(hash).is_ok()) {
        return Ok(found);
    }
    // What was removed meanwhile is not in a later listing, and what has come since was not in the first.
    let after = plain().await?;
    let mut missing = Listing::empty(memory, false);
    for name in after.iter().flat_map(Listing::names) {
        let hash = hasher.hash_one(name);
        let is_missing = before.binary_search(&hash).is_ok() && known.binary_search(&hash).is_err();
        if is_missing && !missing.add(name, None) {
            return Err(server.error("list", path, Cause::too_large(&BodyLimit::listing(memory))));
        }
    }
    drop(after);
    // Some servers end the whole listing at the first such entry, so the others are asked for one by one.
    let mut listings = found;
    listings.extend(server.add_status(path, &missing, memory, false).await?);
    Ok(listings)
}

/// The hashes of names, sorted.
fn hashes<'a>(hasher: &RandomState, names: impl Iterator<Item = &'a [u8]>) -> Vec<u64> {
    let mut hashes: Vec<u64> = names.map(|name| hasher.hash_one(name)).collect();
    hashes.sort_unstable();
    hashes
}
