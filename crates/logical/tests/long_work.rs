//! Tests of long work in steps: other work runs in between, and it ends when its client leaves.

#![allow(clippy::unwrap_used)] // a panic is the failure of a test

mod support;

use base::{CopyRange, ErrorKind};
use std::sync::Arc;
use storage::faulty::{FaultRule, FaultyCall as Asked, Gate, InjectedFault};
use storage::{STEP_BYTES_MAX, STEP_ITEMS_MAX};
use support::{Client, Server, caller, creating, path, reading, updating};
use vfs::{
    CloneRange, FileKind, FileOperation, OpenFile, OpenRequest, Operation, PrepareRequest, TargetList, Value,
};

/// Length of one range of a clone, and number of ranges of one request: the maxima of the protocol.
const RANGE_BYTES: u64 = 16 << 20;
const RANGES: usize = 1024;
const CLONES: usize = 32;

fn ranges(source: &Arc<dyn OpenFile>) -> FileOperation {
    let range =
        || CloneRange { source: source.clone(), range: CopyRange { from: 0, to: 0, length: RANGE_BYTES } };
    FileOperation::CloneFrom((0..RANGES).map(|_| range()).collect())
}

#[test]
fn clones_end_when_the_client_leaves_and_do_not_delay_others() {
    let (server, rules) = Server::with_rules();
    server.memory.put("/data/source", &vec![7; RANGE_BYTES as usize]);
    let greedy = caller("greedy", 2);
    let client = Client::new(server.logical.clone(), greedy.clone());
    let source = client.open("/data/source", reading()).file();
    let target = client.open("/data/target", creating()).file();
    let gate = Gate::new();
    let hang = rules.add(FaultRule::new(&[Asked::Clone], InjectedFault::Hang(gate.clone())));
    let clones: Vec<_> = (0..CLONES).map(|_| client.on_file(&target, ranges(&source))).collect();
    gate.wait_for(1);
    // Other clients open files, write, and look up names on the same disk.
    let file = server.open("/data/other", creating()).file();
    server.write(&file, 0, b"written").done();
    server.close(&file).done();
    assert_eq!(server.open("/data/other", updating()).opened().0.size_now(), Some(7));
    // Only the running step is completed, no matter how much was requested.
    rules.remove(hang);
    rules.add(FaultRule::new(&[Asked::Clone], InjectedFault::Panic).after(STEP_BYTES_MAX / RANGE_BYTES - 1));
    greedy.disconnect();
    gate.open();
    for clone in clones {
        assert_eq!(clone.error().kind, ErrorKind::Cancelled);
    }
}

#[test]
fn a_range_longer_than_a_step_is_copied_completely() {
    let (server, rules) = Server::with_rules();
    let length = STEP_BYTES_MAX as usize + 4321;
    let content: Vec<u8> = (0..length).map(|at| (at / 4099) as u8).collect();
    server.memory.put("/data/source", &content);
    let source = server.open("/data/source", reading()).file();
    let target = server.open("/data/target", creating()).file();
    let range = |source: &Arc<dyn OpenFile>, from, length, to| {
        let range = CopyRange { from, to, length };
        FileOperation::CloneFrom(vec![CloneRange { source: source.clone(), range }])
    };
    server.on_file(&target, range(&source, 0, length as u64, 0)).done();
    assert!(server.memory.content("/data/target").unwrap() == content);
    // A source that ends before the range is refused as a whole.
    let gate = rules.add(FaultRule::new(&[Asked::Clone], InjectedFault::Panic));
    let short = server.on_file(&target, range(&source, 1, length as u64, 0)).error();
    assert!(short.text.ends_with("invalid argument"), "{}", short.text);
    rules.remove(gate);
    drop(source);
    // Overlapping ranges receive the original bytes.
    let (shift, mut expected) = (1 << 20, content.clone());
    for (from, to) in [(0, shift), (shift, 0)] {
        let moved = length - shift;
        server.on_file(&target, range(&target, from as u64, moved as u64, to as u64)).done();
        expected.copy_within(from..from + moved, to);
        assert!(server.memory.content("/data/target").unwrap() == expected, "{from} to {to}");
    }
}

#[test]
fn a_new_file_created_as_a_copy_is_filled_in_steps_or_removed() {
    let (server, rules) = Server::with_rules();
    let content = vec![9; STEP_BYTES_MAX as usize + 5];
    server.memory.put("/data/source", &content);
    let source = server.open("/data/source", reading()).file();
    let copy = |posc| OpenRequest { duplicate_of: Some(source.clone()), posc, stat: true, ..creating() };
    for posc in [false, true] {
        let name = format!("/data/copy{posc}");
        let (file, stat) = server.open(&name, copy(posc)).opened();
        assert_eq!(stat.unwrap().size, content.len() as u64);
        server.close(&file).done();
        assert!(server.memory.content(&name).unwrap() == content);
        // The client leaves during the first step: there is no second step, and the file is
        // removed.
        let name = format!("/data/left{posc}");
        let leaving = caller("leaving", 3);
        let gate = Gate::new();
        let hang = rules.add(FaultRule::new(&[Asked::Clone], InjectedFault::Hang(gate.clone())));
        let open = server.open_as(&leaving, &name, copy(posc));
        gate.wait_for(1);
        rules.remove(hang);
        let second = rules.add(FaultRule::new(&[Asked::Clone], InjectedFault::Panic));
        leaving.disconnect();
        gate.open();
        assert_eq!(open.error().kind, ErrorKind::Cancelled);
        rules.remove(second);
        assert!(server.memory.content(&name).is_none());
        server.open(&name, creating()).done();
    }
}

/// Maximum number of lines in a request.
const PATHS: usize = 1 << 20;

fn million(line: &str) -> TargetList {
    TargetList::parse(format!("{line}\n").repeat(PATHS).as_bytes(), "Stating").unwrap().unwrap()
}

/// The event loop that starts a request with a long list examines none of it: the answer comes from
/// the pool, as does the error for an invalid path.
#[test]
fn a_long_list_is_not_processed_on_an_event_loop() {
    let (server, _) = Server::with_rules();
    let thousands = "/data/x\n".repeat(4000) + "relative";
    let list = || TargetList::parse(thousands.as_bytes(), "Preparing").unwrap().unwrap();
    let prepare = |request| server.call(Operation::Prepare(request, list()));
    let fresh = PrepareRequest { fresh: true, ..PrepareRequest::default() };
    for call in [prepare(PrepareRequest::default()), prepare(fresh), server.call(Operation::StatMany(list()))]
    {
        assert!(!call.was_on_the_spot());
        assert_eq!(call.error().text, "Preparing relative path 'relative' is disallowed.");
    }
}

#[test]
fn a_million_paths_are_answered_with_one_byte_each() {
    let (server, _) = Server::with_rules();
    let Value::BriefStats(stats) = server.call(Operation::StatMany(million("/data"))).value() else {
        panic!()
    };
    assert_eq!((stats.len(), size_of_val(&stats[..])), (PATHS, PATHS));
    assert!(stats.iter().all(|stat| stat.kind() == FileKind::Directory));
}

#[test]
fn lists_end_when_the_client_leaves_and_do_not_delay_others() {
    let (server, rules) = Server::with_rules();
    let greedy = caller("greedy", 2);
    let client = Client::new(server.logical.clone(), greedy.clone());
    server.memory.put("/data/f", b"1");
    server.memory.set_cold(true);
    let gate = Gate::new();
    let hang =
        rules.add(FaultRule::new(&[Asked::Stat], InjectedFault::Hang(gate.clone())).below(&path("/data/f")));
    let calls: Vec<_> = (0..8).map(|_| client.call(Operation::StatMany(million("/data/f")))).collect();
    gate.wait_for(1);
    assert_eq!(server.stat("/data/x").stat().size, 0);
    rules.remove(hang);
    rules.add(
        FaultRule::new(&[Asked::Stat], InjectedFault::Panic)
            .below(&path("/data/f"))
            .after(STEP_ITEMS_MAX as u64),
    );
    greedy.disconnect();
    gate.open();
    for call in calls {
        assert_eq!(call.error().kind, ErrorKind::Cancelled);
    }
}

/// Renewing access times is a hint: it continues in steps even if the client leaves at once.
#[test]
fn access_times_are_renewed_after_the_client_left() {
    let (server, _) = Server::with_rules();
    server.memory.put("/data/f", b"1");
    let before = server.stat("/data/f").stat().accessed;
    server.after(100);
    let leaving = caller("leaving", 2);
    let client = Client::new(server.logical.clone(), leaving.clone());
    let list = TargetList::parse(("/data/x\n".repeat(4000) + "/data/f").as_bytes(), "Preparing");
    let request = PrepareRequest { fresh: true, ..PrepareRequest::default() };
    client.call(Operation::Prepare(request, list.unwrap().unwrap())).done();
    leaving.disconnect();
    while server.stat("/data/f").stat().accessed != before + 100 {
        std::thread::yield_now();
    }
}
