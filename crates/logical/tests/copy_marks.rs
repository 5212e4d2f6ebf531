//! Tests of the attribute of files that need a copy in mass storage.

#![allow(clippy::unwrap_used)]

mod support;

use base::ErrorKind;
use logical::config::ExportConfig;
use storage::{Backend as _, COPY_TIME_ATTRIBUTE, CopyTime};
use support::{Server, creating, path, posc, reading, replacing, target, updating};
use vfs::{Answer, AttributeWork, Now, Operation, Value};

/// Error numbers of the operating system.
const TRY_AGAIN: i32 = 11;
const ACCESS: i32 = 13;
const NO_SPACE: i32 = 28;
const UNSUPPORTED: i32 = 95;

/// Starts a server that migrates `/mig`, stages `/stage` and purges `/purge`.
fn server() -> Server {
    let server = Server::with(|config| {
        config.exports.push(ExportConfig { migrate: true, ..ExportConfig::new(path("/mig")) });
        config.exports.push(ExportConfig { stage: true, ..ExportConfig::new(path("/stage")) });
        config.exports.push(ExportConfig { purge: true, ..ExportConfig::new(path("/purge")) });
    });
    for directory in ["/mig/x", "/purge/x"] {
        server.memory.put(directory, b"old");
    }
    server
}

fn copied(server: &Server, name: &str) -> Option<CopyTime> {
    let value = server.memory.attribute(&path(name), COPY_TIME_ATTRIBUTE).unwrap();
    value.map(|value| CopyTime::decode(&value).unwrap())
}

fn set_copied(server: &Server, name: &str) {
    let value = CopyTime(77).encode();
    server.memory.set_attribute(&path(name), COPY_TIME_ATTRIBUTE, &value, false).unwrap();
}

#[test]
fn a_file_is_marked_when_it_is_opened_for_writing() {
    let server = server();
    for (name, request, wanted) in [
        ("/mig/new", creating(), Some(CopyTime::NEVER)),
        ("/purge/new", creating(), Some(CopyTime::NEVER)),
        ("/mig/posc", posc(creating()), Some(CopyTime::NEVER)),
        ("/data/new", creating(), None),
        ("/mig/x", reading(), None),
        ("/mig/x", updating(), Some(CopyTime::NEVER)),
        ("/data/x", updating(), None),
    ] {
        let file = server.open(name, request).file();
        assert_eq!(copied(&server, name), wanted, "{name}");
        server.close(&file).done();
    }
    set_copied(&server, "/mig/x");
    server.close(&server.open("/mig/x", updating()).file()).done();
    assert_eq!(copied(&server, "/mig/x"), Some(CopyTime(77)), "its time decides, once it is written");
    server.close(&server.open("/mig/x", replacing()).file()).done();
    assert_eq!(copied(&server, "/mig/x"), Some(CopyTime::NEVER));
}

#[test]
fn a_renamed_file_has_no_copy() {
    let server = server();
    let rename = |from: &str, to: &str| server.call(Operation::rename(target(from), target(to)));
    set_copied(&server, "/mig/x");
    rename("/mig/x", "/mig/x").done();
    assert_eq!(copied(&server, "/mig/x"), Some(CopyTime(77)), "it has kept its name");
    rename("/mig/x", "/mig/y").done();
    assert_eq!(copied(&server, "/mig/y"), Some(CopyTime::NEVER));
    rename("/data/x", "/mig/z").done();
    assert_eq!(copied(&server, "/mig/z"), None, "it came from elsewhere");
    for (from, to) in [("/stage/x", "/stage/y"), ("/stage/z", "/data/z")] {
        server.memory.put(from, b"");
        set_copied(&server, from);
        rename(from, to).done();
        assert_eq!(copied(&server, to), Some(CopyTime::NEVER), "{to}");
    }
    let excluded = CopyTime::PLACEHOLDER;
    server.memory.set_attribute(&path("/mig/y"), COPY_TIME_ATTRIBUTE, &excluded.encode(), false).unwrap();
    rename("/mig/y", "/mig/excluded").done();
    assert_eq!(copied(&server, "/mig/excluded"), Some(excluded));
    server.memory.put("/mig/d/f", b"");
    set_copied(&server, "/mig/d/f");
    let (kind, text) = rename("/mig/d", "/mig/e").refusal();
    assert_eq!(kind, ErrorKind::Unsupported);
    assert!(text.contains("rename its files one by one"), "{text}");
    assert_eq!(copied(&server, "/mig/d/f"), Some(CopyTime(77)));
    server.call(Operation::Remove(target("/mig/d/f"))).done();
    rename("/mig/d", "/mig/e").done();
}

#[test]
fn a_rename_that_is_refused_leaves_the_attribute() {
    let server = server();
    let rename = || server.call(Operation::rename(target("/mig/x"), target("/mig/y")));
    set_copied(&server, "/mig/x");
    server.memory.faults().fail("rename", Some(NO_SPACE));
    rename().refusal();
    assert_eq!(copied(&server, "/mig/x"), Some(CopyTime(77)));
    server.memory.faults().fail("rename", None);
    // Neither the attribute of a copy can be reset, nor would it be right under the new name.
    server.memory.faults().fail("set_attribute", Some(ACCESS));
    let (kind, text) = rename().refusal();
    assert_eq!(kind, ErrorKind::NotAuthorized);
    assert!(text.contains("says that mass storage has a copy, and cannot be reset"), "{text}");
    assert_eq!(copied(&server, "/mig/x"), Some(CopyTime(77)));
    // There is nothing to reset.
    for never in [Some(CopyTime::NEVER), None] {
        server.memory.faults().fail("set_attribute", None);
        server.memory.put("/mig/x", b"");
        if let Some(never) = never {
            let value = never.encode();
            server.memory.set_attribute(&path("/mig/x"), COPY_TIME_ATTRIBUTE, &value, false).unwrap();
        }
        server.memory.faults().fail("set_attribute", Some(ACCESS));
        rename().done();
        assert_eq!(copied(&server, "/mig/y"), never);
    }
}

/// The system refuses opens of a file for which another process has a lease.
#[test]
fn a_rename_of_a_file_with_a_lease_is_repeated_by_the_client() {
    let server = server();
    let rename = || server.call(Operation::rename(target("/mig/x"), target("/mig/y")));
    server.memory.faults().fail("hold", Some(TRY_AGAIN));
    let Answer::Wait { seconds, text } = rename().answer() else { panic!("it is not repeated") };
    assert!(seconds == 1 && text.contains("/mig/x is in use by another process"), "{text}");
    server.memory.faults().fail("hold", None);
    rename().done();
}

#[test]
fn a_file_that_the_server_cannot_read_is_renamed() {
    let server = server();
    server.memory.faults().fail("hold", Some(ACCESS));
    server.call(Operation::rename(target("/mig/x"), target("/mig/y"))).done();
}

#[test]
fn a_file_is_created_without_room_for_the_attribute() {
    let server = server();
    for error in [NO_SPACE, UNSUPPORTED] {
        server.memory.faults().fail("set_attribute", Some(error));
        for (name, request) in [("/mig/new", creating()), ("/mig/x", updating()), ("/mig/x", replacing())] {
            let file = server.open(name, request).file();
            assert_eq!(copied(&server, name), None, "{name}");
            server.close(&file).done();
        }
        server.call(Operation::Remove(target("/mig/new"))).done();
    }
    // The copy is one of the former content.
    server.memory.faults().fail("set_attribute", None);
    set_copied(&server, "/mig/x");
    server.memory.faults().fail("set_attribute", Some(NO_SPACE));
    let (_, text) = server.open("/mig/x", replacing()).refusal();
    assert!(text.contains("says that mass storage has a copy, and cannot be reset"), "{text}");
    server.close(&server.open("/mig/x", updating()).file()).done();
}

#[test]
fn only_the_first_change_of_a_file_with_a_copy_waits_for_a_sync() {
    let server = server();
    server.memory.put("/stage/x", b"old");
    for name in ["/mig/x", "/purge/x", "/stage/x"] {
        set_copied(&server, name);
        let file = server.open(name, updating()).file();
        let before = server.memory.faults().calls("sync");
        assert!(matches!(file.write_now(0, b"n"), Now::WouldBlock), "{name}");
        server.memory.faults().fail("sync", Some(NO_SPACE));
        for _ in 0..2 {
            let (_, text) = server.write(&file, 0, b"n").refusal();
            assert!(text.contains("says that mass storage has a copy, and cannot be reset"), "{text}");
            assert_eq!(server.memory.content(name).unwrap(), b"old", "{name}");
        }
        server.memory.faults().fail("sync", None);
        server.write(&file, 0, b"n").done();
        assert_eq!(copied(&server, name), Some(CopyTime::NEVER), "{name}");
        assert!(matches!(file.write_now(1, b"e"), Now::Done(Ok(()))), "{name}");
        server.close(&file).done();
        let file = server.open(name, updating()).file();
        server.write(&file, 2, b"w").done();
        assert_eq!(server.memory.faults().calls("sync"), before + 3, "{name}");
        server.close(&file).done();
    }
}

#[test]
fn clients_cannot_reach_the_attribute() {
    let server = server();
    set_copied(&server, "/mig/x");
    let work = |work| server.call(Operation::Attributes(target("/mig/x"), work)).value();
    for name in [COPY_TIME_ATTRIBUTE, "XrdFrm.Cpy", "../XrdFrm.Cpy"] {
        let pairs = vec![(name.as_bytes().to_vec(), b"1".to_vec())];
        work(AttributeWork::Set { pairs, new: false });
        work(AttributeWork::Remove(vec![name.as_bytes().to_vec()]));
        assert_eq!(copied(&server, "/mig/x"), Some(CopyTime(77)), "{name}");
    }
    let Value::Attributes(listed) = work(AttributeWork::List { values: true }) else { panic!() };
    assert!(listed.is_empty());
}
