//! Tests of third-party copies in the logical file system: the rendezvous at a source, and a
//! destination with a fetcher that the test drives by hand.

#![allow(clippy::unwrap_used)]

mod delegation;
mod limits;
#[path = "../support/mod.rs"]
mod support;

use base::ErrorKind::{self, *};
use base::{Error, Identity, LoginNames};
use digest::{Algorithm, RunningChecksum as Summing};
use logical::{
    Fetcher, HostLookup, HostRule, ProofRule, RunningTransfer, ThirdPartyParts,
    ThirdPartySettings as Settings, TransferCompletion, TransferRequest, TransferResult, TransferSink,
};
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};
use support::{Call, PATIENCE, Server, creating, path, reading, replacing, stops, tell, updating};
use vfs::{Answer, Caller, FileOperation, OpenFile, OpenRequest, Started, Value};

/// A fetch that the test executes.
struct Work {
    fetch: TransferRequest,
    sink: Arc<dyn TransferSink>,
    finish: TransferCompletion,
    cancelled: Arc<AtomicBool>,
}

impl Work {
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), (ErrorKind, String)> {
        let (tell, told) = mpsc::channel();
        let then = move |result: Result<(), Error>| tell.send(result.map_err(|e| (e.kind, e.text))).unwrap();
        self.sink.write(offset, Box::new(bytes.to_vec()), Box::new(then));
        told.recv_timeout(PATIENCE).unwrap()
    }

    /// Waits until the work is cancelled, because the client gets the answer earlier.
    fn until_cancelled(&self) {
        let end = Instant::now() + Duration::from_secs(60);
        while !self.cancelled.load(Ordering::SeqCst) {
            assert!(Instant::now() < end, "no answer was sent");
            std::thread::yield_now();
        }
    }

    fn done(self, bytes: u64) {
        self.finish.done(Ok(TransferResult { bytes, checksum: None, verified: false }));
    }
}

/// A fetcher that passes the fetches to the test.
#[derive(Default)]
struct Hand {
    works: Mutex<VecDeque<Work>>,
    bell: Condvar,
}

struct Flag(Arc<AtomicBool>);

impl RunningTransfer for Flag {
    fn cancel(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Fetcher for Hand {
    fn start(
        &self,
        fetch: TransferRequest,
        sink: Arc<dyn TransferSink>,
        finish: TransferCompletion,
    ) -> Box<dyn RunningTransfer> {
        let cancelled = Arc::new(AtomicBool::new(false));
        let running = Box::new(Flag(cancelled.clone()));
        self.works.lock().unwrap().push_back(Work { fetch, sink, finish, cancelled });
        self.bell.notify_all();
        running
    }
}

impl Hand {
    /// Waits for the next fetch and returns it.
    fn take(&self) -> Work {
        let mut works = self.works.lock().unwrap();
        loop {
            if let Some(work) = works.pop_front() {
                return work;
            }
            let (rest, timeout) = self.bell.wait_timeout(works, PATIENCE).unwrap();
            assert!(!timeout.timed_out(), "there is no fetch");
            works = rest;
        }
    }

    fn is_idle(&self) -> bool {
        self.works.lock().unwrap().is_empty()
    }
}

/// A resolver with fixed names.
#[derive(Default)]
struct Book(HashMap<&'static str, IpAddr>);

impl HostLookup for Book {
    fn addresses(&self, name: &str) -> Vec<IpAddr> {
        self.0.get(name).copied().into_iter().collect()
    }

    fn name(&self, address: IpAddr) -> Option<String> {
        self.0.iter().find(|(_, at)| **at == address).map(|(name, _)| (*name).to_owned())
    }
}

fn book() -> Book {
    let hosts = [("client", "10.0.0.1"), ("target", "10.0.0.2"), ("stranger", "10.0.0.3")];
    Book(hosts.map(|(name, at)| (name, at.parse().unwrap())).into())
}

fn serving(settings: Settings) -> (Server, Arc<Hand>) {
    let server = Server::new();
    let hand = Arc::new(Hand::default());
    let parts = ThirdPartyParts { settings, fetcher: hand.clone(), names: Arc::new(book()), observer: None };
    server.logical.copy_for_others(parts);
    (server, hand)
}

fn at(user: &str, pid: u32, address: &str) -> Arc<Caller> {
    let told = LoginNames { user, host: address, ..LoginNames::default() };
    let identity = Identity::new(&told, pid, address.parse().ok(), "host");
    Arc::new(Caller::new(identity, true, false))
}

fn client() -> Arc<Caller> {
    at("alice", 7, "10.0.0.1")
}

fn target() -> Arc<Caller> {
    at("daemon", 99, "10.0.0.2")
}

const GRANT: &str = "/data/f?tpc.dst=target&tpc.key=k1&tpc.stage=copy";
const COLLECT: &str = "/data/f?tpc.key=k1&tpc.org=alice.7@client";
const PULL: &str = "?oss.asize=5&tpc.key=k1&tpc.lfn=/theirs/f&tpc.src=source:1095&tpc.stage=copy";

fn wait_of(answer: &Answer) -> u32 {
    match answer {
        Answer::Wait { seconds, .. } => *seconds,
        other => panic!("{}", tell(other)),
    }
}

/// Returns the numbers of used grants, refusals, failed copies, and grants and waits that expired.
fn counts(server: &Server) -> [u64; 4] {
    let counts = server.logical.totals().third_party;
    [counts.granted, counts.denied, counts.failed, counts.expired]
}

fn is_later(call: &Call) -> bool {
    matches!(call.started, Started::Later { seconds: 1800, .. })
}

#[test]
fn a_probe_is_an_ordinary_open() {
    let (server, _) = serving(Settings::default());
    server.memory.put("/data/f", b"12345");
    let (file, stat) =
        server.open("/data/f?tpc.stage=placement", OpenRequest { stat: true, ..reading() }).opened();
    assert_eq!(stat.unwrap().size, 5);
    let query = FileOperation::Query { code: 64, argument: b"ofs.tpc cancel".to_vec() };
    assert_eq!(server.on_file(&file, query).refusal(), (FsError, "tpc operation not found".into()));
    let query = FileOperation::Query { code: 64, argument: b"other".to_vec() };
    assert_eq!(server.on_file(&file, query).refusal().0, Unsupported);
}

#[test]
fn a_grant_admits_its_destination_once() {
    let (server, _) = serving(Settings::default());
    server.memory.put("/data/f", b"12345");
    let held = server.open_as(&client(), GRANT, reading()).file();
    let again = server.open_as(&client(), GRANT, reading()).refusal();
    assert_eq!(again, (FsError, "Unable to open /data/f; duplicate tpc authorization".into()));
    // The names of hosts differ at first, so the destination has to retry.
    let first = server.open_as(&target(), COLLECT, reading());
    assert!(is_later(&first));
    assert_eq!(wait_of(&first.answer()), 0);
    server.open_as(&target(), COLLECT, reading()).done();
    let second = server.open_as(&target(), COLLECT, reading());
    assert!(is_later(&second));
    server.close(&held).done();
    server.after(16);
    assert_eq!(second.refusal(), (NotAuthorized, "tpc authorization expired".into()));
    assert_eq!(counts(&server), [1, 1, 0, 1]);
}

#[test]
fn a_known_key_does_not_admit_other_clients_or_hosts() {
    let (server, _) = serving(Settings::default());
    server.memory.put("/data/f", b"12345");
    server.memory.put("/data/g", b"12345");
    let _held = server.open_as(&client(), GRANT, reading()).file();
    let stranger = at("daemon", 99, "10.0.0.3");
    let calls = [
        server.open_as(&stranger, COLLECT, reading()),
        server.open_as(&target(), "/data/f?tpc.key=k2&tpc.org=alice.7@client", reading()),
        server.open_as(&target(), "/data/f?tpc.key=k1&tpc.org=alice.8@client", reading()),
        server.open_as(&target(), "/data/f?tpc.key=k1&tpc.org=alice.7@stranger", reading()),
        server.open_as(&target(), "/data/g?tpc.key=k1&tpc.org=alice.7@client", reading()),
    ];
    server.after(16);
    for call in calls {
        assert_eq!(call.refusal(), (NotAuthorized, "tpc authorization expired".into()));
    }
}

#[test]
fn a_destination_that_comes_first_waits_for_the_grant() {
    for (early, host) in
        [(COLLECT, "target"), ("/data/f?tpc.key=k1&tpc.org=alice.7@[::ffff:10.0.0.1]", "10.0.0.2")]
    {
        let (server, _) = serving(Settings::default());
        server.memory.put("/data/f", b"12345");
        let waiting = server.open_as(&target(), early, reading());
        assert!(is_later(&waiting));
        let grant = format!("/data/f?tpc.dst={host}&tpc.key=k1&tpc.stage=copy");
        let _held = server.open_as(&client(), &grant, reading()).file();
        assert_eq!(wait_of(&waiting.answer()), 0);
        server.open_as(&target(), early, reading()).done();
    }
}

#[test]
fn a_grant_ends_with_its_validity_or_its_handle() {
    let (server, _) = serving(Settings::default());
    server.memory.put("/data/f", b"12345");
    let grant = "/data/f?tpc.dst=10.0.0.2&tpc.key=k1&tpc.ttl=3";
    let collect = "/data/f?tpc.key=k1&tpc.org=alice.7@10.0.0.1";
    let held = server.open_as(&client(), grant, reading()).file();
    server.after(3);
    assert_eq!(counts(&server), [0, 0, 0, 1]);
    assert!(is_later(&server.open_as(&target(), collect, reading())));
    server.close(&held).done();
    server.after(16);
    let held = server.open_as(&client(), grant, reading()).file();
    server.close(&held).done();
    assert!(is_later(&server.open_as(&target(), collect, reading())), "the client has given up");
    server.after(16);
    let _held = server.open_as(&client(), grant, reading()).file();
    server.open_as(&target(), collect, reading()).done();
    assert_eq!(counts(&server), [1, 0, 0, 3]);
}

#[test]
fn a_missing_file_is_not_granted() {
    let (server, _) = serving(Settings::default());
    let missing = server.open_as(&client(), GRANT, reading()).refusal();
    assert_eq!(missing, (NotFound, "Unable to open /data/f; no such file or directory".into()));
    server.memory.put("/data/f", b"");
    server.open_as(&client(), GRANT, reading()).done();
}

#[test]
fn rules_restrict_copies() {
    let not_authorized = |text: &str| (NotAuthorized, format!("Unable to open /data/f; {text}"));
    let gsi = vec![ProofRule { protocol: "gsi".into(), encrypted: false }];
    let encrypted = vec![ProofRule { protocol: "host".into(), encrypted: true }];
    let (server, _) = serving(Settings { require_client: gsi, ..Settings::default() });
    server.memory.put("/data/f", b"");
    let want = not_authorized("improper tpc authentication");
    assert_eq!(server.open_as(&client(), GRANT, reading()).refusal(), want);
    assert_eq!(server.open_as(&client(), &format!("/data/f{PULL}"), replacing()).refusal(), want);
    assert_eq!(server.memory.content("/data/f").as_deref(), Some(&b""[..]));
    assert_eq!(counts(&server), [0, 2, 0, 0]);
    let (server, _) = serving(Settings { require_destination: encrypted, ..Settings::default() });
    server.memory.put("/data/f", b"");
    let want = not_authorized("unencrypted tpc disallowed");
    assert_eq!(server.open_as(&target(), COLLECT, reading()).refusal(), want);
    assert_eq!(counts(&server), [0, 1, 0, 0]);
    let (server, _) = serving(Settings { restrict: vec![path("/data/open")], ..Settings::default() });
    server.memory.put("/data/f", b"");
    let want = not_authorized("tpc not allowed for path");
    assert_eq!(server.open_as(&client(), GRANT, reading()).refusal(), want);
    assert_eq!(server.open_as(&client(), &format!("/data/f{PULL}"), replacing()).refusal(), want);
}

#[test]
fn destinations_are_admitted_by_name_or_address() {
    for (pattern, admitted) in [("10.0.0.*", true), ("tar*", true), ("other*", false)] {
        let allow = vec![HostRule { host: config::HostPattern::parse(pattern), ..HostRule::default() }];
        let (server, _) = serving(Settings { allow, ..Settings::default() });
        server.memory.put("/data/f", b"");
        let _held = server.open_as(&client(), GRANT, reading()).file();
        let answer = loop {
            match server.open_as(&target(), COLLECT, reading()).answer() {
                Answer::Wait { seconds: 0, .. } => {}
                answer => break answer,
            }
        };
        match answer {
            Answer::Value(Value::Opened(_)) => assert!(admitted, "{pattern}"),
            Answer::Error(error) => {
                assert!(!admitted, "{pattern}");
                assert_eq!(error.text, "Unable to open /data/f; dest not authorized for tpc");
            }
            other => panic!("{}", tell(&other)),
        }
    }
}

/// Opens a destination and starts its copy.
fn begun(server: &Server, hand: &Hand, name: &str, request: OpenRequest) -> (Arc<dyn OpenFile>, Call, Work) {
    let file = server.open_as(&client(), &format!("{name}{PULL}"), request).file();
    server.on_file(&file, FileOperation::Sync).done();
    let result = server.on_file(&file, FileOperation::Sync);
    assert!(is_later(&result));
    (file, result, hand.take())
}

#[test]
fn a_copy_starts_at_the_second_sync() {
    let (server, hand) = serving(Settings::default());
    let file = server.open_as(&client(), &format!("/data/new{PULL}&tpc.str=40"), creating()).file();
    server.on_file(&file, FileOperation::Sync).done();
    assert!(hand.is_idle(), "the first sync only prepares the copy");
    let result = server.on_file(&file, FileOperation::Sync);
    let work = hand.take();
    let TransferRequest { source, path, cgi, key, origins, credentials, streams, size, .. } =
        work.fetch.clone();
    assert_eq!(
        (source.as_str(), path.as_str(), cgi.as_str(), key.as_deref()),
        ("source:1095", "/theirs/f", "", Some("k1"))
    );
    assert!(credentials.is_none());
    assert_eq!(origins, ["alice.7@client", "alice.7@[::ffff:10.0.0.1]"]);
    assert_eq!((streams, size), (15, Some(5)));
    work.write(0, b"123").unwrap();
    assert_eq!(server.on_file(&file, FileOperation::Stat).stat().size, 3);
    assert!(server.stat("/data/new").stat().posc_pending, "it must not look complete before it is");
    let again = server.on_file(&file, FileOperation::Sync);
    work.write(3, b"45").unwrap();
    work.done(5);
    result.done();
    again.done();
    assert!(server.on_file(&file, FileOperation::Sync).was_on_the_spot(), "the result stays");
    assert!(server.stat("/data/new").stat().posc_pending);
    server.close(&file).done();
    assert!(!server.stat("/data/new").stat().posc_pending);
    assert_eq!(server.memory.content("/data/new").as_deref(), Some(&b"12345"[..]));
    assert_eq!(server.logical.status(), logical::LogicalStatus::default());
}

#[test]
fn the_client_cannot_write_the_destination_of_a_copy() {
    let (server, hand) = serving(Settings::default());
    let (file, result, work) = begun(&server, &hand, "/data/new", creating());
    let want = (InvalidRequest, "Unable to write /data/new; it is copied from another server".to_owned());
    assert_eq!(server.write(&file, 0, b"x").refusal(), want);
    let cut = FileOperation::Truncate { size: 0, checkpoint: false };
    assert_eq!(server.on_file(&file, cut).refusal().0, InvalidRequest);
    work.write(0, b"12345").unwrap();
    work.done(5);
    result.done();
    server.close(&file).done();
    assert_eq!(server.memory.content("/data/new").as_deref(), Some(&b"12345"[..]));
}

#[test]
fn a_failed_copy_leaves_no_file() {
    for (name, request) in [("/data/new", creating()), ("/data/old", replacing())] {
        let (server, hand) = serving(Settings::default());
        server.memory.put("/data/old", b"before");
        let (file, result, work) = begun(&server, &hand, name, request);
        work.write(0, b"123").unwrap();
        work.finish.done(Err(Error::new(NotAuthorized, "tpc authorization expired")));
        let want =
            (FsError, "Unable to copy root://source:1095//theirs/f; tpc authorization expired".to_owned());
        assert_eq!(result.refusal(), want);
        assert_eq!(server.on_file(&file, FileOperation::Sync).refusal(), want, "the result stays");
        server.close(&file).done();
        assert_eq!(server.memory.content(name), None);
        assert_eq!(server.logical.status(), logical::LogicalStatus::default());
        assert_eq!(counts(&server), [0, 0, 1, 0]);
        assert_eq!(server.logical.totals().undone_files, 1);
    }
}

#[test]
fn a_short_copy_fails() {
    let (server, hand) = serving(Settings::default());
    let (file, result, work) = begun(&server, &hand, "/data/new", creating());
    work.write(0, b"123").unwrap();
    work.done(5);
    let text = "Unable to copy root://source:1095//theirs/f; 5 bytes were sent, and 3 are here";
    assert_eq!(result.refusal(), (FsError, text.into()));
    server.close(&file).done();
    assert_eq!(server.memory.content("/data/new"), None);
}

#[test]
fn checksums_are_compared() {
    let sum = |bytes: &[u8]| {
        let mut running = Summing::new(Algorithm::Adler32);
        running.update(bytes);
        Some(running.finish())
    };
    for (theirs, good) in [(sum(b"12345"), true), (sum(b"54321"), false), (None, false)] {
        let settings = Settings { checksum: Some(Algorithm::Adler32), ..Settings::default() };
        let (server, hand) = serving(settings);
        let (file, result, work) = begun(&server, &hand, "/data/new", creating());
        assert_eq!(work.fetch.checksum, Some(Algorithm::Adler32));
        // Out of order, as from several streams.
        work.write(3, b"45").unwrap();
        work.write(0, b"123").unwrap();
        work.finish.done(Ok(TransferResult { bytes: 5, checksum: theirs, verified: false }));
        match result.answer() {
            Answer::Value(_) => assert!(good),
            Answer::Error(error) => assert!(!good && error.kind == ChecksumError, "{}", error.text),
            other => panic!("{}", tell(&other)),
        }
        server.close(&file).done();
        assert_eq!(server.memory.content("/data/new").is_some(), good);
    }
}

#[test]
fn a_cancelled_copy_ends_and_leaves_no_file() {
    let premature = (Cancelled, "destination file prematurely closed".to_owned());
    for way in ["query", "close", "vanish"] {
        let (server, hand) = serving(Settings::default());
        let (file, result, work) = begun(&server, &hand, "/data/new", creating());
        work.write(0, b"123").unwrap();
        let parting = match way {
            "query" => {
                let cancel = FileOperation::Query { code: 64, argument: b"ofs.tpc cancel".to_vec() };
                server.on_file(&file, cancel).done();
                assert_eq!(server.on_file(&file, FileOperation::Sync).refusal(), premature);
                server.close(&file)
            }
            "close" => server.close(&file),
            _ => server.abandon(&file),
        };
        assert_eq!(result.refusal(), premature, "{way}");
        work.until_cancelled();
        assert_eq!(work.write(3, b"45").unwrap_err().0, Cancelled);
        assert!(server.memory.content("/data/new").is_some(), "it is released after the last write");
        work.done(5);
        parting.done();
        assert_eq!(server.memory.content("/data/new"), None, "{way}");
        assert_eq!(server.logical.status(), logical::LogicalStatus::default());
    }
}

#[test]
fn a_destination_without_a_copy_leaves_no_file() {
    let (server, _) = serving(Settings::default());
    for syncs in [0, 1] {
        let file = server.open_as(&client(), &format!("/data/new{PULL}"), creating()).file();
        for _ in 0..syncs {
            server.on_file(&file, FileOperation::Sync).done();
        }
        server.close(&file).done();
        assert_eq!(server.memory.content("/data/new"), None);
    }
}

#[test]
fn a_complete_copy_survives_a_disconnect_unless_posc_was_requested() {
    for (posc, stays) in [(false, true), (true, false)] {
        let (server, hand) = serving(Settings::default());
        let (file, result, work) = begun(&server, &hand, "/data/new", OpenRequest { posc, ..creating() });
        work.write(0, b"12345").unwrap();
        work.done(5);
        result.done();
        server.abandon(&file).done();
        assert_eq!(server.stat("/data/new").stat().posc_pending, !stays);
        server.after(601);
        assert_eq!(server.memory.content("/data/new").is_some(), stays);
    }
}

#[test]
fn a_crash_during_a_copy_leaves_no_file_that_looks_complete() {
    for how in stops() {
        let (server, hand) = serving(Settings::default());
        let (_file, _result, work) = begun(&server, &hand, "/data/new", creating());
        work.write(0, b"123").unwrap();
        let next = server.after_stop(how);
        if let Answer::Value(Value::Stat(stat)) = next.stat("/data/new").answer() {
            assert!(stat.posc_pending);
        }
        next.after(601);
        assert_eq!(next.memory.content("/data/new"), None);
    }
}

#[test]
fn another_copy_takes_over_an_unfinished_file() {
    let (server, hand) = serving(Settings::default());
    let (_file, _result, work) = begun(&server, &hand, "/data/new", creating());
    work.write(0, b"1234567").unwrap();
    let next = server.restarted();
    let hand = Arc::new(Hand::default());
    let parts = ThirdPartyParts {
        settings: Settings::default(),
        fetcher: hand.clone(),
        names: Arc::new(book()),
        observer: None,
    };
    next.logical.copy_for_others(parts);
    let other = at("bob", 8, "10.0.0.3");
    let file = next.open_as(&other, &format!("/data/new{PULL}"), replacing()).file();
    next.on_file(&file, FileOperation::Sync).done();
    let result = next.on_file(&file, FileOperation::Sync);
    let work = hand.take();
    work.write(0, b"12345").unwrap();
    work.done(5);
    result.done();
    next.close(&file).done();
    assert_eq!(next.memory.content("/data/new").as_deref(), Some(&b"12345"[..]));
}

#[test]
fn two_copies_never_write_one_destination() {
    let (server, hand) = serving(Settings::default());
    let (file, result, work) = begun(&server, &hand, "/nolock/new", creating());
    let other = at("bob", 8, "10.0.0.3");
    let second = server.open_as(&other, &format!("/nolock/new{PULL}"), replacing()).refusal();
    assert_eq!(second, (InProgress, "Unable to create /nolock/new; text file busy".into()));
    // Another writer is allowed, but then the copy must not succeed.
    let force = OpenRequest { posc: true, force: true, ..updating() };
    let writer = server.open_as(&other, "/nolock/new", force).file();
    server.write(&writer, 0, b"x").done();
    work.write(0, b"12345").unwrap();
    work.done(5);
    assert_eq!(result.refusal().0, FsError);
    server.close(&file).done();
    // Both wrote the file, so its content is neither that of the source nor that of the client.
    let spoiled = "Unable to close /nolock/new; a write by another client of this file failed".to_owned();
    assert_eq!(server.close(&writer).refusal(), (IoError, spoiled));
}

#[test]
fn the_number_of_running_copies_is_limited() {
    let (server, hand) = serving(Settings { jobs_max: 1, ..Settings::default() });
    let (first, result, work) = begun(&server, &hand, "/data/a", creating());
    let open = |name: &str| {
        let file = server.open_as(&client(), &format!("{name}{PULL}"), creating()).file();
        server.on_file(&file, FileOperation::Sync).done();
        let result = server.on_file(&file, FileOperation::Sync);
        assert!(is_later(&result));
        (file, result)
    };
    let (second, cancelled) = open("/data/b");
    let (third, last) = open("/data/c");
    assert!(hand.is_idle());
    server.close(&second).done();
    assert_eq!(cancelled.refusal().0, Cancelled);
    work.write(0, b"12345").unwrap();
    work.done(5);
    result.done();
    server.close(&first).done();
    let work = hand.take();
    assert_eq!(work.fetch.destination, "/data/c");
    work.write(0, b"12345").unwrap();
    work.done(5);
    last.done();
    server.close(&third).done();
}

#[test]
fn a_dropped_fetch_is_an_error() {
    let (server, hand) = serving(Settings::default());
    let (file, result, work) = begun(&server, &hand, "/data/new", creating());
    drop(work);
    assert_eq!(result.refusal().0, FsError);
    server.close(&file).done();
    assert_eq!(server.memory.content("/data/new"), None);
}

#[test]
fn a_full_disk_is_reported_as_such() {
    const ENOSPC: i32 = 28;
    let (server, hand) = serving(Settings::default());
    let (file, result, work) = begun(&server, &hand, "/data/new", creating());
    server.memory.faults().fail("write", Some(ENOSPC));
    let error = work.write(0, b"12345").unwrap_err();
    assert_eq!(error.0, NoSpace);
    work.finish.done(Err(Error::new(error.0, error.1)));
    assert_eq!(result.refusal().0, NoSpace);
    server.close(&file).done();
    assert_eq!(server.memory.content("/data/new"), None);
}
