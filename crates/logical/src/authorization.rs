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
//! | open that creates or truncates | create |
//! | status, locate, checksum, space, attributes of the storage | stat |
//! | list | readdir |
//! | make a directory | mkdir |
//! | remove | delete |
//! | rename | rename for the present name, insert for the new one |
//! | change the mode | chmod |
//! | truncate | update |
//! | prepare | read for each path |
//! | state of a prepare request, with paths | stat for each path; read for a request of another client |
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
//! The destination of a third-party copy opens the source with a grant of the client that arranged the
//! copy, so the grant decides, not the identity of the destination.

use crate::errno::{self, unable};
use crate::{prepare, third_party};
use auth::access::{AccessClient, AccessOperation, Authorizer, Privileges};
use base::{Error, ErrorKind, LogicalPath};
use std::borrow::Cow;
use std::sync::Arc;
use vfs::{
    Answer, AttributeWork, Caller, FileSystem, OpenFile, OpenRequest, Operation, RedirectAnswer, ReplyTo,
    Started, Target, TargetList,
};

/// A file system that only allowed operations reach.
pub struct AuthorizedFiles {
    authorizer: Arc<Authorizer>,
    behind: Arc<dyn FileSystem>,
    role: AuthorizationRole,
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
    /// Returns `behind` itself without an authorizer. `exports` are the exported paths.
    pub fn before(
        behind: Arc<dyn FileSystem>,
        authorizer: Option<Arc<Authorizer>>,
        role: AuthorizationRole,
        exports: Vec<LogicalPath>,
    ) -> Arc<dyn FileSystem> {
        match authorizer {
            Some(authorizer) => Arc::new(Self { authorizer, behind, role, exports }),
            None => behind,
        }
    }

    /// Decides about an operation. Returns the directory that must exist, because the client may
    /// not create it.
    fn decide(&self, caller: &Caller, operation: &Operation) -> Result<Option<LogicalPath>, Error> {
        let check = AccessCheck { authorizer: &self.authorizer, caller, exports: &self.exports };
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
            Operation::Locate(None, _) => check.without_path("locate servers")?,
            Operation::QueryPrepare { id, targets: None } => {
                check.prepare_request("query a prepare request", id)?;
            }
            Operation::CancelPrepare { id } => check.prepare_request("cancel a prepare request", id)?,
            Operation::QueryOpaque { .. } => check.without_path("query")?,
            // It continues a listing that was allowed.
            Operation::ListMore(_) => {}
            Operation::MakeDirectory { target, parents, .. } => {
                check.object(AccessOperation::MakeDirectory, "mkdir", &target.path)?;
                return Ok(parents.then(|| check.existing_parent(&target.path)).flatten());
            }
            Operation::RemoveDirectory(target) | Operation::Remove(target) => {
                check.object(AccessOperation::Delete, "remove", &target.path)?;
            }
            Operation::Rename { from, to, .. } => return check.rename(from, to),
            Operation::ChangeMode { target, .. } => {
                check.object(AccessOperation::ChangeMode, "change", &target.path)?;
            }
            Operation::Truncate { target, .. } => {
                check.object(AccessOperation::Update, "trunc", &target.path)?;
            }
        }
        Ok(None)
    }

    fn decide_open(
        &self,
        check: &AccessCheck<'_>,
        target: &Target,
        request: &OpenRequest,
    ) -> Result<Option<LogicalPath>, Error> {
        if self.role != AuthorizationRole::Server || collects_grant(target, request) {
            return Ok(None);
        }
        if request.new || request.delete {
            check.object(AccessOperation::Create, "create", &target.path)?;
            return Ok(request.make_path.then(|| check.existing_parent(&target.path)).flatten());
        }
        let operation = match request.write || request.append {
            true => AccessOperation::Update,
            false => AccessOperation::Read,
        };
        check.object(operation, "open", &target.path).map(|()| None)
    }

    /// Returns an operation whose list of paths is checked path by path when it is used. The first
    /// path has been decided.
    fn with_checks(&self, caller: &Arc<Caller>, operation: Operation) -> Operation {
        let checked = |targets: TargetList, operation: AccessOperation, verb: &'static str| {
            let (authorizer, caller) = (self.authorizer.clone(), caller.clone());
            targets.with_check(move |target| {
                let check = AccessCheck { authorizer: &authorizer, caller: &caller, exports: &[] };
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

impl FileSystem for AuthorizedFiles {
    fn start(&self, caller: &Arc<Caller>, operation: Operation, reply: &ReplyTo) -> Started {
        match self.decide(caller, &operation) {
            Err(error) => Started::Done(Answer::Error(error)),
            Ok(Some(directory)) if self.role == AuthorizationRole::Server => {
                self.behind.start(caller, operation.with_existing_parent(directory), reply)
            }
            // The message to the servers cannot name a directory that must exist.
            Ok(Some(directory)) if self.forwards(&operation) && !is_above_source(&operation, &directory) => {
                Started::Done(Answer::Error(unable("mkdir", &directory, errno::ACCESS)))
            }
            Ok(_) => self.behind.start(caller, self.with_checks(caller, operation), reply),
        }
    }

    fn read_redirect(&self, caller: &Caller, file: &dyn OpenFile) -> Option<RedirectAnswer> {
        self.behind.read_redirect(caller, file)
    }
}

/// Returns the operation for which a client needs the privileges on each path of a query for the
/// state of a prepare request. A client that did not make the request needs those of one that could.
fn query_of_request(id: &[u8], caller: &Caller) -> AccessOperation {
    if prepare::is_owner(id, caller) { AccessOperation::Stat } else { AccessOperation::Read }
}

/// Returns the refusal of an operation without a path.
fn refusal(verb: &str) -> Error {
    Error::new(ErrorKind::NotAuthorized, format!("Unable to {verb}; permission denied"))
}

/// Reports whether an operation is a rename whose present name is below a directory. The storage
/// finds the present name before it creates directories, and thereby all directories above it.
fn is_above_source(operation: &Operation, directory: &LogicalPath) -> bool {
    let Operation::Rename { from, .. } = operation else { return false };
    from.path.without_slash().parent().is_some_and(|above| above.is_within(directory))
}

/// Reports whether an open is that of the destination of a third-party copy at the source. The file
/// system behind admits it only with a grant for this file.
fn collects_grant(target: &Target, request: &OpenRequest) -> bool {
    let changes = request.write || request.append || request.new || request.delete;
    third_party::collect_origin(&target.cgi, changes).is_some()
}

/// The decisions about one caller.
struct AccessCheck<'a> {
    authorizer: &'a Authorizer,
    caller: &'a Caller,
    exports: &'a [LogicalPath],
}

impl AccessCheck<'_> {
    fn client(&self) -> AccessClient<'_> {
        match self.caller.entity() {
            Some(entity) => AccessClient::Entity(entity),
            None => AccessClient::Host(self.caller.identity.host()),
        }
    }

    fn path(&self, operation: AccessOperation, verb: &str, path: &LogicalPath) -> Result<(), Error> {
        match self.authorizer.allows(self.client(), operation, path, &self.caller.identity) {
            true => Ok(()),
            false => Err(unable(verb, path, errno::ACCESS)),
        }
    }

    /// Decides about an operation that only looks. A trailing `/` is part of the path, so that a
    /// rule for `/a/` covers a listing of `/a/`.
    fn reading(&self, operation: AccessOperation, verb: &str, target: &Target) -> Result<(), Error> {
        self.path(operation, verb, &target.path)
    }

    /// Decides about an operation on an object itself, which a trailing `/` does not change: a rule
    /// for `/a/` does not cover the removal of `/a`.
    fn object(&self, operation: AccessOperation, verb: &str, path: &LogicalPath) -> Result<(), Error> {
        let plain = match path.as_bytes().ends_with(b"/") {
            true => Cow::Owned(path.without_slash()),
            false => Cow::Borrowed(path),
        };
        self.path(operation, verb, &plain)
    }

    /// Decides about an operation without a path.
    fn without_path(&self, verb: &str) -> Result<(), Error> {
        if self.authorizer.grants_any(self.client()) {
            return Ok(());
        }
        tracing::debug!("{}: no rule grants anything, so it may not {verb}", self.caller.identity);
        Err(refusal(verb))
    }

    /// Decides about a prepare request. Its paths are not known, so it is for the client that made
    /// it, and for clients that may do everything everywhere.
    fn prepare_request(&self, verb: &str, id: &[u8]) -> Result<(), Error> {
        let everything = || self.authorizer.privileges(self.client(), &LogicalPath::root());
        if !prepare::is_owner(id, self.caller) && !everything().contains(Privileges::ALL) {
            tracing::debug!(
                "{}: another client made the request, so it may not {verb}",
                self.caller.identity
            );
            return Err(refusal(verb));
        }
        self.without_path(verb)
    }

    /// Decides about a rename. Returns the directory that must exist.
    fn rename(&self, from: &Target, to: &Target) -> Result<Option<LogicalPath>, Error> {
        self.object(AccessOperation::Rename, "rename", &from.path)?;
        self.object(AccessOperation::Insert, "rename", &to.path)?;
        for path in [&from.path, &to.path] {
            if self.authorizer.has_pair_below(self.client(), path) {
                let who = &self.caller.identity;
                tracing::info!("{who}: {} may not be renamed, as rules name paths below it", path.shown());
                return Err(unable("rename", path, errno::ACCESS));
            }
        }
        Ok(self.existing_parent(&to.path))
    }

    /// Returns the nearest directory above a path that the client may not create. The directory of
    /// the export always exists, and so do those above it.
    fn existing_parent(&self, path: &LogicalPath) -> Option<LogicalPath> {
        let exports = self.exports.iter().filter(|export| path.is_within(export));
        let export = exports.max_by_key(|export| export.as_bytes().len());
        let above = std::iter::successors(path.without_slash().parent(), LogicalPath::parent);
        above
            .map(|directory| directory.without_slash())
            .find(|directory| !self.may_make(directory))
            .filter(|directory| !directory.is_root())
            .filter(|directory| export.is_none_or(|export| !export.is_within(directory)))
    }

    /// Reports whether the client may make a directory. It is not an audited decision, because the
    /// directory may exist.
    fn may_make(&self, directory: &LogicalPath) -> bool {
        AccessOperation::MakeDirectory.is_granted_by(self.authorizer.privileges(self.client(), directory))
    }
}
