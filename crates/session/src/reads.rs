//! Replies to reads: the session makes each header, and the driver appends the data.
//!
//! A read that can complete immediately is answered by [`ReadTask::answer`]. The reply to another
//! read is a [`ReadReply`]. The driver obtains the header of each frame from it and returns it at
//! the end, so that a read ends exactly once.

use crate::ids::{PathId, SequenceId};
use crate::replies;
use crate::reply::{CountedEvent, ReplyOutputs};
use crate::step::{ReadElement, ReadTask, ReadVectorTask};
use crate::timing::RequestTimer;
use base::Error;
use vfs::Now;
use wire::FixedLayout;
use wire::xroot::codes::{RequestCode, ResponseType};
use wire::xroot::header::StreamId;
use wire::xroot::limits::{RESPONSE_HEADER_BYTES, SEGMENT_BYTES};
use wire::xroot::reply::status::{STATUS_FRAME_BYTES, StatusFrame};
use wire::xroot::request::Segment;

/// The header before the data of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadFrame<const BYTES: usize = RESPONSE_HEADER_BYTES> {
    /// Header before the data.
    pub header: [u8; BYTES],
    /// Reports whether the reply is complete with this frame.
    pub is_last: bool,
}

/// The reply to a read that does not complete immediately. The driver owns it until
/// [`crate::Session::read_ended`] or [`crate::Session::read_failed`].
#[derive(Debug)]
#[must_use = "operations that wait for the read never start if it does not end"]
pub struct ReadReply {
    streamid: StreamId,
    link: PathId,
    sequence: SequenceId,
    /// Bytes of a range, or elements of a vector, without a frame.
    left: usize,
    /// Ends with the reply.
    _timer: RequestTimer,
}

impl ReadReply {
    pub(crate) fn of_range(task: &mut ReadTask, sequence: SequenceId) -> Self {
        let _timer = task.timer.take();
        Self { streamid: task.streamid, link: task.link, sequence, left: task.length, _timer }
    }

    pub(crate) fn of_vector(task: &mut ReadVectorTask, sequence: SequenceId) -> Self {
        let (left, _timer) = (task.elements.len(), task.timer.take());
        // The path id of a vector read is ignored, as by all servers.
        Self { streamid: task.streamid, link: PathId::CONTROL, sequence, left, _timer }
    }

    /// Returns the position of the read among the operations on open files.
    pub(crate) fn sequence(&self) -> SequenceId {
        self.sequence
    }

    /// Completes the reply with an error.
    pub(crate) fn fail(&self, error: &Error, out: &mut dyn ReplyOutputs) {
        out.count(CountedEvent::Error(crate::wire_code(error.kind)));
        replies::fail(out.link(self.link), self.streamid, error);
    }

    /// Returns the connection that takes the reply.
    pub fn link(&self) -> PathId {
        self.link
    }

    /// Returns the bytes of a range, or the elements of a vector, without a frame.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Makes the frame for the next `wanted` bytes of a range, of which `read` are available. Fewer
    /// bytes than wanted mean the end of the file.
    pub fn frame(&mut self, wanted: usize, read: usize) -> ReadFrame {
        let is_last = read < wanted || read == self.left;
        self.left = self.left.saturating_sub(read);
        ReadFrame { header: replies::read_header(self.streamid, is_last, read), is_last }
    }

    /// Makes the frame for pages from `offset` on, of which `read` bytes of the wanted ones are
    /// available. With their checksums they occupy `bytes`.
    pub fn page_frame(
        &mut self,
        offset: u64,
        (wanted, read): (usize, usize),
        bytes: usize,
    ) -> ReadFrame<STATUS_FRAME_BYTES> {
        let is_last = read < wanted || read == self.left;
        self.left = self.left.saturating_sub(read);
        let frame = StatusFrame {
            streamid: self.streamid,
            request: RequestCode::PGREAD,
            resptype: if is_last { ResponseType::FINAL } else { ResponseType::PARTIAL },
            dlen: i32::try_from(bytes).unwrap_or(i32::MAX),
            offset: i64::try_from(offset).unwrap_or(i64::MAX),
        };
        ReadFrame { header: frame.to_bytes(), is_last }
    }

    /// Makes the frame for the next elements of a vector, which occupy `bytes` with their headers.
    pub fn vector_frame(&mut self, elements: usize, bytes: usize) -> ReadFrame {
        self.left = self.left.saturating_sub(elements);
        let is_last = self.left == 0;
        ReadFrame { header: replies::read_header(self.streamid, is_last, bytes), is_last }
    }
}

impl ReadElement {
    /// Returns the header of the element's data in the reply, which repeats its item of the
    /// request.
    pub fn header(&self) -> [u8; SEGMENT_BYTES] {
        Segment {
            fhandle: crate::files::to_wire(self.file),
            length: i32::try_from(self.extent.length).unwrap_or(i32::MAX),
            offset: i64::try_from(self.extent.offset).unwrap_or(i64::MAX),
        }
        .to_bytes()
    }
}

impl ReadTask {
    /// Returns the maximum length of the reply that [`ReadTask::answer`] makes.
    pub fn answer_bytes(&self) -> usize {
        self.length + RESPONSE_HEADER_BYTES
    }

    /// Replies with the data that `read` appends to the output of the task's connection: at most
    /// [`ReadTask::length`] bytes, without page checksums. [`crate::Session::read_answered`] must
    /// follow. Returns `false` and leaves the output unchanged if the data is not available
    /// immediately, or if the read fails, because the reply to a read in steps has the error then.
    pub fn answer(&self, out: &mut Vec<u8>, read: impl FnOnce(&mut Vec<u8>) -> Now<usize>) -> bool {
        let start = out.len();
        // Replaced when the length of the data is known.
        out.extend_from_slice(&[0; RESPONSE_HEADER_BYTES]);
        match read(out) {
            Now::Done(Ok(read)) => {
                // Fewer bytes than the client wants mean the end of the file.
                let header = replies::read_header(self.streamid, true, read);
                if let Some(place) = out.get_mut(start..).and_then(<[u8]>::first_chunk_mut) {
                    *place = header;
                }
                true
            }
            Now::WouldBlock | Now::Done(Err(_)) => {
                out.truncate(start);
                false
            }
        }
    }
}
