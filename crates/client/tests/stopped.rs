//! Copies that are stopped while the open of their target is in flight.
//!
//! New files are removed, and existing files are kept.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use client::Cause;
use client::copy::{Copier, CopyError, CopyJob, CopyOptions, DirectorySync, Equal, Place, ThirdParty, Watch};
use support::{Act, Asked, Fake, SERVER, client, close, ok, opened, send, silence, stat_text};
use tokio::sync::oneshot;
use tokio::time::Instant;
use wire::xroot::reply;
use wire::xroot::{ErrorCode, RequestCode};

/// A server that can take part in third-party copies. It answers opens on a signal, with the result
/// of `open`.
struct Slow {
    server: Fake,
    /// Completes when the open arrives.
    asked: oneshot::Receiver<()>,
    /// Releases the reply.
    answer: oneshot::Sender<()>,
}

fn about(asked: &Asked) -> Act {
    match asked.code() {
        RequestCode::STAT => ok(asked, &stat_text(4)),
        RequestCode::QUERY => ok(asked, b"1\n1\n\0"),
        RequestCode::OPEN => opened(asked, 7, 4),
        RequestCode::READ | RequestCode::PGREAD => ok(asked, b"data"),
        _ => ok(asked, b""),
    }
}

async fn slow(open: impl Fn(&Asked) -> Act + Send + 'static) -> Slow {
    let ((tell, asked), (answer, told)) = (oneshot::channel(), oneshot::channel());
    let mut first = Some((tell, told));
    let server = Fake::start(SERVER, move |asked| match asked.code() {
        RequestCode::OPEN => {
            let act = open(asked);
            match first.take() {
                Some((tell, told)) => {
                    tell.send(()).unwrap();
                    act.when(told)
                }
                None => act,
            }
        }
        _ => about(asked),
    })
    .await;
    Slow { server, asked, answer }
}

/// Returns the requests that the server received since its open, in order.
fn since_open(server: &Fake) -> Vec<RequestCode> {
    let asked = server.asked.lock().unwrap();
    let codes = asked.iter().map(Asked::code).filter(|code| *code != RequestCode::PING);
    codes.skip_while(|code| *code != RequestCode::OPEN).collect()
}

/// Returns the paths that the client removed at the server.
fn removed(server: &Fake) -> Vec<String> {
    let bare = |text: String| text.split('?').next().unwrap().to_owned();
    server.texts(RequestCode::RM).into_iter().map(bare).collect()
}

/// Copies to the server and stops the copy when the open arrives. The server may answer it then.
async fn stopped(source: Place, slow: Slow, third_party: ThirdParty, answers: bool) -> (CopyError, Fake) {
    let Slow { server, asked, answer } = slow;
    let job = CopyJob { source, target: Place::Remote(server.url("/new")), size: None };
    let client = client(&[]);
    let mut options = CopyOptions::of(client.settings());
    options.third_party = third_party;
    let (copier, watch) = (Copier::new(&client), Watch::default());
    let stop = async {
        asked.await.unwrap();
        watch.cancel();
        tokio::task::yield_now().await;
        if answers {
            answer.send(()).unwrap();
            return None;
        }
        Some(answer)
    };
    let (result, _kept) = tokio::join!(copier.copy(&job, &options, &watch), stop);
    (result.unwrap_err(), server)
}

fn local() -> (Place, Removed) {
    let path = std::env::temp_dir().join(format!(
        "scalla-stopped-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    std::fs::write(&path, b"data").unwrap();
    (Place::Local(path.clone()), Removed(path))
}

struct Removed(std::path::PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

#[tokio::test]
async fn a_stopped_upload_leaves_no_file() {
    let (source, _removed) = local();
    let target = slow(|asked| opened(asked, 7, 0)).await;
    let (error, server) = stopped(source, target, ThirdParty::Never, true).await;
    assert!(matches!(error, CopyError::Cancelled), "{error}");
    use RequestCode as Code;
    assert_eq!(since_open(&server), [Code::OPEN, Code::CLOSE, Code::STAT, Code::RM]);
    assert_eq!(removed(&server), ["/new"]);
}

/// Stops an upload when its first open arrives. The connection ends at the first of each request of
/// `lost`, which is carried out nevertheless.
async fn stopped_on_a_bad_line(lost: &'static [RequestCode], retries: u64) -> (CopyError, Fake) {
    let (source, _removed) = local();
    let watch = Watch::default();
    let stop = watch.clone();
    let mut still_lost = lost.to_vec();
    let server = Fake::start(SERVER, move |asked| {
        if asked.code() == RequestCode::OPEN {
            stop.cancel();
        }
        if let Some(at) = still_lost.iter().position(|code| *code == asked.code()) {
            still_lost.remove(at);
            return close();
        }
        match asked.code() {
            RequestCode::STAT => ok(asked, &stat_text(0)),
            RequestCode::OPEN => opened(asked, 7, 0),
            _ => about(asked),
        }
    })
    .await;
    let job = CopyJob { source, target: Place::Remote(server.url("/new")), size: None };
    let client = client(&[]);
    let mut options = CopyOptions::of(client.settings());
    options.retries = retries;
    (Copier::new(&client).copy(&job, &options, &watch).await.unwrap_err(), server)
}

#[tokio::test]
async fn a_stopped_upload_tells_that_there_may_be_a_new_file() {
    for retries in [0, 3] {
        let (error, server) = stopped_on_a_bad_line(&[RequestCode::OPEN], retries).await;
        let text = error.to_string();
        assert!(error.is_uncertain() && text.contains("there is an empty file of that name"), "{text}");
        assert_eq!(since_open(&server), [RequestCode::OPEN, RequestCode::ENDSESS, RequestCode::STAT]);
    }
}

#[tokio::test]
async fn the_removal_after_a_stop_is_repeated_if_its_reply_is_lost() {
    use RequestCode as Code;
    let (error, server) = stopped_on_a_bad_line(&[Code::RM], 0).await;
    assert!(matches!(error, CopyError::Cancelled), "{error}");
    // The client looks whether the file is still there, and whether it is still its own.
    let expected =
        [Code::OPEN, Code::CLOSE, Code::STAT, Code::RM, Code::ENDSESS, Code::STAT, Code::STAT, Code::RM];
    assert_eq!(since_open(&server), expected);
}

#[tokio::test]
async fn a_stopped_third_party_copy_leaves_no_file() {
    let source = Fake::start(SERVER, about).await;
    let target = slow(|asked| opened(asked, 7, 0)).await;
    let (error, server) = stopped(Place::Remote(source.url("/old")), target, ThirdParty::Only, true).await;
    assert!(matches!(error, CopyError::Cancelled), "{error}");
    let expected =
        [RequestCode::OPEN, RequestCode::QUERY, RequestCode::CLOSE, RequestCode::STAT, RequestCode::RM];
    assert_eq!(since_open(&server), expected);
    assert_eq!(removed(&server), ["/new"]);
}

#[tokio::test]
async fn a_stopped_copy_keeps_an_existing_file() {
    let exists =
        |asked: &Asked| send(|out| reply::error(out, asked.header.streamid, ErrorCode::IT_EXISTS, "exists"));
    let source = Fake::start(SERVER, about).await;
    for third_party in [ThirdParty::Never, ThirdParty::Only] {
        let target = slow(exists).await;
        let (error, server) = stopped(Place::Remote(source.url("/old")), target, third_party, true).await;
        assert!(matches!(error, CopyError::Cancelled), "{error}");
        assert_eq!(since_open(&server), [RequestCode::OPEN]);
    }
}

/// The status of a file that differs from the source.
const OTHER_FILE: &[u8] = b"8 9 48 90 90 90 0644 me us\0";

/// Overwrites an existing file and stops the copy at the request `at`. The server replies to it if
/// `answers` is set. Returns the requests since the open.
async fn overwrite_stopped(at: RequestCode, answers: bool) -> Vec<RequestCode> {
    let source = Fake::start(SERVER, about).await;
    let watch = Watch::default();
    let stop = watch.clone();
    let server = Fake::start(SERVER, move |asked| {
        let is_there = asked.code() == at;
        if is_there {
            stop.cancel();
        }
        match asked.code() {
            _ if is_there && !answers => silence(),
            // It is not the source.
            RequestCode::OPEN => ok(asked, &[&[7, 0, 0, 0][..], &[0; 8], OTHER_FILE].concat()),
            RequestCode::STAT => ok(asked, OTHER_FILE),
            _ => about(asked),
        }
    })
    .await;
    let job = CopyJob {
        source: Place::Remote(source.url("/old")),
        target: Place::Remote(server.url("/new")),
        size: None,
    };
    let client = client(&[]);
    let mut options = CopyOptions::of(client.settings());
    (options.third_party, options.force) = (ThirdParty::Never, true);
    let error = Copier::new(&client).copy(&job, &options, &watch).await.unwrap_err();
    assert!(matches!(error, CopyError::Cancelled), "{error}");
    since_open(&server)
}

#[tokio::test(start_paused = true)]
async fn a_stopped_copy_keeps_a_file_that_it_has_not_emptied() {
    use RequestCode as Code;
    assert_eq!(overwrite_stopped(Code::OPEN, true).await, [Code::OPEN, Code::CLOSE]);
    let unanswered = overwrite_stopped(Code::TRUNCATE, false).await;
    assert!(!unanswered.contains(&Code::RM), "{unanswered:?}");
    let emptied = overwrite_stopped(Code::TRUNCATE, true).await;
    assert_eq!(emptied, [Code::OPEN, Code::TRUNCATE, Code::CLOSE, Code::STAT, Code::RM]);
}

#[tokio::test(start_paused = true)]
async fn a_third_party_copy_that_timed_out_leaves_no_file() {
    let source = Fake::start(SERVER, about).await;
    let target = slow(|asked| opened(asked, 7, 0)).await;
    let client = client(&[("CPInitTimeout", "100"), ("StreamTimeout", "1000")]);
    let mut options = CopyOptions::of(client.settings());
    options.third_party = ThirdParty::Only;
    let job = CopyJob {
        source: Place::Remote(source.url("/old")),
        target: Place::Remote(target.server.url("/new")),
        size: None,
    };
    let (copier, watch, begun) = (Copier::new(&client), Watch::default(), Instant::now());
    let late = async {
        target.asked.await.unwrap();
        tokio::time::sleep_until(begun + Duration::from_secs(102)).await;
        target.answer.send(()).unwrap();
    };
    let (result, ()) = tokio::join!(copier.copy(&job, &options, &watch), late);
    match result.unwrap_err() {
        CopyError::Remote { error, .. } => assert!(matches!(error.cause(), Cause::TimedOut(100)), "{error}"),
        other => panic!("{other}"),
    }
    assert_eq!(removed(&target.server), ["/new"]);
}

#[tokio::test(start_paused = true)]
async fn an_open_without_a_reply_times_out() {
    let source = Fake::start(SERVER, about).await;
    let target = slow(|asked| opened(asked, 7, 0)).await;
    let begun = Instant::now();
    let (error, server) = stopped(Place::Remote(source.url("/old")), target, ThirdParty::Never, false).await;
    assert!(matches!(error, CopyError::Cancelled), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    assert_eq!(since_open(&server), [RequestCode::OPEN]);
}

#[tokio::test(start_paused = true)]
async fn a_sync_that_is_stopped_during_its_scan_ends_at_once() {
    let server = Fake::start(SERVER, |_| silence()).await;
    let client = client(&[]);
    let sync = DirectorySync {
        source: Place::Remote(server.url("/from")),
        target: Place::Local(std::env::temp_dir().join("scalla-stopped-nowhere")),
        equal: Equal::Time,
        delete: true,
        max_delete: None,
        allow_empty: false,
        allow_away: false,
        allow_links: false,
        dry_run: false,
        parallel: 1,
        options: CopyOptions::of(client.settings()),
    };
    let (copier, watch, begun) = (Copier::new(&client), Watch::default(), Instant::now());
    let stop = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        watch.cancel();
    };
    let (result, ()) = tokio::join!(copier.sync(&sync, |_| (), Arc::new(()), &watch), stop);
    assert!(matches!(result, Err(CopyError::Cancelled)), "{result:?}");
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}
