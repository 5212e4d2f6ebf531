//! Which of several sources is asked for which block: a pure machine, time is an argument.
//!
//! Each source has a few places for requests, and whoever needs a block takes a free one: so a fast source, which frees
//! its places sooner, gives more. When a place is free and nobody waits for one, no block is left that was not asked
//! for; then the block that is expected last is asked for a second time, where it is expected sooner, and the first
//! answer counts. A source whose answer is overdue by far is given up.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// How much of the latest block counts for the expected time of the next.
const NEWS: f64 = 0.3;
/// An answer that takes so many times as long as expected, and at least [`OVERDUE_MIN`], does not come.
const OVERDUE: f64 = 20.0;
/// See [`OVERDUE`].
const OVERDUE_MIN: Duration = Duration::from_secs(20);

/// How long a block takes, at best. All that is asked of a source arrives at about the same time when it serves requests
/// evenly; if that took seconds, it would have nothing to do while we take it, and others nothing to take over at the end.
const BLOCK_SECONDS: f64 = 0.5;
/// Bytes of the first blocks, before it is known how long they take.
const FIRST_BLOCK_BYTES: u64 = 256 * 1024;

/// A request for a block at one source.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Attempt(u64);

/// See above.
#[derive(Debug, Default)]
pub(super) struct Shares {
    members: Vec<Member>,
    under_way: BTreeMap<Attempt, UnderWay>,
    attempts: u64,
    /// Blocks that wait for a place.
    waiting: usize,
}

#[derive(Debug)]
struct Member {
    places: usize,
    used: usize,
    /// Seconds that the latest blocks took, from the request to the last byte.
    expected: Option<f64>,
    /// Bytes a second of one place, in the latest blocks.
    rate: Option<f64>,
    bytes: u64,
    gone: bool,
}

#[derive(Clone, Copy, Debug)]
struct UnderWay {
    member: usize,
    block: u64,
    begun: Instant,
    /// The block is asked for elsewhere too.
    twice: bool,
}

impl Shares {
    /// A source with so many places joins; its number.
    pub(super) fn join(&mut self, places: usize) -> usize {
        let places = places.max(1);
        self.members.push(Member { places, used: 0, expected: None, rate: None, bytes: 0, gone: false });
        self.members.len() - 1
    }

    /// Sources that are not given up.
    pub(super) fn present(&self) -> usize {
        self.members.iter().filter(|member| !member.gone).count()
    }

    /// Whether a source is not given up.
    pub(super) fn is_present(&self, member: usize) -> bool {
        self.members.get(member).is_some_and(|member| !member.gone)
    }

    /// Bytes that a source gave and that were used.
    pub(super) fn bytes(&self, member: usize) -> u64 {
        self.members.get(member).map_or(0, |member| member.bytes)
    }

    /// Somebody waits for a place, or no longer.
    pub(super) fn wait(&mut self, waits: bool) {
        self.waiting = if waits { self.waiting + 1 } else { self.waiting.saturating_sub(1) };
    }

    /// A source with a free place for a block, the one that is expected to answer first; not one of `not`.
    pub(super) fn place(&self, not: &[usize]) -> Option<usize> {
        let free = |(number, member): &(usize, &Member)| {
            !member.gone && member.used < member.places && !not.contains(number)
        };
        // One that is not known yet is tried first.
        let expected = |member: &Member| member.expected.unwrap_or(0.0) * (member.used + 1) as f64;
        let free = self.members.iter().enumerate().filter(free);
        let order = |a: &Member, b: &Member| expected(a).total_cmp(&expected(b)).then(a.used.cmp(&b.used));
        free.min_by(|a, b| order(a.1, b.1)).map(|(number, _)| number)
    }

    /// A block is asked for.
    pub(super) fn begin(&mut self, member: usize, block: u64, now: Instant) -> Attempt {
        if let Some(member) = self.members.get_mut(member) {
            member.used += 1;
        }
        let attempt = Attempt(self.attempts);
        self.attempts += 1;
        let mut twice = false;
        for other in self.under_way.values_mut().filter(|other| other.block == block) {
            other.twice = true;
            twice = true;
        }
        self.under_way.insert(attempt, UnderWay { member, block, begun: now, twice });
        attempt
    }

    /// A block came; `bytes` are 0 when it was there already.
    pub(super) fn done(&mut self, attempt: Attempt, bytes: u64, now: Instant) {
        let Some(under_way) = self.under_way.remove(&attempt) else { return };
        let Some(member) = self.members.get_mut(under_way.member) else { return };
        member.used = member.used.saturating_sub(1);
        member.bytes += bytes;
        let took = now.duration_since(under_way.begun).as_secs_f64();
        let news =
            |before: Option<f64>, now: f64| Some(before.map_or(now, |before| before + (now - before) * NEWS));
        member.expected = news(member.expected, took);
        if bytes > 0 {
            #[expect(clippy::cast_precision_loss, reason = "a rate need not be exact")]
            let rate = bytes as f64 / took.max(1e-6);
            member.rate = news(member.rate, rate);
        }
    }

    /// Places at the sources that are not given up.
    pub(super) fn places(&self) -> usize {
        self.members.iter().filter(|member| !member.gone).map(|member| member.places).sum()
    }

    /// Bytes of a block that takes [`BLOCK_SECONDS`] at the source whose places are the fastest: smaller ones would cost that
    /// one round trips, while larger ones at slow sources are taken over by others.
    pub(super) fn block_bytes(&self) -> u64 {
        let rates = self.members.iter().filter(|member| !member.gone).filter_map(|member| member.rate);
        let fastest = rates.reduce(f64::max);
        // Beyond all bounds it is the largest number.
        fastest.map_or(FIRST_BLOCK_BYTES, |rate| (rate * BLOCK_SECONDS) as u64)
    }

    /// A block is no longer wanted from there: it came from elsewhere.
    pub(super) fn forget(&mut self, attempt: Attempt) {
        let Some(under_way) = self.under_way.remove(&attempt) else { return };
        if let Some(member) = self.members.get_mut(under_way.member) {
            member.used = member.used.saturating_sub(1);
        }
    }

    /// A source is given up.
    pub(super) fn leave(&mut self, member: usize) {
        if let Some(member) = self.members.get_mut(member) {
            member.gone = true;
        }
    }

    /// Where to ask for a block a second time: a source that is not among `not`, has a place that nobody else needs, and
    /// is expected to answer sooner than the one that was asked. Of all blocks this is the one expected last.
    pub(super) fn second(&self, block: u64, not: &[usize], now: Instant) -> Option<usize> {
        if self.waiting > 0 {
            return None;
        }
        let other = self.place(not)?;
        let theirs = self.members.get(other)?.expected.unwrap_or(0.0);
        let alone = || self.under_way.values().filter(|attempt| !attempt.twice);
        let left = self.left(alone().find(|attempt| attempt.block == block)?, now);
        let is_last = alone().all(|attempt| self.left(attempt, now) <= left || attempt.member == other);
        (is_last && theirs < left).then_some(other)
    }

    /// Seconds until an answer is expected. What is late is expected to take as long again as it has.
    fn left(&self, under_way: &UnderWay, now: Instant) -> f64 {
        let elapsed = now.duration_since(under_way.begun).as_secs_f64();
        let member = self.members.get(under_way.member);
        match member.filter(|member| !member.gone).and_then(|member| member.expected) {
            Some(expected) if elapsed < expected => expected - elapsed,
            _ => elapsed,
        }
    }

    /// A source whose answer is overdue by far, while others answer.
    pub(super) fn overdue(&self, now: Instant) -> Option<usize> {
        let late = self.under_way.values().find(|attempt| {
            let expected = self.members.get(attempt.member).and_then(|member| member.expected).unwrap_or(0.0);
            let limit = OVERDUE_MIN.max(Duration::from_secs_f64(expected * OVERDUE));
            now.duration_since(attempt.begun) > limit && self.is_present(attempt.member)
        })?;
        (self.present() > 1).then_some(late.member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;
    const BLOCK: u64 = 2 * MIB;

    /// A source of the simulation: bytes per second of the server and of each of its connections, and when it ends.
    #[derive(Clone, Copy)]
    struct Rate {
        server: f64,
        connection: f64,
        connections: usize,
        ends_at: f64,
    }

    const fn mb(rate: f64) -> Rate {
        Rate { server: rate * 1e6, connection: f64::MAX, connections: 1, ends_at: f64::MAX }
    }

    struct Flight {
        attempt: Attempt,
        block: u64,
        member: usize,
        left: f64,
    }

    /// Copies `blocks` on virtual time: seconds it took, and bytes of each source.
    fn simulate(rates: &[Rate], blocks: u64) -> (f64, Vec<u64>) {
        let (start, step) = (Instant::now(), 0.005);
        let mut shares = Shares::default();
        rates.iter().for_each(|rate| {
            shares.join(4 * rate.connections);
        });
        let (mut todo, mut have, mut flights): (Vec<u64>, _, Vec<Flight>) =
            ((0..blocks).rev().collect(), vec![false; blocks as usize], Vec::new());
        let mut time = 0.0;
        while have.iter().any(|have| !have) {
            let now = start + Duration::from_secs_f64(time);
            for (member, _) in rates.iter().enumerate().filter(|(_, rate)| rate.ends_at <= time) {
                shares.leave(member);
                for flight in flights.extract_if(.., |flight| flight.member == member) {
                    shares.forget(flight.attempt);
                    todo.push(flight.block);
                }
            }
            while let Some(member) = shares.place(&[]).filter(|_| !todo.is_empty()) {
                let block = todo.pop().unwrap();
                let attempt = shares.begin(member, block, now);
                flights.push(Flight { attempt, block, member, left: BLOCK as f64 });
            }
            for index in 0..flights.len() {
                let (block, member) = (flights[index].block, flights[index].member);
                if let Some(other) = shares.second(block, &[member], now) {
                    let attempt = shares.begin(other, block, now);
                    flights.push(Flight { attempt, block, member: other, left: BLOCK as f64 });
                }
            }
            for (member, rate) in rates.iter().enumerate() {
                let mine: Vec<usize> = (0..flights.len()).filter(|i| flights[*i].member == member).collect();
                let share =
                    rate.server.min(rate.connection * rate.connections as f64) / mine.len().max(1) as f64;
                mine.iter().for_each(|index| flights[*index].left -= share * step);
            }
            time += step;
            let now = start + Duration::from_secs_f64(time);
            for flight in flights.extract_if(.., |flight| flight.left <= 0.0) {
                let fresh = !std::mem::replace(&mut have[flight.block as usize], true);
                shares.done(flight.attempt, if fresh { BLOCK } else { 0 }, now);
            }
            for flight in flights.extract_if(.., |flight| have[flight.block as usize]) {
                shares.forget(flight.attempt);
            }
        }
        (time, (0..rates.len()).map(|member| shares.bytes(member)).collect())
    }

    #[track_caller]
    fn reaches(rates: &[Rate], blocks: u64, sum: f64) {
        let (time, bytes) = simulate(rates, blocks);
        assert_eq!(bytes.iter().sum::<u64>(), blocks * BLOCK);
        let rate = (blocks * BLOCK) as f64 / time / 1e6;
        assert!(rate >= 0.9 * sum, "{rate} of {sum} MB/s, shares {bytes:?}");
    }

    #[test]
    fn the_rate_is_the_sum_of_the_sources() {
        let limited = Rate { connection: 4e6, ..mb(19.0) };
        reaches(&[mb(12.0)], 50, 12.0);
        reaches(&[Rate { connections: 15, ..limited }], 100, 19.0);
        reaches(&[limited; 4], 100, 16.0);
        reaches(&[Rate { connections: 15, ..limited }; 4], 400, 76.0);
        reaches(&[mb(12.0), mb(19.0), mb(27.0), mb(42.0), mb(54.0)], 400, 154.0);
    }

    #[test]
    fn shares_follow_the_rates() {
        let (_, bytes) = simulate(&[mb(10.0), mb(30.0)], 400);
        let part = bytes[0] as f64 / (400 * BLOCK) as f64;
        assert!((0.2..0.3).contains(&part), "{part}");
    }

    #[test]
    fn a_slow_source_does_not_hold_up_the_end() {
        let (time, _) = simulate(&[mb(100.0), mb(0.1)], 100);
        // Its first four blocks alone would take 80 seconds.
        assert!(time < 3.0, "{time}");
    }

    #[test]
    fn sources_that_end_cost_only_their_share() {
        let dying = |at| Rate { ends_at: at, ..mb(20.0) };
        let (time, bytes) = simulate(&[mb(20.0), dying(2.0), dying(4.0), mb(20.0)], 400);
        assert_eq!(bytes.iter().sum::<u64>(), 400 * BLOCK);
        // 80 MB/s for 2 s, 60 for 2 s, then 40.
        let best = 4.0 + (400.0 * BLOCK as f64 - 280e6) / 40e6;
        assert!(time < best * 1.1, "{time} of {best}");
    }

    #[test]
    fn an_answer_that_does_not_come_ends_a_source_unless_it_is_the_last() {
        let mut shares = Shares::default();
        let start = Instant::now();
        let late = start + OVERDUE_MIN + Duration::from_secs(1);
        shares.join(1);
        shares.begin(0, 7, start);
        assert_eq!((shares.overdue(start), shares.overdue(late)), (None, None));
        shares.join(1);
        assert_eq!(shares.overdue(late), Some(0));
        shares.leave(0);
        assert_eq!((shares.overdue(late), shares.present(), shares.place(&[])), (None, 1, Some(1)));
    }

    #[test]
    fn blocks_take_as_long_as_they_should_at_the_fastest_source() {
        let mut shares = Shares::default();
        let start = Instant::now();
        let gives = |shares: &mut Shares, member, bytes, seconds| {
            let attempt = shares.begin(member, 0, start);
            shares.done(attempt, bytes, start + Duration::from_secs_f64(seconds));
        };
        shares.join(4);
        shares.join(4);
        assert_eq!(shares.block_bytes(), FIRST_BLOCK_BYTES);
        gives(&mut shares, 0, 1_000_000, 4.0);
        assert_eq!(shares.block_bytes(), 125_000);
        gives(&mut shares, 1, 1_000_000, 0.1);
        assert_eq!(shares.block_bytes(), 5_000_000);
        // What came from elsewhere in the meantime tells nothing.
        gives(&mut shares, 1, 0, 100.0);
        assert_eq!(shares.block_bytes(), 5_000_000);
        assert_eq!(shares.places(), 8);
        shares.leave(1);
        assert_eq!((shares.block_bytes(), shares.places()), (125_000, 4));
    }

    #[test]
    fn a_place_that_somebody_waits_for_is_not_taken_for_a_second_request() {
        let mut shares = Shares::default();
        let start = Instant::now();
        shares.join(1);
        shares.join(1);
        shares.begin(0, 7, start);
        let later = start + Duration::from_secs(1);
        assert_eq!(shares.second(7, &[0], later), Some(1));
        shares.wait(true);
        assert_eq!(shares.second(7, &[0], later), None);
        shares.wait(false);
        shares.begin(1, 7, later);
        assert_eq!(shares.second(7, &[0, 1], later), None);
    }
}
