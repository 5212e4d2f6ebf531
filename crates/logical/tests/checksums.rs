//! Tests of checksums: on demand, stored, and of files being written; waiting and cancelling
//! clients; invalidation.

#![allow(clippy::unwrap_used)]

mod support;

use base::ErrorKind::*;
use digest::{Algorithm, ChecksumRecord, RunningChecksum};
use std::sync::Arc;
use std::time::Duration;
use storage::STEP_BYTES_MAX;
use support::{Call, Server, caller, creating, reading, replacing, target, updating};
use vfs::{Answer, Caller, FileOperation, ListDetail, OpenRequest, Operation, Started, Value};

const NINE: &[u8] = b"123456789";
const NINE_ADLER: &str = "091e01de";

fn server() -> Server {
    Server::with(|config| {
        config.checksums.types = vec![Algorithm::Adler32, Algorithm::Crc32c, Algorithm::Md5];
        config.checksums.read_bytes = 4096;
    })
}

fn checksum(server: &Server, name: &str) -> Call {
    server.call(Operation::Checksum(target(name)))
}

fn value(call: Call) -> (String, String) {
    match call.value() {
        Value::Checksum { algorithm, hex } => (algorithm, hex),
        _ => panic!("no checksum"),
    }
}

fn adler(bytes: &[u8]) -> (String, String) {
    ("adler32".into(), RunningChecksum::of(Algorithm::Adler32, bytes).hex())
}

fn stored(server: &Server, name: &str, algorithm: Algorithm) -> Option<ChecksumRecord> {
    let raw = server.memory.attribute_of(name, &ChecksumRecord::attribute(algorithm))?;
    Some(ChecksumRecord::decode(&raw).unwrap())
}

/// Returns a client that does not accept a deferred reply.
fn impatient() -> Arc<Caller> {
    Arc::new(Caller::new(caller("old", 3).identity.clone(), false, false))
}

#[test]
fn a_checksum_is_computed_then_stored_then_cached() {
    let server = server();
    server.memory.put("/data/f", NINE);
    for (name, want) in [
        ("/data/f", ("adler32", NINE_ADLER)),
        ("/data/f?cks.type=", ("adler32", NINE_ADLER)),
        ("/data/f?cks.type=CRC32C", ("crc32c", "e3069283")),
        ("/data/f?cks.type=md5", ("md5", "25f9e794323b453885f5181f1b624d0b")),
    ] {
        let first = checksum(&server, name);
        if !name.ends_with('=') {
            let later = matches!(first.started, Started::Later { seconds: 600, text: "Job scheduled." });
            assert!(later, "{name}");
        }
        let want = (want.0.to_owned(), want.1.to_owned());
        assert_eq!(value(first), want, "{name}");
        let again = checksum(&server, name);
        assert!(again.was_on_the_spot(), "{name}");
        assert_eq!(value(again), want, "{name}");
    }
    let record = stored(&server, "/data/f", Algorithm::Adler32).unwrap();
    assert_eq!((record.checksum.hex().as_str(), record.modified, record.delay), (NINE_ADLER, 1_000_000, 0));
    assert_eq!(server.logical.status().checksums, 0);
}

#[test]
fn a_stored_checksum_is_valid_while_the_file_is_unchanged() {
    let mut server = server();
    server.memory.put("/data/f", NINE);
    let fake = RunningChecksum::of(Algorithm::Adler32, b"something else");
    // A checksum computed within the second of the change may be of the earlier content.
    let nine = NINE_ADLER.to_owned();
    let table = [
        (1_000_000, 1_000_001, fake.hex()),
        (1_000_000, 1_000_000, nine.clone()),
        (999_999, 1_000_001, nine),
    ];
    for (modified, computed, want) in table {
        let record = ChecksumRecord::new(fake, modified, computed);
        server.memory.put_attribute(
            "/data/f",
            &ChecksumRecord::attribute(Algorithm::Adler32),
            &record.encode(),
        );
        server = server.restarted();
        assert_eq!(value(checksum(&server, "/data/f")).1, want);
    }
    server.memory.put_attribute("/data/f", &ChecksumRecord::attribute(Algorithm::Crc32c), b"rubbish");
    assert_eq!(value(checksum(&server, "/data/f?cks.type=crc32c")).1, "e3069283");
}

#[test]
fn an_external_change_within_the_same_second_is_detected() {
    type Change = fn(&Server);
    let longer: Change = |server| server.memory.put("/data/f", b"12345678");
    let same_size: Change = |server| {
        server.clock.advance(Duration::from_millis(10));
        server.memory.put("/data/f", b"987654321");
    };
    for change in [longer, same_size] {
        let server = server();
        server.memory.put("/data/f", NINE);
        value(checksum(&server, "/data/f"));
        let raw =
            server.memory.attribute_of("/data/f", &ChecksumRecord::attribute(Algorithm::Adler32)).unwrap();
        change(&server);
        server.memory.put_attribute("/data/f", &ChecksumRecord::attribute(Algorithm::Adler32), &raw);
        let now = server.memory.content("/data/f").unwrap();
        let server = server.restarted();
        assert_eq!(value(checksum(&server, "/data/f")), adler(&now));
    }
}

#[test]
fn refusals() {
    let server = server();
    server.memory.put("/data/d/x", b"");
    for (name, kind, text) in [
        ("/data/nope", NotFound, "Unable to checksum /data/nope; no such file or directory"),
        ("/data/d", IsDirectory, "Unable to checksum /data/d; is a directory"),
        ("/data/d?cks.type=sha999", ServerError, "sha999 checksum not supported."),
        ("/data/d?cks.type=sha256", ServerError, "sha256 checksum not supported."),
        (
            "/etc/x",
            NotAuthorized,
            "Check summing path '/etc/x' is disallowed. This server exports /data, /nolock, /ro.",
        ),
    ] {
        assert_eq!(checksum(&server, name).refusal(), (kind, text.to_owned()));
    }
    assert!(checksum(&server, "/data/nope").was_on_the_spot());
    let file = server.open("/data/p", OpenRequest { posc: true, ..creating() }).file();
    let busy = checksum(&server, "/data/p").refusal();
    assert_eq!(busy, (InProgress, "Unable to checksum /data/p; text file busy".into()));
    server.close(&file).done();
    let none = Server::new();
    assert_eq!(checksum(&none, "/data/x").error().kind, Unsupported);
}

#[test]
fn concurrent_requests_share_one_reading() {
    let server = server();
    server.memory.put("/data/f", NINE);
    server.memory.faults().hold("read");
    let first = checksum(&server, "/data/f");
    server.memory.faults().wait_for_held("read", 1);
    let others: Vec<_> = (0..20).map(|_| checksum(&server, "/data/f")).collect();
    let old = server.call_as(&impatient(), Operation::Checksum(target("/data/f")));
    assert!(matches!(old.answer(), Answer::Wait { seconds: 30, .. }));
    assert_eq!(server.logical.status().checksums, 1);
    server.memory.faults().release("read");
    assert_eq!(value(first).1, NINE_ADLER);
    assert!(others.into_iter().all(|call| value(call).1 == NINE_ADLER));
    assert_eq!(server.memory.faults().calls("read"), 1);
    let old = server.call_as(&impatient(), Operation::Checksum(target("/data/f")));
    assert_eq!(value(old).1, NINE_ADLER);
}

#[test]
fn a_client_without_deferred_replies_is_asked_to_retry() {
    let server = server();
    server.memory.put("/data/f", NINE);
    let ask = || server.call_as(&impatient(), Operation::Checksum(target("/data/f")));
    assert!(matches!(ask().answer(), Answer::Wait { seconds: 30, .. }));
    while server.logical.status().checksums > 0 {
        std::thread::yield_now();
    }
    assert_eq!(value(ask()).1, NINE_ADLER);
    // A stored checksum is returned at once although nothing is in memory.
    let server = server.restarted();
    let ask = server.call_as(&impatient(), Operation::Checksum(target("/data/f")));
    assert_eq!(value(ask).1, NINE_ADLER);
}

#[test]
fn cancelling_answers_waiting_clients() {
    let server = server();
    server.memory.put("/data/f", &[1; 100_000]);
    server.memory.faults().hold("read");
    let waiting = checksum(&server, "/data/f");
    server.memory.faults().wait_for_held("read", 1);
    server.call(Operation::CancelChecksum(target("/data/f?cks.type=md5"))).done();
    assert_eq!(server.logical.status().checksums, 1);
    server.call(Operation::CancelChecksum(target("/data/f"))).done();
    let text = "Unable to checksum /data/f; operation canceled";
    assert_eq!(waiting.refusal(), (Cancelled, text.to_owned()));
    let again = checksum(&server, "/data/f");
    server.memory.faults().release("read");
    assert_eq!(value(again), adler(&[1; 100_000]));
    server.call(Operation::CancelChecksum(target("/data/nope"))).done();
}

/// Returns a server with a file that is longer than a step, and the content of the file.
fn server_of_a_long_file() -> (Server, Vec<u8>) {
    let server = Server::with(|config| {
        config.checksums.types = vec![Algorithm::Adler32, Algorithm::Md5];
        config.checksums.read_bytes = READ_BYTES;
    });
    let content = vec![7; STEP_BYTES_MAX as usize + 1];
    server.memory.put("/data/f", &content);
    (server, content)
}

const READ_BYTES: usize = 4 << 20;
const READS_OF_A_STEP: usize = STEP_BYTES_MAX as usize / READ_BYTES;

#[test]
fn reading_stops_when_all_clients_have_left() {
    for patient in [true, false] {
        let (server, _) = server_of_a_long_file();
        server.memory.faults().hold("read");
        let (ann, bob) = (caller("ann", 1), if patient { caller("bob", 2) } else { impatient() });
        let ask = |who| server.call_as(who, Operation::Checksum(target("/data/f")));
        let waiting = ask(&ann);
        server.memory.faults().wait_for_held("read", 1);
        let other = ask(&bob);
        ann.disconnect();
        bob.disconnect();
        server.memory.faults().release("read");
        assert_eq!(waiting.error().kind, Cancelled);
        if patient {
            assert_eq!(other.error().kind, Cancelled);
        } else {
            assert!(matches!(other.answer(), Answer::Wait { .. }));
        }
        assert_eq!(server.logical.status().checksums, 0);
        assert_eq!(server.memory.faults().calls("read"), READS_OF_A_STEP);
    }
}

#[test]
fn reading_continues_while_one_client_is_left() {
    let (server, content) = server_of_a_long_file();
    server.memory.faults().hold("read");
    let (ann, old) = (caller("ann", 1), impatient());
    let ask = |who| server.call_as(who, Operation::Checksum(target("/data/f")));
    let leaving = ask(&ann);
    server.memory.faults().wait_for_held("read", 1);
    // A client that was asked to retry counts as waiting.
    assert!(matches!(ask(&old).answer(), Answer::Wait { .. }));
    ann.disconnect();
    server.memory.faults().release("read");
    assert_eq!(leaving.error().kind, Cancelled);
    assert_eq!(value(checksum(&server, "/data/f")), adler(&content));
    assert_eq!(server.memory.faults().calls("read"), READS_OF_A_STEP + 1);
}

#[test]
fn a_file_that_is_replaced_between_two_steps_is_read_again() {
    let (server, _) = server_of_a_long_file();
    server.memory.faults().hold("read");
    let waiting = checksum(&server, "/data/f");
    server.memory.faults().wait_for_held("read", 1);
    server.memory.put("/data/f", NINE);
    server.memory.faults().release("read");
    assert_eq!(value(waiting), adler(NINE));
}

#[test]
fn an_error_or_a_panic_while_reading_answers() {
    let server = server();
    server.memory.put("/data/f", NINE);
    server.memory.faults().fail("read", Some(5));
    let failed = checksum(&server, "/data/f").refusal();
    assert_eq!(failed, (IoError, "Unable to checksum /data/f; input/output error".into()));
    server.memory.faults().fail("read", None);
    server.memory.faults().panic_on("read", true);
    assert_eq!(checksum(&server, "/data/f").error().kind, ServerError);
    server.memory.faults().panic_on("read", false);
    assert_eq!(value(checksum(&server, "/data/f")).1, NINE_ADLER);
}

#[test]
fn a_changed_file_has_no_stored_checksum() {
    type Change = fn(&Server);
    let by_write: Change = |server| {
        let file = server.open("/data/f", updating()).file();
        server.write(&file, 0, b"X").done();
        server.close(&file).done();
    };
    let on_the_spot: Change = |server| {
        let file = server.open("/data/f", updating()).file();
        // Writes wait as long as a checksum is stored.
        assert!(matches!(file.write_now(1, b"Y"), vfs::Now::WouldBlock));
        server.write(&file, 1, b"Y").done();
        assert!(matches!(file.write_now(2, b"Z"), vfs::Now::Done(Ok(()))));
        server.abandon(&file).done();
    };
    let by_truncate: Change = |server| {
        server.call(Operation::Truncate { target: target("/data/f"), size: 3 }).done();
    };
    let by_handle: Change = |server| {
        let file = server.open("/data/f", updating()).file();
        server.on_file(&file, FileOperation::Truncate { size: 3, checkpoint: false }).done();
        server.close(&file).done();
    };
    let by_replacing: Change = |server| {
        let file = server.open("/data/f", replacing()).file();
        server.close(&file).done();
    };
    for change in [by_write, on_the_spot, by_truncate, by_handle, by_replacing] {
        let server = server();
        server.memory.put("/data/f", NINE);
        value(checksum(&server, "/data/f"));
        value(checksum(&server, "/data/f?cks.type=md5"));
        // All changes happen within the resolution of modification times.
        change(&server);
        assert!(stored(&server, "/data/f", Algorithm::Adler32).is_none());
        assert!(stored(&server, "/data/f", Algorithm::Md5).is_none());
        let now = server.memory.content("/data/f").unwrap();
        server.clock.advance(Duration::from_secs(1));
        let server = server.restarted();
        assert_eq!(value(checksum(&server, "/data/f")), adler(&now));
    }
}

#[test]
fn opening_for_update_without_writing_keeps_it() {
    let server = server();
    server.memory.put("/data/f", NINE);
    value(checksum(&server, "/data/f"));
    let file = server.open("/data/f", updating()).file();
    server.close(&file).done();
    assert!(stored(&server, "/data/f", Algorithm::Adler32).is_some());
}

#[test]
fn a_file_written_in_order_has_its_checksum_at_close() {
    for request in [creating(), replacing(), OpenRequest { posc: true, ..creating() }] {
        let server = server();
        let file = server.open("/data/f", request).file();
        assert!(matches!(file.write_now(0, b"1234"), vfs::Now::Done(Ok(()))));
        server.write(&file, 4, b"56").done();
        server.write(&file, 6, b"789").done();
        server.close(&file).done();
        assert_eq!(stored(&server, "/data/f", Algorithm::Adler32).unwrap().checksum.hex(), NINE_ADLER);
        let asked = checksum(&server, "/data/f");
        assert!(asked.was_on_the_spot());
        assert_eq!(value(asked).1, NINE_ADLER);
    }
}

#[test]
fn no_checksum_is_stored_where_it_could_be_wrong() {
    type Upload = fn(&Server);
    let out_of_order: Upload = |server| {
        let file = server.open("/nolock/f", creating()).file();
        server.write(&file, 4, b"56789").done();
        server.write(&file, 0, b"1234").done();
        server.close(&file).done();
    };
    let twice: Upload = |server| {
        let file = server.open("/nolock/f", creating()).file();
        server.write(&file, 0, b"1234").done();
        server.write(&file, 0, b"12345").done();
        server.close(&file).done();
    };
    let truncated: Upload = |server| {
        let file = server.open("/nolock/f", creating()).file();
        server.write(&file, 0, b"1234").done();
        server.on_file(&file, FileOperation::Truncate { size: 4, checkpoint: false }).done();
        server.close(&file).done();
    };
    let abandoned: Upload = |server| {
        let file = server.open("/nolock/f", creating()).file();
        server.write(&file, 0, b"1234").done();
        server.abandon(&file).done();
    };
    let failed: Upload = |server| {
        let file = server.open("/nolock/f", creating()).file();
        server.write(&file, 0, b"1234").done();
        server.memory.faults().fail("write", Some(28));
        assert_eq!(server.write(&file, 4, b"5678").error().kind, NoSpace);
        server.memory.faults().fail("write", None);
        server.close(&file).done();
    };
    let two_writers: Upload = |server| {
        let file = server.open("/nolock/f", creating()).file();
        server.write(&file, 0, b"1234").done();
        let other = server.open_as(&caller("bob", 2), "/nolock/f", updating()).file();
        server.write(&other, 1, b"X").done();
        server.close(&other).done();
        server.close(&file).done();
    };
    let truncated_by_name: Upload = |server| {
        let file = server.open("/nolock/f", creating()).file();
        server.write(&file, 0, b"1234").done();
        server.call(Operation::Truncate { target: target("/nolock/f"), size: 2 }).done();
        server.call(Operation::Truncate { target: target("/nolock/f"), size: 4 }).done();
        server.close(&file).done();
    };
    let checkpointed: Upload = |server| {
        let file = server.open("/nolock/f", creating()).file();
        server.write(&file, 0, b"1234").done();
        server.on_file(&file, FileOperation::Checkpoint(vfs::CheckpointWork::Begin)).done();
        server.write(&file, 4, b"5678").done();
        server.close(&file).done();
    };
    let uploads =
        [out_of_order, twice, truncated, abandoned, failed, two_writers, truncated_by_name, checkpointed];
    for (number, upload) in uploads.into_iter().enumerate() {
        let server = server();
        upload(&server);
        assert!(stored(&server, "/nolock/f", Algorithm::Adler32).is_none(), "{number}");
        let content = server.memory.content("/nolock/f").unwrap();
        assert_eq!(value(checksum(&server, "/nolock/f")), adler(&content), "{number}");
    }
}

#[test]
fn a_change_within_the_resolution_of_times_invalidates_the_cache() {
    let server = server();
    server.memory.put("/data/f", NINE);
    value(checksum(&server, "/data/f"));
    assert!(checksum(&server, "/data/f").was_on_the_spot());
    let file = server.open("/data/f", updating()).file();
    server.write(&file, 0, b"9").done();
    server.close(&file).done();
    assert_eq!(value(checksum(&server, "/data/f")), adler(b"923456789"));
}

#[test]
fn a_writer_under_another_name_is_a_writer_of_the_file() {
    let server = server();
    let file = server.open("/data/f", creating()).file();
    server.write(&file, 0, b"1234").done();
    server.memory.link("/data/f", "/data/g");
    let other = server.open_as(&caller("bob", 2), "/data/g", updating()).file();
    server.write(&other, 1, b"X").done();
    server.close(&other).done();
    server.close(&file).done();
    assert!(stored(&server, "/data/f", Algorithm::Adler32).is_none());
    assert_eq!(value(checksum(&server, "/data/f")), adler(b"1X34"));

    // The checksum is cached and stored now; neither is used while the file is open for writing.
    let other = server.open_as(&caller("bob", 2), "/data/g", updating()).file();
    server.write(&other, 0, b"Y").done();
    assert_eq!(value(checksum(&server, "/data/f")), adler(b"YX34"));
    assert!(stored(&server, "/data/f", Algorithm::Adler32).is_none());
    server.write(&other, 0, b"Z").done();
    server.close(&other).done();
    assert_eq!(value(checksum(&server, "/data/f")), adler(b"ZX34"));
}

#[test]
fn a_truncation_under_another_name_ends_a_running_checksum() {
    let server = server();
    let file = server.open("/data/f", creating()).file();
    server.write(&file, 0, b"1234").done();
    server.memory.link("/data/f", "/data/g");
    server.call(Operation::Truncate { target: target("/data/g"), size: 2 }).done();
    server.call(Operation::Truncate { target: target("/data/g"), size: 4 }).done();
    server.close(&file).done();
    assert!(stored(&server, "/data/f", Algorithm::Adler32).is_none());
}

#[test]
fn a_checksum_computed_during_a_write_is_not_stored() {
    let server = server();
    server.memory.put("/nolock/f", NINE);
    value(checksum(&server, "/nolock/f"));
    let file = server.open("/nolock/f", updating()).file();
    server.write(&file, 0, b"9").done();
    assert_eq!(value(checksum(&server, "/nolock/f")), adler(b"923456789"));
    assert!(stored(&server, "/nolock/f", Algorithm::Adler32).is_none());
    server.write(&file, 1, b"9").done();
    assert_eq!(value(checksum(&server, "/nolock/f")), adler(b"993456789"));
    server.close(&file).done();
}

#[test]
fn listings_show_stored_checksums_and_compute_none() {
    let server = server();
    server.memory.put("/data/d/known", NINE);
    server.memory.put("/data/d/unknown", NINE);
    server.memory.put("/data/d/sub/x", b"");
    value(checksum(&server, "/data/d/known?cks.type=md5"));
    let list = |name: &str| {
        let detail = ListDetail { stat: true, checksum: true, online: false };
        server.call(Operation::List(target(name), detail))
    };
    let Value::Listing { entries, .. } = list("/data/d?cks.type=md5").value() else { panic!() };
    let shown: Vec<_> = entries
        .iter()
        .map(|entry| (String::from_utf8(entry.name.clone()).unwrap(), entry.checksum.clone().unwrap()))
        .collect();
    let md5 = |hex: Option<&str>| ("md5".to_owned(), hex.map(str::to_owned));
    assert_eq!(
        shown,
        [
            ("known".to_owned(), md5(Some("25f9e794323b453885f5181f1b624d0b"))),
            ("sub".to_owned(), md5(None)),
            ("unknown".to_owned(), md5(None)),
        ]
    );
    let unknown = list("/data/d?cks.type=foo").refusal();
    assert_eq!(unknown, (ServerError, "foo checksum not supported.".into()));
    server.open("/data/d/known", reading()).done();
}
