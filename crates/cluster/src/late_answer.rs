//! The reply to a redirector whose answer is overdue (decision 027).
//!
//! Clients of a manager's own process wait without a message. A real redirector treats a missing
//! message as a lost manager, so it receives the number of a later answer, or a wait. Real
//! redirectors forward later answers to their clients only for a status and for a list of holders.

use std::time::Duration;

/// The time after which an answer is overdue. A real redirector gives up after 2 s. Source: cms
/// protocol 3, section "redirector behaviour".
pub const ANSWER_OVERDUE: Duration = Duration::from_millis(1500);

/// The reply instead of the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LateAnswer<P> {
    /// The answer follows, with this number.
    Promise(P),
    /// The client retries after this time.
    Wait(Duration),
}

/// Returns the reply to a redirector whose answer is overdue. `promise` is the number of a later
/// answer, if the redirector forwards such answers. `lookup` is the wait of clients for a location
/// (`cms.delay lookup`), of which a part has passed.
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
