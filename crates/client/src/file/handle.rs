//! [`RecoverableHandle`]: requests by file handle, and recovery of the handle after a lost
//! connection.
//!
//! The module `open` opens the file again. The reopened file must be the lost one
//! ([`RemoteFileIdentity`]) and contain all acknowledged writes. Source: xroot protocol 5.2.0,
//! section 5.2.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use rawclient::Encoded;
use tokio::sync::watch;
use tokio::time::Instant;
use wire::xroot::flags::OpenOptions;
use wire::xroot::request::{Close, Request};
use wire::xroot::{ErrorCode, FileHandle};

use super::open::{FileOpening, Home, OpenHandle};
use super::open_with::OpenWith;
use crate::buffer_pool::DataBufferPool;
use crate::channel::{BodyLimit, Channel, ReplyContent, ReplySink};
use crate::client::Client;
use crate::failure::{Cause, Error};
use crate::identity::RemoteFileIdentity;
use crate::pacing::RequestPacing;
use crate::redirect::{CgiMerge, target};
use crate::request_loop::{Attempts, Exchange, LossKind, LostReply, RecoveryPolicy, Repeat};
use crate::settings::Settings;
use crate::url::Url;

/// Deadline for reopening a file.
const AGAIN_TIME: Duration = Duration::from_secs(60);

/// The open file at its current server.
pub(super) struct Current {
    pub(super) generation: u64,
    pub(super) channel: Arc<Channel>,
    pub(super) fhandle: FileHandle,
}

/// The handle of an open file, which is recovered after a lost connection. Clones share it.
#[derive(Clone)]
pub(crate) struct RecoverableHandle {
    /// The client, with the turns of the requests of this clone.
    client: Client,
    state: Arc<HandleState>,
}

/// The state of a handle. Dropping it closes the file.
pub(crate) struct HandleState {
    /// The URL of the user.
    origin: Url,
    with: OpenWith,
    opened: Mutex<OpenHandle>,
    /// Held during a reopen.
    reopening: tokio::sync::Mutex<()>,
    closed: AtomicBool,
    /// The open whose handle a close was sent for last, also if nobody waits for its reply any longer.
    close_sent: Mutex<Option<u64>>,
    /// End of the furthest acknowledged write.
    written_to: AtomicU64,
    /// Set while a checkpoint is active. It ends with the connection, so the file must not be
    /// reopened.
    checkpoint: AtomicBool,
    recoveries: AtomicU64,
    /// Set while the file is reopened.
    reopens: watch::Sender<bool>,
}

/// A reopen in progress.
struct Reopen<'a>(&'a watch::Sender<bool>);

impl Drop for Reopen<'_> {
    fn drop(&mut self) {
        self.0.send_replace(false);
    }
}

impl Deref for RecoverableHandle {
    type Target = HandleState;

    fn deref(&self) -> &HandleState {
        &self.state
    }
}

impl RecoverableHandle {
    /// Creates the handle of a file that was opened.
    pub(super) fn new(client: &Client, origin: Url, with: OpenWith, opened: OpenHandle) -> Self {
        let state = HandleState {
            origin,
            with,
            opened: Mutex::new(opened),
            reopening: tokio::sync::Mutex::default(),
            closed: AtomicBool::new(false),
            close_sent: Mutex::default(),
            written_to: AtomicU64::new(0),
            checkpoint: AtomicBool::new(false),
            recoveries: AtomicU64::new(0),
            reopens: watch::Sender::new(false),
        };
        Self { client: client.unpaced(), state: Arc::new(state) }
    }

    /// Returns this handle with requests that `pacing` can hold back.
    pub(super) fn paced(&self, pacing: Arc<dyn RequestPacing>) -> Self {
        Self { client: self.client.paced(pacing), state: self.state.clone() }
    }

    /// Returns the URL of the user.
    pub(super) fn origin(&self) -> &Url {
        &self.origin
    }

    /// Returns the memory for data.
    pub(super) fn blocks(&self) -> &DataBufferPool {
        self.client.blocks()
    }

    /// Reports whether the file is open for writing.
    pub(super) fn is_writable(&self) -> bool {
        self.with.is_writable()
    }

    /// Returns the number of reopens after a lost connection.
    pub(super) fn recoveries(&self) -> u64 {
        self.recoveries.load(Ordering::Relaxed)
    }

    /// Returns the last successful open.
    pub(super) fn opened(&self) -> MutexGuard<'_, OpenHandle> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the current connection.
    pub(super) fn channel(&self) -> Arc<Channel> {
        self.opened().guard.channel().clone()
    }

    /// Creates an error of an operation at the current server.
    pub(crate) fn error(&self, name: &'static str, cause: impl Into<Cause>) -> Error {
        let authority = self.opened().at.authority();
        Error::new(name, &self.origin, cause).at(authority, &[])
    }

    /// Records a write that the server has acknowledged, up to byte `end`.
    pub(super) fn acknowledge_write(&self, end: u64) {
        self.written_to.fetch_max(end, Ordering::AcqRel);
    }

    /// Records a truncation that the server has acknowledged.
    pub(super) fn acknowledge_size(&self, size: u64) {
        self.written_to.store(size, Ordering::Release);
    }

    /// Records whether a checkpoint is active.
    pub(super) fn set_checkpoint(&self, is_active: bool) {
        self.checkpoint.store(is_active, Ordering::Release);
    }

    /// Closes the file. Later requests fail. For a file open for reading, a temporary error
    /// counts as success.
    pub(super) async fn close(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Acquire) {
            return Err(self.error("close", Cause::Closed));
        }
        let request = |current: &Current| {
            *self.close_sent.lock().unwrap_or_else(PoisonError::into_inner) = Some(current.generation);
            Encoded::new(&Request::Close(Close { fhandle: current.fhandle }))
        };
        let writable = self.is_writable();
        let sink = || ReplySink::Body(BodyLimit::ANSWER);
        let closed = self.ask_current("close", self.repeat(writable), Bytes::new(), request, sink).await;
        self.closed.store(true, Ordering::Release);
        match closed {
            Err(error) if !writable && error.is_transient() => Ok(()),
            closed => closed.map(|_| ()),
        }
    }

    /// Returns the current server, connection and handle.
    pub(super) fn current(&self) -> Result<Current, Cause> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Cause::Closed);
        }
        let opened = self.opened();
        Ok(Current {
            generation: opened.generation,
            channel: opened.guard.channel().clone(),
            fhandle: opened.fhandle,
        })
    }

    /// Sends a request with a small reply.
    pub(crate) async fn ask(
        &self,
        name: &'static str,
        repeatable: bool,
        payload: Bytes,
        request: impl Fn(FileHandle) -> Encoded,
    ) -> Result<ReplyContent, Error> {
        self.ask_into(name, repeatable, payload, request, || ReplySink::Body(BodyLimit::ANSWER)).await
    }

    /// Sends a request until it has a final reply. A request that is not `repeatable` is sent once.
    pub(super) async fn ask_into(
        &self,
        name: &'static str,
        repeatable: bool,
        payload: Bytes,
        request: impl Fn(FileHandle) -> Encoded,
        sink: impl Fn() -> ReplySink,
    ) -> Result<ReplyContent, Error> {
        self.ask_with(name, self.repeat(repeatable), payload, request, sink).await
    }

    /// Returns the rule for a request whose reply is lost.
    fn repeat(&self, repeatable: bool) -> Repeat {
        match repeatable {
            true => Repeat::Anywhere,
            false if self.is_writable() => Repeat::Never,
            false => Repeat::Needless,
        }
    }

    /// Sends a request that is valid on the current connection only.
    pub(super) async fn ask_once(
        &self,
        name: &'static str,
        request: impl Fn(FileHandle) -> Encoded,
    ) -> Result<ReplyContent, Error> {
        let sink = || ReplySink::Body(BodyLimit::ANSWER);
        self.ask_with(name, Repeat::Once, Bytes::new(), request, sink).await
    }

    async fn ask_with(
        &self,
        name: &'static str,
        repeat: Repeat,
        payload: Bytes,
        request: impl Fn(FileHandle) -> Encoded,
        sink: impl Fn() -> ReplySink,
    ) -> Result<ReplyContent, Error> {
        self.ask_current(name, repeat, payload, |current| request(current.fhandle), sink).await
    }

    /// Sends a request about the last open.
    async fn ask_current(
        &self,
        name: &'static str,
        repeat: Repeat,
        payload: Bytes,
        request: impl Fn(&Current) -> Encoded,
        sink: impl Fn() -> ReplySink,
    ) -> Result<ReplyContent, Error> {
        let client = &self.client;
        let mut by_handle = ByHandle {
            file: self,
            name,
            payload,
            request,
            sink,
            generation: 0,
            channel: None,
            is_uncertain: false,
        };
        Attempts::new(client, name, repeat, client.end()).run(&mut by_handle).await
    }

    /// Returns whether the file is being reopened, now and later.
    pub(super) fn reopens(&self) -> watch::Receiver<bool> {
        self.reopens.subscribe()
    }

    /// Reports whether the file would move to another server if the connection were lost.
    pub(super) fn may_move(&self) -> bool {
        self.may_recover() && self.opened().may_move()
    }

    fn may_recover(&self) -> bool {
        let settings = self.client.settings();
        let switch = if self.is_writable() { &settings.write_recovery } else { &settings.read_recovery };
        Settings::is_on(switch) && !self.checkpoint.load(Ordering::Acquire)
    }

    /// Reopens the file, unless another caller has done so since `generation`. The target is the
    /// redirect `to` if there is one, otherwise a server of the balancer, otherwise the same
    /// server.
    async fn recover(
        &self,
        name: &'static str,
        generation: u64,
        lost: &Cause,
        to: Option<Url>,
        end: Instant,
    ) -> Result<(), Error> {
        let _reopening = self.reopening.lock().await;
        let (at, home, before) = {
            let opened = self.opened();
            if opened.generation != generation {
                return Ok(());
            }
            (opened.at.clone(), opened.home.clone(), opened.identity.clone())
        };
        self.reopens.send_replace(true);
        let _reopen = Reopen(&self.reopens);
        let end = end.min(Instant::now() + AGAIN_TIME);
        let place = at.authority();
        // The request that has found the loss may hold the turn.
        let client = &self.client.unpaced();
        let opening = FileOpening { client, origin: &self.origin, with: &self.with };
        let opened = match home {
            Home::Here => opening.again_at(at, generation, end).await,
            Home::Anywhere(balancer) => {
                opening.again_anywhere(at, balancer.map(|balancer| *balancer), to, generation, end).await
            }
        };
        let opened = opened.map_err(|error| {
            let cause = Cause::NotRecovered { lost: lost.to_string(), again: error.cause().to_string() };
            Error::new(name, &self.origin, cause).at(place, &[])
        })?;
        if let Err(cause) = self.check_again(before.as_ref(), &opened) {
            self.let_go(opened);
            return Err(self.error(name, cause));
        }
        self.recoveries.fetch_add(1, Ordering::Relaxed);
        let mut place = self.opened();
        // The status of the first open is kept because callers compare it.
        *place = OpenHandle { stat: place.stat.take().or(opened.stat.clone()), ..opened };
        Ok(())
    }

    /// Gives up a reopened file that is not the lost one.
    fn let_go(&self, opened: OpenHandle) {
        let (channel, fhandle) = (opened.guard.channel().clone(), opened.fhandle);
        drop(opened);
        if self.persists() {
            // Closing would publish an incomplete file. The server removes it when the connection ends.
            channel.retire();
        } else {
            channel.post(Encoded::new(&Request::Close(Close { fhandle })));
        }
    }

    /// Checks that the reopened file is the lost one.
    fn check_again(&self, before: Option<&RemoteFileIdentity>, again: &OpenHandle) -> Result<(), Cause> {
        let (Some(before), Some(now)) = (before, &again.identity) else {
            // A server that does not report the identity suffices only for a reader.
            return match again.home {
                Home::Here => Err(Cause::Changed("its server does not tell which file it is".to_owned())),
                Home::Anywhere(_) => Ok(()),
            };
        };
        let written_to = self.written_to.load(Ordering::Acquire);
        let size = self.opened().stat.as_ref().map_or(before.size, |stat| stat.size);
        before.check_again(now, written_to, size).map_err(Cause::Changed)
    }
}

impl HandleState {
    /// Reports whether the file persists on a successful close.
    fn persists(&self) -> bool {
        self.with.options.intersects(OpenOptions::POSC)
    }
}

impl Drop for HandleState {
    fn drop(&mut self) {
        let posc = self.persists();
        // Closing would publish an incomplete file. After a close that was sent, the handle can be that of
        // another file, because the server reuses handles.
        let opened = self.opened.get_mut().unwrap_or_else(PoisonError::into_inner);
        let close_sent = self.close_sent.get_mut().unwrap_or_else(PoisonError::into_inner);
        if *self.closed.get_mut() || *close_sent == Some(opened.generation) || posc {
            return;
        }
        let close = Encoded::new(&Request::Close(Close { fhandle: opened.fhandle }));
        opened.guard.channel().post(close);
    }
}

/// A request by file handle. It is made at the server of the file, which is reopened when that
/// server is lost.
struct ByHandle<'a, F, S> {
    file: &'a RecoverableHandle,
    name: &'static str,
    payload: Bytes,
    request: F,
    sink: S,
    /// The open that the last attempt used.
    generation: u64,
    /// The connection that the last attempt used.
    channel: Option<Arc<Channel>>,
    is_uncertain: bool,
}

impl<F: Fn(&Current) -> Encoded, S: Fn() -> ReplySink> RecoveryPolicy for ByHandle<'_, F, S> {
    async fn send(&mut self, attempts: &Attempts<'_>) -> Result<Exchange, Cause> {
        let current = self.file.current()?;
        self.generation = current.generation;
        let (request, payload) = ((self.request)(&current), self.payload.clone());
        let channel = self.channel.insert(current.channel);
        let reply =
            channel.call(request, payload, (self.sink)(), attempts.until(), attempts.client.pacing()).await;
        Ok(Exchange { reply, at_manager: false })
    }

    fn server(&self) -> Url {
        self.file.opened().at.clone()
    }

    fn asked(&self) -> String {
        self.channel.as_ref().map(|channel| channel.authority().to_owned()).unwrap_or_default()
    }

    fn error(&mut self, cause: Cause) -> Error {
        self.file.error(self.name, cause).uncertain(self.is_uncertain)
    }

    fn pin(&mut self) {
        self.is_uncertain = true;
    }

    fn unreachable(&mut self, _: &mut Attempts<'_>, cause: Cause) -> Result<(), Error> {
        Err(self.error(cause))
    }

    fn refused(&mut self, _: &mut Attempts<'_>, code: ErrorCode, text: String) -> Result<(), Error> {
        Err(self.error(Cause::Server { code, text }))
    }

    async fn redirected(
        &mut self,
        attempts: &mut Attempts<'_>,
        port: i32,
        host: Vec<u8>,
    ) -> Result<(), Error> {
        let scope = attempts.client.redirects();
        let to = target(&self.server(), port, &host, CgiMerge::All, scope);
        let to = to.map_err(|cause| self.error(cause))?;
        let cause = Cause::BadRedirect(to.authority());
        if self.file.is_writable() || !self.file.may_recover() {
            return Err(self.error(cause));
        }
        self.reopen(attempts, &cause, Some(to)).await
    }

    async fn lost(&mut self, attempts: &mut Attempts<'_>, loss: LostReply) -> Result<(), Error> {
        let is_recoverable = match loss.kind {
            LossKind::Disconnected | LossKind::Silent => true,
            LossKind::Unusable => self.file.opened().may_move(),
            LossKind::Exhausted => false,
        };
        if !is_recoverable || !self.file.may_recover() {
            return Err(self.error(loss.cause));
        }
        self.reopen(attempts, &loss.cause, None).await
    }
}

impl<F, S> ByHandle<'_, F, S> {
    async fn reopen(&self, attempts: &Attempts<'_>, cause: &Cause, to: Option<Url>) -> Result<(), Error> {
        tracing::debug!(operation = self.name, file = %self.file.origin, %cause, "opening again");
        // Boxed because this rare case would enlarge the future of each request.
        Box::pin(self.file.recover(self.name, self.generation, cause, to, attempts.end)).await
    }
}
