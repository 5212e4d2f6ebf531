//! Page checksums of `kXR_pgread` replies and `kXR_pgwrite` requests (xroot protocol 5.2.0).
//!
//! Every page of 4096 bytes has its own CRC-32C, big-endian, in front of its data. Pages are
//! aligned to the *file*: a range that begins at offset 100 has a first page of 3996 bytes. The
//! last page ends with the data. *Interleaved* data is `checksum data checksum data …`.
//!
//! Functions convert in place, so that a request needs no second buffer.

use crate::crc32c;

/// Size of a page in bytes.
pub const PAGE_BYTES: usize = 4096;
/// Size of a page checksum in bytes.
pub const CHECKSUM_BYTES: usize = 4;

/// A page, or the part of a page within a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// Offset of its data in the file.
    pub offset: u64,
    /// Number of data bytes, from 1 to 4096.
    pub length: usize,
    /// Offset of its checksum in the interleaved data; its data follows.
    pub at: usize,
}

/// Returns the number of pages that `length` bytes from `offset` touch.
pub fn page_count(offset: u64, length: usize) -> usize {
    if length == 0 {
        return 0;
    }
    (within_page(offset) + length).div_ceil(PAGE_BYTES)
}

/// Returns the size of all checksums of `length` bytes from `offset`.
pub fn checksums_length(offset: u64, length: usize) -> usize {
    page_count(offset, length) * CHECKSUM_BYTES
}

/// Returns the size of the interleaved form of `length` bytes from `offset`.
pub fn interleaved_length(offset: u64, length: usize) -> usize {
    length + checksums_length(offset, length)
}

/// Returns the number of data bytes in `interleaved` bytes that begin at `offset`. Returns `None`
/// if they end within or directly after a checksum, which would be a page without data.
pub fn data_length(offset: u64, interleaved: usize) -> Option<usize> {
    let pages = pages(offset, interleaved);
    let length = pages.clone().map(|page| page.length).sum();
    (interleaved_length(offset, length) == interleaved).then_some(length)
}

fn within_page(offset: u64) -> usize {
    // The remainder is less than 4096.
    (offset % PAGE_BYTES as u64) as usize
}

/// Returns the pages of `interleaved` bytes that begin at `offset`. A trailing checksum without
/// data is not returned as a page.
pub fn pages(offset: u64, interleaved: usize) -> PageRanges {
    PageRanges { offset, at: 0, interleaved }
}

/// The iterator that [`pages`] returns.
#[derive(Clone, Debug)]
pub struct PageRanges {
    offset: u64,
    at: usize,
    interleaved: usize,
}

impl Iterator for PageRanges {
    type Item = Page;

    fn next(&mut self) -> Option<Page> {
        let left = self.interleaved.checked_sub(self.at + CHECKSUM_BYTES).filter(|&left| left > 0)?;
        let length = left.min(PAGE_BYTES - within_page(self.offset));
        let page = Page { offset: self.offset, length, at: self.at };
        self.offset = self.offset.wrapping_add(length as u64);
        self.at += CHECKSUM_BYTES + length;
        Some(page)
    }
}

/// Interleaves the data of the file at `offset` in place. On entry the data is in
/// `buffer[at..at + length]`; on return the interleaved form is in `buffer[..n]`, where `n` is the
/// result.
///
/// `at` must be at least [`checksums_length`] of the data. A caller that may read fewer bytes than
/// requested therefore leaves space for *all* checksums, reads behind it and interleaves the bytes
/// that were read. Returns `None` if the space is too small or the data exceeds the buffer.
pub fn interleave(offset: u64, buffer: &mut [u8], at: usize, length: usize) -> Option<usize> {
    let total = interleaved_length(offset, length);
    if at < total - length || at.checked_add(length)? > buffer.len() {
        return None;
    }
    let mut from = at;
    for page in pages(offset, total) {
        // Every page moves towards the front, so the data of the next page is not overwritten.
        let source = buffer.get(from..from + page.length)?;
        let checksum = crc32c(source);
        buffer.copy_within(from..from + page.length, page.at + CHECKSUM_BYTES);
        put(buffer, page.at, checksum);
        from += page.length;
    }
    Some(total)
}

/// Writes the checksums of data that is already at its interleaved position.
pub fn fill(offset: u64, interleaved: &mut [u8]) {
    for page in pages(offset, interleaved.len()) {
        let data = page.at + CHECKSUM_BYTES;
        let checksum = crc32c(interleaved.get(data..data + page.length).unwrap_or_default());
        put(interleaved, page.at, checksum);
    }
}

fn put(buffer: &mut [u8], at: usize, checksum: u32) {
    if let Some(place) = buffer.get_mut(at..at + CHECKSUM_BYTES) {
        place.copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Reports whether the checksum of this page of `interleaved` matches its data.
pub fn is_good(page: &Page, interleaved: &[u8]) -> bool {
    let piece = interleaved.get(page.at..page.at + CHECKSUM_BYTES + page.length);
    match piece.and_then(|piece| piece.split_first_chunk()) {
        Some((stored, data)) => u32::from_be_bytes(*stored) == crc32c(data),
        None => false,
    }
}

/// Returns the pages of `interleaved` whose checksum does not match their data, in order.
pub fn bad_pages(offset: u64, interleaved: &[u8]) -> impl Iterator<Item = Page> {
    pages(offset, interleaved.len()).filter(move |page| !is_good(page, interleaved))
}

/// Removes the checksums in place. The data is then in `interleaved[..n]`, where `n` is the result.
///
/// Pages with a wrong checksum are passed to `bad` and kept, as the protocol demands. A trailing
/// checksum without data is dropped; use [`data_length`] to refuse it.
pub fn separate(offset: u64, interleaved: &mut [u8], mut bad: impl FnMut(Page)) -> usize {
    let mut to = 0;
    for page in pages(offset, interleaved.len()) {
        if !is_good(&page, interleaved) {
            bad(page);
        }
        let data = page.at + CHECKSUM_BYTES;
        interleaved.copy_within(data..data + page.length, to);
        to += page.length;
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Interleaves with copies, directly by the definition of the protocol.
    fn naive(offset: u64, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let (mut offset, mut rest) = (offset, data);
        while !rest.is_empty() {
            let (page, behind) = rest.split_at(rest.len().min(4096 - (offset % 4096) as usize));
            out.extend(crc32c(page).to_be_bytes());
            out.extend(page);
            offset += page.len() as u64;
            rest = behind;
        }
        out
    }

    fn data(length: usize) -> Vec<u8> {
        (0..length).map(|n| (n * 7 + n / 4096) as u8).collect()
    }

    #[test]
    fn the_first_page_is_short_if_the_range_begins_within_a_page() {
        let of = |offset, length| pages(offset, interleaved_length(offset, length)).collect::<Vec<_>>();
        assert_eq!(
            of(100, 5000),
            [Page { offset: 100, length: 3996, at: 0 }, Page { offset: 4096, length: 1004, at: 4000 }]
        );
        assert_eq!(of(4095, 2).iter().map(|page| page.length).collect::<Vec<_>>(), [1, 1]);
        assert_eq!(of(8192, 4096), [Page { offset: 8192, length: 4096, at: 0 }]);
        assert_eq!(of(0, 0), []);
        assert_eq!(page_count(0, 4097), 2);
    }

    #[test]
    fn a_checksum_without_data_is_not_interleaved_data() {
        assert_eq!(data_length(0, 0), Some(0));
        assert_eq!(data_length(0, 4), None);
        assert_eq!(data_length(0, 5), Some(1));
        assert_eq!(data_length(0, 4100), Some(4096));
        for rest in 1..=4 {
            assert_eq!(data_length(0, 4100 + rest), None, "{rest}");
        }
        assert_eq!(data_length(4095, 10), Some(2));
    }

    #[test]
    fn a_buffer_that_is_too_small_is_refused() {
        let mut buffer = vec![0; 10_000];
        assert_eq!(interleave(0, &mut buffer, 7, 5000), None);
        assert_eq!(interleave(0, &mut buffer, 8, 9_993), None);
        assert_eq!(interleave(0, &mut buffer, 8, 5000), Some(5008));
        assert_eq!(interleave(0, &mut buffer, usize::MAX, 5000), None);
    }

    proptest! {
        #[test]
        fn in_place_conversion_equals_copying(offset in 0_u64..10_000, length in 0_usize..20_000, spare in 0_usize..50) {
            let data = data(length);
            let want = naive(offset, &data);
            prop_assert_eq!(interleaved_length(offset, length), want.len());
            prop_assert_eq!(data_length(offset, want.len()), Some(length));

            let at = want.len() - length + spare;
            let mut buffer = vec![0xee; at];
            buffer.extend(&data);
            let total = interleave(offset, &mut buffer, at, length);
            prop_assert_eq!(total, Some(want.len()));
            prop_assert!(buffer[..want.len()] == want);

            let mut emptied = want.clone();
            for page in pages(offset, want.len()) {
                emptied[page.at..page.at + 4].fill(0);
            }
            fill(offset, &mut emptied);
            prop_assert!(emptied == want);

            prop_assert_eq!(bad_pages(offset, &want).count(), 0);
            let mut back = want;
            let got = separate(offset, &mut back, |page| panic!("{page:?}"));
            prop_assert_eq!(got, length);
            prop_assert!(back[..got] == data);
        }

        #[test]
        fn a_changed_bit_is_found_and_the_data_kept(
            offset in 0_u64..5000, length in 1_usize..15_000, bit in any::<prop::sample::Index>(),
        ) {
            let mut interleaved = naive(offset, &data(length));
            let bit = bit.index(interleaved.len() * 8);
            interleaved[bit / 8] ^= 1 << (bit % 8);
            let hit = |page: &Page| (page.at..page.at + 4 + page.length).contains(&(bit / 8));
            let want: Vec<Page> = pages(offset, interleaved.len()).filter(hit).collect();
            prop_assert_eq!(bad_pages(offset, &interleaved).collect::<Vec<_>>(), want.clone());
            let mut bad = Vec::new();
            let got = separate(offset, &mut interleaved, |page| bad.push(page));
            prop_assert_eq!((got, bad), (length, want));
        }
    }
}
