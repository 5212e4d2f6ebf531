//! Opens of files that are removed meanwhile because their space is needed.
//!
//! Such a removal makes opens fail with `EAGAIN` for a moment ([`super::unused_file`]). An open that has
//! found the name just before can get the file without a name. It begins again in both cases, so that
//! no client writes to a file that is gone.
//!
//! A lease of another program has the same error. Nothing is known about its end, so such an open fails
//! at once and keeps no thread.
//!
//! During a removal the file has a hidden name, and gets its own one back if a client wants it. So a
//! missing name is looked up again after the end of a removal.

use crate::Now;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of attempts to open a file, and the time for which an open waits for the ends of removals.
const TRIES: usize = 64;
const WAIT_MAX: Duration = Duration::from_millis(50);

/// Numbers of examinations of files for their removal.
#[derive(Clone, Copy, Default)]
struct RemovalCount {
    ongoing: usize,
    ended: u64,
    last_end: Option<Instant>,
}

/// The files of this process that are examined for their removal, so that none may open them.
#[derive(Default)]
pub(super) struct OngoingRemovals {
    count: Mutex<RemovalCount>,
    ended: Condvar,
}

impl OngoingRemovals {
    fn lock(&self) -> MutexGuard<'_, RemovalCount> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that an examination begins. It lasts as long as the ticket.
    pub(super) fn begin(removals: &Arc<Self>) -> RemovalTicket {
        removals.lock().ongoing += 1;
        RemovalTicket(removals.clone())
    }

    /// Reports whether a missing name may be that of a file which is examined, or was until a moment ago.
    fn may_hide_names(&self) -> bool {
        let count = self.lock();
        count.ongoing > 0 || count.last_end.is_some_and(|end| end.elapsed() < WAIT_MAX)
    }

    /// Returns the result of a look-up without waiting that has failed. A name that a removal could hide
    /// has to be looked up where waiting is allowed.
    pub(super) fn failed_now<T>(&self, error: io::Error) -> Now<T> {
        let is_missing = error.raw_os_error() == Some(Errno::NOENT.raw_os_error());
        if is_missing && self.may_hide_names() { Now::WouldBlock } else { Now::Done(Err(error)) }
    }

    /// Waits until one has ended since this number of ends, and reports whether that is so. It does not
    /// wait if none is ongoing.
    fn wait_for_end(&self, since: u64, deadline: Instant) -> bool {
        let mut count = self.lock();
        while count.ended == since && count.ongoing > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            count = self.ended.wait_timeout(count, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        count.ended != since
    }
}

/// An examination of a file for its removal.
pub(super) struct RemovalTicket(Arc<OngoingRemovals>);

impl Drop for RemovalTicket {
    fn drop(&mut self) {
        let mut count = self.0.lock();
        count.ongoing -= 1;
        count.ended += 1;
        count.last_end = Some(Instant::now());
        self.0.ended.notify_all();
    }
}

/// The identity of an open regular file.
#[derive(Clone, Copy)]
pub(super) struct OpenedFile {
    pub(super) device: u64,
    inode: u64,
    has_name: bool,
}

impl OpenedFile {
    /// Prepares the descriptor of a file for reads and writes. Fails if the file is not a regular one.
    pub(super) fn new(fd: &OwnedFd) -> io::Result<Self> {
        let status = rustix::fs::fstat(fd)?;
        match status.st_mode & libc::S_IFMT {
            libc::S_IFREG => {}
            libc::S_IFDIR => return Err(Errno::ISDIR.into()),
            _ => return Err(Errno::NOTBLK.into()),
        }
        // `O_NONBLOCK` was needed for opening only; some kernels would refuse to wait for the data
        // of such a file later.
        rustix::fs::fcntl_setfl(fd, OFlags::empty())?;
        Ok(Self { device: status.st_dev, inode: status.st_ino, has_name: status.st_nlink > 0 })
    }

    /// Returns the device, or `None` if the file has no name any more.
    pub(super) fn named_device(self) -> Option<u64> {
        self.has_name.then_some(self.device)
    }
}

/// Looks a name up, and once more if it is missing while a removal could hide it. Blocks.
pub(super) fn look_up<T>(
    removals: &OngoingRemovals,
    mut find: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let ended = removals.lock().ended;
    match find() {
        Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {
            let is_over = removals.wait_for_end(ended, Instant::now() + WAIT_MAX);
            if is_over { find() } else { Err(error) }
        }
        other => other,
    }
}

/// Opens a file until it is one that has a name. `EAGAIN` if a lease is in the way whose end is not near.
/// Blocks.
pub(super) fn open_named<T>(
    removals: &OngoingRemovals,
    mut open: impl FnMut() -> io::Result<(OwnedFd, T)>,
) -> io::Result<(OwnedFd, T, OpenedFile)> {
    let deadline = Instant::now() + WAIT_MAX;
    let mut removed = None;
    for _ in 1..TRIES {
        let ended = removals.lock().ended;
        match open() {
            Err(error) if error.raw_os_error() == Some(Errno::AGAIN.raw_os_error()) => {
                if !removals.wait_for_end(ended, deadline) {
                    return Err(error);
                }
            }
            opened => {
                let (fd, more) = opened?;
                let file = OpenedFile::new(&fd)?;
                let number = (file.device, file.inode);
                // Some file systems do not count names. There the name leads to the same file again.
                if file.has_name || removed == Some(number) {
                    return Ok((fd, more, file));
                }
                removed = Some(number);
            }
        }
    }
    let (fd, more) = open()?;
    let file = OpenedFile::new(&fd)?;
    Ok((fd, more, file))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};

    #[test]
    fn a_file_without_a_name_is_opened_again() {
        let path = std::env::temp_dir().join(format!("scalla-opening-{}", std::process::id()));
        let mut opens = 0;
        let removals = Arc::new(OngoingRemovals::default());
        let (_, number, file) = open_named(&removals, || {
            opens += 1;
            let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
            match opens {
                1 => {
                    // The removal ends between the call and the look at it.
                    drop(OngoingRemovals::begin(&removals));
                    Err(Errno::AGAIN.into())
                }
                2 => {
                    // Another file has the number of this one while it is open.
                    std::fs::remove_file(&path)?;
                    Ok((file.into(), opens))
                }
                _ => Ok((file.into(), opens)),
            }
        })
        .unwrap();
        assert!(file.has_name && number >= 3, "{number}");
        std::fs::remove_file(&path).unwrap();
        let directory =
            open_named(&removals, || Ok((File::open(std::env::temp_dir())?.into(), ()))).map(|_| ());
        assert_eq!(directory.unwrap_err().raw_os_error(), Some(libc::EISDIR));
    }

    #[test]
    fn a_name_that_a_removal_hides_is_looked_up_again() {
        let removals = Arc::new(OngoingRemovals::default());
        let missing = || Err::<(), _>(Errno::NOENT.into());
        let number = |result: io::Result<()>| result.unwrap_err().raw_os_error();
        let mut calls = 0;
        let refused = look_up(&removals, || {
            calls += 1;
            missing()
        });
        assert_eq!((number(refused), calls), (Some(libc::ENOENT), 1));
        assert!(matches!(removals.failed_now::<()>(Errno::NOENT.into()), Now::Done(Err(_))));
        // The file gets its name back after the first look.
        let mut ticket = Some(OngoingRemovals::begin(&removals));
        assert!(matches!(removals.failed_now::<()>(Errno::NOENT.into()), Now::WouldBlock));
        assert!(matches!(removals.failed_now::<()>(Errno::ACCESS.into()), Now::Done(Err(_))));
        look_up(&removals, || if ticket.take().is_some() { missing() } else { Ok(()) }).unwrap();
        // A missing file is looked up once more, and not again.
        let mut calls = 0;
        let refused = look_up(&removals, || {
            calls += 1;
            drop(OngoingRemovals::begin(&removals));
            missing()
        });
        assert_eq!((number(refused), calls), (Some(libc::ENOENT), 2));
    }

    #[test]
    fn an_open_waits_for_removals_of_this_process_only() {
        let removals = Arc::new(OngoingRemovals::default());
        let mut opens = 0;
        let refused = open_named(&removals, || {
            opens += 1;
            Err::<(OwnedFd, ()), _>(Errno::AGAIN.into())
        });
        assert_eq!(refused.map(|_| ()).unwrap_err().raw_os_error(), Some(libc::EAGAIN));
        assert_eq!(opens, 1, "the lease is that of another program");
        // The removal ends while the open waits for it.
        let ticket = OngoingRemovals::begin(&removals);
        let path = std::env::temp_dir().join(format!("scalla-opening-wait-{}", std::process::id()));
        let (called, calls) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let opening = scope.spawn(|| {
                let mut opens = 0;
                let opened = open_named(&removals, || {
                    opens += 1;
                    called.send(()).unwrap();
                    match opens {
                        1 => Err(Errno::AGAIN.into()),
                        _ => Ok((File::create(&path)?.into(), ())),
                    }
                });
                // It waits for a limited time only.
                opened.map(|_| opens)
            });
            calls.recv().unwrap();
            drop(ticket);
            match opening.join().unwrap() {
                Ok(opens) => assert_eq!(opens, 2),
                Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EAGAIN)),
            }
        });
        std::fs::remove_file(&path).ok();
        assert_eq!(removals.lock().ongoing, 0);
    }
}
