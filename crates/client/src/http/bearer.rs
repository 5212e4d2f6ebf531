//! The bearer tokens of requests: that of the URL, or that of the user of this process.

use std::time::Duration;

use auth::Secret;
use auth::tokens::{TOKEN_BYTES_MAX, TOKEN_KEY};
use auth::ztn::TokenPlaces;
use hyper::header::HeaderValue;
use tokio::sync::{Mutex, oneshot};
use tokio::time::Instant;

use super::address::decode;
use crate::failure::Cause;
use crate::url::Url;

/// Time for which the token of the user is used before it is looked for again.
const KEPT_TIME: Duration = Duration::from_secs(10);
/// The text before a token.
const BEARER: &str = "Bearer ";

/// The token of the user of this process.
#[derive(Default)]
pub(super) struct BearerCache(Mutex<Option<(Instant, Option<Secret>)>>);

impl BearerCache {
    /// Returns the token of the user, if there is one.
    pub(super) async fn token(&self, places: &TokenPlaces) -> Option<Secret> {
        let mut kept = self.0.lock().await;
        if let Some((since, token)) = &*kept
            && since.elapsed() < KEPT_TIME
        {
            return token.clone();
        }
        let found = look_up(places.clone()).await;
        *kept = Some((Instant::now(), found.clone()));
        found
    }
}

/// Looks for the token on a thread of its own, because a file system can block.
async fn look_up(places: TokenPlaces) -> Option<Secret> {
    let (answer, answered) = oneshot::channel();
    let find = move || {
        // The caller may have given up.
        let _ = answer.send(places.find(None, TOKEN_BYTES_MAX));
    };
    std::thread::Builder::new().name("token".to_owned()).spawn(find).ok()?;
    match answered.await.ok()? {
        Ok(token) => Some(token),
        Err((reason, remedy)) => {
            tracing::debug!(reason, remedy, "no bearer token");
            None
        }
    }
}

/// Returns the token in the opaque text of a URL: `authz=TOKEN`, `authz=Bearer%20TOKEN`.
pub(super) fn token_of(url: &Url) -> Result<Option<Secret>, Cause> {
    let Some(value) = url.cgi.get(TOKEN_KEY).filter(|value| !value.is_empty()) else { return Ok(None) };
    let bad = || Cause::BadArgument("the value of authz is not a token".to_owned());
    let decoded = decode(value).ok_or_else(bad)?;
    let text = std::str::from_utf8(&decoded).map_err(|_| bad())?;
    let begins = text.get(..BEARER.len()).is_some_and(|start| start.eq_ignore_ascii_case(BEARER));
    let token = if begins { text.get(BEARER.len()..).unwrap_or_default() } else { text };
    let is_token =
        !token.is_empty() && token.len() <= TOKEN_BYTES_MAX && token.bytes().all(|b| b.is_ascii_graphic());
    if is_token { Ok(Some(Secret::from(token.as_bytes()))) } else { Err(bad()) }
}

/// Returns the value of the `Authorization` header.
pub(super) fn header_value(token: &Secret) -> Option<HeaderValue> {
    let value = [BEARER.as_bytes(), token.expose()].concat();
    let mut value = HeaderValue::from_bytes(&value).ok()?;
    // Not in the output for debugging.
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_several_spellings_and_no_other_header_in_them() {
        let token = |value: &str| {
            let url = Url::parse(&format!("https://h/a?authz={value}")).unwrap();
            token_of(&url).map(|token| token.map(|token| String::from_utf8(token.expose().to_vec()).unwrap()))
        };
        for value in ["abc.d-e_f", "Bearer%20abc.d-e_f", "bearer abc.d-e_f"] {
            assert_eq!(token(value), Ok(Some("abc.d-e_f".to_owned())), "{value}");
        }
        assert_eq!(token(""), Ok(None));
        for value in ["Bearer%20", "a%0d%0aX:%20y", "a b", "%zz", "Basic%20dTpw"] {
            assert!(token(value).is_err(), "{value}");
        }
        assert!(header_value(&Secret::from(&b"abc"[..])).unwrap().is_sensitive());
    }
}
