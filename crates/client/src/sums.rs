//! Checksums of data while it passes, in whatever order its pieces do.

use std::collections::BTreeMap;

use bytes::Bytes;
use digest::{Algorithm, Checksum, Running};

/// Checksums in the making. Pieces that come too early are kept until those before them have come, without copying them.
#[derive(Default)]
pub struct PassingSums {
    sums: Vec<Running>,
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
    /// Of no bytes yet.
    #[must_use]
    pub fn new(algorithms: &[Algorithm]) -> Self {
        Self {
            sums: algorithms.iter().map(|algorithm| Running::new(*algorithm)).collect(),
            ..Self::default()
        }
    }

    /// Takes a piece; what was taken before counts once.
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

    /// Up to where the sums go: bytes from the start without a hole.
    #[must_use]
    pub const fn summed_to(&self) -> u64 {
        self.next
    }

    /// Bytes that are kept because they came too early.
    #[must_use]
    pub const fn early_bytes(&self) -> usize {
        self.early_bytes
    }

    /// The sums of all `length` bytes; `None` when some of them have not passed.
    #[must_use]
    pub fn finish(self, length: u64) -> Option<Vec<Checksum>> {
        (self.next == length).then(|| self.sums.into_iter().map(Running::finish).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_in_any_order_give_the_sum_of_the_whole() {
        let whole: Vec<u8> = (0..1000_u32).map(|byte| (byte * 7) as u8).collect();
        let bytes = Bytes::from(whole.clone());
        let mut sums = PassingSums::new(&[Algorithm::Adler32, Algorithm::Md5]);
        for (from, to) in [(500, 700), (100, 300), (0, 100), (250, 500), (700, 1000), (0, 1000)] {
            sums.pass(from as u64, &bytes.slice(from..to));
        }
        assert_eq!((sums.summed_to(), sums.early_bytes()), (1000, 0));
        let found = sums.finish(1000).unwrap();
        let expected = [Algorithm::Adler32, Algorithm::Md5].map(|algorithm| Running::of(algorithm, &whole));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_hole_gives_no_sum() {
        let mut sums = PassingSums::new(&[Algorithm::Adler32]);
        sums.pass(0, &Bytes::from_static(b"ab"));
        sums.pass(3, &Bytes::from_static(b"d"));
        assert_eq!(sums.early_bytes(), 1);
        assert!(sums.finish(4).is_none());
    }
}
