//! Fault injection: an error for a kind of call, a gate that holds calls, or the end of the process
//! after a number of changing calls.

use std::collections::HashMap;
use std::io;
use std::sync::{Condvar, Mutex, PoisonError};

/// The extent to which a changing call is executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Whole,
    /// Half of the call, after which the process has stopped.
    Half,
}

#[derive(Default)]
struct State {
    /// Error numbers by kind of call.
    errors: HashMap<&'static str, i32>,
    /// Kinds of calls that wait, and those that panic.
    held: HashMap<&'static str, usize>,
    panics: HashMap<&'static str, ()>,
    /// Number of changing calls until the process stops.
    left: Option<usize>,
    dead: bool,
    calls: HashMap<&'static str, usize>,
}

/// The active faults.
#[derive(Default)]
pub struct Faults {
    state: Mutex<State>,
    changed: Condvar,
}

impl Faults {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the error of all calls of a stopped process.
    pub fn dead() -> io::Error {
        io::Error::from_raw_os_error(5)
    }

    /// Makes every call of this kind fail with this error, or none.
    pub fn fail(&self, kind: &'static str, errno: Option<i32>) {
        match errno {
            Some(errno) => self.state().errors.insert(kind, errno),
            None => self.state().errors.remove(kind),
        };
    }

    /// Holds calls of this kind until released.
    pub fn hold(&self, kind: &'static str) {
        self.state().held.insert(kind, 0);
    }

    /// Waits until this number of calls of this kind are held.
    pub fn wait_for_held(&self, kind: &'static str, count: usize) {
        let mut state = self.state();
        while state.held.get(kind).copied().unwrap_or(count) < count {
            let (rest, timeout) = self.changed.wait_timeout(state, super::PATIENCE).unwrap();
            assert!(!timeout.timed_out(), "there are fewer than {count} calls of {kind}");
            state = rest;
        }
    }

    pub fn release(&self, kind: &'static str) {
        self.state().held.remove(kind);
        self.changed.notify_all();
    }

    pub fn panic_on(&self, kind: &'static str, on: bool) {
        if on {
            self.state().panics.insert(kind, ());
        } else {
            self.state().panics.remove(kind);
        }
    }

    /// Stops the process at the changing call after `calls` further ones.
    pub fn stop_after(&self, calls: usize) {
        self.state().left = Some(calls);
    }

    pub fn is_dead(&self) -> bool {
        self.state().dead
    }

    /// Returns the number of calls of this kind so far.
    pub fn calls(&self, kind: &'static str) -> usize {
        self.state().calls.get(kind).copied().unwrap_or_default()
    }

    /// Applies the faults to a call that changes nothing.
    pub fn check(&self, kind: &'static str) -> io::Result<()> {
        let mut state = self.state();
        *state.calls.entry(kind).or_default() += 1;
        if state.held.contains_key(kind) {
            *state.held.get_mut(kind).unwrap() += 1;
            self.changed.notify_all();
            while state.held.contains_key(kind) {
                state = self.changed.wait(state).unwrap();
            }
        }
        if state.dead {
            return Err(Self::dead());
        }
        if state.panics.contains_key(kind) {
            drop(state);
            panic!("injected");
        }
        match state.errors.get(kind) {
            Some(errno) => Err(io::Error::from_raw_os_error(*errno)),
            None => Ok(()),
        }
    }

    /// Applies the faults to a call that changes something.
    pub fn step(&self, kind: &'static str) -> io::Result<Step> {
        self.check(kind)?;
        let mut state = self.state();
        match &mut state.left {
            Some(0) => {
                state.dead = true;
                Ok(Step::Half)
            }
            Some(left) => {
                *left -= 1;
                Ok(Step::Whole)
            }
            None => Ok(Step::Whole),
        }
    }
}
