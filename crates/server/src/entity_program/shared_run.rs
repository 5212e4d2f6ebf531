//! [`SharedRun`]: one run of the program for all logins of the same identity that wait for it.
//!
//! A login shares a run that has not started. It does not share one that has, because the site may have
//! changed its users since the start: each result reflects a state after the login.

use super::mapper::{EntityMapper, EntityVariables};
use auth::{EntityNames, LoginWaker};
use base::Owner;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use storage::Pool;

/// The result of a program: names, or the reason why the client is refused.
pub(super) type ProgramResult = Result<EntityNames, String>;

/// A run of the program, and the logins that wait for it.
#[derive(Default)]
pub(super) struct SharedRun(Mutex<RunState>);

#[derive(Default)]
struct RunState {
    result: Option<ProgramResult>,
    /// The logins. Their number is limited by that of the clients that log in.
    wakers: Vec<LoginWaker>,
}

/// The runs that have not started. Programs are shared out by owner, so logins of different owners
/// share no run.
pub(super) type WaitingRuns = Mutex<HashMap<(Owner, EntityVariables), Arc<SharedRun>>>;

impl EntityMapper {
    /// Returns the run of a login; `None` if too many clients wait.
    pub(super) fn join_run(self: &Arc<Self>, entity: EntityVariables) -> Option<Arc<SharedRun>> {
        let key = (Pool::current_owner(), entity);
        let mut waiting = lock(&self.waiting);
        if let Some(run) = waiting.get(&key) {
            return Some(run.clone());
        }
        let run = Arc::new(SharedRun::default());
        let (mapper, started, entity) = (self.clone(), run.clone(), key.clone());
        let job = move || {
            lock(&mapper.waiting).remove(&entity);
            // Without the runs that wait, only logins have the run. It is not needed if they have ended.
            if Arc::strong_count(&started) > 1 {
                started.finish(mapper.run(&entity.1));
            }
        };
        self.pool.run(key.0, Box::new(job)).ok()?;
        // The job waits for the lock, so it does not remove the run before this.
        waiting.insert(key, run.clone());
        Some(run)
    }
}

impl SharedRun {
    /// Returns the result, if the program has ended.
    pub(super) fn result(&self) -> Option<ProgramResult> {
        lock(&self.0).result.clone()
    }

    /// Calls a function when the program has ended, or now if it has.
    pub(super) fn wake_when_ready(&self, waker: LoginWaker) {
        let mut state = lock(&self.0);
        if state.result.is_none() {
            state.wakers.push(waker);
        } else {
            drop(state);
            waker();
        }
    }

    fn finish(&self, result: ProgramResult) {
        let mut state = lock(&self.0);
        state.result = Some(result);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        for wake in wakers {
            wake();
        }
    }
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
