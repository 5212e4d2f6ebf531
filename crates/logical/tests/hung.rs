//! Tests of a hung file system to which names of another one lead: only requests for it wait.

#![allow(clippy::unwrap_used)] // a panic is the failure of a test

mod support;

use base::ErrorKind;
use digest::Algorithm;
use logical::PathPresence;
use std::collections::HashSet;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use storage::faulty::{FaultRule, FaultyCall as Asked, Gate, InjectedFault};
use storage::{Backend, Faulty, LOOKS_MAX, Pool, QUEUED_JOBS_MAX};
use support::memory::POOL_THREADS;
use support::{Call, PATIENCE, Server, creating, path, reading, replacing, target, targets, updating};
use vfs::{Answer, AttributeWork, ListDetail, LocateOptions, Operation, PrepareRequest, Value};

const EVERYTHING: [Asked; 14] = [
    Asked::Open,
    Asked::Stat,
    Asked::List,
    Asked::ListNext,
    Asked::MakeDirectory,
    Asked::RemoveDirectory,
    Asked::RemoveFile,
    Asked::Rename,
    Asked::SetMode,
    Asked::RenewAccess,
    Asked::Truncate,
    Asked::Attribute,
    Asked::Usage,
    Asked::Read,
];
const STAT: ListDetail = ListDetail { stat: true, checksum: false, online: false };
/// Threads of the hung file system.
const HUNG_THREADS: usize = 2;
/// Requests that are answered by long work, for which a pool has half of its threads.
const LONG: [&str; 2] = ["stat of many", "renewing"];
/// More requests than there are threads.
const MANY: usize = 2 * POOL_THREADS + HUNG_THREADS;

/// Returns a server whose `/data/hung` leads to a file system that hangs until the gate is opened,
/// and where every call would block.
fn server(threads: usize) -> (Server, Arc<Gate>) {
    let gate = Gate::new();
    let hung = path("/data/hung");
    let server = Server::over(
        |config| config.checksums.types = vec![Algorithm::Adler32],
        |memory| {
            let faulty = Faulty::new(memory).with_link(&hung, Pool::new("hung", threads));
            faulty.rules().add(FaultRule::new(&EVERYTHING, InjectedFault::Hang(gate.clone())).below(&hung));
            Arc::new(faulty) as Arc<dyn Backend>
        },
    );
    for number in 0..MANY {
        server.memory.put(&format!("/data/hung/{number}"), b"1");
    }
    server.memory.put("/data/well/x", b"1");
    server.memory.set_cold(true);
    (server, gate)
}

/// A request for the file with this number.
type Question = fn(&Server, usize) -> Call;

fn name(number: usize) -> String {
    format!("/data/hung/{number}")
}

const QUESTIONS: [(&str, Question); 17] = [
    ("stat", |server, n| server.stat(&name(n))),
    ("stat of many", |server, n| server.call(Operation::StatMany(targets(&["/data/well/x", &name(n)])))),
    ("locate", |server, n| server.call(Operation::Locate(Some(target(&name(n))), LocateOptions::default()))),
    ("open for reading", |server, n| server.open(&name(n), reading())),
    ("open for writing", |server, n| server.open(&name(n), updating())),
    ("replacing", |server, n| server.open(&name(n), replacing())),
    ("creating", |server, n| server.open(&format!("/data/hung/new{n}"), creating())),
    ("removing", |server, n| server.call(Operation::Remove(target(&name(n))))),
    ("renaming", |server, n| {
        server.call(Operation::rename(target(&name(n)), target(&format!("/data/well/{n}"))))
    }),
    ("mode", |server, n| server.call(Operation::ChangeMode { target: target(&name(n)), mode: 0o600 })),
    ("truncate", |server, n| server.call(Operation::Truncate { target: target(&name(n)), size: 0 })),
    ("attributes", |server, n| {
        server.call(Operation::Attributes(target(&name(n)), AttributeWork::List { values: true }))
    }),
    ("checksum", |server, n| server.call(Operation::Checksum(target(&name(n))))),
    ("space", |server, n| server.call(Operation::StatSpace(target(&name(n))))),
    ("what is known", |server, n| server.call(Operation::QueryAttributes(target(&name(n))))),
    ("listing", |server, n| server.call(Operation::List(target(&name(n)), STAT))),
    ("renewing", |server, n| {
        let request = PrepareRequest { fresh: true, ..PrepareRequest::default() };
        server.call(Operation::Prepare(request, targets(&[&name(n)])))
    }),
];

#[test]
fn requests_for_a_hung_file_system_do_not_delay_others() {
    for (what, question) in QUESTIONS {
        let (server, gate) = server(HUNG_THREADS);
        let asked: Vec<Call> = (0..MANY).map(|number| question(&server, number)).collect();
        let hanging = if LONG.contains(&what) { HUNG_THREADS / 2 } else { HUNG_THREADS };
        gate.wait_for(hanging);
        assert_eq!(server.stat("/data/well/x").stat().size, 1, "{what}");
        server.open("/data/well/new", creating()).file();
        assert_eq!(gate.hanging(), hanging, "{what}: no thread but its own is there");
        gate.open();
        for call in asked {
            if let Answer::Error(error) = call.answer() {
                // Listing a file is an error.
                assert_eq!(what, "listing", "{error:?}");
            }
        }
    }
}

#[test]
fn presence_of_names_on_another_file_system_is_reported() {
    let (server, gate) = server(HUNG_THREADS);
    let (tell, told) = mpsc::channel();
    let names = (0..MANY).map(|number| (path(&name(number)), number));
    let sought: Vec<_> =
        names.chain([(path("/data/well/x"), MANY), (path("/data/none"), MANY + 1)]).collect();
    server.logical.look(sought, &move |looked| tell.send(looked).unwrap());
    gate.wait_for(1);
    let mut first: Vec<_> = told
        .recv_timeout(PATIENCE)
        .unwrap()
        .into_iter()
        .map(|(_, number, presence)| (number, presence))
        .collect();
    first.sort_by_key(|(number, _)| *number);
    assert_eq!(first, [(MANY, PathPresence::Here { pending: false }), (MANY + 1, PathPresence::NotHere)]);
    gate.open();
    let hung: HashSet<_> = told.iter().flatten().map(|(_, number, _)| number).collect();
    assert_eq!(hung, (0..MANY).collect());
}

#[test]
fn lookups_on_a_hung_disk_do_not_use_up_those_of_others() {
    let (server, gate) = server(HUNG_THREADS);
    let (tell, told) = mpsc::channel();
    let look = |sought: Vec<_>| {
        let tell = tell.clone();
        server.logical.look(sought, &move |looked| tell.send(looked).unwrap());
    };
    let all = LOOKS_MAX + LOOKS_MAX / 2;
    look((0..all).map(|number| (path(&name(number)), number)).collect());
    // Lookups beyond the limit are refused at once.
    let mut refused = HashSet::new();
    while refused.len() < all - LOOKS_MAX {
        for (_, number, presence) in told.recv_timeout(PATIENCE).unwrap() {
            assert_eq!(presence, PathPresence::Overloaded);
            assert!(refused.insert(number));
        }
    }
    look(vec![(path("/data/well/x"), all)]);
    let looked = loop {
        let looked = told.recv_timeout(PATIENCE).unwrap();
        match looked.first() {
            Some((_, number, presence)) if *number == all => break *presence,
            _ => refused.extend(looked.into_iter().map(|(_, number, _)| number)),
        }
    };
    assert_eq!(looked, PathPresence::Here { pending: false });
    gate.open();
    // The permits are released with the answers.
    let mut rest = all - refused.len();
    while rest > 0 {
        rest -= told.recv_timeout(PATIENCE).unwrap().len();
    }
    look(vec![(path(&name(0)), 0)]);
    assert_eq!(told.recv_timeout(PATIENCE).unwrap()[0].2, PathPresence::Here { pending: false });
}

/// Pages have 512 names.
const ENTRIES: usize = 1100;

fn list(server: &Server, directory: &str, detail: ListDetail) -> Call {
    server.call(Operation::List(target(directory), detail))
}

/// Returns all names of a listing, and the number of entries with a status.
fn read(server: &Server, call: Call) -> (HashSet<Vec<u8>>, usize) {
    let (mut names, mut described) = (HashSet::new(), 0);
    let mut next = Some(call);
    while let Some(call) = next.take() {
        let Value::Listing { entries, rest } = call.value() else { panic!("no listing") };
        for entry in entries.iter() {
            assert!(names.insert(entry.name.clone()), "reported twice");
            described += usize::from(entry.stat.is_some());
        }
        next = rest.map(|rest| server.call(Operation::ListMore(rest)));
    }
    (names, described)
}

#[test]
fn listings_wait_only_for_names_on_the_hung_file_system() {
    let (server, gate) = server(16);
    for number in 0..ENTRIES {
        server.memory.put(&format!("/data/{number:04}"), b"1");
    }
    let first = list(&server, "/data", STAT);
    gate.wait_for(1);
    assert_eq!(read(&server, list(&server, "/data/well", STAT)).1, 1);
    // Listing only names does not query the targets.
    let plain = ListDetail { stat: false, checksum: false, online: false };
    let all = ENTRIES + 3; // with `x`, `well` and `hung`
    assert_eq!(read(&server, list(&server, "/data", plain)).0.len(), all);
    // The number of concurrent hung readings is limited, independent of duration and number of
    // requests.
    let mut others = Vec::new();
    for second in 0..20 {
        others.push(list(&server, "/data", STAT));
        server.clock.advance(Duration::from_secs(1));
        server.logical.tick();
        gate.wait_for((second + 2).min(4));
    }
    server.settle();
    assert_eq!(gate.hanging(), 4);
    gate.open();
    for call in others.into_iter().chain([first]) {
        let (names, described) = read(&server, call);
        assert_eq!((names.len(), described), (all, all));
    }
    while server.logical.status().scans > 0 {
        std::thread::yield_now();
    }
}

/// A request that moves to a file system whose pool is full is answered with the reason.
#[test]
fn moving_to_a_full_pool_answers_that_the_server_is_overloaded() {
    let (gate, pool, hung) = (Gate::new(), Pool::new("hung", 1), path("/data/hung"));
    let server = Server::over(
        |_| {},
        |memory| {
            let faulty = Faulty::new(memory).with_link(&hung, pool.clone());
            faulty
                .rules()
                .add(FaultRule::new(&[Asked::Stat], InjectedFault::Hang(gate.clone())).below(&hung));
            Arc::new(faulty) as Arc<dyn Backend>
        },
    );
    server.memory.put("/data/hung/1", b"1");
    let first = server.stat("/data/hung/1");
    gate.wait_for(1);
    while pool.run(base::Owner::SERVER, Box::new(|| {})).is_ok() {}
    let many = Operation::StatMany(targets(&["/data/x", "/data/hung/1"]));
    for asked in [server.stat("/data/hung/1"), server.call(many), list(&server, "/data", STAT)] {
        assert_eq!(asked.error().kind, ErrorKind::Overloaded);
    }
    gate.open();
    first.stat();
}

/// The pool of a file system is full. A close or disconnect still does not wait for it, because
/// both happen on event loops.
#[test]
fn releasing_a_file_never_waits_for_a_full_pool() {
    let (gate, pool) = (Gate::new(), Pool::new("hung", 1));
    let hung = path("/data/hung");
    let server = Server::over(
        |_| {},
        |memory| {
            let faulty = Faulty::new(memory).with_link(&hung, pool.clone());
            faulty.rules().add(
                FaultRule::new(&[Asked::Stat], InjectedFault::Hang(gate.clone()))
                    .below(&path("/data/hung/1")),
            );
            Arc::new(faulty) as Arc<dyn Backend>
        },
    );
    server.memory.put("/data/hung/1", b"1");
    let persist = || vfs::OpenRequest { posc: true, ..creating() };
    let files = ["/data/hung/closed", "/data/hung/left"].map(|name| server.open(name, persist()).file());
    let first = server.stat("/data/hung/1");
    gate.wait_for(1);
    while pool.run(base::Owner::SERVER, Box::new(|| {})).is_ok() {}
    assert_eq!(pool.queued(), QUEUED_JOBS_MAX);
    let closed = server.close(&files[0]);
    drop(files);
    assert!(!closed.was_on_the_spot());
    assert_eq!(server.logical.status().open_files, 2, "no work ran on this thread");
    gate.open();
    closed.done();
    first.stat();
    while server.logical.status().open_files > 0 {
        std::thread::yield_now();
    }
}

/// A directory stays usable for others while a file in it is being created on a hung disk.
#[test]
fn a_directory_can_be_changed_while_a_name_in_it_hangs() {
    let (server, gate) = server(HUNG_THREADS);
    let creator = server.open("/data/hung/new", creating());
    gate.wait_for(1);
    server.call(Operation::ChangeMode { target: target("/data"), mode: 0o700 }).done();
    gate.open();
    creator.file();
}
