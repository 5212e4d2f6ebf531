//! The bearer tokens of requests: that of the URL, or that of the user of this process.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use auth::Secret;
use auth::tokens::{TOKEN_BYTES_MAX, TOKEN_KEY};
use auth::ztn::TokenPlaces;
use hyper::header::HeaderValue;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::failure::Cause;
use crate::url::Url;

/// Time for which the token of the user is used before it is looked for again.
const KEPT_TIME: Duration = Duration::from_secs(10);
/// The text before a token.
const BEARER: &str = "Bearer ";

/// The token of the user of this process.
#[derive(Default)]
pub(super) struct BearerCache(Mutex<Option<watch::Receiver<LookUp>>>);

/// A look-up of the token.
enum LookUp {
    InProgress,
    /// Its time and its result.
    Ended(Instant, Option<Secret>),
}

impl BearerCache {
    /// Returns the token of the user, if there is one. All callers wait for one look-up, which goes on when they
    /// give up.
    pub(super) async fn token(&self, places: &TokenPlaces) -> Option<Secret> {
        let places = places.clone();
        self.token_from(move || find(&places)).await
    }

    async fn token_from(&self, find: impl FnOnce() -> Option<Secret> + Send + 'static) -> Option<Secret> {
        let mut look_up = self.look_up(find)?;
        let ended = look_up.wait_for(|look_up| matches!(look_up, LookUp::Ended(..))).await.ok()?;
        match &*ended {
            LookUp::Ended(_, token) => token.clone(),
            LookUp::InProgress => None,
        }
    }

    /// Returns the current look-up, or begins one on a thread of its own, because a file system can block.
    fn look_up(
        &self,
        find: impl FnOnce() -> Option<Secret> + Send + 'static,
    ) -> Option<watch::Receiver<LookUp>> {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_current = |look_up: &&watch::Receiver<LookUp>| match &*look_up.borrow() {
            // Without a sender its thread has ended.
            LookUp::InProgress => look_up.has_changed().is_ok(),
            LookUp::Ended(since, _) => since.elapsed() < KEPT_TIME,
        };
        if let Some(look_up) = current.as_ref().filter(is_current) {
            return Some(look_up.clone());
        }
        let (sender, look_up) = watch::channel(LookUp::InProgress);
        let run = move || {
            let found = find();
            sender.send_replace(LookUp::Ended(Instant::now(), found));
        };
        std::thread::Builder::new().name("token".to_owned()).spawn(run).ok()?;
        *current = Some(look_up.clone());
        Some(look_up)
    }
}

/// Looks for the token.
fn find(places: &TokenPlaces) -> Option<Secret> {
    match places.find(None, TOKEN_BYTES_MAX) {
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
    let decoded = base::percent_decode(value.as_bytes()).ok_or_else(bad)?;
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
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, mpsc};
    use tokio::time::timeout;

    #[tokio::test]
    async fn a_look_up_that_hangs_is_the_only_one() {
        let (cache, count) = (BearerCache::default(), Arc::new(AtomicUsize::new(0)));
        let (release, released) = mpsc::channel::<()>();
        let counted = count.clone();
        let mut first = Box::pin(cache.token_from(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            released.recv().ok();
            Some(Secret::from(&b"abc"[..]))
        }));
        assert!(timeout(Duration::from_millis(20), &mut first).await.is_err(), "it is in progress");
        // The caller gives up.
        drop(first);
        let counted = count.clone();
        let next = cache.token_from(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            None
        });
        release.send(()).unwrap();
        assert_eq!(next.await.unwrap().expose(), b"abc");
        assert_eq!(cache.token_from(|| None).await.unwrap().expose(), b"abc", "it is kept");
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_look_up_whose_thread_has_ended_is_no_token() {
        let cache = BearerCache::default();
        assert!(cache.token_from(|| panic!("a panic that the test has asked for")).await.is_none());
        assert!(cache.token_from(|| Some(Secret::from(&b"abc"[..]))).await.is_some());
    }

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
