//! Reopening a file after a lost connection: it is the same file, or the operation fails.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use client::{Cause, File, OpenWith};
use support::{Act, Asked, Fake, MANAGER, PLAIN, client, close, ok, send};
use wire::xroot::RequestCode;
use wire::xroot::reply::{self, Redirect};

/// Builds the reply to an open with the number, size and time of the file.
fn opened(asked: &Asked, id: u64, size: u64, mtime: i64) -> Act {
    let stat = format!("{id} {size} 48 {mtime} 98 97 0644 me us\0");
    ok(asked, &[&[1, 0, 0, 0][..], &[0; 8], stat.as_bytes()].concat())
}

fn redirect(asked: &Asked, port: u16) -> Act {
    send(|out| reply::redirect(out, asked.header.streamid, &Redirect::to_host(b"127.0.0.1", port)))
}

/// Starts a server with an older replica of the file, which must not be opened.
async fn older_replica() -> Fake {
    Fake::start(PLAIN, |asked| match asked.code() {
        RequestCode::OPEN => opened(asked, 3, 16, 50),
        _ => ok(asked, b""),
    })
    .await
}

/// Starts a manager that redirects opens to the first server, and to the second after a failure of
/// the first.
async fn manager(first: u16, second: u16) -> Fake {
    Fake::start(MANAGER, move |asked| {
        redirect(asked, if asked.text().contains("tried=") { second } else { first })
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_writer_does_not_continue_in_an_older_replica() {
    let dies = Fake::start(PLAIN, |asked| match asked.code() {
        RequestCode::OPEN => opened(asked, 7, 0, 100),
        _ => ok(asked, b""),
    })
    .await;
    let other = older_replica().await;
    let manager = manager(dies.address.port(), other.address.port()).await;
    let file = client(&[]).open(&manager.url("/a"), &OpenWith::overwrite()).await.unwrap();
    file.write(0, &b"abcd"[..]).await.unwrap();
    dies.stop().await;
    let error = file.write(4, &b"efgh"[..]).await.unwrap_err();
    assert!(matches!(error.cause(), Cause::NotRecovered { .. }), "{error}");
    assert_eq!(other.asked.lock().unwrap().len(), 0, "nothing reached the replica");
    assert_eq!(manager.count(RequestCode::OPEN), 1, "no other server was asked for");
}

#[tokio::test]
async fn a_writer_does_not_follow_a_redirect_to_another_server() {
    let other = older_replica().await;
    let port = other.address.port();
    let server = Fake::start(PLAIN, move |asked| match (asked.connection, asked.code()) {
        (0, RequestCode::OPEN) => opened(asked, 7, 0, 100),
        (0, RequestCode::WRITE) => close(),
        (_, RequestCode::OPEN) => redirect(asked, port),
        _ => ok(asked, b""),
    })
    .await;
    let file = client(&[]).open(&server.url("/a"), &OpenWith::update()).await.unwrap();
    let error = file.write(0, &b"abcd"[..]).await.unwrap_err();
    assert!(error.to_string().contains("stays at its server"), "{error}");
    assert_eq!(other.asked.lock().unwrap().len(), 0);
}

/// Opens a file with number 7, 8 bytes and time 100. A later open returns the values of `again`.
async fn replaced(with: &OpenWith, again: (u64, u64, i64)) -> (Result<(), client::Error>, File, Fake) {
    let lost = Arc::new(AtomicBool::new(false));
    let server = Fake::start(PLAIN, move |asked| match asked.code() {
        RequestCode::OPEN if lost.load(Ordering::SeqCst) => opened(asked, again.0, again.1, again.2),
        RequestCode::OPEN => opened(asked, 7, 8, 100),
        RequestCode::SYNC if !lost.swap(true, Ordering::SeqCst) => close(),
        _ => ok(asked, b""),
    })
    .await;
    let file = client(&[]).open(&server.url("/a"), with).await.unwrap();
    let done = file.sync().await;
    (done, file, server)
}

#[tokio::test]
async fn a_replaced_file_is_not_written() {
    let (done, _file, server) = replaced(&OpenWith::update(), (9, 8, 100)).await;
    assert!(matches!(done.unwrap_err().cause(), Cause::Changed(_)));
    assert_eq!(server.count(RequestCode::SYNC), 1);
    let (done, file, _server) = replaced(&OpenWith::update(), (7, 20, 101)).await;
    done.unwrap();
    assert_eq!(file.identity().unwrap().size, 20);
}

#[tokio::test]
async fn a_replaced_file_that_persists_on_close_is_not_closed() {
    let mut opens = 0;
    let server = Fake::start(PLAIN, move |asked| match asked.code() {
        RequestCode::OPEN => {
            opens += 1;
            // The server has lost the data that it had acknowledged.
            opened(asked, 7, if opens == 1 { 0 } else { 2 }, 100)
        }
        RequestCode::SYNC => close(),
        _ => ok(asked, b"7 2 48 100\0"),
    })
    .await;
    let client = client(&[]);
    let with = OpenWith::update().persist_on_successful_close();
    let file = client.open(&server.url("/a"), &with).await.unwrap();
    file.write(0, &b"abcd"[..]).await.unwrap();
    let error = file.sync().await.unwrap_err();
    assert!(matches!(error.cause(), Cause::Changed(_)), "{error}");
    // A close that was sent would come before this on the connection of the second open, which ends.
    client.file_system(&server.url("/")).stat("/a").await.unwrap();
    assert_eq!(server.count(RequestCode::CLOSE), 0);
    assert_eq!(server.asked.lock().unwrap().last().unwrap().connection, 2);
}

#[tokio::test]
async fn a_replaced_file_is_not_read() {
    for (again, is_same) in
        [((7, 9, 101), true), ((9, 8, 100), true), ((9, 8, 101), false), ((9, 9, 100), false)]
    {
        let (done, ..) = replaced(&OpenWith::read(), again).await;
        assert_eq!(done.is_ok(), is_same, "{again:?}");
        if let Err(error) = done {
            assert!(matches!(error.cause(), Cause::Changed(_)), "{error}");
        }
    }
}
