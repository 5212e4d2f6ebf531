//! The event loop of a load: a single thread drives all connections.

use anyhow::{Context, bail};
use client::SecuredLogin;
use client::codec::Decode;
use client::xroot::reply::{OpenDetail, OpenReply};
use client::xroot::request::{self, Request};
use rawclient::{
    BlockingSession, Connection, ConnectionEvent, Interest, PolledConnection, RequestOutcome, SessionError,
    SocketPoller, SocketRead, SocketReadiness,
};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::counters::LoadCounters;
use super::load_plan::{LoadPlan, OperationKind};
use super::operation::{
    BenchFile, LoadOperation, OPEN_TO_READ, OPEN_TO_WRITE, OperationInputs, OperationResult, open,
};
use super::resource_usage::Resources;

/// Timeout for connecting, and for the last replies.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of connections being established at the same time. It is below the usual listen
/// backlog of a server.
const CONNECTING_MAX: usize = 64;
/// Bytes received by one call.
const BUFFER_BYTES: usize = 256 << 10;
/// Size of a memory page in bytes.
const PAGE_BYTES: usize = 4 << 10;
/// Offset in a page at which a received header begins, so that the data after it begins at a cache
/// line. Data that the server sends from its page cache starts at a page boundary. Processors copy
/// eight times slower to an address 1 to 31 bytes after its source, modulo a page. Otherwise the
/// benchmark would measure that effect instead of the server.
const BEFORE_LINE: usize = 64 - 8;
/// Bytes received by one call when data is discarded: headers and small replies.
const HEAD_BYTES: usize = 4 << 10;
/// Size in bytes from which discarding in the kernel costs less than receiving.
const DISCARD_FROM: usize = 16 << 10;

/// Delay before a failed connection is established again.
const RECONNECT_DELAY: Duration = Duration::from_millis(10);

/// Tags of requests that are not operations.
const OPEN_TAG: u64 = u64::MAX;
const CLOSE_TAG: u64 = u64::MAX - 1;

/// A connection and its operations.
struct LoadConnection {
    link: Option<PolledConnection>,
    state: ConnectionPhase,
    file: BenchFile,
    operations: Vec<LoadOperation>,
    in_flight: usize,
    wants_room: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectionPhase {
    /// Connecting, logging in or opening its file.
    Preparing,
    Running,
    /// Closing its file.
    Closing,
    Over,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LoadPhase {
    Preparing,
    Warming,
    Measuring,
    Ending,
}

/// A running load.
pub(super) struct LoadGenerator<'p> {
    plan: &'p LoadPlan,
    login: SecuredLogin,
    address: SocketAddr,
    poller: SocketPoller,
    connections: Vec<LoadConnection>,
    inputs: OperationInputs,
    counters: LoadCounters,
    phase: LoadPhase,
    /// Deadline of the stage.
    until: Instant,
    prepared: usize,
    issued: u64,
    /// Operations to be repeated later.
    delayed: Vec<(Instant, usize, usize)>,
    entries: Option<usize>,
    resources: Resources,
    buffer: Vec<u8>,
    ready: Vec<SocketReadiness>,
}

/// The result of a load.
pub(super) struct LoadResult {
    pub(super) counters: LoadCounters,
    pub(super) resources: Resources,
    /// End of the written data of each writer.
    pub(super) written: Vec<u64>,
    /// The server address that replied.
    pub(super) address: SocketAddr,
}

/// Returns the address at which the server replies. Reports problems with a server before the load
/// starts.
pub(super) fn probe_address(
    plan: &LoadPlan,
    login: &SecuredLogin,
) -> anyhow::Result<(SocketAddr, BlockingSession)> {
    let addresses = plan.url.addresses().with_context(|| format!("cannot find {}", plan.url.host))?;
    let mut last = None;
    for address in addresses {
        match session(address, login, CONNECT_TIMEOUT) {
            Ok(session) => return Ok((address, session)),
            Err(error) => last = Some(error),
        }
    }
    // There is at least one address.
    Err(last.map_or_else(|| anyhow::anyhow!("no address"), anyhow::Error::new))
        .with_context(|| format!("cannot use {}", plan.url.authority()))
}

/// Connects a session with TLS and credentials.
pub(super) fn session(
    address: SocketAddr,
    login: &SecuredLogin,
    timeout: Duration,
) -> Result<BlockingSession, SessionError> {
    BlockingSession::connect_secured(&[address], login.login(), timeout, || Some(login.security()))
}

impl<'p> LoadGenerator<'p> {
    pub(super) fn new(plan: &'p LoadPlan, login: SecuredLogin, address: SocketAddr) -> anyhow::Result<Self> {
        let now = Instant::now();
        Ok(Self {
            plan,
            login,
            address,
            poller: SocketPoller::new()?,
            connections: Vec::new(),
            inputs: OperationInputs::new(plan),
            counters: LoadCounters::new()?,
            phase: LoadPhase::Preparing,
            until: now + CONNECT_TIMEOUT,
            prepared: 0,
            issued: 0,
            delayed: Vec::new(),
            entries: None,
            resources: Resources::new(plan)?,
            buffer: vec![0; BUFFER_BYTES + PAGE_BYTES],
            ready: Vec::new(),
        })
    }

    /// Establishes the connections, loads the server, measures, and waits for the last replies.
    pub(super) fn run(mut self) -> anyhow::Result<LoadResult> {
        loop {
            self.start_workers()?;
            let now = Instant::now();
            self.advance_phase(now)?;
            if self.phase == LoadPhase::Ending && self.is_over(now) {
                break;
            }
            let next =
                self.delayed.iter().map(|(time, ..)| *time).min().unwrap_or(self.until).min(self.until);
            let timeout = if self.plan.spin { Duration::ZERO } else { next.saturating_duration_since(now) };
            self.ready.clear();
            self.ready.extend(self.poller.wait(Some(timeout))?);
            for index in 0..self.ready.len() {
                self.serve(self.ready[index]);
            }
        }
        let unanswered: usize = self.connections.iter().map(|worker| worker.in_flight).sum();
        if unanswered > 0 {
            self.counters.error(|| format!("{unanswered} requests were never answered"));
        }
        let written = self.connections.iter().map(|worker| worker.file.written).collect();
        Ok(LoadResult { counters: self.counters, resources: self.resources, written, address: self.address })
    }

    fn is_over(&self, now: Instant) -> bool {
        let busy = |worker: &LoadConnection| worker.in_flight > 0 || worker.state == ConnectionPhase::Closing;
        !self.connections.iter().any(busy) || now >= self.until
    }

    /// Starts connections, at most [`CONNECTING_MAX`] at the same time.
    fn start_workers(&mut self) -> anyhow::Result<()> {
        while self.phase == LoadPhase::Preparing
            && self.connections.len() < self.plan.connections
            && self.connections.len() - self.prepared < CONNECTING_MAX
        {
            let now = Instant::now();
            self.connections.push(LoadConnection {
                link: None,
                state: ConnectionPhase::Preparing,
                file: BenchFile::default(),
                operations: (0..self.plan.depth).map(|_| LoadOperation::new(now)).collect(),
                in_flight: 0,
                wants_room: true,
            });
            if self.plan.kind == OperationKind::Connect {
                if let Some(worker) = self.connections.last_mut() {
                    worker.state = ConnectionPhase::Running;
                }
                self.prepared += 1;
            } else {
                self.connect(self.connections.len() - 1).context("cannot connect")?;
            }
        }
        Ok(())
    }

    fn connect(&mut self, number: usize) -> std::io::Result<()> {
        let worker = &mut self.connections[number];
        // The old connection is closed before the new one is opened, so that descriptors do not
        // accumulate.
        worker.link = None;
        let link = PolledConnection::connect(self.address, Connection::new(self.login.login().clone()))?;
        let mut link = link.secured_by(self.login.security());
        // If the server is near, the connection is usually established by now. Otherwise the loop
        // waits for it, and reading returns the error.
        let sent = link.flush().unwrap_or(false);
        let interest = if sent { Interest::Read } else { Interest::ReadAndWrite };
        self.poller.add(&link, number as u64, interest)?;
        worker.link = Some(link);
        worker.wants_room = !sent;
        Ok(())
    }

    /// Advances to the next stage when it is due, and repeats delayed operations.
    fn advance_phase(&mut self, now: Instant) -> anyhow::Result<()> {
        match self.phase {
            LoadPhase::Preparing if self.counters.errors > 0 => {
                bail!(self.counters.first_error.take().unwrap_or_default())
            }
            LoadPhase::Preparing if self.prepared == self.plan.connections => {
                self.resources.prepared()?;
                self.phase = LoadPhase::Warming;
                self.until = now + self.plan.warmup;
                if self.plan.warmup.is_zero() {
                    self.measure(now)?;
                }
                for number in 0..self.connections.len() {
                    for index in 0..self.plan.depth {
                        self.begin(number, index, Instant::now());
                    }
                    self.flush(number);
                }
            }
            LoadPhase::Preparing if now >= self.until => {
                let (made, wanted) = (self.prepared, self.plan.connections);
                bail!("only {made} of {wanted} connections were ready within {} s", CONNECT_TIMEOUT.as_secs())
            }
            LoadPhase::Warming if now >= self.until => self.measure(now)?,
            LoadPhase::Measuring if now >= self.until || self.is_exhausted() => {
                self.resources.measured()?;
                self.phase = LoadPhase::Ending;
                self.until = Instant::now() + CONNECT_TIMEOUT;
                self.delayed.clear();
                for number in 0..self.connections.len() {
                    self.close_if_idle(number);
                }
            }
            _ => {}
        }
        while let Some(place) = self.delayed.iter().position(|(time, ..)| *time <= now) {
            let (_, number, index) = self.delayed.swap_remove(place);
            let started = self.connections[number].operations[index].started;
            self.begin(number, index, started);
            self.flush(number);
        }
        Ok(())
    }

    fn measure(&mut self, now: Instant) -> anyhow::Result<()> {
        self.resources.measuring()?;
        self.phase = LoadPhase::Measuring;
        self.until = now + self.plan.duration;
        if self.plan.operations.is_some() {
            // With a limit of operations the time is not limited, but a server that never replies
            // must not block the load forever.
            self.until = now + Duration::from_secs(3600);
        }
        Ok(())
    }

    /// Reports whether no work is left before the stage ends.
    fn is_exhausted(&self) -> bool {
        let all_issued = self.plan.operations.is_some_and(|operations| self.issued >= operations);
        let idle = || self.connections.iter().all(|worker| worker.in_flight == 0) && self.delayed.is_empty();
        (all_issued && idle()) || self.connections.iter().all(|worker| worker.state == ConnectionPhase::Over)
    }

    /// Starts an operation whose latency is measured from `started`.
    fn begin(&mut self, number: usize, index: usize, started: Instant) {
        let issued = self.plan.operations.is_some_and(|operations| self.issued >= operations);
        let worker = &mut self.connections[number];
        if issued
            || self.phase == LoadPhase::Ending
            || worker.state != ConnectionPhase::Running
            || self.plan.kind == OperationKind::Idle
        {
            return;
        }
        self.issued += 1;
        let operation = &mut worker.operations[index];
        operation.started = started;
        worker.in_flight += 1;
        if self.plan.kind == OperationKind::Connect {
            if let Err(error) = self.connect(number) {
                self.drop_connection(number, &format!("cannot connect: {error}"));
            }
            return;
        }
        let Some(link) = &mut worker.link else { return };
        let begun =
            operation.begin(self.plan, &mut self.inputs, &mut worker.file, link.connection(), index as u64);
        if let Err(error) = begun {
            self.drop_connection(number, &error.to_string());
        }
    }

    /// Drops a failed connection and records the reason.
    fn drop_connection(&mut self, number: usize, why: &str) {
        let worker = &mut self.connections[number];
        let lost = std::mem::take(&mut worker.in_flight);
        worker.state = ConnectionPhase::Over;
        worker.link = None;
        self.counters.error(|| match lost {
            0 => why.to_owned(),
            lost => format!("{why} ({lost} requests in flight)"),
        });
        if self.plan.kind == OperationKind::Connect && self.phase != LoadPhase::Ending {
            // Connections fail independently. The delay limits the requests to a server that is
            // gone.
            worker.state = ConnectionPhase::Running;
            let later = Instant::now() + RECONNECT_DELAY;
            worker.operations[0].started = later;
            self.delayed.push((later, number, 0));
        }
    }

    /// Handles a ready socket.
    fn serve(&mut self, ready: SocketReadiness) {
        let number = ready.token as usize;
        if ready.readable
            && let Err(why) = self.receive(number)
        {
            self.drop_connection(number, &why);
        }
        self.flush(number);
    }

    fn flush(&mut self, number: usize) {
        let worker = &mut self.connections[number];
        let Some(link) = &mut worker.link else { return };
        match link.flush() {
            Ok(sent) if sent == worker.wants_room => {
                worker.wants_room = !sent;
                let interest = if sent { Interest::Read } else { Interest::ReadAndWrite };
                if let Err(error) = self.poller.modify(&*link, number as u64, interest) {
                    self.drop_connection(number, &error.to_string());
                }
            }
            Ok(_) => {}
            // Reading returns the error too, with more detail: the server may have sent a reason
            // before it closed.
            Err(_) => {}
        }
    }

    /// Processes the data received on a connection.
    fn receive(&mut self, number: usize) -> Result<(), String> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let start = (PAGE_BYTES + BEFORE_LINE - buffer.as_ptr() as usize % PAGE_BYTES) % PAGE_BYTES;
        let received = self.receive_into(number, &mut buffer[start..][..BUFFER_BYTES]);
        self.buffer = buffer;
        received
    }

    fn receive_into(&mut self, number: usize, buffer: &mut [u8]) -> Result<(), String> {
        loop {
            let worker = &mut self.connections[number];
            let Some(link) = &mut worker.link else { return Ok(()) };
            let discardable = link.connection().discardable().filter(|_| self.plan.discard);
            let discardable = discardable.filter(|(_, bytes)| *bytes >= DISCARD_FROM);
            let received = if discardable.is_some() {
                link.discard(buffer)
            } else {
                let most = if self.plan.discard { HEAD_BYTES } else { buffer.len() };
                link.receive(&mut buffer[..most])
            };
            let count = match received {
                Ok(SocketRead::Bytes(count)) => count,
                Ok(SocketRead::Nothing) => return Ok(()),
                Ok(SocketRead::Encrypted) => 0,
                Ok(SocketRead::End) => return Err("the server closed the connection".to_owned()),
                Err(error) => return Err(error.to_string()),
            };
            let now = Instant::now();
            let mut input = &buffer[..count];
            if let Some((tag, _)) = discardable {
                worker.operations[tag as usize].discarded(count as u64);
                input = &[];
            }
            while self.event(number, &mut input, now)? {}
            // More data makes the socket ready again. Another immediate read pays off only for
            // discarded data.
            if !self.plan.discard {
                return Ok(());
            }
        }
    }

    /// Processes one event. Returns `false` if there is none or the connection was dropped.
    fn event(&mut self, number: usize, input: &mut &[u8], now: Instant) -> Result<bool, String> {
        let plan = self.plan;
        let LoadConnection { link: Some(link), operations, state, .. } = &mut self.connections[number] else {
            return Ok(false);
        };
        let event = link.next_event(input).map_err(|error| error.to_string())?;
        match event {
            None => return Ok(false),
            Some(ConnectionEvent::Ready) => return self.logged_in(number, now),
            Some(ConnectionEvent::Data { tag, bytes }) => {
                if let Some(operation) = operations.get_mut(tag as usize) {
                    operation.data(plan, bytes);
                }
            }
            Some(ConnectionEvent::Pages { tag, frame }) => {
                if let Some(operation) = operations.get_mut(tag as usize) {
                    operation.pages(plan, &frame);
                }
            }
            Some(
                ConnectionEvent::StartTls
                | ConnectionEvent::Authenticate(_)
                | ConnectionEvent::Later { .. }
                | ConnectionEvent::Notice { .. },
            ) => {}
            Some(ConnectionEvent::Done { tag: OPEN_TAG, outcome }) => {
                let opened = opened(&outcome)?;
                self.file_is_open(number, opened);
            }
            Some(ConnectionEvent::Done { tag: CLOSE_TAG, outcome }) => {
                *state = ConnectionPhase::Over;
                if let RequestOutcome::Error(error) = outcome {
                    return Err(format!("close: {}: {}", error.code, String::from_utf8_lossy(error.text)));
                }
            }
            Some(ConnectionEvent::Done { tag, outcome }) => {
                let index = tag as usize;
                let Some(operation) = operations.get_mut(index) else { return Ok(true) };
                let end = operation.end(plan, &outcome);
                self.finish_operation(number, index, end, now)?;
            }
        }
        Ok(true)
    }

    fn logged_in(&mut self, number: usize, now: Instant) -> Result<bool, String> {
        if self.plan.kind == OperationKind::Connect {
            self.finish_operation(number, 0, OperationResult::Done(0), now)?;
            return Ok(false);
        }
        if self.plan.kind.moves_data() {
            let reads = self.plan.kind.reads();
            let file = if reads { number % self.plan.files as usize } else { number };
            let target = self.plan.url.target_of(&self.plan.path(file)).text().into_owned();
            let request = open(&target, if reads { OPEN_TO_READ } else { OPEN_TO_WRITE });
            let Some(link) = &mut self.connections[number].link else { return Ok(false) };
            link.connection().submit(&request, OPEN_TAG).map_err(|error| error.to_string())?;
        } else {
            self.is_prepared(number);
        }
        Ok(true)
    }

    fn file_is_open(&mut self, number: usize, mut file: BenchFile) {
        if self.plan.kind.writes() {
            file.size = self.plan.file_size;
        } else {
            // Readers of a whole file start at different offsets.
            let share = file.size / self.plan.connections as u64 * number as u64;
            file.position = share - share % self.plan.largest();
        }
        if file.size < self.plan.span() {
            let reach = self.plan.span();
            self.drop_connection(
                number,
                &format!("the file has {} bytes, fewer than the {reach} of a request", file.size),
            );
            return;
        }
        self.connections[number].file = file;
        self.is_prepared(number);
    }

    fn is_prepared(&mut self, number: usize) {
        self.connections[number].state = ConnectionPhase::Running;
        self.prepared += 1;
        self.until = Instant::now() + CONNECT_TIMEOUT;
    }

    /// Records the result of an operation.
    fn finish_operation(
        &mut self,
        number: usize,
        index: usize,
        end: OperationResult,
        now: Instant,
    ) -> Result<(), String> {
        let worker = &mut self.connections[number];
        let operation = &mut worker.operations[index];
        match end {
            OperationResult::Opened(handle) => {
                let Some(link) = &mut worker.link else { return Ok(()) };
                return operation
                    .close(handle, link.connection(), index as u64)
                    .map_err(|error| error.to_string());
            }
            OperationResult::Wait(wait) => {
                worker.in_flight -= 1;
                self.issued -= 1;
                self.counters.waits += 1;
                self.delayed.push((now + wait, number, index));
                return Ok(());
            }
            OperationResult::Done(_) | OperationResult::Redirected if self.phase == LoadPhase::Measuring => {
                let bytes = if let OperationResult::Done(bytes) = end { bytes } else { 0 };
                self.counters.redirects += u64::from(matches!(end, OperationResult::Redirected));
                self.counters.done(bytes, now.saturating_duration_since(operation.started));
                let entries = operation.entries.take();
                if entries.is_some_and(|entries| *self.entries.get_or_insert(entries) != entries) {
                    self.counters.error(|| "listings of the same directory differ in length".to_owned());
                }
            }
            OperationResult::Done(_) | OperationResult::Redirected => {}
            OperationResult::Failed(text) => self.counters.error(|| text),
        }
        worker.in_flight -= 1;
        if self.phase == LoadPhase::Ending {
            self.close_if_idle(number);
        } else {
            self.begin(number, index, now);
        }
        Ok(())
    }

    /// Closes a written file after its last reply, because a server may delay an error until then.
    fn close_if_idle(&mut self, number: usize) {
        let worker = &mut self.connections[number];
        if !self.plan.kind.writes() || worker.in_flight > 0 || worker.state != ConnectionPhase::Running {
            return;
        }
        worker.state = ConnectionPhase::Closing;
        let request = Request::Close(request::Close { fhandle: worker.file.handle });
        let submitted = worker.link.as_mut().map(|link| link.connection().submit(&request, CLOSE_TAG));
        if let Some(Err(error)) = submitted {
            self.drop_connection(number, &error.to_string());
        }
        self.flush(number);
    }
}

/// Returns the open file from the reply to an open request.
fn opened(outcome: &RequestOutcome<'_>) -> Result<BenchFile, String> {
    match outcome {
        RequestOutcome::Ok(body) => {
            let reply =
                OpenReply::decode(body).map_err(|error| format!("malformed answer to open: {error}"))?;
            let size = match reply.detail {
                OpenDetail::Stat(stat) => stat.size,
                OpenDetail::None | OpenDetail::Compression => 0,
            };
            Ok(BenchFile { handle: reply.fhandle, size, ..BenchFile::default() })
        }
        RequestOutcome::Error(error) => {
            Err(format!("cannot open the file: {}: {}", error.code, String::from_utf8_lossy(error.text)))
        }
        RequestOutcome::Redirect(redirect) => Err(format!(
            "the file is at {}:{}; use that server's URL",
            String::from_utf8_lossy(redirect.host),
            redirect.port
        )),
        RequestOutcome::Wait(wait) => {
            Err(format!("the server wants us to wait {} s for the file", wait.seconds))
        }
    }
}
