//! Requests by file handle, and recovery of the handle after a lost connection.
//!
//! A file open for reading continues at another server if a balancer knows one, otherwise at the
//! same. A file open for writing never moves to another server ([`Home`]), because an older replica
//! there would become a mixture of both. The reopened file must be the lost one
//! ([`RemoteFileIdentity`]) and contain all acknowledged writes. Source: xroot protocol 5.2.0,
//! section 5.2.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use rawclient::Encoded;
use tokio::time::Instant;
use wire::xroot::request::{Close, Request};
use wire::xroot::{ErrorCode, FileHandle};

use super::{File, Home, OpenHandle, open};
use crate::channel::{BodyLimit, Channel, ReplyContent, ReplySink};
use crate::failure::{Cause, Error};
use crate::identity::RemoteFileIdentity;
use crate::redirect::{CgiMerge, target};
use crate::request_loop::{Attempts, Exchange, LossKind, LostReply, RecoveryPolicy, Repeat};
use crate::route::{Balancer, Route};
use crate::settings::Settings;
use crate::url::Url;

/// Rounds of attempts to reconnect to a server: about eight seconds, enough for a restart.
const ROUNDS_AGAIN: u64 = 6;
/// Deadline for reopening a file.
const AGAIN_TIME: Duration = Duration::from_secs(60);

/// The open file at its current server.
pub(super) struct Current {
    pub(super) generation: u64,
    pub(super) channel: Arc<Channel>,
    pub(super) fhandle: FileHandle,
}

impl File {
    pub(super) fn current(&self) -> Result<Current, Cause> {
        if self.0.closed.load(Ordering::Acquire) {
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
        let repeat = match repeatable {
            true => Repeat::Anywhere,
            false if self.is_writable() => Repeat::Never,
            false => Repeat::Needless,
        };
        self.ask_with(name, repeat, payload, request, sink).await
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
        let client = &self.0.client;
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

    /// Reports whether the file may move to another server.
    fn may_move(&self) -> bool {
        let opened = self.opened();
        let Home::Anywhere(balancer) = &opened.home else { return false };
        balancer.as_ref().is_some_and(|balancer| balancer.url.authority() != opened.at.authority())
    }

    fn may_recover(&self) -> bool {
        let settings = self.0.client.settings();
        let switch = if self.is_writable() { &settings.write_recovery } else { &settings.read_recovery };
        Settings::is_on(switch) && !self.0.checkpoint.load(Ordering::Acquire)
    }

    /// Reopens the file, unless another caller has done so since `generation`. The target is the
    /// redirect `to` if there is one, otherwise a server of the balancer, otherwise the same
    /// server.
    pub(super) async fn recover(
        &self,
        name: &'static str,
        generation: u64,
        lost: &Cause,
        to: Option<Url>,
        end: Instant,
    ) -> Result<(), Error> {
        let _reopening = self.0.reopening.lock().await;
        let (at, home, before) = {
            let opened = self.opened();
            if opened.generation != generation {
                return Ok(());
            }
            (opened.at.clone(), opened.home.clone(), opened.identity.clone())
        };
        let end = end.min(Instant::now() + AGAIN_TIME);
        let place = at.authority();
        let opened = match home {
            Home::Here => {
                let mut route = Route::back_to(&self.0.client, &self.0.origin, at, ROUNDS_AGAIN, end);
                self.open_again(&mut route, generation).await
            }
            Home::Anywhere(balancer) => {
                self.open_anywhere(at, balancer.map(|balancer| *balancer), to, generation, end).await
            }
        };
        let opened = opened.map_err(|error| {
            let cause = Cause::NotRecovered { lost: lost.to_string(), again: error.cause().to_string() };
            Error::new(name, &self.0.origin, cause).at(place, &[])
        })?;
        self.check_again(before.as_ref(), &opened).map_err(|cause| {
            let close = Encoded::new(&Request::Close(Close { fhandle: opened.fhandle }));
            opened.guard.channel().post(close);
            self.error(name, cause)
        })?;
        self.0.recoveries.fetch_add(1, Ordering::Relaxed);
        let mut place = self.opened();
        // The status of the first open is kept because callers compare it.
        *place = OpenHandle { stat: place.stat.take().or(opened.stat.clone()), ..opened };
        Ok(())
    }

    /// Reopens a file that was open for reading at any server that has it.
    async fn open_anywhere(
        &self,
        at: Url,
        balancer: Option<Balancer>,
        to: Option<Url>,
        generation: u64,
        end: Instant,
    ) -> Result<OpenHandle, Error> {
        let way = |at: Url, balancer: Option<Balancer>| {
            Route::again(&self.0.client, &self.0.origin, at, balancer, ROUNDS_AGAIN, end)
        };
        let first = if let Some(to) = to {
            Some(way(to, balancer.clone()))
        } else if self.may_move() {
            let mut route = way(at.clone(), balancer.clone());
            route.return_to_balancer("srverr");
            // If the balancer knows no other server, the lost one may return.
            Some(route)
        } else {
            let others = self.0.origin.each().filter(|url| url.authority() != at.authority()).collect();
            way(at.clone(), None).among(others)
        };
        if let Some(mut route) = first
            && let Ok(opened) = self.open_again(&mut route, generation).await
        {
            return Ok(opened);
        }
        self.open_again(&mut way(at, balancer), generation).await
    }

    async fn open_again(&self, route: &mut Route, generation: u64) -> Result<OpenHandle, Error> {
        let with = &self.0.with;
        open(&self.0.client, route, with, with.again_options(), generation + 1).await
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
        let written_to = self.0.written_to.load(Ordering::Acquire);
        let size = self.opened().stat.as_ref().map_or(before.size, |stat| stat.size);
        before.check_again(now, written_to, size).map_err(Cause::Changed)
    }
}

/// A request by file handle. It is made at the server of the file, which is reopened when that
/// server is lost.
struct ByHandle<'a, F, S> {
    file: &'a File,
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

impl<F: Fn(FileHandle) -> Encoded, S: Fn() -> ReplySink> RecoveryPolicy for ByHandle<'_, F, S> {
    async fn send(&mut self, attempts: &Attempts<'_>) -> Result<Exchange, Cause> {
        let current = self.file.current()?;
        self.generation = current.generation;
        let (request, payload) = ((self.request)(current.fhandle), self.payload.clone());
        let channel = self.channel.insert(current.channel);
        let reply = channel.call(request, payload, (self.sink)(), attempts.until()).await;
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
            LossKind::Unusable => self.file.may_move(),
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
        tracing::debug!(operation = self.name, file = %self.file.0.origin, %cause, "opening again");
        // Boxed because this rare case would enlarge the future of each request.
        Box::pin(self.file.recover(self.name, self.generation, cause, to, attempts.end)).await
    }
}
