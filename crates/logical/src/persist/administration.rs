//! Administrator commands for unfinished files: list them, and declare one complete. They exist
//! because the server never decides by itself that a file of unknown origin is complete.

use super::unfinished::{UnfinishedFile, UnfinishedState};
use super::walk::{ListReply, UnfinishedWalk, WalkLimits};
use super::{UnfinishedFiles, mark};
use crate::admin_claims::{AdminOrders, ClaimedName};
use crate::wholeness::Wholeness;
use base::{Error, ErrorKind, LogicalPath, Owner};
use std::sync::Arc;
use storage::{Metadata, StorageUser};

/// The command in error texts.
const VERB: &str = "clear";

/// The result of clearing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClearOutcome {
    /// The file is complete now.
    Whole,
    /// The file does not exist; its record was ended.
    Record,
}

impl UnfinishedFiles {
    /// Returns the files with a record in no particular order. Never blocks.
    pub(super) fn recorded(&self) -> Vec<UnfinishedFile> {
        let now = self.clock.now();
        let mut all: Vec<UnfinishedFile> = self
            .table()
            .files
            .values()
            .map(|pending| {
                let left = pending.expires.unwrap_or(now).saturating_sub(now);
                let state = match pending.holders {
                    0 => UnfinishedState::Held { seconds: left.as_secs() },
                    handles => UnfinishedState::Open { handles },
                };
                UnfinishedFile { path: pending.record.path.clone(), state }
            })
            .collect();
        all.extend(self.absent.list());
        all
    }

    /// Returns the account in the record of a path.
    fn account_at(&self, path: &LogicalPath) -> Option<Arc<StorageUser>> {
        let recorded = self.table().at(path).and_then(|pending| pending.record.account.clone());
        recorded.or_else(|| self.absent.account_at(path))
    }

    /// Returns the path of the record of this file.
    fn recorded_path(&self, metadata: &Metadata) -> Option<LogicalPath> {
        self.table().path_of_file(metadata)
    }

    /// Fails with the number of handles that write the file at a path.
    fn check_unheld(&self, path: &LogicalPath) -> Result<(), u32> {
        let holders = self.table().at(path).map_or(0, |pending| pending.holders);
        if holders == 0 { Ok(()) } else { Err(holders) }
    }

    /// Ends the record of a claimed path whose file is not open. Reports whether there was a
    /// record.
    fn end_record(&self, path: &LogicalPath) -> bool {
        let pending = self.number_at(path);
        if let Some(number) = pending {
            self.forget_number(number);
            self.journal.end([number]);
        }
        let was_absent = self.absent.has(path);
        // The command ends the record in any case, so nothing has to be durable before.
        self.absent.end(path, || Ok(()));
        pending.is_some() || was_absent
    }
}

impl AdminOrders {
    /// Returns the unfinished files with a record, sorted by path. Never blocks.
    pub(crate) fn unfinished(&self) -> Vec<UnfinishedFile> {
        let mut all = self.persist.recorded();
        all.sort_by(|one, other| one.path.as_bytes().cmp(other.path.as_bytes()));
        all
    }

    /// Lists unfinished files at and below a path, including those without a record. Never blocks.
    pub(crate) fn list_unfinished(&self, below: &LogicalPath, limits: WalkLimits, reply: impl ListReply) {
        let top = below.without_slash();
        if self.exports.find(&top, "Listing").is_err() {
            let exports: Vec<_> = self.exports.all().iter().map(|export| export.prefix.escaped()).collect();
            let text = format!(
                "Unable to list {}; it is outside of the exports of this server: {}",
                top.escaped(),
                exports.join(", ")
            );
            return reply.send(Err(Error::new(ErrorKind::NotAuthorized, text)));
        }
        let walk = UnfinishedWalk::new(top, limits, (&self.backend, &self.wholeness, &self.persist), reply);
        let pool = walk.pool().clone();
        pool.start(Owner::unique(), Box::new(walk));
    }

    /// Declares an unfinished file complete, or ends the record of a missing one. Blocks.
    pub(crate) fn clear_unfinished(&self, path: &LogicalPath, force: bool) -> Result<ClearOutcome, Error> {
        let account = self.persist.account_at(&path.without_slash());
        let claimed = ClaimedName::take(self, path, VERB, (false, account))?;
        let path = &claimed.path;
        let unfinished = claimed.file.as_ref().and_then(|target| {
            let wholeness = self.wholeness.of_open(path, &target.metadata, target.file.as_ref());
            (wholeness != Wholeness::Whole).then_some((target, wholeness))
        });
        if let Some((target, wholeness)) = unfinished {
            self.may_be_cleared(path, &target.metadata, wholeness == Wholeness::Left || force)?;
        }
        self.persist.check_unheld(path).map_err(|handles| {
            refusal(ErrorKind::InProgress, path, &format!("clients are writing it ({handles} handles)"))
        })?;
        if let Some((target, _)) = unfinished {
            mark::clear(target.file.as_ref(), &target.metadata).map_err(|e| Error::unable(VERB, path, e))?;
            tracing::info!(path = %path.shown(), "an administrator declared an unfinished file complete");
        }
        if let Some(error) = claimed.obstacle.filter(|_| !force) {
            return Err(error);
        }
        let had_record = self.persist.end_record(path);
        if unfinished.is_some() {
            self.events.created(path, false);
            return Ok(ClearOutcome::Whole);
        }
        if had_record {
            return Ok(ClearOutcome::Record);
        }
        Err(refusal(ErrorKind::NotFound, path, "it is not unfinished, and there is no record of it"))
    }

    /// Refuses to clear a file that may be being written: by a client under another name, or by
    /// another server with the same tree.
    fn may_be_cleared(&self, path: &LogicalPath, found: &Metadata, is_left: bool) -> Result<(), Error> {
        let persist = &self.persist;
        let why = match (is_left, persist.recorded_path(found)) {
            (_, Some(recorded)) if recorded != *path => {
                format!("its record names it {}: clear that name", recorded.escaped())
            }
            (false, None) if !persist.absent.has(path) => format!(
                "it was changed in the last {} s, so another server may be writing it: try again later, or use --force if none is",
                self.wholeness.hold.as_secs()
            ),
            _ => return Ok(()),
        };
        Err(refusal(ErrorKind::InProgress, path, &why))
    }
}

fn refusal(kind: ErrorKind, path: &LogicalPath, why: &str) -> Error {
    Error::new(kind, format!("Unable to {VERB} {}; {why}", path.escaped()))
}
