//! Requests by file handle, and recovery of the handle after a lost connection.
//!
//! A file open for reading continues at another server if a balancer knows one, otherwise at the
//! same. A file open for writing never moves to another server ([`Home`]), because an older replica
//! there would become a mixture of both. The reopened file must be the lost one ([`FileIdentity`])
//! and contain all acknowledged writes. Source: xroot protocol 5.2.0, section 5.2.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use wire::xroot::FileHandle;
use wire::xroot::request::{Close, Request};

use super::{File, Home, Opened, open};
use crate::channel::{Answer, BodyLimit, Channel, Failed, Lost, Received, Sink};
use crate::encoded::Encoded;
use crate::failure::{Cause, Error};
use crate::identity::FileIdentity;
use crate::route::{Balancer, Route, target};
use crate::settings::Settings;
use crate::url::Url;
use crate::waits::WaitFor;

/// Maximum number of lost connections in one operation.
const LOST_MAX: u32 = 4;
/// Rounds of attempts to reconnect to a server: about eight seconds, enough for a restart.
const ROUNDS_AGAIN: u64 = 6;
/// Deadline for reopening a file.
const AGAIN_TIME: Duration = Duration::from_secs(60);
/// Number of waits of zero seconds that are repeated at once, before a backoff applies.
const PROMPT_WAITS: u32 = 3;

/// The open file at its current server.
pub(super) struct Current {
    pub(super) generation: u64,
    pub(super) channel: Arc<Channel>,
    pub(super) fhandle: FileHandle,
}

impl File {
    pub(super) fn current(&self, name: &'static str) -> Result<Current, Error> {
        if self.0.closed.load(Ordering::Acquire) {
            return Err(self.error(name, Cause::Closed));
        }
        let opened = self.opened();
        Ok(Current {
            generation: opened.generation,
            channel: opened.hold.channel().clone(),
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
    ) -> Result<Received, Error> {
        self.ask_into(name, repeatable, payload, request, || Sink::Body(BodyLimit::ANSWER)).await
    }

    /// Sends a request until it has a final reply. A request that is not `repeatable` is sent once.
    pub(super) async fn ask_into(
        &self,
        name: &'static str,
        repeatable: bool,
        payload: Bytes,
        request: impl Fn(FileHandle) -> Encoded,
        sink: impl Fn() -> Sink,
    ) -> Result<Received, Error> {
        let end = self.0.client.end();
        let mut lost = 0;
        let mut waits = 0;
        loop {
            let current = self.current(name)?;
            let until = self.0.client.until(end);
            let asked = request(current.fhandle);
            let mut to = None;
            let (cause, sent) = match current.channel.call(asked, payload.clone(), sink(), until).await {
                Ok(Answer::Ok(received)) => return Ok(received),
                Ok(Answer::Error { code, text }) => {
                    return Err(self.error(name, Cause::Server { code, text }));
                }
                Ok(Answer::Wait { pause, text }) => {
                    waits += 1;
                    let moment = Duration::from_millis(if waits > PROMPT_WAITS { 100 } else { 0 });
                    let pause = pause.max(moment);
                    if Instant::now() + pause > end {
                        return Err(self.error(name, Cause::Expired { seconds: pause.as_secs(), text }));
                    }
                    let (until, at) = (Instant::now() + pause, self.opened().at.clone());
                    let _waiting = self.0.client.waits().begin(&at, WaitFor::Pause { until, text });
                    tokio::time::sleep_until(until).await;
                    continue;
                }
                Ok(Answer::Redirect { port, host }) => {
                    let at = self.opened().at.clone();
                    let there = target(&at, port, &host, false).map_err(|cause| self.error(name, cause))?;
                    let cause = Cause::BadRedirect(there.authority());
                    to = Some(there);
                    (cause, false)
                }
                Err(Failed::Lost { reason: Lost::Protocol(error), .. }) if !self.may_move() => {
                    return Err(self.error(name, error));
                }
                Err(Failed::Lost { reason, sent }) => (Cause::Lost(reason.to_string()), sent),
                Err(Failed::TimedOut(seconds)) => (Cause::TimedOut(seconds), true),
                Err(Failed::TooLarge(limit)) => return Err(self.error(name, Cause::too_large(&limit))),
            };
            lost += 1;
            let stays = match cause {
                Cause::BadRedirect(_) => self.is_writable(),
                Cause::TimedOut(_) => !self.may_move(),
                _ => false,
            };
            let given_up = lost > LOST_MAX || stays || !self.may_recover() || Instant::now() >= end;
            if given_up || (sent && !repeatable) {
                return Err(self.error(name, cause).uncertain(sent && !repeatable && self.is_writable()));
            }
            tracing::debug!(operation = name, file = %self.0.origin, %cause, "opening again");
            // Boxed because this rare case would enlarge the future of each request.
            Box::pin(self.recover(name, current.generation, &cause, to, end)).await?;
        }
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
            opened.hold.channel().post(close);
            self.error(name, cause)
        })?;
        self.0.recoveries.fetch_add(1, Ordering::Relaxed);
        let mut place = self.opened();
        // The status of the first open is kept because callers compare it.
        *place = Opened { stat: place.stat.take().or(opened.stat.clone()), ..opened };
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
    ) -> Result<Opened, Error> {
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

    async fn open_again(&self, route: &mut Route, generation: u64) -> Result<Opened, Error> {
        let with = &self.0.with;
        open(&self.0.client, route, with, with.again_options(), generation + 1).await
    }

    /// Checks that the reopened file is the lost one.
    fn check_again(&self, before: Option<&FileIdentity>, again: &Opened) -> Result<(), Cause> {
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
