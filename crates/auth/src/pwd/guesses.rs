//! [`PasswordGuesses`]: the guesses of all exchanges that are being checked, and those that wait.
//!
//! A guess that depends on the results of others waits without a thread: its exchange gets a
//! [`WaitingGuess`] and is woken when the guess may be checked, or is refused. Guesses are decided in
//! the order in which they began to wait.

use super::failures::{FailureCounts, GuessAdmission, GuessOutcome, PasswordGuess};
use crate::server::LoginWaker;
use base::ClientHost;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// The guesses at a server. Their number is that of the clients that are not authenticated yet, which
/// the sessions limit.
pub(super) struct PasswordGuesses {
    /// See [`super::PwdServerSettings::failures_max`].
    failures_max: u32,
    state: Mutex<GuessState>,
}

#[derive(Default)]
struct GuessState {
    failures: FailureCounts,
    /// Guesses that wait, or that are decided and not resumed yet, in the order of their beginning.
    waiting: BTreeMap<u64, WaitingEntry>,
    last_id: u64,
}

struct WaitingEntry {
    guess: OwnedGuess,
    /// The time of its beginning.
    now: SystemTime,
    admission: GuessAdmission,
    waker: Option<LoginWaker>,
}

#[derive(Clone)]
struct OwnedGuess {
    user: String,
    is_user: bool,
    host: ClientHost,
}

impl OwnedGuess {
    fn borrowed(&self) -> PasswordGuess<'_> {
        PasswordGuess { user: &self.user, is_user: self.is_user, host: self.host }
    }
}

/// The beginning of a guess.
pub(super) enum GuessStart {
    /// It may be checked.
    Begun(RunningGuess),
    /// It depends on the result of guesses that are being checked.
    Waits(WaitingGuess),
    /// The user or the host has failed too often.
    Locked,
}

impl PasswordGuesses {
    pub(super) fn new(failures_max: u32) -> Arc<Self> {
        Arc::new(Self { failures_max, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, GuessState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the failures of all users but these.
    pub(super) fn retain_users(&self, is_user: impl Fn(&str) -> bool) {
        self.state().failures.retain_users(is_user);
    }

    /// Announces a guess.
    pub(super) fn begin(self: &Arc<Self>, guess: PasswordGuess<'_>, now: SystemTime) -> GuessStart {
        let PasswordGuess { user, is_user, host } = guess;
        let owned = OwnedGuess { user: user.to_owned(), is_user, host };
        let mut state = self.state();
        match state.failures.begin(guess, self.failures_max, now) {
            GuessAdmission::Begun => GuessStart::Begun(RunningGuess::new(self.clone(), owned, now)),
            GuessAdmission::Locked => GuessStart::Locked,
            GuessAdmission::Later => {
                state.last_id += 1;
                let id = state.last_id;
                let admission = GuessAdmission::Later;
                let entry = WaitingEntry { guess: owned, now, admission, waker: None };
                state.waiting.insert(id, entry);
                GuessStart::Waits(WaitingGuess { guesses: self.clone(), id, user: user.to_owned() })
            }
        }
    }

    /// Ends a guess that was begun, and wakes the exchanges whose guesses this decides.
    fn end(&self, guess: &OwnedGuess, outcome: GuessOutcome, now: SystemTime) {
        let mut state = self.state();
        let GuessState { failures, waiting, .. } = &mut *state;
        failures.end(guess.borrowed(), outcome, now);
        let mut wakers = Vec::new();
        for entry in waiting.values_mut().filter(|entry| entry.admission == GuessAdmission::Later) {
            entry.admission = failures.begin(entry.guess.borrowed(), self.failures_max, entry.now);
            if entry.admission != GuessAdmission::Later {
                wakers.extend(entry.waker.take());
            }
        }
        drop(state);
        wakers.into_iter().for_each(|wake| wake());
    }
}

/// A guess that is being checked. It ends when this is dropped.
pub(super) struct RunningGuess {
    guesses: Arc<PasswordGuesses>,
    guess: OwnedGuess,
    now: SystemTime,
    outcome: GuessOutcome,
}

impl RunningGuess {
    fn new(guesses: Arc<PasswordGuesses>, guess: OwnedGuess, now: SystemTime) -> Self {
        // The end of the check by a panic is a failure.
        Self { guesses, guess, now, outcome: GuessOutcome::Failed }
    }

    pub(super) fn set_outcome(&mut self, outcome: GuessOutcome) {
        self.outcome = outcome;
    }
}

impl Drop for RunningGuess {
    fn drop(&mut self) {
        self.guesses.end(&self.guess, self.outcome, self.now);
    }
}

/// A guess that waits for the results of others. It is withdrawn when this is dropped.
pub(super) struct WaitingGuess {
    guesses: Arc<PasswordGuesses>,
    id: u64,
    user: String,
}

impl WaitingGuess {
    /// Returns the user of the guess.
    pub(super) fn user(&self) -> &str {
        &self.user
    }

    /// Calls `waker` once when the guess is decided: immediately, or from the thread that ends another
    /// one.
    pub(super) fn wake_when_decided(&self, waker: LoginWaker) {
        let mut state = self.guesses.state();
        match state.waiting.get_mut(&self.id) {
            Some(entry) if entry.admission == GuessAdmission::Later => entry.waker = Some(waker),
            _ => {
                drop(state);
                waker();
            }
        }
    }

    /// Begins the guess if it is decided.
    pub(super) fn resume(self, now: SystemTime) -> GuessStart {
        let mut state = self.guesses.state();
        match state.waiting.get(&self.id).map_or(GuessAdmission::Locked, |entry| entry.admission) {
            GuessAdmission::Later => {
                drop(state);
                GuessStart::Waits(self)
            }
            GuessAdmission::Locked => GuessStart::Locked,
            GuessAdmission::Begun => match state.waiting.remove(&self.id) {
                Some(entry) => {
                    drop(state);
                    GuessStart::Begun(RunningGuess::new(self.guesses.clone(), entry.guess, now))
                }
                None => GuessStart::Locked,
            },
        }
    }
}

impl Drop for WaitingGuess {
    fn drop(&mut self) {
        let withdrawn = self.guesses.state().waiting.remove(&self.id);
        if let Some(entry) = withdrawn.filter(|entry| entry.admission == GuessAdmission::Begun) {
            self.guesses.end(&entry.guess, GuessOutcome::NotCounted, entry.now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const AT: SystemTime = SystemTime::UNIX_EPOCH;

    impl PasswordGuesses {
        pub(in crate::pwd) fn failures_of(&self, host: ClientHost) -> u32 {
            self.state().failures.of_host(host)
        }
    }

    fn guess(user: &str, last: u8) -> PasswordGuess<'_> {
        let host = ClientHost::from(Some(IpAddr::from([192, 0, 2, last])));
        PasswordGuess { user, is_user: true, host }
    }

    fn begun(start: GuessStart) -> RunningGuess {
        match start {
            GuessStart::Begun(running) => running,
            GuessStart::Waits(_) => panic!("it waits"),
            GuessStart::Locked => panic!("locked"),
        }
    }

    fn waits(start: GuessStart) -> WaitingGuess {
        match start {
            GuessStart::Waits(waiting) => waiting,
            GuessStart::Begun(_) => panic!("begun"),
            GuessStart::Locked => panic!("locked"),
        }
    }

    fn end(mut running: RunningGuess, outcome: GuessOutcome) {
        running.set_outcome(outcome);
    }

    fn counted(waiting: &WaitingGuess, woken: &Arc<AtomicUsize>) {
        let woken = woken.clone();
        waiting.wake_when_decided(Box::new(move || {
            woken.fetch_add(1, Ordering::Relaxed);
        }));
    }

    #[test]
    fn guesses_that_wait_begin_in_order_and_one_for_each_that_ends() {
        let guesses = PasswordGuesses::new(1);
        let first = begun(guesses.begin(guess("alice", 1), AT));
        let woken = [Arc::default(), Arc::default()];
        let second = waits(guesses.begin(guess("alice", 1), AT));
        let third = waits(guesses.begin(guess("bob", 1), AT));
        counted(&second, &woken[0]);
        counted(&third, &woken[1]);
        let second = waits(second.resume(AT));
        begun(guesses.begin(guess("alice", 2), AT));
        end(first, GuessOutcome::LoggedIn);
        let woken = || woken.each_ref().map(|woken| woken.load(Ordering::Relaxed));
        assert_eq!(woken(), [1, 0]);
        // A later guess does not overtake those that wait.
        waits(guesses.begin(guess("carol", 1), AT));
        let third = waits(third.resume(AT));
        end(begun(second.resume(AT)), GuessOutcome::NotCounted);
        assert_eq!(woken(), [1, 1]);
        begun(third.resume(AT));
    }

    #[test]
    fn a_failure_refuses_the_guesses_that_wait() {
        let guesses = PasswordGuesses::new(1);
        let first = begun(guesses.begin(guess("alice", 1), AT));
        let woken = Arc::default();
        let waiting: Vec<_> = (0..1000).map(|_| waits(guesses.begin(guess("bob", 1), AT))).collect();
        waiting.iter().for_each(|waiting| counted(waiting, &woken));
        end(first, GuessOutcome::Failed);
        assert_eq!(woken.load(Ordering::Relaxed), 1000);
        assert!(waiting.into_iter().all(|waiting| matches!(waiting.resume(AT), GuessStart::Locked)));
        assert!(guesses.state().waiting.is_empty());
    }

    #[test]
    fn a_guess_that_is_withdrawn_lets_the_next_one_begin() {
        let guesses = PasswordGuesses::new(1);
        let first = begun(guesses.begin(guess("alice", 1), AT));
        let gone = waits(guesses.begin(guess("alice", 1), AT));
        let admitted = waits(guesses.begin(guess("alice", 1), AT));
        let last = waits(guesses.begin(guess("alice", 1), AT));
        drop(gone);
        end(first, GuessOutcome::NotCounted);
        drop(admitted);
        let woken = Arc::default();
        counted(&last, &woken);
        assert_eq!(woken.load(Ordering::Relaxed), 1, "it is decided already");
        end(begun(last.resume(AT)), GuessOutcome::NotCounted);
        assert!(guesses.state().waiting.is_empty());
        assert_eq!(guesses.failures_of(guess("alice", 1).host), 0);
    }
}
