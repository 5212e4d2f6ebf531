//! Fuzz target for xroot requests: decoding never panics, and decoded requests survive encoding.
//!
//! Splitting a stream loses no byte. [`crate::sessions`] continues where this target ends, with the
//! answers to requests.

use wire::FixedLayout;
use wire::xroot::frames::{Direction, FrameBytes, Splitter, request_bytes};
use wire::xroot::limits::ARGUMENT_BYTES_MAX;
use wire::xroot::{Request, RequestCode, RequestHeader};

/// Checks `data` as a request frame, whose announced length may be wrong, and as a stream.
pub fn target(data: &[u8]) {
    split_stream(Direction::Requests, data);
    let Some((header, rest)) = data.split_first_chunk() else { return };
    let header = RequestHeader::from_bytes(header);
    if let Ok(FrameBytes::AtLeast(more)) = request_bytes(data) {
        assert!(more > data.len(), "asks for {more} bytes of {}", data.len());
    }
    let counted = header.payload_bytes().unwrap_or(0).min(rest.len());
    let payload = rest.get(..counted).unwrap_or_default();
    let Ok(request) = Request::decode(&header, payload) else { return };
    examine(&request);
    let mut bytes = Vec::new();
    request.encode(header.streamid, &mut bytes);
    let Some((again, payload)) = bytes.split_first_chunk() else { panic!("{request:?} has no header") };
    let again = RequestHeader::from_bytes(again);
    assert_eq!((again.streamid, again.code), (header.streamid, header.code));
    let streamed = matches!(header.code, RequestCode::WRITE | RequestCode::PGWRITE);
    assert!(streamed || again.payload_bytes() == Ok(payload.len()), "{request:?}");
    assert_eq!(Request::decode(&again, payload), Ok(request));
}

/// Calls every accessor that a session uses on a decoded request.
fn examine(request: &Request<'_>) {
    match request {
        Request::Read(read) => assert_eq!(read.preread().iter().count(), read.preread().len()),
        Request::Readv(readv) => assert!(readv.segments.total_bytes().is_none_or(|total| total < 1 << 58)),
        Request::Writev(writev) => assert!(writev.segments.total_bytes().is_none_or(|total| total < 1 << 58)),
        Request::Clone(clone) => assert_eq!(clone.items.iter().count(), clone.items.len()),
        Request::Query(query) => assert!(!query.text().contains(&0)),
        Request::Login(login) => assert!(!login.username_bytes().contains(&0)),
        Request::Mv(mv) => {
            if let Ok((old, new)) = mv.paths() {
                assert!(!new.is_empty());
                assert!(mv.args.starts_with(&[old, b" ", new].concat()));
            }
        }
        Request::Fattr(fattr) => {
            if let Ok(arguments) = fattr.arguments() {
                assert_eq!(arguments.names.count(), usize::from(fattr.numattr));
            }
        }
        _ => {}
    }
}

/// Checks that the frames do not depend on the segmentation of the stream, and that no byte is
/// lost.
pub(crate) fn split_stream(direction: Direction, stream: &[u8]) {
    let whole = frames(direction, stream, stream.len().max(1));
    let pieces = frames(direction, stream, 5);
    assert_eq!(whole, pieces);
    let taken: usize = whole.0.iter().sum();
    assert_eq!(taken + whole.1, stream.len());
}

/// Returns the lengths of the frames, the number of remaining bytes, and whether the splitter
/// returned an error.
fn frames(direction: Direction, stream: &[u8], piece_bytes: usize) -> (Vec<usize>, usize, bool) {
    let mut splitter = Splitter::new(direction, ARGUMENT_BYTES_MAX);
    let mut lengths = Vec::new();
    let mut lost = false;
    for piece in stream.chunks(piece_bytes) {
        splitter.push(piece);
        while !lost {
            match splitter.next_frame() {
                Ok(Some(frame)) => lengths.push(frame.bytes().len()),
                Ok(None) => break,
                Err(_) => lost = true,
            }
        }
    }
    (lengths, splitter.unread().len(), lost)
}
