//! The paths and methods of the tape API.

use super::{TapeRest, text};
use crate::reply::{self, ReplyBody, RequestRefusal, RequestReply};
use crate::status;
use bytes::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HOST};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};

/// The path by which clients find the API.
const DISCOVERY: &str = "/.well-known/wlcg-tape-rest-api";

/// Maximum length of the id of a request.
const ID_BYTES_MAX: usize = 128;

/// A call of the API.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum TapeCall {
    /// `POST stage`.
    Stage,
    /// `GET stage/ID`.
    State(String),
    /// `DELETE stage/ID`.
    Forget(String),
    /// `POST stage/ID/cancel`.
    Cancel(String),
    /// `POST release/ID`.
    Release(String),
    /// `POST archiveinfo`.
    ArchiveInfo,
}

/// Reports whether a path is one of the API. Files there are not reached by HTTP.
pub(crate) fn is_below(tape: &TapeRest, path: &str) -> bool {
    path.strip_prefix(&tape.prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the call of a request below the prefix.
pub(crate) fn route(tape: &TapeRest, method: &Method, path: &str) -> Result<TapeCall, RequestRefusal> {
    let rest = path.strip_prefix(&tape.prefix).unwrap_or_default();
    let parts: Vec<&str> = rest.split('/').filter(|part| !part.is_empty()).take(4).collect();
    let is_id = |id: &str| {
        id.len() <= ID_BYTES_MAX
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    let call = match (parts.as_slice(), method.as_str()) {
        (["stage"], "POST") => TapeCall::Stage,
        (["archiveinfo"], "POST") => TapeCall::ArchiveInfo,
        (["stage", id], "GET") if is_id(id) => TapeCall::State((*id).to_owned()),
        (["stage", id], "DELETE") if is_id(id) => TapeCall::Forget((*id).to_owned()),
        (["stage", id, "cancel"], "POST") if is_id(id) => TapeCall::Cancel((*id).to_owned()),
        (["release", id], "POST") if is_id(id) => TapeCall::Release((*id).to_owned()),
        (["stage" | "archiveinfo"] | ["stage", _] | ["stage", _, "cancel"] | ["release", _], method)
            if !["GET", "POST", "DELETE"].contains(&method) =>
        {
            return Err(wrong_method());
        }
        (["stage" | "archiveinfo"] | ["stage", _, "cancel"] | ["release", _], "GET" | "DELETE")
        | (["stage", _], "POST") => return Err(wrong_method()),
        _ => return Err(RequestRefusal::new(StatusCode::NOT_FOUND, "There is no such resource.")),
    };
    Ok(call)
}

fn wrong_method() -> RequestRefusal {
    RequestRefusal::new(StatusCode::METHOD_NOT_ALLOWED, "This resource has other methods.")
}

/// Returns the URL of this server without a path, as the client knows it.
pub(super) fn origin(head: &Parts, is_tls: bool) -> Option<String> {
    let host = head.headers.get(HOST)?.to_str().ok().filter(|host| !host.is_empty())?;
    let scheme = if is_tls { "https" } else { "http" };
    Some(format!("{scheme}://{host}"))
}

/// Returns the page by which clients find the API; `None` if the request has another path.
pub(crate) fn discovery(tape: &TapeRest, head: &Parts, is_tls: bool) -> Option<RequestReply> {
    if head.uri.path() != DISCOVERY {
        return None;
    }
    if head.method != Method::GET && head.method != Method::HEAD {
        let text = "This page can only be read.";
        let mut refused = super::refuse(RequestRefusal::new(StatusCode::METHOD_NOT_ALLOWED, text));
        reply::set(&mut refused, ALLOW, "GET,HEAD");
        return Some(refused);
    }
    let Some(origin) = origin(head, is_tls) else {
        let text = "The API has an address with a header Host only.";
        return Some(super::refuse(RequestRefusal::new(StatusCode::BAD_REQUEST, text)));
    };
    let page = text::discovery(&tape.site, &format!("{origin}{}", tape.prefix));
    let mut replied = reply::with_body(StatusCode::OK, ReplyBody::Whole(Bytes::from(page)));
    reply::set(&mut replied, CONTENT_TYPE, super::JSON);
    Some(status::uncached(replied))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(method: &str, path: &str) -> Result<TapeCall, StatusCode> {
        let tape = TapeRest { prefix: "/api/v1".to_owned(), site: "S".to_owned() };
        assert!(is_below(&tape, path), "{path}");
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        route(&tape, &method, path).map_err(|refusal| match refusal {
            RequestRefusal::Status(status, _) => status,
            RequestRefusal::Call(_) => panic!("{path}"),
        })
    }

    #[test]
    fn calls_are_methods_and_paths() {
        let id = || "scalla01.5-a_b".to_owned();
        for (method, path, call) in [
            ("POST", "/api/v1/stage", TapeCall::Stage),
            ("POST", "/api/v1/stage/", TapeCall::Stage),
            ("POST", "/api/v1//archiveinfo/", TapeCall::ArchiveInfo),
            ("GET", "/api/v1/stage/scalla01.5-a_b", TapeCall::State(id())),
            ("DELETE", "/api/v1/stage/scalla01.5-a_b/", TapeCall::Forget(id())),
            ("POST", "/api/v1/stage/scalla01.5-a_b/cancel", TapeCall::Cancel(id())),
            ("POST", "/api/v1/release/scalla01.5-a_b", TapeCall::Release(id())),
        ] {
            assert_eq!(called(method, path), Ok(call), "{method} {path}");
        }
        let missing = Err(StatusCode::NOT_FOUND);
        for path in ["/api/v1", "/api/v1/", "/api/v1/other", "/api/v1/stage/a/b/c/d", "/api/v1/release"] {
            assert_eq!(called("POST", path), missing, "{path}");
        }
        let long = format!("/api/v1/stage/{}", "a".repeat(ID_BYTES_MAX + 1));
        for path in [long.as_str(), "/api/v1/stage/a%2fb", "/api/v1/stage/a/cancel"] {
            assert!(called("GET", path).is_err(), "{path}");
        }
        for (method, path) in [
            ("GET", "/api/v1/stage"),
            ("PUT", "/api/v1/stage/x"),
            ("POST", "/api/v1/stage/x"),
            ("GET", "/api/v1/archiveinfo"),
            ("DELETE", "/api/v1/release/x"),
        ] {
            assert_eq!(called(method, path), Err(StatusCode::METHOD_NOT_ALLOWED), "{method} {path}");
        }
    }

    #[test]
    fn other_paths_are_files() {
        let tape = TapeRest { prefix: "/api/v1".to_owned(), site: "S".to_owned() };
        for path in ["/", "/api", "/api/v10", "/api/v1x/stage", "/x/api/v1"] {
            assert!(!is_below(&tape, path), "{path}");
        }
    }
}
