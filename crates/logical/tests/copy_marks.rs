//! Tests of the attribute of files that need a copy in mass storage.

#![allow(clippy::unwrap_used)]

mod support;

use base::ErrorKind;
use logical::config::ExportConfig;
use storage::{Backend as _, COPY_TIME_ATTRIBUTE, CopyTime};
use support::{Server, creating, path, posc, reading, replacing, target, updating};
use vfs::{AttributeWork, Operation, Value};

/// Starts a server that migrates `/mig` and purges `/purge`.
fn server() -> Server {
    let server = Server::with(|config| {
        config.exports.push(ExportConfig { migrate: true, ..ExportConfig::new(path("/mig")) });
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
    assert_eq!(copied(&server, "/mig/z"), Some(CopyTime::NEVER), "it came from elsewhere");
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
