//! Checksums of a stream of data whose pieces arrive in any order.
//!
//! Early pieces are kept, because checksums need the bytes in order.

use std::collections::BTreeMap;

use bytes::Bytes;
use digest::{Algorithm, Checksum, RunningChecksum};

/// Checksums in progress. Early pieces are kept, without a copy, until the pieces before them
/// arrive.
#[derive(Default)]
pub struct PassingSums {
    sums: Vec<RunningChecksum>,
    next: u64,
    early: BTreeMap<u64, Bytes>,
    early_bytes: usize,
}

impl std::fmt::Debug for PassingSums {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PassingSums(up to {}, {} bytes early)", self.next, self.early_bytes)
    }
}

impl PassingSums {
    /// Creates the checksums without data.
    #[must_use]
    pub fn new(algorithms: &[Algorithm]) -> Self {
        Self {
            sums: algorithms.iter().map(|algorithm| RunningChecksum::new(*algorithm)).collect(),
            ..Self::default()
        }
    }

    /// Adds a piece; ranges that were added before are ignored.
    pub fn pass(&mut self, offset: u64, data: &Bytes) {
        if self.sums.is_empty() {
            return;
        }
        if offset > self.next {
            if let Some(before) = self.early.insert(offset, data.clone()) {
                self.early_bytes -= before.len();
            }
            self.early_bytes += data.len();
            return;
        }
        self.take(offset, data);
        while let Some(entry) = self.early.first_entry()
            && *entry.key() <= self.next
        {
            let (offset, data) = entry.remove_entry();
            self.early_bytes -= data.len();
            self.take(offset, &data);
        }
    }

    fn take(&mut self, offset: u64, data: &Bytes) {
        let known = usize::try_from(self.next - offset).unwrap_or(usize::MAX);
        let Some(new) = data.get(known..) else { return };
        self.sums.iter_mut().for_each(|sum| sum.update(new));
        self.next += new.len() as u64;
    }

    /// Returns the number of bytes from the start without a hole.
    #[must_use]
    pub const fn summed_to(&self) -> u64 {
        self.next
    }

    /// Returns the number of early bytes that are kept.
    #[must_use]
    pub const fn early_bytes(&self) -> usize {
        self.early_bytes
    }

    /// Returns the checksums of all `length` bytes; `None` if some of them are missing.
    #[must_use]
    pub fn finish(self, length: u64) -> Option<Vec<Checksum>> {
        (self.next == length).then(|| self.sums.into_iter().map(RunningChecksum::finish).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_in_any_order_give_the_checksum_of_the_whole() {
        let whole: Vec<u8> = (0..1000_u32).map(|byte| (byte * 7) as u8).collect();
        let bytes = Bytes::from(whole.clone());
        let mut sums = PassingSums::new(&[Algorithm::Adler32, Algorithm::Md5]);
        for (from, to) in [(500, 700), (100, 300), (0, 100), (250, 500), (700, 1000), (0, 1000)] {
            sums.pass(from as u64, &bytes.slice(from..to));
        }
        assert_eq!((sums.summed_to(), sums.early_bytes()), (1000, 0));
        let found = sums.finish(1000).unwrap();
        let expected =
            [Algorithm::Adler32, Algorithm::Md5].map(|algorithm| RunningChecksum::of(algorithm, &whole));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_hole_gives_no_checksum() {
        let mut sums = PassingSums::new(&[Algorithm::Adler32]);
        sums.pass(0, &Bytes::from_static(b"ab"));
        sums.pass(3, &Bytes::from_static(b"d"));
        assert_eq!(sums.early_bytes(), 1);
        assert!(sums.finish(4).is_none());
    }
}
