//! Tests of marks and records of unfinished files: the creator of a file, its identity, and a file
//! system that is not mounted.

#![allow(clippy::unwrap_used)]

mod support;

use base::ErrorKind::*;
use logical::config::PersistMode;
use support::{Server, creating, is_whole, listed, path, posc, reading, replacing, target, updating, waits};
use vfs::{CheckpointWork, FileOperation, OpenRequest, Operation};

/// Attribute with the number of an unfinished file.
const NUMBER: &str = "user.scalla.pending";

/// Creates a file with the mark of an unfinished one.
fn put_marked(server: &Server, name: &str, mode: u32) {
    server.memory.put_with_mode(name, b"part", mode);
    server.memory.put_attribute(name, NUMBER, b"0123");
}

/// The mark alone decides, because another server may have set it, or the journal may be lost.
#[test]
fn a_marked_file_of_an_unknown_creator_is_not_served() {
    for cold in [false, true] {
        let server = Server::new();
        server.memory.set_cold(cold);
        put_marked(&server, "/nolock/f", 0o1644);
        server.memory.link("/nolock/f", "/nolock/other");
        assert!(!is_whole(&server, "/nolock/f"));
        for name in ["/nolock/f", "/nolock/other"] {
            assert_eq!(waits(&server, name, reading()).0, 60);
            assert_eq!(server.open(name, updating()).error().kind, InProgress);
            assert_eq!(server.open(name, replacing()).error().kind, InProgress);
        }
        server.call(Operation::ChangeMode { target: target("/nolock/f"), mode: 0o600 }).done();
        assert_eq!(server.memory.mode("/nolock/f"), Some(0o1600));
        server.after(601);
        let text = "Unable to open /nolock/f; it is unfinished and has not been written for a long time: \
                    upload it again or remove it";
        assert_eq!(server.open("/nolock/f", reading()).refusal(), (InProgress, text.into()));
        server.after(10_000);
        assert_eq!(
            server.memory.content("/nolock/f").as_deref(),
            Some(&b"part"[..]),
            "nobody proved whose it is"
        );
        let file = server.open("/nolock/f", replacing()).file();
        // Under its other name the file is unfinished too and belongs to another client.
        assert_eq!(server.open("/nolock/other", posc(replacing())).error().kind, InProgress);
        assert_eq!(waits(&server, "/nolock/other", reading()).0, 60);
        server.write(&file, 0, b"new").done();
        assert_eq!(waits(&server, "/nolock/f", reading()).0, 60);
        server.close(&file).done();
        server.open("/nolock/other", reading()).done();
        assert_eq!(server.memory.content("/nolock/f").as_deref(), Some(&b"new"[..]));
    }
}

#[test]
fn requesting_persist_on_close_takes_over_a_file_of_an_unknown_creator() {
    let replaced: &[u8] = b"\0\0\0\0 and the rest";
    for (request, mode, want) in
        [(updating(), 0o640, &b"part and the rest"[..]), (replacing(), 0o644, replaced)]
    {
        let server = Server::new();
        put_marked(&server, "/data/f", 0o1640);
        let file = server.open("/data/f", posc(request)).file();
        server.write(&file, 4, b" and the rest").done();
        server.close(&file).done();
        assert_eq!(server.memory.mode("/data/f"), Some(mode));
        assert_eq!(server.memory.content("/data/f").as_deref(), Some(want));
    }
}

#[test]
fn a_second_server_does_not_serve_a_file_that_the_first_is_writing() {
    let first = Server::new();
    let second = Server::on_disk_of(&first);
    let file = first.open("/data/f", posc(creating())).file();
    first.write(&file, 0, b"content").done();
    assert_eq!(waits(&second, "/data/f", reading()).0, 60);
    second.after(601);
    first.close(&file).done();
    second.open("/data/f", reading()).done();
    assert_eq!(first.memory.content("/data/f").as_deref(), Some(&b"content"[..]));
}

/// Returns a server that stopped during a write to `/data/f`, which is unfinished or, with
/// `checkpoint`, half changed.
fn stopped(checkpoint: bool) -> Server {
    let server = Server::new();
    if checkpoint {
        server.memory.put("/data/f", b"0123456789");
        let file = server.open("/data/f", updating()).file();
        server.on_file(&file, FileOperation::Checkpoint(CheckpointWork::Begin)).done();
        server.write(&file, 2, b"XXXX").done();
        server.memory.faults().stop_after(0);
    } else {
        let file = server.open("/data/f", posc(creating())).file();
        server.write(&file, 0, b"part").done();
        server.memory.faults().stop_after(0);
    }
    // The handle is released by a process that has stopped.
    server.settle();
    server
}

#[test]
fn records_are_kept_while_the_file_system_is_not_mounted() {
    for checkpoint in [false, true] {
        let server = stopped(checkpoint);
        server.memory.shift("/data", "/elsewhere");
        server.memory.put("/data/x", b"");
        server.memory.take("/data/x");
        let unmounted = server.restarted();
        unmounted.after(10_000);
        let refused = unmounted.open("/data/f", posc(creating())).error().kind;
        assert_eq!(refused, if checkpoint { IoError } else { FsError });
        unmounted.memory.faults().stop_after(0);
        unmounted.memory.shift("/data", "/mount-point");
        unmounted.memory.shift("/elsewhere", "/data");
        let server = unmounted.restarted();
        if checkpoint {
            assert_eq!(server.memory.content("/data/f").as_deref(), Some(&b"0123456789"[..]));
            assert_eq!(server.checkpoints.len(), 0);
        } else {
            assert_eq!(server.logical.status().pending_files, 1);
            server.after(601);
            assert_eq!(server.memory.content("/data/f"), None);
        }
    }
}

#[test]
fn a_file_that_was_replaced_meanwhile_is_not_touched() {
    for checkpoint in [false, true] {
        let server = stopped(checkpoint);
        server.memory.take("/data/f");
        let mode = if checkpoint { 0o644 } else { 0o1644 };
        server.memory.put_with_mode("/data/f", b"another file", mode);
        let server = server.restarted();
        server.after(10_000);
        assert_eq!(server.memory.content("/data/f").as_deref(), Some(&b"another file"[..]));
        assert_eq!(server.logical.status().pending_files, 0);
        // The journal of the checkpoint is kept, but no start applies it.
        assert_eq!(server.checkpoints.len(), usize::from(checkpoint));
        let server = server.restarted();
        assert_eq!(server.memory.content("/data/f").as_deref(), Some(&b"another file"[..]));
    }
}

#[test]
fn a_file_that_was_removed_meanwhile_leaves_its_name_free() {
    let server = stopped(false);
    server.memory.take("/data/f");
    let server = server.restarted();
    let file = server.open("/data/f", posc(creating())).file();
    server.close(&file).done();
    assert!(is_whole(&server, "/data/f"));
}

#[test]
fn a_file_taken_over_by_a_second_server_is_not_removed_by_the_first() {
    let first = stopped(false);
    let second = Server::on_disk_of(&first);
    let file = second.open("/data/f", posc(replacing())).file();
    second.write(&file, 0, b"theirs").done();
    let first = first.restarted();
    first.after(10_000);
    second.close(&file).done();
    assert_eq!(first.memory.content("/data/f").as_deref(), Some(&b"theirs"[..]));
    first.open("/data/f", reading()).done();
}

#[test]
fn without_attributes_files_are_identified_by_inode() {
    let server = Server::new();
    server.memory.faults().fail("set_attribute", Some(95));
    let file = server.open("/data/f", posc(creating())).file();
    server.write(&file, 0, b"part").done();
    server.memory.faults().stop_after(0);
    let server = server.restarted();
    server.after(601);
    assert_eq!(server.memory.content("/data/f"), None);
}

/// The sticky bit of a file of another user proves nothing, because an administrator may have set
/// it.
#[test]
fn a_file_with_only_the_sticky_bit_is_complete() {
    for cold in [false, true] {
        let server = Server::new();
        server.memory.set_owner(1000);
        server.memory.set_cold(cold);
        for name in ["/data/f", "/nolock/f", "/ro/f"] {
            server.memory.put_with_mode(name, b"content", 0o1644);
            assert!(is_whole(&server, name));
            server.open(name, reading()).done();
        }
        server.memory.put_with_mode("/data/empty", b"", 0o1644);
        server.open("/data/empty", reading()).done();
        let file = server.open("/data/f", updating()).file();
        server.write(&file, 0, b"C").done();
        server.close(&file).done();
        let file = server.open("/data/f", posc(replacing())).file();
        server.abandon(&file).done();
        assert!(!is_whole(&server, "/data/f"), "now it is unfinished");
        server.call(Operation::ChangeMode { target: target("/nolock/f"), mode: 0o644 }).done();
        assert_eq!(server.memory.mode("/nolock/f"), Some(0o644), "a bit that is not a mark is not kept");
    }
}

/// The file was written by an earlier version of this server, an XRootD, or another server with the
/// same tree.
#[test]
fn a_file_of_the_servers_user_with_the_sticky_bit_is_unfinished() {
    for (mode, name) in
        [(PersistMode::Manual, "/data/f"), (PersistMode::Manual, "/ro/f"), (PersistMode::Off, "/data/f")]
    {
        for attributes in [true, false] {
            let server = Server::with(|config| config.persist.mode = mode);
            server.memory.put_with_mode(name, b"part", 0o1644);
            server.memory.faults().fail("attribute", (!attributes).then_some(95));
            assert!(!is_whole(&server, name), "{mode:?} {name} {attributes}");
            assert_eq!(waits(&server, name, reading()).0, 60);
        }
    }
}

#[test]
fn a_failed_open_does_not_change_a_complete_file_with_the_sticky_bit() {
    let server = Server::new();
    server.memory.set_owner(1000);
    server.memory.put_with_mode("/data/f", b"content", 0o1644);
    for fault in ["truncate", "journal"] {
        server.memory.faults().fail(fault, Some(5));
        assert_eq!(server.open("/data/f", posc(replacing())).error().kind, IoError, "{fault}");
        server.memory.faults().fail(fault, None);
        server.after(10_000);
        assert!(is_whole(&server, "/data/f"), "{fault}");
        assert_eq!(server.memory.content("/data/f").as_deref(), Some(&b"content"[..]), "{fault}");
        assert_eq!(server.memory.mode("/data/f"), Some(0o1644), "{fault}");
    }
}

#[test]
fn without_attributes_the_bit_is_a_mark_where_files_persist_on_close() {
    for (mode, name, want) in [
        (PersistMode::Manual, "/data/f", false),
        (PersistMode::Auto, "/data/f", false),
        (PersistMode::Manual, "/ro/f", true),
        (PersistMode::Off, "/data/f", true),
    ] {
        let server = Server::with(|config| config.persist.mode = mode);
        server.memory.set_owner(1000);
        server.memory.put_with_mode(name, b"part", 0o1644);
        server.memory.faults().fail("attribute", Some(95));
        assert_eq!(is_whole(&server, name), want, "{mode:?} {name}");
        if want {
            server.open(name, reading()).done();
        } else {
            assert_eq!(waits(&server, name, reading()).0, 60);
        }
    }
}

/// A mark without a number would not protect the file from other servers.
#[test]
fn a_file_without_a_number_is_not_created() {
    let server = Server::new();
    server.memory.faults().fail("set_attribute", Some(28));
    for request in [creating(), replacing()] {
        assert_eq!(server.open("/data/f", posc(request)).error().kind, NoSpace);
        assert_eq!(server.memory.content("/data/f"), None);
    }
    assert_eq!(server.logical.status(), logical::LogicalStatus::default());
}

/// A second server may access the file between its creation and its number.
#[test]
fn a_file_being_created_is_unfinished() {
    let first = Server::new();
    let second = Server::on_disk_of(&first);
    first.memory.faults().hold("set_attribute");
    let open = first.open("/data/f", posc(creating()));
    first.memory.faults().wait_for_held("set_attribute", 1);
    assert_eq!(waits(&second, "/data/f", reading()).0, 60);
    first.memory.faults().release("set_attribute");
    let (_file, stat) = open.opened();
    assert_eq!(stat.map(|stat| stat.mode), Some(0o1644));
}

/// Starts a server on a copy of the tree, in which all inodes differ and attributes may be lost.
fn copied(server: &Server, keep_attributes: bool) -> Server {
    let memory = server.memory.copied(keep_attributes);
    server.restarted_on(&memory, None)
}

#[test]
fn a_copied_unfinished_file_stays_unfinished_and_can_be_replaced() {
    for keep_attributes in [true, false] {
        let server = copied(&stopped(false), keep_attributes);
        assert!(!is_whole(&server, "/data/f"));
        assert_eq!(waits(&server, "/data/f", reading()).0, 60);
        server.after(601);
        // Only its number proves that it is the file of the record.
        assert_eq!(server.memory.content("/data/f").is_none(), keep_attributes);
        let file = server.open("/data/f", posc(replacing())).file();
        server.write(&file, 0, b"whole").done();
        server.close(&file).done();
        let server = server.restarted();
        server.open("/data/f", reading()).done();
        assert!(is_whole(&server, "/data/f"));
    }
}

#[test]
fn without_attributes_a_copied_file_is_unfinished_by_its_record() {
    let server = stopped(false);
    let memory = server.memory.copied(false);
    memory.faults().fail("attribute", Some(95));
    memory.faults().fail("set_attribute", Some(95));
    let server = server.restarted_on(&memory, None);
    assert!(!is_whole(&server, "/data/f"));
    server.call(rename("/data/f", "/data/g")).done();
    assert!(!is_whole(&server, "/data/g"));
    server.call(Operation::Remove(target("/data/g"))).done();
    assert!(server.logical.unfinished().is_empty());
    server.open("/data/f", posc(creating())).done();
}

fn rename(from: &str, to: &str) -> Operation {
    Operation::rename(target(from), target(to))
}

/// Returns a server with a record whose directory has changed and whose file is missing.
fn with_absent_record() -> Server {
    let server = stopped(false);
    let memory = server.memory.copied(false);
    memory.take("/data/f");
    server.restarted_on(&memory, None)
}

#[test]
fn the_record_of_an_absent_file_ends_when_its_name_is_reused() {
    let force = |request| OpenRequest { force: true, ..request };
    type Use = fn(&Server);
    let uses: [(&str, Use); 4] = [
        ("put there and closed", |server| {
            server.memory.put("/data/f", b"");
            let file = server.open("/data/f", replacing()).file();
            server.write(&file, 0, b"content").done();
            server.close(&file).done();
        }),
        ("removed", |server| {
            server.memory.put("/data/f", b"");
            server.call(Operation::Remove(target("/data/f"))).done();
        }),
        ("replaced", |server| server.call(rename("/data/x", "/data/f")).done()),
        ("cleared", |server| {
            server.logical.clear_unfinished(&path("/data/f"), false).unwrap();
        }),
    ];
    for (what, use_name) in uses {
        let server = with_absent_record();
        let (kind, text) = server.open("/data/f", posc(creating())).refusal();
        assert_eq!(kind, FsError);
        assert!(text.ends_with("scalla admin unfinished clear /data/f"), "{text}");
        assert_eq!(server.logical.unfinished().len(), 1);
        use_name(&server);
        assert!(server.logical.unfinished().is_empty(), "{what}");
        let server = server.restarted();
        assert!(server.logical.unfinished().is_empty(), "{what}");
        server.memory.take("/data/f");
        server.open("/data/f", posc(creating())).done();
    }
    for request in [creating(), posc(creating()), replacing()] {
        let server = with_absent_record();
        let file = server.open("/data/f", force(request)).file();
        server.write(&file, 0, b"content").done();
        server.close(&file).done();
        assert!(server.logical.unfinished().is_empty());
        assert!(is_whole(&server, "/data/f"));
    }
}

/// Journals of version 1 contain no identity.
#[test]
fn a_record_of_version_1_does_not_block_its_name() {
    let journal = br#"{"line":"head","format":"scalla-persist","version":1}
{"line":"pending","number":4,"path":"/data/d/f","mode":420,"user":"alice","pid":7,"host":"h"}
"#;
    for is_there in [false, true] {
        let server = Server::new();
        server.memory.put_with_mode("/data/d/f", b"part", 0o1644);
        if !is_there {
            server.memory.take("/data/d/f");
        }
        server.persist.put("pending", journal);
        let server = server.restarted();
        if is_there {
            assert_eq!(waits(&server, "/data/d/f", reading()).0, 60);
            server.after(601);
            assert_eq!(server.memory.content("/data/d/f"), None);
        }
        let file = server.open("/data/d/f", posc(creating())).file();
        server.close(&file).done();
        let server = server.restarted();
        assert!(is_whole(&server, "/data/d/f"));
        assert!(server.logical.unfinished().is_empty());
    }
}

#[test]
fn a_record_is_kept_when_the_file_system_is_unmounted_while_the_server_runs() {
    let server = Server::new();
    let file = server.open("/data/f", posc(creating())).file();
    server.write(&file, 0, b"part").done();
    server.abandon(&file).done();
    server.memory.shift("/data", "/elsewhere");
    server.memory.put("/data/x", b"");
    server.after(601);
    assert_eq!(server.logical.unfinished().len(), 1);
    server.memory.shift("/data", "/mount-point");
    server.memory.shift("/elsewhere", "/data");
    let server = server.restarted();
    server.after(601);
    assert_eq!(server.memory.content("/data/f"), None);
}

/// Without times of birth, files on different file systems may have the same inode number.
#[test]
fn a_file_of_another_file_system_with_the_same_inode_is_another_file() {
    let server = Server::new();
    server.memory.faults().fail("set_attribute", Some(95));
    let file = server.open("/data/f", posc(creating())).file();
    server.write(&file, 0, b"part").done();
    server.memory.faults().stop_after(0);
    server.settle();
    let memory = server.memory.survivor(None);
    memory.set_device(10);
    let server = server.restarted_on(&memory, None);
    server.after(10_000);
    assert_eq!(server.memory.content("/data/f").as_deref(), Some(&b"part"[..]));
}

#[test]
fn an_administrator_lists_and_clears_unfinished_files() {
    use logical::{ClearOutcome, UnfinishedState::*};
    let server = Server::new();
    server.memory.set_owner(1000);
    put_marked(&server, "/data/d/unknown", 0o1640);
    server.memory.put_with_mode("/data/d/sticky", b"", 0o1644);
    let open = server.open("/data/open", posc(creating())).file();
    let held = server.open("/data/held", posc(creating())).file();
    server.write(&held, 0, b"enough").done();
    server.abandon(&held).done();
    let list = |below: Option<&str>| -> Vec<_> {
        let all = below.map_or_else(|| server.logical.unfinished(), |below| listed(&server, below));
        all.into_iter().map(|one| (one.path.text().into_owned(), one.state)).collect()
    };
    let recorded =
        [("/data/held".to_owned(), Held { seconds: 600 }), ("/data/open".to_owned(), Open { handles: 1 })];
    assert_eq!(list(None), recorded);
    let unknown = ("/data/d/unknown".to_owned(), Unknown);
    assert_eq!(list(Some("/data")), [std::slice::from_ref(&unknown), &recorded[..]].concat());
    assert_eq!(list(Some("/data/d/unknown")), [unknown]);
    let clear = |name: &str| server.logical.clear_unfinished(&path(name), true).map_err(|error| error.kind);
    assert_eq!(clear("/data/open"), Err(InProgress));
    assert_eq!(clear("/data/d/sticky"), Err(NotFound));
    assert_eq!(clear("/data/missing"), Err(NotFound));
    for name in ["/data/held", "/data/d/unknown"] {
        assert_eq!(clear(name), Ok(ClearOutcome::Whole));
        assert!(is_whole(&server, name));
        server.open(name, reading()).done();
    }
    server.after(10_000);
    assert_eq!(server.memory.content("/data/held").as_deref(), Some(&b"enough"[..]));
    server.close(&open).done();
}

#[test]
fn a_file_being_written_is_not_cleared_under_another_name() {
    let server = Server::new();
    let file = server.open("/data/f", posc(creating())).file();
    server.write(&file, 0, b"half").done();
    server.memory.link("/data/f", "/data/g");
    for force in [false, true] {
        let error = server.logical.clear_unfinished(&path("/data/g"), force).unwrap_err();
        assert!(error.kind == InProgress && error.text.contains("/data/f"), "{error:?}");
        assert!(!is_whole(&server, "/data/g"));
    }
    server.close(&file).done();
    assert!(is_whole(&server, "/data/g"));
}

#[test]
fn a_file_of_another_server_is_cleared_by_force_or_after_the_hold_time() {
    for force in [true, false] {
        let server = Server::new();
        put_marked(&server, "/data/f", 0o1640);
        let clear =
            |force| server.logical.clear_unfinished(&path("/data/f"), force).map_err(|error| error.kind);
        assert_eq!(clear(false), Err(InProgress));
        assert!(!is_whole(&server, "/data/f"));
        if !force {
            server.after(601);
        }
        assert_eq!(clear(force), Ok(logical::ClearOutcome::Whole));
        assert!(is_whole(&server, "/data/f"));
    }
}
