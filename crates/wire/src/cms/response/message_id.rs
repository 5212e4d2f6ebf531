//! The number of an answer that is promised by `waitresp` and comes later.
//!
//! `waitresp` says the number as a big-endian value, the later answer has it as its streamid, and real redirectors
//! read that in their own byte order. Numbers whose bytes are `x y y x` read the same in both. They must not become
//! smaller on a link while an answer is outstanding: a redirector forgets all promised answers at a number below an
//! earlier one.
//! Source: cms protocol version 3, section 5.9. Recorded: 22.

use std::num::NonZeroU16;

use crate::cms::header::StreamId;

/// The number of an answer that comes later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MessageId(NonZeroU16);

impl MessageId {
    /// The first on a link, and the one after a wrap.
    pub const FIRST: Self = Self(NonZeroU16::MIN);

    /// The next; `None` after the last of 65535, when only [`MessageId::FIRST`] is left, which may be used once no
    /// promised answer is outstanding.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(next) => Some(Self(next)),
            None => None,
        }
    }

    /// The value of the `waitresp`.
    #[must_use]
    pub const fn value(self) -> u32 {
        u32::from_be_bytes(self.bytes())
    }

    /// The streamid of the later answer.
    #[must_use]
    pub const fn streamid(self) -> StreamId {
        StreamId(self.bytes())
    }

    const fn bytes(self) -> [u8; 4] {
        let [x, y] = self.0.get().to_be_bytes();
        [x, y, y, x]
    }

    /// The number in a `waitresp`, if it is such a one.
    #[must_use]
    pub const fn of_value(value: u32) -> Option<Self> {
        Self::of_streamid(StreamId(value.to_be_bytes()))
    }

    /// The number in the streamid of a later answer, if it is such a one.
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
    fn recorded_numbers() {
        assert_eq!(MessageId::FIRST.value(), 65_792);
        assert_eq!(MessageId::FIRST.streamid(), StreamId([0, 1, 1, 0]));
        assert_eq!(MessageId::FIRST.next().map(MessageId::value), Some(131_584));
        assert_eq!(MessageId::of_value(65_792), Some(MessageId::FIRST));
    }

    #[test]
    fn numbers_grow_and_read_the_same_in_both_byte_orders() {
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
