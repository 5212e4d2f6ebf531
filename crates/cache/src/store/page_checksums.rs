//! [`PageChecksums`]: checksums of the pages of blocks that were compared with theirs, so that a small read of stored
//! bytes verifies its pages and not a whole block.
//!
//! They are in memory only, in a table of a fixed size. If the checksum of a page is missing or wrong, the whole block is
//! compared.

use digest::{crc32c, pages::PAGE_BYTES};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Number of pages in a group, which is the unit of the table.
const GROUP_PAGES: u64 = 16;
/// Number of groups that get their memory together, when the first one of them is used.
const CHUNK_GROUPS: usize = 512;

/// The checksums of neighbouring pages of a store.
struct PageGroup {
    /// The number of the store; 0 for none.
    store: u64,
    /// The number of the group in the file.
    number: u64,
    /// A bit for each page whose checksum is known.
    known: u16,
    checksums: [u32; GROUP_PAGES as usize],
}

const NO_GROUP: PageGroup = PageGroup { store: 0, number: 0, known: 0, checksums: [0; GROUP_PAGES as usize] };

impl PageGroup {
    const fn is(&self, store: u64, number: u64) -> bool {
        self.store == store && self.number == number
    }
}

/// Groups that get their memory together.
type PageChunk = Box<[Mutex<PageGroup>]>;

/// A table of checksums. A group has one place, where a later one replaces it. Groups of one file replace each other only
/// if the file is larger than the table covers.
pub(crate) struct PageChecksums {
    chunks: Box<[OnceLock<PageChunk>]>,
    next_store: AtomicU64,
}

impl PageChecksums {
    /// Creates a table for this number of bytes of files. It takes 1/680 of that when it is full.
    pub(crate) fn new(bytes: u64) -> Self {
        let groups = bytes / (GROUP_PAGES * PAGE_BYTES as u64);
        let chunks = usize::try_from(groups).unwrap_or(usize::MAX).div_ceil(CHUNK_GROUPS);
        Self {
            chunks: std::iter::repeat_with(OnceLock::new).take(chunks).collect(),
            next_store: AtomicU64::new(1),
        }
    }

    /// Returns the number of a new store.
    pub(crate) fn next_store(&self) -> u64 {
        self.next_store.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the place of a group.
    fn place(&self, store: u64, number: u64) -> Option<&Mutex<PageGroup>> {
        let groups = (self.chunks.len() as u64).checked_mul(CHUNK_GROUPS as u64)?;
        // Stores begin at places far from each other (2^64 divided by the golden ratio).
        let begin = store.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
        let index = (begin % groups.max(1) + number % groups.max(1)) % groups.max(1);
        let index = usize::try_from(index).ok()?;
        let chunk = self.chunks.get(index / CHUNK_GROUPS)?;
        let new_chunk = || std::iter::repeat_with(|| Mutex::new(NO_GROUP)).take(CHUNK_GROUPS).collect();
        chunk.get_or_init(new_chunk).get(index % CHUNK_GROUPS)
    }

    /// Calls a function with the place of each group of pages, the number of the group and its pages, until it returns
    /// `false`. Returns whether it was called for all of them.
    fn each_group(
        &self,
        store: u64,
        mut pages: Range<u64>,
        mut visit: impl FnMut(&mut PageGroup, u64, Range<usize>) -> bool,
    ) -> bool {
        while pages.start < pages.end {
            let number = pages.start / GROUP_PAGES;
            let end = (number + 1).saturating_mul(GROUP_PAGES).min(pages.end);
            let Some(place) = self.place(store, number) else { return false };
            let mut group = place.lock().unwrap_or_else(PoisonError::into_inner);
            let within = |page: u64| (page - number * GROUP_PAGES) as usize;
            if !visit(&mut group, number, within(pages.start)..within(end - 1) + 1) {
                return false;
            }
            pages.start = end;
        }
        true
    }

    /// Records the checksums of the pages from `first` on.
    pub(crate) fn record(&self, store: u64, first: u64, checksums: &[u32]) {
        let mut rest = checksums;
        self.each_group(
            store,
            first..first.saturating_add(checksums.len() as u64),
            |group, number, pages| {
                let Some((these, others)) = rest.split_at_checked(pages.len()) else { return false };
                rest = others;
                if !group.is(store, number) {
                    *group = PageGroup { store, number, ..NO_GROUP };
                }
                for (page, checksum) in pages.zip(these) {
                    if let Some(place) = group.checksums.get_mut(page) {
                        *place = *checksum;
                        group.known |= 1 << page;
                    }
                }
                true
            },
        );
    }

    /// Writes the checksums of the pages from `first` on into `into`. Returns whether all of them are known.
    pub(crate) fn look_up(&self, store: u64, first: u64, into: &mut [u32]) -> bool {
        let pages = first..first.saturating_add(into.len() as u64);
        let mut rest = into;
        self.each_group(store, pages, |group, number, pages| {
            let (these, others) = std::mem::take(&mut rest).split_at_mut(pages.len());
            rest = others;
            if !group.is(store, number) || !pages.clone().all(|page| group.known & 1 << page != 0) {
                return false;
            }
            group.checksums.get(pages).is_some_and(|found| {
                these.copy_from_slice(found);
                true
            })
        })
    }
}

/// Appends the checksums of pages to `checksums`. Only the last one may be shorter than a page.
pub(crate) fn append_page_checksums(checksums: &mut Vec<u32>, pages: &[u8]) {
    checksums.extend(pages.chunks(PAGE_BYTES).map(crc32c));
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE_BYTES: u64 = CHUNK_GROUPS as u64 * GROUP_PAGES * PAGE_BYTES as u64;

    fn known(table: &PageChecksums, store: u64, first: u64, count: usize) -> Option<Vec<u32>> {
        let mut into = vec![0; count];
        table.look_up(store, first, &mut into).then_some(into)
    }

    #[test]
    fn pages_are_known_where_they_were_recorded() {
        let table = PageChecksums::new(TABLE_BYTES);
        let values: Vec<u32> = (100..150).collect();
        table.record(1, 7, &values);
        assert_eq!(known(&table, 1, 7, 50), Some(values.clone()));
        assert_eq!(known(&table, 1, 20, 3), Some(vec![113, 114, 115]));
        assert_eq!(known(&table, 1, 15, 2), Some(vec![108, 109]), "of two groups");
        for (store, first, count) in [(1, 6, 2), (1, 56, 2), (1, 57, 1), (2, 7, 1)] {
            assert_eq!(known(&table, store, first, count), None, "{store} {first} {count}");
        }
        assert_eq!(known(&table, 1, 3, 0), Some(vec![]));
    }

    #[test]
    fn a_table_keeps_all_pages_of_a_file_of_its_size_and_no_more_than_that() {
        let table = PageChecksums::new(TABLE_BYTES);
        let pages = TABLE_BYTES / PAGE_BYTES as u64;
        let recorded = |table: &PageChecksums, store| {
            (0..pages).filter(|page| known(table, store, *page, 1).is_some()).count()
        };
        (0..pages).for_each(|page| table.record(5, page, &[page as u32]));
        assert!((0..pages).all(|page| known(&table, 5, page, 1) == Some(vec![page as u32])));
        (0..pages).for_each(|page| table.record(6, page, &[1]));
        assert_eq!((recorded(&table, 6), recorded(&table, 5)), (pages as usize, 0));
    }

    #[test]
    fn an_empty_table_knows_nothing() {
        let table = PageChecksums::new(0);
        table.record(1, u64::MAX - 1, &[1, 2, 3]);
        assert_eq!(known(&table, 1, 0, 1), None);
    }
}
