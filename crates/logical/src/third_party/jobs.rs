//! Which copies run, and which wait for their turn.

use std::collections::VecDeque;

/// Copies that may wait for their turn; more are refused.
pub(crate) const WAITING_MAX: usize = 1_000;

/// Running and waiting copies.
pub(crate) struct Jobs<J> {
    running_max: usize,
    running: Vec<(u64, J)>,
    waiting: VecDeque<(u64, J)>,
    next_number: u64,
}

/// A place among the copies that run or wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct JobNumber(u64);

/// What became of a newcomer.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Entered {
    /// It is to start now.
    Start(JobNumber),
    /// It waits.
    Waits(JobNumber),
    /// Too many wait.
    Full,
}

impl<J: Clone> Jobs<J> {
    pub(crate) fn new(running_max: usize) -> Self {
        Self {
            running_max: running_max.max(1),
            running: Vec::new(),
            waiting: VecDeque::new(),
            next_number: 0,
        }
    }

    pub(crate) fn enter(&mut self, job: J) -> Entered {
        let number = self.next_number;
        if self.running.len() < self.running_max {
            self.next_number += 1;
            self.running.push((number, job));
            return Entered::Start(JobNumber(number));
        }
        if self.waiting.len() >= WAITING_MAX {
            return Entered::Full;
        }
        self.next_number += 1;
        self.waiting.push_back((number, job));
        Entered::Waits(JobNumber(number))
    }

    /// A copy has ended, or waits no more; those that are to start now.
    #[must_use]
    pub(crate) fn leave(&mut self, number: JobNumber) -> Vec<J> {
        self.running.retain(|(at, _)| *at != number.0);
        self.waiting.retain(|(at, _)| *at != number.0);
        let mut start = Vec::new();
        while self.running.len() < self.running_max
            && let Some(next) = self.waiting.pop_front()
        {
            start.push(next.1.clone());
            self.running.push(next);
        }
        start
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &J> {
        self.running.iter().map(|(_, job)| job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_come_in_order_and_places_are_given_on() {
        let mut jobs = Jobs::new(2);
        let Entered::Start(a) = jobs.enter('a') else { panic!() };
        let Entered::Start(b) = jobs.enter('b') else { panic!() };
        let Entered::Waits(c) = jobs.enter('c') else { panic!() };
        let Entered::Waits(_) = jobs.enter('d') else { panic!() };
        assert_eq!(jobs.leave(a), ['c']);
        assert!(jobs.leave(a).is_empty(), "a place is given on once");
        assert_eq!(jobs.leave(c), ['d']);
        assert!(jobs.leave(b).is_empty());
        assert_eq!(jobs.running().collect::<Vec<_>>(), [&'d']);
    }

    #[test]
    fn one_that_stops_waiting_takes_no_turn() {
        let mut jobs = Jobs::new(1);
        let Entered::Start(a) = jobs.enter('a') else { panic!() };
        let Entered::Waits(b) = jobs.enter('b') else { panic!() };
        assert!(jobs.leave(b).is_empty());
        assert!(jobs.leave(a).is_empty());
    }

    #[test]
    fn the_queue_has_an_end() {
        let mut jobs = Jobs::new(1);
        for number in 0..=WAITING_MAX {
            assert_ne!(jobs.enter(number), Entered::Full);
        }
        assert_eq!(jobs.enter(0), Entered::Full);
    }
}
