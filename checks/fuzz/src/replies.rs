//! Fuzz target for xroot replies: decoding never panics, and decoded replies survive encoding.
//!
//! Frames and each kind of body are checked separately, because the body of a `kXR_ok` depends on
//! its request.

use crate::requests::split_stream;
use wire::xroot::frames::Direction;
use wire::xroot::reply::{
    Attn, BadPages, ChkpointSizes, LoginReply, OpenReply, ProtocolReply, StatText, VfsText, dirlist, fattr,
    locate, query, readv,
};
use wire::xroot::{Reply, ResponseHeader};
use wire::{Decode, Encode, FixedLayout};

/// Checks `data` as a response frame, whose announced length may be wrong, and as a stream.
pub fn target(data: &[u8]) {
    split_stream(Direction::Responses, data);
    let Some((header, rest)) = data.split_first_chunk() else { return };
    let header = ResponseHeader::from_bytes(header);
    let counted = header.body_bytes().unwrap_or(0).min(rest.len());
    let body = rest.get(..counted).unwrap_or_default();
    bodies(rest);
    texts(rest);
    let Ok(reply) = Reply::decode(&header, body) else { return };
    let mut bytes = Vec::new();
    reply.encode(header.streamid, &mut bytes);
    let Some((again, body)) = bytes.split_first_chunk() else { panic!("{reply:?} has no header") };
    let again = ResponseHeader::from_bytes(again);
    assert_eq!(again.status, header.status);
    assert_eq!(again.body_bytes(), Ok(body.len()));
    assert_eq!(Reply::decode(&again, body), Ok(reply));
    match reply {
        Reply::Redirect(redirect) => drop(redirect.target()),
        Reply::Attn(Attn::Response { header, body }) => drop(Reply::decode(&header, body)),
        _ => {}
    }
}

/// Returns the bytes that `encode` appends.
fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

fn bodies(body: &[u8]) {
    if let Ok(reply) = ProtocolReply::decode(body) {
        let out = reply.encoded();
        let again = ProtocolReply::decode(&out);
        // The list of interfaces is padded by encoding.
        assert_eq!(
            again.map(|again| (again.pval, again.flags, again.security)),
            Ok((reply.pval, reply.flags, reply.security))
        );
    }
    if let Ok(reply) = LoginReply::decode(body) {
        assert_eq!(LoginReply::decode(&reply.encoded()), Ok(reply));
        reply.protocols().for_each(|protocol| assert!(!protocol.name.contains(&b',')));
    }
    if let Ok(reply) = OpenReply::decode(body) {
        assert_eq!(OpenReply::decode(&reply.encoded()), Ok(reply));
    }
    if let Ok(reply) = ChkpointSizes::decode(body) {
        assert_eq!(ChkpointSizes::decode(&reply.encoded()), Ok(reply));
    }
    if let Ok(list) = BadPages::decode(body) {
        assert_eq!(list.encoded(), body);
    }
    for with_values in [false, true] {
        if let Ok(results) = fattr::decode_results(body, with_values) {
            let out = encoded(|out| match with_values {
                true => fattr::encode_values(out, &results),
                false => fattr::encode_results(out, &results),
            });
            // A value of an attribute with an error is not encoded.
            let sane = results.iter().all(|result| result.error.is_none() || result.value.is_empty());
            assert!(!sane || fattr::decode_results(&out, with_values) == Ok(results));
        }
        if let Ok(list) = fattr::decode_list(body, with_values) {
            let out = encoded(|out| list.iter().for_each(|listed| listed.encode(out)));
            assert_eq!(out, body);
        }
    }
    let elements = readv::Elements::new(body).map_while(Result::ok);
    let out = encoded(|out| {
        elements.for_each(|(segment, data)| {
            segment.encode(out);
            out.extend_from_slice(data);
        });
    });
    assert!(body.starts_with(&out));
}

fn texts(text: &[u8]) {
    if let Ok(stat) = StatText::decode(text) {
        assert_eq!(StatText::decode(&stat.encoded()).map(|again| again.size), Ok(stat.size));
    }
    if let Ok(vfs) = VfsText::decode(text) {
        assert_eq!(VfsText::decode(&vfs.encoded()), Ok(vfs));
    }
    if let Ok(checksum) = query::ChecksumText::decode(text) {
        assert_eq!(query::ChecksumText::decode(&checksum.encoded()), Ok(checksum));
    }
    if let Ok(space) = query::SpaceUsageText::decode(text) {
        assert_eq!(query::SpaceUsageText::decode(&space.encoded()), Ok(space));
    }
    let locations: Vec<_> = locate::parse(text).collect();
    let out = encoded(|out| locate::encode(out, locations.iter().copied()));
    assert_eq!(locate::parse(&out).collect::<Vec<_>>(), locations);
    listing(text);
}

fn listing(text: &[u8]) {
    let listing = dirlist::Listing::new(text);
    let Ok(entries) = listing.collect::<Result<Vec<_>, _>>() else { return };
    let mut out = if listing.has_stat() { dirlist::STAT_PREFIX.to_vec() } else { Vec::new() };
    for entry in &entries {
        let expressed = match &entry.stat {
            Some(stat) => dirlist::entry_with_stat(&mut out, entry.name, stat, entry.checksum.as_ref()),
            None => dirlist::entry(&mut out, entry.name),
        };
        assert!(expressed, "a decoded name cannot be encoded");
    }
    dirlist::finish(&mut out, 0);
    let again: Vec<_> =
        dirlist::Listing::new(&out).map_while(Result::ok).map(|entry| entry.name.to_vec()).collect();
    let plain_prefix = !listing.has_stat() && entries.first().is_some_and(|entry| entry.name == b".");
    assert!(plain_prefix || again.iter().eq(entries.iter().map(|entry| entry.name)));
}
