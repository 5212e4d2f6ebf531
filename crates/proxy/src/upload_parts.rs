//! [`UploadParts`]: the bytes of a file that is written to an object store, as parts that are sent when they are full.
//!
//! Clients write several pieces at once, which arrive in any order. Within the parts that are in memory, any order
//! is possible, and bytes can be written again. Bytes that were sent cannot be changed.

use crate::upload_memory::{PartMemory, UploadMemory};
use base::ClientHost;
use client::Bytes;
use client::http::{OBJECT_PARTS_MAX, StoredPart, object_part_bytes};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Size of a part of a file whose size is not known. All but the last have the same size, as some stores need it.
const PART_BYTES: usize = 16 << 20;
/// Maximum size of a part of a file whose size is known.
const PART_BYTES_MAX: usize = 64 << 20;
/// Maximum number of parts of a file in memory, with those that are sent.
const PARTS_AT_ONCE: usize = 5;
/// Number of parts by which a write may be ahead of the first part that is not full.
const PARTS_AHEAD: usize = 8;
/// Maximum number of pieces of a part with gaps between them.
const PIECES_MAX: usize = 1024;

/// The reason why bytes cannot be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriteRefusal {
    /// A part has failed, or the file is closed.
    Over,
    /// The bytes from this offset on were sent already.
    Sent(u64),
    /// The bytes from this offset on are too far away from the first gap.
    Ahead(u64),
    /// There are too many gaps.
    Gaps,
    /// The object would have more than these bytes.
    TooLarge(u64),
}

/// What became of bytes that were to be written.
pub(crate) enum Placed {
    /// This number of them is in memory.
    Copied(usize),
    /// This number of them is in memory, as the first ones of a part.
    Begun(usize),
    /// This number of them is in memory, and has filled a part, which is to be sent.
    Full(usize, FullPart),
    /// They have to wait for other writes or for memory.
    Wait,
    /// The part needs this number of bytes of memory in addition.
    Memory(usize),
}

/// A part that is to be sent.
pub(crate) struct FullPart {
    pub(crate) index: usize,
    pub(crate) data: Bytes,
    pub(crate) memory: PartMemory,
}

/// The end of a file.
pub(crate) enum LastPart {
    /// All of the file, of which nothing was sent.
    Whole(Bytes),
    /// The rest, which may be empty, behind the parts that were sent.
    Rest(Bytes),
}

/// A part that is not full.
struct OpenPart {
    bytes: Vec<u8>,
    /// The ranges that were written, in order and without adjacent ones.
    pieces: Vec<(usize, usize)>,
    memory: PartMemory,
}

/// The parts of a file.
pub(crate) struct UploadParts {
    part_bytes: usize,
    open: BTreeMap<usize, OpenPart>,
    /// Parts that were taken to be sent. `None` until the store has them.
    sent: BTreeMap<usize, Option<StoredPart>>,
    /// The memory that the file keeps, while no part has it.
    own: Option<PartMemory>,
    in_flight: usize,
    is_over: bool,
    /// The first part that was not taken to be sent.
    first: usize,
    /// Number of times that bytes were copied.
    copies: u64,
}

/// Returns the size of the parts of a file, and the memory that it needs. `None` if an object cannot have this size.
pub(crate) fn sizes(size: Option<u64>) -> Option<(usize, usize)> {
    let Some(size) = size else { return Some((PART_BYTES, PART_BYTES)) };
    let part = usize::try_from(object_part_bytes(size)).ok()?;
    let memory = usize::try_from(size).map_or(part, |size| size.min(part));
    (part <= PART_BYTES_MAX).then_some((part, memory))
}

impl OpenPart {
    /// Adds a piece. Returns `false` if there would be too many.
    fn add(&mut self, (from, to): (usize, usize)) -> bool {
        let before = self.pieces.partition_point(|piece| piece.1 < from);
        let joined = self.pieces.iter().skip(before).take_while(|piece| piece.0 <= to).count();
        if joined == 0 && self.pieces.len() >= PIECES_MAX {
            return false;
        }
        let old = self.pieces.get(before..before + joined).unwrap_or_default();
        let (first, last) =
            (old.first().map_or(from, |piece| piece.0), old.last().map_or(to, |piece| piece.1));
        self.pieces.splice(before..before + joined, [(first.min(from), last.max(to))]);
        true
    }

    /// Reports whether the bytes have no gap.
    fn is_whole(&self) -> bool {
        match self.pieces.as_slice() {
            [] => self.bytes.is_empty(),
            [(0, end)] => *end == self.bytes.len(),
            _ => false,
        }
    }
}

impl UploadParts {
    /// Creates the parts of a file that keeps this memory.
    pub(crate) fn new(part_bytes: usize, own: PartMemory) -> Self {
        let (open, sent) = (BTreeMap::new(), BTreeMap::new());
        Self { part_bytes, open, sent, own: Some(own), in_flight: 0, is_over: false, first: 0, copies: 0 }
    }

    /// Records that a part was taken to be sent.
    fn take(&mut self, index: usize) {
        self.sent.insert(index, None);
        self.in_flight += 1;
        while self.sent.contains_key(&self.first) {
            self.first += 1;
        }
    }

    /// Returns the number of times that bytes were copied.
    pub(crate) fn copies(&self) -> u64 {
        self.copies
    }

    /// Returns the offset of a part.
    fn offset_of(&self, index: usize) -> u64 {
        (index as u64).saturating_mul(self.part_bytes as u64)
    }

    /// Returns the offset behind the last byte that was written.
    pub(crate) fn end(&self) -> u64 {
        let open = self.open.iter().map(|(index, part)| self.offset_of(*index) + part.bytes.len() as u64);
        let sent = self.sent.last_key_value().map(|(index, _)| self.offset_of(index + 1));
        open.chain(sent).max().unwrap_or_default()
    }

    /// Reports whether all later writes fail.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Takes the beginning of `data` for `offset`.
    pub(crate) fn place(
        &mut self,
        offset: u64,
        data: &[u8],
        memory: (&Arc<UploadMemory>, ClientHost),
    ) -> Result<Placed, WriteRefusal> {
        if self.is_over {
            return Err(WriteRefusal::Over);
        }
        let part_bytes = self.part_bytes as u64;
        let size_max = part_bytes * OBJECT_PARTS_MAX;
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > size_max) {
            return Err(WriteRefusal::TooLarge(size_max));
        }
        let in_part = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let (index, from) = (in_part(offset / part_bytes), in_part(offset % part_bytes));
        if self.sent.contains_key(&index) {
            return Err(WriteRefusal::Sent(offset));
        }
        let first = self.first;
        if index > first + PARTS_AHEAD {
            return Err(WriteRefusal::Ahead(self.offset_of(first)));
        }
        let begins = !self.open.contains_key(&index);
        if begins && !self.begin_part(index, index == first, memory) {
            return Ok(Placed::Wait);
        }
        let Some(part) = self.open.get_mut(&index) else { return Ok(Placed::Wait) };
        let to = self.part_bytes.min(from.saturating_add(data.len()));
        if let Some(missing) = to.checked_sub(part.memory.bytes()).filter(|missing| *missing > 0) {
            return Ok(Placed::Memory(missing));
        }
        if !part.add((from, to)) {
            return Err(WriteRefusal::Gaps);
        }
        if part.bytes.len() < to {
            part.bytes.reserve_exact(to - part.bytes.len());
            part.bytes.resize(to, 0);
        }
        let count = to - from;
        self.copies += 1;
        if let (Some(place), Some(data)) = (part.bytes.get_mut(from..to), data.get(..count)) {
            place.copy_from_slice(data);
        }
        if part.bytes.len() < self.part_bytes || !part.is_whole() {
            return Ok(if begins { Placed::Begun(count) } else { Placed::Copied(count) });
        }
        let Some(part) = self.open.remove(&index) else { return Ok(Placed::Copied(count)) };
        self.take(index);
        Ok(Placed::Full(count, FullPart { index, data: part.bytes.into(), memory: part.memory }))
    }

    /// Begins a part, if there is memory for it. The first one that is not full always gets that of the file, as
    /// soon as that is free.
    fn begin_part(
        &mut self,
        index: usize,
        is_first: bool,
        (memory, host): (&Arc<UploadMemory>, ClientHost),
    ) -> bool {
        let own = if is_first { self.own.take() } else { None };
        let more = || {
            let may_more = self.open.len() + self.in_flight < PARTS_AT_ONCE;
            may_more.then(|| memory.take_more(self.part_bytes, host)).flatten()
        };
        let Some(memory) = own.or_else(more) else { return false };
        let bytes = Vec::with_capacity(memory.bytes().min(self.part_bytes));
        self.open.insert(index, OpenPart { bytes, pieces: Vec::new(), memory });
        true
    }

    /// Adds memory to the part at an offset.
    pub(crate) fn add_memory(&mut self, offset: u64, more: PartMemory) {
        let index = usize::try_from(offset / self.part_bytes as u64).unwrap_or(usize::MAX);
        if let Some(part) = self.open.get_mut(&index) {
            part.memory.add(more);
        }
    }

    /// Records that a part is no longer sent.
    pub(crate) fn end_part(&mut self, index: usize, stored: Option<StoredPart>, memory: Option<PartMemory>) {
        self.in_flight -= 1;
        self.is_over |= stored.is_none();
        self.sent.insert(index, stored);
        if let Some(memory) = memory.filter(|memory| memory.is_own) {
            self.own = Some(memory);
        }
    }

    /// Has all later writes fail.
    pub(crate) fn end_all(&mut self) {
        self.forget_open();
        self.is_over = true;
    }

    fn forget_open(&mut self) {
        for (_, part) in std::mem::take(&mut self.open) {
            if part.memory.is_own {
                self.own = Some(part.memory);
            }
        }
    }

    /// Forgets everything that was written. Nothing is sent.
    pub(crate) fn restart(&mut self) {
        self.forget_open();
        self.sent.clear();
        self.first = 0;
        self.is_over = false;
    }

    /// Takes the rest of a file that is closed. Nothing is sent. `Err` has the offset of the first gap.
    pub(crate) fn finish(&mut self) -> Result<LastPart, u64> {
        let first = self.first;
        let gap = self.open.get(&first).map_or(0, |part| match part.pieces.first() {
            Some((0, end)) => *end,
            _ => 0,
        });
        let is_last = self.open.len() <= 1 && first == self.sent.len();
        let is_whole = self.open.get(&first).map_or(self.open.is_empty(), OpenPart::is_whole);
        if !is_last || !is_whole {
            return Err(self.offset_of(first) + gap as u64);
        }
        self.is_over = true;
        let rest = match self.open.remove(&first) {
            Some(part) => {
                // It is kept until the rest was sent.
                self.own = Some(part.memory);
                Bytes::from(part.bytes)
            }
            None => Bytes::new(),
        };
        Ok(if self.sent.is_empty() { LastPart::Whole(rest) } else { LastPart::Rest(rest) })
    }

    /// Returns the parts that the store has, in order. `None` if one is missing.
    pub(crate) fn stored(&self) -> Option<Vec<StoredPart>> {
        self.sent.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::SplitMix64;

    const PART: usize = 100;

    async fn parts(memory: &Arc<UploadMemory>) -> UploadParts {
        UploadParts::new(PART, memory.take_own(PART, ClientHost::Unknown).await.unwrap())
    }

    fn of(memory: &Arc<UploadMemory>) -> (&Arc<UploadMemory>, ClientHost) {
        (memory, ClientHost::Unknown)
    }

    /// Places data, and returns the parts that are full. Fails if it has to wait.
    fn place(parts: &mut UploadParts, memory: &Arc<UploadMemory>, offset: u64, data: &[u8]) -> Vec<FullPart> {
        let (mut done, mut full) = (0, Vec::new());
        while done < data.len() {
            match parts.place(offset + done as u64, &data[done..], of(memory)).unwrap() {
                Placed::Copied(count) | Placed::Begun(count) => done += count,
                Placed::Full(count, part) => {
                    done += count;
                    full.push(part);
                }
                Placed::Wait | Placed::Memory(_) => panic!("it waits"),
            }
        }
        full
    }

    fn stored(part: FullPart, parts: &mut UploadParts) {
        let FullPart { index, memory, .. } = part;
        parts.end_part(index, Some(StoredPart::of(&index.to_string())), Some(memory));
    }

    #[tokio::test]
    async fn pieces_in_any_order_become_the_file() {
        for seed in 0..200 {
            let mut rng = SplitMix64::new(seed);
            let mut number = |below: usize| usize::try_from(rng.draw() % below as u64).unwrap();
            let memory = UploadMemory::of_bytes(1 << 20);
            let mut parts = parts(&memory).await;
            let file: Vec<u8> = (0..number(900)).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let mut pieces = Vec::new();
            let mut from = 0;
            while from < file.len() {
                let to = file.len().min(from + 1 + number(150));
                pieces.push((from, to));
                from = to;
            }
            let (mut sent, mut flying) = (BTreeMap::new(), Vec::<FullPart>::new());
            let mut rounds = 0;
            while !pieces.is_empty() {
                rounds += 1;
                assert!(rounds < 100_000, "{seed}: it does not get on");
                if !flying.is_empty() && number(2) == 0 {
                    stored(flying.swap_remove(number(flying.len())), &mut parts);
                }
                // The pieces of a client are near each other.
                let at = number(pieces.len().min(6));
                let (from, to) = pieces[at];
                match parts.place(from as u64, &file[from..to], of(&memory)).unwrap() {
                    Placed::Wait => continue,
                    Placed::Memory(_) => panic!("{seed}: a part has its memory"),
                    Placed::Copied(count) | Placed::Begun(count) => pieces[at].0 += count,
                    Placed::Full(count, part) => {
                        pieces[at].0 += count;
                        sent.insert(part.index, part.data.clone());
                        flying.push(part);
                    }
                }
                assert!(parts.open.len() + parts.in_flight <= PARTS_AT_ONCE + 1, "{seed}");
                if pieces[at].0 == pieces[at].1 {
                    pieces.remove(at);
                }
            }
            for part in flying {
                stored(part, &mut parts);
            }
            assert_eq!((parts.end(), parts.in_flight()), (file.len() as u64, 0));
            let (is_whole, rest) = match parts.finish().unwrap() {
                LastPart::Whole(data) => (true, data),
                LastPart::Rest(data) => (false, data),
            };
            assert_eq!(is_whole, sent.is_empty());
            assert_eq!(parts.stored().unwrap().len(), sent.len());
            let mut found: Vec<u8> = sent.into_values().flatten().collect();
            found.extend(rest);
            assert_eq!(found, file, "{seed}");
            drop(parts);
            assert_eq!(memory.free(), 1 << 20);
        }
    }

    #[tokio::test]
    async fn gaps_are_found_and_what_was_sent_stays() {
        let memory = UploadMemory::of_bytes(1 << 20);
        let mut gap = parts(&memory).await;
        place(&mut gap, &memory, 0, b"ab");
        place(&mut gap, &memory, 5, b"cd");
        assert_eq!(gap.finish().err(), Some(2));
        let mut ahead = parts(&memory).await;
        place(&mut ahead, &memory, 150, b"x");
        assert_eq!((ahead.finish().err(), ahead.end()), (Some(0), 151));
        let refused = |parts: &mut UploadParts, offset| parts.place(offset, b"x", of(&memory)).err();
        let far = (PARTS_AHEAD * PART) as u64;
        assert_eq!(refused(&mut ahead, far + 100), Some(WriteRefusal::Ahead(0)));
        assert_eq!(refused(&mut ahead, u64::MAX), Some(WriteRefusal::TooLarge(1_000_000)));
        assert_eq!(refused(&mut ahead, 1_000_000), Some(WriteRefusal::TooLarge(1_000_000)));
        let mut sent = parts(&memory).await;
        let part = place(&mut sent, &memory, 0, &[7; 130]).pop().unwrap();
        assert_eq!(refused(&mut sent, 99), Some(WriteRefusal::Sent(99)));
        stored(part, &mut sent);
        assert!(matches!(sent.finish(), Ok(LastPart::Rest(rest)) if rest == vec![7; 30]));
        assert_eq!(refused(&mut sent, 130), Some(WriteRefusal::Over), "it is closed");
        let mut many = parts(&memory).await;
        many.part_bytes = 10_000;
        many.add_memory(0, memory.take(10_000, ClientHost::Unknown).await.unwrap());
        for number in 0..PIECES_MAX as u64 {
            place(&mut many, &memory, 2 * number, b"x");
        }
        assert_eq!(refused(&mut many, 5000), Some(WriteRefusal::Gaps));
        place(&mut many, &memory, 1, b"x");
        place(&mut many, &memory, 5000, b"x");
    }

    #[tokio::test]
    async fn a_part_that_fails_ends_the_file_and_a_restart_begins_it_anew() {
        let memory = UploadMemory::of_bytes(1 << 20);
        let mut parts = parts(&memory).await;
        let FullPart { index, memory: own, .. } = place(&mut parts, &memory, 0, &[1; 100]).pop().unwrap();
        place(&mut parts, &memory, 100, &[1; 50]);
        parts.end_part(index, None, Some(own));
        parts.end_all();
        assert!(parts.is_over() && parts.stored().is_none());
        parts.restart();
        assert_eq!((parts.end(), parts.sent.is_empty(), parts.is_over()), (0, true, false));
        place(&mut parts, &memory, 0, b"anew");
        assert!(matches!(parts.finish(), Ok(LastPart::Whole(data)) if data == "anew"));
    }

    #[tokio::test]
    async fn without_free_memory_a_file_gets_on_with_its_own() {
        let memory = UploadMemory::of_bytes(2 * (64 << 10));
        let mut parts = parts(&memory).await;
        let first = place(&mut parts, &memory, 0, &[1; PART]).pop().unwrap();
        for index in [1_u64, 2] {
            let placed = parts.place(index * PART as u64, b"x", of(&memory));
            assert!(matches!(placed, Ok(Placed::Wait)), "{index}");
        }
        stored(first, &mut parts);
        assert!(
            matches!(parts.place(2 * PART as u64, b"x", of(&memory)), Ok(Placed::Wait)),
            "it is not the next one"
        );
        assert_eq!(place(&mut parts, &memory, PART as u64, &[2; PART]).len(), 1);
    }

    #[tokio::test]
    async fn after_a_failure_a_file_keeps_its_memory_for_a_restart() {
        let memory = UploadMemory::of_bytes(2 * (64 << 10));
        let mut parts = parts(&memory).await;
        place(&mut parts, &memory, 0, b"x");
        parts.end_all();
        let others = memory.take_own(64 << 10, ClientHost::Unknown).await;
        assert!(others.is_err() && memory.free() == 64 << 10, "it is kept");
        let host = ClientHost::from(Some(std::net::IpAddr::from([10, 0, 0, 1])));
        let _others = memory.take_own(64 << 10, host).await.unwrap();
        parts.restart();
        place(&mut parts, &memory, 0, b"anew");
        assert!(matches!(parts.finish(), Ok(LastPart::Whole(data)) if data == "anew"));
    }

    #[tokio::test]
    async fn the_first_part_is_known_in_any_order() {
        let memory = UploadMemory::of_bytes(1 << 20);
        let mut parts = parts(&memory).await;
        let mut taken = |index: u64| {
            let full = place(&mut parts, &memory, index * PART as u64, &[1; PART]).pop().unwrap();
            stored(full, &mut parts);
            parts.first
        };
        assert_eq!([1, 0, 3, 2].map(&mut taken), [0, 2, 2, 4]);
        parts.restart();
        assert_eq!(parts.first, 0);
    }

    #[test]
    fn sizes_follow_the_size_of_the_file() {
        assert_eq!(sizes(None), Some((PART_BYTES, PART_BYTES)));
        assert_eq!(sizes(Some(0)), Some((8 << 20, 0)));
        let largest = PART_BYTES_MAX as u64 * OBJECT_PARTS_MAX;
        assert_eq!(sizes(Some(largest)), Some((PART_BYTES_MAX, PART_BYTES_MAX)));
        assert_eq!(sizes(Some(largest + 1)), None);
        assert_eq!(sizes(Some(u64::MAX)), None);
    }
}
