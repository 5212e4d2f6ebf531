//! The name that the token of a request gives its bearer, with whose account the operation is made
//! (multi-user, decision 045).
//!
//! The name can depend on the operation, because a scope may allow it, and on the path, because map
//! rules can name paths.

use super::check::AccessCheck;
use crate::errno::{self, unable};
use auth::access::AccessOperation;
use base::{Error, LogicalPath};
use vfs::{AttributeWork, CachedFileCommand, OpenRequest, Operation};

/// Returns the name for an operation that was allowed; `None` if the name of the login counts.
///
/// # Errors
/// The two paths of a rename give different names.
pub(super) fn of(check: &AccessCheck<'_>, operation: &Operation) -> Result<Option<Box<str>>, Error> {
    let name = |operation, path: &LogicalPath| check.bearer_name(operation, path);
    let found = match operation {
        Operation::Open(target, request) => name(of_open(check, &target.path, request), &target.path),
        Operation::Stat(target)
        | Operation::QueryAttributes(target)
        | Operation::StatSpace(target)
        | Operation::QuerySpace(target)
        | Operation::Checksum(target)
        | Operation::CancelChecksum(target)
        | Operation::Locate(Some(target), _) => name(AccessOperation::Stat, &target.path),
        Operation::StatMany(targets) => name(AccessOperation::Stat, &targets.first().path),
        Operation::List(target, _) => name(AccessOperation::ReadDirectory, &target.path),
        Operation::Attributes(target, AttributeWork::Get(_) | AttributeWork::List { .. }) => {
            name(AccessOperation::Read, &target.path)
        }
        Operation::Attributes(target, AttributeWork::Set { .. } | AttributeWork::Remove(_))
        | Operation::Truncate { target, .. } => name(AccessOperation::Update, &target.path),
        Operation::Prepare(_, targets) => name(AccessOperation::Read, &targets.first().path),
        Operation::QueryPrepare { id, targets: Some(targets) } => {
            name(super::query_of_request(id, check.caller), &targets.first().path)
        }
        Operation::MakeDirectory { target, .. } => name(AccessOperation::MakeDirectory, &target.path),
        Operation::RemoveDirectory(target)
        | Operation::Remove(target)
        | Operation::Cache(target, CachedFileCommand::Evict | CachedFileCommand::EvictOpen) => {
            name(AccessOperation::Delete, &target.path)
        }
        Operation::Cache(target, CachedFileCommand::IsCached) => name(AccessOperation::Stat, &target.path),
        Operation::ChangeMode { target, .. } => name(AccessOperation::ChangeMode, &target.path),
        Operation::Rename { from, to, .. } => {
            let found = name(AccessOperation::Rename, &from.path);
            if found != name(AccessOperation::Insert, &to.path) {
                return Err(unable("rename", &to.path, errno::ACCESS));
            }
            found
        }
        // A position keeps the rights of its first page. A macaroon is issued without any file. The others have
        // no path.
        Operation::ListMore(_)
        | Operation::Locate(None, _)
        | Operation::CancelPrepare { .. }
        | Operation::QueryPrepare { targets: None, .. }
        | Operation::QueryOpaque { .. }
        | Operation::Tape(_)
        | Operation::IssueMacaroon(..) => None,
    };
    Ok(found.map(Into::into))
}

/// Returns the operation that was allowed for an open.
fn of_open(check: &AccessCheck<'_>, path: &LogicalPath, request: &OpenRequest) -> AccessOperation {
    if request.new || request.delete {
        return match check.permits(AccessOperation::Create, path) {
            true => AccessOperation::Create,
            false => AccessOperation::ExclusiveCreate,
        };
    }
    match request.write || request.append {
        true => AccessOperation::Update,
        false => AccessOperation::Read,
    }
}
