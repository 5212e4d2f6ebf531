//! Limits of connections that several clients share.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::atomic::Ordering;

use client::{Client, ConnectionLimits, OpenWith};
use support::{Asked, Fake, SERVER, client, ok, opened, stat_text};
use wire::xroot::RequestCode;

fn limited(limits: &ConnectionLimits) -> Client {
    let client = client(&[("ConnectionWindow", "20"), ("ConnectionRetry", "1")]);
    client.limit_connections(limits.clone());
    client
}

async fn server() -> Fake {
    let answer = |asked: &Asked| match asked.code() {
        RequestCode::OPEN => opened(asked, 1, 100),
        RequestCode::READ => ok(asked, b"x"),
        _ => ok(asked, &stat_text(1)),
    };
    Fake::start(SERVER, answer).await
}

#[tokio::test]
async fn an_unused_connection_of_another_client_makes_room() {
    let limits = ConnectionLimits::new(8, 1);
    let (server, clients) = (server().await, [limited(&limits), limited(&limits)]);
    for round in 0..3_u32 {
        for (number, client) in (0..).zip(&clients) {
            client.file_system(&server.url("a")).stat("/a").await.unwrap();
            assert_eq!(server.connections.load(Ordering::SeqCst), 2 * round + number + 1);
        }
    }
}

#[tokio::test]
async fn a_connection_that_becomes_unused_makes_room_for_one_that_waits() {
    let limits = ConnectionLimits::new(1, 8);
    let (server, user, other) = (server().await, limited(&limits), limited(&limits));
    let file = user.open(&server.url("a"), &OpenWith::read()).await.unwrap();
    let files = other.file_system(&server.url("a"));
    let mut waiting = Box::pin(files.stat("/a"));
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("the only connection is in use"),
        _ = file.read(0, 1) => {}
    }
    file.close().await.unwrap();
    drop(file);
    waiting.await.unwrap();
    assert_eq!(server.connections.load(Ordering::SeqCst), 2);
}
