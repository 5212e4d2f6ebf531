//! Reception of payload from a connection into files.
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

use super::SessionDriver;
use super::jobs::JobWork;
use crate::PAYLOAD_AHEAD_MIN;
use crate::block::DataBlock;
use crate::client_delay::ClientDelay;
use crate::failures::unexpected_answer;
use crate::input::{Input, PayloadAhead};
use crate::receipt::{PayloadStep, Receipt};
use base::{Charge, Error, ErrorKind, MemoryPurpose};
use net::BLOCK_BYTES;
use session::{BAD_PAGES_MAX, BadPage, CallId, PayloadAnnouncement};
use vfs::{Answer, FileOperation, Now, Value};

impl SessionDriver {
    /// Registers payload announced on a connection.
    pub(crate) fn expect(&mut self, receive: PayloadAnnouncement) {
        let receipt = Receipt::new(receive);
        let (link, length, held) = (receipt.link, receipt.left, receipt.held);
        let key = self.rare.receipts.insert(receipt);
        if length == 0 {
            if !held {
                self.finish_receipt(key);
            }
            return;
        }
        match self.context.links.get(link) {
            Some(state) => {
                state.expected.push_back(key);
                state.news = true;
            }
            None => self.payload_lost(key),
        }
    }

    /// Releases a held write.
    pub(crate) fn proceed(&mut self, call: CallId) {
        let Some((key, receipt)) = self.rare.receipts.iter_mut().find(|(_, receipt)| receipt.call == call)
        else {
            return;
        };
        (receipt.held, receipt.released) = (false, true);
        if let Some(state) = self.context.links.get(receipt.link) {
            state.news = true;
        }
        self.finish_if_complete(key);
    }

    /// Consumes payload from the front of `bytes`. Returns the number of bytes consumed. 0 means
    /// that pieces in flight must end first.
    pub(crate) fn feed(&mut self, key: usize, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) {
            let Some(receipt) = self.rare.receipts.get_mut(key) else { return taken };
            if receipt.left == 0 {
                break;
            }
            let step = match receipt.step() {
                PayloadStep::Discard => rest.len().min(receipt.left),
                PayloadStep::Wait => break,
                PayloadStep::Whole(file, offset, length) if rest.len() >= length => {
                    let Some(data) = rest.get(..length) else { break };
                    match file.write_now(offset, data) {
                        Now::Done(Ok(())) => receipt.note_written(length),
                        Now::Done(Err(error)) => receipt.failed(error),
                        Now::WouldBlock => match self.open_piece(key) {
                            true => continue,
                            false => break,
                        },
                    }
                    length
                }
                PayloadStep::Whole(..) => match self.open_piece(key) {
                    true => continue,
                    false => break,
                },
                PayloadStep::Fill => receipt.fill(rest),
            };
            taken += step;
            self.rare
                .receipts
                .get_mut(key)
                .into_iter()
                .for_each(|receipt| receipt.left -= step.min(receipt.left));
            self.flush_piece(key);
        }
        self.finish_if_complete(key);
        taken
    }

    /// Returns room for payload that is read directly from the socket. Returns `None` if that does
    /// not pay or is not possible.
    pub(crate) fn payload_room(&mut self, key: usize) -> Option<&mut [u8]> {
        match self.rare.receipts.get(key)?.step() {
            PayloadStep::Whole(_, _, length) if length > net::SMALL_BYTES && self.open_piece(key) => {}
            PayloadStep::Fill => {}
            _ => return None,
        }
        let receipt = self.rare.receipts.get_mut(key)?;
        let (block, filled, goal) = receipt.piece.as_mut()?;
        block.get_mut(*filled..*goal).filter(|room| room.len() > net::SMALL_BYTES / 4)
    }

    /// Starts a piece of the current extent. Returns `false` if memory is short.
    fn open_piece(&mut self, key: usize) -> bool {
        let Some(charge) = self.context.reserve(MemoryPurpose::Data, BLOCK_BYTES, 0) else { return false };
        let Some(receipt) = self.rare.receipts.get_mut(key) else { return false };
        if let Some(place) = receipt.places.front() {
            receipt.piece = Some((DataBlock::with_room(BLOCK_BYTES, charge), 0, place.piece()));
        }
        true
    }

    /// Records bytes that were read into the room of [`Self::payload_room`].
    pub(crate) fn payload_came(&mut self, key: usize, bytes: usize) {
        let Some(receipt) = self.rare.receipts.get_mut(key) else { return };
        if let Some((_, filled, _)) = receipt.piece.as_mut() {
            *filled += bytes;
        }
        receipt.left -= bytes.min(receipt.left);
        self.flush_piece(key);
        self.finish_if_complete(key);
    }

    /// Reports whether reading from the connection must pause until pieces have been written. The
    /// payload of a held write may fill one buffer, so that the end of the connection is noticed.
    pub(crate) fn payload_waits(&mut self, key: usize) -> bool {
        self.rare
            .receipts
            .get(key)
            .is_some_and(|receipt| !receipt.held && matches!(receipt.step(), PayloadStep::Wait))
    }

    /// Reports, once, whether held payload was released.
    pub(crate) fn was_released(&mut self, key: usize) -> bool {
        self.rare.receipts.get_mut(key).is_some_and(|receipt| std::mem::take(&mut receipt.released))
    }

    /// Writes the piece if it is complete.
    fn flush_piece(&mut self, key: usize) {
        let Some(receipt) = self.rare.receipts.get_mut(key) else { return };
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
        if let Some((answer, charge)) = self.context.start_job(JobWork::Piece(key), charge, &file, operation)
        {
            self.piece_ended(key, answer, charge);
        }
    }

    /// Takes payload that arrived in a block of its own. It is written from that block if it
    /// belongs to one piece. Bytes after that piece, or all bytes otherwise, become input.
    pub(crate) fn take_ahead(&mut self, key: usize, ahead: PayloadAhead, input: &mut Input) {
        let PayloadAhead { block, filled } = ahead;
        let room = self.rare.receipts.get(key).map_or(0, Receipt::room_ahead);
        let Some(receipt) = self.rare.receipts.get_mut(key).filter(|_| room > 0) else {
            return PayloadAhead { block, filled }.join(input, self.context.links.account());
        };
        let taken = filled.min(room);
        input.append(block.get(taken..filled).unwrap_or_default(), self.context.links.account());
        receipt.piece = Some((block, 0, room));
        self.payload_came(key, taken);
    }

    /// Returns the length of the first piece of announced payload if the payload of the next
    /// request may be received the same way, otherwise 0.
    pub(crate) fn piece_ahead(&self, key: usize) -> usize {
        let room = self.rare.receipts.get(key).map_or(0, Receipt::room_ahead);
        if room < PAYLOAD_AHEAD_MIN { 0 } else { room }
    }

    /// Continues after the pool has written a piece.
    pub(crate) fn piece_written(&mut self, key: usize, answer: Answer, charge: Charge) {
        self.piece_ended(key, answer, charge);
        self.finish_if_complete(key);
    }

    fn piece_ended(&mut self, key: usize, answer: Answer, charge: Charge) {
        let Some(receipt) = self.rare.receipts.get_mut(key) else { return };
        receipt.in_flight -= 1;
        match answer {
            Answer::Value(Value::Written { buffer }) => drop(DataBlock::from_parts(buffer, charge)),
            other => receipt.failed(unexpected_answer(other)),
        }
    }

    fn finish_if_complete(&mut self, key: usize) {
        let Some(receipt) = self.rare.receipts.get(key) else { return };
        if receipt.left == 0 {
            let link = receipt.link;
            let written = receipt.in_flight == 0 && receipt.piece.is_none();
            if let Some(state) = self.context.links.get(link)
                && state.expected.front() == Some(&key)
            {
                state.expected.pop_front();
                if state.expected.is_empty() {
                    state.input_lag = ClientDelay::NONE;
                }
            }
            if written {
                self.finish_receipt(key);
            }
        }
    }

    fn finish_receipt(&mut self, key: usize) {
        let Some(receipt) = self.rare.receipts.try_remove(key) else { return };
        if let Some(error) = &receipt.result.error {
            self.context.note_failure(error);
        }
        let todo = self.context.session.received(receipt.call, receipt.result, &mut self.context.links);
        self.run(todo);
    }

    /// Fails a write whose connection was lost before all of its payload arrived.
    pub(crate) fn payload_lost(&mut self, key: usize) {
        let Some(receipt) = self.rare.receipts.get_mut(key) else { return };
        receipt.left = 0;
        receipt.failed(Error::new(ErrorKind::IoError, "the connection was lost"));
        if receipt.in_flight == 0 {
            self.finish_receipt(key);
        }
    }
}
