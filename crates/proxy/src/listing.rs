//! Listings of directories at origins.
//!
//! A listing is kept as the origin has sent it, and decoded by pages, because decoded entries take ten
//! times the memory. All listings of a proxy share one limit.

use crate::file_system::ProxyFiles;
use crate::status::file_stat;
use base::ErrorKind;
use client::{Entries, ListWith, RemoteEntry};
use std::any::Any;
use std::sync::Arc;
use vfs::{Answer, Caller, DirectoryEntry, ListDetail, ListingPosition, ReplyTo, Started, Target, Value};

/// Maximum number of entries of a page.
const PAGE_ENTRIES_MAX: usize = 512;
/// Maximum number of bytes of all listings of a proxy. One has at most the part that the settings of the
/// client give it.
pub(crate) const LISTING_BYTES_MAX: usize = 160_000_000;

/// A directory at an origin with the position of the next page.
struct ListedDirectory {
    entries: Entries,
    /// Number of the next entry.
    next: u32,
    read_only: bool,
    detail: ListDetail,
}

impl ListingPosition for ListedDirectory {
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl ProxyFiles {
    /// Starts a listing with its first page.
    pub(crate) fn list(
        &self,
        caller: &Arc<Caller>,
        target: Target,
        detail: ListDetail,
        reply: &ReplyTo,
    ) -> Started {
        let kind = target.cgi.text("cks.type").unwrap_or_default().to_owned();
        let with =
            ListWith { stat: detail.stat, checksum: detail.checksum.then_some(kind), online: detail.online };
        self.ask((caller, reply), (target, "Listing", "open directory"), move |at| async move {
            let entries = at.run_slowly(async |files| files.list(at.path(), &with).await).await?;
            Ok(page(Box::new(ListedDirectory { entries, next: 0, read_only: at.read_only, detail })))
        })
    }
}

/// Returns the next page of a listing.
pub(crate) fn more(rest: Box<dyn ListingPosition>) -> Started {
    Started::Done(match rest.into_any().downcast() {
        Ok(directory) => Answer::Value(page(directory)),
        Err(_) => Answer::error(ErrorKind::ArgInvalid, "it is no listing of a proxy"),
    })
}

fn page(mut directory: Box<ListedDirectory>) -> Value {
    let mut numbers = directory.entries.numbers_from(directory.next);
    let on_page: Vec<u32> = numbers.by_ref().take(PAGE_ENTRIES_MAX).collect();
    let next = numbers.next();
    drop(numbers);
    let entries = on_page.into_iter().filter_map(|number| directory.entries.get(number));
    let entries = entries.filter_map(|entry| listed(entry, directory.read_only, directory.detail));
    let entries: Vec<_> = entries.collect();
    let rest = next.map(|next| {
        directory.next = next;
        directory as Box<dyn ListingPosition>
    });
    Value::Listing { entries: entries.into(), rest }
}

/// Returns an entry of a listing; `None` for a name that no reply can carry.
fn listed(entry: RemoteEntry, read_only: bool, detail: ListDetail) -> Option<DirectoryEntry> {
    let name = entry.name.component().ok()?.to_bytes().into_owned();
    let stat = entry.stat.map(|stat| file_stat(&stat, read_only));
    let checksum = entry.checksum.map(|sum| (sum.kind, Some(sum.value)));
    let missing = || ("none".to_owned(), None);
    Some(DirectoryEntry { name, stat, checksum: detail.checksum.then(|| checksum.unwrap_or_else(missing)) })
}
