//! Reads that take several steps, as the driver keeps them between the steps.

use crate::costs::CALL_BYTES;
use crate::driver::FrameContext;
use crate::range_read::RangeRead;
use crate::vector_read::VectorRead;
use base::{Charge, Error};
use session::{PathId, ReadReply};
use vfs::Answer;

/// A read in progress.
pub(crate) struct Transfer {
    pub(crate) link: PathId,
    /// Bytes produced in this turn.
    pub(crate) turn: usize,
    /// Set while the pool reads a piece.
    pub(crate) waiting: bool,
    /// `None` while one of its frames is being made.
    pub(crate) work: Option<TransferWork>,
    /// Memory held in addition to the buffers of its pieces.
    _charge: Charge,
}

impl Transfer {
    /// Creates a transfer on a connection. `charge` is for the memory that the work holds.
    pub(crate) fn new(link: PathId, work: TransferWork, charge: Charge) -> Self {
        Self { link, turn: 0, waiting: false, work: Some(work), _charge: charge }
    }
}

/// The kind of a read and its progress.
pub(crate) enum TransferWork {
    Range(RangeRead),
    Vector(VectorRead),
}

impl TransferWork {
    /// Returns the memory that the work holds in addition to the buffers of its pieces, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Range(_) => CALL_BYTES,
            Self::Vector(vector) => CALL_BYTES + vector.bytes(),
        }
    }

    /// Makes the next frame.
    pub(crate) fn make_frame(&mut self, context: &mut FrameContext<'_>) -> Result<FrameProgress, Error> {
        match self {
            Self::Range(range) => range.make_frame(context),
            Self::Vector(vector) => vector.make_frame(context),
        }
    }

    /// Continues after the pool has read pieces.
    pub(crate) fn take_piece(
        &mut self,
        context: &mut FrameContext<'_>,
        answer: Answer,
        charge: Charge,
    ) -> Result<FrameProgress, Error> {
        match self {
            Self::Range(range) => range.take_piece(context, answer, charge),
            Self::Vector(vector) => vector.take_pieces(context, answer, charge),
        }
    }

    /// Returns the reply of the read.
    pub(crate) fn into_reply(self) -> ReadReply {
        match self {
            Self::Range(range) => range.reply,
            Self::Vector(vector) => vector.reply,
        }
    }
}

/// Result of making a frame.
pub(crate) enum FrameProgress {
    /// A frame of this many bytes; more follow.
    Frame(usize),
    /// The pool is reading a piece.
    Waits,
    /// Memory for the next piece is short now.
    Short,
    /// The last frame.
    Last,
}
