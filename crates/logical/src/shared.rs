//! What all operations share: the configuration, the storage, the clock and the tables.

use crate::checkpoint::Checkpoints;
use crate::checksum::Checksums;
use crate::config::{Config, Export};
use crate::describe::{self, Users, View};
use crate::events::Events;
use crate::file_system::Parts;
use crate::inquiry::Locator;
use crate::lists::CHECK_THREADS_MAX;
use crate::lock::Locks;
use crate::persist::Persist;
use crate::prepare::Prepares;
use crate::scan::Scans;
use crate::third_party::ThirdParty;
use crate::wholeness::Wholeness;
use crate::writers::{FileKey, Writers};
use base::{Clock, Error, ErrorKind, LogicalPath};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use storage::{Backend, Metadata, Now, Pool};
use vfs::Stat;

/// Linux error numbers that this room makes itself.
pub(crate) mod errno {
    pub(crate) const NOT_FOUND: i32 = 2;
    pub(crate) const BAD_DESCRIPTOR: i32 = 9;
    pub(crate) const EXISTS: i32 = 17;
    pub(crate) const NOT_A_DIRECTORY: i32 = 20;
    pub(crate) const IS_A_DIRECTORY: i32 = 21;
    pub(crate) const INVALID: i32 = 22;
    pub(crate) const INPUT_OUTPUT: i32 = 5;
    pub(crate) const TEXT_BUSY: i32 = 26;
    pub(crate) const NOT_A_TERMINAL: i32 = 25;
    pub(crate) const TOO_MANY: i32 = 87;
    pub(crate) const CANCELLED: i32 = 125;
    pub(crate) const OVER_QUOTA: i32 = 122;
    pub(crate) const READ_ONLY: i32 = 30;
    pub(crate) const NO_DATA: i32 = 61;
    pub(crate) const UNSUPPORTED: i32 = 95;
}

/// An error as the operating system would give it.
pub(crate) fn os(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

/// `Unable to VERB PATH; REASON` for an error number of ours.
pub(crate) fn unable(verb: &str, path: &LogicalPath, number: i32) -> Error {
    Error::unable(verb, path, os(number))
}

/// What all operations share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// Longest prefix first.
    exports: Vec<Export>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) users: Arc<dyn Users>,
    pub(crate) locator: Option<Arc<dyn Locator>>,
    pub(crate) locks: Arc<Locks>,
    /// Who writes which file, whatever its names.
    pub(crate) writers: Arc<Writers>,
    pub(crate) prepares: Prepares,
    pub(crate) persist: Persist,
    pub(crate) checkpoints: Arc<Checkpoints>,
    pub(crate) checksums: Checksums,
    /// Where long lists of paths are checked, which waits for no disk.
    pub(crate) lists: Arc<Pool>,
    /// Directories that are being read.
    pub(crate) scans: Scans,
    /// Who is told what becomes of names.
    pub(crate) events: OnceLock<Arc<dyn Events>>,
    /// Copies from and to other servers; `None` where there are none.
    pub(crate) third_party: OnceLock<Arc<ThirdParty>>,
    /// Open files, for the administrator.
    pub(crate) open_files: AtomicUsize,
}

impl Shared {
    pub(crate) fn new(parts: Parts) -> Result<Arc<Self>, Error> {
        let Parts { config, backend, clock, users, locator, journals } = parts;
        let mut exports = config.exports.clone();
        exports.sort_by_key(|export| std::cmp::Reverse(export.prefix.without_slash().as_bytes().len()));
        let prepares = Prepares::new(&config.own_address.name, clock.as_ref());
        let says = |what: &str| {
            let what = what.to_owned();
            move |e: io::Error| Error { kind: ErrorKind::from_io(&e), text: what, source: Some(e) }
        };
        // Checkpoints first: a file must be whole again before anything else is decided about it.
        let checkpoints =
            Checkpoints::new(config.checkpoints.clone(), journals.checkpoints, backend.as_ref())
                .map_err(says("checkpoints of an earlier run cannot be undone"))?;
        let persist = Persist::new(config.persist.clone(), clock.clone(), journals.persist, backend.as_ref())
            .map_err(says("the journal of unfinished files cannot be read or written"))?;
        let checksums = Checksums::new(config.checksums.clone());
        Ok(Arc::new(Self {
            config,
            exports,
            backend,
            clock,
            users,
            locator,
            locks: Locks::new(),
            writers: Writers::new(),
            prepares,
            persist,
            checkpoints: Arc::new(checkpoints),
            checksums,
            lists: Pool::for_long_work("lists", CHECK_THREADS_MAX),
            scans: Scans::default(),
            events: OnceLock::new(),
            third_party: OnceLock::new(),
            open_files: AtomicUsize::new(0),
        }))
    }

    /// The export a path lies in; outside of all, `Stating path '/x' is disallowed.` with the operation's participle.
    pub(crate) fn export(&self, path: &LogicalPath, participle: &str) -> Result<&Export, Error> {
        self.exports.iter().find(|export| path.is_within(&export.prefix)).ok_or_else(|| {
            Error::new(
                ErrorKind::NotAuthorized,
                format!("{participle} path '{}' is disallowed.", path.text()),
            )
        })
    }

    /// The same for something that changes what is there.
    pub(crate) fn writable_export(
        &self,
        path: &LogicalPath,
        participle: &str,
        verb: &str,
    ) -> Result<&Export, Error> {
        let export = self.export(path, participle)?;
        if is_read_only(export) { Err(unable(verb, path, errno::READ_ONLY)) } else { Ok(export) }
    }

    /// The status of a path; may block. A trailing `/` asks for a directory.
    pub(crate) fn metadata(&self, path: &LogicalPath, verb: &str) -> Result<Metadata, Error> {
        let plain = path.without_slash();
        let metadata = self.backend.stat(&plain).map_err(|e| Error::unable(verb, path, e))?;
        check_slash(path, &metadata, verb)?;
        Ok(metadata)
    }

    /// The same if it is in memory.
    pub(crate) fn metadata_now(&self, path: &LogicalPath, verb: &str) -> Option<Result<Metadata, Error>> {
        match self.backend.stat_now(&path.without_slash()) {
            Now::WouldBlock => None,
            Now::Done(Err(error)) => Some(Err(Error::unable(verb, path, error))),
            Now::Done(Ok(metadata)) => Some(check_slash(path, &metadata, verb).map(|()| metadata)),
        }
    }

    /// The status of the file at a path as clients see it. May ask for names of owners.
    pub(crate) fn stat(&self, path: &LogicalPath, metadata: &Metadata, export: &Export) -> Stat {
        let pending = self.wholeness_at(path, metadata) != Wholeness::Whole;
        describe::stat(metadata, self.users.as_ref(), View { read_only: is_read_only(export), pending })
    }

    /// The same if it can be told without waiting.
    pub(crate) fn stat_now(&self, path: &LogicalPath, metadata: &Metadata, export: &Export) -> Option<Stat> {
        let pending = self.wholeness_now(path, metadata)? != Wholeness::Whole;
        describe::stat_now(metadata, self.users.as_ref(), View { read_only: is_read_only(export), pending })
    }

    /// Reports whether a file is open for writing, under this name or another.
    pub(crate) fn has_writer(&self, path: &LogicalPath, metadata: &Metadata) -> bool {
        self.locks.has_writer(path) || self.writers.has_any(FileKey::from(metadata))
    }

    pub(crate) fn count_open(&self, one_more: bool) {
        if one_more {
            self.open_files.fetch_add(1, Ordering::Relaxed);
        } else {
            self.open_files.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Nothing may change below such an export.
pub(crate) fn is_read_only(export: &Export) -> bool {
    export.read_only || export.force_read_only
}

/// A trailing `/` on something that is not a directory.
fn check_slash(path: &LogicalPath, metadata: &Metadata, verb: &str) -> Result<(), Error> {
    let asks_directory = path.as_bytes().ends_with(b"/") && !path.is_root();
    if asks_directory && !describe::is_directory(metadata) {
        return Err(unable(verb, path, errno::NOT_A_DIRECTORY));
    }
    Ok(())
}
