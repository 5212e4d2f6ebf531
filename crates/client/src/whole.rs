//! [`WholeRead`]: the position of a reader of a whole file, and the detection of its end.

use crate::failure::{Cause, Error};
use crate::file::File;

/// The position of a reader of a whole file. The file ends at the size that it had at its open,
/// because a short reply is not the end of a file. A file that ends before its size is an error.
#[derive(Clone, Copy, Debug)]
pub struct WholeRead {
    size: u64,
    offset: u64,
}

impl WholeRead {
    /// Starts at the beginning of an open file.
    ///
    /// # Errors
    /// [`Error`] if the size cannot be determined.
    pub async fn of(file: &File) -> Result<Self, Error> {
        Ok(Self { size: file.known_stat().await?.size, offset: 0 })
    }

    /// Starts at the beginning of a range of a file from `offset` to `end`, which is at most its
    /// size.
    #[must_use]
    pub const fn part(offset: u64, end: u64) -> Self {
        Self { size: end, offset }
    }

    /// Returns the offset of the next read.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the size of the file, or the end of the range.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Records a reply of `came` bytes to a request for `asked` bytes. Returns `true` at the end of
    /// the file; a file that has grown is read to its new end.
    ///
    /// # Errors
    /// [`Cause::Changed`] if no bytes came before the end.
    pub fn advance(&mut self, came: usize, asked: usize) -> Result<bool, Cause> {
        self.offset += came as u64;
        if came == 0 && self.offset < self.size {
            return Err(Cause::Changed(format!("it ended at byte {} of {}", self.offset, self.size)));
        }
        Ok(came < asked && self.offset >= self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_the_size_and_not_a_short_reply() {
        let read = |size: u64, answers: &[usize]| {
            let mut whole = WholeRead { size, offset: 0 };
            let ends: Vec<_> = answers.iter().map(|came| whole.advance(*came, 10)).collect();
            (ends, whole.offset())
        };
        assert_eq!(read(0, &[0]), (vec![Ok(true)], 0));
        assert_eq!(read(15, &[10, 5]), (vec![Ok(false), Ok(true)], 15));
        assert_eq!(read(15, &[10, 3, 2]), (vec![Ok(false), Ok(false), Ok(true)], 15));
        // A file of whole pieces needs one more reply to show its end, and so does a growing file.
        assert_eq!(read(10, &[10, 0]), (vec![Ok(false), Ok(true)], 10));
        assert_eq!(read(5, &[10, 2]), (vec![Ok(false), Ok(true)], 12));
        let (ends, _) = read(15, &[10, 3, 0]);
        assert!(matches!(&ends[2], Err(Cause::Changed(text)) if text.contains("byte 13 of 15")));
    }
}
