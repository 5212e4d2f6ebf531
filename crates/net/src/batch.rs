//! Batching: system calls of many sockets in one, by the io_uring of the loop.
//!
//! When several connections are ready, their data is received with one call, and their replies are
//! sent with one. The reason is that entering the kernel is a large part of the cost of a small
//! request. The kernel holds no memory beyond the call: operations that would wait fail immediately
//! (`MSG_DONTWAIT`), and the call returns when all have ended. A socket may therefore be closed at
//! any other time.

use crate::buffers::give_medium;
use crate::source::{IoSource, ReceivedAhead, SourceFlags};
use crate::wake_list::WakeList;
use io_uring::{IoUring, Probe, opcode, squeue, types};
use slab::Slab;
use std::io;
use std::mem::MaybeUninit;

/// Maximum number of connections in a batch. The reply of the first waits for the last.
pub(crate) const BATCH_MAX: usize = 32;

/// Minimum number of ready connections for a batch. With fewer, separate calls are as fast and
/// earlier, because clients are idle during batching. With three or four connections, clients and
/// server would wait for each other in turn.
pub(crate) const BATCH_MIN: usize = 8;

/// Maximum number of bytes received for a connection before its task runs.
pub(crate) const PLACE_BYTES: usize = 8 * 1024;

/// Maximum number of sends and receives in one call.
const ENTRIES: u32 = 2 * BATCH_MAX as u32;

/// Bit that marks a receive among the completions.
const RECEIVE: u64 = 1 << 32;

/// A ring, and the next batch.
pub(crate) struct IoBatch {
    ring: IoUring,
    /// Receive buffers, one place per connection.
    places: Vec<u8>,
    /// Sources to receive from.
    receives: Vec<usize>,
    /// Sources with data in their places.
    fetched: Vec<usize>,
    sends: Vec<BatchedSend>,
    /// Set if sends may be added.
    pub(crate) is_open: bool,
    /// Incomplete sends, for their connections to take back.
    returned: Vec<BatchedSend>,
    /// Received data that was not consumed when its place was needed.
    left: Vec<(usize, Vec<u8>)>,
}

/// A buffer to send, and the number of bytes sent.
struct BatchedSend {
    key: usize,
    buffer: Vec<u8>,
    sent: usize,
}

impl IoBatch {
    /// Creates a ring and tests it.
    ///
    /// # Errors
    /// The error of the kernel: `ENOSYS`, `EPERM`, `ENOMEM`; `EOPNOTSUPP` if its rings cannot send
    /// (before Linux 5.6).
    pub(crate) fn new() -> io::Result<Self> {
        let mut ring = IoUring::builder()
            .setup_single_issuer()
            .setup_submit_all()
            .build(ENTRIES)
            // These flags need Linux 6.0 and are optional.
            .or_else(|_| IoUring::new(ENTRIES))?;
        prove(&mut ring)?;
        Ok(Self {
            ring,
            places: vec![0; BATCH_MAX * PLACE_BYTES],
            receives: Vec::with_capacity(BATCH_MAX),
            fetched: Vec::with_capacity(BATCH_MAX),
            sends: Vec::with_capacity(BATCH_MAX),
            is_open: false,
            returned: Vec::new(),
            left: Vec::new(),
        })
    }

    /// Reports whether the batch has sends.
    pub(crate) fn has_sends(&self) -> bool {
        !self.sends.is_empty()
    }

    /// Adds a receive from a source to the batch, if data has arrived for a waiting task.
    pub(crate) fn receive(&mut self, key: usize, sources: &mut Slab<IoSource>) {
        if let Some(source) = sources.get_mut(key)
            && source.is(SourceFlags::ARRIVED)
            && self.receives.len() < BATCH_MAX
        {
            source.flags.remove(SourceFlags::ARRIVED);
            self.receives.push(key);
        }
    }

    /// Adds a buffer to the batch, or returns it.
    pub(crate) fn send(&mut self, key: usize, source: &mut IoSource, buffer: Vec<u8>) -> Result<(), Vec<u8>> {
        let busy =
            source.flags.intersects(SourceFlags::SENDING | SourceFlags::RETURNED | SourceFlags::FAILED)
                || !source.is(SourceFlags::WRITABLE);
        if busy || !self.is_open || self.sends.len() >= BATCH_MAX {
            return Err(buffer);
        }
        source.flags.insert(SourceFlags::SENDING);
        self.sends.push(BatchedSend { key, buffer, sent: 0 });
        Ok(())
    }

    /// Copies data that was received for a source. Returns its length.
    pub(crate) fn take(&mut self, key: usize, source: &mut IoSource, into: &mut [MaybeUninit<u8>]) -> usize {
        if let Some(fetched) = source.fetched.take() {
            let taken = copy(bytes_of(&self.places, fetched), into);
            source.fetched = fetched.without(taken);
            return taken;
        }
        let Some(at) = self.left.iter().position(|(of, _)| *of == key) else { return 0 };
        let Some((_, bytes)) = self.left.get_mut(at) else { return 0 };
        let taken = copy(bytes, into);
        bytes.drain(..taken);
        if bytes.is_empty() {
            self.left.swap_remove(at);
            source.flags.remove(SourceFlags::LEFT);
        }
        taken
    }

    /// Takes back an incomplete send: the buffer, and the number of bytes sent.
    pub(crate) fn take_returned(&mut self, key: usize, source: &mut IoSource) -> Option<(Vec<u8>, usize)> {
        if !source.is(SourceFlags::RETURNED) {
            return None;
        }
        source.flags.remove(SourceFlags::RETURNED);
        let at = self.returned.iter().position(|send| send.key == key)?;
        let send = self.returned.swap_remove(at);
        Some((send.buffer, send.sent))
    }

    /// Drops the data and sends of a removed source.
    pub(crate) fn forget(&mut self, key: usize) {
        self.left.retain(|(of, _)| *of != key);
        self.returned.retain(|send| send.key != key);
    }

    /// Moves received data that was not consumed to separate buffers, because its places are
    /// needed.
    pub(crate) fn set_aside_unread(&mut self, sources: &mut Slab<IoSource>) {
        while let Some(key) = self.fetched.pop() {
            if let Some(source) = sources.get_mut(key)
                && let Some(fetched) = source.fetched.take()
            {
                source.flags.insert(SourceFlags::LEFT);
                self.left.push((key, bytes_of(&self.places, fetched).to_vec()));
            }
        }
    }

    /// Executes the batched sends and receives. The tasks in `wakes` must check the results of
    /// their sends.
    ///
    /// # Errors
    /// The ring has failed. The batch may or may not have been executed, and its connections must
    /// be closed. The kernel may still use the memory, which must not be moved or freed.
    pub(crate) fn exchange(&mut self, sources: &mut Slab<IoSource>, wakes: &mut WakeList) -> io::Result<()> {
        let mut left = self.sends.len() + self.receives.len();
        if left == 0 {
            return Ok(());
        }
        self.push_all(sources)?;
        while left > 0 {
            match self.ring.submit_and_wait(left) {
                Ok(_) => {}
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
                Err(error) => return Err(error),
            }
            for ended in self.ring.completion() {
                left -= 1;
                let (number, result) = (ended.user_data(), ended.result());
                let index = usize::try_from(number & (RECEIVE - 1)).unwrap_or(usize::MAX);
                if number & RECEIVE == 0 {
                    if let Some(send) = self.sends.get_mut(index)
                        && let Some(source) = sources.get_mut(send.key)
                    {
                        send.has_ended(result, source, wakes);
                    }
                } else if let Some(key) = self.receives.get(index)
                    && let Some(source) = sources.get_mut(*key)
                {
                    source.fetched = received(source, index, result);
                    self.fetched.push(*key);
                }
            }
        }
        self.receives.clear();
        for send in self.sends.drain(..) {
            match sources.get_mut(send.key) {
                Some(source) if send.sent < send.buffer.len() => {
                    source.flags.insert(SourceFlags::RETURNED);
                    self.returned.push(send);
                }
                _ => give_medium(send.buffer),
            }
        }
        Ok(())
    }

    fn push_all(&mut self, sources: &Slab<IoSource>) -> io::Result<()> {
        let fd = |key: usize| types::Fd(sources.get(key).map_or(-1, |source| source.fd));
        let mut queue = self.ring.submission();
        for (number, send) in (0..).zip(&self.sends) {
            let length = u32::try_from(send.buffer.len()).unwrap_or(u32::MAX);
            let entry = opcode::Send::new(fd(send.key), send.buffer.as_ptr(), length)
                .flags(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
                .build();
            push(&mut queue, &entry.user_data(number))?;
        }
        let places = self.places.chunks_exact_mut(PLACE_BYTES);
        for (number, (key, place)) in (RECEIVE..).zip(self.receives.iter().zip(places)) {
            let length = u32::try_from(place.len()).unwrap_or(0);
            let entry =
                opcode::Recv::new(fd(*key), place.as_mut_ptr(), length).flags(libc::MSG_DONTWAIT).build();
            push(&mut queue, &entry.user_data(number))?;
        }
        Ok(())
    }

    /// Marks the sources of the batch as failed.
    pub(crate) fn fail(&self, sources: &mut Slab<IoSource>, wakes: &mut WakeList) {
        let concerned = self.sends.iter().chain(&self.returned).map(|send| send.key);
        let others = self.receives.iter().chain(&self.fetched).chain(self.left.iter().map(|(key, _)| key));
        for key in concerned.chain(others.copied()) {
            if let Some(source) = sources.get_mut(key) {
                source.flags.insert(SourceFlags::FAILED);
                source.flags.remove(SourceFlags::SENDING | SourceFlags::RETURNED | SourceFlags::LEFT);
                source.fetched = None;
                source.wake(wakes);
            }
        }
    }
}

fn bytes_of(places: &[u8], fetched: ReceivedAhead) -> &[u8] {
    let at = usize::from(fetched.place) * PLACE_BYTES + usize::from(fetched.from);
    places.get(at..at + usize::from(fetched.length)).unwrap_or_default()
}

/// Copies as many bytes as fit. Returns their number.
pub(crate) fn copy(bytes: &[u8], into: &mut [MaybeUninit<u8>]) -> usize {
    let taken = into.len().min(bytes.len());
    match (into.get_mut(..taken), bytes.get(..taken)) {
        (Some(place), Some(bytes)) => place.write_copy_of_slice(bytes).len(),
        _ => 0,
    }
}

/// Tests a ring with an operation, and whether it supports send and receive.
fn prove(ring: &mut IoUring) -> io::Result<()> {
    let mut known = Probe::new();
    ring.submitter().register_probe(&mut known)?;
    if !known.is_supported(opcode::Recv::CODE) || !known.is_supported(opcode::Send::CODE) {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    // An operation without effect refers to no memory.
    push(&mut ring.submission(), &opcode::Nop::new().build())?;
    while let Err(error) = ring.submit_and_wait(1) {
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    ring.completion().for_each(drop);
    Ok(())
}

fn push(queue: &mut squeue::SubmissionQueue<'_>, entry: &squeue::Entry) -> io::Result<()> {
    // SAFETY: the memory that an entry names belongs to the batch, which neither moves nor accesses
    // it until all operations have ended. If their end cannot be observed, the memory is never
    // freed.
    unsafe { queue.push(entry) }.map_err(io::Error::other)
}

impl BatchedSend {
    fn has_ended(&mut self, result: i32, source: &mut IoSource, wakes: &mut WakeList) {
        source.flags.remove(SourceFlags::SENDING);
        match usize::try_from(result) {
            Ok(sent) => self.sent = sent,
            Err(_) if matches!(-result, libc::EAGAIN | libc::EINTR) => {}
            Err(_) => source.flags.insert(SourceFlags::FAILED),
        }
        if self.sent < self.buffer.len() {
            if -result == libc::EAGAIN {
                source.used_up(SourceFlags::WRITABLE);
            }
            source.wake(wakes);
        }
    }
}

/// Returns the data received for a source, if there is any. The task itself sees the end of the
/// stream and errors at its next read.
fn received(source: &mut IoSource, index: usize, result: i32) -> Option<ReceivedAhead> {
    if -result == libc::EAGAIN {
        source.used_up(SourceFlags::READABLE);
    }
    let length = u16::try_from(result).ok().filter(|length| *length > 0)?;
    if usize::from(length) < PLACE_BYTES {
        source.used_up(SourceFlags::READABLE);
    }
    Some(ReceivedAhead { place: u16::try_from(index).ok()?, from: 0, length })
}

#[cfg(test)]
mod tests;
