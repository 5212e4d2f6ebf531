//! Sequential read-ahead with a growing window.
//!
//! A read that continues at the end of the previous one doubles the window; any other read closes
//! it. The window is read in pieces of half its size, so that the next piece is in transfer while
//! the previous one is consumed.

use std::collections::VecDeque;
use std::sync::Arc;

use super::shared_read::SharedRead;

/// The state of the read-ahead.
#[derive(Debug)]
pub(super) struct ReadAhead {
    least: usize,
    most: usize,
    /// Size of the window in bytes; 0 before a pattern is detected.
    window: usize,
    /// End of the previous read.
    next: u64,
    queue: VecDeque<Arc<SharedRead>>,
}

/// The pieces of a read.
#[derive(Default, Debug)]
pub(super) struct ReadAheadPlan {
    /// The pieces that contain it, in order; none if it is read directly.
    pub(super) pieces: Vec<Arc<SharedRead>>,
    /// The pieces to start now.
    pub(super) begin: Vec<Arc<SharedRead>>,
    /// Number of bytes that were read ahead and not used.
    pub(super) wasted: u64,
}

impl ReadAhead {
    pub(super) const fn new(least: usize, most: usize) -> Self {
        let most = if most < least { least } else { most };
        Self { least, most, window: 0, next: 0, queue: VecDeque::new() }
    }

    pub(super) const fn window(&self) -> usize {
        self.window
    }

    /// Plans a read of `length` bytes from `offset` of a file of `size` bytes.
    pub(super) fn plan(&mut self, offset: u64, length: usize, size: u64) -> ReadAheadPlan {
        let mut plan = ReadAheadPlan::default();
        let end = offset.saturating_add(length as u64).min(size);
        let ahead = self.queue.front().is_some_and(|first| first.offset <= offset)
            && self.queue.back().is_some_and(|last| offset < last.end());
        let goes_on = offset == self.next || ahead;
        if !goes_on || end <= offset {
            plan.wasted = self.close();
            self.next = offset.saturating_add(length as u64);
            return plan;
        }
        self.window = if self.window == 0 { self.least } else { (self.window * 2).min(self.most) };
        while let Some(first) = self.queue.front()
            && (first.end() <= offset || first.has_failed())
        {
            plan.wasted += first.wasted();
            self.queue.pop_front();
        }
        if self.queue.front().is_some_and(|first| first.offset > offset) {
            // After a failed piece the queue restarts.
            self.queue.clear();
        }
        let until = end.saturating_add(self.window as u64).min(size);
        let mut from = self.queue.back().map_or(offset, |last| last.end());
        while from < until {
            // The requested bytes are one piece; the window is read in halves.
            let wanted = usize::try_from(end.saturating_sub(from)).unwrap_or(usize::MAX);
            let piece = if wanted > 0 { wanted } else { (self.window / 2).max(self.least / 2).max(1) };
            let left = usize::try_from(until - from).unwrap_or(usize::MAX);
            // A short remainder is left to the next read because small pieces cost more than they
            // save.
            if wanted == 0 && left < piece && until < size {
                break;
            }
            let fetch = SharedRead::new(from, piece.min(left));
            from = fetch.end();
            plan.begin.push(fetch.clone());
            self.queue.push_back(fetch);
        }
        plan.pieces = self.queue.iter().filter(|piece| piece.offset < end).cloned().collect();
        self.next = end;
        plan
    }

    /// Drops all pieces and returns the number of unused bytes.
    fn close(&mut self) -> u64 {
        self.window = 0;
        self.queue.drain(..).map(|fetch| fetch.wasted()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 1_000_000;

    fn ranges(fetches: &[Arc<SharedRead>]) -> Vec<(u64, usize)> {
        fetches.iter().map(|fetch| (fetch.offset, fetch.length)).collect()
    }

    #[test]
    fn the_window_grows_with_sequential_reads() {
        let mut ahead = ReadAhead::new(1000, 8000);
        let plan = ahead.plan(0, 100, SIZE);
        assert_eq!(ranges(&plan.begin), [(0, 100), (100, 500), (600, 500)]);
        assert_eq!(ranges(&plan.pieces), [(0, 100)]);
        let plan = ahead.plan(100, 100, SIZE);
        assert_eq!(ranges(&plan.pieces), [(100, 500)]);
        assert_eq!(ranges(&plan.begin), [(1100, 1000)]);
        for step in 2..20 {
            ahead.plan(step * 100, 100, SIZE);
        }
        assert_eq!(ahead.window(), 8000);
    }

    #[test]
    fn a_read_elsewhere_closes_the_window() {
        let mut ahead = ReadAhead::new(1000, 8000);
        ahead.plan(0, 100, SIZE);
        let plan = ahead.plan(500_000, 100, SIZE);
        assert_eq!((plan.pieces.len(), plan.begin.len(), ahead.window()), (0, 0, 0));
        // A sequence may start again from there.
        assert_eq!(ranges(&ahead.plan(500_100, 100, SIZE).pieces), [(500_100, 100)]);
    }

    #[test]
    fn every_read_is_covered_and_nothing_beyond_the_end() {
        let mut ahead = ReadAhead::new(1000, 8000);
        let mut at = 0;
        for length in [1, 999, 5000, 20_000, 3].into_iter().cycle() {
            let end = (at + length as u64).min(SIZE);
            let plan = ahead.plan(at, length, SIZE);
            let mut covered = at;
            for piece in &plan.pieces {
                assert!(piece.offset <= covered && piece.end() <= SIZE, "{at} {length}");
                covered = piece.end();
            }
            assert!(covered >= end, "{at} {length}");
            if end == SIZE {
                break;
            }
            at = end;
        }
        assert!(ahead.plan(SIZE, 10, SIZE).pieces.is_empty());
    }
}
