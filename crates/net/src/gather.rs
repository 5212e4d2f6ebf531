//! System calls of many sockets in one: the loop's io_uring.
//!
//! When several connections are ready, what has come for them is received with one call, and what they answer is sent with
//! one: entering the kernel is a good part of what a small request costs. Nothing is left to the kernel beyond that call:
//! operations that would have to wait end at once (`MSG_DONTWAIT`), and the call returns when all of them have ended, so the
//! memory that they use is never out of hand, and a socket may go at any other time.

use crate::buffers::give_medium;
use crate::poller::{ARRIVED, FAILED, LEFT, READABLE, RETURNED, SENDING, Source, WRITABLE};
use crate::wakes::Wakes;
use io_uring::{IoUring, Probe, opcode, squeue, types};
use slab::Slab;
use std::io;
use std::mem::MaybeUninit;

/// Connections served together. The one served first waits for the last before its answer leaves.
pub(crate) const TOGETHER_MAX: usize = 32;

/// Below this many ready connections each for itself is as good, and earlier: its client is idle while we gather. With three or
/// four connections in all, clients and server would wait for each other in turn.
pub(crate) const TOGETHER_MIN: usize = 8;

/// Bytes received of a connection before its task runs.
pub(crate) const PLACE_BYTES: usize = 8 * 1024;

/// What is sent and what is received in one call.
const ENTRIES: u32 = 2 * TOGETHER_MAX as u32;

/// Tells a receive from a send among what has ended.
const RECEIVE: u64 = 1 << 32;

/// A ring, and what goes through it with the next call.
pub(crate) struct Gather {
    ring: IoUring,
    /// Where what has come is put: a place for each.
    places: Vec<u8>,
    /// Sources to receive from.
    receives: Vec<usize>,
    /// Sources whose places are filled.
    fetched: Vec<usize>,
    sends: Vec<Send>,
    /// Sends may join.
    pub(crate) is_open: bool,
    /// What has not left, or not whole, for its connection to take back.
    returned: Vec<Send>,
    /// What was fetched and not taken when its place was needed.
    left: Vec<(usize, Vec<u8>)>,
}

/// What lies in a place for its source.
#[derive(Clone, Copy)]
pub(crate) struct Fetched {
    place: u16,
    from: u16,
    length: u16,
}

/// A buffer to be sent, and how many bytes of it have left.
struct Send {
    key: usize,
    buffer: Vec<u8>,
    sent: usize,
}

impl Gather {
    /// # Errors
    /// What the kernel says: `ENOSYS`, `EPERM`, `ENOMEM`; `EOPNOTSUPP` from one whose rings cannot send yet (before Linux 5.6).
    pub(crate) fn new() -> io::Result<Self> {
        let mut ring = IoUring::builder()
            .setup_single_issuer()
            .setup_submit_all()
            .build(ENTRIES)
            // These are of Linux 6.0, and do not matter.
            .or_else(|_| IoUring::new(ENTRIES))?;
        prove(&mut ring)?;
        Ok(Self {
            ring,
            places: vec![0; TOGETHER_MAX * PLACE_BYTES],
            receives: Vec::with_capacity(TOGETHER_MAX),
            fetched: Vec::with_capacity(TOGETHER_MAX),
            sends: Vec::with_capacity(TOGETHER_MAX),
            is_open: false,
            returned: Vec::new(),
            left: Vec::new(),
        })
    }

    /// Is there something to be sent?
    pub(crate) fn has_sends(&self) -> bool {
        !self.sends.is_empty()
    }

    /// Has a source received from with the next call, if something has come for a task that waits for it.
    pub(crate) fn receive(&mut self, key: usize, sources: &mut Slab<Source>) {
        if let Some(source) = sources.get_mut(key)
            && source.is(ARRIVED)
            && self.receives.len() < TOGETHER_MAX
        {
            source.bits &= !ARRIVED;
            self.receives.push(key);
        }
    }

    /// Has a buffer sent with the next call, or gives it back.
    pub(crate) fn send(&mut self, key: usize, source: &mut Source, buffer: Vec<u8>) -> Result<(), Vec<u8>> {
        let busy = source.bits & (SENDING | RETURNED | FAILED) != 0 || !source.is(WRITABLE);
        if busy || !self.is_open || self.sends.len() >= TOGETHER_MAX {
            return Err(buffer);
        }
        source.bits |= SENDING;
        self.sends.push(Send { key, buffer, sent: 0 });
        Ok(())
    }

    /// Copies data that was received for a source; returns its length.
    pub(crate) fn take(&mut self, key: usize, source: &mut Source, into: &mut [MaybeUninit<u8>]) -> usize {
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
            source.bits &= !LEFT;
        }
        taken
    }

    /// Takes back what has not left: the buffer, and how many bytes of it have.
    pub(crate) fn take_returned(&mut self, key: usize, source: &mut Source) -> Option<(Vec<u8>, usize)> {
        if !source.is(RETURNED) {
            return None;
        }
        source.bits &= !RETURNED;
        let at = self.returned.iter().position(|send| send.key == key)?;
        let send = self.returned.swap_remove(at);
        Some((send.buffer, send.sent))
    }

    /// Nobody takes what is there for a source.
    pub(crate) fn forget(&mut self, key: usize) {
        self.left.retain(|(of, _)| *of != key);
        self.returned.retain(|send| send.key != key);
    }

    /// Puts apart what was fetched and not taken: its place is needed.
    pub(crate) fn put_apart(&mut self, sources: &mut Slab<Source>) {
        while let Some(key) = self.fetched.pop() {
            if let Some(source) = sources.get_mut(key)
                && let Some(fetched) = source.fetched.take()
            {
                source.bits |= LEFT;
                self.left.push((key, bytes_of(&self.places, fetched).to_vec()));
            }
        }
    }

    /// Executes the gathered sends and receives. The tasks in `wakes` must look at the results of their sends.
    ///
    /// # Errors
    /// The ring works no more: what was gathered may or may not have been done, and the connections concerned cannot go on.
    /// The kernel may still use the memory, which must stay where it is.
    pub(crate) fn exchange(&mut self, sources: &mut Slab<Source>, wakes: &mut Wakes) -> io::Result<()> {
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
                    source.bits |= RETURNED;
                    self.returned.push(send);
                }
                _ => give_medium(send.buffer),
            }
        }
        Ok(())
    }

    fn push_all(&mut self, sources: &Slab<Source>) -> io::Result<()> {
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

    /// Those whose sends and receives were gathered cannot go on.
    pub(crate) fn fail(&self, sources: &mut Slab<Source>, wakes: &mut Wakes) {
        let concerned = self.sends.iter().chain(&self.returned).map(|send| send.key);
        let others = self.receives.iter().chain(&self.fetched).chain(self.left.iter().map(|(key, _)| key));
        for key in concerned.chain(others.copied()) {
            if let Some(source) = sources.get_mut(key) {
                source.bits = (source.bits | FAILED) & !(SENDING | RETURNED | LEFT);
                source.fetched = None;
                source.wake(wakes);
            }
        }
    }
}

impl Fetched {
    fn without(mut self, taken: usize) -> Option<Self> {
        let taken = u16::try_from(taken).unwrap_or(u16::MAX).min(self.length);
        self.from += taken;
        self.length -= taken;
        (self.length > 0).then_some(self)
    }
}

fn bytes_of(places: &[u8], fetched: Fetched) -> &[u8] {
    let at = usize::from(fetched.place) * PLACE_BYTES + usize::from(fetched.from);
    places.get(at..at + usize::from(fetched.length)).unwrap_or_default()
}

/// Copies as many bytes as there is room for: how many.
fn copy(bytes: &[u8], into: &mut [MaybeUninit<u8>]) -> usize {
    let taken = into.len().min(bytes.len());
    match (into.get_mut(..taken), bytes.get(..taken)) {
        (Some(place), Some(bytes)) => place.write_copy_of_slice(bytes).len(),
        _ => 0,
    }
}

/// Has a ring do something, and asks whether it can send and receive.
fn prove(ring: &mut IoUring) -> io::Result<()> {
    let mut known = Probe::new();
    ring.submitter().register_probe(&mut known)?;
    if !known.is_supported(opcode::Recv::CODE) || !known.is_supported(opcode::Send::CODE) {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    // An operation that does nothing refers to no memory.
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
    // SAFETY: the memory that an entry names belongs to the gathering, which neither moves nor touches it until all operations
    // have ended, and is never freed if that cannot be seen.
    unsafe { queue.push(entry) }.map_err(io::Error::other)
}

impl Send {
    fn has_ended(&mut self, result: i32, source: &mut Source, wakes: &mut Wakes) {
        source.bits &= !SENDING;
        match usize::try_from(result) {
            Ok(sent) => self.sent = sent,
            Err(_) if matches!(-result, libc::EAGAIN | libc::EINTR) => {}
            Err(_) => source.bits |= FAILED,
        }
        if self.sent < self.buffer.len() {
            if -result == libc::EAGAIN {
                source.used_up(WRITABLE);
            }
            source.wake(wakes);
        }
    }
}

/// What has come for a source, if it is something. The end and errors are said again to the task itself.
fn received(source: &mut Source, index: usize, result: i32) -> Option<Fetched> {
    if -result == libc::EAGAIN {
        source.used_up(READABLE);
    }
    let length = u16::try_from(result).ok().filter(|length| *length > 0)?;
    if usize::from(length) < PLACE_BYTES {
        source.used_up(READABLE);
    }
    Some(Fetched { place: u16::try_from(index).ok()?, from: 0, length })
}

#[cfg(test)]
mod tests;
