//! Third-party copies: the source receives the grant before the destination starts.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use client::copy::{Copier, CopyDelegation, CopyJob, CopyOptions, Place, ThirdParty, Watch};
use support::{Act, Asked, Fake, MANAGER, SERVER, client, ok, opened, send, stat_text};
use tokio::sync::oneshot;
use wire::xroot::RequestCode;
use wire::xroot::reply::{self, Redirect};

fn about(asked: &Asked) -> Act {
    match asked.code() {
        RequestCode::STAT => ok(asked, &stat_text(4)),
        RequestCode::QUERY => ok(asked, b"1\n1\n\0"),
        RequestCode::OPEN => opened(asked, 7, 4),
        _ => ok(asked, b""),
    }
}

/// Checks that no sync is sent before the source has answered the grant. A real destination starts
/// its program at the first sync. A real source loses one of both when the grant and that program
/// arrive at the same moment.
#[tokio::test]
async fn nothing_is_synced_before_the_source_has_granted_it() {
    let ((asks, asked), (answer, told)) = (oneshot::channel(), oneshot::channel());
    let granted = Arc::new(AtomicBool::new(false));
    let mut gate = Some((asks, told));
    let source = Fake::start(SERVER, move |asked| {
        let act = about(asked);
        let grants = asked.code() == RequestCode::OPEN && asked.text().contains("tpc.dst=");
        match gate.take_if(|_| grants) {
            Some((asks, told)) => {
                asks.send(()).unwrap();
                act.when(told)
            }
            None => act,
        }
    })
    .await;
    let (known, early) = (granted.clone(), Arc::new(AtomicBool::new(false)));
    let seen = early.clone();
    let target = Fake::start(SERVER, move |asked| {
        if asked.code() == RequestCode::SYNC && !known.load(Ordering::SeqCst) {
            seen.store(true, Ordering::SeqCst);
        }
        about(asked)
    })
    .await;
    let client = client(&[]);
    let mut options = CopyOptions::of(client.settings());
    options.third_party = ThirdParty::Only;
    let places = (Place::Remote(source.url("/old")), Place::Remote(target.url("/new")));
    let job = CopyJob { source: places.0, target: places.1, size: None };
    let grant = async {
        asked.await.unwrap();
        granted.store(true, Ordering::SeqCst);
        answer.send(()).unwrap();
    };
    let (copier, watch) = (Copier::new(&client), Watch::default());
    let (copied, ()) = tokio::join!(copier.copy(&job, &options, &watch), grant);
    assert!(copied.unwrap().third_party);
    assert_eq!(target.count(RequestCode::SYNC), 2);
    assert!(!early.load(Ordering::SeqCst), "synced too early");
}

/// A server that does not copy with delegated credentials is not offered any.
#[tokio::test]
async fn credentials_are_offered_only_to_servers_that_declare_to_use_them() {
    for (declared, expected) in [("1\n1\n\0", "tpc.dlgon=0"), ("1\ngsi\n\0", "tpc.dlgon=1")] {
        let answer = move |asked: &Asked| match asked.code() {
            RequestCode::QUERY => ok(asked, declared.as_bytes()),
            _ => about(asked),
        };
        let (source, target) = (Fake::start(SERVER, about).await, Fake::start(SERVER, answer).await);
        let client = client(&[]);
        let mut options = CopyOptions::of(client.settings());
        options.third_party = ThirdParty::Only;
        options.delegation = CopyDelegation::Supported;
        let places = (Place::Remote(source.url("/old")), Place::Remote(target.url("/new")));
        let job = CopyJob { source: places.0, target: places.1, size: None };
        // The end of the copy is not that of a real one.
        let _ = Copier::new(&client).copy(&job, &options, &Watch::default()).await;
        let offered = target.texts(RequestCode::OPEN);
        assert!(offered.iter().any(|open| open.contains(expected)), "{declared:?} {offered:?}");
    }
}

/// Behind a manager, the server of the file declares no use of credentials. It does not have to copy
/// by a key from a file that was opened for a copy with credentials.
#[tokio::test]
async fn a_target_behind_a_manager_is_opened_again_without_credentials() {
    let answer = |asked: &Asked| match asked.code() {
        RequestCode::QUERY => ok(asked, b"1\n1\n\0"),
        _ => about(asked),
    };
    let (source, target) = (Fake::start(SERVER, answer).await, Fake::start(SERVER, answer).await);
    let port = target.address.port();
    let manager = Fake::start(MANAGER, move |asked| match asked.code() {
        RequestCode::OPEN => send(|out| {
            reply::redirect(out, asked.header.streamid, &Redirect::to_host(b"127.0.0.1", port));
        }),
        _ => about(asked),
    })
    .await;
    let client = client(&[]);
    let mut options = CopyOptions::of(client.settings());
    options.third_party = ThirdParty::Only;
    options.delegation = CopyDelegation::Supported;
    let places = (Place::Remote(source.url("/old")), Place::Remote(manager.url("/new")));
    let job = CopyJob { source: places.0, target: places.1, size: None };
    // The end of the copy is not that of a real one.
    let _ = Copier::new(&client).copy(&job, &options, &Watch::default()).await;
    let opened = target.texts(RequestCode::OPEN);
    let kinds: Vec<bool> = opened.iter().map(|open| open.contains("tpc.dlgon=1")).collect();
    assert_eq!(kinds, [true, false], "{opened:?}");
    let permissions = source.texts(RequestCode::OPEN);
    assert!(permissions.iter().any(|open| open.contains("tpc.dst=")), "{permissions:?}");
}
