//! `status` (22): changes of the sender's state.
//!
//! No payload. The bits of the modifier are independent of each other, but `reset` is sent alone.
//! With `resume` the streamid may be the data port, which replaces that of the login. Direction:
//! node to parent, manager to redirector. A node may send it before its login is answered, and
//! XRootD nodes sometimes send it before their login, so a parent must accept both. The bits
//! `established`, `drain` and `undrain` are extensions and are sent only to Scalla peers.
//!
//! Source: cms protocol version 3, sections 1.4, 1.5, 2.1, 5.5. Recorded: 01, 02, 07, 21, 25.

use crate::cms::error::EncodeError;
use crate::cms::extensions::Extensions;
use crate::cms::flags::StatusModifier;
use crate::cms::header::StreamId;

/// A change of the sender's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// The changes.
    pub modifier: StatusModifier,
    /// The data port; only with `resume`.
    pub port: Option<u16>,
}

impl Status {
    pub(super) fn decode(streamid: StreamId, modifier: u8) -> Self {
        let modifier = StatusModifier(modifier);
        let resumes = modifier.contains(StatusModifier::RESUME);
        Self { modifier, port: streamid.port().filter(|_| resumes) }
    }

    /// Returns the streamid of the frame.
    pub(super) fn streamid(&self) -> StreamId {
        let resumes = self.modifier.contains(StatusModifier::RESUME);
        self.port.filter(|_| resumes).map_or(StreamId::NONE, StreamId::of_port)
    }

    /// Reports whether a peer with these extensions supports all bits.
    pub(super) const fn is_for(&self, peer: Extensions) -> bool {
        let drains = self.modifier.0 & (StatusModifier::DRAIN.0 | StatusModifier::UNDRAIN.0) != 0;
        let is_established = self.modifier.contains(StatusModifier::ESTABLISHED);
        (peer.is_own() || !drains) && (peer.contains(Extensions::NEWCOMER) || !is_established)
    }

    /// Refuses bits that contradict each other.
    pub(super) const fn check(&self) -> Result<(), EncodeError> {
        let modifier = self.modifier;
        let resets = modifier.contains(StatusModifier::RESET);
        let contradicts = modifier.contains(StatusModifier(0x03))
            || modifier.contains(StatusModifier(0x0c))
            || modifier.contains(StatusModifier(0xc0));
        if contradicts || resets && modifier.0 != StatusModifier::RESET.0 {
            return Err(EncodeError::Malformed { field: "status" });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FixedLayout;
    use crate::cms::{Header, Message};

    /// The bit of `established` is that of unpacked paths in messages with a payload.
    #[test]
    fn every_bit_arrives() {
        for bit in 0..8 {
            let sent = Status { modifier: StatusModifier(1 << bit), port: None };
            let mut frame = Vec::new();
            Message::Status(sent).encode(StreamId::NONE, Extensions::ALL, &mut frame).unwrap();
            let (header, payload) = frame.split_first_chunk().unwrap();
            let header = Header::from_bytes(header);
            assert_eq!(Message::decode(&header, payload), Ok(Message::Status(sent)), "{bit}");
        }
    }
}
