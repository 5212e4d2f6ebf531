//! The components that open files use. They are in one struct so that each open file needs only one
//! reference.

use crate::checkpoint::CheckpointTable;
use crate::checksum::ChecksumService;
use crate::config::AttributeLimits;
use crate::describe::UserDirectory;
use crate::events::EventForwarder;
use crate::open_table::OpenTable;
use crate::persist::UnfinishedFiles;
use base::Clock;
use digest::Algorithm;
use std::sync::Arc;
use storage::Backend;

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
}
