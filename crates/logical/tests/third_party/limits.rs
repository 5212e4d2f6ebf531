//! Tests of limits: the duration of a copy, on a manual clock, and the requests of a single host.

use super::support::{Call, Client, Server, creating, reading};
use super::{Hand, Work, at, begun, serving};
use base::ErrorKind::FsError;
use logical::{HostLookup, ThirdPartyParts, ThirdPartySettings as Settings};
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};

#[test]
fn a_copy_without_progress_ends() {
    let (server, hand) = serving(Settings::default());
    let (file, result, work) = begun(&server, &hand, "/data/new", creating());
    server.after(100);
    work.write(0, b"123").unwrap();
    server.after(100);
    assert!(!work.cancelled.load(Ordering::SeqCst), "it made progress meanwhile");
    server.after(21);
    let text = "Unable to copy root://source:1095//theirs/f; nothing came for 120 seconds";
    assert_eq!(result.refusal(), (FsError, text.into()));
    work.until_cancelled();
    drop(work);
    server.close(&file).done();
    assert_eq!(server.memory.content("/data/new"), None);
}

/// Lets `minutes` pass, in each of which the source sends one byte.
fn trickle(server: &Server, work: &Work, minutes: u64) {
    for _ in 0..minutes {
        server.after(60);
        work.sink.moved(1);
    }
}

#[test]
fn a_copy_from_a_slow_source_ends() {
    let (server, hand) = serving(Settings::default());
    let (file, result, work) = begun(&server, &hand, "/data/new", creating());
    trickle(&server, &work, 29);
    // One more second for each 64 KiB received.
    work.sink.moved(90 * 64 * 1024);
    server.after(60);
    work.sink.moved(0);
    server.after(89);
    assert!(!work.cancelled.load(Ordering::SeqCst), "its bytes extend the time");
    server.after(1);
    let bytes = 29 + 90 * 64 * 1024;
    let why = format!("only {bytes} bytes came within 1890 seconds");
    assert_eq!(result.refusal(), (FsError, format!("Unable to copy root://source:1095//theirs/f; {why}")));
    work.until_cancelled();
    drop(work);
    server.close(&file).done();
    assert_eq!(server.memory.content("/data/new"), None);
}

#[test]
fn a_copy_ends_after_two_days() {
    const HOURS: u64 = 48;
    let (server, hand) = serving(Settings::default());
    let (file, result, work) = begun(&server, &hand, "/data/new", creating());
    let bytes = 1 << 50;
    work.sink.moved(bytes);
    for _ in 1..HOURS * 60 {
        server.after(60);
        work.sink.moved(0);
    }
    server.after(59);
    assert!(!work.cancelled.load(Ordering::SeqCst), "its rate is sufficient");
    server.after(1);
    let why = format!("only {bytes} bytes came within {} seconds", HOURS * 3600);
    assert_eq!(result.refusal(), (FsError, format!("Unable to copy root://source:1095//theirs/f; {why}")));
    work.until_cancelled();
    drop(work);
    server.close(&file).done();
    assert_eq!(server.memory.content("/data/new"), None);
}

/// A resolver that blocks on names that start with `slow` until it is opened.
#[derive(Default)]
struct SlowNames {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl HostLookup for SlowNames {
    fn addresses(&self, name: &str) -> Vec<IpAddr> {
        if name.starts_with("slow") {
            drop(self.opened.wait_while(self.is_open.lock().unwrap(), |is_open| !*is_open).unwrap());
        }
        Vec::new()
    }

    fn name(&self, _: IpAddr) -> Option<String> {
        None
    }
}

#[test]
fn slow_names_of_one_host_do_not_delay_other_hosts() {
    const SESSIONS: usize = 64;
    let server = Server::new();
    server.memory.put("/data/f", b"12345");
    let names = Arc::new(SlowNames::default());
    let (settings, fetcher) = (Settings::default(), Arc::new(Hand::default()));
    server.logical.copy_for_others(ThirdPartyParts {
        settings,
        fetcher,
        names: names.clone(),
        observer: None,
    });
    let grant = |address: &str, destination: &str, number: usize| {
        // Each client is a separate session.
        let client = Client::new(server.logical.clone(), at("alice", 7, address));
        let name = format!("/data/f?tpc.dst={destination}&tpc.key=k{address}.{number}&tpc.stage=copy");
        client.open(&name, reading())
    };
    let slow: Vec<_> = (0..SESSIONS).map(|number| grant("10.0.0.1", "slow", number)).collect();
    grant("10.0.0.2", "fast", 0).done();
    *names.is_open.lock().unwrap() = true;
    names.opened.notify_all();
    slow.into_iter().for_each(Call::done);
}
