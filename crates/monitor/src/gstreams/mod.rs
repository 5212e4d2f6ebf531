//! Streams of JSON records (`xrootd.mongstream`, "g-streams"): copies, files of a cache, requests of HTTP.
//!
//! ```text
//!  end of a copy ─▶ GStreams ─▶ queue ─▶ GStreamWriter ─▶ its collector, as text
//!                               one for each stream    ─▶ collectors of `xrootd.monitor`, in the binary form
//! ```
//!
//! Each stream that a collector gets has a thread. A queue that is full drops records: nothing waits for a
//! collector. A stream that no collector gets costs a comparison at each record.
//!
//! | file | contents |
//! |---|---|
//! | `writer` | [`GStreamWriter`]: fills packets of one stream and sends them |
//! | `head` | the first line of packets, and the text that identifies the server |
//! | `records` | the records of the streams |

mod head;
mod records;
mod writer;

pub(crate) use records::time;
pub use records::{CachedFileFigures, CopyFigures, HttpStatusFigures, http_records};
pub use writer::GStreamWriter;

use crate::{MonitorStreams, RecordSender};
use config::{DetailedMonitoring, GStream, GStreamSettings, GStreamTable};
use head::GStreamHead;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};
use writer::{GStreamOutput, TextOutput};

/// Number of records of a stream that wait for its thread. Further ones are dropped.
const QUEUE_RECORDS_MAX: usize = 4096;
/// Memory of records of a stream that wait for its thread, in bytes. Further records are dropped.
const QUEUE_BYTES_MAX: usize = 4 << 20;
/// Interval in which the end of the server looks whether all is sent.
const FLUSH_LOOK: Duration = Duration::from_millis(10);

/// The streams of a server. Records are sent until it is dropped.
pub struct GStreams {
    queues: Vec<(GStream, GStreamQueue)>,
    /// The collectors of `xrootd.monitor`.
    collectors: Option<Arc<MonitorStreams>>,
}

/// The records of a stream that wait for its thread.
struct GStreamQueue {
    messages: SyncSender<GStreamMessage>,
    state: Arc<GStreamQueueState>,
    /// Maximum size of a record in bytes.
    record_max: usize,
}

/// A message to the thread of a stream.
enum GStreamMessage {
    Record(String),
    /// Send all records before it, and then drop the sender.
    Flush(SyncSender<()>),
}

/// The state of a queue that its thread shares.
#[derive(Default)]
struct GStreamQueueState {
    /// Memory of the records that wait, in bytes.
    bytes: AtomicUsize,
    /// Records that were lost since the start.
    lost: AtomicU64,
}

impl std::fmt::Debug for GStreams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GStreams")
    }
}

impl GStreams {
    /// Creates the streams that a collector gets, and the writers that need a thread each. Packets without a
    /// collector of their own go to those of `streams`.
    #[must_use]
    pub fn new(
        table: &GStreamTable,
        detailed: Option<(&DetailedMonitoring, &Arc<MonitorStreams>)>,
        sender: &RecordSender,
        release: &str,
    ) -> (Arc<Self>, Vec<GStreamWriter>) {
        let defaults = detailed.map(|(settings, _)| settings.clone()).unwrap_or_default();
        let (mut queues, mut writers) = (Vec::new(), Vec::new());
        let in_force = GStream::ALL.iter().map(|(_, stream)| *stream).filter(|stream| stream.is_in_force());
        for stream in in_force {
            let own = GStreamSettings::default();
            let settings = table.get(stream).unwrap_or(&own);
            let head = GStreamHead::new(stream, sender, release);
            let output = match &settings.destination {
                Some(destination) => Some(GStreamOutput::Text(Box::new(TextOutput::new(
                    destination,
                    head,
                    defaults.identification,
                )))),
                None => detailed.and_then(|(detailed, streams)| {
                    let event = stream.event().filter(|event| detailed.events().has(*event))?;
                    Some(GStreamOutput::Collectors { streams: streams.clone(), event, sequence: 1 })
                }),
            };
            let Some(output) = output else { continue };
            let (messages, received) = sync_channel(QUEUE_RECORDS_MAX);
            let state = Arc::<GStreamQueueState>::default();
            let writer = GStreamWriter::new(stream, settings, &defaults, output, (received, state.clone()));
            queues.push((stream, GStreamQueue { messages, state, record_max: writer.record_max() }));
            writers.push(writer);
        }
        let collectors = detailed.map(|(_, streams)| streams.clone());
        (Arc::new(Self { queues, collectors }), writers)
    }

    /// Reports whether a collector gets a stream.
    #[must_use]
    pub fn has(&self, stream: GStream) -> bool {
        self.queues.iter().any(|(known, _)| *known == stream)
    }

    /// Adds a record, a JSON object on one line. It is made only if a collector gets the stream, with the maximum
    /// number of its bytes. A longer one is lost.
    pub fn add(&self, stream: GStream, record: impl FnOnce(usize) -> String) {
        if let Some((_, queue)) = self.queues.iter().find(|(known, _)| *known == stream) {
            queue.push(record(queue.record_max));
        }
    }
}

impl GStreams {
    /// Sends all records, also in packets that are not full. Waits until they are sent, at most for this time.
    pub fn flush(&self, limit: Duration) {
        let until = Instant::now() + limit;
        let flush = |(_, queue): &(GStream, GStreamQueue)| {
            let (done, flushed) = sync_channel(0);
            let mut message = GStreamMessage::Flush(done);
            // The queue can be full, and then most records wait.
            while let Err(TrySendError::Full(again)) = queue.messages.try_send(message) {
                if Instant::now() >= until {
                    break;
                }
                message = again;
                std::thread::sleep(FLUSH_LOOK);
            }
            flushed
        };
        let all: Vec<_> = self.queues.iter().map(flush).collect();
        for flushed in all {
            // The end of the channel is the answer.
            let _ = flushed.recv_timeout(until.saturating_duration_since(Instant::now()));
        }
        let is_sent = || self.collectors.as_ref().is_none_or(|collectors| collectors.is_sent());
        while !is_sent() && Instant::now() < until {
            std::thread::sleep(FLUSH_LOOK);
        }
    }
}

impl GStreamQueue {
    fn push(&self, record: String) {
        let size = record.capacity();
        let bytes = self.state.bytes.fetch_add(size, Ordering::Relaxed);
        let is_taken =
            bytes + size <= QUEUE_BYTES_MAX && self.messages.try_send(GStreamMessage::Record(record)).is_ok();
        if !is_taken {
            self.state.bytes.fetch_sub(size, Ordering::Relaxed);
            self.state.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The receiving end of a queue.
type GStreamReceiver = (Receiver<GStreamMessage>, Arc<GStreamQueueState>);

#[cfg(test)]
mod tests;
