//! The task that drives one connection.
//!
//! Each turn sends the queued requests, then waits for the first of: a request, space in the send
//! buffer, bytes, a deadline. File data is received directly into the block of its request. All
//! other bytes pass through a small buffer that is borrowed during a receive, so an idle connection
//! owns no buffer.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut, Bytes};
use rawclient::{Connection, Encoded, SubmitError};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep_until};
use wire::xroot::request::{Ping, Request};

use super::exchange::{
    BodyLimit, ChannelRequest, ChannelState, ConnectionLoss, Deadlines, MissingReply, Patience, ReplySink,
};
use super::request_table::RequestTable;
use crate::buffer_pool::DataBufferPool;
use crate::pacing::PacedRequest;
use crate::server_stream::ServerStream;

/// Size of one receive of bytes that are not file data.
const RECEIVE_BYTES: usize = 64 * 1024;
/// Smaller data passes through the buffer together with the bytes behind it, which saves a system
/// call.
const DIRECT_BYTES_MIN: usize = 16 * 1024;
/// Smaller data uses the control connection: a data stream would cost the server more than it
/// saves.
const LANE_BYTES_MIN: usize = 32 * 1024;
/// Number of receives before other tasks get their turn.
const RECEIVES_PER_TURN: usize = 16;
/// Maximum number of slices in one send.
const SLICES: usize = 32;
/// Length of the backlog above which requests without a caller are removed from it.
const BACKLOG_KEPT: usize = 1024;
/// Distance of the timer when there is no deadline.
const FAR: Duration = Duration::from_secs(3600);

/// The state of the task.
pub(super) struct ChannelDriver {
    /// The sockets of the lanes of the connection.
    streams: Vec<ServerStream>,
    /// The lane that is polled first.
    turn: usize,
    machine: Connection,
    book: RequestTable,
    commands: mpsc::UnboundedReceiver<ChannelRequest>,
    /// Requests that wait for a free stream id.
    backlog: VecDeque<ChannelRequest>,
    /// Length of the backlog at which requests without a caller are removed from it.
    prune_at: usize,
    shared: Arc<ChannelState>,
    patience: Patience,
    blocks: DataBufferPool,
    timer: Pin<Box<Sleep>>,
    /// Time of the last bytes sent or received, or of the last request on an idle connection.
    active: Instant,
    /// Time at which a ping was sent to check that a silent server is alive.
    pinged: Option<Instant>,
    /// Set after sending failed on the control connection. Receiving continues because the last
    /// bytes of the server may explain the failure.
    broken: bool,
}

impl ChannelDriver {
    pub(super) fn new(
        streams: Vec<ServerStream>,
        machine: Connection,
        (posting, commands): (
            mpsc::WeakUnboundedSender<ChannelRequest>,
            mpsc::UnboundedReceiver<ChannelRequest>,
        ),
        shared: Arc<ChannelState>,
        patience: Patience,
        blocks: DataBufferPool,
    ) -> Self {
        let now = Instant::now();
        Self {
            book: RequestTable::new(machine.lanes(), posting),
            streams,
            turn: 0,
            machine,
            commands,
            backlog: VecDeque::new(),
            prune_at: BACKLOG_KEPT,
            shared,
            patience,
            blocks,
            timer: Box::pin(sleep_until(now)),
            active: now,
            pinged: None,
            broken: false,
        }
    }

    /// Drives the connection until it is lost, idle for too long, or no longer needed.
    pub(super) async fn run(mut self) {
        let reason = loop {
            if let Err(reason) = self.turn().await {
                break reason;
            }
        };
        self.shared.closed.store(true, Ordering::Release);
        self.commands.close();
        self.book.fail_all(&reason);
        self.shared.in_flight.store(0, Ordering::Relaxed);
        // Requests that were never sent can be retried safely.
        while let Ok(command) = self.commands.try_recv() {
            self.backlog.push_back(command);
        }
        for command in self.backlog.drain(..) {
            let unsent = MissingReply::Lost { reason: reason.clone(), sent: false };
            let _ = command.answer.map(|answer| answer.send(Err(unsent)));
        }
    }

    async fn turn(&mut self) -> Result<(), ConnectionLoss> {
        self.flush()?;
        if self.is_useless() {
            return Err(ConnectionLoss::Idle);
        }
        self.shared.in_flight.store(self.book.len(), Ordering::Relaxed);
        let wake = self.next_wake();
        // A timer that expires too early costs less than a timer that is set for each request.
        if wake < self.timer.deadline() || self.timer.is_elapsed() {
            self.timer.as_mut().reset(wake);
        }
        let Self { streams, machine, turn, commands, timer, broken, .. } = self;
        let ready = poll_fn(|context| ready(context, streams, machine, *turn, *broken));
        tokio::select! {
            command = commands.recv() => match command {
                Some(command) => self.accept(command),
                // All callers are gone, so no reply is needed.
                None => return Err(ConnectionLoss::ShutDown),
            },
            lane = ready => if let Some(lane) = lane.map_err(socket)? {
                self.turn = lane + 1;
                self.receive(lane)?;
                tokio::task::consume_budget().await;
            },
            () = timer.as_mut() => self.watch()?,
        }
        Ok(())
    }

    /// Reports whether later requests use another connection, and nobody needs this one any longer.
    fn is_useless(&self) -> bool {
        self.shared.worn.load(Ordering::Acquire)
            && self.shared.open_files.load(Ordering::Acquire) == 0
            && self.backlog.iter().all(ChannelRequest::is_abandoned)
            && self.book.is_abandoned()
    }

    /// Queues a request and all others that are waiting, so that they are sent as one batch.
    fn accept(&mut self, command: ChannelRequest) {
        let now = Instant::now();
        if self.book.is_empty() {
            self.active = now;
        }
        self.submit(command, now);
        while let Ok(command) = self.commands.try_recv() {
            self.submit(command, now);
        }
    }

    fn submit(&mut self, command: ChannelRequest, now: Instant) {
        if self.backlog.is_empty() {
            return self.make(command, now);
        }
        if self.backlog.len() >= self.prune_at {
            self.backlog.retain(|waiting| !waiting.is_abandoned());
            self.prune_at = (2 * self.backlog.len()).max(BACKLOG_KEPT);
        }
        self.backlog.push_back(command);
    }

    fn make(&mut self, command: ChannelRequest, now: Instant) {
        if self.machine.in_flight() >= rawclient::REQUESTS_IN_FLIGHT_MAX {
            if self.backlog.is_empty() && self.book.is_mostly_abandoned() {
                // Their stream ids are in use until the server answers, possibly for ever.
                self.shared.worn.store(true, Ordering::Release);
            }
            self.backlog.push_front(command);
            return;
        }
        // Before the check: a caller that leaves now either is found to have left, or finds the request sent.
        let paced = command.pacing.clone().map(PacedRequest::begin);
        if command.is_abandoned() {
            return;
        }
        let ChannelRequest { request, payload, sink, until, answer, .. } = command;
        let bytes = payload.len().max(if let ReplySink::Block(_, most) = &sink { *most } else { 0 });
        let lane = if bytes >= LANE_BYTES_MIN && request.has_path() { self.book.idlest_lane() } else { 0 };
        let tag = self.book.add(until, sink, answer, lane, now);
        self.book.mark(tag, request.opens_file(), paced);
        match self.machine.submit_encoded(&request, payload, lane, tag) {
            Ok(()) => {}
            Err(SubmitError::NotReady | SubmitError::Full) => self.book.forget(tag),
        }
    }

    fn flush(&mut self) -> Result<(), ConnectionLoss> {
        for lane in 0..self.streams.len() {
            self.flush_lane(lane)?;
        }
        Ok(())
    }

    fn flush_lane(&mut self, lane: usize) -> Result<(), ConnectionLoss> {
        let Some(stream) = self.streams.get_mut(lane) else { return Ok(()) };
        if stream.has_unsent() {
            match stream.flush() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if lane != 0 || self.machine.in_flight() == 0 => return Err(socket(error)),
                Err(_) => self.broken = true,
                Ok(()) => self.active = Instant::now(),
            }
        }
        while !self.broken && !self.machine.is_sent_on(lane) {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let used = self.machine.outgoing_on(lane, &mut slices);
            match stream.try_write_vectored(slices.get(..used).unwrap_or_default()) {
                Ok(count) => {
                    self.machine.sent_on(lane, count);
                    self.active = Instant::now();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if lane == 0 && self.machine.in_flight() > 0 => self.broken = true,
                Err(error) => return Err(socket(error)),
            }
        }
        Ok(())
    }

    fn receive(&mut self, lane: usize) -> Result<(), ConnectionLoss> {
        let mut buffer = None;
        for _ in 0..RECEIVES_PER_TURN {
            let Some(stream) = self.streams.get_mut(lane) else { break };
            let direct = self.machine.discardable_on(lane).filter(|(_, left)| *left >= DIRECT_BYTES_MIN);
            let received =
                match direct.and_then(|(tag, left)| Some((self.book.block(tag, self.active)?, left))) {
                    Some(((block, room), left)) => {
                        if left > room {
                            return Err(ConnectionLoss::TooMuch);
                        }
                        let received = stream.try_read_buf(&mut block.data().limit(left));
                        if let Ok(count) = received {
                            self.machine.discarded_on(lane, count);
                            self.events(lane, &[])?;
                        }
                        received
                    }
                    None => {
                        let block = buffer.get_or_insert_with(|| self.blocks.take(RECEIVE_BYTES));
                        block.data().clear();
                        let received = stream.try_read_buf(&mut block.data().limit(RECEIVE_BYTES));
                        if received.is_ok() {
                            // The block is moved out so that the rest of the task can be borrowed.
                            let Some(block) = buffer.take() else { return Ok(()) };
                            self.events(lane, block.as_ref())?;
                            buffer = Some(block);
                        }
                        received
                    }
                };
            match received {
                Ok(0) => return Err(ConnectionLoss::Closed),
                Ok(_) => {
                    self.active = Instant::now();
                    self.pinged = None;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(socket(error)),
            }
        }
        while self.machine.in_flight() < rawclient::REQUESTS_IN_FLIGHT_MAX {
            let Some(command) = self.backlog.pop_front() else { break };
            self.make(command, Instant::now());
        }
        Ok(())
    }

    fn events(&mut self, lane: usize, mut input: &[u8]) -> Result<(), ConnectionLoss> {
        loop {
            match self.machine.next_event_on(lane, &mut input) {
                Ok(Some(event)) => self.book.take(event, self.active)?,
                Ok(None) => return Ok(()),
                Err(error) => return Err(ConnectionLoss::Protocol(error)),
            }
        }
    }

    /// Returns the time of the next check of deadlines.
    fn next_wake(&self) -> Instant {
        let silence = if self.book.is_empty() {
            // With files open nothing has to be checked before the next request.
            let unused = self.shared.open_files.load(Ordering::Acquire) == 0;
            if unused { self.active + self.patience.idle } else { Instant::now() + FAR }
        } else {
            self.pinged.map_or(self.active, |pinged| pinged.max(self.active)) + self.patience.silence / 2
        };
        self.book.next_deadline().map_or(silence, |deadline| deadline.min(silence))
    }

    /// Checks deadlines, the silence of the server and the idle time.
    fn watch(&mut self) -> Result<(), ConnectionLoss> {
        let now = Instant::now();
        let lanes = 0..self.streams.len();
        let unsent = lanes.into_iter().any(|lane| !self.machine.is_sent_on(lane))
            || self.streams.iter().any(ServerStream::has_unsent);
        let sending = unsent.then_some(self.active);
        if self.book.expire(now, sending) {
            // The server may never answer it, and its turn ends with the connection.
            self.shared.worn.store(true, Ordering::Release);
        }
        let silent = now.duration_since(self.active);
        if self.book.is_empty() {
            let unused = self.shared.open_files.load(Ordering::Acquire) == 0;
            if unused && silent >= self.patience.idle && self.commands.is_empty() {
                return Err(ConnectionLoss::Idle);
            }
        } else if let Some(pinged) = self.pinged {
            if now.duration_since(pinged.max(self.active)) >= self.patience.silence / 2 {
                return Err(ConnectionLoss::Silent(self.patience.silence.as_secs()));
            }
        } else if silent >= self.patience.silence / 2 {
            // A server that works on a long request answers this ping; a dead server does not.
            let until = Deadlines { answer: now + FAR, end: now + FAR };
            let tag = self.book.add(until, ReplySink::Body(BodyLimit::ANSWER), None, 0, now);
            let ping = Encoded::new(&Request::Ping(Ping));
            if self.machine.submit_encoded(&ping, Bytes::new(), 0, tag).is_err() {
                self.book.forget(tag);
            }
            self.pinged = Some(now);
        }
        Ok(())
    }
}

/// Waits for bytes on any lane and returns it. Returns `None` if a lane with queued bytes can send.
fn ready(
    context: &mut Context<'_>,
    streams: &[ServerStream],
    machine: &Connection,
    first: usize,
    broken: bool,
) -> Poll<io::Result<Option<usize>>> {
    for step in 0..streams.len() {
        let lane = (first + step) % streams.len();
        let Some(stream) = streams.get(lane) else { continue };
        if stream.poll_read_ready(context)?.is_ready() {
            return Poll::Ready(Ok(Some(lane)));
        }
        let waits = !machine.is_sent_on(lane) || stream.has_unsent();
        if !broken && waits && stream.poll_write_ready(context)?.is_ready() {
            return Poll::Ready(Ok(None));
        }
    }
    Poll::Pending
}

fn socket(error: io::Error) -> ConnectionLoss {
    ConnectionLoss::Socket(error.to_string())
}
