//! Replies with errors, by their code.

use crate::stats::Counter;
use std::cell::Cell;
use wire::xroot::codes::ErrorCode;

/// The smallest code of an error.
const FIRST: u32 = ErrorCode::ARG_INVALID.0;

/// The number of codes of errors, and one place for all others.
const PLACES: usize = (ErrorCode::TIMER_EXPIRED.0 - FIRST) as usize + 2;

thread_local! {
    /// Errors that are not in the counters of the loop yet.
    static ERRORS: Cell<[u32; PLACES]> = const { Cell::new([0; PLACES]) };
}

fn place_of(code: ErrorCode) -> usize {
    let place = code.0.checked_sub(FIRST).and_then(|place| usize::try_from(place).ok());
    place.unwrap_or(PLACES).min(PLACES - 1)
}

/// Counts a reply with this error. [`ErrorCounters::add_errors`] adds it to the counters of the loop.
pub(crate) fn count_error(code: ErrorCode) {
    let mut errors = ERRORS.get();
    if let Some(count) = errors.get_mut(place_of(code)) {
        *count += 1;
    }
    ERRORS.set(errors);
}

/// Counters of one loop since the start.
pub(crate) struct ErrorCounters([Counter; PLACES]);

impl Default for ErrorCounters {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::default()))
    }
}

impl ErrorCounters {
    /// Adds the errors of this thread that were counted since the last call.
    pub(crate) fn add_errors(&self) {
        let errors = ERRORS.replace([0; PLACES]);
        for (counter, count) in self.0.iter().zip(errors) {
            counter.add(count.into());
        }
    }
}

/// Numbers of replies with errors of all loops since the start.
#[derive(Clone, Copy, Debug)]
pub struct ErrorCounts([u64; PLACES]);

impl Default for ErrorCounts {
    fn default() -> Self {
        Self([0; PLACES])
    }
}

impl ErrorCounts {
    pub(crate) fn add(&mut self, counters: &ErrorCounters) {
        for (sum, counter) in self.0.iter_mut().zip(&counters.0) {
            *sum += counter.get();
        }
    }

    /// Returns the names of all codes with their numbers, and at the end `other`.
    pub fn by_name(&self) -> impl Iterator<Item = (&'static str, u64)> {
        (FIRST..).map(|code| ErrorCode(code).name().unwrap_or("other")).zip(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_its_number_and_unknown_ones_one_together() {
        let counters = ErrorCounters::default();
        for code in [3000, 3011, 3011, 3035, 3036, 0, u32::MAX, 10_000] {
            count_error(ErrorCode(code));
        }
        counters.add_errors();
        counters.add_errors();
        let mut counts = ErrorCounts::default();
        counts.add(&counters);
        let names: Vec<_> = counts.by_name().map(|(name, _)| name).collect();
        assert!(names.iter().all(|name| names.iter().filter(|one| *one == name).count() == 1), "{names:?}");
        let counted: Vec<_> = counts.by_name().filter(|(_, count)| *count > 0).collect();
        assert_eq!(
            counted,
            [("kXR_ArgInvalid", 1), ("kXR_NotFound", 2), ("kXR_TimerExpired", 1), ("other", 4)]
        );
    }
}
