//! A sample of a few pages across a file.
//!
//! Sources with different samples have different files, so most wrong sources are found before the
//! transfer.

use bytes::Bytes;
use tokio::task::JoinSet;

use crate::failure::Error;
use crate::file::File;

/// Number of pages in a sample.
const PIECES: u64 = 16;
/// Size of each page, which is the unit of page checksums.
const PIECE_BYTES: u64 = 4096;

/// The pages in the order of the file.
pub(super) type Sample = Vec<Bytes>;

/// Returns the positions of the pages of a file of `size` bytes: the first, the last and some
/// between them, or the whole file.
fn pieces(size: u64) -> Vec<(u64, usize)> {
    if size <= PIECES * PIECE_BYTES {
        let length = usize::try_from(size).unwrap_or(0);
        return if length == 0 { Vec::new() } else { vec![(0, length)] };
    }
    let last = (size - 1) / PIECE_BYTES;
    let piece = |number: u64| {
        let page = if number + 1 == PIECES { last } else { last / (PIECES - 1) * number };
        let at = page * PIECE_BYTES;
        (at, usize::try_from(PIECE_BYTES.min(size - at)).unwrap_or(0))
    };
    (0..PIECES).map(piece).collect()
}

/// Reads the sample of a file of `size` bytes; all pages are requested at once.
pub(super) async fn take(file: &File, size: u64, pages: bool) -> Result<Sample, Error> {
    let mut reading = JoinSet::new();
    for (number, (offset, length)) in pieces(size).into_iter().enumerate() {
        let file = file.clone();
        reading.spawn(async move { (number, file.read_range(pages, offset, length).await) });
    }
    let mut found = Vec::new();
    while let Some(read) = reading.join_next().await {
        let Ok((number, data)) = read else { continue };
        found.push((number, data?));
    }
    found.sort_by_key(|(number, _)| *number);
    Ok(found.into_iter().map(|(_, data)| data).collect())
}

/// Returns the index of the first member of the largest group of equal values. Of groups of equal
/// size the first one wins.
pub(super) fn most<T>(said: &[T], same: impl Fn(&T, &T) -> bool) -> Option<usize> {
    let votes = |index: usize| {
        said.iter().filter(|other| said.get(index).is_some_and(|one| same(one, other))).count()
    };
    (0..said.len()).rev().max_by_key(|index| votes(*index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_cover_small_files_and_both_ends_of_large_ones() {
        assert_eq!(pieces(0), []);
        assert_eq!(pieces(1), [(0, 1)]);
        assert_eq!(pieces(65_536), [(0, 65_536)]);
        for size in [65_537, 1_000_000, 123_456_789_012, u64::MAX / 2] {
            let pieces = pieces(size);
            assert_eq!(pieces.len() as u64, PIECES);
            assert_eq!(pieces.first(), Some(&(0, 4096)));
            let (at, length) = *pieces.last().unwrap();
            assert_eq!(at + length as u64, size);
            assert!(pieces.windows(2).all(|pair| pair[0].0 + pair[0].1 as u64 <= pair[1].0), "{pieces:?}");
        }
    }

    #[test]
    fn the_majority_decides_or_the_first_of_equal_groups() {
        let most = |said: &[u8]| most(said, |a, b| a == b).map(|index| said[index]);
        assert_eq!(most(&[]), None);
        assert_eq!(most(&[1, 2, 2]), Some(2));
        assert_eq!(most(&[1, 2]), Some(1));
        assert_eq!(most(&[3, 1, 2, 2, 1]), Some(1));
    }
}
