//! Requests on an open file: reads, writes, truncate, stat, clone and checkpoints.
//!
//! Requests on a path are in `paths`, the order of the operations is in `ordering`.

use crate::call::{CallKind, UnansweredCall};
use crate::files::from_wire;
use crate::ids::{CallId, FileIndex, PathId};
use crate::sequencer::{Access, FileAccesses};
use crate::state::{ReplyOutputs, Session};
use crate::step::{
    BadPage, Destination, DriverTask, PayloadAnnouncement, ReadElement, ReadTask, ReadVectorTask,
    ReceiveResult, WriteExtent,
};
use crate::target::{Verb, target};
use base::{CopyRange, Error, ErrorKind, Extent};
use std::sync::Arc;
use vfs::{CheckpointWork, CloneRange, FileOperation, OpenFile, Operation};
use wire::xroot::codes::{ChkpointOpcode, ErrorCode, RequestCode};
use wire::xroot::flags::{PageFlags, StatOptions, WritevOptions};
use wire::xroot::header::{FileHandle, RequestHeader, StreamId};
use wire::xroot::limits::{
    CLONE_ITEMS_MAX, FILE_BAD_PAGES_MAX, PAGE_BYTES, PAGE_CHECKSUM_BYTES, PGWRITE_BAD_PAGES_MAX,
    READV_SEGMENT_BYTES_MAX, READV_SEGMENTS_MAX, READV_TOTAL_BYTES_MAX, WRITEV_SEGMENTS_MAX,
};
use wire::xroot::request::{
    Chkpoint, CloneRanges, Pgread, Pgwrite, Read, Readv, Request, Stat, Truncate, Write, Writev,
};

impl Session {
    pub(crate) fn open_file(&self, handle: FileHandle) -> Option<(FileIndex, &Arc<dyn OpenFile>)> {
        let index = from_wire(handle);
        self.handle(index).map(|found| (index, &found.file))
    }

    /// Refuses a request whose handle does not name an open file.
    pub(crate) fn not_open(&mut self, id: StreamId, request: &str, out: &mut dyn ReplyOutputs) -> DriverTask {
        let text = format!("{request} does not refer to an open file");
        self.refuse(id, PathId::CONTROL, ErrorCode::FILE_NOT_OPEN, &text, out)
    }

    /// Reports whether a path id names a connection of this session.
    fn is_path(&self, path: PathId) -> bool {
        path == PathId::CONTROL || self.is_bound(path)
    }

    fn bad_path(&mut self, id: StreamId, out: &mut dyn ReplyOutputs) -> DriverTask {
        self.refuse(id, PathId::CONTROL, ErrorCode::ARG_INVALID, "invalid path ID", out)
    }

    /// Starts an operation that is answered by its value alone.
    pub(crate) fn on_file(
        &mut self,
        id: StreamId,
        handle: FileHandle,
        request: &str,
        (access, operation): (Access, FileOperation),
        out: &mut dyn ReplyOutputs,
    ) -> DriverTask {
        let Some((index, file)) = self.open_file(handle) else { return self.not_open(id, request, out) };
        let file = file.clone();
        self.start_on_file(id, CallKind::OnFile, (index, access), (file, operation))
    }

    pub(crate) fn read(&mut self, id: StreamId, m: &Read<'_>, out: &mut dyn ReplyOutputs) -> DriverTask {
        let hints = m.preread();
        let Some((index, file)) = self.open_file(m.fhandle) else { return self.not_open(id, "read", out) };
        let Ok(length) = usize::try_from(m.rlen) else {
            return self.refuse(id, PathId::CONTROL, ErrorCode::ARG_INVALID, "Read length is negative", out);
        };
        // An empty read sends no data, so its path id is not checked.
        let path = if length == 0 { PathId::CONTROL } else { PathId(m.pathid()) };
        if !self.is_path(path) {
            return self.bad_path(id, out);
        }
        let Some(offset) = offset_of(m.offset, length) else {
            let text = format!("Unable to read {}; invalid argument", file.path().text());
            return self.refuse(id, path, ErrorCode::ARG_INVALID, &text, out);
        };
        let task =
            ReadTask { streamid: id, link: path, file: index, offset, length, paged: false, sequence: None };
        if hints.is_empty() {
            return self.submit_read(task);
        }
        let hints = hints.iter().take(READV_SEGMENTS_MAX).filter_map(|hint| {
            let (_, file) = self.open_file(hint.fhandle)?;
            Some((file.clone(), u64::try_from(hint.offset).ok()?, u64::try_from(hint.length).ok()?))
        });
        let hints = hints.collect();
        self.submit_read_with_hints(task, hints)
    }

    pub(crate) fn page_read(&mut self, id: StreamId, m: &Pgread, out: &mut dyn ReplyOutputs) -> DriverTask {
        // The length is checked first, even if the handle is not open.
        let length = usize::try_from(m.rlen).unwrap_or(0);
        if length == 0 {
            return self.refuse(id, PathId::CONTROL, ErrorCode::ARG_INVALID, "Read length is invalid", out);
        }
        let Some((index, file)) = self.open_file(m.fhandle) else { return self.not_open(id, "pgread", out) };
        let path = PathId(m.pathid());
        if !self.is_path(path) {
            return self.bad_path(id, out);
        }
        let Ok(offset) = u64::try_from(m.offset) else {
            let text = format!("Unable to read {}; invalid argument", file.path().text());
            return self.refuse(id, path, ErrorCode::ARG_INVALID, &text, out);
        };
        let task =
            ReadTask { streamid: id, link: path, file: index, offset, length, paged: true, sequence: None };
        self.submit_read(task)
    }

    pub(crate) fn read_vector(
        &mut self,
        id: StreamId,
        m: &Readv<'_>,
        out: &mut dyn ReplyOutputs,
    ) -> DriverTask {
        let mut refuse = |code, text: &str| self.refuse(id, PathId::CONTROL, code, text, out);
        if m.segments.is_empty() || !m.segments.is_whole() {
            return refuse(ErrorCode::ARG_INVALID, "Read vector is invalid");
        }
        if m.segments.len() > READV_SEGMENTS_MAX {
            return refuse(ErrorCode::ARG_TOO_LONG, "Read vector is too long");
        }
        let mut total = 0usize;
        for segment in m.segments.iter() {
            match usize::try_from(segment.length) {
                Err(_) => return refuse(ErrorCode::ARG_INVALID, "Readv length is negative"),
                Ok(length) if length > READV_SEGMENT_BYTES_MAX => {
                    return refuse(ErrorCode::NO_MEMORY, "Single readv transfer is too large");
                }
                Ok(length) => total = total.saturating_add(length),
            }
        }
        if total > READV_TOTAL_BYTES_MAX {
            return refuse(ErrorCode::NO_MEMORY, "Total readv transfer is too large");
        }
        let mut elements = Vec::with_capacity(m.segments.len());
        for segment in m.segments.iter() {
            let Some((file, open)) = self.open_file(segment.fhandle) else {
                return self.not_open(id, "readv", out);
            };
            let (Ok(offset), Ok(length)) = (u64::try_from(segment.offset), usize::try_from(segment.length))
            else {
                let text = format!("Unable to readv {}; invalid argument", open.path().text());
                return self.refuse(id, PathId::CONTROL, ErrorCode::ARG_INVALID, &text, out);
            };
            elements.push(ReadElement { file, extent: Extent { offset, length } });
        }
        self.submit_vector_read(ReadVectorTask { streamid: id, elements, sequence: None })
    }

    pub(crate) fn write(
        &mut self,
        id: StreamId,
        m: &Write,
        checkpoint: bool,
        out: &mut dyn ReplyOutputs,
    ) -> DriverTask {
        let length = usize::try_from(m.dlen).unwrap_or(0);
        // An empty write carries no data, so its path id is not checked.
        let link = if length == 0 { PathId::CONTROL } else { PathId(m.pathid) };
        let Some((index, file)) = self.open_file(m.fhandle) else {
            let error = Error::new(ErrorKind::FileNotOpen, "write does not refer to an open file");
            // No data can arrive on a connection that does not exist.
            let (from, length) = if self.is_path(link) { (link, length) } else { (PathId::CONTROL, 0) };
            return self.discard(id, PathId::CONTROL, (from, length), error);
        };
        let file = file.clone();
        if !self.is_path(link) {
            return self.bad_path(id, out);
        }
        let Some(offset) = offset_of(m.offset, length) else {
            let text = format!("Unable to write {}; invalid argument", file.path().text());
            return self.discard(id, link, (link, length), Error::new(ErrorKind::ArgInvalid, text));
        };
        let call = self.call(id, link, CallKind::Write);
        let held = self.submit_write(call, FileAccesses::one(index, Access::write(offset, length as u64)));
        let into = Destination::File { file, offset };
        DriverTask::Receive(PayloadAnnouncement { call, link, length, into, checkpoint, held })
    }

    /// Registers a write whose data is announced. Returns `true` if it must wait for earlier
    /// operations.
    fn submit_write(&mut self, call: CallId, touches: FileAccesses) -> bool {
        matches!(self.submit(Some(call), touches, DriverTask::Proceed(call)), DriverTask::Nothing)
    }

    pub(crate) fn page_write(
        &mut self,
        id: StreamId,
        m: &Pgwrite,
        checkpoint: bool,
        out: &mut dyn ReplyOutputs,
    ) -> DriverTask {
        let length = usize::try_from(m.dlen).unwrap_or(0);
        if length <= PAGE_CHECKSUM_BYTES {
            self.refuse(id, PathId::CONTROL, ErrorCode::ARG_INVALID, "pgwrite length is invalid", out);
            return self.violated();
        }
        let link = PathId(m.pathid);
        if !self.is_path(link) {
            return self.bad_path(id, out);
        }
        let Some((index, file)) = self.open_file(m.fhandle) else {
            let error = Error::new(ErrorKind::FileNotOpen, "pgwrite does not refer to an open file");
            return self.discard(id, PathId::CONTROL, (link, length), error);
        };
        let refuse = |session: &mut Self, kind, text: String| {
            session.discard(id, link, (link, length), Error::new(kind, text))
        };
        let file = file.clone();
        let Ok(offset) = u64::try_from(m.offset) else {
            let text = format!("Unable to pgwrite {}; invalid argument", file.path().text());
            return refuse(self, ErrorKind::ArgInvalid, text);
        };
        let Some((pages, data)) = page_layout(offset, length) else {
            return refuse(self, ErrorKind::ArgInvalid, "pgwrite length is invalid".to_owned());
        };
        let retry = m.reqflags.contains(PageFlags::RETRY);
        if retry && pages > 1 {
            let text = "pgwrite retry of more than one page not allowed".to_owned();
            return refuse(self, ErrorKind::ArgInvalid, text);
        }
        let kind = CallKind::PageWrite {
            file: index,
            offset,
            length: u32::try_from(data).unwrap_or(u32::MAX),
            retry,
        };
        let call = self.call(id, link, kind);
        let held = self.submit_write(call, FileAccesses::one(index, Access::write(offset, data as u64)));
        let into = Destination::Pages { file, offset };
        DriverTask::Receive(PayloadAnnouncement { call, link, length, into, checkpoint, held })
    }

    pub(crate) fn vector_write(
        &mut self,
        id: StreamId,
        m: &Writev<'_>,
        checkpoint: bool,
        out: &mut dyn ReplyOutputs,
    ) -> DriverTask {
        // The end of the data cannot be computed from an invalid list, so an error in it ends the
        // session.
        let mut wrong = |session: &mut Self, code, text: &str| {
            session.refuse(id, PathId::CONTROL, code, text, out);
            session.violated()
        };
        if m.segments.is_empty() || !m.segments.is_whole() {
            return wrong(self, ErrorCode::ARG_INVALID, "Write vector is invalid");
        }
        if m.segments.len() > WRITEV_SEGMENTS_MAX {
            return wrong(self, ErrorCode::ARG_TOO_LONG, "Write vector is too long");
        }
        let mut extents = Vec::new();
        let mut files: Vec<FileIndex> = Vec::new();
        let mut touched = Vec::new();
        let mut total = 0usize;
        for segment in m.segments.iter() {
            let Ok(length) = usize::try_from(segment.length) else {
                return wrong(self, ErrorCode::ARG_INVALID, "Writev length is negative");
            };
            if length == 0 {
                continue;
            }
            let Some((index, file)) = self.open_file(segment.fhandle) else {
                return wrong(self, ErrorCode::FILE_NOT_OPEN, "writev does not refer to an open file");
            };
            let Ok(offset) = u64::try_from(segment.offset) else {
                let text = format!("Unable to writev {}; invalid argument", file.path().text());
                return wrong(self, ErrorCode::ARG_INVALID, &text);
            };
            total = total.saturating_add(length);
            extents.push(WriteExtent { file: file.clone(), extent: Extent { offset, length } });
            touched.push((index, Access::write(offset, length as u64)));
            if !files.contains(&index) {
                files.push(index);
            }
        }
        if checkpoint && files.len() > 1 {
            let text = "multi-file chkpoint writev not supported";
            let error = Error::new(ErrorKind::Unsupported, text);
            return self.discard(id, PathId::CONTROL, (PathId::CONTROL, total), error);
        }
        let sync = m.options.contains(WritevOptions::DO_SYNC);
        let call = self.call(id, PathId::CONTROL, CallKind::VectorWrite { files, sync });
        let held = self.submit_write(call, FileAccesses::many(touched));
        let into = Destination::Vector(extents);
        DriverTask::Receive(PayloadAnnouncement {
            call,
            link: PathId::CONTROL,
            length: total,
            into,
            checkpoint,
            held,
        })
    }

    pub(crate) fn truncate(
        &mut self,
        id: StreamId,
        m: &Truncate<'_>,
        checkpoint: bool,
        out: &mut dyn ReplyOutputs,
    ) -> DriverTask {
        if m.path.is_empty() {
            let Some((_, file)) = self.open_file(m.fhandle) else { return self.not_open(id, "trunc", out) };
            let Ok(size) = u64::try_from(m.offset) else {
                let text = format!("Unable to truncate {}; invalid argument", file.path().text());
                return self.refuse(id, PathId::CONTROL, ErrorCode::ARG_INVALID, &text, out);
            };
            let operation = FileOperation::Truncate { size, checkpoint };
            return self.on_file(id, m.fhandle, "trunc", (Access::Barrier, operation), out);
        }
        let place = match target(m.path, Verb::TRUNCATE) {
            Ok(place) => place,
            Err(error) => return self.fail(id, &error, out),
        };
        // A negative size is refused by the file system, after errors in the path.
        let size = m.offset.cast_unsigned();
        let call = self.call(id, PathId::CONTROL, CallKind::Plain);
        self.start_on_names(call, Operation::Truncate { target: place, size }, None)
    }

    pub(crate) fn stat(&mut self, id: StreamId, m: &Stat<'_>, out: &mut dyn ReplyOutputs) -> DriverTask {
        let space = m.options.contains(StatOptions::VFS);
        if m.path.is_empty() {
            if space {
                let text = "Required argument not present";
                return self.refuse(id, PathId::CONTROL, ErrorCode::ARG_MISSING, text, out);
            }
            return self.on_file(id, m.fhandle, "stat", (Access::READ_ALL, FileOperation::Stat), out);
        }
        match target(m.path, Verb::STAT) {
            Ok(place) => {
                let call = self.call(id, PathId::CONTROL, CallKind::Plain);
                let operation = if space { Operation::StatSpace(place) } else { Operation::Stat(place) };
                self.start_on_names(call, operation, None)
            }
            Err(error) => self.fail(id, &error, out),
        }
    }

    pub(crate) fn clone_ranges(
        &mut self,
        id: StreamId,
        m: &CloneRanges<'_>,
        out: &mut dyn ReplyOutputs,
    ) -> DriverTask {
        let mut refuse =
            |session: &mut Self, code, text: &str| session.refuse(id, PathId::CONTROL, code, text, out);
        if m.items.is_empty() || !m.items.is_whole() {
            return refuse(self, ErrorCode::ARG_INVALID, "Clone vector is invalid");
        }
        if m.items.len() > CLONE_ITEMS_MAX {
            return refuse(self, ErrorCode::ARG_TOO_LONG, "Clone vector is too long");
        }
        let Some((index, file)) = self.open_file(m.fhandle) else {
            return refuse(self, ErrorCode::FILE_NOT_OPEN, "clone does not refer to an open dest file");
        };
        let file = file.clone();
        let mut touched = vec![(index, Access::Barrier)];
        let mut ranges = Vec::with_capacity(m.items.len());
        for item in m.items.iter() {
            let Some((source_index, source)) = self.open_file(item.src_fhandle) else {
                return refuse(self, ErrorCode::FILE_NOT_OPEN, "clone does not refer to an open src file");
            };
            ranges.push(CloneRange {
                source: source.clone(),
                range: CopyRange { from: item.src_offset, to: item.dst_offset, length: item.src_length },
            });
            touched.push((source_index, Access::READ_ALL));
        }
        let call = self.call(id, PathId::CONTROL, CallKind::OnFile);
        let todo = DriverTask::FileCall(call, file, FileOperation::CloneFrom(ranges));
        self.submit(Some(call), FileAccesses::many(touched), todo)
    }

    pub(crate) fn checkpoint(
        &mut self,
        id: StreamId,
        m: &Chkpoint,
        extra: &[u8],
        out: &mut dyn ReplyOutputs,
    ) -> DriverTask {
        if self.open_file(m.fhandle).is_none() {
            self.not_open(id, "chkpoint", out);
            // The end of the data of an unknown embedded request cannot be found.
            let has_data = m.embedded.as_ref().is_some_and(|embedded| embedded.dlen != 0);
            return if has_data { self.violated() } else { DriverTask::Nothing };
        }
        let work = match m.opcode {
            ChkpointOpcode::BEGIN => CheckpointWork::Begin,
            ChkpointOpcode::COMMIT => CheckpointWork::Commit,
            ChkpointOpcode::QUERY => CheckpointWork::Query,
            ChkpointOpcode::ROLLBACK => CheckpointWork::RollBack,
            ChkpointOpcode::XEQ => {
                return match &m.embedded {
                    Some(embedded) => self.execute(id, embedded, extra, out),
                    None => {
                        let text = "chkpoint request is incomplete";
                        self.refuse(id, PathId::CONTROL, ErrorCode::ARG_INVALID, text, out)
                    }
                };
            }
            _ => {
                let text = "chkpoint subcode is invalid";
                return self.refuse(id, PathId::CONTROL, ErrorCode::ARG_INVALID, text, out);
            }
        };
        let access = if work == CheckpointWork::Query { Access::READ_ALL } else { Access::Barrier };
        self.on_file(id, m.fhandle, "chkpoint", (access, FileOperation::Checkpoint(work)), out)
    }

    /// Executes a request under a checkpoint.
    fn execute(
        &mut self,
        id: StreamId,
        header: &RequestHeader,
        list: &[u8],
        out: &mut dyn ReplyOutputs,
    ) -> DriverTask {
        let mut wrong = |session: &mut Self, text: &str| {
            session.refuse(id, PathId::CONTROL, ErrorCode::ARG_INVALID, text, out);
            session.violated()
        };
        if header.streamid != id {
            return wrong(self, "Request streamid mismatch");
        }
        if header.dlen < 0 {
            return wrong(self, "Invalid request data length");
        }
        let allowed = [RequestCode::WRITE, RequestCode::PGWRITE, RequestCode::WRITEV, RequestCode::TRUNCATE];
        let by_path = header.code == RequestCode::TRUNCATE && header.dlen != 0;
        if !allowed.contains(&header.code) || by_path {
            let length = usize::try_from(header.dlen).unwrap_or(0);
            let error = Error::new(ErrorKind::Unsupported, "chkpoint request is not supported");
            return self.discard(id, PathId::CONTROL, (PathId::CONTROL, length), error);
        }
        match Request::decode(header, list) {
            Ok(Request::Write(m)) => self.write(id, &m, true, out),
            Ok(Request::Pgwrite(m)) => self.page_write(id, &m, true, out),
            Ok(Request::Writev(m)) => self.vector_write(id, &m, true, out),
            Ok(Request::Truncate(m)) => self.truncate(id, &m, true, out),
            _ => wrong(self, "Invalid request code"),
        }
    }

    /// Reports that all data of an announcement has arrived and was written or discarded.
    pub fn received(
        &mut self,
        id: CallId,
        received: ReceiveResult,
        out: &mut dyn ReplyOutputs,
    ) -> DriverTask {
        let Some(call) = self.finish_call(id) else { return DriverTask::Nothing };
        if received.error.is_some() && self.is_ending() {
            self.mark_incomplete(call.sequence);
        }
        let sequence = call.sequence;
        let todo = match call.kind {
            CallKind::Refused(error) => {
                self.refuse(call.streamid, call.link, crate::wire_code(error.kind), &error.text, out)
            }
            CallKind::Write => self.written(call.streamid, call.link, received.error, out),
            CallKind::PageWrite { file, offset, length, retry } => {
                let request =
                    PageRequest { streamid: call.streamid, link: call.link, file, offset, length, retry };
                self.pages_written(&request, received, out)
            }
            CallKind::VectorWrite { ref files, sync } => {
                if sync && received.error.is_none() && !files.is_empty() {
                    return self.sync_next(&call, files.clone());
                }
                self.written(call.streamid, call.link, received.error, out)
            }
            _ => DriverTask::Nothing,
        };
        self.end_operation(sequence);
        todo
    }

    fn written(
        &mut self,
        id: StreamId,
        link: PathId,
        error: Option<Error>,
        out: &mut dyn ReplyOutputs,
    ) -> DriverTask {
        match error {
            Some(error) => self.refuse(id, link, crate::wire_code(error.kind), &error.text, out),
            None => {
                crate::replies::ok(out.link(link), id, &[]);
                DriverTask::Nothing
            }
        }
    }

    /// Syncs the last of these files. The others follow with its answer.
    pub(crate) fn sync_next(&mut self, write: &UnansweredCall, files: Vec<FileIndex>) -> DriverTask {
        let file = files.last().and_then(|&index| self.file(index)).cloned();
        let call = self.call(write.streamid, PathId::CONTROL, CallKind::VectorWrite { files, sync: true });
        if let Some(next) = self.call_mut(call) {
            next.is_deferred = write.is_deferred;
            next.sequence = write.sequence;
        }
        match file {
            Some(file) => DriverTask::FileCall(call, file, FileOperation::Sync),
            None => DriverTask::Nothing,
        }
    }

    /// Records pages with wrong checksums, and replies.
    fn pages_written(
        &mut self,
        request: &PageRequest,
        received: ReceiveResult,
        out: &mut dyn ReplyOutputs,
    ) -> DriverTask {
        let (id, link) = (request.streamid, request.link);
        if let Some(error) = received.error {
            return self.written(id, link, Some(error), out);
        }
        let Some(handle) = self.any_handle(request.file) else { return DriverTask::Nothing };
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
            return self.refuse(id, link, ErrorCode::TOO_MANY_ERRS, text, out);
        }
        crate::replies::pages_written(out.link(link), id, request.offset, &received.bad_pages);
        DriverTask::Nothing
    }
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

/// Returns the offset of a transfer of `length` bytes, or `None` if it is negative. The offset of
/// an empty transfer is not checked.
fn offset_of(offset: i64, length: usize) -> Option<u64> {
    u64::try_from(offset).ok().or((length == 0).then_some(0))
}

/// Returns the number of pages and of data bytes in `length` bytes of pages with checksums from
/// `offset` on. Returns `None` if the last page would have a checksum and no data.
fn page_layout(offset: u64, length: usize) -> Option<(usize, usize)> {
    let within = usize::try_from(offset % PAGE_BYTES as u64).ok()?;
    let first = PAGE_BYTES - within + PAGE_CHECKSUM_BYTES;
    if length <= first {
        return (length > PAGE_CHECKSUM_BYTES).then(|| (1, length - PAGE_CHECKSUM_BYTES));
    }
    let rest = length - first;
    let whole = PAGE_BYTES + PAGE_CHECKSUM_BYTES;
    let tail = rest % whole;
    if tail != 0 && tail <= PAGE_CHECKSUM_BYTES {
        return None;
    }
    let pages = 1 + rest.div_ceil(whole);
    Some((pages, length - pages * PAGE_CHECKSUM_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted_from_the_offset_in_the_file() {
        assert_eq!(page_layout(0, 4100), Some((1, 4096)));
        assert_eq!(page_layout(0, 4101), None);
        assert_eq!(page_layout(0, 4105), Some((2, 4097)));
        assert_eq!(page_layout(100, 4000), Some((1, 3996)));
        assert_eq!(page_layout(100, 9936), Some((3, 9924)));
        assert_eq!(page_layout(8192, 1812), Some((1, 1808)));
        assert_eq!(page_layout(0, 4), None);
    }
}
