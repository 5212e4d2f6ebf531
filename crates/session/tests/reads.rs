//! Replies to reads: each header, and the end of each read.
//!
//! The driver is replaced by the test, because the session makes only the headers.

#![allow(clippy::unwrap_used)]

mod support;

use base::{Error, ErrorKind, Extent};
use session::{DriverTask, FileIndex, PathId, ReadElement, ReadTask, ReplyOutputs};
use support::{Bench, CLOSE, ERROR, OK, PGREAD, READ, READV, REDIRECT, Raw, Reply};
use vfs::{FileOperation, Now, RedirectAnswer};
use wire::FixedLayout;
use wire::xroot::codes::{ResponseType, Status};
use wire::xroot::header::ResponseHeader;
use wire::xroot::reply::status::StatusFrame;

fn read(code: u16, length: i32) -> Raw {
    Raw::new(code).stream(7).handle(0).i32(16, length)
}

/// Returns a bench with an open file, and a read of it.
fn asked(code: u16, length: i32) -> (Bench, ReadTask) {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let DriverTask::Read(task) = bench.ask(&read(code, length)) else { panic!() };
    (bench, task)
}

/// Reports whether the file can be closed because no operation is in flight.
fn is_at_rest(bench: &mut Bench) -> bool {
    let todo = bench.ask(&Raw::new(CLOSE).stream(9));
    matches!(todo, DriverTask::FileCall(_, _, FileOperation::Close { .. }))
}

fn answers(of: impl FnOnce(&mut Vec<u8>) -> Now<usize>) -> Vec<(u16, Vec<u8>)> {
    let (mut bench, task) = asked(READ, 4);
    let out = bench.out.link(PathId::CONTROL);
    let answered = task.answer(out, of);
    assert_eq!(answered, !out.is_empty(), "a read without an answer leaves the output unchanged");
    let replies: Vec<Reply> = bench.all_replies(0);
    assert!(replies.iter().all(|reply| reply.stream == 7));
    replies.into_iter().map(|reply| (reply.status, reply.body.to_vec())).collect()
}

#[test]
fn a_small_read_is_answered_with_the_appended_data() {
    let data = |bytes: &'static [u8]| {
        move |out: &mut Vec<u8>| {
            out.extend_from_slice(bytes);
            Now::Done(Ok(bytes.len()))
        }
    };
    assert_eq!(answers(data(b"data")), [(OK, b"data".to_vec())]);
    // The end of the file.
    assert_eq!(answers(data(b"da")), [(OK, b"da".to_vec())]);
    assert_eq!(answers(data(b"")), [(OK, Vec::new())]);
    assert_eq!(answers(|_| Now::WouldBlock), []);
    // The reply to a read in steps has the error.
    assert_eq!(answers(|_| Now::Done(Err(Error::new(ErrorKind::IoError, "broken")))), []);
}

#[test]
fn a_range_is_framed_until_it_or_the_file_ends() {
    let (mut bench, mut task) = asked(READ, 10);
    let mut reply = bench.session.read_began(&mut task);
    assert_eq!((reply.left(), reply.link()), (10, PathId::CONTROL));
    let header = |status: Status, dlen| ResponseHeader { streamid: task.streamid, status, dlen }.to_bytes();
    let first = reply.frame(4, 4);
    assert_eq!((first.header, first.is_last), (header(Status::OKSOFAR, 4), false));
    let end = reply.frame(4, 3);
    assert_eq!((end.header, end.is_last), (header(Status::OK, 3), true));
    assert!(!is_at_rest(&mut bench));
    bench.session.read_ended(reply);
    assert!(matches!(bench.session.next_todo(), Some(DriverTask::FileCall(..))), "the close waited for it");

    let (mut bench, mut task) = asked(READ, 10);
    let mut reply = bench.session.read_began(&mut task);
    assert!(!reply.frame(4, 4).is_last);
    let last = reply.frame(6, 6);
    assert_eq!((last.header, last.is_last), (header(Status::OK, 6), true));
    bench.session.read_ended(reply);
    let mut empty = bench.session.read_began(&mut task);
    let last = empty.frame(4, 0);
    assert_eq!((last.header, last.is_last), (header(Status::OK, 0), true));
    bench.session.read_ended(empty);
    assert!(is_at_rest(&mut bench));
}

#[test]
fn pages_are_framed_with_their_offset() {
    let (mut bench, mut task) = asked(PGREAD, 5000);
    assert!(task.paged);
    let mut reply = bench.session.read_began(&mut task);
    let frames = [
        (reply.page_frame(0, (4096, 4096), 4100), ResponseType::PARTIAL, 0, 4100),
        (reply.page_frame(4096, (904, 10), 14), ResponseType::FINAL, 4096, 14),
    ];
    for (frame, resptype, offset, dlen) in frames {
        let (header, body) = frame.header.split_first_chunk().unwrap();
        let status = StatusFrame::decode(&ResponseHeader::from_bytes(header), body).unwrap();
        assert_eq!((status.resptype, status.offset, status.dlen), (resptype, offset, dlen));
        assert_eq!(frame.is_last, resptype == ResponseType::FINAL);
    }
    bench.session.read_ended(reply);
}

#[test]
fn a_vector_is_framed_by_elements() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let element = |offset: u8| [0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, offset];
    let list = [element(0), element(8), element(16)].concat();
    let DriverTask::ReadVector(mut task) = bench.ask(&Raw::new(READV).stream(7).payload(&list)) else {
        panic!()
    };
    assert_eq!(task.elements[1].header(), element(8));
    assert_eq!(task.elements[1], ReadElement { file: FileIndex(0), extent: Extent { offset: 8, length: 4 } });
    let mut reply = bench.session.vector_read_began(&mut task);
    assert!(!reply.vector_frame(2, 40).is_last);
    let last = reply.vector_frame(1, 20);
    let header = ResponseHeader { streamid: task.streamid, status: Status::OK, dlen: 20 };
    assert_eq!((last.header, last.is_last), (header.to_bytes(), true));
    bench.session.read_ended(reply);
    assert!(is_at_rest(&mut bench));
}

#[test]
fn a_read_may_end_with_an_error_or_a_redirect() {
    let (mut bench, mut task) = asked(READ, 10);
    let reply = bench.session.read_began(&mut task);
    bench.session.read_failed(reply, &Error::new(ErrorKind::IoError, "broken"), &mut bench.out);
    let reply = bench.reply();
    assert_eq!((reply.status, reply.stream), (ERROR, 7));
    let to = RedirectAnswer { host: "h".into(), port: 1094, cgi: String::new() };
    bench.session.read_redirected(&task, &to, &mut bench.out);
    let reply = bench.reply();
    assert_eq!((reply.status, reply.stream, &reply.body[..]), (REDIRECT, 7, &b"\0\0\x04\x46h"[..]));
    assert!(is_at_rest(&mut bench));
}

#[test]
fn connections_are_refused_with_the_reason() {
    let mut bench = Bench::new();
    bench.session.refuse_overdue(b"\0\x05rest", 24, PathId::CONTROL, &mut bench.out);
    let reply = bench.reply();
    assert_eq!(reply.stream, 5);
    assert_eq!(reply.error(), (3006, "Request did not arrive in time; 6 of 24 bytes came".to_owned()));
}
