//! Requests on an open file.

use crate::files::{Closing, from_wire};
use crate::machine::{CallKind, Outlets, Session};
use crate::step::{
    BadPage, CallId, Destination, Extent, FileIndex, LinkId, ReadElement, ReadTask, ReadVectorTask, Receive,
    Received, Todo,
};
use crate::target::{Verb, target};
use base::{Error, ErrorKind};
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
    fn open_file(&self, handle: FileHandle) -> Option<(FileIndex, &Arc<dyn OpenFile>)> {
        let index = from_wire(handle);
        self.handle(index).map(|found| (index, &found.file))
    }

    /// The handle names nothing that is open.
    pub(crate) fn not_open(&mut self, id: StreamId, request: &str, out: &mut dyn Outlets) -> Todo {
        let text = format!("{request} does not refer to an open file");
        self.refuse(id, LinkId::CONTROL, ErrorCode::FILE_NOT_OPEN, &text, out)
    }

    fn is_path(&self, path: u8) -> bool {
        self.is_bound(LinkId(path))
    }

    fn bad_path(&mut self, id: StreamId, out: &mut dyn Outlets) -> Todo {
        self.refuse(id, LinkId::CONTROL, ErrorCode::ARG_INVALID, "invalid path ID", out)
    }

    /// An operation that answers with its value alone.
    pub(crate) fn on_file(
        &mut self,
        id: StreamId,
        handle: FileHandle,
        request: &str,
        operation: FileOperation,
        out: &mut dyn Outlets,
    ) -> Todo {
        let Some((index, file)) = self.open_file(handle) else { return self.not_open(id, request, out) };
        let file = file.clone();
        self.begin(index);
        let call = self.call(id, LinkId::CONTROL, CallKind::OnFile(index));
        Todo::FileCall(call, file, operation)
    }

    pub(crate) fn close(&mut self, id: StreamId, handle: FileHandle, out: &mut dyn Outlets) -> Todo {
        let Some((index, _)) = self.open_file(handle) else { return self.not_open(id, "close", out) };
        let call = self.call(id, LinkId::CONTROL, CallKind::Close(index));
        if let Some(found) = self.any_handle(index) {
            found.closing = Some(Closing::Asked(call));
            if found.busy == 0 {
                self.start_close(index);
            } else {
                found.file.interrupt();
            }
        }
        Todo::Nothing
    }

    pub(crate) fn read(&mut self, id: StreamId, m: &Read<'_>, out: &mut dyn Outlets) -> Todo {
        let path = m.pathid();
        if path != 0 && !self.is_path(path) {
            return self.bad_path(id, out);
        }
        let hints = m.preread();
        let Some((index, file)) = self.open_file(m.fhandle) else { return self.not_open(id, "read", out) };
        let Ok(length) = usize::try_from(m.rlen) else {
            return self.refuse(id, LinkId::CONTROL, ErrorCode::ARG_INVALID, "Read length is negative", out);
        };
        let Ok(offset) = u64::try_from(m.offset) else {
            let text = format!("Unable to read {}; invalid argument", file.path());
            return self.refuse(id, LinkId::CONTROL, ErrorCode::ARG_INVALID, &text, out);
        };
        let task = ReadTask { streamid: id, link: LinkId(path), file: index, offset, length, paged: false };
        if hints.is_empty() {
            return Todo::Read(task);
        }
        let hints = hints.iter().take(READV_SEGMENTS_MAX).filter_map(|hint| {
            let (_, file) = self.open_file(hint.fhandle)?;
            Some((file.clone(), u64::try_from(hint.offset).ok()?, u64::try_from(hint.length).ok()?))
        });
        Todo::ReadWithHints(task, hints.collect())
    }

    pub(crate) fn page_read(&mut self, id: StreamId, m: &Pgread, out: &mut dyn Outlets) -> Todo {
        let path = m.pathid();
        if path != 0 && !self.is_path(path) {
            return self.bad_path(id, out);
        }
        let Some((index, file)) = self.open_file(m.fhandle) else { return self.not_open(id, "pgread", out) };
        let length = usize::try_from(m.rlen).unwrap_or(0);
        if length == 0 {
            return self.refuse(id, LinkId::CONTROL, ErrorCode::ARG_INVALID, "Read length is invalid", out);
        }
        let Ok(offset) = u64::try_from(m.offset) else {
            let text = format!("Unable to pgread {}; invalid argument", file.path());
            return self.refuse(id, LinkId::CONTROL, ErrorCode::ARG_INVALID, &text, out);
        };
        Todo::Read(ReadTask { streamid: id, link: LinkId(path), file: index, offset, length, paged: true })
    }

    pub(crate) fn read_vector(&mut self, id: StreamId, m: &Readv<'_>, out: &mut dyn Outlets) -> Todo {
        let mut refuse = |code, text: &str| self.refuse(id, LinkId::CONTROL, code, text, out);
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
                let text = format!("Unable to readv {}; invalid argument", open.path());
                return self.refuse(id, LinkId::CONTROL, ErrorCode::ARG_INVALID, &text, out);
            };
            elements.push(ReadElement { file, offset, length });
        }
        Todo::ReadVector(ReadVectorTask { streamid: id, elements })
    }

    pub(crate) fn write(&mut self, id: StreamId, m: &Write, checkpoint: bool, out: &mut dyn Outlets) -> Todo {
        let length = usize::try_from(m.dlen).unwrap_or(0);
        if m.pathid != 0 && !self.is_path(m.pathid) {
            return self.bad_path(id, out);
        }
        let link = LinkId(m.pathid);
        let Some((index, file)) = self.open_file(m.fhandle) else {
            let error = Error::new(ErrorKind::FileNotOpen, "write does not refer to an open file");
            return self.discard(id, link, length, error);
        };
        let file = file.clone();
        let Ok(offset) = u64::try_from(m.offset) else {
            let text = format!("Unable to write {}; invalid argument", file.path());
            return self.discard(id, link, length, Error::new(ErrorKind::ArgInvalid, text));
        };
        self.begin(index);
        let call = self.call(id, link, CallKind::Write(index));
        Todo::Receive(Receive { call, link, length, into: Destination::File { file, offset }, checkpoint })
    }

    pub(crate) fn page_write(
        &mut self,
        id: StreamId,
        m: &Pgwrite,
        checkpoint: bool,
        out: &mut dyn Outlets,
    ) -> Todo {
        let length = usize::try_from(m.dlen).unwrap_or(0);
        if length <= PAGE_CHECKSUM_BYTES {
            self.refuse(id, LinkId::CONTROL, ErrorCode::ARG_INVALID, "pgwrite length is invalid", out);
            return self.violated();
        }
        if m.pathid != 0 && !self.is_path(m.pathid) {
            return self.bad_path(id, out);
        }
        let link = LinkId(m.pathid);
        let refuse = |session: &mut Self, kind, text: String| {
            session.discard(id, link, length, Error::new(kind, text))
        };
        let Some((index, file)) = self.open_file(m.fhandle) else {
            let text = "pgwrite does not refer to an open file".to_owned();
            return refuse(self, ErrorKind::FileNotOpen, text);
        };
        let file = file.clone();
        let Ok(offset) = u64::try_from(m.offset) else {
            let text = format!("Unable to pgwrite {}; invalid argument", file.path());
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
        self.begin(index);
        let kind = CallKind::PageWrite {
            file: index,
            offset,
            length: u32::try_from(data).unwrap_or(u32::MAX),
            retry,
        };
        let call = self.call(id, link, kind);
        Todo::Receive(Receive { call, link, length, into: Destination::Pages { file, offset }, checkpoint })
    }

    pub(crate) fn vector_write(
        &mut self,
        id: StreamId,
        m: &Writev<'_>,
        checkpoint: bool,
        out: &mut dyn Outlets,
    ) -> Todo {
        // Where the data ends cannot be told from a list that makes no sense, so what is wrong ends the session.
        let mut wrong = |session: &mut Self, code, text: &str| {
            session.refuse(id, LinkId::CONTROL, code, text, out);
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
        let mut total = 0usize;
        for segment in m.segments.iter() {
            let Ok(length) = usize::try_from(segment.length) else {
                return wrong(self, ErrorCode::ARG_INVALID, "Writev length is negative");
            };
            let Some((index, file)) = self.open_file(segment.fhandle) else {
                return wrong(self, ErrorCode::FILE_NOT_OPEN, "writev does not refer to an open file");
            };
            let Ok(offset) = u64::try_from(segment.offset) else {
                let text = format!("Unable to writev {}; invalid argument", file.path());
                return wrong(self, ErrorCode::ARG_INVALID, &text);
            };
            if length == 0 {
                continue;
            }
            total = total.saturating_add(length);
            extents.push(Extent { file: file.clone(), offset, length });
            if !files.contains(&index) {
                files.push(index);
            }
        }
        if checkpoint && files.len() > 1 {
            let text = "multi-file chkpoint writev not supported";
            let error = Error::new(ErrorKind::Unsupported, text);
            return self.discard(id, LinkId::CONTROL, total, error);
        }
        for &index in &files {
            self.begin(index);
        }
        let sync = m.options.contains(WritevOptions::DO_SYNC);
        let call = self.call(id, LinkId::CONTROL, CallKind::VectorWrite { files, sync });
        let into = Destination::Vector(extents);
        Todo::Receive(Receive { call, link: LinkId::CONTROL, length: total, into, checkpoint })
    }

    pub(crate) fn truncate(
        &mut self,
        id: StreamId,
        m: &Truncate<'_>,
        checkpoint: bool,
        out: &mut dyn Outlets,
    ) -> Todo {
        if m.path.is_empty() {
            let Some((_, file)) = self.open_file(m.fhandle) else { return self.not_open(id, "trunc", out) };
            let Ok(size) = u64::try_from(m.offset) else {
                let text = format!("Unable to truncate {}; invalid argument", file.path());
                return self.refuse(id, LinkId::CONTROL, ErrorCode::ARG_INVALID, &text, out);
            };
            return self.on_file(id, m.fhandle, "trunc", FileOperation::Truncate { size, checkpoint }, out);
        }
        let place = match target(m.path, Verb::TRUNCATE) {
            Ok(place) => place,
            Err(error) => return self.fail(id, &error, out),
        };
        let Ok(size) = u64::try_from(m.offset) else {
            let text = format!("Unable to trunc {}; invalid argument", place.path);
            return self.refuse(id, LinkId::CONTROL, ErrorCode::ARG_INVALID, &text, out);
        };
        let call = self.call(id, LinkId::CONTROL, CallKind::Plain);
        Todo::Call(call, Operation::Truncate { target: place, size })
    }

    pub(crate) fn stat(&mut self, id: StreamId, m: &Stat<'_>, out: &mut dyn Outlets) -> Todo {
        let space = m.options.contains(StatOptions::VFS);
        if m.path.is_empty() {
            if space {
                let text = "Required argument not present";
                return self.refuse(id, LinkId::CONTROL, ErrorCode::ARG_MISSING, text, out);
            }
            return self.on_file(id, m.fhandle, "stat", FileOperation::Stat, out);
        }
        match target(m.path, Verb::STAT) {
            Ok(place) => {
                let call = self.call(id, LinkId::CONTROL, CallKind::Plain);
                Todo::Call(call, if space { Operation::StatSpace(place) } else { Operation::Stat(place) })
            }
            Err(error) => self.fail(id, &error, out),
        }
    }

    pub(crate) fn clone_ranges(&mut self, id: StreamId, m: &CloneRanges<'_>, out: &mut dyn Outlets) -> Todo {
        let mut refuse =
            |session: &mut Self, code, text: &str| session.refuse(id, LinkId::CONTROL, code, text, out);
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
        let mut used = vec![index];
        let mut ranges = Vec::with_capacity(m.items.len());
        for item in m.items.iter() {
            let Some((source_index, source)) = self.open_file(item.src_fhandle) else {
                return refuse(self, ErrorCode::FILE_NOT_OPEN, "clone does not refer to an open src file");
            };
            ranges.push(CloneRange {
                source: source.clone(),
                source_offset: item.src_offset,
                length: item.src_length,
                offset: item.dst_offset,
            });
            if !used.contains(&source_index) {
                used.push(source_index);
            }
        }
        for &index in &used {
            self.begin(index);
        }
        let call = self.call(id, LinkId::CONTROL, CallKind::Clone(used));
        Todo::FileCall(call, file, FileOperation::CloneFrom(ranges))
    }

    pub(crate) fn checkpoint(
        &mut self,
        id: StreamId,
        m: &Chkpoint,
        extra: &[u8],
        out: &mut dyn Outlets,
    ) -> Todo {
        if self.open_file(m.fhandle).is_none() {
            self.not_open(id, "chkpoint", out);
            // Data behind an executed request cannot be found without understanding it.
            return if m.embedded.is_some() { self.violated() } else { Todo::Nothing };
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
                        self.refuse(id, LinkId::CONTROL, ErrorCode::ARG_INVALID, text, out)
                    }
                };
            }
            _ => {
                let text = "chkpoint subcode is invalid";
                return self.refuse(id, LinkId::CONTROL, ErrorCode::ARG_INVALID, text, out);
            }
        };
        self.on_file(id, m.fhandle, "chkpoint", FileOperation::Checkpoint(work), out)
    }

    /// A request under a checkpoint.
    fn execute(&mut self, id: StreamId, header: &RequestHeader, list: &[u8], out: &mut dyn Outlets) -> Todo {
        let mut wrong = |session: &mut Self, text: &str| {
            session.refuse(id, LinkId::CONTROL, ErrorCode::ARG_INVALID, text, out);
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
            return self.discard(id, LinkId::CONTROL, length, error);
        }
        match Request::decode(header, list) {
            Ok(Request::Write(m)) => self.write(id, &m, true, out),
            Ok(Request::Pgwrite(m)) => self.page_write(id, &m, true, out),
            Ok(Request::Writev(m)) => self.vector_write(id, &m, true, out),
            Ok(Request::Truncate(m)) => self.truncate(id, &m, true, out),
            _ => wrong(self, "Invalid request code"),
        }
    }

    /// All data of an announcement has come, and what was to be done with it is done.
    pub fn received(&mut self, id: CallId, received: Received, out: &mut dyn Outlets) -> Todo {
        let Some(call) = self.finish_call(id) else { return Todo::Nothing };
        match call.kind {
            CallKind::Refused(error) => {
                self.refuse(call.streamid, call.link, crate::wire_code(error.kind), &error.text, out)
            }
            CallKind::Passed => Todo::Nothing,
            CallKind::Write(index) => {
                self.ended(index);
                self.written(call.streamid, call.link, received.error, out)
            }
            CallKind::PageWrite { file, offset, length, retry } => {
                let request =
                    PageRequest { streamid: call.streamid, link: call.link, file, offset, length, retry };
                let todo = self.pages_written(&request, received, out);
                self.ended(file);
                todo
            }
            CallKind::VectorWrite { files, sync } => {
                if sync && received.error.is_none() && !files.is_empty() {
                    return self.sync_next(call.streamid, files, false);
                }
                for index in files {
                    self.ended(index);
                }
                self.written(call.streamid, call.link, received.error, out)
            }
            _ => Todo::Nothing,
        }
    }

    fn written(&mut self, id: StreamId, link: LinkId, error: Option<Error>, out: &mut dyn Outlets) -> Todo {
        match error {
            Some(error) => self.refuse(id, link, crate::wire_code(error.kind), &error.text, out),
            None => {
                crate::replies::ok(out.link(link), id, &[]);
                Todo::Nothing
            }
        }
    }

    /// Brings the last of these files to stable storage; the others follow with its answer.
    pub(crate) fn sync_next(&mut self, id: StreamId, files: Vec<FileIndex>, told_later: bool) -> Todo {
        let file = files.last().and_then(|&index| self.any_handle(index)).map(|handle| handle.file.clone());
        let call = self.call(id, LinkId::CONTROL, CallKind::VectorWrite { files, sync: true });
        if let Some(next) = self.call_mut(call) {
            next.told_later = told_later;
        }
        match file {
            Some(file) => Todo::FileCall(call, file, FileOperation::Sync),
            None => Todo::Nothing,
        }
    }

    /// Keeps account of pages with wrong checksums, and replies.
    fn pages_written(&mut self, request: &PageRequest, received: Received, out: &mut dyn Outlets) -> Todo {
        let (id, link) = (request.streamid, request.link);
        if let Some(error) = received.error {
            return self.written(id, link, Some(error), out);
        }
        let Some(handle) = self.any_handle(request.file) else { return Todo::Nothing };
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
        Todo::Nothing
    }
}

/// A kXR_pgwrite whose data has come.
struct PageRequest {
    streamid: StreamId,
    link: LinkId,
    file: FileIndex,
    offset: u64,
    length: u32,
    retry: bool,
}

/// Pages and bytes of data in `length` bytes of pages with checksums from `offset` on; `None` when the last page would
/// have a checksum and no data.
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
