//! [`LineFeed`]: lines for a program of the site, or for a named pipe, that may be slow, stop, or be missing.
//!
//! The sender of a line never waits. Lines wait in memory up to a number of bytes; further ones are lost and counted. One
//! thread gives them to the receiver (`program`, `pipe`).

mod pipe;
mod program;

pub(crate) use pipe::{PipeReaders, PipeReceiver, prepare_pipe};
pub(crate) use program::ProgramReceiver;

use residency::{WakeEvent, timespec};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Maximum length of a line in bytes for a named pipe. The system writes no longer one as a whole.
pub(crate) const PIPE_LINE_BYTES_MAX: usize = 4096;

/// Maximum length of a line in bytes for a program: two paths whose bytes are all escaped, and more.
pub(crate) const PROGRAM_LINE_BYTES_MAX: usize = 48 * 1024;

/// Memory of a line beside its bytes.
const LINE_OVERHEAD: usize = size_of::<Vec<u8>>();

/// The interval in which the log gets the number of lost lines.
const LOST_INTERVAL: Duration = Duration::from_secs(60);

/// The time in which a receiver gets the lines that wait at the end of the server.
const END_TIME: Duration = Duration::from_secs(2);

/// Lines for a receiver.
pub(crate) struct LineFeed {
    lines: Arc<WaitingLines>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The lines that wait for a receiver.
pub(crate) struct WaitingLines {
    state: Mutex<FeedQueue>,
    wake: WakeEvent,
    bytes_max: usize,
    line_bytes_max: usize,
    /// The receiver, for the log.
    name: &'static str,
}

#[derive(Default)]
struct FeedQueue {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Lost lines that the log does not have yet, and the time of its last entry about them.
    lost: u64,
    logged: Option<Instant>,
    /// The end of the time for the remaining lines; `None` until the server ends.
    end: Option<Instant>,
}

impl LineFeed {
    /// Starts the thread. `name` is that of the receiver in the log, and the limits are those of all lines that wait and of
    /// one.
    pub(crate) fn start(
        name: &'static str,
        thread_name: &str,
        (bytes_max, line_bytes_max): (usize, usize),
        receive: impl FnOnce(&WaitingLines) + Send + 'static,
    ) -> io::Result<Self> {
        let lines = WaitingLines {
            state: Mutex::default(),
            wake: WakeEvent::new()?,
            bytes_max,
            line_bytes_max,
            name,
        };
        let lines = Arc::new(lines);
        let waiting = lines.clone();
        let thread = std::thread::Builder::new().name(thread_name.to_owned());
        let thread = thread.spawn(move || {
            receive(&waiting);
            waiting.log_rest();
        })?;
        Ok(Self { lines, thread: Mutex::new(Some(thread)) })
    }

    /// Returns the maximum length of a line.
    pub(crate) fn line_bytes_max(&self) -> usize {
        self.lines.line_bytes_max
    }

    /// Adds a line with its end. Returns whether it waits for the receiver; otherwise it is lost.
    pub(crate) fn send(&self, line: Vec<u8>) -> bool {
        self.lines.add(line)
    }

    /// Ends the receiver, after it has got the lines that it takes in time. Blocks some seconds at most.
    pub(crate) fn end(&self) {
        self.lines.state().end.get_or_insert_with(|| Instant::now() + END_TIME);
        self.lines.wake.set();
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // It only fails after a panic, which the log has.
            thread.join().ok();
        }
    }
}

impl Drop for LineFeed {
    fn drop(&mut self) {
        self.end();
    }
}

impl WaitingLines {
    fn state(&self) -> MutexGuard<'_, FeedQueue> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, mut line: Vec<u8>) -> bool {
        line.shrink_to_fit();
        let mut state = self.state();
        let bytes = state.bytes + line.len() + LINE_OVERHEAD;
        // A queue without memory still has one line, or nothing would ever be written.
        let fits = bytes <= self.bytes_max || state.lines.is_empty();
        if line.len() <= self.line_bytes_max && fits && state.end.is_none() {
            state.bytes = bytes;
            let was_empty = state.lines.is_empty();
            state.lines.push_back(line);
            drop(state);
            if was_empty {
                self.wake.set();
            }
            return true;
        }
        state.lost = state.lost.saturating_add(1);
        let lost = state.lost_to_log(Instant::now());
        drop(state);
        if let Some(lost) = lost {
            self.log_lost(lost);
        }
        false
    }

    fn log_lost(&self, lost: u64) {
        tracing::warn!(
            lost,
            "{} does not read its lines in time, or they are too long; events are lost",
            self.name
        );
    }

    /// Logs the lines that the receiver did not get before the end.
    fn log_rest(&self) {
        let mut state = self.state();
        let lost = std::mem::take(&mut state.lost).saturating_add(state.lines.len() as u64);
        state.lines.clear();
        drop(state);
        if lost > 0 {
            self.log_lost(lost);
        }
    }

    /// Takes the next line.
    fn next(&self) -> Option<Vec<u8>> {
        let mut state = self.state();
        let line = state.lines.pop_front()?;
        state.bytes = state.bytes.saturating_sub(line.len() + LINE_OVERHEAD);
        Some(line)
    }

    /// Puts a line back that the receiver did not get.
    fn put_back(&self, line: Vec<u8>) {
        let mut state = self.state();
        state.bytes += line.len() + LINE_OVERHEAD;
        state.lines.push_front(line);
    }

    /// Waits for a line. `None` if the server ends and there is none.
    fn wait_for_line(&self) -> Option<Vec<u8>> {
        loop {
            if let Some(line) = self.next() {
                return Some(line);
            }
            if self.is_ending() {
                return None;
            }
            self.sleep(None);
        }
    }

    fn is_ending(&self) -> bool {
        self.state().end.is_some()
    }

    /// Returns the time that is left for the remaining lines; `None` while the server does not end.
    fn time_left(&self) -> Option<Duration> {
        self.state().end.map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// Sleeps until it is woken.
    fn sleep(&self, time: Option<Duration>) {
        let time = time.map(timespec);
        // An error ends the sleep early.
        poll(&mut [PollFd::new(&self.wake, PollFlags::IN)], time.as_ref()).ok();
        self.wake.take();
    }

    /// Sleeps for a time, or until the server ends. Returns whether it does not end.
    fn rest(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if self.is_ending() {
                return false;
            }
            if left.is_zero() {
                return true;
            }
            self.sleep(Some(left));
        }
    }
}

impl FeedQueue {
    /// Returns the number of lost lines if the log is to have it now.
    fn lost_to_log(&mut self, now: Instant) -> Option<u64> {
        let is_due = |logged: Instant| now.saturating_duration_since(logged) >= LOST_INTERVAL;
        if !self.logged.is_none_or(is_due) {
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.lost))
    }
}

#[cfg(test)]
mod tests;
