//! The components that open files use. They are in one struct so that each open file needs only one
//! reference.

use crate::checkpoint::CheckpointTable;
use crate::checksum::ChecksumService;
use crate::config::AttributeLimits;
use crate::describe::{self, UserDirectory};
use crate::errno;
use crate::events::EventForwarder;
use crate::open_table::OpenTable;
use crate::persist::UnfinishedFiles;
use crate::rights::{AccountView, StorageRights};
use crate::wholeness::{Wholeness, WholenessRule};
use crate::writers::FileKey;
use base::{Clock, LogicalPath};
use digest::Algorithm;
use std::io;
use std::sync::Arc;
use storage::{Backend, Metadata, StorageUser};
use vfs::FileKind;

/// The components that open files use.
pub(crate) struct FileServices {
    pub(crate) attribute_limits: AttributeLimits,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) users: Arc<dyn UserDirectory>,
    pub(crate) open_table: Arc<OpenTable>,
    pub(crate) persist: Arc<UnfinishedFiles>,
    pub(crate) checkpoints: Arc<CheckpointTable>,
    pub(crate) checksums: Arc<ChecksumService>,
    /// Algorithm of the checksums that are computed while clients write new files.
    pub(crate) checksum_type: Option<Algorithm>,
    pub(crate) events: Arc<EventForwarder>,
    pub(crate) wholeness: Arc<WholenessRule>,
    /// The rights with which these components access the storage.
    pub(crate) rights: StorageRights,
}

impl FileServices {
    /// Fails if the file at a path, which has this status if it exists, must not be replaced.
    pub(crate) fn check_replaced(&self, path: &LogicalPath, found: Option<&Metadata>) -> io::Result<()> {
        let refuse = |number| Err(io::Error::from_raw_os_error(number));
        let blocked = self.checkpoints.blocked();
        blocked.check_path(path, true)?;
        if self.checkpoints.keeps_names_below(path) {
            return refuse(errno::TEXT_BUSY);
        }
        let Some(found) = found else { return Ok(()) };
        match describe::kind(found) {
            FileKind::File => {}
            FileKind::Directory => return refuse(errno::IS_A_DIRECTORY),
            FileKind::Other => return refuse(errno::NOT_A_BLOCK_DEVICE),
        }
        if self.open_table.has_writer(path, found) {
            // What its writers are told is stored would be lost.
            return refuse(errno::TEXT_BUSY);
        }
        blocked.check_file(FileKey::from(found), || self.backend.identity(path), true)?;
        match self.wholeness.at(path, found) {
            Wholeness::Whole => Ok(()),
            _ => refuse(errno::TEXT_BUSY),
        }
    }

    /// Returns the components with the rights of an account; `None` if the storage cannot act for
    /// users. The tables of open, unfinished and checkpointed files stay common to all.
    pub(crate) fn for_user(&self, user: &Arc<StorageUser>) -> Option<Self> {
        let backend = self.backend.as_user(user)?;
        let users: Arc<dyn UserDirectory> =
            Arc::new(AccountView { names: self.users.clone(), user: user.clone() });
        let wholeness = Arc::new(self.wholeness.for_account(&backend, &users));
        let checksums = Arc::new(self.checksums.for_account(&backend, &wholeness));
        Some(Self {
            attribute_limits: self.attribute_limits,
            backend,
            clock: self.clock.clone(),
            users,
            open_table: self.open_table.clone(),
            persist: self.persist.clone(),
            checkpoints: self.checkpoints.clone(),
            checksums,
            checksum_type: self.checksum_type,
            events: self.events.clone(),
            wholeness,
            rights: StorageRights::User(user.clone()),
        })
    }
}
