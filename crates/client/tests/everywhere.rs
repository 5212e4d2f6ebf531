//! Operations on all servers of a cluster: creation of directories.

#![allow(clippy::unwrap_used)]

mod support;

use client::xroot::{ErrorCode, RequestCode};
use support::{Act, Asked, Fake, MANAGER, SERVER, client, ok, send};
use wire::xroot::reply;

fn says(asked: &Asked, code: Option<ErrorCode>) -> Act {
    match code {
        None => ok(asked, b""),
        Some(code) => send(|out| reply::error(out, asked.header.streamid, code, "no")),
    }
}

#[tokio::test]
async fn parents_may_exist_with_other_permissions() {
    // Flag 2 marks a directory.
    for (flags, expected) in [(16 + 2, None), (16, Some(ErrorCode::IT_EXISTS))] {
        let server = Fake::start(SERVER, move |asked| match asked.code() {
            RequestCode::STAT => ok(asked, format!("7 4096 {} 9\0", flags).as_bytes()),
            _ => says(asked, Some(ErrorCode::IT_EXISTS)),
        })
        .await;
        let made = client(&[]).file_system(&server.url("/")).mkdir_all("/new", 0o755).await;
        assert_eq!(made.err().and_then(|error| error.code()), expected);
    }
}

/// Creates a directory at servers with these replies; `None` is success.
async fn made(each: &[Option<ErrorCode>], parents: bool) -> Option<ErrorCode> {
    let mut servers = Vec::new();
    for answer in each.iter().copied() {
        servers.push(Fake::start(SERVER, move |asked| says(asked, answer)).await);
    }
    let places: Vec<String> = servers.iter().map(|server| format!("Sw{}", server.address)).collect();
    let places = format!("{}\0", places.join(" "));
    let manager = Fake::start(MANAGER, move |asked| ok(asked, places.as_bytes())).await;
    let files = client(&[]).file_system(&manager.url("/"));
    let result = files.mkdir_everywhere("/new", 0o755, parents).await;
    assert!(servers.iter().all(|server| server.count(RequestCode::MKDIR) == 1));
    result.err().map(|error| error.code().unwrap())
}

#[tokio::test]
async fn an_existing_directory_at_all_servers_is_an_error() {
    let (good, there) = (None, Some(ErrorCode::IT_EXISTS));
    let (missing, full) = (Some(ErrorCode::NOT_FOUND), Some(ErrorCode::NO_SPACE));
    let table = [
        (vec![good, good], None),
        (vec![there, there], there),
        (vec![there], there),
        // One server created it; the others may share its disks or have a link.
        (vec![there, good], None),
        (vec![good, missing], None),
        (vec![missing, there], there),
        (vec![missing, missing], missing),
        (vec![good, there, full], full),
    ];
    for (each, expected) in table {
        for parents in [false, true] {
            assert_eq!(made(&each, parents).await, expected, "{each:?}");
        }
    }
}
