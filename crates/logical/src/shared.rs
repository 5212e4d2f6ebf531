//! What opening, open files and changes of names still take as one.

use crate::checkpoint::Checkpoints;
use crate::checksum::Checksums;
use crate::config::{Config, Export};
use crate::describe::Users;
use crate::events::Announcer;
use crate::exports::Exports;
use crate::lock::Locks;
use crate::open_table::OpenTable;
use crate::persist::Persist;
use crate::third_party::ThirdParty;
use crate::wholeness::WholenessRule;
use crate::writers::Writers;
use base::{Clock, Error, LogicalPath};
use std::sync::{Arc, OnceLock};
use storage::{Backend, Metadata};

/// What opening, open files and changes of names still take as one.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) exports: Arc<Exports>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) users: Arc<dyn Users>,
    pub(crate) open_table: Arc<OpenTable>,
    pub(crate) locks: Arc<Locks>,
    pub(crate) writers: Arc<Writers>,
    pub(crate) persist: Arc<Persist>,
    pub(crate) checkpoints: Arc<Checkpoints>,
    pub(crate) checksums: Arc<Checksums>,
    pub(crate) wholeness: Arc<WholenessRule>,
    pub(crate) events: Arc<Announcer>,
    /// Copies from and to other servers; `None` where there are none.
    pub(crate) third_party: OnceLock<Arc<ThirdParty>>,
}

impl Shared {
    pub(crate) fn export(&self, path: &LogicalPath, participle: &str) -> Result<&Export, Error> {
        self.exports.find(path, participle)
    }

    pub(crate) fn metadata(&self, path: &LogicalPath, verb: &str) -> Result<Metadata, Error> {
        crate::lookup::metadata(self.backend.as_ref(), path, verb)
    }
}
