//! Payload of a write that is announced or arriving: its extents, and the piece that is being filled.

use crate::PIECES_IN_FLIGHT_MAX;
use crate::block::DataBlock;
use base::{Error, Extent};
use net::BLOCK_BYTES;
use session::{CallId, Destination, PathId, PayloadAnnouncement, ReceiveResult, RefusedTime, WriteExtent};
use std::collections::VecDeque;
use std::sync::Arc;
use vfs::OpenFile;

/// Pages in one piece. With their checksums they fit a block.
const PIECE_PAGES: usize = 62;

const PAGE: usize = digest::pages::PAGE_BYTES;

const _: () = assert!(PIECE_PAGES * (PAGE + digest::pages::CHECKSUM_BYTES) <= BLOCK_BYTES);

/// Payload that is announced or arriving.
pub(crate) struct Receipt {
    pub(crate) call: CallId,
    pub(crate) link: PathId,
    /// Bytes of the payload that have not arrived.
    pub(crate) left: usize,
    /// The remaining extents, starting with the current one.
    pub(crate) places: VecDeque<PayloadExtent>,
    pub(crate) checkpoint: bool,
    /// Set while earlier operations on its files must end first.
    pub(crate) held: bool,
    /// Set when the hold ended and the connection has not noticed it.
    pub(crate) released: bool,
    /// Set if pieces are written one after another.
    in_turn: bool,
    /// The current piece: its block, its bytes, its full length.
    pub(crate) piece: Option<(DataBlock, usize, usize)>,
    pub(crate) in_flight: usize,
    /// The time for which arrived payload was not taken.
    pub(crate) refused: RefusedTime,
    pub(crate) result: ReceiveResult,
}

/// An extent of a file that receives payload.
pub(crate) struct PayloadExtent {
    pub(crate) file: Arc<dyn OpenFile>,
    pub(crate) offset: u64,
    /// Bytes on the wire.
    length: usize,
    pub(crate) paged: bool,
}

impl PayloadExtent {
    fn plain(extent: WriteExtent) -> Self {
        let WriteExtent { file, extent: Extent { offset, length } } = extent;
        Self { file, offset, length, paged: false }
    }

    /// Returns the length on the wire of the next piece.
    pub(crate) fn piece(&self) -> usize {
        if !self.paged {
            return self.length.min(BLOCK_BYTES);
        }
        let within = usize::try_from(self.offset % PAGE as u64).unwrap_or(0);
        self.length.min(digest::pages::interleaved_length(self.offset, PIECE_PAGES * PAGE - within))
    }
}

/// Reports whether each extent is in the same file as the previous one and after it. Then none
/// overlap, and the pool may write them in any order. Other vectors need not overlap either, but a
/// full check costs more than it saves.
fn ascends(places: &VecDeque<PayloadExtent>) -> bool {
    places.iter().zip(places.iter().skip(1)).all(|(one, next)| {
        let end = one.offset.saturating_add(one.length as u64);
        Arc::ptr_eq(&one.file, &next.file) && end <= next.offset
    })
}

/// The treatment of the next bytes.
pub(crate) enum PayloadStep {
    /// Discard them.
    Discard,
    /// Leave them: too many pieces are in flight, or an earlier one must be written first.
    Wait,
    /// Start a piece of this length. It is written directly from the input if it has arrived
    /// completely.
    Whole(Arc<dyn OpenFile>, u64, usize),
    /// Fill the current piece.
    Fill,
}

impl Receipt {
    /// Creates the receipt of announced payload.
    pub(crate) fn new(receive: PayloadAnnouncement) -> Self {
        let PayloadAnnouncement { call, link, length, into, checkpoint, held, signature } = receive;
        let places = match into {
            Destination::File { file, offset } => {
                VecDeque::from([PayloadExtent { file, offset, length, paged: false }])
            }
            Destination::Pages { file, offset } => {
                VecDeque::from([PayloadExtent { file, offset, length, paged: true }])
            }
            Destination::Vector(extents) => extents.into_iter().map(PayloadExtent::plain).collect(),
            Destination::Discard => VecDeque::new(),
        };
        Self {
            call,
            link,
            left: length,
            in_turn: checkpoint || !ascends(&places),
            places,
            checkpoint,
            held,
            released: false,
            piece: None,
            in_flight: 0,
            refused: RefusedTime::NONE,
            result: ReceiveResult { signature, ..ReceiveResult::default() },
        }
    }

    /// Reports whether earlier operations must end before its data is taken.
    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    /// Returns the treatment of the next bytes.
    pub(crate) fn step(&self) -> PayloadStep {
        if self.result.error.is_some() {
            return PayloadStep::Discard;
        }
        if self.held {
            return PayloadStep::Wait;
        }
        let most = if self.in_turn { 1 } else { PIECES_IN_FLIGHT_MAX };
        match (&self.piece, self.places.front()) {
            (Some(_), _) => PayloadStep::Fill,
            (None, None) => PayloadStep::Discard,
            (None, Some(_)) if self.in_flight >= most => PayloadStep::Wait,
            (None, Some(place)) if place.paged || self.checkpoint => {
                PayloadStep::Whole(place.file.clone(), u64::MAX, usize::MAX)
            }
            (None, Some(place)) => PayloadStep::Whole(place.file.clone(), place.offset, place.piece()),
        }
    }

    /// Ends a refusal of payload, if its reason has ended.
    pub(crate) fn end_refusal(&mut self) {
        if self.refused.is_present() && !matches!(self.step(), PayloadStep::Wait) {
            self.refused.end();
        }
    }

    /// Returns the number of bytes that a separate block may hold for the next piece. Returns 0 if
    /// no piece starts now, or its bytes must be checked individually.
    pub(crate) fn room_ahead(&self) -> usize {
        let begins = self.result.error.is_none() && self.piece.is_none() && !self.checkpoint && !self.held;
        match self.places.front() {
            Some(place) if begins && self.places.len() == 1 && self.in_flight == 0 => place.piece(),
            _ => 0,
        }
    }

    /// Adds payload that has just arrived to the hash of a signed request, in pieces that the
    /// connection's loop takes anyway.
    pub(crate) fn hash(&mut self, bytes: &[u8]) {
        if let Some(signature) = &mut self.result.signature {
            signature.update(bytes);
        }
    }

    /// Adds the last `bytes` bytes of the current piece to the hash of a signed request.
    pub(crate) fn hash_filled(&mut self, bytes: usize) {
        if let (Some(signature), Some((block, filled, _))) = (&mut self.result.signature, &self.piece) {
            let start = filled.saturating_sub(bytes);
            signature.update(block.get(start..*filled).unwrap_or_default());
        }
    }

    /// Fills the current piece. Returns the number of bytes taken.
    pub(crate) fn fill(&mut self, bytes: &[u8]) -> usize {
        let Some((block, filled, goal)) = self.piece.as_mut() else { return 0 };
        let count = bytes.len().min(*goal - *filled);
        if let (Some(room), Some(data)) = (block.get_mut(*filled..*filled + count), bytes.get(..count)) {
            room.copy_from_slice(data);
        }
        *filled += count;
        count
    }

    /// Records a piece that was written in place.
    pub(crate) fn note_written(&mut self, length: usize) {
        self.moved(length, length);
    }

    /// Advances the current extent by `wire` bytes of payload and `data` bytes of the file.
    pub(crate) fn moved(&mut self, wire: usize, data: usize) {
        if let Some(place) = self.places.front_mut() {
            place.length -= wire.min(place.length);
            place.offset += data as u64;
            if place.length == 0 {
                self.places.pop_front();
            }
        }
    }

    /// Records an error. The first one is reported; all further payload is discarded.
    pub(crate) fn failed(&mut self, error: Error) {
        self.piece = None;
        self.places.clear();
        if self.result.error.is_none() {
            self.result.error = Some(error);
        }
    }
}
