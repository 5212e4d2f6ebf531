//! Ranges of files.
//!
//! Offsets and lengths that belong together are passed as one value with named fields, so that no
//! call can exchange them (decision 036).

use std::ops::Range;

/// A range of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Length in bytes. The range fits a buffer.
    pub length: usize,
}

impl Extent {
    /// Returns the offset behind the range; `None` if it is too large.
    #[must_use]
    pub const fn end(self) -> Option<u64> {
        self.offset.checked_add(self.length as u64)
    }
}

/// A range of a file to read into a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadPiece {
    /// The range of the file.
    pub extent: Extent,
    /// Offset in the buffer.
    pub at: usize,
}

impl ReadPiece {
    /// Returns the range of the buffer; `None` if its end is too large.
    #[must_use]
    pub fn place(self) -> Option<Range<usize>> {
        Some(self.at..self.at.checked_add(self.extent.length)?)
    }
}

/// A range of a file that is copied to another file, or to another place in the same one. Unlike an
/// [`Extent`] it need not fit a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyRange {
    /// Offset in the source, in bytes.
    pub from: u64,
    /// Offset in the target, in bytes.
    pub to: u64,
    /// Length in bytes.
    pub length: u64,
}

impl CopyRange {
    /// Returns the offset behind the range in the source; `None` if it is too large.
    #[must_use]
    pub const fn source_end(self) -> Option<u64> {
        self.from.checked_add(self.length)
    }

    /// Returns the offset behind the range in the target; `None` if it is too large.
    #[must_use]
    pub const fn target_end(self) -> Option<u64> {
        self.to.checked_add(self.length)
    }

    /// Returns the part of this length that begins `at` bytes behind the begin. The part must be in
    /// the range.
    #[must_use]
    pub const fn part(self, at: u64, length: u64) -> Self {
        Self { from: self.from + at, to: self.to + at, length }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_does_not_fit_is_none() {
        let extent = Extent { offset: u64::MAX - 2, length: 2 };
        assert_eq!(extent.end(), Some(u64::MAX));
        assert_eq!(Extent { length: 3, ..extent }.end(), None);
        assert_eq!(ReadPiece { extent, at: 5 }.place(), Some(5..7));
        assert_eq!(ReadPiece { extent, at: usize::MAX - 1 }.place(), None);
    }
}
