//! Third-party copies of files that are not on the server, in front of a file system that records what it gets.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, unreachable_pub)] // each test file uses its part
#[path = "support/time.rs"]
mod time;

use base::{Cgi, Error, ErrorKind, Identity, LogicalPath, LoginNames};
use logical::{
    CopyingFiles, Fetcher, HostLookup, RunningTransfer, ThirdPartyParts, ThirdPartySettings,
    TransferCompletion, TransferRequest, TransferResult, TransferSink,
};
use std::any::Any;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use time::ManualClock;
use vfs::{
    Answer, Caller, DeferredReply, FileKind, FileOperation, FileStat, FileSystem, Mailbox, OpenFile,
    OpenRequest, Opened, Operation, ReplyTo, ReplyToken, Started, Target, Value,
};

/// Time after which a test that waits for something has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A file with its number.
type Inode = Arc<Mutex<(u64, Vec<u8>)>>;

/// The files behind. Each request is one line of the record.
#[derive(Default)]
struct Behind {
    files: Mutex<BTreeMap<Vec<u8>, Inode>>,
    record: Mutex<Vec<String>>,
    last: Mutex<u64>,
    /// Opens are answered by the test.
    is_late: AtomicBool,
    late: Mutex<Vec<LateOpen>>,
    /// Writes are not answered before they are given up.
    is_hung: AtomicBool,
    hung: Mutex<Vec<DeferredReply>>,
    /// Called when the next write that hangs is begun, before it can be given up.
    at_begin: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

/// The open of a file whose answer is not sent yet.
struct LateOpen {
    caller: Arc<Caller>,
    opened: Opened,
    later: DeferredReply,
}

impl LateOpen {
    /// Answers as files behind that end the requests of clients that have left.
    fn answer(self) {
        match self.caller.is_disconnected() {
            true => self.later.send(Answer::error(ErrorKind::Cancelled, "the client has left")),
            false => self.later.send(Answer::Value(Value::Opened(self.opened))),
        }
    }
}

struct BehindFile {
    behind: Arc<Behind>,
    path: LogicalPath,
    inode: Inode,
    is_interrupted: AtomicBool,
}

fn stat(inode: &Inode) -> FileStat {
    let inode = inode.lock().unwrap();
    FileStat {
        id: inode.0,
        size: inode.1.len() as u64,
        kind: FileKind::File,
        readable: true,
        writable: true,
        executable: false,
        offline: false,
        posc_pending: false,
        modified: 0,
        changed: 0,
        accessed: 0,
        mode: 0o644,
        owner: "u".into(),
        group: "g".into(),
    }
}

impl Behind {
    fn note(&self, line: String) {
        self.record.lock().unwrap().push(line);
    }

    fn put(&self, path: &str, content: &[u8]) -> Inode {
        let mut last = self.last.lock().unwrap();
        *last += 1;
        let inode = Arc::new(Mutex::new((*last, content.to_vec())));
        self.files.lock().unwrap().insert(path.as_bytes().to_vec(), inode.clone());
        inode
    }

    fn get(&self, path: &str) -> Option<Vec<u8>> {
        Some(self.files.lock().unwrap().get(path.as_bytes())?.lock().unwrap().1.clone())
    }

    fn take_record(&self) -> Vec<String> {
        std::mem::take(&mut self.record.lock().unwrap())
    }
}

/// The file system with the files of `Behind`.
struct BehindFiles(Arc<Behind>);

impl FileSystem for BehindFiles {
    fn start(&self, caller: &Arc<Caller>, operation: Operation, reply: &ReplyTo) -> Started {
        let (behind, who) = (&self.0, caller.identity.user().to_owned());
        let found = |path: &LogicalPath| behind.files.lock().unwrap().get(path.as_bytes()).cloned();
        let missing = || Started::Done(Answer::error(ErrorKind::NotFound, "missing"));
        match operation {
            Operation::Open(target, request) => {
                let cgi = String::from_utf8_lossy(target.cgi.as_bytes()).into_owned();
                behind.note(format!("{who} opens {}?{cgi}", target.path.text()));
                let creates = request.new || request.delete;
                let inode = match creates {
                    true => Some(behind.put(&target.path.text(), b"")),
                    false => found(&target.path),
                };
                let Some(inode) = inode else { return missing() };
                let is_interrupted = AtomicBool::new(false);
                let file = BehindFile { behind: behind.clone(), path: target.path, inode, is_interrupted };
                let opened = Opened { file: Arc::new(file), stat: None };
                if behind.is_late.load(Ordering::Relaxed) {
                    let (caller, later) = (caller.clone(), reply.defer());
                    behind.late.lock().unwrap().push(LateOpen { caller, opened, later });
                    return Started::Pending;
                }
                Started::Done(Answer::Value(Value::Opened(opened)))
            }
            Operation::Stat(target) => match found(&target.path) {
                Some(inode) => Started::Done(Answer::Value(Value::Stat(stat(&inode)))),
                None => missing(),
            },
            Operation::Remove(target) => {
                behind.note(format!("{who} removes {}", target.path.text()));
                behind.files.lock().unwrap().remove(target.path.as_bytes());
                Started::Done(Answer::DONE)
            }
            _ => Started::Done(Answer::error(ErrorKind::Unsupported, "not here")),
        }
    }
}

impl OpenFile for BehindFile {
    fn path(&self) -> &LogicalPath {
        &self.path
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn start(&self, operation: FileOperation, reply: &ReplyTo) -> Started {
        let mut inode = self.inode.lock().unwrap();
        let content = &mut inode.1;
        let value = match operation {
            FileOperation::Write { .. } if self.behind.is_hung.load(Ordering::Relaxed) => {
                if let Some(act) = self.behind.at_begin.lock().unwrap().take() {
                    act();
                }
                self.behind.hung.lock().unwrap().push(reply.defer());
                return Started::Pending;
            }
            FileOperation::Write { buffer, offset, .. } => {
                let offset = usize::try_from(offset).unwrap();
                content.resize(content.len().max(offset + buffer.len()), 0);
                content[offset..offset + buffer.len()].copy_from_slice(&buffer);
                Value::Written { buffer }
            }
            FileOperation::Truncate { size, .. } => {
                self.behind.note(format!("truncated to {size}"));
                content.resize(usize::try_from(size).unwrap(), 0);
                Value::Nothing
            }
            FileOperation::Stat if self.is_interrupted.load(Ordering::Relaxed) => {
                return Started::Done(Answer::error(ErrorKind::Cancelled, "the client has left"));
            }
            FileOperation::Stat => {
                drop(inode);
                Value::Stat(stat(&self.inode))
            }
            FileOperation::Close { failed: true } => {
                self.behind.note("given up".to_owned());
                Value::Nothing
            }
            FileOperation::Close { .. } | FileOperation::Abandon => {
                self.behind.note("closed".to_owned());
                Value::Nothing
            }
            _ => Value::Nothing,
        };
        Started::Done(Answer::Value(value))
    }

    fn interrupt(&self) {
        self.is_interrupted.store(true, Ordering::Relaxed);
    }

    fn give_up(&self) {
        for later in std::mem::take(&mut *self.behind.hung.lock().unwrap()) {
            later.send(Answer::error(ErrorKind::Cancelled, "given up"));
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A transfer that the test makes.
struct Transfer {
    sink: Arc<dyn TransferSink>,
    finish: TransferCompletion,
}

struct Hand(Mutex<mpsc::Sender<Transfer>>);
struct NotCancelled;

impl RunningTransfer for NotCancelled {
    fn cancel(&self) {}
}

impl Fetcher for Hand {
    fn start(
        &self,
        _: TransferRequest,
        sink: Arc<dyn TransferSink>,
        finish: TransferCompletion,
    ) -> Box<dyn RunningTransfer> {
        self.0.lock().unwrap().send(Transfer { sink, finish }).unwrap();
        Box::new(NotCancelled)
    }
}

struct NoNames;

impl HostLookup for NoNames {
    fn addresses(&self, _: &str) -> Vec<IpAddr> {
        Vec::new()
    }

    fn name(&self, _: IpAddr) -> Option<String> {
        None
    }
}

/// Passes answers to the test.
struct Post(Mutex<mpsc::Sender<Answer>>);

impl Mailbox for Post {
    fn deliver(&self, _: ReplyToken, answer: Answer) {
        self.0.lock().unwrap().send(answer).ok();
    }
}

struct Stage {
    files: Arc<CopyingFiles>,
    behind: Arc<Behind>,
    transfers: Receiver<Transfer>,
    clock: Arc<ManualClock>,
}

fn stage(offers_copies: bool) -> Stage {
    let (behind, clock) = (Arc::<Behind>::default(), Arc::new(ManualClock::default()));
    let (give, transfers) = mpsc::channel();
    let parts = ThirdPartyParts {
        settings: ThirdPartySettings::default(),
        fetcher: Arc::new(Hand(Mutex::new(give))),
        names: Arc::new(NoNames),
        observer: None,
    };
    let below = Arc::new(BehindFiles(behind.clone()));
    let files = CopyingFiles::before(below, offers_copies.then_some(parts), clock.clone());
    Stage { files, behind, transfers, clock }
}

fn client(user: &str, address: &str) -> Arc<Caller> {
    let names = LoginNames { user, host: address, ..LoginNames::default() };
    Arc::new(Caller::new(Identity::new(&names, 7, address.parse().ok(), "host"), true, false))
}

fn reading() -> OpenRequest {
    OpenRequest { read: true, ..OpenRequest::default() }
}

fn creating() -> OpenRequest {
    OpenRequest { write: true, delete: true, ..OpenRequest::default() }
}

/// An answer on its way.
struct Pending(Receiver<Answer>);

impl Pending {
    fn of(start: impl FnOnce(&ReplyTo) -> Started) -> Self {
        let (send, answers) = mpsc::channel();
        let reply = ReplyTo::new(Arc::new(Post(Mutex::new(send.clone()))), ReplyToken { owner: 1, call: 1 });
        if let Started::Done(answer) = start(&reply) {
            send.send(answer).unwrap();
        }
        Self(answers)
    }

    fn answer(self) -> Answer {
        self.0.recv_timeout(PATIENCE).unwrap()
    }

    fn is_pending(&self) -> bool {
        self.0.recv_timeout(Duration::ZERO).err() == Some(RecvTimeoutError::Timeout)
    }

    fn file(self) -> Arc<dyn OpenFile> {
        match self.answer() {
            Answer::Value(Value::Opened(opened)) => opened.file,
            Answer::Error(error) => panic!("{}", error.text),
            _ => panic!("no file"),
        }
    }

    fn error(self) -> Error {
        match self.answer() {
            Answer::Error(error) => error,
            _ => panic!("no error"),
        }
    }

    fn done(self) {
        if let Answer::Error(error) = self.answer() {
            panic!("{}", error.text);
        }
    }
}

impl Stage {
    fn open(&self, who: &Arc<Caller>, target: &str, request: OpenRequest) -> Pending {
        let (path, cgi) = Cgi::split(target.as_bytes());
        let target = Target { path: LogicalPath::parse(path).unwrap(), cgi };
        Pending::of(|reply| self.files.start(who, Operation::Open(target, Box::new(request)), reply))
    }
}

fn ask(file: &Arc<dyn OpenFile>, operation: FileOperation) -> Pending {
    Pending::of(|reply| file.start(operation, reply))
}

const GRANT: &str = "/f?authz=ticket&tpc.key=k&tpc.dst=10.0.0.2&tpc.ttl=9";
const COLLECT: &str = "/f?tpc.key=k&tpc.org=alice.7@10.0.0.1&authz=other";
const PULL: &str = "/new?authz=ticket&tpc.key=k&tpc.src=h:1&tpc.lfn=/f";

#[test]
fn a_destination_gets_the_file_by_the_open_of_the_client_that_granted_it() {
    let stage = stage(true);
    stage.behind.put("/f", b"12345");
    let (alice, target) = (client("alice", "10.0.0.1"), client("daemon", "10.0.0.2"));
    let early = stage.open(&target, COLLECT, reading());
    assert!(early.is_pending() && stage.behind.take_record().is_empty(), "nothing is opened without a grant");
    let held = stage.open(&alice, GRANT, reading()).file();
    assert!(matches!(early.answer(), Answer::Wait { seconds: 0, .. }));
    stage.open(&target, COLLECT, reading()).done();
    assert_eq!(stage.behind.take_record(), ["alice opens /f?authz=ticket"; 2]);
    // It is used up, and ends with its file.
    let again = stage.open(&target, COLLECT, reading());
    ask(&held, FileOperation::Close { failed: false }).done();
    let _granted = stage.open(&alice, GRANT, reading()).file();
    assert!(matches!(again.answer(), Answer::Wait { .. }));
    drop(_granted);
    let late = stage.open(&target, COLLECT, reading());
    stage.clock.advance(Duration::from_secs(16));
    stage.files.tick();
    assert_eq!(late.error().kind, ErrorKind::NotAuthorized);
}

#[test]
fn without_copies_only_ordinary_opens_pass() {
    let stage = stage(false);
    stage.behind.put("/f", b"12345");
    let alice = client("alice", "10.0.0.1");
    for (target, request) in [(GRANT, reading()), (COLLECT, reading()), (PULL, creating())] {
        assert_eq!(stage.open(&alice, target, request).error().kind, ErrorKind::Unsupported, "{target}");
    }
    assert!(stage.behind.take_record().is_empty());
    stage.open(&alice, "/f?tpc.stage=placement&a=b", reading()).done();
    assert_eq!(stage.behind.take_record()[0], "alice opens /f?a=b");
}

/// Begins a copy, and returns its file, its result and the transfer.
fn copying(stage: &Stage) -> (Arc<dyn OpenFile>, Pending, Transfer) {
    let file = stage.open(&client("alice", "10.0.0.1"), PULL, creating()).file();
    ask(&file, FileOperation::Sync).done();
    let result = ask(&file, FileOperation::Sync);
    let transfer = stage.transfers.recv_timeout(PATIENCE).unwrap();
    let (send, written) = mpsc::channel();
    let then = move |result: Result<(), Error>| send.send(result.is_ok()).unwrap();
    transfer.sink.write(0, Box::new(b"12345".to_vec()), Box::new(then));
    assert!(written.recv_timeout(PATIENCE).unwrap());
    (file, result, transfer)
}

#[test]
fn a_complete_copy_stays() {
    let stage = stage(true);
    let (file, result, transfer) = copying(&stage);
    let refused = ask(&file, FileOperation::Write { buffer: b"x".to_vec(), offset: 0, checkpoint: false });
    assert_eq!(refused.error().kind, ErrorKind::InvalidRequest);
    transfer.finish.done(Ok(TransferResult { bytes: 5, checksum: None, verified: false }));
    drop(transfer.sink);
    result.done();
    ask(&file, FileOperation::Close { failed: false }).done();
    assert_eq!(stage.behind.get("/new").as_deref(), Some(&b"12345"[..]));
    assert_eq!(stage.behind.take_record(), ["alice opens /new?authz=ticket", "closed"]);
}

#[test]
fn an_incomplete_copy_is_emptied_and_removed_before_it_is_closed() {
    // It has failed, lacks a part, is closed too early, or its client has left.
    for case in ["failed", "short", "closed", "left"] {
        let stage = stage(true);
        let (file, result, transfer) = copying(&stage);
        let Transfer { sink, finish } = transfer;
        let end = || match case {
            "short" => finish.done(Ok(TransferResult { bytes: 6, checksum: None, verified: false })),
            _ => finish.done(Err(Error::new(ErrorKind::FsError, "lost"))),
        };
        match case {
            "failed" | "short" => {
                end();
                result.error();
                ask(&file, FileOperation::Close { failed: false }).done();
            }
            "closed" => {
                let closed = ask(&file, FileOperation::Close { failed: false });
                assert!(closed.is_pending(), "a transfer in progress may still write");
                assert_eq!(result.error().kind, ErrorKind::Cancelled);
                end();
                closed.done();
            }
            _ => {
                file.interrupt();
                drop(file);
                end();
            }
        }
        drop(sink);
        assert_eq!(stage.behind.get("/new"), None, "{case}");
        let record = stage.behind.take_record();
        assert_eq!(record[1..], ["truncated to 0", "alice removes /new", "closed"], "{case}");
    }
}

#[test]
fn a_destination_that_is_opened_after_its_client_has_left_is_removed() {
    let stage = stage(true);
    stage.behind.is_late.store(true, Ordering::Relaxed);
    let alice = client("alice", "10.0.0.1");
    let open = stage.open(&alice, PULL, creating());
    let late = stage.behind.late.lock().unwrap().pop().unwrap();
    assert!(open.is_pending() && stage.behind.get("/new").is_some());
    // The session ends, and with it the place of the answer.
    alice.disconnect();
    drop(open);
    late.answer();
    assert_eq!(stage.behind.get("/new"), None);
    let record = stage.behind.take_record();
    assert_eq!(record[1..], ["truncated to 0", "alice removes /new", "closed"]);
}

#[test]
fn a_file_that_took_the_name_of_a_failed_copy_stays() {
    let stage = stage(true);
    let (file, result, transfer) = copying(&stage);
    stage.behind.put("/new", b"");
    transfer.finish.done(Err(Error::new(ErrorKind::FsError, "lost")));
    result.error();
    ask(&file, FileOperation::Close { failed: true }).done();
    assert_eq!(stage.behind.get("/new").as_deref(), Some(&b""[..]));
    let record = stage.behind.take_record();
    assert_eq!(record.last().unwrap(), "given up", "it does not persist: {record:?}");
}

#[test]
fn a_stopped_copy_does_not_wait_for_writes_that_are_never_answered() {
    for case in ["silent", "closed"] {
        let stage = stage(true);
        let (file, result, Transfer { sink, finish }) = copying(&stage);
        stage.behind.is_hung.store(true, Ordering::Relaxed);
        let (send, written) = mpsc::channel();
        let write = |offset| {
            let send = send.clone();
            let then = move |result: Result<(), Error>| send.send(result.is_ok()).unwrap();
            sink.write(offset, Box::new(b"12345".to_vec()), Box::new(then));
        };
        write(5);
        assert!(written.try_recv().is_err());
        let closed = match case {
            "silent" => {
                stage.clock.advance(Duration::from_secs(121));
                stage.files.tick();
                None
            }
            _ => Some(ask(&file, FileOperation::Close { failed: false })),
        };
        result.error();
        assert_eq!(written.recv_timeout(PATIENCE), Ok(false), "{case}: it has ended");
        write(10);
        assert_eq!(written.recv_timeout(PATIENCE), Ok(false), "{case}: nothing more is written");
        // The fetcher ends when its writes have, and the place is free.
        finish.done(Err(Error::new(ErrorKind::Cancelled, "cancelled")));
        closed.unwrap_or_else(|| ask(&file, FileOperation::Close { failed: false })).done();
        assert_eq!(stage.behind.get("/new"), None, "{case}");
    }
}

#[test]
fn a_write_that_begins_while_its_copy_is_stopped_is_given_up() {
    let stage = stage(true);
    let (file, result, Transfer { sink, finish }) = copying(&stage);
    stage.behind.is_hung.store(true, Ordering::Relaxed);
    let (give, closed) = mpsc::channel();
    let of_client = file.clone();
    let close = move || give.send(ask(&of_client, FileOperation::Close { failed: false })).unwrap();
    *stage.behind.at_begin.lock().unwrap() = Some(Box::new(close));
    let (send, written) = mpsc::channel();
    let then = move |result: Result<(), Error>| send.send(result.is_ok()).unwrap();
    sink.write(5, Box::new(b"12345".to_vec()), Box::new(then));
    assert_eq!(written.recv_timeout(PATIENCE), Ok(false));
    result.error();
    finish.done(Err(Error::new(ErrorKind::Cancelled, "cancelled")));
    closed.recv_timeout(PATIENCE).unwrap().done();
    assert_eq!(stage.behind.get("/new"), None);
}

#[test]
fn without_ids_no_file_is_removed() {
    let stage = stage(true);
    let (file, result, transfer) = copying(&stage);
    stage.behind.files.lock().unwrap()[&b"/new"[..]].lock().unwrap().0 = 0;
    stage.behind.put("/new", b"").lock().unwrap().0 = 0;
    transfer.finish.done(Err(Error::new(ErrorKind::FsError, "lost")));
    result.error();
    ask(&file, FileOperation::Close { failed: true }).done();
    assert_eq!(stage.behind.get("/new").as_deref(), Some(&b""[..]));
}
