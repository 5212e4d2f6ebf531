//! [`OriginPlace`]: a server with its circuit breaker.
//!
//! While requests wait and the server answers none of them for [`SILENCE`], a probe logs in over a
//! new connection. A server that is busy with slow requests still answers a probe, so slow is not
//! dead. After a failed probe or a failed connection the breaker is open: requests that wait and
//! new ones fail at once, and probes continue until one succeeds. A server that is followed
//! ([`OriginPlace::follow`]) is probed without requests too, which opens no breaker.

mod follow;

use crate::limits::RequestLane;
use base::LineLimit;
use client::xroot::ErrorCode;
use client::{Cause, Error};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;

/// Time without any reply, while requests wait, after which the server is probed.
const SILENCE: Duration = Duration::from_secs(2);
/// Deadline of a probe. With [`SILENCE`] and [`TICK`], the first requests at a dead server fail
/// within 5 s.
const PROBE_TIME: Duration = Duration::from_millis(2400);
/// Interval at which the silence of a server is checked while requests wait.
const TICK: Duration = Duration::from_millis(250);
/// Pause between two probes of a server whose breaker is open.
const PROBE_PAUSE: Duration = Duration::from_millis(1500);

/// Time without requests after which a server whose breaker is open is no longer probed.
const UNUSED: Duration = Duration::from_secs(60);

const _: () = assert!(SILENCE.as_millis() + TICK.as_millis() + PROBE_TIME.as_millis() < 5000);

/// A failure of a probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ProbeFailure {
    /// The server does not answer, with the reason.
    Silent(String),
    /// The name of the server has no address, with the reason.
    Unresolved(String),
    /// This machine could not make the probe, so it shows nothing.
    NotMade,
}

/// A probe of a server.
pub(crate) type Probe = dyn Fn() -> Probing + Send + Sync;

/// A probe in progress.
pub(crate) type Probing = Pin<Box<dyn Future<Output = Result<(), ProbeFailure>> + Send>>;

/// Reports whether there are connections to a server.
pub(crate) type IsConnected = dyn Fn() -> bool + Send + Sync;

/// The functions by which a place examines its server.
pub(crate) struct PlaceHooks {
    pub(crate) probe: Box<Probe>,
    pub(crate) is_connected: Box<IsConnected>,
}

/// The reason why a request to a server has no result.
#[derive(Debug)]
pub(crate) enum RequestFailure {
    /// The error of the client.
    Client(Error),
    /// The breaker is open, with the reason.
    NotAnswering(Arc<str>),
    /// The breaker has opened, with the reason, and the origin may still make the change.
    MayBeMade(Arc<str>),
    /// Too many requests wait for this origin.
    Busy,
    /// The client has disconnected.
    Cancelled,
    /// The file is another version than the client has opened.
    Changed,
    /// The file does not persist, because a change of it has failed.
    Incomplete,
    /// The failure of a request for which several reads have waited.
    Shared(Arc<Self>),
}

impl RequestFailure {
    /// Returns the failure of a change that the origin may have received.
    pub(crate) fn of_change(self) -> Self {
        match self {
            Self::NotAnswering(reason) => Self::MayBeMade(reason),
            other => other,
        }
    }

    /// Reports whether a change that has failed was certainly not made.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            // A change that was sent fails with `MayBeMade`.
            Self::NotAnswering(_) | Self::Busy => true,
            Self::Client(error) if error.is_uncertain() => false,
            Self::Client(error) => match error.cause() {
                Cause::Server { code, .. } => REFUSALS.contains(code),
                Cause::NotAllowed(_) | Cause::NotAuthenticated(_) | Cause::Unsupported(_) => true,
                _ => false,
            },
            Self::Shared(failure) => failure.is_refusal(),
            Self::MayBeMade(_) | Self::Cancelled | Self::Changed | Self::Incomplete => false,
        }
    }
}

/// Errors with which an origin refuses a change. After others, a part of it may have been made.
const REFUSALS: [ErrorCode; 13] = [
    ErrorCode::ARG_INVALID,
    ErrorCode::ARG_MISSING,
    ErrorCode::ARG_TOO_LONG,
    ErrorCode::AUTH_FAILED,
    ErrorCode::FILE_LOCKED,
    ErrorCode::FS_READ_ONLY,
    ErrorCode::INVALID_REQUEST,
    ErrorCode::IS_DIRECTORY,
    ErrorCode::IT_EXISTS,
    ErrorCode::NOT_AUTHORIZED,
    ErrorCode::NOT_FILE,
    ErrorCode::NOT_FOUND,
    ErrorCode::UNSUPPORTED,
];

/// A server at which requests are made.
pub(crate) struct OriginPlace {
    authority: String,
    /// Requests about files that are open here.
    pub(crate) data: RequestLane,
    hooks: PlaceHooks,
    runtime: Handle,
    /// Limits lines of the log; `None` if the operator has named the server.
    log: Option<Arc<LineLimit>>,
    /// The reason why the breaker is open; `None` while it is closed.
    failed: watch::Sender<Option<Arc<str>>>,
    activity: Mutex<RequestActivity>,
    /// Number of times that the breaker has opened.
    trips: AtomicU64,
    /// Set if the state of the server matters without requests.
    is_followed: AtomicBool,
    /// Set while probes of a server that is followed fail.
    is_away: watch::Sender<bool>,
}

struct RequestActivity {
    /// Requests without a reply.
    waiting: usize,
    /// The time of the last reply, of the last successful probe, or of the first request after a
    /// time without requests.
    last_sign: Instant,
    /// The time of the last reply.
    last_reply: Option<Instant>,
    /// The time of the last request, also if the breaker refused it.
    last_request: Instant,
    is_watched: bool,
}

/// A request without a reply.
pub(crate) struct WaitingRequest(Arc<OriginPlace>);

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        self.0.activity().waiting -= 1;
    }
}

impl OriginPlace {
    /// Creates a place whose breaker is closed.
    pub(crate) fn new(
        authority: String,
        runtime: Handle,
        hooks: PlaceHooks,
        (data, log): (RequestLane, Option<Arc<LineLimit>>),
    ) -> Arc<Self> {
        let activity = RequestActivity {
            waiting: 0,
            last_sign: Instant::now(),
            last_reply: None,
            last_request: Instant::now(),
            is_watched: false,
        };
        Arc::new(Self {
            authority,
            data,
            hooks,
            runtime,
            log,
            failed: watch::Sender::new(None),
            activity: Mutex::new(activity),
            trips: AtomicU64::new(0),
            is_followed: AtomicBool::new(false),
            is_away: watch::Sender::new(false),
        })
    }

    fn activity(&self) -> MutexGuard<'_, RequestActivity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// Reports whether the breaker is open.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.borrow().is_some()
    }

    /// Returns the reason why a request fails at once, if the breaker is open.
    pub(crate) fn failure(&self) -> Option<Arc<str>> {
        self.activity().last_request = Instant::now();
        self.failed.borrow().clone()
    }

    /// Returns the number of times that the breaker has opened.
    pub(crate) fn trips(&self) -> u64 {
        self.trips.load(Ordering::Acquire)
    }

    /// Makes a request. It fails at once while the breaker is open, and when it opens.
    pub(crate) async fn run<T>(
        self: &Arc<Self>,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, RequestFailure> {
        self.run_again(&mut None, work).await
    }

    /// Makes a request as [`OriginPlace::run`] does, which was begun before if `waiting` is set. It stays
    /// there, so that a request which is begun again and again is one request without a reply.
    pub(crate) async fn run_again<T>(
        self: &Arc<Self>,
        waiting: &mut Option<WaitingRequest>,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, RequestFailure> {
        self.activity().last_request = Instant::now();
        let mut failed = self.failed.subscribe();
        if let Some(reason) = failed.borrow_and_update().clone() {
            return Err(RequestFailure::NotAnswering(reason));
        }
        if waiting.as_ref().is_none_or(|waiting| !Arc::ptr_eq(&waiting.0, self)) {
            *waiting = Some(self.begin());
        }
        let opened = async {
            let open = failed.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
            open.unwrap_or_else(|| "it is no longer used".into())
        };
        tokio::select! {
            biased;
            result = work => {
                self.note(&result);
                result.map_err(RequestFailure::Client)
            }
            reason = opened => Err(RequestFailure::NotAnswering(reason)),
        }
    }

    /// Counts a request, and starts the watch with the first one.
    fn begin(self: &Arc<Self>) -> WaitingRequest {
        let mut activity = self.activity();
        if activity.waiting == 0 {
            activity.last_sign = Instant::now();
        }
        activity.waiting += 1;
        activity.last_request = Instant::now();
        if !std::mem::replace(&mut activity.is_watched, true) {
            self.runtime.spawn(watch_silence(Arc::downgrade(self)));
        }
        drop(activity);
        WaitingRequest(self.clone())
    }

    /// Takes the result of a request as a sign of life, or as the end of the server.
    pub(crate) fn note<T>(self: &Arc<Self>, result: &Result<T, Error>) {
        let Err(error) = result else { return self.note_reply() };
        let failure = error.failure();
        let is_here = failure.server.as_ref().is_none_or(|server| *server == self.authority);
        match error.cause() {
            // One connection that fails shows little about a server that answers on others.
            Cause::Unreachable(_) | Cause::Unresolved(_) if is_here && !self.is_alive() => {
                self.trip(&failure.cause.to_string());
            }
            // A later request may find the same. The watch decides then.
            Cause::Unreachable(_)
            | Cause::Unresolved(_)
            | Cause::NoResources(_)
            | Cause::Lost(_)
            | Cause::TimedOut(_)
            | Cause::NotRecovered { .. } => {}
            _ => self.note_reply(),
        }
    }

    fn note_reply(&self) {
        let (mut activity, now) = (self.activity(), Instant::now());
        (activity.last_sign, activity.last_reply) = (now, Some(now));
    }

    /// Reports whether the server has replied a short time ago, or is connected.
    fn is_alive(&self) -> bool {
        let last = self.activity().last_reply;
        last.is_some_and(|last| last.elapsed() < SILENCE) || (self.hooks.is_connected)()
    }

    /// Opens the breaker, and probes the server until it answers.
    fn trip(self: &Arc<Self>, reason: &str) {
        let is_new = self.failed.send_if_modified(|failed| {
            let is_new = failed.is_none();
            if is_new {
                self.trips.fetch_add(1, Ordering::AcqRel);
                *failed = Some(reason.into());
            }
            is_new
        });
        if is_new {
            self.log_failure(reason);
            self.runtime.spawn(await_recovery(Arc::downgrade(self)));
        }
    }

    fn log_failure(&self, reason: &str) {
        let (origin, text) = (&self.authority, "the origin does not answer");
        match &self.log {
            None => tracing::warn!(origin, reason, "{text}"),
            Some(log) if log.admit().is_some() => tracing::info!(origin, reason, "{text}"),
            Some(_) => {}
        }
    }

    fn log_return(&self) {
        if self.log.as_ref().is_none_or(|log| log.admit().is_some()) {
            tracing::info!(origin = self.authority, "the origin answers again");
        }
    }

    /// Probes the server. Returns the reason why its breaker must open.
    async fn examine(&self) -> Option<String> {
        match self.probe().await {
            Ok(()) => self.activity().last_sign = Instant::now(),
            Err(ProbeFailure::Silent(reason)) => return Some(reason),
            Err(ProbeFailure::Unresolved(reason)) if !(self.hooks.is_connected)() => return Some(reason),
            Err(ProbeFailure::Unresolved(_) | ProbeFailure::NotMade) => {}
        }
        None
    }

    async fn probe(&self) -> Result<(), ProbeFailure> {
        let silent = || format!("no answer within {:.1} s", PROBE_TIME.as_secs_f64());
        tokio::time::timeout(PROBE_TIME, (self.hooks.probe)())
            .await
            .unwrap_or_else(|_| Err(ProbeFailure::Silent(silent())))
    }
}

/// Probes a server that is silent while requests wait. Ends when none waits.
async fn watch_silence(place: Weak<OriginPlace>) {
    loop {
        tokio::time::sleep(TICK).await;
        let Some(place) = place.upgrade() else { return };
        let is_silent = {
            let mut activity = place.activity();
            if activity.waiting == 0 {
                activity.is_watched = false;
                return;
            }
            activity.last_sign.elapsed() >= SILENCE
        };
        if is_silent
            && !place.has_failed()
            && let Some(reason) = place.examine().await
        {
            place.trip(&reason);
        }
    }
}

/// Probes a server until it answers, or until nobody has used or followed it for [`UNUSED`]. Then it closes
/// the breaker.
async fn await_recovery(place: Weak<OriginPlace>) {
    loop {
        tokio::time::sleep(PROBE_PAUSE).await;
        let Some(place) = place.upgrade() else { return };
        let is_followed = place.is_followed.load(Ordering::Acquire);
        if !is_followed && place.activity().last_request.elapsed() >= UNUSED {
            // The next request finds out.
            place.failed.send_replace(None);
            return;
        }
        if place.probe().await.is_ok() {
            place.activity().last_sign = Instant::now();
            place.failed.send_replace(None);
            place.log_return();
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// The place has connections.
        static CONNECTED: Cell<bool> = const { Cell::new(false) };
    }

    /// Returns a place whose probes succeed while the switch is on, and the switch.
    pub(super) fn place() -> (Arc<OriginPlace>, Arc<AtomicBool>) {
        let answers = Arc::new(AtomicBool::new(true));
        let probe = answers.clone();
        let probe = move || -> Probing {
            let answers = probe.load(Ordering::Relaxed);
            Box::pin(async move { if answers { Ok(()) } else { std::future::pending().await } })
        };
        let is_connected = || CONNECTED.get();
        let hooks = PlaceHooks { probe: Box::new(probe), is_connected: Box::new(is_connected) };
        let data = RequestLane::new(1, 1, UNUSED);
        let place = OriginPlace::new("o:1094".to_owned(), Handle::current(), hooks, (data, None));
        (place, answers)
    }

    pub(super) async fn request(place: &Arc<OriginPlace>, seconds: u64) -> Result<(), RequestFailure> {
        let work = async {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok(())
        };
        place.run(work).await
    }

    fn unreachable(server: &str) -> Error {
        Error::new("stat", "/a", Cause::Unreachable("refused".to_owned())).at(server, &[])
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_request_of_a_living_server_is_not_ended() {
        let (place, _) = place();
        request(&place, 100).await.unwrap();
        assert_eq!(place.trips(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_of_a_silent_server_fail_within_five_seconds_and_then_at_once() {
        let (place, answers) = place();
        answers.store(false, Ordering::Relaxed);
        let begun = Instant::now();
        let failed = request(&place, 100).await;
        assert!(matches!(failed, Err(RequestFailure::NotAnswering(_))), "{failed:?}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        let again = Instant::now();
        assert!(request(&place, 0).await.is_err());
        assert_eq!(again.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_begun_again_does_not_postpone_the_probe() {
        let (place, answers) = place();
        answers.store(false, Ordering::Relaxed);
        let (begun, mut waiting) = (Instant::now(), None);
        loop {
            let request = place.run_again(&mut waiting, std::future::pending::<Result<(), Error>>());
            if tokio::time::timeout(SILENCE / 2, request).await.is_ok() {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        }
        drop(waiting);
        assert_eq!((place.activity().waiting, place.trips()), (0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_answers_again_is_used_within_ten_seconds() {
        let (place, answers) = place();
        answers.store(false, Ordering::Relaxed);
        request(&place, 100).await.unwrap_err();
        for _ in 0..10 {
            tokio::time::sleep(UNUSED / 2).await;
            assert!(place.failure().is_some());
        }
        answers.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        while place.failure().is_some() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        request(&place, 1).await.unwrap();
        assert_eq!(place.trips(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_connection_opens_the_breaker_of_its_own_server_only() {
        let (place, _) = place();
        place.run(async { Err::<(), _>(unreachable("other:1094")) }).await.unwrap_err();
        assert!(place.failure().is_none());
        place.run(async { Err::<(), _>(unreachable("o:1094")) }).await.unwrap_err();
        assert!(place.failure().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn one_failed_connection_does_not_end_the_requests_of_others() {
        let (place, _) = place();
        request(&place, 1).await.unwrap();
        place.run(async { Err::<(), _>(unreachable("o:1094")) }).await.unwrap_err();
        assert!(place.failure().is_none(), "it has just replied");
        tokio::time::advance(SILENCE).await;
        CONNECTED.set(true);
        let unresolved = || Error::new("stat", "/a", Cause::Unresolved("no".to_owned()));
        place.run(async { Err::<(), _>(unresolved()) }).await.unwrap_err();
        assert!(place.failure().is_none(), "it is connected");
        CONNECTED.set(false);
        let lack = Error::new("stat", "/a", Cause::NoResources("no descriptors".to_owned()));
        place.run(async { Err::<(), _>(lack) }).await.unwrap_err();
        assert!(place.failure().is_none(), "the fault is here");
        place.run(async { Err::<(), _>(unresolved()) }).await.unwrap_err();
        assert!(place.failure().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_nobody_uses_is_no_longer_probed() {
        let (place, answers) = place();
        answers.store(false, Ordering::Relaxed);
        request(&place, 100).await.unwrap_err();
        tokio::time::sleep(UNUSED * 2).await;
        assert!(place.failed.borrow().is_none());
        // The next request finds that it is still dead.
        request(&place, 100).await.unwrap_err();
        assert_eq!(place.trips(), 2);
    }
}
