//! A read in progress, and its frames.

use session::{ReadElement, ReadReply};

use super::files::FileUse;

/// Number of data bytes in one frame.
const FRAME_BYTES_MAX: usize = 4096;
/// Frames of pages are checked without their data, so any byte will do.
pub(super) const DATA: u8 = 0xda;

/// A read in progress.
pub(super) struct PendingRead {
    pub(super) reply: ReadReply,
    pub(super) uses: Vec<FileUse>,
    pub(super) kind: ReadKind,
}

/// The data of a read that has not been sent.
pub(super) enum ReadKind {
    Range { offset: u64, paged: bool },
    Vector(Vec<ReadElement>),
}

/// The way in which a read continues.
#[derive(Clone, Copy)]
pub(super) enum ReadResult {
    Data,
    Short,
    End,
    Failure,
    Elsewhere,
}

impl ReadResult {
    pub(super) fn of(number: usize) -> Self {
        match number % 5 {
            0 => Self::Data,
            1 => Self::Short,
            2 => Self::Failure,
            3 => Self::End,
            _ => Self::Elsewhere,
        }
    }

    /// Returns the number of available bytes out of `wanted`.
    pub(super) fn there(self, wanted: usize) -> usize {
        match self {
            Self::Data => wanted,
            Self::Short => wanted / 2,
            Self::End | Self::Failure | Self::Elsewhere => 0,
        }
    }
}

/// Appends the next frame; returns whether it is the last one.
pub(super) fn frame(read: &mut PendingRead, how: ReadResult, out: &mut Vec<u8>) -> bool {
    let left = read.reply.left();
    let wanted = left.min(FRAME_BYTES_MAX);
    let there = how.there(wanted);
    match &mut read.kind {
        ReadKind::Range { offset, paged: true } => {
            let frame = read.reply.page_frame(*offset, (wanted, there), there);
            out.extend_from_slice(&frame.header);
            out.resize(out.len() + there, DATA);
            *offset += there as u64;
            assert!(frame.is_last || (there == wanted && read.reply.left() > 0), "the reply never ends");
            frame.is_last
        }
        ReadKind::Range { paged: false, .. } => {
            let frame = read.reply.frame(wanted, there);
            out.extend_from_slice(&frame.header);
            out.resize(out.len() + there, DATA);
            assert!(frame.is_last || (there == wanted && read.reply.left() > 0), "the reply never ends");
            frame.is_last
        }
        ReadKind::Vector(elements) => {
            let mut data = Vec::new();
            let rest = elements.split_off(elements.len().min(2));
            for element in elements.iter() {
                data.extend_from_slice(&element.header());
                data.resize(data.len() + element.extent.length, DATA);
            }
            let frame = read.reply.vector_frame(elements.len(), data.len());
            out.extend_from_slice(&frame.header);
            out.extend_from_slice(&data);
            assert_eq!(frame.is_last, rest.is_empty(), "the mark of the last frame is wrong");
            *elements = rest;
            frame.is_last
        }
    }
}
