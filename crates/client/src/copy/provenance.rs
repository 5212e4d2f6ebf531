//! [`Provenance`]: a map from ranges of a file to the sources that delivered them.
//!
//! It exists so that the bytes of an untrusted source can be replaced.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges of a file and their sources. Adjacent ranges of one source are one entry.
#[derive(Debug, Default)]
pub(super) struct Provenance {
    /// Start to end and source.
    parts: BTreeMap<u64, (u64, usize)>,
}

impl Provenance {
    /// Records the source of a range and replaces earlier records of it.
    pub(super) fn set(&mut self, part: Range<u64>, source: usize) {
        if part.is_empty() {
            return;
        }
        self.cut(part.start);
        self.cut(part.end);
        let covered: Vec<u64> = self.parts.range(part.clone()).map(|(start, _)| *start).collect();
        covered.iter().for_each(|start| {
            self.parts.remove(start);
        });
        let (mut start, mut end) = (part.start, part.end);
        if let Some((before, (its_end, its_source))) = self.parts.range(..start).next_back()
            && (*its_end, *its_source) == (start, source)
        {
            start = *before;
        }
        if let Some((its_end, its_source)) = self.parts.get(&end).copied()
            && its_source == source
        {
            self.parts.remove(&end);
            end = its_end;
        }
        self.parts.insert(start, (end, source));
    }

    /// Splits the range that contains `at`.
    fn cut(&mut self, at: u64) {
        if let Some((_, (end, source))) = self.parts.range_mut(..at).next_back()
            && *end > at
        {
            let rest = (*end, *source);
            *end = at;
            self.parts.insert(at, rest);
        }
    }

    /// Returns all ranges in the order of the file, with their sources.
    pub(super) fn all(&self) -> Vec<(Range<u64>, usize)> {
        self.parts.iter().map(|(start, (end, source))| (*start..*end, *source)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_source_of_a_range_counts() {
        let mut given = Provenance::default();
        given.set(0..10, 0);
        given.set(10..20, 1);
        given.set(20..30, 0);
        assert_eq!(given.all(), [(0..10, 0), (10..20, 1), (20..30, 0)]);
        given.set(5..25, 2);
        assert_eq!(given.all(), [(0..5, 0), (5..25, 2), (25..30, 0)]);
        given.set(10..12, 0);
        given.set(7..7, 0);
        assert_eq!(given.all(), [(0..5, 0), (5..10, 2), (10..12, 0), (12..25, 2), (25..30, 0)]);
        given.set(5..25, 0);
        assert_eq!(given.all(), [(0..30, 0)]);
    }

    #[test]
    fn it_equals_a_map_of_single_bytes() {
        let (mut given, mut bytes) = (Provenance::default(), [None; 60]);
        let mut seed = 7_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..500 {
            let (start, length, source) = (next(50), next(11), next(3) as usize);
            given.set(start..start + length, source);
            bytes[start as usize..(start + length) as usize].fill(Some(source));
            let mut told = [None; 60];
            let all = given.all();
            for (part, source) in &all {
                told[part.start as usize..part.end as usize].fill(Some(*source));
            }
            assert_eq!(told, bytes);
            let apart =
                |pair: &[(Range<u64>, usize)]| pair[0].0.end < pair[1].0.start || pair[0].1 != pair[1].1;
            assert!(all.windows(2).all(apart), "{all:?}");
        }
    }
}
