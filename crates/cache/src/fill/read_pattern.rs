//! [`ReadPattern`]: how a reader moves through a file, and what it will probably read next.

use std::ops::Range;

/// The smallest number of bytes ahead of a reader.
const WINDOW_MIN: u64 = 256 * 1024;
/// The largest number of bytes ahead of a reader.
const WINDOW_MAX: u64 = 8 * 1024 * 1024;
/// The longest gap between two reads of one movement, in bytes.
const GAP_MAX: u64 = 4 * 1024 * 1024;
/// The length of the movement that is remembered, in bytes. Older parts count half.
const MEMORY: u64 = 16 * 1024 * 1024;

/// The movement of a reader through a file.
///
/// The window ahead of it grows while it reads at least three quarters of the bytes that it passes, and is
/// closed when it reads less than half of them. So a job that reads some branches of a file causes no
/// fetches of the others, although it moves forward.
#[derive(Clone, Default, Debug)]
pub struct ReadPattern {
    /// The end of the last read.
    end: u64,
    /// Bytes that it has passed lately, and those of them that it has read.
    passed: u64,
    read: u64,
    window: u64,
}

impl ReadPattern {
    /// Takes a read. Returns the bytes that the reader will probably read next.
    pub fn next(&mut self, bytes: &Range<u64>) -> Range<u64> {
        let length = bytes.end.saturating_sub(bytes.start);
        let goes_on = bytes.start >= self.end && bytes.start - self.end <= GAP_MAX;
        if goes_on {
            self.passed += bytes.end - self.end;
            self.read += length;
        } else {
            (self.passed, self.read, self.window) = (length, length, 0);
        }
        while self.passed > MEMORY {
            (self.passed, self.read) = (self.passed / 2, self.read / 2);
        }
        if !goes_on || self.read.saturating_mul(2) < self.passed {
            self.window = 0;
        } else if self.read.saturating_mul(4) >= self.passed.saturating_mul(3) {
            self.window = (self.window * 2).clamp(WINDOW_MIN, WINDOW_MAX);
        }
        self.end = bytes.end;
        bytes.end..bytes.end.saturating_add(self.window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::SplitMix64;

    const KIB: u64 = 1024;
    const MIB: u64 = 1024 * KIB;

    fn window(pattern: &mut ReadPattern, offset: u64, length: u64) -> u64 {
        let next = pattern.next(&(offset..offset + length));
        assert_eq!(next.start, offset + length);
        next.end - next.start
    }

    #[test]
    fn a_sequential_reader_gets_a_growing_window() {
        let mut pattern = ReadPattern::default();
        let windows: Vec<u64> = (0..8).map(|step| window(&mut pattern, step * 64 * KIB, 64 * KIB)).collect();
        assert_eq!(windows[..3], [256 * KIB, 512 * KIB, MIB]);
        assert_eq!(windows[7], 8 * MIB);
        // Small gaps do not end it.
        assert_eq!(window(&mut pattern, 520 * KIB, 64 * KIB), 8 * MIB);
    }

    #[test]
    fn a_jump_closes_the_window_and_a_sequence_behind_it_opens_it_again() {
        let mut pattern = ReadPattern::default();
        (0..8).for_each(|step| {
            window(&mut pattern, step * MIB, MIB);
        });
        assert_eq!(window(&mut pattern, 100 * MIB, 64 * KIB), 0);
        assert_eq!(window(&mut pattern, 100 * MIB + 64 * KIB, 64 * KIB), 256 * KIB);
        assert_eq!(window(&mut pattern, MIB, 64 * KIB), 0, "backwards");
    }

    #[test]
    fn a_reader_of_some_branches_gets_nothing_ahead() {
        let (mut pattern, mut rng) = (ReadPattern::default(), SplitMix64::new(3));
        let (mut at, mut ahead, mut reads) = (0, 0, 0);
        while at < 650 * MIB {
            let length = 16 * KIB + rng.draw() % (64 * KIB);
            ahead += window(&mut pattern, at, length);
            // It reads 22 % of the file.
            at += length + length * (rng.draw() % 710) / 100;
            reads += 1;
        }
        assert!(reads > 1_000 && ahead <= 2 * MIB, "{reads} reads, {ahead} bytes ahead");
    }
}
