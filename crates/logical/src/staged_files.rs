//! [`StagedFiles`]: a file system whose missing files may be in mass storage.
//!
//! An open of such a file waits until it is online, without a thread, and starts again. A stat
//! returns the status in mass storage. A prepare request records all files of its list before its
//! id is returned.

use crate::describe::{self, StatView};
use crate::errno;
use crate::file_system::Logical;
use crate::job;
use crate::prepare;
use crate::staged_names::{self, RenamedTargets};
use crate::stager::{StageNotice, StageRequest, Stager};
use crate::tape::{self, TapePools};
use base::{Error, ErrorKind, LogicalPath};
use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use storage::{Now, Pool};
use vfs::{
    Answer, Caller, FileSystem, ListDetail, OpenFile, OpenRequest, Operation, PrepareRequest, RedirectAnswer,
    ReplyTo, Started, Target, TargetList, Value,
};

/// Time that is sent with the deferral of an open, in seconds.
const LATER_SECONDS: u32 = 1800;

/// The protocol of clients that only their address identifies.
const UNAUTHENTICATED: &str = "host";

/// Maximum number of threads that wait for the catalog of mass storage, or read lists of paths.
const THREADS_MAX: usize = 8;

/// Maximum number of listings of mass storage at once.
const LISTINGS_MAX: usize = 2;

/// A file system in front of mass storage.
pub struct StagedFiles(Arc<StagedServices>);

pub(crate) struct StagedServices {
    pub(crate) inner: Arc<Logical>,
    pub(crate) stager: Arc<dyn Stager>,
    pub(crate) pool: Arc<Pool>,
    /// Asks for listings, which may take long.
    pub(crate) listings: Arc<Pool>,
    /// Bytes of the names in mass storage that listings keep.
    pub(crate) listed_bytes: Arc<AtomicUsize>,
    pub(crate) tape: TapePools,
}

impl StagedFiles {
    /// Creates it.
    pub fn before(inner: Arc<Logical>, stager: Arc<dyn Stager>) -> Arc<dyn FileSystem> {
        Arc::new(Self(Arc::new(StagedServices {
            inner,
            stager,
            pool: Pool::new("staging", THREADS_MAX),
            listings: Pool::new("tape-listing", LISTINGS_MAX),
            listed_bytes: Arc::default(),
            tape: TapePools::new(),
        })))
    }
}

impl FileSystem for StagedFiles {
    fn start(&self, caller: &Arc<Caller>, operation: Operation, reply: &ReplyTo) -> Started {
        let services = &self.0;
        match operation {
            Operation::Open(target, request) if services.stages_new(&target.path, &request) => {
                open_new(services, caller, target, request, reply)
            }
            Operation::Open(target, request) if services.asks_before(&target.path, &request) => {
                staged_names::create(services, caller, (target, request), reply)
            }
            Operation::Open(target, request) if services.may_stage(&target.path, &request) => {
                open(services, caller, target, request, reply)
            }
            Operation::Remove(target) if services.is_remote(&target.path) => {
                staged_names::remove(services, caller, target, reply)
            }
            Operation::Rename { from, to, replace, existing_parent }
                if services.is_remote(&from.path) && services.is_remote(&to.path) =>
            {
                let names = RenamedTargets { from, to, replace, existing_parent };
                staged_names::rename(services, caller, names, reply)
            }
            Operation::List(target, detail) if services.lists_remote(&target.path, detail) => {
                staged_names::list(services, caller, (target, detail), reply)
            }
            Operation::ListMore(position) if staged_names::is_merged(&*position) => {
                staged_names::list_more(services, caller, position, reply)
            }
            Operation::Stat(target) if services.has_status(&target.path) => {
                stat(services, caller, target, reply)
            }
            Operation::Prepare(request, targets) if request.stage && !request.evict => {
                prepare_files(services, caller, request, targets, reply)
            }
            Operation::Tape(request) => tape::start(services, caller, *request, reply),
            Operation::CancelPrepare { id } => cancel(services, caller, id, reply),
            Operation::QueryPrepare { id, targets } => query(services, caller, id, targets, reply),
            other => services.inner.start(caller, other, reply),
        }
    }

    fn read_redirect(&self, caller: &Caller, file: &dyn OpenFile) -> Option<RedirectAnswer> {
        self.0.inner.read_redirect(caller, file)
    }
}

impl StagedServices {
    fn may_stage(&self, path: &LogicalPath, request: &OpenRequest) -> bool {
        !request.new && !request.delete && *path == path.without_slash() && self.inner.stages(path)
    }

    /// Reports whether a file that a client creates, and that is missing, comes from mass storage like one that it reads.
    fn stages_new(&self, path: &LogicalPath, request: &OpenRequest) -> bool {
        let is_reserved = || path.file_name().is_some_and(|name| name.starts_with(storage::INCOMING_PREFIX));
        self.stager.stages_new_files()
            && (request.new || request.delete)
            && *path == path.without_slash()
            && self.inner.stages(path)
            && !self.inner.is_read_only(path)
            && !is_reserved()
    }

    /// Reports whether mass storage is asked before a file is created, or creates it too.
    fn asks_before(&self, path: &LogicalPath, request: &OpenRequest) -> bool {
        let checks = || request.new && self.inner.checks(path);
        // No file has a slash at the end of its name, so mass storage does not get one either.
        let is_plain = *path == path.without_slash();
        let creates = || is_plain && (request.new || request.delete) && self.inner.creates_remote(path);
        self.stager.has_catalog() && (checks() || creates())
    }

    fn is_remote(&self, path: &LogicalPath) -> bool {
        self.stager.has_catalog() && self.inner.is_remote(path)
    }

    /// Clients drop names without a status if they want one.
    fn lists_remote(&self, path: &LogicalPath, detail: ListDetail) -> bool {
        let is_plain = !detail.online && !detail.stat && !detail.checksum;
        is_plain && self.stager.has_catalog() && self.inner.lists_remote(path) && !self.inner.acts_for_users()
    }

    fn has_status(&self, path: &LogicalPath) -> bool {
        self.stager.has_catalog() && self.inner.stages(path)
    }

    /// Starts an operation of the file system behind, and continues with its answer.
    pub(crate) fn start_then(
        &self,
        caller: &Arc<Caller>,
        operation: Operation,
        reply: &ReplyTo,
        then: impl FnOnce(Answer, &ReplyTo) -> Started + Send + 'static,
    ) -> Started {
        let slot = Arc::new(Mutex::new(Some(then)));
        let (inside, client) = (slot.clone(), reply.clone());
        let detour = reply.intercept(move |answer| {
            let then = inside.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(then) = then {
                let obligation = client.defer();
                match then(answer, &client) {
                    Started::Done(answer) => obligation.send(answer),
                    Started::Pending | Started::Later { .. } => obligation.release(),
                }
            }
        });
        match self.inner.start(caller, operation, &detour) {
            Started::Done(answer) => match slot.lock().unwrap_or_else(PoisonError::into_inner).take() {
                Some(then) => then(answer, reply),
                None => Started::Pending,
            },
            pending => pending,
        }
    }
}

pub(crate) fn is_missing(answer: &Answer) -> bool {
    matches!(answer, Answer::Error(error) if error.kind == ErrorKind::NotFound)
}

pub(crate) fn request_for(caller: &Caller, target: &Target, priority: u8) -> StageRequest {
    let client = caller.identity.to_string().into();
    StageRequest { path: target.path.without_slash(), priority, client, owner: request_owner(caller) }
}

/// The begin of the owner of requests of authenticated clients.
pub(crate) const USER_OWNER: &str = "user ";

/// Returns the owner of the requests of a client.
pub(crate) fn request_owner(caller: &Caller) -> Arc<str> {
    let identity = &caller.identity;
    let name = caller.entity().and_then(|entity| entity.name.as_deref());
    match name.filter(|_| identity.protocol() != UNAUTHENTICATED) {
        Some(name) => format!("{USER_OWNER}{name}").into(),
        None => format!("host {}", identity.host()).into(),
    }
}

/// Opens a file. If it is missing, brings it online first.
fn open(
    services: &Arc<StagedServices>,
    caller: &Arc<Caller>,
    target: Target,
    request: Box<OpenRequest>,
    reply: &ReplyTo,
) -> Started {
    let again = (target.clone(), request.clone());
    let (inside, client) = (services.clone(), caller.clone());
    services.start_then(caller, Operation::Open(target, request), reply, move |answer, reply| {
        if is_missing(&answer) { fetch(&inside, &client, again, reply) } else { Started::Done(answer) }
    })
}

/// Creates a file in a file system in which the stager makes the missing files. The open follows, and finds the file: one
/// that must be new fails then, and others replace it.
fn open_new(
    services: &Arc<StagedServices>,
    caller: &Arc<Caller>,
    target: Target,
    request: Box<OpenRequest>,
    reply: &ReplyTo,
) -> Started {
    let (inside, client, found) = (services.clone(), caller.clone(), target.clone());
    services.start_then(caller, Operation::Stat(found), reply, move |answer, reply| {
        if is_missing(&answer) {
            return fetch(&inside, &client, (target, request), reply);
        }
        inside.inner.start(&client, Operation::Open(target, request), reply)
    })
}

fn fetch(
    services: &Arc<StagedServices>,
    caller: &Arc<Caller>,
    (target, request): (Target, Box<OpenRequest>),
    reply: &ReplyTo,
) -> Started {
    let stage = request_for(caller, &target, 0);
    let verb = if request.new || request.delete { "create" } else { "open" };
    if request.no_wait {
        // The client does not wait, but comes again.
        services.stager.fetch(stage, Box::new(|| false), Box::new(|_| {}));
        let text = format!("Unable to {verb} {}; it is not on disk and is being staged", target.path.text());
        return Started::Done(Answer::error(ErrorKind::InProgress, text));
    }
    // Not before it is known that the file is missing: after this notice the answer cannot be a
    // handle, and the client opens the file a second time.
    if caller.accepts_deferred_reply {
        reply.notify_later(LATER_SECONDS);
    }
    let (obligation, answer) = (reply.defer(), reply.clone());
    let (inside, client) = (services.clone(), caller.clone());
    let resume = move |result: Result<(), Error>| match result {
        Err(error) => obligation.send(Answer::Error(unable_to_stage(verb, &target.path, error))),
        Ok(()) if client.is_disconnected() => obligation.send(job::disconnected_answer()),
        Ok(()) if client.accepts_deferred_reply => {
            obligation.send(Answer::Wait { seconds: 0, text: String::new() })
        }
        Ok(()) => match inside.inner.start(&client, Operation::Open(target, request), &answer) {
            Started::Done(answer) => obligation.send(answer),
            Started::Pending | Started::Later { .. } => obligation.release(),
        },
    };
    let waits = caller.clone();
    services.stager.fetch(stage, Box::new(move || waits.is_disconnected()), Box::new(resume));
    Started::Pending
}

fn unable_to_stage(verb: &str, path: &LogicalPath, error: Error) -> Error {
    if error.kind == ErrorKind::NotFound {
        return errno::unable(verb, path, errno::NOT_FOUND);
    }
    let text = format!("Unable to {verb} {}; staging failed: {}", path.text(), error.text);
    Error { text, ..error }
}

/// Returns the status of a file. If it is missing, returns that in mass storage.
fn stat(services: &Arc<StagedServices>, caller: &Arc<Caller>, target: Target, reply: &ReplyTo) -> Started {
    let path = target.path.clone();
    let inside = services.clone();
    services.start_then(caller, Operation::Stat(target), reply, move |answer, reply| {
        if !is_missing(&answer) {
            return Started::Done(answer);
        }
        let pool = inside.pool.clone();
        let work = move || remote_stat(&inside, &path).unwrap_or(answer);
        job::spawn_answer(|job| pool.run(reply.owner(), job), reply, work)
    })
}

/// Returns the status in mass storage, or an error; `None` if the file does not exist there.
fn remote_stat(services: &StagedServices, path: &LogicalPath) -> Option<Answer> {
    match services.stager.remote_status(&path.without_slash()) {
        Ok(None) => None,
        Ok(Some(metadata)) => {
            let view = StatView { read_only: services.inner.is_read_only(path), pending: false };
            Some(Answer::Value(Value::Stat(describe::stat(&metadata, services.inner.users(), view))))
        }
        Err(error) => Some(Answer::Error(unable_to_stage("locate", path, error))),
    }
}

/// Records the files of a prepare request that are not on disk, then returns its id.
fn prepare_files(
    services: &Arc<StagedServices>,
    caller: &Arc<Caller>,
    request: PrepareRequest,
    targets: TargetList,
    reply: &ReplyTo,
) -> Started {
    let (inside, client, list) = (services.clone(), caller.clone(), targets.clone().without_check());
    let (priority, notice) = (request.priority, notice(caller, &request));
    services.start_then(caller, Operation::Prepare(request, targets), reply, move |answer, reply| {
        let Answer::Value(Value::Text(id)) = answer else { return Started::Done(answer) };
        let pool = inside.pool.clone();
        let work = move |obligation: vfs::DeferredReply| {
            let requests = missing_files(&inside, &client, &list, (priority, notice.is_some()));
            let text = String::from_utf8_lossy(&id).into_owned();
            let done = move |result: Result<(), Error>| match result {
                Ok(()) => obligation.send(Answer::Value(Value::Text(id))),
                Err(error) => {
                    let text = format!("Unable to prepare; {}", error.text);
                    obligation.send(Answer::Error(Error { text, ..error }));
                }
            };
            if requests.is_empty() {
                done(Ok(()));
            } else {
                inside.stager.submit(&text, requests, notice, Box::new(done));
            }
        };
        job::spawn_reply(|job| pool.run(reply.owner(), job), reply, work)
    })
}

/// Returns the messages that a client wants. They go to its own address only.
fn notice(caller: &Caller, request: &PrepareRequest) -> Option<StageNotice> {
    let wanted = request.notify.filter(|notice| !notice.by_tcp)?;
    let address = SocketAddr::new(caller.identity.address?.to_canonical(), wanted.port);
    Some(StageNotice { address, on_failure: wanted.on_failure })
}

/// Returns the requests for the files of a list that are not known to be on disk. With `all`, those that are there
/// are among them, because the client wants a message for each one.
fn missing_files(
    services: &StagedServices,
    caller: &Caller,
    list: &TargetList,
    (priority, all): (u8, bool),
) -> Vec<StageRequest> {
    let mut requests = Vec::new();
    let mut cursor = list.cursor();
    // The list was checked, so each path is valid.
    while let Some(Ok(target)) = cursor.next() {
        let is_here = || matches!(services.inner.backend().stat_now(&target.path), Now::Done(Ok(_)));
        if services.inner.stages(&target.path) && (all || !is_here()) {
            requests.push(request_for(caller, &target, priority));
        }
    }
    requests
}

/// Cancels the transfers of a prepare request.
fn cancel(services: &Arc<StagedServices>, caller: &Arc<Caller>, id: Vec<u8>, reply: &ReplyTo) -> Started {
    let (inside, client) = (services.clone(), caller.clone());
    let text = String::from_utf8_lossy(&id).into_owned();
    services.start_then(caller, Operation::CancelPrepare { id }, reply, move |answer, reply| {
        if !matches!(answer, Answer::Value(_)) {
            return Started::Done(answer);
        }
        if !prepare::is_owner(text.as_bytes(), &client) {
            let reason = format!("Unable to cancel {text}; it is a request of another client");
            return Started::Done(Answer::error(ErrorKind::NotAuthorized, reason));
        }
        let obligation = reply.defer();
        let done = move |result: Result<(), Error>| match result {
            Ok(()) => obligation.send(answer),
            Err(error) => obligation.send(Answer::Error(error)),
        };
        inside.stager.cancel(&text, Box::new(done));
        Started::Pending
    })
}

/// Describes the state of a prepare request.
fn query(
    services: &Arc<StagedServices>,
    caller: &Arc<Caller>,
    id: Vec<u8>,
    targets: Option<TargetList>,
    reply: &ReplyTo,
) -> Started {
    let inside = services.clone();
    let text = String::from_utf8_lossy(&id).into_owned();
    services.start_then(caller, Operation::QueryPrepare { id, targets }, reply, move |answer, reply| {
        if !matches!(answer, Answer::Value(_)) {
            return Started::Done(answer);
        }
        let obligation = reply.defer();
        let done = move |result: Result<Option<String>, Error>| match result {
            Ok(Some(state)) => obligation.send(Answer::Value(Value::Text(state.into_bytes()))),
            Ok(None) => obligation.send(answer),
            Err(error) => obligation.send(Answer::Error(error)),
        };
        inside.stager.query(&text, Box::new(done));
        Started::Pending
    })
}
