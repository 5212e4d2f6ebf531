//! Replies to writes and to refused requests, when their data has arrived and was written or
//! discarded.
//!
//! A kXR_writev with sync then syncs its files one after the other. Pages with wrong checksums are
//! recorded, because the close of their file fails unless they are corrected.

use crate::call::{CallKind, UnansweredCall};
use crate::ids::{CallId, FileIndex, PathId, SequenceId};
use crate::machine::UNVERIFIED;
use crate::replies;
use crate::reply::{CountedEvent, ReplyOutputs};
use crate::step::{BadPage, DriverTask, ReceiveResult};
use crate::work::SessionWork;
use base::Error;
use vfs::FileOperation;
use wire::xroot::codes::ErrorCode;
use wire::xroot::header::StreamId;
use wire::xroot::limits::{FILE_BAD_PAGES_MAX, PGWRITE_BAD_PAGES_MAX};

/// Ends the calls of writes, and replies.
pub(crate) struct WriteReplies<'a> {
    pub(crate) work: &'a mut SessionWork,
    pub(crate) out: &'a mut dyn ReplyOutputs,
}

/// The signature of a request is not that of its data.
pub(crate) struct UnverifiedPayload {
    /// The write, to be ended after the session. Otherwise a close that waits for it would count.
    pub(crate) sequence: Option<SequenceId>,
}

/// A kXR_pgwrite whose data has arrived.
struct PageRequest {
    streamid: StreamId,
    link: PathId,
    file: FileIndex,
    offset: u64,
    length: u32,
    retry: bool,
}

impl WriteReplies<'_> {
    /// Takes the result of an announcement whose data has arrived.
    ///
    /// # Errors
    /// The signature of the request is not that of its data. The client has the reply, and the session
    /// must end.
    pub(crate) fn received(
        &mut self,
        id: CallId,
        mut received: ReceiveResult,
    ) -> Result<DriverTask, UnverifiedPayload> {
        let Some(call) = self.work.finish_call(id) else { return Ok(DriverTask::Nothing) };
        // Data that did not arrive completely has an error instead of a signature.
        let is_verified = match received.signature.take() {
            Some(signature) => signature.verify(),
            None => !call.is_signed || received.error.is_some(),
        };
        if !is_verified {
            self.work.mark_incomplete(call.sequence);
            self.out.count(CountedEvent::Error(ErrorCode::SIGVER_ERR));
            self.out.count(CountedEvent::Unsigned);
            replies::error(self.out.link(call.link), call.streamid, ErrorCode::SIGVER_ERR, UNVERIFIED);
            return Err(UnverifiedPayload { sequence: call.sequence });
        }
        Ok(self.end_write(call, received))
    }

    fn end_write(&mut self, mut call: UnansweredCall, received: ReceiveResult) -> DriverTask {
        if received.error.is_some() && self.work.is_ending {
            self.work.mark_incomplete(call.sequence);
        }
        let (streamid, link, sequence) = (call.streamid, call.link, call.sequence);
        match call.kind {
            CallKind::Refused(error) => self.written(streamid, link, Some(error)),
            CallKind::Write => self.written(streamid, link, received.error),
            CallKind::PageWrite { file, offset, length, retry } => {
                let request = PageRequest { streamid, link, file, offset, length, retry };
                self.pages_written(&request, received);
            }
            CallKind::VectorWrite { ref files, sync } => {
                if sync && received.error.is_none() && !files.is_empty() {
                    let files = files.clone();
                    return self.sync_next(&mut call, files);
                }
                self.written(streamid, link, received.error);
            }
            _ => {}
        }
        self.work.end_operation(sequence);
        DriverTask::Nothing
    }

    /// Takes the end of the sync of one file of a vector write. Returns the sync of the next file,
    /// or nothing if the write is complete and its reply due.
    pub(crate) fn synced(
        &mut self,
        call: &mut UnansweredCall,
        mut files: Vec<FileIndex>,
    ) -> Option<DriverTask> {
        files.pop();
        (!files.is_empty()).then(|| self.sync_next(call, files))
    }

    fn written(&mut self, id: StreamId, link: PathId, error: Option<Error>) {
        if let Some(error) = &error {
            self.out.count(CountedEvent::Error(crate::wire_code(error.kind)));
        }
        let out = self.out.link(link);
        match error {
            Some(error) => replies::fail(out, id, &error),
            None => replies::ok(out, id, &[]),
        }
    }

    /// Syncs the last of these files. The others follow with its answer.
    fn sync_next(&mut self, write: &mut UnansweredCall, files: Vec<FileIndex>) -> DriverTask {
        let file = files.last().and_then(|&index| self.work.file(index)).cloned();
        let kind = CallKind::VectorWrite { files, sync: true };
        let call = self.work.call(write.streamid, PathId::CONTROL, kind);
        if let Some(next) = self.work.call_mut(call) {
            next.is_deferred = write.is_deferred;
            next.sequence = write.sequence;
            next.timer = write.timer.take();
        }
        match file {
            Some(file) => DriverTask::FileCall(call, file, FileOperation::Sync),
            None => DriverTask::Nothing,
        }
    }

    /// Records pages with wrong checksums, and replies.
    fn pages_written(&mut self, request: &PageRequest, received: ReceiveResult) {
        let (id, link) = (request.streamid, request.link);
        if let Some(error) = received.error {
            return self.written(id, link, Some(error));
        }
        let Some(handle) = self.work.any_handle(request.file) else { return };
        let this = BadPage { offset: request.offset, length: request.length };
        if request.retry && received.bad_pages.is_empty() {
            handle.bad_pages.retain(|page| *page != this);
        }
        for &page in &received.bad_pages {
            handle.remember(page);
        }
        handle.unlisted += received.bad_pages_more;
        let more = received.bad_pages_more > 0 || received.bad_pages.len() > PGWRITE_BAD_PAGES_MAX;
        if more || handle.errors() > FILE_BAD_PAGES_MAX {
            let text = "Too many checksum errors in request";
            self.out.count(CountedEvent::Error(ErrorCode::TOO_MANY_ERRS));
            return replies::error(self.out.link(link), id, ErrorCode::TOO_MANY_ERRS, text);
        }
        let out = self.out.link(link);
        replies::pages_written(out, id, request.offset, &received.bad_pages);
    }
}
