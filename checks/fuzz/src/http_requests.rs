//! Fuzz target for the parts of HTTP requests that the server parses itself.
//!
//! A range decides which bytes a client gets, and a path decides about its rights.

use http::parsers::{RangeOutcome, parse_destination, parse_range, parse_target};

/// Sizes of files that ranges are for.
const SIZES: [u64; 4] = [0, 1, 1000, u64::MAX];

/// Checks `data` as a header `Range`, as a request target, and as a header `Destination`.
pub fn target(data: &[u8]) {
    let (path, query) = match data.iter().position(|byte| *byte == b'?') {
        Some(at) => (data.get(..at).unwrap_or_default(), data.get(at + 1..)),
        None => (data, None),
    };
    if let Ok(target) = parse_target(path, query) {
        check_path(&target.path);
        assert!(!target.cgi.has_prefix("tpc."));
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    for size in SIZES {
        if let RangeOutcome::Ranges(ranges) = parse_range(text, size) {
            assert!(!ranges.is_empty() && ranges.len() <= http::RANGES_MAX);
            assert!(ranges.iter().all(|range| range.start < range.end && range.end <= size));
            let total = ranges.iter().try_fold(0_u64, |sum, range| sum.checked_add(range.end - range.start));
            assert!(total.is_some_and(|total| total <= size));
        }
    }
    if let Ok(target) = parse_destination(text, &["h:1094".to_owned()]) {
        check_path(&target.path);
        let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        assert!(
            text.starts_with('/')
                || host.rsplit('@').next().is_some_and(|host| host.eq_ignore_ascii_case("h:1094"))
        );
    }
}

fn check_path(path: &base::LogicalPath) {
    let bytes = path.as_bytes();
    assert!(bytes.first() == Some(&b'/') && !bytes.contains(&0));
    assert!(bytes.split(|byte| *byte == b'/').all(|part| part != b".." && part != b"."));
}
