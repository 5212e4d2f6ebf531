//! Authorization of operations, in front of a file system.
//!
//! Each open and each operation on names is decided once, before the file system behind sees it. An
//! open file proves that its open was allowed, so operations on it are not decided again. A refused
//! operation has the same answer whether its file exists or not.
//!
//! | operation | decision |
//! |---|---|
//! | open for reading | read |
//! | open for writing or appending | update |
//! | open that creates or truncates | create, else excl_create for a new file |
//! | status, locate, checksum, space, attributes of the storage | stat |
//! | list | readdir |
//! | make a directory | mkdir |
//! | remove, remove from a disk cache | delete |
//! | rename | rename for the present name, insert for the new one |
//! | change the mode | chmod |
//! | truncate | update |
//! | prepare | read for each path |
//! | state of a prepare request, with paths | stat for each path; read for a request of another client |
//! | tape request: stage, cancel, release | stage for each path; or read by rules, as for prepare |
//! | tape request: where files are | read or poll for each path |
//! | user attributes: get, list | read |
//! | user attributes: set, remove | update |
//!
//! Missing parent directories are created only where the client may make directories. The nearest
//! directory that it may not make must exist; the storage checks this when it creates the others, so
//! that the removal of a directory meanwhile does not void the decision. An export counts as
//! existing, and so does everything above it.
//!
//! An operation without a path is refused to clients that have no privilege at all. A prepare request
//! without paths is cancelled and queried only by the client that made it, or by one that may do
//! everything at `/`.
//!
//! A rename is refused if rules that apply to the client name paths below either name: they would
//! not apply to the moved objects any longer, or to other ones.
//!
//! The token of a request is verified on a thread, unless it was verified recently, because the
//! computation takes longer than an event loop may be blocked. A request whose token names an unknown key
//! waits, without a thread, until the keys of the issuer have been fetched. A macaroon takes microseconds and is
//! verified at once. The token of the first path of a list counts for all of its paths.
//!
//! A macaroon is issued here, because it only needs a decision about rights: the file system behind never
//! sees its request. It is decided on the threads that verify tokens, because rules for many paths may count.
//! Where accounts of users act, none is issued, and one that a client without an account has is refused.
//!
//! The destination of a third-party copy opens the source with a grant of the client that arranged the
//! copy, so the grant decides, not the identity of the destination.

mod check;
mod issue;
mod request_name;
mod request_token;

use crate::errno::{self, unable};
use crate::{job, prepare, third_party};
use auth::access::{AccessOperation, AccessPolicy, RequestToken};
use auth::macaroons::MacaroonVerdict;
use auth::tokens::KeyWaiterOwner;
use base::{ClientHost, Error, ErrorKind, LogicalPath};
use check::{AccessCheck, AllowedOperation};
use request_token::UnverifiedToken;
use std::sync::Arc;
use std::time::SystemTime;
use storage::Pool;
use vfs::{
    Answer, AttributeWork, CachedFileCommand, Caller, DeferredReply, FileSystem, OpenFile, OpenRequest,
    Operation, RedirectAnswer, ReplyTo, Started, TapeRequest, TapeWork, Target, TargetList, Value,
};

/// Maximum number of threads that verify tokens.
const VERIFICATION_THREADS_MAX: usize = 4;
/// The protocol of logins that name nobody.
const HOST_PROTOCOL: &str = "host";

/// A file system that only allowed operations reach.
pub struct AuthorizedFiles {
    files: Arc<GuardedFiles>,
    /// The threads that verify tokens.
    verification: Arc<Pool>,
}

/// The files with the policy that guards them.
struct GuardedFiles {
    policy: Arc<AccessPolicy>,
    behind: Arc<dyn FileSystem>,
    role: AuthorizationRole,
    /// The files behind act for users, and need the names in the tokens of requests.
    names_users: bool,
    exports: Vec<LogicalPath>,
}

/// The server that decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuthorizationRole {
    /// A server with files.
    Server,
    /// A redirector. The servers to which it redirects opens decide about those. It decides about
    /// all other operations, because it answers or forwards some of them itself.
    Redirector(ForwardedChanges),
}

/// The operations that create missing directories and that a redirector forwards. The servers
/// perform them with the identity of the redirector, so only the redirector decides about these
/// directories.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ForwardedChanges {
    /// The creation of directories.
    pub make_directory: bool,
    /// Renames.
    pub rename: bool,
}

impl AuthorizedFiles {
    /// Returns `behind` itself without a policy. `exports` are the exported paths. With
    /// `names_users`, `behind` gets the name that the token of a request gives its bearer.
    pub fn before(
        behind: Arc<dyn FileSystem>,
        policy: Option<Arc<AccessPolicy>>,
        (role, names_users): (AuthorizationRole, bool),
        exports: Vec<LogicalPath>,
    ) -> Arc<dyn FileSystem> {
        match policy {
            Some(policy) => Arc::new(Self {
                files: Arc::new(GuardedFiles { policy, behind, role, names_users, exports }),
                verification: Pool::new("tokens", VERIFICATION_THREADS_MAX),
            }),
            None => behind,
        }
    }

    /// Starts an operation after the verification of its token on a thread.
    fn start_verified(
        &self,
        caller: &Arc<Caller>,
        token: UnverifiedToken,
        operation: Operation,
        reply: &ReplyTo,
    ) -> Started {
        let request = TokenRequest { caller: caller.clone(), token, operation, reply: reply.clone() };
        let (files, threads) = (self.files.clone(), self.verification.clone());
        match self.verification.run(reply.owner(), Box::new(move || request.verify(&files, &threads, true))) {
            Ok(()) => Started::Pending,
            Err(_) => Started::Done(job::overloaded()),
        }
    }
}

/// An operation that waits for the verification of its token.
struct TokenRequest {
    caller: Arc<Caller>,
    token: UnverifiedToken,
    operation: Operation,
    reply: ReplyTo,
}

impl TokenRequest {
    /// Verifies the token and starts the operation. With `waits`, a token that names an unknown key is
    /// verified again when the keys of its issuer have been fetched. It keeps no thread meanwhile.
    fn verify(self, files: &Arc<GuardedFiles>, threads: &Arc<Pool>, waits: bool) {
        // After a panic, the client gets an error.
        let obligation = self.reply.defer();
        let policy = &files.policy;
        let verified = policy.verify(self.token.text.expose(), self.token.origin, SystemTime::now());
        let issuer = policy.issuer_of_missing_key(self.token.text.expose(), &verified);
        if let Some(issuer) = issuer.filter(|_| waits) {
            let host = ClientHost::from(self.caller.identity.address);
            let owner = KeyWaiterOwner { session: self.reply.owner(), host };
            let (files, threads) = (files.clone(), threads.clone());
            let again = move || self.verify_again(obligation, files, threads);
            // Too many wait already. The second verification refuses the token.
            if let Err(again) = policy.wait_for_keys(&issuer, owner, Box::new(again)) {
                again();
            }
            return;
        }
        match files.start(&self.caller, self.operation, Some(verified), &self.reply) {
            Started::Done(done) => obligation.send(done),
            // The deferral of a late answer is not sent, because the call is already pending: the
            // client waits up to its own timeout.
            Started::Pending | Started::Later { .. } => obligation.release(),
        }
    }

    fn verify_again(self, obligation: DeferredReply, files: Arc<GuardedFiles>, threads: Arc<Pool>) {
        let (owner, pool) = (self.reply.owner(), threads.clone());
        match pool.run(owner, Box::new(move || self.verify(&files, &threads, false))) {
            Ok(()) => obligation.release(),
            Err(_) => obligation.send(job::overloaded()),
        }
    }
}

impl FileSystem for AuthorizedFiles {
    fn start(&self, caller: &Arc<Caller>, mut operation: Operation, reply: &ReplyTo) -> Started {
        let policy = &self.files.policy;
        if !policy.uses_credentials() {
            return self.files.start(caller, operation, None, reply);
        }
        let token = match request_token::of(caller, &mut operation) {
            Ok(token) => token,
            Err(error) => return Started::Done(Answer::Error(error)),
        };
        let Some(token) = token.filter(|_| self.files.decides(&operation)) else {
            return self.files.start(caller, operation, None, reply);
        };
        let recalled = match &operation {
            Operation::IssueMacaroon(..) => None,
            _ => policy.recall(token.text.expose(), token.origin, SystemTime::now()),
        };
        match recalled {
            Some(token) => self.files.start(caller, operation, Some(token), reply),
            None => self.start_verified(caller, token, operation, reply),
        }
    }

    fn read_redirect(&self, caller: &Caller, file: &dyn OpenFile) -> Option<RedirectAnswer> {
        self.files.behind.read_redirect(caller, file)
    }
}

impl GuardedFiles {
    fn start(
        &self,
        caller: &Arc<Caller>,
        operation: Operation,
        token: Option<RequestToken>,
        reply: &ReplyTo,
    ) -> Started {
        if let Operation::IssueMacaroon(target, order) = &operation {
            let check = self.check(caller, token.as_ref());
            let issued = issue::issue(&check, &target.path, order, self.names_users);
            return Started::Done(match issued {
                Ok(issued) => Answer::Value(Value::Macaroon(Box::new(issued))),
                Err(error) => Answer::Error(error),
            });
        }
        let allowed = match self.decide(caller, &operation, token.as_ref()) {
            Err(error) => return Started::Done(Answer::Error(error)),
            Ok(allowed) => allowed,
        };
        let named = match self.named(caller, &operation, token.as_ref()) {
            Err(error) => return Started::Done(Answer::Error(error)),
            Ok(named) => named,
        };
        let caller = named.as_ref().unwrap_or(caller);
        match operation {
            Operation::Open(target, request) if allowed.is_exclusive && !request.new => {
                self.start_exclusive(caller, (target, *request), allowed.existing, reply)
            }
            operation => {
                let operation = self.with_checks(caller, operation, token);
                self.start_allowed(caller, operation, allowed.existing, reply)
            }
        }
    }

    fn check<'a>(&'a self, caller: &'a Caller, token: Option<&'a RequestToken>) -> AccessCheck<'a> {
        AccessCheck { policy: &self.policy, caller, token, exports: &self.exports }
    }

    /// Returns the caller with the name of its token; `None` if that of its login counts.
    ///
    /// # Errors
    /// No account is named, and that of the server would act.
    fn named(
        &self,
        caller: &Arc<Caller>,
        operation: &Operation,
        token: Option<&RequestToken>,
    ) -> Result<Option<Arc<Caller>>, Error> {
        if !self.names_users || token.is_none() || !self.decides(operation) {
            return Ok(None);
        }
        if token.is_some_and(|token| matches!(token.macaroon, Some(MacaroonVerdict::Valid(_))))
            && caller.entity().is_none_or(|entity| &*entity.protocol == HOST_PROTOCOL)
        {
            // Its bearer can have got it with the token of a user, who may do less than the server.
            tracing::debug!("{}: refused, because its macaroon names no account", caller.identity);
            let text = "Unable to act for the client; its macaroon names no account";
            return Err(Error::new(ErrorKind::NotAuthorized, text));
        }
        let check = self.check(caller, token);
        let name = request_name::of(&check, operation)?;
        Ok(name.map(|name| Arc::new(caller.with_request_name(&name))))
    }

    /// Starts an allowed operation. `existing` is a directory that must exist.
    fn start_allowed(
        &self,
        caller: &Arc<Caller>,
        operation: Operation,
        existing: Option<LogicalPath>,
        reply: &ReplyTo,
    ) -> Started {
        match existing {
            Some(directory) if self.role == AuthorizationRole::Server => {
                self.behind.start(caller, operation.with_existing_parent(directory), reply)
            }
            // The message to the servers cannot name a directory that must exist.
            Some(directory) if self.forwards(&operation) && !is_above_source(&operation, &directory) => {
                Started::Done(Answer::Error(unable("mkdir", &directory, errno::ACCESS)))
            }
            _ => self.behind.start(caller, operation, reply),
        }
    }

    /// Starts an open that may create a file, but not replace one.
    fn start_exclusive(
        &self,
        caller: &Arc<Caller>,
        (target, request): (Target, OpenRequest),
        existing: Option<LogicalPath>,
        reply: &ReplyTo,
    ) -> Started {
        let (path, answer) = (target.path.clone(), reply.clone());
        let at = path.clone();
        let reply = reply.intercept(move |opened| answer.defer().send(refused_if_existing(&at, opened)));
        let request = OpenRequest { new: true, delete: false, ..request };
        let operation = Operation::Open(target, Box::new(request));
        match self.start_allowed(caller, operation, existing, &reply) {
            Started::Done(opened) => Started::Done(refused_if_existing(&path, opened)),
            started => started,
        }
    }

    /// Reports whether this server decides about an operation.
    fn decides(&self, operation: &Operation) -> bool {
        match operation {
            Operation::Open(target, request) => {
                self.role == AuthorizationRole::Server && !third_party::collects_grant(target, request)
            }
            _ => true,
        }
    }

    /// Decides about an operation. `token` is the result for the token of the request.
    fn decide(
        &self,
        caller: &Caller,
        operation: &Operation,
        token: Option<&RequestToken>,
    ) -> Result<AllowedOperation, Error> {
        let check = self.check(caller, token);
        let allowed_below = |existing| Ok(AllowedOperation { existing, ..AllowedOperation::default() });
        match operation {
            Operation::Open(target, request) => return self.decide_open(&check, target, request),
            Operation::Stat(target) => check.reading(AccessOperation::Stat, "locate", target)?,
            Operation::QueryAttributes(target) => check.reading(AccessOperation::Stat, "statxa", target)?,
            Operation::StatSpace(target) | Operation::QuerySpace(target) => {
                check.reading(AccessOperation::Stat, "statfs", target)?;
            }
            Operation::Locate(Some(target), _) => check.reading(AccessOperation::Stat, "locate", target)?,
            Operation::Checksum(target) | Operation::CancelChecksum(target) => {
                check.reading(AccessOperation::Stat, "checksum", target)?;
            }
            Operation::StatMany(targets) => {
                check.reading(AccessOperation::Stat, "locate", targets.first())?;
            }
            Operation::List(target, _) => check.reading(AccessOperation::ReadDirectory, "open", target)?,
            Operation::Attributes(target, work) => {
                let operation = match work {
                    AttributeWork::Get(_) | AttributeWork::List { .. } => AccessOperation::Read,
                    AttributeWork::Set { .. } | AttributeWork::Remove(_) => AccessOperation::Update,
                };
                check.object(operation, "access", &target.path)?;
            }
            Operation::Prepare(_, targets) => {
                check.reading(AccessOperation::Read, "prepare", targets.first())?;
            }
            Operation::QueryPrepare { id, targets: Some(targets) } => {
                check.reading(query_of_request(id, caller), "locate", targets.first())?;
            }
            Operation::Tape(request) => decide_tape(&check, request)?,
            Operation::Locate(None, _) => check.without_path("locate servers")?,
            Operation::QueryPrepare { id, targets: None } => {
                check.prepare_request("query a prepare request", id)?;
            }
            Operation::CancelPrepare { id } => check.prepare_request("cancel a prepare request", id)?,
            Operation::QueryOpaque { .. } => check.without_path("query")?,
            Operation::Cache(target, CachedFileCommand::IsCached) => {
                check.reading(AccessOperation::Stat, "locate", target)?;
            }
            Operation::Cache(target, CachedFileCommand::Evict | CachedFileCommand::EvictOpen) => {
                check.object(AccessOperation::Delete, "evict", &target.path)?;
            }
            // It is decided before, activity by activity.
            Operation::IssueMacaroon(target, _) => return Err(unable("issue", &target.path, errno::ACCESS)),
            // It continues a listing that was allowed.
            Operation::ListMore(_) => {}
            Operation::MakeDirectory { target, parents, .. } => {
                check.object(AccessOperation::MakeDirectory, "mkdir", &target.path)?;
                return allowed_below(parents.then(|| check.existing_parent(&target.path)).flatten());
            }
            Operation::RemoveDirectory(target) | Operation::Remove(target) => {
                check.object(AccessOperation::Delete, "remove", &target.path)?;
            }
            Operation::Rename { from, to, .. } => return allowed_below(check.rename(from, to)?),
            Operation::ChangeMode { target, .. } => {
                check.object(AccessOperation::ChangeMode, "change", &target.path)?;
            }
            Operation::Truncate { target, .. } => {
                check.object(AccessOperation::Update, "trunc", &target.path)?;
            }
        }
        Ok(AllowedOperation::default())
    }

    fn decide_open(
        &self,
        check: &AccessCheck<'_>,
        target: &Target,
        request: &OpenRequest,
    ) -> Result<AllowedOperation, Error> {
        if self.role != AuthorizationRole::Server || third_party::collects_grant(target, request) {
            return Ok(AllowedOperation::default());
        }
        if request.new || request.delete {
            return check.create(target);
        }
        let operation = match request.write || request.append {
            true => AccessOperation::Update,
            false => AccessOperation::Read,
        };
        check.object(operation, "open", &target.path).map(|()| AllowedOperation::default())
    }

    /// Returns an operation whose list of paths is checked path by path when it is used. The first
    /// path has been decided.
    fn with_checks(
        &self,
        caller: &Arc<Caller>,
        operation: Operation,
        token: Option<RequestToken>,
    ) -> Operation {
        let checked = |targets: TargetList, operation: AccessOperation, verb: &'static str| {
            let (policy, caller, token) = (self.policy.clone(), caller.clone(), token.clone());
            // All paths are accessed with the account of the first one.
            let has_name = self.names_users && token.is_some();
            targets.with_check(move |target| {
                let check =
                    AccessCheck { policy: &policy, caller: &caller, token: token.as_ref(), exports: &[] };
                if has_name && check.bearer_name(operation, &target.path) != caller.request_name() {
                    return Err(unable(verb, &target.path, errno::ACCESS));
                }
                check.reading(operation, verb, target)
            })
        };
        match operation {
            Operation::StatMany(targets) => {
                Operation::StatMany(checked(targets, AccessOperation::Stat, "locate"))
            }
            Operation::Prepare(request, targets) => {
                Operation::Prepare(request, checked(targets, AccessOperation::Read, "prepare"))
            }
            Operation::QueryPrepare { id, targets } => {
                let needed = query_of_request(&id, caller);
                let targets = targets.map(|targets| checked(targets, needed, "locate"));
                Operation::QueryPrepare { id, targets }
            }
            Operation::Tape(mut request) => {
                let (policy, caller, token) = (self.policy.clone(), caller.clone(), token.clone());
                let looks = matches!(request.work, TapeWork::Locate(_));
                let check =
                    AccessCheck { policy: &policy, caller: &caller, token: token.as_ref(), exports: &[] };
                request.owner = Some(check.owner_mark());
                Operation::Tape(Box::new(request.with_check(move |path| {
                    let check =
                        AccessCheck { policy: &policy, caller: &caller, token: token.as_ref(), exports: &[] };
                    if looks { check.tape_locality(path) } else { check.tape_staging(path) }
                })))
            }
            other => other,
        }
    }

    /// Reports whether the servers below perform an operation in the name of this redirector.
    fn forwards(&self, operation: &Operation) -> bool {
        match (self.role, operation) {
            (AuthorizationRole::Redirector(forwarded), Operation::MakeDirectory { .. }) => {
                forwarded.make_directory
            }
            (AuthorizationRole::Redirector(forwarded), Operation::Rename { .. }) => forwarded.rename,
            _ => false,
        }
    }
}

/// Decides about a tape request as far as its paths do not matter.
fn decide_tape(check: &AccessCheck<'_>, request: &TapeRequest) -> Result<(), Error> {
    match &request.work {
        TapeWork::Stage(_) => check.without_path("stage files"),
        TapeWork::Locate(_) => check.without_path("locate files"),
        TapeWork::State { id, .. } => check.tape_request("see a request", id),
        TapeWork::Cancel { id, .. } | TapeWork::Forget { id } => check.tape_request("cancel a request", id),
        TapeWork::Release { id, .. } => check.tape_request("release files of a request", id),
    }
}

/// Returns the answer to an open that may create a file, but not replace one: for a file that exists,
/// that of a refused operation.
fn refused_if_existing(path: &LogicalPath, opened: Answer) -> Answer {
    match opened {
        Answer::Error(error) if error.kind == ErrorKind::ItExists => {
            Answer::Error(unable("create", path, errno::ACCESS))
        }
        other => other,
    }
}

/// Returns the operation for which a client needs the privileges on each path of a query for the
/// state of a prepare request. A client that did not make the request needs those of one that could.
fn query_of_request(id: &[u8], caller: &Caller) -> AccessOperation {
    if prepare::is_owner(id, caller) { AccessOperation::Stat } else { AccessOperation::Read }
}

/// Reports whether an operation is a rename whose present name is below a directory. The storage
/// finds the present name before it creates directories, and thereby all directories above it.
fn is_above_source(operation: &Operation, directory: &LogicalPath) -> bool {
    let Operation::Rename { from, .. } = operation else { return false };
    from.path.without_slash().parent().is_some_and(|above| above.is_within(directory))
}
