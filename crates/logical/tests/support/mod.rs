//! A logical file system on the in-memory backend, and helpers that keep tests short.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)] // each test file uses its part

pub mod disk;
pub mod faults;
pub mod issuer;
pub mod memory;
pub mod shelf;
pub mod time;

use base::{Cgi, Error, ErrorKind, Identity, LogicalPath, LoginNames, Owner};
use logical::config::{Config, ExportConfig};
use logical::{
    Journals, ListReply, Logical, LogicalParts, NumberedUsers, UnfinishedFile, UnfinishedList, UserAccounts,
    WalkLimits,
};
use memory::Memory;
use shelf::Shelf;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use storage::faulty::FaultRules;
use storage::{Backend, Faulty};
use time::ManualClock;
use vfs::{
    Answer, Caller, FileOperation, FileStat, FileSystem, Mailbox, OpenFile, OpenRequest, Operation, ReplyTo,
    ReplyToken, Started, Target, TargetList, Value,
};

/// Time after which a test that waits for something has failed. Otherwise it would stop all further tests.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Deferred answers by call.
#[derive(Default)]
pub struct Post {
    arrived: Mutex<HashMap<u64, Answer>>,
    /// Calls whose clients were notified of a late answer.
    notified: Mutex<HashSet<u64>>,
    bell: Condvar,
    next: AtomicU64,
}

impl Mailbox for Post {
    fn deliver(&self, token: ReplyToken, answer: Answer) {
        let twice = self.arrived.lock().unwrap().insert(token.call, answer);
        assert!(twice.is_none(), "call {} was answered twice", token.call);
        self.bell.notify_all();
    }

    fn deliver_notice(&self, token: ReplyToken, _seconds: u32) {
        assert!(!self.arrived.lock().unwrap().contains_key(&token.call), "the notice came too late");
        assert!(self.notified.lock().unwrap().insert(token.call), "it was notified twice");
    }
}

/// A call that was started.
pub struct Call {
    pub started: Started,
    number: u64,
    post: Arc<Post>,
}

impl Call {
    /// Reports whether the call was answered at once.
    pub fn was_on_the_spot(&self) -> bool {
        matches!(self.started, Started::Done(_))
    }

    /// Reports whether the client was notified of a late answer.
    pub fn was_notified(&self) -> bool {
        self.post.notified.lock().unwrap().contains(&self.number)
    }

    /// Waits for the answer, and reports whether the client was notified before.
    pub fn answer_and_notice(self) -> (Answer, bool) {
        let (post, number) = (self.post.clone(), self.number);
        let answer = self.answer();
        let was_notified = post.notified.lock().unwrap().contains(&number);
        (answer, was_notified)
    }

    /// Waits for the answer.
    pub fn answer(self) -> Answer {
        if let Started::Done(answer) = self.started {
            return answer;
        }
        let mut arrived = self.post.arrived.lock().unwrap();
        loop {
            if let Some(answer) = arrived.remove(&self.number) {
                return answer;
            }
            let (rest, timeout) = self.post.bell.wait_timeout(arrived, PATIENCE).unwrap();
            assert!(!timeout.timed_out(), "call {} is not answered", self.number);
            arrived = rest;
        }
    }

    pub fn value(self) -> Value {
        match self.answer() {
            Answer::Value(value) => value,
            other => panic!("no value but {}", tell(&other)),
        }
    }

    pub fn error(self) -> Error {
        match self.answer() {
            Answer::Error(error) => error,
            other => panic!("no error but {}", tell(&other)),
        }
    }

    /// Returns the kind and text of the error.
    pub fn refusal(self) -> (ErrorKind, String) {
        let error = self.error();
        (error.kind, error.text)
    }

    pub fn done(self) {
        match self.answer() {
            Answer::Value(_) => {}
            other => panic!("not done but {}", tell(&other)),
        }
    }

    pub fn text(self) -> String {
        match self.value() {
            Value::Text(text) => String::from_utf8(text).unwrap(),
            _ => panic!("no text"),
        }
    }

    pub fn stat(self) -> FileStat {
        match self.value() {
            Value::Stat(stat) => stat,
            _ => panic!("no status"),
        }
    }

    pub fn opened(self) -> (Arc<dyn OpenFile>, Option<FileStat>) {
        match self.value() {
            Value::Opened(opened) => (opened.file, opened.stat),
            _ => panic!("not an open file"),
        }
    }

    pub fn file(self) -> Arc<dyn OpenFile> {
        self.opened().0
    }
}

pub fn tell(answer: &Answer) -> String {
    match answer {
        Answer::Value(_) => "a value".into(),
        Answer::Redirect(to) => format!("a redirect to {}", to.host),
        Answer::Wait { seconds, text } => format!("a wait of {seconds} s: {text}"),
        Answer::Error(error) => format!("{:?}: {}", error.kind, error.text),
    }
}

pub fn path(text: &str) -> LogicalPath {
    LogicalPath::parse(text.as_bytes()).unwrap()
}

/// Parses `path?cgi`.
pub fn target(text: &str) -> Target {
    let (path, cgi) = Cgi::split(text.as_bytes());
    Target { path: LogicalPath::parse(path).unwrap(), cgi }
}

/// Parses several targets, as in the list of a request.
pub fn targets(names: &[&str]) -> TargetList {
    TargetList::parse(names.join("\n").as_bytes(), "Stating").unwrap().unwrap()
}

pub fn caller(user: &str, pid: u32) -> Arc<Caller> {
    let told = LoginNames { user, host: "localhost", ..LoginNames::default() };
    Arc::new(Caller::new(Identity::new(&told, pid, None, "host"), true, false))
}

pub fn reading() -> OpenRequest {
    OpenRequest { read: true, ..OpenRequest::default() }
}

pub fn updating() -> OpenRequest {
    OpenRequest { read: true, write: true, ..OpenRequest::default() }
}

pub fn creating() -> OpenRequest {
    OpenRequest { new: true, mode: 0o644, ..updating() }
}

pub fn replacing() -> OpenRequest {
    OpenRequest { delete: true, mode: 0o644, ..updating() }
}

/// Adds persist on successful close and a status to an open.
pub fn posc(request: OpenRequest) -> OpenRequest {
    OpenRequest { posc: true, stat: true, ..request }
}

/// Reports whether a file is complete according to its status.
pub fn is_whole(server: &Server, name: &str) -> bool {
    !server.stat(name).stat().posc_pending
}

/// A receiver of a list of unfinished files, like an administrator's connection.
pub struct ListAsker {
    pub list: Sender<Result<UnfinishedList, Error>>,
    pub has_left: Arc<AtomicBool>,
}

impl ListReply for ListAsker {
    fn is_awaited(&self) -> bool {
        !self.has_left.load(Ordering::SeqCst)
    }
    fn send(self, list: Result<UnfinishedList, Error>) {
        self.list.send(list).unwrap();
    }
}

/// Returns the list that an administrator gets.
pub fn list_within(server: &Server, below: &str, limits: WalkLimits) -> Result<UnfinishedList, Error> {
    let (list, listed) = channel();
    server.logical.list_unfinished(&path(below), limits, ListAsker { list, has_left: Arc::default() });
    listed.recv_timeout(PATIENCE).unwrap()
}

/// Returns the unfinished files at and below a path in which everything is readable.
pub fn listed(server: &Server, below: &str) -> Vec<UnfinishedFile> {
    let list = list_within(server, below, WalkLimits::default()).unwrap();
    assert_eq!((list.unreadable, list.limit), (Vec::new(), None));
    list.files
}

/// Returns the wait that is sent to another client that opens the file.
pub fn waits(server: &Server, name: &str, request: OpenRequest) -> (u32, String) {
    match server.open_as(&caller("reader", 9), name, request).answer() {
        Answer::Wait { seconds, text } => (seconds, text),
        other => panic!("{}", tell(&other)),
    }
}

/// A client of a logical file system.
#[derive(Clone)]
pub struct Client {
    files: Arc<dyn FileSystem>,
    post: Arc<Post>,
    caller: Arc<Caller>,
    owner: Owner,
}

impl Client {
    pub fn new(files: Arc<dyn FileSystem>, caller: Arc<Caller>) -> Self {
        Self { files, post: Arc::default(), caller, owner: Owner::unique() }
    }

    fn reply(&self) -> (ReplyTo, u64) {
        let number = self.post.next.fetch_add(1, Ordering::SeqCst);
        (ReplyTo::new(self.post.clone(), ReplyToken { owner: self.owner.0, call: number }), number)
    }

    pub fn call_as(&self, caller: &Arc<Caller>, operation: Operation) -> Call {
        let (reply, number) = self.reply();
        let started = self.files.start(caller, operation, &reply);
        Call { started, number, post: self.post.clone() }
    }

    pub fn call(&self, operation: Operation) -> Call {
        self.call_as(&self.caller, operation)
    }

    pub fn open_as(&self, caller: &Arc<Caller>, name: &str, request: OpenRequest) -> Call {
        self.call_as(caller, Operation::Open(target(name), Box::new(request)))
    }

    pub fn open(&self, name: &str, request: OpenRequest) -> Call {
        self.open_as(&self.caller, name, request)
    }

    pub fn on_file(&self, file: &Arc<dyn OpenFile>, operation: FileOperation) -> Call {
        let (reply, number) = self.reply();
        let started = file.start(operation, &reply);
        Call { started, number, post: self.post.clone() }
    }

    pub fn write(&self, file: &Arc<dyn OpenFile>, offset: u64, bytes: &[u8]) -> Call {
        self.on_file(file, FileOperation::Write { buffer: bytes.to_vec(), offset, checkpoint: false })
    }

    pub fn close(&self, file: &Arc<dyn OpenFile>) -> Call {
        self.on_file(file, FileOperation::Close { failed: false })
    }

    pub fn abandon(&self, file: &Arc<dyn OpenFile>) -> Call {
        self.on_file(file, FileOperation::Abandon)
    }
}

/// Returns the ways in which a server may stop: killed, or by a power failure with one of these
/// seeds.
pub fn stops() -> impl Iterator<Item = Option<u64>> {
    std::iter::once(None).chain((0..16).map(Some))
}

/// A server on the in-memory backend, with its own client.
pub struct Server {
    pub logical: Arc<Logical>,
    pub memory: Memory,
    pub clock: Arc<ManualClock>,
    pub config: Config,
    client: Client,
    pub persist: Shelf,
    pub checkpoints: Shelf,
}

/// Returns the exports `/data` with locks, `/nolock` without, `/ro` read-only.
pub fn exports() -> Vec<ExportConfig> {
    vec![
        ExportConfig::new(path("/data")),
        ExportConfig { lock: false, ..ExportConfig::new(path("/nolock")) },
        ExportConfig { read_only: true, ..ExportConfig::new(path("/ro")) },
    ]
}

pub fn config() -> Config {
    Config::new(exports(), "/nowhere".into())
}

impl Server {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(adjust: impl FnOnce(&mut Config)) -> Self {
        Self::over(adjust, |memory| memory)
    }

    /// Starts a server on the storage that `wrap` returns for its memory.
    pub fn over(
        adjust: impl FnOnce(&mut Config),
        wrap: impl FnOnce(Arc<dyn Backend>) -> Arc<dyn Backend>,
    ) -> Self {
        let clock = Arc::new(ManualClock::default());
        let memory = Memory::new(&clock);
        for directory in ["/data/x", "/nolock/x", "/ro/x"] {
            memory.put(directory, b"");
        }
        let mut config = config();
        adjust(&mut config);
        let shelf = || Shelf::new(memory.faults());
        let backend = wrap(Arc::new(memory.clone()));
        Self::on(&memory, backend, &clock, config, shelf(), shelf()).unwrap()
    }

    /// Starts a server on fault-injecting storage.
    pub fn with_rules() -> (Self, Arc<FaultRules>) {
        let mut rules = None;
        let wrap = |memory| {
            let faulty = Faulty::new(memory);
            rules = Some(faulty.rules().clone());
            Arc::new(faulty) as Arc<dyn Backend>
        };
        let server = Self::over(|_| {}, wrap);
        (server, rules.unwrap())
    }

    /// Starts a server that acts for the users of these accounts.
    pub fn for_users(accounts: UserAccounts) -> Self {
        let clock = Arc::new(ManualClock::default());
        let memory = Memory::new(&clock);
        memory.put("/data/x", b"");
        let journals = (Shelf::new(memory.faults()), Shelf::new(memory.faults()));
        let backend = Arc::new(memory.clone());
        Self::acting_for(Some(accounts), &memory, backend, (&clock, config()), journals).unwrap()
    }

    fn on(
        memory: &Memory,
        backend: Arc<dyn Backend>,
        clock: &Arc<ManualClock>,
        config: Config,
        persist: Shelf,
        checkpoints: Shelf,
    ) -> Result<Self, Error> {
        Self::acting_for(None, memory, backend, (clock, config), (persist, checkpoints))
    }

    fn acting_for(
        accounts: Option<UserAccounts>,
        memory: &Memory,
        backend: Arc<dyn Backend>,
        (clock, config): (&Arc<ManualClock>, Config),
        (persist, checkpoints): (Shelf, Shelf),
    ) -> Result<Self, Error> {
        let parts = LogicalParts {
            config: config.clone(),
            backend,
            clock: clock.clone(),
            users: Arc::new(NumberedUsers),
            locator: None,
            accounts,
            journals: Journals {
                persist: Arc::new(persist.clone()),
                checkpoints: Arc::new(checkpoints.clone()),
            },
        };
        let logical = Logical::new(parts)?;
        Ok(Self {
            client: Client::new(logical.clone(), caller("alice", 1)),
            logical,
            memory: memory.clone(),
            clock: clock.clone(),
            config,
            persist,
            checkpoints,
        })
    }

    /// Starts another server on the disk of this one, with its own journals.
    pub fn on_disk_of(other: &Self) -> Self {
        let memory = other.memory.survivor(None);
        let shelf = || Shelf::new(memory.faults());
        let backend = Arc::new(memory.clone());
        Self::on(&memory, backend, &other.clock, other.config.clone(), shelf(), shelf()).unwrap()
    }

    /// Starts the next process on the same disks.
    pub fn restarted(&self) -> Self {
        self.after_stop(None)
    }

    /// Starts the next process on the same disks. With a seed there was a power failure in between,
    /// and the seed selects the unsynced effects that survived.
    pub fn after_stop(&self, power_cut: Option<u64>) -> Self {
        let memory = self.memory.survivor(power_cut);
        self.restarted_on(&memory, power_cut)
    }

    /// Starts the next process with the same journals on this disk.
    pub fn restarted_on(&self, memory: &Memory, power_cut: Option<u64>) -> Self {
        let persist = self.persist.survivor(memory.faults(), power_cut);
        let checkpoints = self.checkpoints.survivor(memory.faults(), power_cut);
        let backend = Arc::new(memory.clone());
        Self::on(memory, backend, &self.clock, self.config.clone(), persist, checkpoints).unwrap()
    }

    /// Advances the clock and calls [`Logical::tick`].
    pub fn after(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
        self.logical.tick();
        // The work of the tick runs on the pool and has to complete.
        self.settle();
    }

    /// Waits until the pool has no more work.
    pub fn settle(&self) {
        self.memory.quiesce();
    }

    pub fn stat(&self, name: &str) -> Call {
        self.call(Operation::Stat(target(name)))
    }
}

impl std::ops::Deref for Server {
    type Target = Client;
    fn deref(&self) -> &Client {
        &self.client
    }
}
