//! A data server whose clients are to move elsewhere: those that open a file for reading are sent back to where clients
//! begin, where they find another copy, or are sent here again because there is none. Then they stay.
//!
//! Nothing is cut: who has a file open goes on with it. Only where clients begin at nodes
//! of our own, which know that a draining server still serves what nobody else has.

use base::{Identity, LogicalPath};
use cluster::tree::Address;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use vfs::{Answer, Caller, FileSystem, Operation, Redirect, ReplyTo, Started};

/// A client that is back within this time found nothing else.
const BACK: Duration = Duration::from_secs(60);
/// Clients on their way that are remembered; with more, all are forgotten, and may be sent away once more.
const AWAY_MAX: usize = 65_536;

/// Whether clients are to move, and where they begin.
#[derive(Default)]
pub(crate) struct Moving {
    active: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    door: Option<Address>,
    /// Clients that were sent away, by a hash of who they are and what they read.
    away: HashMap<u64, Instant>,
    hasher: RandomState,
}

impl Moving {
    /// Begins or ends. Without a `door` nobody is sent away: new clients come no more, those that are here stay.
    pub(crate) fn set(&self, draining: bool, door: Option<Address>) {
        let mut state = self.state();
        self.active.store(draining && door.is_some(), Ordering::Relaxed);
        state.door = door;
        state.away.clear();
    }

    fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where this client shall go; `None` if it has been there.
    fn away(&self, who: &Identity, path: &LogicalPath) -> Option<Redirect> {
        let mut state = self.state();
        let key = state.key(who, path);
        if state.away.remove(&key).is_some_and(|left| left.elapsed() < BACK) {
            return None;
        }
        state.leave(key)
    }
}

impl State {
    fn key(&self, who: &Identity, path: &LogicalPath) -> u64 {
        self.hasher.hash_one((who.user(), who.pid, who.host(), path))
    }

    fn leave(&mut self, key: u64) -> Option<Redirect> {
        let door = self.door.clone()?;
        if self.away.len() >= AWAY_MAX {
            self.away.clear();
        }
        self.away.insert(key, Instant::now());
        let host = door.host();
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        Some(Redirect { host, port: door.port().into(), cgi: String::new() })
    }
}

/// A file system whose readers can be made to move.
pub(crate) struct Movable {
    behind: Arc<dyn FileSystem>,
    moving: Arc<Moving>,
}

impl Movable {
    pub(crate) fn before(behind: Arc<dyn FileSystem>, moving: Arc<Moving>) -> Arc<dyn FileSystem> {
        Arc::new(Self { behind, moving })
    }
}

impl FileSystem for Movable {
    fn start(&self, caller: &Arc<Caller>, operation: Operation, reply: &ReplyTo) -> Started {
        let Operation::Open(target, request) = &operation else {
            return self.behind.start(caller, operation, reply);
        };
        if request.write || request.new || request.delete {
            return self.behind.start(caller, operation, reply);
        }
        if self.moving.is_active()
            && let Some(redirect) = self.moving.away(&caller.identity, &target.path.without_slash())
        {
            return Started::Done(Answer::Redirect(redirect));
        }
        self.behind.start(caller, operation, reply)
    }
}
