//! Recorded `kXR_ok` bodies decode with the decoder of their request and encode to the same bytes.
//!
//! The tests in `recorded_frames.rs` cover the frames. This file pairs each reply with its request,
//! because the request determines the form of the body.
#![allow(clippy::unwrap_used)]

mod vectors;

use std::collections::HashMap;

use vectors::{Direction, Kind};
use wire::xroot::codes::{FattrSubcode, QueryType};
use wire::xroot::flags::{DirlistOptions, FattrOptions, OpenOptions, OpenTemplateOptions, StatOptions};
use wire::xroot::login_cgi::{self, LoginCgi};
use wire::xroot::reply::{
    self, ChkpointSizes, LoginReply, OpenDetail, OpenReply, ProtocolReply, StatText, VfsText,
};
use wire::xroot::request::{Fattr, Query};
use wire::xroot::{Request, RequestHeader, ResponseHeader, Status, StreamId};
use wire::{Decode, Encode, FixedLayout};

/// Requests without a final response so far.
type Pending = HashMap<StreamId, Answered>;

/// A request and the concatenated bodies of its `kXR_oksofar` frames.
struct Answered {
    header: RequestHeader,
    payload: Vec<u8>,
    collected: Vec<u8>,
}

#[test]
fn recorded_bodies_decode_and_encode() {
    let mut kinds: HashMap<&str, usize> = HashMap::new();
    for scenario in vectors::load() {
        for connection in &scenario.connections {
            let mut pending = Pending::new();
            for frame in connection.frames.iter().filter(|frame| !frame.truncated) {
                let what =
                    format!("{} connection {} frame {}", scenario.name, connection.connection, frame.i);
                match (frame.dir, frame.kind) {
                    (Direction::C2s, Kind::Request) => remember(&mut pending, &frame.hex),
                    (Direction::S2c, Kind::Response) => {
                        if let Some(kind) = check(&mut pending, &frame.hex, &what) {
                            *kinds.entry(kind).or_default() += 1;
                        }
                    }
                    _ => {}
                }
            }
        }
    }
    let all = [
        "bind",
        "chkpoint",
        "cksum",
        "dirlist",
        "fattr list",
        "fattr set",
        "fattr get",
        "locate",
        "login",
        "open",
        "protocol",
        "readv",
        "space",
        "stat",
        "statx",
        "vfs",
        "xattr",
    ];
    for kind in all {
        assert!(kinds.get(kind).is_some_and(|count| *count > 0), "no recorded {kind}");
    }
}

fn remember(pending: &mut Pending, bytes: &[u8]) {
    // The recorder truncated the only request with a negative length; its reply is an error.
    let Some((header, payload)) = bytes.split_first_chunk() else { return };
    let header = RequestHeader::from_bytes(header);
    let counted = &payload[..header.payload_bytes().unwrap().min(payload.len())];
    let request = Answered { header, payload: counted.to_vec(), collected: Vec::new() };
    pending.insert(header.streamid, request);
}

/// Checks the body of a successful response and returns the kind of body.
fn check(pending: &mut Pending, bytes: &[u8], what: &str) -> Option<&'static str> {
    let (header, body) = bytes.split_first_chunk().unwrap();
    let header = ResponseHeader::from_bytes(header);
    // The request of a response on a bound connection was sent on the control connection.
    let answered = pending.get_mut(&header.streamid)?;
    answered.collected.extend_from_slice(body);
    if header.status != Status::OK {
        if header.status != Status::OKSOFAR {
            answered.collected.clear();
        }
        return None;
    }
    let request = Request::decode(&answered.header, &answered.payload).unwrap();
    let mut body = &answered.collected[..];
    let mut out = Vec::new();
    let kind = encode_back(&request, body, &mut out, what)?;
    if kind == "xattr" {
        // XRootD appends an extra byte behind the NUL of this body.
        body = &body[..body.len() - 1];
    }
    assert_eq!(out, body, "{what}: {kind}");
    Some(kind)
}

fn encode_back(request: &Request<'_>, body: &[u8], out: &mut Vec<u8>, what: &str) -> Option<&'static str> {
    Some(match request {
        Request::Bind(_) => {
            reply::BindReply::decode(body).unwrap().encode(out);
            "bind"
        }
        Request::Chkpoint(_) if !body.is_empty() => {
            ChkpointSizes::decode(body).unwrap().encode(out);
            "chkpoint"
        }
        Request::Protocol(_) => {
            ProtocolReply::decode(body).unwrap().encode(out);
            "protocol"
        }
        Request::Login(login) => {
            login_cgi_encodes_back(login.cgi, what);
            LoginReply::decode(body).unwrap().encode(out);
            "login"
        }
        Request::Open(open) => {
            let reply = OpenReply::decode(body).unwrap_or_else(|e| panic!("{what}: {e}"));
            let with_stat = matches!(reply.detail, OpenDetail::Stat(_));
            let asked = open.options.contains(OpenOptions::RETSTAT)
                || open.optiont.contains(OpenTemplateOptions::RETSTATX);
            assert_eq!(with_stat, asked, "{what}");
            reply.encode(out);
            "open"
        }
        Request::Stat(stat) if stat.options.contains(StatOptions::VFS) => {
            VfsText::decode(body).unwrap().encode(out);
            out.push(0);
            "vfs"
        }
        Request::Stat(_) => {
            StatText::decode(body).unwrap().encode(out);
            out.push(0);
            "stat"
        }
        Request::Statx(_) => {
            out.extend(
                body.iter().map(|&kind| reply::statx_byte(wire::xroot::flags::StatFlags(kind.into()))),
            );
            "statx"
        }
        Request::Locate(_) => {
            reply::locate::encode(out, reply::locate::parse(body));
            "locate"
        }
        Request::Dirlist(list) => {
            dirlist(list.options, body, out, what);
            "dirlist"
        }
        Request::Readv(_) => {
            for element in reply::readv::Elements::new(body) {
                let (segment, data) = element.unwrap();
                out.extend_from_slice(&segment.to_bytes());
                out.extend_from_slice(data);
            }
            "readv"
        }
        Request::Fattr(fattr) => attributes(fattr, body, out),
        Request::Query(query) => return query_text(query, body, out),
        _ => return None,
    })
}

fn attributes(fattr: &Fattr<'_>, body: &[u8], out: &mut Vec<u8>) -> &'static str {
    match fattr.subcode {
        FattrSubcode::LIST => {
            let with_values = fattr.options.contains(FattrOptions::ADATA);
            for attribute in reply::fattr::decode_list(body, with_values).unwrap() {
                attribute.encode(out);
            }
            "fattr list"
        }
        FattrSubcode::GET => {
            reply::fattr::encode_values(out, &reply::fattr::decode_results(body, true).unwrap());
            "fattr get"
        }
        _ => {
            reply::fattr::encode_results(out, &reply::fattr::decode_results(body, false).unwrap());
            "fattr set"
        }
    }
}

fn login_cgi_encodes_back(cgi: &[u8], what: &str) {
    let login = LoginCgi::parse(cgi);
    if login.country.is_none() {
        return; // logins of scripts contain fewer elements or none
    }
    let mut out = Vec::new();
    login_cgi::encode(&mut out, &login);
    assert!(cgi.starts_with(&out), "{what}: {}", String::from_utf8_lossy(cgi));
}

fn dirlist(options: DirlistOptions, body: &[u8], out: &mut Vec<u8>, what: &str) {
    let listing = reply::dirlist::Listing::new(body);
    let asked = options.intersects(DirlistOptions::DSTAT | DirlistOptions::DCKSM);
    assert_eq!(listing.has_stat(), asked, "{what}");
    if asked {
        out.extend_from_slice(reply::dirlist::STAT_PREFIX);
    }
    for entry in listing {
        let entry = entry.unwrap();
        let expressed = match &entry.stat {
            Some(stat) => reply::dirlist::entry_with_stat(out, entry.name, stat, entry.checksum.as_ref()),
            None => reply::dirlist::entry(out, entry.name),
        };
        assert!(expressed, "{what}");
    }
    reply::dirlist::finish(out, 0);
}

fn query_text(query: &Query<'_>, body: &[u8], out: &mut Vec<u8>) -> Option<&'static str> {
    Some(match query.infotype {
        QueryType::CKSUM => {
            reply::query::ChecksumText::decode(body).unwrap().encode(out);
            "cksum"
        }
        QueryType::SPACE => {
            reply::query::SpaceUsageText::decode(body).unwrap().encode(out);
            "space"
        }
        QueryType::XATTR => {
            let cgi = wire::xroot::cgi::CgiText::new(body.split(|b| *b == 0).next().unwrap());
            let number = |key| cgi.number(key).unwrap();
            let text = reply::query::XattrText {
                cgroup: cgi.get("oss.cgroup").unwrap(),
                kind: cgi.get("oss.type").unwrap()[0],
                used: cgi.number("oss.used").unwrap(),
                mtime: number("oss.mt"),
                ctime: number("oss.ct"),
                atime: number("oss.at"),
                writable: cgi.get("oss.fs") == Some(b"w"),
                privileges: cgi.get("ofs.ap").unwrap(),
            };
            text.encode(out);
            "xattr"
        }
        _ => return None,
    })
}
