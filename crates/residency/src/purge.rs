//! [`Purger`]: removes files with a copy in mass storage when space is needed.
//!
//! Nothing is recorded: each purge searches the exports. What a file system says about a file decides
//! whether it goes, and it is read again at the moment of the removal, when nobody can open the file.

use crate::ports::{RemoteCatalog, ResidencyEvents, ResidencyPaths};
use crate::purge_policy::{
    CANDIDATES_MAX, Candidates, KeptReason, PurgeAttributes, PurgePolicy, is_out_of_hold, kept,
};
use crate::staging::seconds_since_epoch;
use crate::sweep::rest_after;
use crate::tree_walk::{TreeVisitor, walk_tree};
use base::LogicalPath;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use storage::{Backend, DirectoryStream, FilePin, PIN_ATTRIBUTE, RawEntry, UnusedFile};

/// `st_mode`: the type of a file, and that of a regular one.
const TYPE_MASK: u32 = 0o170_000;
const TYPE_FILE: u32 = 0o100_000;

/// Number of kept files that are named in the log of one purge.
const NAMED_MAX: usize = 10;

/// A file system with files that may be removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PurgedVolume {
    /// An export on it.
    pub export: LogicalPath,
    /// Its size in bytes.
    pub total: u64,
    /// Free bytes.
    pub free: u64,
    /// A purge begins when fewer bytes are free.
    pub low: u64,
    /// It ends when this number of bytes is free.
    pub high: u64,
}

/// The result of a purge.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PurgeOutcome {
    /// When it ended, in seconds since the epoch.
    pub ended: i64,
    /// Number of files that were removed.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// File systems on which there is still too little space.
    pub short: Vec<LogicalPath>,
}

/// A file, and whether it may be removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExaminedFile {
    /// The path.
    pub path: LogicalPath,
    /// Bytes.
    pub size: u64,
    /// The reason for which it stays; `None` if it may be removed.
    pub kept: Option<KeptReason>,
}

/// Removes files.
pub struct Purger {
    /// The storage.
    pub backend: Arc<dyn Backend>,
    /// The exports.
    pub paths: Arc<dyn ResidencyPaths>,
    /// The receiver of events.
    pub events: Arc<dyn ResidencyEvents>,
    /// The names in mass storage, if there is a program for them. It must confirm each copy.
    pub catalog: Option<Arc<dyn RemoteCatalog>>,
    /// The policy.
    pub policy: PurgePolicy,
}

impl Purger {
    /// Returns the file systems of exports that are purged, by their numbers. Blocks.
    fn volumes(&self) -> BTreeMap<u64, PurgedVolume> {
        let mut volumes = BTreeMap::new();
        for export in self.paths.roots().into_iter().filter(|path| self.paths.of(path).purge) {
            for usage in self.backend.file_systems(&export).unwrap_or_default() {
                volumes.entry(usage.number).or_insert_with(|| PurgedVolume {
                    export: export.clone(),
                    total: usage.total,
                    free: usage.free,
                    low: self.policy.low.bytes(usage.total),
                    high: self.policy.high.bytes(usage.total),
                });
            }
        }
        volumes
    }

    /// Returns the file systems of exports that are purged. Blocks.
    #[must_use]
    pub fn purged_volumes(&self) -> Vec<PurgedVolume> {
        self.volumes().into_values().collect()
    }

    /// Removes files on all file systems that have too little free space. Blocks for long.
    #[must_use]
    pub fn purge(&self) -> PurgeOutcome {
        let mut outcome = PurgeOutcome::default();
        let mut volumes = self.volumes();
        volumes.retain(|_, volume| volume.free < volume.low);
        while !volumes.is_empty() {
            let mut search = CandidateSearch::new(self, volumes.keys().copied());
            let _ = walk_tree(self.backend.as_ref(), &self.paths.roots(), &mut search);
            let mut goes_on = false;
            for (number, candidates) in search.found {
                let Some(volume) = volumes.get(&number) else { continue };
                let has_more = candidates.has_more;
                let before = outcome.files;
                if self.remove_until_free(number, volume, candidates, &mut outcome) {
                    volumes.remove(&number);
                } else {
                    goes_on |= has_more && outcome.files > before;
                }
            }
            if !goes_on {
                break;
            }
        }
        outcome.short = volumes.into_values().map(|volume| volume.export).collect();
        outcome.ended = seconds_since_epoch();
        outcome
    }

    /// Removes candidates until there is enough space, and reports whether there is.
    fn remove_until_free(
        &self,
        number: u64,
        volume: &PurgedVolume,
        candidates: Candidates,
        outcome: &mut PurgeOutcome,
    ) -> bool {
        let is_free = || {
            let found = self.backend.file_systems(&volume.export).unwrap_or_default();
            found.iter().any(|usage| usage.number == number && usage.free >= volume.high)
        };
        let mut named = 0;
        for candidate in candidates.sorted() {
            if is_free() {
                return true;
            }
            match self.remove(&candidate.path) {
                Ok(size) => {
                    outcome.files += 1;
                    outcome.bytes += size;
                    tracing::info!(path = %candidate.path.shown(), bytes = size, "purged a file");
                }
                Err(reason) if named < NAMED_MAX => {
                    named += 1;
                    tracing::info!(path = %candidate.path.shown(), %reason, "a file is not purged");
                }
                Err(_) => {}
            }
        }
        is_free()
    }

    /// Removes one file if it may be removed, and returns its size. Blocks.
    fn remove(&self, path: &LogicalPath) -> Result<u64, KeptReason> {
        // Mass storage is asked without the lease, so that nobody waits for the answer to open the file.
        let (_, confirmed) = self.claim(path)?;
        self.confirm(path, confirmed)?;
        let (file, size) = self.claim(path)?;
        if size != confirmed {
            return Err(KeptReason::Changed);
        }
        file.remove().map_err(|error| reason_of(&error))?;
        self.events.removed(path);
        Ok(size)
    }

    /// Asks whether mass storage has a file of this size, if there is a program that knows it. Blocks.
    fn confirm(&self, path: &LogicalPath, size: u64) -> Result<(), KeptReason> {
        let Some(catalog) = &self.catalog else { return Ok(()) };
        let text = match catalog.status(path) {
            Ok(Some(status)) if !status.is_directory && status.size == size => return Ok(()),
            Ok(Some(status)) if !status.is_directory => format!("it has {} bytes there", status.size),
            Ok(Some(_)) => "it is a directory there".to_owned(),
            Ok(None) => "no such file there".to_owned(),
            Err(failure) => failure.to_string(),
        };
        Err(KeptReason::NotConfirmed(text))
    }

    /// Returns a file that may be removed, with its size. Nobody can open it as long as this exists.
    fn claim(&self, path: &LogicalPath) -> Result<(Box<dyn UnusedFile>, u64), KeptReason> {
        if !self.paths.of(path).purge {
            return Err(KeptReason::NotPurgeable);
        }
        let transfers = self.backend.transfers().ok_or(KeptReason::NoLeases)?;
        let file = transfers.claim_unused(path).map_err(|error| reason_of(&error))?;
        let read = || Ok((file.stat()?, PurgeAttributes::read(|name| file.attribute(name))?));
        let (metadata, attributes) = read().map_err(|error: io::Error| reason_of(&error))?;
        match kept((path, &metadata), &attributes, self.policy.hold, seconds_since_epoch()) {
            Some(reason) => Err(reason),
            None => Ok((file, metadata.size)),
        }
    }

    /// Examines the files at and below a path, and reports each until `with` returns `false`. Nothing is
    /// removed. Blocks for long.
    pub fn examine(&self, below: Option<&LogicalPath>, with: &mut dyn FnMut(ExaminedFile) -> bool) {
        let roots = match below {
            Some(path) => vec![path.clone()],
            None => self.paths.roots(),
        };
        if let [one] = roots.as_slice()
            && self.backend.stat(one).is_ok_and(|found| found.mode & TYPE_MASK == TYPE_FILE)
        {
            let mut examined = self.examined(one.clone());
            if examined.kept.is_none() {
                examined.kept = self.confirm(one, examined.size).err();
            }
            with(examined);
            return;
        }
        let mut visitor = Examination { purger: self, with, goes_on: true };
        let _ = walk_tree(self.backend.as_ref(), &roots, &mut visitor);
    }

    fn examined(&self, path: LogicalPath) -> ExaminedFile {
        let size = self.backend.stat(&path).map_or(0, |found| found.size);
        let kept = self.claim(&path).err();
        ExaminedFile { path, size, kept }
    }

    /// Pins a file, or ends its pin. Blocks.
    pub fn set_pin(&self, path: &LogicalPath, pin: Option<FilePin>) -> io::Result<()> {
        let transfers = self.backend.transfers().ok_or(io::ErrorKind::Unsupported)?;
        let file = transfers.hold(path)?;
        match pin {
            Some(pin) => file.set_attribute(PIN_ATTRIBUTE, &pin.encode()),
            None => file.remove_attribute(PIN_ATTRIBUTE),
        }
    }
}

/// Returns the reason for which a file stays.
fn reason_of(error: &io::Error) -> KeptReason {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::BUSY) => KeptReason::InUse,
        Some(Errno::MLINK) => KeptReason::SeveralNames,
        Some(Errno::LOOP | Errno::NOTBLK) => KeptReason::Link,
        Some(Errno::ACCESS | Errno::PERM) => KeptReason::OtherOwner,
        Some(Errno::OPNOTSUPP) => KeptReason::NoLeases,
        Some(Errno::NOENT | Errno::STALE | Errno::NOTDIR) => KeptReason::Changed,
        _ => KeptReason::Failed(base::errno_text(error)),
    }
}

/// A search for candidates. What it reads is read again before a removal.
struct CandidateSearch<'a> {
    purger: &'a Purger,
    now: i64,
    found: BTreeMap<u64, Candidates>,
}

impl<'a> CandidateSearch<'a> {
    fn new(purger: &'a Purger, volumes: impl Iterator<Item = u64>) -> Self {
        let found = volumes.map(|number| (number, Candidates::default())).collect();
        Self { purger, now: seconds_since_epoch(), found }
    }
}

impl TreeVisitor for CandidateSearch<'_> {
    fn enters(&self, directory: &LogicalPath) -> bool {
        self.purger.paths.of(directory).purge
    }

    fn follows_aliases(&self) -> bool {
        false
    }

    fn file(&mut self, path: &LogicalPath, entry: &RawEntry, stream: &dyn DirectoryStream) {
        if entry.link && stream.is_alias(entry) {
            return;
        }
        let Ok(metadata) = stream.stat(&entry.name) else { return };
        let Some(candidates) = self.found.get_mut(&metadata.device) else { return };
        let hold = self.purger.policy.hold;
        if metadata.mode & TYPE_MASK != TYPE_FILE || !is_out_of_hold(&metadata, hold, self.now) {
            return;
        }
        let read = PurgeAttributes::read(|name| stream.attribute(&entry.name, name));
        let Ok(attributes) = read else { return };
        if kept((path, &metadata), &attributes, hold, self.now).is_none() {
            candidates.add(path.clone(), &metadata, CANDIDATES_MAX);
        }
    }

    fn pause(&mut self, busy: Duration) -> ControlFlow<()> {
        std::thread::sleep(rest_after(busy));
        ControlFlow::Continue(())
    }
}

/// An examination of all files.
struct Examination<'a> {
    purger: &'a Purger,
    with: &'a mut dyn FnMut(ExaminedFile) -> bool,
    goes_on: bool,
}

impl TreeVisitor for Examination<'_> {
    fn enters(&self, directory: &LogicalPath) -> bool {
        self.purger.paths.of(directory).purge
    }

    fn follows_aliases(&self) -> bool {
        false
    }

    fn file(&mut self, path: &LogicalPath, _: &RawEntry, _: &dyn DirectoryStream) {
        if self.goes_on {
            self.goes_on = (self.with)(self.purger.examined(path.clone()));
        }
    }

    fn pause(&mut self, busy: Duration) -> ControlFlow<()> {
        std::thread::sleep(rest_after(busy));
        if self.goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

/// The thread that purges.
pub struct PurgeThread {
    purger: Arc<Purger>,
    begin: SyncSender<()>,
    last: Arc<Mutex<Option<PurgeOutcome>>>,
}

impl PurgeThread {
    /// Starts the thread, which purges at once and then in this interval.
    pub fn start(purger: Purger, interval: Duration) -> io::Result<Self> {
        let purger = Arc::new(purger);
        let last = Arc::new(Mutex::new(None));
        let (begin, begun) = sync_channel(1);
        let (worker, outcome) = (purger.clone(), last.clone());
        let work = move || {
            loop {
                let result = worker.purge();
                for export in &result.short {
                    tracing::warn!(
                        export = %export.shown(),
                        "the file system has too little free space, and no further file may be purged: \
                         scalla residency purge --dry-run names the reasons"
                    );
                }
                *outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                if begun.recv_timeout(interval) == Err(RecvTimeoutError::Disconnected) {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("purge".to_owned()).spawn(work)?;
        Ok(Self { purger, begin, last })
    }

    /// Returns what removes the files.
    #[must_use]
    pub fn purger(&self) -> &Arc<Purger> {
        &self.purger
    }

    /// Begins a purge now, or after the one that runs.
    pub fn begin(&self) {
        // A full channel has such a request already.
        self.begin.try_send(()).ok();
    }

    /// Returns the result of the last purge; `None` if none has ended.
    #[must_use]
    pub fn last(&self) -> Option<PurgeOutcome> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
