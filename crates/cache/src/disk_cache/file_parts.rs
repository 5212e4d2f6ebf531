//! [`FileParts`]: the parts of an open file, and which of them readers request.
//!
//! A request for a part is the entry of a reader, not each of its reads, so a reader that passes through a file requests
//! each part once. A read only compares a few numbers and sets a byte, under the lock of the file that it has anyway. The
//! order of removals learns of the requests later.

use crate::part_layout::PartLayout;
use std::ops::Range;

/// The number of rounds after which a read in the same part is a request again: 5 minutes.
const ROUNDS_MAX: u8 = 30;

/// The number of parts that a reader remembers, so that reads around the boundary of parts enter each of them once.
const REMEMBERED: usize = 4;

/// The number of parts, among these, that stay because of the reader.
const PROTECTED: usize = 2;

/// Whether a part was requested since the last look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PartMark {
    /// There were none since the last look.
    Quiet,
    /// There were some.
    Requested,
    /// It was stored ahead of the reader whose request is the first one.
    Ahead,
}

/// The parts of a file, or none.
#[derive(Debug)]
pub(super) struct FileParts {
    layout: Option<PartLayout>,
    /// One for each part.
    marks: Vec<PartMark>,
}

/// The parts that a reader has read last, the latest first, with the number of rounds since it has entered each.
#[derive(Default, Debug)]
pub(super) struct ReaderParts([Option<(u32, u8)>; REMEMBERED]);

impl ReaderParts {
    /// Reports whether a part is one of the last two that the reader has read.
    pub(super) fn protect(&self, part: u32) -> bool {
        self.0.iter().take(PROTECTED).flatten().any(|(known, _)| *known == part)
    }

    /// Reports whether the last read was in a part.
    fn is_in(&self, part: u32) -> bool {
        matches!(self.0.first(), Some(Some((last, _))) if *last == part)
    }

    /// Notes a read in a part. Returns whether it enters the part.
    fn enter(&mut self, part: u32) -> bool {
        let known = self.0.iter().position(|entry| matches!(entry, Some((known, _)) if *known == part));
        let at = known.unwrap_or(REMEMBERED - 1);
        let entry = known.and_then(|at| self.0.get(at).copied().flatten()).unwrap_or((part, 0));
        if let Some(latest) = self.0.get_mut(..=at) {
            latest.rotate_right(1);
        }
        if let Some(first) = self.0.first_mut() {
            *first = Some(entry);
        }
        known.is_none()
    }

    /// Notes a round. After many of them the next read in a part is a request again.
    pub(super) fn pass_round(&mut self) {
        for entry in &mut self.0 {
            *entry =
                entry.map(|(part, rounds)| (part, rounds + 1)).filter(|(_, rounds)| *rounds < ROUNDS_MAX);
        }
    }
}

impl FileParts {
    pub(super) fn new(layout: Option<PartLayout>) -> Self {
        let marks = vec![PartMark::Quiet; layout.map_or(0, |layout| layout.count() as usize)];
        Self { layout, marks }
    }

    /// Returns the layout; `None` if the file has no parts.
    pub(super) fn layout(&self) -> Option<PartLayout> {
        self.layout
    }

    /// Notes a read.
    pub(super) fn read(&mut self, reader: &mut ReaderParts, bytes: &Range<u64>) {
        let Some(layout) = self.layout else { return };
        let (first, last) = (layout.of(bytes.start), layout.of(bytes.end.saturating_sub(1)));
        if first == last && reader.is_in(last) {
            return;
        }
        for part in first..=last.max(first) {
            if reader.enter(part)
                && let Some(mark) = self.marks.get_mut(part as usize)
            {
                *mark = if *mark == PartMark::Ahead { PartMark::Quiet } else { PartMark::Requested };
            }
        }
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(size: u64) -> FileParts {
        FileParts::new(PartLayout::new(size, Some(40), 10))
    }

    #[test]
    fn a_reader_that_passes_through_a_part_requests_it_once() {
        let (mut parts, mut reader) = (parts(400), ReaderParts::default());
        for offset in (0..80).step_by(5) {
            parts.read(&mut reader, &(offset..offset + 5));
        }
        assert_eq!(parts.take_requests(), [0, 1]);
        (40..80).for_each(|offset| parts.read(&mut reader, &(offset..offset + 1)));
        assert_eq!(parts.take_requests(), [], "it is there since the last look");
        parts.read(&mut reader, &(0..120));
        assert_eq!(parts.take_requests(), [2]);
        parts.read(&mut reader, &(10..10));
        assert!(!reader.is_in(1) && reader.is_in(0), "a read of no bytes is at its offset");
        // A part that it has left for several others.
        parts.read(&mut reader, &(120..280));
        assert_eq!(parts.take_requests(), [3, 4, 5, 6]);
        parts.read(&mut reader, &(0..10));
        assert_eq!(parts.take_requests(), [0]);
        assert_eq!([0, 6, 5].map(|part| reader.protect(part)), [true, true, false]);
    }

    #[test]
    fn a_reader_that_goes_back_at_each_boundary_requests_nothing_again() {
        let (mut parts, mut reader) = (parts(1000), ReaderParts::default());
        for part in 0..24_u32 {
            let at = u64::from(part) * 40;
            for (offset, stores) in
                [(at, Some(part)), (at + 30, None), (at + 40, Some(part + 1)), (at + 20, None)]
            {
                parts.read(&mut reader, &(offset..offset + 5));
                stores
                    .filter(|stored| *stored > part || part == 0)
                    .into_iter()
                    .for_each(|part| parts.begun(part));
            }
            parts.read(&mut reader, &(at + 45..at + 46));
        }
        assert_eq!(parts.take_requests(), []);
    }

    #[test]
    fn a_reader_has_a_part_for_a_limited_time() {
        let (mut parts, mut reader) = (parts(120), ReaderParts::default());
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
        let (mut parts, mut reader) = (parts(120), ReaderParts::default());
        parts.read(&mut reader, &(0..1));
        parts.begun(0);
        assert!(!parts.take_request(0));
        // Stored ahead of the reader.
        parts.begun(1);
        parts.read(&mut reader, &(40..41));
        assert!(!parts.take_request(1));
        let mut another = ReaderParts::default();
        parts.read(&mut another, &(40..41));
        assert!(parts.take_request(1));
    }

    #[test]
    fn a_file_without_parts_has_no_requests() {
        let (mut parts, mut reader) = (parts(40), ReaderParts::default());
        parts.read(&mut reader, &(0..40));
        parts.begun(0);
        assert!(!reader.is_in(0) && parts.take_requests().is_empty() && parts.layout().is_none());
    }
}
