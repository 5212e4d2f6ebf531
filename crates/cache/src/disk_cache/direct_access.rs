//! Direct access: clients on this machine read a file that is stored completely by a second name of its data.
//!
//! Such a client reads without this server, so nothing can be corrected later. The second name is made after all of the
//! file was read and compared, belongs to one version, and is never used again: a client that is late finds nothing, and
//! never another version or a file with gaps. Names stay for a time, the lease, after the last client was sent there, and
//! the file is not removed from the cache meanwhile. A client that has opened the file keeps it: it stays as it is until no
//! program has it open, because the space of a removed file is only free then, and parts of it would be read as zeros.

use super::cached_file::CachedFile;
use super::settings::{DirectAccess, DirectReaders};
use super::{CacheOrigin, CacheReader, DiskCache};
use crate::CacheDisk;
use crate::store::{OWN_DIRECTORY, StoreContext};
use base::{LogicalPath, Owner};
use rustix::rand::{GetRandomFlags, getrandom};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Maximum number of files with a second name. Each has an open descriptor, and stays in the cache.
const LEASES_MAX: usize = 512;
/// Maximum number of files that are read and compared at once.
const VERIFICATIONS_MAX: usize = 2;
/// Number of bytes that are read and compared at once.
const PIECE_BYTES: usize = 1 << 20;
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
    verified: Instant,
    lease_end: Instant,
    /// It goes with the state.
    _permit: OwnedSemaphorePermit,
}

/// What an open has to do.
enum DirectStep {
    Use(LogicalPath),
    Verify,
    /// The file is read by the server.
    Refuse,
}

/// What the lease of a name has to do.
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
                DirectStep::Verify
            }
            // A client that is late still has a part of the lease, and the next one lets the file be compared again.
            DirectState::Named(named) if now < named.lease_end && now < named.verified + VERIFIED_TIME => {
                named.lease_end = now + lease;
                DirectStep::Use(named.name.clone())
            }
            DirectState::Named(_) | DirectState::Verifying | DirectState::Ending | DirectState::Failed => {
                DirectStep::Refuse
            }
        }
    }

    fn set(&self, state: DirectState) {
        *self.state() = state;
    }

    /// Returns the next step of the lease. With its end, no other client gets the name.
    fn lease_step(&self, is_open: bool, lease: Duration) -> Option<LeaseStep> {
        let (mut state, now) = (self.state(), Instant::now());
        let DirectState::Named(named) = &mut *state else { return None };
        if is_open {
            named.lease_end = named.lease_end.max(now + lease);
        }
        if now < named.lease_end {
            return Some(LeaseStep::WaitUntil(named.lease_end));
        }
        let DirectState::Named(named) = std::mem::replace(&mut *state, DirectState::Ending) else {
            return None;
        };
        Some(LeaseStep::End(named))
    }
}

/// Removes the state of a verification that does not end with a name, also if its task is dropped.
struct Verification<'a>(Option<&'a DirectName>);

impl Drop for Verification<'_> {
    fn drop(&mut self) {
        if let Some(name) = self.0 {
            name.set(DirectState::None);
        }
    }
}

/// The second names of a cache.
pub(super) struct DirectNames {
    access: DirectAccess,
    leases: Arc<Semaphore>,
    verifications: Arc<Semaphore>,
}

impl DirectNames {
    pub(super) fn new(access: DirectAccess) -> Self {
        Self {
            access,
            leases: Arc::new(Semaphore::new(LEASES_MAX)),
            verifications: Arc::new(Semaphore::new(VERIFICATIONS_MAX)),
        }
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

const fn mode(readers: DirectReaders) -> u32 {
    match readers {
        DirectReaders::Group => 0o640,
        DirectReaders::World => 0o644,
    }
}

/// Removes the second names that are left, and the permissions of clients at these files. Each keeps the space of a file
/// that is removed, and stops nothing else.
pub(crate) fn remove_names(disk: &dyn CacheDisk) {
    let removed = super::with_own_files(disk, DIRECTORY, |name| {
        if let Err(error) = disk.remove_name(name) {
            tracing::warn!(name = %name.shown(), %error, "cannot remove a name for direct reads in the cache");
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
    pub async fn direct_name(self: &Arc<Self>) -> Option<LogicalPath> {
        let names = self.cache.direct.as_ref().filter(|_| self.is_whole())?;
        match self.file.direct.begin(names.access.lease) {
            DirectStep::Use(name) => {
                self.file.note_direct_read();
                Some(name)
            }
            DirectStep::Refuse => None,
            DirectStep::Verify => {
                let reader = self.clone();
                // In a task, because later opens benefit from it when the client leaves.
                let named = self.cache.shared.runtime.spawn(async move { reader.verify_and_name().await });
                tokio::time::timeout(VERIFICATION_TIME, named).await.ok()?.ok().flatten()
            }
        }
        .inspect(|_| self.cache.shared.counters.direct_opens.add(1))
    }

    /// Reports whether all of the file is stored, and is the current version as far as this server knows.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let size = self.file.version().size;
        self.is_settled() && self.file.is_current() && size > 0 && self.file.stored_bytes() == size
    }

    /// Reads and compares all of the file, and gives it a second name.
    async fn verify_and_name(&self) -> Option<LogicalPath> {
        let mut verification = Verification(Some(&self.file.direct));
        let names = self.cache.direct.as_ref()?;
        let permit = names.leases.clone().try_acquire_owned().ok()?;
        let verifying = names.verifications.try_acquire().ok()?;
        let mut piece = vec![0; PIECE_BYTES];
        let (mut at, size) = (0, self.file.version().size);
        while at < size {
            // Damaged blocks are fetched again, and stored after that.
            at += self.read(at, &mut piece).await.ok().filter(|count| *count > 0)? as u64;
        }
        drop(verifying);
        if !self.is_whole() {
            return None;
        }
        let (store, name, of) = (self.file.store.clone(), new_name().ok()?, mode(names.access.readers));
        let to = name.clone();
        let named = self.cache.shared.on_disk(move || store.add_name(&to, of)).await?;
        if let Err(error) = named {
            let is_removed = error.kind() == io::ErrorKind::StaleNetworkFileHandle;
            if !is_removed {
                // Otherwise each open would read all of it again.
                verification.0 = None;
                self.file.direct.set(DirectState::Failed);
            }
            if !is_removed && self.cache.shared.may_log() {
                let file = self.file.key.data().shown();
                tracing::warn!(%file, %error, "clients on this machine cannot read this file of the cache directly");
            }
            return None;
        }
        verification.0 = None;
        let lease_end = Instant::now() + names.access.lease;
        let named = NamedFile { name: name.clone(), verified: Instant::now(), lease_end, _permit: permit };
        self.file.direct.set(DirectState::Named(named));
        let lease = end_lease(Arc::downgrade(&self.cache), self.file.clone(), names.access.lease);
        self.cache.shared.runtime.spawn(lease);
        // It can have been changed while it got its name.
        self.is_whole().then_some(name)
    }
}

/// Waits for the end of the lease of a file, and removes its second name.
async fn end_lease<O: CacheOrigin>(cache: Weak<DiskCache<O>>, file: Arc<CachedFile<O>>, lease: Duration) {
    let mut is_open = true;
    let named = loop {
        match file.direct.lease_step(is_open, lease) {
            Some(LeaseStep::WaitUntil(end)) => tokio::time::sleep_until(end).await,
            Some(LeaseStep::End(named)) => break named,
            None => return,
        }
        is_open = is_open_elsewhere(&file).await;
    };
    while let Err(error) = remove_name(&file, &named.name).await {
        if cache.strong_count() == 0 {
            return;
        }
        if file.shared.may_log() {
            let file = file.key.data().shown();
            tracing::warn!(%file, %error, "the name for direct reads cannot be removed yet");
        }
        tokio::time::sleep(lease).await;
    }
    // A client can have opened it in the meantime.
    while is_open_elsewhere(&file).await && cache.strong_count() > 0 {
        tokio::time::sleep(lease).await;
    }
    drop(named);
    file.direct.set(DirectState::None);
    if let Some(cache) = cache.upgrade()
        && !file.has_readers()
    {
        cache.close_later(&file);
    }
}

/// Reports whether a program beside this process has the file open, or whether that is not known.
async fn is_open_elsewhere<O: CacheOrigin>(file: &Arc<CachedFile<O>>) -> bool {
    let store = file.store.clone();
    let is_open = file.shared.on_disk_for(Owner::SERVER, move || store.is_open_elsewhere()).await;
    !matches!(is_open, Some(Ok(false)))
}

/// Removes the second name of a file.
async fn remove_name<O: CacheOrigin>(file: &Arc<CachedFile<O>>, name: &LogicalPath) -> io::Result<()> {
    let (context, name) = (file.shared.context.clone(), name.clone());
    let removed = file.shared.on_disk_for(Owner::SERVER, move || context.disk.remove_name(&name)).await;
    match removed.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into())) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
