//! One change at a time to a name: who makes a file, removes, renames or chmods it claims its path meanwhile.
//!
//! What lies at a path and what the table of pending files says of it change in two steps, on different threads. If another
//! change of the same name came between them, the table would speak of a file that lies elsewhere, or of none, and a mark
//! would stay that nobody takes off.

use base::LogicalPath;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a claim is waited for. Whoever holds it works on this very name, and is that slow only if its disk hangs.
const PATIENCE: Duration = Duration::from_secs(1);

/// The paths that are being changed.
#[derive(Default)]
pub(crate) struct Claims {
    held: Mutex<Held>,
    freed: Condvar,
}

#[derive(Default)]
struct Held {
    last: u64,
    paths: Vec<(u64, LogicalPath)>,
    waiting: usize,
}

impl Held {
    /// A folder is claimed with all that is in it.
    fn is_free(&self, path: &LogicalPath) -> bool {
        !self.paths.iter().any(|(_, other)| path.is_within(other) || other.is_within(path))
    }
}

impl Claims {
    /// Claims these paths and what is below them, all or none. `None`: others have held some of them for too long. Blocks.
    pub(crate) fn claim(&self, paths: &[&LogicalPath]) -> Option<Claim<'_>> {
        let mut held = self.held();
        let mut until = None;
        while !paths.iter().all(|path| held.is_free(path)) {
            let now = Instant::now();
            let left = until.get_or_insert(now + PATIENCE).saturating_duration_since(now);
            if left.is_zero() {
                return None;
            }
            held.waiting += 1;
            (held, _) = self.freed.wait_timeout(held, left).unwrap_or_else(PoisonError::into_inner);
            held.waiting -= 1;
        }
        held.last += 1;
        let number = held.last;
        held.paths.extend(paths.iter().map(|&path| (number, path.clone())));
        Some(Claim { claims: self, number })
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Paths that nobody else changes as long as this lives.
pub(crate) struct Claim<'a> {
    claims: &'a Claims,
    number: u64,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut held = self.claims.held();
        held.paths.retain(|(number, _)| *number != self.number);
        if held.waiting > 0 {
            self.claims.freed.notify_all();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test fails where it is
mod tests {
    use super::*;
    use std::thread;

    fn path(text: &str) -> LogicalPath {
        LogicalPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn other_names_do_not_wait() {
        let claims = Claims::default();
        let first = claims.claim(&[&path("/a/b"), &path("/c")]);
        assert!(first.is_some());
        assert!(claims.claim(&[&path("/a/bc"), &path("/d")]).is_some());
    }

    #[test]
    fn a_claim_is_had_when_the_last_one_ends() {
        let claims = Claims::default();
        let first = claims.claim(&[&path("/a/b")]).unwrap();
        thread::scope(|scope| {
            let second = scope.spawn(|| claims.claim(&[&path("/x"), &path("/a")]).is_some());
            while claims.held().waiting == 0 {
                thread::yield_now();
            }
            // What is waited for is not claimed: it would keep others waiting for a third.
            assert!(claims.claim(&[&path("/x")]).is_some());
            drop(first);
            assert!(second.join().unwrap());
        });
        assert_eq!(claims.held().paths, []);
    }

    #[test]
    fn a_claim_that_is_held_on_and_on_is_waited_for_no_longer() {
        let claims = Claims::default();
        let _first = claims.claim(&[&path("/a")]).unwrap();
        assert!(claims.claim(&[&path("/a/b/c")]).is_none());
        assert_eq!(claims.held().paths.len(), 1);
    }
}
