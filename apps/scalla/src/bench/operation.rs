//! A single operation: its request and the check of its reply.

use bytes::Bytes;
use client::codec::{Decode, Encode, FixedLayout};
use client::pages;
use client::xroot::flags::{DirlistOptions, OpenOptions, OpenTemplateOptions, StatOptions, StatWants};
use client::xroot::limits::SEGMENT_BYTES;
use client::xroot::reply::dirlist::Listing;
use client::xroot::reply::{OpenReply, StatText, StatusFrame};
use client::xroot::request::{self, Request, Segment, SegmentList};
use client::xroot::{ErrorCode, FileHandle};
use rawclient::{Connection, RequestOutcome, SubmitError};
use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::load_plan::{LoadPlan, OperationKind};
use super::pattern;

/// Options with which stock clients open a file for reading: read, async, retstat.
pub(super) const OPEN_TO_READ: OpenOptions = OpenOptions(0x0450);
/// Options with which `xrdcp -f -p` opens its target: delete, update, async, mkpath, retstat.
pub(super) const OPEN_TO_WRITE: OpenOptions = OpenOptions(0x0562);
/// Permission bits of new files, 0644.
pub(super) const NEW_FILE_MODE: u16 = 0x01a4;

/// State that all operations share: payloads and the random number generator.
#[derive(Debug)]
pub(super) struct OperationInputs {
    random: u64,
    next_file: u32,
    /// Content of the file from offset 0, as long as the largest write.
    payload: Bytes,
    /// Payloads in pages with checksums, by their length without checksums.
    page_payloads: HashMap<u32, Bytes>,
}

impl OperationInputs {
    pub(super) fn new(plan: &LoadPlan) -> Self {
        let length = if plan.kind.writes() { plan.largest() as usize } else { 0 };
        let mut content = vec![0; length];
        pattern::fill(0, &mut content);
        let page_payloads = match plan.kind {
            OperationKind::Pgwrite => {
                plan.sizes.iter().map(|size| (*size, interleaved(0, &content[..*size as usize]))).collect()
            }
            _ => HashMap::new(),
        };
        Self { random: 0x9e37_79b9_7f4a_7c15, next_file: 0, payload: Bytes::from(content), page_payloads }
    }

    /// Returns a random number below `limit`, or 0 if `limit` is 0.
    fn below(&mut self, limit: u64) -> u64 {
        // xorshift64*
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let mixed = self.random.wrapping_mul(0x2545_f491_4f6c_dd1d);
        ((u128::from(mixed) * u128::from(limit)) >> 64) as u64
    }

    fn file(&mut self, plan: &LoadPlan) -> usize {
        if plan.sequential {
            let file = self.next_file;
            self.next_file = (file + 1) % plan.files;
            return file as usize;
        }
        self.below(plan.files.into()) as usize
    }

    /// Returns the payload of a write at `offset`.
    fn payload(&self, plan: &LoadPlan, offset: u64, size: u32) -> Bytes {
        // Data to be verified must depend on its offset. Otherwise one payload serves all writes.
        let content = if plan.verify {
            let mut content = vec![0; size as usize];
            pattern::fill(offset, &mut content);
            Bytes::from(content)
        } else {
            self.payload.slice(..size as usize)
        };
        match plan.kind {
            OperationKind::Pgwrite if !plan.verify && offset.is_multiple_of(pages::PAGE_BYTES as u64) => {
                self.page_payloads.get(&size).cloned().unwrap_or_else(|| interleaved(offset, &content))
            }
            OperationKind::Pgwrite => interleaved(offset, &content),
            _ => content,
        }
    }
}

fn interleaved(offset: u64, content: &[u8]) -> Bytes {
    let room = pages::checksums_length(offset, content.len());
    let mut buffer = vec![0; room];
    buffer.extend_from_slice(content);
    pages::interleave(offset, &mut buffer, room, content.len());
    Bytes::from(buffer)
}

/// The open file of a connection and its position.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct BenchFile {
    pub(super) handle: FileHandle,
    pub(super) size: u64,
    /// Offset of the next sequential operation.
    pub(super) position: u64,
    /// End of the written data.
    pub(super) written: u64,
}

/// The result of an operation.
#[derive(Debug)]
pub(super) enum OperationResult {
    /// Success, with the number of data bytes.
    Done(u64),
    /// The file is open and must be closed.
    Opened(FileHandle),
    /// Repeat the operation after this delay.
    Wait(Duration),
    /// The server redirected the client.
    Redirected,
    /// Failure, with its description.
    Failed(String),
}

/// An operation. It is reused for many requests.
#[derive(Debug)]
pub(super) struct LoadOperation {
    pub(super) started: Instant,
    /// Set while its file, which is open, is being closed.
    closing: bool,
    offset: u64,
    /// Number of data bytes requested.
    size: u64,
    /// Length of the reply in bytes, and the number of bytes received.
    expected_bytes: u64,
    received_bytes: u64,
    /// The segments of a readv as sent.
    list: Vec<u8>,
    /// Data of the reply kept for the check when it is complete.
    retained: Vec<u8>,
    /// Offset of the kept pages in the file.
    pages_at: u64,
    /// Ranges of the file received in pages.
    ranges: Vec<(u64, u64)>,
    /// Number of entries of a listing.
    pub(super) entries: Option<usize>,
    mismatch: Option<String>,
}

impl LoadOperation {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            started: now,
            closing: false,
            offset: 0,
            size: 0,
            expected_bytes: 0,
            received_bytes: 0,
            list: Vec::new(),
            retained: Vec::new(),
            pages_at: 0,
            ranges: Vec::new(),
            entries: None,
            mismatch: None,
        }
    }

    /// Creates the request.
    pub(super) fn begin(
        &mut self,
        plan: &LoadPlan,
        material: &mut OperationInputs,
        file: &mut BenchFile,
        connection: &mut Connection,
        tag: u64,
    ) -> Result<(), SubmitError> {
        self.closing = false;
        self.received_bytes = 0;
        self.retained.clear();
        self.ranges.clear();
        self.mismatch = None;
        let size = match plan.sizes.as_slice() {
            [one] => *one,
            several => several[material.below(several.len() as u64) as usize],
        };
        let fhandle = file.handle;
        match plan.kind {
            OperationKind::Read | OperationKind::Pgread | OperationKind::Write | OperationKind::Pgwrite => {
                self.select_range(plan, material, file, size);
                // No file is longer than i64::MAX.
                let offset = self.offset as i64;
                if plan.kind.writes() {
                    let payload = material.payload(plan, self.offset, size);
                    let dlen = payload.len() as i32;
                    let request = match plan.kind {
                        OperationKind::Write => {
                            Request::Write(request::Write { fhandle, offset, pathid: 0, dlen })
                        }
                        _ => Request::Pgwrite(request::Pgwrite {
                            fhandle,
                            offset,
                            pathid: 0,
                            reqflags: Default::default(),
                            dlen,
                        }),
                    };
                    self.expected_bytes = 0;
                    return connection.submit_with_payload(&request, payload, tag);
                }
                self.expected_bytes = plan.answer_bytes(self.offset, size);
                let rlen = size as i32;
                connection.submit(
                    &match plan.kind {
                        OperationKind::Read => {
                            Request::Read(request::Read { fhandle, offset, rlen, argument: None })
                        }
                        _ => Request::Pgread(request::Pgread {
                            fhandle,
                            offset,
                            rlen,
                            pathid: None,
                            reqflags: None,
                        }),
                    },
                    tag,
                )
            }
            OperationKind::Readv => {
                self.select_segments(plan, material, file, size);
                let segments = SegmentList::new(&self.list);
                connection.submit(&Request::Readv(request::Readv { pathid: 0, segments }), tag)
            }
            OperationKind::Open | OperationKind::Stat | OperationKind::Dirlist => {
                self.request_path(plan, material, connection, tag)
            }
            OperationKind::Connect | OperationKind::Idle => Ok(()),
        }
    }

    /// Selects the range of a read or write.
    fn select_range(
        &mut self,
        plan: &LoadPlan,
        material: &mut OperationInputs,
        file: &mut BenchFile,
        size: u32,
    ) {
        let bytes = u64::from(size);
        let room = file.size.saturating_sub(bytes);
        if plan.sequential {
            if file.position > room {
                file.position = 0;
            }
            self.offset = file.position;
            file.position += bytes;
            file.written = file.written.max(file.position);
        } else {
            self.offset = material.below(room / plan.align + 1) * plan.align;
        }
        self.size = bytes;
    }

    /// Selects the segments of a readv.
    fn select_segments(
        &mut self,
        plan: &LoadPlan,
        material: &mut OperationInputs,
        file: &BenchFile,
        size: u32,
    ) {
        let bytes = u64::from(size);
        let room = file.size.saturating_sub(plan.span());
        let mut at = material.below(room / plan.align + 1) * plan.align;
        self.list.clear();
        for _ in 0..plan.segments {
            match plan.gap {
                Some(gap) => at += material.below(gap + 1),
                None => at = material.below(room / plan.align + 1) * plan.align,
            }
            let segment = Segment { fhandle: file.handle, length: size as i32, offset: at as i64 };
            segment.encode(&mut self.list);
            at += bytes;
        }
        self.size = bytes * u64::from(plan.segments);
        self.expected_bytes = self.size + self.list.len() as u64;
    }

    /// Creates a stat request for a path.
    fn request_path(
        &mut self,
        plan: &LoadPlan,
        material: &mut OperationInputs,
        connection: &mut Connection,
        tag: u64,
    ) -> Result<(), SubmitError> {
        self.size = 0;
        let target = plan.url.target_of(&plan.path(material.file(plan))).text().into_owned();
        let path = target.as_bytes();
        connection.submit(
            &match plan.kind {
                OperationKind::Open => open(&target, OPEN_TO_READ),
                OperationKind::Stat => Request::Stat(request::Stat {
                    options: StatOptions::NONE,
                    wants: StatWants::NONE,
                    fhandle: FileHandle::default(),
                    path,
                }),
                _ => Request::Dirlist(request::Dirlist {
                    options: if plan.with_stat { DirlistOptions::DSTAT } else { DirlistOptions::NONE },
                    path,
                }),
            },
            tag,
        )
    }

    /// Creates the request that closes the file.
    pub(super) fn close(
        &mut self,
        fhandle: FileHandle,
        connection: &mut Connection,
        tag: u64,
    ) -> Result<(), SubmitError> {
        self.closing = true;
        connection.submit(&Request::Close(request::Close { fhandle }), tag)
    }

    /// Handles data of the reply.
    pub(super) fn data(&mut self, plan: &LoadPlan, bytes: &[u8]) {
        if plan.verify && !bytes.is_empty() {
            match plan.kind {
                OperationKind::Read => {
                    let at = self.offset + self.received_bytes;
                    if let Some(wrong) = pattern::first_wrong(at, bytes) {
                        self.record_mismatch(format!("byte {} of the file is wrong", at + wrong as u64));
                    }
                }
                _ => self.retained.extend_from_slice(bytes),
            }
        }
        self.received_bytes += bytes.len() as u64;
    }

    /// Handles the header of data in pages.
    pub(super) fn pages(&mut self, plan: &LoadPlan, frame: &StatusFrame) {
        if plan.kind == OperationKind::Pgread {
            self.check_pages(plan);
            self.pages_at = u64::try_from(frame.offset).unwrap_or(u64::MAX);
        } else if frame.dlen != 0 {
            self.record_mismatch("the server says that pages came damaged".to_owned());
        }
    }

    /// Counts data that was discarded in the kernel.
    pub(super) fn discarded(&mut self, bytes: u64) {
        self.received_bytes += bytes;
    }

    fn record_mismatch(&mut self, text: String) {
        self.mismatch.get_or_insert(text);
    }

    /// Checks the complete reply.
    pub(super) fn end(&mut self, plan: &LoadPlan, outcome: &RequestOutcome<'_>) -> OperationResult {
        let rest = match outcome {
            RequestOutcome::Ok(_) if plan.missing => {
                return OperationResult::Failed("the file exists".to_owned());
            }
            RequestOutcome::Ok(rest) => *rest,
            RequestOutcome::Error(error) if plan.missing && error.code == ErrorCode::NOT_FOUND => {
                return OperationResult::Done(0);
            }
            RequestOutcome::Error(error) => {
                return OperationResult::Failed(format!(
                    "{}: {}",
                    error.code,
                    String::from_utf8_lossy(error.text)
                ));
            }
            RequestOutcome::Wait(wait) => {
                return OperationResult::Wait(Duration::from_secs(u64::try_from(wait.seconds).unwrap_or(0)));
            }
            RequestOutcome::Redirect(_) => return OperationResult::Redirected,
        };
        match plan.kind {
            OperationKind::Open if !self.closing => match OpenReply::decode(rest) {
                Ok(reply) => return OperationResult::Opened(reply.fhandle),
                Err(error) => return OperationResult::Failed(format!("malformed answer: {error}")),
            },
            OperationKind::Stat => {
                if let Err(error) = StatText::decode(rest) {
                    return OperationResult::Failed(format!("malformed answer: {error}"));
                }
            }
            OperationKind::Dirlist => {
                self.data(plan, rest);
                self.size = self.received_bytes;
                self.check_listing(plan);
            }
            kind if kind.moves_data() => {
                self.data(plan, rest);
                if self.received_bytes != self.expected_bytes {
                    self.record_mismatch(format!(
                        "the answer has {} bytes instead of {}",
                        self.received_bytes, self.expected_bytes
                    ));
                } else if plan.verify {
                    self.check_kept(plan);
                }
            }
            _ => {}
        }
        match self.mismatch.take() {
            Some(text) => {
                OperationResult::Failed(format!("{text} (offset {}, {} bytes)", self.offset, self.size))
            }
            None => OperationResult::Done(self.size),
        }
    }

    fn check_kept(&mut self, plan: &LoadPlan) {
        match plan.kind {
            OperationKind::Pgread => {
                self.check_pages(plan);
                self.ranges.sort_unstable();
                let end = self
                    .ranges
                    .iter()
                    .try_fold(self.offset, |at, (from, length)| (*from == at).then_some(from + length));
                if end != Some(self.offset + self.size) {
                    self.record_mismatch("the pages are not those asked for".to_owned());
                }
            }
            OperationKind::Readv => {
                let mut rest = self.retained.as_slice();
                let mut wrong = None;
                for (index, segment) in SegmentList::new(&self.list).iter().enumerate() {
                    let length = segment.length as usize;
                    let Some((head, data)) = rest.split_first_chunk::<SEGMENT_BYTES>() else { break };
                    if *head != segment.to_bytes() {
                        wrong = Some(format!("the header of piece {index} is wrong"));
                    } else if pattern::first_wrong(segment.offset as u64, &data[..length.min(data.len())])
                        .is_some()
                    {
                        wrong = Some(format!("the data of piece {index} is wrong"));
                    }
                    rest = data.get(length..).unwrap_or_default();
                }
                self.mismatch = self.mismatch.take().or(wrong);
            }
            _ => {}
        }
    }

    /// Checks the pages that were kept.
    fn check_pages(&mut self, plan: &LoadPlan) {
        if !plan.verify || self.retained.is_empty() {
            return;
        }
        let mut bad = None;
        let length = pages::separate(self.pages_at, &mut self.retained, |page| bad = Some(page.offset));
        if let Some(offset) = bad {
            self.record_mismatch(format!("the checksum of the page at {offset} is wrong"));
        } else if let Some(wrong) = pattern::first_wrong(self.pages_at, &self.retained[..length]) {
            self.record_mismatch(format!("byte {} of the file is wrong", self.pages_at + wrong as u64));
        }
        self.ranges.push((self.pages_at, length as u64));
        self.retained.clear();
    }

    fn check_listing(&mut self, plan: &LoadPlan) {
        if !plan.verify {
            return;
        }
        let listing = Listing::new(&self.retained);
        let mut entries = 0;
        let mut wrong = (listing.has_stat() != plan.with_stat).then(|| "status was not appended".to_owned());
        for entry in listing {
            entries += 1;
            if let Err(error) = entry {
                wrong = Some(format!("entry {entries} is malformed: {error}"));
            }
        }
        self.entries = Some(entries);
        self.mismatch = self.mismatch.take().or(wrong);
    }
}

/// Creates the request that opens a file as stock clients do.
pub(super) fn open(target: &str, options: OpenOptions) -> Request<'_> {
    Request::Open(request::Open {
        mode: NEW_FILE_MODE,
        options,
        optiont: OpenTemplateOptions::NONE,
        fhtemplt: FileHandle::default(),
        target: target.as_bytes(),
    })
}
