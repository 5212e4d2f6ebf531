//! Routing of a request to the server that answers it: redirects, waits, retries at other servers.
//!
//! The first manager on the way is the *balancer* (a meta manager takes precedence). When a server
//! behind it fails, the balancer is asked again, with the hosts that were tried and the reasons why
//! they failed. Source: xroot protocol 5.2.0, sections 3.4 to 3.6, 4.5, 5.2.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use rawclient::{ConnectionError, Encoded};
use tokio::time::Instant;
use wire::xroot::ErrorCode;
use wire::xroot::flags::ServerFlags;

use crate::channel::{BodyLimit, Channel, ReplyContent, ReplySink};
use crate::client::Client;
use crate::credentials::CredentialChoice;
use crate::delegation::choice_for;
use crate::failure::{Cause, Error};
use crate::pool::ConnectionRequest;
use crate::redirect::{CgiMerge, keep_secret, target};
use crate::request_loop::{Attempts, Exchange, LOST_MAX, LossKind, LostReply, RecoveryPolicy, Repeat};
use crate::settings::Settings;
use crate::url::Url;
use crate::waits::WaitFor;

/// Maximum number of redirects to the same place with the same cgi. A second one can be a
/// coincidence.
const VISITS_MAX: u32 = 2;

/// A request that can be made at any server.
pub(crate) struct PathRequest<'a, F> {
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

/// A reply and the server from which it came.
#[derive(Debug)]
pub(crate) struct RoutedReply {
    pub(crate) received: ReplyContent,
    pub(crate) channel: Arc<Channel>,
}

/// The route of a request.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    /// The URL given by the user.
    pub(crate) origin: Url,
    /// The credentials that it chooses. Redirects do not.
    choice: CredentialChoice,
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
    not_authorized: u64,
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
            choice: CredentialChoice::of(url),
            at,
            balancer: None,
            hops: Vec::new(),
            since_balancer: Vec::new(),
            spare: places.collect(),
            visits: HashMap::new(),
            not_authorized: 0,
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
    pub(crate) async fn ask<F>(
        &mut self,
        client: &Client,
        ask: &PathRequest<'_, F>,
    ) -> Result<RoutedReply, Error>
    where
        F: Fn(&Url, bool) -> Encoded + Sync,
    {
        let attempts = Attempts::new(client, ask.name, ask.repeat, self.end).slow(ask.slow);
        let mut routed = Routed { route: self, ask, channel: None };
        let received = attempts.run(&mut routed).await?;
        let Some(channel) = routed.channel else { return Err(self.error(ask.name, Cause::Closed)) };
        Ok(RoutedReply { received, channel })
    }

    /// Creates an error at the current server.
    pub(crate) fn error(&self, name: &'static str, cause: impl Into<Cause>) -> Error {
        Error::new(name, &self.origin, cause).at(self.at.authority(), &self.hops).uncertain(self.uncertain)
    }

    /// Goes to another server, if there is one.
    fn elsewhere(&mut self, attempts: &mut Attempts<'_>) -> bool {
        self.return_to_balancer("srverr") || self.next_host(attempts)
    }

    /// Returns the time until which the current server may be connected to. Each remaining host of
    /// the URL keeps its share of the time of the request.
    fn connect_by(&self, end: Instant) -> Instant {
        let now = Instant::now();
        let shares = u32::try_from(self.spare.len()).unwrap_or(u32::MAX).saturating_add(1);
        if shares == 1 { end } else { now + end.saturating_duration_since(now) / shares }
    }

    /// Goes to the next host of the URL, if there is one, because each host stands for all. A
    /// request that may have been carried out at one host is not repeated at another.
    fn next_host(&mut self, attempts: &mut Attempts<'_>) -> bool {
        if self.stays {
            return false;
        }
        let Some(next) = self.spare.pop_first() else { return false };
        self.hops.push(self.at.authority());
        self.balancer = None;
        self.since_balancer.clear();
        self.visits.clear();
        self.at = next;
        attempts.begin_host();
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

    /// Follows a redirect that a server of this role sent.
    fn redirected(&mut self, flags: ServerFlags, next: Url) -> Result<(), Cause> {
        if self.stays && next.authority() != self.at.authority() {
            return Err(Cause::NotElsewhere(next.authority()));
        }
        let meta = flags.intersects(ServerFlags::ATTR_META);
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
        self.at = next;
        Ok(())
    }
}

/// A request on its route.
struct Routed<'a, F> {
    route: &'a mut Route,
    ask: &'a PathRequest<'a, F>,
    /// The connection of the last attempt.
    channel: Option<Arc<Channel>>,
}

impl<F: Fn(&Url, bool) -> Encoded + Sync> RecoveryPolicy for Routed<'_, F> {
    async fn send(&mut self, attempts: &Attempts<'_>) -> Result<Exchange, Cause> {
        let client = attempts.client;
        let at = &self.route.at;
        let waiting = client.waits().begin(at, WaitFor::Connection);
        let until = self.route.connect_by(attempts.end);
        let (choice, settings, rounds) = (&self.route.choice, client.settings(), self.route.rounds);
        let wanted = ConnectionRequest { url: at, choice, settings, rounds, until };
        let choice = choice_for(client, wanted, attempts.until()).await?;
        let channel = client.pool().channel(ConnectionRequest { choice: &choice, ..wanted }).await?;
        drop(waiting);
        let request = (self.ask.request)(at, attempts.has_waited());
        let sink = ReplySink::Body(self.ask.limit.clone());
        let _waiting = client.waits().begin(at, WaitFor::Answer);
        let reply = channel.call(request, Bytes::new(), sink, attempts.until(), client.pacing()).await;
        let at_manager = channel.is_manager();
        self.channel = Some(channel);
        Ok(Exchange { reply, at_manager })
    }

    fn server(&self) -> Url {
        self.route.at.clone()
    }

    fn asked(&self) -> String {
        self.route.at.authority()
    }

    fn error(&mut self, cause: Cause) -> Error {
        match (&self.route.said, &cause) {
            // If this client may not go where the redirects lead, that is the reason.
            (
                Some((reason, _)),
                Cause::RedirectLimit(_)
                | Cause::RedirectLoop
                | Cause::BadRedirect(_)
                | Cause::NotElsewhere(_),
            ) if is_for_good(reason) => self.route.best_error(self.ask.name, cause),
            _ => self.route.error(self.ask.name, cause),
        }
    }

    fn pin(&mut self) {
        (self.route.uncertain, self.route.stays) = (true, true);
    }

    fn unreachable(&mut self, attempts: &mut Attempts<'_>, cause: Cause) -> Result<(), Error> {
        if is_for_good(&cause) {
            // The balancer may not know another server. Then this is the reason to report, not its
            // redirects.
            self.route.said = Some((cause.clone(), self.route.at.authority()));
        }
        let is_elsewhere = match attempts.lost() > LOST_MAX {
            true => self.route.next_host(attempts),
            false => self.route.elsewhere(attempts),
        };
        if is_elsewhere { Ok(()) } else { Err(self.route.best_error(self.ask.name, cause)) }
    }

    fn refused(&mut self, attempts: &mut Attempts<'_>, code: ErrorCode, text: String) -> Result<(), Error> {
        let (route, name) = (&mut *self.route, self.ask.name);
        let settings = attempts.client.settings();
        let cause = Cause::Server { code, text };
        if code == ErrorCode::NO_REPLICAS {
            return Err(route.best_error(name, cause));
        }
        let (at, error) = (route.at.authority(), route.error(name, cause.clone()));
        let is_tried_enough = code == ErrorCode::NOT_AUTHORIZED && {
            route.not_authorized += 1;
            route.not_authorized > settings.not_authorized_retry_limit
        };
        let meta = route.balancer.as_ref().is_some_and(|balancer| balancer.meta);
        if is_tried_enough || !Settings::is_on(&settings.open_recovery) || !elsewhere_may_differ(code, meta) {
            return Err(error);
        }
        // A request that must not be repeated is made at one host only.
        let is_back = attempts.count_redirect().is_ok() && route.return_to_balancer(reason(code));
        if !is_back && (attempts.is_for_one_server() || !route.next_host(attempts)) {
            return Err(error);
        }
        // The last error counts. It is reported if the balancer knows no other server.
        route.said = Some((cause, at));
        Ok(())
    }

    async fn redirected(
        &mut self,
        attempts: &mut Attempts<'_>,
        port: i32,
        host: Vec<u8>,
    ) -> Result<(), Error> {
        let flags = self.channel.as_ref().map(|channel| channel.server().flags).unwrap_or_default();
        let from = self.route.at.authority();
        let only_tried = attempts.name == "locate" && attempts.client.settings().preserve_locate_tried != 0;
        let merge = if only_tried { CgiMerge::OnlyTried } else { CgiMerge::All };
        let is_encrypted = self.channel.as_ref().is_some_and(|channel| channel.is_tls());
        let next = target(&self.route.at, port, &host, merge, attempts.client.redirects());
        let next = next.map(|next| keep_secret(next, is_encrypted));
        let followed = next.and_then(|next| self.route.redirected(flags, next));
        if let Err(cause) = followed {
            // A manager that insists on a server which does not serve is as good as unreachable.
            let is_elsewhere = matches!(cause, Cause::RedirectLoop) && self.route.next_host(attempts);
            return if is_elsewhere { Ok(()) } else { Err(self.error(cause)) };
        }
        tracing::debug!(operation = attempts.name, %from, to = %self.route.at.authority(), "sent on");
        Ok(())
    }

    async fn lost(&mut self, attempts: &mut Attempts<'_>, loss: LostReply) -> Result<(), Error> {
        let route = &mut *self.route;
        let is_elsewhere = match loss.kind {
            // Without a balancer, the same server is tried once more, because the connection may
            // have been old.
            LossKind::Disconnected => {
                route.return_to_balancer("srverr") || (attempts.lost() > 1 && route.next_host(attempts))
            }
            LossKind::Silent | LossKind::Unusable => route.elsewhere(attempts),
            // The balancer has returned the same server, or only servers that fail.
            LossKind::Exhausted => route.next_host(attempts),
        };
        match loss.kind {
            LossKind::Exhausted | LossKind::Unusable if !is_elsewhere => Err(self.error(loss.cause)),
            _ => Ok(()),
        }
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

/// Reports whether a server will never be used, because of a filter or of missing credentials.
fn is_for_good(cause: &Cause) -> bool {
    matches!(
        cause,
        Cause::NotAllowed(_)
            | Cause::NotAuthenticated(_)
            | Cause::Tls(_)
            | Cause::CertificateRefused(_)
            | Cause::Connection(
                ConnectionError::Demands(_) | ConnectionError::NoTls | ConnectionError::UnannouncedTls
            )
    )
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

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn tried_hosts_stand_once_beside_their_reasons() {
        let mut at = url("root://m//a?tried=x&triedrc=enoent");
        add_tried(&mut at, "y", "ioerr");
        add_tried(&mut at, "x", "ioerr");
        assert_eq!(at.target(), "/a?tried=x,y&triedrc=enoent,ioerr");
    }
}
