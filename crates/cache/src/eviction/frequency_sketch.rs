//! `FrequencySketch`: an estimate of how often units were requested.

/// Maximum count of a unit.
const COUNT_MAX: u64 = 15;
/// Counters of a unit. Its estimate is the smallest of them.
const ROWS: u32 = 4;
/// Requests after which all counts are halved, for each unit that is expected.
const REQUESTS_PER_UNIT: u64 = 10;
/// Counters of 4 bits in a word.
const COUNTERS_PER_WORD: u64 = 16;

/// A count-min sketch that forgets: it counts the requests for units of which most are not cached, in
/// memory that does not depend on their number. All counts are halved from time to time, so that units
/// that were popular once do not stay popular. Source: Einziger, Friedman, Manes, *TinyLFU*, 2017.
///
/// An estimate is never too small, apart from the halving, and too large where all counters of a unit
/// are shared with others. The hashes must be keyed if clients choose the names.
#[derive(Debug)]
pub(super) struct FrequencySketch {
    words: Vec<u64>,
    requests: u64,
    requests_max: u64,
}

impl FrequencySketch {
    /// Creates a sketch for a cache of `units`. It takes 8 to 16 bytes for each of them.
    pub(super) fn new(units: usize) -> Self {
        let words = units.clamp(8, 1 << 32).next_power_of_two();
        let requests_max = (units as u64).max(64).saturating_mul(REQUESTS_PER_UNIT);
        Self { words: vec![0; words], requests: 0, requests_max }
    }

    /// Counts a request for the unit with this hash.
    pub(super) fn record(&mut self, hash: u64) {
        let count = self.estimate(hash);
        if count < COUNT_MAX {
            for row in 0..ROWS {
                let (word, shift) = self.counter(hash, row);
                // Only the smallest counters grow: the others are those of other units.
                if let Some(word) = self.words.get_mut(word)
                    && *word >> shift & COUNT_MAX == count
                {
                    *word += 1 << shift;
                }
            }
        }
        self.requests += 1;
        if self.requests >= self.requests_max {
            self.halve();
        }
    }

    /// Returns the estimated number of requests for the unit with this hash, at most 15.
    pub(super) fn estimate(&self, hash: u64) -> u64 {
        let counts = (0..ROWS).map(|row| {
            let (word, shift) = self.counter(hash, row);
            self.words.get(word).map_or(0, |word| word >> shift & COUNT_MAX)
        });
        counts.min().unwrap_or(0)
    }

    /// Returns the position of a counter: its word, and the bits in front of it.
    fn counter(&self, hash: u64, row: u32) -> (usize, u32) {
        // Different bits of the products of an odd number select the counters of the rows.
        let mixed = hash.rotate_left(row * 16).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mask = self.words.len() as u64 - 1;
        let word = usize::try_from(mixed >> 20 & mask).unwrap_or(0);
        // Each row has its own quarter of a word, so the counters of a unit are distinct.
        let quarter = COUNTERS_PER_WORD / u64::from(ROWS);
        let counter = u64::from(row) * quarter + (mixed >> 60) % quarter;
        (word, u32::try_from(counter * 4).unwrap_or(0))
    }

    fn halve(&mut self) {
        for word in &mut self.words {
            *word = *word >> 1 & 0x7777_7777_7777_7777;
        }
        self.requests /= 2;
    }
}
