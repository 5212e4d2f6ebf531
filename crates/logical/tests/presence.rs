//! Tests of the presence of paths, and of walks over all of them.

#![allow(clippy::unwrap_used)] // a panic is the failure of a test

mod support;

use logical::PathPresence;
use std::sync::mpsc;
use support::memory::POOL_THREADS;
use support::{Server, creating, path};
use vfs::OpenRequest;

fn look(server: &Server, name: &str) -> PathPresence {
    let now = server.logical.look_now(&path(name));
    now.unwrap_or_else(|| look_on_disk(server, &[name])[0])
}

fn look_on_disk(server: &Server, names: &[&str]) -> Vec<PathPresence> {
    let (tell, told) = mpsc::channel();
    let paths = names.iter().enumerate().map(|(number, name)| (path(name), number)).collect();
    server.logical.look(paths, &move |looked| tell.send(looked).unwrap());
    let mut all: Vec<_> = told.iter().flatten().collect();
    all.sort_by_key(|(_, number, _)| *number);
    let seen: Vec<String> = all.iter().map(|(path, ..)| path.text().into_owned()).collect();
    assert_eq!(seen, names, "each name once");
    all.into_iter().map(|(_, _, presence)| presence).collect()
}

#[test]
fn each_of_many_names_in_one_lookup_has_its_answer() {
    let server = Server::new();
    let names: Vec<String> = (0..100).map(|number| format!("/data/f{number}")).collect();
    for name in names.iter().step_by(3) {
        server.memory.put(name, b"");
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for (number, presence) in look_on_disk(&server, &names).into_iter().enumerate() {
        let here = PathPresence::Here { pending: false };
        assert_eq!(presence, if number % 3 == 0 { here } else { PathPresence::NotHere });
    }
}

#[test]
fn names_refused_by_a_full_pool_are_not_looked_up() {
    let server = Server::new();
    let names: Vec<String> = (0..40).map(|number| format!("/data/f{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let full = server.memory.fill_pool(POOL_THREADS);
    assert_eq!(look_on_disk(&server, &names), [PathPresence::Overloaded; 40]);
    drop(full);
    assert_eq!(look_on_disk(&server, &names), [PathPresence::NotHere; 40]);
}

#[test]
fn an_unfinished_file_is_pending() {
    let server = Server::new();
    assert_eq!(look(&server, "/data/f"), PathPresence::NotHere);
    let file = server.open("/data/f", OpenRequest { posc: true, ..creating() }).file();
    assert_eq!(look(&server, "/data/f"), PathPresence::Here { pending: true });
    server.close(&file).done();
    assert_eq!(look(&server, "/data/f"), PathPresence::Here { pending: false });
}

#[test]
fn a_path_outside_of_the_exports_is_not_here() {
    let server = Server::new();
    server.memory.put("/elsewhere/x", b"");
    assert_eq!(look(&server, "/elsewhere/x"), PathPresence::NotHere);
    assert_eq!(look(&server, "/data"), PathPresence::Here { pending: false });
    assert_eq!(look(&server, "/data/x/below-a-file"), PathPresence::NotHere);
}

#[test]
fn a_walk_visits_every_complete_file_and_can_be_stopped() {
    let server = Server::new();
    server.memory.put("/data/d/e/y", b"");
    server.memory.put("/elsewhere/z", b"");
    let _pending = server.open("/data/p", OpenRequest { posc: true, ..creating() }).file();
    let mut names = Vec::new();
    server.logical.walk(&mut |path| {
        names.push(path.text().into_owned());
        true
    });
    names.sort();
    assert_eq!(names, ["/data/d/e/y", "/data/x", "/nolock/x", "/ro/x"]);
    let mut count = 0;
    server.logical.walk(&mut |_| {
        count += 1;
        false
    });
    assert_eq!(count, 1);
}
