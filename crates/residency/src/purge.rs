//! [`Purger`]: removes files with a copy in mass storage when space is needed.
//!
//! There is no record of the files: each purge searches the exports. The status and the attributes of a
//! file decide whether it goes. They are read again at its removal, when no process can open the file.

use crate::content_check::{ContentCheck, check_held, difference};
use crate::empty_directories::remove_empty_directories;
use crate::policy_program::{PolicyAnswer, PolicyProgram, PurgeQuestion};
use crate::ports::{RemoteCatalog, ResidencyEvents, ResidencyPaths};
use crate::purge_policy::{KeptReason, PurgeAttributes, PurgePolicies, PurgePolicy, is_out_of_hold, kept};
use crate::purge_volume::VolumePurge;
use crate::staging::{Staging, seconds_since_epoch};
use crate::sweep::rest_after;
use crate::tree_walk::{TreeVisitor, walk_tree};
use base::LogicalPath;
use digest::Checksum;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use storage::posix::SPACE_DEFAULT;
use storage::{
    Backend, CLIENT_ATTRIBUTE_PREFIX, DirectoryStream, FilePin, FileRemoval, Metadata, PIN_ATTRIBUTE,
    RawEntry, UnusedFile,
};

/// `st_mode`: the type of a file, and that of a regular one.
const TYPE_MASK: u32 = 0o170_000;
const TYPE_FILE: u32 = 0o100_000;

/// The file in the directory of transfers that stops purges, as it is named for XRootD's program.
pub const STOP_PURGE_FILE: &str = "STOPPURGE";

/// Maximum number of searches that remove files in the order in which they are found. Each one is for twice
/// as many bytes as the one before, so the last one is for all.
const ROUNDS_MAX: u32 = 24;

/// Maximum rest of a search.
const REST_MAX: Duration = Duration::from_secs(1);

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
    /// The two numbers of each space with a part on it. Those above are the greatest of them.
    pub spaces: BTreeMap<String, (u64, u64)>,
}

impl PurgedVolume {
    fn add(&mut self, space: String, policy: &PurgePolicy) {
        let marks = (policy.low.bytes(self.total), policy.high.bytes(self.total));
        (self.low, self.high) = (self.low.max(marks.0), self.high.max(marks.1));
        self.spaces.insert(space, marks);
    }

    /// Leaves out the spaces that have enough free bytes. `None` if all have.
    fn due(mut self) -> Option<Self> {
        let mut spaces = std::mem::take(&mut self.spaces);
        spaces.retain(|_, (low, high)| self.free < *low && self.can_be_freed(*high));
        self.high = spaces.values().map(|(_, high)| *high).max()?;
        Some(Self { spaces, ..self })
    }

    /// Reports whether the file system has as many bytes as the policy wants free. Otherwise the policy
    /// has a wrong number, and a purge would remove all that may go.
    fn can_be_freed(&self, high: u64) -> bool {
        if high <= self.total {
            return true;
        }
        tracing::warn!(
            export = %self.export.shown(), total = self.total, wanted = high,
            "nothing is purged, because frm.purge.policy wants more bytes free than the file system has"
        );
        false
    }
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
    /// Number of empty directories that were removed.
    pub directories: u64,
    /// File systems on which there is still too little space.
    pub short: Vec<LogicalPath>,
    /// An administrator stopped it ([`Purger::stop_file`]).
    pub is_stopped: bool,
}

/// A file that was removed.
pub(crate) struct RemovedFile {
    /// Its size in bytes.
    pub(crate) size: u64,
    /// The bytes that it took on its file system.
    pub(crate) allocated: u64,
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
    /// The policies.
    pub policies: PurgePolicies,
    /// A file of the administrator. As long as it exists, nothing is removed.
    pub stop_file: Option<PathBuf>,
    /// A program of the site that selects the files.
    pub program: Option<PolicyProgram>,
    /// Time after which an empty directory is removed; `None`: never.
    pub directory_hold: Option<Duration>,
}

impl Purger {
    /// Returns one that only removes files at once ([`Self::release`]). It has no policy.
    pub(crate) fn for_releases(staging: &Staging, paths: &Arc<dyn ResidencyPaths>, directory: &Path) -> Self {
        Self {
            backend: staging.backend.clone(),
            paths: paths.clone(),
            events: staging.events.clone(),
            catalog: staging.catalog.clone(),
            policies: PurgePolicies::default(),
            stop_file: Some(directory.join(STOP_PURGE_FILE)),
            program: None,
            directory_hold: None,
        }
    }

    /// Reports whether the administrator has stopped purges. A file that cannot be looked up may exist.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop_file.as_ref().is_some_and(|file| match file.symlink_metadata() {
            Ok(_) => true,
            Err(error) => !storage::is_missing(&error),
        })
    }

    /// Returns the file systems of exports that are purged, by their numbers. Blocks.
    fn volumes(&self) -> BTreeMap<u64, PurgedVolume> {
        let mut volumes = BTreeMap::new();
        for export in self.paths.roots().into_iter().filter(|path| self.paths.of(path).purge) {
            let systems = self.backend.space_file_systems(&export).unwrap_or_else(|error| {
                tracing::warn!(export = %export.shown(), %error, "an export is not purged: its free space is not known");
                Vec::new()
            });
            for (space, usage) in systems {
                let Some(policy) = self.policies.of(&space) else { continue };
                let new = || PurgedVolume {
                    export: export.clone(),
                    total: usage.total,
                    free: usage.free,
                    low: 0,
                    high: 0,
                    spaces: BTreeMap::new(),
                };
                volumes.entry(usage.number).or_insert_with(new).add(space, policy);
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
        let mut outcome = PurgeOutcome { is_stopped: self.is_stopped(), ..PurgeOutcome::default() };
        if outcome.is_stopped {
            outcome.ended = seconds_since_epoch();
            return outcome;
        }
        let due =
            |(number, volume): (u64, PurgedVolume)| Some((number, VolumePurge::new(number, volume.due()?)));
        let mut volumes: BTreeMap<_, _> = self.volumes().into_iter().filter_map(due).collect();
        if volumes.is_empty() {
            outcome.ended = seconds_since_epoch();
            return outcome;
        }
        self.search(&mut volumes, None);
        for volume in volumes.values_mut() {
            volume.remove_candidates(self, &mut outcome);
        }
        // Not all fit into memory, or some stay. The ages of all are known now, so that the others are removed
        // in the order in which they are found.
        for round in 0..ROUNDS_MAX {
            let begun = volumes.values_mut().map(|volume| volume.begin_round(self, round));
            if begun.fold(false, |any, is_new| any | is_new) {
                self.search(&mut volumes, Some(&mut outcome));
            }
        }
        outcome.is_stopped = volumes.values().any(VolumePurge::is_stopped);
        if let Some(hold) = self.directory_hold.filter(|_| !outcome.is_stopped) {
            outcome.directories = remove_empty_directories(self, hold);
        }
        let short = volumes.into_values().filter(|volume| !volume.has_succeeded() && !volume.is_stopped());
        outcome.short = short.map(VolumePurge::into_export).collect();
        outcome.ended = seconds_since_epoch();
        outcome
    }

    /// Searches the exports for candidates, or removes what is found if there is an outcome. Blocks for long.
    fn search(&self, volumes: &mut BTreeMap<u64, VolumePurge>, removes: Option<&mut PurgeOutcome>) {
        let mut search = PurgeSearch { purger: self, now: seconds_since_epoch(), volumes, removes };
        let _ = walk_tree(self.backend.as_ref(), &self.paths.roots(), &mut search);
    }

    /// Removes one file that mass storage has, also if it was used a short time ago. Returns its size in
    /// bytes. Blocks.
    pub fn release(&self, path: &LogicalPath) -> Result<u64, KeptReason> {
        self.release_unless(path, &|| false)
    }

    /// Removes such a file, unless `stops` returns `true` meanwhile.
    pub(crate) fn release_unless(
        &self,
        path: &LogicalPath,
        stops: &dyn Fn() -> bool,
    ) -> Result<u64, KeptReason> {
        self.remove_unused_for(path, 0, None, stops).map(|removed| removed.size)
    }

    /// Removes one file if it may be removed. Blocks.
    pub(crate) fn remove(&self, path: &LogicalPath) -> Result<RemovedFile, KeptReason> {
        let policy = self.policy_of(path)?;
        let program = self.program.as_ref().filter(|_| policy.asks_program);
        self.remove_unused_for(path, policy.hold, program, &|| false)
    }

    /// Returns the policy of the space of a file. May wait for a disk.
    fn policy_of(&self, path: &LogicalPath) -> Result<&PurgePolicy, KeptReason> {
        let space = self.backend.space_of(path);
        if space.is_empty() {
            // It may be one that is not purged.
            return Err(KeptReason::Failed("its space cannot be looked up".to_owned()));
        }
        self.policies.of(&space).ok_or(KeptReason::SpaceNotPurged)
    }

    /// Removes one file that was not used for this number of seconds, if the program wants that.
    fn remove_unused_for(
        &self,
        path: &LogicalPath,
        hold: u64,
        program: Option<&PolicyProgram>,
        stops: &dyn Fn() -> bool,
    ) -> Result<RemovedFile, KeptReason> {
        let stops = || stops() || self.is_stopped();
        // Others are asked without the lease, so that nobody waits for the answer to open the file.
        let (_, found) = self.claim(path, hold)?;
        self.confirm(path, &found, &stops)?;
        if let Some(program) = program {
            self.ask(program, path, &found)?;
        }
        // The answers and the content of a large file take long.
        if stops() {
            return Err(KeptReason::Stopped);
        }
        let (file, now) = self.claim(path, hold)?;
        let size = now.size;
        if version_of(&now) != version_of(&found) {
            return Err(KeptReason::Changed);
        }
        let allocated = file.allocated().map_err(|error| reason_of(&error))?;
        let removal = file.remove().map_err(|error| reason_of(&error))?;
        self.events.purged(path, &now);
        self.report(path, removal);
        Ok(RemovedFile { size, allocated })
    }

    /// Asks the program of the site whether a file is purged. Blocks.
    fn ask(&self, program: &PolicyProgram, path: &LogicalPath, file: &Metadata) -> Result<(), KeptReason> {
        let transfers = self.backend.transfers().ok_or(KeptReason::NoLeases)?;
        let local = transfers.hold(path).and_then(|held| held.local_path());
        let local = local.map_err(|error| reason_of(&error))?;
        let space = self.backend.usage(path, None).map_err(|error| reason_of(&error))?;
        let used = space.used.unwrap_or_else(|| space.total.saturating_sub(space.free));
        let question = PurgeQuestion {
            local: local.into_os_string().into_vec(),
            size: file.size,
            times: [file.accessed, file.changed, file.modified],
            space: [space.free, space.total, used],
            space_name: self.backend.space_of(path),
        };
        match program.ask(&question) {
            PolicyAnswer::Purge => Ok(()),
            PolicyAnswer::Keep => Err(KeptReason::ProgramKeeps),
            PolicyAnswer::End(text) => Err(KeptReason::ProgramEnds(text)),
        }
    }

    /// Reports a removal to the receiver of events. A client or a copy may have created the name again,
    /// and its report may have come first.
    fn report(&self, path: &LogicalPath, removal: FileRemoval) {
        if removal == FileRemoval::Removed {
            self.events.removed(path);
        }
        if self.backend.stat(path).is_ok_and(|found| found.mode & TYPE_MASK == TYPE_FILE) {
            self.events.arrived(path);
        }
    }

    /// Asks whether mass storage has a file of this size, and with this content if its checksum is known there, if there
    /// is a program that knows it. Blocks, for long if the file has to be read.
    fn confirm(
        &self,
        path: &LogicalPath,
        file: &Metadata,
        stops: &dyn Fn() -> bool,
    ) -> Result<(), KeptReason> {
        let Some(catalog) = &self.catalog else { return Ok(()) };
        catalog.check_name(path).map_err(|failure| KeptReason::NotAskable(failure.to_string()))?;
        let text = match catalog.status(path) {
            Ok(Some(status)) if !status.is_directory && status.size == file.size => match status.checksum {
                Ok(None) => return Ok(()),
                Ok(Some(checksum)) => return self.confirm_content(path, file, checksum, stops),
                Err(odd) => odd.to_string(),
            },
            Ok(Some(status)) if !status.is_directory => format!("it has {} bytes there", status.size),
            Ok(Some(_)) => "it is a directory there".to_owned(),
            Ok(None) => "no such file there".to_owned(),
            Err(failure) => return Err(KeptReason::CatalogFailed(failure.to_string())),
        };
        Err(KeptReason::NotConfirmed(text))
    }

    /// Compares the content of a file with a checksum.
    fn confirm_content(
        &self,
        path: &LogicalPath,
        file: &Metadata,
        checksum: Checksum,
        stops: &dyn Fn() -> bool,
    ) -> Result<(), KeptReason> {
        let transfers = self.backend.transfers().ok_or(KeptReason::NoLeases)?;
        let held = transfers.hold(path).map_err(|error| reason_of(&error))?;
        if version_of(&held.stat().map_err(|error| reason_of(&error))?) != version_of(file) {
            return Err(KeptReason::Changed);
        }
        match check_held(checksum, held.as_ref(), stops).map_err(|error| reason_of(&error))? {
            ContentCheck::Same => Ok(()),
            ContentCheck::Differs(found) => Err(KeptReason::NotConfirmed(difference(found, checksum))),
            ContentCheck::Stopped => Err(KeptReason::Stopped),
        }
    }

    /// Returns a file that may be removed and was not used for `hold` seconds, with its status. Nobody can
    /// open it as long as this exists.
    fn claim(&self, path: &LogicalPath, hold: u64) -> Result<(Box<dyn UnusedFile>, Metadata), KeptReason> {
        if !self.paths.of(path).purge {
            return Err(KeptReason::NotPurgeable);
        }
        let transfers = self.backend.transfers().ok_or(KeptReason::NoLeases)?;
        let file = transfers.claim_unused(path).map_err(|error| reason_of(&error))?;
        let read = || Ok((file.stat()?, PurgeAttributes::read(|name| file.attribute(name))?));
        let (metadata, attributes) = read().map_err(|error: io::Error| reason_of(&error))?;
        match kept((path, &metadata), &attributes, hold, seconds_since_epoch()) {
            Some(reason) => Err(reason),
            None if has_client_attributes(file.as_ref())? => Err(KeptReason::ClientAttributes),
            None => Ok((file, metadata)),
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
                let found = self.policy_of(one).and_then(|policy| self.claim(one, policy.hold));
                examined.kept = found
                    .and_then(|(file, found)| {
                        drop(file);
                        self.confirm(one, &found, &|| self.is_stopped())
                    })
                    .err();
            }
            with(examined);
            return;
        }
        let mut visitor = Examination { purger: self, with, goes_on: true };
        let _ = walk_tree(self.backend.as_ref(), &roots, &mut visitor);
    }

    fn examined(&self, path: LogicalPath) -> ExaminedFile {
        let size = self.backend.stat(&path).map_or(0, |found| found.size);
        let kept = self.policy_of(&path).and_then(|policy| self.claim(&path, policy.hold)).err();
        ExaminedFile { path, size, kept }
    }

    /// Pins a file, or ends its pin. Blocks.
    pub fn set_pin(&self, path: &LogicalPath, pin: Option<FilePin>) -> io::Result<()> {
        let transfers = self.backend.transfers().ok_or(io::ErrorKind::Unsupported)?;
        let file = transfers.hold(path)?;
        match pin {
            Some(pin) => file.set_attribute(PIN_ATTRIBUTE, &pin.encode())?,
            None => file.remove_attribute(PIN_ATTRIBUTE)?,
        }
        // The administrator relies on the pin, also after a power failure.
        file.sync()
    }
}

/// Returns what identifies the file at a path and its content.
fn version_of(file: &Metadata) -> (u64, u64, u64, i64, u32) {
    (file.device, file.inode, file.size, file.modified, file.modified_nanoseconds)
}

/// Reports whether clients have set attributes of a file, which mass storage does not have.
fn has_client_attributes(file: &dyn UnusedFile) -> Result<bool, KeptReason> {
    let names = file.attributes().map_err(|error| reason_of(&error))?;
    Ok(names.iter().any(|name| name.starts_with(CLIENT_ATTRIBUTE_PREFIX)))
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

/// Returns the volume and the status of an entry that looks like a file to be removed. What this reads is
/// read again before a removal.
fn candidate<'v>(
    (purger, now): (&Purger, i64),
    volumes: &'v mut BTreeMap<u64, VolumePurge>,
    (path, entry, stream): (&LogicalPath, &RawEntry, &dyn DirectoryStream),
) -> Option<(&'v mut VolumePurge, Metadata)> {
    if entry.link && stream.is_alias(entry) {
        return None;
    }
    let metadata = stream.stat(&entry.name).ok()?;
    let volume = volumes.get_mut(&metadata.device).filter(|volume| volume.wants(&metadata))?;
    // The data of a space is behind a link.
    let space = if entry.link { purger.backend.space_of(path) } else { SPACE_DEFAULT.to_owned() };
    let hold = purger.policies.of(&space).filter(|_| volume.has_space(&space))?.hold;
    if metadata.mode & TYPE_MASK != TYPE_FILE || !is_out_of_hold(&metadata, hold, now) {
        return None;
    }
    let attributes = PurgeAttributes::read(|name| stream.attribute(&entry.name, name)).ok()?;
    kept((path, &metadata), &attributes, hold, now).is_none().then_some((volume, metadata))
}

/// A search for files to be removed.
struct PurgeSearch<'a> {
    purger: &'a Purger,
    now: i64,
    volumes: &'a mut BTreeMap<u64, VolumePurge>,
    /// Set if files are removed as soon as they are found; otherwise they become candidates.
    removes: Option<&'a mut PurgeOutcome>,
}

impl TreeVisitor for PurgeSearch<'_> {
    fn enters(&self, directory: &LogicalPath) -> bool {
        self.purger.paths.of(directory).purge
    }

    fn follows_aliases(&self) -> bool {
        false
    }

    fn file(&mut self, path: &LogicalPath, entry: &RawEntry, stream: &dyn DirectoryStream) {
        let found = candidate((self.purger, self.now), self.volumes, (path, entry, stream));
        let Some((volume, metadata)) = found else { return };
        match &mut self.removes {
            Some(outcome) => volume.remove(self.purger, path, outcome),
            None => volume.candidates.add(path.clone(), &metadata),
        }
    }

    fn pause(&mut self, busy: Duration) -> ControlFlow<()> {
        let is_over = self.removes.is_some() && !self.volumes.values().any(VolumePurge::removes_directly);
        if is_over || self.purger.is_stopped() {
            return ControlFlow::Break(());
        }
        rest(busy)
    }
}

/// Rests as long as a search has worked. Space is needed, so that is less than other searches do.
fn rest(busy: Duration) -> ControlFlow<()> {
    std::thread::sleep(busy.min(REST_MAX));
    ControlFlow::Continue(())
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
