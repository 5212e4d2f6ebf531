//! Opens of a file: the first one, and those after a lost connection.
//!
//! A file open for reading is reopened at another server if a balancer knows one, otherwise at the
//! same. A file open for writing never moves to another server ([`Home`]), because an older replica
//! there would become a mixture of both.

use std::sync::Arc;

use tokio::time::Instant;
use wire::Decode;
use wire::xroot::flags::OpenOptions;
use wire::xroot::reply::{OpenDetail, OpenReply};
use wire::xroot::{ErrorCode, FileHandle};

use super::open_with::OpenWith;
use crate::answers::StatInfo;
use crate::changes::{self, look_at, not_asked};
use crate::channel::{BodyLimit, ChannelGuard};
use crate::client::Client;
use crate::failure::{Cause, Error};
use crate::identity::RemoteFileIdentity;
use crate::request_loop::Repeat;
use crate::route::{Balancer, PathRequest, Route};
use crate::url::Url;

/// Rounds of attempts to reconnect to a server: about eight seconds, enough for a restart.
const ROUNDS_AGAIN: u64 = 6;

/// The server and handle of the open file.
pub(super) struct OpenHandle {
    /// Number of opens.
    pub(super) generation: u64,
    pub(super) guard: Arc<ChannelGuard>,
    pub(super) fhandle: FileHandle,
    pub(super) at: Url,
    pub(super) home: Home,
    pub(super) stat: Option<StatInfo>,
    /// Identity of the file as reported by this open.
    pub(super) identity: Option<RemoteFileIdentity>,
}

/// The servers at which a file may be reopened after a lost connection.
#[derive(Clone)]
pub(super) enum Home {
    /// For readers: each server with the file that the balancer knows.
    Anywhere(Option<Box<Balancer>>),
    /// For writers: only the same server.
    Here,
}

impl OpenHandle {
    /// Reports whether the file may move to another server.
    pub(super) fn may_move(&self) -> bool {
        let Home::Anywhere(balancer) = &self.home else { return false };
        may_move(&self.at, balancer.as_deref())
    }
}

/// Reports whether a file at the server `at` may move to another one that its balancer knows.
fn may_move(at: &Url, balancer: Option<&Balancer>) -> bool {
    balancer.is_some_and(|balancer| balancer.url.authority() != at.authority())
}

/// Opens a file.
pub(super) struct FileOpening<'a> {
    pub(super) client: &'a Client,
    /// The URL of the user.
    pub(super) origin: &'a Url,
    pub(super) with: &'a OpenWith,
}

impl FileOpening<'_> {
    /// Opens the file for the first time.
    pub(super) async fn first(&self) -> Result<OpenHandle, Error> {
        let mut route = Route::new(self.client, self.origin, self.client.end());
        match self.open(&mut route, self.with.sent_options(), 0).await {
            Err(error) if error.is_uncertain() && self.with.options.intersects(OpenOptions::NEW) => {
                Box::pin(self.created(&route, error)).await
            }
            opened => opened,
        }
    }

    /// Determines the fate of a new file whose open lost its reply. If the file does not exist, it
    /// is created now: the server has ended the session of the lost connection, and with it the
    /// request.
    async fn created(&self, lost: &Route, error: Error) -> Result<OpenHandle, Error> {
        let at = &lost.at;
        match look_at(self.client, at).await {
            // The connection is alive, so the server may still execute the request.
            Ok(None) if matches!(error.cause(), Cause::TimedOut(_)) => {
                return Err(error.afterwards("there is none of that name now"));
            }
            Ok(None) => {}
            Ok(Some(found)) if found.size == 0 => {
                return Err(error.afterwards("there is an empty file of that name"));
            }
            Ok(Some(found)) => {
                let text = format!("there is a file of {} bytes", found.size);
                let cause = Cause::Server { code: ErrorCode::IT_EXISTS, text };
                return Err(Error::new("open", &lost.origin, cause).at(at.authority(), &[]));
            }
            Err(why) => return Err(not_asked(error, &why)),
        }
        let mut route =
            Route::back_to(self.client, &lost.origin, at.clone(), changes::ROUNDS_AGAIN, self.client.end());
        let opened = self.open(&mut route, self.with.sent_options(), 0).await;
        // The existing file may be the result of the first request.
        opened.map_err(|error| error.uncertain(true))
    }

    /// Opens the file again at its server `at`.
    pub(super) async fn again_at(&self, at: Url, generation: u64, end: Instant) -> Result<OpenHandle, Error> {
        let mut route = Route::back_to(self.client, self.origin, at, ROUNDS_AGAIN, end);
        self.again(&mut route, generation).await
    }

    /// Opens a file that was open for reading again, at any server that has it.
    pub(super) async fn again_anywhere(
        &self,
        at: Url,
        balancer: Option<Balancer>,
        to: Option<Url>,
        generation: u64,
        end: Instant,
    ) -> Result<OpenHandle, Error> {
        let way = |at: Url, balancer: Option<Balancer>| {
            Route::again(self.client, self.origin, at, balancer, ROUNDS_AGAIN, end)
        };
        let first = if let Some(to) = to {
            Some(way(to, balancer.clone()))
        } else if may_move(&at, balancer.as_ref()) {
            let mut route = way(at.clone(), balancer.clone());
            route.return_to_balancer("srverr");
            // If the balancer knows no other server, the lost one may return.
            Some(route)
        } else {
            let others = self.origin.each().filter(|url| url.authority() != at.authority()).collect();
            way(at.clone(), None).among(others)
        };
        if let Some(mut route) = first
            && let Ok(opened) = self.again(&mut route, generation).await
        {
            return Ok(opened);
        }
        self.again(&mut way(at, balancer), generation).await
    }

    /// Opens the file again along `route`. `generation` is that of the lost open.
    async fn again(&self, route: &mut Route, generation: u64) -> Result<OpenHandle, Error> {
        self.open(route, self.with.again_options(), generation + 1).await
    }

    /// Opens the file along `route`.
    async fn open(
        &self,
        route: &mut Route,
        options: OpenOptions,
        generation: u64,
    ) -> Result<OpenHandle, Error> {
        let with = self.with;
        let request = |url: &Url, waited: bool| {
            let options = if waited { options.without(OpenOptions::REFRESH) } else { options };
            with.request(&url.target(), options)
        };
        let repeat = match options {
            options if options.intersects(OpenOptions::NEW) => Repeat::Never,
            // An open that truncates or creates must not move. Its result would remain at one server
            // while the file is written at another.
            options if options.intersects(OpenOptions::DELETE) => Repeat::AtServer,
            _ => Repeat::Anywhere,
        };
        let ask =
            PathRequest { name: "open", repeat, slow: false, limit: BodyLimit::ANSWER, request: &request };
        let mut arrived = route.ask(self.client, &ask).await?;
        let reply = OpenReply::decode(&arrived.received.body).map_err(|error| route.error("open", error))?;
        let stat = match &reply.detail {
            OpenDetail::Stat(stat) => Some(StatInfo::of(stat)),
            OpenDetail::None | OpenDetail::Compression => None,
        };
        let is_writable = with.is_writable();
        let identity =
            stat.as_ref().map(|stat| RemoteFileIdentity::new(route.at.authority(), stat, is_writable));
        if let Some(handle) = arrived.received.handle.take() {
            handle.claim();
        }
        Ok(OpenHandle {
            generation,
            guard: Arc::new(arrived.channel.guard()),
            fhandle: reply.fhandle,
            at: route.at.clone(),
            home: if is_writable { Home::Here } else { Home::Anywhere(route.balancer.clone().map(Box::new)) },
            stat,
            identity,
        })
    }
}
