//! Scheduling of block requests over several sources: a state machine without I/O.
//!
//! Time is an argument, so that tests run on virtual time. Each source has a few slots for
//! requests, and a block takes any free slot. A fast source frees its slots sooner and therefore
//! delivers more. If a slot is free and no block waits, all remaining blocks are in flight. Then
//! the block that is expected last is requested as a duplicate from a source that is expected to be
//! faster, and the first reply counts. A source whose reply is long overdue is given up.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// Weight of the latest block in the moving average of the time for a block.
const NEWS: f64 = 0.3;
/// Factor of the expected time, at least [`OVERDUE_MIN`], after which a reply counts as lost.
const OVERDUE: f64 = 20.0;
/// Minimum time for [`OVERDUE`].
const OVERDUE_MIN: Duration = Duration::from_secs(20);

/// Target time for a block in seconds. All requests to an even server complete at about the same
/// time. If that took seconds, the server would be idle while the data is processed, and others
/// would have nothing to take over at the end.
const BLOCK_SECONDS: f64 = 0.5;
/// Size of the first blocks, before their speed is known.
const FIRST_BLOCK_BYTES: u64 = 256 * 1024;

/// A request for a block at one source.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct BlockAttempt(u64);

/// The state of the scheduler.
#[derive(Debug, Default)]
pub(super) struct Shares {
    members: Vec<SourceShare>,
    under_way: BTreeMap<BlockAttempt, UnderWay>,
    attempts: u64,
    /// Number of blocks that wait for a slot.
    waiting: usize,
}

#[derive(Debug)]
struct SourceShare {
    places: usize,
    used: usize,
    /// Moving average of the seconds from a request to its last byte.
    expected: Option<f64>,
    /// Moving average of the bytes per second of one slot.
    rate: Option<f64>,
    bytes: u64,
    gone: bool,
}

#[derive(Clone, Copy, Debug)]
struct UnderWay {
    member: usize,
    block: u64,
    begun: Instant,
    /// Set if a duplicate request for the block exists.
    twice: bool,
}

impl Shares {
    /// Adds a source with `places` slots and returns its number.
    pub(super) fn join(&mut self, places: usize) -> usize {
        let places = places.max(1);
        self.members.push(SourceShare { places, used: 0, expected: None, rate: None, bytes: 0, gone: false });
        self.members.len() - 1
    }

    /// Returns the number of sources that are not given up.
    pub(super) fn present(&self) -> usize {
        self.members.iter().filter(|member| !member.gone).count()
    }

    /// Reports whether a source is not given up.
    pub(super) fn is_present(&self, member: usize) -> bool {
        self.members.get(member).is_some_and(|member| !member.gone)
    }

    /// Returns the number of used bytes from a source.
    pub(super) fn bytes(&self, member: usize) -> u64 {
        self.members.get(member).map_or(0, |member| member.bytes)
    }

    /// Adds or removes a block that waits for a slot.
    pub(super) fn wait(&mut self, waits: bool) {
        self.waiting = if waits { self.waiting + 1 } else { self.waiting.saturating_sub(1) };
    }

    /// Returns a source with a free slot that is expected to reply first, excluding those in `not`.
    pub(super) fn place(&self, not: &[usize]) -> Option<usize> {
        let free = |(number, member): &(usize, &SourceShare)| {
            !member.gone && member.used < member.places && !not.contains(number)
        };
        // A source without measurements is tried first.
        let expected = |member: &SourceShare| member.expected.unwrap_or(0.0) * (member.used + 1) as f64;
        let free = self.members.iter().enumerate().filter(free);
        let order =
            |a: &SourceShare, b: &SourceShare| expected(a).total_cmp(&expected(b)).then(a.used.cmp(&b.used));
        free.min_by(|a, b| order(a.1, b.1)).map(|(number, _)| number)
    }

    /// Records a request for a block.
    pub(super) fn begin(&mut self, member: usize, block: u64, now: Instant) -> BlockAttempt {
        if let Some(member) = self.members.get_mut(member) {
            member.used += 1;
        }
        let attempt = BlockAttempt(self.attempts);
        self.attempts += 1;
        let mut twice = false;
        for other in self.under_way.values_mut().filter(|other| other.block == block) {
            other.twice = true;
            twice = true;
        }
        self.under_way.insert(attempt, UnderWay { member, block, begun: now, twice });
        attempt
    }

    /// Records the arrival of a block; `bytes` is 0 for a duplicate.
    pub(super) fn done(&mut self, attempt: BlockAttempt, bytes: u64, now: Instant) {
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

    /// Returns the number of slots of the sources that are not given up.
    pub(super) fn places(&self) -> usize {
        self.members.iter().filter(|member| !member.gone).map(|member| member.places).sum()
    }

    /// Returns the size of a block that takes [`BLOCK_SECONDS`] at the source with the fastest
    /// slots. Smaller blocks would cost that source round trips; large blocks at slow sources are
    /// taken over by others.
    pub(super) fn block_bytes(&self) -> u64 {
        let rates = self.members.iter().filter(|member| !member.gone).filter_map(|member| member.rate);
        let fastest = rates.reduce(f64::max);
        // The conversion saturates.
        fastest.map_or(FIRST_BLOCK_BYTES, |rate| (rate * BLOCK_SECONDS) as u64)
    }

    /// Records that a block is no longer needed from a source because it came from another one.
    pub(super) fn forget(&mut self, attempt: BlockAttempt) {
        let Some(under_way) = self.under_way.remove(&attempt) else { return };
        if let Some(member) = self.members.get_mut(under_way.member) {
            member.used = member.used.saturating_sub(1);
        }
    }

    /// Gives up a source.
    pub(super) fn leave(&mut self, member: usize) {
        if let Some(member) = self.members.get_mut(member) {
            member.gone = true;
        }
    }

    /// Returns a source for a duplicate request of a block: it is not among `not`, has a slot that
    /// no other block needs, and is expected to reply sooner than the first source. Of all blocks
    /// this one is expected last.
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

    /// Returns the seconds until a reply is expected. A late reply is expected to take as long
    /// again as it has taken.
    fn left(&self, under_way: &UnderWay, now: Instant) -> f64 {
        let elapsed = now.duration_since(under_way.begun).as_secs_f64();
        let member = self.members.get(under_way.member);
        match member.filter(|member| !member.gone).and_then(|member| member.expected) {
            Some(expected) if elapsed < expected => expected - elapsed,
            _ => elapsed,
        }
    }

    /// Returns a source whose reply is long overdue while others reply.
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

    /// A source of the simulation: bytes per second of the server and of each connection, and its
    /// end.
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
        attempt: BlockAttempt,
        block: u64,
        member: usize,
        left: f64,
    }

    /// Simulates a copy of `blocks` blocks on virtual time. Returns the seconds and the bytes of
    /// each source.
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
    fn the_rate_is_the_sum_of_all_sources() {
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
    fn failed_sources_cost_only_their_share() {
        let dying = |at| Rate { ends_at: at, ..mb(20.0) };
        let (time, bytes) = simulate(&[mb(20.0), dying(2.0), dying(4.0), mb(20.0)], 400);
        assert_eq!(bytes.iter().sum::<u64>(), 400 * BLOCK);
        // 80 MB/s for 2 s, 60 for 2 s, then 40.
        let best = 4.0 + (400.0 * BLOCK as f64 - 280e6) / 40e6;
        assert!(time < best * 1.1, "{time} of {best}");
    }

    #[test]
    fn an_overdue_source_is_given_up_unless_it_is_the_last() {
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
    fn block_size_follows_the_fastest_source() {
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
        // A block that arrived from another source is not a measurement.
        gives(&mut shares, 1, 0, 100.0);
        assert_eq!(shares.block_bytes(), 5_000_000);
        assert_eq!(shares.places(), 8);
        shares.leave(1);
        assert_eq!((shares.block_bytes(), shares.places()), (125_000, 4));
    }

    #[test]
    fn duplicates_do_not_take_slots_that_blocks_wait_for() {
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
