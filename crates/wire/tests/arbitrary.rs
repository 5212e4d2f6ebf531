//! Property tests of the xroot codecs: decoding never panics, decoded messages survive encoding.
//!
//! They complement the recorded frames, which contain few malformed messages.
#![allow(clippy::unwrap_used)]

use proptest::collection::vec;
use proptest::prelude::*;
use wire::xroot::cgi::PathArgument;
use wire::xroot::frames::{Direction, Splitter, request_bytes, response_bytes};
use wire::xroot::header::HandshakeReply;
use wire::xroot::login_cgi::LoginCgi;
use wire::xroot::reply::{
    BadPages, ChkpointSizes, LoginReply, OpenReply, ProtocolReply, StatText, VfsText, dirlist, fattr, locate,
    query, readv,
};
use wire::xroot::{Reply, Request, RequestCode, RequestHeader, ResponseHeader, Status, StreamId};
use wire::{Decode, Encode, FixedLayout};

/// Generates a header whose code is usually a known request, which uniform random codes rarely hit.
fn request_header() -> impl Strategy<Value = RequestHeader> {
    let code = prop_oneof![4 => 2999u16..3034, 1 => any::<u16>()];
    (any::<[u8; 2]>(), code, any::<[u8; 16]>(), any::<i32>()).prop_map(|(streamid, code, body, dlen)| {
        RequestHeader { streamid: StreamId(streamid), code: RequestCode(code), body, dlen }
    })
}

fn response_header() -> impl Strategy<Value = ResponseHeader> {
    let status = prop_oneof![4 => 3999u16..4009, 1 => Just(0), 1 => any::<u16>()];
    (any::<[u8; 2]>(), status, any::<i32>()).prop_map(|(streamid, status, dlen)| ResponseHeader {
        streamid: StreamId(streamid),
        status: Status(status),
        dlen,
    })
}

/// Splits an encoded request into the arguments of `Request::decode`.
fn decode_encoded(bytes: &[u8]) -> (RequestHeader, &[u8]) {
    let (header, payload) = bytes.split_first_chunk().unwrap();
    (RequestHeader::from_bytes(header), payload)
}

proptest! {
    #[test]
    fn a_decoded_request_survives_encoding(header in request_header(), payload in vec(any::<u8>(), 0..100)) {
        if let Ok(request) = Request::decode(&header, &payload) {
            let mut bytes = Vec::new();
            request.encode(header.streamid, &mut bytes);
            let (again, rest) = decode_encoded(&bytes);
            prop_assert_eq!(again.streamid, header.streamid);
            prop_assert_eq!(again.code, header.code);
            if !matches!(header.code, RequestCode::WRITE | RequestCode::PGWRITE) {
                prop_assert_eq!(again.payload_bytes(), Ok(rest.len()));
            }
            prop_assert_eq!(Request::decode(&again, rest), Ok(request));
            examine_request(&request);
        }
    }

    #[test]
    fn a_decoded_reply_survives_encoding(header in response_header(), body in vec(any::<u8>(), 0..100)) {
        if let Ok(reply) = Reply::decode(&header, &body) {
            let mut bytes = Vec::new();
            reply.encode(header.streamid, &mut bytes);
            let (again, rest) = bytes.split_first_chunk().unwrap();
            let again = ResponseHeader::from_bytes(again);
            prop_assert_eq!(again.status, header.status);
            prop_assert_eq!(again.body_bytes(), Ok(rest.len()));
            prop_assert_eq!(Reply::decode(&again, rest), Ok(reply));
        }
    }

    #[test]
    fn headers_survive_encoding(bytes in any::<[u8; 24]>(), reply in any::<[u8; 8]>()) {
        prop_assert_eq!(RequestHeader::from_bytes(&bytes).to_bytes(), bytes);
        prop_assert_eq!(ResponseHeader::from_bytes(&reply).to_bytes(), reply);
    }

    #[test]
    fn decoding_bodies_never_panics(body in prop_oneof![vec(any::<u8>(), 0..200), texts()], values: bool) {
        let _ = ProtocolReply::decode(&body);
        if let Ok(login) = LoginReply::decode(&body) {
            login.protocols().for_each(drop);
        }
        let _ = OpenReply::decode(&body);
        let _ = VfsText::decode(&body);
        let _ = ChkpointSizes::decode(&body);
        let _ = query::ChecksumText::decode(&body);
        let _ = query::SpaceUsageText::decode(&body);
        let _ = fattr::decode_results(&body, values);
        let _ = fattr::decode_list(&body, values);
        if let Ok(pages) = BadPages::decode(&body) {
            pages.offsets().for_each(drop);
        }
        dirlist::Listing::new(&body).for_each(drop);
        locate::parse(&body).for_each(drop);
        readv::Elements::new(&body).for_each(drop);
        LoginCgi::parse(&body).cgi.iter().for_each(drop);
        PathArgument::parse(&body).cgi.iter().for_each(drop);
        let _ = HandshakeReply::decode(&body);
    }

    #[test]
    fn a_parsed_stat_text_survives_encoding(text in "[0-9]{1,21} [0-9]{1,21} [0-9]{1,11} -?[0-9]{1,20}( -?[0-9]{1,10} [0-9]{1,10} [0-7]{3,12} [a-z ]{1,9} [a-z0-9]{1,9})?( \\[ [a-z:]{1,9} \\])?") {
        if let Ok(stat) = StatText::decode(text.as_bytes()) {
            let out = stat.encoded();
            prop_assert_eq!(StatText::decode(&out), Ok(stat));
        }
    }

    #[test]
    fn listings_survive_encoding(names in vec("[^\n\0]{1,12}", 1..9)) {
        let mut out = Vec::new();
        for name in &names {
            prop_assert!(dirlist::entry(&mut out, name.as_bytes()));
        }
        dirlist::finish(&mut out, 0);
        let back: Vec<_> = dirlist::Listing::new(&out).map(|entry| entry.unwrap().name.to_vec()).collect();
        let names: Vec<_> = names.into_iter().map(String::into_bytes).collect();
        prop_assert_eq!(back, names);
    }

    #[test]
    fn arbitrary_streams_end_in_frames_or_errors(bytes in vec(any::<u8>(), 0..300), requests: bool) {
        let _ = request_bytes(&bytes);
        let _ = response_bytes(&bytes);
        let direction = if requests { Direction::Requests } else { Direction::Responses };
        let mut splitter = Splitter::new(direction, 10_000);
        splitter.push(&bytes);
        let mut taken = 0;
        while let Ok(Some(frame)) = splitter.next_frame() {
            prop_assert!(!frame.bytes().is_empty());
            taken += frame.bytes().len();
        }
        prop_assert_eq!(taken + splitter.unread().len(), bytes.len());
    }
}

/// Generates texts of the characters that occur in this protocol.
fn texts() -> impl Strategy<Value = Vec<u8>> {
    "[0-9 \n\0=&?:,\\[\\]./PSBw]{0,120}".prop_map(String::into_bytes)
}

/// Calls every accessor that a session uses on a decoded request.
fn examine_request(request: &Request<'_>) {
    match request {
        Request::Read(read) => read.preread().iter().for_each(drop),
        Request::Readv(readv) => drop(readv.segments.total_bytes()),
        Request::Writev(writev) => drop(writev.segments.total_bytes()),
        Request::Clone(clone) => clone.items.iter().for_each(drop),
        Request::Mv(mv) => drop(mv.paths()),
        Request::Query(query) => drop(query.text()),
        Request::Login(login) => drop(login.username_bytes()),
        Request::Fattr(fattr) => {
            if let Ok(arguments) = fattr.arguments() {
                assert_eq!(arguments.names.count(), usize::from(fattr.numattr));
            }
        }
        _ => {}
    }
}
