//! Random histories of reads, fetches, failures and damaged blocks, against the content of the file.

#![allow(clippy::unwrap_used)]

use super::{FetchId, FileFill, FillAction, ReadId, ReaderId};
use crate::BlockMap;
use base::SplitMix64;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

fn empty(size: u64, block_bytes: u64) -> FileFill {
    let blocks = size.div_ceil(block_bytes);
    let bytes = vec![0; usize::try_from(BlockMap::byte_count(blocks)).unwrap()];
    FileFill::new(size, block_bytes, BlockMap::new(bytes, blocks).unwrap()).unwrap()
}

fn fetches(actions: &[FillAction]) -> Vec<(FetchId, Range<u64>)> {
    let fetches = actions.iter().filter_map(|action| match action {
        FillAction::Fetch { fetch, bytes, .. } => Some((*fetch, bytes.clone())),
        _ => None,
    });
    fetches.collect()
}

const ALICE: ReaderId = ReaderId(1);
const BOB: ReaderId = ReaderId(2);

#[test]
fn reads_that_overlap_share_a_fetch_and_get_bytes_on_arrival() {
    let mut fill = empty(1_000, 100);
    let first = fill.read(ReadId(1), ALICE, 150..260, u64::MAX);
    let [(fetch, bytes)] = &fetches(&first)[..] else { panic!("{first:?}") };
    assert_eq!(*bytes, 100..300, "whole blocks");
    assert_eq!(fill.read(ReadId(2), BOB, 160..170, u64::MAX), []);
    let fetch = *fetch;
    let copy = |read, bytes| FillAction::Copy { read: ReadId(read), fetch, bytes };
    let done = |read| FillAction::Done { read: ReadId(read), is_complete: true };
    // The second read ends before the block has arrived.
    assert_eq!(fill.arrived(fetch, 180), [copy(1, 150..180), copy(2, 160..170), done(2)]);
    let rest = fill.arrived(fetch, 300);
    let store = |block| FillAction::Store { fetch, block };
    assert_eq!(rest, [copy(1, 180..260), done(1), store(1), store(2)]);
    // Bytes in memory are copied without another request.
    assert_eq!(fill.read(ReadId(3), BOB, 200..300, 0), [copy(3, 200..300), done(3)]);
    assert_eq!(fill.stored_block(fetch, 1, true), []);
    assert_eq!(fill.stored_block(fetch, 2, false), [FillAction::Release { fetch, bytes: 200 }]);
    assert!(fill.is_idle() && fill.stored().contains(1) && !fill.stored().contains(2));
}

#[test]
fn a_failed_fetch_is_made_again_for_another_reader() {
    let mut fill = empty(1_000, 100);
    let (first, _) = fetches(&fill.read(ReadId(1), ALICE, 0..50, u64::MAX))[0].clone();
    fill.read(ReadId(2), BOB, 0..50, u64::MAX);
    let actions = fill.failed(first, u64::MAX);
    assert!(actions.contains(&FillAction::Done { read: ReadId(1), is_complete: false }), "{actions:?}");
    assert!(actions.contains(&FillAction::Release { fetch: first, bytes: 100 }), "{actions:?}");
    let [(second, bytes)] = &fetches(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!(*bytes, 0..100);
    // Nobody is left after the second failure.
    let actions = fill.failed(*second, u64::MAX);
    assert!(actions.contains(&FillAction::Done { read: ReadId(2), is_complete: false }) && fill.is_idle());
}

#[test]
fn fetches_after_a_failure_share_the_memory() {
    let mut fill = empty(1_000, 100);
    let (first, _) = fetches(&fill.read(ReadId(1), ALICE, 0..300, u64::MAX))[0].clone();
    fill.read(ReadId(2), BOB, 0..50, 0);
    fill.read(ReadId(3), BOB, 250..300, 0);
    let actions = fill.failed(first, 150);
    assert!(matches!(fetches(&actions).as_slice(), [(_, bytes)] if *bytes == (0..100)), "{actions:?}");
    assert!(actions.contains(&FillAction::Bypass { read: ReadId(3), bytes: 250..300 }), "{actions:?}");
}

#[test]
fn without_memory_a_read_gets_its_bytes_directly() {
    let mut fill = empty(1_000, 100);
    let bypass = FillAction::Bypass { read: ReadId(1), bytes: 250..1_000 };
    assert_eq!(fill.read(ReadId(1), ALICE, 250..5_000, 799), [bypass]);
    let done = FillAction::Done { read: ReadId(1), is_complete: true };
    assert_eq!(fill.bypassed(ReadId(1), 250..1_000, true), [done]);
    assert!(fill.is_idle());
    let end = FillAction::Done { read: ReadId(2), is_complete: true };
    assert_eq!(fill.read(ReadId(2), ALICE, 1_000..1_100, 0), [end], "the end of the file");
}

#[test]
fn what_is_missing_is_prefetched_once() {
    let mut fill = empty(1_000, 100);
    let (first, _) = fetches(&fill.read(ReadId(1), ALICE, 200..300, u64::MAX))[0].clone();
    let ranges = |actions: Vec<FillAction>| {
        fetches(&actions).into_iter().map(|(_, bytes)| (bytes.start, bytes.end)).collect::<Vec<_>>()
    };
    assert_eq!(ranges(fill.prefetch(ALICE, 150..450, u64::MAX)), [(100, 200), (300, 500)]);
    assert_eq!(ranges(fill.prefetch(BOB, 100..2_000, 400)), [], "more than its memory");
    assert_eq!(ranges(fill.prefetch(BOB, 100..2_000, 500)), [(500, 1_000)]);
    assert_eq!(ranges(fill.prefetch(BOB, 0..2_000, 500)), [(0, 100)]);
    fill.failed(first, 0);
    assert_eq!(ranges(fill.prefetch(BOB, 0..2_000, 500)), [(200, 300)]);
}

/// The owner of a [`FileFill`], with a disk, an origin and readers.
struct FillHarness {
    rng: SplitMix64,
    fill: FileFill,
    content: Vec<u8>,
    disk: Vec<u8>,
    /// Memory of fetches: the first byte, and the bytes that have arrived.
    memory: HashMap<FetchId, (Range<u64>, Vec<u8>)>,
    reads: BTreeMap<u64, (ReaderId, Range<u64>, Vec<u8>)>,
    /// Readers whose requests have failed.
    failed: HashSet<u64>,
    /// What has not happened yet.
    pending: Vec<FillAction>,
    memory_max: u64,
    ended: u64,
}

impl FillHarness {
    fn new(seed: u64) -> Self {
        let mut rng = SplitMix64::new(seed);
        let (size, block) = (1 + rng.draw() % 3_000, 1 + rng.draw() % 200);
        let content: Vec<u8> = (0..size).map(|_| rng.draw() as u8).collect();
        let disk = vec![0; content.len()];
        let memory_max = if rng.draw().is_multiple_of(3) { 500 } else { 1 << 20 };
        Self {
            fill: empty(size, block),
            rng,
            content,
            disk,
            memory: HashMap::new(),
            reads: BTreeMap::new(),
            failed: HashSet::new(),
            pending: Vec::new(),
            memory_max,
            ended: 0,
        }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.rng.draw() % end.max(1)
    }

    fn memory_left(&self) -> u64 {
        let used: u64 = self.memory.values().map(|(bytes, _)| bytes.end - bytes.start).sum();
        self.memory_max.saturating_sub(used)
    }

    fn start_read(&mut self, number: u64) {
        let size = self.content.len() as u64;
        let begin = self.below(size + 20);
        let length = self.below(400);
        let reader = ReaderId(self.below(3));
        let end = (begin + length).min(size).max(begin.min(size));
        let bytes = begin.min(end)..end;
        let buffer = vec![0; usize::try_from(bytes.end - bytes.start).unwrap()];
        self.reads.insert(number, (reader, bytes, buffer));
        let memory = self.memory_left();
        let actions = self.fill.read(ReadId(number), reader, begin..begin + length, memory);
        self.perform(actions);
    }

    /// Performs what happens at once, and keeps the rest.
    fn perform(&mut self, actions: Vec<FillAction>) {
        for action in actions {
            match action {
                FillAction::Copy { read, fetch, bytes } => {
                    let (range, memory) = &self.memory[&fetch];
                    let at = usize::try_from(bytes.start - range.start).unwrap();
                    let count = usize::try_from(bytes.end - bytes.start).unwrap();
                    let part = memory[at..at + count].to_vec();
                    self.give(read, bytes, &part);
                }
                FillAction::Release { fetch, bytes } => {
                    let (range, _) = self.memory.remove(&fetch).unwrap();
                    assert_eq!(bytes, range.end - range.start);
                    assert!(
                        !self.pending.iter().any(
                            |one| matches!(one, FillAction::Store { fetch: other, .. } if *other == fetch)
                        )
                    );
                }
                FillAction::Done { read, is_complete } => {
                    let (reader, bytes, buffer) = self.reads.remove(&read.0).unwrap();
                    self.ended += 1;
                    let place = usize::try_from(bytes.start).unwrap()..usize::try_from(bytes.end).unwrap();
                    match is_complete {
                        true => assert_eq!(buffer, self.content[place], "read {read:?}"),
                        false => assert!(self.failed.contains(&reader.0)),
                    }
                }
                FillAction::Fetch { fetch, ref bytes, .. } => {
                    let overlaps = |(other, _): &(Range<u64>, Vec<u8>)| {
                        other.start < bytes.end && bytes.start < other.end
                    };
                    // Only the blocks that a failed fetch has given up are fetched twice.
                    assert!(!self.memory.values().any(overlaps) || !self.failed.is_empty());
                    self.memory.insert(fetch, (bytes.clone(), Vec::new()));
                    self.pending.push(action);
                }
                other => self.pending.push(other),
            }
        }
    }

    fn give(&mut self, read: ReadId, bytes: Range<u64>, part: &[u8]) {
        // A read that was cancelled gets nothing.
        if let Some((_, range, buffer)) = self.reads.get_mut(&read.0) {
            let at = usize::try_from(bytes.start - range.start).unwrap();
            buffer[at..at + part.len()].copy_from_slice(part);
        }
    }

    fn of(&self, source: &[u8], bytes: &Range<u64>) -> Vec<u8> {
        source[usize::try_from(bytes.start).unwrap()..usize::try_from(bytes.end).unwrap()].to_vec()
    }

    fn prefetch_some(&mut self) {
        let begin = self.below(self.content.len() as u64 + 10);
        let bytes = begin..begin + self.below(700);
        let (reader, memory) = (ReaderId(self.below(3)), self.memory_left());
        let actions = self.fill.prefetch(reader, bytes, memory);
        self.perform(actions);
    }

    /// Evicts some blocks, if they may go, and makes their bytes on disk useless.
    fn evict_some(&mut self) {
        let first = self.below(self.fill.stored().len());
        let last = (first + self.below(4)).min(self.fill.stored().len() - 1);
        if self.fill.evict(&(first..last + 1)) {
            let (begin, end) = (self.fill.bytes_of(first).start, self.fill.bytes_of(last).end);
            let place = usize::try_from(begin).unwrap()..usize::try_from(end).unwrap();
            self.disk[place].fill(0xee);
        }
    }

    /// Lets something that is pending happen.
    fn happen(&mut self) {
        let at = usize::try_from(self.below(self.pending.len() as u64)).unwrap();
        let action = self.pending.swap_remove(at);
        let chance = self.below(100);
        let memory = self.memory_left();
        let actions = match action.clone() {
            FillAction::Fetch { fetch, reader, .. } if chance < 5 => {
                self.failed.insert(reader.0);
                self.fill.failed(fetch, memory)
            }
            FillAction::Fetch { fetch, .. } => {
                let (range, mut came) = self.memory[&fetch].clone();
                let from = range.start + came.len() as u64;
                let to = (from + 1 + self.below(300)).min(range.end);
                came.extend(self.of(&self.content, &(from..to)));
                self.memory.insert(fetch, (range.clone(), came));
                let actions = self.fill.arrived(fetch, to);
                if to < range.end {
                    self.pending.push(action);
                }
                actions
            }
            FillAction::Store { fetch, block } => {
                let is_written = chance >= 5;
                let bytes = self.fill.bytes_of(block);
                let (range, came) = self.memory[&fetch].clone();
                let place = usize::try_from(bytes.start).unwrap()..usize::try_from(bytes.end).unwrap();
                let from = usize::try_from(bytes.start - range.start).unwrap();
                if is_written {
                    self.disk[place.clone()].copy_from_slice(&came[from..from + place.len()]);
                }
                self.fill.stored_block(fetch, block, is_written)
            }
            FillAction::ReadStored { read, bytes } => {
                let block = bytes.start / (self.fill.bytes_of(0).end);
                let damaged = if chance < 10 { vec![block] } else { vec![] };
                let kept = if damaged.is_empty() { bytes.start } else { self.fill.bytes_of(block).end };
                let good = kept.min(bytes.end)..bytes.end;
                let part = self.of(&self.disk, &good);
                self.give(read, good, &part);
                self.fill.read_stored(read, bytes, &damaged, memory)
            }
            FillAction::Bypass { read, bytes } => {
                let is_complete = chance >= 5;
                if is_complete {
                    let part = self.of(&self.content, &bytes);
                    self.give(read, bytes.clone(), &part);
                } else if let Some((reader, ..)) = self.reads.get(&read.0) {
                    self.failed.insert(reader.0);
                }
                self.fill.bypassed(read, bytes, is_complete)
            }
            other => panic!("{other:?}"),
        };
        self.perform(actions);
    }
}

#[test]
fn no_read_gets_a_wrong_byte_and_each_one_ends() {
    for seed in 0..3_000 {
        let mut harness = FillHarness::new(seed);
        let (mut started, mut cancelled) = (0, 0);
        while started < 40 || !harness.pending.is_empty() {
            if started < 40 && (harness.pending.is_empty() || harness.below(3) == 0) {
                harness.start_read(started);
                started += 1;
            } else {
                harness.happen();
            }
            if harness.below(8) == 0 {
                harness.evict_some();
            }
            if harness.below(20) == 0 {
                harness.prefetch_some();
            }
            if harness.below(50) == 0
                && let Some((&read, _)) = harness.reads.first_key_value()
            {
                harness.fill.cancel(ReadId(read));
                harness.reads.remove(&read);
                cancelled += 1;
            }
        }
        assert_eq!(harness.ended + cancelled, 40, "seed {seed}: each read ends");
        assert!(harness.fill.is_idle() && harness.memory.is_empty(), "seed {seed}");
    }
}
