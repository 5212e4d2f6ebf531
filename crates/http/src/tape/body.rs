//! The bodies of requests: lists of files in JSON, of limited length.

use crate::limits::{TAPE_FILES_MAX, TAPE_LIFETIME_MAX};
use crate::reply::RequestRefusal;
use base::{LogicalPath, PathError};
use hyper::StatusCode;
use jiff::{Span, SpanRelativeTo};
use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;
use vfs::TapeFile;

/// A path of a request, or a text that is none.
pub(super) type RequestedPath = Result<LogicalPath, InvalidPath>;

/// A text that is not a valid path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct InvalidPath {
    pub(super) text: String,
    pub(super) reason: &'static str,
}

/// The body of a request to stage files. Other keys, such as those for the mass storage of another
/// site, are ignored.
#[derive(serde::Deserialize)]
struct StageBody {
    files: LimitedList<StageFile>,
}

#[derive(serde::Deserialize)]
struct StageFile {
    path: String,
    #[serde(default, rename = "diskLifetime")]
    lifetime: Option<String>,
}

/// The body of the other requests.
#[derive(serde::Deserialize)]
struct PathsBody {
    paths: LimitedList<String>,
}

/// A list whose elements beyond [`TAPE_FILES_MAX`] are counted as an excess, and not kept.
struct LimitedList<T> {
    elements: Vec<T>,
    has_more: bool,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for LimitedList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
    type Value = LimitedList<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let mut list = LimitedList { elements: Vec::new(), has_more: false };
        while list.elements.len() < TAPE_FILES_MAX {
            match sequence.next_element()? {
                Some(element) => list.elements.push(element),
                None => return Ok(list),
            }
        }
        while sequence.next_element::<IgnoredAny>()?.is_some() {
            list.has_more = true;
        }
        Ok(list)
    }
}

impl<T> LimitedList<T> {
    fn checked(self) -> Result<Vec<T>, RequestRefusal> {
        if self.has_more {
            let text = format!("A request has at most {TAPE_FILES_MAX} files.");
            return Err(RequestRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, text));
        }
        if self.elements.is_empty() {
            return Err(RequestRefusal::new(StatusCode::BAD_REQUEST, "The request names no file."));
        }
        Ok(self.elements)
    }
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, RequestRefusal> {
    serde_json::from_slice(body).map_err(|error| {
        RequestRefusal::new(StatusCode::BAD_REQUEST, format!("The body is invalid: {error}."))
    })
}

/// Parses the paths of a request.
pub(super) fn paths(body: &[u8]) -> Result<Vec<RequestedPath>, RequestRefusal> {
    let paths = parse::<PathsBody>(body)?.paths.checked()?;
    Ok(paths.into_iter().map(path).collect())
}

/// Returns paths that must all be valid.
pub(super) fn valid(paths: Vec<RequestedPath>) -> Result<Vec<LogicalPath>, RequestRefusal> {
    paths.into_iter().map(|path| path.map_err(|invalid| invalid.refusal())).collect()
}

/// Parses a request to stage files.
pub(super) fn files(body: &[u8]) -> Result<Vec<TapeFile>, RequestRefusal> {
    let files = parse::<StageBody>(body)?.files.checked()?;
    let file = |file: StageFile| {
        let lifetime = file.lifetime.as_deref().map_or(Ok(0), lifetime)?;
        let path = path(file.path).map_err(|invalid| invalid.refusal())?;
        Ok(TapeFile { path, lifetime })
    };
    files.into_iter().map(file).collect()
}

impl InvalidPath {
    fn refusal(&self) -> RequestRefusal {
        RequestRefusal::new(StatusCode::BAD_REQUEST, format!("{:?}: {}", self.text, self.reason))
    }
}

fn path(text: String) -> RequestedPath {
    match LogicalPath::parse(text.as_bytes()) {
        Ok(path) => Ok(path.without_slash()),
        Err(error) => Err(InvalidPath { text, reason: reason(&error) }),
    }
}

fn reason(_: &PathError) -> &'static str {
    "the path is not valid; it must begin with a slash, and have no component `..`"
}

/// Parses a duration of ISO 8601, such as `PT12H` or `P2D`, in seconds.
fn lifetime(text: &str) -> Result<u64, RequestRefusal> {
    let invalid = || {
        let text = format!("diskLifetime {text:?} is no duration; an example is PT12H.");
        RequestRefusal::new(StatusCode::BAD_REQUEST, text)
    };
    let span: Span = text.parse().map_err(|_| invalid())?;
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| invalid())?;
    let seconds = u64::try_from(duration.as_secs()).map_err(|_| invalid())?;
    Ok(seconds.min(TAPE_LIFETIME_MAX.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status<T>(result: Result<T, RequestRefusal>) -> Option<StatusCode> {
        match result {
            Err(RequestRefusal::Status(status, _)) => Some(status),
            Err(RequestRefusal::Call(_)) | Ok(_) => None,
        }
    }

    fn staged(body: &str) -> Vec<(String, u64)> {
        let files = files(body.as_bytes()).unwrap();
        files.into_iter().map(|file| (file.path.text().into_owned(), file.lifetime)).collect()
    }

    #[test]
    fn files_have_paths_and_times() {
        let body = r#"{"files": [
            {"path": "/a", "diskLifetime": "PT1H"},
            {"path": "//b///c/", "diskLifetime": "P1DT1S", "targetedMetadata": {"S": {"x": [1, {"y": null}]}}},
            {"path": "/d \u00e4\n\"", "diskLifetime": null, "unknown": 5},
            {"path": "/e", "diskLifetime": "P500W"}
        ], "unknown": []}"#;
        let wanted =
            [("/a", 3600), ("/b/c", 86_401), ("/d \u{e4}\n\"", 0), ("/e", TAPE_LIFETIME_MAX.as_secs())];
        assert_eq!(staged(body), wanted.map(|(path, seconds)| (path.to_owned(), seconds)));
    }

    #[test]
    fn malformed_bodies_are_refused() {
        for body in [
            "",
            "{",
            "[]",
            "{}",
            "null",
            r#"{"files": []}"#,
            r#"{"files": {}}"#,
            r#"{"files": [{}]}"#,
            r#"{"files": ["/a"]}"#,
            r#"{"files": [{"path": 5}]}"#,
            r#"{"files": [{"path": "a"}]}"#,
            r#"{"files": [{"path": "/a/../b"}]}"#,
            r#"{"files": [{"path": "/a\u0000"}]}"#,
            r#"{"files": [{"path": "/a", "diskLifetime": "1 lightyear"}]}"#,
            r#"{"files": [{"path": "/a", "diskLifetime": "-PT1H"}]}"#,
            r#"{"files": [{"path": "/a", "diskLifetime": "P1Y"}]}"#,
            r#"{"files": [{"path": "/a", "diskLifetime": 5}]}"#,
            r#"{"files": [{"path": "/a"}]} x"#,
        ] {
            assert_eq!(status(files(body.as_bytes())), Some(StatusCode::BAD_REQUEST), "{body}");
        }
        let nested =
            format!("{{\"x\": {}{}, \"paths\": [\"/a\"]}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(paths(nested.as_bytes()).unwrap().len(), 1, "what is ignored may be deep");
        let nested = format!("{{\"paths\": {}", "[".repeat(100_000));
        assert_eq!(status(paths(nested.as_bytes())), Some(StatusCode::BAD_REQUEST));
        assert_eq!(status(paths(b"{\"paths\": [\"\xff\"]}")), Some(StatusCode::BAD_REQUEST));
    }

    #[test]
    fn the_number_of_files_is_limited() {
        let body = |number: usize| format!("{{\"paths\": [{}]}}", vec!["\"/a\""; number].join(","));
        assert_eq!(paths(body(TAPE_FILES_MAX).as_bytes()).unwrap().len(), TAPE_FILES_MAX);
        let over = paths(body(TAPE_FILES_MAX + 1).as_bytes());
        assert_eq!(status(over), Some(StatusCode::PAYLOAD_TOO_LARGE));
    }

    #[test]
    fn an_invalid_path_is_that_of_one_file() {
        let parsed = paths(br#"{"paths": ["/a", "b", "/c"]}"#).unwrap();
        let texts: Vec<_> =
            parsed.iter().map(|path| path.as_ref().map(|path| path.text().into_owned())).collect();
        assert_eq!(texts[0], Ok("/a".to_owned()));
        assert_eq!(texts[1].as_ref().unwrap_err().text, "b");
        assert_eq!(status(valid(parsed)), Some(StatusCode::BAD_REQUEST));
    }
}
