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
//! missing name is looked up again after the end of the removal of a file with this name. Other names
//! wait for nothing: an examination can last long if its disk hangs. A server that removes no file for its
//! space reads two numbers and takes no lock.

use crate::Now;
use base::LogicalPath;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of attempts to open a file, and the time for which an open waits for the ends of removals.
const TRIES: usize = 64;
const WAIT_MAX: Duration = Duration::from_millis(50);

/// An examination of a file, and the name of the file in its directory.
struct NamedExamination {
    number: u64,
    name: Box<[u8]>,
}

/// The examinations that have not ended, and the number of the next one.
#[derive(Default)]
struct Examinations {
    next: u64,
    ongoing: Vec<NamedExamination>,
}

/// The files of this process that are examined for their removal, so that none may open them.
#[derive(Default)]
pub(super) struct OngoingRemovals {
    /// Numbers of examinations that go on, and of those that have ended. They are changed under the lock.
    ongoing: AtomicUsize,
    ended: AtomicU64,
    examinations: Mutex<Examinations>,
    end: Condvar,
}

/// The moment before a look-up. What has ended since may have hidden the name.
#[derive(Clone, Copy)]
pub(super) struct LookUpBegin(u64);

/// Returns the name by which the examination of a file is known.
fn name_of(stored: &LogicalPath) -> &[u8] {
    stored.file_name().unwrap_or_default()
}

impl OngoingRemovals {
    fn lock(&self) -> MutexGuard<'_, Examinations> {
        self.examinations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the examination of the file at a path below the root begins. It lasts as long as the
    /// ticket.
    pub(super) fn begin(removals: &Arc<Self>, stored: &LogicalPath) -> RemovalTicket {
        let mut examinations = removals.lock();
        let number = examinations.next;
        examinations.next += 1;
        examinations.ongoing.push(NamedExamination { number, name: name_of(stored).into() });
        removals.ongoing.fetch_add(1, Ordering::SeqCst);
        RemovalTicket { removals: removals.clone(), number }
    }

    /// Returns the moment before a look-up.
    pub(super) fn before_look_up(&self) -> LookUpBegin {
        LookUpBegin(self.ended.load(Ordering::SeqCst))
    }

    /// Reports whether no file is examined, and none was since.
    fn is_quiet_since(&self, begin: LookUpBegin) -> bool {
        self.ongoing.load(Ordering::SeqCst) == 0 && self.ended.load(Ordering::SeqCst) == begin.0
    }

    /// Returns the result of a look-up without waiting that has failed. A name that a removal could hide
    /// has to be looked up where waiting is allowed.
    pub(super) fn failed_now<T>(&self, begin: LookUpBegin, stored: &LogicalPath, error: io::Error) -> Now<T> {
        let is_missing = error.raw_os_error() == Some(Errno::NOENT.raw_os_error());
        if !is_missing || self.is_quiet_since(begin) {
            return Now::Done(Err(error));
        }
        let examinations = self.lock();
        let is_hidden = examinations.ongoing.iter().any(|one| *one.name == *name_of(stored));
        let has_ended = self.ended.load(Ordering::SeqCst) != begin.0;
        if is_hidden || has_ended { Now::WouldBlock } else { Now::Done(Err(error)) }
    }

    /// Waits for the end of an examination of a file with this name. Reports whether that or another
    /// one has ended since the look-up began.
    fn wait_for_end(&self, begin: LookUpBegin, stored: &LogicalPath, deadline: Instant) -> bool {
        if self.is_quiet_since(begin) {
            return false;
        }
        let mut examinations = self.lock();
        let own = examinations.ongoing.iter().find(|one| *one.name == *name_of(stored));
        let Some(number) = own.map(|one| one.number) else {
            return self.ended.load(Ordering::SeqCst) != begin.0;
        };
        while examinations.ongoing.iter().any(|one| one.number == number) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            examinations =
                self.end.wait_timeout(examinations, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

/// An examination of a file for its removal.
pub(super) struct RemovalTicket {
    removals: Arc<OngoingRemovals>,
    number: u64,
}

impl Drop for RemovalTicket {
    fn drop(&mut self) {
        let mut examinations = self.removals.lock();
        examinations.ongoing.retain(|one| one.number != self.number);
        self.removals.ended.fetch_add(1, Ordering::SeqCst);
        self.removals.ongoing.fetch_sub(1, Ordering::SeqCst);
        self.removals.end.notify_all();
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

/// Looks a path below the root up, and once more if it is missing while a removal could hide it. Blocks.
pub(super) fn look_up<T>(
    removals: &OngoingRemovals,
    stored: &LogicalPath,
    mut find: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let begin = removals.before_look_up();
    match find() {
        Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {
            let is_over = removals.wait_for_end(begin, stored, Instant::now() + WAIT_MAX);
            if is_over { find() } else { Err(error) }
        }
        other => other,
    }
}

/// Opens the file at a path below the root until it is one that has a name. `EAGAIN` if a lease is in the way whose end is not near.
/// Blocks.
pub(super) fn open_named<T>(
    removals: &OngoingRemovals,
    stored: &LogicalPath,
    mut open: impl FnMut() -> io::Result<(OwnedFd, T)>,
) -> io::Result<(OwnedFd, T, OpenedFile)> {
    let mut deadline = None;
    let mut removed = None;
    for _ in 1..TRIES {
        let begin = removals.before_look_up();
        match open() {
            Err(error) if error.raw_os_error() == Some(Errno::AGAIN.raw_os_error()) => {
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + WAIT_MAX);
                if !removals.wait_for_end(begin, stored, deadline) {
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

    fn path(text: &str) -> LogicalPath {
        LogicalPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_file_without_a_name_is_opened_again() {
        let place = std::env::temp_dir().join(format!("scalla-opening-{}", std::process::id()));
        let mut opens = 0;
        let removals = Arc::new(OngoingRemovals::default());
        let (_, number, file) = open_named(&removals, &path("/f"), || {
            opens += 1;
            let file = OpenOptions::new().write(true).create(true).truncate(true).open(&place)?;
            match opens {
                1 => {
                    // The removal ends between the call and the look at it.
                    drop(OngoingRemovals::begin(&removals, &path("/f")));
                    Err(Errno::AGAIN.into())
                }
                2 => {
                    // Another file has the number of this one while it is open.
                    std::fs::remove_file(&place)?;
                    Ok((file.into(), opens))
                }
                _ => Ok((file.into(), opens)),
            }
        })
        .unwrap();
        assert!(file.has_name && number >= 3, "{number}");
        std::fs::remove_file(&place).unwrap();
        let directory =
            open_named(&removals, &path("/"), || Ok((File::open(std::env::temp_dir())?.into(), ())))
                .map(|_| ());
        assert_eq!(directory.unwrap_err().raw_os_error(), Some(libc::EISDIR));
    }

    #[test]
    fn a_name_that_a_removal_hides_is_looked_up_again() {
        let removals = Arc::new(OngoingRemovals::default());
        let (own, other) = (path("/d/f"), path("/d/g"));
        let missing = || Err::<(), _>(Errno::NOENT.into());
        let number = |result: io::Result<()>| result.unwrap_err().raw_os_error();
        let now = |begin, at, error: Errno| removals.failed_now::<()>(begin, at, error.into());
        let mut calls = 0;
        let refused = look_up(&removals, &own, || {
            calls += 1;
            missing()
        });
        assert_eq!((number(refused), calls), (Some(libc::ENOENT), 1));
        let begin = removals.before_look_up();
        assert!(matches!(now(begin, &own, Errno::NOENT), Now::Done(Err(_))));
        // The file gets its name back after the first look.
        let mut ticket = Some(OngoingRemovals::begin(&removals, &own));
        assert!(matches!(now(begin, &own, Errno::NOENT), Now::WouldBlock));
        assert!(matches!(now(begin, &own, Errno::ACCESS), Now::Done(Err(_))));
        // The disk of a file can hang. Other names do not wait for it.
        assert!(matches!(now(begin, &other, Errno::NOENT), Now::Done(Err(_))));
        let mut calls = 0;
        let refused = look_up(&removals, &other, || {
            calls += 1;
            missing()
        });
        assert_eq!((number(refused), calls), (Some(libc::ENOENT), 1));
        look_up(&removals, &own, || if ticket.take().is_some() { missing() } else { Ok(()) }).unwrap();
        // It has ended since the look-up began, and may have hidden the name.
        assert!(matches!(now(begin, &own, Errno::NOENT), Now::WouldBlock));
        let begin = removals.before_look_up();
        assert!(matches!(now(begin, &own, Errno::NOENT), Now::Done(Err(_))));
        // A missing file is looked up once more, and not again.
        let mut calls = 0;
        let refused = look_up(&removals, &own, || {
            calls += 1;
            drop(OngoingRemovals::begin(&removals, &own));
            missing()
        });
        assert_eq!((number(refused), calls), (Some(libc::ENOENT), 2));
        assert!(removals.lock().ongoing.is_empty());
    }

    #[test]
    fn an_open_waits_for_removals_of_this_process_only() {
        let removals = Arc::new(OngoingRemovals::default());
        let mut opens = 0;
        let refused = open_named(&removals, &path("/f"), || {
            opens += 1;
            Err::<(OwnedFd, ()), _>(Errno::AGAIN.into())
        });
        assert_eq!(refused.map(|_| ()).unwrap_err().raw_os_error(), Some(libc::EAGAIN));
        assert_eq!(opens, 1, "the lease is that of another program");
        // The removal ends while the open waits for it.
        let ticket = OngoingRemovals::begin(&removals, &path("/f"));
        let place = std::env::temp_dir().join(format!("scalla-opening-wait-{}", std::process::id()));
        let (called, calls) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let opening = scope.spawn(|| {
                let mut opens = 0;
                let opened = open_named(&removals, &path("/f"), || {
                    opens += 1;
                    called.send(()).unwrap();
                    match opens {
                        1 => Err(Errno::AGAIN.into()),
                        _ => Ok((File::create(&place)?.into(), ())),
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
        std::fs::remove_file(&place).ok();
        assert!(removals.lock().ongoing.is_empty());
        assert_eq!(removals.ongoing.load(Ordering::SeqCst), 0);
    }
}
