//! The table of requests in flight on a connection, indexed by stream id.
//!
//! It exists because replies carry only the stream id of their request.

use wire::xroot::{RequestCode, StreamId};

use crate::error::ConnectionError;

/// Requests in flight. The stream id is the index in `slots` plus one.
#[derive(Default, Debug)]
pub(super) struct Requests {
    slots: Vec<Option<(u64, RequestCode)>>,
    free: Vec<u16>,
}

impl Requests {
    /// Returns the number of requests without a complete reply.
    pub(super) const fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Allocates a stream id; `None` when all are in use.
    pub(super) fn take(&mut self, tag: u64, code: RequestCode) -> Option<StreamId> {
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                let number = u16::try_from(self.slots.len() + 1).ok()?;
                self.slots.push(None);
                number
            }
        };
        *self.slots.get_mut(usize::from(number) - 1)? = Some((tag, code));
        Some(StreamId(number.to_be_bytes()))
    }

    pub(super) fn get(&self, streamid: StreamId) -> Result<(u64, RequestCode), ConnectionError> {
        let place = usize::from(u16::from_be_bytes(streamid.0)).checked_sub(1);
        place.and_then(|place| *self.slots.get(place)?).ok_or(ConnectionError::UnknownStream(streamid))
    }

    pub(super) fn release(&mut self, streamid: StreamId) {
        let number = u16::from_be_bytes(streamid.0);
        let slot = usize::from(number).checked_sub(1).and_then(|place| self.slots.get_mut(place));
        if slot.and_then(Option::take).is_some() {
            self.free.push(number);
        }
    }
}
