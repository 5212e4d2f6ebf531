//! The parts of a server that open files use.

use crate::checkpoint::Checkpoints;
use crate::checksum::Checksums;
use crate::config::AttributeLimits;
use crate::describe::Users;
use crate::events::Announcer;
use crate::open_table::OpenTable;
use crate::persist::Persist;
use base::Clock;
use digest::Algorithm;
use std::sync::Arc;
use storage::Backend;

/// The parts of a server that its open files use. Each open file has a reference to them.
pub(crate) struct FileServices {
    pub(crate) attribute_limits: AttributeLimits,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) users: Arc<dyn Users>,
    pub(crate) open_table: Arc<OpenTable>,
    pub(crate) persist: Arc<Persist>,
    pub(crate) checkpoints: Arc<Checkpoints>,
    pub(crate) checksums: Arc<Checksums>,
    /// The type of the checksums that are computed while clients write new files.
    pub(crate) checksum_type: Option<Algorithm>,
    pub(crate) events: Arc<Announcer>,
}
