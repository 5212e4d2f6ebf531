//! What a process inherits by `fork`: the child goes on with its clients and files over connections of its own and sends
//! nothing over those of its parent.
//!
//! The process that forks is this test program, started anew: `daemon` forks, ends the parent, and goes on in the child.

#![allow(clippy::unwrap_used)]

mod support;

use std::process::Command;
use std::sync::mpsc;

use client::xroot::RequestCode;
use client::{OpenWith, Settings, Url, blocking};
use support::{Fake, SERVER, ok, opened, stat_text};

const URL: &str = "SCALLA_TEST_FORK_URL";

/// Opens and reads, forks, and does the same in the child.
fn fork_and_go_on(url: &str) {
    let url = Url::parse(url).unwrap();
    let client = blocking::Client::with(Settings::default(), "test");
    let file = client.open(&url, &OpenWith::read()).unwrap();
    assert_eq!(file.read(0, 4).unwrap(), "data");
    let parent = std::process::id();
    nix::unistd::daemon(true, true).unwrap();
    let read = file.read(0, 4).unwrap();
    let size = client.file_system(&url).stat("/child").unwrap().size;
    println!("\nchild {} read {read:?} of {size}", std::process::id() != parent);
    file.close().unwrap();
    // Dropping what was inherited must not be felt at the server either.
    drop((file, client));
    std::process::exit(0);
}

#[test]
fn a_child_goes_on_over_connections_of_its_own() {
    if let Ok(url) = std::env::var(URL) {
        return fork_and_go_on(&url);
    }
    let (tell, told) = mpsc::channel();
    let (until, end) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let server = Fake::start(SERVER, |asked| match asked.code() {
                RequestCode::OPEN => opened(asked, asked.connection as u8 + 1, 4),
                RequestCode::READ => ok(asked, b"data"),
                RequestCode::STAT => ok(asked, &stat_text(9)),
                _ => ok(asked, b""),
            })
            .await;
            tell.send((server.url("/file"), server.asked.clone())).unwrap();
            let _ = end.await;
        });
    });
    let (url, asked) = told.recv().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_child_goes_on_over_connections_of_its_own", "--nocapture"]);
    // Its output ends when the child has ended too.
    let output = command.env(URL, url.to_string()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("child true read b\"data\" of 9"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let asked = asked.lock().unwrap();
    let of = |connection: u32| -> Vec<RequestCode> {
        asked.iter().filter(|asked| asked.connection == connection).map(|asked| asked.code()).collect()
    };
    assert_eq!(of(0), [RequestCode::OPEN, RequestCode::READ]);
    let theirs: Vec<RequestCode> = (1..4).flat_map(of).collect();
    assert_eq!(theirs, [RequestCode::OPEN, RequestCode::READ, RequestCode::STAT, RequestCode::CLOSE]);
    let handle = |code, connection| {
        let found = asked.iter().find(|asked| asked.code() == code && asked.connection == connection);
        found.unwrap().header.body[0]
    };
    // By the handle that it opened itself.
    assert_eq!((handle(RequestCode::READ, 0), handle(RequestCode::READ, 1)), (1, 2));
    drop(until);
}
