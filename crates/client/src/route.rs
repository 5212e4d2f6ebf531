//! Routing of a request to the server that answers it: redirects, waits, retries at other servers.
//!
//! The first manager on the way is the *balancer* (a meta manager takes precedence). When a server
//! behind it fails, the balancer is asked again, with the hosts that were tried and the reasons why
//! they failed. Source: xroot protocol 5.2.0, sections 3.4 to 3.6, 4.5, 5.2.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use wire::xroot::ErrorCode;
use wire::xroot::flags::ServerFlags;
use wire::xroot::reply::RedirectTarget;

use crate::channel::{Answer, BodyLimit, Channel, Failed, Lost, Received, Sink, Until};
use crate::client::Client;
use crate::encoded::Encoded;
use crate::failure::{Cause, Error};
use crate::url::{Scheme, Url};
use crate::waits::WaitFor;

/// Maximum number of connections lost during one request.
const LOST_MAX: u32 = 3;
/// Maximum number of redirects to the same place with the same cgi. A second one can be a
/// coincidence.
const VISITS_MAX: u32 = 2;
/// Number of waits of zero seconds that are obeyed immediately, before each one costs a short
/// pause.
const PROMPT_WAITS: u32 = 3;

/// A request that can be made at any server.
pub(crate) struct Ask<'a, F> {
    /// Name of the request in errors.
    pub(crate) name: &'static str,
    /// Rule for repeating it after its reply was lost.
    pub(crate) repeat: Repeat,
    /// Set if a server may work on it for long without a reply.
    pub(crate) slow: bool,
    /// Maximum size of its reply.
    pub(crate) limit: BodyLimit,
    /// Builds the request for a server, from the URL there and whether a server asked to wait
    /// before.
    pub(crate) request: &'a F,
}

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
}

impl Repeat {
    pub(crate) const fn if_harmless(is_harmless: bool) -> Self {
        if is_harmless { Self::Anywhere } else { Self::Never }
    }
}

/// A reply and the server from which it came.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) received: Received,
    pub(crate) channel: Arc<Channel>,
}

/// The route of a request.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    /// The URL given by the user.
    pub(crate) origin: Url,
    /// The next server.
    pub(crate) at: Url,
    /// The manager to ask for another server.
    pub(crate) balancer: Option<Balancer>,
    /// The servers on the way, in the form for errors.
    hops: Vec<String>,
    /// The hosts since the balancer.
    since_balancer: Vec<String>,
    /// The remaining hosts of the URL.
    spare: Vec<Url>,
    visits: HashMap<String, u32>,
    redirects: u64,
    lost: u32,
    not_authorized: u64,
    waits: u32,
    /// The error of an earlier server, which is reported if later ones have nothing better.
    said: Option<(Cause, String)>,
    uncertain: bool,
    /// Set if only the first server may be used.
    stays: bool,
    /// Number of rounds of connection attempts.
    rounds: u64,
    end: Instant,
}

/// A manager to ask again.
#[derive(Clone, Debug)]
pub(crate) struct Balancer {
    pub(crate) url: Url,
    meta: bool,
}

impl Route {
    pub(crate) fn new(client: &Client, url: &Url, end: Instant) -> Self {
        let mut places = url.each();
        let at = places.next().unwrap_or_else(|| url.clone());
        Self {
            origin: url.clone(),
            at,
            balancer: None,
            hops: Vec::new(),
            since_balancer: Vec::new(),
            spare: places.collect(),
            visits: HashMap::new(),
            redirects: 0,
            lost: 0,
            not_authorized: 0,
            waits: 0,
            said: None,
            uncertain: false,
            stays: false,
            rounds: client.settings().connection_retry,
            end,
        }
    }

    /// Creates a route for a request that is repeated after its server was lost. It is more patient
    /// with a server that restarts.
    pub(crate) fn again(
        client: &Client,
        origin: &Url,
        at: Url,
        balancer: Option<Balancer>,
        rounds: u64,
        end: Instant,
    ) -> Self {
        let mut route = Self::new(client, origin, end);
        route.spare.clear();
        route.at = at;
        route.balancer = balancer;
        route.rounds = rounds;
        route
    }

    /// Creates a route back to the only server where a file was open for writing.
    pub(crate) fn back_to(client: &Client, origin: &Url, at: Url, rounds: u64, end: Instant) -> Self {
        let mut route = Self::again(client, origin, at, None, rounds, end);
        route.stays = true;
        route
    }

    /// Uses these hosts, in their order, instead of the current destination.
    pub(crate) fn among(mut self, mut hosts: Vec<Url>) -> Option<Self> {
        self.at = hosts.pop_first()?;
        self.spare = hosts;
        Some(self)
    }

    /// Reports a failed host to the balancer, and goes there. Returns `false` if there is no
    /// balancer other than that host.
    pub(crate) fn return_to_balancer(&mut self, reason: &str) -> bool {
        let Some(balancer) = self.balancer.as_ref().filter(|_| !self.stays) else { return false };
        if balancer.url.authority() == self.at.authority() {
            return false;
        }
        let mut next = balancer.url.clone();
        next.path.clone_from(&self.origin.path);
        next.cgi.clone_from(&self.origin.cgi);
        for key in ["tried", "triedrc"] {
            if let Some(value) = self.at.cgi.get(key) {
                next.cgi.insert(key.to_owned(), value.clone());
            }
        }
        let mut failed = vec![self.at.host.clone()];
        if balancer.meta {
            failed.extend(self.since_balancer.iter().cloned());
        }
        for host in failed {
            add_tried(&mut next, &host, reason);
        }
        self.hops.push(self.at.authority());
        self.since_balancer.clear();
        tracing::debug!(left = %self.at.authority(), reason, balancer = %next.authority(), "back to the balancer");
        self.at = next;
        true
    }

    /// Makes a request until a server gives the final reply.
    pub(crate) async fn ask<F>(&mut self, client: &Client, ask: &Ask<'_, F>) -> Result<Arrived, Error>
    where
        F: Fn(&Url, bool) -> Encoded + Sync,
    {
        loop {
            let waiting = client.waits().begin(&self.at, WaitFor::Connection);
            let made = client.pool().channel(&self.at, client.settings(), self.rounds, self.end).await;
            drop(waiting);
            let channel = match made {
                Ok(channel) => channel,
                Err(cause) => {
                    self.unreachable(ask.name, cause)?;
                    continue;
                }
            };
            let request = (ask.request)(&self.at, self.waits > 0);
            let until =
                if ask.slow { Until { answer: self.end, end: self.end } } else { client.until(self.end) };
            let waiting = client.waits().begin(&self.at, WaitFor::Answer);
            let answer = channel.call(request, Bytes::new(), Sink::Body(ask.limit.clone()), until).await;
            drop(waiting);
            match answer {
                Ok(Answer::Ok(received)) => return Ok(Arrived { received, channel }),
                Ok(Answer::Error { code, text }) => self.refused(client, ask, &channel, (code, text))?,
                Ok(Answer::Redirect { port, host }) => {
                    let result = self.redirected(client, ask.name, &channel, port, &host);
                    result.map_err(|cause| self.redirect_error(ask.name, cause))?;
                }
                Ok(Answer::Wait { pause, text }) => self.wait(client, ask.name, pause, text).await?,
                Err(failed) => {
                    // A manager does not open files itself.
                    let is_harmless = ask.name == "open" && channel.is_manager();
                    let repeat = if is_harmless { Repeat::Anywhere } else { ask.repeat };
                    self.failed(ask.name, repeat, failed)?;
                }
            }
        }
    }

    /// Creates an error at the current server.
    pub(crate) fn error(&self, name: &'static str, cause: impl Into<Cause>) -> Error {
        Error::new(name, &self.origin, cause).at(self.at.authority(), &self.hops).uncertain(self.uncertain)
    }

    /// Handles a failure to connect to the server.
    fn unreachable(&mut self, name: &'static str, cause: Cause) -> Result<(), Error> {
        let final_word = matches!(cause, Cause::Unsupported(_));
        if final_word || Instant::now() >= self.end {
            return Err(self.error(name, cause));
        }
        if matches!(cause, Cause::NotAllowed(_)) {
            // The balancer may not know another server. Then this is the reason to report, not its
            // redirects.
            self.said = Some((cause.clone(), self.at.authority()));
        }
        self.lost += 1;
        let enough = self.lost > LOST_MAX + u32::try_from(self.spare.len()).unwrap_or(0);
        if enough || !self.elsewhere() {
            return Err(self.best_error(name, cause));
        }
        Ok(())
    }

    /// Goes to another server, if there is one.
    fn elsewhere(&mut self) -> bool {
        self.return_to_balancer("srverr") || self.next_host()
    }

    /// Goes to the next host of the URL, if there is one, because each host stands for all. A
    /// request that may have been carried out at one host is not repeated at another.
    fn next_host(&mut self) -> bool {
        if self.stays {
            return false;
        }
        let Some(next) = self.spare.pop_first() else { return false };
        self.hops.push(self.at.authority());
        self.balancer = None;
        self.at = next;
        true
    }

    /// Returns the most useful error: the error reported by a server rather than a failure to reach
    /// the next one.
    fn best_error(&mut self, name: &'static str, cause: Cause) -> Error {
        match self.said.take() {
            Some((cause, server)) => {
                Error::new(name, &self.origin, cause).at(server, &self.hops).uncertain(self.uncertain)
            }
            None => self.error(name, cause),
        }
    }

    /// Returns the error for redirects that lead nowhere. If this client may not go where they
    /// lead, that is the reason.
    fn redirect_error(&mut self, name: &'static str, cause: Cause) -> Error {
        match self.said {
            Some((Cause::NotAllowed(_), _)) => self.best_error(name, cause),
            _ => self.error(name, cause),
        }
    }

    /// Handles an error reply. Another server may have the file.
    fn refused<F>(
        &mut self,
        client: &Client,
        ask: &Ask<'_, F>,
        channel: &Channel,
        (code, text): (ErrorCode, String),
    ) -> Result<(), Error> {
        let name = ask.name;
        let cause = Cause::Server { code, text };
        if code == ErrorCode::NO_REPLICAS {
            return Err(self.best_error(name, cause));
        }
        let meta = self.balancer.as_ref().is_some_and(|balancer| balancer.meta);
        let open_recovery = crate::settings::Settings::is_on(&client.settings().open_recovery);
        let worth = open_recovery && elsewhere_may_differ(code, meta);
        if code == ErrorCode::NOT_AUTHORIZED {
            self.not_authorized += 1;
            if self.not_authorized > client.settings().not_authorized_retry_limit {
                return Err(self.error(name, cause));
            }
        }
        if !worth {
            return Err(self.error(name, cause));
        }
        self.redirects += 1;
        let error = self.error(name, cause.clone());
        let limit = client.settings().redirect_limit;
        // A request that must not be repeated is made at one host only.
        let goes_on =
            self.return_to_balancer(reason(code)) || (ask.repeat != Repeat::Never && self.next_host());
        if self.redirects > limit || !goes_on {
            return Err(error);
        }
        // The last error counts. It is reported if the balancer knows no other server.
        self.said = Some((cause, channel.authority().to_owned()));
        Ok(())
    }

    /// Handles a missing reply.
    fn failed(&mut self, name: &'static str, repeat: Repeat, failed: Failed) -> Result<(), Error> {
        let silent = matches!(failed, Failed::Lost { reason: Lost::Silent(_), .. });
        let sent = matches!(failed, Failed::TimedOut(_) | Failed::Lost { sent: true, .. });
        if sent && repeat != Repeat::Anywhere {
            (self.uncertain, self.stays) = (true, true);
        }
        let cause = match failed {
            Failed::Lost { reason: Lost::Protocol(error), .. } => return Err(self.error(name, error)),
            Failed::Lost { reason, .. } => Cause::Lost(reason.to_string()),
            Failed::TooLarge(limit) => return Err(self.error(name, Cause::too_large(&limit))),
            Failed::TimedOut(seconds) => {
                let error = self.error(name, Cause::TimedOut(seconds));
                self.lost += 1;
                let may_repeat = repeat == Repeat::Anywhere && self.lost <= LOST_MAX;
                return if may_repeat && self.return_to_balancer("srverr") { Ok(()) } else { Err(error) };
            }
        };
        // A timeout has taken long already, so the second one is final.
        self.lost += if silent { 2 } else { 1 };
        if (sent && repeat == Repeat::Never) || self.lost > LOST_MAX || Instant::now() >= self.end {
            return Err(self.error(name, cause));
        }
        // Without a balancer, the same server is tried once more, because the connection may have
        // been old.
        if !self.return_to_balancer("srverr") && self.lost > 1 {
            self.next_host();
        }
        Ok(())
    }

    async fn wait(
        &mut self,
        client: &Client,
        name: &'static str,
        pause: Duration,
        text: String,
    ) -> Result<(), Error> {
        self.waits += 1;
        let least = if self.waits > PROMPT_WAITS { Duration::from_millis(100) } else { Duration::ZERO };
        let pause = pause.max(least);
        if Instant::now() + pause > self.end {
            return Err(self.error(name, Cause::Expired { seconds: pause.as_secs(), text }));
        }
        let at = self.at.authority();
        tracing::debug!(operation = name, server = %at, seconds = pause.as_secs(), text, "asked to wait");
        let until = Instant::now() + pause;
        let _waiting = client.waits().begin(&self.at, WaitFor::Pause { until, text });
        tokio::time::sleep_until(until).await;
        Ok(())
    }

    fn redirected(
        &mut self,
        client: &Client,
        name: &'static str,
        channel: &Channel,
        port: i32,
        host: &[u8],
    ) -> Result<(), Cause> {
        self.redirects += 1;
        let limit = client.settings().redirect_limit;
        if self.redirects > limit {
            return Err(Cause::RedirectLimit(limit));
        }
        let locate = name == "locate" && client.settings().preserve_locate_tried != 0;
        let next = target(&self.at, port, host, locate)?;
        if self.stays && next.authority() != self.at.authority() {
            return Err(Cause::NotElsewhere(next.authority()));
        }
        let meta = channel.server().flags.intersects(ServerFlags::ATTR_META);
        if self.balancer.as_ref().is_none_or(|balancer| meta && !balancer.meta) {
            self.balancer = Some(Balancer { url: self.at.clone(), meta });
            self.since_balancer.clear();
        } else {
            self.since_balancer.push(self.at.host.clone());
        }
        self.hops.push(self.at.authority());
        let visits = self.visits.entry(format!("{} {}", next.authority(), next.target().text())).or_default();
        *visits += 1;
        if *visits > VISITS_MAX {
            return Err(Cause::RedirectLoop);
        }
        tracing::debug!(operation = name, from = %self.at.authority(), to = %next.authority(), "sent on");
        self.at = next;
        Ok(())
    }
}

trait PopFirst<T> {
    fn pop_first(&mut self) -> Option<T>;
}

impl<T> PopFirst<T> for Vec<T> {
    fn pop_first(&mut self) -> Option<T> {
        (!self.is_empty()).then(|| self.remove(0))
    }
}

/// Reports whether another server may reply differently.
fn elsewhere_may_differ(code: ErrorCode, meta: bool) -> bool {
    match code {
        ErrorCode::FS_ERROR
        | ErrorCode::IO_ERROR
        | ErrorCode::SERVER_ERROR
        | ErrorCode::NOT_FOUND
        | ErrorCode::OVERLOADED
        | ErrorCode::NO_MEMORY => true,
        ErrorCode::UNSUPPORTED | ErrorCode::FILE_LOCKED | ErrorCode::NOT_AUTHORIZED => meta,
        _ => false,
    }
}

/// Returns the keyword for `triedrc`.
fn reason(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::NOT_FOUND => "enoent",
        ErrorCode::IO_ERROR => "ioerr",
        ErrorCode::FS_ERROR => "fserr",
        ErrorCode::SERVER_ERROR => "srverr",
        _ => "resel",
    }
}

/// Adds a host to the `tried` of a URL, and the reason to `triedrc`.
pub(crate) fn add_tried(url: &mut Url, host: &str, reason: &str) {
    let tried = url.cgi.entry("tried".to_owned()).or_default();
    if tried.split(',').any(|known| known == host) {
        return;
    }
    append(tried, host);
    append(url.cgi.entry("triedrc".to_owned()).or_default(), reason);
}

fn append(list: &mut String, element: &str) {
    if !list.is_empty() {
        list.push(',');
    }
    list.push_str(element);
}

/// Returns the destination of a redirect from `at`.
pub(crate) fn target(at: &Url, port: i32, host: &[u8], only_tried: bool) -> Result<Url, Cause> {
    let bad = || Cause::BadRedirect(String::from_utf8_lossy(host).into_owned());
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| bad());
    let redirect = Answer::redirect(port, host);
    match redirect.target().map_err(|_| bad())? {
        RedirectTarget::Host { host, port, cgi, token } => {
            let mut next = at.clone();
            next.set_place(&text(host)?, port).map_err(|_| bad())?;
            merge(&mut next, &text(cgi)?, only_tried);
            if !token.is_empty() {
                next.token = Some(text(token)?);
            }
            Ok(next)
        }
        RedirectTarget::Url { url, .. } => {
            let there = Url::parse(&text(url)?).map_err(|_| bad())?;
            if !matches!(there.scheme, Scheme::Root | Scheme::Roots) {
                return Err(bad());
            }
            let mut next = at.clone();
            // A request made with TLS is never repeated without TLS.
            next.scheme = if at.scheme == Scheme::Roots { Scheme::Roots } else { there.scheme };
            (next.host, next.port) = (there.host, there.port);
            if !there.path.is_empty() {
                next.path = there.path;
            }
            if there.user.is_some() {
                (next.user, next.password) = (there.user, there.password);
            }
            next.cgi.extend(there.cgi);
            next.token = there.token.or(next.token);
            Ok(next)
        }
    }
}

fn merge(url: &mut Url, cgi: &str, only_tried: bool) {
    if !only_tried {
        url.merge_cgi(cgi);
        return;
    }
    for element in cgi.split('&') {
        if element.starts_with("tried=") || element.starts_with("triedrc=") {
            url.merge_cgi(element);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn a_redirect_keeps_user_path_and_cgi() {
        let at = url("root://me:pw@m:1//a?x=1&tried=old");
        let next = target(&at, 7, b"s?tried=old,m&y=2?secret", false).unwrap();
        assert_eq!((next.authority().as_str(), next.user.as_deref()), ("s:7", Some("me")));
        assert_eq!(next.target(), "/a?tried=old,m&x=1&y=2");
        assert_eq!(next.token.as_deref(), Some("secret"));
        let next = target(&at, 0, b"[::1]", false).unwrap();
        assert_eq!(next.authority(), "[::1]:1094");
        let next = target(&at, 7, b"s?tried=m&y=2", true).unwrap();
        assert_eq!(next.target(), "/a?tried=m&x=1");
    }

    #[test]
    fn a_redirect_to_a_url_may_change_the_path_and_never_drops_tls() {
        let next = target(&url("roots://m//a?x=1"), -1, b"root://s:5//b?x=2", false).unwrap();
        assert_eq!((next.scheme, &*next.target().text()), (Scheme::Roots, "/b?x=2"));
        let next = target(&url("root://m//a?x=1"), -1, b"root://s:5", false).unwrap();
        assert_eq!((next.authority().as_str(), &*next.target().text()), ("s:5", "/a?x=1"));
        for bad in ["http://s/a", "file:///a", "nonsense://"] {
            assert!(matches!(
                target(&url("root://m//a"), -1, bad.as_bytes(), false),
                Err(Cause::BadRedirect(_))
            ));
        }
        assert!(matches!(target(&url("root://m//a"), 70_000, b"s", false), Err(Cause::BadRedirect(_))));
    }

    #[test]
    fn tried_hosts_stand_once_beside_their_reasons() {
        let mut at = url("root://m//a?tried=x&triedrc=enoent");
        add_tried(&mut at, "y", "ioerr");
        add_tried(&mut at, "x", "ioerr");
        assert_eq!(at.target(), "/a?tried=x,y&triedrc=enoent,ioerr");
    }
}
