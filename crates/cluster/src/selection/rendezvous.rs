//! Rendezvous hashing: a stable choice among candidates, without coordination.
//!
//! All nodes with the same candidates choose the same one for a path, so that replicated managers
//! agree. When a candidate leaves or joins, only the paths that it wins change their place.

use std::cmp::Ordering;
use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;

/// A child that could take a new file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RendezvousCandidate {
    /// A number for the node that is equal at all its parents.
    pub(super) digest: u64,
    /// Its share of all files, relative to the others.
    pub(super) weight: u32,
}

/// The rank of a candidate for a path; the lowest wins.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Rank {
    /// An exponentially distributed time of arrival, shorter for larger weights.
    arrival: f64,
    digest: u64,
}

impl RendezvousCandidate {
    /// Returns its rank for a path.
    pub(super) fn rank(&self, path: &[u8]) -> Rank {
        let mut hasher = SipHasher13::new_with_keys(self.digest, 0);
        hasher.write(path);
        // 53 bits, the precision of a float; never 0.
        let uniform = ((hasher.finish() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        Rank { arrival: -uniform.ln() / f64::from(self.weight.max(1)), digest: self.digest }
    }
}

impl Eq for Rank {}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        self.arrival.total_cmp(&other.arrival).then(self.digest.cmp(&other.digest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(weights: &[u32]) -> Vec<RendezvousCandidate> {
        let all = weights.iter().enumerate();
        all.map(|(at, weight)| RendezvousCandidate { digest: at as u64 * 77, weight: *weight }).collect()
    }

    /// Returns the winners of many paths.
    fn choices(candidates: &[RendezvousCandidate]) -> Vec<u64> {
        let winner = |number: u32| {
            let path = format!("/store/file{number}");
            candidates.iter().min_by_key(|one| one.rank(path.as_bytes())).unwrap().digest
        };
        (0..4000).map(winner).collect()
    }

    #[test]
    fn the_order_of_candidates_does_not_matter() {
        let here = candidates(&[1; 5]);
        let mut there = here.clone();
        there.reverse();
        assert_eq!(choices(&here), choices(&there));
    }

    #[test]
    fn paths_stay_where_they_are_when_another_candidate_goes() {
        let all = candidates(&[1; 5]);
        let (before, after) = (choices(&all), choices(&all[..4]));
        let gone = all[4].digest;
        assert!(before.iter().zip(&after).all(|(before, after)| before == after || *before == gone));
    }

    #[test]
    fn shares_follow_the_weights() {
        let all = candidates(&[1, 1, 2]);
        let chosen = choices(&all);
        let count = |at: usize| chosen.iter().filter(|digest| **digest == all[at].digest).count();
        for (at, expected) in [(0, 1000), (1, 1000), (2, 2000)] {
            assert!(count(at).abs_diff(expected) < 150, "candidate {at}: {} of 4000", count(at));
        }
    }
}
