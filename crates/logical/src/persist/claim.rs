//! One change at a time to a name: who makes a file, removes, renames or chmods it claims its path meanwhile.
//!
//! What lies at a path and what the table of pending files says of it change in two steps, on different threads. If another
//! change of the same name came between them, the table would speak of a file that lies elsewhere, or of none, and a mark
//! would stay that nobody takes off.

use base::LogicalPath;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a claim is waited for. Whoever holds it works on this very name, and is that slow only if its disk hangs.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// Whoever has held one for so long is not waited for at all: those who ask again and again would keep threads of disks that
/// are well.
const HANGS: Duration = Duration::from_secs(5);

/// What is claimed with a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    /// This name alone.
    Name,
    /// What is below it too: it moves along.
    Tree,
}

/// The paths that are being changed.
#[derive(Default)]
pub(crate) struct Claims {
    held: Mutex<Held>,
    freed: Condvar,
}

#[derive(Default)]
struct Held {
    last: u64,
    paths: Vec<Claimed>,
    waiting: usize,
}

struct Claimed {
    number: u64,
    path: LogicalPath,
    scope: Scope,
    since: Instant,
}

impl Claimed {
    fn excludes(&self, path: &LogicalPath, scope: Scope) -> bool {
        self.path == *path
            || self.scope == Scope::Tree && path.is_within(&self.path)
            || scope == Scope::Tree && self.path.is_within(path)
    }
}

impl Held {
    /// Since when the oldest claim is held that is in the way; `None` if none is.
    fn in_the_way(&self, paths: &[&LogicalPath], scope: Scope) -> Option<Instant> {
        let excluding = |one: &&Claimed| paths.iter().any(|path| one.excludes(path, scope));
        self.paths.iter().filter(excluding).map(|one| one.since).min()
    }
}

impl Claims {
    /// Claims these paths, all or none. `None`: others have held some of them for too long. Blocks.
    pub(crate) fn claim(&self, paths: &[&LogicalPath], scope: Scope) -> Option<Claim<'_>> {
        self.claim_within(paths, scope, PATIENCE)
    }

    /// Claims like [`Claims::claim`], with another patience.
    pub(super) fn claim_within(
        &self,
        paths: &[&LogicalPath],
        scope: Scope,
        patience: Duration,
    ) -> Option<Claim<'_>> {
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
        held.paths.extend(paths.iter().map(|&path| Claimed { number, path: path.clone(), scope, since }));
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
        held.paths.retain(|one| one.number != self.number);
        if held.waiting > 0 {
            self.claims.freed.notify_all();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test fails where it is
mod tests {
    use super::Scope::{Name, Tree};
    use super::*;
    use std::thread;

    fn path(text: &str) -> LogicalPath {
        LogicalPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn other_names_do_not_wait() {
        let claims = Claims::default();
        let first = claims.claim(&[&path("/a/b"), &path("/c")], Tree);
        assert!(first.is_some());
        assert!(claims.claim(&[&path("/a/bc"), &path("/d")], Tree).is_some());
        assert!(claims.claim(&[&path("/a")], Name).is_some());
    }

    #[test]
    fn a_folder_is_claimed_with_what_is_in_it_only_where_that_moves_along() {
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
    fn a_claim_is_had_when_the_last_one_ends() {
        let claims = Claims::default();
        let first = claims.claim(&[&path("/a/b")], Name).unwrap();
        thread::scope(|scope| {
            let second = scope.spawn(|| claims.claim(&[&path("/x"), &path("/a")], Tree).is_some());
            while claims.held().waiting == 0 {
                thread::yield_now();
            }
            // What is waited for is not claimed: it would keep others waiting for a third.
            assert!(claims.claim(&[&path("/x")], Name).is_some());
            drop(first);
            assert!(second.join().unwrap());
        });
        assert!(claims.held().paths.is_empty());
    }

    #[test]
    fn a_claim_that_is_held_on_and_on_is_waited_for_no_longer() {
        let claims = Claims::default();
        let _first = claims.claim(&[&path("/a")], Tree).unwrap();
        assert!(claims.claim(&[&path("/a/b/c")], Name).is_none());
        assert_eq!(claims.held().paths.len(), 1);
    }

    #[test]
    fn a_claim_whose_disk_hangs_is_not_waited_for_at_all() {
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
