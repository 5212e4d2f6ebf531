//! The decisions about the operations of one caller.

use crate::errno::{self, unable};
use crate::prepare;
use auth::access::{AccessClient, AccessOperation, AccessPolicy, AccessRequest, RequestToken};
use auth::macaroons::MacaroonVerdict;
use auth::tokens::TokenVerdict;
use base::{Error, ErrorKind, LogicalPath};
use std::borrow::Cow;
use vfs::{Caller, Target};

/// The operations of a client that may do everything.
const EVERYTHING: [AccessOperation; 8] = [
    AccessOperation::Create,
    AccessOperation::Delete,
    AccessOperation::Insert,
    AccessOperation::MakeDirectory,
    AccessOperation::Read,
    AccessOperation::Rename,
    AccessOperation::Stat,
    AccessOperation::Update,
];

/// The decisions about one request of a caller.
pub(super) struct AccessCheck<'a> {
    pub(super) policy: &'a AccessPolicy,
    pub(super) caller: &'a Caller,
    /// The result for the token of the request.
    pub(super) token: Option<&'a RequestToken>,
    pub(super) exports: &'a [LogicalPath],
}

/// An allowed operation, and what holds for it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct AllowedOperation {
    /// The directory that must exist, because the client may not create it.
    pub(super) existing: Option<LogicalPath>,
    /// The open must create the file, because the client may not replace one.
    pub(super) is_exclusive: bool,
}

impl AccessCheck<'_> {
    pub(super) fn request(&self) -> AccessRequest<'_> {
        let client = match self.caller.entity().filter(|entity| !entity.has_expired()) {
            Some(entity) => AccessClient::Entity(entity),
            None => AccessClient::Host(self.caller.identity.host()),
        };
        self.policy.request(client, self.token)
    }

    fn path(&self, operation: AccessOperation, verb: &str, path: &LogicalPath) -> Result<(), Error> {
        match self.request().allows(operation, path, &self.caller.identity) {
            true => Ok(()),
            false => Err(unable(verb, path, errno::ACCESS)),
        }
    }

    /// Returns the name that the token of the request gives its bearer for an operation.
    pub(super) fn bearer_name(&self, operation: AccessOperation, path: &LogicalPath) -> Option<&str> {
        self.request().bearer_name(operation, path)
    }

    /// Reports whether an operation is allowed. It is not an audited decision.
    pub(super) fn permits(&self, operation: AccessOperation, path: &LogicalPath) -> bool {
        self.request().permits(operation, path)
    }

    /// Decides about an operation that only looks. A trailing `/` is part of the path, so that a
    /// rule for `/a/` covers a listing of `/a/`.
    pub(super) fn reading(
        &self,
        operation: AccessOperation,
        verb: &str,
        target: &Target,
    ) -> Result<(), Error> {
        self.path(operation, verb, &target.path)
    }

    /// Decides about an operation on an object itself, which a trailing `/` does not change: a rule
    /// for `/a/` does not cover the removal of `/a`.
    pub(super) fn object(
        &self,
        operation: AccessOperation,
        verb: &str,
        path: &LogicalPath,
    ) -> Result<(), Error> {
        self.path(operation, verb, &plain(path))
    }

    /// Decides about an operation without a path.
    pub(super) fn without_path(&self, verb: &str) -> Result<(), Error> {
        if self.request().grants_any() {
            return Ok(());
        }
        tracing::debug!("{}: nothing is granted to it, so it may not {verb}", self.caller.identity);
        Err(refusal(verb))
    }

    /// Decides about a prepare request. Its paths are not known, so it is for the client that made
    /// it, and for clients that may do everything everywhere.
    pub(super) fn prepare_request(&self, verb: &str, id: &[u8]) -> Result<(), Error> {
        self.owned_request(verb, prepare::is_owner(id, self.caller))
    }

    fn owned_request(&self, verb: &str, is_owner: bool) -> Result<(), Error> {
        let everything =
            || EVERYTHING.iter().all(|&operation| self.request().permits(operation, &LogicalPath::root()));
        if !is_owner && !everything() {
            let who = &self.caller.identity;
            tracing::debug!("{who}: another client made the request, so it may not {verb}");
            return Err(refusal(verb));
        }
        self.without_path(verb)
    }

    /// Decides about a tape request with this id. One that no server of ours issued concerns nobody.
    pub(super) fn tape_request(&self, verb: &str, id: &str) -> Result<(), Error> {
        match prepare::owner_of(id.as_bytes()) {
            Some(mark) => self.owned_request(verb, mark == self.owner_mark()),
            None => self.without_path(verb),
        }
    }

    /// Returns the mark of the client: the bearer of the token of the request, else that of the login. The
    /// bearers of a macaroon are one client.
    pub(super) fn owner_mark(&self) -> String {
        if let Some(MacaroonVerdict::Valid(macaroon)) = self.token.and_then(|token| token.macaroon.as_ref()) {
            return prepare::bearer_mark("", macaroon.identifier());
        }
        match self.token.and_then(|token| token.token.as_ref()) {
            Some(TokenVerdict::Valid(token)) => prepare::bearer_mark(&token.issuer().url, token.subject()),
            _ => prepare::owner_mark(self.caller),
        }
    }

    /// Decides about the staging of a file for a tape request. A token needs the scope for it. Who may
    /// read by rules may stage, as by a prepare request.
    pub(super) fn tape_staging(&self, path: &LogicalPath) -> Result<(), Error> {
        let operations = (AccessOperation::Stage, AccessOperation::Read);
        match self.request().allows_by_rules_as(operations, path, &self.caller.identity) {
            true => Ok(()),
            false => Err(unable("stage", path, errno::ACCESS)),
        }
    }

    /// Decides about a look where a file is.
    pub(super) fn tape_locality(&self, path: &LogicalPath) -> Result<(), Error> {
        let reads = self.permits(AccessOperation::Read, path);
        self.path(if reads { AccessOperation::Read } else { AccessOperation::Poll }, "locate", path)
    }

    /// Decides about an open that creates or replaces a file. Scopes can allow the creation of new
    /// files only.
    pub(super) fn create(&self, target: &Target) -> Result<AllowedOperation, Error> {
        let path = plain(&target.path);
        let permits = |operation| self.request().permits(operation, &path);
        let is_exclusive = !permits(AccessOperation::Create) && permits(AccessOperation::ExclusiveCreate);
        let operation = if is_exclusive { AccessOperation::ExclusiveCreate } else { AccessOperation::Create };
        self.path(operation, "create", &path)?;
        // Also without missing parents, because some origins create them with each file.
        let existing = self.existing_parent(&target.path);
        Ok(AllowedOperation { existing, is_exclusive })
    }

    /// Decides about a rename. Returns the directory that must exist.
    pub(super) fn rename(&self, from: &Target, to: &Target) -> Result<Option<LogicalPath>, Error> {
        let names = [(AccessOperation::Rename, &from.path), (AccessOperation::Insert, &to.path)];
        for (operation, path) in names {
            self.object(operation, "rename", path)?;
        }
        for (operation, path) in names {
            if self.request().has_rule_below(operation, path) {
                let who = &self.caller.identity;
                tracing::info!("{who}: {} may not be renamed, as rules name paths below it", path.shown());
                return Err(unable("rename", path, errno::ACCESS));
            }
        }
        Ok(self.existing_parent(&to.path))
    }

    /// Returns the nearest directory above a path that the client may not create. The directory of
    /// the export always exists, and so do those above it.
    pub(super) fn existing_parent(&self, path: &LogicalPath) -> Option<LogicalPath> {
        let exports = self.exports.iter().filter(|export| path.is_within(export));
        let export = exports.max_by_key(|export| export.as_bytes().len());
        let above = std::iter::successors(path.without_slash().parent(), LogicalPath::parent);
        above
            .map(|directory| directory.without_slash())
            .take_while(|directory| {
                !directory.is_root() && export.is_none_or(|export| !export.is_within(directory))
            })
            .find(|directory| !self.may_make(directory))
    }

    /// Reports whether the client may make a directory. It is not an audited decision, because the
    /// directory may exist.
    fn may_make(&self, directory: &LogicalPath) -> bool {
        self.request().permits(AccessOperation::MakeDirectory, directory)
    }
}

/// Returns the refusal of an operation without a path.
fn refusal(verb: &str) -> Error {
    Error::new(ErrorKind::NotAuthorized, format!("Unable to {verb}; permission denied"))
}

/// Returns a path without the trailing `/` that asks for a directory.
fn plain(path: &LogicalPath) -> Cow<'_, LogicalPath> {
    match path.as_bytes().ends_with(b"/") {
        true => Cow::Owned(path.without_slash()),
        false => Cow::Borrowed(path),
    }
}
