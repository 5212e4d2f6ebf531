//! Tests of the list of unfinished files at and below a path: it is complete or states what is
//! missing, and is collected in bounded steps as long as it is needed.

#![allow(clippy::unwrap_used)]

mod support;

use base::{ErrorKind, LogicalPath, Owner};
use logical::{UnfinishedState, WalkLimit, WalkLimits};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use storage::faulty::{FaultRule, FaultyCall as Asked, Gate, InjectedFault};
use storage::{Backend, Faulty, Pool, STEP_ITEMS_MAX};
use support::{ListAsker, PATIENCE, Server, creating, list_within, listed, path, posc};

const DENIED: i32 = 13;
const BROKEN: i32 = 5;
const MISSING: i32 = 2;

fn put_marked(server: &Server, name: &str) {
    server.memory.put_with_mode(name, b"part", 0o1644);
}

fn names(list: &logical::UnfinishedList) -> Vec<String> {
    list.files.iter().map(|one| one.path.text().into_owned()).collect()
}

#[test]
fn unreadable_entries_are_listed_with_the_reason() {
    let (server, rules) = Server::with_rules();
    for name in ["/data/a/f", "/data/closed/f", "/data/broken/f", "/data/odd/f", "/data/z/f"] {
        put_marked(&server, name);
    }
    let error = |call, errno, below| {
        rules.add(FaultRule::new(&[call], InjectedFault::Error(errno)).below(&path(below)))
    };
    error(Asked::List, DENIED, "/data/closed");
    error(Asked::ListNext, BROKEN, "/data/broken");
    error(Asked::Stat, BROKEN, "/data/odd");
    // Removed meanwhile, so it contains no files.
    put_marked(&server, "/data/gone/f");
    error(Asked::ListNext, MISSING, "/data/gone");
    let list = list_within(&server, "/data", WalkLimits::default()).unwrap();
    assert_eq!(names(&list), ["/data/a/f", "/data/z/f"]);
    let mut unreadable: Vec<_> =
        list.unreadable.iter().map(|one| format!("{}: {}", one.path.text(), one.reason)).collect();
    unreadable.sort();
    let expected = [
        "/data/broken: Input/output error (os error 5)",
        "/data/closed: Permission denied (os error 13)",
        "/data/odd/f: Input/output error (os error 5)",
    ];
    assert_eq!(unreadable, expected);
    assert_eq!(list.limit, None);
    let limits = WalkLimits { unreadable: 1, ..WalkLimits::default() };
    let list = list_within(&server, "/data", limits).unwrap();
    assert_eq!((list.unreadable.len(), list.more_unreadable), (1, 2));
    // The path itself may also be unreadable.
    let missing = list_within(&server, "/data/missing", WalkLimits::default()).unwrap();
    assert_eq!(missing.unreadable[0].reason, "No such file or directory (os error 2)");
    let closed = list_within(&server, "/data/closed", WalkLimits::default()).unwrap();
    assert_eq!(closed.unreadable[0].path, path("/data/closed"));
}

#[test]
fn a_path_outside_of_the_exports_is_refused() {
    let server = Server::new();
    put_marked(&server, "/elsewhere/f");
    for outside in ["/", "/elsewhere", "/elsewhere/f", "/data2"] {
        let error = list_within(&server, outside, WalkLimits::default()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotAuthorized);
        let text = format!(
            "Unable to list {outside}; it is outside of the exports of this server: /nolock, /data, /ro"
        );
        assert_eq!(error.text, text);
    }
    put_marked(&server, "/data/f");
    assert_eq!(listed(&server, "/data/").len(), 1);
}

#[test]
fn a_list_contains_the_limit_at_which_it_stopped() {
    let server = Server::new();
    for number in 0..4 {
        put_marked(&server, &format!("/data/d{number}/f"));
    }
    // Four directories with a file each, and `/data/x`.
    let all = WalkLimits { names: 9, directory_bytes: 4 * (64 + 8), files: 4, unreadable: 0 };
    assert_eq!(list_within(&server, "/data", all).unwrap().limit, None);
    let limited = [
        (WalkLimits { names: 8, ..all }, WalkLimit::Names(8), 3),
        (
            WalkLimits { directory_bytes: all.directory_bytes - 1, ..all },
            WalkLimit::DirectoryBytes(all.directory_bytes - 1),
            0,
        ),
        (WalkLimits { files: 3, ..all }, WalkLimit::Files(3), 3),
    ];
    for (limits, limit, found) in limited {
        let list = list_within(&server, "/data", limits).unwrap();
        assert_eq!((list.limit, list.files.len()), (Some(limit), found));
    }
}

#[test]
fn files_with_and_without_a_record_are_listed_once_in_order() {
    let server = Server::new();
    put_marked(&server, "/data/b");
    server.memory.put("/data/c/x", b"");
    for name in ["/data/a", "/data/c/d", "/nolock/e"] {
        let file = server.open(name, posc(creating())).file();
        server.abandon(&file).done();
    }
    let list = listed(&server, "/data");
    let states: Vec<_> = list.iter().map(|one| (one.path.text(), one.state.clone())).collect();
    let held = UnfinishedState::Held { seconds: 600 };
    let expected = [
        ("/data/a".into(), held.clone()),
        ("/data/b".into(), UnfinishedState::Unknown),
        ("/data/c/d".into(), held),
    ];
    assert_eq!(states, expected);
}

#[test]
fn a_walk_that_is_no_longer_needed_ends_after_a_step() {
    let (server, rules) = Server::with_rules();
    for number in 0..4 * STEP_ITEMS_MAX {
        server.memory.put(&format!("/data/many/{number:05}"), b"");
    }
    let gate = Gate::new();
    // The first call is for the directory itself.
    let stats = FaultRule::new(&[Asked::Stat], InjectedFault::Hang(gate.clone())).below(&path("/data/many"));
    rules.add(stats.after(1));
    let (list, listed) = channel();
    let asker = ListAsker { list, has_left: Arc::default() };
    let has_left = asker.has_left.clone();
    server.logical.list_unfinished(&path("/data/many"), WalkLimits::default(), asker);
    gate.wait_for(1);
    has_left.store(true, Ordering::SeqCst);
    let before = server.memory.faults().calls("stat");
    gate.open();
    assert!(matches!(listed.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected)), "no list is sent");
    let looked_at = server.memory.faults().calls("stat") - before;
    assert!(looked_at <= STEP_ITEMS_MAX, "{looked_at}");
}

/// Checks walks over a hung disk, which `add` adds to the storage: it delays only its own threads.
fn check_walks_over_a_hung_disk(add: impl FnOnce(Faulty, &LogicalPath, Arc<Pool>) -> Faulty) {
    let (gate, pool, hung) = (Gate::new(), Pool::new("hung", 1), path("/data/hung"));
    let server = Server::over(
        |_| {},
        |memory| {
            let faulty = add(Faulty::new(memory), &hung, pool.clone());
            faulty
                .rules()
                .add(FaultRule::new(&[Asked::Stat], InjectedFault::Hang(gate.clone())).below(&hung));
            Arc::new(faulty) as Arc<dyn Backend>
        },
    );
    for name in ["/data/a", "/data/hung/f", "/data/z"] {
        put_marked(&server, name);
    }
    let lists: Vec<_> = (0..2 * support::memory::POOL_THREADS)
        .map(|_| {
            let (list, listed) = channel();
            let asker = ListAsker { list, has_left: Arc::default() };
            server.logical.list_unfinished(&path("/data"), WalkLimits::default(), asker);
            listed
        })
        .collect();
    gate.wait_for(1);
    let own = server.logical.backend().pool(&path("/data/x"));
    let (done, is_done) = channel();
    assert!(own.run(Owner::SERVER, Box::new(move || done.send(()).unwrap())).is_ok());
    is_done.recv_timeout(PATIENCE).unwrap();
    server.stat("/data/x").stat();
    gate.open();
    for listed in lists {
        assert_eq!(
            names(&listed.recv_timeout(PATIENCE).unwrap().unwrap()),
            ["/data/a", "/data/hung/f", "/data/z"]
        );
    }
}

#[test]
fn a_walk_waits_for_a_disk_in_the_pool_of_that_disk() {
    check_walks_over_a_hung_disk(Faulty::with_link);
    check_walks_over_a_hung_disk(Faulty::with_pool);
}
