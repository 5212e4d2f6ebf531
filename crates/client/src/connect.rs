//! Connection setup: resolves a name, races its addresses and logs in.
//!
//! Addresses of both families are tried in turn, each 250 ms after the previous one, or earlier if
//! that one failed; the first that accepts wins (RFC 8305, "happy eyeballs"). A server that accepts
//! the connection and then stays silent uses up its share of the window, and the next address is
//! tried as a fallback.

use std::future::Future;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use base::SplitMix64;
use rawclient::{Connection, ConnectionError, ConnectionEvent, Login};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use wire::xroot::flags::ServerFlags;
use wire::xroot::limits::{PATH_ID_MAX, RESPONSE_HEADER_BYTES};
use wire::xroot::reply::{BindReply, ProtocolReply, Reply};
use wire::xroot::{RequestCode, ResponseHeader, SessionId};
use wire::{Decode, FixedLayout};

use crate::authentication::{Authentication, LoginRequest};
use crate::failure::Cause;
use crate::server_stream::ServerStream;
use crate::settings::Settings;
use crate::tls_trust::TlsTrust;

/// Delay before the next address is tried in parallel (RFC 8305, section 8).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Maximum number of addresses of a name that are tried.
const ADDRESSES_MAX: usize = 16;
/// Maximum size of a reply while a stream is bound.
const BIND_REPLY_BYTES_MAX: usize = 64 * 1024;
/// Maximum time in seconds for which sent data may remain unacknowledged, if connections are probed.
const USER_TIMEOUT_MAX: u64 = 86_400;
/// Divisor of the window for the login at one address while others remain.
const LOGIN_SHARE: u32 = 2;

/// A logged-in connection.
#[derive(Debug)]
pub(crate) struct LoggedIn {
    pub(crate) stream: ServerStream,
    pub(crate) peer: SocketAddr,
    pub(crate) machine: Connection,
}

/// A filter that decides which addresses a client connects to. It is applied after each lookup and
/// each redirect, so a name cannot lead to another address in between.
#[derive(Clone)]
pub struct AddressFilter {
    decide: Arc<Decide>,
    resolver: Option<Arc<dyn Resolver>>,
}

/// A resolver for the addresses of hosts.
pub trait Resolver: Send + Sync {
    /// Returns the addresses of a host with this port, or the reason why there are none.
    fn resolve(&self, host: &str, port: u16) -> Resolving;
}

/// A lookup in progress.
pub type Resolving = Pin<Box<dyn Future<Output = Result<Vec<SocketAddr>, String>> + Send>>;

/// Returns the addresses to use for an address of a host, usually that address itself. `Err` is the
/// reason for a refusal.
type Decide = dyn Fn(&str, IpAddr) -> Result<Vec<IpAddr>, String> + Send + Sync;

impl AddressFilter {
    /// Creates a filter that connects to the addresses which `decide` returns and refuses those for
    /// which it returns a reason.
    pub fn new(decide: impl Fn(&str, IpAddr) -> Result<Vec<IpAddr>, String> + Send + Sync + 'static) -> Self {
        Self { decide: Arc::new(decide), resolver: None }
    }

    /// Returns this filter with `resolver` in place of the system's lookup.
    #[must_use]
    pub fn with_resolver(self, resolver: Arc<dyn Resolver>) -> Self {
        Self { resolver: Some(resolver), ..self }
    }

    /// Returns the addresses to connect to, or an error if all were refused.
    fn apply(&self, host: &str, found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, Cause> {
        let (mut allowed, mut reasons) = (Vec::new(), Vec::new());
        for address in found {
            match (self.decide)(host, address.ip().to_canonical()) {
                // The filter ignores the scope of a link-local address.
                Ok(to) if to == [address.ip().to_canonical()] => allowed.push(address),
                Ok(to) => allowed.extend(to.into_iter().map(|to| SocketAddr::new(to, address.port()))),
                Err(reason) => reasons.push(reason),
            }
        }
        if allowed.is_empty() && !reasons.is_empty() {
            reasons.dedup();
            return Err(Cause::NotAllowed(reasons.join(", ")));
        }
        allowed.truncate(ADDRESSES_MAX);
        Ok(allowed)
    }
}

impl std::fmt::Debug for AddressFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AddressFilter")
    }
}

/// Connects to one of the addresses of `host` and logs in, before `until`.
///
/// # Errors
/// The error of the last address, or the first one that is a final refusal by the server.
pub(crate) async fn connect(
    host: &str,
    port: u16,
    login: &LoginRequest,
    settings: &Settings,
    filter: Option<&AddressFilter>,
    until: Instant,
) -> Result<LoggedIn, Cause> {
    let resolver = filter.and_then(|filter| filter.resolver.as_deref());
    let mut found = resolve(host, port, settings, resolver, until).await?;
    if let Some(filter) = filter {
        found = filter.apply(host, found)?;
    }
    connect_any(found, login, settings, until).await
}

/// Connects to one of the addresses of `host` without a login, before `until`.
///
/// # Errors
/// The error of the last address.
pub(crate) async fn connect_stream(
    host: &str,
    port: u16,
    settings: &Settings,
    filter: Option<&AddressFilter>,
    until: Instant,
) -> Result<(ServerStream, SocketAddr), Cause> {
    let resolver = filter.and_then(|filter| filter.resolver.as_deref());
    let mut found = resolve(host, port, settings, resolver, until).await?;
    if let Some(filter) = filter {
        found = filter.apply(host, found)?;
    }
    let silent = || Cause::Unreachable("nothing was tried".to_owned());
    let (stream, peer) = race(&found, settings, until).await.map_err(|error| match error {
        Some((error, false)) => Cause::Unreachable(error),
        Some((error, true)) => Cause::NoResources(error),
        None => silent(),
    })?;
    Ok((ServerStream::from(stream), peer))
}

/// Connects to one of these addresses and logs in.
async fn connect_any(
    mut left: Vec<SocketAddr>,
    login: &LoginRequest,
    settings: &Settings,
    until: Instant,
) -> Result<LoggedIn, Cause> {
    let mut last = Cause::Unreachable("nothing was tried".to_owned());
    while !left.is_empty() {
        let (stream, peer) = race(&left, settings, until).await.map_err(|error| match error {
            Some((error, false)) => Cause::Unreachable(error),
            Some((error, true)) => Cause::NoResources(error),
            // The error of an address that accepted the connection outweighs the silence of the
            // others.
            None => last.clone(),
        })?;
        left.retain(|address| *address != peer);
        tracing::debug!(%peer, "connected");
        let now = Instant::now();
        let share = if left.is_empty() { until } else { now + until.duration_since(now) / LOGIN_SHARE };
        let mut stream = ServerStream::from(stream);
        match timeout_at(share, log_in(&mut stream, login)).await {
            Ok(Ok(machine)) => return Ok(LoggedIn { stream, peer, machine }),
            Ok(Err(
                cause @ (Cause::Connection(_)
                | Cause::NotAuthenticated(_)
                | Cause::Tls(_)
                | Cause::CertificateRefused(_)),
            )) => {
                return Err(cause);
            }
            Ok(Err(cause)) => last = cause,
            Err(_) => {
                let silent = format!("{peer} took the connection and then said nothing");
                last = Cause::Unreachable(silent);
            }
        }
        if Instant::now() >= until {
            break;
        }
    }
    Err(last)
}

/// Returns the addresses of a host in the order of attempts.
async fn resolve(
    host: &str,
    port: u16,
    settings: &Settings,
    resolver: Option<&dyn Resolver>,
    until: Instant,
) -> Result<Vec<SocketAddr>, Cause> {
    let look_up = async {
        match resolver {
            Some(resolver) => resolver.resolve(host, port).await,
            None => {
                let found = tokio::net::lookup_host((host, port)).await;
                found.map(Iterator::collect).map_err(|error| error.to_string())
            }
        }
    };
    let found = match timeout_at(until, look_up).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return Err(Cause::Unresolved(error)),
        Err(_) => return Err(Cause::Unresolved("the name service does not answer".to_owned())),
    };
    let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), host);
    let ordered = order(found, settings, &mut SplitMix64::new(seed));
    if ordered.is_empty() {
        let stack = &settings.network_stack;
        return Err(Cause::Unresolved(format!("none that XRD_NETWORKSTACK={stack} allows")));
    }
    Ok(ordered)
}

/// Shuffles the addresses unless the settings forbid it, then alternates the families.
fn order(mut found: Vec<SocketAddr>, settings: &Settings, rng: &mut SplitMix64) -> Vec<SocketAddr> {
    let allowed = |address: &SocketAddr| match settings.network_stack.to_ascii_lowercase().as_str() {
        "ipv4" => address.is_ipv4(),
        "ipv6" => address.is_ipv6(),
        _ => true,
    };
    found.retain(allowed);
    let mut seen = std::collections::HashSet::new();
    found.retain(|address| seen.insert(*address));
    if settings.ip_no_shuffle == 0 {
        for last in (1..found.len()).rev() {
            let other = usize::try_from(rng.draw() % (last as u64 + 1)).unwrap_or(0);
            found.swap(last, other);
        }
    }
    let first_is_ipv4 = settings.prefer_ipv4 != 0;
    let (first, second): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|address| address.is_ipv4() == first_is_ipv4);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut ordered = Vec::new();
    while ordered.len() < ADDRESSES_MAX {
        let before = ordered.len();
        ordered.extend(first.next());
        ordered.extend(second.next());
        if ordered.len() == before {
            break;
        }
    }
    ordered.truncate(ADDRESSES_MAX);
    ordered
}

/// Returns the first of `addresses` that accepts a connection. The error is `None` if all were silent,
/// otherwise the last one, and whether this machine was the cause at all addresses.
async fn race(
    addresses: &[SocketAddr],
    settings: &Settings,
    until: Instant,
) -> Result<(TcpStream, SocketAddr), Option<(String, bool)>> {
    let mut waiting = addresses.iter().copied();
    let mut attempts = JoinSet::new();
    let mut last: Option<(String, bool)> = None;
    let mut next_at = Instant::now();
    loop {
        if Instant::now() >= next_at || attempts.is_empty() {
            match waiting.next() {
                Some(address) => {
                    let socket = socket(address, settings);
                    attempts.spawn(async move { (address, attempt(socket, address).await) });
                    next_at = Instant::now() + ATTEMPT_DELAY;
                }
                None if attempts.is_empty() => return Err(last),
                None => next_at = until,
            }
        }
        tokio::select! {
            Some(Ok((address, result))) = attempts.join_next() => match result {
                Ok(stream) => return Ok((stream, address)),
                Err(error) => {
                    let is_local = lacks_resources(&error) && last.is_none_or(|(_, is_local)| is_local);
                    last = Some((format!("{address}: {error}"), is_local));
                    next_at = Instant::now();
                }
            },
            () = tokio::time::sleep_until(next_at.min(until)) => {
                if Instant::now() >= until {
                    let text = last.map_or_else(|| format!("{}: no answer", join(addresses)), |(text, _)| text);
                    return Err(Some((text, false)));
                }
            }
        }
    }
}

/// Reports whether a failure to connect shows only a lack of this machine.
fn lacks_resources(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let lacks = [
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOBUFS,
        Errno::NOMEM,
        Errno::ADDRNOTAVAIL,
        Errno::NETDOWN,
        Errno::NETUNREACH,
    ];
    Errno::from_io_error(error).is_some_and(|errno| lacks.contains(&errno))
}

fn join(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

async fn attempt(socket: io::Result<TcpSocket>, address: SocketAddr) -> io::Result<TcpStream> {
    socket?.connect(address).await
}

fn socket(address: SocketAddr, settings: &Settings) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_nodelay(settings.no_delay != 0)?;
    if settings.tcp_keep_alive != 0 {
        let probes = socket2::TcpKeepalive::new()
            .with_time(Duration::from_secs(settings.tcp_keep_alive_time))
            .with_interval(Duration::from_secs(settings.tcp_keep_alive_interval))
            .with_retries(u32::try_from(settings.tcp_keep_alive_probes).unwrap_or(u32::MAX));
        let raw = socket2::SockRef::from(&socket);
        raw.set_tcp_keepalive(&probes)?;
        // Probes are only sent while no data waits for its acknowledgement.
        let probing = settings.tcp_keep_alive_interval.saturating_mul(settings.tcp_keep_alive_probes);
        let seconds = settings.tcp_keep_alive_time.saturating_add(probing).min(USER_TIMEOUT_MAX);
        raw.set_tcp_user_timeout(Some(Duration::from_secs(seconds)))?;
    }
    Ok(socket)
}

/// Sends the greeting, logs in, and authenticates if the server demands it. Nothing is received
/// beyond the login because no request is sent before it.
async fn log_in(stream: &mut ServerStream, request: &LoginRequest) -> Result<Connection, Cause> {
    let mut machine = Connection::new(request.login.clone());
    let mut authentication = None;
    let mut buffer = [0; 4096];
    let mut is_ready = false;
    loop {
        send(stream, &mut machine).await?;
        let count = match stream.try_read_buf(&mut buffer.as_mut_slice()) {
            Ok(0) => return Err(Cause::Lost("the server closed the connection during the login".to_owned())),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                stream.readable().await.map_err(lost_login)?;
                continue;
            }
            Err(error) => return Err(request.tls.refusal(&error).unwrap_or_else(|| lost_login(error))),
        };
        let mut input = buffer.get(..count).unwrap_or_default();
        while let Some(event) = machine.next_event(&mut input)? {
            match event {
                ConnectionEvent::Authenticate(step) => {
                    if authentication.is_none() {
                        let local = stream.tcp().local_addr().map_err(lost_login)?;
                        authentication = Some(Authentication::new(request, local, stream.is_tls())?);
                    }
                    if let Some(authentication) = &mut authentication {
                        let credentials = authentication.next(step).await?;
                        machine.authenticate(credentials.protocol, &credentials.payload);
                    }
                }
                ConnectionEvent::StartTls => {
                    if !input.is_empty() {
                        return Err(unasked(input).into());
                    }
                    request.tls.encrypt(stream, &request.host).await?;
                    machine.encrypted();
                    is_ready = machine.is_ready();
                }
                ConnectionEvent::Ready => is_ready = true,
                _ => {}
            }
            if is_ready {
                if !input.is_empty() {
                    return Err(unasked(input).into());
                }
                if let Some(authentication) = authentication {
                    authentication.complete(&mut machine);
                }
                return Ok(machine);
            }
        }
    }
}

/// Sends all queued bytes.
async fn send(stream: &mut ServerStream, machine: &mut Connection) -> Result<(), Cause> {
    while !machine.is_sent() || stream.has_unsent() {
        let mut slices = [IoSlice::new(&[]); 4];
        let used = machine.outgoing(&mut slices);
        match stream.try_write_vectored(slices.get(..used).unwrap_or_default()) {
            Ok(count) => machine.sent(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                stream.tcp().writable().await.map_err(lost_login)?;
            }
            Err(error) => return Err(lost_login(error)),
        }
    }
    Ok(())
}

fn lost_login(error: io::Error) -> Cause {
    Cause::Lost(format!("while logging in: {error}"))
}

/// Connects to the address of a session again, binds the connection to it and returns its path id.
/// With `tls` the connection is encrypted; the certificate must be for the given host.
///
/// # Errors
/// The reason why it cannot be bound; the session continues without it.
pub(crate) async fn bind(
    peer: SocketAddr,
    session: SessionId,
    settings: &Settings,
    tls: Option<(&TlsTrust, &str)>,
    until: Instant,
) -> Result<(ServerStream, u8), Cause> {
    let work = async {
        let stream = attempt(socket(peer, settings), peer).await.map_err(lost_bind)?;
        let mut stream = ServerStream::from(stream);
        let mut out = Vec::new();
        match tls {
            None => Login::encode_binding(session, &mut out),
            Some(_) => Login::encode_encrypted_binding(&mut out),
        }
        stream.write_all(&out).await.map_err(lost_bind)?;
        bind_reply(&mut stream, RequestCode::PROTOCOL).await?;
        let protocol = bind_reply(&mut stream, RequestCode::PROTOCOL).await?;
        if let Some((trust, host)) = tls {
            let flags = ProtocolReply::decode(&protocol)?.flags;
            if !flags.intersects(ServerFlags::GOTO_TLS) {
                return Err(ConnectionError::NoTls.into());
            }
            trust.encrypt(&mut stream, host).await?;
            out.clear();
            Login::encode_bind(session, &mut out);
            stream.write_all(&out).await.map_err(lost_bind)?;
        }
        let body = bind_reply(&mut stream, RequestCode::BIND).await?;
        let path = BindReply::decode(&body).ok().map(|reply| reply.pathid);
        let path = path.filter(|path| (1..=PATH_ID_MAX).contains(path));
        Ok((stream, path.ok_or_else(|| Cause::BadAnswer("no path id".to_owned()))?))
    };
    timeout_at(until, work).await.unwrap_or_else(|_| Err(Cause::TimedOut(0)))
}

fn lost_bind(error: io::Error) -> Cause {
    Cause::Lost(format!("while binding: {error}"))
}

/// Reads the reply to a request of a data stream.
async fn bind_reply(stream: &mut ServerStream, code: RequestCode) -> Result<Vec<u8>, Cause> {
    let mut header = [0; RESPONSE_HEADER_BYTES];
    stream.read_exact(&mut header).await.map_err(lost_bind)?;
    let header = ResponseHeader::from_bytes(&header);
    let length = header.body_bytes().ok().filter(|length| *length <= BIND_REPLY_BYTES_MAX);
    let mut body = vec![0; length.ok_or_else(|| Cause::BadAnswer("too long".to_owned()))?];
    stream.read_exact(&mut body).await.map_err(lost_bind)?;
    match Reply::decode(&header, &body)? {
        Reply::Ok(body) => Ok(body.to_vec()),
        Reply::Error(error) => {
            let text = String::from_utf8_lossy(error.text).into_owned();
            Err(Cause::Server { code: error.code, text })
        }
        _ => Err(ConnectionError::Unexpected { request: code, status: header.status }.into()),
    }
}

/// Returns the error for a server that sends bytes before the first request. A server that requires
/// TLS for a session sends its refusal after the reply to the login.
fn unasked(input: &[u8]) -> ConnectionError {
    if let Some((header, body)) = input.split_first_chunk::<RESPONSE_HEADER_BYTES>()
        && let Ok(Reply::Error(error)) = Reply::decode(&ResponseHeader::from_bytes(header), body)
    {
        let text = String::from_utf8_lossy(error.text).into_owned();
        return ConnectionError::Refused { request: RequestCode::LOGIN, code: error.code, text };
    }
    let bytes = i64::try_from(input.len()).unwrap_or(i64::MAX);
    ConnectionError::Wire(wire::WireError::BadLength { field: "login reply", bytes })
}

#[cfg(test)]
mod tests;
