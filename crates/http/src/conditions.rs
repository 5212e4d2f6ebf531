//! Entity tags, and the headers that make a request conditional. Source: RFC 9110, sections 8.8 and 13.

use crate::reply::RequestRefusal;
use crate::text::{http_date, parse_http_date};
use hyper::StatusCode;
use hyper::header::{
    HeaderMap, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE,
};
use std::time::SystemTime;
use vfs::FileStat;

/// The conditions of WebDAV: tags and locks (RFC 4918, section 10.4).
const IF: HeaderName = HeaderName::from_static("if");

/// Age in seconds after which the time of a file shows each change: a younger file can change again
/// within the same second.
const SETTLED_SECONDS: i64 = 2;

/// The version of a file, as a client sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TaggedVersion {
    /// The entity tag, with its quotes.
    pub(crate) tag: String,
    /// The tag of a file that may still change within its second is weak.
    is_weak: bool,
    /// Modification time in seconds since the epoch.
    modified: i64,
}

impl TaggedVersion {
    pub(crate) fn of(stat: &FileStat) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        Self::at(stat, i64::try_from(now).unwrap_or(i64::MAX))
    }

    fn at(stat: &FileStat, now: i64) -> Self {
        let is_weak = stat.modified.saturating_add(SETTLED_SECONDS) > now;
        let prefix = if is_weak { "W/" } else { "" };
        let tag = format!("{prefix}\"{}-{:x}-{:x}\"", stat.id, stat.size, stat.modified);
        Self { tag, is_weak, modified: stat.modified }
    }

    /// Returns the value of `Last-Modified`.
    pub(crate) fn last_modified(&self) -> String {
        http_date(self.modified)
    }

    /// Reports whether a list of tags has this one. `strong` counts strong tags only.
    fn is_in(&self, list: &str, strong: bool) -> bool {
        if list.trim() == "*" {
            return true;
        }
        if strong && self.is_weak {
            return false;
        }
        let opaque = |tag: &str| tag.strip_prefix("W/").unwrap_or(tag).to_owned();
        list.split(',').map(str::trim).any(|tag| match strong {
            true => tag == self.tag,
            false => opaque(tag) == opaque(&self.tag),
        })
    }

    /// Reports whether ranges may be served under a header `If-Range`.
    fn allows_ranges(&self, condition: &str) -> bool {
        if condition.starts_with('"') {
            return !self.is_weak && condition == self.tag;
        }
        !self.is_weak && parse_http_date(condition) == Some(self.modified)
    }
}

/// The outcome of the conditions of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConditionOutcome {
    /// The method is performed. `ranges` tells whether a header `Range` counts.
    Perform { ranges: bool },
    /// The client has this version.
    NotModified,
    /// The client wants another version.
    Failed,
}

/// Evaluates the conditions of GET and HEAD.
pub(crate) fn evaluate(headers: &HeaderMap, version: &TaggedVersion) -> ConditionOutcome {
    let dates = |name| text(headers, name).as_deref().and_then(parse_http_date);
    match text(headers, IF_MATCH) {
        Some(list) if !version.is_in(&list, true) => return ConditionOutcome::Failed,
        Some(_) => {}
        None if dates(IF_UNMODIFIED_SINCE).is_some_and(|date| version.modified > date) => {
            return ConditionOutcome::Failed;
        }
        None => {}
    }
    match text(headers, IF_NONE_MATCH) {
        Some(list) if version.is_in(&list, false) => return ConditionOutcome::NotModified,
        Some(_) => {}
        None if dates(IF_MODIFIED_SINCE).is_some_and(|date| version.modified <= date) => {
            return ConditionOutcome::NotModified;
        }
        None => {}
    }
    ConditionOutcome::Perform {
        ranges: text(headers, IF_RANGE).is_none_or(|value| version.allows_ranges(&value)),
    }
}

/// Reads the conditions of a method that changes something. Returns whether it may only create what does
/// not exist, which the file system checks in the same step (`If-None-Match: *`).
///
/// # Errors
/// There is another condition. What it names could change between its check and the change.
pub(crate) fn of_change(headers: &HeaderMap) -> Result<bool, RequestRefusal> {
    let none_match = text(headers, IF_NONE_MATCH);
    let is_exclusive = none_match.as_deref().is_some_and(|value| value.trim() == "*");
    let others = [IF_MATCH, IF_UNMODIFIED_SINCE, IF_MODIFIED_SINCE, IF];
    if (none_match.is_some() && !is_exclusive) || others.iter().any(|name| headers.contains_key(name)) {
        let what = "The only condition of a change that is supported is If-None-Match: * of a PUT.";
        return Err(RequestRefusal::new(StatusCode::NOT_IMPLEMENTED, what));
    }
    Ok(is_exclusive)
}

/// Refuses a change that has any condition.
///
/// # Errors
/// There is a condition.
pub(crate) fn no_condition(headers: &HeaderMap) -> Result<(), RequestRefusal> {
    match of_change(headers)? {
        true => Err(RequestRefusal::new(
            StatusCode::NOT_IMPLEMENTED,
            "This method does not support If-None-Match.",
        )),
        false => Ok(()),
    }
}

/// Returns the values of a header as one list.
pub(crate) fn text(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    let values: Vec<_> =
        headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
    (!values.is_empty()).then(|| values.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;
    use vfs::FileKind;

    const MODIFIED: i64 = 784_111_777;
    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";

    fn stat() -> FileStat {
        FileStat {
            id: 7,
            size: 16,
            kind: FileKind::File,
            readable: true,
            writable: true,
            executable: false,
            offline: false,
            posc_pending: false,
            modified: MODIFIED,
            changed: MODIFIED,
            accessed: MODIFIED,
            mode: 0o644,
            owner: "u".into(),
            group: "g".into(),
        }
    }

    fn outcome(headers: &[(HeaderName, &str)], now: i64) -> ConditionOutcome {
        let version = TaggedVersion::at(&stat(), now);
        let pairs = headers.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()));
        evaluate(&pairs.collect(), &version)
    }

    #[test]
    fn a_change_has_no_condition_that_is_checked_before_it() {
        let read = |pairs: &[(HeaderName, &'static str)]| {
            let pairs = pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
            let headers = pairs.collect();
            (of_change(&headers).ok(), no_condition(&headers).is_ok())
        };
        assert_eq!(read(&[]), (Some(false), true));
        assert_eq!(read(&[(IF_NONE_MATCH, "*")]), (Some(true), false));
        for (name, value) in [
            (IF_NONE_MATCH, "\"x\""),
            (IF_NONE_MATCH, ""),
            (IF_MATCH, "*"),
            (IF_MATCH, "\"x\""),
            (IF_UNMODIFIED_SINCE, DATE),
            (IF_MODIFIED_SINCE, "nonsense"),
            (IF, "(<urn:uuid:1>)"),
        ] {
            assert_eq!(read(&[(name.clone(), value)]), (None, false), "{name}: {value}");
            assert!(!read(&[(IF_NONE_MATCH, "*"), (name.clone(), value)]).1, "{name}: {value}");
        }
    }

    #[test]
    fn conditions_are_those_of_the_rfc() {
        let tag = "\"7-10-2ebc98a1\"";
        let (perform, same, failed) = (
            ConditionOutcome::Perform { ranges: true },
            ConditionOutcome::NotModified,
            ConditionOutcome::Failed,
        );
        let whole = ConditionOutcome::Perform { ranges: false };
        assert_eq!(TaggedVersion::at(&stat(), MODIFIED + SETTLED_SECONDS).tag, tag);
        let weak = format!("W/{tag}");
        let list = format!("\"x\", {tag}");
        for (header, value, expected, young) in [
            (IF_NONE_MATCH, tag, same, same),
            (IF_NONE_MATCH, &weak, same, same),
            (IF_NONE_MATCH, "*", same, same),
            (IF_NONE_MATCH, &list, same, same),
            (IF_NONE_MATCH, "\"x\"", perform, perform),
            (IF_MATCH, tag, perform, failed),
            (IF_MATCH, &list, perform, failed),
            (IF_MATCH, "*", perform, perform),
            (IF_MATCH, &weak, failed, failed),
            (IF_MATCH, "\"x\"", failed, failed),
            (IF_MODIFIED_SINCE, DATE, same, same),
            (IF_MODIFIED_SINCE, BEFORE, perform, perform),
            (IF_MODIFIED_SINCE, "nonsense", perform, perform),
            (IF_UNMODIFIED_SINCE, DATE, perform, perform),
            (IF_UNMODIFIED_SINCE, BEFORE, failed, failed),
            (IF_RANGE, tag, perform, whole),
            (IF_RANGE, &weak, whole, whole),
            (IF_RANGE, "\"x\"", whole, whole),
            (IF_RANGE, DATE, perform, whole),
            (IF_RANGE, BEFORE, whole, whole),
        ] {
            assert_eq!(outcome(&[(header.clone(), value)], MODIFIED + 9), expected, "{header}: {value}");
            // A file that may still change within its second has no strong version.
            assert_eq!(outcome(&[(header.clone(), value)], MODIFIED + 1), young, "young {header}: {value}");
        }
        // Tags take precedence over dates.
        assert_eq!(outcome(&[(IF_NONE_MATCH, "\"x\""), (IF_MODIFIED_SINCE, DATE)], MODIFIED + 9), perform);
        assert_eq!(outcome(&[(IF_MATCH, tag), (IF_UNMODIFIED_SINCE, BEFORE)], MODIFIED + 9), perform);
    }
}
