//! Marks of unfinished files and records of them: whose file is it, is it the same one, and is its file system there?

#![allow(clippy::unwrap_used)]

mod support;

use base::ErrorKind::*;
use support::{Server, caller, creating, reading, replacing, target, updating};
use vfs::{Answer, CheckpointWork, FileOperation, OpenRequest, Operation};

fn posc(request: OpenRequest) -> OpenRequest {
    OpenRequest { posc: true, stat: true, ..request }
}

fn is_whole(server: &Server, name: &str) -> bool {
    !server.stat(name).stat().posc_pending
}

fn waits(server: &Server, name: &str, request: OpenRequest) -> (u32, String) {
    match server.open_as(&caller("reader", 9), name, request).answer() {
        Answer::Wait { seconds, text } => (seconds, text),
        other => panic!("{}", support::tell(&other)),
    }
}

/// The mark alone decides: another server may have set it, or the journal is lost.
#[test]
fn a_marked_file_of_an_unknown_creator_is_not_served() {
    for cold in [false, true] {
        let server = Server::new();
        server.memory.set_cold(cold);
        server.memory.put_with_mode("/nolock/f", b"part", 0o1644);
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
        let text = "Unable to open /nolock/f; it is unfinished, and nobody has written it for a long time: \
                    upload it again or remove it";
        assert_eq!(server.open("/nolock/f", reading()).refusal(), (InProgress, text.into()));
        server.after(10_000);
        assert_eq!(
            server.memory.content("/nolock/f").as_deref(),
            Some(&b"part"[..]),
            "nobody proved whose it is"
        );
        let file = server.open("/nolock/f", replacing()).file();
        // By its other name it is somebody else's now.
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
fn who_asks_for_persist_on_close_takes_over_a_file_of_an_unknown_creator() {
    for (request, want) in [(updating(), &b"part and the rest"[..]), (replacing(), b"\0\0\0\0 and the rest")]
    {
        let server = Server::new();
        server.memory.put_with_mode("/data/f", b"part", 0o1640);
        let file = server.open("/data/f", posc(request)).file();
        server.write(&file, 4, b" and the rest").done();
        server.close(&file).done();
        assert_eq!(server.memory.mode("/data/f"), Some(0o640));
        assert_eq!(server.memory.content("/data/f").as_deref(), Some(want));
    }
}

#[test]
fn a_second_server_on_the_same_tree_does_not_serve_what_the_first_is_writing() {
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

/// A server that stopped while it wrote `/data/f` as an unfinished file, or with a checkpoint of it half changed.
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
    // The handle is let go by a process that is dead.
    server.settle();
    server
}

#[test]
fn nothing_is_forgotten_while_the_file_system_is_not_mounted() {
    for checkpoint in [false, true] {
        let server = stopped(checkpoint);
        server.memory.shift("/data", "/elsewhere");
        server.memory.put("/data/x", b"");
        server.memory.take("/data/x");
        let unmounted = server.restarted();
        unmounted.after(10_000);
        let refused = unmounted.open("/data/f", posc(creating())).error().kind;
        assert_eq!(refused, if checkpoint { FsReadOnly } else { FsError });
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
        // The bytes that a checkpoint saved are kept, and no start applies them.
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
fn what_a_second_server_has_taken_over_is_not_removed_by_the_first() {
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
fn without_attributes_files_are_known_by_their_inodes() {
    let server = Server::new();
    server.memory.faults().fail("set_attribute", Some(95));
    let file = server.open("/data/f", posc(creating())).file();
    server.write(&file, 0, b"part").done();
    server.memory.faults().stop_after(0);
    let server = server.restarted();
    server.after(601);
    assert_eq!(server.memory.content("/data/f"), None);
}
