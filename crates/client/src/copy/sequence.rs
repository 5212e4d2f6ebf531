//! [`Sequence`]: reorders pieces of a file, so that they are written and checksummed in file order.
//!
//! A caller waits until its piece is taken. The number of buffered pieces is therefore bounded by
//! the number of callers. The output has no holes at any time, so an interrupted copy can continue
//! from its end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use digest::RunningChecksum;
use tokio::sync::{Notify, oneshot};

use super::disk::DiskThreads;
use super::failure::CopyError;
use super::local::LocalTarget;

/// Zeros for the checksums of holes.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// A piece of a file.
pub(super) enum FilePiece {
    Data(Bytes),
    /// Number of zeros.
    Hole(u64),
}

impl FilePiece {
    fn length(&self) -> u64 {
        match self {
            Self::Data(data) => data.len() as u64,
            Self::Hole(length) => *length,
        }
    }
}

/// The destination of the pieces.
pub(super) enum Out {
    File(LocalTarget),
    /// Standard output.
    Stream,
    /// None: the pieces are only checksummed.
    Nowhere,
}

/// The consumer of the pieces.
pub(super) struct Taker {
    pub(super) sums: Vec<RunningChecksum>,
    pub(super) out: Out,
}

impl Taker {
    fn take(&mut self, offset: u64, piece: &FilePiece) -> Result<(), CopyError> {
        match piece {
            FilePiece::Data(data) => {
                match &mut self.out {
                    Out::File(file) => file.write(offset, data)?,
                    Out::Stream => write_out(data)?,
                    Out::Nowhere => {}
                }
                self.sums.iter_mut().for_each(|sum| sum.update(data));
            }
            FilePiece::Hole(length) => {
                let mut left = *length;
                let wants_zeros = !self.sums.is_empty() || matches!(self.out, Out::Stream);
                while left > 0 && wants_zeros {
                    let count = left.min(ZEROS.len() as u64);
                    let zeros = ZEROS.get(..count as usize).unwrap_or_default();
                    if matches!(self.out, Out::Stream) {
                        write_out(zeros)?;
                    }
                    self.sums.iter_mut().for_each(|sum| sum.update(zeros));
                    left -= count;
                }
            }
        }
        Ok(())
    }
}

fn write_out(data: &[u8]) -> Result<(), CopyError> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    out.write_all(data)
        .and_then(|()| out.flush())
        .map_err(|error| CopyError::local("write", "standard output", &error))
}

struct WaitingPiece {
    piece: FilePiece,
    taken: oneshot::Sender<Result<(), CopyError>>,
}

struct SequenceProgress {
    /// Offset of the next piece.
    next: u64,
    ordered: bool,
    waiting: BTreeMap<u64, WaitingPiece>,
    /// `None` while a disk thread takes pieces.
    taker: Option<Taker>,
    failed: Option<CopyError>,
}

/// A reordering queue in front of a taker. Clones share it.
#[derive(Clone)]
pub(super) struct Sequence(Arc<SequenceState>);

struct SequenceState {
    state: Mutex<SequenceProgress>,
    /// Notified when the taker is idle again.
    idle: Notify,
    disk: DiskThreads,
}

impl Sequence {
    /// Creates a sequence that begins at byte `next`. If it is not `ordered`, it takes pieces in
    /// any order and computes no checksums.
    pub(super) fn new(next: u64, ordered: bool, taker: Taker, disk: DiskThreads) -> Self {
        let state =
            SequenceProgress { next, ordered, waiting: BTreeMap::new(), taker: Some(taker), failed: None };
        Self(Arc::new(SequenceState { state: Mutex::new(state), idle: Notify::new(), disk }))
    }

    fn state(&self) -> MutexGuard<'_, SequenceProgress> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a piece and waits until it is taken.
    pub(super) async fn bring(&self, offset: u64, piece: FilePiece) -> Result<(), CopyError> {
        let (taken, when) = oneshot::channel();
        {
            let mut state = self.state();
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            state.waiting.insert(offset, WaitingPiece { piece, taken });
            if (offset == state.next || !state.ordered)
                && let Some(taker) = state.taker.take()
            {
                let this = self.clone();
                self.0.disk.post(move || this.drain(taker));
            }
        }
        when.await.unwrap_or(Err(CopyError::Cancelled))
    }

    /// Takes pieces as long as the next one is available.
    fn drain(&self, mut taker: Taker) {
        let mut next = self.next(taker, 0);
        while let Some((with, offset, waiting)) = next.take() {
            taker = with;
            let length = waiting.piece.length();
            let result = taker.take(offset, &waiting.piece);
            // The memory is free before the next read needs it.
            drop(waiting.piece);
            match &result {
                Ok(()) => next = self.next(taker, length),
                Err(error) => self.fail(taker, error),
            }
            let _ = waiting.taken.send(result);
        }
    }

    /// Returns the next piece after `length` more bytes, or returns the taker to the sequence.
    fn next(&self, taker: Taker, length: u64) -> Option<(Taker, u64, WaitingPiece)> {
        let mut state = self.state();
        let found = if state.ordered {
            state.next += length;
            let offset = state.next;
            state.waiting.remove(&offset).map(|waiting| (offset, waiting))
        } else {
            state.waiting.pop_first()
        };
        match found {
            Some((offset, waiting)) => Some((taker, offset, waiting)),
            None => {
                state.taker = Some(taker);
                self.0.idle.notify_waiters();
                None
            }
        }
    }

    fn fail(&self, taker: Taker, error: &CopyError) {
        let mut state = self.state();
        state.failed = Some(error.clone());
        state.taker = Some(taker);
        for (_, waiting) in std::mem::take(&mut state.waiting) {
            let _ = waiting.taken.send(Err(error.clone()));
        }
        self.0.idle.notify_waiters();
    }

    /// Waits until the taker is idle and ends the sequence. Returns the offset up to which it is
    /// complete, and the taker.
    pub(super) async fn end(&self) -> (u64, Taker) {
        loop {
            let mut idle = std::pin::pin!(self.0.idle.notified());
            idle.as_mut().enable();
            {
                let mut state = self.state();
                state.failed.get_or_insert(CopyError::Cancelled);
                if let Some(taker) = state.taker.take() {
                    return (state.next, taker);
                }
            }
            idle.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use digest::Algorithm;

    fn taker() -> Taker {
        Taker { sums: vec![RunningChecksum::new(Algorithm::Crc32c)], out: Out::Nowhere }
    }

    #[tokio::test]
    async fn pieces_are_taken_in_the_order_of_the_file() {
        let sequence = Sequence::new(10, true, taker(), DiskThreads::start(1));
        let mut bringing = tokio::task::JoinSet::new();
        for (offset, data) in [(16, "ghi"), (13, "def"), (10, "abc")] {
            let sequence = sequence.clone();
            bringing.spawn(async move { sequence.bring(offset, FilePiece::Data(data.into())).await });
        }
        while let Some(brought) = bringing.join_next().await {
            brought.unwrap().unwrap();
        }
        sequence.bring(19, FilePiece::Hole(70_000)).await.unwrap();
        let (next, mut taker) = sequence.end().await;
        let expected = [&b"abcdefghi"[..], &[0; 70_000]].concat();
        let sum = taker.sums.pop().unwrap().finish();
        assert_eq!((next, sum), (70_019, RunningChecksum::of(Algorithm::Crc32c, &expected)));
    }

    #[tokio::test]
    async fn a_failure_reaches_all_callers() {
        let path = std::path::Path::new("/dev/full");
        let options = super::super::CopyOptions::of(&crate::Settings::default());
        let (target, _) = LocalTarget::create(path, &options, None).unwrap();
        let sequence =
            Sequence::new(0, true, Taker { sums: Vec::new(), out: Out::File(target) }, DiskThreads::start(1));
        let later = sequence.bring(3, FilePiece::Data("def".into()));
        let first = sequence.bring(0, FilePiece::Data("abc".into()));
        let (later, first) = tokio::join!(later, first);
        let is_full = |error: CopyError| matches!(error, CopyError::Local { kind, .. } if kind == std::io::ErrorKind::StorageFull);
        assert!(is_full(later.unwrap_err()) && is_full(first.unwrap_err()));
        assert!(sequence.bring(6, FilePiece::Data("ghi".into())).await.is_err());
    }
}
