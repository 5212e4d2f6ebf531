//! A session under test: requests go in as bytes, replies come out, and the test plays the file
//! system.
//!
//! Requests are bytes instead of types of `wire`, so that errors of the encoder cannot hide errors
//! here.
// each test file uses a part
#![allow(dead_code, unused_imports, unreachable_pub, clippy::unwrap_used)]

pub mod answers;
pub mod codes;
pub mod files;
pub mod logins;
pub mod raw;
pub mod recording;

pub use codes::*;
pub use files::FakeFile;
pub use raw::{Raw, Reply, segment};

use base::{Error, ErrorKind};
use session::{CallId, CountedEvent, DriverTask, PathId, Peer, ReplyOutputs, Session, Settings, TakeResult};
use std::net::IpAddr;
use std::sync::Arc;
use vfs::{Answer, FileKind, FileOperation, FileStat, OpenRequest, Opened, Operation, Target, Value};
use wire::xroot::header::SessionId;

pub const OWN_ID: [u8; 16] = *b"sixteen bytes id";
const _: () = assert!(OWN_ID.len() == 16);

/// The outputs of all connections.
#[derive(Default)]
pub struct Outputs([Vec<u8>; 16], pub Vec<CountedEvent>);

impl ReplyOutputs for Outputs {
    fn link(&mut self, link: PathId) -> &mut Vec<u8> {
        &mut self.0[usize::from(link.0)]
    }

    fn count(&mut self, event: CountedEvent) {
        self.1.push(event);
    }
}

/// A session and its outputs.
pub struct Bench {
    pub session: Session,
    pub out: Outputs,
}

pub fn address() -> Option<IpAddr> {
    Some(IpAddr::from([192, 0, 2, 1]))
}

impl Bench {
    /// Returns a session before the handshake.
    pub fn untouched(settings: Settings) -> Self {
        let peer = Peer {
            address: address(),
            port: 44_850,
            host: "client.example.org".to_owned(),
            connection: None,
        };
        let session = Session::new(SessionId(OWN_ID), Arc::new(settings), peer);
        Self { session, out: Outputs::default() }
    }

    /// Returns a session after the handshake.
    pub fn greeted(settings: Settings) -> Self {
        let mut bench = Self::untouched(settings);
        let todo = bench.feed(&HANDSHAKE);
        assert!(matches!(todo, DriverTask::Nothing));
        assert_eq!(bench.out.0[0], [0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 5, 0x20, 0, 0, 0, 1]);
        bench.out.0[0].clear();
        bench
    }

    /// Returns a session after the login of a current client.
    pub fn new() -> Self {
        Self::with(Settings::default(), 5)
    }

    /// Returns a session after the login of a client of this generation.
    pub fn with(settings: Settings, generation: u8) -> Self {
        let mut bench = Self::greeted(settings);
        let reply = bench.reply_to(&login(generation));
        assert_eq!((reply.status, reply.body.len()), (OK, if generation == 0 { 0 } else { 16 }));
        bench
    }

    /// Feeds exactly one request, which must be taken as a whole.
    pub fn feed(&mut self, bytes: &[u8]) -> DriverTask {
        match self.session.take(bytes, base::Charge::NONE, &mut self.out) {
            TakeResult::Took { bytes: taken, todo } => {
                assert_eq!(taken, bytes.len(), "bytes taken of the request");
                todo
            }
            TakeResult::More { bytes: wanted } => {
                panic!("{wanted} bytes are required, {} are available", bytes.len())
            }
        }
    }

    /// Feeds a request that the session passes to the file system or the driver.
    pub fn ask(&mut self, request: &Raw) -> DriverTask {
        self.feed(&request.bytes())
    }

    /// Feeds a request that the session answers itself. The session must continue.
    pub fn reply_to(&mut self, request: &Raw) -> Reply {
        let todo = self.ask(request);
        assert!(matches!(todo, DriverTask::Nothing), "{} for {request:?}", name(&todo));
        self.reply()
    }

    /// Returns the error by which the session refuses a request. The session must continue.
    pub fn refused(&mut self, request: &Raw) -> (u16, String) {
        self.reply_to(request).error()
    }

    /// Returns the error by which the session refuses a request and ends.
    pub fn ended_by(&mut self, request: &Raw) -> (u16, String) {
        // The bytes after the header of a violation may remain in the input.
        let bytes = request.bytes();
        let TakeResult::Took { todo, .. } = self.session.take(&bytes, base::Charge::NONE, &mut self.out)
        else {
            panic!("incomplete request {request:?}");
        };
        assert!(matches!(todo, DriverTask::Close), "{} for {request:?}", name(&todo));
        assert!(self.session.is_ending());
        self.reply().error()
    }

    /// Returns the operation on the name space for a request.
    pub fn operation(&mut self, request: &Raw) -> (CallId, Operation) {
        match self.ask(request) {
            DriverTask::Call(call, operation) => (call, operation),
            other => panic!("{} for {request:?}, {:?}", name(&other), self.all_replies(0)),
        }
    }

    /// Returns the operation on a file for a request.
    pub fn file_operation(&mut self, request: &Raw) -> (CallId, FileOperation) {
        match self.ask(request) {
            DriverTask::FileCall(call, _, operation) => (call, operation),
            other => panic!("{} for {request:?}, {:?}", name(&other), self.all_replies(0)),
        }
    }

    pub fn answer(&mut self, call: CallId, answer: Answer) -> DriverTask {
        self.session.answered(call, answer, &mut self.out)
    }

    /// Answers a call and returns its reply on the control connection.
    pub fn reply_of(&mut self, call: CallId, answer: Answer) -> Reply {
        let todo = self.answer(call, answer);
        assert!(matches!(todo, DriverTask::Nothing), "{}", name(&todo));
        self.reply()
    }

    /// Requests a close, which starts immediately or waits. Returns the resulting task.
    pub fn close(&mut self, request: &Raw) -> Option<DriverTask> {
        match self.ask(request) {
            DriverTask::Nothing => self.session.next_todo(),
            todo => Some(todo),
        }
    }

    /// Returns the only reply on the control connection.
    pub fn reply(&mut self) -> Reply {
        let mut all = self.all_replies(0);
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    /// Asserts that the control connection has no reply.
    pub fn is_silent(&mut self) {
        assert!(self.out.0[0].is_empty(), "{:?}", self.all_replies(0));
    }

    pub fn out_is_empty(&self) -> bool {
        self.out.0[0].is_empty()
    }

    /// Returns all replies on a connection.
    pub fn all_replies(&mut self, link: u8) -> Vec<Reply> {
        Reply::all(&std::mem::take(self.out.link(PathId(link))))
    }

    /// Returns the bytes on a connection.
    pub fn bytes_on(&mut self, link: u8) -> Vec<u8> {
        std::mem::take(self.out.link(PathId(link)))
    }

    /// Opens a file and asserts the number of its handle.
    pub fn open(&mut self, path: &str, handle: u32) -> Arc<FakeFile> {
        let (call, operation) = self.operation(&open(path, 0x0020));
        assert!(matches!(operation, Operation::Open(..)));
        let file = FakeFile::new(path);
        let reply = self.reply_of(call, opened(&file));
        assert_eq!((reply.status, reply.body), (OK, handle.to_le_bytes().to_vec()));
        file
    }

    /// Ends the session and completes its releases. Returns the released paths in order.
    pub fn end(&mut self) -> Vec<String> {
        self.session.end();
        self.released()
    }

    /// Completes the releases of an ended session.
    pub fn released(&mut self) -> Vec<String> {
        let mut paths = Vec::new();
        while let Some(todo) = self.session.next_todo() {
            let DriverTask::FileCall(call, file, FileOperation::Abandon) = todo else {
                panic!("{}", name(&todo))
            };
            paths.push(file.path().text().into_owned());
            assert!(matches!(self.answer(call, Answer::DONE), DriverTask::Nothing));
        }
        paths
    }
}

pub const HANDSHAKE: [u8; 20] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 7, 0xdc];

pub fn login(generation: u8) -> Raw {
    Raw::new(LOGIN).i32(4, 4711).at(8, b"tester").at(18, &[generation])
}

pub fn open(path: &str, options: u16) -> Raw {
    Raw::new(OPEN).u16(4, 0o644).u16(6, options).payload(path.as_bytes())
}

pub fn by_path(code: u16, path: &str) -> Raw {
    Raw::new(code).payload(path.as_bytes())
}

/// Returns the answer to an open.
pub fn opened(file: &Arc<FakeFile>) -> Answer {
    Answer::Value(Value::Opened(Opened { file: file.clone(), stat: None }))
}

pub fn error(kind: ErrorKind, text: &str) -> Answer {
    Answer::Error(Error::new(kind, text))
}

/// Returns the status that the tests use.
pub fn stat() -> FileStat {
    FileStat {
        id: 7,
        size: 10_000,
        kind: FileKind::File,
        readable: true,
        writable: true,
        executable: false,
        offline: false,
        posc_pending: false,
        modified: 1,
        changed: 2,
        accessed: 3,
        mode: 0o644,
        owner: Arc::from("alice"),
        group: Arc::from("users"),
    }
}

pub const STAT_TEXT: &str = "7 10000 48 1 2 3 0644 alice users";

pub fn path_of(target: &Target) -> String {
    target.path.text().into_owned()
}

/// Extracts the request of an open.
pub fn open_request(operation: Operation) -> (Target, OpenRequest) {
    match operation {
        Operation::Open(target, request) => (target, *request),
        _ => panic!("no open"),
    }
}

/// Returns the name of a task, for messages.
pub fn name(todo: &DriverTask) -> &'static str {
    match todo {
        DriverTask::Nothing => "nothing",
        DriverTask::Close => "close",
        DriverTask::Call(..) => "call",
        DriverTask::FileCall(..) => "file call",
        DriverTask::Read(_) => "read",
        DriverTask::ReadVector(_) => "vector read",
        DriverTask::ReadWithHints(..) => "read with hints",
        DriverTask::Receive(_) => "receive",
        DriverTask::Proceed(_) => "proceed",
        DriverTask::Bind { .. } => "bind",
        DriverTask::EndSession { .. } => "end session",
        DriverTask::Authenticate(_) => "authenticate",
        DriverTask::StartTls => "start TLS",
        DriverTask::LoginRefused { .. } => "login refused",
        DriverTask::Statistics { .. } => "statistics",
        DriverTask::Monitor { .. } => "monitor",
    }
}

/// A reproducible pseudo-random number generator.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        let mut dice = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678);
        for _ in 0..4 {
            dice.below(1);
        }
        dice
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }
}
