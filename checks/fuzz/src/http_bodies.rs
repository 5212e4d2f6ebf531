//! Fuzz target for the bodies of requests for macaroons, of the tape API and of S3.
//!
//! They name paths and rights.

use bytes::Bytes;
use http::parsers::{
    S3ChunkDecoder, parse_form, parse_json, parse_s3_completion, parse_s3_deletion, parse_tape_files,
    parse_tape_paths,
};
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
    if let Some(deletion) = parse_s3_deletion(data) {
        assert!((1..=1000).contains(&deletion.keys.len()));
    }
    if let Some(parts) = parse_s3_completion(data) {
        assert!(!parts.is_empty() && parts.iter().all(|part| (1..=10_000).contains(&part.number)));
    }
    check_chunks(data);
}

/// Checks that a body in chunks has the same data whether it arrives as a whole or byte by byte.
fn check_chunks(data: &[u8]) {
    let decode = |piece: usize| {
        let (mut decoder, mut found) = (S3ChunkDecoder::new(None, true), Vec::new());
        for piece in data.chunks(piece) {
            let mut input = Bytes::copy_from_slice(piece);
            while let Some(decoded) = decoder.decode(&mut input).ok()? {
                found.extend_from_slice(&decoded);
            }
        }
        Some((found, decoder.finish().ok()?))
    };
    assert_eq!(decode(1), decode(data.len().max(1)));
}

/// Checks that a path is absolute and leads nowhere up.
fn check_path(path: &[u8]) {
    assert!(path.starts_with(b"/") && !path.contains(&0));
    assert!(path.split(|byte| *byte == b'/').all(|name| name != b".."));
}
