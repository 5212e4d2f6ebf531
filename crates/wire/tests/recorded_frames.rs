//! Recorded xroot frames decode and encode to the same bytes.
//!
//! The bytes come from XRootD programs, so that the codecs are checked against real peers and not
//! only against each other.
#![allow(clippy::unwrap_used)]

mod vectors;

use vectors::{Frame, Kind, each_frame};
use wire::xroot::header::{Handshake, HandshakeReply};
use wire::xroot::reply::{Attn, BadPages};
use wire::xroot::{Reply, Request, RequestCode, RequestHeader, ResponseHeader, Status};
use wire::{Decode, Encode, FixedLayout};

#[test]
fn handshakes_decode_and_encode() {
    let count = each_frame(Kind::Handshake, |frame, what| {
        assert!(Handshake::is(frame.hex.as_slice().try_into().unwrap()), "{what}");
    });
    assert!(count > 100);
    each_frame(Kind::HandshakeResponse, |frame, what| {
        let bytes = frame.hex.as_slice();
        let reply = HandshakeReply::decode(bytes).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(reply.protover, wire::xroot::PROTOCOL_VERSION, "{what}");
        assert_eq!(reply.encoded(), bytes, "{what}");
    });
}

#[test]
fn requests_decode_and_encode() {
    let count = each_frame(Kind::Request, |frame, what| {
        let bytes = frame.bytes();
        if frame.dlen < Some(0) {
            return; // the recorder applied the negative length and truncated the header
        }
        let (header, rest) = bytes.split_first_chunk().unwrap();
        let header = RequestHeader::from_bytes(header);
        assert_described(frame, what, &header);
        let streamed = matches!(header.code, RequestCode::WRITE | RequestCode::PGWRITE);
        let counted = if streamed { 0 } else { header.payload_bytes().unwrap().min(rest.len()) };
        let request = Request::decode(&header, &rest[..counted]).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(request.code(), header.code, "{what}");
        let mut encoded = Vec::new();
        request.encode(header.streamid, &mut encoded);
        assert_eq!(encoded[..20], bytes[..20], "{what}: {request:?}");
        if counted == header.payload_bytes().unwrap() || streamed {
            assert_eq!(encoded, bytes[..24 + counted], "{what}: {request:?}");
        }
        if let Request::Chkpoint(chkpoint) = request
            && let Some(embedded) = chkpoint.embedded
        {
            assert_eq!(embedded.streamid, header.streamid, "{what}");
        }
    });
    assert!(count > 600, "{count}");
}

fn assert_described(frame: &Frame, what: &str, header: &RequestHeader) {
    assert_eq!(Some(header.streamid.to_string()), frame.streamid, "{what}");
    assert_eq!(Some(i64::from(header.dlen)), frame.dlen, "{what}");
    let name = match header.code.name() {
        Some(name) => name.to_owned(),
        None => format!("kXR_{}", header.code),
    };
    assert_eq!(Some(name), frame.request, "{what}");
}

#[test]
fn replies_decode_and_encode() {
    let count = each_frame(Kind::Response, |frame, what| {
        let bytes = frame.bytes();
        let (header, rest) = bytes.split_first_chunk().unwrap();
        let header = ResponseHeader::from_bytes(header);
        assert_eq!(Some(header.streamid.to_string()), frame.streamid, "{what}");
        assert_eq!(header.status.name().map(str::to_owned), frame.status, "{what}");
        let (body, data) = rest.split_at(header.body_bytes().unwrap());
        let reply = Reply::decode(&header, body).unwrap_or_else(|e| panic!("{what}: {e}"));
        let mut encoded = Vec::new();
        reply.encode(header.streamid, &mut encoded);
        assert_eq!(encoded, bytes[..8 + body.len()], "{what}: {reply:?}");
        match reply {
            Reply::Status(status) => {
                assert_eq!(usize::try_from(status.dlen), Ok(data.len()), "{what}");
                assert_eq!(status.request.name(), frame.response_to.as_deref(), "{what}");
            }
            Reply::Attn(Attn::Response { header, body }) => {
                assert_eq!(Some(header.streamid.to_string()), frame.embedded_streamid, "{what}");
                assert_eq!(header.status.name(), frame.embedded_status.as_deref(), "{what}");
                Reply::decode(&header, body).unwrap_or_else(|e| panic!("{what}: {e}"));
            }
            _ => assert!(data.is_empty(), "{what}"),
        }
    });
    assert!(count > 600, "{count}");
}

/// Verifies every checksum in the data behind `kXR_status` frames: those of pages and of lists of
/// bad pages.
#[test]
fn checksums_of_pages_and_bad_page_lists_verify() {
    let (mut pages, mut lists) = (0, 0);
    each_frame(Kind::Response, |frame, what| {
        let (header, rest) = frame.hex.split_first_chunk().unwrap();
        let header = ResponseHeader::from_bytes(header);
        if header.status != Status::STATUS || frame.truncated {
            return;
        }
        let (body, data) = rest.split_at(header.body_bytes().unwrap());
        let Ok(Reply::Status(status)) = Reply::decode(&header, body) else { panic!("{what}") };
        if status.request == RequestCode::PGREAD {
            pages += verify_pages(status.offset, data, what);
        } else if !data.is_empty() {
            let list = BadPages::decode(data).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(list.encoded(), data, "{what}");
            lists += 1;
        }
    });
    assert!(pages > 10 && lists > 1, "{pages} pages, {lists} lists");
}

fn verify_pages(offset: i64, mut data: &[u8], what: &str) -> usize {
    let mut room = 4096 - usize::try_from(offset % 4096).unwrap();
    let mut pages = 0;
    while let Some((crc, rest)) = data.split_first_chunk() {
        let (page, rest) = rest.split_at(room.min(rest.len()));
        assert_eq!(wire::crc::crc32c(page), u32::from_be_bytes(*crc), "{what} page {pages}");
        (data, room, pages) = (rest, 4096, pages + 1);
    }
    pages
}
