//! The 16-byte elements of `kXR_readv`, `kXR_writev` and of the pre-read list of `kXR_read`.
//!
//! | bytes | field   | type   | meaning                                        |
//! |-------|---------|--------|------------------------------------------------|
//! | 0..4  | fhandle | opaque | an open file                                   |
//! | 4..8  | length  | i32    | `rlen` or `wlen` in bytes, not negative        |
//! | 8..16 | offset  | i64    | bytes from the start of the file, not negative |
//!
//! Lists are decoded during iteration, so that a request of 1024 elements needs no allocation.
//!
//! Source: xroot protocol 5.2.0, sections 2.17, 2.18, 2.28.

use crate::codec::FixedLayout;
use crate::xroot::header::FileHandle;
use crate::xroot::limits::SEGMENT_BYTES;

/// A range of an open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The open file.
    pub fhandle: FileHandle,
    /// Length in bytes as sent; may be negative.
    pub length: i32,
    /// Offset as sent; may be negative.
    pub offset: i64,
}

/// The 16 bytes are also the header in front of an element's data in the `kXR_readv` reply.
impl FixedLayout for Segment {
    type Bytes = [u8; SEGMENT_BYTES];

    fn to_bytes(&self) -> Self::Bytes {
        let FileHandle([f0, f1, f2, f3]) = self.fhandle;
        let [l0, l1, l2, l3] = self.length.to_be_bytes();
        let [o0, o1, o2, o3, o4, o5, o6, o7] = self.offset.to_be_bytes();
        [f0, f1, f2, f3, l0, l1, l2, l3, o0, o1, o2, o3, o4, o5, o6, o7]
    }

    fn from_bytes(bytes: &Self::Bytes) -> Self {
        let [f0, f1, f2, f3, l0, l1, l2, l3, o0, o1, o2, o3, o4, o5, o6, o7] = *bytes;
        Self {
            fhandle: FileHandle([f0, f1, f2, f3]),
            length: i32::from_be_bytes([l0, l1, l2, l3]),
            offset: i64::from_be_bytes([o0, o1, o2, o3, o4, o5, o6, o7]),
        }
    }
}

/// A list of elements, decoded during iteration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SegmentList<'a> {
    bytes: &'a [u8],
}

impl<'a> SegmentList<'a> {
    /// Creates a list from `bytes` of any length; see [`SegmentList::is_whole`].
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Returns the bytes of the list.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the number of complete elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len() / SEGMENT_BYTES
    }

    /// Reports whether the list has no complete element.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.len() < SEGMENT_BYTES
    }

    /// Reports whether the list consists of complete elements. Iteration skips an incomplete
    /// element at the end.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.bytes.len().is_multiple_of(SEGMENT_BYTES)
    }

    /// Returns the elements in the order of the request.
    #[must_use]
    pub fn iter(&self) -> Segments<'a> {
        Segments { rest: self.bytes }
    }

    /// Returns the sum of the lengths; `None` if one is negative.
    #[must_use]
    pub fn total_bytes(&self) -> Option<u64> {
        // A payload has at most 2^27 elements, so the sum is below 2^58.
        self.iter().try_fold(0, |sum: u64, segment| Some(sum + u64::try_from(segment.length).ok()?))
    }
}

impl<'a> IntoIterator for SegmentList<'a> {
    type Item = Segment;
    type IntoIter = Segments<'a>;
    fn into_iter(self) -> Segments<'a> {
        self.iter()
    }
}

/// An iterator over the elements of a [`SegmentList`].
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    rest: &'a [u8],
}

impl Iterator for Segments<'_> {
    type Item = Segment;

    fn next(&mut self) -> Option<Segment> {
        let (head, rest) = self.rest.split_first_chunk::<SEGMENT_BYTES>()?;
        self.rest = rest;
        Some(Segment::from_bytes(head))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = self.rest.len() / SEGMENT_BYTES;
        (count, Some(count))
    }
}

impl ExactSizeIterator for Segments<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_with_an_incomplete_end_returns_its_complete_elements() {
        let one = Segment { fhandle: FileHandle([0, 0, 0, 1]), length: 16, offset: 4090 };
        let two = Segment { fhandle: FileHandle([0, 0, 0, 2]), length: i32::MAX, offset: -1 };
        let mut bytes = [one.to_bytes(), two.to_bytes()].concat();
        assert!(SegmentList::new(&bytes).is_whole());
        bytes.push(9);
        let list = SegmentList::new(&bytes);
        assert!(!list.is_whole());
        assert_eq!(list.len(), 2);
        assert_eq!(list.iter().len(), 2);
        assert_eq!(list.iter().collect::<Vec<_>>(), [one, two]);
        assert_eq!(list.total_bytes(), Some(16 + 0x7fff_ffff));
    }

    #[test]
    fn a_negative_length_has_no_total() {
        let bytes = Segment { fhandle: FileHandle::default(), length: -1, offset: 0 }.to_bytes();
        assert_eq!(SegmentList::new(&bytes).total_bytes(), None);
    }
}
