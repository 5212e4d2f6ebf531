//! Reads that would block, without a thread: through an io_uring that belongs to the event loop
//! (decision 004).
//!
//! A loop that installs a ring ([`install`]) lets the kernel read data that is not in memory while
//! the loop continues. The ring's eventfd wakes the loop, and [`RingDriver::complete`] returns the
//! buffers. Where the kernel forbids io_uring (many containers, some distributions), there is no
//! ring, and the fallback is the pool (`batched_reads`).
//!
//! A buffer given to the kernel lives until its completion, even if the connection that requested
//! it is closed: the operation owns the buffer, and the ring owns the operation.

use base::{Extent, ReadPiece};
use io_uring::{IoUring, Probe, opcode, types};
use slab::Slab;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Maximum number of reads in progress in one ring; further ones are queued.
pub const RING_READS_MAX: usize = 256;

/// Maximum number of reads queued for one ring; further ones go to the pool.
pub const RING_WAITING_MAX: usize = 4096;

/// Maximum number of reads of one file system in all rings, so that a hung disk cannot fill them.
pub const RING_READS_PER_VOLUME_MAX: u32 = 128;

/// The callback after all pieces were read. Its arguments are the buffer, and the number of bytes
/// of each piece or the first error.
pub type Completion = Box<dyn FnOnce(Vec<u8>, io::Result<Vec<usize>>)>;

/// A read of several pieces into one buffer.
struct RingRead {
    fd: Arc<OwnedFd>,
    buffer: Vec<u8>,
    lengths: Vec<usize>,
    error: Option<io::Error>,
    /// Number of pieces that have not completed.
    left: usize,
    /// Number of reads in progress on the file system.
    share: Arc<AtomicU32>,
    done: Option<Completion>,
}

/// The unread remainder of one piece.
struct RingPart {
    operation: usize,
    index: usize,
    offset: u64,
    length: usize,
    at: usize,
}

struct Ring {
    ring: IoUring,
    operations: Slab<RingRead>,
    parts: Slab<RingPart>,
    waiting: VecDeque<usize>,
    under_way: usize,
    /// Submission is postponed until [`release`].
    held: bool,
    /// Submits the queue to the kernel; tests replace it by a function that refuses.
    enter: fn(&IoUring) -> io::Result<usize>,
    /// Written to when the loop has to submit again.
    event: Arc<OwnedFd>,
    /// Set after a refusal of the kernel was logged.
    is_refusal_logged: bool,
}

thread_local! {
    static RING: RefCell<Option<Ring>> = const { RefCell::new(None) };
}

/// Wakes the event loop when reads have completed.
pub struct RingDriver {
    event: Arc<OwnedFd>,
}

impl AsFd for RingDriver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Installs a ring for the current thread. Fails where the kernel or a container forbids any part
/// of it, because a ring that accepts no reads would lose them.
///
/// # Errors
/// The error of the kernel: `ENOSYS`, `EPERM`, `ENOMEM`; `EOPNOTSUPP` if its rings do not support
/// reads (before Linux 5.6).
pub fn install() -> io::Result<RingDriver> {
    let entries = u32::try_from(RING_READS_MAX).unwrap_or(256);
    // Completions need not interrupt the running loop, which sees them at its next system call.
    let mut ring =
        IoUring::builder().setup_coop_taskrun().build(entries).or_else(|_| IoUring::new(entries))?;
    prove(&mut ring)?;
    let event = rustix::event::eventfd(
        0,
        rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK,
    )?;
    ring.submitter().register_eventfd(event.as_raw_fd())?;
    let event = Arc::new(event);
    let ring = Ring {
        ring,
        operations: Slab::new(),
        parts: Slab::new(),
        waiting: VecDeque::new(),
        under_way: 0,
        held: false,
        enter: |ring| ring.submit(),
        event: event.clone(),
        is_refusal_logged: false,
    };
    RING.with_borrow_mut(|place| *place = Some(ring));
    Ok(RingDriver { event })
}

/// Checks that the ring supports reads and executes an operation.
fn prove(ring: &mut IoUring) -> io::Result<()> {
    let mut known = Probe::new();
    ring.submitter().register_probe(&mut known)?;
    if !known.is_supported(opcode::Read::CODE) {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    // SAFETY: a no-op refers to no memory.
    let pushed = unsafe { ring.submission().push(&opcode::Nop::new().build()) };
    pushed.map_err(io::Error::other)?;
    while let Err(error) = ring.submit_and_wait(1) {
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    ring.completion().for_each(drop);
    Ok(())
}

impl RingDriver {
    /// Returns a descriptor that becomes readable when reads have completed.
    ///
    /// # Errors
    /// The process has no free descriptor.
    pub fn event(&self) -> io::Result<OwnedFd> {
        self.event.try_clone()
    }

    /// Runs the callbacks of completed reads. To be called on the thread that installed the ring,
    /// when its descriptor is readable.
    pub fn complete(&self) {
        let mut count = [0; 8];
        // The counter may be zero after an earlier wake-up; only the completion queue counts.
        let _ = rustix::io::read(&self.event, &mut count);
        let ended = RING.with_borrow_mut(|place| place.as_mut().map(Ring::collect).unwrap_or_default());
        // The ring must not be borrowed here, because a callback may start the next read.
        for operation in ended {
            // A panic ends one read, whose reply object answers when it is dropped. Other reads
            // continue.
            if catch_unwind(AssertUnwindSafe(|| operation.finish())).is_err() {
                tracing::error!(
                    "the completion of a read panicked; its caller gets an error; please report this"
                );
            }
        }
    }
}

impl Drop for RingDriver {
    fn drop(&mut self) {
        // The kernel may still write into the buffers of incomplete reads, so they are leaked.
        RING.with_borrow_mut(|place| {
            if let Some(ring) = place.take() {
                if ring.operations.is_empty() {
                    return;
                }
                tracing::warn!(
                    reads = ring.operations.len(),
                    "an event loop ended before its reads completed; their buffers are leaked"
                );
                std::mem::forget(ring);
            }
        });
    }
}

/// Reports whether this thread has a ring.
pub(crate) fn is_here() -> bool {
    RING.with_borrow(Option::is_some)
}

/// Postpones the submission of reads until [`release`], so that they need one system call and the
/// disk receives them as one batch.
pub(crate) fn hold() {
    RING.with_borrow_mut(|place| place.iter_mut().for_each(|ring| ring.held = true));
}

/// Submits the reads that were postponed since [`hold`].
pub(crate) fn release() {
    RING.with_borrow_mut(|place| {
        if let Some(ring) = place
            && std::mem::take(&mut ring.held)
            && !ring.waiting.is_empty()
        {
            ring.submit();
        }
    });
}

/// Reads the pieces of `buffer` from `fd` through the ring of this thread. Returns the buffer if
/// there is no ring, or if too many reads are in progress on this file system. Each piece must lie
/// within the buffer.
pub(crate) fn read(
    fd: &Arc<OwnedFd>,
    share: &Arc<AtomicU32>,
    buffer: Vec<u8>,
    pieces: &[ReadPiece],
    done: &mut dyn FnMut() -> Completion,
) -> Result<(), Vec<u8>> {
    let fits = |piece: &ReadPiece| piece.place().is_some_and(|place| place.end <= buffer.len());
    let count = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
    let full = share.load(Ordering::Relaxed).saturating_add(count) > RING_READS_PER_VOLUME_MAX;
    if full || pieces.is_empty() || !pieces.iter().all(fits) {
        return Err(buffer);
    }
    let has_room = |place: &Option<Ring>| {
        place.as_ref().is_some_and(|ring| ring.waiting.len() + pieces.len() <= RING_WAITING_MAX)
    };
    if !RING.with_borrow(has_room) {
        return Err(buffer);
    }
    // The ring must not be borrowed here, because the caller's code may use it.
    let done = done();
    RING.with_borrow_mut(|place| {
        let Some(ring) = place else { return Err(buffer) };
        share.fetch_add(count, Ordering::Relaxed);
        ring.begin(fd.clone(), share.clone(), buffer, pieces, done);
        Ok(())
    })
}

impl Ring {
    fn begin(
        &mut self,
        fd: Arc<OwnedFd>,
        share: Arc<AtomicU32>,
        buffer: Vec<u8>,
        pieces: &[ReadPiece],
        done: Completion,
    ) {
        let operation = self.operations.insert(RingRead {
            fd,
            buffer,
            lengths: vec![0; pieces.len()],
            error: None,
            left: pieces.len(),
            share,
            done: Some(done),
        });
        for (index, piece) in pieces.iter().enumerate() {
            let Extent { offset, length } = piece.extent;
            let part = RingPart { operation, index, offset, length, at: piece.at };
            self.waiting.push_back(self.parts.insert(part));
        }
        if !self.held {
            self.submit();
        }
    }

    /// Submits queued parts until the ring is full.
    fn submit(&mut self) {
        while self.under_way < RING_READS_MAX {
            let Some(key) = self.waiting.pop_front() else { break };
            let Some(part) = self.parts.get(key) else { continue };
            let Some(operation) = self.operations.get_mut(part.operation) else { continue };
            let Some(room) = operation.buffer.get_mut(part.at..part.at + part.length) else { continue };
            let length = u32::try_from(room.len()).unwrap_or(u32::MAX);
            let read = opcode::Read::new(types::Fd(operation.fd.as_raw_fd()), room.as_mut_ptr(), length)
                .offset(part.offset)
                .build()
                .user_data(key as u64);
            // SAFETY: the descriptor and the buffer belong to the operation. It stays in the slab,
            // unmoved on the heap and not accessed by this code, until the completion of each of
            // its parts was collected.
            let pushed = unsafe { self.ring.submission().push(&read) };
            if pushed.is_err() {
                self.waiting.push_front(key);
                break;
            }
            self.under_way += 1;
        }
        let refusal = (self.enter)(&self.ring).err();
        if self.ring.submission().is_empty() {
            return;
        }
        // The kernel accepted only a part, for example for lack of memory. The rest is submitted
        // after the next completion. If no read is in progress that could complete, the loop is
        // woken to submit again in its next turn.
        if self.under_way <= self.ring.submission().len() {
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
        if let Some(error) = refusal
            && !matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EINTR))
            && !std::mem::replace(&mut self.is_refusal_logged, true)
        {
            tracing::warn!("io_uring refuses reads ({error}); they are submitted again later");
        }
    }

    /// Takes the completions from the ring and returns the operations that are complete.
    fn collect(&mut self) -> Vec<RingRead> {
        let mut ended = Vec::new();
        let completions: Vec<(u64, i32)> =
            self.ring.completion().map(|entry| (entry.user_data(), entry.result())).collect();
        for (key, result) in completions {
            self.under_way -= 1;
            let key = usize::try_from(key).unwrap_or(usize::MAX);
            let Some(part) = self.parts.get_mut(key) else { continue };
            let (number, index) = (part.operation, part.index);
            let Some(operation) = self.operations.get_mut(number) else { continue };
            let again = match usize::try_from(result) {
                Ok(read) => {
                    if let Some(length) = operation.lengths.get_mut(index) {
                        *length += read;
                    }
                    part.offset += read as u64;
                    part.at += read;
                    part.length -= read.min(part.length);
                    // A short read does not mean end of file; only a read of 0 bytes does.
                    read > 0 && part.length > 0
                }
                Err(_) if matches!(-result, libc::EINTR | libc::EAGAIN) => true,
                Err(_) => {
                    operation.error.get_or_insert(io::Error::from_raw_os_error(-result));
                    false
                }
            };
            if again {
                self.waiting.push_back(key);
                continue;
            }
            self.parts.remove(key);
            operation.left -= 1;
            operation.share.fetch_sub(1, Ordering::Relaxed);
            if operation.left == 0 {
                ended.push(self.operations.remove(number));
            }
        }
        if !self.waiting.is_empty() || !self.ring.submission().is_empty() {
            self.submit();
        }
        ended
    }
}

impl RingRead {
    fn finish(mut self) {
        let result = match self.error.take() {
            Some(error) => Err(error),
            None => Ok(std::mem::take(&mut self.lengths)),
        };
        if let Some(done) = self.done.take() {
            done(std::mem::take(&mut self.buffer), result);
        }
    }
}

/// Waits, without a runtime, until reads may have completed, and runs their callbacks.
#[cfg(test)]
fn wait(driver: &RingDriver) {
    let mut poll = [rustix::event::PollFd::new(driver, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut poll, None).unwrap();
    driver.complete();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::rc::Rc;

    fn file(bytes: &[u8]) -> Arc<OwnedFd> {
        let fd = rustix::fs::memfd_create("ring-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = std::fs::File::from(fd);
        file.write_all(bytes).unwrap();
        Arc::new(file.into())
    }

    #[test]
    fn pieces_are_read_up_to_the_end_of_the_file() {
        let driver = install().unwrap();
        let data: Vec<u8> = (0..100_000u32).map(|i| (i * 7 + (i >> 8)) as u8).collect();
        let share = Arc::default();
        let got = Rc::new(RefCell::new(None));
        let pieces = [
            ReadPiece { extent: Extent { offset: 10, length: 5000 }, at: 0 },
            ReadPiece { extent: Extent { offset: 99_990, length: 100 }, at: 5000 },
            ReadPiece { extent: Extent { offset: 200_000, length: 8 }, at: 5100 },
        ];
        let to = got.clone();
        let mut done = || -> Completion {
            let to = to.clone();
            Box::new(move |buffer, result| *to.borrow_mut() = Some((buffer, result)))
        };
        assert!(read(&file(&data), &share, vec![0; 6000], &pieces, &mut done).is_ok());
        while got.borrow().is_none() {
            wait(&driver);
        }
        let (buffer, lengths) = got.take().unwrap();
        assert_eq!(lengths.unwrap(), [5000, 10, 0]);
        assert_eq!(buffer[..5000], data[10..5010]);
        assert_eq!(buffer[5000..5010], data[99_990..]);
        assert_eq!(share.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn queued_reads_complete_and_each_file_system_is_limited() {
        let driver = install().unwrap();
        let share: Arc<AtomicU32> = Arc::default();
        let file = file(&[7; 4096]);
        let ended = Rc::new(RefCell::new(0));
        let mut taken = 0;
        loop {
            let mut done = || -> Completion {
                let count = ended.clone();
                Box::new(move |buffer, result| {
                    assert_eq!((buffer[0], result.unwrap()), (7, vec![16]));
                    *count.borrow_mut() += 1;
                })
            };
            let piece = ReadPiece { extent: Extent { offset: 0, length: 16 }, at: 0 };
            match read(&file, &share, vec![0; 16], &[piece], &mut done) {
                Ok(()) => taken += 1,
                Err(buffer) => {
                    assert_eq!(buffer.len(), 16);
                    break;
                }
            }
        }
        assert_eq!(taken, RING_READS_PER_VOLUME_MAX);
        while *ended.borrow() < taken {
            wait(&driver);
        }
        assert_eq!(share.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn postponed_reads_start_at_release() {
        let driver = install().unwrap();
        let file = file(&[7; 64]);
        let ended = Rc::new(RefCell::new(0));
        hold();
        for offset in 0..10 {
            let mut done = || -> Completion {
                let ended = ended.clone();
                Box::new(move |_, result| *ended.borrow_mut() += result.unwrap()[0])
            };
            let piece = ReadPiece { extent: Extent { offset, length: 16 }, at: 0 };
            assert!(read(&file, &Arc::default(), vec![0; 16], &[piece], &mut done).is_ok());
        }
        let with = |look: fn(&Ring) -> usize| RING.with_borrow(|ring| ring.as_ref().map(look));
        assert_eq!((with(|ring| ring.under_way), with(|ring| ring.waiting.len())), (Some(0), Some(10)));
        release();
        assert_eq!((with(|ring| ring.under_way), with(|ring| ring.waiting.len())), (Some(10), Some(0)));
        while *ended.borrow() < 160 {
            wait(&driver);
        }
        release();
    }

    /// Starts three reads of 16 bytes while `enter` replaces the system call, and waits for all of
    /// them.
    fn reads_all_while(enter: fn(&IoUring) -> io::Result<usize>) {
        let driver = install().unwrap();
        RING.with_borrow_mut(|ring| ring.as_mut().unwrap().enter = enter);
        let file = file(&[7; 64]);
        let ended = Rc::new(RefCell::new(0));
        hold();
        for offset in 0..3 {
            let mut done = || -> Completion {
                let ended = ended.clone();
                Box::new(move |_, result| *ended.borrow_mut() += result.unwrap()[0])
            };
            let piece = ReadPiece { extent: Extent { offset, length: 16 }, at: 0 };
            assert!(read(&file, &Arc::default(), vec![0; 16], &[piece], &mut done).is_ok());
        }
        release();
        while *ended.borrow() < 48 {
            wait(&driver);
        }
    }

    thread_local! {
        static REFUSALS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    #[test]
    fn reads_refused_by_the_kernel_are_submitted_again() {
        reads_all_while(|ring| {
            REFUSALS.set(REFUSALS.get() + 1);
            if REFUSALS.get() > 3 { ring.submit() } else { Err(io::Error::from_raw_os_error(libc::EAGAIN)) }
        });
        assert_eq!(REFUSALS.get(), 4);
    }

    #[test]
    fn reads_submitted_one_at_a_time_all_complete() {
        reads_all_while(|ring| {
            // SAFETY: submits one of the queued entries, which the ring's own call would submit
            // too.
            unsafe { ring.submitter().enter::<libc::sigset_t>(1, 0, 0, None) }
        });
    }

    #[test]
    fn an_error_returns_the_buffer() {
        let driver = install().unwrap();
        let directory: Arc<OwnedFd> = Arc::new(std::fs::File::open("/").unwrap().into());
        let got = Rc::new(RefCell::new(None));
        let to = got.clone();
        let mut done = || -> Completion {
            let to = to.clone();
            Box::new(move |buffer, result| *to.borrow_mut() = Some((buffer.len(), result)))
        };
        let piece = ReadPiece { extent: Extent { offset: 0, length: 16 }, at: 0 };
        assert!(read(&directory, &Arc::default(), vec![0; 16], &[piece], &mut done).is_ok());
        while got.borrow().is_none() {
            wait(&driver);
        }
        let (length, result) = got.take().unwrap();
        assert_eq!((length, result.unwrap_err().raw_os_error()), (16, Some(libc::EISDIR)));
    }

    #[test]
    fn without_a_ring_the_buffer_is_returned_at_once() {
        let piece = ReadPiece { extent: Extent { offset: 0, length: 1 }, at: 0 };
        let outcome = std::thread::spawn(move || {
            read(&file(b"x"), &Arc::default(), vec![0; 1], &[piece], &mut || unreachable!()).is_err()
        });
        assert!(outcome.join().unwrap());
    }
}
