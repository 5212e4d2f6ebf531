//! Decides whether a file is complete ("whole") or unfinished. All components ask here, so that a
//! status, a listing and an open never disagree.
//!
//! An unfinished file has the sticky bit. The bit is a mark if one of these holds:
//!
//! * The file belongs to the user of this server, so that a server wrote it: this one, an earlier
//!   version of it, another one with the same tree, or an XRootD before it.
//! * The file has the number attribute [`proof::NONCE`].
//! * A record of this server names the file.
//! * The file is empty and has exactly the mode of a file under creation
//!   ([`describe::MODE_CREATING`]), which has no number yet.
//! * The file system does not support attributes, and this server lets files of this export persist
//!   on close. The owner proves nothing where servers have other users on the file server.
//!
//! On a file of another user the bit alone proves nothing, because an administrator or another
//! program may have set it.
//!
//! A file without the bit is complete, with one exception: a record names its path, and the
//! directories above it are not those of the record. In that case a copy of the tree may have lost
//! the bit and the number.
//!
//! Where the attribute cannot be read for another reason, the file counts as unfinished.

use crate::config::PersistMode;
use crate::describe::{self, UserDirectory};
use crate::errno;
use crate::exports::ExportTable;
use crate::persist::UnfinishedFiles;
use crate::proof;
use base::{Clock, LogicalPath};
use std::io;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use storage::{Backend, Metadata, StoredFile};
use vfs::FileKind;

/// The state of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wholeness {
    /// Complete.
    Whole,
    /// Unfinished with a record of this server, possibly under another name.
    Pending,
    /// Marked as unfinished, and possibly being written.
    Marked,
    /// Marked as unfinished, and not changed for the hold time.
    Left,
    /// Not marked, but a record names its path with another identity. It may be an unfinished file
    /// whose mark was lost in a copy.
    Unresolved,
}

/// Decides the state of files.
pub(crate) struct WholenessRule {
    /// Selects the new files that persist only after a successful close.
    pub(crate) persist_mode: PersistMode,
    /// Time after the last change at which a file no longer counts as being written.
    pub(crate) hold: Duration,
    pub(crate) exports: Arc<ExportTable>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) persist: Arc<UnfinishedFiles>,
    pub(crate) users: Arc<dyn UserDirectory>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl WholenessRule {
    /// Returns the rule for files as an account sees them.
    pub(crate) fn for_account(&self, backend: &Arc<dyn Backend>, users: &Arc<dyn UserDirectory>) -> Self {
        Self {
            persist_mode: self.persist_mode,
            hold: self.hold,
            exports: self.exports.clone(),
            backend: backend.clone(),
            persist: self.persist.clone(),
            users: users.clone(),
            clock: self.clock.clone(),
        }
    }

    /// Returns the state of an open file. May block.
    pub(crate) fn of_open(
        &self,
        path: &LogicalPath,
        metadata: &Metadata,
        file: &dyn StoredFile,
    ) -> Wholeness {
        self.decide(path, metadata, || file.attribute(proof::NONCE))
    }

    /// Returns the state of the file at a path. May block.
    pub(crate) fn at(&self, path: &LogicalPath, metadata: &Metadata) -> Wholeness {
        self.decide(path, metadata, || self.backend.attribute(path, proof::NONCE))
    }

    /// Returns the state of a file whose number attribute is read by `number`.
    pub(crate) fn decide(
        &self,
        path: &LogicalPath,
        metadata: &Metadata,
        number: impl FnOnce() -> io::Result<Option<Vec<u8>>>,
    ) -> Wholeness {
        if let Some(known) = self.now(path, metadata) {
            return known;
        }
        let is_marked = match number() {
            Ok(number) => number.is_some(),
            Err(error) if error.raw_os_error() == Some(errno::UNSUPPORTED) => self.may_mark(path),
            Err(_) => true,
        };
        if is_marked { self.by_age(metadata) } else { Wholeness::Whole }
    }

    /// Reports whether files without the bit may be unfinished. Never blocks.
    pub(crate) fn has_absent_records(&self) -> bool {
        !self.persist.absent().is_empty()
    }

    /// Returns the state if the number attribute is not needed. Never blocks.
    pub(crate) fn now(&self, path: &LogicalPath, metadata: &Metadata) -> Option<Wholeness> {
        if !describe::has_mark_bit(metadata) {
            let is_unresolved =
                describe::kind(metadata) == FileKind::File && self.persist.absent().has_identified(path);
            Some(if is_unresolved { Wholeness::Unresolved } else { Wholeness::Whole })
        } else if self.persist.is_known(metadata) {
            Some(Wholeness::Pending)
        } else if self.has_own_user(metadata)
            || describe::is_being_created(metadata)
            || self.persist.absent().has(path)
        {
            Some(self.by_age(metadata))
        } else {
            None
        }
    }

    fn has_own_user(&self, metadata: &Metadata) -> bool {
        metadata.uid == self.users.own_uid()
    }

    /// Reports whether this server itself may create unfinished files at a path.
    fn may_mark(&self, path: &LogicalPath) -> bool {
        self.persist_mode != PersistMode::Off
            && self.exports.find(path, "Opening").is_ok_and(|export| !export.is_read_only())
    }

    fn by_age(&self, metadata: &Metadata) -> Wholeness {
        let today = self.clock.today().duration_since(UNIX_EPOCH).unwrap_or_default();
        let last = Duration::from_secs(u64::try_from(metadata.modified.max(metadata.changed)).unwrap_or(0));
        let is_left = today.saturating_sub(last) > self.hold;
        if is_left { Wholeness::Left } else { Wholeness::Marked }
    }
}
