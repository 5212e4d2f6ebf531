//! The task of one connection: receives input, lets the session process it, and sends the output.
//!
//! All requests of one arrival are processed before their replies leave in one write. A turn is
//! bounded in requests and bytes, so that a busy connection does not delay the others of its loop.

use crate::ROUND_BYTES;
use crate::block::DataBlock;
use crate::connections::CloseState;
use crate::driver::{InputFlow, SessionDriver, SessionHub};
use crate::front_end::FrontEnd;
use crate::input::{Input, PayloadAhead};
use crate::outbox::FlushOutcome;
use crate::registry::SessionHome;
use crate::stats::CountedConnection;
use crate::tls_handshake;
use base::MemoryPurpose;
use net::{Arrival, BLOCK_BYTES, DetachedSocket, LoopPresence, SMALL_BYTES, Socket, take_small};
use session::{PathId, Session};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use wire::xroot::header::StreamId;
use wire::xroot::limits::REQUEST_HEADER_BYTES;

/// Time and bytes for which input is still consumed after the server has closed its side.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The reason for which a connection ends.
enum CloseReason {
    /// The peer has disconnected, or the connection is not needed.
    Closed,
    /// The last reply was sent, and the peer must be able to read it.
    Closing,
    /// The connection joins another session.
    Join(StreamId, SessionHome),
    /// The connection continues after a TLS handshake.
    StartTls,
}

/// A connection in service. It is a hand-written future to save memory, because most connections
/// are idle and 10,000 of them must cost little. Steps that occur once per connection run in
/// separate tasks.
struct ConnectionTask {
    driver: Rc<RefCell<SessionDriver>>,
    link: PathId,
    /// `None` after the socket was moved elsewhere.
    socket: Option<Socket>,
    input: Input,
    place: Option<ConnectionCount>,
}

/// The share of a connection in the counts of its loop and of the process, until it is closed.
pub(crate) struct ConnectionCount {
    _presence: LoopPresence,
    attendee: CountedConnection,
}

/// Serves a new connection as a session of its own.
pub(crate) fn serve(shared: &Arc<FrontEnd>, arrival: Arrival, presence: LoopPresence) {
    let hub = SessionHub::of(shared);
    // Closed immediately if descriptors are exhausted, so that the present connections continue.
    let Some(attendee) = shared.attendance.arrived() else {
        hub.stats.exhausted.add(1);
        return;
    };
    hub.stats.connections.add(1);
    let driver = SessionDriver::new(
        &hub,
        &arrival.home,
        shared.new_session(arrival.peer, shared.needed_address(&arrival.socket)),
    );
    net::spawn_local(ConnectionTask {
        driver,
        link: PathId::CONTROL,
        socket: Some(arrival.socket),
        input: Input::of(arrival.received),
        place: Some(ConnectionCount { _presence: presence, attendee }),
    });
}

/// Continues a connection that was switched to TLS.
pub(crate) fn resume(
    driver: Rc<RefCell<SessionDriver>>,
    link: PathId,
    socket: Socket,
    place: Option<ConnectionCount>,
) {
    net::spawn_local(ConnectionTask { driver, link, socket: Some(socket), input: Input::default(), place });
}

impl Future for ConnectionTask {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let Some(socket) = this.socket.as_mut() else { return Poll::Ready(()) };
        let (driver, link, input) = (&this.driver, this.link, &mut this.input);
        let turn = catch_unwind(AssertUnwindSafe(|| turn(driver, link, socket, input, context)));
        let end = match turn {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(end)) => end,
            Err(_) => {
                SessionDriver::break_off(driver);
                driver.borrow().wake_all();
                CloseReason::Closed
            }
        };
        this.end(end);
        Poll::Ready(())
    }
}

impl ConnectionTask {
    fn end(&mut self, end: CloseReason) {
        if matches!(end, CloseReason::StartTls) {
            if let Some(socket) = self.socket.take() {
                let received = self.input.bytes().to_vec();
                self.input.clear();
                tls_handshake::start(self.driver.clone(), self.link, socket, received, self.place.take());
            }
            return;
        }
        if let Some(socket) = &self.socket {
            self.driver.borrow_mut().end_flow(self.link, socket);
        }
        SessionDriver::link_lost(&self.driver, self.link);
        let hub = self.driver.borrow().hub().clone();
        let (socket, place) = (self.socket.take(), self.place.take());
        match (end, socket, place) {
            (CloseReason::Join(streamid, entry), Some(socket), Some(ConnectionCount { attendee, .. })) => {
                let address = self.driver.borrow().peer_address();
                let is_tls = socket.is_tls();
                if let Ok((socket, more)) = socket.release() {
                    let received = [self.input.bytes(), &more].concat();
                    let joining = JoiningConnection { socket, is_tls, received, address, streamid, attendee };
                    joining.join(hub.shared.clone(), entry);
                    return;
                }
            }
            (CloseReason::Closing, Some(mut socket), place) => {
                tokio::task::spawn_local(async move {
                    linger(&mut socket).await;
                    drop(place);
                });
            }
            _ => {}
        }
        hub.stats.disconnections.add(1);
    }
}

/// Consumes input for a short time before the socket is closed. If a socket with unread input is
/// closed, the kernel discards unsent output, and the peer could not read the last reply.
pub(crate) async fn linger(socket: &mut Socket) {
    let send_rest = poll_fn(|context| {
        loop {
            match socket.flush() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(socket.poll_writable(context)).ok();
                }
                _ => return Poll::Ready(()),
            }
        }
    });
    let _ = tokio::time::timeout(LINGER, send_rest).await;
    socket.finish_sending();
    let mut buffer = take_small();
    let pass_over = async {
        let mut passed = 0;
        while passed < LINGER_BYTES_MAX {
            buffer.clear();
            match poll_fn(|context| socket.poll_read(context, &mut buffer, SMALL_BYTES)).await {
                Ok(0) | Err(_) => return,
                Ok(came) => passed += came,
            }
        }
    };
    // Completion and timeout are treated alike.
    let _ = tokio::time::timeout(LINGER, pass_over).await;
}

/// A connection on its way to the loop of the session that it joins.
struct JoiningConnection {
    socket: DetachedSocket,
    is_tls: bool,
    /// Input after the bind request.
    received: Vec<u8>,
    address: Option<IpAddr>,
    streamid: StreamId,
    attendee: CountedConnection,
}

impl JoiningConnection {
    /// Moves the connection to the loop of the session.
    fn join(self, shared: Arc<FrontEnd>, entry: SessionHome) {
        let home = entry.home.clone();
        let presence = home.enter();
        home.spawn(move || async move {
            let hub = SessionHub::of(&shared);
            let place = ConnectionCount { _presence: presence, attendee: self.attendee };
            let Ok(mut socket) = Socket::attach(self.socket) else {
                return hub.stats.disconnections.add(1);
            };
            let found = hub.find(entry.owner);
            let bind = |driver: &Rc<RefCell<SessionDriver>>| {
                driver.borrow_mut().bind(self.streamid, self.address, self.is_tls)
            };
            let bound = found.as_ref().map(bind);
            let error = match (found, bound) {
                (Some(driver), Some(Ok(link))) => {
                    let (socket, input) = (Some(socket), Input::of(self.received));
                    return net::spawn_local(ConnectionTask {
                        driver,
                        link,
                        socket,
                        input,
                        place: Some(place),
                    });
                }
                (_, Some(Err(error))) => error,
                _ => base::Error::new(base::ErrorKind::NotFound, "session just closed"),
            };
            let mut out = Vec::new();
            Session::refuse_bind(self.streamid, &error, &mut out);
            // The peer may have disconnected too, so errors are ignored. A socket that was just
            // registered with this loop is not known to be writable yet.
            let _ = poll_fn(|context| socket.poll_writable(context)).await;
            let _ = socket.write(&[std::io::IoSlice::new(&out)], false);
            linger(&mut socket).await;
            drop(place);
            hub.stats.disconnections.add(1);
        });
    }
}

/// Runs one turn of a connection: until it cannot make progress, or others must run.
fn turn(
    driver: &Rc<RefCell<SessionDriver>>,
    link: PathId,
    socket: &mut Socket,
    input: &mut Input,
    context: &mut Context<'_>,
) -> Poll<CloseReason> {
    let mut driver = driver.borrow_mut();
    let driver = &mut *driver;
    if !driver.begin_turn(link, context.waker()) {
        return Poll::Ready(CloseReason::Closed);
    }
    if driver.links_mut().get(link).is_some_and(|state| state.closing == CloseState::Now) {
        return Poll::Ready(CloseReason::Closing);
    }
    let (mut sent, mut ahead) = (0, None);
    loop {
        let flow = work(driver, link, input, &mut ahead);
        driver.advance(link);
        driver.check_argument(link, input, &flow);
        let tick = driver.hub().tick();
        let Some((state, account)) = driver.links_mut().get_with_account(link) else {
            return Poll::Ready(CloseReason::Closed);
        };
        state.news = false;
        state.held_up = matches!(flow, InputFlow::Full);
        state.stalled = state.held_up | std::mem::take(&mut state.short);
        let before = state.out.pending();
        let stays = !matches!(flow, InputFlow::Join | InputFlow::StartTls);
        let together = state.closing == CloseState::No && stays;
        let Ok(flushed) = state.out.flush(socket, ROUND_BYTES, together, account) else {
            return Poll::Ready(CloseReason::Closed);
        };
        let left = before.saturating_sub(state.out.pending());
        state.note_output(left, flushed, tick);
        let closing = state.closing != CloseState::No;
        // The rest of encrypted output is sent while the connection lingers, for a limited time.
        let is_sent = flushed == FlushOutcome::All || (closing && state.out.is_empty());
        sent += left;
        driver.note_sent(left as u64);
        driver.advance_flow(link, socket);
        driver.links_mut().wake_others(link, left > 0);
        if is_sent && let Some(reason) = end_after_output(driver, closing, &flow) {
            return Poll::Ready(reason);
        }
        let moved = left > 0 && (matches!(flow, InputFlow::Full) || driver.has_further_work(link));
        if flushed == FlushOutcome::Blocked && socket.poll_writable(context).is_ready() {
            continue;
        }
        let is_over = matches!(flow, InputFlow::Turn) || flushed == FlushOutcome::Turn || sent >= ROUND_BYTES;
        if is_over {
            // Other connections run first, then this one continues.
            input.keep(driver.links().account());
            driver.links_mut().end_turn(link, socket.held_bytes());
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if moved {
            continue;
        }
        match arrive(driver, link, socket, input, &mut ahead, &flow, context) {
            Poll::Ready(Ok(true)) => {}
            Poll::Ready(Ok(false)) | Poll::Pending => return pause(driver, link, socket, input, context),
            Poll::Ready(Err(())) => return Poll::Ready(CloseReason::Closed),
        }
    }
}

/// Returns the reason for which the task of a connection ends after its output was sent.
fn end_after_output(driver: &mut SessionDriver, is_closing: bool, flow: &InputFlow) -> Option<CloseReason> {
    match flow {
        _ if is_closing => Some(CloseReason::Closing),
        InputFlow::Join => driver.take_join().map(|(streamid, entry)| CloseReason::Join(streamid, entry)),
        InputFlow::StartTls => driver.take_starts_tls().then_some(CloseReason::StartTls),
        _ => None,
    }
}

/// Ends a turn after which the connection waits for its client, an answer or memory.
fn pause(
    driver: &mut SessionDriver,
    link: PathId,
    socket: &mut Socket,
    input: &mut Input,
    context: &mut Context<'_>,
) -> Poll<CloseReason> {
    input.keep(driver.links().account());
    driver.links_mut().end_turn(link, socket.held_bytes());
    // A connection that waits for memory is not read. Its end must be noticed nevertheless, because
    // it occupies a position in the queue and may hold part of an argument.
    if driver.links().awaits_memory() && socket.poll_ended(context).is_ready() {
        return Poll::Ready(CloseReason::Closed);
    }
    Poll::Pending
}

/// Lets the session process the input.
fn work(
    driver: &mut SessionDriver,
    link: PathId,
    input: &mut Input,
    ahead: &mut Option<PayloadAhead>,
) -> InputFlow {
    if link == PathId::CONTROL {
        driver.unpark();
        let flow = driver.process(input, ahead);
        // Bytes that are taken later are kept with the input.
        ahead.take().into_iter().for_each(|ahead| ahead.join(input, driver.links().account()));
        return flow;
    }
    // A bound connection carries only payload that the control connection announced.
    while !input.is_empty() {
        let Some(state) = driver.links_mut().get(link) else { return InputFlow::Full };
        let Some(key) = state.expected.front().copied() else {
            if state.unannounced.is_none() {
                let streamid = input.bytes().first_chunk().copied().unwrap_or_default();
                state.unannounced = Some((Instant::now(), StreamId(streamid)));
            }
            return InputFlow::Full;
        };
        state.unannounced = None;
        let taken = driver.feed(key, input.bytes());
        input.consume(taken);
        if taken == 0 {
            return InputFlow::Full;
        }
    }
    InputFlow::Go
}

/// Receives from the socket, and records whether the server waits for the client. `Ok(true)` means
/// that bytes arrived, `Ok(false)` that nothing is to be read now, `Err` that the connection has
/// ended.
fn arrive(
    driver: &mut SessionDriver,
    link: PathId,
    socket: &mut Socket,
    input: &mut Input,
    ahead: &mut Option<PayloadAhead>,
    flow: &InputFlow,
    context: &mut Context<'_>,
) -> Poll<Result<bool, ()>> {
    let arrived = receive(driver, link, socket, input, ahead, flow, context);
    let tick = driver.hub().tick();
    let begun = match flow {
        InputFlow::More(_) => true,
        // The server does not take the present input.
        InputFlow::Full => false,
        _ => driver.awaits_payload(link),
    };
    if let Some(state) = driver.links_mut().get(link) {
        match &arrived {
            Poll::Ready(Ok(true)) => {}
            Poll::Pending if begun => state.input_lag.run(tick),
            _ => state.input_lag.pause(tick),
        }
    }
    arrived
}

/// Receives from the socket. Returns the same values as [`arrive`].
fn receive(
    driver: &mut SessionDriver,
    link: PathId,
    socket: &mut Socket,
    input: &mut Input,
    ahead: &mut Option<PayloadAhead>,
    flow: &InputFlow,
    context: &mut Context<'_>,
) -> Poll<Result<bool, ()>> {
    let expected = driver.links_mut().get(link).and_then(|state| state.expected.front().copied());
    if let Some(key) = expected {
        if driver.payload_waits(key) {
            return Poll::Ready(Ok(false));
        }
        // The hold ended after the last check.
        if driver.was_released(key) && !input.is_empty() {
            return Poll::Ready(Ok(true));
        }
        if input.is_empty()
            && let Some(room) = driver.payload_room(key)
        {
            let came = match socket.poll_read_into(context, room) {
                Poll::Ready(Ok(came)) if came > 0 => came,
                Poll::Ready(_) => return Poll::Ready(Err(())),
                Poll::Pending => return Poll::Pending,
            };
            driver.arrived(link, came);
            driver.payload_came(key, came);
            return Poll::Ready(Ok(true));
        }
    } else if input.likely > 0
        && input.is_empty()
        && matches!(flow, InputFlow::Go)
        && let Ok(charge) = driver.links().account().reserve(MemoryPurpose::Data, BLOCK_BYTES, 0)
    {
        let block = DataBlock::with_room(BLOCK_BYTES, charge);
        return arrive_ahead(driver, link, socket, input, block, ahead, context);
    }
    let wanted = match flow {
        InputFlow::More(bytes) => *bytes,
        // The next bytes are not requests but records.
        InputFlow::StartTls => return Poll::Ready(Ok(false)),
        // The present input must be consumed first. One buffer may fill meanwhile, so that the end
        // of the connection is noticed.
        InputFlow::Full | InputFlow::Join if input.bytes().len() >= SMALL_BYTES => {
            return Poll::Ready(Ok(false));
        }
        _ => input.bytes().len() + 1,
    };
    if let Err((shortage, more)) = input.make_room(wanted, driver.links().account()) {
        driver.links_mut().memory().wait_with_argument(input, shortage, more);
        driver.links_mut().get(link).into_iter().for_each(|state| state.held_up = true);
        return Poll::Ready(Ok(false));
    }
    let was_empty = input.is_empty();
    match socket.poll_read(context, &mut input.buffer, usize::MAX) {
        Poll::Ready(Ok(came)) if came > 0 => {
            driver.arrived(link, came);
            Poll::Ready(Ok(true))
        }
        Poll::Ready(_) => Poll::Ready(Err(())),
        Poll::Pending => {
            if was_empty {
                // An idle connection owns no buffer.
                input.clear();
            }
            Poll::Pending
        }
    }
}

/// Receives a request that probably has payload: the header, and the payload into its final buffer.
fn arrive_ahead(
    driver: &mut SessionDriver,
    link: PathId,
    socket: &mut Socket,
    input: &mut Input,
    mut block: DataBlock,
    ahead: &mut Option<PayloadAhead>,
    context: &mut Context<'_>,
) -> Poll<Result<bool, ()>> {
    let mut head = [0; REQUEST_HEADER_BYTES];
    // With room for another header after it, a short result shows that the socket is empty.
    let most = block.len().min(input.likely as usize + REQUEST_HEADER_BYTES);
    let came = match socket.poll_read_split(context, &mut head, block.get_mut(..most).unwrap_or_default()) {
        Poll::Ready(Ok(came)) if came > 0 => came,
        other => return other.map(|_| Err(())),
    };
    input.append(head.get(..came).unwrap_or(&head), driver.links().account());
    let filled = came.checked_sub(head.len()).filter(|filled| *filled > 0);
    *ahead = filled.map(|filled| PayloadAhead { block, filled });
    driver.arrived(link, came);
    Poll::Ready(Ok(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory of 10,000 connections must be small.
    #[test]
    fn the_task_of_a_connection_is_small() {
        assert!(size_of::<ConnectionTask>() <= 112, "{}", size_of::<ConnectionTask>());
    }
}
