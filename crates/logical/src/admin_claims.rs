//! The components for administrator commands, and the claim on the file of a command.
//!
//! A command examines a file, decides, and changes it. All three steps must concern the same file.
//! Therefore the name is claimed first and the file is opened once; the name is not looked up
//! again.

use crate::checkpoint::CheckpointTable;
use crate::checksum::ChecksumService;
use crate::describe;
use crate::errno::{self, os, unable};
use crate::events::EventForwarder;
use crate::exports::ExportTable;
use crate::open_table::OpenTable;
use crate::persist::{ClaimScope, PathClaim, UnfinishedFiles};
use crate::rights::with_rights;
use crate::wholeness::WholenessRule;
use crate::writers::{FileKey, WriterTicket};
use base::{Error, LogicalPath};
use std::io;
use std::sync::Arc;
use storage::{Backend, Metadata, OpenMode, StorageUser, StoredFile};
use vfs::FileKind;

/// Executes administrator commands.
pub(crate) struct AdminOrders {
    pub(crate) exports: Arc<ExportTable>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) open_table: Arc<OpenTable>,
    pub(crate) persist: Arc<UnfinishedFiles>,
    pub(crate) checkpoints: Arc<CheckpointTable>,
    pub(crate) checksums: Arc<ChecksumService>,
    pub(crate) wholeness: Arc<WholenessRule>,
    pub(crate) events: Arc<EventForwarder>,
}

/// A claimed name, which no other operation changes while this exists, and its file.
pub(crate) struct ClaimedName<'a> {
    pub(crate) path: LogicalPath,
    /// `None` if there was no regular file, or it could not be opened.
    pub(crate) file: Option<ClaimedFile>,
    /// The reason why an existing file could not be used. A command that only ends a record does
    /// not need it.
    pub(crate) obstacle: Option<Error>,
    _claim: PathClaim<'a>,
}

/// The regular file at a claimed name. It counts as open for writing, so that no checksum of it is
/// stored meanwhile.
pub(crate) struct ClaimedFile {
    pub(crate) file: Arc<dyn StoredFile>,
    pub(crate) metadata: Metadata,
    holder: WriterTicket,
}

impl ClaimedFile {
    pub(crate) fn key(&self) -> FileKey {
        self.holder.key()
    }
}

impl<'a> ClaimedName<'a> {
    /// Claims a name in an export and opens its file, with the rights of `account` if there is one.
    /// Blocks.
    pub(crate) fn take(
        orders: &'a AdminOrders,
        path: &LogicalPath,
        verb: &str,
        (write, account): (bool, Option<Arc<StorageUser>>),
    ) -> Result<Self, Error> {
        let path = path.without_slash();
        orders.exports.find(&path, "Repairing")?;
        let claim = orders.persist.claim(&[&path], ClaimScope::Name);
        let claim = claim.ok_or_else(|| unable(verb, &path, errno::TEXT_BUSY))?;
        let how = OpenMode { write, ..OpenMode::default() };
        let backend = orders.backend.as_ref();
        let opened = with_rights(backend, account.as_ref(), |backend| backend.open(&path, &how));
        let (file, obstacle) = match opened.and_then(|file| ClaimedFile::of(orders, file)) {
            Ok(file) => (Some(file), None),
            Err(error) if error.raw_os_error() == Some(errno::NOT_FOUND) => (None, None),
            Err(error) => (None, Some(Error::unable(verb, &path, error))),
        };
        Ok(Self { path, file, obstacle, _claim: claim })
    }
}

impl ClaimedFile {
    fn of(orders: &AdminOrders, file: Arc<dyn StoredFile>) -> io::Result<Self> {
        let metadata = file.stat()?;
        match describe::kind(&metadata) {
            FileKind::File => {}
            FileKind::Directory => return Err(os(errno::IS_A_DIRECTORY)),
            FileKind::Other => return Err(os(errno::INVALID)),
        }
        let holder = orders.open_table.writers.add(FileKey::from(&metadata));
        Ok(Self { file, metadata, holder })
    }
}
