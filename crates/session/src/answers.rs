//! Answers of the file system, encoded as replies.
//!
//! Requests become operations in `paths` and `handles`; the answers of these operations arrive
//! here.

use crate::call::{CallKind, UnansweredCall};
use crate::files::to_wire;
use crate::ids::{CallId, FileIndex};
use crate::replies::{self, stat_text};
use crate::reply::{CountedEvent, ReplyOutputs};
use crate::step::DriverTask;
use crate::work::SessionWork;
use crate::write_replies::WriteReplies;
use base::{Descriptor, ErrorKind};
use vfs::{
    Answer, AttributeOutcome, DirectoryEntries, DirectoryEntry, EncodedEntries, ListingPosition, Opened,
    Operation, Value,
};
use wire::Encode;
use wire::xroot::codes::{FattrSubcode, Status};
use wire::xroot::header::StreamId;
use wire::xroot::reply::attn::deferred;
use wire::xroot::reply::open::{OpenDetail, OpenReply};
use wire::xroot::reply::stat_text::ListedChecksum;
use wire::xroot::reply::{dirlist, fattr, frame, frame_with, query, small, wait};

/// Seconds after which a client of an old generation retries a request whose answer is deferred for
/// other clients.
const RETRY_SECONDS: i32 = 30;

/// Text of a listing in one frame, in bytes. The client joins the frames.
const LIST_FRAME_BYTES: usize = 32 * 1024;

/// Ends calls by the answers of the file system, and replies.
pub(crate) struct Answers<'a> {
    pub(crate) work: &'a mut SessionWork,
    pub(crate) out: &'a mut dyn ReplyOutputs,
    /// Set if the client accepts a reply after the notice that it comes later.
    pub(crate) accepts_deferred_reply: bool,
}

impl Answers<'_> {
    /// Notifies the client that an answer will be late. Called at most once per call, before
    /// [`Answers::answered`].
    pub(crate) fn defer(&mut self, id: CallId, seconds: u32, text: &str) {
        let takes_later = self.accepts_deferred_reply;
        let seconds = i32::try_from(seconds).unwrap_or(i32::MAX);
        let Some(call) = self.work.call_mut(id) else { return };
        let tells = match &call.kind {
            // A release has no client to notify.
            CallKind::Release(_) => false,
            // A deferred answer is one frame but a listing has many, so its client receives no
            // notice.
            CallKind::List { .. } => false,
            // An operation on a handle must not be repeated. A client that cannot accept deferred
            // answers therefore waits without notice.
            kind => takes_later || !kind.is_on_file(),
        };
        if !tells || call.is_deferred {
            return;
        }
        call.is_deferred = true;
        let (streamid, link) = (call.streamid, call.link);
        self.out.count(if takes_later { CountedEvent::LateAnswer } else { CountedEvent::Wait });
        if takes_later {
            wait::waitresp(self.out.link(link), streamid, seconds, text);
        } else {
            // The client retries, and the answer to this request is dropped. So this is its reply.
            drop(call.timer.take());
            wait::wait(self.out.link(link), streamid, RETRY_SECONDS, text);
        }
    }

    /// Takes the answer to a call.
    pub(crate) fn answered(&mut self, id: CallId, answer: Answer) -> DriverTask {
        if let Answer::Value(Value::Listing { entries, rest }) = answer {
            return self.listed(id, &entries, rest);
        }
        let Some(mut call) = self.work.finish_call(id) else { return DriverTask::Nothing };
        if let CallKind::VectorWrite { files, .. } = &call.kind {
            let files = files.clone();
            return self.synced(&mut call, files, answer);
        }
        let errors = self.apply_end(&call, &answer);
        let muted =
            matches!(call.kind, CallKind::Release(_)) || (call.is_deferred && !self.accepts_deferred_reply);
        let descriptor = std::mem::take(&mut call.descriptor);
        match answer {
            Answer::Value(Value::Opened(opened)) if muted => self.release(opened, descriptor),
            _ if muted => DriverTask::Nothing,
            Answer::Value(Value::Opened(opened)) => self.opened(&call, opened, descriptor),
            answer => {
                let answer = match (&call.kind, answer) {
                    (CallKind::Close(_), Answer::Value(_)) if errors > 0 => Answer::error(
                        ErrorKind::ChecksumError,
                        format!("{errors} uncorrected checksum errors"),
                    ),
                    (CallKind::Close(_), Answer::Value(_)) => Answer::DONE,
                    (CallKind::Open { .. } | CallKind::List { .. }, Answer::Value(_)) => mismatched_answer(),
                    (CallKind::PathCommand, Answer::Value(_)) => {
                        Answer::error(ErrorKind::FsError, PATH_COMMAND_DONE)
                    }
                    (_, answer) => answer,
                };
                encode(&call, answer, self.out);
                DriverTask::Nothing
            }
        }
    }

    /// Continues a vector write with sync after the sync of one of its files.
    fn synced(&mut self, call: &mut UnansweredCall, files: Vec<FileIndex>, answer: Answer) -> DriverTask {
        let is_done = matches!(answer, Answer::Value(_));
        let mut writes = WriteReplies { work: self.work, out: self.out };
        if is_done && let Some(next) = writes.synced(call, files) {
            return next;
        }
        self.work.end_operation(call.sequence);
        encode(call, if is_done { Answer::DONE } else { answer }, self.out);
        DriverTask::Nothing
    }

    /// Applies the end of a call to its files. Returns the number of bad pages if a file was
    /// closed.
    fn apply_end(&mut self, call: &UnansweredCall, answer: &Answer) -> usize {
        let mut errors = 0;
        match call.kind {
            // The file stays open if the client must retry.
            CallKind::Close(index) if matches!(answer, Answer::Wait { .. } | Answer::Redirect(_)) => {
                self.reopened(index)
            }
            CallKind::Close(index) | CallKind::Release(index) => {
                errors = self.work.files.remove(index).map_or(0, |handle| handle.errors());
            }
            _ => {}
        }
        self.work.end_operation(call.sequence);
        errors
    }

    fn reopened(&mut self, index: FileIndex) {
        if let Some(handle) = self.work.any_handle(index) {
            handle.closing = false;
        }
        if self.work.is_ending {
            let todo = self.work.abandon(index);
            self.work.push(todo);
        }
    }

    /// Releases a file that no client can use.
    fn release(&mut self, opened: Opened, descriptor: Descriptor) -> DriverTask {
        let index = self.work.files.insert(opened.file, descriptor);
        self.work.abandon(index)
    }

    fn opened(&mut self, call: &UnansweredCall, opened: Opened, descriptor: Descriptor) -> DriverTask {
        if self.work.is_ending {
            return self.release(opened, descriptor);
        }
        if call.is_deferred {
            // A deferred answer cannot carry a handle to the client, so the client is asked to open
            // the file again immediately.
            self.out.count(CountedEvent::Wait);
            self.out.count(CountedEvent::LateSuccess);
            deferred(self.out.link(call.link), |out| wait::wait(out, call.streamid, 0, ""));
            return self.release(opened, descriptor);
        }
        let CallKind::Open { compress, stat } = call.kind else {
            encode(call, mismatched_answer(), self.out);
            return self.release(opened, descriptor);
        };
        let index = self.work.files.insert(opened.file, descriptor);
        let detail = match &opened.stat {
            Some(status) if stat => OpenDetail::Stat(stat_text(status)),
            _ if compress => OpenDetail::Compression,
            _ => OpenDetail::None,
        };
        let reply = OpenReply { fhandle: to_wire(index), detail };
        frame(self.out.link(call.link), call.streamid, Status::OK, &reply);
        DriverTask::Nothing
    }

    /// Sends a page of a directory. The last entry of each page is held back, because only the last
    /// page shows how the whole text ends.
    fn listed(
        &mut self,
        id: CallId,
        entries: &DirectoryEntries,
        rest: Option<Box<dyn ListingPosition>>,
    ) -> DriverTask {
        let is_ending = self.work.is_ending;
        let Some(call) = self.work.call_mut(id) else { return DriverTask::Nothing };
        let (streamid, link) = (call.streamid, call.link);
        let CallKind::List { detail, held, started } = &mut call.kind else {
            return self.answered(id, mismatched_answer());
        };
        if !*started && detail.stat {
            held.extend_from_slice(dirlist::STAT_PREFIX);
        }
        *started = true;
        let rest = rest.filter(|_| !is_ending);
        let out = self.out.link(link);
        let written = entries.written(|entries| written(entries, detail.stat));
        let mut left = written.text.as_slice();
        if !left.is_empty() {
            let last = rest.is_some().then_some(&written.last);
            let mut from = 0;
            for &cut in written.cuts.iter().chain(last) {
                let (piece, behind) = left.split_at_checked(cut.saturating_sub(from)).unwrap_or_default();
                list_frame(out, streamid, Status::OKSOFAR, held, piece);
                held.clear();
                (left, from) = (behind, cut);
            }
            held.extend_from_slice(left);
        }
        match rest {
            Some(rest) => DriverTask::Call(id, Operation::ListMore(rest)),
            None => {
                dirlist::finish(held, 0);
                list_frame(out, streamid, Status::OK, held, &[]);
                self.work.finish_call(id);
                DriverTask::Nothing
            }
        }
    }
}

/// Appends a frame of a listing. An empty frame is omitted unless it is the last one.
fn list_frame(out: &mut Vec<u8>, streamid: StreamId, status: Status, held: &[u8], text: &[u8]) {
    if held.is_empty() && text.is_empty() && status == Status::OKSOFAR {
        return;
    }
    frame_with(out, streamid, status, |out| {
        out.extend_from_slice(held);
        out.extend_from_slice(text);
    });
}

/// Encodes entries as text, cut into frames slightly larger than [`LIST_FRAME_BYTES`].
fn written(entries: &[DirectoryEntry], with_stat: bool) -> EncodedEntries {
    let mut written = EncodedEntries::default();
    let mut from = 0;
    for entry in entries {
        let at = written.text.len();
        if !append(&mut written.text, entry, with_stat) {
            continue;
        }
        written.last = at;
        if at - from >= LIST_FRAME_BYTES {
            written.cuts.push(at);
            from = at;
        }
    }
    // The text may be kept for other clients.
    written.text.shrink_to_fit();
    written
}

/// The text of the error after a command that was an open. XRootD sends this code whatever happened.
const PATH_COMMAND_DONE: &str = "the file was removed from the cache; resource temporarily unavailable";

/// Returns the error for an answer that does not match its call.
fn mismatched_answer() -> Answer {
    Answer::error(
        ErrorKind::ServerError,
        "internal error: the file system returned an answer of the wrong type",
    )
}

/// Encodes a reply, inside a kXR_attn frame if the client was notified of a deferred answer.
fn encode(call: &UnansweredCall, answer: Answer, out: &mut dyn ReplyOutputs) {
    match &answer {
        Answer::Value(_) if call.is_deferred => out.count(CountedEvent::LateSuccess),
        Answer::Value(_) => {}
        Answer::Error(error) => {
            out.count(CountedEvent::Error(crate::wire_code(error.kind)));
            if call.is_deferred {
                out.count(CountedEvent::LateError);
            }
        }
        Answer::Wait { .. } => out.count(CountedEvent::Wait),
        Answer::Redirect(_) => out.count(CountedEvent::Redirect),
    }
    let out = out.link(call.link);
    if call.is_deferred {
        deferred(out, |out| encode_reply(out, call.streamid, &call.kind, answer));
    } else {
        encode_reply(out, call.streamid, &call.kind, answer);
    }
}

/// Appends an entry. Returns `false` if the entry cannot be encoded, or if its status was requested
/// and the file no longer exists.
fn append(text: &mut Vec<u8>, entry: &DirectoryEntry, with_stat: bool) -> bool {
    if !with_stat {
        return dirlist::entry(text, &entry.name);
    }
    let Some(stat) = &entry.stat else { return false };
    let checksum = entry.checksum.as_ref().map(|(kind, value)| ListedChecksum {
        kind: kind.as_bytes(),
        value: value.as_deref().map(str::as_bytes),
    });
    dirlist::entry_with_stat(text, &entry.name, &stat_text(stat), checksum.as_ref())
}

fn encode_reply(out: &mut Vec<u8>, id: StreamId, kind: &CallKind, answer: Answer) {
    match answer {
        Answer::Value(value) => encode_value(out, id, kind, &value),
        Answer::Error(error) => replies::fail(out, id, &error),
        Answer::Wait { seconds, text } => {
            wait::wait(out, id, i32::try_from(seconds).unwrap_or(i32::MAX), &text)
        }
        Answer::Redirect(to) => replies::redirect(out, id, &to),
    }
}

fn encode_value(out: &mut Vec<u8>, id: StreamId, kind: &CallKind, value: &Value) {
    if let (CallKind::TextWithNul, Value::Text(text)) = (kind, value) {
        return replies::ok_text(out, id, text);
    }
    frame_with(out, id, Status::OK, |out| match value {
        Value::Text(text) => out.extend_from_slice(text),
        Value::Stat(stat) => {
            stat_text(stat).encode(out);
            out.push(0);
        }
        Value::BriefStats(stats) => {
            out.extend(stats.iter().map(|stat| small::statx_byte(replies::brief_flags(*stat))))
        }
        Value::Space(space) => {
            replies::space_text(space).encode(out);
            out.push(0);
        }
        Value::Attributes(results) => encode_attributes(out, kind, results),
        Value::Checksum { algorithm, hex } => {
            query::ChecksumText { kind: algorithm.as_bytes(), value: hex.as_bytes() }.encode(out);
        }
        Value::CheckpointSize { max, used } => {
            small::ChkpointSizes { max_bytes: *max, used_bytes: *used }.encode(out)
        }
        Value::Nothing
        | Value::Opened(_)
        | Value::Listing { .. }
        | Value::Data { .. }
        | Value::Written { .. }
        // Only front ends of HTTP ask for these.
        | Value::TapeState(_)
        | Value::Localities(_)
        | Value::Macaroon(_) => {}
    });
}

fn encode_attributes(out: &mut Vec<u8>, kind: &CallKind, results: &[AttributeOutcome]) {
    let CallKind::Attributes { subcode, values, .. } = kind else { return };
    if *subcode == FattrSubcode::LIST {
        for result in results {
            let value = values.then_some(&*result.value);
            fattr::ListedAttribute { name: &result.name, value }.encode(out);
        }
        return;
    }
    let results: Vec<_> = results
        .iter()
        .map(|result| fattr::AttributeResult {
            error: result.error.map(crate::wire_code),
            name: &result.name,
            value: &result.value,
        })
        .collect();
    if *subcode == FattrSubcode::GET {
        fattr::encode_values(out, &results);
    } else {
        fattr::encode_results(out, &results);
    }
}
