//! One request: checks of its head, its token, its method.

use crate::call::{CallFailure, RequestFile};
use crate::dashboard;
use crate::door::HttpFrontEnd;
use crate::host_shares::SharedPart;
use crate::macaroons::{self, MacaroonEndpoint};
use crate::memory::ChargedBody;
use crate::redirect::{self, ForwardedCgi};
use crate::reply::{self, RequestRefusal, RequestReply};
use crate::served_connection::ServedConnection;
use crate::status_counters::CountedReply;
use crate::{
    MEMORY_RETRY_SECONDS, TOKEN_BYTES_MAX, cors, get, http2, listing, metrics_page, names, status, tape,
    upload,
};
use auth::Secret;
use base::Cgi;
use hyper::body::{Body, Incoming};
use hyper::header::{
    AUTHORIZATION, CONNECTION, HOST, HeaderMap, HeaderValue, SERVER, TRANSFER_ENCODING, USER_AGENT,
};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode, Version};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;
use vfs::{Caller, FileStat, Operation, Target};

/// The name of the server in replies, which clients of XRootD know.
const SERVER_NAME: HeaderValue = HeaderValue::from_static("XRootD");

/// The key of tokens in the CGI.
const TOKEN_KEY: &str = "authz";

/// Maximum length of the name of an application.
const APPLICATION_CHARS_MAX: usize = 128;

/// A request whose task has panicked. Its connection ends.
#[derive(Debug)]
pub(crate) struct RequestPanic;

impl fmt::Display for RequestPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a request has panicked")
    }
}

impl std::error::Error for RequestPanic {}

/// A request whose client is known.
pub(crate) struct RequestContext {
    pub(crate) connection: Arc<ServedConnection>,
    pub(crate) caller: Arc<Caller>,
    pub(crate) target: Target,
    pub(crate) head: Parts,
    /// The CGI that redirects have.
    forwarded: ForwardedCgi,
}

impl RequestContext {
    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    pub(crate) fn shared(&self) -> &HttpFrontEnd {
        self.connection.shared()
    }

    /// Returns the host that the client has addressed.
    pub(crate) fn host(&self) -> Option<&str> {
        self.headers().get(HOST)?.to_str().ok()
    }

    /// Runs an operation.
    pub(crate) async fn run(
        &self,
        make: impl Fn() -> Operation + Send,
    ) -> Result<vfs::Value, RequestRefusal> {
        Ok(self.connection.calls.run(&self.caller, make).await?)
    }

    /// Opens a file, if there is a descriptor for it.
    pub(crate) async fn open(
        &self,
        make: impl Fn() -> Operation + Send,
    ) -> Result<(RequestFile, Option<FileStat>), RequestRefusal> {
        let full = || {
            let text = "too many files are open; try again later";
            RequestRefusal::new(StatusCode::SERVICE_UNAVAILABLE, text)
        };
        let shared = self.shared();
        let share = shared.shares.take(self.connection.address(), SharedPart::File).ok_or_else(full)?;
        // The share of a session of the xroot protocol is that of a host here.
        let descriptor = shared.config.descriptors.open(share.before()).ok_or_else(full)?;
        let (mut file, stat) = self.connection.calls.open(&self.caller, make).await?;
        file.hold(descriptor, share);
        Ok((file, stat))
    }

    /// Returns the status of the path.
    pub(crate) async fn stat(&self) -> Result<FileStat, RequestRefusal> {
        match self.run(|| Operation::Stat(self.target.clone())).await? {
            vfs::Value::Stat(stat) => Ok(stat),
            _ => Err(RequestRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, "there is no status")),
        }
    }

    /// Returns the reply to a request that is refused.
    fn refuse(&self, refusal: RequestRefusal) -> RequestReply {
        match refusal {
            RequestRefusal::Call(CallFailure::Redirect(to)) => {
                let https = self.shared().config.redirects_to_https;
                let (scheme, keeps_secrets) = redirect::scheme(https, self.connection.is_tls());
                let path = self.target.path.as_bytes();
                let to = match self.head.method.as_str() {
                    "MOVE" => redirect::with_first_host(to, self.host(), &self.target.cgi),
                    _ => to,
                };
                redirect::reply(&self.head.method, &to, scheme, path, &self.forwarded, keeps_secrets)
            }
            refusal => reply::refuse(refusal),
        }
    }
}

/// Marks a request that has no body, according to the library, which alone decides where it ends.
#[derive(Clone, Copy)]
pub(crate) struct NoBody;

/// Serves a request in a task of its own, which is not cancelled when the client disconnects, so that
/// operations on files end before the files are closed.
pub(crate) fn serve(
    connection: Arc<ServedConnection>,
    request: Request<Incoming>,
) -> Pin<Box<dyn Future<Output = Result<Response<ChargedBody>, RequestPanic>> + Send>> {
    let is_bare = request.body().is_end_stream();
    let (mut head, mut body) = request.into_parts();
    if is_bare {
        head.extensions.insert(NoBody);
    }
    let charged = connection.clone();
    let request = connection.activity.request();
    // Without a reply it is counted when hyper drops this future, because the client has disconnected.
    let statuses = connection.shared().config.statuses.as_ref();
    let mut counted = statuses.map(|statuses| CountedReply::new(statuses.clone(), head.method.clone()));
    let task = tokio::spawn(async move { (answer(connection, head, &mut body).await, body) });
    Box::pin(async move {
        // The connection must have the reply when it learns that nobody reads the rest of the body.
        let Ok((reply, body)) = task.await else {
            if let Some(counted) = &mut counted {
                counted.fail();
            }
            return Err(RequestPanic);
        };
        if let Some(counted) = &mut counted {
            counted.reply(reply.status(), reply.body().is_end_stream());
        }
        if charged.stream_state().is_some() && !body.is_end_stream() {
            tokio::spawn(http2::discard(body, charged.clone()));
        }
        Ok(reply.map(|body| ChargedBody::new(body, charged, counted, request)))
    })
}

async fn answer(connection: Arc<ServedConnection>, head: Parts, body: &mut Incoming) -> RequestReply {
    let begun = Instant::now();
    let (method, version) = (head.method.clone(), head.version);
    let origins = &connection.shared().config.cors_origins;
    let origin = cors::allowed(&head.headers, origins);
    let checked = check_head(&head);
    let is_clear = checked.is_ok();
    let config = &connection.shared().config;
    let is_tape = config.tape.as_ref().is_some_and(|tape| tape::is_below(tape, head.uri.path()));
    let has_figures = (config.dashboard.is_some() && dashboard::is_below(head.uri.path()))
        || (config.metrics.is_some() && head.uri.path() == metrics_page::PATH);
    let macaroon = config.macaroons.as_ref().filter(|_| !is_tape).and_then(|_| MacaroonEndpoint::of(&head));
    let replied = match checked {
        Ok(()) => respond(&connection, head, body).await,
        Err(refusal) => Err(refusal),
    };
    let mut reply = replied.unwrap_or_else(|refusal| match macaroon {
        Some(endpoint) => macaroons::refuse(endpoint, refusal),
        None if is_tape => tape::refuse(refusal),
        None => reply::refuse(refusal),
    });
    let shared = connection.shared();
    reply.headers_mut().insert(SERVER, SERVER_NAME);
    // Permissions for pages of other sites are about files.
    if !has_figures {
        for (of, name, value) in &shared.static_headers {
            if of.as_ref().is_none_or(|of| *of == method) {
                reply.headers_mut().append(name.clone(), value.clone());
            }
        }
        cors::add(reply.headers_mut(), origin, &shared.config.cors_origins);
    }
    // Another server could find the next request at another place.
    if (shared.is_draining() || !is_clear) && version != Version::HTTP_2 {
        reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    shared.counters.reply(&method, reply.status(), begun.elapsed());
    reply
}

async fn respond(
    connection: &Arc<ServedConnection>,
    head: Parts,
    body: &mut Incoming,
) -> Result<RequestReply, RequestRefusal> {
    let config = &connection.shared().config;
    if let Some(pages) = &config.status
        && let Some(reply) = status::reply(pages, &head)
    {
        return Ok(reply);
    }
    if let Some(reply) = metrics_page::reply(connection.shared(), connection.address(), &head).await {
        return Ok(reply);
    }
    if let Some(reply) = dashboard::reply(connection.shared(), connection.address(), &head) {
        return Ok(reply);
    }
    let tape = config.tape.as_ref();
    if let Some(reply) = tape.and_then(|tape| tape::discovery(tape, &head, connection.is_tls())) {
        return Ok(reply);
    }
    let tape = tape.filter(|tape| tape::is_below(tape, head.uri.path()) && head.method != Method::OPTIONS);
    let call = tape.map(|tape| tape::route(tape, &head.method, head.uri.path())).transpose()?;
    if !connection.admit(&head) {
        return Err(CallFailure::Later(MEMORY_RETRY_SECONDS).into());
    }
    let macaroon = match &config.macaroons {
        Some(endpoints) if call.is_none() => macaroons::endpoint(endpoints, &head, connection.is_tls())?,
        _ => None,
    };
    if let (Some(endpoints), Some(MacaroonEndpoint::Metadata)) = (&config.macaroons, macaroon) {
        return macaroons::metadata(endpoints, &head, config.tls.is_some());
    }
    if head.method == Method::OPTIONS {
        return Ok(names::options(config.accepts_uploads, config.copies.is_some()));
    }
    let path = head.uri.path().as_bytes();
    let parsed = crate::target::parse_target(path, head.uri.query().map(str::as_bytes));
    let mut target = parsed.map_err(|error| match macaroon {
        Some(_) => RequestRefusal::new(StatusCode::BAD_REQUEST, error.text),
        None => error.into(),
    })?;
    let forwarded = ForwardedCgi::new(&head, &target.cgi, &config.headers_to_cgi);
    let token = token(&head.headers, &target.cgi)?;
    let application = application(&head.headers);
    let caller = connection.caller(token, &application).await?;
    target.cgi = Cgi::new(forwarded.whole(&target.cgi).as_bytes());
    let context = RequestContext { connection: connection.clone(), caller, target, head, forwarded };
    if let Some(call) = call {
        return tape::reply(&context, call, body).await;
    }
    if let Some(endpoint) = macaroon {
        return macaroons::reply(&context, endpoint, body).await;
    }
    let replied = match context.head.method.as_str() {
        "GET" | "HEAD" => get::reply(&context).await,
        "PUT" => upload::reply(&context, body).await,
        "DELETE" => names::delete(&context).await,
        "MKCOL" => names::make_collection(&context, body).await,
        "MOVE" => names::rename(&context).await,
        "COPY" => crate::copy::reply(&context, body).await,
        "PROPFIND" => listing::properties(&context, body).await,
        "PATCH" => Err(RequestRefusal::new(StatusCode::NOT_IMPLEMENTED, "Request not supported yet.")),
        _ => Err(RequestRefusal::new(StatusCode::NOT_IMPLEMENTED, "Request not supported.")),
    };
    Ok(replied.unwrap_or_else(|refusal| context.refuse(refusal)))
}

/// Refuses requests that servers behind each other could understand differently.
fn check_head(head: &Parts) -> Result<(), RequestRefusal> {
    let hosts = head.headers.get_all(HOST).iter().count();
    if hosts > 1 || (hosts == 0 && head.version >= Version::HTTP_11) {
        return Err(RequestRefusal::new(StatusCode::BAD_REQUEST, "A request has one header Host."));
    }
    http2::check_head(head)?;
    if !has_plain_framing(&head.headers) {
        return Err(RequestRefusal::new(
            StatusCode::BAD_REQUEST,
            "The only transfer coding of a request is chunked, once.",
        ));
    }
    if head.method == Method::CONNECT {
        return Err(RequestRefusal::new(StatusCode::NOT_IMPLEMENTED, "Request not supported."));
    }
    Ok(())
}

/// Reports whether the body has no transfer coding besides chunks. The coding of another would be stored
/// as if it were the file.
fn has_plain_framing(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => true,
        (Some(coding), None) => coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => false,
    }
}

/// Returns the token of a request: that of the header `Authorization`, else that of the URL.
fn token(headers: &HeaderMap, cgi: &Cgi) -> Result<Option<Secret>, RequestRefusal> {
    let invalid = |what: &str| RequestRefusal::new(StatusCode::BAD_REQUEST, what);
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().map(|value| value.as_bytes().to_vec());
    if values.next().is_some() {
        return Err(invalid("A request has one header Authorization."));
    }
    let value = match value {
        Some(value) => Some(value),
        None => match cgi.get(TOKEN_KEY) {
            Some(value) => {
                Some(base::percent_decode(value).ok_or_else(|| invalid("The token is malformed."))?)
            }
            None => None,
        },
    };
    let Some(value) = value else { return Ok(None) };
    let value = Secret::new(value);
    let bytes = value.expose();
    let scheme = bytes.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case(b"Bearer "));
    let token = match scheme {
        Some(_) => bytes.get(7..).unwrap_or_default(),
        // Another scheme is no token.
        None if bytes.contains(&b' ') => return Ok(None),
        None => bytes,
    };
    let token = token.trim_ascii();
    if token.len() > TOKEN_BYTES_MAX {
        return Err(invalid("The token is too long."));
    }
    Ok((!token.is_empty()).then(|| Secret::from(token)))
}

/// Returns the name of the program of the client, for logs.
fn application(headers: &HeaderMap) -> String {
    let agent = headers.get(USER_AGENT).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let agent = agent.unwrap_or_default();
    let shown = |c: char| if c.is_control() || c == ' ' { '_' } else { c };
    agent.chars().take(APPLICATION_CHARS_MAX).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token_of(header: Option<&str>, cgi: &str) -> Option<Vec<u8>> {
        let mut headers = HeaderMap::new();
        if let Some(header) = header {
            headers.insert(AUTHORIZATION, HeaderValue::from_str(header).unwrap());
        }
        token(&headers, &Cgi::new(cgi.as_bytes())).unwrap().map(|token| token.expose().to_vec())
    }

    #[test]
    fn bodies_have_no_coding_but_chunks() {
        let is_plain = |values: &[&'static str]| {
            let pairs = values.iter().map(|value| (TRANSFER_ENCODING, HeaderValue::from_static(value)));
            has_plain_framing(&pairs.collect())
        };
        for values in [&[][..], &["chunked"], &["Chunked"]] {
            assert!(is_plain(values), "{values:?}");
        }
        for values in [
            &["gzip, chunked"][..],
            &["chunked, chunked"],
            &["chunked", "chunked"],
            &["gzip", "chunked"],
            &["chunked;q=1"],
            &["identity"],
            &[""],
        ] {
            assert!(!is_plain(values), "{values:?}");
        }
    }

    #[test]
    fn a_token_is_that_of_the_header_or_of_the_url() {
        let some = |text: &str| Some(text.as_bytes().to_vec());
        assert_eq!(token_of(Some("Bearer a.b.c"), "authz=x"), some("a.b.c"));
        assert_eq!(token_of(Some("bearer  a.b.c "), ""), some("a.b.c"));
        assert_eq!(token_of(None, "x=1&authz=Bearer%20a.b.c"), some("a.b.c"));
        assert_eq!(token_of(None, "authz=a.b.c"), some("a.b.c"));
        // A password is no token, and does not count as the one of the URL.
        assert_eq!(token_of(Some("Basic dTpw"), "authz=x"), None);
        assert_eq!(token_of(Some("Bearer "), ""), None);
        assert_eq!(token_of(None, ""), None);
    }

    #[test]
    fn two_headers_are_refused() {
        let mut headers = HeaderMap::new();
        for value in ["Bearer a", "Bearer b"] {
            headers.append(AUTHORIZATION, HeaderValue::from_static(value));
        }
        assert!(matches!(
            token(&headers, &Cgi::new(b"")),
            Err(RequestRefusal::Status(StatusCode::BAD_REQUEST, _))
        ));
    }
}
