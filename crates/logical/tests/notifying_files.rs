//! Tests of the events about files of clients: their order, their values, and operations without an event.

#![allow(clippy::unwrap_used)]

mod support;

use config::NotifyEvent;
use logical::{NotifyReceiver, NotifyValues, NotifyingFiles};
use std::sync::{Arc, Mutex};
use support::{Client, Server, caller, creating, posc, reading, replacing, target, updating};
use vfs::{CloneRange, FileOperation, Operation};

/// The events as lines.
#[derive(Default)]
struct NotifyDiary(Mutex<Vec<String>>);

impl NotifyReceiver for NotifyDiary {
    fn notify(&self, event: NotifyEvent, values: NotifyValues<'_>) {
        let NotifyValues { caller, target, new_target, mode, size, .. } = values;
        let new = new_target.map(|target| format!(">{}", target.path.text())).unwrap_or_default();
        let cgi = String::from_utf8_lossy(target.cgi.as_bytes());
        let (user, name, path) = (caller.identity.user(), event.name(), target.path.text());
        self.0
            .lock()
            .unwrap()
            .push(format!("{user} {name} {path}{new} {mode:o} {size} {cgi}").trim_end().to_owned());
    }
}

impl NotifyDiary {
    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

fn watched(events: &[NotifyEvent]) -> (Server, Client, Arc<NotifyDiary>) {
    let (server, diary) = (Server::new(), Arc::new(NotifyDiary::default()));
    let events = events.iter().copied().collect();
    let files = NotifyingFiles::before(server.logical.clone(), events, diary.clone());
    (server, Client::new(files, caller("u", 1)), diary)
}

#[test]
fn each_operation_is_reported_after_it_has_succeeded() {
    let (_server, client, diary) = watched(&NotifyEvent::ALL);
    let change_mode = |name: &str, mode| Operation::ChangeMode { target: target(name), mode };
    let truncate = |name: &str, size| Operation::Truncate { target: target(name), size };
    let file = client.open("/data/f?x=1", creating()).file();
    client.write(&file, 0, b"ab").done();
    client.write(&file, 2, b"cd").done();
    client.close(&file).done();
    let create = format!("u create /data/f {:o} 0 x=1", creating().mode);
    let rest = ["openw /data/f 0 0", "fwrite /data/f 0 0", "closew /data/f 0 4"]
        .map(|event| format!("u {event} x=1"));
    assert_eq!(diary.taken(), [&[create][..], &rest].concat());
    for (operation, expected) in [
        (Operation::make_directory(target("/data/d/e"), 0o750, true), "mkdir /data/d/e 750 0"),
        (change_mode("/data/f?y=2", 0o640), "chmod /data/f 640 0 y=2"),
        (truncate("/data/f", 3), "trunc /data/f 0 3"),
        (Operation::rename(target("/data/f"), target("/data/g")), "mv /data/f>/data/g 0 0"),
        (Operation::Remove(target("/data/g")), "rm /data/g 0 0"),
        (Operation::RemoveDirectory(target("/data/d/e")), "rmdir /data/d/e 0 0"),
    ] {
        client.call(operation).done();
        assert_eq!(diary.taken(), [format!("u {expected}")]);
    }
    for operation in [
        Operation::Remove(target("/data/none")),
        Operation::rename(target("/data/none"), target("/data/x")),
        change_mode("/data/none", 0o600),
        truncate("/data/none", 1),
        Operation::make_directory(target("/data/d"), 0o755, false),
    ] {
        client.call(operation).error();
    }
    client.open("/data/none", reading()).error();
    client.open("/data/none", updating()).error();
    assert!(diary.taken().is_empty(), "they have failed");
}

#[test]
fn a_file_is_closed_once_however_its_client_leaves() {
    let (_server, client, diary) = watched(&[NotifyEvent::CloseReader, NotifyEvent::CloseWriter]);
    client.close(&client.open("/data/f", creating()).file()).done();
    assert_eq!(diary.taken(), ["u closew /data/f 0 0"]);
    let file = client.open("/data/f", reading()).file();
    client.abandon(&file).done();
    drop(file);
    assert_eq!(diary.taken(), ["u closer /data/f 0 0"]);
    let file = client.open("/data/f", updating()).file();
    client.write(&file, 0, b"abc").done();
    drop(file);
    assert_eq!(diary.taken(), ["u closew /data/f 0 3"]);
    // The incomplete file is removed.
    let file = client.open("/data/p", posc(creating())).file();
    client.write(&file, 0, b"abc").done();
    client.abandon(&file).done();
    assert_eq!(diary.taken(), ["u closew /data/p 0 3"]);
}

#[test]
fn writes_of_all_kinds_are_the_first_one() {
    let (_server, client, diary) = watched(&[NotifyEvent::FirstWrite, NotifyEvent::Trunc]);
    let source = client.open("/data/source", creating()).file();
    assert!(diary.taken().is_empty());
    client.write(&source, 0, b"abc").done();
    assert_eq!(diary.taken(), ["u fwrite /data/source 0 0"]);
    let file = client.open("/data/f", replacing()).file();
    // An open file is also what the file system below has made of it.
    let range = base::CopyRange { from: 0, to: 0, length: 3 };
    let ranges = vec![CloneRange { source: source.clone(), range }];
    client.on_file(&file, FileOperation::CloneFrom(ranges)).done();
    assert_eq!(diary.taken(), ["u fwrite /data/f 0 0"]);
    client.on_file(&file, FileOperation::Truncate { size: 1, checkpoint: false }).done();
    assert_eq!(diary.taken(), ["u trunc /data/f 0 1"]);
    client.close(&file).done();
    let again = client.open("/data/f", updating()).file();
    if let vfs::Now::Done(done) = again.write_now(0, b"x") {
        done.unwrap();
        assert_eq!(diary.taken(), ["u fwrite /data/f 0 0"]);
    }
}

#[test]
fn only_the_named_events_are_reported() {
    let (_server, client, diary) = watched(&[NotifyEvent::OpenReader]);
    let file = client.open("/data/f", creating()).file();
    client.write(&file, 0, b"ab").done();
    client.close(&file).done();
    client.call(Operation::make_directory(target("/data/d"), 0o755, false)).done();
    client.close(&client.open("/data/f", reading()).file()).done();
    client.call(Operation::Remove(target("/data/f"))).done();
    assert_eq!(diary.taken(), ["u openr /data/f 0 0"]);
}
