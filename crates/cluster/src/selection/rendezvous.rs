//! Rendezvous hashing: of the same candidates everybody chooses the same one for a path, and when one goes or comes only the
//! paths that it wins change hands.

use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;

use crate::slots::Slot;

/// A child that could take a new file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Candidate {
    pub(super) slot: Slot,
    /// A number for the node that is the same at all its parents.
    pub(super) digest: u64,
    /// Its share of all files, compared with others.
    pub(super) weight: u32,
}

impl Candidate {
    /// The rank for a path: an exponentially distributed time of arrival, shorter for larger weights.
    fn arrival(&self, path: &[u8]) -> f64 {
        let mut hasher = SipHasher13::new_with_keys(self.digest, 0);
        hasher.write(path);
        // 53 bits, as many as a float holds; never 0.
        let uniform = ((hasher.finish() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        -uniform.ln() / f64::from(self.weight.max(1))
    }
}

/// The winner for a path.
pub(super) fn choose(path: &[u8], candidates: impl Iterator<Item = Candidate>) -> Option<Slot> {
    let ranked = candidates.map(|one| (one.arrival(path), one.digest, one.slot));
    let first = ranked.min_by(|(time, digest, _), (other_time, other_digest, _)| {
        time.total_cmp(other_time).then(digest.cmp(other_digest))
    });
    first.map(|(_, _, slot)| slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(weights: &[u32]) -> Vec<Candidate> {
        let all = Slot::all().zip(weights).enumerate();
        all.map(|(at, (slot, weight))| Candidate { slot, digest: at as u64 * 77, weight: *weight }).collect()
    }

    fn choices(candidates: &[Candidate]) -> Vec<u64> {
        let winner = |number: u32| {
            let slot = choose(format!("/store/file{number}").as_bytes(), candidates.iter().copied()).unwrap();
            candidates.iter().find(|one| one.slot == slot).unwrap().digest
        };
        (0..4000).map(winner).collect()
    }

    #[test]
    fn the_order_and_the_slots_of_candidates_do_not_matter() {
        let here = candidates(&[1; 5]);
        let mut there = here.clone();
        there.reverse();
        there.iter_mut().zip(Slot::all().skip(20)).for_each(|(one, slot)| one.slot = slot);
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
