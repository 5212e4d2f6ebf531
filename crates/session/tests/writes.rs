//! Requests that carry data: its destination, the reply, and the position of the next request.
//!
//! The position is tested because a wrong one would turn file data into requests.

#![allow(clippy::unwrap_used)]

mod support;

use base::{Error, ErrorKind};
use session::{BadPage, CallId, Destination, DriverTask, PathId, PayloadAnnouncement, ReceiveResult};
use support::*;
use vfs::{Answer, FileOperation};

fn write(handle: u32, offset: i64, length: i32) -> Raw {
    Raw::new(WRITE).handle(handle).i64(8, offset).dlen(length)
}

fn pgwrite(offset: i64, length: i32) -> Raw {
    Raw::new(PGWRITE).i64(8, offset).dlen(length)
}

fn receive(bench: &mut Bench, request: &Raw) -> PayloadAnnouncement {
    match bench.ask(request) {
        DriverTask::Receive(receive) => receive,
        other => panic!("{} for {request:?}: {:?}", name(&other), bench.all_replies(0)),
    }
}

fn received(bench: &mut Bench, call: CallId, received: ReceiveResult) -> Reply {
    let todo = bench.session.received(call, received, &mut bench.out);
    assert!(matches!(todo, DriverTask::Nothing), "{}", name(&todo));
    bench.reply()
}

fn failed(kind: ErrorKind, text: &str) -> ReceiveResult {
    ReceiveResult { error: Some(Error::new(kind, text)), ..ReceiveResult::default() }
}

/// Sends a request whose data is discarded. Returns the error for the client.
fn discarded(bench: &mut Bench, request: &Raw, length: usize) -> (u16, String) {
    let receive = receive(bench, request);
    assert!(matches!(receive.into, Destination::Discard), "{request:?}");
    assert_eq!(receive.length, length);
    bench.is_silent();
    received(bench, receive.call, ReceiveResult::default()).error()
}

#[test]
fn data_goes_to_its_file_and_is_acknowledged_when_written() {
    let mut bench = Bench::new();
    let file = bench.open("/data/f", 0);
    for (offset, length) in [(0, 5), (i64::MAX, 1), (0, i32::MAX), (7, 0)] {
        let announced = receive(&mut bench, &write(0, offset, length).stream(9));
        assert_eq!((announced.link, announced.length), (PathId::CONTROL, length as usize));
        let Destination::File { file: to, offset: at } = announced.into else { panic!() };
        assert!(file.is(&to) && !announced.checkpoint);
        assert_eq!(at, offset as u64);
        bench.is_silent();
        let reply = received(&mut bench, announced.call, ReceiveResult::default());
        assert_eq!((reply.stream, reply.status, reply.body.len()), (9, OK, 0));
    }
}

#[test]
fn a_failed_write_reports_the_error() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let announced = receive(&mut bench, &write(0, 0, 5));
    let text = "Unable to write /data/f; no space left on device";
    let reply = received(&mut bench, announced.call, failed(ErrorKind::NoSpace, text));
    assert_eq!(reply.error(), (3009, text.to_owned()));
    // The session continues.
    receive(&mut bench, &write(0, 0, 5));
}

#[test]
fn data_of_a_refused_request_is_discarded_before_the_error() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let not_open = |name: &str| (3004, format!("{name} does not refer to an open file"));
    for length in [0, 1, i32::MAX] {
        assert_eq!(discarded(&mut bench, &write(5, 0, length), length as usize), not_open("write"));
    }
    assert_eq!(discarded(&mut bench, &pgwrite(0, 5).handle(5), 5), not_open("pgwrite"));
    for offset in [-1, i64::MIN] {
        let invalid = |verb: &str| (3000, format!("Unable to {verb} /data/f; invalid argument"));
        assert_eq!(discarded(&mut bench, &write(0, offset, 5), 5), invalid("write"));
        assert_eq!(discarded(&mut bench, &pgwrite(offset, 5), 5), invalid("pgwrite"));
    }
    assert!(bench.session.is_active());
}

#[test]
fn a_path_id_moves_data_and_reply_to_its_connection() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    bench.session.bind(address(), false).unwrap();
    for request in [write(0, 0, 5).u8(16, 1), pgwrite(0, 5).u8(16, 1)] {
        let announced = receive(&mut bench, &request);
        assert_eq!((announced.link, announced.length), (PathId(1), 5));
        bench.session.received(announced.call, ReceiveResult::default(), &mut bench.out);
        bench.is_silent();
        assert_eq!(bench.all_replies(1).len(), 1, "{request:?}");
    }
    // The data for an unknown handle arrives on that connection, but the reply does not.
    for request in [write(9, 0, 5).u8(16, 1), pgwrite(0, 5).handle(9).u8(16, 1)] {
        let announced = receive(&mut bench, &request);
        assert_eq!((announced.link, announced.length), (PathId(1), 5));
        bench.session.received(announced.call, ReceiveResult::default(), &mut bench.out);
        assert_eq!(bench.reply().error().0, 3004, "{request:?}");
    }
}

#[test]
fn a_close_waits_for_data() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let first = receive(&mut bench, &write(0, 0, 5));
    let second = receive(&mut bench, &pgwrite(0, 5).i64(8, 4096));
    assert!(!first.held && !second.held);
    assert!(matches!(bench.ask(&Raw::new(CLOSE).stream(3)), DriverTask::Nothing));
    received(&mut bench, first.call, ReceiveResult::default());
    assert!(bench.session.next_todo().is_none());
    received(&mut bench, second.call, ReceiveResult::default());
    let next = bench.session.next_todo();
    assert!(matches!(next, Some(DriverTask::FileCall(_, _, FileOperation::Close { failed: false }))));
}

#[test]
fn a_file_of_a_lost_client_is_kept_until_its_data_is_settled() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let announced = receive(&mut bench, &write(0, 0, 5));
    assert_eq!(bench.end(), [""; 0]);
    let lost = failed(ErrorKind::IoError, "the connection was lost");
    bench.session.received(announced.call, lost, &mut bench.out);
    assert_eq!(bench.released(), ["/data/f"]);
    assert!(bench.session.is_finished());
}

/// Returns the number of bytes of pages with their checksums.
fn pages(lengths: &[i32]) -> i32 {
    lengths.iter().map(|length| length + 4).sum()
}

#[test]
fn good_pages_are_acknowledged_with_their_offset() {
    let mut bench = Bench::new();
    let file = bench.open("/data/f", 0);
    let announced = receive(&mut bench, &pgwrite(100, pages(&[3996, 932])).stream(7));
    let Destination::Pages { file: to, offset } = announced.into else { panic!() };
    assert!(file.is(&to));
    assert_eq!((offset, announced.length), (100, 4936));
    bench.session.received(announced.call, ReceiveResult::default(), &mut bench.out);
    let recorded = "00070fa700000018a807185b00071a0000000000000000000000000000000064";
    assert_eq!(hex(&bench.bytes_on(0)), recorded);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bad(pages: &[(u64, u32)]) -> ReceiveResult {
    let bad_pages = pages.iter().map(|&(offset, length)| BadPage { offset, length }).collect();
    ReceiveResult { bad_pages, ..ReceiveResult::default() }
}

#[test]
fn bad_pages_are_listed_as_recorded() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let announced = receive(&mut bench, &pgwrite(100, 9912).stream(10));
    bench.session.received(announced.call, bad(&[(100, 3996), (8192, 1808)]), &mut bench.out);
    let recorded = "000a0fa700000018e8f62187000a1a0000000000000000180000000000000064\
                    de704ef70f9c071000000000000000640000000000002000";
    assert_eq!(hex(&bench.bytes_on(0)), recorded);
}

#[test]
fn invalid_lengths_of_page_writes_are_refused() {
    for length in 0..=4 {
        let mut bench = Bench::new();
        bench.open("/data/f", 0);
        let (code, text) = bench.ended_by(&pgwrite(0, length));
        assert_eq!((code, text.as_str()), (3000, "pgwrite length is invalid"));
    }
    // A checksum without a page.
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let refusal = discarded(&mut bench, &pgwrite(0, 4104), 4104);
    assert_eq!(refusal, (3000, "pgwrite length is invalid".to_owned()));
    receive(&mut bench, &pgwrite(0, 4105));
    receive(&mut bench, &pgwrite(i64::MAX, i32::MAX));
}

#[test]
fn a_retry_is_one_page() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let text = "pgwrite retry of more than one page not allowed";
    for (offset, length) in [(0, pages(&[4096, 1])), (4095, pages(&[1, 1]))] {
        let request = pgwrite(offset, length).u8(17, 1);
        assert_eq!(discarded(&mut bench, &request, length as usize), (3000, text.to_owned()));
    }
    receive(&mut bench, &pgwrite(0, 4100).u8(17, 1));
}

/// Sends pages of which some are bad. Returns the status or the error.
fn send(bench: &mut Bench, request: &Raw, bad_pages: ReceiveResult) -> Reply {
    let announced = receive(bench, request);
    received(bench, announced.call, bad_pages)
}

/// Closes the file and returns the reply. `failed` is the expected flag of the close.
fn close(bench: &mut Bench, failed: bool) -> Reply {
    let Some(DriverTask::FileCall(call, _, FileOperation::Close { failed: told })) =
        bench.close(&Raw::new(CLOSE))
    else {
        panic!()
    };
    assert_eq!(told, failed);
    bench.reply_of(call, Answer::DONE)
}

#[test]
fn a_close_with_bad_pages_fails_and_closes() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    send(&mut bench, &pgwrite(0, pages(&[4096, 4096, 10])), bad(&[(0, 4096), (4096, 4096)]));
    assert_eq!(close(&mut bench, true).error(), (3019, "2 uncorrected checksum errors".to_owned()));
    assert_eq!(bench.session.files_open(), 0);
    // The next file starts without bad pages.
    bench.open("/data/g", 0);
    assert_eq!(close(&mut bench, false).status, OK);
}

#[test]
fn only_a_good_retry_of_the_same_page_corrects_it() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let page = pages(&[3996]);
    send(&mut bench, &pgwrite(100, page), bad(&[(100, 3996)]));
    // A plain write over the page, a retry of another page, a retry that is bad again.
    send(&mut bench, &pgwrite(100, page), bad(&[]));
    send(&mut bench, &pgwrite(100, page - 1).u8(17, 1), bad(&[]));
    send(&mut bench, &pgwrite(0, 4100).u8(17, 1), bad(&[]));
    let again = send(&mut bench, &pgwrite(100, page).u8(17, 1), bad(&[(100, 3996)]));
    assert_eq!(again.data.len(), 16);
    // A page is listed once, even if it was bad several times.
    let good = send(&mut bench, &pgwrite(100, page).u8(17, 1), bad(&[]));
    assert_eq!(good.data.len(), 0);
    assert_eq!(close(&mut bench, false).status, OK);
}

fn many(count: u64, first: u64) -> ReceiveResult {
    let pages: Vec<(u64, u32)> = (0..count).map(|page| ((first + page) * 4096, 4096)).collect();
    bad(&pages)
}

#[test]
fn bad_pages_of_one_request_are_limited() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let length = pages(&[4096; 128]);
    assert_eq!(send(&mut bench, &pgwrite(0, length), many(127, 0)).data.len(), 8 + 8 * 127);
    let too_many = (3033, "Too many checksum errors in request".to_owned());
    assert_eq!(send(&mut bench, &pgwrite(0, length), many(128, 0)).error(), too_many);
    // The pages were written, so the close must report them.
    assert_eq!(close(&mut bench, true).error().0, 3019);
    bench.open("/data/f", 0);
    let more = ReceiveResult { bad_pages_more: 500_000, ..many(128, 0) };
    assert_eq!(send(&mut bench, &pgwrite(0, length), more).error(), too_many);
    for page in 0..128 {
        send(&mut bench, &pgwrite(page * 4096, 4100).u8(17, 1), bad(&[]));
    }
    assert_eq!(close(&mut bench, true).error(), (3019, "500000 uncorrected checksum errors".to_owned()));
}

#[test]
fn bad_pages_of_a_file_are_limited() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let length = pages(&[4096; 127]);
    for first in [0, 127] {
        assert_eq!(send(&mut bench, &pgwrite(0, length), many(127, first)).status, STATUS);
    }
    assert_eq!(send(&mut bench, &pgwrite(0, length), many(2, 254)).status, STATUS);
    assert_eq!(send(&mut bench, &pgwrite(0, length), many(1, 256)).error().0, 3033);
    assert_eq!(close(&mut bench, true).error(), (3019, "257 uncorrected checksum errors".to_owned()));
}

#[test]
fn a_failed_page_write_reports_the_error() {
    let mut bench = Bench::new();
    bench.open("/data/f", 0);
    let reply =
        send(&mut bench, &pgwrite(0, 4100), failed(ErrorKind::IoError, "Unable to write /data/f; i/o error"));
    assert_eq!(reply.error().0, 3007);
}
