//! Accounting of spaces (`oss.usage`): the bytes that files in each space use, and their quotas.
//!
//! The usage of a file changes when it is closed after writing, and when it is removed. Changes are
//! added in memory at once and written to the usage log by a thread of its own pool, so that a hung
//! disk below the log delays no file. A crash loses the changes of files that were open, as in
//! XRootD.

use super::usage_log::UsageLog;
use crate::{Pool, SpaceUsage};
use base::Owner;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use std::collections::HashMap;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Maximum size of a quota file in bytes; what follows is ignored.
const QUOTA_FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum wait for a refresh of the figures before a reply, and for the last changes at the end.
const REFRESH_WAIT: Duration = Duration::from_secs(2);

/// A file by device and inode.
type FileKey = (u32, u32, u64);

/// The accounts of all spaces.
pub(super) struct SpaceAccounts {
    shared: Arc<SharedAccounts>,
    pool: Arc<Pool>,
    has_log: bool,
}

/// The part that writing threads share.
struct SharedAccounts {
    spaces: Vec<String>,
    quota_file: Option<PathBuf>,
    interval: Duration,
    state: Mutex<AccountState>,
    written: Condvar,
}

#[derive(Default)]
struct AccountState {
    /// `None` without a log, and while a thread has it.
    log: Option<UsageLog>,
    /// Usage of each space.
    used: Vec<u64>,
    /// Changes that are not in the log yet.
    pending: Vec<i64>,
    quotas: HashMap<String, u64>,
    /// Modification time of the quota file that was read.
    quotas_of: Option<SystemTime>,
    /// The last time when the quota file was read, or found unchanged.
    quotas_read: Option<Instant>,
    /// The last attempt to read the quota file failed.
    has_quota_failed: bool,
    /// Files that are open for writing.
    open: HashMap<FileKey, OpenAccount>,
    /// A thread is writing, or will.
    is_writing: bool,
    /// When the refresh in progress was requested, or the one before it ended.
    begun: Option<Instant>,
    /// Number of refreshes that ended.
    rounds: u64,
    /// The last attempt to write failed.
    has_failed: bool,
    refreshed: Option<Instant>,
}

impl AccountState {
    /// Returns the time that a reply may wait for the refresh in progress.
    fn patience(&self) -> Duration {
        let age = self.begun.filter(|_| self.is_writing).map_or(Duration::ZERO, |begun| begun.elapsed());
        if age < REFRESH_WAIT { REFRESH_WAIT } else { Duration::ZERO }
    }
}

/// The account of a file that is open for writing.
struct OpenAccount {
    space: usize,
    /// The bytes that are in the usage of the space.
    counted: u64,
    handles: usize,
    is_removed: bool,
}

/// A handle of a file whose growth is accounted for.
pub(super) struct AccountedFile {
    accounts: Arc<SpaceAccounts>,
    key: FileKey,
}

impl AccountedFile {
    /// Accounts for the size of the file when a handle is closed; `None` if it is unknown. `size` must
    /// not wait: it is called under the lock, so that of two handles the last one has the last word.
    pub(super) fn close(self, size: impl FnOnce() -> Option<u64>) {
        let mut state = self.accounts.shared.lock();
        let size = size();
        let Some(open) = state.open.get_mut(&self.key) else { return };
        open.handles = open.handles.saturating_sub(1);
        let (space, before, is_removed) = (open.space, open.counted, open.is_removed);
        open.counted = size.unwrap_or(before);
        if open.handles == 0 {
            state.open.remove(&self.key);
        }
        if !is_removed {
            self.accounts.add(&mut state, space, difference(before, size.unwrap_or(before)));
        }
    }
}

fn difference(before: u64, after: u64) -> i64 {
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    signed(after).saturating_sub(signed(before))
}

/// Returns the key of an open file, its size and its number of names. Does not wait.
fn status(file: impl AsFd) -> io::Result<(FileKey, u64, u32)> {
    let mask = StatxFlags::SIZE | StatxFlags::INO | StatxFlags::NLINK;
    let status = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, mask)?;
    let key = (status.stx_dev_major, status.stx_dev_minor, status.stx_ino);
    Ok((key, status.stx_size, status.stx_nlink))
}

impl SharedAccounts {
    fn lock(&self) -> MutexGuard<'_, AccountState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the quota file if it changed, and writes pending changes until there are none.
    fn refresh(&self) {
        while self.refresh_once() {}
    }

    /// Reads the quotas and writes the changes that are pending now. Reports whether there are more.
    fn refresh_once(&self) -> bool {
        self.refresh_quotas();
        let mut state = self.lock();
        let mut has_failed = false;
        if let Some(mut log) = state.log.take() {
            let mut changes = std::mem::replace(&mut state.pending, vec![0; self.spaces.len()]);
            drop(state);
            let applied = log.apply(&mut changes);
            state = self.lock();
            has_failed = applied.is_err();
            // What was not written remains.
            let rest = state.pending.iter_mut().zip(&changes);
            rest.for_each(|(all, more)| *all = all.saturating_add(*more));
            match applied {
                Ok(usages) => {
                    let usages = usages.into_iter().zip(&state.pending);
                    state.used = usages.map(|(used, more)| used.saturating_add_signed(*more)).collect();
                }
                Err(error) if !state.has_failed => {
                    tracing::error!(path = %log.path().display(), %error, "cannot write the usage log; the usage is kept in memory");
                }
                Err(_) => {}
            }
            state.has_failed = has_failed;
            state.log = Some(log);
        }
        let has_more = state.log.is_some() && !has_failed && state.pending.iter().any(|change| *change != 0);
        state.is_writing = has_more;
        let now = Instant::now();
        (state.begun, state.refreshed) = (Some(now), Some(now));
        state.rounds = state.rounds.wrapping_add(1);
        drop(state);
        self.written.notify_all();
        has_more
    }

    /// Reads the quota file if the interval is over and it changed.
    fn refresh_quotas(&self) {
        let Some(path) = self.quota_file.as_deref() else { return };
        let state = self.lock();
        if state.quotas_read.is_some_and(|read| read.elapsed() < self.interval) {
            return;
        }
        let known = state.quotas_of;
        drop(state);
        let read = read_quotas(path, known);
        let mut state = self.lock();
        state.quotas_read = Some(Instant::now());
        let has_failed = read.is_err();
        match read {
            Ok(Some((quotas, of))) => {
                for space in quotas.keys().filter(|name| !self.spaces.contains(name) && *name != "public") {
                    tracing::warn!(%space, "the quota file names a space that does not exist; the line is ignored");
                }
                (state.quotas, state.quotas_of) = (quotas, Some(of));
            }
            Err(error) if !state.has_quota_failed => {
                tracing::warn!(path = %path.display(), %error, "cannot read the quota file; the quotas read before remain");
            }
            Ok(None) | Err(_) => {}
        }
        state.has_quota_failed = has_failed;
    }

    /// Waits for a refresh that began after the call, or for the end of all. Does not wait for one that
    /// has taken too long already, because the disk of its file hangs. Reports whether there was nothing
    /// to wait for or it came in time.
    fn wait<'s>(&'s self, state: MutexGuard<'s, AccountState>) -> (MutexGuard<'s, AccountState>, bool) {
        // The round in progress may have read the files already.
        let enough = state.rounds.wrapping_add(2);
        let unfinished = |state: &mut AccountState| state.is_writing && state.rounds != enough;
        let patience = state.patience();
        let waited = self.written.wait_timeout_while(state, patience, unfinished);
        let (state, result) = waited.unwrap_or_else(PoisonError::into_inner);
        (state, !result.timed_out())
    }
}

impl SpaceAccounts {
    /// Opens the usage log and reads the quotas. `None` if neither is configured. May wait.
    pub(super) fn new(
        config: &config::SpaceAccounting,
        interval: Duration,
        mut spaces: Vec<String>,
    ) -> io::Result<Option<Arc<Self>>> {
        if config.log.is_none() && config.quota_file.is_none() {
            return Ok(None);
        }
        spaces.sort();
        spaces.dedup();
        let log = config.log.as_ref().map(|log| UsageLog::open(log, &spaces)).transpose()?;
        let (count, has_log) = (spaces.len(), log.is_some());
        let state =
            AccountState { log, used: vec![0; count], pending: vec![0; count], ..AccountState::default() };
        let shared = SharedAccounts {
            spaces,
            quota_file: config.quota_file.clone(),
            interval,
            state: Mutex::new(state),
            written: Condvar::new(),
        };
        shared.refresh();
        Ok(Some(Arc::new(Self { shared: Arc::new(shared), pool: Pool::new("space-accounts", 1), has_log })))
    }

    /// Reports whether usage is accounted for.
    pub(super) fn has_log(&self) -> bool {
        self.has_log
    }

    /// Starts a refresh unless one is in progress.
    fn start_refresh(&self, state: &mut AccountState) {
        if state.is_writing {
            return;
        }
        let shared = self.shared.clone();
        // Without a thread, the next change or query tries again.
        state.begun = Some(Instant::now());
        state.is_writing = self.pool.run(Owner::SERVER, Box::new(move || shared.refresh())).is_ok();
    }

    /// Adds a change to the usage of a space.
    fn add(&self, state: &mut AccountState, space: usize, change: i64) {
        if change == 0 || !self.has_log {
            return;
        }
        if let (Some(used), Some(pending)) = (state.used.get_mut(space), state.pending.get_mut(space)) {
            *used = used.saturating_add_signed(change);
            *pending = pending.saturating_add(change);
        }
        self.start_refresh(state);
    }

    /// Adds bytes to the usage of a space.
    pub(super) fn grow(&self, space: &str, bytes: u64) {
        if let Some(space) = self.space(space) {
            self.add(&mut self.shared.lock(), space, difference(0, bytes));
        }
    }

    /// Works with the usage log when all changes are in it. The error is that of a log that is not there, or
    /// that another thread cannot write in time.
    pub(super) fn with_log<T>(&self, work: impl FnOnce(&mut UsageLog) -> io::Result<T>) -> io::Result<T> {
        let (mut state, _) = self.shared.wait(self.shared.lock());
        match state.log.as_mut() {
            Some(log) => work(log),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn space(&self, name: &str) -> Option<usize> {
        self.shared.spaces.iter().position(|space| space == name)
    }

    /// Returns a handle that accounts for the growth of an open file in a space.
    pub(super) fn open(self: &Arc<Self>, space: &str, file: impl AsFd) -> Option<AccountedFile> {
        let space = self.space(space)?;
        let mut state = self.shared.lock();
        // The size is read under the lock, so that a handle that is closed meanwhile does not count
        // it twice.
        let (key, size, links) = status(file).ok()?;
        // A file that was removed meanwhile is not in the usage any longer, unless other handles have
        // its account.
        if links == 0 && !state.open.contains_key(&key) {
            return None;
        }
        let first = OpenAccount { space, counted: size, handles: 0, is_removed: false };
        state.open.entry(key).or_insert(first).handles += 1;
        Some(AccountedFile { accounts: self.clone(), key })
    }

    /// Removes a data file of a space and accounts for it.
    pub(super) fn remove(&self, space: &str, data: &Path) -> rustix::io::Result<()> {
        // The descriptor shows the size that the file has when its name is gone.
        let place = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(data, place, Mode::empty())?;
        let before = status(&file);
        rustix::fs::unlinkat(CWD, data, AtFlags::empty())?;
        if let (Some(space), Ok((.., links))) = (self.space(space), before) {
            self.removed(space, file, links);
        }
        Ok(())
    }

    /// Accounts for a file that had this number of names before one was removed.
    fn removed(&self, space: usize, file: impl AsFd, links: u32) {
        let mut state = self.shared.lock();
        let Ok((key, size, left)) = status(file) else { return };
        // NFS keeps a name of a file that is open.
        if left > 0 && links > 1 {
            return;
        }
        let mut bytes = size;
        if let Some(open) = state.open.get_mut(&key) {
            // What a handle writes from now on disappears with it.
            (bytes, open.is_removed) = (open.counted, true);
        }
        self.add(&mut state, space, difference(bytes, 0));
    }

    /// Completes the figures of a space by its usage and quota. Reads changes of other programs and
    /// of the quota file if the last ones were read long ago. May wait for a short time.
    pub(super) fn complete(&self, usage: SpaceUsage, space: &str) -> SpaceUsage {
        let mut state = self.shared.lock();
        if state.refreshed.is_none_or(|refreshed| refreshed.elapsed() >= self.shared.interval) {
            self.start_refresh(&mut state);
        }
        let (state, _) = self.shared.wait(state);
        let used = self.space(space).and_then(|space| state.used.get(space)).copied();
        let used = used.filter(|_| self.has_log).or(usage.used);
        SpaceUsage { used, quota: state.quotas.get(space).copied(), ..usage }
    }
}

impl Drop for SpaceAccounts {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if state.pending.iter().any(|change| *change != 0) {
            self.start_refresh(&mut state);
        }
        let patience = state.patience();
        let _ = self.shared.written.wait_timeout_while(state, patience, |state| state.is_writing);
    }
}

/// Quotas by space, and the modification time of their file.
type ReadQuotas = (HashMap<String, u64>, SystemTime);

/// Reads the quota file if its modification time is not `known`.
fn read_quotas(path: &Path, known: Option<SystemTime>) -> io::Result<Option<ReadQuotas>> {
    // A pipe does not make the call wait.
    let file = std::fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let modified = file.metadata()?.modified()?;
    if known == Some(modified) {
        return Ok(None);
    }
    let mut text = String::new();
    file.take(QUOTA_FILE_BYTES_MAX).read_to_string(&mut text)?;
    let mut quotas = HashMap::new();
    for (number, line) in text.lines().enumerate() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (None, _) => {}
            (Some(comment), _) if comment.starts_with('#') => {}
            (Some(space), size) => match size.and_then(base::parse_size) {
                Some(bytes) => {
                    quotas.insert(space.to_owned(), bytes);
                }
                None => {
                    let (path, line) = (path.display(), number + 1);
                    tracing::warn!(%path, line, "a quota is not a size, such as 500g; the line is ignored");
                }
            },
        }
    }
    Ok(Some((quotas, modified)))
}

#[cfg(test)]
mod tests;
