//! The driver of the session: executes its work items in the order of the fuzz input.
//!
//! It replaces the xroot front end and the file system, so that answers can come in any order and
//! of any kind.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use base::ErrorKind;
use session::{
    BadPage, CallId, Destination, DriverTask, PathId, PayloadAnnouncement, Peer, ReadElement, ReceiveResult,
    ReplyOutputs, Session, Settings, TakeResult,
};
use vfs::{
    Answer, AttributeOutcome, AttributeWork, BriefStat, CheckpointWork, DirectoryEntry, FileKind,
    FileOperation, FileStat, ListingPosition, OpenFile, Opened, Operation, RedirectAnswer, SpaceFigures,
    Value,
};
use wire::xroot::frames::{FrameBytes, response_bytes};
use wire::xroot::header::SessionId;
use wire::xroot::limits::HANDSHAKE_REPLY_BYTES;

use super::account::ReplyAccount;
use super::files::{CountingFile, FileAccess, FileUse, begin_uses, end_uses};
use super::pending_read::PendingRead;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Maximum number of pages of a listing.
const PAGES_MAX: usize = 3;

/// The clock during authentication.
const NOW: std::time::SystemTime = std::time::SystemTime::UNIX_EPOCH;

/// Reports whether a task uses files or other sessions. A connection may join one without a login.
fn is_use(todo: &DriverTask) -> bool {
    !matches!(
        todo,
        DriverTask::Nothing
            | DriverTask::Close
            | DriverTask::Bind { .. }
            | DriverTask::Authenticate(_)
            | DriverTask::StartTls
            | DriverTask::LoginRefused { .. }
    )
}

/// A call that waits for an answer.
struct PendingCall {
    call: CallId,
    about: PendingCallKind,
    told_later: bool,
}

enum PendingCallKind {
    Operation(Operation),
    File(Arc<dyn OpenFile>, FileOperation),
    /// Any call that is answered with a text or without a value.
    Other,
}

/// Data that the session expects on a connection.
struct ExpectedData {
    receive: PayloadAnnouncement,
    /// Number of bytes that have not been received yet.
    missing: usize,
}

struct NextListing;

impl ListingPosition for NextListing {
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
        self
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

#[derive(Default)]
pub(super) struct Outputs(BTreeMap<u8, Vec<u8>>);

impl ReplyOutputs for Outputs {
    fn link(&mut self, link: PathId) -> &mut Vec<u8> {
        self.0.entry(link.0).or_default()
    }

    fn count(&mut self, _: session::CountedEvent) {}
}

pub(super) struct FuzzDriver {
    pub(super) session: Session,
    pub(super) out: Outputs,
    input: Vec<u8>,
    asked: Vec<PendingCall>,
    expected: Vec<ExpectedData>,
    pub(super) reads: Vec<PendingRead>,
    bound: BTreeSet<u8>,
    files: Vec<Arc<CountingFile>>,
    account: ReplyAccount,
    pages: usize,
    pub(super) started_reads: usize,
    closed: bool,
    greeted: bool,
}

impl FuzzDriver {
    pub(super) fn new(settings: Settings) -> Self {
        let host = "client.example.org".to_owned();
        let peer = Peer { address: Some(HERE), port: 1, host, connection: None };
        let session = Session::new(SessionId([7; 16]), Arc::new(settings), peer);
        Self {
            session,
            out: Outputs::default(),
            input: Vec::new(),
            asked: Vec::new(),
            expected: Vec::new(),
            reads: Vec::new(),
            bound: BTreeSet::new(),
            files: Vec::new(),
            account: ReplyAccount::default(),
            pages: 0,
            started_reads: 0,
            closed: false,
            greeted: false,
        }
    }

    /// Receives bytes on the control connection. Each bound connection that waits for data receives
    /// the same number.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        if self.closed {
            return;
        }
        let bound = |expected: &&mut ExpectedData| expected.receive.link != PathId::CONTROL;
        for expected in self.expected.iter_mut().filter(bound).filter(|expected| !expected.receive.held) {
            expected.missing = expected.missing.saturating_sub(bytes.len());
        }
        self.input.extend_from_slice(bytes);
        self.take();
    }

    /// Passes input to the session until it needs more bytes or stops reading.
    pub(super) fn take(&mut self) {
        while !self.closed && self.session.has_room() {
            let data = self.expected.iter_mut().find(|e| e.receive.link == PathId::CONTROL && e.missing > 0);
            if let Some(expected) = data {
                if expected.receive.held {
                    return;
                }
                let bytes = expected.missing.min(self.input.len());
                self.input.drain(..bytes);
                expected.missing -= bytes;
                if expected.missing > 0 {
                    return;
                }
            }
            if self.session.is_ending() || self.input.is_empty() {
                return;
            }
            match self.session.take(&self.input, base::Charge::NONE, &mut self.out) {
                TakeResult::More { bytes } => {
                    assert!(bytes > self.input.len(), "asks for {bytes} bytes and has {}", self.input.len());
                    return;
                }
                TakeResult::Took { bytes, todo } => {
                    assert!(bytes > 0 && bytes <= self.input.len(), "took {bytes} of {}", self.input.len());
                    self.account.request(&self.input, &todo);
                    self.input.drain(..bytes);
                    self.run(todo);
                }
            }
        }
    }

    pub(super) fn run(&mut self, mut todo: DriverTask) {
        loop {
            if matches!(todo, DriverTask::Nothing) {
                todo = match self.session.next_todo() {
                    Some(todo) => todo,
                    None => return,
                };
            }
            self.start(std::mem::replace(&mut todo, DriverTask::Nothing));
        }
    }

    fn start(&mut self, todo: DriverTask) {
        assert!(
            self.session.is_active() || self.session.is_ending() || !is_use(&todo),
            "a task before the client is identified"
        );
        match todo {
            DriverTask::Authenticate(task) => {
                let todo = self.session.authenticated(task.run(NOW), &mut self.out);
                self.start(todo);
            }
            DriverTask::LoginRefused { reason, delay_seconds } => {
                assert!(!reason.is_empty() && delay_seconds <= session::REFUSAL_SECONDS_MAX);
                self.session.send_delayed_refusal(&mut self.out);
            }
            DriverTask::Nothing => {}
            DriverTask::StartTls => panic!("TLS of a server without a certificate"),
            DriverTask::Close => self.closed = true,
            DriverTask::Call(call, operation) => self.ask(call, PendingCallKind::Operation(operation)),
            DriverTask::FileCall(call, file, operation) => {
                begin_uses(&uses_of(&file, &operation));
                self.ask(call, PendingCallKind::File(file, operation));
            }
            DriverTask::Read(mut task) | DriverTask::ReadWithHints(mut task, _) => self.read(&mut task),
            DriverTask::ReadVector(task) => self.read_vector(task),
            DriverTask::Receive(receive) => self.expect(receive),
            DriverTask::Proceed(call) => self.proceed(call),
            DriverTask::Bind { .. } => self.end(),
            DriverTask::EndSession { call, .. }
            | DriverTask::Statistics { call, .. }
            | DriverTask::Monitor { call, .. } => self.ask(call, PendingCallKind::Other),
        }
    }

    fn ask(&mut self, call: CallId, about: PendingCallKind) {
        let used = self.asked.iter().any(|asked| asked.call == call)
            || self.expected.iter().any(|expected| expected.receive.call == call);
        assert!(!used, "{call:?} is used twice concurrently");
        self.asked.push(PendingCall { call, about, told_later: false });
    }

    /// Lists the ranges that a read uses.
    pub(super) fn uses_of_reads(&self, elements: &[ReadElement]) -> Vec<FileUse> {
        let uses = elements.iter().map(|element| {
            let Some(file) = self.session.file(element.file) else {
                panic!("a read of a file that is not open")
            };
            FileUse::new(file, FileAccess::Read(element.extent.offset, element.extent.length as u64))
        });
        uses.collect()
    }

    fn expect(&mut self, receive: PayloadAnnouncement) {
        assert!(self.session.is_bound(receive.link), "data announced for a connection that is not bound");
        if !receive.held {
            begin_uses(&uses_of_data(&receive));
        }
        let missing = receive.length;
        self.expected.push(ExpectedData { receive, missing });
    }

    /// Starts a write that was held. Its connection may be lost by then.
    fn proceed(&mut self, call: CallId) {
        if let Some(expected) = self.expected.iter_mut().find(|expected| expected.receive.call == call) {
            assert!(expected.receive.held, "a write that was not held is continued");
            expected.receive.held = false;
            begin_uses(&uses_of_data(&expected.receive));
            self.take();
        }
    }

    /// Answers the call `which` in the way `how`.
    pub(super) fn answer(&mut self, which: u8, how: u8) {
        if self.asked.is_empty() {
            return;
        }
        let asked = self.asked.swap_remove(usize::from(which) % self.asked.len());
        let releases = matches!(asked.about, PendingCallKind::File(_, FileOperation::Abandon));
        let answer = match how % 8 {
            1 => Answer::error(ErrorKind::NotFound, "no such file"),
            2 if !releases => Answer::Wait { seconds: u32::from(how), text: "later".to_owned() },
            3 if !releases => {
                Answer::Redirect(RedirectAnswer { host: "h".into(), port: 1094, cgi: "tried=x".to_owned() })
            }
            4 => Answer::DONE,
            _ => Answer::Value(self.value(&asked.about, how)),
        };
        if let PendingCallKind::File(file, operation) = &asked.about {
            end_uses(&uses_of(file, operation));
            if matches!(operation, FileOperation::Close { .. } | FileOperation::Abandon) {
                let again = matches!(answer, Answer::Wait { .. } | Answer::Redirect(_));
                CountingFile::of(file).close_ends(again);
            }
        }
        let todo = self.session.answered(asked.call, answer, &mut self.out);
        self.run(todo);
        self.take();
    }

    /// Returns a value of the kind that the operation requires.
    fn value(&mut self, about: &PendingCallKind, how: u8) -> Value {
        let text = || Value::Text(b"text".to_vec());
        match about {
            PendingCallKind::Operation(Operation::Open(_, request)) => {
                let file = CountingFile::open(request.write);
                self.files.push(file.clone());
                Value::Opened(Opened { file, stat: request.stat.then(stat) })
            }
            PendingCallKind::Operation(Operation::Stat(_))
            | PendingCallKind::File(_, FileOperation::Stat) => Value::Stat(stat()),
            PendingCallKind::Operation(Operation::StatSpace(_)) => Value::Space(SpaceFigures::default()),
            PendingCallKind::Operation(Operation::StatMany(targets)) => {
                let stat = BriefStat::new(FileKind::File, false);
                Value::BriefStats(targets.cursor().filter_map(Result::ok).map(|_| stat).collect())
            }
            PendingCallKind::Operation(Operation::List(..) | Operation::ListMore(_)) => self.listing(how),
            PendingCallKind::Operation(Operation::Attributes(_, work))
            | PendingCallKind::File(_, FileOperation::Attributes(work)) => attributes(work),
            PendingCallKind::Operation(Operation::Checksum(_)) => {
                Value::Checksum { algorithm: "adler32".to_owned(), hex: "091e01de".to_owned() }
            }
            PendingCallKind::File(_, FileOperation::Checkpoint(CheckpointWork::Query)) => {
                Value::CheckpointSize { max: 1 << 20, used: 0 }
            }
            PendingCallKind::Operation(_) | PendingCallKind::Other => text(),
            PendingCallKind::File(..) => Value::Nothing,
        }
    }

    fn listing(&mut self, how: u8) -> Value {
        self.pages += 1;
        let entry = |name: &[u8]| DirectoryEntry {
            name: name.to_vec(),
            stat: (how & 16 == 0).then(stat),
            checksum: (how & 32 == 0).then(|| ("adler32".to_owned(), None)),
        };
        let entries =
            (0..usize::from(how >> 6)).map(|index| entry(&[b'a' + u8::try_from(index).unwrap_or(0)]));
        let rest: Option<Box<dyn ListingPosition>> = match how & 8 {
            8 if !self.pages.is_multiple_of(PAGES_MAX) => Some(Box::new(NextListing)),
            _ => None,
        };
        Value::Listing { entries: entries.collect::<Vec<_>>().into(), rest }
    }

    /// Completes a transfer whose data has been received.
    pub(super) fn received(&mut self, which: u8, how: u8) {
        let complete: Vec<_> = self
            .expected
            .iter()
            .enumerate()
            .filter(|(_, e)| e.missing == 0 && !e.receive.held)
            .map(|(index, _)| index)
            .collect();
        if let Some(&index) = complete.get(usize::from(which) % complete.len().max(1)) {
            self.settle(index, how);
        }
    }

    fn settle(&mut self, index: usize, how: u8) {
        let ExpectedData { receive, .. } = self.expected.swap_remove(index);
        if !receive.held {
            end_uses(&uses_of_data(&receive));
        }
        let mut received = ReceiveResult::default();
        match (&receive.into, how % 4) {
            (Destination::Pages { offset, .. }, 1) if receive.length > 4 => {
                received.bad_pages = vec![BadPage { offset: *offset, length: 1 }];
            }
            (_, 2) => received.error = Some(base::Error::new(ErrorKind::NoSpace, "no space")),
            _ => {}
        }
        let todo = self.session.received(receive.call, received, &mut self.out);
        self.run(todo);
        self.take();
    }

    /// Binds a connection to the session, or loses a bound one.
    pub(super) fn link(&mut self, which: u8) {
        let path = 1 + (which >> 1) % 15;
        if which & 1 == 0 {
            if let Ok(link) = self.session.bind(Some(HERE), false) {
                assert!((1..=15).contains(&link.0) && self.bound.insert(link.0), "{link:?} is bound already");
            }
        } else if self.bound.remove(&path) {
            self.session.unbind(PathId(path));
            while let Some(index) = self.expected.iter().position(|e| e.receive.link == PathId(path)) {
                self.settle(index, 2);
            }
        }
    }

    /// Defers a call once, or continues a read that was not answered immediately.
    pub(super) fn later(&mut self, which: u8, how: u8) {
        if how & 1 == 1 && !self.reads.is_empty() {
            self.go_on_reading(usize::from(which), usize::from(how >> 1));
        } else if !self.asked.is_empty() {
            let at = usize::from(which) % self.asked.len();
            if let Some(asked) = self.asked.get_mut(at)
                && !asked.told_later
            {
                asked.told_later = true;
                self.session.defer_answer(asked.call, u32::from(how), "later", &mut self.out);
            }
        }
    }

    /// Checks the invariants that hold after each step.
    pub(super) fn check(&mut self) {
        let ours = self.asked.len() + self.expected.len();
        assert!(self.session.calls_in_flight() >= ours, "the session forgot a call");
        for (link, out) in &mut self.out.0 {
            let mut rest = &out[..];
            if *link == PathId::CONTROL.0 && !self.greeted && !rest.is_empty() {
                self.greeted = true;
                rest = rest.get(HANDSHAKE_REPLY_BYTES..).unwrap_or_default();
            }
            while !rest.is_empty() {
                let Ok(FrameBytes::Exactly(bytes)) = response_bytes(rest) else {
                    panic!("link {link}: a reply is not a frame: {}", rest.escape_ascii());
                };
                let Some((frame, behind)) = rest.split_at_checked(bytes) else {
                    panic!("link {link}: a reply announces {bytes} bytes and has {}", rest.len())
                };
                self.account.frame(frame);
                rest = behind;
            }
            out.clear();
        }
        let busy = !(self.asked.is_empty() && self.expected.is_empty() && self.reads.is_empty());
        self.account.check(self.session.is_ending() || self.closed, busy);
    }

    /// Loses the control connection.
    pub(super) fn end(&mut self) {
        self.closed = true;
        self.session.end();
        self.run(DriverTask::Nothing);
        while !self.expected.is_empty() {
            self.settle(0, 2);
        }
    }

    /// Ends the session, answers all calls and checks that no state is left.
    pub(super) fn finish(&mut self) {
        const VALUE: u8 = 5;
        self.end();
        self.drop_reads();
        let mut rounds = 0;
        while !self.asked.is_empty() {
            self.answer(0, VALUE);
            rounds += 1;
            assert!(rounds < 100_000, "the session never stops calling");
        }
        self.check();
        assert!(
            self.session.is_finished(),
            "{} calls and {} files are left",
            self.session.calls_in_flight(),
            self.session.files_open()
        );
        assert!(self.files.iter().all(|file| file.is_released()), "a file was never closed");
    }
}

/// Lists the ranges that expected data changes.
fn uses_of_data(receive: &PayloadAnnouncement) -> Vec<FileUse> {
    let length = receive.length as u64;
    match &receive.into {
        Destination::File { file, offset } => vec![FileUse::new(file, FileAccess::Write(*offset, length))],
        Destination::Pages { file, offset } => {
            let data = digest_length(*offset, receive.length);
            vec![FileUse::new(file, FileAccess::Write(*offset, data))]
        }
        Destination::Vector(extents) => {
            let to_use = |e: &session::WriteExtent| {
                FileUse::new(&e.file, FileAccess::Write(e.extent.offset, e.extent.length as u64))
            };
            extents.iter().map(to_use).collect()
        }
        Destination::Discard => Vec::new(),
    }
}

/// Returns the minimum number of data bytes in `length` bytes of pages with checksums.
fn digest_length(offset: u64, length: usize) -> u64 {
    const PAGE: u64 = 4096;
    const SUM: u64 = 4;
    let first = PAGE - offset % PAGE + SUM;
    let pages = 1 + (length as u64).saturating_sub(first).div_ceil(PAGE + SUM);
    (length as u64).saturating_sub(pages * SUM)
}

/// Lists the files that an operation uses, and how.
fn uses_of(file: &Arc<dyn OpenFile>, operation: &FileOperation) -> Vec<FileUse> {
    let access = match operation {
        FileOperation::Close { .. } | FileOperation::Abandon => FileAccess::Close,
        FileOperation::Query { .. } => FileAccess::Nothing,
        FileOperation::Stat
        | FileOperation::Sync
        | FileOperation::Checkpoint(CheckpointWork::Query)
        | FileOperation::Attributes(AttributeWork::Get(_) | AttributeWork::List { .. }) => {
            FileAccess::Read(0, u64::MAX)
        }
        _ => FileAccess::Write(0, u64::MAX),
    };
    let mut uses = vec![FileUse::new(file, access)];
    if let FileOperation::CloneFrom(ranges) = operation {
        let sources = ranges.iter().filter(|range| !Arc::ptr_eq(&range.source, file));
        uses.extend(sources.map(|range| FileUse::new(&range.source, FileAccess::Read(0, u64::MAX))));
    }
    uses
}

fn attributes(work: &AttributeWork) -> Value {
    let names: Vec<Vec<u8>> = match work {
        AttributeWork::Get(names) | AttributeWork::Remove(names) => names.clone(),
        AttributeWork::Set { pairs, .. } => pairs.iter().map(|(name, _)| name.clone()).collect(),
        AttributeWork::List { .. } => vec![b"one".to_vec(), b"two".to_vec()],
    };
    let result = |(index, name)| AttributeOutcome {
        name,
        error: (index % 2 == 1).then_some(ErrorKind::AttributeNotFound),
        value: b"value".to_vec(),
    };
    Value::Attributes(names.into_iter().enumerate().map(result).collect())
}

fn stat() -> FileStat {
    FileStat {
        id: 1 << 40,
        size: 10_000,
        kind: FileKind::File,
        readable: true,
        writable: true,
        executable: false,
        offline: false,
        posc_pending: false,
        modified: 1_795_187_167,
        changed: 1_795_187_168,
        accessed: 1_795_187_172,
        mode: 0o644,
        owner: "owner".into(),
        group: "group".into(),
    }
}
