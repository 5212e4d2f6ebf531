//! The bodies of requests for macaroons: JSON, and forms of OAuth.

use crate::MACAROON_REQUEST_BYTES_MAX;
use crate::reply::RequestRefusal;
use auth::macaroons::{Activity, VALIDITY_FORM, validity};
use base::LogicalPath;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::Body;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use serde::Deserialize;
use std::fmt::Display;
use std::time::Duration;
use tokio::time::timeout;
use vfs::MacaroonOrder;

/// The only grant type of requests for tokens.
const GRANT_TYPE: &str = "client_credentials";

/// The first text of a caveat that a request may have.
const ACTIVITY: &str = "activity";

/// Caveats that only the server sets.
const RESERVED: [&str; 3] = ["name", "path", "before"];

/// A request in JSON. Members that are not known do not count, as at other storage systems.
#[derive(Deserialize)]
struct JsonOrder {
    validity: String,
    caveats: Option<Vec<String>>,
}

/// Parses a request in JSON. The error is for the client.
///
/// # Errors
/// The body is not the JSON of a request, or a value is not allowed.
pub fn parse_json(body: &[u8]) -> Result<MacaroonOrder, String> {
    let text = std::str::from_utf8(body).map_err(|_| "The body is not UTF-8.")?;
    let order: JsonOrder = serde_json::from_str(text)
        .map_err(|error| format!("The body is not the JSON of a request: {error}"))?;
    let wanted = validity(&order.validity);
    let wanted =
        wanted.ok_or_else(|| format!("The validity is not a time; it has the form {VALIDITY_FORM}."))?;
    let mut activities: Option<Vec<Activity>> = None;
    for caveat in order.caveats.unwrap_or_default() {
        let found = activities_of(&caveat)?;
        // Several restrict each other.
        activities = Some(match activities {
            None => found,
            Some(before) => before.into_iter().filter(|one| found.contains(one)).collect(),
        });
    }
    Ok(MacaroonOrder { activities, validity: Some(wanted) })
}

/// Returns the activities of a caveat. Those of other storage systems allow nothing here.
fn activities_of(caveat: &str) -> Result<Vec<Activity>, String> {
    match caveat.split_once(':') {
        Some((ACTIVITY, list)) => {
            Ok(list.split(',').filter_map(|name| Activity::of_name(name.trim())).collect())
        }
        Some((key, _)) if RESERVED.contains(&key) => {
            Err(format!("The caveat '{key}' is set by the server only."))
        }
        _ => Err("A caveat of a request begins with 'activity:'.".to_owned()),
    }
}

/// Parses a request of OAuth. Returns the path of its scopes, too. The error is for the client.
///
/// # Errors
/// The body is not such a form, or a value is not allowed.
pub fn parse_form(body: &[u8]) -> Result<(LogicalPath, MacaroonOrder), String> {
    let form = TokenForm::parse(body)?;
    if form.grant_type.as_deref() != Some(GRANT_TYPE) {
        return Err(format!("The grant_type is not {GRANT_TYPE}."));
    }
    let scope = form.scope.ok_or("There is no scope.")?;
    let mut path: Option<LogicalPath> = None;
    let mut activities = Vec::new();
    for one in scope.split(' ').filter(|one| !one.is_empty()) {
        let (name, own) = one.split_once(':').ok_or("A scope has the form ACTIVITY:/path.")?;
        activities.push(Activity::of_name(name).ok_or_else(unknown_activity)?);
        let own = LogicalPath::parse(own.as_bytes());
        let own = own.map_err(|_| "The path of a scope is not absolute, or contains '..'.")?;
        if path.as_ref().is_some_and(|path| *path != own) {
            return Err("All scopes must have the same path.".to_owned());
        }
        path = Some(own);
    }
    let path = path.ok_or("There is no scope.")?;
    Ok((path, MacaroonOrder { activities: Some(activities), validity: form.expire_in }))
}

fn unknown_activity() -> String {
    let names = Activity::ALL.map(|(name, _)| name);
    format!("A scope has an unknown activity; they are {}.", names.join(", "))
}

/// The fields of a form that count.
#[derive(Default)]
struct TokenForm {
    grant_type: Option<String>,
    scope: Option<String>,
    expire_in: Option<Duration>,
}

impl TokenForm {
    fn parse(body: &[u8]) -> Result<Self, String> {
        let mut form = Self::default();
        for field in body.split(|byte| *byte == b'&') {
            let mut parts = field.splitn(2, |byte| *byte == b'=');
            let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            let known = match name {
                b"grant_type" => &mut form.grant_type,
                b"scope" => &mut form.scope,
                b"expire_in" => {
                    let seconds =
                        text(value).filter(|_| form.expire_in.is_none()).and_then(|text| seconds(&text));
                    form.expire_in = Some(seconds.ok_or("expire_in is not one number of seconds above 0.")?);
                    continue;
                }
                _ => continue,
            };
            let value = text(value).filter(|_| known.is_none());
            let name = String::from_utf8_lossy(name);
            *known = Some(value.ok_or_else(|| format!("There is no single text as {name}."))?);
        }
        Ok(form)
    }
}

/// Decodes a value of a form.
fn text(value: &[u8]) -> Option<String> {
    let blanks: Vec<u8> = value.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    String::from_utf8(base::percent_decode(&blanks)?).ok()
}

fn seconds(text: &str) -> Option<Duration> {
    let digits = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits?.parse().ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
}

/// Refuses a body of another type.
pub(super) fn check_type(headers: &HeaderMap, expected: &str) -> Result<(), RequestRefusal> {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let found = types.next().and_then(|value| value.to_str().ok()).filter(|_| types.next().is_none());
    // Parameters, such as the character set, change nothing.
    let found = found.and_then(|found| found.split(';').next()).map(str::trim);
    if found.is_some_and(|found| found.eq_ignore_ascii_case(expected)) {
        return Ok(());
    }
    let what = format!("The Content-Type of this request must be {expected}.");
    Err(RequestRefusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, what))
}

/// Reads a body whose length is announced and small. It must arrive in `limit`.
pub(super) async fn read_body<B>(
    headers: &HeaderMap,
    body: &mut B,
    limit: Duration,
) -> Result<Vec<u8>, RequestRefusal>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Display,
{
    let refusal = |status, what: &str| RequestRefusal::new(status, what);
    let announced = headers.get(CONTENT_LENGTH).and(body.size_hint().exact());
    let announced = announced.and_then(|length| usize::try_from(length).ok()).ok_or_else(|| {
        refusal(StatusCode::LENGTH_REQUIRED, "The request must announce its length (Content-Length).")
    })?;
    let too_long = || {
        let what = format!("The body has more than {MACAROON_REQUEST_BYTES_MAX} bytes.");
        RequestRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, what)
    };
    if announced > MACAROON_REQUEST_BYTES_MAX {
        return Err(too_long());
    }
    let received = timeout(limit, async {
        let mut whole = Vec::with_capacity(announced);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                RequestRefusal::new(StatusCode::BAD_REQUEST, format!("The body is not complete: {error}"))
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if whole.len() + data.len() > MACAROON_REQUEST_BYTES_MAX {
                return Err(too_long());
            }
            whole.extend_from_slice(&data);
        }
        Ok(whole)
    });
    let late = |_| refusal(StatusCode::REQUEST_TIMEOUT, "The body does not arrive, or too slowly.");
    let whole = received.await.map_err(late)??;
    if whole.len() != announced {
        return Err(refusal(StatusCode::BAD_REQUEST, "The body is not complete."));
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::body::{Frame, SizeHint};
    use hyper::header::{HeaderValue, TRANSFER_ENCODING};
    use serde_json::Value;
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    const LIMIT: Duration = Duration::from_secs(60);

    /// A body in parts. One that does not end waits for ever.
    struct Arriving {
        parts: VecDeque<&'static [u8]>,
        length: Option<u64>,
        ends: bool,
    }

    impl Body for Arriving {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            match self.parts.pop_front() {
                Some(part) => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(part))))),
                None if self.ends => Poll::Ready(None),
                None => Poll::Pending,
            }
        }

        fn size_hint(&self) -> SizeHint {
            self.length.map(SizeHint::with_exact).unwrap_or_default()
        }
    }

    fn read(parts: &[&'static [u8]], length: Option<u64>, ends: bool) -> Result<Vec<u8>, StatusCode> {
        let mut body = Arriving { parts: parts.iter().copied().collect(), length, ends };
        let mut headers = HeaderMap::new();
        match length {
            Some(length) => headers.insert(CONTENT_LENGTH, HeaderValue::from(length)),
            None => headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked")),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let read = runtime.unwrap().block_on(read_body(&headers, &mut body, LIMIT));
        read.map_err(|refusal| match refusal {
            RequestRefusal::Status(status, _) => status,
            RequestRefusal::Call(_) => panic!("no call was made"),
        })
    }

    #[test]
    fn bodies_are_small_announced_and_in_time() {
        static BIG: [u8; MACAROON_REQUEST_BYTES_MAX + 1] = [b' '; MACAROON_REQUEST_BYTES_MAX + 1];
        let most = &BIG[1..];
        assert_eq!(read(&[b"{", b"", b"}"], Some(2), true), Ok(b"{}".to_vec()));
        assert_eq!(read(&[], Some(0), true), Ok(Vec::new()));
        assert_eq!(read(&[most], Some(4096), true).map(|whole| whole.len()), Ok(4096));
        assert_eq!(read(&[&BIG], Some(4097), true), Err(StatusCode::PAYLOAD_TOO_LARGE));
        // Nothing is read of a body that announces more.
        assert_eq!(read(&[], Some(u64::MAX), false), Err(StatusCode::PAYLOAD_TOO_LARGE));
        assert_eq!(read(&[b"{}"], None, true), Err(StatusCode::LENGTH_REQUIRED));
        assert_eq!(read(&[b"{"], Some(2), false), Err(StatusCode::REQUEST_TIMEOUT));
        assert_eq!(read(&[], Some(2), false), Err(StatusCode::REQUEST_TIMEOUT));
        assert_eq!(read(&[b"{"], Some(2), true), Err(StatusCode::BAD_REQUEST));
        assert_eq!(read(&[most, b" "], Some(4), true), Err(StatusCode::PAYLOAD_TOO_LARGE));
    }

    #[test]
    fn types_are_compared_without_parameters() {
        let is = |values: &[&'static str]| {
            let pairs = values.iter().map(|value| (CONTENT_TYPE, HeaderValue::from_static(value)));
            check_type(&pairs.collect(), "application/x").is_ok()
        };
        assert!(is(&["application/x"]) && is(&["Application/X; charset=utf-8"]));
        for values in [&[][..], &["application/xy"], &["text/plain"], &[""], &["application/x", "text/plain"]]
        {
            assert!(!is(values), "{values:?}");
        }
    }

    fn order(body: &str) -> Option<(String, u64)> {
        let MacaroonOrder { activities, validity } = parse_json(body.as_bytes()).ok()?;
        let activities = activities.map_or_else(|| "all".to_owned(), |list| Activity::list(&list));
        Some((activities, validity.unwrap().as_secs()))
    }

    #[test]
    fn requests_in_json() {
        let some = |activities: &str, seconds| Some((activities.to_owned(), seconds));
        assert_eq!(order(r#"{"validity":"PT1H30M"}"#), some("all", 5400));
        assert_eq!(order(r#"{"validity":"PT1M","caveats":[]}"#), some("all", 60));
        assert_eq!(order(r#"{"validity":"PT1M","caveats":null,"x":[{}]}"#), some("all", 60));
        let two = r#"{"validity":"PT1S","caveats":["activity:LIST, DOWNLOAD,FUTURE"]}"#;
        assert_eq!(order(two), some("DOWNLOAD,LIST", 1));
        let narrowed = r#"{"validity":"PT1S","caveats":["activity:LIST,DOWNLOAD","activity:LIST,DELETE"]}"#;
        assert_eq!(order(narrowed), some("LIST", 1));
        for nothing in ["activity:", "activity:STAGE", "activity:download"] {
            let body = format!(r#"{{"validity":"PT1S","caveats":["{nothing}"]}}"#);
            assert_eq!(order(&body), some("", 1), "{nothing}");
        }
        for caveat in ["path:/", "before:2099-01-01T00:00:00Z", "name:root", "ip:192.0.2.1", "activity", ""] {
            let body = format!(r#"{{"validity":"PT1S","caveats":["{caveat}"]}}"#);
            assert_eq!(order(&body), None, "{caveat}");
        }
        for validity in [
            "",
            "PT",
            "PT0S",
            "PT-1S",
            "P1D",
            "1H",
            "PT1.5H",
            "PT99999999999999999999H",
            "PT9999999999999999H",
        ] {
            assert_eq!(order(&format!(r#"{{"validity":"{validity}"}}"#)), None, "{validity}");
        }
        for body in [
            "",
            "{}",
            "[]",
            "null",
            "{",
            r#"{"validity":60}"#,
            r#"{"validity":"PT1M"} x"#,
            r#"{"validity":"PT1M","validity":"PT2M"}"#,
            r#"{"validity":"PT1M","caveats":"activity:LIST"}"#,
            r#"{"validity":"PT1M","caveats":[1]}"#,
            &"[".repeat(4000),
        ] {
            assert_eq!(order(body), None, "{body}");
        }
        assert!(parse_json(b"{\"validity\":\"PT1M\",\"x\":\"\xff\"}").is_err());
    }

    fn form(body: &str) -> Option<(String, String, Option<u64>)> {
        let (path, MacaroonOrder { activities, validity }) = parse_form(body.as_bytes()).ok()?;
        let seconds = validity.map(|validity| validity.as_secs());
        Some((path.text().into_owned(), Activity::list(&activities.unwrap()), seconds))
    }

    #[test]
    fn requests_of_oauth() {
        let some = |path: &str, list: &str, seconds| Some((path.to_owned(), list.to_owned(), seconds));
        let grant = "grant_type=client_credentials";
        let with = |rest: &str| form(&format!("{grant}&{rest}"));
        assert_eq!(
            with("expire_in=600&scope=DOWNLOAD%3A%2Fdata%20LIST%3A%2Fdata"),
            some("/data", "DOWNLOAD,LIST", Some(600))
        );
        assert_eq!(with("scope=LIST:/a+LIST:/a//&client_id=x&&y"), None);
        assert_eq!(with("scope=LIST:/a+DELETE:/a&client_id=x&&y"), some("/a", "DELETE,LIST", None));
        assert_eq!(with("scope=LIST:/a%2Bb:c"), some("/a+b:c", "LIST", None));
        for wrong in [
            "scope=DOWNLOAD:/a LIST:/b",
            "scope=DOWNLOAD:/a/../b",
            "scope=DOWNLOAD:a",
            "scope=DOWNLOAD",
            "scope=storage.read:/a",
            "scope=STAGE:/a",
            "scope=",
            "scope=+",
            "scope=LIST:/%",
            "scope=LIST:/%ff",
            "scope=LIST:/a&scope=LIST:/a",
            "expire_in=600",
            "scope=LIST:/a&expire_in=0",
            "scope=LIST:/a&expire_in=-1",
            "scope=LIST:/a&expire_in=%2B1",
            "scope=LIST:/a&expire_in=",
            "scope=LIST:/a&expire_in=99999999999999999999",
            "scope=LIST:/a&expire_in=1&expire_in=1",
            "scope=LIST:/a&grant_type=client_credentials",
        ] {
            assert_eq!(with(wrong), None, "{wrong}");
        }
        for grant in ["", "grant_type=password&", "grant_type=&", "Grant_Type=client_credentials&"] {
            assert_eq!(form(&format!("{grant}scope=LIST:/a")), None, "{grant}");
        }
    }

    #[test]
    fn the_recorded_requests_are_accepted_or_not() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/security/macaroon.json");
        let vectors: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let mut seen = 0;
        for case in vectors["issuing"].as_array().unwrap() {
            let is_accepted = match (&case["body"], case["content_type"].as_str()) {
                (Value::Object(body), Some("application/macaroon-request")) => {
                    parse_json(serde_json::to_string(body).unwrap().as_bytes()).is_ok()
                }
                (Value::String(body), Some("application/x-www-form-urlencoded")) => {
                    parse_form(body.as_bytes()).is_ok()
                }
                _ => continue,
            };
            // Rights and paths are looked at later.
            let is_late = case["request"].as_str().unwrap().contains("..");
            assert_eq!(is_accepted, case["status"] != 400 || is_late, "{case}");
            seen += 1;
        }
        assert!(seen > 10, "{seen}");
    }
}
