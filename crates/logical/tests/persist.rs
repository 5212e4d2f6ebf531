//! Tests of persist on successful close: marks, takeover, hold time, restarts, and a crash at every
//! step.

#![allow(clippy::unwrap_used)]

mod support;

use base::ErrorKind::*;
use logical::config::{Durability, PersistMode};
use std::sync::Arc;
use support::{Server, caller, creating, is_whole, posc, reading, replacing, stops, target, updating, waits};
use vfs::{Answer, FileOperation, OpenFile, OpenRequest, Operation};

const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;

#[test]
fn a_file_is_marked_until_its_creator_closes_it() {
    for (name, request) in [
        ("/nolock/a/new", posc(OpenRequest { make_path: true, ..creating() })),
        ("/nolock/replaced", posc(replacing())),
        ("/nolock/cgi?ofs.posc=1", OpenRequest { stat: true, ..creating() }),
    ] {
        let server = Server::new();
        server.memory.put("/nolock/replaced", b"old content");
        let (file, stat) = server.open(name, request).opened();
        let stat = stat.unwrap();
        assert_eq!((stat.posc_pending, stat.mode, stat.size), (true, 0o1644, 0), "{name}");
        server.write(&file, 0, b"new").done();
        let name = name.split('?').next().unwrap();
        assert!(!is_whole(&server, name));
        let base = name.rsplit('/').next().unwrap();
        let text = format!("File {base} is being created; estimated time to completion 1 minute");
        assert_eq!(waits(&server, name, reading()), (60, text));
        server.close(&file).done();
        assert!(is_whole(&server, name));
        assert_eq!(server.memory.mode(name), Some(0o644));
        assert_eq!(server.memory.content(name).as_deref(), Some(&b"new"[..]));
        server.open(name, reading()).done();
        assert_eq!(server.logical.status().pending_files, 0);
    }
}

#[test]
fn clients_that_may_open_a_pending_file() {
    let server = Server::new();
    let file = server.open("/data/f", posc(creating())).file();
    let other = caller("bob", 2);
    let force = |request| OpenRequest { force: true, ..request };
    let locked = server.open_as(&other, "/data/f", reading()).refusal();
    assert_eq!(locked, (FileLocked, "Input file /data/f is already opened by 1 writer; open denied.".into()));
    assert_eq!(waits(&server, "/data/f", force(reading())).0, 60);
    let busy = server.open_as(&other, "/data/f", force(updating())).refusal();
    let text =
        "Unable to access /data/f; text file busy\nAdditional context: ofs_open: posc mode initiation failed";
    assert_eq!(busy, (InProgress, text.into()));
    let exists = server.open_as(&other, "/data/f", force(creating())).refusal();
    assert_eq!(exists, (ItExists, "Unable to create /data/f; file exists".into()));
    let exists = server.open_as(&other, "/data/f", force(posc(creating()))).refusal();
    assert_eq!(exists, (ItExists, "Unable to create /data/f; file exists".into()));
    // Allowed: the same client, and any client that requests persist on close too.
    let again = server.open("/data/f", force(updating())).file();
    let taken = server.open_as(&other, "/data/f", force(posc(replacing()))).file();
    server.write(&taken, 0, b"theirs").done();
    server.close(&file).done();
    server.close(&again).done();
    assert!(!is_whole(&server, "/data/f"), "the client that took it over still writes");
    server.close(&taken).done();
    assert!(is_whole(&server, "/data/f"));
}

#[test]
fn only_the_close_of_the_handle_that_took_over_counts() {
    let server = Server::new();
    let lost = server.open("/nolock/f", posc(creating())).file();
    let back = server.open("/nolock/f", posc(updating())).file();
    server.write(&back, 0, b"all").done();
    server.close(&back).done();
    assert!(is_whole(&server, "/nolock/f"));
    server.abandon(&lost).done();
    server.after(10_000);
    assert_eq!(server.memory.content("/nolock/f").as_deref(), Some(&b"all"[..]));
}

#[test]
fn a_disconnected_client_has_the_hold_time_to_come_back() {
    let server = Server::new();
    let file = server.open("/data/f", posc(creating())).file();
    server.write(&file, 0, b"hello").done();
    server.abandon(&file).done();
    server.after(599);
    assert_eq!(waits(&server, "/data/f", reading()).0, 60);
    assert_eq!(server.open_as(&caller("bob", 2), "/data/f", updating()).error().kind, InProgress);
    let (file, stat) = server.open("/data/f", OpenRequest { stat: true, ..updating() }).opened();
    assert_eq!(stat.map(|stat| (stat.size, stat.posc_pending)), Some((5, true)));
    server.after(10_000);
    server.write(&file, 5, b" world").done();
    server.close(&file).done();
    assert!(is_whole(&server, "/data/f"));
    assert_eq!(server.memory.content("/data/f").as_deref(), Some(&b"hello world"[..]));
}

#[test]
fn the_file_is_removed_after_the_hold_time_even_over_a_restart() {
    for restart in [false, true] {
        let mut server = Server::new();
        let file = server.open("/data/f", posc(creating())).file();
        server.write(&file, 0, b"hello").done();
        if restart {
            server.memory.faults().stop_after(0);
            server = server.restarted();
        } else {
            server.abandon(&file).done();
        }
        server.after(599);
        assert!(!is_whole(&server, "/data/f"));
        server.after(2);
        assert_eq!(server.memory.content("/data/f"), None);
        assert_eq!(server.logical.status().pending_files, 0);
        assert_eq!(server.logical.totals().undone_files, 1);
        server.open("/data/f", posc(creating())).done();
    }
}

#[test]
fn after_a_restart_the_creator_resumes_and_others_may_take_over() {
    for who in [caller("alice", 1), caller("bob", 2)] {
        let server = Server::new();
        let file = server.open("/data/f", posc(OpenRequest { mode: 0o640, ..creating() })).file();
        server.write(&file, 0, b"hello").done();
        server.memory.faults().stop_after(0);
        let server = server.restarted();
        let resumed = server.open_as(&who, "/data/f", posc(updating())).file();
        server.write(&resumed, 5, b"!").done();
        server.close(&resumed).done();
        assert_eq!(server.memory.mode("/data/f"), Some(0o640));
        let server = server.restarted();
        server.after(10_000);
        assert_eq!(server.memory.content("/data/f").as_deref(), Some(&b"hello!"[..]));
    }
}

#[test]
fn a_failed_write_or_a_known_bad_one_removes_the_file() {
    type Parting = fn(&Server, &Arc<dyn OpenFile>);
    let write_fails: Parting = |server, file| {
        server.memory.faults().fail("write", Some(ENOSPC));
        assert_eq!(server.write(file, 0, b"x").error().kind, NoSpace);
        server.memory.faults().fail("write", None);
    };
    let close: Parting = |server, file| server.close(file).done();
    let close_failed: Parting =
        |server, file| server.on_file(file, FileOperation::Close { failed: true }).done();
    let abandon: Parting = |server, file| server.abandon(file).done();
    let nothing: Parting = |_, _| {};
    for (before, parting) in [(write_fails, close), (write_fails, abandon), (nothing, close_failed)] {
        let server = Server::new();
        let file = server.open("/data/f", posc(creating())).file();
        before(&server, &file);
        parting(&server, &file);
        assert_eq!(server.memory.content("/data/f"), None);
        assert_eq!(server.logical.status().pending_files, 0);
    }
}

#[test]
fn without_a_hold_time_a_lost_file_is_removed_at_once() {
    let server = Server::with(|config| config.persist.hold = std::time::Duration::ZERO);
    let file = server.open("/data/f", posc(creating())).file();
    server.abandon(&file).done();
    assert_eq!(server.memory.content("/data/f"), None);
}

#[test]
fn the_mode_selects_the_files_that_persist_on_close() {
    for (mode, asked, request, want) in [
        (PersistMode::Auto, false, creating(), true),
        (PersistMode::Auto, false, replacing(), true),
        (PersistMode::Manual, false, creating(), false),
        (PersistMode::Manual, true, creating(), true),
        (PersistMode::Manual, true, updating(), false),
        (PersistMode::Off, true, creating(), false),
    ] {
        let server = Server::with(|config| config.persist.mode = mode);
        let existing = !request.new && !request.delete;
        if existing {
            server.memory.put("/data/f", b"whole");
        }
        let file = server.open("/data/f", OpenRequest { posc: asked, ..request }).file();
        assert_eq!(!is_whole(&server, "/data/f"), want, "{mode:?} {asked}");
        server.abandon(&file).done();
        server.after(601);
        assert_eq!(server.memory.content("/data/f").is_none(), want, "{mode:?} {asked}");
    }
}

#[test]
fn names_may_change_while_a_file_is_pending() {
    let rename = |from: &str, to: &str| Operation::rename(target(from), target(to));
    for restart in [false, true] {
        let mut server = Server::new();
        let file = server.open("/data/d/f", posc(OpenRequest { make_path: true, ..creating() })).file();
        server.call(rename("/data/d", "/data/e")).done();
        server.call(rename("/data/e/f", "/data/g")).done();
        assert!(!is_whole(&server, "/data/g"));
        if restart {
            server = server.restarted();
            server.after(601);
            assert_eq!(server.memory.content("/data/g"), None);
        } else {
            server.close(&file).done();
            assert!(is_whole(&server, "/data/g"));
        }
    }
    // A complete file renamed over an unfinished one is not unfinished.
    let server = Server::new();
    server.memory.put("/data/whole", b"whole");
    let file = server.open("/data/f", posc(creating())).file();
    server.call(rename("/data/whole", "/data/f")).done();
    server.abandon(&file).done();
    server.after(601);
    assert_eq!(server.memory.content("/data/f").as_deref(), Some(&b"whole"[..]));
}

/// The name must not change between the reservation of a file and its creation. Otherwise the
/// result for the earlier file would count as that for the new one.
#[test]
fn a_name_is_not_changed_while_a_file_is_being_created() {
    let rename = |from: &str, to: &str| Operation::rename(target(from), target(to));
    let changes: [(&str, Operation); 5] = [
        ("removed", Operation::Remove(target("/data/d/f"))),
        ("renamed", rename("/data/d/f", "/data/g")),
        ("replaced", rename("/data/other", "/data/d/f")),
        ("moved with its directory", rename("/data/d", "/data/e")),
        ("changed", Operation::ChangeMode { target: target("/data/d/f"), mode: 0o600 }),
    ];
    for (what, change) in changes {
        let server = Server::new();
        server.memory.put("/data/d/f", b"old");
        server.memory.put("/data/other", b"other");
        server.memory.faults().hold("open");
        let creator = server.open("/data/d/f", posc(replacing()));
        server.memory.faults().wait_for_held("open", 1);
        let refused = server.call(change).refusal();
        assert!(refused.1.ends_with("text file busy"), "{what}: {refused:?}");
        server.memory.faults().release("open");
        let file = creator.file();
        assert!(!is_whole(&server, "/data/d/f"), "{what}");
        server.close(&file).done();
        assert!(is_whole(&server, "/data/d/f"), "{what}");
        assert_eq!(server.logical.status(), logical::LogicalStatus::default(), "{what}");
    }
}

/// A creator retries while its name is being changed, and then finds the result of the change.
#[test]
fn a_file_is_not_created_while_its_name_is_being_changed() {
    for kind in ["remove", "rename", "set_mode"] {
        let server = Server::new();
        server.memory.put("/data/f", b"old");
        server.memory.faults().hold(kind);
        let change = server.call(match kind {
            "remove" => Operation::Remove(target("/data/f")),
            "rename" => Operation::rename(target("/data/f"), target("/data/g")),
            _ => Operation::ChangeMode { target: target("/data/f"), mode: 0o600 },
        });
        server.memory.faults().wait_for_held(kind, 1);
        assert_eq!(waits(&server, "/data/f", posc(replacing())).0, 1, "{kind}");
        server.memory.faults().release(kind);
        change.done();
        let file = server.open("/data/f", posc(replacing())).file();
        server.abandon(&file).done();
        server.after(601);
        assert_eq!(server.memory.content("/data/f"), None, "{kind}");
        let moved = (kind == "rename").then_some(&b"old"[..]);
        assert_eq!(server.memory.content("/data/g").as_deref(), moved, "{kind}");
    }
}

#[test]
fn a_replaced_file_gets_the_requested_mode() {
    let server = Server::new();
    let mode = |name: &str| server.stat(name).stat().mode;
    let replaced = |mode| posc(OpenRequest { mode, ..replacing() });
    server.memory.put("/nolock/f", b"content");
    let file = server.open("/nolock/f", replaced(0o604)).file();
    assert_eq!(mode("/nolock/f"), 0o1604);
    // Replaced once more before it is complete; the mode is set when it is.
    let again = server.open("/nolock/f", replaced(0o640)).file();
    assert_eq!(mode("/nolock/f"), 0o1604);
    for handle in [again, file] {
        server.close(&handle).done();
    }
    assert_eq!(mode("/nolock/f"), 0o640);
}

#[test]
fn removing_and_changing_the_mode_of_a_pending_file() {
    let server = Server::new();
    let file = server.open("/data/f", posc(creating())).file();
    server.call(Operation::ChangeMode { target: target("/data/f"), mode: 0o600 }).done();
    assert_eq!(server.memory.mode("/data/f"), Some(0o1600));
    server.close(&file).done();
    assert_eq!(server.memory.mode("/data/f"), Some(0o600));
    let file = server.open("/data/g", posc(creating())).file();
    server.call(Operation::Remove(target("/data/g"))).done();
    assert!(server.on_file(&file, FileOperation::Stat).stat().posc_pending);
    server.close(&file).done();
    assert_eq!(server.memory.content("/data/g"), None);
    server.open("/data/g", posc(creating())).done();
}

#[test]
fn a_file_removed_externally_does_not_block_its_name() {
    let server = Server::new();
    let file = server.open("/data/f", posc(creating())).file();
    server.abandon(&file).done();
    server.memory.take("/data/f");
    assert_eq!(server.open("/data/f", updating()).error().kind, NotFound);
    let file = server.open("/data/f", posc(creating())).file();
    server.abandon(&file).done();
    server.memory.take("/data/f");
    server.open("/data/f", posc(creating())).done();
}

#[test]
fn an_open_that_fails_leaves_no_trace() {
    let server = Server::new();
    server.memory.put("/data/d/x", b"");
    for name in ["/data/d", "/data/missing/f", "/data/d/x/f"] {
        assert!(matches!(server.open(name, posc(creating())).answer(), Answer::Error(_)), "{name}");
    }
    server.memory.put("/data/old", b"old");
    server.memory.faults().fail("truncate", Some(5));
    assert_eq!(server.open("/data/old", posc(replacing())).error().kind, IoError);
    assert!(is_whole(&server, "/data/old"));
    assert_eq!(server.memory.content("/data/old").as_deref(), Some(&b"old"[..]));
    server.memory.faults().fail("truncate", None);
    server.memory.faults().fail("journal", Some(ENOSPC));
    let full = server.open("/data/f", posc(creating())).refusal();
    assert_eq!(full, (NoSpace, "Unable to create /data/f; no space left on device".into()));
    assert_eq!(server.memory.content("/data/f"), None);
    assert_eq!(server.logical.status(), logical::LogicalStatus::default());
}

#[test]
fn a_close_that_cannot_remove_the_mark_fails_and_can_be_retried() {
    let server = Server::new();
    let file = server.open("/data/f", posc(creating())).file();
    server.write(&file, 0, b"content").done();
    server.memory.faults().fail("set_mode", Some(5));
    let failed = server.close(&file).refusal();
    assert_eq!(failed, (IoError, "Unable to close /data/f; input/output error".into()));
    server.memory.faults().fail("set_mode", None);
    assert!(!is_whole(&server, "/data/f"));
    let file = server.open("/data/f", updating()).file();
    server.close(&file).done();
    assert!(is_whole(&server, "/data/f"));
    assert_eq!(server.memory.content("/data/f").as_deref(), Some(&b"content"[..]));
}

#[test]
fn a_file_that_cannot_be_removed_stays_marked_and_is_removed_later() {
    let server = Server::new();
    let file = server.open("/data/f", posc(creating())).file();
    server.abandon(&file).done();
    server.memory.faults().fail("remove", Some(5));
    server.after(601);
    assert!(!is_whole(&server, "/data/f"));
    server.memory.faults().fail("remove", None);
    server.after(1);
    assert!(!is_whole(&server, "/data/f"), "not at once");
    server.after(60);
    assert_eq!(server.memory.content("/data/f"), None);
}

#[test]
fn a_panic_at_close_leaves_the_file_marked_and_the_server_serving() {
    let server = Server::new();
    let file = server.open("/data/f", posc(creating())).file();
    server.memory.faults().panic_on("set_mode", true);
    assert_eq!(server.close(&file).error().kind, ServerError);
    server.memory.faults().panic_on("set_mode", false);
    assert!(!is_whole(&server, "/data/f"));
    let whole = server.restarted();
    whole.after(601);
    assert_eq!(whole.memory.content("/data/f"), None);
}

#[test]
fn the_close_of_an_earlier_owner_does_not_complete_a_file() {
    let server = Server::new();
    let first = server.open("/nolock/f", posc(creating())).file();
    server.write(&first, 0, b"content").done();
    let owner = server.open("/nolock/f", posc(replacing())).file();
    server.write(&owner, 0, b"ne").done();
    server.abandon(&owner).done();
    let refused = server.close(&first).refusal();
    let text = "Unable to close /nolock/f; the client that took this file over has disconnected";
    assert_eq!(refused, (IoError, text.into()));
    assert!(!is_whole(&server, "/nolock/f"));
    server.after(601);
    assert_eq!(server.memory.content("/nolock/f"), None);
}

#[test]
fn an_open_that_fails_leaves_the_file_to_its_owner() {
    let server = Server::new();
    let file = server.open("/nolock/f", posc(creating())).file();
    server.write(&file, 0, b"content").done();
    server.memory.faults().fail("open", Some(5));
    assert_eq!(server.open("/nolock/f", updating()).error().kind, IoError);
    server.memory.faults().fail("open", None);
    server.close(&file).done();
    assert!(is_whole(&server, "/nolock/f"));
}

#[test]
fn a_failed_write_of_one_handle_counts_until_the_file_is_truncated() {
    for (request, whole) in [(updating(), false), (replacing(), true)] {
        let server = Server::new();
        let lost = server.open("/nolock/f", posc(creating())).file();
        server.memory.faults().fail("write", Some(ENOSPC));
        assert_eq!(server.write(&lost, 0, b"content").error().kind, NoSpace);
        server.memory.faults().fail("write", None);
        let lingering = server.open("/nolock/f", updating()).file();
        server.abandon(&lost).done();
        let back = server.open("/nolock/f", request).file();
        server.write(&back, 4, b"ent").done();
        let closed = server.close(&back).answer();
        assert_eq!(matches!(closed, Answer::Value(_)), whole);
        assert_eq!(is_whole(&server, "/nolock/f"), whole);
        server.abandon(&lingering).done();
        assert_eq!(server.memory.content("/nolock/f").is_some(), whole);
    }
}

#[test]
fn a_file_whose_data_cannot_be_synced_stays_unfinished() {
    let server = Server::new();
    let file = server.open("/data/f", posc(creating())).file();
    server.write(&file, 0, b"content").done();
    server.memory.faults().fail("sync", Some(5));
    let failed = server.close(&file).refusal();
    assert_eq!(failed, (IoError, "Unable to close /data/f; input/output error".into()));
    server.memory.faults().fail("sync", None);
    assert!(!is_whole(&server, "/data/f"));
    // The kernel may consider the data written by now, so a later sync proves nothing.
    let file = server.open("/data/f", updating()).file();
    assert_eq!(server.close(&file).error().kind, IoError);
    let file = server.open("/data/f", replacing()).file();
    server.write(&file, 0, b"content").done();
    server.close(&file).done();
    assert!(is_whole(&server, "/data/f"));
}

#[test]
fn without_free_descriptors_no_file_looks_complete_or_is_lost() {
    let server = Server::new();
    server.memory.faults().fail("create", Some(EMFILE));
    assert_eq!(server.open("/data/f", posc(creating())).error().kind, FsError);
    assert_eq!(server.memory.content("/data/f"), None);
    assert_eq!(server.logical.status(), logical::LogicalStatus::default());
    server.memory.faults().fail("create", None);
    let file = server.open("/data/f", posc(creating())).file();
    server.write(&file, 0, b"content").done();
    server.memory.faults().fail("sync_name", Some(EMFILE));
    assert_eq!(server.close(&file).error().kind, FsError);
    server.memory.faults().fail("sync_name", None);
    assert!(!is_whole(&server, "/data/f"));
    // The file cannot be examined when its hold time ends, and is removed as soon as it can.
    server.memory.faults().fail("stat", Some(EMFILE));
    server.after(601);
    server.memory.faults().fail("stat", None);
    assert_eq!(server.memory.content("/data/f").as_deref(), Some(&b"content"[..]));
    server.after(61);
    assert_eq!(server.memory.content("/data/f"), None);
}

#[test]
fn without_syncing_a_close_does_not_wait_for_the_disk() {
    let server = Server::with(|config| config.persist.durability = Durability::Relaxed);
    let file = server.open("/data/f", posc(creating())).file();
    server.write(&file, 0, b"content").done();
    server.close(&file).done();
    assert!(is_whole(&server, "/data/f"));
    assert_eq!(["sync", "sync_name"].map(|kind| server.memory.faults().calls(kind)), [0, 0]);
}

#[test]
fn a_file_truncated_by_a_failed_open_does_not_look_complete() {
    let server = Server::new();
    server.memory.put("/data/old", b"old");
    server.memory.faults().hold("truncate");
    let open = server.open("/data/old", posc(replacing()));
    server.memory.faults().wait_for_held("truncate", 1);
    server.memory.faults().fail("attribute", Some(5));
    server.memory.faults().fail("fstat", Some(5));
    server.memory.faults().release("truncate");
    assert_eq!(open.error().kind, IoError);
    server.memory.faults().fail("fstat", None);
    assert!(!is_whole(&server, "/data/old"));
    server.after(601);
    assert!(
        server.memory.content("/data/old").is_some(),
        "its number cannot be read, so it may be another one's"
    );
    server.memory.faults().fail("attribute", None);
    server.after(61);
    assert_eq!(server.memory.content("/data/old"), None);
}

#[test]
fn synced_data_survives_a_power_failure() {
    for how in stops() {
        let server = Server::new();
        let request = OpenRequest { make_path: true, ..creating() };
        let file = server.open("/data/a/b/f", request).file();
        server.write(&file, 0, b"synced content").done();
        server.on_file(&file, FileOperation::Sync).done();
        let server = server.after_stop(how);
        let content = server.memory.content("/data/a/b/f");
        assert_eq!(content.as_deref(), Some(&b"synced content"[..]), "{how:?}");
    }
}

/// Creates or replaces a file, writes and closes it; returns whether every step was acknowledged.
fn upload(server: &Server, request: OpenRequest) -> bool {
    let Answer::Value(vfs::Value::Opened(opened)) = server.open("/data/d/e/f", request).answer() else {
        return false;
    };
    let written = matches!(server.write(&opened.file, 0, b"content").answer(), Answer::Value(_));
    let closed = matches!(server.close(&opened.file).answer(), Answer::Value(_));
    written && closed
}

#[test]
fn after_a_stop_a_file_is_complete_or_marked_or_missing() {
    for how in stops() {
        for old in [None, Some(&b"old"[..]), Some(b"")] {
            for stop in 0.. {
                let server = Server::new();
                if let Some(old) = old {
                    server.memory.put("/data/d/e/f", old);
                }
                server.memory.faults().stop_after(stop);
                let request = posc(if old.is_some() { replacing() } else { creating() });
                let request = OpenRequest { make_path: true, ..request };
                let acknowledged = upload(&server, request);
                let finished = !server.memory.faults().is_dead();
                let server = server.after_stop(how);
                let content = server.memory.content("/data/d/e/f");
                let whole = content.is_some() && is_whole(&server, "/data/d/e/f");
                let note = format!("stop {how:?} old {old:?} stop {stop}: {content:?}");
                if acknowledged {
                    assert!(whole, "acknowledged but unfinished: {note}");
                }
                if whole {
                    let content = content.unwrap();
                    assert!(content == b"content" || old == Some(&content), "{note}");
                }
                // A marked file has a record, and is removed after the hold time.
                server.after(601);
                if server.memory.content("/data/d/e/f").is_some()
                    && !(whole && is_whole(&server, "/data/d/e/f"))
                {
                    // Only a file that was not in the journal yet stays; it can be replaced by
                    // another upload.
                    assert!(upload(&server, posc(replacing())), "{note}");
                }
                if finished {
                    break;
                }
                assert!(stop < 100);
            }
        }
    }
}
