//! A bounded queue in front of the log file, and the thread that writes it, so that a thread that
//! logs never waits for a disk.
//!
//! Lines that exceed the queue are dropped and counted. The count is written as soon as there is
//! space again.

use super::LogFile;
use super::file::RotationError;
use base::Supervisor;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;
use tracing_subscriber::fmt::MakeWriter;

/// Maximum number of queued lines; further ones are dropped.
pub const QUEUED_LINES_MAX: usize = 8192;

/// The name under which the thread reports its faults.
const LOG_THREAD: &str = "the thread that writes the log";

/// Maximum number of bytes of one batch.
const BATCH_BYTES: usize = 64 * 1024;

/// The pause after each write, in which lines form a batch. A wake-up for each line would cost the
/// logging threads more than the line itself.
const GATHERING: Duration = Duration::from_millis(5);

/// The target of the thread.
pub(super) enum LogSink {
    /// The error output.
    Stderr,
    /// A file that is rotated.
    File(LogFile),
}

enum WriterMessage {
    Line(Vec<u8>),
    Reopen(SyncSender<io::Result<()>>),
    Flush(SyncSender<()>),
    Stop,
}

/// The thread that writes.
pub(super) struct LogWriter {
    queue: LogQueue,
    thread: Option<JoinHandle<()>>,
}

/// A handle that queues lines from any thread.
#[derive(Clone)]
pub(super) struct LogQueue {
    messages: SyncSender<WriterMessage>,
    dropped: Arc<AtomicU64>,
    /// The only thread that may still log once the process ends because of a fault. It is read
    /// while a line is queued, so that no other thread queues a line after it was set.
    last_author: Arc<RwLock<Option<ThreadId>>>,
}

impl LogWriter {
    pub(super) fn start(sink: LogSink, supervisor: &Supervisor) -> io::Result<Self> {
        let (messages, inbox) = sync_channel(QUEUED_LINES_MAX);
        let queue = LogQueue { messages, dropped: Arc::default(), last_author: Arc::default() };
        let dropped = queue.dropped.clone();
        let thread = supervisor.spawn("log", LOG_THREAD, move || serve(sink, &inbox, &dropped))?;
        Ok(Self { queue, thread: Some(thread) })
    }

    pub(super) fn queue(&self) -> LogQueue {
        self.queue.clone()
    }

    pub(super) fn reopen(&self) -> io::Result<()> {
        let (tell, told) = sync_channel(1);
        let gone = |_| io::Error::other("the log's thread has ended");
        self.queue.messages.send(WriterMessage::Reopen(tell)).map_err(|_| gone(()))?;
        told.recv().map_err(|_| gone(()))?
    }

    /// Drops the lines of all other threads from now on.
    pub(super) fn silence_other_threads(&self) {
        let mut author = self.queue.last_author.write().unwrap_or_else(PoisonError::into_inner);
        *author = Some(std::thread::current().id());
    }

    pub(super) fn flush(&self) {
        let (tell, told) = sync_channel(1);
        if self.queue.messages.send(WriterMessage::Flush(tell)).is_ok() {
            // An error means that the thread has ended, after it wrote all queued lines.
            told.recv().ok();
        }
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        if self.queue.messages.send(WriterMessage::Stop).is_ok()
            && let Some(thread) = self.thread.take()
        {
            thread.join().ok();
        }
    }
}

/// A line under construction, which is queued when it is complete.
pub(super) struct LogLine {
    queue: LogQueue,
    text: Vec<u8>,
}

impl Write for LogLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LogLine {
    fn drop(&mut self) {
        let text = std::mem::take(&mut self.text);
        let author = self.queue.last_author.read().unwrap_or_else(PoisonError::into_inner);
        if author.is_some_and(|author| author != std::thread::current().id()) {
            return;
        }
        if !text.is_empty() && self.queue.messages.try_send(WriterMessage::Line(text)).is_err() {
            self.queue.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<'a> MakeWriter<'a> for LogQueue {
    type Writer = LogLine;

    fn make_writer(&'a self) -> LogLine {
        LogLine { queue: self.clone(), text: Vec::new() }
    }
}

/// Writes lines until the stop message. A log that cannot be written must not stop the server, so
/// errors are ignored and the next line is tried again.
fn serve(mut sink: LogSink, inbox: &Receiver<WriterMessage>, dropped: &AtomicU64) {
    let mut batch = Vec::new();
    loop {
        let message = match inbox.recv_timeout(sink.until_rotation()) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => {
                sink.rotate_when_due();
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let mut next = Some(message);
        while let Some(message) = next.take() {
            match message {
                WriterMessage::Line(line) => batch.extend_from_slice(&line),
                other => {
                    sink.write(&mut batch, dropped);
                    match other {
                        WriterMessage::Line(_) => {}
                        WriterMessage::Reopen(tell) => drop(tell.send(sink.reopen())),
                        WriterMessage::Flush(tell) => drop(tell.send(())),
                        WriterMessage::Stop => return,
                    }
                }
            }
            if batch.len() < BATCH_BYTES {
                next = inbox.try_recv().ok();
            }
        }
        sink.write(&mut batch, dropped);
        std::thread::sleep(GATHERING);
    }
}

impl LogSink {
    fn write(&mut self, batch: &mut Vec<u8>, dropped: &AtomicU64) {
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            batch.extend_from_slice(
                format!("[{lost} log lines were dropped: the log cannot keep up]\n").as_bytes(),
            );
        }
        if batch.is_empty() {
            return;
        }
        match self {
            Self::Stderr => drop(io::stderr().write_all(batch)),
            Self::File(file) => {
                let rotated = file.rotate_when_due();
                drop(file.write_all(batch));
                report_rotation(rotated);
            }
        }
        batch.clear();
    }

    fn reopen(&mut self) -> io::Result<()> {
        match self {
            Self::Stderr => Ok(()),
            Self::File(file) => file.reopen(),
        }
    }

    fn rotate_when_due(&mut self) {
        if let Self::File(file) = self {
            report_rotation(file.rotate_when_due());
        }
    }

    fn until_rotation(&self) -> Duration {
        match self {
            Self::Stderr => Duration::from_secs(24 * 3600),
            Self::File(file) => file.until_rotation(),
        }
    }
}

/// Queues a line about a failed rotation. It does not block, because this thread empties the queue.
fn report_rotation(rotated: Result<(), RotationError>) {
    if let Err(error) = rotated {
        tracing::error!("{error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lines_of_many_threads_arrive_complete() {
        let directory = std::env::temp_dir().join(format!("scalla-log-writer-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("many.log");
        let file = LogFile::open(path.clone(), super::super::Retention::All).unwrap();
        let writer = LogWriter::start(LogSink::File(file), &Supervisor::default()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let queue = writer.queue();
                scope.spawn(move || {
                    for n in 0..500 {
                        writeln!(queue.make_writer(), "thread {thread} line {n}").unwrap();
                    }
                });
            }
        });
        drop(writer);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 2000);
        assert!(text.lines().all(|line| line.starts_with("thread ") && line.contains(" line ")));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn no_thread_logs_after_the_last_line() {
        let directory = std::env::temp_dir().join(format!("scalla-log-last-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("last.log");
        let file = LogFile::open(path.clone(), super::super::Retention::All).unwrap();
        let writer = LogWriter::start(LogSink::File(file), &Supervisor::default()).unwrap();
        let queue = writer.queue();
        let (started, start) = std::sync::mpsc::channel();
        let ended = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    writeln!(queue.make_writer(), "before").unwrap();
                    started.send(()).ok();
                }
            });
            start.recv().unwrap();
            writer.silence_other_threads();
            // The queue may be full of lines of the other threads.
            writer.flush();
            writeln!(writer.queue().make_writer(), "the last line").unwrap();
            (0..100).for_each(|_| start.recv().unwrap());
            ended.store(true, Ordering::Relaxed);
        });
        drop(writer);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().last(), Some("the last line"));
        assert!(text.starts_with("before"));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_full_queue_drops_and_counts_instead_of_waiting() {
        let (messages, inbox) = sync_channel(2);
        let queue = LogQueue { messages, dropped: Arc::default(), last_author: Arc::default() };
        for n in 0..5 {
            writeln!(queue.make_writer(), "{n}").unwrap();
        }
        assert_eq!(queue.dropped.load(Ordering::Relaxed), 3);
        assert_eq!(inbox.try_iter().count(), 2);
    }
}
