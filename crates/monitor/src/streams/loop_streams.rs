//! [`LoopStreams`]: the buffers of one event loop.

use super::Seconds;
use super::file_buffer::FileBuffer;
use super::open_file::OpenFileTotals;
use super::redirect_buffer::RedirectBuffer;
use super::sender::SequenceKind;
use super::shared::{self, MonitorStreams, TraceKind};
use super::trace_buffer::TraceBuffer;
use config::MonitorEvent;
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::monitoring::{FileRecord, RedirectRecord, TraceRecord};

/// The buffers of one event loop, and the totals of the files that its clients have open.
pub struct LoopStreams {
    shared: Arc<MonitorStreams>,
    /// The time of the last tick, so that records do not read the clock.
    now: Cell<Seconds>,
    /// The time since the start of the loop as of the last tick. Unlike [`Self::now`] it is never set back.
    age: Cell<Duration>,
    started: Instant,
    /// A session has ended since the last tick.
    has_ended: Cell<bool>,
    state: RefCell<LoopState>,
}

struct LoopState {
    open_files: Slab<OpenFileTotals>,
    files: FileBuffer,
    /// The trace for collectors of reads and writes.
    io: TraceBuffer,
    /// The trace for collectors that only want opens and closes.
    trace: TraceBuffer,
    redirects: RedirectBuffer,
    /// Times of the next packets that are not full, since the start of the loop.
    files_due: Duration,
    others_due: Duration,
    /// Packets of the file stream until the next totals of open files.
    rounds: u32,
}

impl LoopStreams {
    /// Creates the buffers of a loop.
    #[must_use]
    pub fn new(shared: &Arc<MonitorStreams>) -> Rc<Self> {
        let now = shared::now();
        let settings = shared.settings();
        let (started, server, window) = (shared.started(), shared.server(), seconds(settings.window));
        let state = LoopState {
            open_files: Slab::new(),
            files: FileBuffer::new(started, server, settings.file_buffer_bytes, now),
            io: TraceBuffer::new(started, server, settings.trace_buffer_bytes, window, now),
            trace: TraceBuffer::new(started, server, settings.trace_buffer_bytes, window, now),
            redirects: RedirectBuffer::new(started, server, settings.redirect_buffer_bytes, window, now),
            files_due: settings.files.interval,
            others_due: settings.flush.unwrap_or(Duration::MAX),
            rounds: 0,
        };
        Rc::new(Self {
            shared: shared.clone(),
            now: Cell::new(now),
            age: Cell::default(),
            started: Instant::now(),
            has_ended: Cell::default(),
            state: RefCell::new(state),
        })
    }

    pub(super) fn shared(&self) -> &MonitorStreams {
        &self.shared
    }

    pub(super) fn now(&self) -> Seconds {
        self.now.get()
    }

    /// Returns the time since the start of the loop.
    pub(super) fn age(&self) -> Duration {
        self.age.get()
    }

    /// Takes the time, and sends the packets that are due. The loop calls it every second.
    pub fn tick(&self) {
        self.tick_at(shared::now(), self.started.elapsed());
    }

    pub(super) fn tick_at(&self, now: Seconds, age: Duration) {
        self.now.set(now);
        self.age.set(age);
        // Sessions that end together share packets.
        if self.has_ended.take() {
            self.flush_io();
        }
        let settings = self.shared.settings();
        if age >= self.state.borrow().files_due {
            self.state.borrow_mut().files_due = age.saturating_add(settings.files.interval);
            if self.shared.wants_file_stream() {
                self.add_totals(settings.files.transfers);
                let packet = self.state.borrow_mut().files.take(now);
                self.send_files(packet);
            }
        }
        if age >= self.state.borrow().others_due {
            self.state.borrow_mut().others_due = age.saturating_add(settings.flush.unwrap_or(Duration::MAX));
            self.flush_trace();
            let packet = self.state.borrow_mut().redirects.take(now);
            self.send_redirects(packet);
        }
    }

    /// Sends all packets, also those that are not full.
    pub fn flush(&self) {
        let packet = self.state.borrow_mut().files.take(self.now());
        self.send_files(packet);
        self.flush_trace();
        let packet = self.state.borrow_mut().redirects.take(self.now());
        self.send_redirects(packet);
    }

    /// Adds the totals of files that have changed, in each packet of this number.
    fn add_totals(&self, every: Option<u32>) {
        let Some(every) = every else { return };
        let state = &mut *self.state.borrow_mut();
        state.rounds += 1;
        if state.rounds < every {
            return;
        }
        state.rounds = 0;
        for (_, file) in state.open_files.iter_mut().filter(|(_, file)| file.is_changed) {
            file.is_changed = false;
            let record = FileRecord::Transfer { file: file.id, totals: file.totals };
            let packet = state.files.add(&record, self.now());
            self.send_files(packet);
        }
    }

    pub(super) fn add_file_event(&self, event: &FileRecord<'_>) {
        let packet = self.state.borrow_mut().files.add(event, self.now());
        self.send_files(packet);
    }

    /// Adds a record of an open, a close or a disconnect to both traces.
    pub(super) fn add_trace(&self, record: &TraceRecord) {
        if self.shared.has_collectors_of(TraceKind::Files) {
            let packet = self.state.borrow_mut().trace.add(record, self.now());
            self.send_trace(TraceKind::Files, packet);
        }
        self.add_io(record);
    }

    /// Adds another record to the trace of reads and writes.
    pub(super) fn add_io(&self, record: &TraceRecord) {
        if self.shared.has_collectors_of(TraceKind::Io) {
            let packet = self.state.borrow_mut().io.add(record, self.now());
            self.send_trace(TraceKind::Io, packet);
        }
    }

    pub(super) fn add_redirect(&self, record: &RedirectRecord<'_>) {
        let packet = self.state.borrow_mut().redirects.add(record, self.now());
        self.send_redirects(packet);
    }

    fn flush_trace(&self) {
        let packet = self.state.borrow_mut().trace.take(self.now());
        self.send_trace(TraceKind::Files, packet);
        self.flush_io();
    }

    /// Has the trace of a session that has ended sent at the next tick.
    pub(super) fn end_session(&self) {
        self.has_ended.set(true);
    }

    fn flush_io(&self) {
        let packet = self.state.borrow_mut().io.take(self.now());
        self.send_trace(TraceKind::Io, packet);
    }

    /// Adds an open file. Returns its key.
    pub(super) fn add_file(&self, id: u32) -> usize {
        self.state.borrow_mut().open_files.insert(OpenFileTotals::new(id))
    }

    /// Changes the totals of a file. Returns the id of the file.
    pub(super) fn count(&self, key: usize, change: impl FnOnce(&mut OpenFileTotals)) -> Option<u32> {
        let mut state = self.state.borrow_mut();
        let file = state.open_files.get_mut(key)?;
        change(file);
        Some(file.id)
    }

    pub(super) fn remove_file(&self, key: usize) -> Option<OpenFileTotals> {
        self.state.borrow_mut().open_files.try_remove(key)
    }

    fn send_files(&self, packet: Option<Vec<u8>>) {
        if let Some(packet) = packet {
            self.shared.send(|wanted| wanted.has(MonitorEvent::FileStream), SequenceKind::Files, packet);
        }
    }

    fn send_trace(&self, kind: TraceKind, packet: Option<Vec<u8>>) {
        if let Some(packet) = packet {
            self.shared.send(|wanted| kind.is_for(wanted), SequenceKind::Common, packet);
        }
    }

    fn send_redirects(&self, packet: Option<Vec<u8>>) {
        if let Some(packet) = packet {
            self.shared.send(|wanted| wanted.has(MonitorEvent::Redirects), SequenceKind::Common, packet);
        }
    }
}

impl Drop for LoopStreams {
    /// Sends what is left when the loop ends.
    fn drop(&mut self) {
        self.flush();
    }
}

fn seconds(time: Duration) -> Seconds {
    Seconds::try_from(time.as_secs()).unwrap_or(Seconds::MAX)
}
