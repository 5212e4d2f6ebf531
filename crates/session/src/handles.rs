//! Requests on an open file: reads, writes, truncate, stat, clone and checkpoints.
//!
//! Requests on a path are in `paths`, the order of the operations is in `ordering`.

use crate::call::CallKind;
use crate::ids::{CallId, FileIndex, PathId};
use crate::links::BoundLinks;
use crate::reply::Replier;
use crate::sequencer::{Access, FileAccesses};
use crate::step::{
    Destination, DriverTask, PayloadAnnouncement, ReadElement, ReadTask, ReadVectorTask, WriteExtent,
};
use crate::target::{Verb, target};
use crate::timing;
use crate::work::SessionWork;
use base::{CopyRange, Error, ErrorKind, Extent};
use vfs::{CheckpointWork, CloneRange, FileOperation, Operation};
use wire::xroot::codes::{ChkpointOpcode, ErrorCode, RequestCode};
use wire::xroot::flags::{PageFlags, StatOptions, WritevOptions};
use wire::xroot::header::{FileHandle, RequestHeader};
use wire::xroot::limits::{
    CLONE_ITEMS_MAX, PAGE_BYTES, PAGE_CHECKSUM_BYTES, READV_SEGMENT_BYTES_MAX, READV_SEGMENTS_MAX,
    READV_TOTAL_BYTES_MAX, WRITEV_SEGMENTS_MAX,
};
use wire::xroot::request::{
    Chkpoint, CloneRanges, Pgread, Pgwrite, Read, Readv, Request, Stat, Truncate, Write, Writev,
};

/// One request on an open file, or on a file that is named by a handle or by a path.
pub(crate) struct FileRequest<'a> {
    pub(crate) work: &'a mut SessionWork,
    pub(crate) links: BoundLinks,
    pub(crate) reply: Replier<'a>,
}

impl FileRequest<'_> {
    /// Refuses a request whose handle does not name an open file.
    pub(crate) fn not_open(&mut self, request: &str) -> DriverTask {
        let text = format!("{request} does not refer to an open file");
        self.reply.refuse(ErrorCode::FILE_NOT_OPEN, &text)
    }

    fn bad_path(&mut self) -> DriverTask {
        self.reply.refuse(ErrorCode::ARG_INVALID, "invalid path ID")
    }

    /// Registers the request as a call that is answered on the control connection.
    pub(crate) fn call(&mut self, kind: CallKind) -> CallId {
        self.work.call(self.reply.id, PathId::CONTROL, kind)
    }

    /// Announces data to discard. Then the error is sent on the connection `reply`.
    fn discard(&mut self, reply: PathId, data: (PathId, usize), error: Error) -> DriverTask {
        self.work.discard(self.reply.id, reply, data, error)
    }

    /// Starts an operation that is answered by its value alone.
    pub(crate) fn on_file(
        &mut self,
        handle: FileHandle,
        request: &str,
        (access, operation): (Access, FileOperation),
    ) -> DriverTask {
        let Some((index, file)) = self.work.open_file(handle) else { return self.not_open(request) };
        let file = file.clone();
        self.work.start_on_file(self.reply.id, CallKind::OnFile, (index, access), (file, operation))
    }

    pub(crate) fn read(&mut self, m: &Read<'_>) -> DriverTask {
        let hints = m.preread();
        let Some((index, file)) = self.work.open_file(m.fhandle) else { return self.not_open("read") };
        let Ok(length) = usize::try_from(m.rlen) else {
            return self.reply.refuse(ErrorCode::ARG_INVALID, "Read length is negative");
        };
        // An empty read sends no data, so its path id is not checked.
        let path = if length == 0 { PathId::CONTROL } else { PathId(m.pathid()) };
        if !self.links.has(path) {
            return self.bad_path();
        }
        let Some(offset) = offset_of(m.offset, length) else {
            let text = format!("Unable to read {}; invalid argument", file.path().text());
            return self.reply.refuse_on(path, ErrorCode::ARG_INVALID, &text);
        };
        let task = self.read_task(path, index, Extent { offset, length }, false);
        if hints.is_empty() {
            return self.work.submit_read(task);
        }
        let hints = hints.iter().take(READV_SEGMENTS_MAX).filter_map(|hint| {
            let (_, file) = self.work.open_file(hint.fhandle)?;
            Some((file.clone(), u64::try_from(hint.offset).ok()?, u64::try_from(hint.length).ok()?))
        });
        let hints = hints.collect();
        self.work.submit_read_with_hints(task, hints)
    }

    fn read_task(&self, link: PathId, file: FileIndex, extent: Extent, paged: bool) -> ReadTask {
        let Extent { offset, length } = extent;
        let timer = timing::take_arriving();
        ReadTask { streamid: self.reply.id, link, file, offset, length, paged, sequence: None, timer }
    }

    pub(crate) fn page_read(&mut self, m: &Pgread) -> DriverTask {
        // The length is checked first, even if the handle is not open.
        let length = usize::try_from(m.rlen).unwrap_or(0);
        if length == 0 {
            return self.reply.refuse(ErrorCode::ARG_INVALID, "Read length is invalid");
        }
        let Some((index, file)) = self.work.open_file(m.fhandle) else { return self.not_open("pgread") };
        let path = PathId(m.pathid());
        if !self.links.has(path) {
            return self.bad_path();
        }
        let Ok(offset) = u64::try_from(m.offset) else {
            let text = format!("Unable to read {}; invalid argument", file.path().text());
            return self.reply.refuse_on(path, ErrorCode::ARG_INVALID, &text);
        };
        let task = self.read_task(path, index, Extent { offset, length }, true);
        self.work.submit_read(task)
    }

    pub(crate) fn read_vector(&mut self, m: &Readv<'_>) -> DriverTask {
        let mut refuse = |code, text: &str| self.reply.refuse(code, text);
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
            let Some((file, open)) = self.work.open_file(segment.fhandle) else {
                return self.not_open("readv");
            };
            let (Ok(offset), Ok(length)) = (u64::try_from(segment.offset), usize::try_from(segment.length))
            else {
                let text = format!("Unable to readv {}; invalid argument", open.path().text());
                return self.reply.refuse(ErrorCode::ARG_INVALID, &text);
            };
            elements.push(ReadElement { file, extent: Extent { offset, length } });
        }
        let timer = timing::take_arriving();
        let task = ReadVectorTask { streamid: self.reply.id, elements, sequence: None, timer };
        self.work.submit_vector_read(task)
    }

    pub(crate) fn write(&mut self, m: &Write, checkpoint: bool) -> DriverTask {
        let length = usize::try_from(m.dlen).unwrap_or(0);
        // An empty write carries no data, so its path id is not checked.
        let link = if length == 0 { PathId::CONTROL } else { PathId(m.pathid) };
        let Some((index, file)) = self.work.open_file(m.fhandle) else {
            let error = Error::new(ErrorKind::FileNotOpen, "write does not refer to an open file");
            // No data can arrive on a connection that does not exist.
            let (from, length) = if self.links.has(link) { (link, length) } else { (PathId::CONTROL, 0) };
            return self.discard(PathId::CONTROL, (from, length), error);
        };
        let file = file.clone();
        if !self.links.has(link) {
            return self.bad_path();
        }
        let Some(offset) = offset_of(m.offset, length) else {
            let text = format!("Unable to write {}; invalid argument", file.path().text());
            return self.discard(link, (link, length), Error::new(ErrorKind::ArgInvalid, text));
        };
        let call = self.work.call(self.reply.id, link, CallKind::Write);
        let held = self.submit_write(call, FileAccesses::one(index, Access::write(offset, length as u64)));
        let into = Destination::File { file, offset };
        let signature = None;
        DriverTask::Receive(PayloadAnnouncement { call, link, length, into, checkpoint, held, signature })
    }

    /// Registers a write whose data is announced. Returns `true` if it must wait for earlier
    /// operations.
    fn submit_write(&mut self, call: CallId, touches: FileAccesses) -> bool {
        matches!(self.work.submit(Some(call), touches, DriverTask::Proceed(call)), DriverTask::Nothing)
    }

    pub(crate) fn page_write(&mut self, m: &Pgwrite, checkpoint: bool) -> DriverTask {
        let length = usize::try_from(m.dlen).unwrap_or(0);
        if length <= PAGE_CHECKSUM_BYTES {
            self.reply.refuse(ErrorCode::ARG_INVALID, "pgwrite length is invalid");
            return DriverTask::Close;
        }
        let link = PathId(m.pathid);
        if !self.links.has(link) {
            return self.bad_path();
        }
        let Some((index, file)) = self.work.open_file(m.fhandle) else {
            let error = Error::new(ErrorKind::FileNotOpen, "pgwrite does not refer to an open file");
            return self.discard(PathId::CONTROL, (link, length), error);
        };
        let refuse = |request: &mut Self, kind, text: String| {
            request.discard(link, (link, length), Error::new(kind, text))
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
        let call = self.work.call(self.reply.id, link, kind);
        let held = self.submit_write(call, FileAccesses::one(index, Access::write(offset, data as u64)));
        let into = Destination::Pages { file, offset };
        let signature = None;
        DriverTask::Receive(PayloadAnnouncement { call, link, length, into, checkpoint, held, signature })
    }

    pub(crate) fn vector_write(&mut self, m: &Writev<'_>, checkpoint: bool) -> DriverTask {
        // The end of the data cannot be computed from an invalid list, so an error in it ends the
        // session.
        let wrong = |request: &mut Self, code, text: &str| request.reply.refuse_and_close(code, text);
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
            let Some((index, file)) = self.work.open_file(segment.fhandle) else {
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
            return self.discard(PathId::CONTROL, (PathId::CONTROL, total), error);
        }
        let sync = m.options.contains(WritevOptions::DO_SYNC);
        let call = self.call(CallKind::VectorWrite { files, sync });
        let held = self.submit_write(call, FileAccesses::many(touched));
        let into = Destination::Vector(extents);
        DriverTask::Receive(PayloadAnnouncement {
            call,
            link: PathId::CONTROL,
            length: total,
            into,
            checkpoint,
            held,
            signature: None,
        })
    }

    pub(crate) fn close(&mut self, handle: FileHandle) -> DriverTask {
        let Some((index, file)) = self.work.open_file(handle) else { return self.not_open("close") };
        let file = file.clone();
        self.work.close(index, self.reply.id, file)
    }

    pub(crate) fn truncate(&mut self, m: &Truncate<'_>, checkpoint: bool) -> DriverTask {
        if m.path.is_empty() {
            let Some((_, file)) = self.work.open_file(m.fhandle) else { return self.not_open("trunc") };
            let Ok(size) = u64::try_from(m.offset) else {
                let text = format!("Unable to truncate {}; invalid argument", file.path().text());
                return self.reply.refuse(ErrorCode::ARG_INVALID, &text);
            };
            let operation = FileOperation::Truncate { size, checkpoint };
            return self.on_file(m.fhandle, "trunc", (Access::Barrier, operation));
        }
        let place = match target(m.path, Verb::TRUNCATE) {
            Ok(place) => place,
            Err(error) => return self.reply.fail(&error),
        };
        // A negative size is refused by the file system, after errors in the path.
        let size = m.offset.cast_unsigned();
        let call = self.call(CallKind::Plain);
        self.work.start_on_names(call, Operation::Truncate { target: place, size }, None)
    }

    pub(crate) fn stat(&mut self, m: &Stat<'_>) -> DriverTask {
        let space = m.options.contains(StatOptions::VFS);
        if m.path.is_empty() {
            if space {
                let text = "Required argument not present";
                return self.reply.refuse(ErrorCode::ARG_MISSING, text);
            }
            return self.on_file(m.fhandle, "stat", (Access::READ_ALL, FileOperation::Stat));
        }
        match target(m.path, Verb::STAT) {
            Ok(place) => {
                let call = self.call(CallKind::Plain);
                let operation = if space { Operation::StatSpace(place) } else { Operation::Stat(place) };
                self.work.start_on_names(call, operation, None)
            }
            Err(error) => self.reply.fail(&error),
        }
    }

    pub(crate) fn clone_ranges(&mut self, m: &CloneRanges<'_>) -> DriverTask {
        let refuse = |request: &mut Self, code, text: &str| request.reply.refuse(code, text);
        if m.items.is_empty() || !m.items.is_whole() {
            return refuse(self, ErrorCode::ARG_INVALID, "Clone vector is invalid");
        }
        if m.items.len() > CLONE_ITEMS_MAX {
            return refuse(self, ErrorCode::ARG_TOO_LONG, "Clone vector is too long");
        }
        let Some((index, file)) = self.work.open_file(m.fhandle) else {
            return refuse(self, ErrorCode::FILE_NOT_OPEN, "clone does not refer to an open dest file");
        };
        let file = file.clone();
        let mut touched = vec![(index, Access::Barrier)];
        let mut ranges = Vec::with_capacity(m.items.len());
        for item in m.items.iter() {
            let Some((source_index, source)) = self.work.open_file(item.src_fhandle) else {
                return refuse(self, ErrorCode::FILE_NOT_OPEN, "clone does not refer to an open src file");
            };
            ranges.push(CloneRange {
                source: source.clone(),
                range: CopyRange { from: item.src_offset, to: item.dst_offset, length: item.src_length },
            });
            touched.push((source_index, Access::READ_ALL));
        }
        let call = self.call(CallKind::OnFile);
        let todo = DriverTask::FileCall(call, file, FileOperation::CloneFrom(ranges));
        self.work.submit(Some(call), FileAccesses::many(touched), todo)
    }

    pub(crate) fn checkpoint(&mut self, m: &Chkpoint, extra: &[u8]) -> DriverTask {
        if self.work.open_file(m.fhandle).is_none() {
            self.not_open("chkpoint");
            // The end of the data of an unknown embedded request cannot be found.
            let has_data = m.embedded.as_ref().is_some_and(|embedded| embedded.dlen != 0);
            return if has_data { DriverTask::Close } else { DriverTask::Nothing };
        }
        let work = match m.opcode {
            ChkpointOpcode::BEGIN => CheckpointWork::Begin,
            ChkpointOpcode::COMMIT => CheckpointWork::Commit,
            ChkpointOpcode::QUERY => CheckpointWork::Query,
            ChkpointOpcode::ROLLBACK => CheckpointWork::RollBack,
            ChkpointOpcode::XEQ => {
                return match &m.embedded {
                    Some(embedded) => self.execute(embedded, extra),
                    None => {
                        let text = "chkpoint request is incomplete";
                        self.reply.refuse(ErrorCode::ARG_INVALID, text)
                    }
                };
            }
            _ => {
                let text = "chkpoint subcode is invalid";
                return self.reply.refuse(ErrorCode::ARG_INVALID, text);
            }
        };
        let access = if work == CheckpointWork::Query { Access::READ_ALL } else { Access::Barrier };
        self.on_file(m.fhandle, "chkpoint", (access, FileOperation::Checkpoint(work)))
    }

    /// Executes a request under a checkpoint.
    fn execute(&mut self, header: &RequestHeader, list: &[u8]) -> DriverTask {
        let wrong =
            |request: &mut Self, text: &str| request.reply.refuse_and_close(ErrorCode::ARG_INVALID, text);
        if header.streamid != self.reply.id {
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
            return self.discard(PathId::CONTROL, (PathId::CONTROL, length), error);
        }
        match Request::decode(header, list) {
            Ok(Request::Write(m)) => self.write(&m, true),
            Ok(Request::Pgwrite(m)) => self.page_write(&m, true),
            Ok(Request::Writev(m)) => self.vector_write(&m, true),
            Ok(Request::Truncate(m)) => self.truncate(&m, true),
            _ => wrong(self, "Invalid request code"),
        }
    }
}

/// Returns the offset of a transfer of `length` bytes, or `None` if it is negative. The offset of
/// an empty transfer is not checked.
fn offset_of(offset: i64, length: usize) -> Option<u64> {
    u64::try_from(offset).ok().or((length == 0).then_some(0))
}

/// Returns the number of pages and of data bytes in `length` bytes of pages with checksums from
/// `offset` on. Returns `None` if the last page would have a checksum and no data.
#[must_use]
pub fn page_layout(offset: u64, length: usize) -> Option<(usize, usize)> {
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
