//! Lists unfinished files for an administrator, and declares one whole.

use super::{Persist, Scope, mark};
use crate::describe;
use crate::errno::{self, unable};
use crate::file_system::Logical;
use crate::shared::Shared;
use crate::wholeness::Wholeness;
use base::{Error, ErrorKind, LogicalPath};
use storage::{Metadata, OpenHow, StoredFile};

/// Names that are looked at for one list.
const NAMES_MAX: usize = 100_000;
/// Names that are read at once.
const NAMES_AT_ONCE: usize = 512;

/// An unfinished file, or the record of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unfinished {
    /// Its name.
    pub path: LogicalPath,
    /// Its state.
    pub state: UnfinishedState,
}

/// The state of an unfinished file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UnfinishedState {
    /// Clients have it open.
    Open {
        /// Handles that write it.
        handles: u32,
    },
    /// It waits for its creator, and is removed after that.
    Held {
        /// Seconds until then.
        seconds: u64,
    },
    /// There is only a record: the file cannot be looked for.
    Absent {
        /// The directory that is not the one it was.
        directory: LogicalPath,
    },
    /// It bears the mark, and this server has no record of it.
    Unknown,
}

/// The result of an order to clear.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cleared {
    /// The file is whole now.
    Whole,
    /// No file was there; its record was ended.
    Record,
}

impl Persist {
    /// Those with a record.
    fn recorded(&self) -> Vec<Unfinished> {
        let now = self.clock.now();
        let mut all: Vec<Unfinished> = self
            .table()
            .files
            .values()
            .map(|pending| {
                let left = pending.expires.unwrap_or(now).saturating_sub(now);
                let state = match pending.holders {
                    0 => UnfinishedState::Held { seconds: left.as_secs() },
                    handles => UnfinishedState::Open { handles },
                };
                Unfinished { path: pending.record.path.clone(), state }
            })
            .collect();
        all.extend(self.absent.all().into_iter().map(|absent| Unfinished {
            path: absent.record.path,
            state: UnfinishedState::Absent { directory: absent.directory },
        }));
        all
    }

    /// Returns the path of the record whose file this is.
    fn recorded_path(&self, metadata: &Metadata) -> Option<LogicalPath> {
        self.table().path_of_file(metadata)
    }

    /// Ends the record of a path that is claimed, if nobody has the file open. Reports whether there was one.
    fn end_record(&self, path: &LogicalPath) -> Result<bool, u32> {
        let pending = {
            let mut table = self.table();
            match table.at(path) {
                Some(pending) if pending.holders > 0 => return Err(pending.holders),
                Some(pending) => Some(pending.record.number),
                None => None,
            }
        };
        self.forget(pending);
        let was_absent = self.is_absent(path);
        self.end_absent(|absent| absent.record.path == *path);
        Ok(pending.is_some() || was_absent)
    }
}

impl Logical {
    /// Unfinished files that this server has a record of; with a directory, those at and below it, and also those that bear the
    /// mark without a record. `false`: there may be more. Blocks, for long with a directory.
    pub fn unfinished(&self, below: Option<&LogicalPath>) -> (Vec<Unfinished>, bool) {
        let shared = &self.shared;
        let mut all = shared.persist.recorded();
        let mut is_complete = true;
        if let Some(top) = below.map(LogicalPath::without_slash) {
            all.retain(|one| one.path.is_within(&top));
            let mut names_left = NAMES_MAX;
            is_complete = walk(shared, top, &mut names_left, &mut |path| {
                if !all.iter().any(|one| one.path == path) {
                    all.push(Unfinished { path, state: UnfinishedState::Unknown });
                }
            });
        }
        all.sort_by(|one, other| one.path.as_bytes().cmp(other.path.as_bytes()));
        (all, is_complete)
    }

    /// Declares an unfinished file whole, or ends the record of one that is not there. Without `force` a file that another server
    /// may be writing is refused. Blocks.
    pub fn clear_unfinished(&self, path: &LogicalPath, force: bool) -> Result<Cleared, Error> {
        const VERB: &str = "clear";
        let (shared, path) = (&self.shared, &path.without_slash());
        shared.export(path, "Clearing")?;
        let claim = shared.persist.claim(&[path], Scope::Name);
        let _claim = claim.ok_or_else(|| unable(VERB, path, errno::TEXT_BUSY))?;
        let fail = |error| Error::unable(VERB, path, error);
        let marked = match shared.backend.stat(path) {
            Ok(found) => match shared.wholeness.at(path, &found) {
                Wholeness::Whole => None,
                wholeness => {
                    self.may_be_cleared(path, &found, wholeness == Wholeness::Left || force)?;
                    Some(found.mode)
                }
            },
            Err(error) if error.raw_os_error() == Some(errno::NOT_FOUND) => None,
            Err(error) => return Err(fail(error)),
        };
        let file = match marked {
            Some(_) => Some(shared.backend.open(path, &OpenHow::default()).map_err(fail)?),
            None => None,
        };
        let had_record = shared.persist.end_record(path).map_err(|handles| {
            let text =
                format!("Unable to {VERB} {}; clients are writing it ({handles} handles)", path.text());
            Error::new(ErrorKind::InProgress, text)
        })?;
        if let (Some(file), Some(mode)) = (file, marked) {
            return self.declare_whole(path, file.as_ref(), mode).map(|()| Cleared::Whole);
        }
        if had_record {
            return Ok(Cleared::Record);
        }
        let text =
            format!("Unable to {VERB} {}; it is not unfinished, and there is no record of it", path.text());
        Err(Error::new(ErrorKind::NotFound, text))
    }

    /// Refuses to clear a file that somebody may be writing: a client under another name, or another server with the same tree.
    fn may_be_cleared(&self, path: &LogicalPath, found: &Metadata, is_left: bool) -> Result<(), Error> {
        let persist = &self.shared.persist;
        let text = match (is_left, persist.recorded_path(found)) {
            (_, Some(recorded)) if recorded != *path => {
                format!(
                    "Unable to clear {}; its record names it {}: clear that name",
                    path.text(),
                    recorded.text()
                )
            }
            (false, None) if !persist.is_absent(path) => format!(
                "Unable to clear {}; it was changed in the last {} s, so another server may be writing it: try again later, or use \
                 --force if none is",
                path.text(),
                self.shared.config.persist.hold.as_secs()
            ),
            _ => return Ok(()),
        };
        Err(Error::new(ErrorKind::InProgress, text))
    }

    fn declare_whole(&self, path: &LogicalPath, file: &dyn StoredFile, mode: u32) -> Result<(), Error> {
        mark::clear(file, mode & describe::MODE_BITS).map_err(|e| Error::unable("clear", path, e))?;
        tracing::info!(path = %path.shown(), "by order of the administrator an unfinished file is whole");
        self.shared.events.made(path, false);
        Ok(())
    }
}

/// Calls `with` for files at and below a path that bear the mark; `false` if not all names were looked at.
fn walk(
    shared: &Shared,
    top: LogicalPath,
    names_left: &mut usize,
    with: &mut dyn FnMut(LogicalPath),
) -> bool {
    let Ok(found) = shared.backend.stat(&top) else { return true };
    if !describe::is_directory(&found) {
        if shared.wholeness.at(&top, &found) != Wholeness::Whole {
            with(top);
        }
        return true;
    }
    // Links to directories make many paths of one, without end where a link leads above itself.
    let mut visited = std::collections::HashSet::from([(found.device, found.inode)]);
    let mut directories = vec![top];
    while let Some(directory) = directories.pop() {
        let Ok(mut stream) = shared.backend.list(&directory) else { continue };
        while let Ok(names) = stream.next(NAMES_AT_ONCE)
            && !names.is_empty()
        {
            for entry in names {
                let Some(left) = names_left.checked_sub(1) else { return false };
                *names_left = left;
                let Ok(path) = directory.join(&entry.name) else { continue };
                let Ok(found) = stream.stat(&entry.name) else { continue };
                if describe::is_directory(&found) {
                    if visited.insert((found.device, found.inode)) {
                        directories.push(path);
                    }
                } else if shared.wholeness.at(&path, &found) != Wholeness::Whole {
                    with(path);
                }
            }
        }
    }
    true
}
