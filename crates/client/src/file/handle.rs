//! Requests by handle, and opening the file again when the handle is lost with its connection.
//!
//! A file open for reading goes on at another server if a balancer knows one, else at the same; one open for writing only
//! at the same. What is found there must be what was left: as many bytes, and none of the acknowledged writes gone.
//! Source: xroot protocol 5.2.0, section 5.2.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use wire::xroot::FileHandle;
use wire::xroot::request::{Close, Request};

use super::{File, Opened, open};
use crate::channel::{Answer, Channel, Failed, Lost, Received, Sink};
use crate::encoded::Encoded;
use crate::failure::{Cause, Error};
use crate::route::{Balancer, Route, target};
use crate::settings::Settings;
use crate::url::Url;

/// How often one operation survives the loss of the file's connection.
const LOST_MAX: u32 = 4;
/// Rounds of attempts to reach a server again: some eight seconds, in which one can be restarted.
const ROUNDS_AGAIN: u64 = 6;
/// Time for opening a file again.
const AGAIN_TIME: Duration = Duration::from_secs(60);
/// Waits of zero seconds that are obeyed at once, before each one costs a moment.
const PROMPT_WAITS: u32 = 3;

/// The file as it is open at the moment.
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

    /// Makes a request whose answer is small.
    pub(crate) async fn ask(
        &self,
        name: &'static str,
        repeatable: bool,
        payload: Bytes,
        request: impl Fn(FileHandle) -> Encoded,
    ) -> Result<Received, Error> {
        self.ask_into(name, repeatable, payload, request, || Sink::Body).await
    }

    /// Makes a request until it is answered for good. One that is not `repeatable` is made once.
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
                    tokio::time::sleep(pause).await;
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
            };
            lost += 1;
            let stays = match cause {
                Cause::BadRedirect(_) => self.is_writable(),
                Cause::TimedOut(_) => !self.may_move(),
                _ => false,
            };
            let given_up = lost > LOST_MAX || stays || !self.may_recover() || Instant::now() >= end;
            if given_up || (sent && !repeatable) {
                return Err(self.error(name, cause).uncertain(sent && self.is_writable()));
            }
            tracing::debug!(operation = name, file = %self.0.origin, %cause, "opening again");
            // In a box: every request would be as large as this rare one.
            Box::pin(self.recover(name, current.generation, &cause, to, end)).await?;
        }
    }

    /// Whether it may go on at another server.
    fn may_move(&self) -> bool {
        let opened = self.opened();
        let elsewhere = |balancer: &Balancer| balancer.url.authority() != opened.at.authority();
        !self.0.with.is_writable() && opened.balancer.as_ref().is_some_and(elsewhere)
    }

    fn may_recover(&self) -> bool {
        let settings = self.0.client.settings();
        let switch = if self.is_writable() { &settings.write_recovery } else { &settings.read_recovery };
        Settings::is_on(switch) && !self.0.checkpoint.load(Ordering::Acquire)
    }

    /// Opens the file again, unless somebody else has since `generation`: where the server sends it (`to`), or where a
    /// balancer does, or where it was.
    pub(super) async fn recover(
        &self,
        name: &'static str,
        generation: u64,
        lost: &Cause,
        to: Option<Url>,
        end: Instant,
    ) -> Result<(), Error> {
        let _reopening = self.0.reopening.lock().await;
        let (at, balancer, before) = {
            let opened = self.opened();
            if opened.generation != generation {
                return Ok(());
            }
            (opened.at.clone(), opened.balancer.clone(), opened.stat.clone())
        };
        let place = at.authority();
        let was_at = place.clone();
        let end = end.min(Instant::now() + AGAIN_TIME);
        let mut opened = None;
        if let Some(to) = to {
            let mut route = self.way_back(to, balancer.clone(), end);
            opened = self.open_again(&mut route, generation).await.ok();
        } else if self.may_move() {
            let mut route = self.way_back(at.clone(), balancer.clone(), end);
            route.return_to_balancer("srverr");
            // If the balancer knows no other server, the one that was lost may come back.
            opened = self.open_again(&mut route, generation).await.ok();
        } else if !self.is_writable() {
            let others = self.0.origin.each().filter(|url| url.authority() != at.authority()).collect();
            if let Some(mut route) = self.way_back(at.clone(), None, end).among(others) {
                opened = self.open_again(&mut route, generation).await.ok();
            }
        }
        let opened = match opened {
            Some(opened) => opened,
            None => {
                self.open_again(&mut self.way_back(at, balancer, end), generation).await.map_err(|error| {
                    let cause =
                        Cause::NotRecovered { lost: lost.to_string(), again: error.cause().to_string() };
                    Error::new(name, &self.0.origin, cause).at(place, &[])
                })?
            }
        };
        let size = |stat: &Option<crate::answers::StatInfo>| stat.as_ref().map(|stat| stat.size);
        let moved = opened.at.authority() != was_at;
        self.same(size(&before), &opened, moved).map_err(|cause| {
            let close = Encoded::new(&Request::Close(Close { fhandle: opened.fhandle }));
            opened.hold.channel().post(close);
            self.error(name, cause)
        })?;
        self.0.recoveries.fetch_add(1, Ordering::Relaxed);
        let mut place = self.opened();
        // The status of the first open is what callers know the file by.
        *place = Opened { stat: place.stat.take().or(opened.stat.clone()), ..opened };
        Ok(())
    }

    fn way_back(&self, at: Url, balancer: Option<Balancer>, end: Instant) -> Route {
        Route::again(&self.0.client, &self.0.origin, at, balancer, ROUNDS_AGAIN, end)
    }

    async fn open_again(&self, route: &mut Route, generation: u64) -> Result<Opened, Error> {
        let with = &self.0.with;
        open(&self.0.client, route, with, with.again_options(), generation + 1).await
    }

    /// Whether what was opened again is what was lost.
    fn same(&self, before: Option<u64>, again: &Opened, moved: bool) -> Result<(), Cause> {
        let Some(now) = again.stat.as_ref().map(|stat| stat.size) else { return Ok(()) };
        let written_to = self.0.written_to.load(Ordering::Acquire);
        if self.is_writable() {
            if now < written_to {
                let text = format!("writes up to byte {written_to} were acknowledged, {now} bytes are left");
                return Err(Cause::Changed(text));
            }
        } else if let Some(before) = before
            // At its server a file may grow; another server's copy has to be the same.
            && (now < before || (moved && now != before))
        {
            return Err(Cause::Changed(format!("it had {before} bytes and has {now}")));
        }
        Ok(())
    }
}
