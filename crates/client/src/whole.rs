//! [`WholeRead`]: how far a reader of a whole file is.

use crate::failure::{Cause, Error};
use crate::file::File;

/// How far a reader of a whole file is. It ends at the size that the file had when it was opened: an answer with fewer bytes
/// than were asked for is not the end, and a file that ends before its size is an error.
#[derive(Clone, Copy, Debug)]
pub struct WholeRead {
    size: u64,
    offset: u64,
}

impl WholeRead {
    /// At the beginning of an open file.
    ///
    /// # Errors
    /// [`Error`]: its size is not known.
    pub async fn of(file: &File) -> Result<Self, Error> {
        Ok(Self { size: file.known_stat().await?.size, offset: 0 })
    }

    /// At the beginning of the part of a file from `offset` to `end`, which is at most its size.
    #[must_use]
    pub const fn part(offset: u64, end: u64) -> Self {
        Self { size: end, offset }
    }

    /// Where to read next.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// The size that the file had, or the end of the part.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// So many bytes came where `asked` were asked for. Returns whether that was all of the file; one that has grown is read to
    /// its new end.
    ///
    /// # Errors
    /// [`Cause::Changed`]: nothing came before the end.
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
    fn it_ends_at_the_size_and_not_at_a_short_answer() {
        let read = |size: u64, answers: &[usize]| {
            let mut whole = WholeRead { size, offset: 0 };
            let ends: Vec<_> = answers.iter().map(|came| whole.advance(*came, 10)).collect();
            (ends, whole.offset())
        };
        assert_eq!(read(0, &[0]), (vec![Ok(true)], 0));
        assert_eq!(read(15, &[10, 5]), (vec![Ok(false), Ok(true)], 15));
        assert_eq!(read(15, &[10, 3, 2]), (vec![Ok(false), Ok(false), Ok(true)], 15));
        // A file of whole pieces needs one more answer to show its end, and so does one that grows.
        assert_eq!(read(10, &[10, 0]), (vec![Ok(false), Ok(true)], 10));
        assert_eq!(read(5, &[10, 2]), (vec![Ok(false), Ok(true)], 12));
        let (ends, _) = read(15, &[10, 3, 0]);
        assert!(matches!(&ends[2], Err(Cause::Changed(text)) if text.contains("byte 13 of 15")));
    }
}
