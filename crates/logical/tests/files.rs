//! Tests of open files: options, locks, reads and writes, errors midway, clients that disconnect.

#![allow(clippy::unwrap_used)]

mod support;

use base::ErrorKind::{self, *};
use base::{CopyRange, Extent, ReadPiece};
use support::{Server, caller, creating, reading, replacing, updating};
use vfs::{Answer, CloneRange, FileOperation, Now, OpenFile, OpenRequest, Value};

const ENOSPC: i32 = 28;

#[test]
fn opening_for_reading_is_answered_at_once() {
    let server = Server::new();
    server.memory.put("/data/f", b"12345");
    for cold in [false, true] {
        server.memory.set_cold(cold);
        let call = server.open("/data/f", OpenRequest { stat: true, ..reading() });
        assert_eq!(call.was_on_the_spot(), !cold);
        let (file, stat) = call.opened();
        assert_eq!(stat.map(|stat| stat.size), Some(5));
        assert!(!file.is_writable());
        server.close(&file).done();
    }
}

#[test]
fn a_refused_open_returns_the_reason() {
    let server = Server::new();
    server.memory.put("/data/f", b"");
    server.memory.put("/data/d/f", b"");
    let deep = |request| OpenRequest { make_path: true, ..request };
    for (name, request, kind, text) in [
        ("/data/no", reading(), NotFound, "Unable to open /data/no; no such file or directory"),
        ("/data/no", updating(), NotFound, "Unable to open /data/no; no such file or directory"),
        ("/data/d", reading(), IsDirectory, "Unable to open /data/d; is a directory"),
        ("/data/d", updating(), IsDirectory, "Unable to open /data/d; is a directory"),
        ("/data/d/", reading(), IsDirectory, "Unable to open /data/d/; is a directory"),
        ("/data/d", replacing(), IsDirectory, "Unable to create /data/d; is a directory"),
        ("/data/d", creating(), ItExists, "Unable to create /data/d; file exists"),
        ("/data/f", creating(), ItExists, "Unable to create /data/f; file exists"),
        ("/data/f/", reading(), FsError, "Unable to open /data/f/; not a directory"),
        ("/data/n/", creating(), IsDirectory, "Unable to create /data/n/; is a directory"),
        ("/data/a/b", creating(), NotFound, "Unable to create /data/a/b; no such file or directory"),
        ("/data/f/b", deep(creating()), FsError, "Unable to create /data/f/b; not a directory"),
        (
            "/data/f?tpc.stage=copy&tpc.key=1",
            reading(),
            Unsupported,
            "Unable to open /data/f; tpc not supported",
        ),
        ("/data/n?tpc.src=a", creating(), Unsupported, "Unable to open /data/n; tpc not supported"),
    ] {
        assert_eq!(server.open(name, request).refusal(), (kind, text.to_owned()), "{name}");
    }
    assert_eq!(server.logical.status(), logical::LogicalStatus::default());
}

#[test]
fn created_files_get_their_mode_and_parents() {
    let server = Server::new();
    for (name, mode, want) in [("a", 0, 0o600), ("b", 0o7777, 0o775), ("c", 0o124, 0o724 & 0o775)] {
        let request = OpenRequest { mode, make_path: true, ..creating() };
        let file = server.open(&format!("/data/p/q/{name}"), request).file();
        assert!(file.is_writable());
        assert_eq!(server.memory.mode(&format!("/data/p/q/{name}")), Some(want), "{name}");
        server.close(&file).done();
    }
    assert_eq!(server.memory.mode("/data/p/q"), Some(0o755));
    server.memory.put("/data/old", b"content");
    let file = server.open("/data/old", OpenRequest { write: false, ..replacing() }).file();
    assert!(file.is_writable());
    assert_eq!(server.memory.content("/data/old").as_deref(), Some(&b""[..]));
}

#[test]
fn readers_share_a_file_and_a_writer_excludes_others() {
    let server = Server::new();
    server.memory.put("/data/f", b"");
    server.memory.put("/nolock/f", b"");
    let other = caller("bob", 2);
    let reader = server.open("/data/f", reading()).file();
    let second = server.open("/data/f", reading()).file();
    let denied = server.open_as(&other, "/data/f", updating()).refusal();
    assert_eq!(
        denied,
        (FileLocked, "Output file /data/f is already opened by 2 readers; open denied.".into())
    );
    server.close(&second).done();
    let denied = server.open_as(&other, "/data/f", updating()).refusal();
    assert_eq!(
        denied,
        (FileLocked, "Output file /data/f is already opened by 1 reader; open denied.".into())
    );
    let forced = server.open_as(&other, "/data/f", OpenRequest { force: true, ..updating() }).file();
    let denied = server.open("/data/f", reading()).refusal();
    assert_eq!(denied, (FileLocked, "Input file /data/f is already opened by 1 writer; open denied.".into()));
    server.close(&reader).done();
    server.close(&forced).done();
    server.open("/data/f", updating()).done();
    let writer = server.open("/nolock/f", updating()).file();
    server.open_as(&other, "/nolock/f", updating()).done();
    server.open_as(&other, "/nolock/f", reading()).done();
    server.close(&writer).done();
}

#[test]
fn the_lock_is_free_when_close_or_abandon_is_answered() {
    let server = Server::new();
    server.memory.put("/data/f", b"");
    for round in 0..3 {
        let file = server.open("/data/f", updating()).file();
        match round {
            0 => server.close(&file).done(),
            1 => server.abandon(&file).done(),
            _ => {
                drop(file);
                server.settle(); // nobody receives the answer of a drop
            }
        }
        drop(server.open("/data/f", updating()).file());
        server.settle();
    }
    assert_eq!(server.logical.status(), logical::LogicalStatus::default());
}

#[test]
fn an_abandoned_file_is_released_only_when_its_last_operation_ended() {
    let server = Server::new();
    server.memory.put("/data/f", b"");
    let file = server.open("/data/f", updating()).file();
    server.memory.faults().hold("write");
    let write = server.write(&file, 0, b"late");
    server.memory.faults().wait_for_held("write", 1);
    let abandon = server.abandon(&file);
    assert!(!abandon.was_on_the_spot());
    let denied = server.open("/data/f", updating()).error();
    assert_eq!(denied.kind, FileLocked);
    assert_eq!(server.write(&file, 0, b"more").error().kind, FileNotOpen);
    server.memory.faults().release("write");
    write.done();
    abandon.done();
    server.open("/data/f", updating()).done();
    assert_eq!(server.memory.content("/data/f").as_deref(), Some(&b"late"[..]));
}

#[test]
fn reads_and_writes_at_once_and_on_the_pool() {
    let server = Server::new();
    let file = server.open("/data/f", creating()).file();
    assert!(matches!(file.write_now(0, b"hello "), Now::Done(Ok(()))));
    server.write(&file, 6, b"world").done();
    let mut into = [0; 20];
    assert!(matches!(file.read_now(6, &mut into), Now::Done(Ok(5))));
    assert_eq!(&into[..5], b"world");
    assert!(matches!(file.read_now(11, &mut into), Now::Done(Ok(0))));
    server.memory.set_cold(true);
    assert!(matches!(file.read_now(0, &mut into), Now::WouldBlock));
    assert!(matches!(file.write_now(0, b"x"), Now::WouldBlock));
    let pieces = vec![
        ReadPiece { extent: Extent { offset: 0, length: 5 }, at: 0 },
        ReadPiece { extent: Extent { offset: 9, length: 5 }, at: 5 },
        ReadPiece { extent: Extent { offset: 6, length: 2 }, at: 10 },
    ];
    let read = FileOperation::Read { buffer: vec![0; 12], pieces };
    let Value::Data { buffer, lengths } = server.on_file(&file, read).value() else { panic!() };
    assert_eq!(lengths, [5, 2, 2]);
    assert_eq!((&buffer[..7], &buffer[10..]), (&b"hellold"[..], &b"wo"[..]));
    assert_eq!(file.size_now(), Some(11));
    server.on_file(&file, FileOperation::Truncate { size: 5, checkpoint: false }).done();
    assert_eq!(server.on_file(&file, FileOperation::Stat).stat().size, 5);
    server.on_file(&file, FileOperation::Sync).done();
}

fn refused(
    server: &Server,
    file: &std::sync::Arc<dyn OpenFile>,
    operation: FileOperation,
) -> (ErrorKind, String) {
    server.on_file(file, operation).refusal()
}

#[test]
fn invalid_operations_on_a_handle_are_refused_as_recorded() {
    let server = Server::new();
    server.memory.put("/data/f", b"12345");
    let file = server.open("/data/f", reading()).file();
    let write = |offset| FileOperation::Write { buffer: vec![1], offset, checkpoint: false };
    let bad = (FileNotOpen, "Unable to write /data/f; bad file descriptor".to_owned());
    assert_eq!(refused(&server, &file, write(0)), bad);
    assert!(matches!(file.write_now(0, b"x"), Now::Done(Err(error)) if error.text == bad.1));
    let truncate = |size| FileOperation::Truncate { size, checkpoint: false };
    let invalid = |verb: &str| (ArgInvalid, format!("Unable to {verb} /data/f; invalid argument"));
    assert_eq!(refused(&server, &file, truncate(0)), invalid("truncate"));
    assert!(matches!(file.read_now(u64::MAX, &mut [0]), Now::Done(Err(e)) if e.text == invalid("read").1));
    let remove = FileOperation::Attributes(vfs::AttributeWork::Remove(vec![b"a".to_vec()]));
    let modifies = (InvalidRequest, "fattr request modifies a file open for reading".to_owned());
    assert_eq!(refused(&server, &file, remove), modifies);
    let query = FileOperation::Query { code: 8, argument: Vec::new() };
    assert_eq!(refused(&server, &file, query), (Unsupported, "fctl operation not supported".into()));
    server.on_file(&file, FileOperation::Sync).done();
    server.close(&file).done();
    let file = server.open("/data/f", updating()).file();
    assert_eq!(refused(&server, &file, write(u64::MAX)), invalid("write"));
    assert_eq!(refused(&server, &file, write(i64::MAX as u64)), invalid("write"));
    assert_eq!(refused(&server, &file, truncate(u64::MAX)), invalid("truncate"));
    let outside = FileOperation::Read {
        buffer: vec![0; 4],
        pieces: vec![ReadPiece { extent: Extent { offset: 0, length: 2 }, at: usize::MAX }],
    };
    assert_eq!(refused(&server, &file, outside), invalid("read"));
}

#[test]
fn a_full_disk_is_reported_and_the_handle_stays_usable() {
    let server = Server::new();
    let file = server.open("/data/f", creating()).file();
    server.memory.faults().fail("write", Some(ENOSPC));
    let full = (NoSpace, "Unable to write /data/f; no space left on device".to_owned());
    assert_eq!(server.write(&file, 0, b"x").refusal(), full);
    assert!(matches!(file.write_now(0, b"x"), Now::Done(Err(error)) if error.text == full.1));
    server.memory.faults().fail("write", None);
    server.write(&file, 0, b"x").done();
    server.close(&file).done();
}

#[test]
fn a_panic_is_answered_and_poisons_no_lock() {
    let server = Server::new();
    let file = server.open("/data/f", creating()).file();
    server.memory.faults().panic_on("write", true);
    assert_eq!(server.write(&file, 0, b"x").error().kind, ServerError);
    server.memory.faults().panic_on("write", false);
    server.write(&file, 0, b"y").done();
    server.close(&file).done();
    server.open("/data/f", updating()).done();
    server.memory.faults().panic_on("open", true);
    server.memory.set_cold(true);
    assert_eq!(server.open("/data/x", reading()).error().kind, ServerError);
    server.memory.faults().panic_on("open", false);
    // The lock of the panicked open is free.
    server.open("/data/x", updating()).done();
}

#[test]
fn cloning_ranges_and_whole_files() {
    let server = Server::new();
    server.memory.put("/data/source", b"0123456789");
    let source = server.open("/data/source", reading()).file();
    let target = server.open("/data/target", creating()).file();
    let range =
        |from, length, to| CloneRange { source: source.clone(), range: CopyRange { from, to, length } };
    server.on_file(&target, FileOperation::CloneFrom(vec![range(5, 5, 0), range(0, 2, 5)])).done();
    assert_eq!(server.memory.content("/data/target").as_deref(), Some(&b"5678901"[..]));
    let into_reader = server.on_file(&source, FileOperation::CloneFrom(vec![range(0, 1, 0)])).error();
    assert_eq!(into_reader.kind, FileNotOpen);
    server.memory.faults().fail("clone", Some(95));
    let refusal = server.on_file(&target, FileOperation::CloneFrom(vec![range(0, 1, 0)])).refusal();
    let text = "Unable to clone /data/target from file ranges; operation not supported";
    assert_eq!(refusal, (Unsupported, text.to_owned()));
    let duplicate = || OpenRequest { duplicate_of: Some(source.clone()), ..creating() };
    assert_eq!(server.open("/data/copy", duplicate()).error().kind, Unsupported);
    assert_eq!(server.memory.content("/data/copy"), None, "a failed clone leaves no file behind");
    server.memory.faults().fail("clone", None);
    server.open("/data/copy", duplicate()).done();
    assert_eq!(server.memory.content("/data/copy").as_deref(), Some(&b"0123456789"[..]));
    for (request, text) in [
        (OpenRequest { new: false, ..duplicate() }, "file must be opened as a new file in order to colocate"),
        (OpenRequest { write: false, ..duplicate() }, "cloned file is not being opened R/W"),
    ] {
        assert_eq!(server.open("/data/c2", request).refusal(), (ArgInvalid, text.to_owned()));
    }
    let beside = OpenRequest { same_file_system_as: Some(source.clone()), ..creating() };
    server.open("/data/c3", beside).done();
}

#[test]
fn a_closed_file_refuses_operations() {
    let server = Server::new();
    let file = server.open("/data/f", creating()).file();
    server.close(&file).done();
    assert!(matches!(server.close(&file).answer(), Answer::Error(error) if error.kind == FileNotOpen));
    assert_eq!(server.write(&file, 0, b"x").error().kind, FileNotOpen);
}
