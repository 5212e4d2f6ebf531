//! The file system of a manager or supervisor: it has no files and redirects clients to nodes that
//! have them.
//!
//! | request | result |
//! |---|---|
//! | open, stat, list, checksum, attributes | a redirect to a node that has or shall have it |
//! | name change | a redirect as above; a new directory is placed like a new file |
//! | locate | the list of nodes that have it (`*path`: export it, `*`: are here) |
//! | forwarded name change (`ofs.forward`) | performed by all servers that may write the path |
//! | preparing one file | a redirect to a node that has it, or shall stage it |
//! | preparing several files | each is passed to the node selected for it; one reply |
//! | space | the totals of all nodes |
//!
//! Cached locations are answered on the loop of the connection. Otherwise the answer is sent later,
//! and the client waits for it. No cgi is added to the redirect, because clients pass on their own,
//! including `tried` and `triedrc`.

use crate::cluster::{ClusterEngine, ClusterFront, Forward, PrepareBatch, SpaceFor, client_permit};
use base::{Cgi, ErrorKind};
use cluster::{
    ClientAffinity, ClientOrigin, ClusterAnswer, ErrorCode, Intent, LocateFlags, LocatedChild, Net,
    OrderPermit, RetryReason, SelectOptions,
};
use config::Forwarding;
use logical::Prepares;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use vfs::{
    AttributeWork, Caller, DeferredReply, FileSystem, OpenRequest, Operation, PrepareRequest, RedirectAnswer,
    ReplyTo, SpaceFigures, Started, Target, TargetCursor, TargetList, Value,
};

/// Name of the space that stands for the spaces of all nodes.
const ALL_SPACES: &str = "all";

/// Maximum number of paths of one request that are prepared at the same time. The next ones wait
/// until each of these is accepted by a server or refused.
const PREPARED_AT_ONCE_MAX: usize = 1024;

/// The unit in which nodes report their space, in bytes.
const MEGABYTE: u64 = 1 << 20;

/// Redirects clients to the nodes that the cluster selects.
pub(crate) struct Redirector {
    front: Arc<ClusterFront>,
    forwarding: Forwarding,
    prepares: Prepares,
}

impl Redirector {
    /// Creates a file system that redirects clients according to `front`. `forwarding` contains the
    /// name changes that all servers perform, `prepares` the requests whose paths are split here.
    pub(crate) fn new(front: Arc<ClusterFront>, forwarding: Forwarding, prepares: Prepares) -> Arc<Self> {
        Arc::new(Self { front, forwarding, prepares })
    }

    /// Has each path prepared by the server that is selected for it. The client gets one reply,
    /// with an id if it stages.
    fn prepare(
        &self,
        caller: &Arc<Caller>,
        request: PrepareRequest,
        targets: &TargetList,
        reply: &ReplyTo,
    ) -> Started {
        let first = targets.first().path.without_slash();
        let preparation = PrepareForwarding {
            front: self.front.clone(),
            caller: caller.clone(),
            batch: PrepareBatch {
                request,
                ident: caller.identity.to_string(),
                id: self.prepares.issue(caller),
                first,
            },
            cursor: targets.cursor(),
            taken: false,
            refused: None,
            reply: reply.defer(),
        };
        preparation.go_on();
        Started::Pending
    }

    fn forward(
        &self,
        permit: OrderPermit,
        caller: &Arc<Caller>,
        operation: &Operation,
        reply: &ReplyTo,
    ) -> Option<Started> {
        let forward = Forward::of_operation(operation, &caller.identity.to_string())?;
        let later = reply.defer();
        // A refused request is dropped, which answers it.
        self.front.change_names(caller, permit, forward, move |outcome| {
            later.send(outcome.map_or_else(to_operation_answer, |()| vfs::Answer::Value(Value::Nothing)));
        });
        Some(Started::Pending)
    }

    fn select(
        &self,
        caller: &Arc<Caller>,
        target: &Target,
        purpose: LocationPurpose,
        reply: &ReplyTo,
    ) -> Started {
        let options = purpose.options(caller, &target.cgi);
        let tried = target.cgi.get("tried").unwrap_or_default();
        let path = target.path.as_bytes();
        let answer = self.front.select(caller, path, options, tried, || {
            let reply = reply.defer();
            Box::new(move |answer| reply.send(to_operation_answer(answer)))
        });
        answer.map_or(Started::Pending, |answer| Started::Done(to_operation_answer(answer)))
    }

    fn locate(
        &self,
        caller: &Arc<Caller>,
        target: Option<&Target>,
        wanted: vfs::LocateOptions,
        reply: &ReplyTo,
    ) -> Started {
        let options = LocateFlags {
            refresh: wanted.refresh,
            names: wanted.prefer_name,
            unique: wanted.unique,
            asap: wanted.no_wait,
            all_nets: wanted.all_networks,
            client: client(caller),
        };
        let mut path = Vec::new();
        if target.is_none() || wanted.exporting {
            path.push(b'*');
        }
        path.extend_from_slice(target.map_or(&b""[..], |target| target.path.as_bytes()));
        let answer = self.front.locate(caller, &path, options, || {
            let reply = reply.defer();
            Box::new(move |answer| reply.send(to_operation_answer(answer)))
        });
        answer.map_or(Started::Pending, |answer| Started::Done(to_operation_answer(answer)))
    }

    /// Returns the space of all nodes for files of this path.
    fn space(
        &self,
        caller: &Arc<Caller>,
        target: &Target,
        reply: &ReplyTo,
        say: impl FnOnce(SpaceFor) -> Value + Send + 'static,
    ) -> Started {
        let later: DeferredReply = reply.defer();
        let path = target.path.without_slash();
        let work = move |engine: &mut ClusterEngine| {
            let space = engine.space_for(path.as_bytes()).unwrap_or_default();
            later.send(vfs::Answer::Value(say(space)));
        };
        // If refused, the reply is dropped, which answers the request.
        self.front.with(caller, work);
        Started::Pending
    }
}

/// A list of paths to prepare, which is passed to the cluster in portions.
struct PrepareForwarding {
    front: Arc<ClusterFront>,
    caller: Arc<Caller>,
    batch: PrepareBatch,
    cursor: TargetCursor,
    /// Set if a server prepares one of them.
    taken: bool,
    /// The reason for the first path that no server prepares.
    refused: Option<ClusterAnswer>,
    reply: DeferredReply,
}

impl PrepareForwarding {
    /// Passes the next portion to the cluster thread. If refused, the reply is dropped, which
    /// answers the request.
    fn go_on(mut self) {
        if self.caller.is_disconnected() {
            return self.reply.send(vfs::Answer::error(ErrorKind::Cancelled, "The client has left"));
        }
        let (front, caller) = (self.front.clone(), self.caller.clone());
        front.with(&caller, move |engine| {
            match self.cursor.by_ref().take(PREPARED_AT_ONCE_MAX).collect::<Result<Vec<_>, _>>() {
                Ok(targets) if targets.is_empty() => self.finish(),
                Ok(targets) => {
                    let batch = self.batch.clone();
                    engine.client_prepares(&batch, &targets, move |outcome| {
                        match outcome {
                            Ok(()) => self.taken = true,
                            Err(answer) => self.refused = self.refused.take().or(Some(answer)),
                        }
                        self.go_on();
                    });
                }
                Err(error) => self.reply.send(vfs::Answer::Error(error)),
            }
        });
    }

    /// Sends the final reply: the request succeeds if at least one path can be prepared.
    fn finish(self) {
        let id = || Value::Text(self.batch.id.clone().into_bytes());
        self.reply.send(match self.refused.filter(|_| !self.taken) {
            Some(answer) => to_operation_answer(answer),
            None => vfs::Answer::Value(if self.batch.request.stage { id() } else { Value::Nothing }),
        });
    }
}

impl FileSystem for Redirector {
    fn start(&self, caller: &Arc<Caller>, operation: Operation, reply: &ReplyTo) -> Started {
        if let Some(permit) = client_permit(&self.forwarding, &operation)
            && let Some(started) = self.forward(permit, caller, &operation, reply)
        {
            return started;
        }
        match operation {
            Operation::Locate(target, options) => self.locate(caller, target.as_ref(), options, reply),
            Operation::StatSpace(target) => {
                self.space(caller, &target, reply, |space| Value::Space(figures(&space)))
            }
            Operation::QuerySpace(target) => self.space(caller, &target, reply, |space| {
                Value::Text(figures(&space).query_text(ALL_SPACES).into_bytes())
            }),
            // A single path is redirected: its server takes the request and assigns an id. A
            // request to renew access times is not redirected, because XRootD servers would not
            // perform it for a client.
            Operation::Prepare(request, targets)
                if request.evict || request.fresh || !targets.is_single() =>
            {
                self.prepare(caller, request, &targets, reply)
            }
            Operation::QueryPrepare { id, .. } if self.prepares.has_issued(&id) => {
                Started::Done(vfs::Answer::Value(logical::nothing_known()))
            }
            operation => match purpose(&operation) {
                Some((purpose, target)) => self.select(caller, target, purpose, reply),
                None => Started::Done(vfs::Answer::error(
                    ErrorKind::Unsupported,
                    "a redirector does not do this; ask a data server",
                )),
            },
        }
    }
}

/// The requirements of a request for the node to which it is redirected.
#[derive(Clone, Copy, Default)]
struct LocationPurpose {
    intent: Intent,
    name_only: bool,
    refresh: bool,
    online: bool,
    replica: bool,
}

impl LocationPurpose {
    const READ: Self =
        Self { intent: Intent::Read, name_only: false, refresh: false, online: false, replica: false };
    const CHANGE_NAME: Self = Self { intent: Intent::Update, name_only: true, ..Self::READ };
    const MAKE_NAME: Self = Self { intent: Intent::Create, name_only: true, ..Self::READ };
    const UPDATE: Self = Self { intent: Intent::Update, ..Self::READ };

    fn open(request: &OpenRequest) -> Self {
        let intent = match () {
            () if request.delete => Intent::Truncate,
            () if request.new => Intent::Create,
            () if request.write => Intent::Update,
            () => Intent::Read,
        };
        Self {
            intent,
            refresh: request.refresh,
            online: request.no_wait,
            replica: request.replica && intent.creates(),
            ..Self::READ
        }
    }

    fn options(self, caller: &Caller, cgi: &Cgi) -> SelectOptions {
        let reasons = cgi.text("triedrc").unwrap_or_default();
        let last = reasons.rsplit(',').next().unwrap_or_default();
        SelectOptions {
            intent: self.intent,
            name_only: self.name_only,
            refresh: self.refresh,
            online: self.online,
            replica: self.replica,
            copies: false,
            another_source: matches!(last, "resel" | "reseg"),
            client: client(caller),
            reason: RetryReason::from_word(reasons),
            affinity: match cgi.text("cms.aff") {
                Some("n") => Some(ClientAffinity::None),
                Some("w") => Some(ClientAffinity::Weak),
                Some("s") => Some(ClientAffinity::Strong),
                Some("S") => Some(ClientAffinity::Strict),
                _ => None,
            },
        }
    }
}

/// Returns the requirements of an operation and its path; `None` if no node can be selected for it.
fn purpose(operation: &Operation) -> Option<(LocationPurpose, &Target)> {
    Some(match operation {
        Operation::Open(target, request) => (LocationPurpose::open(request), target),
        Operation::Stat(target)
        | Operation::List(target, _)
        | Operation::Checksum(target)
        | Operation::CancelChecksum(target)
        | Operation::QueryAttributes(target) => (LocationPurpose::READ, target),
        Operation::StatMany(targets) => (LocationPurpose::READ, targets.first()),
        Operation::MakeDirectory { target, .. } => (LocationPurpose::MAKE_NAME, target),
        Operation::RemoveDirectory(target)
        | Operation::Remove(target)
        | Operation::Rename { from: target, .. }
        | Operation::ChangeMode { target, .. } => (LocationPurpose::CHANGE_NAME, target),
        Operation::Truncate { target, .. } => (LocationPurpose::UPDATE, target),
        Operation::Attributes(target, AttributeWork::Get(_) | AttributeWork::List { .. }) => {
            (LocationPurpose::READ, target)
        }
        Operation::Attributes(target, _) => (LocationPurpose::UPDATE, target),
        Operation::Prepare(request, targets) => {
            let purpose = if request.write { LocationPurpose::UPDATE } else { LocationPurpose::READ };
            (LocationPurpose { refresh: false, ..purpose }, targets.first())
        }
        Operation::QueryPrepare { targets, .. } => (LocationPurpose::READ, targets.as_ref()?.first()),
        Operation::Locate(..)
        | Operation::StatSpace(_)
        | Operation::QuerySpace(_)
        | Operation::ListMore(_)
        | Operation::CancelPrepare { .. }
        | Operation::QueryOpaque { .. }
        | Operation::Cache(..)
        | Operation::Tape(_)
        | Operation::IssueMacaroon(..) => return None,
    })
}

/// Returns the address families that a client can use: that of its connection, and the other one as
/// a fallback.
fn client(caller: &Caller) -> ClientOrigin {
    let net = match caller.identity.address {
        Some(IpAddr::V6(_)) => Net::V6First,
        _ => Net::V4First,
    };
    ClientOrigin { net, private: false, alone: !caller.dual_stack }
}

/// Converts the answer of the cluster to one of a file system.
fn to_operation_answer(answer: ClusterAnswer) -> vfs::Answer {
    match answer {
        ClusterAnswer::Redirect { host, port, .. } => {
            vfs::Answer::Redirect(RedirectAnswer { host, port: port.into(), cgi: String::new() })
        }
        ClusterAnswer::Wait(time) => vfs::Answer::Wait { seconds: seconds(time), text: String::new() },
        ClusterAnswer::Located(list) => vfs::Answer::Value(Value::Text(LocatedChild::text(&list))),
        ClusterAnswer::Error(code, text) => vfs::Answer::error(kind(code), text),
    }
}

fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis().div_ceil(1000)).unwrap_or(u32::MAX).max(1)
}

/// Converts an error code. Source: cms protocol 3, responses to a redirector, error codes.
fn kind(code: ErrorCode) -> ErrorKind {
    match code {
        ErrorCode::NO_ENTRY => ErrorKind::NotFound,
        ErrorCode::NOT_PERMITTED | ErrorCode::NO_ACCESS => ErrorKind::NotAuthorized,
        ErrorCode::IO_ERROR => ErrorKind::IoError,
        ErrorCode::NO_MEMORY => ErrorKind::NoMemory,
        ErrorCode::NO_SPACE => ErrorKind::NoSpace,
        ErrorCode::NAME_TOO_LONG => ErrorKind::ArgTooLong,
        ErrorCode::NET_UNREACHABLE => ErrorKind::NoServer,
        ErrorCode::NOT_BLOCK_DEVICE => ErrorKind::NotFile,
        ErrorCode::IS_DIRECTORY => ErrorKind::IsDirectory,
        ErrorCode::FS_ERROR => ErrorKind::FsError,
        ErrorCode::SERVER_ERROR => ErrorKind::ServerError,
        ErrorCode::RW_CONFLICT => ErrorKind::ItExists,
        ErrorCode::NO_REPLICAS => ErrorKind::NoReplicas,
        _ => ErrorKind::ArgInvalid,
    }
}

fn figures(space: &SpaceFor) -> SpaceFigures {
    let totals = &space.writable;
    SpaceFigures {
        writable_nodes: u32::try_from(totals.children).unwrap_or(u32::MAX),
        staging_nodes: u32::try_from(space.staging.children).unwrap_or(u32::MAX),
        total: totals.total_mb * MEGABYTE,
        free: totals.free_mb * MEGABYTE,
        largest_free: u64::from(totals.best_free_mb) * MEGABYTE,
        used: totals.total_mb.saturating_sub(totals.free_mb) * MEGABYTE,
        quota: None,
    }
}
