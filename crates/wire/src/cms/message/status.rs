//! `status` (22): what the sender can do now.
//!
//! No payload. The bits of the modifier apply independently; `reset` stands alone. With `resume` the streamid may be
//! the data port, which from then on is that of the node. Direction: node to parent, manager to redirector. A node
//! may send it before its login was answered, and real ones now and then before their login. The bits `drain` and
//! `undrain` are our own: real daemons ignore bits they do not know, and are not told all the same.
//! Source: cms protocol version 3, sections 1.4, 1.5, 2.1, 5.5. Recorded: 01, 02, 07, 21, 25.

use crate::cms::error::EncodeError;
use crate::cms::flags::StatusModifier;
use crate::cms::header::StreamId;

/// What the sender can do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// What changed.
    pub modifier: StatusModifier,
    /// The data port, with `resume` only.
    pub port: Option<u16>,
}

impl Status {
    pub(super) fn decode(streamid: StreamId, modifier: u8) -> Self {
        let modifier = StatusModifier(modifier);
        let resumes = modifier.contains(StatusModifier::RESUME);
        Self { modifier, port: streamid.port().filter(|_| resumes) }
    }

    /// The streamid it is sent with.
    pub(super) fn streamid(&self) -> StreamId {
        let resumes = self.modifier.contains(StatusModifier::RESUME);
        self.port.filter(|_| resumes).map_or(StreamId::NONE, StreamId::of_port)
    }

    /// Whether it says what only our own nodes understand.
    pub(super) const fn is_extended(&self) -> bool {
        self.modifier.0 & (StatusModifier::DRAIN.0 | StatusModifier::UNDRAIN.0) != 0
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
