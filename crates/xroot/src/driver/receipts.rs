//! [`Receipts`]: reception of payload from the connections of a session into files.
//!
//! Payload is processed in pieces of at most a block, never as a whole frame. A complete piece is
//! written in place while the storage answers immediately, otherwise by the pool. The connection is
//! not read (back-pressure)
//!
//! * while [`crate::PIECES_IN_FLIGHT_MAX`] pieces are being written;
//! * while the whole write waits for earlier operations on its files.
//!
//! Where extents may overlap, a piece waits for the previous one, so that the last one takes
//! effect. After an error the rest of the payload is discarded, so that the next request is found.
//!
//! The end of a write can make further tasks possible. Functions return the next task of the
//! session, which the driver executes.

use super::context::SessionContext;
use super::jobs::JobWork;
use crate::PAYLOAD_AHEAD_MIN;
use crate::block::DataBlock;
use crate::client_delay::ClientDelay;
use crate::failures::unexpected_answer;
use crate::input::{Input, PayloadAhead};
use crate::receipt::{PayloadStep, Receipt};
use base::{Charge, Error, ErrorKind, MemoryPurpose};
use net::BLOCK_BYTES;
use session::{BAD_PAGES_MAX, BadPage, CallId, DriverTask, PayloadAnnouncement};
use slab::Slab;
use vfs::{Answer, FileOperation, Now, Value};

/// The writes of a session whose payload has not been written completely.
#[derive(Default)]
pub(super) struct Receipts(Slab<Receipt>);

impl Receipts {
    /// No writes.
    pub(super) const NONE: Self = Self(Slab::new());

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Drops all writes after a panic.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Registers payload announced on a connection.
    pub(super) fn expect(
        &mut self,
        context: &mut SessionContext,
        receive: PayloadAnnouncement,
    ) -> Option<DriverTask> {
        let receipt = Receipt::new(receive);
        let (link, length, held) = (receipt.link, receipt.left, receipt.held);
        let key = self.0.insert(receipt);
        if length == 0 {
            return if held { None } else { self.finish(context, key) };
        }
        match context.links.get(link) {
            Some(state) => {
                state.expected.push_back(key);
                state.news = true;
                None
            }
            None => self.lost(context, key),
        }
    }

    /// Releases a held write.
    pub(super) fn proceed(&mut self, context: &mut SessionContext, call: CallId) -> Option<DriverTask> {
        let (key, receipt) = self.0.iter_mut().find(|(_, receipt)| receipt.call == call)?;
        (receipt.held, receipt.released) = (false, true);
        receipt.end_refusal();
        if let Some(state) = context.links.get(receipt.link) {
            state.news = true;
        }
        self.complete(context, key)
    }

    /// Consumes payload from the front of `bytes`. Returns the number of bytes consumed. 0 means
    /// that pieces in flight must end first. [`Self::complete`] must follow.
    pub(super) fn feed(&mut self, context: &mut SessionContext, key: usize, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) {
            let Some(receipt) = self.0.get_mut(key) else { return taken };
            if receipt.left == 0 {
                break;
            }
            let step = match receipt.step() {
                PayloadStep::Discard => rest.len().min(receipt.left),
                PayloadStep::Wait => {
                    receipt.refused.begin();
                    break;
                }
                PayloadStep::Whole(file, offset, length) if rest.len() >= length => {
                    let Some(data) = rest.get(..length) else { break };
                    match file.write_now(offset, data) {
                        Now::Done(Ok(())) => receipt.note_written(length),
                        Now::Done(Err(error)) => receipt.failed(error),
                        Now::WouldBlock => match self.open_piece_for_input(context, key) {
                            true => continue,
                            false => break,
                        },
                    }
                    length
                }
                PayloadStep::Whole(..) => match self.open_piece_for_input(context, key) {
                    true => continue,
                    false => break,
                },
                PayloadStep::Fill => receipt.fill(rest),
            };
            taken += step;
            if let Some(receipt) = self.0.get_mut(key) {
                receipt.left -= step.min(receipt.left);
                receipt.hash(rest.get(..step).unwrap_or_default());
            }
            self.flush_piece(context, key);
        }
        taken
    }

    /// Returns room for payload that is read directly from the socket. Returns `None` if that does
    /// not pay or is not possible.
    pub(super) fn room(&mut self, context: &mut SessionContext, key: usize) -> Option<&mut [u8]> {
        match self.0.get(key)?.step() {
            PayloadStep::Whole(_, _, length)
                if length > net::SMALL_BYTES && self.open_piece(context, key) => {}
            PayloadStep::Fill => {}
            _ => return None,
        }
        let receipt = self.0.get_mut(key)?;
        let (block, filled, goal) = receipt.piece.as_mut()?;
        block.get_mut(*filled..*goal).filter(|room| room.len() > net::SMALL_BYTES / 4)
    }

    /// Starts a piece of the current extent. Returns `false` if memory is short.
    fn open_piece(&mut self, context: &mut SessionContext, key: usize) -> bool {
        let Some(charge) = context.reserve(MemoryPurpose::Data, BLOCK_BYTES, 0) else { return false };
        let Some(receipt) = self.0.get_mut(key) else { return false };
        receipt.refused.end();
        if let Some(place) = receipt.places.front() {
            receipt.piece = Some((DataBlock::with_room(BLOCK_BYTES, charge), 0, place.piece()));
        }
        true
    }

    /// Does so for payload that has arrived, which is refused if memory is short.
    fn open_piece_for_input(&mut self, context: &mut SessionContext, key: usize) -> bool {
        let is_open = self.open_piece(context, key);
        if !is_open && let Some(receipt) = self.0.get_mut(key) {
            receipt.refused.begin();
        }
        is_open
    }

    /// Records bytes that were read into the room of [`Self::room`].
    pub(super) fn note_arrived(
        &mut self,
        context: &mut SessionContext,
        key: usize,
        bytes: usize,
    ) -> Option<DriverTask> {
        let receipt = self.0.get_mut(key)?;
        if let Some((_, filled, _)) = receipt.piece.as_mut() {
            *filled += bytes;
            receipt.hash_filled(bytes);
        }
        receipt.left -= bytes.min(receipt.left);
        self.flush_piece(context, key);
        self.complete(context, key)
    }

    /// Reports whether reading from the connection must pause until pieces have been written. The
    /// payload of a held write may fill one buffer, so that the end of the connection is noticed.
    pub(super) fn must_wait(&mut self, key: usize) -> bool {
        let Some(receipt) = self.0.get_mut(key) else { return false };
        let waits = !receipt.held && matches!(receipt.step(), PayloadStep::Wait);
        if waits {
            receipt.refused.begin();
        }
        waits
    }

    /// Reports, once, whether held payload was released.
    pub(super) fn take_released(&mut self, key: usize) -> bool {
        self.0.get_mut(key).is_some_and(|receipt| std::mem::take(&mut receipt.released))
    }

    /// Writes the piece if it is complete.
    fn flush_piece(&mut self, context: &mut SessionContext, key: usize) {
        let Some(receipt) = self.0.get_mut(key) else { return };
        let Some((mut block, filled, goal)) = receipt.piece.take() else { return };
        if filled < goal {
            receipt.piece = Some((block, filled, goal));
            return;
        }
        let checkpoint = receipt.checkpoint;
        let Some(place) = receipt.places.front() else { return };
        let (file, offset) = (place.file.clone(), place.offset);
        let mut length = goal;
        if place.paged {
            let result = &mut receipt.result;
            length = digest::pages::separate(offset, block.get_mut(..goal).unwrap_or_default(), |page| {
                if result.bad_pages.len() >= BAD_PAGES_MAX {
                    result.bad_pages_more += 1;
                    return;
                }
                result.bad_pages.push(BadPage {
                    offset: page.offset,
                    length: u32::try_from(page.length).unwrap_or(u32::MAX),
                });
            });
        }
        receipt.moved(goal, length);
        if !checkpoint {
            match file.write_now(offset, block.get(..length).unwrap_or_default()) {
                Now::Done(Ok(())) => return,
                Now::Done(Err(error)) => return receipt.failed(error),
                Now::WouldBlock => {}
            }
        }
        receipt.in_flight += 1;
        let (buffer, charge) = block.cut(length).into_parts();
        let operation = FileOperation::Write { buffer, offset, checkpoint };
        if let Some((answer, charge)) = context.start_job(JobWork::Piece(key), charge, &file, operation) {
            self.piece_ended(key, answer, charge);
        }
    }

    /// Takes payload that arrived in a block of its own. It is written from that block if it
    /// belongs to one piece. Bytes after that piece, or all bytes otherwise, become input.
    pub(super) fn take_ahead(
        &mut self,
        context: &mut SessionContext,
        key: usize,
        ahead: PayloadAhead,
        input: &mut Input,
    ) -> Option<DriverTask> {
        let PayloadAhead { block, filled } = ahead;
        let room = self.0.get(key).map_or(0, Receipt::room_ahead);
        let Some(receipt) = self.0.get_mut(key).filter(|_| room > 0) else {
            PayloadAhead { block, filled }.join(input, context.links.account());
            return None;
        };
        let taken = filled.min(room);
        input.append(block.get(taken..filled).unwrap_or_default(), context.links.account());
        receipt.piece = Some((block, 0, room));
        self.note_arrived(context, key, taken)
    }

    /// Returns the length of the first piece of announced payload if the payload of the next
    /// request may be received the same way, otherwise 0.
    pub(super) fn piece_ahead(&self, key: usize) -> usize {
        let room = self.0.get(key).map_or(0, Receipt::room_ahead);
        if room < PAYLOAD_AHEAD_MIN { 0 } else { room }
    }

    /// Continues after the pool has written a piece.
    pub(super) fn piece_written(
        &mut self,
        context: &mut SessionContext,
        key: usize,
        answer: Answer,
        charge: Charge,
    ) -> Option<DriverTask> {
        self.piece_ended(key, answer, charge);
        self.complete(context, key)
    }

    fn piece_ended(&mut self, key: usize, answer: Answer, charge: Charge) {
        let Some(receipt) = self.0.get_mut(key) else { return };
        receipt.in_flight -= 1;
        match answer {
            Answer::Value(Value::Written { buffer }) => drop(DataBlock::from_parts(buffer, charge)),
            other => receipt.failed(unexpected_answer(other)),
        }
        receipt.end_refusal();
    }

    /// Ends a write whose payload has arrived and was written. Returns the next task of the session.
    pub(super) fn complete(&mut self, context: &mut SessionContext, key: usize) -> Option<DriverTask> {
        let receipt = self.0.get_mut(key)?;
        if receipt.left > 0 {
            return None;
        }
        let written = receipt.in_flight == 0 && receipt.piece.is_none();
        let (call, link) = (receipt.call, receipt.link);
        if let Some(state) = context.links.get(link)
            && state.expected.front() == Some(&key)
        {
            state.expected.pop_front();
            if state.expected.is_empty() {
                state.input_lag = ClientDelay::NONE;
            }
            context.session.data_arrived(call, receipt.refused.take());
        }
        if written { self.finish(context, key) } else { None }
    }

    fn finish(&mut self, context: &mut SessionContext, key: usize) -> Option<DriverTask> {
        let receipt = self.0.try_remove(key)?;
        if let Some(error) = &receipt.result.error {
            context.note_failure(error);
        }
        Some(context.session.received(receipt.call, receipt.result, &mut context.links))
    }

    /// Fails a write whose connection was lost before all of its payload arrived.
    pub(super) fn lost(&mut self, context: &mut SessionContext, key: usize) -> Option<DriverTask> {
        let receipt = self.0.get_mut(key)?;
        receipt.left = 0;
        // It has no time for which its client kept data back.
        context.session.data_arrived(receipt.call, receipt.refused.take());
        // The hash lacks the rest of the payload.
        receipt.result.signature = None;
        receipt.failed(Error::new(ErrorKind::IoError, "the connection was lost"));
        if receipt.in_flight == 0 { self.finish(context, key) } else { None }
    }

    /// Reports whether the data of a write may be received now.
    pub(super) fn may_arrive(&self, key: usize) -> bool {
        self.0.get(key).is_some_and(|receipt| !receipt.is_held())
    }
}
