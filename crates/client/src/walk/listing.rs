//! Listings of a directory of one server, completed by entries that the server omits.
//!
//! Some servers omit entries without status from a listing with status, or end it at such an entry.

use std::hash::{BuildHasher, RandomState};

use crate::channel::BodyLimit;
use crate::entries::ServerListing;
use crate::failure::{Cause, Error};
use crate::filesystem::{FileSystem, ListWith};
use crate::listing_memory::ListingMemory;
use crate::listings::ListingRequest;
use crate::path::RemotePath;

/// Lists a directory with status. Entries whose status the server cannot determine have none.
pub(super) async fn list_exactly(
    server: &FileSystem,
    path: &RemotePath,
    memory: &ListingMemory,
    is_one_server: bool,
) -> Result<Vec<ServerListing>, Error> {
    let request = ListingRequest { files: server, path, memory, is_one_server };
    let plain = async || request.send(&ListWith::default()).await;
    // Only hashes of the first listing are kept because the second listing needs the memory.
    let hasher = RandomState::new();
    let before = hashes(&hasher, plain().await?.iter().flat_map(ServerListing::names));
    let found = request.send(&ListWith { stat: true, ..ListWith::default() }).await?;
    let known = hashes(&hasher, found.iter().flat_map(ServerListing::names));
    if before.iter().all(|hash| known.binary_search(hash).is_ok()) {
        return Ok(found);
    }
    // Removed entries are missing from the later listing, and new entries were missing from the
    // first.
    let after = plain().await?;
    let mut missing = ServerListing::empty(memory, false);
    for name in after.iter().flat_map(ServerListing::names) {
        let hash = hasher.hash_one(name);
        let is_missing = before.binary_search(&hash).is_ok() && known.binary_search(&hash).is_err();
        if is_missing && !missing.add(name, None) {
            return Err(server.error("list", path, Cause::too_large(&BodyLimit::listing(memory))));
        }
    }
    drop(after);
    // Some servers end the listing at the first such entry, so the status of the others is
    // requested one by one.
    let mut listings = found;
    listings.extend(request.add_status(&missing, false).await?);
    Ok(listings)
}

/// Returns the sorted hashes of names.
fn hashes<'a>(hasher: &RandomState, names: impl Iterator<Item = &'a [u8]>) -> Vec<u64> {
    let mut hashes: Vec<u64> = names.map(|name| hasher.hash_one(name)).collect();
    hashes.sort_unstable();
    hashes
}
