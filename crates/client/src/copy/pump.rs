//! Moves the bytes of one file, with several chunks in flight.
//!
//! Each lane reads a chunk and then writes it. A local target is written in the order of the file
//! ([`Sequence`]), unless it has several sources. A target at a server is written in any order. If
//! it may have to be completed later, no chunk begins more than [`AHEAD_BYTES_MAX`] behind the
//! first missing one, so that a partial file has few holes.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::archived;
use super::failure::CopyError;
use super::options::{CopyOptions, Watch};
use super::rate::{Floor, Rate};
use super::sequence::{FilePiece, Sequence};
use super::source::{SourceKind, SourceReader};
use super::upload_note::UploadNote;
use crate::file::File;

/// Maximum distance of writes to a server from the first unacknowledged one, so that a partial file
/// has few holes.
const AHEAD_BYTES_MAX: u64 = 128 * 1024 * 1024;

/// Minimum size of a chunk if several sources share the file.
const SHARED_BYTES_MIN: u64 = 128 * 1024;

/// Interval between checks of the rate.
const LOOK_TIME: Duration = Duration::from_secs(1);

/// The destination of the bytes.
pub(super) enum ByteSink {
    /// A local target, written in order.
    Sequence(Sequence),
    /// A server, and the checksums if any are computed.
    Remote { file: File, how: WriteMode, sums: Option<Sequence>, note: Option<Arc<UploadNote>> },
}

/// The kind of write requests to a server.
#[derive(Clone, Copy)]
pub(super) enum WriteMode {
    Plain,
    /// Writes with page checksums.
    Pages,
    /// Writes from this offset on, optionally under a checkpoint: a member of an archive.
    Member {
        from: u64,
        checkpoint: bool,
    },
}

/// A copy in progress.
pub(super) struct Pump {
    pub(super) source: SourceReader,
    pub(super) into: ByteSink,
    pub(super) chunk_bytes: usize,
    pub(super) watch: Watch,
    /// Maximum distance of a chunk from a missing one.
    ahead: Option<u64>,
    rate: Option<Rate>,
    rate_min: Option<u64>,
    plan: Mutex<ChunkPlan>,
    /// Notified when a chunk is complete.
    moved: Notify,
    /// Held by the lane that reads a stream.
    turn: tokio::sync::Mutex<()>,
}

/// The remaining work.
struct ChunkPlan {
    /// Extents with data in reverse order.
    extents: Vec<Range<u64>>,
    /// Offset of the next chunk or hole.
    next: u64,
    /// Size of the file, when known.
    size: Option<u64>,
    /// Number of places at several sources that share the remaining bytes. Chunks shrink with it
    /// because a slow source would otherwise hold up the end of the copy.
    sharers: u64,
    /// Preferred chunk size of these sources.
    wanted: u64,
    /// Offsets of the chunks in flight.
    moving: BTreeSet<u64>,
    /// Number of bytes written to the target.
    copied: u64,
}

/// The next step of a lane.
#[derive(PartialEq, Eq, Debug)]
enum ChunkStep {
    Data(u64, usize),
    Hole(u64, u64),
    /// Wait, because the next chunk is too far ahead.
    Pause,
    End,
}

impl ChunkPlan {
    fn new(from: u64, size: Option<u64>, mut extents: Vec<Range<u64>>) -> Self {
        extents.reverse();
        Self { extents, next: from, size, sharers: 0, wanted: u64::MAX, moving: BTreeSet::new(), copied: 0 }
    }

    /// Returns the size of the next chunk: `most`, or less if several sources share the file.
    /// Towards the end half of the remaining bytes are in flight at once.
    fn chunk(&self, most: u64) -> u64 {
        let left = self.size.unwrap_or(u64::MAX).saturating_sub(self.next);
        let wanted = self.wanted.min(left.checked_div(2 * self.sharers).unwrap_or(u64::MAX));
        let mut chunk = most;
        while chunk > wanted && chunk / 2 >= SHARED_BYTES_MIN && chunk.is_multiple_of(2) {
            chunk /= 2;
        }
        chunk
    }

    fn step(&mut self, most: u64, ahead: Option<u64>) -> ChunkStep {
        let chunk = self.chunk(most);
        if let (Some(first), Some(ahead)) = (self.moving.first(), ahead)
            && self.next >= first + ahead
        {
            return ChunkStep::Pause;
        }
        let at = self.next;
        let end = self.size.unwrap_or(u64::MAX);
        while self.extents.last().is_some_and(|extent| extent.end <= at) {
            self.extents.pop();
        }
        let step = match self.extents.last() {
            Some(extent) if extent.start <= at => {
                // Chunks are aligned to their size where possible.
                let length = (chunk - at % chunk).min(extent.end - at);
                ChunkStep::Data(at, usize::try_from(length).unwrap_or(usize::MAX))
            }
            Some(extent) => ChunkStep::Hole(at, extent.start - at),
            None if at < end && self.size.is_some() => ChunkStep::Hole(at, end - at),
            None => return ChunkStep::End,
        };
        self.next += match step {
            ChunkStep::Data(_, length) => length as u64,
            ChunkStep::Hole(_, length) => length,
            ChunkStep::Pause | ChunkStep::End => 0,
        };
        self.moving.insert(at);
        step
    }
}

impl Pump {
    pub(super) async fn new(
        source: SourceReader,
        into: ByteSink,
        from: u64,
        options: &CopyOptions,
        watch: Watch,
    ) -> Arc<Self> {
        let (rate, rate_min) = (options.rate.clone(), options.rate_min);
        let most = options.chunk_bytes.max(1);
        let chunk_bytes = rate.as_ref().map_or(most, |rate| rate.chunk_bytes(most));
        // The distance is limited only for a file that may have to be completed later.
        let bounded = options.resume && matches!(into, ByteSink::Remote { .. });
        let ahead = bounded.then_some(AHEAD_BYTES_MAX);
        // The range of a new member holds older bytes, so holes have to be overwritten with zeros.
        let extents = match (&into, source.size) {
            (ByteSink::Remote { how: WriteMode::Member { .. }, .. }, Some(size)) => {
                std::iter::once(from..size).collect()
            }
            _ => source.extents(from).await,
        };
        let plan = Mutex::new(ChunkPlan::new(from, source.size, extents));
        watch.begin(from, source.size);
        let (moved, turn) = (Notify::new(), tokio::sync::Mutex::default());
        Arc::new(Self { source, into, chunk_bytes, ahead, rate, rate_min, watch, plan, moved, turn })
    }

    fn plan(&self) -> MutexGuard<'_, ChunkPlan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves all bytes with `lanes` chunks in flight and returns the size of the file.
    pub(super) async fn run(self: &Arc<Self>, lanes: usize) -> Result<u64, CopyError> {
        let mut least = self.chunk_bytes.max(1) as u64;
        if matches!(self.source.from, SourceKind::Many(_)) {
            least = least.min(SHARED_BYTES_MIN);
        }
        let chunks = self.source.size.map(|size| size.div_ceil(least).max(1));
        let lanes = chunks.map_or(lanes, |chunks| lanes.min(usize::try_from(chunks).unwrap_or(lanes)));
        let moving = async {
            if lanes <= 1 {
                tokio::select! {
                    result = self.clone().lane() => result,
                    () = self.watch.cancelled() => Err(CopyError::Cancelled),
                }
            } else {
                self.run_lanes(lanes).await
            }
        };
        let result = tokio::select! {
            result = moving => result,
            error = self.too_slow() => Err(error),
        };
        result.map(|()| self.plan().next)
    }

    /// Returns when the rate is below the minimum.
    async fn too_slow(&self) -> CopyError {
        let Some(least) = self.rate_min else { return std::future::pending().await };
        let mut floor = Floor::new(least, Instant::now());
        loop {
            tokio::time::sleep(LOOK_TIME).await;
            if let Some(rate) = floor.look(self.copied(), Instant::now()) {
                return CopyError::Slow { place: self.source.place.to_string(), rate, least };
            }
        }
    }

    async fn run_lanes(self: &Arc<Self>, lanes: usize) -> Result<(), CopyError> {
        let mut running = JoinSet::new();
        for _ in 0..lanes.max(1) {
            running.spawn(self.clone().lane());
        }
        loop {
            let ended = tokio::select! {
                ended = running.join_next() => ended,
                () = self.watch.cancelled() => Some(Ok(Err(CopyError::Cancelled))),
            };
            match ended {
                None => return Ok(()),
                Some(Ok(Ok(()))) => {}
                // The other lanes are aborted.
                Some(Ok(Err(error))) => {
                    running.shutdown().await;
                    return Err(error);
                }
                Some(Err(_)) => {
                    running.shutdown().await;
                    return Err(CopyError::Cancelled);
                }
            }
        }
    }

    /// Adds the first `to` bytes, which are at the server already, to the checksums.
    pub(super) async fn sum_up(&self, to: u64) -> Result<(), CopyError> {
        let ByteSink::Remote { sums: Some(sums), .. } = &self.into else { return Ok(()) };
        let mut at = 0;
        while at < to {
            let length = usize::try_from(to - at).unwrap_or(usize::MAX).min(self.chunk_bytes.max(1));
            let data = self.source.read(at, length).await?;
            sums.bring(at, FilePiece::Data(data)).await?;
            at += length as u64;
        }
        Ok(())
    }

    /// Returns the number of bytes written to the target.
    pub(super) fn copied(&self) -> u64 {
        self.plan().copied
    }

    /// Returns the offset up to which all bytes are at the server.
    pub(super) fn whole_to(&self) -> u64 {
        let plan = self.plan();
        plan.moving.first().copied().unwrap_or(plan.next)
    }

    async fn lane(self: Arc<Self>) -> Result<(), CopyError> {
        loop {
            let (offset, piece) = if self.source.is_stream() {
                let Some(read) = self.next_of_stream().await? else { return Ok(()) };
                read
            } else {
                match self.step().await {
                    ChunkStep::Data(offset, length) => {
                        self.allowed(length).await;
                        (offset, FilePiece::Data(self.source.read(offset, length).await?))
                    }
                    ChunkStep::Hole(offset, length) => (offset, FilePiece::Hole(length)),
                    ChunkStep::Pause | ChunkStep::End => return Ok(()),
                }
            };
            self.put(offset, piece).await?;
        }
    }

    /// Waits until the rate limit allows `bytes` more bytes.
    async fn allowed(&self, bytes: usize) {
        if let Some(rate) = &self.rate {
            rate.take(bytes).await;
        }
    }

    async fn step(&self) -> ChunkStep {
        loop {
            let mut moved = std::pin::pin!(self.moved.notified());
            moved.as_mut().enable();
            let step = {
                let mut plan = self.plan();
                if let SourceKind::Many(sources) = &self.source.from {
                    (plan.sharers, plan.wanted) = sources.asked_best();
                }
                plan.step(self.chunk_bytes.max(1) as u64, self.ahead)
            };
            if step != ChunkStep::Pause {
                return step;
            }
            moved.await;
        }
    }

    /// Returns the next bytes of a stream, which one lane at a time reads.
    async fn next_of_stream(&self) -> Result<Option<(u64, FilePiece)>, CopyError> {
        let _turn = self.turn.lock().await;
        self.allowed(self.chunk_bytes).await;
        let data = self.source.read_next(self.chunk_bytes).await?;
        if data.is_empty() {
            return Ok(None);
        }
        let mut plan = self.plan();
        let offset = plan.next;
        plan.next += data.len() as u64;
        plan.moving.insert(offset);
        Ok(Some((offset, FilePiece::Data(data))))
    }

    async fn put(&self, offset: u64, piece: FilePiece) -> Result<(), CopyError> {
        let (length, moved) = match &piece {
            FilePiece::Data(data) => (data.len() as u64, data.len() as u64),
            FilePiece::Hole(length) => (*length, 0),
        };
        match &self.into {
            ByteSink::Sequence(sequence) => sequence.bring(offset, piece).await?,
            ByteSink::Remote { file, how, sums, .. } => {
                let data = if let FilePiece::Data(data) = &piece { Some(data.clone()) } else { None };
                let summed = async {
                    match sums {
                        Some(sums) => sums.bring(offset, piece).await,
                        None => Ok(()),
                    }
                };
                let written = async {
                    let Some(data) = data else { return Ok(()) };
                    let done = match *how {
                        WriteMode::Pages => file.write_pages(offset, data).await,
                        WriteMode::Plain => file.write(offset, data).await,
                        WriteMode::Member { from, checkpoint } => {
                            return archived::write(file, checkpoint, from + offset, data).await;
                        }
                    };
                    done.map_err(CopyError::target)
                };
                tokio::try_join!(written, summed)?;
            }
        }
        {
            let mut plan = self.plan();
            plan.moving.remove(&offset);
            plan.copied += moved;
        }
        if let ByteSink::Remote { note: Some(note), .. } = &self.into {
            note.advance(self.whole_to(), &self.source.disk);
        }
        self.moved.notify_waiters();
        self.watch.advance(length, self.source.size);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_and_holes_cover_the_file() {
        let mut plan = ChunkPlan::new(5, Some(100), vec![5..12, 30..31, 50..75]);
        let mut steps = Vec::new();
        loop {
            match plan.step(10, None) {
                ChunkStep::End => break,
                step => steps.push(step),
            }
        }
        use ChunkStep::{Data, Hole};
        let expected = [
            Data(5, 5),
            Data(10, 2),
            Hole(12, 18),
            Data(30, 1),
            Hole(31, 19),
            Data(50, 10),
            Data(60, 10),
            Data(70, 5),
            Hole(75, 25),
        ];
        assert_eq!(steps, expected);
        assert_eq!(plan.next, 100);
    }

    #[test]
    fn shared_files_have_smaller_chunks_towards_the_end() {
        let (most, size) = (2 << 20, 40_000_000);
        let mut plan = ChunkPlan::new(0, Some(size), std::iter::once(0..size).collect());
        plan.sharers = 10;
        let (mut at, mut last) = (0, most);
        while let ChunkStep::Data(offset, length) = plan.step(most, None) {
            let (length, left) = (length as u64, size - offset);
            assert_eq!(offset, at);
            assert!(
                length <= last && (length <= left / 20 || length <= SHARED_BYTES_MIN),
                "{length} of {left}"
            );
            assert!(length.is_multiple_of(SHARED_BYTES_MIN) || length == left, "pages are whole");
            (at, last) = (offset + length, length);
        }
        assert_eq!((at, last <= SHARED_BYTES_MIN), (size, true));
        // Before that point the preferred size applies; a size set by the caller that cannot be
        // halved is kept.
        plan.next = 0;
        plan.wanted = 600_000;
        assert_eq!((plan.chunk(most), plan.chunk(70_001)), (512 * 1024, 70_001));
    }

    #[test]
    fn chunks_stay_close_to_the_first_missing_one() {
        let mut plan = ChunkPlan::new(0, Some(100), std::iter::once(0..100).collect());
        assert_eq!(plan.step(10, Some(20)), ChunkStep::Data(0, 10));
        assert_eq!(plan.step(10, Some(20)), ChunkStep::Data(10, 10));
        plan.moving.remove(&10);
        assert_eq!(plan.step(10, Some(20)), ChunkStep::Pause);
        plan.moving.remove(&0);
        assert_eq!(plan.step(10, Some(20)), ChunkStep::Data(20, 10));
    }
}
