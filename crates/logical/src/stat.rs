//! The status of paths. Most stat requests are answered without waiting; the pool is used for a
//! disk or for names of owners.

use crate::config::ExportConfig;
use crate::describe::{self, StatView, UserDirectory};
use crate::exports::ExportTable;
use crate::job::{done, on_pool};
use crate::lookup::{metadata, metadata_now};
use crate::path_lists::{PathListStep, PathListWalk};
use crate::steps::{self, StepResult, StepwiseWork};
use crate::wholeness::{Wholeness, WholenessRule};
use base::{Error, LogicalPath};
use std::sync::Arc;
use storage::{Backend, Metadata, STEP_ITEMS_MAX};
use vfs::{Answer, BriefStat, Caller, FileStat, ReplyTo, Started, Target, TargetList, Value};

/// The components that serve the status of paths.
pub(crate) struct StatService {
    pub(crate) exports: Arc<ExportTable>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) users: Arc<dyn UserDirectory>,
    pub(crate) wholeness: Arc<WholenessRule>,
}

impl StatService {
    /// Returns the status of a path as clients see it. May look up names of owners.
    fn of(&self, path: &LogicalPath, metadata: &Metadata, export: &ExportConfig) -> FileStat {
        let pending = self.wholeness.at(path, metadata) != Wholeness::Whole;
        describe::stat(metadata, self.users.as_ref(), StatView { read_only: export.is_read_only(), pending })
    }

    /// Returns the status of a path if that needs no waiting.
    fn now(&self, path: &LogicalPath, metadata: &Metadata, export: &ExportConfig) -> Option<FileStat> {
        let pending = self.wholeness.now(path, metadata)? != Wholeness::Whole;
        describe::stat_now(
            metadata,
            self.users.as_ref(),
            StatView { read_only: export.is_read_only(), pending },
        )
    }
}

/// Returns the status of a path, at once if it is in memory.
pub(crate) fn start(stats: &Arc<StatService>, target: Target, reply: &ReplyTo) -> Started {
    let export = match stats.exports.find(&target.path, "Stating") {
        Ok(export) => export,
        Err(error) => return done(Err(error)),
    };
    match metadata_now(stats.backend.as_ref(), &target.path, "locate") {
        Some(Err(error)) => return done(Err(error)),
        Some(Ok(metadata)) => {
            if let Some(stat) = stats.now(&target.path.without_slash(), &metadata, export) {
                return done(Ok(Value::Stat(stat)));
            }
        }
        None => {}
    }
    on_pool(&stats.backend, stats, target, reply, |stats, target| {
        let export = stats.exports.find(&target.path, "Stating")?;
        let metadata = metadata(stats.backend.as_ref(), &target.path, "locate")?;
        Ok(Value::Stat(stats.of(&target.path.without_slash(), &metadata, export)))
    })
}

/// Returns the brief status of several paths in order, each in the pool of the file system to which
/// it leads.
pub(crate) fn stat_many(
    stats: &Arc<StatService>,
    caller: &Arc<Caller>,
    list: &TargetList,
    reply: &ReplyTo,
) -> Started {
    let walk = PathListWalk::new(&stats.backend, list);
    let pool = walk.pool().clone();
    let found = Vec::with_capacity(list.len_max());
    steps::start(&pool, caller, reply, StatMany { stats: stats.clone(), walk, found })
}

struct StatMany {
    stats: Arc<StatService>,
    walk: PathListWalk,
    found: Vec<BriefStat>,
}

impl StatMany {
    fn stat(&self, target: &Target) -> Result<BriefStat, Error> {
        self.stats.exports.find(&target.path, "Stating")?;
        let found = metadata(self.stats.backend.as_ref(), &target.path, "locate")?;
        Ok(BriefStat::new(describe::kind(&found), found.offline))
    }
}

impl StepwiseWork for StatMany {
    fn step(&mut self) -> StepResult {
        for _ in 0..STEP_ITEMS_MAX {
            let stat = match self.walk.next() {
                PathListStep::Target(target) => self.stat(&target),
                PathListStep::Wrong(error) => Err(error),
                PathListStep::MoveTo(pool) => return StepResult::MoveTo(pool),
                PathListStep::End => {
                    let found = std::mem::take(&mut self.found);
                    return StepResult::Done(Answer::Value(Value::BriefStats(found)));
                }
            };
            match stat {
                Ok(stat) => self.found.push(stat),
                Err(error) => return StepResult::Done(Answer::Error(error)),
            }
        }
        StepResult::More
    }
}
