//! Clients that may only read: those with a limited proxy of a grid certificate.
//!
//! It wraps the complete file system and precedes authorization, because the limit is one of the
//! credentials, whatever the rules allow their user. An open file needs no check, because it was opened
//! for reading.

use base::ErrorKind;
use std::sync::Arc;
use vfs::{
    Answer, AttributeWork, CachedFileCommand, Caller, FileSystem, OpenFile, Operation, RedirectAnswer,
    ReplyTo, Started,
};

/// The error of a refused operation.
const REFUSAL: &str = "a limited proxy may only read (gsi.limited); use a full one";

/// A file system in which some clients may only read.
pub(crate) struct ReadingClients(Arc<dyn FileSystem>);

impl ReadingClients {
    /// Returns `behind` itself if there are no such clients.
    pub(crate) fn before(behind: Arc<dyn FileSystem>, are_expected: bool) -> Arc<dyn FileSystem> {
        if are_expected { Arc::new(Self(behind)) } else { behind }
    }
}

impl FileSystem for ReadingClients {
    fn start(&self, caller: &Arc<Caller>, operation: Operation, reply: &ReplyTo) -> Started {
        if changes(&operation) && caller.entity().is_some_and(|entity| entity.only_reads) {
            return Started::Done(Answer::error(ErrorKind::NotAuthorized, REFUSAL));
        }
        self.0.start(caller, operation, reply)
    }

    fn read_redirect(&self, caller: &Caller, file: &dyn OpenFile) -> Option<RedirectAnswer> {
        self.0.read_redirect(caller, file)
    }
}

/// Reports whether an operation can change something.
fn changes(operation: &Operation) -> bool {
    match operation {
        Operation::Open(_, request) => request.write || request.append || request.new || request.delete,
        Operation::Attributes(_, work) => {
            matches!(work, AttributeWork::Set { .. } | AttributeWork::Remove(_))
        }
        Operation::MakeDirectory { .. }
        | Operation::RemoveDirectory(_)
        | Operation::Remove(_)
        | Operation::Rename { .. }
        | Operation::ChangeMode { .. }
        | Operation::Truncate { .. }
        | Operation::Cache(_, CachedFileCommand::Evict | CachedFileCommand::EvictOpen)
        // The macaroon could allow changes.
        | Operation::IssueMacaroon(..)
        // Only a plug-in knows the effect.
        | Operation::QueryOpaque { .. } => true,
        Operation::Stat(_)
        | Operation::StatSpace(_)
        | Operation::StatMany(_)
        | Operation::List(..)
        | Operation::ListMore(_)
        | Operation::Locate(..)
        | Operation::Checksum(_)
        | Operation::CancelChecksum(_)
        | Operation::QueryAttributes(_)
        | Operation::QuerySpace(_)
        | Operation::Cache(_, CachedFileCommand::IsCached)
        | Operation::Prepare(..)
        | Operation::CancelPrepare { .. }
        | Operation::QueryPrepare { .. }
        | Operation::Tape(_) => false,
    }
}
