//! Fuzz target for the bodies of requests for macaroons and of the tape API.
//!
//! They name paths and rights.

use http::parsers::{parse_form, parse_json, parse_tape_files, parse_tape_paths};
use http::{TAPE_FILES_MAX, TAPE_LIFETIME_MAX};

/// Checks `data` as a body of each kind.
pub fn target(data: &[u8]) {
    if let Ok(order) = parse_json(data) {
        assert!(order.validity.is_some());
    }
    if let Ok((path, order)) = parse_form(data) {
        check_path(path.as_bytes());
        assert!(order.activities.is_some_and(|activities| !activities.is_empty()));
    }
    if let Some(files) = parse_tape_files(data) {
        assert!((1..=TAPE_FILES_MAX).contains(&files.len()));
        for file in files {
            check_path(file.path.as_bytes());
            assert!(file.lifetime <= TAPE_LIFETIME_MAX.as_secs());
        }
    }
    if let Some(paths) = parse_tape_paths(data) {
        assert!((1..=TAPE_FILES_MAX).contains(&paths.len()));
        paths.iter().for_each(|path| check_path(path.as_bytes()));
    }
}

/// Checks that a path is absolute and leads nowhere up.
fn check_path(path: &[u8]) {
    assert!(path.starts_with(b"/") && !path.contains(&0));
    assert!(path.split(|byte| *byte == b'/').all(|name| name != b".."));
}
