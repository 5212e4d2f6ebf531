//! The components that open files use. They are in one struct so that each open file needs only one
//! reference.

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

/// The components that open files use.
pub(crate) struct FileServices {
    pub(crate) attribute_limits: AttributeLimits,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) users: Arc<dyn Users>,
    pub(crate) open_table: Arc<OpenTable>,
    pub(crate) persist: Arc<Persist>,
    pub(crate) checkpoints: Arc<Checkpoints>,
    pub(crate) checksums: Arc<Checksums>,
    /// Algorithm of the checksums that are computed while clients write new files.
    pub(crate) checksum_type: Option<Algorithm>,
    pub(crate) events: Arc<Announcer>,
}
