//! Order of operations on open files (decision 011).
//!
//! A client may send requests without waiting for replies and relies on their order. `truncate`
//! followed by `write` must not become `write` followed by `truncate`. The server runs operations
//! concurrently, so the sequencer decides when each may start. Each operation registers, in the
//! order of the request headers, with the files that it accesses and how ([`Access`]). It may start
//! when no earlier unfinished operation conflicts with it on a common file; until then the
//! sequencer keeps its work. Two accesses conflict when the result depends on their order: a write
//! and another access to a common byte, or a barrier and anything else.
//!
//! # Why this cannot deadlock
//!
//! An operation waits only for earlier ones, so the earliest unfinished one never waits here. Two
//! external causes could still delay it.
//!
//! * The payload of a write: a connection that carries the payload of a waiting write is not read.
//!   Payloads arrive on each connection in the order of their headers. Everything before the
//!   payload of the earliest operation belongs to operations that have ended or were refused, and
//!   refused payload is consumed at once.
//! * A client that does not read replies: a read that waits for room in the output delays
//!   conflicting writes until the client reads. A server that executes requests one by one stops at
//!   the same point.
//!
//! # Cost
//!
//! Each operation counts the earlier ones that it waits for. The end of an operation therefore
//! visits each later operation on the same files once and nothing else. A read of a file without
//! unfinished writes or barriers need not register before it is done
//! ([`Sequencer::is_free_to_read`]).

use crate::ids::{FileIndex, SequenceId};
use crate::slots::StableKeyTable;
use std::collections::VecDeque;

/// Capacity up to which an empty queue of a file keeps its memory.
const KEPT_MAX: usize = 8;

/// The access of an operation to a file. Ranges are in bytes with an exclusive end, and never
/// empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// Depends on these bytes.
    Read { start: u64, end: u64 },
    /// Changes these bytes.
    Write { start: u64, end: u64 },
    /// Waits for everything before it and holds everything after it.
    Barrier,
    /// Waits for nothing. Only a barrier waits for it.
    Unordered,
    /// Waits for barriers. Nothing waits for it.
    AfterBarriers,
}

impl Access {
    /// An access that depends on the whole file, its size included.
    pub(crate) const READ_ALL: Self = Self::Read { start: 0, end: u64::MAX };

    /// Returns a read whose result does not depend on the size of the file.
    pub(crate) fn read(offset: u64, length: u64) -> Self {
        Self::Read { start: offset, end: end_of(offset, length) }
    }

    /// Returns a read that may reach the end of the file, which a write anywhere after its start
    /// moves.
    pub(crate) fn read_to_end(offset: u64) -> Self {
        Self::Read { start: offset.min(u64::MAX - 1), end: u64::MAX }
    }

    pub(crate) fn write(offset: u64, length: u64) -> Self {
        Self::Write { start: offset, end: end_of(offset, length) }
    }

    /// Reports whether the access may change the file.
    pub(crate) fn is_exclusive(self) -> bool {
        matches!(self, Self::Write { .. } | Self::Barrier)
    }

    /// Returns one access that covers two accesses of the same operation.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Barrier, _) | (_, Self::Barrier) => Self::Barrier,
            (Self::AfterBarriers, one) | (one, Self::AfterBarriers) if one != Self::Unordered => one,
            (Self::AfterBarriers, _) | (_, Self::AfterBarriers) => Self::AfterBarriers,
            (Self::Unordered, one) | (one, Self::Unordered) => one,
            (Self::Read { start: a, end: b }, Self::Read { start: c, end: d }) => {
                Self::Read { start: a.min(c), end: b.max(d) }
            }
            (
                Self::Read { start: a, end: b } | Self::Write { start: a, end: b },
                Self::Read { start: c, end: d } | Self::Write { start: c, end: d },
            ) => Self::Write { start: a.min(c), end: b.max(d) },
        }
    }

    /// Reports whether the access must wait for an earlier access to the same file.
    pub(crate) fn waits_for(self, earlier: Self) -> bool {
        match (earlier, self) {
            (_, Self::Unordered) | (Self::AfterBarriers, _) => false,
            (Self::Barrier, _) | (_, Self::Barrier) => true,
            (Self::Unordered, _) | (_, Self::AfterBarriers) | (Self::Read { .. }, Self::Read { .. }) => false,
            (
                Self::Read { start: a, end: b } | Self::Write { start: a, end: b },
                Self::Read { start: c, end: d } | Self::Write { start: c, end: d },
            ) => a < d && c < b,
        }
    }
}

/// Returns the end of a range. An empty range counts as one byte.
fn end_of(offset: u64, length: u64) -> u64 {
    offset.saturating_add(length.max(1))
}

/// The files that an operation accesses, each once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum FileAccesses {
    One((FileIndex, Access)),
    Many(Box<[(FileIndex, Access)]>),
}

impl FileAccesses {
    pub(crate) fn one(file: FileIndex, access: Access) -> Self {
        Self::One((file, access))
    }

    /// Merges the accesses to the same file.
    pub(crate) fn many(mut all: Vec<(FileIndex, Access)>) -> Self {
        all.sort_by_key(|(file, _)| file.0);
        all.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                kept.1 = kept.1.and(later.1);
            }
            same
        });
        match all.as_slice() {
            [one] => Self::One(*one),
            _ => Self::Many(all.into_boxed_slice()),
        }
    }

    pub(crate) fn as_slice(&self) -> &[(FileIndex, Access)] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

struct Registered<W> {
    touches: FileAccesses,
    /// Number of earlier accesses that it waits for.
    blockers: u32,
    /// The work to start; `None` after the start.
    waiting: Option<W>,
}

/// The unfinished operations on one file, in order.
#[derive(Default)]
struct FileQueue {
    entries: VecDeque<(SequenceId, Access)>,
    /// Number of exclusive entries.
    exclusive: usize,
    barriers: usize,
}

/// All unfinished operations on the files of a session. `W` is the work that starts when the turn
/// of an operation comes.
pub(crate) struct Sequencer<W> {
    registered: StableKeyTable<Registered<W>>,
    files: Vec<FileQueue>,
    /// Number of exclusive accesses to all files.
    exclusive: usize,
}

impl<W> Default for Sequencer<W> {
    fn default() -> Self {
        Self { registered: StableKeyTable::default(), files: Vec::new(), exclusive: 0 }
    }
}

impl<W> Sequencer<W> {
    /// Reports whether no operation is unfinished.
    pub(crate) fn is_idle(&self) -> bool {
        self.registered.is_empty()
    }

    fn queue(&self, file: FileIndex) -> Option<&FileQueue> {
        self.files.get(file.0 as usize)
    }

    /// Reports whether a read of this file that arrives now can start immediately.
    pub(crate) fn is_free_to_read(&self, file: FileIndex) -> bool {
        self.exclusive == 0 || self.queue(file).is_none_or(|queue| queue.exclusive == 0)
    }

    /// Reports whether an exclusive access to any file is unfinished.
    pub(crate) fn has_exclusive(&self) -> bool {
        self.exclusive > 0
    }

    /// Reports whether a barrier on this file is unfinished.
    pub(crate) fn has_barrier(&self, file: FileIndex) -> bool {
        self.queue(file).is_some_and(|queue| queue.barriers > 0)
    }

    /// Returns the files of an operation.
    pub(crate) fn touches(&self, id: SequenceId) -> &[(FileIndex, Access)] {
        self.registered.get(id.0).map_or(&[], |registered| registered.touches.as_slice())
    }

    /// Registers an operation after all others. Returns `work` if it may start immediately,
    /// otherwise keeps it.
    pub(crate) fn begin(&mut self, touches: FileAccesses, work: W) -> (SequenceId, Option<W>) {
        let blockers = touches.as_slice().iter().map(|&(file, access)| self.blockers(file, access)).sum();
        let (start, waiting) = if blockers == 0 { (Some(work), None) } else { (None, Some(work)) };
        let id = SequenceId(self.registered.insert(Registered { touches, blockers, waiting }));
        let Self { registered, files, exclusive, .. } = self;
        let touched = registered.get(id.0).into_iter().flat_map(|new| new.touches.as_slice());
        for &(file, access) in touched {
            let at = file.0 as usize;
            if files.len() <= at {
                files.resize_with(at + 1, FileQueue::default);
            }
            if let Some(queue) = files.get_mut(at) {
                queue.entries.push_back((id, access));
                queue.exclusive += usize::from(access.is_exclusive());
                queue.barriers += usize::from(access == Access::Barrier);
                *exclusive += usize::from(access.is_exclusive());
            }
        }
        (id, start)
    }

    fn blockers(&self, file: FileIndex, access: Access) -> u32 {
        let Some(queue) = self.queue(file) else { return 0 };
        if queue.exclusive == 0 && !access.is_exclusive() {
            return 0;
        }
        let count = queue.entries.iter().filter(|(_, earlier)| access.waits_for(*earlier)).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Ends an operation that has completed or will never start. Returns the operations that may
    /// start now, in order.
    pub(crate) fn end(&mut self, id: SequenceId) -> Vec<(SequenceId, W)> {
        let mut started = Vec::new();
        let Some(ended) = self.registered.remove(id.0) else { return started };
        for &(file, access) in ended.touches.as_slice() {
            let Some(queue) = self.files.get_mut(file.0 as usize) else { continue };
            let Some(at) = queue.entries.iter().position(|(other, _)| *other == id) else { continue };
            queue.entries.remove(at);
            queue.exclusive -= usize::from(access.is_exclusive());
            queue.barriers -= usize::from(access == Access::Barrier);
            self.exclusive -= usize::from(access.is_exclusive());
            for &(later, _) in queue.entries.range(at..).filter(|(_, wish)| wish.waits_for(access)) {
                let Some(registered) = self.registered.get_mut(later.0) else { continue };
                registered.blockers -= 1;
                if registered.blockers == 0
                    && let Some(work) = registered.waiting.take()
                {
                    started.push((later, work));
                }
            }
            if queue.entries.is_empty() && queue.entries.capacity() > KEPT_MAX {
                queue.entries = VecDeque::new();
            }
        }
        started
    }

    /// Takes the work of the waiting operations that match `drops`. They stay registered until
    /// [`Sequencer::end`].
    pub(crate) fn take_waiting(&mut self, drops: impl Fn(&W) -> bool) -> Vec<(SequenceId, W)> {
        let waiting = self.registered.iter_mut().filter_map(|(key, registered)| {
            Some((SequenceId(key), registered.waiting.take_if(|work| drops(work))?))
        });
        waiting.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileIndex = FileIndex(0);

    fn read(offset: u64, length: u64) -> Access {
        Access::read(offset, length)
    }

    fn write(offset: u64, length: u64) -> Access {
        Access::write(offset, length)
    }

    #[test]
    fn accesses_conflict_when_their_order_matters() {
        let conflicts = [
            (read(0, 10), write(9, 1)),
            (write(0, 10), read(9, 5)),
            (write(0, 10), write(0, 1)),
            (write(5, 0), write(5, 0)),
            (read(u64::MAX, 5), Access::Barrier),
            (write(3, 3), Access::READ_ALL),
            (Access::read_to_end(7), write(100, 1)),
            (Access::read_to_end(u64::MAX), write(u64::MAX - 1, 1)),
        ];
        for (one, other) in conflicts {
            assert!(one.waits_for(other) && other.waits_for(one), "{one:?} and {other:?}");
        }
        let harmless = [
            (read(0, 10), read(0, 10)),
            (read(0, 10), write(10, 1)),
            (write(0, 10), write(10, 10)),
            (Access::READ_ALL, read(0, 1)),
            (Access::read_to_end(7), write(0, 7)),
            (Access::Unordered, write(0, 7)),
        ];
        for (one, other) in harmless {
            assert!(!one.waits_for(other) && !other.waits_for(one), "{one:?} and {other:?}");
        }
        assert!(
            Access::Barrier.waits_for(Access::Unordered) && !Access::Unordered.waits_for(Access::Barrier)
        );
        assert!(Access::AfterBarriers.waits_for(Access::Barrier));
        assert!(!Access::Barrier.waits_for(Access::AfterBarriers));
        assert!(!Access::AfterBarriers.waits_for(write(0, 7)));
    }

    #[test]
    fn the_accesses_of_one_operation_become_one_for_each_file() {
        let other = FileIndex(7);
        let touches = FileAccesses::many(vec![
            (other, read(0, 1)),
            (FILE, write(10, 5)),
            (FILE, write(2, 1)),
            (other, Access::Barrier),
        ]);
        assert_eq!(touches.as_slice(), [(FILE, write(2, 13)), (other, Access::Barrier)]);
        assert_eq!(FileAccesses::many(vec![(FILE, read(3, 2)); 3]), FileAccesses::one(FILE, read(3, 2)));
        assert_eq!(read(0, 1).and(write(5, 1)), write(0, 6));
        assert_eq!(FileAccesses::many(Vec::new()).as_slice(), []);
    }

    #[test]
    fn an_operation_taken_while_waiting_never_starts() {
        let mut sequencer = Sequencer::default();
        let (first, started) = sequencer.begin(FileAccesses::one(FILE, Access::Barrier), 1);
        assert_eq!(started, Some(1));
        let (second, _) = sequencer.begin(FileAccesses::one(FILE, Access::Barrier), 2);
        let (third, _) = sequencer.begin(FileAccesses::one(FILE, Access::READ_ALL), 3);
        assert_eq!(sequencer.take_waiting(|work| *work == 2), [(second, 2)]);
        assert_eq!(sequencer.end(first), []);
        assert_eq!(sequencer.end(second), [(third, 3)]);
    }

    struct Dice(u64);

    impl Dice {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % limit
        }

        fn access(&mut self) -> Access {
            match self.below(9) {
                0..=2 => read(self.below(8), self.below(4)),
                3..=5 => write(self.below(8), self.below(4)),
                6 => Access::Barrier,
                7 => Access::AfterBarriers,
                _ => Access::Unordered,
            }
        }
    }

    /// One operation of the reference model: number, touches, started, id.
    type Plain = (u64, FileAccesses, bool, SequenceId);

    fn may_start(all: &[Plain], at: usize) -> bool {
        let (before, rest) = all.split_at(at);
        let wishes: Vec<_> = rest.iter().take(1).flat_map(|(_, touches, ..)| touches.as_slice()).collect();
        before.iter().flat_map(|(_, touches, ..)| touches.as_slice()).all(|(file, earlier)| {
            wishes.iter().all(|&(other, wish)| file != other || !wish.waits_for(*earlier))
        })
    }

    #[test]
    fn an_operation_starts_exactly_when_no_earlier_one_conflicts() {
        for seed in 0..3000 {
            let (mut dice, mut sequencer) = (Dice(seed), Sequencer::default());
            let mut all: Vec<Plain> = Vec::new();
            for number in 0..40 {
                if dice.below(2) == 0 || all.is_empty() {
                    let files = (0..1 + dice.below(3)).map(|_| u32::try_from(dice.below(3)));
                    let files: Vec<_> = files.map(Result::unwrap_or_default).collect();
                    let touched = files.into_iter().map(|file| (FileIndex(file), dice.access())).collect();
                    let touches = FileAccesses::many(touched);
                    let (id, started) = sequencer.begin(touches.clone(), number);
                    all.push((number, touches, started.is_some(), id));
                } else {
                    let at = usize::try_from(dice.below(all.len() as u64)).unwrap_or(0);
                    let (.., id) = all.remove(at);
                    for (id, number) in sequencer.end(id) {
                        let found = all.iter_mut().find(|one| one.0 == number && one.3 == id && !one.2);
                        found.expect("an operation that waits").2 = true;
                    }
                }
                for (at, one) in all.iter().enumerate() {
                    assert_eq!(one.2, may_start(&all, at), "seed {seed}: {one:?} in {all:?}");
                }
                assert_eq!(sequencer.is_idle(), all.is_empty());
            }
        }
    }
}
