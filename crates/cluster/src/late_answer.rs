//! What a redirector is told whose answer is not known soon.
//!
//! Clients of a manager's own process wait in silence. A real redirector takes silence for a lost manager, so it receives the
//! number of a later answer, or a wait. Real redirectors hand later answers on to their clients for a status and for a list
//! of holders only.

use std::time::Duration;

/// After so long without an answer a real redirector would soon give up: it waits for 2 s. Source: cms protocol 3, section
/// "redirector behaviour".
pub const ANSWER_OVERDUE: Duration = Duration::from_millis(1500);

/// What is said instead of the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LateAnswer<P> {
    /// The answer follows, by this number.
    Promise(P),
    /// The client is to ask again after this time.
    Wait(Duration),
}

/// Returns what a redirector is told whose answer is overdue. `promise`: the number of a later answer, if it hands such an
/// answer on; `lookup`: how long clients wait for a location (`cms.delay lookup`), of which a part is over.
pub fn late_answer<P>(promise: Option<P>, lookup: Duration) -> LateAnswer<P> {
    promise.map_or(LateAnswer::Wait(lookup.saturating_sub(ANSWER_OVERDUE)), LateAnswer::Promise)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_is_over_counts() {
        let wait = |lookup| late_answer(None::<u16>, Duration::from_millis(lookup));
        assert_eq!(wait(5000), LateAnswer::Wait(Duration::from_millis(3500)));
        assert_eq!(wait(1000), LateAnswer::Wait(Duration::ZERO));
        assert_eq!(late_answer(Some(7), Duration::from_secs(5)), LateAnswer::Promise(7));
    }
}
