//! The number that connects a deferred answer to its `waitresp`.
//!
//! `waitresp` carries the number as a big-endian value and the deferred answer carries it as its
//! streamid, which XRootD redirectors read in their own byte order. Numbers with the bytes
//! `x y y x` are equal in both orders, so only these are used. The numbers of a connection must not
//! decrease while a deferred answer is outstanding. Otherwise a redirector discards all outstanding
//! answers.
//!
//! Source: cms protocol version 3, section 5.9. Recorded: 22.

use std::num::NonZeroU16;

use crate::cms::header::StreamId;

/// The number of a deferred answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MessageId(NonZeroU16);

impl MessageId {
    /// The first number of a connection, also used after the last one.
    pub const FIRST: Self = Self(NonZeroU16::MIN);

    /// Returns the next number. After the last of 65535 it returns `None`; [`MessageId::FIRST`] may
    /// be used again when no deferred answer is outstanding.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(next) => Some(Self(next)),
            None => None,
        }
    }

    /// Returns the value of the `waitresp`.
    #[must_use]
    pub const fn value(self) -> u32 {
        u32::from_be_bytes(self.bytes())
    }

    /// Returns the streamid of the deferred answer.
    #[must_use]
    pub const fn streamid(self) -> StreamId {
        StreamId(self.bytes())
    }

    const fn bytes(self) -> [u8; 4] {
        let [x, y] = self.0.get().to_be_bytes();
        [x, y, y, x]
    }

    /// Returns the number in a `waitresp`; `None` if it does not have the required form.
    #[must_use]
    pub const fn of_value(value: u32) -> Option<Self> {
        Self::of_streamid(StreamId(value.to_be_bytes()))
    }

    /// Returns the number in the streamid of a deferred answer; `None` if it does not have the
    /// required form.
    #[must_use]
    pub const fn of_streamid(streamid: StreamId) -> Option<Self> {
        let [x, y, y_again, x_again] = streamid.0;
        if x != x_again || y != y_again {
            return None;
        }
        match NonZeroU16::new(u16::from_be_bytes([x, y])) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_match_the_recording() {
        assert_eq!(MessageId::FIRST.value(), 65_792);
        assert_eq!(MessageId::FIRST.streamid(), StreamId([0, 1, 1, 0]));
        assert_eq!(MessageId::FIRST.next().map(MessageId::value), Some(131_584));
        assert_eq!(MessageId::of_value(65_792), Some(MessageId::FIRST));
    }

    #[test]
    fn numbers_increase_and_are_equal_in_both_byte_orders() {
        let mut id = MessageId::FIRST;
        let mut count = 1;
        while let Some(next) = id.next() {
            assert!(next.value() > id.value());
            assert_eq!(next.value(), next.value().swap_bytes());
            assert_eq!(MessageId::of_streamid(next.streamid()), Some(next));
            id = next;
            count += 1;
        }
        assert_eq!(count, 65_535);
    }
}
