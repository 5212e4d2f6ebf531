//! The send queue of a connection: encoded requests in one buffer, payloads by reference.
//!
//! Payloads are not copied into the buffer because they may be large.

use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::io::IoSlice;

/// The bytes that remain to be sent.
#[derive(Default, Debug)]
pub(crate) struct Outgoing {
    /// Requests; the bytes before `start` are sent.
    bytes: Vec<u8>,
    start: usize,
    /// Payloads in order.
    payloads: VecDeque<Payload>,
}

/// A payload that is sent before `bytes[at..]`.
#[derive(Debug)]
struct Payload {
    at: usize,
    data: Bytes,
}

impl Outgoing {
    /// Returns the buffer to which requests are appended.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Appends a payload behind the bytes appended so far.
    pub(crate) fn payload(&mut self, data: Bytes) {
        if !data.is_empty() {
            self.payloads.push_back(Payload { at: self.bytes.len(), data });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.bytes.len() && self.payloads.is_empty()
    }

    /// Fills `slices` with the next bytes and returns the number of slices used. Some bytes may not
    /// fit.
    pub(crate) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut from = self.start;
        let mut used = 0;
        let mut put = |bytes: &'a [u8]| match slices.get_mut(used) {
            Some(place) if !bytes.is_empty() => {
                *place = IoSlice::new(bytes);
                used += 1;
                true
            }
            Some(_) => true,
            None => false,
        };
        for payload in &self.payloads {
            if !put(self.bytes.get(from..payload.at).unwrap_or_default()) || !put(&payload.data) {
                return used;
            }
            from = payload.at;
        }
        put(self.bytes.get(from..).unwrap_or_default());
        used
    }

    /// Records that the first `count` bytes are sent.
    pub(crate) fn sent(&mut self, mut count: usize) {
        while let Some(payload) = self.payloads.front_mut() {
            let before = count.min(payload.at - self.start);
            self.start += before;
            count -= before;
            let of_payload = count.min(payload.data.len());
            payload.data.advance(of_payload);
            count -= of_payload;
            if !payload.data.is_empty() {
                break;
            }
            self.payloads.pop_front();
        }
        self.start = self.bytes.len().min(self.start + count);
        if self.is_empty() {
            self.bytes.clear();
            self.start = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(outgoing: &Outgoing, most: usize) -> Vec<u8> {
        let mut slices = [IoSlice::new(&[]); 8];
        let used = outgoing.slices(&mut slices[..most]);
        slices[..used].iter().flat_map(|slice| slice.iter().copied()).collect()
    }

    fn filled() -> Outgoing {
        let mut outgoing = Outgoing::default();
        outgoing.buffer().extend_from_slice(b"ab");
        outgoing.payload(Bytes::from_static(b"123"));
        outgoing.payload(Bytes::new());
        outgoing.payload(Bytes::from_static(b"45"));
        outgoing.buffer().extend_from_slice(b"cd");
        outgoing.payload(Bytes::from_static(b"6"));
        outgoing
    }

    #[test]
    fn payloads_keep_their_position_after_partial_sends() {
        let whole = b"ab12345cd6";
        for cut in 1..=whole.len() {
            let mut outgoing = filled();
            assert_eq!(all(&outgoing, 8), whole);
            let mut at = 0;
            while at < whole.len() {
                assert_eq!(all(&outgoing, 8), whole[at..], "{cut} {at}");
                let count = cut.min(whole.len() - at);
                outgoing.sent(count);
                at += count;
            }
            assert!(outgoing.is_empty());
            outgoing.buffer().extend_from_slice(b"ef");
            assert_eq!(all(&outgoing, 8), b"ef");
        }
    }

    #[test]
    fn few_slices_hold_the_first_bytes() {
        assert_eq!(all(&filled(), 1), b"ab");
        assert_eq!(all(&filled(), 2), b"ab123");
        assert_eq!(all(&filled(), 4), b"ab12345cd");
    }
}
