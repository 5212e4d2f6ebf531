//! Tests of listings: which requests share a reading of a directory, and that sharing does not
//! change results.

#![allow(clippy::unwrap_used)]

mod support;

use base::ErrorKind;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use support::memory::POOL_THREADS;
use support::{Call, Server, caller, target};
use vfs::{Answer, FileSystem, ListDetail, ListingPosition, Mailbox, Operation, ReplyTo, ReplyToken, Value};

const STAT: ListDetail = ListDetail { stat: true, checksum: false, online: false };

/// Creates `/data/d` with this number of files.
fn server(files: usize) -> Server {
    let server = Server::new();
    for number in 0..files {
        server.memory.put(&format!("/data/d/{number:05}"), b"1");
    }
    server
}

fn list(server: &Server) -> Call {
    server.call(Operation::List(target("/data/d"), STAT))
}

fn count(server: &Server, kind: &'static str) -> usize {
    server.memory.faults().calls(kind)
}

type Page = (Vec<String>, Option<Box<dyn ListingPosition>>);

fn page(call: Call) -> Page {
    let Value::Listing { entries, rest } = call.value() else { panic!("no listing") };
    (entries.iter().map(|entry| String::from_utf8(entry.name.clone()).unwrap()).collect(), rest)
}

/// Returns all remaining names.
fn read_on(server: &Server, (mut names, mut rest): Page) -> Vec<String> {
    while let Some(more) = rest.take() {
        let (further, then) = page(server.call(Operation::ListMore(more)));
        names.extend(further);
        rest = then;
    }
    names
}

fn names(server: &Server, call: Call) -> Vec<String> {
    read_on(server, page(call))
}

/// Waits until all readings have ended.
fn until_all_is_read(server: &Server) {
    while server.logical.status().scans > 0 {
        std::thread::yield_now();
    }
}

/// Starts a listing that is held, and others that wait behind it.
fn behind_another(server: &Server, others: usize) -> (Call, Vec<Call>) {
    let faults = server.memory.faults();
    faults.hold("list");
    let first = list(server);
    faults.wait_for_held("list", 1);
    (first, (0..others).map(|_| list(server)).collect())
}

#[test]
fn requests_during_a_reading_share_the_next_one() {
    let server = server(1300);
    let (first, others) = behind_another(&server, 5);
    server.memory.faults().release("list");
    assert_eq!(names(&server, first).len(), 1300);
    for other in others {
        let all: HashSet<_> = names(&server, other).into_iter().collect();
        assert_eq!(all.len(), 1300);
    }
    assert_eq!((count(&server, "list"), count(&server, "stat")), (2, 2 * 1300));
    until_all_is_read(&server);
    assert_eq!(names(&server, list(&server)).len(), 1300);
    assert_eq!(count(&server, "list"), 3, "later requests start a new reading");
}

#[test]
fn a_listing_contains_names_that_exist_at_its_request() {
    let server = server(3);
    let faults = server.memory.faults();
    // The names are read by then, but not sent yet.
    faults.hold("next");
    let early = list(&server);
    faults.wait_for_held("next", 1);
    server.memory.put("/data/d/new", b"");
    let late = list(&server);
    faults.release("next");
    assert_eq!(names(&server, early).len(), 3);
    assert!(names(&server, late).contains(&"new".to_owned()));
}

#[test]
fn only_equal_requests_share_a_reading() {
    let server = server(3);
    let faults = server.memory.faults();
    faults.hold("list");
    let plain = server.call(Operation::List(target("/data/d"), ListDetail::default()));
    let with_status = list(&server);
    let other = server.call(Operation::List(target("/data"), STAT));
    faults.wait_for_held("list", 3);
    faults.release("list");
    assert_eq!(names(&server, plain), names(&server, with_status));
    assert_eq!(names(&server, other).len(), 2);
}

#[test]
fn a_slow_client_does_not_delay_others_and_gets_the_same_listing() {
    let server = server(3000);
    let (first, mut others) = behind_another(&server, 2);
    server.memory.faults().release("list");
    names(&server, first);
    let slow = page(others.pop().unwrap());
    assert_eq!(names(&server, others.pop().unwrap()).len(), 3000);
    server.memory.take("/data/d/02999");
    // A listing that started meanwhile is separate.
    assert_eq!(names(&server, list(&server)).len(), 2999);
    assert_eq!(read_on(&server, slow).len(), 3000);
    assert_eq!((count(&server, "list"), count(&server, "stat")), (3, 8999));
}

#[test]
fn an_error_reaches_all_sharing_requests() {
    let server = server(600);
    let faults = server.memory.faults();
    let (first, others) = behind_another(&server, 2);
    faults.fail("list", Some(13));
    faults.release("list");
    let wanted = (ErrorKind::NotAuthorized, "Unable to open directory /data/d; permission denied".to_owned());
    assert_eq!(first.refusal(), wanted);
    others.into_iter().for_each(|other| assert_eq!(other.refusal(), wanted));
    assert_eq!(count(&server, "list"), 2);
    faults.fail("list", None);
    // An error midway: some clients have received a page by then.
    faults.hold("stat");
    let (first, second) = (list(&server), list(&server));
    faults.wait_for_held("stat", 1);
    let third = list(&server);
    faults.fail("next", Some(5));
    faults.release("stat");
    let wanted = (ErrorKind::IoError, "Unable to read directory /data/d; input/output error".to_owned());
    for call in [first, second, third] {
        match call.answer() {
            Answer::Value(Value::Listing { entries, rest }) => {
                assert_eq!(entries.len(), 512);
                assert_eq!(server.call(Operation::ListMore(rest.unwrap())).refusal(), wanted);
            }
            Answer::Error(error) => assert_eq!((error.kind, error.text), wanted),
            _ => panic!(),
        }
    }
    until_all_is_read(&server);
}

#[test]
fn a_panic_is_an_error_for_all_and_the_next_reading_succeeds() {
    let server = server(3);
    let faults = server.memory.faults();
    let (first, others) = behind_another(&server, 2);
    faults.panic_on("stat", true);
    faults.release("list");
    assert_eq!(first.error().kind, ErrorKind::ServerError);
    others.into_iter().for_each(|other| assert_eq!(other.error().kind, ErrorKind::ServerError));
    faults.panic_on("stat", false);
    assert_eq!(names(&server, list(&server)).len(), 3);
    until_all_is_read(&server);
}

/// With names of this length the buffer of a directory is full after some 7,800 entries.
const LONG_NAME: usize = 200;
const HUGE: usize = 9000;

#[test]
fn the_buffer_of_a_huge_directory_is_bounded() {
    let server = Server::new();
    for number in 0..HUGE {
        server.memory.put(&format!("/data/d/{number:0LONG_NAME$}"), b"1");
    }
    let whole = |names: Vec<String>| {
        assert_eq!(names.len(), HUGE);
        assert_eq!(names.into_iter().collect::<HashSet<_>>().len(), HUGE);
    };
    let (first, mut others) = behind_another(&server, 2);
    server.memory.faults().release("list");
    let first = page(first);
    let slow = page(others.pop().unwrap());
    // No client has requested more than one page, and reading ahead is limited.
    until_all_is_read(&server);
    let kept = count(&server, "stat") / 2;
    assert!((1000..HUGE).contains(&kept), "{kept}");
    whole(read_on(&server, first));
    assert_eq!(count(&server, "list"), 2, "the first listing at the end of the buffer continues the stream");
    whole(names(&server, others.pop().unwrap()));
    // The shared stream was taken. A listing that starts anew repeats no name and queries no status
    // twice.
    whole(read_on(&server, slow));
    assert_eq!(count(&server, "list"), 3);
    assert_eq!(count(&server, "stat"), 2 * kept + 3 * (HUGE - kept));
}

#[test]
fn requests_do_not_wait_long_for_a_hung_reading() {
    let server = server(3);
    let faults = server.memory.faults();
    let (first, others) = behind_another(&server, 2);
    server.logical.tick();
    server.clock.advance(Duration::from_secs(1));
    server.logical.tick();
    // One more reading beside the hung one serves both waiting requests.
    faults.wait_for_held("list", 2);
    let third = list(&server);
    server.clock.advance(Duration::from_secs(1));
    let fourth = list(&server);
    // A later request does not wait for the tick either.
    faults.wait_for_held("list", 3);
    faults.release("list");
    for call in others.into_iter().chain([first, third, fourth]) {
        assert_eq!(names(&server, call).len(), 3);
    }
    assert_eq!(count(&server, "list"), 3);
    until_all_is_read(&server);
}

#[test]
fn reading_stops_for_clients_that_have_left() {
    /// A mailbox that drops answers.
    struct Gone;
    impl Mailbox for Gone {
        fn deliver(&self, _token: ReplyToken, _answer: Answer) {}
    }
    let server = server(3000);
    let reply = ReplyTo::new(Arc::new(Gone), ReplyToken { owner: 1, call: 1 });
    let operation = Operation::List(target("/data/d"), STAT);
    let _pending = server.logical.start(&caller("alice", 1), operation, &reply);
    until_all_is_read(&server);
    assert_eq!(count(&server, "stat"), 512);
}

/// Creates several pages of names that cannot be listed, sorted after all others.
fn put_unlistable(server: &Server) {
    (0..3000).for_each(|number| server.memory.put(&format!("/data/d/z\n{number}"), b"1"));
}

#[test]
fn reading_unlistable_names_stops_when_the_client_leaves() {
    let server = Server::new();
    put_unlistable(&server);
    let faults = server.memory.faults();
    faults.hold("next");
    let ann = caller("ann", 1);
    let call = server.call_as(&ann, Operation::List(target("/data/d"), STAT));
    faults.wait_for_held("next", 1);
    ann.disconnect();
    faults.release("next");
    call.error();
    until_all_is_read(&server);
    assert_eq!(count(&server, "next"), 1);
    assert_eq!(names(&server, list(&server)).len(), 0);
}

#[test]
fn a_separate_reading_ends_when_its_client_leaves() {
    let server = Server::new();
    for number in 0..HUGE {
        server.memory.put(&format!("/data/d/{number:0LONG_NAME$}"), b"1");
    }
    put_unlistable(&server);
    let faults = server.memory.faults();
    let (mut names, mut rest) = page(list(&server));
    until_all_is_read(&server);
    while names.len() < HUGE {
        let (further, then) = page(server.call(Operation::ListMore(rest.unwrap())));
        names.extend(further);
        rest = then;
    }
    let before = count(&server, "next");
    faults.hold("next");
    let ann = caller("ann", 1);
    let call = server.call_as(&ann, Operation::ListMore(rest.unwrap()));
    faults.wait_for_held("next", 1);
    ann.disconnect();
    faults.release("next");
    assert_eq!(call.error().kind, ErrorKind::Cancelled);
    assert_eq!(count(&server, "next"), before + 1);
}

#[test]
fn a_full_pool_refuses_new_listings_and_completes_started_ones() {
    let server = server(1300);
    let faults = server.memory.faults();
    faults.hold("next");
    let begun = list(&server);
    faults.wait_for_held("next", 1);
    let full = server.memory.fill_pool(POOL_THREADS - 1);
    assert_eq!(server.call(Operation::List(target("/data"), STAT)).error().kind, ErrorKind::Overloaded);
    let waits = list(&server);
    faults.release("next");
    assert_eq!(names(&server, begun).len(), 1300);
    assert_eq!(waits.error().kind, ErrorKind::Overloaded);
    drop(full);
    assert_eq!(names(&server, list(&server)).len(), 1300);
}
