//! The driver of one session with its connections: executes the tasks of the session machine.
//!
//! Nothing here blocks. A task that cannot complete immediately is started, and its answer returns
//! through [`SessionDriver::deliver`]. A panic while a request runs ends this session only: it is
//! caught at each entry point, and nothing shared is borrowed across it.
//!
//! The driver passes each task to the part whose job it is. Reads, payload and logins do not know
//! each other; they share the [`SessionContext`].
//!
//! | part | job |
//! |---|---|
//! | `context` | the session machine, its connections, and the operations in flight |
//! | `transfers` | reads, in place or frame by frame |
//! | `frame_context` | memory, pool and output for the next frame of a read |
//! | `receipts` | payload that arrives, and its way into files |
//! | `login` | steps of a login that wait for a name, a thread or a delay |
//! | `timeouts` | time limits of connections |
//! | `jobs` | file operations that the driver itself has started |
//! | `rare_state` | state that few sessions have at any time |
//! | `flow` | the flow of data that is reported with its experiment |
//! | `monitoring` | records of detailed monitoring |
//! | `session_log` | log lines of logins and disconnects |
//! | `turn` | calls of the tasks of connections |
//! | `ending` | the end of the session and of its connections |
//! | `loop_session` | calls of the hub of the loop |

use crate::client_delay::ClientDelay;
use crate::connections::{CloseState, SessionConnections};
use crate::costs;
use crate::hub::{Hub, LoopTime};
use crate::input::{Input, PayloadAhead};
use crate::lazy::Lazy;
use crate::registry::SessionHome;
use crate::{OUTPUT_LOW_BYTES, ROUND_REQUESTS};
use base::{Charge, Error, ErrorKind, MemoryPurpose};
use context::SessionContext;
use jobs::{DriverJob, JobKey, JobWork};
use login::LoginSteps;
use monitoring::answer_without_monitor;
use net::LoopHandle;
use rare_state::RareState;
use session::{CallId, DriverTask, PathId, ReadTask, RequestFront, Session};
use std::cell::RefCell;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use transfers::{TransferStep, Transfers};
use vfs::{Answer, FileOperation, OpenFile, Operation, Started, Value};
use wire::xroot::header::{SessionId, StreamId};

mod context;
mod ending;
mod flow;
mod frame_context;
mod jobs;
mod login;
mod loop_session;
mod monitoring;
mod rare_state;
mod receipts;
mod session_log;
mod timeouts;
mod transfers;
mod turn;

pub(crate) use frame_context::FrameContext;

/// The hub of the sessions of one loop.
pub(crate) type SessionHub = Hub<SessionDriver>;

/// The next step of the control connection after its input was processed.
pub(crate) enum InputFlow {
    /// Continue.
    Go,
    /// The next request needs this many bytes in total.
    More(usize),
    /// No further input is taken until output has been sent or an answer has arrived
    /// (back-pressure).
    Full,
    /// The turn is used up.
    Turn,
    /// The connection joins a session on another loop after its pending output has been sent.
    Join,
    /// The connection switches to TLS after its pending output has been sent.
    StartTls,
}

/// One session and its driver state.
pub(crate) struct SessionDriver {
    context: SessionContext,
    transfers: Transfers,
    rare: Lazy<RareState>,
    /// Creation time since the start of the loop.
    born: LoopTime,
    /// Bytes received on all connections of the session.
    received: u64,
    /// Bytes sent on all connections of the session.
    sent: u64,
    /// Tick of the last arrival.
    active: u32,
    broken: bool,
    /// Set while tasks of the session are executed.
    is_running: bool,
    logged_in: bool,
}

impl SessionDriver {
    pub(crate) fn new(hub: &Rc<SessionHub>, home: &LoopHandle, session: Session) -> Rc<RefCell<Self>> {
        let context = SessionContext::new(hub, session);
        context.register(home);
        let owner = context.owner;
        let driver = Rc::new(RefCell::new(Self {
            context,
            transfers: Transfers::default(),
            rare: Lazy::default(),
            born: hub.now(),
            received: 0,
            sent: 0,
            active: hub.tick(),
            broken: false,
            is_running: false,
            logged_in: false,
        }));
        hub.insert(owner, driver.clone());
        driver
    }

    fn login(&mut self) -> LoginSteps<'_> {
        LoginSteps { context: &mut self.context, rare: &mut self.rare, logged_in: &mut self.logged_in }
    }

    /// Returns the hub of the loop.
    pub(crate) fn hub(&self) -> &Rc<SessionHub> {
        &self.context.hub
    }

    /// Returns the connections of the session.
    pub(crate) fn links(&self) -> &SessionConnections {
        &self.context.links
    }

    /// Returns the connections of the session.
    pub(crate) fn links_mut(&mut self) -> &mut SessionConnections {
        &mut self.context.links
    }

    /// Returns the next payload expected on the control connection.
    fn expected(&mut self) -> Option<usize> {
        self.context.links.get(PathId::CONTROL).and_then(|link| link.expected.front().copied())
    }

    /// Takes requests from the input, up to the limit of a turn. The bytes received `ahead` follow
    /// the input when their turn comes.
    pub(crate) fn process(&mut self, input: &mut Input, ahead: &mut Option<PayloadAhead>) -> InputFlow {
        for round in 0..=ROUND_REQUESTS {
            if self.rare.join.is_some() {
                return InputFlow::Join;
            }
            if self.rare.starts_tls {
                return InputFlow::StartTls;
            }
            let next = ahead.take_if(|_| input.is_empty());
            if let Some(receipt) = self.expected() {
                if let Some(next) = next {
                    let todo = self.rare.receipts.take_ahead(&mut self.context, receipt, next, input);
                    self.run_if_any(todo);
                }
                let taken = self.feed(receipt, input.bytes());
                input.consume(taken);
                // The last byte may have completed the request for which a drain waits.
                let goes_on = self.expected() == Some(receipt);
                if goes_on && input.is_empty() {
                    return InputFlow::Go;
                }
                if goes_on && taken == 0 {
                    return InputFlow::Full;
                }
                continue;
            }
            if let Some(next) = next {
                next.join(input, self.context.links.account());
            }
            if self.context.session.is_ending() {
                input.clear();
                return InputFlow::Go;
            }
            if self.context.hub.draining.get() {
                if self.is_quiet() {
                    self.context.session.end();
                    self.run(DriverTask::Nothing);
                    self.close_links(CloseState::AfterOutput);
                }
                return InputFlow::Full;
            }
            if input.is_empty() {
                return InputFlow::Go;
            }
            if !self.has_room() {
                return self.hold_up(input);
            }
            // Checked only here, so that a client with exactly this many requests in flight needs
            // no second turn.
            if round == ROUND_REQUESTS {
                break;
            }
            match self.context.session.front(input.bytes()) {
                Ok(front) => {
                    let awaits_host =
                        !self.context.session.is_active() && self.login().awaits_peer_host(&front);
                    if awaits_host || !self.take(&front, input) {
                        return self.hold_up(input);
                    }
                }
                Err(needed) => match ahead.take() {
                    Some(ahead) => ahead.join(input, self.context.links.account()),
                    None => return InputFlow::More(needed),
                },
            }
        }
        InputFlow::Turn
    }

    /// Leaves the request at the front of the input. Its time begins if it has arrived.
    fn hold_up(&mut self, input: &Input) -> InputFlow {
        if self.context.session.front(input.bytes()).is_ok() {
            self.rare.refused.begin();
        }
        InputFlow::Full
    }

    /// Takes the request at the front of the input and the memory that it needs. Returns `false` if
    /// memory is short.
    fn take(&mut self, front: &RequestFront, input: &mut Input) -> bool {
        let cost = front.header().map_or(0, costs::of);
        // Input of bound connections waits for requests after this one, so it must not block this
        // one.
        let own = input.charged() + self.context.links.unannounced_bytes();
        let Some(charge) = self.context.reserve(MemoryPurpose::Request, cost, own) else { return false };
        let was_active = self.context.session.is_active();
        let refused = match self.rare.refused.is_present() {
            true => self.rare.refused.take(),
            false => Duration::ZERO,
        };
        session::begin_request(front.header().map(|header| header.code), refused);
        let todo = self.context.session.take_front(front, input.bytes(), charge, &mut self.context.links);
        // A request that nothing has taken over ends with its task.
        let _timer = session::take_arriving();
        input.consume(front.bytes());
        self.context
            .links
            .get(PathId::CONTROL)
            .into_iter()
            .for_each(|link| link.input_lag = ClientDelay::NONE);
        self.context.hub.stats.requests.add(1);
        if !was_active {
            self.login().note_transition(was_active);
        }
        self.run(todo);
        input.expect_payload(self.expected().map_or(0, |receipt| self.rare.receipts.piece_ahead(receipt)));
        true
    }

    /// Reports whether the session may take another request. `false` stops reading (back-pressure).
    fn has_room(&self) -> bool {
        let room =
            self.context.session.has_room() && !self.transfers.is_full() && self.rare.parked.is_empty();
        room && !self.context.links.is_full()
    }

    /// Reports whether nothing is in flight.
    fn is_quiet(&self) -> bool {
        self.context.session.calls_in_flight() == 0
            && self.transfers.is_empty()
            && self.rare.receipts.is_empty()
            && self.rare.parked.is_empty()
    }

    /// Executes a task of the session and the tasks that it makes possible. Tasks that arise during
    /// the execution of another one are queued and executed after it, so the stack does not grow
    /// with the requests in flight. For example, the end of one write may end the next.
    pub(crate) fn run(&mut self, first: DriverTask) {
        if std::mem::replace(&mut self.is_running, true) {
            self.context.session.push(first);
            return;
        }
        let mut todo = first;
        loop {
            todo = match self.run_one(todo) {
                DriverTask::Nothing => match self.context.session.next_todo() {
                    Some(next) => next,
                    None => break,
                },
                then => then,
            };
        }
        self.is_running = false;
    }

    fn run_if_any(&mut self, todo: Option<DriverTask>) {
        if let Some(todo) = todo {
            self.run(todo);
        }
    }

    fn run_one(&mut self, todo: DriverTask) -> DriverTask {
        match todo {
            DriverTask::Nothing => {}
            DriverTask::Close => self.close_links(CloseState::AfterOutput),
            DriverTask::Call(id, operation) => return self.call(id, operation),
            DriverTask::FileCall(id, file, operation) => return self.file_call(id, &file, operation),
            DriverTask::Read(task) => self.read(task),
            DriverTask::Monitor { call, command } => {
                let answer = match self.rare.monitor_mut() {
                    Some(monitor) => monitor.execute(&command),
                    None => answer_without_monitor(&command),
                };
                return self.context.session.answered(call, answer, &mut self.context.links);
            }
            DriverTask::ReadWithHints(task, hints) => {
                self.read(task);
                self.prefetch(&hints);
            }
            DriverTask::ReadVector(task) => {
                let monitor = self.rare.monitor_mut();
                if let Some(link) = self.transfers.read_vector(&mut self.context, monitor, task) {
                    self.advance(link);
                }
            }
            DriverTask::Receive(receive) => {
                self.context.hub.stats.receive(&receive.into);
                if let Some(monitor) = &self.rare.monitor {
                    monitor.note_write(&receive);
                }
                let todo = self.rare.receipts.expect(&mut self.context, receive);
                self.run_if_any(todo);
            }
            DriverTask::Proceed(call) => {
                let todo = self.rare.receipts.proceed(&mut self.context, call);
                self.run_if_any(todo);
            }
            DriverTask::Bind { streamid, session } => self.find_session(streamid, session),
            DriverTask::EndSession { call, session } => return self.end_other(call, session),
            DriverTask::Authenticate(task) => return self.login().authenticate(*task),
            DriverTask::StartTls => self.rare.starts_tls = true,
            DriverTask::LoginRefused { reason, delay_seconds } => self.login().refuse(reason, delay_seconds),
            DriverTask::Statistics { call, selection } => {
                let text = self.context.hub.shared.statistics(&selection);
                let answer = Answer::Value(Value::Text(text.into_bytes()));
                return self.context.session.answered(call, answer, &mut self.context.links);
            }
        }
        DriverTask::Nothing
    }

    /// Executes a read.
    fn read(&mut self, task: ReadTask) {
        let monitor = self.rare.monitor.as_deref();
        if let Some(link) = self.transfers.read(&mut self.context, monitor, task) {
            self.advance(link);
        }
    }

    /// Prefetches ranges of files.
    fn prefetch(&self, hints: &[(Arc<dyn OpenFile>, u64, u64)]) {
        self.context.hub.stats.pre_reads.add(hints.len() as u64);
        hints.iter().for_each(|(file, offset, length)| file.prefetch(*offset, *length));
    }

    /// Makes frames of the reads of a connection while its output has room, and executes the tasks
    /// that the end of each read makes possible.
    pub(crate) fn advance(&mut self, link: PathId) {
        while self.transfers.advance(&mut self.context, link) {
            self.run(DriverTask::Nothing);
        }
    }

    /// Continues a read after the pool has read a piece.
    fn piece_read(&mut self, transfer: usize, answer: Answer, charge: Charge) {
        let taken = self.transfers.take_piece(&mut self.context, transfer, answer, charge);
        let Some((link, step)) = taken else { return };
        if step == TransferStep::Ended {
            self.run(DriverTask::Nothing);
        }
        self.advance(link);
    }

    fn call(&mut self, id: CallId, operation: Operation) -> DriverTask {
        if matches!(operation, Operation::ListMore(_)) && !self.context.may_list_on(id) {
            self.rare.parked.push_back((id, operation));
            return DriverTask::Nothing;
        }
        if matches!(operation, Operation::Open(..)) {
            self.context.hub.stats.opens.add(1);
            if self.context.hub.shared.config.marker.is_some() {
                self.rare.flow.get_or_insert_default().note_request(id, &operation);
            }
        }
        if let Some(monitor) = self.rare.monitor_mut() {
            monitor.note_request(id, &operation);
        }
        let reply = self.context.reply_to(u64::from(id.0));
        let started = self.context.hub.shared.files.start(self.context.session.caller(), operation, &reply);
        self.started(id, started)
    }

    fn file_call(&mut self, id: CallId, file: &Arc<dyn OpenFile>, operation: FileOperation) -> DriverTask {
        if matches!(operation, FileOperation::Sync) {
            self.context.hub.stats.syncs.add(1);
        }
        if let Some(monitor) = self.rare.monitor_mut() {
            monitor.note_operation(file, &operation);
        }
        let reply = self.context.reply_to(u64::from(id.0));
        let started = file.start(operation, &reply);
        self.started(id, started)
    }

    fn started(&mut self, id: CallId, started: Started) -> DriverTask {
        match started {
            Started::Done(answer) => self.answered(id, answer),
            Started::Pending => DriverTask::Nothing,
            Started::Later { seconds, text } => {
                self.context.session.defer_answer(id, seconds, text, &mut self.context.links);
                DriverTask::Nothing
            }
        }
    }

    fn answered(&mut self, id: CallId, answer: Answer) -> DriverTask {
        self.context.note(&answer);
        if let Some(monitor) = self.rare.monitor_mut() {
            monitor.answered(id, &answer);
        }
        if let Some(flow) = self.rare.flow_mut() {
            flow.answered(id, &answer);
        }
        self.context.session.answered(id, answer, &mut self.context.links)
    }

    /// Delivers a late answer.
    pub(crate) fn deliver(this: &Rc<RefCell<Self>>, call: u64, answer: Answer) {
        Self::guarded(this, |driver| {
            driver.context.hub.stats.late_answers.add(1);
            let Some(key) = JobKey::of_call(call) else {
                let id = CallId(u32::try_from(call).unwrap_or(u32::MAX));
                let todo = driver.answered(id, answer);
                driver.run(todo);
                return;
            };
            let Some(DriverJob { work, charge }) = driver.context.jobs.remove(key) else { return };
            match work {
                JobWork::Read(transfer) => driver.piece_read(transfer, answer, charge),
                JobWork::Piece(receipt) => {
                    let context = &mut driver.context;
                    let todo = driver.rare.receipts.piece_written(context, receipt, answer, charge);
                    driver.run_if_any(todo);
                }
                // The buffer is returned before its charge.
                JobWork::Orphan => drop(answer),
            }
        });
    }

    /// Delivers the notice that an answer follows late.
    pub(crate) fn defer(this: &Rc<RefCell<Self>>, call: u64, seconds: u32) {
        let (None, Ok(id)) = (JobKey::of_call(call), u32::try_from(call)) else { return };
        Self::guarded(this, |driver| {
            let context = &mut driver.context;
            context.session.defer_answer(CallId(id), seconds, "", &mut context.links);
            driver.run(DriverTask::Nothing);
        });
    }

    /// Runs work of a session. A panic in it ends the session. Afterwards the tasks of its
    /// connections are woken.
    fn guarded(this: &Rc<RefCell<Self>>, work: impl FnOnce(&mut Self)) {
        let outcome = catch_unwind(AssertUnwindSafe(|| work(&mut this.borrow_mut())));
        if outcome.is_err() {
            Self::break_off(this);
        }
        this.borrow().wake_all();
        Self::forget_if_finished(this);
    }

    /// Wakes the tasks of all connections.
    pub(crate) fn wake_all(&self) {
        self.context.links.wake_all();
    }

    pub(crate) fn has_parked(&self) -> bool {
        !self.rare.parked.is_empty()
    }

    /// Continues a listing that waited for room in the output.
    pub(crate) fn unpark(&mut self) {
        let room =
            self.context.links.get(PathId::CONTROL).is_none_or(|link| link.out.pending() < OUTPUT_LOW_BYTES);
        if room
            && self.has_parked()
            && let Some((id, operation)) = self.rare.parked.pop_front()
        {
            let todo = self.call(id, operation);
            self.run(todo);
        }
    }

    /// Returns the session that the connection joins, and the stream id of the request.
    pub(crate) fn take_join(&mut self) -> Option<(StreamId, SessionHome)> {
        self.rare.join.take()
    }

    fn find_session(&mut self, streamid: StreamId, id: SessionId) {
        match self.context.hub.shared.registry.find(id) {
            Some(entry) => self.rare.join = Some((streamid, entry)),
            None => {
                let out = session::ReplyOutputs::link(&mut self.context.links, PathId::CONTROL);
                Session::refuse_bind(streamid, &Error::new(ErrorKind::NotFound, "session not found"), out);
            }
        }
    }

    fn end_other(&mut self, call: CallId, id: SessionId) -> DriverTask {
        let answer = match self.context.hub.shared.registry.find(id) {
            None => Answer::DONE,
            Some(entry) if !entry.caller.is_same_client(self.context.session.caller()) => {
                Answer::error(ErrorKind::NotAuthorized, "not session owner")
            }
            Some(entry) => {
                let reply = self.context.reply_to(u64::from(call.0)).defer();
                let shared = self.context.hub.shared.clone();
                entry.home.run(move || SessionHub::of(&shared).terminate(entry.owner, reply));
                return DriverTask::Nothing;
            }
        };
        self.context.session.answered(call, answer, &mut self.context.links)
    }

    /// Adds a connection from `address` to the session. Returns its path id.
    pub(crate) fn bind(
        &mut self,
        streamid: StreamId,
        address: Option<IpAddr>,
        is_tls: bool,
    ) -> Result<PathId, Error> {
        let link = self.context.session.bind(address, is_tls)?;
        self.context.links.insert(link);
        self.context.session.bound(streamid, link, &mut self.context.links);
        Ok(link)
    }

    /// Returns the address of the client.
    pub(crate) fn peer_address(&self) -> Option<IpAddr> {
        self.context.peer_address()
    }

    /// Logs a failed request.
    pub(crate) fn note_failure(&self, error: &Error) {
        self.context.note_failure(error);
    }
}

#[cfg(test)]
mod tests;
