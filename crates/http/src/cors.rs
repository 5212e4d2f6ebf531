//! Replies that pages of other sites may read in a browser (`http.cors`, `cors.origin`).

use hyper::header::{ACCESS_CONTROL_ALLOW_ORIGIN, HeaderMap, HeaderValue, ORIGIN, VARY};

/// Returns the origin of a request, if its pages may read the reply.
pub(crate) fn allowed(request: &HeaderMap, origins: &[String]) -> Option<HeaderValue> {
    let origin = request.get(ORIGIN)?;
    origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes()).then(|| origin.clone())
}

/// Adds the permission for `allowed`. Where sites are configured, replies differ by origin.
pub(crate) fn add(reply: &mut HeaderMap, allowed: Option<HeaderValue>, origins: &[String]) {
    if !origins.is_empty() {
        reply.append(VARY, HeaderValue::from_static("Origin"));
    }
    if let Some(origin) = allowed {
        reply.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_equal_origins_are_allowed() {
        let origins = ["https://one.example".to_owned(), "https://two.example:8443".to_owned()];
        let reply = |origin: Option<&'static str>, origins: &[String]| {
            let request = origin.map(|origin| (ORIGIN, HeaderValue::from_static(origin)));
            let mut reply = HeaderMap::new();
            add(&mut reply, allowed(&request.into_iter().collect(), origins), origins);
            let text = |name| reply.get(name).map(|value: &HeaderValue| value.to_str().unwrap().to_owned());
            (text(ACCESS_CONTROL_ALLOW_ORIGIN), text(VARY))
        };
        let vary = Some("Origin".to_owned());
        for origin in &origins {
            let value: &'static str = Box::leak(origin.clone().into_boxed_str());
            assert_eq!(reply(Some(value), &origins), (Some(origin.clone()), vary.clone()));
        }
        for origin in
            ["https://one.example.evil", "http://one.example", "https://one.example:443", "null", "*"]
        {
            assert_eq!(reply(Some(origin), &origins), (None, vary.clone()), "{origin}");
        }
        assert_eq!(reply(None, &origins), (None, vary));
        assert_eq!(reply(Some("https://one.example"), &[]), (None, None));
    }
}
