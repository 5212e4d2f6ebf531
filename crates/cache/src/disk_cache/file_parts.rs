//! [`FileParts`]: the parts of an open file that the cache removes one by one, and which of them readers request.
//!
//! A request for a part is the entry of a reader, not each of its reads, so a reader that passes through a file requests
//! each part once. A read only compares two numbers and sets a byte, under the lock of the file that it has anyway. The
//! order of removals learns of the requests later.

use crate::BlockMap;
use std::ops::Range;

/// Maximum number of parts of a file. Larger files have larger parts.
const PARTS_MAX: u64 = 4096;

/// The number of rounds for which a reader has the part that it has read last: 5 minutes.
const ROUNDS_MAX: u8 = 30;

/// What is known of the requests for a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PartMark {
    /// There were none since the last look.
    Quiet,
    /// There were some.
    Requested,
    /// It was stored ahead of the reader whose request is the first one.
    Ahead,
}

/// The parts of a file.
#[derive(Debug)]
pub(super) struct FileParts {
    part_bytes: u64,
    /// Empty for a file that has no parts.
    marks: Vec<PartMark>,
}

/// The part that a reader has read last.
#[derive(Default, Debug)]
pub(super) struct ReaderPart {
    part: Option<u32>,
    /// The number of rounds since its last entry.
    rounds: u8,
}

impl ReaderPart {
    /// Reports whether the reader is in a part.
    pub(super) fn is_in(&self, part: u32) -> bool {
        self.part == Some(part)
    }

    /// Notes a round. After many of them the reader has no part, so its next read is a request again.
    pub(super) fn pass_round(&mut self) {
        self.rounds += 1;
        if self.rounds >= ROUNDS_MAX {
            *self = Self::default();
        }
    }
}

impl FileParts {
    /// Creates the parts of a file of this size. They have at least `part_bytes`; `None` if files have no parts.
    pub(super) fn new(size: u64, part_bytes: Option<u64>, block_bytes: u64) -> Self {
        let whole = Self { part_bytes: u64::MAX, marks: Vec::new() };
        let Some(wanted) = part_bytes else { return whole };
        let least = wanted.max(size.div_ceil(PARTS_MAX)).max(1);
        let Some(part_bytes) = least.checked_next_multiple_of(block_bytes).filter(|bytes| *bytes < size)
        else {
            return whole;
        };
        // At most `PARTS_MAX`.
        let count = size.div_ceil(part_bytes) as usize;
        Self { part_bytes, marks: vec![PartMark::Quiet; count] }
    }

    /// Reports whether the file has parts.
    pub(super) fn are_known(&self) -> bool {
        !self.marks.is_empty()
    }

    /// Returns the part of a byte; `None` if the file has no parts.
    pub(super) fn of(&self, offset: u64) -> Option<u32> {
        if self.marks.is_empty() { None } else { u32::try_from(offset / self.part_bytes).ok() }
    }

    /// Returns the bytes of a part. The last one may end behind the file.
    pub(super) fn bytes_of(&self, part: u32) -> Range<u64> {
        let begin = u64::from(part).saturating_mul(self.part_bytes);
        begin..begin.saturating_add(self.part_bytes)
    }

    /// Notes a read.
    pub(super) fn read(&mut self, reader: &mut ReaderPart, bytes: &Range<u64>) {
        let (Some(first), Some(last)) = (self.of(bytes.start), self.of(bytes.end.saturating_sub(1))) else {
            return;
        };
        if first == last && reader.is_in(last) {
            return;
        }
        for part in (first..=last).filter(|part| !reader.is_in(*part)) {
            if let Some(mark) = self.marks.get_mut(part as usize) {
                *mark = if *mark == PartMark::Ahead { PartMark::Quiet } else { PartMark::Requested };
            }
        }
        *reader = ReaderPart { part: Some(last), rounds: 0 };
    }

    /// Notes that the first bytes of a part were stored. The request for which they were is counted by that.
    pub(super) fn begun(&mut self, part: u32) {
        if let Some(mark) = self.marks.get_mut(part as usize) {
            *mark = if *mark == PartMark::Requested { PartMark::Quiet } else { PartMark::Ahead };
        }
    }

    /// Takes the requests for a part. Returns whether there were any.
    pub(super) fn take_request(&mut self, part: u32) -> bool {
        let mark = self.marks.get_mut(part as usize).filter(|mark| **mark == PartMark::Requested);
        mark.map(|mark| *mark = PartMark::Quiet).is_some()
    }

    /// Takes all requests. Returns the parts.
    pub(super) fn take_requests(&mut self) -> Vec<u32> {
        (0..self.marks.len() as u32).filter(|part| self.take_request(*part)).collect()
    }

    /// Returns the stored bytes of each part that has some.
    pub(super) fn sizes(&self, blocks: &BlockMap, block_bytes: u64, size: u64) -> Vec<(u32, u64)> {
        let mut sizes: Vec<(u32, u64)> = Vec::new();
        for block in (0..blocks.len()).filter(|block| blocks.contains(*block)) {
            let begin = block.saturating_mul(block_bytes);
            let bytes = block_bytes.min(size.saturating_sub(begin));
            let Some(part) = self.of(begin) else { break };
            match sizes.last_mut().filter(|(last, _)| *last == part) {
                Some((_, sum)) => *sum += bytes,
                None => sizes.push((part, bytes)),
            }
        }
        sizes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(size: u64) -> FileParts {
        FileParts::new(size, Some(40), 10)
    }

    #[test]
    fn a_file_has_parts_of_whole_blocks_if_it_is_larger_than_one() {
        let layout = |size, part_bytes, block| {
            let parts = FileParts::new(size, part_bytes, block);
            (parts.part_bytes, parts.marks.len())
        };
        assert_eq!(layout(100, Some(40), 10), (40, 3));
        assert_eq!(layout(100, Some(35), 10), (40, 3));
        assert_eq!(layout(81, Some(40), 10), (40, 3));
        for whole in [layout(40, Some(40), 10), layout(0, Some(40), 10), layout(100, None, 10)] {
            assert_eq!(whole, (u64::MAX, 0));
        }
        // As many as a file can have, and one byte more.
        assert_eq!(layout(40 * PARTS_MAX, Some(40), 10), (40, 4096));
        assert_eq!(layout(40 * PARTS_MAX + 1, Some(40), 10), (50, 3277));
        let (bytes, count) = layout(u64::MAX - 1, Some(1), 4096);
        assert!(count as u64 <= PARTS_MAX && bytes >= u64::MAX / PARTS_MAX, "{bytes} {count}");
        assert_eq!(layout(u64::MAX, Some(u64::MAX), 4096), (u64::MAX, 0));
    }

    #[test]
    fn a_reader_that_passes_through_a_part_requests_it_once() {
        let (mut parts, mut reader) = (parts(120), ReaderPart::default());
        for offset in (0..80).step_by(5) {
            parts.read(&mut reader, &(offset..offset + 5));
        }
        assert_eq!(parts.take_requests(), [0, 1]);
        (40..80).for_each(|offset| parts.read(&mut reader, &(offset..offset + 1)));
        assert_eq!(parts.take_requests(), [], "it is there since the last look");
        parts.read(&mut reader, &(0..120));
        assert_eq!(parts.take_requests(), [0, 2]);
        parts.read(&mut reader, &(10..10));
        assert!(!reader.is_in(1) && reader.is_in(0), "a read of no bytes is at its offset");
    }

    #[test]
    fn a_reader_has_a_part_for_a_limited_time() {
        let (mut parts, mut reader) = (parts(120), ReaderPart::default());
        parts.read(&mut reader, &(0..1));
        assert!(parts.take_request(0) && !parts.take_request(0));
        (1..ROUNDS_MAX).for_each(|_| reader.pass_round());
        parts.read(&mut reader, &(1..2));
        assert!(reader.is_in(0) && !parts.take_request(0));
        reader.pass_round();
        assert!(!reader.is_in(0));
        parts.read(&mut reader, &(2..3));
        assert!(reader.is_in(0) && parts.take_request(0));
    }

    #[test]
    fn the_request_that_stores_a_part_is_none_of_its_requests() {
        let (mut parts, mut reader) = (parts(120), ReaderPart::default());
        parts.read(&mut reader, &(0..1));
        parts.begun(0);
        assert!(!parts.take_request(0));
        // Stored ahead of the reader.
        parts.begun(1);
        parts.read(&mut reader, &(40..41));
        assert!(!parts.take_request(1));
        let mut another = ReaderPart::default();
        parts.read(&mut another, &(40..41));
        assert!(parts.take_request(1));
    }

    #[test]
    fn the_size_of_a_part_is_that_of_its_blocks() {
        let mut blocks = BlockMap::new(vec![0, 0], 12).unwrap();
        [0, 3, 8, 11].into_iter().for_each(|block| blocks.insert(block));
        assert_eq!(parts(115).sizes(&blocks, 10, 115), [(0, 20), (2, 15)]);
        assert_eq!(FileParts::new(115, None, 10).sizes(&blocks, 10, 115), []);
    }
}
