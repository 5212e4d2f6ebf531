//! Claims: locks on paths that serialise changes of a name. An operation that creates, removes,
//! renames or chmods a file claims its path meanwhile.
//!
//! The name on disk and the table of unfinished files change in two steps, on different threads.
//! Otherwise another change of the same name could come in between. The table would then describe
//! the wrong file, and a mark could remain that no operation removes.

use base::LogicalPath;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Deadline for acquiring a claim. Its holder works on the same name, and takes longer only if its
/// disk hangs.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// A claim held for this long is not waited for at all, otherwise repeated requests would occupy
/// the threads of healthy disks.
const HANGS: Duration = Duration::from_secs(5);

/// The extent of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClaimScope {
    /// Only the path itself.
    Name,
    /// Also all paths below it, because they move with it.
    Tree,
}

/// The claimed paths.
#[derive(Default)]
pub(crate) struct Claims {
    held: Mutex<HeldClaims>,
    freed: Condvar,
}

#[derive(Default)]
struct HeldClaims {
    last: u64,
    paths: Vec<ClaimedPath>,
    waiting: usize,
}

struct ClaimedPath {
    number: u64,
    path: LogicalPath,
    scope: ClaimScope,
    since: Instant,
}

impl ClaimedPath {
    fn excludes(&self, path: &LogicalPath, scope: ClaimScope) -> bool {
        self.path == *path
            || self.scope == ClaimScope::Tree && path.is_within(&self.path)
            || scope == ClaimScope::Tree && self.path.is_within(path)
    }
}

impl HeldClaims {
    /// Returns the time at which the oldest conflicting claim was acquired; `None` if there is
    /// none.
    fn in_the_way(&self, paths: &[&LogicalPath], scope: ClaimScope) -> Option<Instant> {
        let excluding = |one: &&ClaimedPath| paths.iter().any(|path| one.excludes(path, scope));
        self.paths.iter().filter(excluding).map(|one| one.since).min()
    }
}

impl Claims {
    /// Claims all of these paths. `None` if others have held one of them for too long. Blocks.
    pub(crate) fn claim(&self, paths: &[&LogicalPath], scope: ClaimScope) -> Option<PathClaim<'_>> {
        self.claim_within(paths, scope, PATIENCE)
    }

    /// Claims like [`Claims::claim`], with another deadline.
    pub(super) fn claim_within(
        &self,
        paths: &[&LogicalPath],
        scope: ClaimScope,
        patience: Duration,
    ) -> Option<PathClaim<'_>> {
        let mut held = self.held();
        let mut until = None;
        while let Some(since) = held.in_the_way(paths, scope) {
            let now = Instant::now();
            let until = *until.get_or_insert(now + patience);
            let left = until.min(since + HANGS.max(patience)).saturating_duration_since(now);
            if left.is_zero() {
                return None;
            }
            held.waiting += 1;
            (held, _) = self.freed.wait_timeout(held, left).unwrap_or_else(PoisonError::into_inner);
            held.waiting -= 1;
        }
        held.last += 1;
        let (number, since) = (held.last, Instant::now());
        held.paths.extend(paths.iter().map(|&path| ClaimedPath { number, path: path.clone(), scope, since }));
        Some(PathClaim { claims: self, number })
    }

    fn held(&self) -> MutexGuard<'_, HeldClaims> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A claim on paths, released when dropped.
pub(crate) struct PathClaim<'a> {
    claims: &'a Claims,
    number: u64,
}

impl Drop for PathClaim<'_> {
    fn drop(&mut self) {
        let mut held = self.claims.held();
        held.paths.retain(|one| one.number != self.number);
        if held.waiting > 0 {
            self.claims.freed.notify_all();
        }
    }
}

#[allow(clippy::unwrap_used)] // a panic is the failure of a test
#[cfg(test)]
mod tests {
    use super::ClaimScope::{Name, Tree};
    use super::*;
    use std::thread;

    fn path(text: &str) -> LogicalPath {
        LogicalPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn claims_on_other_names_do_not_wait() {
        let claims = Claims::default();
        let first = claims.claim(&[&path("/a/b"), &path("/c")], Tree);
        assert!(first.is_some());
        assert!(claims.claim(&[&path("/a/bc"), &path("/d")], Tree).is_some());
        assert!(claims.claim(&[&path("/a")], Name).is_some());
    }

    #[test]
    fn a_directory_is_claimed_with_its_content_only_with_tree_scope() {
        let claims = Claims::default();
        let is_free = |name, scope| claims.held().in_the_way(&[&path(name)], scope).is_none();
        let name = claims.claim(&[&path("/a/b")], Name).unwrap();
        assert_eq!(["/a", "/a/b", "/a/b/c"].map(|name| is_free(name, Name)), [true, false, true]);
        assert_eq!(["/a", "/a/b", "/a/b/c"].map(|name| is_free(name, Tree)), [false, false, true]);
        drop(name);
        let _tree = claims.claim(&[&path("/a/b")], Tree).unwrap();
        assert_eq!(["/a", "/a/b", "/a/b/c"].map(|name| is_free(name, Name)), [true, false, false]);
    }

    #[test]
    fn a_claim_is_acquired_when_the_conflicting_one_ends() {
        let claims = Claims::default();
        let first = claims.claim(&[&path("/a/b")], Name).unwrap();
        thread::scope(|scope| {
            let second = scope.spawn(|| claims.claim(&[&path("/x"), &path("/a")], Tree).is_some());
            while claims.held().waiting == 0 {
                thread::yield_now();
            }
            // A path is not claimed while the claim waits for another one, because that would delay
            // a third operation.
            assert!(claims.claim(&[&path("/x")], Name).is_some());
            drop(first);
            assert!(second.join().unwrap());
        });
        assert!(claims.held().paths.is_empty());
    }

    #[test]
    fn waiting_for_a_claim_ends_at_the_deadline() {
        let claims = Claims::default();
        let _first = claims.claim(&[&path("/a")], Tree).unwrap();
        assert!(claims.claim(&[&path("/a/b/c")], Name).is_none());
        assert_eq!(claims.held().paths.len(), 1);
    }

    #[test]
    fn a_claim_held_for_too_long_is_not_waited_for() {
        let claims = Claims::default();
        let _first = claims.claim(&[&path("/a")], Name).unwrap();
        for claimed in &mut claims.held().paths {
            claimed.since = claimed.since.checked_sub(HANGS).unwrap();
        }
        thread::scope(|scope| {
            let second = scope.spawn(|| claims.claim(&[&path("/a")], Name).is_some());
            while !second.is_finished() {
                assert_eq!(claims.held().waiting, 0);
                thread::yield_now();
            }
            assert!(!second.join().unwrap());
        });
    }
}
