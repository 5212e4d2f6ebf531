//! Macaroons for clients, in the form of dCache and in that of OAuth.
//!
//! | request | reply |
//! |---|---|
//! | `POST PATH` with `application/macaroon-request` | a macaroon for the path |
//! | `POST /.oauth2/token` | a macaroon for the path of its scopes |
//! | `GET /.well-known/oauth-authorization-server` | the address of the endpoint before |
//!
//! The file system decides about the rights in a macaroon, as about all requests. Source:
//! protocol/http.md, section 11.1, and security facts, section 3.8.

mod request;

use crate::STALL_TIME_MAX;
use crate::config::MacaroonEndpoints;
use crate::reply::{self, ReplyBody, RequestRefusal, RequestReply};
use crate::service::RequestContext;
use auth::macaroons::Activity;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
pub use request::{parse_form, parse_json};
use serde_json::json;
use vfs::{IssuedMacaroon, MacaroonOrder, Operation, Target, Value};

/// The path of the description of the server for clients of OAuth.
const METADATA_PATH: &str = "/.well-known/oauth-authorization-server";
/// The path of the endpoint for tokens.
const TOKEN_PATH: &str = "/.oauth2/token";
/// The types of bodies.
const MACAROON_TYPE: &str = "application/macaroon-request";
const FORM_TYPE: &str = "application/x-www-form-urlencoded";

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// The purpose of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MacaroonEndpoint {
    /// The description of the server.
    Metadata,
    /// Tokens of OAuth.
    Token,
    /// A macaroon for the path of the request.
    Path,
}

impl MacaroonEndpoint {
    /// Returns the endpoint of a request; `None` if it is for something else.
    pub(crate) fn of(head: &Parts) -> Option<Self> {
        match head.uri.path() {
            // The content types that a page of another site may send do not depend on the path.
            _ if head.method == Method::OPTIONS => None,
            METADATA_PATH => Some(Self::Metadata),
            TOKEN_PATH => Some(Self::Token),
            _ => (head.method == Method::POST).then_some(Self::Path),
        }
    }

    /// Returns the methods.
    const fn methods(self) -> &'static str {
        match self {
            Self::Metadata => "GET,HEAD",
            Self::Token | Self::Path => "POST",
        }
    }

    /// Returns the type of the body.
    const fn body_type(self) -> Option<&'static str> {
        match self {
            Self::Metadata => None,
            Self::Token => Some(FORM_TYPE),
            Self::Path => Some(MACAROON_TYPE),
        }
    }
}

/// Returns the endpoint of a request; `None` if it is for something else.
///
/// # Errors
/// The head of the request is wrong, whoever the client is.
pub(crate) fn endpoint(
    endpoints: &MacaroonEndpoints,
    head: &Parts,
    is_tls: bool,
) -> Result<Option<MacaroonEndpoint>, RequestRefusal> {
    let Some(endpoint) = MacaroonEndpoint::of(head) else { return Ok(None) };
    if !endpoint.methods().split(',').any(|method| method == head.method.as_str()) {
        let what = format!("The method here is {}.", endpoint.methods());
        return Err(RequestRefusal::new(StatusCode::METHOD_NOT_ALLOWED, what));
    }
    if let Some(expected) = endpoint.body_type() {
        request::check_type(&head.headers, expected)?;
    }
    if endpoint != MacaroonEndpoint::Metadata && endpoints.needs_tls && !is_tls {
        // Everybody on the way could use the macaroon.
        return Err(RequestRefusal::new(StatusCode::FORBIDDEN, "Macaroons are issued over https only."));
    }
    Ok(Some(endpoint))
}

/// Replies with the description of the server. `has_tls` tells whether it serves HTTPS.
pub(crate) fn metadata(
    endpoints: &MacaroonEndpoints,
    head: &Parts,
    has_tls: bool,
) -> Result<RequestReply, RequestRefusal> {
    let host = head.headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.filter(|host| (endpoints.is_own_host)(host)).ok_or_else(|| {
        let what = "The name in Host is not one of this server.";
        RequestRefusal::new(StatusCode::BAD_REQUEST, what)
    })?;
    let scheme = if has_tls { "https" } else { "http" };
    Ok(json_reply(StatusCode::OK, &json!({ "token_endpoint": format!("{scheme}://{host}{TOKEN_PATH}") })))
}

/// Replies to a request for a macaroon.
pub(crate) async fn reply(
    context: &RequestContext,
    endpoint: MacaroonEndpoint,
    body: &mut Incoming,
) -> Result<RequestReply, RequestRefusal> {
    let body = request::read_body(context.headers(), body, STALL_TIME_MAX).await?;
    let invalid = |what: String| RequestRefusal::new(StatusCode::BAD_REQUEST, what);
    if endpoint == MacaroonEndpoint::Token {
        let (path, order) = parse_form(&body).map_err(invalid)?;
        // The CGI has the credential of the request.
        let target = Target { path, cgi: context.target.cgi.clone() };
        let path = check_path(&target)?;
        let issued = issue(context, &target, &order).await?;
        let scopes = names(&issued.activities).map(|name| format!("{name}:{path}"));
        return Ok(json_reply(
            StatusCode::OK,
            &json!({
                "access_token": token_text(&issued)?,
                "token_type": "bearer",
                "expires_in": issued.validity.as_secs(),
                "scope": scopes.collect::<Vec<_>>().join(" "),
            }),
        ));
    }
    let order = parse_json(&body).map_err(invalid)?;
    check_path(&context.target)?;
    let issued = issue(context, &context.target, &order).await?;
    let found = json!({ "macaroon": token_text(&issued)?, "expires_in": issued.validity.as_secs() });
    Ok(json_reply(StatusCode::OK, &found))
}

async fn issue(
    context: &RequestContext,
    target: &Target,
    order: &MacaroonOrder,
) -> Result<IssuedMacaroon, RequestRefusal> {
    match context.run(|| Operation::IssueMacaroon(target.clone(), Box::new(order.clone()))).await? {
        Value::Macaroon(issued) => Ok(*issued),
        _ => Err(RequestRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, "there is no macaroon")),
    }
}

fn names(activities: &[Activity]) -> impl Iterator<Item = &'static str> {
    Activity::ALL.into_iter().filter(|(_, one)| activities.contains(one)).map(|(name, _)| name)
}

fn token_text(issued: &IssuedMacaroon) -> Result<&str, RequestRefusal> {
    let invalid = |_| RequestRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, "there is no macaroon");
    std::str::from_utf8(issued.text.expose()).map_err(invalid)
}

/// Returns the path as text. Other paths cannot be in a caveat, where other programs would read them
/// differently.
fn check_path(target: &Target) -> Result<&str, RequestRefusal> {
    let path = std::str::from_utf8(target.path.as_bytes()).ok();
    path.filter(|path| !path.chars().any(char::is_control)).ok_or_else(|| {
        let what = "The path of a macaroon is UTF-8 without control characters.";
        RequestRefusal::new(StatusCode::BAD_REQUEST, what)
    })
}

/// Returns the reply to a request that is refused.
pub(crate) fn refuse(endpoint: MacaroonEndpoint, refusal: RequestRefusal) -> RequestReply {
    let (status, what, retry) = refusal.explained();
    let code = match status {
        StatusCode::UNAUTHORIZED => "invalid_client",
        StatusCode::FORBIDDEN => "access_denied",
        StatusCode::SERVICE_UNAVAILABLE => "temporarily_unavailable",
        status if status.is_client_error() => "invalid_request",
        _ => "server_error",
    };
    let mut refused = json_reply(status, &json!({ "error": code, "error_description": what }));
    reply::add_refusal_headers(&mut refused, retry);
    match status {
        StatusCode::METHOD_NOT_ALLOWED => reply::set(&mut refused, ALLOW, endpoint.methods()),
        StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            reply::set(&mut refused, ACCEPT, endpoint.body_type().unwrap_or_default());
        }
        _ => {}
    }
    refused
}

/// Returns a reply with JSON that no cache may keep.
fn json_reply(status: StatusCode, value: &serde_json::Value) -> RequestReply {
    let text = format!("{value:#}\n");
    let mut replied = reply::with_body(status, ReplyBody::Whole(Bytes::from(text)));
    replied.headers_mut().insert(CONTENT_TYPE, JSON);
    replied.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    replied
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;
    use std::sync::Arc;

    fn head(method: &str, path: &str) -> Parts {
        let request = Request::builder().method(method).uri(path).header(HOST, "h:1094");
        request.header(CONTENT_TYPE, FORM_TYPE).body(()).unwrap().into_parts().0
    }

    fn endpoints() -> MacaroonEndpoints {
        MacaroonEndpoints { needs_tls: false, is_own_host: Arc::new(|host| host == "h:1094") }
    }

    #[test]
    fn methods_of_the_endpoints() {
        let found = |method: &str, path: &str| match endpoint(&endpoints(), &head(method, path), false) {
            Ok(endpoint) => Ok(endpoint),
            Err(RequestRefusal::Status(status, _)) => Err(status),
            Err(RequestRefusal::Call(_)) => panic!("{method} {path}"),
        };
        for method in ["GET", "HEAD"] {
            assert_eq!(found(method, METADATA_PATH), Ok(Some(MacaroonEndpoint::Metadata)), "{method}");
            assert_eq!(found(method, TOKEN_PATH), Err(StatusCode::METHOD_NOT_ALLOWED), "{method}");
            assert_eq!(found(method, "/f"), Ok(None), "{method}");
        }
        assert_eq!(found("POST", TOKEN_PATH), Ok(Some(MacaroonEndpoint::Token)));
        for method in ["POST", "PUT", "DELETE"] {
            assert_eq!(found(method, METADATA_PATH), Err(StatusCode::METHOD_NOT_ALLOWED), "{method}");
        }
        for path in [METADATA_PATH, TOKEN_PATH, "/f", "*"] {
            assert_eq!(found("OPTIONS", path), Ok(None), "{path}");
        }
    }

    #[test]
    fn the_description_has_the_scheme_of_the_server() {
        for (has_tls, expected) in [(true, "https"), (false, "http")] {
            let Ok(reply) = metadata(&endpoints(), &head("GET", METADATA_PATH), has_tls) else {
                panic!("refused")
            };
            let ReplyBody::Whole(body) = reply.into_body() else { panic!("another body") };
            let found: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(found["token_endpoint"], format!("{expected}://h:1094{TOKEN_PATH}"));
        }
    }
}
