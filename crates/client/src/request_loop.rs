//! The loop that sends one request until a server gives the final reply.
//!
//! Everything that bounds a request is here: its deadline, the pauses that servers ask for, the
//! numbers of lost connections and redirects, and the rule for requests that must not be made
//! twice. A [`RecoveryPolicy`] decides where the next attempt goes: a request about a path is
//! routed freely (`route`), a request by file handle stays with its file, which is reopened
//! (`file/handle`). Source: xroot protocol 5.2.0, sections 3.4 to 3.6.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use wire::xroot::ErrorCode;

use crate::channel::{ConnectionLoss, Deadlines, MissingReply, ReplyContent, ServerReply};
use crate::client::Client;
use crate::failure::{Cause, Error};
use crate::url::Url;
use crate::waits::WaitFor;

/// Maximum number of connections lost during one request, for each host of its URL.
pub(crate) const LOST_MAX: u32 = 4;
/// Number of waits of zero seconds that are obeyed immediately. Each further one costs a backoff of
/// [`BACKOFF`].
const PROMPT_WAITS: u32 = 3;
/// Shortest pause after several waits.
const BACKOFF: Duration = Duration::from_millis(100);

/// Rule for a request whose reply is lost. The server may have carried it out, or may still do so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Repeat {
    /// It is repeated, here or elsewhere, because making it twice has the same effect as making it
    /// once.
    Anywhere,
    /// It is repeated at the same server only, because its effects there would remain.
    AtServer,
    /// It is not repeated. The caller determines the outcome, otherwise the outcome is uncertain.
    Never,
    /// It is not repeated, because it has no effect that outlives its connection.
    Needless,
    /// It is not repeated even if it was not sent, because it is valid on one connection only.
    Once,
}

impl Repeat {
    pub(crate) const fn if_harmless(is_harmless: bool) -> Self {
        if is_harmless { Self::Anywhere } else { Self::Never }
    }
}

/// The result of sending a request.
pub(crate) struct Exchange {
    pub(crate) reply: Result<ServerReply, MissingReply>,
    /// Set if the reply came, or should have come, from a manager.
    pub(crate) at_manager: bool,
}

/// The loss of a reply that the request survives.
pub(crate) struct LostReply {
    pub(crate) cause: Cause,
    pub(crate) kind: LossKind,
}

/// The state of a server whose reply is lost. It determines where the request may be repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LossKind {
    /// The connection ended. The server may reply on a new one.
    Disconnected,
    /// The server was silent for the first time. The request is repeated there only if no other
    /// server is known, because the timeout has taken long already.
    Silent,
    /// The server was silent again, or too many connections were lost. Only another host of the URL
    /// can help.
    Exhausted,
    /// The connection is alive, or the server violates the protocol, so that only another server
    /// can help.
    Unusable,
}

/// The place of the next attempt, and the error if there is none.
pub(crate) trait RecoveryPolicy {
    /// Connects to the current server, sends the request and waits for the reply.
    ///
    /// # Errors
    /// The [`Cause`] if no connection can be made.
    async fn send(&mut self, attempts: &Attempts<'_>) -> Result<Exchange, Cause>;

    /// Returns the URL at the current server.
    fn server(&self) -> Url;

    /// Returns the address of the server to which the request was sent last. The current server may
    /// be another one by the time of the loss.
    fn asked(&self) -> String;

    /// Creates the final error of the request at the current server.
    fn error(&mut self, cause: Cause) -> Error;

    /// Records that the current server may have carried out the request: it is made at no other
    /// server, and a later failure is uncertain.
    fn pin(&mut self);

    /// Chooses another server after a failure to connect.
    fn unreachable(&mut self, attempts: &mut Attempts<'_>, cause: Cause) -> Result<(), Error>;

    /// Chooses another server after an error reply.
    fn refused(&mut self, attempts: &mut Attempts<'_>, code: ErrorCode, text: String) -> Result<(), Error>;

    /// Follows a redirect.
    async fn redirected(
        &mut self,
        attempts: &mut Attempts<'_>,
        port: i32,
        host: Vec<u8>,
    ) -> Result<(), Error>;

    /// Recovers from a lost reply.
    async fn lost(&mut self, attempts: &mut Attempts<'_>, loss: LostReply) -> Result<(), Error>;
}

/// The attempts at one request so far, and their limits.
pub(crate) struct Attempts<'a> {
    pub(crate) client: &'a Client,
    /// Name of the request in errors.
    pub(crate) name: &'static str,
    /// Deadline of the request with all its attempts.
    pub(crate) end: Instant,
    repeat: Repeat,
    /// Set if a server may work on the request for long without a reply.
    slow: bool,
    /// Number of lost connections at the current host of the URL.
    lost: u32,
    /// Number of obeyed waits.
    waits: u32,
    /// Number of redirects, and of replies that led to another server, since that host.
    redirects: u64,
    /// The servers that were silent once.
    silent: Vec<String>,
}

impl<'a> Attempts<'a> {
    pub(crate) fn new(client: &'a Client, name: &'static str, repeat: Repeat, end: Instant) -> Self {
        let silent = Vec::new();
        Self { client, name, end, repeat, slow: false, lost: 0, waits: 0, redirects: 0, silent }
    }

    /// Grants the server all of the time for the reply.
    pub(crate) fn slow(mut self, slow: bool) -> Self {
        self.slow = slow;
        self
    }

    /// Returns the deadlines of the next reply.
    pub(crate) fn until(&self) -> Deadlines {
        if self.slow { Deadlines { answer: self.end, end: self.end } } else { self.client.until(self.end) }
    }

    /// Reports whether a server has asked to wait.
    pub(crate) const fn has_waited(&self) -> bool {
        self.waits > 0
    }

    /// Grants the next host of the URL the numbers of lost connections and redirects of the first.
    pub(crate) const fn begin_host(&mut self) {
        (self.lost, self.redirects) = (0, 0);
    }

    /// Returns the number of lost connections at the current host of the URL.
    pub(crate) const fn lost(&self) -> u32 {
        self.lost
    }

    /// Reports whether the request must not be made at another server after an error reply.
    pub(crate) fn is_for_one_server(&self) -> bool {
        matches!(self.repeat, Repeat::Never | Repeat::Once)
    }

    /// Counts a redirect, or a reply that leads to another server.
    pub(crate) fn count_redirect(&mut self) -> Result<(), Cause> {
        self.redirects += 1;
        let limit = self.client.settings().redirect_limit;
        if self.redirects > limit { Err(Cause::RedirectLimit(limit)) } else { Ok(()) }
    }

    /// Sends the request until it has a final reply.
    pub(crate) async fn run<D: RecoveryPolicy>(mut self, policy: &mut D) -> Result<ReplyContent, Error> {
        loop {
            if let Some(pacing) = self.client.pacing() {
                let began = Instant::now();
                if timeout_at(self.end, pacing.resume()).await.is_err() {
                    return Err(policy.error(Cause::TimedOut(began.elapsed().as_secs())));
                }
            }
            let Exchange { reply, at_manager } = match policy.send(&self).await {
                Ok(exchange) => exchange,
                Err(cause) => {
                    self.not_connected(policy, cause)?;
                    continue;
                }
            };
            match reply {
                Ok(ServerReply::Ok(received)) => return Ok(received),
                Ok(ServerReply::Error { code, text }) => policy.refused(&mut self, code, text)?,
                Ok(ServerReply::Redirect { port, host }) => {
                    self.count_redirect().map_err(|cause| policy.error(cause))?;
                    policy.redirected(&mut self, port, host).await?;
                }
                Ok(ServerReply::Wait { pause, text }) => self.pause(policy, pause, text).await?,
                Err(MissingReply::TooLarge(limit)) => return Err(policy.error(Cause::too_large(&limit))),
                Err(MissingReply::TimedOut(seconds)) => {
                    let loss = LostReply { cause: Cause::TimedOut(seconds), kind: LossKind::Unusable };
                    self.recover(policy, loss, true, at_manager).await?;
                }
                Err(MissingReply::Lost { reason, sent }) => {
                    let loss = self.loss(policy, reason);
                    self.recover(policy, loss, sent, at_manager).await?;
                }
            }
        }
    }

    /// Handles a failure to connect.
    fn not_connected(&mut self, policy: &mut impl RecoveryPolicy, cause: Cause) -> Result<(), Error> {
        let is_final = matches!(cause, Cause::Unsupported(_) | Cause::Closed);
        if is_final || Instant::now() >= self.end {
            return Err(policy.error(cause));
        }
        self.lost += 1;
        policy.unreachable(self, cause)
    }

    /// Waits as long as the server asks for.
    async fn pause(
        &mut self,
        policy: &mut impl RecoveryPolicy,
        pause: Duration,
        text: String,
    ) -> Result<(), Error> {
        self.waits += 1;
        let least = if self.waits > PROMPT_WAITS { BACKOFF } else { Duration::ZERO };
        let pause = pause.max(least);
        if Instant::now() + pause > self.end {
            return Err(policy.error(Cause::Expired { seconds: pause.as_secs(), text }));
        }
        let (at, until) = (policy.server(), Instant::now() + pause);
        let (operation, seconds) = (self.name, pause.as_secs());
        tracing::debug!(operation, server = %at.authority(), seconds, text, "asked to wait");
        let _waiting = self.client.waits().begin(&at, WaitFor::Pause { until, text });
        if let Some(pacing) = self.client.pacing() {
            pacing.pause();
        }
        tokio::time::sleep_until(until).await;
        Ok(())
    }

    /// Describes a lost connection.
    fn loss(&mut self, policy: &impl RecoveryPolicy, reason: ConnectionLoss) -> LostReply {
        match reason {
            ConnectionLoss::Protocol(error) => {
                LostReply { cause: Cause::Connection(error), kind: LossKind::Unusable }
            }
            ConnectionLoss::Silent(_) => {
                let server = policy.asked();
                let kind = match self.silent.contains(&server) {
                    true => LossKind::Exhausted,
                    false => LossKind::Silent,
                };
                self.silent.push(server);
                LostReply { cause: Cause::Lost(reason.to_string()), kind }
            }
            reason => LostReply { cause: Cause::Lost(reason.to_string()), kind: LossKind::Disconnected },
        }
    }

    /// Handles a lost reply to a request that the server may have received (`sent`).
    async fn recover(
        &mut self,
        policy: &mut impl RecoveryPolicy,
        mut loss: LostReply,
        sent: bool,
        at_manager: bool,
    ) -> Result<(), Error> {
        // A manager does not open files itself.
        let repeat = if at_manager && self.name == "open" { Repeat::Anywhere } else { self.repeat };
        let is_last = match repeat {
            Repeat::Anywhere => false,
            Repeat::Needless => sent,
            Repeat::AtServer | Repeat::Never | Repeat::Once => {
                if sent {
                    policy.pin();
                }
                repeat == Repeat::Once || (sent && repeat == Repeat::Never)
            }
        };
        self.lost += 1;
        if is_last || Instant::now() >= self.end {
            return Err(policy.error(loss.cause));
        }
        if self.lost > LOST_MAX {
            loss.kind = LossKind::Exhausted;
        }
        policy.lost(self, loss).await
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::pacing::RequestPacing;
    use crate::settings::Settings;

    /// A policy with scripted replies, and the calls that it received.
    struct Scripted {
        replies: VecDeque<Result<Exchange, Cause>>,
        calls: Vec<&'static str>,
        sent: u32,
        server: &'static str,
        is_pinned: bool,
    }

    impl RecoveryPolicy for Scripted {
        async fn send(&mut self, _: &Attempts<'_>) -> Result<Exchange, Cause> {
            self.sent += 1;
            self.replies.pop_front().unwrap_or(Err(Cause::Closed))
        }

        fn server(&self) -> Url {
            Url::parse(&format!("root://{}//a", self.server)).unwrap()
        }

        fn asked(&self) -> String {
            self.server.to_owned()
        }

        fn error(&mut self, cause: Cause) -> Error {
            Error::new("test", "a", cause).uncertain(self.is_pinned)
        }

        fn pin(&mut self) {
            self.is_pinned = true;
        }

        fn unreachable(&mut self, _: &mut Attempts<'_>, _: Cause) -> Result<(), Error> {
            self.calls.push("unreachable");
            Ok(())
        }

        fn refused(&mut self, _: &mut Attempts<'_>, _: ErrorCode, _: String) -> Result<(), Error> {
            self.calls.push("refused");
            Ok(())
        }

        async fn redirected(&mut self, _: &mut Attempts<'_>, _: i32, host: Vec<u8>) -> Result<(), Error> {
            self.calls.push("redirected");
            self.server = if host == b"b" { "b" } else { "a" };
            Ok(())
        }

        async fn lost(&mut self, _: &mut Attempts<'_>, loss: LostReply) -> Result<(), Error> {
            self.calls.push(match loss.kind {
                LossKind::Disconnected => "lost",
                LossKind::Silent => "silent",
                LossKind::Exhausted => "exhausted",
                LossKind::Unusable => "elsewhere",
            });
            Ok(())
        }
    }

    fn script(replies: impl IntoIterator<Item = Result<ServerReply, MissingReply>>) -> Scripted {
        let replies = replies.into_iter().map(|reply| Ok(Exchange { reply, at_manager: false }));
        let (calls, replies) = (Vec::new(), replies.collect());
        Scripted { replies, calls, sent: 0, server: "a", is_pinned: false }
    }

    fn ok() -> Result<ServerReply, MissingReply> {
        Ok(ServerReply::Ok(ReplyContent {
            body: Vec::new(),
            block: None,
            pages: Vec::new(),
            charge: None,
            handle: None,
        }))
    }

    fn lost(reason: ConnectionLoss, sent: bool) -> Result<ServerReply, MissingReply> {
        Err(MissingReply::Lost { reason, sent })
    }

    fn wait(seconds: u64) -> Result<ServerReply, MissingReply> {
        Ok(ServerReply::Wait { pause: Duration::from_secs(seconds), text: "staging".to_owned() })
    }

    fn redirect(host: &str) -> Result<ServerReply, MissingReply> {
        Ok(ServerReply::Redirect { port: 0, host: host.as_bytes().to_vec() })
    }

    /// Runs a request with 100 s of time.
    async fn run(scripted: &mut Scripted, name: &'static str, repeat: Repeat) -> Result<(), Error> {
        let client = Client::with(Settings::default(), crate::Credentials::none(), "test");
        let attempts = Attempts::new(&client, name, repeat, Instant::now() + Duration::from_secs(100));
        attempts.run(scripted).await.map(|_| ())
    }

    #[tokio::test(start_paused = true)]
    async fn lost_connections_are_survived_up_to_the_limit() {
        // After the limit, only another host of the URL can help.
        for (losses, is_exhausted) in [(LOST_MAX, false), (LOST_MAX + 1, true)] {
            let replies = (0..losses).map(|_| lost(ConnectionLoss::Closed, true)).chain([ok()]);
            let mut scripted = script(replies);
            run(&mut scripted, "stat", Repeat::Anywhere).await.unwrap();
            let mut expected = vec!["lost"; LOST_MAX as usize];
            expected.extend(is_exhausted.then_some("exhausted"));
            assert_eq!(scripted.calls, expected);
            assert!(!scripted.is_pinned);
        }
        // Failures to connect count as well. The policy compares them with its own limit.
        let mut scripted = script([ok()]);
        scripted.replies.push_front(Err(Cause::Unreachable("refused".to_owned())));
        run(&mut scripted, "stat", Repeat::Anywhere).await.unwrap();
        assert_eq!(scripted.calls, ["unreachable"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_may_have_been_carried_out_is_not_repeated() {
        for (repeat, is_uncertain) in [(Repeat::Never, true), (Repeat::Needless, false)] {
            for reply in [lost(ConnectionLoss::Closed, true), Err(MissingReply::TimedOut(60))] {
                let mut scripted = script([reply, ok()]);
                let error = run(&mut scripted, "rm", repeat).await.unwrap_err();
                assert_eq!((error.is_uncertain(), scripted.sent), (is_uncertain, 1));
            }
            // An unsent request is repeated.
            let mut scripted = script([lost(ConnectionLoss::Closed, false), ok()]);
            run(&mut scripted, "rm", repeat).await.unwrap();
            assert_eq!((scripted.is_pinned, scripted.sent), (false, 2));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_valid_on_one_connection_is_not_repeated() {
        for sent in [true, false] {
            let mut scripted = script([lost(ConnectionLoss::Closed, sent), ok()]);
            let error = run(&mut scripted, "clone", Repeat::Once).await.unwrap_err();
            assert_eq!((error.is_uncertain(), scripted.sent), (sent, 1));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_with_effects_at_its_server_is_repeated_there() {
        let mut scripted = script([lost(ConnectionLoss::Closed, true), ok()]);
        run(&mut scripted, "open", Repeat::AtServer).await.unwrap();
        assert_eq!((scripted.is_pinned, scripted.sent), (true, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_manager_opens_nothing_so_its_lost_reply_is_harmless() {
        for (name, is_repeated) in [("open", true), ("rm", false)] {
            let mut scripted = script([lost(ConnectionLoss::Closed, true), ok()]);
            if let Some(Ok(first)) = scripted.replies.front_mut() {
                first.at_manager = true;
            }
            assert_eq!(run(&mut scripted, name, Repeat::Never).await.is_ok(), is_repeated);
            assert_eq!(scripted.is_pinned, !is_repeated);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_second_silence_of_a_server_is_reported_as_such() {
        let silent = || lost(ConnectionLoss::Silent(60), true);
        let mut scripted = script([silent(), silent(), ok()]);
        run(&mut scripted, "stat", Repeat::Anywhere).await.unwrap();
        assert_eq!(scripted.calls, ["silent", "exhausted"]);
        let mut scripted = script([silent(), redirect("b"), silent(), ok()]);
        run(&mut scripted, "stat", Repeat::Anywhere).await.unwrap();
        assert_eq!(scripted.calls, ["silent", "redirected", "silent"]);
    }

    #[tokio::test(start_paused = true)]
    async fn only_another_server_helps_after_a_timeout_or_garbage() {
        let garbage = rawclient::ConnectionError::UnknownStream(wire::xroot::StreamId([9, 9]));
        let replies = [Err(MissingReply::TimedOut(60)), lost(ConnectionLoss::Protocol(garbage), true), ok()];
        let mut scripted = script(replies);
        run(&mut scripted, "stat", Repeat::Anywhere).await.unwrap();
        assert_eq!(scripted.calls, ["elsewhere", "elsewhere"]);
    }

    #[tokio::test(start_paused = true)]
    async fn waits_have_a_backoff_and_end_at_the_deadline() {
        let begun = Instant::now();
        let mut scripted = script((0..PROMPT_WAITS + 5).map(|_| wait(0)).chain([ok()]));
        run(&mut scripted, "stat", Repeat::Anywhere).await.unwrap();
        assert_eq!(begun.elapsed(), BACKOFF * 5);
        let mut scripted = script([wait(60), wait(60), ok()]);
        let error = run(&mut scripted, "stat", Repeat::Never).await.unwrap_err();
        let expired = Cause::Expired { seconds: 60, text: "staging".to_owned() };
        assert_eq!((error.cause(), error.is_uncertain(), scripted.sent), (&expired, false, 2));
    }

    /// Has one turn, which does not come back after a pause.
    #[derive(Default)]
    struct OneTurn(AtomicBool);

    impl RequestPacing for OneTurn {
        fn sent(&self) {}

        fn ended(&self) {}

        fn pause(&self) {
            self.0.store(true, Ordering::Relaxed);
        }

        fn resume(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
            match self.0.load(Ordering::Relaxed) {
                true => Box::pin(std::future::pending()),
                false => Box::pin(std::future::ready(())),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_its_turn_until_the_deadline() {
        let client = Client::with(Settings::default(), crate::Credentials::none(), "test");
        let client = client.paced(Arc::new(OneTurn::default()));
        let begun = Instant::now();
        let attempts = Attempts::new(&client, "stat", Repeat::Anywhere, begun + Duration::from_secs(100));
        let mut scripted = script([wait(60), ok()]);
        let error = attempts.run(&mut scripted).await.unwrap_err();
        assert_eq!((error.cause(), scripted.sent), (&Cause::TimedOut(40), 1));
        assert!(begun.elapsed() < Duration::from_secs(101));
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_redirects_is_limited() {
        let limit = Settings::default().redirect_limit;
        let mut scripted = script((0..=limit).map(|_| redirect("b")).chain([ok()]));
        let error = run(&mut scripted, "read", Repeat::Anywhere).await.unwrap_err();
        assert_eq!(error.cause(), &Cause::RedirectLimit(limit));
        assert_eq!(scripted.calls.len() as u64, limit);
    }

    #[tokio::test(start_paused = true)]
    async fn no_attempt_begins_after_the_deadline() {
        let mut scripted =
            script([wait(99), lost(ConnectionLoss::Closed, true), lost(ConnectionLoss::Closed, true)]);
        let client = Client::with(Settings::default(), crate::Credentials::none(), "test");
        let attempts =
            Attempts::new(&client, "stat", Repeat::Anywhere, Instant::now() + Duration::from_secs(99));
        let error = attempts.run(&mut scripted).await.unwrap_err();
        assert!(matches!(error.cause(), Cause::Lost(_)), "{error}");
        assert_eq!(scripted.sent, 2);
    }
}
