//! What the head of a request says about its client: a token, and the name of its program.

use crate::TOKEN_BYTES_MAX;
use crate::reply::RequestRefusal;
use auth::{S3User, Secret};
use base::Cgi;
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HeaderMap, USER_AGENT};

/// The key of tokens in the CGI.
const TOKEN_KEY: &str = "authz";

/// Maximum length of the name of an application.
const APPLICATION_CHARS_MAX: usize = 128;

/// What a client has shown with a request.
#[derive(Clone)]
pub(crate) enum ShownCredential {
    Nothing,
    Token(Secret),
    /// A signature of S3, which was verified.
    Signature(S3User),
}

impl ShownCredential {
    /// Reports whether both identify the same client.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Nothing, Self::Nothing) => true,
            (Self::Token(token), Self::Token(other)) => token.is_equal(other.expose()),
            (Self::Signature(user), Self::Signature(other)) => user.has_key_of(other),
            _ => false,
        }
    }
}

/// Returns the token of a request: that of the header `Authorization`, else that of the URL.
pub(crate) fn token(headers: &HeaderMap, cgi: &Cgi) -> Result<Option<Secret>, RequestRefusal> {
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
pub(crate) fn application(headers: &HeaderMap) -> String {
    let agent = headers.get(USER_AGENT).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let agent = agent.unwrap_or_default();
    let shown = |c: char| if c.is_control() || c == ' ' { '_' } else { c };
    agent.chars().take(APPLICATION_CHARS_MAX).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn token_of(header: Option<&str>, cgi: &str) -> Option<Vec<u8>> {
        let mut headers = HeaderMap::new();
        if let Some(header) = header {
            headers.insert(AUTHORIZATION, HeaderValue::from_str(header).unwrap());
        }
        token(&headers, &Cgi::new(cgi.as_bytes())).unwrap().map(|token| token.expose().to_vec())
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
