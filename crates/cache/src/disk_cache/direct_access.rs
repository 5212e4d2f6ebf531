//! Direct access: clients on this machine read a file that is stored completely by a second name of its data.
//!
//! Such a client reads without this server, so nothing can be corrected later. The second name is made after all of the
//! file was read and compared, belongs to one version, and is never used again: a client that is late finds nothing, and
//! never another version or a file with gaps. Names stay for a time, the lease, after the last client was sent there, and
//! the file is not removed from the cache meanwhile. A client that has opened the file keeps it: it stays until no program
//! has it open, because the space of a removed file is only free then. Names end with the server, and those that a crash
//! has left at the next start.

use super::cached_file::{CachedFile, DirectUse};
use super::closing::{FileClosing, FileInUse};
use super::direct_room::{DirectPermit, DirectRoom};
use super::reader::is_settled;
use super::{CacheOrigin, CacheReader, DiskCache, direct_room};
use crate::CacheDisk;
use crate::store::{DirectData, OWN_DIRECTORY, StoreContext};
use base::{LogicalPath, Owner};
use rustix::rand::{GetRandomFlags, getrandom};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

/// Maximum number of files that are read and compared at once.
const VERIFICATIONS_MAX: usize = 2;
/// Time that an open waits for the comparison. When it takes longer, later opens benefit from it.
const VERIFICATION_TIME: Duration = Duration::from_secs(2);
/// Time after which a file is read and compared again.
const VERIFIED_TIME: Duration = Duration::from_secs(3600);
/// The directory of second names. Each start removes them.
const DIRECTORY: &str = "direct";
/// The same, below the directory of the cache. Clients have to pass it.
pub const DIRECT_DIRECTORY: &str = ".scalla-cache/direct";

/// The second name of a file.
#[derive(Default)]
pub(super) struct DirectName(Mutex<DirectState>);

#[derive(Default)]
enum DirectState {
    #[default]
    None,
    /// The file is being read and compared.
    Verifying,
    Named(NamedFile),
    /// The name is being removed, or was, and a client still has the file open.
    Ending,
    /// The disk cannot give a name to this file.
    Failed,
}

struct NamedFile {
    name: LogicalPath,
    /// The end of the last comparison, and whether another one runs.
    verified: Instant,
    is_comparing: bool,
    lease_end: Instant,
    /// It goes with the state.
    _permit: DirectPermit,
}

/// The next step of an open.
enum DirectStep {
    Use(LogicalPath),
    Verify {
        is_named: bool,
    },
    /// The file is read by the server.
    Refuse,
}

/// The next step of the lease of a name.
enum LeaseStep {
    WaitUntil(Instant),
    End(NamedFile),
}

impl DirectName {
    fn state(&self) -> MutexGuard<'_, DirectState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports whether there is a second name, or will be one.
    pub(super) fn is_used(&self) -> bool {
        !matches!(*self.state(), DirectState::None | DirectState::Failed)
    }

    /// Begins an open. The lease of a name is extended.
    fn begin(&self, lease: Duration) -> DirectStep {
        let (mut state, now) = (self.state(), Instant::now());
        match &mut *state {
            DirectState::None => {
                *state = DirectState::Verifying;
                DirectStep::Verify { is_named: false }
            }
            // A client that is late still has a part of the lease.
            DirectState::Named(named) if now < named.lease_end => {
                named.lease_end = now + lease;
                if now < named.verified + VERIFIED_TIME {
                    DirectStep::Use(named.name.clone())
                } else if std::mem::replace(&mut named.is_comparing, true) {
                    DirectStep::Refuse
                } else {
                    DirectStep::Verify { is_named: true }
                }
            }
            DirectState::Named(_) | DirectState::Verifying | DirectState::Ending | DirectState::Failed => {
                DirectStep::Refuse
            }
        }
    }

    /// Takes the end of another comparison. Returns the name, unless it has ended meanwhile.
    fn compared(&self, lease: Duration) -> Option<LogicalPath> {
        let (mut state, now) = (self.state(), Instant::now());
        let DirectState::Named(named) = &mut *state else { return None };
        (named.verified, named.lease_end) = (now, now + lease);
        Some(named.name.clone())
    }

    #[cfg(test)]
    pub(super) fn age(&self) {
        let mut state = self.state();
        if let DirectState::Named(named) = &mut *state {
            named.verified -= VERIFIED_TIME;
        }
    }

    fn set(&self, state: DirectState) {
        *self.state() = state;
    }

    /// Returns the next step of the lease, of which this is at least left. With its end, no other client gets the name.
    fn lease_step(&self, left: Duration, has_ended: bool) -> Option<LeaseStep> {
        let (mut state, now) = (self.state(), Instant::now());
        let DirectState::Named(named) = &mut *state else { return None };
        named.lease_end = named.lease_end.max(now + left);
        if now < named.lease_end && !has_ended {
            return Some(LeaseStep::WaitUntil(named.lease_end));
        }
        let DirectState::Named(named) = std::mem::replace(&mut *state, DirectState::Ending) else {
            return None;
        };
        Some(LeaseStep::End(named))
    }
}

/// A comparison. Its state is removed at its end, also if its task is dropped.
struct DirectComparison<'a> {
    of: &'a DirectName,
    is_named: bool,
    is_over: bool,
}

impl DirectComparison<'_> {
    /// Ends the first comparison of a file with this state.
    fn end(mut self, state: DirectState) {
        self.is_over = true;
        self.of.set(state);
    }
}

impl Drop for DirectComparison<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        match &mut *self.of.state() {
            state if !self.is_named => *state = DirectState::None,
            DirectState::Named(named) => named.is_comparing = false,
            DirectState::None | DirectState::Verifying | DirectState::Ending | DirectState::Failed => {}
        }
    }
}

/// The second names of a cache.
pub(super) struct DirectNames {
    lease: Duration,
    room: DirectRoom,
    verifications: Arc<Semaphore>,
    has_ended: watch::Sender<bool>,
}

impl DirectNames {
    pub(super) fn new(lease: Duration) -> Self {
        Self {
            lease,
            room: DirectRoom::default(),
            verifications: Arc::new(Semaphore::new(VERIFICATIONS_MAX)),
            has_ended: watch::Sender::new(false),
        }
    }

    #[cfg(test)]
    pub(super) fn lease(&self) -> Duration {
        self.lease
    }

    fn have_ended(&self) -> bool {
        *self.has_ended.borrow()
    }

    /// Removes all names. No client gets one from now on.
    pub(super) fn end(&self) {
        self.has_ended.send_replace(true);
    }
}

/// Returns a name that nobody can guess, because programs that know it can read the file. Clients cannot list the directory.
fn new_name() -> io::Result<LogicalPath> {
    let mut number = [0; 16];
    getrandom(&mut number, GetRandomFlags::empty())?;
    let name = format!("{OWN_DIRECTORY}/{DIRECTORY}/{:032x}", u128::from_ne_bytes(number));
    LogicalPath::parse(name.as_bytes()).map_err(|_| io::ErrorKind::InvalidFilename.into())
}

/// Returns an error if files on this disk cannot be read directly.
pub(super) fn check(context: &StoreContext) -> io::Result<()> {
    context.check_names(&new_name()?)
}

/// Removes the second names that are left. One that cannot be removed keeps the space of its file, and stops nothing else.
pub(crate) fn remove_names(disk: &dyn CacheDisk) {
    let removed = super::with_own_files(disk, DIRECTORY, |name| {
        let data = disk.open(name);
        match (disk.remove(name), data) {
            (Err(error), _) => {
                tracing::warn!(name = %name.shown(), %error, "cannot remove a name for direct reads in the cache");
            }
            // Without its end, the mark stays.
            (Ok(()), Ok(data)) => drop(StoreContext::unmark(&*data)),
            (Ok(()), Err(_)) => {}
        }
        Ok(())
    });
    if let Err(error) = removed {
        tracing::warn!(%error, "cannot remove the names for direct reads in the cache");
    }
}

impl<O: CacheOrigin> CacheReader<O> {
    /// Returns a path below the directory of the cache at which a client on this machine can read all of the file in place
    /// of this reader. `None` if that is not certain: the file is not stored completely, is being changed, or is still
    /// compared with its checksums.
    pub async fn direct_name(&self) -> Option<LogicalPath> {
        let names = self.cache.direct.as_ref().filter(|names| !names.have_ended() && self.is_whole())?;
        let name = match self.file.direct.begin(names.lease) {
            DirectStep::Use(name) => name,
            DirectStep::Refuse => return None,
            DirectStep::Verify { is_named } => {
                let naming = DirectNaming { cache: self.cache.clone(), file: self.file.clone(), is_named };
                let in_use = FileInUse::new(&self.file.shared);
                // In a task, because later opens benefit from it when the client leaves.
                let named = self.cache.shared.runtime.spawn(naming.run(in_use));
                tokio::time::timeout(VERIFICATION_TIME, named).await.ok()?.ok().flatten()?
            }
        };
        DirectUse(&self.file).note_read();
        self.cache.shared.counters.direct_opens.add(1);
        Some(name)
    }

    /// Reports whether all of the file is stored, and is the current version as far as this server knows.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        is_whole(&self.cache, &self.file)
    }
}

fn is_whole<O: CacheOrigin>(cache: &DiskCache<O>, file: &CachedFile<O>) -> bool {
    let size = file.version().size;
    is_settled(cache, file) && file.is_current() && size > 0 && file.stored_bytes() == size
}

/// Logs an error of the disk, unless there are many.
fn log<O: CacheOrigin>(file: &CachedFile<O>, error: &io::Error, what: &str) {
    if file.shared.may_log() {
        let file = file.key.data().shown();
        tracing::warn!(%file, %error, "{what}");
    }
}

/// A file that is compared and gets a second name, or has one.
struct DirectNaming<O: CacheOrigin> {
    cache: Arc<DiskCache<O>>,
    file: Arc<CachedFile<O>>,
    is_named: bool,
}

impl<O: CacheOrigin> DirectNaming<O> {
    /// Returns the name. The file is closed if its readers have left meanwhile.
    async fn run(self, in_use: FileInUse) -> Option<LogicalPath> {
        let name = self.compare_and_name().await;
        if !self.file.has_readers() {
            FileClosing(self.cache).begin(&self.file, in_use);
        }
        name
    }

    async fn compare_and_name(&self) -> Option<LogicalPath> {
        let comparison = DirectComparison { of: &self.file.direct, is_named: self.is_named, is_over: false };
        let names = self.cache.direct.as_ref()?;
        let permit = match self.is_named {
            true => None,
            false => Some(names.room.take(self.file.version().size, direct_room::limit(&self.cache))?),
        };
        // From now on, no part of the file is removed. One that has gone in between is not damaged.
        if !is_whole(&self.cache, &self.file)
            || !self.is_good(names).await
            || !is_whole(&self.cache, &self.file)
        {
            return None;
        }
        let name = match permit {
            None => self.file.direct.compared(names.lease),
            Some(permit) => self.add_name(names, permit, comparison).await,
        };
        // It can have been changed while it got its name.
        name.filter(|_| is_whole(&self.cache, &self.file))
    }

    /// Compares all blocks on the disk with their checksums. Clients read the disk, so a block from the origin in place of a
    /// damaged one does not help them.
    async fn is_good(&self, names: &DirectNames) -> bool {
        let Ok(_verifying) = names.verifications.try_acquire() else { return false };
        let blocks = self.file.version().size.div_ceil(self.file.store.block_bytes());
        for block in 0..blocks {
            let file = self.file.clone();
            let is_good = self.cache.shared.read_disk(move || DirectUse(&file).compare(block));
            if names.have_ended() || is_good.await != Some(true) {
                return false;
            }
        }
        true
    }

    /// Gives the file a name, and begins its lease.
    async fn add_name(
        &self,
        names: &DirectNames,
        permit: DirectPermit,
        comparison: DirectComparison<'_>,
    ) -> Option<LogicalPath> {
        let (store, name) = (self.file.store.clone(), new_name().ok()?);
        let to = name.clone();
        if let Err(error) = self.cache.shared.on_disk(move || DirectData(&store).add_name(&to)).await? {
            let is_removed = error.kind() == io::ErrorKind::StaleNetworkFileHandle;
            if !is_removed {
                // Otherwise each open would read all of it again.
                comparison.end(DirectState::Failed);
                log(
                    &self.file,
                    &error,
                    "clients on this machine cannot read this file of the cache directly",
                );
            }
            return None;
        }
        let (now, time) = (Instant::now(), names.lease);
        comparison.end(DirectState::Named(NamedFile {
            name: name.clone(),
            verified: now,
            is_comparing: false,
            lease_end: now + time,
            _permit: permit,
        }));
        let lease = DirectLease {
            cache: Arc::downgrade(&self.cache),
            file: self.file.clone(),
            time,
            has_ended: names.has_ended.subscribe(),
        };
        self.cache.shared.runtime.spawn(lease.run(FileInUse::new(&self.file.shared)));
        Some(name)
    }
}

/// The lease of the second name of a file.
struct DirectLease<O: CacheOrigin> {
    cache: Weak<DiskCache<O>>,
    file: Arc<CachedFile<O>>,
    time: Duration,
    /// All names end.
    has_ended: watch::Receiver<bool>,
}

impl<O: CacheOrigin> DirectLease<O> {
    /// Waits for the end of the lease, removes the second name, and lets the file be closed.
    async fn run(mut self, in_use: FileInUse) {
        let mut left = self.time;
        let named = loop {
            match self.file.direct.lease_step(left, self.has_ended()) {
                Some(LeaseStep::WaitUntil(end)) => self.wait(end.duration_since(Instant::now())).await,
                Some(LeaseStep::End(named)) => break named,
                None => return,
            }
            left = if self.is_open_elsewhere().await { self.time } else { Duration::ZERO };
        };
        while let Err(error) = self.remove_name(&named.name).await {
            log(&self.file, &error, "the name for direct reads cannot be removed yet");
            if self.has_ended() {
                // The next start removes it.
                break;
            }
            self.wait(self.time).await;
        }
        // A client can have opened it in the meantime.
        while !self.has_ended() && self.is_open_elsewhere().await {
            self.wait(self.time).await;
        }
        self.unmark().await;
        drop(named);
        self.file.direct.set(DirectState::None);
        if let Some(cache) = self.cache.upgrade()
            && !self.file.has_readers()
        {
            FileClosing(cache).begin(&self.file, in_use);
        }
    }

    fn has_ended(&self) -> bool {
        *self.has_ended.borrow() || self.has_ended.has_changed().is_err()
    }

    /// Waits for this time, or until all names end.
    async fn wait(&mut self, time: Duration) {
        tokio::time::timeout(time, self.has_ended.wait_for(|has_ended| *has_ended)).await.ok();
    }

    /// Reports whether a program beside this process has the file open, or whether that is not known.
    async fn is_open_elsewhere(&self) -> bool {
        let store = self.file.store.clone();
        let is_open =
            self.file.shared.on_disk_for(Owner::SERVER, move || DirectData(&store).is_open_elsewhere()).await;
        if let Some(Err(error)) = &is_open {
            log(&self.file, error, "a file that clients read directly stays, because it may be open");
        }
        !matches!(is_open, Some(Ok(false)))
    }

    /// Removes the mark of the file, if no program has it open. Otherwise it stays for later processes.
    async fn unmark(&self) {
        let store = self.file.store.clone();
        let unmarked = self.file.shared.on_disk_for(Owner::SERVER, move || DirectData(&store).unmark()).await;
        if let Some(Err(error)) = &unmarked {
            log(&self.file, error, "a file that clients read directly keeps its mark");
        }
    }

    async fn remove_name(&self, name: &LogicalPath) -> io::Result<()> {
        let (context, name) = (self.file.shared.context.clone(), name.clone());
        let removed = self.file.shared.on_disk_for(Owner::SERVER, move || context.disk.remove(&name)).await;
        match removed.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}
